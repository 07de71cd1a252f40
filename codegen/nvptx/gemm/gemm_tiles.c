/* The tiles, and how long a product takes in each: what a plan is chosen by. */
#include "codegen/nvptx/gemm/gemm_plan.h"

/* Times were measured on an H200: of a k-block of 128 bytes, of what a tile costs beside, and of an
 * addend. Tiles of 128 rows stand to each other as they do where a product has the machine for
 * itself, from idle (664 ns of 128x256, 350 of 128x128 in turns) and under full power, where clocks
 * follow from what a product draws (775 and 424). */
static const GemmTile tiles[] = {
    /* m, n, groups, in turns, stages, slabs, sets, raster, registers, ns: k-block, tile, addend */
    {"128x256", 128, 256, 2, false, 4, 1, 2, 16, 40, 232, 655, 1500, 2000},
    {"128x192 in turns", 128, 192, 2, true, 4, 1, 2, 16, 24, 240, 500, 200, 2400},
    {"192x192", 192, 192, 3, false, 4, 1, 1, 16, 32, 160, 735, 2000, 2000},
    {"128x128 in turns", 128, 128, 2, true, 6, 1, 2, 8, 40, 232, 344, 200, 600},
    {"128x128", 128, 128, 2, false, 6, 2, 1, 8, 40, 232, 335, 1400, 1000},
    {"64x128", 64, 128, 1, false, 8, 1, 2, 8, 0, 0, 197, 1000, 500},
    {"128x64", 128, 64, 2, false, 8, 1, 1, 8, 40, 232, 205, 1100, 500},
    {"64x64", 64, 64, 1, false, 8, 1, 1, 8, 0, 0, 130, 1000, 500},
    {"128x64 in turns", 128, 64, 2, true, 8, 1, 2, 8, 40, 232, 215, 200, 600},
    {"192x128", 192, 128, 3, false, 5, 1, 1, 8, 32, 160, 500, 1500, 1000},
    {"192x64", 192, 64, 3, false, 6, 1, 1, 8, 32, 160, 350, 1300, 500},
    {"64x128 in turns", 64, 128, 2, true, 8, 1, 2, 8, 40, 232, 197, 200, 600}, /* of f32 alone, */
    {"64x64 in turns", 64, 64, 2, true, 8, 1, 2, 8, 40, 232, 130, 200, 600},   /* both */
    {"64x256", 64, 256, 1, false, 5, 1, 2, 8, 0, 0, 360, 1500, 800},
    {"64x32", 64, 32, 1, false, 8, 1, 1, 8, 0, 0, 100, 950, 500},
};

/* Nanoseconds that the epilogue's arithmetic adds to a tile, also where it is stored while another
 * is multiplied, which it slows down: bias and gelu over 128x128 in turns 1.27 us a tile, over
 * 128x256 2.07. */
static int64_t epilogue_time(const GemmTile *t, const GemmPlan *p) {
    int64_t groups = t->pingpong ? 1 : t->groups;
    return (int64_t)p->epilogue_ops * t->m * t->n / (groups * 128) * (t->pingpong ? 2 : 3) / 4;
}

enum { STORED_PER_NS = 32 }; /* bytes, of one of all multiprocessors */

/* And the stores of results that threads make, as long as nothing is multiplied meanwhile. Measured
 * of products of 8 bits; the other times are of products of 16 bits with results of as many, so
 * that of theirs only what is beyond that counts. */
static int64_t store_time(Gpu *g, const GemmTile *t, const GemmPlan *p) {
    const int64_t width = (int64_t)dtype_bytes(p->a.mat[0].t), sums = (int64_t)t->m * t->n;
    int64_t bytes = width == 2 ? -2 * sums : 0;
    if (t->pingpong || width > 2) return 0;
    for (uint32_t i = 0; i < p->nouts; i++)
        if (!p->out[i].copied)
            bytes += (int64_t)dtype_bytes((DType)g->k->ops[p->out[i].store].dtype) * sums;
    return bytes > 0 ? bytes / STORED_PER_NS : 0;
}

int64_t gemm_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Rows that do not start at 128-byte lines take twice as many sectors of L2. */
static bool off_lines(Gpu *g, const GemmOperand *o) {
    return gpu_hint(g->e, o->mat[0].pitch) * (int64_t)dtype_bytes(o->mat[0].t) % 128 != 0;
}

enum { FETCHED_PER_NS = 125, OFF_LINES_PER_NS = 58 }; /* bytes, by one of all multiprocessors */

