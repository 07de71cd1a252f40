/* Where a stored value is computed: which group has it at hand, with room for it. */
#include "fusion/analyse/facts.h"
#include "fusion/group/decide.h"
#include <string.h>

#define MAX_READS   44 /* buffers that one group reads: of K_MAX_PARAMS, roots want some, too */
#define MAX_TRIES   8  /* groups that one operand proposes: each takes a walk over groups */
#define MAX_READERS 64 /* of a value that propose themselves: each looks at all of them */
#define LEAST_ROWS  16 /* that a kernel which also stores their reductions has */
#define LARGE       (64 << 20) /* bytes of a value; a part of 1 / LITTLE of it is little */
#define LITTLE      8
#define LONG_FOLD   (1 << 20)    /* elements of a reduction that is worth a kernel */
#define MAX_DEPTH   12           /* values one above the other that are looked through */
#define MAX_ROOTS   K_MAX_STORES /* values that one group stores */

/* g reads v, or as large a value that it is made of for nobody else. */
static bool reads_some(const Fuse *f, const Group *g, Value v, double least, int depth) {
    const Node *n = graph_node(f->g, v);
    OpClass c = op_info[n->op].cls;
    if (fuse_numel(f, v) < least) return false;
    if (fuse_demands(f, g, v)) return true;
    if (depth == MAX_DEPTH || (c != OPC_MAP && c != OPC_VIEW) || f->fact[v].nusers > 1)
        return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (reads_some(f, g, n->in[i], least, depth + 1)) return true;
    return false;
}

/* A long reduction of other values than g reads so far: together they would only take turns. */
static bool folds_others(const Fuse *f, const Group *g, Value v) {
    const Node *n = graph_node(f->g, v);
    if (!g->nfolds || !op_is_reduce((Op)n->op)) return false;
    const double numel = fuse_numel(f, n->in[0]);
    return numel >= LONG_FOLD && !reads_some(f, g, n->in[0], numel / 2, 0);
}

/* May g compute v? Its operands take v's place among what g reads. */
bool group_has_room(const Fuse *f, const Group *g, Value v) {
    const Node *n = graph_node(f->g, v);
    uint32_t more = 0;
    if (fuse_is_fold(f, v) && g->nfolds >= K_MAX_FOLDS) return false; /* each may take a pass */
    if (folds_others(f, g, v)) return false;
    if (n->nin <= 1 || g->nreads + n->nin <= MAX_READS) return true;
    for (uint32_t i = 0; i < n->nin; i++) more += !fuse_demands(f, g, n->in[i]);
    return more <= 1 || g->nreads + more <= MAX_READS;
}

bool fuse_siblings(const Fuse *f, Value a, Value b) {
    const Node *x = graph_node(f->g, a), *y = graph_node(f->g, b);
    if (x->op != y->op || x->in[0] != y->in[0] || !type_equal(&x->type, &y->type)) return false;
    if (f->v[a].attn || f->v[b].attn) return false;
    if (!type_equal(graph_type(f->g, x->in[1]), graph_type(f->g, y->in[1]))) return false;
    /* One kernel has one form of B operands: a constant one and a fed one are no siblings. */
    if (fuse_packs(f, a) != fuse_packs(f, b)) return false;
    if (x->op == OP_conv)
        return !fuse_is_depthwise(f, a) && !fuse_is_wino(f, a) && !fuse_is_wino(f, b) &&
               !memcmp(&x->attr.conv, &y->attr.conv, sizeof x->attr.conv);
    return true;
}

Idx fuse_try_native(const Fuse *f, const Group *g, Value v, Value dot) {
    if (v == dot) return *idx_get(g, group_anchor(g, dot));
    return idx_result(f, v, fuse_try_native(f, g, f->fact[v].epi_from, dot));
}

IdxId fuse_native(Fuse *f, Group *g, Value v, Value dot) {
    const Idx at = fuse_try_native(f, g, v, dot);
    return idx_intern(f, g, &at);
}

/* All groups but `home` that read v must not be needed by it. */
static bool no_cycle(const Fuse *f, Value v, const Group *home) {
    return !group_needs_reader(f, home, v);
}

