/* Reductions and contractions. */
#include "graph/build/build_impl.h"

#include <string.h>

/* ---- Reductions ---- */

static Type reduced_type(const Type *t, uint32_t axes) {
    Type out = {.dtype = t->dtype};
    for (int i = 0; i < t->rank; i++)
        if (!(axes >> i & 1)) out.dim[out.rank++] = t->dim[i];
    return out;
}

static Value with_kept_axes(Graph *g, Value v, Type t, uint32_t axes) {
    for (int i = 0; i < t.rank; i++)
        if (axes >> i & 1) t.dim[i] = expr_const(g->exprs, 1);
    return v ? build_reshape(g, v, t.rank, t.dim) : 0;
}

static bool check_axes(Graph *g, Op op, const Type *t, uint32_t axes) {
    if (!build_check_domain(g, op, t->dtype)) return false;
    if (axes < 1u << t->rank) return true;
    build_error(g, D_SHAPE, "%s over an axis that %s lacks", op_info[op].name,
                build_type_text(g, t));
    return false;
}

static bool folds_units_only(const Graph *g, const Type *t, uint32_t axes) {
    for (int i = 0; i < t->rank; i++)
        if ((axes >> i & 1) && !expr_is_value(g->exprs, t->dim[i], 1)) return false;
    return true;
}

Value build_reduce(Graph *g, Op op, Value x, uint32_t axes, bool keep) {
    if (!x) return 0;
    Type t = *graph_type(g, x);
    if (!check_axes(g, op, &t, axes)) return 0;
    Type out = reduced_type(&t, axes);
    Value v;
    if (folds_units_only(g, &t, axes)) {
        v = build_reshape(g, x, out.rank, out.dim);
    } else {
        Attr a = {.reduce = {axes, false}};
        v = build_node(g, op, &x, 1, &a, &out);
    }
    return keep ? with_kept_axes(g, v, t, axes) : v;
}

Value build_arg_reduce(Graph *g, Op op, Value x, int axis, bool last, bool keep) {
    if (!x) return 0;
    Type t = *graph_type(g, x);
    axis = build_axis(g, axis, t.rank, op_info[op].name);
    if (axis < 0 || !check_axes(g, op, &t, 1u << axis)) return 0;
    Type out = reduced_type(&t, 1u << axis);
    out.dtype = DT_i64;
    Attr a = {.reduce = {1u << axis, last}};
    Value v = build_node(g, op, &x, 1, &a, &out);
    return keep ? with_kept_axes(g, v, t, 1u << axis) : v;
}

static Value reduced_count(Graph *g, const Type *t, uint32_t axes, DType to) {
    Expr n = expr_const(g->exprs, 1);
    for (int i = 0; i < t->rank; i++)
        if (axes >> i & 1) n = expr_mul(g->exprs, n, t->dim[i]);
    return build_cast(g, build_expr(g, DT_i64, n), to);
}

/* 16-bit and smaller floats are summed in f32. */
Value build_mean(Graph *g, Value x, uint32_t axes, bool keep) {
    if (!x) return 0;
    Type t = *graph_type(g, x);
    DType sum_type = dtype_is_float(t.dtype) && dtype_bytes(t.dtype) < 4 ? DT_f32 : t.dtype;
    Value sum = build_reduce(g, OP_reduce_sum, build_cast(g, x, sum_type), axes, keep);
    if (!sum) return 0;
    Value mean = build_binary(g, OP_div, sum, reduced_count(g, &t, axes, sum_type));
    return build_cast(g, mean, t.dtype);
}

/* ---- dot ---- */

/* Contractions take operands of one type, or u8 by i8, which some machines multiply as they are.
 * Other bytes of two types widen, to 16 bits, which machines multiply in pairs. */
static bool unify_contract_types(Graph *g, Op op, Value *a, Value *b) {
    DType ta = graph_type(g, *a)->dtype, tb = graph_type(g, *b)->dtype;
    if (!build_check_domain(g, op, ta)) return false;
    if (ta == tb || (ta == DT_u8 && tb == DT_i8)) return true;
    if (dtype_is_int(ta) && dtype_is_int(tb) && dtype_bytes(ta) == 1 && dtype_bytes(tb) == 1) {
        *a = build_cast(g, *a, DT_i16);
        *b = build_cast(g, *b, DT_i16);
        return true;
    }
    build_error(g, D_DTYPE, "%s of %s and %s", op_info[op].name, dtype_name(ta), dtype_name(tb));
    return false;
}

