/* Every derivative of graph/grad/rules.def against central differences of the reference evaluator,
 * in f64. A row of the table without a case here fails the test. */
#include "graph/eval/eval.h"
#include "graph/grad/grad.h"
#include "tests/unit/test.h"

#define MAX_IO    8
#define TOLERANCE 1e-6
#define STEP      1e-3 /* of differences of fourth order */

/* One function under test, built anew for each graph. */
typedef struct Rig {
    Arena *arena;
    Graph *g;
    EvalTensor in[MAX_IO];
    bool wanted[MAX_IO]; /* floats are */
    bool symbolic;       /* sizes are symbols, one for each number */
    Expr size[128];
} Rig;

typedef Value (*Build)(Rig *r);

static Expr dim(Rig *r, int64_t n) {
    if (!r->symbolic || n == 1) return expr_const(r->g->exprs, n);
    if (!r->size[n]) { /* an input's: operands are made before sizes are asked for */
        SymInfo s = {.name = "n", .kind = SYM_DIM, .a = r->g->inputs.n, .lo = 0, .hi = 1 << 20};
        r->size[n] = expr_sym_new(r->g->exprs, s);
    }
    return r->size[n];
}

static EvalTensor *new_input(Rig *r, DType t, int rank, const int64_t *dims, Value *v) {
    EvalTensor *x = &r->in[r->g->inputs.n];
    Type type = {.dtype = t, .rank = (uint8_t)rank};
    *x = (EvalTensor){.dtype = t, .rank = (uint8_t)rank};
    r->wanted[r->g->inputs.n] = dtype_is_float(t);
    for (int i = 0; i < rank; i++) {
        const uint32_t known = expr_sym_count(r->g->exprs);
        type.dim[i] = dim(r, x->dim[i] = dims[i]);
        if (expr_sym_count(r->g->exprs) > known) expr_sym_edit(r->g->exprs, known)->b = (uint32_t)i;
    }
    char name[8];
    snprintf(name, sizeof name, "x%u", r->g->inputs.n);
    *v = build_input(r->g, name, type);
    return x;
}

