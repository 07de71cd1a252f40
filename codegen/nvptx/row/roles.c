/* Long rows of known length that blocks, or pairs of them that share each row, take in turns, and
 * whose warps have roles: one asks the copy engine for chunk after chunk, some fold them as they
 * come, one joins what all have folded, others finish the row behind those that the first ones are
 * at, and one has the copy engine take away what they leave in the place of what they read. No
 * thread of a block waits for all others, and memory never waits for any. What all rows read alike
 * is read once: a block keeps its part of it in shared memory. All rows of a block then
 * have to start at the same remainder of a vector. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/roles.h"

enum {
    FOLDERS = 8,
    FINISHERS = 8,
    STEPS = 2,      /* vectors of a folder's thread in a chunk, of all that is kept */
    AHEAD = 4,      /* rows of which chunks may be in shared memory */
    MOST_EDGES = 4, /* single elements of a thread */
    TOGETHER = 2,   /* vectors of what all rows read alike that a thread puts in place at once */
};

/* --- What shape a kernel has ------------------------------------------------------------------ */

/* One walk that folds numbers that blocks can send each other, one that stores; between them and
 * behind, what walks nothing. */
static bool has_walks(const Long *l) {
    const Gpu *g = l->r->team.g;
    const Passes *rows = g->rows;
    uint32_t n = 0;
    for (uint32_t i = 0; i < rows->npasses; i++) {
        const Pass *p = &rows->pass[i];
        for (uint32_t f = 0; f < p->nfolds; f++)
            if (gpu_fold_width(g, p->folds[f]) != 1 || gpu_fold_type(g, p->folds[f]) != DT_f32)
                return false;
        if (i < l->first ? !p->axes || p->nstores : p->nfolds > 0) return false;
        n += i >= l->first && p->axes;
    }
    return n == 1;
}

static const Pass *last_walk(const Passes *rows) {
    const Pass *p = &rows->pass[rows->npasses - 1];
    while (!p->axes) p--;
    return p;
}

/* Rows that are so many apart start at the same remainder of a vector: a multiple of that many. */
static uint32_t row_period(const Long *l) {
    const Gpu *g = l->r->team.g;
    Expr coef, rest;
    uint32_t par = g->rows->par;
    if (!l->offset || !l->nfixed) return 1;
    if (par & (par - 1)) return 0;
    if (!expr_affine(g->e->exprs, l->offset, g->k->axes[__builtin_ctz(par)].sym, &coef, &rest))
        return 0;
    int64_t step = expr_divisor(g->e->exprs, coef), n = g->e->lanes;
    while (n > 1 && step % 2 == 0) n /= 2, step /= 2;
    return (uint32_t)n;
}

/* The row's single elements, so many for each thread of the warp that joins: those behind the last
 * vector may be a vector more. */
static uint32_t edges_of(const Long *l) {
    return l->offset ? (l->line + 2 * l->r->team.g->e->lanes + GPU_WARP - 1) / GPU_WARP : 0;
}

/* Vectors by which what all rows read alike may lie further on under one row than under another. */
static uint32_t most_shift(const Long *l) {
    return l->offset ? l->line / l->r->team.g->e->lanes - 1 : 0;
}

/* Loads that all rows share and only the last walk needs; false: something else is left to load. */
static bool find_fixed(Long *l, const Pass *last) {
    const Gpu *g = l->r->team.g;
    uint32_t kept = 0;
    l->nfixed = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        if (g->k->ops[v].op != K_kload || !g->rows->need[v]) continue;
        if (!(g->rows->dom[v] >> l->axis & 1)) continue;
        if (row_is_load(l, v)) {
            for (uint32_t i = 0; i < l->nkept; i++) kept += l->kept[i] == v;
            continue;
        }
        if (!row_is_across(l, v) || l->nfixed == ROW_MOST_FIXED || !last->cone[v]) return false;
        for (uint32_t i = 0; i < l->first; i++)
            if (g->rows->pass[i].cone[v]) return false;
        l->fixed[l->nfixed++] = v;
    }
    return kept == l->nkept;
}

/* --- Shared memory -----------------------------------------------------------------------------
 */

static uint32_t vector_bytes(const Long *l, const KVal *v, uint32_t n) {
    const Gpu *g = l->r->team.g;
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) bytes += row_bytes(g, v[i]) * g->e->lanes;
    return bytes;
}

/* Warps that ask for chunks, that join folds, and that take results away. */
enum { FETCHER = FOLDERS + FINISHERS, JOINER, STORER };

