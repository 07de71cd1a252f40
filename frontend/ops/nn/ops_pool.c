/* Pools: pad, window, reduce over the taps. Like convolutions they work channels-last, so that the
 * permutes of a convolutional network meet and cancel. */
#include "frontend/ops/nn/nn.h"
#include <math.h>
#include <string.h>

/* Without the taps that lie behind the input for the first position, hence for all: a kernel may be
 * far larger than what it pools. */
static Window without_far_taps(Graph *g, Value x, const Window *w) {
    Window cut = *w;
    for (int i = 0; i < w->n; i++) {
        int64_t reach;
        Expr end = expr_add(g->exprs, v_dim(g, x, 2 + i), w->lo[i]);
        if (!expr_is_const(g->exprs, end, &reach) || reach < 1) continue;
        int64_t taps = (reach - 1) / w->dilation[i] + 1;
        if (taps >= w->size[i]) continue;
        cut.size[i] = taps;
        cut.hi[i] = expr_addi(g->exprs, w->hi[i], (taps - w->size[i]) * w->dilation[i]);
    }
    return cut;
}

/* [N, S..., C] -> [N, O..., C, K...] */
static Value taps_last(Graph *g, Value x, Value fill, const Window *w) {
    uint8_t axis[GRAPH_MAX_WINDOW];
    const Window cut = without_far_taps(g, x, w);
    for (int i = 0; i < w->n; i++) axis[i] = (uint8_t)(1 + i);
    Value padded = v_channels_last(g, nn_pad_spatial(g, x, fill, &cut));
    return build_window(g, padded, (uint8_t)w->n, axis, cut.size, w->stride, w->dilation);
}

static Value reduce_taps(Graph *g, Op op, Value taps, const Window *w) {
    if (!taps) return 0;
    int rank = v_rank(g, taps);
    return build_reduce(g, op, taps, v_axes_from(rank - w->n, rank), false);
}

/* A window that reaches beyond the padded input has a position at its start all the same, as long
 * as the next one would lie behind the first's last tap: positions are counted by a division that
 * truncates. So the padding behind grows to the next whole stride. Nothing changes where sizes are
 * known to hold a window. */
static void pad_short(Graph *g, Value x, Window *w, int i) {
    ExprPool *p = g->exprs;
    const Expr before = expr_add(p, w->lo[i], v_dim(g, x, 2 + i));
    const Expr missing =
        expr_sub(p, expr_const(p, nn_window_span(w, i)), expr_add(p, before, w->hi[i]));
    const Expr short_by = expr_max(p, missing, expr_const(p, 0));
    w->hi[i] = expr_add(p, w->hi[i], expr_mod(p, short_by, expr_const(p, w->stride[i])));
}

static bool pool_window(Lower *l, Value x, Window *w) {
    Graph *g = lower_graph(l);
    if (!x || !nn_window_read(l, x, NULL, lower_i(l, "ceil_mode") != 0, w)) return false;
    for (int i = 0; i < w->n; i++) {
        int64_t count;
        pad_short(g, x, w, i);
        if (expr_is_const(g->exprs, nn_window_count(g, x, w, i), &count) && count < 0)
            return lower_error(l, D_SHAPE, "a window of %lld along axis %d has %lld positions",
                               (long long)nn_window_span(w, i), 2 + i, (long long)count);
    }
    return true;
}

static bool pool_read(Lower *l, Value *x, Window *w) {
    *x = lower_in(l, 0);
    return pool_window(l, *x, w);
}

/* ---- MaxPool ------------------------------------------------------------------------------- */

/* Position of tap t along spatial axis i, as i64 of rank `rank` with the output position along
 * `axis`: o*stride + t*dilation - lo. */
static Value tap_position(Graph *g, const Window *w, int i, Value t, int axis, Expr count) {
    int rank = v_rank(g, t);
    Value o = v_mulf(g, v_iota(g, DT_i64, count), (double)w->stride[i]);
    Value lo = build_expr(g, DT_i64, w->lo[i]);
    return v_sub(g, v_add(g, v_along(g, o, rank, axis), v_mulf(g, t, (double)w->dilation[i])), lo);
}

