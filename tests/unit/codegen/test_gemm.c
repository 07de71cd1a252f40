/* Contractions on tensor cores: which kernels take that template, what the copy engine is told,
 * and that the assembler keeps every sum in a register. Numbers are checked where there is a GPU
 * (tests/gpu). */
#include "tests/unit/codegen/tensor_cores.h"
#include <string.h>

/* A product of m x k and k x n; {A}, {B}: their indices, {E}: what follows the sum in %6. */
typedef struct Product {
    const char *name, *type, *a, *b, *epilogue;
    int m, n, k;
    uint32_t maps;    /* 0: not on tensor cores */
    const char *note; /* part of what explain says */
} Product;

#define STORE_BF16 "%7 bf16 cast %6\n %8 bf16 store p3[i*N + j] %7\n"
#define ROWS_A     "i*K + k"
#define ROWS_B     "j*K + k"
#define DOT        "dot batch - m i n j k k pack 0 a %2 acc %6 b %4\n"

static const Product products[] = {
    {"nt", "bf16", ROWS_A, ROWS_B, STORE_BF16 DOT, 512, 512, 256, 3, "tiles of"},
    {"nn", "bf16", ROWS_A, "k*N + j", STORE_BF16 DOT, 4096, 4096, 4096, 3, "tiles of"},
    {"tn", "bf16", "k*M + i", ROWS_B, STORE_BF16 DOT, 4096, 16384, 4096, 3, "tiles of"},
    {"rows off lines", "bf16", ROWS_A, "k*N + j", STORE_BF16 DOT, 3000, 3000, 3000, 3,
     "two blocks"},
    {"ragged", "bf16", ROWS_A, ROWS_B, STORE_BF16 DOT, 37, 72, 136, 3, "tiles of"},
    {"odd columns", "bf16", ROWS_A, ROWS_B, STORE_BF16 DOT, 37, 71, 136, 2, "tiles of"},
    {"bias", "bf16", ROWS_A, ROWS_B,
     "%7 bf16 load p2[j]\n %8 f32 cast %7\n %9 f32 add %6, %8\n %10 f32 tanh %9\n"
     "%11 bf16 cast %10\n %12 bf16 store p3[i*N + j] %11\n" DOT,
     300, 4096, 512, 3, "tiles of"},
    {"gelu", "bf16", ROWS_A, ROWS_B,
     "%7 f32 const 1\n %8 f32 erf %6\n %9 f32 add %8, %7\n %10 f32 mul %6, %9\n"
     "%11 bf16 cast %10\n %12 bf16 store p3[i*N + j] %11\n" DOT,
     512, 512, 256, 3, "tiles of"},
    {"added", "bf16", ROWS_A, ROWS_B,
     "%7 bf16 load p2[i*N + j]\n %8 f32 cast %7\n %9 f32 add %6, %8\n"
     "%10 bf16 cast %9\n %11 bf16 store p3[i*N + j] %10\n" DOT,
     4096, 16384, 4096, 4, "tiles of"},
    {"f32 result", "f16", ROWS_A, ROWS_B, "%7 f32 store p3[i*N + j] %6\n" DOT, 130, 140, 64, 3,
     "tiles of"},
    {"gated", "bf16", ROWS_A, ROWS_B,
     "%7 bf16 load p2[j*K + k]\n %8 f32 cast %7\n %9 f32 mul %2, %8\n %10 f32 reduce sum k %9\n"
     "%11 f32 sigmoid %6\n %12 f32 mul %11, %10\n %13 bf16 cast %12\n"
     "%14 bf16 store p3[i*N + j] %13\n"
     "dot batch - m i n j k k pack 0 a %2 acc %6 b %4 acc %10 b %8\n",
     2048, 4096, 512, 4, "tiles of"},
    {"f32 operands", "f32", ROWS_A, ROWS_B, STORE_BF16 DOT, 512, 512, 256, 0, "computed"},
    {"few rows", "bf16", ROWS_A, ROWS_B, STORE_BF16 DOT, 16, 4096, 512, 3, "tiles of 64x64"},
    {"narrow tiles", "bf16", ROWS_A, ROWS_B, STORE_BF16 DOT, 49, 2048, 512, 3, "tiles of 64x32"},
    {"one row", "bf16", ROWS_A, ROWS_B, STORE_BF16 DOT, 1, 4096, 512, 0, "one row"},
    {"rows of 12 bytes", "bf16", ROWS_A, ROWS_B, STORE_BF16 DOT, 64, 64, 6, 0, "16-byte aligned"},
    {"a row apart", "bf16", "i*(K + 4) + k", ROWS_B, STORE_BF16 DOT, 64, 64, 64, 0,
     "16-byte aligned"},
};

