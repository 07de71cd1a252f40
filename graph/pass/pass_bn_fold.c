/* bn_fold: a per-channel scale after a convolution or a contraction moves into its constant
 * weights, through a per-channel shift: (conv(x, w) + b) * s becomes conv(x, w*s) + b*s. What is
 * left of a batch normalisation is one shift, which fusion puts into the epilogue. The products on
 * constants are ordinary nodes: prepare steps, computed once at load.
 *
 * Needs: transpose_sink (channels last). Keeps: meaning up to rounding. Breaks: nothing; leaves
 * dead nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

typedef struct FoldState {
    bool *constant; /* by value of the old graph */
} FoldState;

/* The constant row that v repeats along every axis but the last; 0 if it is nothing like that. */
static Value channel_row(const Rewrite *r, Value v) {
    const Graph *g = r->from;
    const FoldState *s = r->facts;
    const Node *n = graph_node(g, v);
    if (n->op != OP_expand || !s->constant[n->in[0]]) return 0;
    const Type *t = graph_type(g, n->in[0]);
    for (int i = 0; i + 1 < t->rank; i++)
        if (!expr_is_value(g->exprs, t->dim[i], 1)) return 0;
    return n->in[0];
}

static bool weighted(const Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    const FoldState *s = r->facts;
    return (n->op == OP_conv || n->op == OP_dot) && s->constant[n->in[1]] && r->uses[v] == 1;
}

/* row, of rank n->type.rank with leading ones, as a factor of the weights along their last axis. */
static Value scale_weights(Rewrite *r, Value v, Value row) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    const Type *t = graph_type(g, row);
    Value flat = build_reshape(g, row, 1, &t->dim[t->rank - 1]);
    Value w = build_binary(g, OP_mul, rewrite_in(r, v, 1),
                           build_cast(g, flat, graph_type(g, rewrite_in(r, v, 1))->dtype));
    Value in[2] = {rewrite_in(r, v, 0), w};
    return build_like(g, n, in, 2);
}

/* scale * x for the operand `side` of a mul whose other operand is a constant row. */
static Value fold_into(Rewrite *r, Value mul, uint32_t side) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, mul);
    Value x = n->in[side], scale = n->in[1 - side];
    if (!channel_row(r, scale)) return 0;
    Value row = r->map[channel_row(r, scale)];
    if (weighted(r, x)) return scale_weights(r, x, row);
    const Node *shift = graph_node(r->from, x);
    if ((shift->op != OP_add && shift->op != OP_sub) || r->uses[x] != 1) return 0;
    for (uint32_t k = 0; k < 2; k++) {
        if (shift->op == OP_sub && k == 1) break; /* b - conv */
        if (!weighted(r, shift->in[k]) || !channel_row(r, shift->in[1 - k])) continue;
        Value scaled = scale_weights(r, shift->in[k], row);
        Value b = build_binary(g, OP_mul, r->map[channel_row(r, shift->in[1 - k])], row);
        return build_binary(g, (Op)shift->op, scaled, b);
    }
    return 0;
}

/* (x + row) + row as x + (row + row), where x is a contraction. */
static Value join_shifts(Rewrite *r, Value v, uint32_t side) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    Value row = channel_row(r, n->in[1 - side]);
    Node x = *graph_node(g, rewrite_in(r, v, side));
    if (!row || x.op != OP_add || r->uses[n->in[side]] != 1) return 0;
    for (uint32_t k = 0; k < 2; k++) {
        const Node *base = graph_node(g, x.in[k]), *other = graph_node(g, x.in[1 - k]);
        if ((base->op != OP_conv && base->op != OP_dot) || other->op != OP_expand) continue;
        if (!type_equal(graph_type(g, other->in[0]), graph_type(g, r->map[row]))) continue;
        Value sum = build_binary(g, OP_add, other->in[0], r->map[row]);
        return build_binary(g, OP_add, x.in[k], sum);
    }
    return 0;
}

static Value fold(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    if (!dtype_is_float(n->type.dtype)) return 0;
    if (n->op == OP_add) {
        Value sum = join_shifts(r, v, 0);
        return sum ? sum : join_shifts(r, v, 1);
    }
    if (n->op != OP_mul) return 0;
    Value x = fold_into(r, v, 0);
    return x ? x : fold_into(r, v, 1);
}

static void *facts(const Graph *g, void *ctx) {
    FoldState *s = ARENA_NEW(g->arena, FoldState);
    s->constant = ARENA_ARRAY(g->own, bool, g->nodes.n);
    graph_mark_constant(g, s->constant);
    return (void)ctx, s;
}

Graph *pass_bn_fold(Graph *g) {
    return rewrite_graph(g, fold, facts, NULL);
}
