/* Rows with sums of columns beside them: who shares a row, which rows are finished a turn behind
 * their first folds, and which are taken by all of a block. Numbers of rows that are finished
 * behind come in batches, of which shuffles pick, those of others come with their rows. These
 * others are exactly the rows that exist: nothing is masked but in the last turn of a warp that
 * takes several. They keep weights in shared memory where registers are short, and blocks of such
 * long rows keep pace, as do those for which a warp asks for the rows of all teams; two of these
 * may share a row, and many long ones, which they deal out in lists. Sums of f32 are joined in
 * turn. Then the kernel that joins the blocks' sums: rows of a warp meet in registers. */
#include "tests/unit/codegen/tensor_cores.h"
#include <string.h>

typedef enum Way { TURNS, BEHIND, FETCHED, HALVES } Way;

typedef struct Band {
    const char *name, *type;
    int blocks, turns, columns;
    bool follows; /* a fold is made of another */
    Way way;
    int threads;
    bool named;  /* teams of several warps meet at barriers of their own */
    bool masked; /* some threads have no vector, or no row */
} Band;

static const Band bands[] = {
    {"three vectors a thread of a warp", "bf16", 132, 32, 768, false, FETCHED, 416, false, false},
    {"five vectors a thread of a warp", "bf16", 132, 32, 1152, false, FETCHED, 256, false, true},
    {"a seventh of a warp idle", "bf16", 132, 32, 1096, false, FETCHED, 256, false, true},
    {"two elements beside four vectors", "bf16", 132, 32, 1040, false, FETCHED, 288, false, true},
    {"two of four beside two", "f32", 132, 32, 272, false, FETCHED, 416, false, true},
    {"seven vectors a thread of a warp", "bf16", 132, 32, 1600, false, FETCHED, 224, false, true},
    {"idle threads", "bf16", 264, 32, 1152, false, TURNS, 128, false, true},
    {"a fold behind a fold of a warp", "bf16", 132, 32, 768, true, FETCHED, 416, false, false},
    {"a fold behind a fold", "bf16", 132, 32, 2600, true, BEHIND, 256, false, true},
    {"by two blocks", "bf16", 264, 32, 4096, false, TURNS, 256, false, false},
    {"by blocks, few vectors", "bf16", 264, 32, 2048, false, TURNS, 128, false, false},
    {"by blocks, a fold behind a fold", "bf16", 264, 32, 2048, true, BEHIND, 256, false, true},
    {"threads without a second vector", "bf16", 132, 32, 1000, false, FETCHED, 544, true, true},
    {"four teams of a block", "bf16", 132, 32, 2048, false, FETCHED, 544, true, false},
    {"five teams of three warps", "bf16", 132, 32, 1536, false, FETCHED, 512, true, false},
    {"a row a block", "bf16", 132, 32, 8192, false, FETCHED, 544, false, false},
    {"a row a block, f32", "f32", 132, 32, 4096, false, FETCHED, 544, false, false},
    {"a row of two blocks", "bf16", 66, 32, 12288, false, HALVES, 224, false, false},
    {"two elements beside a half's vectors", "bf16", 66, 32, 12296, false, HALVES, 288, false,
     true},
    {"as many vectors of bf16 by two blocks", "bf16", 264, 32, 8192, false, TURNS, 512, false,
     false},
    {"rows of a warp side by side", "bf16", 132, 32, 128, false, FETCHED, 544, false, true},
};

/* Four vectors of weights a thread beside three rows on their way: 32 KB. */
static const char kept[] =
    "kernel k per b=132 ~t=32 ~c=16384\n"
    "param 0 bf16[69206016]\nparam 1 bf16[69206016]\nparam 2 bf16[16384]\n"
    "param 3 bf16[69206016] written\nparam 4 f32[2162688] written\nparam 5 f32[2162688] written\n"
    "%1 bf16 load p0[(b + t*132)*16384 + c]\n%2 f32 cast %1\n"
    "%3 bf16 load p1[(b + t*132)*16384 + c]\n%4 f32 cast %3\n"
    "%5 bf16 load p2[c]\n%6 f32 cast %5\n%7 f32 mul %4, %6\n%8 f32 mul %2, %7\n"
    "%9 f32 reduce sum c %8\n%10 f32 mul %2, %9\n%11 f32 sub %7, %10\n%12 bf16 cast %11\n"
    "%13 bf16 store p3[(b + t*132)*16384 + c] %12\n%14 f32 mul %2, %4\n"
    "%15 f32 reduce sum t %14\n%16 f32 store p4[b*16384 + c] %15\n"
    "%17 f32 reduce sum t %2\n%18 f32 store p5[b*16384 + c] %17\nend\n";
