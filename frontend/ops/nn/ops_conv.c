/* Convolution and its transpose. The core op works on channels-last tensors; the permutes around it
 * are views, and cancel between one convolution and the next. */
#include "frontend/ops/nn/nn.h"
#include <string.h>

/* [OC, I, K...] -> [K..., I, OC] */
static Value weights_last(Graph *g, Value w) {
    int rank = v_rank(g, w);
    uint8_t perm[GRAPH_MAX_RANK];
    for (int i = 2; i < rank; i++) perm[i - 2] = (uint8_t)i;
    perm[rank - 2] = 1;
    perm[rank - 1] = 0;
    return build_permute(g, w, perm);
}

/* x and w channels-last. Padding that is not a constant becomes a pad of its own. */
static Value conv_core(Graph *g, Value x, Value w, const Window *win, int64_t groups, DType to) {
    if (!x || !w) return 0;
    Attr a = {0};
    a.conv.n = (uint8_t)win->n;
    a.conv.groups = groups;
    a.conv.to = to;
    Expr lo[GRAPH_MAX_RANK] = {0}, hi[GRAPH_MAX_RANK] = {0};
    lo[0] = hi[0] = lo[win->n + 1] = hi[win->n + 1] = v_int(g, 0);
    bool explicit_pad = false;
    for (int i = 0; i < win->n; i++) {
        a.conv.stride[i] = win->stride[i];
        a.conv.dilation[i] = win->dilation[i];
        lo[1 + i] = win->lo[i];
        hi[1 + i] = win->hi[i];
        bool fixed = expr_is_const(g->exprs, win->lo[i], &a.conv.lo[i]) &&
                     expr_is_const(g->exprs, win->hi[i], &a.conv.hi[i]);
        explicit_pad |= !fixed || a.conv.lo[i] < 0 || a.conv.hi[i] < 0;
    }
    if (explicit_pad) {
        x = build_pad(g, x, v_const(g, x, 0), lo, hi, NULL);
        memset(a.conv.lo, 0, sizeof a.conv.lo);
        memset(a.conv.hi, 0, sizeof a.conv.hi);
    }
    return build_conv(g, x, w, &a);
}

Value nn_conv_last(Graph *g, Value x, Value w, const Window *win, int64_t groups, DType to) {
    if (!x || !w) return 0;
    return conv_core(g, v_channels_last(g, x), weights_last(g, w), win, groups, to);
}

/* The kernel's sizes from w; kernel_shape, where given, has to say the same. */
static bool kernel_sizes(Lower *l, Value w, int64_t *size) {
    Graph *g = lower_graph(l);
    int n = v_rank(g, w) - 2;
    if (n < 1 || n > GRAPH_MAX_WINDOW)
        return lower_unsupported(l, NULL, "weights of rank %d", n + 2);
    int64_t said[GRAPH_MAX_WINDOW];
    if (!nn_read_ints(l, "kernel_shape", n, 0, 1, said)) return false;
    for (int i = 0; i < n; i++) {
        if (!v_dim_const(g, w, 2 + i, &size[i]))
            return lower_unsupported(l, "fix the dimension with --dim",
                                     "the kernel's size along axis %d is not a constant", 2 + i);
        if (size[i] < 1) return lower_error(l, D_SHAPE, "the weights have no taps");
        if (said[i] && said[i] != size[i])
            return lower_error(l, D_SHAPE, "kernel_shape says %lld, the weights have %lld",
                               (long long)said[i], (long long)size[i]);
    }
    return true;
}

/* True unless both are constants that differ by more than the factor. */
static bool channels_fit(Graph *g, Expr whole, Expr part, int64_t factor) {
    int64_t a, b;
    if (!expr_is_const(g->exprs, whole, &a) || !expr_is_const(g->exprs, part, &b)) return true;
    return a == b * factor;
}

static bool read_groups(Lower *l, Value x, Value w, int channel_axis, int64_t *groups) {
    Graph *g = lower_graph(l);
    *groups = lower_i(l, "group");
    int64_t channels;
    if (*groups < 1) return lower_error(l, D_ATTRIBUTE, "group is %lld", (long long)*groups);
    if (v_dim_const(g, w, channel_axis, &channels) && channels % *groups)
        return lower_error(l, D_SHAPE, "group %lld does not divide %lld channels",
                           (long long)*groups, (long long)channels);
    if (v_rank(g, x) != v_rank(g, w))
        return lower_error(l, D_SHAPE, "input of rank %d, weights of rank %d", v_rank(g, x),
                           v_rank(g, w));
    return true;
}

bool nn_conv_read(Lower *l, Value x, Value w, Window *win, int64_t *groups) {
    Graph *g = lower_graph(l);
    int64_t size[GRAPH_MAX_WINDOW];
    if (!read_groups(l, x, w, 0, groups) || !kernel_sizes(l, w, size)) return false;
    if (!channels_fit(g, v_dim(g, x, 1), v_dim(g, w, 1), *groups))
        return lower_error(l, D_SHAPE, "the input's channels are not %lld groups of the weights'",
                           (long long)*groups);
    return nn_window_read(l, x, size, false, win) && nn_window_fits(l, x, win);
}

