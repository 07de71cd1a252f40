/* Operators that move elements or ask for shapes, without data-dependent addresses. */
#include "frontend/import/axes.h"
#include "frontend/import/import_impl.h"
#include <string.h>

static bool lower_identity(Lower *l) {
    lower_out_item(l, 0, lower_in_item(l, 0));
    return true;
}

static bool lower_shape(Lower *l) {
    const Type *t = lower_type(l, 0);
    int64_t start = lower_i(l, "start"),
            end = lower_has_attr(l, "end") ? lower_i(l, "end") : t->rank;
    if (start < 0) start += t->rank;
    if (end < 0) end += t->rank;
    start = start < 0 ? 0 : start > t->rank ? t->rank : start;
    end = end < start ? start : end > t->rank ? t->rank : end;
    lower_out(l, 0, build_exprs(lower_graph(l), DT_i64, t->dim + start, (uint32_t)(end - start)));
    return true;
}

static bool lower_size(Lower *l) {
    lower_out(l, 0,
              build_expr(lower_graph(l), DT_i64, type_numel(lower_exprs(l), lower_type(l, 0))));
    return true;
}

/* One target size of Reshape: 0 copies (unless allowzero), -1 is left to infer. A size fed at run
 * time may be either. *infer counts the sizes that are -1 for certain. */
static Expr reshape_dim(Lower *l, Expr e, uint32_t i, bool allowzero, int *infer) {
    ExprPool *p = lower_exprs(l);
    const Type *t = lower_type(l, 0);
    int64_t c, lo, hi;
    if (expr_is_const(p, e, &c)) {
        if (c == -1) ++*infer;
        if (c != 0 || allowzero) return e;
        if (i < t->rank) return t->dim[i];
        lower_error(l, D_SHAPE, "size %u is 0, which copies, but the input has rank %d", i,
                    t->rank);
        return e;
    }
    expr_range(p, e, &lo, &hi);
    if (lo < 0 && !allowzero && i < t->rank)
        e = expr_select(p, expr_eq(p, e, expr_const(p, 0)), t->dim[i], e);
    return e;
}

/* A size that may be -1 at run time is then what the others leave over. */
static void infer_fed_dims(Lower *l, Type *out) {
    ExprPool *p = lower_exprs(l);
    const Expr minus = expr_const(p, -1), one = expr_const(p, 1);
    Expr others = one, known[GRAPH_MAX_RANK];
    bool fed[GRAPH_MAX_RANK] = {false};
    for (uint32_t i = 0; i < out->rank; i++) {
        int64_t lo, hi;
        expr_range(p, out->dim[i], &lo, &hi);
        fed[i] = lo < 0;
        known[i] =
            fed[i] ? expr_select(p, expr_eq(p, out->dim[i], minus), one, out->dim[i]) : out->dim[i];
        others = expr_mul(p, others, known[i]);
    }
    const Expr rest = expr_div(p, type_numel(p, lower_type(l, 0)), others);
    for (uint32_t i = 0; i < out->rank; i++)
        if (fed[i]) out->dim[i] = expr_select(p, expr_eq(p, out->dim[i], minus), rest, out->dim[i]);
}

static void infer_one_dim(Lower *l, Type *out) {
    ExprPool *p = lower_exprs(l);
    const Type *t = lower_type(l, 0);
    Expr others[GRAPH_MAX_RANK];
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; i < out->rank; i++)
        if (expr_is_value(p, out->dim[i], -1))
            at = i;
        else
            others[n++] = out->dim[i];
    out->dim[at] = axes_quotient(p, t->dim, t->rank, others, n);
}

