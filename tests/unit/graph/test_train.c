/* What training adds to a graph: losses against plain C and their cotangents against differences,
 * optimizers against plain C, adapters against merged weights, and a whole training graph. */
#include "graph/build/build.h"
#include "graph/eval/eval.h"
#include "graph/grad/train.h"
#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#define MAX_IO 8

typedef struct Rig {
    Arena *arena;
    Graph *g;
    EvalTensor in[MAX_IO];
} Rig;

static Rig rig(void) {
    Arena *a = arena_create();
    return (Rig){.arena = a,
                 .g = graph_create(a, expr_pool_create(a), diag_create(a, "test"), "test")};
}

static Type type(Rig *r, DType t, int rank, const int64_t *dim) {
    Type out = {.dtype = t, .rank = (uint8_t)rank};
    for (int i = 0; i < rank; i++) out.dim[i] = expr_const(r->g->exprs, dim[i]);
    return out;
}

static void feed(Rig *r, uint32_t i, DType t, int rank, const int64_t *dim, const void *data) {
    r->in[i] = (EvalTensor){.dtype = t, .rank = (uint8_t)rank, .data = (void *)(uintptr_t)data};
    for (int k = 0; k < rank; k++) r->in[i].dim[k] = dim[k];
}

static Value input(Rig *r, const char *name, DType t, int rank, const int64_t *dim,
                   const void *data) {
    feed(r, r->g->inputs.n, t, rank, dim, data);
    return build_input(r->g, name, type(r, t, rank, dim));
}

#define D(...) ((const int64_t[]){__VA_ARGS__})

/* Numbers that look random, within +-1. */
static void numbers(double *p, size_t n, uint32_t seed) {
    for (size_t i = 0; i < n; i++) p[i] = sin((double)(i + 1) * 12.9898 + seed * 78.233);
}

/* All outputs of g, floats in f64. */
static EvalTensor *run(Rig *r, const EvalOptions *o) {
    EvalTensor *out = ARENA_ARRAY(r->arena, EvalTensor, r->g->outputs.n + 1);
    CHECK(graph_verify(r->g) == GRAPHC_OK);
    bool ok = CHECK(eval_run(r->g, r->in, o, r->arena, out) == GRAPHC_OK);
    if (!ok) fprintf(stderr, "%s\n", diag_at(r->g->diags, diag_count(r->g->diags) - 1)->text);
    return out;
}

static double scalar(const EvalTensor *t) {
    return *(const double *)t->data;
}

/* Constants such as 0.999 are f32 in the graph, whatever it is evaluated in. */
#define ROUNDED 1e-6
static void close_to(double got, double want, double tolerance) {
    CHECK_NEAR(got, want, tolerance * (1 + fabs(want)));
}

/* --- Losses ----------------------------------------------------------------------------------- */

#define ROWS    5
#define CLASSES 7

typedef double (*Plain)(const double *x, const double *t, const int64_t *label, double *weight);

static double plain_mse(const double *x, const double *t, const int64_t *label, double *weight) {
    double s = 0;
    (void)label;
    for (int i = 0; i < ROWS * CLASSES; i++) s += (x[i] - t[i]) * (x[i] - t[i]);
    return *weight = ROWS * CLASSES, s;
}

static double plain_l1(const double *x, const double *t, const int64_t *label, double *weight) {
    double s = 0;
    (void)label;
    for (int i = 0; i < ROWS * CLASSES; i++) s += fabs(x[i] - t[i]);
    return *weight = ROWS * CLASSES, s;
}

static double plain_huber(const double *x, const double *t, const int64_t *label, double *weight) {
    double s = 0;
    (void)label;
    for (int i = 0; i < ROWS * CLASSES; i++) {
        double d = fabs(x[i] - t[i]);
        s += d < 0.5 ? d * d / 2 : 0.5 * (d - 0.25);
    }
    return *weight = ROWS * CLASSES, s;
}

