/* How far a whole model's outputs may be from the reference. */
#ifndef FRONTEND_DRIVER_BOUND_H
#define FRONTEND_DRIVER_BOUND_H

#include "graph/eval/eval.h"

typedef struct OutputBound {
    double std;     /* in standard deviations of the output */
    double step;    /* an integer output of a quantiser: steps; else 0 */
    uint32_t depth; /* roundings on the longest way to it */
    DType coarsest; /* the type of those that round most */
    double terms;   /* how much larger what it is a sum of is (bound_terms), which `std` allows for;
                       0: not asked */
    double errors;  /* the largest difference as a part of what rounding explains (bound_elements);
                       0: not asked */
} OutputBound;

/* One per output. precision: what contractions multiply (--precision). */
OutputBound *bound_outputs(const Graph *g, DType precision, Arena *a);

/* Of output i how large (root mean square) the largest is of what it is a sum of, with the factors
 * that follow: what roundings of terms leave where the terms cancel. Evaluates the graph. */
graphc_status bound_terms(const Graph *g, const EvalTensor *inputs, uint32_t i, Arena *a,
                          double *size);
/* The largest difference of `got` from output i as a part of what rounding explains, from the
 * inputs on, element by element (graph/eval/eval_error.c): a value whose operand lies at a tie may
 * be a step off, an order of near values another. No more than 1: all of it. Far more than `std`
 * knows, where errors do not grow from layer to layer; where they may be anything, infinite.
 * Evaluates the graph. */
graphc_status bound_elements(const Graph *g, const EvalTensor *inputs, uint32_t i,
                             const EvalTensor *got, Arena *a, double *of_bound);

#endif
