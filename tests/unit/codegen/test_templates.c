/* Contraction and attention templates in every form of x86-64 code that the machine runs, AMX where
 * need be emulated, against the reference interpreter: element types, ragged and symbolic sizes,
 * every way of reading the operands. */
#include "codegen/target.h"
#include "fusion/body/body.h"
#include "runtime/abi.h"
#include "tests/unit/codegen/fenced.h"
#include "tests/unit/codegen/tiles.h"
#include "tests/unit/test.h"
#include <sys/mman.h>

static uint32_t skipped; /* forms of code that this machine does not run */
static uint64_t rng = 1;
static double uniform(void) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (double)(rng >> 33) / 1073741824.0 - 1;
}

static void fill(DType t, void *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (dtype_is_float(t))
            dtype_store_f64(t, p, i, uniform());
        else
            dtype_store_i64(t, p, i, (int64_t)floor(uniform() * 128) + (t == DT_u8 ? 128 : 0));
    }
}

typedef struct Env {
    Arena *a;
    ExprPool *p;
    DiagSink *d;
    StrBuf text;
    int64_t sym[64];
} Env;

/* Symbols si and sj have these values; a size of 0 in a case stands for one of them. */
static Env env_new(int64_t si, int64_t sj) {
    Env e = {.a = arena_create()};
    e.p = expr_pool_create(e.a);
    e.d = diag_create(e.a, NULL);
    sb_init(&e.text, e.a);
    (void)expr_sym_new(e.p, (SymInfo){.name = "si", .kind = SYM_DIM, .lo = 0, .hi = 1 << 20});
    (void)expr_sym_new(e.p, (SymInfo){.name = "sj", .kind = SYM_DIM, .lo = 0, .hi = 1 << 20});
    e.sym[0] = si;
    e.sym[1] = sj;
    return e;
}

static void run_code(const CodeResult *r, const Env *e, uint32_t variant, void **bufs) {
    const CodeKernel *k = &r->kernels[0];
    int64_t dims[64], work = expr_eval(e->p, k->work, e->sym);
    const size_t bytes = (size_t)expr_eval(e->p, k->scratch_bytes, e->sym);
    for (uint32_t i = 0; i < k->ndims; i++) dims[i] = expr_eval(e->p, k->dims[i], e->sym);
    uint8_t *code = mmap(NULL, r->blobs[variant].size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, r->blobs[variant].data, r->blobs[variant].size);
    mprotect(code, r->blobs[variant].size, PROT_READ | PROT_EXEC);
    uint8_t *scratch = fenced_new(bytes);
    CHECK((uintptr_t)scratch % 64 == 0);
    memset(scratch, 0xff, bytes); /* NaN: nothing may be read before it is written */
    const uint8_t *entry = code + k->entry[r->blobs[variant].form];
    graphc_cpu_kernel *fn;
    memcpy(&fn, &entry, sizeof fn);
    fn(bufs, dims, work / 3, work, scratch);
    fn(bufs, dims, 0, work / 3, scratch);
    fenced_free(scratch, bytes);
    munmap(code, r->blobs[variant].size);
}

#define NEAR 1e-6 /* of the largest result; the worst of all cases is 2.6e-7 */

static bool close_enough(DType t, const void *got, const void *want, size_t n, double tol) {
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        double w = fabs(dtype_load_f64(t, want, i));
        if (isfinite(w) && w > largest) largest = w;
    }
    for (size_t i = 0; i < n; i++) {
        double g = dtype_load_f64(t, got, i), w = dtype_load_f64(t, want, i);
        bool exact = !dtype_is_float(t) && dtype_load_i64(t, got, i) == dtype_load_i64(t, want, i);
        bool near = g == w || (isnan(g) && isnan(w)) || fabs(g - w) <= tol * largest;
        if (dtype_is_float(t) ? near : exact) continue;
        fprintf(stderr, "element %zu of %zu: %.9g, expected %.9g\n", i, n, g, w);
        return false;
    }
    return true;
}

static void compare(Env *e, const Kernel *k, const CodeResult *r, double tol) {
    void *got[K_MAX_PARAMS], *want[K_MAX_PARAMS];
    size_t n[K_MAX_PARAMS];
    for (uint32_t i = 0; i < k->nparams; i++) {
        DType t = k->params[i].dtype;
        n[i] = (size_t)expr_eval(e->p, k->params[i].numel, e->sym);
        got[i] = fenced_new(n[i] * dtype_bytes(t));
        want[i] = malloc(n[i] * dtype_bytes(t) + 1);
        fill(t, got[i], n[i]);
        memcpy(want[i], got[i], n[i] * dtype_bytes(t));
    }
    CHECK(kir_eval(k, e->p, want, e->sym, e->a) == GRAPHC_OK);
    for (uint32_t v = 0; v < r->nblobs; v++) {
        PlanForm form = (PlanForm)r->blobs[v].form;
        if (r->kernels[0].entry[form] == PLAN_NO_ENTRY) continue;
        if (!tiles_support(form)) {
            skipped |= 1u << form;
            continue;
        }
        for (uint32_t i = 0; i < k->nparams; i++)
            if (k->params[i].written) memset(got[i], 0x55, n[i] * dtype_bytes(k->params[i].dtype));
        run_code(r, e, v, got);
        for (uint32_t i = 0; i < k->nparams; i++)
            if (!CHECK(close_enough(k->params[i].dtype, got[i], want[i], n[i], tol)))
                fprintf(stderr, "%s of\n%s", plan_form_name(form), sb_str(&e->text));
    }
    for (uint32_t i = 0; i < k->nparams; i++) {
        fenced_free(got[i], n[i] * dtype_bytes(k->params[i].dtype));
        free(want[i]);
    }
}

