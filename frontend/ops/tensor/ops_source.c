/* Operators that make tensors: constants, ranges, masks by position, random numbers. */
#include "frontend/import/formula.h"
#include "frontend/import/import_impl.h"
#include <math.h>
#include <string.h>

static const char *const constant_names[] = {"value",         "value_int",    "value_float",
                                             "value_ints",    "value_floats", "value_string",
                                             "value_strings", "sparse_value", NULL};

static bool lower_constant(Lower *l) {
    Graph *g = lower_graph(l);
    Value v = 0;
    uint32_t n, given = 0;
    for (const char *const *a = constant_names; *a; a++) given += lower_has_attr(l, *a);
    if (given != 1) return lower_error(l, D_ATTRIBUTE, "%u values are given, not one", given);
    if (lower_has_attr(l, "value")) {
        if (!lower_tensor(l, "value", &v)) return false;
    } else if (lower_has_attr(l, "value_int")) {
        v = build_scalar_i(g, DT_i64, lower_i(l, "value_int"));
    } else if (lower_has_attr(l, "value_float")) {
        v = build_scalar_f(g, DT_f32, lower_f(l, "value_float"));
    } else if (lower_has_attr(l, "value_ints")) {
        const int64_t *ints = lower_ints(l, "value_ints", &n);
        v = build_ints(g, DT_i64, ints, n);
    } else if (lower_has_attr(l, "value_floats")) {
        const float *floats = lower_floats(l, "value_floats", &n);
        v = v_floats(g, floats, n);
    } else {
        return lower_unsupported(l, NULL, "string and sparse constants are not supported");
    }
    lower_out(l, 0, v);
    return true;
}

static bool lower_constant_of_shape(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t n;
    const Expr *dim = lower_shape_in(l, 0, &n);
    Value fill;
    if (!dim) return false;
    if (n > GRAPH_MAX_RANK) return lower_error(l, D_LIMIT, "rank %u exceeds %d", n, GRAPH_MAX_RANK);
    if (!lower_has_attr(l, "value"))
        fill = build_scalar_f(g, DT_f32, 0);
    else if (lower_tensor(l, "value", &fill))
        fill = build_reshape(g, fill, 0, NULL);
    else
        return false;
    lower_out(l, 0, build_full(g, fill, (uint8_t)n, dim));
    return true;
}

/* Number of elements of an integer range. */
static Expr range_count(ExprPool *p, Expr start, Expr limit, Expr delta) {
    const Expr zero = expr_const(p, 0), ahead = expr_sub(p, limit, start);
    int64_t lo, hi;
    expr_range(p, delta, &lo, &hi);
    const Expr up = expr_ceildiv(p, ahead, delta);
    const Expr down = expr_ceildiv(p, expr_muli(p, ahead, -1), expr_muli(p, delta, -1));
    if (lo > 0) return expr_max(p, up, zero);
    if (hi < 0) return expr_max(p, down, zero);
    return expr_max(p, expr_select(p, expr_lt(p, delta, zero), down, up), zero);
}

/* A floating-point scalar that is a cast of an integer, as an expression. */
static bool integer_behind(Lower *l, uint32_t i, Expr *out) {
    Graph *g = lower_graph(l);
    double c;
    if (lower_const_f(l, i, &c) && c == floor(c) && fabs(c) < 9007199254740992.0) {
        *out = expr_const(g->exprs, (int64_t)c);
        return true;
    }
    const Node *node = graph_node(g, lower_in(l, i));
    while ((node->op == OP_cast || node->op == OP_reshape) && dtype_is_float(node->type.dtype)) {
        const Value from = node->in[0];
        if (dtype_is_int(graph_type(g, from)->dtype)) {
            *out = lower_number_of(l, from);
            return *out != 0;
        }
        node = graph_node(g, from);
    }
    return false;
}

