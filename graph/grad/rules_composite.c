/* Composites: gradients from what their kernels leave, in place of those of what they stand for. */
#include "graph/grad/grad_impl.h"

/* exp(x - lse) along the last axis, in type t: a row's softmax from its logsumexp. */
static Value softmax_of(Graph *g, Value x, Value lse, DType t) {
    Value of_row = build_unsqueeze(g, build_cast(g, lse, t), -1);
    return build_unary(g, OP_exp, build_binary(g, OP_sub, build_cast(g, x, t), of_row));
}

void grad_of_logsumexp(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Value x = grad_in(w, v, 0);
    Value dx = build_binary(g, OP_mul, build_unsqueeze(g, dy, -1),
                            softmax_of(g, x, v, graph_type(g, v)->dtype));
    grad_add(w, x, build_cast(g, dx, graph_type(g, x)->dtype));
}

/* y = P v, P = softmax(s): dv = P' dy; ds = P * (dy v' - rowsum(dy * y)). y as its readers have it,
 * in the type of v: what they keep is kept once. */
void grad_of_attention(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    const Value s = n.in[0], values = n.in[1];
    const DType to = n.attr.attention.to, t = graph_type(g, values)->dtype;
    Value p = softmax_of(g, s, build_logsumexp(g, s, to), to), narrow = build_cast(g, dy, t);
    if (n.attr.attention.guarded)
        p = build_select(g, build_unary(g, OP_isnan, p), build_scalar_f(g, to, 0), p);
    if (grad_wants(w, values)) {
        Value dv = build_dot(g, grad_transposed(g, build_cast(g, p, t)), narrow, to);
        grad_add(w, values, build_cast(g, dv, t));
    }
    if (!grad_wants(w, s)) return;
    const uint32_t last = 1u << (n.type.rank - 1);
    Value y = build_cast(g, build_cast(g, v, t), to);
    Value row = build_reduce(g, OP_reduce_sum, build_binary(g, OP_mul, dy, y), last, true);
    Value dp = build_dot(g, narrow, grad_transposed(g, values), to);
    Value ds = build_binary(g, OP_mul, p, build_binary(g, OP_sub, dp, row));
    grad_add(w, s, build_cast(g, ds, graph_type(g, s)->dtype));
}
