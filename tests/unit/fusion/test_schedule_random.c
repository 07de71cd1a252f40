/* Random graphs, scheduled for both targets and run by the kernel interpreter, against the graph
 * evaluator. A failure prints the seed; the same seed gives the same graph. */
#include "codegen/target.h"
#include "graph/grad/grad.h"
#include "graph/pass/pass.h"
#include "tests/unit/fusion/schedule_check.h"
#include "tests/unit/test.h"

enum { SEEDS = 2000, STATE_SEEDS = 1000, MAX_VALUES = 128, MAX_NUMEL = 6000 };

typedef struct Rig {
    uint64_t state;
    Arena *a;
    Graph *g;
    EvalTensor in[4];
    Expr n; /* a symbolic size of value `size`, or 0 */
    int64_t size;
    Value v[MAX_VALUES];
    uint32_t count;
} Rig;

static uint32_t below(Rig *r, uint32_t n) {
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 33) % n;
}

static int64_t extent(Rig *r, Value v, uint32_t i) {
    return expr_hint(r->g->exprs, graph_type(r->g, v)->dim[i]);
}

static int64_t numel(Rig *r, Value v) {
    int64_t n = 1;
    for (uint32_t i = 0; i < graph_type(r->g, v)->rank; i++) n *= extent(r, v, i);
    return n;
}

static bool is_static(Rig *r, Expr e) {
    return expr_is_const(r->g->exprs, e, NULL);
}

static Value pick(Rig *r) {
    uint32_t recent = r->count < 6 ? r->count : 6;
    return below(r, 3) ? r->v[r->count - 1 - below(r, recent)] : r->v[below(r, r->count)];
}

static EvalTensor values(Rig *r, uint8_t rank, const int64_t *dim) {
    EvalTensor x = {.dtype = DT_f32, .rank = rank};
    for (int i = 0; i < rank; i++) x.dim[i] = dim[i];
    x.data = arena_array(r->a, (size_t)check_numel(&x) + 1, 4);
    check_fill(&x, below(r, 1000), 1);
    return x;
}

static Value weight(Rig *r, int64_t k, int64_t n) {
    EvalTensor x = values(r, 2, (int64_t[]){k, n});
    Type t = {.dtype = DT_f32, .rank = 2};
    t.dim[0] = expr_const(r->g->exprs, k);
    t.dim[1] = expr_const(r->g->exprs, n);
    return build_const(r->g, t,
                       (Constant){.data = x.data, .bytes = (uint64_t)(k * n) * 4, .name = "w"});
}

static void input(Rig *r, uint8_t rank, const int64_t *dim) {
    Type t = {.dtype = DT_f32, .rank = rank};
    for (int i = 0; i < rank; i++)
        t.dim[i] = r->n && dim[i] == r->size ? r->n : expr_const(r->g->exprs, dim[i]);
    uint32_t k = r->g->inputs.n;
    r->in[k] = values(r, rank, dim);
    r->v[r->count++] = build_input(r->g, k == 0 ? "a" : k == 1 ? "b" : "c", t);
}

/* What lives from run to run, with sizes like an input's. */
static void state(Rig *r, uint8_t rank, const int64_t *dim) {
    EvalTensor x = values(r, rank, dim);
    Type t = {.dtype = DT_f32, .rank = rank};
    for (int i = 0; i < rank; i++) t.dim[i] = expr_const(r->g->exprs, dim[i]);
    const char *name = arena_printf(r->a, "s%u", r->g->states.n);
    Constant c = {.data = x.data, .bytes = (uint64_t)check_numel(&x) * 4};
    if (below(r, 4) == 0) c = (Constant){0};
    r->v[r->count++] = build_state(r->g, name, t, c);
}

/* Any value of its type becomes of each state, another state or it itself among them. */
static void write_states(Rig *r) {
    for (uint32_t i = 0; i < r->g->states.n; i++) {
        Value s = r->g->states.v[i].value, v = 0;
        for (int tries = 0; tries < 40 && !v; tries++) {
            Value x = below(r, 3) ? pick(r) : r->v[below(r, r->count)];
            if (type_equal(graph_type(r->g, x), graph_type(r->g, s))) v = x;
        }
        if (!v || (v == s && below(r, 4)))
            v = build_binary_f(r->g, OP_add, build_unary(r->g, OP_tanh, s), 0.5);
        if (below(r, 8)) build_write(r->g, s, v);
    }
}

