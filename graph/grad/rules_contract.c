/* Contractions: the gradient of one operand is a contraction with the other. */
#include "graph/grad/grad_impl.h"

Value grad_transposed(Graph *g, Value x) {
    uint8_t perm[GRAPH_MAX_RANK];
    if (!x) return 0;
    const int r = graph_type(g, x)->rank;
    for (int i = 0; i < r; i++) perm[i] = (uint8_t)i;
    perm[r - 2] = (uint8_t)(r - 1);
    perm[r - 1] = (uint8_t)(r - 2);
    return build_permute(g, x, perm);
}

enum { TURN_DEPTH = 5 };

static bool keeps_matrices(const Type *a, const Type *b) {
    return b->rank >= 2 && a->dim[a->rank - 1] == b->dim[b->rank - 1] &&
           a->dim[a->rank - 2] == b->dim[b->rank - 2];
}

/* x is a permute that exchanges its last two dimensions with each other, perhaps cast or scaled
 * since. */
static bool turns(const Graph *g, Value x) {
    const Node *n = graph_node(g, x);
    for (int i = 0; i < TURN_DEPTH; i++) {
        const bool view = n->op == OP_reshape && keeps_matrices(&n->type, graph_type(g, n->in[0]));
        if (!view && n->op != OP_cast && n->op != OP_mul) break;
        n = graph_node(g, n->in[n->op == OP_mul && graph_node(g, n->in[0])->op == OP_expand]);
    }
    const int r = n->type.rank;
    return r >= 2 && n->op == OP_permute && n->attr.perm.axis[r - 1] == r - 2 &&
           n->attr.perm.axis[r - 2] == r - 1;
}

/* Operands are multiplied in their own type, dy too; sums are as wide as the node's. */
void grad_of_dot(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    const Value a = n.in[0], b = n.in[1];
    const DType t = graph_type(g, a)->dtype, to = n.attr.cast.to;
    dy = build_cast(g, dy, t);
    if (grad_wants(w, a))
        grad_add(w, a, build_cast(g, build_dot(g, dy, grad_transposed(g, b), to), t));
    if (!grad_wants(w, b)) return;
    /* What was turned gets its gradient turned: then what is behind it gets its own as it lies. */
    Value db = turns(g, b) ? grad_transposed(g, build_dot(g, grad_transposed(g, dy), a, to))
                           : build_dot(g, grad_transposed(g, a), dy, to);
    grad_add(w, b, build_cast(g, db, t));
}

/* ---- conv: x [N, S.., C], w [K.., C/groups, OC], y [N, O.., OC] ---- */

typedef struct Conv {
    Graph *g;
    Attr attr;
    int n; /* spatial axes */
    Value x, w, dy;
    Type tx, tw, ty;
} Conv;

/* Splits axis `at` of x into two of sizes outer and size/outer. */
static Value split_axis(Graph *g, Value x, int at, Expr outer, Expr inner) {
    if (!x) return 0;
    const Type t = *graph_type(g, x);
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < t.rank; i++) dim[i < at ? i : i + 1] = t.dim[i];
    dim[at] = outer;
    dim[at + 1] = inner;
    return build_reshape(g, x, (uint8_t)(t.rank + 1), dim);
}

/* Joins axes at and at + 1. */
static Value join_axes(Graph *g, Value x, int at) {
    if (!x) return 0;
    const Type t = *graph_type(g, x);
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < t.rank; i++) dim[i <= at ? i : i - 1] = t.dim[i];
    dim[at] = expr_mul(g->exprs, t.dim[at], t.dim[at + 1]);
    return build_reshape(g, x, (uint8_t)(t.rank - 1), dim);
}

/* Taps in reverse, input and output channels exchanged within each group: [K.., OC/groups, C]. */
static Value turned_weights(const Conv *c) {
    Graph *g = c->g;
    ExprPool *p = g->exprs;
    const int n = c->n;
    const Expr groups = expr_const(p, c->attr.conv.groups);
    Expr start[GRAPH_MAX_RANK];
    int64_t step[GRAPH_MAX_RANK];
    uint8_t perm[GRAPH_MAX_RANK];
    for (int i = 0; i < n + 2; i++) {
        start[i] = i < n ? expr_addi(p, c->tw.dim[i], -1) : expr_const(p, 0);
        step[i] = i < n ? -1 : 1;
    }
    for (int i = 0; i < n; i++) perm[i] = (uint8_t)i;
    Value v = build_slice(g, c->w, start, c->tw.dim, step);
    v = split_axis(g, v, n + 1, groups, expr_div(p, c->tw.dim[n + 1], groups));
    perm[n] = (uint8_t)(n + 2);
    perm[n + 1] = (uint8_t)(n + 1);
    perm[n + 2] = (uint8_t)n;
    return join_axes(g, build_permute(g, v, perm), n + 1);
}

/* Zeros of `gaps` between and lo, hi around the elements of the spatial axes, which start at
 * axis 1. */
