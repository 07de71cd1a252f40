/* Rows of a band that are finished one after the other, each by a group of threads: a team, or the
 * teams of a warp, whose rows lie side by side. The copy engine brings a group's rows some turns
 * ahead; as soon as all of the group has read what is there, it is asked for the next. Groups go
 * through their rows at their own pace: which row comes when is known before, so that none is asked
 * whether it exists but in a warp's last turn. */
#include "codegen/nvptx/band/band.h"

/* --- What a turn stands on -------------------------------------------------------------------- */

/* The thread's own row of the group's first one, or the last row. */
static LLVMValueRef own_row(const BandTurns *t, LLVMValueRef row, bool full) {
    Emit *e = t->b->r.team.g->e;
    if (t->side > 1) row = LLVMBuildAdd(e->b, row, t->own, "");
    LLVMValueRef v[2] = {row, band_last_row(t)};
    return full ? row : emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

/* --- Requests --------------------------------------------------------------------------------- */

/* Rows of the group from `row` on, as many as there are. */
static LLVMValueRef count_rows(const BandTurns *t, LLVMValueRef row) {
    Emit *e = t->b->r.team.g->e;
    LLVMValueRef v[2] = {LLVMBuildSub(e->b, emit_expr(e, t->rows), row, ""), emit_i64(e, t->side)};
    return LLVMBuildTrunc(e->b, emit_intrinsic(e, "llvm.smin", e->i64, v, 2), e->i32, "");
}

/* Of the team's row, by one of its threads: they come with the rows. */
static void request_numbers(const BandTurns *t, LLVMValueRef row, const BandStage *to) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    if (!t->ncopied) return;
    emit_push(e);
    band_bind_row(t, own_row(t, row, t->side == 1));
    HV at = to->numbers;
    if (t->side > 1)
        at = hop_add(e, at, hop_muli(e, LLVMBuildTrunc(e->b, t->own, e->i32, ""), BAND_NUMBER));
    for (uint32_t i = 0; i < b->nnumbers; i++)
        if (band_is_copied(t, b->number[i]))
            band_copy_number(b, i, hop_addi(e, at, (int64_t)i * t->side * BAND_NUMBER));
    band_copies_arrive(e, to->bar);
    emit_pop(e);
}

/* By one thread of the group. */
static void request_rows(const BandTurns *t, LLVMValueRef row, const BandStage *s) {
    Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    HV to = s->rows, n = t->side > 1 ? count_rows(t, row) : hop_i(e, 1);
    band_bind_row(t, row);
    emit_set_sym(e, g->k->axes[b->r.lane].sym, emit_i64(e, 0));
    hop_barrier_expect(e, s->bar, hop_muli(e, n, b->row_bytes));
    for (uint32_t i = 0; i < b->nown; i++) {
        const KOp *o = &e->k->ops[b->own[i]];
        int64_t bytes = band_part(b) * band_pieces(b, b->own[i]) * BAND_PIECE;
        HV from = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
        hop_bulk_load(e, to, from, hop_muli(e, n, bytes), s->bar);
        to = hop_addi(e, to, bytes * t->side);
    }
}

/* The group asks for the rows from `row` on, if there are. */
static void request(const BandTurns *t, LLVMValueRef row, LLVMValueRef stage) {
    Gpu *g = t->b->r.team.g;
    Emit *e = g->e;
    EmitIf there, one;
    LLVMValueRef zero = emit_i64(e, 0);
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, t->b->r.team.rank, zero, "");
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntSLT, row, emit_expr(e, t->rows), "");
    emit_if_begin(e, &there, LLVMBuildAnd(e->b, first, is, ""));
    BandStage s = band_stage_at(t, stage);
    if (t->side > 1) emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntEQ, t->own, zero, ""));
    request_rows(t, row, &s);
    if (t->side > 1) emit_if_end(e, &one);
    request_numbers(t, row, &s);
    emit_if_end(e, &there);
}

