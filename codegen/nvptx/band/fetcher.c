/* Rows of a band that a warp of their own asks for: those of all teams of a block at once, as they
 * lie side by side. Blocks then count one turn for all of their teams, and keep pace where rows are
 * short, too; a turn of some 32 KB is large enough that the count is asked for rarely, and small
 * enough that memory, which gives some multiprocessors more than others, cannot give them much
 * more. Who computes waits for rows and for nothing else: neither for the count, nor for places
 * that a team has not left yet. */
#include "codegen/nvptx/band/band.h"

/* --- Rows of teams at their own pace ---------------------------------------------------------- */

/* Vector in which row `row` (i64) starts, where rows start at any element. */
static LLVMValueRef started_start(const Band *b, LLVMValueRef row) {
    Emit *e = b->r.team.g->e;
    LLVMValueRef at = LLVMBuildMul(e->b, row, emit_i64(e, b->columns), "");
    return LLVMBuildLShr(e->b, at, emit_i64(e, __builtin_ctz(b->unit)), "");
}

/* Whose rows room i of a stage is for. */
static KVal room_access(const Band *b, uint32_t i) {
    return i < b->nown ? b->own[i] : b->result[i - b->nown];
}

static uint32_t rooms_of(const Band *b) {
    return b->nown + (b->gathers ? b->nresults : 0);
}

/* Elements of room i, which has a turn's rows from the start of so many on. */
static int64_t started_grain(const Band *b, uint32_t i) {
    const int64_t piece = BAND_PIECE / band_element(b, room_access(b, i));
    return piece > b->unit ? piece : b->unit;
}

/* Element at which row `row` starts (i32): as far as vectors' starts are asked for. */
static HV started_at(const Band *b, LLVMValueRef row) {
    Emit *e = b->r.team.g->e;
    return hop_muli(e, LLVMBuildTrunc(e->b, row, e->i32, ""), b->columns);
}

/* Bytes in front of what room i has of the rows from `first` on (i32). */
static HV started_from(const Band *b, uint32_t i, LLVMValueRef first) {
    Emit *e = b->r.team.g->e;
    HV from = hop_andi(e, started_at(b, first), -started_grain(b, i));
    return hop_muli(e, from, band_element(b, room_access(b, i)));
}

/* Where these lie in the room at `at`: at the same place in a line as in memory. */
static HV in_line(Emit *e, HV from, HV at) {
    from = hop_andi(e, LLVMBuildSub(e->b, from, at, ""), BAND_LINE - BAND_PIECE);
    return hop_add(e, at, from);
}

/* Where the team's row of a turn lies in the turn's room at `at`. */
static HV started_place(const BandTurns *t, uint32_t i, HV at) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    LLVMValueRef row = t->row;
    if (t->side > 1) row = LLVMBuildAdd(e->b, row, t->own, "");
    LLVMValueRef first = b->team ? LLVMBuildSub(e->b, row, b->team, "") : row;
    HV from = started_from(b, i, first), to = hop_andi(e, started_at(b, row), -(int64_t)b->unit);
    to = hop_muli(e, to, band_element(b, room_access(b, i)));
    return hop_add(e, in_line(e, from, at), LLVMBuildSub(e->b, to, from, ""));
}

/* In the current scope the kernel's axes stand at this row: it is the block's, whatever the
 * number of blocks. */
void band_bind_row(const BandTurns *t, LLVMValueRef row) {
    Gpu *g = t->b->r.team.g;
    ExprPool *p = g->e->exprs;
    if (t->b->dealt) {
        band_bind_listed(t, row);
        return;
    }
    if (t->b->starts) emit_set_sym(g->e, t->b->lists.start, started_start(t->b, row));
    Expr blocks = g->k->axes[0].extent, r = emit_new_sym(g->e, "row", t->most - 1, row);
    emit_bind(g->e, g->k->axes[0].sym, expr_mod(p, r, blocks));
    emit_bind(g->e, g->k->axes[t->b->turn].sym, expr_div(p, r, blocks));
}

