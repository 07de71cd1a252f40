/* What the files of the CPU contraction template share.
 *
 * Loop structure, outermost first:
 *   work items   (batch, span of row blocks, panel of 48 columns, block of row tiles)
 *   sub-panels   nv vectors wide, as many as the registers hold beside the rows
 *   row tiles    M cut into equal tiles of at most 8 rows; where M is not known into tiles of 8
 *                and what is left, unless bytes are multiplied four at a time
 *   runs, k      the micro-kernel: rows x nv accumulators in registers
 * Where k is long, sums are walked in slices of it outside of the row tiles, and of sub-panels that
 * are narrower than a panel: see dot_kernel.c.
 *
 * The left operand is read through a table of pointers, one per row of the block and run. A run is
 * the longest stretch of contracted axes along which the operand moves by one stride: all of K in a
 * matrix product, KW*C elements in a convolution. A run that is not fit to be read in place (a
 * border of padding, a prologue, another element type) is computed into scratch and pointed to
 * there, so the micro-kernel never sees the difference.
 *
 * Products of integers that fit 16 bits are taken in pairs along k, as vector units multiply them:
 * runs then hold 16-bit elements, two rows of the right operand are interleaved as they are loaded.
 * Where weights of 8 bits lie in groups of four rows (KDot.quads) they are taken in fours: runs are
 * of u8, and hold whole groups, or there is one run.
 *
 * Panels of bf16 hold two rows at a time (KDot.pairs), which are multiplied one after the other as
 * f32; or both at once, where an instruction adds two products of bf16 to an f32 (AVX512-BF16).
 *
 * A right operand that is computed from what lies side by side along the columns (weights of few
 * bits and their scales) is computed in registers where M is one tile, so that it is read once as
 * it lies in memory; a panel of it is computed into scratch where there are more.
 *
 * Where both operands are integers with a scale for each block of k (KDot.block), each block is
 * summed in integers: see blocks/blocks.c. Where the right one is and the left one f32 (kir_part),
 * too, if four products of bytes are an instruction: see blocks/digits.c. Work items are then cut
 * as if the left operand was copied, whether or not.
 *
 * Every sum runs over k in one fixed order, in chunks of DOT_CHUNK elements of a run, so results
 * depend neither on the number of threads nor on tile sizes. */
#ifndef CODEGEN_TEMPLATES_DOT_H
#define CODEGEN_TEMPLATES_DOT_H

#include "codegen/emit/emit.h"

#define DOT_PANEL      48  /* columns of a panel: KDot.pack of weights that the CPU takes packed */
#define DOT_CHUNK      128 /* elements of a run that are summed in one accumulator */
#define DOT_ROWS       8   /* rows of a tile: the unit in which M is cut, on every target */
#define DOT_PART       4   /* rows, at most, of the parts of tiles that are no micro-kernel */
#define DOT_MAX_NV     3
#define DOT_MADE       8  /* steps of k that are unrolled where the right operand is made */
#define DOT_TILE_APART 16 /* elements between tiles of a copied left operand */
#define DOT_LINE       64 /* bytes of a line of the cache */
#define WINO_PLANES    16 /* products for 2x2 outputs */

/* Several axes walked as one, the last fastest. */
typedef struct DotGroup {
    uint32_t n;
    uint8_t axis[K_MAX_AXES];
    Expr size;
} DotGroup;

typedef enum DotBMode {
    DOT_B_DIRECT, /* vectors are loaded where they are, one row every `step` elements */
    DOT_B_COPIED, /* a panel at a time is computed into scratch */
    DOT_B_MADE,   /* each vector is computed where it is used: of one tile of rows */
    DOT_B_BLOCKS  /* words of integers, taken apart where they are used */
} DotBMode;

typedef struct DotB {
    DotBMode mode;
    KVal load;    /* direct: the kload */
    DType memory; /* direct: its element type, cast to the accumulator's when loaded */
    Expr step;
    LLVMValueRef copy; /* copied: the scratch panel */
} DotB;