/* The index text with the sizes in place of M, N and K. */
static void put_sizes(StrBuf *s, const char *text, const Product *c) {
    for (; *text; text++) {
        if (*text == 'M' || *text == 'N' || *text == 'K')
            sb_printf(s, "%d", *text == 'M' ? c->m : *text == 'N' ? c->n : c->k);
        else
            sb_putn(s, text, 1);
    }
}

static const char *kernel_text(const Product *c, Arena *a) {
    StrBuf s;
    sb_init(&s, a);
    const char *factor = strcmp(c->type, "f32") == 0 ? "neg" : "cast";
    int more = c->m * c->n > c->n * c->k ? c->m * c->n : c->n * c->k;
    sb_printf(&s, "kernel k tem dot i=%d j=%d ~k=%d\n param 0 %s[%d]\n param 1 %s[%d]\n", c->m,
              c->n, c->k, c->type, c->m * (c->k + 4), c->type, c->n * c->k);
    sb_printf(&s, "param 2 bf16[%d]\n param 3 %s[%d] written\n", more,
              strstr(c->epilogue, "f32 store") ? "f32" : "bf16", c->m * c->n);
    sb_printf(&s, "%%1 %s load p0[", c->type);
    put_sizes(&s, c->a, c);
    sb_printf(&s, "]\n %%2 f32 %s %%1\n %%3 %s load p1[", factor, c->type);
    put_sizes(&s, c->b, c);
    sb_printf(&s, "]\n %%4 f32 %s %%3\n %%5 f32 mul %%2, %%4\n %%6 f32 reduce sum k %%5\n ",
              factor);
    put_sizes(&s, c->epilogue, c);
    sb_put(&s, "cost reads [1] writes [1] flops [1]\n end\n");
    return sb_str(&s);
}

/* Two digits of every f32, summed in three parts that an operand is not evenly spaced along. */
static const char digits[] =
    "kernel k tem dot i=512 j=512 ~p=3 ~k=256\n param 0 f16[262144]\n param 1 f16[262144]\n"
    "param 2 f32[262144] written\n"
    "%1 f16 load p0[i*512 + k + (-p) % 2*256]\n %2 f32 cast %1\n"
    "%3 f16 load p1[j + k*512 + (-p)/2*131072 + 131072]\n %4 f32 cast %3\n"
    "%5 f32 mul %2, %4\n %6 f32 reduce sum p,k %5\n %7 f32 store p2[i*512 + j] %6\n"
    "dot batch - m i n j k p,k pack 0 a %2 acc %6 b %4\n"
    "cost reads [1] writes [1] flops [1]\n end\n";

static void check_digits(void) {
    Built b = built_new("digits");
    if (built_parse(&b, digits)) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        CHECK(strstr(ck->note, "digits"));
        if (CHECK(ck->nmaps == 4)) { /* low and high of both */
            CHECK(ck->maps[0].param == ck->maps[1].param && ck->maps[0].base != ck->maps[1].base);
            CHECK(ck->maps[2].param == ck->maps[3].param && ck->maps[2].base != ck->maps[3].base);
        }
        CHECK(strstr(built_text(&b), "fma.rn.f32"));
    }
    arena_destroy(b.a);
}

/* Products of 8 bits: what is multiplied, in what the sums are, how B lies; `ptx` is in the text of
 * those that go to tensor cores, `note` in what explain says. */
typedef struct Narrow {
    const char *a, *b, *sum, *at, *out, *ptx, *note;
    uint32_t maps;
} Narrow;