LLVMValueRef band_last_row(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    return LLVMBuildSub(e->b, emit_expr(e, t->rows), emit_i64(e, 1), "");
}

/* The asynchronous copies take 4 or 8 bytes. */
bool band_is_copied(const BandTurns *t, KVal v) {
    const Kernel *k = t->b->r.team.g->k;
    const KOp *o = &k->ops[v];
    size_t bytes = dtype_bytes(k->params[o->buf].dtype);
    return !o->mask && !o->in[0] && (bytes == 4 || bytes == 8);
}

int64_t band_part(const Band *b) {
    if (b->r.part) return b->r.part;
    return expr_value(b->r.team.g->e->exprs, row_vectors(&b->r, b->r.axes));
}

/* Bytes of a row, or of a block's part of it at most. */
static int64_t own_bytes(const Band *b, uint32_t i) {
    return band_part(b) * band_pieces(b, b->own[i]) * BAND_PIECE;
}

/* Of what may begin anywhere in a line. */
static int64_t line_room(int64_t bytes) {
    return (bytes + 2 * BAND_LINE - BAND_PIECE - 1) / BAND_LINE * BAND_LINE;
}

/* From a turn's row to the next: those that are dealt out begin anywhere each, others all together.
 */
static int64_t own_pitch(const Band *b, uint32_t i) {
    return b->dealt ? line_room(own_bytes(b, i)) : own_bytes(b, i);
}

/* Of so many rows in room i: those that start at any element have what lies in front of the first
 * in its 16 bytes, and vectors behind the last, whose elements are none of theirs. */
static int64_t rows_room(const Band *b, uint32_t i, uint32_t rows) {
    if (b->starts)
        return (b->columns * band_element(b, room_access(b, i)) * rows + 2 * BAND_LINE) /
               BAND_PIECE * BAND_PIECE;
    const int64_t bytes = own_pitch(b, i) * rows;
    return b->skewed && !b->dealt ? line_room(bytes) : bytes;
}

static int64_t all_room(const Band *b, uint32_t rows) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < rooms_of(b); i++) bytes += rows_room(b, i, rows);
    return bytes;
}

uint32_t band_turn_bytes(const Band *b, uint32_t teams) {
    return (uint32_t)all_room(b, teams * b->mates);
}

/* In a stage, which has the block's rows of a turn, or a warp's where teams ask for them. */
static int64_t stage_room(const BandTurns *t, uint32_t i) {
    return rows_room(t->b, i, t->held);
}

BandStage band_stage_at(const BandTurns *t, LLVMValueRef stage) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    HV n = stage, at = hop_shared(b->r.team.g);
    if (!b->fetched && t->groups > 1)
        n = hop_add(e, n, hop_muli(e, LLVMBuildTrunc(e->b, t->group, e->i32, ""), b->stages));
    HV bar = hop_add(e, at, hop_muli(e, n, HOP_BARRIER_BYTES));
    HV numbers = hop_add(e, at, hop_muli(e, n, (int64_t)b->nnumbers * t->held * BAND_NUMBER));
    uint32_t bars = b->stages * (b->fetched ? 2 : t->groups) * HOP_BARRIER_BYTES;
    return (BandStage){.rows = hop_add(e, at, hop_muli(e, n, all_room(b, t->held))),
                       .numbers = hop_addi(e, numbers, b->bars + bars),
                       .bar = hop_addi(e, bar, b->bars),
                       .left = hop_addi(e, bar, b->bars + b->stages * HOP_BARRIER_BYTES)};
}

/* Bytes in front of the block's part of row `row`, of which a vector has so many. */
static HV bytes_before(const BandTurns *t, LLVMValueRef row, int64_t vector) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const int64_t all = expr_value(e->exprs, row_vectors(&b->r, b->r.axes));
    const int64_t each = b->dealt ? vector / e->lanes * BAND_EVEN : all * vector;
    HV n = LLVMBuildTrunc(e->b, b->dealt ? band_listed_start(t, row) : row, e->i32, "");
    n = hop_muli(e, n, each);
    if (!b->r.first) return n;
    HV first = LLVMBuildTrunc(e->b, b->r.first, e->i32, "");
    return hop_add(e, n, hop_muli(e, first, vector));
}

