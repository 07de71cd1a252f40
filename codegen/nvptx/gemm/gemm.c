/* The roles of a tensor-core contraction and the ring between them.
 *
 * Warpgroup 0 fetches: one thread asks the copy engine for the next k-block of A and B as soon as a
 * stage is empty. The other warpgroups multiply: they wait until a stage is full, start its
 * products, and give back the stage before, whose products are over by then. Blocks stay and take
 * every so-many-th tile, so that fetching runs ahead into the next tile while results are stored.
 *
 * In pingpong, two warpgroups take turns: one multiplies while the other stores. */
#include "codegen/nvptx/gemm/gemm.h"

enum { NAMED_TURN = 1 }; /* and the next: whose turn it is */

static HV below(Emit *e, HV a, HV b) {
    return LLVMBuildICmp(e->b, LLVMIntULT, a, b, "");
}

/* --- Set-up ----------------------------------------------------------------------------------- */

/* Elements in a row of shared memory. */
static uint32_t row_elements(const HopMatrix *m) {
    return HOP_ROW_BYTES / (uint32_t)dtype_bytes(m->t);
}

/* Rows of A that are fetched: of few, only so many; what else is multiplied is not stored. */
static uint32_t fetched_rows(const Gemm *x) {
    int64_t lo, hi;
    expr_range(x->e->exprs, x->p->m, &lo, &hi);
    bool few = !x->p->a.across && !x->p->windowed && hi > 0 && hi < (int64_t)x->tile->m;
    return few ? (uint32_t)(hi + 7) / 8 * 8 : x->tile->m;
}

/* Rows of A that a stage has room for. Past those that are fetched, matrix units read some of the
 * stage's B in place of rows that nobody stores. */
static uint32_t staged_rows(const Gemm *x) {
    uint32_t rows = fetched_rows(x), m = x->tile->m, n = x->tile->n;
    if (x->p->exact || x->p->nterms) return m;
    return m > n && rows < m - n ? m - n : rows;
}

/* One for each part; parts that are the same matrix share theirs. */
static void operand_maps(Gemm *x, const GemmOperand *o, uint32_t rows, bool shared, HV *maps) {
    uint32_t n = (o->across ? x->bk : rows) / (shared ? 2 : 1);
    for (uint32_t i = 0; i < x->p->parts; i++) {
        for (uint32_t j = 0; j < i && !maps[i]; j++)
            if (o->mat[j].base == o->mat[i].base) maps[i] = maps[j];
        if (!maps[i]) maps[i] = hop_matrix_map(x->g, &o->mat[i], row_elements(&o->mat[i]), n);
    }
}

static void make_maps(Gemm *x) {
    if (x->p->windowed)
        x->map_a[0] = window_map(x->g, &x->p->window, x->tile->m);
    else
        operand_maps(x, &x->p->a, fetched_rows(x), false, x->map_a);
    for (uint32_t s = 0; s < x->d->nacc; s++)
        operand_maps(x, &x->p->b[s], x->cols, x->p->twin, x->map_b[s]);
    for (uint32_t i = 0; i < x->p->nterms; i++) {
        const GemmTerm *t = &x->p->term[i];
        operand_maps(x, &t->a, x->tile->m, false, &x->map_term[i][0]);
        operand_maps(x, &t->b, x->cols, x->p->twin, &x->map_term[i][1]);
    }
    if (x->p->addend) {
        const HopMatrix *m = &x->p->addend_mat;
        x->map_addend = hop_matrix_map(x->g, m, row_elements(m), staged_rows(x));
    }
    for (uint32_t i = 0; i < x->p->nouts; i++) {
        const HopMatrix *m = &x->p->out[i].mat;
        if (x->p->out[i].copied)
            x->map_out[i] = hop_matrix_map(x->g, m, x->slab_cols, HOP_SLAB_ROWS);
    }
}

/* As many as there are tiles and shares, for the rows that the tile was chosen for. */
static int64_t usual_blocks(const Gemm *x) {
    int64_t twins = x->p->twin ? 2 : 1, n = gpu_hint(x->e, x->p->n);
    int64_t rows = (x->p->rows + x->tile->m * twins - 1) / (x->tile->m * twins);
    return rows * ((n + x->cols - 1) / x->cols) * gpu_hint(x->e, x->p->batch) * twins *
           x->p->splits;
}