static bool reshape_to(Lower *l, const Expr *e, uint32_t n) {
    ExprPool *p = lower_exprs(l);
    Type out = {.rank = (uint8_t)n}, declared;
    const bool allowzero = lower_i(l, "allowzero") != 0;
    int infer = 0;
    bool fed = false;
    if (n > GRAPH_MAX_RANK) return lower_error(l, D_LIMIT, "rank %u exceeds %d", n, GRAPH_MAX_RANK);
    for (uint32_t i = 0; i < n; i++) {
        int64_t lo, hi;
        out.dim[i] = reshape_dim(l, e[i], i, allowzero, &infer);
        expr_range(p, out.dim[i], &lo, &hi);
        fed |= lo < 0 && lo != hi;
        if (hi < -1) return lower_error(l, D_SHAPE, "size %u is negative", i);
    }
    if (infer > 1) return lower_error(l, D_SHAPE, "more than one size is -1");
    for (uint32_t i = 0; infer && allowzero && i < n; i++)
        if (expr_is_value(p, e[i], 0))
            return lower_error(l, D_SHAPE, "with allowzero a size may be 0 or -1, not both");
    if (fed && !infer && lower_declared(l, 0, &declared) && declared.rank == n) {
        infer_fed_dims(l, &out);
        for (uint32_t i = 0; i < n; i++) lower_assume(l, out.dim[i], declared.dim[i]);
        out = declared;
    } else if (fed && !infer) {
        infer_fed_dims(l, &out);
    } else if (infer) {
        infer_one_dim(l, &out);
    }
    lower_out(l, 0, build_reshape(lower_graph(l), lower_in(l, 0), out.rank, out.dim));
    return true;
}

static bool lower_reshape(Lower *l) {
    uint32_t n;
    const Expr *e = lower_shape_in(l, 1, &n);
    return e && reshape_to(l, e, n);
}

static bool lower_reshape_attr(Lower *l) {
    uint32_t n;
    const int64_t *v = lower_ints(l, "shape", &n);
    Expr e[GRAPH_MAX_RANK];
    if (n > GRAPH_MAX_RANK) return lower_error(l, D_LIMIT, "rank %u exceeds %d", n, GRAPH_MAX_RANK);
    for (uint32_t i = 0; i < n; i++) e[i] = expr_const(lower_exprs(l), v[i]);
    return reshape_to(l, e, n);
}

static bool lower_flatten(Lower *l) {
    ExprPool *p = lower_exprs(l);
    const Type *t = lower_type(l, 0);
    int64_t axis = lower_i(l, "axis");
    if (axis < 0) axis += t->rank;
    if (axis < 0 || axis > t->rank)
        return lower_error(l, D_ATTRIBUTE, "axis %lld is out of range for rank %d",
                           (long long)lower_i(l, "axis"), t->rank);
    const Expr dim[2] = {axes_product(p, t->dim, 0, (int)axis),
                         axes_product(p, t->dim, (int)axis, t->rank)};
    lower_out(l, 0, build_reshape(lower_graph(l), lower_in(l, 0), 2, dim));
    return true;
}

/* Without axes all of size 1 go: how many may not depend on what is fed. */
static void stays(Lower *l, Expr dim) {
    ExprPool *p = lower_exprs(l);
    const Expr one = expr_const(p, 1);
    int64_t lo, hi;
    expr_range(p, dim, &lo, &hi);
    lower_assume(l, one, lo < 1 ? expr_not(p, expr_eq(p, dim, one)) : expr_lt(p, one, dim));
}

static Value squeeze(Lower *l, const Axes *axes) {
    ExprPool *p = lower_exprs(l);
    const Type *t = lower_type(l, 0);
    Type out = {0};
    for (uint32_t i = 0; i < t->rank; i++) {
        const bool one = expr_is_value(p, t->dim[i], 1);
        int64_t size;
        if (axes->given ? axes->mask >> i & 1 : one) {
            if (!one && expr_is_const(p, t->dim[i], &size)) {
                lower_error(l, D_SHAPE, "axis %u has size %lld, not 1", i, (long long)size);
                return 0;
            }
            if (!one) lower_assume(l, t->dim[i], expr_const(p, 1));
        } else {
            if (!axes->given) stays(l, t->dim[i]);
            out.dim[out.rank++] = t->dim[i];
        }
    }
    return build_reshape(lower_graph(l), lower_in(l, 0), out.rank, out.dim);
}

static bool lower_squeeze(Lower *l) {
    return axes_lower(l, 1, lower_opset(l) < 13 ? "axes" : NULL, AXES_DROP, squeeze);
}

static Value unsqueeze(Lower *l, const Axes *axes) {
    const Type *t = lower_type(l, 0);
    Type out = {0};
    uint32_t from = 0;
    for (; out.rank < t->rank + axes->n; out.rank++)
        out.dim[out.rank] =
            axes->mask >> out.rank & 1 ? expr_const(lower_exprs(l), 1) : t->dim[from++];
    return build_reshape(lower_graph(l), lower_in(l, 0), out.rank, out.dim);
}

