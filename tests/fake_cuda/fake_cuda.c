/* See fake_cuda.h. FAKE_CUDA_OLD: a driver from before CUDA graphs. */
#include "tests/fake_cuda/fake_cuda.h"
#include "runtime/cuda/driver.h"
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

extern FakeCuda fake_cuda;
FakeCuda fake_cuda = {.devices = 1};

static CuResult lost;

static CuResult enter(const char *name) {
    fake_cuda.calls++;
    if (lost) return lost;
    if (!fake_cuda.fail || strcmp(fake_cuda.fail, name) != 0 || fake_cuda.skip-- > 0) return CU_OK;
    CuResult r = fake_cuda.result;
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
DECLARE(cuMemcpyAsync, (CuAddress to, CuAddress from, size_t bytes, CuStream s))
DECLARE(cuMemcpyHtoD_v2, (CuAddress to, const void *from, size_t bytes))
DECLARE(cuStreamCreate, (CuStream * s, unsigned flags))
DECLARE(cuStreamDestroy_v2, (CuStream s))
DECLARE(cuStreamSynchronize, (CuStream s))
DECLARE(cuEventCreate, (CuEvent * e, unsigned flags))
DECLARE(cuEventDestroy_v2, (CuEvent e))
DECLARE(cuEventRecord, (CuEvent e, CuStream s))
DECLARE(cuEventElapsedTime, (float *ms, CuEvent from, CuEvent to))
DECLARE(cuLaunchKernel,
        (CuFunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
         unsigned shared, CuStream s, void **params, void **extra))
DECLARE(cuStreamIsCapturing, (CuStream s, int *status))
DECLARE(cuStreamBeginCapture_v2, (CuStream s, int mode))
DECLARE(cuStreamEndCapture, (CuStream s, CuGraph *graph))
DECLARE(cuGraphInstantiateWithFlags, (CuGraphExec * exec, CuGraph graph, unsigned long long flags))
DECLARE(cuGraphLaunch, (CuGraphExec exec, CuStream s))
DECLARE(cuGraphExecDestroy, (CuGraphExec exec))
DECLARE(cuGraphDestroy, (CuGraph graph))

/* What exists is known to the driver, so that objects of a lost device are no leak: nobody can give
 * them back. */
enum { MAX_OBJECTS = 256 };
static void *objects[MAX_OBJECTS];

static void *new_object(size_t bytes) {
    int i = 0;
    while (objects[i]) i++;
    fake_cuda.live++;
    return objects[i] = calloc(1, bytes);
}

static CuResult make(void *out) {
    void *p = new_object(1);
    memcpy(out, &p, sizeof p);
    return CU_OK;
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
     *value = a == CU_COMPUTE_MAJOR ? 9 : 0;)
DONE(cuDevicePrimaryCtxRetain, (CuContext * c, CuDevice d), (void)d; *c = (CuContext)&fake_cuda;
     fake_cuda.live++;)
DONE(cuDevicePrimaryCtxRelease_v2, (CuDevice d), (void)d; fake_cuda.live--;)
DONE(cuCtxPushCurrent_v2, (CuContext c), (void)c;)
DONE(cuCtxPopCurrent_v2, (CuContext * c), *c = NULL;)
DONE(cuModuleLoadDataEx, (CuModule * m, const void *image, unsigned n, int *o, void **v),
     (void)image, (void)n, (void)o, (void)v;
     return make(m);)
DONE(cuModuleUnload, (CuModule m), return unmake(m);)
DONE(cuModuleGetFunction, (CuFunction * f, CuModule m, const char *name), (void)m, (void)name;
     *f = NULL;)
DONE(cuFuncSetAttribute, (CuFunction f, int attribute, int value), (void)f, (void)attribute,
     (void)value;)
DONE(cuMemGetInfo_v2, (size_t * left, size_t *total), *left = 5000; *total = 9000;)
CuResult cuMemAlloc_v2(CuAddress *p, size_t bytes) {
    ENTER();
    *p = (CuAddress)(uintptr_t)new_object(bytes);
    return CU_OK;
}
DONE(cuMemFree_v2, (CuAddress p), return unmake((void *)(uintptr_t)p);)
DONE(cuMemcpyAsync, (CuAddress to, CuAddress from, size_t bytes, CuStream s), (void)s;
     memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);)
DONE(cuMemcpyHtoD_v2, (CuAddress to, const void *from, size_t bytes),
     memcpy((void *)(uintptr_t)to, from, bytes);)
DONE(cuStreamCreate, (CuStream * s, unsigned flags), (void)flags; return make(s);)
DONE(cuStreamDestroy_v2, (CuStream s), return unmake(s);)
DONE(cuStreamSynchronize, (CuStream s), (void)s;)
DONE(cuEventCreate, (CuEvent * e, unsigned flags), (void)flags; return make(e);)
DONE(cuEventDestroy_v2, (CuEvent e), return unmake(e);)
DONE(cuEventRecord, (CuEvent e, CuStream s), (void)e, (void)s;)
DONE(cuEventElapsedTime, (float *ms, CuEvent from, CuEvent to), (void)from, (void)to; *ms = 1;)
DONE(cuLaunchKernel,
     (CuFunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
      unsigned shared, CuStream s, void **params, void **extra),
     (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)s,
     (void)params, (void)extra;)
DONE(cuStreamIsCapturing, (CuStream s, int *status), (void)s; *status = 0;)
DONE(cuStreamBeginCapture_v2, (CuStream s, int mode), (void)s, (void)mode;)
DONE(cuStreamEndCapture, (CuStream s, CuGraph *graph), (void)s; return make(graph);)
#ifndef FAKE_CUDA_OLD
DONE(cuGraphInstantiateWithFlags, (CuGraphExec * exec, CuGraph graph, unsigned long long flags),
     (void)graph, (void)flags;
     return make(exec);)
#endif
DONE(cuGraphLaunch, (CuGraphExec exec, CuStream s), (void)exec, (void)s;)
DONE(cuGraphExecDestroy, (CuGraphExec exec), return unmake(exec);)
DONE(cuGraphDestroy, (CuGraph graph), return unmake(graph);)

#pragma GCC visibility pop
