/* exp, log and what is made of them, for f32 and f64.
 *
 * exp: x = n ln2 + r, |r| <= ln2/2, 2^n (1 + r + r^2 P(r)). log: x = 2^n (1 + f) with 1 + f in
 * [sqrt(1/2), sqrt(2)). The polynomials are near-minimax fits of P alone, so that leading terms
 * stay exact. Functions that networks rarely evaluate in f32 are computed in f64 and rounded. */
#include "codegen/emit/math.h"
#include <math.h>

EV m_c(Math *m, double v) {
    return emit_f(m->e, m->t, v);
}
EV m_i(Math *m, int64_t v) {
    return emit_i(m->e, m->it, v);
}
EV m_add(Math *m, EV a, EV b) {
    return LLVMBuildFAdd(m->e->b, a, b, "");
}
EV m_sub(Math *m, EV a, EV b) {
    return LLVMBuildFSub(m->e->b, a, b, "");
}
EV m_mul(Math *m, EV a, EV b) {
    return LLVMBuildFMul(m->e->b, a, b, "");
}
/* Of operands in the middle of the range. */
EV m_div(Math *m, EV a, EV b) {
    if (m->e->rcp && !m->wide) return m_mul(m, a, m->e->rcp(m->e, b));
    return LLVMBuildFDiv(m->e->b, a, b, "");
}
EV m_fma(Math *m, EV a, EV b, EV c) {
    return emit_fma(m->e, a, b, c);
}
EV m_neg(Math *m, EV a) {
    return LLVMBuildFNeg(m->e->b, a, "");
}
EV m_abs(Math *m, EV a) {
    return emit_intrinsic(m->e, "llvm.fabs", m->t, &a, 1);
}
EV m_sqrt(Math *m, EV a) {
    return emit_intrinsic(m->e, "llvm.sqrt", m->t, &a, 1);
}
EV m_sel(Math *m, EV c, EV a, EV b) {
    return LLVMBuildSelect(m->e->b, c, a, b, "");
}
EV m_lt(Math *m, EV a, EV b) {
    return LLVMBuildFCmp(m->e->b, LLVMRealOLT, a, b, "");
}
EV m_eq(Math *m, EV a, EV b) {
    return LLVMBuildFCmp(m->e->b, LLVMRealOEQ, a, b, "");
}
EV m_nan(Math *m, EV a) {
    return LLVMBuildFCmp(m->e->b, LLVMRealUNO, a, a, "");
}
EV m_int(Math *m, EV a) {
    return LLVMBuildBitCast(m->e->b, a, m->it, "");
}
EV m_float(Math *m, EV a) {
    return LLVMBuildBitCast(m->e->b, a, m->t, "");
}

EV m_sign(Math *m, EV magnitude, EV sign) {
    EV v[2] = {magnitude, sign};
    return emit_intrinsic(m->e, "llvm.copysign", m->t, v, 2);
}

EV m_min(Math *m, EV a, double c) {
    if (m->e->isa->nan_minmax && !m->wide)
        return emit_map(m->e, OP_min, DT_f32, a, m_c(m, c), NULL);
    return m_sel(m, m_lt(m, m_c(m, c), a), m_c(m, c), a);
}
EV m_max(Math *m, EV a, double c) {
    if (m->e->isa->nan_minmax && !m->wide)
        return emit_map(m->e, OP_max, DT_f32, a, m_c(m, c), NULL);
    return m_sel(m, m_lt(m, a, m_c(m, c)), m_c(m, c), a);
}

EV m_poly(Math *m, EV x, const double *c, uint32_t n) {
    EV r = m_c(m, c[n - 1]);
    for (uint32_t i = n - 1; i-- > 0;) r = m_fma(m, r, x, m_c(m, c[i]));
    return r;
}

/* Adding 1.5 * 2^mantissa leaves the integer in the low bits. */
void m_round(Math *m, EV x, EV *f, EV *i) {
    EV magic = m_c(m, m->wide ? 0x1.8p52 : 0x1.8p23);
    EV t = m_add(m, x, magic);
    *f = m_sub(m, t, magic);
    *i = LLVMBuildSub(m->e->b, m_int(m, t), m_int(m, magic), "");
}

static EV power_of_two(Math *m, EV n) {
    EV biased = LLVMBuildAdd(m->e->b, n, m_i(m, m->wide ? 1023 : 127), "");
    return m_float(m, LLVMBuildShl(m->e->b, biased, m_i(m, m->wide ? 52 : 23), ""));
}

