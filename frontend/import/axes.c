#include "frontend/import/axes.h"
#include "frontend/import/formula.h"
#include "frontend/import/import_impl.h"

Expr axes_product(ExprPool *p, const Expr *dim, int from, int to) {
    Expr e = expr_const(p, 1);
    for (int i = from; i < to; i++) e = expr_mul(p, e, dim[i]);
    return e;
}

/* Factors of a product; constants are multiplied into *constant. */
typedef struct Factors {
    Expr v[8 * GRAPH_MAX_RANK];
    uint32_t n;
    int64_t constant;
} Factors;

static void add_factors(ExprPool *p, Expr e, Factors *f) {
    int64_t c;
    if (expr_is_const(p, e, &c) && !__builtin_mul_overflow(f->constant, c, &c)) {
        f->constant = c;
    } else if (expr_op(p, e) == EX_mul && f->n + 2 < sizeof f->v / sizeof *f->v) {
        add_factors(p, expr_arg(p, e, 0), f);
        add_factors(p, expr_arg(p, e, 1), f);
    } else if (f->n < sizeof f->v / sizeof *f->v) {
        f->v[f->n++] = e;
    }
}

static Expr multiply(ExprPool *p, const Factors *f, int64_t constant) {
    return expr_muli(p, axes_product(p, f->v, 0, (int)f->n), constant);
}

Expr axes_quotient(ExprPool *p, const Expr *a, uint32_t na, const Expr *b, uint32_t nb) {
    Factors num = {.constant = 1}, den = {.constant = 1};
    for (uint32_t i = 0; i < na; i++) add_factors(p, a[i], &num);
    for (uint32_t i = 0; i < nb; i++) add_factors(p, b[i], &den);
    for (uint32_t i = 0; i < den.n;) {
        uint32_t k = 0;
        while (k < num.n && num.v[k] != den.v[i]) k++;
        if (k == num.n) {
            i++;
            continue;
        }
        num.v[k] = num.v[--num.n];
        den.v[i] = den.v[--den.n];
    }
    if (den.n == 0 && den.constant && num.constant % den.constant == 0)
        return multiply(p, &num, num.constant / den.constant);
    return expr_div(p, multiply(p, &num, num.constant), multiply(p, &den, den.constant));
}

static bool add_axis(Lower *l, Axes *a, int64_t axis, int rank) {
    const int k = lower_axis(l, axis, rank);
    if (k < 0) return false;
    if (a->mask >> k & 1) return lower_error(l, D_ATTRIBUTE, "axis %d is given twice", k);
    a->mask |= 1u << k;
    return true;
}

/* The shape that the axes in `mask` would give. */
static Type shape_for(ExprPool *p, const Type *in, const Axes *a, AxesUse use) {
    Type t = {.rank = use == AXES_INSERT ? (uint8_t)(in->rank + a->n) : in->rank};
    uint32_t to = 0, from = 0;
    for (uint32_t i = 0; i < t.rank; i++) {
        const bool hit = a->mask >> i & 1;
        if (use == AXES_INSERT)
            t.dim[to++] = hit ? expr_const(p, 1) : in->dim[from++];
        else if (!hit)
            t.dim[to++] = in->dim[i];
        else if (use == AXES_KEEP)
            t.dim[to++] = expr_const(p, 1);
    }
    t.rank = (uint8_t)to;
    return t;
}

