/* Who multiplies: waits until a stage is full, starts its products, and gives back the stage
 * before, whose products are over by then; a tile's sums go to the epilogue.
 *
 * In pingpong, two warpgroups take turns: one multiplies while the other stores. */
#include "codegen/nvptx/gemm/gemm.h"

enum { NAMED_TURN = 1 }; /* and the next: whose turn it is */

/* --- A stage ---------------------------------------------------------------------------------- */

/* Products of the k-block in `stage`, which is number `block`, added to acc where `more`. */
static void multiply_block(Gemm *x, HV member, HV block, HV stage, HV *acc, HV more) {
    Emit *e = x->e;
    HV a[4], b[K_MAX_ACC], from = gemm_stage(x, stage), mine = from;
    HV from_b = hop_addi(e, from, x->a_bytes);
    if (x->resident)
        from_b = hop_add(e, x->shared, hop_addi(e, hop_muli(e, block, x->b_bytes), x->resident));
    if (!x->tile->pingpong)
        mine = hop_add(e, from, hop_muli(e, member, x->shape.blocks * HOP_SLAB));
    for (uint32_t i = 0; i < x->shape.blocks; i++)
        a[i] = wgmma_descriptor(e, &x->shape.a, hop_addi(e, mine, i * HOP_SLAB));
    for (uint32_t s = 0; s < x->d->nacc; s++)
        b[s] = wgmma_descriptor(e, &x->shape.b, hop_addi(e, from_b, s * x->b_bytes));
    wgmma_block(e, &x->shape, acc, a, b, more);
}

/* The same of term `i`, whose operands may lie in another order; a short one has fewer steps. */
static void multiply_term(Gemm *x, HV member, uint32_t i, HV stage, HV *acc) {
    Emit *e = x->e;
    const GemmTerm *t = &x->p->term[i];
    WgmmaShape shape = x->shape;
    int64_t k;
    HV a[4], from = gemm_stage(x, stage), mine = from;
    shape.sums = 1;
    shape.a.across = t->a.across;
    shape.b.across = t->b.across;
    if (expr_is_const(e->exprs, t->k, &k) && k < (int64_t)x->bk)
        shape.ksteps = (uint32_t)((k * shape.ksteps + x->bk - 1) / x->bk);
    if (!x->tile->pingpong) mine = hop_add(e, from, hop_muli(e, member, shape.blocks * HOP_SLAB));
    for (uint32_t z = 0; z < shape.blocks; z++)
        a[z] = wgmma_descriptor(e, &shape.a, hop_addi(e, mine, z * HOP_SLAB));
    HV b = wgmma_descriptor(e, &shape.b, hop_addi(e, from, x->a_bytes));
    wgmma_block(e, &shape, acc + t->to * wgmma_acc(&shape), a, &b, LLVMConstInt(e->i1, 1, false));
}

/* --- Sums that grow outside of matrix units --------------------------------------------------- */

/* Stages that are summed by themselves: the parts of a k-block, or some k-blocks. They are waited
 * for. */
static GemmRing multiply_parts(Gemm *x, HV member, GemmRing ring, HV *sum) {
    Emit *e = x->e;
    uint32_t n = wgmma_acc(&x->shape);
    HV before = NULL, always = LLVMConstInt(e->i1, 1, false);
    for (uint32_t i = 0; i < n; i++) sum[i] = LLVMGetUndef(wgmma_sum_type(e, x->p->type));
    for (uint32_t part = 0; part < x->p->parts * x->together; part++, ring = gemm_next(x, ring)) {
        hop_barrier_wait(e, gemm_barrier(x, ring.stage, false), ring.parity);
        multiply_block(x, member, NULL, ring.stage, sum, LLVMConstInt(e->i1, part > 0, false));
        if (before) {
            wgmma_wait(e, 1);
            gemm_give_back(x, before, always);
        }
        before = ring.stage;
    }
    wgmma_wait_all(e, sum, n);
    gemm_give_back(x, before, always);
    return ring;
}

/* As multiply, where matrix units cut what they add, so that sums grow outside of them. What four
 * steps along k of each digit cut off is 2^-23 of the block's sum on average: that is given back */
