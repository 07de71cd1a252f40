/* Fourier transforms and what goes with them. A transform is a product with matrices of cosines and
 * sines, which suits the sizes that models use. */
#include "frontend/import/axes.h"
#include "frontend/import/formula.h"
#include "frontend/import/import_impl.h"
#include <string.h>

static const double two_pi = 6.28318530717958647692;

/* Windows: sums of cosines of 2 pi i / n (periodic) or 2 pi i / (n - 1). */
static bool lower_window(Lower *l) {
    static const struct {
        const char *name;
        double a0, a1, a2;
    } kinds[] = {
        {"HannWindow", 0.5, -0.5, 0},
        {"HammingWindow", 25.0 / 46, -21.0 / 46, 0},
        {"BlackmanWindow", 0.42, -0.5, 0.08},
    };
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    uint32_t kind = 0;
    Expr size;
    DType to;
    if (!lower_number_in(l, 0, &size) || !lower_dtype(l, "output_datatype", &to)) return false;
    while (strcmp(kinds[kind].name, lower_op_name(l))) kind++;
    const Expr period = lower_i(l, "periodic") ? size : expr_addi(p, size, -1);
    Value i = build_iota(g, DT_f64, 1, &size, 0);
    Value step =
        build_cast(g, build_expr(g, DT_i64, expr_max(p, period, expr_const(p, 1))), DT_f64);
    Value angle = build_binary_f(g, OP_mul, build_binary(g, OP_div, i, step), two_pi);
    Value v = build_binary_f(g, OP_mul, build_unary(g, OP_cos, angle), kinds[kind].a1);
    v = build_binary_f(g, OP_add, v, kinds[kind].a0);
    if (kinds[kind].a2 != 0) {
        Value twice = build_unary(g, OP_cos, build_binary_f(g, OP_mul, angle, 2));
        v = build_binary(g, OP_add, v, build_binary_f(g, OP_mul, twice, kinds[kind].a2));
    }
    lower_out(l, 0, build_cast(g, v, to));
    return true;
}

/* A signal whose last axis is the one to transform; im is 0 for a real one. */
typedef struct Complex {
    Value re, im;
} Complex;

/* cos and sin of 2 pi i k / n for i < rows, k < columns. The product is reduced modulo n first, so
 * that the angle is exact. */
static Complex twiddles(Graph *g, DType t, Expr rows, Expr columns, Expr n) {
    const Expr dim[2] = {rows, columns};
    Value turn = v_mul(g, build_iota(g, DT_i64, 2, dim, 0), build_iota(g, DT_i64, 2, dim, 1));
    Value size = build_expr(g, DT_i64, n);
    turn = build_cast(g, build_binary(g, OP_mod, turn, size), DT_f64);
    Value angle = build_binary_f(g, OP_mul, v_div(g, turn, build_cast(g, size, DT_f64)), two_pi);
    return (Complex){build_cast(g, build_unary(g, OP_cos, angle), t),
                     build_cast(g, build_unary(g, OP_sin, angle), t)};
}

/* X_k = sum x_i (cos - i sin), or with the other sign and 1/n for the inverse. */
static Complex transform(Graph *g, Complex x, Expr columns, Expr n, bool inverse) {
    if (!x.re) return (Complex){0};
    const Type t = *graph_type(g, x.re);
    const Complex w = twiddles(g, t.dtype, t.dim[t.rank - 1], columns, n);
    Complex y = {build_matmul(g, x.re, w.re, t.dtype), build_matmul(g, x.re, w.im, t.dtype)};
    if (!inverse) y.im = build_unary(g, OP_neg, y.im);
    if (x.im) {
        Value a = build_matmul(g, x.im, w.im, t.dtype), b = build_matmul(g, x.im, w.re, t.dtype);
        y.re = inverse ? v_sub(g, y.re, a) : v_add(g, y.re, a);
        y.im = v_add(g, y.im, b);
    }
    if (!inverse) return y;
    Value scale = build_cast(g, build_expr(g, DT_i64, n), t.dtype);
    return (Complex){v_div(g, y.re, scale), v_div(g, y.im, scale)};
}

/* The real signal whose first n/2 + 1 coefficients are given: the others are their conjugates, so
 * that all but the first and, for even n, the last count twice. */
