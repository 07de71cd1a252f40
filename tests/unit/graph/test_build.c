/* The builder: type rules and their diagnostics, sharing, folding, symbolic shapes. */
#include "graph/build/build.h"
#include "graph/eval/eval_scalar.h"
#include "graph/pass/pass.h"
#include "tests/unit/test.h"
#include <malloc.h>
#include <math.h>

static Graph *new_graph(void) {
    Arena *a = arena_create();
    return graph_create(a, expr_pool_create(a), diag_create(a, NULL), "test");
}

static Expr symbol(Graph *g, const char *name, int64_t lo, int64_t hi) {
    SymInfo info = {.name = name, .kind = SYM_DIM, .lo = lo, .hi = hi};
    return expr_sym_new(g->exprs, info);
}

static Expr num(Graph *g, int64_t v) {
    return expr_const(g->exprs, v);
}

static Value input(Graph *g, DType t, uint8_t rank, const Expr *dim) {
    Type type = {.dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) type.dim[i] = dim[i];
    return build_input(g, "x", type);
}

#define SHAPE(...)                                                                                 \
    (const Expr[]) {                                                                               \
        __VA_ARGS__                                                                                \
    }

static uint32_t count_ops(const Graph *g, Op op) {
    uint32_t n = 0;
    for (Value v = 1; v < g->nodes.n; v++) n += graph_node(g, v)->op == op;
    return n;
}

/* Of what two layers share, one value computed it: before that layer's own values or after them. */
static void test_operands_of_layers(void) {
    Graph *g = new_graph();
    Expr n = symbol(g, "n", 1, 64);
    Value x = input(g, DT_f32, 1, &n), y = input(g, DT_f32, 1, &n);
    Value first = build_unary(g, OP_sqrt, x), mask = build_unary(g, OP_exp, x);
    Value second = build_unary(g, OP_sqrt, y);
    Value in_first = build_binary(g, OP_add, first, mask);
    Value in_second = build_binary(g, OP_add, second, mask);
    CHECK_EQ_I(graph_node(g, in_first)->in[0] == mask, graph_node(g, in_second)->in[0] == mask);
    arena_destroy(g->arena);
}

static void test_sharing(void) {
    Graph *g = new_graph();
    Expr n = symbol(g, "n", 1, 64);
    Value x = input(g, DT_f32, 1, &n), y = input(g, DT_f32, 1, &n);
    CHECK(x != y);
    CHECK_EQ_I(build_binary(g, OP_add, x, y), build_binary(g, OP_add, y, x));
    CHECK(build_binary(g, OP_sub, x, y) != build_binary(g, OP_sub, y, x));
    CHECK_EQ_I(build_scalar_f(g, DT_f32, 2), build_scalar_f(g, DT_f32, 2));
    CHECK(build_scalar_i(g, DT_i32, 0) != build_scalar_i(g, DT_u32, 0));
    arena_destroy(g->arena);
}

static void test_identities(void) {
    Graph *g = new_graph();
    Expr n = symbol(g, "n", 1, 64);
    Value x = input(g, DT_f32, 2, SHAPE(n, num(g, 6))), k = input(g, DT_i32, 1, &n);
    CHECK_EQ_I(build_binary_f(g, OP_add, x, 0), x);
    CHECK_EQ_I(build_binary_f(g, OP_mul, x, 1), x);
    CHECK(build_binary_f(g, OP_mul, x, 0) != x); /* NaN * 0 is not 0 */
    CHECK_EQ_I(build_cast(g, build_cast(g, k, DT_i64), DT_i32), k);
    CHECK_EQ_I(build_unary(g, OP_neg, build_unary(g, OP_neg, x)), x);
    Value r = build_reshape(g, x, 3, SHAPE(n, num(g, 2), num(g, 3)));
    CHECK_EQ_I(build_reshape(g, r, 2, SHAPE(n, num(g, 6))), x);
    Value p = build_permute(g, x, (uint8_t[]){1, 0});
    CHECK_EQ_I(build_permute(g, p, (uint8_t[]){1, 0}), x);
    CHECK_EQ_I(build_slice(g, x, SHAPE(num(g, 0), num(g, 0)), SHAPE(n, num(g, 6)), NULL), x);
    Value yes = build_scalar_i(g, DT_bool, 1);
    CHECK_EQ_I(build_select(g, yes, x, build_binary_f(g, OP_mul, x, 2)), x);
    double v = 0;
    CHECK(build_const_f64(g, build_full(g, build_scalar_f(g, DT_f32, 7), 1, &n), &v));
    CHECK_NEAR(v, 7, 0);
    arena_destroy(g->arena);
}

