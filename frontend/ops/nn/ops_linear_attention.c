/* LinearAttention and CausalConvWithState: the carried-state layers of hybrid language models. */
#include "frontend/ops/nn/attention.h"
#include "frontend/ops/nn/recurrence.h"
#include <math.h>
#include <string.h>

enum { MAX_TAPS = 256 };

/* ---- CausalConvWithState ------------------------------------------------------------------- */

/* Depthwise over [past, x] [B, C, K-1+L]: tap k of a channel is a shifted view. */
static Value depthwise(Graph *g, Value padded, Value w, int64_t taps, Expr length) {
    Value sum = 0;
    for (int64_t k = 0; k < taps; k++) {
        Value x = build_slice_axis(g, padded, 2, v_int(g, k), length, 1);
        Value term = v_mul(g, x, v_at(g, w, 2, v_int(g, k))); /* by [C, 1] */
        sum = sum ? v_add(g, sum, term) : term;
    }
    return sum;
}

static bool lower_causal_conv(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), w = lower_in(l, 1), past = lower_in(l, 3);
    if (!x || !w) return false;
    static const char *const activations[] = {"none", "silu", "swish", NULL};
    int activation;
    int64_t taps;
    if (!lower_choice(l, "activation", activations, &activation)) return false;
    if (v_rank(g, x) != 3 || v_rank(g, w) != 3 || !v_dim_const(g, w, 2, &taps) || taps < 1)
        return lower_error(l, D_SHAPE, "input and weights need rank 3 and a constant kernel");
    if (taps > MAX_TAPS) return lower_unsupported(l, NULL, "%lld taps", (long long)taps);
    Expr batch = v_dim(g, x, 0), channels = v_dim(g, x, 1), length = v_dim(g, x, 2);
    if (!past) past = v_zeros(g, v_dtype(g, x), 3, (Expr[]){batch, channels, v_int(g, taps - 1)});
    if (v_rank(g, past) != 3) return lower_error(l, D_SHAPE, "the state must have rank 3");
    lower_assume(l, v_dim(g, past, 2), v_int(g, taps - 1));
    lower_assume(l, v_dim(g, w, 0), channels);
    Value padded = taps > 1 ? build_concat(g, (Value[]){past, x}, 2, 2) : x;
    Value y = depthwise(g, v_widen(g, padded), v_widen(g, w), taps, length);
    if (lower_has_in(l, 2)) y = v_add(g, y, v_append_axes(g, v_widen(g, lower_in(l, 2)), 1));
    if (activation) y = v_mul(g, y, v_sigmoid(g, y));
    lower_out(l, 0, v_cast_like(g, y, x));
    if (lower_has_out(l, 1))
        lower_out(l, 1, build_slice_axis(g, padded, 2, length, v_int(g, taps - 1), 1));
    return true;
}

/* ---- LinearAttention ----------------------------------------------------------------------- */

/* Time first: q, k, v [T, B, H, D], decay [T, B, H, 1 or DK], beta [T, B, H or 1, 1]. */
enum { IN_Q, IN_K, IN_V, IN_DECAY, IN_BETA };

typedef struct Linear {
    double scale;
} Linear;

/* Row vectors [B, H, D] times matrices [B, H, D, M]: [B, H, M] */
static Value times(Graph *g, Value v, Value m) {
    Value y = build_dot(g, build_unsqueeze(g, v, 2), m, DT_f32);
    return build_squeeze(g, y, 2);
}

/* S = exp(decay) S; v' = beta (v - S^T k); S += k v'^T; o = scale S^T q. Groups of query heads read
 * one state. */
static Value step_linear(Graph *g, const void *ctx, const Value *in, Expr t, Value *state) {
    const Linear *a = ctx;
    Value q = v_at(g, in[IN_Q], 0, t), k = v_at(g, in[IN_K], 0, t), v = v_at(g, in[IN_V], 0, t);
    Value s = state[0];
    if (!q || !k || !v) return 0;
    if (in[IN_DECAY]) s = v_mul(g, s, v_append_axes(g, v_exp(g, v_at(g, in[IN_DECAY], 0, t)), 1));
    if (in[IN_BETA]) v = v_mul(g, v_sub(g, v, times(g, k, s)), v_at(g, in[IN_BETA], 0, t));
    s = v_add(g, s, v_mul(g, v_append_axes(g, k, 1), build_unsqueeze(g, v, 2)));
    if (!s) return 0;
    state[0] = s;
    Type tq = *graph_type(g, q), ts = *graph_type(g, s);
    Expr groups = expr_div(g->exprs, tq.dim[1], ts.dim[1]);
    Value split = build_reshape(g, q, 4, (Expr[]){tq.dim[0], ts.dim[1], groups, tq.dim[2]});
    Value y = v_mulf(g, build_dot(g, split, s, DT_f32), a->scale);
    return build_reshape(g, y, 3, (Expr[]){tq.dim[0], tq.dim[1], ts.dim[3]});
}

/* [B, T, H*D] -> f32 [T, B, H, D] */
static Value time_first(Graph *g, Value x, int64_t heads) {
    if (!x) return 0;
    Type t = *graph_type(g, x);
    Expr h = v_int(g, heads), dim[4] = {t.dim[0], t.dim[1], h, expr_div(g->exprs, t.dim[2], h)};
    x = build_reshape(g, build_cast(g, x, DT_f32), 4, dim);
    return build_permute(g, x, (uint8_t[]){1, 0, 2, 3});
}

