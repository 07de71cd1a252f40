/* sin, cos and tan in f64, for every angle.
 *
 * x = n pi/2 + r with |r| <= pi/4. Up to 2^30 r comes from three parts of pi/2. Beyond, where one
 * lane is, from the bits of 2/pi that matter at that lane's exponent (Payne and Hanek), in
 * integers: the only control flow in these files, since that costs twenty times as much and is
 * rare. */
#include "codegen/emit/math.h"
#include <math.h>

#define NEAR   0x1p30
#define PIO2_1 0x1.921fb54442d18p+0 /* pi/2 in three parts */
#define PIO2_2 0x1.1a62633145c07p-54
#define PIO2_3 -0x1.f1976b7ed8fbcp-110

/* --- Angles below NEAR --------------------------------------------------------------------- */

static void reduce_near(Math *m, EV x, EV *r, EV *quadrant) {
    EV n;
    m_round(m, m_mul(m, x, m_c(m, 0x1.45f306dc9c883p-1)), &n, quadrant);
    EV v = m_fma(m, n, m_c(m, -PIO2_1), x);
    v = m_fma(m, n, m_c(m, -PIO2_2), v);
    *r = m_fma(m, n, m_c(m, -PIO2_3), v);
}

/* --- Angles of any size -------------------------------------------------------------------- */

/* Bits of 2/pi after 32 zeros, highest first. */
#define WORDS 19
static const uint64_t two_over_pi[WORDS] = {
    0x00000000a2f9836e, 0x4e441529fc2757d1, 0xf534ddc0db629599, 0x3c439041fe5163ab,
    0xdebbc561b7246e3a, 0x424dd2e006492eea, 0x09d1921cfe1deb1c, 0xb129a73ee88235f5,
    0x2ebb4484e99c7026, 0xb45f7e413991d639, 0x835339f49c845f8b, 0xbdf9283b1ff897ff,
    0xde05980fef2f118b, 0x5a0a6d1f6d367ecf, 0x27cb09b74f463f66, 0x9e5fea2d7527bac7,
    0xebe5f17b3d0739f7, 0x8a5292ea6bfb5fb1, 0x1f8d5d0856033046};

static EV i_and(Math *m, EV a, uint64_t mask) {
    return LLVMBuildAnd(m->e->b, a, m_i(m, (int64_t)mask), "");
}
static EV i_add(Math *m, EV a, EV b) {
    return LLVMBuildAdd(m->e->b, a, b, "");
}
static EV i_shl(Math *m, EV a, EV n) {
    return LLVMBuildShl(m->e->b, a, n, "");
}
static EV i_shr(Math *m, EV a, EV n) {
    return LLVMBuildLShr(m->e->b, a, n, "");
}
static EV low32(Math *m, EV a) {
    return i_and(m, a, 0xffffffff);
}
static EV high32(Math *m, EV a) {
    return i_shr(m, a, m_i(m, 32));
}

/* The 192 bits of the table from bit `start` (0..1023) on: out[0] the lowest 32, out[5] the
 * highest. Four steps of a shift by whole words, then one by bits. */
static void table_bits(Math *m, EV start, EV out[6]) {
    EV w[WORDS], zero = m_i(m, 0);
    for (int i = 0; i < WORDS; i++) w[i] = m_i(m, (int64_t)two_over_pi[i]);
    for (int step = 8; step; step /= 2) {
        EV bit = i_and(m, start, (uint64_t)step * 64);
        EV by = LLVMBuildICmp(m->e->b, LLVMIntNE, bit, zero, "");
        for (int i = 0; i < 3 + step; i++) w[i] = m_sel(m, by, w[i + step], w[i]);
    }
    EV left = i_and(m, start, 63), right = LLVMBuildSub(m->e->b, m_i(m, 63), left, "");
    for (int i = 0; i < 3; i++) {
        EV next = i_shr(m, i_shr(m, w[i + 1], m_i(m, 1)), right);
        EV v = LLVMBuildOr(m->e->b, i_shl(m, w[i], left), next, "");
        out[5 - 2 * i] = high32(m, v);
        out[4 - 2 * i] = low32(m, v);
    }
}

