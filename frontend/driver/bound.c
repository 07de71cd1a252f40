/* Roundings are independent and of either sign, so their squares add up along the way to an output,
 * in units of a value's standard deviation: layers keep that unit (norms see to it), a sum of
 * branches is no worse than its worst branch. A rounding to a type of unit u costs u^2, a
 * contraction over K products K u^2 of the type it sums in, a quantiser to b bits (4 / 2^(b-1))^2:
 * half of its codes span four standard deviations. The largest of many errors is some six of their
 * deviations, and a model may amplify what its first layers did; SLACK is for both.
 *
 * This says when outputs are worth a complaint; what single kernels may do is known far better
 * (graph/eval/eval_error.c). */
#include "frontend/driver/bound.h"
#include "runtime/base/dtype_rows.h"

#include <math.h>

#define SLACK         16.0
#define CONTROL_STEPS 1024.0 /* roundings in a loop or branch */

typedef struct Way {
    double variance, worst; /* worst: of one rounding */
    uint32_t depth;
    DType coarsest;
} Way;

static double squared(double x) {
    return x * x;
}

static bool moves_only(const Node *n) {
    OpClass c = op_info[n->op].cls;
    return c == OPC_VIEW || c == OPC_SOURCE || n->op == OP_gather || n->op == OP_max ||
           n->op == OP_min || n->op == OP_reduce_max || n->op == OP_reduce_min ||
           n->op == OP_select || n->op == OP_neg || n->op == OP_abs;
}

static bool quantises(const Graph *g, const Node *n) {
    return n->op == OP_cast && dtype_is_float(graph_type(g, n->in[0])->dtype) &&
           dtype_bytes(n->type.dtype) == 1 && n->type.dtype != DT_bool;
}

static double products(const Graph *g, const Node *n) {
    const Type *b = graph_type(g, n->in[1]);
    double k = 1;
    if (n->op == OP_dot) return (double)expr_hint(g->exprs, b->dim[b->rank - 2]);
    for (int i = 0; i + 1 < b->rank; i++) k *= (double)expr_hint(g->exprs, b->dim[i]);
    return k;
}

/* What node n's own rounding adds, in a type. */
static double own_variance(const Graph *g, const Node *n, DType precision, DType *type) {
    DType t = n->type.dtype;
    *type = t;
    if (quantises(g, n)) return squared(ldexp(2, -(int)dtype_info[t].bits));
    if (!dtype_is_float(t) || moves_only(n)) return 0;
    double u = squared(eval_unit(t));
    double sums = squared(eval_unit(t == DT_f64 ? DT_f64 : DT_f32));
    if (op_info[n->op].cls == OPC_CONTROL) return CONTROL_STEPS * u;
    if (op_info[n->op].cls != OPC_CONTRACT) return u;
    double rounded =
        t == DT_f32 && dtype_is_half(precision) ? 2 * squared(eval_unit(precision)) : 0;
    if (rounded > 0) *type = precision;
    return u + products(g, n) * sums + rounded;
}

/* A value that a contraction multiplies may be stored in its precision (graph/pass/precision),
 * and so may what is moved there, up to a value that is computed: all who read those read them
 * rounded. Inputs and constants stay as they are. */
static void mark_rounded(const Graph *g, Value v, bool *rounded) {
    for (;; v = graph_node(g, v)->in[0]) {
        const Node *n = graph_node(g, v);
        if (op_info[n->op].cls == OPC_SOURCE || n->type.dtype != DT_f32) return;
        rounded[v] = true;
        if (op_info[n->op].cls != OPC_VIEW && n->op != OP_gather) return;
    }
}

static bool *rounded_values(const Graph *g, DType precision, Arena *a) {
    bool *rounded = ARENA_ARRAY(a, bool, g->nodes.n + 1);
    for (Value v = 1; v < g->nodes.n && dtype_is_half(precision); v++) {
        const Node *n = graph_node(g, v);
        if (op_info[n->op].cls != OPC_CONTRACT) continue;
        for (uint32_t i = 0; i < n->nin; i++) mark_rounded(g, n->in[i], rounded);
    }
    return rounded;
}

