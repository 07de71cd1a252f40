/* Index expressions of reductions and contractions: the row axes they walk. */
#include "fusion/group/fuse.h"
#include <string.h>

bool op_is_reduce(Op op) {
    return op_info[op].cls == OPC_REDUCE;
}

bool fuse_is_dot(const Fuse *f, Value v) {
    return op_info[graph_node(f->g, v)->op].cls == OPC_CONTRACT;
}

bool fuse_is_depthwise(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_conv || n->attr.conv.groups <= 1) return false;
    const Type *x = graph_type(f->g, n->in[0]);
    Expr groups = expr_const(f->p, n->attr.conv.groups);
    return x->dim[x->rank - 1] == groups && n->type.dim[n->type.rank - 1] == groups;
}

/* --- Reductions --------------------------------------------------------------------------- */

/* The folded dimensions of a reduction as a type of their own. */
static Type folded_dims(const Fuse *f, const Node *n) {
    const Type *in = graph_type(f->g, n->in[0]);
    Type t = {.dtype = in->dtype};
    for (uint32_t d = 0; d < in->rank; d++)
        if (n->attr.reduce.axes >> d & 1) t.dim[t.rank++] = in->dim[d];
    return t;
}

/* Position along the given axes, in their order. */
static IdxId walk_axes(Fuse *f, Group *g, uint32_t axes) {
    Type t = {0};
    Expr at[GRAPH_MAX_RANK];
    for (uint32_t i = 0; i < g->naxes; i++) {
        if (!(axes >> i & 1)) continue;
        if (t.rank == GRAPH_MAX_RANK) return 0;
        at[t.rank] = expr_sym_ref(f->p, g->axes[i].sym);
        t.dim[t.rank++] = g->axes[i].extent;
    }
    return idx_make(f, g, &t, at, 0);
}

static void set_row(Group *g, uint32_t axes) {
    for (uint32_t i = 0; i < g->naxes; i++)
        if (axes >> i & 1) g->axes[i].kind = AX_RED;
}

static IdxId fresh_row(Fuse *f, Group *g, const Type *folded, bool one_axis) {
    Expr at[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < folded->rank; d++) {
        if (expr_is_value(f->p, folded->dim[d], 1) && !one_axis) continue;
        at[d] = axis_new(f, g, folded->dim[d], AX_RED);
        if (one_axis) g->fixed |= 1u << (g->naxes - 1);
    }
    return idx_make(f, g, folded, at, 0);
}

/* Position along the folded dimensions of reduction v when it is read at idx; 0 with the reason
 * when this group cannot walk them. A map group without a row gets one: fresh axes when idx uses
 * all of its axes (red), else the axes that idx does not use (per). */
static IdxId row_position(Fuse *f, Group *g, Value v, IdxId idx, FusionWhy *why) {
    const Node *n = graph_node(f->g, v);
    Type folded = folded_dims(f, n);
    Expr count = type_numel(f->p, &folded);
    bool one_axis = n->op == OP_argmax || n->op == OP_argmin;
    uint32_t used = idx_axes_used(f, g, idx);
    uint32_t par = group_axes(g, AX_PAR), row = group_axes(g, AX_RED);
    *why = WHY_kind;
    if (g->attn) {
        if (v != g->attn->max && v != g->attn->sum) return 0;
        const Idx *j = idx_get(g, g->j_idx);
        if (expr_axes_used(f, g, j->flat) & used || j->extent[0] != count) return 0;
        return idx_reshape(f, g, g->j_idx, &folded);
    }
    *why = g->want || g->kind != GROUP_map ? WHY_tile_row : WHY_row_mismatch;
    if (g->want || g->kind != GROUP_map || used & row) return 0;
    if (expr_is_value(f->p, count, 1) && !one_axis) return fresh_row(f, g, &folded, false);
    if (!row && used == par) {
        if (g->naxes + folded.rank + 4 > K_MAX_AXES) return 0;
        return fresh_row(f, g, &folded, one_axis);
    }
    uint32_t axes = row ? row : par & ~used;
    if (used != (par & ~axes) || group_extent(f, g, axes) != count) return 0;
    if (one_axis && (axes & (axes - 1))) return 0;
    set_row(g, axes);
    if (one_axis) g->fixed |= axes;
    IdxId walk = walk_axes(f, g, axes);
    IdxId at = walk ? idx_reshape(f, g, walk, &folded) : 0;
    if (!at) return 0;
    uint32_t before = g->naxes;
    idx_split_axes(f, g, at);
    return g->naxes == before ? at : idx_reshape(f, g, walk, &folded);
}

