/* A long row that the copy engine brings into shared memory: one thread asks for all of it, chunk
 * by chunk, so that the whole row is on its way and no register waits for it; the first walk begins
 * a chunk when it is there. Each chunk's barrier is passed once. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/row.h"

uint32_t row_chunks(const Long *l) {
    return (uint32_t)((l->room + l->chunk - 1) / l->chunk);
}

uint32_t row_ahead(const Long *l) {
    return (row_chunks(l) - 1 + l->ring) / row_chunks(l);
}

/* Of a vector of kept value i. */
static uint32_t kept_bytes(const Long *l, uint32_t i) {
    const Gpu *g = l->r->team.g;
    return row_bytes(g, l->kept[i]) * g->e->lanes;
}

static bool can_copy(const Long *l, uint32_t i) {
    const Gpu *g = l->r->team.g;
    const KOp *o = &g->k->ops[l->kept[i]];
    return o->op == K_kload && !o->in[0] && row_can_move(g, l->axis, l->offset, o, (DType)o->dtype);
}

/* In turns, what a row leaves of the memory has room for chunks of rows behind. */
static void widen_ring(Long *l) {
    const Gpu *g = l->r->team.g;
    uint32_t bytes = HOP_BARRIER_BYTES, all = (uint32_t)g->m->shared / l->blocks - ROW_RESERVED;
    for (uint32_t i = 0; i < l->nkept; i++) bytes += kept_bytes(l, i) * l->chunk;
    if (all / bytes <= l->ring) return;
    l->ring = all / bytes;
    row_place_kept(l, (int64_t)l->ring * l->chunk);
}

bool row_can_copy(const Long *l) {
    if (!l->r->team.g->e->isa->warpgroups) return false;
    for (uint32_t i = 0; i < l->nkept; i++)
        if (!can_copy(l, i)) return false;
    return l->nkept > 0;
}

bool row_copies(Long *l) {
    if (!row_can_copy(l)) return false;
    l->chunk = row_long_steps(l) * l->threads;
    l->ring = row_chunks(l);
    if (l->turns) widen_ring(l);
    l->bars = (l->shared + ROW_COPY_ALIGN - 1) / ROW_COPY_ALIGN * ROW_COPY_ALIGN;
    l->shared = l->bars + l->ring * HOP_BARRIER_BYTES;
    return true;
}

static HV shared_at(const Long *l, int64_t at) {
    return hop_addi(l->r->team.g->e, hop_shared(l->r->team.g), at);
}

static LLVMValueRef chunk_number(const Long *l, LLVMValueRef at) {
    Emit *e = l->r->team.g->e;
    LLVMValueRef i = LLVMBuildUDiv(e->b, at, emit_i64(e, l->chunk), "");
    return LLVMBuildTrunc(e->b, i, e->i32, "");
}

/* So many chunks behind one at *place, whose barrier has *phase: less than twice round. */
static void advance(const Long *l, HV by, HV *place, HV *phase) {
    Emit *e = l->r->team.g->e;
    HV at = hop_add(e, *place, by), ring = hop_i(e, l->ring);
    HV past = LLVMBuildICmp(e->b, LLVMIntUGE, at, ring, "");
    *place = LLVMBuildSelect(e->b, past, LLVMBuildSub(e->b, at, ring, ""), at, "");
    *phase = LLVMBuildXor(e->b, *phase, LLVMBuildZExt(e->b, past, e->i32, ""), "");
}

LLVMValueRef row_chunk_place(const Long *l, LLVMValueRef at, LLVMValueRef *parity) {
    Emit *e = l->r->team.g->e;
    HV place = l->place, phase = l->phase;
    if (parity) *parity = hop_i(e, 0);
    if (!place) return chunk_number(l, at);
    advance(l, chunk_number(l, at), &place, &phase);
    if (parity) *parity = phase;
    return place;
}