static double plain_bce(const double *x, const double *t, const int64_t *label, double *weight) {
    double s = 0;
    (void)label;
    for (int i = 0; i < ROWS * CLASSES; i++) {
        double p = 1 / (1 + exp(-x[i]));
        s -= t[i] * log(p) + (1 - t[i]) * log(1 - p);
    }
    return *weight = ROWS * CLASSES, s;
}

static double plain_kl(const double *x, const double *t, const int64_t *label, double *weight) {
    double s = 0;
    (void)label;
    for (int i = 0; i < ROWS * CLASSES; i++) s += t[i] * (log(t[i]) - x[i]);
    return *weight = ROWS, s;
}

static double row_loss(const double *x, int64_t label, double smoothing, double z) {
    double top = -INFINITY, sum = 0, mean = 0;
    for (int c = 0; c < CLASSES; c++) top = fmax(top, x[c]);
    for (int c = 0; c < CLASSES; c++) sum += exp(x[c] - top), mean += x[c] / CLASSES;
    double lse = top + log(sum);
    return lse - (1 - smoothing) * x[label] - smoothing * mean + z * lse * lse;
}

static double plain_rows(const double *x, const int64_t *label, double smoothing, double z,
                         double *weight) {
    double s = 0;
    *weight = 0;
    for (int i = 0; i < ROWS; i++) {
        if (label[i] == -100) continue;
        s += row_loss(x + i * CLASSES, label[i], smoothing, z);
        *weight += 1;
    }
    return s;
}

static double plain_ce(const double *x, const double *t, const int64_t *label, double *weight) {
    (void)t;
    return plain_rows(x, label, 0, 0, weight);
}

static double plain_smooth(const double *x, const double *t, const int64_t *label, double *weight) {
    (void)t;
    return plain_rows(x, label, 0.1, 1e-2, weight);
}

static const struct {
    const char *spec;
    Plain plain;
    bool labels;
} losses[] = {
    {"mse(y, t)", plain_mse, false},
    {"l1(y, t)", plain_l1, false},
    {"huber(y, t, delta=0.5)", plain_huber, false},
    {"bce(y, t)", plain_bce, false},
    {"kl(y, t)", plain_kl, false},
    {"cross_entropy(y, t)", plain_ce, true},
    {"cross_entropy(y, t, smoothing=0.1, z=1e-2)", plain_smooth, true},
};

static void test_losses(void) {
    static const int64_t label[ROWS] = {3, 0, -100, 6, 3};
    double x[ROWS * CLASSES], t[ROWS * CLASSES];
    numbers(x, ROWS * CLASSES, 1);
    numbers(t, ROWS * CLASSES, 2);
    for (int i = 0; i < ROWS * CLASSES; i++) t[i] = 0.5 + t[i] / 4;
    for (size_t k = 0; k < sizeof losses / sizeof *losses; k++) {
        Rig r = rig();
        LossSpec s;
        LossOperands o;
        Value y = input(&r, "y", DT_f64, 2, D(ROWS, CLASSES), x);
        if (losses[k].labels)
            input(&r, "t", DT_i64, 1, D(ROWS), label);
        else
            input(&r, "t", DT_f64, 2, D(ROWS, CLASSES), t);
        CHECK(loss_parse(r.arena, r.g->diags, losses[k].spec, &s) == GRAPHC_OK);
        CHECK(loss_operands(r.g, &s, &o) == GRAPHC_OK && o.y == y);
        const Loss loss = loss_of(r.g, &s, &o);
        build_output(r.g, "sum", loss.sum);
        build_output(r.g, "weight", loss_weigh(r.g, &s, &o).weight);
        build_output(r.g, "dy", loss.dy);
        EvalOptions exact = {0};
        const EvalTensor *out = run(&r, &exact);
        double weight, want = losses[k].plain(x, t, label, &weight);
        close_to(scalar(&out[0]), want, ROUNDED);
        close_to(scalar(&out[1]), weight, 0);
        for (int i = 0; i < ROWS * CLASSES; i++) {
            double keep = x[i], h = 1e-5, up, down;
            x[i] = keep + h, up = losses[k].plain(x, t, label, &weight);
            x[i] = keep - h, down = losses[k].plain(x, t, label, &weight);
            x[i] = keep;
            close_to(((const double *)out[2].data)[i], (up - down) / (2 * h), ROUNDED);
        }
        arena_destroy(r.arena);
    }
}

