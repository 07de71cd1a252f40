/* Between the files of transpose_sink: pass_transpose_sink.c (maps, reductions, views),
 * sink_reshape.c (reshapes and the rows of contractions), sink_merge.c (merged axes). */
#ifndef GRAPH_SINK_H
#define GRAPH_SINK_H

#include "graph/pass/rewrite.h"

typedef struct Perm {
    uint8_t rank;
    uint8_t axis[GRAPH_MAX_RANK]; /* outer axis i is inner axis axis[i] */
} Perm;

/* v = permute(inner): true if v is a permute in g. */
bool sink_permuted(const Graph *g, Value v, Perm *p, Value *inner);
/* Axes that stay, in outer and in inner order: what is left of a permute after a reduction. */
Perm sink_remaining(const Perm *p, uint32_t outer_axes);

/* reshape(permute(inner)) as a permute of a reshape. Where axes are merged that do not lie side by
 * side in inner: as a permute of a reshape that only splits, merged last; 0 if that is what it is.
 */
Value sink_reshape(Rewrite *r, Value v, const Perm *p, Value inner);
Value sink_split(Rewrite *r, Value v, const Perm *p, Value inner); /* the second form */
/* Maps and reductions of such merged values work on the parts: a group normalisation written over
 * [groups, everything else] then runs channels last like the convolutions around it. */
Value sink_merged_map(Rewrite *r, Value v);
Value sink_merged_reduce(Rewrite *r, Value v);

/* A contraction whose rows are merged from permuted axes, with the rows in the inner order. */
Value sink_dot(Rewrite *r, Value v);

#endif
