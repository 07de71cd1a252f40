/* What kernels are launched with, seen from a driver that does not run them: the order of their
 * parameters, tensor maps, clusters, dependence, zeroed memory, variants; how recorded runs are
 * changed; what a caller's own recording and misaligned tensors lead to. */
#include "tests/unit/runtime/plan_sample.h"
#include "runtime/cuda/driver.h"
#include "runtime/graphc.h"
#include "runtime/session.h"
#include "tests/unit/graph_plan.h"
#include "tests/unit/test.h"
#include "tests/fake_cuda/open.h"
#include <math.h>

#define MAX_SEEN 64

typedef struct Seen {
    FakeLaunch launch;
    uint64_t param[8]; /* by value: pointers, then dims; of a map its first 8 bytes */
} Seen;

static Seen seen[MAX_SEEN];
static int nseen;
static FakeCuda *cuda;

static void on_launch(const FakeLaunch *l) {
    if (nseen == MAX_SEEN) return;
    Seen *s = &seen[nseen++];
    s->launch = *l;
    for (int i = 0; i < 4; i++) memcpy(&s->param[i], l->params[i], 8);
}

static void open_fake(void) {
    cuda = fake_cuda_open();
    cuda->on_launch = on_launch;
}

static _Alignas(64) float x[4 * 1024 + 16], y[4 * 1024 + 16];

/* One run with tensors on the device, `shift` floats into x and y. */
static bool run(graphc_session *s, int64_t rows, int shift) {
    graphc_tensor tx = {.data = x + shift,
                        .device = GRAPHC_CUDA,
                        .dtype = {2, 32, 1},
                        .rank = 2,
                        .shape = {rows, 4}};
    graphc_tensor ty = tx;
    ty.data = y + shift;
    nseen = 0;
    bool ok = graphc_bind_input(s, 0, &tx) == GRAPHC_OK &&
              graphc_bind_output(s, 0, &ty) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK;
    if (!CHECK(ok)) fprintf(stderr, "    %s\n", graphc_session_error(s));
    return ok;
}

static void check_first_run(graphc_session *s) {
    int memsets = cuda->memsets;
    if (!run(s, 3, 0) || !CHECK(nseen == 3)) return;
    const Seen *a = &seen[0], *b = &seen[1], *c = &seen[2];
    CHECK(strcmp(a->launch.name, "sample_relu") == 0 && a->launch.grid[0] == 3);
    CHECK(a->launch.cluster[0] == 2 && a->launch.cluster[1] == 1 && a->launch.shared == 48000);
    CHECK(!a->launch.dependent); /* nothing of this run is in front of it */
    CHECK(a->param[0] == (uintptr_t)x);
    CHECK(a->param[3] && c->param[2] &&
          a->param[3] != c->param[2]); /* zeroed memory behind three buffers */
    CHECK(strcmp(b->launch.name, "sample_relu") == 0 && !b->launch.cluster[0]);
    CHECK(b->param[2] == (uintptr_t)y);
    CHECK(!c->launch.dependent); /* scratch was zeroed in between */
    CHECK_EQ_I(cuda->memsets - memsets, 2);
    CHECK_EQ_I(cuda->encoded, 1);
    const FakeMap *m = &cuda->map;
    CHECK(m->type == 7 && m->rank == 2 && m->p == x && m->size[0] == 4 && m->size[1] == 3);
    CHECK(m->stride[0] == 16 && m->box[0] == 4 && m->box[1] == 8 && m->step[0] == 1);
    CHECK(m->swizzle == 1 && m->promotion == 2);
}

