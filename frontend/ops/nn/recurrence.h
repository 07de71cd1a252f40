/* A recurrence over a known or symbolic number of steps: short ones of known length are unrolled so
 * that everything fuses, others become the core op `loop` with one step as its body. */
#ifndef FRONTEND_RECURRENCE_H
#define FRONTEND_RECURRENCE_H

#include "frontend/import/formula.h"

enum { RECURRENCE_STATES = 2, RECURRENCE_INPUTS = 8 };

typedef struct Recurrence {
    uint32_t nstates;
    Value state[RECURRENCE_STATES]; /* initial, then final */
    Value in[RECURRENCE_INPUTS];    /* what steps read besides; 0 = absent */
    Expr steps;
    bool reverse; /* from the last step to the first */
    /* Step t (an expression) in graph g, where `in` and `state` are that graph's values; replaces
     * the states and gives the step's row. */
    Value (*step)(Graph *g, const void *ctx, const Value *in, Expr t, Value *state);
    const void *ctx;
} Recurrence;

/* So few steps that they become no loop. */
bool recurrence_unrolls(const Graph *g, Expr steps);
/* The rows stacked along a new axis 0 in the order of t; 0 after an error. */
Value recurrence_run(Lower *l, Recurrence *r);

#endif
