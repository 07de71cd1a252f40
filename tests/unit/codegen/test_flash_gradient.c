/* Gradients of attention on tensor cores: which kernels take that template, what the copy engine is
 * told, and that the assembler keeps every sum in a register. Numbers are checked where there is a
 * GPU (tests/gpu). */
#include "tests/unit/codegen/tensor_cores.h"
#include <stdlib.h>
#include <string.h>

/* Two of rows i against columns j, of heads of d numbers. */
typedef struct Gradient {
    const char *name, *type;
    int rows, columns, d;
    bool two;    /* products: weights p (s2 - row's number) */
    bool shared; /* the second factor is the columns' operand itself, as keys are of queries */
    bool causal;
    bool taken;
    int maps;
    const char *note; /* part of what explain says */
} Gradient;

static const Gradient cases[] = {
    {"values", "bf16", 512, 512, 64, false, false, false, true, 3, "tiles of 192x64, 1"},
    {"queries", "bf16", 512, 300, 64, true, true, true, true, 4, "tiles of 192x64, 2"},
    {"large", "f16", 333, 512, 128, true, true, true, true, 4, "tiles of 128x64, 2"},
    {"apart", "bf16", 512, 512, 128, true, false, false, true, 5, "tiles of 128x64, 2"},
    {"padded", "bf16", 200, 200, 80, false, false, true, true, 3, "tiles of 128x64, 1"},
    {"f32", "f32", 512, 512, 64, true, true, false, false, 0, "computed"},
    {"too large", "bf16", 512, 512, 192, true, true, false, false, 0, "larger than 128"},
    {"odd rows", "bf16", 512, 512, 60, true, true, false, false, 0, "16-byte aligned"},
};

static int load(StrBuf *s, int v, const Gradient *t, int param, char axis, char inner) {
    int rows = axis == 'i' ? t->rows : t->columns;
    sb_printf(s, "%%%d %s load p%d[(b*%d + %c)*%d + %c]\n", v, t->type, param, rows, axis, t->d,
              inner);
    sb_printf(s, "%%%d f32 %s %%%d\n", v + 1, strcmp(t->type, "f32") == 0 ? "neg" : "cast", v);
    return v + 1;
}

static void put_params(StrBuf *s, const Gradient *t) {
    int i = 2 * t->rows * t->d, j = 2 * t->columns * t->d;
    sb_printf(s, "kernel g tem attention_gradient b=2 i=%d n=%d ~j=%d ~d=%d ~e=%d\n", t->rows, t->d,
              t->columns, t->d, t->d);
    sb_printf(s, "param 0 %s[%d]\nparam 1 %s[%d]\nparam 2 %s[%d]\nparam 3 %s[%d]\n", t->type, i,
              t->type, j, t->type, i, t->type, j);
    sb_printf(s, "param 4 f32[%d]\nparam 5 f32[%d]\nparam 6 %s[%d]\nparam 7 %s[%d] written\n",
              2 * t->rows, 2 * t->rows, t->type, j, t->type, i);
}

static void put_second(StrBuf *s, const Gradient *t) {
    load(s, 17, t, 2, 'i', 'e'), load(s, 19, t, 3, 'j', 'e');
    sb_put(s, "%21 f32 mul %18, %20\n%22 f32 reduce sum e %21\n");
    sb_printf(s, "%%23 f32 load p5[b*%d + i]\n%%24 f32 sub %%22, %%23\n%%25 f32 mul %%16, %%24\n",
              t->rows);
}