static Way way_of(const Graph *g, const Node *n, const Way *of, DType precision) {
    Way w = {.coarsest = n->type.dtype};
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n->nin; i++) {
        const Way *x = &of[n->in[i]];
        if (x->depth > depth) depth = x->depth;
        if (x->variance >= w.variance) w.variance = x->variance;
        if (x->worst > w.worst) w.worst = x->worst, w.coarsest = x->coarsest;
    }
    DType type;
    double own = own_variance(g, n, precision, &type);
    w.variance += own;
    w.depth = depth + (own > 0);
    if (own > w.worst) w.worst = own, w.coarsest = type;
    return w;
}

OutputBound *bound_outputs(const Graph *g, DType precision, Arena *a) {
    Way *of = ARENA_ARRAY(a, Way, g->nodes.n + 1);
    OutputBound *out = ARENA_ARRAY(a, OutputBound, g->outputs.n + 1);
    const bool *rounded = rounded_values(g, precision, a);
    const double once = dtype_is_half(precision) ? squared(eval_unit(precision)) : 0;
    for (Value v = 1; v < g->nodes.n; v++) {
        of[v] = way_of(g, graph_node(g, v), of, precision);
        if (!rounded[v]) continue;
        of[v].variance += once, of[v].depth++;
        if (once > of[v].worst) of[v].worst = once, of[v].coarsest = precision;
    }
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        const Way *w = &of[g->outputs.v[i].value];
        DType t = graph_type(g, g->outputs.v[i].value)->dtype;
        double own = dtype_is_float(t) ? squared(eval_unit(t)) : 0; /* the output's own form */
        out[i] = (OutputBound){.std = SLACK * sqrt(w->variance + own), .depth = w->depth};
        out[i].coarsest = w->worst > 0 ? w->coarsest : t;
        out[i].step = !dtype_is_float(t) && w->variance > 0 ? 1 : 0;
    }
    return out;
}

/* ---- Terms that cancel ---- */

typedef struct Terms {
    const Graph *g;
    uint8_t *look;
    double *squares, *finite, *count; /* by value: sum of squares, of so many elements; of all */
    double *size;
} Terms;

/* No steeper than 1. */
static bool is_gentle(Op op) {
    return op == OP_tanh || op == OP_sigmoid || op == OP_sin || op == OP_cos || op == OP_erf;
}

/* What passes on errors of its operands as they are, or times another operand. */
static bool passes_on(const Graph *g, const Node *n) {
    Op op = (Op)n->op;
    return op == OP_add || op == OP_sub || op == OP_mul || op == OP_div || op == OP_reduce_sum ||
           is_gentle(op) || op == OP_exp || op_info[op].cls == OPC_CONTRACT || op == OP_attention ||
           (op == OP_cast && dtype_is_float(graph_type(g, n->in[0])->dtype)) ||
           (op_info[op].cls != OPC_SOURCE && moves_only(n));
}

static void mark_terms(Terms *t, Value v) {
    const Node *n = graph_node(t->g, v);
    if (t->look[v] || !dtype_is_float(n->type.dtype)) return;
    t->look[v] = EVAL_LOOK;
    for (uint32_t i = 0; i < n->nin && passes_on(t->g, n); i++) mark_terms(t, n->in[i]);
}

static void measure(Terms *t, Value v, const EvalTensor *x) {
    double row[256];
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++) n *= x->dim[i];
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < 256 ? n - i : 256;
        dtype_load_row(x->dtype, x->data, i, 1, m, row);
        for (int64_t k = 0; k < m; k++)
            if (isfinite(row[k])) t->squares[v] += squared(row[k]), t->finite[v]++;
    }
    t->count[v] += (double)n;
}

static double rms(const Terms *t, Value v) {
    return t->finite[v] > 0 ? sqrt(t->squares[v] / t->finite[v]) : 0;
}

static void look_at_term(void *ctx, Value v, EvalPart part, const EvalTensor *want,
                         const double *error) {
    (void)part, (void)error;
    measure(ctx, v, want);
}

static double size_of_product(const Terms *t, Value a, Value b) {
    return fmax(t->size[a] * rms(t, b), rms(t, a) * t->size[b]);
}

