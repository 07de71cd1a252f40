/* Reading tensors at computed positions: GridSample, DeformConv, RoiAlign and kin; Col2Im, which
 * writes at them. */
#include "frontend/import/import_impl.h"
#include "frontend/ops/nn/nn.h"
#include <math.h>
#include <string.h>

typedef enum Outside { OUT_zeros, OUT_border, OUT_reflection } Outside;
static const char *const outside_names[] = {"zeros", "border", "reflection", NULL};
typedef enum Mode { MODE_nearest, MODE_linear, MODE_cubic } Mode;

/* samples: along an axis of a bin */
enum { MAX_TAPS = 4, MAX_SAMPLES = 1024, MAX_ADAPTIVE = 1 << 15 };

typedef struct Sampler {
    Mode mode;
    Outside outside;
    bool align_corners;
    int lead;                   /* leading axes that data and result share */
    int n;                      /* sampled axes after them */
    Value at[GRAPH_MAX_WINDOW]; /* float positions, broadcast to the result's shape */
} Sampler;

typedef struct Taps {
    int n;
    Value index[MAX_TAPS], weight[MAX_TAPS]; /* float; weight 0 = one */
} Taps;

static Value float_expr(Graph *g, DType t, Expr e) {
    return build_cast(g, build_expr(g, DT_i64, e), t);
}

/* Mirrors x at lo and hi until it lies between them. */
static Value reflect(Graph *g, Value x, Value lo, Value hi) {
    Value range = v_sub(g, hi, lo), d = v_abs(g, v_sub(g, x, lo));
    Value safe = v_select_f(g, v_lt(g, v_const(g, range, 0), range), range, 1);
    Value n = v_floor(g, v_div(g, d, safe));
    Value r = v_sub(g, d, v_mul(g, n, range));
    Value even = v_eqf(g, build_binary_f(g, OP_mod, n, 2), 0);
    return build_select(g, even, v_add(g, lo, r), v_sub(g, hi, r));
}

/* Moves a position on an axis of `size` elements inside. */
static Value bring_inside(Graph *g, const Sampler *s, Value x, Value size) {
    double edge = s->align_corners ? 0 : 0.5;
    Value last = v_addf(g, size, -1);
    if (s->outside == OUT_border) return v_min(g, v_maxf(g, x, 0), last);
    if (s->outside == OUT_reflection)
        return reflect(g, x, v_const(g, x, -edge), v_addf(g, last, edge));
    return x;
}

static Value keys_weight(Graph *g, Value d, double a) {
    Value x = v_abs(g, d), x2 = v_square(g, x), x3 = v_mul(g, x2, x);
    Value near = v_addf(g, v_add(g, v_mulf(g, x3, a + 2), v_mulf(g, x2, -(a + 3))), 1);
    Value far = v_add(g, v_mulf(g, x3, a), v_mulf(g, x2, -5 * a));
    far = v_addf(g, v_add(g, far, v_mulf(g, x, 8 * a)), -4 * a);
    return build_select(g, v_lef(g, x, 1), near, far);
}

static Taps axis_taps(Graph *g, const Sampler *s, int axis, Expr length) {
    Taps t = {.n = s->mode == MODE_nearest ? 1 : s->mode == MODE_linear ? 2 : 4};
    Value x = s->at[axis], size = float_expr(g, v_dtype(g, x), length);
    if (s->mode == MODE_nearest) x = build_unary(g, OP_round, x);
    /* At a border, cubic taps are moved inside and the position is not: its weights stay. */
    if (s->mode != MODE_cubic || s->outside != OUT_border) x = bring_inside(g, s, x, size);
    Value base = v_floor(g, x);
    for (int i = 0; i < t.n; i++) {
        int k = s->mode == MODE_cubic ? i - 1 : i;
        Value at = v_addf(g, base, k), d = v_sub(g, x, at), w = 0;
        if (s->mode == MODE_linear) w = v_addf(g, v_neg(g, v_abs(g, d)), 1);
        if (s->mode == MODE_cubic) w = keys_weight(g, d, -0.75);
        if (s->outside == OUT_zeros) {
            Value in = v_and(g, v_le(g, v_const(g, at, 0), at), v_lt(g, at, size));
            w = v_select_f(g, in, w ? w : v_const(g, at, 1), 0);
        } else {
            at = bring_inside(g, s, at, size);
        }
        t.index[i] = at;
        t.weight[i] = w;
    }
    return t;
}