/* Of a contraction in blocks. */
typedef struct DotBlocks {
    uint32_t size; /* rows of k in one; 0: it is not */
    bool digits;   /* only the right ones are: see blocks/digits.c */
    uint32_t few;  /* rows of M, at most, that are multiplied by all columns of a panel at a time */
    KScaled a, b[K_MAX_ACC];
    bool zeros; /* there are zero points other than one number, which is ... */
    int64_t zero;
    Expr count;
} DotBlocks;

typedef struct Dot {
    Emit *e;
    const Kernel *k;
    const KDot *t;
    ExprPool *p;
    DType acc;
    LLVMTypeRef elem;
    uint32_t bytes, lanes, nv, width, mr;
    DotGroup batch, m, n, kk; /* kk: in the order of the right operand's rows */

    /* left operand */
    bool quads; /* u8 by i8, in groups of four rows */
    bool pairs; /* both operands are integers of 16 bits or less, summed in 32; or ... */
    bool bf16;  /* ... of bf16, summed in f32 */
    DotBlocks scaled;
    uint32_t part, bits; /* kir_part: sums may be made in digits */
    struct {             /* in tile registers: dot_amx.c */
        bool on;
        bool in_place;             /* rows of the left operand are read where they lie */
        Expr stride;               /* elements from one to the next */
        LLVMValueRef config, rows; /* of the registers; i64: rows of a tile in it, 0 = none yet */
    } amx;
    KVal a;                /* what runs hold: the operand or, in pairs, what it is widened from */
    DType left;            /* a run's element type */
    bool direct;           /* runs may be read in place ... */
    bool guarded;          /* ... where the load's mask holds */
    DotGroup ka;           /* the axes of kk, those first along which its strides are long */
    Expr rows[K_MAX_AXES]; /* rows of the right operand that a step along ka's axis skips */
    bool permuted;         /* ka's order is not kk's */
    bool columns;          /* rows lie side by side in memory: see dot_columns.c */
    uint32_t nrun;         /* the last nrun axes of ka make a run */
    Expr run, nruns;       /* its length, their number per row */
    Expr step;             /* stride along a run */
    LLVMValueRef table, packed;

    DotB b[K_MAX_ACC];
    bool makes; /* where M is one tile, each of b is made and not copied */

    /* blocks */
    Expr span, spans; /* blocks that share a table: items walk them fastest, then panels */
    Expr tiles, block, blocks, panels; /* tiles of M, tiles in a block, blocks, panels */
    bool in_registers; /* the epilogue takes accumulators from registers, not from `tile` */
    bool across;       /* sub-panels inside of row tiles, all in slices of k or a plane */
    /* [DOT_ROWS][width]; where sums are sliced all rows of a block, across whole panels wide */
    LLVMValueRef tile[K_MAX_ACC];

    /* Winograd: tiles are of 2x2 outputs, and the micro-kernel runs once for each of the 16 planes
     * of the transformed operands. */
    struct {
        DotGroup outer;            /* the axes of M before oh and ow */
        uint32_t axis[4];          /* oh, ow, kh, kw */
        uint32_t channel;          /* c */
        Expr height, width;        /* in tiles */
        Expr rows, channels;       /* rows of a block, C rounded up to vectors */
        LLVMValueRef accumulators; /* [16][rows][width of a sub-panel], a line apart */
        LLVMValueRef to, entry, b; /* of the current plane; NULL outside of Winograd */
    } wino;

    /* current work item and sub-panel */
    LLVMValueRef tile0, tile1;       /* tiles of M */
    LLVMValueRef span0, span1, row0; /* those that share a table; the first row of span0 */
    LLVMValueRef slice_row;          /* the block's first row, counted from row0 */
    Expr panel, n0;                  /* panel number; first column */
    Expr second;        /* first column of vector 1, if not right behind vector 0's; else 0 */
    LLVMValueRef apart; /* ... bytes from vector 0's weights to its own */
} Dot;

