/* Largest error, in units in the last place, of every transcendental function of the code generator
 * against long double libm; prints the table. Inputs go through all exponents. The weights of
 * attention, whose exponentials are of their own.
 *
 * GRAPHC_MATH_ROUNDS=N in the environment: N times as many inputs, all others; 1000 are 10^8 of
 * each, a minute a line. GRAPHC_MATH_ONLY="exp f32 v4": that line alone. */
#include "codegen/target.h"
#include "runtime/abi.h"
#include "tests/unit/test.h"
#include <sys/mman.h>

typedef long double (*Fn)(long double);

static long double sigmoid(long double x) {
    return 1 / (1 + expl(-x));
}

/* lo..hi: where accuracy is asked for; outside results still have to be right in kind. */
static const struct {
    const char *name;
    Fn fn;
    double lo, hi, ulp32, ulp64;
} fns[] = {
    {"exp", expl, -1e4, 1e4, 2, 2},       {"expm1", expm1l, -1e4, 1e4, 2, 3},
    {"log", logl, 0, 1e300, 2, 2},        {"log1p", log1pl, -1, 1e300, 2, 3},
    {"tanh", tanhl, -1e4, 1e4, 2, 4},     {"sigmoid", sigmoid, -1e4, 1e4, 2, 4},
    {"erf", erfl, -1e4, 1e4, 2, 4},       {"sin", sinl, -1e308, 1e308, 1, 4},
    {"cos", cosl, -1e308, 1e308, 1, 4},   {"tan", tanl, -1e308, 1e308, 1, 4},
    {"asin", asinl, -1, 1, 1, 4},         {"acos", acosl, -1, 1, 1, 4},
    {"atan", atanl, -1e300, 1e300, 1, 4}, {"sinh", sinhl, -700, 700, 1, 4},
    {"cosh", coshl, -700, 700, 1, 4},     {"asinh", asinhl, -1e300, 1e300, 1, 4},
    {"acosh", acoshl, 1, 1e300, 1, 4},    {"atanh", atanhl, -1, 1, 1, 4},
};
#define NFNS (sizeof fns / sizeof *fns)

/* Scores are products of one element and values make a unit matrix: results are the weights. */
#define KEYS 64
static const char weights[] =
    "kernel w tem attention b=1 i=64 ~j=64 ~d=1 dv=64\n"
    "param 0 f32[64]\nparam 1 f32[64]\nparam 2 f32[64*64]\nparam 3 f32[64*64] written\n"
    "%1 f32 load p0[i + d]\n%2 f32 load p1[j + d]\n%3 f32 load p2[j*64 + dv]\n%4 f32 mul %1, %2\n"
    "%5 f32 reduce sum d %4\n%6 f32 reduce max j %5\n%7 f32 sub %5, %6\n%8 f32 exp %7\n"
    "%9 f32 reduce sum j %8\n%10 f32 div %8, %9\n%11 f32 mul %10, %3\n%12 f32 reduce sum j %11\n"
    "%13 f32 store p3[i*64 + dv] %12\n"
    "attention batch b i i j j d d dv dv q %1 k %2 s %5 score %5 m %6 e %8 l %9 v %3 o %12\nend\n";

static const char above[] = "kernel a poi i=N\n param 0 f32[N]\n param 1 f32[N] written\n"
                            "%1 f32 load p0[i]\n %2 f32 erf %1\n %3 f32 const 1\n"
                            "%4 f32 add %2, %3\n %5 f32 store p1[i] %4\n end\n";

typedef struct Code {
    Arena *a;
    ExprPool *p;
    CodeResult r;
    uint8_t *image[2];
} Code;

