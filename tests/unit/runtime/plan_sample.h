/* A small plan made through plan_build, with kernels that are C functions of the test program:
 * their section is copied as the code image, so they must not refer to anything outside it.
 *
 *   x f32[batch, 4], w f32[4] constant, prepared to 2*w:  y = relu(x + 2*w), z = sum over all of y
 *   n = number of positive y, pos i64[n]: their positions (a run-time size) */
#ifndef TESTS_UNIT_PLAN_SAMPLE_H
#define TESTS_UNIT_PLAN_SAMPLE_H

#include "codegen/plan/plan_build.h"
#include "graph/build/build.h"
#include "runtime/abi.h"
#include <stdio.h>
#include <string.h>

#if defined(__clang__)
#define PLAIN_CODE optnone
#else
#define PLAIN_CODE optimize("O1", "no-tree-vectorize")
#endif
#define IN_IMAGE                                                                                   \
    __attribute__((section("sample_image"), noinline, used, PLAIN_CODE,                            \
                   no_sanitize("address", "undefined", "thread")))

extern const char __start_sample_image[], __stop_sample_image[];

IN_IMAGE static void sample_double(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                                   void *scratch) {
    const float *w = b[0];
    float *out = b[1];
    (void)d, (void)scratch;
    for (int64_t i = lo; i < hi; i++) out[i] = w[i] + w[i];
}

IN_IMAGE static void sample_relu(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                                 void *scratch) {
    const float *x = b[0], *w = b[1];
    float *y = b[2];
    (void)scratch;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t k = 0; k < d[1]; k++) {
            float v = x[i * d[1] + k] + w[k];
            y[i * d[1] + k] = v > 0 ? v : 0;
        }
}

IN_IMAGE static void sample_sum(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                                void *scratch) {
    const float *y = b[0];
    float *z = b[1], *acc = scratch;
    (void)lo, (void)hi;
    *acc = 0;
    for (int64_t i = 0; i < d[0]; i++) *acc += y[i];
    *z = *acc;
}

IN_IMAGE static void sample_positions(void *const *b, const int64_t *d, int64_t lo, int64_t hi,
                                      void *scratch) {
    const float *y = b[0];
    int64_t *pos = b[1], *count = b[2], n = 0;
    (void)lo, (void)hi, (void)scratch;
    for (int64_t i = 0; i < d[0]; i++)
        if (y[i] > 0) pos[n++] = i;
    *count = n;
}

/* The same for a GPU: a thread per element, or one thread where order matters. */
/* clang-format off */
#define ENTRY(name, last)                                                                          \
    ".visible .entry " name "(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d" last     \
    ") {\n.reg .u64 %p<9>;\n.reg .u32 %t<4>;\n.reg .f32 %f<5>;\n.reg .pred %q<2>;\n"               \
    "ld.param.u64 %p1, [a];\nld.param.u64 %p2, [b];\nld.param.u64 %p3, [c];\n"                     \
    "mov.u32 %t1, %tid.x;\nmov.u32 %t2, %ctaid.x;\nmad.lo.u32 %t3, %t2, 4, %t1;\n"                 \
    "mul.wide.u32 %p4, %t1, 4;\nmul.wide.u32 %p5, %t3, 4;\n"