static GemmRing multiply_promoted(Gemm *x, HV member, GemmRing ring, HV *acc) {
    Emit *e = x->e;
    uint32_t n = wgmma_acc(&x->shape);
    HV *sum = ARENA_ARRAY(e->arena, HV, n), kept = LLVMConstReal(e->f32, GEMM_KEPT);
    bool digits = x->p->parts > 1;
    HopLoop *l = gemm_loop(x, hop_i(e, 0), ring);
    for (uint32_t i = 0; i < n; i++) hop_loop_init(l, LLVMConstReal(e->f32, 0));
    hop_loop_begin(e, l, "multiply");
    ring = multiply_parts(x, member, gemm_loop_ring(l), sum);
    for (uint32_t i = 0; i < n; i++)
        acc[i] = digits ? emit_fma(e, sum[i], kept, l->phi[GEMM_CARRIED + i])
                        : LLVMBuildFAdd(e->b, sum[i], l->phi[GEMM_CARRIED + i], "");
    gemm_loop_next(l, hop_addi(e, l->phi[0], x->together), ring);
    for (uint32_t i = 0; i < n; i++) l->next[GEMM_CARRIED + i] = acc[i];
    hop_loop_end_while(e, l, hop_below(e, l->next[0], x->kblocks));
    return ring;
}

/* --- Sums that stay in them ------------------------------------------------------------------- */

/* Adds the products of the k-blocks from `ring` on, those of all sums or of term `term`; returns
 * what comes after the last, which is in *last. */
static GemmRing multiply_blocks(Gemm *x, HV member, int term, GemmRing ring, HV *acc, HV *last) {
    Emit *e = x->e;
    uint32_t n = wgmma_acc(&x->shape);
    HV first = term < 0 ? x->first_block : hop_i(e, 0);
    HV end = term < 0 ? x->end_block : x->term_blocks[term];
    HopLoop *l = gemm_loop(x, first, ring);
    hop_loop_init(l, *last); /* the stage before */
    for (uint32_t i = 0; i < n; i++) hop_loop_init(l, acc[i]);
    hop_loop_begin(e, l, "multiply");
    HV at = l->phi[1], more = LLVMConstInt(e->i1, 1, false);
    if (term < 0) more = LLVMBuildICmp(e->b, LLVMIntNE, l->phi[0], first, "");
    hop_barrier_wait(e, gemm_barrier(x, at, false), l->phi[2]);
    for (uint32_t i = 0; i < n; i++) acc[i] = l->phi[GEMM_CARRIED + 1 + i];
    if (term < 0)
        multiply_block(x, member, l->phi[0], at, acc, more);
    else
        multiply_term(x, member, (uint32_t)term, at, acc);
    wgmma_wait(e, 1);
    gemm_give_back(x, l->phi[GEMM_CARRIED], more);
    ring = gemm_next(x, (GemmRing){at, l->phi[2]});
    gemm_loop_next(l, hop_addi(e, l->phi[0], 1), ring);
    l->next[GEMM_CARRIED] = at;
    for (uint32_t i = 0; i < n; i++) l->next[GEMM_CARRIED + 1 + i] = acc[i];
    hop_loop_end_while(e, l, hop_below(e, l->next[0], end));
    *last = at;
    return ring;
}

/* Sums of the tile whose first k-block is in `ring`; returns what comes after the last. */
static GemmRing multiply(Gemm *x, HV member, GemmRing ring, HV *acc) {
    Emit *e = x->e;
    uint32_t n = wgmma_acc(&x->shape);
    HV last = hop_i(e, 0);
    for (uint32_t i = 0; i < n; i++) acc[i] = LLVMGetUndef(wgmma_sum_type(e, x->p->type));
    ring = multiply_blocks(x, member, -1, ring, acc, &last);
    for (uint32_t i = 0; i < x->p->nterms; i++)
        ring = multiply_blocks(x, member, (int)i, ring, acc, &last);
    if (x->tile->pingpong) gemm_hand_over(x, ring);
    wgmma_wait_all(e, acc, n);
    gemm_give_back(x, last, LLVMConstInt(e->i1, 1, false));
    return ring;
}

