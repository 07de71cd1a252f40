/* A watch of the evaluator: large values come part by part, with the same elements and bounds as
 * when they are made whole, and evaluation goes on with what the watch gives. */
#include "graph/build/build.h"
#include "graph/eval/eval.h"
#include "tests/unit/test.h"

#include <stdlib.h>

/* A convolution with every attribute, along whose longest axis parts are cut, and a running sum,
 * which is never made in parts. */
enum { N = 2, H = 623, W = 60, C = 4, KH = 3, KW = 2, OH = 312, OW = 59, OC = 8 };
enum { COUNT = N * OH * OW * OC };

typedef struct Watched {
    Arena *a;
    Graph *g;
    EvalTensor in[2];
    Value conv, sum;
    double *value[2], *error[2]; /* of both, as looked at */
    uint32_t parts[2];
    int64_t seen[2]; /* elements along the axis that is cut */
    bool replaces;   /* the convolution by its elements halved, which lie transposed */
    bool borrowed;   /* ... in memory that is not given away */
    float *other;
} Watched;

static double drawn(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (1 << 24) - 0.25;
}

static Value operand(Watched *w, const int64_t *dim) {
    Type type = {.dtype = DT_f32, .rank = 4};
    EvalTensor *t = &w->in[w->g->inputs.n];
    uint64_t state = w->g->inputs.n + 1;
    size_t n = 1;
    *t = (EvalTensor){.dtype = DT_f32, .rank = 4};
    for (int i = 0; i < 4; i++) {
        type.dim[i] = expr_const(w->g->exprs, t->dim[i] = dim[i]);
        n *= (size_t)dim[i];
    }
    float *v = t->data = ARENA_ARRAY(w->a, float, n);
    for (size_t i = 0; i < n; i++) v[i] = (float)drawn(&state);
    return build_input(w->g, "x", type);
}

static Watched watched(void) {
    Watched w = {.a = arena_create()};
    w.g = graph_create(w.a, expr_pool_create(w.a), diag_create(w.a, NULL), "watched");
    const Attr attr = {.conv = {.n = 2,
                                .stride = {2, 1},
                                .dilation = {2, 1},
                                .lo = {3, 0},
                                .hi = {1, 0},
                                .groups = 2,
                                .to = DT_f32}};
    Value x = operand(&w, (const int64_t[]){N, H, W, C});
    Value k = operand(&w, (const int64_t[]){KH, KW, C / 2, OC});
    w.conv = build_conv(w.g, x, k, &attr);
    w.sum = build_scan(w.g, OP_cumsum, w.conv, 3, false, false);
    build_output(w.g, "y", w.sum);
    for (int i = 0; i < 2; i++) {
        w.value[i] = ARENA_ARRAY(w.a, double, COUNT);
        w.error[i] = ARENA_ARRAY(w.a, double, COUNT);
    }
    return w;
}

static bool other(void *ctx, Value v, const EvalTensor *shape, EvalOther *out) {
    Watched *w = ctx;
    if (v != w->conv || !w->replaces) return false;
    const int64_t rows = N * OH * (int64_t)OW;
    CHECK(shape->rank == 4 && shape->dim[1] == OH && shape->dim[3] == OC);
    w->other = malloc(COUNT * sizeof *w->other);
    if (!w->other) return false;
    for (int64_t i = 0; i < COUNT; i++) /* channels apart */
        w->other[i % OC * rows + i / OC] = (float)(i % 1000) / 8;
    *out = (EvalOther){.stride = {(int64_t)OH * OW, OW, 1, rows}, .data = w->other};
    if (!w->borrowed) out->bytes = COUNT * sizeof *w->other;
    return true;
}

static void look(void *ctx, Value v, EvalPart part, const EvalTensor *want, const double *error) {
    Watched *w = ctx;
    const int which = v == w->sum;
    const double *x = want->data;
    const int64_t rows = want->dim[1], inner = want->dim[2] * want->dim[3];
    CHECK(want->dtype == DT_f64 && error != NULL && part.axis == (which ? 0 : 1));
    CHECK_EQ_I(part.first, w->seen[which]);
    w->parts[which]++;
    w->seen[which] += which ? want->dim[0] : rows;
    for (int64_t n = 0; n < want->dim[0]; n++)
        for (int64_t i = 0; i < rows * inner; i++) {
            const int64_t to = (n * OH + (which ? 0 : part.first)) * inner + i;
            w->value[which][to] = x[n * rows * inner + i];
            w->error[which][to] = error[n * rows * inner + i];
        }
}

