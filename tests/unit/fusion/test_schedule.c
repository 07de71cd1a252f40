/* Fusion: small graphs of every kind; kernel counts pin the decisions that matter. Attention and
 * training steps are in test_schedule_attention.c and test_schedule_step.c. */
#include "frontend/driver/bisect.h"
#include "tests/unit/fusion/schedule_rig.h"

/* --- A wrong decision is found ------------------------------------------------------------ */

/* The planted fault: where v, an exp, is computed by a kernel that does not store it, it is a tanh.
 */
static void plant(Schedule *s, Value v) {
    for (uint32_t t = 0; t < s->steps.n; t++) {
        const Kernel *k = s->steps.v[t].kernel;
        for (uint32_t i = 1; i < k->nops; i++) {
            bool stored = false;
            for (uint32_t j = i + 1; j < k->nops; j++)
                stored |= k->ops[j].op == K_kstore && k->ops[j].in[0] == i;
            if (k->ops[i].op == OP_exp && k->ops[i].node == v && !stored) k->ops[i].op = OP_tanh;
        }
    }
}

typedef struct Planted {
    Rig *r;
    Value v;
    Schedule *s;
} Planted;

static graphc_status ask_planted(void *ctx, uint32_t n, bool *wrong) {
    Planted *p = ctx;
    GC_TRY(schedule_build(p->r->g, &target_for(PLAN_cpu)->machine, n, p->r->a, &p->s));
    plant(p->s, p->v);
    double e = check_schedule(p->r->g, p->s, p->r->in, p->r->a);
    *wrong = !(e >= 0 && e < 1e-5);
    return GRAPHC_OK;
}

static void bisected(void) {
    Rig r = rig();
    Value x = softmax(&r, input(&r, DT_f32, D(6, 32))), at[3];
    for (int i = 0; i < 3; i++) {
        Value sum = build_reduce(r.g, OP_reduce_sum, build_unary(r.g, OP_neg, x), 2, true);
        at[i] = build_unary(r.g, OP_exp, build_binary(r.g, OP_add, x, sum));
        x = build_binary(r.g, OP_mul, build_unary(r.g, OP_tanh, at[i]), x);
    }
    build_output(r.g, "y", x);
    for (int i = 0; i < 3; i++) {
        Planted p = {.r = &r, .v = at[i]};
        bool wrong = true;
        uint32_t first = 0;
        CHECK(ask_planted(&p, 0, &wrong) == GRAPHC_OK && !wrong);
        CHECK(ask_planted(&p, FUSE_ALL, &wrong) == GRAPHC_OK && wrong);
        CHECK(bisect(0, p.s->decisions, ask_planted, &p, &first) == GRAPHC_OK);
        CHECK(ask_planted(&p, first - 1, &wrong) == GRAPHC_OK && !wrong);
        CHECK(ask_planted(&p, first, &wrong) == GRAPHC_OK && wrong);
        char begin[32];
        snprintf(begin, sizeof begin, "%%%u exp", at[i]);
        if (!CHECK(p.s->last_decision && !strncmp(p.s->last_decision, begin, strlen(begin))))
            printf("%u: %s, not %s\n", first, p.s->last_decision, begin);
    }
    arena_destroy(r.a);
}

static void maps(void) {
    Rig r = rig();
    Value x = input(&r, DT_f32, D(3, 40)), y = input(&r, DT_f32, D(40));
    Value z = build_unary(r.g, OP_tanh, build_binary(r.g, OP_add, x, y));
    expect(&r, build_binary(r.g, OP_mul, z, x), 1);

    r = rig();
    x = input(&r, DT_f16, D(2, 6, 4));
    z = build_permute(r.g, build_unary(r.g, OP_neg, x), (uint8_t[]){2, 0, 1});
    z = dims(&r, z, D(4, 12));
    expect(&r, build_cast(r.g, z, DT_f32), 1);

    r = rig(); /* concat, pad, slice in one kernel */
    x = input(&r, DT_f32, D(4, 6));
    y = build_concat(r.g, (Value[]){x, build_unary(r.g, OP_exp, x)}, 2, 1);
    Expr two[] = {expr_const(r.g->exprs, 1), expr_const(r.g->exprs, 2)};
    z = build_pad(r.g, y, build_scalar_f(r.g, DT_f32, 3), two, two, NULL);
    expect(&r, build_slice_axis(r.g, z, 1, two[0], expr_const(r.g->exprs, 7), 2), 1);
}

