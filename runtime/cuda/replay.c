/* Whole runs as CUDA graphs. A run whose launches are all known beforehand is recorded when its
 * like comes for the second time; later ones are one call. Runs are alike in two ways: with equal
 * keys they are the same work, and the recording is started as it is; with equal forms they differ
 * in sizes, pointers or variants only, and the recording's kernels that differ are changed first */
#include "runtime/base/map.h"
#include "runtime/cuda/driver.h"
#include <stdlib.h>
#include <string.h>

#define RECORDINGS 16 /* kept; the one unused for longest goes */
#define NOTES      64 /* keys and forms of runs that were not recorded */

typedef struct Recording {
    uint64_t key, form, last_use;
    CuGraph graph;
    CuGraphExec exec;  /* NULL: this place is free */
    CuGraphNode *node; /* per kernel step: its kernel, NULL where nothing is launched */
    uint64_t *print;   /* per kernel step: what it launches */
} Recording;

typedef struct Replay {
    Recording recording[RECORDINGS];
    uint64_t note[NOTES], nnotes;
    uint64_t clock, key, form;
    uint32_t generation; /* of the session when key and form were computed */
    uint32_t entry;      /* that `possible` is of */
    bool possible;
} Replay;

/* No control flow and no sizes that kernels find out. */
static bool is_straight(const graphc_session *s) {
    for (uint32_t i = s->steps.from; i < s->steps.to; i++)
        if (s->res->steps[i].kind != PLAN_STEP_kernel || s->res->steps[i].ndata) return false;
    return true;
}

static void forget(const CudaDevice *d, Recording *r) {
    if (r->exec) (void)d->driver->graph_exec_destroy(r->exec);
    if (r->graph) (void)d->driver->graph_destroy(r->graph);
    free(r->node);
    free(r->print);
    *r = (Recording){0};
}

static void replay_free(graphc_session *s) {
    Replay *r = s->replay;
    bool there = s->res->ops->begin(s->lane, (ErrorText){0}) == GRAPHC_OK;
    for (int i = 0; i < RECORDINGS; i++) {
        if (!there) r->recording[i].exec = NULL, r->recording[i].graph = NULL;
        forget(s->res->device, &r->recording[i]);
    }
    if (there) s->res->ops->end(s->lane);
    free(r);
}

static Replay *replay_of(graphc_session *s) {
    if (!s->replay) {
        Replay *r = calloc(1, sizeof *r);
        if (!r) return NULL;
        r->entry = UINT32_MAX;
        s->replay = r;
        s->replay_free = replay_free;
    }
    Replay *r = s->replay;
    if (r->entry != s->entry) r->possible = is_straight(s);
    r->entry = s->entry;
    return r;
}

/* --- What a run is ---------------------------------------------------------------------------- */

static bool is_launched(const graphc_session *s, const PlanKernel *k) {
    return s->slots[k->grid[0]] > 0 && s->slots[k->grid[1]] > 0 && s->slots[k->grid[2]] > 0;
}

static uint64_t run_key(const graphc_session *s) {
    uint64_t h =
        hash_bytes(s->slots, s->plan->nexprs * sizeof *s->slots, 1 + 4 * (uint64_t)s->entry);
    h = hash_bytes(s->pointers, s->npointers * sizeof *s->pointers, h);
    h = hash_bytes(&s->zeroed.p, sizeof s->zeroed.p, h);
    h = hash_bytes(s->step, s->res->target->nsteps * sizeof *s->step, h);
    return hash_bytes(s->dims, s->ndims * sizeof *s->dims, h);
}

/* What of a launch a recorded kernel cannot change: that it is there, and what is around it. */
static uint64_t launch_form(const graphc_session *s, uint32_t step, uint64_t h) {
    const PlanKernel *k = &s->res->kernels[s->step[step].kernel];
    bool zeroed = k->zero && !(k->flags & PLAN_ZERO_KEPT);
    uint64_t facts[] = {is_launched(s, k),
                        k->flags,
                        k->cluster[0],
                        k->cluster[1],
                        k->cluster[2],
                        zeroed ? (uint64_t)s->slots[k->zero] : 0,
                        zeroed ? (uint64_t)(uintptr_t)s->zeroed.p + s->zero_kept : 0};
    return hash_bytes(facts, sizeof facts, h);
}

