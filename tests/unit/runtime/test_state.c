/* States: what a session keeps from run to run. Plans are made from graphs as the driver makes
 * them. */
#include "graph/eval/eval_scalar.h"
#include "runtime/base/file.h"
#include "runtime/base/map.h"
#include "runtime/plan.h"
#include "runtime/watch.h"
#include "tests/fuzz/rehash.h"
#include "tests/unit/graph_plan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 37, COLUMNS = 91, N = ROWS * COLUMNS };

typedef struct Rig {
    Arena *a;
    Graph *g;
} Rig;

static Rig rig(const char *name) {
    Arena *a = arena_create();
    return (Rig){a, graph_create(a, expr_pool_create(a), diag_create(a, NULL), name)};
}

static Type matrix(Graph *g) {
    return (Type){.dtype = DT_f32,
                  .rank = 2,
                  .dim = {expr_const(g->exprs, ROWS), expr_const(g->exprs, COLUMNS)}};
}

static void fill(float *x, uint64_t seed) {
    for (int i = 0; i < N; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((int64_t)(seed >> 40) % 2000 - 1000) / 777;
    }
}

static graphc_tensor tensor(float *x) {
    return (graphc_tensor){
        .data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 2, .shape = {ROWS, COLUMNS}};
}

static graphc_tensor scalar(float *x) {
    return (graphc_tensor){.data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}};
}

static graphc_session *session(const graphc_plan *p, uint32_t threads) {
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    char why[256] = "";
    o.threads = threads;
    if (p && !CHECK(graphc_session_create(p, &o, &s, why, sizeof why) == GRAPHC_OK))
        fprintf(stderr, "    %s\n", why);
    return s;
}

static float first_of_state(graphc_session *s, uint32_t i) {
    static float x[N];
    graphc_tensor t = tensor(x);
    CHECK_EQ_I(graphc_state_read(s, i, &t), GRAPHC_OK);
    return x[0];
}

/* --- AdamW -------------------------------------------------------------------------------- */

static float start[N];

/* w, m, v as states, or as inputs and outputs: the same arithmetic. */
static void adam(Graph *g, bool states) {
    static const char *const names[3] = {"w", "m", "v"};
    Type t = matrix(g);
    Value old[3], next[3];
    Value grad = build_input(g, "grad", t), lr = build_input(g, "lr", (Type){.dtype = DT_f32});
    for (int i = 0; i < 3; i++) {
        Constant c = {.data = start, .bytes = i ? 0 : sizeof start};
        old[i] = states ? build_state(g, names[i], t, c) : build_input(g, names[i], t);
    }
    next[1] = build_binary(g, OP_add, build_binary_f(g, OP_mul, old[1], 0.9),
                           build_binary_f(g, OP_mul, grad, 0.1));
    next[2] = build_binary(g, OP_add, build_binary_f(g, OP_mul, old[2], 0.999),
                           build_binary_f(g, OP_mul, build_binary(g, OP_mul, grad, grad), 0.001));
    Value root = build_binary_f(g, OP_add, build_unary(g, OP_sqrt, next[2]), 1e-8);
    Value step = build_binary(g, OP_add, build_binary(g, OP_div, next[1], root),
                              build_binary_f(g, OP_mul, old[0], 0.01));
    next[0] = build_binary(g, OP_sub, old[0], build_binary(g, OP_mul, step, lr));
    for (int i = 0; i < 3; i++)
        if (states)
            build_write(g, old[i], next[i]);
        else
            build_output(g, names[i], next[i]);
    if (states)
        build_output(
            g, "first",
            build_slice_axis(g, next[0], 0, expr_const(g->exprs, 0), expr_const(g->exprs, 1), 1));
}

