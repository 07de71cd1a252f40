/* turn_captures: weights that a loop takes from outside, and its body only turns to be the right
 * operand of contractions, are turned in front of the loop, by a prepare step: kernels of a body
 * read a right operand as it lies, and go over its columns side by side.
 *
 *   loop(w) { dot(x, permute(w)) }  =  loop(permute(w)) { dot(x, w) }
 *
 * Needs: to be behind gradients, which read a layer's weights both ways, and behind transpose_sink.
 * Keeps: meaning, bit for bit. Breaks: nothing; leaves dead nodes in bodies. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

static bool reads(const Node *n, Value v) {
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] == v) return true;
    return false;
}

/* The one reader of v; 0: there are several, or it is a result. */
static Value reader(const Graph *g, const uint32_t *uses, Value v) {
    Value by = 0;
    for (Value x = v + 1; x < g->nodes.n && uses[v] == 1; x++)
        if (reads(graph_node(g, x), v)) by = x;
    return by;
}

/* Whether v is a permute that moves the last axis, and all its readers have it on their right. */
static bool turns(const Graph *g, const uint32_t *uses, Value v) {
    const Node *n = graph_node(g, v);
    const int last = n->type.rank - 1;
    uint32_t right = 0;
    if (n->op != OP_permute || n->attr.perm.axis[last] == last) return false;
    for (Value d = v + 1; d < g->nodes.n; d++) {
        const Node *dot = graph_node(g, d);
        right += dot->op == OP_dot && dot->in[1] == v && dot->in[0] != v;
    }
    return right && right == uses[v];
}

/* Operands are shared with graphs that this one was made of: what is replaced is a copy. */
static void replace(Graph *body, Value from, Value to) {
    for (Value v = from + 1; v < body->nodes.n; v++) {
        Node *n = &body->nodes.v[v];
        if (!reads(n, from)) continue;
        Value *in = arena_copy(body->own, n->in, n->nin * sizeof *in);
        for (uint32_t i = 0; i < n->nin; i++)
            if (in[i] == from) in[i] = to;
        n->in = in;
    }
}

static void turn_loop(Rewrite *r, Value v, Control *c, Value *in) {
    Graph *body = c->body[0];
    const uint32_t *uses = graph_uses(body);
    bool *constant = ARENA_ARRAY(r->from->arena, bool, r->from->nodes.n);
    graph_mark_constant(r->from, constant);
    for (uint32_t i = c->ncarried + 1; i < body->inputs.n; i++) {
        const Value w = body->inputs.v[i].value, p = reader(body, uses, w);
        if (!p || !turns(body, uses, p) || !constant[graph_node(r->from, v)->in[i + 1]]) continue;
        in[i + 1] = build_permute(r->to, in[i + 1], graph_node(body, p)->attr.perm.axis);
        body->inputs.v[i].type = body->nodes.v[w].type = *graph_type(body, p);
        replace(body, p, w);
    }
}

Graph *pass_turn_captures(Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++)
        if (graph_node(g, v)->op == OP_loop) return rewrite_loops(g, turn_loop);
    return g;
}
