/* Views: where an element came from, its gradient goes back to. */
#include "graph/grad/grad_impl.h"

static Value zero_of(Graph *g, Value x) {
    return x ? build_scalar_f(g, graph_type(g, x)->dtype, 0) : 0;
}

void grad_of_reshape(Walk *w, Value v, Value dy) {
    grad_add(w, grad_in(w, v, 0), dy);
}

void grad_of_permute(Walk *w, Value v, Value dy) {
    const Node n = *graph_node(w->g, v);
    uint8_t back[GRAPH_MAX_RANK] = {0};
    for (int i = 0; i < n.type.rank; i++) back[n.attr.perm.axis[i]] = (uint8_t)i;
    grad_add(w, n.in[0], build_permute(w->g, dy, back));
}

void grad_of_expand(Walk *w, Value v, Value dy) {
    const Value x = grad_in(w, v, 0);
    const Type *from = graph_type(w->g, x), *to = graph_type(w->g, v);
    uint32_t repeated = 0;
    for (int i = 0; i < to->rank; i++)
        if (from->dim[i] != to->dim[i]) repeated |= 1u << i;
    grad_add(w, x, build_reduce(w->g, OP_reduce_sum, dy, repeated, true));
}

/* ---- slice and pad ---- */

/* What n elements take up once `gaps` zeros lie between neighbours; as pad has it. */
static Expr spread_size(ExprPool *p, Expr n, int64_t gaps) {
    if (!gaps) return n;
    return expr_max(p, expr_addi(p, expr_muli(p, expr_addi(p, n, -1), gaps + 1), 1),
                    expr_const(p, 0));
}

static bool all_forward(const Node *n) {
    for (int i = 0; i < n->type.rank; i++)
        if (n->attr.slice.step[i] < 0) return false;
    return true;
}

/* A slice with backward steps is one with forward steps, turned round: dy turned back, and where
 * the forward one starts. */
static Value turn_forward(Graph *g, const Node *n, Value dy, Expr *start) {
    ExprPool *p = g->exprs;
    Expr from[GRAPH_MAX_RANK];
    int64_t step[GRAPH_MAX_RANK];
    for (int i = 0; i < n->type.rank; i++) {
        const bool backward = n->attr.slice.step[i] < 0;
        const Expr last = expr_addi(p, n->type.dim[i], -1);
        step[i] = backward ? -1 : 1;
        from[i] = backward ? last : expr_const(p, 0);
        start[i] = n->attr.slice.start[i];
        if (backward) start[i] = expr_add(p, start[i], expr_muli(p, last, n->attr.slice.step[i]));
    }
    return all_forward(n) ? dy : build_slice(g, dy, from, n->type.dim, step);
}

void grad_of_slice(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    ExprPool *p = g->exprs;
    const Node n = *graph_node(g, v);
    const Type from = *graph_type(g, n.in[0]);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    int64_t gaps[GRAPH_MAX_RANK];
    dy = turn_forward(g, &n, dy, lo);
    for (int i = 0; i < from.rank; i++) {
        const int64_t step = n.attr.slice.step[i];
        gaps[i] = (step < 0 ? -step : step) - 1;
        const Expr used = expr_add(p, lo[i], spread_size(p, n.type.dim[i], gaps[i]));
        hi[i] = expr_sub(p, from.dim[i], used);
    }
    grad_add(w, n.in[0], build_pad(g, dy, zero_of(g, dy), lo, hi, gaps));
}

/* dy without its border, zeros where the operand was cropped, every (interior + 1)th element. */
static Value unpad(Graph *g, const Node *n, Value dy) {
    ExprPool *p = g->exprs;
    const Type from = *graph_type(g, n->in[0]);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK], start[GRAPH_MAX_RANK];
    int64_t step[GRAPH_MAX_RANK];
    for (int i = 0; i < from.rank; i++) {
        lo[i] = expr_muli(p, n->attr.pad.lo[i], -1);
        hi[i] = expr_muli(p, n->attr.pad.hi[i], -1);
        start[i] = expr_const(p, 0);
        step[i] = n->attr.pad.interior[i] + 1;
    }
    Value whole = build_pad(g, dy, zero_of(g, dy), lo, hi, NULL);
    return build_slice(g, whole, start, from.dim, step);
}

void grad_of_pad(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    const Value x = n.in[0], fill = n.in[1];
    if (grad_wants(w, x)) grad_add(w, x, unpad(g, &n, dy));
    if (!grad_wants(w, fill)) return;
    Value border = build_pad(g, grad_full(g, x, 0), build_scalar_f(g, n.type.dtype, 1),
                             n.attr.pad.lo, n.attr.pad.hi, n.attr.pad.interior);
    Value shares = build_binary(g, OP_mul, dy, border);
    grad_add(w, fill, build_reduce(g, OP_reduce_sum, shares, (1u << n.type.rank) - 1, false));
}

void grad_of_concat(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    Expr at = expr_const(g->exprs, 0);
    for (uint32_t i = 0; i < n.nin; i++) {
        const Expr size = graph_type(g, n.in[i])->dim[n.attr.axis.axis];
        if (grad_wants(w, n.in[i]))
            grad_add(w, n.in[i], build_slice_axis(g, dy, n.attr.axis.axis, at, size, 1));
        at = expr_add(g->exprs, at, size);
    }
}

/* ---- window ---- */

/* One window of a node: dy has its positions along `axis` and its taps along the last axis. */
typedef struct Fold {
    Graph *g;
    int axis;
    int64_t size, stride, dilation;
    Expr extent; /* of the axis that the windows lie in */
} Fold;

