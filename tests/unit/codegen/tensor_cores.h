/* A kernel in text as GPU code, for the tests of what tensor cores are used for. */
#ifndef TESTS_UNIT_TENSOR_CORES_H
#define TESTS_UNIT_TENSOR_CORES_H

#include "codegen/target.h"
#include "tests/unit/test.h"
#include <string.h>

typedef struct Built {
    const char *name;
    Arena *a;
    ExprPool *p;
    DiagSink *d;
    Kernel *k;
    CodeResult r;
    bool tf32, any_order; /* as in CodeOptions */
} Built;

static Built built_new(const char *name) {
    Arena *a = arena_create();
    return (Built){.name = name, .a = a, .p = expr_pool_create(a), .d = diag_create(a, NULL)};
}

static void built_failed(const Built *b) {
    fprintf(stderr, "%s: %s\n", b->name, diag_count(b->d) ? diag_at(b->d, 0)->text : "?");
}

/* False after a failed check. */
static bool built_parse(Built *b, const char *text) {
    const char *end;
    b->k = kir_parse(b->a, b->p, b->d, text, &end);
    if (CHECK(b->k && kir_verify(b->k, b->p, b->d) == GRAPHC_OK)) return true;
    built_failed(b);
    return false;
}

/* Compiles the schedule's kernel; where there is an assembler it warns of nothing. */
static const CodeKernel *built_scheduled(Built *b, const Schedule *s, const Target *t) {
    CodeOptions o = {.threads = 1, .tf32 = b->tf32, .any_order = b->any_order};
    CHECK(codegen_run(t, s, &o, b->a, b->d, &b->r) == GRAPHC_OK);
    if (codegen_assembler(b->a) && !CHECK(diag_count(b->d) == 0)) built_failed(b);
    return &b->r.kernels[0];
}

/* The kernel alone, bound to nothing. */
static inline const CodeKernel *built_code(Built *b, const Target *t) {
    Schedule s = {.exprs = b->p};
    vec_push(b->a, &s.steps, ((SStep){.kind = STEP_kernel, .kernel = b->k}));
    return built_scheduled(b, &s, t);
}

/* PTX, or "". */
static const char *built_text(const Built *b) {
    return b->r.nblobs ? b->r.blobs[0].data : "";
}

/* How often `what` stands in the text. */
static inline int built_count(const char *text, const char *what) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) n++;
    return n;
}

/* For each of an array's cases: its kernel, `text(case, arena)`, goes through `check(case, built)`;
 * one of which a check fails is named. */
#define BUILT_EACH(cases, text, check)                                                             \
    for (size_t i = 0; i < sizeof(cases) / sizeof *(cases); i++) {                                 \
        const int failed = test_failures;                                                          \
        Built b = built_new((cases)[i].name);                                                      \
        if (built_parse(&b, text(&(cases)[i], b.a))) check(&(cases)[i], &b);                       \
        if (test_failures > failed) fprintf(stderr, "in \"%s\"\n", b.name);                        \
        arena_destroy(b.a);                                                                        \
    }

#endif
