/* graphc_session: making, binding, running, results. */
#include "runtime/session.h"
#include "runtime/base/cores.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static graphc_status find_output_buffers(graphc_session *s, ErrorText e) {
    for (uint64_t i = 0; i < s->plan->noutputs; i++) {
        uint32_t b = 0;
        while (b < s->res->target->nbuffers &&
               !(s->res->buffers[b].kind == PLAN_BUF_output && s->res->buffers[b].index == i))
            b++;
        if (b == s->res->target->nbuffers)
            return error_set(e, GRAPHC_INVALID, "not a valid plan: nothing makes output \"%s\"",
                             plan_output_name(s->plan, i));
        s->output_buffer[i] = b;
    }
    return GRAPHC_OK;
}

static graphc_status make_arrays(graphc_session *s, ErrorText e) {
    const Plan *p = s->plan;
    const PlanTarget *t = s->res->target;
    s->inputs = calloc(p->ninputs + 1, sizeof *s->inputs);
    s->input_bound = calloc(p->ninputs + 1, 1);
    s->input_copy = calloc(p->ninputs + 1, sizeof *s->input_copy);
    s->packed_at = calloc(p->ninputs + 1, sizeof *s->packed_at);
    s->outputs = calloc(p->noutputs + 1, sizeof *s->outputs);
    s->last = calloc(p->noutputs + 1, sizeof *s->last);
    s->output_own = calloc(p->noutputs + 1, sizeof *s->output_own);
    s->state = calloc(p->nstates + 1, sizeof *s->state);
    s->state_size = calloc(p->nstates + 1, sizeof *s->state_size);
    s->output_host = calloc(p->noutputs + 1, sizeof *s->output_host);
    s->output_buffer = calloc(p->noutputs + 1, sizeof *s->output_buffer);
    s->symbols = calloc(p->nsymbols + 1, sizeof *s->symbols);
    s->slots = calloc(p->nexprs, sizeof *s->slots);
    s->wide = calloc(p->nexprs, sizeof *s->wide);
    s->ready = calloc(p->nsymbols + p->nexprs, 1);
    s->address = calloc((size_t)t->nbuffers + 1, sizeof *s->address);
    s->loop_slot = calloc(p->nexprs, 1);
    s->loop_slots = calloc(p->nexprs, sizeof *s->loop_slots);
    s->trip = calloc((size_t)t->nsteps + 1, sizeof *s->trip);
    s->profile = calloc((size_t)t->nsteps + 1, sizeof *s->profile);
    s->memory = memory_create(p, t);
    bool ok = s->inputs && s->input_bound && s->input_copy && s->packed_at && s->outputs &&
              s->last && s->output_own && s->state && s->state_size && s->output_host &&
              s->output_buffer && s->symbols && s->slots && s->wide && s->ready && s->loop_slot &&
              s->loop_slots && s->address && s->trip && s->profile && s->memory &&
              launch_lay_out(s);
    if (!ok) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a session");
    for (uint64_t i = 0; i < p->nsymbols; i++) s->has_elem |= p->symbols[i].kind == PLAN_SYM_elem;
    return find_output_buffers(s, e);
}

/* What is bound from now on is for another entry. */
static void enter(graphc_session *s, uint32_t entry) {
    s->entry = entry;
    s->steps = plan_range(s->plan, s->res->target, entry);
    s->shapes_changed = s->pointers_changed = true;
    s->ran = false;
}

static graphc_status fill_session(graphc_session *s, const graphc_session_options *o, ErrorText e) {
    graphc_session_options once = *o; /* the system is asked for its cores once: 0.1 ms */
    if (o->device != GRAPHC_CUDA) once.threads = cores_threads(o->threads);
    GC_TRY(resident_acquire(s->owner, &once, &s->res, e));
    GC_TRY(make_arrays(s, e));
    pthread_mutex_lock(&s->owner->lock); /* lanes of one resident open one at a time */
    graphc_status st = s->res->ops->lane_open(s->res, &once, &s->lane, e);
    if (st == GRAPHC_OK) st = state_open(s, e);
    pthread_mutex_unlock(&s->owner->lock);
    /* A stream of the caller's he may record: then it is his memory that a replay has to read. */
    s->packs = s->res->ops->packed && !o->cuda_stream;
    enter(s, 0);
    return st;
}

