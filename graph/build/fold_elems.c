/* Element tracking: the elements of small integer values as expressions, so that arithmetic on
 * shapes is done once, when sizes are bound, and never by kernels.
 *
 * Expressions are exact 64-bit integers. Types narrower than 32 bits are not tracked (their
 * arithmetic wraps); i32 values that are known must fit, else the value is not tracked.
 *
 * Models also scale sizes in floating point (half of the height, rounded down). So f32 and f64
 * elements that are whole multiples of 1/SCALE are tracked as those multiples, but only on the way
 * to integers: callers never see them. What is divided by another number and rounded to a whole one
 * (frames of 5 samples) is looked at as one step, since what lies in between is no such multiple.
 */
#include "graph/build/build_impl.h"

#include <string.h>

#define MAX_DEPTH 200 /* nodes that one question follows upwards */
#define SCALE     4096

static bool integer_type(DType t) {
    return t == DT_i64 || t == DT_i32 || t == DT_bool;
}

static bool scaled_type(DType t) {
    return t == DT_f32 || t == DT_f64;
}

static bool tracked_type(DType t) {
    return integer_type(t) || scaled_type(t);
}

static const Expr *elems_of(Graph *g, Value v, bool want, uint32_t depth);

/* ---- Arithmetic on elements: x = operands; 0 = not an expression ---- */

static bool is_natural(const ExprPool *p, Expr e) {
    int64_t lo, hi;
    expr_range(p, e, &lo, &hi);
    return lo >= 0;
}

static Expr negated(ExprPool *p, Expr e) {
    return expr_muli(p, e, -1);
}
static Expr is_negative(ExprPool *p, Expr e) {
    return expr_lt(p, e, expr_const(p, 0));
}

static Expr e_neg(ExprPool *p, const Expr *x) {
    return negated(p, x[0]);
}
static Expr e_abs(ExprPool *p, const Expr *x) {
    return is_natural(p, x[0]) ? x[0] : expr_max(p, x[0], negated(p, x[0]));
}
static Expr e_sign(ExprPool *p, const Expr *x) {
    return expr_sub(p, expr_lt(p, expr_const(p, 0), x[0]), is_negative(p, x[0]));
}
static Expr e_add(ExprPool *p, const Expr *x) {
    return expr_add(p, x[0], x[1]);
}
static Expr e_sub(ExprPool *p, const Expr *x) {
    return expr_sub(p, x[0], x[1]);
}
static Expr e_mul(ExprPool *p, const Expr *x) {
    return expr_mul(p, x[0], x[1]);
}
static Expr e_mod(ExprPool *p, const Expr *x) {
    return expr_mod(p, x[0], x[1]);
}
static Expr e_min(ExprPool *p, const Expr *x) {
    return expr_min(p, x[0], x[1]);
}
static Expr e_max(ExprPool *p, const Expr *x) {
    return expr_max(p, x[0], x[1]);
}
static Expr e_eq(ExprPool *p, const Expr *x) {
    return expr_eq(p, x[0], x[1]);
}
static Expr e_ne(ExprPool *p, const Expr *x) {
    return expr_not(p, expr_eq(p, x[0], x[1]));
}
static Expr e_lt(ExprPool *p, const Expr *x) {
    return expr_lt(p, x[0], x[1]);
}
static Expr e_le(ExprPool *p, const Expr *x) {
    return expr_le(p, x[0], x[1]);
}
static Expr e_not(ExprPool *p, const Expr *x) {
    return expr_not(p, x[0]);
}
static Expr e_select(ExprPool *p, const Expr *x) {
    return expr_select(p, x[0], x[1], x[2]);
}

typedef Expr (*ExprFn)(ExprPool *p, Expr a, Expr b);

/* Ops truncate, expressions floor: equal for natural numbers, mirrored for a negative dividend. */
static Expr truncated(ExprPool *p, ExprFn floored, const Expr *x) {
    if (!is_natural(p, x[1])) return 0;
    Expr q = floored(p, x[0], x[1]);
    if (is_natural(p, x[0])) return q;
    Expr mirrored = negated(p, floored(p, negated(p, x[0]), x[1]));
    return expr_select(p, is_negative(p, x[0]), mirrored, q);
}
static Expr e_div(ExprPool *p, const Expr *x) {
    return truncated(p, expr_div, x);
}
static Expr e_rem(ExprPool *p, const Expr *x) {
    return truncated(p, expr_mod, x);
}