/* The plain form: w, m and v go in and come out. */
static void run_plain(const graphc_plan *p, float w[3][N], int steps) {
    static float out[3][N], grad[N];
    graphc_session *s = session(p, 1);
    float lr = 0.01f;
    memcpy(w[0], start, sizeof start);
    memset(w[1], 0, 2 * sizeof w[1]);
    for (int k = 0; s && k < steps; k++) {
        fill(grad, (uint64_t)k);
        graphc_tensor tg = tensor(grad), tl = scalar(&lr);
        CHECK(graphc_bind_input(s, 0, &tg) == GRAPHC_OK);
        CHECK(graphc_bind_input(s, 1, &tl) == GRAPHC_OK);
        for (uint32_t i = 0; i < 3; i++) {
            graphc_tensor a = tensor(w[i]), b = tensor(out[i]);
            CHECK(graphc_bind_input(s, 2 + i, &a) == GRAPHC_OK);
            CHECK(graphc_bind_output(s, i, &b) == GRAPHC_OK);
        }
        CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
        memcpy(w, out, sizeof out);
    }
    graphc_session_destroy(s);
}

static void run_states(const graphc_plan *p, uint32_t threads, float w[3][N], int steps) {
    static float grad[N];
    graphc_session *s = session(p, threads);
    float lr = 0.01f;
    for (int k = 0; s && k < steps; k++) {
        fill(grad, (uint64_t)k);
        graphc_tensor tg = tensor(grad), tl = scalar(&lr);
        CHECK(graphc_bind_input(s, 0, &tg) == GRAPHC_OK);
        CHECK(graphc_bind_input(s, 1, &tl) == GRAPHC_OK);
        CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
    }
    for (uint32_t i = 0; s && i < 3; i++) {
        graphc_tensor t = tensor(w[i]);
        CHECK_EQ_I(graphc_state_read(s, i, &t), GRAPHC_OK);
    }
    graphc_session_destroy(s);
}

static void optimizer(void) {
    static float plain[3][N], one[3][N], three[3][N];
    Rig r = rig("adam");
    fill(start, 99);
    adam(r.g, true);
    graphc_plan *p = graph_plan_load(r.g, PLAN_cpu, NULL);
    arena_destroy(r.a);
    r = rig("plain");
    adam(r.g, false);
    graphc_plan *q = graph_plan_load(r.g, PLAN_cpu, NULL);
    arena_destroy(r.a);
    if (p && q) {
        CHECK_EQ_I(graphc_plan_states(p), 3);
        CHECK_EQ_I(graphc_plan_find_state(p, "m"), 1);
        CHECK_EQ_I(graphc_plan_find_state(p, "none"), -1);
        CHECK(strcmp(graphc_plan_state(p, 2).name, "v") == 0);
        CHECK(graphc_plan_state(p, 2).rank == 2 && !graphc_plan_state(p, 3).name);
        graphc_entry_info e = graphc_plan_entry(p, 0);
        CHECK(graphc_plan_entries(p) == 1 && strcmp(e.name, "run") == 0);
        CHECK(e.ninputs == 2 && e.noutputs == 1 && e.nstates == 3 && e.states[2] == 2);
        run_plain(q, plain, 3);
        run_states(p, 1, one, 3);
        run_states(p, 3, three, 3);
        CHECK(memcmp(plain, one, sizeof one) == 0);
        CHECK(memcmp(one, three, sizeof one) == 0);
        CHECK(memcmp(one[0], start, sizeof start) != 0);
    }
    graphc_plan_destroy(p);
    graphc_plan_destroy(q);
}

/* --- Entries -------------------------------------------------------------------------------- */

/* step: w += x.t * rate, loss; evaluate: loss alone; forget: w becomes zeros. The frozen weight is
 * prepared once for both that use it. */
