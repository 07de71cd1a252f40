/* Quantisation: y = saturate(round(x / scale) + zero), and back. Weight-only dequantisation stays a
 * chain of maps and views in front of its product, where fusion keeps it out of memory. */
#include "frontend/ops/nn/nn.h"
#include "frontend/ops/tensor/quant.h"
#include <string.h>

/* ---- Parameters per tensor, per axis, per block -------------------------------------------- */

Value quant_spread_blocks(Graph *g, Value p, Expr size, int axis, int64_t block) {
    if (!p) return 0;
    Type t = *graph_type(g, p);
    Expr blocks = t.dim[axis];
    p = build_unsqueeze(g, p, axis + 1);
    if (!p) return 0;
    Type wide = *graph_type(g, p);
    wide.dim[axis + 1] = v_int(g, block);
    p = build_expand(g, p, wide.rank, wide.dim);
    t.dim[axis] = expr_muli(g->exprs, blocks, block);
    p = build_reshape(g, p, t.rank, t.dim);
    return build_slice_axis(g, p, axis, v_int(g, 0), size, 1);
}

/* A scale or zero point laid out against x of type t. */
static Value spread(Lower *l, Value p, const Type *t, int64_t axis, int64_t block) {
    Graph *g = lower_graph(l);
    if (!p) return 0;
    int rank = v_rank(g, p);
    if (rank == 0) return p;
    if (rank == 1 && expr_is_value(g->exprs, v_dim(g, p, 0), 1))
        return build_reshape(g, p, 0, NULL);
    int at = lower_axis(l, axis, t->rank);
    if (at < 0) return 0;
    if (block == 0 && rank == 1) return v_along(g, p, t->rank, at);
    if (block > 0 && rank == t->rank) {
        lower_assume(l, v_dim(g, p, at), expr_ceildiv(g->exprs, t->dim[at], v_int(g, block)));
        return quant_spread_blocks(g, p, t->dim[at], at, block);
    }
    lower_error(l, D_SHAPE, "a scale of rank %d for an input of rank %d", rank, t->rank);
    return 0;
}

static bool read_block(Lower *l, int64_t *axis, int64_t *block) {
    int opset = lower_opset(l); /* 1: com.microsoft */
    *axis = opset >= 13 || opset == 1 ? lower_i(l, "axis") : 1;
    *block = opset >= 21 || opset == 1 ? lower_i(l, "block_size") : 0;
    if (*block < 0) return lower_error(l, D_ATTRIBUTE, "block_size is %lld", (long long)*block);
    return true;
}

/* Rounds, adds zero (0 = none) and clamps x of a float type to integer type t. */
static Value to_integer(Graph *g, Value x, Value zero, DType t) {
    int64_t lo;
    uint64_t hi;
    dtype_int_range(t, &lo, &hi);
    x = build_unary(g, OP_round, x);
    if (zero) x = v_add(g, x, v_cast_like(g, zero, x));
    return build_cast(g, v_clamp(g, x, (double)lo, (double)hi), t);
}

Value quant_to(Graph *g, Value x, Value zero, DType t, bool saturate) {
    if (!x) return 0;
    if (!dtype_is_float(t)) return to_integer(g, x, zero, t);
    return build_cast_ex(g, x, t, saturate, 0);
}

/* ---- QuantizeLinear, DequantizeLinear ------------------------------------------------------ */

static bool output_type(Lower *l, const char *attr, int since, DType *t) {
    return lower_opset(l) < since || lower_i(l, attr) == 0 || lower_dtype(l, attr, t);
}

/* Quantised: an integer of up to 16 bits or a float of up to 8. */
static bool check_target(Lower *l, Value zero, DType t) {
    if (zero && t != v_dtype(lower_graph(l), zero))
        return lower_error(l, D_DTYPE, "output_dtype is %s, the zero point %s", dtype_name(t),
                           dtype_name(v_dtype(lower_graph(l), zero)));
    if (dtype_bytes(t) <= (dtype_is_float(t) ? 1 : 2) && t != DT_bool) return true;
    return lower_error(l, D_DTYPE, "%s is no type to quantise to", dtype_name(t));
}

