/* Composites, row by row and in f64. */
#include "graph/eval/eval_impl.h"

#include <math.h>
#include <stdlib.h>

static EvalScalar *alloc_scalars(Eval *e, int64_t n) {
    EvalScalar *p = calloc((size_t)(n ? n : 1), sizeof *p);
    if (!p) eval_fail(e, D_NO_MEMORY, "not enough memory: %lld operands", (long long)n);
    return p;
}

/* x[n] = exp(x - max) in place; the result is their sum. finite: an infinite maximum counts as 0.
 */
static double exponentials(EvalScalar *x, int64_t n, bool finite, double *max) {
    double sum = 0;
    *max = -INFINITY;
    for (int64_t i = 0; i < n; i++) /* a NaN stays: nothing is greater */
        if (x[i].f > *max || isnan(x[i].f)) *max = x[i].f;
    if (finite && isinf(*max)) *max = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i].f = exp(x[i].f - *max);
    return sum;
}

/* One matrix: rows of scores at `at`, values v[n][d] read already. */
typedef struct Rows {
    const Tensor *scores;
    int64_t m, n, d;
    const EvalScalar *v;
    EvalScalar *p, *o; /* one row each */
    bool guarded;
} Rows;

static void attend(const Rows *r, int64_t at, Tensor *out, int64_t to) {
    const Tensor *s = r->scores;
    for (int64_t i = 0; i < r->m; i++) {
        double max, sum;
        eval_load(s, at + i * s->stride[s->rank - 2], s->stride[s->rank - 1], r->n, r->p);
        sum = exponentials(r->p, r->n, false, &max);
        for (int64_t c = 0; c < r->d; c++) r->o[c].f = 0;
        for (int64_t j = 0; j < r->n; j++) {
            double p = r->p[j].f / sum;
            if (r->guarded && isnan(p)) p = 0;
            for (int64_t c = 0; c < r->d; c++) r->o[c].f += p * r->v[j * r->d + c].f;
        }
        eval_store(out, to + i * r->d, 1, r->d, r->o);
    }
}

bool eval_attention(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    int r = out->rank;
    Rows x = {.scores = &in[0], .m = out->dim[r - 2], .n = in[0].dim[r - 1], .d = out->dim[r - 1]};
    x.guarded = n->attr.attention.guarded;
    EvalScalar *v = alloc_scalars(e, x.n * x.d);
    x.v = v;
    x.p = alloc_scalars(e, x.n);
    x.o = alloc_scalars(e, x.d);
    bool ok = v && x.p && x.o;
    Walk w;
    walk_init(&w, r - 2, out->dim);
    walk_add(&w, in[0].stride);
    walk_add(&w, in[1].stride);
    walk_add(&w, out->stride);
    if (ok) do {
            for (int64_t j = 0; j < x.n; j++)
                eval_load(&in[1], w.off[1] + j * in[1].stride[r - 2], in[1].stride[r - 1], x.d,
                          v + j * x.d);
            attend(&x, w.off[0], out, w.off[2]);
        } while (walk_next(&w));
    free(v);
    free(x.p);
    free(x.o);
    return ok;
}

bool eval_logsumexp(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g, (void)n;
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    int64_t size = in[0].dim[out->rank];
    EvalScalar *x = alloc_scalars(e, size);
    Walk w;
    walk_init(&w, out->rank, out->dim);
    walk_add(&w, in[0].stride);
    walk_add(&w, out->stride);
    if (x) do {
            double max, sum;
            eval_load(&in[0], w.off[0], in[0].stride[out->rank], size, x);
            sum = exponentials(x, size, true, &max);
            eval_store(out, w.off[1], 1, 1, &(EvalScalar){.f = log(sum) + max});
        } while (walk_next(&w));
    free(x);
    return x != NULL;
}

/* ---- Bounds of errors (eval_error.c) ---- */

