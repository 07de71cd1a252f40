/* One node: names to values, checks, lowering, values to names; and what a lowering may ask for
 * (frontend/onnx_op.h). */
#include "frontend/import_impl.h"
#include <stdlib.h>
#include <string.h>

/* Attributes with references to the function's parameters replaced; a parameter without a value
 * leaves the attribute out. */
static NamedAttrs resolve_attrs(Scope *s, const Onnx__NodeProto *node) {
    NamedAttr *v = ARENA_ARRAY(s->im->arena, NamedAttr, node->n_attribute);
    uint32_t n = 0;
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *a = node->attribute[i], *actual = a;
        if (*text_or_empty(a->ref_attr_name)) {
            actual = NULL;
            for (uint32_t k = 0; s->frame && k < s->frame->attrs.n; k++)
                if (!strcmp(s->frame->attrs.v[k].name, a->ref_attr_name))
                    actual = s->frame->attrs.v[k].proto;
            if (!actual) continue;
        }
        v[n++] = (NamedAttr){text_or_empty(a->name), actual};
    }
    return (NamedAttrs){n, v};
}

static int find_opset(const Scope *s, const char *domain) {
    for (uint32_t i = 0; i < s->opsets->n; i++)
        if (!strcmp(s->opsets->v[i].domain, domain)) return (int)s->opsets->v[i].version;
    return 0;
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

static void note_assumption(Lower *l, Expr a, Expr b) {
    StrBuf text;
    sb_init(&text, l->im->arena);
    expr_print(l->im->exprs, a, &text);
    sb_put(&text, " == ");
    expr_print(l->im->exprs, b, &text);
    (void)diag(l->im->diags, D_ASSUME, graph_place(l->g, l->loc, l->im->arena), "%s",
               sb_str(&text));
}

void lower_assume(Lower *l, Expr a, Expr b) {
    Graph *g = l->g;
    if (a == b) return;
    for (uint32_t i = 0; i < g->nassume; i++)
        if (g->assume[i].a == a && g->assume[i].b == b) return;
    note_assumption(l, a, b);
    if (g->nassume == g->assume_cap)
        g->assume = vec_grow(g->arena, g->assume, &g->assume_cap, sizeof *g->assume);
    g->assume[g->nassume].a = a;
    g->assume[g->nassume].b = b;
    g->assume[g->nassume++].loc = l->loc;
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
    for (int v = 1; v <= 30; v++)
        if (onnx_op_find(l->domain, text_or_empty(name), v)) {
            diag_hint(l->im->diags, "convert the model to opset %d or a later one", v);
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
    if (!ok)
        memset(l->out, 0, l->nout * sizeof *l->out);
    else if (diag_errors(l->im->diags) == errors)
        check_produced(l);
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
    run_lowering(&l);
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

/* Attributes */

static const Onnx__AttributeProto *given(const Lower *l, const char *name) {
    for (uint32_t i = 0; i < l->attrs->n; i++)
        if (!strcmp(l->attrs->v[i].name, name)) return l->attrs->v[i].proto;
    return NULL;
}

static const char *fallback(const Lower *l, const char *name) {
    char kind;
    return op_attr_default(l->op, name, &kind);
}

bool lower_has_attr(const Lower *l, const char *name) {
    return given(l, name) != NULL;
}

int64_t lower_i(const Lower *l, const char *name) {
    const Onnx__AttributeProto *a = given(l, name);
    if (a) return a->i;
    const char *d = fallback(l, name);
    return d ? strtoll(d, NULL, 10) : 0;
}

double lower_f(const Lower *l, const char *name) {
    const Onnx__AttributeProto *a = given(l, name);
    if (a) return (double)a->f;
    const char *d = fallback(l, name);
    return d ? (double)strtof(d, NULL) : 0; /* attributes are single precision */
}

static const char *bytes_text(const Lower *l, const ProtobufCBinaryData *b) {
    return b->len ? arena_strndup(l->im->arena, (const char *)b->data, b->len) : "";
}

const char *lower_s(const Lower *l, const char *name) {
    const Onnx__AttributeProto *a = given(l, name);
    if (a) return bytes_text(l, &a->s);
    const char *d = fallback(l, name);
    return d ? d : "";
}

const int64_t *lower_ints(const Lower *l, const char *name, uint32_t *n) {
    static const int64_t none[1];
    const Onnx__AttributeProto *a = given(l, name);
    *n = a ? (uint32_t)a->n_ints : 0;
    return !a ? NULL : a->n_ints ? a->ints : none;
}

const float *lower_floats(const Lower *l, const char *name, uint32_t *n) {
    static const float none[1];
    const Onnx__AttributeProto *a = given(l, name);
    *n = a ? (uint32_t)a->n_floats : 0;
    return !a ? NULL : a->n_floats ? a->floats : none;
}

const char *const *lower_strings(const Lower *l, const char *name, uint32_t *n) {
    const Onnx__AttributeProto *a = given(l, name);
    *n = a ? (uint32_t)a->n_strings : 0;
    if (!a) return NULL;
    const char **v = ARENA_ARRAY(l->im->arena, const char *, a->n_strings + 1);
    for (uint32_t i = 0; i < *n; i++) v[i] = bytes_text(l, &a->strings[i]);
    return v;
}

bool lower_tensor(Lower *l, const char *name, Value *out) {
    const Onnx__AttributeProto *a = given(l, name);
    *out = 0;
    if (!a) return false;
    const char *what = arena_printf(l->im->arena, "%s: attribute '%s'",
                                    graph_place(l->g, l->loc, l->im->arena), name);
    return tensor_build(l->im, l->g, a->t, what, out);
}

/* Values known at compile time */

/* A static rank-1 or rank-0 integer tensor without elements counts as known. */
static bool is_empty(const Lower *l, const Type *t) {
    int64_t n = -1;
    return t->rank == 1 && expr_is_const(l->im->exprs, t->dim[0], &n) && n == 0;
}

const Expr *lower_shape_in(Lower *l, uint32_t i, uint32_t *n) {
    static const Expr none[1];
    *n = 0;
    const Value v = lower_in(l, i);
    if (!v) return NULL;
    if (is_empty(l, graph_type(l->g, v))) return none;
    const Expr *e = build_elems(l->g, v, true, n);
    if (!e)
        lower_unsupported(l, "make it a constant, or compute it from shapes only",
                          "input %u must be known when the inputs' shapes are", i);
    return e;
}

bool lower_const_ints(Lower *l, uint32_t in, const char *attr, int64_t *out, uint32_t max,
                      uint32_t *n) {
    *n = 0;
    const int64_t *a = attr ? lower_ints(l, attr, n) : NULL;
    if (*n > max)
        return lower_error(l, D_ATTRIBUTE, "'%s' has %u values, at most %u fit", attr, *n, max);
    if (a) {
        memcpy(out, a, *n * sizeof *a);
        return true;
    }
    const Value v = lower_in(l, in);
    if (!v || is_empty(l, graph_type(l->g, v))) return true;
    const Expr *e = build_elems(l->g, v, false, n);
    if (e && *n > max)
        return lower_error(l, D_SHAPE, "input %u has %u values, at most %u fit", in, *n, max);
    for (uint32_t k = 0; e && k < *n; k++)
        if (!expr_is_const(l->im->exprs, e[k], &out[k])) e = NULL;
    if (e) return true;
    return lower_unsupported(l, "make it an initializer or a Constant node",
                             "input %u must be a constant", in);
}

bool lower_const_f(Lower *l, uint32_t i, double *out) {
    const Value v = lower_in(l, i);
    return v && build_const_f64(l->g, v, out);
}

bool lower_declared(Lower *l, uint32_t i, Type *out) {
    return lower_has_out(l, i) && scope_declared(l->scope, l->node->output[i], out);
}

int lower_axis(Lower *l, int64_t axis, int rank) {
    if (axis >= -rank && axis < rank) return (int)(axis < 0 ? axis + rank : axis);
    lower_error(l, D_ATTRIBUTE, "axis %lld is out of range for rank %d", (long long)axis, rank);
    return -1;
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