/* Of options from an older or newer header the part that both know counts. */
static graphc_status read_options(const graphc_session_options *o, graphc_session_options *out,
                                  ErrorText e) {
    if (o && o->size < offsetof(graphc_session_options, device) + sizeof o->device)
        return error_set(e, GRAPHC_USAGE, "the options' size is %u: start from %s", o->size,
                         "GRAPHC_SESSION_OPTIONS_INIT");
    if (o) memcpy(out, o, o->size < sizeof *out ? o->size : sizeof *out);
    if (out->device != GRAPHC_CPU && out->device != GRAPHC_CUDA)
        return error_set(e, GRAPHC_USAGE, "unknown device kind %d", (int)out->device);
    if (out->device_id < 0 || (out->device == GRAPHC_CPU && out->device_id != 0))
        return error_set(e, GRAPHC_USAGE, "there is no device number %d", out->device_id);
    const char *env = getenv("GRAPHC_CHECK");
    if (env && *env && strcmp(env, "0") != 0) out->check = 1;
    if (out->isa_limit != 0 && out->isa_limit != 3 && out->isa_limit != 4)
        return error_set(e, GRAPHC_USAGE, "isa_limit is %u, not 0, 3 or 4", out->isa_limit);
    return GRAPHC_OK;
}

graphc_status graphc_session_create(const graphc_plan *p, const graphc_session_options *o,
                                    graphc_session **out, char *error, size_t error_size) {
    ErrorText e = {error, error_size};
    if (error && error_size) error[0] = 0;
    if (!p || !out)
        return error_set(e, GRAPHC_USAGE, "graphc_session_create needs a plan and a place");
    *out = NULL;
    graphc_session_options options = GRAPHC_SESSION_OPTIONS_INIT;
    GC_TRY(read_options(o, &options, e));
    graphc_session *s = calloc(1, sizeof *s);
    if (!s) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a session");
    s->owner = (graphc_plan *)(uintptr_t)p; /* only its list of residents changes, under its lock */
    s->plan = &p->plan;
    s->checking = options.check != 0;
    graphc_status st = fill_session(s, &options, e);
    if (st == GRAPHC_OK)
        *out = s;
    else
        graphc_session_destroy(s);
    return st;
}

static void host_free(graphc_session *s, OwnMemory *m) {
    if (m->p && s->res->ops->host_unlock) s->res->ops->host_unlock(s->res, m->p, m->bytes);
    free(m->p);
    *m = (OwnMemory){0};
}

static void free_memory(graphc_session *s, OwnMemory *m, uint64_t n) {
    for (uint64_t i = 0; m && i < n; i++)
        if (m[i].p) s->res->ops->free(s->res, m[i].p, m[i].bytes);
    free(m);
}

static void free_device_things(graphc_session *s) {
    if (s->lane) (void)s->res->ops->sync(s->lane, (ErrorText){0});
    if (s->replay_free) s->replay_free(s);
    free_memory(s, s->input_copy, s->plan->ninputs);
    free_memory(s, s->output_own, s->plan->noutputs);
    for (uint64_t i = 0; s->output_host && i < s->plan->noutputs; i++)
        host_free(s, &s->output_host[i]);
    free(s->output_host);
    free_memory(s, s->kept, s->plan->nstates);
    state_close(s);
    OwnMemory own[] = {s->workspace, s->zeroed, s->swept, s->packed};
    for (int i = 0; i < 4; i++)
        if (own[i].p) s->res->ops->free(s->res, own[i].p, own[i].bytes);
    s->res->ops->lane_close(s->lane);
}

void graphc_session_destroy(graphc_session *s) {
    if (!s) return;
    if (s->res) free_device_things(s);
    free(s->state_size);
    free(s->kept_size);
    free(s->inputs);
    free(s->input_bound);
    free(s->packed_at);
    free(s->packing);
    free(s->outputs);
    free(s->last);
    free(s->output_buffer);
    free(s->symbols);
    free(s->slots);
    free(s->wide);
    free(s->ready);
    free(s->loop_slot);
    free(s->loop_slots);
    free(s->address);
    free(s->step);
    free(s->kernel_steps);
    free(s->pointers);
    free(s->dims);
    free(s->maps);
    free(s->trip);
    free(s->profile);
    memory_destroy(s->memory);
    if (s->res) resident_release(s->owner, s->res);
    free(s);
}

