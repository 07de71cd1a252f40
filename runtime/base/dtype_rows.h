/* Rows of elements as numbers: what decides their type is asked once. */
#ifndef BASE_DTYPE_ROWS_H
#define BASE_DTYPE_ROWS_H

#include "runtime/base/dtype.h"

/* As dtype_load_f64: n elements, the first at index `at`, `stride` apart. */
void dtype_load_row(DType t, const void *p, int64_t at, int64_t stride, int64_t n, double *out);

#endif