static bool read_rule(Lower *l, bool *gated, bool *delta) {
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta", NULL};
    int rule;
    if (!lower_choice(l, "update_rule", rules, &rule)) return false;
    *gated = rule & 1;
    *delta = rule & 2;
    if (*gated != lower_has_in(l, 4) || *delta != lower_has_in(l, 5))
        return lower_error(l, D_ARITY, "decay and beta do not fit update_rule \"%s\"", rules[rule]);
    return true;
}

static bool lower_linear_attention(Lower *l) {
    Graph *g = lower_graph(l);
    Value q = lower_in(l, 0), k = lower_in(l, 1), v = lower_in(l, 2), past = lower_in(l, 3);
    if (!q || !k || !v) return false;
    int64_t heads = lower_i(l, "q_num_heads"), kv = lower_i(l, "kv_num_heads"), dk;
    bool gated, delta, one_beta;
    if (heads < 1 || kv < 1 || heads % kv)
        return lower_error(l, D_ATTRIBUTE, "q_num_heads is no multiple of kv_num_heads");
    if (!read_rule(l, &gated, &delta)) return false;
    Recurrence r = {.nstates = 1, .steps = v_dim(g, q, 1), .step = step_linear};
    r.in[IN_Q] = time_first(g, q, heads);
    r.in[IN_K] = time_first(g, k, kv);
    r.in[IN_V] = time_first(g, v, kv);
    if (!r.in[IN_Q] || !r.in[IN_K] || !r.in[IN_V]) return false;
    if (gated) r.in[IN_DECAY] = time_first(g, lower_in(l, 4), kv);
    one_beta = delta && expr_is_value(g->exprs, v_dim(g, lower_in(l, 5), 2), 1);
    if (delta) r.in[IN_BETA] = time_first(g, lower_in(l, 5), one_beta ? 1 : kv);
    Linear a = {lower_f(l, "scale")};
    if (a.scale == 0 && !v_dim_const(g, r.in[IN_K], 3, &dk))
        return lower_unsupported(l, "give the attribute scale", "a symbolic head size");
    if (a.scale == 0) a.scale = 1 / sqrt((double)dk);
    r.ctx = &a;
    Expr batch = v_dim(g, q, 0);
    Expr dim[4] = {batch, v_int(g, kv), v_dim(g, r.in[IN_K], 3), v_dim(g, r.in[IN_V], 3)};
    r.state[0] = past ? build_cast(g, past, DT_f32) : v_zeros(g, DT_f32, 4, dim);
    Value y = build_permute(g, recurrence_run(l, &r), (uint8_t[]){1, 0, 2, 3});
    if (!y) return false;
    Expr width = expr_muli(g->exprs, dim[3], heads);
    y = build_reshape(g, y, 3, (Expr[]){batch, v_dim(g, q, 1), width});
    lower_out(l, 0, v_cast_like(g, y, q));
    if (lower_has_out(l, 1)) lower_out(l, 1, v_cast_like(g, r.state[0], past ? past : q));
    return true;
}

/* onnxruntime's versions have more options. */
static bool plain_layout(Lower *l) {
    if (!lower_i(l, "state_window")) return true;
    return lower_unsupported(l, "export without it", "state_window");
}

static bool lower_ms_causal_conv(Lower *l) {
    if (lower_i(l, "channels_last") || lower_i(l, "dilation") != 1 || lower_i(l, "ndim") != 1)
        return lower_unsupported(l, NULL, "channels_last, dilation or ndim");
    return plain_layout(l) && lower_causal_conv(l);
}

static bool lower_ms_linear_attention(Lower *l) {
    return plain_layout(l) && lower_linear_attention(l);
}

static const char *const ms_conv_attrs[] = {
    "activation:s=none", "state_window:i=0", "channels_last:i=0", "dilation:i=1", "ndim:i=1", NULL};
static const char *const ms_linear_attrs[] = {"q_num_heads:i!",
                                              "kv_num_heads:i!",
                                              "chunk_size:i=64",
                                              "scale:f=0",
                                              "update_rule:s=gated_delta",
                                              "state_window:i=0",
                                              NULL};
static const char *const conv_attrs[] = {"activation:s=none", NULL};
static const char *const linear_attrs[] = {
    "q_num_heads:i!", "kv_num_heads:i!",           "chunk_size:i=64",
    "scale:f=0",      "update_rule:s=gated_delta", NULL};

const OnnxOp ops_linear_attention[] = {
    {"", "CausalConvWithState", 27, 0, 2, 4, 1, 2, conv_attrs, lower_causal_conv},
    {"", "LinearAttention", 27, 0, 3, 6, 1, 2, linear_attrs, lower_linear_attention},
    {"com.microsoft", "CausalConvWithState", 1, 0, 2, 4, 1, 2, ms_conv_attrs, lower_ms_causal_conv},
    {"com.microsoft", "LinearAttention", 1, 0, 3, 6, 1, 2, ms_linear_attrs,
     lower_ms_linear_attention},
    {0}};
