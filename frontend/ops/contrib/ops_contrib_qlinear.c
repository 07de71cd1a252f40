/* com.microsoft: operators on quantised tensors, with scalar parameters. All but the products
 * compute in f32 between dequantisation and quantisation. */
#include "frontend/ops/nn/activation.h"
#include "frontend/ops/nn/nn.h"
#include "frontend/ops/tensor/quant.h"

/* Inputs i, i+1, i+2 = x, scale, zero point (may be absent), as f32. */
static Value dequantised(Lower *l, uint32_t i) {
    Graph *g = lower_graph(l);
    Value x = lower_need(l, i), scale = lower_need(l, i + 1), zero = lower_in(l, i + 2);
    if (!x || !scale || !lower_is(l, i, TYPES_INT8) || !lower_same_type(l, i + 2, i)) return 0;
    x = build_cast(g, x, DT_f32);
    if (zero) x = v_sub(g, x, build_cast(g, build_reshape(g, zero, 0, NULL), DT_f32));
    return v_mul(g, x, build_reshape(g, scale, 0, NULL));
}

/* y quantised by inputs i, i+1 = scale, zero point (may be absent), to type t. */
static Value quantised(Lower *l, Value y, uint32_t i, DType t) {
    Graph *g = lower_graph(l);
    Value scale = lower_need(l, i), zero = lower_in(l, i + 1);
    if (!y || !scale) return 0;
    if (zero) zero = build_reshape(g, zero, 0, NULL);
    return quant_to(g, v_div(g, y, build_reshape(g, scale, 0, NULL)), zero, t, true);
}

static bool out_quantised(Lower *l, Value y, uint32_t i, uint32_t like) {
    if (!y) return false;
    lower_out(l, 0, quantised(l, y, i, lower_type(l, like)->dtype));
    return true;
}

static bool lower_add(Lower *l) {
    Value y = v_add(lower_graph(l), dequantised(l, 0), dequantised(l, 3));
    return out_quantised(l, y, 6, 0);
}

static bool lower_mul(Lower *l) {
    Value y = v_mul(lower_graph(l), dequantised(l, 0), dequantised(l, 3));
    return out_quantised(l, y, 6, 0);
}

static bool lower_where(Lower *l) {
    Value y = build_select(lower_graph(l), lower_in(l, 0), dequantised(l, 1), dequantised(l, 4));
    return out_quantised(l, y, 7, 1);
}

static bool lower_sigmoid(Lower *l) {
    return out_quantised(l, v_sigmoid(lower_graph(l), dequantised(l, 0)), 3, 0);
}

static bool lower_leaky_relu(Lower *l) {
    const Activation *f = activation_find("LeakyRelu");
    Value y = f->build(lower_graph(l), dequantised(l, 0), lower_f(l, "alpha"), 0);
    return out_quantised(l, y, 3, 0);
}

static bool lower_softmax(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = dequantised(l, 0);
    if (!x) return false;
    if (lower_i(l, "opset") < 13) return lower_unsupported(l, NULL, "softmax over flattened axes");
    int axis = lower_axis(l, lower_i(l, "axis"), v_rank(g, x));
    return axis >= 0 && out_quantised(l, v_softmax(g, x, 1u << axis), 3, 0);
}

static bool lower_global_average_pool(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = dequantised(l, 0);
    if (!x) return false;
    int rank = v_rank(g, x), first = lower_i(l, "channels_last") ? 1 : 2;
    if (rank < 3) return lower_error(l, D_SHAPE, "the input has no spatial axis");
    uint32_t axes = v_axes_from(first, first == 1 ? rank - 1 : rank);
    return out_quantised(l, build_mean(g, x, axes, true), 3, 0);
}

static bool lower_average_pool(Lower *l) {
    Graph *g = lower_graph(l);
    const bool last = lower_i(l, "channels_last") != 0;
    Value x = dequantised(l, 0);
    if (!x) return false;
    if (v_rank(g, x) < 3) return lower_error(l, D_SHAPE, "the input has no spatial axis");
    Value y = nn_average_pool(l, last ? v_channels_first(g, x) : x, true);
    return out_quantised(l, y && last ? v_channels_last(g, y) : y, 3, 0);
}

/* Y_scale, Y_zero_point, then (x, scale, zero point) of each part. */
static bool lower_concat(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t n = (lower_nin(l) - 2) / 3;
    if (n < 1 || lower_nin(l) != 2 + 3 * n)
        return lower_error(l, D_ARITY, "%u inputs are no triples", lower_nin(l));
    Value *part = ARENA_ARRAY(g->arena, Value, n);
    for (uint32_t i = 0; i < n; i++)
        if (!(part[i] = dequantised(l, 2 + 3 * i))) return false;
    int axis = lower_axis(l, lower_i(l, "axis"), v_rank(g, part[0]));
    return axis >= 0 && out_quantised(l, build_concat(g, part, n, axis), 0, 2);
}

/* ---- Products ------------------------------------------------------------------------------ */

