/* Where the vectors of a long row lie: how many there are, and single elements in front of them and
 * behind, which of these a cluster's block has, and where shared memory has what is kept. */
#include "codegen/nvptx/row/long.h"

void row_bind_long(const Long *l, LLVMValueRef at) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    uint32_t sym;
    if (l->first_vector) at = LLVMBuildAdd(e->b, at, l->first_vector, "");
    if (!l->offset) {
        gpu_bind_lanes(g, l->axis, at);
        return;
    }
    LLVMValueRef v = LLVMBuildMul(e->b, at, emit_i64(e, e->lanes), "");
    v = LLVMBuildAdd(e->b, LLVMBuildAdd(e->b, emit_expr(e, l->offset), l->head, ""), v, "");
    Expr base = emit_new_sym(e, "vector", INT64_MAX >> 16, v);
    if (expr_is_sym(e->exprs, base, &sym)) map_put(e->aligned, sym, e->lanes);
    emit_bind_lanes(e, g->k->axes[l->axis].sym, expr_sub(e->exprs, base, l->offset), NULL, false);
}

void row_place_kept(Long *l, int64_t vectors) {
    Gpu *g = l->r->team.g;
    l->shared = 0;
    for (uint32_t i = 0; i < l->nkept; i++) {
        l->slot[i] = l->shared;
        l->shared += (uint32_t)(vectors * g->e->lanes) * row_bytes(g, l->kept[i]);
    }
}

int64_t row_room(const Long *l, int64_t length) {
    const int64_t lanes = l->r->team.g->e->lanes, line = l->offset ? l->line / lanes : 1;
    if (l->cluster == 1) return length / lanes;
    const int64_t n = (length / lanes + l->cluster - 1) / l->cluster;
    return (n + line - 1) / line * line;
}

uint32_t row_most_edges(const Long *l) {
    return l->offset ? l->line + 2 * l->r->team.g->e->lanes : 0;
}

uint32_t row_long_steps(const Long *l) {
    return l->folders || l->steps < 2 ? l->steps : 2;
}

/* The last vector is taken by elements where the aligned pieces that it lies in, in a row that
 * starts at a vector, go on behind the end. */
static void leave_last(Long *l) {
    Emit *e = l->r->team.g->e;
    LLVMValueRef n = emit_i64(e, e->lanes), zero = emit_i64(e, 0);
    LLVMValueRef head = LLVMBuildAnd(e->b, l->head, emit_i64(e, e->lanes - 1), "");
    LLVMValueRef past = LLVMBuildSub(e->b, n, head, "");
    LLVMValueRef over = LLVMBuildICmp(e->b, LLVMIntSGT, past, l->tail, "");
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntNE, head, zero, "");
    is = LLVMBuildAnd(e->b, is, over, "");
    is = LLVMBuildAnd(e->b, is, LLVMBuildICmp(e->b, LLVMIntSGT, l->count, zero, ""), "");
    l->count = LLVMBuildSub(e->b, l->count, LLVMBuildZExt(e->b, is, e->i64, ""), "");
    l->tail = LLVMBuildAdd(e->b, l->tail, LLVMBuildSelect(e->b, is, n, zero, ""), "");
}

/* Of what was measured of the row, the part of this block of the cluster. */
static void own_part(Long *l) {
    Emit *e = l->r->team.g->e;
    LLVMValueRef part = emit_i64(e, l->room), zero = emit_i64(e, 0);
    LLVMValueRef block = l->r->team.block;
    l->first_vector = LLVMBuildMul(e->b, block, part, "");
    l->count = gpu_smaller(e, LLVMBuildSub(e->b, l->count, l->first_vector, ""), part);
    l->count = gpu_larger(e, l->count, zero);
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, block, zero, "");
    LLVMValueRef last = LLVMBuildICmp(e->b, LLVMIntEQ, block, emit_i64(e, l->cluster - 1), "");
    l->own_head = LLVMBuildSelect(e->b, first, l->head, zero, "");
    l->own_tail = LLVMBuildSelect(e->b, last, l->tail, zero, "");
}

void row_measure(Long *l) {
    Emit *e = l->r->team.g->e;
    ExprPool *p = e->exprs;
    LLVMValueRef length = emit_expr(e, l->length);
    l->head = emit_i64(e, 0);
    if (l->offset) {
        l->offset = emit_resolve(e, l->offset);
        Expr past = expr_mod(p, l->offset, expr_const(p, l->line));
        LLVMValueRef head = LLVMBuildSub(e->b, emit_i64(e, l->line), emit_expr(e, past), "");
        l->head = gpu_smaller(e, LLVMBuildAnd(e->b, head, emit_i64(e, l->line - 1), ""), length);
    }
    LLVMValueRef rest = LLVMBuildSub(e->b, length, l->head, "");
    l->count = LLVMBuildLShr(e->b, rest, emit_i64(e, __builtin_ctz(e->lanes)), "");
    l->tail = LLVMBuildAnd(e->b, rest, emit_i64(e, e->lanes - 1), "");
    if (l->across) leave_last(l);
    l->own_head = l->head, l->own_tail = l->tail;
    if (l->cluster > 1) own_part(l);
}