static int64_t numel(const EvalTensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

/* Numbers between lo and hi in an order that looks random, no two near each other, other ones for
 * each input: so no difference steps over a kink. */
static Value reals(Rig *r, double lo, double hi, int rank, const int64_t *dims) {
    Value v;
    const uint32_t k = r->g->inputs.n;
    EvalTensor *x = new_input(r, DT_f64, rank, dims, &v);
    const int64_t n = numel(x), stride = n % 7 ? 7 : 11;
    double *p = x->data = arena_array(r->arena, (size_t)n + 1, sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = lo + (hi - lo) * ((double)(i * stride % n) + 0.31 + 0.23 * (k % 3)) / (double)n;
    return v;
}

static Value ints(Rig *r, int rank, const int64_t *dims, const int64_t *values) {
    Value v;
    EvalTensor *x = new_input(r, DT_i64, rank, dims, &v);
    x->data = arena_copy(r->arena, values, (size_t)numel(x) * sizeof *values);
    return v;
}

#define D(...)             ((const int64_t[]){__VA_ARGS__})
#define RANK(...)          ((int)(sizeof D(__VA_ARGS__) / sizeof(int64_t)))
#define REALS(lo, hi, ...) reals(r, lo, hi, RANK(__VA_ARGS__), D(__VA_ARGS__))
#define INTS(values, ...)  ints(r, RANK(__VA_ARGS__), D(__VA_ARGS__), values)
#define E(n)               dim(r, n)
#define N(n)               expr_const(r->g->exprs, n)
#define DIMS(...)          ((const Expr[]){__VA_ARGS__})

/* ---- Element-wise ops: a row says where the operands lie ---- */

typedef struct MapCase {
    Op op;
    double lo, hi, lo2, hi2;
} MapCase;

static const MapCase maps[] = {
    {OP_neg, -2, 2, 0, 0},      {OP_abs, -2, 2, 0, 0},      {OP_sqrt, 0.5, 3, 0, 0},
    {OP_rsqrt, 0.5, 3, 0, 0},   {OP_recip, 0.5, 3, 0, 0},   {OP_exp, -2, 2, 0, 0},
    {OP_log, 0.5, 3, 0, 0},     {OP_log1p, -0.5, 3, 0, 0},  {OP_expm1, -2, 2, 0, 0},
    {OP_sin, -3, 3, 0, 0},      {OP_cos, -3, 3, 0, 0},      {OP_tan, -1.2, 1.2, 0, 0},
    {OP_asin, -0.8, 0.8, 0, 0}, {OP_acos, -0.8, 0.8, 0, 0}, {OP_atan, -3, 3, 0, 0},
    {OP_sinh, -2, 2, 0, 0},     {OP_cosh, -2, 2, 0, 0},     {OP_tanh, -2, 2, 0, 0},
    {OP_asinh, -3, 3, 0, 0},    {OP_acosh, 1.5, 3, 0, 0},   {OP_atanh, -0.8, 0.8, 0, 0},
    {OP_erf, -2, 2, 0, 0},      {OP_sigmoid, -3, 3, 0, 0},  {OP_cast, -3, 3, 0, 0},
    {OP_add, -2, 2, -2, 2},     {OP_sub, -2, 2, -2, 2},     {OP_mul, -2, 2, -2, 2},
    {OP_div, -2, 2, 0.5, 2},    {OP_mod, -5, 4, 1.3, 2.1},  {OP_rem, -5, 4, 1.3, 2.1},
    {OP_pow, 0.5, 2, -2, 2},    {OP_min, -2, 2, -2, 2},     {OP_max, -2, 2, -2, 2},
    {OP_select, -2, 2, -2, 2},
};

static const MapCase *map_at_hand;

static Value apply(Rig *r, Value a, Value b) {
    const Op op = map_at_hand->op;
    if (op == OP_cast) return build_cast(r->g, build_cast(r->g, a, DT_f32), DT_f64);
    if (op == OP_select) return build_select(r->g, build_binary_f(r->g, OP_lt, a, 0.1), a, b);
    return op_info[op].arity == 1 ? build_unary(r->g, op, a) : build_binary(r->g, op, a, b);
}

static Value map_of(Rig *r, int rank, const int64_t *a, int rank_b, const int64_t *b) {
    const MapCase *m = map_at_hand;
    Value x = reals(r, m->lo, m->hi, rank, a), y = 0;
    if (op_info[m->op].arity > 1) y = reals(r, m->lo2, m->hi2, rank_b, b);
    return apply(r, x, y);
}

static Value map_plain(Rig *r) {
    return map_of(r, 2, D(3, 4), 2, D(3, 4));
}
static Value map_single(Rig *r) {
    return map_of(r, 2, D(1, 1), 2, D(1, 1));
}
static Value map_empty(Rig *r) {
    return map_of(r, 2, D(0, 3), 2, D(0, 3));
}
static Value map_broadcast(Rig *r) {
    return map_of(r, 3, D(2, 1, 4), 2, D(3, 1));
}
static Value map_scalar(Rig *r) {
    return map_of(r, 0, D(0), 2, D(3, 2));
}

/* Every other column from the last one back, transposed. */
static Value map_strided(Rig *r) {
    const MapCase *m = map_at_hand;
    Value x = REALS(m->lo, m->hi, 3, 6), y = 0;
    x = build_slice(r->g, x, DIMS(N(0), N(5)), DIMS(E(3), N(3)), (int64_t[]){1, -2});
    if (op_info[m->op].arity > 1) y = REALS(m->lo2, m->hi2, 3, 3);
    return apply(r, build_permute(r->g, x, (uint8_t[]){1, 0}), y);
}

static Value map_twice(Rig *r) { /* both operands the same value */
    Value x = REALS(map_at_hand->lo, map_at_hand->hi, 5);
    return build_binary(r->g, OP_mul, apply(r, x, x), x);
}

static const Build map_forms[] = {map_plain,  map_single,  map_empty, map_broadcast,
                                  map_scalar, map_strided, map_twice};

/* ---- Views ---- */

static Value v_reshape(Rig *r) {
    Value x = REALS(-1, 1, 2, 3, 4);
    return build_reshape(r->g, x, 2, DIMS(expr_mul(r->g->exprs, E(2), E(3)), E(4)));
}
static Value v_permute(Rig *r) {
    return build_permute(r->g, REALS(-1, 1, 2, 3, 4), (uint8_t[]){2, 0, 1});
}
static Value v_expand(Rig *r) {
    Value x = REALS(-1, 1, 3, 1, 2);
    return build_expand(r->g, x, 4, DIMS(E(2), E(3), N(5), E(2)));
}
static Value v_slice(Rig *r) {
    return build_slice(r->g, REALS(-1, 1, 7, 5), DIMS(N(1), N(0)), DIMS(N(3), N(2)),
                       (int64_t[]){2, 3});
}
static Value v_slice_back(Rig *r) {
    return build_slice(r->g, REALS(-1, 1, 7, 5), DIMS(N(6), N(3)), DIMS(N(3), N(4)),
                       (int64_t[]){-2, -1});
}
static Value v_slice_empty(Rig *r) {
    Value x = REALS(-1, 1, 7, 5);
    return build_slice(r->g, x, DIMS(N(2), N(0)), DIMS(N(0), E(5)), NULL);
}
static Value padded(Rig *r, int64_t lo, int64_t hi, int64_t interior) {
    Value x = REALS(-1, 1, 4, 3), fill = REALS(-1, 1, 1);
    fill = build_reshape(r->g, fill, 0, NULL);
    return build_pad(r->g, x, fill, DIMS(N(lo), N(1)), DIMS(N(hi), N(0)), (int64_t[]){interior, 0});
}
static Value v_pad(Rig *r) {
    return padded(r, 2, 1, 0);
}
static Value v_pad_crop(Rig *r) {
    return padded(r, -1, -2, 0);
}
static Value v_pad_inside(Rig *r) {
    return padded(r, 1, 0, 2);
}
static Value v_pad_inside_crop(Rig *r) {
    return padded(r, -1, 2, 1);
}
static Value v_pad_empty(Rig *r) {
    return build_pad(r->g, REALS(-1, 1, 0, 3), build_reshape(r->g, REALS(-1, 1, 1), 0, NULL),
                     DIMS(N(1), N(0)), DIMS(N(2), N(1)), NULL);
}
static Value v_concat(Rig *r) {
    Value x = REALS(-1, 1, 2, 3), y = REALS(-1, 1, 2, 1), z = REALS(-1, 1, 2, 4);
    return build_concat(r->g, (Value[]){x, y, x, z}, 4, 1);
}
static Value windows(Rig *r, int64_t size, int64_t stride, int64_t dilation) {
    Value x = REALS(-1, 1, 2, 11, 3);
    return build_window(r->g, x, 1, (uint8_t[]){1}, &size, &stride, &dilation);
}
static Value v_window(Rig *r) {
    return windows(r, 3, 1, 1);
}
static Value v_window_apart(Rig *r) {
    return windows(r, 2, 3, 1);
}
static Value v_window_blocks(Rig *r) {
    return windows(r, 5, 2, 1);
}
static Value v_window_dilated(Rig *r) {
    return windows(r, 3, 2, 2);
}
static Value v_window_none(Rig *r) {
    return windows(r, 12, 1, 1);
}
static Value v_window_2d(Rig *r) {
    Value x = REALS(-1, 1, 1, 6, 7, 2);
    return build_window(r->g, x, 2, (uint8_t[]){1, 2}, (int64_t[]){3, 2}, (int64_t[]){2, 1},
                        (int64_t[]){1, 3});
}
static Value v_window_long(Rig *r) { /* more taps than are summed one by one */
    Value x = REALS(-1, 1, 70);
    return build_window(r->g, x, 1, (uint8_t[]){0}, (int64_t[]){66}, (int64_t[]){1},
                        (int64_t[]){1});
}

/* ---- Reductions and scans ---- */

static const double zeros_among[] = {0.5, 0, -1.5, 2, 1.25, 0.75, -0.5, 0, 0, 1, 2, 3};

/* Two rows: one zero, two zeros; a third without. */
static Value with_zeros(Rig *r) {
    Value v;
    EvalTensor *x = new_input(r, DT_f64, 2, D(3, 4), &v);
    x->data = arena_copy(r->arena, zeros_among, sizeof zeros_among);
    return v;
}
#define REDUCTION(name, op)                                                                        \
    static Value name(Rig *r) {                                                                    \
        return build_reduce(r->g, op, REALS(-2, 2, 2, 3, 4), 5, false);                            \
    }                                                                                              \
    static Value name##_all(Rig *r) {                                                              \
        return build_reduce(r->g, op, REALS(-2, 2, 5), 1, false);                                  \
    }                                                                                              \
    static Value name##_empty(Rig *r) {                                                            \
        return build_reduce(r->g, op, REALS(-2, 2, 2, 0), 2, false);                               \
    }                                                                                              \
    static Value name##_unit(Rig *r) {                                                             \
        return build_reduce(r->g, op, REALS(-2, 2, 3, 1, 2), 6, true);                             \
    }
