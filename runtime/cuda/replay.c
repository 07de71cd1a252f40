/* Whole runs as CUDA graphs. A run whose launches are all known beforehand is recorded when its
 * pointers and sizes come for the second time; later runs with them are one call. */
#include "runtime/base/map.h"
#include "runtime/cuda/driver.h"
#include <stdlib.h>

#define RECORDINGS 16 /* shapes kept; the one unused for longest goes */

typedef struct Recording {
    uint64_t key, last_use;
    CuGraphExec exec; /* NULL: seen once, not recorded yet */
} Recording;

typedef struct Replay {
    Recording recording[RECORDINGS];
    uint64_t clock, key;
    uint32_t generation; /* of the session when key was computed */
    bool possible;
} Replay;

/* No control flow and no sizes that kernels find out. */
static bool is_straight(const graphc_session *s) {
    for (uint32_t i = s->res->target->nprepare; i < s->res->target->nsteps; i++)
        if (s->res->steps[i].kind != PLAN_STEP_kernel || s->res->steps[i].ndata) return false;
    return true;
}

static void replay_free(graphc_session *s) {
    Replay *r = s->replay;
    if (r && s->res->ops->begin(s->lane, (ErrorText){0}) == GRAPHC_OK) {
        const CudaDevice *d = s->res->device;
        for (int i = 0; i < RECORDINGS; i++)
            if (r->recording[i].exec) (void)d->driver->graph_exec_destroy(r->recording[i].exec);
        s->res->ops->end(s->lane);
    }
    free(r);
}

static Replay *replay_of(graphc_session *s) {
    if (!s->replay) {
        Replay *r = calloc(1, sizeof *r);
        if (!r) return NULL;
        r->possible = is_straight(s);
        s->replay = r;
        s->replay_free = replay_free;
    }
    return s->replay;
}

/* Everything that launches depend on: two runs with equal keys are the same work. */
static uint64_t run_key(const graphc_session *s) {
    uint64_t h = hash_bytes(s->slots, s->plan->nexprs * sizeof *s->slots, 1);
    h = hash_bytes(s->pointers, s->npointers * sizeof *s->pointers, h);
    return hash_bytes(s->dims, s->ndims * sizeof *s->dims, h);
}

/* The recording with this key; a free or the oldest place if there is none. */
static Recording *find_recording(Replay *r, uint64_t key) {
    Recording *oldest = &r->recording[0];
    for (int i = 0; i < RECORDINGS; i++) {
        if (r->recording[i].last_use && r->recording[i].key == key) return &r->recording[i];
        if (r->recording[i].last_use < oldest->last_use) oldest = &r->recording[i];
    }
    return oldest;
}

static graphc_status record(graphc_session *s, CuGraphExec *out) {
    CudaDevice *d = s->res->device;
    const Driver *v = d->driver;
    ErrorText e = session_error(s);
    CuGraph graph = NULL;
    GC_TRY(cuda_check(d, v->capture_begin(s->lane->stream, CU_CAPTURE_THREAD_LOCAL), e,
                      "recording a run"));
    graphc_status st = steps_run(s, s->res->target->nprepare, s->res->target->nsteps);
    CuResult r = v->capture_end(s->lane->stream, &graph);
    if (st == GRAPHC_OK) st = cuda_check(d, r, e, "recording a run");
    if (st == GRAPHC_OK)
        st = cuda_check(d, v->graph_instantiate(out, graph, 0), e, "preparing a recorded run");
    if (graph) (void)v->graph_destroy(graph);
    return st;
}

/* Is the caller recording a graph of its own? Then launches go into that one. */
static graphc_status is_captured(graphc_session *s, bool *out) {
    CudaDevice *d = s->res->device;
    int status = CU_CAPTURE_NONE;
    *out = false;
    if (s->lane->own_stream) return GRAPHC_OK;
    GC_TRY(cuda_check(d, d->driver->capture_status(s->lane->stream, &status), session_error(s),
                      "asking for the stream's state"));
    *out = status != CU_CAPTURE_NONE;
    return GRAPHC_OK;
}

graphc_status replay_run(graphc_session *s) {
    CudaDevice *d = s->res->device;
    Replay *r = replay_of(s);
    bool captured;
    GC_TRY(is_captured(s, &captured));
    if (!r || !r->possible || captured)
        return steps_run(s, s->res->target->nprepare, s->res->target->nsteps);
    if (r->generation != s->generation) r->key = run_key(s);
    r->generation = s->generation;
    Recording *rec = find_recording(r, r->key);
    bool seen = rec->last_use && rec->key == r->key;
    if (!seen) {
        if (rec->exec) (void)d->driver->graph_exec_destroy(rec->exec);
        *rec = (Recording){.key = r->key};
    }
    rec->last_use = ++r->clock;
    if (!seen) return steps_run(s, s->res->target->nprepare, s->res->target->nsteps);
    if (!rec->exec) GC_TRY(record(s, &rec->exec));
    return cuda_check(d, d->driver->graph_launch(rec->exec, s->lane->stream), session_error(s),
                      "starting a recorded run");
}
