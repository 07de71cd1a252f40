/* ONNX model -> Graph of core ops. protobuf-c's generated header is included in frontend only, by
 * the .c files that need it; this header does not mention it, so that tests can use it. */
#ifndef FRONTEND_IMPORT_H
#define FRONTEND_IMPORT_H

#include "graph/build/build.h"
#include "runtime/base/file.h"

typedef struct ImportDim {
    const char *name;
    int64_t lo, hi;
} ImportDim;

/* Of nodes that do one thing in training and another in inference. */
typedef enum ImportPhase {
    IMPORT_marked, /* what the file says */
    IMPORT_trains, /* either, as the run says: see lower_trains */
    IMPORT_infers
} ImportPhase;

/* Where bytes come from, if not from the file and those that it names. */
typedef struct ImportSource {
    const void *bytes; /* the model; NULL: the file */
    size_t size;
    /* External data by its location, which is a plain relative path: bytes that outlive the Model.
     * NULL: files. */
    graphc_status (*external)(void *ctx, const char *location, const void **data, size_t *size);
    void *ctx;
    FileLinks links; /* among files of external data */
} ImportSource;

enum { IMPORT_LEVEL_BYTES = 4 }; /* accuracy_level: integers of 8 bits */

typedef struct ImportOptions {
    ImportSource from;
    const ImportDim *dims; /* --dim: fixes or bounds symbols, or says between which
                              numbers a value lies; an unknown name is an error */
    uint32_t ndims;
    /* Initializers of the main graph that become states of their names, so that nothing is computed
     * from their elements beforehand: floats of these names, and with `weights` all of rank 1 and
     * more. Names that no initializer has are ignored. */
    const char *const *trained;
    uint32_t ntrained;
    bool weights;
    ImportPhase batch_norm, dropout;
    /* A target multiplies bytes: what a model allows to be rounded to them in blocks is. Nothing
     * that trains does: a rounded value has no gradient. */
    bool rounds_to_bytes;
    uint32_t accuracy_level; /* instead of MatMulNBits' attribute; 0: as each says */
} ImportOptions;

typedef struct Model Model; /* keeps the file mappings that constants point into */

/* Sizes of graph inputs become symbols, by name; a size written as a sum or product of other
 * inputs' sizes ("past + seq") is that expression. A symbol is at least 1, because an empty result
 * is not worth compiling for, unless some size of the model adds it to another and no output has it
 * as a dimension of its own: a cache that grows may start empty. ImportOptions.dims overrides
 * either. Where the model asks for more (a window has to fit), so much is the least, which is said.
 * An initializer that is also listed as an input is a constant.
 *
 * Reports every error of the model, not only the first. The graph's constants point into the Model,
 * which must outlive it. */
graphc_status import_model(Arena *a, DiagSink *d, const char *path, const ImportOptions *o,
                           Model **out_model, Graph **out_graph);
void import_close(Model *m);
uint64_t import_hash(const Model *m); /* XXH3 of the file; while it is open */

/* One tensor from a .pb file (an ONNX TensorProto) or its bytes (from; NULL: the file), in graphc's
 * memory form, copied into the arena. */
typedef struct ImportTensor {
    const char *name;
    DType dtype;
    uint32_t rank;
    int64_t dim[GRAPH_MAX_RANK];
    const void *data;
    uint64_t bytes;
} ImportTensor;
graphc_status import_tensor(Arena *a, DiagSink *d, const char *path, const ImportSource *from,
                            ImportTensor *out);

/* What a file is that was taken for a model or a plan, in words ("a gzip file"), by how it begins;
 * NULL: nothing that is known. */
const char *file_kind(const uint8_t *data, uint64_t size);

#endif
