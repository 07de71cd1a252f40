/* The runtime's own types. A graphc_plan is immutable but for its list of residents; a Resident is
 * one target of the plan on one device (code, constants, prepared buffers), shared by sessions; a
 * session holds what differs between runs: bindings, symbol values, memory. */
#ifndef RUNTIME_SESSION_H
#define RUNTIME_SESSION_H

#include "runtime/base/file.h"
#include "runtime/graphc.h"
#include "runtime/memory.h"
#include "runtime/plan.h"
#include "runtime/watch.h"
#include <pthread.h>

#define PART_ALIGN 256u /* of prepared buffers, on any device */

typedef struct DeviceOps DeviceOps;
typedef struct Lean Lean;

typedef struct OwnMemory {
    void *p;
    uint64_t bytes;
} OwnMemory;

/* Memory that a constant is read into which only prepare steps need (stage.c). */
typedef struct Stage {
    bool on;   /* while all prepare steps run once, on devices that have it */
    bool held; /* by this buffer */
    uint32_t buffer;
    int fd;           /* of the file that was mapped last, if it is on, or -1 */
    const void *file; /* its bytes, as they are mapped */
    void *p;
    uint64_t bytes;
} Stage;

typedef struct Resident {
    struct Resident *next;
    const graphc_plan *owner;
    const PlanTarget *target;
    const PlanBuffer *buffers; /* the target's ranges */
    const PlanKernel *kernels;
    const PlanStep *steps;
    const DeviceOps *ops;
    int32_t device_id;
    uint32_t isa_limit;
    PlanForm form;   /* of the code that runs here, set by open */
    char *weights;   /* a path in the folder of external constants, or NULL: the plan's */
    uint32_t refs;   /* guarded by the plan's lock */
    void *nowhere;   /* what pointers to no bytes point to, set by open */
    void **address;  /* per buffer: constants and prepared buffers, else NULL */
    uint8_t *owned;  /* per buffer: address was allocated here */
    OwnMemory left;  /* prepared buffers that runs read, one behind another; */
    uint64_t filled; /* bytes of it that have been given to them */
    Lean *lean;      /* NULL: prepared buffers are there all the time */
    uint32_t *over;  /* of a lean one, per buffer: the last prepare step that uses it, where they
                        alone do; else UINT32_MAX. NULL: as the plan says */
    Stage stage;     /* while prepare steps run */
    int64_t *slots;  /* of stage plan; the others are not meaningful */
    FileMap *files;  /* per constant: its mapped file, shared between equal names */
    uint8_t *mapped; /* per constant: this entry of files is to be unmapped */
    void *device;    /* the device's: code image, module, thread pool */
} Resident;

struct graphc_plan {
    Plan plan;
    FileMap map;           /* graphc_plan_load */
    void *copy;            /* graphc_plan_load_memory */
    char *base_path;       /* a path in the folder of external constants, or NULL */
    const char **dim_text; /* of inputs, outputs, then states, PLAN_MAX_RANK each */
    int64_t *sizes;        /* likewise; -1 where it is no constant */
    pthread_mutex_t lock;
    Resident *residents;
};

/* One kernel launch. */
typedef struct Launch {
    uint32_t kernel; /* of the target */
    uint32_t npointers;
    void *const *pointers;
    const uint32_t *buffers; /* of the target, that the pointers are to */
    const int64_t *dims, *slots;
    const uint8_t *maps; /* its tensor maps, PLAN_MAP_BYTES each */
    void *zero;          /* its zeroed memory */
    int64_t from, to;    /* a CPU's lane of one thread: of its work items these; 0, 0: all */
} Launch;

/* A lane executes launches in order: a stream, or a caller's share of the thread pool. One per
 * session, and one while prepare steps run. */
typedef struct Lane Lane;

typedef void EachFn(void *ctx, uint32_t i);

