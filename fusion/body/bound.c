/* Bounds of sizes that only the run knows. Memory is there before the run, so a count that a kernel
 * writes becomes the most that it can be (the length of the mask that was counted), and an
 * iteration number the last one. A size may also fall with a count (what is left of n behind the
 * first `count`), hence both ends of an interval are followed through the expression. */
#include "fusion/schedule/schedule.h"
#include "runtime/base/map.h"

typedef struct Interval {
    Expr lo, hi;
} Interval;

/* A symbol that the run gives a value, and the most that it can be. */
typedef struct RunBound {
    uint32_t sym;
    Expr most;
} RunBound;

/* What is known, and the intervals that follow, by expression: bounds of symbols are made of other
 * symbols, and a walk that met each of them anew would be exponential. */
typedef struct RunBounds {
    VEC(RunBound) known;
    MapU64 *index;
    VEC(Interval) at;
} RunBounds;

void schedule_bound_add(Schedule *s, uint32_t sym, Expr most) {
    Arena *a = s->graph->arena;
    if (!s->bounds) s->bounds = ARENA_NEW(a, RunBounds);
    vec_push(a, &s->bounds->known, ((RunBound){sym, most}));
    s->bounds->index = map_create(a); /* what was found before may be narrower now */
    s->bounds->at.n = 0;
}

typedef struct RunSymbols {
    const ExprPool *p;
    bool found;
} RunSymbols;

static void note_symbol(void *ctx, uint32_t sym) {
    RunSymbols *r = ctx;
    SymKind kind = expr_sym_info(r->p, sym)->kind;
    r->found = r->found || kind == SYM_DATA || kind == SYM_ITER;
}

/* e depends on what only the run knows: counts that kernels write, iteration numbers. */
static bool known_in_run(const ExprPool *p, Expr e) {
    RunSymbols r = {p, false};
    if (e) expr_each_sym(p, e, note_symbol, &r);
    return r.found;
}

static Interval from_range(ExprPool *p, Expr e) {
    int64_t lo, hi;
    expr_range(p, e, &lo, &hi);
    return (Interval){expr_const(p, lo), expr_const(p, hi)};
}

static bool at_least(ExprPool *p, Expr e, int64_t least) {
    int64_t lo, hi;
    expr_range(p, e, &lo, &hi);
    return lo >= least;
}

static Interval of_expr(const Schedule *s, Expr e);

static Interval of_symbol(const Schedule *s, Expr e) {
    uint32_t sym;
    Interval r = from_range(s->exprs, e);
    expr_is_sym(s->exprs, e, &sym);
    for (uint32_t i = 0; s->bounds && i < s->bounds->known.n; i++)
        if (s->bounds->known.v[i].sym == sym) r.hi = of_expr(s, s->bounds->known.v[i].most).hi;
    return r;
}

static Interval product(ExprPool *p, Interval a, Interval b) {
    if (at_least(p, a.lo, 0) && at_least(p, b.lo, 0))
        return (Interval){expr_mul(p, a.lo, b.lo), expr_mul(p, a.hi, b.hi)};
    Expr ll = expr_mul(p, a.lo, b.lo), lh = expr_mul(p, a.lo, b.hi);
    Expr hl = expr_mul(p, a.hi, b.lo), hh = expr_mul(p, a.hi, b.hi);
    return (Interval){expr_min(p, expr_min(p, ll, lh), expr_min(p, hl, hh)),
                      expr_max(p, expr_max(p, ll, lh), expr_max(p, hl, hh))};
}

/* By a divisor that is never negative; by 0 it is 0. */
static Interval quotient(ExprPool *p, Interval a, Interval b) {
    Expr zero = expr_const(p, 0), one = expr_const(p, 1);
    bool some = at_least(p, b.lo, 1);
    Expr least = some ? b.lo : expr_max(p, b.lo, one);
    Interval r = {expr_min(p, expr_div(p, a.lo, least), expr_div(p, a.lo, b.hi)),
                  expr_max(p, expr_div(p, a.hi, least), expr_div(p, a.hi, b.hi))};
    if (!some) r = (Interval){expr_min(p, r.lo, zero), expr_max(p, r.hi, zero)};
    return r;
}

static Interval compute(const Schedule *s, Expr e) {
    ExprPool *p = s->exprs;
    ExprOp op = expr_op(p, e);
    Interval x[3], r;
    if (op == EX_sym) return of_symbol(s, e);
    for (int i = 0; i < (op == EX_select ? 3 : 2); i++) x[i] = of_expr(s, expr_arg(p, e, i));
    switch (op) {
    case EX_add: return (Interval){expr_add(p, x[0].lo, x[1].lo), expr_add(p, x[0].hi, x[1].hi)};
    case EX_mul: return product(p, x[0], x[1]);
    case EX_div: return at_least(p, x[1].lo, 0) ? quotient(p, x[0], x[1]) : from_range(p, e);
    case EX_mod:
        r = from_range(p, e);
        if (at_least(p, x[1].lo, 1)) r.hi = expr_addi(p, x[1].hi, -1);
        return r;
    case EX_min: return (Interval){expr_min(p, x[0].lo, x[1].lo), expr_min(p, x[0].hi, x[1].hi)};
    case EX_max: return (Interval){expr_max(p, x[0].lo, x[1].lo), expr_max(p, x[0].hi, x[1].hi)};
    case EX_select: return (Interval){expr_min(p, x[1].lo, x[2].lo), expr_max(p, x[1].hi, x[2].hi)};
    default: return from_range(p, e); /* 0 or 1 */
    }
}

static Interval of_expr(const Schedule *s, Expr e) {
    RunBounds *m = s->bounds;
    uint32_t i;
    if (m && map_get(m->index, e, &i)) return m->at.v[i];
    Interval r = known_in_run(s->exprs, e) ? compute(s, e) : (Interval){e, e};
    if (!m) return r;
    map_put(m->index, e, m->at.n);
    vec_push(s->graph->arena, &m->at, r);
    return r;
}

Expr schedule_bound(const Schedule *s, Expr e) {
    return of_expr(s, e).hi;
}
