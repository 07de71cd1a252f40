/* graphc run API: load a plan, make sessions, bind tensors, run.
 *
 *   char why[256];
 *   graphc_plan *plan;
 *   graphc_session *s;
 *   if (graphc_plan_load("bert.plan", &plan, why, sizeof why) != GRAPHC_OK) ...
 *   if (graphc_session_create(plan, NULL, &s, why, sizeof why) != GRAPHC_OK) ...
 *
 *   int64_t ids[1][64] = ...;
 *   graphc_tensor in = {ids, GRAPHC_CPU, 0, graphc_plan_input(plan, 0).dtype, 2, {1, 64}}, out;
 *   if (graphc_bind_input(s, 0, &in) != GRAPHC_OK) ...
 *   if (graphc_run(s) != GRAPHC_OK) puts(graphc_session_error(s));
 *   if (graphc_output(s, 0, &out) == GRAPHC_OK) ... out.data, out.shape ...
 *
 *   graphc_session_destroy(s);
 *   graphc_plan_destroy(plan);
 *
 * C17 and C++. Needs libc and pthreads; a CUDA device needs the NVIDIA driver (libcuda.so.1),
 * opened only when a CUDA session is made. No call prints or exits.
 *
 * Threads: a plan is immutable after loading and may be shared by any number of threads. A session
 * belongs to one thread at a time; sessions of one plan run concurrently. Constants and code are
 * held once per plan and device; what a further session costs is its workspace. So is the pool of
 * threads: of several CPU sessions that run at the same moment one has the pool and the others run
 * on their own thread alone. After fork() only the parent may use plans and sessions made before.
 *
 * Ownership: create/destroy pairs; strings and arrays returned by a plan or session live as long as
 * it does. A plan outlives its sessions. Bound memory stays the caller's.
 *
 * Errors: every failing call returns a status (graphc_status.h) and leaves a message with the
 * session or, where there is none yet, in a buffer that the caller gives (may be NULL, 0). A
 * session remains usable after any failed call, but for one case: a fault on a GPU that takes its
 * CUDA context along (an access out of bounds, a launch that the device aborts) is GRAPHC_RUNTIME
 * there and in every later call of a session of that plan on that device that needs the device,
 * until the program ends. Sessions on the CPU are not touched by it. Plans and sessions must not be
 * NULL, except for the destroy functions.
 *
 * Trust: plan files are checked completely before use, but they hold machine code that runs later:
 * load only plans that you built or trust. Plan and weight files are mapped: replace them by
 * renaming, never in place, while a plan is loaded. */
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

/* --- Types -------------------------------------------------------------------------------- */

/* DLPack's type code and bits (dlpack.h: kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4,
 * kDLBool = 6, float8 from 10 to 14), so a tensor converts to a DLTensor field by field. The types
 * of 2 and 4 bits, which DLPack packs and graphc does not, have code 255; dtype_name tells them
 * apart. */
typedef struct graphc_dtype {
    uint8_t code, bits;
    uint16_t lanes; /* always 1 */
} graphc_dtype;

typedef enum graphc_device_kind { GRAPHC_CPU = 1, GRAPHC_CUDA = 2 } graphc_device_kind; /* DLPack */

/* A dense row-major tensor: of a DLTensor with strides NULL, data is its data + byte_offset.
 * `device` says where `data` lies; host memory may be bound to a CUDA session and is copied then,
 * and so is device memory that does not start at a multiple of 16 bytes.
 * `data` is aligned to its elements; NULL is allowed where there is no element. Sub-byte and float8
 * types hold one element per byte, bool is one byte of 0 or 1. */
typedef struct graphc_tensor {
    void *data;
    graphc_device_kind device;
    int32_t device_id; /* 0 for host memory */
    graphc_dtype dtype;
    int32_t rank;
    int64_t shape[GRAPHC_MAX_RANK]; /* the first `rank`, in elements */
} graphc_tensor;

