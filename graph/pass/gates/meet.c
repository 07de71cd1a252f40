#include "graph/pass/gates/meet.h"

enum {
    MAX_CONE = 24,  /* values that are followed */
    MAX_AHEAD = 512 /* nodes that are looked at, from the first one on */
};

void *meet_facts(const Graph *g, void *ctx) {
    MeetFacts *m = ARENA_NEW(g->own, MeetFacts);
    m->constant = ARENA_ARRAY(g->own, bool, g->nodes.n);
    m->user = ARENA_ARRAY(g->own, Value, g->nodes.n);
    graph_mark_constant(g, m->constant);
    for (Value v = 1; v < g->nodes.n; v++)
        for (uint32_t i = 0; i < graph_node(g, v)->nin; i++) m->user[graph_node(g, v)->in[i]] = v;
    return (void)ctx, m;
}

/* What is made of one value, and how many of its readers are still ahead. */
typedef struct Cone {
    Value v[MAX_CONE];
    uint32_t n, ahead;
    Value last; /* the last reader of all */
} Cone;

static bool is_in(const Cone *c, Value v) {
    for (uint32_t i = 0; i < c->n; i++)
        if (c->v[i] == v) return true;
    return false;
}

static bool add(const Rewrite *r, const MeetFacts *m, Cone *c, Value v) {
    if (c->n == MAX_CONE) return false;
    c->v[c->n++] = v;
    c->ahead += r->uses[v];
    if (m->user[v] > c->last) c->last = m->user[v];
    return true;
}

Value meet_point(const Rewrite *r, const MeetFacts *m, Value v) {
    const Graph *g = r->from;
    Cone c = {0};
    (void)add(r, m, &c, v);
    for (Value u = v + 1; u <= c.last && u < v + MAX_AHEAD; u++) {
        const Node *n = graph_node(g, u);
        uint32_t of = 0, others = 0;
        for (uint32_t i = 0; i < n->nin; i++) {
            bool in = is_in(&c, n->in[i]);
            of += in;
            others += !in && !m->constant[n->in[i]];
        }
        if (!of) continue;
        bool map = op_info[n->op].cls == OPC_MAP;
        c.ahead -= of;
        if (others) return map && !c.ahead ? u : 0;
        if ((!map && n->op != OP_reshape) || !add(r, m, &c, u)) return 0;
    }
    return 0;
}
