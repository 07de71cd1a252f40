/* Views: ops that only say where an element comes from. */
#include "graph/build/build_impl.h"

#include <string.h>

static bool same_dims(const Type *t, uint8_t rank, const Expr *dim) {
    return t->rank == rank && (rank == 0 || !memcmp(t->dim, dim, rank * sizeof *dim));
}

static bool check_rank(Graph *g, int rank, const char *what) {
    if (rank >= 0 && rank <= GRAPH_MAX_RANK) return true;
    build_error(g, D_UNSUPPORTED, "%s makes a tensor of %d axes; the most is %d", what, rank,
                GRAPH_MAX_RANK);
    return false;
}

static bool check_dims(Graph *g, uint8_t rank, const Expr *dim, const char *what) {
    if (!check_rank(g, rank, what)) return false;
    for (int i = 0; i < rank; i++) {
        if (!dim[i]) return false;
        int64_t lo, hi;
        expr_range(g->exprs, dim[i], &lo, &hi);
        if (hi >= 0) continue;
        build_error(g, D_SHAPE, "%s: size of axis %d is negative", what, i);
        return false;
    }
    return true;
}

/* ---- reshape, permute ---- */

static Value reshape_const(Graph *g, const Node *x, const Type *t) {
    return build_const(g, *t, x->attr.constant);
}

Value build_reshape(Graph *g, Value x, uint8_t rank, const Expr *dim) {
    if (!x || !check_dims(g, rank, dim, "reshape")) return 0;
    Type t = build_type(graph_type(g, x)->dtype, rank, dim);
    if (same_dims(graph_type(g, x), rank, dim)) return x;
    Expr from = type_numel(g->exprs, graph_type(g, x)), to = type_numel(g->exprs, &t);
    if (!build_unify_dim(g, from, to))
        return build_error(g, D_SHAPE, "%s cannot be reshaped to %s: element counts differ",
                           build_type_text(g, graph_type(g, x)), build_type_text(g, &t));
    const Node *n = graph_node(g, x);
    /* A constant's type must be static: an assumed count leaves the reshape in place. */
    if (n->op == OP_const && type_is_static(g->exprs, &t)) return reshape_const(g, n, &t);
    if (n->op == OP_reshape) return build_reshape(g, n->in[0], rank, dim);
    if (n->op == OP_expand && build_count(g, graph_type(g, n->in[0]), 1) == 1)
        return build_full(g, n->in[0], rank, dim);
    return build_node(g, OP_reshape, &x, 1, NULL, &t);
}

Value build_unsqueeze(Graph *g, Value x, int axis) {
    if (!x) return 0;
    const Type *t = graph_type(g, x);
    int a = build_axis(g, axis, t->rank + 1, "unsqueeze");
    if (a < 0 || !check_rank(g, t->rank + 1, "unsqueeze")) return 0;
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0, j = 0; i <= t->rank; i++)
        dim[i] = i == a ? expr_const(g->exprs, 1) : t->dim[j++];
    return build_reshape(g, x, (uint8_t)(t->rank + 1), dim);
}

Value build_squeeze(Graph *g, Value x, int axis) {
    if (!x) return 0;
    const Type *t = graph_type(g, x);
    int a = build_axis(g, axis, t->rank, "squeeze");
    if (a < 0) return 0;
    if (!build_unify_dim(g, t->dim[a], expr_const(g->exprs, 1)))
        return build_error(g, D_SHAPE, "axis %d of %s is not of size 1", a, build_type_text(g, t));
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0, j = 0; i < t->rank; i++)
        if (i != a) dim[j++] = t->dim[i];
    return build_reshape(g, x, (uint8_t)(t->rank - 1), dim);
}

/* True if only axes of size 1 change their place. */
static bool keeps_order(const Graph *g, const Type *t, const uint8_t *perm) {
    int last = -1;
    for (int i = 0; i < t->rank; i++) {
        if (expr_is_value(g->exprs, t->dim[perm[i]], 1)) continue;
        if (perm[i] < last) return false;
        last = perm[i];
    }
    return true;
}

Value build_permute(Graph *g, Value x, const uint8_t *perm) {
    if (!x) return 0;
    const Type *t = graph_type(g, x);
    Type out = {.dtype = t->dtype, .rank = t->rank};
    Attr a = {0};
    uint32_t seen = 0;
    for (int i = 0; i < t->rank; i++) {
        if (perm[i] >= t->rank || (seen >> perm[i] & 1))
            return build_error(g, D_ATTRIBUTE, "not a permutation of %d axes", t->rank);
        seen |= 1u << perm[i];
        out.dim[i] = t->dim[perm[i]];
        a.perm.axis[i] = perm[i];
    }
    if (keeps_order(g, t, perm)) return build_reshape(g, x, out.rank, out.dim);
    const Node *n = graph_node(g, x);
    if (n->op == OP_permute) {
        uint8_t both[GRAPH_MAX_RANK];
        for (int i = 0; i < t->rank; i++) both[i] = n->attr.perm.axis[perm[i]];
        return build_permute(g, n->in[0], both);
    }
    return build_node(g, OP_permute, &x, 1, &a, &out);
}