/* Compiles the kernel in e->text and compares. */
static void check(Env *e, double tol) {
    static size_t number;
    if (!test_takes(number++, 9)) {
        arena_destroy(e->a);
        return;
    }
    Kernel *k = kir_parse(e->a, e->p, e->d, sb_str(&e->text), NULL);
    Schedule s = {.exprs = e->p};
    CodeOptions o = {.threads = 1};
    CodeResult r = {0};
    if (k && k->tem == TEM_attention_gradient) body_find_unseen(k, e->p);
    if (k && kir_verify(k, e->p, e->d) == GRAPHC_OK) {
        vec_push(e->a, &s.steps, ((SStep){.kind = STEP_kernel, .kernel = k}));
        if (codegen_run(target_for(PLAN_cpu), &s, &o, e->a, e->d, &r) == GRAPHC_OK)
            compare(e, k, &r, tol);
    }
    if (!CHECK(diag_count(e->d) == 0))
        fprintf(stderr, "%s\n%s", diag_at(e->d, 0)->text, sb_str(&e->text));
    arena_destroy(e->a);
}

/* --- Matrix products ---------------------------------------------------------------------- */

/* In panels, in panels of pairs of rows, [K][N], [N][K]. */
typedef enum BForm { PACKED, PAIRS, ROWS, COLUMNS } BForm;

typedef struct Gemm {
    int m, n, k; /* m == 0: symbol si; k == 0: symbol sj */
    BForm b;
    const char *in, *acc;
    int epilogue; /* 0 none, 1 bias, 2 bias and residual, 3 tanh, 4 product of two accumulators */
} Gemm;

/* The last have sums of several chunks: AVX2 code walks them slice by slice, across sub-panels. */
static const Gemm gemms[] = {
    {64, 96, 64, PACKED, "f32", "f32", 0},  {13, 100, 37, PACKED, "f32", "f32", 1},
    {1, 200, 50, PACKED, "f32", "f32", 2},  {7, 48, 10, ROWS, "f32", "f32", 3},
    {9, 64, 33, ROWS, "f32", "f32", 1},     {33, 70, 20, ROWS, "f32", "f32", 2},
    {5, 10, 20, COLUMNS, "f32", "f32", 2},  {20, 60, 17, COLUMNS, "f64", "f64", 1},
    {20, 60, 17, PACKED, "f64", "f64", 3},  {50, 60, 17, PACKED, "bf16", "f32", 1},
    {50, 64, 17, ROWS, "f16", "f32", 0},    {19, 55, 70, PACKED, "i8", "i32", 1},
    {19, 55, 70, COLUMNS, "u8", "i32", 0},  {600, 50, 20, PACKED, "f32", "f32", 1},
    {0, 100, 37, PACKED, "f32", "f32", 1},  {0, 64, 0, ROWS, "f32", "f32", 2},
    {0, 70, 0, COLUMNS, "f32", "f32", 0},   {21, 70, 33, PACKED, "f32", "f32", 4},
    {0, 64, 33, ROWS, "f32", "f32", 4},     {19, 55, 70, PACKED, "i16", "i32", 1},
    {9, 100, 37, PACKED, "i16", "i32", 4},  {0, 70, 0, PACKED, "i16", "i32", 2},
    {0, 64, 0, ROWS, "u8", "i32", 0},       {33, 48, 1, PACKED, "i16", "i32", 0},
    {50, 60, 17, PAIRS, "bf16", "f32", 1},  {1, 200, 50, PAIRS, "bf16", "f32", 2},
    {64, 96, 64, PAIRS, "bf16", "f32", 0},  {19, 70, 333, PAIRS, "bf16", "f32", 4},
    {0, 100, 96, PAIRS, "bf16", "f32", 2},  {0, 49, 0, PAIRS, "bf16", "f32", 0},
    {33, 48, 1, PAIRS, "bf16", "f32", 3},   {600, 50, 20, PAIRS, "bf16", "f32", 1},
    {185, 9, 577, PACKED, "f32", "f32", 1}, {185, 49, 577, PACKED, "bf16", "f32", 4},
    {21, 37, 300, PACKED, "f32", "f32", 2}, {0, 100, 300, PACKED, "f32", "f32", 4},
    {20, 61, 300, PACKED, "f64", "f64", 3}, {13, 70, 300, COLUMNS, "f32", "f32", 1},
    {0, 96, 0, ROWS, "f32", "f32", 2},
};

