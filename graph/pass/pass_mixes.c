/* mixes: a product with a constant matrix of few numbers, across an axis that is not the innermost
 * one in memory, as attention heads are mixed. As a contraction it would have its operand stored
 * anew with those few numbers side by side, and what is made of its result is turned back. Its
 * columns are sums of a few slices instead,
 *
 *   dot a [M, K] x b [K, N]  =  concat over n of sum over k of a[:, k] b[k, n]
 *
 * and what maps, views and reductions of other axes make of them is made column by column, up to
 * the next such product, where no slice is left: one kernel takes all of it.
 *
 * For targets that ask (Machine.mixes). Needs: to be behind raise and precision. Keeps: meaning;
 * sums are not rounded otherwise. Breaks: nothing; leaves dead nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

enum {
    MOST = 8, /* rows and columns of such a matrix: a kernel has a fold of each at once */
    LEAST_ROWS = 1 << 14 /* that are worth it */
};

typedef struct Facts {
    bool *constant;  /* of the graph that is rewritten */
    MapU64 *columns; /* value of the new graph that is a concat of columns -> its axis */
} Facts;

static Value keep(Rewrite *r, const Value *column, uint32_t n, int axis) {
    Facts *f = r->facts;
    const Value v = build_concat(r->to, column, n, axis);
    const Node *x = graph_node(r->to, v);
    if (x->op == OP_concat && x->nin == n) map_put(f->columns, v, (uint32_t)axis);
    return v;
}

/* The axis of x whose positions are columns of their own; -1: it has none. */
static int columns_of(const Rewrite *r, Value x) {
    const Facts *f = r->facts;
    uint32_t axis;
    return map_get(f->columns, x, &axis) ? (int)axis : -1;
}

static Value column_of(Rewrite *r, Value x, int axis, uint32_t k) {
    ExprPool *p = r->to->exprs;
    if (columns_of(r, x) == axis) return graph_node(r->to, x)->in[k];
    return build_slice_axis(r->to, x, axis, expr_const(p, k), expr_const(p, 1), 1);
}

static Expr product(ExprPool *p, const Expr *dim, int from, int to) {
    Expr e = expr_const(p, 1);
    for (int i = from; i < to; i++) e = expr_mul(p, e, dim[i]);
    return e;
}

/* The axis of `to` that axis `at` of `from` is, where a reshape leaves it as it is; or -1. */
static int axis_behind(ExprPool *p, const Type *from, int at, const Type *to) {
    const Expr outer = product(p, from->dim, 0, at);
    for (int i = 0; i < to->rank; i++)
        if (to->dim[i] == from->dim[at] && product(p, to->dim, 0, i) == outer) return i;
    return -1;
}

/* --- The product -------------------------------------------------------------------------- */

/* Whether the last axis of x is one of its innermost neighbours where x lies in memory. */
static bool is_innermost(const Rewrite *r, Value x) {
    const Graph *g = r->to;
    int axis = graph_type(g, x)->rank - 1;
    for (;;) {
        const Node *n = graph_node(g, x);
        if (columns_of(r, x) == axis) return false;
        if (n->op == OP_permute)
            axis = n->attr.perm.axis[axis];
        else if (n->op == OP_reshape)
            axis = axis_behind(g->exprs, &n->type, axis, graph_type(g, n->in[0]));
        else if (op_info[n->op].cls != OPC_MAP || n->nin != 1)
            return axis == n->type.rank - 1;
        if (axis < 0) return true;
        x = n->in[0];
    }
}

/* A convolution whose window is one element is a product, too. */
static bool is_product(const Graph *g, const Node *n) {
    if (n->op == OP_dot) return n->type.rank == 2;
    if (n->op != OP_conv || n->attr.conv.groups != 1) return false;
    for (int i = 0; i < n->attr.conv.n; i++) {
        if (n->attr.conv.stride[i] != 1 || n->attr.conv.lo[i] || n->attr.conv.hi[i]) return false;
        if (!expr_is_value(g->exprs, graph_type(g, n->in[1])->dim[i], 1)) return false;
    }
    return true;
}

static bool is_few(const Graph *g, Expr e, int64_t *n) {
    return expr_is_const(g->exprs, e, n) && *n > 1 && *n <= MOST;
}

static bool is_mix(const Rewrite *r, Value v, int64_t *k, int64_t *n) {
    const Graph *g = r->from;
    const Node *x = graph_node(g, v);
    const Facts *f = r->facts;
    if (!is_product(g, x) || !dtype_is_float(x->type.dtype) || !f->constant[x->in[1]]) return false;
    const Type *b = graph_type(g, x->in[1]);
    if (!is_few(g, b->dim[b->rank - 2], k) || !is_few(g, b->dim[b->rank - 1], n)) return false;
    const Expr rows = product(g->exprs, x->type.dim, 0, x->type.rank - 1);
    return expr_hint(g->exprs, rows) >= LEAST_ROWS && !is_innermost(r, rewrite_in(r, v, 0));
}

