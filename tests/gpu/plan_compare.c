/* Runs a plan that has both targets on the CPU and on a GPU with the same inputs and compares.
 *
 *   plan_compare [--weights DIR] [--tolerance T] [--runs N] PLAN ... [SYMBOL=VALUE ...]
 *
 * Options hold for the plans behind them; sizes for all.
 * Per output: largest difference over the standard deviation of the CPU's result. Then the best
 * time of N (30) runs on the GPU (replayed, tensors in place) and on the CPU. Exit status 1 if a
 * difference is above the tolerance (1e-4), 77 if there is no GPU. */
#include "tests/gpu/plan_run.h"
#include <math.h>

typedef struct Options {
    const char *plan, *weights;
    double tolerance;
    Symbols symbols;
    int runs;
} Options;

static size_t element_bytes(graphc_dtype t) {
    return t.bits < 8 ? 1 : t.bits / 8u;
}

/* f as 16 bits of IEEE: below 2^-14 in steps of 2^-24, else in 1,024 steps of its power of two. */
static uint16_t half_of(float f) {
    int e;
    double m = frexp(fabs(f), &e);
    long bits = e < -13 || m < 0.5 ? lrint(ldexp(fabs(f), 24))
                                   : (e + 14) * 1024 + lrint((2 * m - 1) * 1024);
    return (uint16_t)(bits | (f < 0 ? 0x8000 : 0));
}

static double of_half(uint16_t bits) {
    int e = bits >> 10 & 31, m = bits & 1023;
    double v = !e ? ldexp(m, -24) : e < 31 ? ldexp(1024 + m, e - 25) : m ? NAN : INFINITY;
    return bits & 0x8000 ? -v : v;
}

/* Masks are ones, other integers small ids, floats uniform in [-1, 1), those of 8 bits below 2. */
static void fill(const graphc_tensor *t, const char *name, uint32_t seed) {
    uint32_t state = 12345 + seed * 2654435761u;
    size_t n = tensor_count(t);
    memset(t->data, 0, n * element_bytes(t->dtype));
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        float f = (float)(state >> 8) / 8388608.0f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        int64_t id = strstr(name, "mask") ? 1 : (int64_t)(state >> 8) % 97;
        if (t->dtype.code == 2 && t->dtype.bits == 32) ((float *)t->data)[i] = f;
        if (t->dtype.code == 2 && t->dtype.bits == 16) ((uint16_t *)t->data)[i] = half_of(f);
        if (t->dtype.code == 4) ((uint16_t *)t->data)[i] = (uint16_t)(bits >> 16);
        if (t->dtype.code == 0 && t->dtype.bits == 8) ((int8_t *)t->data)[i] = (int8_t)(id - 48);
        if (t->dtype.code == 0 && t->dtype.bits == 64) ((int64_t *)t->data)[i] = id;
        if (t->dtype.code == 0 && t->dtype.bits == 32) ((int32_t *)t->data)[i] = (int32_t)id;
        if (t->dtype.code == 6) ((uint8_t *)t->data)[i] = 1;
        if (t->dtype.code > 6 && t->dtype.bits == 8)
            ((uint8_t *)t->data)[i] = (uint8_t)(state >> 8 & 0xbf);
    }
}

static graphc_tensor make_input(const graphc_plan *p, uint32_t i, const Options *o) {
    graphc_io_info info = graphc_plan_input(p, i);
    graphc_tensor t = input_tensor(p, i, &o->symbols);
    t.data = aligned_alloc(64, (tensor_count(&t) * element_bytes(t.dtype) + 64) / 64 * 64);
    if (t.data) fill(&t, info.name, i);
    return t;
}

static double value(const graphc_tensor *t, size_t i) {
    float f = 0;
    if (t->dtype.code == 2 && t->dtype.bits == 32) return ((const float *)t->data)[i];
    if (t->dtype.code == 2 && t->dtype.bits == 64) return ((const double *)t->data)[i];
    if (t->dtype.code == 2 && t->dtype.bits == 16) return of_half(((const uint16_t *)t->data)[i]);
    if (t->dtype.code == 4) {
        uint32_t bits = (uint32_t)((const uint16_t *)t->data)[i] << 16;
        memcpy(&f, &bits, 4);
        return f;
    }
    if (t->dtype.bits == 64) return (double)((const int64_t *)t->data)[i];
    if (t->dtype.bits == 32) return ((const int32_t *)t->data)[i];
    return ((const uint8_t *)t->data)[i];
}

