/* A plan whose steps choose other variants. */
#include "runtime/plan.h"
#include <stdlib.h>
#include <string.h>

typedef struct Chosen {
    const Plan *p;
    PlanExpr *exprs; /* the plan's, and constants behind them */
    uint64_t nexprs;
    PlanStep *steps;
} Chosen;

static PlanSlot constant(Chosen *c, uint32_t value) {
    for (uint64_t i = 0; i < c->nexprs; i++)
        if (c->exprs[i].op == PLAN_EX_const && c->exprs[i].value == value) return (PlanSlot)i;
    c->exprs[c->nexprs] = (PlanExpr){.op = PLAN_EX_const, .value = value};
    return (PlanSlot)c->nexprs++;
}

static bool make(Chosen *c, const uint32_t *variant) {
    const Plan *p = c->p;
    c->exprs = malloc((p->nexprs + p->nsteps + 1) * sizeof *c->exprs);
    c->steps = malloc((p->nsteps + 1) * sizeof *c->steps);
    if (!c->exprs || !c->steps) return false;
    memcpy(c->exprs, p->exprs, p->nexprs * sizeof *c->exprs);
    memcpy(c->steps, p->steps, p->nsteps * sizeof *c->steps);
    c->nexprs = p->nexprs;
    for (uint64_t i = 0; i < p->nsteps; i++)
        if (variant[i] <= c->steps[i].nvariants) c->steps[i].choice = constant(c, variant[i]);
    return true;
}

graphc_status plan_choose(const Plan *p, const uint32_t *variant, void **out, uint64_t *size) {
    Chosen c = {.p = p};
    PlanPart part[PLAN_SEC_COUNT];
    graphc_status st = make(&c, variant) ? GRAPHC_OK : GRAPHC_NO_MEMORY;
    plan_parts(p, part);
    part[PLAN_SEC_exprs] = (PlanPart){c.exprs, c.nexprs * sizeof *c.exprs};
    part[PLAN_SEC_steps].p = c.steps;
    if (st == GRAPHC_OK) st = plan_join(p, p->header->weights, part, out, size);
    free(c.exprs);
    free(c.steps);
    return st;
}
