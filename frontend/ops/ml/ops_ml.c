/* Operators of ai.onnx.ml that work on numbers. */
#include "frontend/import/formula.h"
#include <math.h>

static bool lower_binarizer(Lower *l) {
    Graph *g = lower_graph(l);
    const DType t = lower_type(l, 0)->dtype;
    const double threshold = lower_f(l, "threshold"); /* an integer exceeds it where it exceeds */
    Value limit = dtype_is_float(t) ? build_scalar_f(g, t, threshold) /* its floor */
                                    : build_scalar_i(g, t, (int64_t)floor(threshold));
    Value above = v_lt(g, limit, lower_in(l, 0));
    lower_out(l, 0, build_cast(g, above, t));
    return true;
}

/* Columns of the last axis; a vector counts as one row. */
static bool lower_array_feature_extractor(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), y = lower_in(l, 1);
    if (!x || !y) return true;
    if (graph_type(g, x)->rank == 0) return lower_error(l, D_SHAPE, "the input is a scalar");
    if (graph_type(g, x)->rank == 1) x = build_unsqueeze(g, x, 0);
    const Expr n = type_numel(g->exprs, graph_type(g, y));
    y = build_reshape(g, y, 1, &n);
    lower_out(l, 0, build_take(g, x, y, graph_type(g, x)->rank - 1));
    return true;
}

static const char *const binarizer_attrs[] = {"threshold:f=0", NULL};

#define ML "ai.onnx.ml"

const OnnxOp ops_ml[] = {
    {ML, "Binarizer", 1, 0, 1, 1, 1, 1, binarizer_attrs, lower_binarizer},
    {ML, "ArrayFeatureExtractor", 1, 0, 2, 2, 1, 1, NULL, lower_array_feature_extractor},
    {0},
};
