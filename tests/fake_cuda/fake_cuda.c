/* See fake_cuda.h. FAKE_CUDA_OLD: a driver from before CUDA graphs. */
#include "tests/fake_cuda/fake_cuda.h"
#include "runtime/cuda/driver.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

extern FakeCuda fake_cuda;
FakeCuda fake_cuda = {.devices = 1, .major = 9};

static CuResult lost;

static CuResult enter(const char *name) {
    fake_cuda.calls++;
    if (lost) return lost;
    if (!fake_cuda.fail || strcmp(fake_cuda.fail, name) != 0 || fake_cuda.skip-- > 0) return CU_OK;
    CuResult r = fake_cuda.result;
    if (fake_cuda.fail_once) fake_cuda.fail = NULL, fake_cuda.fail_once = 0;
    if (r == CU_ILLEGAL_ADDRESS || (r >= CU_FIRST_FATAL && r <= CU_LAST_FATAL)) lost = r;
    return r;
}

#define ENTER()                                                                                    \
    do {                                                                                           \
        CuResult r_ = enter(__func__);                                                             \
        if (r_) return r_;                                                                         \
    } while (0)

/* Every function that the runtime asks for, with the types that it expects. */
#define DECLARE(symbol, params) CuResult symbol params;
DECLARE(cuInit, (unsigned flags))
DECLARE(cuDriverGetVersion, (int *version))
DECLARE(cuGetErrorName, (CuResult e, const char **text))
DECLARE(cuGetErrorString, (CuResult e, const char **text))
DECLARE(cuDeviceGetCount, (int *n))
DECLARE(cuDeviceGet, (CuDevice * device, int number))
DECLARE(cuDeviceGetName, (char *name, int size, CuDevice device))
DECLARE(cuDeviceGetAttribute, (int *value, int attribute, CuDevice device))
DECLARE(cuDevicePrimaryCtxRetain, (CuContext * context, CuDevice device))
DECLARE(cuDevicePrimaryCtxRelease_v2, (CuDevice device))
DECLARE(cuCtxPushCurrent_v2, (CuContext context))
DECLARE(cuCtxPopCurrent_v2, (CuContext * context))
DECLARE(cuModuleLoadDataEx, (CuModule * m, const void *image, unsigned n, int *o, void **v))
DECLARE(cuModuleUnload, (CuModule m))
DECLARE(cuModuleGetFunction, (CuFunction * f, CuModule m, const char *name))
DECLARE(cuFuncSetAttribute, (CuFunction f, int attribute, int value))
DECLARE(cuMemGetInfo_v2, (size_t * left, size_t *total))
DECLARE(cuMemAlloc_v2, (CuAddress * p, size_t bytes))
DECLARE(cuMemFree_v2, (CuAddress p))
DECLARE(cuMemHostRegister_v2, (void *p, size_t bytes, unsigned flags))
DECLARE(cuMemHostUnregister, (void *p))
DECLARE(cuMemcpyAsync, (CuAddress to, CuAddress from, size_t bytes, CuStream s))
DECLARE(cuMemcpyHtoD_v2, (CuAddress to, const void *from, size_t bytes))
DECLARE(cuStreamCreate, (CuStream * s, unsigned flags))
DECLARE(cuStreamDestroy_v2, (CuStream s))
DECLARE(cuStreamSynchronize, (CuStream s))
DECLARE(cuEventCreate, (CuEvent * e, unsigned flags))
DECLARE(cuEventDestroy_v2, (CuEvent e))
DECLARE(cuEventRecord, (CuEvent e, CuStream s))
DECLARE(cuEventElapsedTime, (float *ms, CuEvent from, CuEvent to))
DECLARE(cuMemsetD8Async, (CuAddress p, unsigned char v, size_t bytes, CuStream s))
DECLARE(cuLaunchKernelEx, (const CuLaunch *launch, CuFunction f, void **params, void **extra))
DECLARE(cuTensorMapEncodeTiled, (void *map, int type, unsigned rank, void *p, const uint64_t *size,
                                 const uint64_t *stride, const uint32_t *box, const uint32_t *step,
                                 int interleave, int swizzle, int promotion, int fill))
DECLARE(cuTensorMapEncodeIm2col,
        (void *map, int type, unsigned rank, void *p, const uint64_t *size, const uint64_t *stride,
         const int32_t *lower, const int32_t *upper, unsigned channels, unsigned pixels,
         const uint32_t *step, int interleave, int swizzle, int promotion, int fill))
