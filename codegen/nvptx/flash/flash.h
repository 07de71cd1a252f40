/* Attention on tensor cores: a persistent kernel of one warpgroup that fetches and one to three
 * that each own 64 queries of a tile. Scores and probabilities stay in registers; the exponential
 * is a power of two with the scale in its argument; keys come in blocks from the last one to the
 * first, so that the blocks that a causal mask cuts through come first and the others need none.
 *
 * flash_plan.c says which kernels it takes; flash_tile.c where its barriers and tiles are; flash.c
 * has the roles and what is fetched, flash_compute.c what a warpgroup computes, flash_query.c its
 * queries where they are not fetched, flash_exact.c its products of f32. */
#ifndef CODEGEN_NVPTX_FLASH_FLASH_H
#define CODEGEN_NVPTX_FLASH_FLASH_H

#include "codegen/nvptx/hopper/hopper.h"

enum { FLASH_PANEL = 64, FLASH_GROUP_ROWS = 64, FLASH_MAX_STAGES = 4, FLASH_SLOT_BYTES = 4 };
enum { FLASH_VECTOR = 16 };  /* bytes */
enum { FLASH_WIDEST = 512 }; /* head of queries and keys */
enum { FLASH_STORES = 4 };
enum { FLASH_MAX_TESTS = 4, FLASH_MAX_PER_KEY = 2, FLASH_WORD = 4 };
enum { FLASH_NAMED_STAGING = 3 }; /* named barriers: + the warpgroup's number */

typedef struct FlashTile {
    const char *name;
    bool exact;      /* of f32 */
    uint32_t d;      /* head sizes of queries and keys up to this, */
    uint32_t values; /* and columns of values */
    bool cuts;       /* more columns are several tiles, each with its scores computed again */
    uint32_t groups; /* of 64 queries */
    uint32_t keys;   /* in a block */
    uint32_t stages; /* of keys, and of values: a power of two */
    uint32_t heads;  /* whose tiles are walked together, so that keys and values stay in L2 */
    bool turns;      /* warpgroups start their products one after the other */
    bool shares;     /* results leave from where the queries were: there is no room for both */
    uint32_t regs_load, regs_math; /* 0: as many as there are for so few warps */
    uint32_t may_spill;            /* bytes, once a tile */
} FlashTile;

typedef struct FlashPlan {
    HopMatrix q, k, v, o;
    bool exact; /* f32 are multiplied in products of tf32 (flash_exact.c); else: */
    WgmmaType type;
    uint32_t size, panel; /* bytes of a number; numbers of a row of a panel */
    uint32_t d, dv;       /* in whole panels; dv: of a cut */
    uint32_t cuts;        /* of the values' columns */
    bool computes_q;      /* queries are computed from what is loaded; q is not set */
    double factor;        /* constant scales of queries and keys, which are multiplied without */
    bool body;    /* scores are computed by the kernel's body; else they are s * scale ... */
    double scale; /* factor and all */
    Expr causal; /* ... masked where j > i + causal; 0 = nowhere. With a body: what it leaves out */
    /* With a body: compares that tell what is causal, and what they say of keys in sight; ... */
    uint32_t ntests;
    KVal test[FLASH_MAX_TESTS];
    bool seen[FLASH_MAX_TESTS];
    uint32_t nper_key; /* ... and what it takes from a key alone: f32, i32 or bool */
    KVal per_key[FLASH_MAX_PER_KEY];
    KVal statistics;          /* 0, or the store of what is made of a query's maximum and sum */
    KVal store[FLASH_STORES]; /* of results one by one */
    uint32_t nstores;         /* 0: results leave as a matrix, `o` */
    Expr queries, keys, heads;
    const FlashTile *tile;
} FlashPlan;

/* The load behind a factor, through casts and constant scales: *scale times what those are. NULL:
 * something else is computed. */