/* Sum over all combinations of taps of the axes from `axis` on. */
static Value sum_taps(Graph *g, const Sampler *s, const Taps *taps, Value data, const Type *out,
                      int axis, const Value *index, Value weight) {
    if (axis == s->n) {
        int8_t src[GRAPH_MAX_RANK];
        for (int i = 0; i < s->lead; i++) src[i] = (int8_t)i;
        for (int i = 0; i < s->n; i++) src[s->lead + i] = (int8_t)(-1 - i);
        Value y = build_gather(g, data, src, index, (uint32_t)s->n, out->rank, out->dim);
        return weight ? v_mul(g, y, weight) : y;
    }
    Value chosen[GRAPH_MAX_WINDOW], sum = 0;
    for (int i = 0; i < axis; i++) chosen[i] = index[i];
    for (int i = 0; i < taps[axis].n; i++) {
        Value w = taps[axis].weight[i];
        Value both = !weight ? w : !w ? weight : v_mul(g, weight, w);
        chosen[axis] = build_cast(g, taps[axis].index[i], DT_i64);
        chosen[axis] = build_expand(g, chosen[axis], out->rank, out->dim);
        Value y = sum_taps(g, s, taps, data, out, axis + 1, chosen, both);
        sum = sum ? v_add(g, sum, y) : y;
    }
    return sum;
}

/* data [L.., S..] at the positions; the result's shape is [L.., positions' trailing axes]. */
static Value sample(Graph *g, const Sampler *s, Value data, const Type *out) {
    Taps taps[GRAPH_MAX_WINDOW];
    for (int i = 0; i < s->n; i++) {
        if (!s->at[i]) return 0;
        taps[i] = axis_taps(g, s, i, v_dim(g, data, s->lead + i));
    }
    return sum_taps(g, s, taps, data, out, 0, NULL, 0);
}

/* ---- GridSample, AffineGrid ---------------------------------------------------------------- */

static bool read_mode(Lower *l, Sampler *s) {
    /* The first two were renamed with opset 20. */
    static const char *const names[] = {"bilinear", "bicubic", "nearest", "linear", "cubic", NULL};
    static const Mode modes[] = {MODE_linear, MODE_cubic, MODE_nearest, MODE_linear, MODE_cubic};
    int mode, outside;
    if (!lower_choice(l, "mode", names, &mode) ||
        !lower_choice(l, "padding_mode", outside_names, &outside))
        return false;
    s->mode = modes[mode];
    s->outside = (Outside)outside;
    return true;
}

/* Component c of grid [N, O.., n] in [-1, 1] as a position on an axis, [N, 1, O..]. */
static Value grid_position(Graph *g, const Sampler *s, Value grid, int c, Expr length) {
    Value x = build_unsqueeze(g, v_at(g, grid, v_rank(g, grid) - 1, v_int(g, c)), 1);
    if (!x) return 0;
    Value size = float_expr(g, v_dtype(g, x), length);
    x = v_addf(g, x, 1);
    if (s->align_corners) return v_mul(g, v_mulf(g, x, 0.5), v_addf(g, size, -1));
    return v_mulf(g, v_addf(g, v_mul(g, x, size), -1), 0.5);
}

static bool lower_grid_sample(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), grid = lower_in(l, 1);
    if (!x || !grid) return false;
    Sampler s = {.lead = 2, .n = v_rank(g, x) - 2, .align_corners = lower_i(l, "align_corners")};
    if (s.n < 1 || s.n > GRAPH_MAX_WINDOW || v_rank(g, grid) != s.n + 2)
        return lower_error(l, D_SHAPE, "an input of rank %d, a grid of rank %d", s.n + 2,
                           v_rank(g, grid));
    if (!read_mode(l, &s)) return false;
    lower_assume(l, v_dim(g, grid, s.n + 1), v_int(g, s.n));
    Type out = *graph_type(g, x);
    Value wide = v_widen(g, x), positions = build_cast(g, grid, v_wide_type(out.dtype));
    for (int i = 0; i < s.n; i++) {
        s.at[i] = grid_position(g, &s, positions, s.n - 1 - i, out.dim[2 + i]);
        out.dim[2 + i] = v_dim(g, grid, 1 + i);
    }
    lower_out(l, 0, v_cast_like(g, sample(g, &s, wide, &out), x));
    return true;
}

