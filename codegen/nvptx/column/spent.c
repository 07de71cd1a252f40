/* Memory that nobody reads behind the kernel: lines of the cache that a block alone has read are
 * given up there, so that they are never written to memory. Sums that a band's blocks leave are
 * such (layernorm's gradient over 20,480 columns, of 10.8 MB of them: 103.1 us for 104.7). */
#include "codegen/nvptx/column/column.h"
#include "codegen/nvptx/hopper/hopper.h"

enum { LINE = 128 };

/* Load v is all that is read of its memory, row behind row, a column at a place. */
static bool is_spent(const Column *c, KVal v) {
    const Gpu *g = c->g;
    ExprPool *p = g->e->exprs;
    const KAxis *lane = &g->k->axes[c->lane];
    const KOp *o = &g->k->ops[v];
    Expr coef, rest;
    if (o->op != K_kload || o->mask || !g->j->spent[o->buf]) return false;
    for (KVal w = 1; w < g->k->nops; w++)
        if (w != v && g->k->ops[w].op == K_kload && g->k->ops[w].buf == o->buf) return false;
    if (!expr_affine(p, o->index, lane->sym, &coef, &rest) || !expr_is_value(p, coef, 1))
        return false;
    const uint32_t row = g->k->axes[__builtin_ctz(c->folds->axes)].sym;
    return expr_affine(p, rest, row, &coef, &rest) && coef == lane->extent &&
           expr_is_value(p, rest, 0);
}

/* Line number `at` of the block's columns in the row that stands here, if it has no others. */
static void forget_line(const Column *c, KVal v, LLVMValueRef at, LLVMValueRef columns) {
    const Gpu *g = c->g;
    Emit *e = g->e;
    const KOp *o = &g->k->ops[v];
    const int64_t bytes = (int64_t)dtype_bytes(g->k->params[o->buf].dtype);
    EmitIf whole;
    LLVMValueRef from = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
    LLVMValueRef end = LLVMBuildMul(e->b, columns, emit_i64(e, bytes), "");
    end = LLVMBuildAdd(e->b, from, end, "");
    from = LLVMBuildAdd(e->b, from, emit_i64(e, LINE - 1), "");
    from = LLVMBuildAnd(e->b, from, emit_i64(e, -LINE), "");
    HV line = LLVMBuildAdd(e->b, from, LLVMBuildMul(e->b, at, emit_i64(e, LINE), ""), "");
    LLVMValueRef last = LLVMBuildSub(e->b, end, emit_i64(e, LINE), "");
    emit_if_begin(e, &whole, LLVMBuildICmp(e->b, LLVMIntSLE, line, last, ""));
    hop_asm(e, e->voidt, "discard.global.L2 [$0], 128;", "l,~{memory}", &line, 1);
    emit_if_end(e, &whole);
}

static void forget(const Column *c, KVal v) {
    const Gpu *g = c->g;
    Emit *e = g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    const int64_t own = column_own(c);
    const int64_t lines = own * (int64_t)dtype_bytes(g->k->params[g->k->ops[v].buf].dtype) / LINE;
    if (!lines) return;
    LLVMValueRef first = LLVMBuildMul(e->b, g->block[0], emit_i64(e, own), "");
    LLVMValueRef columns = LLVMBuildSub(e->b, emit_expr(e, g->k->axes[c->lane].extent), first, "");
    LLVMValueRef rows = emit_expr(e, gpu_points(e, g->k, c->folds->axes));
    LLVMValueRef end = LLVMBuildMul(e->b, rows, emit_i64(e, lines), "");
    columns = gpu_smaller(e, columns, emit_i64(e, own));
    *l = emit_loop(e, 0);
    emit_loop_begin(e, l, "line", g->tid, end, emit_i64(e, c->threads), false);
    emit_push(e);
    emit_set_sym(e, g->k->axes[c->lane].sym, first);
    emit_set_sym(e, g->k->axes[__builtin_ctz(c->folds->axes)].sym,
                 LLVMBuildUDiv(e->b, l->i, emit_i64(e, lines), ""));
    forget_line(c, v, LLVMBuildURem(e->b, l->i, emit_i64(e, lines), ""), columns);
    emit_pop(e);
    emit_loop_end(e, l);
}

void column_forget(const Column *c) {
    const Gpu *g = c->g;
    const uint32_t axes = c->folds->axes;
    if (!g->e->isa->warpgroups || c->parts > 1 || c->classes || c->others || axes & (axes - 1))
        return;
    for (KVal v = 1; v < g->k->nops; v++)
        if (is_spent(c, v)) forget(c, v);
}
