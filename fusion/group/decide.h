/* The decisions: is a value inlined, and if not, which group stores it? */
#ifndef FUSION_DECIDE_H
#define FUSION_DECIDE_H

#include "fusion/fuse.h"

/* What only asks takes const; what decides then acts.
 *
 * decide.c. All demands on v are known: is it inlined? *why: it is not, if that is known. */
bool fuse_try_inline(const Fuse *f, Value v, FusionWhy *why);

/* cost.c: is computing v again wherever it is demanded cheaper than storing and reading it? */
bool fuse_recompute_pays(const Fuse *f, Value v, uint32_t ngroups);

/* home.c. A group that can store v, which it computes at idx; 0: where fuse_native says. */
typedef struct Home {
    Group *g; /* NULL: there is none */
    IdxId idx;
} Home;
Home fuse_try_home(const Fuse *f, Value v);     /* that demands it, or v is its epilogue */
Group *fuse_join(Fuse *f, Value v, IdxId *idx); /* that, or one of siblings, as a decision */
/* v, numbers of rows read at idx, comes from reductions of the rows that are all of g's points, and
 * g has no row so far: it may compute them with its points. */
bool fuse_row_at_hand(const Fuse *f, const Group *g, Value v, IdxId idx);

/* out[0..n) and what they are computed from through maps, views and reductions: so many of the last
 * values before them, of what a group computes. */
enum { FUSE_MAX_LOOK = 64 };
uint32_t fuse_look_under(const Fuse *f, Value *out, uint32_t n);

/* few.c. Rows so long and so few, or in such short pieces, that a kernel has to cut them: reduction
 * v of such rows, read at idx, is not computed where their points are, nor where another fold waits
 * for it. */
bool fuse_folds_apart(const Fuse *f, const Group *g, Value v, IdxId idx);
bool fuse_is_statistic(const Fuse *f, Value v); /* of such rows, for other kernels' points alone */
/* g folds such rows: it does not store v, of their points, which is at idx. */
bool fuse_few_rows(const Fuse *f, const Group *g, Value v, IdxId idx);
bool fuse_siblings(const Fuse *f, Value a, Value b); /* contractions of one A operand */
/* layout.c. What v is a permute of has no rows for matrix units: its last dimension tells which
 * product an element is of. */
bool fuse_turns_products(const Fuse *f, Value v);
/* term.c. v's result is added to that of g's contraction, and can be computed with it. */
bool fuse_is_term(const Fuse *f, const Group *g, Value v);
/* Where g, whose axes are those of `dot`, computes v of dot's epilogue. */
Idx fuse_try_native(const Fuse *f, const Group *g, Value v, Value dot);
IdxId fuse_native(Fuse *f, Group *g, Value v, Value dot);
/* May g compute v? Its operands take v's place among what g reads. */
bool group_has_room(const Fuse *f, const Group *g, Value v);

#endif
