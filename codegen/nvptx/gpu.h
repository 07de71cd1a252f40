/* Kernels as grids of threads: the body emitter with one lane, thread and block numbers bound to
 * axes. Every structure works for any sizes; which one a kernel gets depends on its IR and on size
 * hints only. */
#ifndef CODEGEN_NVPTX_GPU_H
#define CODEGEN_NVPTX_GPU_H

#include "codegen/compile.h"
#include "codegen/rows/passes.h"

enum {
    GPU_WARP = 32,      /* threads */
    GPU_GRID_Y = 65535, /* most blocks along y */
};

/* When a kernel waits for the one in front, which it may run beside (programmatic dependent
 * launch): before all else; where its structure has prepared what no other kernel sees (gpu_wait),
 * having read nothing; where its structure says so; or the structure sees to all of it. */
typedef enum GpuOrder {
    GPU_WAITS_FIRST,
    GPU_WAITS_PREPARED,
    GPU_WAITS_LATER,
    GPU_OWN_ORDER,
} GpuOrder;

typedef struct Gpu {
    Emit *e;
    CompileJob *j;
    const Kernel *k;
    const Machine *m;
    const Target *target;
    const CodeOptions *o;
    Passes *rows;
    uint32_t threads;           /* per block */
    LLVMValueRef tid, block[3]; /* i64 */
    LLVMValueRef time; /* i64: which of the times that the kernel does the same; NULL: one */
    uint32_t nshared;
    bool guarded;
    EmitIf in_batch; /* keeps blocks past the last batch out */
    uint32_t nmaps;
    GpuOrder order; /* as gpu_launch finds it */
} Gpu;

/* gpu.c */
/* The kernel's function. Its parameters (runtime/abi.h) are those that j asks for so far. */
void gpu_fn_begin(Emit *e, CompileJob *j);
/* Pointer to a tensor map that the kernel gets, in its parameters. */
LLVMValueRef gpu_map(Gpu *g, const CodeMap *m);
/* Zeroed memory (CodeKernel); at most once in a kernel. */
LLVMValueRef gpu_zeroed(Gpu *g, Expr bytes, bool kept);
/* Launch shape; reads thread and block numbers. */
void gpu_launch(Gpu *g, uint32_t threads, Expr x, Expr y, Expr z);
/* Until the kernels in front have ended and what they wrote is there: before the first read of what
 * any kernel of the run writes, and before the first write. */
void gpu_wait(Gpu *g);
/* Load v is of memory that no kernel of the run writes. */
bool gpu_is_stable(const Gpu *g, KVal v);
/* x (0: nothing) depends on values that the kernel reads or computes. */
bool gpu_is_computed(const Gpu *g, Expr x);
/* A load that depends on positions alone: it can be made ahead of what needs it. */
bool gpu_is_request(const Gpu *g, KVal v);
/* gpu_launch for x blocks per point of `axes`, which are bound: these lie along y and, past what y
 * can take, along z. The region between the two is where blocks have a point. */
void gpu_batch_begin(Gpu *g, uint32_t threads, Expr x, uint32_t axes);
void gpu_batch_end(Gpu *g);
void gpu_barrier(Emit *e);
void gpu_fence(Emit *e); /* between this thread's accesses and the whole GPU's */
/* One thread of each of n blocks calls it: how many did before, of the counter at p. It is zero
 * again after the last. */
