/* patches: a convolution whose windows lie side by side is a product of a matrix that has a window
 * in each row.
 *
 *   conv(x [N, s H, s W, C], w [s, s, C, O]) of stride s  =  dot [N H W, C s s] x [C s s, O]
 *
 * For targets that fetch matrices and channels in 16-byte pieces (Machine.flattens_patches): as a
 * convolution, one over channels that fill no such piece, an image's three, say, would be read
 * element by element.
 *
 * So would one whose window is a pixel of many channels: of 58, say.
 *
 * Rows go over the channels first, as ONNX's weights do, which are read as they lie then.
 *
 * Needs: to be behind conv_phases and precision. Keeps: meaning; sums in another order. Breaks:
 * nothing; leaves dead nodes. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

enum {
    PIECE = 8, /* channels */
    ROW = 32   /* of a window of one pixel, in 16 bits: rows that are stored 16 bytes apart as they
                  are (fusion/group/layout.c). Others are widened (pass_conv_widen). */
};

/* Windows along spatial axis i touch, and the last one ends with x. */
static bool is_tiled(const Graph *g, const Node *n, int i) {
    ExprPool *p = g->exprs;
    const Type *x = graph_type(g, n->in[0]), *w = graph_type(g, n->in[1]);
    int64_t taps, stride = n->attr.conv.stride[i];
    if (!expr_is_const(p, w->dim[i], &taps) || taps != stride) return false;
    if (n->attr.conv.lo[i] || n->attr.conv.hi[i] || n->attr.conv.dilation[i] != 1) return false;
    return expr_muli(p, n->type.dim[1 + i], stride) == x->dim[1 + i];
}

static bool is_patches(const Graph *g, const Node *n) {
    int64_t channels, windows = 1;
    if (n->op != OP_conv || n->attr.conv.groups != 1) return false;
    if (2 * n->attr.conv.n + 2 > GRAPH_MAX_RANK) return false;
    for (int i = 0; i < n->attr.conv.n; i++) {
        if (!is_tiled(g, n, i)) return false;
        windows *= n->attr.conv.stride[i];
    }
    const Type *x = graph_type(g, n->in[0]);
    if (!expr_is_const(g->exprs, x->dim[x->rank - 1], &channels) || channels % PIECE == 0)
        return false;
    return windows > 1 || (channels >= ROW && dtype_is_half(x->dtype));
}

/* [N, H, W, C, s, s] as [N H W, C s s]. */
static Value windows_of(Graph *g, const Node *n, Value x) {
    ExprPool *p = g->exprs;
    int s = n->attr.conv.n;
    const Type t = *graph_type(g, x);
    Expr dim[GRAPH_MAX_RANK], rows = t.dim[0], each = t.dim[s + 1];
    uint8_t perm[GRAPH_MAX_RANK];
    dim[0] = t.dim[0];
    perm[0] = 0;
    for (int i = 0; i < s; i++) {
        dim[1 + 2 * i] = n->type.dim[1 + i];
        dim[2 + 2 * i] = expr_const(p, n->attr.conv.stride[i]);
        perm[1 + i] = (uint8_t)(1 + 2 * i);
        perm[2 + s + i] = (uint8_t)(2 + 2 * i);
        rows = expr_mul(p, rows, dim[1 + 2 * i]);
        each = expr_mul(p, each, dim[2 + 2 * i]);
    }
    dim[2 * s + 1] = t.dim[s + 1];
    perm[1 + s] = (uint8_t)(2 * s + 1);
    x = build_permute(g, build_reshape(g, x, (uint8_t)(2 * s + 2), dim), perm);
    return build_reshape(g, x, 2, (Expr[]){rows, each});
}

/* [s, s, C, O] as [C s s, O]. */
static Value weights_of(Graph *g, int s, Value w, Expr rows) {
    uint8_t perm[GRAPH_MAX_RANK];
    Expr columns = graph_type(g, w)->dim[s + 1];
    for (int i = 0; i < s; i++) perm[1 + i] = (uint8_t)i;
    perm[0] = (uint8_t)s;
    perm[s + 1] = (uint8_t)(s + 1);
    return build_reshape(g, build_permute(g, w, perm), 2, (Expr[]){rows, columns});
}

static Value patches(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    Graph *g = r->to;
    if (!is_patches(r->from, n)) return 0;
    Value x = windows_of(g, n, rewrite_in(r, v, 0));
    Value w = weights_of(g, n->attr.conv.n, rewrite_in(r, v, 1), graph_type(g, x)->dim[1]);
    return build_reshape(g, build_dot(g, x, w, n->type.dtype), n->type.rank, n->type.dim);
}

Graph *pass_patches(Graph *g) {
    return rewrite_graph(g, patches, NULL, NULL);
}