static uint32_t values_of(const Long *l) {
    return l->r->team.g->rows->pass[0].nfolds + (l->lead ? 1 : 0) + (l->mean ? 1 : 0);
}

/* Warps that fold a row. */
static uint32_t parts_of(const Long *l) {
    return l->cluster * l->folders;
}

/* What slots take, their barriers, and that of what all rows read alike. */
static uint32_t slots_bytes(const Long *l) {
    const uint32_t values = values_of(l) * (parts_of(l) + 1) * 4;
    return ROLE_SLOTS * (3 * HOP_BARRIER_BYTES + 4 + values) + HOP_BARRIER_BYTES;
}

/* Vectors of the block's part of what all rows read alike, and a piece more. */
static int64_t fixed_room(const Long *l) {
    return l->room + most_shift(l) + 1;
}

/* Teams read what all rows read alike as if each of their threads had as many vectors as the first:
 * the byte behind what the last one reads. */
static uint32_t fixed_end(const Long *l) {
    if (!l->teams || !l->nfixed) return 0;
    const int64_t team = (int64_t)l->folders * GPU_WARP, held = (l->room + team - 1) / team;
    const uint32_t bytes = vector_bytes(l, &l->fixed[l->nfixed - 1], 1);
    return l->fixed_at[l->nfixed - 1] + (uint32_t)(held * team + most_shift(l)) * bytes;
}

/* The ring takes what is left beside the rest: as many chunks as there is room for, or as rows need
 * whose folds have a slot. Two rows at least where a pair of blocks would have room for more: one
 * comes while the other is finished (layernorm over 33,335 columns, 1.2 rows: 100.4 us, by all
 * threads 94.6). Rows of whole vectors, which all threads finish sooner, take more (65,536 columns,
 * 1.4 rows: 89.7 us, by all threads 82.1; 50,304, 2.3 rows: 58.4 and 64.0). */
bool role_place(Long *l, uint32_t least) {
    const Gpu *g = l->r->team.g;
    uint32_t each = vector_bytes(l, l->kept, l->nkept) * l->chunk + 3 * HOP_BARRIER_BYTES;
    int64_t fixed = vector_bytes(l, l->fixed, l->nfixed) * fixed_room(l), chunks = row_chunks(l);
    int64_t room = (int64_t)g->m->shared - ROW_RESERVED - slots_bytes(l) - fixed;
    int64_t most = l->threads, ring = room < 0 ? 0 : room / each;
    if (ring > AHEAD * chunks) ring = AHEAD * chunks;
    if (ring > most) ring = most;
    if (ring * 10 < chunks * least) return false;
    l->ring = (uint32_t)ring;
    row_place_kept(l, ring * l->chunk);
    for (uint32_t i = 0; i < l->nfixed; i++) {
        l->fixed_at[i] = l->shared;
        l->shared += vector_bytes(l, &l->fixed[i], 1) * (uint32_t)fixed_room(l);
    }
    l->bars = l->shared;
    l->left = l->bars + l->ring * HOP_BARRIER_BYTES;
    l->made = l->left + l->ring * HOP_BARRIER_BYTES;
    l->shared = l->made + l->ring * HOP_BARRIER_BYTES + slots_bytes(l);
    const uint32_t end = fixed_end(l);
    if (l->shared < end) l->shared = end;
    return l->shared + ROW_RESERVED <= g->m->shared;
}

/* Folders may be AHEAD rows and two more in front of a block's finishers; those of the other block
 * may be as many in front of its own, which are at most one row behind the folders here. A slot is
 * taken again when nobody needs what it had. */
bool role_shape(Long *t, uint32_t cluster) {
    Gpu *g = t->r->team.g;
    int64_t length;
    if (!expr_is_const(g->e->exprs, t->length, &length) || !row_can_copy(t)) return false;
    t->lead = t->under = t->mean = 0;
    row_find_under(t, true);
    if (!has_walks(t) || !find_fixed(t, last_walk(g->rows)) || !row_period(t)) return false;
    t->cluster = cluster;
    t->turns = true, t->blocks = 1, t->all_kept = true;
    return true;
}

/* Vectors of a block's part of the row, whose length is known. */
void role_room(Long *t) {
    int64_t length = 0;
    (void)expr_is_const(t->r->team.g->e->exprs, t->length, &length);
    t->room = row_room(t, length);
}

