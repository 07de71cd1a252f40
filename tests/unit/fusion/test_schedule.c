/* Fusion: small graphs are scheduled, run by the kernel interpreter and compared with the graph
 * evaluator; kernel counts pin the decisions that matter. */
#include "codegen/target.h"
#include "frontend/driver/bisect.h"
#include "graph/pass/pass.h"
#include "tests/unit/fusion/schedule_check.h"
#include "tests/unit/test.h"

typedef struct Rig {
    Arena *a;
    Graph *g;
    EvalTensor in[16];
} Rig;

static Rig rig(void) {
    Rig r = {.a = arena_create()};
    r.g = graph_create(r.a, expr_pool_create(r.a), diag_create(r.a, NULL), "test");
    return r;
}

static Type type_of(Rig *r, DType t, uint8_t rank, const int64_t *dim) {
    Type type = {.dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) type.dim[i] = expr_const(r->g->exprs, dim[i]);
    return type;
}

static EvalTensor tensor(Rig *r, DType t, uint8_t rank, const int64_t *dim, int64_t below) {
    EvalTensor x = {.dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) x.dim[i] = dim[i];
    x.data = arena_array(r->a, (size_t)check_numel(&x) + 1, dtype_bytes(t));
    check_fill(&x, r->g->nodes.n, below);
    return x;
}

#define D(...)                                                                                     \
    (sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]) {                                    \
        __VA_ARGS__                                                                                \
    }

static Value input_below(Rig *r, DType t, int64_t below, uint8_t rank, const int64_t *dim) {
    r->in[r->g->inputs.n] = tensor(r, t, rank, dim, below);
    char name[8];
    snprintf(name, sizeof name, "x%u", r->g->inputs.n);
    return build_input(r->g, arena_strdup(r->a, name), type_of(r, t, rank, dim));
}

static Value input(Rig *r, DType t, uint8_t rank, const int64_t *dim) {
    return input_below(r, t, 10, rank, dim);
}

static Value weight(Rig *r, uint8_t rank, const int64_t *dim) {
    EvalTensor x = tensor(r, DT_f32, rank, dim, 1);
    Constant c = {.data = x.data, .bytes = (uint64_t)check_numel(&x) * 4, .name = "w"};
    return build_const(r->g, type_of(r, DT_f32, rank, dim), c);
}

static Value dims(Rig *r, Value x, uint8_t rank, const int64_t *dim) {
    Type t = type_of(r, DT_f32, rank, dim);
    return build_reshape(r->g, x, rank, t.dim);
}

/* With fewer decisions of fusion there are other kernels, and the same result. */
static void expect_any_limit(Rig *r, uint32_t decisions) {
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t n = i < 5 ? decisions * i / 5 : decisions - 1;
        Schedule *s = NULL;
        if (n >= decisions) continue;
        if (!CHECK(schedule_build(r->g, &target_for(PLAN_cpu)->machine, n, r->a, &s) == GRAPHC_OK))
            return;
        CHECK_EQ_I(s->decisions, n);
        CHECK(n == 0 ? !s->last_decision : s->last_decision != NULL);
        double e = check_schedule(r->g, s, r->in, r->a);
        if (CHECK(e >= 0 && e < 1e-5)) continue;
        printf("%u of %u decisions: difference %g; the last: %s\n", n, decisions, e,
               s->last_decision ? s->last_decision : "");
    }
}

/* Schedules for both targets; on the CPU in `kernels` kernels (0 = any number). */
static void expect(Rig *r, Value y, uint32_t kernels) {
    if (y) build_output(r->g, "y", y);
    r->g = pass_raise(pass_dce(r->g));
    for (int gpu = 0; gpu < 2; gpu++) {
        Schedule *s = NULL;
        graphc_status st = schedule_build(r->g, &target_for(gpu ? PLAN_cuda : PLAN_cpu)->machine,
                                          FUSE_ALL, r->a, &s);
        for (uint32_t i = 0; i < diag_count(r->g->diags); i++)
            puts(diag_render(r->g->diags, diag_at(r->g->diags, i), r->a, false));
        if (!CHECK(st == GRAPHC_OK)) break;
        double e = check_schedule(r->g, s, r->in, r->a);
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->steps.n; i++) n += !s->steps.v[i].prepare;
        bool ok = CHECK(e >= 0 && e < 1e-5);
        if (kernels && !gpu) {
            CHECK_EQ_I(n, kernels);
            ok = ok && n == kernels;
        }
        if (!gpu) expect_any_limit(r, s->decisions);
        if (ok) continue;
        StrBuf out;
        sb_init(&out, r->a);
        schedule_print(s, &out);
        printf("difference %g\n%s\n", e, sb_str(&out));
    }
    arena_destroy(r->a);
}

