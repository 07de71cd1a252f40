/* Tokens from C: a plan of a language model whose cache is states takes one token after another,
 * each the most likely one behind those before. Prints microseconds a token and where they go.
 *
 *   tokens [--weights DIR] [--device cpu|cuda] [--choice host|shared|plan] [--keys N] [--tokens N]
 * PLAN
 *
 * host    inputs in host memory, logits copied to the host, the choice there
 * shared  inputs and logits in locked memory of the host that the GPU reads and writes itself: no
 * copies plan    the plan's output "token" is the choice (tokens.py appends an ArgMax); a run reads
 * what the run before wrote, and the host waits for nothing until the end
 *
 * The cache begins with N keys (2,055) of small numbers, the same for all choices, so their tokens
 * have to be the same, too. "start": inputs bound and the run started; "ahead": graphc_prepare_run
 * for the next sizes while the GPU is at this run; "result": waiting for logits; "choice": the best
 * of them; medians. "device": such runs between two events, host apart. */
#include "tests/gpu/tokens.h"
#include <stdio.h>
#include <time.h>

enum { HOST, SHARED, PLAN };
enum { START, AHEAD, RESULT, CHOICE, WHOLE, PHASES };
#define WARM_UP  8
#define STRIDE   2  /* words from token to token: runs use in place what begins at 16 bytes */
#define SEPARATE 32 /* tokens that are timed on the device */

typedef struct Decode {
    const char *path, *weights, *device;
    int choice;
    int64_t keys, tokens;
    graphc_plan *plan;
    graphc_session *s;
    int32_t ids, mask, positions, logits, token;
    int64_t *id, *position, *ones; /* where runs read them: `id` and `position` one a token */
    graphc_tensor scores;          /* SHARED: where runs write logits */
    GpuMemory gpu;
    double *times[PHASES];
} Decode;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + 1e-3 * (double)t.tv_nsec;
}

static int fail(const Decode *d, const char *what) {
    fprintf(stderr, "tokens: %s: %s\n", what, d->s ? graphc_session_error(d->s) : "");
    return 5;
}

static bool on_gpu(const Decode *d) {
    return strcmp(d->device, "cuda") == 0;
}

static int open_plan(Decode *d) {
    char why[512] = "";
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    o.device = on_gpu(d) ? GRAPHC_CUDA : GRAPHC_CPU;
    o.weights_dir = d->weights;
    if (graphc_plan_load(d->path, &d->plan, why, sizeof why) ||
        graphc_session_create(d->plan, &o, &d->s, why, sizeof why)) {
        fprintf(stderr, "tokens: %s\n", why);
        return d->plan && strstr(why, "libcuda") ? 77 : 5;
    }
    d->ids = graphc_plan_find_input(d->plan, "input_ids");
    d->mask = graphc_plan_find_input(d->plan, "attention_mask");
    d->positions = graphc_plan_find_input(d->plan, "position_ids");
    d->logits = graphc_plan_find_output(d->plan, "logits");
    d->token = graphc_plan_find_output(d->plan, "token");
    if (d->ids < 0 || d->mask < 0 || d->positions < 0 || graphc_plan_inputs(d->plan) != 3)
        return fail(d, "the plan has other inputs than ids, mask and positions");
    if ((d->choice == PLAN ? d->token : d->logits) < 0) return fail(d, "no output to choose by");
    return 0;
}

/* Small numbers of either sign, whatever the type; the same for each choice. */
static void draw(const graphc_tensor *t, size_t n, uint32_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float f = ((float)(seed >> 8) / 8388608.0f - 1.0f) / 4;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        if (t->dtype.bits == 32)
            ((float *)t->data)[i] = f;
        else if (t->dtype.code == 4)
            ((uint16_t *)t->data)[i] = (uint16_t)(bits >> 16);
        else
            ((uint16_t *)t->data)[i] = (uint16_t)((bits >> 16 & 0x8000) | 0x2c00 | (seed >> 22));
    }
}

static int fill_cache(const Decode *d) {
    for (uint32_t i = 0; i < graphc_plan_states(d->plan); i++) {
        graphc_io_info info = graphc_plan_state(d->plan, i);
        graphc_tensor t = {.device = GRAPHC_CPU, .dtype = info.dtype, .rank = info.rank};
        size_t n = 1;
        for (int32_t k = 0; k < info.rank; k++) {
            int64_t open = strcmp(info.dims[k], "batch") == 0 ? 1 : d->keys;
            t.shape[k] = info.sizes[k] < 0 ? open : info.sizes[k];
            n *= (size_t)t.shape[k];
        }
        t.data = malloc(n * 4);
        if (!t.data) return fail(d, "memory");
        draw(&t, n, i + 1);
        graphc_status st = graphc_state_write(d->s, i, &t);
        free(t.data);
        if (st) return fail(d, "cache");
    }
    return 0;
}

