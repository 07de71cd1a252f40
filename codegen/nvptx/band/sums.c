/* What rows of a band leave: sums of columns in registers and, of each row, what is stored; at last
 * the block's sums, which its teams join in shared memory. */
#include "codegen/nvptx/band/band.h"

/* --- A row ------------------------------------------------------------------------------------ */

void band_add(const Band *b, const Held *h, uint32_t u, LLVMValueRef inside, bool soon,
              LLVMValueRef *acc) {
    Emit *e = b->r.team.g->e;
    EmitScope *outer = row_enter(h, u);
    acc += u * b->nsums;
    for (uint32_t s = 0; s < b->nsums; s++) {
        if (b->soon[s] != soon) continue;
        const KOp *o = &e->k->ops[b->sum[s]];
        LLVMValueRef x = emit_value_lanes(e, o->in[0]);
        LLVMValueRef none = emit_fold_identity(e, (KFold)o->fold, DT_f32, e->lanes);
        if (inside) x = emit_select(e, inside, x, none);
        acc[s] = emit_fold_join(e, (KFold)o->fold, DT_f32, acc[s], x);
    }
    row_exit(h, outer);
}

void band_make(const Band *b, const Held *h, uint32_t u, LLVMValueRef inside, LLVMValueRef *acc) {
    const Passes *rows = b->r.team.g->rows;
    Emit *e = b->r.team.g->e;
    band_add(b, h, u, inside, false, acc);
    EmitScope *outer = row_enter(h, u);
    for (uint32_t i = 0; i < rows->npasses; i++)
        for (uint32_t s = 0; rows->pass[i].axes && s < rows->pass[i].nstores; s++)
            (void)emit_value(e, e->k->ops[rows->pass[i].stores[s]].in[0]);
    row_exit(h, outer);
}

static LLVMValueRef place_of(const Band *b, KVal store) {
    Emit *e = b->r.team.g->e;
    return emit_address(e, e->k->ops[store].buf, e->k->ops[store].index);
}

static uint32_t room_of(const Band *b, KVal store) {
    uint32_t i = 0;
    while (b->result[i] != store) i++;
    return b->nown + i;
}

/* Into the turn's stage (results.c). */
static void gather(const BandTurns *t, uint32_t u, KVal store) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    LLVMValueRef x = emit_value_lanes(e, e->k->ops[store].in[0]);
    HV at = hop_pointer(e, band_turn_place(t, room_of(b, store), u));
    if (band_is_edge(b, u))
        band_store_started(b, u, store, at);
    else
        emit_store_ptr(e, x, at, band_vector_bytes(b, store));
}

void band_store(const Band *b, const BandTurns *t, const Held *h, uint32_t u, LLVMValueRef inside) {
    const Passes *rows = b->r.team.g->rows;
    Emit *e = b->r.team.g->e;
    EmitScope *outer = row_enter(h, u);
    const bool edge = band_is_edge(b, u), gathers = t && b->gathers;
    LLVMValueRef live = gathers && edge ? inside : band_both(e, inside, h->live[u]);
    EmitIf there;
    for (uint32_t i = 0; i < rows->npasses; i++) {
        const Pass *p = &rows->pass[i];
        if (!p->axes || !p->nstores) continue;
        if (live) emit_if_begin(e, &there, live);
        for (uint32_t s = 0; s < p->nstores; s++) {
            if (gathers)
                gather(t, u, p->stores[s]);
            else if (edge && b->starts)
                band_store_started(b, u, p->stores[s], place_of(b, p->stores[s]));
            else if (edge)
                band_store_edge(b, u, p->stores[s]);
            else
                emit_store(e, p->stores[s]);
        }
        if (live) emit_if_end(e, &there);
    }
    row_exit(h, outer);
}

