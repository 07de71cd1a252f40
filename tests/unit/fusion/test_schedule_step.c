/* Fusion of training steps: states, and what a GPU computes together. */
#include "tests/unit/fusion/schedule_rig.h"

/* --- States ------------------------------------------------------------------------------- */

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

/* Gradients of layernorm by its input, weights and bias, on a machine of two processors, or of more
 * where many share a row, whose kernels sum columns; more: columns of what it gives are summed,
 * too. Gives how many blocks' sums of columns there are. */
enum { LONG = 16384 };
static int64_t rows_and_columns(int64_t rows, int64_t columns, bool more, uint32_t kernels) {
    int64_t blocks = 0;
    Rig r = rig();
    Machine m = target_for(PLAN_cuda)->machine;
    Schedule *s = NULL;
    m.processors = 2;
    m.clusters[1] = 2, m.clusters[2] = m.clusters[3] = 1, m.clusters[6] = 3;
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

TEST_MAIN {
    narrow_epilogue();
    activations_stay();
    loss_and_gradient();
    shared_number();
    CHECK_EQ_I(rows_and_columns(96, 64, false, 2), 2);
    CHECK_EQ_I(rows_and_columns(64, 2048, false, 2), 2);
    CHECK_EQ_I(rows_and_columns(40, 6144, false, 2), 1); /* rows that blocks share in pairs */
    /* Rows that start at any element: in pairs, in lists of single rows that start two elements
     * apart, and which are no multiple of the lists. */
    CHECK_EQ_I(rows_and_columns(64, 14281, false, 2), 3);
    CHECK_EQ_I(rows_and_columns(52, 14282, false, 2), 3);
    rows_and_columns(60, 14281, false, 3);
    /* Shorter ones: of two blocks; a team's, of any number. A long one of whole vectors, by three
     * blocks. */
    CHECK_EQ_I(rows_and_columns(16, 4801, false, 2), 1);
    CHECK_EQ_I(rows_and_columns(32, 1201, false, 2), 2);
    CHECK_EQ_I(rows_and_columns(37, 203, false, 2), 2);
    CHECK_EQ_I(rows_and_columns(17, 10248, false, 2), 1);
    rows_and_columns(97, 72, false, 2); /* the last row of a block is not there */
    rows_and_columns(97, 72, true, 0);
    rows_and_columns(20, 64, false, 3); /* too few rows */
    rows_and_columns(96, 63, false, 3); /* no vectors */
    long_sums();
    states();
}
