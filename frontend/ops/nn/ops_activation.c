/* Activations and the softmax family. */
#include "frontend/ops/nn/activation.h"
#include <string.h>

/* Operators that activation.c knows by their names. */
static bool lower_named(Lower *l) {
    const Activation *f = activation_find(lower_op_name(l));
    const double alpha = f->nparams > 0 ? lower_f(l, "alpha") : 0;
    const double beta = f->nparams > 1 ? lower_f(l, "beta") : 0;
    lower_out(l, 0, f->build(lower_graph(l), lower_in(l, 0), alpha, beta));
    return true;
}

/* Before opset 7 a slope of rank 1 belongs to axis 1. */
static Value prelu_slope(Lower *l) {
    const Type *x = lower_type(l, 0);
    Type t = *lower_type(l, 1);
    Value v = lower_in(l, 1);
    if (lower_opset(l) >= 7 || t.rank != 1 || x->rank < 3) return v;
    while (t.rank < x->rank - 1) t.dim[t.rank++] = expr_const(lower_exprs(l), 1);
    return build_reshape(lower_graph(l), v, t.rank, t.dim);
}

static bool lower_prelu(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), slope = prelu_slope(l);
    if (!slope || (lower_opset(l) >= 7 && !lower_fits(l, 1, lower_type(l, 0)))) return false;
    Value below = build_binary(g, OP_mul, x, slope);
    lower_out(l, 0, activation_below(g, x, below));
    return true;
}

static bool lower_selu(Lower *l) {
    Graph *g = lower_graph(l);
    Value v = activation_elu(g, lower_in(l, 0), lower_f(l, "alpha"), 1);
    lower_out(l, 0, v_mulf(g, v, lower_f(l, "gamma")));
    return true;
}

/* max(x, 0) + min(alpha (e^(x/alpha) - 1), 0), whatever alpha's sign: the second is 0 above 0. */
static bool lower_celu(Lower *l) {
    Graph *g = lower_graph(l);
    const double alpha = lower_f(l, "alpha");
    if (alpha == 0) return lower_error(l, D_ATTRIBUTE, "alpha must not be 0");
    lower_out(l, 0, activation_elu(g, lower_in(l, 0), alpha, alpha));
    return true;
}

static bool lower_gelu(Lower *l) {
    static const char *const forms[] = {"none", "tanh", NULL};
    static Value (*const build[])(Graph *, Value) = {activation_gelu, activation_gelu_tanh};
    int form;
    if (!lower_choice(l, "approximate", forms, &form)) return false;
    lower_out(l, 0, build[form](lower_graph(l), lower_in(l, 0)));
    return true;
}

/* As the operator's function body has it, where alpha is an attribute: a sixth in f32, whatever the
 * type. */
static bool lower_hard_swish(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    lower_out(l, 0, v_mul(g, x, activation_hard_sigmoid(g, x, (double)(1.0f / 6), 0.5)));
    return true;
}

static bool lower_mish(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    lower_out(l, 0, v_mul(g, x, v_tanh(g, activation_softplus(g, x))));
    return true;
}

/* x + bias below -lambd, x - bias above lambd, 0 between. */
/* Integers are compared with the attributes as real numbers: -lambd is none of an unsigned type. */
static bool lower_shrink(Lower *l) {
    Graph *g = lower_graph(l);
    const double lambd = lower_f(l, "lambd"), bias = lower_f(l, "bias");
    const DType dtype = lower_type(l, 0)->dtype;
    Value x = dtype_is_float(dtype) ? lower_in(l, 0) : build_cast(g, lower_in(l, 0), DT_f64);
    Value above = v_select_f(g, v_lt(g, v_const(g, x, lambd), x), v_addf(g, x, -bias), 0);
    Value y = build_select(g, v_ltf(g, x, -lambd), v_addf(g, x, bias), above);
    lower_out(l, 0, dtype_is_float(dtype) ? y : build_cast(g, y, dtype));
    return true;
}

static bool lower_swish(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    lower_out(l, 0, v_mul(g, x, v_sigmoid(g, v_mulf(g, x, lower_f(l, "alpha")))));
    return true;
}

/* Axes that a softmax folds: one from opset 13 on; before, every axis from `axis` to the last. */
static bool softmax_axes(Lower *l, uint32_t *axes) {
    const int rank = lower_type(l, 0)->rank;
    const int axis = lower_axis(l, lower_i(l, "axis"), rank);
    if (axis < 0) return false;
    *axes = lower_opset(l) < 13 ? v_axes_from(axis, rank) : 1u << axis;
    return true;
}

