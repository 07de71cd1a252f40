/* A lean session: which prepared buffers are in memory after each step, counted in pages; results
 * are those of any other session, run after run, and after runs that failed.
 *
 *   y = 0; y += P0; y += P1; for (i = 0; i < batch; i++) y += i % 2 ? P2 : P3; y += P1;
 *   if (never) y += P4 */
#include "tests/unit/allocations.h"
#include "tests/unit/runtime/plan_sample.h"
#include "runtime/graphc.h"
#include "runtime/watch.h"
#include "tests/unit/test.h"
#include <sys/mman.h>
#include <unistd.h>

enum { PARTS = 5, PART = 1 << 16, FIRST = PARTS + 1 }; /* i64 elements of each; the run's step 0 */

/* w, out: of a temporary that a prepare step before it made, what the number d[0] makes of it. */
IN_IMAGE static void lean_fill(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                               void *scratch) {
    const int64_t *from = b[0];
    int64_t *to = b[1];
    (void)lo, (void)hi, (void)scratch;
    for (int64_t i = 0; i < PART; i++) to[i] = from[i % 4] * d[0] + i % 3;
}
IN_IMAGE static void lean_start(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                                void *scratch) {
    (void)lo, (void)hi, (void)scratch;
    *(int64_t *)b[0] = 0;
    *(uint8_t *)b[1] = (uint8_t)d[0];
}
IN_IMAGE static void lean_odd(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                              void *scratch) {
    (void)lo, (void)hi, (void)scratch;
    *(uint8_t *)b[0] = (uint8_t)(d[0] & 1);
}
IN_IMAGE static void lean_add(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                              void *scratch) {
    const int64_t *from = b[0];
    (void)d, (void)lo, (void)hi, (void)scratch;
    for (int64_t i = 0; i < PART; i++) *(int64_t *)b[1] += from[i] * (i % 7);
}

static const int64_t seeds[4] = {3, -1, 4, 1};

typedef struct Parts {
    Schedule *s;
    CodeResult code;
    Arena *a;
    uint32_t p[PARTS], y;
} Parts;

static void control(Parts *m, StepKind kind, uint32_t match, uint32_t cond) {
    SStep st = {.kind = kind, .match = FIRST + match, .cond_buf = cond};
    vec_push(m->a, &m->s->steps, st);
}

static void add(Parts *m, int part) {
    const Expr one = expr_const(m->s->exprs, 1);
    sample_step(m->s, &m->code, m->a, sample_kernel(m->a, "poi_add", 2, 2),
                (uint32_t[]){m->p[part], m->y}, lean_add, one, one, false);
}

/* A temporary of prepare steps alone stands between the constant and all parts. The last that runs
 * read is the first in the plan. */
static void prepare(Parts *m, uint32_t constant) {
    ExprPool *p = m->s->exprs;
    const Expr one = expr_const(p, 1), part = expr_const(p, PART);
    const uint32_t t = sample_buffer(m->s, m->a, BUF_prepared, DT_i64, part, 0, 0);
    sample_step(m->s, &m->code, m->a, sample_kernel(m->a, "poi_fill", 2, 2),
                (uint32_t[]){constant, t}, lean_fill, one, one, true);
    for (int i = PARTS; i-- > 0;) {
        m->p[i] = sample_buffer(m->s, m->a, BUF_prepared, DT_i64, part, 0, 0);
        sample_step(m->s, &m->code, m->a, sample_kernel(m->a, "poi_fill", 2, 2),
                    (uint32_t[]){t, m->p[i]}, lean_fill, one, expr_const(p, i + 2), true);
    }
}

static void steps(Parts *m, Expr batch, Expr iter) {
    ExprPool *p = m->s->exprs;
    const Expr one = expr_const(p, 1);
    const uint32_t odd = sample_buffer(m->s, m->a, BUF_temp, DT_bool, one, 0, 0),
                   never = sample_buffer(m->s, m->a, BUF_temp, DT_bool, one, 0, 0);
    sample_step(m->s, &m->code, m->a, sample_kernel(m->a, "poi_start", 2, 3),
                (uint32_t[]){m->y, never}, lean_start, one, expr_const(p, 0), false);
    add(m, 0);                          /* 1 */
    add(m, 1);                          /* 2 */
    control(m, STEP_loop_begin, 10, 0); /* 3 */
    expr_is_sym(p, iter, &m->s->steps.v[FIRST + 3].iter);
    m->s->steps.v[FIRST + 3].trip = batch;
    sample_step(m->s, &m->code, m->a, sample_kernel(m->a, "poi_odd", 1, 1), &odd, lean_odd, one,
                iter, false);                 /* 4 */
    control(m, STEP_if_begin, 7, odd + 1);    /* 5 */
    add(m, 2);                                /* 6 */
    control(m, STEP_if_else, 9, 0);           /* 7 */
    add(m, 3);                                /* 8 */
    control(m, STEP_if_end, 7, 0);            /* 9 */
    control(m, STEP_loop_end, 3, 0);          /* 10 */
    add(m, 1);                                /* 11 */
    control(m, STEP_if_begin, 14, never + 1); /* 12 */
    add(m, 4);                                /* 13 */
    control(m, STEP_if_end, 12, 0);           /* 14 */
}

