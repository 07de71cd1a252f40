/* Contractions on tensor cores: a persistent kernel of one warpgroup that fetches and one to three
 * that multiply, with a ring of stages in shared memory between them.
 *
 * gemm_plan.h says which kernels it takes and in which tiles; gemm_layout.c what lies where in
 * shared memory, gemm.c what a kernel begins with and its roles; gemm_fetch.c fetches,
 * gemm_multiply.c multiplies, with the ring of gemm_ring.c between them; gemm_split.c shares a
 * tile's sums among blocks; gemm_epilogue.c turns sums into stored results through the kernel's own
 * body. */
#ifndef CODEGEN_NVPTX_GEMM_GEMM_H
#define CODEGEN_NVPTX_GEMM_GEMM_H

#include "codegen/nvptx/conv/window.h"

enum { GEMM_MAX_OUTS = 8, GEMM_MAX_PARTS = 4, GEMM_MAX_TERMS = 6 };
enum {
    GEMM_SLAB_COLS = 64, /* of results that are stored at a time, at most: rows of 128 bytes */
    GEMM_FEW_ROWS = 1,   /* that are the thin structure's */
    GEMM_MAX_COLUMNS = 4,
};

typedef struct GemmOperand {
    HopMatrix mat[GEMM_MAX_PARTS]; /* alike but for where they begin */
    bool across;                   /* its rows are those of k: m (n) is along them */
} GemmOperand;

typedef struct GemmOut {
    KVal store;
    bool copied; /* by the copy engine through shared memory; else element by element */
    HopMatrix mat;
} GemmOut;

/* Another sum of products that is added to one of the kernel's: its k-blocks come behind those of
 * the others. */
typedef struct GemmTerm {
    KVal sum;
    uint32_t to; /* which it is added to */
    GemmOperand a, b;
    Expr k;
} GemmTerm;

/* A tile of m x n results; with several sums over one A, n is shared among them. */
typedef struct GemmTile {
    const char *name;
    uint32_t m, n;
    uint32_t groups; /* warpgroups that multiply */
    bool pingpong;   /* each has tiles of its own, in turns; else they share the tile's rows */
    uint32_t stages;
    uint32_t slabs, sets; /* staging of each: slabs of 64 rows stored at a time, sets of them */
    uint32_t raster;      /* row tiles that are walked together, so that operands stay in L2 */
    uint32_t regs_load, regs_math;         /* per thread; 0: as the kernel was compiled */
    uint32_t block_ns, tile_ns, addend_ns; /* what takes how long, for choosing */
} GemmTile;

/* Where the number of rows is known only when the kernel runs, there are kernels for several. */
enum { GEMM_MAX_VARIANTS = 5 };
typedef struct GemmVariants {
    uint32_t n;
    int64_t rows[GEMM_MAX_VARIANTS]; /* that variant i has tiles for; the usual number first */
    Expr choice;                     /* of them, by sizes */
    uint32_t least;                  /* what it is for the fewest rows */
} GemmVariants;

typedef struct GemmPlan {
    GemmOperand a, b[K_MAX_ACC];
    bool windowed; /* A is not a matrix in memory: its rows are positions of a window */
    Window window;
    uint32_t nouts;
    GemmOut out[GEMM_MAX_OUTS];
    WgmmaType type;
    bool exact; /* f32, in two numbers of tf32 each (gemm_exact.c) */
    bool tf32;  /* f32, rounded where they come from memory */
    Expr m, n, k, batch;
    Expr taps; /* of the window; k is what each of them has */
    /* Parts of the sum, which are outside of k and have operands of their own: digits of f32. A
     * k-block has all of them. */
    uint32_t parts, part_axis; /* 1 and 0: none; a mask */
    /* A k-block, or some of f8, is summed by itself and added to the sums in f32, where matrix
     * units cut: to about 24 bits of f16, of which digits notice, and to 14 of f8. */
    bool promoted;
    uint32_t nterms;
    GemmTerm term[GEMM_MAX_TERMS];
    KVal addend; /* 0, or a load of the epilogue that comes through the ring: one per result */
    HopMatrix addend_mat;
    const KVal *reached; /* what the epilogue loads, but the addend, and stores */
    uint32_t nreached;
    bool pairs;            /* neighbouring columns may be computed as vectors of two */
    uint32_t epilogue_ops; /* instructions per result, roughly */
    bool masked;           /* some of it is loaded under a condition, which branches */
    GemmVariants variants; /* with other tiles, by the number of rows */
    int64_t rows;          /* that the tile was chosen for */
    const GemmTile *tile;
    uint32_t splits; /* blocks that share the sums of a tile */
    bool twin; /* two blocks, one row of tiles below the other, fetch half of their common B each */
} GemmPlan;

/* Rows of f32 are best turned by those who multiply, in registers, which they do with A: where B's
 * are those of k, the product is better computed as the transpose of B' A'. */
bool gemm_turns(Gpu *g);
/* NULL, or why the kernel is not one for tensor cores. The tile is this variant's. */
const char *gemm_plan(Gpu *g, GemmPlan *out);

