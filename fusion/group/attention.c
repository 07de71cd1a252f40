/* Attention: which of it has a kernel, and what is computed inside.
 *
 * attention(scores, values) and logsumexp(scores) are one kernel if the scores are an element-wise
 * function of a contraction s. Everything between the two must be used nowhere else. A dry run of
 * the indices then checks that each value between is read at one position only and that the two
 * contractions' axes line up; its group is kept for the kernel. What has no kernel is decomposed,
 * and its parts are fused like anything else. */
#include "fusion/analyse/facts.h"
#include "graph/pass/pass.h"
#include <stdlib.h>
#include <string.h>

#define MAX_INSIDE  96
#define MAX_OUTSIDE 32 /* places that read masks, biases and the like */

typedef struct Inside {
    Value v[MAX_INSIDE];
    uint32_t n, outside;
} Inside;

static const Node *node(const Fuse *f, Value v) {
    return graph_node(f->g, v);
}

static bool is_in(const Inside *in, Value v) {
    for (uint32_t i = 0; i < in->n; i++)
        if (in->v[i] == v) return true;
    return false;
}

/* Everything between s and o, in no order. */
static bool collect(const Fuse *f, Value v, Value s, Inside *in) {
    if (is_in(in, v)) return true;
    if (v != s && !fuse_depends(f, v, s)) return ++in->outside <= MAX_OUTSIDE;
    if (in->n == MAX_INSIDE) return false;
    in->v[in->n++] = v;
    if (v == s) return true;
    const Node *n = node(f, v);
    OpClass c = op_info[n->op].cls;
    bool view = n->op == OP_reshape || n->op == OP_permute || n->op == OP_expand;
    if (c != OPC_MAP && !view) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (!collect(f, n->in[i], s, in)) return false;
    return true;
}

static bool used_inside_only(const Fuse *f, const Inside *in, Value o, Value lse) {
    for (uint32_t i = 0; i < in->n; i++) {
        const VState *s = &f->v[in->v[i]];
        if (s->must) return false;
        for (uint32_t k = 0; k < s->nusers; k++) {
            Value u = fuse_user(f, in->v[i], k);
            if (u != o && u != lse && !is_in(in, u)) return false;
        }
    }
    for (uint32_t i = 0; i < f->v[o].nusers; i++) /* o itself may not feed the pattern */
        if (is_in(in, fuse_user(f, o, i))) return false;
    return node(f, o)->in[1] != node(f, o)->in[0] && !is_in(in, node(f, o)->in[1]);
}

