/* The instructions that sm_90a adds, one function each: asynchronous barriers, the tensor copy
 * engine, warpgroup matrix products, named barriers. Shared memory is addressed by 32-bit values
 * (the dynamic block's start is hop_shared), all other numbers are i32 too. Order, phases and who
 * executes what are the caller's. */
#ifndef CODEGEN_NVPTX_HOPPER_HOPPER_H
#define CODEGEN_NVPTX_HOPPER_HOPPER_H

#include "codegen/nvptx/gpu.h"

typedef LLVMValueRef HV;

/* --- hopper.c: arithmetic on i32, control, barriers ------------------------------------------- */

HV hop_i(Emit *e, int64_t v);
HV hop_add(Emit *e, HV a, HV b);
HV hop_addi(Emit *e, HV a, int64_t b);
HV hop_muli(Emit *e, HV a, int64_t b);
HV hop_shl(Emit *e, HV a, int b);
HV hop_shr(Emit *e, HV a, int b);
HV hop_andi(Emit *e, HV a, int64_t b);
HV hop_is(Emit *e, HV a, int64_t b); /* a == b */
HV hop_below(Emit *e, HV a, HV b);   /* a < b, of numbers without a sign */
HV hop_special(Emit *e, const char *name);
/* Inline PTX. `result` may be e->voidt; the operands' constraints are as LLVM has them. */
HV hop_asm(Emit *e, LLVMTypeRef result, const char *text, const char *constraints, const HV *args,
           uint32_t n);

/* Dynamic shared memory of the block, 1,024-byte aligned; g->j->shared_bytes says how much. */
HV hop_shared(Gpu *g);
HV hop_pointer(Emit *e, HV at); /* to the shared address, for plain loads and stores */
/* if (cond) { .. } without a scope: what is remembered inside must not be used outside. */
typedef struct HopIf {
    LLVMBasicBlockRef then, join;
} HopIf;
HopIf hop_if(Emit *e, HV cond);
void hop_end(Emit *e, HopIf i);
/* Two roles of a block's threads: what follows is for those where `first` holds; behind
 * hop_role_next, for the others; behind hop_roles_end, for all. */
typedef struct HopRoles {
    LLVMBasicBlockRef next, end;
} HopRoles;
HopRoles hop_roles(Emit *e, HV first);
void hop_role_next(Emit *e, HopRoles r);
void hop_roles_end(Emit *e, HopRoles r);

/* A loop tested at the top over values init[], which become phi[], then next[]; after it, phi[] are
 * what they were when the test failed. Without a scope, too. */
enum { HOP_WARPGROUP = 128, HOP_BARRIER_BYTES = 8 };
#define HOP_MAX_PHIS 256
typedef struct HopLoop {
    uint32_t n;
    HV init[HOP_MAX_PHIS], phi[HOP_MAX_PHIS], next[HOP_MAX_PHIS];
    LLVMBasicBlockRef pre, head, body, exit; /* pre enters the loop */
} HopLoop;
HopLoop *hop_loop_new(Emit *e);
void hop_loop_init(HopLoop *l, HV value); /* one more value */
void hop_loop_begin(Emit *e, HopLoop *l, const char *name);
void hop_loop_test(Emit *e, HopLoop *l, HV more);
void hop_loop_end(Emit *e, HopLoop *l);
/* Tested at the bottom instead: it runs once at least, and next[] are the values after it. */
void hop_loop_end_while(Emit *e, HopLoop *l, HV more);
HV hop_elect(Emit *e);                              /* true in one thread of the (converged) warp */
void hop_registers(Emit *e, uint32_t n, bool more); /* the warpgroup's, per thread */
void hop_sync(Emit *e, HV id, uint32_t threads);    /* named barrier 1 to 15 */
void hop_arrive(Emit *e, HV id, uint32_t threads);
void hop_warp_sync(Emit *e);
HV hop_warp_first(Emit *e, HV v); /* i32: v of the warp's first thread, in all of them */
HV hop_warp_all(Emit *e, HV is);  /* i32: 1 where it holds in all threads of the warp, else 0 */
void hop_fence_async(Emit *e);    /* plain shared accesses before, the copy engine's after */
void hop_fence_global(Emit *e);   /* the same of global memory */
void hop_depend_wait(Emit *e);    /* for the grid in front, under programmatic dependent launch */
void hop_depend_launch(Emit *e);

