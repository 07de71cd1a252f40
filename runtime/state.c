/* What a session keeps from run to run. */
#include "runtime/session.h"
#include <stdlib.h>
#include <string.h>

void state_shape(const graphc_session *s, uint64_t i, int64_t *shape) {
    const PlanState *st = &s->plan->states[i];
    for (uint32_t k = 0; k < st->io.rank; k++)
        shape[k] =
            k + 1 == st->grows ? s->state_size[i] : s->res->slots[s->plan->lists[st->io.dims + k]];
}

static int64_t room_of(const graphc_session *s, uint64_t i) {
    return s->res->slots[s->plan->states[i].room];
}

/* Bytes of all its memory; false: no such size. */
static bool whole_bytes(const graphc_session *s, uint64_t i, uint64_t *bytes) {
    const PlanState *st = &s->plan->states[i];
    int64_t shape[PLAN_MAX_RANK];
    state_shape(s, i, shape);
    if (st->grows) shape[st->grows - 1] = room_of(s, i);
    return tensor_bytes(plan_dtype(st->io.dtype), shape, (int32_t)st->io.rank, bytes);
}

/* How it lies in memory: `rows` of `bytes` each, `pitch` bytes apart. */
typedef struct StateRows {
    uint64_t rows, bytes, pitch;
} StateRows;

static StateRows state_rows(const graphc_session *s, uint64_t i) {
    const PlanState *st = &s->plan->states[i];
    int64_t shape[PLAN_MAX_RANK];
    StateRows r = {1, dtype_bytes(plan_dtype(st->io.dtype)), 0};
    state_shape(s, i, shape);
    for (uint32_t k = 0; k + 1 < st->grows; k++) r.rows *= (uint64_t)shape[k];
    for (uint32_t k = st->grows; k < st->io.rank; k++) r.bytes *= (uint64_t)shape[k];
    r.pitch = r.bytes * (uint64_t)room_of(s, i);
    if (st->grows) r.bytes *= (uint64_t)s->state_size[i];
    return r;
}

uint64_t state_bytes(const graphc_session *s, uint64_t i) {
    StateRows r = state_rows(s, i);
    return r.rows * r.bytes;
}

/* The buffers that kernels know a state by are as large as it is. */
static graphc_status check_buffers(const graphc_session *s, ErrorText e) {
    for (uint32_t i = 0; i < s->res->target->nbuffers; i++) {
        const PlanBuffer *b = &s->res->buffers[i];
        if (b->kind != PLAN_BUF_state) continue;
        if ((uint64_t)s->res->slots[b->bytes] != s->state[b->index].bytes)
            return error_set(e, GRAPHC_INVALID,
                             "not a valid plan: buffer b%u has not the size of its state", i);
    }
    return GRAPHC_OK;
}

static graphc_status impossible(const graphc_session *s, uint64_t i, ErrorText e) {
    return error_set(e, GRAPHC_INVALID, "not a valid plan: state \"%s\" has an impossible shape",
                     plan_state_name(s->plan, i));
}

static graphc_status fill(graphc_session *s, uint64_t i, ErrorText e) {
    const PlanState *st = &s->plan->states[i];
    const OwnMemory *m = &s->state[i];
    const DeviceOps *ops = s->res->ops;
    const uint8_t *bytes = NULL;
    if (!st->initial) return ops->zero(s->res, m->p, m->bytes, e);
    uint64_t c = st->initial - 1;
    GC_TRY(resident_constant(s->res, c, &bytes, e));
    if (s->plan->constants[c].length != m->bytes)
        return error_set(e, GRAPHC_INVALID,
                         "not a valid plan: state \"%s\" does not start as large as it is",
                         plan_str(s->plan, st->io.name));
    GC_TRY(ops->copy(s->lane, m->p, bytes, m->bytes, e));
    GC_TRY(ops->sync(s->lane, e));
    resident_constant_used(s->res, s->lane, c, bytes);
    return GRAPHC_OK;
}

static bool is_gradient(const graphc_session *s, uint64_t i) {
    return s->plan->states[i].role == PLAN_ROLE_gradient;
}

