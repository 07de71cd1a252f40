/* Element-wise ops: the formulas of rules.def, and the few that are none. */
#include "graph/grad/grad_impl.h"

#define NEG(a)         build_unary(g, OP_neg, a)
#define SIGN(a)        build_unary(g, OP_sign, a)
#define FLOOR(a)       build_unary(g, OP_floor, a)
#define TRUNC(a)       build_unary(g, OP_trunc, a)
#define EXP(a)         build_unary(g, OP_exp, a)
#define LOG(a)         build_unary(g, OP_log, a)
#define RSQRT(a)       build_unary(g, OP_rsqrt, a)
#define SIN(a)         build_unary(g, OP_sin, a)
#define COS(a)         build_unary(g, OP_cos, a)
#define SINH(a)        build_unary(g, OP_sinh, a)
#define COSH(a)        build_unary(g, OP_cosh, a)
#define ADD(a, b)      build_binary(g, OP_add, a, b)
#define SUB(a, b)      build_binary(g, OP_sub, a, b)
#define MUL(a, b)      build_binary(g, OP_mul, a, b)
#define DIV(a, b)      build_binary(g, OP_div, a, b)
#define POW(a, b)      build_binary(g, OP_pow, a, b)
#define EQ(a, b)       build_binary(g, OP_eq, a, b)
#define LT(a, b)       build_binary(g, OP_lt, a, b)
#define LE(a, b)       build_binary(g, OP_le, a, b)
#define AND(a, b)      build_binary(g, OP_and, a, b)
#define WHERE(c, a, b) build_select(g, c, a, b)
#define C(value)       build_scalar_f(g, t, value)

/* Of min and max: dy where an operand is chosen. `worse`: it is surely not; `no_better`: it is not,
 * or the two are equal. A constant wins its ties, so that relu'(0) = 0 as everywhere. */
static Value chosen(Graph *g, Value dy, Value other, Value worse, Value no_better) {
    const DType t = dy ? graph_type(g, dy)->dtype : DT_none;
    double constant;
    if (build_const_f64(g, other, &constant)) return WHERE(no_better, C(0), dy);
    return WHERE(worse, C(0), WHERE(no_better, MUL(dy, C(0.5)), dy));
}
#define CHOSEN(other, worse, no_better) chosen(g, dy, other, worse, no_better)

#define MAP1(op, formula)                                                                          \
    void grad_of_##op(Walk *w, Value v, Value dy) {                                                \
        Graph *g = w->g;                                                                           \
        const Value x = grad_in(w, v, 0), y = v;                                                   \
        const DType t = graph_type(g, x)->dtype;                                                   \
        (void)x, (void)y, (void)t;                                                                 \
        grad_add(w, x, formula);                                                                   \
    }
#define MAP2(op, of_a, of_b)                                                                       \
    void grad_of_##op(Walk *w, Value v, Value dy) {                                                \
        Graph *g = w->g;                                                                           \
        const Value a = grad_in(w, v, 0), b = grad_in(w, v, 1), y = v;                             \
        const DType t = graph_type(g, a)->dtype;                                                   \
        (void)y, (void)t;                                                                          \
        if (grad_wants(w, a)) grad_add(w, a, of_a);                                                \
        if (grad_wants(w, b)) grad_add(w, b, of_b);                                                \
    }
#define RULE(op)
#define ZERO(op)
#define NONE(op)
#include "graph/grad/rules.def"
#undef MAP1
#undef MAP2
#undef RULE
#undef ZERO
#undef NONE

/* A positive constant, or made of sizes. */
static bool is_count(const Graph *g, Value v) {
    double c;
    if (build_const_f64(g, v, &c)) return c > 0;
    while (graph_node(g, v)->op == OP_cast) v = graph_node(g, v)->in[0];
    return graph_node(g, v)->op == OP_exprs;
}

/* A sum of squares or its multiple, as a mean is: 0 only where all that it sums is. Of one number
 * it is the square. */
static bool sum_of_squares(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    while (n->op == OP_reshape || n->op == OP_cast ||
           ((n->op == OP_mul || n->op == OP_div) && is_count(g, n->in[1])))
        n = graph_node(g, n->in[0]);
    if (n->op == OP_reduce_sum) n = graph_node(g, n->in[0]);
    while (n->nin && op_info[n->op].cls == OPC_VIEW && n->op != OP_concat)
        n = graph_node(g, n->in[0]); /* a pool's taps */
    return n->op == OP_mul && n->in[0] == n->in[1];
}

/* Infinite at 0, where a norm has none either, but a least slope of 0: rows of zeros, as padding
 * is, train as they do elsewhere, where infinity times their zeros would spread NaN. */
void grad_of_sqrt(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Value x = grad_in(w, v, 0);
    const DType t = graph_type(g, x)->dtype;
    const Value dx = DIV(dy, MUL(v, C(2)));
    grad_add(w, x, sum_of_squares(g, x) ? WHERE(EQ(v, C(0)), C(0), dx) : dx);
}

/* Between floats; what comes from integers or goes to them carries nothing. */
void grad_of_cast(Walk *w, Value v, Value dy) {
    const Value x = grad_in(w, v, 0);
    grad_add(w, x, build_cast(w->g, dy, graph_type(w->g, x)->dtype));
}

void grad_of_select(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Value cond = grad_in(w, v, 0), a = grad_in(w, v, 1), b = grad_in(w, v, 2);
    const DType t = graph_type(g, a)->dtype;
    if (grad_wants(w, a)) grad_add(w, a, WHERE(cond, dy, C(0)));
    if (grad_wants(w, b)) grad_add(w, b, WHERE(cond, C(0), dy));
}
