/* Kernel IR: text both ways, verifier, reference interpreter, content hash. */
#include "fusion/kir/kir_internal.h"
#include "fusion/kir/kir_set.h"
#include "tests/unit/test.h"

typedef struct Env {
    Arena *a;
    ExprPool *p;
    DiagSink *d;
} Env;

static Env env_new(void) {
    Env e = {.a = arena_create()};
    e.p = expr_pool_create(e.a);
    e.d = diag_create(e.a, NULL);
    (void)expr_sym_new(e.p, (SymInfo){.name = "N", .kind = SYM_DIM, .lo = 0, .hi = 1 << 20});
    return e;
}

static Kernel *parse(Env *e, const char *text) {
    Kernel *k = kir_parse(e->a, e->p, e->d, text, NULL);
    if (!k && diag_count(e->d)) fprintf(stderr, "%s\n", diag_at(e->d, 0)->text);
    return k;
}

static const char *print(Env *e, const Kernel *k) {
    StrBuf s;
    sb_init(&s, e->a);
    kir_print(k, e->p, &s);
    return sb_str(&s);
}

static const char softmax[] = "kernel per_1_softmax per  i=N ~j=4\n"
                              "  param 0 f32[N*4]\n"
                              "  param 1 f32[N*4] written\n"
                              "  %1 f32 load p0[i*4 + j] @3\n"
                              "  %2 f32 reduce max j %1\n"
                              "  %3 f32 sub %1, %2\n"
                              "  %4 f32 exp %3\n"
                              "  %5 f32 reduce sum j %4\n"
                              "  %6 f32 div %4, %5\n"
                              "  %7 f32 store p1[i*4 + j] %6\n"
                              "  cost reads [N*16] writes [N*16] flops []\n"
                              "end\n";

static void test_text(void) {
    Env e = env_new();
    Kernel *k = parse(&e, softmax);
    if (!CHECK(k != NULL)) return;
    CHECK(kir_verify(k, e.p, e.d) == GRAPHC_OK);
    CHECK_STR(print(&e, k), softmax);
    uint32_t dom[8];
    kir_domains(k, e.p, dom);
    CHECK_EQ_I(dom[1], 3);
    CHECK_EQ_I(dom[2], 1);
    CHECK_EQ_I(dom[7], 3);
    CHECK(!kir_parse(e.a, e.p, e.d, "kernel x poi i=Q\nend\n", NULL));
    CHECK(!kir_parse(e.a, e.p, e.d, "kernel x poi i=N\n %1 f32 frob %1\nend\n", NULL));
    arena_destroy(e.a);
}

/* Roles of templates; the text of attention is about its roles only. */
static void test_roles_text(void) {
    static const char *const text[] = {
        "kernel d tem dot  m=N n=6 ~k=5\n  param 0 f32[N*5]\n  param 1 f32[30]\n"
        "  param 2 f32[N*6] written\n  %1 f32 load p0[m*5 + k]\n  %2 f32 load p1[n + k*6]\n"
        "  %3 f32 mul %1, %2\n  %4 f32 reduce sum k %3\n  %5 f32 load p1[n + k*6]\n"
        "  %6 f32 mul %1, %5\n  %7 f32 reduce sum k %6\n  %8 f32 add %4, %7\n"
        "  %9 f32 store p2[m*6 + n] %8\n"
        "  dot batch - m m n n k k pack 0 a %1 wino p1 acc %4 b %2 acc %7 b %5\n"
        "  cost reads [] writes [] flops []\nend\n",
        "kernel a tem attention  b=3 i=N ~j=N ~d=64 dv=64\n"
        "  attention batch b i i j j d d dv dv q %1 k %2 s %4 score %5 m %6 e %8 l %9 v %10 o %13 "
        "guarded causal [N - 1]\n  cost reads [] writes [] flops []\nend\n",
        "kernel r per dealt  b=15 ~t=18 ~c=41024\n"
        "  dealt sharers 8 columns 41001 lists 8 per 32 at_once 2 first [b*16] rows [16] "
        "shift [(b + 7)/16]\n  cost reads [] writes [] flops []\nend\n",
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        Env e = env_new();
        Kernel *k = parse(&e, text[i]);
        if (CHECK(k != NULL)) CHECK_STR(print(&e, k), text[i]);
        arena_destroy(e.a);
    }
}

