/* The kernels of test_codegen.c as PTX: they must assemble where ptxas is installed, and give the
 * interpreter's results where there is a GPU. */
#include "tests/unit/codegen/codegen_run.h"
#include <dlfcn.h>

/* The few driver calls that this needs; all return 0 on success. */
static struct {
    int (*init)(unsigned);
    int (*device)(int *, int);
    int (*retain)(void **, int);
    int (*current)(void *);
    int (*load)(void **, const void *);
    int (*function)(void **, void *, const char *);
    int (*alloc)(uint64_t *, size_t);
    int (*free)(uint64_t);
    int (*upload)(uint64_t, const void *, size_t);
    int (*download)(void *, uint64_t, size_t);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    int (*unload)(void *);
} cu;

static bool open_driver(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *ctx;
    int dev;
    if (!lib) return false;
    static const char *const names[] = {
        "cuInit",          "cuDeviceGet",      "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent", "cuModuleLoadData", "cuModuleGetFunction",
        "cuMemAlloc_v2",   "cuMemFree_v2",     "cuMemcpyHtoD_v2",
        "cuMemcpyDtoH_v2", "cuLaunchKernel",   "cuModuleUnload"};
    void *p[12];
    for (int i = 0; i < 12; i++) {
        p[i] = dlsym(lib, names[i]);
        if (!p[i]) return false;
    }
    memcpy(&cu, p, sizeof cu);
    return cu.init(0) == 0 && cu.device(&dev, 0) == 0 && cu.retain(&ctx, dev) == 0 &&
           cu.current(ctx) == 0;
}

static void run(const CodeKernel *ck, ExprPool *p, void *fn, uint64_t *bufs, uint32_t nbufs,
                const int64_t *sym) {
    int64_t dims[64];
    void *args[K_MAX_PARAMS + 64];
    unsigned grid[3];
    for (uint32_t i = 0; i < nbufs; i++) args[i] = &bufs[i];
    for (uint32_t i = 0; i < ck->ndims; i++) {
        dims[i] = expr_eval(p, ck->dims[i], sym);
        args[nbufs + i] = &dims[i];
    }
    for (int d = 0; d < 3; d++) grid[d] = (unsigned)expr_eval(p, ck->grid[d], sym);
    if (!grid[0] || !grid[1] || !grid[2]) return;
    CHECK_EQ_I(cu.launch(fn, grid[0], grid[1], grid[2], ck->block[0], ck->block[1], ck->block[2],
                         ck->shared_bytes, NULL, args, NULL),
               0);
}

static void check_sizes(const Case *c, const Kernel *k, ExprPool *p, const CodeKernel *ck, void *fn,
                        int64_t n, Arena *a) {
    int64_t sym[256] = {0};
    for (uint32_t i = 0; i < expr_sym_count(p); i++)
        if (expr_sym_info(p, i)->kind == SYM_DIM) sym[i] = n + (int64_t)i;
    void *want[K_MAX_PARAMS], *got[K_MAX_PARAMS];
    uint64_t dev[K_MAX_PARAMS];
    size_t count[K_MAX_PARAMS];
    for (uint32_t i = 0; i < k->nparams; i++) {
        count[i] = (size_t)expr_eval(p, k->params[i].numel, sym);
        size_t bytes = count[i] * dtype_bytes(k->params[i].dtype);
        want[i] = arena_alloc(a, bytes + 64);
        got[i] = arena_alloc(a, bytes + 64);
        fill(k->params[i].dtype, want[i], count[i]);
        CHECK_EQ_I(cu.alloc(&dev[i], bytes + 64), 0);
        CHECK_EQ_I(cu.upload(dev[i], want[i], bytes), 0);
    }
    CHECK(kir_eval(k, p, want, sym, a) == GRAPHC_OK);
    run(ck, p, fn, dev, k->nparams, sym);
    for (uint32_t i = 0; i < k->nparams; i++) {
        size_t bytes = count[i] * dtype_bytes(k->params[i].dtype);
        CHECK_EQ_I(cu.download(got[i], dev[i], bytes), 0);
        CHECK(same(c, "gpu", i, k->params[i].dtype, got[i], want[i], count[i]));
        cu.free(dev[i]);
    }
}

/* The instructions that round to 16 bits, by their names: without a GPU nothing else shows it. */
static void check_rounding(const Case *c, const CodeResult *r) {
    static const char *const names[][2] = {{"f16 cast", "cvt.rn.f16"},
                                           {"bf16 cast", "cvt.rn.bf16"}};
    const char *ptx = r->nblobs ? r->blobs[0].data : "";
    if (strcmp(c->name, "narrow") != 0) return;
    for (size_t i = 0; i < 2; i++)
        if (!CHECK(strstr(c->text, names[i][0]) && strstr(ptx, names[i][1])))
            fprintf(stderr, "%s: no %s\n", c->name, names[i][1]);
}

/* A cubin, made without a word, where there is an assembler. */
static void check_code(const Case *c, const Compiled *x) {
    check_rounding(c, &x->r);
    CHECK(!strstr(c->name, "_split") || x->r.kernels[0].zero_bytes); /* parts are left in memory */
    if (!codegen_assembler(x->a)) return;
    if (!CHECK(x->r.nblobs == 2 && x->r.kernels[0].cubin == 2 && diag_count(x->d) == 0))
        fprintf(stderr, "%s: %s\n", c->name, diag_count(x->d) ? diag_at(x->d, 0)->text : "?");
}

