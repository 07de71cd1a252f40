#include "frontend/driver/cli/session.h"

#include "frontend/driver/cli/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WARMUP_SECONDS 0.2
#define TIMED_SECONDS  1.0
#define MIN_RUNS       5
#define MAX_RUNS       100000

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* From the call to the end of its work. */
static graphc_status timed_run(CliSession *s, double *out) {
    double start = now();
    graphc_status st = graphc_run(s->session);
    if (st == GRAPHC_OK) st = graphc_sync(s->session);
    *out = now() - start;
    return st == GRAPHC_OK ? GRAPHC_OK : cli_session_failed(s, st);
}

typedef struct Times {
    double *v;
    uint32_t n;
    double median, min, p99;
} Times;

static graphc_status measure(CliSession *s, Times *t) {
    Cli *c = s->cli;
    double first, used = 0;
    GC_TRY(timed_run(s, &first));
    for (double spent = 0, one; spent < WARMUP_SECONDS; spent += one) GC_TRY(timed_run(s, &one));
    VEC(double) v = {0};
    while (c->runs ? v.n < c->runs : v.n < MIN_RUNS || (used < TIMED_SECONDS && v.n < MAX_RUNS)) {
        double one;
        GC_TRY(timed_run(s, &one));
        used += one;
        vec_push(c->arena, &v, one);
    }
    qsort(v.v, v.n, sizeof *v.v, by_value);
    *t = (Times){.v = v.v,
                 .n = v.n,
                 .median = v.v[v.n / 2],
                 .min = v.v[0],
                 .p99 = v.v[(uint64_t)v.n * 99 / 100]};
    return GRAPHC_OK;
}

/* Per-step times from further runs with profiling on: medians of a few, since profiling disturbs.
 */
#define PROFILE_RUNS 11
static graphc_status profile(CliSession *s, double **out, uint32_t *n) {
    Arena *a = s->cli->arena;
    graphc_session_profile(s->session, true);
    double *all = NULL;
    for (int r = 0; r < PROFILE_RUNS; r++) {
        double one;
        GC_TRY(timed_run(s, &one));
        *n = graphc_profile_steps(s->session);
        if (!all) all = ARENA_ARRAY(a, double, (size_t)*n *PROFILE_RUNS);
        for (uint32_t i = 0; i < *n; i++)
            all[i * PROFILE_RUNS + (uint32_t)r] = graphc_profile_step(s->session, i).seconds;
    }
    graphc_session_profile(s->session, false);
    *out = ARENA_ARRAY(a, double, *n);
    for (uint32_t i = 0; i < *n; i++) {
        qsort(all + (size_t)i * PROFILE_RUNS, PROFILE_RUNS, sizeof *all, by_value);
        (*out)[i] = all[(size_t)i * PROFILE_RUNS + PROFILE_RUNS / 2];
    }
    return GRAPHC_OK;
}

static void print_json(CliSession *s, const Times *t, const double *kernels, uint32_t n) {
    json_t *j = json_object();
    json_object_set_new(j, "median_ms", json_real(t->median * 1e3));
    json_object_set_new(j, "min_ms", json_real(t->min * 1e3));
    json_object_set_new(j, "p99_ms", json_real(t->p99 * 1e3));
    json_object_set_new(j, "runs", json_integer(t->n));
    json_object_set_new(j, "threads", json_integer(graphc_session_threads(s->session)));
    json_object_set_new(j, "device", json_string(s->device));
    json_object_set_new(j, "code", json_string(graphc_session_code(s->session)));
    json_t *list = kernels ? json_add(j, "kernels", json_array()) : NULL;
    for (uint32_t i = 0; list && i < n; i++) {
        graphc_step_profile p = graphc_profile_step(s->session, i);
        json_t *k = json_object();
        json_object_set_new(k, "name", json_string(p.kernel));
        json_object_set_new(k, "kind", json_string(p.kind));
        json_object_set_new(k, "ms", json_real(kernels[i] * 1e3));
        json_object_set_new(k, "bytes", json_real(p.bytes));
        json_object_set_new(k, "flops", json_real(p.flops));
        json_object_set_new(k, "threads", json_integer(p.threads));
        json_array_append_new(list, k);
    }
    json_finish(j, stdout);
}

static void print_text(CliSession *s, const Times *t, const double *kernels, uint32_t n) {
    cli_print(stdout, "median %.3f ms  min %.3f ms  p99 %.3f ms  (%u runs, %u threads, %s %s)\n",
              t->median * 1e3, t->min * 1e3, t->p99 * 1e3, t->n, graphc_session_threads(s->session),
              s->device, graphc_session_code(s->session));
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += kernels[i];
    if (n) cli_print(stdout, "%10s %6s %9s %9s  %s\n", "us", "%", "GB/s", "GFLOP/s", "kernel");
    for (uint32_t i = 0; i < n; i++) {
        graphc_step_profile p = graphc_profile_step(s->session, i);
        double us = kernels[i] > 0 ? kernels[i] : 1e-9;
        cli_print(stdout, "%10.1f %6.1f %9.1f %9.1f  %s\n", us * 1e6, 100 * us / sum,
                  p.bytes / us * 1e-9, p.flops / us * 1e-9, p.kernel);
    }
}

static graphc_status bench_session(CliSession *s) {
    Times t;
    double *kernels = NULL;
    uint32_t n = 0;
    GC_TRY(cli_session_bind(s));
    GC_TRY(measure(s, &t));
    if (s->cli->verbose) GC_TRY(profile(s, &kernels, &n));
    (s->cli->json ? print_json : print_text)(s, &t, kernels, n);
    return GRAPHC_OK;
}

graphc_status cmd_bench(Cli *c) {
    CliSession s;
    graphc_status st = cli_session_open(&s, c, c->args.v[0]);
    if (st == GRAPHC_OK) st = bench_session(&s);
    cli_session_close(&s);
    return st;
}
