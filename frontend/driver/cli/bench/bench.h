/* What bench found out, and the files that it writes of it. */
#ifndef FRONTEND_DRIVER_CLI_BENCH_BENCH_H
#define FRONTEND_DRIVER_CLI_BENCH_BENCH_H

#include "frontend/driver/cli/planview.h"
#include "frontend/driver/cli/session.h"

#include <jansson.h>

/* Times of runs, in seconds. */
typedef struct BenchTimes {
    double *v; /* ascending; each the mean of in_row runs */
    uint32_t n;
    uint32_t in_row;                   /* runs that are timed together */
    bool apart;                        /* copies are not part of the times, but these: */
    double copies, to_device, to_host; /* seconds and bytes */
} BenchTimes;

typedef struct BenchKernel {
    graphc_step_profile step; /* but for its seconds, which are of one run */
    double seconds;           /* median */
    double least;             /* what the target's rates allow for its bytes and operations */
    bool memory;              /* ... and its bytes decide that */
} BenchKernel;

/* One plan in a session on its device. */
typedef struct BenchRun {
    const char *plan, *device, *code;
    CliSession *session;
    const Machine *machine;
    uint32_t threads, n;
    BenchTimes times;
    double median;              /* seconds of a whole run */
    const BenchKernel *kernels; /* in launch order */
} BenchRun;

/* times.c */
graphc_status bench_warm_up(CliSession *s, BenchTimes *t); /* finds in_row; no times yet */
graphc_status bench_time(CliSession *s, const BenchTimes *t, double *out); /* one more time */
graphc_status bench_times(CliSession *s, BenchTimes *t);
graphc_status bench_copies(CliSession *s, BenchTimes *t);
graphc_status bench_kernels(CliSession *s, BenchKernel **out, uint32_t *n);
const Machine *bench_rates(const CliSession *s); /* of the device */
/* Enough times are taken: as many as --runs says, else of a second. */
bool bench_is_enough(const Cli *c, uint32_t n, double seconds);
int bench_ascending(const void *a, const void *b);            /* doubles, for qsort */
double bench_quantile(const double *v, uint32_t n, double q); /* of ascending ones */

/* facts.c: what the times are of. */
typedef struct BenchMachine {
    const char *processor, *system; /* as the system names them */
    uint32_t cores;                 /* that this process may use */
} BenchMachine;
BenchMachine bench_machine(Arena *a);

/* report.c */
void bench_print(const Cli *c, const BenchRun *r);
const char *bench_facts(const BenchRun *r); /* lines of text: what the times are of */
json_t *bench_facts_json(const Cli *c, const BenchRun *r);
/* pair.c: bench A B. */
graphc_status bench_pair(Cli *c);

/* Kernels one behind the other, in the Trace Event Format of Chromium. */
graphc_status bench_trace(Cli *c, const BenchRun *r, const char *path);
/* A page of its own: nothing is fetched, and it is legible without scripts. */
graphc_status bench_page(Cli *c, const BenchRun *r, const char *path);

#endif
