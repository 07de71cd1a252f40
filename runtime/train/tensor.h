/* Tensors as the runtime's public interface has them: what every part of training asks of them. */
#ifndef TRAIN_TENSOR_H
#define TRAIN_TENSOR_H

#include "runtime/graphc.h"
#include <stdlib.h>

/* A plan's state, whose sizes are known, in host memory; without data. */
static inline graphc_tensor tensor_of_state(const graphc_plan *p, uint32_t state) {
    const graphc_io_info io = graphc_plan_state(p, state);
    graphc_tensor t = {.device = GRAPHC_CPU, .dtype = io.dtype, .rank = io.rank};
    for (int32_t i = 0; i < io.rank; i++) t.shape[i] = strtoll(io.dims[i], NULL, 10);
    return t;
}

static inline uint64_t tensor_elements(const graphc_tensor *t) {
    uint64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++) n *= (uint64_t)t->shape[i];
    return n;
}

#endif