static Graph *three_ways(Arena *a) {
    static float frozen[COLUMNS * 64];
    Graph *g = graph_create(a, expr_pool_create(a), diag_create(a, NULL), "ways");
    Type t = matrix(g), f = {.dtype = DT_f32, .rank = 2};
    f.dim[0] = t.dim[1];
    f.dim[1] = expr_const(g->exprs, 64);
    for (int i = 0; i < COLUMNS * 64; i++) frozen[i] = (float)(i % 13) / 16;
    Value x = build_input(g, "x", t), rate = build_input(g, "rate", (Type){.dtype = DT_f32});
    Value w = build_state(g, "w", t, (Constant){.data = start, .bytes = sizeof start});
    Value c = build_const(g, f, (Constant){.data = frozen, .bytes = sizeof frozen});
    Value y = build_matmul(g, build_binary(g, OP_mul, x, w), c, DT_f32);
    uint32_t step = build_entry(g, "step"), evaluate = build_entry(g, "evaluate");
    uint32_t forget = build_entry(g, "forget");
    build_in(g, step | evaluate);
    build_output(g, "loss", build_reduce(g, OP_reduce_sum, y, 3, false));
    build_in(g, step);
    build_write(g, w, build_binary(g, OP_add, w, build_binary(g, OP_mul, x, rate)));
    build_in(g, forget);
    build_write(g, w, build_full(g, build_scalar_f(g, DT_f32, 0), 2, t.dim));
    return g;
}

static void shares_prepared(Graph *g) {
    Schedule *s = NULL;
    uint32_t prepare = 0, constants = 0;
    if (!CHECK(schedule_build(g, &target_for(PLAN_cpu)->machine, FUSE_ALL, g->arena, &s) ==
               GRAPHC_OK))
        return;
    for (uint32_t i = 0; i < s->steps.n; i++) prepare += s->steps.v[i].prepare;
    for (uint32_t i = 0; i < s->buffers.n; i++)
        constants +=
            s->buffers.v[i].kind == BUF_const && s->buffers.v[i].first <= s->buffers.v[i].last;
    CHECK_EQ_I(s->ends.n, 3);
    CHECK_EQ_I(prepare, 1);
    CHECK_EQ_I(constants, 1);
}

static float loss_of(graphc_session *s) {
    graphc_tensor t;
    return CHECK(graphc_output(s, 0, &t) == GRAPHC_OK) ? *(float *)t.data : NAN;
}

static void entries(void) {
    static float x[N];
    float rate = 0.5f;
    Arena *a = arena_create();
    Graph *g = three_ways(a);
    shares_prepared(g);
    graphc_plan *p = graph_plan_load(g, PLAN_cpu, NULL);
    arena_destroy(a);
    if (!p) return;
    int32_t step = graphc_plan_find_entry(p, "step"),
            evaluate = graphc_plan_find_entry(p, "evaluate");
    int32_t forget = graphc_plan_find_entry(p, "forget");
    CHECK(step == 0 && evaluate == 1 && forget == 2 && graphc_plan_find_entry(p, "run") == -1);
    CHECK(graphc_plan_entry(p, 0).ninputs == 2 && graphc_plan_entry(p, 1).ninputs == 1);
    CHECK(graphc_plan_entry(p, 1).nstates == 0 && graphc_plan_entry(p, 2).noutputs == 0);
    graphc_session *s = session(p, 2);
    fill(x, 3);
    graphc_tensor tx = tensor(x), tr = scalar(&rate), out;
    CHECK_EQ_I(graphc_run_entry(s, 1), GRAPHC_USAGE); /* x is not bound */
    CHECK_EQ_I(graphc_bind_input(s, 0, &tx), GRAPHC_OK);
    CHECK_EQ_I(graphc_run_entry(s, 1), GRAPHC_OK); /* rate need not be */
    float before = loss_of(s);
    CHECK_EQ_I(graphc_run(s), GRAPHC_USAGE);
    CHECK(strstr(graphc_session_error(s), "\"rate\""));
    CHECK_EQ_I(graphc_bind_input(s, 1, &tr), GRAPHC_OK);
    CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
    CHECK(loss_of(s) == before); /* of w as it was */
    CHECK(first_of_state(s, 0) == start[0] + x[0] * 0.5f);
    CHECK_EQ_I(graphc_run_entry(s, 1), GRAPHC_OK);
    CHECK(loss_of(s) != before);
    CHECK_EQ_I(graphc_run_entry(s, 2), GRAPHC_OK);
    CHECK_EQ_I(graphc_output(s, 0, &out), GRAPHC_USAGE);
    CHECK(strstr(graphc_session_error(s), "\"forget\""));
    CHECK_EQ_I(graphc_run_entry(s, 1), GRAPHC_OK);
    CHECK(loss_of(s) == 0 && first_of_state(s, 0) == 0);
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
}