/* ---- expand ---- */

static Value add_leading_axes(Graph *g, Value x, int rank) {
    const Type *t = graph_type(g, x);
    Expr dim[GRAPH_MAX_RANK];
    int extra = rank - t->rank;
    for (int i = 0; i < rank; i++) dim[i] = i < extra ? expr_const(g->exprs, 1) : t->dim[i - extra];
    return build_reshape(g, x, (uint8_t)rank, dim);
}

/* x with n elements along the axis, of which it has n or, repeated, one: the runtime checks that */
static Value repeat_if_one(Graph *g, Value x, int axis, Expr n) {
    ExprPool *p = g->exprs;
    Type t = *graph_type(g, x);
    Expr dim = t.dim[axis], one = expr_const(p, 1);
    Expr fits = expr_max(p, expr_eq(p, dim, one), expr_eq(p, dim, n));
    if (!build_require(g, fits)) return 0;
    Value first = build_slice_axis(g, x, axis, expr_const(p, 0), one, 1);
    t.dim[axis] = expr_sub(p, n, dim);
    Value rest = build_expand(g, first, t.rank, t.dim);
    return rest ? build_concat(g, (Value[]){x, rest}, 2, axis) : 0;
}

Value build_expand(Graph *g, Value x, uint8_t rank, const Expr *dim) {
    if (!x || !check_dims(g, rank, dim, "expand")) return 0;
    Type given = *graph_type(g, x), want = build_type(given.dtype, rank, dim);
    if (given.rank <= rank) x = add_leading_axes(g, x, rank);
    if (!x) return 0;
    Type from = *graph_type(g, x), to = want;
    bool repeats = false;
    for (int i = 0; i < rank && given.rank <= rank; i++) {
        if (expr_is_value(g->exprs, from.dim[i], 1)) {
            repeats |= dim[i] != from.dim[i];
            continue;
        }
        if (build_maybe_one(g, from.dim[i], dim[i])) {
            if (!(x = repeat_if_one(g, x, i, dim[i]))) return 0;
            from.dim[i] = dim[i];
            continue;
        }
        from.dim[i] = to.dim[i] = build_unify_dim(g, from.dim[i], dim[i]);
        if (!to.dim[i]) given.rank = UINT8_MAX;
    }
    if (given.rank > rank)
        return build_error(g, D_SHAPE, "%s cannot be expanded to %s",
                           build_type_text(g, graph_type(g, x)), build_type_text(g, &want));
    x = build_retype(g, x, from.dim);
    if (!x || !repeats) return x;
    if (graph_node(g, x)->op == OP_expand)
        return build_expand(g, graph_node(g, x)->in[0], rank, to.dim);
    return build_node(g, OP_expand, &x, 1, NULL, &to);
}

/* ---- slice ---- */

/* Reads stay inside the axis: false if they cannot, a condition to check if that is not known. */
static bool slice_in_range(Graph *g, Expr dim, Expr start, Expr size, int64_t step) {
    ExprPool *p = g->exprs;
    Expr zero = expr_const(p, 0);
    if (start == zero && step == 1 && build_dim_root(g, size) == build_dim_root(g, dim))
        return true;
    Expr last = expr_add(p, start, expr_muli(p, expr_addi(p, size, -1), step));
    Expr low = step > 0 ? start : last, high = step > 0 ? last : start;
    Expr inside = expr_and(p, expr_le(p, zero, low), expr_lt(p, high, dim));
    /* One comparison at a time, so that each is seen to hold where it does. */
    int64_t lo, hi, at_least, unused;
    expr_range(p, low, &lo, &unused);
    expr_range(p, expr_sub(p, expr_addi(p, dim, -1), high), &at_least, &unused);
    if (lo >= 0 && at_least >= 0) return true;
    expr_range(p, size, &lo, &hi);
    if (lo < 1) inside = expr_max(p, inside, expr_eq(p, size, zero));
    return build_require(g, inside);
}

/* A slice of a slice is one slice. */
static Value slice_of_slice(Graph *g, const Node *inner, const Attr *a, const Expr *size) {
    Expr start[GRAPH_MAX_RANK];
    int64_t step[GRAPH_MAX_RANK];
    for (int i = 0; i < inner->type.rank; i++) {
        int64_t s = inner->attr.slice.step[i];
        start[i] = expr_add(g->exprs, inner->attr.slice.start[i],
                            expr_muli(g->exprs, a->slice.start[i], s));
        if (__builtin_mul_overflow(s, a->slice.step[i], &step[i])) return 0;
    }
    return build_slice(g, inner->in[0], start, size, step);
}