REDUCTION(r_sum, OP_reduce_sum)
REDUCTION(r_prod, OP_reduce_prod)
REDUCTION(r_max, OP_reduce_max)
REDUCTION(r_min, OP_reduce_min)

static Value r_prod_zeros(Rig *r) {
    return build_reduce(r->g, OP_reduce_prod, with_zeros(r), 2, false);
}
static Value r_prod_zeros_all(Rig *r) {
    return build_reduce(r->g, OP_reduce_prod, with_zeros(r), 3, false);
}

#define SCANS(name, op)                                                                            \
    static Value name(Rig *r) {                                                                    \
        return build_scan(r->g, op, REALS(-2, 2, 3, 4), 1, false, false);                          \
    }                                                                                              \
    static Value name##_back(Rig *r) {                                                             \
        return build_scan(r->g, op, REALS(-2, 2, 4, 2), 0, false, true);                           \
    }                                                                                              \
    static Value name##_exclusive(Rig *r) {                                                        \
        return build_scan(r->g, op, REALS(-2, 2, 3, 4), 1, true, false);                           \
    }                                                                                              \
    static Value name##_both(Rig *r) {                                                             \
        return build_scan(r->g, op, with_zeros(r), 1, true, true);                                 \
    }                                                                                              \
    static Value name##_zeros(Rig *r) {                                                            \
        return build_scan(r->g, op, with_zeros(r), 1, false, false);                               \
    }
SCANS(s_sum, OP_cumsum)
SCANS(s_prod, OP_cumprod)

/* ---- Contractions ---- */

static Value c_dot(Rig *r) {
    return build_dot(r->g, REALS(-1, 1, 3, 4), REALS(-1, 1, 4, 5), DT_f64);
}
static Value c_dot_batch(Rig *r) {
    return build_dot(r->g, REALS(-1, 1, 2, 3, 4), REALS(-1, 1, 2, 4, 1), DT_f64);
}
static Value c_dot_empty(Rig *r) {
    return build_dot(r->g, REALS(-1, 1, 3, 0), REALS(-1, 1, 0, 2), DT_f64);
}
static Value c_matmul_shared(Rig *r) {
    return build_matmul(r->g, REALS(-1, 1, 2, 3, 4), REALS(-1, 1, 4, 5), DT_f64);
}
static Value c_matmul_wide(Rig *r) {
    return build_matmul(r->g, REALS(-1, 1, 2, 1, 3, 4), REALS(-1, 1, 3, 4, 2), DT_f64);
}
static Value c_matmul_vectors(Rig *r) {
    return build_matmul(r->g, REALS(-1, 1, 4), REALS(-1, 1, 2, 4, 3), DT_f64);
}

