/* transpose_sink through merged axes (contract in pass_transpose_sink.c). */
#include "graph/pass/sink.h"

bool sink_permuted(const Graph *g, Value v, Perm *p, Value *inner) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_permute) return false;
    *p = (Perm){.rank = n->type.rank};
    for (int i = 0; i < p->rank; i++) p->axis[i] = n->attr.perm.axis[i];
    *inner = n->in[0];
    return true;
}

Perm sink_remaining(const Perm *p, uint32_t outer_axes) {
    Perm out = {0};
    uint32_t gone = 0;
    for (int i = 0; i < p->rank; i++)
        if (outer_axes >> i & 1) gone |= 1u << p->axis[i];
    for (int i = 0; i < p->rank; i++) {
        if (outer_axes >> i & 1) continue;
        uint8_t position = 0;
        for (int k = 0; k < p->axis[i]; k++) position = (uint8_t)(position + !(gone >> k & 1));
        out.axis[out.rank++] = position;
    }
    return out;
}

/* v = reshape(permute(inner)) where the reshape only merges: axis i of v is the run of axes
 * first[i] .. first[i+1]-1 of the permute's result. */
typedef struct Runs {
    Perm perm;
    Value inner;
    Type outer; /* the permute's result */
    int first[GRAPH_MAX_RANK + 1];
} Runs;

static bool find_runs(ExprPool *p, const Type *outer, const Type *merged, int *first) {
    int k = first[0] = 0;
    for (int i = 0; i < merged->rank; i++) {
        Expr size = expr_const(p, 1);
        while (size != merged->dim[i]) {
            if (k == outer->rank) return false;
            size = expr_mul(p, size, outer->dim[k++]);
        }
        first[i + 1] = k;
    }
    for (; k < outer->rank; k++) /* what is left has size 1 */
        if (!expr_is_value(p, outer->dim[k], 1)) return false;
    first[merged->rank] = k;
    return true;
}

static bool merged(const Graph *g, Value v, Runs *out) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_reshape || !sink_permuted(g, n->in[0], &out->perm, &out->inner)) return false;
    out->outer = *graph_type(g, n->in[0]);
    return find_runs(g->exprs, &out->outer, &n->type, out->first);
}

static bool same_runs(const Runs *a, const Runs *b, int rank) {
    for (int i = 0; i < a->perm.rank; i++)
        if (a->perm.axis[i] != b->perm.axis[i] || a->outer.dim[i] != b->outer.dim[i]) return false;
    for (int i = 0; i <= rank; i++)
        if (a->first[i] != b->first[i]) return false;
    return a->perm.rank == b->perm.rank;
}

/* Sizes on both sides of a reshape cut into common parts: axis i of the operand is the parts
 * in_first[i] .. in_first[i+1]-1. False where one side does not refine. */
static bool common_parts(ExprPool *p, const Type *in, const Type *out, Type *part, int *in_first) {
    Expr one = expr_const(p, 1), a = one, b = one;
    int i = 0, j = 0, n = 0;
    for (;;) {
        while (a == one && i < in->rank) {
            in_first[i] = n;
            a = in->dim[i++];
        }
        while (b == one && j < out->rank) b = out->dim[j++];
        if (a == one || b == one) break;
        Expr q = expr_div(p, a, b), t = expr_div(p, b, a);
        bool splits = expr_mul(p, q, b) == a;
        if (n == GRAPH_MAX_RANK || (!splits && expr_mul(p, t, a) != b)) return false;
        part->dim[n++] = splits ? b : a;
        a = splits ? q : one;
        b = splits ? one : t;
    }
    part->rank = (uint8_t)n;
    in_first[in->rank] = n;
    return a == b;
}

