/* Rows that blocks in turns, or clusters of them, claim as they get through. Memory serves some
 * multiprocessors half as fast again as others, and which ones depends on where buffers lie: of
 * rows that are dealt out beforehand the fast ones are through early, and the others alone cannot
 * ask for all that memory gives. What a row becomes does not depend on who takes it.
 *
 * A row is known `ahead` turns before its own, as the copy engine brings rows early; what the count
 * gives in one turn is passed on in the next, when it has come. So the first ahead + 1 rows of a
 * cluster are dealt out; every turn adds one to the count, which starts again behind the last. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/long.h"

/* Turns whose rows are known. A slot is written again when no block, which may be a join behind,
 * has to read it. */
enum { SLOTS = ROW_MOST_AHEAD + 2 };
_Static_assert((SLOTS & (SLOTS - 1)) == 0, "a turn's number is masked to its slot");

static HV slot(const Claims *c, HV base, HV turn, int64_t bytes) {
    Emit *e = c->g->e;
    return hop_add(e, base, hop_muli(e, hop_andi(e, turn, SLOTS - 1), bytes));
}

static HV cell(const Claims *c, HV turn) {
    return slot(c, c->cells, turn, 4);
}

static HV barrier(const Claims *c, HV turn) {
    return slot(c, c->bars, turn, HOP_BARRIER_BYTES);
}

static void put(const Claims *c, HV turn, HV row) {
    Emit *e = c->g->e;
    HV at = cell(c, turn);
    LLVMBuildStore(e->b, row, hop_pointer(e, at));
}

/* The rows that are dealt out, but for the last, which the first turn passes on. */
static void begin(const Claims *c, const Long *l) {
    Emit *e = c->g->e;
    EmitIf one;
    emit_if_begin(e, &one, c->is_one);
    for (uint32_t t = 0; t < c->ahead; t++)
        put(c, hop_i(e, t), hop_add(e, c->first, hop_muli(e, c->groups, t)));
    for (uint32_t i = 0; i < SLOTS && l->cluster > 1; i++)
        hop_barrier_init(e, hop_addi(e, c->bars, i * HOP_BARRIER_BYTES), 1);
    emit_if_end(e, &one);
}

Claims row_claims(const Long *l, uint32_t ahead, LLVMValueRef first, LLVMValueRef groups,
                  LLVMValueRef rows) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    Claims c = {.g = g, .cluster = l->cluster, .ahead = ahead};
    LLVMValueRef zero = emit_i64(e, 0);
    c.first = LLVMBuildTrunc(e->b, first, e->i32, "");
    c.groups = LLVMBuildTrunc(e->b, groups, e->i32, "");
    c.counter = gpu_zeroed(g, expr_const(e->exprs, 4), true);
    c.counter = LLVMBuildPtrToInt(e->b, c.counter, e->i64, "");
    c.cells = LLVMBuildPtrToInt(e->b, gpu_shared(g, e->i32, SLOTS), e->i32, "");
    c.last = hop_addi(e, LLVMBuildTrunc(e->b, rows, e->i32, ""), -1);
    c.is_one = c.leads = LLVMBuildICmp(e->b, LLVMIntEQ, l->r->team.rank, zero, "");
    if (l->cluster > 1) {
        LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntEQ, l->r->team.block, zero, "");
        c.leads = LLVMBuildAnd(e->b, c.is_one, is, "");
        c.bars = LLVMBuildPtrToInt(e->b, gpu_shared(g, e->i64, SLOTS), e->i32, "");
    }
    begin(&c, l);
    return c;
}

HV row_claimed_first(const Claims *c) {
    return LLVMBuildSub(c->g->e->b, c->first, c->groups, "");
}

/* The one that asks for a row comes to know of how many were asked for before. */
static HV claim(const Claims *c) {
    HV v[3] = {c->counter, c->last, c->leads};
    return hop_asm(c->g->e, c->g->e->i32, "@$3 atom.relaxed.gpu.global.inc.u32 $0, [$1], $2;",
                   "=r,l,r,b,~{memory}", v, 3);
}

/* To the blocks that share the row, this one among them. */
static void give(const Claims *c, HV turn, HV row) {
    Emit *e = c->g->e;
    HV as = LLVMBuildBitCast(e->b, row, e->f32, "");
    for (uint32_t i = 0; i < c->cluster; i++)
        hop_cluster_send(e, cell(c, hop_addi(e, turn, c->ahead)), barrier(c, turn), hop_i(e, i),
                         as);
}

HV row_claim(const Claims *c, HV turn, HV claimed) {
    Emit *e = c->g->e;
    EmitIf one;
    HV row = hop_add(e, hop_muli(e, c->groups, c->ahead + 1), claimed);
    if (c->cluster > 1) {
        emit_if_begin(e, &one, c->is_one);
        hop_barrier_expect(e, barrier(c, turn), hop_i(e, 4));
        emit_if_end(e, &one);
    }
    emit_if_begin(e, &one, c->leads);
    if (c->cluster > 1)
        give(c, turn, row);
    else
        put(c, hop_addi(e, turn, c->ahead), row);
    emit_if_end(e, &one);
    return claim(c);
}

LLVMValueRef row_claimed(const Claims *c, HV turn, HV behind) {
    Emit *e = c->g->e;
    HV then = turn ? hop_add(e, turn, behind) : behind;
    if (c->cluster > 1 && turn) {
        HV round = hop_shr(e, turn, __builtin_ctz(SLOTS));
        hop_barrier_wait(e, barrier(c, turn), hop_andi(e, round, 1));
    }
    HV at = cell(c, then);
    HV row = hop_asm(e, e->i32, "ld.shared.u32 $0, [$1];", "=r,r,~{memory}", &at, 1);
    return LLVMBuildZExt(e->b, row, e->i64, "");
}