static uint64_t run_form(const graphc_session *s) {
    uint64_t h = 2 + 4 * (uint64_t)s->entry;
    for (uint32_t i = 0; i < s->nkernel_steps; i++)
        if (session_runs(s, s->kernel_steps[i])) h = launch_form(s, s->kernel_steps[i], h);
    return h;
}

static uint64_t launch_print(const graphc_session *s, const Launch *l) {
    const PlanKernel *k = &s->res->kernels[l->kernel];
    int64_t facts[] = {l->kernel, s->slots[k->grid[0]], s->slots[k->grid[1]], s->slots[k->grid[2]],
                       (int64_t)(uintptr_t)l->zero};
    uint64_t h = hash_bytes(facts, sizeof facts, 3);
    h = hash_bytes(l->pointers, l->npointers * sizeof *l->pointers, h);
    h = hash_bytes(l->dims, k->ndims * sizeof *l->dims, h);
    return hash_bytes(l->maps, (size_t)k->nmaps * PLAN_MAP_BYTES, h);
}

/* --- Notes and recordings --------------------------------------------------------------------- */

static bool is_noted(const Replay *r, uint64_t x) {
    for (uint64_t i = 0; i < NOTES && i < r->nnotes; i++)
        if (r->note[i] == x) return true;
    return false;
}

static void note(Replay *r, uint64_t x) {
    if (!is_noted(r, x)) r->note[r->nnotes++ % NOTES] = x;
}

static Recording *with_key(Replay *r, uint64_t key) {
    for (int i = 0; i < RECORDINGS; i++)
        if (r->recording[i].exec && r->recording[i].key == key) return &r->recording[i];
    return NULL;
}

/* The one of that form used last. */
static Recording *with_form(Replay *r, uint64_t form) {
    Recording *best = NULL;
    for (int i = 0; i < RECORDINGS; i++) {
        Recording *x = &r->recording[i];
        if (x->exec && x->form == form && (!best || x->last_use > best->last_use)) best = x;
    }
    return best;
}

static Recording *oldest(Replay *r) {
    Recording *best = &r->recording[0];
    for (int i = 0; i < RECORDINGS; i++)
        if (r->recording[i].last_use < best->last_use) best = &r->recording[i];
    return best;
}

/* --- Recording and changing ------------------------------------------------------------------- */

/* The kernel that was put into the recording last. */
static graphc_status last_node(graphc_session *s, CuGraphNode *out) {
    CudaDevice *d = s->res->device;
    const CuGraphNode *nodes = NULL;
    const void *edges = NULL;
    int status;
    uint64_t id;
    CuGraph graph;
    size_t n = 0;
    GC_TRY(cuda_check(
        d, d->driver->capture_info(s->lane->stream, &status, &id, &graph, &nodes, &edges, &n),
        session_error(s), "recording a run"));
    *out = n == 1 ? nodes[0] : NULL;
    return GRAPHC_OK;
}

static graphc_status record_launches(graphc_session *s, Recording *rec) {
    for (uint32_t i = 0; i < s->nkernel_steps; i++) {
        uint32_t step = s->kernel_steps[i];
        if (!session_runs(s, step)) continue;
        Launch l = launch_of_step(s, step);
        GC_TRY(s->res->ops->launch(s->lane, &l, session_error(s)));
        rec->print[i] = launch_print(s, &l);
        if (is_launched(s, &s->res->kernels[l.kernel])) GC_TRY(last_node(s, &rec->node[i]));
    }
    return GRAPHC_OK;
}

