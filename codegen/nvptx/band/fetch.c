/* Which row a turn is, what all rows have alike, and rows on their way into shared memory. */
#include "codegen/nvptx/band/band.h"
#include <stdio.h>

uint32_t band_element(const Band *b, KVal v) {
    const Kernel *k = b->r.team.g->k;
    return (uint32_t)dtype_bytes(k->params[k->ops[v].buf].dtype);
}

uint32_t band_vector_bytes(const Band *b, KVal v) {
    return band_element(b, v) * b->r.team.g->e->lanes;
}

uint32_t band_pieces(const Band *b, KVal v) {
    return band_vector_bytes(b, v) / BAND_PIECE;
}

/* --- What rows stand on ----------------------------------------------------------------------- */

LLVMValueRef band_place(const Band *b, LLVMValueRef at, bool full) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    uint32_t sym = g->k->axes[b->turn].sym;
    LLVMValueRef n = emit_expr(e, g->k->axes[b->turn].extent);
    int64_t least, most;
    expr_range(e->exprs, g->k->axes[b->turn].extent, &least, &most);
    if (b->teams > 1) {
        at = LLVMBuildMul(e->b, at, emit_i64(e, b->teams), "");
        at = LLVMBuildAdd(e->b, at, b->team, "");
    }
    if (full) {
        emit_bind(e, sym, emit_new_sym(e, "turn", most > 1 ? most - 2 : 0, at));
        return NULL;
    }
    LLVMValueRef last[2] = {at, LLVMBuildSub(e->b, n, emit_i64(e, 1), "")};
    emit_set_sym(e, sym, emit_intrinsic(e, "llvm.smin", e->i64, last, 2));
    return LLVMBuildICmp(e->b, LLVMIntSLT, at, n, "");
}

LLVMValueRef band_both(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    return a && b ? LLVMBuildAnd(e->b, a, b, "") : a ? a : b;
}

bool band_is_fixed(const Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    const uint32_t dom = g->rows->dom[v];
    if (g->k->ops[v].op != K_kload || !g->rows->need[v]) return false;
    return dom & b->r.axes && !(dom >> b->turn & 1);
}

uint32_t band_piece_bytes(const Band *b, KVal v, uint32_t u) {
    const bool tail = b->r.tail && u + 1 == b->r.pieces;
    return band_element(b, v) * (tail ? b->r.tail : b->r.lanes);
}

LLVMValueRef **band_fixed(Band *b) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    Held h = {.r = &b->r};
    LLVMValueRef **x = ARENA_ARRAY(e->arena, LLVMValueRef *, b->r.pieces);
    row_place(&h);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = row_enter(&h, u);
        x[u] = ARENA_ARRAY(e->arena, LLVMValueRef, g->k->nops);
        for (KVal v = 1; v < g->k->nops; v++)
            if (band_is_fixed(b, v)) x[u][v] = emit_value(e, v);
        row_exit(&h, outer);
    }
    return x;
}

/* --- Requests --------------------------------------------------------------------------------- */

static void stage_of(const Band *b, LLVMValueRef at, HV *stage, HV *round) {
    Emit *e = b->r.team.g->e;
    HV n = hop_i(e, b->stages), x = LLVMBuildTrunc(e->b, at, e->i32, "");
    *stage = LLVMBuildURem(e->b, x, n, "");
    *round = hop_andi(e, LLVMBuildUDiv(e->b, x, n, ""), 1);
}

/* Shared address of the thread's slot number 0 of turn `at`. */
static HV slots_of(const Band *b, LLVMValueRef at) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    HV p, round;
    stage_of(b, at, &p, &round);
    p = hop_muli(e, p, (int64_t)b->slots * b->threads * BAND_PIECE);
    HV own = hop_muli(e, LLVMBuildTrunc(e->b, g->tid, e->i32, ""), BAND_PIECE);
    return hop_add(e, hop_add(e, hop_shared(g), p), own);
}

