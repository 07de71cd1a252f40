/* Attention by meaning: o = softmax(score(q*k)) * v, whatever is spelled around it.
 *
 * From a contraction o upwards: the first operand is exp(score - max)/sum through casts, guards and
 * views, with max and sum folding the same row, and score is an element-wise function of a second
 * contraction. Everything between the two must be used nowhere else. A dry run of the indices then
 * checks that each value between is read at one position only and that the two contractions' axes
 * line up; its group is kept for the kernel. */
#include "fusion/analyse/facts.h"
#include "graph/build/build.h"
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

/* Through views that repeat or rearrange, and casts between float types. */
static Value strip(const Fuse *f, Value v) {
    for (;;) {
        const Node *n = node(f, v);
        bool skip = n->op == OP_reshape || n->op == OP_permute || n->op == OP_expand;
        if (n->op == OP_cast)
            skip =
                dtype_is_float(n->type.dtype) && dtype_is_float(graph_type(f->g, n->in[0])->dtype);
        if (!skip) return v;
        v = n->in[0];
    }
}

static bool is_fill(const Fuse *f, Value v, double x) {
    double c;
    v = strip(f, v);
    return build_const_f64(f->g, v, &c) && c == x;
}

/* p guarded against rows without finite scores: select(isnan(p), 0, p) and its mirror image. */
static Value strip_guard(const Fuse *f, Value v, bool *guarded) {
    v = strip(f, v);
    const Node *n = node(f, v);
    if (n->op != OP_select) return v;
    const Node *c = node(f, strip(f, n->in[0]));
    bool negated = c->op == OP_not;
    if (negated) c = node(f, strip(f, c->in[0]));
    Value kept = n->in[negated ? 1 : 2], fill = n->in[negated ? 2 : 1];
    if (c->op != OP_isnan || !is_fill(f, fill, 0)) return v;
    if (strip(f, c->in[0]) != strip(f, kept)) return v;
    *guarded = true;
    return strip(f, kept);
}

/* Maximum of the scores, possibly kept finite: max(m, x), select(isinf(m), x, m). */
static Value find_max(const Fuse *f, Value v) {
    for (int i = 0; i < 4; i++) {
        v = strip(f, v);
        const Node *n = node(f, v);
        if (n->op == OP_reduce_max) return v;
        double c;
        if (n->op == OP_max)
            v = build_const_f64(f->g, strip(f, n->in[1]), &c) ? n->in[0] : n->in[1];
        else if (n->op == OP_select)
            v = build_const_f64(f->g, strip(f, n->in[1]), &c) ? n->in[2] : n->in[1];
        else
            return 0;
    }
    return 0;
}

static bool find_softmax(const Fuse *f, Value p, AttnMatch *m) {
    const Node *n = node(f, p);
    if (n->nin != 2) return false;
    Value e = strip(f, n->in[0]), l = strip(f, n->in[1]);
    if (n->op == OP_mul) {
        if (node(f, e)->op == OP_recip) {
            Value t = e;
            e = l;
            l = t;
        }
        if (node(f, l)->op != OP_recip) return false;
        l = strip(f, node(f, l)->in[0]);
    } else if (n->op != OP_div) {
        return false;
    }
    if (node(f, e)->op != OP_exp || node(f, l)->op != OP_reduce_sum) return false;
    if (strip(f, node(f, l)->in[0]) != e) return false;
    const Node *d = node(f, strip(f, node(f, e)->in[0]));
    if (d->op != OP_sub) return false;
    Value score = strip(f, d->in[0]), max = find_max(f, d->in[1]);
    if (!max || strip(f, node(f, max)->in[0]) != score) return false;
    m->exp = e;
    m->sum = l;
    m->max = max;
    m->score = score;
    return true;
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
    if (c != OPC_MAP && c != OPC_REDUCE && !view) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (!collect(f, n->in[i], s, in)) return false;
    return true;
}

static bool used_inside_only(const Fuse *f, const Inside *in, Value o) {
    for (uint32_t i = 0; i < in->n; i++) {
        const VState *s = &f->v[in->v[i]];
        if (s->must) return false;
        for (uint32_t k = 0; k < s->nusers; k++) {
            Value u = fuse_user(f, in->v[i], k);
            if (u != o && !is_in(in, u)) return false;
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
    FusionWhy why;
    if (op_is_reduce((Op)n->op)) {
        if (!idx_try_reduce(d->f, d->g, v, idx, &why)) return false;
        return dry_demand(d, n->in[0], idx_reduce(d->f, d->g, v, idx));
    }
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

static bool match(Fuse *f, Value o, AttnMatch *m, Inside *in) {
    const Node *n = node(f, o);
    if (n->op != OP_dot || f->v[n->in[0]].const_only) return false;
    Value p = strip_guard(f, n->in[0], &m->guarded);
    if (!find_softmax(f, p, m)) return false;
    m->o = o;
    m->s = f->v[m->score].epi;
    if (!m->s || node(f, m->s)->op != OP_dot || f->v[m->s].attn) return false;
    if (n->type.dtype != DT_f32 || node(f, m->s)->type.dtype != DT_f32) return false;
    if (!collect(f, n->in[0], m->s, in) || !used_inside_only(f, in, o)) return false;
    return dry_run(f, m, in);
}

void fuse_find_attention(Fuse *f) {
    for (Value v = 1; v < f->g->nodes.n; v++) {
        AttnMatch m = {0};
        Inside in = {.n = 0};
        if (!fuse_is_dot(f, v) || !f->v[v].nusers + f->v[v].must) continue;
        uint32_t before = f->groups.n;
        if (!match(f, v, &m, &in) || !fuse_may(f, v, "the result of an attention kernel")) {
            f->groups.n = before;
            continue;
        }
        AttnMatch *keep = arena_copy(f->arena, &m, sizeof m);
        f->groups.v[m.group]->attn = keep;
        f->v[v].attn = keep;
        for (uint32_t i = 0; i < in.n; i++) f->v[in.v[i]].attn = keep;
    }
}
