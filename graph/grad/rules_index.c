/* Data-dependent addresses: what was gathered is scattered back, what was scattered is gathered. */
#include "graph/grad/grad_impl.h"

/* A gather or scatter node as its rule sees it. `at` is the type of what lies one to one with the
 * coordinates: a gather's result, a scatter's updates. */
typedef struct Index {
    Graph *g;
    Node n;
    Type data, at;
    const Value *idx;
    uint32_t nidx;
} Index;

static Value zero(Graph *g, DType t) {
    return build_scalar_f(g, t, 0);
}

static Value full(Graph *g, const Type *shape, Value scalar) {
    return build_full(g, scalar, shape->rank, shape->dim);
}

/* Both of 0 <= i < size. */
static Value in_range(Graph *g, Value i, Expr size) {
    const DType t = graph_type(g, i)->dtype;
    return build_binary(g, OP_and, build_binary(g, OP_le, build_scalar_i(g, t, 0), i),
                        build_binary(g, OP_lt, i, build_expr(g, t, size)));
}

static Value clamped(Graph *g, Value i, Expr size) {
    const DType t = graph_type(g, i)->dtype;
    Value low = build_binary(g, OP_max, i, build_scalar_i(g, t, 0));
    return build_binary(g, OP_min, low, build_expr(g, t, expr_addi(g->exprs, size, -1)));
}

/* The coordinate on data axis d, as a tensor; 0 if it is a position that surely lies inside. */
static Value coordinate(const Index *x, int d) {
    const int8_t src = x->n.attr.index.src[d];
    if (src < 0) return x->idx[-src - 1];
    if (x->at.dim[src] == x->data.dim[d]) return 0;
    return build_iota(x->g, DT_i64, x->at.rank, x->at.dim, src);
}

/* What `cells`, of the data's shape, holds at the coordinates; outside, what lies nearest. */
static Value read_cells(const Index *x, Value cells) {
    int8_t src[GRAPH_MAX_RANK];
    Value idx[GRAPH_MAX_RANK];
    uint32_t n = 0;
    for (int d = 0; d < x->data.rank; d++) {
        Value i = coordinate(x, d);
        src[d] = x->n.attr.index.src[d];
        if (!i) continue;
        idx[n++] = clamped(x->g, i, x->data.dim[d]);
        src[d] = (int8_t)-n;
    }
    return build_gather(x->g, cells, src, idx, n, x->at.rank, x->at.dim);
}

/* v, but 0 where the coordinates lie outside the data and a scatter drops the update. */
static Value where_inside(const Index *x, Value v) {
    for (int d = 0; d < x->data.rank; d++) {
        Value i = coordinate(x, d);
        if (i)
            v = build_select(x->g, in_range(x->g, i, x->data.dim[d]), v, zero(x->g, x->at.dtype));
    }
    return v;
}

static Value scatter_again(const Index *x, Value into, Value updates, ScatterMode mode) {
    return build_scatter(x->g, into, updates, x->n.attr.index.src, x->idx, x->nidx, mode);
}

void grad_of_gather(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    Index x = {.g = g, .n = *graph_node(g, v), .at = *graph_type(g, v)};
    Value idx[GRAPH_MAX_RANK];
    x.data = *graph_type(g, x.n.in[0]);
    for (int d = 0; d < x.data.rank; d++) { /* gather clamps, scatter would drop */
        const int8_t src = x.n.attr.index.src[d];
        if (src >= 0) continue;
        idx[x.nidx++] = clamped(g, x.n.in[-src], x.data.dim[d]);
        x.n.attr.index.src[d] = (int8_t)-x.nidx;
    }
    x.idx = idx;
    Value into = full(g, &x.data, zero(g, x.data.dtype));
    grad_add(w, x.n.in[0], scatter_again(&x, into, dy, SCATTER_add));
}

/* ---- scatter ---- */

/* The gradients of a scatter's data and updates. */
typedef struct Pair {
    Value data, updates;
} Pair;

static Pair of_add(const Index *x, Value dy) {
    return (Pair){dy, where_inside(x, read_cells(x, dy))};
}

/* Every axis of the updates is a coordinate, so no two fall on one cell. */
static bool places_differ(const Index *x) {
    uint32_t seen = 0;
    for (int d = 0; d < x->data.rank; d++)
        if (x->n.attr.index.src[d] >= 0) seen |= 1u << x->n.attr.index.src[d];
    return seen == (1u << x->at.rank) - 1;
}

