/* The order of dimensions in which a value lies in memory: what its producer writes and its most
 * demanding readers read contiguously, not what its type happens to say. */
#include "fusion/group/decide.h"
#include "fusion/analyse/facts.h"
#include <string.h>

enum { ALIGNED_ROWS = 32 }; /* elements: shorter rows are not worth it */

static void set_order(VState *s, uint32_t rank, const uint8_t *order) {
    s->permuted = false;
    for (uint32_t i = 0; i < rank; i++) {
        s->order[i] = order[i];
        s->permuted = s->permuted || order[i] != i;
    }
}

/* An epilogue stores in the order of its contraction, if only permutations lie between. */
static bool order_of_anchor(Fuse *f, Value v) {
    Value chain[64];
    uint32_t n = 0;
    uint8_t at[GRAPH_MAX_RANK]; /* dimension of v that each of the contraction's dimensions is */
    for (Value w = v; f->fact[w].epi_from; w = f->fact[w].epi_from) {
        if (n == 64 || graph_node(f->g, w)->op == OP_reshape) return false;
        chain[n++] = w;
    }
    uint32_t rank = graph_type(f->g, v)->rank;
    for (uint32_t i = 0; i < rank; i++) at[i] = (uint8_t)i;
    while (n-- > 0) {
        const Node *x = graph_node(f->g, chain[n]);
        if (x->op != OP_permute) continue;
        uint8_t to[GRAPH_MAX_RANK];
        for (uint32_t i = 0; i < rank; i++) to[x->attr.perm.axis[i]] = (uint8_t)i;
        for (uint32_t i = 0; i < rank; i++) at[i] = to[at[i]];
    }
    set_order(&f->choice[v], rank, at);
    return true;
}

/* What a contraction wants permuted, with dimension `inner` last: in the order of that permute,
 * which others read as it is. */
static bool order_of_contraction(Fuse *f, Value v, uint32_t inner) {
    const Fact *fact = &f->fact[v];
    const uint8_t *order = NULL;
    for (uint32_t i = 0; i < fact->nusers; i++) {
        const Node *u = graph_node(f->g, fuse_user(f, v, i));
        if (u->op != OP_permute || u->attr.perm.axis[u->type.rank - 1] != inner) continue;
        if (order && memcmp(u->attr.perm.axis, order, u->type.rank) != 0) return false;
        order = u->attr.perm.axis;
    }
    if (order) set_order(&f->choice[v], graph_type(f->g, v)->rank, order);
    return order != NULL;
}

/* Dimension `dim` of what the group's contraction reads there tells which of several products an
 * element is of. */
static bool tells_product(const Fuse *f, const Group *g, IdxId read, uint32_t dim) {
    const Idx *x = idx_get(g, read), *of = g->anchor_idx ? idx_get(g, g->anchor_idx) : NULL;
    uint32_t batch = 0;
    if (!of || !g->anchor || graph_node(f->g, g->anchor)->op != OP_dot) return false;
    for (uint32_t i = 0; i + 2 < of->rank; i++) batch |= expr_axes_used(f, g, of->dim[i]);
    return (expr_axes_used(f, g, x->dim[dim]) & batch) != 0;
}

bool fuse_turns_products(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_permute || !fuse_is_fetched(f, n->type.dtype) || f->m->inline_flops.half_a > 0)
        return false;
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        const Demand *d = &f->v[v].demands.v[i];
        for (uint32_t k = 0; (d->use == USE_a || d->use == USE_b) && k < n->type.rank; k++)
            if (n->attr.perm.axis[k] + 1u == n->type.rank &&
                tells_product(f, f->groups.v[d->group], d->idx, k))
                return true;
    }
    return false;
}

/* So does the last: along it lies neither a row nor a column. */
static bool last_tells_product(const Fuse *f, const Group *g, IdxId read) {
    const uint32_t rank = idx_get(g, read)->rank;
    return rank && tells_product(f, g, read, rank - 1);
}

