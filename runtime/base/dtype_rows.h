/* Rows of elements as numbers: what decides their type is asked once. */
#ifndef BASE_DTYPE_ROWS_H
#define BASE_DTYPE_ROWS_H

#include "runtime/base/dtype.h"

/* Loops over rows are made once for each width of vectors, of which the machine's widest is picked
 * when the program is loaded. The files that hold them are compiled so that loops become vectors
 * and no product is contracted into a sum (graphc_rows in CMakeLists.txt): results are the same
 * bits whichever is picked. Only glibc picks; sanitizers are not ready yet when it does, and clang
 * knows no such targets. */
#if defined(__GLIBC__) && defined(__x86_64__) && __GNUC__ >= 12 && !defined(__clang__) &&          \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

/* As dtype_load_f64 and its neighbours: n elements, the first at index `at`, `stride` apart. */
void dtype_load_row(DType t, const void *p, int64_t at, int64_t stride, int64_t n, double *out);
void dtype_store_row(DType t, void *p, int64_t at, int64_t stride, int64_t n, const double *v);
/* Of integer types and bool. */
void dtype_load_ints(DType t, const void *p, int64_t at, int64_t stride, int64_t n, int64_t *out);
void dtype_store_ints(DType t, void *p, int64_t at, int64_t stride, int64_t n, const int64_t *v);

#endif