static Value inverse_real(Graph *g, Complex x, Expr n) {
    ExprPool *p = g->exprs;
    if (!x.re) return 0;
    const Type t = *graph_type(g, x.re);
    const Expr bins = t.dim[t.rank - 1];
    const Complex w = twiddles(g, t.dtype, bins, n, n);
    Value k = build_iota(g, DT_i64, 1, &bins, 0);
    Value once = v_or(g, v_eq(g, k, build_scalar_i(g, DT_i64, 0)),
                      v_eq(g, build_binary_f(g, OP_mul, k, 2), build_expr(g, DT_i64, n)));
    Value weight =
        build_select(g, once, build_scalar_f(g, t.dtype, 1), build_scalar_f(g, t.dtype, 2));
    Value y = build_matmul(g, v_mul(g, x.re, weight), w.re, t.dtype);
    if (x.im) y = v_sub(g, y, build_matmul(g, v_mul(g, x.im, weight), w.im, t.dtype));
    return v_div(g, y,
                 build_cast(g, build_expr(g, DT_i64, expr_max(p, n, expr_const(p, 1))), t.dtype));
}

/* Part i of a last axis of size 1 or 2, without that axis. */
static Value part(Graph *g, Value x, int64_t i) {
    if (!x) return 0;
    return v_at(g, x, v_rank(g, x) - 1, v_int(g, i));
}

static Value join(Graph *g, Complex x) {
    if (!x.re || !x.im) return 0;
    const int rank = graph_type(g, x.re)->rank;
    const Value v[2] = {build_unsqueeze(g, x.re, rank), build_unsqueeze(g, x.im, rank)};
    return build_concat(g, v, 2, rank);
}

/* Axis `axis` to the end, or back. */
static Value swap_last(Graph *g, Value x, int axis) {
    uint8_t perm[GRAPH_MAX_RANK];
    if (!x) return 0;
    const int last = graph_type(g, x)->rank - 1;
    for (int i = 0; i <= last; i++) perm[i] = (uint8_t)i;
    perm[axis] = (uint8_t)last;
    perm[last] = (uint8_t)axis;
    return build_permute(g, x, perm);
}

/* Cut or padded with zeros to n along the last axis. */
static Value resize_last(Graph *g, Value x, Expr n) {
    ExprPool *p = g->exprs;
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    if (!x) return 0;
    const Type t = *graph_type(g, x);
    for (uint32_t i = 0; i < t.rank; i++) lo[i] = hi[i] = expr_const(p, 0);
    hi[t.rank - 1] = expr_sub(p, n, t.dim[t.rank - 1]);
    return build_pad(g, x, build_scalar_f(g, t.dtype, 0), lo, hi, NULL);
}

static Expr half_plus_one(ExprPool *p, Expr n) {
    return expr_addi(p, expr_div(p, n, expr_const(p, 2)), 1);
}

/* Whether the last axis holds complex parts or one real part. */
static bool read_complex(Lower *l, bool *out) {
    const Type *t = lower_type(l, 0);
    const Expr parts = t->dim[t->rank - 1];
    *out = expr_is_value(lower_exprs(l), parts, 2);
    if (*out || expr_is_value(lower_exprs(l), parts, 1)) return true;
    return lower_error(l, D_SHAPE, "the last axis must have size 1 (real) or 2 (complex)");
}

/* length: 0 for the axis' own. */
static Value dft(Lower *l, int axis, Expr length) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    const Type t = *lower_type(l, 0);
    const bool inverse = lower_i(l, "inverse"), onesided = lower_i(l, "onesided");
    const bool complex = expr_is_value(p, t.dim[t.rank - 1], 2);
    Complex x = {swap_last(g, part(g, lower_in(l, 0), 0), axis),
                 complex ? swap_last(g, part(g, lower_in(l, 0), 1), axis) : 0};
    const Expr own = t.dim[axis];
    if (inverse && onesided) {
        const Expr n = length ? length : expr_muli(p, expr_addi(p, own, -1), 2);
        x = (Complex){resize_last(g, x.re, half_plus_one(p, n)),
                      resize_last(g, x.im, half_plus_one(p, n))};
        return build_unsqueeze(g, swap_last(g, inverse_real(g, x, n), axis), t.rank - 1);
    }
    const Expr n = length ? length : own;
    if (length) x = (Complex){resize_last(g, x.re, n), x.im ? resize_last(g, x.im, n) : 0};
    const Complex y = transform(g, x, onesided ? half_plus_one(p, n) : n, n, inverse);
    return join(g, (Complex){swap_last(g, y.re, axis), swap_last(g, y.im, axis)});
}

/* An axis fed at run time: every axis that would give the declared shape is built, and the value
 * selects. */
