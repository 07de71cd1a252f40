/* B operands in a prepared form, which a step writes: once, or in each run where they are not
 * constant, in quads. In panels: [batch][group]
 * [ceil(N/NR)][K][NR], zero filled to NR columns; contractions then stream whole panels. In quads:
 * panels of four rows at a time, [ceil(K/64)*16][NR][4], of 8 bits whatever they are widened to. In
 * pairs: panels of bf16, two rows at a time, [ceil(K/32)*16][NR][2]. In columns: [batch][N][K];
 * with one row, each column is a sum over what lies side by side. */
#include "fusion/analyse/facts.h"
#include "fusion/special/special.h"

/* B below the views that repeat it along batch dimensions. One that repeats along columns or along
 * what is contracted stays: panels hold what a dot reads side by side. */
static Value pack_base(const Fuse *f, Value b, uint32_t inner) {
    for (const Node *n; (n = graph_node(f->g, b))->op == OP_expand; b = n->in[0]) {
        const Type *t = graph_type(f->g, b), *from = graph_type(f->g, n->in[0]);
        for (uint32_t d = t->rank - inner; d < t->rank; d++)
            if (t->dim[d] != from->dim[d]) return b;
    }
    return b;
}

/* B before it is widened from 8 bits. */
static Value quads_base(const Fuse *f, Value b, uint32_t inner) {
    const Node *n = graph_node(f->g, b);
    for (; n->op == OP_cast && n->type.dtype != DT_i8; n = graph_node(f->g, b))
        b = pack_base(f, n->in[0], inner);
    return b;
}

/* B before it is widened from what it was rounded to, for few products (pass_precision): reading it
 * is what they cost. What the model itself has in 16 bits is widened once: it may be for many. */
static Value rounded_base(const Fuse *f, Value b, uint32_t inner) {
    const Node *n = graph_node(f->g, b);
    if (n->op != OP_cast || n->type.dtype != DT_f32) return b;
    const Node *from = graph_node(f->g, n->in[0]);
    while (op_info[from->op].cls == OPC_VIEW) from = graph_node(f->g, from->in[0]);
    bool rounded = from->op == OP_cast && dtype_is_half(from->type.dtype);
    return rounded ? pack_base(f, n->in[0], inner) : b;
}

