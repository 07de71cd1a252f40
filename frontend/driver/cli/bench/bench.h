/* What bench found out, and the files that it writes of it. */
#ifndef FRONTEND_DRIVER_CLI_BENCH_BENCH_H
#define FRONTEND_DRIVER_CLI_BENCH_BENCH_H

#include "frontend/driver/cli/planview.h"
#include "runtime/graphc.h"

typedef struct BenchKernel {
    graphc_step_profile step; /* but for its seconds, which are of one run */
    double seconds;           /* median */
    double least;             /* what the target's rates allow for its bytes and operations */
    bool memory;              /* ... and its bytes decide that */
} BenchKernel;

typedef struct BenchRun {
    const char *plan, *device, *code;
    const Machine *machine;
    uint32_t threads, n;
    double median;              /* seconds of a whole run */
    const BenchKernel *kernels; /* in launch order */
} BenchRun;

/* Kernels one behind the other, in the Trace Event Format of Chromium. */
graphc_status bench_trace(Cli *c, const BenchRun *r, const char *path);
/* A page of its own: nothing is fetched, and it is legible without scripts. */
graphc_status bench_page(Cli *c, const BenchRun *r, const char *path);

#endif
