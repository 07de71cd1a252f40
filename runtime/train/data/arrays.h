/* Training data of other models: one .npy file per input or target, rows along the first axis. */
#ifndef TRAIN_DATA_ARRAYS_H
#define TRAIN_DATA_ARRAYS_H

#include "runtime/base/file.h"
#include "runtime/train/data/npy.h"

typedef struct Array {
    char *name; /* of the input or target */
    FileMap map;
    NpyView view;
    uint64_t row_bytes;
} Array;

typedef struct Arrays {
    Array *v;
    uint32_t n;
    uint64_t rows; /* of each */
} Arrays;

void arrays_init(Arrays *a);
/* One more file. It has as many rows as the others and no NaN or infinity (GRAPHC_INVALID, naming
 * the first one's place); after a failure nothing was added. The message has no path. */
GRAPHC_MUST_USE graphc_status arrays_add(Arrays *a, const char *name, const char *path,
                                         ErrorText e);
const Array *arrays_find(const Arrays *a, const char *name); /* NULL: there is none */
void arrays_free(Arrays *a);

/* Rows by number, one after the other. */
void array_rows(const Array *a, const uint64_t *rows, uint32_t count, void *out);

#endif
