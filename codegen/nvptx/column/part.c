/* A thread's rows of its block's part, several of which are asked for before the first is waited
 * for.
 */
#include "codegen/nvptx/column/column.h"

/* What is stored of each point on the way: threads past the columns, which repeat one, do not, nor
 * past the rows, where `live` is off (NULL: nowhere). */
static void store_points(Column *c, LLVMValueRef live) {
    Emit *e = c->g->e;
    EmitIf inside;
    if (!c->points) return;
    if (live) live = LLVMBuildAnd(e->b, live, c->inside, "");
    emit_if_begin(e, &inside, live ? live : c->inside);
    for (uint32_t i = 0; i < c->points->nstores; i++) emit_store(e, c->points->stores[i]);
    emit_if_end(e, &inside);
}

/* n rows: all are on their way before the first is waited for. Where there may be no such row,
 * `end` says behind which (else NULL). */
static void fold_rows(Column *c, uint32_t n, LLVMValueRef row, LLVMValueRef end,
                      LLVMValueRef *acc) {
    Gpu *g = c->g;
    Emit *e = g->e;
    LLVMValueRef live[COLUMN_MOST_UNROLL];
    EmitScope *scope[COLUMN_MOST_UNROLL], *outer = e->scope;
    Expr at = column_row_at(c, row);
    for (uint32_t u = 0; u < n; u++) {
        Expr mine = expr_addi(e->exprs, at, (int64_t)u * c->rows);
        if (end) {
            LLVMValueRef i = emit_expr(e, mine);
            live[u] = LLVMBuildICmp(e->b, LLVMIntSLT, i, end, "");
            mine = column_row_at(c, column_other_row(c, row, i, live[u], end));
        }
        scope[u] = emit_push(e);
        gpu_decode(e, g->k, c->folds->axes, mine);
        for (KVal v = 1; v < g->k->nops; v++)
            if (c->folds->cone[v] && g->k->ops[v].op == K_kload) (void)emit_value(e, v);
        (void)emit_switch(e, outer);
    }
    for (uint32_t u = 0; u < n; u++) {
        (void)emit_switch(e, scope[u]);
        for (uint32_t f = 0; f < c->folds->nfolds; f++) {
            const KOp *o = &g->k->ops[c->folds->folds[f]];
            LLVMValueRef x = emit_value_lanes(e, o->in[0]);
            DType t = gpu_fold_type(g, c->folds->folds[f]);
            LLVMValueRef none = emit_fold_identity(e, (KFold)o->fold, t, c->lanes);
            if (end) x = emit_select(e, live[u], x, none);
            acc[f] = emit_fold_join(e, (KFold)o->fold, t, acc[f], x);
        }
        store_points(c, end ? live[u] : NULL);
        (void)emit_switch(e, outer);
    }
}

static void walk(Column *c, LLVMValueRef lo, LLVMValueRef hi, bool ragged, LLVMValueRef *acc) {
    Emit *e = c->g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, c->folds->nfolds);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) l->init[f] = acc[f];
    emit_loop_begin(e, l, "rows", lo, hi, emit_i64(e, (int64_t)c->together * c->rows), false);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) l->next[f] = l->phi[f];
    fold_rows(c, c->together, l->i, ragged ? hi : NULL, l->next);
    emit_loop_end(e, l);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) acc[f] = l->out[f];
}

/* First row of a part: parts differ by one row of each thread. */
static LLVMValueRef part_begin(Column *c, LLVMValueRef part) {
    Emit *e = c->g->e;
    ExprPool *p = e->exprs;
    Expr rows = column_walked_rows(c);
    LLVMValueRef n = emit_expr(e, expr_ceildiv(p, rows, expr_const(p, c->rows)));
    n = LLVMBuildUDiv(e->b, LLVMBuildMul(e->b, n, part, ""), emit_i64(e, c->parts), "");
    n = LLVMBuildMul(e->b, n, emit_i64(e, c->rows), "");
    return gpu_smaller(e, n, emit_expr(e, rows));
}

void column_fold_part(Column *c, LLVMValueRef *acc) {
    Gpu *g = c->g;
    Emit *e = g->e;
    LLVMValueRef lo = part_begin(c, c->part);
    LLVMValueRef hi = part_begin(c, LLVMBuildAdd(e->b, c->part, emit_i64(e, 1), ""));
    LLVMValueRef n = LLVMBuildSub(e->b, hi, lo, "");
    LLVMValueRef whole = LLVMBuildAnd(e->b, n, emit_i64(e, -(int64_t)c->together * c->rows), "");
    LLVMValueRef middle = LLVMBuildAdd(e->b, lo, whole, "");
    if (c->classes)
        column_bind_class(c);
    else
        gpu_bind_lanes(g, c->lane, c->vector);
    walk(c, LLVMBuildAdd(e->b, lo, c->row, ""), middle, false, acc);
    walk(c, LLVMBuildAdd(e->b, middle, c->row, ""), hi, true, acc);
}
