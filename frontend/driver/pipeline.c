#include "frontend/driver/pipeline.h"
#include "frontend/driver/dump.h"
#include "frontend/driver/origin.h"
#include "frontend/driver/tensors/tensor_file.h"
#include "frontend/driver/training/remember.h"
#include "frontend/driver/train_facts.h"
#include "graph/pass/pass.h"
#include "runtime/base/file.h"
#include "runtime/base/cores.h"
#include "runtime/cpu/isa.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pipeline_init(Pipeline *p, const char *model_path) {
    *p = (Pipeline){.arena = arena_create(), .fuse_at_most = FUSE_ALL};
    p->diags = diag_create(p->arena, model_path);
}

void pipeline_free(Pipeline *p) {
    arena_destroy(p->arena);
    *p = (Pipeline){0};
}

DType pipeline_rounds_to(const Pipeline *p) {
    return p->tf32 ? DT_f16 : p->precision;
}

static Dump dump_for(Pipeline *p, const graphc_compile_options *o) {
    return (Dump){.dir = o->dump_dir, .arena = p->arena, .diags = p->diags};
}

/* The row of that name; of "native" the CPU's, whose code is then for this machine alone. NULL:
 * diagnosed. */
static const Target *choose_target(Pipeline *p, const char *name, size_t n) {
    const bool native = n == strlen("native") && memcmp(name, "native", n) == 0;
    const Target *row = native ? target_for(PLAN_cpu) : target_find(name, n);
    if (!row)
        (void)diag(p->diags, D_USAGE, "--target", "unknown target \"%.*s\"; there are native, %s",
                   (int)n, name, target_names(p->arena));
    if (!native || p->forms) return row;
    p->forms = isa_forms(PLAN_CPU_FORMS - 1);
    if (p->forms) return row;
    (void)diag(p->diags, D_USAGE, "--target", "this machine runs none of the CPU's code");
    return NULL;
}

/* Names of known targets, each once, with commas between: those are p's from here on. */
static graphc_status choose_targets(Pipeline *p, const char *list) {
    size_t most = 1;
    for (const char *s = list; *s; s++) most += *s == ',';
    p->targets = ARENA_ARRAY(p->arena, PlanTargetInput, most);
    p->ntargets = 0;
    for (const char *s = list, *end;; s = end + 1) {
        end = s + strcspn(s, ",");
        const Target *row = choose_target(p, s, (size_t)(end - s));
        if (!row) return GRAPHC_USAGE;
        for (uint32_t i = 0; i < p->ntargets; i++)
            if (p->targets[i].target == row)
                return diag(p->diags, D_USAGE, "--target", "\"%s\" is named twice", row->name);
        p->targets[p->ntargets++].target = row;
        if (!*end) return GRAPHC_OK;
    }
}

static graphc_status choose_precision(Pipeline *p, const char *name) {
    static const DType known[] = {DT_f32, DT_bf16, DT_f16};
    p->tf32 = strcmp(name, "tf32") == 0;
    if (p->tf32) name = dtype_name(DT_f32);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, dtype_name(known[i])) == 0) return p->precision = known[i], GRAPHC_OK;
    return diag(p->diags, D_USAGE, "--precision",
                "unknown precision \"%s\"; there are f32, tf32, bf16 and f16", name);
}

static graphc_status check_dims(Pipeline *p, const graphc_compile_options *o) {
    if (o->nstates && o->training)
        return diag(p->diags, D_USAGE, "--state", "a training plan has states of its own");
    for (uint32_t i = 0; i < o->nstates; i++)
        if (!o->states[i].input || !o->states[i].output)
            return diag(p->diags, D_USAGE, "--state", "number %u lacks a name", i);
    for (uint32_t i = 0; i < o->ndims; i++) {
        const graphc_compile_dim *d = &o->dims[i];
        if (!d->name || d->lo < 0 || d->hi < d->lo)
            return diag(p->diags, D_USAGE, "--dim", "number %u has no name or no range", i);
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(d->name, o->dims[k].name) == 0)
                return diag(p->diags, D_USAGE, "--dim", "\"%s\" is given twice", d->name);
    }
    return GRAPHC_OK;
}

