/* Prepare steps: the buffers that they fill, and each of them run by itself. */
#include "runtime/base/check.h"
#include "runtime/resident/resident.h"
#include <stdlib.h>

bool resident_leaves(const Resident *r, uint32_t i) {
    return resident_is(r, i, PLAN_BUF_prepared) && r->buffers[i].last >= r->target->nprepare;
}

static uint64_t part_bytes(const Resident *r, uint32_t i) {
    int64_t bytes = r->slots[r->buffers[i].bytes];
    return ((uint64_t)(bytes > 0 ? bytes : 1) + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

/* Of the memory in which all lie that stay: one piece, which a CPU has on huge pages however small
 * its parts are. */
graphc_status resident_place(Resident *r, uint32_t i, ErrorText e) {
    uint64_t bytes = 0;
    for (uint32_t k = 0; !r->left.p && k < r->target->nbuffers; k++)
        if (resident_leaves(r, k) && !check_add(bytes, part_bytes(r, k), &bytes))
            return error_set(e, GRAPHC_NO_MEMORY, "the weights do not fit into memory");
    if (!r->left.p) {
        GC_TRY(r->ops->alloc(r, bytes, &r->left.p, e));
        r->left.bytes = bytes;
    }
    r->address[i] = (uint8_t *)r->left.p + r->filled;
    r->filled += part_bytes(r, i);
    return GRAPHC_OK;
}

graphc_status resident_room(Resident *r, uint32_t i, ErrorText e) {
    int64_t bytes = r->slots[r->buffers[i].bytes];
    if (bytes < 0) return error_set(e, GRAPHC_INVALID, "buffer b%u has a negative size", i);
    if (resident_leaves(r, i)) return resident_place(r, i, e);
    GC_TRY(r->ops->alloc(r, (uint64_t)bytes, &r->address[i], e));
    r->owned[i] = 1;
    return GRAPHC_OK;
}

void resident_drop(Resident *r, uint32_t i) {
    if (stage_holds(r, i)) r->stage.held = false;
    if (r->owned[i]) r->ops->free(r, r->address[i], (uint64_t)r->slots[r->buffers[i].bytes]);
    r->owned[i] = 0;
    r->address[i] = NULL;
}

void resident_pages_read(const Resident *r, Lane *lane, uint32_t step) {
    const PlanStep *s = &r->steps[step];
    const uint32_t *bufs = r->owner->plan.lists + s->bufs;
    for (uint32_t k = 0; k < r->kernels[s->kernel].nbufs; k++) {
        const uint32_t b = bufs[k];
        if (resident_is(r, b, PLAN_BUF_const) && r->address[b] && !r->owned[b] &&
            !stage_holds(r, b))
            resident_constant_used(r, lane, r->buffers[b].index, r->address[b]);
    }
}

void resident_drop_unused(Resident *r, uint32_t step) {
    const PlanStep *s = &r->steps[step];
    const uint32_t *bufs = r->owner->plan.lists + s->bufs;
    for (uint32_t k = 0; k < r->kernels[s->kernel].nbufs; k++) {
        const uint32_t b = bufs[k];
        if (r->address[b] && (r->over ? r->over[b] : r->buffers[b].last) == step)
            resident_drop(r, b);
    }
}

/* Addresses of a prepare step's buffers, loading and making those that are not there. */
static graphc_status prepare_pointers(Resident *r, Lane *lane, const PlanStep *s, void **pointers,
                                      ErrorText e) {
    for (uint32_t i = 0; i < r->kernels[s->kernel].nbufs; i++) {
        uint32_t b = r->owner->plan.lists[s->bufs + i];
        if (!r->address[b] && r->buffers[b].kind == PLAN_BUF_const)
            GC_TRY(resident_load(r, lane, b, e));
        if (!r->address[b]) GC_TRY(resident_room(r, b, e));
        pointers[i] = r->address[b];
    }
    return GRAPHC_OK;
}

/* Runs it in memory of its own beside its buffers: what a lane computes in, or zeroed memory. */
static graphc_status prepare_launch(Resident *r, Lane *lane, Launch *l, ErrorText e) {
    const PlanKernel *k = &r->kernels[l->kernel];
    _Alignas(64) uint8_t maps[PLAN_MAX_MAPS * PLAN_MAP_BYTES];
    uint64_t scratch = r->slots[k->scratch] > 0 ? (uint64_t)r->slots[k->scratch] : 0;
    uint64_t zero = r->slots[k->zero] > 0 ? (uint64_t)r->slots[k->zero] : 0;
    uint64_t bytes = k->zero ? zero : r->ops->lane_scratch(lane, scratch);
    void *memory = NULL;
    graphc_status st = bytes ? r->ops->alloc(r, bytes, &memory, e) : GRAPHC_OK;
    l->maps = maps;
    l->zero = memory;
    if (st == GRAPHC_OK && zero) st = r->ops->zero(r, memory, bytes, e);
    if (st == GRAPHC_OK && !k->zero) r->ops->lane_set_scratch(lane, memory, scratch);
    if (st == GRAPHC_OK && k->nmaps) st = r->ops->encode(lane, l, maps, e);
    if (st == GRAPHC_OK) st = r->ops->launch(lane, l, e);
    if (st == GRAPHC_OK) st = r->ops->sync(lane, e);
    if (st == GRAPHC_RUNTIME) st = launch_named(r, l->kernel, st, e);
    if (memory) r->ops->free(r, memory, bytes);
    return st;
}

graphc_status resident_launch(Resident *r, Lane *lane, uint32_t step, void *const *pointers,
                              ItemRange items, ErrorText e) {
    const Plan *p = &r->owner->plan;
    const PlanStep *s = &r->steps[step];
    uint32_t kernel = launch_choice(p, s, r->slots);
    const PlanKernel *k = &r->kernels[kernel];
    int64_t *dims = calloc((size_t)k->ndims + 1, sizeof *dims);
    if (!dims) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a prepare step");
    for (uint32_t i = 0; i < k->ndims; i++) dims[i] = r->slots[p->lists[k->dims + i]];
    Launch launch = {.kernel = kernel,
                     .npointers = k->nbufs,
                     .pointers = pointers,
                     .buffers = p->lists + s->bufs,
                     .dims = dims,
                     .from = items.from,
                     .to = items.to,
                     .slots = r->slots};
    graphc_status st = prepare_launch(r, lane, &launch, e);
    free(dims);
    return st;
}

graphc_status resident_step(Resident *r, Lane *lane, uint32_t step, ErrorText e) {
    void *pointers[PLAN_MAX_PARAMS];
    GC_TRY(prepare_pointers(r, lane, &r->steps[step], pointers, e));
    GC_TRY(resident_launch(r, lane, step, pointers, (ItemRange){0}, e));
    resident_pages_read(r, lane, step);
    return GRAPHC_OK;
}

graphc_status resident_prepare(Resident *r, Lane *lane, const uint32_t *order, uint32_t *next,
                               uint32_t to, ErrorText e) {
    graphc_status st = r->ops->begin(lane, e);
    if (st != GRAPHC_OK) return st;
    for (; *next < to && st == GRAPHC_OK; ++*next) {
        const uint32_t step = order ? order[*next] : *next;
        st = resident_step(r, lane, step, e);
        if (st == GRAPHC_OK) resident_drop_unused(r, step);
    }
    r->ops->end(lane);
    return st;
}
