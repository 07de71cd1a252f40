/* Sessions on the CPU: binding, shapes, run-time sizes, errors, no allocation after warm-up, many
 * sessions of one plan on many threads. */
#include "tests/unit/allocations.h"
#include "tests/unit/runtime/plan_sample.h"
#include "runtime/graphc.h"
#include "tests/unit/test.h"
#include <pthread.h>
#include <stdatomic.h>

static graphc_tensor matrix(float *data, int64_t rows) {
    return (graphc_tensor){
        .data = data, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 2, .shape = {rows, 4}};
}

static void fill(float *x, int64_t rows, float salt) {
    for (int64_t i = 0; i < rows * 4; i++) x[i] = (float)((i * 7) % 11) - 6 + salt;
}

/* Runs and compares with the same thing in plain C. */
static bool run_and_check(graphc_session *s, float *x, int64_t rows) {
    graphc_tensor t = matrix(x, rows), y, z, pos;
    bool ok = graphc_bind_input(s, 0, &t) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK &&
              graphc_output(s, 0, &y) == GRAPHC_OK && graphc_output(s, 1, &z) == GRAPHC_OK &&
              graphc_output(s, 2, &pos) == GRAPHC_OK;
    if (!ok) return false;
    float sum = 0;
    int64_t n = 0;
    ok = y.rank == 2 && y.shape[0] == rows && y.shape[1] == 4 && z.rank == 0;
    for (int64_t i = 0; i < rows * 4; i++) {
        float v = x[i] + 2 * sample_w[i % 4];
        v = v > 0 ? v : 0;
        sum += v;
        ok &= ((float *)y.data)[i] == v;
        if (v > 0) ok &= ((int64_t *)pos.data)[n++] == i;
    }
    return ok && *(float *)z.data == sum && pos.shape[0] == n;
}

static graphc_plan *load(const Sample *s) {
    graphc_plan *p = NULL;
    char why[256];
    if (!CHECK(graphc_plan_load_memory(s->bytes, s->size, NULL, &p, why, sizeof why) == GRAPHC_OK))
        fprintf(stderr, "    %s\n", why);
    return p;
}

static graphc_session *session(const graphc_plan *p, uint32_t threads) {
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    char why[256];
    o.threads = threads;
    if (!CHECK(graphc_session_create(p, &o, &s, why, sizeof why) == GRAPHC_OK))
        fprintf(stderr, "    %s\n", why);
    return s;
}

static void test_shapes(const graphc_plan *p) {
    float x[4 * 100];
    graphc_session *s = session(p, 3);
    static const int64_t rows[] = {3, 100, 1, 0, 64};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fill(x, rows[i], 0.5f);
        CHECK(run_and_check(s, x, rows[i]));
    }
#ifdef COUNTS_ALLOCATIONS
    long before = allocations;
    for (int i = 0; i < 20; i++) CHECK(run_and_check(s, x, i % 2 ? 64 : 3));
    CHECK_EQ_I(allocations - before, 0);
#endif
    graphc_session_destroy(s);
}

