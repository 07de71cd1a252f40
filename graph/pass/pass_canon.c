/* canon: one spelling for one meaning, so that later passes and fusion look for one thing. Algebra
 * that holds for every operand lives in the builder's folds; here are the rewrites that need to
 * look further than a node's own operands, and those that pick between spellings of equal cost.
 *
 *   pow by small constants       products and square roots
 *   1 / sqrt(x)                  rsqrt(x)
 *   x / c, c a power of two      x * (1/c), exactly
 *   x < 0 with x never negative  false: what is left of ONNX's wrapping of negative indices
 *   gather by plain coordinates  the axis itself; by affine ones, a view
 *   gather of x - f(row of x)    gather(x) - f(row of x), where it takes one element of a row
 *   permute of a gather          the gather in that order, from a table that stays in a cache
 *   slice of a concat            slice of the one part it reads
 *   dot that sums one product    the product, where a factor is constant
 *   concat(a, b, c)              concat(concat(a, b), c), where the inner one exists
 *   masks that formulas decide   constants
 *
 * Integer tensors are seen through as formulas of their coordinates (value_expr.h), so that it does
 * not matter how an exporter spells a mask or an index.
 *
 * Needs: nothing. Keeps: values to the last bit but for pow and rsqrt (their own rounding), and the
 * sign of a zero that a dot gives.
 * Breaks: nothing; leaves dead nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"
#include "graph/pass/value_expr.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_DEPTH 12        /* how far an index is followed through views and maps */
#define TABLE_MOST (1 << 14) /* elements of a table that stays in a cache */

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

/* ---- Gathers by known coordinates ---- */

static ValueExprs values(const Rewrite *r) {
    return (ValueExprs){.g = r->to, .axes = r->facts};
}

/* Coordinates of the data that output position `at` reads; 0 where that is not known, or not surely
 * inside (a gather clamps, a view does not). */
static bool gather_coords(const Rewrite *r, Value v, const Expr *at, Expr *coord) {
    ValueExprs x = values(r);
    const Attr *a = &graph_node(r->from, v)->attr;
    const Type *t = graph_type(r->to, rewrite_in(r, v, 0));
    bool all = true;
    for (int d = 0; d < t->rank; d++) {
        int src = a->index.src[d];
        coord[d] = src >= 0 ? at[src] : value_expr(&x, rewrite_in(r, v, (uint32_t)-src), at);
        if (coord[d] && !value_in_range(&x, coord[d], t->dim[d])) coord[d] = 0;
        all &= coord[d] != 0;
    }
    return all;
}

static Expr row_major(ExprPool *p, const Type *t, const Expr *coord) {
    Expr flat = expr_const(p, 0);
    for (int i = 0; i < t->rank; i++) flat = expr_add(p, expr_mul(p, flat, t->dim[i]), coord[i]);
    return flat;
}

/* coord == step*at[axis] + start, with one axis at most (-1: none). */
typedef struct Stride {
    int axis;
    Expr start;
    int64_t step;
} Stride;

static bool stride_of(ExprPool *p, Expr coord, const Expr *at, int rank, Stride *out) {
    *out = (Stride){-1, coord, 1};
    for (int o = 0; o < rank; o++) {
        uint32_t sym;
        Expr coef, rest;
        if (!expr_is_sym(p, at[o], &sym) || !expr_uses(p, coord, sym)) continue;
        if (out->axis >= 0 || !expr_affine(p, coord, sym, &coef, &rest)) return false;
        if (!expr_is_const(p, coef, &out->step)) return false;
        out->axis = o;
        out->start = rest;
    }
    return true;
}

/* A slice of the data, its axes in the result's order, repeated along axes that no coordinate uses.
 */
