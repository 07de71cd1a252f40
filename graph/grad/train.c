#include "graph/grad/train.h"
#include "graph/build/build.h"
#include "graph/grad/grad.h"
#include "graph/pass/pass.h"

#include <string.h>

static graphc_status parameters(const Graph *model, const TrainSpec *s, TrainGraph *t) {
    if (!s->lora) {
        Weights w = {0};
        GC_TRY(trainable_apply(model, &s->trainable, &t->g, &w));
        for (uint32_t i = 0; i < w.state.n; i++) vec_push(model->arena, &t->params, w.state.v[i]);
        return GRAPHC_OK;
    }
    GC_TRY(lora_apply(model, s->lora, &t->g, &t->lora));
    for (uint32_t i = 0; i < t->lora.v.n; i++) {
        vec_push(model->arena, &t->params, t->lora.v.v[i].a);
        vec_push(model->arena, &t->params, t->lora.v.v[i].b);
    }
    return GRAPHC_OK;
}

static const char *state_name(const Graph *g, Value state) {
    return g->states.v[graph_node(g, state)->attr.input.index].name;
}

const char *train_name(const TrainGraph *t, uint32_t i) {
    return state_name(t->g, t->params.v[i]);
}

static Value scalar_input(Graph *g, const char *name, DType t) {
    return build_input(g, name, (Type){.dtype = t});
}

/* 1 / weight, and 0 where nothing is supervised: such a step changes nothing by its gradients. */
static Value share_of(Graph *g, Value weight) {
    Value zero = build_scalar_f(g, DT_f32, 0), some = build_binary(g, OP_lt, zero, weight);
    return build_select(g, some, build_unary(g, OP_recip, weight), zero);
}

/* d loss / d parameter for each, in f32, of the sum times `share` (0: of the sum). */
static graphc_status gradients(TrainGraph *t, const Loss *loss, Value share, Value *grad) {
    Graph *g = t->g;
    Value dy = loss->dy;
    const Type *ty = graph_type(g, loss->y);
    if (!dy) dy = build_full(g, build_scalar_f(g, ty->dtype, 1), ty->rank, ty->dim);
    if (share) dy = build_binary(g, OP_mul, dy, build_cast(g, share, ty->dtype));
    GC_TRY(grad_build(g, 1, &loss->y, &dy, t->params.n, t->params.v, grad));
    for (uint32_t i = 0; i < t->params.n; i++)
        if (grad[i]) grad[i] = build_cast(g, grad[i], DT_f32);
    return diag_status(g->diags);
}

/* One parameter's step: its moments are states beside it, of its name and the moment's. */
static void update(TrainGraph *t, const Optimizer *o, const OptimizerStep *step, uint32_t number,
                   Value grad) {
    Graph *g = t->g;
    Value param = t->params.v[number];
    Type type = *graph_type(g, param);
    Value moment[OPTIMIZER_MAX_STATES], next[OPTIMIZER_MAX_STATES + 1];
    type.dtype = DT_f32;
    for (uint32_t i = 0; i < optimizer_states(o); i++) {
        const char *name =
            arena_printf(g->arena, "%s.%s", state_name(g, param), optimizer_state_name(o, i));
        moment[i] = build_state(g, name, type, (Constant){.name = name});
        vec_push(g->arena, &t->moments, ((TrainState){name, number + 1}));
    }
    optimizer_update(g, o, step, build_cast(g, param, DT_f32), grad, moment, next);
    build_write(g, param, build_cast(g, next[0], graph_type(g, param)->dtype));
    for (uint32_t i = 0; i < optimizer_states(o); i++) build_write(g, moment[i], next[i + 1]);
}

/* Parameters that the loss does not depend on stay as they are, and are named. */
static uint32_t keep_trained(TrainGraph *t, Value *grad) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->params.n; i++) {
        if (grad[i]) {
            t->params.v[n] = t->params.v[i];
            grad[n++] = grad[i];
        } else {
            (void)diag(t->g->diags, D_NO_GRADIENT, state_name(t->g, t->params.v[i]),
                       "the loss does not depend on it");
        }
    }
    return t->params.n = n;
}

