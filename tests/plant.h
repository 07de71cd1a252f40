/* Faults of kernels: what a defect of fusion or code generation would make of an op. */
#ifndef TESTS_PLANT_H
#define TESTS_PLANT_H

#include "fusion/kir/kir.h"

typedef enum How {
    OP_BECOMES, /* another op */
    SWAPPED,    /* operands of the other order */
    LEFT_OUT,   /* its first operand in its place */
    DOUBLED,    /* its first operand as the second too */
    FOLDS_BY,   /* another fold */
    TIMES,      /* the constant among its operands scaled */
    MOVED,      /* an index one further */
    UNMASKED    /* a mask that says nothing, with what lies beyond its condition */
} How;

static inline void plant_replace(Kernel *k, KVal from, KVal to) {
    for (KVal i = 1; i < k->nops; i++)
        for (int j = 0; j < 3; j++)
            if (k->ops[i].in[j] == from && i != to) k->ops[i].in[j] = to;
}

/* Into the op at `at` of a kernel. */
static inline void plant(ExprPool *p, Kernel *k, KVal at, How how, double by) {
    KOp *o = &k->ops[at];
    int first = how == SWAPPED || how == LEFT_OUT ? (int)by : 0;
    KVal x;
    switch (how) {
    case OP_BECOMES:
        if (by ==
            OP_none) { /* to another type and back, wherever `at` is of the two: what was cast */
            const KOp *before = &k->ops[o->in[0]];
            if (before->op == OP_cast) plant_replace(k, at, before->in[0]);
            for (KVal i = at; i < k->nops; i++)
                if (k->ops[i].op == OP_cast && k->ops[i].in[0] == at) plant_replace(k, i, o->in[0]);
        } else {
            o->op = (uint16_t)by;
        }
        break;
    case SWAPPED:
        x = o->in[first];
        o->in[first] = o->in[first + 1];
        o->in[first + 1] = x;
        break;
    case LEFT_OUT:
        x = o->in[first];
        plant_replace(k, at, x);
        if (k->tem == TEM_attention && k->attn.score == at) k->attn.score = x;
        break;
    case DOUBLED: o->in[1] = o->in[0]; break;
    case FOLDS_BY: o->fold = (uint8_t)by; break;
    case TIMES: k->ops[o->in[k->ops[o->in[0]].op == K_konst ? 0 : 1]].imm.f *= by; break;
    case MOVED:
        if (o->op == K_kload) {
            o->index = expr_add(p, o->index, expr_const(p, 1));
        } else { /* of what is bound: the elements that it leads to */
            for (KVal i = at + 1; i < k->nops; i++)
                if (k->ops[i].op == K_kload && k->ops[i].buf != k->ops[o->in[0]].buf &&
                    k->params[k->ops[i].buf].dtype == DT_f32)
                    k->ops[i].index = expr_add(p, k->ops[i].index, expr_const(p, 1));
        }
        break;
    case UNMASKED: o->mask = expr_lt(p, expr_const(p, 0), expr_const(p, 0)); break;
    }
}

/* Whether an op of that code can take the fault: masked loads lose their masks, loads of floats
 * move. */
static inline bool plant_fits(const Kernel *k, const KOp *o, How how) {
    if (how == UNMASKED && !o->mask) return false;
    if (how == TIMES && k->ops[o->in[0]].op != K_konst && k->ops[o->in[1]].op != K_konst)
        return false;
    return how != MOVED || o->op != K_kload || k->params[o->buf].dtype == DT_f32;
}

#endif
