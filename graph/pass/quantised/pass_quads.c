/* quads: contractions of dequantised numbers, and of integers less their zero points, become sums
 * of products of u8 by i8 in 32 bits, which vector units take in fours along k; by constant
 * weights:
 *
 *   sum (q - z) s (w t[n])  =  (sum q' w - z' sum w) (s t[n])      q' = q, or q + 128 where q is i8
 *
 * The sums of weights are computed at load. Integers are exact; of f32 the sum is exact and rounded
 * once, which moves a result by at most what the order of an f32 sum does: behind a quantiser, by
 * one step where it was at the middle of two. What a convolution reads beside its input becomes z'.
 * What multiplies is not constant where both sides were quantised, as attention's are: its zero
 * point takes the sums of rows, too, as below, and fusion turns it in each run.
 *
 * What was rounded and clamped to i8 becomes u8 for all its readers, so that nothing is stored
 * twice.
 *
 * bytes: the same for matrix units, which multiply bytes with and without signs: q' is q, and
 * weights may have another zero point, which takes the sums of the rows of q:
 *
 *   sum (q - z) (w - y)  =  sum q w - z sum (w - y) - y sum q
 *
 * and floats of 8 bits, the sum of whose products is rounded to 14 bits up to 512 of them at a
 * time, in f32 between those (codegen/nvptx/gemm). They read rows of k that begin at 16 bytes.
 *
 * Needs: transpose_sink (channels last), to run behind all that looks for f32, for targets that ask
 * (Machine.quads, Machine.bytes). Keeps: meaning, up to that rounding. Breaks: nothing; leaves dead
 * nodes. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"
#include <string.h>

enum { MAX_VIEWS = 8, MAX_SIDES = 16, SHIFT = 128 };
enum {
    MOST_TERMS = INT32_MAX / (255 * 128),    /* of a sum of (u8 - z) i8 that cannot leave 32 bits */
    MOST_UNCENTRED = INT32_MAX / (255 * 255) /* of (u8 - z) (u8 - y) */
};
enum { ALIGN = 16 }; /* of rows of bytes, that matrix units read */

/* --- What is multiplied ----------------------------------------------------------------------- */

typedef struct Factor {
    Value q;     /* of 8 bits */
    Value zero;  /* i32 scalar, or 0 */
    Value scale; /* 0 (there is none), a scalar, or of weights a row [N] */
} Factor;

static bool is_byte(const Graph *g, Value v) {
    DType t = graph_type(g, v)->dtype;
    return t == DT_u8 || t == DT_i8;
}

static bool is_narrow(const Graph *g, Value v) {
    DType t = graph_type(g, v)->dtype;
    return t == DT_f8e4m3fn || t == DT_f8e5m2;
}

/* A constant of one number, as often as it likes: the same data moved by an element. */
static bool is_splat(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    size_t size = dtype_bytes(n->type.dtype), bytes = n->attr.constant.bytes;
    const char *data = n->attr.constant.data;
    return n->op == OP_const && bytes > size && !memcmp(data, data + size, bytes - size);
}

/* The one number that v repeats, of rank 0; or 0. */
static Value scalar_of(Graph *g, Value v) {
    while (graph_node(g, v)->op == OP_expand) v = graph_node(g, v)->in[0];
    const Type t = *graph_type(g, v);
    bool one = expr_is_value(g->exprs, type_numel(g->exprs, &t), 1);
    if (!one && !is_splat(g, v)) return 0;
    for (int i = 0; i < t.rank && !one; i++)
        v = build_slice_axis(g, v, i, expr_const(g->exprs, 0), expr_const(g->exprs, 1), 1);
    return build_reshape(g, v, 0, NULL);
}

/* A zero point that x is less, as it was before it was converted to x's type. */
static Value zero_of(Graph *g, Value v) {
    double z;
    Value s = scalar_of(g, v);
    if (!s) return 0;
    if (build_const_f64(g, s, &z))
        return z == (double)(int64_t)z && z >= -SHIFT && z < 2 * SHIFT
                   ? build_scalar_i(g, DT_i32, (int64_t)z)
                   : 0;
    const Node *n = graph_node(g, s);
    for (; n->op == OP_reshape || n->op == OP_cast; n = graph_node(g, s)) {
        if (is_byte(g, s)) break;
        s = n->in[0];
    }
    return is_byte(g, s) ? build_cast(g, build_reshape(g, s, 0, NULL), DT_i32) : 0;
}

