#include "frontend/driver/cli/explain/picture.h"
#include "frontend/driver/dump.h"

#include <string.h>

/* ---- Code as text ---- */

enum { MOST_CODE = 64 << 10 }; /* of one kernel */

/* The first assembly of each kernel: that of the newest instruction set. */
static void keep_code(void *ctx, const char *target, const char *kernel, const char *ext,
                      const char *text, size_t n) {
    Picture *p = ctx;
    size_t len = strlen(ext);
    bool assembly =
        strcmp(ext, "ptx") == 0 || (ext[len - 1] == 's' && (len == 1 || ext[len - 2] == '.'));
    for (uint32_t i = 0; i < p->code.n; i++)
        if (strcmp(p->code.v[i].kernel, kernel) == 0 && p->code.v[i].target == target) return;
    if (!assembly) return;
    Arena *a = p->cli->arena;
    KernelCode c = {target, arena_strdup(a, kernel), arena_strdup(a, ext),
                    arena_strndup(a, text, n < MOST_CODE ? n : MOST_CODE), n};
    vec_push(a, &p->code, c);
}

/* Equal kernels are compiled once, under the name of the first. */
static bool same_code(const PlanKernel *a, const PlanKernel *b) {
    return memcmp(a->entry, b->entry, sizeof a->entry) == 0 && a->symbol == b->symbol &&
           a->cubin == b->cubin;
}

static const KernelCode *find_code(const Picture *p, const char *target, const char *kernel) {
    for (uint32_t i = 0; i < p->code.n; i++)
        if (strcmp(p->code.v[i].target, target) == 0 && strcmp(p->code.v[i].kernel, kernel) == 0)
            return &p->code.v[i];
    return NULL;
}

KernelCode picture_code(const Picture *p, const PictureTarget *t, const PictureKernel *k) {
    const char *target = plan_str(&p->view.plan, t->t->name);
    const KernelCode *own = find_code(p, target, plan_str(&p->view.plan, k->k->name));
    for (uint32_t i = 0; !own && i < t->n; i++)
        if (same_code(t->kernels[i].k, k->k))
            own = find_code(p, target, plan_str(&p->view.plan, t->kernels[i].k->name));
    return own ? *own : (KernelCode){0};
}

/* ---- Nodes ---- */

/* The model's own node that a place is part of; UINT32_MAX: it has none. */
static uint32_t node_of(const Picture *p, const Graph *g, Loc l) {
    while (g->locs.v[l].parent) l = g->locs.v[l].parent;
    int32_t n = g->locs.v[l].node;
    return n >= 0 && (uint32_t)n < p->outline.nnodes ? (uint32_t)n : UINT32_MAX;
}

static void find_types(Picture *p) {
    const Graph *g = p->pipe.imported;
    p->type = ARENA_ARRAY(p->cli->arena, const char *, p->outline.n + 1);
    for (Value v = 1; v < g->nodes.n; v++) {
        uint32_t n = node_of(p, g, graph_node(g, v)->loc);
        if (n != UINT32_MAX && graph_node(g, v)->op != OP_const)
            p->type[n] = type_text(g->exprs, graph_type(g, v), p->cli->arena);
    }
    for (uint32_t i = p->outline.nnodes; i < p->outline.n; i++)
        for (uint32_t k = 0; k < g->inputs.n + g->outputs.n; k++) {
            bool in = k < g->inputs.n;
            const IoInfo *io = in ? &g->inputs.v[k] : &g->outputs.v[k - g->inputs.n];
            if (strcmp(io->name, p->outline.nodes[i].name) == 0 &&
                in == (strcmp(p->outline.nodes[i].op, "input") == 0))
                p->type[i] = type_text(g->exprs, &io->type, p->cli->arena);
        }
}

static void add_node(Arena *a, NodeList *l, uint32_t n) {
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i] == n) return;
    if (n != UINT32_MAX) vec_push(a, l, n);
}

/* ---- Kernels ---- */

