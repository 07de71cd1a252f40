/* cut_sums: a long sum with few results becomes sums of parts, and their sum. Without it one thread
 * adds up all of a bias's gradient, or waits for operands that no cache holds; with it the parts
 * are a batch like any other. Where it is cut depends on sizes only, so that results are the same
 * bits whatever runs the parts.
 *
 *   dot [M, K] x [K, N]      reduce_sum of dot [c, M, K/c] x [c, K/c, N]
 *   reduce_sum over rows     reduce_sum of reduce_sum over K/c rows each
 *
 * For targets whose kernels do not cut sums themselves (Machine.cuts_sums). Contractions with
 * constants are left alone: those are stored in panels. So is what looks like attention, which
 * fusion looks for; and sums along the inside of rows, which kernels keep whole.
 *
 * Needs: to be the last pass. Keeps: meaning; sums in another order. Breaks: nothing; leaves dead
 * nodes. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

#define LOOK_DEPTH 12
#define PART       2048      /* of a contraction's sum, where caches are what counts */
#define PART_LEAST 512       /* where parallel work is */
#define ENOUGH     16        /* parallel parts */
#define TILE_M     64        /* a measure of parallel work, of sizes alone: */
#define TILE_N     48        /* any target's tiles of a result are about as large */
#define SMALL_SUM  (1 << 17) /* elements: below that a sum stays whole */
#define SUM_PART   (1 << 16)
#define SUM_PARTS  64
#define SUM_LEAST  1024 /* elements for each result */

/* Size n in parts: their number, their size, and the zeros behind n. */
typedef struct Cut {
    int64_t parts, size, rest;
} Cut;

/* About `parts`, a divisor of n where there is one nearby; one part where there is too little, or
 * nothing at all, to cut. */
static Cut cut_into(int64_t n, int64_t parts) {
    if (parts < 2 || n < 2 * parts) return (Cut){1, n, 0};
    for (int64_t p = parts; p <= 2 * parts && p <= n; p++)
        if (n % p == 0) return (Cut){p, n / p, 0};
    int64_t size = (n + parts - 1) / parts;
    parts = (n + size - 1) / size;
    return (Cut){parts, size, parts * size - n};
}

/* x with axis `at` as two: parts, elements of each. */
static Value split(Graph *g, Value x, int at, Cut cut) {
    ExprPool *p = g->exprs;
    Type t = *graph_type(g, x);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK], dim[GRAPH_MAX_RANK];
    int64_t interior[GRAPH_MAX_RANK] = {0};
    for (int i = 0; i < t.rank; i++) {
        lo[i] = hi[i] = expr_const(p, 0);
        dim[i < at ? i : i + 1] = t.dim[i];
    }
    hi[at] = expr_const(p, cut.rest);
    dim[at] = expr_const(p, cut.parts);
    dim[at + 1] = expr_const(p, cut.size);
    if (cut.rest) {
        Value zero = build_scalar_i(g, DT_i64, 0);
        x = build_pad(g, x, build_cast(g, zero, t.dtype), lo, hi, interior);
    }
    return build_reshape(g, x, (uint8_t)(t.rank + 1), dim);
}

typedef struct CutFacts {
    bool *constant, *spread; /* by value of the old graph */
    uint32_t *seen;          /* by which expand, last */
} CutFacts;

static bool same_size(const Graph *g, Value a, Value b) {
    return type_numel(g->exprs, graph_type(g, a)) == type_numel(g->exprs, graph_type(g, b));
}

/* Sums that v is computed from, of as many elements as `wide` repeats v to. */
static void mark_spread(const Graph *g, CutFacts *f, Value v, Value wide, int depth) {
    const Node *n = graph_node(g, v);
    if (!depth || f->seen[v] == wide) return;
    f->seen[v] = wide;
    if (n->op == OP_reduce_sum && same_size(g, n->in[0], wide)) f->spread[v] = true;
    if (op_info[n->op].cls != OPC_MAP && op_info[n->op].cls != OPC_VIEW) return;
    for (uint32_t i = 0; i < n->nin; i++) mark_spread(g, f, n->in[i], wide, depth - 1);
}

/* --- Contractions ------------------------------------------------------------------------- */

static bool weighs(const Graph *g, Value v, int depth) {
    const Node *n = graph_node(g, v);
    OpClass c = op_info[n->op].cls;
    if (n->op == OP_exp) return true;
    if ((c != OPC_MAP && c != OPC_VIEW) || !depth) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (weighs(g, n->in[i], depth - 1)) return true;
    return false;
}

bool pass_weighs(const Graph *g, Value v) {
    return weighs(g, v, LOOK_DEPTH);
}

