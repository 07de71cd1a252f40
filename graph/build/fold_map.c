/* Algebraic identities of element-wise ops. Float identities hold for every finite value, NaN and
 * infinity; the sign of a zero result may differ (x + 0). Integer ones are exact. */
#include "graph/build/build_impl.h"

#include <math.h>
#include <string.h>

static bool is_splat(const Graph *g, Value v, int64_t value) {
    double f;
    int64_t i;
    if (!fold_splat(g, v, &f, &i)) return false;
    return dtype_is_float(graph_type(g, v)->dtype) ? f == (double)value : i == value;
}

/* Every bit of the type is set (true for bool). */
static bool is_all_ones(const Graph *g, Value v) {
    return is_splat(g, v, graph_type(g, v)->dtype == DT_bool ? 1 : -1);
}

static Value full_like(Graph *g, Value like, DType t, int64_t value) {
    Type type = *graph_type(g, like);
    return build_full(g, build_scalar_i(g, t, value), type.rank, type.dim);
}

static bool is_exact(const Graph *g, Value v) {
    return !dtype_is_float(graph_type(g, v)->dtype);
}

/* Every value of `from` survives a trip through `via`. */
static bool cast_keeps(DType from, DType via) {
    const DTypeInfo *f = &dtype_info[from], *v = &dtype_info[via];
    if (from == via) return true;
    if (via == DT_bool) return false;
    if (from == DT_bool) return !dtype_is_float(via) || dtype_format[via].special != DSPECIAL_power;
    if (dtype_is_int(from)) {
        if (v->cls == f->cls) return v->bits >= f->bits;
        if (v->cls == DCLASS_I) return v->bits > f->bits;
        return (via == DT_f64 && f->bits <= 32) || (via == DT_f32 && f->bits <= 16);
    }
    return via == DT_f64 || (via == DT_f32 && from != DT_f64);
}

static Value fold_cast(Graph *g, Value x, const Attr *a) {
    DType from = graph_type(g, x)->dtype;
    if (from == a->cast.to) return x;
    const Node *inner = graph_node(g, x);
    if (inner->op != OP_cast) return 0;
    DType first = graph_type(g, inner->in[0])->dtype;
    if (!cast_keeps(first, from)) return 0;
    /* A negative integer reaching an unsigned type through float is not the plain wrap. */
    if (dtype_is_int(first) && dtype_is_float(from) && dtype_is_int(a->cast.to)) return 0;
    return build_cast_ex(g, inner->in[0], a->cast.to, a->cast.saturate, a->cast.round);
}

static Value fold_bitcast(Graph *g, Value x, const Attr *a) {
    if (graph_type(g, x)->dtype == a->cast.to) return x;
    const Node *inner = graph_node(g, x);
    return inner->op == OP_bitcast ? build_bitcast(g, inner->in[0], a->cast.to) : 0;
}

static Value fold_unary(Graph *g, Op op, Value x) {
    const Node *inner = graph_node(g, x);
    bool same = inner->op == op;
    if (same && (op == OP_neg || op == OP_not)) return inner->in[0];
    if (same && (op == OP_abs || op == OP_floor || op == OP_ceil || op == OP_round ||
                 op == OP_trunc || op == OP_sign))
        return x;
    return 0;
}

static Value fold_add(Graph *g, const Value *in) {
    return is_splat(g, in[1], 0) ? in[0] : 0;
}

static Value fold_sub(Graph *g, const Value *in) {
    if (is_splat(g, in[1], 0)) return in[0];
    if (is_exact(g, in[0]) && in[0] == in[1])
        return full_like(g, in[0], graph_type(g, in[0])->dtype, 0);
    if (is_splat(g, in[0], 0)) return build_unary(g, OP_neg, in[1]);
    return 0;
}

static Value fold_mul(Graph *g, const Value *in) {
    if (is_splat(g, in[1], 1)) return in[0];
    if (is_exact(g, in[0]) && is_splat(g, in[1], 0)) return in[1];
    return 0;
}

