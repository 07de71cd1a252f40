/* The reference evaluator on hand-checked values, edge cases first. Operands are graph inputs, so
 * that nothing folds. */
#include "graph/build/build.h"
#include "graph/eval/eval_impl.h"
#include "graph/pass/pass.h"
#include "tests/unit/test.h"

#define MAX_INPUTS 9

/* One graph under construction with the tensors its inputs will get. */
typedef struct Rig {
    Arena *arena;
    Graph *g;
    EvalTensor in[MAX_INPUTS], out[MAX_INPUTS];
    bool exact; /* floats carried in f64 */
} Rig;

static Rig rig(void) {
    Rig r = {.arena = arena_create()};
    r.g = graph_create(r.arena, expr_pool_create(r.arena), diag_create(r.arena, NULL), "test");
    return r;
}

static Value input(Rig *r, DType t, uint8_t rank, const int64_t *dim, const double *v) {
    Type type = {.dtype = t, .rank = rank};
    EvalTensor x = {.dtype = t, .rank = rank};
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        type.dim[i] = expr_const(r->g->exprs, dim[i]);
        x.dim[i] = dim[i];
        n *= dim[i];
    }
    x.data = arena_array(r->arena, (size_t)n, dtype_bytes(t));
    for (int64_t i = 0; i < n; i++) {
        if (dtype_is_float(t))
            dtype_store_f64(t, x.data, (size_t)i, v[i]);
        else
            dtype_store_i64(t, x.data, (size_t)i, (int64_t)v[i]);
    }
    r->in[r->g->inputs.n] = x;
    return build_input(r->g, "x", type);
}

#define DIMS(...)                                                                                  \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }
#define VALUES(...)                                                                                \
    (const double[]) {                                                                             \
        __VA_ARGS__                                                                                \
    }

/* Runs the graph and compares its k-th output. */
static void expect(Rig *r, uint32_t k, int64_t n, const double *want) {
    EvalOptions o = {.round_f32 = !r->exact};
    if (!CHECK(eval_run(r->g, r->in, &o, r->arena, r->out) == GRAPHC_OK)) return;
    const EvalTensor *y = &r->out[k];
    int64_t count = 1;
    for (int i = 0; i < y->rank; i++) count *= y->dim[i];
    CHECK_EQ_I(count, n);
    for (int64_t i = 0; i < n && i < count; i++) {
        double v = dtype_is_float(y->dtype) ? dtype_load_f64(y->dtype, y->data, (size_t)i)
                                            : (double)dtype_load_i64(y->dtype, y->data, (size_t)i);
        CHECK_NEAR(v, want[i], 1e-6);
        if (want[i] == 0) CHECK_EQ_I(signbit(v) != 0, signbit(want[i]) != 0);
    }
}

#define EXPECT(r, value, ...)                                                                      \
    do {                                                                                           \
        const double want_[] = {__VA_ARGS__};                                                      \
        build_output((r)->g, "y", (value));                                                        \
        if (CHECK((r)->g->outputs.n > 0))                                                          \
            expect((r), (r)->g->outputs.n - 1, sizeof want_ / sizeof *want_, want_);               \
        arena_destroy((r)->arena);                                                                 \
    } while (0)

static void check_binary(Op op, DType t, double a, double b, double want) {
    Rig r = rig();
    Value x = input(&r, t, 0, NULL, &a), y = input(&r, t, 0, NULL, &b);
    EXPECT(&r, build_binary(r.g, op, x, y), want);
}

static void check_unary(Op op, DType t, double a, double want) {
    Rig r = rig();
    EXPECT(&r, build_unary(r.g, op, input(&r, t, 0, NULL, &a)), want);
}

