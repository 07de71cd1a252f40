/* What a session's kernels are launched with: the kernel of each step, its dims and tensor maps. */
#include "runtime/session.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t launch_choice(const Plan *p, const PlanStep *s, const int64_t *slots) {
    int64_t c = s->nvariants ? slots[s->choice] : 0;
    if (c < 0) c = 0;
    return plan_step_kernel(p, s, c > s->nvariants ? s->nvariants : (uint32_t)c);
}

static bool is_dynamic(const Plan *p, const PlanKernel *k) {
    bool found = false;
    for (uint32_t d = 0; d < k->ndims; d++)
        found |= p->stage[p->lists[k->dims + d]] == PLAN_STAGE_run;
    for (uint32_t i = 0; i < k->nmaps; i++) {
        const PlanMap *m = &p->maps[k->maps + i];
        found |= p->stage[m->base] == PLAN_STAGE_run;
        for (uint32_t d = 0; d < PLAN_MAP_RANK; d++)
            found |= p->stage[m->size[d]] == PLAN_STAGE_run;
        for (uint32_t d = 0; d + 1 < PLAN_MAP_RANK; d++)
            found |= p->stage[m->stride[d]] == PLAN_STAGE_run;
    }
    return found;
}

/* Room for what the largest of the step's kernels takes. */
static void lay_out_step(graphc_session *s, uint32_t step, uint64_t *pointers, uint64_t *dims,
                         uint64_t *maps) {
    const PlanStep *st = &s->res->steps[step];
    StepState *at = &s->step[step];
    uint32_t ndims = 0, nmaps = 0;
    at->pointers = (uint32_t)*pointers;
    at->dims = (uint32_t)*dims;
    at->maps = (uint32_t)*maps;
    at->kernel = st->kernel;
    at->dynamic = s->plan->stage[st->choice] == PLAN_STAGE_run;
    for (uint32_t i = 0; i <= st->nvariants; i++) {
        const PlanKernel *k = &s->res->kernels[plan_step_kernel(s->plan, st, i)];
        at->dynamic |= is_dynamic(s->plan, k);
        if (k->ndims > ndims) ndims = k->ndims;
        if (k->nmaps > nmaps) nmaps = k->nmaps;
    }
    *pointers += s->res->kernels[st->kernel].nbufs;
    *dims += ndims;
    *maps += nmaps;
}

bool launch_lay_out(graphc_session *s) {
    const PlanTarget *t = s->res->target;
    uint64_t pointers = 0, dims = 0, maps = 0;
    s->step = calloc((size_t)t->nsteps + 1, sizeof *s->step);
    s->kernel_steps = calloc((size_t)t->nsteps + 1, sizeof *s->kernel_steps);
    if (!s->step || !s->kernel_steps) return false;
    for (uint32_t i = t->nprepare; i < t->nsteps; i++) {
        if (s->res->steps[i].kind != PLAN_STEP_kernel) continue;
        lay_out_step(s, i, &pointers, &dims, &maps);
        s->kernel_steps[s->nkernel_steps++] = i;
    }
    if (pointers > UINT32_MAX || dims > UINT32_MAX || maps > UINT32_MAX) return false;
    s->npointers = pointers;
    s->ndims = dims;
    s->pointers = calloc(pointers + 1, sizeof *s->pointers);
    s->dims = calloc(dims + 1, sizeof *s->dims);
    s->maps = aligned_alloc(64, (size_t)(maps + 1) * PLAN_MAP_BYTES);
    return s->pointers && s->dims && s->maps;
}

void launch_gather(graphc_session *s, uint32_t from, uint32_t to, bool dynamic_only) {
    for (uint32_t i = from; i < to; i++) {
        const PlanStep *st = &s->res->steps[i];
        if (st->kind != PLAN_STEP_kernel || (dynamic_only && !s->step[i].dynamic)) continue;
        uint32_t tried = s->step[i].tried;
        s->step[i].kernel =
            tried ? plan_step_kernel(s->plan, st, tried - 1) : launch_choice(s->plan, st, s->slots);
        const PlanKernel *k = &s->res->kernels[s->step[i].kernel];
        for (uint32_t d = 0; d < k->ndims; d++)
            s->dims[s->step[i].dims + d] = s->slots[s->plan->lists[k->dims + d]];
    }
}