static void test_own_memory(const graphc_plan *p) {
    float x[4 * 8], y[4 * 8];
    int64_t pos[32];
    graphc_session *s = session(p, 1);
    fill(x, 8, 0);
    graphc_tensor tx = matrix(x, 8), ty = matrix(y, 8), out;
    CHECK_EQ_I(graphc_bind_output(s, 0, &ty), GRAPHC_OK);
    CHECK(run_and_check(s, x, 8));
    CHECK(graphc_output(s, 0, &out) == GRAPHC_OK && out.data == y);
    size_t bytes = 0;
    CHECK_EQ_I(graphc_workspace_size(s, &bytes), GRAPHC_OK);
    CHECK(bytes >= sizeof x);
    char *work = aligned_alloc(64, (bytes + 63) / 64 * 64);
    CHECK_EQ_I(graphc_bind_workspace(s, work, bytes - 1), GRAPHC_OK);
    CHECK_EQ_I(graphc_run(s), GRAPHC_USAGE);
    CHECK(strstr(graphc_session_error(s), "workspace"));
    CHECK_EQ_I(graphc_bind_workspace(s, work, bytes), GRAPHC_OK);
    CHECK(run_and_check(s, x, 8));
    CHECK_EQ_I(graphc_bind_workspace(s, NULL, 0), GRAPHC_OK);
    ty.shape[0] = 7;
    CHECK_EQ_I(graphc_bind_output(s, 0, &ty), GRAPHC_OK);
    CHECK_EQ_I(graphc_run(s), GRAPHC_INVALID);
    CHECK_EQ_I(graphc_bind_output(s, 0, NULL), GRAPHC_OK);
    graphc_tensor tp = {
        .data = pos, .device = GRAPHC_CPU, .dtype = {0, 64, 1}, .rank = 1, .shape = {99}};
    CHECK_EQ_I(graphc_bind_output(s, 2, &tp), GRAPHC_OK);
    CHECK_EQ_I(graphc_run(s), GRAPHC_INVALID);
    CHECK_EQ_I(graphc_bind_input(s, 0, &tx), GRAPHC_OK);
    CHECK_EQ_I(graphc_prepared_save(s, NULL), GRAPHC_USAGE);
    CHECK(*graphc_session_error(s));
    free(work);
    graphc_session_destroy(s);
}

/* What sizes that rose left room for is not asked of a caller's workspace. */
static void test_workspace_after_growth(const graphc_plan *p) {
    float x[4 * 100];
    graphc_session *s = session(p, 1), *fresh = session(p, 1);
    fill(x, 100, 0.5f);
    for (int64_t rows = 40; rows <= 90; rows += 10) CHECK(run_and_check(s, x, rows));
    graphc_tensor t = matrix(x, 90);
    size_t grown = 0, bytes = 0;
    CHECK_EQ_I(graphc_bind_input(fresh, 0, &t), GRAPHC_OK);
    CHECK_EQ_I(graphc_workspace_size(fresh, &bytes), GRAPHC_OK);
    char *work = aligned_alloc(64, (bytes + 63) / 64 * 64);
    CHECK_EQ_I(graphc_bind_workspace(s, work, bytes), GRAPHC_OK);
    CHECK(run_and_check(s, x, 90));
    CHECK_EQ_I(graphc_bind_workspace(s, NULL, 0), GRAPHC_OK);
    for (int64_t rows = 50; rows <= 90; rows += 10) CHECK(run_and_check(s, x, rows));
    CHECK_EQ_I(graphc_workspace_size(s, &grown), GRAPHC_OK);
    CHECK(grown == bytes);
    CHECK(run_and_check(s, x, 90));
    free(work);
    graphc_session_destroy(s);
    graphc_session_destroy(fresh);
}

static void test_errors(const graphc_plan *p) {
    float x[16] = {0};
    graphc_session *s = session(p, 1);
    graphc_tensor t = matrix(x, 4), out;
    CHECK_EQ_I(graphc_run(s), GRAPHC_USAGE);
    CHECK(strstr(graphc_session_error(s), "\"x\" is not bound"));
    CHECK_EQ_I(graphc_output(s, 0, &out), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_bind_input(s, 1, &t), GRAPHC_USAGE);
    t.shape[1] = 3;
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_OK);
    CHECK_EQ_I(graphc_run(s), GRAPHC_INVALID);
    CHECK(strstr(graphc_session_error(s), "dimension 1 must be 4"));
    t = matrix(x, 2 << 20);
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_OK);
    CHECK_EQ_I(graphc_run(s), GRAPHC_INVALID);
    CHECK(strstr(graphc_session_error(s), "batch in 0..1048576"));
    t.dtype.bits = 64;
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_INVALID);
    t = matrix(x, 4);
    t.rank = 1;
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_INVALID);
    t = matrix(x, 4);
    CHECK(run_and_check(s, x, 4));
    graphc_session_destroy(s);
}

