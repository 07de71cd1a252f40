/* Long sums of few tiles: the blocks of a cluster share a tile's k-blocks. When all are through,
 * the others put their sums into the first one's ring, which nobody fetches into any more; it adds
 * them in order, so that results repeat, and stores the tile. */
#include "codegen/nvptx/gemm/gemm.h"

enum { LANES = 4 }; /* sums that are moved at once */

/* Where this thread's sums number i .. i + 3 of block `rank` lie in the first block. */
static HV slot(Gemm *x, HV rank, uint32_t i) {
    Emit *e = x->e;
    uint32_t n = wgmma_acc(&x->shape), threads = x->tile->groups * HOP_WARPGROUP;
    HV thread = hop_addi(e, x->tid, -HOP_WARPGROUP);
    HV at = hop_muli(e, hop_addi(e, rank, -1), threads * n * 4);
    at = hop_add(e, at, hop_shl(e, thread, 4));
    return hop_add(e, x->shared, hop_addi(e, at, i * threads * 4));
}

static void give(Gemm *x, const HV *acc) {
    for (uint32_t i = 0; i < wgmma_acc(&x->shape); i += LANES)
        hop_store_first(x->e, slot(x, x->rank, i), acc + i);
}

void gemm_split_add(Gemm *x, HV *acc) {
    Emit *e = x->e;
    for (uint32_t r = 1; r < x->p->splits; r++)
        for (uint32_t i = 0; i < wgmma_acc(&x->shape); i += LANES) {
            HV v[LANES];
            hop_load_four(e, slot(x, hop_i(e, r), i), v);
            for (uint32_t z = 0; z < LANES; z++)
                acc[i + z] = LLVMBuildFAdd(e->b, acc[i + z], v[z], "");
        }
}

void gemm_split_wait(Gemm *x) {
    hop_cluster_sync(x->e); /* nobody reads its ring any more */
    hop_cluster_sync(x->e); /* all sums are there */
}

HV gemm_split_join(Gemm *x, HV *acc) {
    Emit *e = x->e;
    HV first = hop_is(e, x->rank, 0);
    hop_cluster_sync(e);
    HopIf other = hop_if(e, LLVMBuildNot(e->b, first, ""));
    give(x, acc);
    hop_end(e, other);
    hop_cluster_sync(e);
    return first;
}