static void gemm_text(Env *e, const Gemm *g) {
    const char *m = g->m ? arena_printf(e->a, "%d", g->m) : "si";
    const char *k = g->k ? arena_printf(e->a, "%d", g->k) : "sj";
    int n = g->n, nb = g->epilogue == 4 ? 2 : 1, v = 1;
    const char *at =
        g->b == ROWS     ? arena_printf(e->a, "k*%d + n", n)
        : g->b == PACKED ? arena_printf(e->a, "n/48*48*%s + k*48 + n%%48", k)
        : g->b == PAIRS
            ? arena_printf(e->a, "((n/48*((%s + 31)/32*16) + k/2)*48 + n%%48)*2 + k%%2", k)
            : arena_printf(e->a, "n*%s + k", k);
    const char *deep = g->b == PAIRS ? arena_printf(e->a, "((%s + 31)/32*32)", k) : k;
    bool panels = g->b == PACKED || g->b == PAIRS;
    int wide = panels ? (n + 47) / 48 * 48 : n;
    sb_printf(&e->text, "kernel g tem dot  m=%s n=%d ~k=%s\n", m, n, k);
    sb_printf(&e->text, "param 0 %s[%s*%s]\n", g->in, m, k);
    sb_printf(&e->text, "param 1 %s[%s*%d]\n", g->in, deep, wide);
    sb_printf(&e->text, "param 2 %s[%s*%d] written\n", g->acc, m, n);
    sb_printf(&e->text, "param 3 %s[%d]\nparam 4 %s[%s*%d]\n", g->acc, n, g->acc, m, n);
    sb_printf(&e->text, "param 5 %s[%s*%d]\n", g->in, deep, wide);
    sb_printf(&e->text, "%%1 %s load p0[m*%s + k]\n", g->in, k);
    int a = v++, b[2], acc[2];
    bool cast = strcmp(g->in, g->acc) != 0;
    if (cast) sb_printf(&e->text, "%%%d %s cast %%%d\n", v, g->acc, a), a = v++;
    for (int i = 0; i < nb; i++) {
        sb_printf(&e->text, "%%%d %s load p%d[%s]\n", v, g->in, i ? 5 : 1, at);
        b[i] = v++;
        if (cast) sb_printf(&e->text, "%%%d %s cast %%%d\n", v, g->acc, b[i]), b[i] = v++;
        sb_printf(&e->text, "%%%d %s mul %%%d, %%%d\n", v, g->acc, a, b[i]);
        sb_printf(&e->text, "%%%d %s reduce sum k %%%d\n", v + 1, g->acc, v);
        acc[i] = v + 1;
        v += 2;
    }
    int out = acc[0];
    if (g->epilogue == 1 || g->epilogue == 2) {
        sb_printf(&e->text, "%%%d %s load p3[n]\n", v, g->acc);
        sb_printf(&e->text, "%%%d %s add %%%d, %%%d\n", v + 1, g->acc, out, v);
        out = v + 1, v += 2;
    }
    if (g->epilogue == 2) {
        sb_printf(&e->text, "%%%d %s load p4[m*%d + n]\n", v, g->acc, n);
        sb_printf(&e->text, "%%%d %s add %%%d, %%%d\n", v + 1, g->acc, out, v);
        out = v + 1, v += 2;
    }
    if (g->epilogue == 3) sb_printf(&e->text, "%%%d %s tanh %%%d\n", v, g->acc, out), out = v++;
    if (g->epilogue == 4)
        sb_printf(&e->text, "%%%d %s mul %%%d, %%%d\n", v, g->acc, out, acc[1]), out = v++;
    sb_printf(&e->text, "%%%d %s store p2[m*%d + n] %%%d\n", v, g->acc, n, out);
    sb_printf(&e->text, "dot batch - m m n n k k pack %d%s a %%%d", panels ? 48 : 0,
              g->b == PAIRS ? " pairs" : "", a);
    for (int i = 0; i < nb; i++) sb_printf(&e->text, " acc %%%d b %%%d", acc[i], b[i]);
    sb_put(&e->text, "\nend\n");
}

static void test_gemms(void) {
    static const int64_t sizes[][2] = {{1, 40}, {8, 1}, {77, 130}};
    for (size_t i = 0; i < sizeof gemms / sizeof *gemms; i++) {
        bool symbolic = !gemms[i].m || !gemms[i].k;
        for (size_t s = 0; s < (symbolic ? 3 : 1); s++) {
            Env e = env_new(sizes[s][0], sizes[s][1]);
            gemm_text(&e, &gemms[i]);
            check(&e, NEAR);
        }
    }
}

/* --- Quads -------------------------------------------------------------------------------- */

/* u8 by i8 in fours of rows. taps: a convolution of a padded square, its border filled with a
 * number that is not zero, as a zero point is; else K = c. */
typedef struct Quads {
    int m, n, c, taps, stride;
    bool halves; /* the left operand is the upper half of a byte: computed, not read in place */
} Quads;

