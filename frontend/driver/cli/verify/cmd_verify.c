/* graphc verify: the compiled model against the reference evaluator, or against outputs that lie in
 * files or come from another plan; then every value that a kernel stored, against the evaluator on
 * what the kernel was given. When something differs, the first bad node is searched inside of the
 * first bad kernel, by compiling again with one more output, so that the rest stays fused as it
 * was. */
#include "frontend/driver/bisect.h"
#include "frontend/driver/cli/progress.h"
#include "frontend/driver/cli/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Against files of the ONNX backend tests: their tolerance. */
#define FILE_RTOL 1e-3
#define FILE_ATOL 1e-7

/* ---- One compilation and run ---- */

static graphc_status trial_compile(Trial *t, Cli *c) {
    graphc_session_options device = GRAPHC_SESSION_OPTIONS_INIT;
    CliSession probe = {.cli = c};
    GC_TRY(cli_session_device(&probe, &device));
    Cli compile = cli_for_device(c, &device);
    graphc_compile_options o = cli_compile_options(&compile);
    codegen_rest(); /* of LLVM what loading it read */
    cli_pipeline_init(&compile, &t->pipe, c->args.v[0]);
    t->memory = arena_create();
    if (t->fuse_at_most != FUSE_ALL) t->pipe.fuse_at_most = t->fuse_at_most;
    GC_TRY(pipeline_import(&t->pipe, c->args.v[0], &o));
    if (t->extra) build_output(t->pipe.imported, "(searched)", t->extra);
    GC_TRY(pipeline_optimise(&t->pipe, &o));
    GC_TRY(pipeline_targets(&t->pipe, &o));
    GC_TRY(pipeline_plan(&t->pipe, &o));
    codegen_rest(); /* the reference takes more than LLVM */
    return cli_session_make(&t->session, c, c->args.v[0], t->pipe.plan, t->pipe.plan_size);
}

static graphc_status run_bound(Trial *t) {
    graphc_status s = graphc_run(t->session.session);
    return s == GRAPHC_OK ? s : cli_session_failed(&t->session, s);
}

/* The session gives its outputs and then the memory that it ran in: the reference takes more. */
static graphc_status take_outputs(Trial *t) {
    const uint32_t n = graphc_plan_outputs(t->session.plan);
    t->got = ARENA_ARRAY(t->memory, EvalTensor, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        EvalTensor *x = &t->got[i];
        GC_TRY(cli_session_output(&t->session, i, x));
        x->data = arena_copy(t->memory, x->data, (size_t)tensor_numel(x) * dtype_bytes(x->dtype));
    }
    graphc_session_destroy(t->session.session);
    t->session.session = NULL;
    return GRAPHC_OK;
}

static graphc_status trial_run(Trial *t) {
    GC_TRY(cli_session_bind(&t->session));
    GC_TRY(run_bound(t));
    return take_outputs(t);
}

/* Looking at every value that a kernel stores. */
static graphc_status checked_run(Verdict *v, Trial *t, Cli *c) {
    Progress p = {.what = "kernels", .quiet = c->json};
    CheckOptions o = {.progress = progress_show, .ctx = &p};
    if (v->tolerances) o.rtol = v->rtol, o.atol = v->atol;
    GC_TRY(cli_session_bind(&t->session));
    const Schedule *sched = t->pipe.targets[0].schedule;
    Check *check = check_begin(sched, t->session.session, t->session.inputs, &o);
    graphc_status ran = graphc_run(t->session.session);
    graphc_status s = check_rows(check, c->arena, &v->rows, &v->nrows);
    check_end(check);
    progress_end(&p);
    if (s != GRAPHC_OK) return s; /* which ends the run, too */
    if (ran != GRAPHC_OK) return cli_session_failed(&t->session, ran);
    return take_outputs(t);
}

/* The model as imported; with `round` each value is rounded where the graph rounds to less than
 * f32 */