/* Where own[i] of row `row`, the first of those that stand here, lies in the room that begins at
 * `at`: at the same place in a line as in memory, if its buffer begins with one. The copy engine
 * moves it faster then (layernorm's gradient over 50,257 columns, in CUDA: 93.4 us for 97.4, over
 * 8,200 101.1 for 105.4). Rooms are whole lines: it is as far from the start of each. */
static HV skewed(const BandTurns *t, LLVMValueRef row, HV at, uint32_t i) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    if (!b->skewed) return at;
    const int64_t vector = band_pieces(b, b->own[i]) * BAND_PIECE;
    HV from = LLVMBuildSub(e->b, bytes_before(t, row, vector), hop_shared(b->r.team.g), "");
    return hop_add(e, at, hop_andi(e, from, BAND_LINE - BAND_PIECE));
}

/* Who is past the end reads what is not used: the last vector, or, where its owner may write there
 * (edges.c), his own vector in front, or, if he has none, one in the middle. */
static HV inside_part(const Band *b, HV v, int64_t n, uint32_t parts, bool front) {
    Emit *e = b->r.team.g->e;
    HV count = hop_i(e, n);
    if (b->r.count) count = hop_muli(e, LLVMBuildTrunc(e->b, b->r.count, e->i32, ""), parts);
    HV last[2] = {v, hop_addi(e, count, -1)};
    if (!b->dealt) return emit_intrinsic(e, "llvm.umin", e->i32, last, 2);
    HV has = LLVMBuildICmp(e->b, LLVMIntULT, v, hop_i(e, n), "");
    HV own = front ? hop_addi(e, v, -(int64_t)b->r.team.size) : hop_i(e, n / 2);
    return LLVMBuildSelect(e->b, has, v, own, "");
}

/* Where the team's row of a turn, or the turn's row that stands here, lies in the room at `at`. */
static HV row_place_in(const BandTurns *t, uint32_t i, HV at) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    LLVMValueRef row = t->row;
    if (b->starts) return started_place(t, i, at);
    if (b->skewed && !b->dealt) {
        LLVMValueRef before = LLVMBuildMul(e->b, t->group, emit_i64(e, t->side), "");
        if (t->groups > 1) row = LLVMBuildSub(e->b, row, before, "");
        at = skewed(t, row, at, i);
    }
    if (t->place) {
        HV own = LLVMBuildTrunc(e->b, t->place, e->i32, "");
        at = hop_add(e, at, hop_muli(e, own, own_pitch(b, i)));
    }
    return b->dealt ? skewed(t, row, at, i) : at;
}

static HV room_at(const BandTurns *t, uint32_t i, HV rooms) {
    Emit *e = t->b->r.team.g->e;
    int64_t before = 0;
    for (uint32_t k = 0; k < i; k++) before += stage_room(t, k);
    return hop_addi(e, rooms, before);
}

/* Of the turn's rows from `row` on, which start anywhere: their first element in room i. */
static HV first_at(const BandTurns *t, uint32_t i, LLVMValueRef row, HV rooms) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    HV from = started_from(b, i, row), to = started_at(b, row);
    to = hop_muli(e, to, band_element(b, room_access(b, i)));
    return hop_add(e, in_line(e, from, room_at(t, i, rooms)), LLVMBuildSub(e->b, to, from, ""));
}

HV band_turn_place(const BandTurns *t, uint32_t i, uint32_t u) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const uint32_t parts = e->lanes / row_piece_lanes(&b->r, u); /* of a vector */
    const int64_t n = band_part(b) * parts, first = (int64_t)u * b->r.team.size * parts;
    const int64_t fewest = b->r.fewest ? b->r.fewest * parts : n;
    const uint32_t bytes = band_vector_bytes(b, room_access(b, i)) / parts;
    HV at = room_at(t, i, band_stage_at(t, t->stage).rows);
    HV v = hop_addi(e, LLVMBuildTrunc(e->b, b->r.team.rank, e->i32, ""), first);
    if (first + b->r.team.size > fewest) v = inside_part(b, v, n, parts, first > 0);
    at = row_place_in(t, i, at);
    return hop_add(e, at, hop_muli(e, v, bytes));
}