typedef Expr (*ElemFn)(ExprPool *p, const Expr *x);
static const ElemFn elem_fns[OP_COUNT] = {
    [OP_neg] = e_neg, [OP_abs] = e_abs, [OP_sign] = e_sign, [OP_add] = e_add,
    [OP_sub] = e_sub, [OP_mul] = e_mul, [OP_div] = e_div,   [OP_mod] = e_mod,
    [OP_rem] = e_rem, [OP_min] = e_min, [OP_max] = e_max,   [OP_eq] = e_eq,
    [OP_ne] = e_ne,   [OP_lt] = e_lt,   [OP_le] = e_le,     [OP_select] = e_select,
};
/* Of truth values; the same ops on integers work on bits, which expressions cannot. */
static const ElemFn bool_fns[OP_COUNT] = {
    [OP_not] = e_not, [OP_and] = e_min, [OP_or] = e_max, [OP_xor] = e_ne};

/* ---- Scaled elements ---- */

/* x / by if that is exact. */
static Expr exact_div(ExprPool *p, Expr x, int64_t by) {
    return by > 0 && expr_divisor(p, x) % by == 0 ? expr_div(p, x, expr_const(p, by)) : 0;
}
static Expr s_mul(ExprPool *p, const Expr *x) {
    return exact_div(p, expr_mul(p, x[0], x[1]), SCALE);
}
static Expr s_div(ExprPool *p, const Expr *x) {
    int64_t by;
    return expr_is_const(p, x[1], &by) ? exact_div(p, expr_muli(p, x[0], SCALE), by) : 0;
}
static Expr s_floor(ExprPool *p, const Expr *x) {
    return expr_muli(p, expr_div(p, x[0], expr_const(p, SCALE)), SCALE);
}
static Expr s_ceil(ExprPool *p, const Expr *x) {
    return expr_muli(p, expr_ceildiv(p, x[0], expr_const(p, SCALE)), SCALE);
}
static const ElemFn scaled_fns[OP_COUNT] = {
    [OP_neg] = e_neg,     [OP_abs] = e_abs,   [OP_add] = e_add,       [OP_sub] = e_sub,
    [OP_mul] = s_mul,     [OP_div] = s_div,   [OP_min] = e_min,       [OP_max] = e_max,
    [OP_floor] = s_floor, [OP_ceil] = s_ceil, [OP_select] = e_select,
};

static ElemFn elem_fn(Op op, DType result) {
    if (scaled_type(result)) return scaled_fns[op];
    return result == DT_bool && bool_fns[op] ? bool_fns[op] : elem_fns[op];
}

/* ---- Nodes ---- */

/* One question: node n, the elements of its operands and their static sizes. */
typedef struct Ask {
    Graph *g;
    const Node *n;
    bool want;
    uint32_t depth, count;
    int64_t dim[GRAPH_MAX_RANK]; /* of the result */
} Ask;

static Expr *new_elems(const Ask *a) {
    return ARENA_ARRAY(a->g->arena, Expr, a->count);
}

static const Expr *operand(const Ask *a, uint32_t i) {
    return elems_of(a->g, a->n->in[i], a->want, a->depth + 1);
}

/* Row-major flat index of a coordinate; shape static. */
static int64_t flat_index(const Graph *g, Value v, const int64_t *at) {
    const Type *t = graph_type(g, v);
    int64_t i = 0;
    for (int d = 0; d < t->rank; d++) i = i * expr_value(g->exprs, t->dim[d]) + at[d];
    return i;
}

static void next_coordinate(const int64_t *dim, int rank, int64_t *at) {
    for (int d = rank - 1; d >= 0; d--) {
        if (++at[d] < dim[d]) return;
        at[d] = 0;
    }
}

/* Whole multiples of 1/SCALE below 2^31; NULL if some element is not one. */
static const Expr *scaled_const(Ask *a) {
    Expr *out = new_elems(a);
    for (uint32_t i = 0; i < a->count; i++) {
        double v = dtype_load_f64(a->n->type.dtype, a->n->attr.constant.data, i) * SCALE;
        if (!(v > -0x1p43 && v < 0x1p43) || v != (double)(int64_t)v) return NULL;
        out[i] = expr_const(a->g->exprs, (int64_t)v);
    }
    return out;
}

