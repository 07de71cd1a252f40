#include "graph/recompute/cut.h"
#include "runtime/base/vec.h"

/* Edge e ^ 1 is e the other way round: what has flowed along e may flow back. */
typedef struct Edge {
    uint32_t to, next; /* next of the same node, 0: none */
    int64_t left;      /* what may still flow */
} Edge;

struct Cut {
    Arena *arena;
    uint32_t n;
    uint32_t *first; /* by node, as are the next */
    uint32_t *at;    /* edge that is tried next */
    uint32_t *level; /* distance from the source; 0: not reached */
    uint32_t *queue;
    VEC(Edge) edges;
};

Cut *cut_new(Arena *a, uint32_t nodes) {
    Cut *c = ARENA_NEW(a, Cut);
    c->arena = a;
    c->n = nodes;
    c->first = ARENA_ARRAY(a, uint32_t, nodes);
    c->at = ARENA_ARRAY(a, uint32_t, nodes);
    c->level = ARENA_ARRAY(a, uint32_t, nodes);
    c->queue = ARENA_ARRAY(a, uint32_t, nodes);
    vec_push(a, &c->edges, (Edge){0}); /* edges begin at 2, so that partners differ in one bit */
    vec_push(a, &c->edges, (Edge){0});
    return c;
}

static void half_edge(Cut *c, uint32_t from, uint32_t to, int64_t cost) {
    Edge e = {to, c->first[from], cost};
    c->first[from] = c->edges.n;
    vec_push(c->arena, &c->edges, e);
}

void cut_edge(Cut *c, uint32_t from, uint32_t to, int64_t cost) {
    half_edge(c, from, to, cost);
    half_edge(c, to, from, 0);
}

static bool find_levels(Cut *c) {
    uint32_t n = 0;
    for (uint32_t v = 0; v < c->n; v++) {
        c->level[v] = 0;
        c->at[v] = c->first[v];
    }
    c->level[CUT_SOURCE] = 1;
    c->queue[n++] = CUT_SOURCE;
    for (uint32_t i = 0; i < n && !c->level[CUT_SINK]; i++)
        for (uint32_t e = c->first[c->queue[i]]; e; e = c->edges.v[e].next) {
            uint32_t to = c->edges.v[e].to;
            if (!c->edges.v[e].left || c->level[to]) continue;
            c->level[to] = c->level[c->queue[i]] + 1;
            c->queue[n++] = to;
        }
    return c->level[CUT_SINK] != 0;
}

/* The next edge of v that leads a level on; 0: none is left. */
static uint32_t advance(Cut *c, uint32_t v) {
    uint32_t e = c->at[v];
    while (e && (!c->edges.v[e].left || c->level[c->edges.v[e].to] != c->level[v] + 1))
        e = c->edges.v[e].next;
    return c->at[v] = e;
}

/* As much as the path of n edges takes. Gives the number of edges before the first that is full. */
static uint32_t push(Cut *c, const uint32_t *path, uint32_t n) {
    int64_t flow = INT64_MAX;
    uint32_t full = 0;
    for (uint32_t i = n; i-- > 0;)
        if (c->edges.v[path[i]].left <= flow) flow = c->edges.v[path[full = i]].left;
    for (uint32_t i = 0; i < n; i++) {
        c->edges.v[path[i]].left -= flow;
        c->edges.v[path[i] ^ 1].left += flow;
    }
    return full;
}

/* Fills every shortest path. The queue, which is free by now, holds the path at hand. */
static void fill_paths(Cut *c) {
    uint32_t n = 0, v = CUT_SOURCE;
    for (;;) {
        uint32_t e = v == CUT_SINK ? 0 : advance(c, v);
        if (e) {
            c->queue[n++] = e;
            v = c->edges.v[e].to;
        } else if (v == CUT_SINK) {
            n = push(c, c->queue, n);
            v = c->edges.v[c->queue[n] ^ 1].to;
        } else if (n) {
            c->level[v] = 0; /* leads nowhere */
            v = c->edges.v[c->queue[--n] ^ 1].to;
        } else {
            return;
        }
    }
}

const bool *cut_solve(Cut *c) {
    while (find_levels(c)) fill_paths(c);
    bool *sink = ARENA_ARRAY(c->arena, bool, c->n);
    uint32_t n = 0;
    sink[CUT_SINK] = true;
    c->queue[n++] = CUT_SINK;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = c->first[c->queue[i]]; e; e = c->edges.v[e].next) {
            uint32_t from = c->edges.v[e].to;
            if (sink[from] || !c->edges.v[e ^ 1].left) continue;
            sink[from] = true;
            c->queue[n++] = from;
        }
    return sink;
}
