#include "runtime/session.h"
#include <stdlib.h>
#include <string.h>

/* More than the last level of any cache here. Half of it is copied over the other half. */
#define SWEPT_BYTES ((uint64_t)256 << 20)

uint32_t tune_target(const graphc_session *s) {
    return (uint32_t)(s->res->target - s->plan->targets);
}

uint32_t tune_processors(const graphc_session *s) {
    return s->res->ops->processors ? s->res->ops->processors(s->res) : 1;
}

void tune_try(graphc_session *s, uint32_t step, uint32_t variant) {
    uint32_t tried = variant + 1; /* UINT32_MAX: 0 */
    if (s->step[step].tried != tried) s->shapes_changed = true;
    s->step[step].tried = tried;
}

/* --- States ----------------------------------------------------------------------------------- */

static graphc_status copy_states(graphc_session *s, bool back) {
    const DeviceOps *ops = s->res->ops;
    for (uint64_t i = 0; i < s->plan->nstates; i++) {
        const OwnMemory *now = &s->state[i], *then = &s->kept[i];
        if (now->bytes)
            GC_TRY(ops->copy(s->lane, back ? now->p : then->p, back ? then->p : now->p, now->bytes,
                             session_error(s)));
        if (back && s->state_size[i] != s->kept_size[i]) s->shapes_changed = true;
        if (back)
            s->state_size[i] = s->kept_size[i];
        else
            s->kept_size[i] = s->state_size[i];
    }
    return GRAPHC_OK;
}

static graphc_status keep_states(graphc_session *s) {
    ErrorText e = session_error(s);
    uint64_t n = s->plan->nstates;
    s->kept = calloc(n + 1, sizeof *s->kept);
    s->kept_size = calloc(n + 1, sizeof *s->kept_size);
    if (!s->kept || !s->kept_size) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    for (uint64_t i = 0; i < n; i++) {
        if (!s->state[i].bytes) continue;
        GC_TRY(s->res->ops->alloc(s->res, s->state[i].bytes, &s->kept[i].p, e));
        s->kept[i].bytes = s->state[i].bytes;
    }
    GC_TRY(s->res->ops->alloc(s->res, SWEPT_BYTES, &s->swept.p, e));
    s->swept.bytes = SWEPT_BYTES;
    GC_TRY(s->res->ops->zero(s->res, s->swept.p, SWEPT_BYTES, e));
    return copy_states(s, false);
}

graphc_status tune_keep(graphc_session *s) {
    s->error[0] = 0;
    GC_TRY(s->res->ops->begin(s->lane, session_error(s)));
    graphc_status st = keep_states(s);
    s->res->ops->end(s->lane);
    return st;
}

/* --- Time ------------------------------------------------------------------------------------- */

static graphc_status sweep(graphc_session *s) {
    uint8_t *half = s->swept.p;
    return s->res->ops->copy(s->lane, half, half + SWEPT_BYTES / 2, SWEPT_BYTES / 2,
                             session_error(s));
}

static graphc_status prepare(graphc_session *s, bool swept) {
    GC_TRY(s->res->ops->begin(s->lane, session_error(s)));
    graphc_status st = copy_states(s, true);
    if (st == GRAPHC_OK && swept) st = sweep(s);
    s->res->ops->end(s->lane);
    return st;
}

/* The device is still busy with emptying its caches when the run is started: how long that takes
 * the host does not count. */
graphc_status tune_time(graphc_session *s, double *seconds) {
    s->error[0] = 0;
    GC_TRY(prepare(s, false));
    GC_TRY(graphc_run(s));
    GC_TRY(prepare(s, true));
    return graphc_run_timed(s, 1, seconds);
}