static bool float_range_count(Lower *l, Expr *n) {
    double v[3];
    Expr e[3];
    Type declared;
    bool integers = true, constant = true;
    for (uint32_t i = 0; i < 3; i++) {
        constant = constant && lower_const_f(l, i, &v[i]);
        integers = integers && integer_behind(l, i, &e[i]);
    }
    if (constant) {
        const double count = v[2] == 0 ? NAN : ceil((v[1] - v[0]) / v[2]);
        if (!(count < 281474976710656.0)) return lower_error(l, D_SHAPE, "the range is endless");
        *n = expr_const(lower_exprs(l), count > 0 ? (int64_t)count : 0);
    } else if (integers) {
        *n = range_count(lower_exprs(l), e[0], e[1], e[2]);
    } else if (lower_declared(l, 0, &declared) && declared.rank == 1) {
        *n = declared.dim[0];
    } else {
        return lower_unsupported(l,
                                 "make start, limit and delta constants, or casts of integers that "
                                 "--dim bounds",
                                 "the length of a floating-point range is not known");
    }
    return true;
}

/* start + i * delta; of 16-bit floats in f32, whose integers reach further. */
static bool lower_range(Lower *l) {
    Graph *g = lower_graph(l);
    const DType t = lower_type(l, 0)->dtype, wide = v_wide_type(t);
    Expr e[3] = {0}, count = 0;
    if (wide != t && lower_i(l, "stash_type") != 1)
        return lower_unsupported(l, NULL, "stash_type %lld, only 1 (f32)",
                                 (long long)lower_i(l, "stash_type"));
    if (!lower_same_type(l, 1, 0) || !lower_same_type(l, 2, 0)) return false;
    if (dtype_is_float(t)) {
        if (!float_range_count(l, &count)) return false;
    } else {
        for (uint32_t i = 0; i < 3; i++)
            if (!lower_number_in(l, i, &e[i])) return false;
        if (expr_is_value(g->exprs, e[2], 0)) return lower_error(l, D_SHAPE, "delta is 0");
        count = range_count(g->exprs, e[0], e[1], e[2]);
    }
    Value start = build_cast(g, build_reshape(g, lower_in(l, 0), 0, NULL), wide);
    Value delta = build_cast(g, build_reshape(g, lower_in(l, 2), 0, NULL), wide);
    Value v = v_add(g, v_mul(g, v_iota(g, wide, count), delta), start);
    lower_out(l, 0, build_cast(g, v, t));
    return true;
}

static bool out_dtype(Lower *l, DType fallback, DType *out) {
    *out = fallback;
    return !lower_has_attr(l, "dtype") || lower_dtype(l, "dtype", out);
}

static bool lower_eye_like(Lower *l) {
    Graph *g = lower_graph(l);
    const Type t = *lower_type(l, 0);
    DType to;
    if (t.rank != 2) return lower_error(l, D_SHAPE, "the input must have rank 2");
    if (!out_dtype(l, t.dtype, &to)) return false;
    Value row = build_iota(g, DT_i64, 2, t.dim, 0), column = build_iota(g, DT_i64, 2, t.dim, 1);
    row = build_binary_f(g, OP_add, row, (double)lower_i(l, "k"));
    lower_out(l, 0, build_cast(g, build_binary(g, OP_eq, row, column), to));
    return true;
}

/* upper keeps column - row >= k, lower keeps column - row <= k. */
static bool lower_trilu(Lower *l) {
    Graph *g = lower_graph(l);
    const Type t = *lower_type(l, 0);
    if (t.rank < 2) return lower_error(l, D_SHAPE, "the input must have rank 2 or more");
    if (!lower_is(l, 1, TYPES_INT)) return false;
    const Expr *dim = t.dim + t.rank - 2;
    Value row = build_iota(g, DT_i64, 2, dim, 0), column = build_iota(g, DT_i64, 2, dim, 1);
    Value k = lower_has_in(l, 1) ? build_reshape(g, build_cast(g, lower_in(l, 1), DT_i64), 0, NULL)
                                 : build_scalar_i(g, DT_i64, 0);
    /* Beyond all sizes k means the same however far, and row + k must not overflow. */
    k = build_binary_f(g, OP_min, build_binary_f(g, OP_max, k, -0x1p40), 0x1p40);
    row = build_binary(g, OP_add, row, k);
    Value keep = lower_i(l, "upper") ? build_binary(g, OP_le, row, column)
                                     : build_binary(g, OP_le, column, row);
    lower_out(l, 0, build_select(g, keep, lower_in(l, 0), build_scalar_i(g, t.dtype, 0)));
    return true;
}

