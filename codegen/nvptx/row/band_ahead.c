/* Rows of a band that a block takes one after the other, all of its threads a row. Rows come some
 * turns ahead (band_fetch.c), their numbers one: every thread loads those of the next row behind
 * its wait for this one. The block meets in the folds of a row and nowhere else, so that nothing is
 * computed twice and a turn is one barrier, of few warps. */
#include "codegen/nvptx/row/band.h"

static void read_numbers(Band *b, LLVMValueRef at, LLVMValueRef *to) {
    Emit *e = b->r.team.g->e;
    emit_push(e);
    (void)band_place(b, at, false);
    for (uint32_t i = 0; i < b->nnumbers; i++) to[i] = emit_value(e, b->number[i]);
    emit_pop(e);
}

/* fixed: of band_fixed. All sums of columns come before the first store: threads would wait for
 * memory between vectors. */
static void run_row(Band *b, LLVMValueRef at, bool full, LLVMValueRef *const *fixed,
                    LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    Held h = {.r = &b->r};
    LLVMValueRef inside = band_place(b, at, full);
    b->r.team.turn = LLVMBuildAnd(e->b, at, emit_i64(e, 1), "");
    row_place(&h);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h.scope[u]);
        for (KVal v = 1; v < g->k->nops; v++)
            if (fixed[u][v]) emit_override(e, v, fixed[u][v]);
        (void)emit_switch(e, outer);
    }
    band_take(b, &h, at);
    for (uint32_t i = 0; i < g->rows->npasses && g->rows->pass[i].nfolds; i++)
        row_fold_held(&h, &g->rows->pass[i]);
    for (uint32_t u = 0; u < b->r.pieces; u++) band_add_columns(b, &h, u, inside, acc);
    for (uint32_t u = 0; u < b->r.pieces; u++) band_store_vector(b, &h, u, inside);
    band_store_once(b, inside);
}

/* Turns lo to hi. acc: the sums, then the numbers of the first turn. What the next turn reads is
 * asked for behind the wait for this one's row: what comes before it, all of the block's warps wait
 * for. */
static void walk_turns(Band *b, LLVMValueRef lo, LLVMValueRef hi, bool full,
                       LLVMValueRef *const *fixed, LLVMValueRef *acc) {
    Emit *e = b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    uint32_t nacc = b->r.pieces * b->nsums, n = nacc + b->nnumbers;
    LLVMValueRef one = emit_i64(e, 1);
    *l = emit_loop(e, n + 2);
    for (uint32_t i = 0; i < n; i++) l->init[i] = acc[i];
    band_stage(b, lo, &l->init[n], &l->init[n + 1]);
    emit_loop_begin(e, l, "turn", lo, hi, one, false);
    b->at = l->i, b->stage = l->phi[n], b->round = l->phi[n + 1];
    b->asked = LLVMBuildAdd(e->b, l->i, emit_i64(e, b->stages - 1), "");
    band_request(b, b->asked);
    band_wait(b, l->i);
    read_numbers(b, LLVMBuildAdd(e->b, l->i, one, ""), l->next + nacc);
    for (uint32_t i = 0; i < b->nnumbers; i++) emit_override(e, b->number[i], l->phi[nacc + i]);
    for (uint32_t i = 0; i < nacc; i++) l->next[i] = l->phi[i];
    run_row(b, l->i, full, fixed, l->next);
    band_next_stage(b, &l->next[n], &l->next[n + 1]);
    b->at = b->asked = NULL;
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) acc[i] = l->out[i];
}

/* In all turns but the last every block has a row: nothing is asked there. */
void band_walk_ahead(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    LLVMValueRef **fixed = band_fixed(b), zero = emit_i64(e, 0);
    GC_ASSERT(b->teams == 1 && b->whole);
    band_init(b);
    for (uint32_t i = 0; i + 1 < b->stages; i++) band_request(b, emit_i64(e, i));
    read_numbers(b, zero, acc + b->r.pieces * b->nsums);
    LLVMValueRef middle = emit_expr(e, expr_addi(e->exprs, g->k->axes[b->turn].extent, -1));
    walk_turns(b, zero, middle, true, fixed, acc);
    walk_turns(b, middle, b->turns, false, fixed, acc);
}
