/* Tensors of the evaluator: memory, strides, element access. */
#include "graph/eval/eval_impl.h"
#include "runtime/base/dtype_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

bool eval_fail(Eval *e, DiagId id, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (e->status == GRAPHC_OK)
        e->status = e->diags ? diag(e->diags, id, "", "%s", text) : diag_info[id].status;
    return false;
}

DType eval_storage(const Eval *e, DType t) {
    bool keep = e->round || (e->round_halves && dtype_bytes(t) < 4);
    return !keep && dtype_is_float(t) ? DT_f64 : t;
}

void eval_contiguous_strides(Tensor *t) {
    int64_t s = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        t->stride[i] = s;
        s *= t->dim[i];
    }
}

int64_t eval_numel(const Tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

bool eval_is_contiguous(const Tensor *t) {
    int64_t s = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->dim[i] != 1 && t->stride[i] != s) return false;
        s *= t->dim[i];
    }
    return true;
}

static bool byte_size(const Tensor *t, uint64_t *out) {
    uint64_t n = dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0 || __builtin_mul_overflow(n, (uint64_t)t->dim[i], &n)) return false;
    *out = n;
    return n <= (uint64_t)INT64_MAX;
}

bool eval_alloc(Eval *e, Tensor *t) {
    uint64_t bytes;
    if (!byte_size(t, &bytes) || bytes > e->limit - e->used)
        return eval_fail(e, D_NO_MEMORY, "the evaluator's memory limit of %llu bytes is reached",
                         (unsigned long long)e->limit);
    EvalBlock *b = malloc(sizeof *b + bytes);
    if (!b)
        return eval_fail(e, D_NO_MEMORY, "not enough memory: %llu bytes",
                         (unsigned long long)bytes);
    *b = (EvalBlock){.refs = 1, .bytes = bytes};
    e->used += bytes;
    t->block = b;
    t->data = t->to = (char *)(b + 1);
    eval_contiguous_strides(t);
    return true;
}

bool eval_take(Eval *e, const EvalOther *x, Tensor *t) {
    t->data = x->data;
    if (!x->bytes) return true;
    EvalBlock *b = malloc(sizeof *b);
    if (!b || x->bytes > e->limit - e->used) {
        free(b);
        free(x->data);
        return eval_fail(e, D_NO_MEMORY, "not enough memory: %llu bytes",
                         (unsigned long long)x->bytes);
    }
    *b = (EvalBlock){.refs = 1, .bytes = x->bytes, .taken = x->data};
    e->used += x->bytes;
    t->block = b;
    t->to = x->data;
    return true;
}

bool eval_alloc_over(Eval *e, const Tensor *x, uint32_t n, Tensor *t) {
    uint32_t k = 0;
    while (k < n && !(e->last >> k & 1 && x[k].to && x[k].block && x[k].block->refs == 1 &&
                      x[k].dtype == t->dtype && eval_is_contiguous(&x[k])))
        k++;
    if (k == n) return eval_alloc(e, t);
    t->block = x[k].block;
    t->data = t->to = x[k].to;
    eval_retain(t);
    eval_contiguous_strides(t);
    return true;
}

void eval_retain(const Tensor *t) {
    if (t->block) t->block->refs++;
}

void eval_release(Eval *e, Tensor *t) {
    if (t->block && --t->block->refs == 0) {
        e->used -= t->block->bytes;
        free(t->block->taken);
        free(t->block);
    }
    *t = (Tensor){0};
}

/* ---- Elements ---- */

double eval_unit(DType t) {
    return ldexp(1, -(int)dtype_format[t].man - 1);
}

double eval_least_unit(DType t) {
    return ldexp(1, -dtype_format[t].bias - dtype_format[t].man);
}

/* EvalScalar is a union of double and int64: a row of them is one of either. */
void eval_load(const Tensor *t, int64_t at, int64_t stride, int64_t n, EvalScalar *out) {
    if (dtype_is_float(t->dtype))
        dtype_load_row(t->dtype, t->data, at, stride, n, &out->f);
    else
        dtype_load_ints(t->dtype, t->data, at, stride, n, &out->i);
}

void eval_store(Tensor *t, int64_t at, int64_t stride, int64_t n, const EvalScalar *v) {
    if (dtype_is_float(t->dtype))
        dtype_store_row(t->dtype, t->to, at, stride, n, &v->f);
    else
        dtype_store_ints(t->dtype, t->to, at, stride, n, &v->i);
}

int64_t eval_int(const Tensor *t, int64_t at) {
    return dtype_load_i64(t->dtype, t->data, (size_t)at);
}

/* ---- Walks and copies ---- */

void walk_init(Walk *w, int rank, const int64_t *dim) {
    w->rank = rank;
    w->n = 0;
    for (int i = 0; i < rank; i++) {
        w->dim[i] = dim[i];
        w->at[i] = 0;
    }
}

void walk_add(Walk *w, const int64_t *stride) {
    if (w->rank) memcpy(w->stride[w->n], stride, (size_t)w->rank * sizeof *stride);
    w->off[w->n++] = 0;
}

bool walk_next(Walk *w) {
    for (int d = w->rank - 1; d >= 0; d--) {
        for (int s = 0; s < w->n; s++) w->off[s] += w->stride[s][d];
        if (++w->at[d] < w->dim[d]) return true;
        for (int s = 0; s < w->n; s++) w->off[s] -= w->stride[s][d] * w->dim[d];
        w->at[d] = 0;
    }
    return false;
}

#define COPY_ROW(size)                                                                             \
    for (int64_t i = 0; i < n; i++) memcpy(d + i * ds * (size), s + i * ss * (size), (size))

static void copy_row(Tensor *dst, int64_t to, int64_t ds, const Tensor *src, int64_t from,
                     int64_t ss, int64_t n) {
    int64_t size = (int64_t)dtype_bytes(src->dtype);
    char *d = dst->to + to * (int64_t)dtype_bytes(dst->dtype);
    const char *s = src->data + from * size;
    if (dst->dtype != src->dtype) {
        EvalScalar v[256];
        for (int64_t i = 0, m; i < n; i += m) {
            m = n - i < 256 ? n - i : 256;
            eval_load(src, from + i * ss, ss, m, v);
            eval_store(dst, to + i * ds, ds, m, v);
        }
    } else if (ds == 1 && ss == 1) {
        memcpy(d, s, (size_t)(n * size));
    } else if (size == 8) {
        COPY_ROW(8);
    } else if (size == 4) {
        COPY_ROW(4);
    } else if (size == 2) {
        COPY_ROW(2);
    } else {
        COPY_ROW(1);
    }
}

void eval_copy(Tensor *dst, const Tensor *src) {
    if (eval_numel(src) == 0) return;
    int inner = src->rank - 1;
    if (inner < 0 || (eval_is_contiguous(src) && eval_is_contiguous(dst))) {
        copy_row(dst, 0, 1, src, 0, 1, eval_numel(src));
        return;
    }
    Walk w;
    walk_init(&w, inner, src->dim);
    walk_add(&w, dst->stride);
    walk_add(&w, src->stride);
    do
        copy_row(dst, w.off[0], dst->stride[inner], src, w.off[1], src->stride[inner],
                 src->dim[inner]);
    while (walk_next(&w));
}

bool eval_make_contiguous(Eval *e, const Tensor *x, Tensor *out) {
    *out = *x;
    if (eval_is_contiguous(x)) {
        eval_contiguous_strides(out);
        eval_retain(out);
        return true;
    }
    if (!eval_alloc(e, out)) return false;
    eval_copy(out, x);
    return true;
}
