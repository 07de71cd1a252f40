#include "frontend/ops/nn/activation.h"
#include <math.h>
#include <strings.h>

Value activation_gelu(Graph *g, Value x) {
    Value e = build_unary(g, OP_erf, v_mulf(g, x, M_SQRT1_2));
    return v_mul(g, v_mulf(g, x, 0.5), v_addf(g, e, 1));
}

Value activation_gelu_tanh(Graph *g, Value x) {
    Value cube = v_mul(g, v_mul(g, x, x), x);
    Value inner = v_mulf(g, v_add(g, x, v_mulf(g, cube, 0.044715)), sqrt(2 / M_PI));
    return v_mul(g, v_mulf(g, x, 0.5), v_addf(g, v_tanh(g, inner), 1));
}

static Value identity(Graph *g, Value x, double a, double b) {
    (void)g, (void)a, (void)b;
    return x;
}

static Value relu(Graph *g, Value x, double a, double b) {
    (void)a, (void)b;
    return v_maxf(g, x, 0);
}

static Value tanh_of(Graph *g, Value x, double a, double b) {
    (void)a, (void)b;
    return v_tanh(g, x);
}

static Value sigmoid(Graph *g, Value x, double a, double b) {
    (void)a, (void)b;
    return v_sigmoid(g, x);
}

static Value affine(Graph *g, Value x, double a, double b) {
    return v_addf(g, v_mulf(g, x, a), b);
}

Value activation_below(Graph *g, Value x, Value below) {
    return build_select(g, v_lef(g, x, 0), below, x);
}

static Value leaky_relu(Graph *g, Value x, double a, double b) {
    (void)b;
    return activation_below(g, x, v_mulf(g, x, a));
}

static Value thresholded_relu(Graph *g, Value x, double a, double b) {
    (void)b;
    return v_select_f(g, v_lt(g, v_const(g, x, a), x), x, 0);
}

static Value scaled_tanh(Graph *g, Value x, double a, double b) {
    return v_mulf(g, v_tanh(g, v_mulf(g, x, b)), a);
}

Value activation_hard_sigmoid(Graph *g, Value x, double alpha, double beta) {
    return v_clamp(g, affine(g, x, alpha, beta), 0, 1);
}

static Value clip(Graph *g, Value x, double a, double b) {
    return v_clamp(g, x, a, b);
}

/* Above 0 the exponential is of 0: an infinite one, though not chosen, would make gradients NaN. */
Value activation_elu(Graph *g, Value x, double alpha, double scale) {
    Value low = v_select_f(g, v_lef(g, x, 0), v_divf(g, x, scale), 0);
    return activation_below(g, x, v_mulf(g, build_unary(g, OP_expm1, low), alpha));
}

static Value elu(Graph *g, Value x, double a, double b) {
    (void)b;
    return activation_elu(g, x, a, 1);
}

static Value softsign(Graph *g, Value x, double a, double b) {
    (void)a, (void)b;
    return v_div(g, x, v_addf(g, v_abs(g, x), 1));
}

/* max(x, 0) + log1p(e^-|x|), which does not overflow. Both parts take the slopes from above at 0,
 * 1 and -1/2, so that their sum has the right one. */
Value activation_softplus(Graph *g, Value x) {
    Value below = v_ltf(g, x, 0), zero = v_const(g, x, 0);
    Value tail = build_unary(g, OP_log1p, v_exp(g, build_select(g, below, x, v_neg(g, x))));
    return v_add(g, build_select(g, below, zero, x), tail);
}

static Value softplus(Graph *g, Value x, double a, double b) {
    (void)a, (void)b;
    return activation_softplus(g, x);
}

static Value gelu(Graph *g, Value x, double a, double b) {
    (void)a, (void)b;
    return activation_gelu(g, x);
}

static const Activation activations[] = {
    {"", 0, 0, 0, identity},
    {"Affine", 1, 0, 2, affine},
    {"Clip", -INFINITY, INFINITY, 2, clip},
    {"Elu", 1, 0, 1, elu},
    {"Gelu", 0, 0, 0, gelu},
    {"HardSigmoid", 0.2, 0.5, 2, activation_hard_sigmoid},
    {"LeakyRelu", 0.01, 0, 1, leaky_relu},
    {"Relu", 0, 0, 0, relu},
    {"ScaledTanh", 1, 1, 2, scaled_tanh},
    {"Sigmoid", 0, 0, 0, sigmoid},
    {"Softplus", 0, 0, 0, softplus},
    {"Softsign", 0, 0, 0, softsign},
    {"Tanh", 0, 0, 0, tanh_of},
    {"ThresholdedRelu", 1, 0, 1, thresholded_relu},
};

const Activation *activation_find(const char *name) {
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (!strcasecmp(activations[i].name, name)) return &activations[i];
    return NULL;
}