/* The centres (or, aligned, the corners) of n cells that divide [-1, 1]. */
static Value unit_positions(Graph *g, DType t, Expr n, bool align) {
    Value i = v_iota(g, t, n), size = float_expr(g, t, n);
    if (align) return v_addf(g, v_div(g, v_mulf(g, i, 2), v_addf(g, size, -1)), -1);
    return v_addf(g, v_div(g, v_addf(g, v_mulf(g, i, 2), 1), size), -1);
}

static bool lower_affine_grid(Lower *l) {
    Graph *g = lower_graph(l);
    Value theta = lower_in(l, 0);
    uint32_t rank;
    const Expr *size = lower_shape_in(l, 1, &rank);
    if (!theta || !size) return false;
    int n = (int)rank - 2;
    if (n < 2 || n > 3 || v_rank(g, theta) != 3)
        return lower_error(l, D_SHAPE, "size has %u values, theta has rank %d", rank,
                           v_rank(g, theta));
    lower_assume(l, v_dim(g, theta, 1), v_int(g, n));
    lower_assume(l, v_dim(g, theta, 2), v_int(g, n + 1));
    Value wide = v_widen(g, theta), sum = 0;
    for (int k = 0; k <= n; k++) { /* column k multiplies x, y, (z,) 1 */
        Value column = build_slice_axis(g, wide, 2, v_int(g, k), v_int(g, 1), 1);
        Expr dim[GRAPH_MAX_RANK] = {v_dim(g, theta, 0)};
        for (int i = 1; i <= n; i++) dim[i] = v_int(g, 1);
        dim[n + 1] = v_int(g, n);
        Value term = build_reshape(g, column, (uint8_t)(n + 2), dim);
        if (k < n) {
            Value at = unit_positions(g, v_dtype(g, wide), size[rank - 1 - (uint32_t)k],
                                      lower_i(l, "align_corners") != 0);
            term = v_mul(g, term, v_along(g, at, n + 2, n - k));
        }
        sum = sum ? v_add(g, sum, term) : term;
    }
    lower_out(l, 0, v_cast_like(g, sum, theta));
    return true;
}

/* ---- DeformConv ---------------------------------------------------------------------------- */

/* Position along spatial axis i, [N, OG, 1, K.., O..]: o*stride - pad + k*dilation + offset. */
static Value deform_position(Graph *g, const Window *w, Value offset, int i, const Expr *count) {
    int n = w->n, rank = 3 + 2 * n;
    DType t = v_dtype(g, offset);
    Value x = build_unsqueeze(g, v_at(g, offset, 2 + n, v_int(g, i)), 2);
    Value tap = v_mulf(g, v_iota(g, t, v_int(g, w->size[i])), (double)w->dilation[i]);
    Value out = v_mulf(g, v_iota(g, t, count[i]), (double)w->stride[i]);
    out = v_sub(g, out, float_expr(g, t, w->lo[i]));
    return v_add(g, v_add(g, x, v_along(g, tap, rank, 3 + i)), v_along(g, out, rank, 3 + n + i));
}

/* [N, C, K.., O..] in groups against w [OC, C/groups, K..]: [N, OC, O..] */
static Value deform_product(Graph *g, Value taps, Value w, int64_t groups, const Expr *count, int n,
                            Expr channels) {
    ExprPool *p = g->exprs;
    Expr batch = v_dim(g, taps, 0), oc = v_dim(g, w, 0), area = v_int(g, 1);
    Expr gr = v_int(g, groups), depth = expr_div(p, channels, gr), out[GRAPH_MAX_RANK];
    for (int i = 0; i < n; i++) {
        area = expr_mul(p, area, count[i]);
        depth = expr_mul(p, depth, v_dim(g, w, 2 + i));
        out[2 + i] = count[i];
    }
    Expr rows = expr_div(p, oc, gr);
    taps = build_reshape(g, taps, 4, (Expr[]){batch, gr, depth, area});
    w = build_reshape(g, w, 3, (Expr[]){gr, rows, depth});
    w = build_expand(g, w, 4, (Expr[]){batch, gr, rows, depth});
    Value y = build_dot(g, w, taps, v_dtype(g, w));
    out[0] = batch, out[1] = oc;
    return build_reshape(g, y, (uint8_t)(2 + n), out);
}