static void run(Watched *w, bool both) {
    uint8_t what[16] = {0};
    EvalRun *r = NULL;
    const EvalWatch watch = {.what = what, .other = other, .look = look, .ctx = w};
    what[w->sum] = EVAL_LOOK;
    if (both) what[w->conv] = EVAL_LOOK;
    CHECK(w->g->nodes.n <= 16);
    CHECK(eval_open(w->g, w->in, NULL, w->a, &watch, &r) == GRAPHC_OK);
    CHECK(eval_reach(r, w->sum) == GRAPHC_OK);
    eval_close(r);
    if (w->borrowed) free(w->other);
    CHECK_EQ_I(w->parts[1], 1);
}

/* A part of what the convolution is, by itself. */
static double element(const Watched *w, int64_t n, int64_t h, int64_t x, int64_t c) {
    const float *image = w->in[0].data, *k = w->in[1].data;
    double sum = 0;
    for (int64_t i = 0; i < KH; i++)
        for (int64_t j = 0; j < KW; j++)
            for (int64_t g = 0; g < C / 2; g++) {
                const int64_t at = 2 * h + 2 * i - 3;
                if (at < 0 || at >= H) continue;
                sum += (double)image[((n * H + at) * W + x + j) * C + c / (OC / 2) * (C / 2) + g] *
                       k[((i * KW + j) * (C / 2) + g) * OC + c];
            }
    return sum;
}

/* Elements and bounds are those of the whole. */
static void test_same(void) {
    Watched whole = watched(), parts = watched();
    run(&whole, false);
    run(&parts, true);
    CHECK(parts.parts[0] > 1);
    CHECK_EQ_I(parts.seen[0], OH);
    for (int64_t i = 0; i < COUNT; i++) {
        const int64_t c = i % OC, x = i / OC % OW, h = i / OC / OW % OH, n = i / OC / OW / OH;
        CHECK_NEAR(parts.value[0][i], element(&parts, n, h, x, c), 1e-12);
        CHECK(parts.error[0][i] > 0 && parts.error[0][i] < 1e-4);
    }
    CHECK(memcmp(whole.value[1], parts.value[1], COUNT * sizeof(double)) == 0);
    CHECK(memcmp(whole.error[1], parts.error[1], COUNT * sizeof(double)) == 0);
    arena_destroy(whole.a);
    arena_destroy(parts.a);
}

/* What comes after is computed from the other, where it lies, whoever frees it. */
static void test_other(bool borrowed) {
    Watched w = watched();
    w.replaces = true;
    w.borrowed = borrowed;
    run(&w, true);
    CHECK(w.parts[0] > 1);
    for (int64_t i = 0, c; i < COUNT; i += OC) {
        double sum = 0;
        for (c = 0; c < OC; c++) sum += (double)((i + c) % 1000) / 8;
        CHECK(w.value[1][i + OC - 1] == sum);
    }
    arena_destroy(w.a);
}

/* ---- A product that is stored, and that an addition takes before it is rounded ---- */

typedef struct Product {
    Value product, difference;
    float stored[1];
    double error;
} Product;

static bool stored_product(void *ctx, Value v, const EvalTensor *shape, EvalOther *out) {
    Product *p = ctx;
    CHECK(shape->rank == 1);
    if (v != p->product) return false;
    *out = (EvalOther){.stride = {1}, .data = p->stored};
    return true;
}

static void look_at_difference(void *ctx, Value v, EvalPart part, const EvalTensor *want,
                               const double *error) {
    Product *p = ctx;
    (void)part, (void)want;
    if (v == p->difference) p->error = error ? error[0] : 0;
}

static void test_product(void) {
    Arena *a = arena_create();
    Graph *g = graph_create(a, expr_pool_create(a), diag_create(a, NULL), "product");
    Type t = {.dtype = DT_f32, .rank = 1};
    float x = 0.1f, y;
    Product p = {.stored = {x * x}};
    t.dim[0] = expr_const(g->exprs, 1);
    y = p.stored[0];
    const Value in[2] = {build_input(g, "x", t), build_input(g, "y", t)};
    p.product = build_binary(g, OP_mul, in[0], in[0]);
    p.difference = build_binary(g, OP_sub, p.product, in[1]);
    build_output(g, "d", p.difference);
    const EvalTensor inputs[2] = {{.dtype = DT_f32, .rank = 1, .dim = {1}, .data = &x},
                                  {.dtype = DT_f32, .rank = 1, .dim = {1}, .data = &y}};
    uint8_t *what = ARENA_ARRAY(a, uint8_t, g->nodes.n);
    what[p.product] = what[p.difference] = EVAL_LOOK;
    const EvalWatch watch = {
        .what = what, .other = stored_product, .look = look_at_difference, .ctx = &p};
    EvalRun *run = NULL;
    CHECK(eval_open(g, inputs, NULL, a, &watch, &run) == GRAPHC_OK);
    CHECK(eval_reach(run, p.difference) == GRAPHC_OK);
    eval_close(run);
    const double left = fabs((double)x * (double)x - (double)y); /* of fma(x, x, -y) */
    CHECK(left > 0 && p.error >= left && p.error < 4 * eval_unit(DT_f32) * (double)y);
    arena_destroy(a);
}

