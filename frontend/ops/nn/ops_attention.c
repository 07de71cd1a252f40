/* Attention and RotaryEmbedding of ai.onnx. */
#include "frontend/ops/nn/attention.h"
#include <math.h>

/* Three-dimensional inputs carry their heads packed in the last axis. */
static bool read_heads(Lower *l, Attention *a, bool *packed) {
    Graph *g = lower_graph(l);
    a->q = lower_in(l, 0), a->k = lower_in(l, 1), a->v = lower_in(l, 2);
    if (!a->q || !a->k || !a->v) return false;
    int rank = v_rank(g, a->q);
    *packed = rank == 3;
    if ((rank != 3 && rank != 4) || v_rank(g, a->k) != rank || v_rank(g, a->v) != rank)
        return lower_error(l, D_SHAPE, "Q, K and V need one rank, 3 or 4; Q has %d", rank);
    if (!*packed) return attention_check_heads(l, a);
    int64_t heads = lower_i(l, "q_num_heads"), kv_heads = lower_i(l, "kv_num_heads");
    if (heads < 1 || kv_heads < 1 || heads % kv_heads)
        return lower_error(l, D_ATTRIBUTE,
                           "3-D inputs need q_num_heads, a multiple of kv_num_heads");
    a->q = attention_split_heads(g, a->q, heads);
    a->k = attention_split_heads(g, a->k, kv_heads);
    a->v = attention_split_heads(g, a->v, kv_heads);
    return true;
}

static Value append_past(Lower *l, uint32_t past, Value x) {
    if (!lower_has_in(l, past)) return x;
    return build_concat(lower_graph(l), (Value[]){lower_in(l, past), x}, 2, 2);
}

/* A mask whose last axis is shorter than the keys is false or -inf beyond its end. */
static Value pad_mask(Graph *g, Value mask, Expr cols) {
    int last = v_rank(g, mask) - 1;
    Expr missing = expr_sub(g->exprs, cols, v_dim(g, mask, last));
    if (expr_is_value(g->exprs, missing, 0) || expr_is_value(g->exprs, v_dim(g, mask, last), 1))
        return mask;
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    for (int i = 0; i <= last; i++) lo[i] = hi[i] = v_int(g, 0);
    hi[last] = missing;
    DType t = v_dtype(g, mask);
    Value fill = t == DT_bool ? build_scalar_i(g, t, 0) : build_scalar_f(g, t, -INFINITY);
    return build_pad(g, mask, fill, lo, hi, NULL);
}

static bool read_masks(Lower *l, Attention *a) {
    Graph *g = lower_graph(l);
    Expr rows = v_dim(g, a->q, 2), cols = v_dim(g, a->k, 2);
    if (lower_has_in(l, 3)) {
        Value mask = lower_in(l, 3);
        if (!mask) return false;
        if (v_rank(g, mask) < 1) return lower_error(l, D_SHAPE, "the mask is a scalar");
        mask = pad_mask(g, mask, cols);
        if (!mask) return false;
        if (v_dtype(g, mask) == DT_bool)
            a->keep = mask, a->may_mask_all = true;
        else
            a->bias = mask;
    }
    AttentionSpan span = {.rows = rows, .cols = cols};
    span.left = lower_i(l, "left_window_size");
    span.right = lower_i(l, "right_window_size");
    if (lower_i(l, "is_causal")) span.right = 0;
    if (lower_has_in(l, 4) && lower_in(l, 4))
        span.offset = build_expr(g, DT_i64, v_dim(g, lower_in(l, 4), 2));
    if (span.left >= 0 || span.right >= 0)
        a->keep = attention_and(g, a->keep, attention_span_mask(g, &span));
    if (lower_has_in(l, 6)) {
        a->keep = attention_and(g, a->keep, attention_length_mask(g, lower_in(l, 6), cols));
        a->may_mask_all = true;
    }
    return true;
}

static bool read_precision(Lower *l, Attention *a) {
    if (!lower_i(l, "softmax_precision")) return true;
    if (!lower_dtype(l, "softmax_precision", &a->precision)) return false;
    return dtype_is_float(a->precision) ||
           lower_error(l, D_ATTRIBUTE, "softmax_precision is %s", dtype_name(a->precision));
}

/* 1/sqrt(D) unless the attribute is given. */
static bool read_scale(Lower *l, Attention *a) {
    int64_t size;
    a->scale = lower_f(l, "scale");
    if (lower_has_attr(l, "scale")) return true;
    if (!v_dim_const(lower_graph(l), a->q, 3, &size) || size < 1)
        return lower_unsupported(l, "give the attribute scale", "a symbolic head size");
    a->scale = 1 / sqrt((double)size);
    return true;
}

