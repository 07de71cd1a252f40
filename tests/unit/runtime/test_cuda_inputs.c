/* Inputs in host memory against a driver that runs no kernels: small ones are one copy, and what
 * kernels are given holds what the caller's memory held when the run started. */
#include "runtime/cuda/driver.h"
#include "runtime/session.h"
#include "tests/fake_cuda/open.h"
#include "tests/unit/graph_plan.h"

enum { INPUTS = 3, MOST = 20000 }; /* floats: more than are packed */

static FakeCuda *cuda;
static float host[INPUTS][MOST];

/* y = sum(a) + b + sum(c): sizes of their own. */
static graphc_plan *plan(Arena *arena) {
    static const char *const name[] = {"a", "b", "c"};
    Graph *g = graph_create(arena, expr_pool_create(arena), diag_create(arena, NULL), "inputs");
    Value sum = {0};
    for (uint32_t i = 0; i < INPUTS; i++) {
        SymInfo n = {.name = name[i], .kind = SYM_DIM, .a = i, .lo = 1, .hi = MOST};
        Type t = {.dtype = DT_f32, .rank = 1, .dim = {expr_sym_new(g->exprs, n)}};
        Value x = build_reduce(g, OP_reduce_sum, build_input(g, name[i], t), 1, false);
        sum = i ? build_binary(g, OP_add, sum, x) : x;
    }
    build_output(g, "y", sum);
    return graph_plan_load(g, PLAN_cuda, NULL);
}

/* Binds so many floats of each, from float `shift` on; of input `there` on the device. */
static void bind(graphc_session *s, const int64_t *n, int shift, int there) {
    for (int i = 0; i < INPUTS; i++) {
        graphc_tensor t = {.data = host[i] + shift,
                           .device = i == there ? GRAPHC_CUDA : GRAPHC_CPU,
                           .dtype = {2, 32, 1},
                           .rank = 1,
                           .shape = {n[i]}};
        CHECK_EQ_I(graphc_bind_input(s, (uint32_t)i, &t), GRAPHC_OK);
    }
}

/* What the kernels read of input i. */
static const float *given(const graphc_session *s, uint32_t i) {
    for (uint32_t b = 0; b < s->res->target->nbuffers; b++)
        if (s->res->buffers[b].kind == PLAN_BUF_input && s->res->buffers[b].index == i)
            return s->address[b];
    return NULL;
}

/* A run's copies are so many and give kernels what is bound. */
static void check_run(graphc_session *s, int copies) {
    static float value;
    for (int i = 0; i < INPUTS; i++)
        for (int k = 0; k < MOST; k++) host[i][k] = value++;
    int before = cuda->copies;
    if (!CHECK(graphc_run(s) == GRAPHC_OK)) fprintf(stderr, "    %s\n", graphc_session_error(s));
    CHECK_EQ_I(cuda->copies - before, copies);
    for (uint32_t i = 0; i < INPUTS; i++) {
        const graphc_tensor *t = &s->inputs[i];
        const float *x = given(s, i);
        if (!CHECK(x && (uintptr_t)x % 16 == 0)) continue;
        CHECK(memcmp(x, t->data, (size_t)t->shape[0] * sizeof *x) == 0);
    }
}

static void check_sizes(graphc_session *s) {
    static const struct {
        int64_t n[INPUTS];
        int shift, there, copies;
    } runs[] = {
        {{1, 2000, 1}, 0, -1, 1},      {{1, 2001, 1}, 0, -1, 1},
        {{1, 2001, 1}, 1, -1, 1},      /* at no multiple of 16 */
        {{1, 2100, 3}, 0, -1, 1},      /* past its place */
        {{1, 2100, 3}, 0, 1, 1},       /* one is there already */
        {{1, 2100, 3}, 1, 1, 2},       /* but has to be copied to a multiple of 16 */
        {{1, 20000 - 1, 3}, 0, -1, 2}, /* one is too large */
        {{9000, 9000, 3}, 0, -1, 2},   /* two together are */
        {{9000, 9000, 9000}, 0, 0, 2}, /* one alone is not packed */
        {{1, 1, 1}, 0, -1, 1},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        bind(s, runs[i].n, runs[i].shift, runs[i].there);
        for (int k = 0; k < 3; k++) check_run(s, runs[i].copies);
    }
}

/* Sizes that grow keep the places, so that a recording's kernels change in their sizes alone; the
 * run in front keeps what it was given while the next is prepared. */
static void check_growing(graphc_session *s) {
    bind(s, (int64_t[]){1, 1030, 1}, 0, -1);
    check_run(s, 1);
    const float *at[INPUTS];
    for (uint32_t i = 0; i < INPUTS; i++) at[i] = given(s, i);
    int replays = cuda->replays;
    for (int64_t n = 1031; n < 1040; n++) {
        int before = cuda->copies;
        float last = at[1][0];
        bind(s, (int64_t[]){1, n, 1}, 0, -1);
        host[1][0] = -1;
        CHECK(graphc_prepare_run(s, 0) == GRAPHC_OK);
        CHECK(cuda->copies == before && at[1][0] == last);
        check_run(s, 1);
        for (uint32_t i = 0; i < INPUTS; i++) CHECK(given(s, i) == at[i]);
    }
    CHECK(cuda->replays > replays);
}

/* Held inputs are copied by the first run alone. */
static void check_held(graphc_session *s) {
    graphc_hold_inputs(s, true);
    bind(s, (int64_t[]){1, 500, 1}, 0, -1);
    check_run(s, 1);
    int before = cuda->copies;
    float first = host[0][0];
    host[0][0] = -1;
    CHECK(graphc_run(s) == GRAPHC_OK && cuda->copies == before && given(s, 0)[0] == first);
    graphc_hold_inputs(s, false);
    check_run(s, 1);
}

/* Without memory for all of them, each has its own. */
static void check_no_memory(const graphc_plan *p) {
    graphc_session *s = fake_cuda_session(p, NULL);
    if (!s) return;
    bind(s, (int64_t[]){1, 1, 1}, 0, -1);
    size_t bytes = 0;
    CHECK(graphc_workspace_size(s, &bytes) == GRAPHC_OK);
    cuda->fail = "cuMemAlloc_v2";
    cuda->skip = bytes > 0; /* the workspace comes first */
    cuda->fail_once = 1;
    cuda->result = CU_OUT_OF_MEMORY;
    check_run(s, 3);
    CHECK(!cuda->fail);
    cuda->fail = NULL;
    check_run(s, 3);
    graphc_session_destroy(s);
}

/* A caller's recording has to read the caller's memory when it is replayed. */
static void check_stream(const graphc_plan *p) {
    int stream;
    graphc_session *s = fake_cuda_session(p, &stream);
    if (!s) return;
    bind(s, (int64_t[]){1, 1, 1}, 0, -1);
    check_run(s, 3);
    graphc_session_destroy(s);
}

TEST_MAIN {
    setenv("GRAPHC_PTXAS", "none", 1); /* nothing here runs the code */
    cuda = fake_cuda_open();
    Arena *a = arena_create();
    graphc_plan *p = plan(a);
    graphc_session *s = p ? fake_cuda_session(p, NULL) : NULL;
    if (s) {
        check_sizes(s);
        check_growing(s);
        check_held(s);
    }
    graphc_session_destroy(s);
    if (p) check_no_memory(p);
    if (p) check_stream(p);
    CHECK_EQ_I(cuda->live, 0);
    graphc_plan_destroy(p);
    arena_destroy(a);
}
