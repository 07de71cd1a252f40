/* Blocks of which one warp asks for rows (fetcher.c) and the others compute. Rows of several
 * warps whose folds are joined in shared memory, or across a pair of blocks, are finished a turn
 * later: threads fold the next row while parts of this one are on their way, and no thread waits
 * for all others. */
#include "codegen/nvptx/band/band.h"

/* --- Rows that are finished a turn later ------------------------------------------------------ */

/* What a team's warps have folded lies in shared memory, in places of four turns, each with a
 * barrier. A warp that leaves its part of turn t + 4 has finished turn t + 2, of which it needed
 * all parts, and whoever left one of these had finished turn t: nobody reads what lies there. Parts
 * of two blocks that share a row go to both. */
enum { PLACES = BAND_PLACES };

static uint32_t parts_of(const Band *b) {
    return b->r.team.size / 32 * b->cluster;
}

static uint32_t late_folds(const Band *b) {
    return b->nfolds * b->mates;
}

/* Number of the turn's place among those of the block; its barrier; and shared address of its first
 * part of fold f. */
static HV late_place(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    HV n = hop_andi(e, t->turn, PLACES - 1);
    if (t->b->teams > 1) {
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
    HV at = hop_muli(e, late_place(t), each * t->b->nfolds * t->b->mates);
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
        LLVMBuildPtrToInt(e->b, gpu_shared(g, e->f32, n * late_folds(b) * parts_of(b)), e->i32, "");
    emit_if_begin(e, &one, gpu_is_first(g));
    for (uint32_t i = 0; i < n; i++)
        hop_barrier_init(e, hop_addi(e, t->late_bars, i * HOP_BARRIER_BYTES),
                         b->cluster > 1 ? 1 : b->r.team.size);
    emit_if_end(e, &one);
}

/* Where blocks share a row, lanes of part number `own` of a warp hold sum number `own` of n: parts
 * are halved with the sums, so that few lanes hold what others hold, too. */
static uint32_t lanes_of(uint32_t n) {
    return GPU_WARP / n;
}

/* All of a row are sums, and 1, 2, 4 or 8 of them. */
static bool may_spread(const BandTurns *t, const Pass *p) {
    const Band *b = t->b;
    const uint32_t n = late_folds(b);
    bool may = b->dealt && !(n & (n - 1)) && lanes_of(n) >= b->cluster;
    for (uint32_t f = 0; f < p->nfolds; f++)
        may &= b->r.team.g->k->ops[p->folds[f]].fold == FOLD_sum;
    return may;
}

static LLVMValueRef add(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFAdd(e->b, a, b, "");
}

/* Of a lane's n sums: the warp's, where may_spread. */
static LLVMValueRef spread(Emit *e, HV lane, LLVMValueRef *v, uint32_t n) {
    uint32_t off = GPU_WARP / 2;
    for (; n > 1; n /= 2, off /= 2) {
        LLVMValueRef upper = LLVMBuildNot(e->b, hop_is(e, hop_andi(e, lane, off), 0), "");
        for (uint32_t i = 0; i < n / 2; i++) {
            LLVMValueRef own = LLVMBuildSelect(e->b, upper, v[i + n / 2], v[i], "");
            LLVMValueRef other = LLVMBuildSelect(e->b, upper, v[i], v[i + n / 2], "");
            v[i] = add(e, own, gpu_shuffle(e, other, off));
        }
    }
    for (; off; off /= 2) v[0] = add(e, v[0], gpu_shuffle(e, v[0], off));
    return v[0];
}

static HV lane_of(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    return hop_andi(e, LLVMBuildTrunc(e->b, t->b->r.team.rank, e->i32, ""), GPU_WARP - 1);
}

/* To all blocks of the cluster; the turn's barrier knows how much comes. */
static void send_parts(const BandTurns *t, const Pass *p, LLVMValueRef *v, uint32_t n) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    EmitIf one, leads;
    HV rank = LLVMBuildTrunc(e->b, b->r.team.rank, e->i32, ""), warp = hop_shr(e, rank, 5);
    HV bar = late_bar(t), to = lane_of(t);
    HV own = hop_muli(e, LLVMBuildTrunc(e->b, b->r.team.block, e->i32, ""), b->r.team.size / 32);
    own = hop_add(e, own, warp);
    const bool spreads = may_spread(t, p);
    LLVMValueRef mine = spreads ? spread(e, to, v, n) : NULL;
    emit_if_begin(e, &leads, hop_is(e, rank, 0));
    hop_barrier_expect(e, bar, hop_i(e, 4 * (int64_t)n * parts_of(b)));
    emit_if_end(e, &leads);
    if (spreads) {
        HV sum = hop_shr(e, to, __builtin_ctz(lanes_of(n)));
        own = hop_add(e, own, hop_muli(e, sum, parts_of(b)));
        to = hop_andi(e, to, lanes_of(n) - 1);
    }
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntULT, to, hop_i(e, b->cluster), ""));
    for (uint32_t f = 0; f < (spreads ? 1 : n); f++)
        hop_cluster_send(e, hop_add(e, late_parts(t, f), hop_muli(e, own, 4)), bar, to,
                         spreads ? mine : v[f]);
    emit_if_end(e, &one);
}

