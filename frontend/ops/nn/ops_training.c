/* ai.onnx.preview.training: optimizer steps and Gradient. Steps' inputs and outputs come in groups
 * of equal size: all X, then all gradients, then all states. */
#include "frontend/import/formula.h"
#include "frontend/import/import_impl.h"
#include "graph/grad/grad.h"

typedef struct Step {
    Lower *l;
    Graph *g;
    Value rate, count; /* R and T */
    uint32_t n;        /* tensors that are optimised */
} Step;

static bool start(Lower *l, uint32_t groups, Step *s) {
    const uint32_t n = lower_nin(l) - 2;
    *s = (Step){.l = l, .g = lower_graph(l), .rate = lower_in(l, 0), .n = n / groups};
    if (n % groups || lower_nout(l) != s->n * (groups - 1))
        return lower_error(l, D_ARITY, "inputs and outputs do not come in %u groups", groups);
    s->rate = build_reshape(s->g, s->rate, 0, NULL);
    s->count = build_reshape(s->g, lower_in(l, 1), 0, NULL);
    return true;
}

static Value item(const Step *s, uint32_t group, uint32_t i) {
    return lower_in(s->l, 2 + group * s->n + i);
}

static Value scale(const Step *s, Value x, double c) {
    return build_binary_f(s->g, OP_mul, x, c);
}

/* The gradient with the L2 penalty's. */
static Value gradient(const Step *s, uint32_t i) {
    return v_add(s->g, scale(s, item(s, 0, i), lower_f(s->l, "norm_coefficient")), item(s, 1, i));
}

static Value first_step(const Step *s, Value otherwise, Value then) {
    Value started = v_lt(s->g, build_scalar_i(s->g, DT_i64, 0), s->count);
    return build_select(s->g, started, otherwise, then);
}

static Value root_plus_epsilon(const Step *s, Value x) {
    return build_binary_f(s->g, OP_add, build_unary(s->g, OP_sqrt, x), lower_f(s->l, "epsilon"));
}

/* 1 - c^T */
static Value one_minus_power(const Step *s, double c) {
    Value p = v_mul(s->g, build_cast(s->g, s->count, DT_f64),
                    build_unary(s->g, OP_log, build_scalar_f(s->g, DT_f64, c)));
    return v_sub(s->g, build_scalar_f(s->g, DT_f64, 1), build_unary(s->g, OP_exp, p));
}

static bool lower_adam(Lower *l) {
    Step s;
    if (!start(l, 4, &s)) return false;
    Graph *g = s.g;
    const double alpha = lower_f(l, "alpha"), beta = lower_f(l, "beta");
    const DType t = lower_type(l, 0)->dtype;
    Value ratio = build_binary(g, OP_div, build_unary(g, OP_sqrt, one_minus_power(&s, beta)),
                               one_minus_power(&s, alpha));
    Value rate = v_mul(g, s.rate, first_step(&s, build_cast(g, ratio, t), build_scalar_f(g, t, 1)));
    for (uint32_t i = 0; i < s.n; i++) {
        Value d = gradient(&s, i);
        Value v = v_add(g, scale(&s, item(&s, 2, i), alpha), scale(&s, d, 1 - alpha));
        Value h = v_add(g, scale(&s, item(&s, 3, i), beta), scale(&s, v_mul(g, d, d), 1 - beta));
        Value x = v_sub(g, item(&s, 0, i), v_div(g, v_mul(g, rate, v), root_plus_epsilon(&s, h)));
        lower_out(l, i, scale(&s, x, 1 - lower_f(l, "norm_coefficient_post")));
        lower_out(l, s.n + i, v);
        lower_out(l, 2 * s.n + i, h);
    }
    return true;
}

static bool lower_adagrad(Lower *l) {
    Step s;
    if (!start(l, 3, &s)) return false;
    Graph *g = s.g;
    Value steps = build_cast(g, s.count, lower_type(l, 0)->dtype);
    Value decay = build_binary_f(g, OP_add, scale(&s, steps, lower_f(l, "decay_factor")), 1);
    Value rate = v_div(g, s.rate, decay);
    for (uint32_t i = 0; i < s.n; i++) {
        Value d = gradient(&s, i), h = v_add(g, item(&s, 2, i), v_mul(g, d, d));
        Value step = v_div(g, v_mul(g, rate, d), root_plus_epsilon(&s, h));
        lower_out(l, i, v_sub(g, item(&s, 0, i), step));
        lower_out(l, s.n + i, h);
    }
    return true;
}