/* In two factors, so that results may be subnormal or infinite. */
EV m_ldexp(Math *m, EV x, EV n) {
    EV half = LLVMBuildAShr(m->e->b, n, m_i(m, 1), "");
    EV rest = LLVMBuildSub(m->e->b, n, half, "");
    return m_mul(m, m_mul(m, x, power_of_two(m, half)), power_of_two(m, rest));
}

/* --- exp ---------------------------------------------------------------------------------- */

typedef struct Reduced {
    EV n, ni, r, q; /* x = n ln2 + r; q = (exp(r) - 1 - r) / r^2 */
} Reduced;

static Reduced exp_reduce(Math *m, EV x) {
    Reduced d;
    m_round(m, m_mul(m, x, m_c(m, 0x1.71547652b82fep+0)), &d.n, &d.ni);
    if (m->wide) {
        d.r = m_fma(m, d.n, m_c(m, -0x1.62e42fefa0000p-1), x);
        d.r = m_fma(m, d.n, m_c(m, -0x1.cf79abc9e3b39p-40), d.r);
        d.q = M_POLY(m, d.r, 0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326112,
                     0.001388888888888373, 0.0001984126987490126, 2.4801587325605324e-05,
                     2.7557255297969643e-06, 2.755727357010214e-07, 2.5105259538448494e-08,
                     2.0914717341716378e-09);
    } else {
        d.r = m_fma(m, d.n, m_c(m, -0x1.62e4p-1), x);
        d.r = m_fma(m, d.n, m_c(m, -0x1.7f7d1cp-20), d.r);
        d.q = M_POLY(m, d.r, 0.5, 0.16666576266288757, 0.041666556149721146, 0.008363203145563602,
                     0.0013926213141530752);
    }
    return d;
}

/* One instruction where the vector unit has it. */
static EV scale_by(Math *m, EV p, EV n, EV ni) {
    const Isa *isa = m->e->isa;
    if (m->wide || !isa->scale_f32 || !emit_is_vector(p) || LLVMGetVectorSize(m->t) != isa->lanes)
        return m_ldexp(m, p, ni);
    EV v[5] = {p, n, p, emit_i(m->e, m->e->i16, -1), emit_i(m->e, m->e->i32, 4)};
    return emit_intrinsic(m->e, isa->scale_f32, NULL, v, 5);
}

EV math_exp(Math *m, EV x) {
    x = m_max(m, m_min(m, x, m->wide ? 710 : 89), m->wide ? -746 : -104);
    Reduced d = exp_reduce(m, x);
    EV p = m_fma(m, m_mul(m, d.r, d.r), d.q, d.r);
    return scale_by(m, m_add(m, p, m_c(m, 1)), d.n, d.ni);
}

/* 2^n (exp(r) - 1) + (2^n - 1), with half of 2^n so that n may be one past the exponent range. */
EV math_expm1(Math *m, EV x) {
    EV c = m_max(m, m_min(m, x, m->wide ? 710 : 89), m->wide ? -40 : -20);
    Reduced d = exp_reduce(m, c);
    EV p = m_fma(m, m_mul(m, d.r, d.r), d.q, d.r);
    EV s = power_of_two(m, LLVMBuildSub(m->e->b, d.ni, m_i(m, 1), ""));
    EV r = m_fma(m, s, p, m_sub(m, s, m_c(m, 0.5)));
    r = m_add(m, r, r);
    return m_sel(m, m_eq(m, x, m_c(m, 0)), x, r);
}

/* --- log ---------------------------------------------------------------------------------- */

/* x = 2^n (1 + f); subnormal x is scaled up first. */
void math_log_reduce(Math *m, EV x, EV *n, EV *f) {
    LLVMBuilderRef b = m->e->b;
    int bits = m->wide ? 52 : 23;
    EV tiny = m_lt(m, x, m_c(m, m->wide ? 0x1p-1022 : 0x1p-126));
    x = m_sel(m, tiny, m_mul(m, x, m_c(m, ldexp(1, bits))), x);
    int64_t one = m->wide ? 0x3ff0000000000000 : 0x3f800000;
    int64_t root = m->wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3; /* sqrt(1/2) */
    EV u = LLVMBuildAdd(b, m_int(m, x), m_i(m, one - root), "");
    EV e = LLVMBuildAShr(b, LLVMBuildSub(b, u, m_i(m, one), ""), m_i(m, bits), "");
    EV mant = LLVMBuildAnd(b, u, m_i(m, (INT64_C(1) << bits) - 1), "");
    mant = m_float(m, LLVMBuildAdd(b, mant, m_i(m, root), ""));
    e = LLVMBuildSub(b, e, m_sel(m, tiny, m_i(m, bits), m_i(m, 0)), "");
    *n = LLVMBuildSIToFP(b, e, m->t, "");
    *f = m_sub(m, mant, m_c(m, 1));
}

