/* Blocks of which one warp asks for rows (fetcher.c) and the others compute. Rows of several
 * warps whose folds are joined in shared memory, or across a pair of blocks, are finished a turn
 * later: threads fold the next row while parts of this one are on their way, and no thread waits
 * for all others. */
#include "codegen/nvptx/ptx.h"
#include "codegen/nvptx/band/band.h"

/* --- Rows that are finished a turn later ------------------------------------------------------ */

/* What a team's warps have folded lies in shared memory, in places of four turns, each with a
 * barrier. A warp that leaves its part of turn t + 4 has finished turn t + 2, of which it needed
 * all parts, and whoever left one of these had finished turn t: nobody reads what lies there. Parts
 * of two blocks that share a row go to both. */
enum { PLACES = 4, WARP = 32 };

static uint32_t parts_of(const Band *b) {
    return b->r.team.size / 32 * b->cluster;
}

/* Number of the turn's place among those of the block; its barrier; and shared address of its first
 * part of fold f. */
static HV late_place(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    HV n = hop_andi(e, t->turn, PLACES - 1);
    if (t->place) {
        HV team = LLVMBuildTrunc(e->b, t->place, e->i32, "");
        n = hop_add(e, n, hop_muli(e, team, PLACES));
    }
    return n;
}

static HV late_bar(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    return hop_add(e, t->late_bars, hop_muli(e, late_place(t), HOP_BARRIER_BYTES));
}

static HV late_parts(const BandTurns *t, uint32_t f) {
    Emit *e = t->b->r.team.g->e;
    const int64_t each = parts_of(t->b) * 4;
    HV at = hop_muli(e, late_place(t), each * t->b->nfolds);
    return hop_addi(e, hop_add(e, t->late_room, at), each * f);
}

static void init_late(BandTurns *t) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf one;
    const uint32_t n = PLACES * b->teams;
    t->late_bars = LLVMBuildPtrToInt(e->b, gpu_shared(g, e->i64, n), e->i32, "");
    t->late_room =
        LLVMBuildPtrToInt(e->b, gpu_shared(g, e->f32, n * b->nfolds * parts_of(b)), e->i32, "");
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntEQ, g->tid, emit_i64(e, 0), ""));
    for (uint32_t i = 0; i < n; i++)
        hop_barrier_init(e, hop_addi(e, t->late_bars, i * HOP_BARRIER_BYTES),
                         b->cluster > 1 ? 1 : b->r.team.size / 32);
    emit_if_end(e, &one);
}

/* One lane of a warp leaves what the warp has folded. */
static void leave_parts(const BandTurns *t, const LLVMValueRef *v, uint32_t n) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    EmitIf one, leads;
    LLVMTypeRef shared = LLVMPointerTypeInContext(e->ctx, PTX_SHARED);
    HV rank = LLVMBuildTrunc(e->b, b->r.team.rank, e->i32, ""), warp = hop_shr(e, rank, 5);
    HV bar = late_bar(t);
    if (b->cluster > 1) {
        HV own =
            hop_muli(e, LLVMBuildTrunc(e->b, b->r.team.block, e->i32, ""), b->r.team.size / 32);
        emit_if_begin(e, &leads, hop_is(e, rank, 0));
        hop_barrier_expect(e, bar, hop_i(e, 4 * (int64_t)n * parts_of(b)));
        emit_if_end(e, &leads);
        emit_if_begin(
            e, &one,
            LLVMBuildICmp(e->b, LLVMIntULT, hop_andi(e, rank, 31), hop_i(e, b->cluster), ""));
        for (uint32_t f = 0; f < n; f++) {
            HV to = hop_add(e, late_parts(t, f), hop_muli(e, hop_add(e, own, warp), 4));
            hop_cluster_send(e, to, bar, hop_andi(e, rank, 31), v[f]);
        }
        emit_if_end(e, &one);
        return;
    }
    emit_if_begin(e, &one, hop_is(e, hop_andi(e, rank, 31), 0));
    for (uint32_t f = 0; f < n; f++) {
        HV to = hop_add(e, late_parts(t, f), hop_muli(e, warp, 4));
        LLVMSetVolatile(LLVMBuildStore(e->b, v[f], LLVMBuildIntToPtr(e->b, to, shared, "")), true);
    }
    hop_barrier_arrive(e, bar, LLVMConstInt(e->i1, 1, false));
    emit_if_end(e, &one);
}