/* --- Random numbers ------------------------------------------------------------------------- */

/* u as a run's draw says, which is an input and counts on its own; the evaluator's numbers. */
static void draws(void) {
    Rig r = rig("draws");
    Type t = matrix(r.g), one = {.dtype = DT_i64};
    Value next = build_state(r.g, "next", one, (Constant){0});
    Value draw = build_input(r.g, "draw", one);
    build_output(r.g, "u", build_uniform_draw(r.g, DT_f32, 2, t.dim, 5, draw));
    build_output(r.g, "own", build_uniform_draw(r.g, DT_f32, 2, t.dim, 5, next));
    build_write(r.g, next, build_binary(r.g, OP_add, next, build_scalar_i(r.g, DT_i64, 1)));
    graphc_plan *p = graph_plan_load(r.g, PLAN_cpu, NULL);
    arena_destroy(r.a);
    graphc_session *s = session(p, 2);
    static const int64_t number[] = {0, 3, -1, 3};
    for (int64_t k = 0; s && k < 4; k++) {
        int64_t n = number[k];
        graphc_tensor in = {.data = &n, .device = GRAPHC_CPU, .dtype = {0, 64, 1}}, u, own;
        CHECK_EQ_I(graphc_bind_input(s, 0, &in), GRAPHC_OK);
        CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
        if (!CHECK(graphc_output(s, 0, &u) == GRAPHC_OK && graphc_output(s, 1, &own) == GRAPHC_OK))
            break;
        for (uint64_t i = 0; i < N; i += 37) {
            double want = eval_uniform(DT_f32, eval_draw_seed(5, n), i);
            double counted = eval_uniform(DT_f32, eval_draw_seed(5, k), i);
            CHECK(((float *)u.data)[i] == want && ((float *)own.data)[i] == counted);
        }
    }
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
}

/* --- States that grow ------------------------------------------------------------------------ */

enum { ROOM = 9 };

static Type rows(Graph *g, Expr n) {
    return (Type){
        .dtype = DT_f32, .rank = 3, .dim = {expr_const(g->exprs, 2), n, expr_const(g->exprs, 3)}};
}

/* past <- past, 2x (in place: nothing is copied); other <- -(other, x) (all of it anew); same <-
 * same + 1; y = sums of what past holds then. */
static Graph *growing(Arena *a) {
    Graph *g = graph_create(a, expr_pool_create(a), diag_create(a, NULL), "growing");
    SymInfo n = {.name = "n", .kind = SYM_DIM, .a = 0, .b = 1, .lo = 1, .hi = 1 << 20};
    SymInfo past = {.name = "past", .kind = SYM_DIM, .a = 1, .b = 1, .lo = 0, .hi = ROOM};
    Expr en = expr_sym_new(g->exprs, n), ep = expr_sym_new(g->exprs, past);
    Value x = build_input(g, "x", rows(g, en)), p = build_input(g, "past", rows(g, ep));
    Value o = build_input(g, "other", rows(g, ep)), same = build_input(g, "same", matrix(g));
    Value twice = build_binary_f(g, OP_mul, x, 2);
    Value present = build_concat(g, (Value[]){p, twice}, 2, 1);
    build_output(g, "y", build_reduce(g, OP_reduce_sum, present, 2, false));
    build_output(g, "present", present);
    build_output(g, "next", build_unary(g, OP_neg, build_concat(g, (Value[]){o, x}, 2, 1)));
    build_output(g, "more", build_binary_f(g, OP_add, same, 1));
    return g;
}

static void grow_once(graphc_session *s, float *x, int64_t n, graphc_status want) {
    graphc_tensor t = {
        .data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 3, .shape = {2, n, 3}};
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_OK);
    if (!CHECK(graphc_run(s) == want)) fprintf(stderr, "    %s\n", graphc_session_error(s));
}

/* Both caches hold what plain C gives for those sizes of x, each filled with its number from 1 on.
 */
