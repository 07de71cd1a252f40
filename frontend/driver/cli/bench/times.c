/* Times of runs and of kernels. */
#include "frontend/driver/cli/bench/bench.h"
#include "frontend/driver/cli/progress.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WARMUP_SECONDS 0.2
#define TIMED_SECONDS  1.0
#define MIN_RUNS       5
#define MAX_RUNS       100000
#define GROUP_SECONDS  5e-3 /* runs timed together on a device of its own */

int bench_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(const double *v, uint32_t n, double q) {
    uint64_t at = (uint64_t)(q * n);
    return v[at < n ? at : n - 1];
}

/* Seconds of one of n runs in a row. */
static graphc_status timed_runs(CliSession *s, uint32_t n, double *out) {
    graphc_status st = graphc_run_timed(s->session, n, out);
    *out /= n;
    return st == GRAPHC_OK ? GRAPHC_OK : cli_session_failed(s, st);
}

/* How many runs in a row a time is of: on a device of its own, enough that starting them does not
 * count. */
static uint32_t group_size(const BenchTimes *t, double one) {
    if (!t->apart || one >= GROUP_SECONDS) return 1;
    double n = GROUP_SECONDS / (one > 1e-7 ? one : 1e-7);
    return n < 1000 ? (uint32_t)n + 1 : 1000;
}

graphc_status bench_warm_up(CliSession *s, BenchTimes *t) {
    double first, one;
    *t = (BenchTimes){.apart = strncmp(s->device, "cuda", 4) == 0};
    GC_TRY(timed_runs(s, 1, &first));
    one = first;
    for (double spent = 0; spent < WARMUP_SECONDS; spent += one) GC_TRY(timed_runs(s, 1, &one));
    t->in_row = group_size(t, one);
    return GRAPHC_OK;
}

graphc_status bench_time(CliSession *s, const BenchTimes *t, double *out) {
    return timed_runs(s, t->in_row, out);
}

bool bench_is_enough(const Cli *c, uint32_t n, double seconds) {
    if (c->runs) return n >= c->runs;
    return n >= MIN_RUNS && (seconds >= TIMED_SECONDS || n >= MAX_RUNS);
}

graphc_status bench_times(CliSession *s, BenchTimes *t) {
    VEC(double) v = {0};
    Progress p = {.what = "runs", .quiet = s->cli->json};
    GC_TRY(bench_warm_up(s, t));
    for (double used = 0, one; !bench_is_enough(s->cli, v.n, used); used += one * t->in_row) {
        GC_TRY(bench_time(s, t, &one));
        vec_push(s->cli->arena, &v, one);
        if (s->cli->runs) progress_show(&p, v.n, (uint32_t)s->cli->runs);
    }
    progress_end(&p);
    qsort(v.v, v.n, sizeof *v.v, bench_ascending);
    t->v = v.v;
    t->n = v.n;
    return GRAPHC_OK;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A run from inputs in host memory to outputs in host memory. */
static graphc_status round_trip(CliSession *s, BenchTimes *t, double *out) {
    double start = now();
    graphc_status st = graphc_run(s->session);
    t->to_host = 0;
    for (uint32_t i = 0; i < graphc_plan_outputs(s->plan) && st == GRAPHC_OK; i++) {
        graphc_tensor o;
        st = graphc_output_host(s->session, i, &o);
        double bytes = o.dtype.bits < 8 ? 1 : o.dtype.bits / 8.0;
        for (int32_t k = 0; k < o.rank && st == GRAPHC_OK; k++) bytes *= (double)o.shape[k];
        t->to_host += bytes;
    }
    *out = now() - start;
    return st == GRAPHC_OK ? GRAPHC_OK : cli_session_failed(s, st);
}

/* What copying inputs and outputs adds to a run: the median of a few. */
#define COPY_RUNS 7
graphc_status bench_copies(CliSession *s, BenchTimes *t) {
    double v[COPY_RUNS];
    graphc_hold_inputs(s->session, false);
    for (int i = 0; i < COPY_RUNS; i++) GC_TRY(round_trip(s, t, &v[i]));
    graphc_hold_inputs(s->session, true);
    qsort(v, COPY_RUNS, sizeof *v, bench_ascending);
    double extra = v[COPY_RUNS / 2] - bench_quantile(t->v, t->n, 0.5);
    t->copies = extra > 0 ? extra : 0;
    for (uint32_t i = 0; i < graphc_plan_inputs(s->plan); i++) {
        const EvalTensor *x = &s->inputs[i];
        double bytes = (double)dtype_bytes(x->dtype);
        for (int k = 0; k < x->rank; k++) bytes *= (double)x->dim[k];
        t->to_device += bytes;
    }
    return GRAPHC_OK;
}

/* Per-step times from further runs with profiling on: medians of a few, since profiling disturbs */
#define PROFILE_RUNS 11
static graphc_status profiled_run(CliSession *s) {
    graphc_status st = graphc_run(s->session);
    return st == GRAPHC_OK ? GRAPHC_OK : cli_session_failed(s, st);
}

const Machine *bench_rates(const CliSession *s) {
    return &target_for(strncmp(s->device, "cuda", 4) == 0 ? PLAN_cuda : PLAN_cpu)->machine;
}

graphc_status bench_kernels(CliSession *s, BenchKernel **out, uint32_t *n) {
    Arena *a = s->cli->arena;
    graphc_session_profile(s->session, true);
    double *all = NULL;
    for (int r = 0; r < PROFILE_RUNS; r++) {
        GC_TRY(profiled_run(s));
        *n = graphc_profile_steps(s->session);
        if (!all) all = ARENA_ARRAY(a, double, (size_t)*n *PROFILE_RUNS);
        for (uint32_t i = 0; i < *n; i++)
            all[i * PROFILE_RUNS + (uint32_t)r] = graphc_profile_step(s->session, i).seconds;
    }
    graphc_session_profile(s->session, false);
    *out = ARENA_ARRAY(a, BenchKernel, *n);
    for (uint32_t i = 0; i < *n; i++) {
        BenchKernel *k = &(*out)[i];
        qsort(all + (size_t)i * PROFILE_RUNS, PROFILE_RUNS, sizeof *all, bench_ascending);
        k->step = graphc_profile_step(s->session, i);
        k->seconds = all[(size_t)i * PROFILE_RUNS + PROFILE_RUNS / 2];
        k->least =
            planview_least(bench_rates(s), k->step.kind, k->step.bytes, k->step.flops, &k->memory) /
            (k->step.threads ? k->step.threads : 1); /* a row's rates are a core's */
    }
    return GRAPHC_OK;
}