/* Types in which differences of bytes are exact. */
static bool is_wide(DType t) {
    return t == DT_f32 || t == DT_i16 || t == DT_i32;
}

/* v as q, or q - zero, of 8 bits widened. */
static bool match_centred(Graph *g, Value v, Factor *f) {
    *f = (Factor){0};
    for (; !is_byte(g, v); v = graph_node(g, v)->in[0]) {
        const Node *n = graph_node(g, v);
        if (n->op == OP_cast && is_narrow(g, n->in[0]) && !f->zero) return f->q = n->in[0], true;
        if (!is_wide(n->type.dtype) || (n->op != OP_sub && n->op != OP_cast)) return false;
        if (n->op == OP_cast && !is_byte(g, n->in[0])) return false;
        if (n->op == OP_cast) continue;
        Value zero = zero_of(g, n->in[1]);
        if (!zero) return false;
        f->zero = f->zero ? build_binary(g, OP_add, f->zero, zero) : zero;
    }
    f->q = v;
    return true;
}

/* Views between a factor and the contraction, the outermost first. */
typedef struct Views {
    Value v[MAX_VIEWS];
    uint32_t n;
} Views;

static Value below_views(const Graph *g, Value v, Views *views) {
    for (views->n = 0; views->n < MAX_VIEWS; v = graph_node(g, v)->in[0]) {
        uint8_t op = graph_node(g, v)->op;
        if (op != OP_reshape && op != OP_permute && op != OP_expand && op != OP_slice) break;
        views->v[views->n++] = v;
    }
    return v;
}

static Value with_views(Graph *g, Value v, const Views *views) {
    for (uint32_t i = views->n; v && i-- > 0;) {
        Node n = *graph_node(g, views->v[i]);
        v = build_like(g, &n, &v, 1);
    }
    return v;
}

/* The scale that v repeats: one number, or a row along what the views make the last axis. */
static Value scale_of(Graph *g, Value v, const Views *views) {
    Value s = scalar_of(g, v);
    if (s) return s;
    const Node *n = graph_node(g, v);
    if (n->op != OP_expand) return 0;
    const Type *t = graph_type(g, n->in[0]);
    int axis = -1;
    for (int i = 0; i < t->rank; i++) {
        if (expr_is_value(g->exprs, t->dim[i], 1)) continue;
        if (axis >= 0) return 0;
        axis = i + n->type.rank - t->rank;
    }
    const Expr size = n->type.dim[axis];
    Value row = build_reshape(g, n->in[0], 1, &size);
    for (uint32_t i = views->n; i-- > 0;) {
        n = graph_node(g, views->v[i]);
        if (n->op != OP_permute) return 0;
        int to = 0;
        while (n->attr.perm.axis[to] != axis) to++;
        axis = to;
    }
    return axis == graph_type(g, views->n ? views->v[0] : v)->rank - 1 ? row : 0;
}

static bool match(Graph *g, Value v, Factor *f) {
    Views views;
    v = below_views(g, v, &views);
    const Node *n = graph_node(g, v);
    if (dtype_is_int(n->type.dtype) || (n->op == OP_cast && is_narrow(g, n->in[0]))) {
        if (!match_centred(g, v, f)) return false;
    } else if (n->op == OP_mul) {
        Value in[2] = {n->in[0], n->in[1]};
        int side = 0;
        while (side < 2 && !match_centred(g, in[side], f)) side++;
        if (side == 2) return false;
        f->scale = scale_of(g, in[1 - side], &views);
        if (!f->scale) return false;
    } else
        return false;
    f->q = with_views(g, f->q, &views);
    return f->q != 0;
}

/* --- Eight bits without a sign ---------------------------------------------------------------- */

