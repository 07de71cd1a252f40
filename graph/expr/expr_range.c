/* Bounds. Intervals come bottom-up from the symbols' ranges and are cached in the nodes. Proofs
 * (expr_nonneg) go further: they know that an axis lies below its symbolic extent, and keep the
 * correlation between the terms of a sum that intervals lose. */
#include "graph/expr/expr_impl.h"

/* INT64_MIN and INT64_MAX stand for "unbounded". */
typedef struct Interval {
    int64_t lo, hi;
} Interval;

static const Interval anything = {INT64_MIN, INT64_MAX};

static bool unbounded(int64_t v) {
    return v == INT64_MIN || v == INT64_MAX;
}

static int64_t add_bound(int64_t a, int64_t b, int64_t unknown) {
    int64_t r;
    if (a == unknown || b == unknown) return unknown;
    if (!__builtin_add_overflow(a, b, &r)) return r;
    return a < 0 ? INT64_MIN : INT64_MAX;
}

static int64_t mul_bound(int64_t a, int64_t b) {
    int64_t r;
    if (!a || !b) return 0;
    bool negative = (a < 0) != (b < 0);
    if (unbounded(a) || unbounded(b) || __builtin_mul_overflow(a, b, &r))
        return negative ? INT64_MIN : INT64_MAX;
    return r;
}

