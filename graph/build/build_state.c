/* States: what lives in the session from run to run. */
#include "graph/build/build_impl.h"

#include <string.h>

Value build_state(Graph *g, const char *name, Type t, Constant initial) {
    int64_t limit = (int64_t)(INT64_MAX / 16), n = build_count(g, &t, limit);
    if (n < 0 || (initial.bytes && (uint64_t)n * dtype_bytes(t.dtype) != initial.bytes))
        return build_error(g, D_TENSOR, "state \"%s\": %llu bytes do not fill %s", name,
                           (unsigned long long)initial.bytes, build_type_text(g, &t));
    if (!initial.name) initial.name = "";
    Attr a = {.input = {g->states.n}};
    Value v = build_append(g, OP_state, NULL, 0, &a, &t);
    StateInfo s = {.name = arena_strdup(g->arena, name), .value = v, .type = t, .initial = initial};
    if (v) vec_push(g->arena, &g->states, s);
    return v;
}

Value build_state_like(Graph *g, const StateInfo *s) {
    if (!s->grows) return build_state(g, s->name, s->type, s->initial);
    Attr a = {.input = {g->states.n}};
    StateInfo copy = *s;
    copy.value = build_append(g, OP_state, NULL, 0, &a, &s->type);
    vec_push(g->arena, &g->states, copy);
    return copy.value;
}

uint32_t build_entry(Graph *g, const char *name) {
    GC_ASSERT(g->entries.n < GRAPH_MAX_ENTRIES);
    vec_push(g->arena, &g->entries, arena_strdup(g->arena, name));
    return 1u << (g->entries.n - 1);
}

void build_in(Graph *g, uint32_t entries) {
    builder_of(g)->entries = entries;
}

static StateWrite *write_of(Graph *g, uint32_t state) {
    uint32_t entries = builder_of(g)->entries;
    for (uint32_t i = 0; i < g->writes.n; i++)
        if (g->writes.v[i].state == state && g->writes.v[i].entries == entries)
            return &g->writes.v[i];
    vec_push(g->arena, &g->writes, ((StateWrite){.state = state, .entries = entries}));
    return &g->writes.v[g->writes.n - 1];
}

void build_write(Graph *g, Value state, Value v) {
    if (!state || !v) return;
    GC_ASSERT(graph_node(g, state)->op == OP_state);
    const Type *s = graph_type(g, state), *t = graph_type(g, v);
    uint32_t i = graph_node(g, state)->attr.input.index;
    if (state_takes(&g->states.v[i], t))
        write_of(g, i)->value = v;
    else
        build_error(g, D_SHAPE, "state \"%s\" is %s, but is written with %s", g->states.v[i].name,
                    build_type_text(g, s), build_type_text(g, t));
}
