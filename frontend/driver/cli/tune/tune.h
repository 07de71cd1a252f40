/* graphc tune: kernels that a plan has in several ways, and which is the fastest in the whole run.
 */
#ifndef FRONTEND_DRIVER_CLI_TUNE_H
#define FRONTEND_DRIVER_CLI_TUNE_H

#include "frontend/driver/cli/session.h"
#include "runtime/plan.h"
#include "runtime/watch.h"

/* A kernel with its ways; all steps that launch it take the same one. */
typedef struct TuneKernel {
    const char *name, *signature;
    const char *way[PLAN_MAX_VARIANTS + 1];
    uint32_t nways;
    VEC(uint32_t) steps;
    uint32_t was, now; /* ways */
    bool tried, failed[PLAN_MAX_VARIANTS + 1];
    double seconds; /* of a run, where each step is timed alone */
} TuneKernel;

typedef struct TuneRun {
    CliSession *session;
    Arena *arena;
    VEC(TuneKernel) kernels; /* those that take longest first, once they are timed */
    uint32_t first;          /* step of a run */
    double start, limit;     /* seconds */
    double before, after;    /* medians of a whole run */
    uint32_t left;           /* kernels that time did not suffice for */
} TuneRun;

/* ways.c: finds the kernels of the session's target that have ways. */
void tune_find(TuneRun *r, const Plan *p);

/* search.c: finds the fastest ways; inputs are bound. */
graphc_status tune_search(TuneRun *r);

#endif
