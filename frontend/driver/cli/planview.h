/* A plan opened for reading, with every size known: symbols at --dim values, hints or 1. */
#ifndef FRONTEND_DRIVER_CLI_PLANVIEW_H
#define FRONTEND_DRIVER_CLI_PLANVIEW_H

#include "frontend/driver/cli/cli.h"
#include "codegen/target.h"
#include "runtime/plan.h"

typedef struct PlanView {
    Plan plan;
    size_t size;
    int64_t *symbols, *slots;
} PlanView;

graphc_status planview_open(Cli *c, const char *path, PlanView *v);
/* The same of a plan's bytes that were made from the model at `path` just now. */
graphc_status planview_make(Cli *c, const char *path, const void *bytes, size_t size, PlanView *v);
void planview_close(PlanView *v);

/* Where every temporary of a run lies, as the session would lay it out; NULL after a message.
 * memory_destroy frees it. */
struct MemoryPlan *planview_layout(Cli *c, const PlanView *v, const PlanTarget *t);
typedef struct PlanMemory {
    uint64_t arena, live, constants, prepared, states, scratch;
} PlanMemory;
/* Arena size as the session would lay it out, and the largest sum of buffers alive at one step. */
PlanMemory planview_memory(Cli *c, const PlanView *v, const PlanTarget *t);

/* Seconds that a kernel of this kind takes at least, at the rates of the target's row, and whether
 * memory decides. */
double planview_least(const Machine *m, const char *kind, double bytes, double flops, bool *memory);

/* What the compiler says of the plan under that name; "unknown", or of the first NULL, if nothing.
 */
const char *planview_said(const PlanView *v, const char *key);
const char *planview_note(const PlanView *v, const char *key);
/* Its name, or NULL where it is the only one and goes without saying. */
static inline const char *planview_entry(const PlanView *v, uint32_t e) {
    return v->plan.nentries > 1 ? plan_str(&v->plan, v->plan.entries[e].name) : NULL;
}
static inline const PlanKernel *planview_kernel(const PlanView *v, const PlanTarget *t,
                                                const PlanStep *s) {
    return &v->plan.kernels[t->kernels + s->kernel];
}
/* Calls fn for each kernel launch of the steps [from, to) of a target. */
#define PLANVIEW_EACH_KERNEL(v, t, from, to, step)                                                 \
    for (const PlanStep *step = &(v)->plan.steps[(t)->steps] + (from),                             \
                        *planview_end_ = &(v)->plan.steps[(t)->steps] + (to);                      \
         step < planview_end_; step++)                                                             \
        if (step->kind == PLAN_STEP_kernel)

#endif
