/* Operators with data-dependent addresses, padding and ordering. */
#include "frontend/import/axes.h"
#include "frontend/import/formula.h"
#include <string.h>

/* The value of an axis that may be fed at run time, for operators whose result has the input's
 * shape: every axis is built and one selected. */
typedef Value (*PerAxis)(Lower *l, Value x, int axis);

static bool for_axis(Lower *l, uint32_t in, PerAxis fn) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const int rank = lower_type(l, 0)->rank;
    int64_t c;
    Expr e;
    Value x = lower_in(l, 0), v = 0;
    if (!lower_number_in(l, in, &e)) return false;
    if (expr_is_const(p, e, &c)) {
        const int axis = lower_axis(l, c, rank);
        if (axis < 0) return false;
        lower_out(l, 0, fn(l, x, axis));
        return true;
    }
    const Expr chosen = expr_mod(p, e, expr_const(p, rank));
    for (int k = 0; k < rank; k++) {
        Value hit = v_cond(g, expr_eq(p, chosen, expr_const(p, k)));
        Value w = fn(l, x, k);
        v = k ? build_select(g, hit, w, v) : w;
    }
    lower_out(l, 0, v);
    return true;
}

static Value scan_axis(Lower *l, Value x, int axis) {
    const Op op = !strcmp(lower_op_name(l), "CumSum") ? OP_cumsum : OP_cumprod;
    return build_scan(lower_graph(l), op, x, axis, lower_i(l, "exclusive") != 0,
                      lower_i(l, "reverse") != 0);
}

static bool lower_scan(Lower *l) {
    return for_axis(l, 1, scan_axis);
}

/* An index outside its axis is the model's mistake, but harmless in a branch that is never taken */
static void warn_outside(Lower *l, int axis) {
    ExprPool *p = lower_exprs(l);
    uint32_t n;
    int64_t size, at;
    const Expr *e = build_elems(lower_graph(l), lower_in(l, 1), false, &n);
    if (!e || !expr_is_const(p, lower_type(l, 0)->dim[axis], &size)) return;
    for (uint32_t i = 0; i < n; i++)
        if (expr_is_const(p, e[i], &at) && (at < -size || at >= size)) {
            (void)lower_error(l, D_CLAMPED, "index %lld is outside axis %d of size %lld",
                              (long long)at, axis, (long long)size);
            return;
        }
}

static bool lower_gather(Lower *l) {
    const int axis = lower_axis(l, lower_i(l, "axis"), lower_type(l, 0)->rank);
    if (axis < 0) return false;
    warn_outside(l, axis);
    lower_out(l, 0, build_take(lower_graph(l), lower_in(l, 0), lower_in(l, 1), axis));
    return true;
}

/* src for "every axis by its position but `axis`, which is indexed". */
static void index_one_axis(int8_t *src, int rank, int axis) {
    for (int i = 0; i < rank; i++) src[i] = (int8_t)i;
    src[axis] = -1;
}

static bool lower_gather_elements(Lower *l) {
    Graph *g = lower_graph(l);
    const Type data = *lower_type(l, 0), t = *lower_type(l, 1);
    const int axis = lower_axis(l, lower_i(l, "axis"), data.rank);
    int8_t src[GRAPH_MAX_RANK];
    if (axis < 0) return false;
    if (t.rank != data.rank) return lower_error(l, D_SHAPE, "data and indices differ in rank");
    warn_outside(l, axis);
    Value index = v_wrap(g, lower_in(l, 1), data.dim[axis]);
    index_one_axis(src, data.rank, axis);
    lower_out(l, 0, build_gather(g, lower_in(l, 0), src, &index, 1, t.rank, t.dim));
    return true;
}

