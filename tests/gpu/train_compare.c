/* Steps of a training plan on a GPU, beside the same ones on the CPU.
 *
 *   train_compare PLAN [--weights DIR] [--steps N] [--rate R] [--tolerance T] [--alone] [--time N]
 *                 [--each] [--ids N] [--fill SIZE] [--twice] [SYMBOL=VALUE ...]
 *
 * Prints loss and norm of the gradients of each step; status 1 where they differ by more than the
 * tolerance (relative, 1e-3), 77 without a GPU; then what the states hold is compared: the largest
 * difference of an element over its size or the root mean square of all, whichever is larger.
 * --fill: states that are all zeros begin with random values of that size instead, but for moments.
 * --twice: beside the same steps on the GPU again, not on the CPU, and states have to be the same
 * bits. --alone: a plan for GPUs only, losses have to be numbers. --time: runs N more steps on the
 * GPU, prints the time of one and of its kernels, the longest first (kernels of equal names but for
 * their number as one); --each: every launch, too, in order. */
#include "tests/gpu/plan_run.h"
#include <math.h>

enum { MAX_ROWS = 4096, NAME = 96, SHOWN = 40 };

typedef struct Options {
    const char *plan, *weights;
    double tolerance, rate, fill;
    int steps, timed;
    bool alone, each, twice;
    int64_t ids;
    Symbols symbols;
} Options;

/* The rate, the number of the step, ids in a fixed order; everything else is between 0 and 1. */
static void fill(const graphc_tensor *t, const char *name, const Options *o, int step) {
    uint32_t state = 12345u + 77u * (uint32_t)step;
    size_t n = tensor_count(t);
    bool mask = strstr(name, "mask") != NULL;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        float f = strcmp(name, "lr") == 0 ? (float)o->rate : (float)(state >> 8) / 16777216.0f;
        int64_t id = mask ? 1 : (int64_t)(state >> 8) % o->ids;
        if (strcmp(name, "step") == 0) id = step + 1;
        if (strcmp(name, "position_ids") == 0) id = (int64_t)i % t->shape[t->rank - 1];
        if (t->dtype.code == 2 && t->dtype.bits == 32) ((float *)t->data)[i] = f;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        if (t->dtype.code == 4) ((uint16_t *)t->data)[i] = (uint16_t)(bits >> 16);
        if (t->dtype.code == 0 && t->dtype.bits == 64) ((int64_t *)t->data)[i] = id;
        if (t->dtype.code == 0 && t->dtype.bits == 32) ((int32_t *)t->data)[i] = (int32_t)id;
        if (t->dtype.code == 6) ((uint8_t *)t->data)[i] = 1;
    }
}

static int bind(graphc_session *s, const graphc_plan *p, const Options *o, int step) {
    for (uint32_t i = 0; i < graphc_plan_inputs(p); i++) {
        graphc_io_info info = graphc_plan_input(p, i);
        graphc_tensor t = input_tensor(p, i, &o->symbols);
        t.data = calloc(tensor_count(&t) + 8, 8); /* kept: runs read it */
        if (!t.data) return run_failed(s, "memory");
        fill(&t, info.name, o, step);
        if (graphc_bind_input(s, i, &t)) return run_failed(s, info.name);
    }
    return 0;
}

/* Values of the outputs named loss and grad_norm after a run of the entry. */
static int run(graphc_session *s, const graphc_plan *p, const Options *o, int step, double *out) {
    static const char *const names[] = {"loss", "grad_norm"};
    int32_t entry = graphc_plan_find_entry(p, "step");
    int status = bind(s, p, o, step);
    if (status || entry < 0) return status ? status : run_failed(s, "no entry \"step\"");
    if (graphc_run_entry(s, (uint32_t)entry) || graphc_sync(s)) return run_failed(s, "step");
    for (uint32_t n = 0; n < 2; n++) {
        graphc_tensor t;
        int32_t i = graphc_plan_find_output(p, names[n]);
        if (i < 0 || graphc_output_host(s, (uint32_t)i, &t)) return run_failed(s, names[n]);
        out[n] = *(const float *)t.data;
    }
    return 0;
}

static bool is_moment(const char *name) {
    size_t n = strlen(name);
    return n > 2 && name[n - 2] == '.' && (name[n - 1] == 'm' || name[n - 1] == 'v');
}

/* State i of the session, of f32 or bf16, in f32; or 0. The caller's to free; t is the state's. */
static float *state_of(graphc_session *s, const graphc_plan *p, uint32_t i, graphc_tensor *t) {
    graphc_io_info info = graphc_plan_state(p, i);
    *t = (graphc_tensor){.device = GRAPHC_CPU, .dtype = info.dtype, .rank = info.rank};
    bool half = info.dtype.code == 4, single = info.dtype.code == 2 && info.dtype.bits == 32;
    for (int32_t k = 0; k < info.rank; k++) t->shape[k] = strtoll(info.dims[k], NULL, 10);
    size_t n = tensor_count(t);
    float *v = half || single ? calloc(n + 1, 4) : NULL;
    t->data = v && half ? (char *)v + 2 * n : (char *)v;
    if (v && graphc_state_read(s, i, t)) {
        free(v);
        return NULL;
    }
    for (size_t k = 0; v && half && k < n; k++) {
        uint16_t bits;
        memcpy(&bits, (char *)v + 2 * n + 2 * k, 2);
        uint32_t wide = (uint32_t)bits << 16;
        memcpy(v + k, &wide, 4);
    }
    return v;
}