static const char *kernel_text(const Gradient *t, Arena *a) {
    StrBuf *s = ARENA_NEW(a, StrBuf);
    sb_init(s, a);
    put_params(s, t);
    load(s, 1, t, 0, 'i', 'd'), load(s, 3, t, 1, 'j', 'd');
    sb_put(s, "%5 f32 mul %2, %4\n%6 f32 reduce sum d %5\n%7 f32 const 0.125\n");
    sb_printf(s, "%%8 f32 mul %%6, %%7\n%%9 i64 expr [j]\n%%10 i64 expr [i + %d]\n",
              t->causal ? 0 : t->columns);
    sb_put(s, "%11 bool le %9, %10\n%12 f32 const -inf\n%13 f32 select %11, %8, %12\n");
    sb_printf(s, "%%14 f32 load p4[b*%d + i]\n%%15 f32 sub %%13, %%14\n%%16 f32 exp %%15\n",
              t->rows);
    if (t->two) put_second(s, t);
    for (int v = 17; v < 26 && !t->two; v++) sb_printf(s, "%%%d f32 const 0\n", v);
    load(s, 26, t, t->shared ? 1 : 6, 'j', 'n');
    sb_printf(s, "%%28 f32 mul %%%d, %%27\n%%29 f32 reduce sum j %%28\n", t->two ? 25 : 16);
    bool f32 = strcmp(t->type, "f32") == 0;
    sb_printf(s, "%%30 %s %s %%29\n%%31 %s store p7[(b*%d + i)*%d + n] %%30\n", t->type,
              f32 ? "neg" : "cast", t->type, t->rows, t->d);
    sb_printf(s,
              "attention_gradient batch b i i j j d d%s n n x %%2 y %%4 s %%6 %s p %%%d b %%27 "
              "o %%29%s\nend\n",
              t->two ? ",e" : "", t->two ? "x2 %18 y2 %20 s2 %22" : "x2 %2 y2 %4 s2 %6",
              t->two ? 25 : 16, t->causal ? " ahead [0]" : "");
    return sb_str(s);
}

/* Rows of a tile and of a block are fetched by the copy engine, each matrix by one map. */
static void check_code(const Gradient *t, Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    bool taken = strstr(built_text(b), "wgmma.mma_async") != NULL;
    if (!CHECK(taken == t->taken && strstr(ck->note, t->note)))
        fprintf(stderr, "%s: %s\n", t->name, ck->note);
    if (!taken) return;
    CHECK(ck->shared_bytes > 48 << 10 && ck->shared_bytes <= 227 << 10);
    CHECK_EQ_I(ck->nmaps, t->maps);
    CHECK(!strstr(built_text(b), "\tred.") && !strstr(built_text(b), "\tatom."));
    for (uint32_t i = 0; i < ck->nmaps; i++) {
        const CodeMap *m = &ck->maps[i];
        bool rows = m->param == 0 || m->param == 2;
        CHECK_EQ_I(m->box[1], rows ? (t->d <= 64 ? 192 : 128) : 64);
        CHECK_EQ_I(expr_value(b->p, m->size[1]), rows ? t->rows : t->columns);
    }
}

/* All three of keys i against queries j. */
typedef struct Three {
    const char *name, *type;
    int keys, queries, d;
    bool causal, raw; /* raw: queries' sums are stored as they are */
    bool taken;
    int block; /* queries of one */
    const char *note;
    enum { LOW_instead, LOW_added, LOW_keys } low; /* how the mask is spelled */
    bool any;                                      /* order of queries' sums */
} Three;

static const Three threes[] = {
    {"three of 64", "bf16", 512, 512, 64, true, true, true, 128, "tiles of 128x128, all",
     LOW_instead, false},
    {"three of 128", "f16", 333, 512, 128, false, true, true, 64, "tiles of 128x64, all",
     LOW_instead, false},
    {"three, mask added", "bf16", 512, 512, 64, true, true, true, 128, "tiles of 128x128, all",
     LOW_added, false},
    {"three, some keys", "bf16", 300, 300, 64, true, true, true, 128, "tiles of 128x128, all",
     LOW_keys, false},
    {"three of 80", "bf16", 200, 200, 80, true, true, true, 64, "tiles of 128x64, all", LOW_instead,
     false},
    {"three, rounded", "bf16", 256, 256, 64, true, false, false, 0, "not stored as they are",
     LOW_instead, false},
    {"three, odd rows", "bf16", 256, 256, 60, true, true, false, 0, "16-byte aligned", LOW_instead,
     false},
    {"three, too large", "bf16", 256, 256, 192, true, true, false, 0, "larger than 128",
     LOW_instead, false},
    {"three, any order", "bf16", 512, 700, 64, true, false, true, 128,
     "all gradients at once, queries'", LOW_added, true},
    {"three of 128, any order", "f16", 333, 512, 128, false, false, true, 64, "in any order",
     LOW_instead, true},
    {"three, any order, as they are", "bf16", 200, 200, 80, false, true, true, 64, "in any order",
     LOW_instead, true},
};

static void put_operand(StrBuf *s, const Three *t, int v, int param, char row, char col) {
    sb_printf(s, "%%%d %s load p%d[(b*%d + %c)*%d + %c]\n%%%d f32 cast %%%d\n", v, t->type, param,
              row == 'i' ? t->keys : t->queries, row, t->d, col, v + 1, v);
}