/* Number i of the row that stands here, to this shared address. */
void band_copy_number(const Band *b, uint32_t i, HV to) {
    Emit *e = b->r.team.g->e;
    const KOp *o = &e->k->ops[b->number[i]];
    HV a[2] = {to, LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "")};
    bool wide = dtype_bytes(e->k->params[o->buf].dtype) == 8;
    hop_asm(e, e->voidt,
            wide ? "cp.async.ca.shared.global [$0], [$1], 8;"
                 : "cp.async.ca.shared.global [$0], [$1], 4;",
            "r,l,~{memory}", a, 2);
}

/* The barrier is told when all that this thread has copied so is there. */
void band_copies_arrive(Emit *e, HV bar) {
    hop_asm(e, e->voidt, "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];", "r,~{memory}",
            &bar, 1);
}

/* --- The warp --------------------------------------------------------------------------------- */

void band_fetcher_init(const BandTurns *t) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf one;
    emit_if_begin(e, &one, gpu_is_first(g));
    for (uint32_t i = 0; i < b->stages; i++) {
        BandStage s = band_stage_at(t, hop_i(e, i));
        hop_barrier_init(e, s.bar, 1 + GPU_WARP * ((t->ncopied > 0) + (uint32_t)b->gathers));
        hop_barrier_init(e, s.left, b->threads);
    }
    hop_barrier_init_fence(e);
    hop_fence_async(e);
    emit_if_end(e, &one);
    gpu_barrier(e);
}

/* The numbers of row `row`, the stage's `own`th. */
static void fetch_number(const BandTurns *t, LLVMValueRef row, LLVMValueRef own, HV numbers) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    LLVMValueRef last[2] = {row, band_last_row(t)};
    emit_push(e);
    band_bind_row(t, b->dealt ? row : emit_intrinsic(e, "llvm.smin", e->i64, last, 2));
    HV at = hop_muli(e, LLVMBuildTrunc(e->b, own, e->i32, ""), BAND_NUMBER);
    at = hop_add(e, numbers, at);
    for (uint32_t i = 0; i < b->nnumbers; i++)
        if (band_is_copied(t, b->number[i]))
            band_copy_number(b, i, hop_addi(e, at, (int64_t)i * t->held * BAND_NUMBER));
    emit_pop(e);
}

/* Those of the rows from `row` on, by all of the warp. */
static void fetch_numbers(const BandTurns *t, LLVMValueRef row, LLVMValueRef lane,
                          const BandStage *s) {
    Emit *e = t->b->r.team.g->e;
    for (uint32_t first = 0; first < t->held; first += GPU_WARP) {
        EmitIf has;
        const bool some = first + GPU_WARP > t->held;
        LLVMValueRef own = LLVMBuildAdd(e->b, lane, emit_i64(e, first), "");
        LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntSLT, own, emit_i64(e, t->held), "");
        if (some) emit_if_begin(e, &has, is);
        fetch_number(t, LLVMBuildAdd(e->b, row, own, ""), own, s->numbers);
        if (some) emit_if_end(e, &has);
    }
    band_copies_arrive(e, s->bar);
}

/* Bytes of own[i]'s n rows from here on. Where rows have edges the last row's last vectors lie
 * behind the buffer, as far as they are none of its own. */
