/* Element types and scalar conversion. The table is dtype.def. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum DType {
    DT_none = 0,
#define DTYPE(name, bytes, bits, cls, onnx, dlcode, dlbits, npy, st) DT_##name,
#include "runtime/base/dtype.def"
#undef DTYPE
    DT_COUNT
} DType;

typedef enum DClass { DCLASS_NONE, DCLASS_F, DCLASS_I, DCLASS_U, DCLASS_B } DClass;

typedef struct DTypeInfo {
    const char *name;
    uint8_t bytes, bits, cls, onnx, dlcode, dlbits;
    const char *npy, *st;
} DTypeInfo;

extern const DTypeInfo dtype_info[DT_COUNT];

typedef enum DSpecial {
    DSPECIAL_ieee,
    DSPECIAL_fn,
    DSPECIAL_fnuz,
    DSPECIAL_none,
    DSPECIAL_power
} DSpecial;

typedef struct DFormat {
    uint8_t exp, man; /* field widths */
    uint8_t special;
    int16_t bias;
} DFormat;

extern const DFormat dtype_format[DT_COUNT]; /* of float types */

/* Codes of float types of at most 16 bits, sign clear; 0: there is none. FNUZ's NaN is the sign. */
uint32_t dtype_max_code(DType t); /* of the largest finite value */
uint32_t dtype_inf_code(DType t);
uint32_t dtype_nan_code(DType t);
bool dtype_is_half(DType t); /* a float of 16 bits, computed in f32 */

size_t dtype_bytes(DType t);
const char *dtype_name(DType t);
bool dtype_is_float(DType t);  /* class F */
bool dtype_is_int(DType t);    /* class I or U */
bool dtype_is_signed(DType t); /* class I */
bool dtype_from_name(const char *name, DType *out);
bool dtype_from_onnx(int code, DType *out);
const char *dtype_onnx_name(int64_t code); /* for messages; "unknown" if ONNX has no such type */
/* Smallest and largest value of an integer type (bool: 0, 1). */
void dtype_int_range(DType t, int64_t *lo, uint64_t *hi);

/* One element to and from double, round to nearest even. Integers saturate nowhere: they wrap as a
 * C conversion through int64_t or uint64_t does. 64-bit integers beyond 2^53 need the int forms. */
double dtype_load_f64(DType t, const void *p, size_t index);
void dtype_store_f64(DType t, void *p, size_t index, double v);
int64_t dtype_load_i64(DType t, const void *p, size_t index);
void dtype_store_i64(DType t, void *p, size_t index, int64_t v);

#endif
