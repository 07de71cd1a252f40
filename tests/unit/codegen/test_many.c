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

/* A number of rows that is known when the kernel runs: kernels for few and many. */
static const Case rows = {
    "variants",
    "kernel k tem dot i=m j=768 ~k=3072\n param 0 f16[m*3072]\n param 1 f16[2359296]\n"
    "param 2 f16[m*768] written\n"
    "%1 f16 load p0[i*3072 + k]\n %2 f32 cast %1\n %3 f16 load p1[j*3072 + k]\n %4 f32 cast %3\n"
    "%5 f32 mul %2, %4\n %6 f32 reduce sum k %5\n %7 f16 cast %6\n"
    "%8 f16 store p2[i*768 + j] %7\n"
    "dot batch - m i n j k k pack 0 a %2 acc %6 b %4\n cost reads [1] writes [1] flops [1]\n end\n",
    0};

/* A kernel's variants are taken by any thread. Texts are compared, not what the assembler makes of
 * them, whose registers may trade places. */
static void check_variants(void) {
    Arena *a = arena_create();
    ExprPool *p = expr_pool_create(a);
    DiagSink *d = diag_create(a, NULL);
    Many m = {.p = p, .d = d, .s = {.exprs = p}};
    (void)expr_sym_new(p, (SymInfo){.name = "m", .kind = SYM_DIM, .lo = 1, .hi = 1 << 20});
    for (int i = 0; i < 2; i++) {
        Kernel *k = parse_case(i ? &cases[0] : &rows, a, p, d);
        if (k) vec_push(a, &m.s.steps, ((SStep){.kind = STEP_kernel, .kernel = k}));
    }
    CodeResult one, many;
    CHECK_EQ_I(m.s.steps.n, 2);
    if (code_of(&m, PLAN_cuda, (CodeOptions){.threads = 1}, a, &one) &&
        code_of(&m, PLAN_cuda, (CodeOptions){.threads = THREADS}, a, &many)) {
        CHECK(one.kernels[0].nvariants > 1);
        CHECK_EQ_I(many.kernels[0].nvariants, one.kernels[0].nvariants);
        CHECK(one.blobs[0].size == many.blobs[0].size &&
              !memcmp(one.blobs[0].data, many.blobs[0].data, one.blobs[0].size));
    }
    arena_destroy(a);
}

TEST_MAIN {
    check_device(PLAN_cpu);
    check_device(PLAN_cuda);
    check_variants();
}