static void rows(void) {
    Rig r = rig();
    expect(&r, softmax(&r, input(&r, DT_f32, D(3, 5, 17))), 1);

    r = rig(); /* residual sum is stored next to its norm */
    Value x = input(&r, DT_f32, D(6, 32)), y = input(&r, DT_f32, D(6, 32));
    Value s = build_binary(r.g, OP_add, x, y);
    build_output(r.g, "s", s);
    expect(&r, layernorm(&r, s), 1);

    r = rig(); /* group norm over split channels, channels last */
    x = input(&r, DT_f32, D(2, 9, 8));
    Value gx = dims(&r, x, D(2, 9, 4, 2));
    Value m = build_mean(r.g, gx, 0xa, true);
    Value d = build_binary(r.g, OP_sub, gx, m);
    Value v = build_mean(r.g, build_binary(r.g, OP_mul, d, d), 0xa, true);
    v = build_unary(r.g, OP_rsqrt, build_binary_f(r.g, OP_add, v, 1e-5));
    expect(&r, dims(&r, build_binary(r.g, OP_mul, d, v), D(2, 9, 8)), 1);

    r = rig(); /* group norm spelled channels first with a flattened row */
    x = input(&r, DT_f32, D(2, 8, 3, 3));
    gx = dims(&r, x, D(2, 4, 18));
    d = build_binary(r.g, OP_sub, gx, build_mean(r.g, gx, 4, true));
    Value sc = weight(&r, D(8, 1, 1));
    expect(&r, build_binary(r.g, OP_mul, dims(&r, d, D(2, 8, 3, 3)), sc), 1);

    r = rig();
    x = input(&r, DT_f32, D(4, 7, 3));
    build_output(r.g, "i", build_arg_reduce(r.g, OP_argmax, x, 1, false, false));
    expect(&r, build_reduce(r.g, OP_reduce_max, build_unary(r.g, OP_abs, x), 5, false), 2);
}

static void contractions(void) {
    Rig r = rig(); /* bias, gelu-like epilogue; packed weights */
    Value x = input(&r, DT_f32, D(2, 5, 24)), w = weight(&r, D(24, 50)), b = weight(&r, D(50));
    Value y = build_binary(r.g, OP_add, build_matmul(r.g, x, w, DT_f32), b);
    expect(&r, build_binary(r.g, OP_mul, y, build_unary(r.g, OP_sigmoid, y)), 1);

    r = rig(); /* gate and up projections meet in one kernel */
    x = input(&r, DT_f32, D(5, 16));
    y = build_matmul(r.g, x, weight(&r, D(16, 40)), DT_f32);
    Value u = build_matmul(r.g, x, weight(&r, D(16, 40)), DT_f32);
    y = build_binary(r.g, OP_mul, build_unary(r.g, OP_sigmoid, y), u);
    expect(&r, y, 1);

    r = rig(); /* residual and norm after a projection: two kernels */
    x = input(&r, DT_f32, D(5, 32));
    y = build_binary(r.g, OP_add, build_matmul(r.g, x, weight(&r, D(32, 32)), DT_f32), x);
    build_output(r.g, "h", y);
    expect(&r, layernorm(&r, y), 2);

    r = rig(); /* both operands at run time */
    x = input(&r, DT_f32, D(2, 3, 4, 5));
    y = input(&r, DT_f32, D(2, 3, 5, 6));
    expect(&r, build_matmul(r.g, x, y, DT_f32), 1);
}

