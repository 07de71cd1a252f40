/* turn_conv: a convolution over pixels that lie side by side along its first axis, as the gradient
 * of another's weights is, becomes the product of its turned operands.
 *
 *   conv(x [N, S.., C], w [K.., C, O])  =  dot [O, K.. C] x [K.. C, Y.. N], turned: [N, Y.., O]
 *
 * A convolution's columns are its weights', O, and x is computed for every tile of rows by windows.
 * Where N is what lies side by side (the channels of images, whose samples are summed), the windows
 * of x are the better columns: they are read and copied as vectors. Weights as models have them,
 * [O, N, Y..], are then the rows of the result: an optimizer's step in its epilogue reads and
 * writes them nearly as they lie, where it had jumped from one row to the next with each element,
 * through six arrays.
 *
 * Needs: to be behind transpose_sink, which would take the permutes away from what reads through
 * them. Keeps: meaning; sums in another order. Breaks: nothing; leaves dead nodes. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

#define LANES 16 /* elements side by side that are worth it */

/* The first axis is what lies side by side, and long enough. */
static bool lies_first(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    int64_t size;
    while (n->op == OP_pad || n->op == OP_slice) n = graph_node(g, n->in[0]);
    return n->op == OP_permute && n->attr.perm.axis[0] == n->type.rank - 1 &&
           expr_is_const(g->exprs, n->type.dim[0], &size) && size >= LANES;
}

static bool is_turned(const Graph *g, const Node *n) {
    int64_t size;
    if (n->op != OP_conv || n->attr.conv.groups != 1 || n->type.dtype != DT_f32) return false;
    if (2 * n->attr.conv.n + 2 > GRAPH_MAX_RANK || !lies_first(g, n->in[0])) return false;
    for (int i = 0; i < n->attr.conv.n; i++)
        if (n->attr.conv.lo[i] || n->attr.conv.hi[i] ||
            !expr_is_const(g->exprs, n->type.dim[1 + i], &size))
            return false;
    return true;
}

/* [K.., C, Y.., N] as [K.. C, Y.. N]. */
static Value columns_of(Graph *g, const Node *n, Value x, const Type *w, Expr *rows) {
    ExprPool *p = g->exprs;
    const int s = n->attr.conv.n;
    uint8_t axis[GRAPH_MAX_WINDOW], perm[GRAPH_MAX_RANK];
    int64_t size[GRAPH_MAX_WINDOW];
    Expr columns = n->type.dim[0];
    *rows = w->dim[s];
    for (int i = 0; i < s; i++) {
        axis[i] = (uint8_t)(1 + i);
        (void)expr_is_const(p, n->type.dim[1 + i], &size[i]);
        perm[i] = (uint8_t)(1 + i);
        perm[s + 1 + i] = (uint8_t)(s + 2 + i);
        *rows = expr_mul(p, *rows, w->dim[i]);
        columns = expr_mul(p, columns, n->type.dim[1 + i]);
    }
    perm[s] = (uint8_t)(s + 1);
    perm[2 * s + 1] = 0;
    x = build_window(g, x, (uint8_t)s, axis, size, n->attr.conv.dilation, n->attr.conv.stride);
    for (int i = 0; i < s; i++) x = build_slice_axis(g, x, 1 + i, expr_const(p, 0), w->dim[i], 1);
    return build_reshape(g, build_permute(g, x, perm), 2, (Expr[]){*rows, columns});
}

static Value turn(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    Graph *g = r->to;
    if (!is_turned(r->from, n)) return 0;
    const int s = n->attr.conv.n;
    const Type w = *graph_type(r->from, n->in[1]);
    Expr rows, dim[GRAPH_MAX_RANK];
    uint8_t back[GRAPH_MAX_RANK];
    Value b = columns_of(g, n, rewrite_in(r, v, 0), &w, &rows);
    Value a = build_reshape(g, rewrite_in(r, v, 1), 2, (Expr[]){rows, w.dim[s + 1]});
    a = build_permute(g, a, (uint8_t[]){1, 0});
    for (int i = 0; i < s; i++) back[1 + i] = (uint8_t)(1 + i), dim[1 + i] = n->type.dim[1 + i];
    dim[0] = w.dim[s + 1], dim[s + 1] = n->type.dim[0];
    back[0] = (uint8_t)(s + 1), back[s + 1] = 0;
    return build_permute(g, build_reshape(g, build_dot(g, a, b, n->type.dtype), n->type.rank, dim),
                         back);
}

Graph *pass_turn_conv(Graph *g) {
    return rewrite_graph(g, turn, NULL, NULL);
}
