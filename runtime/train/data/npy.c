#include "runtime/train/data/npy.h"
#include "runtime/base/check.h"
#include <stdlib.h>
#include <string.h>

#define NPY_MAGIC "\x93NUMPY"
enum { MAGIC_SIZE = 6, MAX_HEADER = 1 << 16 };

bool npy_is(const void *bytes, size_t n) {
    return n >= MAGIC_SIZE + 4 && memcmp(bytes, NPY_MAGIC, MAGIC_SIZE) == 0;
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

static bool parse_shape(const char *p, NpyView *out) {
    if (!p || *p++ != '(') return false;
    out->rank = 0;
    while (*p != ')') {
        char *end;
        if (*p < '0' || *p > '9' || out->rank == NPY_MAX_RANK) return false;
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
    return *len <= n - *at && *len <= MAX_HEADER;
}

/* The type as the header has it, for messages. */
static graphc_status unknown_type(ErrorText e, const char *descr) {
    const char *end = descr ? strstr(descr, ", 'fortran_order'") : NULL;
    return error_set(e, GRAPHC_UNSUPPORTED, "element type %.*s is not supported",
                     end && end - descr < 80 ? (int)(end - descr) : 0, descr ? descr : "");
}

static graphc_status parse_header(const char *header, NpyView *out, ErrorText e) {
    const char *descr = header_value(header, "'descr'");
    if (!parse_dtype(descr, &out->dtype)) return unknown_type(e, descr);
    const char *order = header_value(header, "'fortran_order'");
    out->columns = order && strncmp(order, "True", 4) == 0;
    bool rows = order && strncmp(order, "False", 5) == 0;
    if (!(rows || out->columns) || !parse_shape(header_value(header, "'shape'"), out))
        return error_set(e, GRAPHC_INVALID, "damaged order or shape in .npy header");
    return GRAPHC_OK;
}

graphc_status npy_view(const void *bytes, size_t n, NpyView *out, ErrorText e) {
    size_t at, len;
    *out = (NpyView){0};
    if (!npy_is(bytes, n)) return error_set(e, GRAPHC_INVALID, "is no .npy file");
    int version = ((const uint8_t *)bytes)[MAGIC_SIZE];
    if (version < 1 || version > 3)
        return error_set(e, GRAPHC_INVALID, "version %d of .npy is not known", version);
    if (!header_span(bytes, n, &at, &len))
        return error_set(e, GRAPHC_INVALID, "damaged .npy header");
    char *header = strndup((const char *)bytes + at, len);
    if (!header) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    graphc_status st = parse_header(header, out, e);
    free(header);
    GC_TRY(st);
    uint64_t want = dtype_bytes(out->dtype);
    for (uint32_t i = 0; i < out->rank; i++)
        if (!check_mul(want, (uint64_t)out->dim[i], &want))
            return error_set(e, GRAPHC_INVALID, "the shape's size overflows");
    if (want != n - at - len)
        return error_set(e, GRAPHC_INVALID, "holds %zu bytes of data, its shape needs %llu",
                         n - at - len, (unsigned long long)want);
    out->data = (const uint8_t *)bytes + at + len;
    out->bytes = want;
    return GRAPHC_OK;
}
