/* The nodes of a model's main graph as its file has them, which folding and shape inference leave
 * untouched: for pictures. */
#ifndef FRONTEND_DRIVER_OUTLINE_H
#define FRONTEND_DRIVER_OUTLINE_H

#include "runtime/base/diag.h"

typedef struct OutlineNode {
    const char *name, *op, *output; /* never NULL; output: the first */
    uint32_t nin;
    /* what it takes values of, its subgraphs included: numbers in Outline.nodes */
    const uint32_t *in;
} OutlineNode;

/* The model's nodes by their numbers, then its inputs (op "input") without initializers, then its
 * outputs (op "output"). */
typedef struct Outline {
    uint32_t nnodes, n; /* nodes of the model; of all */
    OutlineNode *nodes;
} Outline;

graphc_status outline_read(Arena *a, DiagSink *d, const char *path, Outline *out);

#endif