static Value fold_div(Graph *g, const Value *in) {
    return is_splat(g, in[1], 1) ? in[0] : 0;
}

static Value fold_pow(Graph *g, const Value *in) {
    if (is_splat(g, in[1], 1)) return in[0];
    if (is_splat(g, in[1], 2)) return build_binary(g, OP_mul, in[0], in[0]);
    if (!is_exact(g, in[0]) && is_splat(g, in[1], -1)) return build_unary(g, OP_recip, in[0]);
    return 0;
}

static Value fold_minmax(Graph *g, const Value *in) {
    (void)g;
    return in[0] == in[1] ? in[0] : 0;
}

static Value fold_and(Graph *g, const Value *in) {
    if (in[0] == in[1] || is_all_ones(g, in[1])) return in[0];
    return is_splat(g, in[1], 0) ? in[1] : 0;
}

static Value fold_or(Graph *g, const Value *in) {
    if (in[0] == in[1] || is_splat(g, in[1], 0)) return in[0];
    return is_all_ones(g, in[1]) ? in[1] : 0;
}

static Value fold_xor(Graph *g, const Value *in) {
    if (is_splat(g, in[1], 0)) return in[0];
    if (in[0] == in[1]) return full_like(g, in[0], graph_type(g, in[0])->dtype, 0);
    return is_all_ones(g, in[1]) ? build_unary(g, OP_not, in[0]) : 0;
}

static Value fold_shift(Graph *g, const Value *in) {
    return is_splat(g, in[1], 0) ? in[0] : 0;
}

static Value fold_eq(Graph *g, const Value *in) {
    if (in[0] == in[1] && is_exact(g, in[0])) return full_like(g, in[0], DT_bool, 1);
    bool boolean = graph_type(g, in[0])->dtype == DT_bool;
    if (boolean && is_splat(g, in[1], 1)) return in[0];
    return boolean && is_splat(g, in[1], 0) ? build_unary(g, OP_not, in[0]) : 0;
}

static Value fold_ne(Graph *g, const Value *in) {
    if (in[0] == in[1] && is_exact(g, in[0])) return full_like(g, in[0], DT_bool, 0);
    bool boolean = graph_type(g, in[0])->dtype == DT_bool;
    if (boolean && is_splat(g, in[1], 0)) return in[0];
    return boolean && is_splat(g, in[1], 1) ? build_unary(g, OP_not, in[0]) : 0;
}

static Value fold_select(Graph *g, const Value *in) {
    if (in[1] == in[2] || is_splat(g, in[0], 1)) return in[1];
    if (is_splat(g, in[0], 0)) return in[2];
    const Node *c = graph_node(g, in[0]);
    if (c->op == OP_not) return build_select(g, c->in[0], in[2], in[1]);
    return 0;
}

typedef Value (*FoldFn)(Graph *g, const Value *in);
static const FoldFn folds[OP_COUNT] = {
    [OP_add] = fold_add,    [OP_sub] = fold_sub,   [OP_mul] = fold_mul,
    [OP_div] = fold_div,    [OP_pow] = fold_pow,   [OP_and] = fold_and,
    [OP_or] = fold_or,      [OP_xor] = fold_xor,   [OP_min] = fold_minmax,
    [OP_max] = fold_minmax, [OP_shl] = fold_shift, [OP_shr] = fold_shift,
    [OP_eq] = fold_eq,      [OP_ne] = fold_ne,     [OP_select] = fold_select,
};

Value fold_map(Graph *g, Op op, const Value *in, uint32_t n, const Attr *attr) {
    if (op == OP_cast) return fold_cast(g, in[0], attr);
    if (op == OP_bitcast) return fold_bitcast(g, in[0], attr);
    if (folds[op]) return folds[op](g, in);
    return n == 1 ? fold_unary(g, op, in[0]) : 0;
}