/* dot_parts.c */
void dot_group(Dot *d, DotGroup *g, uint32_t axes);
void dot_bind(Dot *d, const DotGroup *g, Expr flat); /* axes of g in the current scope */
/* Lanes over g as one from `base` on; `aligned`: a multiple of the lanes. */
void dot_bind_lanes(Dot *d, const DotGroup *g, Expr base, LLVMValueRef mask, bool aligned);
/* ... over columns. */
void dot_bind_columns(Dot *d, Expr base, LLVMValueRef mask);
Expr dot_column(Dot *d, uint32_t j); /* the first one of vector j of the sub-panel */
/* Of nv vectors of columns from d->n0 on, those that there are; NULL: all. */
void dot_column_masks(Dot *d, uint32_t nv, bool masked, LLVMValueRef *mask);
/* Strides of `index` along the last axes of g: the number of axes, counted from the last, that one
 * stride walks through, and that stride. 0 if not even the last axis is affine. */
uint32_t dot_uniform_stride(Dot *d, const DotGroup *g, Expr index, Expr *stride);
/* Whether an address computed by the kernel (a gather's) makes x change along axes of g. Such a
 * symbol hides the axes, so x may look affine or uniform in them. */
bool dot_moves_indirectly(Dot *d, const DotGroup *g, Expr x);
/* A load in v's body that moves along the contracted axes, or 0. */
KVal dot_load_of(Dot *d, KVal v);
/* All tiles have as many rows as others, or one more; or else the last one has what is left. */
bool dot_evens_rows(const Dot *d);
LLVMValueRef dot_first_row(Dot *d, LLVMValueRef tile); /* row at which a tile of M begins */
LLVMValueRef dot_end_row(Dot *d, LLVMValueRef tile);   /* ... at which the one before it ends */

/* Whether both sides have bf16's digits, the right one in panels of pairs. */
bool dot_is_bf16(const Kernel *k);

/* Rows of the right operand that lie side by side in panels: whole groups of them are walked. */
uint32_t dot_group_rows(const Dot *d);

/* dot_operand.c */
void dot_analyse_a(Dot *d);
void dot_fill_table(Dot *d, LLVMValueRef rows);
/* Rows of M follow each other in memory as they are: all of a tile's are one run. */
bool dot_rows_follow(Dot *d);
/* Computes one run into `slot`, for the bound row and outer contracted axes. */
void dot_pack_run(Dot *d, LLVMValueRef slot);
/* Row of the right operand with which a run begins. */
Expr dot_run_row(Dot *d, Expr run);

/* dot_columns.c */
bool dot_analyse_columns(Dot *d); /* false: the operand is not of that kind */
void dot_copy_columns(Dot *d);    /* of the span, and its table */

/* blocks/blocks.c */
typedef struct DotBlockTile {
    uint32_t rows, nv, of;    /* of: the right operand's number */
    LLVMValueRef row;         /* the first, counted from that of the block of rows */
    const LLVMValueRef *mask; /* of each vector of columns; NULL: all are there */
} DotBlockTile;
void dot_analyse_blocks(Dot *d);
bool dot_has_digits(const Isa *isa);
void dot_analyse_digits(Dot *d);                 /* needs d->part, and work items */
Expr dot_blocks_bytes(Dot *d, Expr rows);        /* of the copy of so many rows */
void dot_copy_blocks(Dot *d, LLVMValueRef rows); /* the left operand */
void dot_block_sums(Dot *d, const DotBlockTile *t, LLVMValueRef *acc);

/* dot_right.c */
void dot_analyse_b(Dot *d, uint32_t i);
bool dot_costly_copy(Dot *d, uint32_t i);   /* its columns do not lie side by side */
bool dot_always_direct(Dot *d, uint32_t i); /* on every variant that shares the work items */
void dot_gather_far(Dot *d, uint32_t i);    /* a direct one may be copied after all */
bool dot_may_make(Dot *d, uint32_t i);      /* a copied one; needs blocks */
Expr dot_rows_of_panel(Dot *d);             /* with those that fill its last group */
void dot_copy_panel(Dot *d, uint32_t i);    /* needs `lanes` rows of slack behind the panel */

