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