static void check_runs(const Case *c, const Compiled *x) {
    static const int64_t sizes[] = {1, 3, 16, 37, 64, 130, 300};
    const CodeKernel *k = &x->r.kernels[0];
    void *mod = NULL, *fn = NULL;
    if (!CHECK(cu.load(&mod, x->r.blobs[x->r.nblobs - 1].data) == 0)) return;
    const bool found = CHECK(cu.function(&fn, mod, k->symbol) == 0);
    for (size_t i = 0; found && i < sizeof sizes / sizeof *sizes; i++)
        check_sizes(c, x->k, x->p, k, fn, sizes[i], x->a);
    cu.unload(mod);
}

static void check_case(const Case *c, bool gpu) {
    const CodeOptions o = case_options();
    Compiled x;
    if (compile_case(c, PLAN_cuda, &o, &x)) {
        check_code(c, &x);
        if (gpu) check_runs(c, &x);
    }
    arena_destroy(x.a);
}

/* The same several times in a launch is for GPUs alone: points, a row per team, long folds that
 * blocks share, which have zeroed memory, and blocks along z of their own. So are turns, and
 * vectors of a thread. */
static const Case again[] = {
    {"again_point",
     "kernel again poi more 2 i=N\n"
     "param 0 f32[N]\n param 1 f16[N] written\n param 2 f32[N]\n param 3 f16[N] written\n"
     "param 4 f32[N]\n param 5 f16[N] written\n"
     "%1 f32 load p0[i]\n %2 f16 cast %1\n %3 f16 store p1[i] %2\n end\n",
     0},
    {"again_row",
     "kernel again per more 1 i=N ~j=64\n"
     "param 0 f32[64*N]\n param 1 f32[64*N] written\n param 2 f32[64*N]\n"
     "param 3 f32[64*N] written\n"
     "%1 f32 load p0[64*i + j]\n %2 f32 reduce max j %1\n %3 f32 sub %1, %2\n"
     "%4 f32 store p1[64*i + j] %3\n end\n",
     1e-6},
    {"again_split",
     "kernel again red more 2 ~i=40000\n"
     "param 0 f32[40000]\n param 1 f32[1] written\n param 2 f32[40000]\n"
     "param 3 f32[1] written\n param 4 f32[40000]\n param 5 f32[1] written\n"
     "%1 f32 load p0[i]\n %2 f32 mul %1, %1\n %3 f32 reduce sum i %2\n"
     "%4 f32 store p1[0] %3\n end\n",
     1e-5},
    /* Turns of rows of several vectors a thread, beside what a whole row carries. */
    {"turns_rows",
     "kernel turns per turns t=5 i=N ~j=250\n"
     "param 0 f32[1250*N]\n param 1 f32[N] written\n param 2 f32[250*N] written\n"
     "param 3 f32[250*N] written\n"
     "%1 f32 load p0[250*t*N + 250*i + j]\n %2 f32 reduce max j %1\n %3 f32 load p1[i]\n"
     "%4 f32 max %2, %3\n %5 f32 store p1[i] %4\n %6 f32 load p2[250*i + j]\n"
     "%7 f32 sub %3, %4\n %8 f32 exp %7\n %9 f32 mul %6, %8\n %10 f32 add %9, %1\n"
     "%11 f32 store p2[250*i + j] %10\n %12 f32 store p3[250*i + j] %9\n end\n",
     1e-5},
    /* The first, and the last, of many that are equal, which blocks look for in parts. */
    {"best_split",
     "kernel best red i=2 ~j=40000\n"
     "param 0 i32[80000]\n param 1 i64[2] written\n"
     "%1 i32 load p0[40000*i + j]\n %2 i64 reduce argmax j %1\n"
     "%3 i64 store p1[i] %2\n end\n",
     0},
    {"least_split",
     "kernel least red ~j=40001\n"
     "param 0 bool[40001]\n param 1 i64[1] written\n param 2 f32[1] written\n"
     "%1 bool load p0[j]\n %2 f32 cast %1\n %3 i64 reduce argmin_last j %2\n"
     "%4 f32 reduce sum j %2\n %5 i64 store p1[0] %3\n %6 f32 store p2[0] %4\n end\n",
     1e-5},
    /* Rounded and clamped, in vectors. */
    {"bytes",
     "kernel bytes poi i=64*N\n"
     "param 0 f32[64*N]\n param 1 u8[64*N] written\n"
     "%1 f32 load p0[i]\n %2 f32 const 40\n %3 f32 mul %1, %2\n %4 f32 round %3\n"
     "%5 f32 const -14\n %6 f32 const 241\n %7 f32 max %4, %5\n %8 f32 min %7, %6\n"
     "%9 f32 const 14\n %10 f32 add %8, %9\n %11 u8 cast %10\n %12 u8 store p1[i] %11\n end\n",
     0},
};

TEST_MAIN {
    const char *only = getenv("CASE");
    bool gpu = open_driver();
    printf("%s\n", gpu ? "running on the GPU" : "no GPU: assembling only");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (only ? strstr(cases[i].name, only) != NULL : test_takes(i, 3))
            check_case(&cases[i], gpu);
    for (size_t i = 0; i < sizeof again / sizeof *again; i++)
        if (!only || strstr(again[i].name, only)) check_case(&again[i], gpu);
}
