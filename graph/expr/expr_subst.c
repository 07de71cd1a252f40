/* Expressions made again from other parts: substitution, and from one pool to another. */
#include "graph/expr/expr_impl.h"
#include "runtime/base/status.h"
#include <string.h>

/* A comparison or a product of them: what expr_and makes. */
static bool is_truth(const ExprPool *p, Expr e) {
    for (; expr_op(p, e) == EX_mul; e = expr_arg(p, e, 0)) {
        ExprOp last = expr_op(p, expr_arg(p, e, 1));
        if (last != EX_lt && last != EX_eq) return false;
    }
    return expr_op(p, e) == EX_lt || expr_op(p, e) == EX_eq;
}

Expr expr_rebuild(ExprPool *p, ExprOp op, Expr a, Expr b, Expr c) {
    switch (op) {
    case EX_add: return expr_add(p, a, b);
    case EX_mul: return is_truth(p, a) && is_truth(p, b) ? expr_and(p, a, b) : expr_mul(p, a, b);
    case EX_div: return expr_div(p, a, b);
    case EX_mod: return expr_mod(p, a, b);
    case EX_min: return expr_min(p, a, b);
    case EX_max: return expr_max(p, a, b);
    case EX_lt: return expr_lt(p, a, b);
    case EX_eq: return expr_eq(p, a, b);
    case EX_select: return expr_select(p, a, b, c);
    default: gc_assert_failed("an operation with operands", __FILE__, __LINE__);
    }
}

typedef struct Subst {
    const uint32_t *sym;
    const Expr *by;
    uint32_t n, stamp;
    uint64_t mask;
} Subst;

static Expr subst_sym(const ExprPool *p, const Subst *s, Expr e) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->sym[i] == expr_node(p, e)->arg[0]) return s->by[i];
    return e;
}

static Expr subst(ExprPool *p, const Subst *s, Expr e) {
    ExprNode *n = expr_at(p, e);
    if (!(n->syms & s->mask)) return e;
    if (n->op == EX_sym) return subst_sym(p, s, e);
    if (n->stamp == s->stamp) return (Expr)n->memo;
    ExprOp op = (ExprOp)n->op;
    Expr a[3] = {n->arg[0], n->arg[1], n->arg[2]}, b[3] = {0, 0, 0};
    for (int i = 0; i < expr_arity(op); i++) b[i] = subst(p, s, a[i]);
    Expr r = memcmp(a, b, sizeof a) ? expr_rebuild(p, op, b[0], b[1], b[2]) : e;
    n->stamp = s->stamp;
    n->memo = r;
    return r;
}

Expr expr_subst(ExprPool *p, Expr e, const uint32_t *sym, const Expr *by, uint32_t n) {
    Subst s = {.sym = sym, .by = by, .n = n, .stamp = expr_new_stamp(p)};
    for (uint32_t i = 0; i < n; i++) s.mask |= UINT64_C(1) << (sym[i] % 64);
    return e ? subst(p, &s, e) : 0;
}

/* Another pool. */

Expr expr_import(ExprPool *to, const ExprPool *from, Expr e) {
    static Expr (*const make[EX_COUNT])(ExprPool *, Expr, Expr) = {
        [EX_add] = expr_add, [EX_mul] = expr_mul, [EX_div] = expr_div, [EX_mod] = expr_mod,
        [EX_min] = expr_min, [EX_max] = expr_max, [EX_lt] = expr_lt,   [EX_eq] = expr_eq};
    uint32_t sym;
    if (!e) return 0;
    ExprOp op = expr_op(from, e);
    if (op == EX_const) return expr_const(to, expr_value(from, e));
    if (expr_is_sym(from, e, &sym)) return expr_sym_ref(to, sym);
    Expr a = expr_import(to, from, expr_arg(from, e, 0));
    Expr b = expr_import(to, from, expr_arg(from, e, 1));
    if (op == EX_select) return expr_select(to, a, b, expr_import(to, from, expr_arg(from, e, 2)));
    return make[op](to, a, b);
}
