/* Model-local functions: every call is inlined. What a function's names are bound to when it is
 * called, and what its results are called outside; the nodes in between are lowered as any
 * (node.c). */
#include "frontend/import/import_impl.h"
#include <string.h>

#define MAX_CALL_DEPTH 32

static const char *function_key(Importer *im, const char *domain, const char *name,
                                const char *overload) {
    if (!strcmp(domain, "ai.onnx")) domain = "";
    return arena_printf(im->arena, "%s:%s:%s", domain, name, overload);
}

void function_index(Importer *im) {
    im->functions = mapstr_create(im->arena);
    for (size_t i = 0; i < im->proto->n_functions; i++) {
        const Onnx__FunctionProto *f = im->proto->functions[i];
        const char *key = function_key(im, text_or_empty(f->domain), text_or_empty(f->name),
                                       text_or_empty(f->overload));
        uint32_t other;
        if (mapstr_get(im->functions, key, &other))
            diag(im->diags, D_FUNCTION, "", "function %s is defined twice", key);
        mapstr_put(im->functions, key, (uint32_t)i);
    }
}

const Onnx__FunctionProto *function_find(Importer *im, const char *domain, const char *name,
                                         const char *overload) {
    uint32_t i;
    if (!im->proto->n_functions) return NULL;
    if (!mapstr_get(im->functions, function_key(im, domain, name, overload), &i)) return NULL;
    return im->proto->functions[i];
}

static bool check_call(Lower *l, const Onnx__FunctionProto *fn) {
    for (const Frame *f = l->scope->frame; f; f = f->caller)
        if (f->fn == fn)
            return lower_error(l, D_FUNCTION, "function %s calls itself", text_or_empty(fn->name));
    if (l->im->depth >= MAX_CALL_DEPTH)
        return lower_error(l, D_LIMIT, "bodies and function calls nest more than %d deep",
                           MAX_CALL_DEPTH);
    if (l->nin > fn->n_input || l->nout > fn->n_output)
        return lower_error(l, D_ARITY, "function %s takes %zu inputs and gives %zu outputs",
                           text_or_empty(fn->name), fn->n_input, fn->n_output);
    return true;
}

/* The call's attributes, then the defaults of those that it leaves out. */
static bool bind_attrs(Lower *l, const Onnx__FunctionProto *fn, Frame *f) {
    NamedAttr *v = ARENA_ARRAY(l->im->arena, NamedAttr, l->attrs->n + fn->n_attribute_proto);
    uint32_t n = 0, known;
    f->by_name = mapstr_create(l->im->arena);
    MapStr *parameters = mapstr_create(l->im->arena);
    for (size_t i = 0; i < fn->n_attribute; i++)
        mapstr_put(parameters, text_or_empty(fn->attribute[i]), 1);
    for (size_t i = 0; i < fn->n_attribute_proto; i++)
        mapstr_put(parameters, text_or_empty(fn->attribute_proto[i]->name), 1);
    for (uint32_t i = 0; i < l->attrs->n; i++) {
        const char *name = l->attrs->v[i].name;
        if (!mapstr_get(parameters, name, &known))
            return lower_error(l, D_ATTRIBUTE, "function %s has no attribute '%s'",
                               text_or_empty(fn->name), name);
        mapstr_put(f->by_name, name, n);
        v[n++] = l->attrs->v[i];
    }
    for (size_t i = 0; i < fn->n_attribute_proto; i++) {
        const char *name = text_or_empty(fn->attribute_proto[i]->name);
        if (mapstr_get(f->by_name, name, &known)) continue;
        mapstr_put(f->by_name, name, n);
        v[n++] = (NamedAttr){name, fn->attribute_proto[i]};
    }
    f->attrs = (NamedAttrs){n, v};
    return true;
}

/* The caller's where the function imports none; NULL after an error. */
static const Opsets *function_opsets(Lower *l, const Onnx__FunctionProto *fn) {
    if (!fn->n_opset_import) return l->scope->opsets;
    Opsets *o = ARENA_NEW(l->im->arena, Opsets);
    const char *place = graph_place(l->g, l->loc, l->im->arena);
    return opsets_read(l->im, fn->opset_import, fn->n_opset_import, place, o) ? o : NULL;
}

Scope *function_enter(Lower *l, const Onnx__FunctionProto *fn) {
    Frame *frame = ARENA_NEW(l->im->arena, Frame);
    *frame = (Frame){.caller = l->scope->frame, .fn = fn};
    if (!check_call(l, fn) || !bind_attrs(l, fn, frame)) return NULL;
    Scope *s = scope_create(l->im, l->g, NULL, NULL);
    s->frame = frame;
    if (!(s->opsets = function_opsets(l, fn))) return NULL;
    s->loc = l->loc;
    if (!import_spend(s, fn->n_input + fn->n_output + fn->n_opset_import + fn->n_attribute +
                             fn->n_attribute_proto))
        return NULL;
    for (uint32_t i = 0; i < fn->n_input; i++)
        scope_define(s, text_or_empty(fn->input[i]), lower_in_item(l, i));
    return s;
}

bool function_leave(Lower *l, Scope *s, const Onnx__FunctionProto *fn) {
    bool ok = true;
    for (uint32_t i = 0; i < l->nout; i++) {
        Item item;
        if (!lower_has_out(l, i)) continue;
        if (!scope_find(s, text_or_empty(fn->output[i]), &item))
            ok = lower_error(l, D_FUNCTION, "function %s does not define its output \"%s\"",
                             text_or_empty(fn->name), text_or_empty(fn->output[i]));
        else
            lower_out_item(l, i, item);
    }
    return ok;
}
