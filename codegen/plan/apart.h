/* What became of the model's nodes that no kernel computes, for explain. */
#ifndef CODEGEN_PLAN_APART_H
#define CODEGEN_PLAN_APART_H

#include "fusion/schedule/schedule.h"

/* A line for each node of the graph as it was imported that no kernel of s covers: its place, a
 * colon and why. */
void apart_nodes(const Graph *imported, const Schedule *s, Arena *a, StrBuf *out);

#endif
