/* Losses over classes: scores [N, C, d...], labels [N, d...]. */
#include "frontend/import/formula.h"

/* x[n, labels[n, d..], d..] */
static Value pick_class(Graph *g, Value x, Value labels) {
    if (!x || !labels) return 0;
    int rank = v_rank(g, x);
    Type t = *graph_type(g, labels);
    int8_t src[GRAPH_MAX_RANK] = {0, -1};
    for (int i = 2; i < rank; i++) src[i] = (int8_t)(i - 1);
    return build_gather(g, x, src, &labels, 1, t.rank, t.dim);
}

/* Weight of each label, 0 for ignored ones; 0 (none) if all count one. */
static Value label_weights(Lower *l, Value labels, DType t) {
    Graph *g = lower_graph(l);
    Value w = 0;
    if (lower_has_in(l, 2)) {
        Type lt = *graph_type(g, labels);
        w = build_gather(g, build_cast(g, lower_in(l, 2), t), (int8_t[]){-1}, &labels, 1, lt.rank,
                         lt.dim);
    }
    if (!lower_has_attr(l, "ignore_index")) return w;
    Value kept = build_binary_f(g, OP_ne, labels, (double)lower_i(l, "ignore_index"));
    if (!w) return build_cast(g, kept, t);
    return v_select_f(g, kept, w, 0);
}

/* The loss out of log probabilities of a wide type. */
static bool reduce_loss(Lower *l, Value log_prob, Value labels, Value *out) {
    Graph *g = lower_graph(l);
    static const char *const reductions[] = {"none", "sum", "mean", NULL};
    int how;
    if (!log_prob || !labels || !lower_choice(l, "reduction", reductions, &how)) return false;
    if (v_rank(g, log_prob) != v_rank(g, labels) + 1 || v_rank(g, log_prob) < 2)
        return lower_error(l, D_SHAPE, "scores of rank %d, labels of rank %d", v_rank(g, log_prob),
                           v_rank(g, labels));
    for (int i = 0; i < v_rank(g, labels); i++)
        lower_assume(l, v_dim(g, labels, i), v_dim(g, log_prob, i ? i + 1 : 0));
    if (!lower_vector(l, 2, v_dim(g, log_prob, 1))) return false;
    Value w = label_weights(l, labels, v_dtype(g, log_prob));
    Value loss = v_neg(g, pick_class(g, log_prob, labels));
    if (w) loss = build_select(g, v_eqf(g, w, 0), v_const(g, loss, 0), v_mul(g, loss, w));
    uint32_t all = v_axes_from(0, v_rank(g, labels));
    if (how == 0)
        *out = loss;
    else if (how == 1)
        *out = build_reduce(g, OP_reduce_sum, loss, all, false);
    else
        *out = w ? v_div(g, build_reduce(g, OP_reduce_sum, loss, all, false),
                         build_reduce(g, OP_reduce_sum, w, all, false))
                 : build_mean(g, loss, all, false);
    return true;
}

static bool lower_nll_loss(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), loss;
    if (!reduce_loss(l, v_widen(g, x), lower_in(l, 1), &loss)) return false;
    lower_out(l, 0, v_cast_like(g, loss, x));
    return true;
}

static bool lower_softmax_loss(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), loss;
    Value log_prob = v_log_softmax(g, v_widen(g, x), 1u << 1);
    if (!reduce_loss(l, log_prob, lower_in(l, 1), &loss)) return false;
    lower_out(l, 0, v_cast_like(g, loss, x));
    if (lower_has_out(l, 1)) lower_out(l, 1, v_cast_like(g, log_prob, x));
    return true;
}

static const char *const loss_attrs[] = {"reduction:s=mean", "ignore_index:i=0", NULL};

const OnnxOp ops_loss[] = {
    {"", "NegativeLogLikelihoodLoss", 12, 0, 2, 3, 1, 1, loss_attrs, lower_nll_loss},
    {"", "SoftmaxCrossEntropyLoss", 12, 0, 2, 3, 1, 2, loss_attrs, lower_softmax_loss},
    {0}};