static void test_constants(void) {
    Graph *g = new_graph();
    Value a = build_ints(g, DT_i64, (int64_t[]){1, 2, 3}, 3);
    Value s = build_reduce(g, OP_reduce_sum, build_binary_f(g, OP_mul, a, 2), 1, false);
    uint32_t n;
    const Expr *e = build_elems(g, s, false, &n);
    CHECK(e && n == 1 && expr_is_value(g->exprs, e[0], 12));
    Value f = build_unary(g, OP_exp, build_scalar_f(g, DT_f32, 1));
    double v = 0;
    CHECK(build_const_f64(g, f, &v));
    CHECK_NEAR(v, (double)2.7182818284590452f, 0); /* rounded to f32 */
    CHECK_EQ_I(count_ops(g, OP_exp) + count_ops(g, OP_reduce_sum), 0);
    arena_destroy(g->arena);
}

static Value turned(Graph *g, int64_t rows, int64_t cols) {
    Type t = {.dtype = DT_f32, .rank = 2, .dim = {num(g, rows), num(g, cols)}};
    size_t bytes = (size_t)(rows * cols) * sizeof(float);
    float *v = arena_alloc(g->arena, bytes);
    for (int64_t i = 0; i < rows * cols; i++) v[i] = (float)i;
    Value c = build_const(g, t, (Constant){.data = v, .bytes = bytes});
    return build_permute(g, c, (uint8_t[]){1, 0});
}

/* Weights that are turned stay as they lie; what is no matrix, or a few numbers, is folded. */
static void test_turned_weights(void) {
    Graph *g = new_graph();
    CHECK_EQ_I(graph_node(g, turned(g, 64, 64))->op, OP_permute);
    CHECK(graph_node(g, turned(g, 1, 256))->op != OP_permute);
    CHECK_EQ_I(graph_node(g, turned(g, 2, 3))->op, OP_const);
    arena_destroy(g->arena);
}

/* reshape(x, concat(shape(x)[0:1], [-1 resolved], shape(x)[2:3] / 2)) leaves one reshape. */
static void test_shape_chain(void) {
    Graph *g = new_graph();
    Expr b = symbol(g, "batch", 1, 8), s = symbol(g, "seq", 1, 512);
    Value x = input(g, DT_f32, 3, SHAPE(b, s, num(g, 64)));
    Value shape = build_exprs(g, DT_i64, graph_type(g, x)->dim, 3);
    Value parts[4] = {
        build_unsqueeze(g, build_take(g, shape, build_scalar_i(g, DT_i64, 0), 0), 0),
        build_unsqueeze(g, build_take(g, shape, build_scalar_i(g, DT_i64, -2), 0), 0),
        build_ints(g, DT_i64, (int64_t[]){2}, 1),
    };
    parts[3] = build_binary_f(g, OP_div, build_slice_axis(g, shape, 0, num(g, 2), num(g, 1), 1), 2);
    Value to = build_cast(g, build_concat(g, parts, 4, 0), DT_i32);
    uint32_t n;
    const Expr *e = build_elems(g, to, false, &n);
    if (CHECK(e && n == 4)) {
        CHECK_EQ_I(e[0], b);
        CHECK_EQ_I(e[1], s);
        CHECK(expr_is_value(g->exprs, e[3], 32));
        CHECK(build_reshape(g, x, 4, e) != 0);
    }
    CHECK_EQ_I(g->nassume, 0);
    for (Value v = 1; v < g->nodes.n; v++) {
        Op op = (Op)graph_node(g, v)->op;
        CHECK(op == OP_input || op == OP_const || op == OP_exprs || op == OP_reshape);
    }
    arena_destroy(g->arena);
}

