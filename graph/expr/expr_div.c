/* Floored division and remainder.
 *
 * The dividend is split as a = n*q + r, taking every term that the divisor divides; then
 *   0 <= r < n         a / n = q           a % n = r
 *   n > 0              a / n = q + r / n   a % n = r % n
 * The first needs no separate n > 0: it follows from the two bounds. What is left of r is shrunk by
 * a common factor: r = g*T + S with g | n and 0 <= S < g gives r / n = T / (n/g) and
 * r % n = g*(T % (n/g)) + S, which is what undoes row-major flattening. */
#include "graph/expr/expr_impl.h"

typedef struct Split {
    Expr q, r;
} Split;

static Expr minus_product(ExprPool *p, Expr a, Expr q, Expr n) {
    return expr_sub(p, a, expr_mul(p, q, n));
}

/* The term of n that polynomial division divides by: the one with the most atoms. */
static ExprTerm leading(const ExprPool *p, const ExprSum *n) {
    uint32_t best = 0, most = 0;
    for (uint32_t i = 0; i < n->n; i++) {
        Expr x[EXPR_MAX_ATOMS];
        uint32_t nx = expr_atoms(p, n->t[i].prod, x);
        if (nx > most) {
            most = nx;
            best = i;
        }
    }
    return n->t[best];
}

/* Quotient of one term of a by the leading term; a constant is split with floor, which is what
 * makes (x - 1)/4 + 1 and (x + 3)/4 the same. */
static bool quotient(ExprPool *p, ExprTerm t, ExprTerm lead, Expr *q) {
    ExprTerm d;
    if (!t.prod && !lead.prod) {
        *q = expr_const(p, expr_floor_div(t.coef, lead.coef));
        return !expr_is_value(p, *q, 0);
    }
    if (!expr_term_div(p, t, lead, &d)) return false;
    *q = expr_term(p, d);
    return true;
}

static Split split(ExprPool *p, Expr a, Expr n) {
    ExprSum ns, as;
    Split s = {expr_const(p, 0), a};
    if (!expr_terms(p, n, &ns) || !ns.n) return s;
    ExprTerm lead = leading(p, &ns);
    /* One round does for a divisor of one term; more terms can bring back divisible ones. */
    for (int round = 0; round < (ns.n == 1 ? 1 : 8); round++) {
        bool again = false;
        if (!expr_terms(p, s.r, &as)) break;
        for (uint32_t i = 0; i < as.n; i++) {
            Expr q;
            if (!quotient(p, as.t[i], lead, &q)) continue;
            s.q = expr_add(p, s.q, q);
            s.r = minus_product(p, s.r, q, n);
            again = true;
        }
        if (!again) break;
    }
    return s;
}

/* Finds k with k*n <= r < (k+1)*n for all values; true on success, r then reduced. */
static bool settle(ExprPool *p, Split *s, Expr n) {
    int64_t c, lo, hi;
    if (expr_nonneg(p, s->r) && expr_less(p, s->r, n)) return true;
    if (expr_is_const(p, n, &c)) {
        expr_range(p, s->r, &lo, &hi);
        if (c <= 0 || lo == INT64_MIN || hi == INT64_MAX) return false;
        int64_t k = expr_floor_div(lo, c);
        if (k != expr_floor_div(hi, c)) return false;
        s->q = expr_addi(p, s->q, k);
        s->r = expr_addi(p, s->r, expr_wrap_mul(-k, c));
        return true;
    }
    for (int k = -1; k <= 1; k += 2) {
        Expr r = k < 0 ? expr_add(p, s->r, n) : expr_sub(p, s->r, n);
        if (!expr_nonneg(p, r) || !expr_less(p, r, n)) continue;
        *s = (Split){expr_addi(p, s->q, k), r};
        return true;
    }
    return false;
}

/* r = g*T + S with 0 <= S < g, g | n: gives T, S, n/g and g. */
typedef struct Factor {
    Expr T, S, n, g;
} Factor;

static bool factor_by(ExprPool *p, const ExprSum *r, ExprTerm n, ExprTerm g, Factor *f) {
    ExprTerm d;
    if (!expr_term_div(p, n, g, &d)) return false;
    Expr T = expr_const(p, 0), S = T, ge = expr_term(p, g);
    f->n = expr_term(p, d);
    for (uint32_t i = 0; i < r->n; i++) {
        ExprTerm t = r->t[i];
        if (!t.prod && !g.prod) { /* the constant gives each side its part */
            T = expr_addi(p, T, expr_floor_div(t.coef, g.coef));
            S = expr_addi(p, S, expr_floor_mod(t.coef, g.coef));
        } else if (expr_term_div(p, t, g, &d)) {
            T = expr_add(p, T, expr_term(p, d));
        } else {
            S = expr_add(p, S, expr_term(p, t));
        }
    }
    if (!expr_nonneg(p, S) || !expr_less(p, S, ge)) return false;
    f->T = T;
    f->S = S;
    f->g = ge;
    return true;
}

static bool factor(ExprPool *p, Expr r, Expr n, Factor *f) {
    ExprSum rs, ns;
    if (!expr_terms(p, n, &ns) || ns.n != 1 || ns.t[0].coef <= 0 || !expr_terms(p, r, &rs))
        return false;
    for (uint32_t i = 0; i < rs.n; i++) {
        if (!rs.t[i].prod) continue;
        ExprTerm g = expr_term_gcd(p, rs.t[i], ns.t[0]);
        if (!g.prod && g.coef <= 1) continue;
        if (factor_by(p, &rs, ns.t[0], g, f)) return true;
    }
    return false;
}

