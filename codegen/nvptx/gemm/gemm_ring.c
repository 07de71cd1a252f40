/* The ring of stages, as both roles see it, and where a tile is along batch axes. */
#include "codegen/nvptx/gemm/gemm.h"

HV gemm_barrier(Gemm *x, HV stage, bool empty) {
    uint32_t first = x->barriers + (empty ? x->stages * HOP_BARRIER_BYTES : 0);
    return hop_addi(x->e, hop_add(x->e, x->shared, hop_shl(x->e, stage, 3)), first);
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
    HV told = LLVMBuildICmp(e->b, LLVMIntULT, thread, hop_i(e, x->p->twin ? 2 : 1), "");
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