static int64_t min2(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t max2(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static Interval mul_range(Interval a, Interval b) {
    int64_t v[4] = {mul_bound(a.lo, b.lo), mul_bound(a.lo, b.hi), mul_bound(a.hi, b.lo),
                    mul_bound(a.hi, b.hi)};
    Interval r = {v[0], v[0]};
    for (int i = 1; i < 4; i++) r = (Interval){min2(r.lo, v[i]), max2(r.hi, v[i])};
    return r;
}

/* A divisor that may be 0 gives 0 there. */
static Interval div_range(Interval a, Interval n) {
    if (n.lo < 0) return anything;
    int64_t small = max2(n.lo, 1), large = max2(n.hi, 1);
    Interval r = {INT64_MIN, INT64_MAX};
    if (a.lo != INT64_MIN) r.lo = expr_floor_div(a.lo, a.lo >= 0 ? large : small);
    if (a.hi != INT64_MAX) r.hi = expr_floor_div(a.hi, a.hi >= 0 ? small : large);
    if (n.lo == 0) r = (Interval){min2(r.lo, 0), max2(r.hi, 0)};
    return r;
}

static Interval mod_range(Interval a, Interval n) {
    if (n.lo < 0) return anything;
    if (a.lo >= 0 && a.hi < n.lo) return a;
    Interval r = {0, n.hi == INT64_MAX ? INT64_MAX : max2(n.hi - 1, 0)};
    if (a.lo >= 0) r.hi = min2(r.hi, a.hi);
    return r;
}

static Interval range(const ExprPool *p, Expr e);

static Interval compute(const ExprPool *p, const ExprNode *n) {
    if (n->op == EX_const) return (Interval){n->value, n->value};
    if (n->op == EX_sym) {
        const SymInfo *s = &p->sym.v[n->arg[0]]->info;
        return (Interval){s->lo, s->hi};
    }
    if (n->op == EX_lt || n->op == EX_eq) return (Interval){0, 1};
    Interval a = range(p, n->arg[0]), b = range(p, n->arg[1]), c;
    switch ((ExprOp)n->op) {
    case EX_add:
        return (Interval){add_bound(a.lo, b.lo, INT64_MIN), add_bound(a.hi, b.hi, INT64_MAX)};
    case EX_mul: return mul_range(a, b);
    case EX_div: return div_range(a, b);
    case EX_mod: return mod_range(a, b);
    case EX_min: return (Interval){min2(a.lo, b.lo), min2(a.hi, b.hi)};
    case EX_max: return (Interval){max2(a.lo, b.lo), max2(a.hi, b.hi)};
    case EX_select: c = range(p, n->arg[2]); return (Interval){min2(b.lo, c.lo), max2(b.hi, c.hi)};
    default: return anything;
    }
}

static Interval range(const ExprPool *p, Expr e) {
    ExprNode *n = expr_at(p, e);
    if (n->gen != p->cache->gen) {
        Interval r = compute(p, n);
        n->lo = r.lo;
        n->hi = r.hi;
        n->gen = p->cache->gen;
        n->nonneg = 0;
    }
    return (Interval){n->lo, n->hi};
}

void expr_range(const ExprPool *p, Expr e, int64_t *lo, int64_t *hi) {
    if (p->cache->lent.n) expr_refresh(p);
    Interval r = range(p, e);
    if (lo) *lo = r.lo;
    if (hi) *hi = r.hi;
}

/* Proofs that a sum is never negative.
 *
 * Seen as a polynomial in one atom x, the sum is c*x + r. Where the sign of c is known, x can be
 * replaced by its worst bound without losing soundness, and the result, free of x, is asked again:
 * lower bounds for c >= 0, upper ones for c <= 0. Symbolic upper bounds (an axis' extent - 1, the
 * divisor of a remainder - 1) go first, because extents then cancel against each other; numbers
 * come last. A budget bounds the search. */

typedef struct Proof {
    ExprPool *p;
    int budget;
} Proof;

/* A symbolic bound of an atom from above; 0 if none. `other` asks for the second choice. */
static Expr upper_atom(ExprPool *p, Expr a, bool other);

static Expr upper_sum(ExprPool *p, Expr e) {
    for (int round = 0; round < 8; round++) {
        ExprSum s;
        Expr next = 0;
        if (!expr_terms(p, e, &s)) return e;
        for (uint32_t i = 0; i < s.n && !next; i++) {
            Expr x[EXPR_MAX_ATOMS];
            uint32_t nx = expr_atoms(p, s.t[i].prod, x);
            for (uint32_t j = 0; j < nx && !next; j++) {
                ExprTerm rest;
                Expr u = upper_atom(p, x[j], false);
                if (!u || !expr_term_div(p, s.t[i], (ExprTerm){x[j], 1}, &rest)) continue;
                Expr f = expr_term(p, rest);
                if (range(p, f).lo >= 0)
                    next = expr_add(p, e, expr_mul(p, f, expr_sub(p, u, x[j])));
            }
        }
        if (!next) return e;
        e = next;
    }
    return e;
}

static Expr upper_atom(ExprPool *p, Expr a, bool other) {
    const ExprNode *n = expr_node(p, a);
    Expr x = n->arg[0], y = n->arg[1];
    int64_t c;
    if (n->op == EX_sym) {
        Expr below = other ? 0 : p->sym.v[x]->info.below;
        return below && !expr_is_const(p, below, NULL) ? expr_addi(p, below, -1) : 0;
    }
    if (n->op == EX_min) return other ? y : x;
    if (other) return 0;
    if (n->op == EX_mod && range(p, y).lo >= 1 && !expr_is_const(p, y, &c))
        return expr_addi(p, y, -1);
    if (n->op == EX_div && range(p, y).lo >= 1) {
        Expr u = upper_sum(p, x);
        return u != x ? expr_div(p, u, y) : 0;
    }
    return 0;
}

static Expr lower_atom(const ExprPool *p, Expr a, bool other) {
    const ExprNode *n = expr_node(p, a);
    return n->op == EX_max ? n->arg[other] : 0;
}

static bool prove(Proof *q, Expr e);

/* The coefficient of atom x in s; false if x occurs squared. */
static bool coefficient(ExprPool *p, const ExprSum *s, Expr x, Expr *out) {
    ExprSum c = {0};
    for (uint32_t i = 0; i < s->n; i++) {
        ExprTerm once, twice;
        if (!expr_term_div(p, s->t[i], (ExprTerm){x, 1}, &once)) continue;
        if (expr_term_div(p, once, (ExprTerm){x, 1}, &twice)) return false;
        c.t[c.n++] = once; /* distinct products stay distinct and sorted without a common atom */
    }
    Expr e = expr_const(p, 0);
    for (uint32_t i = 0; i < c.n; i++) e = expr_add(p, e, expr_term(p, c.t[i]));
    *out = e;
    return c.n > 0;
}

/* Replaces x, whose coefficient is c, by a bound and goes on. */
static bool with_bound(Proof *q, Expr e, Expr x, Expr c, Expr bound) {
    ExprPool *p = q->p;
    return prove(q, expr_add(p, e, expr_mul(p, c, expr_sub(p, bound, x))));
}

static bool try_symbolic(Proof *q, Expr e, Expr x, Expr c) {
    ExprPool *p = q->p;
    Interval rc = range(p, c);
    for (int other = 0; other < 2; other++) {
        Expr b = rc.hi <= 0 ? upper_atom(p, x, other) : rc.lo >= 0 ? lower_atom(p, x, other) : 0;
        if (b && with_bound(q, e, x, c, b)) return true;
    }
    return false;
}

/* Whether every coefficient of c stays far from overflow when multiplied by k. */
static bool scales(ExprPool *p, Expr c, int64_t k) {
    ExprSum s;
    int64_t r;
    if (!expr_terms(p, c, &s)) return false;
    for (uint32_t i = 0; i < s.n; i++)
        if (__builtin_mul_overflow(s.t[i].coef, k, &r) || r > INT64_MAX / 8 || r < INT64_MIN / 8)
            return false;
    return true;
}

static bool try_number(Proof *q, Expr e, Expr x, Expr c) {
    ExprPool *p = q->p;
    Interval rc = range(p, c), rx = range(p, x);
    if (expr_is_const(p, c, NULL)) return false; /* the interval of e knows this already */
    int64_t b = rc.lo >= 0 ? rx.lo : rc.hi <= 0 ? rx.hi : INT64_MIN;
    return !unbounded(b) && scales(p, c, b) && with_bound(q, e, x, c, expr_const(p, b));
}

static bool eliminate(Proof *q, Expr e, const ExprSum *s, bool numbers) {
    Expr tried[16];
    uint32_t ntried = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        Expr x[EXPR_MAX_ATOMS];
        uint32_t nx = expr_atoms(q->p, s->t[i].prod, x);
        for (uint32_t j = 0; j < nx && ntried < 16; j++) {
            Expr c;
            bool seen = false;
            for (uint32_t k = 0; k < ntried; k++) seen |= tried[k] == x[j];
            if (seen) continue;
            tried[ntried++] = x[j];
            if (!coefficient(q->p, s, x[j], &c)) continue;
            if (numbers ? try_number(q, e, x[j], c) : try_symbolic(q, e, x[j], c)) return true;
        }
    }
    return false;
}

static bool prove(Proof *q, Expr e) {
    Interval r = range(q->p, e);
    if (r.lo >= 0) return true;
    if (r.hi < 0 || q->budget-- <= 0) return false;
    ExprSum s;
    if (!expr_terms(q->p, e, &s)) return false;
    return eliminate(q, e, &s, false) || eliminate(q, e, &s, true);
}

bool expr_nonneg(ExprPool *p, Expr e) {
    if (p->cache->lent.n) expr_refresh(p);
    Interval r = range(p, e);
    if (r.lo >= 0) return true;
    if (r.hi < 0) return false;
    ExprNode *n = expr_at(p, e);
    if (!n->nonneg) {
        Proof q = {p, 24};
        n->nonneg = prove(&q, e) ? 1 : 2;
    }
    return n->nonneg == 1;
}

bool expr_positive(ExprPool *p, Expr e) {
    return expr_nonneg(p, expr_addi(p, e, -1));
}

bool expr_less(ExprPool *p, Expr a, Expr b) {
    return expr_nonneg(p, expr_addi(p, expr_sub(p, b, a), -1));
}
