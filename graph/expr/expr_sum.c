/* Sums of products: the normal form that add and mul produce (expr_impl.h). */
#include "graph/expr/expr_impl.h"
#include <string.h>

int64_t expr_gcd(int64_t a, int64_t b) {
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (y) {
        uint64_t r = x % y;
        x = y;
        y = r;
    }
    return x > INT64_MAX ? 1 : (int64_t)x;
}

/* Taking apart. */

static ExprTerm split_term(const ExprPool *p, Expr e) {
    const ExprNode *n = expr_node(p, e);
    if (n->op == EX_const) return (ExprTerm){0, n->value};
    if (n->op == EX_mul && expr_op(p, n->arg[1]) == EX_const)
        return (ExprTerm){n->arg[0], expr_value(p, n->arg[1])};
    return (ExprTerm){e, 1};
}

bool expr_terms(const ExprPool *p, Expr e, ExprSum *out) {
    uint32_t n = 1;
    for (Expr x = e; expr_op(p, x) == EX_add; x = expr_arg(p, x, 0))
        if (++n > EXPR_MAX_TERMS) return false;
    out->n = n;
    for (; n > 1; n--, e = expr_arg(p, e, 0)) out->t[n - 1] = split_term(p, expr_arg(p, e, 1));
    out->t[0] = split_term(p, e);
    if (!out->t[0].prod && !out->t[0].coef) out->n = 0;
    return true;
}

uint32_t expr_atoms(const ExprPool *p, Expr prod, Expr out[EXPR_MAX_ATOMS]) {
    uint32_t n = 1;
    if (!prod) return 0;
    for (Expr x = prod; expr_op(p, x) == EX_mul; x = expr_arg(p, x, 0))
        if (++n > EXPR_MAX_ATOMS) return 0;
    for (uint32_t i = n; i > 1; i--, prod = expr_arg(p, prod, 0)) out[i - 1] = expr_arg(p, prod, 1);
    out[0] = prod;
    return n;
}

/* Putting together. */

static Expr from_atoms(ExprPool *p, const Expr *atom, uint32_t n) {
    Expr e = n ? atom[0] : 0;
    for (uint32_t i = 1; i < n; i++) e = expr_intern(p, EX_mul, e, atom[i], 0);
    return e;
}

Expr expr_term(ExprPool *p, ExprTerm t) {
    if (!t.prod || !t.coef) return expr_const(p, t.coef);
    return t.coef == 1 ? t.prod : expr_intern(p, EX_mul, t.prod, expr_const(p, t.coef), 0);
}

Expr expr_from_terms(ExprPool *p, const ExprSum *s) {
    if (!s->n) return expr_const(p, 0);
    Expr e = expr_term(p, s->t[0]);
    for (uint32_t i = 1; i < s->n; i++) e = expr_intern(p, EX_add, e, expr_term(p, s->t[i]), 0);
    return e;
}

/* Order of products: atom by atom, the longer of two with a common start first, the constant last.
 */
static int compare_prod(const ExprPool *p, Expr a, Expr b) {
    if (a == b) return 0;
    if (!a || !b) return a ? -1 : 1;
    Expr x[EXPR_MAX_ATOMS], y[EXPR_MAX_ATOMS];
    uint32_t nx = expr_atoms(p, a, x), ny = expr_atoms(p, b, y);
    for (uint32_t i = 0; i < nx && i < ny; i++) {
        int c = expr_compare(p, x[i], y[i]);
        if (c) return c;
    }
    return nx == ny ? expr_compare(p, a, b) : nx > ny ? -1 : 1;
}

/* out = a + scale*b; false when there are too many terms. */
static bool merge(const ExprPool *p, const ExprSum *a, const ExprSum *b, int64_t scale,
                  ExprSum *out) {
    uint32_t i = 0, j = 0, n = 0;
    while (i < a->n || j < b->n) {
        int c = i == a->n ? 1 : j == b->n ? -1 : compare_prod(p, a->t[i].prod, b->t[j].prod);
        ExprTerm t = c <= 0 ? a->t[i] : (ExprTerm){b->t[j].prod, 0};
        if (c >= 0) t.coef = expr_wrap_add(t.coef, expr_wrap_mul(scale, b->t[j].coef));
        i += c <= 0;
        j += c >= 0;
        if (!t.coef) continue;
        if (n == EXPR_MAX_TERMS) return false;
        out->t[n++] = t;
    }
    out->n = n;
    return true;
}

