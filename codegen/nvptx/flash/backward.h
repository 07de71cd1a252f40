/* Gradients of attention on tensor cores: o[i, n] = sum_j p(s0, s1)[i, j] b[j, n], where scores s =
 * x y^T are computed again and stay in registers. A persistent kernel: one warpgroup fetches, two
 * or three own 64 rows i each of a tile and walk the blocks of j. Each row of the result is summed
 * by one warpgroup in one order: repeatable, without atomics.
 *
 * backward_plan.c says which kernels it takes; backward.c has the roles and what is fetched,
 * backward_place.c where they meet, backward_compute.c what a warpgroup computes. */
#ifndef CODEGEN_NVPTX_FLASH_BACKWARD_H
#define CODEGEN_NVPTX_FLASH_BACKWARD_H

#include "codegen/nvptx/flash/flash.h"

enum {
    BACK_PRODUCTS = 2,
    BACK_STREAMS = 3,
    BACK_BLOCK = 64,
    BACK_MAX_STAGES = 4,
    BACK_LOADS = 4,
    BACK_STORES = 4
};

typedef struct BackTile {
    const char *name;
    uint32_t d;      /* head sizes up to this */
    uint32_t groups; /* of 64 rows */
    uint32_t heads;  /* whose tiles are walked together */
    uint32_t regs_load, regs_math;
} BackTile;

/* Loads of one number per row (or per column), ahead of where they are used. */
typedef struct BackLoads {
    KVal v[BACK_LOADS];
    uint32_t n;
} BackLoads;

typedef struct BackPlan {
    uint32_t products; /* scores: 1 or 2 */
    HopMatrix x[BACK_PRODUCTS];
    double factor[BACK_PRODUCTS];   /* constant scales of x and y, which are multiplied without */
    double after;                   /* those of b and p, for what was summed */
    HopMatrix stream[BACK_STREAMS]; /* what is fetched per block of j: y and b, each once */
    uint32_t cols[BACK_STREAMS];    /* in whole panels */
    uint32_t nstreams, y[BACK_PRODUCTS], b;
    uint32_t d[BACK_PRODUCTS], n; /* in whole panels */
    WgmmaType type;
    KVal p;    /* without scales and the rounding to the multiplied type */
    KVal seen; /* 0, or the comparison that is `shows` wherever ahead, behind hide nothing */
    bool shows;
    KVal store[BACK_STORES];
    uint32_t nstores;
    BackLoads by_row, by_column;
    Expr rows, columns, heads;
    Expr ahead, behind; /* as in KAttnGrad */
    const BackTile *tile;
} BackPlan;

/* A result and what is stored of it, along axis n. */
typedef struct BackResult {
    KVal o, store[BACK_STORES];
    uint32_t n, registers, nstores;
} BackResult;

/* Parts of a plan. The operand v as a matrix whose columns are in whole panels, behind constant
 * factors; ... */
const char *back_operand(Gpu *g, BackPlan *p, KVal v, uint32_t rows, uint32_t cols, double *scale,
                         HopMatrix *out, uint32_t *panels);
bool back_same_matrix(const HopMatrix *a, const HopMatrix *b);
/* ... v without casts and constant factors around it: *scale times those; ... */
KVal back_behind_scales(const Kernel *k, KVal v, double *scale);
/* ... `seen`, of `ahead` or `behind`. */
void back_find_mask(Gpu *g, BackPlan *p);
/* NULL, or why the kernel is not one for tensor cores. */
const char *back_plan(Gpu *g, BackPlan *out);

typedef struct Back {
    Gpu *g;
    Emit *e;
    const KAttnGrad *a;
    const BackPlan *p;
    const BackTile *t;
    uint32_t rows, stages;            /* rows of a tile; a power of two */
    uint32_t at_x[BACK_PRODUCTS];     /* in shared memory */
    uint32_t at_stream[BACK_STREAMS]; /* of the first stage */
    uint32_t stage_bytes, at_stages, at_bar;
    HV shared, map_x[BACK_PRODUCTS], map_stream[BACK_STREAMS];
    HV tid, lane, warp, group, block;
    HV nrows, ncolumns, ahead, behind, row_tiles, heads, tiles, grid; /* i32 */
    HV extent[K_MAX_AXES];                                            /* of the batch axes */
} Back;

/* One tile: its first row, its flat batch index, its blocks of j from `first` on. */
typedef struct BackPlace {
    HV row, head, first, blocks;
} BackPlace;

typedef enum BackBar {
    BACK_x_full,
    BACK_x_empty,
    BACK_full,
    BACK_empty = BACK_full + BACK_MAX_STAGES,
    BACK_BARS = BACK_empty + BACK_MAX_STAGES
} BackBar;
HV back_bar(Back *x, BackBar bar, HV stage); /* NULL: it has no stages */
HV back_stage(Back *x, HV block);            /* of the block with that number */
HV back_parity(Back *x, HV block);
BackPlace back_place(Back *x, HV tile);

/* Two numbers as a register of 16-bit ones. */
HV back_pack(Emit *e, WgmmaType type, HV a, HV b);
/* Of a sum's register with this number: which of the thread's two rows, and its column behind the
 * thread's first. */
uint32_t back_half(uint32_t i);
uint32_t back_col(uint32_t i);
HV back_scaled(Emit *e, HV v, double by);
/* Of sums o, those of one row, which is bound; col: the thread's first. */
void back_store(Gpu *g, const BackResult *r, HV col, const HV *o, uint32_t half);

/* Tiles until there are no more. */
void back_compute(Back *x);

#endif
