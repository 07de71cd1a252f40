/* What a tensor's elements can be at least and at most, as expressions over sizes: a count of true
 * elements lies between 0 and the length of the mask. */
#ifndef GRAPH_VALUE_BOUNDS_H
#define GRAPH_VALUE_BOUNDS_H

#include "graph/ir/ir.h"

/* Whole numbers that every element lies between; 0 where nothing is known on that side. A float
 * that is not a number counts as 0, which is what a cast to an integer makes of it. */
typedef struct ValueBounds {
    Expr lo, hi;
} ValueBounds;

/* A value whose elements are said to lie in [lo, hi]. */
typedef struct ValueClaim {
    Value v;
    int64_t lo, hi;
} ValueClaim;

ValueBounds value_bounds(const Graph *g, Value v, const ValueClaim *claims, uint32_t nclaims);

#endif