DECLARE(cuStreamGetCaptureInfo_v3, (CuStream s, int *status, uint64_t *id, CuGraph *graph,
                                    const CuGraphNode **nodes, const void **edges, size_t *n))
DECLARE(cuGraphExecKernelNodeSetParams_v2,
        (CuGraphExec exec, CuGraphNode node, const CuKernelNode *kernel))
DECLARE(cuStreamIsCapturing, (CuStream s, int *status))
DECLARE(cuStreamBeginCapture_v2, (CuStream s, int mode))
DECLARE(cuStreamEndCapture, (CuStream s, CuGraph *graph))
DECLARE(cuGraphInstantiateWithFlags, (CuGraphExec * exec, CuGraph graph, unsigned long long flags))
DECLARE(cuGraphLaunch, (CuGraphExec exec, CuStream s))
DECLARE(cuGraphExecDestroy, (CuGraphExec exec))
DECLARE(cuGraphDestroy, (CuGraph graph))

/* What exists is known to the driver, so that objects of a lost device are no leak: nobody can give
 * them back. */
enum { MAX_OBJECTS = 4096 };
static void *objects[MAX_OBJECTS];

static void *new_object(size_t bytes) {
    int i = 0;
    while (objects[i]) i++;
    fake_cuda.live++;
    return objects[i] = calloc(1, bytes);
}

static CuResult make_of(void *out, size_t bytes) {
    void *p = new_object(bytes);
    memcpy(out, &p, sizeof p);
    return CU_OK;
}
static CuResult make(void *out) {
    return make_of(out, 1);
}

/* Time: a microsecond a block, of kernels that are launched and of those in recordings. Launches
 * are numbered; a recording has those from `first` to `last`. */
enum { LAUNCHES = 1 << 16 };
typedef struct FakeGraph {
    int first, last;
} FakeGraph;
static double now_ms;
static double block_ms[LAUNCHES]; /* of launch number i */
static bool recording;
static FakeGraph recorded;

static double ms_of(const uint32_t *grid) {
    return 1e-3 * grid[0] * grid[1] * grid[2];
}

static void replay(const FakeGraph *g) {
    for (int i = g->first; i <= g->last; i++) now_ms += block_ms[i % LAUNCHES];
}

static CuResult unmake(void *p) {
    int i = 0;
    while (objects[i] != p) i++;
    objects[i] = NULL;
    fake_cuda.live--;
    free(p);
    return CU_OK;
}

CuResult cuGetErrorName(CuResult e, const char **text) {
    *text = e == CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return CU_OK;
}
CuResult cuGetErrorString(CuResult e, const char **text) {
    (void)e;
    *text = "as the test wants";
    return CU_OK;
}

#define DONE(symbol, params, ...)                                                                  \
    CuResult symbol params {                                                                       \
        ENTER();                                                                                   \
        __VA_ARGS__                                                                                \
        return CU_OK;                                                                              \
    }
DONE(cuInit, (unsigned flags), (void)flags;)
DONE(cuDriverGetVersion, (int *version), *version = 13000;)
DONE(cuDeviceGetCount, (int *n), *n = fake_cuda.devices;)
DONE(cuDeviceGet, (CuDevice * device, int number), *device = number;)
DONE(cuDeviceGetName, (char *name, int size, CuDevice d), (void)d, (void)size,
     strcpy(name, "fake");)
DONE(cuDeviceGetAttribute, (int *value, int a, CuDevice d), (void)d;
     *value = a == CU_COMPUTE_MAJOR              ? fake_cuda.major
              : a == CU_MULTIPROCESSORS          ? 132
              : a == CU_SHARED_OF_MULTIPROCESSOR ? 228 << 10
                                                 : 0;)
DONE(cuDevicePrimaryCtxRetain, (CuContext * c, CuDevice d), (void)d; *c = (CuContext)&fake_cuda;
     fake_cuda.live++;)
DONE(cuDevicePrimaryCtxRelease_v2, (CuDevice d), (void)d; fake_cuda.live--;)
DONE(cuCtxPushCurrent_v2, (CuContext c), (void)c;)
DONE(cuCtxPopCurrent_v2, (CuContext * c), *c = NULL;)
DONE(cuModuleLoadDataEx, (CuModule * m, const void *image, unsigned n, int *o, void **v), (void)n,
     (void)o, (void)v;
     fake_cuda.image = image; return make(m);)
