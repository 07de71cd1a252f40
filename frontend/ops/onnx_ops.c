/* The list of operator families, and the checks that every row gets for free. */
#include "frontend/import/import_impl.h"
#include <stdlib.h>
#include <string.h>

#define FAMILIES(X)                                                                                \
    X(ops_math)                                                                                    \
    X(ops_activation)                                                                              \
    X(ops_shape)                                                                                   \
    X(ops_index)                                                                                   \
    X(ops_select)                                                                                  \
    X(ops_source)                                                                                  \
    X(ops_reduce)                                                                                  \
    X(ops_einsum)                                                                                  \
    X(ops_signal)                                                                                  \
    X(ops_training)                                                                                \
    X(ops_ml)                                                                                      \
    X(ops_ml_linear)                                                                               \
    X(ops_ml_svm)                                                                                  \
    X(ops_ml_tree)                                                                                 \
    X(ops_sequence)                                                                                \
    X(ops_conv)                                                                                    \
    X(ops_pool)                                                                                    \
    X(ops_norm)                                                                                    \
    X(ops_batch_norm)                                                                              \
    X(ops_resize)                                                                                  \
    X(ops_attention)                                                                               \
    X(ops_contrib)                                                                                 \
    X(ops_contrib_attention)                                                                       \
    X(ops_quant)                                                                                   \
    X(ops_linalg)                                                                                  \
    X(ops_contrib_qlinear)                                                                         \
    X(ops_contrib_moe)                                                                             \
    X(ops_contrib_quant)                                                                           \
    X(ops_control)                                                                                 \
    X(ops_loss)                                                                                    \
    X(ops_linear_attention)                                                                        \
    X(ops_sample)                                                                                  \
    X(ops_rnn)

#define X(family) extern const OnnxOp family[];
FAMILIES(X)
#undef X

static const OnnxOp *const families[] = {
#define X(family) family,
    FAMILIES(X)
#undef X
        NULL,
};

const OnnxOp *onnx_op_find(const char *domain, const char *name, int opset) {
    const OnnxOp *best = NULL;
    for (const OnnxOp *const *f = families; *f; f++)
        for (const OnnxOp *op = *f; op->name; op++) {
            if (strcmp(op->name, name) || strcmp(op->domain, domain)) continue;
            if (op->since > opset || (op->until && op->until < opset)) continue;
            if (!best || op->since > best->since) best = op;
        }
    return best;
}

/* The text after "name:kind", i.e. "", "!" or "=default"; NULL if the row lacks the attribute. */
static const char *find_attr(const OnnxOp *op, const char *name, char *kind) {
    const size_t n = strlen(name);
    for (const char *const *a = op->attrs; a && *a; a++)
        if (!strncmp(*a, name, n) && (*a)[n] == ':') {
            *kind = (*a)[n + 1];
            return *a + n + 2;
        }
    return NULL;
}

const char *op_attr_default(const OnnxOp *op, const char *name, char *kind) {
    const char *rest = find_attr(op, name, kind);
    GC_ASSERT(rest != NULL); /* a lowering asks for what its row lists */
    return *rest == '=' ? rest + 1 : NULL;
}

static char attr_kind(const Onnx__AttributeProto *a) {
    static const char kinds[] = {
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT] = 'f',
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT] = 'i',
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING] = 's',
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR] = 't',
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH] = 'g',
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS] = 'F',
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS] = 'I',
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS] = 'S',
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO] = 'p',
        [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR] = 'x',
    };
    const unsigned t = (unsigned)a->type;
    const char k = t < sizeof kinds ? kinds[t] : 0;
    if ((k == 't' && !a->t) || (k == 'g' && !a->g) || (k == 'p' && !a->tp)) return 0;
    return k;
}

static bool check_attrs(Lower *l) {
    MapStr *seen = mapstr_create(l->im->arena);
    bool ok = true;
    for (uint32_t i = 0; i < l->attrs->n; i++) {
        const char *name = l->attrs->v[i].name;
        uint32_t first;
        char kind;
        if (!find_attr(l->op, name, &kind))
            ok = lower_error(l, D_ATTRIBUTE, "%s-%d has no attribute '%s'", l->op->name, l->opset,
                             name);
        else if (attr_kind(l->attrs->v[i].proto) != kind)
            ok = lower_error(l, D_ATTRIBUTE, "attribute '%s' has the wrong type", name);
        if (mapstr_get(seen, name, &first))
            ok = lower_error(l, D_ATTRIBUTE, "attribute '%s' is given twice", name);
        mapstr_put(seen, name, i);
    }
    for (const char *const *a = l->op->attrs; a && *a; a++) {
        const size_t n = strcspn(*a, ":");
        if ((*a)[n + 2] != '!') continue;
        const char *name = arena_strndup(l->im->arena, *a, n);
        if (!lower_has_attr(l, name))
            ok = lower_error(l, D_ATTRIBUTE, "attribute '%s' is missing", name);
    }
    return ok;
}

static uint32_t last_present(char *const *names, size_t n) {
    while (n && !*text_or_empty(names[n - 1])) n--;
    return (uint32_t)n;
}

static bool check_counts(Lower *l) {
    const OnnxOp *op = l->op;
    const uint32_t nin = last_present(l->node->input, l->node->n_input);
    const uint32_t nout = last_present(l->node->output, l->node->n_output);
    if ((op->max_in >= 0 && nin > (uint32_t)op->max_in))
        return lower_error(l, D_ARITY, "%u inputs, at most %d are allowed", nin, op->max_in);
    for (uint32_t i = 0; i < (uint32_t)op->min_in; i++)
        if (!lower_has_in(l, i))
            return lower_error(l, D_ARITY, "input %u is required, but missing", i);
    if (nout < (uint32_t)op->min_out || (op->max_out >= 0 && nout > (uint32_t)op->max_out))
        return lower_error(l, D_ARITY, "%u outputs, %d to %d are allowed", nout, op->min_out,
                           op->max_out);
    return true;
}

bool op_check(Lower *l) {
    const bool counts = check_counts(l);
    return check_attrs(l) && counts;
}