/* What a device does. Every function but close and free may fail with a message. */
struct DeviceOps {
    graphc_device_kind kind;
    bool own_memory; /* tensors in host memory have to be copied */
    uint32_t align;  /* of tensors that kernels may use where they are, beyond their elements' */
    /* bytes: so much of a run's inputs is copied at once, small ones together; 0: no */
    uint32_t packed;
    /* Which of a plan's targets for this kind of device the session's device runs best: *rank of
     * one name, 0 = not at all. NULL: there is only one such target. */
    graphc_status (*rank)(const char *target, const graphc_session_options *o, uint32_t *rank,
                          ErrorText e);
    /* The plan's code becomes runnable: fills r->device. */
    graphc_status (*open)(Resident *r, const graphc_session_options *o, ErrorText e);
    void (*close)(Resident *r);
    graphc_status (*alloc)(Resident *r, uint64_t bytes, void **out, ErrorText e);
    void (*free)(Resident *r, void *p, uint64_t bytes);
    /* The most bytes that `alloc` and `constant` have given out at a time. NULL: nobody counts. */
    uint64_t (*peak)(const Resident *r);
    graphc_status (*zero)(Resident *r, void *p, uint64_t bytes, ErrorText e); /* and waits */
    /* What these bytes of `alloc`'s hold is not needed any more: they take no memory until they are
     * written again, where they are, and then no more than is written. NULL: no such thing. */
    void (*rest)(const void *p, uint64_t bytes);
    /* Host memory that results are copied to again and again: the device may reach it by itself, if
     * it can, until it is unlocked, with the same size. NULL: nothing to do. */
    void (*host_lock)(Resident *r, void *p, uint64_t bytes);
    void (*host_unlock)(Resident *r, void *p, uint64_t bytes);
    /* Address of a constant for kernels; *owned if it has to be freed. */
    graphc_status (*constant)(Resident *r, const void *host, uint64_t bytes, size_t align,
                              void **out, bool *owned, ErrorText e);
    /* The pages of a file that the constant is mapped from are not needed for now. May be NULL. */
    void (*constant_used)(Lane *l, const void *host, uint64_t bytes);
    /* Bytes of an open file to memory of `alloc`'s; false: it does not give them. NULL: constants
     * are read where they are mapped. */
    bool (*read)(Lane *l, int fd, uint64_t at, void *to, uint64_t bytes);

    /* fn(ctx, 0) to fn(ctx, n - 1), n at most the lane's threads, side by side as far as it has
     * them now. NULL: no such thing. */
    void (*each)(Lane *l, EachFn *fn, void *ctx, uint32_t n);

    graphc_status (*lane_open)(Resident *r, const graphc_session_options *o, Lane **out,
                               ErrorText e);
    void (*lane_close)(Lane *l);
    uint32_t (*lane_threads)(const Lane *l);
    /* Bytes of workspace the lane wants when one thread needs `scratch`. */
    uint64_t (*lane_scratch)(const Lane *l, uint64_t scratch);
    void (*lane_set_scratch)(Lane *l, void *p, uint64_t scratch);
    /* Around every use of a lane from a thread. */
    graphc_status (*begin)(Lane *l, ErrorText e);
    void (*end)(Lane *l);
    graphc_status (*launch)(Lane *l, const Launch *k, ErrorText e);
    /* A launch's tensor maps for its pointers and sizes. NULL: its kernels have none. */
    graphc_status (*encode)(Lane *l, const Launch *k, void *maps, ErrorText e);
    graphc_status (*copy)(Lane *l, void *to, const void *from, uint64_t bytes, ErrorText e);
    graphc_status (*sync)(Lane *l, ErrorText e);
    /* Runs the session's steps some better way than one by one; NULL if there is none. */
    graphc_status (*run)(graphc_session *s);
    /* What `run` would do before the work starts, for what is bound. NULL: nothing. */
    graphc_status (*prepare)(graphc_session *s);
    /* Profiling: marks 0 and 1 around a launch; the seconds between them after a sync. */
    graphc_status (*mark)(Lane *l, uint32_t i, ErrorText e);
    double (*seconds)(Lane *l);
    /* Multiprocessors of the device, 0 if it does not say. NULL: 1. */
    uint32_t (*processors)(const Resident *r);
    /* Among how many threads the last launch was split. NULL: always one. */
    uint32_t (*parts)(const Lane *l);
};
extern const DeviceOps device_cpu, device_cuda;

typedef struct StepState {
    uint32_t pointers, dims, maps; /* starts in the session's arrays */
    uint32_t kernel;               /* of its variants, for the sizes now */
    uint32_t tried; /* 0: the kernel that sizes choose; else 1 + the variant to take (tune_try) */
    bool dynamic;   /* its kernel, dims or maps change while the plan runs */
} StepState;

typedef struct StepProfile {
    double seconds, bytes, flops;
    uint32_t threads;
} StepProfile;

