/* Inverse trigonometric and hyperbolic functions and pow, in f64. */
#include "codegen/emit/math.h"
#include <math.h>

#define LN2 0x1.62e42fefa39efp-1

/* --- Inverse ------------------------------------------------------------------------------ */

/* atan of num/den >= 0 (num, den not both infinite): reduced to [0, tan(pi/8)]. */
static EV atan_ratio(Math *m, EV num, EV den) {
    EV swap = m_lt(m, den, num);
    EV lo = m_sel(m, swap, den, num), hi = m_sel(m, swap, num, den);
    EV far = m_lt(m, m_mul(m, hi, m_c(m, 0.41421356237309503)), lo);
    EV a = m_div(m, m_sel(m, far, m_sub(m, lo, hi), lo), m_sel(m, far, m_add(m, lo, hi), hi));
    EV t = m_mul(m, a, a);
    EV p = M_POLY(m, t, -0.3333333333333333, 0.19999999999995438, -0.1428571428464918,
                  0.1111111101386139, -0.09090904521500148, 0.07692181876696624,
                  -0.06664492955081326, 0.058579884306572266, -0.05084610777582189,
                  0.0392074453205456, -0.01914726376323698);
    EV r = m_fma(m, m_mul(m, t, a), p, a);
    r = m_sel(m, far, m_add(m, r, m_c(m, 0x1.921fb54442d18p-1)), r);
    EV turned = m_add(m, m_sub(m, m_c(m, 0x1.921fb54442d18p+0), r), m_c(m, 0x1.1a62633145c07p-54));
    return m_sel(m, swap, turned, r);
}

EV math_arc(Math *m, Op op, EV x) {
    EV a = m_abs(m, x), one = m_c(m, 1), r;
    if (op == OP_atan) {
        EV big = m_eq(m, a, m_c(m, INFINITY));
        r = m_sel(m, big, m_c(m, 0x1.921fb54442d18p+0), atan_ratio(m, a, one));
        return m_sign(m, r, x);
    }
    EV c = m_sub(m, one, a), d = m_add(m, one, a);
    if (op == OP_asin) return m_sign(m, atan_ratio(m, a, m_sqrt(m, m_mul(m, c, d))), x);
    r = atan_ratio(m, m_sqrt(m, m_sub(m, one, x)), m_sqrt(m, m_add(m, one, x)));
    return m_add(m, r, r);
}

/* --- Hyperbolic --------------------------------------------------------------------------- */

static EV sinh_cosh(Math *m, Op op, EV x) {
    EV a = m_abs(m, x), half = m_c(m, 0.5);
    EV h = math_exp(m, m_mul(m, a, half));
    EV large = m_mul(m, m_mul(m, h, half), h);
    EV small;
    if (op == OP_sinh) {
        EV t = math_expm1(m, m_min(m, a, 40));
        small = m_mul(m, half, m_add(m, t, m_div(m, t, m_add(m, t, m_c(m, 1)))));
    } else {
        EV t = math_exp(m, m_min(m, a, 40));
        small = m_mul(m, half, m_add(m, t, m_div(m, m_c(m, 1), t)));
    }
    EV r = m_sel(m, m_lt(m, m_c(m, 22), a), large, small);
    return op == OP_sinh ? m_sign(m, r, x) : r;
}

static EV asinh_acosh(Math *m, Op op, EV x) {
    EV a = m_abs(m, x), one = m_c(m, 1);
    EV huge = m_lt(m, m_c(m, 0x1p28), a);
    EV c = m_sel(m, huge, one, a);
    EV large = m_add(m, math_log(m, a), m_c(m, LN2));
    if (op == OP_asinh) {
        EV sq = m_mul(m, c, c);
        EV root = m_add(m, one, m_sqrt(m, m_add(m, one, sq)));
        EV r = math_log1p(m, m_add(m, c, m_div(m, sq, root)));
        return m_sign(m, m_sel(m, huge, large, r), x);
    }
    EV t = m_sub(m, m_sel(m, huge, one, x), one);
    EV r = math_log1p(m, m_add(m, t, m_sqrt(m, m_fma(m, t, t, m_add(m, t, t)))));
    r = m_sel(m, huge, large, r);
    return m_sel(m, m_lt(m, x, one), m_c(m, NAN), r);
}