/* Every status that graphc.h gives for bindings; what was bound before stays. */
static void test_bind_statuses(const graphc_plan *p) {
    float x[16] = {0};
    size_t bytes;
    graphc_session *s = session(p, 1);
    const graphc_tensor t = matrix(x, 4);
    graphc_tensor bad[] = {t, t, t, t, t, t};
    const graphc_status want[] = {GRAPHC_USAGE,   GRAPHC_USAGE,   GRAPHC_INVALID,
                                  GRAPHC_INVALID, GRAPHC_INVALID, GRAPHC_INVALID};
    bad[0].data = (char *)x + 1;
    bad[1].device = GRAPHC_CUDA;
    bad[2].dtype.code = 0;
    bad[3].rank = 3;
    bad[4].shape[0] = INT64_MAX;
    bad[5].shape[0] = -1;
    CHECK_EQ_I(graphc_workspace_size(s, &bytes), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_EQ_I(graphc_bind_input(s, 0, &bad[i]), want[i]);
        CHECK_EQ_I(graphc_bind_output(s, 0, &bad[i]), want[i]);
        CHECK(graphc_session_error(s)[0] != 0);
    }
    graphc_tensor no_data = t;
    no_data.data = NULL;
    CHECK_EQ_I(graphc_bind_input(s, 0, &no_data), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_bind_input(s, 0, NULL), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_bind_output(s, 99, &t), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_workspace_size(s, NULL), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_bind_workspace(s, (char *)x + 1, 8), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_output(s, 0, NULL), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
    graphc_session_destroy(s);
}

/* What the last run gave is not described by sizes or memory that came after it. */
static void test_output_ends(const graphc_plan *p) {
    float x[4 * 16], y[4 * 16];
    size_t bytes;
    graphc_session *s = session(p, 1);
    fill(x, 16, 0);
    graphc_tensor t = matrix(x, 16), ty = matrix(y, 4), out;
    CHECK(run_and_check(s, x, 4));
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_OK);
    CHECK(graphc_output(s, 0, &out) == GRAPHC_OK && out.shape[0] == 4);
    CHECK_EQ_I(graphc_workspace_size(s, &bytes), GRAPHC_OK);
    CHECK_EQ_I(graphc_output(s, 0, &out), GRAPHC_USAGE);
    CHECK(run_and_check(s, x, 4));
    CHECK_EQ_I(graphc_bind_output(s, 0, &ty), GRAPHC_OK);
    CHECK_EQ_I(graphc_output(s, 0, &out), GRAPHC_USAGE);
    CHECK(run_and_check(s, x, 4));
    graphc_session_destroy(s);
}

/* Shapes that a run will give are known when inputs are bound, in numbers. */
static void test_output_shapes(const graphc_plan *p) {
    float x[4 * 16] = {0};
    graphc_session *s = session(p, 1);
    graphc_tensor t = matrix(x, 7), out = {.data = x};
    CHECK_EQ_I(graphc_output_shape(s, 0, 0, &out), GRAPHC_USAGE);
    CHECK(strstr(graphc_session_error(s), "\"x\" is not bound"));
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_OK);
    CHECK_EQ_I(graphc_output_shape(s, 0, 0, &out), GRAPHC_OK);
    CHECK(!out.data && out.rank == 2 && out.shape[0] == 7 && out.shape[1] == 4);
    CHECK(out.dtype.code == 2 && out.dtype.bits == 32 && out.device == GRAPHC_CPU);
    CHECK(graphc_output_shape(s, 0, 1, &out) == GRAPHC_OK && out.rank == 0);
    CHECK(graphc_output_shape(s, 0, 2, &out) == GRAPHC_OK && out.rank == 1 && out.shape[0] == -1);
    CHECK_EQ_I(graphc_output_shape(s, 0, 3, &out), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_output_shape(s, 1, 0, &out), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_output_shape(s, 0, 0, NULL), GRAPHC_USAGE);
    CHECK(run_and_check(s, x, 4));
    graphc_io_info in = graphc_plan_input(p, 0);
    CHECK(in.sizes[0] == -1 && in.sizes[1] == 4);
    CHECK(graphc_plan_output(p, 2).sizes[0] == -1);
    graphc_session_destroy(s);
}