static void check_grown(graphc_session *s, const int64_t *sizes, int count) {
    float got[2 * ROOM * 3], sums[2][3];
    int64_t total = 0, row = 0;
    graphc_tensor t, y;
    for (int i = 0; i < count; i++) total += sizes[i];
    CHECK(graphc_state_shape(s, 0, &t) == GRAPHC_OK && t.shape[1] == total);
    t.data = got;
    memset(sums, 0, sizeof sums);
    for (uint32_t k = 0; k < 2; k++) {
        CHECK_EQ_I(graphc_state_read(s, k, &t), GRAPHC_OK);
        row = 0;
        for (int i = 0; i < count; i++)
            for (int64_t r = 0; r < sizes[i]; r++, row++)
                for (int64_t e = 0; e < 6; e++) {
                    float v = (float)(i + 1), v2 = (count - i) % 2 ? -v : v;
                    float is = got[(e / 3 * total + row) * 3 + e % 3];
                    CHECK(is == (k ? v2 : 2 * v));
                    if (!k) sums[e / 3][e % 3] += is;
                }
    }
    CHECK(graphc_output(s, 0, &y) == GRAPHC_OK && memcmp(y.data, sums, sizeof sums) == 0);
}

static void grows(PlanDevice device) {
    static const int64_t sizes[] = {2, 1, 3, 1};
    float x[8 * 6], none;
    Arena *a = arena_create();
    Graph *g = growing(a);
    CHECK_EQ_I(graph_tie(g, "past", "present"), GRAPHC_OK);
    CHECK_EQ_I(graph_tie(g, "other", "next"), GRAPHC_OK);
    CHECK_EQ_I(graph_tie(g, "same", "more"), GRAPHC_OK);
    CHECK(g->inputs.n == 1 && g->outputs.n == 1 && g->states.n == 3);
    graphc_plan *p = graph_plan_load(g, device, NULL);
    arena_destroy(a);
    if (!p || device != PLAN_cpu) {
        graphc_plan_destroy(p);
        return;
    }
    graphc_session *s = session(p, 2);
    for (int round = 0; s && round < 2; round++) {
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < 48; k++) x[k] = (float)(i + 1);
            grow_once(s, x, sizes[i], GRAPHC_OK);
            check_grown(s, sizes, i + 1);
        }
        grow_once(s, x, 3, GRAPHC_INVALID); /* 7 are there, and room for 9 */
        CHECK(strstr(graphc_session_error(s), "\"past\" has room for 9"));
        graphc_tensor empty = {.data = &none,
                               .device = GRAPHC_CPU,
                               .dtype = {2, 32, 1},
                               .rank = 3,
                               .shape = {2, 0, 3}};
        CHECK_EQ_I(graphc_state_write(s, 0, &empty), GRAPHC_OK);
        grow_once(s, x, 1, GRAPHC_INVALID); /* they share a size */
        CHECK_EQ_I(graphc_state_write(s, 1, &empty), GRAPHC_OK);
        CHECK(first_of_state(s, 2) == (float)(4 * (round + 1)));
        empty.shape[1] = ROOM + 1;
        CHECK_EQ_I(graphc_state_write(s, 1, &empty), GRAPHC_INVALID);
    }
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
}