void row_chunks_behind(const Long *l, LLVMValueRef *place, LLVMValueRef *phase) {
    advance(l, hop_i(l->r->team.g->e, row_chunks(l)), place, phase);
}

/* Of the chunk in that place. */
static HV barrier_at(const Long *l, HV place) {
    Emit *e = l->r->team.g->e;
    return hop_add(e, shared_at(l, l->bars), hop_muli(e, place, HOP_BARRIER_BYTES));
}

static void init_barriers(const Long *l, LLVMValueRef first) {
    Emit *e = l->r->team.g->e;
    EmitIf one;
    emit_if_begin(e, &one, first);
    for (uint32_t i = 0; i < l->ring; i++)
        hop_barrier_init(e, shared_at(l, l->bars + i * HOP_BARRIER_BYTES), 1);
    hop_barrier_init_fence(e);
    hop_fence_async(e);
    emit_if_end(e, &one);
    gpu_barrier(e);
}

/* Vectors of the chunk from vector `at` on (i32), as far as there are any. */
static HV chunk_vectors(const Long *l, LLVMValueRef at) {
    Emit *e = l->r->team.g->e;
    LLVMValueRef last[2] = {l->count, emit_i64(e, l->room)};
    last[0] = emit_intrinsic(e, "llvm.smin", e->i64, last, 2);
    LLVMValueRef n[2] = {LLVMBuildSub(e->b, last[0], at, ""), emit_i64(e, l->chunk)};
    n[0] = emit_intrinsic(e, "llvm.smin", e->i64, n, 2);
    n[1] = emit_i64(e, 0);
    if (l->turns) n[0] = emit_intrinsic(e, "llvm.smax", e->i64, n, 2);
    return LLVMBuildTrunc(e->b, n[0], e->i32, "");
}

/* The first vector of the first chunk that the row does not reach, and the end of all chunks. */
static LLVMValueRef rest_of(const Long *l) {
    Emit *e = l->r->team.g->e;
    LLVMValueRef at = LLVMBuildAdd(e->b, l->count, emit_i64(e, l->chunk - 1), "");
    return LLVMBuildAnd(e->b, at, emit_i64(e, -(int64_t)l->chunk), "");
}

static LLVMValueRef chunks_end(const Long *l) {
    return emit_i64(l->r->team.g->e, (int64_t)row_chunks(l) * l->chunk);
}

/* The chunk from vector `at` on, of so many vectors (i32), to a place in the ring. */
static void copy_chunk(const Long *l, LLVMValueRef at, HV vectors, HV place) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    HV bar = barrier_at(l, place), lo = hop_muli(e, place, l->chunk);
    uint32_t all = 0;
    for (uint32_t i = 0; i < l->nkept; i++) all += kept_bytes(l, i);
    EmitIf any;
    hop_barrier_expect(e, bar, hop_muli(e, vectors, all));
    if (l->turns) emit_if_begin(e, &any, LLVMBuildICmp(e->b, LLVMIntNE, vectors, hop_i(e, 0), ""));
    row_bind_long(l, at);
    for (uint32_t i = 0; i < l->nkept; i++) {
        const KOp *o = &g->k->ops[l->kept[i]];
        uint32_t bytes = kept_bytes(l, i);
        HV to = hop_add(e, shared_at(l, l->slot[i]), hop_muli(e, lo, bytes));
        HV from = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
        hop_bulk_load(e, to, from, hop_muli(e, vectors, bytes), bar);
    }
    if (l->turns) emit_if_end(e, &any);
}

static LLVMValueRef is_first(const Long *l) {
    const Gpu *g = l->r->team.g;
    return LLVMBuildICmp(g->e->b, LLVMIntEQ, g->tid, emit_i64(g->e, 0), "");
}

void row_copy(const Long *l, LLVMValueRef room) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    EmitIf one;
    init_barriers(l, is_first(l));
    emit_if_begin(e, &one, is_first(l));
    emit_loop_begin(e, &loop, "copy", emit_i64(e, 0), room, emit_i64(e, l->chunk), false);
    copy_chunk(l, loop.i, chunk_vectors(l, loop.i), row_chunk_place(l, loop.i, NULL));
    emit_loop_end(e, &loop);
    emit_if_end(e, &one);
}