/* A node that is a view here and is computed elsewhere belongs there. */
static void find_nodes(const Picture *p, PictureTarget *t) {
    Arena *a = p->cli->arena;
    bool *computed = ARENA_ARRAY(a, bool, p->outline.n + 1);
    for (uint32_t i = 0; i < t->n; i++) {
        const Kernel *k = t->s->steps.v[t->kernels[i].step].kernel;
        for (uint32_t j = 0; j < k->ncomputed; j++)
            add_node(a, &t->kernels[i].computed, node_of(p, t->s->graph, k->locs[j]));
        for (uint32_t j = 0; j < t->kernels[i].computed.n; j++)
            computed[t->kernels[i].computed.v[j]] = true;
    }
    for (uint32_t i = 0; i < t->n; i++) {
        const Kernel *k = t->s->steps.v[t->kernels[i].step].kernel;
        for (uint32_t j = k->ncomputed; j < k->nlocs; j++) {
            uint32_t n = node_of(p, t->s->graph, k->locs[j]);
            if (n != UINT32_MAX && !computed[n]) add_node(a, &t->kernels[i].views, n);
        }
    }
}

static void find_kernels(const Picture *p, PictureTarget *t) {
    Arena *a = p->cli->arena;
    const PlanStep *steps = &p->view.plan.steps[t->t->steps];
    uint32_t *number = ARENA_ARRAY(a, uint32_t, t->t->nsteps + 1);
    Flow f = flow_of(a, &p->view, t->t);
    t->kernels = ARENA_ARRAY(a, PictureKernel, t->t->nsteps + 1);
    for (uint32_t i = 0; i < t->t->nsteps; i++) {
        if (steps[i].kind != PLAN_STEP_kernel) continue;
        PictureKernel *k = &t->kernels[t->n];
        number[i] = t->n++;
        k->step = i;
        k->prepare = i < t->t->nprepare;
        k->k = planview_kernel(&p->view, t->t, &steps[i]);
        for (uint32_t j = 0; j < f.from[i].n; j++) vec_push(a, &k->from, number[f.from[i].v[j]]);
    }
    find_nodes(p, t);
}

/* ---- All of it ---- */

static graphc_status read_profile(Picture *p) {
    const char *path = p->cli->profile;
    json_error_t e;
    if (!path) return GRAPHC_OK;
    p->profile = json_load_file(path, 0, &e);
    const json_t *kernels = json_object_get(p->profile, "kernels");
    if (json_is_array(kernels) && json_array_size(kernels)) return GRAPHC_OK;
    (void)diag(p->cli->diags, D_USAGE, path, "%s", p->profile ? "has no times of kernels" : e.text);
    diag_hint(p->cli->diags, "\"graphc bench MODEL -v --json\" prints such a file");
    return GRAPHC_USAGE;
}

static graphc_status compile(Picture *p) {
    Cli *c = p->cli;
    DumpReader reader = {keep_code, p};
    graphc_compile_options o = cli_compile_options(c);
    cli_pipeline_init(c, &p->pipe, c->args.v[0]);
    p->pipe.reader = &reader;
    graphc_status s = pipeline_run(&p->pipe, c->args.v[0], &o);
    cli_print_diags(p->pipe.diags);
    if (s != GRAPHC_OK) return s;
    GC_TRY(planview_make(c, c->args.v[0], p->pipe.plan, p->pipe.plan_size, &p->view));
    return outline_read(c->arena, c->diags, c->args.v[0], &p->outline);
}

graphc_status picture_make(Cli *c, Picture *p) {
    *p = (Picture){.cli = c};
    if (!cli_is_model(c->args.v[0]))
        return diag(c->diags, D_USAGE, c->args.v[0],
                    "pictures need the model, NAME.onnx: a plan does not hold its graph");
    GC_TRY(read_profile(p));
    GC_TRY(compile(p));
    find_types(p);
    p->targets = ARENA_ARRAY(c->arena, PictureTarget, p->pipe.ntargets + 1);
    for (uint32_t i = 0; i < p->pipe.ntargets; i++) {
        p->targets[i].t = &p->view.plan.targets[i];
        p->targets[i].s = p->pipe.targets[i].schedule;
        find_kernels(p, &p->targets[i]);
    }
    return GRAPHC_OK;
}

void picture_close(Picture *p) {
    json_decref(p->profile);
    planview_close(&p->view);
    if (p->pipe.arena) pipeline_free(&p->pipe);
}
