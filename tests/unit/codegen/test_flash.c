/* Attention on tensor cores: which kernels take that template, what the copy engine is told, and
 * that the assembler keeps every sum in a register; and which masks are seen to be causal. Numbers
 * are checked where there is a GPU (tests/gpu). */
#include "fusion/body/body.h"
#include "tests/unit/codegen/tensor_cores.h"
#include <string.h>

typedef enum Mask {
    MASK_none,
    MASK_causal,   /* j <= i + ahead keeps */
    MASK_opposite, /* i + ahead < j drops */
    MASK_both,     /* causal, and a key's own flag */
    MASK_soft,     /* causal, but the others stay in sight */
    MASK_key
} Mask;

typedef enum Extra {
    PLAIN,
    SCALED = 1,   /* queries and keys are scaled and rounded once more */
    LSE = 2,      /* the log of the exponentials' sum is stored, too */
    COMPUTED = 4, /* queries are more than loads */
    NEAT = 8,     /* of f32: nothing is computed of keys, values and results */
    BESIDE = 16   /* with LSE: results' squares are stored as well */
} Extra;

/* Two by `heads` of queries i and keys j, of d numbers. */
typedef struct Heads {
    const char *name, *type;
    int heads, group; /* heads of queries per head of keys */
    int queries, keys, d;
    Mask mask;
    int ahead;
    bool taken;
    const char *note; /* part of what explain says */
    unsigned extra;
} Heads;