static int64_t slot_bytes(const Band *b, uint32_t slot) {
    return (int64_t)slot * b->threads * BAND_PIECE;
}

/* Every thread calls for all that it needs of a row, if there is a turn `at`. */
static void request_own(Band *b, LLVMValueRef at) {
    Emit *e = b->r.team.g->e;
    Held h = {.r = &b->r};
    EmitIf there;
    emit_if_begin(e, &there, LLVMBuildICmp(e->b, LLVMIntSLT, at, b->turns, ""));
    (void)band_place(b, at, false);
    row_place(&h);
    HV to = slots_of(b, at);
    uint32_t slot = 0;
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h.scope[u]);
        for (uint32_t i = 0; i < b->nown; i++) {
            const KOp *o = &e->k->ops[b->own[i]];
            LLVMValueRef from = emit_address(e, o->buf, o->index);
            for (uint32_t c = 0; c < band_pieces(b, b->own[i]); c++, slot++) {
                LLVMValueRef p = emit_gep(e, e->i8, from, emit_i64(e, (int64_t)c * BAND_PIECE));
                HV a[2] = {hop_addi(e, to, slot_bytes(b, slot)),
                           LLVMBuildPtrToInt(e->b, p, e->i64, "")};
                hop_asm(e, e->voidt, "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}",
                        a, 2);
            }
        }
        (void)emit_switch(e, outer);
    }
    emit_if_end(e, &there);
    hop_asm(e, e->voidt, "cp.async.commit_group;", "~{memory}", NULL, 0);
}

static LLVMValueRef take_vector(Band *b, KVal v, HV from, uint32_t slot) {
    Emit *e = b->r.team.g->e;
    LLVMTypeRef elem = emit_mem_type(e, e->k->params[e->k->ops[v].buf].dtype);
    uint32_t n = band_pieces(b, v), lanes = e->lanes / n;
    LLVMValueRef x[2], order[16];
    for (uint32_t c = 0; c < n; c++) {
        HV p = hop_addi(e, from, slot_bytes(b, slot + c));
        p = hop_pointer(e, p);
        x[c] = emit_load(e, emit_vec(elem, lanes), p, BAND_PIECE);
    }
    if (n == 1) return x[0];
    for (uint32_t i = 0; i < e->lanes; i++) order[i] = emit_i(e, e->i32, i);
    return LLVMBuildShuffleVector(e->b, x[0], x[1], LLVMConstVector(order, e->lanes), "");
}

/* Shared address of what the copy engine brings at turn `at`, and the barrier that tells of it. */
static HV row_at(const Band *b, LLVMValueRef at, HV *bar, HV *round) {
    Emit *e = b->r.team.g->e;
    HV n;
    stage_of(b, at, &n, round);
    if (b->teams > 1) {
        HV team = LLVMBuildTrunc(e->b, b->team, e->i32, "");
        n = hop_add(e, n, hop_muli(e, team, b->stages));
    }
    *bar = hop_add(e, hop_addi(e, hop_shared(b->r.team.g), b->bars),
                   hop_muli(e, n, HOP_BARRIER_BYTES));
    return hop_add(e, hop_shared(b->r.team.g), hop_muli(e, n, b->row_bytes));
}

/* One thread of the team calls for its row. All of them have read what lay there before. */
static void request_row(Band *b, LLVMValueRef at) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf there;
    HV bar, to, round;
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, b->r.team.rank, emit_i64(e, 0), "");
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntSLT, at, b->turns, "");
    if (b->r.team.size == 32) hop_warp_sync(e);
    emit_if_begin(e, &there, LLVMBuildAnd(e->b, first, is, ""));
    (void)band_place(b, at, false);
    emit_set_sym(e, g->k->axes[b->r.lane].sym, emit_i64(e, 0));
    to = row_at(b, at, &bar, &round);
    hop_barrier_expect(e, bar, hop_i(e, b->row_bytes));
    int64_t n = expr_value(e->exprs, row_vectors(&b->r, b->r.axes));
    for (uint32_t i = 0; i < b->nown; i++) {
        const KOp *o = &e->k->ops[b->own[i]];
        int64_t bytes = n * band_pieces(b, b->own[i]) * BAND_PIECE;
        HV from = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
        hop_bulk_load(e, to, from, hop_i(e, bytes), bar);
        to = hop_addi(e, to, bytes);
    }
    emit_if_end(e, &there);
}

