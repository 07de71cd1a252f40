/* What of a graph stands for layers of the model that it came from: which values are initializers,
 * and which are the results of linear layers and embeddings. */
#ifndef GRAPH_GRAD_LAYER_H
#define GRAPH_GRAD_LAYER_H

#include "graph/ir/ir.h"

#include <regex.h>

/* The expression matches all of s. */
static inline bool layer_matches(const regex_t *r, const char *s) {
    regmatch_t m;
    return !regexec(r, s, 1, &m, 0) && !m.rm_so && !s[m.rm_eo];
}

/* Ops through which a weight is still seen. */
static inline bool layer_view(Op op) {
    return op == OP_permute || op == OP_reshape || op == OP_expand || op == OP_cast;
}

/* The name of the initializer that v is, as a constant or as a state that starts as it; or NULL. */
const char *layer_initializer(const Graph *g, Value v);
/* Whether a name is one that parameters have: ".weight", ".bias" and the like at its end. */
bool layer_parameter(const char *name);
/* Its elements. */
const Constant *layer_elements(const Graph *g, Value v);

typedef enum LayerKind { LAYER_linear, LAYER_embedding } LayerKind;

/* y = x W, or rows of W, where W is an initializer below views and casts. */
typedef struct Layer {
    const char *path; /* its module below the root: "model.layers.0.self_attn.q_proj" */
    LayerKind kind;
    Value source;    /* the initializer */
    Value matrix;    /* W as a matrix [in, out], somewhere above it; 0: it is not used as one */
    bool plain;      /* between the two are only casts and transpositions, ... */
    bool transposed; /* ... an odd number of them: the initializer is [out, in] */
    int64_t in, out; /* of an embedding: rows, and their size */
} Layer;

/* The module that a model was wrapped in to be exported: where all linear layers lie in one module
 * and it holds one of transformers' heads ("m.lm_head"). "" if there is none to be seen. */
const char *layer_root(const Graph *g);
/* name without the root and its dot, where it begins so. */
const char *layer_below(const char *root, const char *name);
/* Whether v is a layer's result. Its module is what the exporter's node metadata says, or else the
 * initializer's name without ".weight". */
bool layer_find(const Graph *g, const char *root, Value v, Layer *out);

#endif