static void test_maps(void) {
    check_binary(OP_max, DT_f32, NAN, 1, NAN);
    check_binary(OP_min, DT_f32, 1, NAN, NAN);
    check_binary(OP_ne, DT_f32, NAN, NAN, 1);
    check_binary(OP_mod, DT_f32, -5, 3, 1);
    check_binary(OP_rem, DT_f32, -5, 3, -2);
    check_binary(OP_mod, DT_f32, 5, -INFINITY, -INFINITY);
    check_binary(OP_pow, DT_f32, -8, 3, -512);
    check_binary(OP_div, DT_i32, -7, 2, -3);
    check_binary(OP_div, DT_i32, 7, 0, 0);
    check_binary(OP_div, DT_i32, INT32_MIN, -1, INT32_MIN);
    check_binary(OP_mod, DT_i64, -7, 3, 2);
    check_binary(OP_mod, DT_i64, -7, -3, -1);
    check_binary(OP_rem, DT_i64, -7, 3, -1);
    check_binary(OP_add, DT_i8, 100, 100, -56);
    check_binary(OP_pow, DT_i32, 2, -1, 0);
    check_binary(OP_shr, DT_i8, -128, 20, -1);
    check_binary(OP_shr, DT_u8, 128, 7, 1);
    check_binary(OP_lt, DT_u8, 200, 100, 0);
    check_unary(OP_round, DT_f32, 2.5, 2);
    check_unary(OP_round, DT_f32, -0.4, -0.0);
    check_unary(OP_sign, DT_f32, NAN, NAN);
    check_unary(OP_neg, DT_f32, 0, -0.0);
    check_unary(OP_isinf, DT_f32, -INFINITY, 1);
    check_unary(OP_not, DT_bool, 1, 0);
    check_unary(OP_not, DT_u8, 1, 254);
    check_unary(OP_sigmoid, DT_f32, -INFINITY, 0);
}

static void check_cast(DType from, double v, DType to, double want) {
    Rig r = rig();
    EXPECT(&r, build_cast(r.g, input(&r, from, 0, NULL, &v), to), want);
}

static void test_casts(void) {
    check_cast(DT_f32, -1.9, DT_i32, -1);
    check_cast(DT_f32, NAN, DT_bool, 1);
    check_cast(DT_i64, 300, DT_u8, 44);
    check_cast(DT_f32, 1e9, DT_f8e4m3fn, 448);
    check_cast(DT_f32, 65520, DT_f16, INFINITY);
    check_cast(DT_f32, 0.3, DT_f16, 0.300048828125);
    Rig r = rig();
    Value x = input(&r, DT_f32, 0, NULL, VALUES(1));
    EXPECT(&r, build_bitcast(r.g, x, DT_i32), 0x3f800000);
}

static void test_rounding(void) {
    for (int exact = 0; exact < 2; exact++) {
        Rig r = rig();
        r.exact = exact;
        Value x = input(&r, DT_f32, 0, NULL, VALUES(16777216));
        Value one = input(&r, DT_f32, 0, NULL, VALUES(1));
        Value y = build_binary(r.g, OP_sub, build_binary(r.g, OP_add, x, one), x);
        EXPECT(&r, y, exact ? 1 : 0);
    }
}

static void test_views(void) {
    Rig r = rig();
    ExprPool *p = r.g->exprs;
    Value x = input(&r, DT_f32, 2, DIMS(2, 3), VALUES(1, 2, 3, 4, 5, 6));
    Value t = build_permute(r.g, x, (uint8_t[]){1, 0});
    EXPECT(&r, build_reshape(r.g, t, 1, (Expr[]){expr_const(p, 6)}), 1, 4, 2, 5, 3, 6);

    r = rig();
    p = r.g->exprs;
    x = input(&r, DT_i32, 1, DIMS(5), VALUES(0, 1, 2, 3, 4));
    EXPECT(&r, build_slice_axis(r.g, x, 0, expr_const(p, 4), expr_const(p, 3), -2), 4, 2, 0);

    r = rig();
    p = r.g->exprs;
    x = input(&r, DT_f32, 1, DIMS(3), VALUES(1, 2, 3));
    Value nine = input(&r, DT_f32, 0, NULL, VALUES(9));
    EXPECT(&r,
           build_pad(r.g, x, nine, (Expr[]){expr_const(p, -1)}, (Expr[]){expr_const(p, 2)},
                     (int64_t[]){1}),
           9, 2, 9, 3, 9, 9);

    r = rig();
    x = input(&r, DT_f32, 1, DIMS(5), VALUES(1, 2, 3, 4, 5));
    EXPECT(&r,
           build_window(r.g, x, 1, (uint8_t[]){0}, (int64_t[]){2}, (int64_t[]){2}, (int64_t[]){2}),
           1, 3, 3, 5);

    r = rig();
    x = input(&r, DT_f32, 2, DIMS(2, 1), VALUES(1, 2));
    Value z = input(&r, DT_f32, 2, DIMS(2, 2), VALUES(3, 4, 5, 6));
    EXPECT(&r, build_concat(r.g, (Value[]){x, z, x}, 3, 1), 1, 3, 4, 1, 2, 5, 6, 2);
}

