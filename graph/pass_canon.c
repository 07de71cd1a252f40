/* canon: one spelling for one meaning, so that later passes and fusion look for one thing. Algebra
 * that holds for every operand lives in the builder's folds; here are the rewrites that need to
 * look further than a node's own operands, and those that pick between spellings of equal cost.
 *
 *   pow by small constants       products and square roots
 *   1 / sqrt(x)                  rsqrt(x)
 *   x / c, c a power of two      x * (1/c), exactly
 *   x < 0 with x never negative  false: what is left of ONNX's wrapping of negative indices
 *   gather by plain coordinates  the axis itself; when all are, a view
 *
 * Needs: nothing. Keeps: values to the last bit but for pow and rsqrt (their own rounding).
 * Breaks: nothing; leaves dead nodes for dce. */
#include "graph/pass.h"
#include "graph/rewrite.h"

#include <math.h>
#include <stdlib.h>

#define LOOK_DEPTH 12 /* how far an index is followed through views and maps */

/* The constant that every element of v is; false if v is not such a value. */
static bool uniform(const Graph *g, Value v, double *out) {
    while (graph_node(g, v)->op == OP_expand || graph_node(g, v)->op == OP_reshape ||
           graph_node(g, v)->op == OP_permute)
        v = graph_node(g, v)->in[0];
    return build_const_f64(g, v, out);
}

static Value power(Graph *g, Value x, double p) {
    if (!dtype_is_float(graph_type(g, x)->dtype)) return 0;
    if (p == 2) return build_binary(g, OP_mul, x, x);
    if (p == 3) return build_binary(g, OP_mul, build_binary(g, OP_mul, x, x), x);
    if (p == 1) return x;
    if (p == 0.5) return build_unary(g, OP_sqrt, x);
    if (p == -0.5) return build_unary(g, OP_rsqrt, x);
    if (p == -1) return build_unary(g, OP_recip, x);
    return 0;
}

static Value canon_pow(Rewrite *r, Value v) {
    double p;
    if (!uniform(r->to, rewrite_in(r, v, 1), &p)) return 0;
    return power(r->to, rewrite_in(r, v, 0), p);
}

static Value canon_recip(Rewrite *r, Value v) {
    const Node *x = graph_node(r->to, rewrite_in(r, v, 0));
    return x->op == OP_sqrt ? build_unary(r->to, OP_rsqrt, x->in[0]) : 0;
}

static Value canon_div(Rewrite *r, Value v) {
    Graph *g = r->to;
    Value x = rewrite_in(r, v, 0), y = rewrite_in(r, v, 1);
    double c;
    int exponent;
    if (!dtype_is_float(graph_type(g, x)->dtype)) return 0;
    if (uniform(g, x, &c) && c == 1) return build_unary(g, OP_recip, y);
    if (!uniform(g, y, &c) || !isfinite(c) || c == 0) return 0;
    if (fabs(frexp(c, &exponent)) != 0.5 || abs(exponent) > 14) return 0;
    return build_binary_f(g, OP_mul, x, 1 / c);
}

static bool constant_nonnegative(const Graph *g, const Node *n) {
    const Constant *c = &n->attr.constant;
    uint64_t count = c->bytes / dtype_bytes(n->type.dtype);
    if (count > 65536) return false;
    for (uint64_t i = 0; i < count; i++)
        if (dtype_load_i64(n->type.dtype, c->data, i) < 0) return false;
    (void)g;
    return true;
}

/* True if no element of the integer value v can be negative. */
static bool nonnegative(const Graph *g, Value v, int depth) {
    const Node *n = graph_node(g, v);
    int64_t lo, hi;
    if (depth == 0) return false;
    switch (n->op) {
    case OP_iota: return true;
    case OP_const: return constant_nonnegative(g, n);
    case OP_exprs:
        for (uint32_t i = 0; i < n->attr.exprs.n; i++) {
            expr_range(g->exprs, n->attr.exprs.v[i], &lo, &hi);
            if (lo < 0) return false;
        }
        return true;
    case OP_add:
    case OP_mul:
    case OP_max:
    case OP_div:
        if (n->op == OP_max && nonnegative(g, n->in[0], depth - 1)) return true;
        return nonnegative(g, n->in[1], depth - 1) &&
               (n->op == OP_max || nonnegative(g, n->in[0], depth - 1));
    case OP_select:
        return nonnegative(g, n->in[1], depth - 1) && nonnegative(g, n->in[2], depth - 1);
    case OP_cast:
        return dtype_is_int(graph_type(g, n->in[0])->dtype) && nonnegative(g, n->in[0], depth - 1);
    case OP_reshape:
    case OP_permute:
    case OP_expand:
    case OP_slice:
    case OP_gather: return nonnegative(g, n->in[0], depth - 1);
    case OP_concat:
        for (uint32_t i = 0; i < n->nin; i++)
            if (!nonnegative(g, n->in[i], depth - 1)) return false;
        return true;
    default: return false;
    }
}