/* The largest error of a score that has a share in its row's sum: those far below the maximum, as
 * masked ones are, have none whatever their errors. */
static double score_error(const EvalScalar *s, const EvalScalar *err, int64_t n) {
    double max = -INFINITY, most = 0;
    for (int64_t j = 0; j < n; j++)
        if (s[j].f > max) max = s[j].f;
    for (int64_t j = 0; j < n; j++)
        if (err[j].f > most && s[j].f + err[j].f > max - 100) most = err[j].f;
    return most;
}

/* Per row of x: score_error; x.data and err.data as in eval_error.c. */
static bool score_errors(Eval *e, const Tensor *x, const Tensor *err, double *out) {
    int64_t size = x->dim[x->rank - 1];
    EvalScalar *s = alloc_scalars(e, 2 * size);
    Walk w;
    walk_init(&w, x->rank - 1, x->dim);
    walk_add(&w, x->stride);
    walk_add(&w, err->stride);
    if (s) do {
            eval_load(x, w.off[0], x->stride[x->rank - 1], size, s);
            eval_load(err, w.off[1], err->stride[x->rank - 1], size, s + size);
            *out++ = score_error(s, s + size, size);
        } while (walk_next(&w));
    free(s);
    return s != NULL;
}

/* What exp of a difference and a division cost in f32, relative to a share. */
#define SHARE_ERROR (64 * 0x1p-24)

/* Shares of a row add up to 1, so a column's largest value bounds their sum with its values. */
static void attention_errors(const Node *n, const Tensor *v, const Tensor *ev, const Tensor *y,
                             double *rows, double *out) {
    int r = y->rank;
    int64_t m = y->dim[r - 2], d = y->dim[r - 1], depth = v->dim[r - 2];
    double rounding = SHARE_ERROR + 4 * sqrt((double)depth) * 0x1p-24;
    if (dtype_is_half(n->type.dtype)) rounding += 2 * eval_unit(n->type.dtype);
    Walk w;
    walk_init(&w, r - 2, y->dim);
    walk_add(&w, v->stride);
    walk_add(&w, ev->stride);
    do {
        for (int64_t c = 0; c < d; c++) {
            double most = 0, error = 0;
            EvalScalar x;
            for (int64_t j = 0; j < depth; j++) {
                eval_load(v, w.off[0] + j * v->stride[r - 2] + c * v->stride[r - 1], 1, 1, &x);
                most = fmax(most, fabs(x.f));
                eval_load(ev, w.off[1] + j * ev->stride[r - 2] + c * ev->stride[r - 1], 1, 1, &x);
                error = fmax(error, x.f);
            }
            for (int64_t i = 0; i < m; i++)
                out[i * d + c] = (expm1(2 * rows[i]) + rounding) * most + error + 0x1p-126;
        }
        rows += m;
        out += m * d;
    } while (walk_next(&w));
}

bool eval_composite_error(Eval *e, const Node *n, const Tensor *in, const Tensor *err,
                          const Tensor *y, Tensor *out) {
    int64_t rows = 1;
    if (!eval_alloc(e, out) || eval_numel(y) == 0) return eval_numel(y) == 0;
    for (int i = 0; i + 1 < in[0].rank; i++) rows *= in[0].dim[i];
    double *to = (double *)(void *)out->to;
    if (n->op == OP_logsumexp) {
        EvalScalar v;
        if (!score_errors(e, &in[0], &err[0], to)) return false;
        for (int64_t i = 0; i < rows; i++) {
            eval_load(y, i, 1, 1, &v);
            to[i] += isfinite(v.f) ? SHARE_ERROR * (1 + fabs(v.f)) : 0;
        }
        return true;
    }
    double *row = (double *)alloc_scalars(e, rows);
    bool ok = row && score_errors(e, &in[0], &err[0], row);
    if (ok) attention_errors(n, &in[1], &err[1], y, row, to);
    free(row);
    return ok;
}
