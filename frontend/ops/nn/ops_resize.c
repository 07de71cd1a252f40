/* Resize and Upsample, one axis after the other. Source positions and weights are written as iota
 * formulas in f64: they fold to constants where sizes are numbers and run as tiny kernels where
 * they are symbols. */
#include "frontend/import/formula.h"
#include <math.h>
#include <string.h>

typedef enum Coordinates {
    CT_half_pixel,
    CT_half_pixel_symmetric,
    CT_pytorch_half_pixel,
    CT_align_corners,
    CT_asymmetric,
    CT_tf_crop_and_resize
} Coordinates;
static const char *const coordinate_names[] = {"half_pixel",
                                               "half_pixel_symmetric",
                                               "pytorch_half_pixel",
                                               "align_corners",
                                               "asymmetric",
                                               "tf_crop_and_resize",
                                               NULL};

typedef enum NearestMode { NM_prefer_floor, NM_prefer_ceil, NM_floor, NM_ceil } NearestMode;
static const char *const nearest_names[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil", NULL};

typedef enum Interpolation { IP_nearest, IP_linear, IP_cubic } Interpolation;
static const char *const interpolation_names[] = {"nearest", "linear", "cubic", NULL};

typedef struct Resize {
    Interpolation mode;
    Coordinates coordinates;
    NearestMode nearest;
    bool antialias, exclude_outside;
    double cubic_a, extrapolation;
} Resize;

typedef struct AxisResize {
    int axis;
    Expr in, out;
    Expr declared;        /* out as the model declares it; 0 where it does not */
    Value scale;          /* f64 scalar */
    double fixed_scale;   /* 0 where only known at run time */
    Value roi_lo, roi_hi; /* f64 scalars, tf_crop_and_resize only */
} AxisResize;

static Value f64_expr(Graph *g, Expr e) {
    return build_cast(g, build_expr(g, DT_i64, e), DT_f64);
}

/* (o + 1/2) / scale - 1/2 */
static Value half_pixel(Graph *g, Value o, Value scale) {
    return v_addf(g, v_div(g, v_addf(g, o, 0.5), scale), -0.5);
}

static Value select_if_one(Graph *g, Value size, Value one, Value other) {
    return build_select(g, v_eqf(g, size, 1), one, other);
}

/* 0 .. n-1 in f64, as a constant where n is a number: what is computed from it then folds. */
static Value positions(Graph *g, Expr n) {
    enum { FOLD_LIMIT = 4096 };
    int64_t count;
    if (!expr_is_const(g->exprs, n, &count) || count > FOLD_LIMIT) return v_iota(g, DT_f64, n);
    double *v = ARENA_ARRAY(g->arena, double, (size_t)count);
    for (int64_t i = 0; i < count; i++) v[i] = (double)i;
    Constant c = {.data = v, .bytes = (uint64_t)count * sizeof *v, .name = ""};
    return build_const(g, (Type){.dtype = DT_f64, .rank = 1, .dim = {n}}, c);
}

/* Where each output position lies on the input axis, [out] in f64. */
static Value source_position(Graph *g, const Resize *r, const AxisResize *a) {
    Value o = positions(g, a->out), in = f64_expr(g, a->in);
    Value size = v_mul(g, a->scale, in); /* before rounding down to a->out */
    Value last = v_addf(g, in, -1);
    Value span = select_if_one(g, size, v_const(g, size, 1), v_addf(g, size, -1));
    switch (r->coordinates) {
    case CT_half_pixel: return half_pixel(g, o, a->scale);
    case CT_half_pixel_symmetric: {
        /* Seen from the centre, (o + 1/2 - out/2) / scale + (in - 1)/2: what is a whole number
         * comes out as one, which nearest neighbours are decided by. */
        Value twice = v_addf(g, v_sub(g, v_mulf(g, o, 2), f64_expr(g, a->out)), 1);
        return v_add(g, v_mulf(g, last, 0.5), v_div(g, v_mulf(g, twice, 0.5), a->scale));
    }
    case CT_pytorch_half_pixel:
        return select_if_one(g, size, v_const(g, size, -0.5), half_pixel(g, o, a->scale));
    case CT_align_corners:
        return select_if_one(g, size, v_const(g, size, 0), v_div(g, v_mul(g, o, last), span));
    case CT_tf_crop_and_resize: {
        Value width = v_mul(g, v_sub(g, a->roi_hi, a->roi_lo), last);
        Value x = select_if_one(g, size, v_mulf(g, width, 0.5), v_div(g, v_mul(g, o, width), span));
        return v_add(g, x, v_mul(g, a->roi_lo, last));
    }
    default: return v_div(g, o, a->scale);
    }
}

static Value nearest_position(Graph *g, NearestMode mode, Value x) {
    switch (mode) {
    case NM_prefer_floor: return build_unary(g, OP_ceil, v_addf(g, x, -0.5));
    case NM_prefer_ceil: return v_floor(g, v_addf(g, x, 0.5));
    case NM_floor: return v_floor(g, x);
    default: return build_unary(g, OP_ceil, x);
    }
}

static Value take_clamped(Graph *g, Value x, Value position, const AxisResize *a) {
    Value last = f64_expr(g, expr_addi(g->exprs, a->in, -1));
    position = v_min(g, v_maxf(g, position, 0), last);
    return build_take(g, x, build_cast(g, position, DT_i64), a->axis);
}

/* Weight of a tap at distance d from the source position. */
static Value linear_weight(Graph *g, Value d) {
    return v_maxf(g, v_addf(g, v_neg(g, v_abs(g, d)), 1), 0);
}

static Value polynomial(Graph *g, Value x, const double c[4]) {
    Value y = v_addf(g, v_mulf(g, x, c[3]), c[2]);
    y = v_addf(g, v_mul(g, y, x), c[1]);
    return v_addf(g, v_mul(g, y, x), c[0]);
}

static Value cubic_weight(Graph *g, Value d, double a) {
    Value x = v_abs(g, d);
    Value near = polynomial(g, x, (double[]){1, 0, -(a + 3), a + 2});
    Value far = polynomial(g, x, (double[]){-4 * a, 8 * a, -5 * a, a});
    return build_select(g, v_lef(g, x, 1), near, v_select_f(g, v_ltf(g, x, 2), far, 0));
}

/* Largest stretch of the kernel: 1 / scale when shrinking with antialias. `out / in` bounds a scale
 * that is not known from below; taps too many have weight 0. */
static bool kernel_stretch(Graph *g, const Resize *r, const AxisResize *a, double *stretch) {
    int64_t in, out;
    *stretch = 1;
    if (!r->antialias) return true;
    double scale = a->fixed_scale;
    if (scale == 0) {
        bool known = expr_is_const(g->exprs, a->out, &out) ||
                     (a->declared && expr_is_const(g->exprs, a->declared, &out));
        if (!known || !expr_is_const(g->exprs, a->in, &in)) return false;
        scale = out > 0 && in > 0 ? (double)out / (double)in : 1;
    }
    if (scale < 1) *stretch = 1 / scale;
    return true;
}

/* The weighted sum of the taps around each position x [out]. */
static Value weighted_taps(Graph *g, const Resize *r, const AxisResize *a, Value data, Value x,
                           double stretch) {
    enum { MAX_TAPS = 64 };
    double reach = ceil((r->mode == IP_cubic ? 2 : 1) * stretch);
    if (2 * reach > MAX_TAPS) return 0;
    int first = 1 - (int)reach, n = 2 * (int)reach;
    Value base = v_addf(g, build_unary(g, OP_ceil, x), -1);
    Value ratio = v_sub(g, x, base); /* in (0, 1] */
    Value shrink = r->antialias ? v_minf(g, a->scale, 1) : v_const(g, x, 1);
    Value last = f64_expr(g, expr_addi(g->exprs, a->in, -1));
    Value weight[MAX_TAPS], at[MAX_TAPS], total = 0;
    for (int k = 0; k < n; k++) {
        Value d = v_neg(g, v_addf(g, ratio, -(first + k)));
        d = v_mul(g, d, shrink);
        at[k] = v_addf(g, base, first + k);
        weight[k] = r->mode == IP_cubic ? cubic_weight(g, d, r->cubic_a) : linear_weight(g, d);
        if (r->exclude_outside) {
            Value inside = v_and(g, v_le(g, v_const(g, x, 0), at[k]), v_le(g, at[k], last));
            weight[k] = v_select_f(g, inside, weight[k], 0);
        }
        total = total ? v_add(g, total, weight[k]) : weight[k];
    }
    bool normalise = r->antialias || r->exclude_outside;
    if (normalise) total = v_select_f(g, v_not(g, v_eqf(g, total, 0)), total, 1);
    Value sum = 0;
    int rank = v_rank(g, data);
    for (int k = 0; k < n; k++) {
        Value w = normalise ? v_div(g, weight[k], total) : weight[k];
        w = v_along(g, v_cast_like(g, w, data), rank, a->axis);
        Value term = v_mul(g, take_clamped(g, data, at[k], a), w);
        sum = sum ? v_add(g, sum, term) : term;
    }
    return sum;
}

/* The whole factor by which an axis grows when nearest repeats every element that often; else 0. */
static int64_t repeat_factor(Graph *g, const Resize *r, const AxisResize *a) {
    bool centred = r->coordinates == CT_half_pixel || r->coordinates == CT_half_pixel_symmetric ||
                   r->coordinates == CT_pytorch_half_pixel;
    bool round = r->nearest == NM_prefer_floor || r->nearest == NM_prefer_ceil;
    bool floors = r->coordinates == CT_asymmetric && r->nearest == NM_floor;
    int64_t in = expr_hint(g->exprs, a->in), out = expr_hint(g->exprs, a->out);
    if (r->mode != IP_nearest || !((centred && round) || floors) || in < 1) return 0;
    int64_t s = out / in;
    bool whole = a->fixed_scale == 0 || a->fixed_scale == (double)s;
    return s > 1 && whole && expr_muli(g->exprs, a->in, s) == a->out ? s : 0;
}

static Value repeat_axis(Graph *g, Value x, int axis, int64_t times) {
    Value y = build_unsqueeze(g, x, axis + 1);
    if (!y) return 0;
    Type t = *graph_type(g, y), tx = *graph_type(g, x);
    t.dim[axis + 1] = v_int(g, times);
    y = build_expand(g, y, t.rank, t.dim);
    tx.dim[axis] = expr_muli(g->exprs, tx.dim[axis], times);
    return build_reshape(g, y, tx.rank, tx.dim);
}

static Value resize_axis(Lower *l, const Resize *r, const AxisResize *a, Value x) {
    Graph *g = lower_graph(l);
    if (a->in == a->out && a->fixed_scale == 1 && r->coordinates != CT_tf_crop_and_resize) return x;
    int64_t times = repeat_factor(g, r, a);
    if (times) return repeat_axis(g, x, a->axis, times);
    Value at = source_position(g, r, a), y;
    double stretch;
    if (!kernel_stretch(g, r, a, &stretch)) {
        lower_unsupported(l, "fix the size with --dim", "antialias with a scale that is not known");
        return 0;
    }
    if (r->mode == IP_nearest) {
        y = take_clamped(g, x, nearest_position(g, r->nearest, at), a);
    } else {
        y = weighted_taps(g, r, a, x, at, stretch);
        if (!y) lower_unsupported(l, NULL, "shrinking to less than 1/16 with antialias");
    }
    if (r->coordinates != CT_tf_crop_and_resize || !y) return y;
    Value last = f64_expr(g, expr_addi(g->exprs, a->in, -1));
    Value inside = v_and(g, v_le(g, v_const(g, at, 0), at), v_le(g, at, last));
    return v_select_f(g, v_along(g, inside, v_rank(g, y), a->axis), y, r->extrapolation);
}

/* Integers are interpolated in f32, rounded and clamped. */
static Value finish_type(Graph *g, Value y, DType t) {
    if (!y || v_dtype(g, y) == t) return y;
    if (!dtype_is_float(t)) {
        int64_t lo;
        uint64_t hi;
        dtype_int_range(t, &lo, &hi);
        y = v_clamp(g, build_unary(g, OP_round, y), (double)lo, (double)hi);
    }
    return build_cast(g, y, t);
}

static Value resize_axes(Lower *l, const Resize *r, const AxisResize *axes, int n, Value x) {
    Graph *g = lower_graph(l);
    DType t = v_dtype(g, x);
    bool as_is = r->mode == IP_nearest || dtype_is_float(t);
    Value y = as_is ? (r->mode == IP_nearest ? x : v_widen(g, x)) : build_cast(g, x, DT_f32);
    for (int i = 0; i < n && y; i++) y = resize_axis(l, r, &axes[i], y);
    return finish_type(g, y, t);
}

/* ---- Reading the node ---------------------------------------------------------------------- */

static bool pick_mode(Lower *l, Resize *r) {
    const char *s = lower_s(l, "mode");
    int mode;
    if (!strcmp(s, "bilinear")) return r->mode = IP_linear, true; /* Upsample-1 */
    if (!lower_choice(l, "mode", interpolation_names, &mode)) return false;
    r->mode = (Interpolation)mode;
    return true;
}

/* floor(in * scale), exactly also for a symbolic size: the scale as a fraction. */
static bool scaled_size(Graph *g, Expr in, double scale, Expr *out) {
    ExprPool *p = g->exprs;
    int64_t n;
    if (expr_is_const(p, in, &n)) {
        *out = expr_const(p, (int64_t)fmin(floor((double)n * scale), 0x1p60));
        return true;
    }
    for (int64_t q = 1; q <= 4096; q++) {
        double num = scale * (double)q;
        if (num != floor(num)) continue;
        *out = expr_div(p, expr_muli(p, in, (int64_t)num), expr_const(p, q));
        return true;
    }
    return false;
}

static Value element(Graph *g, Value v, int64_t i) {
    Value e = build_slice_axis(g, v, 0, v_int(g, i), v_int(g, 1), 1);
    return build_cast(g, build_reshape(g, e, 0, NULL), DT_f64);
}

/* Sizes from constant scales, or, with scales fed at run time, from the declared output. */
static bool axes_from_scales(Lower *l, Value scales, AxisResize *a, int n) {
    Graph *g = lower_graph(l);
    for (int i = 0; i < n; i++) {
        a[i].scale = element(g, scales, i);
        if (build_const_f64(g, a[i].scale, &a[i].fixed_scale)) {
            if (!(a[i].fixed_scale > 0 && a[i].fixed_scale <= INT32_MAX))
                return lower_error(l, D_SHAPE, "scale %d is %g", i, a[i].fixed_scale);
            if (scaled_size(g, a[i].in, a[i].fixed_scale, &a[i].out)) continue;
            return lower_unsupported(l, "fix the dimension with --dim",
                                     "scaling a symbolic size by %g", a[i].fixed_scale);
        }
        if (!a[i].declared)
            return lower_unsupported(l, "make the scales an initializer",
                                     "scales that are computed at run time");
        a[i].out = a[i].declared;
    }
    return true;
}

static bool axes_from_sizes(Lower *l, const Expr *sizes, AxisResize *a, int n) {
    Graph *g = lower_graph(l);
    for (int i = 0; i < n; i++) {
        int64_t in, out, most;
        expr_range(g->exprs, sizes[i], &out, &most);
        if (most < 0) return lower_error(l, D_SHAPE, "size %d is negative", i);
        a[i].out = sizes[i];
        a[i].scale = v_div(g, f64_expr(g, a[i].out), f64_expr(g, a[i].in));
        if (a[i].in == a[i].out)
            a[i].fixed_scale = 1;
        else if (expr_is_const(g->exprs, a[i].in, &in) && in > 0 &&
                 expr_is_const(g->exprs, a[i].out, &out))
            a[i].fixed_scale = (double)out / (double)in;
    }
    return true;
}

/* One scale for all axes, the smallest or largest; sizes are rounded half up. */
static void keep_aspect_ratio(Graph *g, AxisResize *a, int n, bool larger) {
    ExprPool *p = g->exprs;
    Expr out[GRAPH_MAX_RANK];
    Value scale = 0;
    for (int i = 0; i < n; i++) {
        out[i] = 0;
        for (int j = 0; j < n; j++) {
            Expr twice = expr_muli(p, expr_mul(p, a[j].out, a[i].in), 2);
            Expr size = expr_div(p, expr_add(p, twice, a[j].in), expr_muli(p, a[j].in, 2));
            out[i] = !out[i]  ? size
                     : larger ? expr_max(p, out[i], size)
                              : expr_min(p, out[i], size);
        }
        Value s = a[i].scale;
        scale = !scale ? s : larger ? v_max(g, scale, s) : v_min(g, scale, s);
    }
    for (int i = 0; i < n; i++) {
        a[i].out = out[i];
        a[i].scale = scale;
        if (!build_const_f64(g, scale, &a[i].fixed_scale)) a[i].fixed_scale = 0;
    }
}

/* True if input i is given with at least one element. */
static bool filled(Lower *l, uint32_t i) {
    if (!lower_has_in(l, i) || !lower_in(l, i)) return false;
    return !expr_is_value(lower_exprs(l), type_numel(lower_exprs(l), lower_type(l, i)), 0);
}

static bool read_axes(Lower *l, Value x, AxisResize *a, int *n) {
    Graph *g = lower_graph(l);
    uint32_t count = 0;
    int rank = v_rank(g, x);
    Type declared;
    bool has_type = lower_declared(l, 0, &declared);
    const int64_t *axes = lower_opset(l) >= 18 ? lower_ints(l, "axes", &count) : NULL;
    *n = axes ? (int)count : rank;
    if (*n > rank) return lower_error(l, D_ATTRIBUTE, "%d axes for rank %d", *n, rank);
    for (int i = 0; i < *n; i++) {
        a[i] = (AxisResize){.axis = axes ? lower_axis(l, axes[i], rank) : i};
        if (a[i].axis < 0) return false;
        for (int k = 0; k < i; k++)
            if (a[k].axis == a[i].axis)
                return lower_error(l, D_ATTRIBUTE, "axis %d is given twice", a[i].axis);
        a[i].in = v_dim(g, x, a[i].axis);
        if (has_type && declared.rank == rank) a[i].declared = declared.dim[a[i].axis];
    }
    return true;
}

static bool read_sizes(Lower *l, AxisResize *a, int n) {
    Graph *g = lower_graph(l);
    if (filled(l, 2) && filled(l, 3))
        return lower_error(l, D_ARITY, "both scales and sizes are given");
    if (filled(l, 2)) {
        if (!expr_is_value(g->exprs, v_dim(g, lower_in(l, 2), 0), n))
            return lower_error(l, D_SHAPE, "as many scales as axes (%d) are needed", n);
        return axes_from_scales(l, lower_fixed_in(l, 2), a, n);
    }
    uint32_t count;
    const Expr *sizes = lower_shape_in(l, 3, &count);
    if (!sizes) return lower_error(l, D_ARITY, "neither scales nor sizes are given");
    if (count != (uint32_t)n)
        return lower_error(l, D_SHAPE, "as many sizes as axes (%d) are needed", n);
    if (!axes_from_sizes(l, sizes, a, n)) return false;
    if (lower_opset(l) < 18) return true;
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};
    int policy;
    if (!lower_choice(l, "keep_aspect_ratio_policy", policies, &policy)) return false;
    if (policy) keep_aspect_ratio(g, a, n, policy == 2);
    return true;
}

