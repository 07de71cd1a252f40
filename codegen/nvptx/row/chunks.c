/* By roles: a place of the ring has a barrier that says that what was there is not needed any more,
 * and, where results take that place, one that says that they are there. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/long.h"

/* --- Places that are left --------------------------------------------------------------------- */

static HV other_at(const Long *l, uint32_t bars, HV place) {
    Emit *e = l->r->team.g->e;
    return hop_add(e, row_shared_at(l, bars), hop_muli(e, place, HOP_BARRIER_BYTES));
}

void row_copy_to_left(const Long *l) {
    Emit *e = l->r->team.g->e;
    EmitLoop loop = emit_loop(e, 0);
    LLVMValueRef parity;
    emit_loop_begin(e, &loop, "copy", emit_i64(e, 0), row_chunks_end(l), emit_i64(e, l->chunk),
                    true);
    HV place = row_chunk_place(l, loop.i, &parity);
    hop_barrier_wait(e, other_at(l, l->left, place), LLVMBuildXor(e->b, parity, hop_i(e, 1), ""));
    row_copy_chunk(l, loop.i, row_chunk_vectors(l, loop.i), place);
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
    emit_loop_begin(e, &loop, "leave", row_chunks_rest(l), row_chunks_end(l), emit_i64(e, l->chunk),
                    false);
    row_leave_chunk(l, loop.i);
    emit_loop_end(e, &loop);
}

/* --- Results that the copy engine takes away -------------------------------------------------- */

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
    HV vectors = row_chunk_vectors(l, at), lo = hop_muli(e, place, l->chunk);
    emit_if_begin(e, &any, LLVMBuildICmp(e->b, LLVMIntNE, vectors, hop_i(e, 0), ""));
    row_bind_long(l, at);
    for (uint32_t i = 0; i < p->nstores; i++) {
        const KOp *o = &e->k->ops[p->stores[i]];
        uint32_t bytes = row_kept_bytes(l, i);
        HV from = hop_add(e, row_shared_at(l, l->slot[i]), hop_muli(e, lo, bytes));
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
    emit_loop_begin(e, &loop, "back", emit_i64(e, 0), row_chunks_end(l), emit_i64(e, l->chunk),
                    true);
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
