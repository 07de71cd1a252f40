/* Every kernel text below, compiled for both x86-64 variants, against the reference interpreter on
 * random data at several sizes. */
#include "runtime/abi.h"
#include "tests/unit/codegen/codegen_run.h"
#include "tests/unit/codegen/fenced.h"

static void *map_code(const CodeBlob *b) {
    void *p = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(p, b->data, b->size);
    mprotect(p, b->size, PROT_READ | PROT_EXEC);
    return p;
}

static void run(const CodeKernel *ck, const Kernel *k, ExprPool *p, const uint8_t *code,
                CodeForm form, void **bufs, const int64_t *sym) {
    int64_t dims[64], work = expr_eval(p, ck->work, sym);
    for (uint32_t i = 0; i < ck->ndims; i++) dims[i] = expr_eval(p, ck->dims[i], sym);
    const size_t bytes = (size_t)expr_eval(p, ck->scratch_bytes, sym);
    void *scratch = fenced_new(bytes); /* whole pieces of 64 bytes, aligned so */
    graphc_cpu_kernel *fn;
    const uint8_t *entry = code + ck->entry[form];
    memcpy(&fn, &entry, sizeof fn);
    /* Two ranges, so that work items must not depend on each other. */
    fn(bufs, dims, 0, work / 3, scratch);
    fn(bufs, dims, work / 3, work, scratch);
    fenced_free(scratch, bytes);
    (void)k;
}

static void check_sizes(const Case *c, const Kernel *k, ExprPool *p, const CodeResult *r,
                        void *const *code, int64_t n, Arena *a) {
    int64_t sym[256] = {0};
    for (uint32_t i = 0; i < expr_sym_count(p); i++)
        if (expr_sym_info(p, i)->kind == SYM_DIM) sym[i] = n + (int64_t)i;
    void *in[K_MAX_PARAMS], *want[K_MAX_PARAMS], *got[K_MAX_PARAMS];
    size_t count[K_MAX_PARAMS];
    for (uint32_t i = 0; i < k->nparams; i++) {
        count[i] = (size_t)expr_eval(p, k->params[i].numel, sym);
        size_t bytes = count[i] * dtype_bytes(k->params[i].dtype);
        in[i] = arena_alloc(a, bytes + 64);
        want[i] = arena_alloc(a, bytes + 64);
        got[i] = fenced_new(bytes);
        fill(k->params[i].dtype, in[i], count[i]);
        memcpy(want[i], in[i], bytes);
    }
    CHECK(kir_eval(k, p, want, sym, a) == GRAPHC_OK);
    for (int v = 0; v < 2; v++) {
        if (v && !__builtin_cpu_supports("avx512f")) continue;
        for (uint32_t i = 0; i < k->nparams; i++)
            memcpy(got[i], in[i], count[i] * dtype_bytes(k->params[i].dtype));
        run(&r->kernels[0], k, p, code[v], v ? CODE_x86_64_v4 : CODE_x86_64_v3, got, sym);
        for (uint32_t i = 0; i < k->nparams; i++)
            CHECK(same(c, v ? "v4" : "v3", i, k->params[i].dtype, got[i], want[i], count[i]));
    }
    for (uint32_t i = 0; i < k->nparams; i++)
        fenced_free(got[i], count[i] * dtype_bytes(k->params[i].dtype));
}

static void check_case(const Case *c) {
    static const int64_t sizes[] = {1, 3, 16, 37, 64, 130};
    const CodeOptions o = case_options();
    Compiled x;
    if (compile_case(c, PLAN_cpu, &o, &x)) {
        void *code[2] = {map_code(&x.r.blobs[0]), map_code(&x.r.blobs[1])};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_sizes(c, x.k, x.p, &x.r, code, sizes[i], x.a);
        munmap(code[0], x.r.blobs[0].size);
        munmap(code[1], x.r.blobs[1].size);
    }
    arena_destroy(x.a);
}

/* More sums than registers: parts of sums wait on the stack. */
static const Case spilling = {
    "spilling",
    "kernel dots tem dot m=64 n=48 ~k=1024\n"
    " param 0 f32[65536]\n param 1 f32[49152]\n param 2 f32[3072] written\n"
    " %1 f32 load p0[m*1024 + k]\n %2 f32 load p1[k*48 + n]\n %3 f32 mul %1, %2\n"
    " %4 f32 reduce sum k %3\n %5 f32 store p2[m*48 + n] %4\n"
    "dot batch - m m n n k k pack 48 a %1 acc %4 b %2\n end\n",
    4e-6};