/* What stands in ignored rows reaches nothing, be it NaN. */
static void test_ignored_nan(void) {
    Rig r = rig();
    double x[2 * CLASSES];
    static const int64_t label[2] = {-1, 4};
    numbers(x, 2 * CLASSES, 3);
    x[2] = NAN;
    input(&r, "y", DT_f64, 2, D(2, CLASSES), x);
    input(&r, "t", DT_i64, 1, D(2), label);
    LossSpec s;
    LossOperands o;
    CHECK(loss_parse(r.arena, r.g->diags, "cross_entropy(y, t, ignore=-1)", &s) == GRAPHC_OK);
    CHECK(loss_operands(r.g, &s, &o) == GRAPHC_OK);
    const Loss loss = loss_of(r.g, &s, &o);
    build_output(r.g, "sum", loss.sum);
    build_output(r.g, "dy", loss.dy);
    EvalOptions exact = {0};
    const EvalTensor *out = run(&r, &exact);
    close_to(scalar(&out[0]), row_loss(x + CLASSES, 4, 0, 0), ROUNDED);
    for (int i = 0; i < CLASSES; i++) CHECK(((const double *)out[1].data)[i] == 0);
    arena_destroy(r.arena);
}

static void test_bad_specs(void) {
    static const char *const bad[] = {"mse(y)",
                                      "mse(y, t",
                                      "mse(y, t, u)",
                                      "hinge(y, t)",
                                      "",
                                      "mse(y, t, z=1)",
                                      "huber(y, t, delta=0)",
                                      "cross_entropy(y, t, smoothing=1)",
                                      "cross_entropy(y, t, ignore=x)",
                                      "cross_entropy(y, t, ignore=0.5)",
                                      "cross_entropy(y, t, ignore=1e30)",
                                      "cross_entropy(y, t, smoothing=nan)",
                                      "cross_entropy(y, t, z=inf)",
                                      "huber(y, t, delta=nan)",
                                      "mse(, t)"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Rig r = rig();
        LossSpec s;
        CHECK(loss_parse(r.arena, r.g->diags, bad[i], &s) == GRAPHC_USAGE);
        arena_destroy(r.arena);
    }
}

/* --- Optimizers ------------------------------------------------------------------------------- */

#define N     11
#define STEPS 5

/* Of torch.optim's documentation, element by element. */
static void plain_step(const Optimizer *o, double lr, int step, double *p, double *m, double *v,
                       double d) {
    if (o->kind == OPTIMIZER_sgd) {
        d += o->weight_decay * *p;
        *m = o->momentum * *m + d;
        *p -= lr * (o->momentum == 0 ? d : o->nesterov ? d + o->momentum * *m : *m);
    } else if (o->kind == OPTIMIZER_adamw) {
        *p *= 1 - lr * o->weight_decay;
        *m = o->beta1 * *m + (1 - o->beta1) * d;
        *v = o->beta2 * *v + (1 - o->beta2) * d * d;
        double scale = sqrt(*v) / sqrt(1 - pow(o->beta2, step)) + o->eps;
        *p -= lr / (1 - pow(o->beta1, step)) * *m / scale;
    } else {
        double way = o->beta1 * *m + (1 - o->beta1) * d;
        *p = *p * (1 - lr * o->weight_decay) - lr * ((way > 0) - (way < 0));
        *m = o->beta2 * *m + (1 - o->beta2) * d;
    }
}