static void test_shape_inputs(void) {
    Graph *g = new_graph();
    Value x = input(g, DT_i64, 1, SHAPE(num(g, 2))), y = build_binary_f(g, OP_add, x, 1);
    uint32_t n;
    CHECK(build_elems(g, y, false, &n) == NULL);
    const Expr *e = build_elems(g, y, true, &n);
    if (!CHECK(e && n == 2)) return;
    uint32_t sym;
    CHECK(expr_is_sym(g->exprs, expr_addi(g->exprs, e[1], -1), &sym));
    CHECK_EQ_I(expr_sym_info(g->exprs, sym)->kind, SYM_ELEM);
    CHECK_EQ_I(expr_sym_info(g->exprs, sym)->b, 1);
    g->is_body = true; /* a body's inputs are not known before its kernels run */
    Value z = input(g, DT_i64, 1, SHAPE(num(g, 2)));
    CHECK(build_elems(g, z, true, &n) == NULL);
    arena_destroy(g->arena);
}

/* Expressions floor where ops truncate: tracked elements must still be what the op computes. */
static void test_tracked_arithmetic(void) {
    static const Op ops[] = {OP_add, OP_sub, OP_mul, OP_div, OP_mod, OP_rem, OP_min,
                             OP_max, OP_eq,  OP_ne,  OP_lt,  OP_le,  OP_abs, OP_sign};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        Graph *g = new_graph();
        Value x = input(g, DT_i64, 1, SHAPE(num(g, 2))), in[2];
        for (int i = 0; i < 2; i++) in[i] = build_slice_axis(g, x, 0, num(g, i), num(g, 1), 1);
        uint32_t n;
        CHECK(build_elems(g, x, true, &n) != NULL);
        bool positive = ops[k] == OP_div || ops[k] == OP_rem; /* tracked for such divisors only */
        if (positive) in[1] = build_binary_f(g, OP_max, in[1], 0);
        Value y = build_map(g, ops[k], in, op_info[ops[k]].arity == 1 ? 1 : 2);
        const Expr *e = build_elems(g, y, false, &n);
        for (int64_t a = -7; e && a <= 7; a++)
            for (int64_t b = -3; b <= 3; b++) {
                EvalScalar v[2] = {{.i = a}, {.i = positive && b < 0 ? 0 : b}};
                int64_t want = eval_scalar(ops[k], DT_i64, graph_type(g, y)->dtype, v).i;
                CHECK_EQ_I(expr_eval(g->exprs, e[0], (int64_t[]){a, b}), want);
            }
        CHECK(e != NULL);
        arena_destroy(g->arena);
    }
}

/* ceil(x/5 + 1), floor(7 - x/5) in f32 are tracked through the quotient; x/5*5 is no whole number.
 */
static void test_tracked_quotients(void) {
    Graph *g = new_graph();
    Value x = input(g, DT_i64, 1, SHAPE(num(g, 1))), f = build_cast(g, x, DT_f32), y[3];
    Value q = build_binary_f(g, OP_div, f, 5), seven = build_scalar_f(g, DT_f32, 7);
    uint32_t n;
    CHECK(build_elems(g, x, true, &n) != NULL);
    y[0] = build_unary(g, OP_ceil, build_binary_f(g, OP_add, q, 1));
    y[1] = build_unary(g, OP_floor, build_binary(g, OP_sub, seven, q));
    y[2] = build_unary(g, OP_floor, build_binary_f(g, OP_mul, q, 5));
    const Expr *e[3];
    for (int i = 0; i < 3; i++) e[i] = build_elems(g, build_cast(g, y[i], DT_i64), false, &n);
    CHECK(e[0] && e[1] && !e[2]);
    for (int64_t a = -1000; e[0] && e[1] && a < 1 << 23; a += a < 1000 ? 1 : 9973) {
        CHECK_EQ_I(expr_eval(g->exprs, e[0][0], &a), (int64_t)ceilf((float)a / 5 + 1));
        CHECK_EQ_I(expr_eval(g->exprs, e[1][0], &a), (int64_t)floorf(7 - (float)a / 5));
    }
    arena_destroy(g->arena);
}