static int64_t parts_of_dot(const Rewrite *r, const Type *a, const Type *b, int64_t k) {
    ExprPool *p = r->to->exprs;
    int64_t tiles = (expr_hint(p, a->dim[a->rank - 2]) + TILE_M - 1) / TILE_M;
    tiles *= (expr_hint(p, b->dim[b->rank - 1]) + TILE_N - 1) / TILE_N;
    for (int i = 0; i + 2 < a->rank; i++) tiles *= expr_hint(p, a->dim[i]);
    int64_t parts = k >= 2 * PART ? k / PART : 1;
    int64_t wanted = tiles < ENOUGH ? ENOUGH / (tiles < 1 ? 1 : tiles) : 1;
    if (wanted > k / PART_LEAST) wanted = k / PART_LEAST;
    return parts > wanted ? parts : wanted;
}

/* Axes at - 1 and at change places. */
static Value forward(Graph *g, Value x, int at) {
    uint8_t perm[GRAPH_MAX_RANK];
    for (int i = 0; i < graph_type(g, x)->rank; i++) perm[i] = (uint8_t)i;
    perm[at] = (uint8_t)(at - 1);
    perm[at - 1] = (uint8_t)at;
    return build_permute(g, x, perm);
}

static Value cut_dot(Rewrite *r, Value v) {
    const bool *constant = ((const CutFacts *)r->facts)->constant;
    const Node *n = graph_node(r->from, v);
    Graph *g = r->to;
    Value a = rewrite_in(r, v, 0), b = rewrite_in(r, v, 1);
    const Type ta = *graph_type(g, a), tb = *graph_type(g, b);
    int64_t k;
    if (constant[n->in[0]] || constant[n->in[1]] || !dtype_is_float(ta.dtype)) return 0;
    if (!expr_is_const(g->exprs, ta.dim[ta.rank - 1], &k) || ta.rank == GRAPH_MAX_RANK) return 0;
    if (pass_weighs(g, a)) return 0;
    Cut cut = cut_into(k, parts_of_dot(r, &ta, &tb, k));
    if (cut.parts < 2) return 0;
    a = forward(g, split(g, a, ta.rank - 1, cut), ta.rank - 1);
    b = split(g, b, tb.rank - 2, cut);
    return build_reduce(g, OP_reduce_sum, build_dot(g, a, b, n->type.dtype), 1u << (ta.rank - 2),
                        false);
}

/* --- Sums --------------------------------------------------------------------------------- */

/* The longest axis that is summed over; elements that one result sums, 0 if the run knows. */
static int64_t summed(const Graph *g, const Type *t, uint32_t axes, int *longest) {
    int64_t all = 1, most = 0, size;
    for (int i = 0; i < t->rank; i++) {
        if (!(axes >> i & 1)) continue;
        if (!expr_is_const(g->exprs, t->dim[i], &size)) return 0;
        all *= size;
        if (size > most) most = size, *longest = i;
    }
    return all;
}

static Value cut_sum(Rewrite *r, Value v) {
    const CutFacts *f = r->facts;
    const Node *n = graph_node(r->from, v);
    Graph *g = r->to;
    const uint32_t axes = n->attr.reduce.axes;
    Value x = rewrite_in(r, v, 0);
    const Type t = *graph_type(g, x);
    int64_t size, results = 1;
    int at = 0;
    if (!(axes & 1) || f->constant[v] || t.rank == GRAPH_MAX_RANK) return 0;
    int64_t each = summed(g, &t, axes, &at);
    for (int i = 0; i < n->type.rank; i++) results *= expr_hint(g->exprs, n->type.dim[i]);
    if (f->spread[v] && results > 1) return 0;
    if (each < SUM_LEAST || results < 1 || each < SMALL_SUM / results) return 0;
    if (each / SUM_PARTS * results > INT64_MAX / SUM_PARTS) return 0;
    int64_t parts = each * results / SUM_PART;
    if (parts > SUM_PARTS) parts = SUM_PARTS;
    if (!expr_is_const(g->exprs, t.dim[at], &size) || size < 2 * parts) return 0;
    Cut cut = cut_into(size, parts);
    uint32_t low = (1u << at) - 1, inner = (axes & low) | (axes & ~low) << 1;
    uint32_t place = 0; /* of the axis of parts among those that are kept */
    for (int i = 0; i < at; i++) place += !(axes >> i & 1);
    Value y = build_reduce(g, OP_reduce_sum, split(g, x, at, cut), inner, false);
    return build_reduce(g, OP_reduce_sum, y, 1u << place, false);
}

static Value cut_sums(Rewrite *r, Value v) {
    switch (graph_node(r->from, v)->op) {
    case OP_dot: return cut_dot(r, v);
    case OP_reduce_sum: return cut_sum(r, v);
    default: return 0;
    }
}