/* What cannot be one state is refused by name. */
static void ties(void) {
    static const struct {
        const char *input, *output, *why;
        int64_t lo, hi;
    } bad[] = {{"none", "present", "no such input", 0, 9},
               {"past", "none", "no such output", 0, 9},
               {"past", "y", "types differ", 0, 9},
               {"x", "present", "has to be allowed to be 0", 0, 9},
               {"past", "present", "allowed to be 0", 1, 9},
               {"past", "present", "--dim past=0..N", 0, INT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Arena *a = arena_create();
        Graph *g = growing(a);
        expr_sym_edit(g->exprs, 1)->lo = bad[i].lo;
        expr_sym_edit(g->exprs, 1)->hi = bad[i].hi;
        CHECK(graph_tie(g, bad[i].input, bad[i].output) != GRAPHC_OK);
        const char *text = diag_at(g->diags, diag_count(g->diags) - 1)->text;
        if (!CHECK(strstr(text, bad[i].why))) fprintf(stderr, "    %s\n", text);
        arena_destroy(a);
    }
}

/* --- Readers, writers, errors --------------------------------------------------------------- */

/* a and b change places; c counts; y = a + c as they were. */
static Rig swapping_graph(void) {
    Rig r = rig("swap");
    Type t = matrix(r.g);
    Constant init = {.data = start, .bytes = sizeof start};
    Value a = build_state(r.g, "a", t, init), b = build_state(r.g, "b", t, (Constant){0});
    Value c = build_state(r.g, "c", t, (Constant){0});
    build_write(r.g, a, b);
    build_write(r.g, b, a);
    build_write(r.g, c, build_binary_f(r.g, OP_add, c, 1));
    build_output(r.g, "y", build_binary(r.g, OP_add, a, c));
    return r;
}

static graphc_plan *swapping(void) {
    Rig r = swapping_graph();
    graphc_plan *p = graph_plan_load(r.g, PLAN_cpu, NULL);
    arena_destroy(r.a);
    return p;
}

static void readers_see_the_old(void) {
    graphc_plan *p = swapping();
    graphc_session *s = session(p, 2), *other = session(p, 1);
    for (int k = 0; s && other && k < 5; k++) {
        graphc_tensor y;
        CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
        if (!CHECK(graphc_output(s, 0, &y) == GRAPHC_OK)) break;
        float was = k % 2 ? 0 : start[0];
        CHECK(((float *)y.data)[0] == was + (float)k);
        CHECK(first_of_state(s, 0) == start[0] - was);
        CHECK(first_of_state(s, 2) == (float)(k + 1));
        CHECK(first_of_state(other, 2) == 0); /* each session has its own */
    }
    graphc_session_destroy(other);
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
}

static void statuses(void) {
    static float x[N];
    graphc_plan *p = swapping();
    graphc_session *s = session(p, 1);
    graphc_tensor t = tensor(x), bad[4] = {t, t, t, t};
    const graphc_status want[4] = {GRAPHC_INVALID, GRAPHC_INVALID, GRAPHC_USAGE, GRAPHC_USAGE};
    fill(x, 5);
    bad[0].shape[0]--;
    bad[1].dtype.bits = 64;
    bad[2].data = NULL;
    bad[3].device = GRAPHC_CUDA;
    for (int i = 0; s && i < 4; i++) {
        CHECK_EQ_I(graphc_state_write(s, 0, &bad[i]), want[i]);
        CHECK_EQ_I(graphc_state_read(s, 0, &bad[i]), want[i]);
        CHECK(strstr(graphc_session_error(s), "\"a\""));
    }
    CHECK_EQ_I(graphc_state_write(s, 3, &t), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_state_write(s, 0, NULL), GRAPHC_USAGE);
    CHECK(first_of_state(s, 0) == start[0]);
    CHECK_EQ_I(graphc_state_write(s, 0, &t), GRAPHC_OK);
    CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
    CHECK(first_of_state(s, 1) == x[0]);
    CHECK_EQ_I(graphc_run_entry(s, 1), GRAPHC_USAGE);
    CHECK(strstr(graphc_session_error(s), "1 entries"));
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
}

/* --- Weights of the model's file ------------------------------------------------------------ */

static void write_weights(const char *path, const float *x) {
    FILE *f = fopen(path, "wb");
    if (!CHECK(f != NULL)) return;
    fwrite(x, 4, N, f);
    fclose(f);
}

static void from_file(void) {
    char dir[] = "/tmp/graphc_state_XXXXXX", path[64], base[64], why[256] = "";
    static float other[N];
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    snprintf(path, sizeof path, "%s/w.bin", dir);
    snprintf(base, sizeof base, "%s/plan", dir);
    write_weights(path, start);
    Rig r = rig("file");
    vec_push(r.a, &r.g->files, "w.bin");
    Constant init = {
        .data = start, .bytes = sizeof start, .file = 1, .file_size = sizeof start, .name = "w"};
    Value w = build_state(r.g, "w", matrix(r.g), init);
    build_write(r.g, w, build_binary_f(r.g, OP_add, w, 1));
    graphc_plan *p = graph_plan_load(r.g, PLAN_cpu, base);
    graphc_session *s = session(p, 1);
    if (s) {
        CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
        CHECK(first_of_state(s, 0) == start[0] + 1);
    }
    graphc_session_destroy(s);
    memcpy(other, start, sizeof other);
    other[3] += 1;
    write_weights(path, other);
    CHECK(p && graphc_session_create(p, NULL, &s, why, sizeof why) == GRAPHC_INVALID);
    CHECK(strstr(why, "\"w\""));
    graphc_plan_destroy(p);
    arena_destroy(r.a);
    unlink(path);
    rmdir(dir);
}

/* --- Hostile plans ------------------------------------------------------------------------- */

/* Binds what there is to bind, runs twice, and reads what states hold. */
static bool runs_twice(graphc_session *s, const graphc_plan *p) {
    static float x[2 * 2 * 3], held[N + 2 * ROOM * 3];
    graphc_tensor t = {
        .data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 3, .shape = {2, 2, 3}};
    bool ok = !graphc_plan_inputs(p) || graphc_bind_input(s, 0, &t) == GRAPHC_OK;
    for (int k = 0; k < 2; k++) ok = graphc_run(s) == GRAPHC_OK && ok;
    for (uint32_t i = 0; i < graphc_plan_states(p); i++) {
        graphc_tensor is;
        ok = graphc_state_shape(s, i, &is) == GRAPHC_OK && ok;
        is.data = held;
        int64_t n = 1;
        for (int32_t d = 0; d < is.rank; d++) n *= is.shape[d];
        if (n >= 0 && n <= (int64_t)(sizeof held / 4))
            ok = graphc_state_read(s, i, &is) == GRAPHC_OK && ok;
    }
    return ok;
}

/* Is refused at one of the doors, or runs: sizes and lists that kernels rest on are checked. */
static bool runs(const uint8_t *bytes, size_t size) {
    graphc_plan *p = NULL;
    graphc_session *s = NULL;
    char why[256];
    bool ok = graphc_plan_load_memory(bytes, size, NULL, &p, why, sizeof why) == GRAPHC_OK &&
              graphc_session_create(p, NULL, &s, why, sizeof why) == GRAPHC_OK && runs_twice(s, p);
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    return ok;
}

static void hostile(Graph *g) {
    static const uint32_t values[] = {0, 1, 2, 3, 5, 12, 13, 33, 64, 0x7fffffff, 0xffffffff};
    static const PlanSectionId sections[] = {PLAN_SEC_states, PLAN_SEC_entries, PLAN_SEC_symbols};
    const Target *cpu = target_for(PLAN_cpu);
    size_t size = 0;
    uint8_t *good = graph_plan_bytes(g, &cpu, 1, &size), *bytes = malloc(size);
    uint32_t ran = 0, refused = 0;
    for (int i = 0; good && bytes && i < 3; i++) {
        PlanSection sec =
            ((const PlanSection *)(const void *)(good + sizeof(PlanHeader)))[sections[i]];
        for (uint64_t at = 0; at < sec.size; at += 4)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                memcpy(bytes, good, size);
                memcpy(bytes + sec.offset + at, &values[v], 4);
                rehash(bytes);
                bool ok = runs(bytes, size);
                ran += ok;
                refused += !ok;
            }
    }
    CHECK(ran > 20 && refused > 100);
    free(bytes);
}

