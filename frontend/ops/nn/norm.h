/* What normalisations share: statistics, scale and shift, and layer and RMS normalisation over axes
 * axis.. */
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

typedef struct NormMoments {
    Value mean, centred, var, inv_std; /* axes kept with size 1 */
} NormMoments;
NormMoments norm_moments(Graph *g, Value x, uint32_t axes, double eps);

/* x * scale + shift; either may be 0 (absent). They are cast to x's type. */
Value norm_affine(Graph *g, Value x, Value scale, Value shift);
/* [C] as [C, 1, ...] against NC... tensors of that rank. */
Value norm_per_channel(Graph *g, Value v, int rank);

#endif
