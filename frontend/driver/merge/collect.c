/* What of a model an adapter changes. */
#include "frontend/driver/merge/merge.h"

#include <string.h>

typedef struct Found {
    Layer at;
    int32_t node; /* in the model */
} Found;

typedef struct Collect {
    const Graph *g;
    const Adapter *a;
    const char *root;
    Merge *out;
    VEC(Found) layers;
} Collect;

static graphc_status bad(const Collect *c, const char *name, const char *why) {
    return diag(c->g->diags, D_ADAPTER, "--adapter", "%s: %s", name, why);
}

static graphc_status cannot(const Collect *c, const char *name, const char *why) {
    return diag(c->g->diags, D_UNSUPPORTED, "--adapter", "%s: %s", name, why);
}

static void find_layers(Collect *c) {
    Found f = {0};
    for (Value v = 1; v < c->g->nodes.n; v++) {
        if (!layer_find(c->g, c->root, v, &f.at)) continue;
        f.node = c->g->locs.v[graph_node(c->g, v)->loc].node;
        vec_push(c->out->arena, &c->layers, f);
    }
}

static const Found *layer_at(const Collect *c, const char *path, size_t n) {
    for (uint32_t i = 0; i < c->layers.n; i++)
        if (!strncmp(c->layers.v[i].at.path, path, n) && !c->layers.v[i].at.path[n])
            return &c->layers.v[i];
    return NULL;
}

/* The initializer that has this name below the root; 0: none. */
static Value initializer(const Collect *c, const char *name) {
    for (Value v = 1; v < c->g->nodes.n; v++) {
        const char *has = layer_initializer(c->g, v);
        if (has && !strcmp(layer_below(c->root, has), name)) return v;
    }
    return 0;
}

static MergeItem item_of(const Collect *c, Value source, const char *name) {
    const Type *t = graph_type(c->g, source);
    MergeItem m = {.initializer = layer_initializer(c->g, source),
                   .name = name,
                   .from = layer_elements(c->g, source),
                   .dtype = t->dtype,
                   .rank = t->rank,
                   .reader = -1};
    for (int i = 0; i < t->rank; i++) (void)expr_is_const(c->g->exprs, t->dim[i], &m.dim[i]);
    return m;
}

/* The weight of a layer: an initializer of the module's own name lies as the module has it. */
static MergeItem item_of_layer(const Collect *c, const Found *f) {
    const char *name = arena_printf(c->out->arena, "%s.weight", f->at.path);
    MergeItem m = item_of(c, f->at.source, name);
    bool own = !strcmp(layer_below(c->root, m.initializer), name);
    m.transposed = f->at.transposed;
    m.turned = !own && f->at.kind == LAYER_linear && !f->at.transposed;
    for (uint32_t i = 0; i < c->layers.n; i++)
        if (c->layers.v[i].at.source == f->at.source && strcmp(c->layers.v[i].at.path, f->at.path))
            m.reader = f->node;
    return m;
}

static void add(Collect *c, const MergeItem *m) {
    vec_push(c->out->arena, &c->out->items, *m);
}

static graphc_status add_module(Collect *c, const AdapterModule *m) {
    const Found *f = layer_at(c, m->path, strlen(m->path));
    bool linear = m->kind == ADAPTER_linear;
    if (m->kind == ADAPTER_convolution)
        return cannot(c, m->path, "adapters of convolutions are not supported");
    if (!f || (f->at.kind == LAYER_linear) != linear)
        return bad(c, m->path,
                   linear ? "the model has no such linear layer"
                          : "the model has no such embedding");
    if (m->a.dim[1] != f->at.in || m->b.dim[0] != f->at.out)
        return bad(c, m->path,
                   arena_printf(c->out->arena,
                                "from %lld to %lld in the adapter, %lld to %lld in the model",
                                (long long)m->a.dim[1], (long long)m->b.dim[0], (long long)f->at.in,
                                (long long)f->at.out));
    if (!f->at.plain) return cannot(c, m->path, "its weight is not used as a matrix");
    MergeItem weight = item_of_layer(c, f);
    weight.module = m;
    add(c, &weight);
    if (m->bias.dtype == DT_none) return GRAPHC_OK;
    const char *name = arena_printf(c->out->arena, "%s.bias", m->path);
    Value v = initializer(c, name);
    if (!v) return cannot(c, name, "the model has none to which B's could be added");
    MergeItem bias = item_of(c, v, name);
    bias.bias = m;
    add(c, &bias);
    return GRAPHC_OK;
}

/* As the module has it: as many elements in another shape would be others' elements. */
static bool same_shape(const MergeItem *m, const SafeTensor *t) {
    bool same = t->rank == m->rank;
    for (uint32_t i = 0; i < t->rank && same; i++)
        same = t->dim[i] == m->dim[m->turned ? t->rank - 1 - i : i];
    return same;
}

static graphc_status add_whole(Collect *c, const SafeTensor *t) {
    const char *dot = strrchr(t->name, '.');
    const Found *f =
        dot && !strcmp(dot, ".weight") ? layer_at(c, t->name, (size_t)(dot - t->name)) : NULL;
    Value v = f ? 0 : initializer(c, t->name);
    if (!adapter_trains(&c->a->config, t->name)) return GRAPHC_OK; /* the base's own */
    if (!f && !v) return bad(c, t->name, "the model has no such parameter");
    MergeItem m = f ? item_of_layer(c, f) : item_of(c, v, t->name);
    m.whole = t;
    if (!same_shape(&m, t)) return bad(c, t->name, "of another shape in the model");
    add(c, &m);
    return GRAPHC_OK;
}

/* Everything else that has a parameter's name. */
static void add_others(Collect *c) {
    for (uint32_t i = 0; i < c->layers.n; i++) {
        MergeItem m = item_of_layer(c, &c->layers.v[i]);
        bool there = false;
        for (uint32_t k = 0; k < c->out->items.n && !there; k++)
            there = !strcmp(c->out->items.v[k].name, m.name);
        if (!there) add(c, &m);
    }
    for (Value v = 1; v < c->g->nodes.n; v++) {
        const char *name = layer_initializer(c->g, v);
        if (!name || !layer_parameter(name)) continue;
        MergeItem m = item_of(c, v, layer_below(c->root, name));
        bool there = false;
        for (uint32_t k = 0; k < c->out->items.n && !there; k++)
            there = !strcmp(c->out->items.v[k].name, m.name);
        if (!there) add(c, &m);
    }
}

graphc_status merge_collect(const Graph *g, const Adapter *a, Merge *out) {
    *out = (Merge){.arena = g->arena, .diags = g->diags};
    Collect c = {.g = g, .a = a, .root = layer_root(g), .out = out};
    find_layers(&c);
    for (uint32_t i = 0; i < a->nmodules; i++) GC_TRY(add_module(&c, &a->modules[i]));
    for (uint32_t i = 0; i < a->nwhole; i++) GC_TRY(add_whole(&c, &a->whole[i]));
    out->nchanged = out->items.n;
    add_others(&c);
    return GRAPHC_OK;
}