static bool lower_deform_conv(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    Value x = lower_in(l, 0), w = lower_in(l, 1), offset = lower_in(l, 2);
    if (!x || !w || !offset) return false;
    Window win;
    int64_t groups, og = lower_i(l, "offset_group");
    if (!nn_conv_read(l, x, w, &win, &groups)) return false;
    if (win.n > 2 || og < 1) return lower_unsupported(l, NULL, "more than two spatial axes");
    int n = win.n;
    Type tx = *graph_type(g, x), out = {.dtype = tx.dtype, .rank = (uint8_t)(3 + 2 * n)};
    Expr count[GRAPH_MAX_WINDOW], dim[GRAPH_MAX_RANK] = {tx.dim[0], v_int(g, og)};
    for (int i = 0; i < n; i++) {
        count[i] = nn_window_count(g, x, &win, i);
        dim[2 + i] = v_int(g, win.size[i]);
        dim[3 + n + i] = count[i];
    }
    dim[2 + n] = v_int(g, n);
    Value off = build_reshape(g, v_widen(g, offset), (uint8_t)(3 + 2 * n), dim);
    Sampler s = {.mode = MODE_linear, .lead = 3, .n = n};
    for (int i = 0; i < n; i++) s.at[i] = deform_position(g, &win, off, i, count);
    Expr split[GRAPH_MAX_RANK] = {tx.dim[0], v_int(g, og), expr_div(p, tx.dim[1], v_int(g, og))};
    memcpy(split + 3, tx.dim + 2, (size_t)n * sizeof *split);
    memcpy(out.dim, split, 3 * sizeof *split);
    for (int i = 0; i < n; i++) out.dim[3 + i] = dim[2 + i], out.dim[3 + n + i] = count[i];
    Value taps = sample(g, &s, build_reshape(g, v_widen(g, x), (uint8_t)(3 + n), split), &out);
    if (lower_has_in(l, 4)) {
        memcpy(dim + 2 + n, count, (size_t)n * sizeof *dim);
        Value mask = build_reshape(g, v_widen(g, lower_in(l, 4)), (uint8_t)(2 + 2 * n), dim);
        taps = v_mul(g, taps, build_unsqueeze(g, mask, 2));
    }
    if (!taps) return false;
    Value y = deform_product(g, taps, v_widen(g, w), groups, count, n, tx.dim[1]);
    if (lower_has_in(l, 3)) y = v_add(g, y, v_along(g, v_widen(g, lower_in(l, 3)), 2 + n, 1));
    lower_out(l, 0, v_cast_like(g, y, x));
    return true;
}

/* ---- RoiAlign, MaxRoiPool ------------------------------------------------------------------ */

/* Column c of rois [R, k], scaled and shifted, [R]. */
static Value roi_edge(Graph *g, Value rois, int c, double scale, double shift) {
    return v_addf(g, v_mulf(g, v_at(g, rois, 1, v_int(g, c)), scale), shift);
}

/* What a bin measures along an axis, [R]. */
static Value roi_bin(Graph *g, Value lo, Value hi, bool force, int64_t bins) {
    Value size = v_sub(g, hi, lo);
    if (force) size = v_maxf(g, size, 1);
    return v_divf(g, size, (double)bins);
}

/* Sample positions along one axis: regions along axis 0, bins along 2 + axis, and what `in`, the
 * place in a bin from 0 to 1, has. */
static Value roi_positions(Graph *g, Value lo, Value size, int64_t bins, Value in, int axis) {
    if (!in) return 0;
    int rank = v_rank(g, in);
    Value bin = v_along(g, v_iota(g, v_dtype(g, lo), v_int(g, bins)), rank, 2 + axis);
    Value at = v_mul(g, v_add(g, bin, in), v_along(g, size, rank, 0));
    return v_add(g, v_along(g, lo, rank, 0), at);
}