enum { KEPT_ROW = 16384 * 2 * 2, KEPT_WEIGHTS = 512 * 4 * 8 * 2 };
/* Each of 132 blocks counts its 32 turns, and once more at its end: zero follows this count. */
static const char last_count[] = "4355";

/* Two sums of columns over 32 rows of each block, of bf16. */
static const char *two_sums(Arena *a, int blocks, int columns) {
    StrBuf *s = ARENA_NEW(a, StrBuf);
    const char *row = arena_printf(a, "(b + t*%d)*%d + c", blocks, columns);
    const int n = blocks * 32 * columns, sums = blocks * columns;
    sb_init(s, a);
    sb_printf(s, "kernel k per b=%d ~t=32 ~c=%d\n", blocks, columns);
    sb_printf(s, "param 0 bf16[%d]\nparam 1 bf16[%d]\nparam 2 bf16[%d] written\n", n, n, n);
    sb_printf(s, "param 3 f32[%d] written\nparam 4 f32[%d] written\n", sums, sums);
    sb_printf(s, "%%1 bf16 load p0[%s]\n%%2 f32 cast %%1\n%%3 bf16 load p1[%s]\n", row, row);
    sb_put(s, "%4 f32 cast %3\n%5 f32 mul %2, %4\n%6 f32 reduce sum c %5\n%7 f32 mul %2, %6\n");
    sb_printf(s, "%%8 f32 sub %%4, %%7\n%%9 bf16 cast %%8\n%%10 bf16 store p2[%s] %%9\n", row);
    sb_printf(s, "%%11 f32 reduce sum t %%5\n%%12 f32 store p3[b*%d + c] %%11\n", columns);
    sb_printf(s, "%%13 f32 reduce sum t %%4\n%%14 f32 store p4[b*%d + c] %%13\nend\n", columns);
    return sb_str(s);
}
/* 64 leave threads idle: rows of a warp on their way. 1,544: three vectors a thread, and two
 * elements more. 7,168: two vectors. 9,216: six. 7,176: rows that are no
 * whole lines; 16,376: the first half of one is. */
/* Rows that start at any element. */
enum {
    IDLE = 64,
    TAIL = 1544,
    LATE = 7168,
    UNTOLD = 9216,
    STARTS = 333,
    STARTS_WHOLE = 1500,
    BESIDE = 7176,
    HALVED = 16376
};
enum { STAGES = 3, LOADS = 2 };

/* Two sums of vectors that are one request each. */
static const char in_turn[] =
    "kernel k per b=132 ~t=32 ~c=1024\n"
    "param 0 f32[4325376]\nparam 1 f32[4325376]\nparam 2 f32[4325376] written\n"
    "param 3 f32[135168] written\nparam 4 f32[135168] written\n"
    "%1 f32 load p0[(b + t*132)*1024 + c]\n%2 f32 load p1[(b + t*132)*1024 + c]\n"
    "%3 f32 mul %1, %2\n%4 f32 reduce sum c %3\n%5 f32 mul %1, %4\n%6 f32 sub %2, %5\n"
    "%7 f32 store p2[(b + t*132)*1024 + c] %6\n"
    "%8 f32 reduce sum t %3\n%9 f32 store p3[b*1024 + c] %8\n"
    "%10 f32 reduce sum t %2\n%11 f32 store p4[b*1024 + c] %10\nend\n";

/* 256 rows of 41,001 columns, which start at any element, by 15 clusters of eight: in eight lists,
 * of which each cluster has one or two. */
