/* A GPU as a device: one module per resident in the device's primary context, a lane is a stream */
#include "runtime/cuda/driver.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLUSTER_FREE 8                    /* blocks of a cluster that need no asking */
#define NOWHERE      256                  /* bytes of device memory behind pointers to nothing */
#define ALIGN        16                   /* of vector accesses and tensor maps */
#define LEAST_LOCKED (UINT64_C(64) << 10) /* bytes of host memory that are worth locking, ... */
#define PACKED       (UINT32_C(64) << 10) /* bytes of pageable memory that are staged without waiting */
#define MOST_LOCKED  (UINT64_C(16) << 20) /* ... and that are not too many */

static bool is_lost(const CudaDevice *d) {
    return __atomic_load_n(&d->lost, __ATOMIC_RELAXED) != 0;
}

static graphc_status enter(CudaDevice *d, ErrorText e) {
    if (is_lost(d))
        return driver_error(d->driver, d->lost, e,
                            "the CUDA device was lost by an earlier error; restart the program");
    return cuda_check(d, d->driver->context_push(d->context), e, "entering the CUDA context");
}

static void leave(CudaDevice *d) {
    CuContext c;
    (void)d->driver->context_pop(&c);
}

static const PlanBlob *blob_of(const Resident *r, uint32_t i) {
    return &r->owner->plan.blobs[r->target->blobs + i];
}

/* The module of a cubin of the plan, loaded when its first kernel asks. */
static CuResult load_cubin(Resident *r, uint32_t blob) {
    CudaDevice *d = r->device;
    const uint8_t *code = r->owner->plan.code + blob_of(r, blob)->offset;
    if (d->module[blob]) return CU_OK;
    return d->driver->module_load(&d->module[blob], code, 0, NULL, NULL);
}

