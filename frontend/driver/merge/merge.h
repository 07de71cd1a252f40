/* A model and an adapter become one model: which initializers change, and to what. */
#ifndef FRONTEND_DRIVER_MERGE_H
#define FRONTEND_DRIVER_MERGE_H

#include "frontend/import/import.h"
#include "graph/grad/layer.h"
#include "runtime/train/adapter/adapter.h"

/* A parameter of the model. One of module, whole and bias says what becomes of it; or none does. */
typedef struct MergeItem {
    const char *initializer; /* in the file */
    const char *name;        /* of the module's parameter: "model.layers.0.mlp.up_proj.weight" */
    const Constant *from;
    DType dtype;
    uint32_t rank;
    int64_t dim[GRAPH_MAX_RANK];
    bool transposed;             /* of a linear layer: stored as [out, in], as PEFT's modules are */
    bool turned;                 /* stored as [in, out] where the module has [out, in] */
    const AdapterModule *module; /* + scale * B A */
    const AdapterModule *bias;   /* + scale * its bias of B */
    const SafeTensor *whole;     /* this in its place */
    int32_t reader; /* the node that alone has it so, where others keep the old one; -1: all have */
} MergeItem;

typedef struct Merge {
    Arena *arena;
    DiagSink *diags;
    VEC(MergeItem) items; /* those that change first */
    uint32_t nchanged;
} Merge;

/* Needs a graph as imported with ImportOptions.weights. D_ADAPTER: the adapter has modules or sizes
 * that the model lacks; D_UNSUPPORTED: an initializer that stands for more than the module's
 * weight. */
graphc_status merge_collect(const Graph *g, const Adapter *a, Merge *out);

static inline bool merge_changes(const MergeItem *m) {
    return m->module || m->bias || m->whole;
}
static inline uint64_t merge_count(const MergeItem *m) {
    return m->from->bytes / dtype_bytes(m->dtype);
}
/* Its elements as the initializer lies in the file, rounded to its type. D_ADAPTER: they do not fit
 * there; D_NO_MEMORY. */
graphc_status merge_elements(const Merge *all, const MergeItem *m, void *out);

#define MERGE_SIDE ".data"
/* The model with the changed initializers, in a file of its own; what the model keeps in external
 * files, or all large ones where they are more than a file can hold, goes to OUT.data beside it. */
graphc_status merge_write_onnx(const Merge *all, const char *model, const char *out);
/* All parameters, by the names and in the layouts that modules have them. */
graphc_status merge_write_safetensors(const Merge *all, const char *out);

#endif