/* The state holds v, which is lost. */
static graphc_status set_state(graphc_session *s, uint32_t i, graphc_tensor *t, float *v) {
    size_t n = tensor_count(t);
    for (size_t k = 0; t->dtype.code == 4 && k < n; k++) {
        uint32_t bits;
        memcpy(&bits, v + k, 4);
        uint16_t half = (uint16_t)(bits >> 16);
        memcpy((char *)v + 2 * k, &half, 2);
    }
    t->data = v;
    return graphc_state_write(s, i, t);
}

static int fill_states(graphc_session *s, const graphc_plan *p, double size) {
    uint32_t random = 99;
    for (uint32_t i = 0; i < graphc_plan_states(p) && size > 0; i++) {
        graphc_tensor t;
        float *v = is_moment(graphc_plan_state(p, i).name) ? NULL : state_of(s, p, i, &t), any = 0;
        for (size_t k = 0; v && k < tensor_count(&t); k++) any += fabsf(v[k]);
        for (size_t k = 0; v && !(any > 0) && k < tensor_count(&t); k++) {
            random = random * 1664525u + 1013904223u;
            v[k] = (float)size * ((float)(random >> 8) / 8388608.0f - 1.0f);
        }
        if (v && set_state(s, i, &t, v)) return run_failed(s, "state");
        free(v);
    }
    return 0;
}

/* Of an element, over its size or the root mean square of all of b. Second moments have few
 * elements of a hundred times that, whose rounding would pass for a large difference. */
static double largest_difference(const float *a, const float *b, size_t n) {
    double most = 0, all = 0;
    for (size_t k = 0; k < n; k++) all += (double)b[k] * (double)b[k];
    double mean = sqrt(all / (double)(n + 1)) + 1e-30;
    for (size_t k = 0; k < n; k++) {
        double d = fabs((double)a[k] - (double)b[k]) / fmax(fabs((double)b[k]), mean);
        if (!(d <= most)) most = d;
    }
    return most;
}

/* What the states of both hold, of those that training changes. */
static int compare_states(graphc_session *gpu, graphc_session *cpu, const graphc_plan *p,
                          const Options *o) {
    double worst = 0;
    const char *name = "";
    for (uint32_t i = 0; i < graphc_plan_states(p); i++) {
        graphc_tensor t;
        float *a = state_of(gpu, p, i, &t), *b = state_of(cpu, p, i, &t);
        double d = a && b ? largest_difference(a, b, tensor_count(&t)) : 0;
        if (!(d <= worst)) {
            worst = d;
            name = graphc_plan_state(p, i).name;
        }
        free(a);
        free(b);
    }
    bool ok = worst <= o->tolerance * 100;
    printf("  states: largest difference over size %.2e, of %s%s\n", worst, name,
           ok ? "" : "  TOO FAR");
    return ok ? 0 : 1;
}

typedef struct Row {
    char name[NAME];
    double seconds, bytes, flops;
    int n;
} Row;

/* "per_12_add" and "per_25_add" are one: without the number. */
static void plain_name(const char *kernel, char *out) {
    size_t n = 0;
    for (const char *c = kernel; *c && n + 1 < NAME; c++)
        if (*c < '0' || *c > '9' || c == kernel || (c[-1] != '_' && (c[-1] < '0' || c[-1] > '9')))
            out[n++] = *c;
    out[n] = 0;
}