/* What is prepared for the next run leaves the results of the last one as they are. */
static void test_prepared(const graphc_plan *p) {
    float x[64 * 4];
    for (int i = 0; i < 64 * 4; i++) x[i] = (float)(i % 7) - 3;
    graphc_session *s = session(p, 1);
    graphc_tensor few = matrix(x, 4), many = matrix(x, 64), wrong = matrix(x, 4), out, again;
    wrong.shape[1] = 3;
    CHECK_EQ_I(graphc_prepare_run(s, 0), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_prepare_run(s, 9), GRAPHC_USAGE);
    CHECK(run_and_check(s, x, 4));
    CHECK(graphc_bind_input(s, 0, &few) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK);
    CHECK_EQ_I(graphc_output(s, 0, &out), GRAPHC_OK);
    const float first = *(const float *)out.data;
    CHECK(graphc_bind_input(s, 0, &many) == GRAPHC_OK); /* memory has to grow: the run's to do */
    for (int i = 0; i < 2; i++) CHECK_EQ_I(graphc_prepare_run(s, 0), GRAPHC_OK);
    CHECK(graphc_output(s, 0, &again) == GRAPHC_OK && again.data == out.data);
    CHECK(again.shape[0] == 4 && *(const float *)again.data == first);
    CHECK(graphc_run(s) == GRAPHC_OK && graphc_output(s, 0, &again) == GRAPHC_OK);
    CHECK(again.shape[0] == 64);
    CHECK(graphc_bind_input(s, 0, &wrong) == GRAPHC_OK);
    CHECK_EQ_I(graphc_prepare_run(s, 0), GRAPHC_INVALID);
    CHECK(graphc_output(s, 0, &again) == GRAPHC_OK && again.shape[0] == 64);
    CHECK(run_and_check(s, x, 4));
    graphc_session_destroy(s);
}

/* What a plan says of itself, each kernel once per launch. */
static void test_about(const graphc_plan *p) {
    uint32_t at_load = 0, n = graphc_plan_kernels(p, 0);
    CHECK(graphc_plan_targets(p) > 0 && !strcmp(graphc_plan_target(p, 0), "cpu"));
    CHECK(n > 0 && graphc_plan_kernels(p, 99) == 0);
    for (uint32_t i = 0; i < n; i++) {
        graphc_kernel_info k = graphc_plan_kernel(p, 0, i);
        bool load = !*k.entry;
        CHECK(*k.name && (load || !strcmp(k.entry, graphc_plan_entry(p, 0).name)));
        CHECK(!load || at_load == i); /* those come first */
        at_load += load;
    }
    CHECK(!*graphc_plan_kernel(p, 0, n).name && !*graphc_plan_kernel(p, 99, 0).name);
    CHECK(!*graphc_plan_target(p, 99) && !*graphc_plan_refusals(p, 99) &&
          !*graphc_plan_uncovered(p, 99));
}

static graphc_status create(const graphc_plan *p, const graphc_session_options *o, char *why,
                            size_t size) {
    graphc_session *s;
    graphc_status st = graphc_session_create(p, o, &s, why, size);
    CHECK((st == GRAPHC_OK) == (s != NULL));
    graphc_session_destroy(s);
    return st;
}

static void test_options(const graphc_plan *p) {
    const graphc_session_options init = GRAPHC_SESSION_OPTIONS_INIT;
    graphc_session_options o = init;
    char why[256];
    o.device = GRAPHC_CUDA;
    CHECK_EQ_I(create(p, &o, why, sizeof why), GRAPHC_UNSUPPORTED);
    CHECK(strstr(why, "no code for CUDA"));
    o = init;
    o.size = 0;
    CHECK_EQ_I(create(p, &o, why, sizeof why), GRAPHC_USAGE);
    CHECK(strstr(why, "GRAPHC_SESSION_OPTIONS_INIT"));
    o = init;
    o.device_id = 1;
    CHECK_EQ_I(create(p, &o, why, sizeof why), GRAPHC_USAGE);
    o = init;
    o.isa_limit = 2;
    CHECK_EQ_I(create(p, &o, why, sizeof why), GRAPHC_USAGE);
    o = init;
    o.size = sizeof o - sizeof o.weights_dir; /* an older header's */
    o.isa_limit = 4;
    CHECK_EQ_I(create(p, &o, why, sizeof why), GRAPHC_OK);
    CHECK_EQ_I(graphc_session_create(p, NULL, NULL, why, 4), GRAPHC_USAGE);
    CHECK_EQ_I(strlen(why), 3);
}

