/* The step that prepares a packed operand, whatever its form. Its axes are those of the buffer, in
 * the buffer's order, unless its form stores by itself. */
#include "fusion/special/special.h"

void pack_put(Body *b, const Root *r, KVal x) {
    ExprPool *p = b->f->p;
    const Pack *k = &b->f->packs.v[r->at];
    Expr at = expr_const(p, 0);
    x = body_or_zero(b, x, b->g->pack_mask);
    for (uint32_t i = 0; i < b->g->naxes; i++) {
        Expr step = expr_sym_ref(p, b->g->axes[i].sym);
        at = expr_add(p, expr_mul(p, at, b->g->axes[i].extent), step);
    }
    body_store(b, k->dtype, x, k->buf - 1, at, 0);
}

void pack_copy(Body *b, const Root *r) {
    pack_put(b, r, pull(b, r->v, r->idx, b->g->pack_mask));
}

static void pack_group(Fuse *f, Pack *k) {
    Group *g = group_new(f, GROUP_pack);
    Expr dim[GRAPH_MAX_RANK], column;
    k->form->axes(f, g, k, dim, &column);
    g->fixed = (1u << g->naxes) - 1;
    g->prepare = f->fact[k->b].const_only;
    k->group = g->id;
    Root r = {.v = k->b, .to = TO_pack, .at = f->packs.n};
    r.idx = idx_make(f, g, graph_type(f->g, k->b), dim, 0);
    g->pack_mask = expr_mask_and(f->p, g->pack_mask, expr_lt(f->p, column, k->n));
    if (expr_is_value(f->p, g->pack_mask, 1)) g->pack_mask = 0;
    vec_push(f->arena, &g->roots, r);
    fuse_demand(f, g, k->b, r.idx, USE_point, READ_masked);
    vec_push(f->arena, &f->packs, *k);
}

uint32_t pack_make(Fuse *f, Pack *k) {
    for (uint32_t i = 0; i < f->packs.n; i++) {
        const Pack *o = &f->packs.v[i];
        /* n: what is the same for all columns may be that of several operands */
        if (o->b == k->b && o->k == k->k && o->n == k->n && o->ngroup == k->ngroup &&
            o->form == k->form)
            return i;
    }
    pack_group(f, k);
    return f->packs.n - 1;
}