/* Where there are more parts than a warp has lanes, each lane takes every 32nd, and lanes join
 * theirs. */
static void take_many(const BandTurns *t, const Pass *p) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    const uint32_t n = parts_of(b);
    LLVMTypeRef shared = LLVMPointerTypeInContext(e->ctx, PTX_SHARED);
    LLVMValueRef acc[ROWS_MAX_FOLDS];
    HV lane = hop_andi(e, LLVMBuildTrunc(e->b, b->r.team.rank, e->i32, ""), WARP - 1);
    for (uint32_t f = 0; f < p->nfolds; f++) {
        const KVal v = p->folds[f];
        const KFold fold = (KFold)e->k->ops[v].fold;
        for (uint32_t i = 0; i < n; i += WARP) {
            HV own = hop_addi(e, lane, i);
            LLVMValueRef has = LLVMBuildICmp(e->b, LLVMIntULT, own, hop_i(e, n), "");
            if (i + WARP > n) own = LLVMBuildSelect(e->b, has, own, hop_i(e, 0), "");
            HV at = hop_add(e, late_parts(t, f), hop_muli(e, own, 4));
            LLVMValueRef x =
                emit_load(e, e->f32, LLVMBuildIntToPtr(e->b, at, shared, ""), sizeof(float));
            LLVMSetVolatile(x, true);
            if (i + WARP > n) x = emit_select(e, has, x, emit_fold_identity(e, fold, DT_f32, 1));
            acc[f] = i ? rows_join(g->rows, v)(e, fold, DT_f32, acc[f], x) : x;
        }
    }
    gpu_team_lanes(&b->r.team, p, acc);
    for (uint32_t f = 0; f < p->nfolds; f++) emit_override(e, p->folds[f], acc[f]);
}

/* The row's results, of what all warps have left, in their order. */
static void take_parts(const BandTurns *t, const Pass *p) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    LLVMTypeRef shared = LLVMPointerTypeInContext(e->ctx, PTX_SHARED);
    const uint32_t n = parts_of(b), per = n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
    hop_barrier_wait(e, late_bar(t), hop_andi(e, hop_shr(e, t->turn, 2), 1));
    if (n > WARP) {
        take_many(t, p);
        return;
    }
    for (uint32_t f = 0; f < p->nfolds; f++) {
        const KVal v = p->folds[f];
        LLVMValueRef all = NULL;
        for (uint32_t i = 0; i < n; i += per) {
            HV at = hop_addi(e, late_parts(t, f), 4 * (int64_t)i);
            LLVMValueRef w = emit_load(e, emit_vec(e->f32, per),
                                       LLVMBuildIntToPtr(e->b, at, shared, ""), 4 * per);
            LLVMSetVolatile(w, true);
            for (uint32_t c = 0; c < per; c++) {
                LLVMValueRef x =
                    per == 1 ? w : LLVMBuildExtractElement(e->b, w, emit_i(e, e->i32, c), "");
                all = all ? rows_join(g->rows, v)(e, (KFold)e->k->ops[v].fold, DT_f32, all, x) : x;
            }
        }
        emit_override(e, v, all);
    }
}

static const Pass *fold_pass(const BandTurns *t) {
    const Passes *rows = t->b->r.team.g->rows;
    for (uint32_t i = 0; i < rows->npasses; i++)
        if (rows->pass[i].nfolds) return &rows->pass[i];
    return NULL;
}

/* The folds of the turn's row, as far as a warp knows them, and sums that need no more. */
static void fold_late(BandTurns *t, LLVMValueRef *sums) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const Pass *p = fold_pass(t);
    LLVMValueRef acc[ROWS_MAX_FOLDS];
    Held h;
    band_turn_wait(t);
    band_turn_numbers(t);
    (void)band_turn_row(t, true, &h);
    band_clear_edges(t, &h);
    band_turn_fold(t, &h, p, acc);
    for (uint32_t u = 0; u < b->r.pieces; u++) band_add(b, &h, u, NULL, true, sums);
    for (uint32_t f = 0; f < p->nfolds; f++)
        acc[f] = emit_fold_lanes_by(e, (KFold)e->k->ops[p->folds[f]].fold, DT_f32, acc[f],
                                    rows_join(b->r.team.g->rows, p->folds[f]));
    gpu_team_lanes(&b->r.team, p, acc);
    leave_parts(t, acc, p->nfolds);
    emit_pop(e);
}

