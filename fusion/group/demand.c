/* What groups demand, and which of them wait for which. */
#include "fusion/analyse/facts.h"
#include "graph/pass/rewrite.h"
#include <stdlib.h>

void group_begin(Fuse *f) {
    uint32_t n = f->g->nodes.n;
    f->v = f->choice = ARENA_ARRAY(f->arena, VState, n);
    for (Value v = 1; v < n; v++) f->choice[v].must = f->fact[v].must;
    f->search = ARENA_NEW(f->arena, GroupSearch);
    f->groups.n = f->packs.n = 0;
    f->stuck = false;
}

Group *group_new(Fuse *f, GroupKind kind) {
    Group *g = ARENA_NEW(f->arena, Group);
    g->id = g->order = f->groups.n;
    g->kind = kind;
    g->index_of = map_create(f->arena);
    vec_push(f->arena, &f->groups, g);
    if (f->search->marks.n < f->groups.n) vec_push(f->arena, &f->search->marks, 0);
    return g;
}

/* --- Demands ------------------------------------------------------------------------------ */

static Demand *find_demand(VState *s, uint32_t group, IdxId idx) {
    for (uint32_t i = 0; i < s->demands.n; i++)
        if (s->demands.v[i].group == group && s->demands.v[i].idx == idx) return &s->demands.v[i];
    return NULL;
}

static void add_demand(Fuse *f, VState *s, Demand d) {
    Demand *same = find_demand(s, d.group, d.idx);
    if (!same) {
        vec_push(f->arena, &s->demands, d);
        return;
    }
    if (d.use > same->use) same->use = d.use;
    same->reads |= d.reads;
}

/* Stored values, inputs and constants of several elements are read from a buffer. */
bool fuse_is_read(const Fuse *f, Value v) {
    Op op = (Op)graph_node(f->g, v)->op;
    if (op == OP_const) return fuse_numel(f, v) > 1;
    return op_is_leaf(op) || op_info[op].cls != OPC_SOURCE;
}

uint32_t fuse_demanders(const Fuse *f, Value v, uint32_t *groups, uint32_t max) {
    const VState *s = &f->v[v];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        uint32_t k = 0;
        while (k < n && groups[k] != s->demands.v[i].group) k++;
        if (k == n && n < max) groups[n++] = s->demands.v[i].group;
    }
    return n;
}

bool fuse_demands(const Fuse *f, const Group *g, Value v) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++)
        if (s->demands.v[i].group == g->id) return true;
    return false;
}

void fuse_demand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads) {
    if (fuse_is_read(f, v) && !fuse_demands(f, g, v)) g->nreads++;
    add_demand(f, &f->choice[v], (Demand){g->id, idx, use, reads});
}

typedef struct Await {
    Fuse *f;
    Group *g;
    Value v;
} Await;

static void await_symbol(void *ctx, uint32_t sym) {
    Await *a = ctx;
    uint32_t d;
    if (map_get(a->f->definer, sym, &d) && d != a->v)
        fuse_demand(a->f, a->g, d, 0, USE_data, READ_masked);
}

void fuse_await_sizes(Fuse *f, Group *g, Value v) {
    Await a = {f, g, v};
    graph_node_syms(f->g, graph_node(f->g, v), await_symbol, &a);
}

/* Axes may have been split since the demands were made. */
void fuse_tidy_demands(Fuse *f, Value v) {
    VState *s = &f->choice[v];
    uint32_t n = s->demands.n;
    s->demands.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        Demand d = s->demands.v[i];
        d.idx = idx_canon(f->groups.v[d.group], d.idx);
        add_demand(f, s, d);
    }
}

bool group_has_inside(const Group *g, Value v, IdxId idx) {
    const AttnMatch *m = g->attn;
    for (uint32_t i = 0; m && i < m->ninside; i++)
        if (m->inside[i] == v) return !idx || idx_canon(g, m->at[i]) == idx_canon(g, idx);
    return false;
}

IdxId group_anchor(const Group *g, Value dot) {
    const AttnMatch *m = group_attention(g, dot);
    return m ? m->out : g->anchor_idx;
}

bool group_wants(const Group *g, Value dot) {
    const AttnMatch *m = group_attention(g, dot);
    return m ? m->wanted : g->want == dot;
}

void group_want(Group *g, Value dot, bool wanted) {
    AttnMatch *m = group_attention(g, dot);
    if (m) m->wanted = wanted;
    if (wanted)
        g->want = dot;
    else if (g->want == dot)
        g->want = 0;
}

bool group_is_column(const Group *g, uint32_t sym) {
    const AttnMatch *m = g->attn;
    return m &&
           (sym == m->nsym || (m->with[0] && (sym == m->with[0]->nsym || sym == m->with[1]->nsym)));
}