static Value canon_lt(Rewrite *r, Value v) {
    Graph *g = r->to;
    double c;
    const Type *t = graph_type(r->from, v);
    if (!dtype_is_int(graph_type(g, rewrite_in(r, v, 0))->dtype)) return 0;
    if (!uniform(g, rewrite_in(r, v, 1), &c) || c > 0) return 0;
    if (!nonnegative(g, rewrite_in(r, v, 0), LOOK_DEPTH)) return 0;
    return build_full(g, build_scalar_i(g, DT_bool, 0), t->rank, t->dim);
}

/* Where axis `axis` of the reshape's result lies in its operand, when the reshape only adds or
 * drops axes of size 1; -1 if it does more. */
static int axis_before_reshape(const Graph *g, const Node *n, int axis) {
    const Type *out = &n->type, *in = graph_type(g, n->in[0]);
    int i = 0, found = -1;
    for (int o = 0; o < out->rank; o++) {
        if (expr_is_value(g->exprs, out->dim[o], 1)) continue;
        while (i < in->rank && expr_is_value(g->exprs, in->dim[i], 1)) i++;
        if (i == in->rank || in->dim[i] != out->dim[o]) return -1;
        if (o == axis) found = i;
        i++;
    }
    for (; i < in->rank; i++)
        if (!expr_is_value(g->exprs, in->dim[i], 1)) return -1;
    return found;
}

/* True if v[o] == o[axis] for every o. */
static bool is_coordinate(const Graph *g, Value v, int axis) {
    for (int depth = 0; depth < LOOK_DEPTH && axis >= 0; depth++) {
        const Node *n = graph_node(g, v);
        const Type *in = n->nin ? graph_type(g, n->in[0]) : NULL;
        switch (n->op) {
        case OP_iota: return n->attr.axis.axis == axis;
        case OP_cast: break;
        case OP_expand:
            if (in->dim[axis] != n->type.dim[axis]) return false;
            break;
        case OP_reshape: axis = axis_before_reshape(g, n, axis); break;
        case OP_permute: axis = n->attr.perm.axis[axis]; break;
        case OP_slice:
            if (!expr_is_value(g->exprs, n->attr.slice.start[axis], 0) ||
                n->attr.slice.step[axis] != 1)
                return false;
            break;
        default: return false;
        }
        v = n->in[0];
    }
    return false;
}

/* Every coordinate is an output axis, each axis at most once, sizes fitting: a slice of a permute,
 * expanded along the axes that name no coordinate. */
static Value gather_as_view(Graph *g, Value data, const int8_t *src, const Type *out) {
    const Type *t = graph_type(g, data);
    uint8_t perm[GRAPH_MAX_RANK], n = 0;
    Expr dim[GRAPH_MAX_RANK];
    for (int o = 0; o < out->rank; o++) {
        dim[o] = expr_const(g->exprs, 1);
        for (int d = 0; d < t->rank; d++) {
            if (src[d] != o) continue;
            if (t->dim[d] != out->dim[o] || !expr_is_value(g->exprs, dim[o], 1)) return 0;
            perm[n++] = (uint8_t)d;
            dim[o] = t->dim[d];
        }
    }
    if (n != t->rank) return 0;
    Value x = t->rank ? build_permute(g, data, perm) : data;
    return build_expand(g, build_reshape(g, x, out->rank, dim), out->rank, out->dim);
}

static Value canon_gather(Rewrite *r, Value v) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    Value data = rewrite_in(r, v, 0);
    const Type *t = graph_type(g, data);
    int8_t src[GRAPH_MAX_RANK];
    Value *idx = ARENA_ARRAY(g->arena, Value, n->nin);
    uint32_t nidx = 0;
    bool all = true;
    for (int d = 0; d < t->rank; d++) {
        src[d] = n->attr.index.src[d];
        if (src[d] >= 0) continue;
        Value x = rewrite_in(r, v, (uint32_t)-src[d]);
        int axis = -1;
        for (int o = 0; o < n->type.rank && axis < 0; o++)
            if (t->dim[d] == n->type.dim[o] && is_coordinate(g, x, o)) axis = o;
        if (axis < 0) {
            idx[nidx++] = x;
            axis = -(int)nidx;
            all = false;
        }
        src[d] = (int8_t)axis;
    }
    Value view = all ? gather_as_view(g, data, src, &n->type) : 0;
    return view ? view : build_gather(g, data, src, idx, nidx, n->type.rank, n->type.dim);
}

static const RewriteFn rules[OP_COUNT] = {
    [OP_pow] = canon_pow, [OP_recip] = canon_recip,   [OP_div] = canon_div,
    [OP_lt] = canon_lt,   [OP_gather] = canon_gather,
};

static Value canon(Rewrite *r, Value v) {
    RewriteFn rule = rules[graph_node(r->from, v)->op];
    return rule ? rule(r, v) : 0;
}

Graph *pass_canon(Graph *g) {
    return rewrite_graph(g, canon, NULL);
}