static const Heads cases[] = {
    {"full", "bf16", 4, 1, 512, 512, 128, MASK_none, 0, true, "128x128", PLAIN},
    {"causal", "bf16", 4, 1, 512, 512, 128, MASK_causal, 0, true, "128x128, causal", PLAIN},
    {"ragged", "f16", 4, 1, 300, 300, 64, MASK_opposite, 0, true, "192x128, causal", PLAIN},
    {"keys before", "bf16", 4, 1, 100, 307, 128, MASK_causal, 207, true, "causal", PLAIN},
    {"groups", "bf16", 2, 4, 512, 512, 64, MASK_none, 0, true, "192x128", PLAIN},
    {"padded heads", "bf16", 4, 1, 333, 333, 96, MASK_none, 0, true, "128x128", PLAIN},
    {"key mask", "bf16", 4, 1, 512, 512, 64, MASK_key, 0, true, "tiles of 192x128, scores masked",
     PLAIN},
    {"both masks", "bf16", 4, 1, 512, 512, 64, MASK_both, 2, true, "causal, scores masked", PLAIN},
    {"soft mask", "bf16", 4, 1, 512, 512, 64, MASK_soft, 0, true, "tiles of 192x128, scores masked",
     PLAIN},
    {"scaled", "bf16", 4, 1, 512, 512, 64, MASK_causal, 0, true, "192x128, causal", SCALED},
    {"scaled, masked", "bf16", 4, 1, 512, 512, 64, MASK_key, 0, true, "scores masked", SCALED},
    {"full, lse", "bf16", 4, 1, 300, 512, 128, MASK_none, 0, true, "128x128", LSE},
    {"causal, lse", "bf16", 4, 2, 512, 512, 64, MASK_causal, 0, true, "192x128, causal",
     SCALED | LSE},
    {"masked, lse", "f16", 4, 1, 512, 512, 128, MASK_both, 2, true, "scores masked", LSE},
    {"lse, two results", "bf16", 4, 1, 300, 512, 128, MASK_causal, 212, true, "one by one",
     LSE | BESIDE},
    {"computed queries", "bf16", 4, 2, 500, 500, 64, MASK_causal, 0, true,
     "192x128, causal, queries computed", COMPUTED},
    {"computed, padded", "f16", 4, 1, 500, 512, 96, MASK_key, 0, true, "masked, queries computed",
     COMPUTED},
    {"computed, odd", "bf16", 4, 1, 512, 512, 60, MASK_none, 0, false, "16-byte aligned", COMPUTED},
    {"f32", "f32", 4, 1, 512, 512, 64, MASK_none, 0, false, "computed", PLAIN},
    {"f32, plain", "f32", 4, 1, 512, 512, 64, MASK_none, 0, true, "three of tf32, tiles of 1",
     NEAT},
    {"f32, causal", "f32", 4, 2, 300, 300, 128, MASK_causal, 0, true, "128x32, causal", NEAT},
    {"f32, masked", "f32", 4, 1, 300, 512, 96, MASK_both, 2, true, "scores masked", NEAT},
    {"f32, short heads", "f32", 4, 1, 100, 307, 32, MASK_key, 0, true, "scores masked", NEAT},
    {"f32, lse", "f32", 4, 1, 300, 512, 128, MASK_none, 0, true, "128x32", NEAT | LSE},
    {"f32, two results", "f32", 4, 1, 300, 512, 96, MASK_none, 0, true, "queries computed, results",
     NEAT | COMPUTED | LSE | BESIDE},
    {"f32, computed", "f32", 4, 1, 512, 512, 96, MASK_none, 0, true, "queries computed",
     NEAT | COMPUTED},
    {"wide", "bf16", 4, 1, 512, 512, 256, MASK_none, 0, true, "tiles of 128x64", PLAIN},
    {"wide, causal", "f16", 4, 2, 300, 300, 160, MASK_causal, 0, true, "128x64, causal", PLAIN},
    {"wide, masked, lse", "f16", 4, 1, 300, 512, 192, MASK_both, 2, true, "masked", LSE},
    {"wide, computed", "bf16", 4, 1, 512, 512, 256, MASK_key, 0, true, "queries computed",
     COMPUTED},
    {"cut", "bf16", 4, 1, 512, 512, 512, MASK_none, 0, true, "128x32, values cut", PLAIN},
    {"cut, computed", "f16", 4, 1, 300, 307, 320, MASK_causal, 7, true, "128x32, values cut",
     COMPUTED},
    {"f32, wide", "f32", 4, 1, 512, 512, 256, MASK_causal, 0, true, "32, values cut", NEAT},
    {"f32, widest", "f32", 4, 1, 300, 307, 512, MASK_none, 0, true, "64x32, values cut", NEAT},
    {"too wide", "bf16", 4, 1, 512, 512, 520, MASK_none, 0, false, "larger than 512", PLAIN},
    {"odd rows", "bf16", 4, 1, 512, 512, 60, MASK_none, 0, false, "16-byte aligned", PLAIN},
    {"decoding", "bf16", 4, 1, 4, 512, 64, MASK_none, 0, false, "few queries", PLAIN},
    {"decoding, groups", "bf16", 4, 4, 1, 2048, 64, MASK_key, 0, false, "keys in 8 parts", PLAIN},
    {"decoding, lse", "f16", 4, 3, 2, 4095, 128, MASK_both, 9, false, "keys in 8 parts",
     SCALED | LSE},
    {"decoding, f32", "f32", 4, 2, 1, 2048, 64, MASK_none, 0, false, "keys in 8 parts", PLAIN},
    {"decoding, wide", "bf16", 4, 1, 1, 2048, 256, MASK_none, 0, false, "keys in 8 parts", PLAIN},
};

typedef struct Text {
    Arena *a;
    StrBuf s;
    const Heads *c;
    int n; /* number of the last op */
} Text;

static int put(Text *t, const char *text) {
    sb_printf(&t->s, " %%%d %s\n", ++t->n, text);
    return t->n;
}

/* Parameters 0, 1 and 2 are queries, keys and values, 3 is a mask and 4 the result. */
static void put_params(Text *t) {
    const Heads *c = t->c;
    int q = 2 * c->heads * c->group * c->queries * c->d, k = 2 * c->heads * c->keys * c->d;
    sb_printf(&t->s, "kernel k tem attention b=2 h=%d g=%d i=%d w=%d ~j=%d ~d=%d\n", c->heads,
              c->group, c->queries, c->d, c->keys, c->d);
    sb_printf(&t->s, " param 0 %s[%d]\n param 1 %s[%d]\n param 2 %s[%d]\n", c->type, q, c->type, k,
              c->type, k);
    sb_printf(&t->s, " param 3 bool[%d]\n param 4 %s[%d] written\n", 2 * c->keys, c->type, q);
    if (c->extra & LSE) sb_printf(&t->s, " param 5 f32[%d] written\n", q / c->d);
    if (c->extra & BESIDE) sb_printf(&t->s, " param 6 f32[%d] written\n", q);
}

