/* Tensors in files: .npy (NumPy format 1.0 to 3.0), .pb (an ONNX TensorProto), .npz and
 * safetensors. */
#ifndef FRONTEND_DRIVER_TENSOR_FILE_H
#define FRONTEND_DRIVER_TENSOR_FILE_H

#include "frontend/driver/tensors/npy.h"
#include "graph/eval/eval.h"

/* Elements in graphc's memory form (dtype.def: sub-byte types one per byte), in the arena. The
 * form is told by the file's first bytes, not its name; path "-" is standard input. Of a file of
 * several tensors it is the one called `name`, or the only one. */
graphc_status tensor_file_read(Arena *a, DiagSink *d, const char *path, const char *name,
                               EvalTensor *out);
/* Replaces `path` by rename; "-" is standard output. name: stored in a .pb. */
graphc_status tensor_file_write_npy(Arena *a, DiagSink *d, const char *path, const EvalTensor *t);
graphc_status tensor_file_write_pb(Arena *a, DiagSink *d, const char *path, const char *name,
                                   const EvalTensor *t);

/* Fills t (dtype, shape and data set) from a seed: floats N(0, 1), integers in [0, hi], bool fair
 * coin. The same seed and stream give the same bytes everywhere, with any number of threads. */
void tensor_fill_random(EvalTensor *t, uint64_t seed, uint64_t stream, int64_t hi,
                        uint32_t threads);

#endif
