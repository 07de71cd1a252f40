/* TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble of ai.onnx.ml. */
#include "frontend/ops/ml/tree.h"
#include "runtime/base/arena.h"
#include "runtime/base/map.h"
#include <string.h>

/* ---- The older two: nodes and weights are named by tree and node ---- */

/* Attributes that are parallel lists. */
typedef struct Lists {
    Lower *l;
    MapU64 *node; /* tree and node -> number from 1 */
} Lists;

static bool key_of(int64_t tree, int64_t node, uint64_t *key) {
    *key = (uint64_t)tree << 32 | (uint64_t)node;
    return tree >= 0 && tree < INT32_MAX && node >= 0 && node < INT32_MAX;
}

/* Integers of a list with n elements; NULL after an error. */
static const int64_t *list(Lower *l, const char *name, uint32_t n) {
    uint32_t has;
    const int64_t *v = lower_ints(l, name, &has);
    if (v && has == n) return v;
    lower_error(l, D_ATTRIBUTE, "'%s' has %u numbers, not %u", name, has, n);
    return NULL;
}

static bool modes(Lower *l, Forest *f) {
    static const char *const name[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE", "BRANCH_GT",
                                       "BRANCH_EQ",  "BRANCH_NEQ", NULL,         "LEAF"};
    uint32_t n;
    const char *const *mode = lower_strings(l, "nodes_modes", &n);
    if (n != f->nnodes)
        return lower_error(l, D_ATTRIBUTE, "'nodes_modes' has %u names for %u nodes", n, f->nnodes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = 0;
        while (m <= TREE_LEAF && !(name[m] && strcmp(name[m], mode[i]) == 0)) m++;
        if (m > TREE_LEAF) return lower_error(l, D_ATTRIBUTE, "'nodes_modes' has '%s'", mode[i]);
        f->node[i].mode = (TreeMode)m;
    }
    return true;
}

/* Features, values and what NaN does. */
static bool questions(Lower *l, Forest *f) {
    uint32_t nvalues, nnan;
    DType t;
    const int64_t *feature = list(l, "nodes_featureids", f->nnodes);
    const double *value = ml_numbers(l, "nodes_values", "nodes_values_as_tensor", &nvalues, &t);
    const int64_t *nan = lower_ints(l, "nodes_missing_value_tracks_true", &nnan);
    if (!feature || !modes(l, f)) return false;
    if (!value || nvalues != f->nnodes)
        return lower_error(l, D_ATTRIBUTE, "'nodes_values' has %u numbers for %u nodes", nvalues,
                           f->nnodes);
    for (uint32_t i = 0; i < f->nnodes; i++) {
        TreeNode *n = &f->node[i];
        if (n->mode != TREE_LEAF && (feature[i] < 0 || feature[i] > INT32_MAX / 4))
            return lower_error(l, D_ATTRIBUTE, "'nodes_featureids' has %lld",
                               (long long)feature[i]);
        n->feature = n->mode == TREE_LEAF ? 0 : (uint32_t)feature[i];
        n->value = value[i];
        n->nan_is_yes = nnan == f->nnodes && nan[i];
    }
    return true;
}

/* Where nodes lead to; the nodes that none leads to are the roots. */
static bool branches(const Lists *s, Forest *f, const int64_t *tree) {
    Lower *l = s->l;
    const int64_t *yes = list(l, "nodes_truenodeids", f->nnodes);
    const int64_t *no = list(l, "nodes_falsenodeids", f->nnodes);
    bool *below = arena_array(lower_graph(l)->arena, f->nnodes, sizeof *below);
    if (!yes || !no) return false;
    for (uint32_t i = 0; i < f->nnodes; i++) {
        TreeNode *n = &f->node[i];
        uint64_t a, b;
        if (n->mode == TREE_LEAF) continue;
        if (!key_of(tree[i], yes[i], &a) || !key_of(tree[i], no[i], &b) ||
            !map_get(s->node, a, &n->yes) || !map_get(s->node, b, &n->no))
            return lower_error(l, D_ATTRIBUTE, "a node of tree %lld leads to none",
                               (long long)tree[i]);
        n->yes--;
        n->no--;
        below[n->yes] = below[n->no] = true;
    }
    for (uint32_t i = 0; i < f->nnodes; i++)
        if (!below[i]) f->root[f->ntrees++] = i;
    return f->ntrees > 0 || lower_error(l, D_MODEL, "no tree has a root");
}

