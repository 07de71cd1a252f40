/* What the contraction structures share: flattened extents, guarded reads, the epilogue. */
#ifndef CODEGEN_NVPTX_CONTRACT_H
#define CODEGEN_NVPTX_CONTRACT_H

#include "codegen/nvptx/gpu.h"

typedef struct Contract {
    Gpu *g;
    Emit *e;
    const KDot *d;
    Expr m, n, k; /* flattened extents */
} Contract;

/* False unless every fold is an accumulator and every store a point of batch, m and n. */
bool contract_init(Contract *c, Gpu *g);
/* True when neighbouring k are neighbours in memory for op v's loads. */
bool contract_by_k(const Contract *c, KVal v);
/* A flattened coordinate kept below the extent: rows past the end repeat the last. */
Expr contract_row(Contract *c, Expr extent, LLVMValueRef at);
/* Op v at the flattened coordinate `row` of its axes and k; 0 past the last k. */
LLVMValueRef contract_element(Contract *c, KVal v, uint32_t axes, Expr row, LLVMValueRef k);
LLVMValueRef contract_fma(Emit *e, DType t, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
/* The epilogue at (row, col), where that is inside. */
void contract_store(Contract *c, LLVMValueRef row, LLVMValueRef col, const LLVMValueRef *acc);

#endif
