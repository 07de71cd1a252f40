/* Memory-bound kernels of the GPU: how often their PTX reaches memory, and in what pieces. A row
 * that fits into registers is read once whatever the number of passes; neighbouring elements go
 * together, 16 bytes at a time, where sizes allow it. */
#include "codegen/target.h"
#include "tests/unit/test.h"

static uint32_t count(const char *text, const char *what) {
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

typedef struct Want {
    const char *name, *text;
    uint32_t wide_loads, loads, wide_stores, stores; /* wide ones are among all */
} Want;

#define ADD_RELU(n)                                                                                \
    "kernel k poi i=" n "\n param 0 bf16[" n "]\n param 1 bf16[" n "]\n param 2 bf16[" n           \
    "] written\n %1 bf16 load p0[i]\n %2 f32 cast %1\n %3 bf16 load p1[i]\n %4 f32 cast %3\n"      \
    " %5 f32 add %2, %4\n %6 f32 const 0\n %7 f32 max %5, %6\n %8 bf16 cast %7\n"                  \
    " %9 bf16 store p2[i] %8\nend\n"
#define BIAS_EXP(rows)                                                                             \
    "kernel k poi i=" rows " j=4096\n param 0 bf16[" rows "*4096]\n param 1 bf16[4096]\n"          \
    " param 2 bf16[" rows "*4096] written\n %1 bf16 load p0[i*4096 + j]\n %2 f32 cast %1\n"        \
    " %3 bf16 load p1[j]\n %4 f32 cast %3\n %5 f32 add %2, %4\n %6 f32 exp %5\n"                   \
    " %7 bf16 cast %6\n %8 bf16 store p2[i*4096 + j] %7\nend\n"
#define SOFTMAX(t, rows, n)                                                                        \
    "kernel k per i=" rows " ~j=" n "\n param 0 " t "[" rows "*" n "]\n param 1 " t "[" rows "*" n \
    "] written\n %1 " t " load p0[i*" n " + j]\n %2 f32 cast %1\n %3 f32 reduce max j %2\n"        \
    " %4 f32 sub %2, %3\n %5 f32 exp %4\n %6 f32 reduce sum j %5\n %7 f32 div %5, %6\n"            \
    " %8 " t " cast %7\n %9 " t " store p1[i*" n " + j] %8\nend\n"

#define TURN(t, rows, n)                                                                           \
    "kernel k poi i=" n " j=" rows "\n param 0 " t "[" rows "*" n "]\n param 1 " t "[" rows "*" n  \
    "] written\n %1 " t " load p0[j*" n " + i]\n %2 " t " store p1[i*" rows " + j] %1\nend\n"

#define COLUMNS(t, rows, n)                                                                        \
    "kernel k red j=" n " ~i=" rows "\n param 0 " t "[" rows "*" n "]\n param 1 f32[" n            \
    "] written\n"                                                                                  \
    " %1 " t " load p0[i*" n " + j]\n %2 f32 cast %1\n %3 f32 reduce sum i %2\n"                   \
    " %4 f32 store p1[j] %3\nend\n"

static const Want wants[] = {
    {"add, relu", ADD_RELU("16777216"), 2, 2, 1, 1},
    {"of odd length: vectors, and what is behind them", ADD_RELU("16777217"), 2, 4, 1, 2},
    {"of one operand and what all rows share, by pairs", BIAS_EXP("16384"), 4, 4, 2, 2},
    {"too few for pairs", BIAS_EXP("512"), 2, 2, 1, 1},
    {"too few for vectors", ADD_RELU("4096"), 0, 2, 0, 1},
    {"softmax by warps", SOFTMAX("bf16", "16384", "768"), 3, 3, 3, 3},
    {"softmax by blocks", SOFTMAX("bf16", "16384", "4096"), 2, 2, 2, 2},
    {"softmax in parts of a warp, two rows together", SOFTMAX("bf16", "65536", "128"), 2, 2, 2, 2},
    {"softmax in parts of a warp", SOFTMAX("bf16", "65537", "128"), 1, 1, 1, 1},
    {"softmax with a short end", SOFTMAX("f16", "16384", "1000"), 4, 4, 4, 4},
    {"transpose in wide tiles", TURN("bf16", "4096", "4096"), 4, 4, 4, 4},
    {"transpose of too few of them", TURN("bf16", "1024", "1024"), 2, 2, 2, 2},
    {"transpose of which wide ones lie past the end", TURN("bf16", "136", "131200"), 2, 2, 2, 2},
    {"transpose of ragged sizes", TURN("f32", "100", "1000"), 4, 4, 4, 4},
    {"transpose of odd sizes", TURN("f16", "333", "77"), 0, 16, 0, 16},
    {"pixels put together where channels come to stand in front",
     "kernel k poi b=8 c=64 y=64 v=2 x=64 u=2\n param 0 f16[8388608]\n"
     " param 1 f32[8388608] written\n"
     " %1 f16 load p0[b*1048576 + c + y*16384 + v*128 + x*256 + u*64]\n %2 f32 cast %1\n"
     " %3 f32 store p1[b*1048576 + c*16384 + y*256 + v*128 + x*2 + u] %2\nend\n",
     2, 2, 4, 4},
    {"channels shuffled, half of them of another order",
     "kernel k poi b=64 c=29 g=2 i=784\n param 0 f16[3211264]\n param 1 f32[5820416]\n"
     " param 2 f16[3211264] written\n %1 f16 load p0[b*50176 + c + g*58 + i*64 - 29] if [28 < c + "
     "g*58]\n"
     " %2 f32 cast %1\n %3 f32 load p1[b*90944 + c*784 + g*45472 + i]\n %4 i64 expr [c + g*58 < "
     "29]\n"
     " %5 i64 const 0\n %6 bool ne %4, %5\n %7 f32 select %6, %3, %2\n %8 f16 cast %7\n"
     " %9 f16 store p2[b*50176 + c*2 + g + i*64] %8\nend\n",
     4, 20, 0, 8},
    {"vector times matrix",
     "kernel k tem dot  i=4096 ~j=4096\n param 0 bf16[4096]\n param 1 bf16[16777216]\n"
     " param 2 bf16[4096] written\n %1 bf16 load p0[j]\n %2 f32 cast %1\n"
     " %3 bf16 load p1[i*4096 + j]\n %4 f32 cast %3\n %5 f32 mul %2, %4\n"
     " %6 f32 reduce sum j %5\n %7 bf16 cast %6\n %8 bf16 store p2[i] %7\n"
     " dot batch - m - n i k j pack 0 a %2 acc %6 b %4\nend\n",
     18, 18, 0, 1},
    /* The row once in every block, its norm with it; B is as wide as before. */
    {"vector times matrix, behind a norm",
     "kernel k tem dot  i=4096 ~j=4096\n param 0 bf16[4096]\n param 1 bf16[16777216]\n"
     " param 2 bf16[4096] written\n %1 bf16 load p0[j]\n %2 f32 cast %1\n %3 f32 mul %2, %2\n"
     " %4 f32 reduce sum j %3\n %5 f32 rsqrt %4\n %6 f32 mul %2, %5\n"
     " %7 bf16 load p1[i*4096 + j]\n %8 f32 cast %7\n %9 f32 mul %6, %8\n"
     " %10 f32 reduce sum j %9\n %11 bf16 cast %10\n %12 bf16 store p2[i] %11\n"
     " dot batch - m - n i k j pack 0 a %6 acc %10 b %8\nend\n",
     18, 18, 0, 1},
    /* A fold inside of the row: its operand is read for every step of it. */
    {"softmax of sums",
     "kernel k per i=512 ~j=18 ~d=8\n param 0 f32[4096]\n param 1 f32[512*144]\n"
     " param 2 f32[512*18] written\n %1 f32 load p0[i*8 + d]\n %2 f32 load p1[i*144 + j*8 + d]\n"
     " %3 f32 mul %1, %2\n %4 f32 reduce sum d %3\n %5 f32 reduce max j %4\n %6 f32 sub %4, %5\n"
     " %7 f32 exp %6\n %8 f32 reduce sum j %7\n %9 f32 div %7, %8\n"
     " %10 f32 store p2[i*18 + j] %9\nend\n",
     0, 8, 0, 3},
    /* The address along i is computed once per point of it: j still goes in vectors. */
    {"gather of rows",
     "kernel k poi i=16 j=131072\n param 0 i64[16]\n param 1 f32[8*131072]\n param 2 "
     "f32[16*131072] "
     "written\n %1 i64 load p0[i]\n %2 i64 bind at %1\n %3 f32 load p1[at*131072 + j]\n"
     " %4 f32 neg %3\n %5 f32 store p2[i*131072 + j] %4\nend\n",
     1, 2, 1, 1},
    /* Aligned vectors of rows that begin anywhere; the last row goes by elements. */
    {"sums of an odd number of columns", COLUMNS("bf16", "1024", "50257"), 32, 33, 0, 1},
    {"softmax of rows that 64 threads divide evenly", SOFTMAX("bf16", "65536", "2560"), 5, 5, 5, 5},
    {"softmax of few of them", SOFTMAX("bf16", "256", "2560"), 2, 2, 2, 2},
    {"softmax of odd length", SOFTMAX("bf16", "16384", "33"), 0, 3, 0, 3},
};

/* Few groups of columns of few rows: a block each. */
static const char few_columns[] = COLUMNS("f32", "100", "32");

/* Few long sums are read by all multiprocessors, updates of many rows made by all of them. */
static void check_blocks(const char *text, int64_t least) {
    Arena *a = arena_create();
    ExprPool *p = expr_pool_create(a);
    DiagSink *d = diag_create(a, NULL);
    const char *end;
    Kernel *k = kir_parse(a, p, d, text, &end);
    Schedule s = {.exprs = p};
    CodeOptions o = {.threads = 1};
    CodeResult r = {0};
    if (!CHECK(k != NULL)) return;
    vec_push(a, &s.steps, ((SStep){.kind = STEP_kernel, .kernel = k}));
    CHECK(codegen_run(target_for(PLAN_cuda), &s, &o, a, d, &r) == GRAPHC_OK);
    int64_t blocks = 1, n;
    for (int i = 0; i < 3; i++) blocks *= expr_is_const(p, r.kernels[0].grid[i], &n) ? n : 0;
    CHECK(blocks >= least);
    arena_destroy(a);
}

static void check(const Want *w) {
    Arena *a = arena_create();
    ExprPool *p = expr_pool_create(a);
    DiagSink *d = diag_create(a, NULL);
    const char *end;
    Kernel *k = kir_parse(a, p, d, w->text, &end);
    Schedule s = {.exprs = p};
    CodeOptions o = {.threads = 1};
    CodeResult r = {0};
    if (!CHECK(k != NULL)) return;
    vec_push(a, &s.steps, ((SStep){.kind = STEP_kernel, .kernel = k}));
    CHECK(codegen_run(target_for(PLAN_cuda), &s, &o, a, d, &r) == GRAPHC_OK);
    const char *ptx = NULL;
    for (uint32_t i = 0; i < r.nblobs; i++)
        if (r.blobs[i].form == CODE_ptx) ptx = r.blobs[i].data;
    if (CHECK(ptx != NULL)) {
        int failed = test_failures;
        CHECK_EQ_I(count(ptx, "ld.global.v4.b32"), w->wide_loads);
        CHECK_EQ_I(count(ptx, "ld.global"), w->loads);
        CHECK_EQ_I(count(ptx, "st.global.v4.b32"), w->wide_stores);
        CHECK_EQ_I(count(ptx, "st.global"), w->stores);
        if (test_failures > failed) fprintf(stderr, "in \"%s\"\n", w->name);
    }
    arena_destroy(a);
}

TEST_MAIN {
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) check(&wants[i]);
    check_blocks(few_columns, 1);
    check_blocks("kernel k red ~j=2359296\n param 0 f32[2359296]\n param 1 f32[1] written\n"
                 " %1 f32 load p0[j]\n %2 f32 mul %1, %1\n %3 f32 reduce sum j %2\n"
                 " %4 f32 store p1[0] %3\nend\n",
                 132);
    check_blocks("kernel k red i=3 ~j=1000 ~l=999\n param 0 f32[3*1000*1001]\n"
                 " param 1 f32[3] written\n %1 f32 load p0[i*1001000 + j + l*1001]\n"
                 " %2 f32 reduce max j,l %1\n %3 f32 store p1[i] %2\nend\n",
                 132);
    check_blocks("kernel k poi serial i=16384 j=768\n param 0 i64[16384]\n param 1 f32[16384*768]\n"
                 " param 2 f32[50257*768] written\n %1 i64 load p0[i]\n %2 i64 bind at %1\n"
                 " %3 f32 load p1[i*768 + j]\n"
                 " %4 f32 atomic add p2[at*768 + j] %3 if [at < 50257]\nend\n",
                 132);
}
