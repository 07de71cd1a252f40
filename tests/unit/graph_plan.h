/* From a graph to a loaded plan, as the driver does it. */
#ifndef TESTS_UNIT_GRAPH_PLAN_H
#define TESTS_UNIT_GRAPH_PLAN_H

#include "codegen/codegen.h"
#include "codegen/plan/plan_build.h"
#include "graph/build/build.h"
#include "graph/pass/pass.h"
#include "runtime/graphc.h"
#include "tests/unit/test.h"

static inline void graph_plan_messages(const DiagSink *d, Arena *a) {
    for (uint32_t i = 0; i < diag_count(d); i++)
        fprintf(stderr, "    %s\n", diag_render(d, diag_at(d, i), a, false));
}

static inline bool graph_plan_target(const Graph *g, const Target *row, PlanTargetInput *out) {
    CodeResult *code = ARENA_NEW(g->arena, CodeResult);
    Schedule *s = NULL;
    CodeOptions co = {.threads = 1};
    bool ok = schedule_build(g, &row->machine, FUSE_ALL, g->arena, &s) == GRAPHC_OK &&
              codegen_run(row, s, &co, g->arena, g->diags, code) == GRAPHC_OK;
    *out = (PlanTargetInput){.target = row, .schedule = s, .code = code};
    return ok;
}

/* The plan's bytes, in g's arena; NULL with a failed check. */
static inline void *graph_plan_bytes(Graph *g, const Target *const *rows, uint32_t nrows,
                                     size_t *size) {
    PlanTargetInput *t = ARENA_ARRAY(g->arena, PlanTargetInput, nrows);
    PlanBuildOptions po = {.weights_dir = NULL};
    void *bytes = NULL;
    bool ok = graph_verify(g) == GRAPHC_OK && graph_optimise(&g, DT_f32, true, NULL) == GRAPHC_OK;
    for (uint32_t i = 0; i < nrows && ok; i++) ok = graph_plan_target(g, rows[i], &t[i]);
    ok = ok && plan_build(g, t, nrows, &po, g->arena, g->diags, &bytes, size) == GRAPHC_OK;
    if (!CHECK(ok)) graph_plan_messages(g->diags, g->arena);
    return ok ? bytes : NULL;
}

static inline graphc_plan *graph_plan_load_for(Graph *g, const Target *const *rows, uint32_t nrows,
                                               const char *base) {
    char why[256] = "";
    size_t size = 0;
    graphc_plan *p = NULL;
    void *bytes = graph_plan_bytes(g, rows, nrows, &size);
    if (bytes &&
        !CHECK(graphc_plan_load_memory(bytes, size, base, &p, why, sizeof why) == GRAPHC_OK))
        fprintf(stderr, "    %s\n", why);
    return p;
}

static inline graphc_plan *graph_plan_load(Graph *g, PlanDevice device, const char *base) {
    const Target *row = target_for(device);
    return graph_plan_load_for(g, &row, 1, base);
}

#endif
