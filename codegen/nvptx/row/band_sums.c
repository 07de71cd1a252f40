/* What rows of a band leave: sums of columns in registers and, of each row, what is stored; at last
 * the block's sums, which its teams join in shared memory. */
#include "codegen/nvptx/ptx.h"
#include "codegen/nvptx/row/band.h"

/* --- A row ------------------------------------------------------------------------------------ */

void band_add_columns(Band *b, Held *h, uint32_t u, LLVMValueRef inside, LLVMValueRef *acc) {
    Emit *e = b->r.team.g->e;
    EmitScope *outer = emit_switch(e, h->scope[u]);
    acc += u * b->nsums;
    for (uint32_t s = 0; s < b->nsums; s++) {
        const KOp *o = &e->k->ops[b->sum[s]];
        LLVMValueRef x = emit_value_lanes(e, o->in[0]);
        LLVMValueRef none = emit_fold_identity(e, (KFold)o->fold, DT_f32, e->lanes);
        if (inside) x = emit_select(e, inside, x, none);
        acc[s] = emit_fold_join(e, (KFold)o->fold, DT_f32, acc[s], x);
    }
    (void)emit_switch(e, outer);
}

void band_store_vector(Band *b, Held *h, uint32_t u, LLVMValueRef inside) {
    const Passes *rows = b->r.team.g->rows;
    Emit *e = b->r.team.g->e;
    EmitScope *outer = emit_switch(e, h->scope[u]);
    LLVMValueRef live = band_both(e, inside, h->live[u]);
    EmitIf there;
    for (uint32_t i = 0; i < rows->npasses; i++) {
        const Pass *p = &rows->pass[i];
        if (!p->axes || !p->nstores) continue;
        for (uint32_t s = 0; s < p->nstores; s++)
            (void)emit_value(e, e->k->ops[p->stores[s]].in[0]);
        if (live) emit_if_begin(e, &there, live);
        for (uint32_t s = 0; s < p->nstores; s++) emit_store(e, p->stores[s]);
        if (live) emit_if_end(e, &there);
    }
    (void)emit_switch(e, outer);
}

void band_finish(Band *b, Held *h, uint32_t u, LLVMValueRef inside, LLVMValueRef *acc) {
    band_add_columns(b, h, u, inside, acc);
    band_store_vector(b, h, u, inside);
}

void band_store_once(Band *b, LLVMValueRef inside) {
    const Passes *rows = b->r.team.g->rows;
    Emit *e = b->r.team.g->e;
    EmitIf there;
    if (inside) emit_if_begin(e, &there, inside);
    for (uint32_t i = 0; i < rows->npasses; i++)
        if (!rows->pass[i].axes) row_store_once(&b->r, &rows->pass[i]);
    if (inside) emit_if_end(e, &there);
}

/* --- Sums of a block -------------------------------------------------------------------------- */

static void store_sum(Band *b, uint32_t s, LLVMValueRef x) {
    Gpu *g = b->r.team.g;
    emit_override(g->e, b->sum[s], x);
    for (uint32_t i = 0; i < b->nstores; i++)
        if (g->k->ops[b->store[i]].in[0] == b->sum[s]) emit_store(g->e, b->store[i]);
}

/* Where teams leave their vectors of a sum: where rows came before. */
static LLVMValueRef slot_at(Band *b, LLVMValueRef team, LLVMValueRef vector) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    LLVMTypeRef t = emit_vec(e->f32, e->lanes);
    int64_t n = expr_value(e->exprs, row_vectors(&b->r, b->r.axes));
    LLVMValueRef at = LLVMBuildMul(e->b, team, emit_i64(e, n), "");
    LLVMValueRef p =
        LLVMBuildIntToPtr(e->b, hop_shared(g), LLVMPointerTypeInContext(e->ctx, PTX_SHARED), "");
    return emit_gep(e, t, p, LLVMBuildAdd(e->b, at, vector, ""));
}

static void leave_sum(Band *b, uint32_t s, const LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    int64_t n = expr_value(e->exprs, row_vectors(&b->r, b->r.axes));
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        int64_t first = (int64_t)u * b->r.team.size;
        EmitIf there;
        LLVMValueRef v = LLVMBuildAdd(e->b, b->r.team.rank, emit_i64(e, first), "");
        bool ragged = first + b->r.team.size > n;
        if (ragged)
            emit_if_begin(e, &there, LLVMBuildICmp(e->b, LLVMIntSLT, v, emit_i64(e, n), ""));
        emit_store_ptr(e, acc[u * b->nsums + s], slot_at(b, b->team, v), BAND_PIECE);
        if (ragged) emit_if_end(e, &there);
    }
}

/* Thread v takes vector v, one team after the other. */
static void join_sum(Band *b, uint32_t s) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    KFold fold = (KFold)g->k->ops[b->sum[s]].fold;
    LLVMValueRef n = emit_i64(e, expr_value(e->exprs, row_vectors(&b->r, b->r.axes))), all = NULL;
    *l = emit_loop(e, 0);
    emit_loop_begin(e, l, "vector", g->tid, n, emit_i64(e, b->threads), false);
    for (uint32_t i = 0; i < b->teams; i++) {
        LLVMValueRef p = slot_at(b, emit_i64(e, i), l->i);
        LLVMValueRef x = emit_load(e, emit_vec(e->f32, e->lanes), p, BAND_PIECE);
        all = all ? emit_fold_join(e, fold, DT_f32, all, x) : x;
    }
    row_bind(
        &b->r, b->r.axes,
        emit_new_sym(e, "piece", expr_value(e->exprs, row_vectors(&b->r, b->r.axes)) - 1, l->i));
    store_sum(b, s, all);
    emit_loop_end(e, l);
}

void band_store_columns(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    Held h = {.r = &b->r};
    EmitIf there;
    for (uint32_t s = 0; b->teams > 1 && s < b->nsums; s++) {
        gpu_barrier(e);
        leave_sum(b, s, acc);
        gpu_barrier(e);
        join_sum(b, s);
    }
    if (b->teams > 1) return;
    row_place(&h);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h.scope[u]);
        if (h.live[u]) emit_if_begin(e, &there, h.live[u]);
        for (uint32_t s = 0; s < b->nsums; s++) store_sum(b, s, acc[u * b->nsums + s]);
        if (h.live[u]) emit_if_end(e, &there);
        (void)emit_switch(e, outer);
    }
}
