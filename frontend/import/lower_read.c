/* What a lowering reads of its node (frontend/import/onnx_op.h): attributes, and the checks that a
 * row cannot state. */
#include "frontend/import/import_impl.h"
#include <stdlib.h>
#include <string.h>

/* Attributes */

static const Onnx__AttributeProto *given(const Lower *l, const char *name) {
    for (uint32_t i = 0; i < l->attrs->n; i++)
        if (!strcmp(l->attrs->v[i].name, name)) return l->attrs->v[i].proto;
    return NULL;
}

/* The default of an attribute that the row lists with this kind. */
static const char *fallback(const Lower *l, const char *name, char kind) {
    char listed;
    const char *d = op_attr_default(l->op, name, &listed);
    GC_ASSERT(listed == kind); /* a lowering reads an attribute as what it is */
    return d;
}

bool lower_has_attr(const Lower *l, const char *name) {
    return given(l, name) != NULL;
}

int64_t lower_i(const Lower *l, const char *name) {
    const Onnx__AttributeProto *a = given(l, name);
    const char *d = fallback(l, name, 'i');
    if (a) return a->i;
    return d ? strtoll(d, NULL, 10) : 0;
}

double lower_f(const Lower *l, const char *name) {
    const Onnx__AttributeProto *a = given(l, name);
    const char *d = fallback(l, name, 'f');
    if (a) return (double)a->f;
    return d ? (double)strtof(d, NULL) : 0; /* attributes are single precision */
}

static const char *bytes_text(const Lower *l, const ProtobufCBinaryData *b) {
    return b->len ? arena_strndup(l->im->arena, (const char *)b->data, b->len) : "";
}

const char *lower_s(const Lower *l, const char *name) {
    const Onnx__AttributeProto *a = given(l, name);
    const char *d = fallback(l, name, 's');
    if (a) return bytes_text(l, &a->s);
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

bool lower_choice(Lower *l, const char *name, const char *const *names, int *out) {
    const char *s = lower_s(l, name);
    StrBuf known;
    for (*out = 0; names[*out]; ++*out)
        if (!strcmp(s, names[*out])) return true;
    sb_init(&known, l->im->arena);
    for (int i = 0; i < *out; i++) sb_printf(&known, "%s%s", i ? ", " : "", names[i]);
    return lower_error(l, D_ATTRIBUTE, "'%s' is \"%s\", not one of %s", name, s, sb_str(&known));
}

bool lower_dtype(Lower *l, const char *name, DType *out) {
    const int64_t code = lower_i(l, name);
    if (code == (int)code && dtype_from_onnx((int)code, out)) return true;
    return lower_error(l, D_UNSUPPORTED_TYPE, "'%s': element type %s (%lld) is not supported", name,
                       dtype_onnx_name(code), (long long)code);
}

bool lower_tensor(Lower *l, const char *name, Value *out) {
    const Onnx__AttributeProto *a = given(l, name);
    *out = 0;
    if (!a) return false;
    const char *what = arena_printf(l->im->arena, "%s: attribute '%s'",
                                    graph_place(l->g, l->loc, l->im->arena), name);
    return tensor_build(l->im, l->g, a->t, what, out);
}

bool lower_const_f(Lower *l, uint32_t i, double *out) {
    const Value v = lower_in(l, i);
    return v && build_const_f64(l->g, v, out);
}

Value lower_fixed_in(Lower *l, uint32_t i) {
    Graph *g = l->g;
    const Value v = lower_in(l, i);
    if (!v || graph_node(g, v)->op != OP_state) return v;
    return build_const(g, *graph_type(g, v),
                       g->states.v[graph_node(g, v)->attr.input.index].initial);
}

bool lower_declared(Lower *l, uint32_t i, Type *out) {
    return lower_has_out(l, i) && scope_declared(l->scope, l->node->output[i], out);
}

/* Checks */

Value lower_need(Lower *l, uint32_t i) {
    if (!lower_has_in(l, i)) lower_error(l, D_ARITY, "input %u is required, but missing", i);
    return lower_in(l, i);
}

static unsigned type_sets(DType t) {
    if (t == DT_bool) return TYPES_BOOL;
    const bool narrow = dtype_bytes(t) == 1;
    if (dtype_is_float(t)) return narrow ? TYPES_FLOAT8 : TYPES_FLOAT;
    return TYPES_INT | (dtype_bytes(t) <= 2 ? TYPES_INT16 : 0) | (narrow ? TYPES_INT8 : 0);
}

bool lower_is(Lower *l, uint32_t i, unsigned sets) {
    static const struct {
        unsigned set;
        const char *name;
    } names[] = {{TYPES_FLOAT, "a float"},
                 {TYPES_FLOAT8, "a float of 8 bits"},
                 {TYPES_INT, "an integer"},
                 {TYPES_INT16, "an integer of 16 bits or less"},
                 {TYPES_INT8, "an integer of 8 bits or less"},
                 {TYPES_BOOL, "bool"}};
    const DType t = lower_type(l, i)->dtype;
    StrBuf wanted;
    if (t == DT_none || (type_sets(t) & sets)) return true;
    sb_init(&wanted, l->im->arena);
    for (size_t k = 0, n = 0; k < sizeof names / sizeof *names; k++)
        if (names[k].set & sets) sb_printf(&wanted, "%s%s", n++ ? " or " : "", names[k].name);
    return lower_error(l, D_DTYPE, "input %u is %s, and must be %s", i, dtype_name(t),
                       sb_str(&wanted));
}

bool lower_same_type(Lower *l, uint32_t i, uint32_t as) {
    const DType a = lower_type(l, i)->dtype, b = lower_type(l, as)->dtype;
    if (!a || !b || a == b) return true;
    return lower_error(l, D_DTYPE, "input %u is %s, and must be %s like input %u", i, dtype_name(a),
                       dtype_name(b), as);
}

static bool may_equal(ExprPool *p, Expr a, Expr b) {
    int64_t lo, hi;
    expr_range(p, expr_sub(p, a, b), &lo, &hi);
    return lo <= 0 && hi >= 0;
}

bool lower_fits(Lower *l, uint32_t i, const Type *to) {
    ExprPool *p = l->im->exprs;
    const Type *t = lower_type(l, i);
    bool fits = t->rank <= to->rank;
    for (int k = 1; fits && k <= t->rank; k++) {
        const Expr d = t->dim[t->rank - k];
        fits = expr_is_value(p, d, 1) || may_equal(p, d, to->dim[to->rank - k]);
    }
    return fits || lower_error(l, D_SHAPE, "input %u, %s, does not broadcast to %s", i,
                               type_text(p, t, l->im->arena), type_text(p, to, l->im->arena));
}

bool lower_vector(Lower *l, uint32_t i, Expr n) {
    const Type *t = lower_type(l, i), want = {.dtype = t->dtype, .rank = 1, .dim = {n}};
    if (!lower_in(l, i) || (t->rank == 1 && may_equal(l->im->exprs, t->dim[0], n))) return true;
    return lower_error(l, D_SHAPE, "input %u is %s, and must be %s", i,
                       type_text(l->im->exprs, t, l->im->arena),
                       type_text(l->im->exprs, &want, l->im->arena));
}

int lower_axis(Lower *l, int64_t axis, int rank) {
    if (axis >= -rank && axis < rank) return (int)(axis < 0 ? axis + rank : axis);
    lower_error(l, D_ATTRIBUTE, "axis %lld is out of range for rank %d", (long long)axis, rank);
    return -1;
}