static bool lower_unsqueeze(Lower *l) {
    return axes_lower(l, 1, lower_opset(l) < 13 ? "axes" : NULL, AXES_INSERT, unsqueeze);
}

/* A number that is fed, as it is. */
static bool is_fed(const ExprPool *p, Expr e) {
    uint32_t sym;
    return expr_is_sym(p, e, &sym) && expr_sym_info(p, sym)->kind == SYM_ELEM;
}

/* Size that results from broadcasting `have` against the wanted size. A wanted size that is only
 * known at run time is taken to agree with what the input has, unless that is 1; one that is fed
 * may be 1, too, and with what is fed what the input has. */
static Expr expanded_dim(Lower *l, Expr have, Expr want) {
    ExprPool *p = lower_exprs(l);
    const Expr one = expr_const(p, 1);
    int64_t lo, hi;
    if (want == one || have == want) return have;
    if (have == one) return want;
    expr_range(p, want, &lo, &hi);
    if (is_fed(p, want) && !expr_is_const(p, have, &hi)) {
        const Expr stays = expr_select(p, expr_eq(p, have, one), have, want);
        lower_assume(l, expr_select(p, expr_eq(p, want, one), have, stays), have);
        return expr_select(p, expr_eq(p, have, one), want, have);
    }
    if (lo > 1 || expr_is_const(p, have, &lo)) {
        if (lo > 1 && !expr_is_const(p, have, &hi)) return want;
        lower_assume(l, expr_select(p, expr_eq(p, want, one), have, want), have);
        return have;
    }
    return want;
}

/* Along an axis whose size only a run finds to be 1, its one element lies at every index. */
static Value expand_by_index(Lower *l, Value x, int axis, Expr want) {
    Graph *g = lower_graph(l);
    const Expr most = expr_addi(g->exprs, graph_type(g, x)->dim[axis], -1);
    Value last = build_expand(g, build_expr(g, DT_i64, most), 1, &want);
    return build_take(g, x, build_binary(g, OP_min, build_iota(g, DT_i64, 1, &want, 0), last),
                      axis);
}

static bool lower_expand(Lower *l) {
    uint32_t n;
    const Expr *e = lower_shape_in(l, 1, &n);
    const Type t = *lower_type(l, 0);
    Value x = lower_in(l, 0);
    if (!e) return false;
    const uint32_t rank = n > t.rank ? n : t.rank;
    if (rank > GRAPH_MAX_RANK)
        return lower_error(l, D_LIMIT, "rank %u exceeds %d", rank, GRAPH_MAX_RANK);
    Expr dim[GRAPH_MAX_RANK];
    int64_t size;
    for (uint32_t i = 0; i < rank; i++) {
        const bool has = i + t.rank >= rank, wants = i + n >= rank;
        dim[i] = !has     ? e[i + n - rank]
                 : !wants ? t.dim[i + t.rank - rank]
                          : expanded_dim(l, t.dim[i + t.rank - rank], e[i + n - rank]);
        const bool open = has && wants && is_fed(lower_exprs(l), e[i + n - rank]);
        if (open && !expr_is_const(lower_exprs(l), t.dim[i + t.rank - rank], &size))
            x = expand_by_index(l, x, (int)(i + t.rank - rank), dim[i]);
    }
    lower_out(l, 0, build_expand(lower_graph(l), x, (uint8_t)rank, dim));
    return true;
}

static bool lower_transpose(Lower *l) {
    const Type *t = lower_type(l, 0);
    uint32_t n, seen = 0;
    const int64_t *given = lower_ints(l, "perm", &n);
    uint8_t perm[GRAPH_MAX_RANK];
    if (given && n != t->rank)
        return lower_error(l, D_ATTRIBUTE, "'perm' has %u axes, not %u", n, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        const int axis = given ? lower_axis(l, given[i], t->rank) : t->rank - 1 - (int)i;
        if (axis < 0) return false;
        if (seen >> axis & 1)
            return lower_error(l, D_ATTRIBUTE, "axis %d is twice in 'perm'", axis);
        seen |= 1u << axis;
        perm[i] = (uint8_t)axis;
    }
    lower_out(l, 0, build_permute(lower_graph(l), lower_in(l, 0), perm));
    return true;
}