/* Templates share members: each is renumbered once. */
static void test_roles_renumbered(void) {
    static const char *const text[] = {
        "kernel g tem attention_gradient  b=3 i=N ~j=N ~d=64 n=64\n"
        "  attention_gradient batch b i i j j d d n n x %1 y %2 s %3 x2 %4 y2 %5 s2 %6 p %7 b %8 "
        "o %9 ahead [] behind []\n  cost reads [] writes [] flops []\nend\n",
        "kernel g tem attention_gradients  b=3 ~i=N ~j=N ~d=64 n=64 u=64 w=64\n"
        "  attention_gradients batch b i i j j d d n n nv u nq w x %1 y %2 s %3 x2 %4 y2 %5 s2 %6 "
        "p %7 b %8 o %9 pv %10 bv %11 ov %12 bq %13 oq %14 behind []\n"
        "  cost reads [] writes [] flops []\nend\n",
    };
    KVal to[16];
    for (KVal v = 0; v < 16; v++) to[v] = v ? v - 1 : 0;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        Env e = env_new();
        Kernel *k = parse(&e, text[i]);
        uint32_t n;
        const KRole *r = k ? kir_roles(k->tem, &n) : NULL;
        if (!CHECK(r != NULL)) return;
        kir_renumber_roles(k, to);
        for (uint32_t at = 1; n--; r++)
            if (kir_role_is_value(r)) CHECK_EQ_I(kir_role_get(k, r, 0), to[at++]);
        arena_destroy(e.a);
    }
}

/* mask: of hashes. */
static void test_set(uint64_t mask) {
    Env e = env_new();
    Kernel *k = parse(&e, softmax);
    Kernel *same = parse(&e, "kernel other per  row=N ~col=4\n param 0 f32[4*N]\n"
                             " param 1 f32[4*N] written\n %1 f32 load p0[col + 4*row]\n"
                             " %2 f32 reduce max col %1\n %3 f32 sub %1, %2\n %4 f32 exp %3\n"
                             " %5 f32 reduce sum col %4\n %6 f32 div %4, %5\n"
                             " %7 f32 store p1[4*row + col] %6\nend\n");
    KirSet *s = kir_set(e.a);
    s->hash_mask = mask;
    uint32_t number = kir_set_add(s, k, e.p);
    CHECK(kir_set_add(s, same, e.p) == number);
    same->ops[2].fold = FOLD_min;
    CHECK(kir_set_add(s, same, e.p) != number);
    same->ops[2].fold = FOLD_max;
    same->axes[1].extent = expr_const(e.p, 5);
    CHECK(kir_set_add(s, same, e.p) != number);
    CHECK(kir_set_add(s, k, e.p) == number);
    arena_destroy(e.a);
}

