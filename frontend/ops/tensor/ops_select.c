/* Operators whose result's size depends on values: OP_compact finds how many elements there are,
 * and the size becomes a symbol. */
#include "frontend/import/axes.h"
#include "frontend/import/formula.h"

#define MAX_SORT_COLUMNS 64

static Value as_mask(Graph *g, Value x) {
    if (!x || graph_type(g, x)->dtype == DT_bool) return x;
    return build_cast(g, x, DT_bool);
}

static bool lower_non_zero(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    const Type t = *lower_type(l, 0);
    Value at = build_compact(g, v_flat(g, as_mask(g, lower_in(l, 0)))), row[GRAPH_MAX_RANK];
    for (int i = t.rank; i-- > 0;) {
        Value size = build_expr(g, DT_i64, t.dim[i]);
        row[i] = build_unsqueeze(g, i ? build_binary(g, OP_mod, at, size) : at, 0);
        at = build_binary(g, OP_div, at, size);
    }
    if (t.rank == 0) {
        const Expr dim[2] = {expr_const(p, 0), at ? graph_type(g, at)->dim[0] : expr_const(p, 0)};
        lower_out(l, 0, build_full(g, build_scalar_i(g, DT_i64, 0), 2, dim));
        return true;
    }
    lower_out(l, 0, build_concat(g, row, t.rank, 0));
    return true;
}

static bool lower_compress(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    Value x = lower_in(l, 0), kept = lower_in(l, 1);
    int axis = 0;
    if (!lower_has_attr(l, "axis"))
        x = v_flat(g, x);
    else if ((axis = lower_axis(l, lower_i(l, "axis"), lower_type(l, 0)->rank)) < 0)
        return false;
    if (!x || !kept) return false;
    if (v_rank(g, kept) != 1)
        return lower_error(l, D_SHAPE, "the condition has rank %d, not 1", v_rank(g, kept));
    /* A condition may be longer than the axis: there is nothing that its rest could pick. */
    const Expr zero = expr_const(p, 0), most = v_dim(g, x, axis);
    const Expr n = expr_min(p, lower_type(l, 1)->dim[0], most);
    kept = build_slice(g, kept, &zero, &n, NULL);
    lower_out(l, 0, build_take(g, x, build_compact(g, kept), axis));
    return true;
}

/* Unique: rows of [n, m] are put in order by sorting column after column from the last (each sort
 * is stable), and a row that differs from its predecessor starts a new group. */

static Value row_order(Graph *g, Value rows, int64_t m) {
    Value order = 0;
    for (int64_t k = m; k-- > 0;) {
        Value key = v_at(g, rows, 1, v_int(g, k));
        if (order) key = build_take(g, key, order, 0);
        Value step = build_argsort(g, key, 0, false);
        order = order ? build_take(g, order, step, 0) : step;
    }
    return order;
}

static Value zeros(Graph *g, Value like) {
    return like ? build_full(g, build_scalar_i(g, DT_i64, 0), 1, graph_type(g, like)->dim) : 0;
}

static Value positions(Graph *g, Value like) {
    return like ? build_iota(g, DT_i64, 1, graph_type(g, like)->dim, 0) : 0;
}

/* True where a row of the sorted rows starts a group; there may be no rows. */
static Value group_starts(Graph *g, Value sorted) {
    if (!sorted) return 0;
    Value at = positions(g, sorted), previous = build_binary_f(g, OP_sub, at, 1);
    Value before = build_take(g, sorted, build_binary_f(g, OP_max, previous, 0), 0);
    Value differs =
        build_reduce(g, OP_reduce_max, build_binary(g, OP_ne, before, sorted), 2, false);
    return v_or(g, build_binary_f(g, OP_eq, at, 0), differs);
}

/* out[at[i]] = v[i] */
static Value put(Graph *g, Value v, Value at) {
    static const int8_t src[1] = {-1};
    return build_scatter(g, zeros(g, at), v, src, &at, 1, SCATTER_set);
}

/* Sizes of the groups that start at the given positions of n rows. */
static Value group_sizes(Graph *g, Value starts, Expr n) {
    ExprPool *p = g->exprs;
    if (!starts) return 0;
    const Value parts[2] = {starts, build_exprs(g, DT_i64, &n, 1)};
    Value ends = build_slice_axis(g, build_concat(g, parts, 2, 0), 0, expr_const(p, 1),
                                  graph_type(g, starts)->dim[0], 1);
    return v_sub(g, ends, starts);
}

