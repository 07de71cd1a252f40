/* What the programs that run a plan on a GPU share. */
#ifndef TESTS_GPU_PLAN_RUN_H
#define TESTS_GPU_PLAN_RUN_H

#include "runtime/graphc.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* SYMBOL=VALUE of the command line. */
typedef struct Symbols {
    char **text;
    int n;
} Symbols;

/* A dimension as the plan names it: a number, a symbol's value, or 1. */
static inline int64_t symbol_value(const Symbols *s, const char *dim) {
    char *end;
    long long v = strtoll(dim, &end, 10);
    if (end != dim && !*end) return v;
    size_t n = strlen(dim);
    for (int i = 0; i < s->n; i++)
        if (strncmp(s->text[i], dim, n) == 0 && s->text[i][n] == '=')
            return strtoll(s->text[i] + n + 1, NULL, 10);
    return 1;
}

static inline graphc_tensor input_tensor(const graphc_plan *p, uint32_t i, const Symbols *s) {
    graphc_io_info info = graphc_plan_input(p, i);
    graphc_tensor t = {.device = GRAPHC_CPU, .dtype = info.dtype, .rank = info.rank};
    for (int32_t k = 0; k < info.rank; k++) t.shape[k] = symbol_value(s, info.dims[k]);
    return t;
}

static inline size_t tensor_count(const graphc_tensor *t) {
    size_t n = 1;
    for (int32_t i = 0; i < t->rank; i++) n *= (size_t)t->shape[i];
    return n;
}

/* NULL without that device, which is said. */
static inline graphc_session *open_session(const graphc_plan *p, graphc_device_kind device,
                                           const char *weights) {
    char why[512];
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    o.device = device;
    o.weights_dir = weights;
    if (graphc_session_create(p, &o, &s, why, sizeof why)) fprintf(stderr, "%s\n", why);
    return s;
}

static inline int run_failed(const graphc_session *s, const char *what) {
    fprintf(stderr, "%s: %s\n", what, graphc_session_error(s));
    return 5;
}

/* In seconds. */
static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
