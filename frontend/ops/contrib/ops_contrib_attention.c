/* The attention operators of com.microsoft, brought to the one spelling in attention.h. */
#include "frontend/ops/nn/attention.h"
#include "frontend/ops/nn/norm.h"
#include <math.h>
#include <string.h>

static Value last_part(Graph *g, Value x, Expr start, Expr size) {
    return x ? build_slice_axis(g, x, v_rank(g, x) - 1, start, size, 1) : 0;
}

/* 1/sqrt(D) unless the attribute says otherwise (0 means absent). */
static bool read_scale(Lower *l, Attention *a) {
    int64_t size;
    a->scale = lower_f(l, "scale");
    if (a->scale != 0) return true;
    if (!v_dim_const(lower_graph(l), a->q, 3, &size) || size < 1)
        return lower_unsupported(l, "give the attribute scale", "a symbolic head size");
    a->scale = 1 / sqrt((double)size);
    return true;
}

static void add_bias(Graph *g, Attention *a, Value v) {
    a->bias = a->bias ? v_add(g, a->bias, v_cast_like(g, v, a->bias)) : v;
}

/* Integer mask, non-zero = keep, as a bias of 0 or mask_filter_value. */
static Value mask_bias(Lower *l, Value mask) {
    Graph *g = lower_graph(l);
    Value off = build_scalar_f(g, DT_f32, lower_f(l, "mask_filter_value"));
    Value keep = build_binary_f(g, OP_ne, mask, 0);
    return build_select(g, keep, build_scalar_f(g, DT_f32, 0), off);
}

/* [B, T] or [B, S, T] with axes for the heads (and rows) in between. */
static Value spread_mask(Graph *g, Value mask) {
    if (v_rank(g, mask) == 2) mask = build_unsqueeze(g, mask, 1);
    return build_unsqueeze(g, mask, 1);
}

/* [B] lengths or [2B], [3B + 2] ends and starts: what of the columns is kept. */
static Value rank1_mask(Lower *l, Value mask, Expr batch, Expr cols) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    Expr n = v_dim(g, mask, 0);
    Value ends = build_slice_axis(g, mask, 0, v_int(g, 0), batch, 1);
    Value keep = attention_length_mask(g, ends, cols);
    if (n == batch) return keep;
    if (n != expr_muli(p, batch, 2)) {
        lower_unsupported(l, NULL, "a key padding mask of cumulated lengths");
        return 0;
    }
    Value starts = build_slice_axis(g, mask, 0, batch, batch, 1);
    return v_and(g, keep, v_not(g, attention_length_mask(g, starts, cols)));
}

/* A padding mask in any of its forms, added to the scores. */
static bool read_mask(Lower *l, uint32_t i, Attention *a) {
    Graph *g = lower_graph(l);
    if (!lower_has_in(l, i)) return true;
    Value mask = lower_in(l, i);
    if (!mask) return false;
    Expr batch = v_dim(g, a->q, 0), rows = v_dim(g, a->q, 2), cols = v_dim(g, a->k, 2);
    int rank = v_rank(g, mask);
    if (rank == 1) {
        mask = rank1_mask(l, mask, batch, cols);
        if (!mask) return false;
        mask = build_cast(g, mask, DT_i32);
    } else if (rank == 4) { /* [B, 1, M, M]: the rows of this call are the last ones seen */
        Expr from = expr_sub(g->exprs, cols, rows);
        mask = build_slice_axis(g, mask, 2, from, rows, 1);
        mask = build_slice_axis(g, mask, 3, v_int(g, 0), cols, 1);
    } else {
        mask = spread_mask(g, mask);
    }
    add_bias(g, a, mask_bias(l, mask));
    return true;
}

/* Causal with the rows at the end of the columns. */
static void causal(Graph *g, Attention *a) {
    AttentionSpan s = {.rows = v_dim(g, a->q, 2), .cols = v_dim(g, a->k, 2), .left = -1};
    s.offset = build_expr(g, DT_i64, expr_sub(g->exprs, s.cols, s.rows));
    a->keep = attention_and(g, a->keep, attention_span_mask(g, &s));
}

static Value append(Graph *g, Value past, Value x) {
    return past && x ? build_concat(g, (Value[]){past, x}, 2, 2) : x;
}

/* ---- MultiHeadAttention -------------------------------------------------------------------- */

/* Slot i of `n` packed as [B, S, H, n, D] -> [B, H, S, D] */
static Value packed_slot(Graph *g, Value x, int64_t i) {
    return build_permute(g, v_at(g, x, 3, v_int(g, i)), (uint8_t[]){0, 2, 1, 3});
}