/* Of all k-blocks of B; 0: not known. */
static uint32_t resident_bytes(const Gemm *x) {
    int64_t k, taps;
    if (!expr_is_const(x->e->exprs, x->p->k, &k) || !expr_is_const(x->e->exprs, x->p->taps, &taps))
        return 0;
    int64_t n = taps * ((k + x->bk - 1) / x->bk) * x->b_bytes;
    return n < UINT16_MAX * (int64_t)HOP_ROW_BYTES ? (uint32_t)n : 0;
}

enum { RESIDENT_STAGES = 4 };

/* All tiles of a block have the same B, and room for all of it: it is fetched once. */
static bool resides(const Gemm *x) {
    const GemmPlan *p = x->p;
    int64_t n;
    uint32_t b = resident_bytes(x), ring = x->tile->stages * (x->a_bytes + x->b_bytes);
    if (!b || p->promoted || x->d->nacc > 1 || p->nterms || p->splits > 1 || p->twin) return false;
    if (x->d->batch || !expr_is_const(x->e->exprs, p->n, &n) || n > x->cols) return false;
    return b + RESIDENT_STAGES * x->a_bytes <= ring && usual_blocks(x) > x->g->m->processors;
}

static uint32_t staging_bytes(const GemmTile *t) {
    return t->groups * t->slabs * t->sets * HOP_SLAB;
}

/* Bytes of a ring that keep memory busy. More delays the kernel behind: it begins to fetch when the
 * last of this one's blocks has asked for its last stage. */
enum { UNDER_WAY = 116 << 10 };

/* Of few rows, B comes from memory as fast as enough bytes are on their way: as many stages as that
 * takes, however small they are. Sums that blocks share go through the ring, too. */
static uint32_t count_stages(const Gemm *x) {
    const GemmTile *t = x->tile;
    if (staged_rows(x) == t->m) return t->stages;
    uint32_t room = (uint32_t)x->g->m->shared - staging_bytes(t) - HOP_BARRIER_BYTES;
    uint32_t most = room / (x->stage_bytes + 2 * HOP_BARRIER_BYTES);
    uint32_t sums = (x->p->splits - 1) * (uint32_t)sizeof(float) * t->m * t->n;
    uint32_t ring = sums > UNDER_WAY ? sums : UNDER_WAY;
    uint32_t enough = (ring + x->stage_bytes - 1) / x->stage_bytes;
    return enough < most ? enough : most;
}

static void lay_out(Gemm *x) {
    const GemmTile *t = x->tile;
    uint32_t block_rows = t->pingpong ? t->m : t->m / t->groups;
    x->bk = row_elements(&x->p->a.mat[0]);
    x->cols = t->n / x->d->nacc;
    x->slab_cols = x->cols < GEMM_SLAB_COLS ? x->cols : GEMM_SLAB_COLS;
    if (x->words) x->slab_cols = GEMM_SLAB_COLS / 2;
    x->a_bytes = staged_rows(x) * HOP_ROW_BYTES;
    x->b_bytes = x->cols * HOP_ROW_BYTES;
    x->stage_bytes = x->a_bytes + x->d->nacc * x->b_bytes;
    x->fetched = x->stage_bytes;
    x->stages = count_stages(x);
    uint32_t ring = x->stages * x->stage_bytes;
    if (x->p->exact) {
        x->stage_bytes += x->b_bytes * (x->p->b[0].across ? 2 : 1);
        x->stages = ring / x->stage_bytes;
    }
    if (resides(x)) {
        x->fetched = x->stage_bytes = x->a_bytes;
        x->stages = (ring - resident_bytes(x)) / x->a_bytes;
        x->resident = x->stages * x->a_bytes;
    }
    x->staging = ring;
    x->barriers = x->staging + staging_bytes(t);
    x->g->j->shared_bytes = x->barriers + (2 * x->stages + 1) * HOP_BARRIER_BYTES;
    x->shape = (WgmmaShape){.type = x->p->type,
                            .n = x->cols,
                            .ksteps = HOP_ROW_BYTES / 32,
                            .blocks = block_rows / HOP_SLAB_ROWS,
                            .sums = x->d->nacc,
                            .a = {x->p->a.across, x->bk * HOP_ROW_BYTES},
                            .b = {x->p->b[0].across && !x->p->exact, x->bk * HOP_ROW_BYTES}};
}