static Code compile(void) {
    Code c = {.a = arena_create()};
    c.p = expr_pool_create(c.a);
    (void)expr_sym_new(c.p, (SymInfo){.name = "N", .kind = SYM_DIM, .lo = 0, .hi = 1 << 30});
    DiagSink *d = diag_create(c.a, NULL);
    Schedule s = {.exprs = c.p};
    for (size_t i = 0; i < 2 * NFNS + 2; i++) {
        const char *t = i % 2 ? "f64" : "f32", *end;
        bool pow = i / 2 == NFNS;
        char text[512];
        snprintf(text, sizeof text,
                 "kernel k%zu poi i=N\n param 0 %s[N]\n param 1 %s[N]\n param 2 %s[N] written\n"
                 "%%1 %s load p0[i]\n %%2 %s load p1[i]\n %%3 %s %s %%1%s\n"
                 "%%4 %s store p2[i] %%3\n end\n",
                 i, t, t, t, t, t, t, pow ? "pow" : fns[i / 2].name, pow ? ", %2" : "", t);
        Kernel *k = kir_parse(c.a, c.p, d, text, &end);
        CHECK(k != NULL);
        vec_push(c.a, &s.steps, ((SStep){.kind = STEP_kernel, .kernel = k}));
    }
    for (int i = 0; i < 2; i++) {
        const char *end;
        Kernel *k = kir_parse(c.a, c.p, d, i ? above : weights, &end);
        CHECK(k != NULL);
        vec_push(c.a, &s.steps, ((SStep){.kind = STEP_kernel, .kernel = k}));
    }
    CodeOptions o = {0};
    CHECK(codegen_run(target_for(PLAN_cpu), &s, &o, c.a, d, &c.r) == GRAPHC_OK);
    for (int v = 0; v < 2; v++) {
        const CodeBlob *b = &c.r.blobs[v];
        c.image[v] =
            mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(c.image[v], b->data, b->size);
        mprotect(c.image[v], b->size, PROT_READ | PROT_EXEC);
    }
    return c;
}

static void run(Code *c, size_t step, int v, void *x, void *y, void *z, int64_t n) {
    const CodeKernel *k = &c->r.kernels[step];
    graphc_cpu_kernel *fn;
    const uint8_t *entry = c->image[v] + k->entry[v ? CODE_x86_64_v4 : CODE_x86_64_v3];
    memcpy(&fn, &entry, sizeof fn);
    int64_t dims[4];
    GC_ASSERT(k->ndims <= 4);
    for (uint32_t i = 0; i < k->ndims; i++) dims[i] = expr_eval(c->p, k->dims[i], &n);
    void *bufs[3] = {x, y, z};
    fn(bufs, dims, 0, expr_eval(c->p, k->work, &n), NULL);
}

static double ulps(bool wide, double got, long double want) {
    double edge = wide ? 0 : 0x1p128;
    if (isnan(want) && isnan(got)) return 0;
    if (isinf(got) && (isinf(want) || (edge != 0 && fabsl(want) >= edge * (1 - 0x1p-25L))))
        return (got > 0) == (want > 0) ? 0 : 1e30;
    if (wide && isinf(got) && fabsl(want) >= 0x1.fffffffffffffp1023L) return 0;
    if (!isfinite(got) || isnan(want)) return 1e30;
    int e = want == 0 ? -2000 : ilogbl(want), min = wide ? -1022 : -126, bits = wide ? 52 : 23;
    if (e < min) e = min;
    long double u = ldexpl(1, e - bits);
    return (double)(fabsl(got - want) / u);
}

/* Bit patterns spread over all exponents and both signs. */
static int64_t inputs32(float *x, uint32_t round) {
    int64_t n = 0;
    for (uint64_t b = round; b < UINT64_C(1) << 32; b += 40009) {
        uint32_t u = (uint32_t)b;
        memcpy(&x[n++], &u, 4);
    }
    return n;
}

static int64_t inputs64(double *x, int64_t n, uint32_t round) {
    uint64_t s = 88172645463325252u + round * UINT64_C(0x9e3779b97f4a7c15);
    /* The doubles and the float that lie closest to a multiple of pi/2, ends of ranges. */
    static const double hard[] = {0x1.6ac5b262ca1ffp+849, 0x1.951e6e8d8d6f9p+999,
                                  0x1.f37c8ap+95,         0x1p30,
                                  0x1.fffffp29,           0x1p1023};
    int64_t k = sizeof hard / sizeof *hard;
    for (int64_t i = 0; i < k; i++) x[i] = hard[i];
    for (int64_t i = k; i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        uint64_t u = i % 2 ? s : (s & 0x8fffffffffffffffu) | (UINT64_C(0x3f8) + (s >> 60)) << 52;
        memcpy(&x[i], &u, 8);
    }
    return n;
}