/* The number of each element in row-major order. */
static Value numbered(Graph *g, const Type *t) {
    Value v = build_full(g, build_scalar_i(g, DT_i64, 0), t->rank, t->dim);
    for (int a = 0; a < t->rank; a++) {
        v = build_binary(g, OP_mul, v, build_expr(g, DT_i64, t->dim[a]));
        v = build_binary(g, OP_add, v, build_iota(g, DT_i64, t->rank, t->dim, a));
    }
    return v;
}

/* Of updates that fall on one cell the last one stays. */
static Pair of_set(const Index *x, Value dy) {
    Graph *g = x->g;
    Value none = full(g, &x->at, zero(g, x->at.dtype)),
          updates = where_inside(x, read_cells(x, dy));
    if (!places_differ(x)) {
        Value number = numbered(g, &x->at);
        Value nobody = full(g, &x->data, build_scalar_i(g, DT_i64, -1));
        Value last = read_cells(x, scatter_again(x, nobody, number, SCATTER_set));
        updates =
            build_select(g, build_binary(g, OP_eq, last, number), updates, zero(g, x->at.dtype));
    }
    return (Pair){scatter_again(x, dy, none, SCATTER_set), updates};
}

/* Whoever equals the result shares its gradient. */
static Pair of_extreme(const Index *x, Value y, Value dy) {
    Graph *g = x->g;
    const DType t = x->at.dtype;
    Value kept = build_binary(g, OP_eq, x->n.in[0], y);
    Value taken = build_binary(g, OP_eq, x->n.in[1], read_cells(x, y));
    Value count = scatter_again(x, build_cast(g, kept, t), build_cast(g, taken, t), SCATTER_add);
    Value share = build_binary(g, OP_div, dy, count);
    return (Pair){build_select(g, kept, share, zero(g, t)),
                  where_inside(x, build_select(g, taken, read_cells(x, share), zero(g, t)))};
}

/* The product of a cell's factors but one, of the product of those that are not 0 and the number of
 * those that are. */
static Value other_factors(Graph *g, Value factor, Value product, Value zeros) {
    const DType t = graph_type(g, factor)->dtype;
    Value is_zero = build_binary(g, OP_eq, factor, zero(g, t));
    Value divisor = build_select(g, is_zero, build_scalar_f(g, t, 1), factor);
    Value mine = build_cast(g, is_zero, t);
    Value only = build_binary(g, OP_eq, zeros, mine); /* no other factor is 0 */
    return build_select(g, only, build_binary(g, OP_div, product, divisor), zero(g, t));
}

static Pair of_mul(const Index *x, Value dy) {
    Graph *g = x->g;
    const DType t = x->at.dtype;
    Value factor[2], is_zero[2];
    for (int i = 0; i < 2; i++) {
        Value z = build_binary(g, OP_eq, x->n.in[i], zero(g, t));
        factor[i] = build_select(g, z, build_scalar_f(g, t, 1), x->n.in[i]);
        is_zero[i] = build_cast(g, z, t);
    }
    Value product = scatter_again(x, factor[0], factor[1], SCATTER_mul);
    Value zeros = scatter_again(x, is_zero[0], is_zero[1], SCATTER_add);
    Value others = other_factors(g, x->n.in[1], read_cells(x, product), read_cells(x, zeros));
    return (Pair){
        build_binary(g, OP_mul, dy, other_factors(g, x->n.in[0], product, zeros)),
        where_inside(x, build_binary(g, OP_mul, read_cells(x, dy), others)),
    };
}

void grad_of_scatter(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    Index x = {.g = g, .n = *graph_node(g, v)};
    x.data = x.n.type;
    x.at = *graph_type(g, x.n.in[1]);
    x.idx = x.n.in + 2;
    x.nidx = x.n.nin - 2;
    Pair d = {0, 0};
    switch ((ScatterMode)x.n.attr.index.mode) {
    case SCATTER_set: d = of_set(&x, dy); break;
    case SCATTER_add: d = of_add(&x, dy); break;
    case SCATTER_mul: d = of_mul(&x, dy); break;
    case SCATTER_min:
    case SCATTER_max: d = of_extreme(&x, v, dy); break;
    }
    grad_add(w, x.n.in[0], d.data);
    grad_add(w, x.n.in[1], d.updates);
}