bool row_roles(Long *l, uint32_t cluster) {
    Gpu *g = l->r->team.g;
    Long t = *l;
    if (!role_shape(&t, cluster)) return false;
    if (edges_of(&t) > MOST_EDGES) t.line = g->e->lanes;
    t.folders = FOLDERS;
    t.back = row_can_store(&t, last_walk(g->rows));
    t.threads = (t.back ? STORER + 1 : STORER) * GPU_WARP;
    role_room(&t);
    t.steps = STEPS;
    while (t.steps > 1 && t.steps * vector_bytes(&t, t.kept, t.nkept) > STEPS * 16) t.steps /= 2;
    t.chunk = t.steps * FOLDERS * GPU_WARP;
    if (!role_place(&t, cluster == 1 ? 20 : 12)) return false;
    *l = t;
    return true;
}

/* --- A role ------------------------------------------------------------------------------------
 */

/* Number of the block, or of those that share rows, and of the first row that they take. */
static LLVMValueRef first_of(const Roles *x) {
    Gpu *g = x->l->r->team.g;
    if (x->l->cluster == 1) return g->block[0];
    return LLVMBuildUDiv(g->e->b, g->block[0], emit_i64(g->e, x->l->cluster), "");
}

void role_turns_begin(const Roles *x, Turn *t, LLVMValueRef rank, uint32_t n) {
    Gpu *g = x->l->r->team.g;
    Emit *e = g->e;
    LLVMValueRef at = first_of(x), all = emit_expr(e, x->rows);
    t->role = *x->l->r;
    t->role.team.size = n * GPU_WARP;
    t->role.team.rank = rank;
    t->row = *x->l;
    t->row.r = &t->role;
    if (n > 1) t->row.steps = x->l->chunk / t->role.team.size;
    t->loop = emit_loop(e, 3);
    for (uint32_t i = 0; i < 3; i++) t->loop.init[i] = hop_i(e, 0);
    emit_loop_begin(e, &t->loop, "turn", at, all, emit_i64(e, 1), true);
    gpu_decode(e, g->k, g->rows->par, emit_new_sym(e, "row", INT32_MAX, t->loop.i));
    t->row.place = t->loop.phi[1], t->row.phase = t->loop.phi[2];
    row_measure(&t->row);
    t->slot = hop_andi(e, t->loop.phi[0], ROLE_SLOTS - 1);
    t->phase = hop_andi(e, hop_shr(e, t->loop.phi[0], __builtin_ctz(ROLE_SLOTS)), 1);
}

/* The same by n warps from number `first` on. */
static void turns_begin(const Roles *x, Turn *t, uint32_t first, uint32_t n) {
    const Gpu *g = x->l->r->team.g;
    LLVMValueRef from = emit_i64(g->e, (int64_t)first * GPU_WARP);
    role_turns_begin(x, t, LLVMBuildSub(g->e->b, g->tid, from, ""), n);
}

HV role_shared(const Roles *x, uint32_t at) {
    Gpu *g = x->l->r->team.g;
    return hop_addi(g->e, hop_shared(g), at);
}

static HV slot_barrier(const Roles *x, uint32_t bars, const Turn *t) {
    Emit *e = x->l->r->team.g->e;
    return hop_add(e, role_shared(x, bars), hop_muli(e, t->slot, HOP_BARRIER_BYTES));
}

/* Where the row behind is. */
static HV next_at(const Roles *x, const Turn *t) {
    Emit *e = x->l->r->team.g->e;
    return hop_add(e, role_shared(x, x->next), hop_muli(e, t->slot, 4));
}

/* The row behind is the one that who fetches has asked for. */
void role_turns_end(const Roles *x, Turn *t) {
    Emit *e = x->l->r->team.g->e;
    hop_barrier_wait(e, slot_barrier(x, x->next_comes, t), t->phase);
    LLVMValueRef next = LLVMBuildLoad2(e->b, e->i32, hop_pointer(e, next_at(x, t)), "");
    LLVMSetVolatile(next, true);
    t->loop.step = LLVMBuildSub(e->b, LLVMBuildZExt(e->b, next, e->i64, ""), t->loop.i, "");
    t->loop.next[0] = hop_addi(e, t->loop.phi[0], 1);
    for (uint32_t i = 1; i < 3; i++) t->loop.next[i] = t->loop.phi[i];
    row_chunks_behind(&t->row, &t->loop.next[1], &t->loop.next[2]);
    emit_loop_end(e, &t->loop);
}

/* Address of value number i of the slot's: what warp `warp` of all blocks' folders has of it, or
 * NULL: the result. */