/* Words at a distance of `stride`: first, first + step ... */
static int64_t *make_words(Decode *d, GpuKind kind, int64_t n, int64_t stride, int64_t first,
                           int64_t step) {
    int64_t *from = calloc((size_t)(n * stride), sizeof *from), *p = NULL;
    for (int64_t i = 0; from && i < n; i++) from[i * stride] = first + i * step;
    if (from) p = gpu_memory(&d->gpu, kind, from, (size_t)(n * stride));
    free(from);
    return p;
}

/* What runs read, for all tokens at once: nothing is overwritten that a run may be reading. */
static int make_inputs(Decode *d) {
    int64_t n = d->tokens + SEPARATE + 2;
    bool own = d->choice != HOST && on_gpu(d);
    GpuKind kind = !own ? GPU_NONE : d->choice == PLAN ? GPU_DEVICE : GPU_SHARED;
    d->id = make_words(d, kind, n, STRIDE, 0, 0);
    d->position = make_words(d, kind, n, STRIDE, d->keys, 1);
    d->ones = make_words(d, own ? GPU_DEVICE : GPU_NONE, d->keys + n, 1, 1, 0);
    return d->id && d->position && d->ones ? 0 : fail(d, "memory");
}

static graphc_tensor words(const Decode *d, int64_t *p, int64_t n) {
    bool device = on_gpu(d) && d->choice != HOST;
    return (graphc_tensor){p, device ? GRAPHC_CUDA : GRAPHC_CPU, 0, {0, 64, 1}, 2, {1, n}};
}

/* Binds what the run for token i reads and writes. */
static int bind(Decode *d, int64_t i) {
    graphc_tensor id = words(d, d->id + STRIDE * i, 1), ones = words(d, d->ones, d->keys + i + 1);
    graphc_tensor position = words(d, d->position + STRIDE * i, 1);
    graphc_tensor next = words(d, d->id + STRIDE * (i + 1), 1);
    if (graphc_bind_input(d->s, (uint32_t)d->ids, &id) ||
        graphc_bind_input(d->s, (uint32_t)d->mask, &ones) ||
        graphc_bind_input(d->s, (uint32_t)d->positions, &position))
        return fail(d, "input");
    if (d->choice == PLAN && graphc_bind_output(d->s, (uint32_t)d->token, &next))
        return fail(d, "output");
    return 0;
}

/* SHARED: logits go to the host's memory as the run computes them. */
static int bind_logits(Decode *d) {
    graphc_tensor *t = &d->scores;
    if (d->choice != SHARED) return 0;
    if (graphc_output_shape(d->s, 0, (uint32_t)d->logits, t)) return fail(d, "logits");
    size_t bytes = (size_t)t->shape[t->rank - 1] * (t->dtype.bits / 8u);
    t->data = gpu_memory(&d->gpu, on_gpu(d) ? GPU_SHARED : GPU_NONE, NULL, (bytes + 7) / 8);
    t->device = on_gpu(d) ? GRAPHC_CUDA : GRAPHC_CPU;
    return !t->data || graphc_bind_output(d->s, (uint32_t)d->logits, t) ? fail(d, "logits") : 0;
}

/* Waits for logits and writes the best into the next run's input. */
static int choose(Decode *d, int64_t i, double *waited) {
    graphc_tensor t = d->scores;
    if (d->choice == SHARED && graphc_sync(d->s)) return fail(d, "logits");
    if (d->choice == HOST && graphc_output_host(d->s, (uint32_t)d->logits, &t))
        return fail(d, "logits");
    *waited = now();
    if (d->choice != PLAN)
        d->id[STRIDE * (i + 1)] = best_of(t.data, t.dtype, (size_t)t.shape[t.rank - 1]);
    return 0;
}

