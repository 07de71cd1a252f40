/* Numbers that fix shapes, as lowerings ask for them (frontend/import/onnx_op.h): constants,
 * expressions over sizes, elements that are fed, and what only a kernel can find out but something
 * bounds. */
#include "frontend/import/axes.h"
#include "frontend/import/formula.h"
#include "frontend/import/import_impl.h"
#include <string.h>

enum {
    MAX_PICK = 24,
    MAX_PICKED = 256
}; /* nodes that one element is followed through: in a row, and
      in all */

/* A static rank-1 or rank-0 integer tensor without elements counts as known. */
static bool is_empty(const Lower *l, const Type *t) {
    int64_t n = -1;
    return t->rank == 1 && expr_is_const(l->im->exprs, t->dim[0], &n) && n == 0;
}

/* clamp(v, 0, most) as a size: how many of 0, 1 ... most - 1 lie below v. */
static Expr counted(Graph *g, Value v, Expr most) {
    const Value at = build_compact(g, v_lt(g, v_iota(g, DT_i64, most), v));
    return at ? v_dim(g, at, 0) : v_int(g, 0);
}

/* Is some value outside of what is claimed of it? */
static Value claims_fail(Lower *l) {
    Graph *g = l->g;
    Value bad = 0;
    for (uint32_t i = 0; i < l->im->claims.n; i++) {
        const ValueClaim *c = &l->im->claims.v[i];
        const Value lo = v_const(g, c->v, (double)c->lo), hi = v_const(g, c->v, (double)c->hi);
        Value out = v_flat(g, v_or(g, v_lt(g, c->v, lo), v_lt(g, hi, c->v)));
        out = build_reduce(g, OP_reduce_max, out, 1, false);
        bad = bad ? v_or(g, bad, out) : out;
    }
    return bad;
}

/* x, which lies between the bounds. If that rests on a claim that fails in a run, the count goes
 * one beyond them. */
static Expr counted_within(Lower *l, Value x, ValueBounds b, bool claimed) {
    Graph *g = l->g;
    ExprPool *p = g->exprs;
    Expr most = expr_sub(p, b.hi, b.lo);
    Value from = v_sub(g, x, build_expr(g, DT_i64, b.lo));
    if (!claimed) return expr_add(p, b.lo, counted(g, from, most));
    most = expr_addi(p, most, 1);
    from = build_select(g, claims_fail(l), build_expr(g, DT_i64, most), from);
    const Expr count = counted(g, from, most);
    lower_assume(l, expr_lt(p, count, most), v_int(g, 1));
    return expr_add(p, b.lo, count);
}

/* Element k of a list, made of elements k of what the list is made of: so those that are known
 * fold, whatever becomes of their neighbours. */
static Value pick(Graph *g, Value v, int64_t k, int depth, int *left) {
    const Node *n = graph_node(g, v);
    int64_t size;
    if (n->type.rank == 0) return v;
    if (depth == 0 || --*left < 0 || n->type.rank > 1) return v_at(g, v_flat(g, v), 0, v_int(g, k));
    if (op_info[n->op].cls == OPC_MAP) {
        const Node map = *n;
        Value in[3];
        for (uint32_t i = 0; i < map.nin; i++) in[i] = pick(g, map.in[i], k, depth - 1, left);
        return build_like(g, &map, in, map.nin);
    }
    if (n->op == OP_reshape) return pick(g, n->in[0], k, depth - 1, left);
    if (n->op == OP_expand && v_dim_const(g, n->in[0], 0, &size) && size == 1)
        return pick(g, n->in[0], 0, depth - 1, left);
    for (uint32_t i = 0; n->op == OP_concat && i < n->nin; i++) {
        if (!v_dim_const(g, n->in[i], 0, &size)) break;
        if (k < size) return pick(g, n->in[i], k, depth - 1, left);
        k -= size;
    }
    return v_at(g, v, 0, v_int(g, k));
}

/* One element as an expression, or what a kernel makes of it within its bounds. */
static Expr element(Lower *l, Value x, Expr most, bool wrap) {
    Graph *g = l->g;
    const bool main = !l->scope->parent && !l->scope->frame;
    uint32_t n, nclaims = main ? (uint32_t)l->im->claims.n : 0;
    const Expr *known = build_elems(g, x, true, &n);
    if (known) return known[0];
    if (most) return counted(g, wrap ? v_wrap(g, x, most) : x, most);
    const ValueBounds b = value_bounds(g, x, l->im->claims.v, nclaims);
    return b.lo && b.hi ? counted_within(l, x, b, nclaims != 0) : 0;
}

/* A list of positions whose length is not known is taken to have as many as the reader needs: a
 * place in a loop cuts one out of a table, and only a run can tell that it lies within. */
