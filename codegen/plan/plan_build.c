#include "codegen/plan/plan_build.h"
#include "codegen/plan/apart.h"
#include "codegen/plan/plan_write.h"
#include "graph/pass/rewrite.h"
#include "runtime/abi.h"
#include <string.h>

/* One target in the making. */
typedef struct Builder {
    PlanWriter w;
    const Graph *graph, *imported;
    const PlanBuildOptions *options;
    Arena *arena;
    DiagSink *diags;
    const Schedule *s;
    const CodeResult *code;
    ExprPool *exprs;
    const bool *computed;
    const char *target;
    MapU64 *sizes; /* those that put_sizes has written a check of */
    MapStr *ways;  /* keys of notes that put_ways has written */
    uint32_t nkernels;
} Builder;

static uint32_t dtype_code(DType t) {
    return dtype_info[t].onnx;
}

static uint32_t section_count(const Builder *b, PlanSectionId id, size_t record) {
    return (uint32_t)(b->w.section[id].n / record);
}

static const char *expr_text(Builder *b, Expr e) {
    StrBuf s;
    sb_init(&s, b->arena);
    expr_print(b->graph->exprs, e, &s);
    return sb_str(&s);
}

static PlanIo io_record(Builder *b, const char *name, const Type *t) {
    uint32_t dims[GRAPH_MAX_RANK], texts[GRAPH_MAX_RANK];
    for (uint32_t i = 0; i < t->rank; i++) {
        dims[i] = plan_write_expr(&b->w, b->graph->exprs, t->dim[i]);
        texts[i] = plan_write_str(&b->w, expr_text(b, t->dim[i]));
    }
    return (PlanIo){.name = plan_write_str(&b->w, name),
                    .dtype = dtype_code(t->dtype),
                    .rank = t->rank,
                    .dims = plan_write_list(&b->w, dims, t->rank),
                    .dim_text = plan_write_list(&b->w, texts, t->rank)};
}

static void put_io(Builder *b, PlanSectionId section, const IoInfo *io) {
    PlanIo r = io_record(b, io->name, &io->type);
    plan_write_record(&b->w, section, &r, sizeof r);
}

/* How much a state holds along the axis that grows after it was written. */
static Expr next_size(const Graph *g, uint32_t state) {
    const StateInfo *s = &g->states.v[state];
    for (uint32_t i = 0; i < g->writes.n; i++)
        if (g->writes.v[i].state == state)
            return graph_type(g, g->writes.v[i].value)->dim[s->grows - 1];
    return s->type.dim[s->grows - 1];
}

static const PlanStateFact *fact_of(const PlanBuildOptions *o, const char *name) {
    for (uint32_t i = 0; i < o->nfacts; i++)
        if (strcmp(o->facts[i].name, name) == 0) return &o->facts[i];
    return NULL;
}

/* 1 + the state of that name; 0: there is none. */
static uint32_t state_number(const Graph *g, const char *name) {
    for (uint32_t i = 0; name && i < g->states.n; i++)
        if (strcmp(g->states.v[i].name, name) == 0) return i + 1;
    return 0;
}

static void put_state(Builder *b, uint32_t i) {
    const StateInfo *s = &b->graph->states.v[i];
    PlanState r = {.io = io_record(b, s->name, &s->type), .grows = s->grows};
    if (s->grows) {
        r.room = plan_write_expr(&b->w, b->graph->exprs, s->room);
        r.next = plan_write_expr(&b->w, b->graph->exprs, next_size(b->graph, i));
    }
    if (s->initial.bytes) r.initial = plan_write_constant(&b->w, &s->initial) + 1;
    const PlanStateFact *f = fact_of(b->options, s->name);
    if (f) {
        r.role = f->role;
        r.of = state_number(b->graph, f->of);
        r.spread = f->spread;
    }
    PLAN_PUT(&b->w, states, r);
}

/* The numbers that are marked. */
static PlanList put_marked(Builder *b, const bool *is, uint32_t n, uint32_t *count) {
    uint32_t *v = ARENA_ARRAY(b->arena, uint32_t, n), m = 0;
    for (uint32_t i = 0; i < n; i++)
        if (is[i]) v[m++] = i;
    *count = m;
    return plan_write_list(&b->w, v, m);
}

