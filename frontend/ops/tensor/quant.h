/* Quantisation as operators other than QuantizeLinear use it. */
#ifndef FRONTEND_QUANT_H
#define FRONTEND_QUANT_H

#include "frontend/import/formula.h"

/* One parameter per block of `block` elements along `axis`: each repeated, cut to `size`. */
Value quant_spread_blocks(Graph *g, Value p, Expr size, int axis, int64_t block);
/* Bytes [.., n] -> the 8/bits values of each, low bits first: [.., n * 8/bits] in u8. */
Value quant_unpack_bits(Graph *g, Value x, int64_t bits);

/* x, already divided by its scale, as type t: rounded, zero (0 = none) added and clamped for
 * integers, else cast. */
Value quant_to(Graph *g, Value x, Value zero, DType t, bool saturate);
/* x as u8 over its own range: { quantised, scale, zero point }. */
bool quant_dynamic(Graph *g, Value x, Value out[3]);
/* a and b less their zero points, in 16 bits; 8-bit operands of one type stay as they are where
 * there is nothing to subtract. */
void quant_centre(Graph *g, Value *a, Value za, Value *b, Value zb);

#endif
