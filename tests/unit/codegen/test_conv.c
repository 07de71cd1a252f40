/* Convolutions on tensor cores: what the copy engine is told is compared, element by element, with
 * what the kernel's index and mask say. The engine walks the corners of windows in order, innermost
 * dimension first, and reads at a tap's distance from each; outside it reads zeros. */
#include "tests/unit/codegen/tensor_cores.h"
#include <string.h>

typedef struct Conv {
    const char *name;
    int n, h, w, c, o;
    int taps[2], stride, dilation, lo[2], hi[2]; /* of rows, of columns */
    bool taken;
} Conv;

static const Conv convs[] = {
    {"3x3", 2, 14, 14, 64, 64, {3, 3}, 1, 1, {1, 1}, {1, 1}, true},
    {"stride 2", 3, 15, 18, 128, 128, {3, 3}, 2, 1, {1, 1}, {1, 1}, true},
    {"dilated", 1, 21, 20, 64, 128, {3, 3}, 1, 2, {2, 2}, {2, 2}, true},
    {"strided and dilated", 2, 22, 25, 64, 64, {3, 3}, 2, 2, {1, 1}, {1, 1}, true},
    {"uneven", 2, 17, 9, 72, 64, {5, 3}, 1, 1, {2, 0}, {1, 2}, true},
    {"no padding", 2, 16, 16, 64, 64, {3, 3}, 1, 1, {0, 0}, {0, 0}, true},
    {"patches", 2, 32, 32, 96, 64, {2, 2}, 2, 1, {0, 0}, {0, 0}, true},
    {"pixels 3 apart", 2, 22, 22, 64, 64, {1, 1}, 3, 1, {0, 0}, {0, 0}, true},
    {"few channels", 1, 40, 40, 8, 64, {7, 7}, 2, 1, {3, 3}, {3, 3}, true},
    {"3 channels", 1, 40, 40, 3, 64, {7, 7}, 2, 1, {3, 3}, {3, 3}, false},
    {"9 steps at a time", 1, 90, 90, 64, 64, {3, 3}, 9, 1, {1, 1}, {1, 1}, false},
};

static int out_size(const Conv *c, int i) {
    int size = i ? c->w : c->h;
    return (size + c->lo[i] + c->hi[i] - c->dilation * (c->taps[i] - 1) - 1) / c->stride + 1;
}

static const char *kernel_text(const Conv *c, Arena *a) {
    int p = out_size(c, 0), q = out_size(c, 1), k = c->taps[0] * c->taps[1] * c->c;
    const char *row = arena_printf(a, "(y*%d + r*%d - %d)", c->stride, c->dilation, c->lo[0]);
    const char *col = arena_printf(a, "(x*%d + s*%d - %d)", c->stride, c->dilation, c->lo[1]);
    StrBuf s;
    sb_init(&s, a);
    sb_printf(&s, "kernel k tem dot n=%d y=%d x=%d j=%d ~r=%d ~s=%d ~c=%d\n", c->n, p, q, c->o,
              c->taps[0], c->taps[1], c->c);
    sb_printf(&s, " param 0 f16[%d]\n param 1 f16[%d]\n param 2 f16[%d] written\n",
              c->n * c->h * c->w * c->c, k * c->o, c->n * p * q * c->o);
    sb_printf(&s, "%%1 f16 load p0[n*%d + %s*%d + %s*%d + c] if [(0 < %s + 1)*(%s < %d)",
              c->h * c->w * c->c, row, c->w * c->c, col, c->c, row, row, c->h);
    sb_printf(&s, "*(0 < %s + 1)*(%s < %d)]\n %%2 f32 cast %%1\n", col, col, c->w);
    sb_printf(&s, "%%3 f16 load p1[r*%d + s*%d + c*%d + j]\n %%4 f32 cast %%3\n",
              c->taps[1] * c->c * c->o, c->c * c->o, c->o);
    sb_put(&s, "%5 f32 mul %2, %4\n %6 f32 reduce sum r,s,c %5\n %7 f16 cast %6\n");
    sb_printf(&s, "%%8 f16 store p2[n*%d + y*%d + x*%d + j] %%7\n", p * q * c->o, q * c->o, c->o);
    sb_put(&s, "dot batch - m n,y,x n j k r,s,c pack 0 a %2 acc %6 b %4\n");
    sb_put(&s, "cost reads [1] writes [1] flops [1]\n end\n");
    return sb_str(&s);
}

