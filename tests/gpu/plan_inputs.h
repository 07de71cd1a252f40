/* What the programs that bind a plan's inputs share. */
#ifndef TESTS_GPU_PLAN_INPUTS_H
#define TESTS_GPU_PLAN_INPUTS_H

#include "runtime/graphc.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

#endif