/* (x/m + c)/n = (x + m*c)/(m*n) for m, n > 0, where x/m is the only quotient in r. */
static Expr div_of_div(ExprPool *p, Expr r, Expr n) {
    ExprSum s;
    if (!expr_terms(p, r, &s)) return 0;
    Expr inner = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        if (!s.t[i].prod || expr_op(p, s.t[i].prod) != EX_div) {
            if (s.t[i].prod) return 0;
        } else if (inner || s.t[i].coef != 1) {
            return 0;
        } else {
            inner = s.t[i].prod;
        }
    }
    if (!inner) return 0;
    Expr x = expr_arg(p, inner, 0), m = expr_arg(p, inner, 1);
    if (!expr_positive(p, m)) return 0;
    Expr c = expr_sub(p, r, inner);
    return expr_div(p, expr_add(p, x, expr_mul(p, m, c)), expr_mul(p, m, n));
}

/* (x % m)/n = (x/n) % (m/n) where n divides m, both > 0. */
static Expr div_of_mod(ExprPool *p, Expr r, Expr n) {
    ExprSum ms, ns;
    ExprTerm d;
    if (expr_op(p, r) != EX_mod) return 0;
    Expr x = expr_arg(p, r, 0), m = expr_arg(p, r, 1);
    if (!expr_terms(p, m, &ms) || !expr_terms(p, n, &ns) || ms.n != 1 || ns.n != 1) return 0;
    if (!expr_term_div(p, ms.t[0], ns.t[0], &d) || !expr_positive(p, m)) return 0;
    return expr_mod(p, expr_div(p, x, n), expr_term(p, d));
}

static Expr div_rest(ExprPool *p, Expr r, Expr n) {
    Factor f;
    if (factor(p, r, n, &f)) return expr_div(p, f.T, f.n);
    Expr e = div_of_mod(p, r, n);
    if (!e) e = div_of_div(p, r, n);
    return e ? e : expr_intern(p, EX_div, r, n, 0);
}

static bool one_term(const ExprPool *p, Expr e) {
    return expr_op(p, e) != EX_add;
}

static Expr make_div(ExprPool *p, Expr a, Expr b) {
    int64_t x, y;
    if (expr_is_const(p, b, &y)) {
        if (y == 1) return a;
        if (y == 0) return b;
        if (y == -1) return expr_muli(p, a, -1);
        if (expr_is_const(p, a, &x)) return expr_const(p, expr_floor_div(x, y));
    }
    if (expr_is_value(p, a, 0)) return a;
    Split s = split(p, a, b);
    if (settle(p, &s, b)) return s.q;
    if (!expr_positive(p, b)) return expr_intern(p, EX_div, a, b, 0);
    if (!one_term(p, b)) return div_rest(p, a, b); /* a partial polynomial quotient helps nobody */
    return expr_add(p, s.q, div_rest(p, s.r, b));
}

Expr expr_div(ExprPool *p, Expr a, Expr b) {
    Expr r;
    if (!a || !b) return 0;
    if (expr_memo_get(p, EX_div, a, b, &r)) return r;
    return expr_memo_put(p, EX_div, a, b, make_div(p, a, b));
}

Expr expr_ceildiv(ExprPool *p, Expr a, Expr b) {
    return expr_div(p, expr_add(p, a, expr_addi(p, b, -1)), b);
}

/* Drops inner remainders that the outer one repeats: c*(x % m) = c*x modulo n where n | c*m. */
static Expr mod_of_mod(ExprPool *p, Expr r, Expr n) {
    ExprSum s, ns;
    if (!expr_terms(p, r, &s) || !expr_terms(p, n, &ns) || ns.n != 1) return r;
    for (uint32_t i = 0; i < s.n; i++) {
        ExprSum ms;
        ExprTerm d;
        Expr x = s.t[i].prod;
        if (!x || expr_op(p, x) != EX_mod || !expr_terms(p, expr_arg(p, x, 1), &ms) || ms.n != 1)
            continue;
        ExprTerm cm = {ms.t[0].prod, expr_wrap_mul(ms.t[0].coef, s.t[i].coef)};
        if (!expr_term_div(p, cm, ns.t[0], &d)) continue;
        Expr change = expr_muli(p, expr_sub(p, expr_arg(p, x, 0), x), s.t[i].coef);
        return expr_add(p, r, change);
    }
    return r;
}

static Expr mod_rest(ExprPool *p, Expr r, Expr n) {
    Factor f;
    if (factor(p, r, n, &f)) return expr_add(p, expr_mul(p, f.g, expr_mod(p, f.T, f.n)), f.S);
    Expr e = mod_of_mod(p, r, n);
    return e != r ? expr_mod(p, e, n) : expr_intern(p, EX_mod, r, n, 0);
}

static Expr make_mod(ExprPool *p, Expr a, Expr b) {
    int64_t x, y;
    if (expr_is_const(p, b, &y)) {
        if (y == 0 || y == 1 || y == -1) return expr_const(p, 0);
        if (expr_is_const(p, a, &x)) return expr_const(p, expr_floor_mod(x, y));
    }
    if (expr_is_value(p, a, 0) || a == b) return expr_const(p, 0);
    Split s = split(p, a, b);
    if (settle(p, &s, b)) return s.r;
    if (!expr_positive(p, b)) return expr_intern(p, EX_mod, a, b, 0);
    return mod_rest(p, one_term(p, b) ? s.r : a, b);
}

Expr expr_mod(ExprPool *p, Expr a, Expr b) {
    Expr r;
    if (!a || !b) return 0;
    if (expr_memo_get(p, EX_mod, a, b, &r)) return r;
    return expr_memo_put(p, EX_mod, a, b, make_mod(p, a, b));
}