/* A matrix of 16 bits that is a product itself. */
static Value product(Rig *r, int64_t rows, int64_t columns) {
    Value x = input(r, DT_bf16, D(rows, 8)), w = input(r, DT_bf16, D(8, columns));
    return build_cast(r->g, build_matmul(r->g, x, w, DT_f32), DT_bf16);
}

/* Products whose results are added, rounded or not: kernels on a GPU. `computed`: operands of the
 * second. */
static uint32_t summed(bool between, uint32_t computed) {
    Rig r = rig();
    Schedule *s = NULL;
    uint32_t n = 0;
    Value x = input(&r, DT_bf16, D(24, 40)), w = input(&r, DT_bf16, D(40, 64));
    Value p = computed > 0 ? product(&r, 24, 16) : input(&r, DT_bf16, D(24, 16));
    Value q = computed > 1 ? product(&r, 16, 64) : input(&r, DT_bf16, D(16, 64));
    Value a = build_cast(r.g, build_matmul(r.g, x, w, DT_f32), DT_bf16);
    Value b = build_matmul(r.g, p, q, DT_f32);
    if (between) b = build_unary(r.g, OP_tanh, b);
    Value y = build_binary(r.g, OP_add, a, build_cast(r.g, b, DT_bf16));
    build_output(r.g, "y", y);
    r.g = pass_dce(pass_join_sums(r.g));
    CHECK(schedule_build(r.g, &target_for(PLAN_cuda)->machine, FUSE_ALL, r.a, &s) == GRAPHC_OK);
    double e = check_schedule(r.g, s, r.in, r.a);
    CHECK(e >= 0 && e < 0.05);
    n = s->steps.n;
    arena_destroy(r.a);
    return n;
}

static void sums_of_products(void) {
    CHECK_EQ_I(summed(false, 0), 1);
    CHECK_EQ_I(summed(true, 0), 2);
    CHECK_EQ_I(summed(false, 1), 2);
    CHECK_EQ_I(summed(false, 2), 4); /* a weight's gradient: both would be kept for the kernel */
}

/* Prepare steps of rows x w on a GPU. */
static uint32_t prepared(int64_t rows) {
    Rig r = rig();
    Schedule *s = NULL;
    uint32_t n = 0;
    Value x = input(&r, DT_f32, D(rows, 24)), w = weight(&r, D(24, 50));
    build_output(r.g, "y", build_matmul(r.g, x, w, DT_f32));
    CHECK(schedule_build(r.g, &target_for(PLAN_cuda)->machine, FUSE_ALL, r.a, &s) == GRAPHC_OK);
    double e = check_schedule(r.g, s, r.in, r.a);
    CHECK(e >= 0 && e < 1e-5);
    for (uint32_t i = 0; i < s->steps.n; i++) n += s->steps.v[i].prepare;
    arena_destroy(r.a);
    return n;
}

/* With one row each column of weights is read by itself: it lies side by side. */
static void one_row(void) {
    CHECK_EQ_I(prepared(1), 1);
    CHECK_EQ_I(prepared(2), 0);
}

/* Kernels of a projection of rows, gated by another of the norm of the sum on a GPU. */
static uint32_t kernels_behind_norm(int64_t rows, bool shared) {
    Rig r = rig();
    Schedule *s = NULL;
    uint32_t n = 0;
    Value x = input(&r, DT_f32, D(rows, 24));
    Value h = build_binary(r.g, OP_add, build_matmul(r.g, x, weight(&r, D(24, 24)), DT_f32), x);
    Value norm = layernorm(&r, h);
    Value y = build_matmul(r.g, norm, weight(&r, D(24, 50)), DT_f32);
    Value u = build_matmul(r.g, norm, weight(&r, D(24, 50)), DT_f32);
    build_output(r.g, "h", h);
    build_output(r.g, "y", build_binary(r.g, OP_mul, build_unary(r.g, OP_sigmoid, y), u));
    if (shared) build_output(r.g, "norm", norm);
    CHECK(schedule_build(r.g, &target_for(PLAN_cuda)->machine, FUSE_ALL, r.a, &s) == GRAPHC_OK);
    double e = check_schedule(r.g, s, r.in, r.a);
    CHECK(e >= 0 && e < 1e-5);
    for (uint32_t i = 0; i < s->steps.n; i++) n += !s->steps.v[i].prepare;
    arena_destroy(r.a);
    return n;
}