/* A panel of the addend is as large as A's tile; what does not fit in one stage is split evenly. */
static void lay_out_addend(Gemm *x) {
    if (!x->p->addend) return;
    uint32_t panels = x->cols / 64, most = x->stage_bytes / x->a_bytes;
    x->addend_stages = (panels + most - 1) / most;
    x->addend_panels = (panels + x->addend_stages - 1) / x->addend_stages;
}

/* K-blocks of 8 bits that matrix units add up before their sums are added in f32, where that comes
 * out even: 512 products in 14 bits. */
enum { SUMMED_AT_ONCE = 4 };

static void count_tiles(Gemm *x) {
    ExprPool *p = x->e->exprs;
    uint32_t twins = x->p->twin ? 2 : 1; /* a tile is theirs together */
    uint32_t cluster = twins * x->p->splits;
    Expr rows = expr_ceildiv(p, x->p->m, expr_const(p, x->tile->m * twins));
    Expr cols = expr_ceildiv(p, x->p->n, expr_const(p, x->cols));
    Expr all = expr_mul(p, expr_mul(p, rows, cols), x->p->batch);
    /* Of several waves, convolutions alone gain by an early start. */
    const bool one_wave = usual_blocks(x) <= x->g->m->processors;
    x->dependent = one_wave || x->p->windowed;
    x->g->j->dependent = x->dependent;
    /* Twins fetch for each other. Blocks that share a convolution's sums gain nothing (6.43
     * and 6.80 us). */
    x->early = one_wave && x->p->parts == 1 && !x->p->twin;
    x->early = x->early && (x->p->splits == 1 || !x->p->windowed);
    for (uint32_t s = 0; s < x->d->nacc; s++) x->early &= x->g->j->stable[x->p->b[s].mat[0].buf];
    x->g->order = GPU_OWN_ORDER;
    x->g->j->min_blocks = 1; /* the registers at entry follow from it */
    /* Blocks that share sums have one tile. */
    Expr most = expr_const(p, x->g->m->processors / twins);
    Expr blocks = x->p->splits > 1 ? all : expr_min(p, all, most);
    gpu_launch(x->g, HOP_WARPGROUP * (x->tile->groups + 1), expr_muli(p, blocks, cluster), 0, 0);
    if (cluster > 1) {
        x->g->j->cluster[0] = cluster;
        x->g->j->cluster[1] = x->g->j->cluster[2] = 1;
    }
    x->rows_tiles = hop_size(x->e, rows);
    x->cols_tiles = hop_size(x->e, cols);
    x->tiles = hop_size(x->e, all);
    Expr tap = expr_ceildiv(p, x->p->k, expr_const(p, x->bk));
    x->tap_blocks = hop_size(x->e, tap);
    Expr of_tile = expr_mul(p, tap, x->p->taps);
    x->kblocks = hop_size(x->e, of_tile);
    x->together = x->p->parts > 1 ? 1 : SUMMED_AT_ONCE;
    while (expr_divisor(p, of_tile) % x->together) x->together /= 2;
    for (uint32_t i = 0; i < x->p->nterms; i++) {
        Expr term = expr_ceildiv(p, x->p->term[i].k, expr_const(p, x->bk));
        x->term_blocks[i] = hop_size(x->e, term);
        of_tile = expr_add(p, of_tile, term);
    }
    x->tile_blocks = hop_size(x->e, of_tile);
}

/* The k-blocks of this one among those that share a tile: the last has what is left. */
static void share_blocks(Gemm *x) {
    Emit *e = x->e;
    HV more = hop_addi(e, x->kblocks, x->p->splits - 1);
    HV each = LLVMBuildUDiv(e->b, more, hop_i(e, x->p->splits), "");
    x->first_block = LLVMBuildMul(e->b, x->rank, each, "");
    HV end[2] = {hop_add(e, x->first_block, each), x->kblocks};
    x->end_block = emit_intrinsic(e, "llvm.umin", e->i32, end, 2);
}

