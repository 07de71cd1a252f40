/* Attention and its gradients: which of them have a kernel, and what is computed inside.
 *
 * attention(scores, values) and logsumexp(scores) are one kernel if the scores are an element-wise
 * function of a contraction s. A gradient is a contraction one of whose operands is an element-wise
 * function of probabilities exp(scores - logsumexp(scores)), and perhaps of a second contraction,
 * that of the result's gradient with the values.
 *
 * A dry run of the indices checks that each value inside is read at one position only and that the
 * contractions' axes line up; its group is kept for the kernel. Values inside may be read elsewhere
 * too: then others store them. An attention that has no kernel is decomposed. */
#include "fusion/analyse/facts.h"
#include "graph/pass/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INSIDE  96
#define MAX_OUTSIDE 32 /* places that read masks, biases and the like */

#define MAX_LOOKED 400 /* values that are looked at for what is inside */

typedef struct Inside {
    Value v[MAX_INSIDE];
    uint32_t n, outside, looked;
    Value dot[2]; /* contractions inside */
    uint32_t ndots;
    Value exp; /* a difference to a logsumexp, exponentiated */
} Inside;

static const Node *node(const Fuse *f, Value v) {
    return graph_node(f->g, v);
}

static bool is_in(const Inside *in, Value v) {
    for (uint32_t i = 0; i < in->n; i++)
        if (in->v[i] == v) return true;
    return false;
}

static bool is_view(const Node *n) {
    return n->op == OP_reshape || n->op == OP_permute || n->op == OP_expand;
}

/* exp(x - logsumexp(..)), which may be kept finite. */
static bool is_probability(const Fuse *f, const Node *n) {
    if (n->op != OP_exp || node(f, n->in[0])->op != OP_sub) return false;
    n = node(f, node(f, n->in[0])->in[1]);
    while (is_view(n) || n->op == OP_select) n = node(f, n->in[n->op == OP_select ? 2 : 0]);
    return n->op == OP_logsumexp;
}

static bool is_product(const Fuse *f, Value v) {
    return node(f, v)->op == OP_dot && node(f, v)->type.dtype == DT_f32 && !f->fact[v].const_only;
}

/* What of v and behind it is a map or view of contractions goes inside, with those; the rest stays
 * outside. *any: v is inside. False: it is too much. */
