/* min, max, comparisons and select. Truth values are 0 and 1, a conjunction is a product. */
#include "graph/expr/expr_impl.h"

/* Comparisons in one form: everything moved to one side, common factors taken out, and then split
 * so that each side adds positive terms only. `x - 5 < 0`, `2*x < 10` and `x < 5` become one node.
 */

static int64_t content(const ExprSum *d) {
    int64_t g = 0;
    for (uint32_t i = 0; i < d->n; i++)
        if (d->t[i].prod) g = expr_gcd(g, d->t[i].coef);
    return g;
}

/* d < 0 as left < right. */
static void two_sides(ExprPool *p, const ExprSum *d, Expr *left, Expr *right) {
    ExprSum l = {0}, r = {0};
    for (uint32_t i = 0; i < d->n; i++) {
        ExprTerm t = d->t[i];
        if (t.coef > 0)
            l.t[l.n++] = t;
        else
            r.t[r.n++] = (ExprTerm){t.prod, expr_wrap_mul(t.coef, -1)};
    }
    *left = expr_from_terms(p, &l);
    *right = expr_from_terms(p, &r);
}

/* g*T + c < 0 is T < ceil(-c/g), so T + floor(c/g) < 0. */
static void reduce(ExprSum *d, int64_t g) {
    for (uint32_t i = 0; i < d->n; i++) {
        int64_t c = d->t[i].coef;
        d->t[i].coef = d->t[i].prod ? c / g : expr_floor_div(c, g);
    }
    if (d->n && !d->t[d->n - 1].coef) d->n--;
}

/* x/m < k is x < k*m, and k < x/m is k*m + m - 1 < x, for m > 0. */
static Expr lt_without_div(ExprPool *p, Expr a, Expr b) {
    if (expr_op(p, a) == EX_div) {
        Expr m = expr_arg(p, a, 1);
        return expr_positive(p, m) ? expr_lt(p, expr_arg(p, a, 0), expr_mul(p, b, m)) : 0;
    }
    if (expr_op(p, b) == EX_div) {
        Expr m = expr_arg(p, b, 1);
        if (!expr_positive(p, m)) return 0;
        Expr k = expr_addi(p, expr_mul(p, expr_addi(p, a, 1), m), -1);
        return expr_lt(p, k, expr_arg(p, b, 0));
    }
    return 0;
}

/* a < max(u, v) is a < u where v is never above a: what a window asks of a size that earlier
 * windows made (and kept from going below 0) becomes what it asks of the size that they began with.
 */
static Expr lt_without_max(ExprPool *p, Expr a, Expr b) {
    if (expr_op(p, b) != EX_max) return 0;
    for (int side = 0; side < 2; side++)
        if (expr_nonneg(p, expr_sub(p, a, expr_arg(p, b, side))))
            return expr_lt(p, a, expr_arg(p, b, 1 - side));
    return 0;
}

static Expr make_lt(ExprPool *p, Expr a, Expr b) {
    Expr d = expr_sub(p, a, b);
    if (expr_nonneg(p, d)) return expr_const(p, 0);
    if (expr_nonneg(p, expr_addi(p, expr_muli(p, d, -1), -1))) return expr_const(p, 1);
    ExprSum s;
    if (!expr_terms(p, d, &s)) return expr_intern(p, EX_lt, a, b, 0);
    int64_t g = content(&s);
    if (g > 1) reduce(&s, g);
    two_sides(p, &s, &a, &b);
    Expr r = lt_without_div(p, a, b);
    if (!r) r = lt_without_max(p, a, b);
    return r ? r : expr_intern(p, EX_lt, a, b, 0);
}

Expr expr_lt(ExprPool *p, Expr a, Expr b) {
    Expr r;
    if (!a || !b) return 0;
    if (expr_memo_get(p, EX_lt, a, b, &r)) return r;
    return expr_memo_put(p, EX_lt, a, b, make_lt(p, a, b));
}

Expr expr_le(ExprPool *p, Expr a, Expr b) {
    return expr_lt(p, a, expr_addi(p, b, 1));
}

static Expr make_eq(ExprPool *p, Expr a, Expr b) {
    Expr d = expr_sub(p, a, b);
    ExprSum s;
    if (expr_is_value(p, d, 0)) return expr_const(p, 1);
    if (expr_positive(p, d) || expr_positive(p, expr_muli(p, d, -1))) return expr_const(p, 0);
    if (!expr_terms(p, d, &s)) return expr_intern(p, EX_eq, a, b, 0);
    int64_t g = content(&s);
    ExprTerm last = s.t[s.n - 1];
    if (g > 1) {
        if (!last.prod && last.coef % g) return expr_const(p, 0);
        for (uint32_t i = 0; i < s.n; i++) s.t[i].coef /= g;
    }
    if (s.t[0].coef < 0)
        for (uint32_t i = 0; i < s.n; i++) s.t[i].coef = expr_wrap_mul(s.t[i].coef, -1);
    two_sides(p, &s, &a, &b);
    return expr_intern(p, EX_eq, a, b, 0);
}

Expr expr_eq(ExprPool *p, Expr a, Expr b) {
    Expr r;
    if (!a || !b) return 0;
    if (expr_memo_get(p, EX_eq, a, b, &r)) return r;
    return expr_memo_put(p, EX_eq, a, b, make_eq(p, a, b));
}

static Expr extremum(ExprPool *p, ExprOp op, Expr a, Expr b);

