/* com.microsoft: products and look-ups with weights of few bits. Dequantisation is maps and views
 * in front of the operator that reads the weights. */
#include "frontend/ops/tensor/quant.h"

enum { MAX_BLOCK = 1 << 16 };

/* ---- MatMulNBits --------------------------------------------------------------------------- */

Value quant_unpack_bits(Graph *g, Value x, int64_t bits) {
    if (!x || bits == 8) return x;
    Type t = *graph_type(g, x);
    Value shift = v_mulf(g, v_iota(g, DT_u8, v_int(g, 8 / bits)), (double)bits);
    Value y = build_binary(g, OP_shr, build_unsqueeze(g, x, t.rank), shift);
    y = build_binary_f(g, OP_and, y, (double)((1 << bits) - 1));
    t.dim[t.rank - 1] = expr_muli(g->exprs, t.dim[t.rank - 1], 8 / bits);
    return build_reshape(g, y, t.rank, t.dim);
}

/* [N, blocks] zero points: a float tensor, or packed bytes with rows padded to whole ones. */
static Value zero_points(Lower *l, int64_t n, int64_t blocks, int64_t bits, DType wide) {
    Graph *g = lower_graph(l);
    if (!lower_has_in(l, 3)) return build_scalar_f(g, wide, (double)(1 << (bits - 1)));
    Value z = lower_in(l, 3);
    if (!z) return 0;
    int64_t row = (blocks * bits + 7) / 8;
    if (dtype_is_float(v_dtype(g, z)))
        return build_cast(g, build_reshape(g, z, 2, (Expr[]){v_int(g, n), v_int(g, blocks)}), wide);
    z = build_reshape(g, z, 2, (Expr[]){v_int(g, n), v_int(g, row)});
    z = build_slice_axis(g, quant_unpack_bits(g, z, bits), 1, v_int(g, 0), v_int(g, blocks), 1);
    return build_cast(g, z, wide);
}

static bool nbits_check(Lower *l, int64_t bits, int64_t block, int64_t k, int64_t n) {
    if (bits != 2 && bits != 4 && bits != 8)
        return lower_unsupported(l, NULL, "%lld-bit weights", (long long)bits);
    if (block < 16 || (block & (block - 1)) || block > MAX_BLOCK || k < 1 || n < 1 ||
        k > INT32_MAX || n > INT32_MAX)
        return lower_error(l, D_ATTRIBUTE, "block_size %lld, K %lld, N %lld", (long long)block,
                           (long long)k, (long long)n);
    if (lower_i(l, "weight_prepacked"))
        return lower_unsupported(l, "export the model without prepacking",
                                 "weights prepacked for one device");
    return true;
}

/* The group of each of k columns, for weights whose blocks do not lie in the order of columns; the
 * input may be padded to whole blocks. */
static Value group_index(Lower *l, int64_t k, int64_t blocks, int64_t block) {
    Graph *g = lower_graph(l);
    Value idx = lower_in(l, 4);
    if (!idx) return 0;
    Expr size = v_rank(g, idx) == 1 ? v_dim(g, idx, 0) : v_int(g, 0);
    if (!expr_is_value(g->exprs, size, k) && !expr_is_value(g->exprs, size, blocks * block)) {
        lower_error(l, D_SHAPE, "g_idx wants %lld groups, one for each column", (long long)k);
        return 0;
    }
    return build_slice_axis(g, idx, 0, v_int(g, 0), v_int(g, k), 1);
}

/* [N, K] weights, each less its group's zero point, times its group's scale. */
static Value grouped_weights(Graph *g, Value q, Value zero, Value scale, Value idx) {
    if (v_rank(g, zero)) zero = build_take(g, zero, idx, 1);
    return v_mul(g, v_sub(g, q, zero), build_take(g, scale, idx, 1));
}

/* Whether x, by the model and by what it is compiled for, may be rounded. */
static bool may_round(Lower *l, Value x, int64_t k, int64_t block) {
    const Type *t = graph_type(lower_graph(l), x);
    const ImportOptions *o = lower_options(l);
    const int64_t level = o->accuracy_level ? o->accuracy_level : lower_i(l, "accuracy_level");
    return level == IMPORT_LEVEL_BYTES && o->rounds_to_bytes && k % block == 0 &&
           expr_is_value(lower_graph(l)->exprs, t->dim[t->rank - 1], k);
}

