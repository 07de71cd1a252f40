/* The emitter's vocabulary: kernel bodies to LLVM IR, for every loop structure and target.
 *
 * A loop structure (row emitter, contraction or attention template, GPU kernel) makes blocks and
 * loops, says in *scopes* what the kernel's axes are bound to, and asks for values and stores; the
 * body emitter does the rest. Prologues, epilogues and whole pointwise kernels are the same call.
 *
 * A value is either uniform (an LLVM scalar) or varies over the lanes of the current lane axis (an
 * LLVM vector of e->lanes elements). Uniform operands are splatted where they meet varying ones.
 * With lanes == 1 (GPU threads, scalar loops) everything is uniform.
 *
 * Value types: f64 f32 as LLVM floats; integers iN; bool i1 (i8 in memory); narrow floats and
 * sub-byte integers as raw iN bits that only OP_cast, OP_bitcast, select, loads and stores touch.
 *
 * Scopes and dominance. Scopes nest as control flow does. What a scope has emitted is remembered
 * and reused in it and in inner scopes, never outside. A scope made by emit_push continues the
 * block of its outer scope; one made by emit_push_region (loop bodies, branches) has its own
 * blocks, and code that depends on outer bindings only is placed at the end of the block that
 * enters it: index arithmetic and loads are hoisted without being asked, loads out of loops alone
 * where the target does not say otherwise (Isa.early_loads), since what a condition guards may lie
 * beyond a buffer. Hoisted loads read what the region would have read, so nothing inside a region
 * may store to a buffer that the kernel also loads from with fewer axes. */
#ifndef CODEGEN_EMIT_H
#define CODEGEN_EMIT_H

#include "codegen/target.h"
#include "runtime/base/map.h"
#include <llvm-c/Core.h>

/* What the kernel takes as dims, shared by all variants of one kernel. */
typedef struct EmitDims {
    VEC(Expr) v;
} EmitDims;

/* Memory that reads as a constant (NULL: zero). */
typedef struct EmitDummy {
    LLVMValueRef fill, ptr;
} EmitDummy;

typedef struct EmitScope EmitScope;
typedef struct Emit {
    const Isa *isa;
    Arena *arena;
    ExprPool *exprs;
    const Kernel *k;
    const uint32_t *domains; /* kir_domains(k) */
    EmitDims *dims;
    LLVMContextRef ctx;
    LLVMModuleRef mod;
    LLVMBuilderRef b;
    LLVMTypeRef voidt, i1, i8, i16, i32, i64, f16, f32, f64, ptr;
    uint32_t lanes;  /* lanes of a varying value: isa->lanes unless a template changes it before
                        any scope has a lane axis */
    uint32_t widest; /* most lanes among the target's instruction sets: what decides work items,
                        which all of them share, is decided as that one would */
    /* Loops advance addresses as well as can be: LLVM's loop strength reduction, which takes a
     * fifth of the time of such code and finds nothing, does not see that they advance. */
    bool steps_stay;
    LLVMValueRef fn;
    LLVMBasicBlockRef entry; /* allocas and dims go here, before its terminator */
    LLVMValueRef *bufs;      /* pointer of each param */
    LLVMValueRef dims_ptr;   /* CPU: i64 array; NULL: dims are the function's parameters from
                                number `first_dim` */
    uint32_t first_dim;
    LLVMValueRef begin, end, scratch; /* CPU kernels: the work range and scratch pointer */
    VEC(EmitDummy) dummies;           /* what masked-off uniform loads read */
    LLVMValueRef zeros;               /* NULL, or zeros as long as the axis that ... */
    uint32_t zeros_sym;               /* ... this symbol walks: masked-off contiguous loads read
                                         them, so that addresses are chosen outside of the walk */
    Expr scratch_bytes;               /* what emit_scratch has handed out so far */
    EmitScope *scope;
    uint32_t lane_sym;  /* lane number, 0 .. lanes-1, in resolved expressions */
    MapU64 *aligned;    /* symbol -> constant known to divide its value */
    MapU64 *indirect;   /* SYM_INDIRECT -> its kbind op */
    MapU64 *dim_values; /* Expr of dims -> index into dim_loaded */
    VEC(LLVMValueRef) dim_loaded;
    KVal now;            /* the map op that is being emitted, */
    const bool *stepped; /* of which ops the last bit decides, since a step follows: no product is
                            joined with a sum there, where each back end may take another; */
    const bool *coarse;  /* and, for the target's math, of which ops 11 bits are enough */
    /* The target's own way with an op over f32, or NULL from it: the neutral one is taken. */
    LLVMValueRef (*math)(struct Emit *e, Op op, LLVMValueRef x);
    /* Quotients and roots of f32 within 2 ulp, where that will do; NULL: nowhere. */
    LLVMValueRef (*quick)(struct Emit *e, Op op, LLVMValueRef x, LLVMValueRef y);
    /* 1/x of a normal f32 within 2 ulp, or NULL: division does it. */
    LLVMValueRef (*rcp)(struct Emit *e, LLVMValueRef x);
    const char *unsupported; /* set to the reason when something cannot be emitted */
} Emit;

