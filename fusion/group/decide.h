/* The decisions: is a value inlined, and if not, which group stores it? */
#ifndef FUSION_DECIDE_H
#define FUSION_DECIDE_H

#include "fusion/fuse.h"

/* decide.c. All demands on v are known. */
bool fuse_inlines(Fuse *f, Value v);

/* cost.c: is computing v again wherever it is demanded cheaper than storing and reading it? */
bool fuse_recompute_pays(Fuse *f, Value v, uint32_t ngroups);

/* home.c */
Group *fuse_home(Fuse *f, Value v, IdxId *idx); /* existing group that can store v, or NULL */
Group *fuse_sibling_home(Fuse *f, Value v, IdxId *idx); /* horizontally, likewise */
Group *fuse_join(Fuse *f, Value v, IdxId *idx);         /* either, as a decision */
/* v, numbers of rows read at idx, comes from reductions of the rows that are all of g's points, and
 * g has no row so far: it may compute them with its points. */
bool fuse_row_at_hand(const Fuse *f, const Group *g, Value v, IdxId idx);
bool fuse_siblings(const Fuse *f, Value a, Value b); /* contractions of one A operand */
/* term.c. v's result is added to that of g's contraction, and can be computed with it. */
bool fuse_is_term(const Fuse *f, const Group *g, Value v);
/* Where g, whose axes are those of `dot`, computes v of dot's epilogue. */
IdxId fuse_native(Fuse *f, Group *g, Value v, Value dot);
/* May g compute v? Its operands take v's place among what g reads. */
bool group_has_room(const Fuse *f, const Group *g, Value v);

#endif
