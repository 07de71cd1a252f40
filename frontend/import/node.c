/* Nodes: names to values, checks, the row's lowering or the function's nodes, values to names. */
#include "frontend/import/import_impl.h"
#include <string.h>

/* Attributes with references to the function's parameters replaced; a parameter without a value
 * leaves the attribute out. */
static NamedAttrs resolve_attrs(Scope *s, const Onnx__NodeProto *node) {
    NamedAttr *v = ARENA_ARRAY(s->im->arena, NamedAttr, node->n_attribute);
    uint32_t n = 0;
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *a = node->attribute[i], *actual = a;
        if (*text_or_empty(a->ref_attr_name)) {
            uint32_t k;
            if (!s->frame || !mapstr_get(s->frame->by_name, a->ref_attr_name, &k)) continue;
            actual = s->frame->attrs.v[k].proto;
        }
        v[n++] = (NamedAttr){text_or_empty(a->name), actual};
    }
    return (NamedAttrs){n, v};
}

static Loc node_loc(Scope *s, const Onnx__NodeProto *node, int32_t index) {
    Arena *a = s->im->arena;
    const char *output = "";
    for (size_t i = node->n_output; i-- > 0;)
        if (*text_or_empty(node->output[i])) output = node->output[i];
    return build_loc_new(s->g, (LocInfo){.node = index,
                                         .op = arena_strdup(a, text_or_empty(node->op_type)),
                                         .name = arena_strdup(a, text_or_empty(node->name)),
                                         .output = arena_strdup(a, output),
                                         .module = module_path(a, node),
                                         .parent = s->loc});
}

/* False if an input is undefined (reported) or poisoned. */
static bool find_inputs(Lower *l) {
    Item *in = ARENA_ARRAY(l->im->arena, Item, l->nin);
    bool ok = true;
    for (uint32_t i = 0; i < l->nin; i++) {
        const char *name = text_or_empty(l->node->input[i]);
        in[i].kind = ITEM_TENSOR;
        if (!*name) continue;
        if (!scope_find(l->scope, name, &in[i]))
            ok = lower_error(l, D_NAME, "input \"%s\" is not defined, or part of a cycle", name);
        else if (in[i].kind == ITEM_POISON)
            ok = false;
    }
    l->in = in;
    return ok;
}

/* A shape that depends on run-time shape inputs takes the size that the model declares, if it does;
 * the session checks that the input agrees. */
static Value use_declared(Lower *l, uint32_t i, Value v) {
    Type d, t = *graph_type(l->g, v);
    bool depends = false;
    for (uint32_t k = 0; k < t.rank; k++) depends |= lower_is_fed(l, t.dim[k]);
    if (!depends || !lower_declared(l, i, &d) || d.rank != t.rank) return v;
    for (uint32_t k = 0; k < t.rank; k++) {
        if (!lower_is_fed(l, t.dim[k])) continue;
        if (!expr_is_const(l->im->exprs, d.dim[k], &(int64_t){0})) continue;
        lower_assume(l, t.dim[k], d.dim[k]);
        t.dim[k] = d.dim[k];
    }
    return build_reshape(l->g, v, t.rank, t.dim);
}

static void define_outputs(Lower *l) {
    for (uint32_t i = 0; i < l->nout; i++) {
        if (!lower_has_out(l, i)) continue;
        Item item = l->out[i];
        if (item.kind == ITEM_TENSOR && item.v) item.v = use_declared(l, i, item.v);
        if (item.kind == ITEM_TENSOR && !item.v) item.kind = ITEM_POISON;
        scope_define(l->scope, l->node->output[i], item);
        if (item.kind == ITEM_TENSOR) dims_claim(l->scope, l->node->output[i], item.v);
    }
}

static void check_produced(Lower *l) {
    for (uint32_t i = 0; i < l->nout; i++)
        if (lower_has_out(l, i) &&
            (l->out[i].kind == ITEM_POISON || (l->out[i].kind == ITEM_TENSOR && !l->out[i].v)))
            lower_error(l, D_UNSUPPORTED, "output %u cannot be produced", i);
}

