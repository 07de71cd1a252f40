/* Element-wise ops and folds on scalars and vectors alike. Nothing here makes control flow, so
 * every op can be hoisted, and nothing lowers to a libc call. */
#include "codegen/emit/emit_internal.h"
#include <math.h>

static bool is_f(DType t) {
    return t == DT_f32 || t == DT_f64;
}

static EV fcmp(Emit *e, LLVMRealPredicate p, EV a, EV b) {
    return LLVMBuildFCmp(e->b, p, a, b, "");
}

static EV icmp(Emit *e, LLVMIntPredicate p, EV a, EV b) {
    return LLVMBuildICmp(e->b, p, a, b, "");
}

static EV sel(Emit *e, EV c, EV a, EV b) {
    return LLVMBuildSelect(e->b, c, a, b, "");
}

static EV call1(Emit *e, const char *name, EV x) {
    return emit_intrinsic(e, name, LLVMTypeOf(x), &x, 1);
}

static EV call2(Emit *e, const char *name, EV x, EV y) {
    EV v[2] = {x, y};
    return emit_intrinsic(e, name, LLVMTypeOf(x), v, 2);
}

/* --- Min and max -------------------------------------------------------------------------- */

/* The compare-and-select form maps to one minps or maxps, which gives its second operand when the
 * two are unordered: with a constant first, unless it is NaN, that is already NaN-preserving. */
static EV float_minmax(Emit *e, bool max, EV x, EV y) {
    LLVMRealPredicate p = max ? LLVMRealOGT : LLVMRealOLT;
    EV c = LLVMIsConstant(x) ? x : y, v = LLVMIsConstant(x) ? y : x;
    if (LLVMIsConstant(c) && LLVMIsNull(fcmp(e, LLVMRealUNO, c, c)))
        return sel(e, fcmp(e, p, c, v), c, v);
    EV m = sel(e, fcmp(e, p, x, y), x, y);
    return sel(e, fcmp(e, LLVMRealUNO, x, x), x, m);
}

static EV minmax(Emit *e, bool max, DType t, EV x, EV y) {
    if (t == DT_f32 && e->isa->nan_minmax)
        return call2(e, max ? "llvm.maximum" : "llvm.minimum", x, y);
    if (is_f(t)) return float_minmax(e, max, x, y);
    if (t == DT_bool) return max ? LLVMBuildOr(e->b, x, y, "") : LLVMBuildAnd(e->b, x, y, "");
    if (dtype_is_signed(t)) return call2(e, max ? "llvm.smax" : "llvm.smin", x, y);
    return call2(e, max ? "llvm.umax" : "llvm.umin", x, y);
}

/* --- Integer division --------------------------------------------------------------------- */

/* Quotients of integers up to 32 bits are exact in f64 after truncation. */
static EV div_by_float(Emit *e, DType t, EV x, EV y) {
    LLVMTypeRef d = emit_like(x, e->f64), it = LLVMTypeOf(x);
    bool s = dtype_is_signed(t);
    EV a = s ? LLVMBuildSIToFP(e->b, x, d, "") : LLVMBuildUIToFP(e->b, x, d, "");
    EV b = s ? LLVMBuildSIToFP(e->b, y, d, "") : LLVMBuildUIToFP(e->b, y, d, "");
    EV q = LLVMBuildFDiv(e->b, a, b, "");
    LLVMTypeRef wide = emit_like(x, e->i64);
    return LLVMBuildTrunc(e->b, LLVMBuildFPToSI(e->b, q, wide, ""), it, "");
}

/* Truncated quotient; 0 where y is 0, and -x where y is -1 so that nothing overflows. */
static EV int_div(Emit *e, DType t, EV x, EV y) {
    LLVMTypeRef ty = LLVMTypeOf(x);
    EV zero = emit_i(e, ty, 0), one = emit_i(e, ty, 1);
    bool s = dtype_is_signed(t);
    EV none = icmp(e, LLVMIntEQ, y, zero);
    EV minus = s ? icmp(e, LLVMIntEQ, y, emit_i(e, ty, -1)) : NULL;
    EV d = sel(e, s ? LLVMBuildOr(e->b, none, minus, "") : none, one, y);
    EV q;
    if (emit_is_vector(x) && !LLVMIsConstant(y) && dtype_bytes(t) <= 4)
        q = div_by_float(e, t, x, d);
    else
        q = s ? LLVMBuildSDiv(e->b, x, d, "") : LLVMBuildUDiv(e->b, x, d, "");
    if (s) q = sel(e, minus, LLVMBuildNeg(e->b, x, ""), q);
    return sel(e, none, zero, q);
}