static void read_ids(Gemm *x) {
    Emit *e = x->e;
    x->tid = hop_special(e, "llvm.nvvm.read.ptx.sreg.tid.x");
    x->block = hop_special(e, "llvm.nvvm.read.ptx.sreg.ctaid.x");
    x->nblocks = hop_special(e, "llvm.nvvm.read.ptx.sreg.nctaid.x");
    uint32_t cluster = (x->p->twin ? 2 : 1) * x->p->splits;
    x->first_block = hop_i(e, 0);
    x->end_block = x->kblocks;
    if (cluster > 1) {
        HV size = hop_i(e, cluster);
        x->rank = hop_cluster_rank(e);
        x->block = LLVMBuildUDiv(e->b, x->block, size, "");
        x->nblocks = LLVMBuildUDiv(e->b, x->nblocks, size, "");
    }
    if (x->p->splits > 1) share_blocks(x);
    x->lane = hop_andi(e, x->tid, 31);
    x->warp = hop_shr(e, x->tid, 5);
    x->group = hop_shr(e, x->tid, 7);
}

/* Behind those of the ring. */
static HV resident_barrier(Gemm *x) {
    return hop_addi(x->e, x->shared, x->barriers + 2 * x->stages * HOP_BARRIER_BYTES);
}

/* The next kernel starts when the last of B has been asked for, not when all blocks are there:
 * clusters of few rows that come earlier take room that those of this kernel wait for. */
static bool lets_start_late(const Gemm *x) {
    return x->p->splits > 1 && staged_rows(x) < x->tile->m;
}

static void init_barriers(Gemm *x) {
    Emit *e = x->e;
    HopIf first = hop_if(e, hop_is(e, x->warp, 0));
    HopIf one = hop_if(e, hop_elect(e));
    hop_map_prefetch(e, x->map_a[0]);
    hop_map_prefetch(e, x->map_b[0][0]);
    for (uint32_t s = 0; s < x->stages; s++) {
        hop_barrier_init(e, gemm_barrier(x, hop_i(e, s), false), 1);
        hop_barrier_init(e, gemm_barrier(x, hop_i(e, s), true),
                         (x->tile->pingpong ? 1 : x->tile->groups) * (x->p->twin ? 2 : 1));
    }
    if (x->resident) hop_barrier_init(e, resident_barrier(x), 1);
    hop_barrier_init_fence(e);
    hop_end(e, one);
    hop_end(e, first);
    if (x->dependent && !lets_start_late(x)) hop_depend_launch(e);
    if (x->p->twin)
        hop_cluster_sync(e);
    else
        gpu_barrier(e);
}

/* --- Tiles ------------------------------------------------------------------------------------ */

/* Tiles go down `raster` rows of tiles, then right. */
static GemmPlace place_of(Gemm *x, HV t) {
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

/* --- Fetching --------------------------------------------------------------------------------- */

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
    uint32_t panel = row_elements(&o->mat[0]), n = o->across ? rows / panel : 1;
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
    uint32_t unfetched = (staged_rows(x) - fetched_rows(x)) * HOP_ROW_BYTES;
    hop_barrier_expect(e, bar, hop_i(e, x->fetched - unfetched));
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
    HV bar = resident_barrier(x);
    uint32_t n = resident_bytes(x) / x->b_bytes;
    hop_barrier_expect(e, bar, hop_i(e, resident_bytes(x)));
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
    uint32_t panels = x->cols / 64;
    for (uint32_t i = 0; i < x->addend_stages; i++, ring = gemm_next(x, ring)) {
        uint32_t first = i * x->addend_panels, n = panels - first;
        if (n > x->addend_panels) n = x->addend_panels;
        HV full = gemm_barrier(x, ring.stage, false), to = gemm_stage(x, ring.stage);
        hop_barrier_wait(e, gemm_barrier(x, ring.stage, true), ring.parity);
        hop_barrier_expect(e, full, hop_i(e, n * x->a_bytes));
        for (uint32_t z = 0; z < n; z++) {
            where[0] = hop_addi(e, at->col, (first + z) * 64);
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
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 0));
    hop_loop_init(l, ring.stage);
    hop_loop_init(l, ring.parity);
    hop_loop_begin(e, l, "fetch_term");
    ring = (GemmRing){l->phi[1], l->phi[2]};
    HV k = hop_muli(e, l->phi[0], x->bk), full = gemm_barrier(x, ring.stage, false);
    HV to = gemm_stage(x, ring.stage), to_b = hop_addi(e, to, x->a_bytes);
    hop_barrier_wait(e, gemm_barrier(x, ring.stage, true), ring.parity);
    hop_barrier_expect(e, full, hop_i(e, x->a_bytes + x->b_bytes));
    gemm_batch_at(&t->a.mat[0], at, batch);
    fetch_operand(x, &t->a, x->map_term[i][0], to, full, at->row, k, batch, x->tile->m, false);
    gemm_batch_at(&t->b.mat[0], at, batch);
    fetch_operand(x, &t->b, x->map_term[i][1], to_b, full, at->col, k, batch, x->cols, x->p->twin);
    ring = gemm_next(x, ring);
    l->next[0] = hop_addi(e, l->phi[0], 1);
    l->next[1] = ring.stage;
    l->next[2] = ring.parity;
    hop_loop_end_while(e, l, below(e, l->next[0], x->term_blocks[i]));
    return ring;
}