static bool lower_momentum(Lower *l) {
    Step s;
    if (!start(l, 3, &s)) return false;
    Graph *g = s.g;
    static const char *const modes[] = {"standard", "nesterov", NULL};
    int nesterov;
    if (!lower_choice(l, "mode", modes, &nesterov)) return false;
    const DType t = lower_type(l, 0)->dtype;
    Value beta = first_step(&s, build_scalar_f(g, t, lower_f(l, "beta")), build_scalar_f(g, t, 1));
    for (uint32_t i = 0; i < s.n; i++) {
        Value d = gradient(&s, i);
        Value v = v_add(g, scale(&s, item(&s, 2, i), lower_f(l, "alpha")), v_mul(g, beta, d));
        Value step = nesterov ? v_add(g, d, scale(&s, v, lower_f(l, "alpha"))) : v;
        lower_out(l, i, v_sub(g, item(&s, 0, i), v_mul(g, s.rate, step)));
        lower_out(l, s.n + i, v);
    }
    return true;
}

/* ---- Gradient: of the tensor y of this graph by the tensors xs, at the values that inputs give
 * ---- */

/* Input i, which must be the tensor that the graph computed y from: it is not computed again. */
static bool is_tensor(Lower *l, uint32_t i, const char *name) {
    Item item;
    if (scope_find(l->scope, name, &item) && item.kind == ITEM_TENSOR && item.v == lower_in(l, i))
        return true;
    return lower_unsupported(l, NULL, "input %u is not the tensor \"%s\" itself", i, name);
}

static bool lower_gradient(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t nx, nz;
    const char *const *xs = lower_strings(l, "xs", &nx), *const *zs = lower_strings(l, "zs", &nz);
    Value *x = ARENA_ARRAY(g->arena, Value, nx), *dx = ARENA_ARRAY(g->arena, Value, nx);
    Item y;
    if (lower_nin(l) != nx + nz || lower_nout(l) > nx)
        return lower_error(l, D_ARITY, "%u inputs and %u outputs for %u xs and %u zs", lower_nin(l),
                           lower_nout(l), nx, nz);
    for (uint32_t i = 0; i < nx + nz; i++)
        if (!is_tensor(l, i, i < nx ? xs[i] : zs[i - nx])) return false;
    if (!scope_find(l->scope, lower_s(l, "y"), &y) || y.kind != ITEM_TENSOR)
        return lower_error(l, D_NAME, "there is no tensor \"%s\" before this node",
                           lower_s(l, "y"));
    for (uint32_t i = 0; i < nx; i++) x[i] = lower_in(l, i);
    if (grad_build(g, 1, &y.v, NULL, nx, x, dx) != GRAPHC_OK) return false;
    for (uint32_t i = 0; i < nx; i++) {
        const Type *t = graph_type(g, x[i]);
        Value zeros = build_full(g, build_scalar_i(g, t->dtype, 0), t->rank, t->dim);
        lower_out(l, i, dx[i] ? dx[i] : zeros);
    }
    return true;
}

static const char *const gradient_attrs[] = {"xs:S!", "y:s!", "zs:S", NULL};
static const char *const adam_attrs[] = {"alpha:f=0.9",
                                         "beta:f=0.999",
                                         "epsilon:f=1e-6",
                                         "norm_coefficient:f=0",
                                         "norm_coefficient_post:f=0",
                                         NULL};
static const char *const adagrad_attrs[] = {"decay_factor:f=0", "epsilon:f=1e-6",
                                            "norm_coefficient:f=0", NULL};
static const char *const momentum_attrs[] = {"alpha:f!", "beta:f!", "mode:s!",
                                             "norm_coefficient:f!", NULL};

#define TRAINING "ai.onnx.preview.training"

const OnnxOp ops_training[] = {
    {TRAINING, "Adam", 1, 0, 3, -1, 1, -1, adam_attrs, lower_adam},
    {TRAINING, "Adagrad", 1, 0, 3, -1, 1, -1, adagrad_attrs, lower_adagrad},
    {TRAINING, "Gradient", 1, 0, 1, -1, 1, -1, gradient_attrs, lower_gradient},
    {TRAINING, "Momentum", 1, 0, 3, -1, 1, -1, momentum_attrs, lower_momentum},
    {0},
};
