/* com.microsoft: mixtures of experts. Every expert is computed for every token and weighted, with 0
 * where the router did not choose it: fixed sizes and plain products. */
#include "frontend/ops/nn/activation.h"
#include "frontend/ops/tensor/quant.h"
#include <string.h>

typedef struct Moe {
    Value x;       /* [T, hidden] */
    Value routing; /* [T, E], 0 for experts that are not chosen */
    DType wide;
    Expr experts, tokens;
} Moe;

/* Softmax of the logits, cut to the k largest of each row. */
static Value route(Lower *l, Value logits, int64_t k) {
    Graph *g = lower_graph(l);
    Value p = v_softmax(g, logits, 1u << 1);
    Value order = build_argsort(g, logits, 1, true);
    Value rank = build_argsort(g, order, 1, false);
    p = v_select_f(g, v_ltf(g, rank, (double)k), p, 0);
    if (!lower_i(l, "normalize_routing_weights")) return p;
    return v_div(g, p, build_reduce(g, OP_reduce_sum, p, 2, true));
}

static bool moe_read(Lower *l, Moe *m) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), logits = lower_in(l, 1);
    if (!x || !logits) return false;
    if (lower_i(l, "use_sparse_mixer")) return lower_unsupported(l, NULL, "use_sparse_mixer");
    if (lower_i(l, "k") < 1)
        return lower_error(l, D_ATTRIBUTE, "'k' is %lld", (long long)lower_i(l, "k"));
    if (v_rank(g, logits) != 2 || v_rank(g, x) < 2)
        return lower_error(l, D_SHAPE, "router_probs of rank %d", v_rank(g, logits));
    m->wide = v_wide_type(v_dtype(g, x));
    m->tokens = v_dim(g, logits, 0), m->experts = v_dim(g, logits, 1);
    Expr hidden = v_dim(g, x, v_rank(g, x) - 1);
    m->x = build_reshape(g, x, 2, (Expr[]){m->tokens, hidden});
    m->routing = route(l, v_widen(g, logits), lower_i(l, "k"));
    return m->x && m->routing;
}

/* x [E, T, K] with w [E, N, K] and bias [E, N] or 0: [E, T, N] */
static Value experts_product(Graph *g, const Moe *m, Value x, Value w, Value bias) {
    Value y = build_dot(g, x, v_transpose(g, w), m->wide);
    return bias ? v_add(g, y, build_unsqueeze(g, v_cast_like(g, bias, y), 1)) : y;
}

/* Gate and linear part lie in turn, or one half after the other. */
static Value swiglu(Lower *l, Value h) {
    Graph *g = lower_graph(l);
    if (!h) return 0;
    bool interleaved = lower_i(l, "swiglu_fusion") == 1;
    Expr half = expr_div(g->exprs, v_dim(g, h, 2), v_int(g, 2));
    int64_t step = interleaved ? 2 : 1;
    Value gate = build_slice_axis(g, h, 2, v_int(g, 0), half, step);
    Value line = build_slice_axis(g, h, 2, interleaved ? v_int(g, 1) : half, half, step);
    if (lower_has_attr(l, "swiglu_limit")) {
        double limit = lower_f(l, "swiglu_limit");
        gate = v_minf(g, gate, limit);
        line = v_clamp(g, line, -limit, limit);
    }
    Value s = v_sigmoid(g, v_mulf(g, gate, lower_f(l, "activation_alpha")));
    return v_mul(g, v_mul(g, gate, s), v_addf(g, line, lower_f(l, "activation_beta")));
}

static bool activate(Lower *l, Value *h) {
    Graph *g = lower_graph(l);
    const char *name = lower_s(l, "activation_type");
    if (!strcmp(name, "swiglu")) {
        if (!lower_i(l, "swiglu_fusion"))
            return lower_unsupported(l, NULL, "swiglu with separate weights");
        *h = swiglu(l, *h);
        return true;
    }
    if (!strcmp(name, "silu")) {
        *h = v_mul(g, *h, v_sigmoid(g, *h));
        return true;
    }
    const Activation *f = activation_find(!strcmp(name, "identity") ? "" : name);
    if (!f) return lower_unsupported(l, NULL, "activation_type \"%s\"", name);
    *h = f->build(g, *h, f->alpha, f->beta);
    return true;
}

/* Weights [E, N, K] and biases of the three layers in the type of x; w[2] may be 0. */
static bool moe_build(Lower *l, const Moe *m, const Value w[3], const Value bias[3]) {
    Graph *g = lower_graph(l);
    Value x = build_unsqueeze(g, m->x, 0);
    if (!x || !w[0] || !w[1]) return false;
    x = build_expand(g, x, 3, (Expr[]){m->experts, m->tokens, v_dim(g, x, 2)});
    Value h = experts_product(g, m, x, w[0], bias[0]);
    if (!activate(l, &h)) return false;
    if (w[2]) h = v_mul(g, h, experts_product(g, m, x, w[2], bias[2]));
    Value y = experts_product(g, m, v_cast_like(g, h, x), w[1], bias[1]); /* [E, T, hidden] */
    Value weight = v_append_axes(g, v_transpose(g, m->routing), 1);
    y = build_reduce(g, OP_reduce_sum, v_mul(g, y, weight), 1, false);
    lower_out(l, 0, v_reshape_like(g, v_cast_like(g, y, m->x), lower_in(l, 0)));
    return true;
}

