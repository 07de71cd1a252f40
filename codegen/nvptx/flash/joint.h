/* All gradients of an attention on tensor cores, scores computed once: keys' and values' are sums
 * of a thread block, which has a tile of keys; queries' are summed in memory, block by block of
 * queries, by the thread blocks of all tiles. They take turns in the order of their tiles: results
 * repeat. The first one stores, so that nothing need be zero.
 *
 * Where any order will do (CodeOptions.any_order) they add from registers instead, and the sums lie
 * as registers do, so that a warp adds whole lines, in places that heads take over from each other:
 * few enough to stay in the cache, and zero whenever one begins. Further thread blocks, movers,
 * wait until a head's sums are complete, store what is made of them, and leave zeros.
 *
 * A thread block waits for such only that started before it, so all of them end.
 *
 * Of a tile, warp 0 fetches, warps 1 and 2 add queries' sums in turn, every other block each, warp
 * 3 computes what depends on queries alone; two warpgroups own 64 keys each, as rows: what they
 * multiply stands in the registers where the scores were.
 *
 * joint_plan.c says which kernels it takes; joint_tile.c which tile a thread block has, and where
 * its barriers are; joint.c has the roles and what is fetched, joint_compute.c what a warpgroup
 * computes, joint_queries.c the sums in turn, joint_any.c those in any order, joint_move.c movers.
 */
#ifndef CODEGEN_NVPTX_FLASH_JOINT_H
#define CODEGEN_NVPTX_FLASH_JOINT_H

#include "codegen/nvptx/flash/backward.h"

enum { JOINT_KEYS = 128, JOINT_GROUPS = 2, JOINT_STAGES = 2, JOINT_COLUMNS = 2, JOINT_WORD = 4 };
/* A box of sums: 64 rows of 32 numbers. */
enum { JOINT_BOX_COLS = 32, JOINT_BOX = 64 * JOINT_BOX_COLS * JOINT_WORD };
/* In any order: of a block of queries each warpgroup sums 64 x 64 numbers, 8 times 4 of a thread.
 */
enum { JOINT_FOURS = 8, JOINT_FOUR_STEP = HOP_WARPGROUP * 16 };
enum { JOINT_PART = 64 * 64 * JOINT_WORD, JOINT_BLOCK = JOINT_GROUPS * JOINT_PART };
enum { JOINT_MOVED = 6 };                            /* blocks of a mover */
enum { JOINT_ALIKE = 16 };                           /* bytes, of which two words are used */
enum { JOINT_NAMED_ALL = 1, JOINT_NAMED_GROUP = 2 }; /* named barriers; + the warpgroup's number */

typedef struct JointTile {
    const char *name;
    uint32_t d;     /* head sizes up to this */
    uint32_t block; /* queries of a block */
    uint32_t heads; /* whose tiles are walked together, in turn */
    uint32_t regs_load, regs_math;
} JointTile;

enum { JOINT_keys, JOINT_values, JOINT_SUMS, JOINT_queries = JOINT_SUMS, JOINT_RESULTS };

typedef struct JointPlan {
    BackPlan b; /* of keys: x are keys and values, streams queries and the result's gradient */
    KVal pv;    /* weights of values, without scales; b.p is made of it and of the second score */
    /* Where pv is exp(s * scale - row), 0 where the condition (0: none) does not hold; row: the
     * first of the columns. Else 0 = scale. */
    double scale;
    KVal cond;
    bool cond_shows; /* what the condition is where the score counts */
    KVal own, point; /* its parts: of keys alone, of keys and queries; 0: there is none such */
    bool point_shows;
    bool edges; /* point is b.seen: it hides nothing in most blocks */
    /* Documents: a score counts where these loads of i32, of keys and of queries alone, are `same`;
     * 0: all do. Nothing is hidden where a block of queries and a warp's keys have one alone. */
    KVal same, same_key, same_query;
    uint32_t ncolumns;
    KVal column[JOINT_COLUMNS]; /* f32 values of queries alone, from shared memory */
    bool any;                   /* order of queries' sums */
    double after[JOINT_RESULTS];
    HopMatrix q; /* queries' sums, in turn */
    BackResult result[JOINT_RESULTS];
    HopMatrix out[JOINT_RESULTS];
    bool sent[JOINT_RESULTS]; /* stored by the copy engine; of queries, in any order */
    const JointTile *tile;
} JointPlan;

