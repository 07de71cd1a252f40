#include "graph/grad/trainable.h"
#include "graph/grad/layer.h"
#include "graph/pass/rewrite.h"
#include "runtime/base/map.h"
#include "runtime/base/strbuf.h"

#include <string.h>

typedef VEC(const char *) Names;

typedef struct Choice {
    const bool *learnt;  /* by value of the graph */
    const bool *written; /* by number of a state: the model itself writes it */
    regex_t train, freeze;
    bool has_train, has_freeze;
    bool froze; /* some name is one that is to be frozen */
    Weights *weights;
    Names *left; /* initializers that only their place keeps from being learnt */
} Choice;

static Value below_views(const Graph *g, Value v) {
    while (layer_view((Op)graph_node(g, v)->op)) v = graph_node(g, v)->in[0];
    return v;
}

/* More than an outer product, which frequencies and positions are multiplied in. */
static bool sums(const Graph *g, const Node *dot) {
    const Type *t = graph_type(g, dot->in[0]);
    int64_t n;
    return !expr_is_const(g->exprs, t->dim[t->rank - 1], &n) || n > 1;
}

static bool is_vector(const Graph *g, const Type *t) {
    int64_t n;
    int axes = 0;
    for (int i = 0; i < t->rank; i++) axes += !expr_is_const(g->exprs, t->dim[i], &n) || n != 1;
    return axes == 1;
}

/* Computed from initializers and nothing else. */
static const bool *from_weights(const Graph *g) {
    bool *alone = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        alone[v] = n->nin || n->op == OP_state || n->op == OP_const;
        for (uint32_t i = 0; i < n->nin; i++) alone[v] &= alone[n->in[i]];
    }
    return alone;
}

/* A vector for each of several contractions, all rows of which have it. */
static bool is_vectors(const Graph *g, const Type *t) {
    return t->rank > 2 && expr_is_value(g->exprs, t->dim[t->rank - 2], 1);
}

/* Added to what a contraction gives: a vector is its bias, a matrix may be a mask. */
static void mark_bias(const Graph *g, const Node *add, const bool *alone, bool *at) {
    for (int i = 0; i < 2; i++) {
        const Value x = below_views(g, add->in[i]);
        const Node *of = graph_node(g, below_views(g, add->in[1 - i]));
        if (of->op != OP_dot && of->op != OP_conv) continue;
        const Type *t = graph_type(g, x);
        at[x] |= is_vector(g, t) || (alone[of->in[1]] && is_vectors(g, t));
    }
}

/* Parts, rows of parts and sums: recurrent layers are made of their weights so. */
static bool puts_together(Op op) {
    return op == OP_slice || op == OP_concat || op == OP_add;
}

static const bool *learnt_places(const Graph *g);

/* What a body reads from outside where weights stand: its last inputs are the node's last
 * operands. */
static void mark_captures(const Node *n, bool *at) {
    const Control *c = n->attr.control;
    const uint32_t ncarried = n->op == OP_loop ? 1 + c->ncarried : 0;
    for (int k = 0; k < 2 && c->body[k]; k++) {
        const Graph *body = c->body[k];
        const bool *inside = learnt_places(body);
        for (uint32_t i = ncarried; i < body->inputs.n; i++)
            if (inside[body->inputs.v[i].value]) at[n->in[n->nin - body->inputs.n + i]] = true;
    }
}

/* What stands where weights do, seen through views and casts. */
static const bool *learnt_places(const Graph *g) {
    const bool *alone = from_weights(g);
    bool *at = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    for (Value v = g->nodes.n; v-- > 1;) {
        const Node *n = graph_node(g, v);
        if (n->op == OP_dot || n->op == OP_conv || n->op == OP_attention) at[n->in[1]] = true;
        if (n->op == OP_dot && sums(g, n)) at[n->in[0]] = true;
        if (n->op == OP_gather) at[n->in[0]] = true;
        if (n->op == OP_add) mark_bias(g, n, alone, at);
        if (n->op == OP_if || n->op == OP_loop) mark_captures(n, at);
        if (layer_view((Op)n->op) && at[v]) at[n->in[0]] = true;
        for (uint32_t i = 0; at[v] && alone[v] && puts_together((Op)n->op) && i < n->nin; i++)
            at[n->in[i]] = true;
    }
    return at;
}

static bool chosen(const Choice *c, Value v, const char *name) {
    if (c->has_freeze && layer_matches(&c->freeze, name)) return false;
    if (c->has_train) return layer_matches(&c->train, name);
    return c->learnt[v] || layer_parameter(name);
}

