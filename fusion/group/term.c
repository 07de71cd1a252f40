/* Terms: contractions whose results are added to that of a group's contraction, in its kernel. */
#include "fusion/analyse/facts.h"
#include "fusion/group/decide.h"

enum {
    MAX_SUM = 16,  /* additions that are followed */
    MAX_DEPTH = 8, /* ops between a weight and what is multiplied */
};

/* Weights, and what elementwise ops and views make of them alone. */
static bool is_of_weights(const Fuse *f, Value v, int depth) {
    const Node *n = graph_node(f->g, v);
    if (op_is_leaf((Op)n->op)) return true;
    const OpClass c = op_info[n->op].cls;
    if (c != OPC_MAP && c != OPC_VIEW) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (depth == MAX_DEPTH || !is_of_weights(f, n->in[i], depth + 1)) return false;
    return n->nin > 0;
}

/* One operand of v lies in memory in any case. Where both are computed (a part of a head's rows
 * after the other, for its weight's gradient), a kernel of all terms would keep those of all terms
 * until then. */
static bool multiplies_weights(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    return is_of_weights(f, n->in[0], 0) || is_of_weights(f, n->in[1], 0);
}

/* The one addition of f32 that reads v, or 0. */
static Value next_sum(const Fuse *f, Value v) {
    if (f->fact[v].nusers != 1 || f->v[v].must) return 0;
    Value u = fuse_user(f, v, 0);
    const Node *n = graph_node(f->g, u);
    return n->op == OP_add && n->type.dtype == DT_f32 && n->in[0] != n->in[1] ? u : 0;
}

/* Nothing but additions stands between a and b. */
static bool meet(const Fuse *f, Value a, Value b) {
    Value sums[MAX_SUM];
    uint32_t n = 0;
    while (n < MAX_SUM && (a = next_sum(f, a))) sums[n++] = a;
    for (uint32_t i = 0; i < MAX_SUM && (b = next_sum(f, b)); i++)
        for (uint32_t k = 0; k < n; k++)
            if (sums[k] == b) return true;
    return false;
}

/* A product of two matrices of 16 bits, in f32. */
static bool is_half_product(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    DType t = graph_type(f->g, n->in[0])->dtype;
    int64_t k;
    return n->op == OP_dot && n->type.dtype == DT_f32 && n->type.rank == 2 && dtype_is_half(t) &&
           graph_type(f->g, n->in[1])->dtype == t && !f->v[v].attn && !f->v[v].pack &&
           expr_is_const(f->p, graph_type(f->g, n->in[0])->dim[1], &k);
}

bool fuse_is_term(const Fuse *f, const Group *g, Value v) {
    if (g->kind != GROUP_dot || g->attn || g->terms.n >= f->m->terms) return false;
    if (!is_half_product(f, g->anchor) || !is_half_product(f, v) || fuse_packs(f, v)) return false;
    if (!multiplies_weights(f, g->anchor) || !multiplies_weights(f, v)) return false;
    const Node *x = graph_node(f->g, v), *y = graph_node(f->g, g->anchor);
    if (!type_equal(&x->type, &y->type)) return false;
    if (graph_type(f->g, x->in[0])->dtype != graph_type(f->g, y->in[0])->dtype) return false;
    for (uint32_t i = 0; i < g->inlined.n; i++) {
        Value acc = g->inlined.v[i];
        if (fuse_is_dot(f, acc) && !group_is_term(g, acc) && meet(f, v, acc)) return true;
    }
    return false;
}
