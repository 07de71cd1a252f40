/* How far a whole model's outputs may be from the reference. */
#ifndef FRONTEND_DRIVER_BOUND_H
#define FRONTEND_DRIVER_BOUND_H

#include "graph/ir/ir.h"

typedef struct OutputBound {
    double std;     /* in standard deviations of the output */
    double step;    /* an integer output of a quantiser: steps; else 0 */
    uint32_t depth; /* roundings on the longest way to it */
    DType coarsest; /* the type of those that round most */
} OutputBound;

/* One per output. precision: what contractions multiply (--precision). */
OutputBound *bound_outputs(const Graph *g, DType precision, Arena *a);

#endif