/* Two taps along an axis; positions outside by more than one element have weight 0. */
static Taps roi_taps(Graph *g, Value x, Expr length) {
    Value size = float_expr(g, v_dtype(g, x), length), last = v_addf(g, size, -1);
    Value valid = v_and(g, v_le(g, v_const(g, x, -1), x), v_le(g, x, size));
    x = v_min(g, v_maxf(g, x, 0), last);
    Value low = v_floor(g, x), part = v_sub(g, x, low);
    Taps t = {.n = 2, .index = {low, v_min(g, v_addf(g, low, 1), last)}};
    t.weight[0] = v_select_f(g, valid, v_addf(g, v_neg(g, part), 1), 0);
    t.weight[1] = v_select_f(g, valid, part, 0);
    return t;
}

typedef struct RoiAlign {
    int64_t oh, ow, samples; /* per axis of a bin; 0 or less: one for each element */
    int half, max;           /* half-pixel coordinates; the largest sample instead of the mean */
} RoiAlign;

static bool roi_align_read(Lower *l, RoiAlign *r) {
    static const char *const coordinates[] = {"output_half_pixel", "half_pixel", NULL};
    static const char *const modes[] = {"avg", "max", NULL};
    const int rank = lower_type(l, 0)->rank, regions = lower_type(l, 1)->rank;
    *r = (RoiAlign){.oh = lower_i(l, "output_height"), .ow = lower_i(l, "output_width")};
    r->samples = lower_i(l, "sampling_ratio");
    if (lower_opset(l) >= 16 &&
        !lower_choice(l, "coordinate_transformation_mode", coordinates, &r->half))
        return false;
    if (!lower_choice(l, "mode", modes, &r->max) || !lower_is(l, 2, TYPES_INT)) return false;
    if (rank != 4 || regions != 2)
        return lower_error(l, D_SHAPE, "an input of rank %d and regions of rank %d, not 4 and 2",
                           rank, regions);
    lower_assume(l, lower_type(l, 1)->dim[1], expr_const(lower_exprs(l), 4));
    if (r->oh < 1 || r->ow < 1 || r->oh > INT32_MAX || r->ow > INT32_MAX ||
        r->samples > MAX_SAMPLES)
        return lower_error(l, D_ATTRIBUTE, "%lld samples in bins of %lld by %lld",
                           (long long)r->samples, (long long)r->oh, (long long)r->ow);
    return true;
}

/* Sums, or the largest, of the four taps around each sample: rank and sizes as those of the
 * samples. */
static Value roi_sample(Graph *g, const RoiAlign *r, Value x, Value batch, Value rows,
                        Value columns, int rank, const Expr *dim) {
    Taps th = roi_taps(g, rows, v_dim(g, x, 2)), tw = roi_taps(g, columns, v_dim(g, x, 3));
    Value y = 0, index[3] = {build_expand(g, v_along(g, batch, rank, 0), (uint8_t)rank, dim)};
    for (int i = 0; i < 4; i++) {
        index[1] = build_expand(g, build_cast(g, th.index[i / 2], DT_i64), (uint8_t)rank, dim);
        index[2] = build_expand(g, build_cast(g, tw.index[i % 2], DT_i64), (uint8_t)rank, dim);
        Value v = build_gather(g, x, (int8_t[]){-1, 1, -2, -3}, index, 3, (uint8_t)rank, dim);
        v = v_mul(g, v, v_mul(g, th.weight[i / 2], tw.weight[i % 2]));
        y = !y ? v : r->max ? v_max(g, y, v) : v_add(g, y, v);
    }
    return y;
}

/* What a RoiAlign reads: values of the graph, or captures of a body. */
typedef struct Regions {
    Value x, batch;
    Value lo[2], bin[2]; /* along rows and columns, [R] */
    Value count[2];      /* samples a bin, [R], where each region has its own ... */
    Value columns;       /* ... and the most of the latter, i64 */
} Regions;
enum { REGIONS = sizeof(Regions) / sizeof(Value) };

/* Samples of all bins at once: [R, C, OH, OW, SH, SW]. */
static Value roi_fixed(Graph *g, const RoiAlign *r, const Regions *in) {
    const int64_t bins[] = {r->oh, r->ow};
    Expr s = v_int(g, r->samples);
    Expr dim[6] = {
        v_dim(g, in->batch, 0), v_dim(g, in->x, 1), v_int(g, r->oh), v_int(g, r->ow), s, s};
    Value at[2];
    for (int i = 0; i < 2; i++) {
        Value k = v_addf(g, v_iota(g, v_dtype(g, in->x), s), 0.5);
        k = v_along(g, v_divf(g, k, (double)r->samples), 6, 4 + i);
        at[i] = roi_positions(g, in->lo[i], in->bin[i], bins[i], k, i);
    }
    Value y = roi_sample(g, r, in->x, in->batch, at[0], at[1], 6, dim);
    return r->max ? build_reduce(g, OP_reduce_max, y, 0x30, false) : build_mean(g, y, 0x30, false);
}