static EV int_rem(Emit *e, DType t, EV x, EV y, bool floored) {
    LLVMTypeRef ty = LLVMTypeOf(x);
    EV zero = emit_i(e, ty, 0);
    EV q = int_div(e, t, x, y);
    EV r = LLVMBuildSub(e->b, x, LLVMBuildMul(e->b, q, y, ""), "");
    if (floored && dtype_is_signed(t)) {
        EV odd = icmp(e, LLVMIntNE, r, zero);
        EV opposite = icmp(e, LLVMIntSLT, LLVMBuildXor(e->b, r, y, ""), zero);
        r = sel(e, LLVMBuildAnd(e->b, odd, opposite, ""), LLVMBuildAdd(e->b, r, y, ""), r);
    }
    return sel(e, icmp(e, LLVMIntEQ, y, zero), zero, r);
}

static EV int_shift(Emit *e, Op op, DType t, EV x, EV y) {
    LLVMTypeRef ty = LLVMTypeOf(x);
    int64_t bits = (int64_t)dtype_bytes(t) * 8;
    EV over = icmp(e, LLVMIntUGE, y, emit_i(e, ty, bits));
    EV n = sel(e, over, emit_i(e, ty, bits - 1), y);
    if (op == OP_shr && dtype_is_signed(t)) return LLVMBuildAShr(e->b, x, n, "");
    EV r = op == OP_shl ? LLVMBuildShl(e->b, x, n, "") : LLVMBuildLShr(e->b, x, n, "");
    return sel(e, over, emit_i(e, ty, 0), r);
}

/* By squaring, wrapping; a negative exponent gives 1/x truncated: 0 unless x is 1 or -1. */
static EV int_pow(Emit *e, DType t, EV x, EV y) {
    LLVMTypeRef ty = LLVMTypeOf(x);
    EV zero = emit_i(e, ty, 0), one = emit_i(e, ty, 1), r = one, b = x, n = y;
    for (size_t i = 0; i < dtype_bytes(t) * 8; i++) {
        EV odd = icmp(e, LLVMIntNE, LLVMBuildAnd(e->b, n, one, ""), zero);
        r = sel(e, odd, LLVMBuildMul(e->b, r, b, ""), r);
        b = LLVMBuildMul(e->b, b, b, "");
        n = LLVMBuildLShr(e->b, n, one, "");
    }
    if (!dtype_is_signed(t)) return r;
    EV minus = emit_i(e, ty, -1);
    EV unit = LLVMBuildOr(e->b, icmp(e, LLVMIntEQ, x, one), icmp(e, LLVMIntEQ, x, minus), "");
    /* For +-1 the low bit of the exponent decides, whatever its sign. */
    return sel(e, icmp(e, LLVMIntSLT, y, zero), sel(e, unit, r, zero), r);
}