/* Sizes that differ in every run: recorded once, then changed where they differ. */
static void check_growing(graphc_session *s) {
    int replays = cuda->replays, launches = cuda->launches, updates = cuda->updates;
    if (!run(s, 4, 0)) return;
    CHECK(cuda->replays == replays + 1 && cuda->launches == launches + 3);
    CHECK(run(s, 4, 0) && nseen == 0 && cuda->replays == replays + 2);
    graphc_tensor tx = {
        .data = x + 16, .device = GRAPHC_CUDA, .dtype = {2, 32, 1}, .rank = 2, .shape = {4, 4}};
    nseen = 0;
    CHECK(graphc_bind_input(s, 0, &tx) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK);
    CHECK(cuda->launches == launches + 3 && cuda->updates == updates + 2); /* those that read x */
    CHECK(nseen == 2 && seen[0].param[0] == (uintptr_t)(x + 16));
    CHECK(cuda->map.p == x + 16);
    for (int i = 0; i < 20; i++) { /* back and forth: both are recorded and stay so */
        updates = cuda->updates;
        launches = cuda->launches;
        CHECK(run(s, 4, 0));
        CHECK(graphc_bind_input(s, 0, &tx) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK);
    }
    CHECK(cuda->updates == updates && cuda->launches == launches);
}

/* A run that was prepared behind another changes nothing when it starts, unless it is another. */
static void check_prepared(graphc_session *s) {
    graphc_tensor tx = {
        .data = x, .device = GRAPHC_CUDA, .dtype = {2, 32, 1}, .rank = 2, .shape = {4, 4}};
    graphc_tensor out;
    CHECK(run(s, 4, 0) && graphc_bind_output(s, 0, NULL) == GRAPHC_OK &&
          graphc_run(s) == GRAPHC_OK);
    CHECK(graphc_output(s, 0, &out) == GRAPHC_OK && out.shape[0] == 4);
    const void *data = out.data;
    int replays = cuda->replays, updates = cuda->updates, launches = cuda->launches;
    tx.shape[0] = 2;
    CHECK(graphc_bind_input(s, 0, &tx) == GRAPHC_OK && graphc_prepare_run(s, 0) == GRAPHC_OK);
    CHECK(cuda->updates > updates && cuda->replays == replays);
    CHECK(graphc_output(s, 0, &out) == GRAPHC_OK && out.shape[0] == 4 && out.data == data);
    updates = cuda->updates;
    CHECK(graphc_run(s) == GRAPHC_OK && cuda->updates == updates && cuda->replays == replays + 1);
    CHECK(graphc_output(s, 0, &out) == GRAPHC_OK && out.shape[0] == 2);
    tx.shape[0] = 1;
    CHECK(graphc_bind_input(s, 0, &tx) == GRAPHC_OK && graphc_prepare_run(s, 0) == GRAPHC_OK);
    tx.shape[0] = 3;
    updates = cuda->updates;
    CHECK(graphc_bind_input(s, 0, &tx) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK);
    CHECK(cuda->updates > updates && cuda->replays == replays + 2 && cuda->launches == launches);
    CHECK(graphc_output(s, 0, &out) == GRAPHC_OK && out.shape[0] == 3);
}

static void check_variant(graphc_session *s) {
    int encoded = cuda->encoded;
    if (!run(s, 64, 0)) return;
    CHECK_EQ_I(cuda->encoded - encoded, 2);
    CHECK(nseen == 3 && strcmp(seen[1].launch.name, "sample_wide") == 0);
    const FakeMap *m = &cuda->map;
    CHECK(m->type == 11 && m->rank == 4 && m->channels == 4 && m->pixels == 64 &&
          m->lower[0] == -1);
    CHECK(m->upper[1] == -2 && m->step[1] == 2 && m->size[3] == 64 && m->swizzle == 0);
    CHECK(run(s, 31, 0) && nseen && strcmp(seen[1].launch.name, "sample_relu") == 0);
}

/* Launched, or changed in a recording. */
static bool was_launched(const char *name) {
    for (int i = 0; i < nseen; i++)
        if (strcmp(seen[i].launch.name, name) == 0) return true;
    return false;
}

/* Another variant than the one for these sizes, and back. Its time is that of its blocks, and of no
 * run before it. */
