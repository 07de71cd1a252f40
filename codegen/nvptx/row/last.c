/* A group of blocks takes a sum in parts. Each leaves its part's results in memory, the last one
 * joins all of them in order: what comes out does not depend on timing. */
#include "codegen/nvptx/row/row.h"

Parts row_parts(Gpu *g, uint32_t n, int64_t bytes, Expr groups, LLVMValueRef group) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Expr head = expr_muli(p, expr_ceildiv(p, groups, expr_const(p, 4)), 16);
    Expr all = expr_add(p, head, expr_muli(p, groups, bytes * n));
    LLVMValueRef base = gpu_zeroed(g, all, true);
    Parts m = {.g = g, .n = n, .bytes = bytes, .counter = emit_gep(e, e->i32, base, group)};
    LLVMValueRef first = LLVMBuildMul(e->b, group, emit_i64(e, bytes * n), "");
    m.base = emit_gep(e, e->i8, base, LLVMBuildAdd(e->b, emit_expr(e, head), first, ""));
    return m;
}

LLVMValueRef row_part(const Parts *m, LLVMValueRef part, int64_t offset) {
    Emit *e = m->g->e;
    LLVMValueRef i = LLVMBuildMul(e->b, part, emit_i64(e, m->bytes), "");
    return emit_gep(e, e->i8, m->base, LLVMBuildAdd(e->b, i, emit_i64(e, offset), ""));
}

LLVMValueRef row_is_last(const Parts *m) {
    Gpu *g = m->g;
    Emit *e = g->e;
    LLVMValueRef flag = gpu_shared(g, e->i32, 1);
    gpu_barrier(e);
    EmitIf first; /* its fences and the barriers order everybody's accesses */
    emit_if_begin(e, &first, gpu_is_first(g));
    gpu_fence(e);
    LLVMValueRef n = gpu_count(e, m->counter, m->n);
    gpu_fence(e);
    LLVMBuildStore(e->b, n, flag);
    emit_if_end(e, &first);
    gpu_barrier(e);
    n = LLVMBuildLoad2(e->b, e->i32, flag, "");
    return LLVMBuildICmp(e->b, LLVMIntEQ, n, emit_i(e, e->i32, m->n - 1), "");
}