/* The norm of the only row is computed where it is multiplied, unless it is stored anyway. */
static void norm_of_row(void) {
    CHECK_EQ_I(kernels_behind_norm(1, false), 2);
    CHECK_EQ_I(kernels_behind_norm(1, true), 3);
    CHECK_EQ_I(kernels_behind_norm(2, false), 3);
}

static Attr conv_attr(int64_t stride, int64_t pad, int64_t groups) {
    Attr a = {.conv = {.n = 2, .groups = groups, .to = DT_f32}};
    for (int i = 0; i < 2; i++) {
        a.conv.stride[i] = stride;
        a.conv.dilation[i] = 1;
        a.conv.lo[i] = a.conv.hi[i] = pad;
    }
    return a;
}

/* Weights as they are, as an exporter leaves them, and scaled at load. */
typedef enum WinoWeights { WINO_plain, WINO_turned, WINO_scaled } WinoWeights;

static Value wino_weights(Rig *r, WinoWeights form) {
    const uint8_t order[4] = {2, 3, 1, 0};
    if (form == WINO_turned) return build_permute(r->g, weight(r, D(50, 20, 3, 3)), order);
    Value w = weight(r, D(3, 3, 20, 50));
    return form == WINO_plain ? w : build_binary(r->g, OP_mul, w, weight(r, D(50)));
}

/* In Winograd's form: each weight is read once, whatever it is made of, for all 16 planes. */
static void winograd_weights(WinoWeights form) {
    Rig r = rig();
    Schedule *s = NULL;
    uint32_t loads = 0, stores = 0, folds = 0;
    Attr a = conv_attr(1, 1, 1);
    Value x = input(&r, DT_f32, D(1, 8, 9, 20));
    build_output(r.g, "y", build_conv(r.g, x, wino_weights(&r, form), &a));
    CHECK(schedule_build(r.g, &target_for(PLAN_cpu)->machine, FUSE_ALL, r.a, &s) == GRAPHC_OK);
    double e = check_schedule(r.g, s, r.in, r.a);
    CHECK(e >= 0 && e < 1e-5);
    CHECK(s->steps.n == 2 && s->steps.v[0].prepare);
    const Kernel *k = s->steps.v[0].kernel;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        loads += o->op == K_kload && k->params[o->buf].numel == k->params[0].numel;
        stores += o->op == K_kstore;
        folds += o->op == K_kreduce;
    }
    CHECK_EQ_I(loads, 9);
    CHECK_EQ_I(stores, 16);
    CHECK_EQ_I(folds, 0);
    arena_destroy(r.a);
}

static void convolutions(void) {
    for (int64_t groups = 1; groups <= 16; groups *= 4) {
        Rig r = rig();
        Value x = input(&r, DT_f32, D(2, 7, 7, 16));
        Value w = weight(&r, D(3, 3, 16 / groups, groups == 16 ? 16 : 80));
        Attr a = conv_attr(groups == 1 ? 2 : 1, 1, groups);
        Value y = build_conv(r.g, x, w, &a);
        y = build_binary(r.g, OP_max, y, build_scalar_f(r.g, DT_f32, 0));
        expect(&r, y, 1);
    }
}

