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
#include "graph/eval/eval.h"

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
    for (Value v = 1; v < g->nodes.n; v++) of[v] = way_of(g, graph_node(g, v), of, precision);
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