static void check_tried(graphc_session *s) {
    double seconds = 0, more = 0;
    uint32_t step = 1;
    CHECK(run(s, 31, 0) && !was_launched("sample_wide"));
    while (!s->res->steps[step].nvariants) step++;
    tune_try(s, step, 1);
    CHECK(run(s, 31, 0) && was_launched("sample_wide"));
    CHECK(tune_keep(s) == GRAPHC_OK && tune_time(s, &seconds) == GRAPHC_OK && seconds > 2e-6);
    CHECK(tune_time(s, &more) == GRAPHC_OK && fabs(more - seconds) < 1e-9);
    tune_try(s, step, UINT32_MAX);
    CHECK(run(s, 31, 0) && was_launched("sample_relu") && !was_launched("sample_wide"));
    CHECK(tune_processors(s) == 132);
}

/* No rows: kernels without blocks are left out, and their maps are not made. */
static void check_empty(graphc_session *s) {
    int encoded = cuda->encoded;
    CHECK(run(s, 0, 0) && nseen == 1 && cuda->encoded == encoded);
}

static void check_misaligned(graphc_session *s) {
    for (int i = 0; i < 4; i++) y[1 + i] = 7;
    if (!run(s, 5, 1)) return;
    CHECK(seen[0].param[0] % 16 == 0 && seen[0].param[0] != (uintptr_t)(x + 1));
    CHECK(seen[1].param[2] % 16 == 0 && seen[1].param[2] != (uintptr_t)(y + 1));
    CHECK(memcmp((void *)(uintptr_t)seen[0].param[0], x + 1, 5 * 16) == 0);
    CHECK(y[1] != 7); /* copied to where it belongs */
}

/* Held inputs are copied once after they are bound; a time is the device's. */
static void check_held(graphc_session *s) {
    static float host[8 * 4];
    double seconds = 0;
    graphc_tensor t = {
        .data = host, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 2, .shape = {8, 4}};
    host[0] = 1;
    nseen = 0;
    graphc_hold_inputs(s, true);
    CHECK(graphc_bind_output(s, 0, NULL) == GRAPHC_OK && graphc_bind_input(s, 0, &t) == GRAPHC_OK);
    CHECK(graphc_run(s) == GRAPHC_OK && nseen > 0);
    const float *there = (const float *)(uintptr_t)seen[0].param[0];
    host[0] = 2;
    CHECK(graphc_run_timed(s, 3, &seconds) == GRAPHC_OK && seconds > 0 && there[0] == 1);
    CHECK(graphc_bind_input(s, 0, &t) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK && there[0] == 2);
    host[0] = 3;
    graphc_hold_inputs(s, false);
    CHECK(graphc_run(s) == GRAPHC_OK && there[0] == 3);
    CHECK(graphc_run_timed(s, 0, &seconds) == GRAPHC_USAGE);
}

/* On a stream that its caller records, launches go into that recording. */
static void check_captured(const graphc_plan *p) {
    int stream;
    graphc_session *s = fake_cuda_session(p, &stream);
    if (!s) return;
    for (int i = 0; i < 3; i++) CHECK(run(s, 4, 0));
    int replays = cuda->replays;
    cuda->capturing = 1;
    for (int i = 0; i < 3; i++) CHECK(run(s, 4, 0) && nseen == 3);
    CHECK_EQ_I(cuda->replays, replays);
    cuda->capturing = 0;
    CHECK(run(s, 4, 0) && cuda->replays == replays + 1);
    graphc_session_destroy(s);
}

static void waiting_facts(CodeResult *gpu, ExprPool *p, Expr batch, Arena *a) {
    sample_launch_facts(gpu, p, batch, a);
    gpu->kernels[1].waits_first = gpu->kernels[3].waits_first = true;
}

/* One block has all of three rows to do. */
static void crowding_facts(CodeResult *gpu, ExprPool *p, Expr batch, Arena *a) {
    waiting_facts(gpu, p, batch, a);
    gpu->kernels[1].grid[0] = expr_const(p, 1);
}

