/* From trees to tables: a walk is as many equal steps as the longest way from a root to a leaf.
 *
 * A slot of the tables is where a sample stands: it goes on to child + (x[feature] > value), that
 * is to the first of two neighbours also where x is NaN. A leaf is its own child and has value
 * +inf, so that samples stay there. What else a node may ask is said with that one question: the
 * features are there negated, too, behind the plain ones. */
#include "frontend/ops/ml/tree.h"
#include "frontend/import/import_impl.h"
#include "runtime/base/arena.h"
#include <float.h>
#include <math.h>

enum { STEPS_UNROLLED = 32 };

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

/* ---- Slots ---- */

typedef struct Place {
    uint32_t split, at;
} Place;

/* A split that stands somewhere already is reached by one more step. */
static void place(Tables *t, uint32_t split, uint32_t at, Place *queue, uint32_t *tail) {
    t->value[at] = INFINITY;
    if (t->slot[split]) {
        t->child[at] = (int32_t)(t->slot[split] - 1);
        return;
    }
    t->slot[split] = at + 1;
    queue[(*tail)++] = (Place){split, at};
}

static void place_all(Tables *t, uint32_t features) {
    Place *queue = arena_array(t->a, t->nsplits + 1, sizeof *queue);
    uint32_t head = 0, tail = 0;
    t->nslots = t->f->ntrees;
    for (uint32_t i = 0; i < t->f->ntrees; i++) {
        place(t, t->f->root[i], i, queue, &tail);
        for (; head < tail; head++) {
            const Place p = queue[head];
            const Split *s = &t->split[p.split];
            if (s->leaf) {
                t->child[p.at] = (int32_t)p.at;
                t->leaf[p.at] = p.split + 1;
                continue;
            }
            t->feature[p.at] = (int32_t)(s->feature + (s->negated ? features : 0));
            t->value[p.at] = s->value;
            t->child[p.at] = (int32_t)t->nslots;
            t->nslots += 2;
            place(t, s->first, t->nslots - 2, queue, &tail);
            place(t, s->second, t->nslots - 1, queue, &tail);
        }
    }
}

/* The longest way to a leaf; false if some way leads back. Slots are done once all that lead to
 * them are. */
static bool count_steps(Tables *t) {
    uint32_t *into = arena_array(t->a, t->nslots + 1, sizeof *into);
    uint32_t *far = arena_array(t->a, t->nslots + 1, sizeof *far);
    uint32_t *ready = arena_array(t->a, t->nslots + 1, sizeof *ready), n = 0, done = 0;
    for (uint32_t s = 0; s < t->nslots; s++) {
        if (t->leaf[s]) continue;
        into[t->child[s]]++;
        if (t->value[s] < INFINITY) into[t->child[s] + 1]++;
    }
    for (uint32_t s = 0; s < t->nslots; s++)
        if (!into[s]) ready[n++] = s;
    for (; done < n; done++) {
        const uint32_t s = ready[done];
        t->steps = far[s] > t->steps ? far[s] : t->steps;
        const uint32_t ways = t->leaf[s] ? 0 : t->value[s] < INFINITY ? 2 : 1;
        for (uint32_t w = 0; w < ways; w++) {
            const uint32_t to = (uint32_t)t->child[s] + w;
            if (far[to] < far[s] + 1) far[to] = far[s] + 1;
            if (--into[to] == 0) ready[n++] = to;
        }
    }
    return done == t->nslots;
}

/* ---- The walk ---- */

static Value table_i(Graph *g, const int32_t *v, uint32_t n) {
    const Type t = {.dtype = DT_i32, .rank = 1, .dim = {v_int(g, n)}};
    return build_const(g, t, (Constant){.data = v, .bytes = n * sizeof *v});
}

/* table[at], [trees, samples]; of a matrix, [row, at]. */
static Value look(Graph *g, Value table, Value at) {
    const Type *t = graph_type(g, at);
    const int8_t of_vector[] = {-1}, of_rows[] = {1, -1};
    return build_gather(g, table, v_rank(g, table) == 2 ? of_rows : of_vector, &at, 1, t->rank,
                        t->dim);
}

typedef struct Walk {
    Value rows, child, feature, value;
} Walk;

