#include "frontend/driver/cli/bench/bench.h"
#include "frontend/driver/cli/session.h"

#include "frontend/driver/cli/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WARMUP_SECONDS 0.2
#define TIMED_SECONDS  1.0
#define MIN_RUNS       5
#define MAX_RUNS       100000
#define GROUP_SECONDS  5e-3 /* runs timed together on a device of its own */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of one of n runs in a row. */
static graphc_status timed_runs(CliSession *s, uint32_t n, double *out) {
    graphc_status st = graphc_run_timed(s->session, n, out);
    *out /= n;
    return st == GRAPHC_OK ? GRAPHC_OK : cli_session_failed(s, st);
}

typedef struct Times {
    double *v;
    uint32_t n;
    double median, min, p99;
    uint32_t in_row;                   /* runs that are timed together */
    bool apart;                        /* copies are not part of the times, but these: */
    double copies, to_device, to_host; /* seconds and bytes */
} Times;

/* How many runs in a row a time is of: on a device of its own, enough that starting them does not
 * count. */
static uint32_t group_size(const Times *t, double one) {
    if (!t->apart || one >= GROUP_SECONDS) return 1;
    double n = GROUP_SECONDS / (one > 1e-7 ? one : 1e-7);
    return n < 1000 ? (uint32_t)n + 1 : 1000;
}

