/* Activations and the softmax family. */
#include "frontend/onnx_op.h"
#include <string.h>

static const double sqrt_half = 0.70710678118654752440;
static const double sqrt_2_over_pi = 0.79788456080286535588;

static Value scalar(Lower *l, double v) {
    return build_scalar_f(lower_graph(l), lower_type(l, 0)->dtype, v);
}

static Value is_negative(Lower *l, Value x) {
    return build_binary(lower_graph(l), OP_lt, x, scalar(l, 0));
}

static bool lower_relu(Lower *l) {
    lower_out(l, 0, build_binary_f(lower_graph(l), OP_max, lower_in(l, 0), 0));
    return true;
}

static bool lower_leaky_relu(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), below = build_binary_f(g, OP_mul, x, lower_f(l, "alpha"));
    lower_out(l, 0, build_select(g, is_negative(l, x), below, x));
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
    Value x = lower_in(l, 0), below = build_binary(g, OP_mul, x, prelu_slope(l));
    lower_out(l, 0, build_select(g, is_negative(l, x), below, x));
    return true;
}

static bool lower_thresholded_relu(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    Value above = build_binary(g, OP_lt, scalar(l, lower_f(l, "alpha")), x);
    lower_out(l, 0, build_select(g, above, x, scalar(l, 0)));
    return true;
}

static bool lower_elu(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    Value below = build_binary_f(g, OP_mul, build_unary(g, OP_expm1, x), lower_f(l, "alpha"));
    lower_out(l, 0, build_select(g, is_negative(l, x), below, x));
    return true;
}

static bool lower_selu(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    Value below = build_binary_f(g, OP_mul, build_unary(g, OP_expm1, x), lower_f(l, "alpha"));
    Value v = build_select(g, is_negative(l, x), below, x);
    lower_out(l, 0, build_binary_f(g, OP_mul, v, lower_f(l, "gamma")));
    return true;
}

static bool lower_celu(Lower *l) {
    Graph *g = lower_graph(l);
    const double alpha = lower_f(l, "alpha");
    if (alpha == 0) return lower_error(l, D_ATTRIBUTE, "alpha must not be 0");
    Value x = lower_in(l, 0);
    Value e = build_unary(g, OP_expm1, build_binary_f(g, OP_div, x, alpha));
    Value below = build_binary_f(g, OP_min, build_binary_f(g, OP_mul, e, alpha), 0);
    lower_out(l, 0, build_binary(g, OP_add, build_binary_f(g, OP_max, x, 0), below));
    return true;
}

/* x/2 * (1 + inner), with inner = erf(x/sqrt 2) or tanh(sqrt(2/pi) * (x + 0.044715 x^3)). */
static bool lower_gelu(Lower *l) {
    Graph *g = lower_graph(l);
    const char *approximate = lower_s(l, "approximate");
    Value x = lower_in(l, 0), inner;
    if (!strcmp(approximate, "tanh")) {
        Value cube = build_binary(g, OP_mul, build_binary(g, OP_mul, x, x), x);
        inner = build_binary(g, OP_add, x, build_binary_f(g, OP_mul, cube, 0.044715));
        inner = build_unary(g, OP_tanh, build_binary_f(g, OP_mul, inner, sqrt_2_over_pi));
    } else if (!strcmp(approximate, "none")) {
        inner = build_unary(g, OP_erf, build_binary_f(g, OP_mul, x, sqrt_half));
    } else {
        return lower_error(l, D_ATTRIBUTE, "approximate is '%s', not none or tanh", approximate);
    }
    inner = build_binary_f(g, OP_add, inner, 1);
    lower_out(l, 0, build_binary(g, OP_mul, build_binary_f(g, OP_mul, x, 0.5), inner));
    return true;
}

static Value hard_sigmoid(Graph *g, Value x, double alpha, double beta) {
    Value v = build_binary_f(g, OP_add, build_binary_f(g, OP_mul, x, alpha), beta);
    return build_binary_f(g, OP_max, build_binary_f(g, OP_min, v, 1), 0);
}

static bool lower_hard_sigmoid(Lower *l) {
    lower_out(
        l, 0,
        hard_sigmoid(lower_graph(l), lower_in(l, 0), lower_f(l, "alpha"), lower_f(l, "beta")));
    return true;
}

static bool lower_hard_swish(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    lower_out(l, 0, build_binary(g, OP_mul, x, hard_sigmoid(g, x, 1.0 / 6, 0.5)));
    return true;
}

