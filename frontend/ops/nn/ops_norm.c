/* Normalisations. Statistics and scaling are computed in f32 for the 16-bit types and rounded once.
 * All spell the variance as mean((x - mean)^2), never as a difference of means. */
#include "frontend/ops/nn/norm.h"
#include <string.h>

NormMoments norm_moments(Graph *g, Value x, uint32_t axes, double eps) {
    NormMoments m;
    m.mean = build_mean(g, x, axes, true);
    m.centred = v_sub(g, x, m.mean);
    m.var = build_mean(g, v_square(g, m.centred), axes, true);
    m.inv_std = v_rsqrt(g, v_addf(g, m.var, eps));
    return m;
}

Value norm_affine(Graph *g, Value x, Value scale, Value shift) {
    if (!x) return 0;
    if (scale) x = v_mul(g, x, v_cast_like(g, scale, x));
    if (shift) x = v_add(g, x, v_cast_like(g, shift, x));
    return x;
}

Value norm_per_channel(Graph *g, Value v, int rank) {
    return v_along(g, v, rank, 1);
}

/* ---- LayerNormalization and RMS norms ------------------------------------------------------ */

Norm norm_layer(Graph *g, Value x, int axis, double eps, Value scale, Value shift) {
    if (!x) return (Norm){0};
    NormMoments m = norm_moments(g, x, v_axes_from(axis, v_rank(g, x)), eps);
    Value y = norm_affine(g, v_mul(g, m.centred, m.inv_std), scale, shift);
    return (Norm){.y = y, .mean = m.mean, .inv_std = m.inv_std};
}

Norm norm_rms(Graph *g, Value x, int axis, double eps, Value scale) {
    if (!x) return (Norm){0};
    Value mean = build_mean(g, v_square(g, x), v_axes_from(axis, v_rank(g, x)), true);
    Value factor = v_rsqrt(g, v_addf(g, mean, eps));
    return (Norm){.y = norm_affine(g, v_mul(g, x, factor), scale, 0), .inv_std = factor};
}

/* Statistics of 16-bit types are f32; a model that asks for another type is refused. */
static bool stash_f32(Lower *l) {
    const int64_t code = lower_i(l, "stash_type");
    return code == 1 ||
           lower_unsupported(l, NULL, "stash_type %lld, only 1 (f32)", (long long)code);
}

static bool lower_layer_norm(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    if (!x) return false;
    int axis = lower_axis(l, lower_i(l, "axis"), v_rank(g, x));
    const Type t = *lower_type(l, 0);
    if (axis < 0 || !stash_f32(l) || !lower_fits(l, 1, &t) || !lower_fits(l, 2, &t)) return false;
    Norm n =
        norm_layer(g, v_widen(g, x), axis, lower_f(l, "epsilon"), lower_in(l, 1), lower_in(l, 2));
    lower_out(l, 0, v_cast_like(g, n.y, x));
    if (lower_has_out(l, 1)) lower_out(l, 1, n.mean);
    if (lower_has_out(l, 2)) lower_out(l, 2, n.inv_std);
    return true;
}

/* The result has the scale's type; SimplifiedLayerNormalization can also give the factor. */
static bool lower_rms_norm(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), scale = lower_in(l, 1);
    if (!x) return false;
    int axis = lower_axis(l, lower_i(l, "axis"), v_rank(g, x));
    if (axis < 0 || !stash_f32(l) || !lower_fits(l, 1, graph_type(g, x))) return false;
    Norm n = norm_rms(g, v_widen(g, x), axis, lower_f(l, "epsilon"), scale);
    lower_out(l, 0, v_cast_like(g, n.y, scale ? scale : x));
    if (lower_has_out(l, 1)) lower_out(l, 1, n.inv_std);
    return true;
}

/* ---- Per channel --------------------------------------------------------------------------- */

