/* Constants that prepare steps alone read, in a file: when a session is there their pages are given
 * back, by one thread or by several. */
#include "tests/unit/runtime/plan_sample.h"
#include "runtime/graphc.h"
#include "tests/unit/test.h"
#include <unistd.h>

enum { ELEMENTS = (9 << 20) / 4 + 777 }; /* f32; in tables of pages that begin elsewhere */

IN_IMAGE static void take_last(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                               void *scratch) {
    (void)lo, (void)hi, (void)scratch;
    *(float *)b[1] = ((const float *)b[0])[d[0] - 1];
}

/* y = the last element of w + w, which a prepare step adds up. */
static Sample make(void) {
    Sample out = {.arena = arena_create()};
    Arena *a = out.arena;
    ExprPool *p = expr_pool_create(a);
    DiagSink *d = diag_create(a, NULL);
    Graph *g = graph_create(a, p, d, "given_back");
    const Expr one = expr_const(p, 1), n = expr_const(p, ELEMENTS);
    float *w = ARENA_ARRAY(a, float, ELEMENTS);
    for (int64_t i = 0; i < ELEMENTS; i++) w[i] = (float)i;
    Constant c = {.data = w, .bytes = ELEMENTS * sizeof *w, .name = "w"};
    Value v = build_const(g, (Type){.dtype = DT_f32, .rank = 1, .dim = {n}}, c);
    IoInfo y = {.name = "y", .type = {.dtype = DT_f32}};
    vec_push(a, &g->outputs, y);
    Schedule *s = ARENA_NEW(a, Schedule);
    CodeResult code = {.kernels = ARENA_ARRAY(a, CodeKernel, 2)};
    s->graph = g;
    s->exprs = p;
    const uint32_t from = sample_buffer(s, a, BUF_const, DT_f32, n, 0, v),
                   twice = sample_buffer(s, a, BUF_prepared, DT_f32, n, 0, 0),
                   to = sample_buffer(s, a, BUF_output, DT_f32, one, 0, 0);
    sample_step(s, &code, a, sample_kernel(a, "poi_double", 2, 2), (uint32_t[]){from, twice},
                sample_double, n, n, true);
    sample_step(s, &code, a, sample_kernel(a, "poi_take", 2, 2), (uint32_t[]){twice, to}, take_last,
                one, n, false);
    sample_build(s, &code, g, d, &out);
    CHECK(out.bytes != NULL);
    return out;
}

/* KiB of the file's maps that are there. */
static long resident(const char *file) {
    char line[512];
    long sum = 0, kib;
    bool inside = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!CHECK(f != NULL)) return 0;
    while (fgets(line, sizeof line, f)) {
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
            inside = strstr(line, file) != NULL;
        if (inside && sscanf(line, "Rss: %ld", &kib) == 1) sum += kib;
    }
    fclose(f);
    return sum;
}

/* What stays are the pages of what else is read in the file, which may be huge ones. */
static long test_session(const char *file, uint32_t threads, long most) {
    long kib = 0;
    char why[256] = "";
    graphc_plan *p = NULL;
    graphc_session *s = NULL;
    graphc_tensor y;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    o.threads = threads;
    if (CHECK(graphc_plan_load(file, &p, why, sizeof why) == GRAPHC_OK) &&
        CHECK(graphc_session_create(p, &o, &s, why, sizeof why) == GRAPHC_OK)) {
        kib = resident(file);
        if (!CHECK(kib <= most)) fprintf(stderr, "    %ld KiB with %u threads\n", kib, threads);
        CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
        if (CHECK(graphc_output(s, 0, &y) == GRAPHC_OK))
            CHECK(*(float *)y.data == 2.0f * (ELEMENTS - 1));
    }
    if (*why) fprintf(stderr, "    %s\n", why);
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    return kib;
}

TEST_MAIN {
    char file[] = "/tmp/graphc_given_back_XXXXXX";
    Sample sample = make();
    const int fd = mkstemp(file);
    (void)sample_make;
    if (sample.bytes && CHECK(fd >= 0) &&
        CHECK(write(fd, sample.bytes, sample.size) == (ssize_t)sample.size)) {
        const long alone = test_session(file, 1, ELEMENTS / 512);
        test_session(file, 2, alone);
        test_session(file, 5, alone);
    }
    if (fd >= 0) close(fd), unlink(file);
    arena_destroy(sample.arena);
}