static const Expr *elems_const(Ask *a) {
    if (scaled_type(a->n->type.dtype)) return scaled_const(a);
    Expr *out = new_elems(a);
    const void *data = a->n->attr.constant.data;
    for (uint32_t i = 0; i < a->count; i++)
        out[i] = expr_const(a->g->exprs, dtype_load_i64(a->n->type.dtype, data, i));
    return out;
}

static const Expr *elems_exprs(Ask *a) {
    return a->n->attr.exprs.v;
}

static const Expr *elems_iota(Ask *a) {
    if (scaled_type(a->n->type.dtype)) return NULL;
    Expr *out = new_elems(a);
    int64_t at[GRAPH_MAX_RANK] = {0};
    for (uint32_t i = 0; i < a->count; i++) {
        out[i] = expr_const(a->g->exprs, at[a->n->attr.axis.axis]);
        next_coordinate(a->dim, a->n->type.rank, at);
    }
    return out;
}

/* Elements of a model input become symbols, read before the first kernel runs. Inside a body there
 * is no such moment. */
static const Expr *elems_input(Ask *a) {
    Graph *g = a->g;
    if (!a->want || g->is_body || scaled_type(a->n->type.dtype) || a->count > BUILD_MAX_SYMBOLS)
        return NULL;
    uint32_t index = a->n->attr.input.index;
    const char *name = index < g->inputs.n ? g->inputs.v[index].name : "input";
    int64_t lo;
    uint64_t hi;
    dtype_int_range(a->n->type.dtype, &lo, &hi);
    Expr *out = new_elems(a);
    for (uint32_t i = 0; i < a->count; i++) {
        SymInfo info = {.kind = SYM_ELEM, .a = index, .b = i, .lo = lo, .hi = (int64_t)hi};
        info.name = arena_printf(g->arena, "%s[%u]", name, i);
        out[i] = expr_sym_new(g->exprs, info);
    }
    return out;
}

static const Expr *elems_map(Ask *a) {
    const Expr *x[3] = {0};
    ElemFn fn = elem_fn((Op)a->n->op, a->n->type.dtype);
    for (uint32_t i = 0; i < a->n->nin; i++)
        if (!(x[i] = operand(a, i))) return NULL;
    Expr *out = new_elems(a);
    for (uint32_t e = 0; e < a->count; e++) {
        Expr args[3] = {0};
        for (uint32_t i = 0; i < a->n->nin; i++) args[i] = x[i][e];
        if (!(out[e] = fn(a->g->exprs, args))) return NULL;
    }
    return out;
}

/* num/den of whole numbers: what floor and ceil are asked of. Floats differ from it by less than
 * what it is away from the next whole number, for any size below 2^23. */
typedef struct Ratio {
    Expr num;
    int64_t den;
} Ratio;

/* The element of v if it is one whole number. */
static Expr whole(Ask *a, Value v, uint32_t depth) {
    if (build_count(a->g, graph_type(a->g, v), 1) != 1) return 0;
    const Expr *x = elems_of(a->g, v, a->want, depth);
    return x ? exact_div(a->g->exprs, x[0], SCALE) : 0;
}

/* x / c, and whole numbers added to that: one operand is followed, so a chain is walked once. */
static bool ratio_of(Ask *a, Value v, uint32_t depth, Ratio *out) {
    ExprPool *p = a->g->exprs;
    const Node *n = graph_node(a->g, v);
    if (depth > MAX_DEPTH) return false;
    if (n->op == OP_reshape) return ratio_of(a, n->in[0], depth + 1, out);
    if (n->op != OP_div && n->op != OP_add && n->op != OP_sub) return false;
    Expr l = whole(a, n->in[0], depth + 1), r = whole(a, n->in[1], depth + 1);
    if (n->op == OP_div) {
        *out = (Ratio){l, 0};
        return l && r && expr_is_const(p, r, &out->den) && out->den > 0;
    }
    if (!l == !r || !ratio_of(a, n->in[l != 0], depth + 1, out)) return false;
    Expr other = expr_muli(p, l ? l : r, out->den);
    if (l && n->op == OP_sub) out->num = expr_muli(p, out->num, -1);
    out->num = (n->op == OP_sub && r ? expr_sub : expr_add)(p, out->num, other);
    return true;
}

