/* captures: what a loop takes from outside, and its body only casts to fewer bits, is cast in front
 * of the loop: weights of a recurrence are rounded once, by a prepare step, not at each turn. What
 * it carries, only casts, and gives to nobody, is cast where it is made, as is what it stacks and
 * everybody casts: a state is stored as the next turn reads it.
 *
 * A cast to more bits stays: it would store, and read at each turn, more than there is.
 *
 * Needs: to be behind precision, which puts casts into bodies, and behind gradients, which sum what
 * comes back to a capture in its own type. Keeps: meaning, bit for bit. Breaks: nothing; leaves
 * dead nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

static bool narrows(const Graph *g, Value cast) {
    const Node *n = graph_node(g, cast);
    return n->op == OP_cast &&
           dtype_info[n->type.dtype].bits < dtype_info[graph_type(g, n->in[0])->dtype].bits;
}

static bool reads(const Node *n, Value v) {
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] == v) return true;
    return false;
}

/* The one reader of v, if it is a cast to fewer bits; 0: it is not. */
static Value narrowing_reader(const Graph *g, const uint32_t *uses, Value v) {
    if (uses[v] != 1) return 0;
    for (Value c = v + 1; c < g->nodes.n; c++)
        if (reads(graph_node(g, c), v)) return narrows(g, c) ? c : 0;
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

/* Input i of the body is what the one reader of it would make of it; *to: that type. */
static bool take_cast(Graph *body, const uint32_t *uses, uint32_t i, DType *to) {
    Value v = body->inputs.v[i].value, cast = narrowing_reader(body, uses, v);
    if (!cast) return false;
    *to = graph_type(body, cast)->dtype;
    body->inputs.v[i].type.dtype = *to;
    take(body, v, cast);
    return true;
}

/* Result i is made in that type by the body. */
static void give(Control *c, uint32_t i, DType to) {
    IoInfo *o = &c->body[0]->outputs.v[i + 1];
    build_at(c->body[0], graph_node(c->body[0], o->value)->loc);
    o->value = build_cast(c->body[0], o->value, to);
    c->results[i].dtype = o->type.dtype = to;
}

/* Result i of loop v; 0: nobody asks for it. */
static Value result_of(const Rewrite *r, Value v, uint32_t i) {
    for (Value p = v + 1; p < r->from->nodes.n; p++) {
        const Node *n = graph_node(r->from, p);
        if (n->op == OP_proj && n->in[0] == v && (uint32_t)n->attr.axis.axis == i && r->uses[p])
            return p;
    }
    return 0;
}

/* Operands of a loop are the trip count and the body's inputs. */
static void narrow_loop(Rewrite *r, Value v, Control *c, Value *in) {
    Graph *body = c->body[0];
    const uint32_t *uses = graph_uses(body);
    DType to;
    for (uint32_t i = 1; i < body->inputs.n; i++) {
        const bool carried = i <= c->ncarried;
        if (carried && result_of(r, v, i - 1)) continue;
        if (!take_cast(body, uses, i, &to)) continue;
        in[i + 1] = build_cast(r->to, in[i + 1], to);
        if (carried) give(c, i - 1, to);
    }
    for (uint32_t i = c->ncarried; i < c->nresults; i++) {
        Value p = result_of(r, v, i), cast = p ? narrowing_reader(r->from, r->uses, p) : 0;
        if (cast) give(c, i, graph_type(r->from, cast)->dtype);
    }
}

static bool has_loop(const Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++)
        if (graph_node(g, v)->op == OP_loop) return true;
    return false;
}

Graph *pass_captures(Graph *g) {
    return has_loop(g) ? rewrite_loops(g, narrow_loop) : g;
}
