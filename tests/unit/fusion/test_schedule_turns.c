/* Loops that become one kernel, which takes the iterations in turns, and those that do not. The
 * kernels are interpreted, beside the graph evaluator, for no iteration, one and several. */
#include "codegen/target.h"
#include "graph/pass/pass.h"
#include "tests/unit/fusion/schedule_check.h"
#include "tests/unit/test.h"

/* The body of a loop over two values, %2 f32[4, 6] and %3 f32[4, 1]; %4 f32[trips, 4, 6] and
 * %5 f32[6, 6] are captures, %7 is %4's slice for the iteration. */
typedef struct Case {
    const char *what;
    bool one;  /* kernel, */
    bool held; /* where it holds what it carries */
    const char *body;
} Case;

static const Case cases[] = {
    {"element by element", true, false,
     "%8 f32[4, 6] mul %2, %7\n%9 f32[4, 6] tanh %8\n"
     "output \"cond\" %1\noutput \"a\" %8\noutput \"b\" %3\noutput \"row\" %9\n"},
    {"a sum over a row", true, false,
     "%8 f32[4, 6] mul %2, %7\n%9 f32[4, 6] add %8, %7\n%10 f32[4] reduce_sum %9 axes=[1]\n"
     "%11 f32[4, 1] reshape %10\n%12 f32[4, 6] expand %11\n%13 f32[4, 6] mul %12, %7\n"
     "output \"cond\" %1\noutput \"a\" %9\noutput \"b\" %3\noutput \"row\" %13\n"},
    {"a row's maximum, and what is under it", true, true,
     "%8 f32[4] reduce_max %7 axes=[1]\n%9 f32[4, 1] reshape %8\n%10 f32[4, 1] max %3, %9\n"
     "%11 f32[4, 1] sub %3, %10\n%12 f32[4, 1] exp %11\n%13 f32[4, 6] expand %12\n"
     "%14 f32[4, 6] mul %2, %13\n%15 f32[4, 6] expand %10\n%16 f32[4, 6] sub %7, %15\n"
     "%17 f32[4, 6] exp %16\n%18 f32[4, 6] add %14, %17\n"
     "%19 f32[4] reduce_sum %18 axes=[1]\n%20 f32[4, 1] reshape %19\n%21 f32[4, 6] expand %20\n"
     "output \"cond\" %1\noutput \"a\" %18\noutput \"b\" %10\noutput \"row\" %21\n"},
    {"its next value does not need it", true, false,
     "%8 f32[4, 6] tanh %7\n%9 f32[4, 6] sub %8, %2\n"
     "output \"cond\" %1\noutput \"a\" %8\noutput \"b\" %3\noutput \"row\" %9\n"},
    {"a product", false, false,
     "%8 f32[4, 6] dot %2, %5\n%9 f32[4, 6] add %8, %7\n"
     "output \"cond\" %1\noutput \"a\" %9\noutput \"b\" %3\noutput \"row\" %9\n"},
    {"a neighbour's value", false, false,
     "%8 f32[3, 6] slice %2 start=[1, 0]\n%9 f32[1, 6] slice %2 start=[0, 0]\n"
     "%10 f32[4, 6] concat %8, %9 axis=0\n%11 f32[4, 6] add %10, %7\n"
     "output \"cond\" %1\noutput \"a\" %11\noutput \"b\" %3\noutput \"row\" %9\n"},
    {"a row's sum, in every element", false, false,
     "%8 f32[4] reduce_sum %2 axes=[1]\n%9 f32[4, 1] reshape %8\n%10 f32[4, 6] expand %9\n"
     "%11 f32[4] reduce_sum %7 axes=[1]\n%12 f32[4, 1] reshape %11\n%13 f32[4, 1] add %12, %3\n"
     "%14 f32[6] reduce_sum %7 axes=[0]\n%15 f32[1, 6] reshape %14\n%16 f32[4, 6] expand %15\n"
     "%17 f32[4, 6] add %10, %16\n"
     "output \"cond\" %1\noutput \"a\" %17\noutput \"b\" %13\noutput \"row\" %7\n"},
};