/* Whether x, of a float type, has no fractions. */
static bool is_whole(const Graph *g, Value x, int depth) {
    const Node *n = graph_node(g, x);
    double c;
    if (n->op == OP_round) return true;
    if (build_const_f64(g, x, &c)) return c == (double)(int64_t)c;
    if (n->op == OP_expand) return is_whole(g, n->in[0], depth);
    bool keeps = n->op == OP_add || n->op == OP_min || n->op == OP_max;
    return keeps && depth && is_whole(g, n->in[0], depth - 1) && is_whole(g, n->in[1], depth - 1);
}

/* q + 128 as u8, of i8. */
static Value shifted(Graph *g, Value q) {
    return build_binary_f(g, OP_xor, build_bitcast(g, q, DT_u8), SHIFT);
}

/* A quantiser's last step, min(max(.., -128), 127) as i8: u8 from here on. */
static Value without_sign(Rewrite *r, Value v) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    Value x = rewrite_in(r, v, 0);
    const Node *clamp = graph_node(g, x);
    bool clamped = clamp->op == OP_min || clamp->op == OP_max;
    if (n->type.dtype != DT_i8 || graph_type(g, x)->dtype != DT_f32 || !clamped) return 0;
    if (!is_whole(g, x, 3)) return 0;
    /* What is no number is 0 as an integer. */
    Value zero = build_scalar_f(g, DT_f32, SHIFT);
    Value y = build_select(g, build_unary(g, OP_isnan, x), zero, build_binary(g, OP_add, x, zero));
    Value u = build_cast(g, y, DT_u8);
    return build_bitcast(g, build_binary_f(g, OP_xor, u, SHIFT), DT_i8);
}

/* u if q is u ^ 128 by another name; or 0. */
static Value unshifted(const Graph *g, Value q) {
    const Node *n = graph_node(g, q);
    double c;
    if (n->op != OP_bitcast || graph_node(g, n->in[0])->op != OP_xor) return 0;
    n = graph_node(g, n->in[0]);
    bool is = build_const_f64(g, n->in[1], &c) && c == SHIFT && n->type.dtype == DT_u8;
    return is ? n->in[0] : 0;
}

/* --- Contractions ----------------------------------------------------------------------------- */

/* Whether a sum for f32 stays within 32 bits, of weights w: a row of k, or a window of them.
 * Integers wrap as the operator's own sum does. */
static bool sum_fits(const Graph *g, const Node *n, const Type *w, int64_t k) {
    if (n->type.dtype != DT_f32) return true;
    for (int i = 0; n->op == OP_conv && i < w->rank - 2; i++) {
        int64_t taps;
        if (!expr_is_const(g->exprs, w->dim[i], &taps) || taps > MOST_TERMS) return false;
        k = k > MOST_TERMS ? k : k * taps;
    }
    return k <= MOST_TERMS;
}

/* For matrix units: k is whole lines of 16 bytes, and the weights' rows are, or can be, those of k.
 */
static bool fits_units(const Rewrite *r, const Node *n) {
    const Graph *g = r->from;
    int64_t k;
    if (n->op != OP_dot || (n->type.dtype != DT_f32 && n->type.dtype != DT_i32)) return false;
    const Node *w = graph_node(g, n->in[1]);
    const Type *t = &w->type;
    if (!expr_is_const(g->exprs, t->dim[t->rank - 2], &k) || k % ALIGN) return false;
    if (expr_hint(g->exprs, t->dim[t->rank - 1]) < PACKED_COLS_LEAST) return false;
    return sum_fits(g, n, t, k);
}

static bool is_weight(const Rewrite *r, const Node *n) {
    const bool *constant = r->facts;
    return constant[n->in[1]];
}

/* The right operand is turned in each run, which many rows have to pay for. */
static bool fits_activations(const Graph *g, const Node *n) {
    const Type *x = graph_type(g, n->in[0]), *w = graph_type(g, n->in[1]);
    int64_t k;
    if (expr_hint(g->exprs, x->dim[x->rank - 2]) < TURNED_ROWS_LEAST) return false;
    return expr_is_const(g->exprs, w->dim[w->rank - 2], &k) && k <= MOST_UNCENTRED;
}