/* The plan's PTX through the driver's compiler. */
static graphc_status load_ptx(Resident *r, uint32_t blob, ErrorText e) {
    CudaDevice *d = r->device;
    char log[384] = "";
    int options[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    const uint8_t *code = r->owner->plan.code + blob_of(r, blob)->offset;
    if (d->module[blob]) return GRAPHC_OK;
    CuResult res = d->driver->module_load(&d->module[blob], code, 2, options, values);
    if (res == CU_OK) return GRAPHC_OK;
    log[sizeof log - 1] = 0;
    if (res == CU_PTX_TOO_NEW)
        return driver_error(d->driver, res, e,
                            "the plan's PTX is newer than the driver (CUDA %d.%d)",
                            d->driver->version / 1000, d->driver->version % 1000 / 10);
    return driver_error(d->driver, res, e, "compiling the plan's PTX for \"%s\": %.100s",
                        plan_str(&r->owner->plan, r->target->name), log);
}

/* Machine code for this GPU if the plan has it, else its PTX. */
static graphc_status load_kernel(Resident *r, uint32_t kernel, CuModule *out, ErrorText e) {
    CudaDevice *d = r->device;
    uint32_t blob = r->kernels[kernel].cubin;
    CuResult res = blob ? load_cubin(r, blob - 1) : CU_NO_BINARY_FOR_GPU;
    if (res == CU_OK) {
        *out = d->module[blob - 1];
        return GRAPHC_OK;
    }
    for (uint32_t i = 0; i < r->target->nblobs; i++) {
        if (blob_of(r, i)->form != PLAN_ptx) continue;
        r->form = PLAN_ptx;
        GC_TRY(load_ptx(r, i, e));
        *out = d->module[i];
        return GRAPHC_OK;
    }
    return driver_error(d->driver, res, e, "loading the plan's GPU code");
}

/* Dynamic shared memory needs asking where it and the kernel's own, which the plan does not say,
 * are more than 48 KiB. */
static CuResult set_attributes(const Driver *v, CuFunction f, const PlanKernel *k) {
    CuResult res = CU_OK;
    if (k->shared) res = v->function_set(f, CU_FUNCTION_DYNAMIC_SHARED, (int)k->shared);
    if (res == CU_OK && k->cluster[0] * k->cluster[1] * k->cluster[2] > CLUSTER_FREE)
        res = v->function_set(f, CU_FUNCTION_LARGE_CLUSTER, 1);
    return res;
}

static graphc_status find_functions(Resident *r, ErrorText e) {
    CudaDevice *d = r->device;
    d->function = calloc((size_t)r->target->nkernels + 1, sizeof *d->function);
    d->module = calloc((size_t)r->target->nblobs + 1, sizeof *d->module);
    if (!d->function || !d->module)
        return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for GPU code");
    r->form = PLAN_cubin;
    for (uint32_t i = 0; i < r->target->nkernels; i++) {
        const char *symbol = plan_str(&r->owner->plan, r->kernels[i].symbol);
        CuModule module = NULL;
        GC_TRY(load_kernel(r, i, &module, e));
        CuResult res = d->driver->module_function(&d->function[i], module, symbol);
        if (res == CU_OK) res = set_attributes(d->driver, d->function[i], &r->kernels[i]);
        if (res) return driver_error(d->driver, res, e, "kernel %s", symbol);
    }
    return GRAPHC_OK;
}

static graphc_status check_number(CudaDevice *d, int32_t number, ErrorText e) {
    int n = 0;
    GC_TRY(cuda_check(d, d->driver->device_count(&n), e, "counting GPUs"));
    if (number >= 0 && number < n) return GRAPHC_OK;
    return error_set(e, GRAPHC_USAGE, "there is no CUDA device %d; there are %d", number, n);
}

/* 0: the driver does not tell. */
static uint32_t attribute(const CudaDevice *d, int which) {
    int n = 0;
    CuResult st = d->driver->device_attribute(&n, which, d->device);
    return st == CU_OK && n > 0 ? (uint32_t)n : 0;
}

static graphc_status find_device(CudaDevice *d, int32_t number, ErrorText e) {
    GC_TRY(check_number(d, number, e));
    GC_TRY(cuda_check(d, d->driver->device_get(&d->device, number), e, "opening the GPU"));
    d->processors = attribute(d, CU_MULTIPROCESSORS);
    d->shared = attribute(d, CU_SHARED_OF_MULTIPROCESSOR);
    return cuda_check(d, d->driver->context_retain(&d->context, d->device), e,
                      "making a CUDA context");
}

static graphc_status cuda_rank(const char *target, const graphc_session_options *o, uint32_t *rank,
                               ErrorText e) {
    CudaDevice d = {0};
    CuDevice device;
    int major = 0, minor = 0;
    GC_TRY(driver_open(&d.driver, e));
    GC_TRY(check_number(&d, o->device_id, e));
    GC_TRY(cuda_check(&d, d.driver->device_get(&device, o->device_id), e, "opening the GPU"));
    CuResult r = d.driver->device_attribute(&major, CU_COMPUTE_MAJOR, device);
    if (!r) r = d.driver->device_attribute(&minor, CU_COMPUTE_MINOR, device);
    *rank = cuda_arch_rank(target, major, minor);
    return cuda_check(&d, r, e, "asking which architecture the GPU is of");
}

static uint32_t cuda_processors(const Resident *r) {
    return ((const CudaDevice *)r->device)->processors;
}

static void count(CudaDevice *d, uint64_t bytes) {
    uint64_t now = atomic_fetch_add(&d->held, bytes) + bytes, most = atomic_load(&d->most);
    while (now > most && !atomic_compare_exchange_weak(&d->most, &most, now)) continue;
}

static uint64_t cuda_peak(const Resident *r) {
    return atomic_load(&((CudaDevice *)r->device)->most);
}

static graphc_status cuda_alloc(Resident *r, uint64_t bytes, void **out, ErrorText e) {
    CudaDevice *d = r->device;
    CuAddress p = 0;
    GC_TRY(enter(d, e));
    CuResult res = d->driver->mem_alloc(&p, bytes ? bytes : 1);
    size_t left = 0, total = 0;
    if (res) (void)d->driver->mem_info(&left, &total);
    leave(d);
    if (res == CU_OUT_OF_MEMORY)
        return error_set(e, GRAPHC_NO_MEMORY,
                         "not enough GPU memory: %.1f MB wanted, %.1f of %.1f MB free",
                         1e-6 * (double)bytes, 1e-6 * (double)left, 1e-6 * (double)total);
    *out = (void *)(uintptr_t)p;
    if (!res) count(d, bytes);
    return cuda_check(d, res, e, "allocating GPU memory");
}

static void cuda_free(Resident *r, void *p, uint64_t bytes) {
    CudaDevice *d = r->device;
    if (!p || enter(d, (ErrorText){0}) != GRAPHC_OK) return;
    (void)d->driver->mem_free((CuAddress)(uintptr_t)p);
    atomic_fetch_sub(&d->held, bytes);
    leave(d);
}

static bool is_lockable(uint64_t bytes) {
    return bytes >= LEAST_LOCKED && bytes <= MOST_LOCKED;
}

/* Pageable memory is reached through the driver's own, piece by piece. That it cannot be locked
 * costs time only. */
static void cuda_host_lock(Resident *r, void *p, uint64_t bytes) {
    CudaDevice *d = r->device;
    if (!is_lockable(bytes) || enter(d, (ErrorText){0}) != GRAPHC_OK) return;
    (void)d->driver->host_register(p, bytes, 0);
    leave(d);
}

static void cuda_host_unlock(Resident *r, void *p, uint64_t bytes) {
    CudaDevice *d = r->device;
    if (!is_lockable(bytes) || enter(d, (ErrorText){0}) != GRAPHC_OK) return;
    (void)d->driver->host_unregister(p);
    leave(d);
}

static graphc_status cuda_zero(Resident *r, void *p, uint64_t bytes, ErrorText e) {
    CudaDevice *d = r->device;
    GC_TRY(enter(d, e));
    CuResult res = d->driver->memset_async((CuAddress)(uintptr_t)p, 0, bytes, NULL);
    if (!res) res = d->driver->stream_sync(NULL);
    leave(d);
    return cuda_check(d, res, e, "zeroing GPU memory");
}

/* Kernels that may overlap read nothing before they have waited for what is in front. */
static bool all_wait_first(const Resident *r) {
    for (uint32_t i = 0; i < r->target->nkernels; i++) {
        uint32_t flags = r->kernels[i].flags;
        if (flags & PLAN_DEPENDENT && !(flags & PLAN_WAITS_FIRST)) return false;
    }
    return true;
}

static graphc_status cuda_open(Resident *r, const graphc_session_options *o, ErrorText e) {
    const Driver *driver;
    GC_TRY(driver_open(&driver, e));
    CudaDevice *d = calloc(1, sizeof *d);
    if (!d) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a CUDA device");
    r->device = d;
    d->driver = driver;
    GC_TRY(find_device(d, o->device_id, e));
    GC_TRY(enter(d, e));
    graphc_status st = find_functions(r, e);
    d->waits_first = all_wait_first(r);
    leave(d);
    return st == GRAPHC_OK ? cuda_alloc(r, NOWHERE, &r->nowhere, e) : st;
}

static void cuda_close(Resident *r) {
    CudaDevice *d = r->device;
    if (!d) return;
    if (d->context) {
        cuda_free(r, r->nowhere, NOWHERE);
        if (d->module && enter(d, (ErrorText){0}) == GRAPHC_OK) {
            for (uint32_t i = 0; i < r->target->nblobs; i++)
                if (d->module[i]) (void)d->driver->module_unload(d->module[i]);
            leave(d);
        }
        if (!is_lost(d)) (void)d->driver->context_release(d->device);
    }
    free(d->function);
    free(d->module);
    free(d);
    r->device = NULL;
}

static graphc_status cuda_constant(Resident *r, const void *host, uint64_t bytes, size_t align,
                                   void **out, bool *owned, ErrorText e) {
    CudaDevice *d = r->device;
    (void)align;
    GC_TRY(cuda_alloc(r, bytes, out, e));
    *owned = true;
    GC_TRY(enter(d, e));
    CuResult res = d->driver->copy_to_device((CuAddress)(uintptr_t)*out, host, bytes);
    /* From pageable memory the copy returns when the bytes are staged; lanes do not wait for the
     * default stream, so it has to be drained before a kernel may read. */
    if (!res) res = d->driver->stream_sync(NULL);
    leave(d);
    if (res) cuda_free(r, *out, bytes);
    return cuda_check(d, res, e, "copying constants to the GPU");
}

static void cuda_lane_close(Lane *l) {
    if (!l) return;
    if (enter(l->dev, (ErrorText){0}) == GRAPHC_OK) {
        for (int i = 0; i < 2; i++)
            if (l->event[i]) (void)l->dev->driver->event_destroy(l->event[i]);
        if (l->own_stream) (void)l->dev->driver->stream_destroy(l->stream);
        leave(l->dev);
    }
    free(l->params);
    free(l);
}

static size_t most_params(const Resident *r) {
    size_t most = 1;
    for (uint32_t i = 0; i < r->target->nkernels; i++) {
        size_t n = PLAN_MAX_PARAMS + 1 + PLAN_MAX_MAPS + (size_t)r->kernels[i].ndims;
        if (n > most) most = n;
    }
    return most;
}

static graphc_status open_stream(Lane *l, const graphc_session_options *o, ErrorText e) {
    CudaDevice *d = l->dev;
    GC_TRY(enter(d, e));
    CuResult res = CU_OK;
    l->stream = o->cuda_stream;
    if (!l->stream) {
        res = d->driver->stream_create(&l->stream, CU_STREAM_NON_BLOCKING);
        l->own_stream = res == CU_OK;
    }
    for (int i = 0; i < 2 && res == CU_OK; i++) res = d->driver->event_create(&l->event[i], 0);
    leave(d);
    return cuda_check(d, res, e, "making a CUDA stream");
}

static graphc_status cuda_lane_open(Resident *r, const graphc_session_options *o, Lane **out,
                                    ErrorText e) {
    Lane *l = calloc(1, sizeof *l);
    if (!l) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a session");
    l->res = r;
    l->dev = r->device;
    l->checking = o->check != 0;
    l->params = calloc(most_params(r), sizeof *l->params);
    graphc_status st = l->params
                           ? open_stream(l, o, e)
                           : error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a session");
    if (st == GRAPHC_OK)
        *out = l;
    else
        cuda_lane_close(l);
    return st;
}

/* Kernels keep their scratch in registers and shared memory. */
static uint32_t cuda_lane_threads(const Lane *l) {
    (void)l;
    return 1;
}

static uint64_t cuda_lane_scratch(const Lane *l, uint64_t scratch) {
    (void)l, (void)scratch;
    return 0;
}
static void cuda_lane_set_scratch(Lane *l, void *p, uint64_t scratch) {
    (void)l, (void)p, (void)scratch;
}

static graphc_status cuda_begin(Lane *l, ErrorText e) {
    l->behind_kernel = l->dev->waits_first;
    return enter(l->dev, e);
}
static void cuda_end(Lane *l) {
    leave(l->dev);
}

static graphc_status cuda_copy(Lane *l, void *to, const void *from, uint64_t bytes, ErrorText e) {
    if (!bytes) return GRAPHC_OK;
    l->behind_kernel = false;
    return cuda_check(l->dev,
                      l->dev->driver->copy_async((CuAddress)(uintptr_t)to,
                                                 (CuAddress)(uintptr_t)from, bytes, l->stream),
                      e, "copying");
}

/* What a kernel did wrong shows here, unless another call comes first. */
static graphc_status cuda_sync(Lane *l, ErrorText e) {
    CuResult r = l->dev->driver->stream_sync(l->stream);
    const char *what = "running the plan";
    if (cuda_is_fatal(r) && !l->checking)
        what = "running the plan (GRAPHC_CHECK=1 tells the kernel)";
    return cuda_check(l->dev, r, e, what);
}

static graphc_status cuda_mark(Lane *l, uint32_t i, ErrorText e) {
    l->behind_kernel = false;
    return cuda_check(l->dev, l->dev->driver->event_record(l->event[i], l->stream), e, "profiling");
}

static double cuda_seconds(Lane *l) {
    float ms = 0;
    (void)l->dev->driver->event_elapsed(&ms, l->event[0], l->event[1]);
    return ms * 1e-3;
}

const DeviceOps device_cuda = {
    .kind = GRAPHC_CUDA,
    .own_memory = true,
    .align = ALIGN,
    .packed = PACKED,
    .rank = cuda_rank,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .peak = cuda_peak,
    .free = cuda_free,
    .zero = cuda_zero,
    .host_lock = cuda_host_lock,
    .host_unlock = cuda_host_unlock,
    .constant = cuda_constant,
    .lane_open = cuda_lane_open,
    .lane_close = cuda_lane_close,
    .lane_threads = cuda_lane_threads,
    .lane_scratch = cuda_lane_scratch,
    .lane_set_scratch = cuda_lane_set_scratch,
    .begin = cuda_begin,
    .end = cuda_end,
    .launch = cuda_launch,
    .encode = cuda_encode,
    .copy = cuda_copy,
    .processors = cuda_processors,
    .sync = cuda_sync,
    .run = replay_run,
    .prepare = replay_prepare,
    .mark = cuda_mark,
    .seconds = cuda_seconds,
};