static void test_reductions(void) {
    Rig r = rig();
    Value x = input(&r, DT_f32, 3, DIMS(2, 2, 2), VALUES(1, 2, 3, 4, 5, 6, 7, 8));
    EXPECT(&r, build_reduce(r.g, OP_reduce_sum, x, 5, false), 14, 22);

    r = rig();
    x = input(&r, DT_f32, 2, DIMS(2, 3), VALUES(1, NAN, 3, -1, -2, -3));
    EXPECT(&r, build_reduce(r.g, OP_reduce_max, x, 2, true), NAN, -1);

    r = rig();
    x = input(&r, DT_f32, 2, DIMS(2, 0), VALUES(0));
    EXPECT(&r, build_reduce(r.g, OP_reduce_max, x, 2, false), -INFINITY, -INFINITY);

    r = rig();
    x = input(&r, DT_i32, 2, DIMS(2, 3), VALUES(2, 7, 7, 1, 1, 0));
    EXPECT(&r, build_arg_reduce(r.g, OP_argmax, x, 1, true, false), 2, 1);

    r = rig();
    x = input(&r, DT_f32, 1, DIMS(3), VALUES(1, NAN, NAN));
    EXPECT(&r, build_arg_reduce(r.g, OP_argmin, x, 0, false, false), 1);

    r = rig();
    x = input(&r, DT_i32, 1, DIMS(4), VALUES(1, 2, 3, 4));
    EXPECT(&r, build_scan(r.g, OP_cumsum, x, 0, true, true), 9, 7, 4, 0);

    r = rig();
    x = input(&r, DT_f32, 1, DIMS(5), VALUES(2, NAN, -0.0, 0, 5));
    EXPECT(&r, build_argsort(r.g, x, 0, true), 4, 0, 2, 3, 1);
}

static void test_contractions(void) {
    Rig r = rig();
    Value a = input(&r, DT_f32, 3, DIMS(2, 1, 2), VALUES(1, 2, 3, 4));
    Value b = input(&r, DT_f32, 2, DIMS(2, 2), VALUES(1, 10, 100, 1000));
    EXPECT(&r, build_matmul(r.g, a, b, DT_f32), 201, 2010, 403, 4030);

    r = rig();
    a = input(&r, DT_u8, 2, DIMS(5, 2), VALUES(255, 255, 1, 0, 0, 1, 2, 2, 3, 0));
    b = input(&r, DT_i8, 2, DIMS(2, 1), VALUES(-128, 1));
    EXPECT(&r, build_matmul(r.g, a, b, DT_i32), -32385, -128, 1, -254, -384);

    /* 2x2 image, 2x2 window, one column of padding on the left, two groups of one channel. */
    r = rig();
    a = input(&r, DT_f32, 4, DIMS(1, 2, 2, 2), VALUES(1, 10, 2, 20, 3, 30, 4, 40));
    b = input(&r, DT_f32, 4, DIMS(2, 2, 1, 2), VALUES(1, 1, 2, 1, 3, 1, 4, 1));
    Attr c = {
        .conv = {
            .n = 2, .stride = {1, 1}, .dilation = {1, 1}, .lo = {0, 1}, .groups = 2, .to = DT_f32}};
    EXPECT(&r, build_conv(r.g, a, b, &c), 14, 40, 30, 100);
}