/* --- Plans -------------------------------------------------------------------------------- */

/* An input or output of the plan. */
typedef struct graphc_io_info {
    const char *name;
    graphc_dtype dtype;
    const char *dtype_name; /* "f32", "bf16", "i64" ... */
    int32_t rank;
    const char *const *dims; /* each dimension as text: "batch", "64", "past + seq" */
    const int64_t *sizes;    /* each dimension that is fixed; -1 where it is not */
} graphc_io_info;

/* One of the ways to run a plan: a step of training, its evaluation, or the only one, "run". Runs
 * of all entries see the same states. */
typedef struct graphc_entry_info {
    const char *name;
    const uint32_t *inputs, *outputs, *states; /* numbers of those it takes, gives and writes */
    uint32_t ninputs, noutputs, nstates;
} graphc_entry_info;

/* What a state is in training. Gradients are there between batches of one step (graphc_train.h). */
typedef enum graphc_state_role {
    GRAPHC_STATE_OTHER,
    GRAPHC_STATE_PARAMETER, /* what is learnt: a weight, or a matrix of an adapter */
    GRAPHC_STATE_MOMENT,    /* the optimizer's */
    GRAPHC_STATE_GRADIENT,  /* sums over batches: of gradients, and of what they are divided by */
    GRAPHC_STATE_BUFFER /* the model's own, which goes along and is saved with its weights: running
                           statistics */
} graphc_state_role;
typedef struct graphc_state_info {
    graphc_state_role role;
    int32_t parameter; /* state that a moment or gradient belongs to; -1: to none */
    double spread; /* of a parameter that training starts with uniform numbers in +-spread (a new
                      session's holds zeros); 0: it starts as in a new session */
} graphc_state_info;

/* A size within [lo, hi]: the dimension of an input or an element of a small integer input, fixed
 * when inputs are bound, or a number that a kernel finds out ("count_1", as of NonZero). */
typedef struct graphc_symbol_info {
    const char *name;
    int64_t lo, hi;
} graphc_symbol_info;

GRAPHC_API uint32_t graphc_version(void); /* of the library: major << 16 | minor */
GRAPHC_API const char *graphc_status_name(graphc_status s); /* "out of memory" */

/* *out is the plan, or NULL on failure. error: a buffer for the message, of error_size bytes with
 * the terminating 0. GRAPHC_IO: the file cannot be read; GRAPHC_INVALID: it is not a whole,
 * consistent plan; GRAPHC_UNSUPPORTED: it is of another version. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_plan_load(const char *path, graphc_plan **out,
                                                          char *error, size_t error_size);
/* The same from memory; the bytes are copied. base_path: the path at which the plan would lie as a
 * file: constants by reference are looked for from its folder on. NULL if there are none. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_plan_load_memory(const void *bytes, size_t size,
                                                                 const char *base_path,
                                                                 graphc_plan **out, char *error,
                                                                 size_t error_size);
GRAPHC_API void graphc_plan_destroy(graphc_plan *p); /* after all its sessions; NULL is allowed */

