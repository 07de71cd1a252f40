/* Finds a causal mask in the score's body, so that keys after the query need not be looked at.
 *
 * Recognised: a score that depends on the product by constants only, and is either replaced by, or
 * added to, a constant so low that the exponential is 0 wherever j > i + shift. A finite constant
 * counts only if every query sees some key: otherwise it cancels out. */
#include "codegen/cpu/attention.h"
#include <math.h>

static const KOp *op_at(const Attn *t, KVal v) {
    return &t->k->ops[v];
}

/* s times and plus constants. */
static bool is_plain(const Attn *t, KVal v) {
    if (v == t->t->s) return true;
    const KOp *o = op_at(t, v);
    if (o->op != OP_mul && o->op != OP_div && o->op != OP_add) return false;
    bool a = op_at(t, o->in[0])->op == K_konst, b = op_at(t, o->in[1])->op == K_konst;
    return (b && is_plain(t, o->in[0])) || (a && o->op != OP_div && is_plain(t, o->in[1]));
}

static bool is_low(const Attn *t, KVal v) {
    const KOp *o = op_at(t, v);
    return o->op == K_konst && o->imm.f < -1e30;
}

static bool is_zero(const Attn *t, KVal v) {
    const KOp *o = op_at(t, v);
    return o->op == K_konst && o->imm.f == 0;
}

/* The condition j <= i + shift (or its opposite, if !keeps) as shift; 0 if it is not one. */
static Expr shift_of(Attn *t, KVal cond, bool keeps) {
    ExprPool *p = t->p;
    const KOp *o = op_at(t, cond);
    if (o->op != OP_le && o->op != OP_lt) return 0;
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

/* select(cond, kept, low) or select(cond, low, kept). */
static Expr masked_by(Attn *t, KVal v, bool (*kept)(const Attn *t, KVal v), bool *infinite) {
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

void attn_find_causal(Attn *t) {
    if (t->t->causal) {
        t->shift = t->t->causal;
        return;
    }
    bool infinite = false;
    const KOp *o = op_at(t, t->t->score);
    Expr shift = masked_by(t, t->t->score, is_plain, &infinite);
    for (int i = 0; o->op == OP_add && !shift && i < 2; i++)
        if (is_plain(t, o->in[1 - i])) shift = masked_by(t, o->in[i], is_zero, &infinite);
    if (!shift) return;
    int64_t lo, hi;
    expr_range(t->p, shift, &lo, &hi);
    if (infinite || lo >= 0) t->shift = shift;
}
