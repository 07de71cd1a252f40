/* The order of nodes. Files list them in topological order by rule, but not all do. */
#include "frontend/import/import_impl.h"

typedef struct Order {
    Arena *arena;
    Onnx__NodeProto *const *nodes;
    uint32_t n;
    MapStr *producer;
    uint8_t *state; /* 0 new, 1 open, 2 done */
    VEC(uint32_t) stack;
    VEC(uint32_t) needs; /* producers found for one node */
    uint32_t *out, done;
} Order;

static void need_name(Order *o, const char *name) {
    uint32_t i;
    if (name && *name && mapstr_get(o->producer, name, &i)) vec_push(o->arena, &o->needs, i);
}

/* Names that a subgraph uses, whether its own or captured: only those that this list of nodes
 * produces count. Nesting is bounded by the prescan. */
static void need_graph(Order *o, const Onnx__GraphProto *g) {
    for (size_t i = 0; i < g->n_output; i++) need_name(o, g->output[i]->name);
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        for (size_t k = 0; k < n->n_input; k++) need_name(o, n->input[k]);
        for (size_t k = 0; k < n->n_attribute; k++) {
            if (n->attribute[k]->g) need_graph(o, n->attribute[k]->g);
            for (size_t j = 0; j < n->attribute[k]->n_graphs; j++)
                need_graph(o, n->attribute[k]->graphs[j]);
        }
    }
}

static void find_needs(Order *o, const Onnx__NodeProto *n) {
    o->needs.n = 0;
    for (size_t k = 0; k < n->n_input; k++) need_name(o, n->input[k]);
    for (size_t k = 0; k < n->n_attribute; k++)
        if (n->attribute[k]->g) need_graph(o, n->attribute[k]->g);
}

static void index_producers(Order *o) {
    for (uint32_t i = 0; i < o->n; i++)
        for (size_t k = 0; k < o->nodes[i]->n_output; k++) {
            const char *name = text_or_empty(o->nodes[i]->output[k]);
            uint32_t other;
            if (*name && !mapstr_get(o->producer, name, &other)) mapstr_put(o->producer, name, i);
        }
}

/* Puts a node behind what it needs, depth first with a stack of its own. */
static void visit(Order *o, uint32_t first) {
    Arena *a = o->arena;
    vec_push(a, &o->stack, first);
    while (o->stack.n) {
        const uint32_t i = o->stack.v[o->stack.n - 1];
        if (o->state[i] == 2) {
            o->stack.n--;
            continue;
        }
        bool ready = true;
        find_needs(o, o->nodes[i]);
        if (o->state[i] == 0) {
            o->state[i] = 1;
            for (uint32_t k = 0; k < o->needs.n; k++)
                if (o->state[o->needs.v[k]] == 0) {
                    vec_push(a, &o->stack, o->needs.v[k]);
                    ready = false;
                }
        }
        if (!ready) continue;
        /* A need that is still open here closes a cycle: its name is then reported as undefined. */
        o->out[o->done++] = i;
        o->state[i] = 2;
        o->stack.n--;
    }
}

static Order start(Arena *a, size_t n, Onnx__NodeProto *const *nodes) {
    Order o = {.arena = a,
               .nodes = nodes,
               .n = (uint32_t)n,
               .producer = mapstr_create(a),
               .state = arena_alloc(a, n),
               .out = ARENA_ARRAY(a, uint32_t, n)};
    index_producers(&o);
    return o;
}

bool *nodes_needed(Arena *a, const Onnx__GraphProto *g) {
    Order o = start(a, g->n_node, g->node);
    bool *needed = ARENA_ARRAY(a, bool, g->n_node);
    for (size_t i = 0; i < g->n_output; i++) need_name(&o, g->output[i]->name);
    for (;;) {
        for (uint32_t k = 0; k < o.needs.n; k++) {
            if (!needed[o.needs.v[k]]) vec_push(a, &o.stack, o.needs.v[k]);
            needed[o.needs.v[k]] = true;
        }
        if (!o.stack.n) return needed;
        find_needs(&o, g->node[o.stack.v[--o.stack.n]]);
    }
}

const uint32_t *order_nodes(Arena *a, size_t n, Onnx__NodeProto *const *nodes) {
    Order o = start(a, n, nodes);
    for (uint32_t i = 0; i < o.n; i++)
        if (o.state[i] != 2) visit(&o, i);
    return o.out;
}