/* One lane of a warp leaves what the warp has folded: n numbers. All arrive, as all read what is
 * left before a place is written again. */
static void leave_parts(const BandTurns *t, const Pass *p, LLVMValueRef *v, uint32_t n) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    EmitIf one;
    if (b->cluster > 1) {
        send_parts(t, p, v, n);
        return;
    }
    HV rank = LLVMBuildTrunc(e->b, b->r.team.rank, e->i32, ""), warp = hop_shr(e, rank, 5);
    const bool spreads = may_spread(t, p);
    const uint32_t lanes = spreads ? lanes_of(n) : GPU_WARP;
    if (spreads) {
        HV lane = lane_of(t), sum = hop_shr(e, lane, __builtin_ctz(lanes));
        v[0] = spread(e, lane, v, n);
        warp = hop_add(e, warp, hop_muli(e, sum, parts_of(b)));
    }
    emit_if_begin(e, &one, hop_is(e, hop_andi(e, rank, lanes - 1), 0));
    for (uint32_t f = 0; f < (spreads ? 1 : n); f++) {
        HV to = hop_add(e, late_parts(t, f), hop_muli(e, warp, 4));
        LLVMSetVolatile(LLVMBuildStore(e->b, v[f], hop_pointer(e, to)), true);
    }
    emit_if_end(e, &one);
    hop_barrier_arrive(e, late_bar(t), LLVMConstInt(e->i1, 1, false));
}

/* Number `own` of the n parts at `first`; where there are no so many, what changes nothing. */
static LLVMValueRef part_at(const BandTurns *t, HV first, HV own, bool some, LLVMValueRef none) {
    Emit *e = t->b->r.team.g->e;
    LLVMValueRef has = LLVMBuildICmp(e->b, LLVMIntULT, own, hop_i(e, parts_of(t->b)), "");
    if (some) own = LLVMBuildSelect(e->b, has, own, hop_i(e, 0), "");
    HV at = hop_add(e, first, hop_muli(e, own, 4));
    LLVMValueRef x = emit_load(e, e->f32, hop_pointer(e, at), sizeof(float));
    LLVMSetVolatile(x, true);
    return some ? emit_select(e, has, x, none) : x;
}

/* Lanes that hold one sum each take every so many-th part of it; then all know all. */
static void take_spread(const BandTurns *t, LLVMValueRef *v, uint32_t n) {
    Emit *e = t->b->r.team.g->e;
    const uint32_t lanes = lanes_of(n), parts = parts_of(t->b);
    HV lane = lane_of(t), sum = hop_shr(e, lane, __builtin_ctz(lanes));
    HV first = hop_add(e, late_parts(t, 0), hop_muli(e, sum, 4 * (int64_t)parts));
    LLVMValueRef all = NULL;
    for (uint32_t i = 0; i < parts; i += lanes) {
        HV own = hop_addi(e, hop_andi(e, lane, lanes - 1), i);
        LLVMValueRef x = part_at(t, first, own, i + lanes > parts, LLVMConstNull(e->f32));
        all = all ? add(e, all, x) : x;
    }
    for (uint32_t off = lanes / 2; off; off /= 2) all = add(e, all, gpu_shuffle(e, all, off));
    for (uint32_t f = 0; f < n; f++) v[f] = gpu_shuffle_from(e, all, hop_i(e, f * lanes), GPU_WARP);
}