static int64_t fetch_time(Gpu *g, const GemmOperand *o, int64_t bytes) {
    return bytes / (off_lines(g, o) ? OFF_LINES_PER_NS : FETCHED_PER_NS);
}

enum { APART_NS = 150 }; /* to take a k-block of f32 apart */

/* Of a k-block: the products, or what they need if that takes longer. Rows off lines slow the
 * products down even so, those of wide tiles more, of tiles in turns most, and so does waiting for
 * a twin: more often in small tiles. */
static int64_t block_time(Gpu *g, const GemmPlan *p, const GemmTile *t, bool twin) {
    int64_t fetch = fetch_time(g, &p->a, t->m * HOP_ROW_BYTES) +
                    fetch_time(g, &p->b[0], t->n * HOP_ROW_BYTES / (twin ? 2 : 1));
    int64_t slower = !off_lines(g, &p->a) ? 0 : t->pingpong ? 32 : twin ? 5 : 10;
    if (off_lines(g, &p->b[0]))
        slower += !twin ? (t->pingpong ? 18 : 10) : t->n > 128 ? (t->n - 128) / 7 : 0;
    int64_t multiply = t->block_ns * (100 + slower) / 100;
    if (p->exact) multiply = 3 * multiply + APART_NS;
    if (twin) multiply += t->m * t->n > 128 * 192 ? 20 : 45;
    return fetch > multiply ? fetch : multiply;
}

enum { LAST_NS = 500, SPLIT_LEAST = 4, SPLIT_LONG = 32, SPLITS = 4 };

/* Of few rows, 32 tiles of 64x64 by 3: 96 multiprocessors fetch weights, and their clusters all
 * run at once; those of 4 would not. */
static const uint32_t splits_of[SPLITS] = {2, 3, 4, 8};

/* So many blocks in clusters run at once for certain. Long sums, of a weight's gradient over all
 * rows of a batch, are worth it without: pairs fill all multiprocessors, more do but for a few. */
static int64_t split_room(const Gpu *g, int64_t blocks, uint32_t splits) {
    const int64_t all = g->m->processors;
    if (blocks < SPLIT_LONG * splits) return all / 2;
    return splits == 2 ? all : all * 9 / 10;
}

/* A tile's sums may be shared by so many blocks: each has some, and all tiles are computed at once.
 */
static bool can_split(Gpu *g, const GemmPlan *p, const GemmTile *t, uint32_t splits, int64_t m,
                      bool crowded) {
    int64_t k, taps, cols = t->n / g->k->dot.nacc;
    if (t->pingpong || (p->promoted && !p->exact) || p->addend || p->nterms) return false;
    if (!expr_is_const(g->e->exprs, p->k, &k) || !expr_is_const(g->e->exprs, p->taps, &taps))
        return false;
    int64_t blocks = taps * gemm_ceil_div(k * (int64_t)dtype_bytes(p->a.mat[0].t), HOP_ROW_BYTES);
    int64_t count = gemm_ceil_div(m, t->m) * gemm_ceil_div(gpu_hint(g->e, p->n), cols) *
                    gpu_hint(g->e, p->batch);
    int64_t ring = t->stages * (int64_t)(t->m + t->n) * HOP_ROW_BYTES; /* that sums go through */
    if ((splits - 1) * (int64_t)sizeof(float) * t->m * t->n > ring) return false;
    return blocks >= SPLIT_LEAST * splits &&
           (splits - 1) * gemm_ceil_div(blocks, splits) < blocks &&
           count * splits <= (crowded ? g->m->processors : split_room(g, blocks, splits));
}

/* To hand a tile's sums over. Large tiles fill the machine with clusters, which wait for each
 * other */
static int64_t split_time(const GemmTile *t, uint32_t splits) {
    int64_t sums = (int64_t)splits * t->m * t->n;
    return t->m * t->n > 64 * 128 ? 3500 + sums / (t->groups * 64) : 500 + sums / 14;
}

