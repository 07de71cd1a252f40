/* NumPy's .npy files as tensors of the driver. */
#ifndef FRONTEND_DRIVER_NPY_H
#define FRONTEND_DRIVER_NPY_H

#include "graph/eval/eval.h"
#include "runtime/train/data/npy.h"

uint64_t tensor_numel(const EvalTensor *t);

graphc_status npy_decode(Arena *a, DiagSink *d, const char *path, const void *bytes, size_t n,
                         EvalTensor *out);
/* Unsupported, with a message, for a type that the format has no name for (bf16, fp8, 4 bits). */
graphc_status npy_has_type(DiagSink *d, const char *path, DType t);
graphc_status npy_encode(Arena *a, DiagSink *d, const char *path, const EvalTensor *t, void **out,
                         size_t *n);

#endif
