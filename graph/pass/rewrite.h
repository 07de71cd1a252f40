/* How passes change a graph: they copy it node by node into a new one over the same pool and arena,
 * making something else where they want. A value that nothing uses any more is left behind by the
 * next dce. */
#ifndef GRAPH_REWRITE_H
#define GRAPH_REWRITE_H

#include "graph/build/build.h"
#include "runtime/base/map.h"

typedef struct Rewrite {
    const Graph *from;
    Graph *to;
    Value *map;     /* value in `from` -> value in `to`; 0 = not copied yet */
    uint32_t *uses; /* readers of each value of `from`; an output or a write counts as one */
    void *facts;    /* what the pass knows of `from` */
} Rewrite;

/* What becomes of node v of r->from, whose operands are mapped: a value of r->to, or 0 to have it
 * copied as it is. Of a state that is not written anything may become. */
typedef Value (*RewriteFn)(Rewrite *r, Value v);

/* Makes a pass's facts about one graph. Control bodies are graphs of their own, with numbers of
 * their own, so each gets its own. ctx is what was given to rewrite_graph. */
typedef void *(*RewriteFacts)(const Graph *g, void *ctx);

/* The whole rewritten graph, control bodies included. fn may be NULL: a plain copy of what the
 * outputs need. facts may be NULL: then they are ctx for every graph. */
Graph *rewrite_graph(const Graph *g, RewriteFn fn, RewriteFacts facts, void *ctx);

/* A copy of g. What fn may change is each loop that is about to be made, v in r->from: its bodies
 * and results are copies of their own already, `in` are its operands in r->to. */
typedef void (*RewriteLoop)(Rewrite *r, Value v, Control *c, Value *in);
Graph *rewrite_loops(const Graph *g, RewriteLoop fn);

/* The copy of v with mapped operands, made now if it was not. */
Value rewrite_copy(Rewrite *r, Value v);
static inline Value rewrite_in(const Rewrite *r, Value v, uint32_t i) {
    return r->map[graph_node(r->from, v)->in[i]];
}

/* Calls fn for the symbols of a node's type, attributes and bodies. */
void graph_node_syms(const Graph *g, const Node *n, void (*fn)(void *ctx, uint32_t sym), void *ctx);

/* Symbol of kind SYM_DATA -> the node of this graph whose run gives it its value. A symbol has to
 * be computed before it is used, as an operand has. */
MapU64 *graph_definers(const Graph *g);

/* By value: whether outputs or writes need it. Inputs and states stay, since they are the
 * signature. */
bool *graph_live(const Graph *g);
/* By value: whether what these entries give and write needs it (0: all entries). */
bool *graph_needed(const Graph *g, uint32_t entries);
/* By number: whether a run of these entries has to be given the input, for its elements or its
 * sizes. */
bool *graph_inputs_of(const Graph *g, uint32_t entries);

/* By value: how many operands it is; an output or a write counts as one. */
uint32_t *graph_uses(const Graph *g);

/* True if v depends on constants alone (weights, and what is computed from them). flags has
 * g->nodes.n entries. */
void graph_mark_constant(const Graph *g, bool *flags);

#endif