/* mbarriers: 8 bytes of shared memory each. */
void hop_barrier_init(Emit *e, HV bar, uint32_t count);
void hop_barrier_init_fence(Emit *e);
void hop_barrier_expect(Emit *e, HV bar, HV bytes); /* arrives, and expects so many */
void hop_barrier_arrive(Emit *e, HV bar, HV when);  /* by the threads where `when` holds */
void hop_barrier_wait(Emit *e, HV bar, HV parity);  /* until the phase of that parity is over */

/* Clusters: shared memory lies alike in all their blocks. */
HV hop_cluster_rank(Emit *e);
void hop_cluster_sync(Emit *e); /* all threads of all; what they wrote before is seen behind it */
/* The two halves of a meeting that says no more than that all blocks have begun. */
void hop_cluster_arrive(Emit *e);
void hop_cluster_wait(Emit *e);
/* x, an f32, to this shared address in block `rank`. */
void hop_cluster_store(Emit *e, HV shared, HV rank, HV x);
/* The same, and tells its barrier at this address of 4 bytes. */
void hop_cluster_send(Emit *e, HV shared, HV bar, HV rank, HV x);
/* Four f32 to 16 bytes of a block of the cluster, and from 16 bytes of this one. */
void hop_store_in(Emit *e, HV rank, HV at, const HV *v);
void hop_load_four(Emit *e, HV at, HV *v);
void hop_store_four(Emit *e, HV at, const HV *v); /* i32, there */
/* Arrives at the barrier of block `rank` of the cluster, by the threads where `when` holds. */
void hop_barrier_arrive_at(Emit *e, HV bar, HV rank, HV when);

/* --- matrix.c: matrices that the copy engine moves -------------------------------------------- */

/* In shared memory: rows of 128 bytes, in slabs of 64. */
enum { HOP_ROW_BYTES = 128, HOP_SLAB_ROWS = 64, HOP_SLAB = HOP_SLAB_ROWS * HOP_ROW_BYTES };
enum { HOP_MAX_BATCH = 3 };

/* A matrix per point of some batch axes: rows, and columns next to each other in memory. */
typedef struct HopMatrix {
    uint32_t buf;
    DType t;
    bool tf32;                    /* f32 that arrive rounded */
    Expr base, rows, cols, pitch; /* in elements */
    uint32_t nbatch, axis[HOP_MAX_BATCH];
    Expr stride[HOP_MAX_BATCH];
} HopMatrix;

/* The access of a load or store as a matrix of `rows` x `cols` axes per point of the batch axes;
 * false: not one that the copy engine can address. */
bool hop_matrix(Gpu *g, const KOp *o, uint32_t rows, uint32_t cols, uint32_t batch, HopMatrix *out);
/* The same of one row. */
bool hop_row(Gpu *g, const KOp *o, uint32_t rows, uint32_t cols, uint32_t batch, HopMatrix *out);
/* Its tensor map, moved in boxes of rows of 128 or 64 bytes, which are the swizzle. */
HV hop_matrix_map(Gpu *g, const HopMatrix *m, uint32_t box_cols, uint32_t box_rows);

HV hop_size(Emit *e, Expr v); /* an expression of sizes as i32 */
/* Of the batch axes of a kernel, by axis (NULL: not one of them); where point number `flat` of them
 * is in a matrix: its coordinates behind row and column. */
void hop_batch_extents(Gpu *g, uint32_t batch, HV *extent);
void hop_batch_at(Gpu *g, const HV *extent, const HopMatrix *m, HV flat, HV *at);

/* --- tma.c ------------------------------------------------------------------------------------ */

