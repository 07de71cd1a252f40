/* The row emitter: loop structure for pointwise and reduction kernels, and for any other kernel
 * that no template takes.
 *
 * Parallel axes are flattened into work items. One axis runs over lanes: either the innermost
 * parallel axis (pointwise, reductions of outer axes: then a chunk of it belongs to each item) or
 * the row that reductions walk. Each item computes its folds in passes, level by level, then
 * stores. Several *copies* (neighbouring rows, output columns or lane blocks) go through every loop
 * together: their latencies overlap and what they share is loaded once. Row values that several
 * passes need and that cost more than a load are kept in the thread's scratch. */
#ifndef CODEGEN_CPU_ROWS_H
#define CODEGEN_CPU_ROWS_H

#include "codegen/rows/passes.h"

#define ROWS_MAX_COPIES 16
#define ROWS_MAX_KEPT   8

/* A row value held in scratch: element `axis value` of it, times the lanes when it varies over a
 * parallel lane axis. */
typedef struct Kept {
    KVal v;
    uint32_t axis;
    bool varies;
    LLVMValueRef ptr[ROWS_MAX_COPIES];
} Kept;

typedef struct Copy {
    uint32_t nbinds;
    uint32_t sym[3];
    Expr by[3];
    bool lanes[3]; /* by is a lane base */
    LLVMValueRef mask;
    VEC(EmitOverride) known; /* folds computed so far */
} Copy;

typedef struct Rows {
    Emit *e;
    const Kernel *k;
    const uint32_t *dom;
    Passes p;
    uint32_t keeps[ROWS_MAX_PASSES]; /* of each pass, bit i: fills kept[i] */
    int lane;                        /* axis, or -1 */
    bool lane_par;
    int tile; /* axis whose neighbours are copies, or -1 */
    uint32_t tile_copies, lane_copies;
    bool chained;           /* copies wait for their loads together */
    bool turned;            /* copies are neighbours where lanes are rows (rows_turn.c) */
    bool joined;            /* copies are all neighbours, with lanes behind them (rows_turn.c) */
    Expr chunk;             /* lane_par: elements of the lane axis per item */
    uint32_t nkept, filled; /* filled: bit mask of those that hold their values now */
    Kept kept[ROWS_MAX_KEPT];
    uint32_t ncopies; /* now */
    Copy copy[ROWS_MAX_COPIES];
} Rows;

/* rows_choose.c: from the passes on. False: there are more scans and sorts than can be kept. */
bool rows_choose(Rows *r);
/* rows_slices.c: info's slices, for work items of which each step of the axis has as many. */
void rows_slices(const Rows *r, uint32_t outer, EmitInfo *info);
static inline uint32_t rows_keeps(const Rows *r, const Pass *p) {
    return r->keeps[p - r->p.pass];
}
/* rows_turn.c: whether some load's neighbours are along that axis, lanes' elements far apart; such
 * loads of all copies, ahead of the pass. */
bool rows_turns(const Rows *r, uint32_t axis);
void rows_turn(Rows *r);
/* ... whether all stores put n neighbours along that axis side by side, and lanes n apart; one of
 * all copies, whose lanes are all there. */
bool rows_joins(const Rows *r, uint32_t axis, int64_t n);
void rows_join_store(Rows *r, KVal store);
void rows_enter(Rows *r, uint32_t copy); /* pushes a scope with the copy's bindings */
/* rows_walk.c */
void rows_run_passes(Rows *r);
static inline bool rows_const_int(LLVMValueRef v, int64_t *out) {
    if (!LLVMIsAConstantInt(v)) return false;
    *out = LLVMConstIntGetSExtValue(v);
    return true;
}
/* rows_span.c. One step of a walk along an axis over lanes: `n` neighbouring blocks of e->lanes
 * elements, the first at `base`. */
typedef void (*RowsStep)(Rows *r, void *ctx, uint32_t n, Expr base, LLVMValueRef mask,
                         LLVMValueRef *acc);
/* Walks [lo, hi), hi - lo divisible by `divisor`: `blocks` at a time, then one by one, the last
 * under a mask. acc[nacc] are carried. */
void rows_span(Rows *r, LLVMValueRef lo, LLVMValueRef hi, int64_t divisor, uint32_t blocks,
               uint32_t nacc, LLVMValueRef *acc, RowsStep step, void *ctx);
/* rows_serial.c, rows_sort.c: scans and sorts of one row into scratch */
void rows_scan(Rows *r, KVal v, const Kept *to);
void rows_sort(Rows *r, KVal v, const Kept *to);
void rows_compact(Rows *r, KVal v);
/* Values of filled rows that the operand may read at this position. */
void rows_use_kept(Rows *r, uint32_t axis);
/* Pointer to the kept value at the axis's present position. */
LLVMValueRef rows_kept_at(Rows *r, const Kept *q, uint32_t copy);

#endif
