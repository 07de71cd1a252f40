/* How far from each element of a value a correct implementation may be that starts from the same
 * operands: running error analysis (Wilkinson; Higham, Accuracy and Stability of Numerical
 * Algorithms, 3.3) beside the evaluation. An implementation computes in f32 (f64 in f64), sums in
 * any order, and rounds what lies between to its half type or keeps it wide, as it likes.
 *
 * - map: what it gives at the ends of its operands' intervals, and a rounding of its own (of whole
 *   numbers, none).
 * - cast to few bits, compare and every op whose result is no float: likewise; exact where no
 *   boundary lies within the interval, else one step.
 * - sum of K: the sum of the errors, and 4 sqrt(K) u sum|x|: roundings of either sign (Higham and
 *   Mary, "A new approach to probabilistic rounding error analysis", 2019); of a half type its own.
 * - contraction: |a| |eb| + |ea| |b| + 4 sqrt(K) u |a| |b|, Euclidean norms of a row and a column:
 *   Cauchy and Schwarz's bound of the same.
 * - attention: exp(2 e) - 1 of each row's scores times a column's largest value, whose shares add
 *   up to 1.
 * - view, gather: the same elements of the operand's errors.
 * - position (argmax, argsort): as far as others are whose intervals overlap.
 * - loop, branch: one part in 2^13 of the largest: their bodies are not analysed. A loop that
 *   rounds to half types also runs without: as far as those roundings took a result at the most,
 *   and LOOP_SLACK times that, other roundings may take it that come of another order or width.
 *
 * An infinite error says that anything may come out: where an index is uncertain, at a pole. */
#include "graph/eval/eval_error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUM_SLACK     4.0
#define CONTROL_ERROR 0x1p-13
#define LOOP_SLACK    4.0

static const double zero;

static Tensor error_like(const Tensor *x) {
    Tensor t = {.dtype = DT_f64, .rank = x->rank};
    memcpy(t.dim, x->dim, sizeof t.dim);
    return t;
}

static Tensor zeros_like(const Tensor *x) {
    Tensor t = error_like(x);
    t.data = (const char *)(const void *)&zero; /* at stride 0 */
    return t;
}

/* ---- By other ops, on errors and magnitudes ---- */

/* An op of the graph on f64 operands of our own. */
static bool apply(Eval *e, Op op, const Node *like, const Tensor *in, const Tensor *y,
                  Tensor *out) {
    Node operand = {.op = OP_input, .type = {.dtype = DT_f64}}, nodes[2] = {{0}, operand};
    Value *ones = malloc((like->nin + 1) * sizeof *ones);
    if (!ones) return eval_fail(e, D_NO_MEMORY, "not enough memory: operands");
    for (uint32_t i = 0; i < like->nin; i++) ones[i] = 1;
    Graph g = {.exprs = e->exprs, .nodes = {.v = nodes, .n = 2}};
    Node n = *like;
    n.op = (uint8_t)op;
    n.in = ones;
    n.type.dtype = DT_f64;
    *out = error_like(y);
    eval_contiguous_strides(out);
    bool ok = eval_fn(op)(e, &g, &n, in, out);
    free(ones);
    return ok;
}

/* |x| + times * err, contiguous. */
static bool magnitude(Eval *e, DType t, const Tensor *x, const Tensor *err, Tensor *out) {
    Tensor flat, bound = {0};
    *out = error_like(x);
    if (!eval_make_contiguous(e, x, &flat)) return false;
    bool ok = eval_alloc(e, out) && (!err || !err->data || eval_make_contiguous(e, err, &bound));
    EvalScalar v[EVAL_CHUNK];
    double *to = (double *)(void *)out->to;
    for (int64_t i = 0, m, n = ok ? eval_numel(x) : 0; i < n; i += m) {
        m = n - i < EVAL_CHUNK ? n - i : EVAL_CHUNK;
        eval_load(&flat, i, 1, m, v);
        eval_as_doubles(t, m, v);
        for (int64_t k = 0; k < m; k++) {
            double a = fabs(v[k].f);
            to[i + k] = (isfinite(a) ? a : 0) +
                        (bound.data ? ((const double *)(const void *)bound.data)[i + k] : 0);
        }
    }
    eval_release(e, &flat);
    eval_release(e, &bound);
    return ok;
}