static bool lower_concat(Lower *l) {
    const uint32_t n = lower_nin(l);
    const int axis = lower_axis(l, lower_i(l, "axis"), lower_type(l, 0)->rank);
    if (axis < 0) return false;
    Value *in = ARENA_ARRAY(lower_graph(l)->arena, Value, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!(in[i] = lower_need(l, i))) return false;
    }
    lower_out(l, 0, build_concat(lower_graph(l), in, n, axis));
    return true;
}

/* Sizes of the parts: given, or equal (from opset 18 on the last may be smaller). */
static bool split_sizes(Lower *l, Expr size, uint32_t parts, Expr *out) {
    ExprPool *p = lower_exprs(l);
    uint32_t n = 0;
    const int64_t *attr = lower_opset(l) < 13 ? lower_ints(l, "split", &n) : NULL;
    if (attr) {
        if (n != parts)
            return lower_error(l, D_ATTRIBUTE, "'split' has %u sizes for %u outputs", n, parts);
        for (uint32_t i = 0; i < n; i++) out[i] = expr_const(p, attr[i]);
        return true;
    }
    if (lower_has_in(l, 1)) {
        for (uint32_t i = 0; i < parts; i++) out[i] = expr_addi(p, size, 1);
        const Expr *e = lower_bounded_in(l, 1, out, parts, 0, &n);
        if (!e) return false;
        if (lower_opset(l) >= 18 && lower_has_attr(l, "num_outputs"))
            return lower_error(l, D_ATTRIBUTE, "both num_outputs and sizes are given");
        if (n != parts) return lower_error(l, D_SHAPE, "%u sizes for %u outputs", n, parts);
        memcpy(out, e, n * sizeof *e);
        return true;
    }
    const Expr chunk = expr_ceildiv(p, size, expr_const(p, parts));
    int64_t c, s;
    for (uint32_t i = 0; i + 1 < parts; i++) out[i] = chunk;
    out[parts - 1] = expr_sub(p, size, expr_muli(p, chunk, (int64_t)parts - 1));
    if (!expr_is_const(p, size, &s) || !expr_is_const(p, chunk, &c)) return true;
    if (lower_opset(l) < 18 && s % parts)
        return lower_error(l, D_SHAPE, "%lld elements do not split into %u equal parts",
                           (long long)s, parts);
    return s - c * ((int64_t)parts - 1) >= 0 ||
           lower_error(l, D_SHAPE, "%lld elements do not split into %u parts", (long long)s, parts);
}

static bool lower_split(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const Type *t = lower_type(l, 0);
    const int axis = lower_axis(l, lower_i(l, "axis"), t->rank);
    const uint32_t parts = lower_nout(l);
    if (axis < 0) return false;
    const Expr whole = t->dim[axis];
    if (lower_opset(l) >= 18 && lower_has_attr(l, "num_outputs") &&
        lower_i(l, "num_outputs") != parts)
        return lower_error(l, D_ATTRIBUTE, "num_outputs does not match %u outputs", parts);
    Expr *size = ARENA_ARRAY(g->arena, Expr, parts), at = expr_const(p, 0);
    if (!split_sizes(l, whole, parts, size)) return false;
    for (uint32_t i = 0; i < parts; i++) {
        lower_out(l, i, build_slice_axis(g, lower_in(l, 0), axis, at, size[i], 1));
        at = expr_add(p, at, size[i]);
    }
    lower_assume(l, at, whole);
    return true;
}

/* Slice */

/* An end of a slice as a position: negative values count from the end of the axis. */
static Expr from_end(ExprPool *p, Expr e, Expr size) {
    int64_t lo, hi;
    expr_range(p, e, &lo, &hi);
    if (lo >= 0) return e;
    if (hi < 0) return expr_add(p, e, size);
    return expr_select(p, expr_lt(p, e, expr_const(p, 0)), expr_add(p, e, size), e);
}

static Expr clamp(ExprPool *p, Expr e, Expr lo, Expr hi) {
    return expr_max(p, expr_min(p, e, hi), lo);
}

/* Values far outside any size stand for "to the end", and would overflow later arithmetic. */
static Expr tame(ExprPool *p, Expr e, Expr size, int64_t low) {
    const int64_t far = (int64_t)1 << 40;
    int64_t c;
    if (!expr_is_const(p, e, &c)) return e;
    if (c > far) return size;
    return c < -far ? expr_addi(p, expr_muli(p, size, -1), low) : e;
}

static bool is_size_symbol(ExprPool *p, Expr e) {
    uint32_t s;
    return expr_is_sym(p, e, &s) && expr_sym_info(p, s)->kind == SYM_DIM;
}

