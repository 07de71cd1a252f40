/* Constant B operands in panels: [batch][group][ceil(N/NR)][K][NR], zero filled to NR columns. A
 * prepare step writes them once; contractions then stream whole panels. */
#include "fusion/analyse/facts.h"
#include "fusion/special/special.h"

/* B below the views that repeat it along batch dimensions. */
static Value pack_base(const Fuse *f, Value b) {
    while (graph_node(f->g, b)->op == OP_expand) b = graph_node(f->g, b)->in[0];
    return b;
}

static Pack pack_of(Fuse *f, Value dot) {
    ExprPool *p = f->p;
    const Node *n = graph_node(f->g, dot);
    Pack k = {.b = pack_base(f, n->in[1]), .nr = f->m->pack_width};
    const Type *t = graph_type(f->g, k.b);
    bool conv = n->op == OP_conv;
    k.nk = (uint8_t)(conv ? n->attr.conv.n + 1 : 1);
    k.nbatch = (uint8_t)(t->rank - 1 - k.nk);
    k.batch = k.k = expr_const(p, 1);
    for (uint32_t d = 0; d < k.nbatch; d++) k.batch = expr_mul(p, k.batch, t->dim[d]);
    for (uint32_t d = 0; d < k.nk; d++) k.k = expr_mul(p, k.k, t->dim[k.nbatch + d]);
    k.ngroup = expr_const(p, conv ? n->attr.conv.groups : 1);
    k.n = expr_div(p, t->dim[t->rank - 1], k.ngroup);
    return k;
}

static Expr panels(Fuse *f, const Pack *k) {
    return expr_ceildiv(f->p, k->n, expr_const(f->p, k->nr));
}

Expr pack_numel(Fuse *f, const Pack *k) {
    if (k->wino) return wino_numel(f, k);
    Expr e = expr_mul(f->p, expr_mul(f->p, k->batch, k->ngroup), panels(f, k));
    return expr_muli(f->p, expr_mul(f->p, e, k->k), k->nr);
}

/* One axis for each of batch, convolution group, panel, contracted dimension and column. */
static void pack_group(Fuse *f, Pack *k) {
    ExprPool *p = f->p;
    const Type *t = graph_type(f->g, k->b);
    Group *g = group_new(f, GROUP_pack);
    Expr dim[GRAPH_MAX_RANK], group = expr_const(p, 0);
    uint32_t d = 0;
    for (; d < k->nbatch; d++)
        if (!expr_is_value(p, t->dim[d], 1)) dim[d] = axis_new(f, g, t->dim[d], AX_PAR);
    if (!expr_is_value(p, k->ngroup, 1)) group = axis_new(f, g, k->ngroup, AX_PAR);
    Expr panel = expr_const(p, 0);
    if (!expr_is_value(p, panels(f, k), 1)) panel = axis_new(f, g, panels(f, k), AX_PAR);
    for (; d + 1 < t->rank; d++)
        if (!expr_is_value(p, t->dim[d], 1)) dim[d] = axis_new(f, g, t->dim[d], AX_PAR);
    Expr lane = axis_new(f, g, expr_const(p, k->nr), AX_PAR);
    g->fixed = (1u << g->naxes) - 1;
    Expr column = expr_add(p, expr_muli(p, panel, k->nr), lane);
    dim[d] = expr_add(p, expr_mul(p, group, k->n), column);
    g->prepare = true;
    g->pack = f->packs.n + 1;
    k->group = g->id;
    Root r = {.v = k->b};
    r.idx = idx_make(f, g, t, dim, 0);
    g->pack_mask = expr_lt(p, column, k->n);
    if (expr_is_value(p, g->pack_mask, 1)) g->pack_mask = 0;
    vec_push(f->arena, &g->roots, r);
    fuse_demand(f, g, k->b, r.idx, USE_point, READ_masked);
}

uint32_t fuse_pack(Fuse *f, Value dot) {
    if (!fuse_packs(f, dot)) return 0;
    Pack k = pack_of(f, dot);
    k.wino = fuse_is_wino(f, dot);
    for (uint32_t i = 0; i < f->packs.n; i++) {
        const Pack *o = &f->packs.v[i];
        if (o->b == k.b && o->k == k.k && o->ngroup == k.ngroup && o->wino == k.wino) return i + 1;
    }
    if (k.wino)
        wino_group(f, &k);
    else
        pack_group(f, &k);
    vec_push(f->arena, &f->packs, k);
    return f->packs.n;
}

/* Element of the packed buffer for position idx of the contraction's B operand. */
Expr pack_index(Fuse *f, const Pack *k, Group *g, Value b, IdxId idx) {
    ExprPool *p = f->p;
    for (; graph_node(f->g, b)->op == OP_expand; b = graph_node(f->g, b)->in[0]) {
        Expr mask;
        idx = idx_operand(f, g, b, 0, idx, &mask);
    }
    const Idx *x = idx_get(g, idx);
    uint32_t nk = k->nbatch + k->nk;
    Expr batch = idx_join(p, k->nbatch, x->dim, x->extent);
    Expr at = idx_join(p, k->nk, x->dim + k->nbatch, x->extent + k->nbatch);
    Expr group = expr_div(p, x->dim[nk], k->n), column = expr_mod(p, x->dim[nk], k->n);
    Expr nr = expr_const(p, k->nr);
    Expr panel =
        expr_add(p, expr_mul(p, expr_add(p, expr_mul(p, batch, k->ngroup), group), panels(f, k)),
                 expr_div(p, column, nr));
    at = expr_add(p, expr_mul(p, panel, k->k), at);
    return expr_add(p, expr_mul(p, at, nr), expr_mod(p, column, nr));
}

/* --- The prepare step --------------------------------------------------------------------- */

static Expr pack_store_index(Fuse *f, Group *g) {
    Expr at = 0; /* the axes are those of the buffer, in its order */
    for (uint32_t i = 0; i < g->naxes; i++) {
        Expr x = expr_sym_ref(f->p, g->axes[i].sym);
        at = at ? expr_add(f->p, expr_mul(f->p, at, g->axes[i].extent), x) : x;
    }
    return at;
}

void pack_lower(Body *b, const Root *r) {
    Fuse *f = b->f;
    DType t = graph_type(f->g, r->v)->dtype;
    Expr mask = b->g->pack_mask;
    KVal x = pull(b, r->v, r->idx, mask);
    if (mask) {
        DType c = body_type(t);
        KOp o = {
            .op = OP_select, .dtype = (uint8_t)c, .in[0] = body_expr(b, mask, DT_bool), .in[1] = x};
        o.in[2] = dtype_is_float(c) ? body_const_f(b, c, 0) : body_const_i(b, c, 0);
        x = body_op(b, o);
    }
    body_store(b, t, x, f->packs.v[b->g->pack - 1].buf - 1, pack_store_index(f, b->g), 0);
}