/* Adds this input's part of the bias, then splits the heads; 4-D inputs are split already. */
static Value mha_operand(Graph *g, Value x, Value bias, Expr *at, int64_t heads) {
    if (!x || v_rank(g, x) == 4) return x;
    Expr width = v_dim(g, x, 2);
    if (bias) x = v_add(g, x, last_part(g, bias, *at, width));
    *at = expr_add(g->exprs, *at, width);
    return attention_split_heads(g, x, heads);
}

static bool mha_read(Lower *l, Attention *a, int64_t heads) {
    Graph *g = lower_graph(l);
    Value q = lower_in(l, 0), k = lower_in(l, 1), v = lower_in(l, 2), bias = lower_in(l, 3);
    if (!q) return false;
    if (v_rank(g, q) == 5) {
        if (bias) return lower_unsupported(l, NULL, "a bias with packed Q, K and V");
        a->q = packed_slot(g, q, 0), a->k = packed_slot(g, q, 1), a->v = packed_slot(g, q, 2);
        return true;
    }
    if (!k) return lower_error(l, D_ARITY, "no key, and the query is not packed");
    if (v_rank(g, q) < 3 || v_rank(g, k) < 3)
        return lower_error(l, D_SHAPE, "a query of rank %d, a key of rank %d", v_rank(g, q),
                           v_rank(g, k));
    Expr at = v_int(g, 0);
    a->q = mha_operand(g, q, bias, &at, heads);
    if (v_rank(g, k) == 5) {
        a->k = packed_slot(g, k, 0), a->v = packed_slot(g, k, 1);
        return true;
    }
    if (!v) return lower_error(l, D_ARITY, "no value");
    a->k = mha_operand(g, k, bias, &at, heads);
    a->v = mha_operand(g, v, bias, &at, heads);
    return true;
}

static bool lower_mha(Lower *l) {
    Graph *g = lower_graph(l);
    Attention a = {0};
    int64_t heads = lower_i(l, "num_heads");
    if (heads < 1) return lower_error(l, D_ATTRIBUTE, "num_heads is %lld", (long long)heads);
    if (lower_has_in(l, 8) || lower_has_in(l, 9))
        return lower_unsupported(l, NULL, "a shared cache buffer or beam search in the operator");
    if (!mha_read(l, &a, heads)) return false;
    a.k = append(g, lower_in(l, 6), a.k);
    a.v = append(g, lower_in(l, 7), a.v);
    if (!a.q || !a.k || !a.v || !read_scale(l, &a) || !read_mask(l, 4, &a)) return false;
    if (lower_has_in(l, 5)) add_bias(g, &a, lower_in(l, 5));
    if (lower_i(l, "unidirectional")) causal(g, &a);
    lower_out(l, 0, attention_merge_heads(g, attention_build(g, &a)));
    if (lower_has_out(l, 1)) lower_out(l, 1, a.k);
    if (lower_has_out(l, 2)) lower_out(l, 2, a.v);
    if (lower_has_out(l, 3)) lower_out(l, 3, v_cast_like(g, a.raw, a.q));
    return true;
}

/* ---- Attention with its projection --------------------------------------------------------- */

static bool projection_sizes(Lower *l, Expr width, Expr size[3]) {
    Graph *g = lower_graph(l);
    uint32_t n;
    const int64_t *given = lower_ints(l, "qkv_hidden_sizes", &n);
    if (given && n != 3) return lower_error(l, D_ATTRIBUTE, "qkv_hidden_sizes has %u values", n);
    for (int i = 0; i < 3; i++)
        size[i] = given ? v_int(g, given[i]) : expr_div(g->exprs, width, v_int(g, 3));
    lower_assume(l, expr_add(g->exprs, size[0], expr_add(g->exprs, size[1], size[2])), width);
    return true;
}

/* past [2, B, H, P, D]: which 0 = keys, 1 = values. */
static Value past_half(Lower *l, uint32_t i, int64_t which) {
    Graph *g = lower_graph(l);
    if (lower_has_in(l, i)) lower_assume(l, lower_type(l, i)->dim[0], v_int(g, 2));
    return v_at(g, lower_in(l, i), 0, v_int(g, which));
}

