/* Where values are read: index expressions over a group's axes, and how they move through views,
 * gathers, reductions and contractions.
 *
 * Takes a group, a value and the index at which the value is read; gives the indices at which its
 * operands are read then. Interns indices and may split or add axes of the group; knows nothing of
 * what is inlined or stored, so the walk that decides (group/) and the one that makes bodies
 * (body/) get the same answers. */
#ifndef FUSION_INDEX_H
#define FUSION_INDEX_H

#include "fusion/schedule/schedule.h"

typedef struct Fuse Fuse;
typedef struct Group Group;
typedef struct Scratch Scratch;

/* One expression per dimension, and the row-major position they stand for. Interned per group;
 * `type` gives the extents. */
typedef struct Idx {
    uint8_t rank;
    Expr flat;
    Expr dim[GRAPH_MAX_RANK], extent[GRAPH_MAX_RANK];
} Idx;
typedef uint32_t IdxId; /* 1-based */

/* These remember indices by number; look-ups compare them as they are now, after axes were split */
typedef struct RowAt {
    Value v;
    IdxId idx, at; /* read at idx, reduction v walks its folded dimensions at `at` */
} RowAt;

typedef struct SymAt {
    Value v;
    uint32_t operand, salt;
    IdxId idx;
    uint32_t sym;
} SymAt;

/* axis.c */
Expr axis_new(Fuse *f, Group *g, Expr extent, KAxisKind kind); /* its symbol; 0 for extent 1 */
uint32_t axis_bit(const Group *g, uint32_t sym);
uint32_t group_axes(const Group *g, KAxisKind kind);
Expr group_extent(const Fuse *f, const Group *g, uint32_t axes);
/* Its kernel is a contraction of few rows (fuse_streams). */
bool group_streams(const Fuse *f, const Group *g);

/* position.c */
const Idx *idx_get(const Group *g, IdxId id);
/* Splitting an axis may make two indices equal: the first of them. */
IdxId idx_canon(const Group *g, IdxId id);
IdxId idx_make(Fuse *f, Group *g, const Type *t, const Expr *dim, Expr flat);
void idx_subst(Fuse *f, Group *g, uint32_t sym, Expr by); /* in every index of the group */
IdxId idx_axes(Fuse *f, Group *g, const Type *t); /* fresh parallel axes, one per dimension */
IdxId idx_reshape(Fuse *f, Group *g, IdxId idx, const Type *to);
IdxId idx_intern(Fuse *f, Group *g, const Idx *x);
bool idx_is(const Group *g, const Idx *x, IdxId id); /* x is what this one is */
/* Through a bijective view, from its operand to v: where v's element is when that is at x. */
Idx idx_result(const Fuse *f, Value v, Idx x);
/* The group's axes and position idx alone, to be followed without a trace in the group. */
void idx_scratch(const Fuse *f, const Group *g, IdxId idx, Scratch *s);
/* Flat position of dims in a box. */
Expr idx_join(ExprPool *p, uint32_t n, const Expr *dim, const Expr *extent);
bool expr_exact_div(ExprPool *p, Expr a, Expr b, Expr *q);
Expr expr_in_range(ExprPool *p, Expr i, Expr n); /* 0 <= i < n */
Expr expr_mask_and(ExprPool *p, Expr a, Expr b); /* 0 = always */

/* query.c: what an index depends on. Changes nothing. */
uint32_t expr_axes_used(const Fuse *f, const Group *g, Expr e);
uint32_t idx_axes_used(const Fuse *f, const Group *g, IdxId id);
/* idx runs over each combination of `axes` exactly once. */
bool idx_covers(const Fuse *f, const Group *g, IdxId id, uint32_t axes);
/* div or mod of an axis */
bool expr_awkward(const Fuse *f, const Group *g, Expr e, uint32_t axes);
bool idx_awkward(const Fuse *f, const Group *g, IdxId id, uint32_t axes);