bool idx_row_fits(Fuse *f, const Group *g, Value v, IdxId idx) {
    if (g->kind != GROUP_map || g->want || g->attn || group_axes(g, AX_RED)) return false;
    Type folded = folded_dims(f, graph_node(f->g, v));
    uint32_t rest = group_axes(g, AX_PAR) & ~idx_axes_used(f, g, idx);
    return group_extent(f, g, rest) == type_numel(f->p, &folded);
}

IdxId idx_row(const Group *g, Value v, IdxId idx) {
    idx = idx_canon(g, idx);
    for (uint32_t i = 0; i < g->rows.n; i++)
        if (g->rows.v[i].v == v && idx_canon(g, g->rows.v[i].idx) == idx) return g->rows.v[i].at;
    return 0;
}

IdxId idx_reduce(Fuse *f, Group *g, Value v, IdxId idx, FusionWhy *why) {
    const Node *n = graph_node(f->g, v);
    const Type *in = graph_type(f->g, n->in[0]);
    IdxId at = idx_row(g, v, idx);
    if (!at) {
        at = row_position(f, g, v, idx, why);
        if (!at) return 0;
        RowAt r = {v, idx, at};
        vec_push(f->arena, &g->rows, r);
    }
    Expr dim[GRAPH_MAX_RANK];
    uint32_t kept = 0, folded = 0;
    for (uint32_t d = 0; d < in->rank; d++)
        dim[d] = n->attr.reduce.axes >> d & 1 ? idx_get(g, at)->dim[folded++]
                                              : idx_get(g, idx)->dim[kept++];
    return idx_make(f, g, in, dim, 0);
}

/* --- Contractions ------------------------------------------------------------------------- */

static Type contracted_dims(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    const Type *a = graph_type(f->g, n->in[0]), *b = graph_type(f->g, n->in[1]);
    Type t = {.dtype = a->dtype};
    if (n->op == OP_dot) {
        t.dim[t.rank++] = a->dim[a->rank - 1];
        return t;
    }
    uint32_t nk = n->attr.conv.n + (fuse_is_depthwise(f, v) ? 0u : 1u);
    for (uint32_t i = 0; i < nk; i++) t.dim[t.rank++] = b->dim[i];
    return t;
}

/* An axis even where the extent is 1: contractions always have an n and a k axis. */
static IdxId contracted_axes(Fuse *f, Group *g, Value v) {
    Type t = contracted_dims(f, v);
    Expr at[GRAPH_MAX_RANK];
    bool any = false;
    for (uint32_t d = 0; d < t.rank; d++) {
        if (expr_is_value(f->p, t.dim[d], 1) && (any || d + 1 < t.rank)) continue;
        at[d] = axis_new(f, g, t.dim[d], AX_RED);
        if (g->attn) g->fixed |= 1u << (g->naxes - 1);
        any = true;
    }
    return idx_make(f, g, &t, at, 0);
}

