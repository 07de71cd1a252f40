#include "frontend/driver/npy.h"
#include "frontend/driver/tensor_file.h"
#include "runtime/base/check.h"

#include <stdlib.h>
#include <string.h>

#define NPY_MAGIC      "\x93NUMPY"
#define NPY_MAGIC_SIZE 6
#define NPY_ALIGN      64

bool npy_is(const void *bytes, size_t n) {
    return n >= NPY_MAGIC_SIZE + 4 && memcmp(bytes, NPY_MAGIC, NPY_MAGIC_SIZE) == 0;
}

/* The text after 'key': in the header's dict, or NULL. NumPy writes the dict itself, so a search
 * for the quoted key is enough; a hostile header can only give a wrong value, which is checked. */
static const char *header_value(const char *header, const char *key) {
    const char *p = strstr(header, key);
    if (!p) return NULL;
    p += strlen(key);
    while (*p == ' ' || *p == ':') p++;
    return p;
}

static bool parse_dtype(const char *p, DType *out) {
    if (!p || *p != '\'') return false;
    for (int t = 1; t < DT_COUNT; t++) {
        const char *npy = dtype_info[t].npy;
        size_t n = strlen(npy);
        if (n && strncmp(p + 1, npy, n) == 0 && p[1 + n] == '\'') {
            *out = (DType)t;
            return true;
        }
    }
    return false;
}

static bool parse_shape(const char *p, EvalTensor *out) {
    if (!p || *p++ != '(') return false;
    out->rank = 0;
    while (*p != ')') {
        char *end;
        if (*p < '0' || *p > '9' || out->rank == GRAPH_MAX_RANK) return false;
        unsigned long long v = strtoull(p, &end, 10);
        if (v > (UINT64_C(1) << 48)) return false;
        out->dim[out->rank++] = (int64_t)v;
        p = end;
        while (*p == ',' || *p == ' ' || *p == 'L') p++;
    }
    return true;
}

static bool header_span(const uint8_t *b, size_t n, size_t *at, size_t *len) {
    bool wide = b[6] >= 2;
    *at = wide ? 12 : 10;
    if (n < *at) return false;
    *len = (size_t)b[8] | (size_t)b[9] << 8;
    if (wide) *len |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    return *len <= n - *at;
}

/* The type as the header has it, for messages. */
static graphc_status unknown_type(DiagSink *d, const char *path, const char *descr) {
    const char *end = descr ? strstr(descr, ", 'fortran_order'") : NULL;
    return diag(d, D_UNSUPPORTED_TYPE, path, "element type %.*s is not supported",
                end && end - descr < 80 ? (int)(end - descr) : 0, descr ? descr : "");
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
    size_t at, len;
    int version = ((const uint8_t *)bytes)[NPY_MAGIC_SIZE];
    if (version < 1 || version > 3)
        return diag(d, D_TENSOR, path, "version %d of .npy is not known", version);
    if (!header_span(bytes, n, &at, &len)) return diag(d, D_TENSOR, path, "damaged .npy header");
    const char *header = arena_strndup(a, (const char *)bytes + at, len);
    *out = (EvalTensor){0};
    const char *descr = header_value(header, "'descr'");
    if (!parse_dtype(descr, &out->dtype)) return unknown_type(d, path, descr);
    const char *order = header_value(header, "'fortran_order'");
    bool columns = order && strncmp(order, "True", 4) == 0;
    bool rows = order && strncmp(order, "False", 5) == 0;
    if (!(rows || columns) || !parse_shape(header_value(header, "'shape'"), out))
        return diag(d, D_TENSOR, path, "damaged order or shape in .npy header");
    uint64_t want = dtype_bytes(out->dtype);
    for (int i = 0; i < out->rank; i++)
        if (!check_mul(want, (uint64_t)out->dim[i], &want))
            return diag(d, D_TENSOR, path, "the shape's size overflows");
    if (want != n - at - len)
        return diag(d, D_TENSOR, path, "holds %zu bytes of data, its shape needs %llu",
                    n - at - len, (unsigned long long)want);
    const uint8_t *elements = (const uint8_t *)bytes + at + len;
    out->data = rows ? arena_copy(a, elements, want) : arena_alloc(a, want);
    if (columns) from_columns(out, elements);
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