/* log(1 + e^x) without overflow: max(x, 0) + log1p(e^-|x|). */
static Value softplus(Graph *g, Value x) {
    Value e = build_unary(g, OP_exp, build_unary(g, OP_neg, build_unary(g, OP_abs, x)));
    return build_binary(g, OP_add, build_binary_f(g, OP_max, x, 0), build_unary(g, OP_log1p, e));
}

static bool lower_softplus(Lower *l) {
    lower_out(l, 0, softplus(lower_graph(l), lower_in(l, 0)));
    return true;
}

static bool lower_mish(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    lower_out(l, 0, build_binary(g, OP_mul, x, build_unary(g, OP_tanh, softplus(g, x))));
    return true;
}

static bool lower_softsign(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    Value d = build_binary_f(g, OP_add, build_unary(g, OP_abs, x), 1);
    lower_out(l, 0, build_binary(g, OP_div, x, d));
    return true;
}

static bool lower_shrink(Lower *l) {
    Graph *g = lower_graph(l);
    const double lambd = lower_f(l, "lambd"), bias = lower_f(l, "bias");
    Value x = lower_in(l, 0);
    Value above = build_select(g, build_binary(g, OP_lt, scalar(l, lambd), x),
                               build_binary_f(g, OP_sub, x, bias), scalar(l, 0));
    Value below = build_binary(g, OP_lt, x, scalar(l, -lambd));
    lower_out(l, 0, build_select(g, below, build_binary_f(g, OP_add, x, bias), above));
    return true;
}

static bool lower_swish(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    Value s = build_unary(g, OP_sigmoid, build_binary_f(g, OP_mul, x, lower_f(l, "alpha")));
    lower_out(l, 0, build_binary(g, OP_mul, x, s));
    return true;
}

/* Axes that a softmax folds: one from opset 13 on; before, every axis from `axis` to the last. */
static bool softmax_axes(Lower *l, uint32_t *axes) {
    const int rank = lower_type(l, 0)->rank;
    const int axis = lower_axis(l, lower_i(l, "axis"), rank);
    if (axis < 0) return false;
    *axes = 1u << axis;
    if (lower_opset(l) < 13) *axes = (1u << rank) - (1u << axis);
    return true;
}

static bool lower_softmax(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t axes;
    if (!softmax_axes(l, &axes)) return false;
    Value x = lower_in(l, 0);
    x = build_binary(g, OP_sub, x, build_reduce(g, OP_reduce_max, x, axes, true));
    Value e = build_unary(g, OP_exp, x), sum = build_reduce(g, OP_reduce_sum, e, axes, true);
    if (!strcmp(lower_op_name(l), "LogSoftmax"))
        lower_out(l, 0, build_binary(g, OP_sub, x, build_unary(g, OP_log, sum)));
    else
        lower_out(l, 0, build_binary(g, OP_div, e, sum));
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
    {"", "Relu", 1, 0, 1, 1, 1, 1, none, lower_relu},
    {"", "LeakyRelu", 1, 0, 1, 1, 1, 1, leaky_attrs, lower_leaky_relu},
    {"", "PRelu", 1, 0, 2, 2, 1, 1, none, lower_prelu},
    {"", "ThresholdedRelu", 10, 0, 1, 1, 1, 1, alpha1_attrs, lower_thresholded_relu},
    {"", "Elu", 1, 0, 1, 1, 1, 1, alpha1_attrs, lower_elu},
    {"", "Selu", 1, 5, 1, 1, 1, 1, selu1_attrs, lower_selu},
    {"", "Selu", 6, 0, 1, 1, 1, 1, selu_attrs, lower_selu},
    {"", "Celu", 12, 0, 1, 1, 1, 1, alpha1_attrs, lower_celu},
    {"", "Gelu", 20, 0, 1, 1, 1, 1, gelu_attrs, lower_gelu},
    {"", "HardSigmoid", 1, 0, 1, 1, 1, 1, hard_attrs, lower_hard_sigmoid},
    {"", "HardSwish", 14, 0, 1, 1, 1, 1, NULL, lower_hard_swish},
    {"", "Softplus", 1, 0, 1, 1, 1, 1, NULL, lower_softplus},
    {"", "Mish", 18, 0, 1, 1, 1, 1, NULL, lower_mish},
    {"", "Softsign", 1, 0, 1, 1, 1, 1, NULL, lower_softsign},
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
