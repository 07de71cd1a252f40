#include "graph/pass/value_expr.h"
#include <string.h>

enum { MAX_VISITS = 96, MAX_CONST = 65536, MAX_PARTS = 4 };

typedef struct Walk {
    ValueExprs *x;
    const Graph *g;
    ExprPool *p;
    int visits; /* left: bounds the work on shared operands */
} Walk;

static Expr axis_symbol(ValueExprs *x, int position, Expr extent) {
    ExprPool *p = x->g->exprs;
    uint64_t key = (uint64_t)extent << 8 | (uint64_t)position;
    uint32_t sym;
    if (map_get(x->axes, key, &sym)) return expr_sym_ref(p, sym);
    int64_t hi;
    expr_range(p, extent, NULL, &hi);
    SymInfo s = {.name = "c", .kind = SYM_AXIS, .below = extent};
    s.hi = hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0;
    Expr e = expr_sym_new(p, s);
    map_put(x->axes, key, expr_sym_count(p) - 1);
    return e;
}

void value_coords(ValueExprs *x, const Type *t, Expr coord[GRAPH_MAX_RANK]) {
    ExprPool *p = x->g->exprs;
    for (int i = 0; i < t->rank; i++)
        coord[i] = expr_is_value(p, t->dim[i], 1) ? expr_const(p, 0) : axis_symbol(x, i, t->dim[i]);
}

static bool is_true(const ExprPool *p, Expr e) {
    return expr_is_value(p, e, 1);
}

bool value_in_range(ValueExprs *x, Expr e, Expr dim) {
    ExprPool *p = x->g->exprs;
    return is_true(p, expr_le(p, expr_const(p, 0), e)) && is_true(p, expr_lt(p, e, dim));
}

static Expr at(Walk *w, Value v, const Expr *coord);

/* Constants: one value throughout, or a linear function of the coordinates. */

static int64_t load(const Node *n, uint64_t i) {
    return dtype_load_i64(n->type.dtype, n->attr.constant.data, (size_t)i);
}

static bool is_linear(const Node *n, const int64_t *dim, const int64_t *slope, uint64_t count) {
    int64_t c[GRAPH_MAX_RANK] = {0};
    for (uint64_t i = 0; i < count; i++) {
        int64_t want = load(n, 0), part;
        for (int a = 0; a < n->type.rank; a++)
            if (__builtin_mul_overflow(c[a], slope[a], &part) ||
                __builtin_add_overflow(want, part, &want))
                return false;
        if (load(n, i) != want) return false;
        for (int a = n->type.rank; a-- > 0 && ++c[a] == dim[a];) c[a] = 0;
    }
    return true;
}

static Expr at_const(Walk *w, const Node *n, const Expr *coord) {
    int64_t dim[GRAPH_MAX_RANK], slope[GRAPH_MAX_RANK];
    uint64_t count = 1;
    for (int a = n->type.rank; a-- > 0;) {
        if (!expr_is_const(w->p, n->type.dim[a], &dim[a]) || dim[a] < 1) return 0;
        if (dim[a] > MAX_CONST) return 0;
        slope[a] = (int64_t)count;
        count *= (uint64_t)dim[a];
        if (count > MAX_CONST) return 0;
    }
    for (int a = 0; a < n->type.rank; a++) {
        const int64_t first = load(n, 0), next = dim[a] > 1 ? load(n, (uint64_t)slope[a]) : first;
        if (__builtin_sub_overflow(next, first, &slope[a])) return 0;
    }
    if (!is_linear(n, dim, slope, count)) return 0;
    Expr e = expr_const(w->p, load(n, 0));
    for (int a = 0; a < n->type.rank; a++)
        e = expr_add(w->p, e, expr_muli(w->p, coord[a], slope[a]));
    return e;
}

static Expr at_exprs(Walk *w, const Node *n, const Expr *coord) {
    int64_t i = 0;
    if (n->attr.exprs.n != 1 && (n->type.rank != 1 || !expr_is_const(w->p, coord[0], &i))) return 0;
    return i >= 0 && (uint64_t)i < n->attr.exprs.n ? n->attr.exprs.v[i] : 0;
}