static bool lower_moe(Lower *l) {
    Moe m;
    if (!moe_read(l, &m)) return false;
    Value w[3] = {lower_in(l, 2), lower_need(l, 4), lower_in(l, 6)};
    Value bias[3] = {lower_in(l, 3), lower_in(l, 5), lower_in(l, 7)};
    return moe_build(l, &m, w, bias);
}

/* Packed [E, N, K * bits/8] with scales [E, N] or [E, N, blocks] as floats [E, N, K]. */
static Value dequantise(Lower *l, const Moe *m, uint32_t weight, uint32_t scale, uint32_t zero,
                        int64_t bits) {
    Graph *g = lower_graph(l);
    Value q = lower_in(l, weight), s = lower_in(l, scale), z = lower_in(l, zero);
    if (!q || !s) return 0;
    int64_t block = lower_i(l, "block_size");
    q = build_cast(g, quant_unpack_bits(g, q, bits), m->wide);
    s = build_cast(g, s, m->wide);
    if (z) z = build_cast(g, quant_unpack_bits(g, z, bits), m->wide);
    Expr size = v_dim(g, q, 2), blocks = v_int(g, 1);
    if (v_rank(g, s) == 2) s = build_unsqueeze(g, s, 2);
    if (z && v_rank(g, z) == 2) z = build_unsqueeze(g, z, 2);
    if (block > 0) {
        blocks = v_dim(g, s, 2);
        if (z) z = build_slice_axis(g, z, 2, v_int(g, 0), blocks, 1);
        s = quant_spread_blocks(g, s, size, 2, block);
        if (z) z = quant_spread_blocks(g, z, size, 2, block);
    }
    q = z ? v_sub(g, q, z) : v_addf(g, q, -(double)(1 << (bits - 1)));
    return v_cast_like(g, v_mul(g, q, s), m->x);
}

static bool lower_qmoe(Lower *l) {
    Moe m;
    static const char *const own_bits[3] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                            "fc3_expert_weight_bits"};
    if (strcmp(lower_s(l, "quant_type"), "int") != 0)
        return lower_unsupported(l, NULL, "quant_type \"%s\"", lower_s(l, "quant_type"));
    for (uint32_t i = 14; i < lower_nin(l); i++)
        if (lower_has_in(l, i)) return lower_unsupported(l, NULL, "input %u", i);
    if (lower_i(l, "weights_prepacked") > 0)
        return lower_unsupported(l, "export without prepacking", "prepacked weights");
    if (!moe_read(l, &m)) return false;
    if (!lower_need(l, 2) || !lower_need(l, 3) || !lower_need(l, 5) || !lower_need(l, 6))
        return false;
    Value w[3] = {0}, bias[3] = {lower_in(l, 4), lower_in(l, 7), lower_in(l, 10)};
    for (uint32_t i = 0; i < 3; i++) {
        if (!lower_has_in(l, 2 + 3 * i)) continue;
        int64_t bits =
            lower_i(l, lower_has_attr(l, own_bits[i]) ? own_bits[i] : "expert_weight_bits");
        if (bits != 2 && bits != 4 && bits != 8)
            return lower_unsupported(l, NULL, "%lld-bit weights", (long long)bits);
        w[i] = dequantise(l, &m, 2 + 3 * i, 3 + 3 * i, 11 + i, bits);
    }
    return moe_build(l, &m, w, bias);
}

#define MOE_ATTRS                                                                                  \
    "k:i=1", "activation_type:s=relu", "normalize_routing_weights:i=0", "use_sparse_mixer:i=0",    \
        "swiglu_fusion:i=0", "swiglu_limit:f=0", "activation_alpha:f=1.0", "activation_beta:f=0"
static const char *const moe_attrs[] = {MOE_ATTRS, NULL};
static const char *const qmoe_attrs[] = {MOE_ATTRS,
                                         "expert_weight_bits:i=4",
                                         "fc1_expert_weight_bits:i=0",
                                         "fc2_expert_weight_bits:i=0",
                                         "fc3_expert_weight_bits:i=0",
                                         "block_size:i=0",
                                         "quant_type:s=int",
                                         "accuracy_level:i=0",
                                         "weights_prepacked:i=-1",
                                         NULL};

const OnnxOp ops_contrib_moe[] = {
    {"com.microsoft", "MoE", 1, 0, 3, 8, 1, 1, moe_attrs, lower_moe},
    {"com.microsoft", "QMoE", 1, 0, 3, 21, 1, 1, qmoe_attrs, lower_qmoe},
    {0}};