static bool read_roi(Lower *l, const Resize *r, AxisResize *a, int n) {
    Graph *g = lower_graph(l);
    if (r->coordinates != CT_tf_crop_and_resize) return true;
    if (!filled(l, 1)) return lower_error(l, D_ARITY, "tf_crop_and_resize needs a roi");
    if (!lower_vector(l, 1, v_int(g, 2 * n))) return false;
    for (int i = 0; i < n; i++) {
        a[i].roi_lo = element(g, lower_in(l, 1), i);
        a[i].roi_hi = element(g, lower_in(l, 1), n + i);
    }
    return true;
}

static bool lower_resize(Lower *l) {
    Value x = lower_in(l, 0);
    if (!x) return false;
    int n, coordinates, nearest;
    Resize r = {0};
    AxisResize axes[GRAPH_MAX_RANK];
    if (!pick_mode(l, &r) ||
        !lower_choice(l, "coordinate_transformation_mode", coordinate_names, &coordinates) ||
        !lower_choice(l, "nearest_mode", nearest_names, &nearest))
        return false;
    r.coordinates = (Coordinates)coordinates;
    r.nearest = (NearestMode)nearest;
    r.exclude_outside = lower_i(l, "exclude_outside") != 0;
    r.cubic_a = lower_f(l, "cubic_coeff_a");
    r.extrapolation = lower_f(l, "extrapolation_value");
    r.antialias = lower_opset(l) >= 18 && lower_i(l, "antialias") && r.mode != IP_nearest;
    if (!read_axes(l, x, axes, &n) || !read_sizes(l, axes, n) || !read_roi(l, &r, axes, n))
        return false;
    lower_out(l, 0, resize_axes(l, &r, axes, n, x));
    return true;
}

