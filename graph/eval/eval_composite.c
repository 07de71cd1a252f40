/* Composites, row by row and in f64. */
#include "graph/eval/eval_impl.h"

#include <math.h>
#include <stdlib.h>

static EvalScalar *alloc_scalars(Eval *e, int64_t n) {
    EvalScalar *p = calloc((size_t)(n ? n : 1), sizeof *p);
    if (!p) eval_fail(e, D_NO_MEMORY, "not enough memory: %lld operands", (long long)n);
    return p;
}

/* x[n] = exp(x - max) in place; the result is their sum. finite: an infinite maximum counts as 0 */
static double exponentials(EvalScalar *x, int64_t n, bool finite, double *max) {
    double sum = 0;
    *max = -INFINITY;
    for (int64_t i = 0; i < n; i++) /* a NaN stays: nothing is greater */
        if (x[i].f > *max || isnan(x[i].f)) *max = x[i].f;
    if (finite && isinf(*max)) *max = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i].f = exp(x[i].f - *max);
    return sum;
}

enum { ATTEND_ROWS = 32 }; /* of scores that are multiplied together */

/* One matrix: rows of scores, values v[n][d] read already. */
typedef struct Rows {
    const Tensor *scores;
    int64_t m, n, d;
    EvalScalar *v, *p, *o, *strip; /* p, o: ATTEND_ROWS rows each */
    bool guarded;
} Rows;

/* Shares of one row of scores. */
static void shares(const Rows *r, int64_t at, EvalScalar *p) {
    double max, sum;
    eval_load(r->scores, at, r->scores->stride[r->scores->rank - 1], r->n, p);
    sum = exponentials(p, r->n, false, &max);
    for (int64_t j = 0; j < r->n; j++) {
        p[j].f /= sum;
        if (r->guarded && isnan(p[j].f)) p[j].f = 0;
    }
}

static void attend(const Rows *r, int64_t at, Tensor *out, int64_t to) {
    const int64_t down = r->scores->stride[r->scores->rank - 2];
    for (int64_t i = 0, rows; i < r->m; i += rows) {
        rows = r->m - i < ATTEND_ROWS ? r->m - i : ATTEND_ROWS;
        for (int64_t k = 0; k < rows; k++) shares(r, at + (i + k) * down, r->p + k * r->n);
        eval_multiply_f(rows, r->d, r->n, &r->p->f, &r->v->f, r->d, &r->o->f, &r->strip->f);
        eval_store(out, to + i * r->d, 1, rows * r->d, r->o);
    }
}

bool eval_attention(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    int r = out->rank;
    Rows x = {.scores = &in[0], .m = out->dim[r - 2], .n = in[0].dim[r - 1], .d = out->dim[r - 1]};
    x.guarded = n->attr.attention.guarded;
    x.v = alloc_scalars(e, x.n * x.d);
    x.p = alloc_scalars(e, ATTEND_ROWS * x.n);
    x.o = alloc_scalars(e, ATTEND_ROWS * x.d);
    x.strip = alloc_scalars(e, EVAL_STRIP * x.n);
    bool ok = x.v && x.p && x.o && x.strip;
    Walk w;
    walk_init(&w, r - 2, out->dim);
    walk_add(&w, in[0].stride);
    walk_add(&w, in[1].stride);
    walk_add(&w, out->stride);
    if (ok) do {
            for (int64_t j = 0; j < x.n; j++)
                eval_load(&in[1], w.off[1] + j * in[1].stride[r - 2], in[1].stride[r - 1], x.d,
                          x.v + j * x.d);
            attend(&x, w.off[0], out, w.off[2]);
        } while (walk_next(&w));
    free(x.v);
    free(x.p);
    free(x.o);
    free(x.strip);
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

/* to[d] = the largest |x| of each column of a matrix. */
static void column_most(const Tensor *x, int64_t at, EvalScalar *row, double *to) {
    const int64_t n = x->dim[x->rank - 2], d = x->dim[x->rank - 1];
    for (int64_t c = 0; c < d; c++) to[c] = 0;
    for (int64_t j = 0; j < n; j++) {
        eval_load(x, at + j * x->stride[x->rank - 2], x->stride[x->rank - 1], d, row);
        for (int64_t c = 0; c < d; c++) to[c] = fabs(row[c].f) > to[c] ? fabs(row[c].f) : to[c];
    }
}

/* Shares of a row add up to 1, so a column's largest value bounds their sum with its values. */
static bool attention_errors(Eval *e, const Node *n, const Tensor *v, const Tensor *ev,
                             const Tensor *y, double *rows, double *out) {
    int r = y->rank;
    int64_t m = y->dim[r - 2], d = y->dim[r - 1], depth = v->dim[r - 2];
    double rounding = SHARE_ERROR + 4 * sqrt((double)depth) * 0x1p-24;
    if (dtype_is_half(n->type.dtype)) rounding += 2 * eval_unit(n->type.dtype);
    EvalScalar *row = alloc_scalars(e, 3 * d);
    Walk w;
    walk_init(&w, r - 2, y->dim);
    walk_add(&w, v->stride);
    walk_add(&w, ev->stride);
    if (row) do {
            double *most = &row[d].f, *error = most + d;
            column_most(v, w.off[0], row, most);
            column_most(ev, w.off[1], row, error);
            for (int64_t i = 0; i < m; i++) {
                const double share = expm1(2 * rows[i]) + rounding;
                for (int64_t c = 0; c < d; c++)
                    out[i * d + c] = share * most[c] + error[c] + 0x1p-126;
            }
            rows += m;
            out += m * d;
        } while (walk_next(&w));
    free(row);
    return row != NULL;
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
    ok = ok && attention_errors(e, n, &in[1], &err[1], y, row, to);
    free(row);
    return ok;
}