/* --- Set-up ------------------------------------------------------------------------------- */

/* An Emit over a module of its own. `p` and `a` belong to the calling thread. */
void emit_init(Emit *e, const Isa *isa, LLVMContextRef ctx, LLVMModuleRef mod, Arena *a,
               ExprPool *p);
/* Starts CPU entry `symbol` for k: function, entry block, root scope; the builder stands in a block
 * that the entry falls into. Finish with emit_fn_end. */
void emit_fn_begin_cpu(Emit *e, const Kernel *k, const char *symbol, EmitDims *dims);
/* The target-independent part of that, after e->fn is set and before e->bufs is. */
void emit_body_begin(Emit *e, const Kernel *k, EmitDims *dims);
void emit_fn_attrs(Emit *e, LLVMValueRef fn);
void emit_fn_end(Emit *e); /* ret void */

/* --- Scopes and bindings ------------------------------------------------------------------ */

EmitScope *emit_push(Emit *e); /* straight-line continuation; becomes current */
EmitScope *emit_push_region(Emit *e, LLVMBasicBlockRef pre); /* pre: the (terminated) block that
                                         enters the region; dominates all of it */
void emit_pop(Emit *e); /* back to the outer scope; forgets what it remembered */
EmitScope *emit_switch(Emit *e, EmitScope *s); /* makes s current, returns the previous: for
                                         interleaving sibling scopes in straight-line code */

/* In the current scope symbol `sym` has this i64 value (loop counters, thread indices). */
void emit_set_sym(Emit *e, uint32_t sym, LLVMValueRef value);
/* A fresh SYM_AXIS symbol with range [0, hi] bound to value in the current scope: tile bases. */
Expr emit_new_sym(Emit *e, const char *name, int64_t hi, LLVMValueRef value);
/* The same for a position inside of `extent`. */
Expr emit_position(Emit *e, const char *name, Expr extent, LLVMValueRef value);
/* The same where `size` need be no number: quotients and remainders by it are simplified. */
Expr emit_below(Emit *e, const char *name, Expr size, LLVMValueRef value);
/* In the current scope axis symbol `sym` stands for expression `by` (base + 3, a constant tap ...);
 * equal loads of unrolled copies are then recognised as equal. */
void emit_bind(Emit *e, uint32_t sym, Expr by);
/* In the current scope axis symbol `sym` runs over lanes: sym = base + lane, for lanes where `mask`
 * (<lanes x i1>, NULL = all) holds. `aligned`: base is a multiple of `lanes`. One lane axis at a
 * time. Masked-off lanes are neither loaded nor stored; their values are unspecified. */
void emit_bind_lanes(Emit *e, uint32_t sym, Expr base, LLVMValueRef mask, bool aligned);
/* In the current scope op v has this value (accumulators, statistics): uniform or varying. */
void emit_override(Emit *e, KVal v, LLVMValueRef value);
LLVMValueRef emit_lane_mask(Emit *e); /* of the current lane axis; NULL = all lanes */

/* --- Values ------------------------------------------------------------------------------- */

