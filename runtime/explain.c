/* What a plan says of itself: targets, their kernels, what stayed apart. */
#include "runtime/session.h"
#include <stddef.h>

static const PlanTarget *target_at(const graphc_plan *p, uint32_t i) {
    return i < p->plan.ntargets ? &p->plan.targets[i] : NULL;
}

uint32_t graphc_plan_targets(const graphc_plan *p) {
    return (uint32_t)p->plan.ntargets;
}

const char *graphc_plan_target(const graphc_plan *p, uint32_t target) {
    const PlanTarget *t = target_at(p, target);
    return t ? plan_str(&p->plan, t->name) : "";
}

const char *graphc_plan_refusals(const graphc_plan *p, uint32_t target) {
    const PlanTarget *t = target_at(p, target);
    return t ? plan_str(&p->plan, t->notes) : "";
}

const char *graphc_plan_uncovered(const graphc_plan *p, uint32_t target) {
    const PlanTarget *t = target_at(p, target);
    return t ? plan_str(&p->plan, t->apart) : "";
}

/* Number of the step that launches kernel i, or nsteps; *count, if asked for: of all that do. */
static uint32_t kernel_step(const Plan *p, const PlanTarget *t, uint32_t i, uint32_t *count) {
    uint32_t n = 0, found = t->nsteps;
    for (uint32_t s = 0; s < t->nsteps; s++)
        if (p->steps[t->steps + s].kind == PLAN_STEP_kernel && n++ == i) found = s;
    if (count) *count = n;
    return found;
}

uint32_t graphc_plan_kernels(const graphc_plan *p, uint32_t target) {
    const PlanTarget *t = target_at(p, target);
    uint32_t n = 0;
    if (t) (void)kernel_step(&p->plan, t, 0, &n);
    return n;
}

static const char *entry_of(const Plan *p, const PlanTarget *t, uint32_t step) {
    for (uint32_t e = 0; e < p->nentries; e++) {
        PlanRange r = plan_range(p, t, e);
        if (step >= r.from && step < r.to) return plan_str(p, p->entries[e].name);
    }
    return "";
}

graphc_kernel_info graphc_plan_kernel(const graphc_plan *p, uint32_t target, uint32_t i) {
    const PlanTarget *t = target_at(p, target);
    uint32_t step = t ? kernel_step(&p->plan, t, i, NULL) : 0;
    if (!t || step == t->nsteps) return (graphc_kernel_info){"", "", "", ""};
    const PlanKernel *k = &p->plan.kernels[t->kernels + p->plan.steps[t->steps + step].kernel];
    return (graphc_kernel_info){plan_str(&p->plan, k->name), plan_str(&p->plan, k->kind),
                                entry_of(&p->plan, t, step), plan_str(&p->plan, k->nodes)};
}
