#include "frontend/driver/tensors/npy.h"

#include <string.h>

#define NPY_MAGIC "\x93NUMPY"
#define NPY_ALIGN 64

uint64_t tensor_numel(const EvalTensor *t) {
    uint64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (uint64_t)t->dim[i];
    return n;
}

/* Elements that lie with their first index fastest, to the last index fastest. */
static void from_columns(const EvalTensor *t, const uint8_t *in) {
    size_t bytes = dtype_bytes(t->dtype), stride[GRAPH_MAX_RANK], step = 1;
    for (int k = 0; k < t->rank; k++) {
        stride[k] = step;
        step *= (size_t)t->dim[k];
    }
    for (size_t i = 0; i < step; i++) {
        size_t rest = i, at = 0;
        for (int k = t->rank; k-- > 0; rest /= (size_t)t->dim[k])
            at += rest % (size_t)t->dim[k] * stride[k];
        memcpy((uint8_t *)t->data + i * bytes, in + at * bytes, bytes);
    }
}

graphc_status npy_decode(Arena *a, DiagSink *d, const char *path, const void *bytes, size_t n,
                         EvalTensor *out) {
    NpyView v;
    char why[256];
    graphc_status st = npy_view(bytes, n, &v, (ErrorText){why, sizeof why});
    if (st != GRAPHC_OK)
        return diag(d, st == GRAPHC_UNSUPPORTED ? D_UNSUPPORTED_TYPE : D_TENSOR, path, "%s", why);
    *out = (EvalTensor){.dtype = v.dtype, .rank = (uint8_t)v.rank};
    memcpy(out->dim, v.dim, sizeof *v.dim * v.rank);
    out->data = v.columns ? arena_alloc(a, v.bytes) : arena_copy(a, v.data, v.bytes);
    if (v.columns) from_columns(out, v.data);
    return GRAPHC_OK;
}

graphc_status npy_has_type(DiagSink *d, const char *path, DType t) {
    if (*dtype_info[t].npy) return GRAPHC_OK;
    (void)diag(d, D_UNSUPPORTED_TYPE, path, ".npy has no element type for %s", dtype_name(t));
    diag_hint(d, "use --output-format pb");
    return GRAPHC_UNSUPPORTED;
}

graphc_status npy_encode(Arena *a, DiagSink *d, const char *path, const EvalTensor *t, void **out,
                         size_t *n) {
    GC_TRY(npy_has_type(d, path, t->dtype));
    const char *type = dtype_info[t->dtype].npy;
    StrBuf s;
    sb_init(&s, a);
    sb_printf(&s, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
    for (int i = 0; i < t->rank; i++)
        sb_printf(&s, "%lld%s", (long long)t->dim[i], t->rank == 1 || i + 1 < t->rank ? ", " : "");
    sb_put(&s, "), }");
    while ((10 + s.n + 1) % NPY_ALIGN) sb_put(&s, " ");
    sb_put(&s, "\n");
    size_t data = (size_t)tensor_numel(t) * dtype_bytes(t->dtype);
    uint8_t *p = arena_alloc(a, 10 + s.n + data);
    memcpy(p, NPY_MAGIC "\x01\x00", 8);
    p[8] = (uint8_t)s.n;
    p[9] = (uint8_t)(s.n >> 8);
    memcpy(p + 10, s.p, s.n);
    if (data) memcpy(p + 10 + s.n, t->data, data);
    *out = p;
    *n = 10 + s.n + data;
    return GRAPHC_OK;
}