DONE(cuModuleUnload, (CuModule m), return unmake(m);)
DONE(cuModuleGetFunction, (CuFunction * f, CuModule m, const char *name), (void)m;
     *f = (CuFunction)(uintptr_t)name;) /* its name, which the plan holds */
DONE(cuFuncSetAttribute, (CuFunction f, int attribute, int value), (void)f, (void)attribute,
     (void)value;)
DONE(cuMemGetInfo_v2, (size_t * left, size_t *total), *left = 5000000; *total = 9000000;)
CuResult cuMemAlloc_v2(CuAddress *p, size_t bytes) {
    ENTER();
    *p = (CuAddress)(uintptr_t)new_object(bytes);
    return CU_OK;
}
DONE(cuMemFree_v2, (CuAddress p), return unmake((void *)(uintptr_t)p);)
DONE(cuMemHostRegister_v2, (void *p, size_t bytes, unsigned flags), (void)p, (void)bytes,
     (void)flags;
     fake_cuda.locked++;)
CuResult cuMemHostUnregister(void *p) {
    enum { NOT_REGISTERED = 713 };
    ENTER();
    (void)p;
    if (!fake_cuda.locked) return NOT_REGISTERED;
    fake_cuda.locked--;
    return CU_OK;
}
DONE(cuMemcpyAsync, (CuAddress to, CuAddress from, size_t bytes, CuStream s), (void)s;
     fake_cuda.copies++; memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);)
DONE(cuMemcpyHtoD_v2, (CuAddress to, const void *from, size_t bytes),
     memcpy((void *)(uintptr_t)to, from, bytes);)
DONE(cuStreamCreate, (CuStream * s, unsigned flags), (void)flags; return make(s);)
DONE(cuStreamDestroy_v2, (CuStream s), return unmake(s);)
DONE(cuStreamSynchronize, (CuStream s), (void)s;)
DONE(cuEventCreate, (CuEvent * e, unsigned flags), (void)flags; return make_of(e, sizeof now_ms);)
DONE(cuEventDestroy_v2, (CuEvent e), return unmake(e);)
DONE(cuEventRecord, (CuEvent e, CuStream s), (void)s; memcpy(e, &now_ms, sizeof now_ms);)
CuResult cuEventElapsedTime(float *ms, CuEvent from, CuEvent to) {
    ENTER();
    double a, b;
    memcpy(&a, from, sizeof a);
    memcpy(&b, to, sizeof b);
    *ms = (float)(b - a + 1e-3);
    return CU_OK;
}
DONE(cuMemsetD8Async, (CuAddress p, unsigned char v, size_t bytes, CuStream s), (void)s;
     fake_cuda.memsets++; memset((void *)(uintptr_t)p, v, bytes);)

/* What a kernel is launched with; its parameters while the call lasts. */
static void keep_launch(CuFunction f, const uint32_t *grid, uint32_t shared, void **params) {
    fake_cuda.launch = (FakeLaunch){.name = (const char *)(uintptr_t)f,
                                    .grid = {grid[0], grid[1], grid[2]},
                                    .shared = shared,
                                    .params = params};
}

CuResult cuLaunchKernelEx(const CuLaunch *c, CuFunction f, void **params, void **extra) {
    ENTER();
    (void)extra;
    FakeLaunch *l = &fake_cuda.launch;
    keep_launch(f, &c->grid_x, c->shared, params);
    for (uint32_t i = 0; i < c->nattributes; i++) {
        const CuLaunchAttribute *a = &c->attributes[i];
        if (a->id == CU_LAUNCH_CLUSTER) memcpy(l->cluster, a->value.cluster, sizeof l->cluster);
        if (a->id == CU_LAUNCH_PROGRAMMATIC) l->dependent = a->value.allowed;
    }
    fake_cuda.launches++;
    block_ms[fake_cuda.launches % LAUNCHES] = ms_of(&c->grid_x);
    if (!recording) now_ms += ms_of(&c->grid_x);
    if (fake_cuda.on_launch) fake_cuda.on_launch(l);
    return CU_OK;
}