LLVMValueRef gpu_count(Emit *e, LLVMValueRef p, uint32_t n);
/* From 0 to `last` (i32), and then from 0 again. */
LLVMValueRef gpu_count_to(Emit *e, LLVMValueRef p, LLVMValueRef last);
LLVMValueRef gpu_shuffle(Emit *e, LLVMValueRef v, uint32_t lane_xor);
/* What lane number `lane` (i32) of its group of so many lanes has. */
LLVMValueRef gpu_shuffle_from(Emit *e, LLVMValueRef v, LLVMValueRef lane, uint32_t lanes);
/* n elements of shared memory, 16-byte aligned. */
LLVMValueRef gpu_shared(Gpu *g, LLVMTypeRef elem, uint32_t n);
/* Binds the axes of the mask to the digits of `flat`, outermost first. */
void gpu_decode(Emit *e, const Kernel *k, uint32_t axes, Expr flat);
Expr gpu_points(Emit *e, const Kernel *k, uint32_t axes);
/* inside(g, of) at every point of `axes`, by loops of this thread, innermost last. */
void gpu_walk(Gpu *g, uint32_t axes, void (*inside)(Gpu *, const void *), const void *of);
/* How often loads and stores are contiguous (+) or strided (-) along an axis, among those that are
 * done anew for every point of an axis of `inner`. */