static Value strided_view(Graph *g, Value data, const Stride *s, const Type *out) {
    ExprPool *p = g->exprs;
    int rank = graph_type(g, data)->rank;
    Expr start[GRAPH_MAX_RANK], size[GRAPH_MAX_RANK], dim[GRAPH_MAX_RANK];
    int64_t step[GRAPH_MAX_RANK];
    uint8_t perm[GRAPH_MAX_RANK], n = 0;
    for (int d = 0; d < rank; d++) {
        start[d] = s[d].start;
        step[d] = s[d].step;
        size[d] = s[d].axis < 0 ? expr_const(p, 1) : out->dim[s[d].axis];
    }
    for (int o = 0; o < out->rank; o++) {
        dim[o] = expr_const(p, 1);
        for (int d = 0; d < rank; d++) {
            if (s[d].axis != o) continue;
            if (!expr_is_value(p, dim[o], 1)) return 0; /* a diagonal */
            perm[n++] = (uint8_t)d;
            dim[o] = size[d];
        }
    }
    for (int d = 0; d < rank; d++)
        if (s[d].axis < 0) perm[n++] = (uint8_t)d;
    Value x = rank ? build_permute(g, build_slice(g, data, start, size, step), perm) : data;
    return build_expand(g, build_reshape(g, x, out->rank, dim), out->rank, out->dim);
}

static Value gather_as_view(Graph *g, Value data, const Expr *coord, const Expr *at,
                            const Type *out) {
    ExprPool *p = g->exprs;
    const Type *t = graph_type(g, data);
    Stride s[GRAPH_MAX_RANK];
    if (type_numel(p, t) == type_numel(p, out) && row_major(p, t, coord) == row_major(p, out, at))
        return build_reshape(g, data, out->rank, out->dim);
    for (int d = 0; d < t->rank; d++)
        if (!stride_of(p, coord[d], at, out->rank, &s[d])) return 0;
    return strided_view(g, data, s, out);
}

/* Without a view: index tensors that are plain coordinates are dropped. */
static Value fewer_indices(Rewrite *r, Value v, const Expr *coord, const Expr *at) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    const Type *t = graph_type(g, rewrite_in(r, v, 0));
    int8_t src[GRAPH_MAX_RANK];
    Value *idx = ARENA_ARRAY(g->arena, Value, n->nin);
    uint32_t nidx = 0;
    for (int d = 0; d < t->rank; d++) {
        src[d] = n->attr.index.src[d];
        for (int o = 0; o < n->type.rank && src[d] < 0 && coord[d]; o++)
            if (coord[d] == at[o] && expr_is_sym(g->exprs, at[o], NULL)) src[d] = (int8_t)o;
        if (src[d] >= 0) continue;
        idx[nidx++] = rewrite_in(r, v, (uint32_t)-src[d]);
        src[d] = (int8_t) - (int)nidx;
    }
    return build_gather(g, rewrite_in(r, v, 0), src, idx, nidx, n->type.rank, n->type.dim);
}

/* ---- Gathers of what rows computed ---- */

/* A gather that takes one element of each row at most, as a loss does of log-softmax. */
typedef struct Pick {
    Graph *g;
    const int8_t *src;
    const Value *idx;
    uint32_t nidx;
    const Type *out;
} Pick;

/* No output axis repeats what it takes, or takes several. */
static bool takes_one(Graph *g, const Node *n, const Type *data) {
    for (int o = 0; o < n->type.rank; o++) {
        bool used = expr_is_value(g->exprs, n->type.dim[o], 1);
        for (int d = 0; d < data->rank; d++) used |= n->attr.index.src[d] == o;
        if (!used) return false;
    }
    return true;
}

/* x is the same along all axes that the gather looks up positions of. */
static bool same_along(const Pick *p, const Node *x) {
    if (x->op != OP_expand) return false;
    const Type *t = graph_type(p->g, x->in[0]);
    for (int d = 0; d < t->rank; d++)
        if (p->src[d] < 0 && !expr_is_value(p->g->exprs, t->dim[d], 1)) return false;
    return t->rank == x->type.rank;
}

static bool mixes_rows(const Pick *p, const Node *x) {
    bool any = false;
    if (op_info[x->op].cls != OPC_MAP) return false;
    for (uint32_t i = 0; i < x->nin; i++) any |= same_along(p, graph_node(p->g, x->in[i]));
    return any;
}