static void report_unknown_op(Lower *l) {
    const char *domain = *l->domain ? l->domain : "ai.onnx";
    const char *name = l->node->op_type;
    if (l->opset == 0) {
        lower_error(l, D_MODEL, "the model imports no opset for domain \"%s\"", domain);
        return;
    }
    lower_error(l, D_UNSUPPORTED_OP, "%s is not supported (domain %s, opset %d)",
                text_or_empty(name), domain, l->opset);
    for (int v = l->opset < MAX_OPSET ? l->opset + 1 : MAX_OPSET + 1; v <= MAX_OPSET; v++)
        if (onnx_op_find(l->domain, text_or_empty(name), v)) {
            diag_hint(l->im->diags, "convert the model to opset %d or a later one", v);
            return;
        }
    for (int v = l->opset > MAX_OPSET ? MAX_OPSET : l->opset - 1; v > 0; v--)
        if (onnx_op_find(l->domain, text_or_empty(name), v)) {
            diag_hint(l->im->diags, "it is supported up to opset %d", v);
            return;
        }
}

/* The call's results are what the function's nodes give, lowered here. */
static bool run_function(Lower *l, const Onnx__FunctionProto *fn) {
    Scope *s = function_enter(l, fn);
    if (!s) return false;
    const uint32_t errors = diag_errors(l->im->diags);
    l->im->depth++;
    scope_nodes(s, fn->n_node, fn->node);
    l->im->depth--;
    build_at(l->g, l->loc);
    return import_spend(s, 0) && function_leave(l, s, fn) && diag_errors(l->im->diags) == errors;
}

static void run_lowering(Lower *l) {
    const uint32_t errors = diag_errors(l->im->diags);
    const bool defined = find_inputs(l);
    const Onnx__FunctionProto *fn = function_find(l->im, l->domain, text_or_empty(l->node->op_type),
                                                  text_or_empty(l->node->overload));
    if (!fn) {
        l->op = onnx_op_find(l->domain, text_or_empty(l->node->op_type), l->opset);
        if (!l->op) {
            report_unknown_op(l);
            return;
        }
    }
    if (!defined) return;
    build_at(l->g, l->loc);
    const bool ok = fn ? run_function(l, fn) : op_check(l) && l->op->lower(l);
    const bool silent = diag_errors(l->im->diags) == errors;
    if (!ok) memset(l->out, 0, l->nout * sizeof *l->out);
    if (ok && silent) check_produced(l);
    if (!ok && silent && import_spend(l->scope, 0))
        lower_error(l, D_UNSUPPORTED, "this form of the operator is not supported");
}

static Loc lower_node(Scope *s, const Onnx__NodeProto *node, int32_t index) {
    Importer *im = s->im;
    const NamedAttrs attrs = resolve_attrs(s, node);
    Lower l = {.im = im,
               .scope = s,
               .g = s->g,
               .node = node,
               .domain = opsets_domain(node->domain),
               .loc = node_loc(s, node, index),
               .attrs = &attrs,
               .nin = (uint32_t)node->n_input,
               .nout = (uint32_t)node->n_output,
               .out = ARENA_ARRAY(im->arena, Item, node->n_output)};
    l.opset = opsets_version(s->opsets, l.domain);
    build_at(s->g, l.loc);
    if (import_spend(s, 1 + node->n_input + node->n_output + node->n_attribute)) run_lowering(&l);
    build_at(s->g, l.loc);
    define_outputs(&l);
    return l.loc;
}

void scope_nodes(Scope *s, size_t n, Onnx__NodeProto *const *nodes) {
    const uint32_t *order = order_nodes(s->im->arena, n, nodes);
    const bool main = !s->parent && !s->frame;
    const bool *needed = main ? nodes_needed(s->im->arena, s->proto) : NULL;
    for (size_t i = 0; i < n; i++) {
        const Loc l = lower_node(s, nodes[order[i]], main ? (int32_t)order[i] : -1);
        s->g->locs.v[l].unneeded = main && !needed[order[i]];
    }
}