static void slice_axis(Lower *l, Expr size, Expr start, Expr end, int64_t step, Expr *from,
                       Expr *count) {
    ExprPool *p = lower_exprs(l);
    const Expr zero = expr_const(p, 0);
    int64_t c;
    start = from_end(p, tame(p, start, size, 0), size);
    end = from_end(p, tame(p, end, size, -1), size);
    /* For the count one bound of the start is enough: behind an end that lies inside, there is
     * nothing. */
    if (step > 0) {
        const Expr first = expr_max(p, start, zero);
        start = expr_min(p, first, size);
        /* A table of fixed size that is cut to the length of an input: the input is taken to fit */
        if (is_size_symbol(p, end) && expr_is_const(p, size, &c))
            lower_assume(l, expr_min(p, end, size), end);
        else
            end = clamp(p, end, zero, size);
        *count = expr_ceildiv(p, expr_sub(p, end, first), expr_const(p, step));
    } else {
        const Expr last = expr_addi(p, size, -1);
        start = clamp(p, start, zero, last);
        end = clamp(p, end, expr_const(p, -1), last);
        *count = expr_ceildiv(p, expr_sub(p, start, end), expr_const(p, -step));
    }
    *count = expr_max(p, *count, zero);
    expr_range(p, size, &c, NULL);
    if (step < 0 && c < 1)
        *count = expr_min(p, *count, size); /* an empty axis has no last element */
    *from = start;
}

typedef struct SliceArgs {
    uint32_t n;
    const Expr *start, *end;
    int64_t axis[GRAPH_MAX_RANK], step[GRAPH_MAX_RANK];
} SliceArgs;

/* Values of an optional input of as many integers as the others that are there; e stays NULL where
 * it is absent. */
static bool slice_extra(Lower *l, SliceArgs *a, uint32_t i, const Expr **e) {
    uint32_t n;
    *e = NULL;
    if (!lower_has_in(l, i)) return true;
    if (!(*e = lower_shape_in(l, i, &n))) return false;
    if (a->n == UINT32_MAX) a->n = n;
    return n == a->n ||
           lower_error(l, D_SHAPE, "%u values in input %u, and %u in others", n, i, a->n);
}

/* Constants of such an input; false if some value is known at run time only. */
static bool slice_consts(Lower *l, const Expr *e, uint32_t n, int64_t *out) {
    for (uint32_t i = 0; e && i < n; i++) {
        if (!expr_is_const(lower_exprs(l), e[i], &out[i])) return false;
        if (out[i] < -INT32_MAX) out[i] = -INT32_MAX;
        if (out[i] > INT32_MAX) out[i] = INT32_MAX;
    }
    return true;
}

static bool slice_build(Lower *l, const SliceArgs *a) {
    ExprPool *p = lower_exprs(l);
    const Type *t = lower_type(l, 0);
    Expr start[GRAPH_MAX_RANK], size[GRAPH_MAX_RANK];
    int64_t step[GRAPH_MAX_RANK];
    uint32_t seen = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
        start[i] = expr_const(p, 0);
        size[i] = t->dim[i];
        step[i] = 1;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        const int axis = lower_axis(l, a->axis[i], t->rank);
        if (axis < 0) return false;
        if (seen >> axis & 1) return lower_error(l, D_SHAPE, "axis %d is sliced twice", axis);
        seen |= 1u << axis;
        if (a->step[i] == 0) return lower_error(l, D_SHAPE, "a step is 0");
        step[axis] = a->step[i];
        slice_axis(l, lower_type(l, 0)->dim[axis], a->start[i], a->end[i], step[axis], &start[axis],
                   &size[axis]);
    }
    lower_out(l, 0, build_slice(lower_graph(l), lower_in(l, 0), start, size, step));
    return true;
}

/* Axes or steps that are fed at run time: what each axis of the input gets is selected by value,
 * and the elements are gathered at start + i*step. */