static void indices(void) {
    Rig r = rig();
    Value t = weight(&r, D(10, 8)), i = input_below(&r, DT_i64, 10, D(2, 3));
    expect(&r, build_unary(r.g, OP_exp, build_take(r.g, t, i, 0)), 1);

    r = rig();
    Value x = input(&r, DT_f32, D(5, 6));
    expect(&r, build_scan(r.g, OP_cumsum, build_unary(r.g, OP_neg, x), 1, true, true), 1);

    r = rig();
    x = input(&r, DT_f32, D(4, 9));
    expect(&r, build_argsort(r.g, x, 1, true), 1);

    r = rig();
    x = input(&r, DT_f32, D(6, 4));
    Value u = input(&r, DT_f32, D(3, 4));
    Value at = input_below(&r, DT_i64, 6, D(3, 4));
    expect(&r, build_scatter(r.g, x, u, (int8_t[]){-1, 1}, &at, 1, SCATTER_add), 0);

    r = rig();
    Value m = input(&r, DT_bool, D(20));
    x = input(&r, DT_f32, D(20));
    expect(&r, build_take(r.g, x, build_compact(r.g, m), 0), 2);

    r = rig();
    Type ty = type_of(&r, DT_f32, D(4, 5));
    expect(&r, build_unary(r.g, OP_neg, build_uniform(r.g, DT_f32, 2, ty.dim, 7)), 1);

    r = rig(); /* dropout with the draw as an input; the mask is computed again where it is read */
    x = input(&r, DT_f32, D(40, 5));
    Value draw = input_below(&r, DT_i64, 1 << 20, 0, NULL);
    ty = type_of(&r, DT_f32, D(40, 5));
    Value drawn = build_uniform_draw(r.g, DT_f32, 2, ty.dim, 7, draw);
    Value keep = build_cast(r.g, build_binary_f(r.g, OP_lt, drawn, 0.9), DT_f32);
    build_output(r.g, "dropped", build_binary(r.g, OP_mul, x, keep));
    expect(&r, build_reduce(r.g, OP_reduce_sum, build_binary(r.g, OP_mul, x, keep), 1, false), 0);
}

/* Sizes that fall with a count, of a value that nothing else needs. */
static void counted(void) {
    Rig r = rig();
    ExprPool *p = r.g->exprs;
    Value m = input(&r, DT_bool, D(20)), x = input(&r, DT_f32, D(20));
    Expr n = expr_const(p, 20), count = graph_type(r.g, build_compact(r.g, m))->dim[0];
    Value rest = build_slice_axis(r.g, x, 0, count, expr_sub(p, n, count), 1);
    rest = build_scan(r.g, OP_cumsum, rest, 0, false, false);
    expect(&r, build_unary(r.g, OP_neg, rest), 3);
}

/* A kernel may not store what it also reads elsewhere. */
static void read_elsewhere(void) {
    Rig r = rig();
    Value x = input(&r, DT_f32, D(3, 5)), i = input_below(&r, DT_i64, 3, D(3));
    Value e = build_unary(r.g, OP_exp, x);
    Value p = build_binary(r.g, OP_div, e, build_reduce(r.g, OP_reduce_sum, e, 1, true));
    Value d = build_binary(r.g, OP_sub, p, input(&r, DT_f32, D(1, 5)));
    Value row = build_slice_axis(r.g, build_take(r.g, d, i, 0), 0, expr_const(r.g->exprs, 1),
                                 expr_const(r.g->exprs, 1), 1);
    expect(&r, build_binary(r.g, OP_sub, row, p), 0);
}

/* A merged axis walked backwards: its split has positive sizes. */
static void backwards(void) {
    Rig r = rig();
    Value x = input(&r, DT_f32, D(3, 8, 16));
    Expr zero = expr_const(r.g->exprs, 0), n = expr_const(r.g->exprs, 80);
    x = build_slice_axis(r.g, x, 2, zero, expr_const(r.g->exprs, 10), 1);
    x = build_slice_axis(r.g, dims(&r, x, D(3, 80)), 1, expr_addi(r.g->exprs, n, -1), n, -1);
    expect(&r, build_unary(r.g, OP_neg, x), 1);
}

/* More values meet than one kernel has params. */
static void wide(void) {
    Rig r = rig();
    Value x = input(&r, DT_f32, D(3, 4)), scan[100];
    for (int i = 0; i < 100; i++) {
        Value scaled = build_binary_f(r.g, OP_mul, x, 0.01 * i);
        scan[i] = build_scan(r.g, OP_cumsum, scaled, 1, false, false);
    }
    Value sum = scan[0];
    for (int i = 1; i < 100; i++) sum = build_binary(r.g, OP_add, sum, scan[i]);
    expect(&r, sum, 0);
}