/* A graph without entries is run as a whole, and takes all that it has. */
static void put_entry(Builder *b, const char *name, uint32_t set) {
    const Graph *g = b->graph;
    bool *takes = graph_inputs_of(g, set), *gives = ARENA_ARRAY(b->arena, bool, g->outputs.n);
    bool *writes = ARENA_ARRAY(b->arena, bool, g->states.n);
    for (uint32_t i = 0; i < g->inputs.n; i++) takes[i] |= set == 0;
    for (uint32_t i = 0; i < g->outputs.n; i++)
        gives[i] = entries_meet(g->outputs.v[i].entries, set);
    for (uint32_t i = 0; i < g->writes.n; i++)
        writes[g->writes.v[i].state] |= entries_meet(g->writes.v[i].entries, set);
    PlanEntry e = {.name = plan_write_str(&b->w, name)};
    e.inputs = put_marked(b, takes, g->inputs.n, &e.ninputs);
    e.outputs = put_marked(b, gives, g->outputs.n, &e.noutputs);
    e.states = put_marked(b, writes, g->states.n, &e.nstates);
    PLAN_PUT(&b->w, entries, e);
}

typedef struct Counted {
    const MapU64 *definer; /* see graph_definers */
    bool found;
} Counted;

static void note_counted(void *ctx, uint32_t sym) {
    Counted *c = ctx;
    uint32_t node;
    c->found = c->found || map_get(c->definer, sym, &node);
}

/* Does e depend on a size that a node of g finds out? */
static bool counted_in(const Graph *g, const MapU64 *definer, Expr e) {
    Counted c = {definer, false};
    expr_each_sym(g->exprs, e, note_counted, &c);
    return c.found;
}

static void put_check(Builder *b, const Graph *g, Expr x, Expr y, Loc loc) {
    int64_t lo, hi;
    expr_range(g->exprs, y, &lo, &hi);
    const bool condition = expr_is_value(g->exprs, x, 1) && lo == 0 && hi == 1;
    const char *text = arena_printf(b->arena, "%s needs %s%s%s", graph_place(g, loc, b->arena),
                                    condition ? "" : expr_brief(g->exprs, x, b->arena),
                                    condition ? "" : " == ", expr_brief(g->exprs, y, b->arena));
    PlanCheck c = {.a = plan_write_expr(&b->w, g->exprs, x),
                   .b = plan_write_expr(&b->w, g->exprs, y),
                   .text = plan_write_str(&b->w, text)};
    PLAN_PUT(&b->w, checks, c);
}

/* Sizes that elements of inputs and differences give may be negative: two of them make a number of
 * elements that looks right. In branches, too, taken or not: nothing less keeps their kernels
 * inside. */
static void put_sizes(Builder *b, const Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        for (int d = 0; d < n->type.rank; d++) {
            int64_t lo, hi;
            uint32_t unused;
            expr_range(g->exprs, n->type.dim[d], &lo, &hi);
            if (lo >= 0 || map_get(b->sizes, n->type.dim[d], &unused)) continue;
            map_put(b->sizes, n->type.dim[d], 1);
            const Expr holds = expr_le(g->exprs, expr_const(g->exprs, 0), n->type.dim[d]);
            put_check(b, g, expr_const(g->exprs, 1), holds, n->loc);
        }
    }
}

/* What holds whenever g's nodes run. Of a branch (not `always`) only what its own counts decide:
 * those are known in no run that does not take it. The session checks each pair once both sides are
 * known. */
static void put_checks(Builder *b, const Graph *g, bool always) {
    const MapU64 *definer = always ? NULL : graph_definers(g);
    for (uint32_t i = 0; i < g->nassume; i++) {
        Expr x = g->assume[i].a, y = g->assume[i].b;
        if (!always && !counted_in(g, definer, x) && !counted_in(g, definer, y)) continue;
        put_check(b, g, x, y, g->assume[i].loc);
    }
    put_sizes(b, g);
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (n->op != OP_loop && n->op != OP_if) continue;
        for (int k = 0; k < 2 && n->attr.control->body[k]; k++)
            put_checks(b, n->attr.control->body[k], always && n->op == OP_loop);
    }
}