/* Weights of leaves, in the order of the leaves. `kind`: target or class. */
static bool read_weights(const Lists *s, Forest *f, const char *kind) {
    Lower *l = s->l;
    Arena *a = lower_graph(l)->arena;
    uint32_t n, nid;
    DType t;
    const double *w = ml_numbers(l, arena_printf(a, "%s_weights", kind),
                                 arena_printf(a, "%s_weights_as_tensor", kind), &n, &t);
    const int64_t *tree = list(l, arena_printf(a, "%s_treeids", kind), n);
    const int64_t *node = list(l, arena_printf(a, "%s_nodeids", kind), n);
    const int64_t *to = list(l, arena_printf(a, "%s_ids", kind), n);
    if (!w || !tree || !node || !to) return false;
    uint32_t *of = arena_array(a, n + 1, sizeof *of);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t key;
        if (!key_of(tree[i], node[i], &key) || !map_get(s->node, key, &nid))
            return lower_error(l, D_ATTRIBUTE,
                               "a weight is for node %lld of tree %lld, which is none",
                               (long long)node[i], (long long)tree[i]);
        if (to[i] < 0 || to[i] >= f->ntargets)
            return lower_error(l, D_ATTRIBUTE, "a weight is for '%s' %lld of %u", kind,
                               (long long)to[i], f->ntargets);
        of[i] = nid - 1;
        f->node[of[i]].nweights++;
    }
    f->weight = arena_array(a, n + 1, sizeof *f->weight);
    f->target = arena_array(a, n + 1, sizeof *f->target);
    uint32_t at = 0;
    for (uint32_t i = 0; i < f->nnodes; at += f->node[i++].nweights) f->node[i].first_weight = at;
    uint32_t *used = arena_array(a, f->nnodes, sizeof *used);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t k = f->node[of[i]].first_weight + used[of[i]]++;
        f->weight[k] = w[i];
        f->target[k] = (uint32_t)to[i];
    }
    return true;
}

static bool read_forest(Lower *l, Forest *f, const char *kind) {
    Arena *a = lower_graph(l)->arena;
    Lists s = {.l = l, .node = map_create(a)};
    const int64_t *tree = lower_ints(l, "nodes_treeids", &f->nnodes);
    const int64_t *id = list(l, "nodes_nodeids", f->nnodes);
    if (!tree || !id || !f->nnodes) return lower_error(l, D_ATTRIBUTE, "it has no nodes");
    f->node = arena_array(a, f->nnodes, sizeof *f->node);
    f->root = arena_array(a, f->nnodes, sizeof *f->root);
    for (uint32_t i = 0; i < f->nnodes; i++) {
        uint64_t key;
        uint32_t other;
        if (!key_of(tree[i], id[i], &key) || map_get(s.node, key, &other))
            return lower_error(l, D_ATTRIBUTE,
                               "node %lld of tree %lld is out of range or there twice",
                               (long long)id[i], (long long)tree[i]);
        map_put(s.node, key, i + 1);
    }
    return questions(l, f) && branches(&s, f, tree) && read_weights(&s, f, kind);
}

static const double *base_values(Lower *l, uint32_t *n) {
    DType t;
    return ml_numbers(l, "base_values", "base_values_as_tensor", n, &t);
}

static bool lower_regressor(Lower *l) {
    static const char *const folds[] = {"AVERAGE", "SUM", "MIN", "MAX", NULL};
    Graph *g = lower_graph(l);
    int fold;
    uint32_t nbase;
    MlPost post;
    const int64_t targets = lower_i(l, "n_targets");
    const Value rows = ml_rows(l, true);
    if (!rows || !ml_post(l, &post) || !lower_choice(l, "aggregate_function", folds, &fold))
        return false;
    if (targets < 1 || targets > INT32_MAX)
        return lower_error(l, D_ATTRIBUTE, "'n_targets' is %lld", (long long)targets);
    Forest f = {.dtype = v_dtype(g, rows), .ntargets = (uint32_t)targets, .fold = (TreeFold)fold};
    if (!read_forest(l, &f, "target")) return false;
    Value y = forest_run(l, &f, rows);
    const double *base = base_values(l, &nbase);
    if (base && nbase == f.ntargets)
        y = v_add(g, y, ml_matrix(g, f.dtype, base, 1, nbase));
    else if (base && nbase)
        return lower_error(l, D_ATTRIBUTE, "'base_values' has %u numbers for %u targets", nbase,
                           f.ntargets);
    lower_out(l, 0, build_cast(g, ml_transform(g, y, post), DT_f32));
    return y != 0;
}

