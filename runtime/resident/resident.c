/* One target of a plan on one device: opening constants, running prepare steps, sharing. */
#include "runtime/session.h"
#include "runtime/base/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <limits.h>
#include <string.h>

static const PlanConstant *constant_of(const Resident *r, uint32_t buffer) {
    return &r->owner->plan.constants[r->buffers[buffer].index];
}

static bool is_kind(const Resident *r, uint32_t buffer, PlanBufferKind kind) {
    const PlanBuffer *b = &r->buffers[buffer];
    return b->kind == (uint32_t)kind && b->first <= b->last;
}

/* A path in the folder that the plan names for its external files, when that is not its own; the
 * plan says where it is from where it lies itself. */
static bool weights_hint(const graphc_plan *p, char out[PATH_MAX]) {
    const char *dir = plan_str(&p->plan, p->plan.header->weights);
    const char *slash = strrchr(p->base_path, '/');
    int folder = slash && dir[0] != '/' ? (int)(slash - p->base_path) + 1 : 0;
    int n = snprintf(out, PATH_MAX, "%.*s%s/.", folder, p->base_path, dir);
    return *dir && n > 0 && n < PATH_MAX;
}

/* Maps the file of an external constant, once per file name. */
static graphc_status map_file(Resident *r, uint64_t c, ErrorText e) {
    const Plan *p = &r->owner->plan;
    const PlanConstant *k = &p->constants[c];
    for (uint64_t i = 0; i < p->nconstants; i++)
        if (r->mapped[i] && p->constants[i].file == k->file) {
            r->files[c] = r->files[i];
            return GRAPHC_OK;
        }
    const char *name = plan_str(p, k->file), *base = r->weights ? r->weights : r->owner->base_path;
    char hinted[PATH_MAX];
    if (!r->weights && base && weights_hint(r->owner, hinted)) base = hinted;
    if (!base)
        return error_set(e, GRAPHC_USAGE,
                         "the plan's constants are in \"%s\", but no base path was given", name);
    char why[256];
    /* The user trusts the plan's code and named its folder; what is read is checked by its hash. */
    const FileLinks links = {.anywhere = true};
    graphc_status st = file_map_beneath(base, name, links, &r->files[c], why);
    const char *slash = strrchr(base, '/');
    if (st != GRAPHC_OK)
        return error_set(e, st,
                         "the plan's weights, \"%s\" in the folder %.*s: %s; name their folder "
                         "(--weights, weights_dir) or embed them (--embed)",
                         name, slash ? (int)(slash - base) : 1, slash ? base : ".", why);
    r->mapped[c] = 1;
    return GRAPHC_OK;
}

/* Recognised by length, probe hash and the size of its file. */
graphc_status resident_constant(Resident *r, uint64_t c, const uint8_t **out, ErrorText e) {
    const Plan *p = &r->owner->plan;
    const PlanConstant *k = &p->constants[c];
    if (k->source == PLAN_embedded) {
        *out = p->data + k->offset;
        return GRAPHC_OK;
    }
    if (!r->files[c].data) GC_TRY(map_file(r, c, e));
    const char *file = plan_str(p, k->file), *name = plan_str(p, k->name);
    if (!check_span(k->offset, k->length, r->files[c].size))
        return error_set(e, GRAPHC_INVALID, "\"%s\" is too short for constant \"%s\": %llu bytes",
                         file, name, (unsigned long long)r->files[c].size);
    if (r->files[c].size != k->file_size)
        return error_set(e, GRAPHC_INVALID,
                         "\"%s\" has %llu bytes; when the plan was made it had %llu", file,
                         (unsigned long long)r->files[c].size, (unsigned long long)k->file_size);
    *out = r->files[c].data + k->offset;
    if (plan_probe_hash(*out, k->length) != k->hash)
        return error_set(e, GRAPHC_INVALID,
                         "\"%s\" does not hold constant \"%s\" as it was when the plan was made",
                         file, name);
    return GRAPHC_OK;
}

void resident_constant_used(const Resident *r, uint64_t c, const uint8_t *bytes) {
    const PlanConstant *k = &r->owner->plan.constants[c];
    bool in_file = k->source == PLAN_external || r->owner->map.data;
    if (in_file && r->ops->constant_used) r->ops->constant_used(bytes, k->length);
}

static graphc_status load_constant(Resident *r, uint32_t i, ErrorText e) {
    const uint8_t *bytes = NULL;
    uint64_t c = r->buffers[i].index;
    int64_t want = r->slots[r->buffers[i].bytes];
    GC_TRY(resident_constant(r, c, &bytes, e));
    if (want < 0 || (uint64_t)want != constant_of(r, i)->length)
        return error_set(e, GRAPHC_INVALID, "constant %llu has not the size of its buffer",
                         (unsigned long long)c);
    if (want == 0) {
        r->address[i] = r->nowhere;
        return GRAPHC_OK;
    }
    size_t align = dtype_bytes(plan_dtype(r->buffers[i].dtype));
    bool owned = false;
    GC_TRY(r->ops->constant(r, bytes, (uint64_t)want, align, &r->address[i], &owned, e));
    r->owned[i] = owned;
    return GRAPHC_OK;
}

static bool is_left(const Resident *r, uint32_t i) {
    return is_kind(r, i, PLAN_BUF_prepared) && r->buffers[i].last >= r->target->nprepare;
}