static const Quads quads[] = {
    {13, 100, 37, 0, 0, false}, {64, 96, 64, 0, 0, false},  {1, 49, 3, 0, 0, false},
    {9, 17, 130, 0, 0, false},  {21, 70, 38, 0, 0, true},   {7, 48, 1, 0, 0, false},
    {8, 50, 4, 3, 1, false},    {9, 33, 20, 3, 2, false},   {6, 64, 8, 1, 1, false},
    {8, 20, 12, 3, 1, true},    {600, 50, 20, 0, 0, false}, {33, 64, 128, 0, 0, false},
    {19, 50, 192, 0, 0, false}, {9, 48, 64, 1, 1, false}};

static void quads_text(Env *e, const Quads *q) {
    int out = q->taps ? (q->m - 1) / q->stride + 1 : 0, pad = q->taps / 2;
    int k = q->taps ? q->taps * q->taps * q->c : q->c, fours = (k + 63) / 64 * 16;
    int rows = q->taps ? out * out : q->m, size = q->taps ? q->m * q->m * q->c : q->m * k;
    const char *row = "c", *at = arena_printf(e->a, "m*%d + c", k), *mask = "";
    if (q->taps) {
        row = arena_printf(e->a, "(kh*%d + kw)*%d + c", q->taps, q->c);
        const char *y = arena_printf(e->a, "(oh*%d + kh - %d)", q->stride, pad);
        const char *x = arena_printf(e->a, "(ow*%d + kw - %d)", q->stride, pad);
        at = arena_printf(e->a, "(%s*%d + %s)*%d + c", y, q->m, x, q->c);
        mask = arena_printf(e->a, " if [(-1 < %s)*(%s < %d)*(-1 < %s)*(%s < %d)] else %%1", y, y,
                            q->m, x, x, q->m);
    }
    if (q->taps)
        sb_printf(&e->text, "kernel q tem dot  oh=%d ow=%d n=%d ~kh=%d ~kw=%d ~c=%d\n", out, out,
                  q->n, q->taps, q->taps, q->c);
    else
        sb_printf(&e->text, "kernel q tem dot  m=%d n=%d ~c=%d\n", q->m, q->n, q->c);
    sb_printf(&e->text, "param 0 u8[%d]\nparam 1 i8[%d]\nparam 2 i32[%d] written\n", size,
              (q->n + 47) / 48 * fours * 192, rows * q->n);
    sb_printf(&e->text, "%%1 u8 const 77\n%%2 u8 load p0[%s]%s\n%%3 u8 const 1\n", at, mask);
    sb_printf(&e->text, "%%4 u8 shr %%2, %%3\n%%5 i16 cast %%%d\n%%6 i32 cast %%5\n",
              q->halves ? 4 : 2);
    sb_printf(&e->text, "%%7 i8 load p1[((n/48*%d + (%s)/4)*48 + n%%48)*4 + (%s)%%4]\n", fours, row,
              row);
    const char *axes = q->taps ? "kh,kw,c" : "c", *m = q->taps ? "oh,ow" : "m";
    sb_printf(&e->text, "%%8 i32 cast %%7\n%%9 i32 mul %%6, %%8\n%%10 i32 reduce sum %s %%9\n",
              axes);
    sb_printf(&e->text, "%%11 i32 store p2[%s*%d + n] %%10\n",
              q->taps ? arena_printf(e->a, "(oh*%d + ow)", out) : "m", q->n);
    sb_printf(&e->text, "dot batch - m %s n n k %s pack 48 quads a %%6 acc %%10 b %%8\nend\n", m,
              axes);
}

static void test_quads(void) {
    for (size_t i = 0; i < sizeof quads / sizeof *quads; i++) {
        Env e = env_new(0, 0);
        quads_text(&e, &quads[i]);
        check(&e, 0);
    }
}

/* --- Blocks ------------------------------------------------------------------------------- */

/* Integers of 8 bits, and of few, with a scale for each block of k. m: 0 = a symbol; two: a second
 * right operand of the same left one. zeros: a zero point for each block, else one number. */
typedef struct Blocks {
    int m, n, k, block, bits;
    bool zeros, two;
} Blocks;

static const Blocks blocks[] = {
    {1, 100, 64, 32, 4, false, false}, {13, 100, 96, 32, 4, false, false},
    {3, 48, 64, 16, 4, true, false},   {9, 17, 256, 128, 4, true, true},
    {4, 70, 64, 64, 8, false, false},  {20, 50, 128, 32, 8, true, false},
    {5, 64, 64, 32, 2, false, true},   {8, 33, 96, 16, 2, true, false},
    {0, 100, 128, 64, 4, false, true}, {0, 49, 64, 32, 8, true, false}};