/* The score behind its mask, %13. */
static void put_score(StrBuf *s, const Three *t) {
    if (t->low == LOW_instead) {
        sb_put(s, "%12 f32 const -inf\n%13 f32 select %11, %8, %12\n");
        return;
    }
    sb_put(s, "%50 f32 const 0\n%51 f32 const -3.4028234663852886e+38\n");
    if (t->low == LOW_keys)
        sb_printf(s, "%%52 i64 load p9[b*%d + i]\n%%53 bool cast %%52\n%%54 bool and %%53, %%11\n",
                  t->keys);
    sb_printf(s, "%%55 f32 select %%%d, %%50, %%51\n%%13 f32 add %%8, %%55\n",
              t->low == LOW_keys ? 54 : 11);
}

static void put_weights(StrBuf *s, const Three *t) {
    put_operand(s, t, 1, 0, 'i', 'd'), put_operand(s, t, 3, 1, 'j', 'd');
    sb_put(s, "%5 f32 mul %2, %4\n%6 f32 reduce sum d %5\n%7 f32 const 0.125\n%8 f32 mul %6, %7\n");
    sb_printf(s, "%%9 i64 expr [i]\n%%10 i64 expr [j + %d]\n%%11 bool le %%9, %%10\n",
              t->causal ? 0 : t->keys);
    put_score(s, t);
    sb_printf(s, "%%14 f32 load p4[b*%d + j]\n%%15 f32 sub %%13, %%14\n", t->queries);
    if (t->low == LOW_keys)
        sb_put(s, "%57 f32 exp %15\n%58 bool isnan %57\n%16 f32 select %58, %50, %57\n");
    else
        sb_put(s, "%16 f32 exp %15\n");
    put_operand(s, t, 17, 2, 'i', 'e'), put_operand(s, t, 19, 3, 'j', 'e');
    sb_put(s, "%21 f32 mul %18, %20\n%22 f32 reduce sum e %21\n");
    sb_printf(s, "%%23 f32 load p5[b*%d + j]\n%%24 f32 sub %%22, %%23\n%%25 f32 mul %%16, %%24\n",
              t->queries);
    sb_put(s, "%26 f32 mul %25, %7\n");
}

/* One result and where it is stored. */
static void put_sum(StrBuf *s, const Three *t, int v, const char *p, char over, char col, int param,
                    bool raw) {
    char row = over == 'i' ? 'j' : 'i';
    sb_printf(s, "%%%d f32 mul %s, %%%d\n%%%d f32 reduce sum %c %%%d\n", v, p, v - 1, v + 1, over,
              v);
    if (raw)
        sb_printf(s, "%%%d f32 const 0\n", v + 2);
    else
        sb_printf(s, "%%%d %s cast %%%d\n", v + 2, t->type, v + 1);
    sb_printf(s, "%%%d %s store p%d[(b*%d + %c)*%d + %c] %%%d\n", v + 3, raw ? "f32" : t->type,
              param, row == 'i' ? t->keys : t->queries, row, t->d, col, raw ? v + 1 : v + 2);
}

/* The same with values numbered in their order. */
static const char *numbered(const char *text, Arena *a) {
    StrBuf *s = ARENA_NEW(a, StrBuf);
    long number[64] = {0}, n = 0;
    sb_init(s, a);
    for (const char *c = text; *c; c++) {
        sb_printf(s, "%c", *c);
        if (*c != '%') continue;
        char *end;
        long v = strtol(c + 1, &end, 10);
        if (!number[v]) number[v] = ++n;
        sb_printf(s, "%ld", number[v]);
        c = end - 1;
    }
    return sb_str(s);
}