/* The picked elements of v. What is computed with something of the whole row is computed for them
 * alone: then that something is all that has to be stored of the row. */
static Value pick(const Pick *p, Value v) {
    Graph *g = p->g;
    Node x = *graph_node(g, v);
    if (same_along(p, &x)) {
        Stride s[GRAPH_MAX_RANK];
        const Type *t = graph_type(g, x.in[0]);
        for (int d = 0; d < t->rank; d++) {
            bool one = expr_is_value(g->exprs, t->dim[d], 1);
            s[d] = (Stride){one ? -1 : p->src[d], expr_const(g->exprs, 0), 1};
        }
        return strided_view(g, x.in[0], s, p->out);
    }
    if (!mixes_rows(p, &x))
        return build_gather(g, v, p->src, p->idx, p->nidx, p->out->rank, p->out->dim);
    Value *in = ARENA_ARRAY(g->arena, Value, x.nin);
    for (uint32_t i = 0; i < x.nin; i++) in[i] = pick(p, x.in[i]);
    return build_like(g, &x, in, x.nin);
}

static Value canon_pick(Rewrite *r, Value v) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    Value data = rewrite_in(r, v, 0);
    Pick p = {.g = g, .src = n->attr.index.src, .nidx = n->nin - 1, .out = &n->type};
    if (!mixes_rows(&p, graph_node(g, data)) || !takes_one(g, n, graph_type(g, data))) return 0;
    Value *idx = ARENA_ARRAY(g->arena, Value, n->nin);
    for (uint32_t i = 0; i < p.nidx; i++) idx[i] = rewrite_in(r, v, i + 1);
    p.idx = idx;
    return pick(&p, data);
}

static Value canon_gather(Rewrite *r, Value v) {
    Graph *g = r->to;
    Value picked = canon_pick(r, v);
    if (picked) return picked;
    const Type *out = graph_type(r->from, v);
    Value data = rewrite_in(r, v, 0);
    Expr at[GRAPH_MAX_RANK], coord[GRAPH_MAX_RANK];
    ValueExprs x = values(r);
    value_coords(&x, out, at);
    bool all = gather_coords(r, v, at, coord);
    Value view = all ? gather_as_view(g, data, coord, at, out) : 0;
    return view ? view : fewer_indices(r, v, coord, at);
}

/* ---- Views ---- */

/* A slice that stays within one part of a concat is a slice of that part. */
static Value canon_slice(Rewrite *r, Value v) {
    Graph *g = r->to;
    ExprPool *p = g->exprs;
    const Node *n = graph_node(r->from, v);
    Node cat = *graph_node(g, rewrite_in(r, v, 0));
    if (cat.op != OP_concat) return 0;
    int axis = cat.attr.axis.axis;
    Expr first = n->attr.slice.start[axis], begin = expr_const(p, 0), start[GRAPH_MAX_RANK];
    Expr last = expr_add(
        p, first, expr_muli(p, expr_addi(p, n->type.dim[axis], -1), n->attr.slice.step[axis]));
    for (uint32_t i = 0; i < cat.nin; i++) {
        Expr end = expr_add(p, begin, graph_type(g, cat.in[i])->dim[axis]);
        Expr inside = expr_and(p, expr_and(p, expr_le(p, begin, first), expr_lt(p, first, end)),
                               expr_and(p, expr_le(p, begin, last), expr_lt(p, last, end)));
        if (expr_is_value(p, inside, 1)) {
            memcpy(start, n->attr.slice.start, sizeof start);
            start[axis] = expr_sub(p, first, begin);
            return build_slice(g, cat.in[i], start, n->type.dim, n->attr.slice.step);
        }
        begin = end;
    }
    return 0;
}

