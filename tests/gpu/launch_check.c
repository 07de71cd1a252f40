/* Runs launch_plan's plan on a GPU with sizes that come back, grow and cross into another variant,
 * plainly, recorded and changed in place, and checks every result.
 *
 *   launch_check PLAN
 *
 * Prints how long runs took. Exit status 1 if a result is wrong, 77 if there is no GPU. Needs the
 * runtime alone. */
#include "tests/gpu/plan_run.h"

enum { MOST = 400 };

static float x[4 * MOST], y[4 * MOST], z;
static const float w[4] = {1, 2, 3, -4};

static int fail(const graphc_session *s, int64_t rows, const char *what) {
    fprintf(stderr, "%lld rows: %s: %s\n", (long long)rows, what, graphc_session_error(s));
    return 1;
}

static int run(graphc_session *s, int64_t rows) {
    graphc_tensor tx = {
        .data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 2, .shape = {rows, 4}};
    graphc_tensor ty = tx, tz = {.data = &z, .device = GRAPHC_CPU, .dtype = {2, 32, 1}};
    ty.data = y;
    if (graphc_bind_input(s, 0, &tx) || graphc_bind_output(s, 0, &ty) ||
        graphc_bind_output(s, 1, &tz))
        return fail(s, rows, "binding");
    return graphc_run(s) || graphc_sync(s) ? fail(s, rows, "running") : 0;
}

static int check(graphc_session *s, int64_t rows) {
    float sum = 0, add = rows < 32 ? 1 : 2;
    for (int64_t i = 0; i < 4 * rows; i++) {
        x[i] = (float)((i * 7 + rows) % 11);
        sum += 2 * x[i] + 2 * w[i % 4];
    }
    memset(y, 0xff, sizeof y);
    if (run(s, rows)) return 1;
    for (int64_t i = 0; i < 4 * rows; i++)
        if (y[i] != x[i] + add) return fail(s, rows, "y is wrong");
    return z == sum ? 0 : fail(s, rows, z > sum ? "z is too large" : "z is too small");
}

static int check_all(graphc_session *s) {
    static const int64_t again[] = {3, 3, 3, 40, 40, 3, 40, 0, 3, 31, 32, 31, 32, 1};
    for (size_t i = 0; i < sizeof again / sizeof *again; i++)
        if (check(s, again[i])) return 1;
    double start = now();
    for (int64_t rows = 1; rows <= MOST; rows++)
        if (check(s, rows)) return 1;
    printf("growing: %.1f us a run\n", (now() - start) / MOST * 1e6);
    start = now();
    for (int i = 0; i < MOST; i++)
        if (check(s, MOST)) return 1;
    printf("the same: %.1f us a run\n", (now() - start) / MOST * 1e6);
    return 0;
}

int main(int argc, char **argv) {
    char why[512] = "";
    graphc_plan *p = NULL;
    if (argc != 2 || graphc_plan_load(argv[1], &p, why, sizeof why)) {
        fprintf(stderr, "%s\n", argc == 2 ? why : "launch_check PLAN");
        return 2;
    }
    graphc_session *s = open_session(p, GRAPHC_CUDA, NULL);
    int status = s ? check_all(s) : 77;
    if (!status) printf("all right, by %s\n", graphc_session_code(s));
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    return status;
}