static bool fits(const Rewrite *r, const Node *n) {
    const Graph *g = r->from;
    bool conv = n->op == OP_conv;
    if (n->op != OP_dot && !conv) return false;
    if (!is_weight(r, n) && (conv || !fits_activations(r->from, n))) return false;
    const Type *x = graph_type(g, n->in[0]), *w = graph_type(g, n->in[1]);
    int64_t groups = conv ? n->attr.conv.groups : 1, k;
    if (n->type.dtype != DT_f32 && n->type.dtype != DT_i32) return false;
    if (expr_hint(g->exprs, w->dim[w->rank - 1]) < PACKED_COLS_LEAST * groups) return false;
    if (conv && groups > 1 && expr_is_value(g->exprs, x->dim[x->rank - 1], groups)) return false;
    if (!expr_is_const(g->exprs, w->dim[w->rank - 2], &k) || !sum_fits(g, n, w, k)) return false;
    return !conv || k % 4 == 0 || (groups == 1 && k > 1);
}

/* Channels of both sides in whole groups of four; what is new multiplies zeros. Fusion stores what
 * is so padded (scattered_operand). */
static void fill_channels(Graph *g, Factor *x, Factor *w) {
    Factor *side[2] = {x, w};
    const int rank = graph_type(g, w->q)->rank;
    for (int i = 0; i < 2; i++) {
        Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
        const Type *t = graph_type(g, side[i]->q);
        const int at = rank - 1 - i;
        const int64_t k = expr_value(g->exprs, t->dim[at]);
        if (k % 4 == 0) return;
        for (int j = 0; j < rank; j++) lo[j] = hi[j] = expr_const(g->exprs, 0);
        hi[at] = expr_const(g->exprs, 4 - k % 4);
        Value zero = build_scalar_i(g, t->dtype, 0);
        side[i]->q = build_pad(g, side[i]->q, zero, lo, hi, NULL);
    }
}

/* x with z around it instead of the convolution's padding. */
static Value padded(Graph *g, Value x, Value zero, Node *conv) {
    ExprPool *p = g->exprs;
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    uint32_t rank = graph_type(g, x)->rank;
    bool any = false;
    for (uint32_t i = 0; i < rank; i++) lo[i] = hi[i] = expr_const(p, 0);
    for (uint32_t i = 0; i < conv->attr.conv.n; i++) {
        lo[1 + i] = expr_const(p, conv->attr.conv.lo[i]);
        hi[1 + i] = expr_const(p, conv->attr.conv.hi[i]);
        any |= conv->attr.conv.lo[i] || conv->attr.conv.hi[i];
        conv->attr.conv.lo[i] = conv->attr.conv.hi[i] = 0;
    }
    if (!any) return x;
    Value fill = zero ? build_cast(g, zero, DT_u8) : build_scalar_i(g, DT_u8, 0);
    return build_pad(g, x, fill, lo, hi, NULL);
}

/* Of each column, the sum of its weights. */
static Value column_sums(Graph *g, Value w, bool conv) {
    uint32_t rank = graph_type(g, w)->rank;
    uint32_t axes = conv ? (1u << (rank - 1)) - 1 : 1u << (rank - 2);
    return build_reduce(g, OP_reduce_sum, build_cast(g, w, DT_i32), axes, !conv);
}

/* The same of the weights less their zero point, by the one of x; and of each row of x by theirs */
static Value less_zeros(Graph *g, Value sum, Factor x, Factor w) {
    const Type *tw = graph_type(g, w.q), *tx = graph_type(g, x.q);
    uint32_t last = 1u << (tx->rank - 1);
    if (x.zero) {
        Value columns = column_sums(g, w.q, false);
        Value k = build_scalar_i(g, DT_i32, expr_value(g->exprs, tw->dim[tw->rank - 2]));
        if (w.zero) columns = build_binary(g, OP_sub, columns, build_binary(g, OP_mul, k, w.zero));
        sum = build_binary(g, OP_sub, sum, build_binary(g, OP_mul, columns, x.zero));
    }
    if (!w.zero) return sum;
    Value rows = build_reduce(g, OP_reduce_sum, build_cast(g, x.q, DT_i32), last, true);
    return build_binary(g, OP_sub, sum, build_binary(g, OP_mul, rows, w.zero));
}

