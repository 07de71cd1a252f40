/* exp, log and what is made of them, for f32 and f64.
 *
 * exp: x = n ln2 + r, |r| <= ln2/2, 2^n (1 + r + r^2 P(r)). log: x = 2^n (1 + f) with 1 + f in
 * [sqrt(1/2), sqrt(2)). The polynomials are near-minimax fits of P alone, so that leading terms
 * stay exact. Functions that networks rarely evaluate in f32 are computed in f64 and rounded. */
#include "codegen/emit/math.h"
#include <math.h>

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

static bool has_scale(const Math *m) {
    const Isa *isa = m->e->isa;
    return !m->wide && isa->scale_f32 && LLVMGetTypeKind(m->t) == LLVMVectorTypeKind &&
           LLVMGetVectorSize(m->t) == isa->lanes;
}

/* One instruction where the vector unit has it. */
static EV scale_by(Math *m, EV p, EV n, EV ni) {
    if (!has_scale(m)) return m_ldexp(m, p, ni);
    EV v[5] = {p, n, p, emit_i(m->e, m->e->i16, -1), emit_i(m->e, m->e->i32, 4)};
    return emit_intrinsic(m->e, m->e->isa->scale_f32, NULL, v, 5);
}

EV math_exp(Math *m, EV x) {
    x = m_max(m, m_min(m, x, m->wide ? 710 : 89), m->wide ? -746 : -104);
    Reduced d = exp_reduce(m, x);
    EV p = m_fma(m, m_mul(m, d.r, d.r), d.q, d.r);
    return scale_by(m, m_add(m, p, m_c(m, 1)), d.n, d.ni);
}

static bool has_rest(const Math *m) {
    return has_scale(m) && m->e->isa->rest_f32;
}

/* 2^r, 0 <= r <= 1; 1 at 0. */
static EV exp2_of_rest(Math *m, EV r) {
    return M_POLY(m, r, 1, 0.6931470632553101, 0.24022908508777618, 0.05548618361353874,
                  0.009673775173723698, 0.0012482289457693696, 0.000215659718378447);
}

/* 2^floor(y) 2^(y - floor(y)), each of them few instructions, which need no limits. */
static EV exp2_by_rest(Math *m, EV y) {
    Emit *e = m->e;
    EV v[5] = {y, emit_i(e, e->i32, 9), y, emit_i(e, e->i16, -1), emit_i(e, e->i32, 4)};
    EV r = emit_intrinsic(e, e->isa->rest_f32, NULL, v, 5); /* 9: of floor, without exceptions */
    return scale_by(m, exp2_of_rest(m, r), y, NULL);
}

/* 2^n 2^(y - n), n nearest to y <= 0: the low bits of its sum with a large number are the exponent
 * of 2^n as f32 has it, which is that of 0 at -127. */
static EV exp2_by_nearest(Math *m, EV y) {
    const EV large = m_c(m, 0x1.8p23 + 127);
    y = m_max(m, y, -127);
    EV sum = m_add(m, y, large), r = m_sub(m, y, m_sub(m, sum, large));
    EV p = M_POLY(m, r, 1, 0.6931471824645996, 0.24022647738456726, 0.055503323674201965,
                  0.00961843691766262, 0.0013398875016719103, 0.00015353361959569156);
    return m_mul(m, p, m_float(m, LLVMBuildShl(m->e->b, m_int(m, sum), m_i(m, 23), "")));
}

/* Half as many instructions as exp. */
EV math_exp_below(Math *m, EV x) {
    if (m->wide) return math_exp(m, x);
    EV y = m_mul(m, x, m_c(m, 0x1.715476p+0));
    return has_rest(m) ? exp2_by_rest(m, y) : exp2_by_nearest(m, y);
}

