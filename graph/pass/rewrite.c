#include "graph/pass/rewrite.h"
#include "graph/ir/attr.h"

#include <string.h>

uint32_t *graph_uses(const Graph *g) {
    uint32_t *uses = ARENA_ARRAY(g->own, uint32_t, g->nodes.n);
    for (Value v = 1; v < g->nodes.n; v++)
        for (uint32_t i = 0; i < graph_node(g, v)->nin; i++) uses[graph_node(g, v)->in[i]]++;
    for (uint32_t i = 0; i < g->outputs.n; i++) uses[g->outputs.v[i].value]++;
    for (uint32_t i = 0; i < g->writes.n; i++) uses[g->writes.v[i].value]++;
    return uses;
}

typedef void (*SymFn)(void *ctx, uint32_t sym);

static void syms_of(const Graph *g, const Expr *e, uint32_t n, SymFn fn, void *ctx) {
    for (uint32_t i = 0; i < n; i++)
        if (e[i]) expr_each_sym(g->exprs, e[i], fn, ctx);
}

typedef struct EachSym {
    const ExprPool *p;
    SymFn fn;
    void *ctx;
} EachSym;

static void syms_of_attr(void *ctx, Expr e) {
    const EachSym *c = ctx;
    if (e) expr_each_sym(c->p, e, c->fn, c->ctx);
}

void graph_node_syms(const Graph *g, const Node *n, SymFn fn, void *ctx) {
    EachSym c = {g->exprs, fn, ctx};
    syms_of(g, n->type.dim, n->type.rank, fn, ctx);
    attr_each_expr(g, n, syms_of_attr, &c);
    if (n->op != OP_if && n->op != OP_loop) return;
    for (int i = 0; i < 2 && n->attr.control->body[i]; i++) {
        const Graph *body = n->attr.control->body[i];
        for (Value v = 1; v < body->nodes.n; v++)
            graph_node_syms(body, graph_node(body, v), fn, ctx);
    }
}

/* What is alive, and the node that computes each symbol of kind SYM_DATA. */
typedef struct Liveness {
    const Graph *g;
    bool *live;      /* by value */
    MapU64 *definer; /* symbol -> node */
    Value v;         /* the node at hand */
} Liveness;

static void note_definer(void *ctx, uint32_t sym) {
    Liveness *l = ctx;
    uint32_t first;
    if (expr_sym_info(l->g->exprs, sym)->kind == SYM_DATA && !map_get(l->definer, sym, &first))
        map_put(l->definer, sym, l->v);
}

static void mark_definer(void *ctx, uint32_t sym) {
    Liveness *l = ctx;
    uint32_t v;
    if (map_get(l->definer, sym, &v)) l->live[v] = true;
}

static void note_own_sizes(const Graph *g, const Control *c, Liveness *l) {
    uint32_t sym;
    for (uint32_t i = 0; i < c->nresults; i++)
        for (int a = 0; a < c->results[i].rank; a++)
            if (control_own_size(g->exprs, c, i, a, &sym)) note_definer(l, sym);
}

/* compact defines its length, a loop of unknown length the sizes of its stacked results, an if
 * those that its branches do not agree on. */
MapU64 *graph_definers(const Graph *g) {
    Liveness own = {.g = g, .definer = map_create(g->own)}, *l = &own;
    for (l->v = 1; l->v < g->nodes.n; l->v++) {
        const Node *n = graph_node(g, l->v);
        if (n->op == OP_compact) syms_of(g, n->type.dim, 1, note_definer, l);
        if (n->op == OP_if) note_own_sizes(g, n->attr.control, l);
        if (n->op != OP_loop || n->attr.control->trip) continue;
        for (uint32_t i = n->attr.control->ncarried; i < n->attr.control->nresults; i++)
            syms_of(g, n->attr.control->results[i].dim, 1, note_definer, l);
    }
    return l->definer;
}

/* Operands and definers of symbols have smaller numbers, so one walk backwards does it. */
bool *graph_needed(const Graph *g, uint32_t entries) {
    Liveness l = {.g = g, .live = ARENA_ARRAY(g->own, bool, g->nodes.n)};
    l.definer = graph_definers(g);
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (entries_meet(g->outputs.v[i].entries, entries)) l.live[g->outputs.v[i].value] = true;
    for (uint32_t i = 0; i < g->writes.n; i++)
        if (entries_meet(g->writes.v[i].entries, entries)) l.live[g->writes.v[i].value] = true;
    for (Value v = g->nodes.n; v-- > 1;) {
        if (!l.live[v]) continue;
        for (uint32_t i = 0; i < graph_node(g, v)->nin; i++) l.live[graph_node(g, v)->in[i]] = true;
        graph_node_syms(g, graph_node(g, v), mark_definer, &l);
    }
    return l.live;
}

bool *graph_live(const Graph *g) {
    bool *live = graph_needed(g, 0);
    for (uint32_t i = 0; i < g->inputs.n; i++) live[g->inputs.v[i].value] = true;
    for (uint32_t i = 0; i < g->states.n; i++) live[g->states.v[i].value] = true;
    return live;
}

/* Inputs that are taken: those from todo[done] on were not asked yet which sizes they have. */
typedef struct Taken {
    const Graph *g;
    bool *inputs;
    uint32_t *todo, n;
} Taken;

static void take_input(Taken *s, uint32_t i) {
    if (!s->inputs[i]) s->todo[s->n++] = i;
    s->inputs[i] = true;
}

static void take_giver(void *ctx, uint32_t sym) {
    Taken *s = ctx;
    const SymInfo *i = expr_sym_info(s->g->exprs, sym);
    bool given = i->kind == SYM_DIM || i->kind == SYM_ELEM;
    if (given && i->a < s->g->inputs.n) take_input(s, i->a);
}