/* split.c */
IdxId idx_split_axes(Fuse *f, Group *g, IdxId idx); /* until idx has no avoidable div or mod */
/* view.c. Index of operand i of view (or map) v when v is read at idx. *mask (0 = always): where
 * the operand is read at all. Splits axes so that the result is affine where possible. */
IdxId idx_operand(Fuse *f, Group *g, Value v, uint32_t i, IdxId idx, Expr *mask);
/* Would the operand of reshape v, read at idx, be affine in what the group's template walks?
 * Changes nothing. */
bool idx_try_walk(const Fuse *f, const Group *g, Value v, IdxId idx);
/* What lies behind views and casts of v has dimensions of its own for what the group's contraction
 * walks and for what it does not, none of which is walked in windows: as a matrix it may be
 * fetched. Changes nothing. */
bool idx_try_fetch(const Fuse *f, const Group *g, Value v, IdxId idx);
/* No dimension of what lies behind views and casts of v is read in steps that are no sum over axes,
 * as a resized image or folded patches are, and channels are not shuffled: as a convolution's
 * windows it may be fetched. Changes nothing. */
bool idx_try_window(const Fuse *f, const Group *g, Value v, IdxId idx);
/* The last dimension of what lies behind views and casts of v, the right operand of the group's
 * convolution, is walked by its taps: neither channels nor columns are rows there. Changes nothing.
 */
bool idx_try_taps_last(const Fuse *f, const Group *g, Value v, IdxId idx);
/* What lies behind views and casts of v has, along axis `sym` (its symbol), rows of neighbours that
 * begin at multiples of `unit` elements: in its last dimension, whose other summands are multiples;
 * of a leaf that dimension is one, too. Changes nothing. */
bool idx_try_rows(const Fuse *f, const Group *g, Value v, IdxId idx, uint32_t sym, uint32_t unit);
/* An axis moves through two dimensions of what lies behind views and casts of v, with one between
 * them that others walk: in this order of dimensions that is no matrix. Changes nothing. */
bool idx_try_apart(const Fuse *f, const Group *g, Value v, IdxId idx);

/* gather.c. Of the data operand of a gather. Its symbols differ by `salt`: pulls under different
 * masks bind different values. */
IdxId idx_gather(Fuse *f, Group *g, Value v, IdxId idx, uint32_t salt);
uint32_t idx_gather_sym(Fuse *f, Group *g, Value v, uint32_t operand, IdxId idx, uint32_t salt);
/* Where there is something to gather from: an axis may be empty, though then nothing is asked of
 * the gather unless it stands in a branch that is not taken. 0 = always. */
Expr idx_gather_mask(const Fuse *f, Value v);
bool idx_known(const Fuse *f, Value v, Expr extent, Expr *at); /* constant index operand */

/* row.c. Can the group fold reduce v, read at idx, along a row? *why: it cannot. Changes nothing */
bool idx_try_reduce(const Fuse *f, const Group *g, Value v, IdxId idx, FusionWhy *why);
/* Index of the input of v then; the group's row axes run over the folded dimensions (they are made
 * when it has none). Needs idx_try_reduce. */
IdxId idx_reduce(Fuse *f, Group *g, Value v, IdxId idx);
IdxId idx_row(const Group *g, Value v, IdxId idx); /* of RowAt, 0 = none */
/* May the axes that idx does not use become the row of reduction v? */
bool idx_row_fits(const Fuse *f, const Group *g, Value v, IdxId idx);

/* contract.c. Operands of a contraction whose result is read at idx: makes its reduced axes. */
typedef struct DotIdx {
    IdxId a, b;
    Expr a_mask;
} DotIdx;
IdxId idx_dot_axes(Fuse *f, Group *g, Value dot); /* parallel axes for a contraction's result */
DotIdx idx_dot(Fuse *f, Group *g, Value dot, IdxId idx);
/* The attention or gradient in g whose result is o, or NULL. */
struct AttnMatch *group_attention(const Group *g, Value o);
uint32_t idx_dot_folds(const Fuse *f, const Group *g, Value dot); /* those axes; after idx_dot */

#endif
