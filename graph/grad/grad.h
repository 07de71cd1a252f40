/* Reverse-mode differentiation: a graph grows the nodes that compute gradients.
 *
 * Everything is core ops in the same graph, so the passes, fusion and every target see forward and
 * backward as one program. rules.def says what the derivative of each op is. */
#ifndef GRAPH_GRAD_H
#define GRAPH_GRAD_H

#include "graph/build/build.h"

/* Appends what computes, for each of the nwrt values in wrt, the gradient of sum(dy[i] * y[i]) over
 * all i < n: dwrt[k] has the type of wrt[k], or is 0 where no y depends on wrt[k] through floats.
 * dy or one of its members may be 0: ones. y are floats, dy of the types of y; wrt may be any
 * values, inner ones too, and several y or wrt may be the same.
 *
 * Contributions to one value are added in the order of its readers, last reader first, so equal
 * graphs get equal gradients, bit for bit. New nodes carry the place of the node that they
 * differentiate. Reports D_GRADIENT where an op without a derivative lies between y and a wrt. */
graphc_status grad_build(Graph *g, uint32_t n, const Value *y, const Value *dy, uint32_t nwrt,
                         const Value *wrt, Value *dwrt);
/* The same with values that stand for constants: no gradient flows back through these. */
graphc_status grad_build_held(Graph *g, uint32_t n, const Value *y, const Value *dy, uint32_t nwrt,
                              const Value *wrt, Value *dwrt, uint32_t nheld, const Value *held);

/* Why x has no gradient from y: the first node on the way to y at which what floats carry of x
 * ends, since its derivative is zero or its result no float. 0: y does not depend on x at all. */
Value grad_end(const Graph *g, Value y, Value x);

#endif
