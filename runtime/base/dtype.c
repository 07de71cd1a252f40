/* Element types: the table and integer access. Narrow floats are in dtype_float.c. */
#include "runtime/base/dtype.h"
#include "runtime/base/dtype_float.h"
#include <string.h>

const DTypeInfo dtype_info[DT_COUNT] = {
    [DT_none] = {.name = "none", .npy = "", .st = ""},
#define DTYPE(name, bytes, bits, cls, onnx, dlcode, dlbits, npy, st)                               \
    [DT_##name] = {#name, bytes, bits, DCLASS_##cls, onnx, dlcode, dlbits, npy, st},
#include "runtime/base/dtype.def"
#undef DTYPE
};

size_t dtype_bytes(DType t) {
    return dtype_info[t].bytes;
}
const char *dtype_name(DType t) {
    return dtype_info[t].name;
}
bool dtype_is_float(DType t) {
    return dtype_info[t].cls == DCLASS_F;
}
bool dtype_is_signed(DType t) {
    return dtype_info[t].cls == DCLASS_I;
}
bool dtype_is_int(DType t) {
    return dtype_is_signed(t) || dtype_info[t].cls == DCLASS_U;
}

bool dtype_from_name(const char *name, DType *out) {
    for (int t = 1; t < DT_COUNT; t++) {
        if (strcmp(dtype_info[t].name, name)) continue;
        *out = (DType)t;
        return true;
    }
    return false;
}

bool dtype_from_onnx(int code, DType *out) {
    for (int t = 1; t < DT_COUNT; t++) {
        if (dtype_info[t].onnx != code) continue;
        *out = (DType)t;
        return true;
    }
    return false;
}

const char *dtype_onnx_name(int64_t code) {
    static const char *const others[] = {
        [0] = "undefined", [8] = "string", [14] = "complex64", [15] = "complex128"};
    DType t;
    if (code == (int)code && dtype_from_onnx((int)code, &t)) return dtype_name(t);
    bool known = code >= 0 && code < (int64_t)(sizeof others / sizeof *others) && others[code];
    return known ? others[code] : "unknown";
}

void dtype_int_range(DType t, int64_t *lo, uint64_t *hi) {
    const DTypeInfo *d = &dtype_info[t];
    bool is_signed = d->cls == DCLASS_I;
    unsigned bits = d->cls == DCLASS_B ? 1 : is_signed ? d->bits - 1U : d->bits;
    *hi = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    *lo = is_signed ? -(int64_t)*hi - 1 : 0;
}

/* Truncation with the value that x86 gives where C leaves it undefined. */
static int64_t trunc_i64(double v) {
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
}

static int64_t trunc_wrapping(DType t, double v) {
    if (t == DT_u64 && v >= 0x1p63 && v < 0x1p64) return (int64_t)(uint64_t)v;
    return trunc_i64(v);
}

/* The low `bits` of v as the type's value. */
static int64_t wrap(const DTypeInfo *d, int64_t v) {
    unsigned drop = 64U - d->bits;
    uint64_t high = (uint64_t)v << drop;
    return d->cls == DCLASS_I ? (int64_t)high >> drop : (int64_t)(high >> drop);
}

static int64_t load_int(DType t, const void *p, size_t index) {
    const DTypeInfo *d = &dtype_info[t];
    uint64_t raw = 0;
    memcpy(&raw, (const char *)p + index * d->bytes, d->bytes); /* little-endian hosts only */
    return d->cls == DCLASS_B ? raw != 0 : wrap(d, (int64_t)raw);
}

static void store_int(DType t, void *p, size_t index, int64_t v) {
    const DTypeInfo *d = &dtype_info[t];
    int64_t w = d->cls == DCLASS_B ? v != 0 : wrap(d, v);
    memcpy((char *)p + index * d->bytes, &w, d->bytes);
}

double dtype_load_f64(DType t, const void *p, size_t index) {
    if (dtype_is_float(t)) return dtype_float_load(t, p, index);
    int64_t v = load_int(t, p, index);
    return t == DT_u64 ? (double)(uint64_t)v : (double)v;
}

void dtype_store_f64(DType t, void *p, size_t index, double v) {
    if (dtype_is_float(t))
        dtype_float_store(t, p, index, v);
    else if (t == DT_bool)
        store_int(t, p, index, v != 0);
    else
        store_int(t, p, index, trunc_wrapping(t, v));
}

int64_t dtype_load_i64(DType t, const void *p, size_t index) {
    if (dtype_is_float(t)) return trunc_i64(dtype_float_load(t, p, index));
    return load_int(t, p, index);
}

void dtype_store_i64(DType t, void *p, size_t index, int64_t v) {
    if (t == DT_f32) {
        float f = (float)v; /* not through double: one rounding */
        memcpy((char *)p + index * sizeof f, &f, sizeof f);
    } else if (dtype_is_float(t)) {
        dtype_float_store(t, p, index, (double)v);
    } else {
        store_int(t, p, index, v);
    }
}
