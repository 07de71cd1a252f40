/* Element types: the table, and what follows from a row. Reading and writing: dtype_convert.c. */
#include "runtime/base/dtype.h"
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
