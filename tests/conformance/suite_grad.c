/* Gradients of cases in the layout of ONNX's backend test suite, in f64, against differences of the
 * reference evaluator:
 *
 *     suite_grad FOLDER...     FOLDER holds model.onnx and test_data_set_0/input_N.pb
 *
 * What is differentiated is a weighted sum of all outputs that are floats, by some elements of each
 * input that is; inputs are moved a little, away from round numbers. One line a case: a verdict,
 * the folder, the largest relative error, how many elements agree with it, how many lie at a kink
 * (where differences of two widths tell different things), a message. Verdicts:
 *
 *     same, differs   as said
 *     zero            nothing flows back, and differences are zero
 *     whole           no input or no output is a float
 *     refused         grad_build names an op without a derivative
 *     skipped         the case cannot be imported or evaluated
 *
 * grad.py knows which verdicts are right. */
#include "frontend/import/import.h"
#include "graph/eval/eval.h"
#include "graph/grad/grad.h"
#include "tests/conformance/apart.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIME_LIMIT_S 60
#define TOLERANCE    1e-6
#define ELEMENTS     12 /* of each input */
#define STEP         0x1p-10

typedef struct Run {
    Arena *arena;
    DiagSink *diags;
    Graph *g;
    uint32_t nin; /* of the model */
    EvalTensor *in, *out;
    Model *model;
} Run;

static void say(const char *verdict, const char *folder, double worst, uint32_t n, uint32_t kinks,
                const char *text) {
    printf("%s %s %.1e %u %u %.200s\n", verdict, folder, worst, n, kinks, text);
    fflush(stdout);
}

static const char *first_error(const Run *r) {
    for (uint32_t i = 0; i < diag_count(r->diags); i++)
        if (diag_info[diag_at(r->diags, i)->id].severity == SEV_error)
            return diag_at(r->diags, i)->text;
    return "";
}

static uint64_t numel(const EvalTensor *t) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) n *= (uint64_t)t->dim[i];
    return n;
}

static void widen_type(Type *t) {
    if (dtype_is_float(t->dtype)) t->dtype = DT_f64;
}

static void widen_constant(Arena *a, const Type *t, Constant *c) {
    const uint64_t n = c->bytes / dtype_bytes(t->dtype);
    double *p = arena_array(a, n + 1, sizeof *p);
    for (uint64_t i = 0; i < n; i++) p[i] = dtype_load_f64(t->dtype, c->data, i);
    c->data = p;
    c->bytes = n * sizeof *p;
}

/* Makes every float of a graph and its bodies f64. */
static void widen(Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++) {
        Node *n = &g->nodes.v[v];
        const bool real = dtype_is_float(n->type.dtype);
        if (real && n->op == OP_const) widen_constant(g->arena, &n->type, &n->attr.constant);
        if (real && n->op == OP_conv) n->attr.conv.to = DT_f64;
        if (real && n->op == OP_attention) n->attr.attention.to = DT_f64;
        if (real && (n->op == OP_dot || n->op == OP_cast || n->op == OP_logsumexp))
            n->attr.cast.to = DT_f64;
        widen_type(&n->type);
        if (n->op != OP_if && n->op != OP_loop) continue;
        Control *c = n->attr.control;
        for (uint32_t i = 0; i < c->nresults; i++) widen_type(&c->results[i]);
        for (int k = 0; k < 2; k++)
            if (c->body[k]) widen(c->body[k]);
    }
    for (uint32_t i = 0; i < g->inputs.n; i++) widen_type(&g->inputs.v[i].type);
    for (uint32_t i = 0; i < g->outputs.n; i++) widen_type(&g->outputs.v[i].type);
}

/* The model in f64. */
static bool open_run(Run *r, const char *folder) {
    r->diags = diag_create(r->arena, NULL);
    const char *path = arena_printf(r->arena, "%s/model.onnx", folder);
    if (import_model(r->arena, r->diags, path, NULL, &r->model, &r->g) != GRAPHC_OK) return false;
    r->nin = r->g->inputs.n;
    r->in = ARENA_ARRAY(r->arena, EvalTensor, r->nin + r->g->outputs.n + 1);
    r->out = ARENA_ARRAY(r->arena, EvalTensor, r->nin + r->g->outputs.n + 1);
    widen(r->g);
    return true;
}

static void close_run(Run *r) {
    import_close(r->model);
    arena_destroy(r->arena);
}

static bool run(Run *r) {
    return eval_run(r->g, r->in, &(EvalOptions){0}, r->arena, r->out) == GRAPHC_OK;
}

/* Some cases hold memory that nobody set: numbers too large to differ by a step become small.
 * moved: off round numbers, where functions like floor have their steps. */
