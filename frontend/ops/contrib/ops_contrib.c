/* com.microsoft: what onnxruntime's optimiser and model builders fuse. Each is spelled out in core
 * ops, so that fusion sees through it. */
#include "frontend/ops/nn/activation.h"
#include "frontend/ops/nn/nn.h"
#include "frontend/ops/nn/norm.h"
#include <string.h>

/* ---- Activations --------------------------------------------------------------------------- */

static bool lower_gelu(Lower *l) {
    Graph *g = lower_graph(l);
    lower_out(l, 0, activation_gelu(g, lower_in(l, 0)));
    return true;
}

static Value plus_bias(Lower *l) {
    Value x = lower_in(l, 0);
    if (!x || !lower_fits(l, 1, lower_type(l, 0))) return 0;
    return lower_has_in(l, 1) ? v_add(lower_graph(l), x, lower_in(l, 1)) : x;
}

static bool lower_bias_gelu(Lower *l) {
    lower_out(l, 0, activation_gelu(lower_graph(l), plus_bias(l)));
    return true;
}

static bool lower_fast_gelu(Lower *l) {
    lower_out(l, 0, activation_gelu_tanh(lower_graph(l), plus_bias(l)));
    return true;
}

static bool lower_quick_gelu(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    Value gate = v_sigmoid(g, v_mulf(g, x, lower_f(l, "alpha")));
    lower_out(l, 0, v_mul(g, x, gate));
    return true;
}

/* ---- Norms with a residual ----------------------------------------------------------------- */

static void norm_outputs(Lower *l, const Norm *n, Value sum, Value like) {
    Graph *g = lower_graph(l);
    lower_out(l, 0, v_cast_like(g, n->y, like));
    if (lower_has_out(l, 1)) lower_out(l, 1, n->mean);
    if (lower_has_out(l, 2)) lower_out(l, 2, n->inv_std);
    if (lower_has_out(l, 3)) lower_out(l, 3, v_cast_like(g, sum, like));
}

/* The last axis, which the norms of this domain work on; -1 after an error. */
static int last_axis(Lower *l, Value x) {
    if (!x) return -1;
    int rank = v_rank(lower_graph(l), x);
    if (rank == 0) lower_error(l, D_SHAPE, "a scalar has no axis to normalise");
    return rank - 1;
}

static Value residual(Lower *l, uint32_t bias) {
    Graph *g = lower_graph(l);
    const Type t = *lower_type(l, 0);
    if (!lower_fits(l, 1, &t) || !lower_fits(l, bias, &t)) return 0;
    Value sum = v_add(g, v_widen(g, lower_in(l, 0)), v_widen(g, lower_in(l, 1)));
    if (lower_has_in(l, bias)) sum = v_add(g, sum, v_widen(g, lower_in(l, bias)));
    return sum;
}

static bool lower_skip_layer_norm(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), sum = residual(l, 4);
    int axis = last_axis(l, sum);
    if (axis < 0) return false;
    Norm n = norm_layer(g, sum, axis, lower_f(l, "epsilon"), lower_in(l, 2), lower_in(l, 3));
    norm_outputs(l, &n, sum, x);
    return true;
}

static bool lower_skip_rms_norm(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), sum = residual(l, 3);
    int axis = last_axis(l, sum);
    if (axis < 0) return false;
    Norm n = norm_rms(g, sum, axis, lower_f(l, "epsilon"), lower_in(l, 2));
    if (lower_has_out(l, 1))
        return lower_unsupported(l, "drop the output", "the mean of an RMS norm as output");
    norm_outputs(l, &n, sum, x);
    return true;
}

/* Positions 0.. of each row unless given; the mask's rows are summed for output 1. */
static bool lower_embed_layer_norm(Lower *l) {
    Graph *g = lower_graph(l);
    Value ids = lower_in(l, 0), table = lower_need(l, 2);
    if (!ids || !table || !lower_need(l, 3) || !lower_need(l, 5) || !lower_need(l, 6)) return false;
    if (v_rank(g, ids) != 2) return lower_error(l, D_SHAPE, "the ids have rank %d", v_rank(g, ids));
    Value positions = lower_in(l, 8);
    if (!positions) positions = v_iota(g, DT_i64, v_dim(g, ids, 1));
    Value sum = v_add(g, v_widen(g, build_take(g, table, ids, 0)),
                      v_widen(g, build_take(g, lower_in(l, 3), positions, 0)));
    if (lower_has_in(l, 1) && lower_has_in(l, 4))
        sum = v_add(g, sum, v_widen(g, build_take(g, lower_in(l, 4), lower_in(l, 1), 0)));
    int axis = last_axis(l, sum);
    if (axis < 0) return false;
    Norm n = norm_layer(g, sum, axis, lower_f(l, "epsilon"), lower_in(l, 5), lower_in(l, 6));
    lower_out(l, 0, v_cast_like(g, n.y, table));
    if (lower_has_out(l, 1)) {
        Expr batch = v_dim(g, ids, 0);
        Value mask = lower_in(l, 7);
        lower_out(l, 1,
                  mask ? build_reduce(g, OP_reduce_sum, mask, 2, false)
                       : v_zeros(g, DT_i32, 1, &batch));
    }
    if (lower_has_out(l, 2)) lower_out(l, 2, v_cast_like(g, sum, table));
    return true;
}

/* ---- Products ------------------------------------------------------------------------------ */

/* transBatch: the first axis moves behind the batch axes. [M, B.., K] -> [B.., M, K] */
static Value batch_to_front(Graph *g, Value x) {
    int rank = v_rank(g, x);
    uint8_t perm[GRAPH_MAX_RANK];
    for (int i = 0; i < rank - 2; i++) perm[i] = (uint8_t)(i + 1);
    perm[rank - 2] = 0;
    perm[rank - 1] = (uint8_t)(rank - 1);
    return build_permute(g, x, perm);
}