/* One block for all gradients, each at a multiple of what any device and kernel asks for. */
static graphc_status open_gradients(graphc_session *s, ErrorText e) {
    enum { ALIGN = 256 };
    uint64_t bytes, all = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass && all) GC_TRY(s->res->ops->alloc(s->res, all, &s->gradients.p, e));
        s->gradients.bytes = s->gradients.p ? all : 0;
        all = 0;
        for (uint64_t i = 0; i < s->plan->nstates; i++) {
            if (!is_gradient(s, i)) continue;
            if (!whole_bytes(s, i, &bytes) || bytes > INT64_MAX - ALIGN - all)
                return impossible(s, i, e);
            if (pass && bytes) s->state[i] = (OwnMemory){(uint8_t *)s->gradients.p + all, bytes};
            all += (bytes + ALIGN - 1) / ALIGN * ALIGN;
        }
    }
    if (!s->gradients.p) return GRAPHC_OK;
    return s->res->ops->zero(s->res, s->gradients.p, s->gradients.bytes, e);
}

static graphc_status open_one(graphc_session *s, uint64_t i, ErrorText e) {
    uint64_t bytes = 0;
    if (is_gradient(s, i))
        return s->state[i].p && s->plan->states[i].initial ? fill(s, i, e) : GRAPHC_OK;
    if (!whole_bytes(s, i, &bytes)) return impossible(s, i, e);
    if (!bytes) return GRAPHC_OK;
    GC_TRY(s->res->ops->alloc(s->res, bytes, &s->state[i].p, e));
    s->state[i].bytes = bytes;
    return fill(s, i, e);
}

graphc_status state_open(graphc_session *s, ErrorText e) {
    if (!s->plan->nstates) return GRAPHC_OK;
    GC_TRY(s->res->ops->begin(s->lane, e));
    graphc_status st = open_gradients(s, e);
    for (uint64_t i = 0; i < s->plan->nstates && st == GRAPHC_OK; i++) st = open_one(s, i, e);
    s->res->ops->end(s->lane);
    return st == GRAPHC_OK ? check_buffers(s, e) : st;
}

void state_close(graphc_session *s) {
    for (uint64_t i = 0; s->state && i < s->plan->nstates; i++)
        if (s->state[i].p && !is_gradient(s, i))
            s->res->ops->free(s->res, s->state[i].p, s->state[i].bytes);
    if (s->gradients.p) s->res->ops->free(s->res, s->gradients.p, s->gradients.bytes);
    free(s->state);
}

/* --- States that grow ------------------------------------------------------------------------- */

/* All that share a size have it, and have room for what the run adds. */
graphc_status state_bind(graphc_session *s) {
    const Plan *p = s->plan;
    ErrorText e = session_error(s);
    for (uint64_t i = 0; i < p->nstates; i++) {
        const PlanState *st = &p->states[i];
        if (!st->grows) continue;
        const char *name = plan_str(p, st->io.name);
        int64_t want = s->slots[p->lists[st->io.dims + st->grows - 1]];
        if (s->state_size[i] != want)
            return error_set(e, GRAPHC_INVALID, "state \"%s\" holds %lld along axis %u, not %lld",
                             name, (long long)s->state_size[i], st->grows - 1, (long long)want);
        const PlanEntry *entry = session_entry(s);
        bool written = plan_lists(p, entry->states, entry->nstates, (uint32_t)i);
        if (written && (s->slots[st->next] < 0 || s->slots[st->next] > room_of(s, i)))
            return error_set(e, GRAPHC_INVALID,
                             "state \"%s\" has room for %lld along axis %u, this run needs %lld",
                             name, (long long)room_of(s, i), st->grows - 1,
                             (long long)s->slots[st->next]);
    }
    return GRAPHC_OK;
}

void state_grown(graphc_session *s) {
    const PlanEntry *e = session_entry(s);
    for (uint32_t k = 0; k < e->nstates; k++) {
        uint32_t i = s->plan->lists[e->states + k];
        if (!s->plan->states[i].grows) continue;
        s->state_size[i] = s->slots[s->plan->states[i].next];
        s->shapes_changed = true;
    }
}

/* --- To and from the host --------------------------------------------------------------------- */

/* Bytes [at, at + n) of what state i holds, as host memory has it: without gaps. */
static graphc_status copy_piece(graphc_session *s, uint64_t i, uint64_t at, uint64_t n,
                                const uint8_t *from, uint8_t *to, ErrorText e) {
    StateRows r = state_rows(s, i);
    const DeviceOps *ops = s->res->ops;
    if (!n) return GRAPHC_OK;
    GC_TRY(ops->begin(s->lane, e));
    graphc_status st = GRAPHC_OK;
    for (uint64_t done = 0, size; done < n && st == GRAPHC_OK; done += size) {
        uint64_t row = (at + done) / r.bytes, offset = (at + done) % r.bytes;
        uint8_t *p = (uint8_t *)s->state[i].p + row * r.pitch + offset;
        size = r.bytes - offset < n - done ? r.bytes - offset : n - done;
        st = ops->copy(s->lane, to ? to + done : p, to ? p : from + done, size, e);
    }
    if (st == GRAPHC_OK) st = ops->sync(s->lane, e);
    ops->end(s->lane);
    return st;
}