Value build_slice(Graph *g, Value x, const Expr *start, const Expr *size, const int64_t *step) {
    if (!x) return 0;
    Type t = *graph_type(g, x);
    if (!check_dims(g, t.rank, size, "slice")) return 0;
    Attr a = {0};
    bool whole = true;
    for (int i = 0; i < t.rank; i++) {
        int64_t by = step ? step[i] : 1;
        if (!start[i]) return 0;
        if (!slice_in_range(g, t.dim[i], start[i], size[i], by))
            return build_error(g, D_SHAPE, "slice of axis %d reaches outside %s", i,
                               build_type_text(g, &t));
        /* One element, or none: any step means the same. */
        bool single = expr_is_value(g->exprs, size[i], 1) || expr_is_value(g->exprs, size[i], 0);
        a.slice.step[i] = single ? 1 : by;
        a.slice.start[i] = start[i];
        whole &=
            size[i] == t.dim[i] && a.slice.step[i] == 1 && expr_is_value(g->exprs, start[i], 0);
    }
    if (whole) return x;
    const Node *n = graph_node(g, x);
    Value v = n->op == OP_slice ? slice_of_slice(g, n, &a, size) : 0;
    if (v) return v;
    Type out = build_type(t.dtype, t.rank, size);
    return build_node(g, OP_slice, &x, 1, &a, &out);
}

Value build_slice_axis(Graph *g, Value x, int axis, Expr start, Expr size, int64_t step) {
    if (!x) return 0;
    const Type *t = graph_type(g, x);
    axis = build_axis(g, axis, t->rank, "slice");
    if (axis < 0) return 0;
    Expr starts[GRAPH_MAX_RANK], sizes[GRAPH_MAX_RANK];
    int64_t steps[GRAPH_MAX_RANK];
    for (int i = 0; i < t->rank; i++) {
        starts[i] = i == axis ? start : expr_const(g->exprs, 0);
        sizes[i] = i == axis ? size : t->dim[i];
        steps[i] = i == axis ? step : 1;
    }
    return build_slice(g, x, starts, sizes, steps);
}

/* ---- pad, concat, window ---- */

/* (in - 1)*(interior + 1) + 1 + lo + hi, and no gaps in an empty axis. */
static Expr padded_size(ExprPool *p, Expr in, Expr lo, Expr hi, int64_t interior) {
    Expr body = in;
    if (interior) {
        body = expr_addi(p, expr_muli(p, expr_addi(p, in, -1), interior + 1), 1);
        body = expr_max(p, body, expr_const(p, 0));
    }
    return expr_add(p, body, expr_add(p, lo, hi));
}

Value build_pad(Graph *g, Value x, Value fill, const Expr *lo, const Expr *hi,
                const int64_t *interior) {
    if (!x || !fill) return 0;
    Type t = *graph_type(g, x);
    const Type *f = graph_type(g, fill);
    if (f->rank != 0 || f->dtype != t.dtype)
        return build_error(g, D_DTYPE, "%s cannot fill the border of %s", build_type_text(g, f),
                           build_type_text(g, &t));
    Attr a = {0};
    bool whole = true;
    for (int i = 0; i < t.rank; i++) {
        int64_t gap = interior ? interior[i] : 0;
        if (!lo[i] || !hi[i]) return 0;
        if (gap < 0) return build_error(g, D_ATTRIBUTE, "pad: negative interior padding");
        whole &= gap == 0 && expr_is_value(g->exprs, lo[i], 0) && expr_is_value(g->exprs, hi[i], 0);
        a.pad.lo[i] = lo[i];
        a.pad.hi[i] = hi[i];
        a.pad.interior[i] = gap;
        t.dim[i] = padded_size(g->exprs, t.dim[i], lo[i], hi[i], gap);
    }
    if (whole) return x;
    if (!check_dims(g, t.rank, t.dim, "pad")) return 0;
    return build_node(g, OP_pad, (Value[]){x, fill}, 2, &a, &t);
}

