/* Runs a plan from C with the public header alone: loads it, binds inputs drawn at random, runs it
 * a few times and prints the outputs' shapes and the time of a run.
 *
 *   run_plan PLAN [SYMBOL=VALUE ...]      run_plan bert.plan batch=1 seq=64
 */
#include "graphc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS 20

static int fail(const char *what, const char *why) {
    fprintf(stderr, "run_plan: %s: %s\n", what, why);
    return 1;
}

/* A dimension is a number, or a symbol whose value stands on the command line (1 if it does not) */
static int64_t dim_value(const char *dim, int argc, char **argv) {
    char *end;
    long long v = strtoll(dim, &end, 10);
    if (end != dim && !*end) return v;
    size_t n = strlen(dim);
    for (int i = 2; i < argc; i++)
        if (strncmp(argv[i], dim, n) == 0 && argv[i][n] == '=')
            return strtoll(argv[i] + n + 1, NULL, 10);
    return 1;
}

static size_t element_bytes(graphc_dtype t) {
    return (t.bits + 7u) / 8u;
}

/* Ones for integers (valid ids, masks that keep everything), small random numbers for f32, zero
 * bytes for everything else. */
static void fill(graphc_tensor *t, size_t count) {
    uint32_t state = 1;
    memset(t->data, 0, count * element_bytes(t->dtype));
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        if (t->dtype.code == 2 && t->dtype.bits == 32)
            ((float *)t->data)[i] = (float)(state >> 8) / 16777216.0f - 0.5f;
        else if (t->dtype.code == 0 && t->dtype.bits == 64)
            ((int64_t *)t->data)[i] = 1;
        else if (t->dtype.code == 0 && t->dtype.bits == 32)
            ((int32_t *)t->data)[i] = 1;
    }
}

static int bind_inputs(graphc_plan *plan, graphc_session *s, int argc, char **argv) {
    for (uint32_t i = 0; i < graphc_plan_inputs(plan); i++) {
        graphc_io_info info = graphc_plan_input(plan, i);
        graphc_tensor t = {.device = GRAPHC_CPU, .dtype = info.dtype, .rank = info.rank};
        size_t count = 1;
        for (int32_t d = 0; d < info.rank; d++) {
            t.shape[d] = dim_value(info.dims[d], argc, argv);
            count *= (size_t)t.shape[d];
        }
        t.data = malloc(count * element_bytes(info.dtype) + 1); /* lives as long as the program */
        if (!t.data) return fail(info.name, "out of memory");
        fill(&t, count);
        if (graphc_bind_input(s, i, &t) != GRAPHC_OK)
            return fail(info.name, graphc_session_error(s));
    }
    return 0;
}

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    char error[256];
    graphc_plan *plan;
    graphc_session *s;
    if (argc < 2) return fail("usage", "run_plan PLAN [SYMBOL=VALUE ...]");
    if (graphc_plan_load(argv[1], &plan, error, sizeof error) != GRAPHC_OK)
        return fail("plan", error);
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    if (graphc_session_create(plan, &o, &s, error, sizeof error) != GRAPHC_OK)
        return fail(argv[1], error);
    if (bind_inputs(plan, s, argc, argv)) return 1;
    double best = 1e30;
    for (int r = 0; r < RUNS; r++) {
        double start = now();
        if (graphc_run(s) != GRAPHC_OK) return fail("run", graphc_session_error(s));
        double took = now() - start;
        if (took < best) best = took;
    }
    for (uint32_t i = 0; i < graphc_plan_outputs(plan); i++) {
        graphc_tensor t;
        if (graphc_output(s, i, &t) != GRAPHC_OK) return fail("output", graphc_session_error(s));
        printf("%s [", graphc_plan_output(plan, i).name);
        for (int32_t d = 0; d < t.rank; d++) printf("%s%lld", d ? ", " : "", (long long)t.shape[d]);
        printf("]\n");
    }
    printf("best of %d runs: %.3f ms on %u threads\n", RUNS, best * 1e3, graphc_session_threads(s));
    graphc_session_destroy(s);
    graphc_plan_destroy(plan);
    return 0;
}