void row_wait_copied(const Long *l, LLVMValueRef at) {
    LLVMValueRef parity, place = row_chunk_place(l, at, &parity);
    hop_barrier_wait(l->r->team.g->e, barrier_at(l, place), parity);
}

/* --- In turns: every barrier is passed once a row, whether or not the row reaches its chunk -----
 */

void row_copy_begin(const Long *l) {
    init_barriers(l, is_first(l));
}

/* One thread asks for chunk number n (i32) from the current row's first on, which may be one of a
 * row behind, if there is such a row. It comes to that place. */
static void ask(const Long *l, HV n, HV place) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    HV chunks = hop_i(e, row_chunks(l)), turn = LLVMBuildUDiv(e->b, n, chunks, "");
    HV at = LLVMBuildSub(e->b, n, LLVMBuildMul(e->b, turn, chunks, ""), "");
    EmitIf there;
    LLVMValueRef row = row_claimed(l->claims, l->turn, turn);
    emit_if_begin(e, &there, LLVMBuildICmp(e->b, LLVMIntSLT, row, l->end, ""));
    gpu_decode(e, g->k, g->rows->par, emit_new_sym(e, "next", INT32_MAX, row));
    Long next = *l->next;
    row_measure(&next);
    LLVMValueRef first = LLVMBuildZExt(e->b, hop_muli(e, at, l->chunk), e->i64, "");
    copy_chunk(&next, first, chunk_vectors(&next, first), place);
    emit_if_end(e, &there);
}

void row_copy_first(const Long *l) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    EmitIf one;
    emit_if_begin(e, &one, is_first(l));
    emit_loop_begin(e, &loop, "copy", emit_i64(e, 0), emit_i64(e, l->ring), emit_i64(e, 1), false);
    HV n = LLVMBuildTrunc(e->b, loop.i, e->i32, "");
    ask(l, n, n);
    emit_loop_end(e, &loop);
    emit_if_end(e, &one);
}

/* What comes to the place of this row's chunk from vector `at` on. */
static void ask_behind(const Long *l, LLVMValueRef at) {
    Emit *e = l->r->team.g->e;
    ask(l, hop_addi(e, chunk_number(l, at), l->ring), row_chunk_place(l, at, NULL));
}

/* What was read here by plain loads is written by the copy engine. */
void row_copy_next(const Long *l, LLVMValueRef at) {
    Emit *e = l->r->team.g->e;
    EmitIf one;
    hop_fence_async(e);
    gpu_barrier(e);
    emit_if_begin(e, &one, is_first(l));
    ask_behind(l, at);
    emit_if_end(e, &one);
}

void row_copy_rest(const Long *l) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    EmitIf one;
    int64_t n;
    if (!l->offset && expr_is_const(e->exprs, l->length, &n) && l->cluster == 1) return;
    LLVMValueRef lo = rest_of(l), hi = chunks_end(l);
    emit_if_begin(e, &one, is_first(l));
    emit_loop_begin(e, &loop, "copy", lo, hi, emit_i64(e, l->chunk), false);
    ask_behind(l, loop.i);
    emit_loop_end(e, &loop);
    emit_if_end(e, &one);
}

/* --- By roles: a place has a barrier that says that what was there is not needed any more -------
 */

static HV other_at(const Long *l, uint32_t bars, HV place) {
    Emit *e = l->r->team.g->e;
    return hop_add(e, shared_at(l, bars), hop_muli(e, place, HOP_BARRIER_BYTES));
}

