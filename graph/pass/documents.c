/* Several documents in one row: attention stays inside of each. Of attention over tokens each score
 * to a token of another document becomes -inf.
 *
 * Needs: attention raised. Keeps: what a row of one document means; a model without attention over
 * tokens, or with an input "document_ids" of its own, stays as it is. Breaks: nothing. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

#include <math.h>
#include <string.h>

#define NAME "document_ids"

typedef struct Documents {
    const Graph *of;
    Type tokens; /* i32 [batch, seq] */
    Value ids;   /* the new graph's input, or 0 */
} Documents;

/* The tokens: the first input of integers with two axes. */
static bool find_tokens(const Graph *g, Type *out) {
    bool found = false;
    for (uint32_t i = g->inputs.n; i-- > 0;) {
        const IoInfo *in = &g->inputs.v[i];
        if (strcmp(in->name, NAME) == 0) return false;
        if (in->type.rank != 2 || !dtype_is_int(in->type.dtype)) continue;
        *out = in->type;
        found = true;
    }
    out->dtype = DT_i32;
    return found;
}

/* Scores of type t are [batch, .., seq, seq]; a batch of one row needs no axis. */
static bool fits(const Graph *g, const Type *t, const Type *tokens) {
    bool rows = t->rank >= 2 && t->dim[t->rank - 1] == tokens->dim[1] &&
                t->dim[t->rank - 2] == tokens->dim[1];
    if (expr_is_value(g->exprs, tokens->dim[0], 1)) return rows;
    return rows && t->rank >= 3 && t->dim[0] == tokens->dim[0];
}

/* The documents of queries (axis: the last but one) or keys (the last), beside scores of type t. */
static Value beside(Graph *g, Value ids, const Type *t, int axis) {
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < t->rank; i++) dim[i] = expr_const(g->exprs, 1);
    if (t->rank > 2) dim[0] = graph_type(g, ids)->dim[0];
    dim[axis] = t->dim[axis];
    return build_reshape(g, ids, t->rank, dim);
}

static Value keep_inside(Rewrite *r, Value v) {
    Documents *d = r->facts;
    const Node *n = graph_node(r->from, v);
    if (r->from != d->of || n->op != OP_attention) return 0;
    Graph *g = r->to;
    const Value scores = rewrite_in(r, v, 0);
    const Type t = *graph_type(g, scores);
    const Expr seq = d->tokens.dim[1];
    if (t.dim[t.rank - 1] != seq && t.dim[t.rank - 2] != seq) return 0;
    if (!fits(g, &t, &d->tokens)) {
        (void)diag(g->diags, D_UNSUPPORTED, graph_place(r->from, n->loc, g->arena),
                   "attention over %s cannot be kept inside of documents of %s",
                   type_text(g->exprs, &t, g->arena), type_text(g->exprs, &d->tokens, g->arena));
        diag_hint(g->diags, "--no-packing has one document a row");
        return 0;
    }
    if (!d->ids) d->ids = build_input(g, NAME, d->tokens);
    Value same = build_binary(g, OP_eq, beside(g, d->ids, &t, t.rank - 2),
                              beside(g, d->ids, &t, t.rank - 1));
    Value inside = build_select(g, same, scores, build_scalar_f(g, t.dtype, -INFINITY));
    return build_attention(g, inside, rewrite_in(r, v, 1), n->attr.attention.to,
                           n->attr.attention.guarded);
}

graphc_status graph_keep_documents(const Graph *g, const Graph **out) {
    Documents d = {.of = g};
    *out = g;
    if (!find_tokens(g, &d.tokens)) return GRAPHC_OK;
    *out = rewrite_graph(g, keep_inside, NULL, &d);
    return diag_status(g->diags);
}