static HV bytes_of(const Band *b, uint32_t i, HV n) {
    Emit *e = b->r.team.g->e;
    if (b->r.count) /* there is one row in a turn of blocks that share it */
        return hop_muli(e, LLVMBuildTrunc(e->b, b->r.count, e->i32, ""),
                        band_pieces(b, b->own[i]) * BAND_PIECE);
    HV all = hop_muli(e, n, own_bytes(b, i));
    if (!b->inside) return all;
    const KOp *o = &e->k->ops[b->own[i]];
    const int64_t each = (int64_t)dtype_bytes(e->k->params[o->buf].dtype);
    LLVMValueRef left = emit_expr(e, e->k->params[o->buf].numel);
    left = LLVMBuildSub(e->b, left, emit_expr(e, o->index), "");
    left = LLVMBuildMul(e->b, left, emit_i64(e, each), "");
    LLVMValueRef w[2] = {left, LLVMBuildZExt(e->b, all, e->i64, "")};
    return LLVMBuildTrunc(e->b, emit_intrinsic(e, "llvm.smin", e->i64, w, 2), e->i32, "");
}

/* The rows from `row` on, one for each of the turn, by one thread: they need not be neighbours. */
static void fetch_mates(const BandTurns *t, LLVMValueRef row, const BandStage *s) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    HV all = hop_i(e, 0), from[BAND_MATES][BAND_OWN], bytes[BAND_MATES][BAND_OWN];
    for (uint32_t r = 0; r < b->mates; r++) {
        emit_push(e);
        band_bind_row(t, LLVMBuildAdd(e->b, row, emit_i64(e, r), ""));
        emit_set_sym(e, g->k->axes[b->r.lane].sym,
                     LLVMBuildMul(e->b, b->r.first, emit_i64(e, e->lanes), ""));
        for (uint32_t i = 0; i < b->nown; i++) {
            const KOp *o = &e->k->ops[b->own[i]];
            bytes[r][i] = bytes_of(b, i, hop_i(e, 1));
            from[r][i] = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
            all = hop_add(e, all, bytes[r][i]);
        }
        emit_pop(e);
    }
    hop_barrier_expect(e, s->bar, all);
    for (uint32_t r = 0; r < b->mates; r++) {
        HV to = s->rows;
        for (uint32_t i = 0; i < b->nown; i++) {
            HV own = hop_addi(e, to, own_pitch(b, i) * r);
            own = skewed(t, LLVMBuildAdd(e->b, row, emit_i64(e, r), ""), own, i);
            hop_bulk_load(e, own, from[r][i], bytes[r][i], s->bar);
            to = hop_addi(e, to, stage_room(t, i));
        }
    }
}

/* Of so many bytes of own[i], the last ones of all rows, what is behind the last whole piece goes
 * element by element: what lies behind it is no one's. */
static void fetch_rest(const BandTurns *t, uint32_t i, HV to, HV from, HV bytes) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const uint32_t each = band_element(b, b->own[i]);
    LLVMTypeRef type = LLVMIntTypeInContext(e->ctx, 8 * each);
    HV whole = hop_andi(e, bytes, -BAND_PIECE);
    LLVMValueRef ahead = LLVMBuildZExt(e->b, whole, e->i64, "");
    LLVMValueRef p = LLVMBuildIntToPtr(e->b, LLVMBuildAdd(e->b, from, ahead, ""), e->ptr, "");
    for (uint32_t at = 0; at + each < BAND_PIECE; at += each) {
        EmitIf has;
        HV end = hop_addi(e, whole, at);
        emit_if_begin(e, &has, LLVMBuildICmp(e->b, LLVMIntULT, end, bytes, ""));
        LLVMValueRef x = emit_load(e, type, emit_gep(e, e->i8, p, emit_i64(e, at)), each);
        LLVMSetVolatile(LLVMBuildStore(e->b, x, hop_pointer(e, hop_add(e, to, end))), true);
        emit_if_end(e, &has);
    }
}