static bool lower_ms_attention(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), w = lower_in(l, 1), part[3];
    if (!x || !w) return false;
    int64_t heads = lower_i(l, "num_heads");
    if (heads < 1) return lower_error(l, D_ATTRIBUTE, "num_heads is %lld", (long long)heads);
    if (lower_i(l, "do_rotary") || lower_has_in(l, 6))
        return lower_unsupported(l, NULL, "rotary embedding or a shared cache buffer");
    if (v_rank(g, x) != 3) return lower_error(l, D_SHAPE, "the input has rank %d", v_rank(g, x));
    Value all = build_matmul(g, x, w, v_dtype(g, x));
    if (lower_has_in(l, 2)) all = v_add(g, all, lower_in(l, 2));
    Expr size[3], at = v_int(g, 0);
    if (!all || !projection_sizes(l, v_dim(g, all, 2), size)) return false;
    for (int i = 0; i < 3; i++) {
        part[i] = attention_split_heads(g, last_part(g, all, at, size[i]), heads);
        at = expr_add(g->exprs, at, size[i]);
    }
    Attention a = {.q = part[0]};
    a.k = append(g, past_half(l, 4, 0), part[1]);
    a.v = append(g, past_half(l, 4, 1), part[2]);
    if (!a.q || !a.k || !a.v || !read_scale(l, &a) || !read_mask(l, 3, &a)) return false;
    if (lower_has_in(l, 5)) add_bias(g, &a, lower_in(l, 5));
    if (lower_i(l, "unidirectional")) causal(g, &a);
    lower_out(l, 0, attention_merge_heads(g, attention_build(g, &a)));
    if (lower_has_out(l, 1)) {
        Value both[2] = {build_unsqueeze(g, a.k, 0), build_unsqueeze(g, a.v, 0)};
        lower_out(l, 1, build_concat(g, both, 2, 0));
    }
    return true;
}

/* ---- RotaryEmbedding ----------------------------------------------------------------------- */

/* Rows of a cache at positions [B, S] or, from one first position [1], at that and the following:
 * [B or 1, S, R/2] */
static Value cache_rows(Graph *g, Value cache, Value positions, Expr rows) {
    if (!cache || !positions) return 0;
    if (v_rank(g, positions) == 1) {
        positions = v_add(g, build_cast(g, positions, DT_i64), v_iota(g, DT_i64, rows));
        positions = build_unsqueeze(g, positions, 0);
    }
    return build_take(g, cache, positions, 0);
}

static bool lower_ms_rotary(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), cosine = lower_in(l, 2), sine = lower_in(l, 3);
    if (!x || !cosine || !sine) return false;
    if (lower_i(l, "is_packed_batching")) return lower_unsupported(l, NULL, "packed batching");
    bool packed = v_rank(g, x) == 3;
    int64_t heads = lower_i(l, "num_heads"), width, half;
    if (packed && heads == 0 && v_dim_const(g, x, 2, &width) && v_dim_const(g, cosine, 1, &half) &&
        half > 0)
        heads = width / (2 * half);
    if (packed && heads < 1) return lower_error(l, D_ATTRIBUTE, "3-D input needs num_heads");
    if (packed) x = attention_split_heads(g, x, heads);
    if (!x) return false;
    Expr rows = v_dim(g, x, 2);
    cosine = cache_rows(g, cosine, lower_in(l, 1), rows);
    sine = cache_rows(g, sine, lower_in(l, 1), rows);
    Value y = attention_rotate(g, x, cosine, sine, lower_i(l, "interleaved") != 0);
    y = v_mulf(g, y, lower_f(l, "scale"));
    lower_out(l, 0, packed ? attention_merge_heads(g, y) : y);
    return true;
}

/* ---- GroupQueryAttention ------------------------------------------------------------------- */

typedef struct Gqa {
    Attention a;
    Expr rows, cols, total; /* new tokens, length of the cache afterwards, longest sequence */
    Value past;             /* tokens before this call, i64 [B] */
} Gqa;

static bool gqa_split(Lower *l, Gqa *q) {
    Graph *g = lower_graph(l);
    int64_t heads = lower_i(l, "num_heads"), kv = lower_i(l, "kv_num_heads");
    Value x = lower_in(l, 0), k = lower_in(l, 1), v = lower_in(l, 2);
    if (!x) return false;
    if (heads < 1 || kv < 1 || heads % kv)
        return lower_error(l, D_ATTRIBUTE, "num_heads %lld is no multiple of kv_num_heads %lld",
                           (long long)heads, (long long)kv);
    if (k && !lower_need(l, 2)) return false;
    if (v_rank(g, x) != 3 || (k && (v_rank(g, k) != 3 || v_rank(g, v) != 3)))
        return lower_error(l, D_SHAPE, "query, key and value need rank 3");
    if (!k) {
        Expr size = expr_div(g->exprs, v_dim(g, x, 2), v_int(g, heads + 2 * kv));
        Expr q_size = expr_muli(g->exprs, size, heads), kv_size = expr_muli(g->exprs, size, kv);
        k = last_part(g, x, q_size, kv_size);
        v = last_part(g, x, expr_add(g->exprs, q_size, kv_size), kv_size);
        x = last_part(g, x, v_int(g, 0), q_size);
    }
    q->a.q = attention_split_heads(g, x, heads);
    q->a.k = attention_split_heads(g, k, kv);
    q->a.v = attention_split_heads(g, v, kv);
    return q->a.q && q->a.k && q->a.v;
}

