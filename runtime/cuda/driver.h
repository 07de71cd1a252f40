/* The CUDA driver, opened at run time: nothing of CUDA is needed to build. The types are the
 * documented ABI's: handles are pointers, device addresses 64-bit integers. */
#ifndef RUNTIME_CUDA_DRIVER_H
#define RUNTIME_CUDA_DRIVER_H

#include "runtime/session.h"

typedef int CuResult, CuDevice;
typedef unsigned long long CuAddress;
typedef struct CuContextImpl *CuContext;
typedef struct CuModuleImpl *CuModule;
typedef struct CuFunctionImpl *CuFunction;
typedef struct CuStreamImpl *CuStream;
typedef struct CuEventImpl *CuEvent;
typedef struct CuGraphImpl *CuGraph;
typedef struct CuGraphExecImpl *CuGraphExec;
typedef struct CuGraphNodeImpl *CuGraphNode;

/* CUlaunchAttribute: a number, and a value of 64 bytes. */
typedef struct CuLaunchAttribute {
    int id, pad;
    union {
        uint32_t cluster[3];
        int allowed; /* programmatic stream serialisation */
        char room[64];
    } value;
} CuLaunchAttribute;

/* CUlaunchConfig. */
typedef struct CuLaunch {
    uint32_t grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    CuStream stream;
    CuLaunchAttribute *attributes;
    uint32_t nattributes;
} CuLaunch;

/* CUDA_KERNEL_NODE_PARAMS_v2. */
typedef struct CuKernelNode {
    CuFunction function;
    uint32_t grid[3], block[3], shared;
    void **params, **extra;
    void *kernel;
    CuContext context;
} CuKernelNode;

_Static_assert(sizeof(CuLaunchAttribute) == 72 && sizeof(CuLaunch) == 56 &&
                   sizeof(CuKernelNode) == 72,
               "the driver's layout");

/* Result codes that mean something special here. */
enum {
    CU_OK = 0,
    CU_OUT_OF_MEMORY = 2,
    CU_NO_DEVICE = 100,
    CU_NO_BINARY_FOR_GPU = 209,
    CU_PTX_TOO_NEW = 222,
    CU_ILLEGAL_ADDRESS = 700,
    CU_FIRST_FATAL = 714, /* 714-719: the context is lost */
    CU_LAST_FATAL = 719
};

enum {
    CU_MULTIPROCESSORS = 16,
    CU_SHARED_OF_MULTIPROCESSOR = 81,
    CU_COMPUTE_MAJOR = 75,
    CU_COMPUTE_MINOR = 76,
    CU_FUNCTION_DYNAMIC_SHARED = 8,
    CU_FUNCTION_LARGE_CLUSTER = 14, /* more than 8 blocks */
    CU_LAUNCH_CLUSTER = 4,
    CU_LAUNCH_PROGRAMMATIC = 6,
    CU_JIT_ERROR_LOG = 5,
    CU_JIT_ERROR_LOG_SIZE = 6,
    CU_STREAM_NON_BLOCKING = 1,
    CU_CAPTURE_THREAD_LOCAL = 1,
    CU_CAPTURE_NONE = 0
};

/* Element types of tensor maps (CUtensorMapDataType). */
enum {
    CU_MAP_U8 = 0,
    CU_MAP_U16 = 1,
    CU_MAP_U32 = 2,
    CU_MAP_U64 = 4,
    CU_MAP_F16 = 6,
    CU_MAP_F32 = 7,
    CU_MAP_BF16 = 9,
    CU_MAP_TF32 = 11
};

typedef struct Driver {
    int version; /* 13000 = CUDA 13.0 */
#define CU(field, symbol, params) CuResult(*field) params;
#include "runtime/cuda/driver.def"
#undef CU
} Driver;

/* Opens and initialises the driver once per process; *out stays valid. */
graphc_status driver_open(const Driver **out, ErrorText e);
/* "launching kernel x: CUDA_ERROR_...: text". */
graphc_status driver_error(const Driver *d, CuResult r, ErrorText e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* A resident on a GPU. */
typedef struct CudaDevice {
    const Driver *driver;
    CuDevice device;
    CuContext context;
    CuModule *module;     /* per blob of the target; NULL: not loaded */
    CuFunction *function; /* per kernel */
    uint32_t processors;  /* multiprocessors, */
    uint32_t shared;      /* and bytes of shared memory of each; 0: the driver does not tell */
    bool waits_first;     /* no kernel reads anything before it has waited for those in front */
    CuResult lost;        /* the fatal error that ended the context; written with any thread's */
    _Atomic uint64_t held, most; /* bytes that are allocated, and the most that were */
} CudaDevice;

struct Lane {
    Resident *res;
    CudaDevice *dev;
    CuStream stream;
    bool own_stream, checking; /* of the session: each kernel is waited for */
    bool behind_kernel; /* the last thing on the stream is a kernel of this run, or its caller's
                           work, which all kernels of the run wait for */
    CuEvent event[2];
    void **params; /* room for any kernel's */
};

/* The context is gone for good: every later call says so and nothing is freed. */
bool cuda_is_fatal(CuResult r);
/* Turns a result into a status and remembers a lost context. */
graphc_status cuda_check(CudaDevice *d, CuResult r, ErrorText e, const char *what);

/* launch.c: DeviceOps' launch and encode. */
graphc_status cuda_launch(Lane *l, const Launch *k, ErrorText e);
graphc_status cuda_encode(Lane *l, const Launch *k, void *maps, ErrorText e);
/* Makes the node that such a launch was recorded as do this one. */
graphc_status cuda_update(Lane *l, CuGraphExec exec, CuGraphNode node, const Launch *k,
                          ErrorText e);

/* Runs a session's steps as one recorded graph where the plan allows it (replay.c). */
graphc_status replay_run(graphc_session *s);
graphc_status replay_prepare(graphc_session *s);

/* arch.c: how well code for a target of that name suits a GPU of this compute capability, the most
 * special code best; 0: it does not run there. */
uint32_t cuda_arch_rank(const char *target, int major, int minor);

#endif