Value sink_split(Rewrite *r, Value v, const Perm *perm, Value inner) {
    Graph *g = r->to;
    const Type *to = graph_type(r->from, v), from = *graph_type(g, rewrite_in(r, v, 0));
    Type part = {0};
    int first[GRAPH_MAX_RANK + 1], outer_of[GRAPH_MAX_RANK];
    Expr dim[GRAPH_MAX_RANK];
    Perm split;
    bool splits = false;
    if (!common_parts(g->exprs, &from, to, &part, first)) return 0;
    for (int i = 0; i < perm->rank; i++) {
        splits |= first[i + 1] - first[i] > 1;
        outer_of[perm->axis[i]] = i;
    }
    if (!splits) return 0;
    split.rank = 0;
    for (int a = 0; a < perm->rank; a++) /* inner axes in order, each as its parts */
        for (int k = first[outer_of[a]]; k < first[outer_of[a] + 1]; k++) {
            dim[split.rank] = part.dim[k];
            split.axis[k] = split.rank++;
        }
    Value x = build_reshape(g, inner, split.rank, dim);
    return build_reshape(g, build_permute(g, x, split.axis), to->rank, to->dim);
}

/* A repeated operand in terms of the parts and the inner order; 0 if it varies along a merged axis.
 */
static Value repeated_inner(Graph *g, Value v, const Runs *runs) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_expand) return 0;
    const Type *t = graph_type(g, n->in[0]);
    Expr dim[GRAPH_MAX_RANK], to[GRAPH_MAX_RANK];
    uint8_t inverse[GRAPH_MAX_RANK];
    for (int i = 0; i < t->rank; i++) {
        bool single = runs->first[i + 1] == runs->first[i] + 1;
        if (!single && !expr_is_value(g->exprs, t->dim[i], 1)) return 0;
        for (int k = runs->first[i]; k < runs->first[i + 1]; k++) dim[k] = t->dim[i];
    }
    for (int k = 0; k < runs->perm.rank; k++) {
        inverse[runs->perm.axis[k]] = (uint8_t)k;
        to[runs->perm.axis[k]] = runs->outer.dim[k];
    }
    Value x = build_permute(g, build_reshape(g, n->in[0], runs->perm.rank, dim), inverse);
    return build_expand(g, x, runs->perm.rank, to);
}

Value sink_merged_map(Rewrite *r, Value v) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    Runs runs, other;
    Value in[3];
    uint32_t lead = 0;
    while (lead < n->nin && !merged(g, rewrite_in(r, v, lead), &runs)) lead++;
    if (lead == n->nin) return 0;
    for (uint32_t i = 0; i < n->nin; i++) {
        Value x = rewrite_in(r, v, i);
        if (!merged(g, x, &other))
            in[i] = repeated_inner(g, x, &runs);
        else
            in[i] = same_runs(&runs, &other, n->type.rank) ? other.inner : 0;
        if (!in[i]) return 0;
    }
    Node inner = *n;
    inner.type.rank = runs.perm.rank;
    for (int k = 0; k < runs.perm.rank; k++) inner.type.dim[runs.perm.axis[k]] = runs.outer.dim[k];
    Value y = build_permute(g, build_like(g, &inner, in, n->nin), runs.perm.axis);
    return build_reshape(g, y, n->type.rank, n->type.dim);
}

Value sink_merged_reduce(Rewrite *r, Value v) {
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    Runs runs;
    uint32_t outer = 0, inner = 0;
    if (n->op == OP_argmax || n->op == OP_argmin) return 0; /* positions in the merged axis */
    if (!merged(g, rewrite_in(r, v, 0), &runs)) return 0;
    for (int i = 0; i < graph_type(r->from, n->in[0])->rank; i++)
        for (int k = runs.first[i]; (n->attr.reduce.axes >> i & 1) && k < runs.first[i + 1]; k++) {
            outer |= 1u << k;
            inner |= 1u << runs.perm.axis[k];
        }
    Perm left = sink_remaining(&runs.perm, outer);
    Value x = build_reduce(g, (Op)n->op, runs.inner, inner, false);
    if (left.rank) x = build_permute(g, x, left.axis);
    return build_reshape(g, x, n->type.rank, n->type.dim);
}
