/* What the contraction structures have in common: guarded reads, the epilogue, shared memory. */
#include "codegen/nvptx/contract.h"
#include <llvm-c/Target.h>

bool contract_by_k(const Contract *c, KVal v) {
    const Kernel *k = c->g->k;
    const uint32_t *dom = c->e->domains;
    uint32_t axis = 31u - (uint32_t)__builtin_clz(c->d->k);
    for (KVal u = 1; u <= v; u++) {
        Expr coef, rest;
        if (k->ops[u].op != K_kload || (dom[u] & ~dom[v]) || !(dom[u] >> axis & 1)) continue;
        if (expr_affine(c->e->exprs, k->ops[u].index, k->axes[axis].sym, &coef, &rest) &&
            expr_is_value(c->e->exprs, coef, 1))
            return true;
    }
    return false;
}

ContractK contract_k(Contract *c, LLVMValueRef k) {
    Emit *e = c->e;
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, k, emit_expr(e, c->k), "");
    LLVMValueRef at = LLVMBuildSelect(e->b, in, k, emit_i64(e, 0), "");
    return (ContractK){emit_position(e, "c", c->k, at), in};
}

LLVMValueRef contract_element(Contract *c, KVal v, uint32_t axes, Expr row, ContractK k) {
    Emit *e = c->e;
    emit_push(e);
    gpu_decode(e, c->g->k, axes, row);
    gpu_decode(e, c->g->k, c->d->k, k.at);
    LLVMValueRef x = emit_value(e, v);
    emit_pop(e);
    return LLVMBuildSelect(e->b, k.in, x, LLVMConstNull(LLVMTypeOf(x)), "");
}

LLVMValueRef contract_fma(Emit *e, DType t, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    if (t == DT_f32 || t == DT_f64) return emit_fma(e, a, b, c);
    return LLVMBuildAdd(e->b, LLVMBuildMul(e->b, a, b, ""), c, "");
}

void contract_store(Contract *c, LLVMValueRef row, LLVMValueRef col, const LLVMValueRef *acc) {
    Emit *e = c->e;
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, row, emit_expr(e, c->m), "");
    in = LLVMBuildAnd(e->b, in, LLVMBuildICmp(e->b, LLVMIntSLT, col, emit_expr(e, c->n), ""), "");
    EmitIf inside;
    emit_if_begin(e, &inside, in);
    gpu_decode(e, c->g->k, c->d->m, emit_position(e, "m", c->m, row));
    gpu_decode(e, c->g->k, c->d->n, emit_position(e, "n", c->n, col));
    for (uint32_t s = 0; s < c->d->nacc; s++) emit_override(e, c->d->acc[s], acc[s]);
    for (KVal v = 1; v < c->g->k->nops; v++)
        if (c->g->k->ops[v].op == K_kstore) emit_store(e, v);
    emit_if_end(e, &inside);
}

LLVMValueRef contract_shared(Contract *c, LLVMTypeRef elem, uint32_t n) {
    Emit *e = c->e;
    uint32_t bytes = (uint32_t)LLVMABISizeOfType(LLVMGetModuleDataLayout(e->mod), elem) * n;
    LLVMValueRef p = emit_gep(e, e->i8, c->shared, emit_i64(e, c->used));
    c->used += (bytes + 15) / 16 * 16;
    return p;
}