/* `so_far` and sample number n of each bin, of those regions that have so many. */
static Value roi_add_sample(Graph *g, const RoiAlign *r, const Regions *in, Value so_far, Value n) {
    const int64_t bins[] = {r->oh, r->ow};
    Value k[] = {build_binary(g, OP_div, n, in->columns), build_binary(g, OP_rem, n, in->columns)};
    Value at[2], has = 0;
    for (int i = 0; i < 2; i++) {
        Value x = build_cast(g, k[i], v_dtype(g, in->x)), there = v_lt(g, x, in->count[i]);
        Value place = v_div(g, v_addf(g, x, 0.5), v_maxf(g, in->count[i], 1));
        at[i] = roi_positions(g, in->lo[i], in->bin[i], bins[i], v_along(g, place, 4, 0), i);
        has = has ? v_and(g, has, there) : there;
    }
    if (!so_far) return 0;
    Value v = roi_sample(g, r, in->x, in->batch, at[0], at[1], 4, graph_type(g, so_far)->dim);
    Value both = r->max ? v_max(g, so_far, v) : v_add(g, so_far, v);
    return build_select(g, v_along(g, has, 4, 0), both, so_far);
}

/* cond, so_far, what `in` holds -> cond, so_far with one more sample; NULL after an error. */
static Graph *roi_body(Lower *l, const RoiAlign *r, const Value *in, Value start, Expr number) {
    Graph *g = lower_graph(l), *body = graph_create(g->arena, g->exprs, g->diags, "sample");
    body->is_body = true;
    vec_push(l->im->arena, &l->im->subgraphs, body);
    build_at(body, build_loc_from(body, g, build_loc(g), 0));
    build_input(body, "cond", (Type){.dtype = DT_bool});
    Value so_far = build_input(body, "so_far", *graph_type(g, start)), inner[REGIONS];
    for (uint32_t i = 0; i < REGIONS; i++)
        inner[i] = build_input(body, arena_printf(g->arena, "in.%u", i), *graph_type(g, in[i]));
    Regions regions;
    memcpy(&regions, inner, sizeof inner);
    so_far = roi_add_sample(body, r, &regions, so_far, build_expr(body, DT_i64, number));
    if (!so_far) return NULL;
    build_output(body, "cond", build_scalar_i(body, DT_bool, 1));
    build_output(body, "so_far", so_far);
    return body;
}

/* As many samples as a bin has elements, which is another number for each region: sample by sample,
 * up to the most that any region has. */
static Value roi_adaptive(Lower *l, const RoiAlign *r, Regions *in) {
    Graph *g = lower_graph(l);
    uint32_t iter;
    Expr number = v_iteration(g, "sample", &iter);
    Value most[2], captures[REGIONS];
    for (int i = 0; i < 2; i++) {
        in->count[i] = v_clamp(g, build_unary(g, OP_ceil, in->bin[i]), 0, MAX_ADAPTIVE);
        most[i] = build_cast(g, build_reduce(g, OP_reduce_max, in->count[i], 1, false), DT_i64);
    }
    in->columns = v_maxf(g, most[1], 1);
    Expr dim[4] = {v_dim(g, in->batch, 0), v_dim(g, in->x, 1), v_int(g, r->oh), v_int(g, r->ow)};
    Value start = r->max ? v_lowest(g, v_dtype(g, in->x)) : v_const(g, in->x, 0);
    start = build_full(g, start, 4, dim);
    if (!start || !in->columns) return 0;
    memcpy(captures, in, sizeof captures);
    Graph *body = roi_body(l, r, captures, start, number);
    if (!body) return 0;
    Value loop = build_loop(g, v_mul(g, most[0], most[1]), build_scalar_i(g, DT_bool, 1), &start, 1,
                            captures, REGIONS, body, iter);
    Value y = build_proj(g, loop, 0), count = v_mul(g, in->count[0], in->count[1]);
    if (!r->max) return v_div(g, y, v_along(g, v_maxf(g, count, 1), 4, 0));
    return v_select_f(g, v_not(g, v_ltf(g, v_along(g, count, 4, 0), 1)), y, 0); /* no sample: 0 */
}