/* Matrix units fetch this operand of a contraction in the order in which it lies. */
static bool fetched_as_is(const Fuse *f, const Group *g, Value v, Use use, IdxId read) {
    const Type *t = graph_type(f->g, v);
    if (last_tells_product(f, g, read)) return false;
    if ((use != USE_a && use != USE_b) || !fuse_is_fetched(f, t->dtype) ||
        f->m->inline_flops.half_a > 0)
        return false;
    if (!g->anchor || graph_node(f->g, g->anchor)->op != OP_dot || f->v[g->anchor].attn)
        return false;
    return expr_divisor(f->p, t->dim[t->rank - 1]) * (int64_t)dtype_bytes(t->dtype) % 16 == 0;
}

/* Whether it is one of what scores are made of, of queries and of keys: a bias by their distance */
static bool makes_scores(const Fuse *f, const Group *g, Use use, IdxId read) {
    if (use != USE_point || !g->attn || g->attn->gradient) return false;
    const uint32_t axes = idx_axes_used(f, g, read);
    return (axes & axis_bit(g, g->attn->isym)) && (axes & axis_bit(g, g->attn->jsym));
}

/* Right operands whose rows are of what is summed: bytes always, a convolution's of 16 bits so that
 * a tap's channels lie side by side. */
static bool fetched_by_channels(const Fuse *f, const Group *g, DType t) {
    if (fuse_is_bytes(f, t)) return true;
    const bool conv = g->anchor && graph_node(f->g, g->anchor)->op == OP_conv;
    return conv && !fuse_is_depthwise(f, g->anchor) && dtype_is_half(t) &&
           f->m->inline_flops.half_b <= 0;
}

/* The axis along which a template reads this operand contiguously, as a symbol. */
static bool inner_axis(const Fuse *f, const Group *g, Use use, DType t, IdxId read, uint32_t *sym) {
    if (f->m->query_lanes && makes_scores(f, g, use, read)) {
        *sym = g->attn->isym;
        return true;
    }
    if (use < USE_query || g->kind == GROUP_pack) return false;
    if (use == USE_value) {
        uint32_t axes = idx_axes_used(f, g, read);
        *sym = g->attn->nsym;
        for (int i = 0; i < 2 && g->attn->with[i] && !(axes & axis_bit(g, *sym)); i++)
            *sym = g->attn->with[i]->nsym;
        return true;
    }
    /* A gradient of attention has two contractions inside. */
    bool second = g->k2_idx && (idx_axes_used(f, g, read) & idx_axes_used(f, g, g->k2_idx));
    if ((!second && !g->k_idx) ||
        (use == USE_b && !fetched_by_channels(f, g, t) && !last_tells_product(f, g, read)))
        return false;
    /* A depthwise convolution's lanes are its channels. */
    bool depthwise = g->anchor && fuse_is_depthwise(f, g->anchor);
    if (depthwise && !g->anchor_idx) return false;
    const Idx *k = idx_get(g, depthwise ? g->anchor_idx : second ? g->k2_idx : g->k_idx);
    for (uint32_t i = k->rank; i-- > 0;)
        for (uint32_t a = g->naxes; a-- > 0;)
            if (expr_uses(f->p, k->dim[i], g->axes[a].sym)) {
                *sym = g->axes[a].sym;
                return true;
            }
    return false;
}

/* The dimension that moves by one with the axis. */
static int inner_dim(Fuse *f, const Idx *x, uint32_t sym) {
    for (uint32_t d = 0; d < x->rank; d++) {
        Expr coef, rest;
        if (!expr_uses(f->p, x->dim[d], sym)) continue;
        if (!expr_affine(f->p, x->dim[d], sym, &coef, &rest)) return -1;
        return expr_is_value(f->p, coef, 1) ? (int)d : -1;
    }
    return -1;
}