static Value softmax(Rig *r, Value x) {
    const Type *t = graph_type(r->g, x);
    uint32_t last = 1u << (t->rank - 1);
    Value e = build_unary(
        r->g, OP_exp,
        build_binary(r->g, OP_sub, x, build_reduce(r->g, OP_reduce_max, x, last, true)));
    return build_binary(r->g, OP_div, e, build_reduce(r->g, OP_reduce_sum, e, last, true));
}

static Value layernorm(Rig *r, Value x) {
    uint32_t last = 1u << (graph_type(r->g, x)->rank - 1);
    Value d = build_binary(r->g, OP_sub, x, build_mean(r->g, x, last, true));
    Value v = build_mean(r->g, build_binary(r->g, OP_mul, d, d), last, true);
    v = build_unary(r->g, OP_rsqrt, build_binary_f(r->g, OP_add, v, 1e-5));
    return build_binary(r->g, OP_mul, d, v);
}

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

/* Heads split from one projection, grouped keys, an additive mask, merged heads. */
static void attention(bool mask) {
    Rig r = rig();
    Value x = input(&r, DT_f32, D(2, 6, 64));
    Value qkv = build_matmul(r.g, x, weight(&r, D(64, 128)), DT_f32);
    Expr zero = expr_const(r.g->exprs, 0), n = expr_const(r.g->exprs, 64);
    Value q = build_slice_axis(r.g, qkv, 2, zero, n, 1);
    q = build_permute(r.g, dims(&r, q, D(2, 6, 4, 16)), (uint8_t[]){0, 2, 1, 3});
    Value kv[2];
    for (int i = 0; i < 2; i++) {
        Expr at = expr_const(r.g->exprs, 64 + 32 * i), size = expr_const(r.g->exprs, 32);
        Value k = dims(&r, build_slice_axis(r.g, qkv, 2, at, size, 1), D(2, 6, 2, 16));
        k = dims(&r, build_permute(r.g, k, (uint8_t[]){0, 2, 1, 3}), D(2, 2, 1, 6, 16));
        Type t = type_of(&r, DT_f32, D(2, 2, 2, 6, 16));
        kv[i] = dims(&r, build_expand(r.g, k, 5, t.dim), D(2, 4, 6, 16));
    }
    Value s = build_matmul(r.g, q, build_permute(r.g, kv[0], (uint8_t[]){0, 1, 3, 2}), DT_f32);
    s = build_binary_f(r.g, OP_mul, s, 0.25);
    if (mask) s = build_binary(r.g, OP_add, s, input(&r, DT_f32, D(2, 1, 1, 6)));
    Value o = build_matmul(r.g, softmax(&r, s), kv[1], DT_f32);
    o = dims(&r, build_permute(r.g, o, (uint8_t[]){0, 2, 1, 3}), D(2, 6, 64));
    o = build_binary(r.g, OP_add, build_matmul(r.g, o, weight(&r, D(64, 64)), DT_f32), x);
    expect(&r, o, 3);
}

/* Scores of 6 queries and 9 keys in heads of 16, masked so that query 0 sees nothing; values. */
static Value scores_and_values(Rig *r, Value *values) {
    Value q = input(r, DT_f32, D(2, 3, 6, 16)), k = input(r, DT_f32, D(2, 3, 16, 9));
    *values = input(r, DT_f32, D(2, 3, 9, 8));
    Value s = build_binary_f(r->g, OP_mul, build_dot(r->g, q, k, DT_f32), 0.25);
    Type t = *graph_type(r->g, s);
    Value row = build_iota(r->g, DT_i64, 4, t.dim, 2), col = build_iota(r->g, DT_i64, 4, t.dim, 3);
    Value low = build_scalar_f(r->g, DT_f32, -INFINITY);
    return build_select(r->g, build_binary(r->g, OP_lt, col, row), s, low);
}

