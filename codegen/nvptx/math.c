/* f32 functions from the special function unit: ex2 and rcp give about 2^-22 relative error each
 * and flush subnormals to zero, as the results here do. Seen on an H200: kernels of softmax, gelu
 * and swiglu in f32 within 2e-7 of f64, over all elements; single arguments were not tabulated. */
#include "codegen/nvptx/gpu.h"
#include <math.h>
#include <stdlib.h>

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

/* exp of what is at most 0, as it is what an f32 sum takes: softmax's. The error of a term is
 * within 2^-22 of it and 2^-24 of the largest. */
static bool is_softmax_sum(const Kernel *k, const KOp *s) {
    const KOp *x = &k->ops[s->in[0]], *d = &k->ops[x->in[0]], *m = &k->ops[d->in[1]];
    return s->op == K_kreduce && s->fold == FOLD_sum && x->op == OP_exp && d->op == OP_sub &&
           m->op == K_kreduce && m->fold == FOLD_max && m->in[0] == d->in[0];
}

/* Of which ops more than 11 bits matter: what is stored in a wider type depends on them. */
static void mark_wide(const Kernel *k, bool *wide) {
    for (KVal v = k->nops; v-- > 1;) {
        const KOp *o = &k->ops[v];
        bool store = o->op == K_kstore || o->op == K_katomic;
        DType t = store ? k->params[o->buf].dtype : DT_f32;
        if (store) wide[v] = t != DT_bf16 && t != DT_f16;
        if (o->op == K_kbind || o->op == K_kcompact || o->op == K_ksort) wide[v] = true;
        if (!wide[v]) continue;
        if (is_softmax_sum(k, o))
            wide[k->ops[o->in[0]].in[0]] = true;
        else
            for (int i = 0; i < 3; i++) wide[o->in[i]] = true;
    }
}

/* Weights of a gradient of attention are rounded to 16 bits if what they are multiplied by is. */
static bool weighs_half(const Kernel *k) {
    const KOp *b = &k->ops[k->grad.b];
    while (b->op == OP_cast) b = &k->ops[b->in[0]];
    bool gradient = k->tem == TEM_attention_gradient || k->tem == TEM_attention_gradients;
    return gradient && dtype_bytes((DType)b->dtype) == 2;
}

bool *gpu_coarse(Arena *a, const Kernel *k) {
    bool *coarse = ARENA_ARRAY(a, bool, k->nops);
    mark_wide(k, coarse);
    for (KVal v = 0; v < k->nops; v++) coarse[v] = !coarse[v];
    for (KVal v = k->nops; weighs_half(k) && v-- > 1;) coarse[v] |= v <= k->grad.p;
    return coarse;
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

/* Within |x| 2^-24 + 2^-22 of the value, relatively. */
LLVMValueRef gpu_coarse_exp(Emit *e, LLVMValueRef x) {
    return ex2(e, mul(e, x, num(e, x, 1.4426950408889634)));
}

static LLVMValueRef gpu_sigmoid(Emit *e, LLVMValueRef x) {
    LLVMValueRef y = LLVMBuildFNeg(e->b, x, "");
    LLVMValueRef t = e->coarse[e->now] ? gpu_coarse_exp(e, y) : gpu_exp(e, y);
    return gpu_rcp(e, add(e, t, num(e, x, 1)));
}

/* 1 - 2 / (exp(2a) + 1); a polynomial where that would cancel. */
static LLVMValueRef gpu_tanh(Emit *e, LLVMValueRef x) {
    static const double c[] = {-0.333333075, 0.133322239, -0.0538136661, 0.0209108964,
                               -0.00604576524};
    LLVMValueRef a = emit_intrinsic(e, "llvm.fabs", LLVMTypeOf(x), &x, 1), x2 = mul(e, x, x);
    LLVMValueRef t = ex2(e, mul(e, a, num(e, x, 2 * 1.4426950408889634)));
    LLVMValueRef big =
        emit_fma(e, num(e, x, -2), gpu_rcp(e, add(e, t, num(e, x, 1))), num(e, x, 1));
    LLVMValueRef sign[2] = {big, x};
    big = emit_intrinsic(e, "llvm.copysign", LLVMTypeOf(x), sign, 2);
    LLVMValueRef p = num(e, x, c[4]);
    for (int i = 4; i-- > 0;) p = emit_fma(e, p, x2, num(e, x, c[i]));
    LLVMValueRef small = emit_fma(e, mul(e, p, x2), x, x);
    LLVMValueRef near = LLVMBuildFCmp(e->b, LLVMRealOLT, a, num(e, x, 0.55), "");
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, "");
    return LLVMBuildSelect(e->b, LLVMBuildOr(e->b, near, nan, ""), small, big, "");
}

