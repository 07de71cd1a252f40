/* verify's check of stored values: nothing is wrong with right kernels, and of each planted fault
 * the kernel that has it is the first bad one. Faults are planted in the kernels' bodies, between
 * fusion and code generation: what a defect of either would make of them. */
#include "codegen/plan/plan_build.h"
#include "frontend/driver/check.h"
#include "graph/ir/gir.h"
#include "tests/plant.h"
#include "tests/unit/test.h"

/* A residual with its norm, a linear layer with an activation and a scale; masked attention; a
 * slice, a padded part and a concatenation; casts that lose; a quantiser; rows of a table; running
 * sums, of which one becomes its sines where it lies. */
static const char text[] = "graph \"faults\"\n"
                           "  %1 f32[16, 96] input 0 \"x\"\n"
                           "  %2 f32[16, 96] input 1 \"r\"\n"
                           "  %3 f32[96, 64] const 0x1 \"w\"\n"
                           "  %4 f32[16, 96] add %1, %2\n"
                           "  %5 f32[16] reduce_sum %4 axes=[1]\n"
                           "  %6 f32[16, 1] reshape %5\n"
                           "  %7 f32[16, 96] expand %6\n"
                           "  %8 f32[16, 96] sub %4, %7\n"
                           "  %9 f32[16, 96] mul %8, %8\n"
                           "  %10 f32[16] reduce_sum %9 axes=[1]\n"
                           "  %11 f32[16] rsqrt %10\n"
                           "  %12 f32[16, 1] reshape %11\n"
                           "  %13 f32[16, 96] expand %12\n"
                           "  %14 f32[16, 96] mul %8, %13\n"
                           "  %15 f32[16, 64] dot %14, %3\n"
                           "  %16 f32[16, 64] tanh %15\n"
                           "  %17 f32[16, 64] const {0.75...}\n"
                           "  %18 f32[16, 64] mul %16, %17\n"
                           "  output \"y\" %18\n"
                           "  output \"s\" %4\n"
                           "  %19 f32[2, 12, 16] input 2 \"q\"\n"
                           "  %20 f32[2, 16, 20] input 3 \"k\"\n"
                           "  %21 f32[2, 20, 16] input 4 \"v\"\n"
                           "  %22 bool[2, 12, 20] input 5 \"keep\"\n"
                           "  %23 f32[2, 12, 20] dot %19, %20\n"
                           "  %24 f32[2, 12, 20] const {-30...}\n"
                           "  %25 f32[2, 12, 20] select %22, %23, %24\n"
                           "  %26 f32[2, 12] reduce_max %25 axes=[2]\n"
                           "  %27 f32[2, 12, 1] reshape %26\n"
                           "  %28 f32[2, 12, 20] expand %27\n"
                           "  %29 f32[2, 12, 20] sub %25, %28\n"
                           "  %30 f32[2, 12, 20] exp %29\n"
                           "  %31 f32[2, 12] reduce_sum %30 axes=[2]\n"
                           "  %32 f32[2, 12, 1] reshape %31\n"
                           "  %33 f32[2, 12, 20] expand %32\n"
                           "  %34 f32[2, 12, 20] div %30, %33\n"
                           "  %35 f32[2, 12, 16] dot %34, %21\n"
                           "  output \"attended\" %35\n"
                           "  %36 f32[8, 24] input 6 \"a\"\n"
                           "  %37 f32[8, 10] slice %36 start=[0, 5]\n"
                           "  %38 f32[] const {2}\n"
                           "  %39 f32[8, 14] pad %37, %38 lo=[0, 2] hi=[0, 2]\n"
                           "  %40 f32[8, 14] abs %39\n"
                           "  output \"padded\" %40\n"
                           "  %41 f16[8, 24] cast %36\n"
                           "  %42 f32[8, 24] cast %41\n"
                           "  %43 f32[8, 24] sub %42, %36\n"
                           "  output \"lost\" %43\n"
                           "  %44 i32[8, 24] cast %36\n"
                           "  %45 f32[8, 24] cast %44\n"
                           "  %46 f32[8, 24] neg %45\n"
                           "  output \"whole\" %46\n"
                           "  %47 f32[8, 24] const {40...}\n"
                           "  %48 f32[8, 24] mul %36, %47\n"
                           "  %49 f32[8, 24] round %48\n"
                           "  %50 f32[8, 24] const {100...}\n"
                           "  %51 f32[8, 24] min %49, %50\n"
                           "  %52 i8[8, 24] cast %51\n"
                           "  output \"quantised\" %52\n"
                           "  %53 f32[50, 24] const 0x2 \"table\"\n"
                           "  %54 i64[8] input 7 \"ids\"\n"
                           "  %55 i64[8, 1] reshape %54\n"
                           "  %56 i64[8, 24] expand %55\n"
                           "  %57 f32[8, 24] gather %53, %56 src=[-1, 1]\n"
                           "  %58 f32[8, 24] mul %57, %36\n"
                           "  output \"rows\" %58\n"
                           "  %59 f32[8, 24] cumsum %36 axis=1\n"
                           "  output \"running\" %59\n"
                           "  %60 bool[8, 24] lt %36, %57\n"
                           "  output \"less\" %60\n"
                           "  %61 f32[8] reduce_min %36 axes=[1]\n"
                           "  output \"least\" %61\n"
                           "  %62 f32[8, 24] cumsum %36 axis=0\n"
                           "  %63 f32[8, 24] sin %62\n"
                           "  %64 f32[24, 8] const 0x3 \"last\"\n"
                           "  %65 f32[8, 8] dot %63, %64\n"
                           "  output \"twice\" %65\n";

