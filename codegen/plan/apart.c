#include "codegen/plan/apart.h"
#include "graph/pass/rewrite.h"

typedef enum Fate { FATE_unneeded, FATE_constant, FATE_nothing, FATE_decides, FATE_merged } Fate;

/* Without a colon: one stands between the node and this. */
static const char *const fate_text[] = {
    [FATE_unneeded] = "no output needs it",
    [FATE_constant] = "depends on constants alone, and was computed by the compiler",
    [FATE_nothing] = "gives what it takes, or sizes that are known before a run",
    [FATE_decides] = "decides sizes, which are known before a run",
    [FATE_merged] = "became part of other nodes, or equals one",
};

/* The model's own node that a place is part of. */
static Loc root_of(const Graph *g, Loc l) {
    while (g->locs.v[l].parent) l = g->locs.v[l].parent;
    return l;
}

/* By place: a kernel computes it, or looks through it. */
static bool *covered(const Schedule *s, Arena *a) {
    const Graph *g = s->graph;
    bool *is = ARENA_ARRAY(a, bool, g->locs.n);
    for (uint32_t i = 0; i < s->steps.n; i++) {
        const Kernel *k = s->steps.v[i].kernel;
        for (uint32_t j = 0; k && j < k->nlocs; j++) is[root_of(g, k->locs[j])] = true;
    }
    return is;
}

/* By place: what holds of all of the node's values, the strongest where they differ. */
static Fate *fates(const Graph *g, Arena *a) {
    Fate *fate = ARENA_ARRAY(a, Fate, g->locs.n);
    bool *constant = ARENA_ARRAY(a, bool, g->nodes.n), *live = graph_live(g);
    graph_mark_constant(g, constant);
    for (Loc l = 0; l < g->locs.n; l++)
        fate[l] = g->locs.v[l].unneeded ? FATE_unneeded : FATE_nothing;
    for (Value v = 1; v < g->nodes.n; v++) {
        Fate *f = &fate[root_of(g, graph_node(g, v)->loc)];
        Fate is = constant[v] ? FATE_constant : live[v] ? FATE_merged : FATE_decides;
        if (*f == FATE_nothing || (*f != FATE_unneeded && is > *f)) *f = is;
    }
    return fate;
}

void apart_nodes(const Graph *imported, const Schedule *s, Arena *a, StrBuf *out) {
    const bool *in_kernel = covered(s, a);
    const Fate *fate = fates(imported, a);
    for (Loc l = 1; l < imported->locs.n; l++) {
        const LocInfo *i = &imported->locs.v[l];
        if (i->node >= 0 && !i->part && !i->parent && !i->nalso && !in_kernel[l])
            sb_printf(out, "%s: %s\n", graph_place(imported, l, a), fate_text[fate[l]]);
    }
}
