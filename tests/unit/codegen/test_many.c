/* Kernels of one schedule that several threads compile at once: the code that one thread makes.
 * Under ThreadSanitizer (tests/run) it tells what they share unguarded. */
#include "tests/unit/codegen/codegen_run.h"
#include <pthread.h>

enum { KERNELS = 12, THREADS = 4, TIMES = 3 };

typedef struct Many {
    ExprPool *p;
    DiagSink *d;
    Schedule s;
} Many;

static void make(Many *m, Arena *a) {
    *m = (Many){.p = expr_pool_create(a), .d = diag_create(a, NULL)};
    m->s = (Schedule){.exprs = m->p, .machine = NULL};
    for (size_t i = 0; i < KERNELS; i++) {
        Kernel *k = parse_case(&cases[i], a, m->p, m->d);
        if (k) vec_push(a, &m->s.steps, ((SStep){.kind = STEP_kernel, .kernel = k}));
    }
}

static bool code_of(Many *m, PlanDevice device, CodeOptions o, Arena *a, CodeResult *out) {
    *out = (CodeResult){0};
    return CHECK(codegen_run(target_for(device), &m->s, &o, a, m->d, out) == GRAPHC_OK);
}

static void check_same(const CodeResult *one, const CodeResult *many) {
    if (!CHECK(one->nblobs && one->nblobs == many->nblobs)) return;
    for (uint32_t i = 0; i < one->nblobs; i++)
        CHECK(one->blobs[i].size == many->blobs[i].size &&
              !memcmp(one->blobs[i].data, many->blobs[i].data, one->blobs[i].size));
    for (uint32_t i = 0; i < KERNELS; i++)
        CHECK(!memcmp(one->kernels[i].entry, many->kernels[i].entry, sizeof one->kernels[i].entry));
}

/* From the first kernel on, one after the other, each time by its caller's own thread. */
static bool told(void *ctx, uint32_t done, uint32_t of) {
    const pthread_t *caller = ctx;
    CHECK(done < of && of == KERNELS && pthread_equal(*caller, pthread_self()));
    return true;
}

static void check_device(PlanDevice device) {
    pthread_t self = pthread_self();
    const uint32_t forms = device == PLAN_cpu ? 1u << CODE_x86_64_v4 : 0;
    CodeOptions o = {.threads = 1, .forms = forms, .progress = told, .progress_ctx = &self};
    Arena *a = arena_create();
    Many m;
    CodeResult one, many;
    make(&m, a);
    CHECK_EQ_I(m.s.steps.n, KERNELS);
    if (code_of(&m, device, o, a, &one)) {
        o.threads = THREADS;
        for (int i = 0; i < TIMES; i++)
            if (code_of(&m, device, o, a, &many)) check_same(&one, &many);
    }
    arena_destroy(a);
}

TEST_MAIN {
    check_device(PLAN_cpu);
    check_device(PLAN_cuda);
}