GRAPHC_API uint32_t graphc_plan_inputs(const graphc_plan *p); /* how many there are */
GRAPHC_API uint32_t graphc_plan_outputs(const graphc_plan *p);
GRAPHC_API uint32_t graphc_plan_states(const graphc_plan *p);
GRAPHC_API uint32_t graphc_plan_entries(const graphc_plan *p); /* at least 1 */
GRAPHC_API uint32_t graphc_plan_symbols(const graphc_plan *p);
/* Number i, in the model's order; all zero when there is no such. */
GRAPHC_API graphc_io_info graphc_plan_input(const graphc_plan *p, uint32_t i);
GRAPHC_API graphc_io_info graphc_plan_output(const graphc_plan *p, uint32_t i);
GRAPHC_API graphc_io_info graphc_plan_state(const graphc_plan *p, uint32_t i);
GRAPHC_API graphc_state_info graphc_plan_state_info(const graphc_plan *p, uint32_t i);
GRAPHC_API graphc_entry_info graphc_plan_entry(const graphc_plan *p, uint32_t i);
GRAPHC_API graphc_symbol_info graphc_plan_symbol(const graphc_plan *p, uint32_t i);
/* Number of the input, output, state or entry of that name, or -1. */
GRAPHC_API int32_t graphc_plan_find_input(const graphc_plan *p, const char *name);
GRAPHC_API int32_t graphc_plan_find_output(const graphc_plan *p, const char *name);
GRAPHC_API int32_t graphc_plan_find_state(const graphc_plan *p, const char *name);
GRAPHC_API int32_t graphc_plan_find_entry(const graphc_plan *p, const char *name);
/* What the compiler says of the plan under that name, or NULL. Of training plans: "adapter", the
 * adapter_config.json of what is learnt; "labels", the input that takes them; "vocabulary", how
 * many there are; "ignored", the label that counts for nothing. Of all: "made_by", the compiler's
 * release; "model", a hash of the model's file; "range of NAME", "LO..HI", what that input's
 * integers are positions in (rows of an embedding). A run looks at them only where `check` asks for
 * it (graphc_session_options); what lies beyond reads the nearest row. */
GRAPHC_API const char *graphc_plan_note(const graphc_plan *p, const char *key);

/* One launch of a kernel by a plan's target: what its explanation consists of. */
typedef struct graphc_kernel_info {
    const char *name, *kind; /* "tem_5_matmul_add"; "poi", "red", "per" or "tem" */
    const char *entry;       /* that runs it; "" when it runs once, at load */
    const char *nodes; /* the ONNX nodes that it covers, one a line; one that it only looks through,
                          as a view, ends in " (a view: only where it is read)" */
} graphc_kernel_info;

GRAPHC_API uint32_t graphc_plan_targets(const graphc_plan *p); /* how many there are */
/* "cpu", "sm_90a", "sm_80"; "" when there is no such. */
GRAPHC_API const char *graphc_plan_target(const graphc_plan *p, uint32_t target);
/* What was not fused with what, and why: one line each. */
GRAPHC_API const char *graphc_plan_refusals(const graphc_plan *p, uint32_t target);
/* The ONNX nodes that no kernel covers: "NODE: WHY", one line each. */
GRAPHC_API const char *graphc_plan_uncovered(const graphc_plan *p, uint32_t target);
/* Its kernels in launch order, those that run at load first. */
GRAPHC_API uint32_t graphc_plan_kernels(const graphc_plan *p, uint32_t target);
/* All "" when there is no such. */
GRAPHC_API graphc_kernel_info graphc_plan_kernel(const graphc_plan *p, uint32_t target, uint32_t i);

/* --- Sessions ----------------------------------------------------------------------------- */

/* Start from GRAPHC_SESSION_OPTIONS_INIT and set what differs; strings are copied. */
typedef struct graphc_session_options {
    uint32_t size; /* sizeof(graphc_session_options), set by GRAPHC_SESSION_OPTIONS_INIT */
    graphc_device_kind device;
    int32_t device_id;       /* CPU: 0 */
    uint32_t threads;        /* CPU, at most 256; 0: the number in GRAPHC_THREADS, else the cores
                                that the process may use: those it is bound to, and no more than
                                its cgroups' quota */
    void *cuda_stream;       /* CUstream to use; NULL: the session's own */
    uint32_t isa_limit;      /* 0: best the CPU has; 3 or 4: x86-64-v3 or -v4 at most */
    const char *weights_dir; /* where constants by reference lie; NULL: as the plan says */
    uint32_t check; /* 1: each kernel of a run is waited for, so that a fault on a GPU comes
                       from the call that ran into it and names the kernel and its nodes;
                       integers of inputs in host memory that are positions in a table
                       ("range of NAME", graphc_plan_note) are looked at, and one beyond it is
                       GRAPHC_INVALID; slow, and not while the caller records a CUDA graph.
                       0: only where GRAPHC_CHECK is set to something else than 0 */
    uint32_t lean;  /* 1: on a CPU weights that are prepared for it are there only while a run reads
                       them: made in front of the first kernel that does, given back behind the
                       last, anew in each run. Least memory, for a session that runs once or
                       rarely; it shares no weights. 0: prepared once, for all sessions */
} graphc_session_options;
#define GRAPHC_SESSION_OPTIONS_INIT                                                                \
    { sizeof(graphc_session_options), GRAPHC_CPU, 0, 0, NULL, 0, NULL, 0, 0 }