static EV int_op(Emit *e, Op op, DType t, EV x, EV y) {
    LLVMTypeRef ty = LLVMTypeOf(x);
    EV zero = emit_i(e, ty, 0);
    bool s = dtype_is_signed(t);
    switch (op) {
    case OP_neg: return LLVMBuildNeg(e->b, x, "");
    case OP_abs: return s ? sel(e, icmp(e, LLVMIntSLT, x, zero), LLVMBuildNeg(e->b, x, ""), x) : x;
    case OP_sign:
        if (!s) return LLVMBuildZExt(e->b, icmp(e, LLVMIntNE, x, zero), ty, "");
        return minmax(e, true, t, minmax(e, false, t, x, emit_i(e, ty, 1)), emit_i(e, ty, -1));
    case OP_not: return LLVMBuildNot(e->b, x, "");
    case OP_add: return LLVMBuildAdd(e->b, x, y, "");
    case OP_sub: return LLVMBuildSub(e->b, x, y, "");
    case OP_mul: return LLVMBuildMul(e->b, x, y, "");
    case OP_div: return int_div(e, t, x, y);
    case OP_mod: return int_rem(e, t, x, y, true);
    case OP_rem: return int_rem(e, t, x, y, false);
    case OP_pow: return int_pow(e, t, x, y);
    case OP_and: return LLVMBuildAnd(e->b, x, y, "");
    case OP_or: return LLVMBuildOr(e->b, x, y, "");
    case OP_xor: return LLVMBuildXor(e->b, x, y, "");
    case OP_shl:
    case OP_shr: return int_shift(e, op, t, x, y);
    case OP_eq: return icmp(e, LLVMIntEQ, x, y);
    case OP_ne: return icmp(e, LLVMIntNE, x, y);
    case OP_lt: return icmp(e, s ? LLVMIntSLT : LLVMIntULT, x, y);
    case OP_le: return icmp(e, s ? LLVMIntSLE : LLVMIntULE, x, y);
    default: return NULL;
    }
}

/* --- Floats ------------------------------------------------------------------------------- */

/* LLVM 22 takes elements of a vector quotient for zero where both operands' are, and drops the
 * select that puts zero in place of the NaN there (SimplifyDemandedVectorElts): of rows that do not
 * fill their vectors, loads of AVX2 code give zero past the end. A fence hides what y holds. */
static EV divide(Emit *e, EV x, EV y) {
    const bool vector = LLVMGetTypeKind(LLVMTypeOf(y)) == LLVMVectorTypeKind;
    if (vector && e->isa->lanes > 1 && !LLVMIsConstant(y)) y = call1(e, "llvm.arithmetic.fence", y);
    return LLVMBuildFDiv(e->b, x, y, "");
}

/* One exact step r - q*y with q cut to 28 bits: what fmod needs, several bits at a time. */
static EV fmod_step(Emit *e, EV r, EV y) {
    EV q = emit_bits(e, call1(e, "llvm.trunc", divide(e, r, y)), e->i64);
    q = LLVMBuildAnd(e->b, q, emit_i(e, LLVMTypeOf(q), -(INT64_C(1) << 25)), "");
    return emit_fma(e, LLVMBuildFNeg(e->b, emit_bits(e, q, e->f64), ""), y, r);
}

/* C's fmod for quotients below 2^80 (f32) and 2^53 (f64); larger ones lose accuracy. */
static EV float_rem(Emit *e, EV x, EV y) {
    LLVMTypeRef from = LLVMTypeOf(x), d = emit_like(x, e->f64);
    bool single = LLVMTypeOf(emit_f(e, from, 0)) != d;
    EV a = single ? LLVMBuildFPExt(e->b, x, d, "") : x;
    EV b = call1(e, "llvm.fabs", single ? LLVMBuildFPExt(e->b, y, d, "") : y);
    EV r = call1(e, "llvm.fabs", a), zero = emit_f(e, d, 0);
    for (int i = 0; i < 3; i++) {
        r = fmod_step(e, r, b);
        r = sel(e, fcmp(e, LLVMRealOLT, r, zero), LLVMBuildFAdd(e->b, r, b, ""), r);
    }
    r = sel(e, fcmp(e, LLVMRealOGE, r, b), LLVMBuildFSub(e->b, r, b, ""), r);
    EV big = fcmp(e, LLVMRealOEQ, b, emit_f(e, d, INFINITY));
    EV finite = fcmp(e, LLVMRealOLT, call1(e, "llvm.fabs", a), emit_f(e, d, INFINITY));
    r = call2(e, "llvm.copysign", r, a);
    r = sel(e, LLVMBuildAnd(e->b, big, finite, ""), a, r);
    return single ? LLVMBuildFPTrunc(e->b, r, from, "") : r;
}