static bool gather(const Fuse *f, Value v, Inside *in, bool *any) {
    const Node *n = node(f, v);
    *any = is_in(in, v);
    if (*any) return true;
    if (++in->looked > MAX_LOOKED) return false;
    if (is_product(f, v)) {
        *any = true;
        if (in->ndots == 2) return false;
        in->dot[in->ndots++] = v;
    } else if (op_info[n->op].cls == OPC_MAP || is_view(n)) {
        uint32_t outside = 0;
        for (uint32_t i = 0; i < n->nin; i++) {
            bool some;
            if (!gather(f, n->in[i], in, &some)) return false;
            *any |= some;
            outside += !some;
        }
        if (*any) in->outside += outside;
        if (*any && is_probability(f, n)) in->exp = v;
    }
    if (!*any) return true;
    if (in->n == MAX_INSIDE || in->outside > MAX_OUTSIDE) return false;
    in->v[in->n++] = v;
    return true;
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

/* The group's axes: the result's, of which `m->isym` and `m->nsym` are the last two, and the keys.
 */
static Group *make_group(Fuse *f, AttnMatch *m) {
    const Node *o = node(f, m->o);
    Group *g = group_new(f, GROUP_map);
    m->group = g->id;
    g->attn = m;
    g->anchor_idx = idx_dot_axes(f, g, m->o);
    const Type *p = graph_type(f->g, o->in[0]);
    Type row = {.rank = 1, .dim = {p->dim[p->rank - 1]}};
    uint32_t rows = g->axes[g->naxes - 2].sym, columns = g->axes[g->naxes - 1].sym;
    m->isym = m->side ? columns : rows;
    m->nsym = m->side ? rows : columns;
    Expr j = axis_new(f, g, row.dim[0], AX_RED);
    m->jsym = g->axes[g->naxes - 1].sym;
    g->fixed |= 1u << (g->naxes - 1);
    m->fold = idx_make(f, g, &row, &j, 0);
    m->out = g->anchor_idx;
    return g;
}

/* Operands of m, whose contraction is in the group that d walks. */
static bool dry_result(DryRun *d, const AttnMatch *m) {
    DotIdx at = idx_dot(d->f, d->g, m->o, m->out);
    return dry_demand(d, node(d->f, m->o)->in[m->side], m->side ? at.b : at.a);
}

/* Behind the results: what is inside of them. Kept for m, whose group it is. */
static bool dry_inside(DryRun *d, AttnMatch *m) {
    Fuse *f = d->f;
    Group *g = d->g;
    const Inside *in = d->in;
    for (uint32_t i = 0; i < in->n; i++) {
        if (!d->at[i]) return false;
        bool dot = in->v[i] == m->s[0] || in->v[i] == m->s[1];
        bool ok = dot ? axes_line_up(f, g, d->at[i], axis_bit(g, m->isym), axis_bit(g, m->jsym))
                      : dry_value(d, in->v[i], d->at[i]);
        if (!ok) return false;
    }
    m->ninside = in->n;
    m->inside = arena_copy(f->arena, in->v, in->n * sizeof in->v[0]);
    m->at = arena_copy(f->arena, d->at, in->n * sizeof d->at[0]);
    return true;
}

static bool dry_run(Fuse *f, AttnMatch *m, Inside *in) {
    Group *g = make_group(f, m);
    qsort(in->v, in->n, sizeof in->v[0], by_number_down);
    DryRun d = {.f = f, .g = g, .in = in};
    return dry_result(&d, m) && dry_inside(&d, m);
}

/* The log of the sum of exponentials of o's scores, if anybody wants it. */
static Value find_lse(const Fuse *f, Value o) {
    Value scores = node(f, o)->in[0];
    for (uint32_t i = 0; i < f->fact[scores].nusers; i++) {
        Value u = fuse_user(f, scores, i);
        bool is = node(f, u)->op == OP_logsumexp && node(f, u)->type.dtype == DT_f32;
        if (is && !f->v[u].attn && !(f->apart && f->apart[u])) return u;
    }
    return 0;
}

enum { MANY_QUERIES = 17 }; /* fewer are no work for matrix units */
enum { WIDE_HEAD = 128, TILE_QUERIES = 128, TILE_COLUMNS = 256 }; /* of attention on them */
#define MOST_SCORES (1 << 28) /* of an attention that stores them */

bool group_has_queries(const Fuse *f, const AttnMatch *m) {
    const Type *t = graph_type(f->g, m->o);
    return fuse_hint(f, t->dim[t->rank - 2]) >= MANY_QUERIES;
}

static bool is_wider(const Fuse *f, Expr size, int64_t than) {
    int64_t n;
    return expr_is_const(f->p, size, &n) && n > than;
}

/* Of the largest sizes that there may be, not of typical ones. */
static bool is_bounded(const Fuse *f, const Type *t, double most) {
    double n = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        int64_t lo, hi;
        expr_range(f->p, t->dim[i], &lo, &hi);
        n *= (double)hi;
    }
    return n <= most;
}

/* Tiles of queries, and of so many columns, that its template would share out. */
static double tiles_of(const Fuse *f, const Type *o) {
    double queries = fuse_hint(f, o->dim[o->rank - 2]), columns = fuse_hint(f, o->dim[o->rank - 1]);
    double n = ceil(queries / TILE_QUERIES) * ceil(columns / TILE_COLUMNS);
    for (uint32_t i = 0; i + 2u < o->rank; i++) n *= fuse_hint(f, o->dim[i]);
    return n;
}

/* Wide heads of 16 bits whose scores can never be too many to be stored, as two products and a
 * softmax: where attention on matrix units has no room for such heads, or would keep less than half
 * of the processors busy, as products have more and smaller tiles. */
static bool is_products(const Fuse *f, const AttnMatch *m) {
    const Node *o = node(f, m->o), *s = node(f, m->s[0]);
    const Type *q = graph_type(f->g, s->in[0]);
    const uint32_t most = f->m->half_attention;
    if (!most || m->lse || !dtype_is_half(q->dtype)) return false;
    if (!dtype_is_half(graph_type(f->g, o->in[1])->dtype)) return false;
    const Expr d = q->dim[q->rank - 1], dv = o->type.dim[o->type.rank - 1];
    if (!is_wider(f, d, WIDE_HEAD) && !is_wider(f, dv, WIDE_HEAD)) return false;
    if (!group_has_queries(f, m)) return false;
    if (!is_wider(f, d, most) && 2 * tiles_of(f, &o->type) > f->m->processors) return false;
    return is_bounded(f, graph_type(f->g, m->s[0]), MOST_SCORES);
}

