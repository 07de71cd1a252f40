/* captures: what a loop takes from outside, and its body only casts to fewer bits, is cast in front
 * of the loop: weights of a recurrence are rounded once, by a prepare step, not at each turn.
 *
 * A cast to more bits stays: it would store, and read at each turn, more than there is.
 *
 * Needs: to be behind precision, which puts casts into bodies, and behind gradients, which sum what
 * comes back to a capture in its own type. Keeps: meaning, bit for bit. Breaks: nothing; leaves
 * dead nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

/* The one reader of v in a body, if it is a cast to fewer bits; 0: it is not. */
static Value narrowing_reader(const Graph *body, const uint32_t *uses, Value v) {
    if (uses[v] != 1) return 0;
    for (Value c = v + 1; c < body->nodes.n; c++) {
        const Node *n = graph_node(body, c);
        if (n->op == OP_cast && n->in[0] == v)
            return dtype_info[n->type.dtype].bits < dtype_info[graph_type(body, v)->dtype].bits ? c
                                                                                                : 0;
    }
    return 0;
}

/* Operands are shared with graphs that this one was made of: what is replaced is a copy. */
static void replace(Graph *body, Node *n, Value from, Value to) {
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] != from) continue;
        Value *in = arena_copy(body->own, n->in, n->nin * sizeof *in);
        in[i] = to;
        n->in = in;
    }
}

/* Value `by` of the body becomes its input v, which is of that type from now on. */
static void take(Graph *body, Value v, Value by) {
    Node *nodes = body->nodes.v;
    nodes[v].type.dtype = nodes[by].type.dtype;
    for (Value x = by + 1; x < body->nodes.n; x++) replace(body, &nodes[x], by, v);
    for (uint32_t i = 0; i < body->outputs.n; i++)
        if (body->outputs.v[i].value == by) body->outputs.v[i].value = v;
}

/* Operands of a loop are the trip count and the body's inputs. */
static void narrow_captures(Rewrite *r, const Control *c, Value *in) {
    Graph *body = c->body[0];
    const uint32_t *uses = graph_uses(body);
    for (uint32_t i = 1 + c->ncarried; i < body->inputs.n; i++) {
        Value v = body->inputs.v[i].value, cast = narrowing_reader(body, uses, v);
        if (!cast) continue;
        DType to = graph_type(body, cast)->dtype;
        in[i + 1] = build_cast(r->to, in[i + 1], to);
        body->inputs.v[i].type.dtype = to;
        take(body, v, cast);
    }
}

static bool has_loop(const Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++)
        if (graph_node(g, v)->op == OP_loop) return true;
    return false;
}

Graph *pass_captures(Graph *g) {
    return has_loop(g) ? rewrite_loops(g, narrow_captures) : g;
}