/* Scalars (scales, bounds) are never missed. */
static bool is_left(const Choice *c, const StateInfo *s) {
    const bool frozen = c->has_freeze && layer_matches(&c->freeze, s->name);
    return !c->has_train && !frozen && s->initial.bytes > dtype_bytes(s->type.dtype);
}

static Value weight_or_constant(Rewrite *r, Value v) {
    Choice *c = r->facts;
    const Node *n = graph_node(r->from, v);
    if (n->op != OP_state) return 0;
    const StateInfo *s = &r->from->states.v[n->attr.input.index];
    c->froze |= c->has_freeze && layer_matches(&c->freeze, s->name);
    if (c->written[n->attr.input.index]) return 0;
    if (!chosen(c, v, s->name)) {
        if (is_left(c, s)) vec_push(r->to->arena, c->left, s->name);
        return build_const(r->to, s->type, s->initial);
    }
    Value kept = build_state(r->to, s->name, s->type, s->initial);
    vec_push(r->to->arena, &c->weights->state, kept);
    return kept;
}

static graphc_status compile(const Graph *g, const char *option, const char *text, regex_t *out,
                             bool *has) {
    if (!text) return GRAPHC_OK;
    *has = !regcomp(out, text, REG_EXTENDED);
    return *has ? GRAPHC_OK
                : diag(g->diags, D_USAGE, option, "\"%s\" is no regular expression", text);
}

static const bool *written_states(const Graph *g) {
    bool *written = ARENA_ARRAY(g->arena, bool, g->states.n + 1);
    for (uint32_t i = 0; i < g->writes.n; i++) written[g->writes.v[i].state] = true;
    return written;
}

static void say_left(const Graph *g, const Names *left, const char *why) {
    enum { SHOWN = 8 };
    StrBuf names;
    sb_init(&names, g->arena);
    for (uint32_t i = 0; i < left->n && i < SHOWN; i++)
        sb_printf(&names, "%s%s", i ? ", " : "", left->v[i]);
    if (left->n > SHOWN) sb_printf(&names, " and %u more", left->n - SHOWN);
    if (left->n) (void)diag(g->diags, D_NOT_TRAINED, "", "%s: %s", sb_str(&names), why);
}

/* Those that the model stores in the bodies of branches and loops are no states. */
static void find_inner(const Graph *g, MapStr *states, Names *out) {
    const bool *learnt = learnt_places(g);
    uint32_t i;
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        const char *name = n->op == OP_const ? n->attr.constant.name : "";
        if (*name && dtype_is_float(n->type.dtype) && (learnt[v] || layer_parameter(name)) &&
            !mapstr_get(states, name, &i))
            vec_push(g->arena, out, name);
        if (n->op != OP_if && n->op != OP_loop) continue;
        for (int k = 0; k < 2 && n->attr.control->body[k]; k++)
            find_inner(n->attr.control->body[k], states, out);
    }
}

static Names inner_names(const Graph *g) {
    Names out = {0};
    MapStr *states = mapstr_create(g->arena);
    for (uint32_t i = 0; i < g->states.n; i++) mapstr_put(states, g->states.v[i].name, i);
    find_inner(g, states, &out);
    return out;
}

graphc_status trainable_apply(const Graph *g, const Trainable *t, Graph **out, Weights *w) {
    Names left = {0};
    Choice c = {
        .learnt = learnt_places(g), .written = written_states(g), .weights = w, .left = &left};
    graphc_status st = compile(g, "--train", t->train, &c.train, &c.has_train);
    if (st == GRAPHC_OK) st = compile(g, "--freeze", t->freeze, &c.freeze, &c.has_freeze);
    if (st == GRAPHC_OK) *out = rewrite_graph(g, weight_or_constant, NULL, &c);
    if (c.has_train) regfree(&c.train);
    if (c.has_freeze) regfree(&c.freeze);
    GC_TRY(st);
    GC_TRY(diag_status(g->diags));
    if (c.has_freeze && !c.froze)
        return diag(g->diags, D_USAGE, "--freeze", "\"%s\" is no weight's whole name", t->freeze);
    const Names inner = inner_names(g);
    say_left(g, &left,
             "not multiplied, convolved, looked up or added as a bias, nor named like a parameter; "
             "--train REGEX learns what it names");
    say_left(g, &inner, "stored in the body of a branch or loop, where nothing is learnt");
    return w->state.n ? GRAPHC_OK
                      : diag(g->diags, D_USAGE, "--train", "no weight of the model is trained");
}