#define MAX_N 120000
static float x32[MAX_N], y32[MAX_N], z32[MAX_N];
static double x64[MAX_N], y64[MAX_N], z64[MAX_N];

static uint32_t rounds(void) {
    const char *n = getenv("GRAPHC_MATH_ROUNDS");
    return n ? (uint32_t)strtoul(n, NULL, 10) : 1;
}

static bool is_line(const char *name, bool wide, int v) {
    const char *only = getenv("GRAPHC_MATH_ONLY");
    char line[64];
    snprintf(line, sizeof line, "%s %s %s", name, wide ? "f64" : "f32", v ? "v4" : "v3");
    return !only || strcmp(line, only) == 0;
}

typedef struct Worst {
    double ulp, x, y;
} Worst;

static void draw_fn(Code *c, size_t f, bool wide, int v, uint32_t round, Worst *w) {
    const int64_t n = wide ? inputs64(x64, MAX_N, round) : inputs32(x32, round);
    if (wide)
        run(c, 2 * f + 1, v, x64, y64, z64, n);
    else
        run(c, 2 * f, v, x32, y32, z32, n);
    for (int64_t i = 0; i < n; i++) {
        double x = wide ? x64[i] : (double)x32[i], got = wide ? z64[i] : (double)z32[i];
        if (isnan(x)) {
            CHECK(isnan(got));
            continue;
        }
        if (isfinite(x) && (x < fns[f].lo || x > fns[f].hi)) continue;
        double u = ulps(wide, got, fns[f].fn((long double)x));
        if (u > w->ulp) *w = (Worst){u, x, 0};
    }
}

static void check_fn(Code *c, size_t f, bool wide, int v) {
    Worst w = {0, 0, 0};
    if (!is_line(fns[f].name, wide, v)) return;
    for (uint32_t round = 0; round < rounds(); round++) draw_fn(c, f, wide, v, round, &w);
    printf("%-8s %s %s %8.2f ulp at %.17g\n", fns[f].name, wide ? "f64" : "f32", v ? "v4" : "v3",
           w.ulp, w.x);
    if (!CHECK(w.ulp <= (wide ? fns[f].ulp64 : fns[f].ulp32))) fprintf(stderr, "%s\n", fns[f].name);
}

/* Bases and exponents whose power is finite, then of every size. */
static void draw_pow(Code *c, bool wide, int v, uint32_t round, Worst *w) {
    const int64_t n = 50000, spread = 40000;
    static const double edge[] = {0, -0.0, 1, -1, 0.5, 2, 3, -3, INFINITY, -INFINITY, NAN, 1e30};
    int64_t k = 0;
    for (size_t i = 0; i < 12; i++)
        for (size_t j = 0; j < 12; j++, k++) {
            x64[k] = edge[i], y64[k] = edge[j];
            x32[k] = (float)edge[i], y32[k] = (float)edge[j];
        }
    for (; k < n; k++) {
        const int64_t at = k + (int64_t)round * n;
        y64[k] = (double)((at * 7919) % 4001) / 100 - 20 + round * 1e-6;
        x64[k] = (double)((at * 104729) % 20011) / 1000 + 1e-3 + round * 1e-6;
        if (k >= spread) x64[k] = ldexp(x64[k], (int)(at % 1000) - 500), y64[k] /= 40;
        x32[k] = (float)x64[k], y32[k] = (float)y64[k];
    }
    if (wide)
        run(c, 2 * NFNS + 1, v, x64, y64, z64, n);
    else
        run(c, 2 * NFNS, v, x32, y32, z32, n);
    for (int64_t i = 0; i < n; i++) {
        long double x = wide ? x64[i] : (double)x32[i], y = wide ? y64[i] : (double)y32[i];
        double u = ulps(wide, wide ? z64[i] : (double)z32[i], powl(x, y));
        if (u > w->ulp) *w = (Worst){u, (double)x, (double)y};
    }
}