typedef struct ConvCase {
    int64_t size, taps, stride, dilation, lo, hi, groups;
} ConvCase;

static Value conv_1d(Rig *r, const ConvCase *c) {
    Attr a = {.conv = {.n = 1, .stride = {c->stride}, .dilation = {c->dilation}, .lo = {c->lo}}};
    a.conv.hi[0] = c->hi;
    a.conv.groups = c->groups;
    a.conv.to = DT_f64;
    Value x = REALS(-1, 1, 2, c->size, 4);
    return build_conv(r->g, x, REALS(-1, 1, c->taps, 4 / c->groups, 6), &a);
}
static Value c_conv(Rig *r) {
    return conv_1d(r, &(ConvCase){7, 3, 1, 1, 1, 1, 1});
}
static Value c_conv_one(Rig *r) {
    return conv_1d(r, &(ConvCase){5, 1, 1, 1, 0, 0, 1});
}
static Value c_conv_strided(Rig *r) {
    return conv_1d(r, &(ConvCase){8, 3, 2, 1, 0, 1, 1});
}
static Value c_conv_rest(Rig *r) {
    return conv_1d(r, &(ConvCase){9, 2, 3, 1, 0, 0, 1});
}
static Value c_conv_dilated(Rig *r) {
    return conv_1d(r, &(ConvCase){9, 3, 1, 2, 2, 0, 1});
}
static Value c_conv_groups(Rig *r) {
    return conv_1d(r, &(ConvCase){6, 3, 2, 1, 1, 1, 2});
}
static Value c_conv_wide_pad(Rig *r) {
    return conv_1d(r, &(ConvCase){3, 2, 1, 1, 3, 2, 1});
}
static Value c_conv_2d(Rig *r) {
    Attr a = {.conv = {.n = 2, .stride = {2, 1}, .dilation = {1, 2}, .lo = {1, 0}, .hi = {0, 2}}};
    a.conv.groups = 3;
    a.conv.to = DT_f64;
    Value x = REALS(-1, 1, 2, 5, 6, 6);
    return build_conv(r->g, x, REALS(-1, 1, 3, 2, 2, 3), &a);
}
static Value c_conv_3d(Rig *r) {
    Attr a = {.conv = {.n = 3, .stride = {1, 2, 1}, .dilation = {1, 1, 1}, .lo = {1, 0, 0}}};
    a.conv.groups = 1;
    a.conv.to = DT_f64;
    Value x = REALS(-1, 1, 1, 3, 4, 2, 2);
    return build_conv(r->g, x, REALS(-1, 1, 2, 2, 1, 2, 2), &a);
}

/* ---- Composites ---- */

static Value c_logsumexp(Rig *r) {
    return build_logsumexp(r->g, REALS(-2, 2, 2, 3, 5), DT_f64);
}
static Value attention(Rig *r, bool guarded) {
    Value s = REALS(-2, 2, 2, 3, 5);
    return build_attention(r->g, s, REALS(-1, 1, 2, 5, 4), DT_f64, guarded);
}
static Value c_attention(Rig *r) {
    return attention(r, false);
}
static Value c_attention_guarded(Rig *r) {
    return attention(r, true);
}

/* ---- Indexing ---- */

static Value i_take(Rig *r) {
    Value x = REALS(-1, 1, 4, 3);
    return build_take(r->g, x, INTS(D(2, 0, -1, 2, 2), 5), 0);
}
static Value i_gather(Rig *r) { /* by element; two indices outside are clamped */
    Value x = REALS(-1, 1, 4, 3), i = INTS(D(2, 0, 1, 9, -7, 3), 2, 3);
    return build_gather(r->g, x, (int8_t[]){-1, 1}, &i, 1, 2, DIMS(E(2), E(3)));
}
static Value i_gather_pairs(Rig *r) { /* both coordinates by the same index */
    Value x = REALS(-1, 1, 4, 3), i = INTS(D(2, 0, 1, 3), 4);
    return build_gather(r->g, x, (int8_t[]){-1, -1}, &i, 1, 1, DIMS(E(4)));
}
static Value scatter_rows(Rig *r, ScatterMode mode, const int64_t *rows, double lo) {
    Value x = REALS(lo, 2, 4, 3), u = REALS(lo, 1.9, 5, 3), i = ints(r, 1, D(5), rows);
    i = build_expand(r->g, build_unsqueeze(r->g, i, 1), 2, DIMS(E(5), E(3)));
    return build_scatter(r->g, x, u, (int8_t[]){-1, 1}, &i, 1, mode);
}
#define SCATTERS(name, mode)                                                                       \
    static Value name(Rig *r) {                                                                    \
        return scatter_rows(r, mode, D(0, 1, 2, 3, 9), -2);                                        \
    }                                                                                              \
    static Value name##_again(Rig *r) {                                                            \
        return scatter_rows(r, mode, D(1, 3, 1, 7, 1), -2);                                        \
    }
