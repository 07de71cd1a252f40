#include "frontend/driver/outline.h"
#include "frontend/import/import_impl.h"

#include <string.h>

typedef VEC(uint32_t) Numbers;

typedef struct Reader {
    Arena *arena;
    Outline *out;
    MapStr *maker; /* value -> who gives it */
} Reader;

static void add_source(Reader *r, Numbers *in, const char *value) {
    uint32_t from;
    if (!value || !*value || !mapstr_get(r->maker, value, &from)) return;
    for (uint32_t i = 0; i < in->n; i++)
        if (in->v[i] == from) return;
    vec_push(r->arena, in, from);
}

/* Of a subgraph what it takes from outside: names that it defines itself are no node's of the main
 * graph, since ONNX lets no name be defined twice. */
static void add_sources(Reader *r, Numbers *in, const Onnx__NodeProto *n);
static void add_graph(Reader *r, Numbers *in, const Onnx__GraphProto *g) {
    for (size_t i = 0; g && i < g->n_node; i++) add_sources(r, in, g->node[i]);
    for (size_t i = 0; g && i < g->n_output; i++) add_source(r, in, g->output[i]->name);
}

static void add_sources(Reader *r, Numbers *in, const Onnx__NodeProto *n) {
    for (size_t i = 0; i < n->n_input; i++) add_source(r, in, n->input[i]);
    for (size_t i = 0; i < n->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->attribute[i];
        add_graph(r, in, a->g);
        for (size_t k = 0; k < a->n_graphs; k++) add_graph(r, in, a->graphs[k]);
    }
}

static OutlineNode *add(Reader *r, const char *name, const char *op, const char *output) {
    OutlineNode *n = &r->out->nodes[r->out->n++];
    *n = (OutlineNode){.name = arena_strdup(r->arena, text_or_empty(name)),
                       .op = arena_strdup(r->arena, text_or_empty(op)),
                       .output = arena_strdup(r->arena, text_or_empty(output))};
    return n;
}

static void add_inputs(Reader *r, const Onnx__GraphProto *g) {
    MapStr *given = mapstr_create(r->arena);
    for (size_t i = 0; i < g->n_initializer; i++)
        mapstr_put(given, text_or_empty(g->initializer[i]->name), 1);
    for (size_t i = 0; i < g->n_input; i++) {
        const char *name = text_or_empty(g->input[i]->name);
        uint32_t constant;
        if (mapstr_get(given, name, &constant)) continue;
        mapstr_put(r->maker, name, r->out->n);
        (void)add(r, name, "input", name);
    }
}

static void read_graph(Reader *r, const Onnx__GraphProto *g) {
    Outline *o = r->out;
    o->nodes = ARENA_ARRAY(r->arena, OutlineNode, g->n_node + g->n_input + g->n_output + 1);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        (void)add(r, n->name, n->op_type, n->n_output ? n->output[0] : "");
        for (size_t k = 0; k < n->n_output; k++)
            if (n->output[k] && *n->output[k]) mapstr_put(r->maker, n->output[k], i);
    }
    o->nnodes = o->n;
    add_inputs(r, g);
    for (uint32_t i = 0; i < o->nnodes; i++) {
        Numbers in = {0};
        add_sources(r, &in, g->node[i]);
        o->nodes[i].in = in.v;
        o->nodes[i].nin = in.n;
    }
    for (size_t i = 0; i < g->n_output; i++) {
        Numbers in = {0};
        add_source(r, &in, g->output[i]->name);
        OutlineNode *n = add(r, g->output[i]->name, "output", g->output[i]->name);
        n->in = in.v;
        n->nin = in.n;
    }
}

graphc_status outline_read(Arena *a, DiagSink *d, const char *path, Outline *out) {
    *out = (Outline){0};
    Model *m = import_open(a, d, path);
    if (!m) return diag_status(d);
    const Onnx__ModelProto *p = (const Onnx__ModelProto *)(const void *)prescan_root(m->message);
    Reader r = {a, out, mapstr_create(a)};
    if (p->graph) read_graph(&r, p->graph);
    import_close(m);
    return GRAPHC_OK;
}
