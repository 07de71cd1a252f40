/* Bodies of If, Loop and Scan: inlined, or lowered into graphs of their own. */
#include "frontend/import/import_impl.h"
#include <string.h>

#define MAX_BODY_DEPTH 32

static const Onnx__GraphProto *body_of(Lower *l, const char *attr, uint32_t nin) {
    for (uint32_t i = 0; i < l->attrs->n; i++) {
        const Onnx__GraphProto *g = l->attrs->v[i].proto->g;
        if (!g || strcmp(l->attrs->v[i].name, attr)) continue;
        if (g->n_input != nin) {
            lower_error(l, D_ARITY, "'%s' has %zu inputs, %u are passed", attr, g->n_input, nin);
            return NULL;
        }
        if (l->im->depth >= MAX_BODY_DEPTH) {
            lower_error(l, D_LIMIT, "bodies and function calls nest more than %d deep",
                        MAX_BODY_DEPTH);
            return NULL;
        }
        return g;
    }
    lower_error(l, D_ATTRIBUTE, "'%s' is missing", attr);
    return NULL;
}

static bool find_output(Lower *l, Scope *s, const char *name, Item *out) {
    if (!scope_find(s, name, out))
        return lower_error(l, D_NAME, "body output \"%s\" is not defined", name);
    return out->kind != ITEM_POISON;
}

static bool lower_body(Lower *l, Scope *s, const Item *in) {
    const Onnx__GraphProto *p = s->proto;
    if (!import_spend(s, p->n_input + p->n_output + p->n_initializer + p->n_value_info))
        return false;
    for (size_t i = 0; i < p->n_input; i++)
        scope_define(s, text_or_empty(p->input[i]->name), in[i]);
    l->im->depth++;
    scope_initializers(s);
    scope_nodes(s, p->n_node, p->node);
    l->im->depth--;
    return import_spend(s, 0);
}

bool lower_inline_items(Lower *l, const char *attr, const Item *in, uint32_t nin, Item *out,
                        uint32_t nout) {
    const Onnx__GraphProto *p = body_of(l, attr, nin);
    if (!p) return false;
    if (p->n_output != nout)
        return lower_error(l, D_ARITY, "'%s' has %zu outputs, %u are needed", attr, p->n_output,
                           nout);
    Scope *s = scope_create(l->im, l->g, l->scope, p);
    s->loc = l->loc;
    bool ok = lower_body(l, s, in);
    build_at(l->g, l->loc);
    if (!ok) return false;
    for (uint32_t i = 0; i < nout; i++)
        ok &= find_output(l, s, text_or_empty(p->output[i]->name), &out[i]);
    return ok;
}

bool lower_inline(Lower *l, const char *attr, const Value *in, uint32_t nin, Value *out,
                  uint32_t nout) {
    Item *items = ARENA_ARRAY(l->im->arena, Item, nin);
    Item *results = ARENA_ARRAY(l->im->arena, Item, nout);
    for (uint32_t i = 0; i < nin; i++) items[i] = (Item){.kind = ITEM_TENSOR, .v = in[i]};
    if (!lower_inline_items(l, attr, items, nin, results, nout)) return false;
    for (uint32_t i = 0; i < nout; i++) {
        if (results[i].kind != ITEM_TENSOR)
            return lower_unsupported(l, NULL, "'%s' returns a sequence", attr);
        out[i] = results[i].v;
    }
    return true;
}

void lower_add_captures(Lower *l, Graph *sub, uint32_t ninputs, const LowerCaptures *captures) {
    for (uint32_t i = sub->inputs.n - ninputs; i < captures->values.n; i++)
        build_input(sub, arena_printf(l->im->arena, "capture.%u", i),
                    *graph_type(l->g, captures->values.v[i]));
}

/* Tensors in order, then what was appended to sequences. */
static bool body_outputs(Lower *l, Scope *s, const char *attr) {
    const Onnx__GraphProto *p = s->proto;
    VEC(uint32_t) appended = {0};
    Item *out = ARENA_ARRAY(l->im->arena, Item, p->n_output);
    bool ok = true;
    for (uint32_t i = 0; i < p->n_output; i++) {
        if (!find_output(l, s, text_or_empty(p->output[i]->name), &out[i]))
            ok = false;
        else if (out[i].kind == ITEM_LIST && out[i].open && out[i].n == 1)
            vec_push(l->im->arena, &appended, i);
        else if (out[i].kind != ITEM_TENSOR)
            ok = lower_unsupported(l, NULL, "'%s' returns a sequence", attr);
        else
            build_output(s->g, arena_strdup(l->im->arena, text_or_empty(p->output[i]->name)),
                         out[i].v);
    }
    for (uint32_t i = 0; ok && i < appended.n; i++)
        build_output(s->g,
                     arena_strdup(l->im->arena, text_or_empty(p->output[appended.v[i]]->name)),
                     out[appended.v[i]].list[0]);
    return ok;
}

Graph *lower_subgraph_from(Lower *l, const char *attr, const Type *inputs, uint32_t ninputs,
                           LowerCaptures *captures, uint32_t nformal, LowerFormals formals,
                           void *ctx) {
    Importer *im = l->im;
    const Onnx__GraphProto *p = body_of(l, attr, nformal);
    if (!p) return NULL;
    Graph *g = graph_create(im->arena, im->exprs, im->diags,
                            arena_strdup(im->arena, text_or_empty(p->name)));
    g->is_body = true;
    vec_push(im->arena, &im->subgraphs, g);
    Scope *s = scope_create(im, g, l->scope, p);
    s->loc = build_loc_from(g, l->g, l->loc, 0);
    s->captures = captures;
    build_at(g, s->loc);
    Value *in = ARENA_ARRAY(im->arena, Value, ninputs);
    Value *formal = ARENA_ARRAY(im->arena, Value, nformal);
    Item *items = ARENA_ARRAY(im->arena, Item, nformal);
    for (uint32_t i = 0; i < ninputs; i++)
        in[i] = build_input(g, arena_printf(im->arena, "in.%u", i), inputs[i]);
    for (uint32_t i = 0; i < captures->values.n; i++) {
        const Value outer = captures->values.v[i];
        map_put(s->captured, outer,
                build_input(g, arena_printf(im->arena, "capture.%u", i), *graph_type(l->g, outer)));
    }
    formals(ctx, g, in, formal);
    for (uint32_t i = 0; i < nformal; i++)
        items[i] = formal[i] ? (Item){.kind = ITEM_TENSOR, .v = formal[i]}
                             : (Item){.kind = ITEM_LIST, .open = true};
    if (!lower_body(l, s, items)) return NULL;
    build_at(g, s->loc);
    return body_outputs(l, s, attr) ? g : NULL;
}

typedef struct Same {
    uint32_t n;
} Same;

/* The body's own inputs are what it is given. */
static void same_formals(void *ctx, Graph *body, const Value *in, Value *formal) {
    (void)body;
    const Same *same = ctx;
    for (uint32_t i = 0; i < same->n; i++) formal[i] = in[i];
}

Graph *lower_subgraph(Lower *l, const char *attr, const Type *inputs, uint32_t ninputs,
                      LowerCaptures *captures) {
    Same same = {ninputs};
    return lower_subgraph_from(l, attr, inputs, ninputs, captures, ninputs, same_formals, &same);
}
