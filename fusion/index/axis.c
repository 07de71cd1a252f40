/* The axes of a group. */
#include "fusion/fuse.h"

Expr axis_new(Fuse *f, Group *g, Expr extent, KAxisKind kind) {
    GC_ASSERT(g->naxes < K_MAX_AXES);
    int64_t lo, hi;
    expr_range(f->p, extent, &lo, &hi);
    int64_t hint = expr_hint(f->p, extent);
    SymInfo s = {.name = arena_printf(f->arena, "x%u", ++f->count->syms),
                 .kind = SYM_AXIS,
                 .hi = hi == INT64_MAX ? INT64_MAX
                       : hi > 0        ? hi - 1
                                       : 0,
                 .hint = hint > 1 ? hint / 2 : 0,
                 .below = extent};
    Expr e = expr_sym_new(f->p, s);
    KAxis *x = &g->axes[g->naxes++];
    expr_is_sym(f->p, e, &x->sym);
    x->extent = extent;
    x->kind = kind;
    return e;
}

uint32_t group_axes(const Group *g, KAxisKind kind) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < g->naxes; i++)
        if (g->axes[i].kind == kind) mask |= 1u << i;
    return mask;
}

Expr group_extent(const Fuse *f, const Group *g, uint32_t axes) {
    Expr n = expr_const(f->p, 1);
    for (uint32_t i = 0; i < g->naxes; i++)
        if (axes >> i & 1) n = expr_mul(f->p, n, g->axes[i].extent);
    return n;
}

uint32_t axis_bit(const Group *g, uint32_t sym) {
    for (uint32_t i = 0; i < g->naxes; i++)
        if (g->axes[i].sym == sym) return 1u << i;
    return 0;
}