static bool lower_unique(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    int axis = 0;
    Value x = lower_in(l, 0);
    if (!lower_has_attr(l, "axis"))
        x = v_flat(g, x);
    else if ((axis = lower_axis(l, lower_i(l, "axis"), lower_type(l, 0)->rank)) < 0)
        return false;
    x = v_move_axis(g, x, axis, 0);
    if (!x) return true;
    const Type t = *graph_type(g, x);
    int64_t m;
    const Expr width = axes_product(p, t.dim, 1, t.rank), dim[2] = {t.dim[0], width};
    if (!expr_is_const(p, width, &m) || m < 1 || m > MAX_SORT_COLUMNS)
        return lower_unsupported(l, NULL, "the other axes hold more than %d elements",
                                 MAX_SORT_COLUMNS);
    Value rows = build_reshape(g, x, 2, dim), order = row_order(g, rows, m);
    Value first = group_starts(g, build_take(g, rows, order, 0)), starts = build_compact(g, first);
    Value index = build_take(g, order, starts, 0), sizes = group_sizes(g, starts, t.dim[0]);
    Value group = build_scan(g, OP_cumsum, build_cast(g, first, DT_i64), 0, false, false);
    Value inverse = put(g, build_binary_f(g, OP_sub, group, 1), order);
    if (!lower_i(l, "sorted")) { /* groups in the order of their first elements */
        Value perm = build_argsort(g, index, 0, false);
        inverse = build_take(g, put(g, positions(g, perm), perm), inverse, 0);
        index = build_take(g, index, perm, 0);
        sizes = build_take(g, sizes, perm, 0);
    }
    lower_out(l, 0, v_move_axis(g, build_take(g, x, index, 0), 0, axis));
    lower_out(l, 1, index);
    lower_out(l, 2, inverse);
    lower_out(l, 3, sizes);
    return true;
}

/* NonMaxSuppression: a loop that takes the best box of every class that is left and drops what
 * overlaps it. Boxes are y1, x1, y2, x2 with y1 <= y2 and x1 <= x2, each [batch, classes, boxes] */

typedef struct Boxes {
    Value side[4], area;
} Boxes;

static Boxes read_boxes(Lower *l, const Type *scores) {
    Graph *g = lower_graph(l);
    Value v[4];
    Boxes b;
    for (int k = 0; k < 4; k++) v[k] = v_at(g, lower_in(l, 0), 2, v_int(g, k));
    for (int k = 0; k < 2; k++) {
        if (lower_i(l, "center_point_box")) { /* x, y, width, height */
            Value half = build_binary_f(g, OP_mul, v[3 - k], 0.5);
            b.side[k] = v_sub(g, v[1 - k], half);
            b.side[k + 2] = v_add(g, v[1 - k], half);
        } else {
            b.side[k] = v_min(g, v[k], v[k + 2]);
            b.side[k + 2] = v_max(g, v[k], v[k + 2]);
        }
    }
    b.area = v_mul(g, v_sub(g, b.side[2], b.side[0]), v_sub(g, b.side[3], b.side[1]));
    for (int k = 0; k < 4; k++)
        b.side[k] = build_expand(g, build_unsqueeze(g, b.side[k], 1), 3, scores->dim);
    b.area = build_expand(g, build_unsqueeze(g, b.area, 1), 3, scores->dim);
    return b;
}

/* The best box's value, kept as an axis of size 1. */
static Value at_best(Graph *g, Value x, Value best) {
    static const int8_t src[3] = {0, 1, -1};
    return best ? build_gather(g, x, src, &best, 1, 3, graph_type(g, best)->dim) : 0;
}

/* Overlap of every box with the best one, over their union. */
static Value overlap(Graph *g, const Boxes *b, Value best) {
    Value extent[2];
    for (int k = 0; k < 2; k++) {
        Value lo = v_max(g, b->side[k], at_best(g, b->side[k], best));
        Value hi = v_min(g, b->side[k + 2], at_best(g, b->side[k + 2], best));
        extent[k] = build_binary_f(g, OP_max, v_sub(g, hi, lo), 0);
    }
    Value common = v_mul(g, extent[0], extent[1]);
    Value all = v_sub(g, v_add(g, b->area, at_best(g, b->area, best)), common);
    Value nothing = v_le(g, all, build_scalar_f(g, graph_type(g, common)->dtype, 0));
    return build_select(g, nothing, build_scalar_f(g, graph_type(g, common)->dtype, 0),
                        v_div(g, common, all));
}

/* Where the row's maximum first stands; a row of NaN has none and gives its last position. Two
 * folds over numbers, which vector units do faster than one over pairs. */
static Value first_best(Graph *g, Value scores, const Type *t) {
    if (!scores) return 0;
    Value most = build_reduce(g, OP_reduce_max, scores, 4, true);
    Value at = build_iota(g, DT_i32, 3, t->dim, 2);
    Value last = build_cast(g, build_expr(g, DT_i64, expr_addi(g->exprs, t->dim[2], -1)), DT_i32);
    Value here = build_select(g, v_eq(g, scores, most), at, last);
    return build_cast(g, build_reduce(g, OP_reduce_min, here, 4, true), DT_i64);
}