static void right_text(Env *e, const Blocks *b, int p, int v) {
    int per = 32 / b->bits, first = v;
    sb_printf(&e->text, "%%%d u32 load p%d[n/48*%d + k/%d*48 + n%%48]\n", v, p, b->k / per * 48,
              per);
    sb_printf(&e->text, "%%%d i64 expr [k%%%d*%d]\n%%%d u32 cast %%%d\n", v + 1, per, b->bits,
              v + 2, v + 1);
    sb_printf(&e->text, "%%%d u32 shr %%%d, %%%d\n%%%d u32 const %d\n", v + 3, v, v + 2, v + 4,
              (1 << b->bits) - 1);
    sb_printf(&e->text, "%%%d u32 and %%%d, %%%d\n%%%d f32 cast %%%d\n", v + 5, v + 3, v + 4, v + 6,
              v + 5);
    const char *at =
        arena_printf(e->a, "n/48*%d + k/%d*48 + n%%48", b->k / b->block * 48, b->block);
    v += 7;
    if (b->zeros)
        sb_printf(&e->text, "%%%d u8 load p%d[%s]\n%%%d f32 cast %%%d\n", v, p + 2, at, v + 1, v);
    if (!b->zeros)
        sb_printf(&e->text, "%%%d f32 const 3\n%%%d f32 const %d\n", v, v + 1, 1 << (b->bits - 1));
    sb_printf(&e->text, "%%%d f32 sub %%%d, %%%d\n%%%d f32 load p%d[%s]\n", v + 2, first + 6, v + 1,
              v + 3, p + 1, at);
    sb_printf(&e->text, "%%%d f32 mul %%%d, %%%d\n%%%d f32 mul %%4, %%%d\n", v + 4, v + 2, v + 3,
              v + 5, v + 4);
    sb_printf(&e->text, "%%%d f32 reduce sum k %%%d\n", v + 6, v + 5);
}

static void blocks_text(Env *e, const Blocks *b) {
    const char *m = b->m ? arena_printf(e->a, "%d", b->m) : "si";
    int panels = (b->n + 47) / 48, rights = b->two ? 2 : 1, scales = b->k / b->block;
    sb_printf(&e->text, "kernel b tem dot  m=%s n=%d ~k=%d\n", m, b->n, b->k);
    sb_printf(&e->text, "param 0 i8[%s*%d]\nparam 1 f32[%s*%d]\nparam 2 f32[%s*%d] written\n", m,
              b->k, m, scales, m, b->n);
    for (int i = 0; i < rights; i++)
        sb_printf(&e->text, "param %d u32[%d]\nparam %d f32[%d]\nparam %d u8[%d]\n", 3 * i + 3,
                  panels * b->k * b->bits / 32 * 48, 3 * i + 4, panels * scales * 48, 3 * i + 5,
                  panels * scales * 48);
    sb_printf(&e->text, "%%1 i8 load p0[m*%d + k]\n%%2 f32 cast %%1\n", b->k);
    sb_printf(&e->text, "%%3 f32 load p1[m*%d + k/%d]\n%%4 f32 mul %%2, %%3\n", scales, b->block);
    for (int i = 0; i < rights; i++) right_text(e, b, 3 * i + 3, 14 * i + 5);
    sb_printf(&e->text, "%%%d f32 %s %%18, %%%d\n", 14 * rights + 5, b->two ? "sub" : "add",
              b->two ? 32 : 18);
    sb_printf(&e->text, "%%%d f32 store p2[m*%d + n] %%%d\n", 14 * rights + 6, b->n,
              14 * rights + 5);
    sb_printf(&e->text, "dot batch - m m n n k k pack 0 block %d a %%4 acc %%18 b %%16", b->block);
    sb_printf(&e->text, "%s\nend\n", b->two ? " acc %32 b %30" : "");
}

static void test_blocks(void) {
    static const int64_t rows[] = {1, 4, 7, 21};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (size_t s = 0; s < (blocks[i].m ? 1 : sizeof rows / sizeof *rows); s++) {
            Env e = env_new(rows[s], 0);
            blocks_text(&e, &blocks[i]);
            check(&e, NEAR);
        }
}

/* --- Convolutions ------------------------------------------------------------------------- */

typedef struct Conv {
    int size, c, oc, taps, stride, pad;
    bool nchw; /* channels of the input outermost */
} Conv;

static const Conv convs[] = {
    {14, 16, 50, 3, 1, 1, false}, {9, 5, 20, 3, 2, 1, false},   {12, 3, 64, 7, 2, 3, false},
    {10, 20, 30, 1, 2, 0, false}, {10, 20, 30, 1, 1, 0, false}, {9, 8, 20, 3, 1, 0, false},
    {12, 3, 64, 7, 2, 3, true},   {16, 4, 40, 4, 4, 0, true},   {9, 200, 61, 3, 1, 1, false},
    {9, 70, 20, 3, 2, 0, false},  {9, 20, 61, 5, 1, 2, true},   {9, 20, 61, 5, 1, 2, false}};