static Value walk_step(Graph *g, const Walk *w, Value at) {
    const Value x = look(g, w->rows, look(g, w->feature, at));
    const Value second = build_cast(g, v_lt(g, look(g, w->value, at), x), DT_i32);
    return v_add(g, look(g, w->child, at), second);
}

static Value walk_steps(Graph *g, const Walk *w, Value at, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) at = walk_step(g, w, at);
    return at;
}

/* Many steps as rounds of some; more than needed do no harm. */
static Value walk_rounds(Lower *l, const Walk *w, Value at, uint32_t steps) {
    Graph *g = lower_graph(l);
    uint32_t iter;
    v_iteration(g, "round", &iter);
    Graph *body = graph_create(g->arena, g->exprs, g->diags, "round");
    body->is_body = true;
    vec_push(l->im->arena, &l->im->subgraphs, body);
    build_at(body, build_loc_from(body, g, build_loc(g), 0));
    build_input(body, "cond", (Type){.dtype = DT_bool});
    const Value in = build_input(body, "at", *graph_type(g, at));
    const Value captures[] = {w->rows, w->child, w->feature, w->value};
    Walk inner;
    Value *to[] = {&inner.rows, &inner.child, &inner.feature, &inner.value};
    for (uint32_t i = 0; i < 4; i++)
        *to[i] = build_input(body, arena_printf(g->arena, "in.%u", i), *graph_type(g, captures[i]));
    const Value out = walk_steps(body, &inner, in, STEPS_UNROLLED);
    if (!out) return 0;
    build_output(body, "cond", build_scalar_i(body, DT_bool, 1));
    build_output(body, "at", out);
    const int64_t rounds = (steps + STEPS_UNROLLED - 1) / STEPS_UNROLLED;
    const Value loop = build_loop(g, build_scalar_i(g, DT_i64, rounds),
                                  build_scalar_i(g, DT_bool, 1), &at, 1, captures, 4, body, iter);
    return build_proj(g, loop, 0);
}

/* Where each sample ends in each tree. */
static Value leaves(Lower *l, Tables *t, Value rows, int64_t features) {
    Graph *g = lower_graph(l);
    bool plain = false, negated = false;
    for (uint32_t s = 0; s < t->nslots; s++) {
        if (t->leaf[s] || t->value[s] == INFINITY) continue;
        *(t->feature[s] < features ? &plain : &negated) = true;
    }
    const Value mirrored[] = {rows, v_neg(g, rows)};
    for (uint32_t s = 0; s < t->nslots && !plain; s++) t->feature[s] %= (int32_t)features;
    const Value column = ml_matrix(g, t->f->dtype, t->value, t->nslots, 1);
    const Expr n = v_int(g, t->nslots);
    const Walk w = {
        .rows = !negated ? rows
                : plain  ? build_concat(g, mirrored, 2, 1)
                         : mirrored[1],
        .child = table_i(g, t->child, t->nslots),
        .feature = table_i(g, t->feature, t->nslots),
        .value = build_reshape(g, column, 1, &n),
    };
    const Expr dim[2] = {v_int(g, t->f->ntrees), v_dim(g, rows, 0)};
    const Value root = build_unsqueeze(g, v_iota(g, DT_i32, dim[0]), 1); /* they come first */
    const Value at = build_expand(g, root, 2, dim);
    if (t->steps <= STEPS_UNROLLED) return walk_steps(g, &w, at, t->steps);
    return walk_rounds(l, &w, at, t->steps);
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
    const size_t most = f->ntrees + 2 * (size_t)t.nsplits;
    t.slot = arena_array(t.a, t.nsplits, sizeof *t.slot);
    t.child = arena_array(t.a, most, sizeof *t.child);
    t.feature = arena_array(t.a, most, sizeof *t.feature);
    t.leaf = arena_array(t.a, most, sizeof *t.leaf);
    t.value = arena_array(t.a, most, sizeof *t.value);
    place_all(&t, (uint32_t)features);
    if (!count_steps(&t)) {
        lower_error(l, D_MODEL, "a node of a tree lies below itself");
        return 0;
    }
    return folded(g, f, weights(g, &t), leaves(l, &t, rows, features));
}
