/* The expression algebra: named identities that fusion relies on, and random expressions whose
 * simplified form must evaluate like the plain tree, for floor semantics, at every sampled point */
#include "graph/expr/expr.h"
#include "tests/unit/test.h"
#include <time.h>

typedef struct World {
    Arena *arena;
    ExprPool *p;
    Expr batch, seq, img; /* dimensions */
    Expr b, s, h, d, c;   /* axes: below batch, seq, 12, 64, 768 */
} World;

static Expr dim(ExprPool *p, const char *name, int64_t lo, int64_t hi) {
    return expr_sym_new(p, (SymInfo){.name = name, .kind = SYM_DIM, .lo = lo, .hi = hi});
}

static Expr axis(ExprPool *p, const char *name, Expr extent) {
    int64_t hi;
    expr_range(p, extent, NULL, &hi);
    SymInfo s = {.name = name, .kind = SYM_AXIS, .hi = hi - 1, .below = extent};
    return expr_sym_new(p, s);
}

static World world(void) {
    Arena *a = arena_create();
    ExprPool *p = expr_pool_create(a);
    World w = {.arena = a, .p = p};
    w.batch = dim(p, "batch", 1, 256);
    w.seq = dim(p, "seq", 1, 4096);
    w.img = dim(p, "image size", 32, 1024);
    w.b = axis(p, "b", w.batch);
    w.s = axis(p, "s", w.seq);
    w.h = axis(p, "h", expr_const(p, 12));
    w.d = axis(p, "d", expr_const(p, 64));
    w.c = axis(p, "c", expr_const(p, 768));
    return w;
}

static const char *text(World *w, Expr e) {
    StrBuf s;
    sb_init(&s, w->arena);
    expr_print(w->p, e, &s);
    return sb_str(&s);
}