const graphc_plan *graphc_session_plan(const graphc_session *s) {
    return s->owner;
}

const char *graphc_session_error(const graphc_session *s) {
    return s->error;
}

graphc_status graphc_bind_input(graphc_session *s, uint32_t i, const graphc_tensor *t) {
    s->error[0] = 0;
    if (!t) return error_set(session_error(s), GRAPHC_USAGE, "the tensor is NULL");
    if (i >= s->plan->ninputs)
        return error_set(session_error(s), GRAPHC_USAGE, "the plan has %llu inputs, there is no %u",
                         (unsigned long long)s->plan->ninputs, i);
    GC_TRY(tensor_check(s, "input", &s->plan->inputs[i], t));
    graphc_tensor *old = &s->inputs[i];
    size_t shape = (size_t)t->rank * sizeof *t->shape;
    if (!s->input_bound[i] || memcmp(old->shape, t->shape, shape) != 0) s->shapes_changed = true;
    if (old->data != t->data || old->device != t->device) s->pointers_changed = true;
    *old = *t;
    s->input_bound[i] = 1;
    s->inputs_there = false;
    return GRAPHC_OK;
}

graphc_status graphc_bind_output(graphc_session *s, uint32_t i, const graphc_tensor *t) {
    s->error[0] = 0;
    if (i >= s->plan->noutputs)
        return error_set(session_error(s), GRAPHC_USAGE,
                         "the plan has %llu outputs, there is no %u",
                         (unsigned long long)s->plan->noutputs, i);
    bool bound = t && t->data;
    if (bound) GC_TRY(tensor_check(s, "output", &s->plan->outputs[i], t));
    s->outputs[i] = bound ? *t : (graphc_tensor){0};
    s->pointers_changed = true;
    s->ran = false;
    return GRAPHC_OK;
}

graphc_status graphc_workspace_size(graphc_session *s, size_t *bytes) {
    s->error[0] = 0;
    if (!bytes) return error_set(session_error(s), GRAPHC_USAGE, "the place for the size is NULL");
    GC_TRY(bind_all(s));
    if (memory_is_loose(s->memory)) { /* the caller's need be no larger than its sizes ask */
        GC_TRY(memory_assign(s->memory, s->steps, s->slots, session_error(s)));
        s->pointers_changed = true;
    }
    uint64_t scratch = memory_scratch(s->plan, s->res->target, s->steps, s->slots);
    *bytes = memory_arena(s->memory) + s->res->ops->lane_scratch(s->lane, scratch);
    return GRAPHC_OK;
}

graphc_status graphc_bind_workspace(graphc_session *s, void *p, size_t bytes) {
    s->error[0] = 0;
    if ((uintptr_t)p % 64)
        return error_set(session_error(s), GRAPHC_USAGE, "the workspace is not 64-byte aligned");
    s->given = (OwnMemory){p, bytes};
    s->pointers_changed = true;
    s->shapes_changed |= memory_is_loose(s->memory);
    return GRAPHC_OK;
}

static graphc_status choose_entry(graphc_session *s, uint32_t entry) {
    if (entry >= s->plan->nentries)
        return error_set(session_error(s), GRAPHC_USAGE,
                         "the plan has %llu entries, there is no %u",
                         (unsigned long long)s->plan->nentries, entry);
    if (entry != s->entry) enter(s, entry);
    return GRAPHC_OK;
}

/* Each copy costs the host more than a few kilobytes take. From pageable memory, as `packing` is, a
 * copy returns when the bytes are staged: the next run may write there. */
static graphc_status copy_inputs(graphc_session *s) {
    ErrorText e = session_error(s);
    if (s->hold_inputs && s->inputs_there) return GRAPHC_OK;
    for (uint64_t i = 0; i < s->plan->ninputs; i++) {
        const graphc_tensor *t = &s->inputs[i];
        uint64_t bytes = 0;
        if (!session_takes(s, i) || !bind_input_copied(s, i)) continue;
        tensor_bytes(plan_dtype(s->plan->inputs[i].dtype), t->shape, t->rank, &bytes);
        if (bytes && s->packed_at[i])
            memcpy(s->packing + s->packed_at[i] - 1, t->data, bytes);
        else if (bytes)
            GC_TRY(s->res->ops->copy(s->lane, s->input_copy[i].p, t->data, bytes, e));
    }
    if (s->packed_bytes)
        GC_TRY(s->res->ops->copy(s->lane, s->packed.p, s->packing, s->packed_bytes, e));
    s->inputs_there = true;
    return GRAPHC_OK;
}

