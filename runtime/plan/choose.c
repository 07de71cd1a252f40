/* A plan whose steps choose other variants. */
#include "runtime/base/map.h"
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

static uint64_t aligned(uint64_t n) {
    return (n + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

/* Sections as they were, but for exprs and steps. */
static graphc_status write(const Chosen *c, void **out, uint64_t *size) {
    const Plan *p = c->p;
    PlanHeader h = *p->header;
    PlanSection table[PLAN_SEC_COUNT];
    const PlanSection *old = (const PlanSection *)(const void *)(p->header + 1);
    uint64_t end = sizeof h + sizeof table;
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++) {
        table[i] = old[i];
        if (i == PLAN_SEC_exprs) table[i].size = c->nexprs * sizeof *c->exprs;
        table[i].offset = aligned(end);
        end = table[i].offset + table[i].size;
    }
    uint8_t *bytes = aligned_alloc(PLAN_ALIGN, aligned(end));
    if (!bytes) return GRAPHC_NO_MEMORY;
    memset(bytes, 0, aligned(end));
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++) {
        const void *from = i == PLAN_SEC_exprs   ? (const void *)c->exprs
                           : i == PLAN_SEC_steps ? (const void *)c->steps
                                                 : p->bytes + old[i].offset;
        if (table[i].size) memcpy(bytes + table[i].offset, from, table[i].size);
        table[i].hash = hash_bytes(bytes + table[i].offset, table[i].size, i);
    }
    h.length = end;
    h.hash = plan_header_hash(&h, table);
    memcpy(bytes, &h, sizeof h);
    memcpy(bytes + sizeof h, table, sizeof table);
    *out = bytes;
    *size = end;
    return GRAPHC_OK;
}

graphc_status plan_choose(const Plan *p, const uint32_t *variant, void **out, uint64_t *size) {
    Chosen c = {.p = p};
    graphc_status st = make(&c, variant) ? write(&c, out, size) : GRAPHC_NO_MEMORY;
    free(c.exprs);
    free(c.steps);
    return st;
}
