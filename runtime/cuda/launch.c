/* One kernel on a stream: its parameters, tensor maps and what it is launched with. */
#include "runtime/cuda/driver.h"
#include <stdio.h>

#define GRID_X_MAX  INT64_C(0x7fffffff)
#define GRID_YZ_MAX 65535

enum { CROWDING_BYTES = 64 << 10 }; /* that a block reads and writes */

/* False in *out: no block, nothing to do. */
static graphc_status grid_of(const Lane *l, const Launch *k, CuLaunch *c, bool *out, ErrorText e) {
    const PlanKernel *kernel = &l->res->kernels[k->kernel];
    uint32_t *const at[3] = {&c->grid_x, &c->grid_y, &c->grid_z};
    *out = false;
    for (int i = 0; i < 3; i++) {
        int64_t n = k->slots[kernel->grid[i]];
        if (n <= 0) return GRAPHC_OK;
        if (n > (i ? GRID_YZ_MAX : GRID_X_MAX))
            return error_set(e, GRAPHC_UNSUPPORTED, "kernel %s needs %lld blocks along axis %d",
                             plan_str(&l->res->owner->plan, kernel->name), (long long)n, i);
        *at[i] = (uint32_t)n;
    }
    *out = true;
    return GRAPHC_OK;
}

/* As runtime/abi.h orders them; *k stays where it is until the driver has read them. */
static void fill_params(Lane *l, const Launch *k) {
    const PlanKernel *kernel = &l->res->kernels[k->kernel];
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->npointers; i++) l->params[n++] = (void *)(uintptr_t)&k->pointers[i];
    if (kernel->zero) l->params[n++] = (void *)(uintptr_t)&k->zero;
    for (uint32_t i = 0; i < kernel->nmaps; i++)
        l->params[n++] = (void *)(uintptr_t)(k->maps + (size_t)i * PLAN_MAP_BYTES);
    for (uint32_t i = 0; i < kernel->ndims; i++) l->params[n++] = (void *)(uintptr_t)&k->dims[i];
}

/* No two of its blocks fit on one multiprocessor, and hardly one of these stands empty. */
static bool spreads(const CudaDevice *d, const PlanKernel *kernel, int64_t blocks) {
    return d->shared && kernel->shared > d->shared / 2 &&
           blocks * 16 >= (int64_t)d->processors * 15;
}

/* Few blocks with much to do that start beside the kernel in front go where room is first: several
 * of them to one multiprocessor, which they share to their end while others stand empty, or to
 * neighbours, which share their way to memory (112 blocks of 132, each alone: 8 x 4096 x 14336
 * 30.8 us, not 29.5). That costs more than an early start brings a kernel that reads nothing before
 * it waits, unless they spread all the same (128 blocks: layer norm of 1,024 x 50,257 55.2, not
 * 57.7, 2048^3 23.8, not 24.5). */
static bool crowds(const Lane *l, const PlanKernel *kernel, const Launch *k, const CuLaunch *c) {
    const int64_t blocks = (int64_t)c->grid_x * c->grid_y * c->grid_z;
    const int64_t bytes = k->slots[kernel->bytes_read] + k->slots[kernel->bytes_written];
    return kernel->flags & PLAN_WAITS_FIRST && blocks < l->dev->processors &&
           bytes >= blocks * CROWDING_BYTES && !spreads(l->dev, kernel, blocks);
}

/* Launch attributes; how many there are. A kernel that may overlap with what is in front of it
 * only does so behind a kernel, not behind a copy of this run. In front of the first one is the
 * caller's work, which writes what the run reads: see Lane.behind_kernel. */
static uint32_t attributes(const Lane *l, const Launch *k, const CuLaunch *c,
                           CuLaunchAttribute *a) {
    const PlanKernel *kernel = &l->res->kernels[k->kernel];
    uint32_t n = 0;
    if (kernel->cluster[0]) {
        a[n].id = CU_LAUNCH_CLUSTER;
        for (int i = 0; i < 3; i++) a[n].value.cluster[i] = kernel->cluster[i];
        n++;
    }
    if ((kernel->flags & PLAN_DEPENDENT) && l->behind_kernel && !crowds(l, kernel, k, c)) {
        a[n].id = CU_LAUNCH_PROGRAMMATIC;
        a[n++].value.allowed = 1;
    }
    return n;
}

static CuLaunch launch_of(const Lane *l, const PlanKernel *k) {
    return (CuLaunch){.block_x = k->block[0],
                      .block_y = k->block[1],
                      .block_z = k->block[2],
                      .shared = k->shared,
                      .stream = l->stream};
}

static graphc_status zero_scratch(Lane *l, const PlanKernel *kernel, const Launch *k, ErrorText e) {
    int64_t bytes = k->slots[kernel->zero];
    if (bytes <= 0 || (kernel->flags & PLAN_ZERO_KEPT)) return GRAPHC_OK;
    l->behind_kernel = false;
    return cuda_check(
        l->dev,
        l->dev->driver->memset_async((CuAddress)(uintptr_t)k->zero, 0, (size_t)bytes, l->stream), e,
        "zeroing a kernel's scratch");
}