/* The signature: input symbols first, so that they keep the model's order. */
static void put_signature(Builder *b) {
    const Graph *g = b->graph;
    for (uint32_t s = 0; s < expr_sym_count(g->exprs); s++)
        if (expr_sym_info(g->exprs, s)->kind == SYM_DIM) plan_write_symbol(&b->w, g->exprs, s);
    for (uint32_t i = 0; i < g->inputs.n; i++) put_io(b, PLAN_SEC_inputs, &g->inputs.v[i]);
    for (uint32_t i = 0; i < g->outputs.n; i++) put_io(b, PLAN_SEC_outputs, &g->outputs.v[i]);
    for (uint32_t i = 0; i < g->states.n; i++) put_state(b, i);
    if (!g->entries.n) put_entry(b, "run", 0);
    for (uint32_t i = 0; i < g->entries.n; i++) put_entry(b, g->entries.v[i], 1u << i);
    for (uint32_t i = 0; i < b->options->nnotes; i++) {
        const PlanNoteText *t = &b->options->notes[i];
        PlanNote n = {plan_write_str(&b->w, t->key), plan_write_str(&b->w, t->text)};
        PLAN_PUT(&b->w, notes, n);
    }
    put_checks(b, g, true);
}

/* The buffer that owns the storage, and where in it, in bytes. */
static uint32_t root_of(const Builder *b, uint32_t i, Expr *offset) {
    const SBuffer *v = b->s->buffers.v;
    Expr at = expr_const(b->exprs, 0);
    for (; v[i].alias; i = v[i].alias - 1)
        if (v[i].alias_offset)
            at = expr_add(b->exprs, at,
                          expr_muli(b->exprs, v[i].alias_offset, (int64_t)dtype_bytes(v[i].dtype)));
    *offset = at;
    return i;
}

/* A temporary that prepare steps touch outlives the session that ran them: it is prepared too. */
static uint8_t *prepared_buffers(Builder *b) {
    uint8_t *prepared = arena_alloc(b->arena, b->s->buffers.n);
    for (uint32_t i = 0; i < b->s->steps.n; i++) {
        const SStep *st = &b->s->steps.v[i];
        if (!st->prepare || st->kind != STEP_kernel) continue;
        for (uint32_t k = 0; k < st->kernel->nparams; k++) prepared[st->bufs[k]] = 1;
    }
    return prepared;
}

static void put_buffers(Builder *b) {
    static const uint32_t kinds[] = {
        [BUF_input] = PLAN_BUF_input, [BUF_output] = PLAN_BUF_output,
        [BUF_const] = PLAN_BUF_const, [BUF_prepared] = PLAN_BUF_prepared,
        [BUF_temp] = PLAN_BUF_temp,   [BUF_state] = PLAN_BUF_state};
    const uint8_t *prepared = prepared_buffers(b);
    for (uint32_t i = 0; i < b->s->buffers.n; i++) {
        const SBuffer *v = &b->s->buffers.v[i];
        Expr offset;
        uint32_t root = root_of(b, i, &offset);
        bool used = schedule_used(v);
        PlanBuffer r = {.kind = kinds[v->kind],
                        .dtype = dtype_code(v->dtype),
                        .alias = root == i ? 0 : root + 1,
                        .bytes = plan_write_scaled(&b->w, b->exprs, schedule_bound(b->s, v->numel),
                                                   (int64_t)dtype_bytes(v->dtype)),
                        .alias_offset = plan_write_expr(&b->w, b->exprs, offset),
                        .first = used ? v->first : 1,
                        .last = used ? v->last : 0};
        if (v->kind == BUF_input || v->kind == BUF_output || v->kind == BUF_state)
            r.index = v->index;
        if (v->kind == BUF_temp && prepared[i]) r.kind = PLAN_BUF_prepared;
        if (v->kind == BUF_const)
            r.index = plan_write_constant(&b->w, &graph_node(v->graph, v->node)->attr.constant);
        PLAN_PUT(&b->w, buffers, r);
    }
}

/* By place: some kernel computes it, or a node inside of it. */
static bool *computed_places(const Builder *b) {
    bool *is = ARENA_ARRAY(b->arena, bool, b->s->graph->locs.n);
    for (uint32_t i = 0; i < b->s->steps.n; i++) {
        const Kernel *k = b->s->steps.v[i].kernel;
        for (uint32_t j = 0; k && j < k->ncomputed; j++)
            for (Loc l = k->locs[j]; l; l = b->s->graph->locs.v[l].parent) is[l] = true;
    }
    return is;
}

/* A node that is a view here and is computed elsewhere belongs there. */
static const char *covered_nodes(Builder *b, const Kernel *k) {
    StrBuf s;
    sb_init(&s, b->arena);
    for (uint32_t i = 0; i < k->nlocs; i++) {
        bool view = i >= k->ncomputed;
        if (!view || !b->computed[k->locs[i]])
            sb_printf(&s, "%s%s%s", *sb_str(&s) ? "\n" : "",
                      graph_place(b->s->graph, k->locs[i], b->arena),
                      view ? PLAN_LOOKED_THROUGH : "");
    }
    return sb_str(&s);
}