/* Weights for the first of two classes only are those of the second: it is the label where its
 * score is above 0.5 or, if some weight is negative, above 0. */
static Value two_classes(Lower *l, const Forest *f, Value score, MlPost post, Value *label) {
    Graph *g = lower_graph(l);
    uint32_t nbase;
    const double *base = base_values(l, &nbase);
    bool positive = true;
    for (uint32_t i = 0; i < f->nnodes; i++)
        for (uint32_t k = 0; k < f->node[i].nweights; k++)
            positive &= f->weight[f->node[i].first_weight + k] >= 0;
    if (base && nbase) score = v_addf(g, score, base[nbase - 1]);
    const double limit = positive ? 0.5 : 0;
    const Value second = v_lt(g, v_const(g, score, limit), score);
    *label = build_squeeze(g, build_cast(g, second, DT_i64), 1);
    if (nbase == 2 || post == ML_LOGISTIC)
        return ml_transform(g, ml_two_classes(g, score, ML_NEGATED), post);
    if (positive) return ml_two_classes(g, score, ML_COMPLEMENT);
    return ml_two_classes(g, score, ML_NEGATED);
}

/* The one class that has weights, or false if several have. */
static bool one_class(const Forest *f, uint32_t nweights, uint32_t *only) {
    for (uint32_t i = 0; i < nweights; i++)
        if (f->target[i] != f->target[0]) return false;
    *only = f->target[0];
    return nweights > 0;
}

static bool lower_classifier(Lower *l) {
    Graph *g = lower_graph(l);
    int64_t classes;
    uint32_t nbase, only, nweights = 0;
    MlPost post;
    const Value rows = ml_rows(l, true);
    const Value labels = ml_labels(l, "classlabels_int64s", "classlabels_strings", &classes);
    if (!rows || !labels || !ml_post(l, &post)) return false;
    if (classes < 2)
        return lower_unsupported(l, NULL, "it has %lld classes, not two or more",
                                 (long long)classes);
    Forest f = {.dtype = v_dtype(g, rows), .ntargets = (uint32_t)classes, .fold = TREE_SUM};
    if (!read_forest(l, &f, "class")) return false;
    for (uint32_t i = 0; i < f.nnodes; i++) nweights += f.node[i].nweights;
    Value label = 0, y;
    if (classes == 2 && one_class(&f, nweights, &only) && only == 0) {
        f.ntargets = 1;
        y = two_classes(l, &f, forest_run(l, &f, rows), post, &label);
    } else {
        const double *base = base_values(l, &nbase);
        if (nbase && nbase != classes)
            return lower_error(l, D_ATTRIBUTE, "'base_values' has %u numbers for %lld classes",
                               nbase, (long long)classes);
        y = forest_run(l, &f, rows);
        if (base) y = v_add(g, y, ml_matrix(g, f.dtype, base, 1, nbase));
        label = y ? build_arg_reduce(g, OP_argmax, y, 1, false, false) : 0;
        y = ml_transform(g, y, post);
    }
    if (!y) return false;
    ml_out_label(l, labels, label);
    lower_out(l, 1, build_cast(g, y, DT_f32));
    return true;
}

/* ---- TreeEnsemble: nodes and leaves by number ---- */

/* The leaf that a branch leads to becomes a node behind the others. */
static bool lead(Lower *l, const Forest *f, int64_t to, int64_t is_leaf, uint32_t inner,
                 uint32_t *out) {
    const int64_t most = is_leaf ? f->nnodes - inner : inner;
    if (to < 0 || to >= most)
        return lower_error(l, D_ATTRIBUTE, "a node leads to %s %lld of %lld",
                           is_leaf ? "leaf" : "node", (long long)to, (long long)most);
    *out = (uint32_t)to + (is_leaf ? inner : 0);
    return true;
}