static Home epilogue_home(const Fuse *f, Value v) {
    const Home none = {0};
    Value dot = f->fact[v].epi;
    uint32_t id = f->v[dot].dot_group;
    Group *g = id ? f->groups.v[id - 1] : NULL;
    if (!g || !group_wants(g, dot) || g->prepare != f->fact[v].const_only || !no_cycle(f, v, g))
        return none;
    const Idx native = fuse_try_native(f, g, v, dot);
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        const Demand *d = &f->v[v].demands.v[i];
        if (d->group == g->id && !idx_is(g, &native, d->idx)) return none;
    }
    return g->roots.n < MAX_ROOTS && group_has_room(f, g, v) ? (Home){.g = g} : none;
}

static double points_of(const Fuse *f, const Group *g) {
    return fuse_hint(f, group_extent(f, g, group_axes(g, AX_PAR) | group_axes(g, AX_RED)));
}

/* Both of forward, or both of backward; or statistics of rows that nobody else reads but what sums
 * them up: a loss, which may as well come after backward has taken its rows. */
static bool same_part(const Fuse *f, const Group *g, Value v) {
    if (!g->roots.n || graph_node(f->g, g->roots.v[0].v)->late == graph_node(f->g, v)->late)
        return true;
    if (!op_is_reduce((Op)graph_node(f->g, v)->op)) return false;
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        const Group *h = f->groups.v[f->v[v].demands.v[i].group];
        if (h != g && points_of(f, h) > fuse_numel(f, v)) return false;
    }
    return true;
}

/* Can the group store v at this demand: once for each of its elements? */
static bool can_store(const Fuse *f, const Group *g, const Demand *d, Value v) {
    if (g->kind != GROUP_map || !(d->reads & READ_plain) || d->use != USE_point ||
        g->roots.n >= MAX_ROOTS || !same_part(f, g, v))
        return false;
    if (g->prepare != f->fact[v].const_only || !group_has_room(f, g, v)) return false;
    uint32_t par = group_axes(g, AX_PAR), row = group_axes(g, AX_RED);
    if (g->want && graph_node(f->g, v)->op == OP_concat) return false;
    if (idx_covers(f, g, d->idx, par)) return true;
    if (!row || !idx_covers(f, g, d->idx, par | row) || fuse_few_rows(f, g, v, d->idx))
        return false;
    /* The windows of pooling are no rows to store. */
    const Idx *x = idx_get(g, d->idx);
    bool window = false;
    for (uint32_t i = 0; i < x->rank; i++) {
        uint32_t used = expr_axes_used(f, g, x->dim[i]);
        window = window || ((used & par) && (used & row));
    }
    return !window || fuse_hint(f, group_extent(f, g, row)) >= 16;
}

/* Can the group store reduction v at this demand by making the axes that it folds its row? Along
 * them in memory, and with rows enough for all processors, that is less than to read them twice. */
static bool can_store_fold(const Fuse *f, const Group *g, const Demand *d, Value v) {
    const Node *n = graph_node(f->g, v);
    if (!op_is_reduce((Op)n->op) || !same_part(f, g, v)) return false;
    if (!(d->reads & READ_plain) || d->use != USE_point || g->roots.n >= MAX_ROOTS) return false;
    uint32_t inner = graph_type(f->g, n->in[0])->rank - 1u, used = idx_axes_used(f, g, d->idx);
    if (!(n->attr.reduce.axes >> inner & 1)) return false;
    if (g->prepare != f->fact[v].const_only || !group_has_room(f, g, v)) return false;
    double rows = fuse_hint(f, group_extent(f, g, used));
    if (rows < LEAST_ROWS || rows < f->m->processors) return false;
    return idx_row_fits(f, g, v, d->idx) && idx_covers(f, g, d->idx, used);
}

/* A group that folds columns walks memory in strides: nothing else should be stored on the way. */
static bool walks_columns(const Fuse *f, const Group *g, IdxId idx) {
    uint32_t row = group_axes(g, AX_RED);
    const Idx *x = idx_get(g, idx);
    for (uint32_t i = x->rank; row && i-- > 0;)
        if (!expr_is_value(f->p, x->dim[i], 0)) return !(expr_axes_used(f, g, x->dim[i]) & row);
    return false;
}