static const char *three_text(const Three *t, Arena *a) {
    StrBuf *s = ARENA_NEW(a, StrBuf);
    int i = 2 * t->keys * t->d, j = 2 * t->queries * t->d;
    sb_init(s, a);
    sb_printf(s, "kernel g tem attention_gradients b=2 ~i=%d ~j=%d n=%d v=%d q=%d ~d=%d ~e=%d\n",
              t->keys, t->queries, t->d, t->d, t->d, t->d, t->d);
    sb_printf(s, "param 0 %s[%d]\nparam 1 %s[%d]\nparam 2 %s[%d]\nparam 3 %s[%d]\n", t->type, i,
              t->type, j, t->type, i, t->type, j);
    sb_printf(s, "param 4 f32[%d]\nparam 5 f32[%d]\nparam 6 %s[%d] written\n", 2 * t->queries,
              2 * t->queries, t->type, i);
    sb_printf(s, "param 7 %s[%d] written\nparam 8 %s[%d] written\n", t->type, i,
              t->raw ? "f32" : t->type, j);
    if (t->low == LOW_keys) sb_printf(s, "param 9 i64[%d]\n", 2 * t->keys);
    put_weights(s, t);
    put_operand(s, t, 27, 1, 'j', 'n'), put_sum(s, t, 29, "%26", 'j', 'n', 6, false);
    put_operand(s, t, 33, 3, 'j', 'v'), put_sum(s, t, 35, "%16", 'j', 'v', 7, false);
    put_operand(s, t, 39, 0, 'i', 'q'), put_sum(s, t, 41, "%26", 'i', 'q', 8, t->raw);
    sb_printf(
        s,
        "attention_gradients batch b i i j j d d,e n n nv v nq q x %%2 y %%4 s %%6 x2 %%18 "
        "y2 %%20 s2 %%22 p %%26 b %%28 o %%30 pv %%16 bv %%34 ov %%36 bq %%40 oq %%42%s\nend\n",
        t->causal ? " behind [0]" : "");
    return numbered(sb_str(s), a);
}

/* Queries' sums go out through the copy engine, which adds where another tile was before: without
 * atomic instructions, in an order that counters keep. */
static void check_turns(const Three *t, Built *b, const CodeKernel *ck) {
    const char *text = built_text(b);
    int blocks = (t->queries + t->block - 1) / t->block;
    CHECK_EQ_I(ck->nmaps, 7);
    CHECK(strstr(text, "cp.reduce.async.bulk.tensor") && strstr(text, "ld.acquire.gpu"));
    CHECK(!strstr(text, "\tred.") && !strstr(text, "\tatom."));
    CHECK_EQ_I(expr_value(b->p, ck->zero_bytes), 4 * 2 * blocks);
    CHECK_EQ_I(expr_value(b->p, ck->grid[0]), 2 * ((t->keys + 127) / 128));
}

/* Or from registers, 16 bytes of a thread at a time, into memory that further blocks clear: 6
 * blocks of queries each. */
static void check_any(const Three *t, Built *b, const CodeKernel *ck) {
    const char *text = built_text(b);
    int blocks = (t->queries + t->block - 1) / t->block, movers = (blocks + 5) / 6;
    CHECK_EQ_I(ck->nmaps, 7);
    CHECK(strstr(text, "red.relaxed.gpu.global.add.v4.f32") && !strstr(text, "cp.reduce"));
    CHECK_EQ_I(expr_value(b->p, ck->zero_bytes), 128 + 2 * blocks * (32 << 10));
    CHECK_EQ_I(expr_value(b->p, ck->grid[0]), 2 * ((t->keys + 127) / 128 + movers));
}

static void check_three(const Three *t, Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    const char *text = built_text(b);
    bool taken = strstr(text, "wgmma.mma_async") != NULL;
    if (!CHECK(taken == t->taken && strstr(ck->note, t->note)))
        fprintf(stderr, "%s: %s\n", t->name, ck->note);
    if (!taken) return;
    CHECK(ck->shared_bytes > 48 << 10 && ck->shared_bytes <= 227 << 10);
    (t->any ? check_any : check_turns)(t, b, ck);
    CHECK(!strstr(text, "0fFF7FFFFF")); /* nothing low is added: what is hidden weighs 0 */
    CHECK(!strstr(text, "vote.sync") == (t->low != LOW_keys));
    CHECK(ck->zero_kept);
}

TEST_MAIN {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!test_takes(i, 3)) continue;
        Built b = built_new(cases[i].name);
        if (built_parse(&b, kernel_text(&cases[i], b.a))) check_code(&cases[i], &b);
        arena_destroy(b.a);
    }
    for (size_t i = 0; i < sizeof threes / sizeof *threes; i++) {
        Built b = built_new(threes[i].name);
        b.any_order = threes[i].any;
        if (built_parse(&b, three_text(&threes[i], b.a))) check_three(&threes[i], &b);
        arena_destroy(b.a);
    }
}