void band_finish(const Band *b, const BandTurns *t, const Held *h, uint32_t u, LLVMValueRef inside,
                 LLVMValueRef *acc) {
    band_make(b, h, u, inside, acc);
    band_store(b, t, h, u, inside);
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

/* Where a block's warps meet, or its teams where they are larger: each leaves a row of every sum,
 * where rows came before. A lone team does so, too, of a row that blocks share: its threads would
 * store every other 16 bytes, as vectors of sums are twice as long, and do it where much is stored
 * (layernorm's gradient over 24,576 columns 103.9 us for 105.6, over 18,432 103.3 for 104.1). */
typedef struct Meeting {
    Band *b;
    uint32_t n, lanes;      /* rows of a sum; elements of a thread's vector */
    uint32_t unit;          /* elements of what positions in a row count */
    int64_t vectors, bytes; /* of a row or the block's part; of all rows of a sum */
} Meeting;

static Meeting meeting(Band *b) {
    const Emit *e = b->r.team.g->e;
    uint32_t side = b->r.team.size < 32 ? 32 / b->r.team.size : 1;
    Meeting m = {.b = b, .n = b->teams / side, .lanes = e->lanes};
    m.vectors = band_part(b);
    m.bytes = (int64_t)m.n * m.vectors * m.lanes * 4;
    m.unit = 1;
    return m;
}

/* Row `row` of sum s, from position `at` on. */
static LLVMValueRef meeting_at(const Meeting *m, uint32_t s, LLVMValueRef row, LLVMValueRef at) {
    Gpu *g = m->b->r.team.g;
    Emit *e = g->e;
    LLVMValueRef n = LLVMBuildMul(e->b, row, emit_i64(e, m->vectors * m->lanes / m->unit), "");
    HV p = hop_addi(e, hop_shared(g), s * m->bytes);
    p = hop_pointer(e, p);
    return emit_gep(e, emit_vec(e->f32, m->unit), p, LLVMBuildAdd(e->b, n, at, ""));
}

/* Teams of a warp have the same columns. */
static LLVMValueRef join_teams(const Band *b, uint32_t s, LLVMValueRef v) {
    Emit *e = b->r.team.g->e;
    KFold fold = (KFold)e->k->ops[b->sum[s]].fold;
    for (uint32_t off = b->r.team.size; off < 32; off *= 2)
        v = emit_fold_join(e, fold, DT_f32, v, gpu_shuffle(e, v, off));
    return v;
}

static void leave_sum(const Meeting *m, uint32_t s, const LLVMValueRef *acc) {
    const Band *b = m->b;
    Emit *e = b->r.team.g->e;
    const uint32_t side = b->r.team.size < 32 ? 32 / b->r.team.size : 1;
    const LLVMValueRef team = b->team ? b->team : emit_i64(e, 0);
    LLVMValueRef row = LLVMBuildUDiv(e->b, team, emit_i64(e, side), "");
    LLVMValueRef own = LLVMBuildURem(e->b, team, emit_i64(e, side), "");
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, own, emit_i64(e, 0), "");
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitIf there;
        const uint32_t lanes = row_piece_lanes(&b->r, u), parts = m->lanes / lanes;
        int64_t begin = (int64_t)u * b->r.team.size * parts;
        LLVMValueRef v = LLVMBuildAdd(e->b, b->r.team.rank, emit_i64(e, begin), ""), is = NULL;
        LLVMValueRef x = join_teams(b, s, acc[u * b->nsums + s]);
        if (side > 1) is = first;
        if (begin + b->r.team.size > m->vectors * parts) {
            const LLVMValueRef end = emit_i64(e, m->vectors * parts);
            LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, v, end, "");
            is = band_both(e, is, in);
        }
        if (is) emit_if_begin(e, &there, is);
        v = LLVMBuildMul(e->b, v, emit_i64(e, lanes / m->unit), "");
        emit_store_ptr(e, x, meeting_at(m, s, row, v), lanes < 4 ? 4 * lanes : BAND_PIECE);
        if (is) emit_if_end(e, &there);
    }
}