/* a*b as monomials; false when the product has too many atoms. */
static bool mul_terms(ExprPool *p, ExprTerm a, ExprTerm b, ExprTerm *out) {
    Expr x[EXPR_MAX_ATOMS], y[EXPR_MAX_ATOMS], z[EXPR_MAX_ATOMS];
    uint32_t nx = expr_atoms(p, a.prod, x), ny = expr_atoms(p, b.prod, y), i = 0, j = 0;
    if ((a.prod && !nx) || (b.prod && !ny) || nx + ny > EXPR_MAX_ATOMS) return false;
    while (i < nx || j < ny) {
        bool left = j == ny || (i < nx && expr_compare(p, x[i], y[j]) <= 0);
        z[i + j] = left ? x[i] : y[j];
        *(left ? &i : &j) += 1;
    }
    *out = (ExprTerm){from_atoms(p, z, nx + ny), expr_wrap_mul(a.coef, b.coef)};
    return true;
}

bool expr_term_div(ExprPool *p, ExprTerm t, ExprTerm d, ExprTerm *out) {
    if (!d.coef || expr_floor_mod(t.coef, d.coef)) return false;
    Expr x[EXPR_MAX_ATOMS], y[EXPR_MAX_ATOMS], z[EXPR_MAX_ATOMS];
    uint32_t nx = expr_atoms(p, t.prod, x), ny = expr_atoms(p, d.prod, y), j = 0, n = 0;
    if (d.prod && !ny) return false;
    for (uint32_t i = 0; i < nx; i++) {
        if (j < ny && x[i] == y[j])
            j++;
        else
            z[n++] = x[i];
    }
    if (j < ny) return false;
    *out = (ExprTerm){from_atoms(p, z, n), expr_floor_div(t.coef, d.coef)};
    return true;
}

ExprTerm expr_term_gcd(ExprPool *p, ExprTerm a, ExprTerm b) {
    Expr x[EXPR_MAX_ATOMS], y[EXPR_MAX_ATOMS], z[EXPR_MAX_ATOMS];
    uint32_t nx = expr_atoms(p, a.prod, x), ny = expr_atoms(p, b.prod, y), j = 0, n = 0;
    for (uint32_t i = 0; i < nx; i++)
        for (uint32_t k = j; k < ny; k++)
            if (x[i] == y[k]) {
                z[n++] = x[i];
                j = k + 1;
                break;
            }
    return (ExprTerm){from_atoms(p, z, n), expr_gcd(a.coef, b.coef)};
}

/* (x / n)*n + x % n = x, and ((x / k) % m)*k + x % k = x % (k*m): what flattening an index that was
 * split before gives. Each step removes a remainder, so this ends. */

static int64_t coef_of(const ExprSum *s, Expr prod) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->t[i].prod == prod) return s->t[i].coef;
    return 0;
}

/* Every term of `part` but its constant occurs in s with the same coefficient. */
static bool contains(const ExprSum *s, const ExprSum *part) {
    for (uint32_t i = 0; i < part->n; i++)
        if (part->t[i].prod && coef_of(s, part->t[i].prod) != part->t[i].coef) return false;
    return part->n > 0 && part->t[0].prod;
}

/* If `upper`*k is in s, returns s without it and without `term`, plus `whole`. */
static Expr replace_pair(ExprPool *p, const ExprSum *s, Expr upper, Expr term, Expr whole) {
    ExprSum u;
    if (!expr_terms(p, upper, &u) || !contains(s, &u)) return 0;
    Expr e = expr_from_terms(p, s);
    return expr_add(p, expr_sub(p, expr_sub(p, e, upper), term), whole);
}

static Expr join_one(ExprPool *p, const ExprSum *s, ExprTerm t, Expr atom) {
    ExprTerm others; /* t == others * atom */
    if (!expr_term_div(p, t, (ExprTerm){atom, 1}, &others)) return 0;
    Expr f = expr_term(p, others), term = expr_term(p, t);
    Expr x = expr_arg(p, atom, 0), n = expr_arg(p, atom, 1);
    if (!expr_positive(p, n)) return 0;
    Expr q = expr_div(p, x, n), fn = expr_mul(p, f, n);
    Expr r = replace_pair(p, s, expr_mul(p, fn, q), term, expr_mul(p, f, x));
    if (r) return r;
    for (uint32_t i = 0; i < s->n; i++) {
        Expr y[EXPR_MAX_ATOMS];
        uint32_t ny = expr_atoms(p, s->t[i].prod, y);
        for (uint32_t j = 0; j < ny; j++) {
            if (expr_op(p, y[j]) != EX_mod || expr_arg(p, y[j], 0) != q) continue;
            Expr m = expr_arg(p, y[j], 1);
            if (!expr_positive(p, m)) continue;
            Expr whole = expr_mod(p, x, expr_mul(p, n, m));
            r = replace_pair(p, s, expr_mul(p, fn, y[j]), term, expr_mul(p, f, whole));
            if (r) return r;
        }
    }
    return 0;
}

