/* What the builder's files share. Nothing outside graph/build*.c, fold*.c includes this.
 *
 * Every builder checks its operands, applies the identities that need no look at element values
 * (fold_*.c for maps, in place for views) and ends in build_node, which folds constants and tracked
 * elements, shares an equal node or appends. */
#ifndef GRAPH_BUILD_IMPL_H
#define GRAPH_BUILD_IMPL_H

#include "graph/build/build.h"
#include "runtime/base/map.h"

#define BUILD_MAX_TRACKED 1024 /* elements that element tracking follows */
#define BUILD_MAX_SYMBOLS 64   /* elements that become symbols, or an OP_exprs node */
#define BUILD_MAX_FOLDED  4096 /* elements of a folded constant */
#define BUILD_MAX_STARTS                                                                           \
    (1 << 20) /* parts of all formulas of where operands begin: of n operands of                   \
                 n open sizes n^2, all of which kernels are made of */

typedef struct ElemTrack {
    const Expr *v;
    uint32_t n;
    bool asked, wanted; /* looked at without, with symbols for input elements */
    bool large;         /* not known, because a formula would exceed EXPR_MAX_SIZE */
} ElemTrack;

/* An `if` whose condition is known keeps its tuple node only as a handle: these are its results. */
typedef struct InlinedIf {
    Value tuple;
    const Value *results;
} InlinedIf;

typedef struct BuildState {
    Loc loc;
    bool late;            /* of nodes to come */
    uint32_t entries;     /* of outputs and writes to come */
    MapU64 *parts;        /* place and LocPart -> place */
    MapU64 *places;       /* hash of a place of one node -> the place */
    MapU64 *cse;          /* hash of a node -> its number; collisions go to the next key */
    VEC(ElemTrack) elems; /* by value; may be shorter than the node array */
    VEC(InlinedIf) inlined;
    MapU64 *equal;   /* other -> keep: assumed so; `other` is no constant */
    MapU64 *assumed; /* both sides -> index of the first `nassumed` of Graph.assume, some of
                        which may have been taken back since */
    uint32_t nassumed;
    uint64_t starts; /* parts of the formulas of where operands of concatenations begin */
} BuildState;

BuildState *builder_of(Graph *g);

/* Reports at the current location; returns 0. */
Value build_error(Graph *g, DiagId id, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* True if no operand is 0 (an error reported before). */
bool build_valid(const Value *in, uint32_t n);
const char *build_type_text(Graph *g, const Type *t);
/* Operand 0's class is one of the op's domain, else an error. */
bool build_check_domain(Graph *g, Op op, DType t);
/* Axis in [-rank, rank) made non-negative; -1 after an error. */
int build_axis(Graph *g, int axis, int rank, const char *what);

/* Folds, shares or appends. attr may be NULL: all zero. */
Value build_node(Graph *g, Op op, const Value *in, uint32_t nin, const Attr *attr, const Type *t);
/* Shares or appends, without folding. */
Value build_append(Graph *g, Op op, const Value *in, uint32_t nin, const Attr *attr, const Type *t);
Value build_find_compact(const Graph *g, Value mask);
/* A new symbol that a node computes at run time. */
Expr build_data_symbol(Graph *g, const char *what, Expr bound);

Type build_type(DType t, uint8_t rank, const Expr *dim);
bool build_static_dims(const Graph *g, const Type *t, int64_t *dim);
/* Element count if static and at most `limit`, else -1. */
int64_t build_count(const Graph *g, const Type *t, int64_t limit);

/* Two dimensions that must be equal: the one to use, after recording an assumption where that
 * cannot be proved; 0 if they cannot be equal. */
Expr build_unify_dim(Graph *g, Expr a, Expr b);
Expr build_dim_root(Graph *g, Expr e); /* the size that stands for e */
/* A condition (0 or 1) that the model's own sizes must satisfy: checked with the assumptions when
 * inputs are bound. False if it cannot hold. */
bool build_require(Graph *g, Expr cond);
/* Broadcasting a computed size, which a run may find to be 1, to a constant one. A bare dimension
 * of an input is assumed to be the constant instead: its name says that it is a size, and the user
 * is told. */
bool build_maybe_one(Graph *g, Expr dim, Expr to);
/* x under a shape whose dimensions are the same or assumed equal, axis by axis. */
Value build_retype(Graph *g, Value x, const Expr *dim);
/* Rows of x[0] by columns of x[1]: batch axes and inner sizes become one; *out: the product's type.
 */
bool build_unify_product(Graph *g, Value x[2], DType to, const char *what, Type *out);
/* Makes the axes of all values that `axes` selects agree (they have one rank). */
bool build_unify_axes(Graph *g, Value *in, uint32_t n, uint32_t axes, const char *what);

/* fold_map.c: the value that an element-wise op with these operands is equal to; 0 if none. */
Value fold_map(Graph *g, Op op, const Value *in, uint32_t n, const Attr *attr);
/* fold_const.c: the value that all elements share, if constant. */
bool fold_splat(const Graph *g, Value v, double *f, int64_t *i);
/* fold_elems.c: elements of a node that need not be in the graph; NULL if not known. */
const Expr *fold_elems(Graph *g, const Node *n, bool want_symbols, uint32_t depth);

#endif
