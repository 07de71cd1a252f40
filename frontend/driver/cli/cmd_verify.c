/* graphc verify: the compiled model against the reference evaluator, or against outputs in files.
 * When they differ, the first bad node is searched by compiling again with one more output, so that
 * the rest stays fused as it was. */
#include "frontend/driver/bisect.h"
#include "frontend/driver/cli/session.h"
#include "frontend/driver/compare.h"

#include <stdio.h>
#include <string.h>

/* Against the evaluator: differences in units of the output's standard deviation. Against files:
 * the tolerance of the ONNX backend tests. */
#define VERIFY_STD 1e-4
#define FILE_RTOL  1e-3
#define FILE_ATOL  1e-7

typedef struct Trial {
    Pipeline pipe;
    CliSession session;
    EvalTensor *want, *values;
    Value extra;           /* also made an output; 0 = none */
    uint32_t fuse_at_most; /* FUSE_ALL: as the command line says */
} Trial;

static graphc_status trial_compile(Trial *t, Cli *c) {
    graphc_session_options device = GRAPHC_SESSION_OPTIONS_INIT;
    CliSession probe = {.cli = c};
    GC_TRY(cli_session_device(&probe, &device));
    Cli compile = cli_for_device(c, &device);
    graphc_compile_options o = cli_compile_options(&compile);
    cli_pipeline_init(c, &t->pipe, c->args.v[0]);
    if (t->fuse_at_most != FUSE_ALL) t->pipe.fuse_at_most = t->fuse_at_most;
    GC_TRY(pipeline_import(&t->pipe, c->args.v[0], &o));
    if (t->extra) build_output(t->pipe.imported, "(searched)", t->extra);
    GC_TRY(pipeline_optimise(&t->pipe, &o));
    GC_TRY(pipeline_targets(&t->pipe, &o));
    GC_TRY(pipeline_plan(&t->pipe, &o));
    return cli_session_make(&t->session, c, c->args.v[0], t->pipe.plan, t->pipe.plan_size);
}

static graphc_status evaluate(Trial *t, Cli *c) {
    const Graph *g = t->pipe.imported;
    EvalOptions eo = {0};
    t->want = ARENA_ARRAY(c->arena, EvalTensor, g->outputs.n);
    t->values = ARENA_ARRAY(c->arena, EvalTensor, g->nodes.n);
    return eval_run(g, t->session.inputs, &eo, c->arena, t->want, t->values);
}

static void trial_close(Trial *t) {
    cli_print_diags(t->pipe.diags);
    cli_session_close(&t->session);
    pipeline_free(&t->pipe);
}

static graphc_status read_data(Cli *c, const char *kind, uint32_t n, EvalTensor *out) {
    for (uint32_t i = 0; i < n; i++)
        GC_TRY(tensor_file_read(c->arena, c->diags,
                                arena_printf(c->arena, "%s/%s_%u.pb", c->data, kind, i), &out[i]));
    return GRAPHC_OK;
}

static bool passes(const Comparison *x, bool files) {
    return x->same_type &&
           (files ? x->bad == 0 : x->bad == 0 || comparison_relative(x) <= VERIFY_STD);
}

static bool report(Trial *t, Cli *c) {
    bool ok = true;
    for (uint32_t i = 0; i < graphc_plan_outputs(t->session.plan); i++) {
        EvalTensor got;
        if (cli_session_output(&t->session, i, &got) != GRAPHC_OK) return false;
        Comparison x = compare_tensors(&got, &t->want[i], FILE_RTOL, FILE_ATOL);
        bool fine = passes(&x, c->data != NULL);
        ok &= fine;
        const char *name = graphc_plan_output(t->session.plan, i).name;
        if (!x.same_type) {
            cli_print(stdout, "%-4s %s: type or shape differs\n", "BAD", name);
        } else {
            cli_print(stdout, "%-4s %s: %llu elements, max difference %.3g = %.3g std\n",
                      fine ? "ok" : "BAD", name, (unsigned long long)x.count, x.max_abs,
                      comparison_relative(&x));
        }
    }
    return ok;
}

/* Whether node v, made an output, differs from the evaluator. */
static graphc_status node_is_bad(Cli *c, EvalTensor *inputs, Value v, bool *bad) {
    Trial t = {.extra = v, .session.inputs = inputs, .fuse_at_most = FUSE_ALL};
    EvalTensor got;
    graphc_status s = trial_compile(&t, c);
    if (s == GRAPHC_OK) s = cli_session_bind(&t.session);
    if (s == GRAPHC_OK) s = evaluate(&t, c);
    if (s == GRAPHC_OK && graphc_run(t.session.session) != GRAPHC_OK)
        s = diag(c->diags, D_RUN, "", "%s", graphc_session_error(t.session.session));
    uint32_t last = s == GRAPHC_OK ? graphc_plan_outputs(t.session.plan) - 1 : 0;
    if (s == GRAPHC_OK) s = cli_session_output(&t.session, last, &got);
    if (s == GRAPHC_OK) {
        Comparison x = compare_tensors(&got, &t.want[last], FILE_RTOL, FILE_ATOL);
        *bad = !passes(&x, false);
    }
    trial_close(&t);
    return s;
}