typedef struct DotAhead {
    LLVMValueRef at;   /* what is asked for next; NULL: nothing is */
    LLVMValueRef pace; /* bytes a step */
    uint32_t lines;    /* ... which are so many lines of the cache at most */
    bool near;         /* the rows that come next are asked for, too */
} DotAhead;

/* A micro-kernel's number among all that run over a panel. */
typedef struct DotTurn {
    LLVMValueRef at, of;
} DotTurn;

/* While it walks right operand i: */
typedef struct DotWalk {
    LLVMValueRef start; /* of `rows` rows, at their columns from d->n0 on */
    Expr rows;
    DotTurn turn;
    LLVMValueRef left; /* where the next tile's rows of the left operand begin; NULL: not one run */
} DotWalk;

/* ... it asks for what lies behind them, or the next tile's rows. */
DotAhead dot_ahead(Dot *d, uint32_t i, const DotWalk *w);
void dot_ask(Dot *d, DotAhead *a); /* at each step of k */
void dot_ask_line(Dot *d, LLVMValueRef at);
void dot_ask_result(Dot *d, uint32_t buf, Expr index); /* into the first cache */
/* ... and into the first cache nv vectors some rows behind `row` of right operand i. */
void dot_ask_near(Dot *d, const DotAhead *a, uint32_t i, LLVMValueRef row, uint32_t nv);

/* dot_kernel.c */
uint32_t dot_sums_width(const Dot *d); /* elements from a row's sums in memory to the next row's */
bool dot_in_chunks(const Dot *d);      /* sums are made of chunks, which meet in `tile` */
int64_t dot_right_bytes(const Dot *d); /* of an element of the right operand, as panels hold it */
bool dot_is_deep(const Dot *d);        /* k is so long that two panels leave the cache no room */
bool dot_may_slice(const Dot *d);      /* ... and are walked chunk by chunk where nothing is made */
bool dot_may_go_across(const Dot *d);  /* ... so, or a plane, by all sub-panels of a panel */

/* dot_panel.c */
/* nv vectors of columns from column d->n0 on; those from N on are masked off if `masked`. */
typedef void DotColumns(Dot *d, uint32_t nv, bool masked, void *ctx);
/* The current panel's sub-panels, one after the other: d->n0 is set. */
void dot_sub_panels(Dot *d, DotColumns *at, void *ctx);
LLVMValueRef dot_into_panel(Dot *d); /* columns of the panel in front of d->n0 */

/* dot_tiles.c */
/* All row tiles of the item against nv vectors from column d->n0 on; columns from N on are masked
 * off if `masked`. */
void dot_tiles(Dot *d, uint32_t nv, bool masked);
void dot_tiles_across(Dot *d); /* ... against the current panel, each all its columns */
void dot_store_all(Dot *d);
/* First element of right operand i's sub-panel: row 0, column n0. */
LLVMValueRef dot_panel_start(Dot *d, uint32_t i);
/* Stores what becomes of `rows` rows of d->tile, the first of which is row `first` of M. */
void dot_epilogue(Dot *d, uint32_t nv, const LLVMValueRef *mask, LLVMValueRef first,
                  LLVMValueRef rows);

/* dot_amx.c */
void dot_amx_reserve(Dot *d);
void dot_amx_left(Dot *d, LLVMValueRef rows); /* of the span */
void dot_amx_tiles(Dot *d, uint32_t nv, bool masked);
void dot_amx_release(Dot *d); /* at the kernel's end */

/* wino.c */
void wino_analyse(Dot *d); /* replaces M by 2x2 tiles */
void wino_reserve(Dot *d);
void wino_transform(Dot *d, LLVMValueRef rows); /* the block's part of the left operand */
void wino_tiles(Dot *d, uint32_t nv, bool masked);
void wino_across(Dot *d); /* ... against the current panel */

#endif
