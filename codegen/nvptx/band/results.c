/* Results of rows that start at any element: those of a turn are one piece of memory. Threads leave
 * them in the turn's stage, at the same place in a line as in memory, and the copy engine takes all
 * but what lies beside whole pieces of 16 bytes at both ends. Stored by threads, each end of a row
 * would be a few bytes of a sector of memory, and an instruction for each element. */
#include "codegen/nvptx/band/band.h"

/* Of result j, a turn's rows: in shared memory, and in memory; bytes in all, in front of the first
 * whole piece, and behind the last. */
typedef struct Results {
    HV at, bytes, front, back;
    LLVMValueRef to;
} Results;

static Results results_of(const BandTurns *t, uint32_t j, LLVMValueRef row, HV at) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const KOp *o = &e->k->ops[b->result[j]];
    const int64_t each = b->columns * band_element(b, b->result[j]);
    LLVMValueRef v[2] = {LLVMBuildSub(e->b, emit_expr(e, t->rows), row, ""), emit_i64(e, t->held)};
    HV n = LLVMBuildTrunc(e->b, emit_intrinsic(e, "llvm.smin", e->i64, v, 2), e->i32, "");
    Results r = {.at = at, .bytes = hop_muli(e, n, each)};
    LLVMValueRef first = emit_address(e, o->buf, expr_const(e->exprs, 0));
    r.to = emit_gep(e, e->i8, first, LLVMBuildMul(e->b, row, emit_i64(e, each), ""));
    r.front = hop_andi(e, LLVMBuildNeg(e->b, r.at, ""), BAND_PIECE - 1);
    r.back = hop_andi(e, hop_add(e, r.at, r.bytes), BAND_PIECE - 1);
    return r;
}

/* Elements beside whole pieces, by a lane each. */
static void send_ends(const BandTurns *t, const Results *r, uint32_t each, HV lane) {
    Emit *e = t->b->r.team.g->e;
    EmitIf has;
    LLVMTypeRef type = LLVMIntTypeInContext(e->ctx, 8 * each);
    const int64_t most = BAND_PIECE / each;
    LLVMValueRef is_front = LLVMBuildICmp(e->b, LLVMIntULT, lane, hop_i(e, most), "");
    HV own = hop_muli(e, hop_andi(e, lane, most - 1), each);
    HV first = hop_add(e, LLVMBuildSub(e->b, r->bytes, r->back, ""), own);
    HV from = LLVMBuildSelect(e->b, is_front, own, first, "");
    HV end = LLVMBuildSelect(e->b, is_front, r->front, r->back, "");
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntULT, own, end, "");
    is = LLVMBuildAnd(e->b, is, LLVMBuildICmp(e->b, LLVMIntULT, lane, hop_i(e, 2 * most), ""), "");
    emit_if_begin(e, &has, is);
    LLVMValueRef x = emit_load(e, type, hop_pointer(e, hop_add(e, r->at, from)), each);
    LLVMSetVolatile(x, true);
    LLVMValueRef ahead = LLVMBuildZExt(e->b, from, e->i64, "");
    emit_store_ptr(e, x, emit_gep(e, e->i8, r->to, ahead), each);
    emit_if_end(e, &has);
}

void band_results_send(const BandTurns *t, uint32_t j, LLVMValueRef row, LLVMValueRef lane, HV at) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    EmitIf one;
    HV own = LLVMBuildTrunc(e->b, lane, e->i32, "");
    const Results r = results_of(t, j, row, at);
    send_ends(t, &r, band_element(b, b->result[j]), own);
    emit_if_begin(e, &one, hop_is(e, own, 0));
    HV ends = hop_add(e, r.front, r.back);
    LLVMValueRef to = emit_gep(e, e->i8, r.to, LLVMBuildZExt(e->b, r.front, e->i64, ""));
    hop_bulk_store(e, LLVMBuildPtrToInt(e->b, to, e->i64, ""), hop_add(e, r.at, r.front),
                   LLVMBuildSub(e->b, r.bytes, ends, ""));
    hop_tma_commit(e);
    emit_if_end(e, &one);
}

void band_results_read(const BandTurns *t, LLVMValueRef lane, HV bar) {
    Emit *e = t->b->r.team.g->e;
    EmitIf one;
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntEQ, lane, emit_i64(e, 0), ""));
    hop_tma_wait_read(e, 0);
    emit_if_end(e, &one);
    hop_warp_sync(e);
    hop_barrier_arrive(e, bar, LLVMConstInt(e->i1, 1, false));
}