/* Shape of output i after a run; its bytes fit into the buffer that kernels wrote. */
static graphc_status output_shape(graphc_session *s, uint64_t i, int64_t *shape, uint64_t *bytes) {
    const PlanIo *io = &s->plan->outputs[i];
    for (uint32_t k = 0; k < io->rank; k++) shape[k] = s->slots[s->plan->lists[io->dims + k]];
    int64_t room = s->slots[s->res->buffers[s->output_buffer[i]].bytes];
    if (tensor_bytes(plan_dtype(io->dtype), shape, (int32_t)io->rank, bytes) &&
        *bytes <= (uint64_t)room)
        return GRAPHC_OK;
    return error_set(session_error(s), GRAPHC_RUNTIME, "output \"%s\" is larger than its memory",
                     plan_str(s->plan, io->name));
}

/* Outputs that kernels could not write to the caller's memory themselves. */
static graphc_status copy_outputs(graphc_session *s) {
    bool to_host = false;
    for (uint64_t i = 0; i < s->plan->noutputs; i++) {
        const graphc_tensor *t = &s->outputs[i];
        int64_t shape[PLAN_MAX_RANK];
        uint64_t bytes;
        if (!session_gives(s, i)) continue;
        GC_TRY(output_shape(s, i, shape, &bytes));
        if (!t->data || bind_output_direct(s, i)) continue;
        if (memcmp(shape, t->shape, (size_t)t->rank * sizeof *shape) != 0) {
            char text[256];
            return error_set(session_error(s), GRAPHC_INVALID, "output \"%s\" has shape %s",
                             plan_output_name(s->plan, i),
                             tensor_shape_text(shape, t->rank, text, sizeof text));
        }
        if (bytes)
            GC_TRY(s->res->ops->copy(s->lane, t->data, s->address[s->output_buffer[i]], bytes,
                                     session_error(s)));
        to_host |= t->device == GRAPHC_CPU;
    }
    return to_host ? s->res->ops->sync(s->lane, session_error(s)) : GRAPHC_OK;
}

static graphc_status run_bound(graphc_session *s) {
    const PlanTarget *t = s->res->target;
    GC_TRY(copy_inputs(s));
    if (s->profiling) memset(s->profile, 0, t->nsteps * sizeof *s->profile);
    if (s->res->ops->run && !s->profiling && !s->checking && !s->watch)
        GC_TRY(s->res->ops->run(s));
    else
        GC_TRY(steps_run(s, s->steps.from, s->steps.to));
    return copy_outputs(s);
}

graphc_status graphc_run(graphc_session *s) {
    return graphc_run_entry(s, 0);
}

graphc_status graphc_run_entry(graphc_session *s, uint32_t entry) {
    s->error[0] = 0;
    s->ran = s->is_last = false;
    GC_TRY(choose_entry(s, entry));
    GC_TRY(bind_all(s));
    for (uint64_t i = 0; s->checking && i < s->plan->ninputs; i++)
        if (session_takes(s, i)) GC_TRY(tensor_positions(s, i));
    GC_TRY(bind_memory(s));
    GC_TRY(s->res->ops->begin(s->lane, session_error(s)));
    graphc_status st = run_bound(s);
    lean_over(s);
    s->res->ops->end(s->lane);
    s->ran = st == GRAPHC_OK;
    if (s->ran) state_grown(s);
    return st;
}

static graphc_status mark(graphc_session *s, uint32_t i) {
    ErrorText e = session_error(s);
    GC_TRY(s->res->ops->begin(s->lane, e));
    graphc_status st = s->res->ops->mark(s->lane, i, e);
    if (i && st == GRAPHC_OK) st = s->res->ops->sync(s->lane, e);
    s->res->ops->end(s->lane);
    return st;
}