static bool read_inputs(Run *r, const char *folder, bool moved) {
    ImportTensor t;
    for (uint32_t i = 0; i < r->nin; i++) {
        const char *path = arena_printf(r->arena, "%s/test_data_set_0/input_%u.pb", folder, i);
        if (import_tensor(r->arena, r->diags, path, NULL, &t) != GRAPHC_OK) return false;
        EvalTensor *x = &r->in[i];
        *x = (EvalTensor){.dtype = t.dtype, .rank = (uint8_t)t.rank};
        memcpy(x->dim, t.dim, sizeof x->dim);
        x->data = arena_copy(r->arena, t.data, t.bytes);
        if (!dtype_is_float(t.dtype)) continue;
        const uint64_t n = numel(x);
        double *p = arena_array(r->arena, n + 1, sizeof *p);
        for (uint64_t k = 0; k < n; k++) {
            p[k] = dtype_load_f64(t.dtype, t.data, k);
            if (!(fabs(p[k]) < 1e6)) p[k] = 0.5;
            if (moved) p[k] += 0.01 + 0.02 * fmod(0.6180339887 * (double)(k + 7 * i + 1), 1);
        }
        x->data = p;
        x->dtype = DT_f64;
    }
    return true;
}

static double weight(uint64_t i) {
    return 0.3 + fmod(0.6180339887 * (double)(i + 1), 1);
}

/* The weighted sum of all float outputs; what is not finite there is left out. */
static long double result(const Run *r) {
    long double s = 0; /* differences of a long sum are of its last digits */
    for (uint32_t o = 0; o < r->g->outputs.n; o++) {
        if (!dtype_is_float(r->out[o].dtype)) continue;
        for (uint64_t i = 0, n = numel(&r->out[o]); i < n; i++) {
            const double y = dtype_load_f64(r->out[o].dtype, r->out[o].data, i);
            if (isfinite(y)) s += (long double)weight(i) * y;
        }
    }
    return s;
}

static bool whole_result(Run *r) {
    bool whole = run(r);
    for (uint32_t o = 0; o < r->g->outputs.n; o++)
        for (uint64_t i = 0, n = numel(&r->out[o]); i < n && dtype_is_float(r->out[o].dtype); i++)
            whole &= isfinite(dtype_load_f64(r->out[o].dtype, r->out[o].data, i));
    return whole;
}

static long double value_at(Run *r, double *x, double v) {
    const double old = *x;
    *x = v;
    const bool ok = run(r);
    *x = old;
    return ok ? result(r) : NAN;
}

static long double central(Run *r, double *x, double h) {
    return (value_at(r, x, *x + h) - value_at(r, x, *x - h)) / (2 * (long double)h);
}

static double difference(Run *r, double *x, double h) {
    return (double)((4 * central(r, x, h) - central(r, x, 2 * h)) / 3);
}

/* Central differences of smaller and smaller steps, extrapolated to a step of 0: the member of
 * Neville's table that differs least from its neighbours (Ridders, "Accurate computation of F'(x)
 * and F'(x) F''(x)", 1982). */
static double extrapolated(Run *r, double *x) {
    enum { ROWS = 9 };
    long double row[ROWS] = {0}, before[ROWS], best = NAN, spread = INFINITY;
    for (int i = 0; i < ROWS; i++) {
        memcpy(before, row, sizeof row);
        row[0] = central(r, x, ldexp(STEP * 16, -i));
        for (int k = 1; k <= i; k++) {
            const long double by = ldexpl(1, 2 * k);
            row[k] = (row[k - 1] * by - before[k - 1]) / (by - 1);
            const long double off =
                fmaxl(fabsl(row[k] - row[k - 1]), fabsl(row[k] - before[k - 1]));
            if (off < spread) spread = off, best = row[k];
        }
    }
    return (double)best;
}

/* What each element of y weighs in the sum, as `weight` has it, where it is finite. */
static Value weights(Graph *g, Value y) {
    const Type *y_type = graph_type(g, y), t = *y_type;
    Value i = build_full(g, build_scalar_f(g, DT_f64, 0), t.rank, t.dim);
    for (int a = 0; a < t.rank; a++) {
        i = build_binary(g, OP_mul, i, build_cast(g, build_expr(g, DT_i64, t.dim[a]), DT_f64));
        i = build_binary(g, OP_add, i, build_iota(g, DT_f64, t.rank, t.dim, a));
    }
    i = build_binary_f(g, OP_mul, build_binary_f(g, OP_add, i, 1), 0.6180339887);
    i = build_binary_f(g, OP_add, build_binary_f(g, OP_rem, i, 1), 0.3);
    Value finite = build_binary_f(g, OP_lt, build_unary(g, OP_abs, y), INFINITY);
    return build_select(g, finite, i, build_scalar_f(g, DT_f64, 0));
}

/* Adds the backward graph; its outputs are the gradients of float inputs. How many there are, or -1
 * after an error. */