void band_turn_wait(const BandTurns *t) {
    hop_barrier_wait(t->b->r.team.g->e, band_stage_at(t, t->stage).bar, t->round);
}

void band_turn_numbers(BandTurns *t) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    HV at = band_stage_at(t, t->stage).numbers;
    if (t->place)
        at = hop_add(e, at, hop_muli(e, LLVMBuildTrunc(e->b, t->place, e->i32, ""), BAND_NUMBER));
    for (uint32_t i = 0; i < b->nnumbers; i++) {
        if (!band_is_copied(t, b->number[i])) continue;
        DType type = e->k->params[e->k->ops[b->number[i]].buf].dtype;
        HV p = hop_addi(e, at, (int64_t)i * t->held * BAND_NUMBER);
        p = hop_pointer(e, p);
        t->number[i] = emit_load(e, emit_mem_type(e, type), p, (uint32_t)dtype_bytes(type));
    }
}

/* Of an access of so many bytes. */
static uint32_t align_of(uint32_t bytes) {
    return bytes < BAND_PIECE ? bytes : BAND_PIECE;
}

/* The thread's vectors lo to hi become known in the row's scopes. */
static void take(const BandTurns *t, Held *h, uint32_t lo, uint32_t hi) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    for (uint32_t i = 0; i < b->nown; i++) {
        const DType type = e->k->params[e->k->ops[b->own[i]].buf].dtype;
        const LLVMTypeRef elem = emit_mem_type(e, type);
        for (uint32_t u = lo; u < hi; u++) {
            HV p = band_turn_place(t, i, u);
            EmitScope *outer = row_enter(h, u);
            p = hop_pointer(e, p);
            const uint32_t bytes = (uint32_t)dtype_bytes(type) * e->lanes;
            emit_override(e, b->own[i], emit_load(e, emit_vec(elem, e->lanes), p, align_of(bytes)));
            row_exit(h, outer);
        }
    }
}

/* --- What all rows read alike ----------------------------------------------------------------- */

/* Shared memory of the thread's vector u of load v. No other thread reads it. */
static LLVMValueRef kept_at(const BandTurns *t, uint32_t u, KVal v) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    int64_t at = b->kept;
    for (uint32_t i = 0; i <= u; i++)
        for (KVal w = 1; w < (i < u ? g->k->nops : v); w++)
            if (t->fixed[i][w]) at += (int64_t)band_piece_bytes(b, w, i) * b->threads;
    HV own = hop_muli(e, LLVMBuildTrunc(e->b, g->tid, e->i32, ""), band_piece_bytes(b, v, u));
    HV p = hop_addi(e, hop_add(e, hop_shared(g), own), at);
    return hop_pointer(e, p);
}

void band_keep_fixed(const BandTurns *t) {
    const Gpu *g = t->b->r.team.g;
    for (uint32_t u = 0; u < t->b->r.pieces; u++)
        for (KVal v = 1; v < g->k->nops; v++)
            if (t->fixed[u][v])
                emit_store_ptr(g->e, t->fixed[u][v], kept_at(t, u, v),
                               align_of(band_piece_bytes(t->b, v, u)));
}

/* Of vector u, in its scope. */
static void take_fixed(const BandTurns *t, uint32_t u) {
    const Gpu *g = t->b->r.team.g;
    Emit *e = g->e;
    for (KVal v = 1; v < g->k->nops; v++) {
        LLVMValueRef x = t->fixed[u][v];
        if (!x) continue;
        if (t->b->kept)
            x = emit_load(e, LLVMTypeOf(x), kept_at(t, u, v),
                          align_of(band_piece_bytes(t->b, v, u)));
        emit_override(e, v, x);
    }
}

/* --- A turn ----------------------------------------------------------------------------------- */

static void meet(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    if (t->b->fetched) return;
    if (t->b->r.team.size <= 32)
        hop_warp_sync(e);
    else if (!t->b->nfolds)
        gpu_team_sync(&t->b->r.team);
}