#define BEGIN "b*8 + b*8/15"
#define MORE  "(6 < b*8 % 15)"
#define KEPT  "(" BEGIN " + " MORE " + 7)/16"
#define HERE  "t < " MORE "*2 + 16"
#define THERE "(c < " KEPT " + 41001)*(" KEPT " < c + 1)"
#define LIST  "(b*16 + t + b*8/15*2)/32"
#define DEALT                                                                                      \
    "dealt sharers 8 columns 41001 lists 8 per 32 at_once 2 first [b*16 + b*8/15*2] "              \
    "rows [" MORE "*2 + 16] shift [" KEPT "]\n"
#define PLACE                                                                                      \
    "[b*5248128 + t*328008 + c - " KEPT " - " LIST "*10455255 + b*8/15*656016] if [(" HERE         \
    ")*" THERE "]\n"
static const char listed[] =
    "kernel k per dealt b=15 ~t=18 ~c=41024\n"
    "param 0 bf16[10496256]\nparam 1 bf16[10496256]\nparam 2 bf16[41001]\n"
    "param 3 bf16[10496256] written\nparam 4 f32[615360] written\n"
    "%1 bf16 load p0" PLACE "%2 f32 cast %1\n%3 bf16 load p1" PLACE "%4 f32 cast %3\n"
    "%5 bf16 load p2[c - " KEPT "] if [" THERE "]\n"
    "%6 f32 cast %5\n%7 f32 mul %4, %6\n%8 f32 mul %2, %7\n"
    "%9 f32 reduce sum c %8\n%10 f32 mul %2, %9\n%11 f32 sub %7, %10\n%12 bf16 cast %11\n"
    "%13 i64 expr [" HERE "]\n%14 i64 const 0\n%15 bool ne %13, %14\n%16 f32 const 0\n"
    "%17 f32 mul %2, %4\n%18 f32 select %15, %17, %16\n"
    "%19 f32 reduce sum t %18\n%20 f32 store p4[b*41024 + c] %19\n"
    "%21 bf16 store p3[b*5248128 + t*328008 + c - " KEPT " - " LIST
    "*10455255 + b*8/15*656016] %12 if [(" HERE ")*" THERE "]\n" DEALT "end\n";

/* The same without weights: nothing that all rows read alike says where columns are kept. */
static const char unweighted[] =
    "kernel k per dealt b=15 ~t=18 ~c=41024\n"
    "param 0 bf16[10496256]\nparam 1 bf16[10496256]\nparam 2 bf16[10496256] written\n"
    "param 3 f32[615360] written\n"
    "%1 bf16 load p0" PLACE "%2 f32 cast %1\n%3 bf16 load p1" PLACE "%4 f32 cast %3\n"
    "%5 f32 mul %2, %4\n%6 f32 reduce sum c %5\n%7 f32 mul %2, %6\n%8 f32 sub %4, %7\n"
    "%9 bf16 cast %8\n%10 i64 expr [" HERE "]\n%11 i64 const 0\n%12 bool ne %10, %11\n"
    "%13 f32 const 0\n%14 f32 select %12, %5, %13\n"
    "%15 f32 reduce sum t %14\n%16 f32 store p3[b*41024 + c] %15\n"
    "%17 bf16 store p2[b*5248128 + t*328008 + c - " KEPT " - " LIST
    "*10455255 + b*8/15*656016] %9 if [(" HERE ")*" THERE "]\n" DEALT "end\n";

/* 2,112 rows of 3,001 columns, each of one block. */
#define AT1 "[b*384128 + t*24008 + c - (b*2 + 1)/33 - (b*16 + t)/264*6335111]"
#define IS1 " if [(c < ((b*2 + 1)/33 + 3001))*(b*2 < (c*33 + 32))]\n"
static const char alone[] =
    "kernel k per dealt b=132 ~t=16 ~c=3008\n"
    "param 0 bf16[6338112]\nparam 1 bf16[3001]\nparam 2 bf16[6338112]\n"
    "param 3 bf16[6338112] written\nparam 4 f32[397056] written\n"
    "%1 bf16 load p0" AT1 IS1 "%2 f32 cast %1\n"
    "%3 bf16 load p1[c - (b*2 + 1)/33]" IS1 "%4 f32 cast %3\n%5 f32 mul %2, %4\n"
    "%6 bf16 load p2" AT1 IS1 "%7 f32 cast %6\n%8 f32 mul %5, %7\n%9 f32 reduce sum c %8\n"
    "%10 f32 mul %7, %9\n%11 f32 sub %5, %10\n%12 bf16 cast %11\n"
    "%13 bf16 store p3" AT1 " %12" IS1 "%14 f32 mul %2, %7\n%15 f32 reduce sum t %14\n"
    "%16 f32 store p4[b*3008 + c] %15\n"
    "dealt sharers 1 columns 3001 lists 8 per 264 at_once 2 first [b*16] rows [16] "
    "shift [(b*2 + 1)/33]\nend\n";