/* B of the first k-blocks, which fill the ring, where no kernel of the run writes it: that need not
 * wait for the kernel in front. */
static void fetch_early(Gemm *x) {
    Emit *e = x->e;
    HopIf one = hop_if(e, hop_elect(e));
    GemmPlace at = place_of(x, x->block);
    for (uint32_t s = 0; s < x->stages; s++) {
        HV stage = hop_i(e, s), block = hop_addi(e, x->first_block, s);
        HopIf in = hop_if(e, below(e, block, x->end_block));
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
        HV early = LLVMBuildAnd(e->b, first, below(e, nth, hop_i(e, x->stages)), "");
        early =
            LLVMBuildAnd(e->b, early, below(e, block, x->end_block), ""); /* there may be none */
        late = hop_if(e, LLVMBuildNot(e->b, early, ""));
    }
    hop_barrier_wait(e, gemm_barrier(x, ring.stage, true), ring.parity);
    fetch_b(x, at, part, k, ring.stage, gemm_barrier(x, ring.stage, false));
    if (x->early) hop_end(e, late);
}

static GemmRing fetch_tile(Gemm *x, HV tile, GemmRing ring) {
    Emit *e = x->e;
    GemmPlace at = place_of(x, tile);
    if (x->p->windowed) at.past = gemm_digits(x, x->d->m, at.row, at.axis);
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, x->first_block);
    hop_loop_init(l, ring.stage);
    hop_loop_init(l, ring.parity);
    hop_loop_begin(e, l, "fetch");
    ring = (GemmRing){l->phi[1], l->phi[2]};
    HV k = block_k(x, l->phi[0], &at);
    for (uint32_t part = 0; part < x->p->parts; part++, ring = gemm_next(x, ring)) {
        fetch_late(x, &at, tile, l->phi[0], part, k, ring);
        fetch_a(x, &at, part, k, ring.stage, gemm_barrier(x, ring.stage, false));
    }
    l->next[0] = hop_addi(e, l->phi[0], 1);
    l->next[1] = ring.stage;
    l->next[2] = ring.parity;
    hop_loop_end_while(e, l, below(e, l->next[0], x->end_block));
    for (uint32_t i = 0; i < x->p->nterms; i++) ring = fetch_term(x, &at, i, ring);
    return fetch_addend(x, &at, ring);
}

static void fetch_all(Gemm *x) {
    Emit *e = x->e;
    if (x->tile->regs_load) hop_registers(e, x->tile->regs_load, false);
    HopIf first = hop_if(e, hop_is(e, x->warp, 0));
    if (x->early) fetch_early(x);
    if (x->dependent) hop_depend_wait(e);
    HopIf one = hop_if(e, hop_elect(e));
    if (x->resident) fetch_resident(x);
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, x->block);
    hop_loop_init(l, hop_i(e, 0));
    hop_loop_init(l, hop_i(e, 1)); /* the first wait for an empty stage passes */
    hop_loop_begin(e, l, "fetch_tile");
    hop_loop_test(e, l, below(e, l->phi[0], x->tiles));
    GemmRing ring = fetch_tile(x, l->phi[0], (GemmRing){l->phi[1], l->phi[2]});
    l->next[1] = ring.stage;
    l->next[2] = ring.parity;
    l->next[0] = hop_add(e, l->phi[0], x->nblocks);
    hop_loop_end(e, l);
    if (x->dependent && lets_start_late(x)) hop_depend_launch(e);
    hop_end(e, one);
    hop_end(e, first);
    if (x->p->splits > 1) gemm_split_wait(x);
}

