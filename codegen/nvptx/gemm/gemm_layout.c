/* What a block has in shared memory, one behind the other:
 *
 *   the ring    `stages` of a k-block each: rows of A, then of each sum's B, then room where f32 is
 *               taken apart; or stages of A alone, and behind them all of B, where all tiles of the
 *               block share it
 *   staging     slabs of results, of each warpgroup that multiplies
 *   barriers    of full stages, of empty ones, of the resident B
 *
 * Rows have 128 bytes. A kernel's own parts of it find their place by the offsets in Gemm. */
#include "codegen/nvptx/gemm/gemm.h"

uint32_t gemm_row_elements(const HopMatrix *m) {
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
    uint32_t rows = x->fetched_rows, m = x->tile->m, n = x->tile->n;
    if (x->p->exact || x->p->nterms) return m;
    return m > n && rows < m - n ? m - n : rows;
}

/* As many as there are tiles and shares, for the rows that the tile was chosen for. */
static int64_t usual_blocks(const Gemm *x) {
    const int64_t n = gpu_hint(x->e, x->p->n), high = (int64_t)x->tile->m * x->twins;
    const int64_t rows = (x->p->rows + high - 1) / high, cols = (n + x->cols - 1) / x->cols;
    return rows * cols * gpu_hint(x->e, x->p->batch) * x->twins * x->p->splits;
}

/* Bytes of all k-blocks of B; 0: not known. */
static uint32_t bytes_of_b(const Gemm *x) {
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
    uint32_t b = bytes_of_b(x), ring = x->tile->stages * (x->a_bytes + x->b_bytes);
    if (!b || p->promoted || x->d->nacc > 1 || p->nterms || p->splits > 1 || p->twin) return false;
    if (x->d->batch || !expr_is_const(x->e->exprs, p->n, &n) || n > x->cols) return false;
    return b + RESIDENT_STAGES * x->a_bytes <= ring && !x->one_wave;
}

static uint32_t staging_bytes(const GemmTile *t) {
    return t->groups * t->slabs * t->sets * HOP_SLAB;
}

/* Bytes of sums that blocks which share a tile's leave in a ring (gemm_split.c). */
static uint32_t shared_sums(const Gemm *x) {
    return (x->p->splits - 1) * (uint32_t)sizeof(float) * x->tile->m * x->tile->n;
}

/* Bytes of a ring that keep memory busy. More delays the kernel behind: it begins to fetch when the
 * last of this one's blocks has asked for its last stage. */
enum { UNDER_WAY = 116 << 10 };

/* Of few rows, B comes from memory as fast as enough bytes are on their way: as many stages as that
 * takes, however small they are. Sums that blocks share go through the ring, too. */
static uint32_t count_stages(const Gemm *x) {
    const GemmTile *t = x->tile;
    if (x->staged_rows == t->m) return t->stages;
    uint32_t room = (uint32_t)x->g->m->shared - staging_bytes(t) - HOP_BARRIER_BYTES;
    uint32_t most = room / (x->stage_bytes + 2 * HOP_BARRIER_BYTES);
    uint32_t ring = shared_sums(x) > UNDER_WAY ? shared_sums(x) : UNDER_WAY;
    uint32_t enough = (ring + x->stage_bytes - 1) / x->stage_bytes;
    return enough < most ? enough : most;
}

/* A panel of the addend is as large as A's tile; what does not fit in one stage is split evenly. */
static void lay_out_addend(Gemm *x) {
    if (!x->p->addend) return;
    uint32_t panels = x->cols / GEMM_SLAB_COLS, most = x->stage_bytes / x->a_bytes;
    x->addend_stages = (panels + most - 1) / most;
    x->addend_panels = (panels + x->addend_stages - 1) / x->addend_stages;
}

/* The stages, of which `ring` bytes are left to the end. */
static void lay_out_ring(Gemm *x) {
    x->a_bytes = x->staged_rows * HOP_ROW_BYTES;
    x->b_bytes = x->cols * HOP_ROW_BYTES;
    x->stage_bytes = x->a_bytes + x->d->nacc * x->b_bytes;
    x->stages = count_stages(x);
    const uint32_t ring = x->stages * x->stage_bytes;
    GC_ASSERT(shared_sums(x) <= ring);
    x->fetched = x->stage_bytes;
    if (x->p->exact) {
        x->stage_bytes += x->b_bytes * (x->p->b[0].across ? 2 : 1);
        x->stages = ring / x->stage_bytes;
    }
    if (resides(x)) {
        x->resident_bytes = bytes_of_b(x);
        x->fetched = x->stage_bytes = x->a_bytes;
        x->stages = (ring - x->resident_bytes) / x->a_bytes;
        x->resident = x->stages * x->a_bytes;
    }
    x->fetched -= (x->staged_rows - x->fetched_rows) * HOP_ROW_BYTES;
    x->staging = ring;
}

void gemm_lay_out(Gemm *x) {
    const GemmTile *t = x->tile;
    const uint32_t block_rows = t->pingpong ? t->m : t->m / t->groups;
    x->bk = gemm_row_elements(&x->p->a.mat[0]);
    x->cols = t->n / x->d->nacc;
    x->slab_cols = x->cols < GEMM_SLAB_COLS ? x->cols : GEMM_SLAB_COLS;
    if (x->words) x->slab_cols = GEMM_SLAB_COLS / 2;
    x->one_wave = usual_blocks(x) <= x->g->m->processors;
    x->fetched_rows = fetched_rows(x);
    x->staged_rows = staged_rows(x);
    lay_out_ring(x);
    x->barriers = x->staging + staging_bytes(t);
    x->g->j->shared_bytes = x->barriers + (2 * x->stages + 1) * HOP_BARRIER_BYTES;
    GC_ASSERT((int64_t)x->g->j->shared_bytes <= x->g->m->shared);
    x->shape = (WgmmaShape){.type = x->p->type,
                            .n = x->cols,
                            .ksteps = HOP_ROW_BYTES / 32,
                            .blocks = block_rows / HOP_SLAB_ROWS,
                            .sums = x->d->nacc,
                            .a = {x->p->a.across, x->bk * HOP_ROW_BYTES},
                            .b = {x->p->b[0].across && !x->p->exact, x->bk * HOP_ROW_BYTES}};
    x->from = 0, x->to = x->cols / 8;
    lay_out_addend(x);
}