static Value multiply_bytes(Graph *g, Factor x, Factor w) {
    Value sum = build_dot(g, x.q, w.q, is_narrow(g, x.q) ? DT_f32 : DT_i32);
    return less_zeros(g, sum, x, w);
}

static Value multiply(Graph *g, Node n, Factor x, Factor w) {
    bool conv = n.op == OP_conv;
    if (conv) x.q = padded(g, x.q, x.zero, &n);
    if (conv) n.attr.conv.to = DT_i32;
    Value sum = conv ? build_conv(g, x.q, w.q, &n.attr) : build_dot(g, x.q, w.q, DT_i32);
    if (!x.zero) return sum;
    Value less = build_binary(g, OP_mul, column_sums(g, w.q, conv), x.zero);
    return build_binary(g, OP_sub, sum, less);
}

/* Weights as i8 without a zero point; false: they have another. */
static bool centre_weights(Graph *g, Factor *w) {
    double z = 0;
    bool known = !w->zero || build_const_f64(g, w->zero, &z);
    if (!known || z != (graph_type(g, w->q)->dtype == DT_u8 ? SHIFT : 0)) return false;
    if (z != 0) w->q = build_bitcast(g, build_binary_f(g, OP_xor, w->q, SHIFT), DT_i8);
    return true;
}

static void drop_no_zero(Graph *g, Factor *f) {
    double z;
    if (f->zero && build_const_f64(g, f->zero, &z) && z == 0) f->zero = 0;
}

/* Weights as i8 or narrow floats, with the zero point that this takes. */
static bool sign_weights(Graph *g, Factor *w) {
    if (graph_type(g, w->q)->dtype == DT_u8) {
        Value shift = build_scalar_i(g, DT_i32, SHIFT);
        w->q = build_bitcast(g, build_binary_f(g, OP_xor, w->q, SHIFT), DT_i8);
        w->zero = build_binary(g, OP_sub, w->zero ? w->zero : build_scalar_i(g, DT_i32, 0), shift);
    }
    drop_no_zero(g, w);
    return true;
}

/* The scale of n columns, as a row. */
static Value scale_row(Graph *g, Value scale, Expr n) {
    return graph_type(g, scale)->rank ? scale : build_expand(g, scale, 1, &n);
}

static bool match_weights(Graph *g, Value v, bool bytes, Factor *w) {
    return match(g, v, w) && (bytes ? sign_weights(g, w) : centre_weights(g, w));
}

/* Weights of several products side by side, as merge_dots puts them. */
static bool match_columns(Graph *g, Value v, bool bytes, Factor *w) {
    const Node n = *graph_node(g, v);
    Value q[MAX_SIDES], scale[MAX_SIDES];
    uint32_t scales = 0;
    if (n.op != OP_concat) return match_weights(g, v, bytes, w);
    if (n.nin > MAX_SIDES || n.attr.axis.axis != n.type.rank - 1) return false;
    for (uint32_t i = 0; i < n.nin; i++) {
        if (!match_weights(g, n.in[i], bytes, w) || w->zero) return false;
        q[i] = w->q;
        if (graph_type(g, q[i])->dtype != graph_type(g, q[0])->dtype) return false;
        const Expr size = graph_type(g, w->q)->dim[n.type.rank - 1];
        if (w->scale) scale[scales++] = scale_row(g, w->scale, size);
    }
    if (scales && scales < n.nin) return false;
    *w = (Factor){.q = build_concat(g, q, n.nin, n.type.rank - 1),
                  .scale = scales ? build_concat(g, scale, scales, 0) : 0};
    return true;
}

static void drop_sign(Graph *g, Factor *x) {
    if (graph_type(g, x->q)->dtype == DT_u8) return;
    Value u = unshifted(g, x->q);
    x->q = u ? u : shifted(g, x->q);
    Value shift = build_scalar_i(g, DT_i32, SHIFT);
    x->zero = x->zero ? build_binary(g, OP_add, x->zero, shift) : shift;
}