static bool same_shape(const Type *a, const Type *b) {
    if (a->rank != b->rank) return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* 1 if the fed axes are exactly the set, in any order. */
static Expr is_set(ExprPool *p, const Expr *e, const Axes *a, uint32_t rank) {
    Expr all = expr_const(p, 1);
    for (uint32_t k = 0; k < rank; k++) {
        if (!(a->mask >> k & 1)) continue;
        Expr any = expr_const(p, 0);
        for (uint32_t i = 0; i < a->n; i++)
            any = expr_max(p, any,
                           expr_eq(p, expr_mod(p, e[i], expr_const(p, rank)), expr_const(p, k)));
        all = expr_and(p, all, any);
    }
    return all;
}

/* Axes fed at run time, and the shape that results. */
typedef struct Fed {
    const Expr *e;
    uint32_t n, rank;
    AxesUse use;
    Type shape; /* declared, or selected by the fed values */
    bool declared;
} Fed;

static bool next_set(const Fed *f, Axes *a) {
    while (++a->mask < 1u << f->rank)
        if ((uint32_t)__builtin_popcount(a->mask) == f->n) return true;
    return false;
}

/* Without a declared output, each size is selected between what the sets of axes would give. */
static void fed_shape(Lower *l, Fed *f) {
    ExprPool *p = lower_exprs(l);
    f->declared = lower_declared(l, 0, &f->shape);
    if (f->declared) return;
    bool first = true;
    for (Axes a = {.given = true, .n = f->n}; next_set(f, &a); first = false) {
        const Type t = shape_for(p, lower_type(l, 0), &a, f->use);
        const Expr hit = is_set(p, f->e, &a, f->rank);
        f->shape.rank = t.rank;
        for (uint32_t i = 0; i < t.rank; i++)
            f->shape.dim[i] = first ? t.dim[i] : expr_select(p, hit, t.dim[i], f->shape.dim[i]);
    }
}

/* x read at the positions of a tensor of the given shape. Where x is not the chosen alternative its
 * shape may differ: addresses are clamped, and the elements are not used. */
static Value read_as(Graph *g, Value x, const Type *shape) {
    Value at[GRAPH_MAX_RANK];
    int8_t src[GRAPH_MAX_RANK];
    if (!x || same_shape(graph_type(g, x), shape)) return x;
    if (expr_is_value(g->exprs, type_numel(g->exprs, graph_type(g, x)), 0))
        return build_full(g, build_scalar_i(g, graph_type(g, x)->dtype, 0), shape->rank,
                          shape->dim);
    for (int i = 0; i < shape->rank; i++) {
        at[i] = build_iota(g, DT_i64, shape->rank, shape->dim, i);
        src[i] = (int8_t)(-1 - i);
    }
    return build_gather(g, x, src, at, shape->rank, shape->rank, shape->dim);
}

static bool lower_fed_axes(Lower *l, const Expr *e, uint32_t n, AxesUse use,
                           Value (*build)(Lower *l, const Axes *axes)) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const Type in = *lower_type(l, 0);
    Fed f = {.e = e, .n = n, .rank = use == AXES_INSERT ? in.rank + n : in.rank, .use = use};
    Expr allowed = expr_const(p, 0);
    Value v = 0;
    fed_shape(l, &f);
    for (Axes a = {.given = true, .n = n}; next_set(&f, &a);) {
        const Type t = shape_for(p, &in, &a, use);
        if (f.declared && !same_shape(&t, &f.shape)) continue;
        const Expr hit = is_set(p, e, &a, f.rank);
        Value w = read_as(g, build(l, &a), &f.shape);
        Value chosen = v_cond(g, hit);
        if (!w) return true;
        v = v ? build_select(g, chosen, w, v) : w;
        allowed = expr_add(p, allowed, hit);
    }
    if (!v)
        return lower_unsupported(l, "make the axes a constant",
                                 "no axes give the shape that the model declares");
    lower_assume(l, allowed, expr_const(p, 1));
    lower_out(l, 0, v);
    return true;
}

bool axes_lower(Lower *l, uint32_t in, const char *attr, AxesUse use,
                Value (*build)(Lower *l, const Axes *axes)) {
    const int base = lower_type(l, 0)->rank;
    Axes a = {0};
    const int64_t *given = attr ? lower_ints(l, attr, &a.n) : NULL;
    const Expr *e = NULL;
    if (!given && lower_has_in(l, in) && !(e = lower_shape_in(l, in, &a.n))) return false;
    const int rank = use == AXES_INSERT ? base + (int)a.n : base;
    if (a.n > GRAPH_MAX_RANK || rank > GRAPH_MAX_RANK)
        return lower_error(l, D_SHAPE, "%u axes are too many", a.n);
    a.given = a.n > 0;
    for (uint32_t i = 0; i < a.n; i++) {
        int64_t c = given ? given[i] : 0;
        if (e && !expr_is_const(lower_exprs(l), e[i], &c))
            return lower_fed_axes(l, e, a.n, use, build);
        if (!add_axis(l, &a, c, rank)) return false;
    }
    lower_out(l, 0, build(l, &a));
    return true;
}