static const char *query_at(Text *t, const char *col) {
    const Heads *c = t->c;
    int each = c->queries * c->d, head = c->group * each;
    return arena_printf(t->a, "b*%d + h*%d + g*%d + i*%d + %s", c->heads * head, head, each, c->d,
                        col);
}

static const char *key_at(Text *t, const char *col) {
    const Heads *c = t->c;
    int each = c->keys * c->d;
    return arena_printf(t->a, "b*%d + h*%d + j*%d + %s", c->heads * each, each, c->d, col);
}

static int load(Text *t, int param, const char *at) {
    int v = put(t, arena_printf(t->a, "%s load p%d[%s]", t->c->type, param, at));
    if (t->c->extra & NEAT) return v;
    const char *f32 = strcmp(t->c->type, "f32") == 0 ? "neg" : "cast";
    v = put(t, arena_printf(t->a, "f32 %s %%%d", f32, v));
    if (!(t->c->extra & SCALED) || param == 2) return v;
    int scale = put(t, "f32 const 0.5");
    v = put(t, arena_printf(t->a, "f32 mul %%%d, %%%d", scale, v));
    v = put(t, arena_printf(t->a, "bf16 cast %%%d", v));
    return put(t, arena_printf(t->a, "f32 cast %%%d", v));
}

static int put_score(Text *t, int s) {
    Mask m = t->c->mask;
    if (m == MASK_none) return s;
    int low = put(t, m == MASK_soft ? "f32 const -100" : "f32 const -inf");
    int key = put(t, arena_printf(t->a, "bool load p3[b*%d + j]", t->c->keys));
    int j = put(t, "i64 expr [j]"),
        i = put(t, arena_printf(t->a, "i64 expr [i + %d]", t->c->ahead));
    int in = put(t, arena_printf(t->a, "bool le %%%d, %%%d", j, i));
    int both = put(t, arena_printf(t->a, "bool and %%%d, %%%d", key, in));
    int out = put(t, arena_printf(t->a, "bool lt %%%d, %%%d", i, j));
    if (m == MASK_opposite)
        return put(t, arena_printf(t->a, "f32 select %%%d, %%%d, %%%d", out, low, s));
    int keeps = m == MASK_key ? key : m == MASK_both ? both : in;
    return put(t, arena_printf(t->a, "f32 select %%%d, %%%d, %%%d", keeps, s, low));
}

/* log l + m, m being 0 where it is infinite. */
static void put_lse(Text *t, int base, int l) {
    const Heads *c = t->c;
    int each = c->group * c->queries;
    int log = put(t, arena_printf(t->a, "f32 log %%%d", l));
    int lse = put(t, arena_printf(t->a, "f32 add %%%d, %%%d", log, base));
    put(t, arena_printf(t->a, "f32 store p5[b*%d + h*%d + g*%d + i] %%%d", c->heads * each, each,
                        c->queries, lse));
}

static const char *kernel_text(const Heads *c, Arena *a) {
    Text *t = ARENA_NEW(a, Text);
    *t = (Text){.a = a, .c = c};
    sb_init(&t->s, a);
    put_params(t);
    int q = load(t, 0, query_at(t, "d")), k = load(t, 1, key_at(t, "d"));
    if (c->extra & COMPUTED) q = put(t, arena_printf(a, "f32 sigmoid %%%d", q));
    int qk = put(t, arena_printf(a, "f32 mul %%%d, %%%d", q, k));
    int s = put(t, arena_printf(a, "f32 reduce sum d %%%d", qk)), scale = put(t, "f32 const 0.125");
    int score = put_score(t, put(t, arena_printf(a, "f32 mul %%%d, %%%d", s, scale)));
    int m = put(t, arena_printf(a, "f32 reduce max j %%%d", score));
    int no = put(t, arena_printf(a, "bool isinf %%%d", m)), zero = put(t, "f32 const 0");
    int base = put(t, arena_printf(a, "f32 select %%%d, %%%d, %%%d", no, zero, m));
    int less = put(t, arena_printf(a, "f32 sub %%%d, %%%d", score, (c->extra & LSE) ? base : m));
    int e = put(t, arena_printf(a, "f32 exp %%%d", less));
    int l = put(t, arena_printf(a, "f32 reduce sum j %%%d", e));
    int p = put(t, arena_printf(a, "f32 div %%%d, %%%d", e, l)), v = load(t, 2, key_at(t, "w"));
    int pv = put(t, arena_printf(a, "f32 mul %%%d, %%%d", p, v));
    int o = put(t, arena_printf(a, "f32 reduce sum j %%%d", pv));
    bool f32 = strcmp(c->type, "f32") == 0;
    int r = o;
    if (!(c->extra & NEAT))
        r = put(t, arena_printf(a, "%s %s %%%d", c->type, f32 ? "neg" : "cast", o));
    put(t, arena_printf(a, "%s store p4[%s] %%%d", c->type, query_at(t, "w"), r));
    if (c->extra & LSE) put_lse(t, base, l);
    if (c->extra & BESIDE) {
        int square = put(t, arena_printf(a, "f32 mul %%%d, %%%d", o, o));
        put(t, arena_printf(a, "f32 store p6[%s] %%%d", query_at(t, "w"), square));
    }
    sb_printf(&t->s,
              " attention batch b,h,g i i j j d d dv w q %%%d k %%%d s %%%d score %%%d m %%%d e "
              "%%%d l %%%d v %%%d o %%%d\n cost reads [1] writes [1] flops [1]\nend\n",
              q, k, s, score, m, e, l, v, o);
    return sb_str(&t->s);
}