/* seqlens_k counts all tokens of a sequence but one. In a first prompt nothing precedes, however
 * short the padded sequence is. */
static bool gqa_lengths(Lower *l, Gqa *q) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    Value last = lower_need(l, 5);
    if (!last || !lower_need(l, 6) || !lower_number_in(l, 6, &q->total)) return false;
    Expr batch = v_dim(g, q->a.q, 0);
    q->rows = v_dim(g, q->a.q, 2);
    q->cols = q->total;
    if (lower_has_in(l, 3) && lower_in(l, 3))
        q->cols = expr_max(p, v_dim(g, lower_in(l, 3), 2), q->total);
    last = build_cast(g, build_reshape(g, last, 1, &batch), DT_i64);
    Value past = v_sub(g, v_addf(g, last, 1), build_expr(g, DT_i64, q->rows));
    Value later = v_cond(g, expr_lt(p, q->rows, q->total));
    q->past = v_select_f(g, later, past, 0);
    return true;
}

static Value head_norm(Lower *l, uint32_t weight, Value x) {
    if (!lower_has_in(l, weight)) return x;
    Graph *g = lower_graph(l);
    Norm n = norm_rms(g, v_widen(g, x), 3, lower_f(l, "qk_norm_epsilon"), lower_in(l, weight));
    return v_cast_like(g, n.y, x);
}

static bool gqa_rotate(Lower *l, Gqa *q) {
    Graph *g = lower_graph(l);
    q->a.q = head_norm(l, 14, q->a.q);
    q->a.k = head_norm(l, 15, q->a.k);
    if (!lower_i(l, "do_rotary")) return true;
    Value positions = lower_in(l, 9);
    if (!positions) positions = v_add(g, v_append_axes(g, q->past, 1), v_iota(g, DT_i64, q->rows));
    if (!lower_has_in(l, 7) || !lower_has_in(l, 8))
        return lower_error(l, D_ARITY, "do_rotary needs cos_cache and sin_cache");
    Value cosine = cache_rows(g, lower_in(l, 7), positions, q->rows);
    Value sine = cache_rows(g, lower_in(l, 8), positions, q->rows);
    bool interleaved = lower_i(l, "rotary_interleaved") != 0;
    q->a.q = attention_rotate(g, q->a.q, cosine, sine, interleaved);
    q->a.k = attention_rotate(g, q->a.k, cosine, sine, interleaved);
    return q->a.q && q->a.k;
}

/* Past [B, KVH, P, D], stretched to q->cols, with the new rows written behind each sequence. */
static Value gqa_cache(Lower *l, const Gqa *q, uint32_t input, Value x) {
    Graph *g = lower_graph(l);
    Type t = *graph_type(g, x);
    Value past = lower_in(l, input);
    if (!past) return x;
    Expr zero = v_int(g, 0), lo[4] = {zero, zero, zero, zero}, hi[4] = {zero, zero, zero, zero};
    hi[2] = expr_sub(g->exprs, q->cols, v_dim(g, past, 2));
    Value cache = build_pad(g, past, v_const(g, past, 0), lo, hi, NULL);
    Value at = v_add(g, v_along(g, q->past, 4, 0), v_along(g, v_iota(g, DT_i64, q->rows), 4, 2));
    at = build_expand(g, at, 4, t.dim);
    return build_scatter(g, cache, x, (int8_t[]){0, 1, -1, 3}, &at, 1, SCATTER_set);
}