static bool lower_softmax(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t axes;
    if (!softmax_axes(l, &axes)) return false;
    if (!strcmp(lower_op_name(l), "LogSoftmax"))
        lower_out(l, 0, v_log_softmax(g, lower_in(l, 0), axes));
    else
        lower_out(l, 0, v_softmax(g, lower_in(l, 0), axes));
    return true;
}

/* 1 at the first of the largest elements, else 0. Before opset 13 the axes from `axis` on count as
 * one. */
static bool lower_hardmax(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const Type t = *lower_type(l, 0);
    int axis = lower_axis(l, lower_i(l, "axis"), t.rank);
    if (axis < 0) return false;
    Value x = lower_in(l, 0);
    Type flat = t;
    if (lower_opset(l) < 13) {
        flat.rank = (uint8_t)(axis + 1);
        for (int i = axis + 1; i < t.rank; i++)
            flat.dim[axis] = expr_mul(p, flat.dim[axis], t.dim[i]);
        x = build_reshape(g, x, flat.rank, flat.dim);
    }
    Value best = build_arg_reduce(g, OP_argmax, x, axis, false, true);
    Value index = build_iota(g, DT_i64, flat.rank, flat.dim, axis);
    Value hit = build_cast(g, build_binary(g, OP_eq, index, best), t.dtype);
    lower_out(l, 0, build_reshape(g, hit, t.rank, t.dim));
    return true;
}

static const char *const none[] = {"consumed_inputs:I", NULL};
static const char *const leaky_attrs[] = {"alpha:f=0.01", "consumed_inputs:I", NULL};
static const char *const alpha1_attrs[] = {"alpha:f=1", "consumed_inputs:I", NULL};
static const char *const selu_attrs[] = {"alpha:f=1.67326319217681884765625",
                                         "gamma:f=1.05070102214813232421875", "consumed_inputs:I",
                                         NULL};
static const char *const selu1_attrs[] = {"alpha:f=1.6732", "gamma:f=1.0507", "consumed_inputs:I",
                                          NULL};
static const char *const gelu_attrs[] = {"approximate:s=none", NULL};
static const char *const hard_attrs[] = {"alpha:f=0.2", "beta:f=0.5", "consumed_inputs:I", NULL};
static const char *const shrink_attrs[] = {"bias:f=0", "lambd:f=0.5", NULL};
static const char *const axis1_attrs[] = {"axis:i=1", NULL};
static const char *const axis_last_attrs[] = {"axis:i=-1", NULL};

const OnnxOp ops_activation[] = {
    {"", "Relu", 1, 0, 1, 1, 1, 1, none, lower_named},
    {"", "LeakyRelu", 1, 0, 1, 1, 1, 1, leaky_attrs, lower_named},
    {"", "PRelu", 1, 0, 2, 2, 1, 1, none, lower_prelu},
    {"", "ThresholdedRelu", 10, 0, 1, 1, 1, 1, alpha1_attrs, lower_named},
    {"", "Elu", 1, 0, 1, 1, 1, 1, alpha1_attrs, lower_named},
    {"", "Selu", 1, 5, 1, 1, 1, 1, selu1_attrs, lower_selu},
    {"", "Selu", 6, 0, 1, 1, 1, 1, selu_attrs, lower_selu},
    {"", "Celu", 12, 0, 1, 1, 1, 1, alpha1_attrs, lower_celu},
    {"", "Gelu", 20, 0, 1, 1, 1, 1, gelu_attrs, lower_gelu},
    {"", "HardSigmoid", 1, 0, 1, 1, 1, 1, hard_attrs, lower_named},
    {"", "HardSwish", 14, 0, 1, 1, 1, 1, NULL, lower_hard_swish},
    {"", "Softplus", 1, 0, 1, 1, 1, 1, NULL, lower_named},
    {"", "Mish", 18, 0, 1, 1, 1, 1, NULL, lower_mish},
    {"", "Softsign", 1, 0, 1, 1, 1, 1, NULL, lower_named},
    {"", "Shrink", 9, 0, 1, 1, 1, 1, shrink_attrs, lower_shrink},
    {"", "Swish", 24, 0, 1, 1, 1, 1, alpha1_attrs, lower_swish},
    {"", "Softmax", 1, 12, 1, 1, 1, 1, axis1_attrs, lower_softmax},
    {"", "Softmax", 13, 0, 1, 1, 1, 1, axis_last_attrs, lower_softmax},
    {"", "LogSoftmax", 1, 12, 1, 1, 1, 1, axis1_attrs, lower_softmax},
    {"", "LogSoftmax", 13, 0, 1, 1, 1, 1, axis_last_attrs, lower_softmax},
    {"", "Hardmax", 1, 12, 1, 1, 1, 1, axis1_attrs, lower_hardmax},
    {"", "Hardmax", 13, 0, 1, 1, 1, 1, axis_last_attrs, lower_hardmax},
    {0},
};
