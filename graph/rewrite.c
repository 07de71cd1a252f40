#include "graph/rewrite.h"

#include <string.h>

static void count_uses(Rewrite *r) {
    const Graph *g = r->from;
    for (Value v = 1; v < g->nodes.n; v++)
        for (uint32_t i = 0; i < graph_node(g, v)->nin; i++) r->uses[graph_node(g, v)->in[i]]++;
    for (uint32_t i = 0; i < g->outputs.n; i++) r->uses[g->outputs.v[i].value]++;
}

/* Marks what the outputs need: operands have smaller numbers, so one walk backwards does it. Inputs
 * stay, since they are the signature. */
static bool *live_values(const Graph *g) {
    bool *live = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    for (uint32_t i = 0; i < g->outputs.n; i++) live[g->outputs.v[i].value] = true;
    for (uint32_t i = 0; i < g->inputs.n; i++) live[g->inputs.v[i].value] = true;
    for (Value v = g->nodes.n; v-- > 1;)
        for (uint32_t i = 0; live[v] && i < graph_node(g, v)->nin; i++)
            live[graph_node(g, v)->in[i]] = true;
    return live;
}

static void copy_facts(Rewrite *r) {
    Graph *to = r->to;
    const Graph *g = r->from;
    for (uint32_t i = 1; i < g->locs.n; i++) vec_push(to->arena, &to->locs, g->locs.v[i]);
    for (uint32_t i = 0; i < g->files.n; i++) vec_push(to->arena, &to->files, g->files.v[i]);
    to->assume = arena_copy(to->arena, g->assume, g->nassume * sizeof *g->assume);
    to->nassume = to->assume_cap = g->nassume;
    for (uint32_t i = 0; i < g->inputs.n; i++) {
        build_at(to, graph_node(g, g->inputs.v[i].value)->loc);
        r->map[g->inputs.v[i].value] = build_input(to, g->inputs.v[i].name, g->inputs.v[i].type);
    }
}

static Control *copy_bodies(const Control *c, RewriteFn fn, void *ctx, Arena *a) {
    Control *n = arena_copy(a, c, sizeof *c);
    for (int i = 0; i < 2; i++)
        if (c->body[i]) n->body[i] = rewrite_graph(c->body[i], fn, ctx);
    return n;
}

Value rewrite_copy(Rewrite *r, Value v) {
    if (r->map[v]) return r->map[v];
    const Node *n = graph_node(r->from, v);
    Value *in = ARENA_ARRAY(r->to->arena, Value, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) in[i] = r->map[n->in[i]];
    return build_like(r->to, n, in, n->nin);
}

static Value copy_control(Rewrite *r, RewriteFn fn, Value v) {
    Node n = *graph_node(r->from, v);
    n.attr.control = copy_bodies(n.attr.control, fn, r->ctx, r->to->arena);
    Value *in = ARENA_ARRAY(r->to->arena, Value, n.nin);
    for (uint32_t i = 0; i < n.nin; i++) in[i] = r->map[n.in[i]];
    return build_like(r->to, &n, in, n.nin);
}

Graph *rewrite_graph(const Graph *g, RewriteFn fn, void *ctx) {
    Rewrite r = {.from = g, .to = graph_create(g->arena, g->exprs, g->diags, g->name), .ctx = ctx};
    r.map = ARENA_ARRAY(g->arena, Value, g->nodes.n);
    r.uses = ARENA_ARRAY(g->arena, uint32_t, g->nodes.n);
    count_uses(&r);
    copy_facts(&r);
    bool *live = live_values(g);
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (!live[v] || r.map[v]) continue;
        build_at(r.to, n->loc);
        if (n->op == OP_if || n->op == OP_loop) r.map[v] = copy_control(&r, fn, v);
        if (!r.map[v] && fn) r.map[v] = fn(&r, v);
        if (!r.map[v]) r.map[v] = rewrite_copy(&r, v);
    }
    for (uint32_t i = 0; i < g->outputs.n; i++)
        build_output(r.to, g->outputs.v[i].name, r.map[g->outputs.v[i].value]);
    return r.to;
}

void graph_mark_constant(const Graph *g, bool *flags) {
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        bool is = n->op == OP_const ||
                  (op_info[n->op].cls != OPC_SOURCE && op_info[n->op].cls != OPC_CONTROL);
        for (uint32_t i = 0; is && i < n->nin; i++) {
            const Node *in = graph_node(g, n->in[i]);
            is = flags[n->in[i]] || in->op == OP_iota;
        }
        flags[v] = is && type_is_static(g->exprs, &n->type);
    }
}
