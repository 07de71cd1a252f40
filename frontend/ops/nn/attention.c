#include "frontend/ops/nn/attention.h"
#include <math.h>

static const uint8_t swap_heads[4] = {0, 2, 1, 3};

Value attention_split_heads(Graph *g, Value x, int64_t heads) {
    if (!x) return 0;
    Type t = *graph_type(g, x);
    Expr h = v_int(g, heads);
    Expr dim[4] = {t.dim[0], t.dim[1], h, expr_div(g->exprs, t.dim[2], h)};
    return build_permute(g, build_reshape(g, x, 4, dim), swap_heads);
}

Value attention_merge_heads(Graph *g, Value x) {
    x = build_permute(g, x, swap_heads);
    if (!x) return 0;
    Type t = *graph_type(g, x);
    Expr dim[3] = {t.dim[0], t.dim[1], expr_mul(g->exprs, t.dim[2], t.dim[3])};
    return build_reshape(g, x, 3, dim);
}

bool attention_check_heads(Lower *l, const Attention *a) {
    const Graph *g = lower_graph(l);
    int64_t heads, kv;
    if (!v_dim_const(g, a->q, 1, &heads) || !v_dim_const(g, a->k, 1, &kv) || kv == 0 ||
        heads % kv == 0)
        return true;
    return lower_error(l, D_SHAPE, "%lld heads of Q are no multiple of %lld of K", (long long)heads,
                       (long long)kv);
}

/* [B, KVH, T, D] -> [B, H, T, D]: head h reads head h / (H / KVH). */
static Value repeat_heads(Graph *g, Value x, Expr heads) {
    if (!x || v_dim(g, x, 1) == heads) return x;
    Type t = *graph_type(g, x);
    Expr times = expr_div(g->exprs, heads, t.dim[1]);
    x = build_unsqueeze(g, x, 2);
    x = build_expand(g, x, 5, (Expr[]){t.dim[0], t.dim[1], times, t.dim[2], t.dim[3]});
    return build_reshape(g, x, 4, (Expr[]){t.dim[0], heads, t.dim[2], t.dim[3]});
}

/* One more column, the sink, which takes its share of the sum and is dropped again. */
static Value softmax_with_sink(Graph *g, Value x, Value sink) {
    sink = v_cast_like(g, v_along(g, sink, 4, 1), x);
    Value top = v_max(g, build_reduce(g, OP_reduce_max, x, 8, true), sink);
    Value e = v_exp(g, v_sub(g, x, top));
    Value sum = build_reduce(g, OP_reduce_sum, e, 8, true);
    return v_div(g, e, v_add(g, sum, v_exp(g, v_sub(g, sink, top))));
}

static Value probabilities(Graph *g, const Attention *a) {
    Value x = a->masked;
    if (a->precision) x = build_cast(g, x, v_wide_type(a->precision));
    if (a->modify) x = a->modify(a->ctx, false, x);
    Value p = a->sink ? softmax_with_sink(g, x, a->sink) : v_softmax(g, x, 1u << 3);
    if (a->may_mask_all) p = build_select(g, build_unary(g, OP_isnan, p), v_const(g, p, 0), p);
    return a->modify ? a->modify(a->ctx, true, p) : p;
}

Value attention_build(Graph *g, Attention *a) {
    if (!a->q || !a->k || !a->v) return 0;
    Expr heads = v_dim(g, a->q, 1);
    DType type = v_dtype(g, a->q), wide = v_wide_type(type);
    Value k = repeat_heads(g, a->k, heads), v = repeat_heads(g, a->v, heads);
    a->raw = v_mulf(g, build_dot(g, a->q, v_transpose(g, k), wide), a->scale);
    a->capped = a->raw;
    if (a->softcap > 0) a->capped = v_mulf(g, v_tanh(g, v_divf(g, a->raw, a->softcap)), a->softcap);
    a->masked = a->capped;
    if (a->bias) a->masked = v_add(g, a->masked, v_cast_like(g, a->bias, a->masked));
    if (a->keep) a->masked = v_select_f(g, a->keep, a->masked, -INFINITY);
    a->probability = probabilities(g, a);
    Value y = build_dot(g, build_cast(g, a->probability, type), v, wide);
    return build_cast(g, y, type);
}

/* ---- Masks --------------------------------------------------------------------------------- */

Value attention_and(Graph *g, Value x, Value y) {
    return !x ? y : !y ? x : v_and(g, x, y);
}

Value attention_span_mask(Graph *g, const AttentionSpan *s) {
    Value row = v_along(g, v_iota(g, DT_i64, s->rows), 2, 0);
    Value col = v_along(g, v_iota(g, DT_i64, s->cols), 2, 1);
    Value at = s->offset ? v_add(g, row, s->offset) : row, keep = 0;
    if (s->right >= 0) keep = v_le(g, col, s->right ? v_addf(g, at, (double)s->right) : at);
    if (s->left >= 0) keep = attention_and(g, keep, v_le(g, v_addf(g, at, -(double)s->left), col));
    return keep;
}

Value attention_length_mask(Graph *g, Value lengths, Expr cols) {
    lengths = v_append_axes(g, build_cast(g, lengths, DT_i64), 3);
    return v_lt(g, v_iota(g, DT_i64, cols), lengths);
}

/* ---- Rotary embedding ---------------------------------------------------------------------- */

/* Elements start, start+step ... of the last axis, n of them. */
static Value part(Graph *g, Value x, Expr start, Expr n, int64_t step) {
    return x ? build_slice_axis(g, x, v_rank(g, x) - 1, start, n, step) : 0;
}

Value attention_rotate(Graph *g, Value x, Value cosine, Value sine, bool interleaved) {
    if (!x || !cosine || !sine) return 0;
    ExprPool *p = g->exprs;
    Expr zero = v_int(g, 0), half = v_dim(g, cosine, 2), size = v_dim(g, x, 3);
    Expr rotated = expr_muli(p, half, 2), rest = expr_sub(p, size, rotated);
    Value a = part(g, x, zero, half, interleaved ? 2 : 1);
    Value b = part(g, x, interleaved ? v_int(g, 1) : half, half, interleaved ? 2 : 1);
    Value c = build_unsqueeze(g, v_cast_like(g, cosine, x), 1);
    Value s = build_unsqueeze(g, v_cast_like(g, sine, x), 1);
    Value real = v_sub(g, v_mul(g, a, c), v_mul(g, b, s));
    Value imag = v_add(g, v_mul(g, a, s), v_mul(g, b, c));
    Value y;
    if (interleaved && real && imag) {
        Value pair[2] = {build_unsqueeze(g, real, 4), build_unsqueeze(g, imag, 4)};
        Type t = *graph_type(g, x);
        y = build_concat(g, pair, 2, 4);
        y = build_reshape(g, y, 4, (Expr[]){t.dim[0], t.dim[1], t.dim[2], rotated});
    } else {
        y = build_concat(g, (Value[]){real, imag}, 2, 3);
    }
    if (expr_is_value(p, rest, 0)) return y;
    return build_concat(g, (Value[]){y, part(g, x, rotated, rest, 1)}, 2, 3);
}