static const Expr *elems_rounded(Ask *a) {
    ExprPool *p = a->g->exprs;
    const Expr *x = elems_map(a);
    Ratio r;
    if (x || !scaled_type(a->n->type.dtype) || a->count != 1) return x;
    if (!ratio_of(a, a->n->in[0], a->depth + 1, &r)) return NULL;
    Expr *out = new_elems(a), den = expr_const(p, r.den);
    out[0] = (a->n->op == OP_ceil ? expr_ceildiv : expr_div)(p, r.num, den);
    out[0] = expr_muli(p, out[0], SCALE);
    return out;
}

static Expr c_truth(ExprPool *p, const Expr *x) {
    return expr_not(p, expr_eq(p, x[0], expr_const(p, 0)));
}
static Expr c_scale(ExprPool *p, const Expr *x) {
    return expr_muli(p, x[0], SCALE);
}
static Expr c_truncate(ExprPool *p, const Expr *x) {
    return truncated(p, expr_div, (Expr[]){x[0], expr_const(p, SCALE)});
}

static const Expr *elems_cast(Ask *a) {
    const Expr *x = operand(a, 0);
    DType from = graph_type(a->g, a->n->in[0])->dtype, to = a->n->type.dtype;
    bool same = to == DT_bool ? from == DT_bool : scaled_type(from) == scaled_type(to);
    if (!x || same) return x;
    ElemFn fn = to == DT_bool ? c_truth : scaled_type(to) ? c_scale : c_truncate;
    Expr *out = new_elems(a);
    for (uint32_t i = 0; i < a->count; i++)
        if (!(out[i] = fn(a->g->exprs, &x[i]))) return NULL;
    return out;
}

static const Expr *elems_reshape(Ask *a) {
    return operand(a, 0);
}

/* ---- Views: where does the element at a coordinate come from ---- */

typedef Expr (*ElemAt)(const Ask *a, const Expr *x, const int64_t *at);

static const Expr *elems_by_coordinate(Ask *a, ElemAt fn) {
    const Expr *x = operand(a, 0);
    if (!x) return NULL;
    Expr *out = new_elems(a);
    int64_t at[GRAPH_MAX_RANK] = {0};
    for (uint32_t i = 0; i < a->count; i++) {
        if (!(out[i] = fn(a, x, at))) return NULL;
        next_coordinate(a->dim, a->n->type.rank, at);
    }
    return out;
}

static Expr at_permute(const Ask *a, const Expr *x, const int64_t *at) {
    int64_t from[GRAPH_MAX_RANK];
    for (int i = 0; i < a->n->type.rank; i++) from[a->n->attr.perm.axis[i]] = at[i];
    return x[flat_index(a->g, a->n->in[0], from)];
}

static Expr at_expand(const Ask *a, const Expr *x, const int64_t *at) {
    int64_t from[GRAPH_MAX_RANK];
    const Type *t = graph_type(a->g, a->n->in[0]);
    for (int i = 0; i < t->rank; i++)
        from[i] = expr_is_value(a->g->exprs, t->dim[i], 1) ? 0 : at[i];
    return x[flat_index(a->g, a->n->in[0], from)];
}

static Expr at_slice(const Ask *a, const Expr *x, const int64_t *at) {
    int64_t from[GRAPH_MAX_RANK], start, size;
    const Type *t = graph_type(a->g, a->n->in[0]);
    for (int i = 0; i < t->rank; i++) {
        size = expr_value(a->g->exprs, t->dim[i]);
        if (!expr_is_const(a->g->exprs, a->n->attr.slice.start[i], &start)) return 0;
        from[i] = start + at[i] * a->n->attr.slice.step[i];
        if (from[i] < 0 || from[i] >= size) return 0;
    }
    return x[flat_index(a->g, a->n->in[0], from)];
}

