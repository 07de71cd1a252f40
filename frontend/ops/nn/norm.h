/* Layer and RMS normalisation over axes axis.., as several operators use them. */
#ifndef FRONTEND_NORM_H
#define FRONTEND_NORM_H

#include "frontend/import/formula.h"

typedef struct Norm {
    Value y;       /* in x's type */
    Value mean;    /* 0 for RMS */
    Value inv_std; /* 1 / sqrt(variance or mean square + eps) */
} Norm;

/* x of a wide type; scale and shift of any float type, or 0. */
Norm norm_layer(Graph *g, Value x, int axis, double eps, Value scale, Value shift);
Norm norm_rms(Graph *g, Value x, int axis, double eps, Value scale);

#endif
