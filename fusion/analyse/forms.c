/* Which contractions read their right operand in a prepared form. */
#include "fusion/analyse/facts.h"

bool fuse_is_wino(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    if (!f->m->winograd || n->op != OP_conv || n->attr.conv.n != 2 || n->attr.conv.groups != 1)
        return false;
    const Type *w = graph_type(f->g, n->in[1]);
    if (w->dtype != DT_f32 || n->type.dtype != DT_f32) return false;
    for (int i = 0; i < 2; i++) {
        int64_t lo, hi;
        if (n->attr.conv.stride[i] != 1 || n->attr.conv.dilation[i] != 1) return false;
        if (!expr_is_value(f->p, w->dim[i], 3)) return false;
        expr_range(f->p, n->type.dim[1 + i], &lo, &hi);
        if (lo < 2) return false;
    }
    /* Below that the transforms cost what they save, or 16/9 of the weights are too much to read.
     */
    double pixels = fuse_hint(f, expr_mul(f->p, n->type.dim[1], n->type.dim[2]));
    return fuse_hint(f, w->dim[2]) >= 16 && fuse_hint(f, w->dim[3]) >= 16 && pixels >= 36;
}

/* B's columns lie apart in memory as it is. */
static bool has_rows(const Fuse *f, Value b) {
    const Node *n = graph_node(f->g, b);
    for (; n->op == OP_expand || n->op == OP_cast; n = graph_node(f->g, n->in[0])) continue;
    return n->op != OP_permute || n->attr.perm.axis[n->type.rank - 1] == n->type.rank - 1;
}

/* Of few rows each column of B is read by itself, and once. */
static bool packs_columns(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    const Type *t = graph_type(f->g, n->in[1]);
    double cols = fuse_hint(f, t->dim[t->rank - 1]), rows = fuse_numel(f, dot) / cols;
    return n->op == OP_dot && rows <= f->m->pack_rows && has_rows(f, n->in[1]) &&
           fuse_hint(f, t->dim[t->rank - 2]) > 1;
}

bool fuse_streams(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    if (n->op != OP_dot || !f->fact[n->in[1]].const_only) return false;
    const Type *t = graph_type(f->g, n->in[1]);
    return fuse_numel(f, dot) / fuse_hint(f, t->dim[t->rank - 1]) <= f->m->pack_rows;
}

bool fuse_packs(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    const Type *t = graph_type(f->g, n->in[1]);
    if (fuse_is_depthwise(f, dot) || !f->fact[n->in[1]].const_only) return false;
    if (!f->m->pack_width) return packs_columns(f, dot);
    double groups = n->op == OP_conv ? (double)n->attr.conv.groups : 1;
    return fuse_hint(f, t->dim[t->rank - 1]) >= 16 * groups;
}