bool *graph_inputs_of(const Graph *g, uint32_t entries) {
    const bool *live = graph_needed(g, entries);
    Taken s = {.g = g,
               .inputs = ARENA_ARRAY(g->arena, bool, g->inputs.n),
               .todo = ARENA_ARRAY(g->arena, uint32_t, g->inputs.n)};
    for (uint32_t i = 0; i < g->inputs.n; i++)
        if (live[g->inputs.v[i].value]) take_input(&s, i);
    for (Value v = 1; v < g->nodes.n; v++)
        if (live[v]) graph_node_syms(g, graph_node(g, v), take_giver, &s);
    for (uint32_t done = 0; done < s.n; done++) /* those that give sizes have sizes themselves */
        graph_node_syms(g, graph_node(g, g->inputs.v[s.todo[done]].value), take_giver, &s);
    return s.inputs;
}

static void copy_facts(Rewrite *r, RewriteFn fn) {
    Graph *to = r->to;
    const Graph *g = r->from;
    for (uint32_t i = 1; i < g->locs.n; i++) vec_push(to->own, &to->locs, g->locs.v[i]);
    for (uint32_t i = 0; i < g->files.n; i++) vec_push(to->arena, &to->files, g->files.v[i]);
    to->assume = arena_copy(to->arena, g->assume, g->nassume * sizeof *g->assume);
    to->nassume = to->assume_cap = g->nassume;
    for (uint32_t i = 0; i < g->inputs.n; i++) {
        build_at(to, graph_node(g, g->inputs.v[i].value)->loc);
        r->map[g->inputs.v[i].value] = build_input(to, g->inputs.v[i].name, g->inputs.v[i].type);
    }
    for (uint32_t i = 0; i < g->states.n; i++) {
        const StateInfo *s = &g->states.v[i];
        build_at(to, graph_node(g, s->value)->loc);
        if (fn) r->map[s->value] = fn(r, s->value);
        if (!r->map[s->value]) r->map[s->value] = build_state_like(to, s);
    }
    for (uint32_t i = 0; i < g->entries.n; i++) build_entry(to, g->entries.v[i]);
}

static void copy_results(Rewrite *r) {
    const Graph *g = r->from;
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        build_in(r->to, g->outputs.v[i].entries);
        build_output(r->to, g->outputs.v[i].name, r->map[g->outputs.v[i].value]);
    }
    for (uint32_t i = 0; i < g->writes.n; i++) {
        const StateWrite *w = &g->writes.v[i];
        build_in(r->to, w->entries);
        build_write(r->to, r->map[g->states.v[w->state].value], r->map[w->value]);
    }
    build_in(r->to, 0);
}

/* How a graph is rewritten: bodies are rewritten in the same way. */
typedef struct Way {
    RewriteFn fn;
    RewriteFacts facts;
    void *ctx;
    RewriteLoop loop;
} Way;

static Graph *rewrite_by(const Graph *g, const Way *w);

static Control *copy_bodies(const Control *c, const Way *w, Arena *a) {
    Control *n = arena_copy(a, c, sizeof *c);
    for (int i = 0; i < 2; i++)
        if (c->body[i]) n->body[i] = rewrite_by(c->body[i], w);
    n->results = arena_copy(a, c->results, c->nresults * sizeof *c->results);
    return n;
}

Value rewrite_copy(Rewrite *r, Value v) {
    if (r->map[v]) return r->map[v];
    const Node *n = graph_node(r->from, v);
    Value *in = ARENA_ARRAY(r->from->own, Value, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) in[i] = r->map[n->in[i]];
    return build_like(r->to, n, in, n->nin);
}

static Value copy_control(Rewrite *r, const Way *w, Value v) {
    Node n = *graph_node(r->from, v);
    n.attr.control = copy_bodies(n.attr.control, w, r->to->arena);
    Value *in = ARENA_ARRAY(r->from->own, Value, n.nin);
    for (uint32_t i = 0; i < n.nin; i++) in[i] = r->map[n.in[i]];
    if (w->loop && n.op == OP_loop) w->loop(r, v, n.attr.control, in);
    return build_like(r->to, &n, in, n.nin);
}

static Graph *rewrite_by(const Graph *g, const Way *w) {
    Rewrite r = {.from = g, .to = graph_create(g->arena, g->exprs, g->diags, g->name)};
    r.facts = w->facts ? w->facts(g, w->ctx) : w->ctx;
    r.to->is_body = g->is_body;
    if (!g->is_body) graph_own(r.to); /* bodies are small and many */
    vec_reserve(r.to->own, &r.to->nodes, g->nodes.n + g->nodes.n / 4);
    vec_reserve(r.to->arena, &r.to->inputs, g->inputs.n);
    r.map = ARENA_ARRAY(g->own, Value, g->nodes.n);
    r.uses = graph_uses(g);
    copy_facts(&r, w->fn);
    bool *live = graph_live(g);
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (!live[v] || r.map[v]) continue;
        build_at(r.to, n->loc);
        build_late(r.to, n->late);
        if (n->op == OP_if || n->op == OP_loop) r.map[v] = copy_control(&r, w, v);
        if (!r.map[v] && w->fn) r.map[v] = w->fn(&r, v);
        if (!r.map[v]) r.map[v] = rewrite_copy(&r, v);
    }
    build_late(r.to, false);
    copy_results(&r);
    return r.to;
}

Graph *rewrite_graph(const Graph *g, RewriteFn fn, RewriteFacts facts, void *ctx) {
    return rewrite_by(g, &(Way){.fn = fn, .facts = facts, .ctx = ctx});
}

Graph *rewrite_loops(const Graph *g, RewriteLoop fn) {
    return rewrite_by(g, &(Way){.loop = fn});
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
