/* Every binary format narrower than f32 is one row: field widths, bias and how it spends its top
 * codes. Rounding to nearest even happens on the exact scaled value, so nothing is rounded twice.
 * Overflow gives infinity, NaN where there is none, and the largest value where there is neither.
 */
#include "runtime/base/dtype_float.h"
#include <math.h>
#include <string.h>

typedef enum Special {
    SP_IEEE, /* all-ones exponent: infinity and NaNs */
    SP_FN,   /* one NaN per sign, all ones; no infinity */
    SP_FNUZ, /* the code of -0 is the only NaN; no infinity */
    SP_NONE  /* neither */
} Special;

typedef struct Format {
    uint8_t exp, man; /* field widths */
    uint8_t special;
    int bias;
} Format;

static const Format format[DT_COUNT] = {
    [DT_f16] = {5, 10, SP_IEEE, 15},   [DT_bf16] = {8, 7, SP_IEEE, 127},
    [DT_f8e4m3fn] = {4, 3, SP_FN, 7},  [DT_f8e4m3fnuz] = {4, 3, SP_FNUZ, 8},
    [DT_f8e5m2] = {5, 2, SP_IEEE, 15}, [DT_f8e5m2fnuz] = {5, 2, SP_FNUZ, 16},
    [DT_f4e2m1] = {2, 1, SP_NONE, 1},
};

static uint32_t max_finite(const Format *f) {
    uint32_t top = (1U << (f->exp + f->man)) - 1;
    if (f->special == SP_IEEE) return top - (1U << f->man);
    return f->special == SP_FN ? top - 1 : top;
}

static uint32_t sign_bit(const Format *f) {
    return 1U << (f->exp + f->man);
}

static double decode(const Format *f, uint32_t code) {
    uint32_t sign = code & sign_bit(f), mag = code & (sign_bit(f) - 1);
    if (f->special == SP_FNUZ && sign && !mag) return NAN;
    if (mag > max_finite(f)) {
        bool inf = f->special == SP_IEEE && mag == max_finite(f) + 1;
        return copysign(inf ? (double)INFINITY : (double)NAN, sign ? -1.0 : 1.0);
    }
    uint32_t e = mag >> f->man, one = 1U << f->man, m = mag & (one - 1);
    double v = e ? ldexp(m + one, (int)e - f->bias - f->man) : ldexp(m, 1 - f->bias - f->man);
    return sign ? -v : v;
}

static uint32_t nan_code(const Format *f, uint32_t sign) {
    switch ((Special)f->special) {
    case SP_IEEE: return sign | (max_finite(f) + 1) | (1U << (f->man - 1));
    case SP_FN: return sign | (max_finite(f) + 1);
    default: return sign_bit(f); /* FNUZ's NaN; -0 where there is no NaN */
    }
}

static uint32_t overflow_code(const Format *f, uint32_t sign) {
    if (f->special == SP_IEEE) return sign | (max_finite(f) + 1);
    return f->special == SP_NONE ? sign | max_finite(f) : nan_code(f, sign);
}

static uint32_t encode(const Format *f, double v) {
    uint32_t sign = signbit(v) ? sign_bit(f) : 0;
    if (isnan(v)) return nan_code(f, sign);
    if (isinf(v)) return overflow_code(f, sign);
    if (v == 0) return f->special == SP_FNUZ ? 0 : sign;
    int e, emin = 1 - f->bias;
    frexp(v, &e);
    e = e - 1 < emin ? emin : e - 1;
    if (e > emin + (1 << f->exp)) return overflow_code(f, sign);
    /* In units of the last place; a carry out of the mantissa lands in the exponent field. */
    double scaled = nearbyint(ldexp(fabs(v), f->man - e));
    uint32_t code = ((uint32_t)(e - emin + 1) << f->man) + (uint32_t)scaled - (1U << f->man);
    if (code > max_finite(f)) return overflow_code(f, sign);
    return f->special == SP_FNUZ && !code ? 0 : sign | code;
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

double dtype_float_load(DType t, const void *p, size_t index) {
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
    return t == DT_f8e8m0 ? e8m0_decode(code) : decode(&format[t], code);
}

void dtype_float_store(DType t, void *p, size_t index, double v) {
    char *at = (char *)p + index * dtype_bytes(t);
    if (t == DT_f64) {
        memcpy(at, &v, sizeof v);
    } else if (t == DT_f32) {
        float s = (float)v;
        memcpy(at, &s, sizeof s);
    } else {
        uint32_t code = t == DT_f8e8m0 ? e8m0_encode(v) : encode(&format[t], v);
        memcpy(at, &code, dtype_bytes(t));
    }
}