/* Flat index into x of each window's maximum. taps: [N, C, O..., K...] */
static Value max_indices(Graph *g, Value x, Value taps, const Window *w, bool column_major) {
    if (!taps) return 0;
    ExprPool *p = g->exprs;
    Type tx = *graph_type(g, x), tt = *graph_type(g, taps);
    Expr dim[GRAPH_MAX_RANK];
    memcpy(dim, tt.dim, sizeof dim);
    int64_t ntaps = 1;
    for (int i = 0; i < w->n; i++) ntaps *= w->size[i];
    dim[tx.rank] = expr_const(p, ntaps);
    Value flat = build_reshape(g, taps, (uint8_t)(tx.rank + 1), dim);
    Value tap = build_arg_reduce(g, OP_argmax, flat, tx.rank, false, false);
    Value n = v_along(g, v_iota(g, DT_i64, tx.dim[0]), tx.rank, 0);
    Value c = v_along(g, v_iota(g, DT_i64, tx.dim[1]), tx.rank, 1);
    Value index = v_add(g, v_mul(g, n, build_expr(g, DT_i64, tx.dim[1])), c);
    Expr plane = expr_const(p, 1);
    for (int i = 0; i < w->n; i++) plane = expr_mul(p, plane, tx.dim[2 + i]);
    index = v_mul(g, index, build_expr(g, DT_i64, plane));
    Expr scale = expr_const(p, 1);
    for (int k = 0; k < w->n; k++) {
        int i = column_major ? k : w->n - 1 - k;
        int64_t inner = 1;
        for (int j = i + 1; j < w->n; j++) inner *= w->size[j];
        Value t = v_divf(g, tap, (double)inner);
        t = build_binary_f(g, OP_mod, t, (double)w->size[i]);
        Value at = tap_position(g, w, i, t, 2 + i, tt.dim[2 + i]);
        index = v_add(g, index, v_mul(g, at, build_expr(g, DT_i64, scale)));
        scale = expr_mul(p, scale, tx.dim[2 + i]);
    }
    return index;
}

static bool lower_max_pool(Lower *l) {
    Graph *g = lower_graph(l);
    Value x;
    Window w;
    if (!pool_read(l, &x, &w)) return false;
    Value fill = v_lowest(g, v_dtype(g, x));
    Value y = reduce_taps(g, OP_reduce_max, taps_last(g, x, fill, &w), &w);
    lower_out(l, 0, v_channels_first(g, y));
    if (!lower_has_out(l, 1)) return true;
    uint8_t axis[GRAPH_MAX_WINDOW];
    for (int i = 0; i < w.n; i++) axis[i] = (uint8_t)(2 + i);
    Value padded = nn_pad_spatial(g, x, fill, &w);
    Value taps = build_window(g, padded, (uint8_t)w.n, axis, w.size, w.stride, w.dilation);
    lower_out(l, 1, max_indices(g, x, taps, &w, lower_i(l, "storage_order") != 0));
    return true;
}

/* ---- AveragePool, LpPool ------------------------------------------------------------------- */

/* How many taps of each window along axis i count, [O] in x's type: those on the input and, with
 * `padding`, those on the padding that the node asks for (`asked`), never the stretch of ceil_mode.
 */
static Value count_axis(Graph *g, Value x, const Window *w, const Window *asked, int i,
                        bool padding) {
    ExprPool *p = g->exprs;
    Expr lo = w->lo[i], hi = w->hi[i], size = v_dim(g, x, 2 + i);
    if (padding) {
        size = expr_add(p, size, expr_add(p, lo, asked->hi[i]));
        hi = expr_sub(p, hi, asked->hi[i]);
        lo = expr_const(p, 0);
    }
    Value one = v_const(g, x, 1);
    Value ones = build_pad(g, build_full(g, one, 1, &size), v_const(g, x, 0), &lo, &hi, NULL);
    Value taps =
        build_window(g, ones, 1, (uint8_t[]){0}, &w->size[i], &w->stride[i], &w->dilation[i]);
    return build_reduce(g, OP_reduce_sum, taps, 2, false);
}

