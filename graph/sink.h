/* Between the files of transpose_sink: pass_transpose_sink.c (maps, reductions, views) and
 * sink_reshape.c (reshapes and the rows of contractions). */
#ifndef GRAPH_SINK_H
#define GRAPH_SINK_H

#include "graph/rewrite.h"

typedef struct Perm {
    uint8_t rank;
    uint8_t axis[GRAPH_MAX_RANK]; /* outer axis i is inner axis axis[i] */
} Perm;

/* v = permute(inner): true if v is a permute in g. */
bool sink_permuted(const Graph *g, Value v, Perm *p, Value *inner);

/* reshape(permute(inner)) as a permute of a reshape; 0 where axes are merged that do not lie side
 * by side in inner. */
Value sink_reshape(Rewrite *r, Value v, const Perm *p, Value inner);
/* A contraction whose rows are merged from permuted axes, with the rows in the inner order. */
Value sink_dot(Rewrite *r, Value v);

#endif