/* --- Tiles ------------------------------------------------------------------------------------ */

/* The first tile, and how far it is to the next. Pingpong: two warpgroups share the block's. */
static void own_tiles(Gemm *x, HV member, HV *first, HV *step) {
    Emit *e = x->e;
    *first = x->block;
    *step = x->nblocks;
    if (!x->tile->pingpong) return;
    *first = hop_add(e, x->block, LLVMBuildMul(e->b, member, x->nblocks, ""));
    *step = hop_shl(e, x->nblocks, 1);
    HopIf second = hop_if(e, hop_is(e, member, 1));
    hop_arrive(e, hop_i(e, NAMED_TURN), 2 * HOP_WARPGROUP);
    hop_end(e, second);
}

/* One tile: in pingpong when it is this warpgroup's turn. */
static GemmRing compute_tile(Gemm *x, HV member, HV tile, GemmRing ring) {
    Emit *e = x->e;
    GemmPlace at = gemm_place_of(x, tile);
    HV *acc = ARENA_ARRAY(e->arena, HV, wgmma_acc(&x->shape));
    gemm_ask_columns(x, &at);
    if (x->tile->pingpong) hop_sync(e, x->group, 2 * HOP_WARPGROUP);
    ring = (x->p->exact      ? gemm_multiply_exact
            : x->p->promoted ? multiply_promoted
                             : multiply)(x, member, ring, acc);
    if (!x->tile->pingpong)
        at.row = hop_add(e, at.row, hop_muli(e, member, x->shape.blocks * HOP_SLAB_ROWS));
    if (x->p->splits == 1) return gemm_epilogue(x, &at, acc, ring);
    gemm_split_store(x, &at, acc, ring);
    return ring;
}

/* Pingpong counts the stages that both have taken so far. */
static GemmRing ring_at(Gemm *x, HV taken) {
    Emit *e = x->e;
    HV round = LLVMBuildUDiv(e->b, taken, hop_i(e, x->stages), "");
    HV stage = LLVMBuildSub(e->b, taken, hop_muli(e, round, x->stages), "");
    return (GemmRing){stage, hop_andi(e, round, 1)};
}

void gemm_compute(Gemm *x) {
    Emit *e = x->e;
    const GemmTile *t = x->tile;
    if (t->regs_math) hop_registers(e, t->regs_math, true);
    if (x->dependent) hop_depend_wait(e);
    if (x->resident) hop_barrier_wait(e, gemm_resident_barrier(x), hop_i(e, 0));
    HV member = hop_addi(e, x->group, -1), each = hop_addi(e, x->tile_blocks, x->addend_stages);
    HV first, step;
    HopLoop *l = hop_loop_new(e);
    own_tiles(x, member, &first, &step);
    hop_loop_init(l, first);
    hop_loop_init(l, t->pingpong ? LLVMBuildMul(e->b, member, each, "") : hop_i(e, 0));
    if (!t->pingpong) hop_loop_init(l, hop_i(e, 0));
    /* What the epilogue keeps for all tiles is computed here, where only this role comes by. */
    EmitScope *outer = e->scope;
    e->scope = NULL;
    emit_push(e);
    LLVMBasicBlockRef pre = LLVMGetInsertBlock(e->b);
    hop_loop_begin(e, l, "compute_tile");
    hop_loop_test(e, l, hop_below(e, l->phi[0], x->tiles));
    emit_push_region(e, pre);
    GemmRing ring = t->pingpong ? ring_at(x, l->phi[1]) : (GemmRing){l->phi[1], l->phi[2]};
    ring = compute_tile(x, member, l->phi[0], ring);
    l->next[0] = hop_add(e, l->phi[0], step);
    l->next[1] = t->pingpong ? hop_add(e, l->phi[1], hop_shl(e, each, 1)) : ring.stage;
    l->next[2] = ring.parity;
    emit_pop(e);
    hop_loop_end(e, l);
    hop_tma_wait(e);
    e->scope = outer;
}
