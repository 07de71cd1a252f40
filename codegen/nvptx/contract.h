/* What the contraction structures share: flattened extents, guarded reads, the epilogue. */
#ifndef CODEGEN_NVPTX_CONTRACT_H
#define CODEGEN_NVPTX_CONTRACT_H

#include "codegen/nvptx/gpu.h"

enum { CONTRACT_THREADS = 256, THIN_ROWS = 8, THIN_COLS = 32 };

typedef struct TileShape {
    uint32_t tm, tn, tk, pm, pn; /* tile of a block; sums of a thread */
} TileShape;

typedef struct Contract {
    Gpu *g;
    Emit *e;
    const KDot *d;
    Expr m, n, k;        /* flattened extents */
    LLVMValueRef shared; /* one block of memory, used by whichever structure runs */
    uint32_t used;
} Contract;

/* tile.c, thin.c: the body for blocks that were launched for this structure. */
void tile_emit(Contract *c, const TileShape *shape);
uint32_t tile_shared_bytes(const Contract *c, const TileShape *shape);
void thin_emit(Contract *c);
uint32_t thin_rows(const Contract *c); /* of a block; 0: not for this kernel */
uint32_t thin_shared_bytes(const Contract *c);

/* n elements of the shared block, 16-byte aligned. */
LLVMValueRef contract_shared(Contract *c, LLVMTypeRef elem, uint32_t n);
/* True when neighbouring k are neighbours in memory for op v's loads. */
bool contract_by_k(const Contract *c, KVal v);
/* A flattened coordinate kept below the extent: rows past the end repeat the last. */
Expr contract_row(Contract *c, Expr extent, LLVMValueRef at);
/* The same along k; `in`: it was not past the end. What reads at one k shares one of these. */
typedef struct ContractK {
    Expr at;
    LLVMValueRef in;
} ContractK;
ContractK contract_k(Contract *c, LLVMValueRef k);
/* Op v at the flattened coordinate `row` of its axes and k; 0 past the last k. */
LLVMValueRef contract_element(Contract *c, KVal v, uint32_t axes, Expr row, ContractK k);
LLVMValueRef contract_fma(Emit *e, DType t, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
/* The epilogue at (row, col), where that is inside. */
void contract_store(Contract *c, LLVMValueRef row, LLVMValueRef col, const LLVMValueRef *acc);

#endif
