/* Integer expressions over named symbols: dimensions, shape values, buffer indices, masks.
 *
 * One algebra serves all of them: a kernel axis is a symbol too, so "is this index contiguous along
 * that axis" and "is this dimension divisible by 64" are questions to the same simplifier.
 * Expressions are interned in a pool: equal after simplification means equal ids. Values are 64-bit
 * signed; division and remainder are floored (remainder has the divisor's sign).
 *
 * Simplification: sums are kept as a sorted linear combination of products of atoms, so
 * expr_add/mul give a canonical form; div and mod use symbol ranges ((a*n + b) / n = a when
 * 0 <= b < n). A pool belongs to one thread; clone it to read and extend it elsewhere (ids stay) */
#ifndef GRAPH_EXPR_H
#define GRAPH_EXPR_H

#include "runtime/base/strbuf.h"
#include <stdbool.h>
#include <stdint.h>

typedef uint32_t Expr; /* 0 = no expression */
typedef struct ExprPool ExprPool;

/* X(name, arity, infix or function spelling in text) */
#define EXPR_OPS(X)                                                                                \
    X(const, 0, "")                                                                                \
    X(sym, 0, "")                                                                                  \
    X(add, 2, "+")                                                                                 \
    X(mul, 2, "*")                                                                                 \
    X(div, 2, "/")                                                                                 \
    X(mod, 2, "%")                                                                                 \
    X(min, 2, "min")                                                                               \
    X(max, 2, "max")                                                                               \
    X(lt, 2, "<")                                                                                  \
    X(eq, 2, "==")                                                                                 \
    X(select, 3, "select")
typedef enum ExprOp {
#define X(name, arity, text) EX_##name,
    EXPR_OPS(X)
#undef X
        EX_COUNT
} ExprOp;

typedef enum SymKind {
    SYM_DIM,     /* a dimension of a graph input */
    SYM_ELEM,    /* one element of a small integer graph input: input `a`, flat element `b` */
    SYM_DATA,    /* written by a kernel at run time (NonZero's count ...) */
    SYM_ITER,    /* iteration number of a loop */
    SYM_AXIS,    /* a kernel axis */
    SYM_INDIRECT /* bound to a value inside a kernel body */
} SymKind;

#define SYM_OF_STATE 0x80000000u

typedef struct SymInfo {
    const char *name;
    SymKind kind;
    uint32_t a, b;  /* SYM_DIM: input, or SYM_OF_STATE + state, and axis that define it */
    int64_t lo, hi; /* inclusive range that every value lies in; checked when inputs are bound */
    int64_t hint;   /* a typical value for cost decisions; 0 = none */
    Expr below;     /* 0, or an expression that every value is less than (an axis: its extent), so
                       that (a*n + x)/n = a and (a*n + x) % n = x for symbolic n */
} SymInfo;

ExprPool *expr_pool_create(Arena *a);
ExprPool *expr_pool_clone(const ExprPool *p, Arena *a);
/* Makes a clone of `base` what it was when cloned; what was made in it since is gone. */
void expr_pool_reset(ExprPool *clone, const ExprPool *base);
/* e of another pool that has the same symbols; 0 stays 0. */
Expr expr_import(ExprPool *to, const ExprPool *from, Expr e);

/* Symbols of a graph get names of their own: info.name, or that with a number. */
Expr expr_sym_new(ExprPool *p, SymInfo info);
const char *expr_free_name(ExprPool *p, const char *name); /* the name that one would get now */
uint32_t expr_sym_count(const ExprPool *p);                /* symbols are numbered from 0 */
const SymInfo *expr_sym_info(const ExprPool *p, uint32_t s);
SymInfo *expr_sym_edit(ExprPool *p, uint32_t s); /* a range may change later: it only helps
                                                    expressions made afterwards */
Expr expr_sym_ref(ExprPool *p, uint32_t s);
bool expr_is_sym(const ExprPool *p, Expr e, uint32_t *sym);

Expr expr_const(ExprPool *p, int64_t v);
Expr expr_add(ExprPool *p, Expr a, Expr b);
Expr expr_sub(ExprPool *p, Expr a, Expr b);
Expr expr_mul(ExprPool *p, Expr a, Expr b);
Expr expr_muli(ExprPool *p, Expr a, int64_t c);
Expr expr_addi(ExprPool *p, Expr a, int64_t c);
Expr expr_div(ExprPool *p, Expr a, Expr b); /* floor; b == 0 gives 0 */
Expr expr_mod(ExprPool *p, Expr a, Expr b); /* floor; b == 0 gives 0 */
Expr expr_ceildiv(ExprPool *p, Expr a, Expr b);
Expr expr_min(ExprPool *p, Expr a, Expr b);
Expr expr_max(ExprPool *p, Expr a, Expr b);
Expr expr_lt(ExprPool *p, Expr a, Expr b); /* 0 or 1 */
Expr expr_le(ExprPool *p, Expr a, Expr b);
Expr expr_eq(ExprPool *p, Expr a, Expr b);
Expr expr_and(ExprPool *p, Expr a, Expr b); /* of 0/1 values; 0 as an Expr id means "true" */
Expr expr_not(ExprPool *p, Expr a);
Expr expr_select(ExprPool *p, Expr c, Expr a, Expr b);

ExprOp expr_op(const ExprPool *p, Expr e);
int expr_arity(ExprOp op); /* operands */
Expr expr_arg(const ExprPool *p, Expr e, int i);
int64_t expr_value(const ExprPool *p, Expr e); /* of a const */
bool expr_is_const(const ExprPool *p, Expr e, int64_t *v);
bool expr_is_value(const ExprPool *p, Expr e, int64_t v);

/* Operations and leaves of e written out, at most UINT32_MAX. Text, hashes and proofs take time by
 * this measure, which repeated squaring doubles each time: whoever makes formulas from a file keeps
 * them within EXPR_MAX_SIZE. */
enum { EXPR_MAX_SIZE = 4000 };
uint32_t expr_size(const ExprPool *p, Expr e);
/* Bounds from symbol ranges; INT64_MIN / INT64_MAX where unbounded. */
void expr_range(const ExprPool *p, Expr e, int64_t *lo, int64_t *hi);
/* Largest constant known to divide e (0 for e == 0). */
int64_t expr_divisor(const ExprPool *p, Expr e);
bool expr_uses(const ExprPool *p, Expr e, uint32_t sym);
/* Calls fn for each distinct symbol of e. */
void expr_each_sym(const ExprPool *p, Expr e, void (*fn)(void *ctx, uint32_t sym), void *ctx);
Expr expr_subst(ExprPool *p, Expr e, const uint32_t *sym, const Expr *by, uint32_t n);
/* e == coef*sym + rest with coef and rest free of sym; false if e is not affine in sym. */
bool expr_affine(ExprPool *p, Expr e, uint32_t sym, Expr *coef, Expr *rest);

/* Values of all symbols by number; arithmetic wraps like the runtime's. */
int64_t expr_eval(const ExprPool *p, Expr e, const int64_t *sym_values);
/* Value with each symbol at its hint, or, without one, at a typical size (clamped to its range). */
int64_t expr_hint(const ExprPool *p, Expr e);

void expr_print(const ExprPool *p, Expr e, StrBuf *out); /* batch*seq, (h + 1)/2, max(a, b) */
/* For messages: long formulas end early, in "...". */
const char *expr_brief(const ExprPool *p, Expr e, Arena *a);
/* Parses that text; unknown names are an error (*end stays at the offending place, result 0). */
Expr expr_parse(ExprPool *p, const char *text, const char **end);

#endif
