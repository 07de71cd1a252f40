/* Scatter: a copy of the data, then the updates in order. */
#include "fusion/special/special.h"

void scatter_store(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    Group *copy = group_new(f, GROUP_map);
    Root r = {.v = n->in[0], .to = TO_whole, .into = v};
    r.idx = idx_axes(f, copy, &n->type);
    vec_push(f->arena, &copy->roots, r);
    Group *g = group_new(f, GROUP_scatter);
    copy->prepare = g->prepare = f->fact[v].const_only;
    group_dep(f, g, copy->id);
    IdxId idx = idx_axes(f, g, graph_type(f->g, n->in[1]));
    g->fixed = (1u << g->naxes) - 1;
    fuse_own_root(f, g, v, idx);
    for (uint32_t i = 1; i < n->nin; i++) fuse_demand(f, g, n->in[i], idx, USE_point, READ_plain);
    fuse_demand(f, copy, n->in[0], r.idx, USE_point, READ_masked);
}

/* A coordinate of the element to update, as a symbol, and the range check it needs. */
static Expr coordinate(Body *b, Value index, IdxId idx, Expr extent, Expr *mask) {
    Fuse *f = b->f;
    SymInfo s = {.name = arena_printf(f->arena, "at%u", ++f->count->syms),
                 .kind = SYM_INDIRECT,
                 .lo = INT64_MIN,
                 .hi = INT64_MAX};
    Expr e = expr_sym_new(f->p, s);
    KOp o = body_blank(K_kbind, DT_i64);
    o.in[0] = body_cast(b, pull(b, index, idx, 0), DT_i64);
    expr_is_sym(f->p, e, &o.sym);
    body_op(b, o);
    *mask = expr_mask_and(f->p, *mask, expr_in_range(f->p, e, extent));
    return e;
}

void scatter_lower(Body *b, const Root *r) {
    Fuse *f = b->f;
    const Node *n = graph_node(f->g, r->v);
    IdxId idx = r->idx;
    Expr dim[GRAPH_MAX_RANK], mask = 0;
    for (uint32_t d = 0; d < n->type.rank; d++) {
        int src = n->attr.index.src[d];
        if (src >= 0) {
            dim[d] = idx_get(b->g, idx)->dim[src];
            mask = expr_mask_and(f->p, mask, expr_in_range(f->p, dim[d], n->type.dim[d]));
        } else {
            dim[d] = coordinate(b, n->in[1 - src], idx, n->type.dim[d], &mask);
        }
    }
    KOp o = body_blank(K_katomic, n->type.dtype);
    o.fold = n->attr.index.mode;
    o.in[0] = body_cast(b, pull(b, n->in[1], idx, 0), n->type.dtype);
    o.buf = body_param(b, f->stored[r->v].buf - 1, true);
    o.index = idx_join(f->p, n->type.rank, dim, n->type.dim);
    o.mask = mask;
    b->k->serial = true;
    body_op(b, o);
}
