#include "frontend/axes.h"
#include "frontend/import_impl.h"

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

Value axes_wrap(Graph *g, Value index, Expr size) {
    if (!index) return 0;
    const DType t = graph_type(g, index)->dtype;
    Value below = build_binary(g, OP_lt, index, build_scalar_i(g, t, 0));
    Value up = build_binary(g, OP_add, index, build_expr(g, t, size));
    return build_select(g, below, up, index);
}

static bool add_axis(Lower *l, Axes *a, int64_t axis, int rank) {
    const int k = lower_axis(l, axis, rank);
    if (k < 0) return false;
    if (a->mask >> k & 1) return lower_error(l, D_ATTRIBUTE, "axis %d is given twice", k);
    a->mask |= 1u << k;
    a->axis[a->n++] = k;
    return true;
}

/* The shape that the axes in `mask` would give. */
static Type shape_for(ExprPool *p, const Type *in, uint32_t mask, uint32_t n, AxesUse use) {
    Type t = {.rank = use == AXES_INSERT ? (uint8_t)(in->rank + n) : in->rank};
    uint32_t to = 0, from = 0;
    for (uint32_t i = 0; i < t.rank; i++) {
        const bool hit = mask >> i & 1;
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

static bool fits(const Type *a, const Type *b) {
    if (a->rank != b->rank) return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* Axes that are fed at run time: the first set that explains the declared output. */
static bool axes_from_declared(Lower *l, const Expr *e, uint32_t n, AxesUse use, Axes *out) {
    ExprPool *p = lower_exprs(l);
    const Type *in = lower_type(l, 0);
    Type declared;
    const uint32_t rank = use == AXES_INSERT ? in->rank + n : in->rank;
    if (rank > GRAPH_MAX_RANK || !lower_declared(l, 0, &declared))
        return lower_unsupported(l, "make the axes a constant",
                                 "the axes are known only at run time");
    for (uint32_t mask = 0; mask < 1u << rank; mask++) {
        if ((uint32_t)__builtin_popcount(mask) != n) continue;
        const Type t = shape_for(p, in, mask, n, use);
        if (!fits(&t, &declared)) continue;
        out->mask = mask;
        for (uint32_t k = 0; k < rank; k++)
            if (mask >> k & 1) {
                lower_assume(l, expr_mod(p, e[out->n], expr_const(p, rank)), expr_const(p, k));
                out->axis[out->n++] = (int)k;
            }
        return true;
    }
    return lower_unsupported(l, "make the axes a constant", "the axes are known only at run time");
}

bool axes_read(Lower *l, uint32_t in, const char *attr, AxesUse use, Axes *out) {
    ExprPool *p = lower_exprs(l);
    const int base = lower_type(l, 0)->rank;
    uint32_t n = 0;
    *out = (Axes){0};
    const int64_t *given = attr ? lower_ints(l, attr, &n) : NULL;
    const Expr *e = NULL;
    if (!given) {
        if (!lower_has_in(l, in)) return true;
        if (!(e = lower_shape_in(l, in, &n))) return false;
    }
    if (n == 0) return true;
    const int rank = use == AXES_INSERT ? base + (int)n : base;
    if (n > GRAPH_MAX_RANK || rank > GRAPH_MAX_RANK)
        return lower_error(l, D_SHAPE, "%u axes are too many", n);
    out->given = true;
    for (uint32_t i = 0; i < n; i++) {
        int64_t c = given ? given[i] : 0;
        if (e && !expr_is_const(p, e[i], &c)) {
            *out = (Axes){.given = true};
            return axes_from_declared(l, e, n, use, out);
        }
        if (!add_axis(l, out, c, rank)) return false;
    }
    return true;
}