/* max(max(u, v) + c, w) = max(u + c, w) where v + c never wins; 0 if it is not of that kind. */
static Expr nested(ExprPool *p, ExprOp op, Expr x, Expr w) {
    ExprSum s;
    if (!expr_terms(p, x, &s) || !s.n || s.n > 2 || (s.n == 2 && s.t[1].prod)) return 0;
    if (s.t[0].coef != 1 || !s.t[0].prod || expr_op(p, s.t[0].prod) != op) return 0;
    for (int side = 0; side < 2; side++) {
        Expr v = expr_arg(p, s.t[0].prod, side), u = expr_arg(p, s.t[0].prod, 1 - side);
        int64_t c = s.n == 2 ? s.t[1].coef : 0;
        Expr ahead = expr_sub(p, w, expr_addi(p, v, c));
        if (expr_nonneg(p, op == EX_max ? ahead : expr_muli(p, ahead, -1)))
            return extremum(p, op, expr_addi(p, u, c), w);
    }
    return 0;
}

/* min and max drop an operand that is proved never to win. */
static Expr extremum(ExprPool *p, ExprOp op, Expr a, Expr b) {
    Expr r;
    if (!a || !b) return 0;
    if (a == b) return a;
    if (expr_memo_get(p, op, a, b, &r)) return r;
    Expr d = expr_sub(p, b, a);
    if (expr_nonneg(p, d))
        r = op == EX_min ? a : b;
    else if (expr_nonneg(p, expr_muli(p, d, -1)))
        r = op == EX_min ? b : a;
    else if (!(r = nested(p, op, a, b)) && !(r = nested(p, op, b, a)))
        r = expr_compare(p, a, b) <= 0 ? expr_intern(p, op, a, b, 0) : expr_intern(p, op, b, a, 0);
    return expr_memo_put(p, op, a, b, r);
}

Expr expr_min(ExprPool *p, Expr a, Expr b) {
    return extremum(p, EX_min, a, b);
}
Expr expr_max(ExprPool *p, Expr a, Expr b) {
    return extremum(p, EX_max, a, b);
}

/* True if a = 1 makes b = 1: for a1 < a2 and b1 < b2, if b2 - b1 >= a2 - a1. */
static bool implies(ExprPool *p, Expr a, Expr b) {
    if (a == b) return true;
    if (expr_op(p, a) != EX_lt || expr_op(p, b) != EX_lt) return false;
    Expr ga = expr_sub(p, expr_arg(p, a, 1), expr_arg(p, a, 0));
    Expr gb = expr_sub(p, expr_arg(p, b, 1), expr_arg(p, b, 0));
    return expr_nonneg(p, expr_sub(p, gb, ga));
}

static Expr and_atom(ExprPool *p, Expr all, Expr b) {
    Expr x[EXPR_MAX_ATOMS];
    uint32_t n = expr_atoms(p, all, x);
    Expr r = b;
    for (uint32_t i = 0; i < n; i++) {
        if (implies(p, x[i], b)) return all;
        if (!implies(p, b, x[i])) r = expr_mul(p, r, x[i]);
    }
    return n ? r : expr_mul(p, all, b);
}

Expr expr_and(ExprPool *p, Expr a, Expr b) {
    if (!a || !b) return a ? a : b;
    if (expr_is_const(p, a, NULL)) return expr_is_value(p, a, 0) ? a : b;
    if (expr_is_const(p, b, NULL)) return expr_is_value(p, b, 0) ? b : a;
    Expr x[EXPR_MAX_ATOMS];
    uint32_t n = expr_atoms(p, b, x);
    for (uint32_t i = 0; i < n; i++) a = and_atom(p, a, x[i]);
    return n ? a : expr_mul(p, a, b);
}

Expr expr_not(ExprPool *p, Expr a) {
    if (!a) return expr_const(p, 0);
    if (expr_op(p, a) == EX_lt) return expr_le(p, expr_arg(p, a, 1), expr_arg(p, a, 0));
    if (expr_op(p, a) == EX_eq && expr_is_value(p, expr_arg(p, a, 1), 0)) {
        int64_t lo, hi;
        expr_range(p, expr_arg(p, a, 0), &lo, &hi);
        if (lo >= 0 && hi <= 1) return expr_arg(p, a, 0);
    }
    return expr_eq(p, a, expr_const(p, 0));
}

/* select(x < k, a, b) where x < k leaves one value of symbol x, at which b is a: it is b
 * everywhere. */
static bool same_at_edge(ExprPool *p, Expr c, Expr a, Expr b) {
    uint32_t sym;
    int64_t k, lo;
    if (expr_op(p, c) != EX_lt || !expr_is_const(p, expr_arg(p, c, 1), &k)) return false;
    Expr x = expr_arg(p, c, 0);
    expr_range(p, x, &lo, NULL);
    if (!expr_is_sym(p, x, &sym) || lo == INT64_MIN || k != lo + 1) return false;
    Expr edge = expr_const(p, lo);
    return expr_subst(p, a, &sym, &edge, 1) == expr_subst(p, b, &sym, &edge, 1);
}

Expr expr_select(ExprPool *p, Expr c, Expr a, Expr b) {
    int64_t lo, hi;
    if (!a || !b) return 0;
    if (!c || a == b) return a;
    expr_range(p, c, &lo, &hi);
    if (lo > 0 || hi < 0) return a;
    if (lo == 0 && hi == 0) return b;
    bool truth = lo == 0 && hi == 1;
    if (truth && expr_is_value(p, a, 1) && expr_is_value(p, b, 0)) return c;
    if (truth && expr_is_value(p, a, 0) && expr_is_value(p, b, 1)) return expr_not(p, c);
    if (expr_op(p, c) == EX_lt) {
        Expr x = expr_arg(p, c, 0), y = expr_arg(p, c, 1);
        if (a == x && b == y) return expr_min(p, x, y);
        if (a == y && b == x) return expr_max(p, x, y);
    }
    if (same_at_edge(p, c, a, b)) return b;
    return expr_intern(p, EX_select, c, a, b);
}
