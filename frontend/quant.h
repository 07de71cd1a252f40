/* Views that unpack quantised weights in front of the operator that reads them. */
#ifndef FRONTEND_QUANT_H
#define FRONTEND_QUANT_H

#include "frontend/formula.h"

/* One parameter per block of `block` elements along `axis`: each repeated, cut to `size`. */
Value quant_spread_blocks(Graph *g, Value p, Expr size, int axis, int64_t block);
/* Bytes [.., n] -> the 8/bits values of each, low bits first: [.., n * 8/bits] in u8. */
Value quant_unpack_bits(Graph *g, Value x, int64_t bits);

#endif
