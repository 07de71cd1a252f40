/* Facts about the graph that decisions rest on. Takes an optimised graph; gives a Fact of each
 * value. Knows nothing of groups. */
#ifndef FUSION_FACTS_H
#define FUSION_FACTS_H

#include "fusion/fuse.h"

void fuse_analyse(Fuse *f);

bool op_is_reduce(Op op);
bool fuse_is_fold(const Fuse *f, Value v); /* reduction, dot or conv: a fold of the kernel */
bool fuse_is_dot(const Fuse *f, Value v);  /* dot, attention or conv, depthwise included */
bool fuse_is_depthwise(const Fuse *f, Value conv);
bool fuse_is_const_leaf(const Fuse *f, Value v); /* a constant through views only */
/* Of the group that stores v, when nothing is fused: a map's or one with a structure of its own. */
GroupKind fuse_kind(const Fuse *f, Value v);
bool special_is(const Fuse *f, Value v); /* ... the latter */

bool fuse_fetches_f32(const Fuse *f, Value conv); /* a convolution that matrix units may take */
bool fuse_packs(const Fuse *f, Value dot);        /* its B operand is read in packed form ... */
bool fuse_is_wino(const Fuse *f, Value dot);      /* ... in Winograd's */
bool fuse_is_bytes(const Fuse *f, DType t);   /* what matrix units multiply as it is, of 8 bits */
bool fuse_is_fetched(const Fuse *f, DType t); /* ... or of 16 */
bool fuse_is_quads(const Fuse *f, Value dot); /* ... in fours of rows: u8 by i8 */
/* Whether v stands between dot and the integers and scales of blocks that its A operand is. */
bool fuse_makes_blocks(const Fuse *f, Value v, Value dot);
/* Its rows are so few that reading B once, column by column, is all the time there is. */
bool fuse_streams(const Fuse *f, Value dot);

/* limit.c. One more decision, about v: may it be made? Asked last, when nothing else stands against
 * it; once the answer is no, it stays no. `what` ends a sentence: "%v is ...". */
bool fuse_may(Fuse *f, Value v, const char *what);

/* Of sizes as they are expected. */
double fuse_hint(const Fuse *f, Expr e);
double fuse_numel(const Fuse *f, Value v); /* at least 1 */
double fuse_bytes(const Fuse *f, Value v);

/* v will surely be in memory: what is made of it counts its bytes, not its arithmetic. While facts
 * are gathered, of operands only. */
bool fuse_is_boundary(const Fuse *f, Value v);

/* After fuse_analyse. */
Value fuse_user(const Fuse *f, Value v, uint32_t i);
bool fuse_depends(const Fuse *f, Value v, Value dot);

#endif