static void test_indexing(void) {
    Rig r = rig();
    Value x = input(&r, DT_f32, 2, DIMS(3, 2), VALUES(1, 2, 3, 4, 5, 6));
    Value i = input(&r, DT_i64, 1, DIMS(3), VALUES(-1, 0, 7));
    EXPECT(&r, build_take(r.g, x, i, 0), 5, 6, 1, 2, 5, 6);

    r = rig();
    x = input(&r, DT_f32, 1, DIMS(3), VALUES(1, 2, 3));
    Value u = input(&r, DT_f32, 1, DIMS(4), VALUES(10, 20, 30, 40));
    i = input(&r, DT_i64, 1, DIMS(4), VALUES(0, 0, 2, 3));
    EXPECT(&r, build_scatter(r.g, x, u, (int8_t[]){-1}, &i, 1, SCATTER_add), 31, 2, 33);

    r = rig();
    x = input(&r, DT_bool, 1, DIMS(5), VALUES(1, 0, 0, 1, 1));
    Value c = build_compact(r.g, x);
    CHECK(c == build_compact(r.g, x));
    EXPECT(&r, build_binary_f(r.g, OP_mul, c, 2), 0, 6, 8);
}

/* The number of true elements, without the elements: compact defines it and must survive. */
static void test_data_symbol(void) {
    Rig r = rig();
    Value x = input(&r, DT_bool, 1, DIMS(5), VALUES(1, 0, 0, 1, 1));
    Expr count = graph_type(r.g, build_compact(r.g, x))->dim[0];
    build_output(r.g, "n", build_expr(r.g, DT_i64, expr_muli(r.g->exprs, count, 2)));
    r.g = pass_dce(r.g);
    expect(&r, 0, 1, VALUES(6));
    arena_destroy(r.arena);
}

/* sum = 0, i = 0: while (sum < limit && i < trip) { sum += i; emit sum } */
static void test_loop(void) {
    Rig r = rig();
    Value trip = input(&r, DT_i64, 0, NULL, VALUES(10)), zero = build_scalar_i(r.g, DT_i64, 0);
    Value limit = input(&r, DT_i64, 0, NULL, VALUES(7)), yes = build_scalar_i(r.g, DT_bool, 1);
    Graph *b = graph_create(r.arena, r.g->exprs, r.g->diags, "body");
    b->is_body = true;
    uint32_t iter;
    Expr i = expr_sym_new(r.g->exprs, (SymInfo){.name = "i", .kind = SYM_ITER, .hi = INT64_MAX});
    CHECK(expr_is_sym(r.g->exprs, i, &iter));
    Type scalar = {.dtype = DT_i64}, truth = {.dtype = DT_bool};
    (void)build_input(b, "cond", truth);
    Value sum = build_input(b, "sum", scalar), most = build_input(b, "limit", scalar);
    Value next = build_binary(b, OP_add, sum, build_expr(b, DT_i64, i));
    build_output(b, "cond", build_binary(b, OP_lt, next, most));
    build_output(b, "sum", next);
    build_output(b, "scan", next);
    Value t = build_loop(r.g, trip, yes, &zero, 1, &limit, 1, b, iter);
    CHECK_EQ_I(graph_node(r.g, t)->attr.control->trip, 0);
    build_output(r.g, "sum", build_proj(r.g, t, 0));
    build_output(r.g, "scan", build_proj(r.g, t, 1));
    expect(&r, 0, 1, VALUES(10));
    expect(&r, 1, 5, VALUES(0, 1, 3, 6, 10));
    arena_destroy(r.arena);
}

static void test_if(void) {
    for (int cond = 0; cond < 2; cond++) {
        Rig r = rig();
        Value c = input(&r, DT_bool, 0, NULL, VALUES(cond)), t;
        Value x = input(&r, DT_f32, 1, DIMS(2), VALUES(1, 2));
        Graph *g[2];
        for (int i = 0; i < 2; i++) {
            g[i] = graph_create(r.arena, r.g->exprs, r.g->diags, "branch");
            Value v = build_input(g[i], "x", *graph_type(r.g, x));
            build_output(g[i], "y", build_binary_f(g[i], i ? OP_add : OP_mul, v, 10));
        }
        t = build_if(r.g, c, g[0], g[1], &x, 1);
        EXPECT(&r, build_proj(r.g, t, 0), cond ? 10 : 11, cond ? 20 : 12);
    }
}

