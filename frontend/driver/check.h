/* Every value that a run's kernels store, against the reference evaluator: each on what its kernel
 * was given, so that errors do not add up from kernel to kernel, fusion stays as it is, and what is
 * wrong is wrong where it is said to be. */
#ifndef FRONTEND_DRIVER_CHECK_H
#define FRONTEND_DRIVER_CHECK_H

#include "fusion/schedule/schedule.h"
#include "graph/eval/eval.h"
#include "runtime/watch.h"

/* A stored value. Errors are those of finite elements. */
typedef struct CheckRow {
    const char *kernel; /* that stores it (of several the last) */
    uint32_t step;
    Value value;
    Loc loc; /* the ONNX node that makes it */
    DType dtype;
    bool prepared; /* once at load */
    uint64_t count, bad;
    double max_abs, mean_abs;
    /* the largest error in units of what rounding explains (graph/eval/eval_error.c); more than 1:
     * bad, unless rtol and atol allow it */
    double of_bound;
} CheckRow;

typedef struct CheckOptions {
    double rtol, atol; /* 0: only what rounding explains is allowed */
    void (*progress)(void *ctx, uint32_t done, uint32_t of); /* nodes evaluated */
    void *ctx;
} CheckOptions;

typedef struct Check Check;

/* Watches the session's next run of a plan made from this schedule, on these inputs, which are
 * bound; what a kernel stored is evaluated and compared as soon as it is whole, so that no more is
 * held than evaluation goes on with. Ends with check_end. */
Check *check_begin(const Schedule *s, graphc_session *session, const EvalTensor *inputs,
                   const CheckOptions *opt);
/* After the run, and of one that failed: rows in launch order, in the arena. */
graphc_status check_rows(Check *c, Arena *a, CheckRow **rows, uint32_t *n);
void check_end(Check *c);
/* EvalOptions.used of a graph that was imported from files: weights that were read are not held. */
void check_used(const Constant *c);

#endif