static Pack pack_of(Fuse *f, Value dot) {
    ExprPool *p = f->p;
    const Node *n = graph_node(f->g, dot);
    bool conv = n->op == OP_conv;
    uint32_t nk = conv ? n->attr.conv.n + 1u : 1;
    Pack k = {.b = pack_base(f, n->in[1], nk + 1), .nr = f->m->pack_width, .nk = (uint8_t)nk};
    if (fuse_is_quads(f, dot)) k.b = quads_base(f, k.b, nk + 1);
    if (f->m->pack_width && !fuse_is_wino(f, dot)) k.b = rounded_base(f, k.b, nk + 1);
    const Type *t = graph_type(f->g, k.b);
    k.dtype = t->dtype;
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

static Expr panels_numel(Fuse *f, const Pack *k) {
    Expr e = expr_mul(f->p, expr_mul(f->p, k->batch, k->ngroup), panels(f, k));
    return expr_muli(f->p, expr_mul(f->p, e, k->k), k->nr);
}

/* One axis for each of batch, convolution group, panel, contracted dimension and column. */
static void panels_axes(Fuse *f, Group *g, Pack *k, Expr *dim, Expr *column) {
    ExprPool *p = f->p;
    const Type *t = graph_type(f->g, k->b);
    Expr group = expr_const(p, 0);
    uint32_t d = 0;
    for (; d < k->nbatch; d++)
        if (!expr_is_value(p, t->dim[d], 1)) dim[d] = axis_new(f, g, t->dim[d], AX_PAR);
    if (!expr_is_value(p, k->ngroup, 1)) group = axis_new(f, g, k->ngroup, AX_PAR);
    Expr panel = expr_const(p, 0);
    if (!expr_is_value(p, panels(f, k), 1)) panel = axis_new(f, g, panels(f, k), AX_PAR);
    for (; d + 1 < t->rank; d++)
        if (!expr_is_value(p, t->dim[d], 1)) dim[d] = axis_new(f, g, t->dim[d], AX_PAR);
    Expr lane = axis_new(f, g, expr_const(p, k->nr), AX_PAR);
    *column = expr_add(p, expr_muli(p, panel, k->nr), lane);
    dim[d] = expr_add(p, expr_mul(p, group, k->n), *column);
}

/* Where position idx of the contraction's B operand lies: panel, contracted row and column of it */
typedef struct PanelPlace {
    Expr panel, row, column;
} PanelPlace;

static PanelPlace panels_place(Fuse *f, const Pack *k, Group *g, Value b, IdxId idx) {
    ExprPool *p = f->p;
    for (; b != k->b; b = graph_node(f->g, b)->in[0]) {
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
    return (PanelPlace){panel, at, expr_mod(p, column, nr)};
}

static Expr panels_index(Fuse *f, const Pack *k, Group *g, Value b, IdxId idx) {
    ExprPool *p = f->p;
    PanelPlace x = panels_place(f, k, g, b, idx);
    Expr row = expr_add(p, expr_mul(p, x.panel, k->k), x.row);
    return expr_add(p, expr_muli(p, row, k->nr), x.column);
}

static KVal panels_read(Body *b, const Pack *k, Value operand, IdxId idx) {
    KOp o = body_blank(K_kload, graph_type(b->f->g, k->b)->dtype);
    o.buf = body_param(b, k->buf - 1, false);
    o.index = panels_index(b->f, k, b->g, operand, idx);
    b->k->dot.pack = k->nr;
    return body_cast(b, body_op(b, o), body_type((DType)o.dtype));
}

static const PackForm pack_panels = {"pack", panels_numel, panels_axes, pack_copy, panels_read};

/* --- Quads and pairs ---------------------------------------------------------------------- */

/* Rows side by side: as many as fill 32 bits. */
static uint32_t group_rows(const Pack *k) {
    return 4 / (uint32_t)dtype_bytes(k->dtype);
}

/* Of a panel. */
static Expr groups_of(Fuse *f, const Pack *k) {
    Expr step = expr_const(f->p, group_rows(k) * K_PANEL_GROUPS);
    return expr_muli(f->p, expr_ceildiv(f->p, k->k, step), K_PANEL_GROUPS);
}

static Expr groups_numel(Fuse *f, const Pack *k) {
    Expr e = expr_mul(f->p, expr_mul(f->p, k->batch, k->ngroup), panels(f, k));
    return expr_muli(f->p, expr_mul(f->p, e, groups_of(f, k)), (int64_t)group_rows(k) * k->nr);
}

/* One axis for each of batch, convolution group, panel, group of rows, column and row of a group */
static void groups_axes(Fuse *f, Group *g, Pack *k, Expr *dim, Expr *column) {
    ExprPool *p = f->p;
    const Type *t = graph_type(f->g, k->b);
    Expr group = expr_const(p, 0), panel = group, inner = expr_const(p, 1);
    const Expr rows = expr_const(p, group_rows(k));
    uint32_t d = 0;
    for (; d < k->nbatch; d++)
        if (!expr_is_value(p, t->dim[d], 1)) dim[d] = axis_new(f, g, t->dim[d], AX_PAR);
    if (!expr_is_value(p, k->ngroup, 1)) group = axis_new(f, g, k->ngroup, AX_PAR);
    if (!expr_is_value(p, panels(f, k), 1)) panel = axis_new(f, g, panels(f, k), AX_PAR);
    Expr first = expr_mul(p, axis_new(f, g, groups_of(f, k), AX_PAR), rows);
    Expr lane = axis_new(f, g, expr_const(p, k->nr), AX_PAR);
    Expr row = expr_add(p, first, axis_new(f, g, rows, AX_PAR));
    for (d = t->rank - 1u; d-- > k->nbatch; inner = expr_mul(p, inner, t->dim[d])) {
        dim[d] = expr_div(p, row, inner);
        if (d > k->nbatch) dim[d] = expr_mod(p, dim[d], t->dim[d]);
    }
    g->pack_mask = expr_lt(p, row, k->k);
    *column = expr_add(p, expr_muli(p, panel, k->nr), lane);
    dim[t->rank - 1] = expr_add(p, expr_mul(p, group, k->n), *column);
}

/* As it is stored. */
static KVal group_load(Body *b, const Pack *k, Value operand, IdxId idx) {
    ExprPool *p = b->f->p;
    KOp o = body_blank(K_kload, k->dtype);
    o.buf = body_param(b, k->buf - 1, false);
    PanelPlace x = panels_place(b->f, k, b->g, operand, idx);
    const Expr rows = expr_const(p, group_rows(k));
    Expr group = expr_mul(p, x.panel, groups_of(b->f, k));
    group = expr_add(p, group, expr_div(p, x.row, rows));
    Expr at = expr_add(p, expr_muli(p, group, k->nr), x.column);
    o.index = expr_add(p, expr_mul(p, at, rows), expr_mod(p, x.row, rows));
    b->k->dot.pack = k->nr;
    return body_op(b, o);
}

static KVal quads_read(Body *b, const Pack *k, Value operand, IdxId idx) {
    b->k->dot.quads = true;
    return group_load(b, k, operand, idx);
}

static KVal pairs_read(Body *b, const Pack *k, Value operand, IdxId idx) {
    b->k->dot.pairs = true;
    return body_cast(b, group_load(b, k, operand, idx), body_type(k->dtype));
}

static const PackForm pack_quads = {"pack", groups_numel, groups_axes, pack_copy, quads_read};
static const PackForm pack_pairs = {"pack", groups_numel, groups_axes, pack_copy, pairs_read};

/* --- Columns ------------------------------------------------------------------------------ */

static Expr columns_numel(Fuse *f, const Pack *k) {
    return expr_mul(f->p, expr_mul(f->p, k->batch, k->n), k->k);
}

/* One axis for each of batch, column and contracted dimension. */
static void columns_axes(Fuse *f, Group *g, Pack *k, Expr *dim, Expr *column) {
    const Type *t = graph_type(f->g, k->b);
    uint32_t d = 0;
    for (; d < k->nbatch; d++)
        if (!expr_is_value(f->p, t->dim[d], 1)) dim[d] = axis_new(f, g, t->dim[d], AX_PAR);
    *column = dim[t->rank - 1] = axis_new(f, g, k->n, AX_PAR);
    for (; d + 1 < t->rank; d++)
        if (!expr_is_value(f->p, t->dim[d], 1)) dim[d] = axis_new(f, g, t->dim[d], AX_PAR);
}

static KVal columns_read(Body *b, const Pack *k, Value operand, IdxId idx) {
    Fuse *f = b->f;
    ExprPool *p = f->p;
    KOp o = body_blank(K_kload, graph_type(f->g, k->b)->dtype);
    for (; operand != k->b; operand = graph_node(f->g, operand)->in[0]) {
        Expr mask;
        idx = idx_operand(f, b->g, operand, 0, idx, &mask);
    }
    const Idx *x = idx_get(b->g, idx);
    Expr batch = idx_join(p, k->nbatch, x->dim, x->extent);
    Expr at = idx_join(p, k->nk, x->dim + k->nbatch, x->extent + k->nbatch);
    batch = expr_add(p, expr_mul(p, batch, k->n), x->dim[k->nbatch + k->nk]);
    o.buf = body_param(b, k->buf - 1, false);
    o.index = expr_add(p, expr_mul(p, batch, k->k), at);
    return body_cast(b, body_op(b, o), body_type((DType)o.dtype));
}

static const PackForm pack_columns = {"transpose", columns_numel, columns_axes, pack_copy,
                                      columns_read};

/* --- Of any form -------------------------------------------------------------------------- */

void pack_store(Fuse *f, Value dot) {
    if (!fuse_packs(f, dot)) return;
    Pack k = pack_of(f, dot);
    k.form = !f->m->pack_width                           ? &pack_columns
             : fuse_is_wino(f, dot)                      ? &pack_winograd
             : fuse_is_quads(f, dot) && k.dtype == DT_i8 ? &pack_quads
                                                         : &pack_panels;
    uint32_t i;
    if (k.form != &pack_panels || !pack_bits(f, &k, &i)) {
        if (k.form == &pack_panels && k.dtype == DT_bf16 && f->m->pairs) k.form = &pack_pairs;
        i = pack_make(f, &k);
    }
    f->choice[dot].pack = i + 1;
}

void pack_lower(Body *b, const Root *r) {
    b->f->packs.v[r->at].form->lower(b, r);
}