/* After a step of the run, which parts are there: by number from 1. */
static const int there[15][PARTS] = {
    [0] = {0},        [1] = {1},       [2] = {2},       [3] = {2, 3, 4}, [4] = {2, 3, 4},
    [5] = {2, 3, 4},  [6] = {2, 3, 4}, [7] = {2, 3, 4}, [8] = {2, 3, 4}, [9] = {2, 3, 4},
    [10] = {2, 3, 4}, [11] = {2},      [12] = {5},      [13] = {5},      [14] = {5},
};

static Sample make(Parts *m) {
    Sample out = {.arena = arena_create()};
    Arena *a = out.arena;
    ExprPool *p = expr_pool_create(a);
    DiagSink *d = diag_create(a, NULL);
    Graph *g = graph_create(a, p, d, "lean");
    SymInfo batch = {.name = "batch", .kind = SYM_DIM, .lo = 0, .hi = 1 << 20};
    SymInfo iter = {.name = "i", .kind = SYM_ITER, .lo = 0, .hi = INT64_MAX};
    Expr eb = expr_sym_new(p, batch), ei = expr_sym_new(p, iter), one = expr_const(p, 1);
    build_input(g, "x", (Type){.dtype = DT_f32, .rank = 1, .dim = {eb}});
    Constant c = {.data = seeds, .bytes = sizeof seeds, .name = "w"};
    Value w = build_const(g, (Type){.dtype = DT_i64, .rank = 1, .dim = {expr_const(p, 4)}}, c);
    IoInfo y = {.name = "y", .type = {.dtype = DT_i64}};
    vec_push(a, &g->outputs, y);
    *m = (Parts){.s = ARENA_NEW(a, Schedule), .a = a};
    m->code = (CodeResult){.kernels = ARENA_ARRAY(a, CodeKernel, 32)};
    m->s->graph = g;
    m->s->exprs = p;
    m->y = sample_buffer(m->s, a, BUF_output, DT_i64, one, 0, 0);
    prepare(m, sample_buffer(m->s, a, BUF_const, DT_i64, expr_const(p, 4), 0, w));
    steps(m, eb, ei);
    sample_build(m->s, &m->code, g, d, &out);
    CHECK(out.bytes != NULL);
    return out;
}

/* ---- Runs ---- */

typedef struct Seen {
    const Parts *m;
    bool lean;
    uint32_t fail_behind; /* a step of the run; UINT32_MAX: none */
    uint64_t most;        /* bytes that were there at once */
} Seen;

static uint64_t resident(const void *p, uint64_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)p / page * page;
    unsigned char in[PART * 8 / 4096 + 2];
    const size_t n = ((uintptr_t)p + bytes - at + page - 1) / page;
    uint64_t sum = 0;
    if (!CHECK(n <= sizeof in && mincore((void *)at, n * page, in) == 0)) return 0;
    for (size_t i = 0; i < n; i++) sum += in[i] & 1 ? page : 0;
    return sum;
}

static graphc_status look(void *ctx, graphc_session *s, uint32_t step, uint32_t next) {
    Seen *seen = ctx;
    uint64_t sum = 0;
    const uint64_t whole = PART * sizeof(int64_t);
    for (int i = 0; i < PARTS; i++) {
        const uint64_t n = resident(watch_host(s, seen->m->p[i]), whole);
        uint32_t from, until;
        bool want = !seen->lean;
        for (int k = 0; k < PARTS; k++) want |= there[step - FIRST][k] == i + 1;
        sum += n;
        /* Its first and last page may be a neighbour's, too. */
        if (!CHECK(want ? n >= whole : n <= 2 * 4096))
            fprintf(stderr, "    behind step %u of part %d %d bytes\n", step - FIRST, i, (int)n);
        watch_prepared(s, seen->m->p[i], &from, &until);
        CHECK(seen->lean ? !want || (from <= step && step <= until) : until == UINT32_MAX);
    }
    (void)next;
    if (sum > seen->most) seen->most = sum;
    return step == seen->fail_behind ? GRAPHC_RUNTIME : GRAPHC_OK;
}