/* The axis along which a pointwise kernel stores its first result contiguously. */
static bool stored_axis(const Fuse *f, const Group *g, uint32_t *sym) {
    if (g->kind != GROUP_map || g->want || !g->roots.n || !root_is_at_home(&g->roots.v[0]))
        return false;
    if (group_axes(g, AX_RED)) return false;
    Expr at = home_index(f, g, g->roots.v[0].v, g->roots.v[0].idx), coef, rest;
    for (uint32_t a = 0; a < g->naxes; a++) {
        if (!expr_affine(f->p, at, g->axes[a].sym, &coef, &rest)) continue;
        if (!expr_is_value(f->p, coef, 1)) continue;
        *sym = g->axes[a].sym;
        return true;
    }
    return false;
}

/* Whether an axis of this template moves through two dimensions with another between them: heads
 * that a contraction wants beside each other, and that lie a sequence apart. */
static bool reads_apart(const Fuse *f, const Group *g, const Demand *d, const uint8_t *order) {
    const Idx *x = idx_get(g, d->idx);
    for (uint32_t a = 0; d->use >= USE_query && a < g->naxes; a++) {
        int last = -1;
        for (uint32_t k = 0; k < x->rank; k++) {
            if (!expr_uses(f->p, x->dim[order[k]], g->axes[a].sym)) continue;
            if (last >= 0 && (int)k > last + 1) return true;
            last = (int)k;
        }
    }
    return false;
}

/* The dimension that all templates, or else all pointwise kernels, read contiguously goes last. */
static bool order_of_readers(Fuse *f, Value v, bool pointwise) {
    VState *s = &f->choice[v];
    uint32_t rank = graph_type(f->g, v)->rank;
    DType t = graph_type(f->g, v)->dtype;
    int inner = -1;
    uint8_t in_order[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++) in_order[d] = (uint8_t)d;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Demand *d = &s->demands.v[i];
        Group *g = f->groups.v[d->group];
        uint32_t sym;
        if (!pointwise && fetched_as_is(f, g, v, d->use, d->idx) && !reads_apart(f, g, d, in_order))
            continue;
        if (!(pointwise ? stored_axis(f, g, &sym) : inner_axis(f, g, d->use, t, d->idx, &sym)))
            continue;
        int at = inner_dim(f, idx_get(g, d->idx), sym);
        if (at < 0 || (inner >= 0 && at != inner)) return false;
        inner = at;
    }
    if (inner < 0) return false;
    uint8_t order[GRAPH_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t d = 0; d < rank; d++)
        if ((int)d != inner) order[n++] = (uint8_t)d;
    order[n] = (uint8_t)inner;
    set_order(s, rank, order);
    return true;
}

/* Which dimensions of x an axis moves through faster than through the others: at its first step. */
static bool moves_first(const Fuse *f, Expr dim, uint32_t sym) {
    const Expr zero = expr_const(f->p, 0), one = expr_const(f->p, 1);
    return expr_subst(f->p, dim, &sym, &zero, 1) != expr_subst(f->p, dim, &sym, &one, 1);
}

/* Dimensions that x walks along axes of this kind (or none), slow ones first, behind those in
 * order[0..n). */
static uint32_t add_walked(const Fuse *f, const Group *g, const Idx *x, KAxisKind kind,
                           uint8_t *order, uint32_t n) {
    for (uint32_t a = 0; a < g->naxes; a++)
        for (uint32_t fast = 0; g->axes[a].kind == kind && fast < 2; fast++)
            for (uint8_t d = 0; d < x->rank; d++) {
                uint32_t sym = g->axes[a].sym;
                bool there =
                    !expr_uses(f->p, x->dim[d], sym) || moves_first(f, x->dim[d], sym) != fast;
                for (uint32_t i = 0; i < n; i++) there |= order[i] == d;
                if (!there) order[n++] = d;
            }
    return n;
}