SCATTERS(i_set, SCATTER_set)
SCATTERS(i_add, SCATTER_add)
SCATTERS(i_mul, SCATTER_mul)
SCATTERS(i_min, SCATTER_min)
SCATTERS(i_max, SCATTER_max)

static Value i_mul_zeros(Rig *r) {
    Value x = with_zeros(r), u = with_zeros(r), i = INTS(D(0, 2, 0), 3);
    i = build_expand(r->g, build_unsqueeze(r->g, i, 1), 2, DIMS(E(3), E(4)));
    return build_scatter(r->g, x, u, (int8_t[]){-1, 1}, &i, 1, SCATTER_mul);
}
static Value i_set_narrow(Rig *r) { /* updates wider than the data: the rest is dropped */
    Value x = REALS(-1, 1, 2, 3), u = REALS(-1, 1, 4), i = INTS(D(1, 0, 1, 1), 4);
    return build_scatter(r->g, x, u, (int8_t[]){-1, 0}, &i, 1, SCATTER_set);
}
static Value i_sort(Rig *r) {
    Value x = REALS(-1, 1, 3, 5), i = build_argsort(r->g, x, 1, true);
    return build_gather(r->g, x, (int8_t[]){0, -1}, &i, 1, 2, DIMS(E(3), E(5)));
}

/* ---- Control flow ---- */

/* A body under construction; its inputs get the types of the operands. */
static Graph *new_body(Rig *r, bool loop, const Value *operands, uint32_t n, Value *in) {
    Graph *b = graph_create(r->arena, r->g->exprs, r->g->diags, "body");
    b->is_body = true;
    if (loop) build_input(b, "cond", (Type){.dtype = DT_bool});
    for (uint32_t i = 0; i < n; i++) in[i] = build_input(b, "in", *graph_type(r->g, operands[i]));
    return b;
}

static Value known_true(Graph *g) {
    return build_scalar_i(g, DT_bool, 1);
}

static Expr iteration(Rig *r, Expr trips, uint32_t *sym) {
    SymInfo s = {.name = "i", .kind = SYM_ITER, .lo = 0, .hi = 1 << 20, .below = trips};
    const Expr e = expr_sym_new(r->g->exprs, s);
    (void)expr_is_sym(r->g->exprs, e, sym);
    return e;
}

static Value row(Graph *g, Value x, Expr at) {
    return build_squeeze(g, build_slice_axis(g, x, 0, at, expr_const(g->exprs, 1), 1), 0);
}

static Value flat(Rig *r, Value x) {
    const Expr n = type_numel(r->g->exprs, graph_type(r->g, x));
    return build_reshape(r->g, x, 1, &n);
}

/* h = tanh(h W + x[i] + b); all states, and the last one. */
static Value recurrence(Rig *r, bool backwards) {
    Value op[] = {REALS(-1, 1, 1, 3), REALS(-1, 1, 3, 3), REALS(-1, 1, 4, 1, 3), REALS(-1, 1, 3)};
    Value in[4];
    uint32_t sym;
    Expr at = iteration(r, E(4), &sym);
    if (backwards) at = expr_sub(r->g->exprs, expr_addi(r->g->exprs, E(4), -1), at);
    Graph *b = new_body(r, true, op, 4, in);
    Value h = build_matmul(b, in[0], in[1], DT_f64);
    h = build_binary(b, OP_add, h, build_binary(b, OP_add, row(b, in[2], at), in[3]));
    h = build_unary(b, OP_tanh, h);
    build_output(b, "cond", known_true(b));
    build_output(b, "h", h);
    build_output(b, "all", h);
    Value t = build_loop(r->g, build_expr(r->g, DT_i64, E(4)), known_true(r->g), op, 1, op + 1, 3,
                         b, sym);
    Value parts[] = {flat(r, build_proj(r->g, t, 0)), flat(r, build_proj(r->g, t, 1))};
    return build_concat(r->g, parts, 2, 0);
}
static Value l_recurrence(Rig *r) {
    return recurrence(r, false);
}
static Value l_recurrence_back(Rig *r) {
    return recurrence(r, true);
}

/* Ends when the sum is large; a counter multiplies: two carried values, one of integers. */
static Value l_while(Rig *r) {
    Value x = REALS(0.5, 1, 3), op[] = {x, INTS(D(1), 1), REALS(0.1, 0.3, 3)}, in[3];
    uint32_t sym;
    (void)iteration(r, 0, &sym);
    Graph *b = new_body(r, true, op, 3, in);
    Value h = build_binary(b, OP_mul, in[0], build_binary_f(b, OP_add, in[2], 1));
    h = build_binary(b, OP_mul, h, build_cast(b, in[1], DT_f64));
    Value total = build_reduce(b, OP_reduce_sum, h, 1, false);
    build_output(b, "cond", build_binary_f(b, OP_lt, total, 40));
    build_output(b, "h", h);
    build_output(b, "n", build_binary_f(b, OP_add, in[1], 1));
    Value t = build_loop(r->g, build_scalar_i(r->g, DT_i64, 9), known_true(r->g), op, 2, op + 2, 1,
                         b, sym);
    return build_proj(r->g, t, 0);
}