/* Value of op v under the current bindings; all axes of its domain must be bound. A kreduce that is
 * neither overridden nor remembered is computed by a scalar loop nest here. */
LLVMValueRef emit_value(Emit *e, KVal v);
LLVMValueRef emit_value_lanes(Emit *e, KVal v); /* the same, splatted if uniform */
/* Makes the access of load v here; its value, also what stands for it where the mask is off, is
 * computed when it is needed. Masks that differ from lane to lane are left. */
void emit_request(Emit *e, KVal v);
bool emit_varies(Emit *e, KVal v);    /* op v depends on the current lane axis */
void emit_store(Emit *e, KVal store); /* one kstore or katomic op */
/* Value of an expression: i64, or <lanes x i64> when it varies. */
LLVMValueRef emit_expr(Emit *e, Expr x);
LLVMValueRef emit_expr_uniform(Emit *e, Expr x); /* at lane 0 when it varies */
LLVMValueRef emit_mask(Emit *e, Expr x);         /* i1 or <lanes x i1>; NULL for x == 0 or 1 */
/* How x moves along the lane axis: *stride lanes apart (0 = uniform); false when not affine. */
bool emit_lane_stride(Emit *e, Expr x, Expr *stride);
/* Address of element `index` (uniform part) of param buf. */
LLVMValueRef emit_address(Emit *e, uint32_t buf, Expr index);

/* --- Element types, folds, math ----------------------------------------------------------- */

LLVMTypeRef emit_type(Emit *e, DType t);            /* of a uniform value */
LLVMTypeRef emit_mem_type(Emit *e, DType t);        /* of an element in memory */
LLVMTypeRef emit_vec(LLVMTypeRef elem, uint32_t n); /* elem itself for n == 1 */
bool emit_is_vector(LLVMValueRef v);
LLVMValueRef emit_splat(Emit *e, LLVMValueRef v); /* to e->lanes; vectors pass through */
LLVMValueRef emit_splat_n(Emit *e, LLVMValueRef v, uint32_t n);
LLVMValueRef emit_f(Emit *e, LLVMTypeRef like,
                    double v); /* float constant of a scalar or vector type */
