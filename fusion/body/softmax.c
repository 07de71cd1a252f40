/* Attention's result and statistics from its scores, as ops over the keys. */
#include "fusion/body/body.h"

static uint32_t key_axis(const Body *b) {
    const Group *g = b->g;
    for (uint32_t i = 0; i < g->naxes; i++)
        if (g->axes[i].sym == g->attn->jsym) return 1u << i;
    return 0;
}

static KVal over_keys(Body *b, KFold fold, KVal x) {
    KOp o = body_blank(K_kreduce, body_type_of(b, x));
    o.fold = (uint8_t)fold;
    o.in[0] = x;
    o.axes = key_axis(b);
    return body_op(b, o);
}

static KVal choose(Body *b, uint32_t test, KVal x, KVal then) {
    KOp o = body_blank(OP_select, body_type_of(b, x));
    o.in[0] = body_op1(b, test, DT_bool, x);
    o.in[1] = then;
    o.in[2] = x;
    return body_op(b, o);
}

/* Maximum, exponentials and sum, noted in the kernel; the result is what the scores are taken
 * against. Where the log of the sum is wanted that is 0 for rows without a finite score, as for
 * logsumexp; o is the same, 0/0 in place of NaN. */
static KVal statistics(Body *b, KVal score) {
    KAttn *t = &b->k->attn;
    DType dt = body_type_of(b, score);
    t->score = score;
    t->m = over_keys(b, FOLD_max, score);
    KVal base = b->g->attn->lse ? choose(b, OP_isinf, t->m, body_const_f(b, dt, 0)) : t->m;
    t->e = body_op1(b, OP_exp, dt, body_op2(b, OP_sub, dt, score, base));
    t->l = over_keys(b, FOLD_sum, t->e);
    return base;
}

KVal body_attention(Body *b, KVal score, KVal v) {
    KAttn *t = &b->k->attn;
    DType dt = body_type_of(b, v);
    statistics(b, score);
    KVal p = body_op2(b, OP_div, body_type_of(b, score), t->e, t->l);
    if (b->g->attn->guarded) p = choose(b, OP_isnan, p, body_const_f(b, body_type_of(b, p), 0));
    t->v = v;
    t->o = over_keys(b, FOLD_sum, body_op2(b, OP_mul, dt, body_cast(b, p, dt), v));
    return t->o;
}

KVal body_lse(Body *b, KVal score) {
    DType dt = body_type_of(b, score);
    KVal base = statistics(b, score);
    return body_op2(b, OP_add, dt, body_op1(b, OP_log, dt, b->k->attn.l), base);
}