static graphc_status evaluate_outputs(Trial *t, const Cli *c, bool round, EvalTensor **out) {
    const Graph *g = t->pipe.imported;
    Progress p = {.what = "reference", .quiet = c->json};
    EvalOptions eo = {.round_halves = round, .progress = progress_show, .ctx = &p};
    eo.used = check_used;
    *out = ARENA_ARRAY(t->memory, EvalTensor, g->outputs.n);
    graphc_status s = eval_run(g, t->session.inputs, &eo, t->memory, *out);
    progress_end(&p);
    return s;
}

static graphc_status evaluate(Trial *t, const Cli *c) {
    return evaluate_outputs(t, c, true, &t->want);
}

static void trial_close(Trial *t) {
    cli_print_diags(t->pipe.diags);
    cli_session_close(&t->session);
    pipeline_free(&t->pipe);
    arena_destroy(t->memory);
}

/* ---- What is compared ---- */

static bool passes(const Verdict *v, const Comparison *x, const OutputBound *b) {
    if (!x->same_type || x->bad == 0) return x->same_type;
    if (v->files || v->tolerances) return false;
    return !x->unlike &&
           (x->is_float ? comparison_relative(x) <= b->std
                        : x->max_abs <= fmax(b->step, b->std * x->std) && b->step > 0);
}

static Comparison compare_output(const Verdict *v, const Trial *t, uint32_t i) {
    return compare_tensors(&t->got[i], &t->want[i], v->rtol, v->atol);
}

/* The value nearest to `got` that lies between the two references. */
static EvalTensor between(const EvalTensor *got, const EvalTensor *rounded, const EvalTensor *exact,
                          Arena *a) {
    EvalTensor r = *rounded;
    uint64_t n = tensor_numel(rounded);
    double *to = arena_array(a, n + 1, sizeof *to);
    r.dtype = DT_f64;
    r.data = to;
    for (uint64_t i = 0; i < n; i++) {
        double x = dtype_load_f64(rounded->dtype, rounded->data, i);
        double y = dtype_load_f64(exact->dtype, exact->data, i);
        double g = dtype_load_f64(got->dtype, got->data, i);
        bool finite = isfinite(x) && isfinite(y) && isfinite(g);
        to[i] = finite ? fmin(fmax(g, fmin(x, y)), fmax(x, y)) : x;
    }
    return r;
}

/* A sum that comes out far smaller than its terms keeps their roundings. */
static graphc_status allow_terms(Verdict *v, const Trial *t, uint32_t i) {
    const Comparison *x = &v->outputs[i];
    OutputBound *b = &v->bound[i];
    double size;
    GC_TRY(bound_terms(t->pipe.imported, t->session.inputs, i, t->memory, &size));
    b->terms = fmax(1, x->std > 0 ? size / x->std : size);
    b->std *= b->terms;
    v->fine[i] = passes(v, x, b);
    return GRAPHC_OK;
}

/* Element by element more is known: of what is divided by little, and of steps and orders at a tie.
 */
static graphc_status allow_errors(Verdict *v, const Trial *t, uint32_t i) {
    OutputBound *b = &v->bound[i];
    GC_TRY(
        bound_elements(t->pipe.imported, t->session.inputs, i, &t->got[i], t->memory, &b->errors));
    v->fine[i] = b->errors <= 1;
    return GRAPHC_OK;
}

/* A model may make much of its own roundings: sums of numbers near the largest, rows that are
 * masked as a whole. A value between the reference with and without them is as right as either. */
static graphc_status compare_between(Verdict *v, Trial *t, const Cli *c) {
    EvalTensor *exact;
    GC_TRY(evaluate_outputs(t, c, false, &exact));
    v->ok = true;
    for (uint32_t i = 0; i < v->noutputs; i++) {
        const Comparison *x = &v->outputs[i];
        bool rounds = dtype_bytes(v->bound[i].coarsest) < dtype_bytes(DT_f32);
        if (!v->fine[i] && x->same_type && x->is_float && rounds) {
            EvalTensor want = between(&t->got[i], &t->want[i], &exact[i], t->memory);
            Comparison eased = compare_tensors(&t->got[i], &want, v->rtol, v->atol);
            v->fine[i] = v->between[i] = passes(v, &eased, &v->bound[i]);
        }
        if (!v->fine[i] && x->same_type && x->is_float) GC_TRY(allow_terms(v, t, i));
        if (!v->fine[i] && x->same_type) GC_TRY(allow_errors(v, t, i));
        v->ok &= v->fine[i];
    }
    return GRAPHC_OK;
}

