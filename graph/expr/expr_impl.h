/* Inside the expression pool. Files: expr.c pool, interning, symbols and evaluation;
 * expr_sum.c sums of products; expr_range.c bounds and proofs; expr_div.c division and remainder;
 * expr_logic.c min, max, comparisons, select; expr_subst.c substitution; expr_text.c text.
 *
 * Normal form. A sum is a left-nested chain of adds of terms, sorted, its constant last; a term is
 * a product times a coefficient other than 1 (mul(product, const)); a product is a left-nested
 * chain of muls of sorted atoms; an atom is anything else. The order is structural (symbols by
 * number), so it does not depend on the history of the pool. */
#ifndef GRAPH_EXPR_IMPL_H
#define GRAPH_EXPR_IMPL_H

#include "graph/expr/expr.h"
#include "runtime/base/map.h"
#include "runtime/base/vec.h"

typedef struct ExprNode {
    uint8_t op, nonneg; /* nonneg: 0 unknown, 1 proved, 2 not provable; valid like the range */
    uint32_t size;      /* operations and leaves when written out, shared parts each time */
    uint32_t gen;       /* generation that lo, hi and nonneg belong to; 0 = none */
    Expr arg[3];        /* sym: arg[0] is the symbol's number */
    int64_t value;      /* const */
    uint64_t syms;      /* bit number%64 is set for every symbol inside */
    int64_t lo, hi;
    uint32_t stamp; /* see ExprCache.stamp */
    int64_t memo;
} ExprNode;

/* A symbol, with the bounds that the cached ranges were computed from. */
typedef struct ExprSym {
    SymInfo info;
    int64_t seen_lo, seen_hi;
    Expr seen_below, ref;
    bool lent; /* a pointer was handed out since the bounds were last compared */
} ExprSym;

typedef struct ExprMemo {
    uint32_t op, gen;
    Expr a, b, result;
} ExprMemo;

enum { EXPR_MEMO = 1 << 13, EXPR_MAX_TERMS = 64, EXPR_MAX_ATOMS = 12 };

/* What queries remember. It is reached through a pointer: a query may write it and leaves the pool
 * as it is. */
typedef struct ExprCache {
    uint32_t gen;        /* changes when a symbol's bounds do */
    uint32_t stamp;      /* one walk over the pool: nodes with this stamp carry its memo */
    VEC(uint32_t) lent;  /* symbols whose bounds may have changed since they were last compared */
    VEC(uint32_t) found; /* a stack: symbols that walks in hand (expr_each_sym) have collected */
} ExprCache;

/* Nodes lie in pages and stay where they are, so that a pool that grows leaves nothing behind. */
enum { EXPR_PAGE = 1 << 9 };

struct ExprPool {
    Arena *arena;
    VEC(ExprNode *) page;
    uint32_t nodes;       /* node 0 is unused: 0 is "no expression" */
    uint32_t *slot, mask; /* open-addressing table of node numbers, 0 = free */
    VEC(ExprSym *) sym;
    MapStr *newest;    /* name -> newest of the first `named` symbols; NULL = none is entered yet */
    MapStr *next_name; /* name that was taken -> number of the next one to try */
    uint32_t named;
    ExprCache *cache;
    ExprMemo *memo; /* direct-mapped cache of simplified binary operations */
};

/* One product with its coefficient; prod 0 is the constant term. */
typedef struct ExprTerm {
    Expr prod;
    int64_t coef;
} ExprTerm;

/* Sorted, coefficients not 0, at most one constant and that one last. */
typedef struct ExprSum {
    uint32_t n;
    ExprTerm t[EXPR_MAX_TERMS];
} ExprSum;

uint32_t expr_new_stamp(const ExprPool *p); /* starts a walk that visits shared nodes once */
/* The newest symbol of a name; NULL if there is none. */
const ExprSym *expr_find_sym(ExprPool *p, const char *name);
Expr expr_intern(ExprPool *p, ExprOp op, Expr a, Expr b, Expr c);
Expr expr_rebuild(ExprPool *p, ExprOp op, Expr a, Expr b, Expr c);
void expr_refresh(const ExprPool *p); /* notices symbols whose bounds were changed */
bool expr_memo_get(ExprPool *p, ExprOp op, Expr a, Expr b, Expr *out);
Expr expr_memo_put(ExprPool *p, ExprOp op, Expr a, Expr b, Expr result);
int expr_compare(const ExprPool *p, Expr a, Expr b);

/* False when e has too many terms to be taken apart. */
bool expr_terms(const ExprPool *p, Expr e, ExprSum *out);
Expr expr_from_terms(ExprPool *p, const ExprSum *s);
/* Atoms of a product, sorted; 0 when there are too many. */
uint32_t expr_atoms(const ExprPool *p, Expr prod, Expr out[EXPR_MAX_ATOMS]);
Expr expr_term(ExprPool *p, ExprTerm t);
/* out * d == t exactly, both as monomials. */
bool expr_term_div(ExprPool *p, ExprTerm t, ExprTerm d, ExprTerm *out);
ExprTerm expr_term_gcd(ExprPool *p, ExprTerm a, ExprTerm b);

/* True only if e >= 0 (a < b) whenever every symbol lies within its bounds. */
bool expr_nonneg(ExprPool *p, Expr e);
bool expr_less(ExprPool *p, Expr a, Expr b);
bool expr_positive(ExprPool *p, Expr e);

static inline ExprNode *expr_at(const ExprPool *p, Expr e) {
    return &p->page.v[e / EXPR_PAGE][e % EXPR_PAGE];
}
static inline const ExprNode *expr_node(const ExprPool *p, Expr e) {
    return expr_at(p, e);
}
static inline int64_t expr_wrap_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t expr_wrap_mul(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
int64_t expr_floor_div(int64_t a, int64_t b);
int64_t expr_floor_mod(int64_t a, int64_t b);
int64_t expr_gcd(int64_t a, int64_t b);

#endif