static bool lower_roi_align(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), rois = lower_in(l, 1), batch = lower_in(l, 2);
    RoiAlign r;
    if (!x || !rois || !batch || !roi_align_read(l, &r)) return false;
    const double scale = lower_f(l, "spatial_scale"), shift = r.half ? -0.5 : 0;
    Regions in = {.x = v_widen(g, x), .batch = build_cast(g, batch, DT_i64)};
    for (int i = 0; i < 2; i++) { /* columns of rois: x1, y1, x2, y2 */
        in.lo[i] = roi_edge(g, v_widen(g, rois), 1 - i, scale, shift);
        Value hi = roi_edge(g, v_widen(g, rois), 3 - i, scale, shift);
        in.bin[i] = roi_bin(g, in.lo[i], hi, !r.half, i ? r.ow : r.oh);
    }
    Value y = r.samples > 0 ? roi_fixed(g, &r, &in) : roi_adaptive(l, &r, &in);
    lower_out(l, 0, v_cast_like(g, y, x));
    return y != 0;
}

/* bool [R, bins, length]: the elements of each bin along one axis. */
static Value bin_members(Graph *g, Value lo, Value hi, int64_t bins, Expr length) {
    DType t = v_dtype(g, lo);
    Value size = v_maxf(g, v_addf(g, v_sub(g, hi, lo), 1), 1);
    size = v_along(g, v_divf(g, size, (double)bins), 3, 0);
    Value bin = v_along(g, v_iota(g, t, v_int(g, bins)), 3, 1), start = v_along(g, lo, 3, 0);
    Value from = v_add(g, v_floor(g, v_mul(g, bin, size)), start);
    Value to = v_add(g, build_unary(g, OP_ceil, v_mul(g, v_addf(g, bin, 1), size)), start);
    Value at = v_along(g, v_iota(g, t, length), 3, 2);
    return v_and(g, v_le(g, from, at), v_lt(g, at, to));
}

static bool lower_max_roi_pool(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), rois = lower_in(l, 1), edge[4];
    if (!x || !rois) return false;
    uint32_t n;
    const int64_t *pooled = lower_ints(l, "pooled_shape", &n);
    if (n != 2 || v_rank(g, x) != 4 || v_rank(g, rois) != 2)
        return lower_error(l, D_SHAPE, "wrong ranks");
    Value r = v_widen(g, rois);
    for (int i = 0; i < 4; i++) {
        Value e = roi_edge(g, r, 1 + i, lower_f(l, "spatial_scale"), 0.5);
        edge[i] = v_floor(g, e); /* rounded half up */
    }
    Value batch = build_cast(g, roi_edge(g, r, 0, 1, 0), DT_i64);
    Value rows = build_take(g, x, batch, 0); /* [R, C, H, W] */
    Value in_w = bin_members(g, edge[0], edge[2], pooled[1], v_dim(g, x, 3));
    Value in_h = bin_members(g, edge[1], edge[3], pooled[0], v_dim(g, x, 2));
    in_w = build_unsqueeze(g, build_unsqueeze(g, in_w, 1), 1); /* [R, 1, 1, PW, W] */
    Value low = v_lowest(g, v_dtype(g, x));
    Value y = build_select(g, in_w, build_unsqueeze(g, rows, 3), low);
    y = build_reduce(g, OP_reduce_max, y, 1u << 4, false); /* [R, C, H, PW] */
    in_h = build_unsqueeze(g, build_unsqueeze(g, in_h, 3), 1);
    y = build_select(g, in_h, build_unsqueeze(g, y, 2), low);
    y = build_reduce(g, OP_reduce_max, y, 1u << 3, false);
    lower_out(l, 0, v_select_f(g, v_not(g, v_eq(g, y, low)), y, 0));
    return true;
}

/* ---- Col2Im -------------------------------------------------------------------------------- */

