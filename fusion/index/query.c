/* What an index depends on. Nothing here changes a group. */
#include "fusion/fuse.h"

typedef struct AxesUsed {
    const Fuse *f;
    const Group *g;
    uint32_t used;
} AxesUsed;

/* What a gather binds depends on the axes of the index operand's position. */
static void note_axes(void *ctx, uint32_t sym) {
    AxesUsed *a = ctx;
    a->used |= axis_bit(a->g, sym);
    for (uint32_t i = 0; i < a->g->syms.n; i++)
        if (a->g->syms.v[i].sym == sym) a->used |= idx_axes_used(a->f, a->g, a->g->syms.v[i].idx);
}

uint32_t expr_axes_used(const Fuse *f, const Group *g, Expr e) {
    AxesUsed a = {f, g, 0};
    if (e) expr_each_sym(f->p, e, note_axes, &a);
    return a.used;
}

uint32_t idx_axes_used(const Fuse *f, const Group *g, IdxId id) {
    const Idx *x = idx_get(g, id);
    uint32_t used = 0;
    for (uint32_t i = 0; i < x->rank; i++) used |= expr_axes_used(f, g, x->dim[i]);
    return used;
}

bool expr_awkward(const Fuse *f, const Group *g, Expr e, uint32_t axes) {
    ExprOp op = expr_op(f->p, e);
    if (op == EX_const || op == EX_sym) return false;
    if (op == EX_div || op == EX_mod) return (expr_axes_used(f, g, e) & axes) != 0;
    int n = op == EX_select ? 3 : 2;
    for (int i = 0; i < n; i++)
        if (expr_awkward(f, g, expr_arg(f->p, e, i), axes)) return true;
    return false;
}

bool idx_awkward(const Fuse *f, const Group *g, IdxId id, uint32_t axes) {
    const Idx *x = idx_get(g, id);
    for (uint32_t i = 0; i < x->rank; i++)
        if (expr_awkward(f, g, x->dim[i], axes)) return true;
    return false;
}

bool idx_covers(const Fuse *f, const Group *g, IdxId id, uint32_t axes) {
    Expr rest = idx_get(g, id)->flat, stride = expr_const(f->p, 1);
    Expr coef[K_MAX_AXES];
    if (expr_axes_used(f, g, rest) != axes) return false;
    for (uint32_t i = 0; i < g->naxes; i++)
        if ((axes >> i & 1) && !expr_affine(f->p, rest, g->axes[i].sym, &coef[i], &rest))
            return false;
    if (!expr_is_value(f->p, rest, 0)) return false;
    while (axes) {
        uint32_t i = 0;
        while (i < g->naxes && !((axes >> i & 1) && coef[i] == stride)) i++;
        if (i == g->naxes) return false;
        stride = expr_mul(f->p, stride, g->axes[i].extent);
        axes &= ~(1u << i);
    }
    const Idx *x = idx_get(g, id);
    Expr n = expr_const(f->p, 1);
    for (uint32_t i = 0; i < x->rank; i++) n = expr_mul(f->p, n, x->extent[i]);
    return n == stride;
}