/* Random numbers. A node without a seed gets one from its output's name, so that compiling is
 * reproducible and nodes differ. */

static uint64_t random_seed(Lower *l) {
    const char *name = lower_has_out(l, 0) ? l->node->output[0] : "";
    if (!strcmp(lower_op_name(l), "Dropout")) /* whose seed is an integer */
        return hash_bytes(name, strlen(name), (uint64_t)lower_i(l, "seed"));
    const float seed = (float)lower_f(l, "seed");
    uint32_t bits;
    memcpy(&bits, &seed, sizeof bits);
    return hash_bytes(name, strlen(name), bits);
}

static Value uniform_like(Lower *l, const Type *t, uint64_t stream) {
    return build_uniform(lower_graph(l), DT_f32, t->rank, t->dim, random_seed(l) + stream);
}

static bool like_type(Lower *l, Type *t) {
    DType to;
    uint32_t n;
    if (lower_nin(l)) {
        *t = *lower_type(l, 0);
        if (!out_dtype(l, t->dtype, &to)) return false;
    } else {
        const int64_t *shape = lower_ints(l, "shape", &n);
        *t = (Type){.rank = (uint8_t)n};
        if (n > GRAPH_MAX_RANK)
            return lower_error(l, D_LIMIT, "rank %u exceeds %d", n, GRAPH_MAX_RANK);
        for (uint32_t i = 0; i < n; i++) {
            if (shape[i] < 0) return lower_error(l, D_ATTRIBUTE, "a size is negative");
            t->dim[i] = expr_const(lower_exprs(l), shape[i]);
        }
        if (!out_dtype(l, DT_f32, &to)) return false;
    }
    t->dtype = to;
    return dtype_is_float(to) ||
           lower_error(l, D_ATTRIBUTE, "random numbers of type %s", dtype_name(to));
}

static bool lower_random_uniform(Lower *l) {
    Graph *g = lower_graph(l);
    Type t;
    if (!like_type(l, &t)) return false;
    const double low = lower_f(l, "low"), high = lower_f(l, "high");
    Value v = build_binary_f(g, OP_mul, uniform_like(l, &t, 0), high - low);
    lower_out(l, 0, build_cast(g, build_binary_f(g, OP_add, v, low), t.dtype));
    return true;
}

/* Box-Muller: sqrt(-2 log(1 - u)) cos(2 pi v). */
static Value standard_normal(Lower *l, const Type *t) {
    Graph *g = lower_graph(l);
    Value u = build_binary(g, OP_sub, build_scalar_f(g, DT_f32, 1), uniform_like(l, t, 0));
    Value r = build_unary(g, OP_sqrt, build_binary_f(g, OP_mul, build_unary(g, OP_log, u), -2));
    Value angle = build_binary_f(g, OP_mul, uniform_like(l, t, 1), 6.28318530717958647692);
    return build_binary(g, OP_mul, r, build_unary(g, OP_cos, angle));
}

static bool lower_random_normal(Lower *l) {
    Graph *g = lower_graph(l);
    Type t;
    if (!like_type(l, &t)) return false;
    Value v = build_binary_f(g, OP_mul, standard_normal(l, &t), lower_f(l, "scale"));
    lower_out(l, 0, build_cast(g, build_binary_f(g, OP_add, v, lower_f(l, "mean")), t.dtype));
    return true;
}

static bool lower_bernoulli(Lower *l) {
    Graph *g = lower_graph(l);
    const Type t = *lower_type(l, 0);
    DType to;
    if (!lower_is(l, 0, TYPES_FLOAT) || !out_dtype(l, t.dtype, &to)) return false;
    Value hit =
        build_binary(g, OP_lt, uniform_like(l, &t, 0), build_cast(g, lower_in(l, 0), DT_f32));
    lower_out(l, 0, build_cast(g, hit, to));
    return true;
}