/* Blocks that have much to do where rows are MANY, of 132 that could run. */
enum { MANY = 300, NEARLY_ALL = 126, LESS = 120 };

static void dense_facts(CodeResult *gpu, ExprPool *p, Expr batch, Arena *a) {
    waiting_facts(gpu, p, batch, a);
    gpu->kernels[1].grid[0] = expr_const(p, NEARLY_ALL);
}

/* Each takes a multiprocessor's shared memory: no other fits beside it. */
static void alone_facts(CodeResult *gpu, ExprPool *p, Expr batch, Arena *a) {
    dense_facts(gpu, p, batch, a);
    gpu->kernels[1].shared_bytes = 120 << 10;
}

static void sparse_facts(CodeResult *gpu, ExprPool *p, Expr batch, Arena *a) {
    alone_facts(gpu, p, batch, a);
    gpu->kernels[1].grid[0] = expr_const(p, LESS);
}

/* The first kernel may overlap with its caller's work where all kernels wait before they read, also
 * those behind it, which may start before that work has ended, too; not with copies of the run, and
 * not with few blocks that have much to do, which would crowd together. */
static void check_overlap(SampleEdit *facts, int64_t rows, bool overlaps) {
    Sample sample = sample_make_edited(true, false, facts);
    char why[512] = "";
    graphc_plan *p = NULL;
    bool ok =
        graphc_plan_load_memory(sample.bytes, sample.size, NULL, &p, why, sizeof why) == GRAPHC_OK;
    graphc_session *s = CHECK(ok) ? fake_cuda_session(p, NULL) : NULL;
    if (s && run(s, rows, 0) && CHECK(nseen == 3))
        CHECK(seen[0].launch.dependent == overlaps && !seen[2].launch.dependent);
    if (s && run(s, 5, 1) && CHECK(nseen == 3)) CHECK(!seen[0].launch.dependent);
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    arena_destroy(sample.arena);
}

/* Products of one row. */
static Graph *products(Arena *arena, int n) {
    static const float weights[2][256 * 256] = {{1, 2}, {3}};
    Graph *g = graph_create(arena, expr_pool_create(arena), diag_create(arena, NULL), "products");
    Expr side = expr_const(g->exprs, 256);
    Type row = {.dtype = DT_f32, .rank = 2, .dim = {expr_const(g->exprs, 1), side}};
    Type w = {.dtype = DT_f32, .rank = 2, .dim = {side, side}};
    Value v = build_input(g, "x", row);
    for (int i = 0; i < n; i++)
        v = build_dot(g, v,
                      build_const(g, w, (Constant){.data = weights[i], .bytes = sizeof weights[i]}),
                      DT_f32);
    build_output(g, "y", v);
    return g;
}

static void note_launch(const FakeLaunch *l) {
    seen[nseen++].launch = *l;
}

/* A kernel alone asks for nothing early. Behind another it asks for its weights, and no kernel of
 * that run overlaps with what its caller does. */
static void check_alone(void) {
    const Target *const rows[] = {target_find("sm_90a", 6)};
    cuda->on_launch = note_launch;
    for (int n = 1; n <= 2; n++) {
        Arena *a = arena_create();
        graphc_plan *p = graph_plan_load_for(products(a, n), rows, 1, NULL);
        graphc_session *s = p ? fake_cuda_session(p, NULL) : NULL;
        graphc_tensor t = {
            .data = x, .device = GRAPHC_CUDA, .dtype = {2, 32, 1}, .rank = 2, .shape = {1, 256}};
        nseen = 0;
        if (s && CHECK(graphc_bind_input(s, 0, &t) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK &&
                       nseen == n))
            CHECK(seen[0].launch.dependent == (n == 1) && (n == 1 || seen[1].launch.dependent));
        graphc_session_destroy(s);
        graphc_plan_destroy(p);
        arena_destroy(a);
    }
    cuda->on_launch = on_launch;
}

