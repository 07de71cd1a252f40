/* Minimum cuts of small random graphs against all the ways to part them. */
#include "graph/recompute/cut.h"
#include "tests/unit/test.h"

#define NODES 9
#define EDGES 24

typedef struct Edge {
    uint32_t from, to;
    int64_t cost;
} Edge;

static uint64_t state = 7;
static uint32_t rnd(uint32_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

/* What it costs that the nodes of the set are on the sink's side. */
static int64_t price(const Edge *e, uint32_t n, uint32_t sink) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!(sink >> e[i].from & 1) && (sink >> e[i].to & 1)) sum += e[i].cost;
    return sum;
}

static void check_random(uint32_t never) {
    Arena *a = arena_create();
    Cut *c = cut_new(a, NODES);
    Edge e[EDGES];
    uint32_t n = 0;
    while (n < EDGES) {
        e[n] = (Edge){rnd(NODES), rnd(NODES), rnd(20)};
        if (rnd(100) < never && (e[n].from != CUT_SOURCE || e[n].to != CUT_SINK))
            e[n].cost = CUT_NEVER / EDGES;
        if (e[n].from == e[n].to) continue;
        cut_edge(c, e[n].from, e[n].to, e[n].cost);
        n++;
    }
    const bool *side = cut_solve(c);
    uint32_t got = 0, least_nodes = NODES;
    int64_t best = INT64_MAX;
    for (uint32_t v = 0; v < NODES; v++) got |= (uint32_t)side[v] << v;
    CHECK(!side[CUT_SOURCE] && side[CUT_SINK]);
    for (uint32_t set = 0; set < 1u << NODES; set++) {
        if ((set >> CUT_SOURCE & 1) || !(set >> CUT_SINK & 1)) continue;
        int64_t p = price(e, EDGES, set);
        uint32_t nodes = (uint32_t)__builtin_popcount(set);
        if (p < best || (p == best && nodes < least_nodes)) best = p, least_nodes = nodes;
    }
    CHECK_EQ_I(price(e, EDGES, got), best);
    CHECK_EQ_I((uint32_t)__builtin_popcount(got), least_nodes);
    arena_destroy(a);
}

TEST_MAIN {
    for (uint32_t i = 0; i < 2000; i++) check_random(i % 3 * 10);
}
