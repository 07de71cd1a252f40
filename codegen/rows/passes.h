/* A kernel as walks over its rows, for every target: folds level by level, then stores. What the
 * walks are bound to (lanes, threads, copies) is the structure's affair. */
#ifndef CODEGEN_ROWS_PASSES_H
#define CODEGEN_ROWS_PASSES_H

#include "codegen/emit/emit_internal.h"

#define ROWS_MAX_PASSES (K_MAX_FOLDS + K_MAX_STORES)
#define ROWS_MAX_FOLDS  8 /* of a pass */

/* One walk over `axes` (none: straight-line code): folds that it computes, stores that it makes. */
typedef struct Pass {
    uint32_t axes;
    uint32_t nfolds, nstores;
    KVal *folds, *stores;
    bool *cone; /* ops that it evaluates */
} Pass;

typedef struct Passes {
    Emit *e;
    const Kernel *k;
    const uint32_t *dom; /* kir_domains */
    uint32_t par;        /* parallel axes that stores or folds depend on */
    uint32_t ordered;    /* of a serial kernel: axes to be walked in order, by one thread */
    bool *need;          /* ops that stores depend on */
    uint32_t npasses;
    Pass pass[ROWS_MAX_PASSES];
} Passes;

/* False: there are too many. walked: axes that the structure walks outside of all passes; folds
 * over these have none. */
bool rows_passes(Passes *r, Emit *e, const Kernel *k);
bool rows_passes_inside(Passes *r, Emit *e, const Kernel *k, uint32_t walked);
uint32_t rows_cost(const Passes *r, const bool *cone); /* of one element, about flops */
/* Sets what computing v takes, up to folds with a pass of their own. */
void rows_cone(const Passes *r, KVal v, bool *cone);
/* How fold v joins values: softmax's maximum may overlook NaN, because the sum does not. */
EmitJoin rows_join(const Passes *r, KVal v);
/* How x moves along the axis, which is bound to lanes: *stride apart; false when it is not affine.
 * Addresses computed from other axes stand still. */
bool rows_stride(const Passes *r, Expr x, uint32_t axis, Expr *stride);
bool rows_in_pass(const Passes *r, KVal v); /* a fold that has a pass of its own */
/* pieces.c. Of a kernel that only stores: the outermost op that is one of two things, some of them
 * loaded, as `where` says, which is one for all lanes; 0: none. */
KVal rows_piece(const Passes *r, int lane, Expr *where);
/* The kernel as it is where that holds, or where it does not: with the same ops by the same
 * numbers. */
const Kernel *rows_piece_kernel(const Passes *r, KVal v, bool there);
bool rows_is_walk(const KOp *o); /* a scan or a sort: a pass that leaves its row behind */
/* Joins two (position, value) pairs of an arg fold into the first. */
void rows_arg_join(Emit *e, KFold f, DType t, LLVMValueRef *a, const LLVMValueRef *b);

#endif
