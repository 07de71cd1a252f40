/* The cheapest way to part a directed graph in two: its minimum cut, found by maximum flow (E. A.
 * Dinic, 1970). */
#ifndef GRAPH_CUT_H
#define GRAPH_CUT_H

#include "runtime/base/arena.h"
#include <stdbool.h>
#include <stdint.h>

enum { CUT_SOURCE, CUT_SINK, CUT_FIRST }; /* numbers of nodes; the caller's begin at CUT_FIRST */
#define CUT_NEVER (INT64_MAX / 4)         /* what no cut is worth */

typedef struct Cut Cut;

Cut *cut_new(Arena *a, uint32_t nodes);
/* Costs `cost` where `from` is on the source's side and `to` on the sink's. */
void cut_edge(Cut *c, uint32_t from, uint32_t to, int64_t cost);
/* By node: on the sink's side of a cheapest cut, of several the one that leaves it the fewest
 * nodes. */
const bool *cut_solve(Cut *c);

#endif
