/* Which integers an input may hold: where each of its elements is a position along an axis (an id
 * of an embedding's rows), that axis bounds it. */
#ifndef GRAPH_GRAD_POSITIONS_H
#define GRAPH_GRAD_POSITIONS_H

#include "graph/ir/ir.h"

typedef struct Positions {
    int64_t lo, hi;
} Positions;

/* of[i]: of input i of the graph; lo > hi: nothing bounds it. Negative positions count from the
 * axis's end. From the graph's arena. */
const Positions *positions_of_inputs(const Graph *g);

#endif