void row_copy_to_left(const Long *l) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    LLVMValueRef parity;
    emit_loop_begin(e, &loop, "copy", emit_i64(e, 0), chunks_end(l), emit_i64(e, l->chunk), true);
    HV place = row_chunk_place(l, loop.i, &parity);
    hop_barrier_wait(e, other_at(l, l->left, place), LLVMBuildXor(e->b, parity, hop_i(e, 1), ""));
    copy_chunk(l, loop.i, chunk_vectors(l, loop.i), place);
    emit_loop_end(e, &loop);
}

void row_leave_chunk(const Long *l, LLVMValueRef at) {
    Emit *e = l->r->team.g->e;
    if (l->back || l->teams) hop_fence_async(e);
    hop_warp_sync(e);
    LLVMValueRef lane = LLVMBuildAnd(e->b, l->r->team.rank, emit_i64(e, GPU_WARP - 1), "");
    LLVMValueRef one = LLVMBuildICmp(e->b, LLVMIntEQ, lane, emit_i64(e, 0), "");
    HV place = row_chunk_place(l, at, NULL);
    hop_barrier_arrive(e, other_at(l, l->back ? l->made : l->left, place), one);
}

void row_leave_rest(const Long *l) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    emit_loop_begin(e, &loop, "leave", rest_of(l), chunks_end(l), emit_i64(e, l->chunk), false);
    row_leave_chunk(l, loop.i);
    emit_loop_end(e, &loop);
}

/* --- By roles: results that the copy engine takes away ------------------------------------------
 */

bool row_can_store(const Long *l, const Pass *p) {
    const Gpu *g = l->r->team.g;
    if (p->nstores > l->nkept) return false;
    for (uint32_t i = 0; i < p->nstores; i++) {
        const KOp *o = &g->k->ops[p->stores[i]];
        const DType t = (DType)g->k->ops[o->in[0]].dtype;
        if (o->op != K_kstore || !dtype_is_float(t)) return false;
        if (dtype_bytes(t) != row_bytes(g, l->kept[i])) return false;
        if (!row_can_move(g, l->axis, l->offset, o, t)) return false;
    }
    return true;
}

/* The results of the chunk from vector `at` on, in that place. */
static void store_chunk(const Long *l, const Pass *p, LLVMValueRef at, HV place) {
    Emit *e = l->r->team.g->e;
    EmitIf any;
    HV vectors = chunk_vectors(l, at), lo = hop_muli(e, place, l->chunk);
    emit_if_begin(e, &any, LLVMBuildICmp(e->b, LLVMIntNE, vectors, hop_i(e, 0), ""));
    row_bind_long(l, at);
    for (uint32_t i = 0; i < p->nstores; i++) {
        const KOp *o = &e->k->ops[p->stores[i]];
        uint32_t bytes = kept_bytes(l, i);
        HV from = hop_add(e, shared_at(l, l->slot[i]), hop_muli(e, lo, bytes));
        HV to = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
        hop_bulk_store(e, to, from, hop_muli(e, vectors, bytes));
    }
    emit_if_end(e, &any);
    hop_tma_commit(e);
}

void row_copy_back(const Long *l, const Pass *p, LLVMValueRef first) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    LLVMValueRef parity;
    emit_loop_begin(e, &loop, "back", emit_i64(e, 0), chunks_end(l), emit_i64(e, l->chunk), true);
    HV place = row_chunk_place(l, loop.i, &parity);
    hop_barrier_wait(e, other_at(l, l->made, place), parity);
    store_chunk(l, p, loop.i, place);
    hop_tma_wait_read(e, 1);
    LLVMValueRef none = LLVMBuildICmp(e->b, LLVMIntEQ, loop.i, emit_i64(e, 0), "");
    none = LLVMBuildAnd(e->b, none, first, "");
    LLVMValueRef is_zero = hop_is(e, place, 0);
    HV before = LLVMBuildSelect(e->b, is_zero, hop_i(e, l->ring), place, "");
    before = hop_addi(e, before, -1);
    hop_barrier_arrive(e, other_at(l, l->left, before), LLVMBuildNot(e->b, none, ""));
    emit_loop_end(e, &loop);
}
