/* The MAP ops on one element, and the random generator. */
#include "graph/eval/eval_scalar.h"

#include <math.h>
#include <string.h>

/* ---- Integers ---- */

static bool is_u64(DType t) {
    return t == DT_u64;
}

/* Keeps the low bits of t, sign- or zero-extended. */
static int64_t wrap(DType t, int64_t v) {
    if (t == DT_bool) return v != 0;
    int unused = 64 - dtype_info[t].bits;
    if (unused <= 0) return v;
    uint64_t high = (uint64_t)v << unused;
    return dtype_is_signed(t) ? (int64_t)high >> unused : (int64_t)(high >> unused);
}

static bool less(DType t, int64_t a, int64_t b) {
    return is_u64(t) ? (uint64_t)a < (uint64_t)b : a < b;
}

static int64_t quotient(DType t, int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (is_u64(t)) return (int64_t)((uint64_t)a / (uint64_t)b);
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t remainder_of(DType t, int64_t a, int64_t b) {
    if (b == 0 || (b == -1 && !is_u64(t))) return 0;
    return is_u64(t) ? (int64_t)((uint64_t)a % (uint64_t)b) : a % b;
}

static int64_t modulo(DType t, int64_t a, int64_t b) {
    int64_t r = remainder_of(t, a, b);
    return r && !is_u64(t) && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t power(DType t, int64_t base, int64_t exponent) {
    if (exponent < 0 && dtype_is_signed(t))
        return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    uint64_t r = 1, b = (uint64_t)base;
    for (uint64_t e = (uint64_t)exponent; e; e >>= 1, b *= b)
        if (e & 1) r *= b;
    return (int64_t)r;
}

static int64_t shift(Op op, DType t, int64_t a, int64_t by) {
    bool out = (uint64_t)by >= dtype_info[t].bits;
    if (op == OP_shl) return out ? 0 : (int64_t)((uint64_t)a << by);
    if (dtype_is_signed(t)) return a >> (out ? 63 : by);
    return out ? 0 : (int64_t)((uint64_t)a >> by);
}

static int64_t int_unary(Op op, DType t, int64_t a) {
    switch (op) {
    case OP_neg: return (int64_t)(0 - (uint64_t)a);
    case OP_abs: return dtype_is_signed(t) && a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
    case OP_sign: return dtype_is_signed(t) ? (a > 0) - (a < 0) : a != 0;
    default: return t == DT_bool ? !a : ~a; /* not */
    }
}

static int64_t int_binary(Op op, DType t, int64_t a, int64_t b) {
    switch (op) {
    case OP_add: return (int64_t)((uint64_t)a + (uint64_t)b);
    case OP_sub: return (int64_t)((uint64_t)a - (uint64_t)b);
    case OP_mul: return (int64_t)((uint64_t)a * (uint64_t)b);
    case OP_div: return quotient(t, a, b);
    case OP_mod: return modulo(t, a, b);
    case OP_rem: return remainder_of(t, a, b);
    case OP_pow: return power(t, a, b);
    case OP_min: return less(t, b, a) ? b : a;
    case OP_max: return less(t, a, b) ? b : a;
    case OP_and: return a & b;
    case OP_or: return a | b;
    case OP_xor: return a ^ b;
    case OP_shl:
    case OP_shr: return shift(op, t, a, b);
    case OP_eq: return a == b;
    case OP_ne: return a != b;
    case OP_lt: return less(t, a, b);
    default: return !less(t, b, a); /* le */
    }
}

/* ---- Floats ---- */

static double f_neg(double x) {
    return -x;
}
static double f_sign(double x) {
    return isnan(x) ? x : (x > 0) - (x < 0);
}
static double f_rsqrt(double x) {
    return 1 / sqrt(x);
}
static double f_recip(double x) {
    return 1 / x;
}
static double f_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double f_add(double a, double b) {
    return a + b;
}
static double f_sub(double a, double b) {
    return a - b;
}
static double f_mul(double a, double b) {
    return a * b;
}
static double f_div(double a, double b) {
    return a / b;
}
static double f_min(double a, double b) {
    return isnan(a) ? a : isnan(b) || b < a ? b : a;
}
static double f_max(double a, double b) {
    return isnan(a) ? a : isnan(b) || b > a ? b : a;
}
static double f_mod(double a, double b) {
    double r = fmod(a, b);
    if (r == 0) return copysign(r, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

typedef double (*F1)(double);
typedef double (*F2)(double, double);
static const F1 float_unary[OP_COUNT] = {
    [OP_neg] = f_neg,     [OP_abs] = fabs,      [OP_sign] = f_sign, [OP_floor] = floor,
    [OP_ceil] = ceil,     [OP_round] = rint,    [OP_trunc] = trunc, [OP_sqrt] = sqrt,
    [OP_rsqrt] = f_rsqrt, [OP_recip] = f_recip, [OP_exp] = exp,     [OP_log] = log,
    [OP_log1p] = log1p,   [OP_expm1] = expm1,   [OP_sin] = sin,     [OP_cos] = cos,
    [OP_tan] = tan,       [OP_asin] = asin,     [OP_acos] = acos,   [OP_atan] = atan,
    [OP_sinh] = sinh,     [OP_cosh] = cosh,     [OP_tanh] = tanh,   [OP_asinh] = asinh,
    [OP_acosh] = acosh,   [OP_atanh] = atanh,   [OP_erf] = erf,     [OP_sigmoid] = f_sigmoid,
};
static const F2 float_binary[OP_COUNT] = {
    [OP_add] = f_add, [OP_sub] = f_sub, [OP_mul] = f_mul, [OP_div] = f_div, [OP_mod] = f_mod,
    [OP_rem] = fmod,  [OP_pow] = pow,   [OP_min] = f_min, [OP_max] = f_max,
};

static int64_t float_test(Op op, double a, double b) {
    switch (op) {
    case OP_isnan: return isnan(a);
    case OP_isinf: return isinf(a) != 0;
    case OP_eq: return a == b;
    case OP_ne: return a != b;
    case OP_lt: return a < b;
    default: return a <= b; /* le */
    }
}

/* ---- Conversions ---- */

/* Toward zero; beyond the 64-bit range the nearest end, then the low bits; NaN gives 0. */
static int64_t float_to_int(DType t, double v) {
    if (isnan(v)) return 0;
    if (is_u64(t) && v >= 0x1p63) return v >= 0x1p64 ? -1 : (int64_t)(uint64_t)v;
    if (v >= 0x1p63) return wrap(t, INT64_MAX);
    if (v < -0x1p63) return wrap(t, INT64_MIN);
    return wrap(t, (int64_t)v);
}

double eval_round_to(DType t, double v) {
    uint64_t bits = 0;
    if (t == DT_f64) return v;
    dtype_store_f64(t, &bits, 0, v);
    return dtype_load_f64(t, &bits, 0);
}

/* Formats of one byte exist to lose precision, so their rounding is part of the op's meaning. */
static EvalScalar cast(DType in, DType out, EvalScalar x) {
    if (dtype_is_float(out)) {
        double v = dtype_is_float(in) ? x.f : is_u64(in) ? (double)(uint64_t)x.i : (double)x.i;
        return (EvalScalar){.f = dtype_bytes(out) == 1 ? eval_round_to(out, v) : v};
    }
    if (out == DT_bool) return (EvalScalar){.i = dtype_is_float(in) ? x.f != 0 : x.i != 0};
    return (EvalScalar){.i = dtype_is_float(in) ? float_to_int(out, x.f) : wrap(out, x.i)};
}

static EvalScalar bitcast(DType in, DType out, EvalScalar x) {
    uint64_t bits = 0;
    if (dtype_is_float(in))
        dtype_store_f64(in, &bits, 0, x.f);
    else
        dtype_store_i64(in, &bits, 0, x.i);
    if (dtype_is_float(out)) return (EvalScalar){.f = dtype_load_f64(out, &bits, 0)};
    return (EvalScalar){.i = dtype_load_i64(out, &bits, 0)};
}

EvalScalar eval_scalar(Op op, DType in, DType out, const EvalScalar *x) {
    if (op == OP_select) return x[0].i ? x[1] : x[2];
    if (op == OP_cast) return cast(in, out, x[0]);
    if (op == OP_bitcast) return bitcast(in, out, x[0]);
    int arity = op_info[op].arity;
    if (!dtype_is_float(in)) {
        int64_t v = arity == 1 ? int_unary(op, in, x[0].i) : int_binary(op, in, x[0].i, x[1].i);
        return (EvalScalar){.i = wrap(out, v)};
    }
    if (float_unary[op]) return (EvalScalar){.f = float_unary[op](x[0].f)};
    if (float_binary[op]) return (EvalScalar){.f = float_binary[op](x[0].f, x[1].f)};
    return (EvalScalar){.i = float_test(op, x[0].f, arity == 2 ? x[1].f : 0)};
}

double eval_saturate(DType t, double v) {
    if (dtype_bytes(t) > 1 || isnan(v)) return v;
    uint32_t code = dtype_max_code(t);
    double most = dtype_load_f64(t, &code, 0);
    return v > most ? most : v < -most ? -most : v;
}

double eval_power_of_two(double v, uint8_t round) {
    int e;
    if (!(v > 0) || isinf(v) || round == 0) return v;
    double m = frexp(v, &e); /* v = m * 2^e, 0.5 <= m < 1 */
    return ldexp(1, round == 1 && m > 0.5 ? e : e - 1);
}

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t stream(uint64_t seed, uint64_t index) {
    return mix(seed + (index + 1) * 0x9E3779B97F4A7C15u);
}

uint64_t eval_draw_seed(uint64_t seed, int64_t draw) {
    return stream(seed, (uint64_t)draw);
}

double eval_uniform(DType t, uint64_t seed, uint64_t index) {
    int digits = dtype_format[t].man + 1;
    uint64_t bits = stream(seed, index) >> (64 - digits);
    return ldexp((double)bits, -digits);
}
