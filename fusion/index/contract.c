/* Index expressions of contractions: their result's axes and the contracted ones. */
#include "fusion/analyse/facts.h"
#include <string.h>

static Type contracted_dims(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    const Type *a = graph_type(f->g, n->in[0]), *b = graph_type(f->g, n->in[1]);
    Type t = {.dtype = a->dtype};
    if (n->op != OP_conv) {
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

AttnMatch *group_attention(const Group *g, Value o) {
    AttnMatch *m = g->attn;
    for (int i = 0; m && i <= 2; i++) {
        AttnMatch *at = i ? m->with[i - 1] : m;
        if (at && at->o == o) return at;
    }
    return NULL;
}

/* Where the group keeps the position along what v contracts. */
static IdxId *contracted_at(Group *g, Value v) {
    for (uint32_t i = 0; i < g->terms.n; i++)
        if (g->terms.v[i].dot == v) return &g->terms.v[i].k_idx;
    return g->attn && v == g->attn->s[1] ? &g->k2_idx : &g->k_idx;
}

uint32_t idx_dot_folds(const Fuse *f, const Group *g, Value v) {
    IdxId at = g->k_idx;
    if (!g->terms.n) return group_axes(g, AX_RED);
    for (uint32_t i = 0; i < g->terms.n; i++)
        if (g->terms.v[i].dot == v) at = g->terms.v[i].k_idx;
    return idx_axes_used(f, g, at);
}

DotIdx idx_dot(Fuse *f, Group *g, Value v, IdxId idx) {
    const Node *n = graph_node(f->g, v);
    const AttnMatch *m = group_attention(g, v);
    IdxId kidx = m ? m->fold : 0;
    if (!m) {
        uint32_t second = g->attn && v == g->attn->s[1];
        IdxId *at = contracted_at(g, v);
        if (!*at) {
            *at = contracted_axes(f, g, v);
            if (g->attn) g->attn->dsym[second] = g->axes[g->naxes - 1].sym;
        }
        kidx = *at;
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