/* Column k of indices [.., K], negative values wrapped by `size`, with `extra` axes of size 1. */
static Value index_column(Graph *g, Value indices, int64_t k, Expr size, uint32_t extra,
                          const Type *full) {
    ExprPool *p = g->exprs;
    if (!indices) return 0;
    Type t = *graph_type(g, indices);
    const int last = t.rank - 1;
    Value v = build_slice_axis(g, indices, last, expr_const(p, k), expr_const(p, 1), 1);
    t.rank--;
    for (uint32_t i = 0; i < extra; i++) t.dim[t.rank++] = expr_const(p, 1);
    v = v_wrap(g, build_reshape(g, v, t.rank, t.dim), size);
    return build_expand(g, v, full->rank, full->dim);
}

/* Last size of an index tensor: how many axes of the data it addresses. */
static bool index_depth(Lower *l, const Type *indices, int64_t limit, int64_t *k) {
    if (indices->rank == 0 || !expr_is_const(lower_exprs(l), indices->dim[indices->rank - 1], k))
        return lower_unsupported(l, NULL, "the last size of the indices must be a constant");
    return (*k >= 0 && *k <= limit) ||
           lower_error(l, D_SHAPE, "%lld indices for %lld axes", (long long)*k, (long long)limit);
}

static bool lower_gather_nd(Lower *l) {
    Graph *g = lower_graph(l);
    const Type data = *lower_type(l, 0), indices = *lower_type(l, 1);
    const int64_t batch = lower_i(l, "batch_dims");
    int64_t k;
    if (batch < 0 || batch >= data.rank || batch >= indices.rank)
        return lower_error(l, D_ATTRIBUTE, "batch_dims is out of range");
    if (!index_depth(l, &indices, data.rank - batch, &k)) return false;
    const uint32_t extra = (uint32_t)(data.rank - batch - k);
    Type out = {.dtype = data.dtype, .rank = (uint8_t)(indices.rank - 1)};
    memcpy(out.dim, indices.dim, sizeof out.dim);
    if (out.rank + extra > GRAPH_MAX_RANK) return lower_error(l, D_LIMIT, "the rank is too high");
    int8_t src[GRAPH_MAX_RANK];
    Value index[GRAPH_MAX_RANK];
    for (int i = 0; i < batch; i++) src[i] = (int8_t)i;
    for (uint32_t i = 0; i < extra; i++) {
        src[batch + k + i] = (int8_t)out.rank;
        out.dim[out.rank++] = data.dim[batch + k + i];
    }
    for (int i = 0; i < k; i++) {
        src[batch + i] = (int8_t)(-1 - i);
        index[i] = index_column(g, lower_in(l, 1), i, data.dim[batch + i], extra, &out);
    }
    lower_out(l, 0, build_gather(g, lower_in(l, 0), src, index, (uint32_t)k, out.rank, out.dim));
    return true;
}

static bool scatter_mode(Lower *l, ScatterMode *mode) {
    static const char *const names[] = {"none", "add", "mul", "min", "max", NULL};
    int i;
    if (!lower_choice(l, "reduction", names, &i)) return false;
    *mode = (ScatterMode)i;
    return true;
}

static bool scatter_elements(Lower *l, ScatterMode mode) {
    Graph *g = lower_graph(l);
    const Type data = *lower_type(l, 0), t = *lower_type(l, 1);
    const int axis = lower_axis(l, lower_i(l, "axis"), data.rank);
    int8_t src[GRAPH_MAX_RANK];
    if (axis < 0) return false;
    if (t.rank != data.rank || lower_type(l, 2)->rank != t.rank)
        return lower_error(l, D_SHAPE, "data, indices and updates differ in rank");
    Value index = v_wrap(g, lower_in(l, 1), data.dim[axis]);
    index_one_axis(src, data.rank, axis);
    lower_out(l, 0, build_scatter(g, lower_in(l, 0), lower_in(l, 2), src, &index, 1, mode));
    return true;
}

static bool lower_scatter(Lower *l) {
    return scatter_elements(l, SCATTER_set);
}

static bool lower_scatter_elements(Lower *l) {
    ScatterMode mode;
    return scatter_mode(l, &mode) && scatter_elements(l, mode);
}

