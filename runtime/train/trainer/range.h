/* Which integers a training plan's inputs take, as its notes say, and whether data keeps to it: an
 * id beyond an embedding's rows would be clamped to the last one, and be learnt. */
#ifndef TRAIN_RANGE_H
#define TRAIN_RANGE_H

#include "runtime/error.h"
#include "runtime/graphc.h"
#include "runtime/train/data/npy.h"

typedef struct Range {
    int64_t lo, hi;
} Range;

/* Of an input whose name has no more than 255 bytes; all of 64 bits where the plan does not say. */
Range range_of(const graphc_plan *p, const char *input);
/* Token ids, which are labels of the token before, are below it; 2^31 - 1 where the plan does not
 * say. */
int64_t range_of_ids(const graphc_plan *p);
/* The label that counts for nothing. */
int64_t range_ignored(const graphc_plan *p);
/* Integers that are to be an input's: GRAPHC_INVALID names the first one that is none of its, or
 * says that all are labels that count for nothing. Other elements are right. */
GRAPHC_MUST_USE graphc_status range_check(const graphc_plan *p, const char *input, const NpyView *v,
                                          ErrorText e);

#endif