static graphc_status measure(CliSession *s, Times *t) {
    Cli *c = s->cli;
    double first, one, used = 0;
    GC_TRY(timed_runs(s, 1, &first));
    for (double spent = 0; spent < WARMUP_SECONDS; spent += one) GC_TRY(timed_runs(s, 1, &one));
    t->in_row = group_size(t, one);
    VEC(double) v = {0};
    while (c->runs ? v.n < c->runs : v.n < MIN_RUNS || (used < TIMED_SECONDS && v.n < MAX_RUNS)) {
        GC_TRY(timed_runs(s, t->in_row, &one));
        used += one * t->in_row;
        vec_push(c->arena, &v, one);
    }
    qsort(v.v, v.n, sizeof *v.v, by_value);
    t->v = v.v;
    t->n = v.n;
    t->median = v.v[v.n / 2];
    t->min = v.v[0];
    t->p99 = v.v[(uint64_t)v.n * 99 / 100];
    return GRAPHC_OK;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A run from inputs in host memory to outputs in host memory. */
static graphc_status round_trip(CliSession *s, Times *t, double *out) {
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
static graphc_status measure_copies(CliSession *s, Times *t) {
    double v[COPY_RUNS];
    graphc_hold_inputs(s->session, false);
    for (int i = 0; i < COPY_RUNS; i++) GC_TRY(round_trip(s, t, &v[i]));
    graphc_hold_inputs(s->session, true);
    qsort(v, COPY_RUNS, sizeof *v, by_value);
    t->copies = v[COPY_RUNS / 2] > t->median ? v[COPY_RUNS / 2] - t->median : 0;
    for (uint32_t i = 0; i < graphc_plan_inputs(s->plan); i++) {
        const EvalTensor *x = &s->inputs[i];
        double bytes = (double)dtype_bytes(x->dtype);
        for (int k = 0; k < x->rank; k++) bytes *= (double)x->dim[k];
        t->to_device += bytes;
    }
    return GRAPHC_OK;
}

/* Per-step times from further runs with profiling on: medians of a few, since profiling disturbs.
 */
#define PROFILE_RUNS 11
static graphc_status profiled_run(CliSession *s) {
    graphc_status st = graphc_run(s->session);
    return st == GRAPHC_OK ? GRAPHC_OK : cli_session_failed(s, st);
}

static const Machine *machine_of(const CliSession *s) {
    return &target_for(strncmp(s->device, "cuda", 4) == 0 ? PLAN_cuda : PLAN_cpu)->machine;
}

static graphc_status profile(CliSession *s, BenchKernel **out, uint32_t *n) {
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
        qsort(all + (size_t)i * PROFILE_RUNS, PROFILE_RUNS, sizeof *all, by_value);
        k->step = graphc_profile_step(s->session, i);
        k->seconds = all[(size_t)i * PROFILE_RUNS + PROFILE_RUNS / 2];
        k->least = planview_least(machine_of(s), k->step.kind, k->step.bytes, k->step.flops,
                                  &k->memory) /
                   (k->step.threads ? k->step.threads : 1); /* a row's rates are a core's */
    }
    return GRAPHC_OK;
}

static void print_json(CliSession *s, const Times *t, const BenchKernel *kernels, uint32_t n) {
    json_t *j = json_object();
    json_object_set_new(j, "median_ms", json_real(t->median * 1e3));
    json_object_set_new(j, "min_ms", json_real(t->min * 1e3));
    json_object_set_new(j, "p99_ms", json_real(t->p99 * 1e3));
    json_object_set_new(j, "runs", json_integer((json_int_t)t->n * t->in_row));
    if (t->apart) {
        json_object_set_new(j, "copies_ms", json_real(t->copies * 1e3));
        json_object_set_new(j, "to_device_bytes", json_real(t->to_device));
        json_object_set_new(j, "to_host_bytes", json_real(t->to_host));
    }
    json_object_set_new(j, "threads", json_integer(graphc_session_threads(s->session)));
    json_object_set_new(j, "device", json_string(s->device));
    json_object_set_new(j, "code", json_string(graphc_session_code(s->session)));
    json_t *list = kernels ? json_add(j, "kernels", json_array()) : NULL;
    for (uint32_t i = 0; list && i < n; i++) {
        graphc_step_profile p = kernels[i].step;
        json_t *k = json_object();
        json_object_set_new(k, "name", json_string(p.kernel));
        json_object_set_new(k, "kind", json_string(p.kind));
        json_object_set_new(k, "ms", json_real(kernels[i].seconds * 1e3));
        json_object_set_new(k, "least_ms", json_real(kernels[i].least * 1e3));
        json_object_set_new(k, "bytes", json_real(p.bytes));
        json_object_set_new(k, "flops", json_real(p.flops));
        json_object_set_new(k, "threads", json_integer(p.threads));
        json_object_set_new(k, "nodes", json_string(p.nodes));
        json_array_append_new(list, k);
    }
    json_finish(j, stdout);
}

static void print_text(CliSession *s, const Times *t, const BenchKernel *kernels, uint32_t n) {
    cli_print(stdout, "median %.3f ms  min %.3f ms  p99 %.3f ms  (%u runs, %u threads, %s %s)\n",
              t->median * 1e3, t->min * 1e3, t->p99 * 1e3, t->n * t->in_row,
              graphc_session_threads(s->session), s->device, graphc_session_code(s->session));
    if (t->apart)
        cli_print(stdout,
                  "copies %.3f ms: %.3f MB to the device, %.3f MB back; not counted above\n",
                  t->copies * 1e3, t->to_device * 1e-6, t->to_host * 1e-6);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += kernels[i].seconds;
    if (n)
        cli_print(stdout, "%10s %6s %9s %9s %9s  %s\n", "us", "%", "GB/s", "GFLOP/s", "least us",
                  "kernel");
    for (uint32_t i = 0; i < n; i++) {
        graphc_step_profile p = kernels[i].step;
        double x = kernels[i].seconds > 0 ? kernels[i].seconds : 1e-9;
        cli_print(stdout, "%10.1f %6.1f %9.1f %9.1f %9.1f  %s\n", x * 1e6, 100 * x / sum,
                  p.bytes / x * 1e-9, p.flops / x * 1e-9, kernels[i].least * 1e6, p.kernel);
    }
}

static graphc_status write_files(CliSession *s, const Times *t, const BenchKernel *k, uint32_t n) {
    Cli *c = s->cli;
    BenchRun run = {.device = s->device,
                    .code = graphc_session_code(s->session),
                    .plan = c->args.v[0],
                    .machine = machine_of(s),
                    .threads = graphc_session_threads(s->session),
                    .median = t->median,
                    .kernels = k,
                    .n = n};
    if (c->trace) GC_TRY(bench_trace(c, &run, c->trace));
    return c->html ? bench_page(c, &run, c->html) : GRAPHC_OK;
}

static graphc_status bench_session(CliSession *s) {
    Times t = {.apart = strncmp(s->device, "cuda", 4) == 0};
    BenchKernel *kernels = NULL;
    uint32_t n = 0;
    const Cli *c = s->cli;
    GC_TRY(cli_session_bind(s));
    graphc_hold_inputs(s->session, true);
    GC_TRY(measure(s, &t));
    if (t.apart) GC_TRY(measure_copies(s, &t));
    if (c->verbose || c->trace || c->html) GC_TRY(profile(s, &kernels, &n));
    (c->json ? print_json : print_text)(s, &t, c->verbose ? kernels : NULL, c->verbose ? n : 0);
    return write_files(s, &t, kernels, n);
}

graphc_status cmd_bench(Cli *c) {
    CliSession s;
    graphc_status st = cli_session_open(&s, c, c->args.v[0]);
    if (st == GRAPHC_OK) st = bench_session(&s);
    cli_session_close(&s);
    return st;
}
