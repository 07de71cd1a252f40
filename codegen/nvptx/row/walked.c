/* Rows that are neither held nor kept in shared memory: their team walks them once a pass. */
#include "codegen/nvptx/row/row.h"

enum { STEPS = 4 };

/* The team goes from `lo` to `hi`, each thread `steps` vectors at a time: all of them are read
 * before any result is stored. */
static void walk(const RowPlan *r, const Pass *p, uint32_t steps, LLVMValueRef lo, LLVMValueRef hi,
                 uint32_t nacc, LLVMValueRef *acc) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    EmitScope *scope[STEPS];
    int64_t least, most;
    expr_range(e->exprs, row_vectors(r, p->axes), &least, &most);
    *l = emit_loop(e, nacc);
    for (uint32_t i = 0; i < nacc; i++) l->init[i] = acc[i];
    emit_loop_begin(e, l, "row", lo, hi, emit_i64(e, (int64_t)steps * r->team.size), false);
    Expr first = emit_new_sym(e, "j", most > 0 ? most - 1 : 0, l->i);
    EmitScope *outer = e->scope;
    for (uint32_t i = 0; i < nacc; i++) l->next[i] = l->phi[i];
    for (uint32_t u = 0; u < steps; u++) {
        scope[u] = emit_push(e);
        row_bind(r, p->axes, expr_addi(e->exprs, first, (int64_t)u * r->team.size));
        LLVMValueRef *at = l->next;
        for (uint32_t f = 0; f < p->nfolds; f++) {
            row_fold(r, p->folds[f], NULL, at);
            at += gpu_fold_width(g, p->folds[f]);
        }
        for (uint32_t i = 0; i < p->nstores; i++)
            (void)emit_value(e, g->k->ops[p->stores[i]].in[0]);
        (void)emit_switch(e, outer);
    }
    for (uint32_t u = 0; u < steps; u++) {
        (void)emit_switch(e, scope[u]);
        for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
        (void)emit_switch(e, outer);
    }
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < nacc; i++) acc[i] = l->out[i];
}

void row_walk_pass(const RowPlan *r, const Pass *p) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    if (!p->axes) {
        row_store_once(r, p);
        return;
    }
    LLVMValueRef acc[ROWS_MAX_FOLDS * 2];
    uint32_t nacc = gpu_fold_init(g, p, e->lanes, acc);
    Expr vectors = row_vectors(r, p->axes);
    LLVMValueRef end = emit_expr(e, vectors), from = r->team.rank;
    int64_t stride = (int64_t)STEPS * r->team.size;
    if (gpu_hint(e, vectors) >= stride && !g->j->shrink) {
        LLVMValueRef whole = LLVMBuildAnd(e->b, end, emit_i64(e, -stride), "");
        walk(r, p, STEPS, from, whole, nacc, acc);
        from = LLVMBuildAdd(e->b, whole, r->team.rank, "");
    }
    walk(r, p, 1, from, end, nacc, acc);
    row_results(r, p, acc);
}