static void test_broadcast(void) {
    Graph *g = new_graph();
    Expr n = symbol(g, "n", 1, 64), m = symbol(g, "m", 1, 64);
    Value x = input(g, DT_f32, 2, SHAPE(n, num(g, 1))), y = input(g, DT_f32, 1, SHAPE(num(g, 5)));
    const Type *t = graph_type(g, build_binary(g, OP_add, x, y));
    CHECK_EQ_I(t->dim[0], n);
    CHECK_EQ_I(t->dim[1], num(g, 5));
    CHECK_EQ_I(g->nassume, 0);
    Value z = input(g, DT_f32, 2, SHAPE(m, num(g, 5)));
    t = graph_type(g, build_binary(g, OP_add, x, z));
    CHECK_EQ_I(t->dim[0], n);
    CHECK_EQ_I(g->nassume, 1);
    /* m is n from now on: nothing new to assume. */
    CHECK(build_binary(g, OP_mul, z, x) != 0);
    CHECK_EQ_I(g->nassume, 1);
    Value w = input(g, DT_f32, 2, SHAPE(num(g, 7), num(g, 5)));
    CHECK_EQ_I(graph_type(g, build_binary(g, OP_add, z, w))->dim[0], num(g, 7));
    CHECK_EQ_I(g->nassume, 2);
    Value q = input(g, DT_f32, 2, SHAPE(num(g, 8), num(g, 5)));
    CHECK_EQ_I(build_binary(g, OP_add, x, q), 0); /* n is 7 */
    CHECK_EQ_I(diag_errors(g->diags), 1);
    arena_destroy(g->arena);
}

static void test_errors(void) {
    Graph *g = new_graph();
    Value x = input(g, DT_f32, 1, SHAPE(num(g, 3))), y = input(g, DT_f32, 1, SHAPE(num(g, 4)));
    Value k = input(g, DT_i64, 1, SHAPE(num(g, 3)));
    LocInfo info = {.node = 17, .op = "Add", .name = "", .output = "sum"};
    build_at(g, build_loc_new(g, info));
    Value bad = build_binary(g, OP_add, x, y);
    CHECK_EQ_I(bad, 0);
    const Diag *d = diag_at(g->diags, 0);
    CHECK_EQ_I(d->id, D_SHAPE);
    CHECK(strstr(d->place, "17") && strstr(d->place, "Add"));
    CHECK(strstr(d->text, "f32[3]") && strstr(d->text, "f32[4]"));
    /* An error is told once. */
    CHECK_EQ_I(build_reduce(g, OP_reduce_sum, build_unary(g, OP_exp, bad), 1, true), 0);
    CHECK_EQ_I(diag_errors(g->diags), 1);
    CHECK_EQ_I(build_binary(g, OP_add, x, k), 0);
    CHECK_EQ_I(build_unary(g, OP_exp, k), 0);
    CHECK_EQ_I(build_reshape(g, x, 1, SHAPE(num(g, 4))), 0);
    CHECK_EQ_I(build_concat(g, (Value[]){x, k}, 2, 0), 0);
    CHECK_EQ_I(build_dot(g, x, y, DT_f32), 0);
    CHECK_EQ_I(build_slice_axis(g, x, 0, num(g, 1), num(g, 3), 1), 0);
    CHECK_EQ_I(diag_errors(g->diags), 7);
    arena_destroy(g->arena);
}

static void test_take(void) {
    Graph *g = new_graph();
    Expr n = symbol(g, "n", 1, 64);
    Value x = input(g, DT_f32, 2, SHAPE(num(g, 8), n));
    Value v = build_take(g, x, build_ints(g, DT_i64, (int64_t[]){-1, 5, 3}, 3), 0);
    CHECK_EQ_I(graph_node(g, v)->op, OP_slice); /* 7, 5, 3 */
    v = build_take(g, x, build_ints(g, DT_i64, (int64_t[]){0, 1, 3}, 3), 0);
    CHECK_EQ_I(graph_node(g, v)->op, OP_gather);
    v = build_take(g, x, build_scalar_i(g, DT_i64, -1), 1); /* the last of a symbolic axis */
    CHECK_EQ_I(graph_type(g, v)->rank, 1);
    CHECK_EQ_I(count_ops(g, OP_gather), 1);
    arena_destroy(g->arena);
}