static graphc_status compare_outputs(Verdict *v, Trial *t, const Cli *c) {
    v->noutputs = graphc_plan_outputs(t->session.plan);
    v->bound = bound_outputs(t->pipe.imported, pipeline_rounds_to(&t->pipe), c->arena);
    v->outputs = ARENA_ARRAY(c->arena, Comparison, v->noutputs + 1);
    v->fine = ARENA_ARRAY(c->arena, bool, v->noutputs + 1);
    v->between = ARENA_ARRAY(c->arena, bool, v->noutputs + 1);
    v->ok = true;
    for (uint32_t i = 0; i < v->noutputs; i++) {
        v->outputs[i] = compare_output(v, t, i);
        v->fine[i] = passes(v, &v->outputs[i], &v->bound[i]);
        v->ok &= v->fine[i];
    }
    bool evaluated = !v->files && !v->tolerances && !c->against;
    return v->ok || !evaluated ? GRAPHC_OK : compare_between(v, t, c);
}

/* ---- The first bad node ---- */

/* For further trials: inputs are there. */
static Cli again(const Cli *c) {
    Cli r = *c;
    r.inputs.n = 0;
    return r;
}

/* The last output beside the evaluator's: where no kernel stores it as it is. */
static graphc_status output_is_bad(Trial *t, Cli *c, bool *bad) {
    const Verdict v = {.rtol = FILE_RTOL, .atol = FILE_ATOL};
    const uint32_t last = graphc_plan_outputs(t->session.plan) - 1;
    const OutputBound *b = bound_outputs(t->pipe.imported, pipeline_rounds_to(&t->pipe), t->memory);
    GC_TRY(evaluate(t, c));
    Comparison x = compare_output(&v, t, last);
    *bad = !passes(&v, &x, &b[last]);
    return GRAPHC_OK;
}

static graphc_status judge(Trial *t, Cli *c, bool *bad) {
    Verdict v = {0};
    const Graph *g = t->pipe.graph;
    GC_TRY(checked_run(&v, t, c));
    for (uint32_t i = 0; i < v.nrows; i++)
        if (v.rows[i].value == g->outputs.v[g->outputs.n - 1].value) {
            *bad = v.rows[i].bad > 0;
            return GRAPHC_OK;
        }
    return output_is_bad(t, c, bad);
}

/* Whether node v, made an output, is wrong: as a stored value on what its kernel was given, of
 * which far more is known than of an output. */
static graphc_status node_is_bad(Cli *c, EvalTensor *inputs, Value value, bool *bad) {
    Trial t = {.extra = value, .session.inputs = inputs, .fuse_at_most = FUSE_ALL};
    graphc_status s = trial_compile(&t, c);
    if (s == GRAPHC_OK) s = judge(&t, c, bad);
    trial_close(&t);
    return s;
}

static bool covers(const Kernel *k, Loc loc) {
    for (uint32_t i = 0; i < k->nlocs; i++)
        if (k->locs[i] == loc) return true;
    return false;
}

/* The last core node of each ONNX node, in order: what a user can name. Of one kernel, or of all */
static uint32_t candidates(const Graph *g, const Kernel *of, Arena *a, Value **out) {
    uint32_t n = 0;
    Value *v = ARENA_ARRAY(a, Value, g->nodes.n);
    for (Value i = 1; i < g->nodes.n; i++) {
        const Node *node = graph_node(g, i);
        bool last = i + 1 == g->nodes.n || graph_node(g, i + 1)->loc != node->loc;
        if (node->loc && last && op_info[node->op].cls != OPC_SOURCE &&
            op_info[node->op].cls != OPC_CONTROL && (!of || covers(of, node->loc)))
            v[n++] = i;
    }
    *out = v;
    return n;
}

typedef struct Search {
    Cli *c;
    Trial *whole;
    const Verdict *verdict;
    Value *nodes;     /* find_first_bad: candidates */
    const char *last; /* find_decision: the last decision of the trial before, in words */
} Search;

