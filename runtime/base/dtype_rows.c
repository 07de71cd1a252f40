/* Rows of elements. f16 and bf16 are converted by arithmetic on f64's bits, all others element by
 * element where that is not a plain conversion of C. Elements may lie at any address. */
#include "runtime/base/dtype_rows.h"
#include <math.h>
#include <string.h>

enum { F64_MAN = 52, F64_BIAS = 1023 };

static inline uint64_t bits_of(double v) {
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static inline double of_bits(uint64_t b) {
    double v;
    memcpy(&v, &b, sizeof v);
    return v;
}

/* An IEEE format of 16 bits. */
typedef struct Half {
    int man;
    uint64_t inf;    /* code of infinity */
    double scale;    /* of a code's bits, taken for f64's, to its value */
    double least;    /* the least normal number */
    double rounding; /* added to less than that, leaves units of the least number of all */
} Half;

#define HALF_F16  ((Half){10, 0x7c00, 0x1p1008, 0x1p-14, 0x1p28})
#define HALF_BF16 ((Half){7, 0x7f80, 0x1p896, 0x1p-126, 0x1p-81})

/* Codes below the least normal number are f64's below its own: scaling makes both exact. */
static inline double half_decode(Half h, uint16_t code) {
    uint64_t mag = code & 0x7fffu, sign = (uint64_t)(code >> 15) << 63;
    double v = of_bits(mag << (F64_MAN - h.man)) * h.scale;
    v = mag == h.inf ? (double)INFINITY : v;
    v = mag > h.inf ? (double)NAN : v;
    return of_bits(bits_of(v) | sign);
}

/* To nearest even: by a carry into what stays, below the least normal number by a sum. */
static inline uint16_t half_encode(Half h, double v) {
    const int drop = F64_MAN - h.man;
    const uint64_t top = (uint64_t)(h.inf >> h.man) >> 1; /* bias */
    uint64_t sign = bits_of(v) >> 63 << 15, mag = bits_of(v) & ~(UINT64_C(1) << 63);
    uint64_t kept = (mag + (UINT64_C(1) << (drop - 1)) - 1 + (mag >> drop & 1)) >> drop;
    uint64_t code = kept - ((F64_BIAS - top) << h.man);
    double a = of_bits(mag), small = a + h.rounding;
    code = a < h.least ? bits_of(small) - bits_of(h.rounding) : code;
    code = a >= h.least && kept >= ((F64_BIAS - top) << h.man) + h.inf ? h.inf : code;
    code = a != a ? h.inf | UINT64_C(1) << (h.man - 1) : code;
    return (uint16_t)(sign | code);
}

/* Loops over elements of T, of neighbours by itself, which becomes vectors; `x` is an element. */
#define LOADER(name, T, To, result)                                                                \
    static CLONES void load_##name(const char *p, int64_t stride, int64_t n, To *out) {            \
        T x;                                                                                       \
        if (stride == 1)                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                      \
                memcpy(&x, p + i * (int64_t)sizeof x, sizeof x);                                   \
                out[i] = result;                                                                   \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                memcpy(&x, p + i * stride * (int64_t)sizeof x, sizeof x);                          \
                out[i] = result;                                                                   \
            }                                                                                      \
    }
#define STORER(name, T, From, value)                                                               \
    static CLONES void store_##name(char *p, int64_t stride, int64_t n, const From *v) {           \
        T x;                                                                                       \
        if (stride == 1)                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                      \
                x = value;                                                                         \
                memcpy(p + i * (int64_t)sizeof x, &x, sizeof x);                                   \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                x = value;                                                                         \
                memcpy(p + i * stride * (int64_t)sizeof x, &x, sizeof x);                          \
            }                                                                                      \
    }