/* What is computed of weights alone is prepared: of one before the first product, and again behind
 * the last; of another in between. So are the panels of all three matrices. */
static const char weights[] = "graph \"weights\"\n"
                              "  %1 f32[192, 256] input 0 \"x\"\n"
                              "  %2 f32[256, 256] const 0x1 \"a\"\n"
                              "  %3 f32[192, 256] const 0x2 \"b\"\n"
                              "  %4 f32[192, 256] const 0x3 \"c\"\n"
                              "  %5 f32[192, 256] tanh %3\n"
                              "  %6 f32[192, 256] tanh %4\n"
                              "  %7 f32[192, 256] mul %1, %5\n"
                              "  %8 f32[192, 256] dot %7, %2\n"
                              "  %9 f32[192, 256] add %8, %6\n"
                              "  %10 f32[256, 256] const 0x4 \"d\"\n"
                              "  %11 f32[192, 256] dot %9, %10\n"
                              "  %12 f32[192, 256] mul %11, %5\n"
                              "  %13 f32[192, 256] dot %12, %2\n"
                              "  output \"y\" %13\n";

/* The nth op of a code, over all kernels of a run. */
typedef struct Fault {
    const char *name;
    Value node; /* of the graph; 0: any */
    int op;
    How how;
    double by;
} Fault;

static const Fault faults[] = {
    {"wrong activation", 16, OP_tanh, OP_BECOMES, OP_sigmoid},
    {"activation left out", 16, OP_tanh, LEFT_OUT, 0},
    {"wrong scale in an epilogue", 18, OP_mul, OP_BECOMES, OP_add},
    {"a scale 1 % off", 18, OP_mul, TIMES, 1.01},
    {"residual left out", 4, OP_add, LEFT_OUT, 0},
    {"residual subtracted", 4, OP_add, OP_BECOMES, OP_sub},
    {"norm by the maximum", 10, K_kreduce, FOLDS_BY, FOLD_max},
    {"norm by 1 / x", 11, OP_rsqrt, OP_BECOMES, OP_recip},
    {"centre forgotten", 8, OP_sub, LEFT_OUT, 0},
    {"difference turned round", 43, OP_sub, SWAPPED, 0},
    {"mask forgotten", 25, OP_select, LEFT_OUT, 1},
    {"mask inverted", 25, OP_select, SWAPPED, 1},
    {"slice one off", 36, K_kload, MOVED, 1},
    {"padding reads on", 0, K_kload, UNMASKED, 0},
    {"cast to f16 lost", 41, OP_cast, OP_BECOMES, OP_none},
    {"cast to i32 lost", 44, OP_cast, OP_BECOMES, OP_none},
    {"rounding down", 49, OP_round, OP_BECOMES, OP_floor},
    {"clamp lost", 51, OP_min, LEFT_OUT, 0},
    {"wrong row of a table", 0, K_kbind, MOVED, 1},
    {"product with itself", 58, OP_mul, DOUBLED, 0},
    {"running product", 0, K_kscan, FOLDS_BY, FOLD_prod},
    {"a bound that counts", 60, OP_lt, OP_BECOMES, OP_ne},
    {"largest for least", 61, K_kreduce, FOLDS_BY, FOLD_max},
};

