/* Sums of queries in any order: the places of heads in memory, and how warpgroups add to them. */
#include "codegen/nvptx/flash/joint.h"

enum { ALIGN = 128 };
/* Tiles of a band, about what fills a GPU, and its heads at least; bands that have places: that of
 * the tiles, the one that is moved, and one more, so that nobody waits for a place. */
enum { BAND_TILES = 128, BAND_HEADS = 4, BANDS = 3 };

Expr joint_movers(Joint *x, Expr blocks) {
    ExprPool *p = x->b.e->exprs;
    return expr_ceildiv(p, blocks, expr_const(p, JOINT_MOVED));
}

void joint_places(Joint *x, Expr tiles, Expr blocks) {
    Emit *e = x->b.e;
    ExprPool *p = e->exprs;
    Expr heads = x->p->b.heads, fill = expr_div(p, expr_const(p, BAND_TILES), tiles);
    Expr band = expr_max(p, fill, expr_const(p, BAND_HEADS));
    Expr places = expr_min(p, expr_muli(p, band, BANDS), heads);
    Expr counts = expr_muli(p, heads, JOINT_COUNTS * JOINT_WORD);
    counts = expr_muli(p, expr_ceildiv(p, counts, expr_const(p, ALIGN)), ALIGN);
    Expr sums = expr_muli(p, expr_mul(p, places, blocks), JOINT_BLOCK);
    x->counts = gpu_zeroed(x->b.g, expr_add(p, counts, sums), true);
    x->sums = emit_gep(e, e->i8, x->counts, emit_expr(e, counts));
    x->band = hop_size(e, band);
    x->places = hop_size(e, places);
    x->movers = hop_size(e, joint_movers(x, blocks));
}

HV joint_count(Joint *x, JointCount what, HV head) {
    Emit *e = x->b.e;
    HV at = hop_add(e, hop_muli(e, x->b.heads, what), head);
    return emit_gep(e, e->i32, x->counts, LLVMBuildZExt(e->b, at, e->i64, ""));
}

static HV times(Emit *e, HV n, uint32_t bytes) {
    return LLVMBuildMul(e->b, LLVMBuildZExt(e->b, n, e->i64, ""),
                        LLVMConstInt(e->i64, bytes, false), "");
}

HV joint_part(Joint *x, HV m, HV member) {
    Emit *e = x->b.e;
    HV place = LLVMBuildURem(e->b, x->at.head, x->places, "");
    HV block = hop_add(e, LLVMBuildMul(e->b, place, x->blocks, ""), m);
    HV at = LLVMBuildAdd(e->b, times(e, block, JOINT_BLOCK), times(e, member, JOINT_PART), "");
    return LLVMBuildPtrToInt(e->b, emit_gep(e, e->i8, x->sums, at), e->i64, "");
}

void joint_any_begin(Joint *x, HV lane0) {
    Emit *e = x->b.e;
    HopIf one = hop_if(e, lane0);
    HopIf taken = hop_if(e, LLVMBuildICmp(e->b, LLVMIntUGE, x->at.head, x->places, ""));
    HV front = LLVMBuildSub(e->b, x->at.head, x->places, "");
    joint_await(x, joint_count(x, JOINT_gone, front), hop_muli(e, x->movers, JOINT_GROUPS));
    hop_end(e, taken);
    hop_end(e, one);
    hop_warp_sync(e);
}

void joint_any_add(Joint *x, HV to, HV m, const HV *sums) {
    Emit *e = x->b.e;
    HV at = LLVMBuildAdd(e->b, to, times(e, m, JOINT_BLOCK), "");
    for (uint32_t i = 0; i < JOINT_FOURS; i++) {
        const HV *s = sums + 4 * i;
        HV v[6] = {at, hop_i(e, i * JOINT_FOUR_STEP), s[0], s[1], s[2], s[3]};
        hop_asm(e, e->voidt, "red.relaxed.gpu.global.add.v4.f32 [$0 + $1], {$2, $3, $4, $5};",
                "l,n,f,f,f,f,~{memory}", v, 6);
    }
}

void joint_any_end(Joint *x, HV member, HV one) {
    Emit *e = x->b.e;
    hop_sync(e, hop_addi(e, member, JOINT_NAMED_GROUP), HOP_WARPGROUP);
    HopIf is = hop_if(e, one);
    HV done = joint_count(x, JOINT_done, x->at.head); /* behind all that the warpgroup has added */
    hop_asm(e, e->voidt, "red.release.gpu.global.add.u32 [$0], 1;", "l,~{memory}", &done, 1);
    hop_end(e, is);
}
