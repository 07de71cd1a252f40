/* Reductions and scans. */
#include "graph/grad/grad_impl.h"

/* A reduction's result or its gradient, under the shape of its operand: one value for all that was
 * folded together. */
static Value spread(Graph *g, const Type *to, uint32_t axes, Value v) {
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < to->rank; i++)
        dim[i] = axes >> i & 1 ? expr_const(g->exprs, 1) : to->dim[i];
    return build_expand(g, build_reshape(g, v, to->rank, dim), to->rank, to->dim);
}

void grad_of_reduce_sum(Walk *w, Value v, Value dy) {
    const Node n = *graph_node(w->g, v);
    const Type from = *graph_type(w->g, n.in[0]);
    grad_add(w, n.in[0], spread(w->g, &from, n.attr.reduce.axes, dy));
}

/* The elements that equal the extreme one share its gradient. */
static void grad_extreme(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    const Type from = *graph_type(g, n.in[0]);
    const uint32_t axes = n.attr.reduce.axes;
    Value is = build_binary(g, OP_eq, n.in[0], spread(g, &from, axes, v));
    Value count = build_reduce(g, OP_reduce_sum, build_cast(g, is, from.dtype), axes, false);
    Value share = spread(g, &from, axes, build_binary(g, OP_div, dy, count));
    grad_add(w, n.in[0], build_select(g, is, share, build_scalar_f(g, from.dtype, 0)));
}

/* Over all taps of windows: a max-pool. */
static bool folds_windows(const Graph *g, const Node *n) {
    const Node *x = graph_node(g, n->in[0]);
    if (x->op != OP_window) return false;
    const uint32_t all = (1u << x->type.rank) - 1, taps = all & ~(all >> x->attr.window.n);
    return n->attr.reduce.axes == taps;
}

/* The number of each tap of a window, in row-major order, [1, .., K..]. */
static Value tap_numbers(Graph *g, const Type *t, int first) {
    Type taps = *t;
    Value v = 0;
    for (int a = 0; a < first; a++) taps.dim[a] = expr_const(g->exprs, 1);
    for (int a = first; a < t->rank; a++) {
        Value i = build_iota(g, DT_i32, t->rank, taps.dim, a);
        if (v) v = build_binary(g, OP_mul, v, build_expr(g, DT_i32, t->dim[a]));
        v = v ? build_binary(g, OP_add, v, i) : i;
    }
    return v;
}

/* The first of a window's largest elements gets all of its gradient. What remains of the window is
 * that element's number: its elements are not read again where gradients are folded. */
static void grad_max_pool(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    const Type from = *graph_type(g, n.in[0]);
    const uint32_t axes = n.attr.reduce.axes;
    Value number = tap_numbers(g, &from, n.type.rank);
    Value is = build_binary(g, OP_eq, n.in[0], spread(g, &from, axes, v));
    Value place = build_select(g, is, number, build_scalar_i(g, DT_i32, INT32_MAX));
    Value first = build_reduce(g, OP_reduce_min, place, axes, false);
    Value taken = build_binary(g, OP_eq, number, spread(g, &from, axes, first));
    grad_add(w, n.in[0],
             build_select(g, taken, spread(g, &from, axes, dy), build_scalar_f(g, from.dtype, 0)));
}

void grad_of_reduce_max(Walk *w, Value v, Value dy) {
    if (folds_windows(w->g, graph_node(w->g, v)))
        grad_max_pool(w, v, dy);
    else
        grad_extreme(w, v, dy);
}

void grad_of_reduce_min(Walk *w, Value v, Value dy) {
    grad_extreme(w, v, dy);
}

/* The product of all but the element itself: of those before it and those after it, so that zeros
 * need no case of their own and nothing is divided. */
static Value product_of_others(Graph *g, Value x, int axis) {
    return build_binary(g, OP_mul, build_scan(g, OP_cumprod, x, axis, true, false),
                        build_scan(g, OP_cumprod, x, axis, true, true));
}

/* Axis by axis: the first product's gradient comes last. */
void grad_of_reduce_prod(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    const Type from = *graph_type(g, n.in[0]);
    Value part[GRAPH_MAX_RANK]; /* before axis i is folded */
    Value x = n.in[0];
    for (int i = 0; i < from.rank; i++) {
        part[i] = x;
        if (n.attr.reduce.axes >> i & 1) x = build_reduce(g, OP_reduce_prod, x, 1u << i, true);
    }
    Type t = from;
    for (int i = 0; i < t.rank; i++)
        if (n.attr.reduce.axes >> i & 1) t.dim[i] = expr_const(g->exprs, 1);
    dy = build_reshape(g, dy, t.rank, t.dim);
    for (int i = from.rank; i-- > 0;)
        if (n.attr.reduce.axes >> i & 1)
            dy = build_binary(g, OP_mul, dy, product_of_others(g, part[i], i));
    grad_add(w, n.in[0], dy);
}

/* ---- Scans ---- */

/* Sums from the other end. */
static Value scan_back(Graph *g, const Node *n, Value dy) {
    return build_scan(g, OP_cumsum, dy, n->attr.scan.axis, n->attr.scan.exclusive,
                      !n->attr.scan.reverse);
}

void grad_of_cumsum(Walk *w, Value v, Value dy) {
    const Node n = *graph_node(w->g, v);
    grad_add(w, n.in[0], scan_back(w->g, &n, dy));
}

/* dx_i = sum over k >= i of dy_k y_k / x_i, which the first zero of a row ends: products after it
 * are 0. Only that zero's own gradient is made of products without it; what follows it gets none */
void grad_of_cumprod(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    const Value x = n.in[0];
    const DType t = n.type.dtype;
    const int axis = n.attr.scan.axis;
    const bool reverse = n.attr.scan.reverse;
    const Value zero = build_scalar_f(g, t, 0), one = build_scalar_f(g, t, 1);
    Value is_zero = build_binary(g, OP_eq, x, zero);
    Value zeros = build_scan(g, OP_cumsum, build_cast(g, is_zero, DT_i64), axis, false, reverse);
    Value first = build_binary(g, OP_and, is_zero,
                               build_binary(g, OP_eq, zeros, build_scalar_i(g, DT_i64, 1)));
    Value without = build_scan(g, OP_cumprod, build_select(g, first, one, x), axis,
                               n.attr.scan.exclusive, reverse);
    Value of_zero = scan_back(g, &n, build_binary(g, OP_mul, dy, without));
    Value others = build_binary(g, OP_div, scan_back(g, &n, build_binary(g, OP_mul, dy, v)), x);
    grad_add(w, x, build_select(g, first, of_zero, build_select(g, is_zero, zero, others)));
}
