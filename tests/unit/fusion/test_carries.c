/* What loops carry: replaced in place where nobody needs it any more, else by a copy. The kernels
 * are interpreted, beside the graph evaluator, for no iteration, one and several. */
#include "codegen/target.h"
#include "graph/pass/pass.h"
#include "tests/unit/fusion/schedule_check.h"
#include "tests/unit/test.h"

/* The body of a loop over two values, %2 and %3, whose iterations are '#'; %4 is a capture. */
typedef struct Case {
    const char *what;
    uint32_t copies; /* of carried values that cannot be replaced in place */
    const char *body;
} Case;

static const Case cases[] = {
    {"element by element", 0,
     "%5 f32[3, 3] add %2, %3\n"
     "%6 f32[3, 3] tanh %5\n"
     "%7 f32[3, 3] mul %6, %3\n"
     "output \"cond\" %1\noutput \"a\" %6\noutput \"b\" %7\noutput \"row\" %6\n"},
    {"swapped", 1, "output \"cond\" %1\noutput \"a\" %3\noutput \"b\" %2\noutput \"row\" %3\n"},
    {"one for both", 1,
     "%5 f32[3, 3] dot %2, %4\n"
     "output \"cond\" %1\noutput \"a\" %5\noutput \"b\" %5\noutput \"row\" %5\n"},
    {"read by a product, then elementwise", 1,
     "%5 f32[3, 3] dot %2, %4\n"
     "%6 f32[3, 3] add %5, %2\n"
     "%7 f32[3, 3] mul %5, %3\n"
     "output \"cond\" %1\noutput \"a\" %6\noutput \"b\" %7\noutput \"row\" %7\n"},
    {"read the other way", 2,
     "%5 f32[3, 3] permute %2 perm=[1, 0]\n"
     "%6 f32[3, 3] tanh %5\n"
     "%7 f32[3, 3] permute %3 perm=[1, 0]\n"
     "%8 f32[3, 3] tanh %7\n"
     "output \"cond\" %1\noutput \"a\" %6\noutput \"b\" %8\noutput \"row\" %8\n"},
    {"read when its next value is there", 1,
     "%5 f32[3, 3] dot %2, %4\n"
     "%6 f32[3, 3] dot %5, %4\n"
     "%7 f32[3, 3] add %6, %2\n"
     "output \"cond\" %1\noutput \"a\" %5\noutput \"b\" %7\noutput \"row\" %7\n"},
    {"the condition, as a value", 0,
     "%5 f32[] cast %1\n"
     "%6 f32[1, 1] reshape %5\n"
     "%7 f32[3, 3] expand %6\n"
     "%8 f32[3, 3] sub %2, %7\n"
     "output \"cond\" %1\noutput \"a\" %8\noutput \"b\" %3\noutput \"row\" %8\n"},
    {"a loop inside, which takes one as it was", 1,
     "%5 i64[] const {3}\n"
     "%6 tuple loop %5, %1, %2, %2, %3 results(f32[3, 3]) carried=1 iter=u trip=3 {\n"
     "%1 bool[] input 0 \"cond\"\n"
     "%2 f32[3, 3] input 1 \"a\"\n"
     "%3 f32[3, 3] input 2 \"was\"\n"
     "%4 f32[3, 3] input 3 \"b\"\n"
     "%5 f32[3, 3] add %2, %3\n"
     "%6 f32[3, 3] mul %5, %4\n"
     "output \"cond\" %1\noutput \"a\" %6\n"
     "}\n"
     "%7 f32[3, 3] proj %6 index=0\n"
     "%8 f32[3, 3] sigmoid %3\n"
     "output \"cond\" %1\noutput \"a\" %7\noutput \"b\" %8\noutput \"row\" %7\n"},
    {"a loop inside", 0,
     "%5 i64[] const {3}\n"
     "%6 tuple loop %5, %1, %2, %3 results(f32[3, 3]) carried=1 iter=u trip=3 {\n"
     "%1 bool[] input 0 \"cond\"\n"
     "%2 f32[3, 3] input 1 \"a\"\n"
     "%3 f32[3, 3] input 2 \"b\"\n"
     "%4 f32[3, 3] add %2, %3\n"
     "%5 f32[3, 3] tanh %4\n"
     "output \"cond\" %1\noutput \"a\" %5\n"
     "}\n"
     "%7 f32[3, 3] proj %6 index=0\n"
     "%8 f32[3, 3] sigmoid %3\n"
     "output \"cond\" %1\noutput \"a\" %7\noutput \"b\" %8\noutput \"row\" %7\n"},
};

static const char *text_of(const Case *c, int trips, Arena *a) {
    return arena_printf(
        a,
        "graph \"loops\"  symbols t iter in 0..9, u iter in 0..9\n"
        "%%1 f32[3, 3] input 0 \"x\"\n%%2 f32[3, 3] input 1 \"y\"\n%%3 f32[3, 3] input 2 \"w\"\n"
        "%%4 bool[] const {1}\n%%5 i64[] const {%d}\n"
        "%%6 tuple loop %%5, %%4, %%1, %%2, %%3 results(f32[3, 3], f32[3, 3], f32[%d, 3, 3]) "
        "carried=2 iter=t trip=%d {\n"
        "%%1 bool[] input 0 \"cond\"\n%%2 f32[3, 3] input 1 \"a\"\n%%3 f32[3, 3] input 2 \"b\"\n"
        "%%4 f32[3, 3] input 3 \"w\"\n%s}\n"
        "%%7 f32[3, 3] proj %%6 index=0\n%%8 f32[3, 3] proj %%6 index=1\n"
        "%%9 f32[%d, 3, 3] proj %%6 index=2\n"
        "output \"a\" %%7\noutput \"b\" %%8\noutput \"rows\" %%9\n",
        trips, trips, trips, c->body, trips);
}

static uint32_t copies_in(const Schedule *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->steps.n; i++) n += s->steps.v[i].carry;
    return n;
}

static void check_on(Graph *g, const Case *c, const EvalTensor *in, int gpu, uint32_t at_most) {
    Schedule *s = NULL;
    const Machine *m = &target_for(gpu ? PLAN_cuda : PLAN_cpu)->machine;
    if (!CHECK(schedule_build(g, m, at_most, g->arena, &s) == GRAPHC_OK)) return;
    double e = check_schedule(g, s, in, g->arena);
    bool ok = CHECK(e >= 0 && e < 1e-5);
    if (at_most == FUSE_ALL && !gpu) ok &= CHECK(copies_in(s) == c->copies);
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
    EvalTensor in[3];
    for (uint32_t i = 0; i < 3; i++) {
        in[i] = (EvalTensor){.dtype = DT_f32, .rank = 2, .dim = {3, 3}};
        in[i].data = arena_array(a, 9, sizeof(float));
        check_fill(&in[i], i + 1, 1);
    }
    for (int gpu = 0; gpu < 2; gpu++) {
        check_on(g, c, in, gpu, FUSE_ALL);
        for (uint32_t most = 0; most < 12; most++) check_on(g, c, in, gpu, most);
    }
    arena_destroy(a);
}

TEST_MAIN {
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int trips = 0; trips < 5; trips += trips ? 3 : 1) check(&cases[i], trips);
}
