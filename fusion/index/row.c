/* Index expressions of reductions: the row axes they walk. */
#include "fusion/fuse.h"

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