/* Every thread takes as many elements as one request has, of one row after the other. */
static void join_sum(const Meeting *m, uint32_t s) {
    Band *b = m->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    KFold fold = (KFold)g->k->ops[b->sum[s]].fold;
    LLVMValueRef all = NULL;
    const uint32_t lanes = e->lanes;
    e->lanes = BAND_PIECE / 4;
    const int64_t parts = m->lanes / e->lanes, n = m->vectors * parts;
    LLVMValueRef end = emit_i64(e, n);
    if (b->r.count) end = LLVMBuildMul(e->b, b->r.count, emit_i64(e, parts), "");
    *l = emit_loop(e, 0);
    emit_loop_begin(e, l, "vector", g->tid, end, emit_i64(e, b->threads), false);
    LLVMValueRef at = LLVMBuildMul(e->b, l->i, emit_i64(e, e->lanes / m->unit), "");
    for (uint32_t i = 0; i < m->n; i++) {
        LLVMValueRef p = meeting_at(m, s, emit_i64(e, i), at);
        LLVMValueRef x = emit_load(e, emit_vec(e->f32, e->lanes), p, BAND_PIECE);
        all = all ? emit_fold_join(e, fold, DT_f32, all, x) : x;
    }
    LLVMValueRef piece = l->i;
    if (b->r.first) {
        LLVMValueRef first = LLVMBuildMul(e->b, b->r.first, emit_i64(e, parts), "");
        piece = LLVMBuildAdd(e->b, first, piece, "");
    }
    row_bind(&b->r, b->r.axes, emit_new_sym(e, "piece", n * b->cluster - 1, piece));
    store_sum(b, s, all);
    emit_loop_end(e, l);
    e->lanes = lanes;
}

void band_meeting_init(Band *b) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf one;
    if (b->teams == 1 && !b->starts && (b->cluster == 1 || b->dealt)) return;
    b->meeting = LLVMBuildPtrToInt(e->b, gpu_shared(g, e->i64, 1), e->i32, "");
    emit_if_begin(e, &one, gpu_is_first(g));
    hop_barrier_init(e, b->meeting, b->threads);
    emit_if_end(e, &one);
}

/* All that compute, for the time number `times`. Teams at their own pace have met in their turns,
 * of which one has more than another: compute-sanitizer's racecheck loses what a barrier of the
 * block orders behind these, and knows what this one does. */
static void meet_all(const Band *b, uint32_t times) {
    Emit *e = b->r.team.g->e;
    if (!b->meeting) {
        gpu_barrier(e);
        return;
    }
    hop_barrier_arrive(e, b->meeting, LLVMConstInt(e->i1, 1, false));
    hop_barrier_wait(e, b->meeting, hop_i(e, times % 2));
}

/* All sums at once, if there is room for them. Teams of whole warps whose vectors are one request
 * (f32) would read as many requests by as many threads as one sum after the other does, and the
 * assembler's order of the loop over rows was worse: these take sums in turn, in whole vectors. */
static void join_sums(Band *b, const LLVMValueRef *acc) {
    Meeting m = meeting(b);
    const bool plain = m.n == b->teams && m.lanes * 4 == BAND_PIECE && !b->r.tail;
    const bool together = !plain && m.bytes * b->nsums <= b->bars;
    if (plain) m.unit = m.lanes;
    if (!together) m.bytes = 0;
    uint32_t times = 0;
    for (uint32_t s = 0; s < b->nsums; s += together ? b->nsums : 1) {
        const uint32_t end = together ? b->nsums : s + 1;
        meet_all(b, times++);
        for (uint32_t i = s; i < end; i++) leave_sum(&m, i, acc);
        meet_all(b, times++);
        for (uint32_t i = s; i < end; i++) join_sum(&m, i);
    }
}

void band_store_columns(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    Held h = {.r = &b->r};
    EmitIf there;
    if (b->teams > 1 || b->meeting) {
        if (b->starts)
            band_join_started(b, acc, meet_all, store_sum);
        else
            join_sums(b, acc);
        return;
    }
    row_place(&h);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = row_enter(&h, u);
        if (h.live[u]) emit_if_begin(e, &there, h.live[u]);
        for (uint32_t s = 0; s < b->nsums; s++) store_sum(b, s, acc[u * b->nsums + s]);
        if (h.live[u]) emit_if_end(e, &there);
        row_exit(&h, outer);
    }
}