/* Nanoseconds of the whole product: blocks work through whole tiles. */
int64_t gemm_time(Gpu *g, const GemmPlan *p, const GemmTile *t, bool twin, uint32_t splits,
                  int64_t m) {
    int64_t n = gpu_hint(g->e, p->n), cols = t->n / g->k->dot.nacc;
    int64_t bytes = gpu_hint(g->e, p->k) * (int64_t)dtype_bytes(p->a.mat[0].t),
            twins = twin ? 2 : 1;
    int64_t count =
        gemm_ceil_div(m, t->m * twins) * gemm_ceil_div(n, cols) * gpu_hint(g->e, p->batch);
    int64_t blocks = gpu_hint(g->e, p->taps) * gemm_ceil_div(bytes, HOP_ROW_BYTES) * p->parts;
    for (uint32_t i = 0; i < p->nterms; i++)
        blocks += gemm_ceil_div(gpu_hint(g->e, p->term[i].k) * (int64_t)dtype_bytes(p->a.mat[0].t),
                                HOP_ROW_BYTES);
    int64_t each = gemm_ceil_div(blocks, splits) * block_time(g, p, t, twin) + t->tile_ns;
    if (splits > 1) each += split_time(t, splits);
    if (p->addend) each += t->addend_ns;
    each += store_time(g, t, p);
    if (t->pingpong && count <= g->m->processors) each += each / 8; /* nobody to take turns with */
    int64_t last = t->pingpong ? LAST_NS : 0; /* nothing is multiplied while it is stored */
    return gemm_ceil_div(count, g->m->processors / (twins * splits)) *
               (each + epilogue_time(t, p)) +
           last;
}

/* Columns come and go in panels of 64. Half of one is stored by the copy engine, too, in 16 bits,
 * and read where columns do not lie side by side. */
static bool possible_cols(const GemmPlan *p, uint32_t cols) {
    if (cols % GEMM_SLAB_COLS == 0) return true;
    for (uint32_t i = 0; i < p->nouts; i++)
        if (!p->out[i].copied || dtype_bytes(p->out[i].mat.t) != 2) return false;
    return cols == GEMM_SLAB_COLS / 2 && !p->addend && !p->b[0].across && !p->nterms;
}

enum { ALL_REGS = 255, SPARE_REGS = 100 };

/* What spilled, and what branches at each of its places, wants registers beside its sums, of which
 * threads have few where they are many. */
static bool has_spare(const GemmTile *t, uint32_t sums) {
    uint32_t all = t->regs_math ? t->regs_math : ALL_REGS;
    return all >= sums + SPARE_REGS;
}

/* Every sum has its share of the columns, in panels; a build that spilled asks for fewer registers.
 * Promoted sums are two sets, and tiles of more than 64 of each are slower than smaller ones. */
static bool possible(Gpu *g, const GemmPlan *p, const GemmTile *t, uint32_t shrink) {
    uint32_t cols = t->n / g->k->dot.nacc;
    uint32_t sums = t->m * t->n / (128 * (t->pingpong ? 1 : t->groups));
    uint32_t slabs = t->pingpong ? 1 : t->groups; /* of A, which f32 has registers for */
    if (p->promoted && !p->exact && t->pingpong) return false; /* nobody would give the turn away */
    if (p->exact && (t->groups > 2 || t->m != slabs * HOP_SLAB_ROWS)) return false;
    if (!p->exact && t->pingpong && t->m == HOP_SLAB_ROWS) return false;
    if ((shrink || p->masked) && !p->promoted && !has_spare(t, sums)) return false;
    if (p->promoted) sums *= 4;
    return cols * g->k->dot.nacc == t->n && possible_cols(p, cols) && sums <= 256u >> shrink;
}

enum {
    NARROW_ROWS = 33
}; /* of fewer, B comes from memory, in wider pieces faster: by 7 and 17 % */
_Static_assert(sizeof tiles / sizeof *tiles == GEMM_TILES, "ways are numbered by tiles");
_Static_assert(2 + SPLITS == GEMM_WAYS_OF_TILE, "alone, as twins, or split");

bool gemm_way(Gpu *g, const GemmPlan *p, uint32_t i, int64_t m, uint32_t shrink, bool crowded,
              GemmWay *out) {
    const GemmTile *t = &tiles[i / GEMM_WAYS_OF_TILE];
    uint32_t way = i % GEMM_WAYS_OF_TILE;
    *out = (GemmWay){.tile = t, .twin = way == 1, .splits = way < 2 ? 1 : splits_of[way - 2]};
    if (!possible(g, p, t, shrink) || (out->twin && m <= t->m)) return false;
    if (t->n < GEMM_SLAB_COLS && m < NARROW_ROWS) return false;
    bool usual = out->splits == 1 || can_split(g, p, t, out->splits, m, false);
    if (!usual && (!crowded || !can_split(g, p, t, out->splits, m, true))) return false;
    out->time = gemm_time(g, p, t, out->twin, out->splits, m) * (usual ? 1 : 2);
    return true;
}
