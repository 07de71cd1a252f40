/* What grad_build makes beside the rules' numbers (test_grad.c): slopes where there is no
 * derivative, values that nothing flows to, what it refuses, nodes that are shared and read. */
#include "graph/eval/eval.h"
#include "graph/grad/grad.h"
#include "tests/unit/test.h"

static Graph *new_graph(Arena *a) {
    return graph_create(a, expr_pool_create(a), diag_create(a, NULL), "test");
}

static Value vector(Graph *g, DType t, const char *name, int64_t n) {
    Type type = {.dtype = t, .rank = 1, .dim = {expr_const(g->exprs, n)}};
    return build_input(g, name, type);
}

/* The gradient of sum(y) by x at one point of x; NAN: none. */
static double slope(Graph *g, Value y, Value x, double at) {
    Value dx;
    double out = at;
    EvalTensor in = {.dtype = graph_type(g, x)->dtype, .rank = 1, .dim = {1}, .data = &out}, got;
    if (grad_build(g, 1, &y, NULL, 1, &x, &dx) != GRAPHC_OK || !dx) return NAN;
    g->outputs.n = 0;
    build_output(g, "dx", dx);
    if (eval_run(g, &in, &(EvalOptions){0}, g->arena, &got) != GRAPHC_OK) return NAN;
    return *(double *)got.data;
}

static void test_conventions(void) {
    Arena *a = arena_create();
    Graph *g = new_graph(a);
    Value x = vector(g, DT_f64, "x", 1);
    CHECK_NEAR(slope(g, build_binary_f(g, OP_max, x, 0), x, 0), 0, 0); /* relu */
    CHECK_NEAR(slope(g, build_binary_f(g, OP_max, x, 0), x, 1), 1, 0);
    CHECK_NEAR(slope(g, build_unary(g, OP_abs, x), x, 0), 0, 0);
    CHECK_NEAR(slope(g, build_binary(g, OP_max, x, build_unary(g, OP_neg, x)), x, 0), 0, 0);
    CHECK_NEAR(slope(g, build_binary(g, OP_min, x, build_binary_f(g, OP_mul, x, 3)), x, 0), 2, 0);
    CHECK_NEAR(slope(g, build_binary_f(g, OP_pow, x, 0.5), x, 4), 0.25, 0);
    CHECK_NEAR(slope(g, build_binary(g, OP_pow, build_scalar_f(g, DT_f64, 0), x), x, 2), 0, 0);
    Value twice = build_concat(g, (Value[]){x, x}, 2, 0);
    CHECK_NEAR(slope(g, build_reduce(g, OP_reduce_max, twice, 1, false), x, 5), 1, 0);
    Value norm = build_reduce(g, OP_reduce_sum, build_binary(g, OP_mul, twice, twice), 1, true);
    norm = build_unary(g, OP_sqrt, norm);
    CHECK_NEAR(slope(g, norm, x, 0), 0, 0);
    Value size = build_unary(g, OP_sqrt, build_binary(g, OP_mul, x, x));
    CHECK_NEAR(slope(g, size, x, 0), 0, 0); /* of one number */
    CHECK_NEAR(slope(g, norm, x, -3), -1.4142135623730951, 1e-15);
    Value unit = build_binary(g, OP_div, x, build_binary_f(g, OP_max, norm, 0.5));
    CHECK_NEAR(slope(g, unit, x, 0), 2, 0); /* a row of zeros, normalised */
    arena_destroy(a);
}

/* y depends on x through rounding and integers only. */
static void test_nothing_flows(void) {
    Arena *a = arena_create();
    Graph *g = new_graph(a);
    Value x = vector(g, DT_f64, "x", 3), i = vector(g, DT_i64, "i", 3),
          unused = vector(g, DT_f64, "u", 3);
    Value y = build_binary(g, OP_add, build_unary(g, OP_floor, x), build_unary(g, OP_sign, x));
    y = build_binary(g, OP_add, y, build_cast(g, build_cast(g, x, DT_i64), DT_f64));
    y = build_binary(g, OP_add, y, build_cast(g, i, DT_f64));
    Value wrt[] = {x, i, unused, y}, dwrt[4];
    CHECK(grad_build(g, 1, &y, NULL, 4, wrt, dwrt) == GRAPHC_OK);
    CHECK(!dwrt[0] && !dwrt[1] && !dwrt[2] && dwrt[3]);
    arena_destroy(a);
}