/* Adds a bias of [C] to channels-last y in y's type; the result in the type of x, channels first */
static Value finish(Graph *g, Value y, Value bias, Value x) {
    if (!y) return 0;
    if (bias) y = v_add(g, y, v_cast_like(g, bias, y));
    return v_channels_first(g, v_cast_like(g, y, x));
}

static bool lower_conv(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), w = lower_in(l, 1);
    if (!x || !w) return false;
    Window win;
    int64_t groups;
    if (!nn_conv_read(l, x, w, &win, &groups) || !lower_vector(l, 2, v_dim(g, w, 0))) return false;
    Value y = nn_conv_last(g, x, w, &win, groups, v_wide_type(v_dtype(g, x)));
    lower_out(l, 0, finish(g, y, lower_in(l, 2), x));
    return true;
}

/* ---- ConvTranspose ------------------------------------------------------------------------- */

/* [C, OC/groups, K...] -> [K..., C/groups, OC], taps reversed. */
static Value weights_transposed(Graph *g, Value w, int64_t groups, const Window *win) {
    ExprPool *p = g->exprs;
    Type t = *graph_type(g, w);
    Expr start[GRAPH_MAX_RANK], dim[GRAPH_MAX_RANK];
    int64_t step[GRAPH_MAX_RANK];
    for (int i = 0; i < t.rank; i++) {
        start[i] = v_int(g, i < 2 ? 0 : win->size[i - 2] - 1);
        step[i] = i < 2 ? 1 : -1;
    }
    w = build_slice(g, w, start, t.dim, step);
    dim[0] = v_int(g, groups);
    dim[1] = expr_div(p, t.dim[0], dim[0]);
    memcpy(dim + 2, t.dim + 1, (size_t)(t.rank - 1) * sizeof *dim);
    w = build_reshape(g, w, (uint8_t)(t.rank + 1), dim);
    uint8_t perm[GRAPH_MAX_RANK];
    int n = t.rank - 2;
    for (int i = 0; i < n; i++) perm[i] = (uint8_t)(3 + i);
    perm[n] = 1;
    perm[n + 1] = 0;
    perm[n + 2] = 2;
    w = build_permute(g, w, perm);
    memcpy(dim, t.dim + 2, (size_t)n * sizeof *dim);
    dim[n] = expr_div(p, t.dim[0], expr_const(p, groups));
    dim[n + 1] = expr_muli(p, t.dim[1], groups);
    return build_reshape(g, w, t.rank, dim);
}

/* Padding that a given output_shape or SAME asks for; win->lo/hi then crop the full result. Pads
 * are not negative: what output_shape has more than the full result follows it, as zeros. */
static bool crop_read(Lower *l, Value x, Window *win, const int64_t *extra) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    const char *mode = lower_s(l, "auto_pad");
    uint32_t nshape;
    const int64_t *shape = lower_ints(l, "output_shape", &nshape);
    bool same = !strncmp(mode, "SAME_", 5);
    if (!shape && !same) return true;
    if (shape && nshape != (uint32_t)win->n && nshape != (uint32_t)win->n + 2)
        return lower_error(l, D_ATTRIBUTE, "output_shape has %u values", nshape);
    if (shape) shape += nshape - (uint32_t)win->n;
    for (int i = 0; i < win->n; i++) {
        Expr in = v_dim(g, x, 2 + i), stride = expr_const(p, win->stride[i]);
        Expr full = expr_mul(p, expr_addi(p, in, -1), stride);
        full = expr_addi(p, full, nn_window_span(win, i) + extra[i]);
        Expr out = shape ? expr_const(p, shape[i]) : expr_mul(p, in, stride);
        Expr total = expr_sub(p, full, out), cut = expr_max(p, total, expr_const(p, 0));
        Expr small = expr_div(p, cut, expr_const(p, 2)), large = expr_sub(p, cut, small);
        win->lo[i] = !strcmp(mode, "SAME_UPPER") ? small : large;
        win->hi[i] = expr_sub(p, shape ? total : cut, win->lo[i]);
    }
    return true;
}

/* Windows that neither overlap nor leave gaps: every output element has one tap, so it is a product
 * followed by a view. */
static bool is_tiling(Graph *g, const Window *win, int64_t groups, const int64_t *extra) {
    bool yes = groups == 1;
    for (int i = 0; i < win->n; i++)
        yes = yes && win->size[i] == win->stride[i] && win->dilation[i] == 1 && extra[i] == 0 &&
              expr_is_value(g->exprs, win->lo[i], 0) && expr_is_value(g->exprs, win->hi[i], 0);
    return yes;
}