void band_request(Band *b, LLVMValueRef at) {
    if (b->whole)
        request_row(b, at);
    else
        request_own(b, at);
}

/* The next rows' requests need not have come. */
void band_wait(Band *b, LLVMValueRef at) {
    Emit *e = b->r.team.g->e;
    char text[48];
    HV bar, round;
    if (!b->whole) {
        snprintf(text, sizeof text, "cp.async.wait_group %u;", b->stages - 2);
        hop_asm(e, e->voidt, text, "~{memory}", NULL, 0);
        return;
    }
    (void)row_at(b, at, &bar, &round);
    hop_barrier_wait(e, bar, round);
}

static void take_row(Band *b, Held *h, LLVMValueRef at) {
    Emit *e = b->r.team.g->e;
    HV bar, round, from = row_at(b, at, &bar, &round);
    int64_t n = expr_value(e->exprs, row_vectors(&b->r, b->r.axes));
    for (uint32_t i = 0; i < b->nown; i++) {
        LLVMTypeRef elem = emit_mem_type(e, e->k->params[e->k->ops[b->own[i]].buf].dtype);
        uint32_t bytes = band_pieces(b, b->own[i]) * BAND_PIECE;
        for (uint32_t u = 0; u < b->r.pieces; u++) {
            int64_t first = (int64_t)u * b->r.team.size;
            HV v = hop_addi(e, LLVMBuildTrunc(e->b, b->r.team.rank, e->i32, ""), first);
            HV last[2] = {v, hop_i(e, n - 1)};
            if (first + b->r.team.size > n) v = emit_intrinsic(e, "llvm.umin", e->i32, last, 2);
            HV p = hop_add(e, from, hop_muli(e, v, bytes));
            EmitScope *outer = emit_switch(e, h->scope[u]);
            p = hop_pointer(e, p);
            emit_override(e, b->own[i], emit_load(e, emit_vec(elem, e->lanes), p, BAND_PIECE));
            (void)emit_switch(e, outer);
        }
        from = hop_addi(e, from, n * bytes);
    }
}

void band_init(Band *b) {
    Emit *e = b->r.team.g->e;
    EmitIf one;
    if (!b->whole) return;
    LLVMValueRef first = gpu_is_first(b->r.team.g);
    emit_if_begin(e, &one, first);
    for (uint32_t i = 0; i < b->stages * b->teams; i++)
        hop_barrier_init(e, hop_addi(e, hop_shared(b->r.team.g), b->bars + i * HOP_BARRIER_BYTES),
                         1);
    hop_barrier_init_fence(e);
    hop_fence_async(e);
    emit_if_end(e, &one);
    gpu_barrier(e);
}

/* The same of what every thread asked for itself. */
static void take_own(Band *b, Held *h, LLVMValueRef at) {
    Emit *e = b->r.team.g->e;
    HV from = slots_of(b, at);
    uint32_t slot = 0;
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h->scope[u]);
        for (uint32_t i = 0; i < b->nown; i++) {
            emit_override(e, b->own[i], take_vector(b, b->own[i], from, slot));
            slot += band_pieces(b, b->own[i]);
        }
        (void)emit_switch(e, outer);
    }
}

/* Read anew a turn later: what was read before is not remembered then, as registers are what there
 * is least of. */
void band_take(Band *b, Held *h, LLVMValueRef at) {
    Emit *e = b->r.team.g->e;
    if (b->behind) hop_asm(e, e->voidt, "", "~{memory}", NULL, 0);
    if (b->whole)
        take_row(b, h, at);
    else
        take_own(b, h, at);
}