typedef struct Gemm {
    Gpu *g;
    Emit *e;
    const KDot *d;
    const GemmPlan *p;
    const GemmTile *tile;
    uint32_t twins; /* blocks that have one tile's columns: 2 or 1 */
    bool words;     /* the only result is of 32 bits, and copied */
    /* By gemm_lay_out. Elements: of k in a k-block, columns of results in a tile and of those that
     * are stored at a time, rows of A that are fetched and that a stage has room for. */
    uint32_t bk, cols, slab_cols, fetched_rows, staged_rows;
    bool one_wave;     /* the usual number of tiles has a block each */
    WgmmaShape shape;  /* what one warpgroup multiplies per k-block */
    uint32_t from, to; /* columns, in eights, that the code at hand stores */
    uint32_t a_bytes, b_bytes, stage_bytes, stages; /* of a stage: A, each sum's B, all of it */
    uint32_t fetched;                               /* bytes of a stage that come from memory */
    uint32_t resident, resident_bytes;     /* B that stays: where; 0: it comes through the ring */
    uint32_t staging, barriers;            /* where they lie */
    uint32_t addend_panels, addend_stages; /* of 64 columns in a stage; stages that they take */
    bool dependent;   /* launched before the kernel in front has ended, and ... */
    bool early;       /* ... fetches from B before that */
    bool starts_late; /* the kernel behind starts when this one has asked for the last of B */
    HV map_a[GEMM_MAX_PARTS], map_b[K_MAX_ACC][GEMM_MAX_PARTS], map_term[GEMM_MAX_TERMS][2];
    HV map_addend, map_out[GEMM_MAX_OUTS];
    HV shared, tid, lane, warp, group; /* i32, as all that follows */
    HV block, nblocks;                 /* twins count as one */
    HV rank;                           /* of the block among twins, or who share a tile's sums */
    HV rows_tiles, cols_tiles, tiles;  /* how many */
    HV kblocks, tap_blocks, term_blocks[GEMM_MAX_TERMS]; /* of the sums, of a tap, of a term; ... */
    HV tile_blocks;            /* ... all that a tile takes from the ring */
    HV first_block, end_block; /* of kblocks, those that this block sums */
    uint32_t together;         /* k-blocks that matrix units sum at once where sums are promoted */
    KVal column[GEMM_MAX_COLUMNS]; /* the epilogue's loads by columns that come before a tile's
                                      products */
    uint32_t ncolumns;
    HV *columns; /* this thread's, of the tile at hand: by eight columns, by one or both of a pair,
                    by load */
} Gemm;

/* Where a tile is. */
typedef struct GemmPlace {
    HV row, col, batch;  /* first row and column; flat batch index, NULL without batch axes */
    HV axis[K_MAX_AXES]; /* of batch axes, and where a window is fetched, of m and its taps */
    HV past;             /* then not 0 if the row is past the last */
} GemmPlace;

/* A stage of the ring and the parity of the phase that it is in. */
typedef struct GemmRing {
    HV stage, parity;
} GemmRing;

/* What four steps of matrix units along k leave of a sum on average, inverted. */
#define GEMM_KEPT (1 + 0x1p-23)

/* gemm_layout.c: what lies where, and what a warpgroup multiplies. The plan is made, twins and
 * words are known. */
void gemm_lay_out(Gemm *x);
uint32_t gemm_row_elements(const HopMatrix *m); /* in a row of shared memory */
void gemm_fetch(Gemm *x);                       /* gemm_fetch.c: what warpgroup 0 does; */
void gemm_compute(Gemm *x);                     /* gemm_multiply.c: and the others */
/* gemm_ring.c. */
HV gemm_barrier(Gemm *x, HV stage, bool empty);
HV gemm_resident_barrier(Gemm *x);
HV gemm_stage(Gemm *x, HV stage); /* its shared memory */
GemmRing gemm_next(Gemm *x, GemmRing at);
/* A loop that carries a number, from `first` on, and the ring; what its maker adds comes behind
 * these GEMM_CARRIED values. */
enum { GEMM_CARRIED = 3 };
HopLoop *gemm_loop(Gemm *x, HV first, GemmRing ring);
GemmRing gemm_loop_ring(const HopLoop *l);
void gemm_loop_next(HopLoop *l, HV at, GemmRing ring);
/* Tile number t: tiles go down `raster` rows of tiles, then right. */
GemmPlace gemm_place_of(Gemm *x, HV t);
/* All threads of a warpgroup that multiplies: it is through with the stage, where `when` holds. */
void gemm_give_back(Gemm *x, HV stage, HV when);
/* Where `flat` is along these axes; returns how often it went past the last point. */
HV gemm_digits(Gemm *x, uint32_t axes, HV flat, HV *axis);
/* Coordinates along the batch axes of a matrix, innermost first. */
void gemm_batch_at(const HopMatrix *m, const GemmPlace *place, HV *at);
/* In pingpong, when all that this tile takes from the ring has come, up to `ring`: the other's
 * turn. */
void gemm_hand_over(Gemm *x, GemmRing ring);
/* gemm_exact.c: as gemm_multiply.c does for other types. */
GemmRing gemm_multiply_exact(Gemm *x, HV member, GemmRing ring, HV *acc);
/* gemm_split.c: the sums of all blocks, where they share a tile's. By those that multiply: adds
 * them up and stores their results. By those that fetch: waits meanwhile. */
void gemm_split_store(Gemm *x, const GemmPlace *tile, const HV *acc, GemmRing ring);
void gemm_split_wait(Gemm *x);
/* gemm_epilogue.c. All results are stored by the threads that have them: blocks that share a tile's
 * sums may store some of its columns each. */
bool gemm_stores_apart(const Gemm *x);
/* Asks for what the tile's results need by their columns (a bias), where registers allow: it comes
 * while products are computed, and would be waited for behind them. */
void gemm_ask_columns(Gemm *x, const GemmPlace *tile);
/* The results of one warpgroup: acc[] as wgmma_block left them, waited for. The stages from `ring`
 * on hold the addend; what comes after them is returned. */
GemmRing gemm_epilogue(Gemm *x, const GemmPlace *tile, HV *acc, GemmRing ring);

#endif
