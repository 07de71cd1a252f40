/* Blocks that keep pace. Where all multiprocessors ask for more than memory gives, it gives some of
 * them half as much again as others, and which ones depends on where buffers lie. Yet rows are
 * dealt out beforehand, as a sum is to be of the same rows in every run: the first blocks were
 * through at little more than half of the last one's time, and those that were left could not ask
 * for all that memory gives. So blocks count their turns together, and one begins a turn when all
 * have begun the one before. Nothing but time depends on the count: a block that has waited for
 * long in all, as where not all of them run at once, waits no more. */
#include "codegen/nvptx/band/band.h"

enum {
    PATIENCE =
        16384, /* bytes of a turn for which a block asks once for the count while it waits, of
                  some 0.3 us each, and once more: a third of the time that the turn takes */
    CELL = 8,  /* i32: the count as it was a turn ago, which comes in 16 bytes, ... */
    LEFT = 4,  /* ... and how many times are left */
};

static HV cell(const Pace *p, int64_t at) {
    Emit *e = p->g->e;
    return hop_addi(e, LLVMBuildPtrToInt(e->b, p->cells, e->i32, ""), 4 * at);
}

static LLVMValueRef in_shared(const Pace *p, int64_t at) {
    Emit *e = p->g->e;
    return hop_pointer(e, cell(p, at));
}

/* There are multiprocessors enough for all blocks to run at once. */
static LLVMValueRef all_run(const Gpu *g, int64_t blocks) {
    Emit *e = g->e;
    HV n = hop_asm(e, e->i32, "mov.u32 $0, %nsmid;", "=r", NULL, 0);
    return LLVMBuildICmp(e->b, LLVMIntSGE, n, hop_i(e, blocks), "");
}

Pace band_pace(Gpu *g, int64_t blocks, Expr turns, int64_t bytes, uint32_t lead) {
    Emit *e = g->e;
    Pace p = {.g = g, .lead = lead, .blocks = blocks};
    p.counter = gpu_zeroed(g, expr_const(e->exprs, 16), true);
    p.counter = LLVMBuildPtrToInt(e->b, p.counter, e->i64, "");
    p.cells = gpu_shared(g, e->i32, CELL);
    p.turns = LLVMBuildTrunc(e->b, emit_expr(e, turns), e->i32, "");
    p.last = hop_addi(e, hop_muli(e, hop_addi(e, p.turns, 1), p.blocks), -1);
    LLVMValueRef times = all_run(g, p.blocks);
    times =
        LLVMBuildSelect(e->b, times, hop_muli(e, p.turns, 1 + bytes / PATIENCE), hop_i(e, 0), "");
    LLVMBuildStore(e->b, hop_i(e, 0), in_shared(&p, 0));
    LLVMBuildStore(e->b, times, in_shared(&p, LEFT));
    return p;
}

static void count(const Pace *p) {
    HV v[2] = {p->counter, p->last};
    hop_asm(p->g->e, p->g->e->voidt, "red.relaxed.gpu.global.inc.u32 [$0], $1;", "l,r,~{memory}", v,
            2);
}

/* Until the count is `want`. */
static void await(const Pace *p, HV want) {
    HV v[3] = {cell(p, LEFT), p->counter, want};
    hop_asm(p->g->e, p->g->e->voidt,
            "{ .reg .pred p; .reg .b32 n, v; ld.shared.b32 n, [$0]; "
            "again: setp.eq.b32 p, n, 0; @p bra done; "
            "sub.s32 n, n, 1; ld.relaxed.gpu.global.b32 v, [$1]; "
            "setp.lt.s32 p, v, $2; @p bra again; "
            "done: st.shared.b32 [$0], n; }",
            "r,l,r,~{memory}", v, 3);
}

/* The count of the turn before may not have come yet, but where it `waits`: what is there then is
 * less, and asks for one that is new. */
void band_pace_turn(const Pace *p, HV turn) {
    Emit *e = p->g->e;
    EmitIf ahead;
    if (p->waits) hop_asm(e, e->voidt, "cp.async.wait_all;", "~{memory}", NULL, 0);
    HV want = hop_muli(e, hop_addi(e, turn, -(int64_t)p->lead), p->blocks);
    HV then = LLVMBuildLoad2(e->b, e->i32, in_shared(p, 0), "");
    LLVMSetVolatile(then, true);
    then = hop_addi(e, then, p->blocks);
    emit_if_begin(e, &ahead, LLVMBuildICmp(e->b, LLVMIntSLT, then, want, ""));
    await(p, want);
    emit_if_end(e, &ahead);
    count(p);
    HV a[2] = {cell(p, 0), p->counter};
    hop_asm(e, e->voidt, "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}", a, 2);
}

/* Blocks have as many turns as others or one less. The last count of all is followed by zero, when
 * nobody asks for it any more. */
void band_pace_end(const Pace *p, HV turns) {
    Emit *e = p->g->e;
    EmitIf one;
    hop_asm(e, e->voidt, "cp.async.wait_all;", "~{memory}", NULL, 0);
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntSLT, turns, p->turns, ""));
    count(p);
    emit_if_end(e, &one);
    count(p);
}
