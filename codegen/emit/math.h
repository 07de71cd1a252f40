/* What the math_*.c files share: a small vocabulary over one float type, scalar or vector. The
 * functions make no control flow and use no tables in memory; sin, cos and tan call one function,
 * the reduction of their angle. */
#ifndef CODEGEN_MATH_H
#define CODEGEN_MATH_H

#include "codegen/emit/emit_internal.h"

typedef struct Math {
    Emit *e;
    LLVMTypeRef t, it; /* the float type and the integer type of its bits */
    bool wide;         /* f64 */
} Math;

EV m_c(Math *m, double v);
EV m_i(Math *m, int64_t v);
EV m_add(Math *m, EV a, EV b);
EV m_sub(Math *m, EV a, EV b);
EV m_mul(Math *m, EV a, EV b);
EV m_div(Math *m, EV a, EV b);
EV m_fma(Math *m, EV a, EV b, EV c);
EV m_neg(Math *m, EV a);
EV m_abs(Math *m, EV a);
EV m_sqrt(Math *m, EV a);
EV m_sign(Math *m, EV magnitude, EV sign); /* copysign */
EV m_sel(Math *m, EV c, EV a, EV b);
EV m_lt(Math *m, EV a, EV b); /* ordered */
EV m_eq(Math *m, EV a, EV b);
EV m_nan(Math *m, EV a);
EV m_min(Math *m, EV a, double c); /* NaN stays */
EV m_max(Math *m, EV a, double c);
EV m_int(Math *m, EV a);   /* bits */
EV m_float(Math *m, EV a); /* from bits */
/* c[0] + c[1] x + ...; coefficients lowest first. */
EV m_poly(Math *m, EV x, const double *c, uint32_t n);
#define M_POLY(m, x, ...)                                                                          \
    m_poly((m), (x), (const double[]){__VA_ARGS__},                                                \
           sizeof((const double[]){__VA_ARGS__}) / sizeof(double))
/* x to the nearest integer as float and as integer; |x| below 2^22 (f32) or 2^51 (f64). */
void m_round(Math *m, EV x, EV *f, EV *i);
EV m_pow2(Math *m, EV n);        /* n an integer within the exponents of normal numbers */
EV m_ldexp(Math *m, EV x, EV n); /* x * 2^n, n an integer within twice the exponent range */

/* Ops that are computed in their own type, f32 or f64, each by math_OP (math_exp.c). */
#define MATH_OWN(X) X(exp) X(expm1) X(log) X(log1p) X(tanh) X(sigmoid) X(erf)
#define X(op)       EV math_##op(Math *m, EV x);
MATH_OWN(X)
#undef X
EV math_exp_below(Math *m, EV x);
EV math_one_and_erf(Math *m, EV x);                /* f32: 1 + erf(x), within 1.5 ulp of 1 */
void math_log_reduce(Math *m, EV x, EV *n, EV *f); /* x = 2^n (1 + f) */
EV math_log_poly(Math *m, EV t);

/* math_f64.c, math_trig.c */
EV math_pow64(Math *m, EV x, EV y);
EV math_trig(Math *m, Op op, EV x);  /* f64: sin cos tan */
EV math_arc(Math *m, Op op, EV x);   /* f64: asin acos atan */
EV math_hyper(Math *m, Op op, EV x); /* f64: sinh cosh asinh acosh atanh */

#endif