static EV float_mod(Emit *e, EV x, EV y) {
    EV zero = emit_f(e, LLVMTypeOf(x), 0);
    EV r = float_rem(e, x, y);
    EV odd = fcmp(e, LLVMRealONE, r, zero);
    EV rn = fcmp(e, LLVMRealOLT, r, zero), yn = fcmp(e, LLVMRealOLT, y, zero);
    EV fix = LLVMBuildAnd(e->b, odd, LLVMBuildXor(e->b, rn, yn, ""), "");
    return sel(e, fix, LLVMBuildFAdd(e->b, r, y, ""), r);
}

static EV float_sign(Emit *e, EV x) {
    LLVMTypeRef t = LLVMTypeOf(x);
    EV zero = emit_f(e, t, 0);
    EV s = call2(e, "llvm.copysign", emit_f(e, t, 1), x);
    return sel(e, fcmp(e, LLVMRealONE, x, zero), s, x); /* zeros and NaN stay */
}

static EV float_op(Emit *e, Op op, EV x, EV y) {
    LLVMTypeRef t = LLVMTypeOf(x);
    EV one = emit_f(e, t, 1), quick = e->quick ? e->quick(e, op, x, y) : NULL;
    if (quick) return quick;
    switch (op) {
    case OP_neg: return LLVMBuildFNeg(e->b, x, "");
    case OP_abs: return call1(e, "llvm.fabs", x);
    case OP_sign: return float_sign(e, x);
    case OP_floor: return call1(e, "llvm.floor", x);
    case OP_ceil: return call1(e, "llvm.ceil", x);
    case OP_round: return call1(e, "llvm.roundeven", x);
    case OP_trunc: return call1(e, "llvm.trunc", x);
    case OP_sqrt: return call1(e, "llvm.sqrt", x);
    case OP_rsqrt: return LLVMBuildFDiv(e->b, one, call1(e, "llvm.sqrt", x), "");
    case OP_recip: return LLVMBuildFDiv(e->b, one, x, "");
    case OP_isnan: return fcmp(e, LLVMRealUNO, x, x);
    case OP_isinf: return fcmp(e, LLVMRealOEQ, call1(e, "llvm.fabs", x), emit_f(e, t, INFINITY));
    case OP_add: return emit_fbin(e, LLVMFAdd, x, y);
    case OP_sub: return emit_fbin(e, LLVMFSub, x, y);
    case OP_mul: return emit_fbin(e, LLVMFMul, x, y);
    case OP_div: return divide(e, x, y);
    case OP_mod: return float_mod(e, x, y);
    case OP_rem: return float_rem(e, x, y);
    case OP_eq: return fcmp(e, LLVMRealOEQ, x, y);
    case OP_ne: return fcmp(e, LLVMRealUNE, x, y);
    case OP_lt: return fcmp(e, LLVMRealOLT, x, y);
    case OP_le: return fcmp(e, LLVMRealOLE, x, y);
    default: return emit_math(e, op, x, y);
    }
}

/* --- Casts -------------------------------------------------------------------------------- */

static EV int_resize(Emit *e, EV x, DType from, DType to) {
    LLVMTypeRef t = emit_like(x, emit_type(e, to));
    if (from == DT_bool) return LLVMBuildZExt(e->b, x, t, "");
    EV r = LLVMBuildIntCast2(e->b, x, t, dtype_is_signed(from), "");
    if (dtype_info[to].bits >= 8) return r;
    EV unused = emit_i(e, t, 8 - dtype_info[to].bits);
    r = LLVMBuildShl(e->b, r, unused, "");
    return dtype_is_signed(to) ? LLVMBuildAShr(e->b, r, unused, "")
                               : LLVMBuildLShr(e->b, r, unused, "");
}

/* What llvm.fptosi.sat does, which x86 would do lane by lane: what is not converted here is not a
 * number or too large, and is replaced. */
static EV saturate_lanes(Emit *e, EV x, LLVMTypeRef elem) {
    LLVMTypeRef f = LLVMTypeOf(x), t = emit_like(x, elem);
    unsigned bits = LLVMGetIntTypeWidth(elem);
    double end = ldexp(1, (int)bits - 1);
    EV low = emit_f(e, f, -end), high = emit_f(e, f, end);
    EV y = sel(e, fcmp(e, LLVMRealOLT, x, low), low, x);
    y = LLVMBuildFPToSI(e->b, y, t, "");
    y = sel(e, fcmp(e, LLVMRealOGE, x, high), emit_i(e, t, bits == 64 ? INT64_MAX : INT32_MAX), y);
    return sel(e, fcmp(e, LLVMRealUNO, x, x), emit_i(e, t, 0), y);
}