void hop_map_prefetch(Emit *e, HV map);
/* One box from (to) coordinates `at` (i32, innermost first); one thread executes it. */
void hop_tma_load(Emit *e, HV shared, HV bar, HV map, const HV *at, uint32_t rank);
/* The same into both blocks of the cluster, each told by its own barrier. */
void hop_tma_load_both(Emit *e, HV shared, HV bar, HV map, const HV *at, uint32_t rank);
/* Positions of windows (im2col) from corner `at` on, at tap[rank - 2] from the corner. */
void hop_tma_load_window(Emit *e, HV shared, HV bar, HV map, const HV *at, const HV *tap,
                         uint32_t rank);
/* `bytes` from global address `from` (i64); both addresses and bytes are multiples of 16. */
void hop_bulk_load(Emit *e, HV shared, HV from, HV bytes, HV bar);
void hop_bulk_store(Emit *e, HV to, HV shared, HV bytes); /* likewise, of the group in the making */
void hop_tma_store(Emit *e, HV map, HV shared, const HV *at, uint32_t rank);
void hop_tma_add(Emit *e, HV map, HV shared, const HV *at, uint32_t rank); /* to what is there */
void hop_tma_commit(Emit *e);
void hop_tma_wait_read(Emit *e, uint32_t left); /* all but `left` groups have read their memory */
void hop_tma_wait(Emit *e);                     /* all are done */
/* Four 8x8 matrices of 16-bit elements, a register each, to the addresses that the lanes give. */
void hop_stmatrix(Emit *e, HV at, const HV *r);
void hop_ldmatrix(Emit *e, HV at, HV *r);

/* --- wgmma.c ---------------------------------------------------------------------------------- */

typedef enum WgmmaType {
    WGMMA_bf16,
    WGMMA_f16,
    WGMMA_tf32,
    WGMMA_e4m3,
    WGMMA_e5m2,
    WGMMA_s8,
    WGMMA_s8_u8, /* A's type and B's */
    WGMMA_u8_s8,
    WGMMA_u8
} WgmmaType;

/* How an operand tile of 128-byte rows under the 128-byte swizzle lies in shared memory: rows of m
 * (n) with k along the row, or, 16-bit types only, rows of k with m (n) along it in panels of 64 */
typedef struct WgmmaOperand {
    bool across;    /* m (n) along the row */
    uint32_t panel; /* bytes from one panel of 64 to the next, in the row's direction */
} WgmmaOperand;

typedef struct WgmmaShape {
    WgmmaType type;
    uint32_t n;      /* columns: a multiple of 8 up to 256 */
    uint32_t ksteps; /* instructions along k: 32 bytes of k each */
    uint32_t blocks; /* of 64 rows, each with its own sums */
    uint32_t sums;   /* B operands over the same A, each with its own sums */
    WgmmaOperand a, b;
} WgmmaShape;

uint32_t wgmma_acc(const WgmmaShape *s);                /* sums per thread */
LLVMTypeRef wgmma_sum_type(const Emit *e, WgmmaType t); /* i32 of integers, else f32 */
/* Descriptor of the operand tile at a shared address. */
HV wgmma_descriptor(Emit *e, const WgmmaOperand *o, HV shared);
/* Of step `i` along k from it on: 32 bytes on in the row of 128, or 16 rows of k. */
HV wgmma_step(Emit *e, const WgmmaOperand *o, HV desc, uint32_t i);
/* acc = A B (+ acc, where `more`) for one k-block, as one group in flight: a[blocks] and b[sums]
 * are descriptors. Until it was waited for, acc may go to the next product only. */
void wgmma_block(Emit *e, const WgmmaShape *s, HV *acc, const HV *a, const HV *b, HV more);
/* The same with A in registers, one block of 64 rows: a[4 * ksteps], 16-bit pairs as sums lie. */
void wgmma_block_held(Emit *e, const WgmmaShape *s, HV *acc, const HV *a, HV b, HV more);
void wgmma_wait(Emit *e, uint32_t left); /* all but `left` groups are over */
/* The same; acc, of a group that is over, may be read after it. */
void wgmma_wait_acc(Emit *e, uint32_t left, HV *acc, uint32_t n);
void wgmma_wait_all(Emit *e, HV *acc, uint32_t n);
/* What computes v[] stays in front of what follows. */
void wgmma_pin(Emit *e, HV *v, uint32_t n);

#endif