/* The engine's walk over corners. */
typedef struct Walk {
    const CodeMap *m;
    const ExprPool *p;
    int64_t at[5];
} Walk;

static int64_t edge(const Walk *w, uint32_t d, bool end) {
    bool spatial = d + 1 < w->m->rank;
    int64_t last = expr_value(w->p, w->m->size[d]) - 1;
    if (!end) return spatial ? w->m->lower[d - 1] : 0;
    return spatial ? last + w->m->upper[d - 1] : last;
}

static void first_corner(Walk *w) {
    for (uint32_t d = 1; d < w->m->rank; d++) w->at[d] = edge(w, d, false);
}

static void next_corner(Walk *w) {
    for (uint32_t d = 1; d < w->m->rank; d++) {
        w->at[d] += d + 1 < w->m->rank ? w->m->step[d] : 1;
        if (w->at[d] <= edge(w, d, true)) return;
        w->at[d] = edge(w, d, false);
    }
}

/* The element at tap[] of the corner, channel c: its offset, or -1 outside. */
static int64_t element(const Walk *w, const int64_t *tap, int64_t c) {
    int64_t at = expr_value(w->p, w->m->base) + c;
    for (uint32_t d = 1; d < w->m->rank; d++) {
        int64_t i = w->at[d] + (d + 1 < w->m->rank ? tap[d - 1] : 0);
        if (i < 0 || i >= expr_value(w->p, w->m->size[d])) return -1;
        at += i * expr_value(w->p, w->m->stride[d - 1]) / 2;
    }
    return at;
}

typedef struct Compared {
    Built *b;
    const Conv *c;
    int64_t sym[64];
    Walk walk;
    uint32_t wrong;
} Compared;

static void set(Compared *x, uint32_t axis, int64_t v) {
    x->sym[x->b->k->axes[axis].sym] = v;
}

enum { N, Y, X, J, R, S, C };

/* From a window's corner to its tap number i of rows (columns), in places of the map: these may be
 * several pixels apart. */
static int64_t tap_distance(const Compared *x, int columns, int64_t i) {
    int64_t pixel = 2 * x->c->c * (columns ? 1 : x->c->w);
    int64_t place = expr_value(x->walk.p, x->walk.m->stride[columns ? 0 : 1]);
    return i * x->c->dilation * pixel / place;
}

static void compare_row(Compared *x) {
    const KOp *o = &x->b->k->ops[1];
    for (int64_t r = 0; r < x->c->taps[0]; r++)
        for (int64_t s = 0; s < x->c->taps[1]; s++) {
            int64_t tap[3] = {tap_distance(x, 1, s), tap_distance(x, 0, r), 0};
            set(x, R, r), set(x, S, s), set(x, C, 5);
            bool in = !o->mask || expr_eval(x->b->p, o->mask, x->sym);
            int64_t want = in ? expr_eval(x->b->p, o->index, x->sym) : -1;
            x->wrong += element(&x->walk, tap, 5) != want;
        }
}

static void compare(Built *b, const CodeMap *m, const Conv *c) {
    Compared x = {.b = b, .c = c, .walk = {.m = m, .p = b->p}};
    CHECK(b->k->naxes == 7 && expr_sym_count(b->p) <= 64);
    first_corner(&x.walk);
    for (int n = 0; n < c->n; n++)
        for (int y = 0; y < out_size(c, 0); y++)
            for (int q = 0; q < out_size(c, 1); q++) {
                set(&x, N, n), set(&x, Y, y), set(&x, X, q);
                compare_row(&x);
                next_corner(&x.walk);
            }
    if (!CHECK(!x.wrong)) fprintf(stderr, "%s: %u elements differ\n", c->name, x.wrong);
}

