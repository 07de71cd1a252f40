/* Trees of at most 64 leaves as masks: a bit of a word for each leaf, from left to right. Every
 * split of the tree is asked; one whose answer is `second` clears the leaves below its `first`. The
 * lowest bit that is left is the sample's leaf: whatever else is left lies to its right. So all
 * samples do the same, a comparison and a mask per split, from numbers that lie beside each other;
 * a walk fetches three numbers from anywhere per step, as many steps as the deepest leaf of all
 * trees.
 *
 * (C. Lucchese et al., QuickScorer, SIGIR 2015; here every split is asked, not those in vain only.)
 */
#include "frontend/import/formula.h"
#include "frontend/ops/ml/tree_tables.h"
#include "runtime/base/arena.h"
#include <math.h>

enum { MOST_SPLITS = TREE_MASK_LEAVES - 1 };

/* One question of a tree, and what is left of its leaves where the answer is `second`. */
typedef struct Question {
    const Split *split;
    uint64_t left;
} Question;

typedef struct Bits {
    const Tables *t;
    Question asked[MOST_SPLITS];
    uint32_t nasked, leaf[TREE_MASK_LEAVES], nleaves;
} Bits;

/* Numbers the leaves below a split. False if there are too many: a way back to a split above, too.
 */
static bool number_leaves(Bits *b, uint32_t split) {
    const Split *s = &b->t->split[split];
    const uint32_t low = b->nleaves;
    if (s->leaf) { /* one more than splits are asked, at most */
        b->leaf[b->nleaves++] = split;
        return true;
    }
    if (b->nasked == MOST_SPLITS) return false;
    Question *q = &b->asked[b->nasked++];
    q->split = s;
    if (!number_leaves(b, s->first)) return false;
    const uint64_t below = ~UINT64_C(0) >> (64 - (b->nleaves - low)) << low;
    q->left = ~below;
    return number_leaves(b, s->second);
}

static bool number_tree(Bits *b, const Tables *t, uint32_t tree) {
    b->t = t;
    b->nasked = b->nleaves = 0;
    return number_leaves(b, t->f->root[tree]);
}

/* Of all trees; false if one of them does not fit. */
static bool measure(const Tables *t, uint32_t *splits, uint32_t *leaves) {
    Bits b;
    *splits = *leaves = 0;
    for (uint32_t i = 0; i < t->f->ntrees; i++) {
        if (!number_tree(&b, t, i)) return false;
        if (b.nasked > *splits) *splits = b.nasked;
        if (b.nleaves > *leaves) *leaves = b.nleaves;
    }
    return true;
}

/* What all trees are asked, [trees, splits]; a tree with fewer splits asks what is never so. */
typedef struct Asked {
    uint32_t trees, splits, bits;
    int32_t *feature;
    bool *some;
    double *value;
    uint64_t *left;
} Asked;

static void fill(Tables *t, Asked *q, int64_t features) {
    Bits b;
    for (uint32_t i = 0; i < q->trees; i++) {
        number_tree(&b, t, i);
        for (uint32_t k = 0; k < b.nleaves; k++) t->leaf[i * q->bits + k] = b.leaf[k] + 1;
        for (uint32_t k = 0; k < q->splits; k++) {
            const size_t at = (size_t)i * q->splits + k;
            const Split *s = k < b.nasked ? b.asked[k].split : NULL;
            q->some[at] = s && s->value < INFINITY;
            q->value[at] = s ? s->value : INFINITY;
            q->left[at] = s ? b.asked[k].left : ~UINT64_C(0);
            if (s) q->feature[at] = (int32_t)(s->feature + (s->negated ? features : 0));
        }
    }
}

/* ---- As nodes ---- */

static Value table(Graph *g, const Asked *q, DType t, const void *bytes) {
    const Type type = {.dtype = t, .rank = 2, .dim = {v_int(g, q->trees), v_int(g, q->splits)}};
    const size_t n = (size_t)q->trees * q->splits;
    return build_const(g, type, (Constant){.data = bytes, .bytes = n * dtype_bytes(t)});
}

static Value table_of_masks(Graph *g, Arena *a, const Asked *q) {
    if (q->bits == 64) return table(g, q, DT_u64, q->left);
    const size_t n = (size_t)q->trees * q->splits;
    uint32_t *words = arena_array(a, n + 1, sizeof *words);
    for (size_t i = 0; i < n; i++) words[i] = (uint32_t)q->left[i];
    return table(g, q, DT_u32, words);
}

/* Of each tree what stands in a column, for all samples: [trees, samples]. */
static Value column(Graph *g, Value of, uint32_t k, const Expr *dim) {
    return build_expand(g, build_slice_axis(g, of, 1, v_int(g, k), v_int(g, 1), 1), 2, dim);
}

/* The number of the lowest bit of a word that is not 0: the exponent of that bit as a number. */
static Value lowest_bit(Graph *g, Value word, uint32_t bits) {
    const Value low = v_and(g, word, v_neg(g, word));
    const DType real = bits == 64 ? DT_f64 : DT_f32, whole = bits == 64 ? DT_i64 : DT_i32;
    const Value number = build_bitcast(g, build_cast(g, low, real), whole);
    const Value exponent = build_binary_f(g, OP_shr, number, bits == 64 ? 52 : 23);
    return build_cast(g, v_addf(g, exponent, bits == 64 ? -1023 : -127), DT_i32);
}

static Value slots(Graph *g, Arena *a, const Asked *q, Value rows) {
    static const uint8_t turned[] = {1, 0};
    static const int8_t of_features[] = {-1, 1};
    const Expr dim[2] = {v_int(g, q->trees), v_dim(g, rows, 0)};
    const Value columns = build_permute(g, rows, turned);
    const Value feature = table(g, q, DT_i32, q->feature), left = table_of_masks(g, a, q);
    const Value value = ml_matrix(g, graph_type(g, rows)->dtype, q->value, q->trees, q->splits);
    const DType word = q->bits == 64 ? DT_u64 : DT_u32;
    Value leaves = build_full(g, v_neg(g, build_scalar_i(g, word, 1)), 2, dim);
    for (uint32_t k = 0; k < q->splits; k++) {
        const Value which = column(g, feature, k, dim);
        const Value x = build_gather(g, columns, of_features, &which, 1, 2, dim);
        const Value second = v_lt(g, column(g, value, k, dim), x);
        leaves = build_select(g, second, v_and(g, leaves, column(g, left, k, dim)), leaves);
    }
    const Value first = v_mulf(g, v_iota(g, DT_i32, dim[0]), q->bits); /* of a tree's slots */
    return v_add(g, build_expand(g, build_unsqueeze(g, first, 1), 2, dim),
                 lowest_bit(g, leaves, q->bits));
}

Value tree_masks(Graph *g, Tables *t, Value rows, int64_t features) {
    Asked q = {.trees = t->f->ntrees};
    uint32_t leaves;
    if (!measure(t, &q.splits, &leaves)) return 0;
    const size_t n = (size_t)q.trees * q.splits + 1;
    q.bits = leaves <= 32 ? 32 : 64;
    q.feature = arena_array(t->a, n, sizeof *q.feature);
    q.some = arena_array(t->a, n, sizeof *q.some);
    q.value = arena_array(t->a, n, sizeof *q.value);
    q.left = arena_array(t->a, n, sizeof *q.left);
    t->nslots = q.trees * q.bits;
    t->leaf = arena_array(t->a, t->nslots + 1, sizeof *t->leaf);
    fill(t, &q, features);
    return slots(g, t->a, &q, tree_rows(g, rows, features, q.feature, q.some, n - 1));
}