/* A stage's progress is told; the caller may have enough. */
static graphc_status tell(Pipeline *p, const graphc_compile_options *o, const char *stage,
                          uint32_t done, uint32_t of) {
    if (!o->progress || o->progress(o->progress_ctx, stage, done, of)) return GRAPHC_OK;
    return diag(p->diags, D_CANCELLED, "", "stopped by the caller before stage \"%s\"", stage);
}

static bool tell_kernels(void *options, uint32_t done, uint32_t of) {
    const graphc_compile_options *o = options;
    return o->progress(o->progress_ctx, "kernels", done, of);
}

/* What can be said about options before the model is looked at. */
static graphc_status check_options(Pipeline *p, const graphc_compile_options *o) {
    GC_TRY(choose_targets(p, o->target ? o->target : target_at(0)->name));
    GC_TRY(choose_precision(p, o->precision ? o->precision : "f32"));
    GC_TRY(check_dims(p, o));
    if (o->accuracy_level > 4)
        return diag(p->diags, D_USAGE, "--accuracy-level", "there are levels 1 to 4");
    char why[256];
    if (!o->cache_dir || folder_make(o->cache_dir, why) == GRAPHC_OK) return GRAPHC_OK;
    return diag(p->diags, D_IO, o->cache_dir, "%s", why);
}

static graphc_status check_option(Pipeline *p, const Optimizer *o, const char *option) {
    if (optimizer_reads(o, option + 2)) return GRAPHC_OK;
    return diag(p->diags, D_USAGE, option, "%s has no such parameter", optimizer_name(o->kind));
}

static graphc_status unknown_optimizer(Pipeline *p, const char *name) {
    StrBuf names;
    sb_init(&names, p->arena);
    for (uint32_t k = 0; k < OPTIMIZER_KINDS; k++)
        sb_printf(&names, "%s%s", k ? ", " : "", optimizer_name((OptimizerKind)k));
    (void)diag(p->diags, D_USAGE, "--optimizer", "there is no optimizer \"%s\"", name);
    diag_hint(p->diags, "there are %s", sb_str(&names));
    return diag_info[D_USAGE].status;
}

/* The optimizer's own parameters where the options leave them. */
static graphc_status choose_optimizer(Pipeline *p, const graphc_training *t, Optimizer *out) {
    const char *name = t->optimizer ? t->optimizer : "adamw";
    if (!optimizer_default(name, out)) return unknown_optimizer(p, name);
    const struct {
        const char *option;
        double given, *field;
        bool below_one;
    } fields[] = {{"--beta1", t->beta1, &out->beta1, true},
                  {"--beta2", t->beta2, &out->beta2, true},
                  {"--eps", t->eps, &out->eps, false},
                  {"--weight-decay", t->weight_decay, &out->weight_decay, false},
                  {"--momentum", t->momentum, &out->momentum, false}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!(fields[i].given >= 0)) continue;
        GC_TRY(check_option(p, out, fields[i].option));
        if (fields[i].below_one && fields[i].given >= 1)
            return diag(p->diags, D_USAGE, fields[i].option, "%g is not below 1", fields[i].given);
        *fields[i].field = fields[i].given;
    }
    if (t->nesterov) GC_TRY(check_option(p, out, "--nesterov"));
    if (t->nesterov && out->momentum == 0)
        return diag(p->diags, D_USAGE, "--nesterov", "there is no --momentum");
    out->nesterov = t->nesterov;
    out->clip = t->clip;
    return GRAPHC_OK;
}

/* Weights of classes that are a file's. */
static graphc_status read_class_weights(Pipeline *p, LossSpec *s) {
    EvalTensor t;
    const char *path = s->class_weights, *end = path ? strrchr(path, '.') : NULL;
    if (!end || strcmp(end, ".npy") != 0) return GRAPHC_OK;
    GC_TRY(tensor_file_read(p->arena, p->diags, path, "", &t));
    if (t.rank != 1 || !dtype_is_float(t.dtype) || t.dim[0] > UINT32_MAX)
        return diag(p->diags, D_SHAPE, path, "is no list of weights");
    float *v = ARENA_ARRAY(p->arena, float, (size_t)t.dim[0] + 1);
    for (int64_t i = 0; i < t.dim[0]; i++)
        v[i] = (float)dtype_load_f64(t.dtype, t.data, (uint64_t)i);
    s->class_weight = v;
    s->nclass_weights = (uint32_t)t.dim[0];
    return GRAPHC_OK;
}