static graphc_status ask_node(void *ctx, uint32_t n, bool *wrong) {
    const Search *s = ctx;
    return node_is_bad(s->c, s->whole->session.inputs, s->nodes[n - 1], wrong);
}

/* ---- From a bad value to where it went wrong ---- */

/* Nodes of a kernel as they feed each other. */
typedef struct Web {
    Cli *c;
    const Graph *g;
    EvalTensor *inputs;
    const Value *nodes; /* candidates, in order; numbered from 0 */
    uint32_t n;
    uint32_t *number; /* by value: 1 + its number, or 0 */
    uint32_t *seen;   /* by value: the last question that came by */
    uint32_t asked;
    uint32_t *from, nfrom;   /* feeders' answer */
    uint32_t *chain, nchain; /* nodes that one feeds alone, each by the next */
} Web;

static void collect(Web *w, Value v) {
    const Node *n = graph_node(w->g, v);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Value x = n->in[i];
        if (w->seen[x] == w->asked) continue;
        w->seen[x] = w->asked;
        if (w->number[x])
            w->from[w->nfrom++] = w->number[x] - 1;
        else if (graph_node(w->g, x)->loc == n->loc ||
                 op_info[graph_node(w->g, x)->op].cls == OPC_VIEW)
            collect(w, x); /* inside of the ONNX node */
    }
}

/* What the node reads of the others, directly. */
static void feeders(Web *w, uint32_t node) {
    w->asked++;
    w->nfrom = 0;
    collect(w, w->nodes[node]);
}

static graphc_status ask_chain(void *ctx, uint32_t n, bool *wrong) {
    const Web *w = ctx; /* the chain leads away from the bad value: its far end first */
    return node_is_bad(w->c, w->inputs, w->nodes[w->chain[w->nchain - n]], wrong);
}

/* Of a bad node the node at which it went wrong: a bad one that reads no bad one. A chain, in which
 * whatever lies behind a bad node is bad, is bisected; where several are read, each is asked. */
static graphc_status follow(Web *w, uint32_t bad, uint32_t *out) {
    for (;;) {
        uint32_t first;
        w->nchain = 0;
        feeders(w, bad);
        for (uint32_t x = bad; w->nfrom == 1; feeders(w, x)) w->chain[w->nchain++] = x = w->from[0];
        if (w->nchain) {
            GC_TRY(bisect(0, w->nchain + 1, ask_chain, w, &first));
            if (first <= w->nchain) bad = w->chain[w->nchain - first];
            if (first != 1) break; /* what it reads is right */
        }
        bool wrong = false;
        for (uint32_t i = 0, n = w->nfrom; i < n && !wrong; i++) {
            const uint32_t x = w->from[i];
            GC_TRY(node_is_bad(w->c, w->inputs, w->nodes[x], &wrong));
            if (wrong) bad = x;
        }
        if (!wrong) break;
    }
    *out = bad;
    return GRAPHC_OK;
}

/* Of the kernel's nodes the first bad one; 0 if the value that it stores is right by itself. */
static graphc_status find_in_kernel(Search *s, uint32_t n, Loc stored, Value *out) {
    const Graph *g = s->whole->pipe.imported;
    Arena *a = s->c->arena;
    Web w = {.c = s->c, .g = g, .inputs = s->whole->session.inputs, .nodes = s->nodes, .n = n};
    uint32_t bad = n;
    w.number = ARENA_ARRAY(a, uint32_t, g->nodes.n);
    w.seen = ARENA_ARRAY(a, uint32_t, g->nodes.n);
    w.from = ARENA_ARRAY(a, uint32_t, n + 1);
    w.chain = ARENA_ARRAY(a, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        w.number[s->nodes[i]] = i + 1;
        if (graph_node(g, s->nodes[i])->loc == stored) bad = i;
    }
    bool wrong = false;
    if (bad < n) GC_TRY(node_is_bad(s->c, w.inputs, s->nodes[bad], &wrong));
    if (wrong) GC_TRY(follow(&w, bad, &bad));
    *out = wrong ? s->nodes[bad] : 0;
    return GRAPHC_OK;
}

