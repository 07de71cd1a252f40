/* Data-dependent addressing, scans, sorting. */
#include "graph/build/build_impl.h"

#include <string.h>

/* ---- gather and scatter ---- */

static bool check_coordinates(Graph *g, Op op, const int8_t *src, int data_rank, int rank,
                              const Value *idx, uint32_t nidx) {
    for (int d = 0; d < data_rank; d++)
        if (src[d] >= rank || (src[d] < 0 && (uint32_t)(-src[d] - 1) >= nidx)) {
            build_error(g, D_SHAPE, "%s: no source for coordinate %d", op_info[op].name, d);
            return false;
        }
    for (uint32_t i = 0; i < nidx; i++) {
        const Type *t = graph_type(g, idx[i]);
        if (t->dtype != DT_i64 && t->dtype != DT_i32) {
            build_error(g, D_DTYPE, "%s by indices of type %s", op_info[op].name,
                        dtype_name(t->dtype));
            return false;
        }
        if (t->rank != rank) {
            build_error(g, D_SHAPE, "%s: indices %s for %d axes", op_info[op].name,
                        build_type_text(g, t), rank);
            return false;
        }
    }
    return true;
}

/* Gives every value the shape of `t`, whose dimensions may become fixed by theirs. */
static bool give_shape(Graph *g, Value *in, uint32_t n, Type *t, const char *what) {
    for (uint32_t i = 0; i < n; i++)
        for (int a = 0; a < t->rank; a++) {
            t->dim[a] = build_unify_dim(g, t->dim[a], graph_type(g, in[i])->dim[a]);
            if (t->dim[a]) continue;
            build_error(g, D_SHAPE, "%s: indices %s do not have the shape of the result", what,
                        build_type_text(g, graph_type(g, in[i])));
            return false;
        }
    for (uint32_t i = 0; i < n; i++)
        if (!(in[i] = build_retype(g, in[i], t->dim))) return false;
    return true;
}

/* Coordinates that are positions of the result lie inside the data. (Scatter drops the others.) */
static bool positions_in_range(Graph *g, const Type *data, const int8_t *src, const Type *out) {
    for (int d = 0; d < data->rank; d++) {
        if (src[d] < 0) continue;
        Expr size = out->dim[src[d]], limit = expr_addi(g->exprs, data->dim[d], 1);
        if (size == data->dim[d] || build_require(g, expr_lt(g->exprs, size, limit))) continue;
        build_error(g, D_SHAPE, "axis %d of the indices is longer than axis %d of %s", src[d], d,
                    build_type_text(g, data));
        return false;
    }
    return true;
}

/* Coordinates that are values are clamped, which needs something to clamp to: the axis has
 * elements, or nothing is gathered. */
static bool indexed_axes_hold(Graph *g, const Type *data, const int8_t *src, const Type *out) {
    ExprPool *p = g->exprs;
    Expr none = expr_eq(p, type_numel(p, out), expr_const(p, 0));
    for (int d = 0; d < data->rank; d++) {
        if (src[d] >= 0) continue;
        Expr some = expr_lt(p, expr_const(p, 0), data->dim[d]);
        if (expr_is_value(p, some, 1) || build_require(g, expr_max(p, some, none))) continue;
        build_error(g, D_SHAPE, "gather from axis %d of %s, which is empty", d,
                    build_type_text(g, data));
        return false;
    }
    return true;
}

Value build_gather(Graph *g, Value data, const int8_t *src, const Value *idx, uint32_t nidx,
                   uint8_t rank, const Expr *dim) {
    if (!data || !build_valid(idx, nidx)) return 0;
    if (rank > GRAPH_MAX_RANK)
        return build_error(g, D_UNSUPPORTED, "gather makes a tensor of %d axes; the most is %d",
                           rank, GRAPH_MAX_RANK);
    int data_rank = graph_type(g, data)->rank;
    Type t = build_type(graph_type(g, data)->dtype, rank, dim);
    if (!check_coordinates(g, OP_gather, src, data_rank, rank, idx, nidx)) return 0;
    Value *in = ARENA_ARRAY(g->arena, Value, nidx + 1);
    in[0] = data;
    for (uint32_t i = 0; i < nidx; i++) in[i + 1] = idx[i];
    if (!give_shape(g, in + 1, nidx, &t, "gather")) return 0;
    if (!positions_in_range(g, graph_type(g, data), src, &t)) return 0;
    if (!indexed_axes_hold(g, graph_type(g, data), src, &t)) return 0;
    Attr a = {0};
    memcpy(a.index.src, src, (size_t)data_rank);
    return build_node(g, OP_gather, in, nidx + 1, &a, &t);
}