/* 1 - 2 / (1 + 2^t) with t = x Q(x^2): within 3.3e-6 of the value, relative error 1e-5 where that
 * is more than f32's step around 1. Q fits log2((1 + erf x) / (1 - erf x)) / x up to 4. */
static LLVMValueRef coarse_erf(Emit *e, LLVMValueRef x) {
    static const double c[] = {3.25578046, 0.296882033, -1.30762870e-3, -1.24120351e-3,
                               9.74763825e-5};
    LLVMValueRef u[2] = {mul(e, x, x), num(e, x, 16)};
    u[0] = emit_intrinsic(e, "llvm.minnum", LLVMTypeOf(x), u, 2);
    LLVMValueRef t = num(e, x, c[4]);
    for (int i = 4; i-- > 0;) t = emit_fma(e, t, u[0], num(e, x, c[i]));
    t = gpu_rcp(e, add(e, ex2(e, mul(e, t, x)), num(e, x, 1)));
    return emit_fma(e, num(e, x, -2), t, num(e, x, 1));
}

static bool is_f32(const Emit *e, LLVMValueRef x) {
    LLVMTypeRef t = LLVMTypeOf(x);
    return (emit_is_vector(x) ? LLVMGetElementType(t) : t) == e->f32;
}

LLVMValueRef gpu_quick(Emit *e, Op op, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef v[2] = {x, y};
    if (!is_f32(e, x)) return NULL;
    switch (op) {
    case OP_div: return each(e, "llvm.nvvm.div.full", NULL, v, 2);
    case OP_sqrt: return each(e, "llvm.nvvm.sqrt.approx.f", NULL, v, 1);
    case OP_rsqrt: return each(e, "llvm.nvvm.rsqrt.approx.f", NULL, v, 1);
    default: return NULL;
    }
}

/* q = x (1/y) is within 1.5 ulp; one step of remainder makes it what the division gives. Where that
 * is no number, q is already the right zero, infinity or NaN. */
LLVMValueRef gpu_by_constant(Emit *e, Op op, LLVMValueRef x, LLVMValueRef y) {
    LLVMBool lost;
    int power;
    if (op != OP_div || LLVMTypeOf(x) != e->f32 || !LLVMIsAConstantFP(y)) return NULL;
    double d = LLVMConstRealGetDouble(y, &lost), m = frexp(fabs(d), &power);
    if (!(m > 0.5) || abs(power) > 64) return NULL; /* LLVM multiplies where that is exact */
    LLVMValueRef r = emit_f(e, e->f32, 1 / d), q = mul(e, x, r);
    LLVMValueRef rest = emit_fma(e, LLVMBuildFNeg(e->b, q, ""), y, x);
    LLVMValueRef z = emit_fma(e, rest, r, q);
    return LLVMBuildSelect(e->b, emit_map(e, OP_isnan, DT_f32, z, NULL, NULL), q, z, "");
}

bool gpu_may_be_quick(const Kernel *k) {
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        bool rounds =
            o->op == OP_floor || o->op == OP_ceil || o->op == OP_round || o->op == OP_trunc;
        bool whole = o->op == OP_cast && !dtype_is_float((DType)o->dtype);
        if (rounds || whole || o->op == OP_mod || o->op == OP_rem) return false;
    }
    return true;
}

LLVMValueRef gpu_math(Emit *e, Op op, LLVMValueRef x) {
    if (!is_f32(e, x)) return NULL;
    switch (op) {
    case OP_exp: return e->coarse[e->now] ? gpu_coarse_exp(e, x) : gpu_exp(e, x);
    case OP_sigmoid: return gpu_sigmoid(e, x);
    case OP_tanh: return gpu_tanh(e, x);
    case OP_erf: return e->coarse[e->now] ? coarse_erf(e, x) : NULL;
    default: return NULL;
    }
}

/* tanh within 2^-11, which is a quarter of what rounding to bf16 does; the rest as elsewhere. */
static LLVMValueRef bf16_math(Emit *e, Op op, LLVMValueRef x) {
    if (op != OP_tanh || !is_f32(e, x)) return gpu_math(e, op, x);
    uint32_t n = emit_is_vector(x) ? LLVMGetVectorSize(LLVMTypeOf(x)) : 1;
    for (uint32_t l = 0; l < n; l++) {
        LLVMValueRef at = emit_i64(e, l), one = x;
        if (emit_is_vector(x)) one = LLVMBuildExtractElement(e->b, x, at, "");
        one = emit_intrinsic(e, "llvm.tanh", e->f32, &one, 1);
        LLVMSetFastMathFlags(one, LLVMFastMathApproxFunc);
        x = emit_is_vector(x) ? LLVMBuildInsertElement(e->b, x, one, at, "") : one;
    }
    return x;
}

GpuMath gpu_math_of(const Kernel *k) {
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kstore && k->ops[v].dtype != DT_bf16) return gpu_math;
    return bf16_math;
}