enum { MAX_PARTS = 64 }; /* sums of more are done by a scatter */

/* x [.., n, ..] -> [.., extent, ..] with `gaps` zeros between elements, the first at lo. */
static Value place(const Fold *f, Value x, Expr lo, int64_t gaps, Expr extent) {
    Graph *g = f->g;
    ExprPool *p = g->exprs;
    if (!x) return 0;
    const Type t = *graph_type(g, x);
    Expr los[GRAPH_MAX_RANK], his[GRAPH_MAX_RANK];
    int64_t interior[GRAPH_MAX_RANK] = {0};
    for (int i = 0; i < t.rank; i++) los[i] = his[i] = expr_const(p, 0);
    const Expr used = expr_add(p, lo, spread_size(p, t.dim[f->axis], gaps));
    los[f->axis] = lo;
    his[f->axis] = expr_sub(p, extent, used);
    interior[f->axis] = gaps;
    return build_pad(g, x, zero_of(g, x), los, his, interior);
}

static Value sum(Graph *g, Value a, Value b) {
    return a ? build_binary(g, OP_add, a, b) : b;
}

/* Tap by tap: its elements lie `stride` apart, from t*dilation on. */
static Value fold_taps(const Fold *f, Value dy) {
    ExprPool *p = f->g->exprs;
    const int last = graph_type(f->g, dy)->rank - 1;
    Value total = 0;
    for (int64_t t = 0; t < f->size; t++) {
        Value tap = build_slice_axis(f->g, dy, last, expr_const(p, t), expr_const(p, 1), 1);
        tap = build_squeeze(f->g, tap, last);
        total = sum(f->g, total,
                    place(f, tap, expr_const(p, t * f->dilation), f->stride - 1, f->extent));
    }
    return total;
}

/* Part `k` of ceil(size/stride) of the taps: [.., n, .., stride] -> [.., n, stride, ..]. */
static Value block(const Fold *f, Value dy, int64_t k) {
    ExprPool *p = f->g->exprs;
    const int last = graph_type(f->g, dy)->rank - 1;
    uint8_t perm[GRAPH_MAX_RANK];
    for (int i = 0; i <= last; i++)
        perm[i] = (uint8_t)(i <= f->axis ? i : i == f->axis + 1 ? last : i - 1);
    Value part =
        build_slice_axis(f->g, dy, last, expr_const(p, k * f->stride), expr_const(p, f->stride), 1);
    return build_permute(f->g, part, perm);
}

/* Without dilation, `stride` neighbours at a time: what overlaps are ceil(size/stride) blocks. */
static Value fold_blocks(const Fold *f, Value dy) {
    Graph *g = f->g;
    ExprPool *p = g->exprs;
    Type t = *graph_type(g, dy);
    const int64_t blocks = (f->size + f->stride - 1) / f->stride;
    const Expr n = expr_addi(p, t.dim[f->axis], blocks - 1);
    Fold taps = {.g = g, .axis = t.rank - 1};
    dy = place(&taps, dy, expr_const(p, 0), 0, expr_const(p, blocks * f->stride));
    Value total = 0;
    for (int64_t k = 0; k < blocks; k++)
        total = sum(g, total, place(f, block(f, dy, k), expr_const(p, k), 0, n));
    t.rank--;
    t.dim[f->axis] = expr_muli(p, n, f->stride);
    return place(f, build_reshape(g, total, t.rank, t.dim), expr_const(p, 0), 0, f->extent);
}

/* Position o and tap k: element o*stride + k*dilation. */
static Value fold_scattered(const Fold *f, Value dy) {
    Graph *g = f->g;
    Type t = *graph_type(g, dy), out = t;
    int8_t src[GRAPH_MAX_RANK];
    Value o = build_iota(g, DT_i64, t.rank, t.dim, f->axis);
    Value k = build_iota(g, DT_i64, t.rank, t.dim, t.rank - 1);
    Value at = build_binary(g, OP_add, build_binary_f(g, OP_mul, o, (double)f->stride),
                            build_binary_f(g, OP_mul, k, (double)f->dilation));
    out.rank--;
    out.dim[f->axis] = f->extent;
    for (int i = 0; i < out.rank; i++) src[i] = i == f->axis ? -1 : (int8_t)i;
    Value zeros = build_full(g, zero_of(g, dy), out.rank, out.dim);
    return build_scatter(g, zeros, dy, src, &at, 1, SCATTER_add);
}

static Value fold_window(const Fold *f, Value dy) {
    if (!dy) return 0;
    const bool blocks = f->dilation == 1 && f->stride > 1;
    const int64_t parts = blocks ? (f->size + f->stride - 1) / f->stride : f->size;
    if (parts > MAX_PARTS) return fold_scattered(f, dy);
    return blocks ? fold_blocks(f, dy) : fold_taps(f, dy);
}

/* Windows overlap: each element gets the sum over the taps that read it, axis by axis. */
void grad_of_window(Walk *w, Value v, Value dy) {
    const Node n = *graph_node(w->g, v);
    const Type from = *graph_type(w->g, n.in[0]);
    for (int i = n.attr.window.n; i-- > 0;) {
        const int axis = n.attr.window.axis[i];
        const Fold f = {w->g,
                        axis,
                        n.attr.window.size[i],
                        n.attr.window.stride[i],
                        n.attr.window.dilation[i],
                        from.dim[axis]};
        dy = fold_window(&f, dy);
    }
    grad_add(w, n.in[0], dy);
}
