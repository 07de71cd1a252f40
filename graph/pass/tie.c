/* A pair of an input and an output becomes a state. Works on a model as imported, in place: nothing
 * is built on it afterwards but by passes, which copy. */
#include "graph/build/build.h"
#include "graph/pass/pass.h"
#include <string.h>

typedef struct Tie {
    Graph *g;
    uint32_t input, output;
    const char *place; /* of messages */
    StateInfo state;
} Tie;

static graphc_status refuse(const Tie *t, DiagId id, const char *why) {
    return diag(t->g->diags, id, t->place, "%s", why);
}

static graphc_status find(Tie *t, const char *input, const char *output) {
    const Graph *g = t->g;
    while (t->input < g->inputs.n && strcmp(g->inputs.v[t->input].name, input)) t->input++;
    while (t->output < g->outputs.n && strcmp(g->outputs.v[t->output].name, output)) t->output++;
    if (t->input == g->inputs.n) return refuse(t, D_USAGE, "the model has no such input");
    if (t->output == g->outputs.n) return refuse(t, D_USAGE, "the model has no such output");
    return GRAPHC_OK;
}

/* The axis that grows is a size of its own, which may be 0 and has a declared most. */
static graphc_status check_growth(Tie *t) {
    Graph *g = t->g;
    uint32_t sym;
    if (!t->state.grows) return GRAPHC_OK;
    if (!expr_is_sym(g->exprs, t->state.type.dim[t->state.grows - 1], &sym))
        return refuse(t, D_UNSUPPORTED, "the size in which they differ is not the input's own");
    const SymInfo *s = expr_sym_info(g->exprs, sym);
    if (s->lo > 0)
        return diag(g->diags, D_USAGE, t->place,
                    "it starts empty: size %s has to be allowed to be 0", s->name);
    if (s->hi >= INT32_MAX)
        return diag(g->diags, D_USAGE, t->place,
                    "room is needed for the most that size %s may be: --dim %s=0..N", s->name,
                    s->name);
    t->state.room = expr_const(g->exprs, s->hi);
    return GRAPHC_OK;
}

static graphc_status check_types(Tie *t) {
    Graph *g = t->g;
    const Type *a = &g->inputs.v[t->input].type, *b = &g->outputs.v[t->output].type;
    t->state.type = *a;
    if (a->dtype != b->dtype || a->rank != b->rank) return refuse(t, D_USAGE, "their types differ");
    for (uint32_t d = 0; d < a->rank; d++) {
        if (a->dim[d] != b->dim[d]) {
            if (t->state.grows) return refuse(t, D_UNSUPPORTED, "they differ in several sizes");
            t->state.grows = d + 1;
        } else if (!expr_is_const(g->exprs, a->dim[d], NULL)) {
            return diag(g->diags, D_USAGE, t->place, "its size %s has to be fixed with --dim",
                        expr_brief(g->exprs, a->dim[d], g->arena));
        }
    }
    return check_growth(t);
}

/* Another input that has the size for itself. */
static bool find_axis(const Graph *g, uint32_t but, uint32_t sym, uint32_t *input, uint32_t *axis) {
    for (*input = 0; *input < g->inputs.n; (*input)++)
        for (*axis = 0; *axis < g->inputs.v[*input].type.rank; (*axis)++) {
            uint32_t s;
            const Type *t = &g->inputs.v[*input].type;
            if (*input != but && expr_is_sym(g->exprs, t->dim[*axis], &s) && s == sym) return true;
        }
    return false;
}

/* Sizes that the input gave come from another that has them, or from the state. */
static graphc_status move_symbols(const Tie *t) {
    Graph *g = t->g;
    for (uint32_t s = 0; s < expr_sym_count(g->exprs); s++) {
        SymInfo *i = expr_sym_edit(g->exprs, s);
        if (i->kind == SYM_ELEM && i->a == t->input)
            return refuse(t, D_UNSUPPORTED, "sizes depend on the input's elements");
        if (i->kind != SYM_DIM || i->a != t->input) continue;
        if (find_axis(g, t->input, s, &i->a, &i->b)) continue;
        i->a = SYM_OF_STATE + g->states.n;
        i->b = t->state.grows - 1;
    }
    for (uint32_t s = 0; s < expr_sym_count(g->exprs); s++) {
        SymInfo *i = expr_sym_edit(g->exprs, s);
        bool given = i->kind == SYM_DIM || i->kind == SYM_ELEM;
        if (given && i->a < SYM_OF_STATE && i->a > t->input) i->a--;
    }
    return GRAPHC_OK;
}

static void replace(const Tie *t) {
    Graph *g = t->g;
    Node *n = &g->nodes.v[t->state.value];
    StateWrite w = {.state = g->states.n, .value = g->outputs.v[t->output].value};
    n->op = OP_state;
    n->attr = (Attr){.input = {g->states.n}};
    for (uint32_t i = t->input; i + 1 < g->inputs.n; i++) {
        g->inputs.v[i] = g->inputs.v[i + 1];
        g->nodes.v[g->inputs.v[i].value].attr.input.index = i;
    }
    for (uint32_t i = t->output; i + 1 < g->outputs.n; i++) g->outputs.v[i] = g->outputs.v[i + 1];
    g->inputs.n--;
    g->outputs.n--;
    vec_push(g->arena, &g->states, t->state);
    vec_push(g->arena, &g->writes, w);
}

graphc_status graph_tie(Graph *g, const char *input, const char *output) {
    Tie t = {.g = g, .place = arena_printf(g->arena, "--state %s=%s", input, output)};
    GC_TRY(find(&t, input, output));
    t.state.name = g->inputs.v[t.input].name;
    t.state.value = g->inputs.v[t.input].value;
    GC_TRY(check_types(&t));
    GC_TRY(move_symbols(&t));
    replace(&t);
    return GRAPHC_OK;
}