/* Values up to the next NaN are a node's members. */
static bool read_members(Lower *l, TreeNode *n, const double *member, uint32_t nmember,
                         uint32_t *at) {
    if (*at < nmember) n->members = member + *at;
    while (*at < nmember && member[*at] == member[*at]) (*at)++, n->nmembers++;
    if (*at == nmember)
        return lower_error(l, D_ATTRIBUTE, "'membership_values' lacks the values of some node");
    (*at)++;
    return true;
}

static bool read_inner(Lower *l, Forest *f, uint32_t inner) {
    uint32_t nmode, nsplit, nmember, nnan, at = 0;
    DType t;
    const double *mode = ml_numbers(l, NULL, "nodes_modes", &nmode, &t);
    const double *split = ml_numbers(l, NULL, "nodes_splits", &nsplit, &t);
    const double *member = ml_numbers(l, NULL, "membership_values", &nmember, &t);
    const int64_t *nan = lower_ints(l, "nodes_missing_value_tracks_true", &nnan);
    const int64_t *feature = list(l, "nodes_featureids", inner);
    const int64_t *yes = list(l, "nodes_truenodeids", inner),
                  *no = list(l, "nodes_falsenodeids", inner);
    const int64_t *yes_leaf = list(l, "nodes_trueleafs", inner);
    const int64_t *no_leaf = list(l, "nodes_falseleafs", inner);
    if (!feature || !yes || !no || !yes_leaf || !no_leaf) return false;
    if (nmode != inner || nsplit != inner)
        return lower_error(l, D_ATTRIBUTE,
                           "'nodes_modes' has %u and 'nodes_splits' %u numbers for %u nodes", nmode,
                           nsplit, inner);
    for (uint32_t i = 0; i < inner; i++) {
        TreeNode *n = &f->node[i];
        if (!(mode[i] >= 0 && mode[i] <= TREE_MEMBER) || feature[i] < 0 ||
            feature[i] > INT32_MAX / 4)
            return lower_error(l, D_ATTRIBUTE, "node %u has mode %g and feature %lld", i, mode[i],
                               (long long)feature[i]);
        *n = (TreeNode){.mode = (TreeMode)mode[i],
                        .feature = (uint32_t)feature[i],
                        .value = split[i],
                        .nan_is_yes = nnan == inner && nan[i]};
        if (!lead(l, f, yes[i], yes_leaf[i], inner, &n->yes) ||
            !lead(l, f, no[i], no_leaf[i], inner, &n->no))
            return false;
        if (n->mode == TREE_MEMBER && !read_members(l, n, member, nmember, &at)) return false;
    }
    return true;
}

static bool read_leaves(Lower *l, Forest *f, uint32_t inner) {
    DType t;
    uint32_t n;
    const double *weight = ml_numbers(l, NULL, "leaf_weights", &n, &t);
    const int64_t *to = list(l, "leaf_targetids", n);
    if (!weight || !to) return false;
    f->target = arena_array(lower_graph(l)->arena, n, sizeof *f->target);
    f->weight = arena_array(lower_graph(l)->arena, n, sizeof *f->weight);
    for (uint32_t i = 0; i < n; i++) {
        if (to[i] < 0 || to[i] >= f->ntargets)
            return lower_error(l, D_ATTRIBUTE, "a leaf is for target %lld of %u", (long long)to[i],
                               f->ntargets);
        f->target[i] = (uint32_t)to[i];
        f->weight[i] = weight[i];
        f->node[inner + i] = (TreeNode){.mode = TREE_LEAF, .nweights = 1, .first_weight = i};
    }
    return true;
}