LOADER(f64, double, double, x)
LOADER(f32, float, double, (double)x)
LOADER(f16, uint16_t, double, half_decode(HALF_F16, x))
LOADER(bf16, uint16_t, double, half_decode(HALF_BF16, x))
LOADER(i64, int64_t, int64_t, x)
LOADER(i32, int32_t, int64_t, x)
LOADER(u32, uint32_t, int64_t, x)
LOADER(i16, int16_t, int64_t, x)
LOADER(u16, uint16_t, int64_t, x)
LOADER(i8, int8_t, int64_t, x)
LOADER(u8, uint8_t, int64_t, x)
LOADER(bool, uint8_t, int64_t, x != 0)

STORER(f64, double, double, v[i])
STORER(f32, float, double, (float)v[i])
STORER(f16, uint16_t, double, half_encode(HALF_F16, v[i]))
STORER(bf16, uint16_t, double, half_encode(HALF_BF16, v[i]))
STORER(64, int64_t, int64_t, v[i])
STORER(32, uint32_t, int64_t, (uint32_t)v[i])
STORER(16, uint16_t, int64_t, (uint16_t)v[i])
STORER(8, uint8_t, int64_t, (uint8_t)v[i])
STORER(bool, uint8_t, int64_t, v[i] != 0)

void dtype_load_row(DType t, const void *p, int64_t at, int64_t stride, int64_t n, double *out) {
    const char *from = (const char *)p + at * (int64_t)dtype_bytes(t);
    switch (t) {
    case DT_f64: load_f64(from, stride, n, out); break;
    case DT_f32: load_f32(from, stride, n, out); break;
    case DT_f16: load_f16(from, stride, n, out); break;
    case DT_bf16: load_bf16(from, stride, n, out); break;
    default:
        for (int64_t i = 0; i < n; i++) out[i] = dtype_load_f64(t, p, (size_t)(at + i * stride));
    }
}

void dtype_store_row(DType t, void *p, int64_t at, int64_t stride, int64_t n, const double *v) {
    char *to = (char *)p + at * (int64_t)dtype_bytes(t);
    switch (t) {
    case DT_f64: store_f64(to, stride, n, v); break;
    case DT_f32: store_f32(to, stride, n, v); break;
    case DT_f16: store_f16(to, stride, n, v); break;
    case DT_bf16: store_bf16(to, stride, n, v); break;
    default:
        for (int64_t i = 0; i < n; i++) dtype_store_f64(t, p, (size_t)(at + i * stride), v[i]);
    }
}

void dtype_load_ints(DType t, const void *p, int64_t at, int64_t stride, int64_t n, int64_t *out) {
    const char *from = (const char *)p + at * (int64_t)dtype_bytes(t);
    switch (t) {
    case DT_i64:
    case DT_u64: load_i64(from, stride, n, out); break;
    case DT_i32: load_i32(from, stride, n, out); break;
    case DT_u32: load_u32(from, stride, n, out); break;
    case DT_i16: load_i16(from, stride, n, out); break;
    case DT_u16: load_u16(from, stride, n, out); break;
    case DT_i8: load_i8(from, stride, n, out); break;
    case DT_u8: load_u8(from, stride, n, out); break;
    case DT_bool: load_bool(from, stride, n, out); break;
    default:
        for (int64_t i = 0; i < n; i++) out[i] = dtype_load_i64(t, p, (size_t)(at + i * stride));
    }
}

void dtype_store_ints(DType t, void *p, int64_t at, int64_t stride, int64_t n, const int64_t *v) {
    char *to = (char *)p + at * (int64_t)dtype_bytes(t);
    switch (t) {
    case DT_i64:
    case DT_u64: store_64(to, stride, n, v); break;
    case DT_i32:
    case DT_u32: store_32(to, stride, n, v); break;
    case DT_i16:
    case DT_u16: store_16(to, stride, n, v); break;
    case DT_i8:
    case DT_u8: store_8(to, stride, n, v); break;
    case DT_bool: store_bool(to, stride, n, v); break;
    default:
        for (int64_t i = 0; i < n; i++) dtype_store_i64(t, p, (size_t)(at + i * stride), v[i]);
    }
}
