/* Composites: ops that keep the meaning of several, for templates and gradients of their own. */
#include "graph/build/build_impl.h"

static Value float_error(Graph *g, Op op, DType t) {
    return build_error(g, D_DTYPE, "%s of %s", op_info[op].name, dtype_name(t));
}

Value build_attention(Graph *g, Value scores, Value values, DType to, bool guarded) {
    if (!scores || !values || !build_check_domain(g, OP_attention, graph_type(g, scores)->dtype))
        return 0;
    DType u = graph_type(g, values)->dtype;
    if (!dtype_is_float(u)) return float_error(g, OP_attention, u);
    Value x[2] = {scores, values};
    Type t;
    if (!build_unify_product(g, x, to, "attention", &t)) return 0;
    Attr attr = {.attention = {to, guarded}};
    return build_node(g, OP_attention, x, 2, &attr, &t);
}

Value build_logsumexp(Graph *g, Value x, DType to) {
    if (!x || !build_check_domain(g, OP_logsumexp, graph_type(g, x)->dtype)) return 0;
    Type t = *graph_type(g, x);
    if (!t.rank) return build_error(g, D_SHAPE, "logsumexp of a scalar");
    t.rank--;
    t.dtype = to;
    Attr attr = {.cast = {.to = to}};
    return build_node(g, OP_logsumexp, &x, 1, &attr, &t);
}

/* ---- Decompositions ---- */

typedef struct Softmax {
    Value exp, sum, max; /* exp(x - max); statistics with an axis of size 1 for the last */
} Softmax;

/* finite: rows without a finite value subtract 0, not themselves. */
static Softmax softmax_parts(Graph *g, Value x, bool finite) {
    Softmax s = {0};
    if (!x) return s;
    uint32_t last = 1u << (graph_type(g, x)->rank - 1);
    s.max = build_reduce(g, OP_reduce_max, x, last, true);
    if (finite && s.max) {
        Value zero = build_scalar_f(g, graph_type(g, x)->dtype, 0);
        s.max = build_select(g, build_unary(g, OP_isinf, s.max), zero, s.max);
    }
    s.exp = build_unary(g, OP_exp, build_binary(g, OP_sub, x, s.max));
    s.sum = build_reduce(g, OP_reduce_sum, s.exp, last, true);
    return s;
}

/* A product has operands of one type: the values', which were stored in it. */
static Value decomposed_attention(Graph *g, const Node *n, const Value *in) {
    DType to = n->attr.attention.to;
    Softmax s = softmax_parts(g, build_cast(g, in[0], to), false);
    Value p = build_binary(g, OP_div, s.exp, s.sum);
    if (n->attr.attention.guarded && p)
        p = build_select(g, build_unary(g, OP_isnan, p), build_scalar_f(g, to, 0), p);
    return build_dot(g, build_cast(g, p, graph_type(g, in[1])->dtype), in[1], to);
}

static Value decomposed_logsumexp(Graph *g, const Node *n, const Value *in) {
    Softmax s = softmax_parts(g, build_cast(g, in[0], n->attr.cast.to), true);
    Value y = build_binary(g, OP_add, build_unary(g, OP_log, s.sum), s.max);
    return y ? build_squeeze(g, y, -1) : 0;
}

Value build_decomposed(Graph *g, const Node *n, const Value *in) {
    return n->op == OP_attention ? decomposed_attention(g, n, in) : decomposed_logsumexp(g, n, in);
}

/* --- Rounded ------------------------------------------------------------------------------ */

Value build_rounded(Graph *g, Value x, int64_t block) {
    if (!x) return 0;
    const Type t = *graph_type(g, x);
    const int last = t.rank - 1;
    const Expr size = expr_const(g->exprs, block);
    Type cut = t;
    cut.dim[last] = expr_div(g->exprs, t.dim[last], size);
    cut.dim[cut.rank++] = size;
    const Value y = build_reshape(g, x, cut.rank, cut.dim);
    const Value most =
        build_reduce(g, OP_reduce_max, build_unary(g, OP_abs, y), 1u << t.rank, true);
    const Value all = build_scalar_f(g, DT_f32, 127), none = build_scalar_f(g, DT_f32, 0);
    const Value by = build_select(g, build_binary(g, OP_eq, most, none), most,
                                  build_binary(g, OP_div, all, most));
    Value q = build_unary(g, OP_round, build_binary(g, OP_mul, y, by));
    q = build_reshape(g, build_cast(g, q, DT_i8), t.rank, t.dim);
    Value scale = build_binary_f(g, OP_mul, most, 1.0 / 127);
    scale = build_reshape(g, build_expand(g, scale, cut.rank, cut.dim), t.rank, t.dim);
    return build_binary(g, OP_mul, build_cast(g, q, DT_f32), scale);
}
