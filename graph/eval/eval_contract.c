/* dot and conv: operands are widened into contiguous f64 or i64 panels, part by part, multiplied
 * and stored. */
#include "graph/eval/eval_impl.h"

#include <stdlib.h>
#include <string.h>

typedef struct Panel {
    bool is_float;
    union {
        double *f;
        uint64_t *i; /* integers modulo 2^64 */
        void *p;
    } u;
} Panel;

static bool panel_alloc(Eval *e, Panel *p, bool is_float, int64_t n) {
    p->is_float = is_float;
    p->u.p = malloc((size_t)(n ? n : 1) * sizeof(double));
    return p->u.p ? true
                  : eval_fail(e, D_NO_MEMORY, "not enough memory: %lld operands", (long long)n);
}

static void multiply(int64_t m, int64_t n, int64_t k, Panel a, Panel b, int64_t ldb, Panel c,
                     Panel strip) {
    if (a.is_float)
        eval_multiply_f(m, n, k, a.u.f, b.u.f, ldb, c.u.f, strip.u.f);
    else
        eval_multiply_i(m, n, k, a.u.i, b.u.i, ldb, c.u.i, strip.u.i);
}

/* EvalScalar is a union of double and int64: rows of it are rows of a panel. */
static void load_row(const Tensor *x, int64_t at, int64_t stride, int64_t n, Panel p, int64_t to) {
    eval_load(x, at, stride, n, (EvalScalar *)p.u.p + to);
}

/* ---- dot ---- */

/* Rows [r0, r0 + rows) and columns [c0, c0 + cols) of a matrix; read along what lies together. */
static void load_matrix(const Tensor *x, int64_t at, int64_t r0, int64_t rows, int64_t c0,
                        int64_t cols, Panel p) {
    const int64_t down = x->stride[x->rank - 2], along = x->stride[x->rank - 1];
    EvalScalar *to = p.u.p, v[EVAL_CHUNK];
    at += r0 * down + c0 * along;
    if (llabs(along) <= llabs(down)) {
        for (int64_t r = 0; r < rows; r++) load_row(x, at + r * down, along, cols, p, r * cols);
        return;
    }
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = 0, n; r < rows; r += n) {
            n = rows - r < EVAL_CHUNK ? rows - r : EVAL_CHUNK;
            eval_load(x, at + c * along + r * down, down, n, v);
            for (int64_t i = 0; i < n; i++) to[(r + i) * cols + c] = v[i];
        }
}

enum { DOT_PANEL = 1 << 16 }; /* elements of an operand that are widened at a time */

typedef struct DotPanels {
    Panel a, b, c, strip;
    int64_t k, rows, cols; /* of panels: rows of a, columns of b */
} DotPanels;

/* Columns [first, first + cols) of every product of the batch. */
static void dot_columns(const DotPanels *p, int64_t first, int64_t cols, const Tensor *in,
                        Tensor *out) {
    const int64_t down = out->stride[out->rank - 2], m = out->dim[out->rank - 2];
    bool loaded = false;
    int64_t b_at = 0;
    Walk w;
    walk_init(&w, out->rank - 2, out->dim);
    walk_add(&w, in[0].stride);
    walk_add(&w, in[1].stride);
    walk_add(&w, out->stride);
    do {
        if (!loaded || b_at != w.off[1]) load_matrix(&in[1], w.off[1], 0, p->k, first, cols, p->b);
        loaded = true;
        b_at = w.off[1];
        for (int64_t i = 0, rows; i < m; i += rows) {
            rows = m - i < p->rows ? m - i : p->rows;
            load_matrix(&in[0], w.off[0], i, rows, 0, p->k, p->a);
            multiply(rows, cols, p->k, p->a, p->b, cols, p->c, p->strip);
            for (int64_t r = 0; r < rows; r++)
                eval_store(out, w.off[2] + (i + r) * down + first, 1, cols,
                           (EvalScalar *)p->c.u.p + r * cols);
        }
    } while (walk_next(&w));
}

/* So many of `all` rows or columns of k elements as fill a panel. */
static int64_t panel_width(int64_t k, int64_t all) {
    const int64_t n = DOT_PANEL / (k + 1) / EVAL_STRIP * EVAL_STRIP;
    return n > all ? all : n < EVAL_STRIP ? EVAL_STRIP : n;
}

bool eval_dot(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    int r = out->rank;
    const int64_t all = out->dim[r - 1], k = in[0].dim[r - 1];
    bool is_float = dtype_is_float(graph_type(g, n->in[0])->dtype);
    DotPanels p = {.k = k, .rows = panel_width(k, out->dim[r - 2]), .cols = panel_width(k, all)};
    bool ok = panel_alloc(e, &p.a, is_float, p.rows * k) &&
              panel_alloc(e, &p.b, is_float, k * p.cols) &&
              panel_alloc(e, &p.c, is_float, p.rows * p.cols) &&
              panel_alloc(e, &p.strip, is_float, k * EVAL_STRIP);
    for (int64_t j = 0; ok && j < all; j += p.cols)
        dot_columns(&p, j, all - j < p.cols ? all - j : p.cols, in, out);
    free(p.a.u.p);
    free(p.b.u.p);
    free(p.c.u.p);
    free(p.strip.u.p);
    return ok;
}

/* ---- conv ---- */