static void conv_text(Env *e, const Conv *c) {
    int out = (c->size + 2 * c->pad - c->taps) / c->stride + 1, k = c->taps * c->taps * c->c;
    int panels = (c->oc + 47) / 48;
    const char *y = arena_printf(e->a, "(oh*%d + kh - %d)", c->stride, c->pad);
    const char *x = arena_printf(e->a, "(ow*%d + kw - %d)", c->stride, c->pad);
    if (c->taps == 1) {
        y = arena_printf(e->a, "(oh*%d)", c->stride);
        x = arena_printf(e->a, "(ow*%d)", c->stride);
    }
    sb_printf(&e->text, "kernel c tem dot  b=2 oh=%d ow=%d n=%d", out, out, c->oc);
    if (c->taps > 1) sb_printf(&e->text, " ~kh=%d ~kw=%d", c->taps, c->taps);
    sb_printf(&e->text, " ~c=%d\nparam 0 f32[%d]\nparam 1 f32[%d]\n", c->c,
              2 * c->size * c->size * c->c, panels * k * 48);
    sb_printf(&e->text, "param 2 f32[%d] written\nparam 3 f32[%d]\n", 2 * out * out * c->oc, c->oc);
    if (c->nchw)
        sb_printf(&e->text, "%%1 f32 load p0[((b*%d + c)*%d + %s)*%d + %s]", c->c, c->size, y,
                  c->size, x);
    else
        sb_printf(&e->text, "%%1 f32 load p0[((b*%d + %s)*%d + %s)*%d + c]", c->size, y, c->size, x,
                  c->c);
    if (c->pad)
        sb_printf(&e->text, " if [(-1 < %s)*(%s < %d)*(-1 < %s)*(%s < %d)]", y, y, c->size, x, x,
                  c->size);
    const char *row = c->taps > 1 ? arena_printf(e->a, "(kh*%d + kw)*%d + c", c->taps, c->c) : "c";
    sb_printf(&e->text, "\n%%2 f32 load p1[n/48*%d + (%s)*48 + n%%48]\n", k * 48, row);
    const char *axes = c->taps > 1 ? "kh,kw,c" : "c";
    sb_printf(&e->text, "%%3 f32 mul %%1, %%2\n%%4 f32 reduce sum %s %%3\n%%5 f32 load p3[n]\n",
              axes);
    sb_printf(&e->text, "%%6 f32 add %%4, %%5\n%%7 f32 const 0\n%%8 f32 max %%6, %%7\n");
    sb_printf(&e->text, "%%9 f32 store p2[((b*%d + oh)*%d + ow)*%d + n] %%8\n", out, out, c->oc);
    sb_printf(&e->text, "dot batch - m b,oh,ow n n k %s pack 48 a %%1 acc %%4 b %%2\nend\n", axes);
}

static void test_convs(void) {
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
        Env e = env_new(0, 0);
        conv_text(&e, &convs[i]);
        check(&e, NEAR);
    }
}

/* --- Attention ---------------------------------------------------------------------------- */

typedef struct Attention {
    int b, i, j, d, dv; /* i == 0: symbols si and sj for i and j */
    int mask;           /* 0 none, 1 added by key, 2 added by query and key, 3 causal */
    const char *kv;
} Attention;

static const Attention attentions[] = {
    {2, 64, 64, 64, 64, 0, "f32"},   {3, 37, 50, 64, 64, 1, "f32"},  {2, 50, 37, 64, 64, 2, "f32"},
    {2, 70, 70, 64, 64, 3, "f32"},   {2, 20, 600, 32, 40, 1, "f32"}, {2, 20, 30, 17, 23, 2, "f32"},
    {2, 1, 300, 64, 64, 1, "f32"},   {2, 3, 30, 20, 20, 2, "f32"},   {2, 5, 300, 64, 96, 3, "bf16"},
    {2, 33, 300, 80, 80, 3, "bf16"}, {2, 0, 0, 32, 32, 2, "f32"},    {1, 0, 0, 48, 20, 3, "f16"},
};

