/* How views move a read position. */
#include "fusion/fuse.h"
#include <string.h>

static void pad_dim(Fuse *f, const Attr *a, const Type *in, uint32_t d, Expr *dim, Expr *mask) {
    ExprPool *p = f->p;
    Expr i = expr_sub(p, *dim, a->pad.lo[d]);
    int64_t step = a->pad.interior[d] + 1;
    if (step > 1) {
        Expr s = expr_const(p, step), at = expr_div(p, i, s);
        *mask = expr_mask_and(p, *mask, expr_eq(p, expr_mod(p, i, s), expr_const(p, 0)));
        i = at;
    }
    *mask = expr_mask_and(p, *mask, expr_in_range(p, i, in->dim[d]));
    *dim = i;
}

static IdxId operand_of_window(Fuse *f, Group *g, const Node *n, const Idx *x) {
    const Type *in = graph_type(f->g, n->in[0]);
    Expr dim[GRAPH_MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    for (uint32_t i = 0; i < n->attr.window.n; i++) {
        uint32_t d = n->attr.window.axis[i];
        Expr tap = expr_muli(f->p, x->dim[in->rank + i], n->attr.window.dilation[i]);
        dim[d] = expr_add(f->p, expr_muli(f->p, dim[d], n->attr.window.stride[i]), tap);
    }
    return idx_make(f, g, in, dim, 0);
}

static IdxId operand_plain(Fuse *f, Group *g, const Node *n, uint32_t i, IdxId idx, Expr *mask) {
    ExprPool *p = f->p;
    const Type *in = graph_type(f->g, n->in[i]);
    Idx x = *idx_get(g, idx);
    Expr dim[GRAPH_MAX_RANK];
    memcpy(dim, x.dim, sizeof dim);
    switch (n->op) {
    case OP_reshape: return idx_reshape(f, g, idx, in);
    case OP_permute:
        for (uint32_t d = 0; d < x.rank; d++) dim[n->attr.perm.axis[d]] = x.dim[d];
        break;
    case OP_uniform: break; /* which draw it is: a scalar */
    case OP_expand: break;  /* dimensions of size 1 become 0 in idx_make */
    case OP_slice:
        for (uint32_t d = 0; d < x.rank; d++)
            dim[d] =
                expr_add(p, n->attr.slice.start[d], expr_muli(p, x.dim[d], n->attr.slice.step[d]));
        break;
    case OP_pad:
        if (i == 1) break;
        for (uint32_t d = 0; d < x.rank; d++) pad_dim(f, &n->attr, in, d, &dim[d], mask);
        break;
    case OP_concat: {
        int32_t d = n->attr.axis.axis;
        Expr before = expr_const(p, 0);
        for (uint32_t k = 0; k < i; k++)
            before = expr_add(p, before, graph_type(f->g, n->in[k])->dim[d]);
        dim[d] = expr_sub(p, x.dim[d], before);
        *mask = expr_mask_and(p, *mask, expr_in_range(p, dim[d], in->dim[d]));
        break;
    }
    case OP_window: return operand_of_window(f, g, n, &x);
    default: return idx; /* maps */
    }
    return idx_make(f, g, in, dim, 0);
}

IdxId idx_operand(Fuse *f, Group *g, Value v, uint32_t i, IdxId idx, Expr *mask) {
    const Node *n = graph_node(f->g, v);
    Expr m = 0;
    IdxId r = operand_plain(f, g, n, i, idx, &m);
    if (r != idx && n->op == OP_reshape) {
        uint32_t before = g->naxes;
        idx_split_axes(f, g, r);
        if (g->naxes != before) { /* the position itself is spelled in the new axes now */
            m = 0;
            r = operand_plain(f, g, n, i, idx, &m);
        }
    }
    *mask = m;
    return r;
}

/* What a template walks point by point, not in steps: the parts of digits. */
static uint32_t parts_axes(const Fuse *f, const Group *g) {
    uint32_t axes = 0;
    int64_t n;
    for (uint32_t i = 0; f->m->digits && i < g->naxes; i++)
        if (expr_is_const(f->p, g->axes[i].extent, &n) && n <= MACHINE_MAX_PARTS) axes |= 1u << i;
    return axes;
}

bool idx_try_walk(const Fuse *f, const Group *g, Value v, IdxId idx) {
    Scratch s;
    Expr mask;
    idx_scratch(f, g, idx, &s);
    IdxId in = idx_operand(&s.f, &s.g, v, 0, s.idx, &mask);
    uint32_t walked = group_axes(&s.g, AX_RED) | (g->attn ? s.g.fixed : 0);
    return !idx_awkward(f, &s.g, in, walked & ~parts_axes(f, &s.g));
}

static bool is_view(Op op) {
    return op == OP_reshape || op == OP_permute || op == OP_expand || op == OP_slice;
}

static uint32_t summands(const Fuse *f, const Group *g, Expr e, uint32_t axes) {
    if (expr_op(f->p, e) != EX_add) return (expr_axes_used(f, g, e) & axes) != 0;
    return summands(f, g, expr_arg(f->p, e, 0), axes) + summands(f, g, expr_arg(f->p, e, 1), axes);
}

/* Whether what is walked along these axes jumps within one dimension: rows cut out of it in
 * windows. No order of dimensions makes a matrix of that. */
static bool jumps(const Fuse *f, const Group *g, Expr dim, uint32_t axes) {
    return summands(f, g, dim, axes) > 1 && expr_awkward(f, g, dim, axes);
}

/* Where what lies behind views and casts of v is read, in a copy of the group. */
static const Idx *behind_views(const Fuse *f, const Group *g, Value v, IdxId idx, Scratch *s) {
    idx_scratch(f, g, idx, s);
    const Node *n = graph_node(f->g, v);
    for (; is_view((Op)n->op) || n->op == OP_cast; n = graph_node(f->g, v)) {
        Expr mask;
        s->idx = idx_operand(&s->f, &s->g, v, 0, s->idx, &mask);
        v = n->in[0];
    }
    return idx_get(&s->g, s->idx);
}

/* Neighbouring channels are neighbours in the one dimension of x that they move through, not a
 * shuffle's length apart. Through several they may still be, as merged axes are. */
static bool in_channels(const Scratch *s, const Idx *x) {
    const Idx *k = idx_get(&s->g, s->g.k_idx);
    const Expr channel = k->dim[k->rank - 1];
    const uint32_t axes = expr_axes_used(&s->f, &s->g, channel);
    uint32_t moved = 0, apart = 0;
    for (uint32_t d = 0; d < x->rank; d++) {
        if (!(expr_axes_used(&s->f, &s->g, x->dim[d]) & axes)) continue;
        Expr rest = expr_sub(s->f.p, x->dim[d], channel);
        moved++;
        apart += (expr_axes_used(&s->f, &s->g, rest) & axes) != 0;
    }
    return moved != 1 || !apart;
}

bool idx_try_window(const Fuse *f, const Group *g, Value v, IdxId idx) {
    Scratch s;
    const Idx *x = behind_views(f, g, v, idx, &s), *k = idx_get(g, g->k_idx),
              *at = idx_get(g, g->anchor_idx);
    uint32_t channel = expr_axes_used(f, &s.g, k->dim[k->rank - 1]), positions = 0;
    if (!in_channels(&s, x)) return false;
    for (uint32_t d = 0; d + 1 < at->rank; d++) positions |= expr_axes_used(f, &s.g, at->dim[d]);
    for (uint32_t d = 0; d < x->rank; d++) {
        uint32_t used = expr_axes_used(f, &s.g, x->dim[d]);
        if ((used & channel) && (used & positions)) return false;
        if (expr_awkward(f, &s.g, x->dim[d], used)) return false;
    }
    return true;
}

bool idx_try_taps_last(const Fuse *f, const Group *g, Value v, IdxId idx) {
    Scratch s;
    const Idx *x = behind_views(f, g, v, idx, &s), *k = idx_get(g, g->k_idx);
    uint32_t last = x->rank;
    while (last && expr_is_value(f->p, x->extent[last - 1], 1)) last--;
    uint32_t walked = last ? expr_axes_used(f, &s.g, x->dim[last - 1]) : 0;
    for (uint32_t d = 0; d + 1 < k->rank; d++)
        if (walked & expr_axes_used(f, g, k->dim[d])) return true;
    return false;
}

bool idx_try_rows(const Fuse *f, const Group *g, Value v, IdxId idx, uint32_t sym, uint32_t unit) {
    Scratch s;
    Expr coef, rest;
    const Idx *x = behind_views(f, g, v, idx, &s);
    uint32_t last = x->rank;
    while (last && expr_is_value(f->p, x->extent[last - 1], 1)) last--;
    if (!last || !expr_affine(f->p, x->dim[last - 1], sym, &coef, &rest)) return false;
    return expr_is_value(f->p, coef, 1) && expr_divisor(f->p, rest) % unit == 0 &&
           expr_divisor(f->p, x->extent[last - 1]) % unit == 0;
}

bool idx_try_apart(const Fuse *f, const Group *g, Value v, IdxId idx) {
    Scratch s;
    const Idx *x = behind_views(f, g, v, idx, &s);
    for (uint32_t a = 0; a < s.g.naxes; a++) {
        bool walked = false, others = false;
        for (uint32_t d = 0; d < x->rank; d++) {
            bool uses = expr_uses(f->p, x->dim[d], s.g.axes[a].sym);
            if (uses && walked && others) return true;
            walked |= uses;
            others = walked && (others || (!uses && expr_axes_used(f, &s.g, x->dim[d])));
        }
    }
    return false;
}

/* Whether the axis moves through several dimensions of x, not as through one: rows of a part of
 * each image, say. */
static bool skips(Scratch *s, const Idx *x, uint32_t axis) {
    Expr dim[2][GRAPH_MAX_RANK], extent[2][GRAPH_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t d = 0; d < x->rank; d++) n += expr_uses(s->f.p, x->dim[d], s->g.axes[axis].sym);
    for (uint32_t d = 0, i = 0; d < x->rank; d++) {
        if (!expr_uses(s->f.p, x->dim[d], s->g.axes[axis].sym)) continue;
        dim[0][i] = dim[1][n - 1 - i] = x->dim[d];
        extent[0][i] = extent[1][n - 1 - i] = x->extent[d];
        i++;
    }
    for (int way = 0; way < 2; way++) { /* or in the other order: so it may lie in memory, too */
        Expr at = idx_join(s->f.p, n, dim[way], extent[way]);
        if (n < 2 || !expr_awkward(&s->f, &s->g, at, expr_axes_used(&s->f, &s->g, at)))
            return false;
    }
    return true;
}

bool idx_try_fetch(const Fuse *f, const Group *g, Value v, IdxId idx) {
    Scratch s;
    const Idx *x = behind_views(f, g, v, idx, &s);
    for (uint32_t a = 0; a < s.g.naxes; a++)
        if (skips(&s, x, a)) return false;
    uint32_t walked = group_axes(&s.g, AX_RED);
    for (uint32_t d = 0; d < x->rank; d++) {
        uint32_t used = expr_axes_used(f, &s.g, x->dim[d]);
        if ((used & walked) && (used & ~walked)) return false;
        if (jumps(f, &s.g, x->dim[d], used)) return false;
    }
    return true;
}
