/* What the walk and the rules share. Nothing outside graph/grad includes this. */
#ifndef GRAPH_GRAD_IMPL_H
#define GRAPH_GRAD_IMPL_H

#include "graph/grad/grad.h"

/* One walk from the results towards the wanted values, last node first. A node's gradient is whole
 * when the walk comes to it: all of its readers are behind. */
typedef struct Walk {
    Graph *g;
    uint32_t n;     /* values there were; what the walk appends has larger numbers */
    bool *reached;  /* by value: depends on a wanted value through floats */
    Value *grad;    /* by value: its gradient so far; 0 = none */
    Value **result; /* by value of an if or loop: the gradients of its results, or NULL */
    bool failed;    /* a builder or rule has reported an error */
} Walk;

/* Adds to the gradients of v's operands what dy, the gradient of v, makes of them. (Of an if or
 * loop dy is 0, and its results' gradients are in Walk.result.) */
typedef void (*GradRule)(Walk *w, Value v, Value dy);

/* Whether a gradient of x is of use; a rule need not make others. */
bool grad_wants(const Walk *w, Value x);
/* dx has the type of x, whose sizes may go by other names. A dx that is not wanted is dropped. */
void grad_add(Walk *w, Value x, Value dx);

/* From the values that are marked to all that are computed from them through floats; what is no
 * float loses its mark, and so does what is held (by value; NULL: nothing is). */
void grad_reach(const Graph *g, bool *reached, const bool *held);

/* Operand i of v; by number, since nodes move as the graph grows. */
static inline Value grad_in(const Walk *w, Value v, uint32_t i) {
    return graph_node(w->g, v)->in[i];
}
/* A tensor of x's type full of c. */
Value grad_full(Graph *g, Value x, double c);
/* The last two axes change places. */
Value grad_transposed(Graph *g, Value x);

#define MAP1(op, dx)     void grad_of_##op(Walk *w, Value v, Value dy);
#define MAP2(op, da, db) void grad_of_##op(Walk *w, Value v, Value dy);
#define RULE(op)         void grad_of_##op(Walk *w, Value v, Value dy);
#define ZERO(op)
#define NONE(op)
#include "graph/grad/rules.def"
#undef MAP1
#undef MAP2
#undef RULE
#undef ZERO
#undef NONE

#endif
