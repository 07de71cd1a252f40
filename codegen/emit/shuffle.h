/* Rearranging vectors in registers. */
#ifndef CODEGEN_EMIT_SHUFFLE_H
#define CODEGEN_EMIT_SHUFFLE_H

#include "codegen/emit/emit.h"

/* v[n] are the rows of an n x n matrix, n lanes each: they become its columns. n a power of two. */
void shuffle_transpose(Emit *e, LLVMValueRef *v, uint32_t n);
/* Lane r of the result is the sum of v[r]'s lanes, in one fixed order. Overwrites v. */
LLVMValueRef shuffle_sums(Emit *e, LLVMValueRef *v, uint32_t n);

#endif
