/* Index expressions of reductions: the row axes they walk. */
#include "fusion/analyse/facts.h"

/* The folded dimensions of a reduction as a type of their own. */
static Type folded_dims(const Fuse *f, const Node *n) {
    const Type *in = graph_type(f->g, n->in[0]);
    Type t = {.dtype = in->dtype};
    for (uint32_t d = 0; d < in->rank; d++)
        if (n->attr.reduce.axes >> d & 1) t.dim[t.rank++] = in->dim[d];
    return t;
}

/* argmax and argmin: their row is one axis, whose position is the result. */
static bool is_arg(const Node *n) {
    return n->op == OP_argmax || n->op == OP_argmin;
}

static uint32_t axes_in(uint32_t axes) {
    uint32_t n = 0;
    for (; axes; axes &= axes - 1) n++;
    return n;
}

/* Position along the given axes, in their order. */
static IdxId walk_axes(Fuse *f, Group *g, uint32_t axes) {
    Type t = {0};
    Expr at[GRAPH_MAX_RANK];
    for (uint32_t i = 0; i < g->naxes; i++) {
        if (!(axes >> i & 1)) continue;
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

IdxId idx_row(const Group *g, Value v, IdxId idx) {
    idx = idx_canon(g, idx);
    for (uint32_t i = 0; i < g->rows.n; i++)
        if (g->rows.v[i].v == v && idx_canon(g, g->rows.v[i].idx) == idx) return g->rows.v[i].at;
    return 0;
}

typedef enum RowHow {
    ROW_no,
    ROW_fresh, /* axes of its own: the group becomes a red */
    ROW_axes   /* axes of the group that idx does not use: a per */
} RowHow;

bool group_streams(const Fuse *f, const Group *g) {
    return g->kind == GROUP_dot && !g->prepare && fuse_streams(f, g->anchor);
}

/* How the group could walk the folded dimensions of reduction v when it is read at idx; *axes:
 * those of ROW_axes; *why: it cannot. Nothing changes. */
static RowHow row_try(const Fuse *f, const Group *g, Value v, IdxId idx, uint32_t *axes,
                      FusionWhy *why) {
    const Node *n = graph_node(f->g, v);
    Type folded = folded_dims(f, n);
    Expr count = type_numel(f->p, &folded);
    uint32_t used = idx_axes_used(f, g, idx);
    uint32_t par = group_axes(g, AX_PAR), row = group_axes(g, AX_RED);
    *why = WHY_kind;
    if (g->attn) return ROW_no;
    if (group_streams(f, g)) { /* the only row of A: what the contraction folds is its axes */
        *axes = row;
        return !used && group_extent(f, g, row) == count && !is_arg(n) ? ROW_axes : ROW_no;
    }
    *why = g->want || g->kind != GROUP_map ? WHY_tile_row : WHY_row_mismatch;
    if (g->want || g->kind != GROUP_map || used & row) return ROW_no;
    if (expr_is_value(f->p, count, 1) && !is_arg(n)) return ROW_fresh;
    if (!row && used == par) return g->naxes + folded.rank + 4 > K_MAX_AXES ? ROW_no : ROW_fresh;
    *axes = row ? row : par & ~used;
    if (used != (par & ~*axes) || group_extent(f, g, *axes) != count) return ROW_no;
    if (is_arg(n) && (*axes & (*axes - 1))) return ROW_no;
    return axes_in(*axes) <= GRAPH_MAX_RANK ? ROW_axes : ROW_no;
}

bool idx_try_reduce(const Fuse *f, const Group *g, Value v, IdxId idx, FusionWhy *why) {
    uint32_t axes;
    return idx_row(g, v, idx) || row_try(f, g, v, idx, &axes, why) != ROW_no;
}

/* Position along the folded dimensions of v, walked as row_try says. */
static IdxId row_position(Fuse *f, Group *g, Value v, IdxId idx) {
    const Node *n = graph_node(f->g, v);
    Type folded = folded_dims(f, n);
    FusionWhy why;
    uint32_t axes;
    RowHow how = row_try(f, g, v, idx, &axes, &why);
    GC_ASSERT(how != ROW_no);
    if (how == ROW_fresh) return fresh_row(f, g, &folded, is_arg(n));
    set_row(g, axes);
    if (is_arg(n)) g->fixed |= axes;
    IdxId walk = walk_axes(f, g, axes), at = idx_reshape(f, g, walk, &folded);
    uint32_t before = g->naxes;
    idx_split_axes(f, g, at);
    return g->naxes == before ? at : idx_reshape(f, g, walk, &folded);
}

bool idx_row_fits(const Fuse *f, const Group *g, Value v, IdxId idx) {
    if (g->kind != GROUP_map || g->want || g->attn || group_axes(g, AX_RED)) return false;
    Type folded = folded_dims(f, graph_node(f->g, v));
    uint32_t rest = group_axes(g, AX_PAR) & ~idx_axes_used(f, g, idx);
    return group_extent(f, g, rest) == type_numel(f->p, &folded);
}

IdxId idx_reduce(Fuse *f, Group *g, Value v, IdxId idx) {
    const Node *n = graph_node(f->g, v);
    const Type *in = graph_type(f->g, n->in[0]);
    IdxId at = idx_row(g, v, idx);
    if (!at) {
        at = row_position(f, g, v, idx);
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