/* The thread has read what is there of this turn, and left its results there, if they are gathered.
 * Each one arrives: compute-sanitizer's racecheck takes an arrival for the order of that thread's
 * reads alone, and 32 take no longer than one. */
void band_turn_leave(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    if (t->b->gathers) hop_fence_async(e);
    hop_barrier_arrive(e, band_stage_at(t, t->stage).left, LLVMConstInt(e->i1, 1, false));
}

/* What was read of this turn's rows, or, where they are read again, of those before, is read by all
 * of the group: the rows that come there next. */
static void request_next(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    if (t->b->fetched) {
        if (!t->b->again && !t->b->gathers) band_turn_leave(t);
        return;
    }
    const uint32_t stages = t->b->stages - t->b->again;
    HV stage = t->stage;
    if (t->b->again) {
        HV last = hop_i(e, stages), before = hop_addi(e, stage, -1);
        stage = LLVMBuildSelect(e->b, hop_is(e, stage, 0), last, before, "");
    }
    LLVMValueRef ahead = LLVMBuildMul(e->b, t->step, emit_i64(e, stages), "");
    request(t, LLVMBuildAdd(e->b, t->row, ahead, ""), stage);
}

/* A scope in which the turn's row stands. True (i1) where there is such a
 * row; NULL: everywhere. */
LLVMValueRef band_turn_row(const BandTurns *t, bool full, Held *h) {
    Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    LLVMValueRef inside = NULL, row = own_row(t, t->row, true);
    if (!full) {
        inside = LLVMBuildICmp(e->b, LLVMIntSLT, row, emit_expr(e, t->rows), "");
        row = own_row(t, t->row, false);
    }
    *h = (Held){.r = &b->r};
    emit_push(e);
    band_bind_row(t, row);
    for (uint32_t i = 0; i < b->nnumbers; i++)
        if (t->number[i]) emit_override(e, b->number[i], t->number[i]);
    row_place(h);
    for (uint32_t u = 0; u < b->r.pieces && !b->kept; u++) {
        EmitScope *outer = row_enter(h, u);
        take_fixed(t, u);
        row_exit(h, outer);
    }
    return inside;
}

/* The same in a new scope, in which nothing but the folds is remembered. */
static LLVMValueRef begin_again(const BandTurns *t, bool full, Held *h) {
    Gpu *g = t->b->r.team.g;
    Emit *e = g->e;
    LLVMValueRef *fold = ARENA_ARRAY(e->arena, LLVMValueRef, g->k->nops);
    for (uint32_t i = 0; i < g->rows->npasses; i++)
        for (uint32_t f = 0; f < g->rows->pass[i].nfolds; f++)
            fold[g->rows->pass[i].folds[f]] = emit_value(e, g->rows->pass[i].folds[f]);
    emit_pop(e);
    LLVMValueRef inside = band_turn_row(t, full, h);
    for (KVal v = 1; v < g->k->nops; v++)
        if (fold[v]) emit_override(e, v, fold[v]);
    return inside;
}

/* Vector u alone: those behind it are not read ahead, as registers are short. */
void band_turn_vector(const BandTurns *t, Held *h, uint32_t u) {
    Emit *e = t->b->r.team.g->e;
    hop_asm(e, e->voidt, "", "~{memory}", NULL, 0);
    take(t, h, u, u + 1);
    if (!t->b->kept) return;
    EmitScope *outer = row_enter(h, u);
    take_fixed(t, u);
    row_exit(h, outer);
}

/* Where the vector is past the row's end, what changes no fold. */
static LLVMValueRef fold_operand(const BandTurns *t, LLVMValueRef live, KVal v) {
    Emit *e = t->b->r.team.g->e;
    const KOp *o = &e->k->ops[v];
    LLVMValueRef x = emit_value_lanes(e, o->in[0]);
    return live ? emit_select(e, live, x, emit_fold_identity(e, (KFold)o->fold, DT_f32, e->lanes))
                : x;
}

