/* Finds a causal mask in the scores of attention, so that keys after the query need not be looked
 * at.
 *
 * Recognised: a score that depends on the product by constants only, and is either replaced by, or
 * added to, a constant so low that the exponential is 0 wherever j > i + shift, perhaps among other
 * conditions. A finite constant counts only if every query sees some key: otherwise it cancels out.
 * Around it there may be documents: -inf unless query and key are of one */
#include "fusion/body/body.h"
#include <math.h>

typedef struct Causal {
    const Kernel *k;
    ExprPool *p;
    KVal product;          /* that the scores are made of */
    uint32_t sym_i, sym_j; /* of queries, of keys */
} Causal;

static const KOp *op_at(const Causal *t, KVal v) {
    return &t->k->ops[v];
}

/* s times and plus constants. */
static bool is_plain(const Causal *t, KVal v) {
    if (v == t->product) return true;
    const KOp *o = op_at(t, v);
    if (o->op != OP_mul && o->op != OP_div && o->op != OP_add) return false;
    bool a = op_at(t, o->in[0])->op == K_konst, b = op_at(t, o->in[1])->op == K_konst;
    return (b && is_plain(t, o->in[0])) || (a && o->op != OP_div && is_plain(t, o->in[1]));
}

static bool is_low(const Causal *t, KVal v) {
    const KOp *o = op_at(t, v);
    return o->op == K_konst && o->imm.f < -1e30;
}

static bool is_zero(const Causal *t, KVal v) {
    const KOp *o = op_at(t, v);
    return o->op == K_konst && o->imm.f == 0;
}

/* The condition j <= i + shift (or its opposite, if !keeps) as shift; 0 if it is not one. */
static Expr compared(const Causal *t, const KOp *o, bool keeps) {
    ExprPool *p = t->p;
    const KOp *a = op_at(t, o->in[0]), *b = op_at(t, o->in[1]);
    if (a->op != K_kexpr || b->op != K_kexpr) return 0;
    /* a <= b keeps; or it drops, and b < a, that is b <= a - 1, keeps. */
    Expr room = keeps ? expr_sub(p, b->index, a->index) : expr_sub(p, a->index, b->index);
    if ((o->op == OP_lt) == keeps) room = expr_addi(p, room, -1);
    Expr ci, cj, rest;
    if (!expr_affine(p, room, t->sym_i, &ci, &rest) || !expr_is_value(p, ci, 1)) return 0;
    if (!expr_affine(p, rest, t->sym_j, &cj, &rest) || !expr_is_value(p, cj, -1)) return 0;
    for (uint32_t i = 0; i < t->k->naxes; i++)
        if (expr_uses(p, rest, t->k->axes[i].sym)) return 0;
    return rest;
}

/* The same among conditions that must all hold, or that drop one by one. */
static Expr shift_of(const Causal *t, KVal cond, bool keeps) {
    const KOp *o = op_at(t, cond);
    if (o->op == OP_le || o->op == OP_lt) return compared(t, o, keeps);
    if (o->op == OP_not) return shift_of(t, o->in[0], !keeps);
    if (o->op != (keeps ? OP_and : OP_or) || o->dtype != DT_bool) return 0;
    Expr shift = shift_of(t, o->in[0], keeps);
    return shift ? shift : shift_of(t, o->in[1], keeps);
}

/* select(cond, kept, low) or select(cond, low, kept). */
static Expr masked_by(const Causal *t, KVal v, bool (*kept)(const Causal *t, KVal v),
                      bool *infinite) {
    const KOp *o = op_at(t, v);
    if (o->op != OP_select) return 0;
    for (int i = 1; i <= 2; i++) {
        KVal low = o->in[3 - i];
        if (!is_low(t, low) || !kept(t, o->in[i])) continue;
        *infinite = isinf(op_at(t, low)->imm.f);
        return shift_of(t, o->in[0], i == 1);
    }
    return 0;
}

/* Elements of one array are compared, and of i = j the same: a query sees its own key. */
static bool sees_itself(const Causal *t, KVal cond) {
    const KOp *o = op_at(t, cond);
    if (o->op != OP_eq) return false;
    const KOp *a = op_at(t, o->in[0]), *b = op_at(t, o->in[1]);
    if (a->op != K_kload || b->op != K_kload || a->buf != b->buf || a->mask || b->mask)
        return false;
    const uint32_t syms[2] = {t->sym_i, t->sym_j};
    const Expr one = expr_sym_ref(t->p, t->sym_j), both[2] = {one, one};
    return expr_subst(t->p, a->index, syms, both, 2) == expr_subst(t->p, b->index, syms, both, 2);
}

/* The score of those of one document. */
static KVal of_document(const Causal *t, KVal score) {
    const KOp *o = op_at(t, score);
    if (o->op != OP_select || !sees_itself(t, o->in[0]) || !is_low(t, o->in[2])) return score;
    return isinf(op_at(t, o->in[2])->imm.f) ? o->in[1] : score;
}

static Expr shift_of_score(const Causal *t, KVal score) {
    bool infinite = false;
    score = of_document(t, score);
    const KOp *o = op_at(t, score);
    Expr shift = masked_by(t, score, is_plain, &infinite);
    for (int i = 0; o->op == OP_add && !shift && i < 2; i++)
        if (is_plain(t, o->in[1 - i])) shift = masked_by(t, o->in[i], is_zero, &infinite);
    if (!shift) return 0;
    int64_t lo, hi;
    expr_range(t->p, shift, &lo, &hi);
    return infinite || lo >= 0 ? shift : 0;
}

static uint32_t sym_of(const Kernel *k, uint32_t axis) {
    return k->axes[__builtin_ctz(axis)].sym;
}

Expr body_find_causal(const Kernel *k, ExprPool *p) {
    const KAttn *a = &k->attn;
    if (!a->i || !a->j) return 0;
    Causal t = {k, p, a->s, sym_of(k, a->i), sym_of(k, a->j)};
    return shift_of_score(&t, a->score);
}

/* The probability exp(score - lse) that v is a product with: where that is 0, v is. */
static KVal factor(const Causal *t, KVal v) {
    const KOp *o = op_at(t, v);
    switch (o->op) {
    case OP_exp: return op_at(t, o->in[0])->op == OP_sub ? v : 0;
    case OP_neg:
    case OP_cast:
    case OP_div: return factor(t, o->in[0]);
    case OP_mul: return factor(t, o->in[0]) ? factor(t, o->in[0]) : factor(t, o->in[1]);
    case OP_select:
        if (is_zero(t, o->in[1])) return factor(t, o->in[2]);
        return is_zero(t, o->in[2]) ? factor(t, o->in[1]) : 0;
    default: return 0;
    }
}

/* The queries may be the rows of the result or what is folded. */
void body_find_unseen(Kernel *k, ExprPool *p) {
    KAttnGrad *a = &k->grad;
    if (!a->i || !a->j) return;
    Causal t = {k, p, a->s[0], sym_of(k, a->i), sym_of(k, a->j)};
    KVal v = factor(&t, a->p);
    if (!v) return;
    KVal score = op_at(&t, op_at(&t, v)->in[0])->in[0];
    a->ahead = shift_of_score(&t, score);
    if (a->ahead) return;
    t.sym_i = sym_of(k, a->j);
    t.sym_j = sym_of(k, a->i);
    a->behind = shift_of_score(&t, score);
}