EV math_hyper(Math *m, Op op, EV x) {
    if (op == OP_sinh || op == OP_cosh) return sinh_cosh(m, op, x);
    if (op == OP_asinh || op == OP_acosh) return asinh_acosh(m, op, x);
    EV a = m_abs(m, x);
    EV r = math_log1p(m, m_div(m, m_add(m, a, a), m_sub(m, m_c(m, 1), a)));
    return m_sign(m, m_mul(m, r, m_c(m, 0.5)), x);
}

/* --- pow ---------------------------------------------------------------------------------- */

/* log a in two parts, about 60 bits together: n ln2 + 2 s + s^3 Q(s^2) with s = f / (2 + f) and the
 * sum's leading terms kept with what their rounding lost. */
static void log_parts(Math *m, EV a, EV *hi, EV *lo) {
    EV n, f, two = m_c(m, 2);
    math_log_reduce(m, a, &n, &f);
    EV d = m_add(m, f, two), dlost = m_sub(m, f, m_sub(m, d, two));
    EV s = m_div(m, f, d);
    EV left = m_fma(m, m_neg(m, s), dlost, m_fma(m, m_neg(m, s), d, f));
    EV slow = m_div(m, left, d), t = m_mul(m, s, s);
    EV cube = m_mul(m, m_mul(m, t, s), math_log_poly(m, t));
    EV big = m_mul(m, n, m_c(m, 0x1.62e42fefa0000p-1)), small = m_add(m, s, s);
    EV sum = m_add(m, big, small), part = m_sub(m, sum, big);
    EV lost = m_add(m, m_sub(m, big, m_sub(m, sum, part)), m_sub(m, small, part));
    EV rest = m_fma(m, n, m_c(m, 0x1.cf79abc9e3b39p-40), m_fma(m, two, slow, cube));
    rest = m_add(m, rest, lost);
    *hi = m_add(m, sum, rest);
    *lo = m_sub(m, rest, m_sub(m, *hi, sum));
}

/* |x|^y by exp(y log|x|) with the logarithm and the product in two parts. */
static EV pow_abs(Math *m, EV a, EV y) {
    EV hi, lo;
    log_parts(m, a, &hi, &lo);
    EV p = m_mul(m, y, hi);
    EV low = m_fma(m, y, lo, m_fma(m, y, hi, m_neg(m, p)));
    low = m_sel(m, m_lt(m, m_abs(m, p), m_c(m, 1e5)), low, m_c(m, 0));
    EV r = math_exp(m, p);
    EV bound = m_lt(m, m_abs(m, r), m_c(m, INFINITY));
    return m_sel(m, bound, m_fma(m, r, low, r), r);
}

static EV is_integer(Math *m, EV y) {
    return m_eq(m, emit_intrinsic(m->e, "llvm.trunc", m->t, &y, 1), y);
}

EV math_pow64(Math *m, EV x, EV y) {
    EV zero = m_c(m, 0), one = m_c(m, 1), inf = m_c(m, INFINITY);
    EV a = m_abs(m, x);
    EV r = pow_abs(m, a, y);
    EV whole = is_integer(m, y);
    EV half_whole = is_integer(m, m_mul(m, y, m_c(m, 0.5)));
    EV odd = LLVMBuildAnd(m->e->b, whole, LLVMBuildNot(m->e->b, half_whole, ""), "");
    EV neg = m_lt(m, y, zero);
    r = m_sel(m, m_eq(m, a, zero), m_sel(m, neg, inf, zero), r);
    r = m_sel(m, m_eq(m, a, inf), m_sel(m, neg, zero, inf), r);
    /* Infinite exponents: |x| against 1 decides. */
    EV yinf = m_eq(m, m_abs(m, y), inf);
    EV grows = LLVMBuildXor(m->e->b, m_lt(m, a, one), LLVMBuildNot(m->e->b, neg, ""), "");
    EV at_inf = m_sel(m, m_eq(m, a, one), one, m_sel(m, grows, inf, zero));
    r = m_sel(m, yinf, at_inf, r);
    r = m_sel(m, odd, m_sign(m, r, x), r);
    EV root = LLVMBuildAnd(m->e->b, m_lt(m, x, zero), LLVMBuildNot(m->e->b, whole, ""), "");
    root = LLVMBuildAnd(m->e->b, root, m_lt(m, a, inf), "");
    r = m_sel(m, root, m_c(m, NAN), r);
    EV either = LLVMBuildFCmp(m->e->b, LLVMRealUNO, x, y, "");
    r = m_sel(m, either, m_c(m, NAN), r);
    r = m_sel(m, m_eq(m, x, one), one, r);
    return m_sel(m, m_eq(m, y, zero), one, r);
}