/* y + by * x (both contiguous, of the same elements). */
static void add_scaled(Tensor *y, double by, const Tensor *x) {
    double *a = (double *)(void *)y->to;
    const double *b = (const double *)(const void *)x->data;
    for (int64_t i = 0, n = eval_numel(y); i < n; i++) a[i] += by * b[i];
}

static void fill(Tensor *y, double v) {
    double *a = (double *)(void *)y->to;
    for (int64_t i = 0, n = eval_numel(y); i < n; i++) a[i] = v;
}

/* Sums, and what joins as sums do: errors added up, and the roundings of `count` additions. */
static bool sum_error(Eval *e, Op op, DType t, const Node *n, const Tensor *in, const Tensor *err,
                      double count, Tensor *out) {
    Tensor x = err->data ? *err : zeros_like(&in[0]), all = {0}, own = {0};
    if (!apply(e, op, n, &x, out, out)) return false;
    if (!dtype_is_float(t)) return true;
    bool ok = magnitude(e, t, &in[0], NULL, &all) && apply(e, op, n, &all, out, &own);
    if (ok) add_scaled(out, SUM_SLACK * sqrt(count) * eval_compute_unit(t), &own);
    eval_release(e, &all);
    eval_release(e, &own);
    return ok;
}

/* Products: prod(|x| + e) - prod|x|. */
static bool product_error(Eval *e, Op op, DType t, const Node *n, const Tensor *in,
                          const Tensor *err, double count, Tensor *out) {
    Tensor far = {0}, near = {0}, low = {0};
    bool ok = magnitude(e, t, &in[0], err, &far) && magnitude(e, t, &in[0], NULL, &near) &&
              apply(e, op, n, &far, out, out) && apply(e, op, n, &near, out, &low);
    if (ok) add_scaled(out, dtype_is_float(t) ? count * eval_compute_unit(t) - 1 : -1, &low);
    eval_release(e, &far);
    eval_release(e, &near);
    eval_release(e, &low);
    return ok;
}

static double folded(const Node *n, const Tensor *x) {
    if (op_info[n->op].cls == OPC_SCAN) return (double)x->dim[n->attr.scan.axis];
    double count = 1;
    for (int i = 0; i < x->rank; i++)
        if (n->attr.reduce.axes >> i & 1) count *= (double)x->dim[i];
    return count;
}

static bool fold_error(Eval *e, const Graph *g, const Node *n, const Tensor *in, const Tensor *err,
                       const Tensor *y, Tensor *out) {
    DType t = graph_type(g, n->in[0])->dtype;
    switch (op_join((Op)n->op)) {
    case OP_add: return sum_error(e, (Op)n->op, t, n, in, err, folded(n, in), out);
    case OP_mul: return product_error(e, (Op)n->op, t, n, in, err, folded(n, in), out);
    case OP_none: return eval_position_error(e, g, n, in, err, y, out);
    default: return !err->data || apply(e, OP_reduce_max, n, err, out, out);
    }
}

/* ---- Contractions ---- */