/* Where there are more parts than a warp has lanes, each lane takes every 32nd, and lanes join
 * theirs. Of the turn's row number `row`. */
static void take_many(const BandTurns *t, const Pass *p, uint32_t row, LLVMValueRef *v) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    const uint32_t n = parts_of(b);
    HV lane = lane_of(t);
    for (uint32_t f = 0; f < p->nfolds; f++) {
        const KFold fold = (KFold)e->k->ops[p->folds[f]].fold;
        LLVMValueRef none = emit_fold_identity(e, fold, DT_f32, 1);
        HV first = late_parts(t, row * p->nfolds + f);
        for (uint32_t i = 0; i < n; i += GPU_WARP) {
            LLVMValueRef x = part_at(t, first, hop_addi(e, lane, i), i + GPU_WARP > n, none);
            v[f] = i ? rows_join(g->rows, p->folds[f])(e, fold, DT_f32, v[f], x) : x;
        }
    }
    gpu_team_lanes(&b->r.team, p, v);
}

static void take_few(const BandTurns *t, const Pass *p, uint32_t row, LLVMValueRef *v) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    const uint32_t n = parts_of(b), per = n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
    for (uint32_t f = 0; f < p->nfolds; f++) {
        const KVal fold = p->folds[f];
        LLVMValueRef all = NULL;
        for (uint32_t i = 0; i < n; i += per) {
            HV at = hop_addi(e, late_parts(t, row * p->nfolds + f), 4 * (int64_t)i);
            LLVMValueRef w = emit_load(e, emit_vec(e->f32, per), hop_pointer(e, at), 4 * per);
            LLVMSetVolatile(w, true);
            for (uint32_t c = 0; c < per; c++) {
                LLVMValueRef x =
                    per == 1 ? w : LLVMBuildExtractElement(e->b, w, emit_i(e, e->i32, c), "");
                all = all ? rows_join(g->rows, fold)(e, (KFold)e->k->ops[fold].fold, DT_f32, all, x)
                          : x;
            }
        }
        v[f] = all;
    }
}

/* The turn's results, of what all warps have left, in their order. */
static void take_parts(const BandTurns *t, const Pass *p, LLVMValueRef *v) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    hop_barrier_wait(e, late_bar(t), hop_andi(e, hop_shr(e, t->turn, 2), 1));
    if (may_spread(t, p)) {
        take_spread(t, v, late_folds(b));
        return;
    }
    for (uint32_t r = 0; r < b->mates; r++, v += p->nfolds) {
        if (parts_of(b) > GPU_WARP)
            take_many(t, p, r, v);
        else
            take_few(t, p, r, v);
    }
}

static const Pass *fold_pass(const BandTurns *t) {
    const Passes *rows = t->b->r.team.g->rows;
    for (uint32_t i = 0; i < rows->npasses; i++)
        if (rows->pass[i].nfolds) return &rows->pass[i];
    return NULL;
}

/* Of the turn's rows number `r`, if there are several. */
static BandTurns mate(const BandTurns *t, uint32_t r) {
    Emit *e = t->b->r.team.g->e;
    BandTurns x = *t;
    if (t->b->mates == 1) return x;
    x.row = LLVMBuildAdd(e->b, t->row, emit_i64(e, r), "");
    x.place = emit_i64(e, r);
    return x;
}