/* y = a * ((q - zero) * scale)^T, the weights [N, K] dequantised block by block along K. */
static bool lower_matmul_nbits(Lower *l) {
    Graph *g = lower_graph(l);
    int64_t bits = lower_i(l, "bits"), block = lower_i(l, "block_size");
    int64_t k = lower_i(l, "K"), n = lower_i(l, "N");
    Value a = lower_in(l, 0), b = lower_in(l, 1), scale = lower_in(l, 2);
    if (!a || !b || !scale || !nbits_check(l, bits, block, k, n)) return false;
    int64_t blocks = (k + block - 1) / block;
    DType wide = v_wide_type(v_dtype(g, a));
    Expr rows = v_int(g, n), width = v_int(g, blocks * block);
    Expr parts[] = {rows, v_int(g, blocks), v_int(g, 1)};
    const bool grouped = lower_has_in(l, 4);
    const uint8_t rank = grouped ? 2 : 3; /* of scales and zero points */
    Value q = build_reshape(g, b, 3, (Expr[]){rows, parts[1], v_int(g, block * bits / 8)});
    q = build_cast(g, quant_unpack_bits(g, q, bits), wide);
    Value zero = zero_points(l, n, blocks, bits, wide);
    if (!zero) return false;
    if (v_rank(g, zero)) zero = build_reshape(g, zero, rank, parts);
    scale = build_cast(g, build_reshape(g, scale, rank, parts), wide);
    Value w = 0;
    if (grouped) {
        Value idx = group_index(l, k, blocks, block);
        if (!idx) return false;
        q = build_reshape(g, q, 2, (Expr[]){rows, width});
        w = grouped_weights(g, build_slice_axis(g, q, 1, v_int(g, 0), v_int(g, k), 1), zero, scale,
                            idx);
    } else {
        w = build_reshape(g, v_mul(g, v_sub(g, q, zero), scale), 2, (Expr[]){rows, width});
        w = build_slice_axis(g, w, 1, v_int(g, 0), v_int(g, k), 1);
    }
    Value x = a;
    if (!grouped && wide == DT_f32 && v_rank(g, a) && may_round(l, a, k, block))
        x = build_rounded(g, build_cast(g, a, DT_f32), block);
    else
        w = v_cast_like(g, w, a);
    Value y = build_matmul(g, x, v_transpose(g, w), wide);
    if (lower_has_in(l, 5)) y = v_add(g, y, v_cast_like(g, lower_in(l, 5), y));
    lower_out(l, 0, v_cast_like(g, y, a));
    return true;
}

/* ---- GatherBlockQuantized ------------------------------------------------------------------ */

/* What is gathered is looked up packed, then dequantised. Parameters lie along the last axis. */
typedef struct Blocks {
    int64_t bits, block;
    bool packed; /* several values in a byte */
    DType to;
} Blocks;

/* Rows of a quantised table at `indices`, in a float type. */
static Value gather_rows(Graph *g, Value table, Value indices, const Blocks *b) {
    Value rows = build_take(g, table, indices, 0);
    return build_cast(g, b->packed ? quant_unpack_bits(g, rows, b->bits) : rows, b->to);
}

static bool lower_gather_block_quantized(Lower *l) {
    Graph *g = lower_graph(l);
    Value data = lower_in(l, 0), indices = lower_in(l, 1), scales = lower_in(l, 2);
    if (!data || !indices || !scales) return false;
    Blocks b = {lower_i(l, "bits"), lower_i(l, "block_size"), v_dtype(g, data) == DT_u8, 0};
    b.to = v_wide_type(v_dtype(g, scales));
    int rank = v_rank(g, data);
    int axis = lower_axis(l, lower_i(l, "quantize_axis"), rank);
    int from = lower_axis(l, lower_i(l, "gather_axis"), rank);
    if (axis < 0 || from < 0) return false;
    if (from != 0 || axis != rank - 1)
        return lower_unsupported(l, NULL, "gather_axis other than 0, quantize_axis not the last");
    if ((b.bits != 2 && b.bits != 4 && b.bits != 8) || b.block < 16 || b.block > MAX_BLOCK)
        return lower_error(l, D_ATTRIBUTE, "bits %lld, block_size %lld", (long long)b.bits,
                           (long long)b.block);
    Value q = gather_rows(g, data, indices, &b), s = build_take(g, scales, indices, 0), z = 0;
    if (!q || !s) return false;
    int last = v_rank(g, q) - 1;
    Expr size = v_dim(g, q, last), count = v_dim(g, s, last);
    if (lower_has_in(l, 3)) {
        z = gather_rows(g, lower_in(l, 3), indices, &b);
        if (!z) return false;
        z = quant_spread_blocks(g, build_slice_axis(g, z, last, v_int(g, 0), count, 1), size, last,
                                b.block);
    } else if (b.packed) {
        z = build_scalar_f(g, b.to, (double)(1 << (b.bits - 1)));
    }
    if (z) q = v_sub(g, q, z);
    s = quant_spread_blocks(g, build_cast(g, s, b.to), size, last, b.block);
    lower_out(l, 0, v_cast_like(g, v_mul(g, q, s), scales));
    return true;
}

static const char *const nbits_attrs[] = {
    "K:i!", "N:i!", "bits:i=4", "block_size:i!", "accuracy_level:i=0", "weight_prepacked:i=0",
    NULL};
static const char *const gather_attrs[] = {"bits:i=4", "block_size:i=128", "gather_axis:i=0",
                                           "quantize_axis:i=1", NULL};

const OnnxOp ops_contrib_quant[] = {
    {"com.microsoft", "MatMulNBits", 1, 0, 3, 6, 1, 1, nbits_attrs, lower_matmul_nbits},
    {"com.microsoft", "GatherBlockQuantized", 1, 0, 3, 4, 1, 1, gather_attrs,
     lower_gather_block_quantized},
    {0}};