/* (log((1+s)/(1-s)) - 2s) / s^3 for t = s^2, in f64. */
EV math_log_poly(Math *m, EV t) {
    return M_POLY(m, t, 0.666666666666667, 0.3999999999989322, 0.28571428628810996,
                  0.22222210674238516, 0.18182922513515942, 0.15330617306743305,
                  0.1463003136412286);
}

/* log(1 + f) + n ln2 + extra, small parts first. */
static EV log_sum(Math *m, EV n, EV f, EV extra) {
    EV half = m_mul(m, m_mul(m, f, f), m_c(m, 0.5));
    if (!m->wide) {
        EV q = M_POLY(m, f, 0.3333333134651184, -0.2500030994415283, 0.2000105232000351,
                      -0.16641156375408173, 0.1421419084072113, -0.12999576330184937,
                      0.12625670433044434, -0.07902456820011139);
        EV r = m_mul(m, m_mul(m, m_mul(m, f, f), f), q);
        r = m_fma(m, n, m_c(m, 0x1.7f7d1cp-20), r);
        if (extra) r = m_add(m, r, extra);
        r = m_add(m, m_sub(m, r, half), f);
        return m_fma(m, n, m_c(m, 0x1.62e4p-1), r);
    }
    EV s = m_div(m, f, m_add(m, f, m_c(m, 2)));
    EV t = m_mul(m, s, s);
    EV q = math_log_poly(m, t);
    EV r = m_mul(m, s, m_fma(m, t, q, half));
    r = m_fma(m, n, m_c(m, 0x1.cf79abc9e3b39p-40), r);
    if (extra) r = m_add(m, r, extra);
    r = m_sub(m, f, m_sub(m, half, r));
    return m_fma(m, n, m_c(m, 0x1.62e42fefa0000p-1), r);
}

/* log(0) = -inf, log(x < 0) = NaN, infinity and NaN stay. */
static EV log_edges(Math *m, EV x, EV r) {
    r = m_sel(m, m_lt(m, x, m_c(m, INFINITY)), r, x);
    r = m_sel(m, m_eq(m, x, m_c(m, 0)), m_c(m, -INFINITY), r);
    return m_sel(m, m_lt(m, x, m_c(m, 0)), m_c(m, NAN), r);
}

EV math_log(Math *m, EV x) {
    EV n, f;
    math_log_reduce(m, x, &n, &f);
    return log_edges(m, x, log_sum(m, n, f, NULL));
}

/* log(u) for u = 1 + x, with what rounding u lost divided by u. */
EV math_log1p(Math *m, EV x) {
    EV one = m_c(m, 1), u = m_add(m, one, x), n, f;
    EV big = m_lt(m, one, m_abs(m, x));
    EV lost = m_sel(m, big, m_sub(m, one, m_sub(m, u, x)), m_sub(m, x, m_sub(m, u, one)));
    math_log_reduce(m, u, &n, &f);
    EV r = log_edges(m, u, log_sum(m, n, f, m_div(m, lost, u)));
    /* Also covers -0 and the infinity that 1 + x keeps. */
    EV small = m_lt(m, m_abs(m, x), m_c(m, m->wide ? 0x1p-54 : 0x1p-25));
    r = m_sel(m, small, x, r);
    return m_sel(m, m_eq(m, u, m_c(m, 0)), m_c(m, -INFINITY), r);
}

/* --- Made of exp -------------------------------------------------------------------------- */

EV math_tanh(Math *m, EV x) {
    EV a = m_min(m, m_abs(m, x), m->wide ? 22 : 10);
    EV t = math_expm1(m, m_add(m, a, a));
    return m_sign(m, m_div(m, t, m_add(m, t, m_c(m, 2))), x);
}

EV math_sigmoid(Math *m, EV x) {
    EV t = math_exp(m, m_neg(m, m_abs(m, x)));
    EV top = m_sel(m, m_lt(m, x, m_c(m, 0)), t, m_c(m, 1));
    return m_div(m, top, m_add(m, t, m_c(m, 1)));
}

