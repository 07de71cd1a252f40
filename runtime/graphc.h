/* graphc run API: load a plan, make sessions, bind tensors, run.
 *
 * C17 and C++. Needs libc and pthreads; a CUDA device needs the NVIDIA driver (libcuda.so.1), opened
 * only when a CUDA session is made. No call prints or exits.
 *
 * Threads: a plan is immutable after loading and may be shared by any number of threads. A session
 * belongs to one thread at a time; sessions of one plan run concurrently.
 * Ownership: create/destroy pairs; pointers returned by a plan or session live as long as it does.
 * Errors: every failing call returns a status and leaves a message with the object
 * (graphc_plan_load takes a buffer for it, since there is no object yet).
 * Loading a plan runs code from it later: load only plans you built or trust. */
#ifndef GRAPHC_H
#define GRAPHC_H

#include "graphc_status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRAPHC_VERSION_MAJOR 0
#define GRAPHC_VERSION_MINOR 1
#define GRAPHC_MAX_RANK      12

#if defined(__GNUC__)
#define GRAPHC_API __attribute__((visibility("default")))
#else
#define GRAPHC_API
#endif

typedef struct graphc_plan graphc_plan;
typedef struct graphc_session graphc_session;

/* DLPack's type code and bits (dlpack.h: kDLFloat = 2, kDLInt = 0, kDLUInt = 1, kDLBfloat = 4,
 * kDLBool = 6 ...), so a tensor converts to a DLTensor field by field. */
typedef struct graphc_dtype {
    uint8_t code, bits;
    uint16_t lanes; /* 1 */
} graphc_dtype;

typedef enum graphc_device_kind { GRAPHC_CPU = 1, GRAPHC_CUDA = 2 } graphc_device_kind; /* DLPack */

/* A dense row-major tensor. `data` is device memory for a CUDA session's device tensors, host memory
 * otherwise. Sub-byte and float8 types hold one element per byte. */
typedef struct graphc_tensor {
    void *data;
    graphc_device_kind device;
    int32_t device_id;
    graphc_dtype dtype;
    int32_t rank;
    int64_t shape[GRAPHC_MAX_RANK];
} graphc_tensor;

typedef struct graphc_io_info {
    const char *name;
    graphc_dtype dtype;
    const char *dtype_name; /* "f32", "bf16", "i64" ... */
    int32_t rank;
    const char *const *dims; /* each dimension as text: "batch", "64", "past + seq" */
} graphc_io_info;

typedef struct graphc_symbol_info {
    const char *name;
    int64_t lo, hi;
} graphc_symbol_info;

GRAPHC_API uint32_t graphc_version(void); /* major << 16 | minor */

/* error: buffer for a message of at most error_size bytes (may be NULL, 0). */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_plan_load(const char *path, graphc_plan **out,
                                                          char *error, size_t error_size);
/* The bytes are copied. base_path: where constants by reference are looked for; NULL if none. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_plan_load_memory(const void *bytes, size_t size,
                                                                 const char *base_path,
                                                                 graphc_plan **out, char *error,
                                                                 size_t error_size);
GRAPHC_API void graphc_plan_destroy(graphc_plan *p); /* after all its sessions; NULL is allowed */

GRAPHC_API uint32_t graphc_plan_inputs(const graphc_plan *p);
GRAPHC_API uint32_t graphc_plan_outputs(const graphc_plan *p);
GRAPHC_API uint32_t graphc_plan_symbols(const graphc_plan *p);
GRAPHC_API graphc_io_info graphc_plan_input(const graphc_plan *p, uint32_t i);
GRAPHC_API graphc_io_info graphc_plan_output(const graphc_plan *p, uint32_t i);
GRAPHC_API graphc_symbol_info graphc_plan_symbol(const graphc_plan *p, uint32_t i);
/* Index of a name, or -1. */
GRAPHC_API int32_t graphc_plan_find_input(const graphc_plan *p, const char *name);
GRAPHC_API int32_t graphc_plan_find_output(const graphc_plan *p, const char *name);

typedef struct graphc_session_options {
    uint32_t size; /* sizeof(graphc_session_options), set by GRAPHC_SESSION_OPTIONS_INIT */
    graphc_device_kind device;
    int32_t device_id;
    uint32_t threads;   /* 0: GRAPHC_THREADS, else the cores that the process may use */
    void *cuda_stream;  /* CUstream to use; NULL: the session's own */
    uint32_t isa_limit; /* 0: best the CPU has; 3: x86-64-v3 at most (for testing) */
    const char *weights_dir; /* where constants by reference lie; NULL: as the plan says */
} graphc_session_options;
#define GRAPHC_SESSION_OPTIONS_INIT                                                                \
    { sizeof(graphc_session_options), GRAPHC_CPU, 0, 0, NULL, 0, NULL }

/* Loads constants and runs the prepare steps. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_session_create(const graphc_plan *p,
                                                               const graphc_session_options *o,
                                                               graphc_session **out, char *error,
                                                               size_t error_size);
GRAPHC_API void graphc_session_destroy(graphc_session *s);
/* What went wrong in the last failing call on this session; "" if nothing did. */
GRAPHC_API const char *graphc_session_error(const graphc_session *s);

/* Binds the caller's memory as input i: it must stay valid until the run is over. Symbols take their
 * values from the bound shapes. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_bind_input(graphc_session *s, uint32_t i,
                                                           const graphc_tensor *t);
/* Binds the caller's memory as output i; t->shape must be the shape that the run will give. Without
 * it the session owns the output's memory. data == NULL unbinds. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_bind_output(graphc_session *s, uint32_t i,
                                                            const graphc_tensor *t);
/* Bytes of workspace for the shapes bound now (arena and scratch). */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_workspace_size(graphc_session *s, size_t *bytes);
/* Lets the caller provide the workspace (64-byte aligned; device memory on CUDA); NULL takes back. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_bind_workspace(graphc_session *s, void *p,
                                                               size_t bytes);
/* Runs the plan. Returns after completion on the CPU, and on CUDA when host tensors are outputs;
 * otherwise work is queued on the session's stream. No allocation once shapes have been seen. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_run(graphc_session *s);
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_sync(graphc_session *s);
/* Output i of the last run: host memory on the CPU; on CUDA device memory unless the caller bound
 * host memory. Valid until the next run. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_output(graphc_session *s, uint32_t i,
                                                       graphc_tensor *out);
/* The same, always in host memory: on CUDA it waits for the run and copies to memory that the
 * session owns. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_output_host(graphc_session *s, uint32_t i,
                                                            graphc_tensor *out);
GRAPHC_API uint32_t graphc_session_threads(const graphc_session *s); /* 1 on CUDA */

/* Profiling: seconds per step of the last run made with profiling on. */
typedef struct graphc_step_profile {
    const char *kernel, *kind;
    double seconds, bytes, flops;
} graphc_step_profile;
GRAPHC_API void graphc_session_profile(graphc_session *s, bool on);
GRAPHC_API uint32_t graphc_profile_steps(const graphc_session *s);
GRAPHC_API graphc_step_profile graphc_profile_step(const graphc_session *s, uint32_t i);

#ifdef __cplusplus
}
#endif
#endif