static int make_backward(Run *b, Value *dwrt) {
    Graph *g = b->g;
    const uint32_t nout = g->outputs.n;
    Value *y = ARENA_ARRAY(b->arena, Value, nout), *dy = ARENA_ARRAY(b->arena, Value, nout);
    Value *wrt = ARENA_ARRAY(b->arena, Value, b->nin);
    uint32_t n = 0;
    int flows = 0;
    for (uint32_t o = 0; o < nout; o++) {
        const Value v = g->outputs.v[o].value;
        if (!dtype_is_float(graph_type(g, v)->dtype)) continue;
        y[n] = v;
        dy[n++] = weights(g, v);
    }
    for (uint32_t i = 0; i < b->nin; i++) wrt[i] = g->inputs.v[i].value;
    if (grad_build(g, n, y, dy, b->nin, wrt, dwrt) != GRAPHC_OK) return -1;
    g->outputs.n = 0;
    for (uint32_t i = 0; i < b->nin; i++) {
        if (dwrt[i]) build_output(g, "dx", dwrt[i]);
        flows += dwrt[i] != 0;
    }
    return flows;
}

typedef struct Tally {
    double worst;
    uint32_t agree, kinks;
} Tally;

/* Some elements of input i against got, or against zero. */
static void compare(Run *f, uint32_t i, const EvalTensor *got, Tally *t) {
    double *x = f->in[i].data;
    const uint64_t n = numel(&f->in[i]), step = n > ELEMENTS ? n / ELEMENTS : 1;
    for (uint64_t k = 0; k < n; k += step) {
        const double want = difference(f, &x[k], STEP);
        const double g = got ? dtype_load_f64(got->dtype, got->data, k) : 0;
        const double e = fabs(g - want) / fmax(fabs(want), 1e-2);
        if (e <= TOLERANCE) {
            t->worst = fmax(t->worst, e);
            t->agree++;
            continue;
        }
        const double finer = difference(f, &x[k], STEP / 16),
                     finest = difference(f, &x[k], STEP / 256);
        const double exact = extrapolated(f, &x[k]);
        const double err = fabs(g - exact) / fmax(fabs(exact), 1e-2);
        if (err <= TOLERANCE) { /* strongly curved */
            t->worst = fmax(t->worst, err);
            t->agree++;
        } else if (isnan(g) && !whole_result(f)) { /* outside of the domain */
            t->kinks++;
        } else if (!(fabs(finer - finest) <= 1e-4 * fmax(fabs(finer), 1))) {
            t->kinks++;
        } else {
            t->worst = fmax(t->worst, isnan(err) ? INFINITY : err);
        }
    }
}

static bool any_float(const Run *r) {
    bool in = false, out = false;
    for (uint32_t i = 0; i < r->nin; i++) in |= dtype_is_float(r->g->inputs.v[i].type.dtype);
    for (uint32_t o = 0; o < r->g->outputs.n; o++)
        out |= dtype_is_float(graph_type(r->g, r->g->outputs.v[o].value)->dtype);
    return in && out;
}

static void check_runs(Run *f, Run *b, const char *folder) {
    Tally t = {0};
    if (!open_run(f, folder) || !open_run(b, folder)) {
        say("skipped", folder, 0, 0, 0, first_error(f));
        return;
    }
    if (!any_float(f)) {
        say("whole", folder, 0, 0, 0, "");
        return;
    }
    if (!(read_inputs(f, folder, true) && run(f)) && !(read_inputs(f, folder, false) && run(f))) {
        say("skipped", folder, 0, 0, 0, first_error(f));
        return;
    }
    memcpy(b->in, f->in, f->nin * sizeof *f->in);
    Value *dwrt = ARENA_ARRAY(b->arena, Value, b->nin + 1);
    const int flows = make_backward(b, dwrt);
    if (flows < 0) {
        say("refused", folder, 0, 0, 0, first_error(b));
        return;
    }
    if (graph_verify(b->g) != GRAPHC_OK || !run(b)) {
        say("differs", folder, INFINITY, 0, 0, first_error(b));
        return;
    }
    for (uint32_t i = 0, k = 0; i < f->nin; i++) {
        const EvalTensor *got = dwrt[i] ? &b->out[k++] : NULL;
        if (f->in[i].dtype == DT_f64) compare(f, i, got, &t);
    }
    const bool same = t.worst <= TOLERANCE;
    say(!same ? "differs" : flows ? "same" : "zero", folder, t.worst, t.agree, t.kinks, "");
}

static void check(const char *folder) {
    Run f = {.arena = arena_create()}, b = {.arena = arena_create()};
    check_runs(&f, &b, folder);
    close_run(&f);
    close_run(&b);
}

static void say_crash(const char *folder, const char *how) {
    say("differs", folder, INFINITY, 0, 0, how);
}

int main(int argc, char **argv) {
    run_apart(check, argv + 1, argc - 1, TIME_LIMIT_S, say_crash);
    return 0;
}