static bool lower_scatter_nd(Lower *l) {
    Graph *g = lower_graph(l);
    const Type data = *lower_type(l, 0), indices = *lower_type(l, 1), updates = *lower_type(l, 2);
    int64_t k;
    ScatterMode mode;
    if (!scatter_mode(l, &mode) || !index_depth(l, &indices, data.rank, &k)) return false;
    const uint32_t extra = (uint32_t)(data.rank - k);
    if (updates.rank != indices.rank - 1 + extra)
        return lower_error(l, D_SHAPE, "the updates have rank %d, not %u", updates.rank,
                           indices.rank - 1 + extra);
    int8_t src[GRAPH_MAX_RANK];
    Value index[GRAPH_MAX_RANK];
    for (int i = 0; i < k; i++) {
        src[i] = (int8_t)(-1 - i);
        index[i] = index_column(g, lower_in(l, 1), i, data.dim[i], extra, &updates);
    }
    for (uint32_t i = 0; i < extra; i++) {
        src[k + i] = (int8_t)(indices.rank - 1 + (int)i);
        lower_assume(l, updates.dim[indices.rank - 1 + (int)i], data.dim[k + i]);
    }
    lower_out(l, 0,
              build_scatter(g, lower_in(l, 0), lower_in(l, 2), src, index, (uint32_t)k, mode));
    return true;
}

/* A cache [B, .., max, ..] takes the update [B, .., n, ..] at positions write_indices[b] + i. */
static bool lower_tensor_scatter(Lower *l) {
    Graph *g = lower_graph(l);
    const Type cache = *lower_type(l, 0), t = *lower_type(l, 1);
    const int axis = lower_axis(l, lower_i(l, "axis"), cache.rank);
    static const char *const modes[] = {"linear", "circular", NULL};
    int circular;
    int8_t src[GRAPH_MAX_RANK];
    if (axis < 0 || !lower_choice(l, "mode", modes, &circular) || !lower_is(l, 2, TYPES_INT))
        return false;
    if (axis == 0 || t.rank != cache.rank)
        return lower_error(l, D_SHAPE, "the update and the cache do not fit together");
    for (int i = 0; i < t.rank; i++)
        if (i != axis) lower_assume(l, t.dim[i], cache.dim[i]);
    const Expr longer = expr_lt(lower_exprs(l), cache.dim[axis], t.dim[axis]);
    if (expr_is_value(lower_exprs(l), longer, 1))
        return lower_error(l, D_SHAPE, "the update is longer than the cache");
    Value at = build_iota(g, DT_i64, t.rank, t.dim, axis);
    if (lower_has_in(l, 2)) {
        Type column = {.rank = t.rank};
        for (uint32_t i = 0; i < t.rank; i++) column.dim[i] = expr_const(lower_exprs(l), 1);
        column.dim[0] = t.dim[0];
        at = build_binary(
            g, OP_add, at,
            build_reshape(g, build_cast(g, lower_in(l, 2), DT_i64), t.rank, column.dim));
    }
    if (circular) at = build_binary(g, OP_mod, at, build_expr(g, DT_i64, cache.dim[axis]));
    index_one_axis(src, t.rank, axis);
    lower_out(l, 0, build_scatter(g, lower_in(l, 0), lower_in(l, 1), src, &at, 1, SCATTER_set));
    return true;
}

/* How many: a number that may be known by its value only, and is at most the axis. */
static bool top_k_count(Lower *l, Expr size, Expr *k) {
    ExprPool *p = lower_exprs(l);
    const Expr most = expr_addi(p, size, 1);
    uint32_t n;
    const Expr *e = lower_bounded_in(l, 1, &most, 1, 0, &n);
    if (!e) return false;
    if (n != 1) return lower_error(l, D_SHAPE, "input 1 must be one number, and has %u", n);
    *k = e[0];
    return true;
}