static bool dft_any_axis(Lower *l, Expr axis, Expr length) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    const int rank = lower_type(l, 0)->rank;
    const Expr chosen = expr_mod(p, axis, expr_const(p, rank));
    Expr allowed = expr_const(p, 0);
    Type declared;
    Value v = 0;
    if (!lower_declared(l, 0, &declared))
        return lower_unsupported(l, "make the axis a constant",
                                 "the axis is known only at run time");
    for (int k = 0; k + 1 < rank; k++) {
        Value w = dft(l, k, length);
        if (!w) return true;
        declared.dtype = graph_type(g, w)->dtype;
        if (!type_equal(graph_type(g, w), &declared)) continue;
        const Expr hit = expr_eq(p, chosen, expr_const(p, k));
        allowed = expr_add(p, allowed, hit);
        v = v ? build_select(g, v_cond(g, hit), w, v) : w;
    }
    lower_assume(l, allowed, expr_const(p, 1));
    lower_out(l, 0, v);
    return true;
}

static bool lower_dft(Lower *l) {
    ExprPool *p = lower_exprs(l);
    const Type *t = lower_type(l, 0);
    Expr length = 0, axis = 0;
    int64_t at = lower_opset(l) < 20 ? lower_i(l, "axis") : -2;
    bool complex;
    if (t->rank < 2) return lower_error(l, D_SHAPE, "the input must have rank 2 or more");
    if (!read_complex(l, &complex)) return false;
    if (lower_has_in(l, 1) && !lower_number_in(l, 1, &length)) return false;
    if (length && expr_is_value(p, length, 0)) return lower_error(l, D_SHAPE, "the length is 0");
    if (lower_has_in(l, 2) && !lower_number_in(l, 2, &axis)) return false;
    if (complex && lower_i(l, "onesided") && !lower_i(l, "inverse"))
        return lower_error(l, D_ATTRIBUTE, "a one-sided transform needs a real input");
    if (axis && !expr_is_const(p, axis, &at)) return dft_any_axis(l, axis, length);
    const int k = lower_axis(l, at, t->rank);
    if (k < 0) return false;
    if (k == t->rank - 1)
        return lower_error(l, D_ATTRIBUTE, "the last axis holds the complex parts");
    lower_out(l, 0, dft(l, k, length));
    return true;
}

/* Frame length: the third or fourth input's size, or what the declared output tells for a length
 * that is fed at run time. */
static bool frame_size(Lower *l, uint32_t in, Expr e, Expr declared, int64_t *out) {
    ExprPool *p = lower_exprs(l);
    if (expr_is_const(p, e, out))
        return *out > 0 || lower_error(l, D_SHAPE, "input %u must be positive", in);
    if (!declared || !expr_is_const(p, declared, out) || *out <= 0)
        return lower_unsupported(l, "make it a constant", "input %u must be a constant", in);
    lower_assume(l, e, expr_const(p, *out));
    return true;
}

static Complex frames(Graph *g, Value signal, bool complex, int64_t step, int64_t length) {
    const uint8_t axis = 1;
    const int64_t dilation = 1;
    return (Complex){
        build_window(g, part(g, signal, 0), 1, &axis, &length, &step, &dilation),
        complex ? build_window(g, part(g, signal, 1), 1, &axis, &length, &step, &dilation) : 0};
}

static bool lower_stft(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    const Type t = *lower_type(l, 0);
    int64_t step, length;
    Type d = {0};
    bool complex;
    Expr step_in, length_in = 0;
    if (t.rank != 3) return lower_error(l, D_SHAPE, "the signal must have rank 3");
    if (!read_complex(l, &complex) || !lower_number_in(l, 1, &step_in)) return false;
    if (lower_has_in(l, 3) && !lower_number_in(l, 3, &length_in)) return false;
    if (!length_in && !lower_has_in(l, 2))
        return lower_error(l, D_ARITY, "a window or a frame length is needed");
    if (lower_has_in(l, 2) && lower_type(l, 2)->rank != 1)
        return lower_error(l, D_SHAPE, "the window must have rank 1");
    const bool known = lower_declared(l, 0, &d) && d.rank == 4, onesided = lower_i(l, "onesided");
    const Expr bins = !known     ? 0
                      : onesided ? expr_muli(p, expr_addi(p, d.dim[2], -1), 2)
                                 : d.dim[2];
    if (complex && onesided)
        return lower_error(l, D_ATTRIBUTE, "a one-sided transform needs a real input");
    if (!frame_size(l, 3, length_in ? length_in : lower_type(l, 2)->dim[0], bins, &length))
        return false;
    const Expr room = expr_addi(p, t.dim[1], -length);
    const Expr guess = known ? expr_div(p, room, expr_addi(p, d.dim[1], -1)) : 0;
    if (!frame_size(l, 1, step_in, guess, &step)) return false;
    Complex x = frames(g, lower_in(l, 0), complex, step, length);
    if (lower_has_in(l, 2)) {
        x.re = v_mul(g, x.re, lower_in(l, 2));
        if (x.im) x.im = v_mul(g, x.im, lower_in(l, 2));
    }
    const Expr size = expr_const(p, length);
    lower_out(l, 0,
              join(g, transform(g, x, onesided ? half_plus_one(p, size) : size, size, false)));
    return true;
}