static void check_conv(const Conv *c) {
    Built b = built_new(c->name);
    if (built_parse(&b, kernel_text(c, b.a))) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        bool taken = strstr(built_text(&b), ".im2col.") && strstr(built_text(&b), "wgmma");
        if (!CHECK(taken == c->taken)) fprintf(stderr, "%s: %s\n", c->name, ck->note);
        if (taken && CHECK(ck->maps[0].im2col && ck->maps[0].channels == 64))
            compare(&b, &ck->maps[0], c);
    }
    arena_destroy(b.a);
}

/* One small image: few tiles, whose long sums the blocks of a cluster share. */
static void check_shared_sums(void) {
    static const Conv c = {"shared", 1, 7, 7, 512, 512, {3, 3}, 1, 1, {1, 1}, {1, 1}, true};
    Built b = built_new(c.name);
    if (built_parse(&b, kernel_text(&c, b.a))) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        CHECK(strstr(ck->note, "shared by blocks") && ck->cluster[0] > 2);
        CHECK(strstr(built_text(&b), "st.shared::cluster") != NULL);
        CHECK(ck->shared_bytes <= 227 << 10);
    }
    arena_destroy(b.a);
}

/* Many positions of few results: each k-block of weights is fetched once, not in a loop. */
static void check_resident(void) {
    static const Conv c = {"resident", 32, 56, 56, 64, 64, {3, 3}, 1, 1, {1, 1}, {1, 1}, true};
    Built b = built_new(c.name);
    if (built_parse(&b, kernel_text(&c, b.a))) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        int copies = built_count(built_text(&b), "cp.async.bulk.tensor");
        int images = built_count(built_text(&b), ".im2col.mbarrier");
        if (!CHECK(images == 1 && copies - images >= 9 && ck->shared_bytes <= 227 << 10))
            fprintf(stderr, "resident: %d copies, %d of the image\n", copies, images);
    }
    arena_destroy(b.a);
}

/* --- f32 -------------------------------------------------------------------------------------- */

/* Weights [o][r][s][c], or with o innermost, which matrix units do not take of f32. */
static const char *f32_text(bool along, Arena *a) {
    return arena_printf(
        a,
        "kernel k tem dot n=2 y=28 x=28 j=64 ~r=3 ~s=3 ~c=64\n param 0 f32[100352]\n"
        " param 1 f32[36864]\n param 2 f32[100352] written\n"
        " %%1 f32 load p0[n*50176 + y*1792 + x*64 + r*1792 + s*64 + c - 1856]"
        " if [(y + r < 29)*(x + s < 29)*(0 < (y + r))*(0 < (x + s))]\n"
        " %%2 f32 load p1[%s]\n %%3 f32 mul %%1, %%2\n %%4 f32 reduce sum r,s,c %%3\n"
        " %%5 f32 store p2[n*50176 + y*1792 + x*64 + j] %%4\n"
        "dot batch - m n,y,x n j k r,s,c pack 0 a %%1 acc %%4 b %%2\n"
        "cost reads [1] writes [1] flops [1]\n end\n",
        along ? "j*576 + r*192 + s*64 + c" : "r*12288 + s*4096 + c*64 + j");
}

static void check_f32(bool along) {
    Built b = built_new("f32");
    if (built_parse(&b, f32_text(along, b.a))) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        const char *text = built_text(&b);
        CHECK(!along == !strstr(text, "f32.tf32.tf32") && !along == !strstr(text, "cvt.rna.tf32"));
        if (!CHECK(along == (strstr(ck->note, "f32 in two of tf32") != NULL)))
            fprintf(stderr, "%s\n", ck->note);
        if (along) CHECK(ck->maps[0].im2col && ck->maps[0].channels == 32);
    }
    arena_destroy(b.a);
}

