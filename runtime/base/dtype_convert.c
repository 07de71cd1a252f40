/* Elements as numbers, and numbers as elements. Every binary format narrower than f32 is one row of
 * dtype.def. Rounding to nearest even happens on the exact scaled value, so nothing is rounded
 * twice. Overflow gives infinity, NaN where there is none, and the largest value where there is
 * neither. */
#include "runtime/base/dtype.h"
#include <math.h>
#include <string.h>

const DFormat dtype_format[DT_COUNT] = {
#define DTYPE_FORMAT(name, exp, man, bias, special)                                                \
    [DT_##name] = {exp, man, DSPECIAL_##special, bias},
#include "runtime/base/dtype.def"
#undef DTYPE_FORMAT
};

static uint32_t sign_bit(const DFormat *f) {
    return 1U << (f->exp + f->man);
}

static uint32_t max_finite(const DFormat *f) {
    uint32_t top = sign_bit(f) - 1;
    if (f->special == DSPECIAL_ieee) return top - (1U << f->man);
    return f->special == DSPECIAL_fn || f->special == DSPECIAL_power ? top - 1 : top;
}

uint32_t dtype_max_code(DType t) {
    return max_finite(&dtype_format[t]);
}

uint32_t dtype_inf_code(DType t) {
    return dtype_format[t].special == DSPECIAL_ieee ? dtype_max_code(t) + 1 : 0;
}

uint32_t dtype_nan_code(DType t) {
    const DFormat *f = &dtype_format[t];
    switch ((DSpecial)f->special) {
    case DSPECIAL_ieee: return (max_finite(f) + 1) | (1U << (f->man - 1));
    case DSPECIAL_fn:
    case DSPECIAL_power: return max_finite(f) + 1;
    case DSPECIAL_fnuz: return sign_bit(f);
    default: return 0;
    }
}

bool dtype_is_half(DType t) {
    return dtype_is_float(t) && dtype_bytes(t) == 2;
}

enum { F64_MAN = 52, F64_BIAS = 1023 };

static double decode(const DFormat *f, uint32_t code) {
    uint32_t sign = code & sign_bit(f), mag = code & (sign_bit(f) - 1);
    if (f->special == DSPECIAL_fnuz && sign && !mag) return NAN;
    if (mag > max_finite(f)) {
        bool inf = f->special == DSPECIAL_ieee && mag == max_finite(f) + 1;
        return copysign(inf ? (double)INFINITY : (double)NAN, sign ? -1.0 : 1.0);
    }
    uint32_t e = mag >> f->man, m = mag & ((1U << f->man) - 1);
    double v;
    if (e) { /* f64 holds every normal number as it is */
        uint64_t bits =
            (uint64_t)((int)e - f->bias + F64_BIAS) << F64_MAN | (uint64_t)m << (F64_MAN - f->man);
        memcpy(&v, &bits, sizeof v);
    } else {
        v = ldexp(m, 1 - f->bias - f->man);
    }
    return sign ? -v : v;
}

static uint32_t nan_code(DType t, uint32_t sign) {
    uint32_t code = dtype_nan_code(t); /* -0 where there is no NaN */
    return code ? code | sign : sign_bit(&dtype_format[t]);
}

static uint32_t overflow_code(DType t, uint32_t sign) {
    if (dtype_inf_code(t)) return sign | dtype_inf_code(t);
    return dtype_nan_code(t) ? nan_code(t, sign) : sign | dtype_max_code(t);
}

static uint32_t encode(DType t, double v) {
    const DFormat *f = &dtype_format[t];
    uint32_t sign = signbit(v) ? sign_bit(f) : 0;
    if (isnan(v)) return nan_code(t, sign);
    if (isinf(v)) return overflow_code(t, sign);
    if (v == 0) return f->special == DSPECIAL_fnuz ? 0 : sign;
    int e, emin = 1 - f->bias;
    frexp(v, &e);
    e = e - 1 < emin ? emin : e - 1;
    if (e > emin + (1 << f->exp)) return overflow_code(t, sign);
    /* In units of the last place; a carry out of the mantissa lands in the exponent field. */
    double scaled = nearbyint(ldexp(fabs(v), f->man - e));
    uint32_t code = ((uint32_t)(e - emin + 1) << f->man) + (uint32_t)scaled - (1U << f->man);
    if (code > max_finite(f)) return overflow_code(t, sign);
    return f->special == DSPECIAL_fnuz && !code ? 0 : sign | code;
}

/* E8M0: an exponent alone, no sign, no zero; ties go up. Negative values have no code but NaN. */
enum { E8M0_BIAS = 127, E8M0_NAN = 255 };

static uint32_t e8m0_encode(double v) {
    if (isnan(v) || isinf(v) || v < 0) return E8M0_NAN;
    int e;
    double m = frexp(v, &e); /* v = 2m * 2^(e-1) */
    if (v == 0 || e - 1 < -E8M0_BIAS) return 0;
    int code = e - 1 + E8M0_BIAS + (m >= 0.75);
    return code >= E8M0_NAN ? E8M0_NAN : (uint32_t)code;
}

static double e8m0_decode(uint32_t code) {
    return code == E8M0_NAN ? (double)NAN : ldexp(1.0, (int)code - E8M0_BIAS);
}

static double load_float(DType t, const void *p, size_t index) {
    const char *at = (const char *)p + index * dtype_bytes(t);
    if (t == DT_f64) {
        double d;
        memcpy(&d, at, sizeof d);
        return d;
    }
    if (t == DT_f32) {
        float s;
        memcpy(&s, at, sizeof s);
        return (double)s;
    }
    uint32_t code = 0;
    memcpy(&code, at, dtype_bytes(t));
    return dtype_format[t].special == DSPECIAL_power ? e8m0_decode(code)
                                                     : decode(&dtype_format[t], code);
}

static void store_float(DType t, void *p, size_t index, double v) {
    char *at = (char *)p + index * dtype_bytes(t);
    if (t == DT_f64) {
        memcpy(at, &v, sizeof v);
    } else if (t == DT_f32) {
        float s = (float)v;
        memcpy(at, &s, sizeof s);
    } else {
        uint32_t code = dtype_format[t].special == DSPECIAL_power ? e8m0_encode(v) : encode(t, v);
        memcpy(at, &code, dtype_bytes(t));
    }
}

/* --- Any element --------------------------------------------------------------------------- */

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
    if (dtype_is_float(t)) return load_float(t, p, index);
    int64_t v = load_int(t, p, index);
    return t == DT_u64 ? (double)(uint64_t)v : (double)v;
}

void dtype_store_f64(DType t, void *p, size_t index, double v) {
    if (dtype_is_float(t))
        store_float(t, p, index, v);
    else if (t == DT_bool)
        store_int(t, p, index, v != 0);
    else
        store_int(t, p, index, trunc_wrapping(t, v));
}

int64_t dtype_load_i64(DType t, const void *p, size_t index) {
    if (dtype_is_float(t)) return trunc_i64(load_float(t, p, index));
    return load_int(t, p, index);
}

void dtype_store_i64(DType t, void *p, size_t index, int64_t v) {
    if (t == DT_f32) {
        float f = (float)v; /* not through double: one rounding */
        memcpy((char *)p + index * sizeof f, &f, sizeof f);
    } else if (dtype_is_float(t)) {
        store_float(t, p, index, (double)v);
    } else {
        store_int(t, p, index, v);
    }
}