typedef struct Rig {
    Arena *a;
    Graph *g;
    Schedule *s;
    EvalTensor in[8];
} Rig;

static void add_places(Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        LocInfo l = {.node = (int32_t)v, .op = op_info[n->op].name, .output = ""};
        l.name = arena_printf(g->arena, "n%u", v);
        g->nodes.v[v].loc = g->locs.n;
        vec_push(g->arena, &g->locs, l);
    }
}

static Rig rig(const char *graph) {
    Rig r = {.a = arena_create()};
    uint64_t state = 5;
    DiagSink *d = diag_create(r.a, NULL);
    r.g = graph_parse(r.a, d, graph);
    if (!CHECK(r.g != NULL)) {
        fprintf(stderr, "%s\n", diag_count(d) ? diag_at(d, 0)->text : "");
        exit(1);
    }
    add_places(r.g);
    for (uint32_t i = 0; i < r.g->inputs.n; i++) {
        EvalTensor *t = &r.in[i];
        const Type *type = &r.g->inputs.v[i].type;
        size_t n = 1;
        *t = (EvalTensor){.dtype = type->dtype, .rank = type->rank};
        for (int k = 0; k < t->rank; k++)
            n *= (size_t)(t->dim[k] = expr_eval(r.g->exprs, type->dim[k], NULL));
        t->data = arena_array(r.a, n, 8);
        for (size_t k = 0; k < n; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uint32_t x = (uint32_t)(state >> 33);
            if (dtype_is_float(t->dtype))
                dtype_store_f64(t->dtype, t->data, k, x % 100000 / 12500.0 - 4);
            else
                dtype_store_i64(t->dtype, t->data, k, t->dtype == DT_bool ? x % 3 != 0 : x % 40);
        }
    }
    CHECK(schedule_build(r.g, &target_for(PLAN_cpu)->machine, FUSE_ALL, r.a, &r.s) == GRAPHC_OK);
    return r;
}

/* The step that it was planted in, or UINT32_MAX. */
static uint32_t plant_first(const Rig *r, const Fault *f, Loc *loc) {
    for (uint32_t i = 0; i < r->s->steps.n; i++) {
        Kernel *k = r->s->steps.v[i].kernel;
        for (KVal v = 1; k && !r->s->steps.v[i].prepare && v < k->nops; v++) {
            const KOp *o = &k->ops[v];
            if (o->op != f->op || (f->node && o->node != f->node) || !plant_fits(k, o, f->how))
                continue;
            *loc = o->node && o->op != K_kload ? graph_node(r->g, o->node)->loc : 0;
            plant(r->g->exprs, k, v, f->how, f->by);
            return i;
        }
    }
    return UINT32_MAX;
}