static bool lower_quantize(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), scale = lower_in(l, 1), zero = lower_in(l, 2);
    if (!x || !scale) return false;
    int64_t axis, block;
    DType t = zero ? v_dtype(g, zero) : DT_u8, precision = DT_none;
    if (!read_block(l, &axis, &block) || !output_type(l, "output_dtype", 21, &t) ||
        !output_type(l, "precision", 23, &precision) || !check_target(l, zero, t) ||
        !lower_is(l, 0, TYPES_FLOAT | TYPES_INT))
        return false;
    if (!precision) precision = dtype_is_float(v_dtype(g, x)) ? v_wide_type(v_dtype(g, x)) : DT_f32;
    precision = v_wide_type(precision);
    Type type = *graph_type(g, x);
    scale = spread(l, build_cast(g, scale, precision), &type, axis, block);
    Value z = zero ? spread(l, zero, &type, axis, block) : 0;
    if (!scale || (zero && !z)) return false;
    Value ratio = v_div(g, build_cast(g, x, precision), scale);
    bool saturate = lower_opset(l) < 19 || lower_i(l, "saturate");
    lower_out(l, 0, quant_to(g, ratio, z, t, saturate));
    return true;
}

static bool lower_dequantize(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), scale = lower_in(l, 1), zero = lower_in(l, 2);
    if (!x || !scale) return false;
    int64_t axis, block;
    DType t = v_dtype(g, scale);
    if (!lower_is(l, 0, TYPES_INT | TYPES_FLOAT8) || !lower_same_type(l, 2, 0) ||
        !lower_is(l, 1, TYPES_FLOAT | TYPES_FLOAT8))
        return false;
    if (!read_block(l, &axis, &block) || !output_type(l, "output_dtype", 23, &t)) return false;
    DType wide = v_dtype(g, scale) == DT_f64 ? DT_f64 : DT_f32;
    Type type = *graph_type(g, x);
    scale = spread(l, build_cast(g, scale, wide), &type, axis, block);
    Value z = zero ? spread(l, build_cast(g, zero, wide), &type, axis, block) : 0;
    if (!scale || (zero && !z)) return false;
    Value y = build_cast(g, x, wide);
    if (z) y = v_sub(g, y, z);
    lower_out(l, 0, build_cast(g, v_mul(g, y, scale), t));
    return true;
}

bool quant_dynamic(Graph *g, Value x, Value out[3]) {
    if (!x) return false;
    uint32_t all = v_axes_from(0, v_rank(g, x));
    Value hi = v_maxf(g, build_reduce(g, OP_reduce_max, x, all, false), 0);
    Value lo = v_minf(g, build_reduce(g, OP_reduce_min, x, all, false), 0);
    Value scale = v_divf(g, v_sub(g, hi, lo), 255);
    Value from = v_div(g, v_neg(g, lo), scale);
    Value zero = build_cast(g, build_unary(g, OP_round, v_clamp(g, from, 0, 255)), DT_u8);
    out[0] = to_integer(g, v_div(g, x, scale), zero, DT_u8);
    out[1] = scale;
    out[2] = zero;
    return true;
}

static bool lower_dynamic_quantize(Lower *l) {
    Value out[3];
    if (!quant_dynamic(lower_graph(l), lower_in(l, 0), out)) return false;
    for (uint32_t i = 0; i < 3; i++) lower_out(l, i, out[i]);
    return true;
}

/* ---- Integer products ---------------------------------------------------------------------- */

/* A zero point per row of a matrix operand is a column against it. */
static Value as_column(Graph *g, Value z, Value x) {
    bool rows =
        z && v_rank(g, z) == 1 && v_rank(g, x) >= 2 && !expr_is_value(g->exprs, v_dim(g, z, 0), 1);
    return rows ? build_unsqueeze(g, z, 1) : z;
}