struct graphc_session {
    graphc_plan *owner;
    const Plan *plan;
    Resident *res;
    Lane *lane;
    char error[512];

    graphc_tensor *inputs, *outputs; /* the caller's; data NULL = not bound. outputs: bound ones */
    uint8_t *input_bound;
    OwnMemory *input_copy, *output_own; /* device copies of host inputs; outputs of the session */
    OwnMemory packed;                   /* small inputs in host memory beside each other, and */
    uint8_t *packing;                   /* the same in host memory, ops->packed bytes each; */
    uint64_t *packed_at, packed_bytes;  /* per input: 1 + where, 0: not there. What is in use */
    OwnMemory *state;                   /* what the plan's states hold; */
    OwnMemory gradients;                /* of those that are gradients parts of this */
    int64_t *state_size;                /* of those that grow: how much along that axis */
    uint32_t entry;                     /* that what follows is for */
    PlanRange steps;                    /* its */
    OwnMemory *output_host;             /* host copies of device outputs, from malloc */
    uint32_t *output_buffer;            /* buffer number of each output */

    int64_t *symbols, *slots;
    PlanWide *wide; /* of the slots */
    uint8_t *ready; /* per symbol, then per slot: has a value; used for checks on run-time sizes */
    bool hold_inputs, inputs_there; /* copies are kept; they are made */
    bool packs;                     /* small inputs, where there are several */
    bool shapes_changed, pointers_changed, has_elem, ran;
    bool ahead;          /* a run may be under way: no memory is given back or zeroed */
    graphc_tensor *last; /* outputs of the last run where sizes are another's by now: */
    bool is_last;        /* so it is */

    MemoryPlan *memory;
    OwnMemory workspace; /* the session's own */
    OwnMemory given;     /* the caller's; p NULL = none */

    void **address; /* per buffer */
    StepState *step;
    void **pointers;
    int64_t *dims, *trip; /* trip: per step, of loops under way */
    uint8_t *maps;        /* tensor maps; those of dynamic steps are made when they are launched */
    OwnMemory zeroed;     /* first what kernels leave zero, then what is zeroed for each of them */
    uint64_t zero_kept;   /* bytes of the first part */
    /* What follows from the iteration number of the loop at step `loop` - 1; 0: of none. */
    uint32_t loop, nloop_slots, *loop_slots;
    uint8_t *loop_slot; /* per slot: is in loop_slots */
    uint64_t npointers, ndims;
    uint32_t generation; /* counts changes of slots, pointers and dims */

    OwnMemory swept; /* tune.c: what is written to empty the device's caches, */
    OwnMemory *kept; /* and what the states held, or NULL */
    int64_t *kept_size;
    WatchStep watch; /* NULL: none */
    void *watch_ctx;
    bool profiling, checking;
    uint32_t nkernel_steps;
    uint32_t *kernel_steps; /* step numbers of a run's kernels */
    StepProfile *profile;   /* per step */
    void *replay;           /* the device's recording of whole runs, or NULL */
    void (*replay_free)(graphc_session *s);
};

static inline ErrorText session_error(graphc_session *s) {
    return (ErrorText){s->error, sizeof s->error};
}

static inline const PlanEntry *session_entry(const graphc_session *s) {
    return &s->plan->entries[s->entry];
}
/* Is it one of the entry's? */
static inline bool session_takes(const graphc_session *s, uint64_t input) {
    const PlanEntry *e = session_entry(s);
    return plan_lists(s->plan, e->inputs, e->ninputs, (uint32_t)input);
}
static inline bool session_gives(const graphc_session *s, uint64_t output) {
    const PlanEntry *e = session_entry(s);
    return plan_lists(s->plan, e->outputs, e->noutputs, (uint32_t)output);
}

static inline bool session_runs(const graphc_session *s, uint32_t step) {
    return step >= s->steps.from && step < s->steps.to;
}

/* Type, rank, alignment, device: what can be told from one tensor alone (session.c). */
graphc_status tensor_check(graphc_session *s, const char *what, const PlanIo *io,
                           const graphc_tensor *t);
/* Of bound input i: whether integers that are positions in a table lie in it, if they are in host
 * memory. */
graphc_status tensor_positions(graphc_session *s, uint64_t i);