static bool match(Fuse *f, AttnMatch *m, Inside *in) {
    const Node *n = node(f, m->o);
    bool any;
    m->lse = find_lse(f, m->o);
    m->guarded = n->attr.attention.guarded;
    if (n->type.dtype != DT_f32 || fuse_depends(f, n->in[1], m->o)) return false;
    if (!gather(f, n->in[0], in, &any) || in->ndots != 1 || is_in(in, n->in[1])) return false;
    m->s[0] = in->dot[0];
    return !is_products(f, m) && dry_run(f, m, in);
}

/* Rows of 16-bit numbers that are moved as they are: whole multiples of 16 bytes, no more than the
 * target's template takes. */
static bool half_rows(const Fuse *f, Value v, int64_t most) {
    const Type *t = graph_type(f->g, v);
    int64_t rows, cols;
    bool a = expr_is_const(f->p, t->dim[t->rank - 1], &cols) && cols <= most && cols % 8 == 0;
    bool b = expr_is_const(f->p, t->dim[t->rank - 2], &rows) && rows <= most && rows % 8 == 0;
    return dtype_is_half(t->dtype) && (a || b);
}

/* Has the target that template for these operands? */
static bool has_template(const Fuse *f, const AttnMatch *m) {
    const Node *o = node(f, m->o);
    int64_t most = f->m->half_gradient;
    bool half = half_rows(f, o->in[1 - m->side], most);
    for (int i = 0; i < 2 && half && m->s[i]; i++)
        half = half_rows(f, node(f, m->s[i])->in[0], most) &&
               half_rows(f, node(f, m->s[i])->in[1], most);
    return half || f->m->attention_gradient;
}

/* Of one operand, which is made of probabilities. */
static bool match_gradient(Fuse *f, AttnMatch *m, Inside *in) {
    const Node *n = node(f, m->o);
    bool any;
    m->gradient = true;
    if (!gather(f, n->in[m->side], in, &any) || !in->exp || is_in(in, n->in[1 - m->side]))
        return false;
    uint32_t second = f->fact[node(f, node(f, in->exp)->in[0])->in[0]].epi == in->dot[1];
    m->s[0] = in->dot[second];
    m->s[1] = in->ndots == 2 ? in->dot[!second] : 0;
    return has_template(f, m) && dry_run(f, m, in);
}

static bool find(Fuse *f, Value v, bool (*matches)(Fuse *f, AttnMatch *m, Inside *in),
                 uint32_t side) {
    AttnMatch m = {.o = v, .side = side};
    Inside in = {.n = 0};
    uint32_t before = f->groups.n;
    if (!matches(f, &m, &in) || !fuse_may(f, v, "the result of an attention kernel")) {
        f->groups.n = before;
        return false;
    }
    AttnMatch *keep = arena_copy(f->arena, &m, sizeof m);
    f->groups.v[m.group]->attn = keep;
    f->choice[v].attn = keep;
    if (m.lse) f->choice[m.lse].attn = keep;
    return true;
}

static bool is_needed(const Fuse *f, Value v) {
    return f->fact[v].nusers || f->v[v].must;
}

static void find_single_gradients(Fuse *f) {
    for (Value v = 1; v < f->g->nodes.n; v++)
        if (is_product(f, v) && is_needed(f, v) && !f->v[v].attn && !find(f, v, match_gradient, 0))
            (void)find(f, v, match_gradient, 1);
}

/* --- All gradients of an attention ------------------------------------------------------------ */

/* Rows of the gradient's result are rows of the scores, not their columns. */
static bool follows_rows(const Fuse *f, const AttnMatch *m) {
    const Group *g = f->groups.v[m->group];
    for (uint32_t i = 0; i < m->ninside; i++) {
        if (m->inside[i] != m->s[0]) continue;
        const Idx *x = idx_get(g, m->at[i]);
        return expr_axes_used(f, g, x->dim[x->rank - 2]) & axis_bit(g, m->isym);
    }
    return false;
}