static uint32_t most_processors(const Pipeline *p) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->ntargets; i++) {
        const uint32_t n = p->targets[i].target->machine.processors;
        if (n > most) most = n;
    }
    return most;
}

/* The model becomes a training graph. */
static graphc_status add_training(Pipeline *p, const graphc_training *t, Dump *d) {
    TrainSpec s = {.trainable = {t->train, t->freeze},
                   .no_decay = t->no_decay,
                   .guard = {t->guard || t->clip > 0, t->loss_scale, t->scale_every},
                   .head_rows = t->head_rows,
                   .processors = most_processors(p),
                   .accumulate = t->accumulate,
                   .documents = t->documents};
    if (t->loss_scale < 0 && p->precision == DT_f16) s.guard.scale = GUARD_SCALE;
    LoraSpec lora;
    if (!t->loss) return diag(p->diags, D_USAGE, "--loss", "is missing");
    GC_TRY(remember_check(t, p->diags));
    GC_TRY(loss_parse(p->arena, p->diags, t->loss, &s.loss));
    GC_TRY(read_class_weights(p, &s.loss));
    GC_TRY(choose_optimizer(p, t, &s.optimizer));
    if (t->lora) {
        GC_TRY(lora_parse(p->arena, p->diags, t->lora, &lora));
        s.lora = &lora;
    }
    GC_TRY(graph_before_gradients(&p->imported));
    GC_TRY(train_build(p->imported, &s, &p->training));
    p->imported = p->training.g;
    dump_graph(d, "00-training.gir", p->imported);
    return GRAPHC_OK;
}

/* Places for adapters that are loaded later. */
static graphc_status choose_adapters(Pipeline *p, const graphc_compile_options *o) {
    if (!o->adapters && !o->lora) return GRAPHC_OK;
    if (!o->adapters || o->training || p->lora)
        return diag(p->diags, D_USAGE, "--adapters",
                    o->adapters ? "goes with no other adapter or training"
                                : "--lora says of which layers, not how many");
    LoraSpec *s = ARENA_NEW(p->arena, LoraSpec);
    GC_TRY(lora_parse(p->arena, p->diags, o->lora ? o->lora : "r=16", s));
    if (s->dora || s->dropout > 0 || s->bias || s->save.n)
        return diag(p->diags, D_UNSUPPORTED, "--adapters", "places are for r and targets alone");
    s->alpha = s->rank, s->rslora = false, s->alphas.n = 0; /* B comes with its scale */
    s->slots = o->adapters;
    p->lora = s;
    return GRAPHC_OK;
}

/* The symbol d is n from now on, unless the options say otherwise. */
static void fix_dim(const Graph *g, ImportOptions *io, ImportDim *dims, Expr d, uint32_t n) {
    uint32_t sym;
    if (!n || !expr_is_sym(g->exprs, d, &sym)) return;
    const char *name = expr_sym_info(g->exprs, sym)->name;
    for (uint32_t i = 0; i < io->ndims; i++)
        if (strcmp(dims[i].name, name) == 0) return;
    dims[io->ndims++] = (ImportDim){name, n, n};
}

/* Sizes that a training plan has once and for all: kernels of known sizes are better ones, and
 * compile sooner. The model is read for the names of its sizes; what there is to say of it is said
 * when it is read again, at once if it cannot be. */
