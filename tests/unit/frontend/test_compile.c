/* graphc_compile.h on a model in memory: external data and progress by callbacks, cancelling,
 * messages as data, the plan as the run library takes it. */
#include "frontend/driver/graphc_compile.h"
#include "runtime/session.h"
#include "tests/unit/test.h"

/* y = x + w, f32[n, 4]; w is f32[4] in "w.bin". */
static const char model[] =
    "\010\010\022\000:\135\012\016\012\001x\012\001w\022\001y\042\003Add\022\001g\052\034\010"
    "\004\020\001B\001wj\021\012\010location\022\005w.binp\001Z\024\012\001x\022\017\012\015"
    "\010\001\022\011\012\003\022\001n\012\002\010\004b\024\012\001y\022\017\012\015\010\001"
    "\022\011\012\003\022\001n\012\002\010\004B\004\012\000\020\021";
enum { MODEL = sizeof model - 1 };

static const float weights[4] = {1, 2, 3, 4};

typedef struct Calls {
    size_t given;       /* bytes of external data */
    graphc_status says; /* of the callback */
    int asked;
    uint32_t threads; /* 0: one */
    const char *stop; /* at this stage */
    char stages[64];  /* first letters, in order */
} Calls;

static graphc_status external(void *ctx, const char *location, const void **data, size_t *size) {
    Calls *c = ctx;
    CHECK_STR(location, "w.bin");
    c->asked++;
    *data = weights;
    *size = c->given;
    return c->says;
}

static bool progress(void *ctx, const char *stage, uint32_t done, uint32_t of) {
    Calls *c = ctx;
    size_t n = strlen(c->stages);
    CHECK(done < of);
    if (n + 1 < sizeof c->stages && (!n || c->stages[n - 1] != *stage)) {
        c->stages[n] = *stage;
        CHECK_EQ_I(done, 0);
    }
    return !c->stop || strcmp(stage, c->stop) != 0;
}

static graphc_status compile(Calls *calls, bool with_external, graphc_compiled **out) {
    graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT;
    o.embed = true;
    o.threads = calls->threads ? calls->threads : 1;
    o.progress = progress;
    o.progress_ctx = calls;
    if (with_external) o.external = external;
    o.external_ctx = calls;
    return graphc_compile_memory(model, MODEL, &o, out);
}

/* The first error's number; its text has `text`. */
static void check_error(const graphc_compiled *c, uint32_t number, graphc_status status,
                        const char *text) {
    graphc_diagnostic d = graphc_compiled_diagnostic(c, 0);
    size_t size = 1;
    CHECK_EQ_I(d.severity, GRAPHC_ERROR);
    CHECK_EQ_I(d.number, number);
    CHECK_EQ_I(d.status, status);
    if (!CHECK(strstr(d.text, text))) fprintf(stderr, "    %s\n", d.text);
    CHECK(strstr(graphc_compiled_message(c, 0), text));
    CHECK(!graphc_compiled_plan(c, &size) && size == 0);
}

static void run(const void *plan, size_t size) {
    graphc_plan *p = NULL;
    graphc_session *s = NULL;
    float x[8] = {10, 20, 30, 40, 50, 60, 70, 80}, y[8] = {0};
    graphc_tensor t = {x, GRAPHC_CPU, 0, {2, 32, 1}, 2, {2, 4}}, out;
    CHECK_EQ_I(graphc_plan_load_memory(plan, size, NULL, &p, NULL, 0), GRAPHC_OK);
    if (!p || !CHECK(graphc_session_create(p, NULL, &s, NULL, 0) == GRAPHC_OK)) return;
    CHECK(graphc_bind_input(s, 0, &t) == GRAPHC_OK &&
          graphc_output_shape(s, 0, 0, &out) == GRAPHC_OK);
    out.data = y;
    CHECK(graphc_bind_output(s, 0, &out) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK);
    for (int i = 0; i < 8; i++) CHECK(y[i] == x[i] + weights[i % 4]);
    char said[64] = "bad";
    CHECK_EQ_I(launch_named(s->res, 0, GRAPHC_RUNTIME, (ErrorText){said, sizeof said}),
               GRAPHC_RUNTIME);
    CHECK_STR(said, "kernel poi_0_add (node 0 \"y\" Add): bad");
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
}

static void test_memory(void) {
    Calls calls = {.given = sizeof weights};
    graphc_compiled *c = NULL;
    size_t size = 0;
    CHECK_EQ_I(compile(&calls, true, &c), GRAPHC_OK);
    CHECK_EQ_I(calls.asked, 1);
    CHECK_STR(calls.stages, "ipkp");
    const void *plan = graphc_compiled_plan(c, &size);
    if (CHECK(plan)) run(plan, size);
    CHECK_STR(graphc_compiled_diagnostic(c, 99).text, "");
    graphc_compiled_destroy(c);
}

static void test_failures_of_callbacks(void) {
    const struct {
        Calls calls;
        bool external;
        graphc_status status;
        uint32_t number;
        const char *text;
    } cases[] = {
        {{.given = 15}, true, GRAPHC_INVALID, 104, "has 15 bytes"},
        {{.given = 16, .says = GRAPHC_IO}, true, GRAPHC_IO, 101, "was not given"},
        {{.given = 16, .says = GRAPHC_CANCELLED}, true, GRAPHC_CANCELLED, 2, "was not given"},
        {{0}, false, GRAPHC_INVALID, 104, "lies in memory"},
        {{.given = 16, .stop = "import"}, true, GRAPHC_CANCELLED, 2, "stage \"import\""},
        {{.given = 16, .stop = "passes"}, true, GRAPHC_CANCELLED, 2, "stage \"passes\""},
        {{.given = 16, .stop = "kernels"}, true, GRAPHC_CANCELLED, 2, "before all kernels"},
        {{.given = 16, .stop = "plan"}, true, GRAPHC_CANCELLED, 2, "stage \"plan\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Calls calls = cases[i].calls;
        graphc_compiled *c = NULL;
        CHECK_EQ_I(compile(&calls, cases[i].external, &c), cases[i].status);
        if (CHECK(c)) check_error(c, cases[i].number, cases[i].status, cases[i].text);
        graphc_compiled_destroy(c);
    }
}

/* Whichever thread takes which kernel first, the same is told, and who has enough is heard. */
static void test_threads(void) {
    for (int i = 0; i < 20; i++) {
        Calls calls = {.given = sizeof weights, .threads = 8}, stopped = calls;
        graphc_compiled *c = NULL;
        CHECK_EQ_I(compile(&calls, true, &c), GRAPHC_OK);
        CHECK_STR(calls.stages, "ipkp");
        graphc_compiled_destroy(c);
        stopped.stop = "kernels";
        CHECK_EQ_I(compile(&stopped, true, &c), GRAPHC_CANCELLED);
        graphc_compiled_destroy(c);
    }
}

static void test_nothing(void) {
    graphc_compiled *c = NULL;
    CHECK_EQ_I(graphc_compile_memory(NULL, 0, NULL, &c), GRAPHC_USAGE);
    check_error(c, 1001, GRAPHC_USAGE, "NULL");
    graphc_compiled_destroy(c);
    CHECK_EQ_I(graphc_compile_memory(model, MODEL / 2, NULL, &c), GRAPHC_INVALID);
    graphc_compiled_destroy(c);
    CHECK_EQ_I(graphc_compile_memory(model, MODEL, NULL, NULL), GRAPHC_USAGE);
}

TEST_MAIN {
    test_memory();
    test_failures_of_callbacks();
    test_threads();
    test_nothing();
}