/* What the driver does not change in place is an error of that run; the next one records anew. */
static void check_failed_change(graphc_session *s) {
    CHECK(run(s, 6, 0));
    cuda->fail = "cuGraphExecKernelNodeSetParams_v2";
    cuda->skip = 1;
    cuda->result = 1;
    graphc_tensor tx = {
        .data = x, .device = GRAPHC_CUDA, .dtype = {2, 32, 1}, .rank = 2, .shape = {7, 4}};
    graphc_tensor ty = tx;
    ty.data = y;
    CHECK(graphc_bind_input(s, 0, &tx) == GRAPHC_OK && graphc_bind_output(s, 0, &ty) == GRAPHC_OK);
    CHECK(graphc_run(s) == GRAPHC_RUNTIME);
    CHECK(strstr(graphc_session_error(s), "changing a recorded run"));
    cuda->fail = NULL;
    CHECK(run(s, 7, 0));
}

/* w += g in place: its memory lies on the device, starts as the plan says and stays where it is.
 * The driver runs no kernel, so the hook does what this one would. */
static float *state_memory;
static int adds;
static void add_one(const FakeLaunch *l) {
    const float *before = state_memory;
    memcpy(&state_memory, l->params[0], sizeof state_memory);
    CHECK(adds++ == 0 || before == state_memory);
    for (int i = 0; i < 8; i++) state_memory[i] += 1;
}

static Graph *counter(Arena *a, const float *start) {
    Graph *g = graph_create(a, expr_pool_create(a), diag_create(a, NULL), "counter");
    Type t = {.dtype = DT_f32, .rank = 1, .dim = {expr_const(g->exprs, 8)}};
    Value w = build_state(g, "w", t, (Constant){.data = start, .bytes = 32});
    build_write(g, w, build_binary_f(g, OP_add, w, 1));
    return g;
}

