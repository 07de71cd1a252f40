/* parts: results of several contractions that are put together, as the phases of a transposed
 * convolution are, are stored by their kernels where they belong, if nothing is computed of all of
 * them. What is, element by element and alike for all but the last axis, is computed of each:
 *
 *   add (reshape (concat (x, y)), bias)  =  reshape (concat (add (x, bias), add (y, bias)))
 *
 * so that it is part of their kernels, too, and no kernel comes behind them. A cast to a wider type
 * stays behind: there is less to store in front of it. So does all where something else is made of
 * what is put together, which is then stored and read in any case: a norm's gradient, say, would be
 * stored with and without its weights.
 *
 * Needs: to be behind conv_phases and precision. Keeps: meaning, bit for bit. Breaks: nothing;
 * leaves dead nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

enum { DEPTH = 16 }; /* values one above the other that are looked through */

/* A contraction's result, or what maps make of one. */
static bool is_result(const Graph *g, Value v, int depth) {
    const Node *n = graph_node(g, v);
    if (n->op == OP_conv || n->op == OP_dot) return true;
    if (op_info[n->op].cls != OPC_MAP || depth == DEPTH) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (is_result(g, n->in[i], depth + 1)) return true;
    return false;
}

/* A view that leaves the last axis as it is. */
static bool keeps_last(const Graph *g, const Node *n) {
    const int last = n->type.rank - 1;
    const Type *in = graph_type(g, n->in[0]);
    if (n->type.rank < 2 || in->rank < 2 || in->dim[in->rank - 1] != n->type.dim[last])
        return false;
    if (n->op == OP_concat) return n->attr.axis.axis != last;
    return n->op == OP_reshape || (n->op == OP_slice && n->attr.slice.step[last] == 1);
}

/* Views lead from v to results, with a concatenation on the way; `moved` (or NULL): what is made of
 * such, and will be one. */
static bool is_joined(const Graph *g, Value v, bool concat, int depth, const bool *moved) {
    const Node *n = graph_node(g, v);
    if (moved && moved[v]) return true;
    if (depth < DEPTH && op_info[n->op].cls == OPC_VIEW && keeps_last(g, n)) {
        for (uint32_t i = 0; i < n->nin; i++)
            if (!is_joined(g, n->in[i], concat || n->op == OP_concat, depth + 1, moved))
                return false;
        return true;
    }
    return concat && is_result(g, v, 0);
}

static Value behind_expands(const Graph *g, Value v) {
    while (graph_node(g, v)->op == OP_expand) v = graph_node(g, v)->in[0];
    return v;
}

/* v is the same for all but the last axis. */
static bool is_along_last(const Graph *g, Value v) {
    const Type *t = graph_type(g, behind_expands(g, v));
    for (int i = 0; i + 1 < t->rank; i++)
        if (!expr_is_value(g->exprs, t->dim[i], 1)) return false;
    return true;
}

/* What such a value repeats, as [1, .., 1, C] of this rank. */
static Value along_last(Graph *g, Value v, uint8_t rank) {
    v = behind_expands(g, v);
    const Type t = *graph_type(g, v);
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < rank; i++) dim[i] = expr_const(g->exprs, 1);
    if (t.rank) dim[rank - 1] = t.dim[t.rank - 1];
    return build_reshape(g, v, rank, dim);
}

static bool same_shape(const Graph *g, Value v, Value w) {
    Type t = *graph_type(g, v);
    t.dtype = graph_type(g, w)->dtype;
    return type_equal(&t, graph_type(g, w));
}

/* Map n of `in`, each of which is joined in the same way or the same along the last axis
 * (`joined`: which are); 0: their joints differ. */
static Value of_parts(Graph *g, const Node *n, const Value *in, const bool *joined) {
    Value next[3], first = 0;
    for (uint32_t i = n->nin; i-- > 0;)
        if (joined[i]) first = in[i];
    const Node *x = graph_node(g, first);
    if (op_info[x->op].cls != OPC_VIEW) { /* the results themselves */
        for (uint32_t i = 0; i < n->nin; i++)
            next[i] = joined[i] ? in[i]
                                : build_expand(g, along_last(g, in[i], x->type.rank), x->type.rank,
                                               x->type.dim);
        return build_like(g, n, next, n->nin);
    }
    Value part[GRAPH_MAX_RANK];
    if (x->nin > GRAPH_MAX_RANK) return 0;
    for (uint32_t k = 0; k < x->nin; k++) {
        for (uint32_t i = 0; i < n->nin; i++) {
            const Node *y = graph_node(g, in[i]);
            next[i] = in[i];
            if (!joined[i]) continue;
            if (y->op != x->op || y->nin != x->nin || !same_shape(g, y->in[k], x->in[k])) return 0;
            next[i] = y->in[k];
        }
        part[k] = of_parts(g, n, next, joined);
        if (!part[k]) return 0;
    }
    return build_like(g, x, part, x->nin);
}

static bool widens(const Graph *g, const Node *n) {
    return n->op == OP_cast &&
           dtype_bytes(n->type.dtype) > dtype_bytes(graph_type(g, n->in[0])->dtype);
}

/* --- What is moved ---------------------------------------------------------------------------- */

typedef struct Facts {
    bool *moved; /* maps that are computed of each part */
    bool *kept;  /* values of which something else is made, or that are outputs */
} Facts;

static bool may_move(const Graph *g, const Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    bool any = false;
    if (op_info[n->op].cls != OPC_MAP || widens(g, n)) return false;
    for (uint32_t i = 0; i < n->nin; i++) {
        bool joined = is_joined(g, n->in[i], false, 0, f->moved);
        if (joined ? f->kept[n->in[i]] : !is_along_last(g, n->in[i])) return false;
        any = any || joined;
    }
    return any;
}

/* What is read by a node that is not moved, and no view of what is not kept itself, is kept. */
static bool mark_kept(const Graph *g, Facts *f) {
    bool changed = false;
    for (Value v = g->nodes.n; v-- > 1;) {
        const Node *n = graph_node(g, v);
        bool view = op_info[n->op].cls == OPC_VIEW && keeps_last(g, n) && !f->kept[v];
        for (uint32_t i = 0; i < n->nin && !view && !f->moved[v]; i++) {
            changed = changed || !f->kept[n->in[i]];
            f->kept[n->in[i]] = true;
        }
    }
    return changed;
}

/* Least fixed point: a map that stays keeps what it reads, for which others stay, too. */
static void *make_facts(const Graph *g, void *ctx) {
    (void)ctx;
    Facts *f = ARENA_NEW(g->arena, Facts);
    f->moved = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    f->kept = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    for (uint32_t i = 0; i < g->outputs.n; i++) f->kept[g->outputs.v[i].value] = true;
    for (uint32_t i = 0; i < g->writes.n; i++) f->kept[g->writes.v[i].value] = true;
    do
        for (Value v = 1; v < g->nodes.n; v++) f->moved[v] = may_move(g, f, v);
    while (mark_kept(g, f));
    return f;
}

static Value parts(Rewrite *r, Value v) {
    const Facts *f = r->facts;
    const Node *n = graph_node(r->from, v);
    Value in[3];
    bool joined[3];
    if (!f->moved[v]) return 0;
    for (uint32_t i = 0; i < n->nin; i++) {
        in[i] = rewrite_in(r, v, i);
        joined[i] = is_joined(r->to, in[i], false, 0, NULL);
        if (!joined[i] && !is_along_last(r->to, in[i])) return 0;
    }
    return of_parts(r->to, n, in, joined);
}

Graph *pass_parts(Graph *g) {
    return rewrite_graph(g, parts, make_facts, NULL);
}