/* o: NULL for the defaults. The first session of a plan on a device loads constants and runs the
 * prepare steps, which may take long; later ones share them, as long as one is left. *out is NULL
 * on failure. Results do not depend on the number of threads. GRAPHC_UNSUPPORTED: the plan has no
 * code for this device; GRAPHC_IO, GRAPHC_INVALID: a weight file cannot be read or is not the one
 * that the plan was made with, as far as its length and a hash over the beginning and end of each
 * constant tell; GRAPHC_RUNTIME: the device or its driver. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_session_create(const graphc_plan *p,
                                                               const graphc_session_options *o,
                                                               graphc_session **out, char *error,
                                                               size_t error_size);
/* Writes a plan that does what the session's does and has nothing left to prepare on its device:
 * prepared weights, and the constants that runs read beside them, lie in the file "PATH.prepared",
 * which sessions map and use as it is. They start at once, and processes share its memory. It takes
 * the place of the model's weights, and belongs to this plan: the two move together. Each file
 * appears whole or not at all. GRAPHC_UNSUPPORTED: the session is a GPU's. GRAPHC_USAGE: it
 * is lean. GRAPHC_IO, GRAPHC_INVALID: a file cannot be written, or weights not be read. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_prepared_save(graphc_session *s, const char *path);
/* Waits for queued work; NULL is allowed. */
GRAPHC_API void graphc_session_destroy(graphc_session *s);
GRAPHC_API const graphc_plan *graphc_session_plan(const graphc_session *s); /* it was made of */
/* What went wrong in the last call on this session; "" if nothing did. Valid until the next call */
GRAPHC_API const char *graphc_session_error(const graphc_session *s);
GRAPHC_API uint32_t graphc_session_threads(const graphc_session *s); /* 1 on CUDA */
/* The most bytes of the device's own memory that all sessions of the plan there have held at a
 * time: weights, states, workspace, copies of inputs, not what the driver takes. 0 on CPUs, where
 * the system counts them. */
GRAPHC_API uint64_t graphc_session_peak(const graphc_session *s);
/* What the session picked from the plan: "x86-64-v3", "x86-64-v4", "x86-64-v4+vnni",
 * "x86-64-v4+bf16", "cubin" or "ptx"; "" if the plan launches nothing. */
GRAPHC_API const char *graphc_session_code(const graphc_session *s);

/* --- Binding and running ------------------------------------------------------------------- */