/* Into the first lanes of acc, of which x may have fewer. */
static LLVMValueRef join_lanes(Emit *e, EmitJoin join, KFold fold, LLVMValueRef acc,
                               LLVMValueRef x) {
    const uint32_t all = LLVMGetVectorSize(LLVMTypeOf(acc)), n = LLVMGetVectorSize(LLVMTypeOf(x));
    LLVMValueRef lane[16], none = LLVMGetPoison(LLVMTypeOf(acc));
    if (n == all) return join(e, fold, DT_f32, acc, x);
    for (uint32_t i = 0; i < all; i++) lane[i] = emit_i(e, e->i32, i);
    LLVMValueRef first = LLVMBuildShuffleVector(e->b, acc, none, LLVMConstVector(lane, n), "");
    first = join(e, fold, DT_f32, first, x);
    for (uint32_t i = 0; i < n; i++) {
        LLVMValueRef y = LLVMBuildExtractElement(e->b, first, lane[i], "");
        acc = LLVMBuildInsertElement(e->b, acc, y, lane[i], "");
    }
    return acc;
}

/* The first vector is what the second is joined to: identities would cost as much as a vector. */
void band_turn_fold(const BandTurns *t, Held *h, const Pass *p, LLVMValueRef *acc) {
    const RowPlan *r = &t->b->r;
    Emit *e = r->team.g->e;
    for (uint32_t u = 0; u < r->pieces; u++) {
        if (t->b->again) band_turn_vector(t, h, u);
        EmitScope *outer = row_enter(h, u);
        if (t->b->starts) band_mask_edges(t->b, u);
        for (uint32_t f = 0; f < p->nfolds; f++) {
            LLVMValueRef x = fold_operand(t, h->live[u], p->folds[f]);
            KFold fold = (KFold)e->k->ops[p->folds[f]].fold;
            const EmitJoin join = rows_join(r->team.g->rows, p->folds[f]);
            acc[f] = u ? join_lanes(e, join, fold, acc[f], x) : x;
        }
        row_exit(h, outer);
    }
}

static void fold_row(const BandTurns *t, Held *h, const Pass *p) {
    LLVMValueRef acc[ROWS_MAX_FOLDS];
    band_turn_fold(t, h, p, acc);
    row_results(&t->b->r, p, acc);
}

/* In front of the wait for a row, where registers hold the sums of columns and little else. */
static void keep_pace(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    EmitIf one;
    if (!t->b->paced) return;
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntEQ, t->b->r.team.rank, emit_i64(e, 0), ""));
    band_pace_turn(&t->pace, t->turn);
    emit_if_end(e, &one);
}

static void end_pace(const BandTurns *t, LLVMValueRef *const state) {
    Emit *e = t->b->r.team.g->e;
    EmitIf one;
    if (!t->b->paced) return;
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntEQ, t->b->r.team.rank, emit_i64(e, 0), ""));
    band_pace_end(&t->pace, state[3]);
    emit_if_end(e, &one);
}

/* The row of the turn: its folds, the sums of columns, what is stored of it. Where
 * registers are short it is read again behind the folds. */
static void run_row(BandTurns *t, bool full, LLVMValueRef *acc) {
    Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    Held h;
    b->r.team.turn = b->r.team.size > 32 ? t->odd : NULL;
    keep_pace(t);
    band_turn_wait(t);
    band_turn_numbers(t);
    LLVMValueRef inside = band_turn_row(t, full, &h);
    if (!b->again) take(t, &h, 0, b->r.pieces);
    for (uint32_t i = 0; i < g->rows->npasses && g->rows->pass[i].nfolds; i++)
        fold_row(t, &h, &g->rows->pass[i]);
    meet(t);
    request_next(t);
    if (b->again) inside = begin_again(t, full, &h);
    /* What is read again of a warp's own row would be read behind stores, which may be anywhere. */
    const bool last = b->gathers && b->r.team.size <= GPU_WARP;
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        if (b->again) band_turn_vector(t, &h, u);
        if (b->again && b->fetched && !b->gathers && u + 1 == b->r.pieces) band_turn_leave(t);
        band_make(b, &h, u, inside, acc);
        if (!last) band_store(b, t, &h, u, inside);
    }
    for (uint32_t u = 0; u < b->r.pieces && last; u++) band_store(b, t, &h, u, inside);
    band_store_once(b, inside);
    emit_pop(e);
    if (b->gathers) band_turn_leave(t);
}