static uint64_t part_bytes(const Resident *r, uint32_t i) {
    int64_t bytes = r->slots[r->buffers[i].bytes];
    return ((uint64_t)(bytes > 0 ? bytes : 1) + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

/* Of the memory in which all lie that stay: one piece, which a CPU has on huge pages however small
 * its parts are. */
static graphc_status take_part(Resident *r, uint32_t i, ErrorText e) {
    uint64_t bytes = 0;
    for (uint32_t k = 0; !r->left.p && k < r->target->nbuffers; k++)
        if (is_left(r, k) && !check_add(bytes, part_bytes(r, k), &bytes))
            return error_set(e, GRAPHC_NO_MEMORY, "the weights do not fit into memory");
    if (!r->left.p) {
        GC_TRY(r->ops->alloc(r, bytes, &r->left.p, e));
        r->left.bytes = bytes;
    }
    r->address[i] = (uint8_t *)r->left.p + r->filled;
    r->filled += part_bytes(r, i);
    return GRAPHC_OK;
}

static graphc_status make_room(Resident *r, uint32_t i, ErrorText e) {
    int64_t bytes = r->slots[r->buffers[i].bytes];
    if (bytes < 0) return error_set(e, GRAPHC_INVALID, "buffer b%u has a negative size", i);
    if (is_left(r, i)) return take_part(r, i, e);
    GC_TRY(r->ops->alloc(r, (uint64_t)bytes, &r->address[i], e));
    r->owned[i] = 1;
    return GRAPHC_OK;
}

static void drop(Resident *r, uint32_t i) {
    if (r->owned[i]) r->ops->free(r, r->address[i], (uint64_t)r->slots[r->buffers[i].bytes]);
    r->owned[i] = 0;
    r->address[i] = NULL;
}

/* Releases what no later step needs, and the host pages of constants that were read. */
static void after_prepare_step(Resident *r, uint32_t step) {
    const PlanStep *s = &r->steps[step];
    const uint32_t *bufs = r->owner->plan.lists + s->bufs;
    for (uint32_t k = 0; k < r->kernels[s->kernel].nbufs; k++) {
        uint32_t b = bufs[k];
        if (is_kind(r, b, PLAN_BUF_const) && !r->owned[b])
            resident_constant_used(r, r->buffers[b].index, r->address[b]);
        if (r->buffers[b].last == step && r->address[b]) drop(r, b);
    }
}

/* Addresses of a prepare step's buffers, loading and making those that are not there. */
static graphc_status prepare_pointers(Resident *r, const PlanStep *s, void **pointers,
                                      ErrorText e) {
    for (uint32_t i = 0; i < r->kernels[s->kernel].nbufs; i++) {
        uint32_t b = r->owner->plan.lists[s->bufs + i];
        if (!r->address[b] && r->buffers[b].kind == PLAN_BUF_const) GC_TRY(load_constant(r, b, e));
        if (!r->address[b]) GC_TRY(make_room(r, b, e));
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

static graphc_status prepare_step(Resident *r, Lane *lane, uint32_t step, ErrorText e) {
    const Plan *p = &r->owner->plan;
    const PlanStep *s = &r->steps[step];
    uint32_t kernel = launch_choice(p, s, r->slots);
    const PlanKernel *k = &r->kernels[kernel];
    void *pointers[PLAN_MAX_PARAMS];
    GC_TRY(prepare_pointers(r, s, pointers, e));
    int64_t *dims = calloc((size_t)k->ndims + 1, sizeof *dims);
    if (!dims) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a prepare step");
    for (uint32_t i = 0; i < k->ndims; i++) dims[i] = r->slots[p->lists[k->dims + i]];
    Launch launch = {.kernel = kernel,
                     .npointers = k->nbufs,
                     .pointers = pointers,
                     .dims = dims,
                     .slots = r->slots};
    graphc_status st = prepare_launch(r, lane, &launch, e);
    free(dims);
    if (st == GRAPHC_OK) after_prepare_step(r, step);
    return st;
}

static graphc_status run_prepare_steps(Resident *r, const graphc_session_options *o, ErrorText e) {
    Lane *lane;
    graphc_session_options one_by_one = *o;
    one_by_one.check = 1;
    GC_TRY(r->ops->lane_open(r, &one_by_one, &lane, e));
    graphc_status st = r->ops->begin(lane, e);
    if (st == GRAPHC_OK) {
        for (uint32_t i = 0; i < r->target->nprepare && st == GRAPHC_OK; i++)
            st = prepare_step(r, lane, i, e);
        r->ops->end(lane);
    }
    r->ops->lane_close(lane);
    return st;
}

/* Constants that runs read; those of prepare steps only came and went with them. */
static graphc_status load_rest(Resident *r, ErrorText e) {
    for (uint32_t i = 0; i < r->target->nbuffers; i++) {
        if (r->address[i] || r->buffers[i].last < r->target->nprepare) continue;
        if (is_kind(r, i, PLAN_BUF_const)) GC_TRY(load_constant(r, i, e));
        if (is_kind(r, i, PLAN_BUF_prepared))
            return error_set(e, GRAPHC_INVALID, "no prepare step writes buffer b%u", i);
    }
    return GRAPHC_OK;
}

static void resident_destroy(Resident *r) {
    if (!r) return;
    const Plan *p = &r->owner->plan;
    if (r->address && r->owned)
        for (uint32_t i = 0; i < r->target->nbuffers; i++) drop(r, i);
    if (r->left.p) r->ops->free(r, r->left.p, r->left.bytes);
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
    bool there = is_kind(r, i, PLAN_BUF_const) || is_kind(r, i, PLAN_BUF_prepared);
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
    graphc_status st = run_prepare_steps(r, o, e);
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

static bool fits(const Resident *r, const PlanTarget *t, const graphc_session_options *o) {
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