/* The rows and columns of the matrix as which a contraction reads v, with dimension `inner` last */
static bool order_of_matrix(Fuse *f, Value v, uint32_t inner) {
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        const Demand *d = &f->v[v].demands.v[i];
        const Group *g = f->groups.v[d->group];
        if (d->use != USE_a || g->attn || !g->anchor || graph_node(f->g, g->anchor)->op != OP_dot)
            continue;
        const Idx *x = idx_get(g, d->idx);
        uint8_t order[GRAPH_MAX_RANK];
        uint32_t n = 0;
        for (uint8_t k = 0; k < x->rank; k++)
            if (!expr_axes_used(f, g, x->dim[k])) order[n++] = k;
        n = add_walked(f, g, x, AX_PAR, order, n);
        n = add_walked(f, g, x, AX_RED, order, n);
        if (n != x->rank || order[n - 1] != inner) continue;
        set_order(&f->choice[v], n, order);
        return true;
    }
    return false;
}

/* Then the order of the permute that brings them together, or of the matrix they are read as. */
static void order_of_merged(Fuse *f, Value v) {
    const VState *s = &f->choice[v];
    bool apart = false;
    for (uint32_t i = 0; i < s->demands.n; i++)
        apart =
            apart || reads_apart(f, f->groups.v[s->demands.v[i].group], &s->demands.v[i], s->order);
    const uint32_t inner = s->order[graph_type(f->g, v)->rank - 1];
    if (apart && !order_of_contraction(f, v, inner)) (void)order_of_matrix(f, v, inner);
}

/* Rows or columns of 16 bits that everybody fetches as they are, of at least a panel's half. */
static bool all_fetch_as_is(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Type *t = graph_type(f->g, v);
    uint8_t in_order[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < t->rank; d++) in_order[d] = (uint8_t)d;
    if (!dtype_is_half(t->dtype) || t->rank < 2 || fuse_hint(f, t->dim[t->rank - 1]) < ALIGNED_ROWS)
        return false;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Demand *d = &s->demands.v[i];
        const Group *g = f->groups.v[d->group];
        if (!fetched_as_is(f, g, v, d->use, d->idx) || reads_apart(f, g, d, in_order)) return false;
    }
    return s->demands.n > 0;
}

/* What everybody reads permuted is stored permuted. */
static bool order_of_users(Fuse *f, Value v) {
    VState *s = &f->choice[v];
    const Fact *fact = &f->fact[v];
    uint32_t rank = graph_type(f->g, v)->rank;
    if (fact->nusers == 0) return false;
    const uint8_t *first = NULL;
    for (uint32_t i = 0; i < fact->nusers; i++) {
        const Node *u = graph_node(f->g, fuse_user(f, v, i));
        if (u->op != OP_permute || (first && memcmp(u->attr.perm.axis, first, rank) != 0))
            return false;
        first = u->attr.perm.axis;
    }
    set_order(s, rank, first);
    return true;
}

static bool read_by_conv(const Fuse *f, Value v) {
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        Value anchor = f->groups.v[f->v[v].demands.v[i].group]->anchor;
        if (anchor && graph_node(f->g, anchor)->op == OP_conv) return true;
    }
    return false;
}

/* Of f32, matrix units fetch rows of channels only. */
static bool by_channels(const Fuse *f, Value v) {
    bool large = false;
    if (graph_type(f->g, v)->dtype != DT_f32 || !f->m->digits) return false;
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        Value anchor = f->groups.v[f->v[v].demands.v[i].group]->anchor;
        if (!anchor || !fuse_fetches_f32(f, anchor)) return false;
        large = true;
    }
    return large;
}

/* A constant that matrix units fetch keeps its order if its rows start at 16 bytes, or is turned if
 * its columns do. A convolution's lies as it reads it, so that a tap's channels are rows. */
