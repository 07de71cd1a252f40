/* What backward needs of forward is kept, or computed again from what is kept.
 *
 * Forward is what the entries that give the loss need, backward all else. A value of forward that
 * backward needs costs, kept, its bytes, which are written, read and in the way meanwhile; or,
 * computed again, its arithmetic, and what it is computed from has to be there. The cheapest choice
 * for all of them is a minimum cut: each value is an edge from "to be had when it is computed" to
 * "to be had in backward". Views are read through what they view. Scores of an attention are never
 * kept, since kernels compute them inside.
 *
 * What is computed again stands in front of the first of backward that reads it. All of backward is
 * marked (Node.late), so that no kernel of forward takes any of it over.
 *
 * Needs: the last graph, since what is equal is shared no more. Keeps: every value, to the bit;
 * sums over them may be taken in another order, as kernels are others. Leaves dead nodes for dce */
#ifndef GRAPH_RECOMPUTE_H
#define GRAPH_RECOMPUTE_H

#include "graph/build/build.h"

typedef struct Recompute {
    uint32_t forward; /* entries that give the loss alone, a set: what they need is forward */
    double bytes_per_s, flops_per_s,
        matrix_flops_per_s; /* the last of 16-bit operands; 0: as others */
    double moves;           /* a kept byte costs as much time as to move so many */
    double layers; /* part of forward's layers, from the first on, whose contractions are computed
                      again, too, where that is the cheaper, and whose ends are kept, so that
                      backward needs a layer at a time; 0: none, 1: all */
} Recompute;

Graph *recompute(Graph *g, const Recompute *how);

#endif