/* In the first bad kernel; without one, among all nodes, by bisection: what depends on a bad value
 * is bad. If no node is bad by itself, the one whose value the kernel stores. */
static graphc_status find_first_bad(Cli *c, Trial *t, Verdict *v) {
    const Graph *g = t->pipe.imported;
    const CheckRow *row = verify_first_bad(v);
    if (!row && (c->data || c->against)) {
        v->first_bad =
            "none; every stored value agrees with the evaluator, the given outputs do not";
        return GRAPHC_OK;
    }
    const Kernel *k = row ? t->pipe.targets[0].schedule->steps.v[row->step].kernel : NULL;
    Cli plain = again(c);
    Search s = {.c = &plain, .whole = t};
    uint32_t n = candidates(g, k, c->arena, &s.nodes), first = n + 1;
    Value bad = 0;
    if (row) GC_TRY(find_in_kernel(&s, n, row->loc, &bad));
    if (n && !bad) {
        GC_TRY(bisect(0, n + 1, ask_node, &s, &first));
        if (first <= n) bad = s.nodes[first - 1];
    }
    v->first_bad = bad   ? graph_place(g, graph_node(g, bad)->loc, c->arena)
                   : row ? arena_printf(c->arena, "%s, fused into %s",
                                        graph_place(t->pipe.graph, row->loc, c->arena), row->kernel)
                         : "none by itself; only the fused whole differs";
    return GRAPHC_OK;
}

/* ---- The first bad decision ---- */

/* Do outputs differ when fusion stops after n decisions? */
static graphc_status ask_decisions(void *ctx, uint32_t n, bool *wrong) {
    Search *search = ctx;
    Cli *c = search->c;
    const Trial *whole = search->whole;
    Trial t = {.session.inputs = whole->session.inputs, .want = whole->want, .fuse_at_most = n};
    Verdict v = {.rtol = search->verdict->rtol,
                 .atol = search->verdict->atol,
                 .files = search->verdict->files,
                 .tolerances = search->verdict->tolerances};
    graphc_status s = trial_compile(&t, c);
    if (s == GRAPHC_OK) s = trial_run(&t);
    if (s == GRAPHC_OK) s = compare_outputs(&v, &t, c);
    *wrong = !v.ok;
    if (s == GRAPHC_OK && t.pipe.targets[0].schedule->last_decision)
        search->last = arena_strdup(c->arena, t.pipe.targets[0].schedule->last_decision);
    trial_close(&t);
    return s;
}

/* Bisects over the decisions of fusion. */
static graphc_status find_decision(Cli *c, Trial *t, Verdict *v) {
    Cli plain = again(c);
    Search s = {.c = &plain, .whole = t, .verdict = v};
    uint32_t all = t->pipe.targets[0].schedule->decisions, first;
    bool wrong;
    GC_TRY(ask_decisions(&s, 0, &wrong));
    if (wrong || !all) {
        v->first_decision = "none; outputs differ without any fusion";
        return GRAPHC_OK;
    }
    GC_TRY(bisect(0, all, ask_decisions, &s, &first));
    GC_TRY(ask_decisions(&s, first, &wrong)); /* its words */
    v->first_decision = arena_printf(c->arena, "%u of %u: %s", first, all, s.last);
    return GRAPHC_OK;
}

/* ---- Inputs and references from elsewhere ---- */

static graphc_status read_data(const Cli *c, Arena *a, const char *kind, uint32_t n,
                               EvalTensor *out) {
    for (uint32_t i = 0; i < n; i++)
        GC_TRY(tensor_file_read(a, c->diags, arena_printf(a, "%s/%s_%u.pb", c->data, kind, i), "",
                                &out[i]));
    return GRAPHC_OK;
}