static bool lower_instance_norm(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    if (!x) return false;
    int rank = v_rank(g, x);
    if (rank < 3) return lower_error(l, D_SHAPE, "the input has no spatial axis");
    if (!lower_vector(l, 1, v_dim(g, x, 1)) || !lower_vector(l, 2, v_dim(g, x, 1))) return false;
    NormMoments m = norm_moments(g, v_widen(g, x), v_axes_from(2, rank), lower_f(l, "epsilon"));
    Value y = v_mul(g, m.centred, m.inv_std);
    y = norm_affine(g, y, norm_per_channel(g, lower_in(l, 1), rank),
                    norm_per_channel(g, lower_in(l, 2), rank));
    lower_out(l, 0, v_cast_like(g, y, x));
    return true;
}

/* Scale and shift have one value per group before opset 21, one per channel since. */
static bool lower_group_norm(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    Value x = lower_in(l, 0), scale = lower_in(l, 1), shift = lower_in(l, 2);
    if (!x || !scale || !shift) return false;
    Type t = *graph_type(g, x);
    int64_t groups = lower_i(l, "num_groups"), channels;
    if (t.rank < 2) return lower_error(l, D_SHAPE, "the input has no channel axis");
    if (groups < 1 || (expr_is_const(p, t.dim[1], &channels) && channels % groups))
        return lower_error(l, D_SHAPE, "%lld groups do not divide the channels", (long long)groups);
    bool per_group = lower_opset(l) < 21;
    Expr params = per_group ? expr_const(p, groups) : t.dim[1];
    if (!stash_f32(l) || !lower_vector(l, 1, params) || !lower_vector(l, 2, params)) return false;
    Expr dim[GRAPH_MAX_RANK] = {t.dim[0], expr_const(p, groups)};
    dim[2] = expr_div(p, t.dim[1], dim[1]);
    memcpy(dim + 3, t.dim + 2, (size_t)(t.rank - 2) * sizeof *dim);
    int rank = t.rank + 1;
    Value split = build_reshape(g, v_widen(g, x), (uint8_t)rank, dim);
    NormMoments m = norm_moments(g, split, v_axes_from(2, rank), lower_f(l, "epsilon"));
    Value y = v_mul(g, m.centred, m.inv_std);
    if (per_group) y = norm_affine(g, y, v_along(g, scale, rank, 1), v_along(g, shift, rank, 1));
    y = build_reshape(g, y, t.rank, t.dim);
    if (!per_group)
        y = norm_affine(g, y, norm_per_channel(g, scale, t.rank),
                        norm_per_channel(g, shift, t.rank));
    lower_out(l, 0, v_cast_like(g, y, x));
    return true;
}

/* ---- LRN, MeanVarianceNormalization, LpNormalization --------------------------------------- */

static bool lower_lrn(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    Value x = lower_in(l, 0);
    if (!x) return false;
    int rank = v_rank(g, x);
    int64_t size = lower_i(l, "size");
    if (rank < 2 || size < 1) return lower_error(l, D_SHAPE, "no channels to sum over");
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    for (int i = 0; i < rank; i++) lo[i] = hi[i] = expr_const(p, 0);
    lo[1] = expr_const(p, (size - 1) / 2);
    hi[1] = expr_const(p, size / 2);
    Value wide = v_widen(g, x);
    Value padded = build_pad(g, v_square(g, wide), v_const(g, wide, 0), lo, hi, NULL);
    Value taps = build_window(g, padded, 1, (uint8_t[]){1}, &size, (int64_t[]){1}, (int64_t[]){1});
    Value sum = build_reduce(g, OP_reduce_sum, taps, 1u << rank, false);
    double alpha = lower_f(l, "alpha") / (double)size;
    Value base = v_addf(g, v_mulf(g, sum, alpha), lower_f(l, "bias"));
    Value y = v_mul(g, wide, v_powf(g, base, -lower_f(l, "beta")));
    lower_out(l, 0, v_cast_like(g, y, x));
    return true;
}