/* The log of the sum of exponentials comes from attention's kernel, in whatever order they are
 * made; what has no kernel is decomposed. */
static void statistics(void) {
    for (int first = 0; first < 2; first++) {
        Rig r = rig();
        Value v, lse = 0, o = 0, s = scores_and_values(&r, &v);
        for (int i = 0; i < 2; i++)
            if (i == first)
                lse = build_logsumexp(r.g, s, DT_f32);
            else
                o = build_attention(r.g, s, v, DT_f32, true);
        build_output(r.g, "lse", build_binary_f(r.g, OP_mul, lse, 2));
        expect(&r, build_unary(r.g, OP_tanh, o), 2);
    }
    for (int other = 0; other < 4; other++) {
        Rig r = rig();
        Value v, s = scores_and_values(&r, &v);
        Value lse = build_logsumexp(r.g, s, DT_f32);
        if (other == 0) build_output(r.g, "s", s);
        if (other == 1)
            v = build_binary(r.g, OP_mul, v, build_reduce(r.g, OP_reduce_sum, lse, 7, false));
        if (other == 2)
            build_output(r.g, "twice",
                         build_attention(r.g, s, build_unary(r.g, OP_exp, v), DT_f32, true));
        Value o = other == 3 ? 0 : build_attention(r.g, s, v, DT_f32, true);
        build_output(r.g, "lse", lse);
        expect(&r, o, 0);
    }
    Rig r = rig(); /* scores without a contraction */
    Value x = input(&r, DT_f32, D(4, 6, 7));
    expect(&r, build_attention(r.g, x, input(&r, DT_f32, D(4, 7, 3)), DT_f32, false), 0);
}

/* What lies behind an attention is more than its kernel can store, whatever fusion was stopped at:
 * the kernel must not wait for others that read its result. */
static void behind_attention(void) {
    for (int outputs = 0; outputs < 2; outputs++) {
        Rig r = rig();
        Value v, s = scores_and_values(&r, &v);
        Value x = build_attention(r.g, s, v, DT_f32, true), y = x;
        build_output(r.g, "lse", build_logsumexp(r.g, s, DT_f32));
        for (int i = 0; i < 12; i++) {
            x = build_unary(r.g, i % 2 ? OP_tanh : OP_neg, build_binary_f(r.g, OP_add, x, 0.1));
            if (outputs) build_output(r.g, arena_printf(r.a, "o%d", i), x);
            y = build_binary(r.g, OP_add, y, build_binary(r.g, OP_mul, x, x));
        }
        build_output(r.g, "y", build_reduce(r.g, OP_reduce_sum, y, 4, false));
        for (uint32_t n = 0; n < 40; n++) {
            Schedule *p = NULL;
            const Machine *m = &target_for(n % 2 ? PLAN_cuda : PLAN_cpu)->machine;
            CHECK(schedule_build(r.g, m, n / 2, r.a, &p) == GRAPHC_OK);
            double e = p ? check_schedule(r.g, p, r.in, r.a) : 1;
            if (!CHECK(e < 1e-4)) printf("%u decisions: difference %g\n", n / 2, e);
        }
        expect(&r, 0, 0);
    }
}

static Value turned(Rig *r, Value x) {
    return build_permute(r->g, x, (uint8_t[]){0, 1, 3, 2});
}

/* [2, 2, 9, 16] for the 4 heads of queries. */
static Value repeated(Rig *r, Value x) {
    Type t = type_of(r, DT_f32, D(2, 2, 2, 9, 16));
    x = build_expand(r->g, dims(r, x, D(2, 2, 1, 9, 16)), 5, t.dim);
    return dims(r, x, D(2, 4, 9, 16));
}

/* Rounded to what is multiplied, which kernels may leave out. */
static Value rounded(Rig *r, Value x, DType t) {
    return t == DT_f32 ? x : build_cast(r->g, x, t);
}