/* b[k, n] everywhere in a tensor of type t. */
static Value number(Graph *g, Value b, int64_t k, int64_t n, const Type *t) {
    ExprPool *p = g->exprs;
    const Expr one = expr_const(p, 1);
    Value x = build_slice_axis(g, b, 0, expr_const(p, k), one, 1);
    x = build_slice_axis(g, x, 1, expr_const(p, n), one, 1);
    return build_full(g, build_cast(g, build_reshape(g, x, 0, NULL), t->dtype), t->rank, t->dim);
}

static Value mix(Rewrite *r, Value v, int64_t nk, int64_t nn) {
    Graph *g = r->to;
    const Node *x = graph_node(r->from, v);
    const Value a = rewrite_in(r, v, 0);
    const Expr dim[] = {expr_const(g->exprs, nk), expr_const(g->exprs, nn)};
    const Value b = build_reshape(g, rewrite_in(r, v, 1), 2, dim);
    const int axis = x->type.rank - 1;
    Value row[MOST], column[MOST];
    for (int64_t k = 0; k < nk; k++)
        row[k] = build_cast(g, column_of(r, a, axis, (uint32_t)k), x->type.dtype);
    for (int64_t n = 0; n < nn; n++) {
        column[n] = 0;
        for (int64_t k = 0; k < nk; k++) {
            const Type t = *graph_type(g, row[k]);
            const Value term = build_binary(g, OP_mul, row[k], number(g, b, k, n, &t));
            column[n] = k ? build_binary(g, OP_add, column[n], term) : term;
        }
    }
    return keep(r, column, (uint32_t)nn, axis);
}

/* --- What is made of its columns ---------------------------------------------------------- */

/* Where the columns of n's operand are in n, and in *from that operand's; -1: nowhere. */
static int axis_of(const Rewrite *r, Value v, int *from) {
    const Node *n = graph_node(r->from, v);
    const OpClass c = op_info[n->op].cls;
    *from = -1;
    if (c != OPC_MAP && c != OPC_REDUCE && c != OPC_VIEW) return -1;
    for (uint32_t i = 0; i < n->nin && *from < 0; i++) *from = columns_of(r, rewrite_in(r, v, i));
    if (*from < 0 || c == OPC_MAP) return *from;
    const Type *in = graph_type(r->from, n->in[0]);
    int axis = 0;
    switch (n->op) {
    case OP_reshape: return axis_behind(r->from->exprs, in, *from, &n->type);
    case OP_expand: return in->rank == n->type.rank ? *from : -1;
    case OP_permute:
        while (n->attr.perm.axis[axis] != *from) axis++;
        return axis;
    case OP_reduce_sum:
    case OP_reduce_max:
    case OP_reduce_min:
        if (n->attr.reduce.axes >> *from & 1) return -1;
        for (int i = 0; i < *from; i++) axis += !(n->attr.reduce.axes >> i & 1);
        return axis;
    default: return -1;
    }
}

/* Node v of one column. */
static Value made_of(Rewrite *r, Value v, int from, int axis, uint32_t k) {
    const Node *n = graph_node(r->from, v);
    Value in[3];
    Type t = n->type;
    for (uint32_t i = 0; i < n->nin; i++) in[i] = column_of(r, rewrite_in(r, v, i), from, k);
    t.dim[axis] = expr_const(r->to->exprs, 1);
    if (n->op == OP_reshape) return build_reshape(r->to, in[0], t.rank, t.dim);
    if (n->op == OP_expand) return build_expand(r->to, in[0], t.rank, t.dim);
    return build_like(r->to, n, in, n->nin);
}

static Value mixes(Rewrite *r, Value v) {
    int64_t k, n;
    int from;
    if (is_mix(r, v, &k, &n)) return mix(r, v, k, n);
    const int axis = axis_of(r, v, &from);
    if (axis < 0 || !expr_is_const(r->to->exprs, graph_node(r->from, v)->type.dim[axis], &n))
        return 0;
    Value column[MOST];
    for (int64_t i = 0; i < n; i++) column[i] = made_of(r, v, from, axis, (uint32_t)i);
    return keep(r, column, (uint32_t)n, axis);
}

static void *make_facts(const Graph *g, void *ctx) {
    (void)ctx;
    Facts *f = ARENA_NEW(g->arena, Facts);
    f->constant = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    f->columns = map_create(g->arena);
    graph_mark_constant(g, f->constant);
    return f;
}

Graph *pass_mixes(Graph *g) {
    return rewrite_graph(g, mixes, make_facts, NULL);
}