static bool lower_top_k(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const Type t = *lower_type(l, 0);
    const int axis = lower_axis(l, lower_i(l, "axis"), t.rank);
    Expr k = 0;
    if (axis < 0) return false;
    if (lower_opset(l) < 10)
        k = expr_const(p, lower_i(l, "k"));
    else if (!top_k_count(l, t.dim[axis], &k))
        return false;
    const bool largest = lower_opset(l) < 11 || lower_i(l, "largest") != 0;
    int64_t keep = 0;
    (void)expr_is_const(p, k, &keep);
    Value order = build_argsort_first(g, lower_in(l, 0), axis, largest, keep);
    Value index = build_slice_axis(g, order, axis, expr_const(p, 0), k, 1);
    Type out = t;
    int8_t src[GRAPH_MAX_RANK];
    out.dim[axis] = k;
    index_one_axis(src, t.rank, axis);
    lower_out(l, 0, build_gather(g, lower_in(l, 0), src, &index, 1, out.rank, out.dim));
    lower_out(l, 1, index);
    return true;
}

/* The depth may have any number type. One that is fed as a float has no symbol: then the declared
 * output tells. */
static bool one_hot_depth(Lower *l, int axis, Expr *out) {
    Value v = build_cast(lower_graph(l), lower_in(l, 1), DT_i64);
    uint32_t n;
    Type declared;
    const Expr *e = v ? build_elems(lower_graph(l), v, true, &n) : NULL;
    if (e && n == 1)
        *out = e[0];
    else if (!e && lower_declared(l, 0, &declared) && axis < declared.rank)
        *out = declared.dim[axis];
    else
        return lower_unsupported(l, "make it a constant", "the depth must be one known number");
    return true;
}

static bool lower_one_hot(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    Type t = *lower_type(l, 0);
    const int axis = lower_axis(l, lower_i(l, "axis"), t.rank + 1);
    if (axis < 0) return false;
    if (t.rank == GRAPH_MAX_RANK) return lower_error(l, D_LIMIT, "the rank is too high");
    Expr depth = 0;
    if (!one_hot_depth(l, axis, &depth) || !lower_vector(l, 2, expr_const(p, 2))) return false;
    Value index = v_wrap(g, build_cast(g, lower_in(l, 0), DT_i64), depth);
    index = build_unsqueeze(g, index, axis);
    for (int i = t.rank; i > axis; i--) t.dim[i] = t.dim[i - 1];
    t.dim[axis] = depth;
    t.rank++;
    Value hit = build_binary(g, OP_eq, build_iota(g, DT_i64, t.rank, t.dim, axis), index);
    Value off = build_slice_axis(g, lower_in(l, 2), 0, expr_const(p, 0), expr_const(p, 1), 1);
    Value on = build_slice_axis(g, lower_in(l, 2), 0, expr_const(p, 1), expr_const(p, 1), 1);
    lower_out(l, 0,
              build_select(g, hit, build_reshape(g, on, 0, NULL), build_reshape(g, off, 0, NULL)));
    return true;
}

static bool lower_reverse_sequence(Lower *l) {
    Graph *g = lower_graph(l);
    const Type t = *lower_type(l, 0);
    const int batch = lower_axis(l, lower_i(l, "batch_axis"), t.rank);
    const int time = lower_axis(l, lower_i(l, "time_axis"), t.rank);
    int8_t src[GRAPH_MAX_RANK];
    Type column = {.rank = t.rank};
    if (batch < 0 || time < 0 || !lower_is(l, 1, TYPES_INT)) return false;
    if (batch == time) return lower_error(l, D_ATTRIBUTE, "time_axis and batch_axis are the same");
    for (uint32_t i = 0; i < t.rank; i++) column.dim[i] = expr_const(lower_exprs(l), 1);
    column.dim[batch] = t.dim[batch];
    Value length = build_reshape(g, build_cast(g, lower_in(l, 1), DT_i64), t.rank, column.dim);
    Value i = build_iota(g, DT_i64, t.rank, t.dim, time);
    Value back = build_binary(g, OP_sub, build_binary_f(g, OP_sub, length, 1), i);
    Value at = build_select(g, build_binary(g, OP_lt, i, length), back, i);
    index_one_axis(src, t.rank, time);
    lower_out(l, 0, build_gather(g, lower_in(l, 0), src, &at, 1, t.rank, t.dim));
    return true;
}