static void test_binding(void) {
    Rig r = rig();
    ExprPool *p = r.g->exprs;
    SymInfo n = {.name = "n", .kind = SYM_DIM, .lo = 1, .hi = 4};
    Type t = {.dtype = DT_f32, .rank = 1, .dim = {expr_sym_new(p, n)}};
    Value x = build_input(r.g, "x", t);
    r.in[0] = (EvalTensor){DT_f32, 1, {3}, (float[]){1, 2, 3, 4, 5}};
    build_output(r.g, "y", build_binary(r.g, OP_add, x, build_expr(r.g, DT_i64, t.dim[0])));
    CHECK_EQ_I(r.g->outputs.n, 0); /* f32 + i64 */
    Value size = build_cast(r.g, build_expr(r.g, DT_i64, t.dim[0]), DT_f32);
    build_output(r.g, "y", build_binary(r.g, OP_add, x, size));
    expect(&r, 0, 3, VALUES(4, 5, 6));
    r.in[0].dim[0] = 5;
    CHECK_EQ_I(eval_run(r.g, r.in, NULL, r.arena, r.out), GRAPHC_INVALID);
    arena_destroy(r.arena);
}

/* x plus each of many casts, which stand before all sums: a cast is made when its sum is due, and a
 * sum is written over the one before. With less than two there is no way. */
static void test_memory(void) {
    enum { N = 1000, CASTS = 8 };
    static double values[N];
    Rig r = rig();
    Value c[CASTS], x = input(&r, DT_f32, 1, DIMS(N), values);
    for (int i = 0; i < CASTS; i++)
        c[i] = build_cast(r.g, input(&r, DT_i32, 1, DIMS(N), values), DT_f32);
    for (int i = 0; i < CASTS; i++) x = build_binary(r.g, OP_add, x, c[i]);
    build_output(r.g, "y", x);
    EvalOptions o = {.max_bytes = 2 * N * sizeof(double)};
    CHECK_EQ_I(eval_run(r.g, r.in, &o, r.arena, r.out), GRAPHC_OK);
    o.max_bytes = 2 * N * sizeof(double) - 1;
    CHECK_EQ_I(eval_run(r.g, r.in, &o, r.arena, r.out), GRAPHC_NO_MEMORY);
    arena_destroy(r.arena);
}

/* Softmax of large scores, times values: with the scores asked for they are made whole, else in
 * parts, which gives the same bits within less memory than the scores take. */
static void test_parts(void) {
    enum { B = 2, M = 1100, K = 4, D = 3 };
    static double values[B * M * K];
    EvalTensor y[2];
    Rig r[2] = {rig(), rig()};
    for (int64_t i = 0; i < B * M * K; i++) values[i] = eval_uniform(DT_f32, 5, (uint64_t)i) - 0.25;
    for (int whole = 0; whole < 2; whole++) {
        Rig *x = &r[whole];
        Value q = input(x, DT_f32, 3, DIMS(B, M, K), values);
        Value k = input(x, DT_f32, 3, DIMS(B, K, M), values);
        Value v = input(x, DT_f32, 3, DIMS(B, M, D), values);
        Value s = build_dot(x->g, q, k, DT_f32);
        Value max = build_reduce(x->g, OP_reduce_max, s, 1U << 2, true);
        Value p = build_unary(x->g, OP_exp, build_binary(x->g, OP_sub, s, max));
        Value sum = build_reduce(x->g, OP_reduce_sum, p, 1U << 2, true);
        build_output(x->g, "y", build_dot(x->g, build_binary(x->g, OP_div, p, sum), v, DT_f32));
        if (whole) build_output(x->g, "s", s);
        EvalOptions o = {.max_bytes = whole ? 0 : (uint64_t)B * M * M * 8 / 2};
        if (!CHECK(eval_run(x->g, x->in, &o, x->arena, x->out) == GRAPHC_OK)) return;
        y[whole] = x->out[0];
    }
    CHECK(memcmp(y[0].data, y[1].data, sizeof(double) * B * M * D) == 0);
    for (int whole = 0; whole < 2; whole++) arena_destroy(r[whole].arena);
}