/* [N, S..., C] x [C, K..., OC] -> [N, S1*K1, .., OC] */
static Value transpose_tiling(Graph *g, Value x, Value w, const Window *win, DType to) {
    ExprPool *p = g->exprs;
    int n = win->n;
    Value xl = v_channels_last(g, x);
    Type tx = *graph_type(g, xl), tw = *graph_type(g, w);
    Value wl = v_channels_last(g, w);
    Expr rows = expr_const(p, 1), cols = tw.dim[1];
    for (int i = 0; i <= n; i++) rows = expr_mul(p, rows, tx.dim[i]);
    for (int i = 0; i < n; i++) cols = expr_mul(p, cols, tw.dim[2 + i]);
    Value a = build_reshape(g, xl, 2, (Expr[]){rows, tx.dim[n + 1]});
    Value b = build_reshape(g, wl, 2, (Expr[]){tw.dim[0], cols});
    Value y = build_dot(g, a, b, to);
    Expr dim[GRAPH_MAX_RANK];
    memcpy(dim, tx.dim, (size_t)(n + 1) * sizeof *dim);
    for (int i = 0; i < n; i++) dim[n + 1 + i] = tw.dim[2 + i];
    dim[2 * n + 1] = tw.dim[1];
    y = build_reshape(g, y, (uint8_t)(2 * n + 2), dim);
    uint8_t perm[GRAPH_MAX_RANK] = {0};
    for (int i = 0; i < n; i++) {
        perm[1 + 2 * i] = (uint8_t)(1 + i);
        perm[2 + 2 * i] = (uint8_t)(1 + n + i);
        dim[1 + i] = expr_mul(p, tx.dim[1 + i], tw.dim[2 + i]);
    }
    perm[2 * n + 1] = (uint8_t)(2 * n + 1);
    dim[n + 1] = tw.dim[1];
    return build_reshape(g, build_permute(g, y, perm), (uint8_t)(n + 2), dim);
}

/* A convolution over the input spread out by the strides: pads turn into what is left of the
 * kernel's reach. */
static Value transpose_spread(Graph *g, Value x, Value w, const Window *win, int64_t groups,
                              const int64_t *extra, DType to) {
    ExprPool *p = g->exprs;
    Expr zero = expr_const(p, 0);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    int64_t interior[GRAPH_MAX_RANK] = {0};
    Window unit = *win;
    lo[0] = hi[0] = lo[win->n + 1] = hi[win->n + 1] = zero;
    for (int i = 0; i < win->n; i++) {
        lo[1 + i] = zero;
        hi[1 + i] = expr_const(p, extra[i]);
        interior[1 + i] = win->stride[i] - 1;
        Expr reach = expr_const(p, nn_window_span(win, i) - 1);
        unit.lo[i] = expr_sub(p, reach, win->lo[i]);
        unit.hi[i] = expr_sub(p, reach, win->hi[i]);
        unit.stride[i] = 1;
    }
    Value xl = v_channels_last(g, x);
    xl = build_pad(g, xl, v_const(g, x, 0), lo, hi, interior);
    return conv_core(g, xl, weights_transposed(g, w, groups, win), &unit, groups, to);
}

static bool lower_conv_transpose(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), w = lower_in(l, 1);
    if (!x || !w) return false;
    Window win;
    int64_t groups, size[GRAPH_MAX_WINDOW], extra[GRAPH_MAX_WINDOW];
    if (!read_groups(l, x, w, 0, &groups) || !kernel_sizes(l, w, size)) return false;
    if (!channels_fit(g, v_dim(g, x, 1), v_dim(g, w, 0), 1))
        return lower_error(l, D_SHAPE, "the input's channels differ from the weights'");
    if (!nn_window_read(l, x, size, false, &win)) return false;
    if (!nn_read_ints(l, "output_padding", win.n, 0, 0, extra)) return false;
    if (!crop_read(l, x, &win, extra)) return false;
    if (!lower_vector(l, 2, expr_muli(g->exprs, v_dim(g, w, 1), groups))) return false;
    DType to = v_wide_type(v_dtype(g, x));
    Value y = is_tiling(g, &win, groups, extra)
                  ? transpose_tiling(g, x, w, &win, to)
                  : transpose_spread(g, x, w, &win, groups, extra, to);
    lower_out(l, 0, finish(g, y, lower_in(l, 2), x));
    return true;
}

const char *const nn_conv_attrs[] = {
    "auto_pad:s=NOTSET", "dilations:I", "group:i=1", "kernel_shape:I", "pads:I", "strides:I", NULL};
static const char *const transpose_attrs[] = {"auto_pad:s=NOTSET",
                                              "dilations:I",
                                              "group:i=1",
                                              "kernel_shape:I",
                                              "output_padding:I",
                                              "output_shape:I",
                                              "pads:I",
                                              "strides:I",
                                              NULL};

const OnnxOp ops_conv[] = {
    {"", "Conv", 1, 0, 2, 3, 1, 1, nn_conv_attrs, lower_conv},
    {"", "ConvTranspose", 1, 0, 2, 3, 1, 1, transpose_attrs, lower_conv_transpose},
    {0}};