static const char sample_ptx[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ENTRY("sample_double", "") /* w, out, dims */
    "add.u64 %p1, %p1, %p4;\nadd.u64 %p2, %p2, %p4;\nld.global.f32 %f1, [%p1];\n"
    "add.f32 %f2, %f1, %f1;\nst.global.f32 [%p2], %f2;\nret;\n}\n"
    ENTRY("sample_relu", ", .param .u64 e") /* x, w, y, dims */
    "add.u64 %p1, %p1, %p5;\nadd.u64 %p2, %p2, %p4;\nadd.u64 %p3, %p3, %p5;\n"
    "ld.global.f32 %f1, [%p1];\nld.global.f32 %f2, [%p2];\nadd.f32 %f3, %f1, %f2;\n"
    "max.f32 %f3, %f3, 0f00000000;\nst.global.f32 [%p3], %f3;\nret;\n}\n"
    ENTRY("sample_sum", "") /* y, z, n */
    "mov.f32 %f1, 0f00000000;\nmov.u64 %p6, 0;\n"
    "next:\nsetp.ge.s64 %q1, %p6, %p3;\n@%q1 bra done;\nld.global.f32 %f2, [%p1];\n"
    "add.f32 %f1, %f1, %f2;\nadd.u64 %p1, %p1, 4;\nadd.u64 %p6, %p6, 1;\nbra next;\n"
    "done:\nst.global.f32 [%p2], %f1;\nret;\n}\n"
    ENTRY("sample_positions", ", .param .u64 e") /* y, pos, count, n */
    "ld.param.u64 %p8, [d];\nmov.u64 %p6, 0;\nmov.u64 %p7, 0;\n"
    "next:\nsetp.ge.s64 %q1, %p6, %p8;\n@%q1 bra done;\nld.global.f32 %f2, [%p1];\n"
    "setp.gt.f32 %q1, %f2, 0f00000000;\n@!%q1 bra skip;\nst.global.u64 [%p2], %p6;\n"
    "add.u64 %p2, %p2, 8;\nadd.u64 %p7, %p7, 1;\n"
    "skip:\nadd.u64 %p1, %p1, 4;\nadd.u64 %p6, %p6, 1;\nbra next;\n"
    "done:\nst.global.u64 [%p3], %p7;\nret;\n}\n";
#undef ENTRY
/* clang-format on */

enum { SAMPLE_ROW_BYTES = 30000 }; /* that a GPU's first kernel says to read, a block a row */

typedef struct Sample {
    Arena *arena;
    void *bytes;
    size_t size;
} Sample;

static const float sample_w[4] = {1, 2, 3, -4};

static Kernel *sample_kernel(Arena *a, const char *name, uint32_t nparams, uint32_t written) {
    Kernel *k = ARENA_NEW(a, Kernel);
    k->name = name;
    k->nparams = nparams;
    k->params = ARENA_ARRAY(a, KParam, nparams);
    for (uint32_t i = 0; i < nparams; i++) k->params[i].written = written >> i & 1;
    k->nops = 1;
    k->ops = ARENA_ARRAY(a, KOp, 2);
    return k;
}

static uint32_t sample_buffer(Schedule *s, Arena *a, BufKind kind, DType t, Expr numel,
                              uint32_t index, Value node) {
    SBuffer b = {.kind = kind, .dtype = t, .numel = numel, .index = index, .node = node};
    b.graph = s->graph;
    vec_push(a, &s->buffers, b);
    return s->buffers.n - 1;
}

static void sample_step(Schedule *s, CodeResult *code, Arena *a, Kernel *k, const uint32_t *bufs,
                        graphc_cpu_kernel *entry, Expr work, Expr d0, bool prepare) {
    ExprPool *p = s->exprs;
    Expr *dims = ARENA_ARRAY(a, Expr, 2);
    dims[0] = d0;
    dims[1] = expr_const(p, 4);
    SStep st = {.kind = STEP_kernel,
                .prepare = prepare,
                .kernel = k,
                .bufs = arena_copy(a, bufs, k->nparams * sizeof *bufs)};
    bool per_element = entry == sample_double || entry == sample_relu;
    uint64_t at = (uint64_t)((const char *)(uintptr_t)entry - __start_sample_image);
    code->kernels[s->steps.n] =
        (CodeKernel){.symbol = entry == sample_double ? "sample_double"
                               : entry == sample_relu ? "sample_relu"
                               : entry == sample_sum  ? "sample_sum"
                                                      : "sample_positions",
                     .grid = {entry == sample_relu ? work : expr_const(p, 1), expr_const(p, 1),
                              expr_const(p, 1)},
                     .block = {per_element ? 4 : 1, 1, 1},
                     .ndims = 2,
                     .dims = dims,
                     .entry = {at, at},
                     .work = work,
                     .scratch_bytes = expr_const(p, 64),
                     .cost = expr_muli(p, work, 100000)};
    vec_push(a, &s->steps, st);
}

/* What a test changes in the GPU's code, a kernel per step; `batch` is the symbol's expression. */
/* A plan for the CPU of all steps; bytes NULL and what is wrong on stderr: none. */
static inline void sample_build(Schedule *s, CodeResult *code, const Graph *g, DiagSink *d,
                                Sample *out) {
    CodeBlob blob = {.form = CODE_x86_64_v3,
                     .data = __start_sample_image,
                     .size = (uint64_t)(__stop_sample_image - __start_sample_image)};
    code->nblobs = 1;
    code->blobs = &blob;
    schedule_lifetimes(s, out->arena);
    PlanTargetInput target = {target_for(PLAN_cpu), s, code, NULL};
    PlanBuildOptions options = {0};
    vec_push(out->arena, &s->ends, s->steps.n);
    if (plan_build(g, &target, 1, &options, out->arena, d, &out->bytes, &out->size) == GRAPHC_OK)
        return;
    fprintf(stderr, "    %s\n", diag_at(d, 0)->text);
    out->bytes = NULL;
}

typedef void SampleEdit(CodeResult *gpu, ExprPool *p, Expr batch, Arena *a);

/* gpu: for both targets. positions: with the output of run-time size. edit: may be NULL. */
static inline Sample sample_make_edited(bool gpu, bool positions, SampleEdit *edit) {
    Sample out = {.arena = arena_create()};
    Arena *a = out.arena;
    ExprPool *p = expr_pool_create(a);
    DiagSink *d = diag_create(a, NULL);
    Graph *g = graph_create(a, p, d, "sample");
    SymInfo batch = {.name = "batch", .kind = SYM_DIM, .lo = 0, .hi = 1 << 20};
    SymInfo count = {.name = "n", .kind = SYM_DATA, .lo = 0, .hi = INT64_C(1) << 22};
    Expr eb = expr_sym_new(p, batch), en = expr_sym_new(p, count), e4 = expr_const(p, 4);
    uint32_t sym_n = 0;
    expr_is_sym(p, en, &sym_n);
    Expr numel = expr_mul(p, eb, e4), one = expr_const(p, 1);
    Type tx = {.dtype = DT_f32, .rank = 2, .dim = {eb, e4}};
    Type tw = {.dtype = DT_f32, .rank = 1, .dim = {e4}};
    Value x = build_input(g, "x", tx);
    Constant c = {.data = sample_w, .bytes = sizeof sample_w, .name = "w"};
    Value w = build_const(g, tw, c);
    (void)x;
    IoInfo y = {.name = "y", .type = tx}, z = {.name = "z", .type = {.dtype = DT_f32}};
    IoInfo pos = {.name = "pos", .type = {.dtype = DT_i64, .rank = 1, .dim = {en}}};
    vec_push(a, &g->outputs, y);
    vec_push(a, &g->outputs, z);
    if (positions) vec_push(a, &g->outputs, pos);

    Schedule *s = ARENA_NEW(a, Schedule);
    CodeResult code = {.kernels = ARENA_ARRAY(a, CodeKernel, 8)};
    s->graph = g;
    s->exprs = p;
    uint32_t bx = sample_buffer(s, a, BUF_input, DT_f32, numel, 0, 0);
    uint32_t bw = sample_buffer(s, a, BUF_const, DT_f32, e4, 0, w);
    uint32_t bw2 = sample_buffer(s, a, BUF_prepared, DT_f32, e4, 0, 0);
    uint32_t bt = sample_buffer(s, a, BUF_temp, DT_f32, numel, 0, 0);
    uint32_t by = sample_buffer(s, a, BUF_output, DT_f32, numel, 0, 0);
    uint32_t bz = sample_buffer(s, a, BUF_output, DT_f32, one, 1, 0);
    uint32_t bp = positions ? sample_buffer(s, a, BUF_output, DT_i64, numel, 2, 0) : 0;
    uint32_t bn = sample_buffer(s, a, BUF_temp, DT_i64, one, 0, 0);
    Kernel *relu = sample_kernel(a, "poi_1_add_relu", 3, 4);
    relu->bytes_read = expr_muli(p, eb, SAMPLE_ROW_BYTES); /* as if */
    Kernel *compact = sample_kernel(a, "tem_3_compact", 3, 6);
    compact->nops = 2;
    compact->ops[1] = (KOp){.op = K_kcompact, .sym = sym_n, .buf = 1};
    sample_step(s, &code, a, sample_kernel(a, "poi_0_double", 2, 2), (uint32_t[]){bw, bw2},
                sample_double, e4, e4, true);
    sample_step(s, &code, a, relu, (uint32_t[]){bx, bw2, bt}, sample_relu, eb, numel, false);
    sample_step(s, &code, a, relu, (uint32_t[]){bx, bw2, by}, sample_relu, eb, numel, false);
    sample_step(s, &code, a, sample_kernel(a, "red_2_sum", 2, 2), (uint32_t[]){bt, bz}, sample_sum,
                one, numel, false);
    if (positions)
        sample_step(s, &code, a, compact, (uint32_t[]){bt, bp, bn}, sample_positions, one, numel,
                    false);
    CodeBlob blob = {.form = CODE_x86_64_v3,
                     .data = __start_sample_image,
                     .size = (uint64_t)(__stop_sample_image - __start_sample_image)};
    code.nblobs = 1;
    code.blobs = &blob;
    CodeResult gpu_code = code;
    CodeBlob ptx = {.form = CODE_ptx, .data = sample_ptx, .size = sizeof sample_ptx};
    gpu_code.blobs = &ptx;
    gpu_code.kernels = arena_copy(a, code.kernels, 8 * sizeof *code.kernels);
    if (edit) edit(&gpu_code, p, eb, a);
    schedule_lifetimes(s, a);
    PlanTargetInput targets[] = {{target_for(PLAN_cpu), s, &code, NULL},
                                 {target_find("sm_80", 5), s, &gpu_code, NULL},
                                 {target_for(PLAN_cuda), s, &gpu_code, NULL}};
    PlanBuildOptions options = {0};
    vec_push(a, &s->ends, s->steps.n);
    if (plan_build(g, targets, gpu ? 3 : 1, &options, a, d, &out.bytes, &out.size) != GRAPHC_OK)
        out.bytes = NULL;
    return out;
}

static inline Sample sample_make(bool gpu, bool positions) {
    return sample_make_edited(gpu, positions, NULL);
}

/* All launch facts that a plan can hold. Step 1: a cluster, counters that stay zero, a tiled map of
 * x. Step 2: for 32 rows and more the variant "sample_wide", with an im2col map. Step 3: dependent,
 * with scratch zeroed for it. The kernels themselves know of none of it: for a driver that does not
 * run them. */
static inline void sample_launch_facts(CodeResult *gpu, ExprPool *p, Expr batch, Arena *a) {
    CodeKernel *k = gpu->kernels;
    static const uint32_t cluster[3] = {2, 1, 1};
    CodeMap *maps = ARENA_ARRAY(a, CodeMap, 2);
    Expr four = expr_const(p, 4), pitch = expr_const(p, 16);
    maps[0] = (CodeMap){.dtype = DT_f32,
                        .rank = 2,
                        .size = {four, batch},
                        .stride = {pitch},
                        .box = {4, 8},
                        .swizzle = 32,
                        .promotion = 128};
    maps[1] = (CodeMap){.dtype = DT_f32,
                        .tf32 = true,
                        .im2col = true,
                        .rank = 4,
                        .size = {four, batch, batch, batch},
                        .stride = {pitch, pitch, pitch},
                        .step = {1, 2, 2, 1},
                        .lower = {-1, -1},
                        .upper = {-1, -2},
                        .channels = 4,
                        .pixels = 64};
    memcpy(k[1].cluster, cluster, sizeof cluster);
    k[1].dependent = true;
    k[1].zero_bytes = expr_const(p, 100);
    k[1].zero_kept = true;
    k[1].shared_bytes = 48000; /* needs asking all the same, where a kernel has some of its own */
    k[1].nmaps = 1;
    k[1].maps = &maps[0];
    CodeKernel *wide = ARENA_NEW(a, CodeKernel);
    *wide = k[2];
    wide->symbol = "sample_wide";
    wide->nmaps = 1;
    wide->maps = &maps[1];
    k[2].nvariants = 1;
    k[2].variants = wide;
    k[2].choice = expr_select(p, expr_lt(p, batch, expr_const(p, 32)), expr_const(p, 0),
                              expr_const(p, 7)); /* past the end: the last */
    k[3].dependent = true;
    k[3].zero_bytes = expr_const(p, 64);
}

#endif
