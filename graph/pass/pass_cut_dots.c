/* cut_dots: a contraction that sums up many products for few results has a block or two on a GPU,
 * whatever the length of its sums. It becomes as many as fill the machine, each of a part of the
 * sum, and their sum; with one row or column, products element by element, which kernels of sums
 * take in parts.
 *
 *   dot [M, K] x [K, N]      reduce_sum of dot [c, M, K/c] x [c, K/c, N], and the rest's dot
 *   dot [1, K] x [K, N]      reduce_sum of mul [K, 1] x [K, N]; the same of one column
 *
 * Where it is cut depends on sizes only. What looks like attention, which fusion looks for, is left
 * alone, and so are constants, of which fusion prepares forms.
 *
 * Needs: to come before digits. Keeps: meaning; sums in another order. Breaks: nothing; leaves dead
 * nodes. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

enum {
    LONG = 1 << 14,       /* a sum that is worth it, */
    PART = 1 << 12,       /* and its parts, at least, */
    LONG_ALONE = 1 << 11, /* or where a block sums up a tile alone, as of f32, */
    PART_ALONE = 1 << 7,
    WHOLE = 64,        /* that parts are multiples of, */
    EVEN = 4,          /* or these of such, if nothing is left behind them, */
    REST = 1 << 10,    /* which takes kernels of its own: so many elements' time */
    TILE = 64,         /* of a result: a measure of parallel work, of sizes alone */
    FEW = 16,          /* tiles, which do not fill a machine, */
    FEW_HALF = 4,      /* or where blocks share the sums of a tile, as of 16 bits, */
    ENOUGH = 256,      /* and those that do */
    VECTOR = 8,        /* elements of 16 bits that such rows are whole numbers of */
    MOST_COLUMNS = 64, /* beside one row */
};

/* x with axes `from` and from + 1 in each other's place. */
static Value turn(Graph *g, Value x, int from) {
    uint8_t perm[GRAPH_MAX_RANK];
    for (int i = 0; i < graph_type(g, x)->rank; i++) perm[i] = (uint8_t)i;
    perm[from] = (uint8_t)(from + 1);
    perm[from + 1] = (uint8_t)from;
    return build_permute(g, x, perm);
}

/* The first parts * size along axis `at`, as an axis of parts and one of their elements. */
static Value cut(Graph *g, Value x, int at, int64_t parts, int64_t size) {
    ExprPool *p = g->exprs;
    const Expr zero = expr_const(p, 0), all = expr_const(p, parts * size);
    if (!expr_is_value(p, graph_type(g, x)->dim[at], parts * size))
        x = build_slice_axis(g, x, at, zero, all, 1);
    const Type t = *graph_type(g, x);
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < t.rank; i++) dim[i < at ? i : i + 1] = t.dim[i];
    dim[at] = expr_const(p, parts);
    dim[at + 1] = expr_const(p, size);
    return build_reshape(g, x, (uint8_t)(t.rank + 1), dim);
}

/* What lies behind the first `from` of k elements along the axis. */
static Value rest(Graph *g, Value x, int at, int64_t from, int64_t k) {
    ExprPool *p = g->exprs;
    return build_slice_axis(g, x, at, expr_const(p, from), expr_const(p, k - from), 1);
}

/* What k is cut into. */
typedef struct Parts {
    int64_t n, size;
} Parts;

/* Half of the most parts at least: a block takes one in the time of its size, and then what is left
 * behind them, alone, in twice that. */
static Parts choose_parts(int64_t k, int64_t most, bool alone) {
    Parts best = {0};
    int64_t least = INT64_MAX;
    for (int64_t n = most; n >= 2 && n >= most / 2; n--) {
        const bool even = alone && k % (n * EVEN) == 0;
        const int64_t size = even ? k / n : k / n / WHOLE * WHOLE, left = k - n * size;
        const int64_t time = size + 2 * left + (alone && left ? REST : 0);
        if (time < least) best = (Parts){n, size}, least = time;
    }
    return best;
}

static Value in_parts(Graph *g, Value a, Value b, DType to, int64_t k, Parts cuts) {
    const int m = graph_type(g, a)->rank - 2; /* the axis of a's rows, and of b's */
    const int64_t parts = cuts.n, size = cuts.size, from = parts * size;
    Value x = turn(g, cut(g, a, m + 1, parts, size), m), y = cut(g, b, m, parts, size);
    Value sum = build_reduce(g, OP_reduce_sum, build_dot(g, x, y, to), 1u << m, false);
    if (from == k) return sum;
    Value last = build_dot(g, rest(g, a, m + 1, from, k), rest(g, b, m, from, k), to);
    return build_binary(g, OP_add, sum, last);
}

/* Of one row, or of one column. */
static Value by_elements(Graph *g, Value a, Value b, DType to, bool row) {
    const int m = graph_type(g, a)->rank - 2;
    if (row)
        a = turn(g, a, m);
    else
        b = turn(g, b, m);
    Value all = build_binary(g, OP_mul, build_cast(g, a, to), build_cast(g, b, to));
    return build_reduce(g, OP_reduce_sum, all, 1u << (row ? m : m + 1), true);
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static Value cut_dot(Rewrite *r, Value v) {
    const bool *constant = r->facts;
    const Node *n = graph_node(r->from, v);
    Graph *g = r->to;
    if (n->op != OP_dot || constant[n->in[0]] || constant[n->in[1]]) return 0;
    Value a = rewrite_in(r, v, 0), b = rewrite_in(r, v, 1);
    const Type ta = *graph_type(g, a), tb = *graph_type(g, b);
    int64_t k;
    if (!expr_is_const(g->exprs, ta.dim[ta.rank - 1], &k) || k < LONG_ALONE) return 0;
    if (!dtype_is_float(ta.dtype) || dtype_bytes(ta.dtype) < 2 || !dtype_is_float(n->type.dtype))
        return 0;
    if (ta.rank == GRAPH_MAX_RANK || pass_weighs(g, a)) return 0;
    int64_t rows = expr_hint(g->exprs, ta.dim[ta.rank - 2]), batch = 1;
    int64_t columns = expr_hint(g->exprs, tb.dim[tb.rank - 1]);
    for (int i = 0; i + 2 < ta.rank; i++) batch *= expr_hint(g->exprs, ta.dim[i]);
    const int64_t tiles = ceil_div(rows, TILE) * ceil_div(columns, TILE) * batch;
    const bool shared = dtype_is_half(ta.dtype) && rows % VECTOR == 0 && columns % VECTOR == 0;
    if (tiles > (shared ? FEW_HALF : FEW) || tiles < 1 || (shared && k < LONG)) return 0;
    const bool row = expr_is_value(g->exprs, ta.dim[ta.rank - 2], 1);
    const bool column = expr_is_value(g->exprs, tb.dim[tb.rank - 1], 1);
    if (k < LONG && (row || column)) return 0;
    if ((row && columns <= MOST_COLUMNS) || (column && rows <= MOST_COLUMNS))
        return by_elements(g, a, b, (DType)n->type.dtype, row);
    int64_t parts = ENOUGH / tiles, most = k / (shared ? PART : PART_ALONE);
    if (parts > most) parts = most;
    return in_parts(g, a, b, (DType)n->type.dtype, k, choose_parts(k, parts, !shared));
}

static void *find_constants(const Graph *g, void *ctx) {
    (void)ctx;
    bool *constant = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    graph_mark_constant(g, constant);
    return constant;
}

Graph *pass_cut_dots(Graph *g) {
    return rewrite_graph(g, cut_dot, find_constants, NULL);
}
