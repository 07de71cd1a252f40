/* Integer and bool tensors as formulas: the element at given coordinates as one expression. What a
 * chain of iotas, comparisons and views computes (masks, index tensors) is seen through at once,
 * however the exporter spelled it. */
#ifndef GRAPH_VALUE_EXPR_H
#define GRAPH_VALUE_EXPR_H

#include "graph/ir/ir.h"
#include "runtime/base/map.h"

typedef struct ValueExprs {
    const Graph *g;
    MapU64 *axes; /* (position, extent) -> symbol */
} ValueExprs;

/* The coordinates of a tensor of type t: axis symbols below its dimensions (0 where that is 1). */
void value_coords(ValueExprs *x, const Type *t, Expr coord[GRAPH_MAX_RANK]);
/* v[coord] where that is a formula of coordinates and sizes alone; else 0. */
Expr value_expr(ValueExprs *x, Value v, const Expr *coord);
/* 0 <= e < dim for all coordinates. */
bool value_in_range(ValueExprs *x, Expr e, Expr dim);

/* What a tensor's elements can be at least and at most (value_bounds.c), as expressions over sizes:
 * a count of true elements lies between 0 and the length of the mask. */

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
