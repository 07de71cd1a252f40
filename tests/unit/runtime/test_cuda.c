/* A GPU session against the CPU session of the same plan; without a driver or GPU only the message.
 */
#include "tests/unit/runtime/plan_sample.h"
#include "runtime/graphc.h"
#include "tests/unit/test.h"

static graphc_session *session(const graphc_plan *p, graphc_device_kind device, char *why,
                               size_t size) {
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    o.device = device;
    graphc_status st = graphc_session_create(p, &o, &s, why, size);
    CHECK(st == GRAPHC_OK || why[0]);
    return s;
}

static bool run(graphc_session *s, float *x, int64_t rows, float *y, float *z) {
    graphc_tensor tx = {
        .data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 2, .shape = {rows, 4}};
    graphc_tensor ty = tx, tz = {.data = z, .device = GRAPHC_CPU, .dtype = {2, 32, 1}};
    ty.data = y;
    bool ok = graphc_bind_input(s, 0, &tx) == GRAPHC_OK &&
              graphc_bind_output(s, 0, &ty) == GRAPHC_OK &&
              graphc_bind_output(s, 1, &tz) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK;
    if (!ok) fprintf(stderr, "    %s\n", graphc_session_error(s));
    return ok;
}

static void compare(graphc_session *cpu, graphc_session *gpu, bool positions) {
    static const int64_t rows[] = {3, 3, 3, 64, 3, 64, 64, 1, 0};
    float x[256], y[2][256], z[2];
    for (int i = 0; i < 256; i++) x[i] = (float)(i * 7 % 13) - 6;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        x[0] = (float)i;
        memset(y, 0, sizeof y);
        if (!CHECK(run(cpu, x, rows[i], y[0], &z[0]) && run(gpu, x, rows[i], y[1], &z[1]))) return;
        CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
        CHECK(z[0] == z[1]);
        if (!positions) continue;
        graphc_tensor a, b;
        CHECK(graphc_output(cpu, 2, &a) == GRAPHC_OK && graphc_output(gpu, 2, &b) == GRAPHC_OK);
        CHECK_EQ_I(b.shape[0], a.shape[0]);
        CHECK(b.device == GRAPHC_CUDA);
    }
    graphc_session_profile(gpu, true);
    CHECK(run(gpu, x, 64, y[1], &z[1]));
    CHECK(graphc_profile_step(gpu, 0).seconds > 0);
}

/* Without run-time sizes, runs are replayed as graphs. */
static bool test_plan(bool positions) {
    char why[512] = "", other[512];
    Sample s = sample_make(true, positions);
    graphc_plan *p = NULL;
    if (!CHECK(s.bytes &&
               graphc_plan_load_memory(s.bytes, s.size, NULL, &p, why, sizeof why) == GRAPHC_OK))
        return false;
    graphc_session *gpu = session(p, GRAPHC_CUDA, why, sizeof why);
    graphc_session *cpu = session(p, GRAPHC_CPU, other, sizeof other);
    bool ran = gpu && cpu;
    if (ran)
        compare(cpu, gpu, positions);
    else
        printf("no GPU: %s\n", why);
    graphc_session_destroy(gpu);
    graphc_session_destroy(cpu);
    graphc_plan_destroy(p);
    arena_destroy(s.arena);
    return ran;
}

TEST_MAIN {
    bool ran = test_plan(true) && test_plan(false);
    if (!ran && !test_failures) TEST_SKIP("no usable GPU");
}