/* Sizes of one convolution; x [N, S.., C], w [K.., C/groups, OC], y [N, O.., OC]. */
typedef struct ConvSizes {
    int n;
    int64_t taps, cg, og; /* taps of the window, channels of a group: in, out */
    int64_t positions;    /* outputs per image */
} ConvSizes;

static ConvSizes conv_sizes(const Node *n, const Tensor *in, const Tensor *out) {
    ConvSizes s = {.n = n->attr.conv.n, .taps = 1, .positions = 1};
    for (int i = 0; i < s.n; i++) {
        s.taps *= in[1].dim[i];
        s.positions *= out->dim[i + 1];
    }
    s.cg = in[1].dim[s.n];
    s.og = in[1].dim[s.n + 1] / n->attr.conv.groups;
    return s;
}

static void coordinates(int64_t flat, const int64_t *dim, int n, int64_t *at) {
    for (int i = n - 1; i >= 0; i--) {
        at[i] = flat % dim[i];
        flat /= dim[i];
    }
}

/* The inputs under the window at one output position, [taps, cg]; zeros outside the image. */
static void load_patch(const Node *n, const ConvSizes *s, const Tensor *x, const Tensor *w,
                       int64_t base, const int64_t *o, Panel p, int64_t to) {
    int64_t k[GRAPH_MAX_WINDOW], step = x->stride[s->n + 1];
    for (int64_t t = 0; t < s->taps; t++) {
        int64_t at = base;
        bool inside = true;
        coordinates(t, w->dim, s->n, k);
        for (int i = 0; i < s->n; i++) {
            int64_t pos = o[i] * n->attr.conv.stride[i] + k[i] * n->attr.conv.dilation[i] -
                          n->attr.conv.lo[i];
            inside &= pos >= 0 && pos < x->dim[i + 1];
            at += pos * x->stride[i + 1];
        }
        if (inside)
            load_row(x, at, step, s->cg, p, to + t * s->cg);
        else
            memset((EvalScalar *)p.u.p + to + t * s->cg, 0, (size_t)s->cg * sizeof(EvalScalar));
    }
}

enum { CONV_ROWS = 32 }; /* output positions that are multiplied together, at most */

typedef struct ConvPanels {
    Panel patch, weights, y, strip;
    int64_t rows, cols; /* positions, and channels, that are widened at a time */
} ConvPanels;

/* Of output channels [first, first + cols), as a matrix of depth x cols, wherever they lie. */
static void load_weights(const Tensor *w, int64_t first, int64_t cols, Panel p) {
    const int64_t along = w->stride[w->rank - 1];
    int64_t to = 0;
    Walk x;
    walk_init(&x, w->rank - 1, w->dim);
    walk_add(&x, w->stride);
    do {
        load_row(w, x.off[0] + first * along, along, cols, p, to);
        to += cols;
    } while (walk_next(&x));
}

/* Channels [first, first + cols) of a group at `rows` positions of an image. */
static void conv_rows(const Node *n, const ConvSizes *s, const Tensor *in, Tensor *out,
                      const ConvPanels *p, int64_t image, int64_t first, int64_t cols, int64_t at,
                      int64_t rows) {
    int64_t o[GRAPH_MAX_WINDOW], depth = s->taps * s->cg, oc = in[1].dim[s->n + 1];
    int64_t base = image * in[0].stride[0] + first / s->og * s->cg * in[0].stride[s->n + 1];
    for (int64_t r = 0; r < rows; r++) {
        coordinates(at + r, out->dim + 1, s->n, o);
        load_patch(n, s, &in[0], &in[1], base, o, p->patch, r * depth);
    }
    multiply(rows, cols, depth, p->patch, p->weights, cols, p->y, p->strip);
    for (int64_t r = 0; r < rows; r++)
        eval_store(out, (image * s->positions + at + r) * oc + first, 1, cols,
                   (EvalScalar *)p->y.u.p + r * cols);
}

/* The same at all positions of all images. */
static void conv_channels(const Node *n, const ConvSizes *s, const Tensor *in, Tensor *out,
                          const ConvPanels *p, int64_t first, int64_t cols) {
    if (s->taps > 0 && s->cg > 0) load_weights(&in[1], first, cols, p->weights);
    for (int64_t image = 0; image < out->dim[0]; image++)
        for (int64_t i = 0; i < s->positions; i += p->rows)
            conv_rows(n, s, in, out, p, image, first, cols, i,
                      s->positions - i < p->rows ? s->positions - i : p->rows);
}

bool eval_conv(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    bool is_float = dtype_is_float(graph_type(g, n->in[0])->dtype);
    const ConvSizes s = conv_sizes(n, in, out);
    const int64_t depth = s.taps * s.cg, all = in[1].dim[s.n + 1];
    ConvPanels p = {.rows = panel_width(depth, CONV_ROWS), .cols = panel_width(depth, s.og)};
    bool ok = panel_alloc(e, &p.patch, is_float, p.rows * depth) &&
              panel_alloc(e, &p.weights, is_float, depth * p.cols) &&
              panel_alloc(e, &p.y, is_float, p.rows * p.cols) &&
              panel_alloc(e, &p.strip, is_float, depth * EVAL_STRIP);
    for (int64_t c = 0, cols; ok && c < all; c += cols) {
        cols = s.og - c % s.og < p.cols ? s.og - c % s.og : p.cols;
        conv_channels(n, &s, in, out, &p, c, cols);
    }
    free(p.patch.u.p);
    free(p.weights.u.p);
    free(p.y.u.p);
    free(p.strip.u.p);
    return ok;
}