static graphc_session *session(const Rig *r, bool lean, graphc_plan **plan) {
    CodeResult code;
    DiagSink *d = diag_create(r->a, NULL);
    PlanTargetInput t = {.target = target_for(PLAN_cpu), .schedule = r->s, .code = &code};
    CodeOptions co = {.threads = 1};
    PlanBuildOptions po = {0};
    void *bytes;
    size_t size;
    char why[256] = "";
    graphc_session *s = NULL;
    graphc_session_options so = GRAPHC_SESSION_OPTIONS_INIT;
    so.threads = 1;
    so.lean = lean;
    *plan = NULL;
    if (codegen_run(t.target, r->s, &co, r->a, d, &code) != GRAPHC_OK ||
        plan_build(r->g, &t, 1, &po, r->a, d, &bytes, &size) != GRAPHC_OK)
        fprintf(stderr, "%s\n", diag_count(d) ? diag_at(d, 0)->text : "");
    else if (graphc_plan_load_memory(bytes, size, NULL, plan, why, sizeof why) != GRAPHC_OK ||
             graphc_session_create(*plan, &so, &s, why, sizeof why) != GRAPHC_OK)
        fprintf(stderr, "%s\n", why);
    for (uint32_t i = 0; s && i < r->g->inputs.n; i++) {
        graphc_tensor x = {.data = r->in[i].data, .device = GRAPHC_CPU, .rank = r->in[i].rank};
        x.dtype = graphc_plan_input(*plan, i).dtype;
        memcpy(x.shape, r->in[i].dim, sizeof *x.shape * (size_t)x.rank);
        CHECK(graphc_bind_input(s, i, &x) == GRAPHC_OK);
    }
    return s;
}

/* Rows of a run, in the rig's arena. */
static CheckRow *rows_of(const Rig *r, bool lean, uint32_t *n) {
    graphc_plan *plan;
    graphc_session *s = session(r, lean, &plan);
    CheckRow *rows = NULL;
    CheckOptions o = {0};
    *n = 0;
    if (CHECK(s != NULL)) {
        Check *c = check_begin(r->s, s, r->in, &o);
        CHECK(graphc_run(s) == GRAPHC_OK);
        CHECK(check_rows(c, r->a, &rows, n) == GRAPHC_OK);
        check_end(c);
    }
    graphc_session_destroy(s);
    graphc_plan_destroy(plan);
    return rows;
}

static bool covers(const Kernel *k, Loc l) {
    for (uint32_t i = 0; i < k->nlocs; i++)
        if (k->locs[i] == l) return true;
    return !l;
}

/* Whether weights are there all the time or come and go, as much is looked at, and it is the same.
 */
static void check_right(const char *graph, uint32_t rows_least, uint32_t prepared_least) {
    Rig r = rig(graph);
    uint32_t n, lean_n, prepared = 0;
    const CheckRow *rows = rows_of(&r, false, &n), *lean = rows_of(&r, true, &lean_n);
    CHECK(n >= rows_least);
    CHECK_EQ_I(lean_n, n);
    for (uint32_t i = 0; i < n && i < lean_n; i++) {
        prepared += rows[i].prepared;
        CHECK(lean[i].value == rows[i].value && lean[i].count == rows[i].count &&
              lean[i].bad == rows[i].bad && lean[i].max_abs == rows[i].max_abs &&
              lean[i].of_bound == rows[i].of_bound);
    }
    CHECK(prepared >= prepared_least);
    for (uint32_t i = 0; i < n; i++)
        if (!CHECK(rows[i].bad == 0))
            fprintf(stderr, "%s: %g of its bound\n", rows[i].kernel, rows[i].of_bound);
    arena_destroy(r.a);
}

static void check_fault(const Fault *f, bool lean) {
    Rig r = rig(text);
    Loc loc;
    uint32_t n, step = plant_first(&r, f, &loc), first = UINT32_MAX, bad = 0;
    bool planted = CHECK(step != UINT32_MAX);
    if (planted) {
        const CheckRow *rows = rows_of(&r, lean, &n);
        for (uint32_t i = 0; i < n; i++) {
            if (!rows[i].bad) continue;
            bad += rows[i].step != step;
            if (first == UINT32_MAX) first = rows[i].step;
        }
        planted = CHECK(first == step) && CHECK(bad == 0) &&
                  CHECK(covers(r.s->steps.v[step].kernel, loc));
    }
    if (!planted)
        fprintf(stderr, "  fault: %s, in step %d; first found in %d\n", f->name, (int)step,
                (int)first);
    arena_destroy(r.a);
}

TEST_MAIN {
    check_right(text, 10, 0);
    check_right(weights, 5, 2);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (test_takes(i, 4)) check_fault(&faults[i], i / 4 % 2);
}