/* Start of the kernel's maps in their section. */
static uint32_t put_maps(Builder *b, const CodeKernel *c) {
    uint32_t start = section_count(b, PLAN_SEC_maps, sizeof(PlanMap));
    for (uint32_t i = 0; i < c->nmaps; i++) {
        const CodeMap *m = &c->maps[i];
        PlanMap r = {.param = m->param,
                     .dtype = dtype_code(m->dtype),
                     .kind = m->im2col ? PLAN_MAP_im2col : PLAN_MAP_tiled,
                     .rank = m->rank,
                     .tf32 = m->tf32,
                     .base = plan_write_expr(&b->w, b->exprs, m->base),
                     .channels = m->im2col ? m->channels : 0,
                     .pixels = m->im2col ? m->pixels : 0,
                     .swizzle = m->swizzle,
                     .promotion = m->promotion};
        for (uint32_t d = 0; d < m->rank && d < PLAN_MAP_RANK; d++) {
            r.size[d] = plan_write_expr(&b->w, b->exprs, m->size[d]);
            r.box[d] = m->im2col ? 0 : m->box[d];
            r.step[d] = m->step[d] ? m->step[d] : 1;
            if (d) r.stride[d - 1] = plan_write_expr(&b->w, b->exprs, m->stride[d - 1]);
        }
        for (uint32_t d = 0; m->im2col && d + 2 < m->rank && d < 3; d++) {
            r.lower[d] = m->lower[d];
            r.upper[d] = m->upper[d];
        }
        PLAN_PUT(&b->w, maps, r);
    }
    return start;
}

static uint32_t put_kernel(Builder *b, const Kernel *k, const CodeKernel *c) {
    uint32_t *dims = ARENA_ARRAY(b->arena, uint32_t, c->ndims);
    for (uint32_t i = 0; i < c->ndims; i++) dims[i] = plan_write_expr(&b->w, b->exprs, c->dims[i]);
    PlanKernel r = {
        .name = plan_write_str(&b->w, k->name),
        .kind = plan_write_str(&b->w, kir_kind_name[k->kind]),
        .nodes = plan_write_str(&b->w, covered_nodes(b, k)),
        .symbol = plan_write_str(&b->w, c->symbol ? c->symbol : ""),
        .nbufs = k->nparams,
        .ndims = c->ndims,
        .dims = plan_write_list(&b->w, dims, c->ndims),
        .work = plan_write_expr(&b->w, b->exprs, c->work),
        .scratch = plan_write_expr(&b->w, b->exprs, schedule_bound(b->s, c->scratch_bytes)),
        .cost = plan_write_expr(&b->w, b->exprs, c->cost),
        .slices = plan_write_expr(&b->w, b->exprs, c->slices),
        .slice = plan_write_expr(&b->w, b->exprs, c->slice),
        .bytes_read = plan_write_expr(&b->w, b->exprs, k->bytes_read),
        .bytes_written = plan_write_expr(&b->w, b->exprs, k->bytes_written),
        .flops = plan_write_expr(&b->w, b->exprs, k->flops),
        .shared = c->shared_bytes,
        .flags = (c->dependent ? PLAN_DEPENDENT : 0u) | (c->zero_kept ? PLAN_ZERO_KEPT : 0u) |
                 (c->dependent && c->waits_first ? PLAN_WAITS_FIRST : 0u),
        .zero = plan_write_expr(&b->w, b->exprs, c->zero_bytes),
        .nmaps = c->nmaps,
        .maps = put_maps(b, c),
        .cubin = c->cubin};
    for (uint32_t f = 0; f < PLAN_CPU_FORMS; f++) r.entry[f] = PLAN_NO_ENTRY;
    for (uint32_t i = 0; i < k->nparams; i++)
        if (k->params[i].written) r.written |= UINT64_C(1) << i;
    for (uint32_t i = 0; i < b->code->nblobs; i++)
        if (b->code->blobs[i].form < PLAN_CPU_FORMS)
            r.entry[b->code->blobs[i].form] = c->entry[b->code->blobs[i].form];
    for (int i = 0; i < 3; i++) {
        r.grid[i] = plan_write_expr(&b->w, b->exprs, c->grid[i]);
        r.block[i] = c->block[i];
        r.cluster[i] = c->cluster[i];
    }
    PLAN_PUT(&b->w, kernels, r);
    return b->nkernels++;
}