static const char *text_of(const Case *c, int trips, Arena *a) {
    return arena_printf(
        a,
        "graph \"loops\"  symbols t iter in 0..9\n"
        "%%1 f32[4, 6] input 0 \"x\"\n%%2 f32[4, 1] input 1 \"y\"\n%%3 f32[%d, 4, 6] input 2 "
        "\"w\"\n"
        "%%4 f32[6, 6] input 3 \"p\"\n%%5 bool[] const {1}\n%%6 i64[] const {%d}\n"
        "%%7 tuple loop %%6, %%5, %%1, %%2, %%3, %%4 results(f32[4, 6], f32[4, 1], f32[%d, 4, 6]) "
        "carried=2 iter=t trip=%d {\n"
        "%%1 bool[] input 0 \"cond\"\n%%2 f32[4, 6] input 1 \"a\"\n%%3 f32[4, 1] input 2 \"b\"\n"
        "%%4 f32[%d, 4, 6] input 3 \"w\"\n%%5 f32[6, 6] input 4 \"p\"\n"
        "%%6 f32[1, 4, 6] slice %%4 start=[t, 0, 0]\n%%7 f32[4, 6] reshape %%6\n%s}\n"
        "%%8 f32[4, 6] proj %%7 index=0\n%%9 f32[4, 1] proj %%7 index=1\n"
        "%%10 f32[%d, 4, 6] proj %%7 index=2\n"
        "output \"a\" %%8\noutput \"b\" %%9\noutput \"rows\" %%10\n",
        trips, trips, trips, trips, trips, c->body, trips);
}

static uint32_t turns_in(const Schedule *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->steps.n; i++)
        n += s->steps.v[i].kind == STEP_kernel && s->steps.v[i].kernel->turns;
    return n;
}

static bool has_loop(const Schedule *s) {
    for (uint32_t i = 0; i < s->steps.n; i++)
        if (s->steps.v[i].kind == STEP_loop_begin) return true;
    return false;
}

static void check_on(Graph *g, const Case *c, const EvalTensor *in, PlanDevice device, bool one,
                     uint32_t at_most) {
    Schedule *s = NULL;
    const Machine *m = &target_for(device)->machine;
    if (!CHECK(schedule_build(g, m, at_most, g->arena, &s) == GRAPHC_OK)) return;
    double e = check_schedule(g, s, in, g->arena);
    bool ok = CHECK(e >= 0 && e < 1e-5);
    if (at_most == FUSE_ALL) ok &= CHECK(turns_in(s) == one && has_loop(s) == !one);
    if (ok) return;
    StrBuf out;
    sb_init(&out, g->arena);
    schedule_print(s, &out);
    printf("%s: difference %g\n%s\n", c->what, e, sb_str(&out));
}

static void check(const Case *c, int trips) {
    Arena *a = arena_create();
    DiagSink *d = diag_create(a, NULL);
    Graph *g = graph_parse(a, d, text_of(c, trips, a));
    for (uint32_t i = 0; i < diag_count(d); i++) puts(diag_render(d, diag_at(d, i), a, false));
    if (!CHECK(g != NULL)) return;
    EvalTensor in[4] = {{.rank = 2, .dim = {4, 6}},
                        {.rank = 2, .dim = {4, 1}},
                        {.rank = 3, .dim = {trips, 4, 6}},
                        {.rank = 2, .dim = {6, 6}}};
    for (uint32_t i = 0; i < 4; i++) {
        in[i].dtype = DT_f32;
        in[i].data = arena_array(a, (size_t)check_numel(&in[i]) + 1, sizeof(float));
        check_fill(&in[i], i + 1, 1);
    }
    check_on(g, c, in, PLAN_cpu, c->one && !c->held, FUSE_ALL);
    check_on(g, c, in, PLAN_cuda, c->one, FUSE_ALL);
    for (uint32_t most = 0; most < 12; most++) check_on(g, c, in, PLAN_cuda, c->one, most);
    arena_destroy(a);
}