static bool is_zero(const Graph *g, Value z) {
    double v;
    return !z || (build_const_f64(g, z, &v) && v == 0);
}

void quant_centre(Graph *g, Value *a, Value za, Value *b, Value zb) {
    if (v_dtype(g, *a) == v_dtype(g, *b) && is_zero(g, za) && is_zero(g, zb)) return;
    *a = build_cast(g, *a, DT_i16);
    *b = build_cast(g, *b, DT_i16);
    if (za) *a = v_sub(g, *a, build_cast(g, za, DT_i16));
    if (zb) *b = v_sub(g, *b, build_cast(g, zb, DT_i16));
}

/* Operands i of 8 bits, with zero points z of the same type. */
static bool check_bytes(Lower *l, uint32_t i, uint32_t z) {
    return lower_is(l, i, TYPES_INT8) && lower_same_type(l, z, i);
}

static bool lower_matmul_integer(Lower *l) {
    Graph *g = lower_graph(l);
    Value a = lower_in(l, 0), b = lower_in(l, 1);
    if (!a || !b || !check_bytes(l, 0, 2) || !check_bytes(l, 1, 3)) return false;
    quant_centre(g, &a, as_column(g, lower_in(l, 2), a), &b, lower_in(l, 3));
    lower_out(l, 0, build_matmul(g, a, b, DT_i32));
    return true;
}

/* sum * (scale_a * scale_b / scale_y), in the wide type of the scales. */
static Value rescale(Graph *g, Value sum, Value sa, Value sb, Value sy) {
    Value factor = v_div(g, v_mul(g, v_widen(g, sa), v_widen(g, sb)), v_widen(g, sy));
    return v_mul(g, v_cast_like(g, sum, factor), factor);
}

static bool lower_qlinear_matmul(Lower *l) {
    Graph *g = lower_graph(l);
    Value in[8];
    for (uint32_t i = 0; i < 8; i++)
        if (!(in[i] = lower_in(l, i))) return false;
    if (!check_bytes(l, 0, 2) || !check_bytes(l, 3, 5) || !lower_is(l, 7, TYPES_INT8)) return false;
    Value a = in[0], b = in[3];
    quant_centre(g, &a, as_column(g, in[2], in[0]), &b, in[5]);
    Value sum = build_matmul(g, a, b, DT_i32);
    Value y = rescale(g, sum, as_column(g, in[1], in[0]), in[4], as_column(g, in[6], in[0]));
    Value zero = as_column(g, in[7], in[0]);
    lower_out(l, 0, quant_to(g, y, zero, v_dtype(g, in[7]), true));
    return true;
}

/* Weights [OC, I, K...] with a zero point per output channel. */
static Value per_output(Graph *g, Value z, Value w) {
    if (!z || v_rank(g, z) == 0) return z;
    if (expr_is_value(g->exprs, v_dim(g, z, 0), 1)) return build_reshape(g, z, 0, NULL);
    return v_along(g, z, v_rank(g, w), 0);
}

/* Channels-last i32 sums of x less zx and w less zw. */
static Value conv_integer(Lower *l, Value x, Value zx, Value w, Value zw) {
    Graph *g = lower_graph(l);
    Window win;
    int64_t groups;
    if (!nn_conv_read(l, x, w, &win, &groups)) return 0;
    if (zx && v_rank(g, zx)) zx = build_reshape(g, zx, 0, NULL);
    Value zero_w = per_output(g, zw, w);
    quant_centre(g, &x, zx, &w, zero_w);
    return nn_conv_last(g, x, w, &win, groups, DT_i32);
}