/* Rows of k in memory, or what can be prepared so. */
static bool has_rows_of_k(const Rewrite *r, Value v, Value w) {
    const bool *constant = r->facts;
    const Node *n = graph_node(r->to, w);
    uint32_t last = n->type.rank - 1u;
    return constant[graph_node(r->from, v)->in[1]] ||
           (n->op == OP_permute && n->attr.perm.axis[last] != last);
}

/* The product of two scales; 0: there is none. */
static Value both_scales(Graph *g, Factor x, Factor w) {
    if (!x.scale || !w.scale) return x.scale ? x.scale : w.scale;
    return build_binary(g, OP_mul, x.scale, w.scale);
}

static Value to_bytes(Rewrite *r, Value v) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    bool sums_f32 = n->type.dtype == DT_f32;
    Factor x, w;
    if (!fits_units(r, n)) return 0;
    if (!match(g, rewrite_in(r, v, 0), &x) || !match_columns(g, rewrite_in(r, v, 1), true, &w))
        return 0;
    bool narrow = is_narrow(g, x.q);
    if (!has_rows_of_k(r, v, w.q)) return 0;
    if (narrow || is_narrow(g, w.q)) {
        if (graph_type(g, x.q)->dtype != graph_type(g, w.q)->dtype) return 0;
    } else if (sums_f32 != (x.scale != 0) || sums_f32 != (w.scale != 0)) {
        return 0;
    }
    if (x.scale && graph_type(g, x.scale)->rank) return 0;
    const Type *t = graph_type(g, w.q);
    if (sums_f32 && w.zero && expr_value(g->exprs, t->dim[t->rank - 2]) > MOST_UNCENTRED) return 0;
    Value sum = multiply_bytes(g, x, w), scale = both_scales(g, x, w);
    if (sums_f32 && !narrow) sum = build_cast(g, sum, DT_f32);
    return scale ? build_binary(g, OP_mul, sum, scale) : sum;
}

static Value contraction(Rewrite *r, Value v) {
    Graph *g = r->to;
    Node n = *graph_node(r->from, v);
    Factor x, w;
    if (!fits(r, &n)) return 0;
    const bool weight = is_weight(r, &n);
    if (!match(g, rewrite_in(r, v, 0), &x)) return 0;
    if (!match_columns(g, rewrite_in(r, v, 1), !weight, &w)) return 0;
    bool scaled = n.type.dtype == DT_f32;
    if (is_narrow(g, x.q) || is_narrow(g, w.q)) return 0;
    if (scaled != (x.scale != 0) || scaled != (w.scale != 0)) return 0;
    if (scaled && graph_type(g, x.scale)->rank) return 0;
    drop_sign(g, &x);
    drop_no_zero(g, &x);
    if (n.op == OP_conv && n.attr.conv.groups == 1) fill_channels(g, &x, &w);
    Value sum = weight ? multiply(g, n, x, w) : multiply_bytes(g, x, w);
    if (!scaled) return sum;
    Value scale = build_binary(g, OP_mul, x.scale, w.scale);
    return build_binary(g, OP_mul, build_cast(g, sum, DT_f32), scale);
}

static Value to_quads(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    if (n->op != OP_cast) return contraction(r, v);
    Value q = rewrite_in(r, v, 0), u = unshifted(r->to, q);
    if (!u || n->type.dtype != DT_f32) return without_sign(r, v);
    return build_binary_f(r->to, OP_sub, build_cast(r->to, u, DT_f32), SHIFT);
}

static void *facts(const Graph *g, void *ctx) {
    bool *constant = ARENA_ARRAY(g->own, bool, g->nodes.n);
    graph_mark_constant(g, constant);
    return (void)ctx, constant;
}

Graph *pass_quads(Graph *g) {
    return rewrite_graph(g, to_quads, facts, NULL);
}

Graph *pass_bytes(Graph *g) {
    return rewrite_graph(g, to_bytes, facts, NULL);
}
