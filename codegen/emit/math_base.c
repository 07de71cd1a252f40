/* The vocabulary of the math_*.c files (math.h). */
#include "codegen/emit/math.h"

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
        return emit_intrinsic(m->e, "llvm.minimum", m->t, (EV[]){a, m_c(m, c)}, 2);
    return m_sel(m, m_lt(m, m_c(m, c), a), m_c(m, c), a);
}
EV m_max(Math *m, EV a, double c) {
    if (m->e->isa->nan_minmax && !m->wide)
        return emit_intrinsic(m->e, "llvm.maximum", m->t, (EV[]){a, m_c(m, c)}, 2);
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

EV m_pow2(Math *m, EV n) {
    EV biased = LLVMBuildAdd(m->e->b, n, m_i(m, m->wide ? 1023 : 127), "");
    return m_float(m, LLVMBuildShl(m->e->b, biased, m_i(m, m->wide ? 52 : 23), ""));
}

/* In two factors, so that results may be subnormal or infinite. */
EV m_ldexp(Math *m, EV x, EV n) {
    EV half = LLVMBuildAShr(m->e->b, n, m_i(m, 1), "");
    EV rest = LLVMBuildSub(m->e->b, n, half, "");
    return m_mul(m, m_mul(m, x, m_pow2(m, half)), m_pow2(m, rest));
}