/* For tuning: which kernel this is, and the ways that its variants are. */
static void put_ways(Builder *b, const CodeKernel *c) {
    if (!c->signature) return;
    StrBuf s;
    sb_init(&s, b->arena);
    sb_printf(&s, "%s | %s", c->signature, c->way);
    for (uint32_t i = 0; i < c->nvariants; i++) sb_printf(&s, " | %s", c->variants[i].way);
    const char *key = arena_printf(b->arena, "ways %s %s", b->target, c->symbol);
    uint32_t there;
    if (mapstr_get(b->ways, key, &there)) return; /* another step's, and the same */
    mapstr_put(b->ways, key, 1);
    PlanNote n = {plan_write_str(&b->w, key), plan_write_str(&b->w, sb_str(&s))};
    PLAN_PUT(&b->w, notes, n);
}

/* The step's kernel and its variants. */
static void put_kernels(Builder *b, const Kernel *k, const CodeKernel *c, PlanStep *r) {
    uint32_t variants[PLAN_MAX_VARIANTS];
    GC_ASSERT(c->nvariants <= PLAN_MAX_VARIANTS);
    r->kernel = put_kernel(b, k, c);
    put_ways(b, c);
    for (uint32_t i = 0; i < c->nvariants; i++) variants[i] = put_kernel(b, k, &c->variants[i]);
    r->nvariants = c->nvariants;
    r->variants = plan_write_list(&b->w, variants, c->nvariants);
    r->choice = c->nvariants ? plan_write_expr(&b->w, b->exprs, c->choice) : 0;
}

static void put_step(Builder *b, uint32_t i) {
    static const uint32_t kinds[] = {
        [STEP_kernel] = PLAN_STEP_kernel,     [STEP_loop_begin] = PLAN_STEP_loop,
        [STEP_loop_end] = PLAN_STEP_loop_end, [STEP_if_begin] = PLAN_STEP_if,
        [STEP_if_else] = PLAN_STEP_else,      [STEP_if_end] = PLAN_STEP_if_end};
    const SStep *st = &b->s->steps.v[i];
    PlanStep r = {.kind = kinds[st->kind],
                  .trip_buf = st->trip_buf,
                  .cond_buf = st->cond_buf,
                  .match = st->kind == STEP_kernel ? 0 : st->match};
    if (st->kind == STEP_loop_begin) {
        r.iter = plan_write_symbol(&b->w, b->exprs, st->iter);
        r.trip = plan_write_expr(&b->w, b->exprs, st->trip);
    }
    if (st->kind == STEP_kernel) {
        const Kernel *k = st->kernel;
        uint32_t data[2 * PLAN_MAX_PARAMS];
        for (uint32_t o = 1; o < k->nops; o++) {
            const KOp *c = &k->ops[o];
            if (c->op != K_kcompact) continue;
            GC_ASSERT(r.ndata < PLAN_MAX_PARAMS);
            data[2 * r.ndata] = plan_write_symbol(&b->w, b->exprs, c->sym);
            data[2 * r.ndata++ + 1] = st->bufs[kir_count_param(c)];
        }
        put_kernels(b, k, &b->code->kernels[i], &r);
        r.bufs = plan_write_list(&b->w, st->bufs, k->nparams);
        r.data = plan_write_list(&b->w, data, 2 * r.ndata);
    }
    PLAN_PUT(&b->w, steps, r);
}

static void put_blobs(Builder *b) {
    _Static_assert(
        (int)CODE_FORMS == (int)PLAN_FORMS && (int)CODE_x86_64_v3 == PLAN_x86_64_v3 &&
            (int)CODE_x86_64_v4 == PLAN_x86_64_v4 && (int)CODE_x86_64_vnni == PLAN_x86_64_vnni &&
            (int)CODE_x86_64_bf16 == PLAN_x86_64_bf16 && (int)CODE_x86_64_amx == PLAN_x86_64_amx &&
            (int)CODE_ptx == PLAN_ptx && (int)CODE_cubin == PLAN_cubin,
        "plan files number code forms alike");
    static const uint8_t zero[PLAN_ALIGN];
    PlanBytes *code = &b->w.section[PLAN_SEC_code];
    for (uint32_t i = 0; i < b->code->nblobs; i++) {
        const CodeBlob *c = &b->code->blobs[i];
        const char *bytes = c->data;
        bool add_end = c->form == CODE_ptx && (c->size == 0 || bytes[c->size - 1] != 0);
        PlanBlob r = {.form = c->form, .offset = code->n, .size = c->size + add_end};
        plan_write_bytes(&b->w, PLAN_SEC_code, c->data, c->size);
        uint64_t pad = add_end + (PLAN_ALIGN - (code->n + add_end) % PLAN_ALIGN) % PLAN_ALIGN;
        plan_write_bytes(&b->w, PLAN_SEC_code, zero, pad);
        PLAN_PUT(&b->w, blobs, r);
    }
}