Value build_scatter(Graph *g, Value data, Value updates, const int8_t *src, const Value *idx,
                    uint32_t nidx, ScatterMode mode) {
    if (!data || !updates || !build_valid(idx, nidx)) return 0;
    Type t = *graph_type(g, data), u = *graph_type(g, updates);
    if (t.dtype != u.dtype)
        return build_error(g, D_DTYPE, "scatter of %s into %s", dtype_name(u.dtype),
                           dtype_name(t.dtype));
    if (!check_coordinates(g, OP_scatter, src, t.rank, u.rank, idx, nidx)) return 0;
    Value *in = ARENA_ARRAY(g->arena, Value, nidx + 2);
    in[0] = data;
    in[1] = updates;
    for (uint32_t i = 0; i < nidx; i++) in[i + 2] = idx[i];
    if (!give_shape(g, in + 1, nidx + 1, &u, "scatter")) return 0;
    if (build_count(g, &u, 0) == 0) return data;
    Attr a = {.index = {.mode = (uint8_t)mode}};
    memcpy(a.index.src, src, t.rank);
    return build_node(g, OP_scatter, in, nidx + 2, &a, &t);
}

/* ---- take ---- */

static Expr wrap_index(ExprPool *p, Expr e, Expr dim) {
    int64_t lo, hi;
    expr_range(p, e, &lo, &hi);
    if (lo >= 0) return e;
    if (hi < 0) return expr_add(p, e, dim);
    return expr_select(p, expr_lt(p, e, expr_const(p, 0)), expr_add(p, e, dim), e);
}

/* Indices known at compile time that step evenly are a slice: an index map, not a gather. */
static Value take_slice(Graph *g, Value data, Value indices, int axis) {
    uint32_t n;
    const Expr *e = build_elems(g, indices, false, &n);
    if (!e || n == 0) return 0;
    Expr dim = graph_type(g, data)->dim[axis], first = wrap_index(g->exprs, e[0], dim);
    int64_t step = 1, size, at, last;
    for (uint32_t i = 1; i < n; i++) {
        Expr next = wrap_index(g->exprs, e[i], dim), prev = wrap_index(g->exprs, e[i - 1], dim);
        int64_t by;
        if (!expr_is_const(g->exprs, expr_sub(g->exprs, next, prev), &by) || by == 0) return 0;
        if (i > 1 && by != step) return 0;
        step = by;
    }
    /* Indices that are not surely inside keep the gather, which clamps. */
    if (expr_is_const(g->exprs, dim, &size) && expr_is_const(g->exprs, first, &at)) {
        last = at + (int64_t)(n - 1) * step;
        if (at < 0 || last < 0 || at >= size || last >= size) return 0;
    }
    return build_slice_axis(g, data, axis, first, expr_const(g->exprs, n), step);
}

static bool known_natural(Graph *g, Value indices) {
    uint32_t n;
    const Expr *e = build_elems(g, indices, false, &n);
    for (uint32_t i = 0; e && i < n; i++) {
        int64_t lo, hi;
        expr_range(g->exprs, e[i], &lo, &hi);
        if (lo < 0) return false;
    }
    return e != NULL;
}

static Value wrapped_indices(Graph *g, Value indices, Expr dim) {
    DType t = graph_type(g, indices)->dtype;
    if (graph_node(g, indices)->op == OP_iota || known_natural(g, indices)) return indices;
    Value negative = build_binary(g, OP_lt, indices, build_scalar_i(g, t, 0));
    Value wrapped = build_binary(g, OP_add, indices, build_expr(g, t, dim));
    return build_select(g, negative, wrapped, indices);
}