static HV value_at(const Roles *x, const Turn *t, uint32_t i, HV warp) {
    Emit *e = x->l->r->team.g->e;
    HV n = hop_addi(e, hop_muli(e, t->slot, x->values), i);
    if (!warp) return hop_add(e, role_shared(x, x->results), hop_muli(e, n, 4));
    n = hop_add(e, hop_muli(e, n, parts_of(x->l)), warp);
    return hop_add(e, role_shared(x, x->parts), hop_muli(e, n, 4));
}

/* Nothing that this thread does writes it. */
static LLVMValueRef read_value(Emit *e, HV at) {
    LLVMValueRef v = LLVMBuildLoad2(e->b, e->f32, hop_pointer(e, at), "");
    LLVMSetVolatile(v, true);
    return v;
}

static HV lane_of(const Roles *x) {
    Gpu *g = x->l->r->team.g;
    return hop_andi(g->e, LLVMBuildTrunc(g->e->b, g->tid, g->e->i32, ""), GPU_WARP - 1);
}

/* Where the warp is one of n from number `first` on. */
LLVMValueRef role_is(const Roles *x, uint32_t first, uint32_t n) {
    Emit *e = x->l->r->team.g->e;
    return LLVMBuildICmp(e->b, LLVMIntULT, hop_addi(e, x->warp, -(int64_t)first), hop_i(e, n), "");
}

/* --- Who fetches, takes away, folds
 * -------------------------------------------------------------------- */

/* One of the blocks that share rows asks for their next one, of rows of the same remainder: how
 * many of these were asked for before. The count starts again behind the last of them. The others,
 * which get no answer that they need, count elsewhere. */
static HV claim(const Roles *x) {
    const Long *l = x->l;
    Emit *e = l->r->team.g->e;
    const int64_t period = row_period(l);
    LLVMValueRef own = LLVMBuildAnd(e->b, first_of(x), emit_i64(e, period - 1), "");
    LLVMValueRef left = LLVMBuildSub(e->b, emit_expr(e, x->rows), own, "");
    left = LLVMBuildAdd(e->b, left, emit_i64(e, period - 1), "");
    left = LLVMBuildLShr(e->b, left, emit_i64(e, __builtin_ctzll((uint64_t)period)), "");
    HV last = hop_addi(e, LLVMBuildTrunc(e->b, left, e->i32, ""), -1);
    if (l->cluster > 1) {
        LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntEQ, l->r->team.block, emit_i64(e, 0), "");
        own = LLVMBuildSelect(e->b, is, own, emit_i64(e, period), "");
        last = LLVMBuildSelect(e->b, is, last, hop_i(e, 0), "");
    }
    return gpu_count_to(e, emit_gep(e, e->i32, x->counter, own), last);
}

/* The row goes to all blocks that share it, this one among them. */
static void give(const Roles *x, const Turn *t) {
    const Long *l = x->l;
    Emit *e = l->r->team.g->e;
    const int64_t period = row_period(l);
    EmitIf leads;
    LLVMValueRef own = LLVMBuildAnd(e->b, first_of(x), emit_i64(e, period - 1), "");
    LLVMValueRef all = LLVMBuildAdd(e->b, emit_expr(e, x->groups), emit_i64(e, period - 1), "");
    all = LLVMBuildAdd(e->b, LLVMBuildAnd(e->b, all, emit_i64(e, -period), ""), own, "");
    HV next = hop_add(e, LLVMBuildTrunc(e->b, all, e->i32, ""), hop_muli(e, t->claimed, period));
    HV bar = slot_barrier(x, x->next_comes, t);
    if (l->cluster == 1) {
        LLVMBuildStore(e->b, next, hop_pointer(e, next_at(x, t)));
        hop_barrier_arrive(e, bar, LLVMConstInt(e->i1, 1, false));
        return;
    }
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntEQ, l->r->team.block, emit_i64(e, 0), "");
    emit_if_begin(e, &leads, is);
    next = LLVMBuildBitCast(e->b, next, e->f32, "");
    for (uint32_t i = 0; i < l->cluster; i++)
        hop_cluster_send(e, next_at(x, t), bar, hop_i(e, i), next);
    emit_if_end(e, &leads);
    hop_barrier_expect(e, bar, hop_i(e, 4));
}

void role_fetch(const Roles *x, uint32_t warp) {
    Emit *e = x->l->r->team.g->e;
    EmitIf one;
    Turn t;
    LLVMValueRef is = role_is(x, warp, 1);
    is = LLVMBuildAnd(e->b, is, hop_is(e, lane_of(x), 0), "");
    emit_if_begin(e, &one, is);
    turns_begin(x, &t, warp, 1);
    t.claimed = claim(x);
    row_copy_to_left(&t.row);
    give(x, &t);
    role_turns_end(x, &t);
    emit_if_end(e, &one);
}