static Value padded(const Conv *c, Value x, const Expr *lo, const Expr *hi, const int64_t *gaps) {
    ExprPool *p = c->g->exprs;
    Expr los[GRAPH_MAX_RANK], his[GRAPH_MAX_RANK];
    int64_t interior[GRAPH_MAX_RANK] = {0};
    for (int i = 0; i < c->n + 2; i++) los[i] = his[i] = expr_const(p, 0);
    for (int i = 0; i < c->n; i++) {
        los[i + 1] = lo[i];
        his[i + 1] = hi[i];
        interior[i + 1] = gaps ? gaps[i] : 0;
    }
    return build_pad(c->g, x, build_scalar_f(c->g, c->tx.dtype, 0), los, his, interior);
}

/* dx: what the weights spread, each output element `stride` from the next, comes back. */
static Value conv_dx(const Conv *c) {
    Graph *g = c->g;
    ExprPool *p = g->exprs;
    Attr a = {.conv = {.n = (uint8_t)c->n, .groups = c->attr.conv.groups, .to = c->attr.conv.to}};
    Expr lo[GRAPH_MAX_WINDOW], hi[GRAPH_MAX_WINDOW];
    int64_t gaps[GRAPH_MAX_WINDOW];
    for (int i = 0; i < c->n; i++) {
        const Expr reach = expr_muli(p, expr_addi(p, c->tw.dim[i], -1), c->attr.conv.dilation[i]);
        const Expr spread = expr_addi(
            p, expr_muli(p, expr_addi(p, c->ty.dim[i + 1], -1), c->attr.conv.stride[i]), 1);
        gaps[i] = c->attr.conv.stride[i] - 1;
        lo[i] = expr_addi(p, reach, -c->attr.conv.lo[i]);
        hi[i] = expr_addi(
            p,
            expr_sub(p, c->tx.dim[i + 1], gaps[i] ? expr_max(p, spread, expr_const(p, 0)) : spread),
            c->attr.conv.lo[i]);
        a.conv.stride[i] = 1;
        a.conv.dilation[i] = c->attr.conv.dilation[i];
    }
    return build_conv(g, padded(c, c->dy, lo, hi, gaps), turned_weights(c), &a);
}

/* dw: a convolution of x with dy as its weights, whose taps lie `stride` apart; samples are what is
 * summed over, input channels what is kept apart: [C/groups, K.., OC]. */
static Value conv_dw(const Conv *c) {
    Graph *g = c->g;
    ExprPool *p = g->exprs;
    const int n = c->n;
    const Expr groups = expr_const(p, c->attr.conv.groups);
    Attr a = {.conv = {.n = (uint8_t)n, .groups = c->attr.conv.groups, .to = c->attr.conv.to}};
    Expr lo[GRAPH_MAX_WINDOW], hi[GRAPH_MAX_WINDOW];
    uint8_t of_x[GRAPH_MAX_RANK] = {(uint8_t)(n + 2)}, of_dy[GRAPH_MAX_RANK], back[GRAPH_MAX_RANK];
    for (int i = 0; i < n; i++) {
        const Expr reach = expr_muli(p, expr_addi(p, c->tw.dim[i], -1), c->attr.conv.dilation[i]);
        const Expr steps = expr_muli(p, expr_addi(p, c->ty.dim[i + 1], -1), c->attr.conv.stride[i]);
        lo[i] = expr_const(p, c->attr.conv.lo[i]);
        hi[i] = expr_addi(p, expr_sub(p, expr_add(p, reach, steps), c->tx.dim[i + 1]),
                          1 - c->attr.conv.lo[i]);
        a.conv.stride[i] = c->attr.conv.dilation[i];
        a.conv.dilation[i] = c->attr.conv.stride[i];
        of_x[i + 1] = of_dy[i] = back[i] = (uint8_t)(i + 1);
    }
    of_x[n + 1] = (uint8_t)(n + 1);
    of_x[n + 2] = 0;
    of_dy[n] = back[n] = 0;
    of_dy[n + 1] = back[n + 1] = (uint8_t)(n + 1);
    Value x = split_axis(g, padded(c, c->x, lo, hi, NULL), n + 1, groups, c->tw.dim[n]);
    x = join_axes(g, build_permute(g, x, of_x), n + 1);
    Value dw = build_conv(g, x, build_permute(g, c->dy, of_dy), &a);
    return dw ? build_permute(g, dw, back) : 0;
}

void grad_of_conv(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    const DType t = graph_type(g, n.in[0])->dtype;
    Conv c = {.g = g, .attr = n.attr, .n = n.attr.conv.n, .x = n.in[0], .w = n.in[1]};
    c.dy = build_cast(g, dy, t);
    c.tx = *graph_type(g, c.x);
    c.tw = *graph_type(g, c.w);
    c.ty = n.type;
    if (grad_wants(w, c.x)) grad_add(w, c.x, build_cast(g, conv_dx(&c), t));
    if (grad_wants(w, c.w)) grad_add(w, c.w, build_cast(g, conv_dw(&c), t));
}