/* The folds of the turn's rows, as far as a warp knows them, and sums that need no more. */
static void fold_late(const BandTurns *t, LLVMValueRef *sums) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const Pass *p = fold_pass(t);
    LLVMValueRef all[BAND_MATES * ROWS_MAX_FOLDS], *acc = all;
    band_turn_wait(t);
    for (uint32_t r = 0; r < b->mates; r++, acc += p->nfolds) {
        BandTurns x = mate(t, r);
        Held h;
        band_turn_numbers(&x);
        (void)band_turn_row(&x, true, &h);
        if (!b->starts) band_clear_edges(&x, &h);
        band_turn_fold(&x, &h, p, acc);
        for (uint32_t u = 0; u < b->r.pieces; u++) band_add(b, &h, u, NULL, true, sums);
        for (uint32_t f = 0; f < p->nfolds; f++)
            acc[f] = emit_fold_lanes_by(e, (KFold)e->k->ops[p->folds[f]].fold, DT_f32, acc[f],
                                        rows_join(b->r.team.g->rows, p->folds[f]));
        if (!may_spread(t, p)) gpu_team_lanes(&b->r.team, p, acc);
        emit_pop(e);
    }
    leave_parts(t, p, all, p->nfolds * b->mates);
}

/* One of the turn's rows, whose results are v. */
static void finish_row(const BandTurns *t, const LLVMValueRef *v, LLVMValueRef *acc) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const Pass *p = fold_pass(t);
    BandTurns x = *t;
    Held h;
    band_turn_numbers(&x);
    (void)band_turn_row(&x, true, &h);
    for (uint32_t f = 0; f < p->nfolds; f++) emit_override(e, p->folds[f], v[f]);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        band_turn_vector(&x, &h, u);
        band_finish(b, &x, &h, u, NULL, acc);
    }
    band_store_once(b, NULL);
    emit_pop(e);
}

/* The rows of the turn before. */
static void finish_late(const BandTurns *t, LLVMValueRef *acc) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    LLVMValueRef v[BAND_MATES * ROWS_MAX_FOLDS];
    BandTurns before = *t;
    HV first = hop_is(e, t->stage, 0);
    before.row = LLVMBuildSub(e->b, t->row, t->step, "");
    before.stage =
        LLVMBuildSelect(e->b, first, hop_i(e, b->stages - 1), hop_addi(e, t->stage, -1), "");
    before.turn = hop_addi(e, t->turn, -1);
    take_parts(&before, fold_pass(t), v);
    for (uint32_t r = 0; r < b->mates; r++) {
        BandTurns x = mate(&before, r);
        finish_row(&x, v + r * fold_pass(t)->nfolds, acc);
    }
    band_turn_leave(&before);
}

static void set_state(BandTurns *t, LLVMValueRef *const state) {
    t->row = state[0], t->stage = state[1], t->round = state[2], t->turn = state[3];
}

/* All turns of a row in front of `end`; what is left of the last behind them. x: the sums, and the
 * state. */
static void walk_late_turns(BandTurns *t, LLVMValueRef end, LLVMValueRef *x) {
    Emit *e = t->b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    uint32_t n = t->nacc + BAND_STATE;
    set_state(t, x + t->nacc);
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
    for (uint32_t i = 0; i < n; i++) x[i] = l->out[i];
    set_state(t, x + t->nacc);
    finish_late(t, x);
}

/* All of them, if there is a row at all. */
static void walk_late(BandTurns *t, LLVMValueRef end, LLVMValueRef *x) {
    Emit *e = t->b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    const uint32_t n = t->nacc + BAND_STATE;
    LLVMValueRef zero = emit_i64(e, 0);
    LLVMValueRef any = LLVMBuildICmp(e->b, LLVMIntSLT, x[t->nacc], end, "");
    *l = emit_loop(e, n);
    for (uint32_t i = 0; i < n; i++) l->init[i] = x[i];
    emit_loop_begin(e, l, "any", zero, LLVMBuildZExt(e->b, any, e->i64, ""), emit_i64(e, 1), false);
    for (uint32_t i = 0; i < n; i++) l->next[i] = l->phi[i];
    walk_late_turns(t, end, l->next);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) x[i] = l->out[i];
}

/* x: the sums, and room for the state. */
static void walk_rows(BandTurns *t, LLVMValueRef *x) {
    Emit *e = t->b->r.team.g->e;
    if (!t->b->late) {
        band_turns_all(t, x);
        return;
    }
    LLVMValueRef first[BAND_STATE] = {t->first, hop_i(e, 0), hop_i(e, 0), hop_i(e, 0)};
    for (uint32_t i = 0; i < BAND_STATE; i++) x[t->nacc + i] = first[i];
    if (t->b->dealt)
        band_walk_lists(t, walk_late, x);
    else
        walk_late(t, emit_expr(e, t->rows), x);
}