static int64_t run(graphc_session *s, int64_t batch) {
    float x[8] = {0};
    graphc_tensor y, t = {.data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 1};
    t.shape[0] = batch;
    CHECK_EQ_I(graphc_bind_input(s, 0, &t), GRAPHC_OK);
    CHECK_EQ_I(graphc_run(s), GRAPHC_OK);
    return CHECK(graphc_output(s, 0, &y) == GRAPHC_OK) ? *(int64_t *)y.data : -1;
}

static graphc_session *session(const graphc_plan *p, uint32_t lean) {
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    char why[256];
    o.lean = lean;
    o.threads = 2;
    if (!CHECK(graphc_session_create(p, &o, &s, why, sizeof why) == GRAPHC_OK))
        fprintf(stderr, "    %s\n", why);
    return s;
}

static void test_same(const graphc_plan *p, const Parts *m) {
    graphc_session *plain = session(p, 0), *lean = session(p, 1), *other = session(p, 1);
    Seen a = {m, false, UINT32_MAX, 0}, b = {m, true, UINT32_MAX, 0};
    watch_steps(plain, look, &a);
    watch_steps(lean, look, &b);
    static const int64_t batches[] = {3, 0, 1, 4};
    for (int i = 0; i < 4; i++) {
        const int64_t want = run(plain, batches[i]);
        CHECK(run(lean, batches[i]) == want);
        CHECK(run(other, batches[i]) == want);
        b.fail_behind = FIRST + 8; /* inside of the loop */
        if (batches[i]) CHECK_EQ_I(graphc_run(lean), GRAPHC_RUNTIME);
        b.fail_behind = UINT32_MAX;
        CHECK(run(lean, batches[i]) == want);
    }
    const uint64_t part = PART * sizeof(int64_t);
    CHECK(a.most >= PARTS * part);
    CHECK(b.most >= 3 * part && b.most < 3 * part + PARTS * 2 * 4096);
    CHECK_EQ_I(graphc_prepared_save(lean, "/nowhere/lean.plan"), GRAPHC_USAGE);
    CHECK(strstr(graphc_session_error(lean), "lean"));
    graphc_session_destroy(plain);
    graphc_session_destroy(lean);
    graphc_session_destroy(other);
}

#ifdef COUNTS_ALLOCATIONS
/* Each allocation fails in turn: a message, and nothing is left behind. */
static void test_no_memory(const Sample *sample, int64_t want) {
    float x[2] = {0};
    char why[256];
    bool done = false;
    for (long n = 0; !done && n < 1000; n++) {
        graphc_plan *p = NULL;
        graphc_session *s = NULL;
        graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
        graphc_tensor t = {
            .data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 1, .shape = {2}};
        long before = live;
        o.lean = o.threads = 1;
        fail_at = n;
        graphc_status st =
            graphc_plan_load_memory(sample->bytes, sample->size, NULL, &p, why, sizeof why);
        if (st == GRAPHC_OK) st = graphc_session_create(p, &o, &s, why, sizeof why);
        if (st == GRAPHC_OK) st = graphc_bind_input(s, 0, &t);
        if (st == GRAPHC_OK) st = graphc_run(s);
        done = fail_at >= 0;
        fail_at = -1;
        CHECK(st == (done ? GRAPHC_OK : GRAPHC_NO_MEMORY));
        if (s && !done) CHECK(run(s, 2) == want); /* the session is still good */
        graphc_session_destroy(s);
        graphc_plan_destroy(p);
        CHECK_EQ_I(live, before);
    }
    CHECK(done);
}
#endif

TEST_MAIN {
    char why[256] = "";
    Parts m;
    Sample sample = make(&m);
    graphc_plan *p = NULL;
    (void)sample_make;
    if (sample.bytes && CHECK(graphc_plan_load_memory(sample.bytes, sample.size, NULL, &p, why,
                                                      sizeof why) == GRAPHC_OK)) {
        test_same(p, &m);
#ifdef COUNTS_ALLOCATIONS
        graphc_session *s = session(p, 0);
        const int64_t want = run(s, 2);
        graphc_session_destroy(s);
        test_no_memory(&sample, want);
#endif
    }
    graphc_plan_destroy(p);
    arena_destroy(sample.arena);
}