static bool lower_col2im(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    Value x = lower_in(l, 0), index[GRAPH_MAX_RANK];
    uint32_t n, nblock;
    const Expr *image = lower_shape_in(l, 1, &n), *block = lower_shape_in(l, 2, &nblock);
    if (!x || !image || !block) return false;
    if (n != nblock || n < 1 || n > 4 || v_rank(g, x) != 3)
        return lower_error(l, D_SHAPE, "%u image and %u block sizes", n, nblock);
    int64_t dilation[4], stride[4], pads[8];
    int k = (int)n, rank = 2 + 2 * k;
    if (!nn_read_ints(l, "dilations", k, 1, 1, dilation) ||
        !nn_read_ints(l, "strides", k, 1, 1, stride) || !nn_read_ints(l, "pads", 2 * k, 0, 0, pads))
        return false;
    Expr dim[GRAPH_MAX_RANK] = {v_dim(g, x, 0)}, out[GRAPH_MAX_RANK], taps = v_int(g, 1);
    int8_t src[GRAPH_MAX_RANK] = {0, 1};
    for (int i = 0; i < k; i++) {
        Expr span = expr_muli(p, expr_addi(p, block[i], -1), dilation[i]);
        Expr room = expr_sub(p, expr_addi(p, image[i], pads[i] + pads[k + i] - 1), span);
        dim[2 + i] = block[i];
        dim[2 + k + i] = expr_addi(p, expr_div(p, room, v_int(g, stride[i])), 1);
        taps = expr_mul(p, taps, block[i]);
        out[2 + i] = image[i];
        src[2 + i] = (int8_t)(-1 - i);
    }
    dim[1] = expr_div(p, v_dim(g, x, 1), taps);
    out[0] = dim[0], out[1] = dim[1];
    Value updates = build_reshape(g, x, (uint8_t)rank, dim);
    for (int i = 0; i < k; i++) {
        Value tap = v_mulf(g, v_iota(g, DT_i64, block[i]), (double)dilation[i]);
        Value at = v_mulf(g, v_iota(g, DT_i64, dim[2 + k + i]), (double)stride[i]);
        at = v_addf(g, at, -(double)pads[i]);
        at = v_add(g, v_along(g, tap, rank, 2 + i), v_along(g, at, rank, 2 + k + i));
        index[i] = build_expand(g, at, (uint8_t)rank, dim);
    }
    Value zeros = v_zeros(g, v_dtype(g, x), 2 + k, out);
    lower_out(l, 0, build_scatter(g, zeros, updates, src, index, n, SCATTER_add));
    return true;
}

static const char *const grid_attrs[] = {"align_corners:i=0", "mode:s=linear",
                                         "padding_mode:s=zeros", NULL};
static const char *const affine_attrs[] = {"align_corners:i=0", NULL};
static const char *const deform_attrs[] = {
    "auto_pad:s=NOTSET", "dilations:I", "group:i=1", "kernel_shape:I",
    "offset_group:i=1",  "pads:I",      "strides:I", NULL};
static const char *const roi10_attrs[] = {"mode:s=avg",          "output_height:i=1",
                                          "output_width:i=1",    "sampling_ratio:i=0",
                                          "spatial_scale:f=1.0", NULL};
static const char *const roi16_attrs[] = {"mode:s=avg",
                                          "output_height:i=1",
                                          "output_width:i=1",
                                          "sampling_ratio:i=0",
                                          "spatial_scale:f=1.0",
                                          "coordinate_transformation_mode:s=half_pixel",
                                          NULL};
static const char *const roi_pool_attrs[] = {"pooled_shape:I!", "spatial_scale:f=1.0", NULL};
static const char *const col2im_attrs[] = {"dilations:I", "pads:I", "strides:I", NULL};

const OnnxOp ops_sample[] = {
    {"", "GridSample", 16, 0, 2, 2, 1, 1, grid_attrs, lower_grid_sample},
    {"", "AffineGrid", 20, 0, 2, 2, 1, 1, affine_attrs, lower_affine_grid},
    {"", "DeformConv", 19, 0, 3, 5, 1, 1, deform_attrs, lower_deform_conv},
    {"", "RoiAlign", 10, 15, 3, 3, 1, 1, roi10_attrs, lower_roi_align},
    {"", "RoiAlign", 16, 0, 3, 3, 1, 1, roi16_attrs, lower_roi_align},
    {"", "MaxRoiPool", 1, 0, 2, 2, 1, 1, roi_pool_attrs, lower_max_roi_pool},
    {"", "Col2Im", 18, 0, 3, 3, 1, 1, col2im_attrs, lower_col2im},
    {0}};