static graphc_status fix_sizes(Pipeline *p, const char *path, const graphc_compile_options *o,
                               ImportOptions *io) {
    Model *model;
    Graph *g;
    if (!o->training->batch && !o->training->seq) return GRAPHC_OK;
    if (import_model(p->arena, diag_create(p->arena, path), path, io, &model, &g) != GRAPHC_OK)
        GC_TRY(import_model(p->arena, p->diags, path, io, &model, &g));
    ImportDim *dims = ARENA_ARRAY(p->arena, ImportDim, io->ndims + 2 * g->inputs.n);
    for (uint32_t i = 0; i < io->ndims; i++) dims[i] = io->dims[i];
    for (uint32_t i = 0; i < g->inputs.n; i++) {
        const Type *t = &g->inputs.v[i].type;
        if (t->rank) fix_dim(g, io, dims, t->dim[0], o->training->batch);
        if (t->rank == 2 && !dtype_is_float(t->dtype))
            fix_dim(g, io, dims, t->dim[1], o->training->seq);
    }
    io->dims = dims;
    import_close(model);
    return GRAPHC_OK;
}

/* Whether a target is the faster for bytes in blocks. */
static bool multiplies_bytes(const Pipeline *p) {
    bool any = false;
    for (uint32_t i = 0; i < p->ntargets; i++) any |= p->targets[i].target->machine.quads;
    return any;
}

graphc_status pipeline_import(Pipeline *p, const char *model_path,
                              const graphc_compile_options *o) {
    GC_TRY(check_options(p, o));
    GC_TRY(tell(p, o, "import", 0, 1));
    GC_TRY(choose_adapters(p, o));
    ImportDim *dims = ARENA_ARRAY(p->arena, ImportDim, o->ndims);
    for (uint32_t i = 0; i < o->ndims; i++)
        dims[i] = (ImportDim){o->dims[i].name, o->dims[i].lo, o->dims[i].hi};
    ImportOptions io = p->trained ? *p->trained : (ImportOptions){0};
    io.weights |= o->training || p->lora;
    if (o->training) {
        const bool adapters = o->training->lora != NULL;
        io.batch_norm = adapters || o->training->frozen_batch_norm ? IMPORT_infers : IMPORT_trains;
        io.dropout = o->training->no_dropout ? IMPORT_infers : IMPORT_trains;
    }
    io.from = (ImportSource){.bytes = p->bytes,
                             .size = p->size,
                             .external = o->external,
                             .ctx = o->external_ctx,
                             .links = {.anywhere = o->allow_links, .root = o->weights_root}};
    io.dims = dims;
    io.ndims = o->ndims;
    io.accuracy_level = o->accuracy_level;
    io.rounds_to_bytes = !o->training && !p->lora && !p->trained && multiplies_bytes(p);
    p->rounds_to_bytes = io.rounds_to_bytes && o->accuracy_level == IMPORT_LEVEL_BYTES;
    if (o->training) GC_TRY(fix_sizes(p, model_path, o, &io));
    GC_TRY(import_model(p->arena, p->diags, model_path, &io, &p->model, &p->imported));
    for (uint32_t i = 0; i < o->nstates; i++)
        GC_TRY(graph_tie(p->imported, o->states[i].input, o->states[i].output));
    Dump d = dump_for(p, o);
    GC_TRY(dump_open(&d));
    dump_graph(&d, "00-import.gir", p->imported);
    if (p->lora) GC_TRY(lora_apply(p->imported, p->lora, &p->imported, &p->training.lora));
    return o->training ? add_training(p, o->training, &d) : GRAPHC_OK;
}

/* What kernels hand to each other is rounded, too, where one of the targets gains by it: they share
 * the graph. In training memory counts. */
static bool rounds_streams(const Pipeline *p, const graphc_compile_options *o) {
    bool any = o->training;
    for (uint32_t i = 0; i < p->ntargets; i++) any |= p->targets[i].target->machine.rounds_streams;
    return any;
}

graphc_status pipeline_optimise(Pipeline *p, const graphc_compile_options *o) {
    Dump d = dump_for(p, o);
    PassDump hook = {dump_pass, &d};
    p->graph = p->imported;
    GC_TRY(tell(p, o, "passes", 0, 1));
    GC_TRY(
        graph_optimise(&p->graph, p->precision, rounds_streams(p, o), o->dump_dir ? &hook : NULL));
    dump_graph(&d, "pre-fusion.gir", p->graph);
    return GRAPHC_OK;
}