/* --- Steps: a new value out of x, or 0 where the step does not apply ------------------------ */

static Value unary(Rig *r, Value x) {
    static const Op ops[] = {OP_tanh, OP_neg, OP_sigmoid, OP_abs};
    return build_unary(r->g, ops[below(r, 4)], x);
}

static Value binary(Rig *r, Value x) {
    static const Op ops[] = {OP_add, OP_mul, OP_sub, OP_max};
    for (int tries = 0; tries < 20; tries++) {
        Value y = pick(r);
        const Type *t = graph_type(r->g, x), *u = graph_type(r->g, y);
        bool fits = t->rank == u->rank;
        for (uint32_t i = 0; fits && i < t->rank; i++)
            fits = t->dim[i] == u->dim[i] || extent(r, x, i) == 1 || extent(r, y, i) == 1;
        if (fits) return build_binary(r->g, ops[below(r, 4)], x, y);
    }
    return 0;
}

static Value permute(Rig *r, Value x) {
    uint8_t p[GRAPH_MAX_RANK], rank = graph_type(r->g, x)->rank;
    for (uint8_t i = 0; i < rank; i++) p[i] = i;
    for (uint32_t i = rank; i-- > 1;) {
        uint32_t j = below(r, i + 1);
        uint8_t t = p[i];
        p[i] = p[j];
        p[j] = t;
    }
    return build_permute(r->g, x, p);
}

static Value merge_dims(Rig *r, Value x) {
    const Type *t = graph_type(r->g, x);
    Expr dim[GRAPH_MAX_RANK];
    if (t->rank < 2) return 0;
    uint32_t at = below(r, t->rank - 1u), n = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
        dim[n++] = i == at ? expr_mul(r->g->exprs, t->dim[i], t->dim[i + 1]) : t->dim[i];
        i += i == at;
    }
    return build_reshape(r->g, x, (uint8_t)n, dim);
}

static Value split_dim(Rig *r, Value x) {
    const Type *t = graph_type(r->g, x);
    Expr dim[GRAPH_MAX_RANK];
    uint32_t at = below(r, t->rank ? t->rank : 1u), n = 0;
    if (t->rank == 0 || t->rank > 4 || !is_static(r, t->dim[at])) return 0;
    int64_t e = extent(r, x, at), inner = e % 2 == 0 ? 2 : e % 3 == 0 ? 3 : 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (i != at)
            dim[n++] = t->dim[i];
        else {
            dim[n++] = expr_const(r->g->exprs, e / inner);
            dim[n++] = expr_const(r->g->exprs, inner);
        }
    }
    return build_reshape(r->g, x, (uint8_t)n, dim);
}

static Value slice(Rig *r, Value x) {
    const Type *t = graph_type(r->g, x);
    ExprPool *p = r->g->exprs;
    uint32_t at = below(r, t->rank ? t->rank : 1u);
    if (t->rank == 0 || extent(r, x, at) < 3) return 0;
    int64_t step = is_static(r, t->dim[at]) ? 1 + (int64_t)below(r, 2) : 1;
    Expr left = expr_sub(p, t->dim[at], expr_const(p, below(r, 2)));
    Expr size = expr_ceildiv(p, left, expr_const(p, step));
    if (below(r, 2)) return build_slice_axis(r->g, x, (int)at, expr_addi(p, left, -1), size, -step);
    return build_slice_axis(r->g, x, (int)at, expr_sub(p, t->dim[at], left), size, step);
}

static Value pad(Rig *r, Value x) {
    const Type *t = graph_type(r->g, x);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    for (uint32_t i = 0; i < t->rank; i++) {
        lo[i] = expr_const(r->g->exprs, below(r, 2));
        hi[i] = expr_const(r->g->exprs, (int64_t)below(r, 3) - (extent(r, x, i) > 3));
    }
    return build_pad(r->g, x, build_scalar_f(r->g, DT_f32, below(r, 2) ? 0 : 1.5), lo, hi, NULL);
}

static Value concat(Rig *r, Value x) {
    uint32_t rank = graph_type(r->g, x)->rank;
    Value part[] = {x, below(r, 2) ? unary(r, x) : x, x};
    return rank ? build_concat(r->g, part, 2 + below(r, 2), (int)below(r, rank)) : 0;
}

static uint32_t some_axes(Rig *r, Value x) {
    return 1 + below(r, (1u << graph_type(r->g, x)->rank) - 1);
}

