/* graphc grad: the gradients of one output of a model. The weights are states while the model is
 * differentiated, so that each keeps its name and nothing is computed from it beforehand. */
#include "frontend/driver/cli/session.h"
#include "graph/grad/grad.h"
#include "graph/pass/pass.h"

#include <string.h>

#define COTANGENT "(cotangent)"

/* What --wrt asks for. */
typedef struct Wrt {
    bool weights, inputs;
    VEC(const char *) names;
} Wrt;

static graphc_status read_wrt(Cli *c, Wrt *w) {
    const char *text = c->wrt ? c->wrt : "weights";
    *w = (Wrt){.weights = strcmp(text, "weights") == 0, .inputs = strcmp(text, "inputs") == 0};
    if (w->weights || w->inputs) return GRAPHC_OK;
    for (const char *at = text, *end;; at = end + 1) {
        end = at + strcspn(at, ",");
        const char *name = arena_strndup(c->arena, at, (size_t)(end - at));
        if (!*name) return diag(c->diags, D_USAGE, "--wrt", "\"%s\" has an empty name", text);
        for (uint32_t i = 0; i < w->names.n; i++)
            if (strcmp(w->names.v[i], name) == 0)
                return diag(c->diags, D_USAGE, "--wrt", "\"%s\" is named twice", name);
        vec_push(c->arena, &w->names, name);
        if (!*end) return GRAPHC_OK;
    }
}

static const IoInfo *find_io(const IoInfo *v, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(v[i].name, name) == 0) return &v[i];
    return NULL;
}

typedef struct Wanted {
    const char *name;
    Value value;
} Wanted;
typedef VEC(Wanted) WantedList;

static graphc_status want_named(Cli *c, const Graph *g, const char *name, WantedList *list) {
    const IoInfo *in = find_io(g->inputs.v, g->inputs.n, name);
    Value v = in ? in->value : 0;
    for (uint32_t i = 0; i < g->states.n && !v; i++)
        if (strcmp(g->states.v[i].name, name) == 0) v = g->states.v[i].value;
    if (!v || !dtype_is_float(graph_type(g, v)->dtype))
        return diag(c->diags, D_USAGE, "--wrt",
                    "the model has no input or initializer \"%s\" of floats", name);
    vec_push(c->arena, list, ((Wanted){name, v}));
    return GRAPHC_OK;
}

static graphc_status find_wanted(Cli *c, const Graph *g, const Wrt *w, WantedList *list) {
    for (uint32_t i = 0; i < w->names.n; i++) GC_TRY(want_named(c, g, w->names.v[i], list));
    for (uint32_t i = 0; w->weights && i < g->states.n; i++)
        vec_push(c->arena, list, ((Wanted){g->states.v[i].name, g->states.v[i].value}));
    for (uint32_t i = 0; w->inputs && i < g->inputs.n; i++)
        if (dtype_is_float(g->inputs.v[i].type.dtype))
            vec_push(c->arena, list, ((Wanted){g->inputs.v[i].name, g->inputs.v[i].value}));
    if (list->n) return GRAPHC_OK;
    return diag(c->diags, D_USAGE, "--wrt", "the model has no %s of floats",
                w->weights ? "initializers" : "inputs");
}

/* One gradient as an output; zeros, and a warning, where there is none. */
static void give(Graph *g, const Wanted *w, Value dx) {
    if (!dx) {
        const Type *t = graph_type(g, w->value);
        (void)diag(g->diags, D_NO_GRADIENT, "", "nothing flows back to \"%s\": zeros", w->name);
        dx = build_full(g, build_scalar_f(g, t->dtype, 0), t->rank, t->dim);
    }
    build_output(g, w->name, dx);
}

/* The model's outputs give way to gradients. */
static graphc_status differentiate(Cli *c, Graph *g, const Wrt *wrt) {
    const IoInfo *loss = find_io(g->outputs.v, g->outputs.n, c->loss);
    WantedList list = {0};
    if (!loss) {
        (void)diag(c->diags, D_USAGE, "--loss", "the model has no output \"%s\"", c->loss);
        graph_hint_outputs(g, c->diags);
        return diag_info[D_USAGE].status;
    }
    const Value y = loss->value;
    Value dy = 0;
    GC_TRY(find_wanted(c, g, wrt, &list));
    if (c->cotangent) dy = build_input(g, COTANGENT, *graph_type(g, y));
    Value *x = ARENA_ARRAY(c->arena, Value, list.n), *dx = ARENA_ARRAY(c->arena, Value, list.n);
    for (uint32_t i = 0; i < list.n; i++) x[i] = list.v[i].value;
    GC_TRY(grad_build(g, 1, &y, &dy, list.n, x, dx));
    g->outputs.n = 0;
    for (uint32_t i = 0; i < list.n; i++) give(g, &list.v[i], dx[i]);
    return diag_status(g->diags);
}

static graphc_status compile(Cli *c, const Wrt *wrt, Pipeline *p) {
    const ImportOptions trained = {
        .trained = wrt->names.v, .ntrained = wrt->names.n, .weights = wrt->weights};
    graphc_session_options device = GRAPHC_SESSION_OPTIONS_INIT;
    CliSession probe = {.cli = c};
    GC_TRY(cli_session_device(&probe, &device));
    const Cli for_device = cli_for_device(c, &device);
    graphc_compile_options o = cli_compile_options(&for_device);
    p->trained = &trained;
    p->forms = for_device.forms;
    GC_TRY(pipeline_import(p, c->args.v[0], &o));
    GC_TRY(graph_before_gradients(&p->imported));
    GC_TRY(differentiate(c, p->imported, wrt));
    GC_TRY(pipeline_optimise(p, &o));
    GC_TRY(pipeline_targets(p, &o));
    return pipeline_plan(p, &o);
}

graphc_status cmd_grad(Cli *c) {
    Wrt wrt;
    Pipeline p;
    CliSession s = {.cli = c};
    if (!c->loss) return cli_usage(c, "--loss is missing");
    GC_TRY(cli_check_outputs(c));
    GC_TRY(read_wrt(c, &wrt));
    if (c->cotangent) vec_push(c->arena, &c->inputs, ((NamedFile){COTANGENT, c->cotangent}));
    cli_pipeline_init(c, &p, c->args.v[0]);
    graphc_status st = compile(c, &wrt, &p);
    if (st == GRAPHC_OK) st = cli_session_make(&s, c, c->args.v[0], p.plan, p.plan_size);
    cli_print_diags(p.diags);
    if (st == GRAPHC_OK) st = cli_session_run(&s);
    cli_session_close(&s);
    pipeline_free(&p);
    return st;
}