/* What only some targets ask for. */
static Graph *for_machine(const Pipeline *p, const Machine *m) {
    const struct {
        bool asked;
        Graph *(*pass)(Graph *g);
    } steps[] = {{m->mixes, pass_mixes},
                 {m->flattens_patches, pass_patches},
                 {m->flattens_patches, pass_conv_widen},
                 {m->flattens_patches && m->digits, pass_conv_widen_f32},
                 {m->turns_convolutions, pass_turn_conv},
                 {m->quads, pass_quads},
                 {m->quads, pass_dce},
                 {m->quads, pass_requantise},
                 {m->pack_width, p->rounds_to_bytes ? pass_few_bits_rounded : pass_few_bits},
                 {m->pack_width, pass_turn_captures},
                 {m->bytes, pass_bytes},
                 {m->terms, pass_join_sums},
                 {m->cuts_sums, pass_cut_sums},
                 {m->cuts_dots, pass_cut_dots},
                 {m->digits, p->tf32 ? pass_high_digits : pass_digits}};
    Graph *g = p->graph;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].asked) graph_replace(&g, steps[i].pass(g), p->graph);
    return g;
}

static graphc_status build_target(Pipeline *p, PlanTargetInput *t,
                                  const graphc_compile_options *o) {
    Dump d = dump_for(p, o);
    if (p->ntargets > 1) d.target = t->target->name;
    Schedule *s;
    Machine *m = arena_copy(p->arena, &t->target->machine, sizeof *m);
    m->sums_apart = o->training && o->training->any_order;
    Graph *g = for_machine(p, m);
    GC_TRY(diag_status(p->diags));
    if (o->training)
        GC_TRY(remember(p, g, m, o->training, &s, &t->notes));
    else
        GC_TRY(schedule_build(g, m, p->fuse_at_most, p->arena, &s));
    dump_schedule(&d, "post-fusion.kir", s);
    CodeOptions co = {.threads = o->threads, .cache_dir = o->cache_dir};
    co.tf32 = p->tf32;
    co.any_order = o->training && o->training->any_order;
    co.forms = p->forms;
    co.variants = p->variants;
    co.tuned = p->tuned;
    co.tuned_ctx = p->tuned_ctx;
    d.reader = p->reader;
    d.code_of = t->target->name;
    if (o->dump_dir || p->reader) {
        co.dump = dump_code;
        co.dump_ctx = &d;
    }
    graphc_compile_options told = *o;
    if (o->progress) {
        co.progress = tell_kernels;
        co.progress_ctx = &told;
    }
    CodeResult *code = ARENA_NEW(p->arena, CodeResult);
    GC_TRY(codegen_run(t->target, s, &co, p->arena, p->diags, code));
    t->schedule = s;
    t->code = code;
    return GRAPHC_OK;
}

graphc_status pipeline_targets(Pipeline *p, const graphc_compile_options *o) {
    for (uint32_t i = 0; i < p->ntargets; i++) GC_TRY(build_target(p, &p->targets[i], o));
    return GRAPHC_OK;
}

graphc_status pipeline_plan(Pipeline *p, const graphc_compile_options *o) {
    GC_TRY(tell(p, o, "plan", 0, 1));
    PlanBuildOptions po = {
        .embed = o->embed, .imported = p->imported, .weights_dir = o->weights_dir};
    if (o->training || p->lora) GC_TRY(train_facts(p, o->training, &po));
    origin_notes(p, o->accuracy_level, &po);
    GC_TRY(plan_build(p->graph, p->targets, p->ntargets, &po, p->arena, p->diags, &p->plan,
                      &p->plan_size));
    Dump d = dump_for(p, o);
    dump_plan(&d, "plan.txt", p->plan, p->plan_size);
    return GRAPHC_OK;
}

graphc_status pipeline_run(Pipeline *p, const char *model_path, const graphc_compile_options *o) {
    GC_TRY(pipeline_import(p, model_path, o));
    GC_TRY(pipeline_optimise(p, o));
    GC_TRY(pipeline_targets(p, o));
    GC_TRY(pipeline_plan(p, o));
    return diag_status(p->diags); /* dumps that could not be written */
}

struct graphc_compiled {
    Pipeline pipe;
    char no_memory[80]; /* the message, where there was none left to make one in */
};