/* As fetch_rows, of rows that start at any element: n of them. */
static void fetch_started(const BandTurns *t, LLVMValueRef row, HV n, const BandStage *s) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    HV at = s->rows, all = hop_i(e, 0), from[BAND_OWN], bytes[BAND_OWN], to[BAND_OWN];
    LLVMValueRef end = LLVMBuildAdd(e->b, row, LLVMBuildZExt(e->b, n, e->i64, ""), "");
    LLVMValueRef last = LLVMBuildICmp(e->b, LLVMIntSGE, end, emit_expr(e, t->rows), "");
    for (uint32_t i = 0; i < b->nown; i++) {
        EmitIf is;
        const KOp *o = &e->k->ops[b->own[i]];
        const int64_t each = band_element(b, b->own[i]), grain = started_grain(b, i);
        const bool rest = expr_divisor(e->exprs, t->rows) * b->columns * each % BAND_PIECE;
        from[i] = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
        from[i] = LLVMBuildAnd(e->b, from[i], emit_i64(e, -BAND_PIECE), "");
        to[i] = in_line(e, started_from(b, i, row), at);
        HV front = hop_andi(e, started_at(b, row), grain - 1);
        HV count = hop_muli(e, hop_add(e, front, hop_muli(e, n, b->columns)), each);
        bytes[i] = hop_andi(e, hop_addi(e, count, BAND_PIECE - 1), -BAND_PIECE);
        if (rest) {
            emit_if_begin(e, &is, last);
            fetch_rest(t, i, to[i], from[i], count);
            emit_if_end(e, &is);
            HV whole = hop_andi(e, count, -BAND_PIECE);
            bytes[i] = LLVMBuildSelect(e->b, last, whole, bytes[i], "");
        }
        all = hop_add(e, all, bytes[i]);
        at = hop_addi(e, at, stage_room(t, i));
    }
    hop_barrier_expect(e, s->bar, all);
    for (uint32_t i = 0; i < b->nown; i++) hop_bulk_load(e, to[i], from[i], bytes[i], s->bar);
}

/* The rows from `row` on, as many as there are, by one thread. */
static void fetch_rows(const BandTurns *t, LLVMValueRef row, const BandStage *s) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    LLVMValueRef left = LLVMBuildSub(e->b, emit_expr(e, t->rows), row, "");
    LLVMValueRef v[2] = {left, emit_i64(e, t->held)}, first = emit_i64(e, 0);
    HV to = s->rows, n = hop_i(e, 1);
    if (t->held > 1)
        n = LLVMBuildTrunc(e->b, emit_intrinsic(e, "llvm.smin", e->i64, v, 2), e->i32, "");
    if (b->r.first) first = LLVMBuildMul(e->b, b->r.first, emit_i64(e, e->lanes), "");
    emit_push(e);
    band_bind_row(t, row);
    emit_set_sym(e, g->k->axes[b->r.lane].sym, first);
    if (b->starts) {
        fetch_started(t, row, n, s);
        emit_pop(e);
        return;
    }
    HV all = hop_i(e, 0), bytes[BAND_OWN];
    for (uint32_t i = 0; i < b->nown; i++) {
        bytes[i] = bytes_of(b, i, n);
        all = hop_add(e, all, bytes[i]);
    }
    hop_barrier_expect(e, s->bar, all);
    for (uint32_t i = 0; i < b->nown; i++) {
        const KOp *o = &e->k->ops[b->own[i]];
        HV from = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
        hop_bulk_load(e, skewed(t, row, to, i), from, bytes[i], s->bar);
        to = hop_addi(e, to, stage_room(t, i));
    }
    emit_pop(e);
}

/* Rows from a turn to the next. */
static LLVMValueRef step_of(const BandTurns *t) {
    const Gpu *g = t->b->r.team.g;
    Emit *e = g->e;
    if (t->b->dealt) return t->step;
    return LLVMBuildMul(e->b, emit_expr(e, g->k->axes[0].extent), emit_i64(e, t->held), "");
}

static LLVMValueRef lane_of(const BandTurns *t) {
    Emit *e = t->b->r.team.g->e;
    return LLVMBuildSub(e->b, t->b->r.team.g->tid, emit_i64(e, t->b->threads), "");
}

/* Stage, round and number of the turn behind. */
static void next_turn(const Band *b, LLVMValueRef *const x, LLVMValueRef *to) {
    Emit *e = b->r.team.g->e;
    HV next = hop_addi(e, x[0], 1), wraps = hop_is(e, next, b->stages);
    to[0] = LLVMBuildSelect(e->b, wraps, hop_i(e, 0), next, "");
    to[1] = LLVMBuildXor(e->b, x[1], LLVMBuildZExt(e->b, wraps, e->i32, ""), "");
    to[2] = hop_addi(e, x[2], 1);
}

