/* One row at a time: running folds, sorts, compaction. */
#include "fusion/analyse/facts.h"
#include "fusion/body/buffers.h"
#include "fusion/special/special.h"

/* One row axis, the others parallel. */
static void row_store(Fuse *f, Value v, uint32_t axis) {
    const Node *n = graph_node(f->g, v);
    const Type *t = graph_type(f->g, n->in[0]);
    Group *g = group_new(f, fuse_kind(f, v));
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < t->rank; d++) {
        if (d != axis && expr_is_value(f->p, t->dim[d], 1)) continue;
        dim[d] = axis_new(f, g, t->dim[d], d == axis ? AX_RED : AX_PAR);
        if (d == axis) g->fixed |= 1u << (g->naxes - 1);
    }
    IdxId idx = idx_make(f, g, t, dim, 0);
    g->prepare = f->fact[v].const_only;
    fuse_own_root(f, g, v, idx);
    fuse_demand(f, g, n->in[0], idx, USE_point, READ_plain);
}

void scan_store(Fuse *f, Value v) {
    row_store(f, v, (uint32_t)graph_node(f->g, v)->attr.scan.axis);
}

void compact_store(Fuse *f, Value v) {
    row_store(f, v, 0);
}

/* Beside its own buffer the count. */
void compact_buffers(Fuse *f, Value v) {
    const Type one = {.dtype = DT_i64};
    fuse_own_buffer(f, v);
    f->stored[v].count_buf = fuse_temp(f, &one, v);
}

/* --- Bodies ------------------------------------------------------------------------------- */

static KOp row_op(Body *b, const Node *n, uint32_t op, DType t, KVal x) {
    KOp o = body_blank(op, t);
    o.in[0] = x;
    o.axes = group_axes(b->g, AX_RED);
    if (op != K_kcompact)
        o.imm.i = (n->attr.scan.exclusive ? 1 : 0) | (n->attr.scan.reverse ? 2 : 0);
    return o;
}

static void store_row(Body *b, const Root *r, KTem tem, KVal x) {
    Expr at = home_index(b->f, b->g, r->v, r->idx);
    b->k->kind = KERNEL_tem;
    b->k->tem = tem;
    body_store(b, graph_type(b->f->g, r->v)->dtype, x, b->f->stored[r->v].buf - 1, at, 0);
}

void sort_lower(Body *b, const Root *r) {
    const Node *n = graph_node(b->f->g, r->v);
    KVal x = pull(b, n->in[0], r->idx, 0);
    KOp o = row_op(b, n, K_ksort, DT_i64, x);
    o.imm.i |= n->attr.scan.keep << 2;
    store_row(b, r, TEM_sort, body_op(b, o));
}

void scan_lower(Body *b, const Root *r) {
    const Node *n = graph_node(b->f->g, r->v);
    KVal x = pull(b, n->in[0], r->idx, 0);
    KOp o = row_op(b, n, K_kscan, body_type_of(b, x), x);
    o.fold = (uint8_t)kir_fold(op_join((Op)n->op));
    store_row(b, r, TEM_scan, body_op(b, o));
}

void compact_lower(Body *b, const Root *r) {
    Fuse *f = b->f;
    const Node *n = graph_node(f->g, r->v);
    KOp o = row_op(b, n, K_kcompact, DT_i64, pull(b, n->in[0], r->idx, 0));
    o.buf = body_param(b, f->stored[r->v].buf - 1, true);
    body_param(b, f->stored[r->v].count_buf - 1, true);
    GC_ASSERT(expr_is_sym(f->p, n->type.dim[0], &o.sym));
    b->k->kind = KERNEL_tem;
    b->k->tem = TEM_compact;
    body_op(b, o);
}
