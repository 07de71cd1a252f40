/* Transcendental ops: which function computes each, and in which type. */
#include "codegen/emit/math.h"

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
#define X(op)                                                                                      \
    case OP_##op: return math_##op(m, x);
        MATH_OWN(X)
#undef X
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

LLVMValueRef emit_exp_below(Emit *e, LLVMValueRef x) {
    Math m = math_of(e, LLVMTypeOf(x));
    return math_exp_below(&m, x);
}

LLVMValueRef emit_one_and_erf(Emit *e, LLVMValueRef x) {
    Math m = math_of(e, LLVMTypeOf(x));
    EV erf = e->math ? e->math(e, OP_erf, x) : NULL;
    return erf ? m_add(&m, erf, m_c(&m, 1)) : math_one_and_erf(&m, x);
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