/* A view of what is large is as large: the parts go on to what is behind it. */
static void test_parts_of_views(void) {
    enum { M = 1100, N = 2000, K = 4 };
    static double values[N * K];
    Rig r = rig();
    Value x = input(&r, DT_f32, 2, DIMS(M, K), values),
          y = input(&r, DT_f32, 2, DIMS(K, N), values);
    const Expr dim[] = {expr_const(r.g->exprs, M), expr_const(r.g->exprs, 50),
                        expr_const(r.g->exprs, N / 50)};
    Value s = build_unary(r.g, OP_exp, build_reshape(r.g, build_dot(r.g, x, y, DT_f32), 3, dim));
    build_output(r.g, "y", build_reduce(r.g, OP_reduce_sum, s, 1U << 1 | 1U << 2, false));
    EvalOptions o = {.max_bytes = (uint64_t)M * N * 8 * 3 / 4};
    CHECK_EQ_I(eval_run(r.g, r.in, &o, r.arena, r.out), GRAPHC_OK);
    arena_destroy(r.arena);
}

/* A reshape that has no such axis before it is made whole. */
static void test_parts_of_split(void) {
    enum { H = 6, N = 100000 };
    static double values[H * N], want[H * 2];
    for (int i = 0; i < H * N; i++) values[i] = i % 5 - i / N;
    for (int i = 0; i < H * 2; i++)
        for (int k = 0; k < N; k++)
            want[i] += fabs(values[i / 2 * N + k]) * values[(i / 2 * N + k) / 2 * 2 + i % 2];
    Rig r = rig();
    r.exact = true;
    Value x = input(&r, DT_f32, 3, DIMS(H, 1, N), values),
          y = input(&r, DT_f32, 1, DIMS(H * N), values);
    const Expr rows[] = {expr_const(r.g->exprs, H), expr_const(r.g->exprs, N / 2),
                         expr_const(r.g->exprs, 1), expr_const(r.g->exprs, 2)};
    const Expr twice[] = {rows[0], rows[1], rows[3], rows[3]};
    const Expr all[] = {rows[0], expr_const(r.g->exprs, N), rows[3]};
    Value each = build_reshape(r.g, build_unary(r.g, OP_neg, y), 4, rows);
    each = build_reshape(r.g, build_expand(r.g, each, 4, twice), 3, all);
    Value large = build_unary(r.g, OP_abs, x);
    build_output(r.g, "y", build_unary(r.g, OP_neg, build_dot(r.g, large, each, DT_f32)));
    expect(&r, 0, H * 2, want);
    arena_destroy(r.arena);
}

/* Each of two large operands could be cut if the other was there: one is made whole. */
static void test_parts_of_both(void) {
    enum { M = 12, K = 200000 };
    static double values[M * K], want[M * M];
    for (int i = 0; i < M * K; i++) values[i] = i % 7 - 3;
    for (int i = 0; i < M * M; i++)
        for (int k = 0; k < K; k++)
            want[i] += fabs(values[i / M * K + k]) * fabs(values[k * M + i % M]);
    Rig r = rig();
    Value x = input(&r, DT_f32, 2, DIMS(M, K), values),
          y = input(&r, DT_f32, 2, DIMS(K, M), values);
    build_output(r.g, "y",
                 build_dot(r.g, build_unary(r.g, OP_abs, x), build_unary(r.g, OP_abs, y), DT_f32));
    expect(&r, 0, M * M, want);
    arena_destroy(r.arena);
}

/* ---- Rows ---- */

static uint64_t row_state = 1;
static uint64_t row_random(void) {
    return row_state = row_state * 6364136223846793005u + 1442695040888963407u;
}

/* Ordinary numbers, edges, and whatever bits give. */
static EvalScalar row_operand(DType t) {
    static const double edges[] = {0,      -0.0,    1,        -1,        0.5,     -2.5,     127.5,
                                   -128.5, 0x1p31,  -0x1p31,  0x1p63,    -0x1p63, 0x1p64,   1e300,
                                   5e-324, 0x1p-24, INFINITY, -INFINITY, NAN,     0x1.8p-25};
    uint64_t bits = row_random(), r = bits >> 40;
    uint64_t cell = 0;
    EvalScalar x;
    if (dtype_is_float(t)) {
        if (r % 3 == 0)
            x.f = edges[r / 3 % (sizeof edges / sizeof *edges)];
        else if (r % 3 == 1)
            x.f = (double)(int64_t)bits * 0x1p-60;
        else
            memcpy(&x.f, &bits, sizeof bits);
        return x;
    }
    dtype_store_i64(t, &cell, 0, r % 2 ? (int64_t)bits >> (r % 60) : (int64_t)(r % 5) - 2);
    x.i = dtype_load_i64(t, &cell, 0);
    return x;
}

