/* Ensembles of trees: what a node may ask is said with one question, whose answer is first or
 * second.
 *
 * A sample goes on to the second if x[feature] > value, so to the first also where x is NaN. What
 * else a node may ask is said with that, with several if need be: the features are there negated,
 * too, behind the plain ones. */
#include "frontend/ops/ml/tree_tables.h"
#include "frontend/import/import_impl.h"
#include "runtime/base/arena.h"
#include <float.h>
#include <math.h>

/* ---- Splits ---- */

static double next(DType t, double x, double to) {
    return t == DT_f64 ? nextafter(x, to) : (double)nextafterf((float)x, (float)to);
}

/* x <= value; NaN is yes or not. */
static void split_le(const Tables *t, uint32_t at, const TreeNode *n) {
    const DType d = t->f->dtype;
    Split s = {.feature = n->feature, .first = n->yes, .second = n->no, .value = n->value};
    if (!n->nan_is_yes) { /* x > value or NaN, that is not -x > -next(value) */
        s.negated = true;
        s.value = -next(d, n->value, INFINITY);
        s.first = n->no;
        s.second = n->yes;
    }
    t->split[at] = s;
}

static void split_node(Tables *t, uint32_t at, TreeNode n);

/* `n` asks what stands at a new split. */
static uint32_t split_more(Tables *t, TreeNode n) {
    const uint32_t at = t->nsplits++;
    split_node(t, at, n);
    return at;
}

static TreeNode inverse(TreeNode n, TreeMode mode) {
    const uint32_t yes = n.yes;
    n.yes = n.no;
    n.no = yes;
    n.nan_is_yes = !n.nan_is_yes;
    n.mode = mode;
    return n;
}

static TreeNode asks(TreeNode n, TreeMode mode, double value) {
    n.mode = mode;
    n.value = value;
    return n;
}

/* Of -infinity and NaN, what is not below all numbers. */
static TreeNode below_all(TreeNode n) {
    n.nan_is_yes = true;
    n = inverse(n, TREE_LE);
    n.value = -INFINITY;
    return n;
}

/* With NaN as value nothing is true but that it differs. */
static TreeNode without_nan(TreeNode n) {
    if (n.mode == TREE_LEAF || n.mode == TREE_MEMBER || !isnan(n.value)) return n;
    if (n.mode == TREE_NE) n.no = n.yes;
    return asks(n, TREE_LT, -INFINITY);
}

static void split_member(Tables *t, uint32_t at, TreeNode n) {
    for (uint32_t i = n.nmembers; i-- > 0;) {
        const TreeNode one = asks(n, TREE_EQ, n.members[i]);
        if (i == 0)
            split_node(t, at, one);
        else
            n.no = split_more(t, one);
    }
    if (n.nmembers == 0) split_node(t, at, asks(n, TREE_LT, -INFINITY));
}

/* Recursion ends: each mode is said in terms of those before it in this list. */
static void split_node(Tables *t, uint32_t at, TreeNode n) {
    const double most = t->f->dtype == DT_f64 ? DBL_MAX : (double)FLT_MAX;
    switch (n.mode) {
    case TREE_LEAF: t->split[at] = (Split){.leaf = true, .value = INFINITY}; return;
    case TREE_LE:
        if (n.value == INFINITY && !n.nan_is_yes) { /* has no next: all but infinity, or infinity */
            n.no = split_more(t, asks(n, TREE_GT, most));
            n.value = most;
        }
        split_le(t, at, &n);
        return;
    case TREE_GT: split_node(t, at, inverse(n, TREE_LE)); return;
    case TREE_LT:
        if (n.value == -INFINITY) n.yes = split_more(t, below_all(n)); /* infinity, or NaN */
        split_node(t, at, asks(n, TREE_LE, next(t->f->dtype, n.value, -INFINITY)));
        return;
    case TREE_GE: split_node(t, at, inverse(n, TREE_LT)); return;
    case TREE_EQ: {
        n.yes = split_more(t, asks(n, TREE_GE, n.value));
        split_node(t, at, asks(n, TREE_LE, n.value));
        return;
    }
    case TREE_NE:
        n.nan_is_yes = true; /* it differs from all numbers */
        split_node(t, at, inverse(n, TREE_EQ));
        return;
    case TREE_MEMBER: split_member(t, at, n); return;
    }
}

/* What each leaf adds, [slots, ntargets]. */
static Value weights(Graph *g, const Tables *t) {
    const Forest *f = t->f;
    const double none = f->fold == TREE_MIN ? INFINITY : f->fold == TREE_MAX ? -INFINITY : 0;
    double *w = arena_array(t->a, (size_t)t->nslots * f->ntargets + 1, sizeof *w);
    for (uint32_t s = 0; s < t->nslots; s++) {
        double *row = w + (size_t)s * f->ntargets;
        for (uint32_t i = 0; i < f->ntargets; i++) row[i] = none;
        if (!t->leaf[s]) continue;
        const TreeNode *n = &f->node[t->leaf[s] - 1];
        for (uint32_t i = n->first_weight; i < n->first_weight + n->nweights; i++) {
            double *to = &row[f->target[i]];
            if (f->fold == TREE_MIN)
                *to = fmin(*to, f->weight[i]);
            else if (f->fold == TREE_MAX)
                *to = fmax(*to, f->weight[i]);
            else
                *to += f->weight[i];
        }
    }
    return ml_matrix(g, f->dtype, w, t->nslots, f->ntargets);
}

static Value folded(Graph *g, const Forest *f, Value table, Value at) {
    const Op op = f->fold == TREE_MIN   ? OP_reduce_min
                  : f->fold == TREE_MAX ? OP_reduce_max
                                        : OP_reduce_sum;
    if (!table || !at) return 0;
    const Expr dim[3] = {v_dim(g, at, 0), v_dim(g, at, 1), v_int(g, f->ntargets)};
    const Value row = build_expand(g, build_unsqueeze(g, at, 2), 3, dim);
    const int8_t of_slots[] = {-1, 2};
    const Value said = build_gather(g, table, of_slots, &row, 1, 3, dim);
    const Value sum = build_reduce(g, op, said, 1u << 0, false);
    if (f->fold == TREE_SUM) return sum;
    if (f->fold == TREE_AVERAGE) return v_divf(g, sum, f->ntrees);
    const Value some = v_ltf(g, v_abs(g, sum), INFINITY);
    return v_select_f(g, some, sum, 0);
}

Value forest_run(Lower *l, const Forest *f, Value rows) {
    Graph *g = lower_graph(l);
    Tables t = {.f = f, .a = g->arena, .nsplits = f->nnodes};
    uint64_t splits = f->nnodes;
    int64_t features, least = 1;
    for (uint32_t i = 0; i < f->nnodes; i++) {
        splits += 4 + 4 * (uint64_t)f->node[i].nmembers;
        if (f->node[i].feature >= least) least = (int64_t)f->node[i].feature + 1;
    }
    if (splits > INT32_MAX / 4) {
        lower_error(l, D_LIMIT, "its trees have %llu splits", (unsigned long long)splits);
        return 0;
    }
    if (!ml_columns(l, rows, least, &features)) return 0;
    t.split = arena_array(t.a, splits, sizeof *t.split);
    for (uint32_t i = 0; i < f->nnodes; i++) split_node(&t, i, without_nan(f->node[i]));
    Value at = tree_masks(g, &t, rows, features);
    if (!at) at = tree_walk(l, &t, rows, features);
    return folded(g, f, weights(g, &t), at);
}