static bool is_number(const Fuse *f, Value v) {
    while (op_info[graph_node(f->g, v)->op].cls == OPC_VIEW) v = graph_node(f->g, v)->in[0];
    return graph_node(f->g, v)->op == OP_const && fuse_numel(f, v) == 1;
}

/* v is `dot` scaled by numbers, rounded or seen otherwise. */
static bool rounds(const Fuse *f, Value v, Value dot) {
    while (v != dot) {
        const Node *n = graph_node(f->g, v);
        uint32_t side = n->op == OP_mul && is_number(f, n->in[0]);
        bool scales = n->op == OP_mul && is_number(f, n->in[!side]);
        if (!scales && n->op != OP_cast && op_info[n->op].cls != OPC_VIEW) return false;
        v = n->in[side];
    }
    return true;
}

bool fuse_may_follow(const Fuse *f, Value v, Value dot) {
    const AttnMatch *m = f->v[dot].attn;
    return v == dot || !m || !m->raw || (f->m->sums_apart && rounds(f, v, dot));
}

bool fuse_is_raw(const Fuse *f, Value dot) {
    return f->v[dot].attn && f->v[dot].attn->raw && !f->m->sums_apart;
}

/* --- Order -------------------------------------------------------------------------------- */

/* Groups have numbers `order` in which each stands in front of what it waits for. An edge against
 * them renumbers the groups between its two ends alone (Pearce and Kelly, A dynamic topological
 * sort algorithm), and a search for a way from one group to another looks at those between the two.
 */

static bool is_met(const Fuse *f, const Group *g) {
    return f->search->marks.v[g->id] == f->search->mark;
}

/* Adds to f->search->met the groups that g's edges lead to, g among them, as far as number `limit`:
 * those that g waits for, or (back) those that wait for it. They have the mark of this search. */
static void between(const Fuse *f, const Group *g, bool back, uint32_t limit) {
    GroupSearch *s = f->search;
    Groups *out = &s->met;
    uint32_t i = out->n;
    s->marks.v[g->id] = ++s->mark;
    vec_push(f->arena, out, f->groups.v[g->id]);
    for (; i < out->n; i++) {
        const Group *at = out->v[i];
        uint32_t n = back ? at->waiting.n : at->deps.n;
        for (uint32_t k = 0; k < n; k++) {
            Group *to = f->groups.v[back ? at->waiting.v[k] : at->deps.v[k]];
            bool beyond = back ? to->order < limit : to->order > limit;
            if (beyond || is_met(f, to)) continue;
            s->marks.v[to->id] = s->mark;
            vec_push(f->arena, out, to);
        }
    }
}

static int by_order(const void *a, const void *b) {
    uint32_t x = (*(Group *const *)a)->order, y = (*(Group *const *)b)->order;
    return (x > y) - (x < y);
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* g, numbered behind `on`, is going to wait for it. */
static void renumber(Fuse *f, Group *g, Group *on) {
    GroupSearch *s = f->search;
    Groups *all = &s->met;
    all->n = s->numbers.n = 0;
    between(f, g, true, on->order);
    uint32_t nbefore = all->n;
    between(f, on, false, g->order);
    qsort(all->v, nbefore, sizeof *all->v, by_order);
    qsort(all->v + nbefore, all->n - nbefore, sizeof *all->v, by_order);
    for (uint32_t i = 0; i < all->n; i++) vec_push(f->arena, &s->numbers, all->v[i]->order);
    qsort(s->numbers.v, all->n, sizeof *s->numbers.v, by_number);
    for (uint32_t i = 0; i < all->n; i++) all->v[i]->order = s->numbers.v[i];
}

void group_dep(Fuse *f, Group *g, uint32_t on) {
    if (g->id == on) return;
    for (uint32_t i = 0; i < g->deps.n; i++)
        if (g->deps.v[i] == on) return;
    Group *to = f->groups.v[on];
    if (to->order < g->order) renumber(f, g, to);
    vec_push(f->arena, &g->deps, on);
    vec_push(f->arena, &to->waiting, g->id);
}

/* Everybody who demands v has to wait for the group that stores it. */
void fuse_readers_wait(Fuse *f, Value v, const Group *home) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++) {
        group_dep(f, f->groups.v[s->demands.v[i].group], home->id);
    }
}

bool group_reaches(const Fuse *f, const Group *from, const Group *to) {
    if (from == to) return true;
    if (from->order > to->order) return false;
    f->search->met.n = 0;
    between(f, from, false, to->order);
    return is_met(f, to);
}

bool group_needs_reader(const Fuse *f, const Group *g, Value v) {
    const VState *s = &f->v[v];
    uint32_t last = g->order;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        uint32_t at = f->groups.v[s->demands.v[i].group]->order;
        if (at > last) last = at;
    }
    if (last == g->order) return false;
    f->search->met.n = 0;
    between(f, g, false, last);
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Group *reader = f->groups.v[s->demands.v[i].group];
        if (reader != g && is_met(f, reader)) return true;
    }
    return false;
}