static void take_away(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    EmitIf one;
    Turn t;
    if (!x->l->back) return;
    LLVMValueRef is = LLVMBuildAnd(e->b, role_is(x, STORER, 1), hop_is(e, lane_of(x), 0), "");
    emit_if_begin(e, &one, is);
    turns_begin(x, &t, STORER, 1);
    row_copy_back(&t.row, x->last, hop_is(e, t.loop.phi[0], 0));
    role_turns_end(x, &t);
    hop_tma_wait(e);
    emit_if_end(e, &one);
}

/* Where the warp's part of value i goes: blocks number theirs one behind the other. */
static HV part_at(const Roles *x, const Turn *t, uint32_t i) {
    Emit *e = x->l->r->team.g->e;
    HV warp = hop_shr(e, LLVMBuildTrunc(e->b, t->role.team.rank, e->i32, ""), 5);
    if (x->l->cluster > 1) {
        HV block = LLVMBuildTrunc(e->b, x->l->r->team.block, e->i32, "");
        warp = hop_add(e, warp, hop_muli(e, block, x->l->folders));
    }
    return value_at(x, t, i, warp);
}

/* What the warp has folded goes to the blocks that share the row, this one among them, where the
 * warp arrives besides: who finishes writes over what it has read. */
void role_send(const Roles *x, const Turn *t, const LLVMValueRef *v) {
    Emit *e = x->l->r->team.g->e;
    EmitIf some;
    HV lane = lane_of(x), bar = slot_barrier(x, x->parts_come, t);
    hop_warp_sync(e);
    emit_if_begin(e, &some, LLVMBuildICmp(e->b, LLVMIntULT, lane, hop_i(e, x->l->cluster), ""));
    for (uint32_t i = 0; i < x->values; i++)
        if (x->l->cluster > 1)
            hop_cluster_send(e, part_at(x, t, i), bar, lane, v[i]);
        else
            LLVMBuildStore(e->b, v[i], hop_pointer(e, part_at(x, t, i)));
    hop_barrier_arrive(e, bar, hop_is(e, lane, 0));
    emit_if_end(e, &some);
}

static void fold(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    EmitIf mine;
    Turn t;
    emit_if_begin(e, &mine, role_is(x, 0, FOLDERS));
    turns_begin(x, &t, 0, FOLDERS);
    Folds f = row_folds_begin(&t.row, x->first, e->lanes);
    row_walk(&t.row, &f, KEEP_wait, emit_i64(e, 0), t.row.count);
    row_fold_own_lanes(&t.row, &f);
    const Team team = row_team_under(&t.row, x->first);
    gpu_team_lanes(&team, x->first, f.acc);
    role_send(x, &t, f.acc);
    role_turns_end(x, &t);
    emit_if_end(e, &mine);
}

/* --- What all rows read alike
 * -------------------------------------------------------------------- */

/* What all rows read alike, as it lies under rows of this remainder that start with a vector, and
 * the block's part of it: in a scope of its own. */
static void fixed_row(const Roles *x, Long *row) {
    Gpu *g = x->l->r->team.g;
    Emit *e = g->e;
    *row = *x->l;
    row->line = e->lanes, row->cluster = 1;
    emit_push(e);
    gpu_decode(e, g->k, g->rows->par, emit_new_sym(e, "row", INT32_MAX, first_of(x)));
    row_measure(row);
    LLVMValueRef n[2] = {row->count, emit_i64(e, row->room + most_shift(x->l))};
    if (x->l->cluster > 1) {
        row->first_vector = LLVMBuildMul(e->b, x->l->r->team.block, emit_i64(e, row->room), "");
        n[0] = LLVMBuildSub(e->b, n[0], row->first_vector, "");
    }
    n[0] = emit_intrinsic(e, "llvm.smin", e->i64, n, 2);
    n[1] = emit_i64(e, 0);
    row->count = emit_intrinsic(e, "llvm.smax", e->i64, n, 2);
}

/* One thread asks for the block's part of it, in chunks, blocks beginning with different ones: they
 * do not all ask for the same at the same time. */
