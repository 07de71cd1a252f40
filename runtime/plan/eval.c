/* Values of a plan's expressions. Sizes come from shapes and data that anyone may feed, so nothing
 * wraps: values are exact in 126 bits, which holds what passes on the way (n - 5 of a limit that is
 * INT64_MAX, products before a quotient), and a slot takes the nearest 64-bit value. A size that
 * does not fit is then one that no memory has, and is refused as such. */
#include "runtime/plan.h"

/* What does not even fit that. A product with 0 is 0 all the same. */
#define LOST ((PlanWide)1 << 126)

static PlanWide kept(PlanWide v) {
    return v > -LOST && v < LOST ? v : LOST;
}

static PlanWide floor_div(PlanWide a, PlanWide b) {
    if (b == 0) return 0;
    return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}

static PlanWide product(PlanWide a, PlanWide b) {
    PlanWide r;
    if (a == 0 || b == 0) return 0;
    return a == LOST || b == LOST || __builtin_mul_overflow(a, b, &r) ? LOST : kept(r);
}

static PlanWide eval_one(const PlanExpr *e, const int64_t *symbols, const PlanWide *wide) {
    if (e->op == PLAN_EX_const) return e->value;
    if (e->op == PLAN_EX_sym) return symbols[e->arg[0]];
    PlanWide a = wide[e->arg[0]], b = wide[e->arg[1]];
    if (e->op == PLAN_EX_mul) return product(a, b);
    if (e->op == PLAN_EX_select) return a == LOST ? LOST : a ? b : wide[e->arg[2]];
    if (a == LOST || b == LOST) return LOST;
    switch ((PlanExprOp)e->op) {
    case PLAN_EX_add: return kept(a + b);
    case PLAN_EX_div: return floor_div(a, b);
    case PLAN_EX_mod: return b ? a - floor_div(a, b) * b : 0;
    case PLAN_EX_min: return a < b ? a : b;
    case PLAN_EX_max: return a > b ? a : b;
    case PLAN_EX_lt: return a < b;
    case PLAN_EX_eq: return a == b;
    default: return 0;
    }
}

void plan_eval_slot(const Plan *p, const int64_t *symbols, PlanWide *wide, int64_t *slots,
                    PlanSlot i) {
    PlanWide v = wide[i] = eval_one(&p->exprs[i], symbols, wide);
    slots[i] = v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : (int64_t)v;
}

void plan_eval(const Plan *p, const int64_t *symbols, PlanWide *wide, int64_t *slots,
               PlanStage from) {
    for (uint64_t i = 0; i < p->nexprs; i++)
        if (p->stage[i] >= from) plan_eval_slot(p, symbols, wide, slots, (PlanSlot)i);
}