/* Each sample is the class of the largest log p - log(-log u) (the Gumbel trick). */
static bool lower_multinomial(Lower *l) {
    Graph *g = lower_graph(l);
    const Type t = *lower_type(l, 0);
    DType to;
    const int64_t samples = lower_i(l, "sample_size");
    if (t.rank != 2) return lower_error(l, D_SHAPE, "the input must have rank 2");
    if (samples < 1 || samples > INT32_MAX)
        return lower_error(l, D_ATTRIBUTE, "sample_size is %lld", (long long)samples);
    if (!out_dtype(l, DT_i32, &to)) return false;
    if (!dtype_is_int(to)) return lower_error(l, D_ATTRIBUTE, "classes of type %s", dtype_name(to));
    const Type wide = {.rank = 3, .dim = {t.dim[0], expr_const(g->exprs, samples), t.dim[1]}};
    Value u = uniform_like(l, &wide, 0);
    for (int i = 0; i < 2; i++) u = build_unary(g, OP_neg, build_unary(g, OP_log, u));
    Value logits = build_unsqueeze(g, build_cast(g, lower_in(l, 0), DT_f32), 1);
    Value best =
        build_arg_reduce(g, OP_argmax, build_binary(g, OP_add, logits, u), 2, false, false);
    lower_out(l, 0, build_cast(g, best, to));
    return true;
}

static Value full_mask(Lower *l, DType t) {
    Graph *g = lower_graph(l);
    const Type *x = lower_type(l, 0);
    return build_full(g, build_scalar_i(g, t, 1), x->rank, x->dim);
}

/* Nothing is dropped. */
static bool pass_all(Lower *l) {
    lower_out(l, 0, lower_in(l, 0));
    lower_out(l, 1, full_mask(l, lower_opset(l) < 10 ? lower_type(l, 0)->dtype : DT_bool));
    return true;
}

/* Where a model trains: anew in each run that does, whatever the node is marked as. */
static bool drop_by_run(Lower *l, Value ratio) {
    Graph *g = lower_graph(l);
    Value kept = 0;
    if (!lower_generator(l, "--dropout off leaves it as it is")) return false;
    const uint64_t stream = BUILD_MODEL_STREAMS + l->im->streams++;
    Value y = build_dropout(g, lower_in(l, 0), ratio, stream, &kept);
    lower_out(l, 0, y);
    lower_out(l, 1, build_cast(g, kept, lower_opset(l) < 10 ? lower_type(l, 0)->dtype : DT_bool));
    return y != 0;
}

/* Before opset 12 the ratio is an attribute, and plans that run infer: is_test = 0, the default
 * before opset 7, does not drop anything either. */
static bool lower_dropout_attrs(Lower *l) {
    const double ratio = lower_f(l, "ratio");
    if (lower_options(l)->dropout != IMPORT_trains || ratio <= 0) return pass_all(l);
    return drop_by_run(l, build_scalar_f(lower_graph(l), DT_f32, ratio));
}

/* Dropped where `active` is set when the plan runs. */
static void drop_marked(Lower *l, Value ratio, Value active) {
    Graph *g = lower_graph(l);
    const Type t = *lower_type(l, 0);
    Value kept = build_binary(g, OP_le, ratio, uniform_like(l, &t, 0));
    Value mask = build_binary(g, OP_or, kept, build_unary(g, OP_not, active));
    Value scale = build_binary(g, OP_sub, build_scalar_f(g, DT_f32, 1), ratio);
    scale = build_select(g, active, build_unary(g, OP_recip, scale), build_scalar_f(g, DT_f32, 1));
    Value x = build_binary(g, OP_mul, lower_in(l, 0), build_cast(g, scale, t.dtype));
    lower_out(l, 0, build_select(g, mask, x, build_scalar_f(g, t.dtype, 0)));
    lower_out(l, 1, mask);
}