static bool all_taps_count(Graph *g, const Window *w, const Window *asked, bool padding) {
    bool all = true;
    for (int i = 0; i < w->n; i++) {
        bool bare = expr_is_value(g->exprs, w->lo[i], 0) && expr_is_value(g->exprs, w->hi[i], 0);
        all = all && (bare || (padding && w->hi[i] == asked->hi[i]));
    }
    return all;
}

Value nn_average_pool(Lower *l, Value x, bool stretch) {
    Graph *g = lower_graph(l);
    Window w, asked;
    if (!pool_window(l, x, &w) || !nn_window_read(l, x, NULL, false, &asked)) return 0;
    if (stretch) asked = w;
    bool padding = lower_i(l, "count_include_pad") != 0;
    Value y = reduce_taps(g, OP_reduce_sum, taps_last(g, x, v_const(g, x, 0), &w), &w);
    if (!y) return 0;
    if (all_taps_count(g, &w, &asked, padding)) {
        double count = 1;
        for (int i = 0; i < w.n; i++) count *= (double)w.size[i];
        y = v_divf(g, y, count);
    } else {
        Value count = v_const(g, x, 1);
        for (int i = 0; i < w.n; i++) {
            Value c = count_axis(g, x, &w, &asked, i, padding);
            count = v_mul(g, count, v_along(g, c, w.n + 1, i));
        }
        y = v_div(g, y, count);
    }
    return v_channels_first(g, y);
}

static bool lower_average_pool(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), y = x ? nn_average_pool(l, v_widen(g, x), false) : 0;
    lower_out(l, 0, v_cast_like(g, y, x));
    return y != 0;
}

/* |x|^p and its inverse, spelled without pow where p allows. */
static Value abs_power(Graph *g, Value x, double p) {
    if (p == 1) return v_abs(g, x);
    if (p == 2) return v_square(g, x);
    return v_powf(g, v_abs(g, x), p);
}

static Value root(Graph *g, Value x, double p) {
    if (p == 1) return x;
    return p == 2 ? v_sqrt(g, x) : v_powf(g, x, 1 / p);
}

static bool lp_order(Lower *l, double *p) {
    *p = lower_opset(l) >= 2 ? (double)lower_i(l, "p") : lower_f(l, "p");
    return *p > 0 || lower_error(l, D_ATTRIBUTE, "'p' is %g, and must be positive", *p);
}

static bool lower_lp_pool(Lower *l) {
    Graph *g = lower_graph(l);
    Value x;
    Window w;
    double p;
    if (!pool_read(l, &x, &w) || !lp_order(l, &p)) return false;
    Value powers = abs_power(g, v_widen(g, x), p);
    Value y = reduce_taps(g, OP_reduce_sum, taps_last(g, powers, v_const(g, powers, 0), &w), &w);
    lower_out(l, 0, v_channels_first(g, v_cast_like(g, root(g, y, p), x)));
    return true;
}

/* ---- Global pools -------------------------------------------------------------------------- */

static bool lower_global_pool(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), y;
    if (!x) return false;
    int rank = v_rank(g, x);
    if (rank < 3) return lower_error(l, D_SHAPE, "the input has no spatial axis");
    uint32_t axes = v_axes_from(2, rank);
    const char *name = lower_op_name(l);
    Value wide = v_widen(g, x);
    if (!strcmp(name, "GlobalMaxPool")) {
        y = build_reduce(g, OP_reduce_max, x, axes, true);
    } else if (!strcmp(name, "GlobalAveragePool")) {
        y = build_mean(g, wide, axes, true);
    } else {
        double p;
        if (!lp_order(l, &p)) return false;
        y = build_reduce(g, OP_reduce_sum, abs_power(g, wide, p), axes, true);
        y = root(g, y, p);
    }
    lower_out(l, 0, v_cast_like(g, y, x));
    return true;
}

/* ---- MaxUnpool ----------------------------------------------------------------------------- */

/* Scatters x by flat indices into zeros of the shape that the pool had, as far as the attributes
 * tell it; a larger output_shape extends that with zeros. */