static const Narrow narrow[] = {
    {"u8", "i8", "i32", ROWS_B, "i32", "k32.s32.u8.s8 {", "tiles of", 3},
    {"i8", "u8", "i32", ROWS_B, "i32", "k32.s32.s8.u8 {", "tiles of", 3},
    {"u8", "u8", "i32", ROWS_B, "i32", "k32.s32.u8.u8 {", "tiles of", 3},
    {"i8", "i8", "i32", ROWS_B, "i8", "k32.s32.s8.s8 {", "tiles of", 3},
    {"f8e4m3fn", "f8e4m3fn", "f32", ROWS_B, "f32", "k32.f32.e4m3.e4m3 {", "tiles of", 2},
    {"f8e5m2", "f8e5m2", "f32", ROWS_B, "f32", "k32.f32.e5m2.e5m2 {", "tiles of", 2},
    {"i8", "i8", "i32", "k*N + j", "i32", NULL, "rows across the sum", 0},
    {"i8", "i8", "f32", ROWS_B, "f32", NULL, "computed", 0},
    {"f8e4m3fn", "f8e5m2", "f32", ROWS_B, "f32", NULL, "differ in type", 0},
};

static const char *narrow_text(const Narrow *t, Arena *a) {
    const Product size = {.m = 1024, .n = 1024, .k = 1024};
    StrBuf s;
    sb_init(&s, a);
    sb_printf(
        &s, "kernel k tem dot i=1024 j=1024 ~k=1024\n param 0 %s[1048576]\n param 1 %s[1048576]\n",
        t->a, t->b);
    sb_printf(&s, "param 2 %s[1048576] written\n %%1 %s load p0[i*1024 + k]\n %%2 %s cast %%1\n",
              t->out, t->a, t->sum);
    sb_printf(&s, "%%3 %s load p1[", t->b);
    put_sizes(&s, t->at, &size);
    sb_printf(&s, "]\n %%4 %s cast %%3\n %%5 %s mul %%2, %%4\n %%6 %s reduce sum k %%5\n", t->sum,
              t->sum, t->sum);
    sb_printf(&s, "%%7 %s cast %%6\n %%8 %s store p2[i*1024 + j] %%%d\n", t->out, t->out,
              strcmp(t->out, t->sum) ? 7 : 6);
    sb_put(&s, "dot batch - m i n j k k pack 0 a %2 acc %6 b %4\n cost reads [1] writes [1] flops "
               "[1]\n end\n");
    return sb_str(&s);
}

static void check_narrow(const Narrow *t) {
    Built b = built_new(t->ptx ? t->ptx : t->note);
    if (built_parse(&b, narrow_text(t, b.a))) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        const char *text = built_text(&b);
        bool as_said = t->ptx ? strstr(text, t->ptx) != NULL : !strstr(text, "wgmma.mma_async");
        if (!CHECK(as_said && strstr(ck->note, t->note) && ck->nmaps == t->maps))
            fprintf(stderr, "%s by %s: %u maps, %s\n", t->a, t->b, ck->nmaps, ck->note);
        /* Narrow floats are promoted: every k-block has sums of its own, which f32 additions
         * follow. */
        CHECK(!t->ptx || (strstr(text, "add.rn.f32") != NULL) == (t->a[0] == 'f'));
        if (t->a[0] == 'f' && t->ptx) /* 512 products are summed at once */
            CHECK(built_count(text, "wgmma.mma_async") % 16 == 0);
        for (uint32_t i = 0; i < ck->nmaps; i++) {
            uint32_t row = ck->maps[i].box[0] * (uint32_t)dtype_bytes(ck->maps[i].dtype);
            bool bytes = ck->maps[i].param == 2 && strcmp(t->out, "i8") == 0; /* stored */
            CHECK(row == (bytes ? 64 : 128) && ck->maps[i].swizzle == row);
        }
    }
    arena_destroy(b.a);
}

/* A product and, added to its sums, one over 16 whose operands lie otherwise; of which nothing or
 * its negative is added. */