static bool gqa_masks(Lower *l, Gqa *q) {
    Graph *g = lower_graph(l);
    int64_t window = lower_i(l, "local_window_size");
    AttentionSpan s = {.rows = q->rows, .cols = q->cols, .left = -1, .right = 0};
    if (window > 0) s.left = window - 1;
    if (!lower_i(l, "causal")) s.right = -1;
    s.offset = v_append_axes(g, q->past, 3);
    if (s.right < 0) {
        Value length = v_add(g, q->past, build_expr(g, DT_i64, q->rows));
        q->a.keep = attention_length_mask(g, length, q->cols);
    }
    q->a.keep = attention_and(g, q->a.keep, attention_span_mask(g, &s));
    if (lower_has_in(l, 10) && lower_in(l, 10)) {
        Value bias = lower_in(l, 10);
        Expr missing = expr_sub(g->exprs, q->cols, v_dim(g, bias, 3)), zero = v_int(g, 0);
        q->a.bias = build_pad(g, bias, v_const(g, bias, 0), (Expr[]){zero, zero, zero, zero},
                              (Expr[]){zero, zero, zero, missing}, NULL);
    }
    Expr heads = v_dim(g, q->a.q, 1);
    q->a.sink = lower_in(l, 11);
    if (!q->a.sink && lower_i(l, "smooth_softmax") == 1) q->a.sink = v_zeros(g, DT_f32, 1, &heads);
    return true;
}

static bool gqa_supported(Lower *l) {
    const char *k = lower_s(l, "k_quant_type"), *v = lower_s(l, "v_quant_type");
    if (strcmp(k, "NONE") != 0 || strcmp(v, "NONE") != 0)
        return lower_unsupported(l, "keep the cache in the model's float type",
                                 "a quantised key-value cache");
    if (lower_i(l, "sliding_window_cache"))
        return lower_unsupported(l, "export without it", "sliding_window_cache");
    return true;
}

static bool lower_gqa(Lower *l) {
    Graph *g = lower_graph(l);
    Gqa q = {0};
    if (!gqa_supported(l) || !gqa_split(l, &q) || !gqa_lengths(l, &q) || !gqa_rotate(l, &q))
        return false;
    q.a.k = gqa_cache(l, &q, 3, q.a.k);
    q.a.v = gqa_cache(l, &q, 4, q.a.v);
    if (!q.a.k || !q.a.v || !read_scale(l, &q.a) || !gqa_masks(l, &q)) return false;
    q.a.softcap = lower_f(l, "softcap");
    lower_out(l, 0, attention_merge_heads(g, attention_build(g, &q.a)));
    if (lower_has_out(l, 1)) lower_out(l, 1, q.a.k);
    if (lower_has_out(l, 2)) lower_out(l, 2, q.a.v);
    if (!lower_has_out(l, 3)) return true;
    Value shown = lower_i(l, "qk_output") == 2 ? q.a.probability : q.a.masked;
    lower_out(l, 3, v_cast_like(g, shown, q.a.q));
    return true;
}

static const char *const mha_attrs[] = {"num_heads:i!", "unidirectional:i=0", "scale:f=0",
                                        "mask_filter_value:f=-10000", NULL};
static const char *const attention_attrs[] = {"num_heads:i!",
                                              "unidirectional:i=0",
                                              "scale:f=0",
                                              "mask_filter_value:f=-10000",
                                              "qkv_hidden_sizes:I",
                                              "do_rotary:i=0",
                                              "rotary_embedding_dim:i=0",
                                              "past_present_share_buffer:i=0",
                                              NULL};
static const char *const rotary_attrs[] = {"interleaved:i=0", "is_packed_batching:i=0",
                                           "num_heads:i=0",   "rotary_embedding_dim:i=0",
                                           "scale:f=1.0",     NULL};
static const char *const gqa_attrs[] = {"num_heads:i!",
                                        "kv_num_heads:i!",
                                        "scale:f=0",
                                        "softcap:f=0",
                                        "local_window_size:i=-1",
                                        "do_rotary:i=0",
                                        "rotary_interleaved:i=0",
                                        "smooth_softmax:i=-1",
                                        "causal:i=1",
                                        "qk_output:i=0",
                                        "qk_norm_epsilon:f=1e-6",
                                        "k_quant_type:s=NONE",
                                        "v_quant_type:s=NONE",
                                        "kv_cache_bit_width:i=0",
                                        "sliding_window_cache:i=0",
                                        NULL};

const OnnxOp ops_contrib_attention[] = {
    {"com.microsoft", "MultiHeadAttention", 1, 0, 1, 10, 1, 4, mha_attrs, lower_mha},
    {"com.microsoft", "Attention", 1, 0, 2, 7, 1, 2, attention_attrs, lower_ms_attention},
    {"com.microsoft", "RotaryEmbedding", 1, 0, 4, 4, 1, 1, rotary_attrs, lower_ms_rotary},
    {"com.microsoft", "GroupQueryAttention", 1, 0, 1, 16, 1, 4, gqa_attrs, lower_gqa},
    {0}};