static Expr join_div_mod(ExprPool *p, const ExprSum *s) {
    if (s->n < 2) return 0;
    for (uint32_t i = 0; i < s->n; i++) {
        Expr x[EXPR_MAX_ATOMS];
        uint32_t nx = expr_atoms(p, s->t[i].prod, x);
        for (uint32_t j = 0; j < nx; j++) {
            if (expr_op(p, x[j]) != EX_mod) continue;
            Expr r = join_one(p, s, s->t[i], x[j]);
            if (r) return r;
        }
    }
    return 0;
}

/* x - min(x, y) = max(x - y, 0), y + max(x - y, 0) = max(x, y) and their like, and min(x, y) +
 * max(x, y) = x + y: what is left of an axis behind a slice, and what both parts are together. Each
 * step removes terms, so this ends; without it a slice of a slice of an open axis doubles the
 * formula of its size. */

/* The atom of a term that is one, if it is a min or a max. */
static Expr extremum_of(const ExprPool *p, ExprTerm t) {
    ExprOp op = t.prod ? expr_op(p, t.prod) : EX_const;
    return op == EX_min || op == EX_max ? t.prod : 0;
}

/* s without t and t2, as they stand. */
static bool without(const ExprPool *p, const ExprSum *s, ExprTerm t, const ExprSum *t2,
                    ExprSum *out) {
    ExprSum one = {.n = 1, .t = {t}}, x;
    return merge(p, s, &one, -1, &x) && merge(p, &x, t2, -1, out);
}

/* s without k*atom and -k*u, where atom is op(u, v): rest + k*op(0, v - u), for k > 0. */
static Expr absorb(ExprPool *p, const ExprSum *s, ExprTerm t, Expr u, Expr v) {
    ExprSum x, minus;
    if (!expr_terms(p, expr_muli(p, u, expr_wrap_mul(t.coef, -1)), &minus) ||
        !contains(s, &minus) || !without(p, s, t, &minus, &x))
        return 0;
    const bool max = (expr_op(p, t.prod) == EX_max) == (t.coef > 0);
    const int64_t k = t.coef > 0 ? t.coef : expr_wrap_mul(t.coef, -1);
    if (k <= 0) return 0;
    Expr gap = t.coef > 0 ? expr_sub(p, v, u) : expr_sub(p, u, v), zero = expr_const(p, 0);
    if (x.n == 1 && !x.t[0].prod && x.t[0].coef % k == 0) { /* a number goes inside */
        zero = expr_const(p, x.t[0].coef / k);
        gap = expr_add(p, gap, zero);
        x.n = 0;
    }
    return expr_add(p, expr_from_terms(p, &x),
                    expr_muli(p, (max ? expr_max : expr_min)(p, gap, zero), k));
}

/* k*max(u, v) + k*min(a, b) = k*(u + b) where u - v = a - b. */
static Expr both_ends(ExprPool *p, const ExprSum *s, ExprTerm t) {
    Expr u = expr_arg(p, t.prod, 0), d = expr_sub(p, u, expr_arg(p, t.prod, 1));
    for (uint32_t i = 0; i < s->n; i++) {
        ExprTerm m = s->t[i];
        if (m.coef != t.coef || !extremum_of(p, m) || expr_op(p, m.prod) != EX_min) continue;
        for (int side = 0; side < 2; side++) {
            Expr a = expr_arg(p, m.prod, side), b = expr_arg(p, m.prod, 1 - side);
            if (expr_sub(p, a, b) != d) continue;
            ExprSum x, one = {.n = 1, .t = {m}};
            if (!without(p, s, t, &one, &x)) return 0;
            return expr_add(p, expr_from_terms(p, &x), expr_muli(p, expr_add(p, u, b), t.coef));
        }
    }
    return 0;
}

static Expr join_extrema(ExprPool *p, const ExprSum *s) {
    for (uint32_t i = 0; s->n > 1 && i < s->n; i++) {
        Expr x = extremum_of(p, s->t[i]), r = 0;
        for (int side = 0; x && !r && side < 2; side++)
            r = absorb(p, s, s->t[i], expr_arg(p, x, side), expr_arg(p, x, 1 - side));
        if (x && !r && expr_op(p, x) == EX_max) r = both_ends(p, s, s->t[i]);
        if (r) return r;
    }
    return 0;
}

static Expr finish(ExprPool *p, const ExprSum *s) {
    Expr joined = join_div_mod(p, s);
    if (!joined) joined = join_extrema(p, s);
    return joined ? joined : expr_from_terms(p, s);
}

