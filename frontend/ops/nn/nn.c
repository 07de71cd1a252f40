#include "frontend/ops/nn/nn.h"
#include <string.h>

bool nn_read_ints(Lower *l, const char *name, int n, int64_t absent, int64_t least, int64_t *out) {
    uint32_t count;
    const int64_t *v = lower_ints(l, name, &count);
    for (int i = 0; i < n; i++) out[i] = absent;
    if (!v || count == 0) return true;
    if (count != (uint32_t)n)
        return lower_error(l, D_ATTRIBUTE, "%s has %u values for %d spatial axes", name, count, n);
    for (int i = 0; i < n; i++) {
        if (v[i] < least || v[i] < -INT32_MAX || v[i] > INT32_MAX)
            return lower_error(l, D_ATTRIBUTE, "%s has the value %lld", name, (long long)v[i]);
        out[i] = v[i];
    }
    return true;
}

int64_t nn_window_span(const Window *w, int i) {
    return w->dilation[i] * (w->size[i] - 1) + 1;
}

Expr nn_window_count(Graph *g, Value x, const Window *w, int i) {
    ExprPool *p = g->exprs;
    Expr padded = expr_add(p, v_dim(g, x, 2 + i), expr_add(p, w->lo[i], w->hi[i]));
    Expr room = expr_addi(p, padded, -nn_window_span(w, i));
    return expr_addi(p, expr_div(p, room, expr_const(p, w->stride[i])), 1);
}

/* Positions = ceil(size / stride): the padding that gives them is split evenly, the odd one behind
 * (upper) or in front (lower). */
static void pad_same(Graph *g, Window *w, Value x, int i, bool upper) {
    ExprPool *p = g->exprs;
    Expr size = v_dim(g, x, 2 + i), stride = expr_const(p, w->stride[i]);
    Expr last = expr_mul(p, expr_addi(p, expr_ceildiv(p, size, stride), -1), stride);
    Expr total = expr_sub(p, expr_addi(p, last, nn_window_span(w, i)), size);
    total = expr_max(p, total, expr_const(p, 0));
    Expr small = expr_div(p, total, expr_const(p, 2)), large = expr_sub(p, total, small);
    w->lo[i] = upper ? small : large;
    w->hi[i] = upper ? large : small;
}

/* See nn.h. Sizes in elements: lo + S + hi holds positions 0, stride, ... of a window. */
static void pad_ceil(Graph *g, Window *w, Value x, int i) {
    ExprPool *p = g->exprs;
    Expr stride = expr_const(p, w->stride[i]);
    Expr before = expr_add(p, w->lo[i], v_dim(g, x, 2 + i));
    Expr room = expr_addi(p, expr_add(p, before, w->hi[i]), -nn_window_span(w, i));
    Expr last = expr_mul(p, expr_ceildiv(p, room, stride), stride);
    Expr inside = expr_lt(p, last, before);
    last = expr_select(p, inside, last, expr_sub(p, last, stride));
    w->hi[i] = expr_sub(p, expr_addi(p, last, nn_window_span(w, i)), before);
}

static bool read_pads(Lower *l, Value x, Window *w) {
    Graph *g = lower_graph(l);
    enum { NOTSET, VALID, SAME_UPPER, SAME_LOWER };
    static const char *const modes[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", NULL};
    int mode;
    if (!lower_choice(l, "auto_pad", modes, &mode)) return false;
    int64_t pads[2 * GRAPH_MAX_WINDOW];
    if (!nn_read_ints(l, "pads", 2 * w->n, 0, INT64_MIN, pads)) return false;
    for (int i = 0; i < w->n; i++) {
        w->lo[i] = v_int(g, mode == NOTSET ? pads[i] : 0);
        w->hi[i] = v_int(g, mode == NOTSET ? pads[w->n + i] : 0);
        if (mode == SAME_UPPER || mode == SAME_LOWER) pad_same(g, w, x, i, mode == SAME_UPPER);
    }
    return true;
}

bool nn_window_read(Lower *l, Value x, const int64_t *size, bool ceil_mode, Window *w) {
    Graph *g = lower_graph(l);
    w->n = v_rank(g, x) - 2;
    if (w->n < 1)
        return lower_error(l, D_SHAPE, "the input has rank %d, without a spatial axis", w->n + 2);
    if (w->n > GRAPH_MAX_WINDOW)
        return lower_unsupported(l, NULL, "%d spatial axes; at most %d", w->n, GRAPH_MAX_WINDOW);
    if (size)
        memcpy(w->size, size, (size_t)w->n * sizeof *size);
    else if (!nn_read_ints(l, "kernel_shape", w->n, 1, 1, w->size))
        return false;
    if (!nn_read_ints(l, "strides", w->n, 1, 1, w->stride)) return false;
    if (!nn_read_ints(l, "dilations", w->n, 1, 1, w->dilation)) return false;
    if (!read_pads(l, x, w)) return false;
    for (int i = 0; ceil_mode && i < w->n; i++) pad_ceil(g, w, x, i);
    return true;
}

bool nn_window_fits(Lower *l, Value x, const Window *w) {
    ExprPool *p = lower_exprs(l);
    for (int i = 0; i < w->n; i++) {
        const Expr padded =
            expr_add(p, v_dim(lower_graph(l), x, 2 + i), expr_add(p, w->lo[i], w->hi[i]));
        int64_t room;
        if (expr_is_const(p, padded, &room) && room < nn_window_span(w, i))
            return lower_error(l, D_SHAPE, "a window of %lld over %lld elements of axis %d",
                               (long long)nn_window_span(w, i), (long long)room, 2 + i);
        const Expr fits = expr_le(p, expr_const(p, nn_window_span(w, i)), padded);
        if (expr_is_value(p, fits, 0))
            return lower_error(l, D_SHAPE, "a window of %lld never fits into axis %d",
                               (long long)nn_window_span(w, i), 2 + i);
        lower_assume(l, expr_const(p, 1), fits);
    }
    return true;
}

Value nn_pad_spatial(Graph *g, Value x, Value fill, const Window *w) {
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    lo[0] = lo[1] = hi[0] = hi[1] = v_int(g, 0);
    for (int i = 0; i < w->n; i++) {
        lo[2 + i] = w->lo[i];
        hi[2 + i] = w->hi[i];
    }
    return build_pad(g, x, fill, lo, hi, NULL);
}