/* How many there are at most. */
static Expr most_turns(const BandTurns *t, int64_t blocks) {
    const Band *b = t->b;
    const Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    if (b->dealt) return expr_div(p, g->k->axes[b->turn].extent, expr_const(p, b->mates));
    return expr_ceildiv(p, t->rows, expr_const(p, blocks * b->teams));
}

/* --- A block ---------------------------------------------------------------------------------- */

/* By those that do not compute: a warp, or, where registers go from some to the others, which
 * groups of four warps do, such a group, of which one asks for rows. */
static void fetch_apart(const BandTurns *t) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf one;
    if (!b->registers) {
        band_fetcher(t);
        return;
    }
    hop_registers(e, BAND_FETCHING, false);
    LLVMValueRef end = emit_i64(e, b->threads + GPU_WARP);
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntSLT, g->tid, end, ""));
    band_fetcher(t);
    emit_if_end(e, &one);
}

/* Behind all turns: the group has left those, too, in which others of its block had rows and it had
 * none. Then all results have been read where blocks meet. */
static void end_gathered(const BandTurns *t, LLVMValueRef *const state) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    EmitIf missed;
    BandTurns last = *t;
    last.stage = state[1];
    LLVMValueRef block = LLVMBuildMul(e->b, b->owner, emit_i64(e, t->held), "");
    LLVMValueRef before = LLVMBuildSub(e->b, t->first, block, "");
    LLVMValueRef first = LLVMBuildSub(e->b, state[0], before, "");
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntSLT, first, emit_expr(e, t->rows), "");
    emit_if_begin(e, &missed, is);
    band_turn_leave(&last);
    emit_if_end(e, &missed);
    hop_barrier_wait(e, t->sent, hop_i(e, 0));
}

static void init_sent(BandTurns *t) {
    Gpu *g = t->b->r.team.g;
    Emit *e = g->e;
    EmitIf one;
    t->sent = LLVMBuildPtrToInt(e->b, gpu_shared(g, e->i64, 1), e->i32, "");
    emit_if_begin(e, &one, gpu_is_first(g));
    hop_barrier_init(e, t->sent, GPU_WARP);
    emit_if_end(e, &one);
}

void band_walk_fetched(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf role;
    BandTurns t = band_turns(b);
    if (b->starts) band_starts_init(b);
    const int64_t blocks = expr_value(e->exprs, g->k->axes[0].extent);
    const int64_t bytes = band_turn_bytes(b, b->teams);
    t.pace = band_pace(g, blocks * b->cluster, most_turns(&t, blocks), bytes, b->lead);
    t.pace.waits = !t.ncopied;
    if (b->late) init_late(&t);
    if (b->dealt) band_lists_init(&t);
    band_meeting_init(b);
    if (b->gathers) init_sent(&t);
    band_fetcher_init(&t);
    if (b->cluster > 1) hop_cluster_sync(e); /* blocks write into those that have begun */
    LLVMValueRef threads = emit_i64(e, b->threads);
    emit_if_begin(e, &role, LLVMBuildICmp(e->b, LLVMIntSGE, g->tid, threads, ""));
    fetch_apart(&t);
    emit_if_end(e, &role);
    emit_if_begin(e, &role, LLVMBuildICmp(e->b, LLVMIntSLT, g->tid, threads, ""));
    if (b->registers) hop_registers(e, b->registers, true);
    if (!b->dealt) {
        t.fixed = band_fixed(b);
        if (b->kept) band_keep_fixed(&t);
    }
    walk_rows(&t, acc);
    if (b->gathers) end_gathered(&t, acc + t.nacc);
    e->quick = NULL;
    band_store_columns(b, acc);
    emit_if_end(e, &role);
    if (b->cluster == 1) return;
    hop_warp_sync(e);
    hop_cluster_sync(e); /* the other block may still read what this one folded */
}