static void test_verify(void) {
    static const char *const broken[] = {
        /* types */
        "kernel x poi i=N\n param 0 f32[N] written\n %1 i32 const 1\n %2 f32 store p0[i] %1\nend\n",
        /* a parameter that is only read */
        "kernel x poi i=N\n param 0 f32[N]\n %1 f32 const 1\n %2 f32 store p0[i] %1\nend\n",
        /* a store for each value of a reduced axis */
        "kernel x red ~i=N\n param 0 f32[N] written\n %1 f32 const 1\n %2 f32 store p0[i] "
        "%1\nend\n",
        /* an operand that comes later */
        "kernel x poi i=N\n param 0 f32[N] written\n %1 f32 neg %2\n %2 f32 const 1\nend\n",
        /* updates in parallel */
        "kernel x poi i=N\n param 0 f32[N] written\n %1 f32 const 1\n %2 f32 atomic add p0[0] "
        "%1\nend\n",
        /* an axis with two roles, and a left operand that depends on a column */
        "kernel x tem dot m=5 n=6 ~k=N\n param 0 f32[N*5]\n param 1 f32[N*6]\n"
        " param 2 f32[30] written\n %1 f32 load p0[m*N + k]\n %2 f32 load p1[k*6 + n]\n"
        " %3 f32 mul %1, %2\n %4 f32 reduce sum k %3\n %5 f32 store p2[m*6 + n] %4\n"
        " dot batch m m m n n k k pack 0 a %1 acc %4 b %2\nend\n",
        "kernel x tem dot m=5 n=6 ~k=N\n param 0 f32[N*5]\n param 1 f32[N*6]\n"
        " param 2 f32[30] written\n %1 f32 load p0[m*N + k]\n %2 f32 load p1[k*6 + n]\n"
        " %3 f32 mul %1, %2\n %4 f32 reduce sum k %3\n %5 f32 store p2[m*6 + n] %4\n"
        " dot batch - m m n n k k pack 0 a %2 acc %4 b %1\nend\n",
        /* done again over parameters that are not alike, or do not go round */
        "kernel x poi more 1 i=N\n param 0 f32[N]\n param 1 f32[N] written\n param 2 i32[N]\n"
        " param 3 f32[N] written\n %1 f32 load p0[i]\n %2 f32 store p1[i] %1\nend\n",
        "kernel x poi more 1 i=N\n param 0 f32[N]\n param 1 f32[N] written\n param 2 f32[N]\n"
        " %1 f32 load p0[i]\n %2 f32 store p1[i] %1\nend\n",
        /* the body names one of the second time */
        "kernel x poi more 1 i=N\n param 0 f32[N] written\n param 1 f32[N] written\n"
        " %1 f32 const 1\n %2 f32 store p1[i] %1\nend\n",
        /* turns that read what another point stored, store it twice, or stand beside others */
        "kernel x poi turns t=3 i=N\n param 0 f32[N + 1] written\n"
        " %1 f32 load p0[i + 1]\n %2 f32 store p0[i] %1\nend\n",
        "kernel x poi turns t=3 i=N\n param 0 f32[N] written\n"
        " %1 f32 load p0[i]\n %2 f32 store p0[i] %1\n %3 f32 store p0[i] %1\nend\n",
        "kernel x poi more 1 turns t=3 i=N\n param 0 f32[N] written\n param 1 f32[N] written\n"
        " %1 f32 load p0[i]\n %2 f32 store p0[i] %1\nend\n",
        /* a count without a place */
        "kernel x tem compact ~i=N\n param 0 bool[N]\n param 1 i64[N] written\n"
        " %1 bool load p0[i]\n %2 i64 compact i %1 p1 count n\nend\n",
        /* two right operands, of which only the first lies in panels */
        "kernel x tem dot m=5 n=50 ~k=N\n param 0 f32[N*5]\n param 1 f32[N*96]\n"
        " param 2 f32[N*50]\n param 3 f32[250] written\n %1 f32 load p0[m*N + k]\n"
        " %2 f32 load p1[n/48*48*N + k*48 + n%48]\n %3 f32 mul %1, %2\n"
        " %4 f32 reduce sum k %3\n %5 f32 load p2[k*50 + n]\n %6 f32 mul %1, %5\n"
        " %7 f32 reduce sum k %6\n %8 f32 add %4, %7\n %9 f32 store p3[m*50 + n] %8\n"
        " dot batch - m m n n k k pack 48 a %1 acc %4 b %2 acc %7 b %5\nend\n",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        Env e = env_new();
        Kernel *k = parse(&e, broken[i]);
        CHECK(k && kir_verify(k, e.p, e.d) != GRAPHC_OK);
        arena_destroy(e.a);
    }
}

