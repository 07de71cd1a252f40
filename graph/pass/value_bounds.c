#include "graph/pass/value_expr.h"
#include <math.h>

enum { MAX_VISITS = 128, MAX_ELEMENTS = 4096 };

typedef struct Walk {
    const Graph *g;
    ExprPool *p;
    const ValueClaim *claims;
    uint32_t nclaims;
    int visits; /* left: bounds the work on shared operands */
} Walk;

static ValueBounds of(Walk *w, Value v);

static ValueBounds numbers(const Walk *w, int64_t lo, int64_t hi) {
    return (ValueBounds){expr_const(w->p, lo), expr_const(w->p, hi)};
}

static bool is_natural(const Walk *w, Expr e) {
    int64_t lo;
    if (!e) return false;
    expr_range(w->p, e, &lo, NULL);
    return lo >= 0;
}

static Expr both(Walk *w, Expr (*join)(ExprPool *, Expr, Expr), Expr a, Expr b) {
    return a && b ? join(w->p, a, b) : 0;
}

static Expr either(Walk *w, Expr (*join)(ExprPool *, Expr, Expr), Expr a, Expr b) {
    return a && b ? join(w->p, a, b) : a ? a : b;
}

static ValueBounds hull(Walk *w, ValueBounds a, ValueBounds b) {
    return (ValueBounds){both(w, expr_min, a.lo, b.lo), both(w, expr_max, a.hi, b.hi)};
}

static ValueBounds hull_of(Walk *w, const Value *in, uint32_t n) {
    ValueBounds r = of(w, in[0]);
    for (uint32_t i = 1; i < n; i++) r = hull(w, r, of(w, in[i]));
    return r;
}

/* Positions on an axis of n elements. */
static ValueBounds positions(const Walk *w, Expr n) {
    Expr zero = expr_const(w->p, 0);
    return (ValueBounds){zero, expr_max(w->p, expr_addi(w->p, n, -1), zero)};
}

static ValueBounds of_const(Walk *w, const Node *n) {
    int64_t count, lo = INT64_MAX, hi = INT64_MIN;
    if (!expr_is_const(w->p, type_numel(w->p, &n->type), &count) || count < 1 ||
        count > MAX_ELEMENTS || (dtype_is_float(n->type.dtype) && dtype_bytes(n->type.dtype) < 4))
        return (ValueBounds){0};
    for (int64_t i = 0; i < count; i++) {
        int64_t down, up;
        if (dtype_is_float(n->type.dtype)) {
            double x = dtype_load_f64(n->type.dtype, n->attr.constant.data, (size_t)i);
            if (!(fabs(x) < 0x1p62)) return (ValueBounds){0};
            down = (int64_t)floor(x);
            up = (int64_t)ceil(x);
        } else {
            down = up = dtype_load_i64(n->type.dtype, n->attr.constant.data, (size_t)i);
        }
        lo = down < lo ? down : lo;
        hi = up > hi ? up : hi;
    }
    return numbers(w, lo, hi);
}

static ValueBounds of_exprs(Walk *w, const Node *n) {
    ValueBounds r = {n->attr.exprs.v[0], n->attr.exprs.v[0]};
    for (uint32_t i = 1; i < n->attr.exprs.n; i++)
        r = hull(w, r, (ValueBounds){n->attr.exprs.v[i], n->attr.exprs.v[i]});
    return r;
}

/* e, if results of the type neither wrap nor round before they reach it. */
static Expr exact(const Walk *w, DType t, Expr e) {
    int bits = !dtype_is_float(t) ? (int)dtype_bytes(t) * 8 - 1 : t == DT_f32 ? 24 : 8;
    int64_t lo, hi;
    if (!e || t == DT_i64) return e;
    expr_range(w->p, e, &lo, &hi);
    return lo > -((int64_t)1 << bits) && hi < (int64_t)1 << bits ? e : 0;
}

static ValueBounds of_cast(Walk *w, const Node *n) {
    ValueBounds r = of(w, n->in[0]);
    bool nan = dtype_is_float(graph_type(w->g, n->in[0])->dtype);
    return nan ? hull(w, r, numbers(w, 0, 0)) : r;
}

/* `count` elements added up, none of them negative. */
static ValueBounds added_up(Walk *w, Value x, Expr count) {
    ValueBounds r = of(w, x);
    if (!is_natural(w, r.lo)) return (ValueBounds){0};
    return (ValueBounds){expr_const(w->p, 0), r.hi ? expr_mul(w->p, r.hi, count) : 0};
}

static Expr reduced_count(const Walk *w, const Node *n) {
    const Type *t = graph_type(w->g, n->in[0]);
    Expr count = expr_const(w->p, 1);
    for (int i = 0; i < t->rank; i++)
        if (n->attr.reduce.axes >> i & 1) count = expr_mul(w->p, count, t->dim[i]);
    return count;
}

static ValueBounds of_product(Walk *w, ValueBounds a, ValueBounds b) {
    if (!is_natural(w, a.lo) || !is_natural(w, b.lo)) return (ValueBounds){0};
    return (ValueBounds){expr_mul(w->p, a.lo, b.lo), both(w, expr_mul, a.hi, b.hi)};
}