static void *make_facts(const Graph *g, void *ctx) {
    (void)ctx;
    CutFacts *f = ARENA_NEW(g->arena, CutFacts);
    f->constant = ARENA_ARRAY(g->own, bool, g->nodes.n);
    f->spread = ARENA_ARRAY(g->own, bool, g->nodes.n);
    f->seen = ARENA_ARRAY(g->own, uint32_t, g->nodes.n);
    graph_mark_constant(g, f->constant);
    for (Value v = 1; v < g->nodes.n; v++)
        if (graph_node(g, v)->op == OP_expand)
            mark_spread(g, f, graph_node(g, v)->in[0], v, LOOK_DEPTH);
    return f;
}

Graph *pass_cut_sums(Graph *g) {
    return rewrite_graph(g, cut_sums, make_facts, NULL);
}

/* join_sums: contractions whose results are added up are added before they are rounded, so that one
 * kernel can sum up all of their products (an adapter beside its layer, the gradient of what
 * several layers read).
 *
 *   add(cast(dot), cast(dot))    cast(add(dot, dot)), in f32, whatever was rounded in between
 *   reshape(cast(x)) cast        where casts go there and back: reshape(x)
 *
 * For targets whose kernels take several pairs of operands (Machine.terms).
 *
 * Needs: to come after precision, which makes the casts. Keeps: meaning; sums are rounded less
 * often. Breaks: nothing; leaves dead nodes for dce. */

#define MOST_JOINED 6 /* contractions in one sum */

/* Contractions in the new graph whose results are summed up, the latest first. */
typedef struct Sum {
    uint32_t n;
    Value dot[MOST_JOINED];
} Sum;

/* By value of the old graph: the sum that it is rounded from; none: n = 0. */
typedef struct Sums {
    Sum *of;
} Sums;

static bool is_float_cast(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    return n->op == OP_cast && dtype_is_float(n->type.dtype) &&
           dtype_is_float(graph_type(g, n->in[0])->dtype);
}

/* The contractions that v is the sum of before anything was rounded; none where someone else reads
 * it, too. */
static Sum sum_of(const Rewrite *r, Value v) {
    const Sums *s = r->facts;
    while (r->uses[v] == 1 && is_float_cast(r->from, v)) v = graph_node(r->from, v)->in[0];
    const Node *x = graph_node(r->from, v);
    if (r->uses[v] != 1) return (Sum){0};
    if (x->op == OP_dot && x->type.dtype == DT_f32 && x->type.rank == 2)
        return (Sum){1, {r->map[v]}};
    return s->of[v];
}

static Sum both(const Sum *a, const Sum *b) {
    Sum all = {0};
    for (uint32_t i = 0, k = 0; i < a->n || k < b->n;)
        all.dot[all.n++] =
            k == b->n || (i < a->n && a->dot[i] > b->dot[k]) ? a->dot[i++] : b->dot[k++];
    return all;
}

/* Beginning with the latest: in its epilogue the others are added, one after the other. */
static Value join_sum(Rewrite *r, Value v) {
    Sums *s = r->facts;
    const Node *n = graph_node(r->from, v);
    if (n->op != OP_add || !dtype_is_float(n->type.dtype) || n->in[0] == n->in[1]) return 0;
    const Sum a = sum_of(r, n->in[0]), b = sum_of(r, n->in[1]);
    if (!a.n || !b.n || a.n + b.n > MOST_JOINED) return 0;
    const Sum all = both(&a, &b);
    s->of[v] = all;
    Value sum = all.dot[0];
    for (uint32_t i = 1; i < all.n; i++) sum = build_binary(r->to, OP_add, sum, all.dot[i]);
    return build_cast(r->to, sum, n->type.dtype);
}

/* What is cast to another type between, and back, with as many digits. */
static Value there_and_back(Rewrite *r, Value v) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    if (!is_float_cast(r->from, v)) return 0;
    const Node view = *graph_node(g, rewrite_in(r, v, 0));
    if (view.op != OP_reshape) return 0;
    const Node wide = *graph_node(g, view.in[0]);
    if (wide.op != OP_cast || wide.type.dtype != DT_f32) return 0;
    if (graph_type(g, wide.in[0])->dtype != n->type.dtype || !dtype_is_half(n->type.dtype))
        return 0;
    return build_reshape(g, wide.in[0], view.type.rank, view.type.dim);
}

static Value join_rule(Rewrite *r, Value v) {
    return graph_node(r->from, v)->op == OP_add ? join_sum(r, v) : there_and_back(r, v);
}

static void *join_facts(const Graph *g, void *ctx) {
    Sums *s = ARENA_NEW(g->arena, Sums);
    *s = (Sums){ARENA_ARRAY(g->own, Sum, g->nodes.n)};
    return (void)ctx, s;
}

Graph *pass_join_sums(Graph *g) {
    return rewrite_graph(g, join_rule, join_facts, NULL);
}
