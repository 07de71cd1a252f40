/* NumPy's .npy format, read where it lies: magic, version, header length, a Python dict literal,
 * raw elements. Source: numpy.lib.format's specification. */
#ifndef TRAIN_DATA_NPY_H
#define TRAIN_DATA_NPY_H

#include "runtime/base/dtype.h"
#include "runtime/error.h"

#define NPY_MAX_RANK 12

typedef struct NpyView {
    DType dtype;
    uint32_t rank;
    int64_t dim[NPY_MAX_RANK];
    bool columns;     /* the first index is the fastest one */
    const void *data; /* within the file, at any address */
    uint64_t bytes;
} NpyView;

bool npy_is(const void *bytes, size_t n);
/* GRAPHC_UNSUPPORTED: an element type without a row in dtype.def, or of the other byte order. */
GRAPHC_MUST_USE graphc_status npy_view(const void *bytes, size_t n, NpyView *out, ErrorText e);

#endif
