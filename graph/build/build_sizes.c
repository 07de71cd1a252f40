/* Sizes that must agree: what is proved, what is assumed and recorded, what cannot be. */
#include "graph/build/build_impl.h"

bool build_assume(Graph *g, Expr a, Expr b, Loc loc) {
    BuildState *s = builder_of(g);
    const uint64_t key = (uint64_t)a << 32 | b;
    uint32_t at;
    if (s->nassumed > g->nassume) s->nassumed = g->nassume; /* some were taken back */
    for (; s->nassumed < g->nassume; s->nassumed++) {
        const uint32_t i = s->nassumed;
        map_put(s->assumed, (uint64_t)g->assume[i].a << 32 | g->assume[i].b, i);
    }
    if (map_get(s->assumed, key, &at) && at < g->nassume && g->assume[at].a == a &&
        g->assume[at].b == b)
        return false;
    if (g->nassume == g->assume_cap)
        g->assume = vec_grow(g->arena, g->assume, &g->assume_cap, sizeof *g->assume);
    g->assume[g->nassume].a = a;
    g->assume[g->nassume].b = b;
    g->assume[g->nassume++].loc = loc;
    return true;
}

/* From now on `keep` stands for both. The user is told: it narrows what the model accepts. */
static void assume_equal(Graph *g, Expr keep, Expr other) {
    map_put(builder_of(g)->equal, other, keep);
    if (!build_assume(g, keep, other, build_loc(g))) return;
    (void)diag(g->diags, D_ASSUME, graph_place(g, build_loc(g), g->arena), "%s == %s",
               expr_brief(g->exprs, keep, g->arena), expr_brief(g->exprs, other, g->arena));
}

bool build_require(Graph *g, Expr cond) {
    int64_t lo, hi;
    expr_range(g->exprs, cond, &lo, &hi);
    if (hi == 0) return false;
    if (lo < 1) (void)build_assume(g, expr_const(g->exprs, 1), cond, build_loc(g));
    return true;
}

/* Equalities form chains other -> keep; the end of e's chain stands for all of it. */
Expr build_dim_root(Graph *g, Expr e) {
    MapU64 *keep = builder_of(g)->equal;
    Expr root = e, next;
    while (map_get(keep, root, &next)) root = next;
    for (; e != root; e = next) { /* the next look-up is short */
        (void)map_get(keep, e, &next);
        map_put(keep, e, root);
    }
    return root;
}

Expr build_unify_dim(Graph *g, Expr a, Expr b) {
    if (a == b) return a;
    a = build_dim_root(g, a);
    b = build_dim_root(g, b);
    if (a == b) return a;
    int64_t lo, hi, v;
    expr_range(g->exprs, expr_sub(g->exprs, a, b), &lo, &hi);
    if (lo > 0 || hi < 0) return 0;
    uint32_t sym;
    bool swap = expr_is_const(g->exprs, b, &v) ||
                (!expr_is_const(g->exprs, a, &v) && !expr_is_sym(g->exprs, a, &sym) &&
                 expr_is_sym(g->exprs, b, &sym));
    Expr keep = swap ? b : a;
    assume_equal(g, keep, swap ? a : b);
    return keep;
}

bool build_maybe_one(Graph *g, Expr dim, Expr to) {
    dim = build_dim_root(g, dim);
    int64_t n, lo, hi;
    uint32_t sym;
    if (!expr_is_const(g->exprs, to, &n) || n < 2) return false;
    if (expr_is_sym(g->exprs, dim, &sym) && expr_sym_info(g->exprs, sym)->kind == SYM_DIM)
        return false;
    expr_range(g->exprs, dim, &lo, &hi);
    return lo <= 1 && hi > 1 && hi >= n;
}