/* Binds the caller's memory as input i, for this and later runs, until another is bound. The tensor
 * struct is copied; its data must stay valid and unchanged while a run reads it, and may be changed
 * between runs. Symbols take their values from the shapes of all inputs when the next call needs
 * them: shapes that do not go together are GRAPHC_INVALID there. GRAPHC_USAGE: there is no such
 * input, t is NULL, its data is NULL where it has elements, is not aligned or lies on another
 * device. GRAPHC_INVALID: type, rank, or a shape that is too large. What was bound before stays
 * bound after a failure. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_bind_input(graphc_session *s, uint32_t i,
                                                           const graphc_tensor *t);
/* Binds the caller's memory as output i, likewise; t->shape must be the shape that the run will
 * give. Without it the session owns the output's memory. t == NULL or data == NULL unbinds. Memory
 * of an output overlaps no other bound memory: a cache that a run reads and writes needs two
 * tensors, which change places between runs. Ends what graphc_output says of the last run. Statuses
 * as for inputs. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_bind_output(graphc_session *s, uint32_t i,
                                                            const graphc_tensor *t);
/* Bytes of workspace (intermediate values and per-thread scratch) that a run needs of the entry
 * that ran last (of a new session: the first), for the shapes bound now; its inputs must be bound
 * (GRAPHC_USAGE). Outputs and constants are not part of it. If shapes differ from those of the last
 * run, ends what graphc_output says of it. GRAPHC_INVALID: the shapes do not go together, or are
 * not those that the plan was made for. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_workspace_size(graphc_session *s, size_t *bytes);
/* Type and shape that output i will have in a run of that entry (0 of most plans) with the inputs
 * bound now, so that memory can be made for graphc_bind_output; data is NULL. A dimension that only
 * the run finds out is -1. Statuses and effects as of graphc_workspace_size, which is about that
 * entry from then on; GRAPHC_USAGE also where there is no such entry or it gives no output i. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_output_shape(graphc_session *s, uint32_t entry,
                                                             uint32_t i, graphc_tensor *out);
/* Gives the session that workspace: 64-byte aligned, device memory on CUDA, used by nothing else
 * during runs (sessions that never run at the same time may share it), holding nothing between
 * them. One that is too small makes the run fail with GRAPHC_USAGE. NULL: the session allocates its
 * own again. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_bind_workspace(graphc_session *s, void *p,
                                                               size_t bytes);
/* Runs the plan's first entry once, of most plans the only one. Returns after completion on the
 * CPU, and on CUDA when host memory is bound to an output; otherwise work is queued on the
 * session's stream. A run with shapes that were seen before allocates nothing.
 *
 * GRAPHC_USAGE: an input is not bound, the workspace is too small. GRAPHC_INVALID: the shapes do
 * not go together or are not those that the plan was made for; an output was bound with another
 * shape than the run gives. GRAPHC_NO_MEMORY: for workspace or outputs. GRAPHC_RUNTIME: the device
 * or its driver; a kernel found a size outside of its range. What is queued on CUDA may fail later:
 * then the next call that waits gives GRAPHC_RUNTIME. After a failure there are no outputs. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_run(graphc_session *s);
/* The same of entry i: its inputs have to be bound, its outputs are there afterwards and those of
 * other entries are not, the states that it writes have changed. A run that fails once it has begun
 * leaves them with anything. GRAPHC_USAGE also where there is no entry i. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_run_entry(graphc_session *s, uint32_t i);
/* Does beforehand what the next run of entry i would do before its work starts: sizes, places in
 * memory and what kernels are launched with, for the tensors bound now. Behind a run that a GPU is
 * still at, this takes no time of its own: sizes that change from run to run, as a cache's that
 * grows, cost none. The run is right without it too, and if other tensors are bound in between.
 * What graphc_output says of the last run of that entry stays until the next. Memory that has to
 * grow is left to the run. Statuses as of graphc_run_entry. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_prepare_run(graphc_session *s, uint32_t i);
/* Waits for what runs have queued; nothing to wait for on the CPU. GRAPHC_RUNTIME: the device. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_sync(graphc_session *s);
/* Runs n times in a row, n > 0, and waits; *seconds is what the device took from the start of the
 * first to the end of the last. Not while profiling. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_run_timed(graphc_session *s, uint32_t n,
                                                          double *seconds);
/* Held inputs: what runs copy to the device (host memory, and device memory that does not start at
 * a multiple of 16 bytes) is copied by the first run after inputs are bound, and taken as it was
 * then by the others. Off in a new session; nothing changes where tensors are used in place. */