typedef struct Compile {
    graphc_compiled *c;
    const char *path; /* NULL: bytes */
    const void *bytes;
    size_t size;
    const graphc_compile_options *o;
    graphc_status status;
} Compile;

static void compile(void *arg) {
    Compile *w = arg;
    Pipeline *p = &w->c->pipe;
    graphc_compile_options all = GRAPHC_COMPILE_OPTIONS_INIT;
    pipeline_init(p, w->path);
    p->bytes = w->bytes;
    p->size = w->size;
    if (!w->path && !w->bytes)
        w->status = diag(p->diags, D_USAGE, "graphc_compile", "the model is NULL");
    else if (w->o && w->o->size < offsetof(graphc_compile_options, precision))
        w->status =
            diag(p->diags, D_USAGE, "graphc_compile",
                 "the options' size is %u: start from GRAPHC_COMPILE_OPTIONS_INIT", w->o->size);
    else {
        /* Of options from an older or newer header the part that both know counts. */
        if (w->o) memcpy(&all, w->o, w->o->size < sizeof all ? w->o->size : sizeof all);
        w->status = pipeline_run(p, w->path ? w->path : "model", &all);
    }
}

static graphc_status compile_guarded(Compile w, graphc_compiled **out) {
    if (!out) return GRAPHC_USAGE;
    graphc_compiled *c = *out = calloc(1, sizeof **out);
    if (!c) return GRAPHC_NO_MEMORY;
    w.c = c;
    size_t wanted = stack_guard(compile, &w);
    if (!wanted) return w.status;
    pipeline_free(&c->pipe);
    snprintf(c->no_memory, sizeof c->no_memory,
             "graphc: error[G%04d]: out of memory (%zu bytes wanted)",
             diag_info[D_NO_MEMORY].number, wanted);
    return GRAPHC_NO_MEMORY;
}

graphc_status graphc_compile(const char *model_path, const graphc_compile_options *o,
                             graphc_compiled **out) {
    return compile_guarded((Compile){.path = model_path, .o = o}, out);
}

graphc_status graphc_compile_memory(const void *model, size_t size, const graphc_compile_options *o,
                                    graphc_compiled **out) {
    return compile_guarded((Compile){.bytes = model, .size = size, .o = o}, out);
}

void graphc_compiled_destroy(graphc_compiled *c) {
    if (!c) return;
    pipeline_free(&c->pipe);
    free(c);
}

const void *graphc_compiled_plan(const graphc_compiled *c, size_t *size) {
    if (size) *size = c->pipe.plan_size;
    return c->pipe.plan;
}

uint32_t graphc_compiled_messages(const graphc_compiled *c) {
    return c->no_memory[0] ? 1 : diag_count(c->pipe.diags);
}

typedef struct Render {
    const Pipeline *p;
    uint32_t i;
    const char *text;
} Render;

static void render(void *arg) {
    Render *r = arg;
    r->text = diag_render(r->p->diags, diag_at(r->p->diags, r->i), r->p->arena, false);
}

const char *graphc_compiled_message(const graphc_compiled *c, uint32_t i) {
    if (i >= graphc_compiled_messages(c)) return "";
    if (c->no_memory[0]) return c->no_memory;
    Render r = {.p = &c->pipe, .i = i};
    return arena_guard(render, &r) ? diag_at(c->pipe.diags, i)->text : r.text;
}

graphc_diagnostic graphc_compiled_diagnostic(const graphc_compiled *c, uint32_t i) {
    if (i >= graphc_compiled_messages(c))
        return (graphc_diagnostic){.place = "", .text = "", .hint = ""};
    static const Diag no_memory = {D_NO_MEMORY, "", "", NULL};
    const Diag *d = c->no_memory[0] ? &no_memory : diag_at(c->pipe.diags, i);
    const DiagInfo *info = &diag_info[d->id];
    return (graphc_diagnostic){.severity = (graphc_severity)info->severity,
                               .number = (uint32_t)info->number,
                               .status = info->status,
                               .place = d->place,
                               .text = *d->text ? d->text : info->summary,
                               .hint = d->hint ? d->hint : ""};
}