static bool lower_tree_ensemble(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t inner, nleaves, ntrees;
    DType t;
    const Value rows = ml_rows(l, true);
    const int64_t *root = lower_ints(l, "tree_roots", &ntrees);
    const int64_t targets = lower_i(l, "n_targets"), fold = lower_i(l, "aggregate_function"),
                  post = lower_i(l, "post_transform");
    lower_ints(l, "nodes_featureids", &inner);
    ml_numbers(l, NULL, "leaf_weights", &nleaves, &t);
    if (!rows) return false;
    if (targets < 1 || targets > INT32_MAX || fold < TREE_AVERAGE || fold > TREE_MAX ||
        post < ML_NONE || post > ML_PROBIT || !root || !ntrees)
        return lower_error(l, D_ATTRIBUTE, "%lld targets, function %lld, transform %lld, %u trees",
                           (long long)targets, (long long)fold, (long long)post, ntrees);
    Forest f = {.dtype = v_dtype(g, rows),
                .ntargets = (uint32_t)targets,
                .fold = (TreeFold)fold,
                .nnodes = inner + nleaves,
                .ntrees = ntrees};
    f.node = arena_array(g->arena, f.nnodes + 1, sizeof *f.node);
    f.root = arena_array(g->arena, ntrees, sizeof *f.root);
    for (uint32_t i = 0; i < ntrees; i++)
        if (!lead(l, &f, root[i], false, inner, &f.root[i])) return false;
    if (!read_inner(l, &f, inner) || !read_leaves(l, &f, inner)) return false;
    const Value y = ml_transform(g, forest_run(l, &f, rows), (MlPost)post);
    lower_out(l, 0, build_cast(g, y, lower_type(l, 0)->dtype));
    return y != 0;
}

/* ---- Rows ---- */

#define NODES                                                                                      \
    "nodes_treeids:I!", "nodes_nodeids:I!", "nodes_featureids:I!", "nodes_modes:S!",               \
        "nodes_values:F", "nodes_truenodeids:I!", "nodes_falsenodeids:I!",                         \
        "nodes_missing_value_tracks_true:I", "nodes_hitrates:F", "base_values:F",                  \
        "post_transform:s=NONE"
#define NODES_3                                                                                    \
    NODES, "nodes_values_as_tensor:t", "nodes_hitrates_as_tensor:t", "base_values_as_tensor:t"
#define TARGETS                                                                                    \
    "target_treeids:I!", "target_nodeids:I!", "target_ids:I!", "target_weights:F",                 \
        "n_targets:i=1", "aggregate_function:s=SUM"
#define CLASSES                                                                                    \
    "class_treeids:I!", "class_nodeids:I!", "class_ids:I!", "class_weights:F",                     \
        "classlabels_int64s:I", "classlabels_strings:S"

static const char *const regressor_attrs[] = {NODES, TARGETS, NULL};
static const char *const regressor_attrs_3[] = {NODES_3, TARGETS, "target_weights_as_tensor:t",
                                                NULL};
static const char *const classifier_attrs[] = {NODES, CLASSES, NULL};
static const char *const classifier_attrs_3[] = {NODES_3, CLASSES, "class_weights_as_tensor:t",
                                                 NULL};
static const char *const ensemble_attrs[] = {"aggregate_function:i=1",
                                             "leaf_targetids:I!",
                                             "leaf_weights:t!",
                                             "membership_values:t",
                                             "n_targets:i=1",
                                             "nodes_falseleafs:I!",
                                             "nodes_falsenodeids:I!",
                                             "nodes_featureids:I!",
                                             "nodes_hitrates:t",
                                             "nodes_missing_value_tracks_true:I",
                                             "nodes_modes:t!",
                                             "nodes_splits:t!",
                                             "nodes_trueleafs:I!",
                                             "nodes_truenodeids:I!",
                                             "post_transform:i=0",
                                             "tree_roots:I!",
                                             NULL};

const OnnxOp ops_ml_tree[] = {
    {ML, "TreeEnsembleRegressor", 1, 2, 1, 1, 1, 1, regressor_attrs, lower_regressor},
    {ML, "TreeEnsembleRegressor", 3, 0, 1, 1, 1, 1, regressor_attrs_3, lower_regressor},
    {ML, "TreeEnsembleClassifier", 1, 2, 1, 1, 1, 2, classifier_attrs, lower_classifier},
    {ML, "TreeEnsembleClassifier", 3, 0, 1, 1, 1, 2, classifier_attrs_3, lower_classifier},
    {ML, "TreeEnsemble", 5, 0, 1, 1, 1, 1, ensemble_attrs, lower_tree_ensemble},
    {0},
};