/* The longest concat along `axis` of a run of in[0..n), and where the run starts; 0 if none. */
static Value concat_of_run(const Graph *g, const Value *in, uint32_t n, int axis, uint32_t *first) {
    Value best = 0;
    for (Value v = g->nodes.n; v-- > 1;) {
        const Node *c = graph_node(g, v);
        if (c->op != OP_concat || c->attr.axis.axis != axis) continue;
        if (c->nin >= n || (best && c->nin <= graph_node(g, best)->nin)) continue;
        for (uint32_t i = 0; i + c->nin <= n; i++) {
            if (memcmp(in + i, c->in, c->nin * sizeof *in) != 0) continue;
            best = v;
            *first = i;
            break;
        }
    }
    return best;
}

/* Operands that are a concat already are read from it: lists that grow step by step share a start.
 */
static Value canon_concat(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    Value *in = ARENA_ARRAY(r->to->arena, Value, n->nin), shared;
    uint32_t count = n->nin, first, len;
    for (uint32_t i = 0; i < count; i++) in[i] = rewrite_in(r, v, i);
    while ((shared = concat_of_run(r->to, in, count, n->attr.axis.axis, &first))) {
        len = graph_node(r->to, shared)->nin;
        in[first] = shared;
        memmove(in + first + 1, in + first + len, (count - first - len) * sizeof *in);
        count -= len - 1;
    }
    return count < n->nin ? build_concat(r->to, in, count, n->attr.axis.axis) : 0;
}

enum { MOST_PARTS = 16 };

/* What is added up along one axis, each padded with zeros. */
typedef struct PaddedParts {
    uint32_t n;
    int axis; /* below 0: not known yet */
    Value pad[MOST_PARTS];
} PaddedParts;

static bool pads_axis(const Graph *g, const Node *x, int axis) {
    for (int i = 0; i < x->type.rank; i++) {
        bool none = expr_is_value(g->exprs, x->attr.pad.lo[i], 0) &&
                    expr_is_value(g->exprs, x->attr.pad.hi[i], 0);
        if (x->attr.pad.interior[i] || (i != axis && !none)) return false;
    }
    return true;
}

static bool take_parts(const Graph *g, Value v, int depth, PaddedParts *out) {
    const Node *x = graph_node(g, v);
    double fill;
    if (x->op == OP_add && depth)
        return take_parts(g, x->in[0], depth - 1, out) && take_parts(g, x->in[1], depth - 1, out);
    if (x->op != OP_pad || out->n == MOST_PARTS) return false;
    if (!uniform(g, x->in[1], &fill) || fill != 0) return false;
    for (int i = 0; i < x->type.rank && out->axis < 0; i++)
        if (pads_axis(g, x, i)) out->axis = i;
    out->pad[out->n++] = v;
    return out->axis >= 0 && pads_axis(g, x, out->axis);
}

/* A sum of parts that lie behind each other and fill all of it, as the gradient of a split is
 * written, is their concatenation. */
static Value canon_add(Rewrite *r, Value v) {
    Graph *g = r->to;
    PaddedParts p = {.axis = -1};
    Value in[MOST_PARTS];
    Expr end = expr_const(g->exprs, 0);
    const Type *t = &graph_node(r->from, v)->type;
    for (uint32_t i = 0; i < 2; i++)
        if (!take_parts(g, rewrite_in(r, v, i), MOST_PARTS, &p)) return 0;
    for (uint32_t n = 0; n < p.n; n++) {
        in[n] = 0;
        for (uint32_t i = 0; i < p.n && !in[n]; i++) {
            const Node *x = graph_node(g, p.pad[i]);
            if (x->attr.pad.lo[p.axis] == end) in[n] = x->in[0];
        }
        if (!in[n]) return 0;
        end = expr_add(g->exprs, end, graph_type(g, in[n])->dim[p.axis]);
    }
    return end == t->dim[p.axis] ? build_concat(g, in, p.n, p.axis) : 0;
}

/* Repetition goes last, so that what is repeated stays small. */
static Value permute_under(Graph *g, Value v, const uint8_t *perm, const Type *to) {
    Node x = *graph_node(g, v);
    if (x.op != OP_expand) return build_permute(g, v, perm);
    return build_expand(g, build_permute(g, x.in[0], perm), to->rank, to->dim);
}