/* --- Multiplying ------------------------------------------------------------------------------ */

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
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 0));
    hop_loop_init(l, ring.stage);
    hop_loop_init(l, ring.parity);
    for (uint32_t i = 0; i < n; i++) hop_loop_init(l, LLVMConstReal(e->f32, 0));
    hop_loop_begin(e, l, "multiply");
    ring = multiply_parts(x, member, (GemmRing){l->phi[1], l->phi[2]}, sum);
    for (uint32_t i = 0; i < n; i++)
        acc[i] = digits ? emit_fma(e, sum[i], kept, l->phi[3 + i])
                        : LLVMBuildFAdd(e->b, sum[i], l->phi[3 + i], "");
    l->next[0] = hop_addi(e, l->phi[0], x->together);
    l->next[1] = ring.stage;
    l->next[2] = ring.parity;
    for (uint32_t i = 0; i < n; i++) l->next[3 + i] = acc[i];
    hop_loop_end_while(e, l, below(e, l->next[0], x->kblocks));
    return ring;
}

/* Adds the products of the k-blocks from `ring` on, those of all sums or of term `term`; returns
 * what comes after the last, which is in *last. */
static GemmRing multiply_blocks(Gemm *x, HV member, int term, GemmRing ring, HV *acc, HV *last) {
    Emit *e = x->e;
    uint32_t n = wgmma_acc(&x->shape);
    HV first = term < 0 ? x->first_block : hop_i(e, 0);
    HV end = term < 0 ? x->end_block : x->term_blocks[term];
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, first);
    hop_loop_init(l, ring.stage);
    hop_loop_init(l, ring.parity);
    hop_loop_init(l, *last); /* the stage before */
    for (uint32_t i = 0; i < n; i++) hop_loop_init(l, acc[i]);
    hop_loop_begin(e, l, "multiply");
    HV at = l->phi[1], more = LLVMConstInt(e->i1, 1, false);
    if (term < 0) more = LLVMBuildICmp(e->b, LLVMIntNE, l->phi[0], first, "");
    hop_barrier_wait(e, gemm_barrier(x, at, false), l->phi[2]);
    for (uint32_t i = 0; i < n; i++) acc[i] = l->phi[4 + i];
    if (term < 0)
        multiply_block(x, member, l->phi[0], at, acc, more);
    else
        multiply_term(x, member, (uint32_t)term, at, acc);
    wgmma_wait(e, 1);
    gemm_give_back(x, l->phi[3], more);
    ring = gemm_next(x, (GemmRing){at, l->phi[2]});
    l->next[0] = hop_addi(e, l->phi[0], 1);
    l->next[1] = ring.stage;
    l->next[2] = ring.parity;
    l->next[3] = at;
    for (uint32_t i = 0; i < n; i++) l->next[4 + i] = acc[i];
    hop_loop_end_while(e, l, below(e, l->next[0], end));
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
    GemmPlace at = place_of(x, tile);
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