static void hostile_plans(void) {
    Rig r = swapping_graph();
    hostile(r.g);
    arena_destroy(r.a);
    Arena *a = arena_create();
    Graph *g = growing(a);
    CHECK(graph_tie(g, "past", "present") == GRAPHC_OK &&
          graph_tie(g, "other", "next") == GRAPHC_OK);
    CHECK(graph_tie(g, "same", "more") == GRAPHC_OK);
    hostile(g);
    arena_destroy(a);
}

/* --- Files --------------------------------------------------------------------------------- */

/* The file with one byte changed or the last ones gone is refused, and nothing has changed. */
static void damaged(graphc_session *s, const char *path, const char *bad) {
    FileMap m;
    char why[256];
    if (!CHECK(file_map(path, &m, why) == GRAPHC_OK)) return;
    float before = first_of_state(s, 0);
    for (uint64_t k = 0; k < 24; k++) {
        FILE *f = fopen(bad, "wb");
        if (!CHECK(f != NULL)) break;
        uint64_t cut = k % 4 == 3 ? 1 + k : 0, flip = k * (m.size - 1) / 23;
        for (uint64_t i = 0; i < m.size - cut; i++) fputc(m.data[i] ^ (!cut && i == flip), f);
        fclose(f);
        graphc_status st = graphc_states_load(s, bad);
        CHECK(st == GRAPHC_INVALID || st == GRAPHC_UNSUPPORTED);
        CHECK(strstr(graphc_session_error(s), bad));
        CHECK(first_of_state(s, 0) == before);
    }
    file_unmap(&m);
}