/* Upsample and Resize-10 have one meaning: positions o / scale, rounded down. */
static bool resize_plain(Lower *l, Value scales) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    if (!x || !scales) return false;
    Resize r = {.coordinates = CT_asymmetric, .nearest = NM_floor};
    AxisResize axes[GRAPH_MAX_RANK];
    int n = v_rank(g, x);
    if (!pick_mode(l, &r)) return false;
    if (!expr_is_value(g->exprs, v_dim(g, scales, 0), n))
        return lower_error(l, D_SHAPE, "as many scales as axes (%d) are needed", n);
    Type declared;
    bool has_type = lower_declared(l, 0, &declared) && declared.rank == n;
    for (int i = 0; i < n; i++)
        axes[i] = (AxisResize){
            .axis = i, .in = v_dim(g, x, i), .declared = has_type ? declared.dim[i] : 0};
    if (!axes_from_scales(l, scales, axes, n)) return false;
    lower_out(l, 0, resize_axes(l, &r, axes, n, x));
    return true;
}

static bool lower_resize_10(Lower *l) {
    return resize_plain(l, lower_in(l, 1));
}

static bool lower_upsample_7(Lower *l) {
    uint32_t n;
    const float *scales = lower_floats(l, "scales", &n);
    return resize_plain(l, v_floats(lower_graph(l), scales, n));
}