static void check_optimizer(const Optimizer *o) {

    Rig r = rig();
    Graph *g = r.g;
    double p[N], m[N] = {0}, v[N] = {0};
    float grad[N], lr = 0.05f;
    int64_t step;
    numbers(p, N, 4);
    for (int i = 0; i < N; i++) grad[i] = (float)p[i];
    numbers(p, N, 5);
    float start[N];
    for (int i = 0; i < N; i++) p[i] = start[i] = (float)p[i];
    Constant initial = {.data = start, .bytes = sizeof start, .name = "p"};
    Value vg = input(&r, "g", DT_f32, 1, D(N), grad), vlr = input(&r, "lr", DT_f32, 0, NULL, &lr);
    Value vstep = input(&r, "step", DT_i64, 0, NULL, &step);
    Type t = type(&r, DT_f32, 1, D(N));
    Value param = build_state(g, "p", t, initial), moment[OPTIMIZER_MAX_STATES],
          next[OPTIMIZER_MAX_STATES + 1];
    OptimizerState kept[OPTIMIZER_MAX_STATES];
    const uint32_t nkept = optimizer_states(o, g->exprs, &t, kept);
    for (uint32_t i = 0; i < nkept; i++)
        moment[i] = build_state(g, kept[i].name, kept[i].type, (Constant){0});
    OptimizerStep s = optimizer_step(g, o, vlr, vstep);
    optimizer_update(g, o, &s, param, vg, moment, next);
    build_write(g, param, next[0]);
    for (uint32_t i = 0; i < nkept; i++) build_write(g, moment[i], next[i + 1]);
    CHECK(diag_errors(g->diags) == 0 && g->writes.n == 1 + nkept);
    build_output(g, "norm", optimizer_norm(g, 1, &vg));
    EvalTensor now[3], after[3];
    for (uint32_t i = 0; i < g->states.n; i++) now[i] = eval_initial(g, i, r.arena);
    for (step = 1; step <= STEPS; step++) {
        EvalOptions e = {.states = now, .next = after};
        run(&r, &e);
        memcpy(now, after, sizeof now);
        for (int i = 0; i < N; i++) plain_step(o, lr, (int)step, &p[i], &m[i], &v[i], grad[i]);
        for (int i = 0; i < N; i++) close_to(((double *)now[0].data)[i], p[i], ROUNDED);
        for (int i = 0; i < N; i++) grad[i] = sinf(grad[i] * 3 + (float)step);
    }
    arena_destroy(r.arena);
}

static void test_optimizers(void) {
    Optimizer o;
    CHECK(!optimizer_default("adagrad", &o));
    CHECK(optimizer_default("sgd", &o)), check_optimizer(&o);
    o.momentum = 0.9, o.weight_decay = 0.1, check_optimizer(&o);
    o.nesterov = true, check_optimizer(&o);
    CHECK(optimizer_default("adamw", &o)), check_optimizer(&o);
    CHECK(optimizer_default("lion", &o)), check_optimizer(&o);
}

/* --- Whole training graphs -------------------------------------------------------------------- */

#define IN  6
#define MID 9
#define OUT 4

/* y = tanh(x W1 + b) W2, in which the weights have the names that exporters give them. */
static Value weight(Rig *r, bool trained, const char *name, int rank, const int64_t *dim,
                    uint32_t seed) {
    size_t n = 1;
    for (int i = 0; i < rank; i++) n *= (size_t)dim[i];
    double *wide = arena_array(r->arena, n, sizeof *wide);
    float *p = arena_array(r->arena, n, sizeof *p);
    numbers(wide, n, seed);
    for (size_t i = 0; i < n; i++) p[i] = (float)wide[i] / 2;
    Constant c = {.data = p, .bytes = n * sizeof *p, .name = name};
    Type t = type(r, DT_f32, rank, dim);
    return trained ? build_state(r->g, name, t, c) : build_const(r->g, t, c);
}

static void layer_at(Rig *r, const char *module) {
    build_at(r->g,
             build_loc_new(
                 r->g,
                 (LocInfo){.node = 0, .op = "MatMul", .name = "", .output = "", .module = module}));
}