static const char term[] =
    "kernel k tem dot i=4096 j=2048 ~k=2048 ~r=16\n param 0 bf16[8388608]\n param 1 bf16[4194304]\n"
    "param 2 bf16[65536]\n param 3 bf16[32768]\n param 4 bf16[8388608] written\n"
    "%%1 bf16 load p0[i*2048 + k]\n %%2 f32 cast %%1\n %%3 bf16 load p1[k*2048 + j]\n %%4 f32 cast "
    "%%3\n"
    "%%5 f32 mul %%2, %%4\n %%6 f32 reduce sum k %%5\n"
    "%%7 bf16 load p2[i*16 + r]\n %%8 f32 cast %%7\n %%9 bf16 load p3[j*16 + r]\n %%10 f32 cast "
    "%%9\n"
    "%%11 f32 mul %%8, %%10\n %%12 f32 reduce sum r %%11\n %s\n"
    "%%15 bf16 cast %%14\n %%16 bf16 store p4[i*2048 + j] %%15\n"
    "dot batch - m i n j k k pack 0 a %%2 acc %%6 b %%4\n cost reads [1] writes [1] flops [1]\n "
    "end\n";

/* Sums that are added are one, on tensor cores; what is done to one of them before is no sum. */
static void check_term(const char *sum, bool taken) {
    Built b = built_new(sum);
    if (built_parse(&b, arena_printf(b.a, term, sum))) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        CHECK((strstr(built_text(&b), "wgmma.mma_async") != NULL) == taken);
        CHECK(!taken || (ck->nmaps == 5 && strstr(ck->note, "more products")));
        CHECK(taken || strstr(ck->note, "not added to the others"));
    }
    arena_destroy(b.a);
}

/* The gradient of a weight, and what an optimizer makes of it: a long sum of few tiles. Blocks
 * share it, and the five results of an element are stored together, or what they share would be
 * spilled. */
static const char learns[] =
    "kernel k tem dot i=3072 j=768 ~k=16384\n param 0 bf16[50331648]\n param 1 bf16[12582912]\n"
    "param 2 f32[2359296]\n param 3 f32[2359296]\n param 4 f32[2359296]\n"
    "param 5 f32[2359296] written\n param 6 f32[2359296] written\n param 7 f32[2359296] written\n"
    "param 8 f32[2359296] written\n param 9 f32[1]\n"
    "%1 bf16 load p0[i + k*3072]\n %2 f32 cast %1\n %3 bf16 load p1[j + k*768]\n %4 f32 cast %3\n"
    "%5 f32 mul %2, %4\n %6 f32 reduce sum k %5\n %7 f32 const 0.9\n"
    "%8 f32 load p2[i*768 + j]\n %9 f32 mul %8, %7\n %10 f32 add %9, %6\n"
    "%11 f32 mul %6, %6\n %12 f32 load p3[i*768 + j]\n %13 f32 mul %12, %7\n"
    "%14 f32 add %13, %11\n %15 f32 sqrt %14\n %16 f32 add %15, %7\n %17 f32 div %10, %16\n"
    "%18 f32 load p9[0]\n %19 f32 mul %17, %18\n %20 f32 load p4[i*768 + j]\n"
    "%21 f32 sub %20, %19\n %22 f32 store p5[i*768 + j] %10\n %23 f32 store p6[i*768 + j] %14\n"
    "%24 f32 store p7[i*768 + j] %21\n %25 f32 store p8[i*768 + j] %11\n"
    "dot batch - m i n j k k pack 0 a %2 acc %6 b %4\n"
    "cost reads [1] writes [1] flops [1]\n end\n";

static void check_learns(void) {
    Built b = built_new("learns");
    if (built_parse(&b, learns)) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        if (!CHECK(strstr(ck->note, "192x192") && strstr(ck->note, "shared by blocks")))
            fprintf(stderr, "%s\n", ck->note);
        CHECK(ck->cluster[0] == 2 && ck->nmaps == 2);
        CHECK(strstr(built_text(&b), "div.full.f32") && !strstr(built_text(&b), "div.rn.f32"));
    }
    arena_destroy(b.a);
}

/* A number of rows that is known when the kernel runs. */
static const char rows[] =
    "kernel k tem dot i=m j=768 ~k=3072\n param 0 f16[m*3072]\n param 1 f16[2359296]\n"
    "param 2 f16[m*768] written\n"
    "%1 f16 load p0[i*3072 + k]\n %2 f32 cast %1\n %3 f16 load p1[j*3072 + k]\n %4 f32 cast %3\n"
    "%5 f32 mul %2, %4\n %6 f32 reduce sum k %5\n %7 f16 cast %6\n %8 f16 store p2[i*768 + j] %7\n"
    "dot batch - m i n j k k pack 0 a %2 acc %6 b %4\n cost reads [1] writes [1] flops [1]\n end\n";

