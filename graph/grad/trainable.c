#include "graph/grad/trainable.h"
#include "graph/grad/layer.h"
#include "graph/pass/rewrite.h"

#include <string.h>

typedef struct Choice {
    const bool *learnt;  /* by value of the graph */
    const bool *written; /* by number of a state: the model itself writes it */
    regex_t train, freeze;
    bool has_train, has_freeze;
    Weights *weights;
} Choice;

/* What stands where weights do, seen through views and casts. */
static const bool *learnt_places(const Graph *g) {
    bool *at = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    for (Value v = g->nodes.n; v-- > 1;) {
        const Node *n = graph_node(g, v);
        if (n->op == OP_dot || n->op == OP_conv) at[n->in[1]] = true;
        if (n->op == OP_gather) at[n->in[0]] = true;
        if (layer_view((Op)n->op) && at[v]) at[n->in[0]] = true;
    }
    return at;
}

static bool chosen(const Choice *c, Value v, const char *name) {
    if (c->has_freeze && layer_matches(&c->freeze, name)) return false;
    if (c->has_train) return layer_matches(&c->train, name);
    return c->learnt[v] || layer_parameter(name);
}

static Value weight_or_constant(Rewrite *r, Value v) {
    const Choice *c = r->facts;
    const Node *n = graph_node(r->from, v);
    if (n->op != OP_state) return 0;
    if (c->written[n->attr.input.index]) return 0;
    const StateInfo *s = &r->from->states.v[n->attr.input.index];
    if (!chosen(c, v, s->name)) return build_const(r->to, s->type, s->initial);
    Value kept = build_state(r->to, s->name, s->type, s->initial);
    vec_push(r->to->arena, &c->weights->state, kept);
    return kept;
}

static graphc_status compile(const Graph *g, const char *text, regex_t *out, bool *has) {
    if (!text) return GRAPHC_OK;
    *has = !regcomp(out, text, REG_EXTENDED);
    return *has ? GRAPHC_OK : diag(g->diags, D_USAGE, text, "is no regular expression");
}

static const bool *written_states(const Graph *g) {
    bool *written = ARENA_ARRAY(g->arena, bool, g->states.n + 1);
    for (uint32_t i = 0; i < g->writes.n; i++) written[g->writes.v[i].state] = true;
    return written;
}

graphc_status trainable_apply(const Graph *g, const Trainable *t, Graph **out, Weights *w) {
    Choice c = {.learnt = learnt_places(g), .written = written_states(g), .weights = w};
    graphc_status st = compile(g, t->train, &c.train, &c.has_train);
    if (st == GRAPHC_OK) st = compile(g, t->freeze, &c.freeze, &c.has_freeze);
    if (st == GRAPHC_OK) *out = rewrite_graph(g, weight_or_constant, NULL, &c);
    if (c.has_train) regfree(&c.train);
    if (c.has_freeze) regfree(&c.freeze);
    GC_TRY(st);
    GC_TRY(diag_status(g->diags));
    return w->state.n ? GRAPHC_OK
                      : diag(g->diags, D_USAGE, "--train", "no weight of the model is trained");
}