static bool length_of_list(Lower *l, Value v, uint32_t positions, int64_t *n) {
    const Type *t = graph_type(l->g, v);
    *n = 1;
    if (t->rank == 0) return true;
    if (!expr_is_const(l->im->exprs, t->dim[0], n)) {
        if (positions) lower_assume(l, t->dim[0], v_int(l->g, positions));
        *n = positions;
    }
    return *n > 0 && *n <= GRAPH_MAX_RANK * 2;
}

static const Expr *elements(Lower *l, uint32_t i, const Expr *most, uint32_t nmost,
                            uint32_t positions, uint32_t *n) {
    Graph *g = l->g;
    int64_t length;
    if (!length_of_list(l, lower_in(l, i), positions, &length)) return NULL;
    *n = (uint32_t)length;
    Expr *e = ARENA_ARRAY(l->im->arena, Expr, *n);
    const Value list = v_flat(g, build_cast(g, lower_in(l, i), DT_i64));
    for (uint32_t k = 0; k < *n; k++) {
        int left = MAX_PICKED;
        const Value x = pick(g, list, k, MAX_PICK, &left);
        if (!(e[k] = element(l, x, k < nmost ? most[k] : 0, positions != 0))) return NULL;
    }
    return e;
}

/* Values of the main graph can be given bounds; those in bodies have no name outside. */
static const char *hint_bound(const Lower *l, uint32_t i) {
    static const char *const known = "make it a constant, or compute it from shapes only";
    if (l->scope->parent || l->scope->frame) return known;
    return arena_printf(l->im->arena,
                        "%s; or bound it, or what it comes from, with --dim %s=LO..HI", known,
                        l->node->input[i]);
}

const Expr *lower_bounded_in(Lower *l, uint32_t i, const Expr *most, uint32_t nmost,
                             uint32_t positions, uint32_t *n) {
    static const Expr none[1];
    *n = 0;
    const Value v = lower_in(l, i);
    if (!v || !lower_is(l, i, TYPES_INT)) return NULL;
    if (graph_type(l->g, v)->rank > 1) {
        lower_error(l, D_SHAPE, "input %u must be a list of integers, and has rank %d", i,
                    graph_type(l->g, v)->rank);
        return NULL;
    }
    if (is_empty(l, graph_type(l->g, v))) return none;
    const Expr *e = build_elems(l->g, v, true, n);
    const bool large = !e && build_elems_large(l->g, v);
    if (!e && !large) e = elements(l, i, most, nmost, positions, n);
    if (large)
        lower_error(l, D_LIMIT, "input %u is a formula of sizes with more than %d parts", i,
                    EXPR_MAX_SIZE);
    else if (!e)
        lower_unsupported(l, hint_bound(l, i), "input %u must be known when the inputs' shapes are",
                          i);
    return e;
}

const Expr *lower_shape_in(Lower *l, uint32_t i, uint32_t *n) {
    return lower_bounded_in(l, i, NULL, 0, 0, n);
}

bool lower_number_in(Lower *l, uint32_t i, Expr *out) {
    uint32_t n;
    const Expr *e = lower_shape_in(l, i, &n);
    *out = 0;
    if (!e) return false;
    if (n != 1) return lower_error(l, D_SHAPE, "input %u must be one number, and has %u", i, n);
    *out = e[0];
    return true;
}

Expr lower_number_of(Lower *l, Value v) {
    int left = MAX_PICKED;
    int64_t n = 1;
    for (int i = 0; i < v_rank(l->g, v); i++)
        if (!v_dim_const(l->g, v, i, &n) || n != 1) return 0;
    v = pick(l->g, v_flat(l->g, build_cast(l->g, v, DT_i64)), 0, MAX_PICK, &left);
    return element(l, v, 0, false);
}

bool lower_const_ints(Lower *l, uint32_t in, const char *attr, int64_t *out, uint32_t max,
                      uint32_t *n) {
    *n = 0;
    const int64_t *a = attr ? lower_ints(l, attr, n) : NULL;
    if (*n > max)
        return lower_error(l, D_ATTRIBUTE, "'%s' has %u values, at most %u fit", attr, *n, max);
    if (a) {
        memcpy(out, a, *n * sizeof *a);
        return true;
    }
    const Value v = lower_in(l, in);
    if (!v || is_empty(l, graph_type(l->g, v))) return true;
    const Expr *e = build_elems(l->g, v, false, n);
    if (e && *n > max)
        return lower_error(l, D_SHAPE, "input %u has %u values, at most %u fit", in, *n, max);
    for (uint32_t k = 0; e && k < *n; k++)
        if (!expr_is_const(l->im->exprs, e[k], &out[k])) e = NULL;
    if (e) return true;
    return lower_unsupported(l, "make it an initializer or a Constant node",
                             "input %u must be a constant", in);
}