/* Turns are counted: not only whether their number is odd is asked for. */
static bool is_counted(const Band *b) {
    return b->paced || b->late;
}

/* What goes from turn to turn, of the turn behind this one. */
void band_turn_next(const BandTurns *t, LLVMValueRef *to) {
    Emit *e = t->b->r.team.g->e;
    HV next = hop_addi(e, t->stage, 1);
    HV wraps = LLVMBuildICmp(e->b, LLVMIntEQ, next, hop_i(e, t->b->stages), "");
    to[0] = LLVMBuildAdd(e->b, t->row, t->step, "");
    to[1] = LLVMBuildSelect(e->b, wraps, hop_i(e, 0), next, "");
    to[2] = LLVMBuildXor(e->b, t->round, LLVMBuildZExt(e->b, wraps, e->i32, ""), "");
    to[3] =
        is_counted(t->b) ? hop_addi(e, t->turn, 1) : LLVMBuildXor(e->b, t->odd, emit_i64(e, 1), "");
}

/* Turns while the group's first row is below `end`. x: the sums, and the first turn's state. */
static void walk_turns(BandTurns *t, LLVMValueRef end, bool full, LLVMValueRef *x) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    uint32_t state = t->nacc, n = state + BAND_STATE;
    *l = emit_loop(e, n);
    for (uint32_t i = 0; i < n; i++) l->init[i] = x[i];
    emit_loop_begin(e, l, "turn", x[state], end, t->step, false);
    t->row = l->phi[state], t->stage = l->phi[state + 1];
    t->round = l->phi[state + 2], t->odd = l->phi[state + 3];
    if (is_counted(b)) {
        t->turn = t->odd;
        t->odd = LLVMBuildZExt(e->b, hop_andi(e, t->turn, 1), e->i64, "");
    }
    band_turn_next(t, l->next + state);
    for (uint32_t i = 0; i < t->nacc; i++) l->next[i] = l->phi[i];
    run_row(t, full, l->next);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) x[i] = l->out[i];
}

/* --- All rows of a block ---------------------------------------------------------------------- */

LLVMValueRef band_place_of(const Band *b, LLVMValueRef warp, LLVMValueRef own) {
    Emit *e = b->r.team.g->e;
    LLVMValueRef apart = emit_i64(e, b->apart), some = LLVMBuildUDiv(e->b, warp, apart, "");
    some = LLVMBuildMul(e->b, some, emit_i64(e, b->side), "");
    LLVMValueRef at = LLVMBuildMul(e->b, LLVMBuildAdd(e->b, some, own, ""), apart, "");
    return LLVMBuildAdd(e->b, at, LLVMBuildURem(e->b, warp, apart, ""), "");
}

