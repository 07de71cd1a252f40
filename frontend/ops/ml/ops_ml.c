/* Operators of ai.onnx.ml that prepare features. */
#include "frontend/ops/ml/ml.h"
#include <math.h>

/* Where an integer exceeds a number: where it exceeds the number's floor. */
static Value integer_above(Graph *g, Value x, double number) {
    const DType t = v_dtype(g, x);
    int64_t lo;
    uint64_t hi;
    dtype_int_range(t, &lo, &hi);
    if (number < (double)lo) return v_le(g, build_scalar_i(g, t, lo), x);
    if (!(number < (double)hi)) return v_lt(g, build_scalar_i(g, t, (int64_t)hi), x);
    const int64_t limit = number < 0 ? (int64_t)floor(number) : (int64_t)(uint64_t)number;
    return v_lt(g, build_scalar_i(g, t, limit), x);
}

static bool lower_binarizer(Lower *l) {
    Graph *g = lower_graph(l);
    const DType t = lower_type(l, 0)->dtype;
    const double threshold = lower_f(l, "threshold");
    Value x = lower_in(l, 0);
    Value above = dtype_is_float(t) ? v_lt(g, build_scalar_f(g, t, threshold), x)
                                    : integer_above(g, x, threshold);
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

/* One number for all features or one for each, as a vector of f32. 0 after an error. */
static Value per_feature(Lower *l, const char *name, double otherwise) {
    Graph *g = lower_graph(l);
    uint32_t n;
    const float *v = lower_floats(l, name, &n);
    if (!v || n == 0) return build_scalar_f(g, DT_f32, otherwise);
    return v_floats(g, v, n);
}

static bool lower_scaler(Lower *l) {
    Graph *g = lower_graph(l);
    if (!lower_is(l, 0, TYPES_FLOAT | TYPES_INT)) return false;
    const Value x = build_cast(g, lower_in(l, 0), DT_f32);
    const Value centered = v_sub(g, x, per_feature(l, "offset", 0));
    const Value y = v_mul(g, centered, per_feature(l, "scale", 1));
    if (y && v_rank(g, y) != v_rank(g, x))
        return lower_error(l, D_SHAPE, "'offset' and 'scale' have one number, or one a feature");
    lower_out(l, 0, y);
    return true;
}

/* Each row divided by its size; a row of zeros stays. */
static bool lower_normalizer(Lower *l) {
    static const char *const norms[] = {"MAX", "L1", "L2", NULL};
    Graph *g = lower_graph(l);
    int norm;
    if (!lower_choice(l, "norm", norms, &norm) || !lower_is(l, 0, TYPES_FLOAT | TYPES_INT))
        return false;
    const Value x = build_cast(g, lower_in(l, 0), DT_f32);
    if (!x) return true;
    if (v_rank(g, x) < 1) return lower_error(l, D_SHAPE, "the input is a scalar");
    const uint32_t last = v_axes_from(v_rank(g, x) - 1, v_rank(g, x));
    const Value sized = norm == 0 ? x : norm == 1 ? v_abs(g, x) : v_square(g, x);
    Value size = build_reduce(g, norm == 0 ? OP_reduce_max : OP_reduce_sum, sized, last, true);
    if (norm == 2) size = v_sqrt(g, size);
    size = build_select(g, v_eqf(g, size, 0), v_const(g, size, 1), size);
    lower_out(l, 0, v_div(g, x, size));
    return true;
}

static bool lower_imputer(Lower *l) {
    Graph *g = lower_graph(l);
    const Value x = lower_in(l, 0);
    uint32_t nf, ni;
    const float *f = lower_floats(l, "imputed_value_floats", &nf);
    const int64_t *i = lower_ints(l, "imputed_value_int64s", &ni);
    if (!x || !lower_is(l, 0, TYPES_FLOAT | TYPES_INT)) return false;
    const bool real = dtype_is_float(v_dtype(g, x));
    if (real ? !nf : !ni)
        return lower_error(l, D_ATTRIBUTE, "no values of the input's type replace what is missing");
    Value missing, by;
    if (real) {
        const double what = lower_f(l, "replaced_value_float");
        missing = isnan(what) ? build_unary(g, OP_isnan, x) : v_eqf(g, x, what);
        by = build_cast(g, v_floats(g, f, nf), v_dtype(g, x));
    } else {
        const Value what = build_scalar_i(g, v_dtype(g, x), lower_i(l, "replaced_value_int64"));
        missing = v_eq(g, x, what);
        by = build_ints(g, v_dtype(g, x), i, ni);
    }
    const Value y = build_select(g, missing, by, x);
    if (y && v_rank(g, y) != v_rank(g, x))
        return lower_error(l, D_SHAPE, "it has one value, or one a feature");
    lower_out(l, 0, y);
    return true;
}

/* A category that is not listed has a row of zeros, also where the node forbids it (zeros = 0):
 * a plan has no way to refuse a sample. */
static bool lower_one_hot_encoder(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t n, texts;
    const int64_t *category = lower_ints(l, "cats_int64s", &n);
    lower_strings(l, "cats_strings", &texts);
    if (texts || !n)
        return lower_unsupported(l, NULL,
                                 texts ? "its categories are strings" : "it has no categories");
    const Value x = lower_in(l, 0);
    if (!x || !lower_is(l, 0, TYPES_FLOAT | TYPES_INT)) return false;
    const Value whole = v_append_axes(g, build_cast(g, x, DT_i64), 1);
    const Value is = v_eq(g, whole, build_ints(g, DT_i64, category, n));
    lower_out(l, 0, build_cast(g, is, DT_f32));
    return true;
}

/* Inputs side by side, each cut or filled with zeros to the width that the node gives it. */
static bool lower_feature_vectorizer(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t n;
    const int64_t *width = lower_ints(l, "inputdimensions", &n);
    Value *part = arena_array(g->arena, lower_nin(l), sizeof *part);
    if (n != lower_nin(l))
        return lower_error(l, D_ATTRIBUTE, "'inputdimensions' has %u numbers for %u inputs", n,
                           lower_nin(l));
    const Expr zero = v_int(g, 0);
    for (uint32_t i = 0; i < n; i++) {
        if (!lower_is(l, i, TYPES_FLOAT | TYPES_INT)) return false;
        if (width[i] < 0 || width[i] > INT32_MAX)
            return lower_error(l, D_ATTRIBUTE, "input %u has a width of %lld", i,
                               (long long)width[i]);
        Value x = build_cast(g, lower_in(l, i), DT_f32);
        if (!x) return true;
        if (v_rank(g, x) == 1) x = build_unsqueeze(g, x, 1);
        if (v_rank(g, x) != 2)
            return lower_error(l, D_SHAPE, "input %u is neither a vector nor a matrix", i);
        const Expr want = v_int(g, width[i]), has = v_dim(g, x, 1);
        const Expr kept = expr_min(g->exprs, want, has);
        x = build_slice_axis(g, x, 1, zero, kept, 1);
        const Expr lo[2] = {zero, zero}, hi[2] = {zero, expr_sub(g->exprs, want, kept)};
        part[i] = build_pad(g, x, build_scalar_f(g, DT_f32, 0), lo, hi, NULL);
    }
    lower_out(l, 0, build_concat(g, part, n, 1));
    return true;
}

/* Keys or values of LabelEncoder: `kind`s are given as one of these, or as a tensor. */
static Value label_list(Lower *l, const char *kind, uint32_t *texts) {
    Graph *g = lower_graph(l);
    Arena *a = g->arena;
    uint32_t n;
    Value v;
    lower_strings(l, arena_printf(a, "%s_strings", kind), texts);
    const float *f = lower_floats(l, arena_printf(a, "%s_floats", kind), &n);
    if (f && n) return v_floats(g, f, n);
    const int64_t *i = lower_ints(l, arena_printf(a, "%s_int64s", kind), &n);
    if (i && n) return build_ints(g, DT_i64, i, n);
    if (lower_opset(l) >= 4 && lower_tensor(l, arena_printf(a, "%s_tensor", kind), &v)) return v;
    return 0;
}

static Value label_default(Lower *l, DType t) {
    Graph *g = lower_graph(l);
    Value v;
    if (lower_opset(l) >= 4 && lower_tensor(l, "default_tensor", &v)) {
        const Expr one = v_int(g, 1);
        return build_cast(g, v_at(g, build_reshape(g, v, 1, &one), 0, v_int(g, 0)), t);
    }
    return dtype_is_float(t) ? build_scalar_f(g, t, lower_f(l, "default_float"))
                             : build_scalar_i(g, t, lower_i(l, "default_int64"));
}

/* Of equal keys the first counts; NaN is equal to NaN. */
static bool lower_label_encoder(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t texts[2] = {0, 0};
    const Value keys = label_list(l, "keys", &texts[0]);
    const Value values = label_list(l, "values", &texts[1]);
    const Value x = lower_in(l, 0);
    if (texts[0] || texts[1])
        return lower_unsupported(l, "numbers may be looked up", "it looks up strings");
    if (!keys || !values || !x) return lower_error(l, D_ATTRIBUTE, "it has no keys or no values");
    if (!expr_is_value(g->exprs, expr_sub(g->exprs, v_dim(g, keys, 0), v_dim(g, values, 0)), 0))
        return lower_error(l, D_ATTRIBUTE, "there are not as many keys as values");
    const Value item = v_append_axes(g, build_cast(g, x, v_dtype(g, keys)), 1);
    Value hit = v_eq(g, item, keys);
    if (dtype_is_float(v_dtype(g, keys)))
        hit =
            v_or(g, hit, v_and(g, build_unary(g, OP_isnan, item), build_unary(g, OP_isnan, keys)));
    if (!hit) return true;
    const int last = v_rank(g, hit) - 1;
    const Expr none = v_dim(g, keys, 0);
    const Value where = v_iota(g, DT_i64, none);
    const Value from =
        build_reduce(g, OP_reduce_min, build_select(g, hit, where, build_expr(g, DT_i64, none)),
                     1u << last, false);
    const Value known = v_lt(g, from, build_expr(g, DT_i64, none));
    lower_out(
        l, 0,
        build_select(
            g, known,
            build_take(g, values,
                       v_min(g, from, build_expr(g, DT_i64, expr_addi(g->exprs, none, -1))), 0),
            label_default(l, v_dtype(g, values))));
    return true;
}

/* The columns of a classifier's scores as they are: a map from labels to columns is no tensor. */
static bool lower_zip_map(Lower *l) {
    lower_out(l, 0, lower_in(l, 0));
    return true;
}

static const char *const binarizer_attrs[] = {"threshold:f=0", NULL};
static const char *const scaler_attrs[] = {"offset:F", "scale:F", NULL};
static const char *const normalizer_attrs[] = {"norm:s=MAX", NULL};
static const char *const imputer_attrs[] = {"imputed_value_floats:F", "imputed_value_int64s:I",
                                            "replaced_value_float:f=0", "replaced_value_int64:i=0",
                                            NULL};
static const char *const one_hot_attrs[] = {"cats_int64s:I", "cats_strings:S", "zeros:i=1", NULL};
static const char *const vectorizer_attrs[] = {"inputdimensions:I!", NULL};
#define LABELS_2                                                                                   \
    "keys_floats:F", "keys_int64s:I", "keys_strings:S", "values_floats:F", "values_int64s:I",      \
        "values_strings:S", "default_float:f=0", "default_int64:i=-1", "default_string:s=_Unused"
static const char *const label_attrs[] = {LABELS_2, NULL};
static const char *const label_attrs_4[] = {LABELS_2, "keys_tensor:t", "values_tensor:t",
                                            "default_tensor:t", NULL};
static const char *const zip_attrs[] = {"classlabels_int64s:I", "classlabels_strings:S", NULL};

const OnnxOp ops_ml[] = {
    {ML, "Binarizer", 1, 0, 1, 1, 1, 1, binarizer_attrs, lower_binarizer},
    {ML, "ArrayFeatureExtractor", 1, 0, 2, 2, 1, 1, NULL, lower_array_feature_extractor},
    {ML, "Scaler", 1, 0, 1, 1, 1, 1, scaler_attrs, lower_scaler},
    {ML, "Normalizer", 1, 0, 1, 1, 1, 1, normalizer_attrs, lower_normalizer},
    {ML, "Imputer", 1, 0, 1, 1, 1, 1, imputer_attrs, lower_imputer},
    {ML, "OneHotEncoder", 1, 0, 1, 1, 1, 1, one_hot_attrs, lower_one_hot_encoder},
    {ML, "FeatureVectorizer", 1, 0, 1, -1, 1, 1, vectorizer_attrs, lower_feature_vectorizer},
    {ML, "LabelEncoder", 2, 3, 1, 1, 1, 1, label_attrs, lower_label_encoder},
    {ML, "LabelEncoder", 4, 0, 1, 1, 1, 1, label_attrs_4, lower_label_encoder},
    {ML, "ZipMap", 1, 0, 1, 1, 1, 1, zip_attrs, lower_zip_map},
    {0},
};