static void check_causal(const Heads *c, const Kernel *k, ExprPool *p) {
    bool found = k->attn.causal != 0;
    bool is = c->mask == MASK_causal || c->mask == MASK_opposite || c->mask == MASK_both;
    if (!CHECK(found == is && (!is || expr_is_value(p, k->attn.causal, c->ahead))))
        fprintf(stderr, "%s: causal %d\n", c->name, found);
}

#define SYNC "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"

/* Probabilities and results are rounded, not cut. */
static void check_rounding(const Heads *c, const Built *b) {
    bool bf16 = strcmp(c->type, "bf16") == 0;
    CHECK(strstr(built_text(b), bf16 ? "cvt.rn.bf16x2.f32" : "cvt.rn.f16x2.f32"));
    CHECK(!strstr(built_text(b), "prmt.b32"));
    CHECK(!(c->extra & COMPUTED) == !(strstr(built_text(b), "st.shared.v4.b32") != NULL));
}

static void check_code(const Heads *c, Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    bool exact = c->extra & NEAT;
    bool taken = strstr(built_text(b), exact ? SYNC : "wgmma.mma_async") != NULL;
    if (!CHECK(taken == c->taken && strstr(ck->note, c->note)))
        fprintf(stderr, "%s: %s\n", c->name, ck->note);
    if (!taken) return;
    CHECK(ck->shared_bytes > 48 << 10 && ck->shared_bytes <= 227 << 10);
    CHECK(ck->zero_kept && ck->zero_bytes);
    if (!exact) check_rounding(c, b);
    /* What a mask says of keys is computed once for a block. */
    bool per_key = c->mask == MASK_key || c->mask == MASK_both;
    CHECK(per_key == (strstr(built_text(b), "ld.shared.v2.b32") != NULL));
    CHECK_EQ_I(ck->nmaps, 4 - !!(c->extra & COMPUTED) - !!(c->extra & BESIDE));
    for (uint32_t i = 0; i < ck->nmaps; i++) {
        const CodeMap *m = &ck->maps[i];
        bool keys = m->param == 1 || m->param == 2;
        CHECK_EQ_I(m->rank, keys ? 4 : 5); /* a group's heads share their keys */
        CHECK_EQ_I(m->box[0], exact ? 32 : 64);
        CHECK_EQ_I(expr_value(b->p, m->size[1]), keys ? c->keys : c->queries);
    }
}

static void check_heads(const Heads *c) {
    Built b = built_new(c->name);
    if (built_parse(&b, kernel_text(c, b.a))) {
        b.k->attn.causal = body_find_causal(b.k, b.p);
        check_causal(c, b.k, b.p);
        check_code(c, &b);
    }
    arena_destroy(b.a);
}

TEST_MAIN {
    const char *only = getenv("CASE");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (only ? strcmp(cases[i].name, only) == 0 : test_takes(i, 3)) check_heads(&cases[i]);
}