static void check_pow(Code *c, bool wide, int v) {
    Worst w = {0, 0, 0};
    if (!is_line("pow", wide, v)) return;
    for (uint32_t round = 0; round < 2 * rounds(); round++) draw_pow(c, wide, v, round, &w);
    printf("%-8s %s %s %8.2f ulp at %.17g, %.17g\n", "pow", wide ? "f64" : "f32", v ? "v4" : "v3",
           w.ulp, w.x, w.y);
    CHECK(w.ulp <= (wide ? 4 : 1));
}

/* 1 + erf(x), which GELU takes: in ulp of 1, as a sum with 1 has errors. */
static void check_above(Code *c, int v) {
    double worst = 0, at = 0;
    const int64_t n = inputs32(x32, 0), near = n / 2;
    for (int64_t i = 0; i < near; i++) x32[i] = (float)(i - near / 2) * (12.f / (float)near);
    run(c, 2 * NFNS + 3, v, x32, y32, NULL, n);
    for (int64_t i = 0; i < n; i++) {
        const double want = (double)(1 + erfl((long double)x32[i])), got = (double)y32[i];
        CHECK(!isnan(x32[i]) == !isnan(got));
        const double off = isnan(x32[i]) ? 0 : fabs(got - want) * 0x1p23;
        if (!(off <= worst)) worst = off, at = (double)x32[i];
    }
    printf("1 + erf  f32 %s %8.2f ulp of 1 at %g\n", v ? "v4" : "v3", worst, at);
    CHECK(worst <= 1.5);
}

/* Of the greatest score, 0: off by an ulp, one of the division and what rounding x log2(e) makes of
 * it. */
static void check_weights(Code *c, int v) {
    static float q[KEYS], k[KEYS], unit[KEYS * KEYS], w[KEYS * KEYS];
    static uint8_t scratch[1 << 18] __attribute__((aligned(64)));
    const CodeKernel *kernel = &c->r.kernels[2 * NFNS + 2];
    graphc_cpu_kernel *fn;
    const uint8_t *entry = c->image[v] + kernel->entry[v ? CODE_x86_64_v4 : CODE_x86_64_v3];
    memcpy(&fn, &entry, sizeof fn);
    int64_t n = 0;
    GC_ASSERT(kernel->ndims == 0 &&
              expr_eval(c->p, kernel->scratch_bytes, &n) <= (int64_t)sizeof scratch);
    for (int i = 0; i < KEYS; i++) {
        unit[i * KEYS + i] = 1;
        q[i] = 0.02f * (float)(i + 1);
        k[i] = i == 1 ? -INFINITY : i == 2 ? -3.4e38f : (float)-i;
    }
    k[0] = 0;
    q[KEYS - 1] = 3e38f; /* all but the first are as good as -inf */
    fn((void *[]){q, k, unit, w}, NULL, 0, expr_eval(c->p, kernel->work, &n), scratch);
    double worst = 0;
    for (int i = 0; i < KEYS; i++)
        for (int j = 0; j < KEYS; j++) {
            double x = (double)(q[i] * k[j]), want = (double)expl((long double)x);
            double got = (double)w[i * KEYS + j] / (double)w[i * KEYS];
            double off = want ? fabs(got - want) / want / (2 + fabs(x)) * 0x1p23 : got * 1e30;
            if (!(off <= worst)) worst = off;
        }
    printf("weights  f32 %s %8.2f of 2 + |x| ulp\n", v ? "v4" : "v3", worst);
    CHECK(worst <= 1);
}

TEST_MAIN {
    Code c = compile();
    if (test_failures) return;
    for (int v = 0; v < 2; v++) {
        if (v && !__builtin_cpu_supports("avx512f")) continue;
        for (size_t f = 0; f < NFNS; f++) {
            check_fn(&c, f, false, v);
            check_fn(&c, f, true, v);
        }
        check_pow(&c, false, v);
        check_pow(&c, true, v);
        if (is_line("weights", false, v)) check_weights(&c, v);
        if (is_line("1 + erf", false, v)) check_above(&c, v);
    }
    arena_destroy(c.a);
}
