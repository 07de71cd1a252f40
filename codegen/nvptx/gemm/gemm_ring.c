/* What both roles see alike: the ring of stages, and where a tile is. */
#include "codegen/nvptx/gemm/gemm.h"

HV gemm_barrier(Gemm *x, HV stage, bool empty) {
    uint32_t first = x->barriers + (empty ? x->stages * HOP_BARRIER_BYTES : 0);
    return hop_addi(x->e, hop_add(x->e, x->shared, hop_shl(x->e, stage, 3)), first);
}

/* Behind those of the ring. */
HV gemm_resident_barrier(Gemm *x) {
    return hop_addi(x->e, x->shared, x->barriers + 2 * x->stages * HOP_BARRIER_BYTES);
}

HV gemm_stage(Gemm *x, HV stage) {
    return hop_add(x->e, x->shared, hop_muli(x->e, stage, x->stage_bytes));
}

GemmRing gemm_next(Gemm *x, GemmRing at) {
    Emit *e = x->e;
    HV next = hop_addi(e, at.stage, 1), wrap = hop_is(e, next, x->stages);
    at.stage = LLVMBuildSelect(e->b, wrap, hop_i(e, 0), next, "");
    at.parity = LLVMBuildXor(e->b, at.parity, LLVMBuildZExt(e->b, wrap, e->i32, ""), "");
    return at;
}

void gemm_give_back(Gemm *x, HV stage, HV when) {
    Emit *e = x->e;
    HV thread = hop_andi(e, x->tid, HOP_WARPGROUP - 1), bar = gemm_barrier(x, stage, true);
    HV told = LLVMBuildICmp(e->b, LLVMIntULT, thread, hop_i(e, x->twins), "");
    told = LLVMBuildAnd(e->b, told, when, "");
    if (x->p->twin)
        hop_barrier_arrive_at(e, bar, thread, told);
    else
        hop_barrier_arrive(e, bar, told);
}

void gemm_hand_over(Gemm *x, GemmRing ring) {
    Emit *e = x->e;
    for (uint32_t i = 0; i < x->addend_stages; i++, ring = gemm_next(x, ring))
        hop_barrier_wait(e, gemm_barrier(x, ring.stage, false), ring.parity);
    hop_arrive(e, LLVMBuildSub(e->b, hop_i(e, 3), x->group, ""), 2 * HOP_WARPGROUP);
}

HopLoop *gemm_loop(Gemm *x, HV first, GemmRing ring) {
    HopLoop *l = hop_loop_new(x->e);
    hop_loop_init(l, first);
    hop_loop_init(l, ring.stage);
    hop_loop_init(l, ring.parity);
    return l;
}

GemmRing gemm_loop_ring(const HopLoop *l) {
    return (GemmRing){l->phi[1], l->phi[2]};
}

void gemm_loop_next(HopLoop *l, HV at, GemmRing ring) {
    l->next[0] = at;
    l->next[1] = ring.stage;
    l->next[2] = ring.parity;
}

HV gemm_digits(Gemm *x, uint32_t axes, HV flat, HV *axis) {
    Emit *e = x->e;
    const Kernel *k = x->g->k;
    for (uint32_t i = k->naxes; i-- > 0;) {
        if (!(axes >> i & 1)) continue;
        HV extent = hop_size(e, k->axes[i].extent);
        axis[i] = LLVMBuildURem(e->b, flat, extent, "");
        flat = LLVMBuildUDiv(e->b, flat, extent, "");
    }
    return flat;
}

void gemm_batch_at(const HopMatrix *m, const GemmPlace *place, HV *at) {
    for (uint32_t i = 0; i < m->nbatch; i++) at[i] = place->axis[m->axis[i]];
}

GemmPlace gemm_place_of(Gemm *x, HV t) {
    Emit *e = x->e;
    GemmPlace at = {0};
    if (x->d->batch) {
        HV per = LLVMBuildMul(e->b, x->rows_tiles, x->cols_tiles, "");
        at.batch = LLVMBuildUDiv(e->b, t, per, "");
        t = LLVMBuildSub(e->b, t, LLVMBuildMul(e->b, at.batch, per, ""), "");
        gemm_digits(x, x->d->batch, at.batch, at.axis);
    }
    HV band = hop_muli(e, x->cols_tiles, x->tile->raster);
    HV g = LLVMBuildUDiv(e->b, t, band, "");
    HV first = hop_muli(e, g, x->tile->raster);
    HV rest = LLVMBuildSub(e->b, t, LLVMBuildMul(e->b, g, band, ""), "");
    HV left[2] = {LLVMBuildSub(e->b, x->rows_tiles, first, ""), hop_i(e, x->tile->raster)};
    HV high = emit_intrinsic(e, "llvm.umin", e->i32, left, 2);
    HV col = LLVMBuildUDiv(e->b, rest, high, "");
    HV row = LLVMBuildSub(e->b, rest, LLVMBuildMul(e->b, col, high, ""), "");
    row = hop_add(e, first, row);
    if (x->p->twin) row = hop_add(e, hop_shl(e, row, 1), x->rank);
    at.row = hop_muli(e, row, x->tile->m);
    at.col = hop_muli(e, col, x->cols);
    return at;
}