/* A concatenation of two projections: each stores its part. */
static void concatenation(void) {
    Rig r = rig();
    Value x = input(&r, DT_f32, D(5, 16));
    Value a = build_matmul(r.g, x, weight(&r, D(16, 32)), DT_f32);
    Value b = build_matmul(r.g, x, weight(&r, D(16, 48)), DT_f32);
    Value c = build_concat(r.g, (Value[]){a, b}, 2, 1);
    Value d = build_matmul(r.g, c, weight(&r, D(80, 16)), DT_f32);
    build_output(r.g, "d", d);
    expect(&r, build_unary(r.g, OP_exp, b), 3);

    r = rig(); /* a list that grows: each reader finds it in the buffer of the longest */
    x = input(&r, DT_f32, D(5, 16));
    Value list = build_matmul(r.g, x, weight(&r, D(16, 32)), DT_f32);
    for (int i = 0; i < 3; i++) {
        Value next = build_matmul(r.g, list, weight(&r, D(32 + 16 * i, 16)), DT_f32);
        list = build_concat(r.g, (Value[]){list, next}, 2, 1);
    }
    expect(&r, build_unary(r.g, OP_exp, list), 5);

    r = rig(); /* an output that is an input, one that is a view, one value twice: stored for both
                */
    x = input(&r, DT_f32, D(3, 4));
    Value y = build_unary(r.g, OP_exp, x);
    build_output(r.g, "a", x);
    build_output(r.g, "b", y);
    build_output(r.g, "c", y);
    expect(&r, build_permute(r.g, y, (uint8_t[]){1, 0}), 2);
}

/* --- One launch for many ------------------------------------------------------------------- */

/* Steps of a run of the schedule for GPUs, or of one that gives each launch a kernel. */
static void launches(Rig *r, bool repeats, uint32_t steps) {
    Machine m = target_for(PLAN_cuda)->machine;
    Schedule *s = NULL;
    m.repeats = repeats;
    if (!CHECK(schedule_build(r->g, &m, FUSE_ALL, r->a, &s) == GRAPHC_OK)) return;
    CHECK_EQ_I(s->steps.n, steps);
    double e = check_schedule(r->g, s, r->in, r->a);
    CHECK(e >= 0 && e < 1e-5);
}

static Value squares(Rig *r, Value x) {
    return build_reduce(r->g, OP_reduce_sum, build_binary(r->g, OP_mul, x, x), 3, true);
}

static Value scaled(Rig *r, Value x) {
    return build_binary(r->g, OP_mul, x, squares(r, x));
}

/* Six states of one size, each scaled by its norm, and one of another: next values, and stores of
 * them. Then one that waits for another, and one that stands with either. */
static void equal_kernels(void) {
    Rig r = rig();
    for (uint32_t i = 0; i < 7; i++) {
        Value w = state_of(&r, arena_printf(r.a, "w%u", i), D(12, i < 6 ? 20 : 21));
        build_write(r.g, w, scaled(&r, w));
    }
    launches(&r, false, 14);
    launches(&r, true, 4);
    arena_destroy(r.a);

    r = rig();
    Value x = input(&r, DT_f32, D(12, 20)), y = scaled(&r, x);
    build_output(r.g, "y", y);
    Value t = build_matmul(r.g, y, weight(&r, D(20, 20)), DT_f32);
    build_output(r.g, "z", scaled(&r, t));
    build_output(r.g, "other", scaled(&r, input(&r, DT_f32, D(12, 20))));
    launches(&r, false, 4);
    launches(&r, true, 3);
    arena_destroy(r.a);
}

TEST_MAIN {
    equal_kernels();
    maps();
    rows();
    contractions();
    one_row();
    norm_of_row();
    sums_of_products();
    convolutions();
    for (WinoWeights w = WINO_plain; w <= WINO_scaled; w++) winograd_weights(w);
    indices();
    counted();
    read_elsewhere();
    backwards();
    wide();
    concatenation();
    bisected();
}
