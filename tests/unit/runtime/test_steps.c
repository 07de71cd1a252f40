/* Loops and branches of a plan: trip counts, conditions that kernels compute, iteration symbols.
 *
 *   y = 0; for (i = 0; i < batch && y < 300; i++) y += i % 2 ? 100 : i; */
#include "tests/unit/runtime/plan_sample.h"
#include "runtime/graphc.h"
#include "tests/unit/test.h"

IN_IMAGE static void steps_start(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                                 void *scratch) {
    (void)d, (void)lo, (void)hi, (void)scratch;
    *(int64_t *)b[0] = 0;
    *(uint8_t *)b[1] = 1;
}

IN_IMAGE static void steps_odd(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                               void *scratch) {
    (void)lo, (void)hi, (void)scratch;
    *(uint8_t *)b[0] = (uint8_t)(d[0] & 1);
}

IN_IMAGE static void steps_add(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                               void *scratch) {
    (void)lo, (void)hi, (void)scratch;
    *(int64_t *)b[0] += d[0];
}

IN_IMAGE static void steps_more(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                                void *scratch) {
    (void)lo, (void)hi, (void)scratch;
    *(uint8_t *)b[1] = *(const int64_t *)b[0] < d[0];
}

static void control(Schedule *s, Arena *a, StepKind kind, uint32_t match, uint32_t cond) {
    SStep st = {.kind = kind, .match = match, .cond_buf = cond};
    vec_push(a, &s->steps, st);
}

/* bare: the condition has room for batch - 1 values, so for none where batch is 1. */
static Sample make(bool bare) {
    Sample out = {.arena = arena_create()};
    Arena *a = out.arena;
    ExprPool *p = expr_pool_create(a);
    DiagSink *d = diag_create(a, NULL);
    Graph *g = graph_create(a, p, d, "steps");
    SymInfo batch = {.name = "batch", .kind = SYM_DIM, .lo = 0, .hi = 1 << 20};
    SymInfo iter = {.name = "i", .kind = SYM_ITER, .lo = 0, .hi = INT64_MAX};
    Expr eb = expr_sym_new(p, batch), ei = expr_sym_new(p, iter), one = expr_const(p, 1);
    build_input(g, "x", (Type){.dtype = DT_f32, .rank = 1, .dim = {eb}});
    IoInfo y = {.name = "y", .type = {.dtype = DT_i64}};
    vec_push(a, &g->outputs, y);

    Schedule *s = ARENA_NEW(a, Schedule);
    CodeResult code = {.kernels = ARENA_ARRAY(a, CodeKernel, 16)};
    s->graph = g;
    s->exprs = p;
    uint32_t by = sample_buffer(s, a, BUF_output, DT_i64, one, 0, 0);
    uint32_t more = sample_buffer(s, a, BUF_temp, DT_bool, bare ? expr_addi(p, eb, -1) : one, 0, 0);
    uint32_t odd = sample_buffer(s, a, BUF_temp, DT_bool, one, 0, 0);
    Kernel *add = sample_kernel(a, "poi_add", 1, 1);
    sample_step(s, &code, a, sample_kernel(a, "poi_start", 2, 3), (uint32_t[]){by, more},
                steps_start, one, one, false);
    control(s, a, STEP_loop_begin, 9, more + 1);
    expr_is_sym(p, ei, &s->steps.v[1].iter);
    s->steps.v[1].trip = eb;
    sample_step(s, &code, a, sample_kernel(a, "poi_odd", 1, 1), &odd, steps_odd, one, ei, false);
    control(s, a, STEP_if_begin, 5, odd + 1);
    sample_step(s, &code, a, add, &by, steps_add, one, expr_const(p, 100), false);
    control(s, a, STEP_if_else, 7, 0);
    sample_step(s, &code, a, add, &by, steps_add, one, ei, false);
    control(s, a, STEP_if_end, 5, 0);
    sample_step(s, &code, a, sample_kernel(a, "poi_more", 2, 2), (uint32_t[]){by, more}, steps_more,
                one, expr_const(p, 300), false);
    control(s, a, STEP_loop_end, 1, 0);
    sample_build(s, &code, g, d, &out);
    return out;
}

static int64_t expected(int64_t batch) {
    int64_t y = 0;
    for (int64_t i = 0; i < batch && (i == 0 || y < 300); i++) y += i % 2 ? 100 : i;
    return y;
}

/* A plan may not read a condition or a trip count out of less memory than that takes. */
static void test_small_scalar(void) {
    char why[256] = "";
    float x[1] = {0};
    Sample sample = make(true);
    graphc_plan *p = NULL;
    graphc_session *s = NULL;
    graphc_tensor t = {
        .data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 1, .shape = {1}};
    if (!CHECK(sample.bytes &&
               graphc_plan_load_memory(sample.bytes, sample.size, NULL, &p, why, sizeof why) ==
                   GRAPHC_OK &&
               graphc_session_create(p, NULL, &s, why, sizeof why) == GRAPHC_OK))
        return;
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_OK);
    CHECK_EQ_I(graphc_run(s), GRAPHC_INVALID);
    CHECK(strstr(graphc_session_error(s), "a scalar is read from buffer"));
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    arena_destroy(sample.arena);
}

TEST_MAIN {
    char why[256] = "";
    float x[64] = {0};
    test_small_scalar();
    Sample sample = make(false);
    graphc_plan *p = NULL;
    graphc_session *s = NULL;
    (void)sample_make;
    if (!CHECK(sample.bytes &&
               graphc_plan_load_memory(sample.bytes, sample.size, NULL, &p, why, sizeof why) ==
                   GRAPHC_OK &&
               graphc_session_create(p, NULL, &s, why, sizeof why) == GRAPHC_OK))
        return;
    static const int64_t batches[] = {0, 1, 2, 5, 3, 60};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        graphc_tensor t = {.data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 1}, y;
        t.shape[0] = batches[i];
        CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_OK);
        CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
        if (CHECK(graphc_output(s, 0, &y) == GRAPHC_OK))
            CHECK_EQ_I(*(int64_t *)y.data, expected(batches[i]));
    }
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    arena_destroy(sample.arena);
}
