/* Narrow floats as raw bits, converted by integer arithmetic: LLVM would call libgcc for some of
 * these. Only f16 <-> f32 has an instruction on every target. */
#include "codegen/emit/emit_internal.h"
#include <math.h>

/* sign, exponent and mantissa bits; what the top of the range means. */
typedef struct Narrow {
    int mbits, bias;
    uint32_t max;  /* code of the largest finite value */
    uint32_t inf;  /* 0 = none */
    uint32_t nan;  /* with the sign clear; 0 = none */
    uint32_t sign; /* sign bit */
    bool fnuz;     /* no -0: its code is the NaN */
} Narrow;

static Narrow narrow_of(DType t) {
    const DFormat *f = &dtype_format[t];
    return (Narrow){.mbits = f->man,
                    .bias = f->bias,
                    .max = dtype_max_code(t),
                    .inf = dtype_inf_code(t),
                    .nan = dtype_nan_code(t),
                    .sign = 1u << (f->exp + f->man),
                    .fnuz = f->special == DSPECIAL_fnuz};
}

static EV and_c(Emit *e, EV x, int64_t c) {
    return LLVMBuildAnd(e->b, x, emit_i(e, LLVMTypeOf(x), c), "");
}
static EV add_c(Emit *e, EV x, int64_t c) {
    return LLVMBuildAdd(e->b, x, emit_i(e, LLVMTypeOf(x), c), "");
}
static EV shl_c(Emit *e, EV x, int c) {
    return LLVMBuildShl(e->b, x, emit_i(e, LLVMTypeOf(x), c), "");
}
static EV shr_c(Emit *e, EV x, int c) {
    return LLVMBuildLShr(e->b, x, emit_i(e, LLVMTypeOf(x), c), "");
}
static EV cmp_c(Emit *e, LLVMIntPredicate p, EV x, int64_t c) {
    return LLVMBuildICmp(e->b, p, x, emit_i(e, LLVMTypeOf(x), c), "");
}
static EV sel(Emit *e, EV c, EV a, EV b) {
    return LLVMBuildSelect(e->b, c, a, b, "");
}

static EV widen(Emit *e, EV x) {
    return LLVMBuildZExt(e->b, x, emit_like(x, e->i32), "");
}

static EV small_to_f32(Emit *e, const Narrow *n, EV bits) {
    EV u = widen(e, bits);
    EV code = and_c(e, u, n->sign - 1);
    /* The exponent field is off by a power of two, which a multiplication makes good, also for
     * subnormals. */
    EV f = emit_bits(e, shl_c(e, code, 23 - n->mbits), e->f32);
    f = LLVMBuildFMul(e->b, f, emit_f(e, LLVMTypeOf(f), ldexp(1, 127 - n->bias)), "");
    EV r = emit_bits(e, f, e->i32);
    if (n->inf) {
        EV top = sel(e, cmp_c(e, LLVMIntEQ, code, n->inf), emit_i(e, LLVMTypeOf(u), 0x7f800000),
                     emit_i(e, LLVMTypeOf(u), 0x7fc00000));
        r = sel(e, cmp_c(e, LLVMIntUGE, code, n->inf), top, r);
    }
    int shift = 31 - __builtin_ctz(n->sign);
    r = LLVMBuildOr(e->b, r, shl_c(e, and_c(e, u, n->sign), shift), "");
    EV nan = emit_i(e, LLVMTypeOf(u), 0x7fc00000);
    if (n->fnuz)
        r = sel(e, cmp_c(e, LLVMIntEQ, u, 0x80), nan, r);
    else if (n->nan && !n->inf)
        r = sel(e, cmp_c(e, LLVMIntEQ, code, n->nan), nan, r);
    return emit_bits(e, r, e->f32);
}

static EV e8m0_to_f32(Emit *e, EV bits) {
    EV u = widen(e, bits);
    EV r = shl_c(e, u, 23);
    r = sel(e, cmp_c(e, LLVMIntEQ, u, 0), emit_i(e, LLVMTypeOf(u), 0x00400000), r); /* 2^-127 */
    r = sel(e, cmp_c(e, LLVMIntEQ, u, 255), emit_i(e, LLVMTypeOf(u), 0x7fc00000), r);
    return emit_bits(e, r, e->f32);
}