graphc_status cuda_launch(Lane *l, const Launch *k, ErrorText e) {
    const PlanKernel *kernel = &l->res->kernels[k->kernel];
    CuLaunch c = launch_of(l, kernel);
    CuLaunchAttribute a[2];
    bool any;
    GC_TRY(grid_of(l, k, &c, &any, e));
    if (!any) return GRAPHC_OK;
    GC_TRY(zero_scratch(l, kernel, k, e));
    fill_params(l, k);
    c.attributes = a;
    c.nattributes = attributes(l, k, &c, a);
    CuResult r = l->dev->driver->launch(&c, l->dev->function[k->kernel], l->params, NULL);
    l->behind_kernel = true;
    const char *name = plan_str(&l->res->owner->plan, kernel->name);
    return r == CU_OK ? GRAPHC_OK : cuda_check(l->dev, r, e, name);
}

graphc_status cuda_update(Lane *l, CuGraphExec exec, CuGraphNode node, const Launch *k,
                          ErrorText e) {
    const PlanKernel *kernel = &l->res->kernels[k->kernel];
    CuLaunch c = launch_of(l, kernel);
    bool any;
    GC_TRY(grid_of(l, k, &c, &any, e));
    fill_params(l, k);
    CuKernelNode n = {.function = l->dev->function[k->kernel],
                      .grid = {c.grid_x, c.grid_y, c.grid_z},
                      .block = {c.block_x, c.block_y, c.block_z},
                      .shared = c.shared,
                      .params = l->params};
    return cuda_check(l->dev, l->dev->driver->graph_set_kernel(exec, node, &n), e,
                      "changing a recorded run");
}

/* --- Tensor maps ------------------------------------------------------------------------------ */

/* The driver's CUtensorMapDataType; what is only moved is moved as bits. */
static int map_type(const PlanMap *m) {
    static const int by_bytes[9] = {
        [1] = CU_MAP_U8, [2] = CU_MAP_U16, [4] = CU_MAP_U32, [8] = CU_MAP_U64};
    const DType t = plan_dtype(m->dtype);
    if (t == DT_f32) return m->tf32 ? CU_MAP_TF32 : CU_MAP_F32;
    if (t == DT_f16) return CU_MAP_F16;
    if (t == DT_bf16) return CU_MAP_BF16;
    return by_bytes[dtype_bytes(t)];
}

/* 0, 32, 64, 128, 256 to 0, 1, 2, 3 ... as the driver counts from `one`. */
static int step_of(uint32_t bytes, uint32_t one) {
    int n = 0;
    for (; bytes >= one; bytes /= 2) n++;
    return n;
}

static graphc_status encode_one(Lane *l, const Launch *k, const PlanMap *m, void *out,
                                ErrorText e) {
    const Driver *v = l->dev->driver;
    DType t = plan_dtype(m->dtype);
    uint64_t size[PLAN_MAP_RANK], stride[PLAN_MAP_RANK];
    for (uint32_t d = 0; d < m->rank; d++) size[d] = (uint64_t)k->slots[m->size[d]];
    for (uint32_t d = 1; d < m->rank; d++) stride[d - 1] = (uint64_t)k->slots[m->stride[d - 1]];
    uint8_t *at = (uint8_t *)k->pointers[m->param] + k->slots[m->base] * (int64_t)dtype_bytes(t);
    int swizzle = step_of(m->swizzle, 32), promotion = step_of(m->promotion, 64);
    CuResult r =
        m->kind == PLAN_MAP_tiled
            ? v->map_tiled(out, map_type(m), m->rank, at, size, stride, m->box, m->step, 0, swizzle,
                           promotion, 0)
            : v->map_im2col(out, map_type(m), m->rank, at, size, stride, m->lower, m->upper,
                            m->channels, m->pixels, m->step, 0, swizzle, promotion, 0);
    if (r == CU_OK) return GRAPHC_OK;
    char what[160];
    snprintf(what, sizeof what, "a tensor map of kernel %.80s, parameter %u",
             plan_str(&l->res->owner->plan, l->res->kernels[k->kernel].name), m->param);
    return cuda_check(l->dev, r, e, what);
}

graphc_status cuda_encode(Lane *l, const Launch *k, void *maps, ErrorText e) {
    const PlanKernel *kernel = &l->res->kernels[k->kernel];
    CuLaunch c;
    bool any;
    GC_TRY(grid_of(l, k, &c, &any, e));
    for (uint32_t i = 0; i < kernel->nmaps && any; i++)
        GC_TRY(encode_one(l, k, &l->res->owner->plan.maps[kernel->maps + i],
                          (uint8_t *)maps + (size_t)i * PLAN_MAP_BYTES, e));
    return GRAPHC_OK;
}