/* Few rows take small tiles, many large ones, and a handful no tensor cores at all. */
static void check_variants(void) {
    Built b = built_new("variants");
    (void)expr_sym_new(b.p, (SymInfo){.name = "m", .kind = SYM_DIM, .lo = 1, .hi = 1 << 20});
    if (built_parse(&b, rows)) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        static const int64_t numbers[] = {1, 128, 4096};
        const char *notes[3] = {"", "", ""};
        uint32_t sym = 0;
        CHECK(expr_is_sym(b.p, b.k->axes[0].extent, &sym) && ck->nvariants >= 2);
        for (int i = 0; i < 3 && ck->nvariants; i++) {
            Expr m = expr_const(b.p, numbers[i]);
            int64_t n = expr_value(b.p, expr_subst(b.p, ck->choice, &sym, &m, 1));
            if (CHECK(n >= 0 && n <= ck->nvariants))
                notes[i] = n ? ck->variants[n - 1].note : ck->note;
        }
        bool ok = strstr(notes[0], "few rows") && strstr(notes[1], "tiles of 64x") &&
                  !strstr(notes[2], "64x") && strstr(notes[2], "tiles of");
        if (!CHECK(ok)) fprintf(stderr, "%s; %s; %s\n", notes[0], notes[1], notes[2]);
    }
    arena_destroy(b.a);
}

static void check_maps(const CodeKernel *ck, ExprPool *p) {
    for (uint32_t i = 0; i < ck->nmaps; i++) {
        const CodeMap *m = &ck->maps[i];
        uint32_t row = m->box[0] * (uint32_t)dtype_bytes(m->dtype);
        bool half = i + 1 == ck->nmaps && strstr(ck->note, "64x32"); /* of its results */
        CHECK(m->rank == 2 && m->swizzle == row && row == (half ? 64 : 128));
        CHECK(expr_value(p, m->stride[0]) % 16 == 0);
    }
}

/* A bias is asked for before the products, not when they are there. */
static void check_ahead(const char *text) {
    const char *product = strstr(text, "wgmma.mma_async"), *load = strstr(text, "ld.global");
    CHECK(load && product && load < product);
    CHECK(product && !strstr(product, "ld.global"));
}

/* In 16 bits 1 + erf(x) comes from the special function unit: a quotient and a power for each
 * result, nothing that is chosen by sign. */
static void check_gelu(const char *text) {
    int results = built_count(text, "rcp.approx.ftz.f32");
    CHECK(results && built_count(text, "ex2.approx.ftz.f32") == results);
    CHECK(!strstr(text, "selp.f32"));
}

static void check_product(const Product *c) {
    Built b = built_new(c->name);
    if (built_parse(&b, kernel_text(c, b.a))) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        bool taken = strstr(built_text(&b), "wgmma.mma_async") != NULL;
        bool twins = strstr(c->note, "two blocks") != NULL;
        if (!CHECK(taken == (c->maps > 0) && ck->nmaps == c->maps && strstr(ck->note, c->note) &&
                   (ck->cluster[0] == 2) == twins))
            fprintf(stderr, "%s: %u maps, cluster %u, %s\n", c->name, ck->nmaps, ck->cluster[0],
                    ck->note);
        /* Results whose rows start anywhere are stored row by row. */
        bool odd = strcmp(c->name, "odd columns") == 0;
        CHECK(odd == (strstr(built_text(&b), "bar.warp.sync") != NULL));
        if (strcmp(c->name, "bias") == 0) check_ahead(built_text(&b));
        if (strcmp(c->name, "gelu") == 0) check_gelu(built_text(&b));
        CHECK(!taken || (ck->shared_bytes > 48 << 10 && ck->shared_bytes <= 227 << 10));
        /* As many stages as memory takes to be busy, most of what is in them B. */
        if (strcmp(c->name, "few rows") == 0)
            CHECK(ck->shared_bytes > 116 << 10 && ck->shared_bytes < 160 << 10);
        check_maps(ck, b.p);
    }
    arena_destroy(b.a);
}