static void check_states(void) {
    static const float start[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float host[8];
    Arena *a = arena_create();
    graphc_plan *p = graph_plan_load(counter(a, start), PLAN_cuda, NULL);
    graphc_session *s = p ? fake_cuda_session(p, NULL) : NULL;
    graphc_tensor t = {
        .data = host, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 1, .shape = {8}};
    int replays = cuda->replays;
    cuda->on_launch = add_one;
    for (int k = 0; s && k < 3; k++) {
        CHECK(graphc_state_read(s, 0, &t) == GRAPHC_OK && host[7] == 8 + (k > 1 ? 1 : (float)k));
        CHECK(graphc_run(s) == GRAPHC_OK);
        if (k == 1) state_memory[7] -= 1; /* recorded, not run: undone */
    }
    CHECK(adds == 2 && cuda->replays > replays);
    for (int i = 0; i < 8; i++) host[i] = (float)-i;
    CHECK(s && graphc_state_write(s, 0, &t) == GRAPHC_OK && state_memory[7] == -7);
    CHECK(s && graphc_prepared_save(s, "nowhere/x") == GRAPHC_UNSUPPORTED);
    cuda->on_launch = on_launch;
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    arena_destroy(a);
}

static void check_ranks(void) {
    CHECK(cuda_arch_rank("sm_90a", 9, 0) > cuda_arch_rank("sm_90", 9, 0));
    CHECK(cuda_arch_rank("sm_90", 9, 0) > cuda_arch_rank("sm_80", 9, 0));
    CHECK_EQ_I(cuda_arch_rank("sm_90a", 10, 0), 0);
    CHECK_EQ_I(cuda_arch_rank("sm_90", 8, 9), 0);
    CHECK(cuda_arch_rank("sm_90", 12, 0) > 0);
    CHECK_EQ_I(cuda_arch_rank("cpu", 9, 0), 0);
    CHECK_EQ_I(cuda_arch_rank("sm_", 9, 0), 0);
}

/* A contraction, which has other structures on either architecture. */
static Graph *product(Arena *arena) {
    Graph *g = graph_create(arena, expr_pool_create(arena), diag_create(arena, NULL), "product");
    Expr rows = expr_const(g->exprs, 128), inner = expr_const(g->exprs, 64);
    Value a = build_input(g, "a", (Type){.dtype = DT_f16, .rank = 2, .dim = {rows, inner}});
    Value b = build_input(g, "b", (Type){.dtype = DT_f16, .rank = 2, .dim = {inner, rows}});
    build_output(g, "y", build_unary(g, OP_exp, build_dot(g, a, b, DT_f32)));
    return g;
}

static void runs_product(graphc_session *s) {
    graphc_tensor t = {
        .data = x, .device = GRAPHC_CUDA, .dtype = {2, 16, 1}, .rank = 2, .shape = {128, 64}};
    CHECK(graphc_bind_input(s, 0, &t) == GRAPHC_OK);
    t.shape[0] = 64, t.shape[1] = 128;
    bool ok = graphc_bind_input(s, 1, &t) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK;
    if (!CHECK(ok)) fprintf(stderr, "    %s\n", graphc_session_error(s));
}

/* A plan with code for two architectures runs the one that the GPU is of, or nearest to: that code
 * is what the driver is given. */
static void check_choice(void) {
    static const char *const want[] = {[8] = "sm_80", [9] = "sm_90a", [10] = "sm_80"};
    const Target *const rows[] = {target_find("sm_90a", 6), target_find("sm_80", 5)};
    Arena *a = arena_create();
    graphc_plan *p = graph_plan_load_for(product(a), rows, 2, NULL);
    if (!p) return;
    cuda->on_launch = NULL;
    for (cuda->major = 8; cuda->major <= 10; cuda->major++) {
        graphc_session *s = fake_cuda_session(p, NULL);
        if (s) runs_product(s);
        if (s) CHECK_STR(plan_str(&p->plan, s->res->target->name), want[cuda->major]);
        const char *of = arena_printf(a, ".target %s\n", want[cuda->major]);
        CHECK(strstr(cuda->image, of) && strstr(cuda->image, ".entry"));
        CHECK((cuda->major == 9) == (strstr(cuda->image, "wgmma") != NULL));
        graphc_session_destroy(s);
    }
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    o.device = GRAPHC_CUDA;
    graphc_session *s = NULL;
    char why[256] = "";
    cuda->major = 7;
    CHECK(graphc_session_create(p, &o, &s, why, sizeof why) == GRAPHC_UNSUPPORTED);
    CHECK(strstr(why, "which this GPU does not run"));
    cuda->major = 9;
    cuda->on_launch = on_launch;
    graphc_plan_destroy(p);
    arena_destroy(a);
}

TEST_MAIN {
    check_ranks();
    setenv("GRAPHC_PTXAS", "none", 1); /* plans hold PTX, which can be read */
    open_fake();
    for (int i = 0; i < 4 * 1024; i++) x[i] = (float)i;
    char why[512] = "";
    graphc_plan *p = NULL;
    Sample sample = sample_make_edited(true, false, sample_launch_facts);
    if (!CHECK(sample.bytes && graphc_plan_load_memory(sample.bytes, sample.size, NULL, &p, why,
                                                       sizeof why) == GRAPHC_OK))
        exit(1);
    graphc_session *s = fake_cuda_session(p, NULL);
    if (s) {
        check_first_run(s);
        check_growing(s);
        check_prepared(s);
        check_variant(s);
        check_tried(s);
        check_empty(s);
        check_misaligned(s);
        check_failed_change(s);
        check_held(s);
    }
    graphc_session_destroy(s);
    check_captured(p);
    check_overlap(waiting_facts, 3, true);
    check_overlap(crowding_facts, 3, false);
    check_overlap(dense_facts, MANY, false);
    check_overlap(alone_facts, MANY, true);
    check_overlap(sparse_facts, MANY, false);
    check_alone();
    check_choice();
    check_states();
    CHECK_EQ_I(cuda->live, 0);
    graphc_plan_destroy(p);
    arena_destroy(sample.arena);
}