static const char joins[] =
    "kernel k red c=768 ~b=132\n"
    "param 0 f32[101376]\nparam 1 f32[768] written\nparam 2 f32[101376]\nparam 3 f32[768] written\n"
    "%1 f32 load p0[b*768 + c]\n%2 f32 reduce sum b %1\n%3 f32 store p1[c] %2\n"
    "%4 f32 load p2[b*768 + c]\n%5 f32 reduce sum b %4\n%6 f32 store p3[c] %5\nend\n";

/* The last five rows of the last turn do not exist. */
static const char *kernel_text(const Band *t, Arena *a) {
    StrBuf *s = ARENA_NEW(a, StrBuf);
    int rows = t->blocks * t->turns - 5, n = rows * t->columns;
    const char *at = arena_printf(a, "min(b + t*%d, %d)", t->blocks, rows - 1);
    sb_init(s, a);
    sb_printf(s, "kernel k per b=%d ~t=%d ~c=%d\n", t->blocks, t->turns, t->columns);
    for (int i = 0; i < 2; i++) sb_printf(s, "param %d %s[%d]\n", i, t->type, n);
    sb_printf(s, "param 2 f32[%d]\nparam 3 %s[%d] written\n", rows, t->type, n);
    sb_printf(s, "param 4 f32[%d] written\n", t->blocks * t->columns);
    for (int i = 0; i < 2; i++)
        sb_printf(s, "%%%d %s load p%d[%s*%d + c]\n%%%d f32 cast %%%d\n", 2 * i + 1, t->type, i, at,
                  t->columns, 2 * i + 2, 2 * i + 1);
    sb_printf(s, "%%5 f32 load p2[%s]\n%%6 f32 mul %%2, %%5\n", at);
    sb_put(s, "%7 f32 mul %4, %6\n%8 f32 reduce sum c %7\n%9 f32 mul %6, %8\n%10 f32 sub %4, %9\n");
    sb_printf(s, "%%11 f32 reduce sum c %%%d\n", t->follows ? 10 : 4);
    sb_printf(s, "%%12 f32 sub %%10, %%11\n%%13 %s cast %%12\n", t->type);
    const char *is = arena_printf(a, "[b + t*%d < %d]", t->blocks, rows);
    sb_printf(s, "%%14 %s store p3[(b + t*%d)*%d + c] %%13 if %s\n", t->type, t->blocks, t->columns,
              is);
    sb_printf(s, "%%15 i64 expr %s\n%%16 i64 const 0\n%%17 bool ne %%15, %%16\n", is);
    sb_put(s, "%18 f32 const 0\n%19 f32 select %17, %7, %18\n");
    sb_printf(s, "%%20 f32 reduce sum t %%19\n%%21 f32 store p4[b*%d + c] %%20\nend\n", t->columns);
    return sb_str(s);
}

/* Shared memory of a multiprocessor, and what the system takes of it for each block. */
enum { PROCESSORS = 132, OF_PROCESSOR = 228 * 1024, OF_BLOCK = 1024 };

/* Turns that blocks count together. */
static const char counts[] = "red.relaxed.gpu.global.inc";