static EV sat(Emit *e, const char *name, EV x, LLVMTypeRef elem) {
    LLVMTypeRef over[2] = {emit_like(x, elem), LLVMTypeOf(x)};
    unsigned id = LLVMLookupIntrinsicID(name, __builtin_strlen(name));
    EV fn = LLVMGetIntrinsicDeclaration(e->mod, id, over, 2);
    return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, &x, 1, "");
}

static EV to_signed(Emit *e, EV x, LLVMTypeRef elem) {
    return emit_is_vector(x) ? saturate_lanes(e, x, elem) : sat(e, "llvm.fptosi.sat", x, elem);
}

/* Toward zero; 32 bits and more saturate and NaN gives 0, narrower types wrap that result. */
static EV float_to_int(Emit *e, EV x, DType to) {
    if (to == DT_i64) return to_signed(e, x, e->i64);
    if (to == DT_u64) {
        EV neg = fcmp(e, LLVMRealOLT, x, emit_f(e, LLVMTypeOf(x), 0));
        return sel(e, neg, to_signed(e, x, e->i64), sat(e, "llvm.fptoui.sat", x, e->i64));
    }
    if (to == DT_u32) return int_resize(e, to_signed(e, x, e->i64), DT_i64, DT_u32);
    return int_resize(e, to_signed(e, x, e->i32), DT_i32, to);
}

static EV to_float(Emit *e, DType from, DType to, EV x) {
    LLVMTypeRef t = emit_like(x, emit_type(e, to));
    if (from == to) return x;
    if (from == DT_f32) return LLVMBuildFPExt(e->b, x, t, "");
    if (from == DT_f64) return LLVMBuildFPTrunc(e->b, x, t, "");
    if (dtype_is_float(from)) return to_float(e, DT_f32, to, emit_narrow_to_f32(e, from, x));
    if (dtype_is_signed(from)) return LLVMBuildSIToFP(e->b, x, t, "");
    return LLVMBuildUIToFP(e->b, x, t, "");
}

static EV to_narrow(Emit *e, DType from, DType to, bool saturate, int round, EV x) {
    bool wide = from == DT_f64 || (!dtype_is_float(from) && dtype_bytes(from) >= 4);
    EV f =
        wide ? emit_f64_to_f32_odd(e, to_float(e, from, DT_f64, x)) : to_float(e, from, DT_f32, x);
    return emit_f32_to_narrow(e, to, saturate, round, f);
}

LLVMValueRef emit_cast_round(Emit *e, DType from, DType to, bool saturate, int round,
                             LLVMValueRef x) {
    if (from == to) return x;
    if (is_f(to)) return to_float(e, from, to, x);
    if (dtype_is_float(to)) return to_narrow(e, from, to, saturate, round, x);
    if (dtype_is_float(from) && !is_f(from)) {
        x = emit_narrow_to_f32(e, from, x);
        from = DT_f32;
    }
    if (to == DT_bool)
        return is_f(from) ? fcmp(e, LLVMRealUNE, x, emit_f(e, LLVMTypeOf(x), 0))
                          : icmp(e, LLVMIntNE, x, emit_i(e, LLVMTypeOf(x), 0));
    return is_f(from) ? float_to_int(e, x, to) : int_resize(e, x, from, to);
}

LLVMValueRef emit_cast(Emit *e, DType from, DType to, LLVMValueRef x) {
    return emit_cast_round(e, from, to, true, 0, x);
}

/* --- Entry points ------------------------------------------------------------------------- */

static uint32_t lanes_of(EV v) {
    return v && emit_is_vector(v) ? LLVMGetVectorSize(LLVMTypeOf(v)) : 1;
}

static bool is_comparison(Op op) {
    return op == OP_eq || op == OP_ne || op == OP_lt || op == OP_le || op == OP_isnan ||
           op == OP_isinf;
}

