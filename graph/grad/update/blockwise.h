/* Numbers in 8 bits: block-wise dynamic quantisation (Dettmers et al. 2022, "8-bit Optimizers via
 * Block-wise Quantization"), with the codes that bitsandbytes has.
 *
 * BLOCK neighbours share a scale, the largest of their magnitudes; what is left, within +-1, is
 * one of 256 numbers: 0, 1, and in each of seven decades below 1 the middles of equal parts, twice
 * as many as in the decade below. Codes are in the order of what they stand for. */
#ifndef GRAPH_GRAD_BLOCKWISE_H
#define GRAPH_GRAD_BLOCKWISE_H

#include "graph/ir/ir.h"

enum { BLOCKWISE_BLOCK = 256 };

typedef struct Blockwise {
    Value code, scale; /* u8 [blocks, BLOCK], f32 [blocks] */
} Blockwise;

/* How many blocks hold a tensor of this static type. */
Expr blockwise_blocks(ExprPool *p, const Type *t);
/* A float tensor as f32 [blocks, BLOCK], filled up with zeros; and back to a type of as many
 * elements. */
Value blockwise_rows(Graph *g, Value x);
Value blockwise_unrow(Graph *g, Value rows, const Type *t);
/* signs: false where no number is below 0, and twice as many codes are above it. A number keeps its
 * sign. f32 [blocks, BLOCK] */
Value blockwise_unpack(Graph *g, Blockwise x, bool signs);
Blockwise blockwise_pack(Graph *g, Value rows, bool signs);

#endif