void role_ask_fixed(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    EmitIf one, any;
    Long row;
    if (!x->l->nfixed) return;
    const HV bar = role_shared(x, x->fixed_comes);
    const LLVMValueRef zero = emit_i64(e, 0);
    const int64_t most = x->l->room + most_shift(x->l);
    const LLVMValueRef chunks = emit_i64(e, (most + x->l->chunk - 1) / x->l->chunk);
    emit_if_begin(e, &one, hop_is(e, lane_of(x), 0));
    fixed_row(x, &row);
    HV all = hop_i(e, 0);
    for (uint32_t i = 0; i < row.nfixed; i++)
        all = hop_add(e, all, row_ask_fixed(&row, i, zero, row.count, NULL));
    LLVMValueRef some = LLVMBuildICmp(e->b, LLVMIntSGT, row.count, zero, "");
    hop_barrier_expect(e, bar, LLVMBuildSelect(e->b, some, all, hop_i(e, 0), ""));
    EmitLoop loop = emit_loop(e, 0);
    emit_loop_begin(e, &loop, "fixed", zero, chunks, emit_i64(e, 1), true);
    LLVMValueRef at = LLVMBuildURem(e->b, LLVMBuildAdd(e->b, loop.i, first_of(x), ""), chunks, "");
    at = LLVMBuildMul(e->b, at, emit_i64(e, row.chunk), "");
    LLVMValueRef n[2] = {LLVMBuildSub(e->b, row.count, at, ""), emit_i64(e, row.chunk)};
    n[0] = emit_intrinsic(e, "llvm.smin", e->i64, n, 2);
    emit_if_begin(e, &any, LLVMBuildICmp(e->b, LLVMIntSGT, n[0], zero, ""));
    for (uint32_t i = 0; i < row.nfixed; i++) (void)row_ask_fixed(&row, i, at, n[0], bar);
    emit_if_end(e, &any);
    emit_loop_end(e, &loop);
    emit_pop(e);
    emit_if_end(e, &one);
}

/* --- Who joins ---------------------------------------------------------------------------------
 */

/* What all warps have folded, a lane each. */
Folds role_receive(const Roles *x, const Turn *t, LLVMValueRef leads) {
    Emit *e = x->l->r->team.g->e;
    Folds f = row_folds_begin(&t->row, x->first, 1);
    HV lane = lane_of(x), bar = slot_barrier(x, x->parts_come, t);
    const uint32_t n = parts_of(x->l);
    EmitIf one;
    if (x->l->cluster > 1) {
        emit_if_begin(e, &one, leads);
        hop_barrier_expect(e, bar, hop_i(e, (int64_t)4 * x->values * n));
        emit_if_end(e, &one);
    }
    hop_barrier_wait(e, bar, t->phase);
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntULT, lane, hop_i(e, n), "");
    LLVMValueRef last[2] = {lane, hop_i(e, n - 1)};
    HV from = emit_intrinsic(e, "llvm.umin", e->i32, last, 2);
    for (uint32_t i = 0; i < x->values; i++) {
        LLVMValueRef v = read_value(e, value_at(x, t, i, from));
        f.acc[i] = LLVMBuildSelect(e->b, is, v, f.acc[i], "");
    }
    return f;
}

static void publish(const Roles *x, const Turn *t, const Folds *f) {
    Emit *e = x->l->r->team.g->e;
    LLVMValueRef first = hop_is(e, lane_of(x), 0);
    EmitIf one;
    emit_if_begin(e, &one, first);
    for (uint32_t i = 0; i < x->values; i++)
        LLVMBuildStore(e->b, f->acc[i], hop_pointer(e, value_at(x, t, i, NULL)));
    emit_if_end(e, &one);
    hop_barrier_arrive(e, slot_barrier(x, x->are_done, t), first);
}

/* Passes behind the folds, of single elements and of what walks nothing. */
static void finish_edges(const Roles *x, const Turn *t) {
    const Long *l = x->l;
    Emit *e = l->r->team.g->e;
    const Passes *rows = l->r->team.g->rows;
    Folds none = {.p = x->last};
    for (uint32_t i = l->first; i < rows->npasses; i++) {
        if (!rows->pass[i].axes) row_store_once(t->row.r, &rows->pass[i]);
        for (uint32_t u = 0; u < edges_of(l) && rows->pass[i].axes; u++) {
            RowEdges edges = row_edges(&t->row, u * GPU_WARP);
            if (l->cluster > 1) {
                LLVMValueRef b =
                    LLVMBuildICmp(e->b, LLVMIntEQ, l->r->team.block, emit_i64(e, 0), "");
                edges.live = LLVMBuildAnd(e->b, edges.live, b, "");
            }
            row_edges_walk(&t->row, &edges, &none);
        }
    }
}

