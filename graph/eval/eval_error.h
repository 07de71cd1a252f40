/* What the bounds of errors share (eval_error.c, eval_map_error.c, eval_position_error.c). Errors
 * are f64 tensors; one without data is 0 everywhere. */
#ifndef GRAPH_EVAL_ERROR_H
#define GRAPH_EVAL_ERROR_H

#include "graph/eval/eval_impl.h"

/* What a result is rounded by: the function's own inexactness and the rounding to a half type, of
 * which the former is relative and the latter has a floor. */
typedef struct Rounding {
    double relative, floor;
} Rounding;
Rounding eval_rounding(Op op, DType t);
bool eval_is_exact(Op op); /* a map that has none of its own */
/* What arithmetic of this type happens in. */
double eval_compute_unit(DType t);
/* A row of elements of this type, as numbers. */
void eval_as_doubles(DType t, int64_t n, EvalScalar *x);

/* Row-wise ops; `out` has y's dimensions and no data, and stays without where results are exact. */
bool eval_map_error(Eval *e, const Graph *g, const Node *n, const Tensor *in, const Tensor *err,
                    const Tensor *y, bool loose, Tensor *out);
/* Positions: argmax, argmin, argsort. */
bool eval_position_error(Eval *e, const Graph *g, const Node *n, const Tensor *in,
                         const Tensor *err, const Tensor *y, Tensor *out);

#endif