/* DIR/NAME.npy or .pb, as `graphc run` writes them. */
static graphc_status read_outputs(Trial *t, const Cli *c) {
    for (uint32_t i = 0; i < graphc_plan_outputs(t->session.plan); i++) {
        const char *name = cli_file_name(t->memory, graphc_plan_output(t->session.plan, i).name);
        const char *npy = arena_printf(t->memory, "%s/%s.npy", c->against, name);
        const char *pb = arena_printf(t->memory, "%s/%s.pb", c->against, name);
        GC_TRY(tensor_file_read(t->memory, c->diags,
                                access(npy, F_OK) && !access(pb, F_OK) ? pb : npy, name,
                                &t->want[i]));
    }
    return GRAPHC_OK;
}

/* Outputs of another plan on the same inputs. */
static graphc_status run_other(Trial *t, Cli *c) {
    CliSession other;
    Cli plain = *c; /* --dim is the model's */
    plain.dims.n = 0;
    plain.inputs.n = 0;
    graphc_status s = cli_session_open(&other, &plain, c->against);
    other.inputs = t->session.inputs;
    uint32_t n = s == GRAPHC_OK ? graphc_plan_outputs(other.plan) : 0;
    if (s == GRAPHC_OK && (n != graphc_plan_outputs(t->session.plan) ||
                           graphc_plan_inputs(other.plan) != graphc_plan_inputs(t->session.plan)))
        s = diag(c->diags, D_USAGE, "--against", "%s has other inputs or outputs than the model",
                 c->against);
    if (s == GRAPHC_OK) s = cli_session_bind(&other);
    if (s == GRAPHC_OK && (s = graphc_run(other.session)) != GRAPHC_OK)
        s = cli_session_failed(&other, s);
    for (uint32_t i = 0; s == GRAPHC_OK && i < n; i++) {
        s = cli_session_output(&other, i, &t->want[i]);
        if (s == GRAPHC_OK)
            t->want[i].data =
                arena_copy(t->memory, t->want[i].data,
                           (size_t)tensor_numel(&t->want[i]) * dtype_bytes(t->want[i].dtype));
    }
    cli_session_close(&other);
    return s;
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static graphc_status reference(Trial *t, Cli *c) {
    t->want = ARENA_ARRAY(t->memory, EvalTensor, graphc_plan_outputs(t->session.plan) + 1);
    if (c->data)
        return read_data(c, t->memory, "output", graphc_plan_outputs(t->session.plan), t->want);
    if (!c->against) return evaluate(t, c);
    return is_folder(c->against) ? read_outputs(t, c) : run_other(t, c);
}

static graphc_status verify(Trial *t, Verdict *v, Cli *c) {
    GC_TRY(trial_compile(t, c));
    if (c->data) {
        uint32_t n = graphc_plan_inputs(t->session.plan);
        t->session.inputs = ARENA_ARRAY(c->arena, EvalTensor, n);
        GC_TRY(read_data(c, c->arena, "input", n, t->session.inputs));
    }
    GC_TRY(checked_run(v, t, c));
    GC_TRY(reference(t, c));
    GC_TRY(compare_outputs(v, t, c));
    v->ok &= !verify_first_bad(v);
    if (!v->ok && c->bisect) GC_TRY(find_decision(c, t, v));
    if (!c->json) verify_report(v, t, c);
    if (!v->ok && !c->json && v->first_decision)
        cli_print(stdout, "first bad decision: %s\n", v->first_decision);
    if (!v->ok) GC_TRY(find_first_bad(c, t, v));
    if (c->json) verify_report(v, t, c);
    if (c->html) GC_TRY(verify_page(c, v, t, c->html));
    if (v->ok) return GRAPHC_OK;
    if (!c->json) cli_print(stdout, "first bad node: %s\n", v->first_bad);
    return GRAPHC_MISMATCH;
}

graphc_status cmd_verify(Cli *c) {
    c->lean = true;
    Trial t = {.fuse_at_most = FUSE_ALL};
    Verdict v = {.files = c->data != NULL, .rtol = FILE_RTOL, .atol = FILE_ATOL};
    v.tolerances = c->rtol >= 0 || c->atol >= 0;
    if (v.tolerances) {
        v.rtol = fmax(c->rtol, 0);
        v.atol = fmax(c->atol, 0);
    }
    if (c->data && c->against) return cli_usage(c, "--data and --against are both references");
    graphc_status s = verify(&t, &v, c);
    trial_close(&t);
    return s;
}