/* Body: scores -> whether to go on, scores left, the best boxes, whether they are any. */
static Graph *suppression_body(Lower *l, const Type *t, const Type *threshold) {
    Graph *outer = lower_graph(l);
    Graph *g = graph_create(outer->arena, outer->exprs, outer->diags, "suppression");
    g->is_body = true;
    build_at(g, build_loc_from(g, outer, build_loc(outer), 0));
    const double least = -__builtin_inf();
    build_input(g, "go", (Type){.dtype = DT_bool});
    Value scores = build_input(g, "scores", *t);
    Boxes b;
    for (int k = 0; k < 4; k++) b.side[k] = build_input(g, "side", *t);
    b.area = build_input(g, "area", *t);
    Value limit = build_input(g, "limit", *threshold);
    Value best = first_best(g, scores, t);
    Value left = build_binary(g, OP_lt, build_scalar_f(g, t->dtype, least),
                              build_reduce(g, OP_reduce_max, scores, 4, false));
    Value drop = v_or(g, v_lt(g, limit, overlap(g, &b, best)),
                      v_eq(g, build_iota(g, DT_i64, 3, t->dim, 2), best));
    build_output(g, "go", build_reduce(g, OP_reduce_max, left, 3, false));
    build_output(g, "scores", build_select(g, drop, build_scalar_f(g, t->dtype, least), scores));
    build_output(g, "best", build_squeeze(g, best, 2));
    build_output(g, "left", left);
    return g;
}

/* Rows batch, class, box of what was selected, in that order. best, left: [rounds, batch, class] */
static Value selected_rows(Graph *g, Value best, Value left) {
    if (!best || !left) return 0;
    const Type t = *graph_type(g, best);
    best = v_flat(g, v_move_axis(g, best, 0, 2));
    Value at = build_compact(g, v_flat(g, v_move_axis(g, left, 0, 2)));
    Value rounds = build_expr(g, DT_i64, t.dim[0]);
    Value classes = build_expr(g, DT_i64, t.dim[2]);
    Value row = v_div(g, at, rounds);
    const Value columns[3] = {v_div(g, row, classes), build_binary(g, OP_mod, row, classes),
                              build_take(g, best, at, 0)};
    Value parts[3];
    for (int k = 0; k < 3; k++) parts[k] = build_unsqueeze(g, columns[k], 1);
    return build_concat(g, parts, 3, 1);
}

static bool lower_non_max_suppression(Lower *l) {
    Graph *g = lower_graph(l);
    ExprPool *p = lower_exprs(l);
    if (lower_type(l, 0)->rank != 3 || lower_type(l, 1)->rank != 3)
        return lower_error(l, D_SHAPE, "boxes and scores must have rank 3");
    const Type t = *lower_type(l, 1);
    uint32_t iter;
    const Expr zero = expr_const(p, 0);
    Expr most = zero;
    if (lower_has_in(l, 2) && !lower_number_in(l, 2, &most)) return false;
    lower_assume(l, lower_type(l, 0)->dim[2], expr_const(p, 4));
    const Expr rounds = expr_max(p, expr_min(p, most, t.dim[2]), zero);
    Value scores = lower_in(l, 1), never = build_scalar_f(g, t.dtype, -__builtin_inf());
    if (lower_has_in(l, 4)) { /* which NaN does not pass */
        Value least = build_reshape(g, lower_in(l, 4), 0, NULL);
        scores = build_select(g, v_lt(g, least, scores), scores, never);
    } else {
        scores = build_select(g, build_unary(g, OP_isnan, scores), never, scores);
    }
    Value limit = lower_has_in(l, 3) ? build_reshape(g, lower_in(l, 3), 0, NULL)
                                     : build_scalar_f(g, t.dtype, 0);
    const Boxes b = read_boxes(l, &t);
    const Value captures[6] = {b.side[0], b.side[1], b.side[2], b.side[3], b.area, limit};
    if (!scores || !b.area || !limit) return true;
    Graph *body = suppression_body(l, &t, graph_type(g, limit));
    (void)v_iteration(g, "iteration", &iter);
    Value loop = build_loop(g, build_expr(g, DT_i64, rounds), build_scalar_i(g, DT_bool, 1),
                            &scores, 1, captures, 6, body, iter);
    lower_out(l, 0, selected_rows(g, build_proj(g, loop, 1), build_proj(g, loop, 2)));
    return true;
}

static const char *const compress_attrs[] = {"axis:i", NULL};
static const char *const unique_attrs[] = {"axis:i", "sorted:i=1", NULL};
static const char *const suppression_attrs[] = {"center_point_box:i=0", NULL};

const OnnxOp ops_select[] = {
    {"", "NonZero", 9, 0, 1, 1, 1, 1, NULL, lower_non_zero},
    {"", "Compress", 9, 0, 2, 2, 1, 1, compress_attrs, lower_compress},
    {"", "Unique", 11, 0, 1, 1, 1, 4, unique_attrs, lower_unique},
    {"", "NonMaxSuppression", 10, 0, 2, 5, 1, 1, suppression_attrs, lower_non_max_suppression},
    {0},
};