/* lse: the log of the exponentials' sum is stored, too. */
static void attention_text(Env *e, const Attention *t, bool lse) {
    const char *i = t->i ? arena_printf(e->a, "%d", t->i) : "si";
    const char *j = t->i ? arena_printf(e->a, "%d", t->j) : "sj";
    const char *shift = t->i ? arena_printf(e->a, "%d", t->j > t->i ? t->j - t->i : 0) : "sj - si";
    bool cast = strcmp(t->kv, "f32") != 0;
    sb_printf(&e->text, "kernel a tem attention  b=%d i=%s ~j=%s ~d=%d dv=%d\n", t->b, i, j, t->d,
              t->dv);
    sb_printf(&e->text, "param 0 f32[%d*%s]\nparam 1 %s[%d*%s]\n", t->b * t->d, i, t->kv,
              t->b * t->d, j);
    sb_printf(&e->text, "param 2 %s[%d*%s]\nparam 3 f32[%d*%s] written\nparam 4 f32[%s*%s]\n",
              t->kv, t->b * t->dv, j, t->b * t->dv, i, i, j);
    sb_printf(&e->text, "param 5 f32[%d*%s]%s\n", t->b, i, lse ? " written" : "");
    sb_printf(&e->text, "%%1 f32 load p0[(b*%s + i)*%d + d]\n", i, t->d);
    sb_printf(&e->text, "%%2 %s load p1[(b*%s + j)*%d + d]\n", t->kv, j, t->d);
    sb_printf(&e->text, "%%3 %s load p2[(b*%s + j)*%d + dv]\n", t->kv, j, t->dv);
    sb_printf(&e->text, "%%4 f32 %s %%2%s\n", cast ? "cast" : "max", cast ? "" : ", %2");
    sb_printf(&e->text, "%%5 f32 %s %%3%s\n", cast ? "cast" : "max", cast ? "" : ", %3");
    int k = cast ? 4 : 2, v = cast ? 5 : 3, score = 9;
    sb_printf(&e->text, "%%6 f32 mul %%1, %%%d\n%%7 f32 reduce sum d %%6\n%%8 f32 const 0.5\n", k);
    sb_put(&e->text, "%9 f32 mul %7, %8\n%10 i64 expr [j]\n");
    sb_printf(&e->text, "%%11 i64 expr [i + %s]\n%%12 bool le %%10, %%11\n%%13 f32 const -inf\n",
              shift);
    sb_printf(&e->text, "%%14 f32 load p4[%s]\n",
              t->mask == 1 ? "j" : arena_printf(e->a, "i*%s + j", j));
    sb_printf(&e->text, "%%15 f32 add %%9, %%14\n%%16 f32 select %%12, %%9, %%13\n");
    score = t->mask == 0 ? 9 : t->mask == 3 ? 16 : 15;
    sb_printf(&e->text, "%%17 f32 reduce max j %%%d\n", score);
    sb_put(&e->text, "%18 bool isinf %17\n%19 f32 const 0\n%20 f32 select %18, %19, %17\n");
    sb_printf(&e->text, "%%21 f32 sub %%%d, %%%d\n", score, lse ? 20 : 17);
    sb_put(&e->text, "%22 f32 exp %21\n%23 f32 reduce sum j %22\n%24 f32 div %22, %23\n");
    sb_printf(&e->text, "%%25 f32 mul %%24, %%%d\n%%26 f32 reduce sum j %%25\n", v);
    sb_printf(&e->text, "%%27 f32 store p3[(b*%s + i)*%d + dv] %%26\n", i, t->dv);
    sb_put(&e->text, "%28 f32 log %23\n%29 f32 add %28, %20\n");
    if (lse) sb_printf(&e->text, "%%30 f32 store p5[b*%s + i] %%29\n", i);
    sb_printf(&e->text,
              "attention batch b i i j j d d dv dv q %%1 k %%%d s %%7 score %%%d m %%17 e %%22 "
              "l %%23 v %%%d o %%26",
              k, score, v);
    sb_put(&e->text, "\nend\n");
}

static void test_attention(void) {
    static const int64_t sizes[][2] = {{1, 9}, {5, 77}, {83, 290}, {3, 0}};
    for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++)
        for (size_t s = 0; s < (attentions[i].i ? 2 : 8); s++) {
            Env e = env_new(sizes[s / 2][0], sizes[s / 2][1]);
            attention_text(&e, &attentions[i], s & 1);
            check(&e, NEAR);
        }
}

/* --- Gradients of attention --------------------------------------------------------------- */

typedef struct Gradient {
    int b, i, j, d, e, n; /* i == 0: symbols si and sj for i and j; e == 0: one product only */
    bool keys;            /* the result's rows are keys, not queries */
    int ahead;            /* keys that a query sees behind its own number; -1: all */
    const char *type;     /* of what is read by j */
} Gradient;

static const Gradient gradients[] = {
    {2, 64, 64, 64, 64, 64, false, -1, "f32"}, {3, 37, 50, 64, 32, 64, false, -1, "f32"},
    {2, 50, 37, 64, 0, 48, true, -1, "f32"},   {2, 70, 70, 64, 64, 64, false, 0, "f32"},
    {2, 70, 70, 64, 64, 64, true, 0, "f32"},   {1, 20, 600, 32, 40, 40, false, 3, "f32"},
    {1, 600, 20, 16, 17, 23, true, 5, "f32"},  {2, 1, 300, 64, 64, 64, false, -1, "f32"},
    {2, 300, 300, 20, 0, 20, true, 0, "f32"},  {2, 33, 300, 80, 80, 80, false, 270, "bf16"},
    {2, 0, 0, 32, 32, 32, false, 2, "f32"},    {1, 0, 0, 48, 20, 20, true, 0, "f16"},
    {1, 0, 0, 256, 0, 256, true, -1, "f32"},
};

/* Op number v: the load of param p, widened as op v + 1. */
static void load_wide(Env *e, int v, int p, const char *type, const char *at) {
    bool cast = strcmp(type, "f32") != 0;
    sb_printf(&e->text, "%%%d %s load p%d[%s]\n%%%d f32 %s %%%d%s\n", v, type, p, at, v + 1,
              cast ? "cast" : "max", v, cast ? "" : arena_printf(e->a, ", %%%d", v));
}