static bool lower_upsample_1(Lower *l) {
    float scales[4] = {1, 1, (float)lower_f(l, "height_scale"), (float)lower_f(l, "width_scale")};
    return resize_plain(l, v_floats(lower_graph(l), scales, 4));
}

static const char *const resize18_attrs[] = {"antialias:i=0",
                                             "axes:I",
                                             "mode:s=nearest",
                                             "coordinate_transformation_mode:s=half_pixel",
                                             "exclude_outside:i=0",
                                             "cubic_coeff_a:f=-0.75",
                                             "extrapolation_value:f=0.0",
                                             "nearest_mode:s=round_prefer_floor",
                                             "keep_aspect_ratio_policy:s=stretch",
                                             NULL};
static const char *const resize11_attrs[] = {"mode:s=nearest",
                                             "coordinate_transformation_mode:s=half_pixel",
                                             "exclude_outside:i=0",
                                             "cubic_coeff_a:f=-0.75",
                                             "extrapolation_value:f=0.0",
                                             "nearest_mode:s=round_prefer_floor",
                                             NULL};
static const char *const mode_attrs[] = {"mode:s=nearest", NULL};
static const char *const upsample7_attrs[] = {"mode:s=nearest", "scales:F!", NULL};
static const char *const upsample1_attrs[] = {"mode:s=nearest", "height_scale:f!", "width_scale:f!",
                                              NULL};

const OnnxOp ops_resize[] = {{"", "Resize", 10, 10, 2, 2, 1, 1, mode_attrs, lower_resize_10},
                             {"", "Resize", 11, 17, 1, 4, 1, 1, resize11_attrs, lower_resize},
                             {"", "Resize", 18, 0, 1, 4, 1, 1, resize18_attrs, lower_resize},
                             {"", "Upsample", 1, 6, 1, 1, 1, 1, upsample1_attrs, lower_upsample_1},
                             {"", "Upsample", 7, 8, 1, 1, 1, 1, upsample7_attrs, lower_upsample_7},
                             {"", "Upsample", 9, 9, 2, 2, 1, 1, mode_attrs, lower_resize_10},
                             {0}};