/* The halves of each pair: one operation per element. */
static EV bf16_widen_pairs(Emit *e, EV bits) {
    uint32_t n = LLVMGetVectorSize(LLVMTypeOf(bits));
    EV pairs = LLVMBuildBitCast(e->b, bits, LLVMVectorType(e->i32, n / 2), ""), at[16];
    EV low = shl_c(e, pairs, 16), high = and_c(e, pairs, (int64_t)0xffff0000);
    for (uint32_t i = 0; i < n; i++) at[i] = emit_i(e, e->i32, i / 2 + (i & 1) * (n / 2));
    EV all = LLVMBuildShuffleVector(e->b, low, high, LLVMConstVector(at, n), "");
    return emit_bits(e, all, e->f32);
}

LLVMValueRef emit_narrow_to_f32(Emit *e, DType from, LLVMValueRef bits) {
    switch (from) {
    case DT_f16:
        return LLVMBuildFPExt(e->b, emit_bits(e, bits, e->f16), emit_like(bits, e->f32), "");
    case DT_bf16:
        if (e->isa->bf16_round && emit_is_vector(bits)) return bf16_widen_pairs(e, bits);
        return emit_bits(e, shl_c(e, widen(e, bits), 16), e->f32);
    default: break;
    }
    if (dtype_format[from].special == DSPECIAL_power) return e8m0_to_f32(e, bits);
    Narrow n = narrow_of(from);
    return small_to_f32(e, &n, bits);
}

static EV narrow_bits(Emit *e, EV x, LLVMTypeRef elem) {
    return LLVMBuildTrunc(e->b, x, emit_like(x, elem), "");
}

static EV f32_to_bf16(Emit *e, EV u) {
    EV lsb = and_c(e, shr_c(e, u, 16), 1);
    EV r = shr_c(e, LLVMBuildAdd(e->b, add_c(e, u, 0x7fff), lsb, ""), 16);
    EV nan = LLVMBuildOr(e->b, shr_c(e, u, 16), emit_i(e, LLVMTypeOf(u), 0x40), "");
    EV is_nan = cmp_c(e, LLVMIntUGT, and_c(e, u, 0x7fffffff), 0x7f800000);
    return narrow_bits(e, sel(e, is_nan, nan, r), e->i16);
}

/* Rounds |x| to the format's grid. Below its normal range adding a power of two does the rounding;
 * above, carrying into the exponent is right by itself. */
static EV round_small(Emit *e, const Narrow *n, EV abs) {
    int s = 23 - n->mbits;
    EV up = add_c(e, and_c(e, shr_c(e, abs, s), 1), (1 << (s - 1)) - 1);
    EV normal = shr_c(e, LLVMBuildAdd(e->b, abs, up, ""), s);
    normal = add_c(e, normal, -((int64_t)(127 - n->bias) << n->mbits));
    float magic = ldexpf(1, 1 - n->bias - n->mbits + 23);
    EV f = emit_bits(e, abs, e->f32), m = emit_f(e, LLVMTypeOf(f), magic);
    EV sub = LLVMBuildSub(e->b, emit_bits(e, LLVMBuildFAdd(e->b, f, m, ""), e->i32),
                          emit_bits(e, m, e->i32), "");
    int64_t min_normal = (int64_t)(128 - n->bias) << 23;
    return sel(e, cmp_c(e, LLVMIntULT, abs, min_normal), sub, normal);
}

static EV f32_to_small(Emit *e, const Narrow *n, bool saturate, EV u) {
    LLVMTypeRef t = LLVMTypeOf(u);
    EV abs = and_c(e, u, 0x7fffffff), sign = and_c(e, shr_c(e, u, 31), 1);
    sign = shl_c(e, sign, __builtin_ctz(n->sign));
    EV r = round_small(e, n, abs);
    EV over = cmp_c(e, LLVMIntUGT, r, n->max);
    uint32_t top = saturate || (!n->inf && !n->nan) ? n->max : n->inf ? n->inf : n->nan;
    r = sel(e, over, emit_i(e, t, top), r);
    EV is_nan = cmp_c(e, LLVMIntUGT, abs, 0x7f800000);
    if (n->nan) r = sel(e, is_nan, emit_i(e, t, n->nan), r);
    EV signed_r = LLVMBuildOr(e->b, r, sign, "");
    /* Without a NaN to give, NaN becomes -0, as ONNX's reference has it. */
    if (!n->nan) signed_r = sel(e, is_nan, emit_i(e, t, n->sign), signed_r);
    if (n->fnuz) signed_r = sel(e, cmp_c(e, LLVMIntEQ, r, 0), r, signed_r);
    return narrow_bits(e, signed_r, e->i8);
}

