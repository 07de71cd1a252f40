/* Meaning of the MAP ops on one element: shared by the graph evaluator and the kernel interpreter.
 * Floats of every width are carried in f64; integers and bool in i64 (unsigned 64-bit ones as their
 * bit pattern), always already wrapped to their type. */
#ifndef GRAPH_EVAL_SCALAR_H
#define GRAPH_EVAL_SCALAR_H

#include "graph/ir.h"

typedef union EvalScalar {
    double f;
    int64_t i;
} EvalScalar;

/* `in` is the operands' type (for select: of operands 1 and 2), `out` the result's. cast is the
 * plain conversion: floats to integers truncate toward zero. */
EvalScalar eval_scalar(Op op, DType in, DType out, const EvalScalar *x);

#endif