/* Pad */

typedef enum PadMode { PAD_constant, PAD_reflect, PAD_edge, PAD_wrap } PadMode;

typedef struct PadArgs {
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
} PadArgs;

/* Whether no position lies further outside than one mirror image reaches: most pads, and a division
 * by a size that a run finds out costs more than all the rest of a kernel that pads. */
static bool mirrored_once(ExprPool *p, Expr lo, Expr hi, Expr last) {
    int64_t before, after, most;
    expr_range(p, expr_sub(p, last, lo), &before, &most);
    expr_range(p, expr_sub(p, last, hi), &after, &most);
    return before >= 0 && after >= 0;
}

/* Where the padded position i reads: edge clamps, wrap repeats, reflect mirrors without the border.
 */
static Value pad_index(Lower *l, PadMode mode, Expr lo, Expr hi, Expr size) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const Expr n = expr_add(p, size, expr_add(p, lo, hi)), last = expr_addi(p, size, -1);
    Value i = build_binary(g, OP_sub, build_iota(g, DT_i64, 1, &n, 0), build_expr(g, DT_i64, lo));
    if (mode == PAD_wrap) return build_binary(g, OP_mod, i, build_expr(g, DT_i64, size));
    Value end = build_expr(g, DT_i64, last);
    if (mode == PAD_edge)
        return build_binary(g, OP_max, build_binary(g, OP_min, i, end),
                            build_scalar_i(g, DT_i64, 0));
    const Expr period = expr_max(p, expr_muli(p, last, 2), expr_const(p, 1));
    i = mirrored_once(p, lo, hi, last) ? build_unary(g, OP_abs, i)
                                       : build_binary(g, OP_mod, i, build_expr(g, DT_i64, period));
    i = build_unary(g, OP_abs, build_binary(g, OP_sub, i, end));
    return build_binary(g, OP_sub, end, i);
}

/* All padded axes in one gather, each read where pad_index says; 0 after an error. */
static Value pad_gather(Lower *l, PadMode mode, const PadArgs *a) {
    Graph *g = lower_graph(l);
    const Type t = *lower_type(l, 0);
    Type out = t, row = t;
    int8_t src[GRAPH_MAX_RANK];
    Value index[GRAPH_MAX_RANK];
    uint32_t n = 0;
    for (int i = 0; i < t.rank; i++) {
        row.dim[i] = expr_const(g->exprs, 1);
        src[i] = (int8_t)i;
        if (expr_is_value(g->exprs, a->lo[i], 0) && expr_is_value(g->exprs, a->hi[i], 0)) continue;
        if (expr_is_value(g->exprs, t.dim[i], 0)) {
            (void)lower_error(l, D_SHAPE, "axis %d is empty: there is nothing to repeat", i);
            return 0;
        }
        src[i] = (int8_t)(-1 - (int)n);
        index[n] = pad_index(l, mode, a->lo[i], a->hi[i], t.dim[i]);
        if (!index[n]) return 0;
        out.dim[i] = graph_type(g, index[n++])->dim[0];
    }
    for (int i = 0; i < t.rank; i++) {
        if (src[i] >= 0) continue;
        Value *v = &index[-src[i] - 1];
        row.dim[i] = out.dim[i];
        *v = build_expand(g, build_reshape(g, *v, t.rank, row.dim), t.rank, out.dim);
        row.dim[i] = expr_const(g->exprs, 1);
    }
    return n ? build_gather(g, lower_in(l, 0), src, index, n, t.rank, out.dim) : lower_in(l, 0);
}

