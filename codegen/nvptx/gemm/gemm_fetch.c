/* Who fetches: one thread asks the copy engine for the next k-block of A and B as soon as a stage
 * is empty, tile after tile; for B that stays once; for B that no kernel of the run writes before
 * the kernel in front has ended. */
#include "codegen/nvptx/gemm/gemm.h"

/* A tile of `rows` rows of the operand from `row` on, at k. Shared by twins: each fetches its half
 * for both. */
static void fetch_operand(Gemm *x, const GemmOperand *o, HV map, HV to, HV bar, HV row, HV k,
                          const HV *batch, uint32_t rows, bool shared) {
    Emit *e = x->e;
    HV at[2 + HOP_MAX_BATCH];
    for (uint32_t i = 0; i < o->mat[0].nbatch; i++) at[2 + i] = batch[i];
    if (shared) {
        uint32_t half = (o->across ? x->bk : rows) / 2;
        HV *first = o->across ? &k : &row;
        *first = hop_add(e, *first, hop_muli(e, x->rank, half));
        to = hop_add(e, to, hop_muli(e, x->rank, half * HOP_ROW_BYTES));
    }
    uint32_t panel = gemm_row_elements(&o->mat[0]), n = o->across ? rows / panel : 1;
    for (uint32_t i = 0; i < n; i++) {
        at[0] = o->across ? hop_addi(e, row, i * panel) : k;
        at[1] = o->across ? k : row;
        HV dst = hop_addi(e, to, i * x->bk * HOP_ROW_BYTES);
        (shared ? hop_tma_load_both : hop_tma_load)(e, dst, bar, map, at, 2 + o->mat[0].nbatch);
    }
}

/* The k-block's first k, of a window that of its tap. */
static HV block_k(Gemm *x, HV block, GemmPlace *at) {
    Emit *e = x->e;
    if (x->p->windowed && x->p->window.taps) {
        HV tap = LLVMBuildUDiv(e->b, block, x->tap_blocks, "");
        gemm_digits(x, x->p->window.taps, tap, at->axis);
        block = LLVMBuildSub(e->b, block, LLVMBuildMul(e->b, tap, x->tap_blocks, ""), "");
    }
    return hop_muli(e, block, x->bk);
}

static void fetch_a(Gemm *x, const GemmPlace *at, uint32_t part, HV k, HV stage, HV bar) {
    HV batch[HOP_MAX_BATCH], to = gemm_stage(x, stage);
    gemm_batch_at(&x->p->a.mat[0], at, batch);
    if (x->p->windowed)
        window_load(x->g, &x->p->window, to, bar, x->map_a[0], at->axis, at->past, k);
    else
        fetch_operand(x, &x->p->a, x->map_a[part], to, bar, at->row, k, batch, x->tile->m, false);
}

/* Says how much will come into the stage, of both operands, and asks for B. */
static void fetch_b(Gemm *x, const GemmPlace *at, uint32_t part, HV k, HV stage, HV bar) {
    Emit *e = x->e;
    HV batch[HOP_MAX_BATCH], to = gemm_stage(x, stage);
    hop_barrier_expect(e, bar, hop_i(e, x->fetched));
    for (uint32_t s = 0; s < x->d->nacc && !x->resident; s++) {
        HV dst = hop_addi(e, to, x->a_bytes + s * x->b_bytes);
        gemm_batch_at(&x->p->b[s].mat[0], at, batch);
        fetch_operand(x, &x->p->b[s], x->map_b[s][part], dst, bar, at->col, k, batch, x->cols,
                      x->p->twin);
    }
}

/* All k-blocks of B, for all tiles. */
static void fetch_resident(Gemm *x) {
    Emit *e = x->e;
    GemmPlace at = {.col = hop_i(e, 0)};
    HV bar = gemm_resident_barrier(x);
    uint32_t n = x->resident_bytes / x->b_bytes;
    hop_barrier_expect(e, bar, hop_i(e, x->resident_bytes));
    for (uint32_t i = 0; i < n; i++) {
        HV batch[HOP_MAX_BATCH], k = block_k(x, hop_i(e, i), &at);
        HV to = hop_addi(e, x->shared, x->resident + i * x->b_bytes);
        gemm_batch_at(&x->p->b[0].mat[0], &at, batch);
        fetch_operand(x, &x->p->b[0], x->map_b[0][0], to, bar, at.col, k, batch, x->cols, false);
    }
}

/* The tile of the addend, in stages of its own behind those of the k-blocks. */
static GemmRing fetch_addend(Gemm *x, const GemmPlace *at, GemmRing ring) {
    Emit *e = x->e;
    HV where[2 + HOP_MAX_BATCH];
    gemm_batch_at(&x->p->addend_mat, at, where + 2);
    where[1] = at->row;
    uint32_t panels = x->cols / GEMM_SLAB_COLS;
    for (uint32_t i = 0; i < x->addend_stages; i++, ring = gemm_next(x, ring)) {
        uint32_t first = i * x->addend_panels, n = panels - first;
        if (n > x->addend_panels) n = x->addend_panels;
        HV full = gemm_barrier(x, ring.stage, false), to = gemm_stage(x, ring.stage);
        hop_barrier_wait(e, gemm_barrier(x, ring.stage, true), ring.parity);
        hop_barrier_expect(e, full, hop_i(e, n * x->a_bytes));
        for (uint32_t z = 0; z < n; z++) {
            where[0] = hop_addi(e, at->col, (first + z) * GEMM_SLAB_COLS);
            hop_tma_load(e, hop_addi(e, to, z * x->a_bytes), full, x->map_addend, where,
                         2 + x->p->addend_mat.nbatch);
        }
    }
    return ring;
}

