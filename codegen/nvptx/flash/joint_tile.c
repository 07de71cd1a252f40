/* Which tile a thread block of a kernel of all gradients of an attention has, where its barriers
 * are, and its blocks of queries. */
#include "codegen/nvptx/flash/joint.h"

/* --- Tiles ------------------------------------------------------------------------------------ */

static HV pick(Emit *e, const char *name, HV a, HV b) {
    HV v[2] = {a, b};
    return emit_intrinsic(e, name, e->i32, v, 2);
}

/* How many heads a band has. */
static HV heads_of(Joint *x, HV band) {
    Emit *e = x->b.e;
    HV left = pick(e, "llvm.usub.sat", x->b.heads, LLVMBuildMul(e->b, band, x->band, ""));
    return pick(e, "llvm.umin", left, x->band);
}

/* Tiles go by in bands of heads, of a band by rows, then heads. In any order, tiles of the first
 * band, then again and again those of the next band and movers of the one in front, and behind the
 * last band's tiles all movers that are left. */
JointUnit joint_unit(Joint *x) {
    Emit *e = x->b.e;
    HV tiles = LLVMBuildMul(e->b, x->b.row_tiles, x->band, "");
    JointUnit u = {.tile = LLVMConstInt(e->i1, 1, false),
                   .band = LLVMBuildUDiv(e->b, x->b.block, tiles, "")};
    u.n = LLVMBuildSub(e->b, x->b.block, LLVMBuildMul(e->b, u.band, tiles, ""), "");
    if (!x->p->any) return u;
    HV movers = LLVMBuildMul(e->b, x->movers, x->band, ""), both = hop_add(e, tiles, movers);
    HV bands = hop_add(e, x->b.heads, hop_addi(e, x->band, -1));
    bands = LLVMBuildUDiv(e->b, bands, x->band, "");
    HV first = LLVMBuildMul(e->b, x->b.row_tiles, heads_of(x, hop_i(e, 0)), "");
    HV is_first = LLVMBuildICmp(e->b, LLVMIntULT, x->b.block, first, "");
    HV rest = LLVMBuildSub(e->b, x->b.block, first, "");
    HV i = pick(e, "llvm.umin", LLVMBuildUDiv(e->b, rest, both, ""),
                pick(e, "llvm.usub.sat", bands, hop_i(e, 2)));
    rest = LLVMBuildSub(e->b, rest, LLVMBuildMul(e->b, i, both, ""), "");
    HV band = hop_addi(e, i, 1), own = LLVMBuildMul(e->b, x->b.row_tiles, heads_of(x, band), "");
    HV is_tile = LLVMBuildICmp(e->b, LLVMIntULT, rest, own, "");
    u.tile = LLVMBuildOr(e->b, is_first, is_tile, "");
    u.band = LLVMBuildSelect(e->b, is_first, hop_i(e, 0), band, "");
    u.n = LLVMBuildSelect(e->b, is_first, x->b.block, rest, "");
    u.mover = hop_add(e, LLVMBuildMul(e->b, i, movers, ""), LLVMBuildSub(e->b, rest, own, ""));
    return u;
}

/* The first tile meets all blocks, whatever its keys see: it stores their sums. */
static HV first_block(Joint *x, HV row) {
    Emit *e = x->b.e;
    if (!x->b.behind) return hop_i(e, 0);
    HV v[2] = {LLVMBuildSub(e->b, row, x->b.behind, ""), hop_i(e, 0)};
    v[0] = emit_intrinsic(e, "llvm.smax", e->i32, v, 2);
    v[0] = hop_shr(e, v[0], __builtin_ctz(x->t->block));
    v[1] = hop_addi(e, x->blocks, -1);
    v[0] = emit_intrinsic(e, "llvm.smin", e->i32, v, 2);
    return LLVMBuildSelect(e->b, hop_is(e, row, 0), hop_i(e, 0), v[0], "");
}

void joint_find_tile(Joint *x, const JointUnit *u) {
    Emit *e = x->b.e;
    HV wide = heads_of(x, u->band), first = LLVMBuildMul(e->b, u->band, x->band, "");
    x->number = LLVMBuildUDiv(e->b, u->n, wide, "");
    x->at.row = hop_muli(e, x->number, JOINT_KEYS);
    x->at.head = hop_add(e, first, LLVMBuildURem(e->b, u->n, wide, ""));
    x->at.first = first_block(x, x->at.row);
    x->at.blocks = LLVMBuildSub(e->b, x->blocks, x->at.first, "");
    if (x->p->any && !x->b.behind) x->start = LLVMBuildURem(e->b, x->number, x->blocks, "");
}

void joint_find_mover(Joint *x, const JointUnit *u) {
    Emit *e = x->b.e;
    x->at.head = LLVMBuildUDiv(e->b, u->mover, x->movers, "");
    x->number = LLVMBuildURem(e->b, u->mover, x->movers, "");
}

/* --- Barriers and blocks ---------------------------------------------------------------------- */

HV joint_bar(Joint *x, JointBar bar, HV stage) {
    Emit *e = x->b.e;
    uint32_t first = x->b.at_bar + (uint32_t)bar * HOP_BARRIER_BYTES;
    HV at = stage ? hop_add(e, x->b.shared, hop_shl(e, stage, 3)) : x->b.shared;
    return hop_addi(e, at, first);
}

HV joint_stage(Joint *x, HV j) {
    return hop_andi(x->b.e, j, JOINT_STAGES - 1);
}

HV joint_parity(Joint *x, HV j) {
    return hop_andi(x->b.e, hop_shr(x->b.e, j, __builtin_ctz(JOINT_STAGES)), 1);
}

/* Behind a mask tiles meet the last block first: that all tiles meet, and the first one that
 * started is ahead. */
HV joint_block(Joint *x, HV j) {
    Emit *e = x->b.e;
    if (x->b.behind) return LLVMBuildSub(e->b, hop_addi(e, x->blocks, -1), j, "");
    if (!x->start) return hop_add(e, x->at.first, j);
    j = hop_add(e, x->start, j);
    HV past = LLVMBuildICmp(e->b, LLVMIntUGE, j, x->blocks, "");
    return LLVMBuildSelect(e->b, past, LLVMBuildSub(e->b, j, x->blocks, ""), j, "");
}