IdxId idx_dot_axes(Fuse *f, Group *g, Value v) {
    const Node *n = graph_node(f->g, v);
    const Type *t = &n->type;
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d + 1 < t->rank; d++) {
        bool query = g->attn && d + 2 == t->rank;
        if (expr_is_value(f->p, t->dim[d], 1) && !query) continue;
        dim[d] = axis_new(f, g, t->dim[d], AX_PAR);
        if (n->op == OP_conv || d + 2 == t->rank) g->fixed |= 1u << (g->naxes - 1);
    }
    uint32_t last = t->rank - 1;
    Expr outer = 0, width = t->dim[last];
    if (n->op == OP_conv && n->attr.conv.groups > 1 && !fuse_is_depthwise(f, v)) {
        Expr groups = expr_const(f->p, n->attr.conv.groups);
        width = expr_div(f->p, width, groups);
        outer = axis_new(f, g, groups, AX_PAR);
        g->fixed |= 1u << (g->naxes - 1);
    }
    dim[last] = axis_new(f, g, width, AX_PAR);
    g->fixed |= 1u << (g->naxes - 1);
    if (outer) {
        if (expr_is_value(f->p, width, 1))
            dim[last] = outer;
        else
            dim[last] = expr_add(f->p, expr_mul(f->p, outer, width), dim[last]);
    }
    return idx_make(f, g, t, dim, 0);
}

static DotIdx conv_operands(Fuse *f, Group *g, Value v, IdxId idx, IdxId kidx) {
    ExprPool *p = f->p;
    const Node *n = graph_node(f->g, v);
    const Type *x = graph_type(f->g, n->in[0]), *w = graph_type(f->g, n->in[1]);
    Idx out = *idx_get(g, idx), k = *idx_get(g, kidx);
    uint32_t s = n->attr.conv.n;
    bool depthwise = fuse_is_depthwise(f, v);
    Expr channel = depthwise ? expr_const(p, 0) : k.dim[s], oc = out.dim[s + 1];
    Expr a[GRAPH_MAX_RANK], b[GRAPH_MAX_RANK];
    DotIdx r = {0};
    a[0] = out.dim[0];
    for (uint32_t i = 0; i < s; i++) {
        Expr at = expr_add(p, expr_muli(p, out.dim[1 + i], n->attr.conv.stride[i]),
                           expr_muli(p, k.dim[i], n->attr.conv.dilation[i]));
        a[1 + i] = expr_addi(p, at, -n->attr.conv.lo[i]);
        b[i] = k.dim[i];
        if (n->attr.conv.lo[i] || n->attr.conv.hi[i])
            r.a_mask = expr_mask_and(p, r.a_mask, expr_in_range(p, a[1 + i], x->dim[1 + i]));
    }
    b[s] = channel;
    b[s + 1] = oc;
    a[1 + s] = channel;
    if (depthwise)
        a[1 + s] = oc;
    else if (n->attr.conv.groups > 1) {
        Expr width = expr_div(p, w->dim[s + 1], expr_const(p, n->attr.conv.groups));
        a[1 + s] = expr_add(p, expr_mul(p, expr_div(p, oc, width), w->dim[s]), channel);
    }
    r.a = idx_make(f, g, x, a, 0);
    r.b = idx_make(f, g, w, b, 0);
    return r;
}

DotIdx idx_dot(Fuse *f, Group *g, Value v, IdxId idx) {
    const Node *n = graph_node(f->g, v);
    IdxId kidx;
    if (g->attn && v == g->attn->o)
        kidx = g->j_idx;
    else {
        if (!g->k_idx) g->k_idx = contracted_axes(f, g, v);
        kidx = g->k_idx;
    }
    if (n->op == OP_conv) return conv_operands(f, g, v, idx, kidx);
    const Type *ta = graph_type(f->g, n->in[0]), *tb = graph_type(f->g, n->in[1]);
    uint32_t r = ta->rank;
    Idx out = *idx_get(g, idx);
    Expr k = idx_get(g, kidx)->dim[0];
    Expr a[GRAPH_MAX_RANK], b[GRAPH_MAX_RANK];
    memcpy(a, out.dim, sizeof a);
    memcpy(b, out.dim, sizeof b);
    a[r - 1] = k;
    b[r - 2] = k;
    return (DotIdx){.a = idx_make(f, g, ta, a, 0), .b = idx_make(f, g, tb, b, 0)};
}