static void perceptron(Rig *r, bool trained, const float *x) {
    Graph *g = r->g;
    Value vx = input(r, "x", DT_f32, 2, D(ROWS, IN), x);
    layer_at(r, "net.up");
    Value w1 = weight(r, trained, "net.up.weight", 2, D(IN, MID), 11),
          b = weight(r, trained, "net.up.bias", 1, D(MID), 12);
    Value h = build_unary(g, OP_tanh, build_binary(g, OP_add, build_matmul(g, vx, w1, DT_f32), b));
    layer_at(r, "net.down");
    Value w2 = weight(r, trained, "net.down.weight", 2, D(MID, OUT), 13);
    build_output(g, "y", build_matmul(g, h, w2, DT_f32));
}

static graphc_status training(Rig *r, const char *lora, Optimizer o, TrainGraph *t) {
    LoraSpec l;
    TrainSpec s = {.optimizer = o};
    GC_TRY(loss_parse(r->arena, r->g->diags, "mse(y, target)", &s.loss));
    if (lora) GC_TRY(lora_parse(r->arena, r->g->diags, lora, &l));
    if (lora) s.lora = &l;
    return train_build(r->g, &s, t);
}

/* Runs `steps` steps; gives the first loss and the last. */
static void train(Rig *r, const TrainGraph *t, int steps, double *first, double *last) {
    static float x[ROWS * IN], target[ROWS * OUT];
    double wide[ROWS * IN];
    float lr = 0.05f;
    int64_t step;
    numbers(wide, ROWS * IN, 21);
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)wide[i];
    for (int i = 0; i < ROWS * OUT; i++) target[i] = (float)wide[i] * 0.3f;
    r->g = t->g;
    feed(r, 0, DT_f32, 2, D(ROWS, IN), x);
    feed(r, 1, DT_f32, 2, D(ROWS, OUT), target);
    feed(r, 2, DT_f32, 0, NULL, &lr);
    feed(r, 3, DT_i64, 0, NULL, &step);
    EvalTensor *now = ARENA_ARRAY(r->arena, EvalTensor, t->g->states.n + 1),
               *after = ARENA_ARRAY(r->arena, EvalTensor, t->g->states.n + 1);
    for (uint32_t i = 0; i < t->g->states.n; i++) now[i] = eval_initial(t->g, i, r->arena);
    for (uint32_t i = 0; i < t->lora.v.n; i++) { /* A starts as anything but zeros */
        EvalTensor *a = &now[graph_node(t->g, t->lora.v.v[i].a)->attr.input.index];
        a->dtype = DT_f64;
        a->data = arena_array(r->arena, (size_t)(a->dim[0] * a->dim[1]), sizeof(double));
        numbers(a->data, (size_t)(a->dim[0] * a->dim[1]), i);
    }
    for (step = 1; step <= steps; step++) {
        EvalOptions e = {.states = now, .next = after};
        *last = scalar(run(r, &e));
        if (step == 1) *first = *last;
        memcpy(now, after, t->g->states.n * sizeof *now);
    }
}

static void test_training(void) {
    static const char *const lora[] = {NULL, "r=2,alpha=4,targets=all-linear",
                                       "r=3,rslora,targets=up,down", "targets=net\\.(up|down)"};
    for (size_t k = 0; k < 4; k++) {
        Rig r = rig();
        float x[ROWS * IN] = {0};
        double first = 0, last = 0;
        Optimizer o;
        TrainGraph t;
        CHECK(optimizer_default("adamw", &o));
        o.clip = 1;
        perceptron(&r, !lora[k], x);
        CHECK(training(&r, lora[k], o, &t) == GRAPHC_OK);
        CHECK(t.params.n == (k == 0 ? 3 : k == 1 ? 2 : 4));
        train(&r, &t, 40, &first, &last);
        CHECK(last < first * 0.5);
        arena_destroy(r.arena);
    }
}