/* Every block joins the row's single elements to the rest, which are few; one stores theirs. They
 * are on their way before the folds are waited for. */
static void join(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    RowEdges edges[MOST_EDGES];
    EmitIf mine;
    Turn t;
    emit_if_begin(e, &mine, role_is(x, JOINER, 1));
    role_ask_fixed(x);
    turns_begin(x, &t, JOINER, 1);
    t.row.own_head = t.row.head, t.row.own_tail = t.row.tail;
    for (uint32_t u = 0; u < edges_of(x->l); u++) {
        edges[u] = row_edges(&t.row, u * GPU_WARP);
        row_edges_request(&t.row, &edges[u], x->first);
    }
    Folds f = role_receive(x, &t, hop_is(e, lane_of(x), 0));
    for (uint32_t u = 0; u < edges_of(x->l); u++) row_edges_walk(&t.row, &edges[u], &f);
    const Team team = row_team_under(&t.row, x->first);
    gpu_team_lanes(&team, x->first, f.acc);
    publish(x, &t, &f);
    row_long_results(&t.row, &f);
    finish_edges(x, &t);
    role_turns_end(x, &t);
    emit_if_end(e, &mine);
}

/* --- Who finishes ------------------------------------------------------------------------------
 */

/* Vectors `at` on, those of a thread `by` apart, where they are there, take the place of the pieces
 * that they lie in. Nobody has yet written what is read here: see role_keep_fixed; nor the last
 * vector, which who has none reads in its stead. */
static void keep_some(const Long *row, LLVMValueRef at, uint32_t by) {
    Emit *e = row->r->team.g->e;
    LLVMValueRef v[TOGETHER][ROW_MOST_FIXED], to[TOGETHER], there[TOGETHER];
    LLVMValueRef last = LLVMBuildSub(e->b, row->count, emit_i64(e, 1), "");
    for (uint32_t u = 0; u < TOGETHER; u++) {
        to[u] = LLVMBuildAdd(e->b, at, emit_i64(e, (int64_t)u * by), "");
        there[u] = LLVMBuildICmp(e->b, LLVMIntSLT, to[u], row->count, "");
        to[u] = LLVMBuildSelect(e->b, there[u], to[u], last, "");
        emit_push(e);
        row_bind_long(row, to[u]);
        for (uint32_t i = 0; i < row->nfixed; i++) v[u][i] = row_fixed_pieces(row, i, to[u]);
        emit_pop(e);
    }
    hop_sync(e, hop_i(e, 1), by);
    for (uint32_t u = 0; u < TOGETHER; u++) {
        EmitIf inside;
        emit_if_begin(e, &inside, there[u]);
        for (uint32_t i = 0; i < row->nfixed; i++)
            emit_store_ptr(e, v[u][i], row_fixed_at(row, i, to[u]), 16);
        emit_if_end(e, &inside);
    }
}

/* Vectors take the place of pieces, from the front on: what a turn writes ends where the next one's
 * reads begin, and the last piece that a turn reads is not written before the next turn has met. */
void role_keep_fixed(const Roles *x, LLVMValueRef rank, uint32_t by) {
    Emit *e = x->l->r->team.g->e;
    Long row;
    if (!x->l->nfixed) return;
    fixed_row(x, &row);
    hop_barrier_wait(e, role_shared(x, x->fixed_comes), hop_i(e, 0));
    EmitLoop loop = emit_loop(e, 0);
    emit_loop_begin(e, &loop, "fixed", emit_i64(e, 0), row.count,
                    emit_i64(e, (int64_t)by * TOGETHER), false);
    keep_some(&row, LLVMBuildAdd(e->b, loop.i, rank, ""), by);
    emit_loop_end(e, &loop);
    emit_pop(e);
    hop_sync(e, hop_i(e, 1), by);
}

static void finish(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    EmitIf mine;
    Turn t;
    emit_if_begin(e, &mine, role_is(x, FOLDERS, FINISHERS));
    LLVMValueRef from = emit_i64(e, FOLDERS * GPU_WARP);
    from = LLVMBuildSub(e->b, x->l->r->team.g->tid, from, "");
    role_keep_fixed(x, from, FINISHERS * GPU_WARP);
    turns_begin(x, &t, FOLDERS, FINISHERS);
    Folds f = row_folds_begin(&t.row, x->first, 1), none = {.p = x->last};
    hop_barrier_wait(e, slot_barrier(x, x->are_done, &t), t.phase);
    for (uint32_t i = 0; i < x->values; i++) f.acc[i] = read_value(e, value_at(x, &t, i, NULL));
    row_long_results(&t.row, &f);
    t.row.leaves = true;
    row_walk(&t.row, &none, KEEP_wait, emit_i64(e, 0), t.row.count);
    row_leave_rest(&t.row);
    role_turns_end(x, &t);
    emit_if_end(e, &mine);
}