static int longer(const void *a, const void *b) {
    double x = ((const Row *)a)->seconds, y = ((const Row *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void print_kernel(double seconds, double bytes, double flops, int n, const char *name) {
    printf("  %9.3f ms %4d x %8.1f GB/s %8.1f TF/s  %s\n", 1e3 * seconds, n, 1e-9 * bytes / seconds,
           1e-12 * flops / seconds, name);
}

static int print_kernels(graphc_session *s, const graphc_plan *p, bool each) {
    static Row rows[MAX_ROWS];
    int n = 0;
    for (uint32_t i = 0; i < graphc_profile_steps(s); i++) {
        graphc_step_profile k = graphc_profile_step(s, i);
        char name[NAME];
        int at = 0;
        if (each) print_kernel(k.seconds, k.bytes, k.flops, 1, k.kernel);
        plain_name(k.kernel, name);
        while (at < n && strcmp(rows[at].name, name) != 0) at++;
        if (at == MAX_ROWS) break;
        if (at == n) {
            n++;
            memcpy(rows[at].name, name, NAME);
        }
        rows[at].n++;
        rows[at].seconds += k.seconds;
        rows[at].bytes += k.bytes;
        rows[at].flops += k.flops;
    }
    qsort(rows, (size_t)n, sizeof *rows, longer);
    double all = 0;
    for (int i = 0; i < n; i++) all += rows[i].seconds;
    printf("  kernels %.3f ms in %u launches of %u\n", 1e3 * all, graphc_profile_steps(s),
           graphc_plan_states(p));
    for (int i = 0; i < n && i < SHOWN; i++)
        print_kernel(rows[i].seconds, rows[i].bytes, rows[i].flops, rows[i].n, rows[i].name);
    return 0;
}

static int time_steps(graphc_session *s, const graphc_plan *p, const Options *o) {
    double v[2], best = INFINITY;
    uint32_t entry = (uint32_t)graphc_plan_find_entry(p, "step");
    size_t bytes = 0;
    int status = run(s, p, o, o->steps, v);
    if (status) return status;
    for (int i = 0; i < o->timed; i++) {
        double t = now();
        if (graphc_run_entry(s, entry) || graphc_sync(s)) return run_failed(s, "step");
        t = now() - t;
        if (t < best) best = t;
    }
    if (graphc_workspace_size(s, &bytes)) return run_failed(s, "workspace");
    printf("  one step %.3f ms, workspace %.1f MB\n", 1e3 * best, 1e-6 * (double)bytes);
    graphc_session_profile(s, true);
    for (int i = 0; i < 2; i++)
        if (graphc_run_entry(s, entry) || graphc_sync(s)) return run_failed(s, "profiled step");
    return print_kernels(s, p, o->each);
}

static double apart(double a, double b) {
    return fabs(a - b) / (fabs(a) + 1e-12);
}

static int compare(graphc_session *gpu, graphc_session *cpu, const graphc_plan *p,
                   const Options *o) {
    int status = fill_states(gpu, p, o->fill);
    if (!status && cpu) status = fill_states(cpu, p, o->fill);
    for (int i = 0; i < o->steps && status <= 1; i++) {
        double a[2], b[2];
        int st = run(gpu, p, o, i, a);
        memcpy(b, a, sizeof b);
        if (!st && cpu) st = run(cpu, p, o, i, b);
        if (st) return st;
        bool ok = isfinite(a[0]) && apart(b[0], a[0]) <= o->tolerance &&
                  apart(b[1], a[1]) <= o->tolerance;
        printf("  step %d loss %.6f (%.1e) norm %.6f (%.1e)%s\n", i + 1, a[0], apart(b[0], a[0]),
               a[1], apart(b[1], a[1]), ok ? "" : "  TOO FAR");
        if (!ok) status = 1;
    }
    return status || !cpu ? status : compare_states(gpu, cpu, p, o);
}

static Options options(int argc, char **argv) {
    Options o = {.tolerance = 1e-3, .rate = 1e-3, .steps = 3, .ids = 97};
    o.symbols = (Symbols){argv, argc};
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--weights") == 0)
            o.weights = argv[++i];
        else if (strcmp(argv[i], "--tolerance") == 0)
            o.tolerance = strtod(next, NULL), i++;
        else if (strcmp(argv[i], "--rate") == 0)
            o.rate = strtod(next, NULL), i++;
        else if (strcmp(argv[i], "--steps") == 0)
            o.steps = atoi(next), i++;
        else if (strcmp(argv[i], "--time") == 0)
            o.timed = atoi(next), i++;
        else if (strcmp(argv[i], "--ids") == 0)
            o.ids = atoll(next), i++;
        else if (strcmp(argv[i], "--fill") == 0)
            o.fill = strtod(next, NULL), i++;
        else if (strcmp(argv[i], "--each") == 0)
            o.each = true;
        else if (strcmp(argv[i], "--alone") == 0)
            o.alone = true;
        else if (strcmp(argv[i], "--twice") == 0)
            o.twice = true, o.tolerance = 0;
        else if (!o.plan)
            o.plan = argv[i];
    }
    return o;
}

int main(int argc, char **argv) {
    Options o = options(argc, argv);
    char error[512];
    graphc_plan *p = NULL;
    if (!o.plan || graphc_plan_load(o.plan, &p, error, sizeof error)) {
        fprintf(stderr, "%s\n", o.plan ? error : "train_compare PLAN [SYMBOL=VALUE ...]");
        return 2;
    }
    printf("%s\n", o.plan);
    graphc_session *gpu = open_session(p, GRAPHC_CUDA, o.weights);
    graphc_device_kind other = o.twice ? GRAPHC_CUDA : GRAPHC_CPU;
    graphc_session *cpu = gpu && !o.alone ? open_session(p, other, o.weights) : NULL;
    int status = !gpu ? 77 : !cpu && !o.alone ? 5 : compare(gpu, cpu, p, &o);
    if (status <= 1 && o.timed) {
        int st = time_steps(gpu, p, &o);
        if (st) status = st;
    }
    graphc_session_destroy(gpu);
    graphc_session_destroy(cpu);
    graphc_plan_destroy(p);
    return status;
}