static Value slice_fed_axis(Lower *l, Value x, int axis, Expr start, Expr end, Expr step) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const Expr size = graph_type(g, x)->dim[axis], zero = expr_const(p, 0);
    const Expr last = expr_addi(p, size, -1), back = expr_lt(p, step, zero);
    start = from_end(p, tame(p, start, size, 0), size);
    end = from_end(p, tame(p, end, size, -1), size);
    start = expr_select(p, back, clamp(p, start, zero, last), clamp(p, start, zero, size));
    end = expr_select(p, back, clamp(p, end, expr_const(p, -1), last), clamp(p, end, zero, size));
    const Expr ahead = expr_ceildiv(p, expr_sub(p, end, start), step);
    const Expr behind = expr_ceildiv(p, expr_sub(p, start, end), expr_muli(p, step, -1));
    const Expr count = expr_max(p, expr_select(p, back, behind, ahead), zero);
    Value i =
        build_binary(g, OP_mul, build_iota(g, DT_i64, 1, &count, 0), build_expr(g, DT_i64, step));
    return build_take(g, x, build_binary(g, OP_add, i, build_expr(g, DT_i64, start)), axis);
}

static bool slice_fed(Lower *l, const SliceArgs *a, const Expr *axes, const Expr *steps) {
    ExprPool *p = lower_exprs(l);
    const Type t = *lower_type(l, 0);
    const Expr rank = expr_const(p, t.rank);
    Value v = lower_in(l, 0);
    for (int k = 0; k < t.rank && v; k++) {
        Expr start = expr_const(p, 0), end = t.dim[k], step = expr_const(p, 1);
        bool touched = false;
        for (uint32_t i = 0; i < a->n; i++) {
            const Expr axis = axes ? expr_mod(p, axes[i], rank) : expr_const(p, i);
            const Expr hit = expr_eq(p, axis, expr_const(p, k));
            if (expr_is_value(p, hit, 0)) continue;
            touched = true;
            start = expr_select(p, hit, a->start[i], start);
            end = expr_select(p, hit, a->end[i], end);
            if (steps) step = expr_select(p, hit, steps[i], step);
        }
        if (touched) v = slice_fed_axis(l, v, k, start, end, step);
    }
    lower_out(l, 0, v);
    return true;
}

/* How many axes are cut: as many as any of the lists has, which are of one length; one where none
 * has a known length. */
static uint32_t slice_count(Lower *l, const SliceArgs *a) {
    if (a->n != UINT32_MAX) return a->n;
    for (uint32_t i = 1; i <= 2; i++) {
        int64_t n;
        const Type *t = lower_in(l, i) ? lower_type(l, i) : NULL;
        if (t && t->rank == 1 && expr_is_const(lower_exprs(l), t->dim[0], &n) &&
            n <= GRAPH_MAX_RANK)
            return (uint32_t)n;
    }
    return 1;
}

/* Starts and ends. On axes known here, walked forwards, they may be positions that only values
 * decide. */
static bool slice_ends(Lower *l, SliceArgs *a, bool fixed) {
    const Type *t = lower_type(l, 0);
    Expr most[GRAPH_MAX_RANK];
    uint32_t nmost = 0, nend;
    for (uint32_t i = 0; fixed && i < t->rank && (a->n == UINT32_MAX || i < a->n); i++) {
        const int axis = lower_axis(l, a->axis[i], t->rank);
        if (axis < 0) return false;
        most[nmost++] = t->dim[axis];
        fixed = a->step[i] > 0;
    }
    if (!fixed) nmost = 0;
    const uint32_t count = slice_count(l, a);
    a->start = lower_bounded_in(l, 1, most, nmost, count, &a->n);
    a->end = lower_bounded_in(l, 2, most, nmost, count, &nend);
    if (!a->start || !a->end) return false;
    return (a->n == nend && a->n <= t->rank) ||
           lower_error(l, D_SHAPE, "%u starts and %u ends for rank %u", a->n, nend, t->rank);
}

static bool lower_slice(Lower *l) {
    SliceArgs a = {.n = UINT32_MAX};
    const Expr *axes, *steps;
    if (!slice_extra(l, &a, 3, &axes) || !slice_extra(l, &a, 4, &steps)) return false;
    const uint32_t extra = a.n;
    if (extra != UINT32_MAX && extra > lower_type(l, 0)->rank)
        return lower_error(l, D_SHAPE, "%u axes for rank %u", extra, lower_type(l, 0)->rank);
    for (uint32_t i = 0; i < GRAPH_MAX_RANK; i++) {
        a.axis[i] = i;
        a.step[i] = 1;
    }
    const bool fixed =
        slice_consts(l, axes, extra, a.axis) && slice_consts(l, steps, extra, a.step);
    if (!slice_ends(l, &a, fixed)) return false;
    if (extra != UINT32_MAX && a.n != extra)
        return lower_error(l, D_SHAPE, "%u starts for %u axes", a.n, extra);
    return fixed ? slice_build(l, &a) : slice_fed(l, &a, axes, steps);
}