/* Bits 64..191 of mant * w modulo 2^192, but for a carry from below: hi, lo. */
static void product(Math *m, EV mant, const EV w[6], EV *hi, EV *lo) {
    EV m0 = low32(m, mant), m1 = high32(m, mant), col[4], carry = m_i(m, 0);
    for (int k = 2; k < 6; k++) {
        EV p = LLVMBuildMul(m->e->b, m0, w[k], ""), pb = LLVMBuildMul(m->e->b, m0, w[k - 1], "");
        EV q = LLVMBuildMul(m->e->b, m1, w[k - 1], ""),
           qb = LLVMBuildMul(m->e->b, m1, w[k - 2], "");
        EV sum =
            i_add(m, i_add(m, low32(m, p), high32(m, pb)), i_add(m, low32(m, q), high32(m, qb)));
        sum = i_add(m, sum, carry);
        col[k - 2] = low32(m, sum);
        carry = high32(m, sum);
    }
    *lo = LLVMBuildOr(m->e->b, i_shl(m, col[1], m_i(m, 32)), col[0], "");
    *hi = LLVMBuildOr(m->e->b, i_shl(m, col[3], m_i(m, 32)), col[2], "");
}

/* (hi 2^64 + lo) 2^-128, hi signed, times pi/2. The sum is exact in two parts, so that what is left
 * of an angle close to a multiple of pi/2 (within 2^-62) is still good to an ulp. */
static EV fraction(Math *m, EV hi, EV lo) {
    LLVMBuilderRef b = m->e->b;
    EV top = LLVMBuildSIToFP(b, LLVMBuildAShr(b, hi, m_i(m, 32), ""), m->t, "");
    EV mid = LLVMBuildSIToFP(b, low32(m, hi), m->t, "");
    EV low = LLVMBuildSIToFP(b, high32(m, lo), m->t, "");
    EV rest = LLVMBuildSIToFP(b, low32(m, lo), m->t, "");
    EV a = m_mul(m, top, m_c(m, 0x1p-32)), c = m_mul(m, mid, m_c(m, 0x1p-64));
    EV s = m_add(m, a, c), lost = m_sub(m, c, m_sub(m, s, a));
    lost = m_add(m, lost, m_fma(m, low, m_c(m, 0x1p-96), m_mul(m, rest, m_c(m, 0x1p-128))));
    EV whole = m_add(m, s, lost);
    lost = m_add(m, m_sub(m, s, whole), lost);
    EV r = m_mul(m, whole, m_c(m, PIO2_1)), err = m_fma(m, whole, m_c(m, PIO2_1), m_neg(m, r));
    err = m_fma(m, whole, m_c(m, PIO2_2), m_fma(m, lost, m_c(m, PIO2_1), err));
    return m_add(m, r, err);
}

/* |x| = M 2^(E - 1075) with E its biased exponent, M of 53 bits: bits of 2/pi whose product with M
 * is a multiple of 4 are left out, 192 are enough from there on. For |x| >= NEAR; else anything. */
static void reduce_far(Math *m, EV x, EV *r, EV *quadrant) {
    LLVMBuilderRef b = m->e->b;
    EV bits = m_int(m, m_abs(m, x)), w[6], hi, lo;
    EV mant = LLVMBuildOr(b, i_and(m, bits, (UINT64_C(1) << 52) - 1), m_i(m, INT64_C(1) << 52), "");
    EV exponent = i_shr(m, bits, m_i(m, 52));
    table_bits(m, LLVMBuildSub(b, exponent, m_i(m, 1045), ""), w);
    product(m, mant, w, &hi, &lo);
    EV part = LLVMBuildOr(b, i_shl(m, hi, m_i(m, 2)), i_shr(m, lo, m_i(m, 62)), "");
    EV q = i_add(m, i_shr(m, hi, m_i(m, 62)), i_shr(m, part, m_i(m, 63)));
    EV minus = m_lt(m, x, m_c(m, 0)), v = fraction(m, part, i_shl(m, lo, m_i(m, 2)));
    *r = m_sel(m, minus, m_neg(m, v), v);
    *quadrant = m_sel(m, minus, LLVMBuildNeg(b, q, ""), q);
}

static EV any_lane(Math *m, EV c) {
    if (!emit_is_vector(c)) return c;
    return emit_intrinsic(m->e, "llvm.vector.reduce.or", LLVMTypeOf(c), &c, 1);
}