/* Callers align the stack to 16 bytes only: a spilled vector would lie in two cache lines. */
static void check_stack(void *ctx, const char *kernel, const char *ext, const char *text,
                        size_t n) {
    bool v3 = strcmp(ext, "v3.s") == 0;
    (void)kernel;
    if (!v3 && strcmp(ext, "s") != 0) return;
    ++*(int *)ctx;
    CHECK(memmem(text, n, "(%rsp)", 6));
    CHECK(memmem(text, n, v3 ? "andq\t$-32, %rsp" : "andq\t$-64, %rsp", 15));
}

static void check_spills(void) {
    int seen = 0;
    const CodeOptions o = {.threads = 1, .dump = check_stack, .dump_ctx = &seen};
    Compiled x;
    (void)compile_case(&spilling, PLAN_cpu, &o, &x);
    CHECK(seen == 2);
    arena_destroy(x.a);
}

/* Rows that walk from load to load: those of eight rows wait together. */
static void check_chains(void *ctx, const char *kernel, const char *ext, const char *text,
                         size_t n) {
    const char *store = strcmp(ext, "ll") ? NULL : memmem(text, n, "store i32", 9), *load = text;
    int loads = 0;
    (void)kernel;
    if (!store) return;
    while ((load = memmem(load, (size_t)(store - load), "load i32", 8)) != NULL) loads++, load++;
    *(int *)ctx = loads;
}

static const Case *case_of(const char *name) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, name) == 0) return &cases[i];
    return NULL;
}

static void check_walk(void) {
    int loads = 0;
    const CodeOptions o = {.threads = 1, .dump = check_chains, .dump_ctx = &loads};
    Compiled x;
    (void)compile_case(case_of("walk"), PLAN_cpu, &o, &x);
    CHECK(loads == 8 * 6);
    arena_destroy(x.a);
}

/* What lies side by side for copies and not for lanes is loaded and stored so, and turned or joined
 * in registers. */
static void check_no_elements(void *ctx, const char *kernel, const char *ext, const char *text,
                              size_t n) {
    (void)kernel;
    if (strcmp(ext, "ll") != 0 && strcmp(ext, "v3.ll") != 0) return;
    ++*(int *)ctx;
    CHECK(!memmem(text, n, "llvm.masked.gather", 18));
    CHECK(!memmem(text, n, "llvm.masked.scatter", 19));
    CHECK(memmem(text, n, "shufflevector", 13));
}

static void check_side_by_side(const char *name) {
    int seen = 0;
    Arena *a = arena_create();
    ExprPool *p = expr_pool_create(a);
    DiagSink *d = diag_create(a, NULL);
    Schedule s = {.exprs = p, .machine = NULL};
    Kernel *k = parse_case(case_of(name), a, p, d);
    vec_push(a, &s.steps, ((SStep){.kind = STEP_kernel, .kernel = k}));
    CodeOptions o = {.threads = 1, .dump = check_no_elements, .dump_ctx = &seen};
    CodeResult r = {0};
    CHECK(k && codegen_run(target_for(PLAN_cpu), &s, &o, a, d, &r) == GRAPHC_OK);
    CHECK(seen == 2);
    arena_destroy(a);
}

/* Of fewer instruction sets the same code: what is not wanted is not there. */
static void check_forms(void) {
    CodeOptions o = {.threads = 1};
    Compiled all, one;
    const bool ok = compile_case(&spilling, PLAN_cpu, &o, &all);
    for (uint32_t form = CODE_x86_64_v3; ok && form <= CODE_x86_64_v4; form++) {
        o.forms = 1u << form;
        if (compile_case(&spilling, PLAN_cpu, &o, &one)) {
            const CodeKernel *k = &one.r.kernels[0];
            const CodeBlob *blob = &one.r.blobs[0], *same = &all.r.blobs[form];
            CHECK(one.r.nblobs == 1 && blob->form == form && blob->size == same->size);
            CHECK(!memcmp(blob->data, same->data, same->size));
            CHECK(k->entry[form] == all.r.kernels[0].entry[form]);
            CHECK(k->entry[CODE_x86_64_v4 - form] == PLAN_NO_ENTRY);
            CHECK(k->work && k->scratch_bytes);
        }
        arena_destroy(one.a);
    }
    arena_destroy(all.a);
}

TEST_MAIN {
    const char *only = getenv("CASE");
    check_spills();
    check_walk();
    check_side_by_side("turn_panels");
    check_side_by_side("join_known");
    check_forms();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (only ? strstr(cases[i].name, only) != NULL : test_takes(i, 3)) check_case(&cases[i]);
}