static bool lower_attention(Lower *l) {
    Graph *g = lower_graph(l);
    Attention a = {0};
    bool packed;
    int64_t mode = lower_i(l, "qk_matmul_output_mode");
    if (mode < 0 || mode > 3)
        return lower_error(l, D_ATTRIBUTE, "qk_matmul_output_mode is %lld", (long long)mode);
    if (!lower_is(l, 3, TYPES_FLOAT | TYPES_BOOL) || !lower_is(l, 6, TYPES_INT)) return false;
    if (!read_heads(l, &a, &packed) || !read_precision(l, &a)) return false;
    a.k = append_past(l, 4, a.k);
    a.v = append_past(l, 5, a.v);
    if (!a.k || !a.v || !read_masks(l, &a)) return false;
    if (!read_scale(l, &a)) return false;
    a.softcap = lower_f(l, "softcap");
    Value y = attention_build(g, &a);
    lower_out(l, 0, packed ? attention_merge_heads(g, y) : y);
    if (lower_has_out(l, 1)) lower_out(l, 1, a.k);
    if (lower_has_out(l, 2)) lower_out(l, 2, a.v);
    if (!lower_has_out(l, 3)) return true;
    Value shown = ((Value[]){a.raw, a.capped, a.masked, a.probability})[mode];
    lower_out(l, 3, v_cast_like(g, shown, a.q));
    return true;
}

/* ---- FlexAttention ------------------------------------------------------------------------- */

/* Inlines score_mod or prob_mod, which see a tensor and give one of its kind. */
static Value flex_modify(void *ctx, bool after, Value x) {
    Lower *l = ctx;
    const char *attr = after ? "prob_mod" : "score_mod";
    Value y = 0;
    if (!x || !lower_has_attr(l, attr)) return x;
    return lower_inline(l, attr, &x, 1, &y, 1) ? y : 0;
}

static bool lower_flex_attention(Lower *l) {
    Graph *g = lower_graph(l);
    Attention a = {.q = lower_in(l, 0), .k = lower_in(l, 1), .v = lower_in(l, 2)};
    if (!a.q || !a.k || !a.v) return false;
    if (v_rank(g, a.q) != 4 || v_rank(g, a.k) != 4 || v_rank(g, a.v) != 4)
        return lower_error(l, D_SHAPE, "Q, K and V need rank 4");
    if (!attention_check_heads(l, &a)) return false;
    if (!read_scale(l, &a) || !read_precision(l, &a)) return false;
    a.modify = flex_modify;
    a.ctx = l;
    lower_out(l, 0, attention_build(g, &a));
    return true;
}

/* ---- RotaryEmbedding ----------------------------------------------------------------------- */

static bool lower_rotary(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), cosine = lower_in(l, 1), sine = lower_in(l, 2);
    if (!x || !cosine || !sine) return false;
    int rank = v_rank(g, x);
    int64_t heads = lower_i(l, "num_heads"), rotated = lower_i(l, "rotary_embedding_dim");
    if (rank != 3 && rank != 4) return lower_error(l, D_SHAPE, "the input has rank %d", rank);
    if (rotated < 0 || rotated % 2)
        return lower_error(l, D_ATTRIBUTE, "rotary_embedding_dim is %lld", (long long)rotated);
    if (rank == 3 && heads < 1) return lower_error(l, D_ATTRIBUTE, "3-D input needs num_heads");
    if (lower_has_in(l, 3)) {
        cosine = build_take(g, cosine, lower_in(l, 3), 0);
        sine = build_take(g, sine, lower_in(l, 3), 0);
    }
    if (!cosine || !sine) return false;
    if (v_rank(g, cosine) != 3)
        return lower_error(l, D_SHAPE, "the caches have rank %d", v_rank(g, cosine));
    if (rank == 3) x = attention_split_heads(g, x, heads);
    Expr half = rotated ? v_int(g, rotated / 2) : expr_div(g->exprs, v_dim(g, x, 3), v_int(g, 2));
    int64_t width, wanted;
    if (v_dim_const(g, cosine, 2, &width) && expr_is_const(g->exprs, half, &wanted) &&
        width != wanted)
        return lower_error(l, D_SHAPE, "the caches are %lld wide, half the rotation is %lld",
                           (long long)width, (long long)wanted);
    Value y = attention_rotate(g, x, cosine, sine, lower_i(l, "interleaved") != 0);
    lower_out(l, 0, rank == 3 ? attention_merge_heads(g, y) : y);
    return true;
}

static const char *const attention_attrs[] = {"is_causal:i=0",
                                              "kv_num_heads:i=0",
                                              "q_num_heads:i=0",
                                              "scale:f=0",
                                              "softcap:f=0",
                                              "softmax_precision:i=0",
                                              "left_window_size:i=-1",
                                              "right_window_size:i=-1",
                                              "qk_matmul_output_mode:i=0",
                                              NULL};
static const char *const flex_attrs[] = {"scale:f=0", "softmax_precision:i=0", "score_mod:g",
                                         "prob_mod:g", NULL};
static const char *const rotary_attrs[] = {"interleaved:i=0", "num_heads:i=0",
                                           "rotary_embedding_dim:i=0", NULL};

const OnnxOp ops_attention[] = {
    {"", "Attention", 23, 0, 3, 7, 1, 4, attention_attrs, lower_attention},
    {"ai.onnx.preview", "FlexAttention", 1, 0, 3, 3, 1, 1, flex_attrs, lower_flex_attention},
    {"", "RotaryEmbedding", 23, 0, 3, 4, 1, 1, rotary_attrs, lower_rotary},
    {0}};