/* ---- A concatenation of gathered rows, which is made in parts along the axis that both have ----
 */

enum { GN = 2, GH = 400, GW = 96, GC = 3, GDATA = 410 }; /* of the data GH rows are taken */

typedef struct Joined {
    Value concat;
    bool diagonal; /* both of the data's last coordinates are the row: [n, 0, h, h] */
    uint32_t parts;
    int64_t seen; /* elements along the axis that is cut */
    const float *data, *given;
} Joined;

static double joined_element(const Joined *j, int64_t n, int64_t c, int64_t h, int64_t w) {
    return c ? j->given[((n * 2 + c - 1) * GH + h) * GW + w]
             : j->data[(n * GDATA + h) * GDATA + (j->diagonal ? h : GW - 1 - w)];
}

static void look_at_joined(void *ctx, Value v, EvalPart part, const EvalTensor *want,
                           const double *error) {
    Joined *j = ctx;
    const double *x = want->data;
    const bool rows = part.axis == 2;
    const int64_t h0 = rows ? part.first : 0, w0 = rows ? 0 : part.first;
    bool same = v == j->concat && error == NULL && part.axis == (j->diagonal ? 3 : 2);
    CHECK_EQ_I(part.first, j->seen);
    j->parts++;
    j->seen += want->dim[part.axis];
    for (int64_t n = 0; n < GN; n++)
        for (int64_t c = 0; c < GC; c++)
            for (int64_t h = 0; h < want->dim[2]; h++)
                for (int64_t w = 0; w < want->dim[3]; w++)
                    same &= *x++ == joined_element(j, n, c, h0 + h, w0 + w);
    CHECK(same);
}

static Value given_input(Arena *a, Graph *g, EvalTensor *t, DType type, const int64_t *dim) {
    Type of = {.dtype = type, .rank = 4};
    size_t n = 1;
    *t = (EvalTensor){.dtype = type, .rank = 4};
    for (int i = 0; i < 4; i++) {
        of.dim[i] = expr_const(g->exprs, t->dim[i] = dim[i]);
        n *= (size_t)dim[i];
    }
    uint64_t state = n;
    int64_t *index = type == DT_i64 ? t->data = ARENA_ARRAY(a, int64_t, n) : NULL;
    float *x = index ? NULL : (t->data = ARENA_ARRAY(a, float, n));
    for (size_t i = 0; i < n; i++)
        if (index)
            index[i] = GW - 1 - (int64_t)i % GW;
        else
            x[i] = (float)drawn(&state);
    return build_input(g, "x", of);
}

static void test_joined(bool diagonal) {
    Arena *a = arena_create();
    Graph *g = graph_create(a, expr_pool_create(a), diag_create(a, NULL), "joined");
    EvalTensor in[3];
    const int8_t src[] = {0, 1, 2, diagonal ? 2 : -1};
    const Value data = given_input(a, g, &in[0], DT_f32, (const int64_t[]){GN, 1, GDATA, GDATA});
    const Value index = given_input(a, g, &in[1], DT_i64, (const int64_t[]){GN, 1, GH, GW});
    const Value given = given_input(a, g, &in[2], DT_f32, (const int64_t[]){GN, 2, GH, GW});
    const Type of = *graph_type(g, index);
    const Value rows = build_gather(g, data, src, &index, !diagonal, 4, of.dim);
    Joined j = {.diagonal = diagonal, .data = in[0].data, .given = in[2].data};
    j.concat = build_concat(g, (const Value[]){rows, given}, 2, 1);
    build_output(g, "y", j.concat);
    uint8_t *what = ARENA_ARRAY(a, uint8_t, g->nodes.n);
    what[j.concat] = EVAL_LOOK;
    const EvalWatch watch = {.what = what, .look = look_at_joined, .ctx = &j};
    EvalRun *run = NULL;
    CHECK(eval_open(g, in, NULL, a, &watch, &run) == GRAPHC_OK);
    CHECK(eval_reach(run, j.concat) == GRAPHC_OK);
    eval_close(run);
    CHECK(j.parts > 1);
    CHECK_EQ_I(j.seen, diagonal ? GW : GH);
    arena_destroy(a);
}

TEST_MAIN {
    test_joined(false);
    test_joined(true);
    test_product();
    test_same();
    test_other(false);
    test_other(true);
}