static Value reduce(Rig *r, Value x) {
    static const Op ops[] = {OP_reduce_sum, OP_reduce_max, OP_reduce_min};
    if (graph_type(r->g, x)->rank == 0) return 0;
    Value y = build_reduce(r->g, ops[below(r, 3)], x, some_axes(r, x), below(r, 3) != 0);
    return build_binary_f(r->g, OP_mul, y, 0.25);
}

static Value softmax_over(Rig *r, Value x, uint32_t axes) {
    Value m = build_reduce(r->g, OP_reduce_max, x, axes, true);
    Value e = build_unary(r->g, OP_exp, build_binary(r->g, OP_sub, x, m));
    return build_binary(r->g, OP_div, e, build_reduce(r->g, OP_reduce_sum, e, axes, true));
}

static Value softmax(Rig *r, Value x) {
    return graph_type(r->g, x)->rank ? softmax_over(r, x, some_axes(r, x)) : 0;
}

static Value norm(Rig *r, Value x) {
    if (graph_type(r->g, x)->rank == 0) return 0;
    uint32_t axes = some_axes(r, x);
    Value d = build_binary(r->g, OP_sub, x, build_mean(r->g, x, axes, true));
    Value v = build_mean(r->g, build_binary(r->g, OP_mul, d, d), axes, true);
    v = build_unary(r->g, OP_rsqrt, build_binary_f(r->g, OP_add, v, 0.1));
    return build_binary(r->g, OP_mul, d, v);
}

static Value project(Rig *r, Value x) {
    static const int64_t widths[] = {5, 16, 20, 50};
    const Type *t = graph_type(r->g, x);
    if (t->rank < 2 || !is_static(r, t->dim[t->rank - 1])) return 0;
    int64_t k = extent(r, x, t->rank - 1u), n = widths[below(r, 4)];
    if (numel(r, x) / k * n > MAX_NUMEL) return 0;
    return build_binary_f(r->g, OP_mul, build_matmul(r->g, x, weight(r, k, n), DT_f32), 0.3);
}

/* Scores of x against itself, often with a softmax and values: attention in some spelling. */
static Value attend(Rig *r, Value x) {
    uint8_t p[GRAPH_MAX_RANK], rank = graph_type(r->g, x)->rank;
    if (rank < 2 || numel(r, x) * extent(r, x, rank - 2u) > 3 * MAX_NUMEL) return 0;
    for (uint8_t i = 0; i < rank; i++) p[i] = i;
    p[rank - 1] = (uint8_t)(rank - 2);
    p[rank - 2] = (uint8_t)(rank - 1);
    Value k = build_permute(r->g, below(r, 2) ? x : unary(r, x), p);
    Value s = build_binary_f(r->g, OP_mul, build_matmul(r->g, x, k, DT_f32), 0.2);
    if (below(r, 3) == 0) return s;
    return build_matmul(r->g, softmax_over(r, s, 1u << (rank - 1)), unary(r, x), DT_f32);
}

static Value take(Rig *r, Value x) {
    uint32_t rank = graph_type(r->g, x)->rank, at = below(r, rank ? rank : 1u);
    int64_t i[4];
    if (rank == 0) return 0;
    for (int k = 0; k < 4; k++) i[k] = below(r, (uint32_t)extent(r, x, at));
    return build_take(r->g, x, build_ints(r->g, DT_i64, i, 4), (int)at);
}

static Value scan(Rig *r, Value x) {
    uint32_t rank = graph_type(r->g, x)->rank;
    return rank ? build_scan(r->g, OP_cumsum, x, (int)below(r, rank), below(r, 2), below(r, 2)) : 0;
}

static Value pool(Rig *r, Value x) {
    const Type *t = graph_type(r->g, x);
    uint8_t at = (uint8_t)below(r, t->rank ? t->rank : 1u);
    int64_t size = 2, stride = 1 + (int64_t)below(r, 2), dilation = 1;
    if (t->rank == 0 || extent(r, x, at) < 4 || !is_static(r, t->dim[at])) return 0;
    Value w = build_window(r->g, x, 1, &at, &size, &stride, &dilation);
    return build_reduce(r->g, OP_reduce_max, w, 1u << t->rank, false);
}

static Value (*const steps[])(Rig *, Value) = {
    unary,  binary,  binary, permute, merge_dims, split_dim, slice, pad,  concat, reduce,
    reduce, softmax, norm,   project, project,    attend,    take,  scan, pool};

