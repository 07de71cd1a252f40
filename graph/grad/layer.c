#include "graph/grad/layer.h"

#include <string.h>

const char *layer_initializer(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    if (n->op == OP_const && *n->attr.constant.name) return n->attr.constant.name;
    if (n->op != OP_state) return NULL;
    const StateInfo *s = &g->states.v[n->attr.input.index];
    return s->initial.bytes && !s->grows ? s->name : NULL;
}

bool layer_parameter(const char *name) {
    static const char *const ends[] = {".weight", ".bias",   ".gamma",    ".beta",
                                       ".scale",  ".kernel", ".embedding"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(dot, ends[i])) return true;
    return false;
}

const Constant *layer_elements(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    return n->op == OP_const ? &n->attr.constant : &g->states.v[n->attr.input.index].initial;
}

static bool swaps(const Node *n) {
    return n->op == OP_permute && n->type.rank == 2 && n->attr.perm.axis[0] == 1;
}

/* From v down to the initializer; false: there is none. */
static bool follow(const Graph *g, Value v, Layer *out) {
    const Expr in = expr_const(g->exprs, out->in), size = expr_const(g->exprs, out->out);
    for (;; v = graph_node(g, v)->in[0]) {
        const Node *n = graph_node(g, v);
        const Type *t = &n->type;
        if (!out->matrix && t->rank == 2 && t->dim[0] == in && t->dim[1] == size) {
            out->matrix = v;
            out->plain = true;
        }
        if (layer_initializer(g, v)) return out->source = v, true;
        if (!layer_view((Op)n->op)) return false;
        if (swaps(n)) out->transposed = !out->transposed;
        if (n->op != OP_cast && !swaps(n)) out->plain = false;
    }
}

static bool last_size(const Graph *g, Value v, int64_t *out) {
    const Type *t = graph_type(g, v);
    return t->rank && expr_is_const(g->exprs, t->dim[t->rank - 1], out);
}

static bool find_linear(const Graph *g, Value v, Layer *out) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_dot || n->type.rank < 2) return false;
    out->kind = LAYER_linear;
    return last_size(g, n->in[0], &out->in) && last_size(g, v, &out->out) &&
           follow(g, n->in[1], out);
}

/* Rows of a matrix of floats: one index, which says the row. */
static bool find_embedding(const Graph *g, Value v, Layer *out) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_gather || n->nin != 2 || !dtype_is_float(n->type.dtype)) return false;
    const Type *data = graph_type(g, n->in[0]);
    const int8_t *src = n->attr.index.src;
    out->kind = LAYER_embedding;
    return data->rank == 2 && src[0] < 0 && src[1] == n->type.rank - 1 &&
           expr_is_const(g->exprs, data->dim[0], &out->in) && last_size(g, v, &out->out) &&
           data->dim[1] == n->type.dim[n->type.rank - 1] && follow(g, n->in[0], out);
}

static const char *without(Arena *a, const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n > k && !strcmp(name + n - k, end) ? arena_strndup(a, name, n - k) : name;
}

const char *layer_below(const char *root, const char *name) {
    size_t n = strlen(root);
    return n && !strncmp(name, root, n) && name[n] == '.' ? name + n + 1 : name;
}

bool layer_find(const Graph *g, const char *root, Value v, Layer *out) {
    *out = (Layer){0};
    if (!find_linear(g, v, out)) {
        *out = (Layer){0};
        if (!find_embedding(g, v, out)) return false;
    }
    const LocInfo *l = &g->locs.v[graph_node(g, v)->loc];
    const char *path = l->module && *l->module
                           ? l->module
                           : without(g->arena, layer_initializer(g, out->source), ".weight");
    out->path = layer_below(root, path);
    return true;
}

const char *layer_root(const Graph *g) {
    static const char *const heads[] = {"lm_head", "score", "classifier", "qa_outputs"};
    const char *first = NULL;
    bool head = false;
    for (Value v = 1; v < g->nodes.n; v++) {
        Layer l;
        if (!layer_find(g, "", v, &l) || l.kind != LAYER_linear) continue;
        const char *dot = strchr(l.path, '.');
        if (!dot) return "";
        size_t n = (size_t)(dot - l.path);
        if (!first) first = arena_strndup(g->arena, l.path, n);
        if (strncmp(l.path, first, n) || first[n]) return "";
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
            head |= !strcmp(dot + 1, heads[i]);
    }
    return head ? first : "";
}
