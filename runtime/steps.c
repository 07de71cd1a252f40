/* Walking a plan's steps: launches, loops, ifs, run-time symbols. */
#include "runtime/session.h"

/* The bytes that a buffer has, whatever the plan says of a caller's tensor. */
static uint64_t buffer_bytes(const graphc_session *s, uint32_t buffer) {
    const PlanBuffer *b = &s->res->buffers[buffer];
    uint64_t bytes = (uint64_t)s->slots[b->bytes];
    if (b->kind == PLAN_BUF_const) return s->plan->constants[b->index].length;
    if (b->kind == PLAN_BUF_input) {
        const graphc_tensor *t = &s->inputs[b->index];
        if (!tensor_bytes(plan_dtype(b->dtype), t->shape, t->rank, &bytes)) return 0;
    }
    return bytes;
}

static graphc_status read_scalar(graphc_session *s, uint32_t buffer, void *to, uint64_t bytes) {
    if (buffer_bytes(s, buffer) < bytes)
        return error_set(session_error(s), GRAPHC_INVALID,
                         "not a valid plan: a scalar is read from buffer b%u, which has %llu bytes",
                         buffer, (unsigned long long)buffer_bytes(s, buffer));
    GC_TRY(s->res->ops->copy(s->lane, to, s->address[buffer], bytes, session_error(s)));
    return s->res->ops->sync(s->lane, session_error(s));
}

/* Reads back the symbols that a kernel has found out. */
static graphc_status read_symbols(graphc_session *s, const PlanStep *st) {
    const Plan *p = s->plan;
    for (uint32_t i = 0; i < st->ndata; i++) {
        uint32_t sym = p->lists[st->data + 2 * i];
        int64_t v = 0;
        GC_TRY(read_scalar(s, p->lists[st->data + 2 * i + 1], &v, sizeof v));
        if (v < p->symbols[sym].lo || v > p->symbols[sym].hi)
            return error_set(
                session_error(s), GRAPHC_RUNTIME, "kernel %s gave %s = %lld, outside %lld..%lld",
                plan_str(p, s->res->kernels[st->kernel].name), plan_str(p, p->symbols[sym].name),
                (long long)v, (long long)p->symbols[sym].lo, (long long)p->symbols[sym].hi);
        s->symbols[sym] = v;
        s->ready[sym] = 1;
    }
    return bind_runtime(s);
}

static graphc_status launch_profiled(graphc_session *s, uint32_t i, const Launch *l) {
    const DeviceOps *ops = s->res->ops;
    const PlanKernel *k = &s->res->kernels[l->kernel];
    ErrorText e = session_error(s);
    GC_TRY(ops->mark(s->lane, 0, e));
    GC_TRY(ops->launch(s->lane, l, e));
    GC_TRY(ops->mark(s->lane, 1, e));
    GC_TRY(ops->sync(s->lane, e));
    StepProfile *p = &s->profile[i];
    uint32_t threads = ops->parts ? ops->parts(s->lane) : 1;
    p->seconds += ops->seconds(s->lane);
    p->bytes += (double)s->slots[k->bytes_read] + (double)s->slots[k->bytes_written];
    p->flops += (double)s->slots[k->flops];
    if (threads > p->threads) p->threads = threads;
    return GRAPHC_OK;
}

static graphc_status launch_step(graphc_session *s, uint32_t i, const Launch *l) {
    if (s->profiling) return launch_profiled(s, i, l);
    GC_TRY(s->res->ops->launch(s->lane, l, session_error(s)));
    return s->checking ? s->res->ops->sync(s->lane, session_error(s)) : GRAPHC_OK;
}

static graphc_status run_kernel(graphc_session *s, uint32_t i) {
    const PlanStep *st = &s->res->steps[i];
    if (s->step[i].dynamic) GC_TRY(launch_encode(s, i));
    Launch l = launch_of_step(s, i);
    graphc_status got = launch_step(s, i, &l);
    if (got == GRAPHC_RUNTIME && s->checking)
        return launch_named(s->res, l.kernel, got, session_error(s));
    GC_TRY(got);
    return st->ndata ? read_symbols(s, st) : GRAPHC_OK;
}

static graphc_status read_condition(graphc_session *s, const PlanStep *st, bool *out) {
    uint8_t v = 1;
    if (st->cond_buf) GC_TRY(read_scalar(s, st->cond_buf - 1, &v, 1));
    *out = v != 0;
    return GRAPHC_OK;
}

static graphc_status enter_loop(graphc_session *s, uint32_t i) {
    const PlanStep *st = &s->res->steps[i];
    s->trip[i] = s->slots[st->trip];
    if (st->trip_buf) GC_TRY(read_scalar(s, st->trip_buf - 1, &s->trip[i], sizeof s->trip[i]));
    s->symbols[st->iter] = 0;
    return GRAPHC_OK;
}

/* At the head of an iteration: *next is the step to go on with. */
static graphc_status test_loop(graphc_session *s, uint32_t i, uint32_t *next) {
    const PlanStep *st = &s->res->steps[i];
    bool go = s->symbols[st->iter] < s->trip[i];
    if (go) GC_TRY(read_condition(s, st, &go));
    *next = go ? i + 1 : st->match + 1;
    if (go) return bind_iteration(s, i);
    bind_loop_left(s, i);
    return GRAPHC_OK;
}

graphc_status steps_run(graphc_session *s, uint32_t from, uint32_t to) {
    const PlanStep *steps = s->res->steps;
    for (uint32_t i = from, next; i < to; i = next) {
        const PlanStep *st = &steps[i];
        bool go;
        next = i + 1;
        GC_TRY(lean_before(s, i));
        switch ((PlanStepKind)st->kind) {
        case PLAN_STEP_kernel: GC_TRY(run_kernel(s, i)); break;
        case PLAN_STEP_loop:
            GC_TRY(enter_loop(s, i));
            GC_TRY(test_loop(s, i, &next));
            break;
        case PLAN_STEP_loop_end:
            s->symbols[steps[st->match].iter]++;
            GC_TRY(test_loop(s, st->match, &next));
            break;
        case PLAN_STEP_if:
            GC_TRY(read_condition(s, st, &go));
            if (!go) next = st->match + 1;
            break;
        case PLAN_STEP_else: next = st->match + 1; break;
        default: break;
        }
        if (s->watch) GC_TRY(s->watch(s->watch_ctx, s, i, next));
        lean_behind(s, next);
    }
    return GRAPHC_OK;
}

void watch_steps(graphc_session *s, WatchStep fn, void *ctx) {
    s->watch = fn;
    s->watch_ctx = ctx;
}

uint64_t watch_bytes(const graphc_session *s, uint32_t buffer) {
    bool there = s->address[plan_root(s->res->buffers, buffer)] != s->res->nowhere;
    return there ? buffer_bytes(s, buffer) : 0; /* only other prepare steps needed it */
}

void *watch_host(const graphc_session *s, uint32_t buffer) {
    return s->res->ops->own_memory ? NULL : s->address[buffer];
}

graphc_status watch_read(graphc_session *s, uint32_t buffer, void *to, uint64_t bytes) {
    if (!bytes) return GRAPHC_OK;
    GC_TRY(s->res->ops->copy(s->lane, to, s->address[buffer], bytes, session_error(s)));
    return s->res->ops->sync(s->lane, session_error(s));
}