/* in, as it must simplify to. */
static void check_text(World *w) {
    static const char *const cases[][2] = {
        {"(h*64 + d)/64", "h"},
        {"(h*64 + d) % 64", "d"},
        {"((b*seq + s)*768 + c)/768/seq", "b"},
        {"((b*seq + s)*768 + c)/768 % seq", "s"},
        {"((b*seq + s)*768 + c) % (seq*768)", "s*768 + c"},
        {"((b*seq + s)*12 + h)*64 + d - ((b*seq + s)*768 + h*64 + d)", "0"},
        {"(c/64)*64 + c % 64", "c"},
        {"((c/64) % 12)*64 + c % 64", "c"},
        {"((b*seq + s)*768 + c)/(seq*768)", "b"},
        {"((b*12 + h)*seq + s)/seq % 12", "h"},
        {"((b*12 + h)*seq + s)/(seq*12)", "b"},
        {"(s*batch + b)*seq/(seq*batch)", "s"},
        {"(c/4)/3", "c/12"},
        {"(c % 64)/8", "c/8 % 8"},
        {"(c % 64) % 8", "c % 8"},
        {"(s - 1)/4 + 1", "(s + 3)/4"},
        {"s < seq", "1"},
        {"seq < s + 1", "0"},
        {"b*seq + s < batch*seq", "1"},
        {"2*s < 10", "s < 5"},
        {"s/4 < 5", "s < 20"},
        {"4*s == 6", "0"},
        {"min(s, seq - 1)", "s"},
        {"max(s, 0)", "s"},
        {"min(batch*seq, seq)", "seq"},
        {"select(s < 5, s, 5)", "min(s, 5)"},
        {"(-s)/4", "(-s)/4"},
        {"-s/4", "-s/4"},
        {"\"image size\"/2*2", "\"image size\"/2*2"},
        {"(s*(\"image size\"/2 - 1) + 3)/(\"image size\"/2 - 1)", "s"},
        {"-s*3 + batch - 7", "batch - s*3 - 7"},
        {"(batch + 1)*(seq - 1)", "batch*seq - batch + seq - 1"},
        {"s % seq + batch % 1", "s"},
        {"seq - min(seq, 5)", "max(seq - 5, 0)"},
        {"batch + seq*2 - min(seq, batch)*2", "batch + max(-batch + seq, 0)*2"},
        {"max(5 - seq, 0) + seq", "max(seq, 5)"},
        {"seq - max(seq - 5, 0)", "min(seq, 5)"},
        {"min(seq, batch) + max(seq - batch, 0)", "seq"},
        {"max(seq, batch) - 3 + min(seq, batch)", "batch + seq - 3"},
        {"max(max(seq - 5, 0) - 4, 0)", "max(seq - 9, 0)"},
        {"2 < max(seq/5 - 1, 0)", "19 < seq"},
        {"min(min(seq, 9) - 4, 3)", "min(seq - 4, 3)"},
        {"min(min(seq, 9) - 4, 7)", "min(seq, 9) - 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *end;
        Expr e = expr_parse(w->p, cases[i][0], &end);
        if (!CHECK(e && !*end)) fprintf(stderr, "    %s at %s\n", cases[i][0], end);
        if (!e) continue;
        CHECK_STR(text(w, e), cases[i][1]);
        CHECK(expr_parse(w->p, text(w, e), &end) == e && !*end);
    }
    static const char *const bad[] = {"", "nobody", "(s", "s +", "min(s)", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *end;
        Expr e = expr_parse(w->p, bad[i], &end);
        CHECK(!e || *end);
    }
}

static void check_queries(World *w) {
    ExprPool *p = w->p;
    Expr coef, rest, flat = expr_add(p, expr_mul(p, expr_muli(p, w->b, 3), w->seq), w->s);
    uint32_t b = 0, s = 0;
    CHECK(expr_is_sym(p, w->b, &b) && expr_is_sym(p, w->s, &s));
    CHECK(expr_affine(p, flat, b, &coef, &rest) && coef == expr_muli(p, w->seq, 3) && rest == w->s);
    CHECK(!expr_affine(p, expr_mul(p, w->b, w->b), b, &coef, &rest));
    CHECK(!expr_affine(p, expr_div(p, w->b, w->seq), b, &coef, &rest));
    CHECK(expr_uses(p, flat, s) && !expr_uses(p, w->d, s));
    CHECK_EQ_I(expr_divisor(p, expr_addi(p, expr_muli(p, w->s, 12), 18)), 6);
    Expr by = expr_const(p, 5);
    CHECK_STR(text(w, expr_subst(p, flat, &b, &by, 1)), "seq*15 + s");
    Expr in = expr_and(p, expr_lt(p, w->s, expr_const(p, 9)), expr_lt(p, w->s, expr_const(p, 5)));
    CHECK_STR(text(w, in), "s < 5");
    CHECK_STR(text(w, expr_not(p, in)), "4 < s");
    /* A range that shrinks later helps what is made afterwards. */
    Expr n = dim(p, "n", 0, 1000), q = expr_div(p, n, expr_const(p, 100));
    uint32_t ns = 0;
    CHECK(!expr_is_const(p, q, NULL) && expr_is_sym(p, n, &ns));
    expr_sym_edit(p, ns)->hi = 99;
    CHECK(expr_is_value(p, expr_div(p, n, expr_const(p, 100)), 0));
    ExprPool *copy = expr_pool_clone(p, w->arena);
    CHECK(expr_mul(copy, w->batch, w->seq) == expr_mul(p, w->batch, w->seq));
    /* A reset clone interns the same numbers again and has forgotten changed bounds. */
    Expr first = 0;
    for (int turn = 0; turn < 2; turn++) {
        Expr last = expr_sym_ref(copy, ns);
        CHECK(!expr_is_const(copy, expr_div(copy, last, expr_const(copy, 50)), NULL));
        expr_sym_edit(copy, ns)->hi = 49;
        CHECK(expr_is_value(copy, expr_div(copy, last, expr_const(copy, 50)), 0));
        for (int64_t i = 1000; i < 3000; i++) last = expr_muli(copy, expr_add(copy, w->s, last), i);
        if (turn) CHECK(last == first);
        first = last;
        CHECK(expr_import(copy, p, in) == in);
        expr_pool_reset(copy, p);
    }
}

/* Random trees. */

typedef struct Tree {
    int op; /* ExprOp */
    int64_t v;
    uint32_t sym;
    struct Tree *a[3];
} Tree;

static uint64_t state = 12345;
static uint32_t rnd(uint32_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

static Tree *tree(World *w, int depth) {
    static const uint8_t ops[] = {EX_add, EX_add, EX_add, EX_mul, EX_mul, EX_div, EX_div,
                                  EX_mod, EX_mod, EX_min, EX_max, EX_lt,  EX_eq,  EX_select};
    static const int64_t nice[] = {0, 1, 2, 3, 4, 6, 8, 12, 64, 768, -1, -2, -5};
    Tree *t = ARENA_NEW(w->arena, Tree);
    if (depth == 0 || rnd(6) == 0) {
        t->op = rnd(3) ? EX_sym : EX_const;
        t->v = nice[rnd(sizeof nice / sizeof *nice)];
        t->sym = rnd(8);
        return t;
    }
    t->op = ops[rnd(sizeof ops)];
    int n = t->op == EX_select ? 3 : 2;
    for (int i = 0; i < n; i++) t->a[i] = tree(w, depth - 1);
    return t;
}

static int64_t floor_div(int64_t a, int64_t b) {
    if (!b) return 0;
    int64_t q = a / b, r = a % b;
    return r && (r < 0) != (b < 0) ? q - 1 : q;
}

static int64_t plain(const Tree *t, const int64_t *v) {
    if (t->op == EX_const) return t->v;
    if (t->op == EX_sym) return v[t->sym];
    int64_t a = plain(t->a[0], v), b = plain(t->a[1], v), c = t->a[2] ? plain(t->a[2], v) : 0;
    switch (t->op) {
    case EX_add: return a + b;
    case EX_mul: return a * b;
    case EX_div: return floor_div(a, b);
    case EX_mod: return b ? a - b * floor_div(a, b) : 0;
    case EX_min: return a < b ? a : b;
    case EX_max: return a > b ? a : b;
    case EX_lt: return a < b;
    case EX_eq: return a == b;
    default: return a ? b : c;
    }
}

static Expr simplified(ExprPool *p, const Tree *t) {
    if (t->op == EX_const) return expr_const(p, t->v);
    if (t->op == EX_sym) return expr_sym_ref(p, t->sym);
    Expr a = simplified(p, t->a[0]), b = simplified(p, t->a[1]);
    switch (t->op) {
    case EX_add: return expr_add(p, a, b);
    case EX_mul: return expr_mul(p, a, b);
    case EX_div: return expr_div(p, a, b);
    case EX_mod: return expr_mod(p, a, b);
    case EX_min: return expr_min(p, a, b);
    case EX_max: return expr_max(p, a, b);
    case EX_lt: return expr_lt(p, a, b);
    case EX_eq: return expr_eq(p, a, b);
    default: return expr_select(p, a, b, simplified(p, t->a[2]));
    }
}

/* A point within all bounds; corners are drawn often. */
static void draw(int64_t v[8]) {
    v[0] = 1 + (rnd(2) ? rnd(256) : rnd(3));
    v[1] = 1 + (rnd(2) ? rnd(4096) : rnd(3));
    v[2] = 32 + (rnd(2) ? rnd(993) : rnd(2));
    int64_t extent[] = {v[0], v[1], 12, 64, 768};
    for (int i = 0; i < 5; i++) {
        int64_t e = extent[i];
        v[3 + i] = rnd(3) == 0 ? e - 1 : rnd(3) == 0 ? 0 : rnd((uint32_t)e);
    }
}

static void check_random(World *w, int count) {
    for (int i = 0; i < count; i++) {
        Tree *t = tree(w, 1 + (int)rnd(4));
        Expr e = simplified(w->p, t);
        const char *end, *shown = text(w, e);
        Expr back = expr_parse(w->p, shown, &end);
        CHECK(back && !*end);
        for (int k = 0; k < 12; k++) {
            int64_t v[64] = {0}, lo, hi;
            draw(v);
            int64_t want = plain(t, v), got = expr_eval(w->p, e, v);
            expr_range(w->p, e, &lo, &hi);
            bool ok = got == want && lo <= got && got <= hi && expr_eval(w->p, back, v) == want;
            if (ok || !CHECK(ok)) {
                if (ok) continue;
                fprintf(stderr, "    tree %d: %s = %lld, plain %lld, range %lld..%lld\n", i, shown,
                        (long long)got, (long long)want, (long long)lo, (long long)hi);
                fprintf(stderr, "    at %lld %lld %lld %lld %lld %lld %lld %lld\n", (long long)v[0],
                        (long long)v[1], (long long)v[2], (long long)v[3], (long long)v[4],
                        (long long)v[5], (long long)v[6], (long long)v[7]);
                return;
            }
        }
    }
}

TEST_MAIN {
    World w = world();
    check_random(&w, 40000);
    check_text(&w);
    check_queries(&w);
    arena_destroy(w.arena);
}