/* What is computed in front of a loop, [4, 5, 6] from [4, 5, 1] and [6], and walked by it along the
 * middle axis. */
static const char in_front[] =
    "graph \"loops\"  symbols t iter in 0..9\n"
    "%1 f32[4, 6] input 0 \"x\"\n%2 f32[4, 5, 1] input 1 \"d\"\n%3 f32[1, 1, 6] input 2 \"a\"\n"
    "%4 bool[] const {1}\n%5 i64[] const {5}\n"
    "%6 f32[4, 5, 6] expand %2\n%7 f32[4, 5, 6] expand %3\n%8 f32[4, 5, 6] mul %6, %7\n"
    "%9 f32[4, 5, 6] exp %8\n%10 f32[5, 4, 6] permute %9 perm=[1, 0, 2]\n"
    "%11 tuple loop %5, %4, %1, %10 results(f32[4, 6], f32[5, 4, 6]) carried=1 iter=t trip=5 {\n"
    "%1 bool[] input 0 \"cond\"\n%2 f32[4, 6] input 1 \"h\"\n%3 f32[5, 4, 6] input 2 \"w\"\n"
    "%4 f32[1, 4, 6] slice %3 start=[t, 0, 0]\n%5 f32[4, 6] reshape %4\n"
    "%6 f32[4, 6] mul %2, %5\n%7 f32[4, 6] add %6, %5\n"
    "output \"cond\" %1\noutput \"h\" %7\noutput \"row\" %7\n}\n"
    "%12 f32[4, 6] proj %11 index=0\n%13 f32[5, 4, 6] proj %11 index=1\n"
    "output \"h\" %12\noutput \"rows\" %13\n";

/* It is computed by the loop's kernel, unless it is stored for another: `rest` of the graph. */
static void test_in_front(const char *rest, uint32_t kernels) {
    Arena *a = arena_create();
    DiagSink *d = diag_create(a, NULL);
    Graph *g = graph_parse(a, d, arena_printf(a, "%s%s", in_front, rest));
    if (!CHECK(g != NULL)) return;
    EvalTensor in[3] = {
        {.rank = 2, .dim = {4, 6}}, {.rank = 3, .dim = {4, 5, 1}}, {.rank = 3, .dim = {1, 1, 6}}};
    for (uint32_t i = 0; i < 3; i++) {
        in[i].dtype = DT_f32;
        in[i].data = arena_array(a, (size_t)check_numel(&in[i]), sizeof(float));
        check_fill(&in[i], i + 1, 1);
    }
    for (uint32_t most = 0; most < 12; most++) {
        Schedule *s = NULL;
        const uint32_t limit = most < 11 ? most : FUSE_ALL;
        const Machine *m = &target_for(PLAN_cuda)->machine;
        if (!CHECK(schedule_build(g, m, limit, g->arena, &s) == GRAPHC_OK)) break;
        double e = check_schedule(g, s, in, g->arena);
        CHECK(e >= 0 && e < 1e-5);
        if (limit == FUSE_ALL) CHECK_EQ_I(s->steps.n, kernels);
        if (limit == FUSE_ALL) CHECK_EQ_I(turns_in(s), 1);
    }
    arena_destroy(a);
}

TEST_MAIN {
    test_in_front("", 2); /* and the copy of what is carried */
    test_in_front("output \"w\" %10\n", 3);
    test_in_front("%14 f32[4, 5, 6] tanh %9\noutput \"w\" %14\n", 3);
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int trips = 0; trips < 5; trips += trips ? 3 : 1) check(&cases[i], trips);
}