static bool lower_max_unpool(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    Value x = lower_in(l, 0), at = lower_in(l, 1);
    if (!x || !at) return false;
    Type t = *graph_type(g, x), pooled = t;
    int n = t.rank - 2;
    int64_t size[GRAPH_MAX_RANK], stride[GRAPH_MAX_RANK], pads[2 * GRAPH_MAX_RANK];
    if (n < 1) return lower_error(l, D_SHAPE, "the input has no spatial axis");
    if (!nn_read_ints(l, "kernel_shape", n, 1, 1, size) ||
        !nn_read_ints(l, "strides", n, 1, 1, stride) || !nn_read_ints(l, "pads", 2 * n, 0, 0, pads))
        return false;
    for (int i = 0; i < n; i++) {
        Expr d = expr_muli(p, expr_addi(p, t.dim[2 + i], -1), stride[i]);
        pooled.dim[2 + i] = expr_addi(p, d, size[i] - pads[i] - pads[n + i]);
    }
    uint32_t nshape;
    const Expr *shape = lower_shape_in(l, 2, &nshape);
    if (lower_has_in(l, 2) && !shape) return false;
    if (shape && nshape != t.rank)
        return lower_error(l, D_SHAPE, "output_shape has %u values", nshape);
    Expr count = type_numel(p, &t), total = type_numel(p, &pooled);
    Value flat = build_reshape(g, x, 1, &count), index = build_reshape(g, at, 1, &count);
    Value y = build_scatter(g, v_zeros(g, t.dtype, 1, &total), flat, (int8_t[]){-1}, &index, 1,
                            SCATTER_set);
    y = build_reshape(g, y, t.rank, pooled.dim);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    for (int i = 0; i < t.rank; i++) {
        lo[i] = expr_const(p, 0);
        hi[i] = shape ? expr_sub(p, shape[i], pooled.dim[i]) : lo[i];
    }
    lower_out(l, 0, build_pad(g, y, v_const(g, x, 0), lo, hi, NULL));
    return true;
}

static const char *const max_attrs[] = {
    "auto_pad:s=NOTSET", "ceil_mode:i=0", "dilations:I", "kernel_shape:I!", "pads:I",
    "storage_order:i=0", "strides:I",     NULL};
static const char *const average_attrs[] = {"auto_pad:s=NOTSET",
                                            "ceil_mode:i=0",
                                            "count_include_pad:i=0",
                                            "dilations:I",
                                            "kernel_shape:I!",
                                            "pads:I",
                                            "strides:I",
                                            NULL};
static const char *const lp_attrs[] = {"auto_pad:s=NOTSET",
                                       "ceil_mode:i=0",
                                       "dilations:I",
                                       "kernel_shape:I!",
                                       "p:i=2",
                                       "pads:I",
                                       "strides:I",
                                       NULL};
static const char *const lp1_attrs[] = {
    "auto_pad:s=NOTSET", "ceil_mode:i=0", "dilations:I", "kernel_shape:I",
    "p:f=2.0",           "pads:I",        "strides:I",   NULL};
static const char *const no_attrs[] = {NULL};
static const char *const p_attrs[] = {"p:i=2", NULL};
static const char *const p1_attrs[] = {"p:f=2.0", NULL};
static const char *const unpool_attrs[] = {"kernel_shape:I!", "pads:I", "strides:I", NULL};

const OnnxOp ops_pool[] = {{"", "MaxPool", 1, 0, 1, 1, 1, 2, max_attrs, lower_max_pool},
                           {"", "AveragePool", 1, 0, 1, 1, 1, 1, average_attrs, lower_average_pool},
                           {"", "LpPool", 1, 1, 1, 1, 1, 1, lp1_attrs, lower_lp_pool},
                           {"", "LpPool", 2, 0, 1, 1, 1, 1, lp_attrs, lower_lp_pool},
                           {"", "GlobalMaxPool", 1, 0, 1, 1, 1, 1, no_attrs, lower_global_pool},
                           {"", "GlobalAveragePool", 1, 0, 1, 1, 1, 1, no_attrs, lower_global_pool},
                           {"", "GlobalLpPool", 1, 1, 1, 1, 1, 1, p1_attrs, lower_global_pool},
                           {"", "GlobalLpPool", 2, 0, 1, 1, 1, 1, p_attrs, lower_global_pool},
                           {"", "MaxUnpool", 9, 0, 2, 3, 1, 1, unpool_attrs, lower_max_unpool},
                           {0}};
