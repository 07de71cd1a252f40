/* Ensembles of decision trees as tables, and the way of samples through them. */
#ifndef FRONTEND_OPS_TREE_H
#define FRONTEND_OPS_TREE_H

#include "frontend/ops/ml/ml.h"

typedef enum TreeMode {
    TREE_LE,
    TREE_LT,
    TREE_GE,
    TREE_GT,
    TREE_EQ,
    TREE_NE,
    TREE_MEMBER,
    TREE_LEAF
} TreeMode;

/* A node as a file has it: `yes` and `no` are numbers of nodes. */
typedef struct TreeNode {
    TreeMode mode;
    bool nan_is_yes;
    uint32_t feature, yes, no;
    double value;                /* what the feature is compared with */
    uint32_t nmembers, nweights; /* of TREE_MEMBER; of a leaf */
    const double *members;       /* yes if the feature is one of them */
    uint32_t first_weight;       /* of a leaf, in Forest.weight and Forest.target */
} TreeNode;

typedef enum TreeFold { TREE_AVERAGE, TREE_SUM, TREE_MIN, TREE_MAX } TreeFold;

typedef struct Forest {
    DType dtype; /* f32 or f64: of features, values and weights */
    uint32_t nnodes, ntrees;
    TreeNode *node;
    uint32_t *root; /* ntrees */
    uint32_t ntargets;
    uint32_t *target; /* sorted by leaf */
    double *weight;
    TreeFold fold;
} Forest;

/* What the trees say of each sample, folded over trees: [n, ntargets]. A target that no leaf of a
 * sample has gets 0. 0 after an error: a cycle, say. */
Value forest_run(Lower *l, const Forest *f, Value rows);

#endif