/* Many short sums: warpgroups take turns. */
static void check_f32_turns(void) {
    static const char text[] =
        "kernel k tem dot m=100352 n=256 ~k=64\n param 0 f32[6422528]\n param 1 f32[16384]\n"
        " param 2 f32[25690112]\n param 3 f32[25690112] written\n"
        " %1 f32 load p0[m*64 + k]\n %2 f32 load p1[n*64 + k]\n %3 f32 mul %1, %2\n"
        " %4 f32 reduce sum k %3\n %5 f32 load p2[m*256 + n]\n %6 f32 add %4, %5\n"
        " %7 f32 store p3[m*256 + n] %6\n dot batch - m m n n k k pack 0 a %1 acc %4 b %2\n"
        "cost reads [1] writes [1] flops [1]\n end\n";
    Built b = built_new("f32 in turns");
    if (built_parse(&b, text)) {
        const CodeKernel *ck = built_code(&b, target_for(PLAN_cuda));
        if (!CHECK(strstr(ck->note, "in turns, f32 in two of tf32")))
            fprintf(stderr, "%s\n", ck->note);
    }
    arena_destroy(b.a);
}

/* --- Depthwise -------------------------------------------------------------------------------- */

static const char depthwise[] =
    "kernel k red n=32 y=56 x=56 c=96 ~r=7 ~s=7\n param 0 f16[9633792]\n param 1 f16[4704]\n"
    " param 2 f16[9633792] written\n"
    " %1 f16 load p0[n*301056 + y*5376 + x*96 + c + r*5376 + s*96 - 16416]"
    " if [(y + r < 59)*(x + s < 59)*(2 < (y + r))*(2 < (x + s))]\n %2 f32 cast %1\n"
    " %3 f16 load p1[c + r*672 + s*96]\n %4 f32 cast %3\n %5 f32 mul %2, %4\n"
    " %6 f32 reduce sum r,s %5\n %7 f16 cast %6\n"
    " %8 f16 store p2[n*301056 + y*5376 + x*96 + c] %7\n"
    " cost reads [1] writes [1] flops [1]\n end\n";

/* A row of taps, for seven neighbours: 7 weights and 13 pixels, 16 bytes each, not 49 pixels. */
static void check_depthwise(void) {
    Built b = built_new("depthwise");
    if (built_parse(&b, depthwise)) {
        (void)built_code(&b, target_for(PLAN_cuda));
        int loads = built_count(built_text(&b), "ld.global"),
            v4 = built_count(built_text(&b), ".v4");
        if (!CHECK(loads == 7 + 13 && v4 == loads + 7))
            fprintf(stderr, "depthwise: %d loads, %d accesses of 16 bytes\n", loads, v4);
    }
    arena_destroy(b.a);
}

/* An image in blocks of 2 x 2 pixels: each row of a block is 6 neighbours, and 2 zeros behind them.
 */
static const char image[] =
    "kernel k poi n=32 y=115 x=115 r=2 c=8\n param 0 f16[4816896]\n param 1 f16[6771200] written\n"
    " %1 f16 const 0\n"
    " %2 f16 load p0[n*150528 + y*1344 + x*6 + r*672 + c - 2700]"
    " if [(c < 6)*(y*2 + r < 228)*(x*2 + c/3 < 228)*(3 < (y*2 + r))*(3 < (x*2 + c/3))] else %1\n"
    " %3 f16 store p1[n*211600 + y*1840 + x*16 + r*8 + c] %2\n"
    " cost reads [1] writes [1] flops [1]\n end\n";

static void check_image(void) {
    Built b = built_new("image");
    if (built_parse(&b, image)) {
        (void)built_code(&b, target_for(PLAN_cuda));
        CHECK(built_count(built_text(&b), "ld.global") == 6);
        CHECK(built_count(built_text(&b), "st.global") == 1 &&
              built_count(built_text(&b), ".v4") == 1);
    }
    arena_destroy(b.a);
}

TEST_MAIN {
    const char *only = getenv("CASE");
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
        if (!only || strcmp(convs[i].name, only) == 0) check_conv(&convs[i]);
    check_shared_sums();
    check_resident();
    check_f32(true);
    check_f32(false);
    check_f32_turns();
    check_depthwise();
    check_image();
}
