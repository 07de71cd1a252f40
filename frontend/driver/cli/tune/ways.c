/* Which kernels a plan has in several ways, as the compiler's notes say. */
#include "frontend/driver/cli/tune/tune.h"

#include <string.h>

/* "SIGNATURE | WAY | WAY ..." */
static bool read_ways(Arena *a, const char *text, TuneKernel *k) {
    static const char between[] = " | ";
    uint32_t n = 0;
    for (const char *p = text, *end; p; p = end ? end + sizeof between - 1 : NULL) {
        end = strstr(p, between);
        const char *part = arena_strndup(a, p, end ? (size_t)(end - p) : strlen(p));
        if (n > PLAN_MAX_VARIANTS + 1) return false;
        if (!n)
            k->signature = part;
        else
            k->way[n - 1] = part;
        n++;
    }
    k->nways = n ? n - 1 : 0;
    return k->nways > 1;
}

static const char *note_of(const Plan *p, const char *key) {
    for (uint64_t i = 0; i < p->nnotes; i++)
        if (strcmp(plan_str(p, p->notes[i].key), key) == 0) return plan_str(p, p->notes[i].text);
    return NULL;
}

static TuneKernel *kernel_of(TuneRun *r, const char *signature) {
    for (uint32_t i = 0; i < r->kernels.n; i++)
        if (strcmp(r->kernels.v[i].signature, signature) == 0) return &r->kernels.v[i];
    return NULL;
}

/* Steps whose kernels have the same signature are tuned as one. */
static void add_step(TuneRun *r, const Plan *p, const PlanTarget *t, uint32_t step) {
    const PlanStep *st = &p->steps[t->steps + step];
    if (st->kind != PLAN_STEP_kernel || !st->nvariants || p->stage[st->choice] != PLAN_STAGE_plan)
        return;
    const PlanKernel *pk = &p->kernels[t->kernels + st->kernel];
    const char *key =
        arena_printf(r->arena, "ways %s %s", plan_str(p, t->name), plan_str(p, pk->symbol));
    const char *text = note_of(p, key);
    TuneKernel k = {.name = plan_str(p, pk->name)};
    if (!text || !read_ways(r->arena, text, &k) || k.nways != st->nvariants + 1) return;
    int64_t now = p->exprs[st->choice].op == PLAN_EX_const ? p->exprs[st->choice].value : 0;
    k.was = k.now = now > 0 && now < k.nways ? (uint32_t)now : 0;
    TuneKernel *of = kernel_of(r, k.signature);
    if (of && (of->nways != k.nways || of->was != k.was)) return;
    if (!of) {
        vec_push(r->arena, &r->kernels, k);
        of = &r->kernels.v[r->kernels.n - 1];
    }
    vec_push(r->arena, &of->steps, step);
}

void tune_find(TuneRun *r, const Plan *p) {
    const PlanTarget *t = &p->targets[tune_target(r->session->session)];
    PlanRange run = plan_range(p, t, 0);
    r->first = t->nprepare;
    for (uint32_t i = run.from; i < run.to; i++) add_step(r, p, t, i);
}
