/* The walk from results to wanted values, and which rule is whose. */
#include "graph/grad/grad_impl.h"

#include <string.h>

static void no_rule(Walk *w, Value v, Value dy) {
    const Graph *g = w->g;
    const Node *n = graph_node(g, v);
    (void)dy;
    (void)diag(
        g->diags, D_GRADIENT, graph_place(g, n->loc, g->arena),
        "%s lies between the result and a value whose gradient is wanted: it has no derivative",
        op_info[n->op].name);
    w->failed = true;
}

/* NULL: nothing flows back. */
static const GradRule rules[OP_COUNT] = {
#define MAP1(op, dx)     [OP_##op] = grad_of_##op,
#define MAP2(op, da, db) [OP_##op] = grad_of_##op,
#define RULE(op)         [OP_##op] = grad_of_##op,
#define ZERO(op)         [OP_##op] = NULL,
#define NONE(op)         [OP_##op] = no_rule,
#include "graph/grad/rules.def"
#undef MAP1
#undef MAP2
#undef RULE
#undef ZERO
#undef NONE
};

/* Every op has a row, and one only. */
enum {
#define MAP1(op, dx)     ROW_OF_##op,
#define MAP2(op, da, db) ROW_OF_##op,
#define RULE(op)         ROW_OF_##op,
#define ZERO(op)         ROW_OF_##op,
#define NONE(op)         ROW_OF_##op,
#include "graph/grad/rules.def"
#undef MAP1
#undef MAP2
#undef RULE
#undef ZERO
#undef NONE
};
#define CORE_OP(name, cls, arity, dt, domain, flags, cost, attr)                                   \
    _Static_assert(ROW_OF_##name >= 0, "rules.def");
#include "graph/ir/core_ops.def"
#undef CORE_OP

bool grad_wants(const Walk *w, Value x) {
    return w->reached[x];
}

Value grad_full(Graph *g, Value x, double c) {
    const Type t = *graph_type(g, x);
    return build_full(g, build_scalar_f(g, t.dtype, c), t.rank, t.dim);
}

/* x repeats what comes from outside, a weight, in every row. */
static bool repeats_leaf(const Graph *g, Value x) {
    const Node *n = graph_node(g, x);
    if (n->op != OP_expand) return false;
    while (n->op == OP_expand || n->op == OP_reshape || n->op == OP_cast)
        n = graph_node(g, n->in[0]);
    return op_is_leaf((Op)n->op);
}

void grad_add(Walk *w, Value x, Value dx) {
    Graph *g = w->g;
    if (!grad_wants(w, x)) return;
    const Type t = *graph_type(g, x);
    dx = build_reshape(g, dx, t.rank, t.dim);
    if (!dx) {
        w->failed = true;
        return;
    }
    GC_ASSERT(graph_type(g, dx)->dtype == t.dtype);
    /* Of one weight in many places each gradient is folded where it is made: their sum as large as
     * rows are would have to be stored from the last to the first. */
    if (w->grad[x] && repeats_leaf(g, x)) {
        rules[OP_expand](w, x, dx);
        return;
    }
    w->grad[x] = w->grad[x] ? build_binary(g, OP_add, w->grad[x], dx) : dx;
}

/* Gradients are floats; an if or loop has a tuple of them and more. */
static bool may_carry(const Node *n) {
    return dtype_is_float(n->type.dtype) || n->op == OP_if || n->op == OP_loop;
}

void grad_reach(const Graph *g, bool *reached, const bool *held) {
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        bool carries = may_carry(n) && !(held && held[v]);
        reached[v] &= carries;
        if (!carries || !rules[n->op]) continue;
        for (uint32_t i = 0; i < n->nin && !reached[v]; i++) reached[v] = reached[n->in[i]];
    }
}

Value grad_end(const Graph *g, Value y, Value x) {
    bool *reached = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    bool *before = ARENA_ARRAY(g->arena, bool, g->nodes.n); /* y is computed from it */
    Value end = 0;
    reached[x] = before[y] = true;
    grad_reach(g, reached, NULL);
    for (Value v = y + 1; v-- > 1;) {
        const Node *n = graph_node(g, v);
        for (uint32_t i = 0; before[v] && i < n->nin; i++) {
            before[n->in[i]] = true;
            if (!reached[v] && reached[n->in[i]]) end = v;
        }
    }
    return end;
}

static bool any_operand_reached(const Walk *w, const Node *n) {
    for (uint32_t i = 0; i < n->nin; i++)
        if (w->reached[n->in[i]]) return true;
    return false;
}

static graphc_status seed(Walk *w, Value y, Value dy) {
    Graph *g = w->g;
    if (!dtype_is_float(graph_type(g, y)->dtype))
        return diag(g->diags, D_GRADIENT, graph_place(g, graph_node(g, y)->loc, g->arena),
                    "the result to differentiate is %s, not a float",
                    type_text(g->exprs, graph_type(g, y), g->arena));
    build_at(g, graph_node(g, y)->loc);
    grad_add(w, y, dy ? dy : grad_full(g, y, 1));
    return w->failed ? diag_status(g->diags) : GRAPHC_OK;
}

static void walk(Walk *w) {
    for (Value v = w->n; v-- > 1 && !w->failed;) {
        const Node *n = graph_node(w->g, v);
        if (!w->grad[v] && !w->result[v]) continue;
        if (!rules[n->op] || !any_operand_reached(w, n)) continue;
        build_at(w->g, build_loc_part(w->g, n->loc, PART_backward));
        rules[n->op](w, v, w->grad[v]);
    }
}

graphc_status grad_build(Graph *g, uint32_t n, const Value *y, const Value *dy, uint32_t nwrt,
                         const Value *wrt, Value *dwrt) {
    return grad_build_held(g, n, y, dy, nwrt, wrt, dwrt, 0, NULL);
}

graphc_status grad_build_held(Graph *g, uint32_t n, const Value *y, const Value *dy, uint32_t nwrt,
                              const Value *wrt, Value *dwrt, uint32_t nheld, const Value *held) {
    const Loc here = build_loc(g);
    Walk w = {.g = g, .n = g->nodes.n};
    w.reached = ARENA_ARRAY(g->arena, bool, w.n);
    w.grad = ARENA_ARRAY(g->arena, Value, w.n);
    w.result = ARENA_ARRAY(g->arena, Value *, w.n);
    for (uint32_t i = 0; i < nwrt; i++) w.reached[wrt[i]] = true;
    bool *stays = ARENA_ARRAY(g->arena, bool, w.n);
    for (uint32_t i = 0; i < nheld; i++) stays[held[i]] = true;
    grad_reach(g, w.reached, stays);
    for (uint32_t i = 0; i < n; i++) GC_TRY(seed(&w, y[i], dy ? dy[i] : 0));
    walk(&w);
    build_at(g, here);
    for (uint32_t i = 0; i < nwrt; i++) dwrt[i] = w.grad[wrt[i]];
    return w.failed ? diag_status(g->diags) : GRAPHC_OK;
}
