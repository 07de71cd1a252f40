/* What contractions in blocks, and those of f32 in digits, have in common. */
#ifndef CODEGEN_BLOCKS_H
#define CODEGEN_BLOCKS_H

#include "codegen/cpu/dot/dot.h"

enum { BLOCKS_COPIED = 16 }; /* rows of k that are copied at a time */

/* words.c */
/* The rows' copies of block number `block`, which take `bytes` each. */
void blocks_find(Dot *d, const DotBlockTile *t, LLVMValueRef block, uint32_t bytes,
                 LLVMValueRef *left);
LLVMValueRef blocks_at(Dot *d, LLVMValueRef base, int64_t offset); /* in bytes */
/* The one zero point of all right operands, if it is one. */
bool blocks_one_zero(const Dot *d, int64_t *zero);
/* BLOCKS_COPIED rows of k, words of the right operand's, in the order of its quads. */
LLVMValueRef blocks_in_quads(Dot *d, LLVMValueRef v);
LLVMValueRef blocks_bytes(Dot *d, LLVMValueRef x); /* a register as i8 */
/* An instruction of the target with two operands. */
LLVMValueRef blocks_call(Dot *d, const char *name, LLVMValueRef x, LLVMValueRef y);
/* acc + the sums of four products of u8 by i8 each. */
LLVMValueRef blocks_add_quads(Dot *d, LLVMValueRef acc, LLVMValueRef b, LLVMValueRef a);
/* Quad number `at` of a word, in each vector of columns. */
LLVMValueRef blocks_quad(Dot *d, LLVMValueRef word, uint32_t at);
LLVMValueRef blocks_load_four(Dot *d, LLVMValueRef at); /* bytes, in all lanes */
void blocks_bind_columns(Dot *d, const DotBlockTile *t, uint32_t j);

/* digits.c */
uint32_t digits_bytes(const Dot *d);                /* of a part's copy */
void digits_copy(Dot *d, Expr at, LLVMValueRef to); /* the part that begins at row `at` of k */
void digits_sums(Dot *d, const DotBlockTile *t, LLVMValueRef *acc);

#endif
