/* Axes are split where that keeps indices affine: in all indices of the group at once. */
#include "fusion/fuse.h"
#include <string.h>

typedef struct SplitAt {
    uint32_t axis;
    Expr inner;
} SplitAt;

/* d / |coef|, where that is exact and an extent. */
static bool split_at(ExprPool *p, Expr d, Expr coef, Expr *inner) {
    int64_t lo, hi;
    expr_range(p, coef, &lo, &hi);
    if (hi < 0) coef = expr_muli(p, coef, -1); /* walked backwards */
    if (!expr_exact_div(p, d, coef, inner) || expr_is_value(p, *inner, 1)) return false;
    expr_range(p, *inner, &lo, &hi);
    return lo >= 0;
}

/* Does `arg` taken by divisor d ask for one of the group's axes to be split, and where? */
static bool split_wanted(const Fuse *f, const Group *g, Expr arg, Expr d, SplitAt *out) {
    if (expr_axes_used(f, g, d)) return false;
    for (uint32_t i = 0; i < g->naxes; i++) {
        if ((g->fixed >> i & 1) || !expr_uses(f->p, arg, g->axes[i].sym)) continue;
        Expr coef, rest, inner, outer;
        if (!expr_affine(f->p, arg, g->axes[i].sym, &coef, &rest)) continue;
        if (!split_at(f->p, d, coef, &inner)) continue;
        if (!expr_exact_div(f->p, g->axes[i].extent, inner, &outer)) continue;
        if (expr_is_value(f->p, outer, 1)) continue;
        *out = (SplitAt){i, inner};
        return true;
    }
    return false;
}

static bool find_split(const Fuse *f, const Group *g, Expr e, SplitAt *out) {
    ExprOp op = expr_op(f->p, e);
    if (op == EX_const || op == EX_sym) return false;
    if (op == EX_div || op == EX_mod) {
        Expr arg = expr_arg(f->p, e, 0), d = expr_arg(f->p, e, 1);
        if (find_split(f, g, arg, out)) return true;
        return split_wanted(f, g, arg, d, out);
    }
    int n = op == EX_select ? 3 : 2;
    for (int i = 0; i < n; i++)
        if (find_split(f, g, expr_arg(f->p, e, i), out)) return true;
    return false;
}

/* Axis i becomes two neighbours, outer and inner. */
static void axis_split(Fuse *f, Group *g, uint32_t i, Expr inner) {
    KAxis old = g->axes[i];
    Expr outer = expr_div(f->p, old.extent, inner);
    Expr x1 = axis_new(f, g, outer, old.kind), x0 = axis_new(f, g, inner, old.kind);
    KAxis a1 = g->axes[g->naxes - 2], a0 = g->axes[g->naxes - 1];
    memmove(&g->axes[i + 2], &g->axes[i + 1], (g->naxes - 3 - i) * sizeof g->axes[0]);
    g->axes[i] = a1;
    g->axes[i + 1] = a0;
    g->naxes--;
    uint32_t low = (1u << i) - 1;
    g->fixed = (g->fixed & low) | (g->fixed & ~(low | 1u << i)) << 1;
    idx_subst(f, g, old.sym, expr_add(f->p, expr_mul(f->p, x1, inner), x0));
}

IdxId idx_split_axes(Fuse *f, Group *g, IdxId id) {
    for (int round = 0; round < 8 && g->naxes + 2 <= K_MAX_AXES - 4; round++) {
        SplitAt at;
        bool found = false;
        Idx x = *idx_get(g, id);
        for (uint32_t i = 0; i < x.rank && !found; i++) found = find_split(f, g, x.dim[i], &at);
        if (!found) break;
        axis_split(f, g, at.axis, at.inner);
    }
    return id;
}