/* Gradients as they are derived: from the probabilities, by the scores' own gradient. */
static Value derive_gradients(Rig *r, DType type, bool shared, bool causal) {
    Graph *g = r->g;
    Value q = input(r, type, D(2, 4, 6, 16)), k, v;
    k = shared ? repeated(r, input(r, type, D(2, 2, 9, 16))) : input(r, type, D(2, 4, 9, 16));
    v = shared ? repeated(r, input(r, type, D(2, 2, 9, 16))) : input(r, type, D(2, 4, 9, 16));
    Value dy = input(r, type, D(2, 4, 6, 16)), keep = 0;
    Value s = build_binary_f(g, OP_mul, build_dot(g, q, turned(r, k), DT_f32), 0.25);
    Type t = *graph_type(g, s);
    Value row = build_iota(g, DT_i64, 4, t.dim, 2), col = build_iota(g, DT_i64, 4, t.dim, 3);
    if (causal) {
        keep = build_binary(g, OP_le, col, build_binary_f(g, OP_add, row, 3));
        s = build_select(g, keep, s, build_scalar_f(g, DT_f32, -INFINITY));
    }
    Value o = build_attention(g, s, v, DT_f32, false);
    Value lse = build_unsqueeze(g, build_logsumexp(g, s, DT_f32), -1);
    Value p = build_unary(g, OP_exp, build_binary(g, OP_sub, s, lse));
    Value dp = build_dot(g, dy, turned(r, v), DT_f32);
    Value product = build_binary(g, OP_mul, type == DT_f32 ? dy : build_cast(g, dy, DT_f32), o);
    Value sum = build_reduce(g, OP_reduce_sum, product, 8, true);
    Value ds = build_binary(g, OP_mul, p, build_binary(g, OP_sub, dp, sum));
    if (causal) ds = build_select(g, keep, ds, build_scalar_f(g, DT_f32, 0));
    ds = rounded(r, build_binary_f(g, OP_mul, ds, 0.25), type);
    Value d[3] = {build_dot(g, ds, k, DT_f32), turned(r, build_dot(g, turned(r, q), ds, DT_f32)),
                  build_dot(g, turned(r, rounded(r, p, type)), dy, DT_f32)};
    for (int i = 0; i < 3; i++) {
        if (shared && i)
            d[i] = build_reduce(g, OP_reduce_sum, dims(r, d[i], D(2, 2, 2, 9, 16)), 4, false);
        if (type != DT_f32) d[i] = build_binary_f(g, OP_mul, d[i], i == 0 ? 2 : 3);
        build_output(g, i == 0 ? "dq" : i == 1 ? "dk" : "dv", d[i]);
    }
    return o;
}

/* Nothing of the scores' size is stored: the result, a sum per query, and a kernel for each
 * gradient; one more for keys and for values that are shared. */
static void attention_gradients(bool shared, bool causal) {
    Rig r = rig();
    expect(&r, derive_gradients(&r, DT_f32, shared, causal), shared ? 7 : 5);
}

/* A GPU makes all three in one kernel, of 16-bit operands; what is scaled behind queries' is done
 * by another, for it is summed in memory. */