GRAPHC_API void graphc_hold_inputs(graphc_session *s, bool on);
/* Output i of the last run, with its actual shape: the caller's memory if bound, else memory of the
 * session's device (on CUDA in stream order), valid until the next run or destruction. GRAPHC_USAGE
 * unless the last run succeeded. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_output(graphc_session *s, uint32_t i,
                                                       graphc_tensor *out);
/* The same, always in host memory: on CUDA it waits for the run and copies to memory that the
 * session owns. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_output_host(graphc_session *s, uint32_t i,
                                                            graphc_tensor *out);

/* --- States ----------------------------------------------------------------------------------- */

/* A state is a tensor that the session keeps from run to run: weights in training, moments, caches.
 * Each session has its own. In a new one they hold what the plan says: weights of the model, read
 * from its file once and never written there, or zeros. */

/* Copies what state i holds to t->data, which is the caller's, in host memory; type and shape are
 * the state's (graphc_plan_state). Waits for runs. GRAPHC_USAGE: there is no such state, t is NULL,
 * its data is NULL where it has elements, is not aligned or is not in host memory. GRAPHC_INVALID:
 * type or shape. GRAPHC_RUNTIME: the device. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_state_read(graphc_session *s, uint32_t i,
                                                           const graphc_tensor *t);
/* State i holds a copy of t from now on; t likewise. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_state_write(graphc_session *s, uint32_t i,
                                                            const graphc_tensor *t);
/* State i holds what it does in a new session. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_state_reset(graphc_session *s, uint32_t i);

/* Its type and shape now, without data. A cache grows along one axis: it starts with nothing there,
 * a run appends, and graphc_state_write with a shorter or longer tensor (up to the room that it was
 * given) sets how much it holds; with none, it is empty again. A run that has no room for what it
 * appends is GRAPHC_INVALID. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_state_shape(graphc_session *s, uint32_t i,
                                                            graphc_tensor *out);
/* All states that are gradients, in the session's memory: an f32 tensor of rank 1 on its device, in
 * which they lie one after another with zeros between. Its elements may be changed between runs, by
 * a reduction over several machines for one. Waits for runs; rank 1 and size 0 where there are
 * none. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_state_gradients(graphc_session *s,
                                                                graphc_tensor *out);
/* All states as one safetensors file: tensors by the states' names, and a checksum. The file
 * appears whole or not at all, in place of one that was there. GRAPHC_USAGE: path is NULL;
 * GRAPHC_IO: it cannot be written; GRAPHC_NO_MEMORY; GRAPHC_RUNTIME: the device. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_states_save(graphc_session *s, const char *path);
/* States hold what such a file says, of this plan or of another with the same states. What is wrong
 * with it is found before any of them changes: GRAPHC_IO: it cannot be read; GRAPHC_INVALID: it is
 * damaged, has no checksum, or has other tensors than the plan has states. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_states_load(graphc_session *s, const char *path);

/* --- Profiling ----------------------------------------------------------------------------- */

/* One kernel of the last run that was made with profiling on, in launch order; inside a loop the
 * sum over its iterations, 0 in a branch that was not taken. */
typedef struct graphc_step_profile {
    const char *kernel, *kind; /* "tem_5_matmul_add"; "poi", "red", "per" or "tem" */
    double seconds;
    double bytes, flops; /* the least that it has to move and compute for these shapes */
    uint32_t threads;    /* the most that one launch was split among; on CUDA 1 */
    const char *nodes;   /* the ONNX nodes that it covers, one a line */
} graphc_step_profile;
/* Profiled runs time every kernel, and are slower as a whole. */
GRAPHC_API void graphc_session_profile(graphc_session *s, bool on);
GRAPHC_API uint32_t graphc_profile_steps(const graphc_session *s); /* how many kernels there are */
GRAPHC_API graphc_step_profile graphc_profile_step(const graphc_session *s, uint32_t i);

#ifdef __cplusplus
}
#endif
#endif