/* f32 by f32: in two numbers of tf32 each or, where less will do, rounded by the copy engine. */
static void check_f32(bool tf32) {
    Built b = built_new(tf32 ? "tf32" : "f32");
    b.tf32 = tf32;
    if (built_parse(
            &b,
            "kernel k tem dot i=512 j=512 ~k=512\n param 0 f32[262144]\n param 1 f32[262144]\n"
            "param 2 f32[262144] written\n %1 f32 load p0[i*512 + k]\n %2 f32 load p1[j*512 + k]\n"
            "%3 f32 mul %1, %2\n %4 f32 reduce sum k %3\n %5 f32 store p2[i*512 + j] %4\n"
            "dot batch - m i n j k k pack 0 a %1 acc %4 b %2\n cost reads [1] writes [1] flops "
            "[1]\n end\n")) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        /* Results of long sums in two numbers are stored by threads. */
        CHECK(ck->nmaps == (tf32 ? 3 : 2) && ck->maps[0].tf32 == tf32 && ck->maps[1].tf32 == tf32);
        CHECK(strstr(built_text(&b), "k8.f32.tf32.tf32"));
        CHECK(tf32 != (strstr(built_text(&b), "cvt.rna.tf32.f32") != NULL));
        CHECK(strstr(ck->note, tf32 ? "of tf32" : "in two of tf32"));
    }
    arena_destroy(b.a);
}

/* Where B's rows are those of k, the product is turned around: rows of the result are threads'
 * columns, so that they store what they have. Where A's are, too, it is turned in shared memory. */
static void check_turned(const char *a) {
    Built b = built_new(a);
    static const char text[] =
        "kernel k tem dot i=64 j=4096 ~k=4096\n param 0 f32[262144]\n param 1 f32[16777216]\n"
        "param 2 f32[262144] written\n %%1 f32 load p0[%s]\n %%2 f32 load p1[k*4096 + j]\n"
        "%%3 f32 mul %%1, %%2\n %%4 f32 reduce sum k %%3\n %%5 f32 store p2[i*4096 + j] %%4\n"
        "dot batch - m i n j k k pack 0 a %%1 acc %%4 b %%2\n cost reads [1] writes [1] flops [1]\n"
        "end\n";
    if (built_parse(&b, arena_printf(b.a, text, a))) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        CHECK(strstr(built_text(&b), "k8.f32.tf32.tf32") && strstr(ck->note, "in two of tf32"));
        if (CHECK(ck->nmaps == 2)) CHECK(ck->maps[0].param == 1 && ck->maps[1].param == 0);
        bool turned = strstr(built_text(&b), "st.shared.b32") != NULL;
        CHECK(turned == (strcmp(a, "i + k*64") == 0));
    }
    arena_destroy(b.a);
}

/* An architecture without them gets the other structures. */
static void check_other_architecture(const Product *c) {
    Built b = built_new("sm_80");
    if (built_parse(&b, kernel_text(c, b.a))) {
        const CodeKernel *ck = built_code(&b, target_find("sm_80", 5));
        CHECK(strstr(built_text(&b), ".target sm_80"));
        CHECK(!strstr(built_text(&b), "wgmma"));
        CHECK(strstr(ck->note, "has not Hopper's"));
    }
    arena_destroy(b.a);
}

TEST_MAIN {
    const char *only = getenv("CASE");
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (!only || strcmp(products[i].name, only) == 0) check_product(&products[i]);
    for (size_t i = 0; !only && i < sizeof narrow / sizeof *narrow; i++) check_narrow(&narrow[i]);
    if (!only || strcmp(only, "turned") == 0) {
        check_turned("i*4096 + k");
        check_turned("i + k*64");
    }
    if (!only || strcmp(only, "digits") == 0) check_digits();
    if (!only || strcmp(only, "learns") == 0) check_learns();
    if (!only || strcmp(only, "terms") == 0) {
        check_term("%13 f32 add %6, %12\n %14 f32 neg %13", true);
        check_term("%13 f32 neg %12\n %14 f32 add %6, %13", false);
    }
    if (!only || strcmp(only, "variants") == 0) check_variants();
    if (!only) check_f32(false), check_f32(true);
    check_other_architecture(&products[0]);
}