LLVMValueRef emit_i(Emit *e, LLVMTypeRef like, int64_t v); /* integer constant, likewise */
LLVMValueRef emit_i64(Emit *e, int64_t v);
LLVMValueRef emit_select(Emit *e, LLVMValueRef c, LLVMValueRef a, LLVMValueRef b); /* any mix */
LLVMValueRef emit_fma(Emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef emit_intrinsic(Emit *e, const char *name, LLVMTypeRef overload, LLVMValueRef *args,
                            uint32_t n); /* "llvm.fma": overloaded on one type */
/* One MAP op on values of dtype `t` (operand dtype); x, y, z uniform or varying alike. */
LLVMValueRef emit_map(Emit *e, Op op, DType t, LLVMValueRef x, LLVMValueRef y, LLVMValueRef z);
LLVMValueRef emit_cast(Emit *e, DType from, DType to, LLVMValueRef x);
LLVMValueRef emit_cast_round(Emit *e, DType from, DType to, bool saturate, int round,
                             LLVMValueRef x);
/* f32 to i32, to the nearest even, of what fits. */
LLVMValueRef emit_nearest(Emit *e, LLVMValueRef x);
/* x between lo and hi; what is no number becomes lo. */
LLVMValueRef emit_between(Emit *e, LLVMValueRef x, double lo, double hi);
/* math.c: transcendental functions over f32 or f64, scalar or vector; NULL: op is not one. */
LLVMValueRef emit_math(Emit *e, Op op, LLVMValueRef x, LLVMValueRef y);
/* exp(x) for x <= 0, -inf too; within an ulp and |x| half ulps, and may be 0 where it is less than
 * f32's normal numbers. What is summed up and divided by the sum has as much of an error already if
 * x is a difference. */
LLVMValueRef emit_exp_below(Emit *e, LLVMValueRef x);
/* 1 + erf(x), of f32; with the target's own erf where it has one. */
LLVMValueRef emit_one_and_erf(Emit *e, LLVMValueRef x);

/* Sums, products, max, min; not the arg folds. */
LLVMValueRef emit_fold_identity(Emit *e, KFold f, DType t, uint32_t lanes);
LLVMValueRef emit_fold_join(Emit *e, KFold f, DType t, LLVMValueRef a, LLVMValueRef b);
bool emit_masks_gathers(const Isa *isa, DType t); /* of elements of t, in one instruction */
LLVMValueRef emit_fold_lanes(Emit *e, KFold f, DType t, LLVMValueRef v); /* vector -> scalar */

/* --- Control flow ------------------------------------------------------------------------- */

/* for (i = lo; i < hi; i += step) with loop-carried values. Between begin and end the builder
 * stands in the body, in a region scope of its own; phi[n] are the carried values. The trip test is
 * at the top unless `at_least_once`. After end, out[n] are the final values.
 *   EmitLoop l = emit_loop(e, 2);  l.init[0] = ..;  emit_loop_begin(e, &l, "k", lo, hi, step,
 * false);
 *   ... l.i, l.phi[] ...       l.next[0] = ..;  emit_loop_end(e, &l);  ... l.out[0] ... */
typedef struct EmitLoop {
    uint32_t n;
    LLVMValueRef *init, *phi, *next, *out; /* n each, of the arena */
    LLVMValueRef i;
    LLVMValueRef hi, step, guard; /* internal */
    LLVMBasicBlockRef pre, body, exit;
} EmitLoop;
EmitLoop emit_loop(Emit *e, uint32_t n); /* that carries n values; {0} carries none */
void emit_loop_begin(Emit *e, EmitLoop *l, const char *name, LLVMValueRef lo, LLVMValueRef hi,
                     LLVMValueRef step, bool at_least_once);
void emit_loop_end(Emit *e, EmitLoop *l);

/* if (cond) { .. } in a region scope of its own. */
typedef struct EmitIf {
    LLVMBasicBlockRef pre, then, join;
} EmitIf;
void emit_if_begin(Emit *e, EmitIf *s, LLVMValueRef cond);
void emit_if_end(Emit *e, EmitIf *s);

LLVMBasicBlockRef emit_block(Emit *e, const char *name);
LLVMValueRef emit_alloca(Emit *e, LLVMTypeRef t, uint32_t count, uint32_t align); /* in entry */
/* `bytes` (an expression of dims) of the thread's scratch, 64-byte aligned. */
LLVMValueRef emit_scratch(Emit *e, Expr bytes);
/* ptr + index elements; constant offset kept as displacement. */
LLVMValueRef emit_gep(Emit *e, LLVMTypeRef elem, LLVMValueRef ptr, LLVMValueRef index);
LLVMValueRef emit_load(Emit *e, LLVMTypeRef t, LLVMValueRef ptr, uint32_t align);
void emit_store_ptr(Emit *e, LLVMValueRef v, LLVMValueRef ptr, uint32_t align);
/* Lane masks: lanes with lane < n (n an i64 value); <lanes x i1>. */
LLVMValueRef emit_lanes_below(Emit *e, LLVMValueRef n);

/* --- Kernels ------------------------------------------------------------------------------ */

/* What a CPU template tells the driver. */
typedef struct EmitInfo {
    Expr work; /* number of work items */
    Expr cost; /* nanoseconds on one core, roughly */
    /* Items read one buffer in slices of so many bytes, one behind another: the first of as many
     * equal parts of all items reads the first slice, and so on. 0: that is not so. */
    Expr slices, slice;
} EmitInfo;

/* Emit the whole body of the function begun by emit_fn_begin_cpu, up to (not including) its return;
 * false when the kernel is not of a shape that this template handles: nothing was emitted then and
 * the row emitter takes it. `info->work` must be the same for every variant of the kernel. */
bool emit_dot_cpu(Emit *e, EmitInfo *info);
bool emit_attention_cpu(Emit *e, EmitInfo *info);
bool emit_attention_gradient_cpu(Emit *e, EmitInfo *info);
void emit_rows_cpu(Emit *e, EmitInfo *info); /* any kernel */

#endif