static bool pad_build(Lower *l, const PadArgs *a, Value fill) {
    Graph *g = lower_graph(l);
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap", NULL};
    int mode;
    if (!lower_choice(l, "mode", modes, &mode)) return false;
    Value v = mode == PAD_constant ? build_pad(g, lower_in(l, 0), fill, a->lo, a->hi, NULL)
                                   : pad_gather(l, (PadMode)mode, a);
    lower_out(l, 0, v);
    return v != 0;
}

static bool lower_pad_attrs(Lower *l) {
    ExprPool *p = lower_exprs(l);
    const Type t = *lower_type(l, 0);
    uint32_t n;
    const int64_t *pads = lower_ints(l, lower_opset(l) < 2 ? "paddings" : "pads", &n);
    PadArgs a;
    if (n != 2u * t.rank) return lower_error(l, D_ATTRIBUTE, "%u pads for rank %d", n, t.rank);
    for (uint32_t i = 0; i < t.rank; i++) {
        a.lo[i] = expr_const(p, pads[i]);
        a.hi[i] = expr_const(p, pads[t.rank + i]);
    }
    return pad_build(l, &a, build_scalar_f(lower_graph(l), t.dtype, lower_f(l, "value")));
}

/* Axes that are fed at run time select, by value, which pads an axis gets. */
static bool pad_axes(Lower *l, const Expr *pads, uint32_t n, PadArgs *a) {
    ExprPool *p = lower_exprs(l);
    const uint32_t rank = lower_type(l, 0)->rank;
    const Expr zero = expr_const(p, 0);
    uint32_t naxes = rank;
    const Expr *axes = lower_has_in(l, 3) ? lower_shape_in(l, 3, &naxes) : NULL;
    if (lower_has_in(l, 3) && !axes) return false;
    if (n != 2 * naxes) return lower_error(l, D_SHAPE, "%u pads for %u axes", n, naxes);
    for (uint32_t i = 0; i < rank; i++) {
        a->lo[i] = axes ? zero : pads[i];
        a->hi[i] = axes ? zero : pads[rank + i];
    }
    for (uint32_t k = 0; axes && k < naxes; k++) {
        int64_t c;
        if (expr_is_const(p, axes[k], &c) && lower_axis(l, c, (int)rank) < 0) return false;
        for (uint32_t i = 0; i < rank; i++) {
            const Expr hit =
                expr_eq(p, expr_mod(p, axes[k], expr_const(p, rank)), expr_const(p, i));
            a->lo[i] = expr_select(p, hit, pads[k], a->lo[i]);
            a->hi[i] = expr_select(p, hit, pads[naxes + k], a->hi[i]);
        }
    }
    return true;
}

static bool lower_pad(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t n;
    PadArgs a;
    const Expr *pads = lower_shape_in(l, 1, &n);
    if (!pads || !pad_axes(l, pads, n, &a)) return false;
    Value fill = lower_has_in(l, 2) ? build_reshape(g, lower_in(l, 2), 0, NULL)
                                    : build_scalar_i(g, lower_type(l, 0)->dtype, 0);
    return pad_build(l, &a, fill);
}

/* Crops or pads the listed axes around their centres to the wanted sizes. */
static bool lower_center_crop_pad(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const Type t = *lower_type(l, 0);
    uint32_t n, naxes;
    const Expr *want = lower_shape_in(l, 1, &n);
    const int64_t *axes = lower_ints(l, "axes", &naxes);
    PadArgs a;
    if (!want) return false;
    if (n != (axes ? naxes : t.rank)) return lower_error(l, D_SHAPE, "%u sizes are given", n);
    for (uint32_t i = 0; i < t.rank; i++) a.lo[i] = a.hi[i] = expr_const(p, 0);
    for (uint32_t k = 0; k < n; k++) {
        const int i = lower_axis(l, axes ? axes[k] : (int64_t)k, t.rank);
        if (i < 0) return false;
        const Expr more = expr_sub(p, want[k], t.dim[i]), two = expr_const(p, 2);
        /* Padding rounds the leading part down; cropping starts at the rounded-down half. */
        const Expr crop = expr_muli(p, expr_div(p, expr_muli(p, more, -1), two), -1);
        a.lo[i] = expr_select(p, expr_lt(p, more, expr_const(p, 0)), crop, expr_div(p, more, two));
        a.hi[i] = expr_sub(p, more, a.lo[i]);
    }
    lower_out(l, 0, build_pad(g, lower_in(l, 0), build_scalar_i(g, t.dtype, 0), a.lo, a.hi, NULL));
    return true;
}

