#include "frontend/ops/ml/ml.h"
#include "runtime/base/arena.h"
#include <math.h>
#include <string.h>

Value ml_rows(Lower *l, bool wide) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    if (!x || !lower_is(l, 0, TYPES_FLOAT | TYPES_INT | TYPES_BOOL)) return 0;
    if (v_rank(g, x) == 1) x = build_unsqueeze(g, x, 0);
    if (v_rank(g, x) != 2) {
        lower_error(l, D_SHAPE, "features are a matrix with a row for each sample, not of rank %d",
                    v_rank(g, x));
        return 0;
    }
    return build_cast(g, x, wide && v_dtype(g, x) == DT_f64 ? DT_f64 : DT_f32);
}

bool ml_columns(Lower *l, Value rows, int64_t least, int64_t *n) {
    Graph *g = lower_graph(l);
    if (!v_dim_const(g, rows, 1, n))
        return lower_unsupported(l, "fix it with --dim", "the number of features is not known");
    if (*n < least)
        return lower_error(l, D_SHAPE, "it needs %lld features, the input has %lld",
                           (long long)least, (long long)*n);
    return true;
}

Value ml_matrix(Graph *g, DType t, const double *v, int64_t rows, int64_t columns) {
    const Type type = {.dtype = t, .rank = 2, .dim = {v_int(g, rows), v_int(g, columns)}};
    const size_t n = (size_t)(rows * columns), bytes = n * dtype_bytes(t);
    char *data = arena_alloc(g->arena, bytes + 1);
    for (size_t i = 0; i < n; i++) {
        const float narrow = (float)v[i];
        if (t == DT_f64)
            memcpy(data + i * sizeof *v, v + i, sizeof *v);
        else
            memcpy(data + i * sizeof narrow, &narrow, sizeof narrow);
    }
    return build_const(g, type, (Constant){.data = data, .bytes = bytes});
}

const double *ml_floats(Lower *l, const char *name, uint32_t *n) {
    const float *v = lower_floats(l, name, n);
    if (!v || *n == 0) return NULL;
    double *out = arena_array(lower_graph(l)->arena, *n, sizeof *out);
    for (uint32_t i = 0; i < *n; i++) out[i] = (double)v[i];
    return out;
}

const double *ml_numbers(Lower *l, const char *list, const char *tensor, uint32_t *n, DType *t) {
    Graph *g = lower_graph(l);
    Value v = 0;
    *n = 0;
    *t = DT_f32;
    if (!lower_tensor(l, tensor, &v)) return list ? ml_floats(l, list, n) : NULL;
    const Node *node = graph_node(g, v);
    if (node->op != OP_const) return NULL;
    *t = node->type.dtype;
    *n = (uint32_t)(node->attr.constant.bytes / dtype_bytes(*t));
    double *out = arena_array(g->arena, *n + 1, sizeof *out);
    for (uint32_t i = 0; i < *n; i++) out[i] = dtype_load_f64(*t, node->attr.constant.data, i);
    return out;
}

bool ml_post(Lower *l, MlPost *out) {
    static const char *const names[] = {"NONE",         "SOFTMAX", "LOGISTIC",
                                        "SOFTMAX_ZERO", "PROBIT",  NULL};
    int which;
    if (!lower_choice(l, "post_transform", names, &which)) return false;
    *out = (MlPost)which;
    return true;
}

/* Softmax that leaves zeros out: they become 0, up to rounding, and do not count in the sum. */
static Value softmax_zero(Graph *g, Value x) {
    const uint32_t last = v_axes_from(v_rank(g, x) - 1, v_rank(g, x));
    const Value max = build_reduce(g, OP_reduce_max, x, last, true);
    const Value counts = v_lt(g, v_const(g, x, 1e-7), v_abs(g, x));
    const Value e = v_exp(g, v_sub(g, x, max));
    const Value sum = build_reduce(g, OP_reduce_sum, v_select_f(g, counts, e, 0), last, true);
    const Value zeros = v_mul(g, x, v_exp(g, v_neg(g, max)));
    return v_div(g, build_select(g, counts, e, zeros), sum);
}

/* The normal distribution's quantile, sqrt(2) erfinv(2x - 1), by the approximation of Winitzki, "A
 * handy approximation for the error function and its inverse" (2008), with a = 0.147. */
static Value probit(Graph *g, Value x) {
    const double a = 0.147, pi = 3.14159;
    const Value y = v_addf(g, v_mulf(g, x, 2), -1);
    const Value log = v_log(g, v_sub(g, v_const(g, x, 1), v_square(g, y)));
    const Value half = v_addf(g, v_mulf(g, log, 0.5), 2 / (pi * a));
    const Value root = v_sqrt(g, v_sub(g, v_square(g, half), v_divf(g, log, a)));
    const Value size = v_sqrt(g, v_sub(g, root, half));
    const Value signed_size = build_select(g, v_ltf(g, y, 0), v_neg(g, size), size);
    return v_mulf(g, signed_size, 1.41421356);
}

Value ml_transform(Graph *g, Value scores, MlPost post) {
    if (!scores) return 0;
    switch (post) {
    case ML_SOFTMAX:
        return v_softmax(g, scores, v_axes_from(v_rank(g, scores) - 1, v_rank(g, scores)));
    case ML_LOGISTIC: return v_sigmoid(g, scores);
    case ML_SOFTMAX_ZERO: return softmax_zero(g, scores);
    case ML_PROBIT: return probit(g, scores);
    case ML_NONE: break;
    }
    return scores;
}

Value ml_two_classes(Graph *g, Value score, MlFirst first) {
    if (!score) return 0;
    const Value other =
        first == ML_NEGATED ? v_neg(g, score) : v_sub(g, v_const(g, score, 1), score);
    return build_concat(g, (const Value[]){other, score}, 2, 1);
}

Value ml_labels(Lower *l, const char *ints, const char *strings, int64_t *n) {
    uint32_t count, texts;
    lower_strings(l, strings, &texts);
    if (texts) {
        lower_unsupported(l, "export it with integer labels", "its labels are strings ('%s')",
                          strings);
        return 0;
    }
    const int64_t *v = lower_ints(l, ints, &count);
    if (!v || !count) {
        lower_error(l, D_ATTRIBUTE, "'%s' has no labels", ints);
        return 0;
    }
    *n = count;
    return build_ints(lower_graph(l), DT_i64, v, count);
}

void ml_out_label(Lower *l, Value labels, Value position) {
    lower_out(l, 0, build_take(lower_graph(l), labels, position, 0));
}