/* The turn that had the stage of turn number `turn` before, if there was one, has left it. */
static void end_turn(const BandTurns *t, LLVMValueRef row, HV turn, HV round, const BandStage *s) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    EmitIf full;
    emit_if_begin(e, &full, LLVMBuildICmp(e->b, LLVMIntSGE, turn, hop_i(e, b->stages), ""));
    hop_barrier_wait(e, s->left, LLVMBuildXor(e->b, round, hop_i(e, 1), ""));
    LLVMValueRef ahead = LLVMBuildMul(e->b, step_of(t), emit_i64(e, b->stages), "");
    row = LLVMBuildSub(e->b, row, ahead, "");
    for (uint32_t j = 0; j < b->nresults && b->gathers; j++)
        band_results_send(t, j, row, lane_of(t), first_at(t, b->nown + j, row, s->rows));
    emit_if_end(e, &full);
}

/* A turn, number `turn`: when its place is left and all blocks have come so far. */
static void fetch_turn(const BandTurns *t, LLVMValueRef row, HV turn, HV round,
                       const BandStage *s) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf one;
    LLVMValueRef lane = lane_of(t);
    end_turn(t, row, turn, round, s);
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntEQ, lane, emit_i64(e, 0), ""));
    band_pace_turn(&t->pace, turn);
    if (b->dealt)
        fetch_mates(t, row, s);
    else
        fetch_rows(t, row, s);
    emit_if_end(e, &one);
    hop_warp_sync(e);
    if (t->ncopied) fetch_numbers(t, row, lane, s);
    if (b->gathers) band_results_read(t, lane, s->bar);
}

/* What is left in the stages when all turns have been asked for. state: stage, round, turn. */
static void send_last(const BandTurns *t, LLVMValueRef row, LLVMValueRef step,
                      LLVMValueRef *const state) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1);
    *l = emit_loop(e, 4);
    for (uint32_t i = 0; i < 3; i++) l->init[i] = state[i];
    l->init[3] = row;
    emit_loop_begin(e, l, "left", zero, emit_i64(e, b->stages), one, false);
    next_turn(b, l->phi, l->next);
    l->next[3] = LLVMBuildAdd(e->b, l->phi[3], step, "");
    BandStage s = band_stage_at(t, l->phi[0]);
    end_turn(t, l->phi[3], l->phi[2], l->phi[1], &s);
    emit_loop_end(e, l);
    band_results_read(t, lane_of(t), t->sent);
}

void band_fetcher(const BandTurns *t) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    EmitIf one;
    LLVMValueRef first = LLVMBuildMul(e->b, b->owner, emit_i64(e, t->held), "");
    LLVMValueRef end = emit_expr(e, t->rows), step = step_of(t);
    if (b->dealt) first = t->first, end = t->end;
    *l = emit_loop(e, 3);
    for (uint32_t i = 0; i < 3; i++) l->init[i] = hop_i(e, 0);
    emit_loop_begin(e, l, "turn", first, end, step, false);
    HV stage = l->phi[0], round = l->phi[1], turn = l->phi[2];
    next_turn(b, l->phi, l->next);
    BandStage s = band_stage_at(t, stage);
    fetch_turn(t, l->i, turn, round, &s);
    emit_loop_end(e, l);
    LLVMValueRef leads = LLVMBuildICmp(e->b, LLVMIntEQ, g->tid, emit_i64(e, b->threads), "");
    emit_if_begin(e, &one, leads);
    band_pace_end(&t->pace, l->out[2]);
    emit_if_end(e, &one);
    if (!b->gathers) return;
    LLVMValueRef turns = LLVMBuildZExt(e->b, l->out[2], e->i64, "");
    LLVMValueRef row = LLVMBuildAdd(e->b, first, LLVMBuildMul(e->b, turns, step, ""), "");
    send_last(t, row, step, l->out);
}