static void gradient_params(Env *e, const Gradient *t, const char *i, const char *j) {
    const char *q = t->keys ? j : i;
    int inner = t->e ? t->e : 1;
    sb_printf(&e->text, "kernel g tem attention_gradient  b=%d i=%s n=%d ~j=%s ~d=%d", t->b, i,
              t->n, j, t->d);
    if (t->e) sb_printf(&e->text, " ~e=%d", t->e);
    sb_printf(&e->text, "\nparam 0 f32[%d*%s]\nparam 1 %s[%d*%s]\n", t->b * t->d, i, t->type,
              t->b * t->d, j);
    sb_printf(&e->text, "param 2 f32[%d*%s]\nparam 3 %s[%d*%s]\n", t->b * inner, i, t->type,
              t->b * inner, j);
    sb_printf(&e->text, "param 4 f32[%d*%s]\nparam 5 f32[%d*%s]\n", t->b, q, t->b, q);
    sb_printf(&e->text, "param 6 %s[%d*%s]\nparam 7 f32[%d*%s] written\n", t->type, t->b * t->n, j,
              t->b * t->n, i);
}

static void gradient_text(Env *e, const Gradient *t) {
    const char *i = t->i ? arena_printf(e->a, "%d", t->i) : "si";
    const char *j = t->i ? arena_printf(e->a, "%d", t->j) : "sj";
    gradient_params(e, t, i, j);
    sb_printf(&e->text, "%%1 f32 load p0[(b*%s + i)*%d + d]\n", i, t->d);
    load_wide(e, 2, 1, t->type, arena_printf(e->a, "(b*%s + j)*%d + d", j, t->d));
    sb_put(&e->text, "%4 f32 mul %1, %3\n%5 f32 reduce sum d %4\n%6 f32 const 0.0625\n");
    sb_printf(&e->text, "%%7 f32 mul %%5, %%6\n%%8 i64 expr [%s]\n%%9 i64 expr [%s + %d]\n",
              t->keys ? "i" : "j", t->keys ? "j" : "i", t->ahead > 0 ? t->ahead : 0);
    sb_put(&e->text, "%10 bool le %8, %9\n%11 f32 const -inf\n%12 f32 select %10, %7, %11\n");
    sb_printf(&e->text, "%%13 f32 load p4[b*%s]\n",
              t->keys ? arena_printf(e->a, "%s + j", j) : arena_printf(e->a, "%s + i", i));
    sb_printf(&e->text, "%%14 f32 sub %%%d, %%13\n%%15 f32 exp %%14\n", t->ahead < 0 ? 7 : 12);
    if (t->e) {
        sb_printf(&e->text, "%%16 f32 load p2[(b*%s + i)*%d + e]\n", i, t->e);
        load_wide(e, 17, 3, t->type, arena_printf(e->a, "(b*%s + j)*%d + e", j, t->e));
        sb_put(&e->text, "%19 f32 mul %16, %18\n%20 f32 reduce sum e %19\n");
        sb_printf(&e->text, "%%21 f32 load p5[b*%s]\n",
                  t->keys ? arena_printf(e->a, "%s + j", j) : arena_printf(e->a, "%s + i", i));
        sb_put(&e->text, "%22 f32 sub %20, %21\n%23 f32 mul %15, %22\n");
    } else {
        for (int v = 16; v < 24; v++) sb_printf(&e->text, "%%%d f32 const 0\n", v);
    }
    load_wide(e, 24, 6, t->type, arena_printf(e->a, "(b*%s + j)*%d + n", j, t->n));
    int p = t->e ? 23 : 15;
    sb_printf(&e->text, "%%26 f32 mul %%%d, %%25\n%%27 f32 reduce sum j %%26\n", p);
    sb_printf(&e->text, "%%28 f32 store p7[(b*%s + i)*%d + n] %%27\n", i, t->n);
    sb_printf(&e->text, "attention_gradient batch b i i j j d d%s n n x %%1 y %%3 s %%5 ",
              t->e ? ",e" : "");
    sb_put(&e->text, t->e ? "x2 %16 y2 %18 s2 %20 " : "x2 %1 y2 %3 s2 %5 ");
    sb_printf(&e->text, "p %%%d b %%25 o %%27\nend\n", p);
}

/* What the template leaves out must be zero: rows of the statistics are not real ones, so that
 * probabilities may exceed 1. */
static void test_gradients(void) {
    static const int64_t sizes[][2] = {{1, 9}, {5, 77}, {83, 290}, {3, 0}};
    for (size_t i = 0; i < sizeof gradients / sizeof *gradients; i++)
        for (size_t s = 0; s < (gradients[i].i ? 1 : 4); s++) {
            Env e = env_new(sizes[s][0], sizes[s][1]);
            gradient_text(&e, &gradients[i]);
            check(&e, NEAR);
        }
}

TEST_MAIN {
    test_gemms();
    test_quads();
    test_blocks();
    test_convs();
    test_attention();
    test_gradients();
    for (uint32_t form = 0; form < PLAN_CPU_FORMS; form++)
        if (skipped >> form & 1)
            printf("skipped: code for %s, which this machine does not run\n",
                   plan_form_name((PlanForm)form));
    if (!(skipped >> PLAN_x86_64_amx & 1) && !isa_supports(PLAN_x86_64_amx))
        printf("emulated: code for %s, which this machine does not run\n",
               plan_form_name(PLAN_x86_64_amx));
}