static void test_refusal(void) {
    Arena *a = arena_create();
    Graph *g = new_graph(a);
    Value x = vector(g, DT_f16, "x", 3), dx;
    build_at(g, build_loc_new(g, (LocInfo){.node = 4, .op = "BitCast", .name = "", .output = "y"}));
    Value y = build_bitcast(g, x, DT_bf16);
    CHECK(grad_build(g, 1, &y, NULL, 1, &x, &dx) == GRAPHC_UNSUPPORTED);
    CHECK(diag_count(g->diags) == 1 && strstr(diag_at(g->diags, 0)->text, "bitcast"));
    CHECK_STR(diag_at(g->diags, 0)->place, "node 4 \"y\" BitCast");
    CHECK(grad_build(g, 1, &x, NULL, 1, &x, &dx) == GRAPHC_OK); /* nothing between */
    Value n = vector(g, DT_i64, "n", 3);
    CHECK(grad_build(g, 1, &n, NULL, 1, &x, &dx) == GRAPHC_UNSUPPORTED);
    arena_destroy(a);
}

/* Inner values, several results, the same value wanted twice; sums in one order. */
static void test_many(void) {
    Arena *a = arena_create();
    Graph *g = new_graph(a);
    Value x = vector(g, DT_f64, "x", 1);
    Value h = build_binary(g, OP_mul, x, x), z = build_unary(g, OP_exp, h);
    Value y[] = {z, h, h}, wrt[] = {h, x, h}, d[3], again[3];
    CHECK(grad_build(g, 3, y, NULL, 3, wrt, d) == GRAPHC_OK);
    CHECK_EQ_I(d[0], d[2]);
    CHECK(grad_build(g, 3, y, NULL, 3, wrt, again) == GRAPHC_OK);
    CHECK_EQ_I(d[1], again[1]); /* equal nodes are shared */
    build_output(g, "dh", d[0]);
    build_output(g, "dx", d[1]);
    double at = 0.5;
    EvalTensor in = {.dtype = DT_f64, .rank = 1, .dim = {1}, .data = &at}, out[2];
    CHECK(eval_run(g, &in, &(EvalOptions){0}, a, out) == GRAPHC_OK);
    CHECK_NEAR(*(double *)out[0].data, exp(0.25) + 2, 1e-15);
    CHECK_NEAR(*(double *)out[1].data, exp(0.25) + 2, 1e-15);
    arena_destroy(a);
}

/* A weight that rows of several places are multiplied by: each place's gradient is folded by
 * itself, so that none of their sums is as large as the rows. */
static void test_shared_weight(void) {
    Arena *a = arena_create();
    Graph *g = new_graph(a);
    const Expr dim[] = {expr_const(g->exprs, 5), expr_const(g->exprs, 3)};
    Value w = vector(g, DT_f64, "w", 3),
          rows = build_expand(g, build_reshape(g, w, 2, (Expr[]){expr_const(g->exprs, 1), dim[1]}),
                              2, dim);
    Value y[3], dw;
    for (int i = 0; i < 3; i++) {
        Type t = {.dtype = DT_f64, .rank = 2, .dim = {dim[0], dim[1]}};
        y[i] = build_binary(g, OP_mul, build_input(g, arena_printf(a, "x%d", i), t), rows);
    }
    const Value first = g->nodes.n;
    CHECK(grad_build(g, 3, y, NULL, 1, &w, &dw) == GRAPHC_OK && dw);
    uint32_t sums = 0;
    for (Value v = first; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        sums += n->op == OP_reduce_sum;
        CHECK(n->op != OP_add || expr_is_value(g->exprs, type_numel(g->exprs, &n->type), 3));
    }
    CHECK_EQ_I(sums, 3);
    arena_destroy(a);
}

/* Attention of 16 bits: its gradient reads the result that the model keeps, rounded, not another */
static void test_attention_keeps(void) {
    Arena *a = arena_create();
    Graph *g = new_graph(a);
    Type t = {.dtype = DT_bf16, .rank = 2};
    for (int i = 0; i < 2; i++) t.dim[i] = expr_const(g->exprs, 4);
    Value s = build_cast(g, build_input(g, "s", t), DT_f32), v = build_input(g, "v", t), wrt[2],
          d[2];
    Value o = build_attention(g, s, v, DT_f32, false), y = build_cast(g, o, DT_bf16);
    wrt[0] = s, wrt[1] = v;
    CHECK(grad_build(g, 1, &y, NULL, 2, wrt, d) == GRAPHC_OK && d[0] && d[1]);
    for (Value w = 1; w < g->nodes.n; w++)
        for (uint32_t i = 0; i < graph_node(g, w)->nin; i++)
            CHECK(graph_node(g, w)->in[i] != o || w == y);
    arena_destroy(a);
}

TEST_MAIN {
    test_conventions();
    test_nothing_flows();
    test_refusal();
    test_many();
    test_attention_keeps();
    test_shared_weight();
}