static void test_profile(const graphc_plan *p) {
    float x[4 * 5];
    graphc_session *s = session(p, 2);
    fill(x, 5, 0);
    graphc_session_profile(s, true);
    CHECK(run_and_check(s, x, 5));
    CHECK_EQ_I(graphc_profile_steps(s), 4);
    CHECK_STR(graphc_profile_step(s, 2).kernel, "red_2_sum");
    CHECK(graphc_profile_step(s, 0).seconds > 0);
    graphc_session_destroy(s);
}

#ifdef COUNTS_ALLOCATIONS
/* Fails the first allocation, then the second ..., until load, session and run need no more: every
 * failure is a message, and nothing is left behind. */
static void test_no_memory(const Sample *sample) {
    float x[4 * 5];
    char why[256];
    bool done = false;
    fill(x, 5, 0);
    for (long n = 0; !done && n < 1000; n++) {
        graphc_plan *p = NULL;
        graphc_session *s = NULL;
        graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
        graphc_tensor t = matrix(x, 5);
        long before = live;
        o.threads = 1;
        fail_at = n;
        graphc_status st =
            graphc_plan_load_memory(sample->bytes, sample->size, "base", &p, why, sizeof why);
        if (st == GRAPHC_OK) st = graphc_session_create(p, &o, &s, why, sizeof why);
        if (st == GRAPHC_OK) st = graphc_bind_input(s, 0, &t);
        if (st == GRAPHC_OK) st = graphc_run(s);
        done = fail_at >= 0;
        fail_at = -1;
        CHECK(st == (done ? GRAPHC_OK : GRAPHC_NO_MEMORY));
        if (s && !done) CHECK(run_and_check(s, x, 5)); /* the session is still good */
        graphc_session_destroy(s);
        graphc_plan_destroy(p);
        CHECK_EQ_I(live, before);
    }
    CHECK(done);
}
#endif

static void *user(void *plan) {
    float x[4 * 64];
    bool ok = true;
    for (int round = 0; round < 5; round++) {
        graphc_session *s = NULL;
        graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
        o.threads = 1 + (uint32_t)round % 3;
        if (graphc_session_create(plan, &o, &s, NULL, 0) != GRAPHC_OK) return plan;
        for (int i = 0; i < 50; i++) {
            fill(x, 1 + i, (float)round);
            ok &= run_and_check(s, x, 1 + i);
        }
        graphc_session_destroy(s);
    }
    return ok ? NULL : plan;
}

static void test_many_threads(graphc_plan *p) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) CHECK_EQ_I(pthread_create(&t[i], NULL, user, p), 0);
    for (int i = 0; i < 8; i++) {
        void *bad = NULL;
        pthread_join(t[i], &bad);
        CHECK(!bad);
    }
}

TEST_MAIN {
    Sample s = sample_make(false, true);
    graphc_plan *p = CHECK(s.bytes) ? load(&s) : NULL;
    if (p) {
        test_shapes(p);
        test_own_memory(p);
        test_workspace_after_growth(p);
        test_errors(p);
        test_bind_statuses(p);
        test_output_ends(p);
        test_output_shapes(p);
        test_prepared(p);
        test_about(p);
        test_options(p);
        test_profile(p);
        test_many_threads(p);
    }
    graphc_plan_destroy(p);
#ifdef COUNTS_ALLOCATIONS
    if (s.bytes) test_no_memory(&s);
#endif
    arena_destroy(s.arena);
}