static Value behind_views(const Fuse *f, Value v) {
    while (is_view(node(f, v))) v = node(f, v)->in[0];
    return v;
}

/* What m multiplies, of the scores' size, and the other operand. */
static Value weights_of(const Fuse *f, const AttnMatch *m) {
    return behind_views(f, node(f, m->o)->in[m->side]);
}
static Value other_of(const Fuse *f, const AttnMatch *m) {
    return behind_views(f, node(f, m->o)->in[1 - m->side]);
}

static bool is_factor(const Fuse *f, Value dot, Value v) {
    return behind_views(f, node(f, dot)->in[0]) == v || behind_views(f, node(f, dot)->in[1]) == v;
}

/* Gradients of keys, values and queries, which are computed from the same. */
static bool belong(const Fuse *f, const AttnMatch *k, const AttnMatch *v, const AttnMatch *q) {
    const AttnMatch *m[3] = {k, v, q};
    if (v->s[0] != k->s[0] || q->s[0] != k->s[0] || v->s[1] || !k->s[1] || q->s[1] != k->s[1])
        return false;
    if (weights_of(f, q) != weights_of(f, k) || follows_rows(f, k) != follows_rows(f, v) ||
        follows_rows(f, k) == follows_rows(f, q))
        return false;
    if (!is_factor(f, k->s[0], other_of(f, k)) || !is_factor(f, k->s[0], other_of(f, q)) ||
        !is_factor(f, k->s[1], other_of(f, v)))
        return false;
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            if (a != b && fuse_depends(f, m[a]->o, m[b]->o)) return false;
    return !f->apart || !f->apart[k->o];
}

static Expr last_dim(const Fuse *f, const AttnMatch *m, bool row) {
    const Type *t = graph_type(f->g, m->o);
    return t->dim[t->rank - (row == (m->side == 1) ? 1 : 2)];
}

/* Where m's result is in g, the group of `first`, and what m folds. */
static void place_result(Fuse *f, Group *g, const AttnMatch *first, AttnMatch *m, bool queries) {
    const Type *t = graph_type(f->g, m->o);
    const Idx *at = idx_get(g, first->out);
    Expr dim[GRAPH_MAX_RANK], i = at->dim[t->rank - (first->side ? 1 : 2)];
    Expr j = idx_get(g, first->fold)->dim[0], fold = queries ? i : j;
    memcpy(dim, at->dim, sizeof dim);
    Type row = {.rank = 1, .dim = {last_dim(f, queries ? first : m, true)}};
    if (!queries) row.dim[0] = graph_type(f->g, first->s[0])->dim[t->rank - 1];
    Expr n = axis_new(f, g, last_dim(f, m, false), AX_PAR);
    m->nsym = g->axes[g->naxes - 1].sym;
    g->fixed |= 1u << (g->naxes - 1);
    m->isym = queries ? first->jsym : first->isym;
    m->jsym = queries ? first->isym : first->jsym;
    dim[t->rank - (m->side ? 1 : 2)] = queries ? j : i;
    dim[t->rank - (m->side ? 2 : 1)] = n;
    m->out = idx_make(f, g, t, dim, 0);
    m->fold = idx_make(f, g, &row, &fold, 0);
    m->group = g->id;
}

static bool same_batch(const Fuse *f, Value a, Value b) {
    const Type *x = graph_type(f->g, a), *y = graph_type(f->g, b);
    bool same = x->rank == y->rank;
    for (uint32_t d = 0; same && d + 2 < x->rank; d++) same = x->dim[d] == y->dim[d];
    return same;
}

/* What is inside of any. */
static bool gather_all(const Fuse *f, const AttnMatch *const *m, Inside *all) {
    for (int i = 0; i < 3; i++) {
        Inside in = {.n = 0};
        bool any;
        if (!gather(f, node(f, m[i]->o)->in[m[i]->side], &in, &any)) return false;
        for (uint32_t k = 0; k < in.n; k++) {
            if (is_in(all, in.v[k])) continue;
            if (all->n == MAX_INSIDE) return false;
            all->v[all->n++] = in.v[k];
        }
    }
    qsort(all->v, all->n, sizeof all->v[0], by_number_down);
    return true;
}