/* A growing state's size changed, or another's symbols did: bound before every run. */
graphc_status state_bind(graphc_session *s);
/* After a run: what its entry wrote is as large as it said. */
void state_grown(graphc_session *s);
/* Memory of the states, with what a new session's hold (state.c). */
graphc_status state_open(graphc_session *s, ErrorText e);
void state_close(graphc_session *s);
void state_shape(const graphc_session *s, uint64_t i, int64_t *shape);
/* May it hold a tensor of that shape? Then it can take it. */
bool state_fits(const graphc_session *s, uint64_t i, uint32_t rank, const int64_t *dim);
void state_resize(graphc_session *s, uint64_t i, const int64_t *dim);
uint64_t state_bytes(const graphc_session *s, uint64_t i); /* of what it holds */
/* Bytes [at, at + n) of what state i holds to host memory; all of it from there. Both wait. */
graphc_status state_get(graphc_session *s, uint64_t i, uint64_t at, uint64_t n, void *to,
                        ErrorText e);
graphc_status state_put(graphc_session *s, uint64_t i, const void *from, ErrorText e);

/* Finds or makes the plan's resident for these options; counted. */
graphc_status resident_acquire(graphc_plan *p, const graphc_session_options *o, Resident **out,
                               ErrorText e);
void resident_release(graphc_plan *p, Resident *r);
/* Around each step of a run, and behind the run, whatever came of it (lean.c): prepared buffers
 * that the step reads are there; those that no step from `next` on reads are given back. */
graphc_status lean_before(graphc_session *s, uint32_t step);
void lean_behind(graphc_session *s, uint32_t next);
void lean_over(graphc_session *s);
/* Constant c's bytes in host memory, checked; under the plan's lock. */
graphc_status resident_constant(Resident *r, uint64_t c, const uint8_t **out, ErrorText e);
/* They are not needed for now: of a file, their pages are given back. */
uint64_t resident_bytes(const Resident *r); /* of weights, on the device */
void resident_constant_used(const Resident *r, Lane *lane, uint64_t c, const uint8_t *bytes);

/* Symbols, expressions and memory for what is bound now (bind.c). */
graphc_status bind_all(graphc_session *s);
/* Memory and pointers, after bind_all. Of a session that is ahead of its run GRAPHC_NO_MEMORY says
 * that the run has to do it. */
graphc_status bind_memory(graphc_session *s);
/* After run-time symbols changed: expressions, dims of dynamic steps, checks that became ready. */
graphc_status bind_runtime(graphc_session *s);
/* Expressions and dims anew for the next iteration of the loop at that step. */
graphc_status bind_iteration(graphc_session *s, uint32_t loop);
/* After the last iteration: its number, and what follows from it, is not known any more. */
void bind_loop_left(graphc_session *s, uint32_t loop);
bool bind_input_copied(const graphc_session *s, uint64_t i); /* before every run */
/* The caller's memory takes an output directly if kernels can write there and its shape is known
 * before the run. */
bool bind_output_direct(const graphc_session *s, uint64_t i);
/* Runs steps [from, to) one by one (steps.c). */
graphc_status steps_run(graphc_session *s, uint32_t from, uint32_t to);

/* What kernel steps are launched with (launch.c). The step's kernel for these sizes: */
uint32_t launch_choice(const Plan *p, const PlanStep *s, const int64_t *slots);
/* The session's arrays of pointers, dims and maps; false: no memory. */
bool launch_lay_out(graphc_session *s);
/* Kernels and dims of steps [from, to) from the slots. */
void launch_gather(graphc_session *s, uint32_t from, uint32_t to, bool dynamic_only);
/* Tensor maps of a step, after its pointers and dims; inside begin and end of the lane. */
graphc_status launch_encode(graphc_session *s, uint32_t step);
/* Fills the launch of a kernel step from what was gathered before. */
Launch launch_of_step(const graphc_session *s, uint32_t step);
/* Puts the kernel and the nodes that it covers in front of a message about it; the status given. */
graphc_status launch_named(const Resident *r, uint32_t kernel, graphc_status st, ErrorText e);
/* Bytes of zeroed memory that these sizes need; *kept: of those that kernels leave zero. */
uint64_t launch_zeroed(const graphc_session *s, uint64_t *kept);

/* tensor.c */
/* Text of a shape: [2, 3]. */
const char *tensor_shape_text(const int64_t *shape, int32_t rank, char *buf, size_t size);
/* Bytes of a tensor; false if the product does not fit or a dimension is negative. */
bool tensor_bytes(DType t, const int64_t *shape, int32_t rank, uint64_t *bytes);

#endif