Value build_concat(Graph *g, const Value *in, uint32_t n, int axis) {
    if (n == 0) return build_error(g, D_ARITY, "concat of nothing");
    if (!build_valid(in, n)) return 0;
    Type t = *graph_type(g, in[0]);
    axis = build_axis(g, axis, t.rank, "concat");
    if (axis < 0) return 0;
    Value *x = ARENA_ARRAY(g->arena, Value, n);
    for (uint32_t i = 0; i < n; i++) {
        const Type *u = graph_type(g, x[i] = in[i]);
        if (u->rank != t.rank || u->dtype != t.dtype)
            return build_error(g, D_SHAPE, "concat of %s and %s", build_type_text(g, &t),
                               build_type_text(g, u));
    }
    if (!build_unify_axes(g, x, n, ~(1u << axis), "concat")) return 0;
    uint32_t kept = 0;
    Expr sum = expr_const(g->exprs, 0);
    for (uint32_t i = 0; i < n; i++) {
        Expr d = graph_type(g, x[i])->dim[axis];
        if (expr_is_value(g->exprs, d, 0)) continue;
        builder_of(g)->starts += expr_size(g->exprs, sum);
        sum = expr_add(g->exprs, sum, d);
        x[kept++] = x[i];
    }
    if (builder_of(g)->starts > BUILD_MAX_STARTS)
        return build_error(
            g, D_LIMIT, "concatenated operands begin at formulas of sizes with more than %d parts",
            BUILD_MAX_STARTS);
    if (kept <= 1) return x[0];
    t = *graph_type(g, x[0]);
    t.dim[axis] = sum;
    Attr a = {.axis = {axis}};
    return build_node(g, OP_concat, x, kept, &a, &t);
}

static Expr window_positions(ExprPool *p, Expr in, int64_t size, int64_t stride, int64_t dilation) {
    Expr last = expr_addi(p, in, -(dilation * (size - 1)) - 1);
    Expr n = expr_addi(p, expr_div(p, last, expr_const(p, stride)), 1);
    return expr_max(p, n, expr_const(p, 0));
}

Value build_window(Graph *g, Value x, uint8_t n, const uint8_t *axis, const int64_t *size,
                   const int64_t *stride, const int64_t *dilation) {
    if (!x) return 0;
    Type t = *graph_type(g, x);
    if (n == 0 || n > GRAPH_MAX_WINDOW)
        return build_error(g, D_UNSUPPORTED, "windows over %d axes", n);
    if (!check_rank(g, t.rank + n, "window")) return 0;
    Attr a = {.window = {.n = n}};
    int rank = t.rank;
    for (int i = 0; i < n; i++) {
        int64_t limit = INT32_MAX;
        if (axis[i] >= rank) return build_error(g, D_SHAPE, "window: axis %d of %d", axis[i], rank);
        if (size[i] < 1 || stride[i] < 1 || dilation[i] < 1 || size[i] > limit ||
            stride[i] > limit || dilation[i] > limit)
            return build_error(g, D_ATTRIBUTE, "window: sizes, strides and dilations are positive");
        a.window.axis[i] = axis[i];
        a.window.size[i] = size[i];
        a.window.stride[i] = stride[i];
        a.window.dilation[i] = dilation[i];
        t.dim[axis[i]] =
            window_positions(g->exprs, t.dim[axis[i]], size[i], stride[i], dilation[i]);
        t.dim[t.rank++] = expr_const(g->exprs, size[i]);
    }
    return build_node(g, OP_window, &x, 1, &a, &t);
}

Value build_full(Graph *g, Value scalar, uint8_t rank, const Expr *dim) {
    if (!scalar) return 0;
    if (build_count(g, graph_type(g, scalar), 1) != 1)
        return build_error(g, D_SHAPE, "a fill value must be one element, not %s",
                           build_type_text(g, graph_type(g, scalar)));
    return build_expand(g, build_reshape(g, scalar, 0, NULL), rank, dim);
}

/* ---- Views that make sizes agree ---- */

Value build_retype(Graph *g, Value x, const Expr *dim) {
    const Type *t = graph_type(g, x);
    Expr start[GRAPH_MAX_RANK];
    for (int i = 0; i < t->rank; i++) start[i] = expr_const(g->exprs, 0);
    return build_slice(g, x, start, dim, NULL);
}

bool build_unify_axes(Graph *g, Value *in, uint32_t n, uint32_t axes, const char *what) {
    int rank = graph_type(g, in[0])->rank;
    Expr dim[GRAPH_MAX_RANK];
    for (int a = 0; a < rank; a++) {
        dim[a] = graph_type(g, in[0])->dim[a];
        for (uint32_t i = 1; i < n && (axes >> a & 1); i++) {
            dim[a] = build_unify_dim(g, dim[a], graph_type(g, in[i])->dim[a]);
            if (dim[a]) continue;
            build_error(g, D_SHAPE, "%s: axis %d of %s and %s differ", what, a,
                        build_type_text(g, graph_type(g, in[0])),
                        build_type_text(g, graph_type(g, in[i])));
            return false;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        Type t = *graph_type(g, in[i]);
        for (int a = 0; a < rank; a++)
            if (axes >> a & 1) t.dim[a] = dim[a];
        in[i] = build_retype(g, in[i], t.dim);
        if (!in[i]) return false;
    }
    return true;
}