static void check(const Band *t, Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    const char *text = built_text(b);
    const bool fetched = t->way >= FETCHED;
    const int sharers = t->way == HALVES ? 2 : 1, blocks = t->blocks * sharers;
    CHECK(strstr(text, "cp.async.bulk.shared") != NULL);
    CHECK_EQ_I(expr_value(b->p, ck->grid[0]), blocks);
    CHECK_EQ_I(ck->block[0], t->threads);
    CHECK_EQ_I(ck->cluster[0], sharers == 1 ? 0 : sharers);
    CHECK(!strstr(text, "shfl.sync.idx") == (t->way != BEHIND));
    CHECK(!strstr(text, "cp.async.mbarrier.arrive.noinc") == (t->way != TURNS && !fetched));
    CHECK(!strstr(text, "bar.sync \t%r") == !t->named);
    CHECK(!strstr(text, "selp.f32") == !t->masked);
    /* Rows are asked for in one place, and turns counted in one, and behind the last. */
    CHECK(!fetched || built_count(text, "cp.async.bulk.shared") == LOADS);
    CHECK_EQ_I(built_count(text, counts), fetched ? 3 : 0);
    /* A block more would fit nowhere. */
    const int64_t a_block = (int64_t)ck->shared_bytes + OF_BLOCK;
    CHECK((blocks / PROCESSORS + 1) * a_block > OF_PROCESSOR);
    /* Sums of a block: of its 16 warps or fewer teams, each read in one request. */
    CHECK(t->way != TURNS || built_count(text, "ld.shared") <= 32);
}

static void check_kept(Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    const char *text = built_text(b);
    CHECK(ck->shared_bytes >= 3 * KEPT_ROW + KEPT_WEIGHTS);
    /* In a turn, and behind the last: of a block that has one less, too. */
    CHECK_EQ_I(built_count(text, counts), 3);
    CHECK(strstr(text, last_count) != NULL);
    CHECK(strstr(text, "ld.relaxed.gpu.global") != NULL);
    CHECK_EQ_I(expr_value(b->p, ck->zero_bytes), 16);
    CHECK(ck->zero_kept);
}

/* Requests of the first rows, and of the next in the loop. */
static void check_two_sums(Built *b) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->block[0], 512);
    CHECK_EQ_I(built_count(built_text(b), "cp.async.bulk.shared"), (STAGES + 1) * LOADS);
}

/* Four teams of two warps. Both of a thread's elements are read together, of each load twice, and
 * of what they give once each; the fifth such read is of the turns' count. */
static void check_tail(Built *b) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->block[0], 256 + 32);
    CHECK_EQ_I(built_count(built_text(b), "cp.async.bulk.shared"), LOADS);
    CHECK_EQ_I(built_count(built_text(b), "ld.shared.b32"), 2 * LOADS + 1);
    CHECK_EQ_I(built_count(built_text(b), "st.global.b32"), 1);
}

/* Rows that are no whole lines of memory lie where lines have them: who asks reckons with it, and
 * who reads, for folds and behind them, once for both loads. */
static void check_lies(Built *b, uint32_t threads) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->block[0], threads);
    CHECK_EQ_I(built_count(built_text(b), "cp.async.bulk.shared"), LOADS);
    CHECK(built_count(built_text(b), ", 112;") >= LOADS);
}

static void check_beside(Built *b) {
    check_lies(b, 256 + 128);
}

static void check_halved(Built *b) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->cluster[0], 2);
    check_lies(b, 256 + 128);
}

/* Rows that are whole lines lie one behind the other. */
static void check_lines(Built *b) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->block[0], 448 + 32);
    CHECK_EQ_I(built_count(built_text(b), ", 112;"), 0);
}

/* Rows are finished a turn later: threads meet where barriers begin, and no more. */
static void check_late(Built *b) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->block[0], 448 + 32);
    CHECK(strstr(built_text(b), ".minnctapersm") != NULL);
    CHECK_EQ_I(built_count(built_text(b), "bar.sync"), 1);
    /* For rows, in the first turn and the others; for folds, of the last row and the others; and
     * who fetches, for places. */
    CHECK_EQ_I(built_count(built_text(b), "mbarrier.try_wait"), 5);
}

/* Six vectors a thread: the assembler spills if it is told how many blocks there are. */
static void check_untold(Built *b) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->block[0], 192 + 32);
    CHECK(!strstr(built_text(b), ".minnctapersm"));
}

/* Two rows are asked for in one place. What came beside them is zero: in the first turn and the
 * others, of two loads, in both of a thread's vectors. Their folds are sent in one message, and
 * between lists sums are. */
static void check_listed(Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    CHECK_EQ_I(expr_value(b->p, ck->grid[0]), 120);
    CHECK_EQ_I(ck->cluster[0], 8);
    CHECK_EQ_I(ck->block[0], 224 + 32);
    CHECK_EQ_I(built_count(built_text(b), "cp.async.bulk.shared"), 2 * LOADS);
    CHECK_EQ_I(built_count(built_text(b), "st.shared.b16"), 2 * 2 * LOADS * 2 * 8);
    CHECK_EQ_I(built_count(built_text(b), "st.async"), 2 + 1);
}