/* Narrow types compute in the next wider one. */
static EV map_widened(Emit *e, Op op, DType t, DType wide, EV x, EV y) {
    EV r =
        emit_map(e, op, wide, emit_cast(e, t, wide, x), y ? emit_cast(e, t, wide, y) : NULL, NULL);
    return is_comparison(op) || !r ? r : emit_cast(e, wide, t, r);
}

LLVMValueRef emit_map(Emit *e, Op op, DType t, LLVMValueRef x, LLVMValueRef y, LLVMValueRef z) {
    uint32_t n = lanes_of(x);
    if (lanes_of(y) > n) n = lanes_of(y);
    if (lanes_of(z) > n) n = lanes_of(z);
    if (op == OP_select) {
        if (n > 1 && lanes_of(x) == 1 && lanes_of(y) == 1 && lanes_of(z) == 1) n = 1;
        return emit_select(e, x, emit_splat_n(e, y, n), emit_splat_n(e, z, n));
    }
    x = emit_splat_n(e, x, n);
    if (y) y = emit_splat_n(e, y, n);
    if (dtype_is_float(t) && !is_f(t)) return map_widened(e, op, t, DT_f32, x, y);
    if (dtype_info[t].bits < 8)
        return map_widened(e, op, t, dtype_is_signed(t) ? DT_i8 : DT_u8, x, y);
    if (op == OP_min || op == OP_max) return minmax(e, op == OP_max, t, x, y);
    if (is_f(t)) return float_op(e, op, x, y);
    return int_op(e, op, t, x, y);
}

/* --- Folds -------------------------------------------------------------------------------- */

LLVMValueRef emit_fold_identity(Emit *e, KFold f, DType t, uint32_t lanes) {
    LLVMTypeRef ty = emit_vec(emit_type(e, t), lanes);
    int64_t lo = 0;
    uint64_t hi = 0;
    if (is_f(t)) {
        static const double id[] = {0, 1, -INFINITY, INFINITY};
        return emit_f(e, ty, id[f]);
    }
    dtype_int_range(t, &lo, &hi);
    return emit_i(e, ty, f == FOLD_sum ? 0 : f == FOLD_prod ? 1 : f == FOLD_max ? lo : (int64_t)hi);
}

LLVMValueRef emit_fold_join(Emit *e, KFold f, DType t, LLVMValueRef a, LLVMValueRef b) {
    static const uint8_t op[] = {OP_add, OP_mul, OP_max, OP_min};
    return emit_map(e, (Op)op[f], t, a, b, NULL);
}

LLVMValueRef emit_fold_numbers(Emit *e, KFold f, DType t, LLVMValueRef a, LLVMValueRef b) {
    if ((f != FOLD_max && f != FOLD_min) || !is_f(t)) return emit_fold_join(e, f, t, a, b);
    if (t == DT_f32 && e->isa->nan_minmax)
        return call2(e, f == FOLD_max ? "llvm.maxnum" : "llvm.minnum", a, b);
    return sel(e, fcmp(e, f == FOLD_max ? LLVMRealOGT : LLVMRealOLT, b, a), b, a);
}

LLVMValueRef emit_fold_lanes(Emit *e, KFold f, DType t, LLVMValueRef v) {
    return emit_fold_lanes_by(e, f, t, v, emit_fold_join);
}

LLVMValueRef emit_fold_lanes_by(Emit *e, KFold f, DType t, LLVMValueRef v, EmitJoin join) {
    if (!emit_is_vector(v)) return v;
    for (uint32_t n = LLVMGetVectorSize(LLVMTypeOf(v)); n > 1; n /= 2) {
        LLVMValueRef idx[2][64], half[2];
        for (uint32_t h = 0; h < 2; h++) {
            for (uint32_t i = 0; i < n / 2; i++)
                idx[h][i] = LLVMConstInt(e->i32, h * n / 2 + i, false);
            half[h] = n == 2 ? LLVMBuildExtractElement(e->b, v, idx[h][0], "")
                             : LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)),
                                                      LLVMConstVector(idx[h], n / 2), "");
        }
        v = join(e, f, t, half[0], half[1]);
    }
    return v;
}
