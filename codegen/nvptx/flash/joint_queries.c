/* Sums of queries: from shared memory, where both warpgroups put them, to memory, in turn.
 *
 * A counter per block of queries says how many tiles have added theirs; the last one leaves it
 * zero. A thread that has waited for its copies sees what they wrote, and passes that on with the
 * counter. None but copies touch the sums, so no fence between them and plain accesses is needed:
 * one for every block would cost a tenth of the kernel. */
#include "codegen/nvptx/flash/joint.h"

/* Where the counter of block m is. */
static HV turn_of(Joint *x, HV m) {
    Emit *e = x->b.e;
    HV at = hop_add(e, LLVMBuildMul(e->b, x->at.head, x->blocks, ""), m);
    at = LLVMBuildZExt(e->b, at, e->i64, "");
    return LLVMBuildGEP2(e->b, e->i32, x->counts, &at, 1, "");
}

void joint_await(Joint *x, HV count, HV value) {
    Emit *e = x->b.e;
    LLVMBasicBlockRef spin = emit_block(e, "await"), on = emit_block(e, "on");
    LLVMBuildBr(e->b, spin);
    LLVMPositionBuilderAtEnd(e->b, spin);
    HV now = hop_asm(e, e->i32, "ld.acquire.gpu.global.u32 $0, [$1];", "=r,l,~{memory}", &count, 1);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, now, value, ""), on, spin);
    LLVMPositionBuilderAtEnd(e->b, on);
}

/* No tile behind this one meets block m. */
static HV is_last(Joint *x, HV m) {
    Emit *e = x->b.e;
    HV next = hop_addi(e, x->number, 1);
    HV none = LLVMBuildICmp(e->b, LLVMIntUGE, next, x->b.row_tiles, "");
    if (!x->b.behind) return none;
    HV row = LLVMBuildSub(e->b, hop_addi(e, x->at.row, JOINT_KEYS), x->b.behind, "");
    HV past = LLVMBuildICmp(e->b, LLVMIntSLE, hop_muli(e, hop_addi(e, m, 1), x->t->block), row, "");
    /* A tile whose keys nobody sees meets the last block, too. */
    HV seen = LLVMBuildICmp(e->b, LLVMIntULT, hop_addi(e, m, 1), x->blocks, "");
    return LLVMBuildOr(e->b, none, LLVMBuildAnd(e->b, past, seen, ""), "");
}

static void pass_turn(Joint *x, HV turn, HV m) {
    Emit *e = x->b.e;
    HV next = hop_addi(e, x->number, 1);
    HV v[2] = {turn, LLVMBuildSelect(e->b, is_last(x, m), hop_i(e, 0), next, "")};
    hop_asm(e, e->voidt, "st.release.gpu.global.u32 [$0], $1;", "l,r,~{memory}", v, 2);
}

/* In boxes of 64 rows of 32 numbers: of a block of 64 rows by columns, of 128 by rows, then
 * columns */
static void send(Joint *x, HV m, HV from, bool adds) {
    Emit *e = x->b.e;
    const HopMatrix *q = &x->p->q;
    HV at[2 + HOP_MAX_BATCH], row = hop_muli(e, m, x->t->block);
    uint32_t across = x->t->d / JOINT_BOX_COLS;
    hop_batch_at(x->b.g, x->b.extent, q, x->at.head, at + 2);
    for (uint32_t i = 0; i < x->sums_bytes / JOINT_BOX; i++) {
        at[0] = hop_i(e, i % across * JOINT_BOX_COLS);
        at[1] = hop_addi(e, row, i / across * HOP_SLAB_ROWS);
        HV box = hop_addi(e, from, i * JOINT_BOX);
        (adds ? hop_tma_add : hop_tma_store)(e, x->map_q, box, at, 2 + q->nbatch);
    }
}

static void send_block(Joint *x, HV j) {
    Emit *e = x->b.e;
    HV m = joint_block(x, j), turn = turn_of(x, m), stage = joint_stage(x, j);
    HV from = hop_add(e, x->b.shared, hop_muli(e, stage, x->sums_bytes));
    from = hop_addi(e, from, x->at_sums);
    joint_await(x, turn, x->number);
    hop_barrier_wait(e, joint_bar(x, JOINT_sums_full, stage), joint_parity(x, j));
    HopRoles first = hop_roles(e, hop_is(e, x->number, 0));
    send(x, m, from, false);
    hop_role_next(e, first);
    send(x, m, from, true);
    hop_roles_end(e, first);
    hop_tma_commit(e);
    hop_tma_wait_read(e, 0);
    hop_barrier_arrive(e, joint_bar(x, JOINT_sums_empty, stage), LLVMConstInt(e->i1, 1, false));
    hop_tma_wait(e);
    pass_turn(x, turn, m);
}

void joint_queries(Joint *x, HV which) {
    Emit *e = x->b.e;
    HopIf one = hop_if(e, hop_elect(e));
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, which);
    hop_loop_begin(e, l, "queries");
    hop_loop_test(e, l, LLVMBuildICmp(e->b, LLVMIntULT, l->phi[0], x->at.blocks, ""));
    send_block(x, l->phi[0]);
    l->next[0] = hop_addi(e, l->phi[0], 2);
    hop_loop_end(e, l);
    hop_end(e, one);
}
