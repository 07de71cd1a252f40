/* Fusion of attention and of its gradients. */
#include "tests/unit/fusion/schedule_rig.h"

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

static bool stores_sums(const Kernel *k) {
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kstore && k->ops[v].in[0] == k->grads.oq) return true;
    return false;
}

/* A GPU makes all three in one kernel, of 16-bit operands; what is scaled behind queries' is done
 * by another, for it is summed in memory where it is stored, or, apart from that, by the same. */
static void joint_gradients(bool shared, bool causal, bool apart) {
    Rig r = rig();
    Schedule *s = NULL;
    uint32_t kernels[TEM_COUNT] = {0};
    Machine m = target_for(PLAN_cuda)->machine;
    m.sums_apart = apart;
    (void)derive_gradients(&r, DT_f16, shared, causal);
    r.g = pass_raise(pass_dce(r.g));
    if (CHECK(schedule_build(r.g, &m, FUSE_ALL, r.a, &s) == GRAPHC_OK)) {
        for (uint32_t i = 0; i < s->steps.n; i++) {
            const Kernel *k = s->steps.v[i].kernel;
            if (!k) continue;
            kernels[k->tem]++;
            if (k->tem == TEM_attention_gradients) CHECK_EQ_I(stores_sums(k), !apart);
        }
        CHECK_EQ_I(kernels[TEM_attention_gradients], 1);
        CHECK_EQ_I(kernels[TEM_attention_gradient], 0);
        double e = check_schedule(r.g, s, r.in, r.a);
        if (!CHECK(e >= 0 && e < 1e-5)) printf("difference %g\n", e);
    }
    arena_destroy(r.a);
}

TEST_MAIN {
    attention(false);
    attention(true);
    statistics();
    behind_attention();
    for (int i = 0; i < 4; i++) attention_gradients(i & 1, i & 2);
    for (int i = 0; i < 4; i++) joint_gradients(i & 1, i & 2, false);
    for (int i = 0; i < 4; i++) joint_gradients(i & 1, i & 2, true);
}