/* Rows that are dealt out: as they should be, and with one part of them another. */
static void test_dealt(void) {
#define SHIFT "(b*4 + 3)/6*4"
#define PLACE "b*48 + t*24 + c - " SHIFT
#define ROW   "(c < " SHIFT " + 12)*(" SHIFT " < c + 1)"
#define LISTS "columns 12 lists 2 per 6 at_once 2 first [b*4] rows [4] shift [" SHIFT "]"
    static const struct {
        const char *place, *mask, *is;
        bool holds;
    } cases[] = {
        {PLACE, ROW, LISTS, true},
        {PLACE, "(t < 4)*" ROW, LISTS, true},
        {PLACE " + 1", ROW, LISTS, false},
        {PLACE, "c < 12", LISTS, false},
        {PLACE, "t < 4", LISTS, false},
        {PLACE, "t < 3", LISTS, false},
        {PLACE, ROW, "columns 11 lists 2 per 6 at_once 2 first [] rows [4] shift [0]", false},
        {PLACE, ROW, "columns 12 lists 1 per 6 at_once 2 first [] rows [4] shift [0]", false},
        {PLACE, ROW, "columns 12 lists 2 per 5 at_once 2 first [b*4] rows [4] shift [0]", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Env e = env_new();
        const char *text =
            arena_printf(e.a,
                         "kernel x per dealt b=3 ~t=5 ~c=16\n param 0 f32[144]\n"
                         " param 1 f32[48] written\n %%1 f32 load p0[" PLACE "] if [" ROW "]\n"
                         " %%2 f32 load p0[%s] if [%s]\n %%3 f32 add %%1, %%2\n"
                         " %%4 f32 reduce sum t %%3\n %%5 f32 store p1[b*16 + c] %%4\n"
                         " dealt sharers 2 %s\nend\n",
                         cases[i].place, cases[i].mask, cases[i].is);
        Kernel *k = parse(&e, text);
        if (!CHECK(k && (kir_verify(k, e.p, e.d) == GRAPHC_OK) == cases[i].holds))
            fprintf(stderr, "in case %zu\n", i);
        arena_destroy(e.a);
    }
}

/* Operands in blocks of 32 rows: as they should be, and with one part of them another. */
static void test_blocks(void) {
    static const struct {
        const char *scale, *shift, *mask, *a, *block;
        bool holds;
    } cases[] = {
        {"k/32", "k%8*4", "15", "i8", "32", true},
        {"k/64", "k%8*4", "15", "i8", "32", true},
        {"k/16", "k%8*4", "15", "i8", "32", false},
        {"k/32", "k%8*4", "15", "i8", "16", true},
        {"k/32", "7*4 - k%8*4", "15", "i8", "32", false},
        {"k/32", "k%8*4", "7", "i8", "32", false},
        {"k/32", "k%8*4", "15", "i16", "32", false},
        {"k/32", "k%8*4", "15", "i8", "48", false},
        {"k/32", "k%8*4", "15", "i8", "128", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Env e = env_new();
        const char *text = arena_printf(
            e.a,
            "kernel x tem dot  m=5 n=48 ~k=64\n param 0 %s[320]\n param 1 f32[10]\n param 2 "
            "u32[384]\n"
            " param 3 f32[192]\n param 4 f32[240] written\n %%1 %s load p0[m*64 + k]\n"
            " %%2 f32 cast %%1\n %%3 f32 load p1[m*2 + k/32]\n %%4 f32 mul %%2, %%3\n"
            " %%5 u32 load p2[k/8*48 + n]\n %%6 i64 expr [%s]\n %%7 u32 cast %%6\n"
            " %%8 u32 shr %%5, %%7\n %%9 u32 const %s\n %%10 u32 and %%8, %%9\n"
            " %%11 f32 cast %%10\n %%12 f32 load p3[(%s)*48 + n]\n %%13 f32 mul %%11, %%12\n"
            " %%14 f32 mul %%4, %%13\n %%15 f32 reduce sum k %%14\n"
            " %%16 f32 store p4[m*48 + n] %%15\n"
            "  dot batch - m m n n k k pack 0 block %s a %%4 acc %%15 b %%13\nend\n",
            cases[i].a, cases[i].a, cases[i].shift, cases[i].mask, cases[i].scale, cases[i].block);
        Kernel *k = parse(&e, text);
        if (!CHECK(k && (kir_verify(k, e.p, e.d) == GRAPHC_OK) == cases[i].holds))
            fprintf(stderr, "case %zu of blocks\n", i);
        StrBuf out;
        sb_init(&out, e.a);
        if (k) kir_print(k, e.p, &out);
        CHECK(strstr(sb_str(&out), arena_printf(e.a, " pack 0 block %s a ", cases[i].block)));
        arena_destroy(e.a);
    }
}

/* Runs text with N = n on bufs. */
static void eval(const char *text, int64_t n, void *const *bufs) {
    Env e = env_new();
    Kernel *k = parse(&e, text);
    int64_t sym[8] = {n};
    if (CHECK(k && kir_verify(k, e.p, e.d) == GRAPHC_OK))
        CHECK(kir_eval(k, e.p, bufs, sym, e.a) == GRAPHC_OK);
    else if (diag_count(e.d))
        fprintf(stderr, "%s\n", diag_at(e.d, 0)->text);
    arena_destroy(e.a);
}

static void test_rows(void) {
    float x[] = {1, 3, NAN, 3, -2}, scan[5], top[1];
    int64_t arg[2], order[5];
    void *bufs[] = {x, scan, arg, order, top};
    eval("kernel x tem scan  ~j=N\n param 0 f32[N]\n param 1 f32[N] written\n"
         " param 2 i64[2] written\n param 3 i64[N] written\n param 4 f32[1] written\n"
         " %1 f32 load p0[j]\n %2 f32 scan sum j %1 exclusive reverse\n %3 f32 store p1[j] %2\n"
         " %4 i64 sort j %1 reverse\n %5 i64 store p3[j] %4\n"
         " %6 i64 reduce argmax j %1\n %7 i64 store p2[0] %6\n"
         " %8 f32 load p0[j] if [j < 2]\n %9 i64 reduce argmax_last j %8\n"
         " %10 i64 store p2[1] %9\n %11 f32 reduce max j %8\n %12 f32 store p4[0] %11\nend\n",
         5, bufs);
    CHECK_NEAR(scan[4], 0, 0);
    CHECK_NEAR(scan[3], -2, 0);
    CHECK_NEAR(scan[2], 1, 0);
    CHECK(isnan(scan[1]) && isnan(scan[0]));
    static const int64_t want[] = {1, 3, 0, 4, 2}; /* stable, descending, NaN last */
    for (int i = 0; i < 5; i++) CHECK_EQ_I(order[i], want[i]);
    CHECK_EQ_I(arg[0], 2); /* NaN beats everything */
    CHECK_EQ_I(arg[1], 1);
    CHECK_NEAR(top[0], 3, 0);
}

static void test_addresses(void) {
    float data[] = {10, 20, 30}, out[4] = {0}, acc[2] = {1, 1};
    int64_t idx[] = {2, 0, 7, 1};
    void *bufs[] = {data, idx, out, acc};
    eval("kernel x poi serial i=N\n param 0 f32[3]\n param 1 i64[N]\n param 2 f32[N] written\n"
         " param 3 f32[2] written\n %1 i64 load p1[i]\n %2 i64 bind at %1\n %3 f32 const -1\n"
         " %4 f32 load p0[at] if [at < 3] else %3\n %5 f32 store p2[i] %4\n"
         " %6 f32 atomic add p3[at] %4 if [at < 2]\nend\n",
         4, bufs);
    CHECK_NEAR(out[0], 30, 0);
    CHECK_NEAR(out[1], 10, 0);
    CHECK_NEAR(out[2], -1, 0);
    CHECK_NEAR(out[3], 20, 0);
    CHECK_NEAR(acc[0], 11, 0);
    CHECK_NEAR(acc[1], 21, 0);
}

static void test_empty(void) {
    float x[4] = {0}, sum[1] = {5};
    void *bufs[] = {x, sum};
    eval("kernel x red ~j=N\n param 0 f32[N]\n param 1 f32[1] written\n %1 f32 load p0[j]\n"
         " %2 f32 reduce max j %1\n %3 f32 store p1[0] %2\nend\n",
         0, bufs);
    CHECK(isinf(sum[0]) && sum[0] < 0);
}

static const char thrice[] = "kernel copies poi more 2  i=N\n"
                             "  param 0 f32[N]\n"
                             "  param 1 f32[N] written\n"
                             "  param 2 f32[N]\n"
                             "  param 3 f32[N] written\n"
                             "  param 4 f32[N]\n"
                             "  param 5 f32[N] written\n"
                             "  %1 f32 load p0[i]\n"
                             "  %2 f32 neg %1\n"
                             "  %3 f32 store p1[i] %2\n"
                             "  cost reads [] writes [] flops []\n"
                             "end\n";

static void test_more(void) {
    Env e = env_new();
    Kernel *k = parse(&e, thrice);
    if (!CHECK(k != NULL)) return;
    CHECK(kir_verify(k, e.p, e.d) == GRAPHC_OK);
    CHECK_STR(print(&e, k), thrice);
    CHECK_EQ_I(kir_body_params(k), 2);
    arena_destroy(e.a);
    float x[3][2] = {{1, 2}, {3, 4}, {5, 6}}, y[3][2] = {{0}};
    void *bufs[] = {x[0], y[0], x[1], y[1], x[2], y[2]};
    eval(thrice, 2, bufs);
    for (int i = 0; i < 6; i++) CHECK_NEAR(y[i / 2][i % 2], -x[i / 2][i % 2], 0);
}

/* A row's state and its maximum: what is stored first is not seen by what is computed behind. */
static const char turns[] = "kernel states per turns t=3  i=2 ~j=2\n"
                            "  param 0 f32[6]\n"
                            "  param 1 f32[2] written\n"
                            "  param 2 f32[4] written\n"
                            "  param 3 f32[6] written\n"
                            "  %1 f32 load p0[t + i*3]\n"
                            "  %2 f32 load p1[i]\n"
                            "  %3 f32 max %1, %2\n"
                            "  %4 f32 store p1[i] %3\n"
                            "  %5 f32 load p2[i*2 + j]\n"
                            "  %6 f32 add %5, %2\n"
                            "  %7 f32 store p2[i*2 + j] %6\n"
                            "  %8 f32 reduce sum j %6\n"
                            "  %9 f32 store p3[t + i*3] %8\n"
                            "  cost reads [] writes [] flops []\n"
                            "end\n";

static void test_turns(void) {
    Env e = env_new();
    Kernel *k = parse(&e, turns);
    if (!CHECK(k != NULL)) return;
    CHECK(kir_verify(k, e.p, e.d) == GRAPHC_OK);
    CHECK_STR(print(&e, k), turns);
    CHECK(!kir_carries(k, 0) && kir_carries(k, 1) && kir_carries(k, 2) && !kir_carries(k, 3));
    arena_destroy(e.a);
    float x[6] = {5, 2, 7, 1, 4, 3}, m[2] = {1, 2}, s[4] = {0, 1, 2, 3}, y[6] = {0};
    void *bufs[] = {x, m, s, y};
    eval(turns, 2, bufs);
    CHECK_NEAR(m[0], 7, 0);
    CHECK_NEAR(m[1], 4, 0);
    const float now[4] = {11, 12, 10, 11}, sums[6] = {3, 13, 23, 9, 13, 21};
    for (int i = 0; i < 4; i++) CHECK_NEAR(s[i], now[i], 0);
    for (int i = 0; i < 6; i++) CHECK_NEAR(y[i], sums[i], 0);
}

TEST_MAIN {
    test_turns();
    test_more();
    test_text();
    test_roles_text();
    test_roles_renumbered();
    test_set(UINT64_MAX);
    test_set(0); /* all hashes meet */
    test_verify();
    test_dealt();
    test_blocks();
    test_rows();
    test_addresses();
    test_empty();
}