static bool try_join(Fuse *f, AttnMatch *k, AttnMatch *v, AttnMatch *q) {
    const AttnMatch *m[3] = {k, v, q};
    Inside in = {.n = 0};
    if (!same_batch(f, k->o, v->o) || !same_batch(f, k->o, q->o) || !gather_all(f, m, &in))
        return false;
    Group *g = make_group(f, k);
    for (uint32_t a = 0; a < g->naxes; a++)
        if (g->axes[a].sym == k->isym) g->axes[a].kind = AX_RED, g->fixed |= 1u << a;
    place_result(f, g, k, v, false);
    place_result(f, g, k, q, true);
    k->with[0] = v, k->with[1] = q;
    q->raw = true;
    DryRun d = {.f = f, .g = g, .in = &in};
    bool ok = true;
    for (int i = 0; i < 3; i++) ok = ok && dry_result(&d, m[i]);
    return ok && dry_inside(&d, k) &&
           fuse_may(f, k->o, "with the other gradients of its attention");
}

static void join(Fuse *f, const AttnMatch *k, const AttnMatch *v, const AttnMatch *q) {
    AttnMatch *m[3] = {arena_copy(f->arena, k, sizeof *k), arena_copy(f->arena, v, sizeof *v),
                       arena_copy(f->arena, q, sizeof *q)};
    uint32_t before = f->groups.n;
    bool ok = try_join(f, m[0], m[1], m[2]);
    if (!ok) f->groups.n = before;
    for (int i = 0; i < 3 && ok; i++) f->choice[m[i]->o].attn = m[i];
}

typedef VEC(const AttnMatch *) Matches;

/* Those whose gradients all have a kernel of their own are done in one, where the target can. */
static void find_gradients(Fuse *f) {
    uint32_t before = f->groups.n;
    Matches m = {0}, three = {0};
    find_single_gradients(f);
    for (Value v = 1; v < f->g->nodes.n && f->m->joint_gradients; v++)
        if (f->v[v].attn && f->v[v].attn->gradient) vec_push(f->arena, &m, f->v[v].attn);
    for (uint32_t k = 0; k < m.n; k++)
        for (uint32_t v = 0; v < m.n && m.v[k]->s[1]; v++)
            for (uint32_t q = 0; q < m.n && !m.v[v]->s[1]; q++) {
                if (!belong(f, m.v[k], m.v[v], m.v[q])) continue;
                vec_push(f->arena, &three, m.v[k]);
                vec_push(f->arena, &three, m.v[v]);
                vec_push(f->arena, &three, m.v[q]);
                v = q = m.n;
            }
    if (!three.n) return;
    for (uint32_t i = 0; i < m.n; i++) f->choice[m.v[i]->o].attn = NULL;
    f->groups.n = before;
    for (uint32_t i = 0; i < three.n; i += 3) join(f, three.v[i], three.v[i + 1], three.v[i + 2]);
    find_single_gradients(f);
}

/* One attention has the statistics that are wanted; another over the same scores has none. */
bool fuse_find_attention(Fuse *f) {
    uint32_t n = f->g->nodes.n, refused = 0;
    bool *which = ARENA_ARRAY(f->arena, bool, n);
    for (int lse = 0; lse < 2; lse++)
        for (Value v = 1; v < n; v++) {
            if (node(f, v)->op != (lse ? OP_logsumexp : OP_attention) || !is_needed(f, v)) continue;
            if (lse ? f->v[v].attn != NULL : find(f, v, match, 0)) continue;
            which[v] = true;
            refused++;
        }
    if (!refused) {
        find_gradients(f);
        return true;
    }
    f->g = pass_decompose(f->g, which);
    f->apart = NULL; /* values have other numbers */
    return false;
}

void fuse_set_apart(Fuse *f, Value v) {
    if (!f->apart) f->apart = ARENA_ARRAY(f->arena, bool, f->g->nodes.n);
    f->apart[v] = f->stuck = true;
}

void fuse_store_lse(Fuse *f, Value v) {
    const AttnMatch *m = f->v[v].attn;
    Group *g = f->groups.v[m->group];
    if (fuse_demands(f, g, v) || group_needs_reader(f, g, v)) {
        fuse_set_apart(f, v);
        return;
    }
    const Idx *o = idx_get(g, g->anchor_idx);
    fuse_own_root(f, g, v, idx_make(f, g, graph_type(f->g, v), o->dim, 0));
}
