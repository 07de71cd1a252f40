/* What a session keeps from run to run. */
#include "runtime/session.h"
#include <stdlib.h>

void state_shape(const graphc_session *s, uint64_t i, int64_t *shape) {
    const PlanIo *io = &s->plan->states[i].io;
    for (uint32_t k = 0; k < io->rank; k++) shape[k] = s->res->slots[s->plan->lists[io->dims + k]];
}

/* Its shape and size, known with the plan. */
static graphc_status measure(const graphc_session *s, uint64_t i, int64_t *shape, uint64_t *bytes,
                             ErrorText e) {
    const PlanIo *io = &s->plan->states[i].io;
    state_shape(s, i, shape);
    if (tensor_bytes(plan_dtype(io->dtype), shape, (int32_t)io->rank, bytes)) return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID, "not a valid plan: state \"%s\" has an impossible shape",
                     plan_str(s->plan, io->name));
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
    resident_constant_used(s->res, c, bytes);
    return GRAPHC_OK;
}

static graphc_status open_one(graphc_session *s, uint64_t i, ErrorText e) {
    int64_t shape[PLAN_MAX_RANK];
    uint64_t bytes = 0;
    GC_TRY(measure(s, i, shape, &bytes, e));
    if (!bytes) return GRAPHC_OK;
    GC_TRY(s->res->ops->alloc(s->res, bytes, &s->state[i].p, e));
    s->state[i].bytes = bytes;
    return fill(s, i, e);
}

graphc_status state_open(graphc_session *s, ErrorText e) {
    if (!s->plan->nstates) return GRAPHC_OK;
    GC_TRY(s->res->ops->begin(s->lane, e));
    graphc_status st = GRAPHC_OK;
    for (uint64_t i = 0; i < s->plan->nstates && st == GRAPHC_OK; i++) st = open_one(s, i, e);
    s->res->ops->end(s->lane);
    return st == GRAPHC_OK ? check_buffers(s, e) : st;
}

void state_close(graphc_session *s) {
    for (uint64_t i = 0; s->state && i < s->plan->nstates; i++)
        if (s->state[i].p) s->res->ops->free(s->res, s->state[i].p, s->state[i].bytes);
    free(s->state);
}

/* A tensor in host memory of the state's type and shape. */
static graphc_status check_host(graphc_session *s, uint32_t i, const graphc_tensor *t) {
    ErrorText e = session_error(s);
    int64_t shape[PLAN_MAX_RANK];
    uint64_t bytes = 0;
    char text[256];
    if (i >= s->plan->nstates)
        return error_set(e, GRAPHC_USAGE, "the plan has %llu states, there is no %u",
                         (unsigned long long)s->plan->nstates, i);
    if (!t) return error_set(e, GRAPHC_USAGE, "the tensor is NULL");
    const PlanIo *io = &s->plan->states[i].io;
    GC_TRY(session_check_tensor(s, "state", io, t));
    GC_TRY(measure(s, i, shape, &bytes, e));
    if (t->device != GRAPHC_CPU)
        return error_set(e, GRAPHC_USAGE, "state \"%s\": the tensor is not in host memory",
                         plan_str(s->plan, io->name));
    for (uint32_t k = 0; k < io->rank; k++)
        if (t->shape[k] != shape[k])
            return error_set(e, GRAPHC_INVALID, "state \"%s\" has shape %s",
                             plan_str(s->plan, io->name),
                             bind_shape_text(shape, (int32_t)io->rank, text, sizeof text));
    return GRAPHC_OK;
}

graphc_status state_copy(graphc_session *s, void *to, const void *from, uint64_t bytes,
                         ErrorText e) {
    if (!bytes) return GRAPHC_OK;
    GC_TRY(s->res->ops->begin(s->lane, e));
    graphc_status st = s->res->ops->copy(s->lane, to, from, bytes, e);
    if (st == GRAPHC_OK) st = s->res->ops->sync(s->lane, e);
    s->res->ops->end(s->lane);
    return st;
}

graphc_status graphc_state_read(graphc_session *s, uint32_t i, const graphc_tensor *t) {
    s->error[0] = 0;
    GC_TRY(check_host(s, i, t));
    return state_copy(s, t->data, s->state[i].p, s->state[i].bytes, session_error(s));
}

graphc_status graphc_state_write(graphc_session *s, uint32_t i, const graphc_tensor *t) {
    s->error[0] = 0;
    GC_TRY(check_host(s, i, t));
    return state_copy(s, s->state[i].p, t->data, s->state[i].bytes, session_error(s));
}