static void test_known_if(void) {
    Graph *g = new_graph();
    Value x = input(g, DT_f32, 1, SHAPE(num(g, 2)));
    Graph *b[2];
    for (int i = 0; i < 2; i++) {
        b[i] = graph_create(g->arena, g->exprs, g->diags, "branch");
        Value v = build_input(b[i], "x", *graph_type(g, x));
        build_output(b[i], "y",
                     i ? build_reduce(b[i], OP_reduce_sum, v, 1, false)
                       : build_binary(b[i], OP_mul, v, v));
    }
    Value t = build_if(g, build_scalar_i(g, DT_bool, 1), b[0], b[1], &x, 1);
    CHECK_EQ_I(build_proj(g, t, 0), build_binary(g, OP_mul, x, x));
    CHECK_EQ_I(diag_errors(g->diags), 0);
    arena_destroy(g->arena);
}

static void test_contractions(void) {
    Graph *g = new_graph();
    Expr b = symbol(g, "b", 1, 64), s = symbol(g, "s", 1, 64);
    Value x = input(g, DT_f16, 3, SHAPE(b, s, num(g, 8)));
    Value w = input(g, DT_f16, 2, SHAPE(num(g, 8), num(g, 3)));
    Value v = build_matmul(g, x, w, DT_f16);
    CHECK_EQ_I(graph_type(g, v)->rank, 3);
    CHECK_EQ_I(graph_type(g, v)->dtype, DT_f16);
    CHECK_EQ_I(count_ops(g, OP_dot), 1);
    for (Value i = 1; i < g->nodes.n; i++)
        if (graph_node(g, i)->op == OP_dot) {
            CHECK_EQ_I(graph_type(g, i)->rank, 2);
            CHECK_EQ_I(graph_type(g, i)->dtype, DT_f32);
        }
    Value image = input(g, DT_f32, 4, SHAPE(b, num(g, 7), s, num(g, 4)));
    Value k = input(g, DT_f32, 4, SHAPE(num(g, 3), num(g, 3), num(g, 2), num(g, 6)));
    Attr a = {.conv = {.n = 2,
                       .stride = {2, 1},
                       .dilation = {1, 1},
                       .lo = {1, 1},
                       .hi = {1, 1},
                       .groups = 2,
                       .to = DT_f32}};
    const Type *t = graph_type(g, build_conv(g, image, k, &a));
    CHECK_EQ_I(t->dim[1], num(g, 4));
    CHECK_EQ_I(t->dim[2], s);
    CHECK_EQ_I(t->dim[3], num(g, 6));
    /* Seven rows are fewer than the dilation: only the middle row of taps meets any. */
    a.conv.dilation[0] = a.conv.lo[0] = a.conv.hi[0] = 8;
    const Node *n = graph_node(g, build_conv(g, image, k, &a));
    CHECK_EQ_I(n->type.dim[1], num(g, 4));
    CHECK_EQ_I(graph_type(g, n->in[1])->dim[0], num(g, 1));
    CHECK_EQ_I(n->attr.conv.lo[0], 0);
    CHECK_EQ_I(n->attr.conv.hi[0], 0);
    arena_destroy(g->arena);
}

static size_t in_use(void) {
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Passes leave one graph behind, however many they are (a sanitizer's allocator counts nothing). */
static void test_passes_give_back(void) {
    enum { NODES = 4000 };
    const size_t before = in_use();
    Graph *given = new_graph(), *g = given;
    Value v = input(g, DT_f32, 1, SHAPE(symbol(g, "n", 1, 64)));
    for (int i = 0; i < NODES; i++) v = build_unary(g, OP_tanh, v);
    build_output(g, "y", v);
    const size_t one = in_use() - before;
    CHECK(graph_optimise(&g, DT_f32, true, NULL) == GRAPHC_OK);
    const size_t all = in_use() - before;
    if (!CHECK(all <= 3 * one))
        fprintf(stderr, "    %zu bytes, of the given graph %zu\n", all, one);
    CHECK_EQ_I(count_ops(g, OP_tanh), NODES);
    CHECK_EQ_I(count_ops(given, OP_tanh), NODES);
    arena_destroy(given->arena);
}

TEST_MAIN {
    test_passes_give_back();
    test_sharing();
    test_operands_of_layers();
    test_identities();
    test_constants();
    test_turned_weights();
    test_shape_chain();
    test_shape_inputs();
    test_tracked_arithmetic();
    test_tracked_quotients();
    test_broadcast();
    test_errors();
    test_take();
    test_known_if();
    test_contractions();
}