/* By a positive number; what is left over has the sign of the dividend (rem) or none (mod). */
static ValueBounds of_division(Walk *w, Op op, ValueBounds a, ValueBounds b) {
    int64_t c, top;
    if (!b.lo || b.lo != b.hi || !expr_is_const(w->p, b.lo, &c) || c < 1) return (ValueBounds){0};
    top = c - 1;
    if (op == OP_mod) return numbers(w, 0, top);
    if (!is_natural(w, a.lo)) return (ValueBounds){0};
    if (op == OP_rem) return numbers(w, 0, top);
    return (ValueBounds){expr_div(w->p, a.lo, b.lo), a.hi ? expr_div(w->p, a.hi, b.lo) : 0};
}

static ValueBounds of_binary(Walk *w, const Node *n) {
    ValueBounds a = of(w, n->in[0]), b = of(w, n->in[1]);
    bool whole = !dtype_is_float(n->type.dtype);
    switch ((Op)n->op) {
    case OP_min:
        return (ValueBounds){both(w, expr_min, a.lo, b.lo), either(w, expr_min, a.hi, b.hi)};
    case OP_max:
        return (ValueBounds){either(w, expr_max, a.lo, b.lo), both(w, expr_max, a.hi, b.hi)};
    case OP_add: return (ValueBounds){both(w, expr_add, a.lo, b.lo), both(w, expr_add, a.hi, b.hi)};
    case OP_sub: return (ValueBounds){both(w, expr_sub, a.lo, b.hi), both(w, expr_sub, a.hi, b.lo)};
    case OP_mul: return of_product(w, a, b);
    default: return whole ? of_division(w, (Op)n->op, a, b) : (ValueBounds){0};
    }
}

static ValueBounds of_unary(Walk *w, const Node *n) {
    ValueBounds x = of(w, n->in[0]);
    Expr minus = expr_const(w->p, -1), zero = expr_const(w->p, 0);
    ValueBounds mirrored = {x.hi ? expr_mul(w->p, x.hi, minus) : 0,
                            x.lo ? expr_mul(w->p, x.lo, minus) : 0};
    if (n->op == OP_neg) return mirrored;
    return (ValueBounds){zero, both(w, expr_max, x.hi, mirrored.hi)};
}

static ValueBounds of_node(Walk *w, const Node *n) {
    const Type *x = n->nin ? graph_type(w->g, n->in[0]) : NULL;
    switch ((Op)n->op) {
    case OP_const: return of_const(w, n);
    case OP_exprs: return of_exprs(w, n);
    case OP_iota: return positions(w, n->type.dim[n->attr.axis.axis]);
    case OP_compact: return positions(w, x->dim[0]);
    case OP_argmax:
    case OP_argmin: return positions(w, reduced_count(w, n));
    case OP_argsort: return positions(w, x->dim[n->attr.scan.axis]);
    case OP_sigmoid: return numbers(w, 0, 1);
    case OP_sign:
    case OP_tanh: return numbers(w, -1, 1);
    case OP_neg:
    case OP_abs: return of_unary(w, n);
    case OP_cast: return of_cast(w, n);
    case OP_floor:
    case OP_ceil:
    case OP_round:
    case OP_trunc:
    case OP_reshape:
    case OP_permute:
    case OP_expand:
    case OP_slice:
    case OP_reduce_max:
    case OP_reduce_min:
    case OP_gather: return of(w, n->in[0]);
    case OP_pad:
    case OP_concat: return hull_of(w, n->in, n->nin);
    case OP_select: return hull_of(w, n->in + 1, 2);
    case OP_scatter:
        return n->attr.index.mode == SCATTER_set ? hull_of(w, n->in, 2) : (ValueBounds){0};
    case OP_reduce_sum: return added_up(w, n->in[0], reduced_count(w, n));
    case OP_cumsum: return added_up(w, n->in[0], x->dim[n->attr.scan.axis]);
    case OP_add:
    case OP_sub:
    case OP_mul:
    case OP_min:
    case OP_max:
    case OP_div:
    case OP_mod:
    case OP_rem: return of_binary(w, n);
    default: return (ValueBounds){0};
    }
}

static ValueBounds of(Walk *w, Value v) {
    const Node *n = graph_node(w->g, v);
    if (n->type.dtype == DT_bool) return numbers(w, 0, 1);
    for (uint32_t i = 0; i < w->nclaims; i++)
        if (w->claims[i].v == v) return numbers(w, w->claims[i].lo, w->claims[i].hi);
    if (w->visits-- <= 0) return (ValueBounds){0};
    ValueBounds r = of_node(w, n);
    return (ValueBounds){exact(w, n->type.dtype, r.lo), exact(w, n->type.dtype, r.hi)};
}

ValueBounds value_bounds(const Graph *g, Value v, const ValueClaim *claims, uint32_t nclaims) {
    Walk w = {g, g->exprs, claims, nclaims, MAX_VISITS};
    return of(&w, v);
}