graphc_status state_get(graphc_session *s, uint64_t i, uint64_t at, uint64_t n, void *to,
                        ErrorText e) {
    return copy_piece(s, i, at, n, NULL, to, e);
}

graphc_status state_put(graphc_session *s, uint64_t i, const void *from, ErrorText e) {
    return copy_piece(s, i, 0, state_bytes(s, i), from, NULL, e);
}

bool state_fits(const graphc_session *s, uint64_t i, uint32_t rank, const int64_t *dim) {
    const PlanState *st = &s->plan->states[i];
    int64_t shape[PLAN_MAX_RANK];
    bool ok = rank == st->io.rank;
    state_shape(s, i, shape);
    for (uint32_t k = 0; ok && k < rank; k++)
        ok = k + 1 == st->grows ? dim[k] >= 0 && dim[k] <= room_of(s, i) : dim[k] == shape[k];
    return ok;
}

void state_resize(graphc_session *s, uint64_t i, const int64_t *dim) {
    uint32_t grows = s->plan->states[i].grows;
    if (!grows) return;
    s->state_size[i] = dim[grows - 1];
    s->shapes_changed = true;
}

/* A tensor in host memory of the state's type; of its shape, unless it may be another. */
static graphc_status check_host(graphc_session *s, uint32_t i, const graphc_tensor *t, bool any) {
    ErrorText e = session_error(s);
    int64_t shape[PLAN_MAX_RANK];
    char text[256];
    if (i >= s->plan->nstates)
        return error_set(e, GRAPHC_USAGE, "the plan has %llu states, there is no %u",
                         (unsigned long long)s->plan->nstates, i);
    if (!t) return error_set(e, GRAPHC_USAGE, "the tensor is NULL");
    const PlanIo *io = &s->plan->states[i].io;
    GC_TRY(tensor_check(s, "state", io, t));
    if (t->device != GRAPHC_CPU)
        return error_set(e, GRAPHC_USAGE, "state \"%s\": the tensor is not in host memory",
                         plan_str(s->plan, io->name));
    state_shape(s, i, shape);
    size_t size = io->rank * sizeof *shape;
    if (any ? state_fits(s, i, io->rank, t->shape) : memcmp(t->shape, shape, size) == 0)
        return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID, "state \"%s\" has shape %s", plan_str(s->plan, io->name),
                     tensor_shape_text(shape, (int32_t)io->rank, text, sizeof text));
}

graphc_status graphc_state_read(graphc_session *s, uint32_t i, const graphc_tensor *t) {
    s->error[0] = 0;
    GC_TRY(check_host(s, i, t, false));
    return state_get(s, i, 0, state_bytes(s, i), t->data, session_error(s));
}

graphc_status graphc_state_write(graphc_session *s, uint32_t i, const graphc_tensor *t) {
    s->error[0] = 0;
    GC_TRY(check_host(s, i, t, true));
    state_resize(s, i, t->shape);
    return state_put(s, i, t->data, session_error(s));
}

graphc_status graphc_state_reset(graphc_session *s, uint32_t i) {
    ErrorText e = session_error(s);
    s->error[0] = 0;
    if (i >= s->plan->nstates)
        return error_set(e, GRAPHC_USAGE, "the plan has %llu states, there is no %u",
                         (unsigned long long)s->plan->nstates, i);
    if (s->plan->states[i].grows) {
        s->state_size[i] = 0;
        s->shapes_changed = true;
    }
    if (!s->state[i].bytes) return GRAPHC_OK;
    GC_TRY(s->res->ops->begin(s->lane, e));
    graphc_status st = fill(s, i, e);
    s->res->ops->end(s->lane);
    return st;
}

graphc_status graphc_state_shape(graphc_session *s, uint32_t i, graphc_tensor *out) {
    s->error[0] = 0;
    if (i >= s->plan->nstates || !out)
        return error_set(session_error(s), GRAPHC_USAGE, "there is no state %u, or no place", i);
    const PlanIo *io = &s->plan->states[i].io;
    DType type = plan_dtype(io->dtype);
    *out = (graphc_tensor){.device = GRAPHC_CPU,
                           .dtype = {dtype_info[type].dlcode, dtype_info[type].dlbits, 1},
                           .rank = (int32_t)io->rank};
    state_shape(s, i, out->shape);
    return GRAPHC_OK;
}
