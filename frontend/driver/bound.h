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
} OutputBound;

/* One per output. precision: what contractions multiply (--precision). */
OutputBound *bound_outputs(const Graph *g, DType precision, Arena *a);

/* Of output i how large (root mean square) the largest is of what it is a sum of, with the factors
 * that follow: what roundings of terms leave where the terms cancel. Evaluates the graph. */
graphc_status bound_terms(const Graph *g, const EvalTensor *inputs, uint32_t i, Arena *a,
                          double *size);

#endif