Launch launch_of_step(const graphc_session *s, uint32_t step) {
    const StepState *at = &s->step[step];
    const PlanKernel *k = &s->res->kernels[at->kernel];
    const uint64_t zero = k->flags & PLAN_ZERO_KEPT ? 0 : s->zero_kept;
    return (Launch){.kernel = at->kernel,
                    .npointers = k->nbufs,
                    .pointers = s->pointers + at->pointers,
                    .buffers = s->plan->lists + s->res->steps[step].bufs,
                    .dims = s->dims + at->dims,
                    .slots = s->slots,
                    .maps = s->maps + (size_t)at->maps * PLAN_MAP_BYTES,
                    .zero = k->zero ? (uint8_t *)s->zeroed.p + zero : NULL};
}

graphc_status launch_encode(graphc_session *s, uint32_t step) {
    Launch l = launch_of_step(s, step);
    if (!s->res->kernels[l.kernel].nmaps) return GRAPHC_OK;
    uint8_t *maps = s->maps + (size_t)s->step[step].maps * PLAN_MAP_BYTES;
    return s->res->ops->encode(s->lane, &l, maps, session_error(s));
}

/* Most bytes that a kernel of the run is given, of those that are kept zero or the others. */
static uint64_t most_zeroed(const graphc_session *s, uint32_t kept) {
    int64_t most = 0;
    for (uint32_t i = 0; i < s->nkernel_steps; i++) {
        const PlanStep *st = &s->res->steps[s->kernel_steps[i]];
        if (!session_runs(s, s->kernel_steps[i])) continue;
        for (uint32_t v = 0; v <= st->nvariants; v++) {
            const PlanKernel *k = &s->res->kernels[plan_step_kernel(s->plan, st, v)];
            if ((k->flags & PLAN_ZERO_KEPT) == kept && s->slots[k->zero] > most)
                most = s->slots[k->zero];
        }
    }
    return ((uint64_t)most + 255) / 256 * 256;
}

uint64_t launch_zeroed(const graphc_session *s, uint64_t *kept) {
    *kept = most_zeroed(s, PLAN_ZERO_KEPT);
    return *kept + most_zeroed(s, 0);
}

/* " (", the first nodes of a kernel, how many there are more, ")"; nothing if there are none. */
static void list_nodes(const char *nodes, char *out, size_t size) {
    enum { FIRST = 4, TAIL = 24 };
    size_t n = 0;
    int seen = 0, put = 0;
    for (const char *line = nodes; *line; line += *line == '\n') {
        size_t length = strcspn(line, "\n");
        if (seen++ == put && put < FIRST && n + length + TAIL < size) {
            n +=
                (size_t)snprintf(out + n, size - n, "%s%.*s", put ? ", " : " (", (int)length, line);
            put++;
        }
        line += length;
    }
    if (put < seen)
        n += (size_t)snprintf(out + n, size - n, "%s%d more", put ? ", " : " (", seen - put);
    if (seen) snprintf(out + n, size - n, ")");
}

graphc_status launch_named(const Resident *r, uint32_t kernel, graphc_status st, ErrorText e) {
    const Plan *p = &r->owner->plan;
    const PlanKernel *k = &r->kernels[kernel];
    char said[192], nodes[224] = "";
    if (!e.text || !e.size) return st;
    snprintf(said, sizeof said, "%s", e.text);
    list_nodes(plan_str(p, k->nodes), nodes, sizeof nodes);
    return error_set(e, st, "kernel %.64s%s: %s", plan_str(p, k->name), nodes, said);
}