static Value product_operand(Lower *l, uint32_t i, const char *batch, const char *transposed) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, i);
    if (!x || v_rank(g, x) < 2) return x;
    if (lower_i(l, batch)) x = batch_to_front(g, x);
    return lower_i(l, transposed) ? v_transpose(g, x) : x;
}

static bool lower_fused_matmul(Lower *l) {
    Graph *g = lower_graph(l);
    Value a = product_operand(l, 0, "transBatchA", "transA");
    Value b = product_operand(l, 1, "transBatchB", "transB");
    if (!a || !b) return false;
    Value y = build_matmul(g, a, b, v_wide_type(v_dtype(g, a)));
    lower_out(l, 0, v_cast_like(g, v_mulf(g, y, lower_f(l, "alpha")), a));
    return true;
}

/* The activation named by the attribute; unknown ones are reported. */
static bool named_activation(Lower *l, double alpha, double beta, Value *y) {
    const char *name = lower_s(l, "activation");
    const Activation *f = activation_find(name);
    if (!f) return lower_unsupported(l, NULL, "activation \"%s\"", name);
    *y = f->build(lower_graph(l), *y, alpha, beta);
    return true;
}

static bool lower_fused_gemm(Lower *l) {
    Graph *g = lower_graph(l);
    Value a = lower_in(l, 0), b = lower_in(l, 1);
    if (!a || !b) return false;
    Value at = lower_i(l, "transA") ? v_transpose(g, a) : a;
    Value bt = lower_i(l, "transB") ? v_transpose(g, b) : b;
    Value y = build_matmul(g, at, bt, v_wide_type(v_dtype(g, a)));
    y = v_mulf(g, y, lower_f(l, "alpha"));
    if (lower_has_in(l, 2)) {
        Value c = v_cast_like(g, lower_in(l, 2), y);
        y = v_add(g, y, v_mulf(g, c, lower_f(l, "beta")));
    }
    if (!named_activation(l, lower_f(l, "activation_alpha"), lower_f(l, "activation_beta"), &y))
        return false;
    lower_out(l, 0, v_cast_like(g, y, a));
    return true;
}

static bool lower_fused_conv(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), w = lower_in(l, 1);
    if (!x || !w) return false;
    Window win;
    int64_t groups;
    uint32_t n;
    if (!nn_conv_read(l, x, w, &win, &groups) || !lower_vector(l, 2, v_dim(g, w, 0))) return false;
    Value y = nn_conv_last(g, x, w, &win, groups, v_wide_type(v_dtype(g, x)));
    if (lower_has_in(l, 2)) y = v_add(g, y, v_cast_like(g, lower_in(l, 2), y));
    y = v_channels_first(g, y);
    if (lower_has_in(l, 3)) y = v_add(g, y, v_cast_like(g, lower_in(l, 3), y));
    const float *p = lower_floats(l, "activation_params", &n);
    if (!named_activation(l, p && n > 0 ? (double)p[0] : 0, p && n > 1 ? (double)p[1] : 0, &y))
        return false;
    lower_out(l, 0, v_cast_like(g, y, x));
    return true;
}

static const char *const quick_gelu_attrs[] = {"alpha:f=1.702", NULL};
static const char *const skip_attrs[] = {"epsilon:f=1e-12", NULL};
static const char *const embed_attrs[] = {"epsilon:f=1e-12", "mask_index_type:i=0", NULL};
static const char *const matmul_attrs[] = {"alpha:f=1.0",     "transA:i=0",      "transB:i=0",
                                           "transBatchA:i=0", "transBatchB:i=0", NULL};
static const char *const gemm_attrs[] = {
    "alpha:f=1.0",         "beta:f=1.0",           "transA:i=0",
    "transB:i=0",          "activation:s=",        "activation_alpha:f=0",
    "activation_beta:f=0", "activation_gamma:f=0", NULL};
static const char *const fused_conv_attrs[] = {"auto_pad:s=NOTSET",
                                               "dilations:I",
                                               "group:i=1",
                                               "kernel_shape:I",
                                               "pads:I",
                                               "strides:I",
                                               "activation:s=",
                                               "activation_params:F",
                                               NULL};

const OnnxOp ops_contrib[] = {
    {"com.microsoft", "Gelu", 1, 0, 1, 1, 1, 1, NULL, lower_gelu},
    {"com.microsoft", "BiasGelu", 1, 0, 2, 2, 1, 1, NULL, lower_bias_gelu},
    {"com.microsoft", "FastGelu", 1, 0, 1, 2, 1, 1, NULL, lower_fast_gelu},
    {"com.microsoft", "QuickGelu", 1, 0, 1, 1, 1, 1, quick_gelu_attrs, lower_quick_gelu},
    {"com.microsoft", "SkipLayerNormalization", 1, 0, 3, 5, 1, 4, skip_attrs,
     lower_skip_layer_norm},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, 0, 3, 4, 1, 4, skip_attrs,
     lower_skip_rms_norm},
    {"com.microsoft", "EmbedLayerNormalization", 1, 0, 1, 9, 1, 3, embed_attrs,
     lower_embed_layer_norm},
    {"com.microsoft", "FusedMatMul", 1, 0, 2, 2, 1, 1, matmul_attrs, lower_fused_matmul},
    {"com.microsoft", "FusedGemm", 1, 0, 2, 3, 1, 1, gemm_attrs, lower_fused_gemm},
    {"com.microsoft", "FusedConv", 1, 0, 2, 4, 1, 1, fused_conv_attrs, lower_fused_conv},
    {0}};
