/* What rounding explains of an output, element by element: a step where an operand lies at a tie,
 * another order where values are near, and nothing else. */
#include "frontend/driver/bound.h"
#include "graph/build/build.h"
#include "tests/unit/test.h"

enum { ROWS = 5, COLUMNS = 3 };

/* Sums along rows: 0.5 but for roundings (three in another order each), 1.3, and 0.5 once more. */
static const float rows[ROWS][COLUMNS] = {{0.1f, 0.2f, 0.2f},
                                          {1.0f, 0.2f, 0.1f},
                                          {0.2f, 0.2f, 0.1f},
                                          {0.7f, 0.6f, 0.1f},
                                          {0.2f, 0.1f, 0.2f}};

typedef struct Bounded {
    Arena *a;
    Graph *g;
    Value sums;
} Bounded;

static Bounded bounded(void) {
    Bounded b = {.a = arena_create()};
    Type t = {.dtype = DT_f32, .rank = 2};
    b.g = graph_create(b.a, expr_pool_create(b.a), diag_create(b.a, NULL), "bounded");
    t.dim[0] = expr_const(b.g->exprs, ROWS);
    t.dim[1] = expr_const(b.g->exprs, COLUMNS);
    b.sums = build_reduce(b.g, OP_reduce_sum, build_input(b.g, "x", t), 1u << 1, false);
    return b;
}

/* Of output `out`, which it is from then on. */
static double part(Bounded *b, Value out, DType t, int64_t n, const double *got) {
    float f[ROWS];
    int64_t whole[ROWS];
    double of = -1;
    float x[ROWS][COLUMNS];
    memcpy(x, rows, sizeof x);
    const EvalTensor in = {.dtype = DT_f32, .rank = 2, .dim = {ROWS, COLUMNS}, .data = x};
    EvalTensor y = {.dtype = t, .rank = 1, .dim = {n}, .data = t == DT_f32 ? (void *)f : whole};
    for (int64_t i = 0; i < n; i++) f[i] = (float)got[i], whole[i] = (int64_t)got[i];
    build_output(b->g, "y", out);
    CHECK(bound_elements(b->g, &in, b->g->outputs.n - 1, &y, b->a, &of) == GRAPHC_OK);
    return of;
}

static void test_steps(void) {
    Bounded b = bounded();
    const Value y = build_unary(b.g, OP_round, b.sums);
    CHECK(part(&b, y, DT_f32, ROWS, (double[]){1, 1, 1, 1, 1}) <= 1);
    CHECK(part(&b, y, DT_f32, ROWS, (double[]){0, 1, 1, 1, 0}) <= 1);
    CHECK(part(&b, y, DT_f32, ROWS, (double[]){0, 2, 1, 1, 0}) > 1); /* 1.3 is none */
    CHECK(part(&b, y, DT_f32, ROWS, (double[]){0, 1, 3, 1, 0}) > 1); /* two steps */
    CHECK(part(&b, y, DT_f32, ROWS, (double[]){0, 1, (double)NAN, 1, 0}) > 1);
    arena_destroy(b.a);
}

static void test_positions(void) {
    Bounded b = bounded();
    const Value least = build_arg_reduce(b.g, OP_argmin, b.sums, 0, false, true);
    const Value most = build_arg_reduce(b.g, OP_argmax, b.sums, 0, false, true);
    CHECK(part(&b, least, DT_i64, 1, (double[]){0}) <= 1);
    CHECK(part(&b, least, DT_i64, 1, (double[]){4}) <= 1);
    CHECK(part(&b, most, DT_i64, 1, (double[]){3}) <= 1);
    CHECK(part(&b, most, DT_i64, 1, (double[]){1}) > 1); /* 1.4 beats 1.3 */
    arena_destroy(b.a);
}

static void test_orders(bool falling) {
    Bounded b = bounded();
    const Value y = build_argsort(b.g, b.sums, 0, falling);
    static const double orders[3][ROWS] = {{0, 2, 4, 1, 3}, {4, 0, 2, 1, 3}, {0, 2, 4, 3, 1}};
    for (int i = 0; i < 3; i++) {
        double got[ROWS];
        for (int k = 0; k < ROWS; k++) got[k] = orders[i][falling ? ROWS - 1 - k : k];
        CHECK((part(&b, y, DT_i64, ROWS, got) <= 1) == (i < 2)); /* 1.3 before 1.4 */
    }
    arena_destroy(b.a);
}

TEST_MAIN {
    test_steps();
    test_positions();
    test_orders(false);
    test_orders(true);
}
