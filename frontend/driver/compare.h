/* Comparing a run with the reference. */
#ifndef FRONTEND_DRIVER_COMPARE_H
#define FRONTEND_DRIVER_COMPARE_H

#include "graph/eval/eval.h"

typedef struct Comparison {
    bool same_type; /* dtype and shape agree */
    bool is_float;
    uint64_t bad;    /* elements outside the tolerance */
    uint64_t unlike; /* of those: one is no finite number, and the other is not the same */
    uint64_t count;
    double max_abs, mean_abs; /* differences of finite elements */
    double std;               /* of the reference's finite elements */
} Comparison;

/* |got - want| <= atol + rtol*|want| element by element for floats, equality for everything else.
 * NaN equals NaN. `want` may be f64 where `got` is a narrower float. */
Comparison compare_tensors(const EvalTensor *got, const EvalTensor *want, double rtol, double atol);
/* Largest difference in units of the reference's standard deviation (of max_abs itself where the
 * reference is constant). */
double comparison_relative(const Comparison *c);

#endif