/* One step of sgd at a rate of 1: parameters less their gradients are left in `after`. */
static double step_by_one(Rig *r, const TrainGraph *t, EvalTensor *now, EvalTensor *after) {
    const EvalOptions e = {.states = now, .next = after};
    (void)t;
    return scalar(run(r, &e));
}

/* Gradients are of what was drawn: the loss with the same numbers, against differences. */
static void check_dropout(Rig *r, const TrainGraph *t, EvalTensor *now) {
    EvalTensor *after = ARENA_ARRAY(r->arena, EvalTensor, t->g->states.n + 1),
               *other = ARENA_ARRAY(r->arena, EvalTensor, t->g->states.n + 1);
    const double h = 1e-4;
    (void)step_by_one(r, t, now, after);
    for (uint32_t s = 0; s < t->g->states.n; s++) {
        double *p = now[s].data;
        for (int64_t i = 0; i < now[s].dim[0] * now[s].dim[1]; i++) {
            const double before = p[i], grad = before - ((double *)after[s].data)[i];
            p[i] = before + h;
            double up = step_by_one(r, t, now, other);
            p[i] = before - h;
            double down = step_by_one(r, t, now, other);
            p[i] = before;
            CHECK(fabs((up - down) / (2 * h) - grad) < 1e-5 * (1 + fabs(grad)));
        }
    }
}

static void test_dropout(void) {
    Rig r = rig();
    static float x[ROWS * IN], target[ROWS * OUT];
    double wide[ROWS * IN];
    float lr = 1;
    int64_t step = 1, generator = -1;
    Optimizer o;
    TrainGraph t;
    numbers(wide, ROWS * IN, 5);
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)wide[i];
    CHECK(optimizer_default("sgd", &o));
    perceptron(&r, false, x);
    CHECK(training(&r, "r=2,alpha=4,dropout=0.4,targets=up,down", o, &t) == GRAPHC_OK);
    r.g = t.g;
    feed(&r, 0, DT_f32, 2, D(ROWS, IN), x);
    feed(&r, 1, DT_i64, 0, NULL, &generator);
    feed(&r, 2, DT_f32, 2, D(ROWS, OUT), target);
    feed(&r, 3, DT_f32, 0, NULL, &lr);
    feed(&r, 4, DT_i64, 0, NULL, &step);
    EvalTensor *now = ARENA_ARRAY(r.arena, EvalTensor, t.g->states.n + 1),
               *after = ARENA_ARRAY(r.arena, EvalTensor, t.g->states.n + 1);
    for (uint32_t i = 0; i < t.g->states.n; i++) {
        now[i] = eval_initial(t.g, i, r.arena);
        now[i].dtype = DT_f64;
        now[i].data = arena_array(r.arena, (size_t)(now[i].dim[0] * now[i].dim[1]), sizeof(double));
        numbers(now[i].data, (size_t)(now[i].dim[0] * now[i].dim[1]), i + 1);
    }
    double loss[4];
    for (generator = -1; generator < 3; generator++) {
        loss[generator + 1] = step_by_one(&r, &t, now, after);
        check_dropout(&r, &t, now);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) CHECK(loss[i] != loss[k]);
    generator = -2; /* whatever it is, nothing is drawn */
    CHECK(step_by_one(&r, &t, now, after) == loss[0]);
    arena_destroy(r.arena);
}

static void test_targets(void) {
    Rig r = rig();
    float x[ROWS * IN] = {0};
    Optimizer o;
    TrainGraph t;
    CHECK(optimizer_default("sgd", &o));
    perceptron(&r, false, x);
    CHECK(training(&r, "targets=sideways", o, &t) == GRAPHC_USAGE);
    const Diag *d = diag_at(r.g->diags, diag_count(r.g->diags) - 1);
    CHECK(strstr(d->text, "net.up, net.down") != NULL);
    arena_destroy(r.arena);
}

TEST_MAIN {
    test_losses();
    test_ignored_nan();
    test_bad_specs();
    test_optimizers();
    test_training();
    test_dropout();
    test_targets();
}
