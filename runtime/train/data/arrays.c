#include "runtime/train/data/arrays.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void arrays_init(Arrays *a) {
    *a = (Arrays){0};
}

static void array_free(Array *a) {
    free(a->name);
    if (a->map.data) file_unmap(&a->map);
}

void arrays_free(Arrays *a) {
    for (uint32_t i = 0; i < a->n; i++) array_free(&a->v[i]);
    free(a->v);
    *a = (Arrays){0};
}

static graphc_status check_finite(const NpyView *v, ErrorText e) {
    uint64_t n = v->bytes / dtype_bytes(v->dtype), row = v->dim[0] ? n / (uint64_t)v->dim[0] : 1;
    for (uint64_t i = 0; dtype_is_float(v->dtype) && i < n; i++) {
        double x = dtype_load_f64(v->dtype, v->data, i);
        if (isfinite(x)) continue;
        return error_set(e, GRAPHC_INVALID, "row %llu, element %llu is %s",
                         (unsigned long long)(i / row), (unsigned long long)(i % row),
                         isnan(x) ? "NaN" : "infinite");
    }
    return GRAPHC_OK;
}

static graphc_status read_array(const Arrays *a, Array *out, const char *path, ErrorText e) {
    char why[256];
    graphc_status st = file_map(path, &out->map, why);
    if (st != GRAPHC_OK) return error_set(e, st, "%s", why);
    GC_TRY(npy_view(out->map.data, out->map.size, &out->view, e));
    const NpyView *v = &out->view;
    if (v->rank < 1 || !v->dim[0] || v->columns)
        return error_set(e, GRAPHC_INVALID, "%s; data has rows along a first axis, in C order",
                         v->columns    ? "is in Fortran order"
                         : v->rank < 1 ? "is a scalar"
                                       : "has no row");
    if (a->n && (uint64_t)v->dim[0] != a->rows)
        return error_set(e, GRAPHC_INVALID, "has %lld rows, \"%s\" has %llu", (long long)v->dim[0],
                         a->v[0].name, (unsigned long long)a->rows);
    out->row_bytes = v->bytes / (uint64_t)v->dim[0];
    return check_finite(v, e);
}

graphc_status arrays_add(Arrays *a, const char *name, const char *path, ErrorText e) {
    Array got = {.name = strdup(name)};
    Array *more = reallocarray(a->v, a->n + 1, sizeof *more);
    if (more) a->v = more;
    graphc_status st = GRAPHC_OK;
    if (!more || !got.name)
        st = error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    else if (arrays_find(a, name))
        st = error_set(e, GRAPHC_USAGE, "\"%s\" has data already", name);
    else
        st = read_array(a, &got, path, e);
    if (st != GRAPHC_OK) {
        array_free(&got);
        return st;
    }
    a->rows = (uint64_t)got.view.dim[0];
    a->v[a->n++] = got;
    return GRAPHC_OK;
}

const Array *arrays_find(const Arrays *a, const char *name) {
    for (uint32_t i = 0; i < a->n; i++)
        if (strcmp(a->v[i].name, name) == 0) return &a->v[i];
    return NULL;
}

void array_rows(const Array *a, const uint64_t *rows, uint32_t count, void *out) {
    for (uint32_t i = 0; i < count; i++)
        memcpy((uint8_t *)out + i * a->row_bytes,
               (const uint8_t *)a->view.data + rows[i] * a->row_bytes, a->row_bytes);
}