static Expr at_pad(const Ask *a, const Expr *x, const int64_t *at) {
    int64_t from[GRAPH_MAX_RANK], lo;
    const Type *t = graph_type(a->g, a->n->in[0]);
    const Expr *fill = operand(a, 1);
    bool inside = true;
    for (int i = 0; i < t->rank; i++) {
        int64_t step = a->n->attr.pad.interior[i] + 1, size = expr_value(a->g->exprs, t->dim[i]);
        if (!expr_is_const(a->g->exprs, a->n->attr.pad.lo[i], &lo)) return 0;
        from[i] = (at[i] - lo) / step;
        inside &= at[i] >= lo && (at[i] - lo) % step == 0 && from[i] < size;
    }
    if (inside) return x[flat_index(a->g, a->n->in[0], from)];
    return fill ? fill[0] : 0;
}

static Expr at_gather(const Ask *a, const Expr *x, const int64_t *at) {
    int64_t from[GRAPH_MAX_RANK];
    const Type *t = graph_type(a->g, a->n->in[0]);
    for (int d = 0; d < t->rank; d++) {
        int src = a->n->attr.index.src[d];
        if (src >= 0) {
            from[d] = at[src];
        } else {
            const Expr *e = operand(a, (uint32_t)-src);
            if (!e ||
                !expr_is_const(a->g->exprs, e[flat_index(a->g, a->n->in[-src], at)], &from[d]))
                return 0;
        }
        int64_t last = expr_value(a->g->exprs, t->dim[d]) - 1;
        from[d] = from[d] < 0 ? 0 : from[d] > last ? last : from[d];
    }
    return x[flat_index(a->g, a->n->in[0], from)];
}

static const Expr *elems_permute(Ask *a) {
    return elems_by_coordinate(a, at_permute);
}
static const Expr *elems_expand(Ask *a) {
    return elems_by_coordinate(a, at_expand);
}
static const Expr *elems_slice(Ask *a) {
    return elems_by_coordinate(a, at_slice);
}
static const Expr *elems_pad(Ask *a) {
    return elems_by_coordinate(a, at_pad);
}
static const Expr *elems_gather(Ask *a) {
    return elems_by_coordinate(a, at_gather);
}

static const Expr *elems_concat(Ask *a) {
    Expr *out = new_elems(a);
    int axis = a->n->attr.axis.axis;
    int64_t base = 0;
    for (uint32_t i = 0; i < a->n->nin; i++) {
        const Type *t = graph_type(a->g, a->n->in[i]);
        const Expr *x = operand(a, i);
        int64_t n = build_count(a->g, t, BUILD_MAX_TRACKED), at[GRAPH_MAX_RANK] = {0};
        if (!x || n < 0) return NULL;
        int64_t size[GRAPH_MAX_RANK];
        (void)build_static_dims(a->g, t, size);
        for (int64_t e = 0; e < n; e++) {
            int64_t flat = 0;
            for (int d = 0; d < t->rank; d++)
                flat = flat * a->dim[d] + at[d] + (d == axis ? base : 0);
            out[flat] = x[e];
            next_coordinate(size, t->rank, at);
        }
        base += size[axis];
    }
    return out;
}

/* ---- Reductions ---- */

static const Expr *elems_reduce(Ask *a, ElemFn fn) {
    const Type *t = graph_type(a->g, a->n->in[0]);
    const Expr *x = operand(a, 0);
    int64_t n = build_count(a->g, t, BUILD_MAX_TRACKED), at[GRAPH_MAX_RANK] = {0};
    int64_t size[GRAPH_MAX_RANK];
    if (!x || n <= 0 || !build_static_dims(a->g, t, size)) return NULL;
    Expr *out = new_elems(a);
    for (int64_t e = 0; e < n; e++) {
        int64_t flat = 0;
        for (int d = 0, o = 0; d < t->rank; d++)
            if (!(a->n->attr.reduce.axes >> d & 1)) flat = flat * a->dim[o++] + at[d];
        out[flat] = out[flat] ? fn(a->g->exprs, (Expr[]){out[flat], x[e]}) : x[e];
        next_coordinate(size, t->rank, at);
    }
    return out;
}

static const Expr *elems_reduce_sum(Ask *a) {
    return elems_reduce(a, e_add);
}
static const Expr *elems_reduce_prod(Ask *a) {
    return elems_reduce(a, e_mul);
}
static const Expr *elems_reduce_max(Ask *a) {
    return elems_reduce(a, e_max);
}
static const Expr *elems_reduce_min(Ask *a) {
    return elems_reduce(a, e_min);
}