/* Sums need nothing stacked; no iteration at all. */
static Value running_sum(Rig *r, int64_t trips) {
    Value op[] = {REALS(-1, 1, 3), REALS(-1, 1, 3)}, in[2];
    uint32_t sym;
    (void)iteration(r, N(trips), &sym);
    Graph *b = new_body(r, true, op, 2, in);
    build_output(b, "cond", known_true(b));
    build_output(b, "sum", build_binary(b, OP_add, in[0], build_unary(b, OP_exp, in[1])));
    Value t = build_loop(r->g, build_expr(r->g, DT_i64, N(trips)), known_true(r->g), op, 1, op + 1,
                         1, b, sym);
    return build_proj(r->g, t, 0);
}
static Value l_sum(Rig *r) {
    return running_sum(r, 3);
}
static Value l_never(Rig *r) {
    return running_sum(r, 0);
}

/* if n > 0: x * w, else sin(x), and w untouched. */
static Value branches(Rig *r, int64_t n) {
    Value op[] = {REALS(-1, 1, 2, 3), REALS(-1, 1, 2, 3)}, in[2];
    Value cond = build_binary_f(r->g, OP_eq, INTS(&n, 1), 1);
    Graph *yes = new_body(r, false, op, 2, in);
    build_output(yes, "y", build_binary(yes, OP_mul, in[0], in[1]));
    build_output(yes, "z", in[0]);
    Graph *no = new_body(r, false, op, 2, in);
    build_output(no, "y", build_unary(no, OP_sin, in[0]));
    build_output(no, "z", build_binary(no, OP_div, in[1], build_unary(no, OP_exp, in[0])));
    Value t = build_if(r->g, cond, yes, no, op, 2);
    return build_concat(r->g, (Value[]){build_proj(r->g, t, 0), build_proj(r->g, t, 1)}, 2, 0);
}
static Value b_then(Rig *r) {
    return branches(r, 1);
}
static Value b_else(Rig *r) {
    return branches(r, 0);
}

/* A loop in a branch in a loop: h = h * w[i] as often as i says, in every other iteration. */
static Value l_nested(Rig *r) {
    Value op[] = {REALS(0.5, 1, 3), REALS(0.5, 1.5, 4, 3)}, in[2], mid[2], deep[2];
    uint32_t outer, inner;
    Expr i = iteration(r, E(4), &outer);
    (void)iteration(r, i, &inner);
    Graph *b = new_body(r, true, op, 2, in), *d;
    Value row_i = row(b, in[1], i), h_row[] = {in[0], row_i};
    Graph *branch = graph_create(r->arena, r->g->exprs, r->g->diags, "branch");
    branch->is_body = true;
    for (int k = 0; k < 2; k++) mid[k] = build_input(branch, "in", *graph_type(b, h_row[k]));
    d = graph_create(r->arena, r->g->exprs, r->g->diags, "deep");
    d->is_body = true;
    build_input(d, "cond", (Type){.dtype = DT_bool});
    for (int k = 0; k < 2; k++) deep[k] = build_input(d, "in", *graph_type(b, h_row[k]));
    build_output(d, "cond", known_true(d));
    build_output(d, "h", build_binary(d, OP_mul, deep[0], deep[1]));
    Value t = build_loop(branch, build_expr(branch, DT_i64, i), known_true(branch), mid, 1, mid + 1,
                         1, d, inner);
    build_output(branch, "h", build_proj(branch, t, 0));
    Graph *other = graph_create(r->arena, r->g->exprs, r->g->diags, "other");
    other->is_body = true;
    for (int k = 0; k < 2; k++) mid[k] = build_input(other, "in", *graph_type(b, h_row[k]));
    build_output(other, "h",
                 build_binary(other, OP_add, mid[0], build_unary(other, OP_sin, mid[1])));
    Value odd = build_expr(b, DT_i64, expr_mod(r->g->exprs, i, N(2)));
    t = build_if(b, build_binary_f(b, OP_eq, odd, 1), branch, other, h_row, 2);
    build_output(b, "cond", known_true(b));
    build_output(b, "h", build_proj(b, t, 0));
    t = build_loop(r->g, build_expr(r->g, DT_i64, E(4)), known_true(r->g), op, 1, op + 1, 1, b,
                   outer);
    return build_proj(r->g, t, 0);
}

/* ---- The table ---- */

typedef struct Case {
    Op op;
    const char *what;
    Build build;
    bool fixed; /* sizes cannot be symbols */
} Case;

