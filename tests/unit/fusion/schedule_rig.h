/* A graph made by hand, scheduled for both targets, run by the kernel interpreter and compared with
 * the graph evaluator. */
#ifndef TESTS_SCHEDULE_RIG_H
#define TESTS_SCHEDULE_RIG_H

#include "codegen/target.h"
#include "graph/pass/pass.h"
#include "tests/unit/fusion/schedule_check.h"
#include "tests/unit/test.h"

typedef struct Rig {
    Arena *a;
    Graph *g;
    EvalTensor in[16];
} Rig;

static inline Rig rig(void) {
    Rig r = {.a = arena_create()};
    r.g = graph_create(r.a, expr_pool_create(r.a), diag_create(r.a, NULL), "test");
    return r;
}

static inline Type type_of(Rig *r, DType t, uint8_t rank, const int64_t *dim) {
    Type type = {.dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) type.dim[i] = expr_const(r->g->exprs, dim[i]);
    return type;
}

static inline EvalTensor tensor(Rig *r, DType t, uint8_t rank, const int64_t *dim, int64_t below) {
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

static inline Value input_below(Rig *r, DType t, int64_t below, uint8_t rank, const int64_t *dim) {
    r->in[r->g->inputs.n] = tensor(r, t, rank, dim, below);
    char name[8];
    snprintf(name, sizeof name, "x%u", r->g->inputs.n);
    return build_input(r->g, arena_strdup(r->a, name), type_of(r, t, rank, dim));
}

static inline Value input(Rig *r, DType t, uint8_t rank, const int64_t *dim) {
    return input_below(r, t, 10, rank, dim);
}

static inline Value weight(Rig *r, uint8_t rank, const int64_t *dim) {
    EvalTensor x = tensor(r, DT_f32, rank, dim, 1);
    Constant c = {.data = x.data, .bytes = (uint64_t)check_numel(&x) * 4, .name = "w"};
    return build_const(r->g, type_of(r, DT_f32, rank, dim), c);
}

static inline Value state_of(Rig *r, const char *name, uint8_t rank, const int64_t *dim) {
    EvalTensor x = tensor(r, DT_f32, rank, dim, 1);
    Constant c = {.data = x.data, .bytes = (uint64_t)check_numel(&x) * 4};
    return build_state(r->g, name, type_of(r, DT_f32, rank, dim), c);
}

static inline Value dims(Rig *r, Value x, uint8_t rank, const int64_t *dim) {
    Type t = type_of(r, DT_f32, rank, dim);
    return build_reshape(r->g, x, rank, t.dim);
}

/* With fewer decisions of fusion there are other kernels, and the same result. */
static inline void expect_any_limit(Rig *r, uint32_t decisions) {
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
static inline void expect(Rig *r, Value y, uint32_t kernels) {
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

static inline Value softmax(Rig *r, Value x) {
    const Type *t = graph_type(r->g, x);
    uint32_t last = 1u << (t->rank - 1);
    Value e = build_unary(
        r->g, OP_exp,
        build_binary(r->g, OP_sub, x, build_reduce(r->g, OP_reduce_max, x, last, true)));
    return build_binary(r->g, OP_div, e, build_reduce(r->g, OP_reduce_sum, e, last, true));
}

static inline Value layernorm(Rig *r, Value x) {
    uint32_t last = 1u << (graph_type(r->g, x)->rank - 1);
    Value d = build_binary(r->g, OP_sub, x, build_mean(r->g, x, last, true));
    Value v = build_mean(r->g, build_binary(r->g, OP_mul, d, d), last, true);
    v = build_unary(r->g, OP_rsqrt, build_binary_f(r->g, OP_add, v, 1e-5));
    return build_binary(r->g, OP_mul, d, v);
}

#endif
