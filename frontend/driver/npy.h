/* NumPy's .npy format: magic, version, header length, a Python dict literal, raw elements.
 * Source: numpy.lib.format's specification. */
#ifndef FRONTEND_DRIVER_NPY_H
#define FRONTEND_DRIVER_NPY_H

#include "graph/eval/eval.h"

bool npy_is(const void *bytes, size_t n);
graphc_status npy_decode(Arena *a, DiagSink *d, const char *path, const void *bytes, size_t n,
                         EvalTensor *out);
/* Unsupported, with a message, for a type that the format has no name for (bf16, fp8, 4 bits). */
graphc_status npy_has_type(DiagSink *d, const char *path, DType t);
graphc_status npy_encode(Arena *a, DiagSink *d, const char *path, const EvalTensor *t, void **out,
                         size_t *n);

#endif
