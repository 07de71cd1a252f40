/* What groups demand, and which of them wait for which. */
#include "fusion/analyse/facts.h"
#include "graph/pass/rewrite.h"

Group *group_new(Fuse *f, GroupKind kind) {
    Group *g = ARENA_NEW(f->arena, Group);
    g->id = f->groups.n;
    g->kind = kind;
    g->index_of = map_create(f->arena);
    vec_push(f->arena, &f->groups, g);
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
    add_demand(f, &f->v[v], (Demand){g->id, idx, use, reads});
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
    VState *s = &f->v[v];
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

/* --- Order -------------------------------------------------------------------------------- */

void group_dep(Fuse *f, Group *g, uint32_t on) {
    if (g->id == on) return;
    for (uint32_t i = 0; i < g->deps.n; i++)
        if (g->deps.v[i] == on) return;
    vec_push(f->arena, &g->deps, on);
}

/* Everybody who demands v has to wait for the group that stores it. */
void fuse_readers_wait(Fuse *f, Value v, const Group *home) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++) {
        group_dep(f, f->groups.v[s->demands.v[i].group], home->id);
    }
}

static bool reaches(Fuse *f, Group *from, const Group *to) {
    if (from == to) return true;
    if (from->mark == f->mark) return false;
    from->mark = f->mark;
    for (uint32_t i = 0; i < from->deps.n; i++)
        if (reaches(f, f->groups.v[from->deps.v[i]], to)) return true;
    return false;
}

bool group_reaches(Fuse *f, Group *from, Group *to) {
    f->mark++;
    return reaches(f, from, to);
}