static bool order_of_fetches(Fuse *f, Value v) {
    const Type *t = graph_type(f->g, v);
    bool half = t->dtype == DT_bf16 || t->dtype == DT_f16, f32 = by_channels(f, v);
    if ((!half && !f32) || f->m->inline_flops.half_b > 0 || !f->fact[v].const_only || t->rank < 2)
        return false;
    for (uint32_t i = 0; i < f->v[v].demands.n; i++)
        if (f->v[v].demands.v[i].use != USE_b) return false;
    uint8_t order[GRAPH_MAX_RANK];
    uint32_t last = t->rank - 1u;
    if (f32) { /* a column's taps side by side */
        for (uint32_t i = 0; i < last; i++) order[i + 1] = (uint8_t)i;
        order[0] = (uint8_t)last;
        set_order(&f->choice[v], t->rank, order);
        return true;
    }
    bool read_permuted = read_by_conv(f, v) && order_of_users(f, v);
    for (uint32_t i = 0; i <= last; i++) order[i] = read_permuted ? f->v[v].order[i] : (uint8_t)i;
    if (expr_divisor(f->p, t->dim[order[last]]) % 8 != 0) {
        uint8_t inner = order[last];
        order[last] = order[last - 1];
        order[last - 1] = inner;
    }
    if (expr_divisor(f->p, t->dim[order[last]]) % 8 != 0) return false;
    set_order(&f->choice[v], t->rank, order);
    return true;
}

/* Rows that matrix units fetch from memory, or store as they come, begin at 16 bytes. */
static void align_rows(Fuse *f, Value v) {
    VState *s = &f->choice[v];
    const Type *t = graph_type(f->g, v);
    Value dot = f->fact[v].epi;
    const uint32_t bytes = (uint32_t)dtype_bytes(t->dtype), rows = bytes ? 16 / bytes : 1;
    if (f->m->inline_flops.half_b > 0 || t->rank < 2) return;
    bool fetched = dot && graph_node(f->g, dot)->op == OP_dot &&
                   fuse_is_fetched(f, graph_type(f->g, graph_node(f->g, dot)->in[0])->dtype);
    bool heads = false; /* whose scores are worth more than their rows */
    for (uint32_t i = 0; i < s->demands.n && fuse_is_fetched(f, t->dtype); i++) {
        const Use use = s->demands.v[i].use;
        fetched = fetched || use >= USE_query;
        heads = heads || use == USE_query || use == USE_key || use == USE_value;
    }
    Expr row = t->dim[s->permuted ? s->order[t->rank - 1] : t->rank - 1];
    int64_t lo, hi;
    expr_range(f->p, row, &lo, &hi);
    if (!fetched || lo < (int64_t)(heads || f->fact[v].const_only ? rows : ALIGNED_ROWS) ||
        expr_divisor(f->p, row) % rows == 0)
        return;
    if (fuse_may(f, v, "stored in rows that begin at 16 bytes")) s->align = rows;
}

void fuse_choose_layout(Fuse *f, const Group *g, Value v) {
    VState *s = &f->choice[v];
    const Fact *fact = &f->fact[v];
    const uint32_t last = graph_type(f->g, v)->rank - 1u;
    if (s->must || s->home) return;
    if (fuse_is_raw(f, v)) return;
    if (fact->epi && group_wants(g, fact->epi)) {
        bool done = f->v[fact->epi].attn && order_of_contraction(f, v, last);
        /* Split or merged on the way, it is stored as it is fetched. */
        if (!done && !order_of_anchor(f, v) && fuse_is_fetched(f, graph_type(f->g, v)->dtype) &&
            f->m->inline_flops.half_a <= 0)
            (void)order_of_readers(f, v, false);
    } else if (!order_of_fetches(f, v) && !all_fetch_as_is(f, v)) {
        if (order_of_readers(f, v, false))
            order_of_merged(f, v);
        else if (!order_of_users(f, v))
            order_of_readers(f, v, true);
    }
    if (s->permuted && !fuse_may(f, v, "stored in another order of dimensions"))
        s->permuted = false;
    if (!f->fact[v].output && !f->fact[v].grows) align_rows(f, v);
}
