/* Linear models of ai.onnx.ml. */
#include "frontend/ops/ml/ml.h"
#include "runtime/base/arena.h"
#include <math.h>

Value ml_weights(Lower *l, Value rows, const char *name, int64_t m) {
    uint32_t n;
    int64_t features;
    const double *w = ml_floats(l, name, &n);
    if (!w || m <= 0 || n % m) {
        lower_error(l, D_ATTRIBUTE, "'%s' has %u numbers, not a row for each of %lld", name, n,
                    (long long)m);
        return 0;
    }
    if (!ml_columns(l, rows, n / m, &features)) return 0;
    if (features != n / m) {
        lower_error(l, D_SHAPE, "'%s' is for %lld features, the input has %lld", name,
                    (long long)(n / m), (long long)features);
        return 0;
    }
    return ml_matrix(lower_graph(l), DT_f32, w, m, features);
}

Value ml_products(Lower *l, Value rows, const char *name, int64_t m) {
    Graph *g = lower_graph(l);
    const Value w = ml_weights(l, rows, name, m);
    return w ? build_matmul(g, rows, v_transpose(g, w), DT_f32) : 0;
}

static bool lower_linear_regressor(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t n;
    MlPost post;
    const float *intercepts = lower_floats(l, "intercepts", &n);
    const int64_t targets = lower_i(l, "targets");
    const Value rows = ml_rows(l, false);
    if (!rows || !ml_post(l, &post)) return false;
    Value y = ml_products(l, rows, "coefficients", targets);
    if (intercepts && n) {
        if (n != targets) return lower_error(l, D_ATTRIBUTE, "'intercepts' has %u numbers", n);
        y = v_add(g, y, v_floats(g, intercepts, n));
    }
    lower_out(l, 0, ml_transform(g, y, post));
    return y != 0;
}

static bool lower_linear_classifier(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t n;
    int64_t nlabels;
    MlPost post;
    const float *intercepts = lower_floats(l, "intercepts", &n);
    const Value rows = ml_rows(l, false);
    const Value labels = ml_labels(l, "classlabels_ints", "classlabels_strings", &nlabels);
    if (!rows || !labels || !ml_post(l, &post)) return false;
    if (!n) return lower_unsupported(l, NULL, "it has no 'intercepts', which say how many classes");
    if (n != nlabels && !(n == 1 && nlabels == 2))
        return lower_error(l, D_ATTRIBUTE, "%u classes have %lld labels", n, (long long)nlabels);
    Value y = ml_products(l, rows, "coefficients", n);
    if (!y) return false;
    y = v_add(g, y, v_floats(g, intercepts, n));
    if (n > 1) {
        ml_out_label(l, labels, build_arg_reduce(g, OP_argmax, y, 1, false, false));
        lower_out(l, 1, ml_transform(g, y, post));
        return true;
    }
    const Value second = build_cast(g, v_ltf(g, v_neg(g, y), 0), DT_i64);
    ml_out_label(l, labels, build_squeeze(g, second, 1));
    /* of two classes the second's score is transformed, and the first has what is left */
    lower_out(l, 1,
              nlabels == 2
                  ? ml_two_classes(g, post == ML_LOGISTIC ? v_sigmoid(g, y) : y, ML_COMPLEMENT)
                  : ml_transform(g, y, post));
    return true;
}

static const char *const regressor_attrs[] = {"coefficients:F", "intercepts:F", "targets:i=1",
                                              "post_transform:s=NONE", NULL};
static const char *const classifier_attrs[] = {"coefficients:F!",
                                               "intercepts:F",
                                               "classlabels_ints:I",
                                               "classlabels_strings:S",
                                               "post_transform:s=NONE",
                                               "multi_class:i=0",
                                               NULL};

const OnnxOp ops_ml_linear[] = {
    {ML, "LinearRegressor", 1, 0, 1, 1, 1, 1, regressor_attrs, lower_linear_regressor},
    {ML, "LinearClassifier", 1, 0, 1, 1, 1, 2, classifier_attrs, lower_linear_classifier},
    {0},
};