static Expr linear(ExprPool *p, Expr a, Expr b, int64_t scale) {
    ExprSum x, y, z;
    if (!expr_terms(p, a, &x) || !expr_terms(p, b, &y) || !merge(p, &x, &y, scale, &z)) {
        if (scale != 1) b = expr_intern(p, EX_mul, b, expr_const(p, scale), 0);
        return expr_intern(p, EX_add, a, b, 0);
    }
    return finish(p, &z);
}

Expr expr_add(ExprPool *p, Expr a, Expr b) {
    if (!a || !b) return 0;
    if (expr_is_value(p, a, 0)) return b;
    if (expr_is_value(p, b, 0)) return a;
    Expr r;
    if (expr_memo_get(p, EX_add, a, b, &r)) return r;
    return expr_memo_put(p, EX_add, a, b, linear(p, a, b, 1));
}

Expr expr_muli(ExprPool *p, Expr a, int64_t c) {
    if (!a || c == 1) return a;
    ExprSum x;
    if (c == 0) return expr_const(p, 0);
    if (!expr_terms(p, a, &x)) return expr_intern(p, EX_mul, a, expr_const(p, c), 0);
    ExprSum z = {0};
    for (uint32_t i = 0; i < x.n; i++) {
        int64_t k = expr_wrap_mul(x.t[i].coef, c);
        if (k) z.t[z.n++] = (ExprTerm){x.t[i].prod, k};
    }
    return expr_from_terms(p, &z);
}

Expr expr_addi(ExprPool *p, Expr a, int64_t c) {
    return expr_add(p, a, expr_const(p, c));
}
Expr expr_sub(ExprPool *p, Expr a, Expr b) {
    return expr_add(p, a, expr_muli(p, b, -1));
}

/* Products of sums are multiplied out while the result stays small. */
enum { MAX_EXPANDED = 32 };

static Expr product(ExprPool *p, Expr a, Expr b) {
    ExprSum x, y, z = {0};
    if (!expr_terms(p, a, &x) || !expr_terms(p, b, &y) || x.n * y.n > MAX_EXPANDED) return 0;
    for (uint32_t i = 0; i < x.n; i++) {
        for (uint32_t j = 0; j < y.n; j++) {
            ExprSum one = {.n = 1}, sum;
            if (!mul_terms(p, x.t[i], y.t[j], &one.t[0]) || !merge(p, &z, &one, 1, &sum)) return 0;
            z = sum;
        }
    }
    return finish(p, &z);
}

Expr expr_mul(ExprPool *p, Expr a, Expr b) {
    int64_t c;
    if (!a || !b) return 0;
    if (expr_is_const(p, a, &c)) return expr_muli(p, b, c);
    if (expr_is_const(p, b, &c)) return expr_muli(p, a, c);
    Expr r;
    if (expr_memo_get(p, EX_mul, a, b, &r)) return r;
    r = product(p, a, b);
    if (!r)
        r = expr_compare(p, a, b) <= 0 ? expr_intern(p, EX_mul, a, b, 0)
                                       : expr_intern(p, EX_mul, b, a, 0);
    return expr_memo_put(p, EX_mul, a, b, r);
}

bool expr_affine(ExprPool *p, Expr e, uint32_t sym, Expr *coef, Expr *rest) {
    ExprSum s;
    Expr x = expr_sym_ref(p, sym);
    if (!expr_terms(p, e, &s)) return false;
    Expr c = expr_const(p, 0), r = c;
    for (uint32_t i = 0; i < s.n; i++) {
        ExprTerm q;
        Expr t = expr_term(p, s.t[i]);
        if (!expr_uses(p, t, sym)) {
            r = expr_add(p, r, t);
        } else if (expr_term_div(p, s.t[i], (ExprTerm){x, 1}, &q) &&
                   (!q.prod || !expr_uses(p, q.prod, sym))) {
            c = expr_add(p, c, expr_term(p, q));
        } else {
            return false;
        }
    }
    *coef = c;
    *rest = r;
    return true;
}

int64_t expr_divisor(const ExprPool *p, Expr e) {
    const ExprNode *n = expr_node(p, e);
    int64_t d = 0;
    switch ((ExprOp)n->op) {
    case EX_const: return expr_gcd(n->value, 0);
    case EX_mul:
        if (__builtin_mul_overflow(expr_divisor(p, n->arg[0]), expr_divisor(p, n->arg[1]), &d))
            return 1;
        return d;
    case EX_add:
    case EX_mod:
    case EX_min:
    case EX_max: return expr_gcd(expr_divisor(p, n->arg[0]), expr_divisor(p, n->arg[1]));
    case EX_select: return expr_gcd(expr_divisor(p, n->arg[1]), expr_divisor(p, n->arg[2]));
    default: return 1;
    }
}