/* The ways to run it, as sets. */
typedef struct Entries {
    uint32_t step, evaluate, accumulate; /* accumulate: 0 where there is none */
} Entries;

static Entries entries_of(Graph *g, const TrainSpec *s) {
    Entries e = {.step = build_entry(g, "step"), .evaluate = build_entry(g, "evaluate")};
    if (s->accumulate) e.accumulate = build_entry(g, "accumulate");
    return e;
}

/* What a step learns from: x, or what batches since the last step came to: accumulate adds x, a
 * step forgets it. */
static Value held(TrainGraph *t, const Entries *e, const char *name, uint32_t param, Value x) {
    if (!e->accumulate) return x;
    Graph *g = t->g;
    const Type type = *graph_type(g, x);
    Value sum = build_state(g, name, type, (Constant){.name = name});
    vec_push(g->arena, &t->gradients, ((TrainState){name, param}));
    build_in(g, e->accumulate);
    build_write(g, sum, build_binary(g, OP_add, sum, x));
    build_in(g, e->step);
    build_write(g, sum, build_full(g, build_scalar_f(g, type.dtype, 0), type.rank, type.dim));
    return sum;
}

/* What a step gives, and what all entries give that take a batch. */
static void outputs(Graph *g, const Loss *loss, Value mean, Value norm, const Entries *e) {
    g->outputs.n = 0; /* the model's own would have to be stored */
    build_in(g, e->step);
    build_output(g, "loss", mean);
    build_output(g, "grad_norm", norm);
    build_in(g, (e->accumulate ? e->accumulate : e->step) | e->evaluate);
    build_output(g, "loss_sum", loss->sum);
    build_output(g, "loss_weight", loss->weight);
    build_in(g, 0);
}

static void updates(TrainGraph *t, const Optimizer *o, const Value *grad, Value norm) {
    Graph *g = t->g;
    Value lr = scalar_input(g, "lr", DT_f32), number = scalar_input(g, "step", DT_i64);
    OptimizerStep step = optimizer_step(g, o, lr, number);
    Value clip = o->clip > 0 ? optimizer_clip(g, o, norm) : 0;
    for (uint32_t i = 0; i < t->params.n; i++) {
        Value d = clip ? build_binary(g, OP_mul, grad[i], clip) : grad[i];
        update(t, o, &step, i, d);
    }
}

graphc_status train_build(const Graph *model, const TrainSpec *s, TrainGraph *out) {
    *out = (TrainGraph){0};
    if (s->documents) GC_TRY(graph_keep_documents(model, &model));
    GC_TRY(parameters(model, s, out));
    Graph *g = out->g;
    Loss loss;
    GC_TRY(loss_build(g, &s->loss, &loss));
    out->loss = loss.y;
    out->target = s->loss.operand[1];
    const Entries e = entries_of(g, s);
    Value sum = held(out, &e, "loss_sum", 0, loss.sum),
          weight = held(out, &e, "loss_weight", 0, loss.weight), share = share_of(g, weight);
    Value *grad = ARENA_ARRAY(g->arena, Value, out->params.n);
    GC_TRY(gradients(out, &loss, s->accumulate ? 0 : share, grad));
    uint32_t n = keep_trained(out, grad);
    for (uint32_t i = 0; s->accumulate && i < n; i++) {
        const char *name = arena_printf(g->arena, "%s.grad", train_name(out, i));
        grad[i] = build_binary(g, OP_mul, held(out, &e, name, i + 1, grad[i]), share);
    }
    Value norm = optimizer_norm(g, n, grad);
    build_in(g, e.step);
    updates(out, &s->optimizer, grad, norm);
    outputs(g, &loss, build_binary(g, OP_mul, sum, share), norm, &e);
    return diag_status(g->diags);
}
