/* What a merged parameter's elements are: W + s B A, in f64, rounded once. */
#include "frontend/driver/merge/merge.h"

#include <math.h>
#include <stdlib.h>

/* The product is up [rows, rank] times across [rank, columns], as the initializer lies there */
typedef struct Product {
    const MergeItem *m;
    int64_t rows, columns, rank;
    double *up, *across, *row;
    double *length; /* of DoRA: m / ||.|| by output; NULL */
} Product;

static double element(const SafeTensor *t, int64_t i) {
    return dtype_load_f64(t->dtype, t->data, (size_t)i);
}

/* One row of W + s B A. */
static const double *row_of(const Product *p, int64_t i) {
    for (int64_t k = 0; k < p->columns; k++)
        p->row[k] = dtype_load_f64(p->m->dtype, p->m->from->data, (size_t)(i * p->columns + k));
    for (int64_t r = 0; r < p->rank; r++) {
        const double u = p->up[i * p->rank + r], *v = p->across + r * p->columns;
        for (int64_t k = 0; k < p->columns; k++) p->row[k] += u * v[k];
    }
    return p->row;
}

static void fill_factors(Product *p) {
    const AdapterModule *m = p->m->module;
    const bool turned = p->m->transposed;
    const int64_t in = m->a.dim[1], out = m->b.dim[0];
    for (int64_t r = 0; r < p->rank; r++) {
        for (int64_t i = 0; i < in; i++)
            *(turned ? &p->across[r * in + i] : &p->up[i * p->rank + r]) =
                element(&m->a, r * in + i);
        for (int64_t i = 0; i < out; i++)
            *(turned ? &p->up[i * p->rank + r] : &p->across[r * out + i]) =
                m->scale * element(&m->b, i * p->rank + r);
    }
}

static void fill_lengths(Product *p) {
    const SafeTensor *magnitude = &p->m->module->magnitude;
    const int64_t out = p->m->module->b.dim[0];
    for (int64_t i = 0; i < p->rows; i++) {
        const double *row = row_of(p, i);
        for (int64_t k = 0; k < p->columns; k++)
            p->length[p->m->transposed ? i : k] += row[k] * row[k];
    }
    for (int64_t i = 0; i < out; i++) p->length[i] = element(magnitude, i) / sqrt(p->length[i]);
}

static graphc_status too_large(const Merge *all, const MergeItem *m) {
    return diag(all->diags, D_ADAPTER, m->name, "the sum is no number, or too large for %s",
                dtype_name(m->dtype));
}

static bool put(const MergeItem *m, void *to, size_t at, double x) {
    dtype_store_f64(m->dtype, to, at, x);
    return isfinite(dtype_load_f64(m->dtype, to, at));
}

static bool put_product(Product *p, void *to) {
    bool finite = true;
    fill_factors(p);
    if (p->length) fill_lengths(p);
    for (int64_t i = 0; i < p->rows; i++) {
        const double *row = row_of(p, i);
        for (int64_t k = 0; k < p->columns; k++) {
            double c = p->length ? p->length[p->m->transposed ? i : k] : 1;
            finite &= put(p->m, to, (size_t)(i * p->columns + k), c * row[k]);
        }
    }
    return finite;
}

static graphc_status product(const Merge *all, const MergeItem *m, void *to) {
    Product p = {.m = m, .rows = m->dim[0], .columns = m->dim[1], .rank = m->module->a.dim[0]};
    bool dora = m->module->magnitude.dtype != DT_none;
    p.up = calloc((size_t)(p.rows * p.rank) + 1, sizeof *p.up);
    p.across = calloc((size_t)(p.columns * p.rank) + 1, sizeof *p.across);
    p.row = calloc((size_t)p.columns + 1, sizeof *p.row);
    if (dora) p.length = calloc((size_t)m->module->b.dim[0] + 1, sizeof *p.length);
    graphc_status st = GRAPHC_OK;
    if (!p.up || !p.across || !p.row || (dora && !p.length))
        st = diag(all->diags, D_NO_MEMORY, m->name, "not enough memory");
    else if (!put_product(&p, to))
        st = too_large(all, m);
    free(p.up);
    free(p.across);
    free(p.row);
    free(p.length);
    return st;
}

graphc_status merge_elements(const Merge *all, const MergeItem *m, void *to) {
    const uint64_t n = merge_count(m), columns = m->rank == 2 ? (uint64_t)m->dim[1] : 1,
                   rows = n / (columns ? columns : 1);
    bool finite = true;
    if (m->module) return product(all, m, to);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = m->turned ? i % columns * rows + i / columns : i;
        double x = m->whole ? element(m->whole, (int64_t)from)
                            : dtype_load_f64(m->dtype, m->from->data, i);
        if (m->bias) x += m->bias->scale * element(&m->bias->bias, (int64_t)i);
        finite &= put(m, to, i, x);
    }
    return finite ? GRAPHC_OK : too_large(all, m);
}