/* Operands stand before their readers. */
static double size_of(const Terms *t, Value v) {
    const Node *n = graph_node(t->g, v);
    double size = rms(t, v);
    if (!passes_on(t->g, n)) return size;
    const Value a = n->in[0], b = n->in[n->nin > 1];
    if (op_info[n->op].cls == OPC_CONTRACT)
        return fmax(size, size_of_product(t, a, b) * sqrt(products(t->g, n)));
    switch (n->op) {
    case OP_mul: return fmax(size, size_of_product(t, a, b));
    case OP_exp: return fmax(size, rms(t, v) * t->size[a]);
    case OP_attention: return fmax(size, fmax(t->size[b], t->size[a] * rms(t, b)));
    case OP_div: return fmax(size, rms(t, b) > 0 ? t->size[a] / rms(t, b) : 0);
    case OP_reduce_sum: return fmax(size, t->size[a] * sqrt(t->count[a] / fmax(t->count[v], 1)));
    default: break;
    }
    for (uint32_t i = 0; i < n->nin; i++) size = fmax(size, t->size[n->in[i]]);
    return size;
}

graphc_status bound_terms(const Graph *g, const EvalTensor *inputs, uint32_t i, Arena *a,
                          double *size) {
    const Value out = g->outputs.v[i].value;
    Terms t = {.g = g, .look = ARENA_ARRAY(a, uint8_t, g->nodes.n)};
    t.squares = ARENA_ARRAY(a, double, g->nodes.n);
    t.finite = ARENA_ARRAY(a, double, g->nodes.n);
    t.size = ARENA_ARRAY(a, double, g->nodes.n);
    t.count = ARENA_ARRAY(a, double, g->nodes.n);
    mark_terms(&t, out);
    for (uint32_t k = 0; k < g->inputs.n; k++)
        if (t.look[g->inputs.v[k].value]) measure(&t, g->inputs.v[k].value, &inputs[k]);
    EvalWatch watch = {.what = t.look, .look = look_at_term, .ctx = &t};
    EvalRun *run = NULL;
    graphc_status s = eval_open(g, inputs, NULL, a, &watch, &run);
    if (s == GRAPHC_OK) s = eval_reach(run, out);
    eval_close(run);
    for (Value v = 1; v <= out; v++)
        if (t.look[v]) t.size[v] = size_of(&t, v);
    *size = t.size[out];
    return s;
}

/* ---- Element by element ---- */

typedef struct Errors {
    const EvalTensor *got;
    double of_bound;
} Errors;

/* `got` is rounded to the type of the output once more. At a pole anything may come out. */
static double part_of_bound(DType t, double got, double want, double error) {
    if (got == want || (isnan(got) && isnan(want)) || isinf(error)) return 0;
    if (!isfinite(error) || !isfinite(got) || !isfinite(want)) return INFINITY;
    double bound = error;
    if (dtype_is_float(t)) bound += 2 * fmax(eval_unit(t) * fabs(want), eval_least_unit(t));
    return bound > 0 ? fabs(got - want) / bound : INFINITY;
}

static void look_at_errors(void *ctx, Value v, EvalPart part, const EvalTensor *want,
                           const double *error) {
    Errors *x = ctx;
    const DType t = x->got->dtype;
    int64_t inner = 1, count = 1; /* elements behind an index of the part's axis, and of it */
    (void)v;
    for (int d = 0; d < want->rank; d++) count *= want->dim[d];
    for (int d = part.axis + 1; d < want->rank; d++) inner *= want->dim[d];
    const int64_t rows = want->rank ? want->dim[part.axis] * inner : 1,
                  all = want->rank ? x->got->dim[part.axis] * inner : 1;
    for (int64_t k = 0; k < count; k++) {
        const int64_t at = k / rows * all + part.first * inner + k % rows;
        const double of =
            part_of_bound(t, dtype_load_f64(t, x->got->data, (size_t)at),
                          dtype_load_f64(want->dtype, want->data, (size_t)k), error ? error[k] : 0);
        x->of_bound = fmax(x->of_bound, of);
    }
}

graphc_status bound_elements(const Graph *g, const EvalTensor *inputs, uint32_t i,
                             const EvalTensor *got, Arena *a, double *of_bound) {
    const Value out = g->outputs.v[i].value;
    Errors x = {.got = got};
    uint8_t *look = ARENA_ARRAY(a, uint8_t, g->nodes.n);
    const EvalOptions o = {.round_halves = true};
    look[out] = EVAL_LOOK;
    EvalWatch watch = {.what = look, .look = look_at_errors, .ctx = &x};
    EvalRun *run = NULL;
    graphc_status s = eval_open(g, inputs, &o, a, &watch, &run);
    if (s == GRAPHC_OK) s = eval_reach(run, out);
    eval_close(run);
    *of_bound = x.of_bound;
    return s;
}