/* Axes by falling stride. */
static void as_it_lies(const Tensor *x, int *order) {
    for (int i = 0; i < x->rank; i++) {
        int at = i;
        for (; at && llabs(x->stride[order[at - 1]]) < llabs(x->stride[i]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* to[..] += x^2, over the axes of x in `order`; `stride`: of `to` per axis of x. `beyond`: in place
 * of the square of what is not finite. */
static void add_squares(DType t, const Tensor *x, const int *order, const int64_t *stride,
                        double beyond, double *to) {
    int inner = order[x->rank - 1];
    int64_t dim[GRAPH_MAX_RANK], from[GRAPH_MAX_RANK], out[GRAPH_MAX_RANK];
    EvalScalar v[EVAL_CHUNK];
    for (int i = 0; i < x->rank; i++) {
        dim[i] = x->dim[order[i]];
        from[i] = x->stride[order[i]];
        out[i] = stride[order[i]];
    }
    Walk w;
    walk_init(&w, x->rank - 1, dim);
    walk_add(&w, from);
    walk_add(&w, out);
    do
        for (int64_t i = 0, m; i < x->dim[inner]; i += m) {
            m = x->dim[inner] - i < EVAL_CHUNK ? x->dim[inner] - i : EVAL_CHUNK;
            eval_load(x, w.off[0] + i * x->stride[inner], x->stride[inner], m, v);
            eval_as_doubles(t, m, v);
            double *sum = to + w.off[1] + i * stride[inner];
            for (int64_t k = 0; k < m; k++)
                sum[k * stride[inner]] += isfinite(v[k].f) ? v[k].f * v[k].f : beyond;
        }
    while (walk_next(&w));
}

/* Euclidean norms of the rows of x along its axis `along`: contiguous, that axis gone. x is read
 * once, in the order in which it lies, and axes along which it is repeated are not read at all. */
static bool norms(Eval *e, DType t, const Tensor *x, int along, double beyond, Tensor *out) {
    Tensor once = *x, sums = error_like(x);
    int order[GRAPH_MAX_RANK];
    int64_t stride[GRAPH_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        if (i == along || !x->stride[i]) {
            sums.dim[i] = 1;
            if (i != along && x->dim[i]) once.dim[i] = 1;
        }
    if (!eval_alloc(e, &sums)) return false;
    double *v = (double *)(void *)sums.to;
    for (int64_t i = 0, n = eval_numel(&sums); i < n; i++) v[i] = 0;
    for (int i = 0; i < x->rank; i++) stride[i] = i == along ? 0 : sums.stride[i];
    as_it_lies(&once, order);
    if (eval_numel(&once)) add_squares(t, &once, order, stride, beyond, v);
    for (int64_t i = 0, n = eval_numel(&sums); i < n; i++) v[i] = sqrt(v[i]);
    Tensor whole = sums;
    for (int i = 0, r = 0; i < x->rank; i++)
        if (i != along) {
            whole.dim[r] = x->dim[i];
            whole.stride[r++] = sums.dim[i] == x->dim[i] ? sums.stride[i] : 0;
        }
    whole.rank--;
    bool ok = eval_make_contiguous(e, &whole, out);
    eval_release(e, &sums);
    return ok;
}

typedef struct Norms {
    Tensor a, b, ea, eb; /* without data: 0 */
} Norms;

static double at(const Tensor *t, int64_t i) {
    return t->data ? ((const double *)(const void *)t->data)[i] : 0;
}

static double product_bound(const Norms *x, int64_t i, int64_t j, double own) {
    double a = at(&x->a, i), b = at(&x->b, j), ea = at(&x->ea, i), eb = at(&x->eb, j);
    if (isinf(ea) || isinf(eb)) return INFINITY;
    return own * a * b + ea * b + a * eb + ea * eb;
}

static void norms_free(Eval *e, Norms *x) {
    eval_release(e, &x->a);
    eval_release(e, &x->b);
    eval_release(e, &x->ea);
    eval_release(e, &x->eb);
}

static bool dot_error(Eval *e, const Graph *g, const Node *n, const Tensor *in, const Tensor *err,
                      const Tensor *y, Tensor *out) {
    DType t = graph_type(g, n->in[0])->dtype;
    int r = y->rank;
    Norms x = {0};
    bool is_float = dtype_is_float(t);
    if (!is_float && !err[0].data && !err[1].data) return true;
    bool ok = eval_alloc(e, out) && norms(e, t, &in[0], r - 1, 0, &x.a) &&
              norms(e, t, &in[1], r - 2, 0, &x.b) &&
              (!err[0].data || norms(e, DT_f64, &err[0], r - 1, INFINITY, &x.ea)) &&
              (!err[1].data || norms(e, DT_f64, &err[1], r - 2, INFINITY, &x.eb));
    double own = is_float ? SUM_SLACK * sqrt((double)in[0].dim[r - 1]) * eval_compute_unit(t) : 0;
    int64_t rows = y->dim[r - 2], cols = y->dim[r - 1], n_out = ok ? eval_numel(y) : 0;
    double *to = (double *)(void *)out->to;
    for (int64_t i = 0; i < n_out / (cols ? cols : 1); i++)
        for (int64_t j = 0; j < cols; j++)
            to[i * cols + j] = product_bound(&x, i, i / rows * cols + j, own);
    norms_free(e, &x);
    return ok;
}

/* Squares under each window, by a convolution with ones: one output channel for each group. */
static bool window_norms(Eval *e, DType t, const Node *n, const Tensor *x, const Tensor *w,
                         const Tensor *y, Tensor *out) {
    static const double one = 1;
    Tensor in[2], shape = error_like(y);
    if (!magnitude(e, t, x, NULL, &in[0])) return false;
    double *v = (double *)(void *)in[0].to;
    for (int64_t i = 0, m = eval_numel(&in[0]); i < m; i++) v[i] *= v[i];
    Node conv = *n;
    conv.attr.conv.to = DT_f64;
    in[1] = zeros_like(w);
    in[1].data = (const char *)(const void *)&one;
    in[1].dim[w->rank - 1] = n->attr.conv.groups;
    shape.dim[y->rank - 1] = n->attr.conv.groups;
    bool ok = apply(e, OP_conv, &conv, in, &shape, out);
    eval_release(e, &in[0]);
    v = (double *)(void *)out->to;
    for (int64_t i = 0, m = ok ? eval_numel(out) : 0; i < m; i++) v[i] = sqrt(v[i]);
    return ok;
}

/* Norms of each output channel's weights. */
static bool channel_norms(DType t, const Tensor *w, double *out) {
    int64_t oc = w->dim[w->rank - 1], n = eval_numel(w);
    Tensor row = *w;
    Walk at_w;
    EvalScalar v[EVAL_CHUNK];
    for (int64_t c = 0; c < oc; c++) out[c] = 0;
    walk_init(&at_w, w->rank - 1, w->dim);
    walk_add(&at_w, w->stride);
    if (n) do
            for (int64_t c = 0, m; c < oc; c += m) {
                m = oc - c < EVAL_CHUNK ? oc - c : EVAL_CHUNK;
                eval_load(&row, at_w.off[0] + c * w->stride[w->rank - 1], w->stride[w->rank - 1], m,
                          v);
                eval_as_doubles(t, m, v);
                for (int64_t k = 0; k < m; k++) out[c + k] += v[k].f * v[k].f;
            }
        while (walk_next(&at_w));
    for (int64_t c = 0; c < oc; c++) out[c] = sqrt(out[c]);
    return true;
}

static bool channels(Eval *e, DType t, const Tensor *w, Tensor *out) {
    if (!w->data) return true;
    *out = (Tensor){.dtype = DT_f64, .rank = 1, .dim = {w->dim[w->rank - 1]}};
    return eval_alloc(e, out) && channel_norms(t, w, (double *)(void *)out->to);
}

static bool conv_error(Eval *e, const Graph *g, const Node *n, const Tensor *in, const Tensor *err,
                       const Tensor *y, Tensor *out) {
    DType t = graph_type(g, n->in[0])->dtype;
    Norms x = {0};
    bool is_float = dtype_is_float(t);
    if (!is_float && !err[0].data && !err[1].data) return true;
    bool ok = eval_alloc(e, out) && window_norms(e, t, n, &in[0], &in[1], y, &x.a) &&
              channels(e, t, &in[1], &x.b) && channels(e, DT_f64, &err[1], &x.eb) &&
              (!err[0].data || window_norms(e, DT_f64, n, &err[0], &in[1], y, &x.ea));
    int64_t oc = y->dim[y->rank - 1], groups = n->attr.conv.groups, per = groups ? oc / groups : oc;
    double depth = (double)(eval_numel(&in[1]) / (oc ? oc : 1));
    /* Transformed convolutions (Winograd) sum what is some ten times larger. */
    double own = is_float ? 8 * SUM_SLACK * sqrt(depth) * eval_compute_unit(t) : 0;
    double *to = (double *)(void *)out->to;
    for (int64_t i = 0, m = ok ? eval_numel(y) : 0; i < m; i++)
        to[i] = product_bound(&x, i / oc * groups + i % oc / per, i % oc, own);
    norms_free(e, &x);
    return ok;
}

/* ---- Indices ---- */

static bool gather_error(Eval *e, const Node *n, const Tensor *in, const Tensor *err,
                         const Tensor *y, Tensor *out) {
    bool uncertain = false;
    for (uint32_t i = 1; i < n->nin; i++) uncertain |= err[i].data != NULL;
    if (!uncertain && !err[0].data) return true;
    Tensor *x = calloc(n->nin, sizeof *x);
    if (!x) return eval_fail(e, D_NO_MEMORY, "not enough memory: %u operands", n->nin);
    memcpy(x, in, n->nin * sizeof *x);
    x[0] = err[0].data ? err[0] : zeros_like(&in[0]);
    bool ok = apply(e, OP_gather, n, x, y, out);
    for (uint32_t i = 1; ok && i < n->nin; i++) { /* any element, where the index is uncertain */
        Tensor flat;
        if (!err[i].data || !(ok = eval_make_contiguous(e, &err[i], &flat))) continue;
        for (int64_t k = 0, m = eval_numel(out); k < m; k++)
            if (at(&flat, k) > 0) ((double *)(void *)out->to)[k] = INFINITY;
        eval_release(e, &flat);
    }
    free(x);
    return ok;
}

/* Errors of what is written, as it is written; sums of up to 64 updates of one element. */
static bool scatter_error(Eval *e, const Graph *g, const Node *n, const Tensor *in,
                          const Tensor *err, const Tensor *y, Tensor *out) {
    DType t = graph_type(g, n->in[0])->dtype;
    bool uncertain = n->attr.index.mode == SCATTER_mul, any = false;
    for (uint32_t i = 0; i < n->nin; i++) {
        any |= err[i].data != NULL;
        uncertain |= i > 1 && err[i].data;
    }
    if (uncertain) {
        if (!eval_alloc(e, out)) return false;
        fill(out, INFINITY);
        return true;
    }
    bool sums = n->attr.index.mode == SCATTER_add && dtype_is_float(t);
    if (!any && !sums) return true;
    Tensor *x = calloc(n->nin, sizeof *x), own = {0};
    if (!x) return eval_fail(e, D_NO_MEMORY, "not enough memory: %u operands", n->nin);
    memcpy(x, in, n->nin * sizeof *x);
    for (int i = 0; i < 2; i++) x[i] = err[i].data ? err[i] : zeros_like(&in[i]);
    bool ok = apply(e, OP_scatter, n, x, y, out);
    if (sums && ok) {
        ok = magnitude(e, t, &in[0], NULL, &x[0]) && magnitude(e, t, &in[1], NULL, &x[1]) &&
             apply(e, OP_scatter, n, x, y, &own);
        if (ok) add_scaled(out, SUM_SLACK * sqrt(64) * eval_compute_unit(t), &own);
        eval_release(e, &x[0]);
        eval_release(e, &x[1]);
        eval_release(e, &own);
    }
    free(x);
    return ok;
}

/* ---- Views ---- */

static bool view_error(Eval *e, const Node *n, const Tensor *in, const Tensor *err, const Tensor *y,
                       Tensor *out) {
    bool exact = true;
    Tensor *x = calloc(n->nin, sizeof *x);
    if (!x) return eval_fail(e, D_NO_MEMORY, "not enough memory: %u operands", n->nin);
    for (uint32_t i = 0; i < n->nin; i++) {
        exact &= !err[i].data;
        x[i] = err[i].data ? err[i] : zeros_like(&in[i]);
    }
    bool ok = exact || apply(e, (Op)n->op, n, x, y, out);
    free(x);
    return ok;
}

static bool composite_error(Eval *e, const Node *n, const Tensor *in, const Tensor *err,
                            const Tensor *y, Tensor *out) {
    Tensor x[2];
    for (uint32_t i = 0; i < n->nin; i++) x[i] = err[i].data ? err[i] : zeros_like(&in[i]);
    return eval_composite_error(e, n, in, x, y, out);
}

static bool control_error(Eval *e, const Graph *g, const Tensor *y, DType t, Tensor *out) {
    double most = 0;
    (void)g;
    if (!dtype_is_float(t)) return true;
    if (!magnitude(e, t, y, NULL, out)) return false;
    for (int64_t i = 0, n = eval_numel(out); i < n; i++)
        if (at(out, i) > most) most = at(out, i);
    fill(out, CONTROL_ERROR * most);
    return true;
}

bool eval_farthest(Eval *e, DType t, const Tensor *x, const Tensor *y, double *far) {
    Tensor a = {0}, b = {0};
    if (!dtype_is_float(t)) return true;
    if (x->rank != y->rank || memcmp(x->dim, y->dim, x->rank * sizeof *x->dim) != 0) {
        *far = INFINITY;
        return true;
    }
    bool ok = eval_make_contiguous(e, x, &a) && eval_make_contiguous(e, y, &b);
    EvalScalar v[EVAL_CHUNK], w[EVAL_CHUNK];
    for (int64_t i = 0, m, n = ok ? eval_numel(x) : 0; i < n; i += m) {
        m = n - i < EVAL_CHUNK ? n - i : EVAL_CHUNK;
        eval_load(&a, i, 1, m, v);
        eval_load(&b, i, 1, m, w);
        for (int64_t k = 0; k < m; k++) {
            double d = fabs(v[k].f - w[k].f);
            if (isfinite(d) && d > *far) *far = d;
        }
    }
    eval_release(e, &a);
    eval_release(e, &b);
    return ok;
}

void eval_widen(Tensor *err, double far) {
    double *x = (double *)(void *)err->to;
    for (int64_t i = 0, n = err->data ? eval_numel(err) : 0; i < n; i++) x[i] += LOOP_SLACK * far;
}

/* What is summed or multiplied up is rounded to a half type in the end, or not. */
static void add_rounding(const Node *n, const Tensor *y, Tensor *out) {
    DType t = n->type.dtype;
    if (!out->data || !dtype_is_float(t) || dtype_bytes(t) >= 4) return;
    EvalScalar v[EVAL_CHUNK];
    Rounding r = eval_rounding(OP_add, t);
    double *to = (double *)(void *)out->to;
    for (int64_t i = 0, m, count = eval_numel(y); i < count; i += m) {
        m = count - i < EVAL_CHUNK ? count - i : EVAL_CHUNK;
        eval_load(y, i, 1, m, v);
        for (int64_t k = 0; k < m; k++)
            if (isfinite(v[k].f)) to[i + k] += r.relative * fabs(v[k].f) + r.floor;
    }
}

bool eval_error(Eval *e, const Graph *g, const Node *n, const Tensor *in, const Tensor *err,
                const Tensor *y, bool loose, Tensor *out) {
    *out = error_like(y);
    bool ok = true;
    switch (op_info[n->op].cls) {
    case OPC_MAP: ok = eval_map_error(e, g, n, in, err, y, loose, out); break;
    case OPC_VIEW: ok = view_error(e, n, in, err, y, out); break;
    case OPC_REDUCE:
    case OPC_SCAN:
    case OPC_SORT:
        ok = fold_error(e, g, n, in, err, y, out);
        if (ok && (op_join((Op)n->op) == OP_add || op_join((Op)n->op) == OP_mul))
            add_rounding(n, y, out);
        break;
    case OPC_CONTRACT:
        ok = n->op == OP_dot ? dot_error(e, g, n, in, err, y, out)
                             : conv_error(e, g, n, in, err, y, out);
        if (ok) add_rounding(n, y, out);
        break;
    case OPC_INDEX:
        ok = n->op == OP_gather    ? gather_error(e, n, in, err, y, out)
             : n->op == OP_scatter ? scatter_error(e, g, n, in, err, y, out)
                                   : true;
        break;
    case OPC_COMPOSITE:
        ok = composite_error(e, n, in, err, y, out);
        if (ok) add_rounding(n, y, out);
        break;
    case OPC_CONTROL: ok = n->op != OP_proj || control_error(e, g, y, n->type.dtype, out); break;
    default: break;
    }
    if (!out->data) *out = (Tensor){0};
    return ok;
}