graphc_status graphc_run_timed(graphc_session *s, uint32_t n, double *seconds) {
    s->error[0] = 0;
    if (!n || !seconds || s->profiling)
        return error_set(session_error(s), GRAPHC_USAGE,
                         "timed runs need a number, a place for the time and profiling off");
    GC_TRY(mark(s, 0));
    for (uint32_t i = 0; i < n; i++) GC_TRY(graphc_run(s));
    GC_TRY(mark(s, 1));
    *seconds = s->res->ops->seconds(s->lane);
    return GRAPHC_OK;
}

void graphc_hold_inputs(graphc_session *s, bool on) {
    s->hold_inputs = on;
}

graphc_status graphc_sync(graphc_session *s) {
    s->error[0] = 0;
    GC_TRY(s->res->ops->begin(s->lane, session_error(s)));
    graphc_status st = s->res->ops->sync(s->lane, session_error(s));
    s->res->ops->end(s->lane);
    return st;
}

graphc_status graphc_state_gradients(graphc_session *s, graphc_tensor *out) {
    s->error[0] = 0;
    if (!out) return error_set(session_error(s), GRAPHC_USAGE, "there is no place for the tensor");
    *out = (graphc_tensor){.data = s->gradients.p,
                           .device = s->res->ops->kind,
                           .device_id = s->res->device_id,
                           .dtype = {dtype_info[DT_f32].dlcode, dtype_info[DT_f32].dlbits, 1},
                           .rank = 1,
                           .shape = {(int64_t)(s->gradients.bytes / sizeof(float))}};
    return graphc_sync(s);
}

/* Output i is asked for, to be described at `out`. */
static graphc_status check_output(graphc_session *s, uint32_t i, const graphc_tensor *out) {
    if (!out) return error_set(session_error(s), GRAPHC_USAGE, "the place for the tensor is NULL");
    if (i >= s->plan->noutputs)
        return error_set(session_error(s), GRAPHC_USAGE,
                         "the plan has %llu outputs, there is no %u",
                         (unsigned long long)s->plan->noutputs, i);
    if (session_gives(s, i)) return GRAPHC_OK;
    return error_set(session_error(s), GRAPHC_USAGE, "entry \"%s\" does not give output \"%s\"",
                     plan_str(s->plan, session_entry(s)->name), plan_output_name(s->plan, i));
}

/* Without a shape. */
static graphc_tensor output_tensor(const graphc_session *s, uint32_t i, void *data) {
    const PlanIo *io = &s->plan->outputs[i];
    DType type = plan_dtype(io->dtype);
    return (graphc_tensor){.data = data,
                           .device = s->res->ops->kind,
                           .device_id = s->res->device_id,
                           .dtype = {dtype_info[type].dlcode, dtype_info[type].dlbits, 1},
                           .rank = (int32_t)io->rank};
}

graphc_status graphc_output_shape(graphc_session *s, uint32_t entry, uint32_t i,
                                  graphc_tensor *out) {
    s->error[0] = 0;
    GC_TRY(choose_entry(s, entry));
    GC_TRY(check_output(s, i, out));
    GC_TRY(bind_all(s));
    const PlanIo *io = &s->plan->outputs[i];
    *out = output_tensor(s, i, NULL);
    for (uint32_t k = 0; k < io->rank; k++) {
        PlanSlot slot = s->plan->lists[io->dims + k];
        out->shape[k] = s->plan->stage[slot] == PLAN_STAGE_run ? -1 : s->slots[slot];
    }
    return GRAPHC_OK;
}

static graphc_status output_now(graphc_session *s, uint32_t i, graphc_tensor *out) {
    *out = output_tensor(s, i, s->address[s->output_buffer[i]]);
    uint64_t bytes;
    GC_TRY(output_shape(s, i, out->shape, &bytes));
    if (s->outputs[i].data) {
        out->data = s->outputs[i].data;
        out->device = s->outputs[i].device;
        out->device_id = s->outputs[i].device_id;
    }
    return GRAPHC_OK;
}

/* Outputs of the run behind, before sizes and addresses are another's. */
static graphc_status keep_outputs(graphc_session *s) {
    for (uint32_t i = 0; i < s->plan->noutputs && !s->is_last; i++)
        if (session_gives(s, i)) GC_TRY(output_now(s, i, &s->last[i]));
    s->is_last = true;
    return GRAPHC_OK;
}