/* The last core node of each ONNX node, in order: what a user can name. */
static uint32_t candidates(const Graph *g, Arena *a, Value **out) {
    uint32_t n = 0;
    Value *v = ARENA_ARRAY(a, Value, g->nodes.n);
    for (Value i = 1; i < g->nodes.n; i++) {
        const Node *node = graph_node(g, i);
        bool last = i + 1 == g->nodes.n || graph_node(g, i + 1)->loc != node->loc;
        if (node->loc && last && op_info[node->op].cls != OPC_SOURCE &&
            op_info[node->op].cls != OPC_CONTROL)
            v[n++] = i;
    }
    *out = v;
    return n;
}

typedef struct Search {
    Cli *c;
    Trial *whole;
    Value *nodes;     /* find_first_bad: candidates */
    const char *last; /* find_decision: the last decision of the trial before, in words */
} Search;

static graphc_status ask_node(void *ctx, uint32_t n, bool *wrong) {
    const Search *s = ctx;
    return node_is_bad(s->c, s->whole->session.inputs, s->nodes[n - 1], wrong);
}

/* Bisects over the nodes: assumes that what depends on a bad value is bad. */
static graphc_status find_first_bad(Cli *c, Trial *t) {
    const Graph *g = t->pipe.imported;
    Search s = {.c = c, .whole = t};
    uint32_t n = candidates(g, c->arena, &s.nodes), first;
    GC_TRY(bisect(0, n + 1, ask_node, &s, &first));
    cli_print(stdout, "first bad node: %s\n",
              first <= n ? graph_place(g, graph_node(g, s.nodes[first - 1])->loc, c->arena)
                         : "none by itself; only the fused whole differs");
    return GRAPHC_MISMATCH;
}

static graphc_status outputs_differ(Trial *t, const Cli *c, bool *differ) {
    *differ = false;
    for (uint32_t i = 0; i < graphc_plan_outputs(t->session.plan); i++) {
        EvalTensor got;
        GC_TRY(cli_session_output(&t->session, i, &got));
        Comparison x = compare_tensors(&got, &t->want[i], FILE_RTOL, FILE_ATOL);
        *differ |= !passes(&x, c->data != NULL);
    }
    return GRAPHC_OK;
}

/* Do outputs differ when fusion stops after n decisions? */
static graphc_status ask_decisions(void *ctx, uint32_t n, bool *wrong) {
    Search *search = ctx;
    Cli *c = search->c;
    const Trial *whole = search->whole;
    Trial t = {.session.inputs = whole->session.inputs, .want = whole->want, .fuse_at_most = n};
    graphc_status s = trial_compile(&t, c);
    if (s == GRAPHC_OK) s = cli_session_bind(&t.session);
    if (s == GRAPHC_OK && graphc_run(t.session.session) != GRAPHC_OK)
        s = diag(c->diags, D_RUN, "", "%s", graphc_session_error(t.session.session));
    if (s == GRAPHC_OK) s = outputs_differ(&t, c, wrong);
    if (s == GRAPHC_OK && t.pipe.targets[0].schedule->last_decision)
        search->last = arena_strdup(c->arena, t.pipe.targets[0].schedule->last_decision);
    trial_close(&t);
    return s;
}

/* Bisects over the decisions of fusion. */
static graphc_status find_decision(Cli *c, Trial *t) {
    Search s = {.c = c, .whole = t};
    uint32_t all = t->pipe.targets[0].schedule->decisions, first;
    bool wrong;
    GC_TRY(ask_decisions(&s, 0, &wrong));
    if (wrong || !all) {
        cli_print(stdout, "first bad decision: none; outputs differ without any fusion\n");
        return GRAPHC_OK;
    }
    GC_TRY(bisect(0, all, ask_decisions, &s, &first));
    GC_TRY(ask_decisions(&s, first, &wrong)); /* its words */
    cli_print(stdout, "first bad decision: %u of %u: %s\n", first, all, s.last);
    return GRAPHC_OK;
}

static graphc_status verify(Trial *t, Cli *c) {
    GC_TRY(trial_compile(t, c));
    if (c->data) {
        uint32_t n = graphc_plan_inputs(t->session.plan);
        t->session.inputs = ARENA_ARRAY(c->arena, EvalTensor, n);
        GC_TRY(read_data(c, "input", n, t->session.inputs));
    }
    GC_TRY(cli_session_bind(&t->session));
    graphc_status s = graphc_run(t->session.session);
    if (s != GRAPHC_OK) return cli_session_failed(&t->session, s);
    if (c->data) {
        uint32_t n = graphc_plan_outputs(t->session.plan);
        t->want = ARENA_ARRAY(c->arena, EvalTensor, n);
        GC_TRY(read_data(c, "output", n, t->want));
    } else {
        s = evaluate(t, c);
        if (s != GRAPHC_OK) return s;
    }
    if (report(t, c)) return GRAPHC_OK;
    if (c->bisect) GC_TRY(find_decision(c, t));
    return find_first_bad(c, t);
}

graphc_status cmd_verify(Cli *c) {
    Trial t = {.fuse_at_most = FUSE_ALL};
    graphc_status s = verify(&t, c);
    trial_close(&t);
    return s;
}
