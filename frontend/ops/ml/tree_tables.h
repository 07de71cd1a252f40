/* How samples find their leaves: between tree.c, tree_masks.c and tree_walk.c. */
#ifndef FRONTEND_OPS_TREE_TABLES_H
#define FRONTEND_OPS_TREE_TABLES_H

#include "frontend/ops/ml/tree.h"

/* first unless x > value, else second; x may be negated. */
typedef struct Split {
    bool leaf, negated;
    uint32_t feature, first, second;
    double value;
} Split;

typedef struct Tables {
    const Forest *f;
    Arena *a;
    Split *split; /* those of Forest.node, then what they are made of */
    uint32_t nsplits;
    uint32_t *slot; /* by split: 1 + where it stands, or 0 */
    uint32_t nslots, steps;
    int32_t *child, *feature;
    uint32_t *leaf; /* by slot: 1 + the node, or 0 */
    double *value;
} Tables;

/* The rows as splits ask for them, where `feature` has n numbers of which those from `features` on
 * are of negated ones; renumbers them if no other are asked for. */
Value tree_rows(Graph *g, Value rows, int64_t features, int32_t *feature, const bool *asks,
                size_t n);

enum { TREE_MASK_LEAVES = 64 };

/* Trees of a few leaves without a walk: sets nslots and leaf and gives the slots, [trees, samples].
 * 0 without an error if some tree has more than TREE_MASK_LEAVES leaves. */
Value tree_masks(Graph *g, Tables *t, Value rows, int64_t features);

/* The same for trees of any size; sets nslots, leaf and value. 0 after an error: a cycle, say. */
Value tree_walk(Lower *l, Tables *t, Value rows, int64_t features);

#endif