static bool lower_slice_attrs(Lower *l) {
    SliceArgs a = {0};
    uint32_t nend, naxes;
    Expr start[GRAPH_MAX_RANK], end[GRAPH_MAX_RANK];
    const int64_t *s = lower_ints(l, "starts", &a.n), *e = lower_ints(l, "ends", &nend);
    const int64_t *axes = lower_ints(l, "axes", &naxes);
    if (a.n != nend || (axes && naxes != a.n) || a.n > lower_type(l, 0)->rank)
        return lower_error(l, D_ATTRIBUTE, "starts, ends and axes do not fit together");
    for (uint32_t i = 0; i < a.n; i++) {
        start[i] = expr_const(lower_exprs(l), s[i]);
        end[i] = expr_const(lower_exprs(l), e[i]);
        a.axis[i] = axes ? axes[i] : (int64_t)i;
        a.step[i] = 1;
    }
    a.start = start;
    a.end = end;
    return slice_build(l, &a);
}

/* Tile repeats axis by axis: [.., d, ..] -> [.., 1, d, ..] -> [.., r, d, ..] -> [.., r*d, ..]. */
static bool lower_tile(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const uint32_t rank = lower_type(l, 0)->rank;
    uint32_t n;
    const Expr *r = lower_shape_in(l, 1, &n);
    Value v = lower_in(l, 0);
    if (!r) return false;
    if (n != rank) return lower_error(l, D_SHAPE, "%u repeats for rank %u", n, rank);
    for (uint32_t i = 0; i < n && v; i++) {
        if (expr_is_value(p, r[i], 1)) continue;
        Type t = *graph_type(g, v), wide = t;
        if (t.rank == GRAPH_MAX_RANK) return lower_error(l, D_LIMIT, "the rank is too high");
        wide.rank++;
        for (uint32_t k = t.rank; k > i; k--) wide.dim[k] = t.dim[k - 1];
        v = build_unsqueeze(g, v, (int)i);
        wide.dim[i] = r[i];
        v = build_expand(g, v, wide.rank, wide.dim);
        t.dim[i] = expr_mul(p, r[i], t.dim[i]);
        v = build_reshape(g, v, t.rank, t.dim);
    }
    lower_out(l, 0, v);
    return true;
}

/* Blocks of the depth axis to and from 2-D space. */
static Value permute6(Graph *g, Value x, const Expr *dim, const char *order) {
    uint8_t perm[6];
    for (int i = 0; i < 6; i++) perm[i] = (uint8_t)(order[i] - '0');
    return build_permute(g, build_reshape(g, x, 6, dim), perm);
}

static bool check_block(Lower *l, int64_t *b) {
    *b = lower_i(l, "blocksize");
    if (lower_type(l, 0)->rank != 4) return lower_error(l, D_SHAPE, "the input must have rank 4");
    return (*b > 0 && *b < 1 << 20) || lower_error(l, D_ATTRIBUTE, "blocksize must be positive");
}

static bool lower_depth_to_space(Lower *l) {
    ExprPool *p = lower_exprs(l);
    int64_t b;
    if (!check_block(l, &b)) return false;
    const Type t = *lower_type(l, 0);
    static const char *const modes[] = {"DCR", "CRD", NULL};
    int crd;
    if (!lower_choice(l, "mode", modes, &crd)) return false;
    const Expr block = expr_const(p, b), depth = expr_div(p, t.dim[1], expr_const(p, b * b));
    const Expr dcr_dim[6] = {t.dim[0], block, block, depth, t.dim[2], t.dim[3]};
    const Expr crd_dim[6] = {t.dim[0], depth, block, block, t.dim[2], t.dim[3]};
    Value v = permute6(lower_graph(l), lower_in(l, 0), crd ? crd_dim : dcr_dim,
                       crd ? "014253" : "034152");
    const Expr out[4] = {t.dim[0], depth, expr_muli(p, t.dim[2], b), expr_muli(p, t.dim[3], b)};
    lower_out(l, 0, build_reshape(lower_graph(l), v, 4, out));
    return true;
}

