/* A long row that the copy engine brings into shared memory: one thread asks for all of it, chunk
 * by chunk, so that the whole row is on its way and no register waits for it; the first walk begins
 * a chunk when it is there. Each chunk's barrier is passed once. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/long.h"

uint32_t row_chunks(const Long *l) {
    return (uint32_t)((l->room + l->chunk - 1) / l->chunk);
}

uint32_t row_ahead(const Long *l) {
    return (row_chunks(l) - 1 + l->ring) / row_chunks(l);
}

/* Of a vector of kept value i. */
uint32_t row_kept_bytes(const Long *l, uint32_t i) {
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
    const uint32_t all = (uint32_t)g->m->shared / l->blocks - ROW_RESERVED;
    const uint32_t vector = row_bytes_of(g, l->kept, l->nkept) * g->e->lanes;
    const uint32_t bytes = vector * l->chunk + HOP_BARRIER_BYTES;
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

HV row_shared_at(const Long *l, int64_t at) {
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
    return hop_add(e, row_shared_at(l, l->bars), hop_muli(e, place, HOP_BARRIER_BYTES));
}

static void init_barriers(const Long *l) {
    Emit *e = l->r->team.g->e;
    EmitIf one;
    emit_if_begin(e, &one, gpu_is_first(l->r->team.g));
    for (uint32_t i = 0; i < l->ring; i++)
        hop_barrier_init(e, row_shared_at(l, l->bars + i * HOP_BARRIER_BYTES), 1);
    hop_barrier_init_fence(e);
    hop_fence_async(e);
    emit_if_end(e, &one);
    gpu_barrier(e);
}

/* Vectors of the chunk from vector `at` on (i32), as far as there are any. */
HV row_chunk_vectors(const Long *l, LLVMValueRef at) {
    Emit *e = l->r->team.g->e;
    const LLVMValueRef end = gpu_smaller(e, l->count, emit_i64(e, l->room));
    LLVMValueRef n = gpu_smaller(e, LLVMBuildSub(e->b, end, at, ""), emit_i64(e, l->chunk));
    if (l->turns) n = gpu_larger(e, n, emit_i64(e, 0));
    return LLVMBuildTrunc(e->b, n, e->i32, "");
}

/* The first vector of the first chunk that the row does not reach, and the end of all chunks. */
LLVMValueRef row_chunks_rest(const Long *l) {
    Emit *e = l->r->team.g->e;
    LLVMValueRef at = LLVMBuildAdd(e->b, l->count, emit_i64(e, l->chunk - 1), "");
    return LLVMBuildAnd(e->b, at, emit_i64(e, -(int64_t)l->chunk), "");
}

LLVMValueRef row_chunks_end(const Long *l) {
    return emit_i64(l->r->team.g->e, (int64_t)row_chunks(l) * l->chunk);
}

/* The chunk from vector `at` on, of so many vectors (i32), to a place in the ring. */
void row_copy_chunk(const Long *l, LLVMValueRef at, HV vectors, HV place) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    HV bar = barrier_at(l, place), lo = hop_muli(e, place, l->chunk);
    const uint32_t all = row_bytes_of(g, l->kept, l->nkept) * e->lanes;
    EmitIf any;
    hop_barrier_expect(e, bar, hop_muli(e, vectors, all));
    if (l->turns) emit_if_begin(e, &any, LLVMBuildICmp(e->b, LLVMIntNE, vectors, hop_i(e, 0), ""));
    row_bind_long(l, at);
    for (uint32_t i = 0; i < l->nkept; i++) {
        const KOp *o = &g->k->ops[l->kept[i]];
        uint32_t bytes = row_kept_bytes(l, i);
        HV to = hop_add(e, row_shared_at(l, l->slot[i]), hop_muli(e, lo, bytes));
        HV from = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
        hop_bulk_load(e, to, from, hop_muli(e, vectors, bytes), bar);
    }
    if (l->turns) emit_if_end(e, &any);
}

void row_copy(const Long *l, LLVMValueRef room) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    EmitIf one;
    init_barriers(l);
    emit_if_begin(e, &one, gpu_is_first(l->r->team.g));
    emit_loop_begin(e, &loop, "copy", emit_i64(e, 0), room, emit_i64(e, l->chunk), false);
    row_copy_chunk(l, loop.i, row_chunk_vectors(l, loop.i), row_chunk_place(l, loop.i, NULL));
    emit_loop_end(e, &loop);
    emit_if_end(e, &one);
}

void row_wait_copied(const Long *l, LLVMValueRef at) {
    LLVMValueRef parity, place = row_chunk_place(l, at, &parity);
    hop_barrier_wait(l->r->team.g->e, barrier_at(l, place), parity);
}

/* --- In turns: every barrier is passed once a row, whether or not the row reaches its chunk --- */

void row_copy_begin(const Long *l) {
    init_barriers(l);
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
    row_copy_chunk(&next, first, row_chunk_vectors(&next, first), place);
    emit_if_end(e, &there);
}

void row_copy_first(const Long *l) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    EmitIf one;
    emit_if_begin(e, &one, gpu_is_first(l->r->team.g));
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
    emit_if_begin(e, &one, gpu_is_first(l->r->team.g));
    ask_behind(l, at);
    emit_if_end(e, &one);
}

void row_copy_rest(const Long *l) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    EmitIf one;
    int64_t n;
    if (!l->offset && expr_is_const(e->exprs, l->length, &n) && l->cluster == 1) return;
    LLVMValueRef lo = row_chunks_rest(l), hi = row_chunks_end(l);
    emit_if_begin(e, &one, gpu_is_first(l->r->team.g));
    emit_loop_begin(e, &loop, "copy", lo, hi, emit_i64(e, l->chunk), false);
    ask_behind(l, loop.i);
    emit_loop_end(e, &loop);
    emit_if_end(e, &one);
}