bool build_unify_product(Graph *g, Value x[2], DType to, const char *what, Type *out) {
    Type t = *graph_type(g, x[0]), u = *graph_type(g, x[1]);
    const int r = t.rank;
    if (r < 2 || r != u.rank) {
        build_error(g, D_SHAPE, "%s of %s and %s", what, build_type_text(g, &t),
                    build_type_text(g, &u));
        return false;
    }
    if (!build_unify_axes(g, x, 2, (1u << (r - 2)) - 1, what)) return false;
    t = *graph_type(g, x[0]), u = *graph_type(g, x[1]);
    Expr k = build_unify_dim(g, t.dim[r - 1], u.dim[r - 2]);
    if (!k) {
        build_error(g, D_SHAPE, "%s of %s and %s: inner sizes differ", what, build_type_text(g, &t),
                    build_type_text(g, &u));
        return false;
    }
    t.dim[r - 1] = u.dim[r - 2] = k;
    x[0] = build_retype(g, x[0], t.dim);
    x[1] = build_retype(g, x[1], u.dim);
    t.dim[r - 1] = u.dim[r - 1];
    t.dtype = to;
    *out = t;
    return build_valid(x, 2);
}

Value build_dot(Graph *g, Value a, Value b, DType to) {
    if (!a || !b || !unify_contract_types(g, OP_dot, &a, &b)) return 0;
    Value x[2] = {a, b};
    Attr attr = {.cast = {.to = to}};
    Type t;
    return build_unify_product(g, x, to, "dot", &t) ? build_node(g, OP_dot, x, 2, &attr, &t) : 0;
}

static DType accumulator(DType t) {
    if (dtype_is_float(t)) return t == DT_f64 ? DT_f64 : DT_f32;
    return dtype_bytes(t) <= 2 ? DT_i32 : t;
}

static bool batch_is_one(const Graph *g, const Type *t) {
    for (int i = 0; i + 2 < t->rank; i++)
        if (!expr_is_value(g->exprs, t->dim[i], 1)) return false;
    return true;
}

/* a [B.., M, K] by one matrix b: the batch joins M, so that it is a single product. */
static Value matmul_shared(Graph *g, Value a, Value b, DType to) {
    Type ta = *graph_type(g, a), tb = *graph_type(g, b);
    Expr k = ta.dim[ta.rank - 1], m = expr_const(g->exprs, 1);
    for (int i = 0; i + 1 < ta.rank; i++) m = expr_mul(g->exprs, m, ta.dim[i]);
    Value flat = build_reshape(g, a, 2, (Expr[]){m, k});
    Value v = build_dot(g, flat, build_reshape(g, b, 2, tb.dim + tb.rank - 2), to);
    if (!v) return 0;
    Type out = {.rank = ta.rank > tb.rank ? ta.rank : tb.rank};
    for (int i = 0; i < out.rank; i++) {
        int ai = i - (out.rank - ta.rank);
        out.dim[i] = ai < 0 ? expr_const(g->exprs, 1) : ta.dim[ai];
    }
    out.dim[out.rank - 1] = tb.dim[tb.rank - 1];
    return build_reshape(g, v, out.rank, out.dim);
}

static Value matmul_batched(Graph *g, Value a, Value b, DType to) {
    Type ta = *graph_type(g, a), tb = *graph_type(g, b);
    Type batch_a = ta, batch_b = tb, batch;
    batch_a.rank = (uint8_t)(ta.rank - 2);
    batch_b.rank = (uint8_t)(tb.rank - 2);
    if (!build_broadcast(g, &batch_a, &batch_b, &batch.rank, batch.dim)) return 0;
    uint8_t r = (uint8_t)(batch.rank + 2);
    memcpy(batch.dim + batch.rank, ta.dim + ta.rank - 2, 2 * sizeof(Expr));
    Value x = build_expand(g, a, r, batch.dim);
    memcpy(batch.dim + batch.rank, tb.dim + tb.rank - 2, 2 * sizeof(Expr));
    return build_dot(g, x, build_expand(g, b, r, batch.dim), to);
}

Value build_matmul(Graph *g, Value a, Value b, DType result) {
    if (!a || !b || !unify_contract_types(g, OP_dot, &a, &b)) return 0;
    int ra = graph_type(g, a)->rank, rb = graph_type(g, b)->rank;
    if (ra == 0 || rb == 0) return build_error(g, D_SHAPE, "a matrix product of a scalar");
    DType to = accumulator(graph_type(g, a)->dtype);
    if (ra == 1) a = build_unsqueeze(g, a, 0);
    if (rb == 1) b = build_unsqueeze(g, b, 1);
    if (!a || !b) return 0;
    bool shared = batch_is_one(g, graph_type(g, b)) && graph_type(g, a)->rank > 2;
    Value v = shared ? matmul_shared(g, a, b, to) : matmul_batched(g, a, b, to);
    if (rb == 1) v = build_squeeze(g, v, -1);
    if (ra == 1) v = build_squeeze(g, v, rb == 1 ? -1 : -2);
    return build_cast(g, v, result);
}