/* Nobody else has a part of the row. A warpgroup gives up what registers it has. */
static void check_alone(Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    CHECK_EQ_I(expr_value(b->p, ck->grid[0]), 132);
    CHECK_EQ_I(ck->cluster[0], 0);
    CHECK_EQ_I(ck->block[0], 384 + 128);
    CHECK_EQ_I(built_count(built_text(b), "setmaxnreg"), 2);
    CHECK_EQ_I(built_count(built_text(b), "cp.async.bulk.shared"), 2 * LOADS);
    CHECK_EQ_I(built_count(built_text(b), "st.async"), 0);
}

/* Teams whose rows come as one, in vectors of 8 bytes; what a vector has of its neighbours is zero
 * in folds: of two loads, in the first of a thread's vectors and the last. */
static void check_started(Built *b) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->block[0], 384 + 128);
    CHECK_EQ_I(built_count(built_text(b), "cp.async.bulk.shared"), LOADS);
    CHECK_EQ_I(built_count(built_text(b), ", 0, 0x"), 2 * LOADS * 2);
    CHECK_EQ_I(built_count(built_text(b), "setmaxnreg"), 2);
}

/* All start with such a vector: there are no neighbours in it. Results lie in shared memory until
 * they leave as one, while others come or behind all turns. */
static void check_started_whole(Built *b) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->block[0], 480 + 32);
    CHECK_EQ_I(built_count(built_text(b), "cp.async.bulk.shared"), LOADS);
    CHECK_EQ_I(built_count(built_text(b), ", 0, 0x"), 0);
    CHECK_EQ_I(built_count(built_text(b), "st.shared.v2"), 4);
    CHECK_EQ_I(built_count(built_text(b), "st.global.v2"), 0);
    CHECK_EQ_I(built_count(built_text(b), "cp.async.bulk.global"), 2);
}

/* All where barriers begin, who computes twice for each sum, and once in a turn. All of them
 * arrive, not one lane of a warp. */
static void check_in_turn(Built *b) {
    CHECK_EQ_I(built_code(b, target_for(PLAN_cuda))->block[0], 512 + 32);
    CHECK_EQ_I(built_count(built_text(b), "bar.sync \t0"), 1);
    CHECK_EQ_I(built_count(built_text(b), "mbarrier.arrive.release"), 2 * 2 + 1);
    CHECK_EQ_I(built_count(built_text(b), "mbarrier.init.shared.b64 \t[%r"), 0);
}

/* A warp's eight rows of four vectors meet in three steps; then sixteen warps do. */
static void check_joins(Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    CHECK_EQ_I(ck->block[0], 512);
    CHECK_EQ_I(built_count(built_text(b), "shfl.sync.bfly"), 2 * 4 * 3);
    CHECK_EQ_I(built_count(built_text(b), "ld.shared"), 2 * 16);
}

static void check_text(const char *text, void (*check_one)(Built *)) {
    Built b = built_new(text);
    if (built_parse(&b, text)) check_one(&b);
    arena_destroy(b.a);
}

TEST_MAIN {
    BUILT_EACH(bands, kernel_text, check)
    check_text(kept, check_kept);
    Arena *a = arena_create();
    check_text(two_sums(a, 132, IDLE), check_two_sums);
    check_text(two_sums(a, 132, TAIL), check_tail);
    check_text(two_sums(a, 132, BESIDE), check_beside);
    check_text(two_sums(a, 66, HALVED), check_halved);
    check_text(two_sums(a, 132, LATE), check_lines);
    check_text(two_sums(a, 132, LATE), check_late);
    check_text(two_sums(a, 132, UNTOLD), check_untold);
    check_text(two_sums(a, 132, STARTS), check_started);
    check_text(two_sums(a, 132, STARTS_WHOLE), check_started_whole);
    arena_destroy(a);
    check_text(in_turn, check_in_turn);
    check_text(joins, check_joins);
    check_text(listed, check_listed);
    check_text(unweighted, check_listed);
    check_text(alone, check_alone);
}