static bool lower_conv_integer(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), w = lower_in(l, 1);
    if (!x || !w || !check_bytes(l, 0, 2) || !check_bytes(l, 1, 3)) return false;
    Value sum = conv_integer(l, x, lower_in(l, 2), w, lower_in(l, 3));
    if (!sum) return false;
    lower_out(l, 0, v_channels_first(g, sum));
    return true;
}

static bool lower_qlinear_conv(Lower *l) {
    Graph *g = lower_graph(l);
    Value in[9];
    for (uint32_t i = 0; i < 9; i++)
        if (!(in[i] = lower_in(l, i)) && i < 8) return false;
    if (!check_bytes(l, 0, 2) || !check_bytes(l, 3, 5) || !lower_is(l, 7, TYPES_INT8) ||
        !lower_vector(l, 8, v_dim(g, in[3], 0)))
        return false;
    Value sum = conv_integer(l, in[0], in[2], in[3], in[5]);
    if (!sum) return false;
    if (in[8]) sum = v_add(g, sum, in[8]);
    Value y = rescale(g, sum, in[1], in[4], in[6]);
    y = quant_to(g, y, in[7], v_dtype(g, in[7]), true);
    lower_out(l, 0, v_channels_first(g, y));
    return true;
}

static const char *const axis_attrs[] = {"axis:i=1", NULL};
static const char *const quantize19_attrs[] = {"axis:i=1", "saturate:i=1", NULL};
static const char *const quantize21_attrs[] = {"axis:i=1", "block_size:i=0", "saturate:i=1",
                                               "output_dtype:i=0", NULL};
static const char *const quantize23_attrs[] = {"axis:i=1",         "block_size:i=0", "saturate:i=1",
                                               "output_dtype:i=0", "precision:i=0",  NULL};
static const char *const block_attrs[] = {"axis:i=1", "block_size:i=0", NULL};
static const char *const dequantize23_attrs[] = {"axis:i=1", "block_size:i=0", "output_dtype:i=0",
                                                 NULL};

const OnnxOp ops_quant[] = {
    {"", "QuantizeLinear", 10, 12, 2, 3, 1, 1, NULL, lower_quantize},
    {"", "QuantizeLinear", 13, 18, 2, 3, 1, 1, axis_attrs, lower_quantize},
    {"", "QuantizeLinear", 19, 20, 2, 3, 1, 1, quantize19_attrs, lower_quantize},
    {"", "QuantizeLinear", 21, 22, 2, 3, 1, 1, quantize21_attrs, lower_quantize},
    {"", "QuantizeLinear", 23, 0, 2, 3, 1, 1, quantize23_attrs, lower_quantize},
    {"", "DequantizeLinear", 10, 12, 2, 3, 1, 1, NULL, lower_dequantize},
    {"", "DequantizeLinear", 13, 20, 2, 3, 1, 1, axis_attrs, lower_dequantize},
    {"", "DequantizeLinear", 21, 22, 2, 3, 1, 1, block_attrs, lower_dequantize},
    {"", "DequantizeLinear", 23, 0, 2, 3, 1, 1, dequantize23_attrs, lower_dequantize},
    {"com.microsoft", "QuantizeLinear", 1, 0, 2, 3, 1, 1, block_attrs, lower_quantize},
    {"com.microsoft", "DequantizeLinear", 1, 0, 2, 3, 1, 1, block_attrs, lower_dequantize},
    {"", "DynamicQuantizeLinear", 11, 0, 1, 1, 3, 3, NULL, lower_dynamic_quantize},
    {"", "MatMulInteger", 10, 0, 2, 4, 1, 1, NULL, lower_matmul_integer},
    {"", "QLinearMatMul", 10, 0, 8, 8, 1, 1, NULL, lower_qlinear_matmul},
    {"", "ConvInteger", 10, 0, 2, 4, 1, 1, nn_conv_attrs, lower_conv_integer},
    {"", "QLinearConv", 10, 0, 8, 9, 1, 1, nn_conv_attrs, lower_qlinear_conv},
    {0}};