/* --- The kernel --------------------------------------------------------------------------------
 */

/* Blocks, or pairs of them, that run at once: such that the rows of each start alike. */
static int64_t groups_of(const Long *l) {
    int64_t n = l->r->team.g->m->processors / l->cluster;
    return n - n % row_period(l);
}

static void launch(Roles *x) {
    Gpu *g = x->l->r->team.g;
    Emit *e = g->e;
    Team *team = &x->l->r->team;
    for (uint32_t i = 0; i < 3 && x->l->cluster > 1; i++) g->j->cluster[i] = i ? 1 : x->l->cluster;
    gpu_launch(g, x->l->threads, expr_muli(e->exprs, x->groups, x->l->cluster), 0, 0);
    if (x->l->cluster > 1) team->block = LLVMBuildZExt(e->b, hop_cluster_rank(e), e->i64, "");
    x->warp = hop_shr(e, LLVMBuildTrunc(e->b, g->tid, e->i32, ""), 5);
}

/* The n barriers from this byte on, one behind the other, each passed by so many arrivals. */
void role_init(const Roles *x, uint32_t at, uint32_t n, uint32_t count) {
    Gpu *g = x->l->r->team.g;
    Emit *e = g->e;
    EmitIf some;
    HV tid = LLVMBuildTrunc(e->b, g->tid, e->i32, "");
    emit_if_begin(e, &some, LLVMBuildICmp(e->b, LLVMIntULT, tid, hop_i(e, n), ""));
    HV bar = hop_add(e, role_shared(x, at), hop_muli(e, tid, HOP_BARRIER_BYTES));
    hop_barrier_init(e, bar, count);
    hop_barrier_init_fence(e);
    hop_fence_async(e);
    emit_if_end(e, &some);
}

void role_init_rest(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    role_init(x, x->parts_come, ROLE_SLOTS, x->l->folders + (x->l->cluster > 1 ? 1 : 0));
    role_init(x, x->fixed_comes, 1, 1);
    role_init(x, x->next_comes, ROLE_SLOTS, 1);
    gpu_barrier(e);
    if (x->l->cluster > 1) hop_cluster_sync(e);
    gpu_wait(x->l->r->team.g);
}

/* Places have results when all warps that finish have theirs, and are left by these, or by who
 * takes results away; parts come from all of the block that fold, and, across a
 * cluster, as bytes that one thread more expects. */
static void init_barriers(const Roles *x) {
    role_init(x, x->l->bars, x->l->ring, 1);
    role_init(x, x->l->left, x->l->ring, x->l->back ? 1 : FINISHERS);
    role_init(x, x->l->made, x->l->ring, FINISHERS);
    role_init(x, x->are_done, ROLE_SLOTS, 1);
    role_init_rest(x);
}

Roles role_begin(Long *l) {
    Gpu *g = l->r->team.g;
    ExprPool *p = g->e->exprs;
    Roles x = {.l = l, .first = &g->rows->pass[0], .last = last_walk(g->rows)};
    x.rows = gpu_points(g->e, g->k, g->rows->par);
    x.groups = expr_min(p, x.rows, expr_const(p, groups_of(l)));
    x.values = values_of(l);
    x.parts_come = l->made + l->ring * HOP_BARRIER_BYTES;
    x.are_done = x.parts_come + ROLE_SLOTS * HOP_BARRIER_BYTES;
    x.fixed_comes = x.are_done + ROLE_SLOTS * HOP_BARRIER_BYTES;
    x.next_comes = x.fixed_comes + HOP_BARRIER_BYTES;
    x.next = x.next_comes + ROLE_SLOTS * HOP_BARRIER_BYTES;
    x.parts = x.next + ROLE_SLOTS * 4;
    x.results = x.parts + ROLE_SLOTS * x.values * parts_of(l) * 4;
    g->order = GPU_WAITS_PREPARED;
    launch(&x);
    x.counter = gpu_zeroed(g, expr_const(p, 4 * ((int64_t)row_period(l) + 1)), true);
    return x;
}

void row_run_roles(Long *l) {
    const Roles x = role_begin(l);
    init_barriers(&x);
    role_fetch(&x, FETCHER);
    take_away(&x);
    fold(&x);
    join(&x);
    finish(&x);
}