/* The row of the turn before. */
static void finish_late(const BandTurns *t, LLVMValueRef *acc) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    BandTurns before = *t;
    Held h;
    HV first = hop_is(e, t->stage, 0);
    before.row = LLVMBuildSub(e->b, t->row, t->step, "");
    before.stage =
        LLVMBuildSelect(e->b, first, hop_i(e, b->stages - 1), hop_addi(e, t->stage, -1), "");
    before.turn = hop_addi(e, t->turn, -1);
    band_turn_numbers(&before);
    (void)band_turn_row(&before, true, &h);
    take_parts(&before, fold_pass(t));
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        band_turn_vector(&before, &h, u);
        band_finish(b, &h, u, NULL, acc);
    }
    band_turn_leave(&before);
    band_store_once(b, NULL);
    emit_pop(e);
}

static void set_state(BandTurns *t, LLVMValueRef *const state) {
    t->row = state[0], t->stage = state[1], t->round = state[2], t->turn = state[3];
}

/* All turns; what is left of the last behind them. x: the sums. */
static void walk_late_turns(BandTurns *t, LLVMValueRef end, LLVMValueRef *x) {
    Emit *e = t->b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef first[BAND_STATE] = {t->first, hop_i(e, 0), hop_i(e, 0), hop_i(e, 0)};
    uint32_t n = t->nacc + BAND_STATE;
    set_state(t, first);
    fold_late(t, x);
    *l = emit_loop(e, n);
    for (uint32_t i = 0; i < t->nacc; i++) l->init[i] = x[i];
    band_turn_next(t, l->init + t->nacc);
    emit_loop_begin(e, l, "turn", l->init[t->nacc], end, t->step, false);
    set_state(t, l->phi + t->nacc);
    band_turn_next(t, l->next + t->nacc);
    for (uint32_t i = 0; i < t->nacc; i++) l->next[i] = l->phi[i];
    fold_late(t, l->next);
    finish_late(t, l->next);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < t->nacc; i++) x[i] = l->out[i];
    set_state(t, l->out + t->nacc);
    finish_late(t, x);
}

/* All of them, if there is a row at all. */
static void walk_late(BandTurns *t, LLVMValueRef *x) {
    Emit *e = t->b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef rows = emit_expr(e, t->rows), zero = emit_i64(e, 0);
    LLVMValueRef any = LLVMBuildICmp(e->b, LLVMIntSLT, t->first, rows, "");
    *l = emit_loop(e, t->nacc);
    for (uint32_t i = 0; i < t->nacc; i++) l->init[i] = x[i];
    emit_loop_begin(e, l, "any", zero, LLVMBuildZExt(e->b, any, e->i64, ""), emit_i64(e, 1), false);
    for (uint32_t i = 0; i < t->nacc; i++) l->next[i] = l->phi[i];
    walk_late_turns(t, rows, l->next);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < t->nacc; i++) x[i] = l->out[i];
}

/* --- A block ---------------------------------------------------------------------------------- */

void band_walk_fetched(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf role;
    BandTurns t = band_turns(b);
    const int64_t blocks = expr_value(e->exprs, g->k->axes[0].extent);
    const Expr turns = expr_ceildiv(e->exprs, t.rows, expr_const(e->exprs, blocks * b->teams));
    t.pace = band_pace(g, blocks * b->cluster, turns, (int64_t)b->row_bytes * b->teams, b->lead);
    if (b->late) init_late(&t);
    band_fetcher_init(&t);
    if (b->cluster > 1) hop_cluster_sync(e); /* blocks write into those that have begun */
    LLVMValueRef threads = emit_i64(e, b->threads);
    emit_if_begin(e, &role, LLVMBuildICmp(e->b, LLVMIntSGE, g->tid, threads, ""));
    band_fetcher(&t);
    emit_if_end(e, &role);
    emit_if_begin(e, &role, LLVMBuildICmp(e->b, LLVMIntSLT, g->tid, threads, ""));
    t.fixed = band_fixed(b);
    if (b->kept) band_keep_fixed(&t);
    if (b->late)
        walk_late(&t, acc);
    else
        band_turns_all(&t, acc);
    e->quick = NULL;
    band_store_columns(b, acc);
    emit_if_end(e, &role);
    if (b->cluster == 1) return;
    hop_warp_sync(e);
    hop_cluster_sync(e); /* the other block may still read what this one folded */
}