static int by_number_down(const void *a, const void *b) {
    Value x = *(const Value *)a, y = *(const Value *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Where each value between is read; false when one is read at two places. */
typedef struct DryRun {
    Fuse *f;
    Group *g;
    const Inside *in;
    IdxId at[MAX_INSIDE];
} DryRun;

static bool dry_demand(DryRun *d, Value v, IdxId idx) {
    for (uint32_t i = 0; i < d->in->n; i++) {
        if (d->in->v[i] != v) continue;
        IdxId had = idx_canon(d->g, d->at[i]);
        if (had && had != idx_canon(d->g, idx)) return false;
        d->at[i] = idx;
    }
    return true;
}

static bool dry_value(DryRun *d, Value v, IdxId idx) {
    const Node *n = node(d->f, v);
    for (uint32_t i = 0; i < n->nin; i++) {
        Expr mask;
        IdxId in = idx_operand(d->f, d->g, v, i, idx, &mask);
        if (mask || !dry_demand(d, n->in[i], in)) return false;
    }
    return true;
}

/* The scores' rows follow the query axis, their columns the key axis, or the other way round. */
static bool axes_line_up(const Fuse *f, const Group *g, IdxId s, uint32_t i, uint32_t j) {
    const Idx *x = idx_get(g, s);
    if (x->rank < 2) return false;
    for (uint32_t d = 0; d + 2 < x->rank; d++)
        if (expr_axes_used(f, g, x->dim[d]) & (i | j)) return false;
    uint32_t m = expr_axes_used(f, g, x->dim[x->rank - 2]);
    uint32_t n = expr_axes_used(f, g, x->dim[x->rank - 1]);
    return (!(m & j) && !(n & ~j)) || (!(n & j) && !(m & ~j));
}

static bool dry_run(Fuse *f, AttnMatch *m, Inside *in) {
    const Node *o = node(f, m->o);
    Group *g = group_new(f, GROUP_map);
    m->group = g->id;
    g->attn = m;
    g->anchor_idx = idx_dot_axes(f, g, m->o);
    const Type *p = graph_type(f->g, o->in[0]);
    Type row = {.rank = 1, .dim = {p->dim[p->rank - 1]}};
    m->isym = g->axes[g->naxes - 2].sym;
    m->nsym = g->axes[g->naxes - 1].sym;
    Expr j = axis_new(f, g, row.dim[0], AX_RED);
    m->jsym = g->axes[g->naxes - 1].sym;
    g->fixed |= 1u << (g->naxes - 1);
    g->j_idx = idx_make(f, g, &row, &j, 0);
    qsort(in->v, in->n, sizeof in->v[0], by_number_down);
    DryRun d = {.f = f, .g = g, .in = in};
    if (!dry_demand(&d, o->in[0], idx_dot(f, g, m->o, g->anchor_idx).a)) return false;
    for (uint32_t i = 0; i < in->n; i++) {
        if (!d.at[i]) return false;
        if (in->v[i] == m->s)
            return axes_line_up(f, g, d.at[i], axis_bit(g, m->isym), axis_bit(g, m->jsym));
        if (!dry_value(&d, in->v[i], d.at[i])) return false;
    }
    return false;
}

/* The log of the sum of exponentials of o's scores, if anybody wants it. */
static Value find_lse(const Fuse *f, Value o) {
    Value scores = node(f, o)->in[0];
    for (uint32_t i = 0; i < f->v[scores].nusers; i++) {
        Value u = fuse_user(f, scores, i);
        if (node(f, u)->op == OP_logsumexp && node(f, u)->type.dtype == DT_f32) return u;
    }
    return 0;
}

static bool match(Fuse *f, Value o, AttnMatch *m, Inside *in) {
    const Node *n = node(f, o);
    m->o = o;
    m->lse = find_lse(f, o);
    m->guarded = n->attr.attention.guarded;
    m->s = f->v[n->in[0]].epi;
    if (!m->s || node(f, m->s)->op != OP_dot || f->v[m->s].attn || f->v[n->in[0]].const_only)
        return false;
    if (n->type.dtype != DT_f32 || node(f, m->s)->type.dtype != DT_f32) return false;
    if (fuse_depends(f, n->in[1], o)) return false;
    if (!collect(f, n->in[0], m->s, in) || !used_inside_only(f, in, o, m->lse)) return false;
    return dry_run(f, m, in);
}

static bool find(Fuse *f, Value v) {
    AttnMatch m = {0};
    Inside in = {.n = 0};
    uint32_t before = f->groups.n;
    if (!match(f, v, &m, &in) || !fuse_may(f, v, "the result of an attention kernel")) {
        f->groups.n = before;
        return false;
    }
    AttnMatch *keep = arena_copy(f->arena, &m, sizeof m);
    f->groups.v[m.group]->attn = keep;
    f->v[v].attn = keep;
    if (m.lse) f->v[m.lse].attn = keep;
    for (uint32_t i = 0; i < in.n; i++) f->v[in.v[i]].attn = keep;
    return true;
}

static bool is_needed(const Fuse *f, Value v) {
    return f->v[v].nusers || f->v[v].must;
}

/* A second attention over the same scores is a kernel of its own parts. */
bool fuse_find_attention(Fuse *f) {
    uint32_t n = f->g->nodes.n, refused = 0;
    bool *which = ARENA_ARRAY(f->arena, bool, n);
    for (int lse = 0; lse < 2; lse++)
        for (Value v = 1; v < n; v++) {
            if (node(f, v)->op != (lse ? OP_logsumexp : OP_attention) || !is_needed(f, v)) continue;
            if (lse ? f->v[v].attn != NULL : find(f, v)) continue;
            which[v] = true;
            refused++;
        }
    if (!refused) return true;
    f->g = pass_decompose(f->g, which);
    f->groups.n = 0;
    return false;
}

void fuse_store_lse(Fuse *f, Value v) {
    const AttnMatch *m = f->v[v].attn;
    Group *g = f->groups.v[m->group];
    const Idx *o = idx_get(g, g->anchor_idx);
    fuse_own_root(f, g, v, idx_make(f, g, graph_type(f->g, v), o->dim, 0));
}