static EV erf32(Math *m, EV x) {
    EV c = m_max(m, m_min(m, x, 3.92), -3.92), t = m_mul(m, c, c);
    EV p = M_POLY(m, t, 1.1283791065216064, 0.1901627779006958, 0.052717678248882294,
                  0.0037556043826043606, 0.0002847311843652278, 2.052833224297501e-06);
    EV q = M_POLY(m, t, 1.0, 0.5018601417541504, 0.11400948464870453, 0.01494896225631237,
                  0.0011602547019720078, 3.8112466427264735e-05);
    return m_max(m, m_min(m, m_div(m, m_mul(m, c, p), q), 1), -1);
}

/* Below 1: x P(x^2). Above: 1 - exp(-x^2) R(s), s = (x - 2) / (x + 2). */
static EV erf64(Math *m, EV x) {
    EV a = m_min(m, m_abs(m, x), 6), t = m_mul(m, a, a);
    EV small = M_POLY(m, t, 1.1283791670955126, -0.37612638903183754, 0.1128379167095512,
                      -0.02686617064512984, 0.0052239776254232985, -0.000854832702193483,
                      0.00012055332902888736, -1.4925647567519332e-05, 1.6462045441468418e-06,
                      -1.6364642158167616e-07, 1.4792401209404813e-08, -1.216456005728345e-09,
                      8.709045129053106e-11, -4.230945824295338e-12);
    EV two = m_c(m, 2), s = m_div(m, m_sub(m, a, two), m_add(m, a, two));
    EV tail = M_POLY(m, s, 0.25539567631050575, -0.4271858474139584, 0.24165819424246648,
                     -0.07897858101573228, 0.0037328924043265746, 0.006997461739215831,
                     -0.0008471432508679153, -0.0009819770272212142, 4.355560137115743e-05,
                     0.00017436117977748445, 2.7525478778487625e-05, -2.7580030530192446e-05,
                     -1.3967891548200675e-05, 1.3935407223526918e-06, 3.7874017547960887e-06,
                     1.1766733323457687e-06, -5.265315151239261e-07, -4.2529228733691916e-07);
    EV large = m_sub(m, m_c(m, 1), m_mul(m, math_exp(m, m_neg(m, t)), tail));
    EV r = m_sel(m, m_lt(m, a, m_c(m, 1)), m_mul(m, a, small), large);
    return m_sign(m, m_sel(m, m_nan(m, x), x, r), x);
}

EV math_erf(Math *m, EV x) {
    return m->wide ? erf64(m, x) : erf32(m, x);
}

/* --- Entry -------------------------------------------------------------------------------- */

static Math math_of(Emit *e, LLVMTypeRef t) {
    bool vec = LLVMGetTypeKind(t) == LLVMVectorTypeKind;
    LLVMTypeRef elem = vec ? LLVMGetElementType(t) : t;
    bool wide = elem == e->f64;
    LLVMTypeRef it = wide ? e->i64 : e->i32;
    return (Math){e, t, vec ? LLVMVectorType(it, LLVMGetVectorSize(t)) : it, wide};
}

/* The op in m's own type, or NULL. */
static EV own_type(Math *m, Op op, EV x, EV y) {
    switch (op) {
    case OP_exp: return math_exp(m, x);
    case OP_expm1: return math_expm1(m, x);
    case OP_log: return math_log(m, x);
    case OP_log1p: return math_log1p(m, x);
    case OP_tanh: return math_tanh(m, x);
    case OP_sigmoid: return math_sigmoid(m, x);
    case OP_erf: return math_erf(m, x);
    default: break;
    }
    if (!m->wide) return NULL;
    switch (op) {
    case OP_pow: return math_pow64(m, x, y);
    case OP_sin:
    case OP_cos:
    case OP_tan: return math_trig(m, op, x);
    case OP_asin:
    case OP_acos:
    case OP_atan: return math_arc(m, op, x);
    case OP_sinh:
    case OP_cosh:
    case OP_asinh:
    case OP_acosh:
    case OP_atanh: return math_hyper(m, op, x);
    default: return NULL;
    }
}

LLVMValueRef emit_math(Emit *e, Op op, LLVMValueRef x, LLVMValueRef y) {
    LLVMTypeRef t = LLVMTypeOf(x);
    Math m = math_of(e, t);
    EV r = e->math && !m.wide ? e->math(e, op, x) : NULL;
    if (!r) r = own_type(&m, op, x, y);
    if (r || m.wide) return r;
    LLVMTypeRef d = emit_like(x, e->f64);
    Math w = math_of(e, d);
    EV x64 = LLVMBuildFPExt(e->b, x, d, ""), y64 = y ? LLVMBuildFPExt(e->b, y, d, "") : NULL;
    r = own_type(&w, op, x64, y64);
    return r ? LLVMBuildFPTrunc(e->b, r, t, "") : NULL;
}