static bool lower_space_to_depth(Lower *l) {
    ExprPool *p = lower_exprs(l);
    int64_t b;
    if (!check_block(l, &b)) return false;
    const Type t = *lower_type(l, 0);
    const Expr block = expr_const(p, b);
    const Expr h = expr_div(p, t.dim[2], block), w = expr_div(p, t.dim[3], block);
    const Expr dim[6] = {t.dim[0], t.dim[1], h, block, w, block};
    Value v = permute6(lower_graph(l), lower_in(l, 0), dim, "035124");
    const Expr out[4] = {t.dim[0], expr_muli(p, t.dim[1], b * b), h, w};
    lower_out(l, 0, build_reshape(lower_graph(l), v, 4, out));
    return true;
}

static const char *const shape_attrs[] = {"start:i=0", "end:i", NULL};
static const char *const reshape1_attrs[] = {"shape:I!", "consumed_inputs:I", "allowzero:i=0",
                                             NULL};
static const char *const reshape_attrs[] = {"allowzero:i=0", NULL};
static const char *const flatten_attrs[] = {"axis:i=1", NULL};
static const char *const axes_attrs[] = {"axes:I", NULL};
static const char *const axes_required[] = {"axes:I!", NULL};
static const char *const perm_attrs[] = {"perm:I", NULL};
static const char *const concat1_attrs[] = {"axis:i=1", NULL};
static const char *const concat_attrs[] = {"axis:i!", NULL};
static const char *const split_attrs[] = {"axis:i=0", "split:I", NULL};
static const char *const split13_attrs[] = {"axis:i=0", NULL};
static const char *const split18_attrs[] = {"axis:i=0", "num_outputs:i", NULL};
static const char *const slice_attrs[] = {"starts:I!", "ends:I!", "axes:I", NULL};
static const char *const d2s_attrs[] = {"blocksize:i!", "mode:s=DCR", NULL};
static const char *const s2d_attrs[] = {"blocksize:i!", NULL};

const OnnxOp ops_shape[] = {
    {"", "Identity", 1, 0, 1, 1, 1, 1, NULL, lower_identity},
    {"", "Shape", 1, 0, 1, 1, 1, 1, shape_attrs, lower_shape},
    {"", "Size", 1, 0, 1, 1, 1, 1, NULL, lower_size},
    {"", "Reshape", 1, 4, 1, 1, 1, 1, reshape1_attrs, lower_reshape_attr},
    {"", "Reshape", 5, 0, 2, 2, 1, 1, reshape_attrs, lower_reshape},
    {"", "Flatten", 1, 0, 1, 1, 1, 1, flatten_attrs, lower_flatten},
    {"", "Squeeze", 1, 12, 1, 1, 1, 1, axes_attrs, lower_squeeze},
    {"", "Squeeze", 13, 0, 1, 2, 1, 1, NULL, lower_squeeze},
    {"", "Unsqueeze", 1, 12, 1, 1, 1, 1, axes_required, lower_unsqueeze},
    {"", "Unsqueeze", 13, 0, 2, 2, 1, 1, NULL, lower_unsqueeze},
    {"", "Expand", 8, 0, 2, 2, 1, 1, NULL, lower_expand},
    {"", "Transpose", 1, 0, 1, 1, 1, 1, perm_attrs, lower_transpose},
    {"", "Concat", 1, 3, 1, -1, 1, 1, concat1_attrs, lower_concat},
    {"", "Concat", 4, 0, 1, -1, 1, 1, concat_attrs, lower_concat},
    {"", "Split", 1, 12, 1, 2, 1, -1, split_attrs, lower_split},
    {"", "Split", 13, 17, 1, 2, 1, -1, split13_attrs, lower_split},
    {"", "Split", 18, 0, 1, 2, 1, -1, split18_attrs, lower_split},
    {"", "Slice", 1, 9, 1, 1, 1, 1, slice_attrs, lower_slice_attrs},
    {"", "Slice", 10, 0, 3, 5, 1, 1, NULL, lower_slice},
    {"", "Tile", 6, 0, 2, 2, 1, 1, NULL, lower_tile},
    {"", "DepthToSpace", 1, 0, 1, 1, 1, 1, d2s_attrs, lower_depth_to_space},
    {"", "SpaceToDepth", 1, 0, 1, 1, 1, 1, s2d_attrs, lower_space_to_depth},
    {0},
};
