/* Floating-point elements to and from double; private to dtype. */
#ifndef BASE_DTYPE_FLOAT_H
#define BASE_DTYPE_FLOAT_H

#include "runtime/base/dtype.h"

double dtype_float_load(DType t, const void *p, size_t index);
void dtype_float_store(DType t, void *p, size_t index, double v);

#endif