int gpu_contiguity(Emit *e, const Kernel *k, const uint32_t *dom, uint32_t inner, uint32_t axis);
int64_t gpu_hint(Emit *e, Expr x);
/* The axis of a mask of one. */
const KAxis *gpu_axis(const Gpu *g, uint32_t axis);
LLVMValueRef gpu_is_first(Gpu *g); /* in one thread of the block */
/* Arithmetic on i64. */
LLVMValueRef gpu_add(Emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef gpu_muli(Emit *e, LLVMValueRef a, int64_t b);
LLVMValueRef gpu_below(Emit *e, LLVMValueRef a, LLVMValueRef b); /* a < b */
LLVMValueRef gpu_smaller(Emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef gpu_larger(Emit *e, LLVMValueRef a, LLVMValueRef b);
/* A position inside of `extent`: `at`, or the last one where that is past the end. */
Expr gpu_kept_inside(Emit *e, const char *name, Expr extent, LLVMValueRef at);

/* math.c: for Emit.math and Emit.rcp. */
LLVMValueRef gpu_math(Emit *e, Op op, LLVMValueRef x);
/* Of kernels that compute points: coarser where bf16 is all that they store. */
typedef LLVMValueRef (*GpuMath)(Emit *e, Op op, LLVMValueRef x);
GpuMath gpu_math_of(const Kernel *k);
/* Emit.quick, for kernels in which no quotient is rounded to a whole number: an ulp would become
 * one. */
LLVMValueRef gpu_quick(Emit *e, Op op, LLVMValueRef x, LLVMValueRef y);
bool gpu_may_be_quick(const Kernel *k);
/* Emit.quick of quotients by constants, which are exact: without a branch to a division. */
LLVMValueRef gpu_by_constant(Emit *e, Op op, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef gpu_rcp(Emit *e, LLVMValueRef x);
LLVMValueRef gpu_coarse_exp(Emit *e, LLVMValueRef x);
/* For Emit.coarse: by op, whether its functions may be right in 11 bits only. */
bool *gpu_coarse(Arena *a, const Kernel *k);

/* team.c: threads that work on one row. */
#define TEAM_MOST_BLOCKS 16 /* of a cluster */
#define TEAM_MOST_READ   16 /* warps */
typedef struct TeamPair {
    LLVMValueRef lead, under, count;
} TeamPair;
typedef struct Team {
    Gpu *g;
    uint32_t size;       /* a power of two; above 32 it is the whole block, or one of several, and
                            whole warps are enough where every thread reads all */
    LLVMValueRef number; /* of several such teams of a block, i64; NULL: there is one */
    LLVMValueRef rank;   /* of the thread in its team, i64 */
    bool reads; /* one row: every thread reads what all warps have folded, where these are few; it
                   takes less time than shuffles */
    LLVMValueRef room; /* shared address of memory for what warps have folded (gpu_team_room); NULL:
                          it is the team's own */
    LLVMValueRef turn; /* NULL, or 0 and 1 by turns (i64), where one join may follow another with no
                          barrier between them */
    uint32_t blocks;   /* of a cluster, that are one team: their folds are f32, and they have turns;
                          0: one block */
    LLVMValueRef block; /* number of this one in the cluster (i64), or NULL */
    /* A fold and one that is made under it, or 0: what a part has of the second one is scaled to
     * what the first one is for all. counts: by how many elements it has, too. The second one's
     * parts, and these numbers behind them, stand behind the folds of the pass that has the first
     * one, and meet when they do. */
    KVal lead, under;
    bool counts;
    LLVMValueRef (*scale)(Emit *e, const TeamPair *own, const TeamPair *all); /* all.under: none */
    LLVMValueRef meet, phase; /* shared address, by gpu_team_meet; of turns 0 and 1, 0, of 2 and 3,
                                 1, and so on (i32) */
} Team;
uint32_t gpu_fold_width(const Gpu *g,
                        KVal v); /* accumulators of a fold: 2 for position and value */
DType gpu_fold_type(const Gpu *g, KVal v);
/* Identities of a pass's folds; the number of accumulators. */
uint32_t gpu_fold_init(Gpu *g, const Pass *p, uint32_t lanes, LLVMValueRef *acc);
void gpu_team_join(const Team *t, const Pass *p, LLVMValueRef *acc);
/* The same inside of a warp alone; the number of accumulators. */
uint32_t gpu_team_lanes(const Team *t, const Pass *p, LLVMValueRef *acc);
/* Bytes of Team.room for n folds of f32 that meet at once. */
uint32_t gpu_team_room(const Team *t, uint32_t threads, uint32_t n);
/* All threads of the team meet. */
void gpu_team_sync(const Team *t);
/* Where the blocks of a team meet, before any of them goes on: one thread makes the barriers. */
void gpu_team_meet(Team *t);

/* lanes.c: the vector of a thread. How many lanes along the axis are worth it (1 = none); they
 * divide its extent. skip: ops that are read in another way, or NULL. */
uint32_t gpu_lanes(Gpu *g, uint32_t axis, const bool *skip);
/* The same for a structure that takes what no vector holds element by element. */
uint32_t gpu_lanes_ragged(Gpu *g, uint32_t axis);
/* Binds the axis to the e->lanes elements of its vector number `vector`. */
void gpu_bind_lanes(Gpu *g, uint32_t axis, LLVMValueRef vector);
Expr gpu_vectors(Gpu *g, uint32_t axis); /* how many vectors the axis has */

/* ways.c: the structure has n ways to compute the kernel at the sizes that it has, which are known;
 * ways[0] is what it would take, then others, the likeliest first. Returns the way to emit now:
 * what was tuned before goes first, and further ones are the kernel's variants, as far as they are
 * asked for. `facts`: what the time depends on, beside the body. */
uint32_t gpu_ways(Gpu *g, const char *facts, const char *const *ways, uint32_t n);
bool gpu_has_ways(const Gpu *g); /* anybody asks for them */

/* Structures; false: not a kernel of that shape, nothing emitted. */
bool gpu_scan(Gpu *g);
bool gpu_sort(Gpu *g);
bool gpu_compact(Gpu *g);
bool gpu_serial(Gpu *g);
bool gpu_turns(Gpu *g);          /* a loop's iterations */
bool gpu_scatter(Gpu *g);        /* of many rows, in order */
bool gpu_gemm(Gpu *g);           /* on tensor cores */
bool gpu_flash(Gpu *g);          /* attention on tensor cores */
bool gpu_flash_backward(Gpu *g); /* one of its gradients */
bool gpu_flash_joint(Gpu *g);    /* all of them */
bool gpu_contract(Gpu *g);
bool gpu_decode_attention(Gpu *g); /* few queries, many keys */
bool gpu_attention(Gpu *g);
bool gpu_strip(Gpu *g); /* folds over windows */
bool gpu_band(Gpu *g);  /* rows, and sums of columns beside */
bool gpu_column(Gpu *g);
bool gpu_split(Gpu *g); /* few long folds */
bool gpu_transpose(Gpu *g);
bool gpu_row(Gpu *g);
bool gpu_vector_matrix(Gpu *g); /* a contraction with one row */
void gpu_point(Gpu *g);         /* any kernel */

#endif
