/* What the emit_*.c files share: scopes as they are kept. */
#ifndef CODEGEN_EMIT_INTERNAL_H
#define CODEGEN_EMIT_INTERNAL_H

#include "codegen/emit/emit.h"

/* A value and the depth of the innermost scope that it depends on: where it may be placed. */
typedef struct EmitVal {
    LLVMValueRef v;
    uint32_t depth;
} EmitVal;

typedef struct EmitBind {
    uint32_t sym;
    bool is_value;
    LLVMValueRef value; /* is_value: of a symbol that stays in resolved expressions */
    Expr by;            /* else: what resolved expressions have in its place */
} EmitBind;

/* What was computed, by what it was computed from: equal keys give equal values. */
typedef struct EmitMemo {
    uint32_t kind; /* EmitMemoKind */
    uint64_t a, b, c, d;
    LLVMValueRef v;
    Expr expr;     /* MEMO_alias, MEMO_resolve, MEMO_resolve: the result */
    uint32_t next; /* 1 + index of the next with the same hash */
} EmitMemo;
typedef enum EmitMemoKind {
    MEMO_expr,
    MEMO_vexpr,
    MEMO_addr,
    MEMO_load,
    MEMO_early,
    MEMO_op,
    MEMO_alias,
    MEMO_resolve,
    MEMO_splat
} EmitMemoKind;

/* A known value of an op with the depth where it is valid. */
typedef struct EmitOverride {
    KVal v;
    EmitVal val;
} EmitOverride;
void emit_override_at(Emit *e, EmitOverride o);

struct EmitScope {
    EmitScope *outer;
    uint32_t depth;
    LLVMBasicBlockRef pre; /* region scopes: the block that enters the region */
    uint32_t certain;      /* depth of the innermost scope around that a condition guards: nothing
                              is loaded before it; 0 where loads may be early */
    bool has_lanes;        /* a lane axis is bound here */
    LLVMValueRef mask;     /* its lane mask */
    VEC(EmitBind) binds;
    VEC(EmitMemo) memos;
    MapU64 *memo_map; /* hash -> 1 + index in memos */
    EmitVal *val;     /* by op, what emit_value gave in this scope; NULL until needed */
    bool *overridden;
};

const EmitBind *emit_find_bind(Emit *e, uint32_t sym, uint32_t *depth);
/* Moves the builder to where code of that depth belongs and makes that scope current. */
typedef struct EmitPlace {
    EmitScope *scope;
    LLVMBasicBlockRef block;
} EmitPlace;
EmitPlace emit_hoist(Emit *e, uint32_t depth);
void emit_unhoist(Emit *e, EmitPlace p);

/* Looks in, or adds to, the scope of that depth. */
const EmitMemo *emit_memo_get(Emit *e, uint32_t depth, EmitMemo key);
void emit_memo_put(Emit *e, uint32_t depth, EmitMemo key);
/* Moves the builder to the end of a block, before its terminator if it has one. */
void emit_at_end(Emit *e, LLVMBasicBlockRef block);

/* Replaces bound axis symbols and indirect symbols, leaving symbols that have values. */
Expr emit_resolve(Emit *e, Expr x);
uint32_t emit_expr_depth(Emit *e, Expr resolved);
EmitVal emit_expr_scalar(Emit *e, Expr resolved); /* free of the lane symbol */
EmitVal emit_expr_vector(Emit *e, Expr resolved);
bool emit_expr_varies(Emit *e, Expr resolved);
/* Stride of a resolved expression along the lanes. */
bool emit_stride(Emit *e, Expr resolved, Expr *stride);
Expr emit_lane_zero(Emit *e, Expr resolved); /* at lane 0 */
/* A constant known to divide x, using what is known of tile bases; 0 for zero itself. */
int64_t emit_divisor(Emit *e, Expr x);
EmitVal emit_addr(Emit *e, uint32_t buf, Expr resolved_uniform);
EmitVal emit_mask_resolved(Emit *e, Expr resolved);

EmitVal emit_val(Emit *e, KVal v);
EmitVal *emit_val_slot(Emit *e, KVal v); /* with an outer override filled in */

uint32_t emit_lane_depth(Emit *e); /* depth of the scope that bound the lane axis */
/* True where x replaces `best` in an arg fold. */
LLVMValueRef emit_arg_beats(Emit *e, KFold f, DType t, LLVMValueRef x, LLVMValueRef best);

/* convert.c: narrow floats as raw bits <-> f32. */
LLVMValueRef emit_narrow_to_f32(Emit *e, DType from, LLVMValueRef bits);
LLVMValueRef emit_f32_to_narrow(Emit *e, DType to, bool saturate, int round, LLVMValueRef x);
/* f64 -> f32 rounded to odd, so that a second rounding to a narrow type is exact. */
LLVMValueRef emit_f64_to_f32_odd(Emit *e, LLVMValueRef x);

/* The fold of values among which a NaN may be overlooked: one instruction for max and min. */
LLVMValueRef emit_fold_numbers(Emit *e, KFold f, DType t, LLVMValueRef a, LLVMValueRef b);
typedef LLVMValueRef (*EmitJoin)(Emit *e, KFold f, DType t, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_fold_lanes_by(Emit *e, KFold f, DType t, LLVMValueRef v, EmitJoin join);

/* Small builders over scalars and vectors alike; constants take the operand's type. */
typedef LLVMValueRef EV;
EV emit_bits(Emit *e, EV v, LLVMTypeRef elem);    /* bitcast to elem's shape */
LLVMTypeRef emit_like(EV v, LLVMTypeRef elem);    /* elem, or the vector of it as wide as v */
EV emit_fbin(Emit *e, LLVMOpcode op, EV a, EV b); /* with contraction allowed */

#endif