#define CASE(op, fn)                                                                               \
    { OP_##op, #fn, fn, false }
#define FIXED(op, fn)                                                                              \
    { OP_##op, #fn, fn, true }
#define FOUR(op, fn) CASE(op, fn), CASE(op, fn##_all), CASE(op, fn##_empty), CASE(op, fn##_unit)
#define FIVE(op, fn)                                                                               \
    CASE(op, fn), CASE(op, fn##_back), CASE(op, fn##_exclusive), CASE(op, fn##_both),              \
        CASE(op, fn##_zeros)
#define TWO(op, fn) CASE(op, fn), CASE(op, fn##_again)

static const Case cases[] = {
    CASE(reshape, v_reshape),
    CASE(permute, v_permute),
    CASE(expand, v_expand),
    CASE(slice, v_slice),
    CASE(slice, v_slice_back),
    CASE(slice, v_slice_empty),
    CASE(pad, v_pad),
    CASE(pad, v_pad_crop),
    CASE(pad, v_pad_inside),
    CASE(pad, v_pad_inside_crop),
    CASE(pad, v_pad_empty),
    CASE(concat, v_concat),
    CASE(window, v_window),
    CASE(window, v_window_apart),
    CASE(window, v_window_blocks),
    CASE(window, v_window_dilated),
    CASE(window, v_window_none),
    CASE(window, v_window_2d),
    CASE(window, v_window_long),
    FOUR(reduce_sum, r_sum),
    FOUR(reduce_prod, r_prod),
    CASE(reduce_prod, r_prod_zeros),
    CASE(reduce_prod, r_prod_zeros_all),
    FOUR(reduce_max, r_max),
    FOUR(reduce_min, r_min),
    CASE(dot, c_dot),
    CASE(dot, c_dot_batch),
    CASE(dot, c_dot_empty),
    CASE(dot, c_matmul_shared),
    CASE(dot, c_matmul_wide),
    CASE(dot, c_matmul_vectors),
    FIXED(conv, c_conv),
    FIXED(conv, c_conv_one),
    FIXED(conv, c_conv_strided),
    FIXED(conv, c_conv_rest),
    FIXED(conv, c_conv_dilated),
    FIXED(conv, c_conv_groups),
    FIXED(conv, c_conv_wide_pad),
    FIXED(conv, c_conv_2d),
    FIXED(conv, c_conv_3d),
    CASE(logsumexp, c_logsumexp),
    CASE(attention, c_attention),
    CASE(attention, c_attention_guarded),
    CASE(gather, i_take),
    CASE(gather, i_gather),
    CASE(gather, i_gather_pairs),
    CASE(gather, i_sort),
    TWO(scatter, i_set),
    TWO(scatter, i_add),
    TWO(scatter, i_mul),
    TWO(scatter, i_min),
    TWO(scatter, i_max),
    CASE(scatter, i_mul_zeros),
    CASE(scatter, i_set_narrow),
    FIVE(cumsum, s_sum),
    FIVE(cumprod, s_prod),
    CASE(if, b_then),
    CASE(if, b_else),
    CASE(loop, l_recurrence),
    CASE(loop, l_recurrence_back),
    FIXED(loop, l_while),
    FIXED(loop, l_sum),
    FIXED(loop, l_never),
    CASE(loop, l_nested),
    CASE(proj, b_then),
};

/* ---- Checking ---- */

static Rig open_rig(bool symbolic) {
    Rig r = {.arena = arena_create(), .symbolic = symbolic};
    r.g = graph_create(r.arena, expr_pool_create(r.arena), diag_create(r.arena, NULL), "test");
    return r;
}

static bool occurs(const Graph *g, Op op) {
    for (Value v = 1; v < g->nodes.n; v++)
        if (graph_node(g, v)->op == op) return true;
    return false;
}

static bool run(Rig *r, EvalTensor *out) {
    EvalOptions o = {0};
    graphc_status s = eval_run(r->g, r->in, &o, r->arena, out);
    if (s != GRAPHC_OK && diag_count(r->g->diags))
        fprintf(stderr, "    %s\n", diag_at(r->g->diags, 0)->text);
    return s == GRAPHC_OK;
}

/* What one result says of the whole: its elements weighted by numbers of no pattern. */
static double weight(int64_t i) {
    return 0.3 + fmod(0.6180339887 * (double)(i + 1), 1);
}

static double weighted_sum(const EvalTensor *y) {
    double s = 0;
    for (int64_t i = 0; i < numel(y); i++) s += weight(i) * ((const double *)y->data)[i];
    return s;
}

static double value_at(Rig *r, double *x, double v) {
    const double old = *x;
    EvalTensor y;
    *x = v;
    CHECK(run(r, &y));
    *x = old;
    return weighted_sum(&y);
}

/* By differences of fourth order. */
static double difference(Rig *r, double *x) {
    const double at = *x, h = STEP;
    return (8 * (value_at(r, x, at + h) - value_at(r, x, at - h)) -
            (value_at(r, x, at + 2 * h) - value_at(r, x, at - 2 * h))) /
           (12 * h);
}

/* Largest error of `got` relative to its elements, those below a thousandth of the largest by that.
 */
static double compare(Rig *forward, uint32_t input, const EvalTensor *got) {
    const int64_t n = numel(got);
    double *want = arena_array(forward->arena, (size_t)n + 1, sizeof *want), top = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        want[i] = difference(forward, (double *)forward->in[input].data + i);
        top = fmax(top, fabs(want[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        const double e = fabs(((const double *)got->data)[i] - want[i]);
        worst = fmax(worst, e == 0 ? 0 : e / fmax(fabs(want[i]), fmax(1e-3 * top, 1e-3)));
        if (isnan(e)) worst = INFINITY;
    }
    return worst;
}

/* A graph whose outputs are the gradients of its float inputs, its last input the weights. */
static bool make_backward(Rig *r, Build build) {
    Value y = build(r), wrt[MAX_IO], dwrt[MAX_IO], dy;
    if (!y) return false;
    const uint32_t n = r->g->inputs.n;
    EvalTensor *t = &r->in[n];
    *t = (EvalTensor){.dtype = DT_f64, .rank = graph_type(r->g, y)->rank};
    dy = build_input(r->g, "dy", *graph_type(r->g, y));
    for (uint32_t i = 0; i < n; i++) wrt[i] = r->g->inputs.v[i].value;
    if (grad_build(r->g, 1, &y, &dy, n, wrt, dwrt) != GRAPHC_OK) return false;
    if (graph_verify(r->g) != GRAPHC_OK) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!r->wanted[i]) continue;
        const Type *x = graph_type(r->g, wrt[i]);
        Value none = build_full(r->g, build_scalar_f(r->g, DT_f64, 0), x->rank, x->dim);
        build_output(r->g, "dx", dwrt[i] ? dwrt[i] : none);
    }
    return true;
}

static void fill_weights(Rig *backward, const EvalTensor *y) {
    EvalTensor *t = &backward->in[backward->g->inputs.n - 1];
    *t = *y;
    double *p = t->data = arena_array(backward->arena, (size_t)numel(y) + 1, sizeof *p);
    for (int64_t i = 0; i < numel(y); i++) p[i] = weight(i);
}

/* Relative error of all gradients of a function; negative where it does not hold the op. */
static double check_case(Op op, Build build, bool symbolic) {
    Rig f = open_rig(symbolic), b = open_rig(symbolic);
    EvalTensor y, dx[MAX_IO];
    double worst = 0;
    Value v = build(&f);
    const bool holds = v && occurs(f.g, op);
    if (v) build_output(f.g, "y", v);
    if (!v || !run(&f, &y) || !make_backward(&b, build)) {
        if (diag_count(b.g->diags)) fprintf(stderr, "    %s\n", diag_at(b.g->diags, 0)->text);
        worst = INFINITY;
    } else {
        fill_weights(&b, &y);
        if (!run(&b, dx)) worst = INFINITY;
        for (uint32_t i = 0, k = 0; i < f.g->inputs.n && worst < INFINITY; i++)
            if (f.wanted[i]) worst = fmax(worst, compare(&f, i, &dx[k++]));
    }
    arena_destroy(f.arena);
    arena_destroy(b.arena);
    return holds ? worst : -1;
}

typedef struct Row {
    uint32_t cases, bad;
    double worst;
} Row;

static void note(Row *row, Op op, const char *what, int symbolic, double error) {
    if (error < 0) return; /* folded away */
    row->cases++;
    row->worst = fmax(row->worst, error);
    if (CHECK(error <= TOLERANCE)) return;
    row->bad++;
    fprintf(stderr, "    %s %s%s: error %.3g\n", op_info[op].name, what,
            symbolic ? " (symbolic)" : "", error);
}

static void check_maps(Row *rows) {
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        for (size_t k = 0; k < sizeof map_forms / sizeof *map_forms; k++)
            for (int symbolic = 0; symbolic < 2; symbolic++) {
                map_at_hand = &maps[i];
                const Op op = maps[i].op;
                const bool fixed = map_forms[k] == map_strided && symbolic;
                if (fixed) continue;
                char what[16];
                snprintf(what, sizeof what, "form %zu", k);
                note(&rows[op], op, what, symbolic, check_case(op, map_forms[k], symbolic));
            }
}

static const char *const kinds[OP_COUNT] = {
#define MAP1(op, dx)     [OP_##op] = "",
#define MAP2(op, da, db) [OP_##op] = "",
#define RULE(op)         [OP_##op] = "",
#define ZERO(op)         [OP_##op] = "zero",
#define NONE(op)         [OP_##op] = "none",
#include "graph/grad/rules.def"
#undef MAP1
#undef MAP2
#undef RULE
#undef ZERO
#undef NONE
};

static void test_table(void) {
    Row rows[OP_COUNT] = {0};
    check_maps(rows);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int symbolic = 0; symbolic < 1 + !cases[i].fixed; symbolic++) {
            const Case *c = &cases[i];
            double error = check_case(c->op, c->build, symbolic);
            note(&rows[c->op], c->op, c->what, symbolic, error);
        }
    printf("%-12s %5s  %s\n", "op", "cases", "largest relative error");
    for (int op = 1; op < OP_COUNT; op++) {
        if (*kinds[op]) {
            printf("%-12s        %s\n", op_info[op].name, kinds[op]);
            continue;
        }
        printf("%-12s %5u  %.1e%s\n", op_info[op].name, rows[op].cases, rows[op].worst,
               rows[op].bad ? "  BAD" : "");
        if (!CHECK(rows[op].cases > 0)) fprintf(stderr, "    no case for %s\n", op_info[op].name);
    }
}

TEST_MAIN {
    test_table();
}