const char *joint_plan(Gpu *g, JointPlan *out);

typedef struct Joint {
    Back b; /* rows, ncolumns, behind, maps, ids ... */
    const JointPlan *p;
    const JointTile *t;
    HV map_q, map_out[JOINT_RESULTS];
    HV counts; /* i32s: of turns, one for each block of queries; else as JointCount says */
    HV blocks; /* of queries */
    HV band;   /* heads whose tiles are walked together */
    HV sums, places, movers; /* in any order: memory; heads that have a place; movers of a head */
    BackPlace at;
    HV number; /* of the tile among its head's: its turn; of a mover, likewise */
    HV start;  /* block with which the tile begins, and goes on round; NULL: the first */
    uint32_t at_weights, weights_bytes, at_sums, sums_bytes, at_columns, columns_bytes;
    uint32_t at_alike; /* of columns: a block's first document, and 1 if it has no other */
} Joint;

typedef enum JointBar {
    JOINT_x_full,
    JOINT_full, /* of stages */
    JOINT_empty = JOINT_full + JOINT_STAGES,
    JOINT_weights = JOINT_empty + JOINT_STAGES, /* both warpgroups' are there */
    JOINT_sums_full = JOINT_weights + JOINT_STAGES,
    JOINT_sums_empty = JOINT_sums_full + JOINT_STAGES,
    JOINT_BARS = JOINT_sums_empty + JOINT_STAGES
} JointBar;
HV joint_bar(Joint *x, JointBar bar, HV stage); /* NULL: it has no stages */
HV joint_stage(Joint *x, HV j);
HV joint_parity(Joint *x, HV j); /* of the j-th use of stages */
HV joint_block(Joint *x, HV j);  /* number of the tile's j-th block of queries */

/* A thread block has a tile, x->at and x->number, or else is a mover. */
typedef struct JointUnit {
    HV tile;    /* i1 */
    HV band, n; /* of the tile: its band, and its number there */
    HV mover;   /* number among all */
} JointUnit;
JointUnit joint_unit(Joint *x);
void joint_find_tile(Joint *x, const JointUnit *u);
void joint_find_mover(Joint *x, const JointUnit *u);

void joint_await(Joint *x, HV count, HV value); /* until a counter in memory has that value */
/* Warps 1 and 2 (`which` from 0): sums to memory, in turn. */
void joint_queries(Joint *x, HV which);
void joint_compute(Joint *x);

/* Sums in any order. Counters of heads, zero before and behind the kernel: warpgroups that have
 * added all of their tile's, and that have moved theirs. */
typedef enum JointCount { JOINT_done, JOINT_gone, JOINT_COUNTS } JointCount;
HV joint_count(Joint *x, JointCount what, HV head);
void joint_places(Joint *x, Expr tiles, Expr blocks); /* asks for memory, says how many */
Expr joint_movers(Joint *x, Expr blocks);             /* of a head */
/* Where a warpgroup's part of the sums of block m is, in memory (i64). */
HV joint_part(Joint *x, HV m, HV member);
/* A warpgroup whose thread's numbers are from `to` (i64) on adds those of block m. It begins when
 * the head in front has left the place, and ends. */
void joint_any_begin(Joint *x, HV lane0);
void joint_any_add(Joint *x, HV to, HV m, const HV *sums);
void joint_any_end(Joint *x, HV member, HV one);

/* The mover's role, in all threads, and its shared memory. */
void joint_move(Joint *x);
uint32_t joint_move_bytes(void);

/* Rows of 16-bit numbers, 64 in a panel, as the matrix units hold them: where this thread puts
 * them, of 64 rows behind each other, with its swizzle; those of columns 16 k to 16 k + 15. */
HV joint_put_place(Joint *x, HV *swizzle);
void joint_put(Joint *x, HV base, HV swizzle, uint32_t k, const HV *p);
/* A warpgroup's 64 x 64 sums of f32 as two boxes, likewise: all that the thread has. */
HV joint_box_place(Joint *x, HV *swizzle);
void joint_put_boxes(Joint *x, HV base, HV swizzle, const HV *q);

#endif
