/* What all rows read alike: a block keeps its part of it in shared memory. The copy engine brings
 * the pieces that it lies in; threads put vectors in their place, as they lie under rows of one
 * remainder, which is why all rows of a block have to start at the same. */
#include "codegen/nvptx/roles/roles.h"

enum { TOGETHER = 2 }; /* vectors that a thread puts in place at once */

/* What all rows read alike, as it lies under rows of this remainder that start with a vector, and
 * the block's part of it: in a scope of its own. */
static void fixed_row(const Roles *x, Long *row) {
    Gpu *g = x->l->r->team.g;
    Emit *e = g->e;
    *row = *x->l;
    row->line = e->lanes, row->cluster = 1;
    emit_push(e);
    gpu_decode(e, g->k, g->rows->par, emit_new_sym(e, "row", INT32_MAX, role_first(x)));
    row_measure(row);
    if (x->l->cluster > 1) {
        row->first_vector = LLVMBuildMul(e->b, x->l->r->team.block, emit_i64(e, row->room), "");
        row->count = LLVMBuildSub(e->b, row->count, row->first_vector, "");
    }
    row->count = gpu_smaller(e, row->count, emit_i64(e, row->room + role_most_shift(x->l)));
    row->count = gpu_larger(e, row->count, emit_i64(e, 0));
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
    const int64_t most = x->l->room + role_most_shift(x->l);
    const LLVMValueRef chunks = emit_i64(e, (most + x->l->chunk - 1) / x->l->chunk);
    emit_if_begin(e, &one, hop_is(e, role_lane(x), 0));
    fixed_row(x, &row);
    HV all = hop_i(e, 0);
    for (uint32_t i = 0; i < row.nfixed; i++)
        all = hop_add(e, all, row_ask_fixed(&row, i, zero, row.count, NULL));
    LLVMValueRef some = LLVMBuildICmp(e->b, LLVMIntSGT, row.count, zero, "");
    hop_barrier_expect(e, bar, LLVMBuildSelect(e->b, some, all, hop_i(e, 0), ""));
    EmitLoop loop = emit_loop(e, 0);
    emit_loop_begin(e, &loop, "fixed", zero, chunks, emit_i64(e, 1), true);
    LLVMValueRef at =
        LLVMBuildURem(e->b, LLVMBuildAdd(e->b, loop.i, role_first(x), ""), chunks, "");
    at = LLVMBuildMul(e->b, at, emit_i64(e, row.chunk), "");
    const LLVMValueRef left = LLVMBuildSub(e->b, row.count, at, "");
    const LLVMValueRef n = gpu_smaller(e, left, emit_i64(e, row.chunk));
    emit_if_begin(e, &any, LLVMBuildICmp(e->b, LLVMIntSGT, n, zero, ""));
    for (uint32_t i = 0; i < row.nfixed; i++) (void)row_ask_fixed(&row, i, at, n, bar);
    emit_if_end(e, &any);
    emit_loop_end(e, &loop);
    emit_pop(e);
    emit_if_end(e, &one);
}

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