static const char *const axis0_attrs[] = {"axis:i=0", NULL};
static const char *const nd_attrs[] = {"batch_dims:i=0", NULL};
static const char *const scatter_attrs[] = {"axis:i=0", "reduction:s=none", NULL};
static const char *const scatter_nd_attrs[] = {"reduction:s=none", NULL};
static const char *const cache_attrs[] = {"axis:i=-2", "mode:s=linear", NULL};
static const char *const scan_attrs[] = {"exclusive:i=0", "reverse:i=0", NULL};
static const char *const top_k1_attrs[] = {"axis:i=-1", "k:i!", NULL};
static const char *const top_k10_attrs[] = {"axis:i=-1", NULL};
static const char *const top_k_attrs[] = {"axis:i=-1", "largest:i=1", "sorted:i=1", NULL};
static const char *const one_hot_attrs[] = {"axis:i=-1", NULL};
static const char *const reverse_attrs[] = {"batch_axis:i=1", "time_axis:i=0", NULL};
static const char *const pad1_attrs[] = {"paddings:I!", "mode:s=constant", "value:f=0", NULL};
static const char *const pad2_attrs[] = {"pads:I!", "mode:s=constant", "value:f=0", NULL};
static const char *const pad_attrs[] = {"mode:s=constant", NULL};
static const char *const crop_attrs[] = {"axes:I", NULL};

const OnnxOp ops_index[] = {
    {"", "CumSum", 11, 0, 2, 2, 1, 1, scan_attrs, lower_scan},
    {"", "CumProd", 26, 0, 2, 2, 1, 1, scan_attrs, lower_scan},
    {"", "Gather", 1, 0, 2, 2, 1, 1, axis0_attrs, lower_gather},
    {"", "GatherElements", 11, 0, 2, 2, 1, 1, axis0_attrs, lower_gather_elements},
    {"", "GatherND", 11, 0, 2, 2, 1, 1, nd_attrs, lower_gather_nd},
    {"", "Scatter", 9, 0, 3, 3, 1, 1, axis0_attrs, lower_scatter},
    {"", "ScatterElements", 11, 0, 3, 3, 1, 1, scatter_attrs, lower_scatter_elements},
    {"", "ScatterND", 11, 0, 3, 3, 1, 1, scatter_nd_attrs, lower_scatter_nd},
    {"", "TensorScatter", 24, 0, 2, 3, 1, 1, cache_attrs, lower_tensor_scatter},
    {"", "TopK", 1, 9, 1, 1, 1, 2, top_k1_attrs, lower_top_k},
    {"", "TopK", 10, 10, 2, 2, 1, 2, top_k10_attrs, lower_top_k},
    {"", "TopK", 11, 0, 2, 2, 1, 2, top_k_attrs, lower_top_k},
    {"", "OneHot", 9, 0, 3, 3, 1, 1, one_hot_attrs, lower_one_hot},
    {"", "ReverseSequence", 10, 0, 2, 2, 1, 1, reverse_attrs, lower_reverse_sequence},
    {"", "Pad", 1, 1, 1, 1, 1, 1, pad1_attrs, lower_pad_attrs},
    {"", "Pad", 2, 10, 1, 1, 1, 1, pad2_attrs, lower_pad_attrs},
    {"", "Pad", 11, 0, 2, 4, 1, 1, pad_attrs, lower_pad},
    {"", "CenterCropPad", 18, 0, 2, 2, 1, 1, crop_attrs, lower_center_crop_pad},
    {0},
};
