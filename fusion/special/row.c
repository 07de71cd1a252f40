/* One row at a time: running folds, sorts, compaction. */
#include "fusion/special/special.h"

/* One row axis, the others parallel. */
void row_root(Fuse *f, Value v, GroupKind kind, uint32_t axis) {
    const Node *n = graph_node(f->g, v);
    const Type *t = graph_type(f->g, n->in[0]);
    Group *g = group_new(f, kind);
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < t->rank; d++) {
        if (d != axis && expr_is_value(f->p, t->dim[d], 1)) continue;
        dim[d] = axis_new(f, g, t->dim[d], d == axis ? AX_RED : AX_PAR);
        if (d == axis) g->fixed |= 1u << (g->naxes - 1);
    }
    IdxId idx = idx_make(f, g, t, dim, 0);
    g->prepare = f->v[v].const_only;
    fuse_own_root(f, g, v, idx);
    fuse_demand(f, g, n->in[0], idx, USE_point, READ_plain);
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

void row_lower(Body *b, Value v, IdxId idx) {
    Fuse *f = b->f;
    const Node *n = graph_node(f->g, v);
    KVal x = pull(b, n->in[0], idx, 0);
    b->k->kind = KERNEL_tem;
    if (op_info[n->op].cls == OPC_SORT) {
        b->k->tem = TEM_sort;
        x = body_op(b, row_op(b, n, K_ksort, DT_i64, x));
    } else {
        b->k->tem = TEM_scan;
        KOp o = row_op(b, n, K_kscan, (DType)b->ops.v[x].dtype, x);
        o.fold = (uint8_t)kir_fold(op_join((Op)n->op));
        x = body_op(b, o);
    }
    body_store(b, n->type.dtype, x, f->v[v].buf - 1, home_index(f, b->g, v, idx), 0);
}

void compact_lower(Body *b, Value v, IdxId idx) {
    Fuse *f = b->f;
    const Node *n = graph_node(f->g, v);
    KOp o = row_op(b, n, K_kcompact, DT_i64, pull(b, n->in[0], idx, 0));
    o.buf = body_param(b, f->v[v].buf - 1, true);
    body_param(b, f->v[v].count_buf - 1, true);
    GC_ASSERT(expr_is_sym(f->p, n->type.dim[0], &o.sym));
    b->k->kind = KERNEL_tem;
    b->k->tem = TEM_compact;
    body_op(b, o);
}
