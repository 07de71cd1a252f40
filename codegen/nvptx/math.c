/* f32 functions from the special function unit: ex2 and rcp give about 2^-22 relative error each
 * and flush subnormals to zero, as the results here do. Seen on an H200: kernels of softmax, gelu
 * and swiglu in f32 within 2e-7 of f64, over all elements; single arguments were not tabulated. */
#include "codegen/nvptx/gpu.h"

/* One instruction per lane, of n operands; overloaded intrinsics name their type. */
static LLVMValueRef each(Emit *e, const char *name, LLVMTypeRef over, LLVMValueRef *x, uint32_t n) {
    if (!emit_is_vector(x[0])) return emit_intrinsic(e, name, over, x, n);
    LLVMValueRef r = LLVMGetPoison(LLVMTypeOf(x[0])), v[3];
    for (uint32_t i = 0; i < LLVMGetVectorSize(LLVMTypeOf(x[0])); i++) {
        LLVMValueRef lane = emit_i64(e, i);
        for (uint32_t j = 0; j < n; j++) v[j] = LLVMBuildExtractElement(e->b, x[j], lane, "");
        r = LLVMBuildInsertElement(e->b, r, emit_intrinsic(e, name, over, v, n), lane, "");
    }
    return r;
}

static LLVMValueRef ex2(Emit *e, LLVMValueRef x) {
    return each(e, "llvm.nvvm.ex2.approx.ftz", e->f32, &x, 1);
}

LLVMValueRef gpu_rcp(Emit *e, LLVMValueRef x) {
    return each(e, "llvm.nvvm.rcp.approx.ftz.f", NULL, &x, 1);
}

static LLVMValueRef num(Emit *e, LLVMValueRef like, double v) {
    return emit_f(e, LLVMTypeOf(like), v);
}

static LLVMValueRef mul(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFMul(e->b, a, b, "");
}
static LLVMValueRef add(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFAdd(e->b, a, b, "");
}

/* n = x log2(e) to an integer, kept within the exponent range, and 2^n times 2^(x log2(e) - n). n
 * stands in the low bits of a number whose exponent is fixed: a shift makes 2^n of it. What is
 * infinite or no number passes through ex2. */
static LLVMValueRef gpu_exp(Emit *e, LLVMValueRef x) {
    LLVMTypeRef it = emit_like(x, e->i32);
    LLVMValueRef part[3] = {x, num(e, x, 1.4426950408889634 / 252), num(e, x, 0.5)};
    LLVMValueRef t = each(e, "llvm.nvvm.fma.rn.sat.f", NULL, part, 3);
    LLVMValueRef whole[3] = {t, num(e, x, 252), num(e, x, 0x1.8p23 + 1)};
    t = each(e, "llvm.nvvm.fma.rm.f", NULL, whole, 3);
    LLVMValueRef n = add(e, t, num(e, x, -(0x1.8p23 + 127)));
    LLVMValueRef r = emit_fma(e, x, num(e, x, 0x1.715476p+0), LLVMBuildFNeg(e->b, n, ""));
    r = emit_fma(e, x, num(e, x, 0x1.4ae0cp-26), r);
    LLVMValueRef bits = LLVMBuildBitCast(e->b, t, it, "");
    bits = LLVMBuildShl(e->b, bits, emit_i(e, it, 23), "");
    return mul(e, ex2(e, r), LLVMBuildBitCast(e->b, bits, LLVMTypeOf(x), ""));
}

static LLVMValueRef gpu_sigmoid(Emit *e, LLVMValueRef x) {
    LLVMValueRef t = gpu_exp(e, LLVMBuildFNeg(e->b, x, ""));
    return gpu_rcp(e, add(e, t, num(e, x, 1)));
}

/* 1 - 2 / (exp(2a) + 1); a polynomial where that would cancel. */
static LLVMValueRef gpu_tanh(Emit *e, LLVMValueRef x) {
    static const double c[] = {-0.33333147, 0.13322775, -0.05252712, 0.01695633};
    LLVMValueRef a = emit_intrinsic(e, "llvm.fabs", LLVMTypeOf(x), &x, 1), x2 = mul(e, x, x);
    LLVMValueRef t = ex2(e, mul(e, a, num(e, x, 2 * 1.4426950408889634)));
    LLVMValueRef big =
        emit_fma(e, num(e, x, -2), gpu_rcp(e, add(e, t, num(e, x, 1))), num(e, x, 1));
    LLVMValueRef sign[2] = {big, x};
    big = emit_intrinsic(e, "llvm.copysign", LLVMTypeOf(x), sign, 2);
    LLVMValueRef p = num(e, x, c[3]);
    for (int i = 3; i-- > 0;) p = emit_fma(e, p, x2, num(e, x, c[i]));
    LLVMValueRef small = emit_fma(e, mul(e, p, x2), x, x);
    LLVMValueRef near = LLVMBuildFCmp(e->b, LLVMRealOLT, a, num(e, x, 0.55), "");
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, "");
    return LLVMBuildSelect(e->b, LLVMBuildOr(e->b, near, nan, ""), small, big, "");
}

/* 1 - (a1 t + ... + a5 t^5) exp(-x^2), t = 1 / (1 + p |x|): within 1.5e-7 of the value (Abramowitz
 * and Stegun 7.1.26), which is less than f32's step around 1 but many of its steps near 0. */
static LLVMValueRef coarse_erf(Emit *e, LLVMValueRef x) {
    static const double c[] = {0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429};
    LLVMValueRef a = emit_intrinsic(e, "llvm.fabs", LLVMTypeOf(x), &x, 1);
    LLVMValueRef t = gpu_rcp(e, emit_fma(e, a, num(e, x, 0.3275911), num(e, x, 1)));
    LLVMValueRef p = num(e, x, c[4]);
    for (int i = 4; i-- > 0;) p = emit_fma(e, p, t, num(e, x, c[i]));
    LLVMValueRef y = ex2(e, mul(e, mul(e, x, num(e, x, -1.4426950408889634)), x));
    y = LLVMBuildFNeg(e->b, mul(e, mul(e, p, t), y), "");
    LLVMValueRef sign[2] = {add(e, y, num(e, x, 1)), x};
    return emit_intrinsic(e, "llvm.copysign", LLVMTypeOf(x), sign, 2);
}

/* Nothing leaves the kernel with more than 11 bits of a float. */
static bool is_coarse(const Kernel *k) {
    for (uint32_t i = 0; i < k->nparams; i++)
        if (k->params[i].written && k->params[i].dtype != DT_bf16 && k->params[i].dtype != DT_f16)
            return false;
    return true;
}

LLVMValueRef gpu_math(Emit *e, Op op, LLVMValueRef x) {
    LLVMTypeRef t = LLVMTypeOf(x);
    if ((emit_is_vector(x) ? LLVMGetElementType(t) : t) != e->f32) return NULL;
    switch (op) {
    case OP_exp: return gpu_exp(e, x);
    case OP_sigmoid: return gpu_sigmoid(e, x);
    case OP_tanh: return gpu_tanh(e, x);
    case OP_erf: return is_coarse(e->k) ? coarse_erf(e, x) : NULL;
    default: return NULL;
    }
}
