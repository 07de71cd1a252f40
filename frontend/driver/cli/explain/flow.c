/* Kernels as a graph: who reads what whom stored. Buffers that share storage one after the other
 * are different buffers; parts of a concatenation have the whole as their alias. */
#include "frontend/driver/cli/explain/explain.h"

typedef struct Stores {
    Arena *arena;
    const PlanView *v;
    const PlanTarget *t;
    StepList *of;       /* by buffer: steps that write it */
    StepList *of_parts; /* by buffer that owns storage: steps that write what lies in it */
} Stores;

static const PlanBuffer *buffers(const Stores *s) {
    return &s->v->plan.buffers[s->t->buffers];
}

static void add(Arena *a, StepList *to, uint32_t step) {
    uint32_t at = to->n;
    for (uint32_t i = 0; i < to->n; i++)
        if (to->v[i] == step) return;
    vec_push(a, to, step);
    for (; at > 0 && to->v[at - 1] > step; at--) to->v[at] = to->v[at - 1];
    to->v[at] = step;
}

static void note_step(Stores *s, uint32_t i, const PlanStep *step) {
    const PlanKernel *k = planview_kernel(s->v, s->t, step);
    for (uint32_t p = 0; p < k->nbufs; p++) {
        uint32_t b = s->v->plan.lists[step->bufs + p];
        if (!(k->written >> p & 1)) continue;
        add(s->arena, &s->of[b], i);
        if (buffers(s)[b].alias) add(s->arena, &s->of_parts[plan_root(buffers(s), b)], i);
    }
}

/* Steps in front of step i that stored what it finds in b: b itself, else, if it reads b, its parts
 * or the whole that it is a part of. */
static void add_sources(const Stores *s, uint32_t i, uint32_t b, bool written, StepList *out) {
    uint32_t root = plan_root(buffers(s), b);
    const StepList *from[] = {&s->of[b], &s->of_parts[b], &s->of[root]};
    for (size_t k = 0; k < (written ? 1 : sizeof from / sizeof *from); k++) {
        uint32_t before = out->n;
        for (uint32_t j = 0; j < from[k]->n; j++)
            if (from[k]->v[j] < i) add(s->arena, out, from[k]->v[j]);
        if (out->n > before) return;
    }
}

Flow flow_of(Arena *a, const PlanView *v, const PlanTarget *t) {
    Stores s = {a, v, t, ARENA_ARRAY(a, StepList, t->nbuffers + 1),
                ARENA_ARRAY(a, StepList, t->nbuffers + 1)};
    StepList *from = ARENA_ARRAY(a, StepList, t->nsteps + 1);
    const PlanStep *steps = &v->plan.steps[t->steps];
    for (uint32_t i = 0; i < t->nsteps; i++)
        if (steps[i].kind == PLAN_STEP_kernel) note_step(&s, i, &steps[i]);
    for (uint32_t i = 0; i < t->nsteps; i++) {
        if (steps[i].kind != PLAN_STEP_kernel) continue;
        const PlanKernel *k = planview_kernel(v, t, &steps[i]);
        for (uint32_t p = 0; p < k->nbufs; p++)
            add_sources(&s, i, v->plan.lists[steps[i].bufs + p], k->written >> p & 1, &from[i]);
    }
    return (Flow){t->nsteps, from};
}

uint32_t flow_path(const Flow *f, Arena *a, uint32_t from, uint32_t to, uint32_t **path) {
    uint32_t *next = ARENA_ARRAY(a, uint32_t, f->n + 1); /* 1 + the step after it on the way */
    uint32_t *queue = ARENA_ARRAY(a, uint32_t, f->n + 1), n = 0, length = 1;
    queue[n++] = to;
    for (uint32_t at = 0; at < n && from != to && !next[from]; at++) {
        const StepList *sources = &f->from[queue[at]];
        for (uint32_t i = 0; i < sources->n; i++) {
            uint32_t p = sources->v[i];
            if (p == to || next[p]) continue;
            next[p] = queue[at] + 1;
            queue[n++] = p;
        }
    }
    if (from != to && !next[from]) return 0;
    *path = queue;
    for (queue[0] = from; queue[length - 1] != to; length++)
        queue[length] = next[queue[length - 1]] - 1;
    return length;
}
