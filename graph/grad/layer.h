/* What lora.c and trainable.c ask alike: names by pattern, and what stands between a weight and its
 * use. */
#ifndef GRAPH_GRAD_LAYER_H
#define GRAPH_GRAD_LAYER_H

#include "graph/ir/ir.h"

#include <regex.h>

/* The expression matches all of s. */
static inline bool layer_matches(const regex_t *r, const char *s) {
    regmatch_t m;
    return !regexec(r, s, 1, &m, 0) && !m.rm_so && !s[m.rm_eo];
}

/* Ops through which a weight is still seen. */
static inline bool layer_view(Op op) {
    return op == OP_permute || op == OP_reshape || op == OP_expand || op == OP_cast;
}

#endif