/* Elements of such a table cost the same in any order, so they are stored in the one in which they
 * are read: a bias by relative position, whose rows are heads, by heads. */
static Value permute_of_gather(Rewrite *r, Value v, const Node *x) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    const uint8_t *perm = n->attr.perm.axis;
    const Type *data = graph_type(g, x->in[0]);
    int8_t src[GRAPH_MAX_RANK], place[GRAPH_MAX_RANK];
    int64_t size;
    if (!expr_is_const(g->exprs, type_numel(g->exprs, data), &size) || size > TABLE_MOST) return 0;
    for (int i = 0; i < n->type.rank; i++) place[perm[i]] = (int8_t)i;
    for (int i = 0; i < data->rank; i++)
        src[i] = x->attr.index.src[i] < 0 ? x->attr.index.src[i] : place[x->attr.index.src[i]];
    Value table = x->in[0], *idx = ARENA_ARRAY(g->arena, Value, x->nin);
    for (uint32_t i = 1; i < x->nin; i++) idx[i - 1] = permute_under(g, x->in[i], perm, &n->type);
    return build_gather(g, table, src, idx, x->nin - 1, n->type.rank, n->type.dim);
}

static Value canon_permute(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    Node x = *graph_node(r->to, rewrite_in(r, v, 0));
    if (x.op == OP_gather) return permute_of_gather(r, v, &x);
    if (x.op != OP_expand) return 0;
    return permute_under(r->to, rewrite_in(r, v, 0), n->attr.perm.axis, &n->type);
}

/* A constant behind views and casts. */
static bool is_constant(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    while (n->nin == 1 && (op_info[n->op].cls == OPC_VIEW || n->op == OP_cast))
        n = graph_node(g, n->in[0]);
    return n->op == OP_const;
}

/* Angles of rotary embeddings, frequencies times positions: what reads them computes them. Others
 * may be part of what is raised later: gradients of attention of one query are. */
static Value canon_dot(Rewrite *r, Value v) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    Value a = rewrite_in(r, v, 0), b = rewrite_in(r, v, 1);
    const Type *t = graph_type(g, a);
    if (!expr_is_value(g->exprs, t->dim[t->rank - 1], 1)) return 0;
    if (!is_constant(g, a) && !is_constant(g, b)) return 0;
    DType to = n->type.dtype;
    return build_binary(g, OP_mul, build_cast(g, a, to), build_cast(g, b, to));
}

static const RewriteFn rules[OP_COUNT] = {
    [OP_pow] = canon_pow,         [OP_recip] = canon_recip,   [OP_div] = canon_div,
    [OP_lt] = canon_lt,           [OP_gather] = canon_gather, [OP_slice] = canon_slice,
    [OP_permute] = canon_permute, [OP_concat] = canon_concat, [OP_add] = canon_add,
    [OP_dot] = canon_dot,
};

/* An integer or bool result that is the same number everywhere, by its formula. */
static Value known_result(Rewrite *r, Value v) {
    Graph *g = r->to;
    ValueExprs x = values(r);
    Expr at[GRAPH_MAX_RANK];
    int64_t c;
    if (graph_node(g, v)->op == OP_expand || graph_node(g, v)->op == OP_const) return 0;
    Type t = *graph_type(g, v);
    value_coords(&x, &t, at);
    if (!expr_is_const(g->exprs, value_expr(&x, v, at), &c)) return 0;
    return build_full(g, build_scalar_i(g, t.dtype, c), t.rank, t.dim);
}

static Value canon(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    RewriteFn rule = rules[n->op];
    Value x = rule ? rule(r, v) : 0;
    bool formula = dtype_is_int(n->type.dtype) || n->type.dtype == DT_bool;
    OpClass cls = op_info[n->op].cls;
    if (!formula || cls == OPC_SOURCE || cls == OPC_CONTROL) return x;
    if (!x) x = rewrite_copy(r, v);
    Value known = x ? known_result(r, x) : 0;
    return known ? known : x;
}

Graph *pass_canon(Graph *g) {
    return rewrite_graph(g, canon, NULL, map_create(g->arena));
}