/* ---- conv ---- */

static bool check_conv(Graph *g, const Type *x, const Type *w, const Attr *a) {
    int n = a->conv.n;
    if (n < 1 || n > GRAPH_MAX_WINDOW) {
        build_error(g, D_UNSUPPORTED, "a convolution over %d axes", n);
        return false;
    }
    if (x->rank != n + 2 || w->rank != n + 2 || a->conv.groups < 1) {
        build_error(g, D_SHAPE, "conv of %s with weights %s over %d axes", build_type_text(g, x),
                    build_type_text(g, w), n);
        return false;
    }
    for (int i = 0; i < n; i++)
        if (a->conv.stride[i] < 1 || a->conv.dilation[i] < 1) {
            build_error(g, D_ATTRIBUTE, "conv: strides and dilations are positive");
            return false;
        }
    return true;
}

static bool check_channels(Graph *g, const Type *x, const Type *w, const Attr *a) {
    int n = a->conv.n;
    int64_t oc;
    Expr wanted = expr_muli(g->exprs, w->dim[n], a->conv.groups);
    if (!build_unify_dim(g, x->dim[n + 1], wanted)) {
        build_error(g, D_SHAPE, "conv of %s with weights %s in %lld groups: channels differ",
                    build_type_text(g, x), build_type_text(g, w), (long long)a->conv.groups);
        return false;
    }
    if (expr_is_const(g->exprs, w->dim[n + 1], &oc) && oc % a->conv.groups) {
        build_error(g, D_SHAPE, "%lld output channels do not divide into %lld groups",
                    (long long)oc, (long long)a->conv.groups);
        return false;
    }
    return true;
}

/* Does the tap at `offset` from the window's start ever meet one of `size` elements in `steps`? */
static bool tap_meets(int64_t offset, int64_t stride, int64_t steps, int64_t size) {
    int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    return first < steps && first * stride + offset < size;
}

/* Taps at the window's ends that only ever meet padding are left out, as under a dilation that is
 * larger than the input: the part of the weights that is needed, the padding in `a` to match. A
 * window may have 2^40 taps: at most LIVE_TAPS_TRIED of each end are looked at. */
enum { LIVE_TAPS_TRIED = 4096 };

static Value live_taps(Graph *g, const Type *x, const Type *y, Value w, Attr *a) {
    ExprPool *p = g->exprs;
    for (int i = 0; w && i < a->conv.n; i++) {
        int64_t taps, size, steps, stride = a->conv.stride[i], dilation = a->conv.dilation[i];
        if (!expr_is_const(p, graph_type(g, w)->dim[i], &taps) ||
            !expr_is_const(p, x->dim[i + 1], &size) || !expr_is_const(p, y->dim[i + 1], &steps))
            continue;
        int64_t *lo = &a->conv.lo[i], *hi = &a->conv.hi[i], first = 0, last = 0, n = taps;
        for (; n > 1 && first < LIVE_TAPS_TRIED && *lo >= dilation &&
               !tap_meets(-*lo, stride, steps, size);
             n--, first++)
            *lo -= dilation;
        for (; n > 1 && last < LIVE_TAPS_TRIED && *hi >= dilation &&
               !tap_meets((n - 1) * dilation - *lo, stride, steps, size);
             n--, last++)
            *hi -= dilation;
        if (n < taps) w = build_slice_axis(g, w, i, expr_const(p, first), expr_const(p, n), 1);
    }
    return w;
}

Value build_conv(Graph *g, Value x, Value w, const Attr *attr) {
    if (!x || !w || !unify_contract_types(g, OP_conv, &x, &w)) return 0;
    const Type tx = *graph_type(g, x), tw = *graph_type(g, w);
    if (!check_conv(g, &tx, &tw, attr) || !check_channels(g, &tx, &tw, attr)) return 0;
    ExprPool *p = g->exprs;
    Type t = {.dtype = attr->conv.to, .rank = tx.rank};
    t.dim[0] = tx.dim[0];
    for (int i = 0; i < attr->conv.n; i++) {
        Expr reach = expr_muli(p, expr_addi(p, tw.dim[i], -1), attr->conv.dilation[i]);
        Expr padded = expr_addi(p, tx.dim[i + 1], attr->conv.lo[i] + attr->conv.hi[i] - 1);
        Expr steps = expr_div(p, expr_sub(p, padded, reach), expr_const(p, attr->conv.stride[i]));
        t.dim[i + 1] = expr_max(p, expr_addi(p, steps, 1), expr_const(p, 0));
    }
    t.dim[t.rank - 1] = tw.dim[tw.rank - 1];
    Attr live = *attr;
    w = live_taps(g, &tx, &t, w, &live);
    return w ? build_node(g, OP_conv, (Value[]){x, w}, 2, &live, &t) : 0;
}