/* A power of two: the exponent alone, rounded to nearest (0), up (1) or down (2). */
static EV f32_to_e8m0(Emit *e, bool saturate, int round, EV u) {
    LLVMTypeRef t = LLVMTypeOf(u);
    EV exp = and_c(e, shr_c(e, u, 23), 0xff), frac = and_c(e, u, 0x7fffff);
    EV up = NULL;
    if (round == 1) up = cmp_c(e, LLVMIntNE, frac, 0);
    if (round == 0) {
        EV half = cmp_c(e, LLVMIntUGT, frac, 0x400000), tie = cmp_c(e, LLVMIntEQ, frac, 0x400000);
        tie = LLVMBuildAnd(e->b, tie, cmp_c(e, LLVMIntNE, exp, 0), "");
        up = LLVMBuildOr(e->b, half, tie, "");
    }
    if (up && saturate) up = LLVMBuildAnd(e->b, up, cmp_c(e, LLVMIntULT, exp, 0xfe), "");
    EV r = up ? LLVMBuildAdd(e->b, exp, LLVMBuildZExt(e->b, up, t, ""), "") : exp;
    EV special = cmp_c(e, LLVMIntEQ, exp, 0xff);
    return narrow_bits(e, sel(e, special, emit_i(e, t, 0xff), r), e->i8);
}

/* Two at a time, which is one instruction. */
static EV bf16_pairs(Emit *e, EV x) {
    LLVMTypeRef bf = LLVMBFloatTypeInContext(e->ctx);
    uint32_t n = emit_is_vector(x) ? LLVMGetVectorSize(LLVMTypeOf(x)) : 1;
    if (n < 2) return emit_bits(e, LLVMBuildFPTrunc(e->b, x, emit_like(x, bf), ""), e->i16);
    EV r = LLVMGetPoison(LLVMVectorType(e->i32, n / 2));
    for (uint32_t i = 0; i < n; i += 2) {
        EV at[2] = {emit_i(e, e->i32, i), emit_i(e, e->i32, i + 1)};
        EV two = LLVMBuildShuffleVector(e->b, x, LLVMGetPoison(LLVMTypeOf(x)),
                                        LLVMConstVector(at, 2), "");
        two = LLVMBuildFPTrunc(e->b, two, LLVMVectorType(bf, 2), "");
        two = LLVMBuildBitCast(e->b, two, e->i32, "");
        r = LLVMBuildInsertElement(e->b, r, two, emit_i(e, e->i32, i / 2), "");
    }
    return LLVMBuildBitCast(e->b, r, LLVMVectorType(e->i16, n), "");
}

LLVMValueRef emit_f32_to_narrow(Emit *e, DType to, bool saturate, int round, LLVMValueRef x) {
    if (to == DT_f16)
        return emit_bits(e, LLVMBuildFPTrunc(e->b, x, emit_like(x, e->f16), ""), e->i16);
    if (to == DT_bf16 && e->isa->bf16_round) return bf16_pairs(e, x);
    if (to == DT_bf16 && e->isa->round_bf16 && emit_is_vector(x) &&
        LLVMGetVectorSize(LLVMTypeOf(x)) == e->isa->lanes)
        return emit_bits(e, emit_intrinsic(e, e->isa->round_bf16, NULL, &x, 1), e->i16);
    EV u = emit_bits(e, x, e->i32);
    if (to == DT_bf16) return f32_to_bf16(e, u);
    if (dtype_format[to].special == DSPECIAL_power) return f32_to_e8m0(e, saturate, round, u);
    Narrow n = narrow_of(to);
    return f32_to_small(e, &n, saturate, u);
}

LLVMValueRef emit_f64_to_f32_odd(Emit *e, LLVMValueRef x) {
    LLVMTypeRef d = LLVMTypeOf(x);
    EV f = LLVMBuildFPTrunc(e->b, x, emit_like(x, e->f32), "");
    EV back = LLVMBuildFPExt(e->b, f, d, "");
    EV u = emit_bits(e, f, e->i32);
    EV ax = emit_intrinsic(e, "llvm.fabs", d, &x, 1),
       ab = emit_intrinsic(e, "llvm.fabs", d, &back, 1);
    EV above = LLVMBuildFCmp(e->b, LLVMRealOGT, ab, ax, "");
    EV cut = sel(e, above, add_c(e, u, -1), u);
    EV odd = LLVMBuildOr(e->b, cut, emit_i(e, LLVMTypeOf(u), 1), "");
    EV inexact = LLVMBuildFCmp(e->b, LLVMRealONE, back, x, "");
    return emit_bits(e, sel(e, inexact, odd, u), e->f32);
}
