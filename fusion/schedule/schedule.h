/* Fusion's result: kernels in launch order over buffers. Target-neutral but for Machine. */
#ifndef FUSION_SCHEDULE_H
#define FUSION_SCHEDULE_H

#include "fusion/kir/kir.h"
#include "fusion/schedule/machine.h"

typedef enum BufKind {
    BUF_input,    /* graph input `index` */
    BUF_output,   /* graph output `index` */
    BUF_const,    /* constant of graph node `node` */
    BUF_prepared, /* written by a prepare step at load, kept */
    BUF_temp,     /* arena */
    BUF_state     /* graph state `index`: the session's, from run to run */
} BufKind;

typedef struct SBuffer {
    BufKind kind;
    DType dtype;
    Expr numel;           /* elements to allocate: an upper bound where sizes are data-dependent */
    uint32_t index;       /* input, output or state number */
    Value node;           /* what it holds, for dumps and BUF_const ... */
    const Graph *graph;   /* ... in this graph: the schedule's or a loop's or branch's body */
    Value holds;          /* value of the schedule's graph that lies in it whole, 0 = none ... */
    const uint8_t *order; /* ... with dimension order[i] at position i; NULL: as in its type */
    uint32_t alias; /* 0, or 1 + number of the buffer whose storage it uses (in place, or a part of
                       a concatenation) ... */
    Expr alias_offset;    /* ... at this element offset */
    uint32_t first, last; /* steps (indices into Schedule.steps) from which and up to which it keeps
                             what it holds; of the owner of storage for all that share it, loops
                             taken into account. first > last: no step uses it */
} SBuffer;

typedef enum StepKind {
    STEP_kernel,
    STEP_loop_begin,
    STEP_loop_end,
    STEP_if_begin,
    STEP_if_else,
    STEP_if_end
} StepKind;

typedef struct SStep {
    StepKind kind;
    bool prepare; /* depends on constants only: run once at load */
    bool carry;   /* a copy that makes the next value of what a loop carries the present one */
    Kernel *kernel;
    uint32_t *bufs;              /* kernel->nparams buffer numbers */
    uint32_t iter;               /* loop: iteration symbol */
    Expr trip;                   /* loop: trip count, or 0: read from i64 buffer `trip_buf` */
    uint32_t trip_buf, cond_buf; /* 1 + buffer number, 0 = none; cond: bool, tested before each
                                    iteration / by if */
    uint32_t match;              /* begin <-> end (if: begin -> else -> end) */
} SStep;

/* Reasons why two nodes were not fused: WHY(id, text, what would change it). */
#define FUSION_WHY(X)                                                                              \
    X(output, "the value is an output", "the model would have to give it no longer")               \
    X(placed, "a concatenation, a loop or a branch needs it in memory",                            \
      "without them around it, it need not be stored")                                             \
    X(shared, "other kernels read the value, too",                                                 \
      "a value with one reader is not stored, nor is one that costs less to compute than to read") \
    X(row_mismatch, "the reduction walks another row",                                             \
      "reductions over the same axes of the same sizes share a kernel")                            \
    X(few_rows, "its rows are few and long: a kernel of its own takes them with all processors",   \
      "more rows, or shorter ones")                                                                \
    X(columns, "it folds columns, which neighbouring threads read side by side",                   \
      "little: a thread that came back to a column would read it alone")                           \
    X(recompute, "inlining would compute it more than once",                                       \
      "fewer readers per element, or less arithmetic in it")                                       \
    X(template_input, "a contraction reads it more than once per element",                         \
      "little: each tile of the contraction would compute it anew. Only what costs almost "        \
      "nothing (a cast, a scale) is computed there")                                               \
    X(anchors, "each of the two has a contraction or attention of its own",                        \
      "nothing: a kernel has one, and takes in what is pointwise or a row around it")              \
    X(lookups, "many lookups, one after the other, find it: they keep an order of their own",      \
      "a shorter walk")                                                                            \
    X(too_large, "the fused kernel would exceed a size limit",                                     \
      "fewer operands, reductions or results in one kernel")                                       \
    X(tile_row, "the contraction's tile does not hold a whole row",                                \
      "a row as short as a tile: fewer columns")                                                   \
    X(kind, "this kind of kernel takes no epilogue",                                               \
      "pointwise kernels, rows, contractions, convolutions and attention take one")                \
    X(stopped, "fusion was stopped before (--fuse-at-most)", "compiling without --fuse-at-most")
typedef enum FusionWhy {
#define X(id, text, change) WHY_##id,
    FUSION_WHY(X)
#undef X
        WHY_COUNT
} FusionWhy;
extern const char *const fusion_why_text[WHY_COUNT], *const fusion_why_change[WHY_COUNT];

typedef struct Refusal {
    uint32_t producer, consumer; /* step numbers */
    FusionWhy why;
    Expr bytes; /* traffic that fusing would have saved: the read, and the write if nothing else
                   needs the value in memory */
} Refusal;

typedef struct Schedule {
    const Graph *graph;
    ExprPool *exprs;
    const Machine *machine;
    VEC(SBuffer) buffers;
    VEC(SStep) steps;   /* prepare steps first, then those of each entry of the graph */
    VEC(uint32_t) ends; /* of each entry: the step behind its last; of a graph without, of all */
    VEC(Refusal) refusals;
    struct RunBounds *bounds; /* of symbols that the run gives a value; NULL: none is known */
    uint32_t decisions;       /* that fusion made ... */
    /* ... and the last that it was allowed, in words; NULL: none, or all */
    const char *last_decision;
} Schedule;

/* Needs an optimised graph. Deterministic. fuse_at_most: fusion stops after as many decisions, so
 * that a wrong result can be bisected to one; the first n are the same whatever the limit is. */
#define FUSE_ALL UINT32_MAX
graphc_status schedule_build(const Graph *g, const Machine *m, uint32_t fuse_at_most, Arena *a,
                             Schedule **out);
/* Finds first and last of every buffer: schedule_build did. */
void schedule_lifetimes(Schedule *s, Arena *a);
static inline bool schedule_used(const SBuffer *b) {
    return b->first <= b->last;
}
/* Symbol `sym`, to which the run gives a value, is `most` at most. */
void schedule_bound_add(Schedule *s, uint32_t sym, Expr most);
/* The most that e can be, in terms of what is known before the run. */
Expr schedule_bound(const Schedule *s, Expr e);
void schedule_print(const Schedule *s, StrBuf *out); /* post-fusion.kir */

#endif
