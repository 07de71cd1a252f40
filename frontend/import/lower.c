/* One node: names to values, checks, lowering, values to names. What a lowering reads of its node
 * is in lower_read.c. */
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

static int find_opset(const Scope *s, const char *domain) {
    uint32_t i;
    return mapstr_get(s->opsets->by_domain, domain, &i) ? s->opsets->v[i].version : 0;
}

static const char *canonical_domain(const char *domain) {
    return !domain || !strcmp(domain, "ai.onnx") ? "" : domain;
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

static void note_element_symbol(void *ctx, uint32_t sym) {
    void **c = ctx;
    if (expr_sym_info(c[0], sym)->kind == SYM_ELEM) c[1] = c[0];
}
bool lower_is_fed(const Lower *l, Expr e) {
    void *ctx[2] = {l->im->exprs, NULL};
    expr_each_sym(l->im->exprs, e, note_element_symbol, ctx);
    return ctx[1] != NULL;
}

static const char *equation(const Lower *l, Expr a, Expr b, const char *relation) {
    return arena_printf(l->im->arena, "%s %s %s", expr_brief(l->im->exprs, a, l->im->arena),
                        relation, expr_brief(l->im->exprs, b, l->im->arena));
}

void lower_assume(Lower *l, Expr a, Expr b) {
    Graph *g = l->g;
    ExprPool *p = l->im->exprs;
    int64_t lo, hi;
    if (a == b) return;
    expr_range(p, expr_sub(p, a, b), &lo, &hi);
    if (lo > 0 || hi < 0) {
        lower_error(l, D_SHAPE, "sizes that must be equal differ: %s", equation(l, a, b, "and"));
        return;
    }
    if (build_assume(g, a, b, l->loc))
        (void)diag(l->im->diags, D_ASSUME, graph_place(g, l->loc, l->im->arena), "%s",
                   equation(l, a, b, "=="));
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
        if (item.kind == ITEM_TENSOR) shape_claim(l->scope, l->node->output[i], item.v);
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
    for (int v = l->opset + 1; v <= MAX_OPSET; v++)
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
    const bool ok = fn ? function_inline(l, fn) : op_check(l) && l->op->lower(l);
    const bool silent = diag_errors(l->im->diags) == errors;
    if (!ok) memset(l->out, 0, l->nout * sizeof *l->out);
    if (ok && silent) check_produced(l);
    if (!ok && silent && import_spend(l->scope, 0))
        lower_error(l, D_UNSUPPORTED, "this form of the operator is not supported");
}

void lower_node(Scope *s, const Onnx__NodeProto *node, int32_t index) {
    Importer *im = s->im;
    const NamedAttrs attrs = resolve_attrs(s, node);
    Lower l = {.im = im,
               .scope = s,
               .g = s->g,
               .node = node,
               .domain = canonical_domain(node->domain),
               .loc = node_loc(s, node, index),
               .attrs = &attrs,
               .nin = (uint32_t)node->n_input,
               .nout = (uint32_t)node->n_output,
               .out = ARENA_ARRAY(im->arena, Item, node->n_output)};
    l.opset = find_opset(s, l.domain);
    build_at(s->g, l.loc);
    if (import_spend(s, 1 + node->n_input + node->n_output + node->n_attribute)) run_lowering(&l);
    build_at(s->g, l.loc);
    define_outputs(&l);
}

/* The node */

Graph *lower_graph(Lower *l) {
    return l->g;
}
ExprPool *lower_exprs(Lower *l) {
    return l->im->exprs;
}
int lower_opset(const Lower *l) {
    return l->opset;
}
const char *lower_op_name(const Lower *l) {
    return l->node->op_type;
}
uint32_t lower_nin(const Lower *l) {
    return l->nin;
}
uint32_t lower_nout(const Lower *l) {
    return l->nout;
}

bool lower_has_in(const Lower *l, uint32_t i) {
    return i < l->nin && *text_or_empty(l->node->input[i]) && l->in[i].kind != ITEM_ABSENT;
}

bool lower_has_out(const Lower *l, uint32_t i) {
    return i < l->nout && *text_or_empty(l->node->output[i]);
}

Value lower_in(Lower *l, uint32_t i) {
    if (!lower_has_in(l, i)) return 0;
    if (l->in[i].kind == ITEM_TENSOR) return l->in[i].v;
    lower_error(l, D_DTYPE, "input %u is a sequence, a tensor is needed", i);
    return 0;
}

const Type *lower_type(Lower *l, uint32_t i) {
    static const Type none;
    const Value v = lower_in(l, i);
    return v ? graph_type(l->g, v) : &none;
}

void lower_out(Lower *l, uint32_t i, Value v) {
    if (i < l->nout) l->out[i] = (Item){.kind = ITEM_TENSOR, .v = v};
}

Item lower_in_item(Lower *l, uint32_t i) {
    return i < l->nin && *text_or_empty(l->node->input[i]) ? l->in[i] : (Item){.kind = ITEM_ABSENT};
}

void lower_out_item(Lower *l, uint32_t i, Item item) {
    if (i < l->nout) l->out[i] = item;
}

/* Messages */

static bool report(Lower *l, DiagId id, const char *fmt, va_list ap) {
    const char *text = arena_vprintf(l->im->arena, fmt, ap);
    diag(l->im->diags, id, graph_place(l->g, l->loc, l->im->arena), "%s", text);
    return false;
}

bool lower_error(Lower *l, DiagId id, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(l, id, fmt, ap);
    va_end(ap);
    return false;
}

bool lower_unsupported(Lower *l, const char *hint, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(l, D_UNSUPPORTED, fmt, ap);
    va_end(ap);
    if (hint) diag_hint(l->im->diags, "%s", hint);
    return false;
}