/* 2^n (exp(r) - 1) + (2^n - 1), with half of 2^n so that n may be one past the exponent range. */
EV math_expm1(Math *m, EV x) {
    EV c = m_max(m, m_min(m, x, m->wide ? 710 : 89), m->wide ? -40 : -20);
    Reduced d = exp_reduce(m, c);
    EV p = m_fma(m, m_mul(m, d.r, d.r), d.q, d.r);
    EV s = m_pow2(m, LLVMBuildSub(m->e->b, d.ni, m_i(m, 1), ""));
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

/* Below 0.6: x + x^3 P(x^2). Above: 1 - 2 / (exp(2|x|) + 1), where what is subtracted, and with it
 * its error, is at most 0.46. */
static EV tanh32(Math *m, EV x) {
    EV a = m_abs(m, x), t = m_mul(m, x, x), c = m_min(m, a, 10);
    EV small = M_POLY(m, t, -0.33333298563957214, 0.13331936299800873, -0.05378471687436104,
                      0.02079862542450428, -0.005897966679185629);
    small = m_fma(m, m_mul(m, x, t), small, x);
    Reduced d = exp_reduce(m, m_add(m, c, c));
    EV p = m_fma(m, m_mul(m, d.r, d.r), d.q, d.r), s = m_pow2(m, d.ni), one = m_c(m, 1);
    EV sum = m_fma(m, s, p, m_add(m, s, one)); /* 2^n (exp(r) - 1) + (2^n + 1) */
    EV large = m_sub(m, one, m_div(m, m_c(m, 2), sum));
    return m_sel(m, m_lt(m, a, m_c(m, 0.6)), small, m_sign(m, large, x));
}

static EV tanh64(Math *m, EV x) {
    EV a = m_min(m, m_abs(m, x), 22);
    EV t = math_expm1(m, m_add(m, a, a));
    return m_sign(m, m_div(m, t, m_add(m, t, m_c(m, 2))), x);
}

EV math_tanh(Math *m, EV x) {
    return m->wide ? tanh64(m, x) : tanh32(m, x);
}

/* exp(-|x|) or 1 by 1 + exp(-|x|). What rounding that sum loses is taken off: where the quotient
 * lies just below a power of two, it alone is an ulp. */
EV math_sigmoid(Math *m, EV x) {
    EV t = math_exp(m, m_neg(m, m_abs(m, x)));
    EV top = m_sel(m, m_lt(m, x, m_c(m, 0)), t, m_c(m, 1));
    EV den = m_add(m, t, m_c(m, 1)), q = m_div(m, top, den);
    if (m->wide) return q;
    EV lost = m_add(m, m_sub(m, m_c(m, 1), den), t);
    return m_fma(m, m_neg(m, q), lost, q);
}

/* Below 0.9: x + x P(x^2). Above: 1 - 2^Q(|x|), at most 0.21 of it subtracted. */
static EV erf32(Math *m, EV x) {
    EV a = m_abs(m, x), t = m_mul(m, x, x), n, ni;
    EV small = M_POLY(m, t, 0.12837915122509003, -0.3761250674724579, 0.11281978338956833,
                      -0.026773398742079735, 0.005004345905035734, -0.0006053445977158844);
    EV q = M_POLY(m, m_min(m, a, 3.93), -0.0027088706847280264, -1.6160937547683716,
                  -0.9388413429260254, -0.13144288957118988, 0.02247590571641922,
                  -0.0018056422704830766);
    m_round(m, q, &n, &ni);
    EV p = M_POLY(m, m_sub(m, q, n), 1.0000001192092896, 0.6931472420692444, 0.240219846367836,
                  0.055502768605947495, 0.009680688381195068, 0.001341584837064147);
    EV large = m_fma(m, m_neg(m, p), m_pow2(m, ni), m_c(m, 1));
    small = m_fma(m, x, small, x);
    return m_sel(m, m_lt(m, a, m_c(m, 0.9)), small, m_sign(m, large, x));
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

/* 2^Q(|x|) where x < 0, else 2 less that: two thirds of what erf takes. Q goes to -inf. */
EV math_one_and_erf(Math *m, EV x) {
    EV a = m_abs(m, x), n, ni, t;
    EV q = m_mul(m, a,
                 M_POLY(m, a, -1.6279085874557495, -0.918416440486908, -0.14848148822784424,
                        0.028253551572561264, -0.0007746086921542883, -0.0014893938787281513,
                        0.0004454779264051467, -4.5353543100645766e-05));
    if (has_rest(m)) {
        t = exp2_by_rest(m, q);
    } else {
        q = m_max(m, q, -126.75); /* of which m_pow2 makes 0 */
        m_round(m, m_sub(m, q, m_c(m, 0.5)), &n, &ni);
        t = m_mul(m, exp2_of_rest(m, m_sub(m, q, n)), m_pow2(m, ni));
    }
    return m_sel(m, m_lt(m, x, m_c(m, 0)), t, m_sub(m, m_c(m, 2), t));
}

EV math_erf(Math *m, EV x) {
    return m->wide ? erf64(m, x) : erf32(m, x);
}
