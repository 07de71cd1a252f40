/* Bounds of errors of positions (argmax, argmin, argsort): how far from where it stands an element
 * may be that comes into its place where intervals overlap. Where none do, the position is certain;
 * equal elements without errors stand in the order of their positions. */
#include "graph/eval/eval_error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements along the axis, by position; those that come first have the least. */
typedef struct Line {
    int64_t n;
    double *lo, *hi, *ends; /* ends: of an order, the least `lo` from a place on */
} Line;

static void read_line(Line *l, DType t, const Tensor *x, const double *err, int64_t at,
                      int64_t stride, bool falling) {
    for (int64_t i = 0; i < l->n; i++) {
        EvalScalar v;
        eval_load(x, at + i * stride, 1, 1, &v);
        eval_as_doubles(t, 1, &v);
        const double e = err[at + i * stride], a = falling ? -v.f : v.f;
        l->lo[i] = e == INFINITY ? -INFINITY : a - e;
        l->hi[i] = e == INFINITY ? INFINITY : a + e;
    }
}

static double farther(double far, int64_t a, int64_t b) {
    return fmax(far, fabs((double)a - (double)b));
}

/* The one that stands first. */
static double first_error(const Line *l, int64_t first) {
    double far = 0;
    for (int64_t i = 0; i < l->n; i++)
        if (l->lo[i] < l->hi[first]) far = farther(far, i, first);
    return far;
}

/* y: positions in order from `at` on, `stride` apart. Neighbours in order whose intervals overlap,
 * or that another's overlaps both, may be in any order. */
static void order_errors(Line *l, const Tensor *y, int64_t at, int64_t stride, double *out) {
    double least = INFINITY, most = -INFINITY;
    for (int64_t i = l->n; i-- > 0;)
        l->ends[i] = least = fmin(least, l->lo[eval_int(y, at + i * stride)]);
    for (int64_t from = 0, i = 0; i < l->n; i++) {
        most = fmax(most, l->hi[eval_int(y, at + i * stride)]);
        if (i + 1 < l->n && most > l->ends[i + 1]) continue;
        int64_t low = INT64_MAX, high = 0;
        for (int64_t k = from; k <= i; k++) {
            const int64_t p = eval_int(y, at + k * stride);
            low = p < low ? p : low;
            high = p > high ? p : high;
        }
        for (int64_t k = from; k <= i; k++) {
            const int64_t p = eval_int(y, at + k * stride);
            out[at + k * stride] = farther(farther(0, p, low), p, high);
        }
        from = i + 1;
    }
}

static void position_errors(const Node *n, DType t, int axis, const Tensor *x, const double *err,
                            const Tensor *y, Line *l, double *out) {
    const bool sorts = n->op == OP_argsort;
    const bool falling = sorts ? n->attr.scan.reverse : n->op == OP_argmax;
    int64_t inner = 1, lines = l->n ? eval_numel(x) / l->n : 0;
    for (int i = axis + 1; i < x->rank; i++) inner *= x->dim[i];
    for (int64_t k = 0; k < lines; k++) {
        const int64_t first = k / inner * l->n * inner + k % inner;
        read_line(l, t, x, err, first, inner, falling);
        if (sorts)
            order_errors(l, y, first, inner, out);
        else
            out[k] = first_error(l, eval_int(y, k));
    }
}

/* Places that nobody reads may hold anything. */
static void free_places(const Node *n, const Tensor *y, double *out) {
    const int axis = n->attr.scan.axis;
    const int64_t size = y->dim[axis];
    int64_t inner = 1;
    for (int i = axis + 1; i < y->rank; i++) inner *= y->dim[i];
    for (int64_t i = 0; i < eval_numel(y); i++)
        if (i / inner % size >= n->attr.scan.keep) out[i] = INFINITY;
}

static bool errors_of(Eval *e, const Graph *g, const Node *n, int axis, const Tensor *in,
                      const Tensor *err, const Tensor *y, double *out) {
    Tensor x = {0}, ex = {0}, order = {0};
    Line l = {.n = in->dim[axis]};
    bool ok = eval_make_contiguous(e, in, &x) && eval_make_contiguous(e, err, &ex) &&
              eval_make_contiguous(e, y, &order);
    l.lo = malloc((3 * (size_t)l.n + 1) * sizeof *l.lo);
    if (ok && !l.lo)
        ok = eval_fail(e, D_NO_MEMORY, "not enough memory: an order of %lld", (long long)l.n);
    if (ok) {
        l.hi = l.lo + l.n;
        l.ends = l.hi + l.n;
        position_errors(n, graph_type(g, n->in[0])->dtype, axis, &x,
                        (const double *)(const void *)ex.data, &order, &l, out);
    }
    free(l.lo);
    eval_release(e, &x);
    eval_release(e, &ex);
    eval_release(e, &order);
    return ok;
}

bool eval_position_error(Eval *e, const Graph *g, const Node *n, const Tensor *in,
                         const Tensor *err, const Tensor *y, Tensor *out) {
    const bool sorts = n->op == OP_argsort, part = sorts && n->attr.scan.keep;
    int axis = 0;
    if (!err->data && !part) return true;
    if (sorts)
        axis = n->attr.scan.axis;
    else
        while (!(n->attr.reduce.axes >> axis & 1)) axis++;
    if (!eval_alloc(e, out)) return false;
    double *errors = (double *)(void *)out->to;
    if (!err->data)
        memset(errors, 0, (size_t)eval_numel(out) * sizeof *errors);
    else if (!errors_of(e, g, n, axis, in, err, y, errors))
        return false;
    if (part) free_places(n, y, errors);
    return true;
}