typedef const Expr *(*ElemsFn)(Ask *a);
static const ElemsFn elems_fns[OP_COUNT] = {
    [OP_const] = elems_const,
    [OP_exprs] = elems_exprs,
    [OP_iota] = elems_iota,
    [OP_input] = elems_input,
    [OP_cast] = elems_cast,
    [OP_reshape] = elems_reshape,
    [OP_permute] = elems_permute,
    [OP_expand] = elems_expand,
    [OP_slice] = elems_slice,
    [OP_pad] = elems_pad,
    [OP_gather] = elems_gather,
    [OP_concat] = elems_concat,
    [OP_reduce_sum] = elems_reduce_sum,
    [OP_reduce_prod] = elems_reduce_prod,
    [OP_reduce_max] = elems_reduce_max,
    [OP_reduce_min] = elems_reduce_min,
};

/* A known i32 element that does not fit would have wrapped. */
static bool all_fit(const Graph *g, DType t, const Expr *e, uint32_t n) {
    int64_t v;
    for (uint32_t i = 0; t == DT_i32 && i < n; i++)
        if (expr_is_const(g->exprs, e[i], &v) && (v < INT32_MIN || v > INT32_MAX)) return false;
    return true;
}

static bool all_small(const Graph *g, const Expr *e, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (expr_size(g->exprs, e[i]) > EXPR_MAX_SIZE) return false;
    return true;
}

static const Expr *elems_of_node(Graph *g, const Node *n, bool want, uint32_t depth, bool *large) {
    bool any_int = n->op == OP_const && !dtype_is_float(n->type.dtype);
    ElemsFn fn = elem_fn((Op)n->op, n->type.dtype) ? elems_map : elems_fns[n->op];
    if (n->op == OP_floor || n->op == OP_ceil) fn = elems_rounded;
    if (n->op == OP_reduce_prod && scaled_type(n->type.dtype)) return NULL;
    if (!fn || depth > MAX_DEPTH || (!any_int && !tracked_type(n->type.dtype))) return NULL;
    Ask a = {.g = g, .n = n, .want = want, .depth = depth};
    int64_t count = build_count(g, &n->type, BUILD_MAX_TRACKED);
    if (count < 0) return NULL;
    a.count = (uint32_t)count;
    (void)build_static_dims(g, &n->type, a.dim);
    const Expr *e = fn(&a);
    *large = e && !all_small(g, e, a.count);
    for (uint32_t i = 0; !e && i < n->nin; i++) *large |= build_elems_large(g, n->in[i]);
    return e && !*large && all_fit(g, n->type.dtype, e, a.count) ? e : NULL;
}

const Expr *fold_elems(Graph *g, const Node *n, bool want, uint32_t depth) {
    bool large = false;
    return elems_of_node(g, n, want, depth, &large);
}

/* ---- Answers, remembered by value ---- */

static ElemTrack *track_of(Graph *g, Value v) {
    BuildState *s = builder_of(g);
    while (s->elems.n <= v) vec_push(g->own, &s->elems, (ElemTrack){0});
    return &s->elems.v[v];
}

static const Expr *elems_of(Graph *g, Value v, bool want, uint32_t depth) {
    ElemTrack *t = track_of(g, v);
    if (t->v || (want ? t->wanted : t->asked)) return t->v;
    const Node n = *graph_node(g, v);
    bool large = false;
    const Expr *e = elems_of_node(g, &n, want, depth, &large);
    t = track_of(g, v); /* may have moved */
    t->large = large;
    t->asked = true;
    t->wanted |= want;
    t->v = e;
    int64_t count = e ? build_count(g, &n.type, BUILD_MAX_TRACKED) : 0;
    t->n = (uint32_t)count;
    return e;
}

const Expr *build_elems(Graph *g, Value v, bool want_symbols, uint32_t *n) {
    *n = 0;
    if (!v || dtype_is_float(graph_type(g, v)->dtype)) return NULL;
    const Expr *e = elems_of(g, v, want_symbols, 0);
    *n = e ? track_of(g, v)->n : 0;
    return e;
}

bool build_elems_large(Graph *g, Value v) {
    return v && track_of(g, v)->large;
}