/* Views: the operand at other coordinates. */

static Expr at_reshape(Walk *w, const Node *n, const Expr *coord) {
    const Type *t = graph_type(w->g, n->in[0]);
    Expr flat = expr_const(w->p, 0), c[GRAPH_MAX_RANK];
    for (int a = 0; a < n->type.rank; a++)
        flat = expr_add(w->p, expr_mul(w->p, flat, n->type.dim[a]), coord[a]);
    for (int a = t->rank; a-- > 0;) {
        c[a] = a ? expr_mod(w->p, flat, t->dim[a]) : flat;
        if (a) flat = expr_div(w->p, flat, t->dim[a]);
    }
    return at(w, n->in[0], c);
}

/* The part that a concat takes the coordinate from: chosen where that is proved, a select else. */
static Expr at_concat(Walk *w, const Node *n, const Expr *coord) {
    int axis = n->attr.axis.axis;
    Expr end = expr_const(w->p, 0), inside[MAX_PARTS], value[MAX_PARTS];
    if (n->nin > MAX_PARTS) return 0;
    for (uint32_t i = 0; i < n->nin; i++) {
        Expr c[GRAPH_MAX_RANK];
        memcpy(c, coord, sizeof *c * n->type.rank);
        c[axis] = expr_sub(w->p, coord[axis], end);
        end = expr_add(w->p, end, graph_type(w->g, n->in[i])->dim[axis]);
        inside[i] = expr_lt(w->p, coord[axis], end);
        value[i] = expr_is_value(w->p, inside[i], 0) ? expr_const(w->p, 0) : at(w, n->in[i], c);
        if (!value[i]) return 0;
        if (is_true(w->p, inside[i])) break;
        if (i + 1 == n->nin) return 0;
    }
    uint32_t last = 0;
    while (!is_true(w->p, inside[last])) last++;
    Expr e = value[last];
    while (last-- > 0) e = expr_select(w->p, inside[last], value[last], e);
    return e;
}

static Expr at_gather(Walk *w, const Node *n, const Expr *coord) {
    const Type *t = graph_type(w->g, n->in[0]);
    Expr c[GRAPH_MAX_RANK];
    for (int a = 0; a < t->rank; a++) {
        int src = n->attr.index.src[a];
        c[a] = src >= 0 ? coord[src] : at(w, n->in[-src], coord);
        if (!c[a] || !value_in_range(w->x, c[a], t->dim[a])) return 0;
    }
    return at(w, n->in[0], c);
}

static Expr at_view(Walk *w, const Node *n, const Expr *coord) {
    const Type *t = graph_type(w->g, n->in[0]);
    Expr c[GRAPH_MAX_RANK];
    if (n->op == OP_reshape) return at_reshape(w, n, coord);
    if (n->op == OP_concat) return at_concat(w, n, coord);
    if (n->op == OP_pad || n->op == OP_window) return 0;
    for (int a = 0; a < n->type.rank; a++) {
        if (n->op == OP_permute)
            c[n->attr.perm.axis[a]] = coord[a];
        else if (n->op == OP_expand)
            c[a] = expr_is_value(w->p, t->dim[a], 1) ? expr_const(w->p, 0) : coord[a];
        else
            c[a] = expr_add(w->p, n->attr.slice.start[a],
                            expr_muli(w->p, coord[a], n->attr.slice.step[a]));
    }
    return at(w, n->in[0], c);
}

/* Maps, where the expression algebra computes the same: no wrapping, floor equals truncation. */

static bool nonnegative(const ExprPool *p, Expr e) {
    int64_t lo;
    expr_range(p, e, &lo, NULL);
    return lo >= 0;
}

static Expr truth(ExprPool *p, Expr e) {
    int64_t lo, hi;
    expr_range(p, e, &lo, &hi);
    return lo >= 0 && hi <= 1 ? e : expr_not(p, expr_eq(p, e, expr_const(p, 0)));
}

