/* One target of a plan on one device: opening constants, running prepare steps, sharing. */
#include "runtime/resident/resident.h"
#include "runtime/base/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <limits.h>
#include <string.h>

static graphc_status run_prepare_steps(Resident *r, const graphc_session_options *o, ErrorText e) {
    Lane *lane;
    uint32_t next = 0;
    graphc_session_options one_by_one = *o;
    one_by_one.check = 1;
    GC_TRY(r->ops->lane_open(r, &one_by_one, &lane, e));
    stage_open(r);
    graphc_status st = r->ops->each
                           ? crew_prepare(r, &one_by_one, lane, e)
                           : resident_prepare(r, lane, NULL, &next, r->target->nprepare, e);
    stage_close(r);
    r->ops->lane_close(lane);
    return st;
}

/* Constants that runs read; those of prepare steps only came and went with them. */
static graphc_status load_rest(Resident *r, ErrorText e) {
    for (uint32_t i = 0; i < r->target->nbuffers; i++) {
        if (r->address[i] || r->buffers[i].last < r->target->nprepare) continue;
        if (resident_is(r, i, PLAN_BUF_const)) GC_TRY(resident_load(r, NULL, i, e));
        if (resident_is(r, i, PLAN_BUF_prepared))
            return error_set(e, GRAPHC_INVALID, "no prepare step writes buffer b%u", i);
    }
    return GRAPHC_OK;
}

static void resident_destroy(Resident *r) {
    if (!r) return;
    const Plan *p = &r->owner->plan;
    if (r->address && r->owned)
        for (uint32_t i = 0; i < r->target->nbuffers; i++) resident_drop(r, i);
    if (r->left.p) r->ops->free(r, r->left.p, r->left.bytes);
    stage_close(r);
    lean_close(r);
    free(r->over);
    r->ops->close(r);
    for (uint64_t i = 0; r->mapped && i < p->nconstants; i++)
        if (r->mapped[i]) file_unmap(&r->files[i]);
    free(r->address);
    free(r->owned);
    free(r->slots);
    free(r->files);
    free(r->mapped);
    free(r->weights);
    free(r);
}

/* What runs read, as prepare steps leave it. */
static bool stays(const Resident *r, uint32_t i) {
    bool there = resident_is(r, i, PLAN_BUF_const) || resident_is(r, i, PLAN_BUF_prepared);
    return there && r->buffers[i].last >= r->target->nprepare;
}

uint64_t resident_bytes(const Resident *r) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->target->nbuffers; i++) {
        int64_t bytes = stays(r, i) ? r->slots[r->buffers[i].bytes] : 0;
        if (bytes > 0) sum += (uint64_t)bytes;
    }
    return sum;
}

static graphc_status say_need(const Resident *r, graphc_status st, ErrorText e) {
    size_t n = e.text && e.size ? strlen(e.text) : 0;
    if (n)
        snprintf(e.text + n, e.size - n,
                 "; the plan's weights take %.1f MB there, and more while they are "
                 "prepared: free what other programs hold, or compile for a lower --precision",
                 1e-6 * (double)resident_bytes(r));
    return st;
}

static bool is_lean(const Resident *r, const graphc_session_options *o) {
    return o->lean && r->ops->rest;
}

static graphc_status resident_fill(Resident *r, const graphc_session_options *o, ErrorText e) {
    const Plan *p = &r->owner->plan;
    size_t nb = (size_t)r->target->nbuffers + 1, nc = p->nconstants + 1;
    r->address = calloc(nb, sizeof *r->address);
    r->owned = calloc(nb, 1);
    r->slots = calloc(p->nexprs, sizeof *r->slots);
    r->files = calloc(nc, sizeof *r->files);
    r->mapped = calloc(nc, 1);
    int64_t *symbols = calloc(p->nsymbols + 1, sizeof *symbols);
    if (o->weights_dir && asprintf(&r->weights, "%s/.", o->weights_dir) < 0) r->weights = NULL;
    PlanWide *wide = calloc(p->nexprs, sizeof *wide);
    bool ok = r->address && r->owned && r->slots && wide && r->files && r->mapped && symbols &&
              !r->weights == !o->weights_dir;
    if (ok) plan_eval(p, symbols, wide, r->slots, PLAN_STAGE_plan);
    free(symbols);
    free(wide);
    if (!ok) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to load the plan");
    GC_TRY(r->ops->open(r, o, e));
    graphc_status st = is_lean(r, o) ? lean_open(r, o, e) : run_prepare_steps(r, o, e);
    if (st == GRAPHC_OK) st = load_rest(r, e);
    return st == GRAPHC_NO_MEMORY ? say_need(r, st, e) : st;
}