/* Elements that lie in memory for v to be read: of what it repeats; none of what is computed from
 * positions. */
static double elements_behind(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    while (op_info[n->op].cls == OPC_VIEW && n->nin == 1) n = graph_node(f->g, v = n->in[0]);
    return n->op == OP_iota || n->op == OP_exprs ? 0 : fuse_numel(f, v);
}

/* Large values that share next to nothing save a launch if one kernel stores both: less than it
 * costs that what each is made of has to be there at once. */
static bool share_little(const Fuse *f, Value v, Value operand) {
    const double bytes = fuse_numel(f, v) * (double)dtype_bytes(graph_type(f->g, v)->dtype);
    return bytes >= LARGE && elements_behind(f, operand) * LITTLE < fuse_numel(f, v);
}

/* In backward much is alive: what is computed there is not put off beyond a contraction for the
 * sake of a kernel that reads the same. */
static bool puts_off(const Fuse *f, const Group *g, Value v) {
    if (!graph_node(f->g, v)->late || !g->roots.n) return false;
    for (Value w = v + 1; w < g->roots.v[0].v; w++)
        if (fuse_is_dot(f, w)) return true;
    return false;
}

static Home sibling_reading(const Fuse *f, Value v, Value operand) {
    const VState *s = &f->v[operand];
    uint32_t tries = 0;
    for (uint32_t i = 0; i < s->demands.n && tries < MAX_TRIES; i++) {
        Group *g = f->groups.v[s->demands.v[i].group];
        if (g->want || g->nreads > MAX_READS / 2 || fuse_demands(f, g, v)) continue;
        if (!can_store(f, g, &s->demands.v[i], v) || puts_off(f, g, v)) continue;
        if (walks_columns(f, g, s->demands.v[i].idx)) continue;
        tries++;
        if (!no_cycle(f, v, g)) continue;
        return (Home){g, s->demands.v[i].idx};
    }
    return (Home){0};
}

/* A group that reads, once and over v's whole shape, something that v is computed from: an operand,
 * or one further up through values that nobody else uses. It may not read v itself: that would be
 * elsewhere than where it stores v, so in memory that it has not written yet. */
static Home sibling_home(const Fuse *f, Value v) {
    Home h = {0};
    if (f->fact[v].epi) return h;
    Value at = v;
    for (int depth = 0; depth < 6; depth++) {
        const Node *n = graph_node(f->g, at);
        if (op_info[n->op].cls != OPC_MAP) return h;
        Value next = 0;
        for (uint32_t k = 0; k < n->nin; k++) {
            if (fuse_is_const_leaf(f, n->in[k])) continue;
            const bool apart = share_little(f, v, n->in[k]);
            if (!apart) h = sibling_reading(f, v, n->in[k]);
            for (uint32_t u = 0; !h.g && !apart && u < f->fact[n->in[k]].nusers && u < 8; u++) {
                Value user = fuse_user(f, n->in[k], u);
                if (user == at || op_info[graph_node(f->g, user)->op].cls != OPC_MAP) continue;
                h = sibling_reading(f, v, user);
            }
            if (h.g) return h;
            if (f->fact[n->in[k]].nusers == 1) next = n->in[k];
        }
        if (!next) return h;
        at = next;
    }
    return h;
}

uint32_t fuse_look_under(const Fuse *f, Value *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const Node *x = graph_node(f->g, out[i]);
        OpClass c = op_info[x->op].cls;
        if (c != OPC_MAP && c != OPC_VIEW && c != OPC_REDUCE) continue;
        for (uint32_t k = 0; k < x->nin && n < FUSE_MAX_LOOK; k++) {
            uint32_t seen = 0;
            while (seen < n && out[seen] != x->in[k]) seen++;
            if (seen == n && !f->fact[x->in[k]].const_only) out[n++] = x->in[k];
        }
    }
    return n;
}

static uint32_t look_under_roots(const Fuse *f, const Group *g, Value *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->roots.n && n < FUSE_MAX_LOOK; i++) out[n++] = g->roots.v[i].v;
    return fuse_look_under(f, out, n);
}