static void keep_map(int type, unsigned rank, void *p, const uint64_t *size, const uint64_t *stride,
                     const uint32_t *step, int swizzle, int promotion) {
    FakeMap *m = &fake_cuda.map;
    *m = (FakeMap){.type = type, .rank = rank, .p = p, .swizzle = swizzle, .promotion = promotion};
    memcpy(m->size, size, rank * sizeof *size);
    memcpy(m->stride, stride, (rank - 1) * sizeof *stride);
    memcpy(m->step, step, rank * sizeof *step);
    fake_cuda.encoded++;
}

CuResult cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *p, const uint64_t *size,
                                const uint64_t *stride, const uint32_t *box, const uint32_t *step,
                                int interleave, int swizzle, int promotion, int fill) {
    ENTER();
    if ((uintptr_t)map % 64 || (uintptr_t)p % 16 || interleave || fill) return 1;
    keep_map(type, rank, p, size, stride, step, swizzle, promotion);
    memcpy(fake_cuda.map.box, box, rank * sizeof *box);
    memset(map, 0, PLAN_MAP_BYTES);
    memcpy(map, &p, sizeof p);
    return CU_OK;
}

CuResult cuTensorMapEncodeIm2col(void *map, int type, unsigned rank, void *p, const uint64_t *size,
                                 const uint64_t *stride, const int32_t *lower, const int32_t *upper,
                                 unsigned channels, unsigned pixels, const uint32_t *step,
                                 int interleave, int swizzle, int promotion, int fill) {
    ENTER();
    if ((uintptr_t)map % 64 || (uintptr_t)p % 16 || interleave || fill) return 1;
    keep_map(type, rank, p, size, stride, step, swizzle, promotion);
    memcpy(fake_cuda.map.lower, lower, (rank - 2) * sizeof *lower);
    memcpy(fake_cuda.map.upper, upper, (rank - 2) * sizeof *upper);
    fake_cuda.map.channels = channels;
    fake_cuda.map.pixels = pixels;
    memset(map, 0, PLAN_MAP_BYTES);
    return CU_OK;
}

CuResult cuStreamGetCaptureInfo_v3(CuStream s, int *status, uint64_t *id, CuGraph *graph,
                                   const CuGraphNode **nodes, const void **edges, size_t *n) {
    static CuGraphNode node;
    ENTER();
    (void)s, (void)id, (void)graph;
    node = (CuGraphNode)(uintptr_t)fake_cuda.launches; /* nodes are numbered as they come */
    *status = 1;
    *nodes = &node;
    *edges = NULL;
    *n = 1;
    return CU_OK;
}

CuResult cuGraphExecKernelNodeSetParams_v2(CuGraphExec exec, CuGraphNode node,
                                           const CuKernelNode *k) {
    ENTER();
    (void)exec;
    block_ms[(uintptr_t)node % LAUNCHES] = ms_of(k->grid);
    keep_launch(k->function, k->grid, k->shared, k->params);
    fake_cuda.updates++;
    if (fake_cuda.on_launch) fake_cuda.on_launch(&fake_cuda.launch);
    return CU_OK;
}
DONE(cuStreamIsCapturing, (CuStream s, int *status), (void)s; *status = fake_cuda.capturing;)
DONE(cuStreamBeginCapture_v2, (CuStream s, int mode), (void)s, (void)mode; recording = true;
     recorded.first = fake_cuda.launches + 1;)
CuResult cuStreamEndCapture(CuStream s, CuGraph *graph) {
    (void)s;
    recording = false;
    recorded.last = fake_cuda.launches;
    ENTER();
    (void)make_of(graph, sizeof recorded);
    memcpy(*graph, &recorded, sizeof recorded);
    return CU_OK;
}
#ifndef FAKE_CUDA_OLD
DONE(cuGraphInstantiateWithFlags, (CuGraphExec * exec, CuGraph graph, unsigned long long flags),
     (void)flags;
     (void)make_of(exec, sizeof(FakeGraph)); memcpy(*exec, graph, sizeof(FakeGraph));)
#endif
DONE(cuGraphLaunch, (CuGraphExec exec, CuStream s), (void)s; fake_cuda.replays++;
     replay((const FakeGraph *)exec);)
DONE(cuGraphExecDestroy, (CuGraphExec exec), return unmake(exec);)
DONE(cuGraphDestroy, (CuGraph graph), return unmake(graph);)

#pragma GCC visibility pop
