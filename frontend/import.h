/* ONNX model -> Graph of core ops. protobuf-c's generated header is included in frontend only, by the
 * .c files that need it; this header does not mention it, so that tests can use it. */
#ifndef FRONTEND_IMPORT_H
#define FRONTEND_IMPORT_H

#include "graph/build.h"
#include "runtime/base/file.h"

typedef struct ImportDim {
    const char *name;
    int64_t lo, hi;
} ImportDim;

typedef struct ImportOptions {
    const ImportDim *dims; /* --dim: fixes or bounds symbols; an unknown name is an error */
    uint32_t ndims;
} ImportOptions;

typedef struct Model Model; /* keeps the file mappings that constants point into */

/* Reports every error of the model, not only the first. The graph's constants point into the Model,
 * which must outlive it. */
graphc_status import_model(Arena *a, DiagSink *d, const char *path, const ImportOptions *o,
                           Model **out_model, Graph **out_graph);
void import_close(Model *m);

#endif