Value build_take(Graph *g, Value data, Value indices, int axis) {
    if (!data || !indices) return 0;
    Type t = *graph_type(g, data), it = *graph_type(g, indices), out = {.dtype = t.dtype};
    axis = build_axis(g, axis, t.rank, "gather");
    if (axis < 0) return 0;
    if (t.rank + it.rank - 1 > GRAPH_MAX_RANK)
        return build_error(g, D_UNSUPPORTED, "gather makes a tensor of %d axes; the most is %d",
                           t.rank + it.rank - 1, GRAPH_MAX_RANK);
    int8_t src[GRAPH_MAX_RANK];
    Expr shape[GRAPH_MAX_RANK]; /* of the indices among the result's axes */
    for (int d = 0; d < t.rank; d++) {
        src[d] = d == axis ? -1 : (int8_t)out.rank;
        for (int i = 0; d == axis && i < it.rank; i++) {
            shape[out.rank] = it.dim[i];
            out.dim[out.rank++] = it.dim[i];
        }
        if (d == axis) continue;
        shape[out.rank] = expr_const(g->exprs, 1);
        out.dim[out.rank++] = t.dim[d];
    }
    Value v = take_slice(g, data, indices, axis);
    if (v) return build_reshape(g, v, out.rank, out.dim);
    v = build_reshape(g, wrapped_indices(g, indices, t.dim[axis]), out.rank, shape);
    v = build_expand(g, v, out.rank, out.dim);
    return build_gather(g, data, src, &v, 1, out.rank, out.dim);
}

/* ---- compact, scans, argsort ---- */

static Value compact_known(Graph *g, Value mask) {
    uint32_t n, kept = 0;
    const Expr *e = build_elems(g, mask, false, &n);
    if (!e) return 0;
    int64_t index[BUILD_MAX_TRACKED], v;
    for (uint32_t i = 0; i < n; i++) {
        if (!expr_is_const(g->exprs, e[i], &v)) return 0;
        if (v) index[kept++] = i;
    }
    return build_ints(g, DT_i64, index, kept);
}

Value build_compact(Graph *g, Value mask) {
    if (!mask) return 0;
    const Type *t = graph_type(g, mask);
    if (t->dtype != DT_bool || t->rank != 1)
        return build_error(g, D_DTYPE, "compact of %s", build_type_text(g, t));
    Value v = compact_known(g, mask);
    if (v || (v = build_find_compact(g, mask))) return v;
    Type out = {.dtype = DT_i64, .rank = 1};
    out.dim[0] = build_data_symbol(g, "count", t->dim[0]);
    return build_append(g, OP_compact, &mask, 1, NULL, &out);
}

Value build_scan(Graph *g, Op op, Value x, int axis, bool exclusive, bool reverse) {
    if (!x) return 0;
    const Type *t = graph_type(g, x);
    axis = build_axis(g, axis, t->rank, op_info[op].name);
    if (axis < 0 || !build_check_domain(g, op, t->dtype)) return 0;
    if (expr_is_value(g->exprs, t->dim[axis], 1) && !exclusive) return x;
    Attr a = {.scan = {axis, exclusive, reverse}};
    return build_node(g, op, &x, 1, &a, t);
}

Value build_argsort(Graph *g, Value x, int axis, bool descending) {
    return build_argsort_first(g, x, axis, descending, 0);
}

Value build_argsort_first(Graph *g, Value x, int axis, bool descending, int64_t keep) {
    if (!x) return 0;
    Type t = *graph_type(g, x);
    axis = build_axis(g, axis, t.rank, "argsort");
    if (axis < 0 || !build_check_domain(g, OP_argsort, t.dtype)) return 0;
    t.dtype = DT_i64;
    Attr a = {.scan = {axis, false, descending, keep}};
    return build_node(g, OP_argsort, &x, 1, &a, &t);
}