static graphc_status record(graphc_session *s, Recording *rec) {
    CudaDevice *d = s->res->device;
    const Driver *v = d->driver;
    ErrorText e = session_error(s);
    rec->node = calloc((size_t)s->nkernel_steps + 1, sizeof *rec->node);
    rec->print = calloc((size_t)s->nkernel_steps + 1, sizeof *rec->print);
    if (!rec->node || !rec->print)
        return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to record a run");
    GC_TRY(cuda_check(d, v->capture_begin(s->lane->stream, CU_CAPTURE_THREAD_LOCAL), e,
                      "recording a run"));
    s->lane->behind_kernel = false;
    graphc_status st = record_launches(s, rec);
    CuResult r = v->capture_end(s->lane->stream, &rec->graph);
    if (st == GRAPHC_OK) st = cuda_check(d, r, e, "recording a run");
    if (st == GRAPHC_OK)
        st = cuda_check(d, v->graph_instantiate(&rec->exec, rec->graph, 0), e,
                        "preparing a recorded run");
    return st;
}

static graphc_status record_anew(graphc_session *s, Replay *r, Recording **out) {
    Recording *rec = *out = oldest(r);
    forget(s->res->device, rec);
    graphc_status st = record(s, rec);
    if (st != GRAPHC_OK) forget(s->res->device, rec);
    return st;
}

/* Kernels that differ from those recorded. */
static graphc_status change(graphc_session *s, Recording *rec) {
    for (uint32_t i = 0; i < s->nkernel_steps; i++) {
        if (!session_runs(s, s->kernel_steps[i])) continue;
        Launch l = launch_of_step(s, s->kernel_steps[i]);
        uint64_t print = launch_print(s, &l);
        if (print == rec->print[i] || !rec->node[i]) continue;
        GC_TRY(cuda_update(s->lane, rec->exec, rec->node[i], &l, session_error(s)));
        rec->print[i] = print;
    }
    return GRAPHC_OK;
}

/* Finds or makes a recording of this run; NULL: it is the first of its kind. */
static graphc_status recording_for(graphc_session *s, Replay *r, Recording **out) {
    *out = with_key(r, r->key);
    if (*out) return GRAPHC_OK;
    Recording *like = with_form(r, r->form);
    if (like && !is_noted(r, r->key)) {
        note(r, like->key); /* that run has no recording any more: it is recorded when it returns */
        note(r, r->key);
        like->key = r->key;
        *out = like;
        graphc_status st = change(s, like);
        if (st != GRAPHC_OK) forget(s->res->device, like);
        return st;
    }
    if (!is_noted(r, r->key) && !is_noted(r, r->form)) return GRAPHC_OK;
    return record_anew(s, r, out);
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

static graphc_status may_replay(graphc_session *s, const Replay *r, bool *out) {
    bool captured;
    GC_TRY(is_captured(s, &captured));
    *out = r && r->possible && !captured;
    return GRAPHC_OK;
}

/* The recording that this run is, its kernels as the run has them; NULL: there is none. */
static graphc_status find_recording(graphc_session *s, Replay *r, Recording **out) {
    *out = NULL;
    if (!r->clock || r->generation != s->generation) {
        r->key = run_key(s);
        r->form = run_form(s);
        r->generation = s->generation;
    }
    r->clock++;
    GC_TRY(recording_for(s, r, out));
    if (!*out) return GRAPHC_OK;
    (*out)->key = r->key;
    (*out)->form = r->form;
    (*out)->last_use = r->clock;
    return GRAPHC_OK;
}

/* Kernels of a recording that runs may be changed: runs that were started do not notice. */
graphc_status replay_prepare(graphc_session *s) {
    Replay *r = replay_of(s);
    Recording *rec;
    bool may;
    GC_TRY(may_replay(s, r, &may));
    return may ? find_recording(s, r, &rec) : GRAPHC_OK;
}

graphc_status replay_run(graphc_session *s) {
    CudaDevice *d = s->res->device;
    Replay *r = replay_of(s);
    Recording *rec;
    bool may;
    GC_TRY(may_replay(s, r, &may));
    if (!may) return steps_run(s, s->steps.from, s->steps.to);
    GC_TRY(find_recording(s, r, &rec));
    note(r, r->key);
    note(r, r->form);
    if (!rec) return steps_run(s, s->steps.from, s->steps.to);
    return cuda_check(d, d->driver->graph_launch(rec->exec, s->lane->stream), session_error(s),
                      "starting a recorded run");
}
