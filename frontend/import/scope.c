/* Names: what they stand for, what bodies capture from outside, and what expanding costs. */
#include "frontend/import/import_impl.h"
#include <string.h>

static void index_declared(Scope *s) {
    const Onnx__GraphProto *p = s->proto;
    if (!p) return;
    for (size_t i = 0; i < p->n_value_info; i++)
        mapstr_put(s->declared, text_or_empty(p->value_info[i]->name), (uint32_t)i);
    for (size_t i = 0; i < p->n_output; i++)
        mapstr_put(s->declared, text_or_empty(p->output[i]->name), (uint32_t)(p->n_value_info + i));
}

Scope *scope_create(Importer *im, Graph *g, Scope *parent, const Onnx__GraphProto *proto) {
    Scope *s = ARENA_NEW(im->arena, Scope);
    *s = (Scope){.im = im,
                 .g = g,
                 .parent = parent,
                 .proto = proto,
                 .names = mapstr_create(im->arena),
                 .declared = mapstr_create(im->arena),
                 .captured = map_create(im->arena)};
    if (parent) {
        s->opsets = parent->opsets;
        s->frame = parent->frame;
        s->loc = parent->loc;
    }
    index_declared(s);
    return s;
}

bool scope_define(Scope *s, const char *name, Item item) {
    uint32_t i;
    if (mapstr_get(s->names, name, &i)) {
        const char *place = graph_place(s->g, build_loc(s->g), s->im->arena);
        diag(s->im->diags, D_NAME, place, "\"%s\" is defined twice", name);
        return false;
    }
    mapstr_put(s->names, name, s->items.n);
    vec_push(s->im->arena, &s->items, item);
    return true;
}

bool import_spend(Scope *s, uint64_t cost) {
    Importer *im = s->im;
    const bool within = im->spent <= im->budget;
    im->spent += cost;
    if (im->spent <= im->budget) return true;
    if (within)
        diag(im->diags, D_LIMIT, graph_place(s->g, build_loc(s->g), im->arena),
             "functions, loops and branches expand to more than %llu names, which is the limit for "
             "a file of %llu bytes",
             (unsigned long long)im->budget, (unsigned long long)im->model->file.size);
    return false;
}

/* A constant or shape value of the outer graph is made again inside, where it can fold; anything
 * else becomes a captured input. */
static Value capture_value(Scope *s, Value outer) {
    uint32_t known, n;
    if (!outer) return 0;
    if (map_get(s->captured, outer, &known)) return known;
    Graph *og = s->parent->g;
    const Node *node = graph_node(og, outer);
    const Type type = node->type;
    Value v;
    if (node->op == OP_const) {
        v = build_const(s->g, type, node->attr.constant);
    } else if (node->op == OP_exprs) {
        const Expr *e = build_elems(og, outer, false, &n);
        v = build_reshape(s->g, build_exprs(s->g, type.dtype, e, n), type.rank, type.dim);
    } else {
        v = build_input(s->g, arena_printf(s->im->arena, "capture.%u", s->captures->values.n),
                        type);
        vec_push(s->im->arena, &s->captures->values, outer);
    }
    map_put(s->captured, outer, v);
    return v;
}

static Item capture_item(Scope *s, Item outer) {
    if (s->g == s->parent->g) return outer;
    outer.v = capture_value(s, outer.v);
    if (outer.kind == ITEM_TENSOR && !outer.v) outer.kind = ITEM_POISON;
    if (outer.kind == ITEM_LIST) {
        Value *list = ARENA_ARRAY(s->im->arena, Value, outer.n);
        for (uint32_t i = 0; i < outer.n; i++) list[i] = capture_value(s, outer.list[i]);
        outer.list = list;
        outer.room = NULL;
    }
    return outer;
}

bool scope_find(Scope *s, const char *name, Item *out) {
    uint32_t i;
    if (mapstr_get(s->names, name, &i)) {
        *out = s->items.v[i];
        return true;
    }
    if (!s->parent || !scope_find(s->parent, name, out)) return false;
    *out = capture_item(s, *out);
    return true;
}

/* Whether the options make a state of an initializer. */
static bool is_trained(const Scope *s, const char *name, Value v) {
    const ImportOptions *o = s->im->options;
    const Type *t = graph_type(s->g, v);
    if (!o || s->parent || !dtype_is_float(t->dtype)) return false;
    for (uint32_t i = 0; i < o->ntrained; i++)
        if (strcmp(o->trained[i], name) == 0) return true;
    return o->weights && t->rank > 0;
}

bool scope_initializers(Scope *s) {
    const Onnx__GraphProto *p = s->proto;
    bool ok = true;
    for (size_t i = 0; i < p->n_initializer; i++) {
        const Onnx__TensorProto *t = p->initializer[i];
        const char *name = text_or_empty(t->name);
        const char *what = arena_printf(s->im->arena, "initializer \"%s\"", name);
        Item item = {.kind = ITEM_TENSOR};
        if (!tensor_build(s->im, s->g, t, what, &item.v)) {
            item.kind = ITEM_POISON;
            ok = false;
        } else if (is_trained(s, name, item.v)) {
            const Node *n = graph_node(s->g, item.v);
            item.v = build_state(s->g, name, n->type, n->attr.constant);
        }
        ok &= scope_define(s, name, item);
    }
    if (p->n_sparse_initializer) {
        diag(s->im->diags, D_UNSUPPORTED, "", "sparse initializers are not supported");
        ok = false;
    }
    return ok;
}

bool scope_declared(Scope *s, const char *name, Type *out) {
    uint32_t i;
    if (!s->proto || !mapstr_get(s->declared, name, &i)) return false;
    const Onnx__GraphProto *p = s->proto;
    const Onnx__ValueInfoProto *v =
        i < p->n_value_info ? p->value_info[i] : p->output[i - p->n_value_info];
    return dims_type(s->im, v->type, out);
}