static void place_group(BandTurns *t) {
    Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    const uint32_t threads = b->r.team.size < 32 ? 32 : b->r.team.size, n = b->threads / threads;
    t->groups = n;
    LLVMValueRef blocks = emit_expr(e, g->k->axes[0].extent);
    t->group = LLVMBuildUDiv(e->b, g->tid, emit_i64(e, threads), "");
    t->own = LLVMBuildLShr(e->b, LLVMBuildAnd(e->b, g->tid, emit_i64(e, 31), ""),
                           emit_i64(e, __builtin_ctz(b->r.team.size)), "");
    t->first = LLVMBuildMul(e->b, b->owner, emit_i64(e, n), "");
    if (b->apart == 1) {
        t->first = LLVMBuildAdd(e->b, t->first, t->group, "");
        t->first = LLVMBuildMul(e->b, t->first, emit_i64(e, t->side), "");
    } else {
        t->own = LLVMBuildMul(e->b, t->own, emit_i64(e, b->apart), "");
        t->first = LLVMBuildMul(e->b, t->first, emit_i64(e, t->side), "");
        LLVMValueRef place = band_place_of(b, t->group, emit_i64(e, 0));
        t->first = LLVMBuildAdd(e->b, t->first, place, "");
    }
    t->step = LLVMBuildMul(e->b, blocks, emit_i64(e, (int64_t)n * t->side), "");
    t->held = b->fetched ? b->teams * b->mates : t->side;
    if (b->mates == 1 && t->held > 1) t->place = b->fetched ? b->team : t->own;
    if (b->dealt) {
        t->first = emit_i64(e, 0), t->step = emit_i64(e, b->mates);
        t->end = emit_expr(e, e->k->dealt.rows);
    }
    if (b->r.team.size > 32 && n > 1) b->r.team.number = t->group;
    /* Who fetches does not meet with the others. */
    if (b->r.team.size > 32 && n == 1 && b->fetched) b->r.team.number = emit_i64(e, 0);
    b->r.team.room = hop_addi(e, hop_shared(g), b->room);
}

static void init_barriers(const BandTurns *t) {
    Gpu *g = t->b->r.team.g;
    Emit *e = g->e;
    EmitIf one;
    LLVMValueRef n = emit_i64(e, t->b->stages * t->groups);
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntSLT, g->tid, n, ""));
    HV own = hop_muli(e, LLVMBuildTrunc(e->b, g->tid, e->i32, ""), HOP_BARRIER_BYTES);
    hop_barrier_init(e, hop_add(e, hop_addi(e, hop_shared(g), t->b->bars), own),
                     t->ncopied ? 1 + t->side : 1);
    hop_barrier_init_fence(e);
    hop_fence_async(e);
    emit_if_end(e, &one);
    gpu_barrier(e);
}

/* All turns of the group. acc: the sums, and room for what else goes from turn to turn. */
void band_turns_all(BandTurns *t, LLVMValueRef *acc) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    LLVMValueRef *state = acc + t->nacc;
    state[0] = t->first, state[1] = state[2] = hop_i(e, 0), state[3] = emit_i64(e, 0);
    if (is_counted(b)) state[3] = hop_i(e, 0);
    LLVMValueRef rows = emit_expr(e, t->rows), full = emit_i64(e, (t->side - 1) * b->apart);
    walk_turns(t, LLVMBuildSub(e->b, rows, full, ""), true, acc);
    Expr rest = expr_mod(e->exprs, t->rows, expr_const(e->exprs, t->side * b->apart));
    if (!expr_is_value(e->exprs, rest, 0)) walk_turns(t, rows, false, acc);
}

BandTurns band_turns(Band *b) {
    Emit *e = b->r.team.g->e;
    int64_t least;
    BandTurns t = {.b = b, .rows = b->rows, .side = b->side, .nacc = b->r.pieces * b->nsums};
    expr_range(e->exprs, t.rows, &least, &t.most);
    for (uint32_t i = 0; i < b->nnumbers; i++) t.ncopied += band_is_copied(&t, b->number[i]);
    place_group(&t);
    return t;
}

void band_walk(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    BandTurns t = band_turns(b);
    t.fixed = band_fixed(b);
    const Expr blocks = g->k->axes[0].extent, turns = expr_ceildiv(e->exprs, t.rows, blocks);
    if (b->paced) t.pace = band_pace(g, expr_value(e->exprs, blocks), turns, b->row_bytes, 0);
    t.pace.waits = !t.ncopied;
    band_meeting_init(b);
    init_barriers(&t);
    LLVMValueRef row = t.first;
    for (uint32_t i = 0; i + b->again < b->stages; i++) {
        request(&t, row, hop_i(e, i));
        row = LLVMBuildAdd(e->b, row, t.step, "");
    }
    if (b->kept) band_keep_fixed(&t);
    band_turns_all(&t, acc);
    end_pace(&t, acc + t.nacc);
}