/* r and quadrant of x as the function's result. */
static void reduce_body(Math *m, EV x) {
    LLVMBuilderRef b = m->e->b;
    LLVMPositionBuilderAtEnd(b, emit_block(m->e, "near"));
    EV near = m_lt(m, m_abs(m, x), m_c(m, NEAR)), near_r, near_q, far_r, far_q;
    reduce_near(m, m_sel(m, near, x, m_c(m, 0)), &near_r, &near_q);
    LLVMBasicBlockRef far = emit_block(m->e, "far"), done = emit_block(m->e, "done");
    LLVMBuildCondBr(b, any_lane(m, LLVMBuildNot(b, near, "")), far, done);
    LLVMPositionBuilderAtEnd(b, done);
    LLVMBuildAggregateRet(b, (EV[]){near_r, near_q}, 2);
    LLVMPositionBuilderAtEnd(b, far);
    reduce_far(m, x, &far_r, &far_q);
    far_r = m_sel(m, near, near_r, far_r);
    far_q = m_sel(m, near, near_q, far_q);
    LLVMBuildAggregateRet(b, (EV[]){far_r, far_q}, 2);
}

/* The module's function that reduces values of m's type. The builder may stand in the middle of a
 * block, so that branches are out of the question where it stands. */
static EV reduce_function(Math *m) {
    Emit *e = m->e;
    unsigned lanes = emit_is_vector(m_c(m, 0)) ? LLVMGetVectorSize(m->t) : 1;
    const char *name = arena_printf(e->arena, "trig_reduce_%u", lanes);
    EV fn = LLVMGetNamedFunction(e->mod, name), caller = e->fn;
    if (fn) return fn;
    LLVMTypeRef parts[2] = {m->t, m->it};
    LLVMTypeRef pair = LLVMStructTypeInContext(e->ctx, parts, 2, false);
    fn = LLVMAddFunction(e->mod, name, LLVMFunctionType(pair, &m->t, 1, false));
    LLVMSetLinkage(fn, LLVMInternalLinkage);
    emit_fn_attrs(e, fn);
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    e->fn = fn;
    reduce_body(m, LLVMGetParam(fn, 0));
    e->fn = caller;
    emit_at_end(e, here);
    return fn;
}

static void trig_reduce(Math *m, EV x, EV *r, EV *quadrant) {
    EV fn = reduce_function(m);
    EV pair = LLVMBuildCall2(m->e->b, LLVMGlobalGetValueType(fn), fn, &x, 1, "");
    *r = LLVMBuildExtractValue(m->e->b, pair, 0, "");
    *quadrant = LLVMBuildExtractValue(m->e->b, pair, 1, "");
}

/* --- The functions -------------------------------------------------------------------------- */

EV math_trig(Math *m, Op op, EV x) {
    LLVMBuilderRef b = m->e->b;
    EV r, q;
    trig_reduce(m, x, &r, &q);
    EV t = m_mul(m, r, r);
    EV sp = M_POLY(m, t, -0.16666666666666666, 0.008333333333330925, -0.00019841269836722437,
                   2.755731608382574e-06, -2.505112794596564e-08, 1.591784866512194e-10);
    EV cp = M_POLY(m, t, 0.041666666666666664, -0.0013888888888887382, 2.480158729874308e-05,
                   -2.755731726001471e-07, 2.0876143829213935e-09, -1.1382456865840483e-11);
    EV s = m_fma(m, m_mul(m, t, r), sp, r);
    EV c = m_fma(m, m_mul(m, t, t), cp, m_fma(m, t, m_c(m, -0.5), m_c(m, 1)));
    if (op == OP_cos) q = LLVMBuildAdd(b, q, m_i(m, 1), "");
    EV odd = LLVMBuildICmp(b, LLVMIntNE, LLVMBuildAnd(b, q, m_i(m, 1), ""), m_i(m, 0), "");
    EV v;
    if (op == OP_tan) {
        v = m_div(m, m_sel(m, odd, m_neg(m, c), s), m_sel(m, odd, s, c));
    } else {
        EV minus = LLVMBuildAnd(b, q, m_i(m, 2), "");
        v = m_int(m, m_sel(m, odd, c, s));
        v = m_float(m, LLVMBuildXor(b, v, LLVMBuildShl(b, minus, m_i(m, 62), ""), ""));
    }
    if (op != OP_cos) v = m_sel(m, m_eq(m, x, m_c(m, 0)), x, v);
    return m_sel(m, m_lt(m, m_abs(m, x), m_c(m, INFINITY)), v, m_c(m, NAN));
}