/* log10 and 10^x through the natural ones */
static Value mel_of(Graph *g, Value hertz) {
    Value x = build_binary_f(g, OP_add, build_binary_f(g, OP_div, hertz, 700), 1);
    return build_binary_f(g, OP_mul, build_unary(g, OP_log, x), 2595 / 2.30258509299404568402);
}

static Value hertz_of(Graph *g, Value mel) {
    Value x = build_unary(g, OP_exp, build_binary_f(g, OP_mul, mel, 2.30258509299404568402 / 2595));
    return build_binary_f(g, OP_mul, build_binary_f(g, OP_sub, x, 1), 700);
}

static Value scalar_f64(Lower *l, uint32_t i) {
    return build_reshape(lower_graph(l), build_cast(lower_graph(l), lower_in(l, i), DT_f64), 0,
                         NULL);
}

/* Spectrum bins where the triangles of the mel bands begin: edges `shift`, shift + 1 ... */
static Value mel_edges(Lower *l, Expr bands, int shift) {
    Graph *g = lower_graph(l);
    const Expr dim[2] = {expr_const(g->exprs, 1), bands};
    Value low = mel_of(g, scalar_f64(l, 3)), high = mel_of(g, scalar_f64(l, 4));
    Value count = build_cast(g, build_expr(g, DT_i64, expr_addi(g->exprs, bands, 2)), DT_f64);
    Value i = build_binary_f(g, OP_add, build_iota(g, DT_f64, 2, dim, 1), shift);
    Value mel = v_add(g, v_mul(g, i, v_div(g, v_sub(g, high, low), count)), low);
    Value size = build_binary_f(g, OP_add, scalar_f64(l, 1), 1);
    return build_unary(g, OP_floor, v_div(g, v_mul(g, size, hertz_of(g, mel)), scalar_f64(l, 2)));
}

/* Weights of bin j in a band: rising from the lower edge to 1 at the centre, falling to the upper.
 */
static bool lower_mel_weights(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = g->exprs;
    DType to;
    Expr bands, length;
    if (!lower_number_in(l, 0, &bands) || !lower_number_in(l, 1, &length) ||
        !lower_dtype(l, "output_datatype", &to))
        return false;
    const Expr dim[2] = {half_plus_one(p, length), expr_const(p, 1)};
    Value j = build_iota(g, DT_f64, 2, dim, 0), zero = build_scalar_f(g, DT_f64, 0);
    Value lower = mel_edges(l, bands, 0), centre = mel_edges(l, bands, 1);
    Value upper = mel_edges(l, bands, 2), one = build_scalar_f(g, DT_f64, 1);
    Value rise = build_select(g, v_eq(g, lower, centre), one,
                              v_div(g, v_sub(g, j, lower), v_sub(g, centre, lower)));
    Value rises = v_and(g, v_le(g, lower, j), v_le(g, j, centre));
    Value fall = v_div(g, v_sub(g, upper, j), v_sub(g, upper, centre));
    Value falls = v_and(g, v_le(g, centre, j), v_lt(g, j, upper));
    Value w = build_select(g, falls, fall, build_select(g, rises, rise, zero));
    lower_out(l, 0, build_cast(g, w, to));
    return true;
}

static const char *const mel_attrs[] = {"output_datatype:i=1", NULL};
static const char *const window_attrs[] = {"output_datatype:i=1", "periodic:i=1", NULL};
static const char *const dft17_attrs[] = {"axis:i=1", "inverse:i=0", "onesided:i=0", NULL};
static const char *const dft_attrs[] = {"inverse:i=0", "onesided:i=0", NULL};
static const char *const stft_attrs[] = {"onesided:i=1", NULL};

const OnnxOp ops_signal[] = {
    {"", "HannWindow", 17, 0, 1, 1, 1, 1, window_attrs, lower_window},
    {"", "HammingWindow", 17, 0, 1, 1, 1, 1, window_attrs, lower_window},
    {"", "BlackmanWindow", 17, 0, 1, 1, 1, 1, window_attrs, lower_window},
    {"", "DFT", 17, 19, 1, 2, 1, 1, dft17_attrs, lower_dft},
    {"", "DFT", 20, 0, 1, 3, 1, 1, dft_attrs, lower_dft},
    {"", "MelWeightMatrix", 17, 0, 5, 5, 1, 1, mel_attrs, lower_mel_weights},
    {"", "STFT", 17, 0, 2, 4, 1, 1, stft_attrs, lower_stft},
    {0},
};