/* Identity, unless training_mode is given and not a constant false, or the model trains. */
static bool lower_dropout(Lower *l) {
    Graph *g = lower_graph(l);
    const ImportPhase phase = lower_options(l)->dropout;
    double training = 0, ratio = 0.5;
    if (!lower_is(l, 0, TYPES_FLOAT) || !lower_is(l, 1, TYPES_FLOAT) || !lower_is(l, 2, TYPES_BOOL))
        return false;
    const bool known = !lower_has_in(l, 2) || lower_const_f(l, 2, &training);
    const bool fixed = !lower_has_in(l, 1) || lower_const_f(l, 1, &ratio);
    const bool never = phase == IMPORT_infers || (phase == IMPORT_marked && known && training == 0);
    if (never || (fixed && ratio == 0)) return pass_all(l);
    Value r = lower_has_in(l, 1) ? build_reshape(g, build_cast(g, lower_in(l, 1), DT_f32), 0, NULL)
                                 : build_scalar_f(g, DT_f32, ratio);
    if (phase == IMPORT_trains) return drop_by_run(l, r);
    drop_marked(l, r, build_reshape(g, lower_in(l, 2), 0, NULL));
    return true;
}

static const char *const constant_attrs[] = {"value:t",         "value_int:i",    "value_float:f",
                                             "value_ints:I",    "value_floats:F", "value_string:s",
                                             "value_strings:S", "sparse_value:x", NULL};
static const char *const fill_attrs[] = {"value:t", NULL};
static const char *const range_attrs[] = {"stash_type:i=1", NULL};
static const char *const eye_attrs[] = {"dtype:i", "k:i=0", NULL};
static const char *const trilu_attrs[] = {"upper:i=1", NULL};
static const char *const uniform_attrs[] = {"dtype:i",  "high:f=1", "low:f=0",
                                            "seed:f=0", "shape:I!", NULL};
static const char *const uniform_like_attrs[] = {"dtype:i", "high:f=1", "low:f=0", "seed:f=0",
                                                 NULL};
static const char *const normal_attrs[] = {"dtype:i",  "mean:f=0", "scale:f=1",
                                           "seed:f=0", "shape:I!", NULL};
static const char *const normal_like_attrs[] = {"dtype:i", "mean:f=0", "scale:f=1", "seed:f=0",
                                                NULL};
static const char *const bernoulli_attrs[] = {"dtype:i", "seed:f=0", NULL};
static const char *const multinomial_attrs[] = {"dtype:i", "sample_size:i=1", "seed:f=0", NULL};
static const char *const dropout1_attrs[] = {"ratio:f=0.5", "is_test:i=0", "consumed_inputs:I",
                                             NULL};
static const char *const dropout7_attrs[] = {"ratio:f=0.5", NULL};
static const char *const dropout_attrs[] = {"seed:i=0", NULL};

const OnnxOp ops_source[] = {
    {"", "Constant", 1, 0, 0, 0, 1, 1, constant_attrs, lower_constant},
    {"", "ConstantOfShape", 9, 0, 1, 1, 1, 1, fill_attrs, lower_constant_of_shape},
    {"", "Range", 11, 0, 3, 3, 1, 1, range_attrs, lower_range},
    {"", "EyeLike", 9, 0, 1, 1, 1, 1, eye_attrs, lower_eye_like},
    {"", "Trilu", 14, 0, 1, 2, 1, 1, trilu_attrs, lower_trilu},
    {"", "RandomUniform", 1, 0, 0, 0, 1, 1, uniform_attrs, lower_random_uniform},
    {"", "RandomUniformLike", 1, 0, 1, 1, 1, 1, uniform_like_attrs, lower_random_uniform},
    {"", "RandomNormal", 1, 0, 0, 0, 1, 1, normal_attrs, lower_random_normal},
    {"", "RandomNormalLike", 1, 0, 1, 1, 1, 1, normal_like_attrs, lower_random_normal},
    {"", "Bernoulli", 15, 0, 1, 1, 1, 1, bernoulli_attrs, lower_bernoulli},
    {"", "Multinomial", 7, 0, 1, 1, 1, 1, multinomial_attrs, lower_multinomial},
    {"", "Dropout", 1, 6, 1, 1, 1, 2, dropout1_attrs, lower_dropout_attrs},
    {"", "Dropout", 7, 11, 1, 1, 1, 2, dropout7_attrs, lower_dropout_attrs},
    {"", "Dropout", 12, 0, 1, 3, 1, 2, dropout_attrs, lower_dropout},
    {0},
};