static graphc_status prepare_bound(graphc_session *s) {
    GC_TRY(bind_all(s));
    GC_TRY(bind_memory(s));
    if (!s->res->ops->prepare || s->profiling || s->checking || s->watch) return GRAPHC_OK;
    GC_TRY(s->res->ops->begin(s->lane, session_error(s)));
    graphc_status st = s->res->ops->prepare(s);
    s->res->ops->end(s->lane);
    return st;
}

graphc_status graphc_prepare_run(graphc_session *s, uint32_t entry) {
    s->error[0] = 0;
    GC_TRY(choose_entry(s, entry));
    bool ran = s->ran;
    if (ran) GC_TRY(keep_outputs(s));
    s->ahead = true;
    graphc_status st = prepare_bound(s);
    s->ahead = false;
    s->ran = ran;
    if (st != GRAPHC_NO_MEMORY) return st;
    s->error[0] = 0;
    return GRAPHC_OK;
}

graphc_status graphc_output(graphc_session *s, uint32_t i, graphc_tensor *out) {
    s->error[0] = 0;
    GC_TRY(check_output(s, i, out));
    if (!s->ran)
        return error_set(session_error(s), GRAPHC_USAGE,
                         "there is no output: no run with these bindings has succeeded");
    if (s->is_last) {
        *out = s->last[i];
        return GRAPHC_OK;
    }
    return output_now(s, i, out);
}

/* Host memory for output i, grown when needed. */
static graphc_status host_reserve(graphc_session *s, uint32_t i, uint64_t bytes) {
    OwnMemory *m = &s->output_host[i];
    if (m->bytes >= bytes && m->p) return GRAPHC_OK;
    const DeviceOps *ops = s->res->ops;
    host_free(s, m);
    m->p = malloc(bytes ? bytes : 1);
    if (!m->p)
        return error_set(session_error(s), GRAPHC_NO_MEMORY, "no memory for a copy of output %u",
                         i);
    m->bytes = bytes;
    if (ops->host_lock) ops->host_lock(s->res, m->p, bytes);
    return GRAPHC_OK;
}

static graphc_status copy_to_host(graphc_session *s, uint32_t i, const graphc_tensor *from) {
    uint64_t bytes = 0;
    ErrorText e = session_error(s);
    tensor_bytes(plan_dtype(s->plan->outputs[i].dtype), from->shape, from->rank, &bytes);
    GC_TRY(host_reserve(s, i, bytes));
    GC_TRY(s->res->ops->begin(s->lane, e));
    graphc_status st = s->res->ops->copy(s->lane, s->output_host[i].p, from->data, bytes, e);
    if (st == GRAPHC_OK) st = s->res->ops->sync(s->lane, e);
    s->res->ops->end(s->lane);
    return st;
}

graphc_status graphc_output_host(graphc_session *s, uint32_t i, graphc_tensor *out) {
    GC_TRY(graphc_output(s, i, out));
    if (out->device == GRAPHC_CPU) return GRAPHC_OK;
    GC_TRY(copy_to_host(s, i, out));
    out->data = s->output_host[i].p;
    out->device = GRAPHC_CPU;
    out->device_id = 0;
    return GRAPHC_OK;
}

const char *graphc_session_code(const graphc_session *s) {
    return s->res->target->nkernels ? plan_form_name(s->res->form) : "";
}

uint64_t graphc_session_peak(const graphc_session *s) {
    return s->res->ops->peak ? s->res->ops->peak(s->res) : 0;
}

uint32_t graphc_session_threads(const graphc_session *s) {
    return s->res->ops->lane_threads(s->lane);
}

void graphc_session_profile(graphc_session *s, bool on) {
    s->profiling = on;
}

uint32_t graphc_profile_steps(const graphc_session *s) {
    return s->nkernel_steps;
}

graphc_step_profile graphc_profile_step(const graphc_session *s, uint32_t i) {
    if (i >= s->nkernel_steps) return (graphc_step_profile){0};
    uint32_t step = s->kernel_steps[i];
    const PlanKernel *k = &s->res->kernels[s->step[step].kernel];
    const StepProfile *p = &s->profile[step];
    return (graphc_step_profile){plan_str(s->plan, k->name),
                                 plan_str(s->plan, k->kind),
                                 p->seconds,
                                 p->bytes,
                                 p->flops,
                                 p->threads,
                                 plan_str(s->plan, k->nodes)};
}