bool fuse_row_at_hand(const Fuse *f, const Group *g, Value v, IdxId idx) {
    Value under[FUSE_MAX_LOOK] = {v};
    double rows = fuse_numel(f, v);
    if (g->want || g->kind != GROUP_map || group_axes(g, AX_RED) || rows < LEAST_ROWS) return false;
    if (fuse_hint(f, group_extent(f, g, idx_axes_used(f, g, idx))) != rows) return false;
    uint32_t n = fuse_look_under(f, under, 1);
    for (uint32_t i = 1; i < n; i++) {
        const Node *x = graph_node(f->g, under[i]);
        if (op_is_reduce((Op)x->op) && fuse_numel(f, under[i]) == rows &&
            fuse_numel(f, x->in[0]) == points_of(f, g))
            return true;
    }
    return false;
}

/* A reduction over rows as long as g's points, which both g and home take. */
static bool share_row(const Fuse *f, const Group *g, const Group *home) {
    Value mine[FUSE_MAX_LOOK], theirs[FUSE_MAX_LOOK];
    uint32_t n = look_under_roots(f, g, mine), m = look_under_roots(f, home, theirs);
    double points = points_of(f, g);
    for (uint32_t i = 0; i < n; i++) {
        const Node *x = graph_node(f->g, mine[i]);
        if (!op_is_reduce((Op)x->op) || fuse_numel(f, mine[i]) <= 1) continue;
        if (fuse_numel(f, x->in[0]) < points) continue;
        for (uint32_t k = 0; k < m; k++)
            if (theirs[k] == mine[i]) return true;
    }
    return false;
}

/* Were the number v stored by g, another of its readers would wait for all that g computes, among
 * it what that reader has at hand itself: statistics of its rows. */
static bool comes_late(const Fuse *f, Value v, const Group *g) {
    const VState *s = &f->v[v];
    if (fuse_numel(f, v) > 1) return false;
    if (graph_node(f->g, v)->late && s->demands.n > 1) return true; /* gradients wait for it */
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Group *h = f->groups.v[s->demands.v[i].group];
        if (h == g || h->want || h->kind != GROUP_map) continue;
        if (share_row(f, h, g)) return true;
    }
    return false;
}

Home fuse_try_home(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    if (fact->epi) return fuse_turns_products(f, v) ? (Home){0} : epilogue_home(f, v);
    Home best = {0};
    uint32_t tries = 0;
    for (uint32_t i = 0; i < s->demands.n && tries < MAX_READERS; i++) {
        const Demand *d = &s->demands.v[i];
        Group *g = f->groups.v[d->group];
        if (best.g && !(best.g->want && !g->want)) continue;
        tries++;
        uint32_t same = 0;
        for (uint32_t k = 0; k < s->demands.n; k++) same += s->demands.v[k].group == d->group;
        if (same != 1 || !no_cycle(f, v, g) || comes_late(f, v, g)) continue;
        if (!can_store(f, g, d, v) && !can_store_fold(f, g, d, v)) continue;
        FusionWhy why;
        if (op_is_reduce((Op)graph_node(f->g, v)->op) &&
            (!idx_try_reduce(f, g, v, d->idx, &why) || fuse_folds_apart(f, g, v, d->idx)))
            continue;
        best = (Home){g, d->idx};
    }
    return best;
}

Group *fuse_join(Fuse *f, Value v, IdxId *idx) {
    Home h = fuse_try_home(f, v);
    if (!h.g && !fuse_is_dot(f, v) && graph_node(f->g, v)->op != OP_concat) h = sibling_home(f, v);
    if (!h.g) return NULL;
    *idx = h.idx ? h.idx : fuse_native(f, h.g, v, f->fact[v].epi);
    /* An attention's kernel that has an epilogue stores all of it, or it would wait for itself. */
    bool decided = f->fact[v].epi && f->v[f->fact[v].epi].attn;
    if (decided) return h.g;
    return fuse_may(f, v, "stored by a kernel that computes it or its operands") ? h.g : NULL;
}