/* Largest difference over the standard deviation of a; infinite where one is not a number. */
static double difference(const graphc_tensor *a, const graphc_tensor *b) {
    size_t n = tensor_count(a);
    double mean = 0, var = 0, worst = 0;
    for (size_t i = 0; i < n; i++) mean += value(a, i) / (double)n;
    for (size_t i = 0; i < n; i++) var += (value(a, i) - mean) * (value(a, i) - mean) / (double)n;
    for (size_t i = 0; i < n; i++) {
        double d = fabs(value(a, i) - value(b, i));
        if (isnan(d)) d = isnan(value(a, i)) && isnan(value(b, i)) ? 0 : INFINITY;
        if (d > worst) worst = d;
    }
    return var > 0 ? worst / sqrt(var) : worst;
}

static int run_once(graphc_session *s, const graphc_plan *p, const Options *o) {
    for (uint32_t i = 0; i < graphc_plan_inputs(p); i++) {
        graphc_tensor t = make_input(p, i, o);
        if (!t.data || graphc_bind_input(s, i, &t)) return run_failed(s, "input");
    }
    return graphc_run(s) || graphc_sync(s) ? run_failed(s, "run") : 0;
}

static double time_runs(graphc_session *s, int runs) {
    double best = INFINITY;
    for (int i = 0; i < runs; i++) {
        double t = now();
        if (graphc_run(s) || graphc_sync(s)) return NAN;
        t = now() - t;
        if (t < best) best = t;
    }
    return best;
}

static int compare(graphc_session *cpu, graphc_session *gpu, const graphc_plan *p,
                   const Options *o) {
    int status = 0;
    for (uint32_t i = 0; i < graphc_plan_outputs(p); i++) {
        graphc_tensor a, b;
        if (graphc_output_host(cpu, i, &a)) return run_failed(cpu, "output");
        if (graphc_output_host(gpu, i, &b)) return run_failed(gpu, "output");
        double d = memcmp(a.shape, b.shape, sizeof a.shape) ? INFINITY : difference(&a, &b);
        printf("  %-24s max error / std %.2e%s\n", graphc_plan_output(p, i).name, d,
               d <= o->tolerance ? "" : "  TOO LARGE");
        if (!(d <= o->tolerance)) status = 1;
    }
    return status;
}

/* The exit status of one plan, which is said in the last line about it. */
static int compare_plan(const Options *o) {
    char error[512];
    graphc_plan *p = NULL;
    printf("%s\n", o->plan);
    fflush(stdout);
    if (graphc_plan_load(o->plan, &p, error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        return 2;
    }
    graphc_session *gpu = open_session(p, GRAPHC_CUDA, o->weights),
                   *cpu = gpu ? open_session(p, GRAPHC_CPU, o->weights) : NULL;
    int status = !gpu ? 77 : !cpu ? 5 : 0;
    if (!status) status = run_once(cpu, p, o);
    if (!status) status = run_once(gpu, p, o);
    if (!status) status = compare(cpu, gpu, p, o);
    if (status <= 1 && o->runs) {
        printf("  GPU %.3f ms, CPU %.3f ms\n", 1e3 * time_runs(gpu, o->runs),
               1e3 * time_runs(cpu, o->runs));
        if (status == 0) status = compare(cpu, gpu, p, o); /* what replay gives */
    }
    graphc_session_destroy(gpu);
    graphc_session_destroy(cpu);
    graphc_plan_destroy(p);
    printf("  status %d\n", status);
    fflush(stdout);
    return status;
}

int main(int argc, char **argv) {
    Options o = {.tolerance = 1e-4, .symbols = {argv, argc}, .runs = 30};
    int status = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--weights") == 0 && i + 1 < argc)
            o.weights = argv[++i];
        else if (strcmp(argv[i], "--tolerance") == 0 && i + 1 < argc)
            o.tolerance = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            o.runs = atoi(argv[++i]);
        else if (!strchr(argv[i], '='))
            o.plan = argv[i];
        else
            continue;
        if (o.plan != argv[i]) continue;
        int one = compare_plan(&o);
        if (!status) status = one;
    }
    if (!o.plan) fprintf(stderr, "plan_compare [OPTION ...] PLAN ... [SYMBOL=VALUE ...]\n");
    return o.plan ? status : 2;
}