const KOp *flash_plain_load(const Kernel *k, KVal v, double *scale);
/* NULL, or why the kernel is not one for tensor cores. */
const char *flash_plan(Gpu *g, FlashPlan *out);

typedef struct Flash {
    Gpu *g;
    Emit *e;
    const KAttn *a;
    const FlashPlan *p;
    const FlashTile *t;
    uint32_t rows;                             /* queries of a tile */
    uint32_t k_bytes, v_bytes;                 /* of a block */
    uint32_t at_k, at_v, at_o, at_bar, at_key; /* in shared memory; queries are at 0 */
    uint32_t o_panel, o_group; /* bytes from a panel of results to the next, and from a warpgroup's
                                  to the next one's */
    HV shared, map_q, map_k, map_v, map_o, counter;
    HV tid, lane, warp, group;
    HV nqueries, nkeys, shift, row_tiles, heads, tiles; /* i32; heads: times cuts */
    HV extent[K_MAX_AXES];                              /* of the batch axes */
} Flash;

/* One tile. Its block number j of keys is the one that starts at key (blocks - 1 - j) * keys. */
typedef struct FlashPlace {
    HV row, head; /* first query; flat batch index */
    HV column;    /* first one of the values */
    HV blocks;
} FlashPlace;

/* Tile number `tile` of rows x heads: tiles go over `band` heads, then down the rows, from the last
 * ones where they see more (`ahead`), then to the next heads. */
typedef struct FlashOrder {
    HV row, head; /* number of its rows among row_tiles; flat batch index */
} FlashOrder;
FlashOrder flash_order(Emit *e, HV tile, HV row_tiles, HV heads, int64_t band, bool ahead);

/* mbarriers. Those of stages have one for each. */
typedef enum FlashBar {
    BAR_q_full,
    BAR_q_empty,
    BAR_k_full,
    BAR_k_empty = BAR_k_full + FLASH_MAX_STAGES,
    BAR_v_full = BAR_k_empty + FLASH_MAX_STAGES,
    BAR_v_empty = BAR_v_full + FLASH_MAX_STAGES,
    BAR_tile_full = BAR_v_empty + FLASH_MAX_STAGES, /* the number of the next tile: two slots */
    BAR_tile_empty = BAR_tile_full + 2,
    BAR_COUNT = BAR_tile_empty + 2
} FlashBar;
HV flash_bar(Flash *x, FlashBar bar, HV stage); /* NULL: it has no stages */
HV flash_stage(Flash *x, HV block);             /* of the block with that number */
HV flash_parity(Flash *x, HV block);
HV flash_slot(Flash *x, HV stage); /* where the tile's number is */
FlashPlace flash_place(Flash *x, HV tile);
/* A position along an axis from an i32; clamp: it may be past the end, and is the last one then. */
Expr flash_position(Emit *e, const char *name, Expr extent, HV at, bool clamp);
/* Of `rows` queries from `row` on: how many blocks of keys any of them sees, at least one; and how
 * many they all see whole (NULL: not asked for). */
HV flash_blocks(Flash *x, HV row, uint32_t rows, HV *whole);

/* A warpgroup's 64 queries of the tile, computed into shared memory as the copy engine would have
 * put them: rounded to the type that is multiplied, zeros past the head's size. The batch axes are
 * bound. `member`: number of the warpgroup. All of its threads call this, and may multiply then. */
void flash_queries(Flash *x, const FlashPlace *at, HV member);

/* flash_exact.c: s = Q K of the warpgroup's queries and a block of keys, o = o alpha + p V (alpha
 * of a thread's two rows; NULL: o = p V) and the results' way to where they are stored from, which
 * are shared addresses. s and p lie as sums do. */
void flash_exact_scores(Flash *x, HV queries, HV keys, HV *s);
void flash_exact_values(Flash *x, HV values, const HV *p, const HV *alpha, HV *o);
void flash_exact_store(Flash *x, HV staging, const HV *o);

/* Tiles until there are no more. */
void flash_compute(Flash *x);

#endif
