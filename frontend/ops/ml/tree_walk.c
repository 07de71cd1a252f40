/* From trees to tables: a walk is as many equal steps as the longest way from a root to a leaf.
 *
 * A slot of the tables is where a sample stands: it goes on to child + (x[feature] > value), that
 * is to the first of two neighbours also where x is NaN. A leaf is its own child and has value
 * +inf, so that samples stay there. */
#include "frontend/import/import_impl.h"
#include "frontend/ops/ml/tree_tables.h"
#include "runtime/base/arena.h"
#include <math.h>

enum { STEPS_UNROLLED = 32 };

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

/* Many steps as rounds of some; more than needed do no harm, but they are few. */
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
    const uint32_t rounds = (steps + STEPS_UNROLLED - 1) / STEPS_UNROLLED;
    const Value out = walk_steps(body, &inner, in, (steps + rounds - 1) / rounds);
    if (!out) return 0;
    build_output(body, "cond", build_scalar_i(body, DT_bool, 1));
    build_output(body, "at", out);
    const Value loop = build_loop(g, build_scalar_i(g, DT_i64, rounds),
                                  build_scalar_i(g, DT_bool, 1), &at, 1, captures, 4, body, iter);
    return build_proj(g, loop, 0);
}

Value tree_rows(Graph *g, Value rows, int64_t features, int32_t *feature, const bool *asks,
                size_t n) {
    bool plain = false, negated = false;
    for (size_t i = 0; i < n; i++)
        if (asks[i]) *(feature[i] < features ? &plain : &negated) = true;
    const Value mirrored[] = {rows, v_neg(g, rows)};
    for (size_t i = 0; i < n && !plain; i++) feature[i] %= (int32_t)features;
    return !negated ? rows : plain ? build_concat(g, mirrored, 2, 1) : mirrored[1];
}

/* Where each sample ends in each tree. */
static Value leaves(Lower *l, Tables *t, Value rows, int64_t features) {
    Graph *g = lower_graph(l);
    bool *asks = arena_array(t->a, t->nslots + 1, sizeof *asks);
    for (uint32_t s = 0; s < t->nslots; s++) asks[s] = !t->leaf[s] && t->value[s] < INFINITY;
    const Value column = ml_matrix(g, t->f->dtype, t->value, t->nslots, 1);
    const Expr n = v_int(g, t->nslots);
    const Walk w = {
        .rows = tree_rows(g, rows, features, t->feature, asks, t->nslots),
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

Value tree_walk(Lower *l, Tables *t, Value rows, int64_t features) {
    const size_t most = t->f->ntrees + 2 * (size_t)t->nsplits;
    t->slot = arena_array(t->a, t->nsplits, sizeof *t->slot);
    t->child = arena_array(t->a, most, sizeof *t->child);
    t->feature = arena_array(t->a, most, sizeof *t->feature);
    t->leaf = arena_array(t->a, most, sizeof *t->leaf);
    t->value = arena_array(t->a, most, sizeof *t->value);
    place_all(t, (uint32_t)features);
    if (!count_steps(t)) {
        lower_error(l, D_MODEL, "a node of a tree lies below itself");
        return 0;
    }
    return leaves(l, t, rows, features);
}