/* Bit by bit, but that a NaN is a NaN. */
static bool same_scalar(DType t, EvalScalar a, EvalScalar b) {
    return a.i == b.i || (dtype_is_float(t) && isnan(a.f) && isnan(b.f));
}

static void check_rows(Op op, DType in, DType out) {
    enum { N = 203 };
    EvalScalar x[3][N], y[N];
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 3; k++) x[k][i] = row_operand(op == OP_select && k == 0 ? DT_bool : in);
    eval_scalars(op, in, out, x[0], x[1], x[2], N, y);
    for (int i = 0; i < N; i++) {
        EvalScalar want = eval_scalar(op, in, out, (EvalScalar[]){x[0][i], x[1][i], x[2][i]});
        if (same_scalar(out, want, y[i])) continue;
        CHECK_STR(op_info[op].name, "the same by rows and by elements");
        return;
    }
}

/* What evaluates rows is what evaluates elements. */
static void test_rows(void) {
    for (int o = 0; o < OP_COUNT; o++) {
        Op op = (Op)o;
        if (op_info[op].cls != OPC_MAP) continue;
        for (int t = 1; t < DT_COUNT; t++) {
            DType in = (DType)t;
            bool ok = dtype_is_float(in) ? strchr(op_info[op].domain, 'f') != NULL
                      : in == DT_bool    ? strchr(op_info[op].domain, 'b') != NULL
                                         : strchr(op_info[op].domain, 'i') != NULL;
            ok |= strchr(op_info[op].domain, '*') != NULL;
            bool tests = op_info[op].dtype_rule == 'B';
            if (op == OP_cast || op == OP_bitcast)
                for (int to = 1; to < DT_COUNT; to++) {
                    bool fits = op == OP_cast || dtype_bytes(in) == dtype_bytes((DType)to);
                    if (fits) check_rows(op, in, (DType)to);
                }
            else if (ok)
                check_rows(op, in, tests ? DT_bool : in);
        }
    }
}

/* Tiles, strips and what fills none, against sums one by one. */
static void test_multiply(void) {
    enum { M = 11, N = 29, K = 37 };
    static double a[M * K], b[K * N], c[M * N], strip[K * EVAL_STRIP];
    for (int i = 0; i < M * K; i++) a[i] = (double)row_operand(DT_i32).i * 0x1p-31 + i;
    for (int i = 0; i < K * N; i++) b[i] = (double)row_operand(DT_i32).i * 0x1p-31 - i;
    eval_multiply_f(M, N, K, a, b, N, c, strip);
    bool same = true;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += a[i * K + k] * b[k * N + j];
            same &= sum == c[i * N + j];
        }
    CHECK(same);
}

/* Operands that are widened part by part. */
static void test_large_dot(void) {
    enum { M = 45, N = 50, K = 4096 };
    static double x[M * K], y[K * N], want[M * N];
    for (int i = 0; i < M * K; i++) x[i] = i * 7 % 11 - 5;
    for (int i = 0; i < K * N; i++) y[i] = i * 5 % 13 - 6;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < K; k++) want[i * N + j] += x[i * K + k] * y[k * N + j];
    Rig r = rig();
    Value a = input(&r, DT_f32, 2, DIMS(M, K), x), b = input(&r, DT_f32, 2, DIMS(K, N), y);
    build_output(r.g, "y", build_dot(r.g, a, b, DT_f32));
    expect(&r, 0, M * N, want);
    arena_destroy(r.arena);
}

TEST_MAIN {
    test_rows();
    test_multiply();
    test_large_dot();
    test_maps();
    test_casts();
    test_rounding();
    test_views();
    test_reductions();
    test_contractions();
    test_indexing();
    test_data_symbol();
    test_loop();
    test_if();
    test_binding();
    test_memory();
    test_parts();
    test_parts_of_views();
    test_parts_of_both();
    test_parts_of_split();
    /* First numbers of splitmix64 from seed 0: 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4. */
    CHECK(eval_uniform(DT_f32, 0, 0) == (double)0xe220a8 / 0x1p24);
    CHECK(eval_uniform(DT_f64, 0, 1) == (double)(0x6e789e6aa1b965f4u >> 11) / 0x1p53);
}