static bool lower_mvn(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    if (!x) return false;
    static const int64_t default_axes[] = {0, 2, 3};
    uint32_t n, mask = 0;
    const int64_t *axes = lower_ints(l, "axes", &n);
    if (!axes) axes = default_axes, n = 3;
    for (uint32_t i = 0; i < n; i++) {
        int axis = lower_axis(l, axes[i], v_rank(g, x));
        if (axis < 0) return false;
        mask |= 1u << axis;
    }
    Value wide = v_widen(g, x);
    Value centred = v_sub(g, wide, build_mean(g, wide, mask, true));
    Value std = v_sqrt(g, build_mean(g, v_square(g, centred), mask, true));
    Value y = v_div(g, centred, v_addf(g, std, 1e-9));
    lower_out(l, 0, v_cast_like(g, y, x));
    return true;
}

static bool lower_lp_norm(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    if (!x) return false;
    int axis = lower_axis(l, lower_i(l, "axis"), v_rank(g, x));
    int64_t p = lower_i(l, "p");
    if (axis < 0) return false;
    if (p != 1 && p != 2) return lower_error(l, D_ATTRIBUTE, "p is %lld", (long long)p);
    Value wide = v_widen(g, x);
    Value powers = p == 1 ? v_abs(g, wide) : v_square(g, wide);
    Value norm = build_reduce(g, OP_reduce_sum, powers, 1u << axis, true);
    if (p == 2) norm = v_sqrt(g, norm);
    Value y = v_div(g, wide, v_select_f(g, v_not(g, v_eqf(g, norm, 0)), norm, 1));
    lower_out(l, 0, v_cast_like(g, y, x));
    return true;
}

static const char *const layer_attrs[] = {"axis:i=-1", "epsilon:f=1e-5", "stash_type:i=1", NULL};
static const char *const instance_attrs[] = {"epsilon:f=1e-5", "consumed_inputs:I", NULL};
static const char *const group_attrs[] = {"epsilon:f=1e-5", "num_groups:i!", "stash_type:i=1",
                                          NULL};
static const char *const lrn_attrs[] = {"alpha:f=0.0001", "beta:f=0.75", "bias:f=1.0", "size:i!",
                                        NULL};
static const char *const mvn_attrs[] = {"axes:I", NULL};
static const char *const lp_attrs[] = {"axis:i=-1", "p:i=2", NULL};

const OnnxOp ops_norm[] = {
    {"", "LayerNormalization", 1, 0, 2, 3, 1, 3, layer_attrs, lower_layer_norm},
    {"", "RMSNormalization", 23, 0, 2, 2, 1, 1, layer_attrs, lower_rms_norm},
    {"", "SimplifiedLayerNormalization", 1, 0, 2, 2, 1, 2, layer_attrs, lower_rms_norm},
    {"com.microsoft", "SimplifiedLayerNormalization", 1, 0, 2, 2, 1, 2, layer_attrs,
     lower_rms_norm},
    {"com.microsoft", "RMSNormalization", 1, 0, 2, 2, 1, 1, layer_attrs, lower_rms_norm},
    {"com.microsoft", "LayerNormalization", 1, 0, 2, 3, 1, 3, layer_attrs, lower_layer_norm},
    {"", "InstanceNormalization", 1, 0, 3, 3, 1, 1, instance_attrs, lower_instance_norm},
    {"", "GroupNormalization", 18, 0, 3, 3, 1, 1, group_attrs, lower_group_norm},
    {"", "LRN", 1, 0, 1, 1, 1, 1, lrn_attrs, lower_lrn},
    {"", "MeanVarianceNormalization", 9, 0, 1, 1, 1, 1, mvn_attrs, lower_mvn},
    {"", "LpNormalization", 1, 0, 1, 1, 1, 1, lp_attrs, lower_lp_norm},
    {0}};