static int one_token(Decode *d, int64_t i) {
    double begin = now(), started, ahead, waited;
    if (bind(d, i) || graphc_run(d->s)) return fail(d, "run");
    started = now();
    if (bind(d, i + 1) || graphc_prepare_run(d->s, 0)) return fail(d, "ahead");
    ahead = now();
    if (choose(d, i, &waited)) return 5;
    double end = now(), at[PHASES] = {started - begin, ahead - started, waited - ahead,
                                      end - waited, end - begin};
    for (int k = 0; k < PHASES; k++) d->times[k][i] = at[k];
    return 0;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int64_t n) {
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

/* What the device alone takes for a run: further tokens, none of which is chosen. */
static int time_device(Decode *d, double *us) {
    double v[SEPARATE];
    for (int i = 0; i < SEPARATE; i++) {
        if (bind(d, d->tokens + i) || graphc_run_timed(d->s, 1, &v[i])) return fail(d, "timed run");
        v[i] *= 1e6;
    }
    *us = median(v, SEPARATE);
    return 0;
}

static int report(Decode *d, double whole, double device) {
    int64_t *id = calloc((size_t)(STRIDE * (d->tokens + 1)), sizeof *id);
    if (!id) return fail(d, "memory");
    if (!gpu_read(&d->gpu, id, d->id, (size_t)(STRIDE * (d->tokens + 1)))) return fail(d, "tokens");
    uint64_t sum = 0;
    for (int64_t i = 1; i <= d->tokens; i++) sum = sum * 1000003u + (uint64_t)id[STRIDE * i];
    int64_t n = d->tokens - WARM_UP;
    printf("%.1f us a token (start %.1f, ahead %.1f, result %.1f, choice %.1f); device %.1f: %.3f; "
           "last token %lld, all %016llx\n",
           whole / (double)n, median(d->times[START] + WARM_UP, n),
           median(d->times[AHEAD] + WARM_UP, n), median(d->times[RESULT] + WARM_UP, n),
           median(d->times[CHOICE] + WARM_UP, n), device, whole / (double)n / device,
           (long long)id[STRIDE * d->tokens], (unsigned long long)sum);
    free(id);
    return 0;
}

static int decode(Decode *d) {
    double begin = 0, whole, device = 0;
    if (fill_cache(d) || make_inputs(d) || bind(d, 0) || bind_logits(d)) return 5;
    for (int64_t i = 0; i < d->tokens; i++) {
        if (i == WARM_UP) {
            if (graphc_sync(d->s)) return fail(d, "run");
            begin = now();
        }
        if (one_token(d, i)) return 5;
    }
    if (graphc_sync(d->s)) return fail(d, "run");
    whole = now() - begin;
    return time_device(d, &device) || report(d, whole, device) ? 5 : 0;
}

static int parse(Decode *d, int argc, char **argv) {
    static const char *const choices[] = {"host", "shared", "plan"};
    *d = (Decode){.device = "cuda", .keys = 2055, .tokens = 128};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strncmp(argv[i], "--", 2) != 0)
            d->path = argv[i];
        else if (strcmp(argv[i], "--weights") == 0)
            d->weights = value;
        else if (strcmp(argv[i], "--device") == 0)
            d->device = value;
        else if (strcmp(argv[i], "--keys") == 0)
            d->keys = strtoll(value, NULL, 10);
        else if (strcmp(argv[i], "--tokens") == 0)
            d->tokens = strtoll(value, NULL, 10);
        else if (strcmp(argv[i], "--choice") == 0) {
            for (d->choice = 0; d->choice <= PLAN && strcmp(choices[d->choice], value) != 0;)
                d->choice++;
        } else
            return 2;
        i += argv[i][0] == '-';
    }
    return d->path && d->choice <= PLAN && d->keys >= 0 && d->tokens > WARM_UP ? 0 : 2;
}

int main(int argc, char **argv) {
    Decode d;
    if (parse(&d, argc, argv)) {
        fprintf(stderr, "tokens [--weights DIR] [--device cpu|cuda] [--choice host|shared|plan] "
                        "[--keys N] [--tokens N] PLAN\n");
        return 2;
    }
    int status = open_plan(&d);
    for (int k = 0; k < PHASES; k++) d.times[k] = calloc((size_t)d.tokens, sizeof(double));
    if (!status && on_gpu(&d) && d.choice != HOST && !gpu_open(&d.gpu)) status = 77;
    if (!status) status = decode(&d);
    for (int k = 0; k < PHASES; k++) free(d.times[k]);
    graphc_session_destroy(d.s);
    gpu_close(&d.gpu);
    graphc_plan_destroy(d.plan);
    return status;
}
