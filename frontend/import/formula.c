#include "frontend/import/formula.h"
#include <math.h>

bool v_dim_const(const Graph *g, Value x, int axis, int64_t *n) {
    return expr_is_const(g->exprs, v_dim(g, x, axis), n);
}

Value v_const(Graph *g, Value like, double c) {
    if (!like) return 0;
    DType t = v_dtype(g, like);
    return dtype_is_float(t) ? build_scalar_f(g, t, c) : build_scalar_i(g, t, (int64_t)c);
}

Value v_lowest(Graph *g, DType t) {
    if (dtype_is_float(t)) return build_scalar_f(g, t, -INFINITY);
    int64_t lo;
    uint64_t hi;
    dtype_int_range(t, &lo, &hi);
    return build_scalar_i(g, t, lo);
}

Value v_cond(Graph *g, Expr e) {
    return build_cast(g, build_expr(g, DT_i64, e), DT_bool);
}

Value v_floats(Graph *g, const float *v, uint32_t n) {
    const Type t = {.dtype = DT_f32, .rank = 1, .dim = {v_int(g, n)}};
    const size_t bytes = n * sizeof *v;
    return build_const(g, t, (Constant){.data = arena_copy(g->arena, v, bytes), .bytes = bytes});
}

Expr v_iteration(Graph *g, const char *name, uint32_t *number) {
    const SymInfo info = {.name = name, .kind = SYM_ITER, .lo = 0, .hi = INT32_MAX};
    const Expr e = expr_sym_new(g->exprs, info);
    (void)expr_is_sym(g->exprs, e, number);
    return e;
}

Value v_select_f(Graph *g, Value cond, Value x, double otherwise) {
    return build_select(g, cond, x, v_const(g, x, otherwise));
}

Value v_square(Graph *g, Value x) {
    return v_mul(g, x, x);
}

Value v_clamp(Graph *g, Value x, double lo, double hi) {
    return v_minf(g, v_maxf(g, x, lo), hi);
}

Value v_rsqrt(Graph *g, Value x) {
    return build_unary(g, OP_rsqrt, x);
}

DType v_wide_type(DType t) {
    return dtype_is_half(t) ? DT_f32 : t;
}

Value v_widen(Graph *g, Value x) {
    return x ? build_cast(g, x, v_wide_type(v_dtype(g, x))) : 0;
}

Value v_iota(Graph *g, DType t, Expr n) {
    return build_iota(g, t, 1, &n, 0);
}

Value v_zeros(Graph *g, DType t, int rank, const Expr *dim) {
    Value zero = dtype_is_float(t) ? build_scalar_f(g, t, 0) : build_scalar_i(g, t, 0);
    return build_full(g, zero, (uint8_t)rank, dim);
}

Value v_along(Graph *g, Value x, int rank, int axis) {
    if (!x) return 0;
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < rank; i++) dim[i] = v_int(g, 1);
    dim[axis] = type_numel(g->exprs, graph_type(g, x));
    return build_reshape(g, x, (uint8_t)rank, dim);
}

Value v_append_axes(Graph *g, Value x, int n) {
    for (int i = 0; i < n && x; i++) x = build_unsqueeze(g, x, v_rank(g, x));
    return x;
}

Value v_reshape_like(Graph *g, Value x, Value like) {
    if (!x || !like) return 0;
    Type t = *graph_type(g, like);
    return build_reshape(g, x, t.rank, t.dim);
}

Value v_at(Graph *g, Value x, int axis, Expr i) {
    return build_squeeze(g, build_slice_axis(g, x, axis, i, v_int(g, 1), 1), axis);
}

Value v_move_axis(Graph *g, Value x, int from, int to) {
    uint8_t perm[GRAPH_MAX_RANK];
    if (!x) return 0;
    for (int i = 0, k = 0; i < v_rank(g, x); i++) {
        if (k == from) k++;
        perm[i] = (uint8_t)(i == to ? from : k++);
    }
    return build_permute(g, x, perm);
}

Value v_wrap(Graph *g, Value index, Expr size) {
    if (!index) return 0;
    const DType t = graph_type(g, index)->dtype;
    Value below = build_binary(g, OP_lt, index, build_scalar_i(g, t, 0));
    Value up = build_binary(g, OP_add, index, build_expr(g, t, size));
    return build_select(g, below, up, index);
}

Value v_flat(Graph *g, Value x) {
    if (!x) return 0;
    const Expr n = type_numel(g->exprs, graph_type(g, x));
    return build_reshape(g, x, 1, &n);
}

Value v_channels_last(Graph *g, Value x) {
    return x && v_rank(g, x) > 1 ? v_move_axis(g, x, 1, v_rank(g, x) - 1) : x;
}

Value v_channels_first(Graph *g, Value x) {
    return x && v_rank(g, x) > 1 ? v_move_axis(g, x, v_rank(g, x) - 1, 1) : x;
}

Value v_transpose(Graph *g, Value x) {
    if (!x) return 0;
    int rank = v_rank(g, x);
    uint8_t perm[GRAPH_MAX_RANK];
    if (rank < 2) return x; /* its user reports the rank */
    for (int i = 0; i < rank; i++) perm[i] = (uint8_t)i;
    perm[rank - 2] = (uint8_t)(rank - 1);
    perm[rank - 1] = (uint8_t)(rank - 2);
    return build_permute(g, x, perm);
}

Value v_softmax(Graph *g, Value x, uint32_t axes) {
    Value e = v_exp(g, v_sub(g, x, build_reduce(g, OP_reduce_max, x, axes, true)));
    return v_div(g, e, build_reduce(g, OP_reduce_sum, e, axes, true));
}

Value v_log_softmax(Graph *g, Value x, uint32_t axes) {
    x = v_sub(g, x, build_reduce(g, OP_reduce_max, x, axes, true));
    return v_sub(g, x, v_log(g, build_reduce(g, OP_reduce_sum, v_exp(g, x), axes, true)));
}