/* The k-blocks of a term, behind those of the sums that it is added to. */
static GemmRing fetch_term(Gemm *x, const GemmPlace *at, uint32_t i, GemmRing ring) {
    Emit *e = x->e;
    const GemmTerm *t = &x->p->term[i];
    HV batch[HOP_MAX_BATCH];
    HopLoop *l = gemm_loop(x, hop_i(e, 0), ring);
    hop_loop_begin(e, l, "fetch_term");
    ring = gemm_loop_ring(l);
    HV k = hop_muli(e, l->phi[0], x->bk), full = gemm_barrier(x, ring.stage, false);
    HV to = gemm_stage(x, ring.stage), to_b = hop_addi(e, to, x->a_bytes);
    hop_barrier_wait(e, gemm_barrier(x, ring.stage, true), ring.parity);
    hop_barrier_expect(e, full, hop_i(e, x->a_bytes + x->b_bytes));
    gemm_batch_at(&t->a.mat[0], at, batch);
    fetch_operand(x, &t->a, x->map_term[i][0], to, full, at->row, k, batch, x->tile->m, false);
    gemm_batch_at(&t->b.mat[0], at, batch);
    fetch_operand(x, &t->b, x->map_term[i][1], to_b, full, at->col, k, batch, x->cols, x->p->twin);
    ring = gemm_next(x, ring);
    gemm_loop_next(l, hop_addi(e, l->phi[0], 1), ring);
    hop_loop_end_while(e, l, hop_below(e, l->next[0], x->term_blocks[i]));
    return ring;
}

/* B of the first k-blocks, which fill the ring, where no kernel of the run writes it: that need not
 * wait for the kernel in front. */
static void fetch_early(Gemm *x) {
    Emit *e = x->e;
    HopIf one = hop_if(e, hop_elect(e));
    GemmPlace at = gemm_place_of(x, x->block);
    for (uint32_t s = 0; s < x->stages; s++) {
        HV stage = hop_i(e, s), block = hop_addi(e, x->first_block, s);
        HopIf in = hop_if(e, hop_below(e, block, x->end_block));
        fetch_b(x, &at, 0, block_k(x, block, &at), stage, gemm_barrier(x, stage, false));
        hop_end(e, in);
    }
    hop_end(e, one);
}

/* When the stage is empty. What fetch_early asked for is not asked for again. */
static void fetch_late(Gemm *x, const GemmPlace *at, HV tile, HV block, uint32_t part, HV k,
                       GemmRing ring) {
    Emit *e = x->e;
    HopIf late = {0};
    if (x->early) {
        HV first = LLVMBuildICmp(e->b, LLVMIntEQ, tile, x->block, "");
        HV nth = LLVMBuildSub(e->b, block, x->first_block, "");
        HV early = LLVMBuildAnd(e->b, first, hop_below(e, nth, hop_i(e, x->stages)), "");
        early = LLVMBuildAnd(e->b, early, hop_below(e, block, x->end_block),
                             ""); /* there may be none */
        late = hop_if(e, LLVMBuildNot(e->b, early, ""));
    }
    hop_barrier_wait(e, gemm_barrier(x, ring.stage, true), ring.parity);
    fetch_b(x, at, part, k, ring.stage, gemm_barrier(x, ring.stage, false));
    if (x->early) hop_end(e, late);
}

static GemmRing fetch_tile(Gemm *x, HV tile, GemmRing ring) {
    Emit *e = x->e;
    GemmPlace at = gemm_place_of(x, tile);
    if (x->p->windowed) at.past = gemm_digits(x, x->d->m, at.row, at.axis);
    HopLoop *l = gemm_loop(x, x->first_block, ring);
    hop_loop_begin(e, l, "fetch");
    ring = gemm_loop_ring(l);
    HV k = block_k(x, l->phi[0], &at);
    for (uint32_t part = 0; part < x->p->parts; part++, ring = gemm_next(x, ring)) {
        fetch_late(x, &at, tile, l->phi[0], part, k, ring);
        fetch_a(x, &at, part, k, ring.stage, gemm_barrier(x, ring.stage, false));
    }
    gemm_loop_next(l, hop_addi(e, l->phi[0], 1), ring);
    hop_loop_end_while(e, l, hop_below(e, l->next[0], x->end_block));
    for (uint32_t i = 0; i < x->p->nterms; i++) ring = fetch_term(x, &at, i, ring);
    return fetch_addend(x, &at, ring);
}

void gemm_fetch(Gemm *x) {
    Emit *e = x->e;
    if (x->tile->regs_load) hop_registers(e, x->tile->regs_load, false);
    HopIf first = hop_if(e, hop_is(e, x->warp, 0));
    if (x->early) fetch_early(x);
    if (x->dependent) hop_depend_wait(e);
    HopIf one = hop_if(e, hop_elect(e));
    if (x->resident) fetch_resident(x);
    const GemmRing start = {hop_i(e, 0),
                            hop_i(e, 1)}; /* the first wait for an empty stage passes */
    HopLoop *l = gemm_loop(x, x->block, start);
    hop_loop_begin(e, l, "fetch_tile");
    hop_loop_test(e, l, hop_below(e, l->phi[0], x->tiles));
    const GemmRing ring = fetch_tile(x, l->phi[0], gemm_loop_ring(l));
    gemm_loop_next(l, hop_add(e, l->phi[0], x->nblocks), ring);
    hop_loop_end(e, l);
    if (x->dependent && x->starts_late) hop_depend_launch(e);
    hop_end(e, one);
    hop_end(e, first);
    if (x->p->splits > 1) gemm_split_wait(x);
}