static void compute_all(Gemm *x) {
    Emit *e = x->e;
    const GemmTile *t = x->tile;
    if (t->regs_math) hop_registers(e, t->regs_math, true);
    if (x->dependent) hop_depend_wait(e);
    if (x->resident) hop_barrier_wait(e, resident_barrier(x), hop_i(e, 0));
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
    hop_loop_test(e, l, below(e, l->phi[0], x->tiles));
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

/* --- The kernel ------------------------------------------------------------------------------- */

/* What explain says of it. */
static void note(Gpu *g, const GemmPlan *p, const char *why) {
    if (why && g->k->tem != TEM_dot) return;
    g->j->note = why ? arena_printf(g->j->arena, "not on tensor cores: %s", why)
                     : arena_printf(g->j->arena, "tensor cores, %stiles of %s%s%s",
                                    p->windowed ? "windows in " : "", p->tile->name,
                                    p->exact       ? ", f32 in two of tf32"
                                    : p->tf32      ? ", of tf32"
                                    : p->parts > 1 ? ", in digits"
                                    : p->nterms    ? ", more products behind"
                                                   : "",
                                    p->twin         ? ", two blocks at a time"
                                    : p->splits > 1 ? ", sums shared by blocks"
                                                    : "");
}

/* Few rows are the thin structure's: it streams B over all multiprocessors. Where sizes decide when
 * the kernel runs, that is the last variant, behind those with other tiles. */
static const char *leave_few_rows(Gpu *g, const GemmPlan *plan) {
    ExprPool *p = g->e->exprs;
    GemmVariants v;
    int64_t lo, hi;
    expr_range(p, plan->m, &lo, &hi);
    gemm_variants(g, plan, &v);
    if (gpu_hint(g->e, plan->m) <= FEW_ROWS) return "few rows";
    if (g->j->spare) return NULL; /* its variants are other ways at these sizes */
    if (g->j->variant == v.n) return "few rows";
    g->j->nvariants = v.n - 1;
    g->j->choice = v.choice;
    if (lo > FEW_ROWS) return NULL;
    Expr few = expr_lt(p, plan->m, expr_const(p, FEW_ROWS + 1));
    g->j->choice = expr_add(p, v.choice, expr_muli(p, few, (int64_t)v.n - v.least));
    g->j->nvariants++;
    return NULL;
}

/* A load at the places of results, which threads ask for several places ahead where they store
 * themselves. */
static bool loads_at_results(Gpu *g) {
    const KDot *d = &g->k->dot;
    for (KVal v = 1; v < g->k->nops; v++) {
        uint32_t at = g->e->domains[v];
        if (g->k->ops[v].op == K_kload && at & d->m && at & d->n) return true;
    }
    return false;
}

enum { SHORT_BLOCKS = 8 };

/* Results of 32 bits go through shared memory, too, in rows of 128 bytes where threads write 32
 * bytes at a time: where a block has all of a tile's sums. f32 in two numbers gains by it where
 * sums are short. */
static bool copies_words(Gpu *g, GemmPlan *p) {
    GemmOut *o = &p->out[0];
    const KOp *s = &g->k->ops[o->store];
    int64_t k = 0, taps = 0;
    bool known = expr_is_const(g->e->exprs, p->k, &k) && expr_is_const(g->e->exprs, p->taps, &taps);
    if (p->exact && (!known || k * taps > SHORT_BLOCKS * HOP_ROW_BYTES / (int64_t)sizeof(float)))
        return false;
    if ((p->promoted && !p->exact) || p->splits > 1 || loads_at_results(g)) return false;
    if (p->nouts > 1 || o->copied || dtype_bytes((DType)s->dtype) != 4) return false;
    o->copied = hop_matrix(g, s, g->k->dot.m, g->k->dot.n, g->k->dot.batch, &o->mat);
    return o->copied;
}

static bool take(Gpu *g) {
    Emit *e = g->e;
    GemmPlan plan;
    const char *why = gemm_plan(g, &plan);
    if (!why) why = leave_few_rows(g, &plan);
    note(g, &plan, why);
    if (why) return false;
    Gemm x = {.g = g, .e = e, .d = &g->k->dot, .p = &plan, .tile = plan.tile};
    x.words = copies_words(g, &plan);
    lay_out(&x);
    lay_out_addend(&x);
    x.to = x.cols / 8;
    count_tiles(&x);
    make_maps(&x);
    x.shared = hop_shared(g);
    read_ids(&x);
    init_barriers(&x);
    HopRoles roles = hop_roles(e, hop_is(e, x.group, 0));
    fetch_all(&x);
    hop_role_next(e, roles);
    compute_all(&x);
    hop_roles_end(e, roles);
    if (plan.twin)
        hop_cluster_sync(e); /* neither ends while the other may still tell it something */
    return true;
}

/* The kernel's body stays as it is: what changes is which of its axes are rows. */
bool gpu_gemm(Gpu *g) {
    const Kernel *k = g->k;
    if (gemm_turns(g)) {
        Kernel *turned = ARENA_NEW(g->e->arena, Kernel);
        KDot *d = &turned->dot;
        *turned = *k;
        *d = k->dot;
        d->m = k->dot.n;
        d->n = k->dot.m;
        d->a = k->dot.b[0];
        d->b[0] = k->dot.a;
        g->k = turned;
    }
    bool taken = take(g);
    g->k = k;
    return taken;
}