static const char *step_name(const Schedule *s, uint32_t i) {
    return i < s->steps.n && s->steps.v[i].kernel ? s->steps.v[i].kernel->name : "?";
}

/* Which kernels stayed apart and why, and how kernels are computed, for explain. */
static const char *notes_text(Builder *b, const char *first) {
    StrBuf s;
    sb_init(&s, b->arena);
    sb_put(&s, first ? first : "");
    for (uint32_t i = 0; i < b->s->refusals.n; i++) {
        const Refusal *r = &b->s->refusals.v[i];
        sb_printf(&s, "not fused: %s into %s: %s", step_name(b->s, r->producer),
                  step_name(b->s, r->consumer), fusion_why_text[r->why]);
        if (r->bytes) {
            sb_put(&s, "; costs ");
            expr_print(b->exprs, r->bytes, &s);
            sb_put(&s, " bytes");
        }
        sb_put(&s, "\n");
    }
    for (uint32_t i = 0; i < b->s->steps.n; i++)
        if (b->code->kernels[i].note)
            sb_printf(&s, "%s: %s\n", step_name(b->s, i), b->code->kernels[i].note);
    return sb_str(&s);
}

static const char *apart_text(Builder *b) {
    StrBuf s;
    sb_init(&s, b->arena);
    if (b->imported) apart_nodes(b->imported, b->s, b->arena, &s);
    return sb_str(&s);
}

static void put_target(Builder *b, const PlanTargetInput *in) {
    b->s = in->schedule;
    b->code = in->code;
    b->exprs = in->schedule->exprs;
    b->nkernels = 0;
    b->target = in->target->name;
    b->computed = computed_places(b);
    PlanTarget t = {.name = plan_write_str(&b->w, in->target->name),
                    .notes = plan_write_str(&b->w, notes_text(b, in->notes)),
                    .apart = plan_write_str(&b->w, apart_text(b)),
                    .device = in->target->device,
                    .buffers = section_count(b, PLAN_SEC_buffers, sizeof(PlanBuffer)),
                    .kernels = section_count(b, PLAN_SEC_kernels, sizeof(PlanKernel)),
                    .steps = section_count(b, PLAN_SEC_steps, sizeof(PlanStep)),
                    .blobs = section_count(b, PLAN_SEC_blobs, sizeof(PlanBlob)),
                    .nbuffers = b->s->buffers.n,
                    .nsteps = b->s->steps.n,
                    .nblobs = b->code->nblobs,
                    .ends = plan_write_list(&b->w, b->s->ends.v, b->s->ends.n)};
    put_buffers(b);
    for (uint32_t i = 0; i < b->s->steps.n; i++) {
        put_step(b, i);
        t.nprepare += b->s->steps.v[i].prepare;
    }
    t.nkernels = b->nkernels;
    put_blobs(b);
    PLAN_PUT(&b->w, targets, t);
}

graphc_status plan_build(const Graph *g, const PlanTargetInput *targets, uint32_t ntargets,
                         const PlanBuildOptions *o, Arena *a, DiagSink *d, void **bytes,
                         size_t *size) {
    Builder b = {.graph = g,
                 .imported = o->imported,
                 .options = o,
                 .arena = a,
                 .diags = d,
                 .sizes = map_create(a),
                 .ways = mapstr_create(a)};
    plan_write_init(&b.w, g, o->embed, a);
    b.w.weights = plan_write_str(&b.w, o->weights_dir ? o->weights_dir : "");
    put_signature(&b);
    for (uint32_t i = 0; i < ntargets; i++) put_target(&b, &targets[i]);
    void *out = plan_write_finish(&b.w, size);
    char why[256];
    Plan check;
    graphc_status st = plan_parse(out, *size, &check, (ErrorText){why, sizeof why});
    if (st == GRAPHC_NO_MEMORY) return diag(d, D_NO_MEMORY, "", "%s", why);
    if (st != GRAPHC_OK)
        return diag(d, D_VERIFY, "", "the finished plan does not pass its own check: %s", why);
    plan_release(&check);
    *bytes = out;
    return GRAPHC_OK;
}
