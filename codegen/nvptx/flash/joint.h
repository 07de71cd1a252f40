/* All gradients of an attention on tensor cores, scores computed once: keys' and values' are sums
 * of a thread block, which has a tile of keys; queries' are summed in memory, block by block of
 * queries, by the thread blocks of all tiles. They take turns in the order of their tiles: results
 * repeat, and as a thread block waits for such only that started before it, all of them end. The
 * first one stores, so that nothing need be zero.
 *
 * Warp 0 fetches, warps 1 and 2 add queries' sums, every other block each, warp 3 computes what
 * depends on queries alone; two warpgroups own 64 keys each, as rows: what they multiply stands in
 * the registers where the scores were.
 *
 * joint_plan.c says which kernels it takes; joint_tile.c where its barriers are; joint.c has the
 * roles and what is fetched, joint_queries.c the sums in memory, joint_compute.c what a warpgroup
 * computes. */
#ifndef CODEGEN_NVPTX_FLASH_JOINT_H
#define CODEGEN_NVPTX_FLASH_JOINT_H

#include "codegen/nvptx/flash/backward.h"

enum { JOINT_KEYS = 128, JOINT_GROUPS = 2, JOINT_STAGES = 2, JOINT_COLUMNS = 2, JOINT_WORD = 4 };
/* A box of sums: 64 rows of 32 numbers. */
enum { JOINT_BOX_COLS = 32, JOINT_BOX = 64 * JOINT_BOX_COLS * JOINT_WORD };
enum { JOINT_NAMED_ALL = 1, JOINT_NAMED_GROUP = 2 }; /* named barriers; + the warpgroup's number */

typedef struct JointTile {
    const char *name;
    uint32_t d;     /* head sizes up to this */
    uint32_t block; /* queries of a block */
    uint32_t heads; /* whose tiles are walked together */
    uint32_t regs_load, regs_math;
} JointTile;

enum { JOINT_keys, JOINT_values, JOINT_SUMS };

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
    uint32_t ncolumns;
    KVal column[JOINT_COLUMNS]; /* f32 values of queries alone, from shared memory */
    double after[JOINT_SUMS], after_q;
    HopMatrix q; /* queries' sums */
    BackResult result[JOINT_SUMS];
    HopMatrix out[JOINT_SUMS];
    bool sent[JOINT_SUMS]; /* stored by the copy engine */
    const JointTile *tile;
} JointPlan;

const char *joint_plan(Gpu *g, JointPlan *out);

typedef struct Joint {
    Back b; /* rows, ncolumns, behind, maps, ids ... */
    const JointPlan *p;
    const JointTile *t;
    HV map_q, map_out[JOINT_SUMS], turns; /* counters, one for each block of queries */
    HV blocks;                            /* of queries */
    BackPlace at;
    HV number; /* of the tile among its head's: its turn */
    uint32_t at_weights, weights_bytes, at_sums, sums_bytes, at_columns, columns_bytes;
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

/* Warps 1 and 2 (`which` from 0): sums to memory, in turn. */
void joint_queries(Joint *x, HV which);
void joint_compute(Joint *x);

#endif