static void files(void) {
    char dir[] = "/tmp/graphc_state_XXXXXX", path[64], bad[64];
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    snprintf(bad, sizeof bad, "%s/b.safetensors", dir);
    graphc_plan *p = swapping();
    graphc_session *s = session(p, 1), *t = session(p, 2);
    for (int k = 0; s && k < 3; k++) CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
    CHECK_EQ_I(graphc_states_save(s, path), GRAPHC_OK);
    CHECK_EQ_I(graphc_states_load(t, path), GRAPHC_OK);
    for (uint32_t i = 0; t && i < 3; i++) CHECK(first_of_state(s, i) == first_of_state(t, i));
    CHECK(t && first_of_state(t, 2) == 3);
    if (t) damaged(t, path, bad);
    CHECK_EQ_I(graphc_states_load(t, NULL), GRAPHC_USAGE);
    CHECK_EQ_I(graphc_states_load(t, dir), GRAPHC_IO);
    char nowhere[80];
    snprintf(nowhere, sizeof nowhere, "%s/none/x", dir);
    CHECK_EQ_I(graphc_states_save(t, nowhere), GRAPHC_IO);
    CHECK(strstr(graphc_session_error(t), nowhere));
    graphc_session_destroy(t);
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    Rig r = rig("other"); /* other states */
    Value a = build_state(r.g, "a", matrix(r.g), (Constant){0});
    build_write(r.g, a, build_binary_f(r.g, OP_add, a, 1));
    p = graph_plan_load(r.g, PLAN_cpu, NULL);
    arena_destroy(r.a);
    s = session(p, 1);
    CHECK_EQ_I(graphc_states_load(s, path), GRAPHC_INVALID);
    CHECK(s && strstr(graphc_session_error(s), "3 tensors"));
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    unlink(path);
    unlink(bad);
    rmdir(dir);
}

/* However often a run is timed: states are as they were when they were kept, and then one run on */
static void timed(void) {
    Rig r = rig("counter");
    Value w = build_state(r.g, "w", matrix(r.g), (Constant){.data = start, .bytes = sizeof start});
    build_write(r.g, w, build_binary_f(r.g, OP_add, w, 1));
    graphc_plan *p = graph_plan_load(r.g, PLAN_cpu, NULL);
    arena_destroy(r.a);
    graphc_session *s = session(p, 1);
    double seconds = 0;
    if (s) {
        CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
        float kept = first_of_state(s, 0);
        CHECK_EQ_I(tune_keep(s), GRAPHC_OK);
        for (int i = 0; i < 3; i++) CHECK(tune_time(s, &seconds) == GRAPHC_OK && seconds > 0);
        CHECK(first_of_state(s, 0) == kept + 1);
    }
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
}

TEST_MAIN {
    hostile_plans();
    timed();
    optimizer();
    readers_see_the_old();
    entries();
    draws();
    grows(PLAN_cpu);
    grows(PLAN_cuda);
    ties();
    statuses();
    from_file();
    files();
}