/* (a - za)(b - zb) * sa * sb + bias; b's parameters may have one value a column. */
static Value scaled_product(Graph *g, Value a, Value za, Value sa, Value b, Value zb, Value sb,
                            Value bias) {
    if (!a || !b || !sa || !sb) return 0;
    quant_centre(g, &a, za, &b, zb);
    Value y = build_cast(g, build_matmul(g, a, b, DT_i32), DT_f32);
    y = v_mul(g, y, v_mul(g, sa, sb));
    return bias ? v_add(g, y, bias) : y;
}

static bool lower_matmul_integer_to_float(Lower *l) {
    if (!lower_is(l, 0, TYPES_INT8) || !lower_is(l, 1, TYPES_INT8)) return false;
    lower_out(l, 0,
              scaled_product(lower_graph(l), lower_in(l, 0), lower_in(l, 4), lower_in(l, 2),
                             lower_in(l, 1), lower_in(l, 5), lower_in(l, 3), lower_in(l, 6)));
    return true;
}

static bool lower_dynamic_quantize_matmul(Lower *l) {
    Graph *g = lower_graph(l);
    Value a[3];
    if (!lower_is(l, 0, TYPES_FLOAT) || !lower_is(l, 1, TYPES_INT8)) return false;
    if (!quant_dynamic(g, lower_in(l, 0), a)) return false;
    lower_out(l, 0,
              scaled_product(g, a[0], a[2], a[1], lower_in(l, 1), lower_in(l, 3), lower_in(l, 2),
                             lower_in(l, 4)));
    return true;
}

/* C holds integers in the scale of the product. */
static bool lower_qgemm(Lower *l) {
    Graph *g = lower_graph(l);
    Value a = lower_in(l, 0), b = lower_in(l, 3), za = lower_in(l, 2), zb = lower_in(l, 5);
    if (!a || !b || !za || !zb || !lower_is(l, 0, TYPES_INT8) || !lower_is(l, 3, TYPES_INT8))
        return false;
    if (v_rank(g, a) != 2 || v_rank(g, b) != 2)
        return lower_error(l, D_SHAPE, "A and B need rank 2");
    DType t = v_dtype(g, a);
    if (lower_i(l, "transB") && v_rank(g, zb) == 1) zb = build_unsqueeze(g, zb, 1);
    quant_centre(g, &a, za, &b, zb);
    if (lower_i(l, "transA")) a = v_transpose(g, a);
    if (lower_i(l, "transB")) b = v_transpose(g, b);
    Value sum = build_dot(g, a, b, DT_i32);
    if (lower_has_in(l, 6)) sum = v_add(g, sum, lower_in(l, 6));
    Value scale = v_mulf(g, v_mul(g, lower_in(l, 1), lower_in(l, 4)), lower_f(l, "alpha"));
    Value y = v_mul(g, build_cast(g, sum, DT_f32), scale);
    lower_out(l, 0, lower_has_in(l, 7) ? quantised(l, y, 7, t) : y);
    return true;
}

static const char *const leaky_attrs[] = {"alpha:f=0.01", NULL};
static const char *const softmax_attrs[] = {"axis:i=-1", "opset:i!", NULL};
static const char *const pool_attrs[] = {"channels_last:i=0", NULL};
// clang-format off
static const char *const average_attrs[] = {
    "auto_pad:s=NOTSET",     "ceil_mode:i=0", "channels_last:i=0", "count_include_pad:i=0",
    "kernel_shape:I!",       "pads:I",        "strides:I",         "dilations:I",
    NULL};
// clang-format on
static const char *const concat_attrs[] = {"axis:i!", NULL};
static const char *const gemm_attrs[] = {"alpha:f=1.0", "transA:i=0", "transB:i=0", NULL};

const OnnxOp ops_contrib_qlinear[] = {
    {"com.microsoft", "QLinearAdd", 1, 0, 2, 8, 1, 1, NULL, lower_add},
    {"com.microsoft", "QLinearMul", 1, 0, 2, 8, 1, 1, NULL, lower_mul},
    {"com.microsoft", "QLinearWhere", 1, 0, 9, 9, 1, 1, NULL, lower_where},
    {"com.microsoft", "QLinearSigmoid", 1, 0, 2, 5, 1, 1, NULL, lower_sigmoid},
    {"com.microsoft", "QLinearLeakyRelu", 1, 0, 2, 5, 1, 1, leaky_attrs, lower_leaky_relu},
    {"com.microsoft", "QLinearSoftmax", 1, 0, 2, 5, 1, 1, softmax_attrs, lower_softmax},
    {"com.microsoft", "QLinearGlobalAveragePool", 1, 0, 5, 5, 1, 1, pool_attrs,
     lower_global_average_pool},
    {"com.microsoft", "QLinearAveragePool", 1, 0, 4, 5, 1, 1, average_attrs, lower_average_pool},
    {"com.microsoft", "QLinearConcat", 1, 0, 5, -1, 1, 1, concat_attrs, lower_concat},
    {"com.microsoft", "MatMulIntegerToFloat", 1, 0, 4, 7, 1, 1, NULL,
     lower_matmul_integer_to_float},
    {"com.microsoft", "DynamicQuantizeMatMul", 1, 0, 3, 5, 1, 1, NULL,
     lower_dynamic_quantize_matmul},
    {"com.microsoft", "QGemm", 1, 0, 6, 9, 1, 1, gemm_attrs, lower_qgemm},
    {0}};
