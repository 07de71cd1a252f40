/* Long sums of few tiles: the blocks of a cluster share a tile's k-blocks. When all are through,
 * each puts its sums into the rings of those that store them, which nobody fetches into any more;
 * they are added in order, so that results repeat. The first block stores the tile or, where
 * threads store what they have, each a part of its columns. */
#include "codegen/nvptx/gemm/gemm.h"
#include <string.h>

enum { LANES = 4 }; /* sums that are moved at once: a thread's of 8 columns */

static uint32_t stores(const Gemm *x) {
    return gemm_stores_apart(x) ? x->p->splits : 1;
}

/* Columns, in eights, that block r stores. */
static void set_part(Gemm *x, uint32_t r) {
    uint32_t n = x->cols / 8, parts = stores(x);
    x->from = r * n / parts;
    x->to = (r + 1) * n / parts;
}

/* Where this thread's sums number i .. i + 3 of another block's lie in a ring; `other`: which of
 * those that are not the ring's own. */
static HV slot(Gemm *x, HV other, uint32_t i) {
    Emit *e = x->e;
    uint32_t parts = stores(x), threads = x->tile->groups * HOP_WARPGROUP;
    uint32_t n = wgmma_acc(&x->shape) / (x->cols / 8) * ((x->cols / 8 + parts - 1) / parts);
    HV thread = hop_addi(e, x->tid, -HOP_WARPGROUP);
    HV at = hop_muli(e, other, threads * n * 4);
    at = hop_add(e, at, hop_shl(e, thread, 4));
    return hop_add(e, x->shared, hop_addi(e, at, i * threads * 4));
}

/* Sums of the part's unit u. */
static uint32_t unit_at(const Gemm *x, uint32_t u) {
    uint32_t each = x->shape.n / 2, width = x->to - x->from;
    return u / width * each + (x->from + u % width) * LANES;
}

static uint32_t units(const Gemm *x) {
    return wgmma_acc(&x->shape) / (x->shape.n / 2) * (x->to - x->from);
}

static void give(Gemm *x, HV to, HV other, const HV *acc) {
    Emit *e = x->e;
    for (uint32_t u = 0; u < units(x); u++) {
        HV bits[LANES];
        const HV *sum = acc + unit_at(x, u);
        for (uint32_t z = 0; z < LANES; z++) bits[z] = LLVMBuildBitCast(e->b, sum[z], e->f32, "");
        hop_store_in(e, to, slot(x, other, u * LANES), bits);
    }
}

static HV plus(Emit *e, HV sum, HV bits) {
    if (LLVMTypeOf(sum) == e->f32) return LLVMBuildFAdd(e->b, sum, bits, "");
    return LLVMBuildAdd(e->b, sum, LLVMBuildBitCast(e->b, bits, e->i32, ""), "");
}

static void add_others(Gemm *x, HV *acc) {
    Emit *e = x->e;
    for (uint32_t r = 0; r + 1 < x->p->splits; r++)
        for (uint32_t u = 0; u < units(x); u++) {
            HV v[LANES], *sum = acc + unit_at(x, u);
            hop_load_four(e, slot(x, hop_i(e, r), u * LANES), v);
            for (uint32_t z = 0; z < LANES; z++) sum[z] = plus(e, sum[z], v[z]);
        }
}

void gemm_split_wait(Gemm *x) {
    hop_cluster_sync(x->e); /* nobody reads its ring any more */
    hop_cluster_sync(x->e); /* all sums are there */
}

static void exchange(Gemm *x, const HV *acc) {
    Emit *e = x->e;
    hop_cluster_sync(e);
    for (uint32_t r = 0; r < stores(x); r++) {
        set_part(x, r);
        HopIf theirs = hop_if(e, LLVMBuildNot(e->b, hop_is(e, x->rank, r), ""));
        HV behind = LLVMBuildICmp(e->b, LLVMIntUGT, x->rank, hop_i(e, r), "");
        HV other = LLVMBuildSub(e->b, x->rank, LLVMBuildZExt(e->b, behind, e->i32, ""), "");
        give(x, hop_i(e, r), other, acc);
        hop_end(e, theirs);
    }
    hop_cluster_sync(e);
}

void gemm_split_store(Gemm *x, const GemmPlace *tile, const HV *acc, GemmRing ring) {
    Emit *e = x->e;
    uint32_t n = wgmma_acc(&x->shape);
    HV *sums = ARENA_ARRAY(e->arena, HV, n);
    exchange(x, acc);
    for (uint32_t r = 0; r < stores(x); r++) {
        set_part(x, r);
        HopIf own = hop_if(e, hop_is(e, x->rank, r));
        memcpy(sums, acc, n * sizeof *sums);
        add_others(x, sums);
        (void)gemm_epilogue(x, tile, sums, ring);
        hop_end(e, own);
    }
}