static void joint_gradients(bool shared, bool causal) {
    Rig r = rig();
    Schedule *s = NULL;
    uint32_t kernels[TEM_COUNT] = {0};
    (void)derive_gradients(&r, DT_f16, shared, causal);
    r.g = pass_raise(pass_dce(r.g));
    if (CHECK(schedule_build(r.g, &target_for(PLAN_cuda)->machine, FUSE_ALL, r.a, &s) ==
              GRAPHC_OK)) {
        for (uint32_t i = 0; i < s->steps.n; i++)
            if (s->steps.v[i].kernel) kernels[s->steps.v[i].kernel->tem]++;
        CHECK_EQ_I(kernels[TEM_attention_gradients], 1);
        CHECK_EQ_I(kernels[TEM_attention_gradient], 0);
        double e = check_schedule(r.g, s, r.in, r.a);
        if (!CHECK(e >= 0 && e < 1e-5)) printf("difference %g\n", e);
    }
    arena_destroy(r.a);
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

/* --- States ------------------------------------------------------------------------------- */

static Value state_of(Rig *r, const char *name, uint8_t rank, const int64_t *dim) {
    EvalTensor x = tensor(r, DT_f32, rank, dim, 1);
    Constant c = {.data = x.data, .bytes = (uint64_t)check_numel(&x) * 4};
    return build_state(r->g, name, type_of(r, DT_f32, rank, dim), c);
}

/* Adam without its corrections. */
static void adam(Rig *r, Value w, Value grad) {
    const Type *t = graph_type(r->g, w);
    const char *name = r->g->states.v[r->g->states.n - 1].name;
    Value m = build_state(r->g, arena_printf(r->a, "%s.m", name), *t, (Constant){0});
    Value v = build_state(r->g, arena_printf(r->a, "%s.v", name), *t, (Constant){0});
    Value m1 = build_binary(r->g, OP_add, build_binary_f(r->g, OP_mul, m, 0.9),
                            build_binary_f(r->g, OP_mul, grad, 0.1));
    Value square = build_binary(r->g, OP_mul, grad, grad);
    Value v1 = build_binary(r->g, OP_add, build_binary_f(r->g, OP_mul, v, 0.99),
                            build_binary_f(r->g, OP_mul, square, 0.01));
    Value root = build_binary_f(r->g, OP_add, build_unary(r->g, OP_sqrt, v1), 1e-3);
    Value step = build_binary_f(r->g, OP_mul, build_binary(r->g, OP_div, m1, root), 0.01);
    build_write(r->g, w, build_binary(r->g, OP_sub, w, step));
    build_write(r->g, m, m1);
    build_write(r->g, v, v1);
}

static void states(void) {
    Rig r = rig(); /* an optimizer: three tensors in place, in one kernel */
    Value w = state_of(&r, "w", D(12, 20));
    adam(&r, w, input(&r, DT_f32, D(12, 20)));
    expect(&r, 0, 1);

    r = rig(); /* the weight of a projection is updated when its products are made */
    w = state_of(&r, "w", D(16, 24));
    Value x = input(&r, DT_f32, D(5, 16)), y = build_matmul(r.g, x, w, DT_f32);
    Value dw = build_matmul(r.g, build_permute(r.g, x, (uint8_t[]){1, 0}), y, DT_f32);
    build_output(r.g, "dx", build_matmul(r.g, y, build_permute(r.g, w, (uint8_t[]){1, 0}), DT_f32));
    build_write(r.g, w, build_binary(r.g, OP_sub, w, build_binary_f(r.g, OP_mul, dw, 0.01)));
    expect(&r, y, 3);

    r = rig(); /* two change places; one is written with an input, one with an output, one is kept
                */
    Value a = state_of(&r, "a", D(7)), b = state_of(&r, "b", D(7)), c = state_of(&r, "c", D(7));
    Value d = state_of(&r, "d", D(7));
    build_write(r.g, a, b);
    build_write(r.g, b, a);
    build_write(r.g, c, input(&r, DT_f32, D(7)));
    build_output(r.g, "sum", build_binary(r.g, OP_add, c, d));
    build_write(r.g, d, r.g->outputs.v[0].value);
    build_write(r.g, state_of(&r, "e", D(7)), weight(&r, D(7)));
    expect(&r, build_unary(r.g, OP_exp, state_of(&r, "f", D(7))), 0);

    r = rig(); /* read turned around, so not in place */
    a = state_of(&r, "a", D(6, 6));
    build_write(r.g, a, build_unary(r.g, OP_tanh, build_permute(r.g, a, (uint8_t[]){1, 0})));
    expect(&r, 0, 2);
}

/* --- A training step on a GPU -------------------------------------------------------------- */

static const Schedule *on_gpu(Rig *r) {
    Schedule *s = NULL;
    r->g = pass_dce(r->g);
    if (!CHECK(schedule_build(r->g, &target_for(PLAN_cuda)->machine, FUSE_ALL, r->a, &s) ==
               GRAPHC_OK))
        return NULL;
    double e = check_schedule(r->g, s, r->in, r->a);
    if (!CHECK(e >= 0 && e < 5e-2)) printf("difference %g\n", e);
    return s;
}

static Value half(Rig *r, Value x) {
    return build_cast(r->g, x, DT_bf16);
}

static Value single(Rig *r, Value x) {
    return build_cast(r->g, x, DT_f32);
}

/* A norm's gradient reads products rounded to 16 bits: that is what the contraction stores, not
 * what the norm makes of them in f32, twice. */
static void narrow_epilogue(void) {
    Rig r = rig();
    Value x = input(&r, DT_bf16, D(160, 64)), w = input(&r, DT_bf16, D(64, 128));
    Value s = input(&r, DT_f32, D(160, 128)), scale = input(&r, DT_f32, D(128));
    Value dy = single(&r, half(&r, build_dot(r.g, x, w, DT_f32)));
    Value a = build_binary(r.g, OP_mul, dy, scale), b = build_binary(r.g, OP_mul, dy, s);
    Value mean = build_mean(r.g, b, 2, true);
    build_output(r.g, "y", build_binary(r.g, OP_sub, a, mean));
    const Schedule *k = on_gpu(&r);
    for (uint32_t i = 0; k && i < k->buffers.n; i++)
        CHECK(k->buffers.v[i].kind != BUF_temp || k->buffers.v[i].dtype != DT_f32 ||
              !expr_is_value(r.g->exprs, k->buffers.v[i].numel, 160 * 128));
    arena_destroy(r.a);
}

/* Matrix units fetch rows or columns: what a weight's gradient reads is stored as it is computed */
static void activations_stay(void) {
    Rig r = rig();
    Value x = input(&r, DT_bf16, D(16, 32, 64)), dy = input(&r, DT_bf16, D(512, 128));
    Value t = half(&r, build_unary(r.g, OP_tanh, single(&r, x)));
    Type flat = type_of(&r, DT_bf16, 2, (const int64_t[]){512, 64});
    Value turned = build_permute(r.g, build_reshape(r.g, t, 2, flat.dim), (uint8_t[]){1, 0});
    build_output(r.g, "dw", build_dot(r.g, turned, dy, DT_f32));
    const Schedule *k = on_gpu(&r);
    if (k && CHECK(k->steps.n == 2)) CHECK_EQ_I(k->steps.v[0].kernel->naxes, 1);
    arena_destroy(r.a);
}

/* Logits are read by one kernel, which leaves the loss the statistics of their rows. */
static void loss_and_gradient(void) {
    Rig r = rig();
    Value x = input(&r, DT_bf16, D(160, 64)), w = input(&r, DT_bf16, D(64, 256));
    Value z = build_binary_f(r.g, OP_mul, build_dot(r.g, x, w, DT_f32), 1e-3);
    z = single(&r, half(&r, z));
    Value most = build_reduce(r.g, OP_reduce_max, z, 2, true);
    Value e = build_unary(r.g, OP_exp, build_binary(r.g, OP_sub, z, most));
    Value sum = build_reduce(r.g, OP_reduce_sum, e, 2, true);
    Value lse = build_binary(r.g, OP_add, most, build_unary(r.g, OP_log, sum));
    build_output(r.g, "loss", build_reduce(r.g, OP_reduce_sum, lse, 3, false));
    build_late(r.g, true);
    Value p = build_unary(r.g, OP_exp, build_binary(r.g, OP_sub, z, lse));
    build_output(r.g, "p", half(&r, p));
    const Schedule *k = on_gpu(&r);
    if (k) CHECK_EQ_I(k->steps.n, 3);
    arena_destroy(r.a);
}

/* Long sums of different values are kernels of their own, sums of one value are one. */
static void long_sums(void) {
    Rig r = rig();
    Value a = input(&r, DT_f32, D(1024, 1024)), b = input(&r, DT_f32, D(1024, 1024));
    Value x = build_reduce(r.g, OP_reduce_sum, build_unary(r.g, OP_tanh, a), 1, false);
    Value y = build_reduce(r.g, OP_reduce_sum, build_unary(r.g, OP_tanh, b), 1, false);
    Value z = build_reduce(r.g, OP_reduce_max, a, 1, false);
    build_output(r.g, "y", build_binary(r.g, OP_add, build_binary(r.g, OP_add, x, y), z));
    const Schedule *k = on_gpu(&r);
    if (k) CHECK_EQ_I(k->steps.n, 2);
    arena_destroy(r.a);
}

/* A power of the step's number, in many kernels: one computes it. */
static void shared_number(void) {
    Rig r = rig();
    Value x = input(&r, DT_f32, D(1)),
          rate = build_binary(r.g, OP_pow, x, build_unary(r.g, OP_exp, x));
    rate = build_unary(r.g, OP_tanh, rate);
    for (int i = 0; i < 12; i++) {
        Value w = state_of(&r, arena_printf(r.a, "w%d", i), D(9, 10 + i));
        build_write(r.g, w, build_binary(r.g, OP_mul, w, rate));
    }
    expect(&r, 0, 13);
}

/* --- Rows and columns --------------------------------------------------------------------- */

/* Gradients of layernorm by its input, weights and bias, on a machine whose kernels sum columns in
 * two blocks; more: columns of what it gives are summed, too. Gives how many blocks' sums of
 * columns there are. */
static int64_t rows_and_columns(int64_t rows, int64_t columns, bool more, uint32_t kernels) {
    int64_t blocks = 0;
    Rig r = rig();
    Machine m = target_for(PLAN_cuda)->machine;
    Schedule *s = NULL;
    m.processors = 2;
    Value x = input(&r, DT_f32, D(rows, columns)), dy = input(&r, DT_f32, D(rows, columns));
    Value w = input(&r, DT_f32, D(columns)), scale = input(&r, DT_f32, D(rows, 1));
    Value h = build_binary(r.g, OP_mul, x, scale), g = build_binary(r.g, OP_mul, dy, w);
    Value c = build_mean(r.g, build_binary(r.g, OP_mul, g, h), 2, true);
    Value dx = build_binary(r.g, OP_sub, g, build_binary(r.g, OP_mul, h, c));
    Value dw = build_reduce(r.g, OP_reduce_sum, build_binary(r.g, OP_mul, dy, h), 1, false);
    Value db = build_reduce(r.g, OP_reduce_sum, dy, 1, false);
    build_output(r.g, "dx", dx), build_output(r.g, "dw", dw);
    build_output(r.g, "db", build_binary(r.g, OP_mul, db, w));
    if (more) build_output(r.g, "all", build_reduce(r.g, OP_reduce_sum, dx, 1, false));
    r.g = pass_dce(r.g);
    graphc_status st = schedule_build(r.g, &m, FUSE_ALL, r.a, &s);
    for (uint32_t i = 0; i < diag_count(r.g->diags); i++)
        puts(diag_render(r.g->diags, diag_at(r.g->diags, i), r.a, false));
    if (CHECK(st == GRAPHC_OK)) {
        if (kernels) CHECK_EQ_I(s->steps.n, kernels);
        const Kernel *k = s->steps.v[0].kernel;
        if (kernels == 2) blocks = expr_value(r.g->exprs, k->axes[0].extent);
        double e = check_schedule(r.g, s, r.in, r.a);
        CHECK(e >= 0 && e < 1e-5);
    }
    arena_destroy(r.a);
    return blocks;
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
    narrow_epilogue();
    activations_stay();
    loss_and_gradient();
    shared_number();
    CHECK_EQ_I(rows_and_columns(96, 64, false, 2), 2);
    CHECK_EQ_I(rows_and_columns(64, 2048, false, 2), 2);
    CHECK_EQ_I(rows_and_columns(40, 6144, false, 2), 1); /* rows that blocks share in pairs */
    rows_and_columns(97, 72, false, 2);                  /* the last row of a block is not there */
    rows_and_columns(97, 72, true, 0);
    rows_and_columns(20, 64, false, 3); /* too few rows */
    rows_and_columns(96, 63, false, 3); /* no vectors */
    long_sums();
    states();
    maps();
    rows();
    contractions();
    one_row();
    norm_of_row();
    sums_of_products();
    convolutions();
    for (WinoWeights w = WINO_plain; w <= WINO_scaled; w++) winograd_weights(w);
    attention(false);
    attention(true);
    statistics();
    behind_attention();
    for (int i = 0; i < 4; i++) attention_gradients(i & 1, i & 2);
    for (int i = 0; i < 4; i++) joint_gradients(i & 1, i & 2);
    indices();
    counted();
    read_elsewhere();
    backwards();
    wide();
    concatenation();
    bisected();
}