static Expr map2(ExprPool *p, const Node *n, bool logical, Expr a, Expr b) {
    switch (n->op) {
    case OP_add: return expr_add(p, a, b);
    case OP_sub: return expr_sub(p, a, b);
    case OP_mul: return expr_mul(p, a, b);
    case OP_div: return nonnegative(p, a) && nonnegative(p, b) ? expr_div(p, a, b) : 0;
    case OP_rem: return nonnegative(p, a) && nonnegative(p, b) ? expr_mod(p, a, b) : 0;
    case OP_mod: return expr_mod(p, a, b);
    case OP_min: return expr_min(p, a, b);
    case OP_max: return expr_max(p, a, b);
    case OP_lt: return expr_lt(p, a, b);
    case OP_le: return expr_le(p, a, b);
    case OP_eq: return expr_eq(p, a, b);
    case OP_ne: return expr_not(p, expr_eq(p, a, b));
    case OP_and: return logical ? expr_and(p, a, b) : 0;
    case OP_or: return logical ? expr_max(p, a, b) : 0;
    default: return 0;
    }
}

static Expr map1(ExprPool *p, const Node *n, bool logical, Expr a) {
    switch (n->op) {
    case OP_neg: return expr_muli(p, a, -1);
    case OP_abs: return nonnegative(p, a) ? a : 0;
    case OP_not: return logical ? expr_not(p, a) : 0;
    case OP_cast: return n->type.dtype == DT_bool ? truth(p, a) : a;
    default: return 0;
    }
}

/* A conjunction is known to be false, a disjunction true, from one side alone. */
static Expr short_circuit(const ExprPool *p, const Node *n, Expr known) {
    if (!known) return 0;
    return expr_is_value(p, known, n->op == OP_or) && n->type.dtype == DT_bool ? known : 0;
}

static Expr at_map(Walk *w, const Node *n, const Expr *coord) {
    Expr a[3] = {0, 0, 0};
    bool logical = n->type.dtype == DT_bool;
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->op == OP_select && i && expr_is_const(w->p, a[0], NULL) &&
            expr_is_value(w->p, a[0], 1) != (i == 1))
            continue; /* the branch not taken */
        a[i] = at(w, n->in[i], coord);
        if (a[i]) continue;
        if (n->op != OP_and && n->op != OP_or) return 0;
        return short_circuit(w->p, n, i ? a[0] : at(w, n->in[1], coord));
    }
    if (n->op == OP_select)
        return !a[1] ? a[2] : !a[2] ? a[1] : expr_select(w->p, a[0], a[1], a[2]);
    return n->nin == 1 ? map1(w->p, n, logical, a[0]) : map2(w->p, n, logical, a[0], a[1]);
}

static bool fits(const ExprPool *p, DType t, Expr e) {
    int64_t lo, hi, min;
    uint64_t max;
    dtype_int_range(t, &min, &max);
    expr_range(p, e, &lo, &hi);
    return lo >= min && (hi < 0 || (uint64_t)hi <= max);
}

static Expr node_at(Walk *w, Value v, const Expr *coord) {
    const Node *n = graph_node(w->g, v);
    switch (op_info[n->op].cls) {
    case OPC_MAP: return at_map(w, n, coord);
    case OPC_VIEW: return at_view(w, n, coord);
    default: break;
    }
    switch (n->op) {
    case OP_iota: return coord[n->attr.axis.axis];
    case OP_const: return at_const(w, n, coord);
    case OP_exprs: return at_exprs(w, n, coord);
    case OP_gather: return at_gather(w, n, coord);
    case OP_cumsum: {
        Expr e = at(w, n->in[0], coord);
        return e && expr_is_value(w->p, e, 0) ? e : 0; /* sums of zeros */
    }
    default: return 0;
    }
}

static Expr at(Walk *w, Value v, const Expr *coord) {
    DType t = graph_type(w->g, v)->dtype;
    if (!dtype_is_int(t) && t != DT_bool) return 0;
    if (w->visits-- <= 0) return 0;
    Expr e = node_at(w, v, coord);
    return e && fits(w->p, t, e) ? e : 0;
}

Expr value_expr(ValueExprs *x, Value v, const Expr *coord) {
    Walk w = {x, x->g, x->g->exprs, MAX_VISITS};
    return at(&w, v, coord);
}