static graphc_status resident_create(const graphc_plan *p, const graphc_session_options *o,
                                     const PlanTarget *t, Resident **out, ErrorText e) {
    Resident *r = calloc(1, sizeof *r);
    if (!r) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to load the plan");
    r->owner = p;
    r->target = t;
    r->buffers = p->plan.buffers + t->buffers;
    r->kernels = p->plan.kernels + t->kernels;
    r->steps = p->plan.steps + t->steps;
    r->ops = o->device == GRAPHC_CUDA ? &device_cuda : &device_cpu;
    r->device_id = o->device_id;
    r->isa_limit = o->isa_limit;
    r->stage.fd = -1;
    graphc_status st = resident_fill(r, o, e);
    if (st == GRAPHC_OK)
        *out = r;
    else
        resident_destroy(r);
    return st;
}

/* Of the targets for the kind of device the one that this device runs best. */
static graphc_status find_target(const graphc_plan *p, const graphc_session_options *o,
                                 const PlanTarget **out, ErrorText e) {
    bool cuda = o->device == GRAPHC_CUDA;
    const DeviceOps *ops = cuda ? &device_cuda : &device_cpu;
    PlanDevice device = cuda ? PLAN_cuda : PLAN_cpu;
    uint32_t best = 0;
    *out = NULL;
    for (uint64_t i = 0; i < p->plan.ntargets; i++) {
        const PlanTarget *t = &p->plan.targets[i];
        uint32_t rank = 1;
        if (t->device != (uint32_t)device) continue;
        if (ops->rank) GC_TRY(ops->rank(plan_str(&p->plan, t->name), o, &rank, e));
        if (rank > best) *out = t;
        if (rank > best) best = rank;
    }
    if (*out) return GRAPHC_OK;
    const PlanTarget *other = plan_find_target(&p->plan, device);
    if (other)
        return error_set(e, GRAPHC_UNSUPPORTED,
                         "the plan has code for %s, which this GPU does not run; compile it for "
                         "the architecture that \"graphc doctor\" tells",
                         plan_str(&p->plan, other->name));
    return error_set(e, GRAPHC_UNSUPPORTED,
                     cuda ? "the plan has no code for CUDA; compile it with the GPU's "
                            "architecture as --target"
                          : "the plan has no code for the CPU; compile it with --target cpu");
}

/* What is prepared as a run goes on is one session's own. */
static bool fits(const Resident *r, const PlanTarget *t, const graphc_session_options *o) {
    if (r->lean || is_lean(r, o)) return false;
    size_t n = o->weights_dir ? strlen(o->weights_dir) : 0;
    bool same_weights = r->weights ? o->weights_dir && strlen(r->weights) == n + 2 &&
                                         memcmp(r->weights, o->weights_dir, n) == 0
                                   : !o->weights_dir;
    return r->target == t && r->device_id == o->device_id && r->isa_limit == o->isa_limit &&
           same_weights;
}

graphc_status resident_acquire(graphc_plan *p, const graphc_session_options *o, Resident **out,
                               ErrorText e) {
    const PlanTarget *t;
    GC_TRY(find_target(p, o, &t, e));
    pthread_mutex_lock(&p->lock);
    graphc_status st = GRAPHC_OK;
    Resident *r = p->residents;
    while (r && !fits(r, t, o)) r = r->next;
    if (!r) {
        st = resident_create(p, o, t, &r, e);
        if (st == GRAPHC_OK) {
            r->next = p->residents;
            p->residents = r;
        }
    }
    if (st == GRAPHC_OK) {
        r->refs++;
        *out = r;
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}

void resident_release(graphc_plan *p, Resident *r) {
    pthread_mutex_lock(&p->lock);
    if (--r->refs == 0) {
        Resident **at = &p->residents;
        while (*at != r) at = &(*at)->next;
        *at = r->next;
        resident_destroy(r);
    }
    pthread_mutex_unlock(&p->lock);
}