/* ------------------------------------------------------------------------------------------- */

static void make_graph(Rig *r, bool states) {
    static const int64_t sizes[] = {1, 2, 3, 4, 6, 8, 12};
    int64_t dim[4];
    uint8_t rank = (uint8_t)(2 + below(r, 3));
    for (int i = 0; i < rank; i++) dim[i] = sizes[below(r, 7)];
    if (below(r, 2)) {
        r->size = dim[0] = 2 + (int64_t)below(r, 6);
        SymInfo s = {.name = "n", .kind = SYM_DIM, .lo = 2, .hi = 1 << 20, .hint = r->size};
        r->n = expr_sym_new(r->g->exprs, s);
    }
    input(r, rank, dim);
    input(r, rank, dim);
    for (int i = 0; i < rank; i++) dim[i] = below(r, 2) ? dim[i] : 1;
    input(r, rank, dim);
    for (uint32_t i = 0; states && i < 3; i++) state(r, rank, dim);
    for (uint32_t left = 4 + below(r, 30); left > 0; left--) {
        Value y = steps[below(r, sizeof steps / sizeof *steps)](r, pick(r));
        if (!y || numel(r, y) > MAX_NUMEL || graph_type(r->g, y)->rank > 5) continue;
        r->v[r->count++] = y;
    }
    build_output(r->g, "last", r->v[r->count - 1]);
    build_output(r->g, "some", r->v[below(r, r->count)]);
    if (states) write_states(r);
    for (uint32_t n = 0; states && n < below(r, 4); n++)
        build_entry(r->g, n == 0 ? "a" : n == 1 ? "b" : "c");
    uint32_t all = (1u << r->g->entries.n) - 1;
    for (uint32_t i = 0; all && i < r->g->outputs.n; i++)
        r->g->outputs.v[i].entries = below(r, all + 1);
    for (uint32_t i = 0; all && i < r->g->writes.n; i++)
        r->g->writes.v[i].entries = below(r, all + 1);
}

/* Derivatives that jump: the interpreter keeps more digits within a kernel than between two. */
static bool jumps(const Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++) switch (graph_node(g, v)->op) {
        case OP_abs:
        case OP_max:
        case OP_min:
        case OP_reduce_max:
        case OP_reduce_min: return true;
        default: break;
        }
    return false;
}

/* Gradients of the last value by the inputs, as outputs; false if something in it has none. */
static bool differentiate(Rig *r) {
    if (jumps(r->g)) return false;
    Value y = r->g->outputs.v[0].value, x[3], dx[3];
    for (int i = 0; i < 3; i++) x[i] = r->g->inputs.v[i].value;
    if (!dtype_is_float(graph_type(r->g, y)->dtype)) return false;
    if (grad_build(r->g, 1, &y, NULL, 3, x, dx) != GRAPHC_OK) return false;
    for (int i = 0; i < 3; i++)
        if (dx[i]) build_output(r->g, "dx", dx[i]);
    return true;
}

static void check_seed(uint32_t seed, bool states) {
    Rig r = {.state = seed * 77777u + 5, .a = arena_create()};
    r.g = graph_create(r.a, expr_pool_create(r.a), diag_create(r.a, NULL), "random");
    make_graph(&r, states);
    if (seed & 1) r.g = pass_raise(pass_dce(r.g));
    if (!states && seed % 4 == 1 && !differentiate(&r)) {
        arena_destroy(r.a);
        return;
    }
    for (int gpu = 0; gpu < 2; gpu++) {
        Schedule *s = NULL;
        graphc_status st = schedule_build(r.g, &target_for(gpu ? PLAN_cuda : PLAN_cpu)->machine,
                                          FUSE_ALL, r.a, &s);
        double e = st == GRAPHC_OK ? check_schedule(r.g, s, r.in, r.a) : -1;
        if (!CHECK(e >= 0 && e < 1e-5))
            printf("seed %u%s: difference %g\n", seed, states ? " with states" : "", e);
    }
    arena_destroy(r.a);
}

TEST_MAIN {
    for (uint32_t seed = 0; seed < SEEDS; seed++)
        if (test_takes(seed, 3)) check_seed(seed, false);
    for (uint32_t seed = 0; seed < STATE_SEEDS; seed++)
        if (test_takes(seed, 3)) check_seed(seed, true);
}
