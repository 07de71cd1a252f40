#include "graph/grad/train.h"
#include "graph/build/build.h"
#include "graph/grad/grad.h"
#include "graph/grad/head.h"
#include "graph/grad/layer.h"
#include "graph/pass/pass.h"

#include "runtime/base/map.h"
#include <math.h>
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
        const LoraLayer *l = &t->lora.v.v[i];
        vec_push(model->arena, &t->params, l->a);
        vec_push(model->arena, &t->params, l->b);
        if (l->magnitude) vec_push(model->arena, &t->params, l->magnitude);
    }
    for (uint32_t i = 0; i < t->lora.whole.n; i++)
        vec_push(model->arena, &t->params, t->lora.whole.v[i].state);
    return GRAPHC_OK;
}

/* What the target holds where it holds labels. */
static void name_target(TrainGraph *t, const LossSpec *s) {
    const Type *y = graph_type(t->g, t->loss);
    t->target = s->operand[1];
    t->labels = s->kind == LOSS_cross_entropy;
    if (!t->labels) return;
    t->ignored = s->ignore;
    if (!expr_is_const(t->g->exprs, y->dim[y->rank - 1], &t->classes)) t->classes = 0;
}

static const char *state_name(const Graph *g, Value state) {
    return g->states.v[graph_node(g, state)->attr.input.index].name;
}

const char *train_name(const TrainGraph *t, uint32_t i) {
    return state_name(t->g, t->params.v[i]);
}

/* What the model itself writes, the first `n` of all writes, moves in what these entries run, if
 * the batch came to a number. */
static void keep_buffers(TrainGraph *t, uint32_t n, Value loss, uint32_t entries) {
    Graph *g = t->g;
    Value number = build_binary_f(g, OP_lt, build_unary(g, OP_abs, loss), INFINITY);
    for (uint32_t i = 0; i < n; i++) {
        StateWrite *w = &g->writes.v[i];
        const StateInfo *s = &g->states.v[w->state];
        w->value = build_select(g, number, w->value, s->value);
        w->entries = entries;
        vec_push(g->arena, &t->buffers, ((TrainState){s->name, 0}));
    }
}

static Value scalar_input(Graph *g, const char *name, DType t) {
    return build_input(g, name, (Type){.dtype = t});
}

/* 1 / weight, and 0 where nothing is supervised: such a step changes nothing by its gradients. */
static Value share_of(Graph *g, Value weight) {
    Value zero = build_scalar_f(g, DT_f32, 0), some = build_binary(g, OP_lt, zero, weight);
    return build_select(g, some, build_unary(g, OP_recip, weight), zero);
}

/* The loss's sum, and where its gradients begin; times `factor` (0: 1). */
static Value sum_and_seeds(TrainGraph *t, const TrainSpec *s, const LossOperands *o, Value factor,
                           LossSeeds *seeds) {
    Graph *g = t->g;
    Head head;
    if (s->loss.kind == LOSS_cross_entropy &&
        head_find(g, o->y, s->head_rows, s->processors, t->params.v, t->params.n, &head))
        return head_loss(g, &head, &s->loss, o, factor, seeds);
    const Loss loss = loss_of(g, &s->loss, o);
    loss_seed(g, seeds, loss.y, loss_cotangent(g, &loss, factor));
    return loss.sum;
}

/* d loss / d parameter for each, in f32. */
static graphc_status gradients(TrainGraph *t, const LossSeeds *s, Value *grad) {
    Graph *g = t->g;
    GC_TRY(grad_build_held(g, s->y.n, s->y.v, s->dy.v, t->params.n, t->params.v, grad,
                           t->lora.held.n, t->lora.held.v));
    for (uint32_t i = 0; i < t->params.n; i++)
        if (grad[i]) grad[i] = build_cast(g, grad[i], DT_f32);
    return diag_status(g->diags);
}

/* Nodes that are made from now on are of no ONNX node. */
static void place(Graph *g, const char *what, const char *of, LocPart part) {
    build_at(
        g,
        build_loc_new(
            g, (LocInfo){.node = -1, .op = what, .name = of, .output = "", .part = (uint8_t)part}));
}

/* One parameter's step: what the optimizer keeps of it are states beside it. */
static void update(TrainGraph *t, const Optimizer *o, const OptimizerStep *step, uint32_t number,
                   Value grad) {
    Graph *g = t->g;
    const Value param = t->params.v[number];
    const Type type = *graph_type(g, param);
    OptimizerState kept[OPTIMIZER_MAX_STATES];
    Value state[OPTIMIZER_MAX_STATES], next[OPTIMIZER_MAX_STATES + 1];
    const uint32_t n = optimizer_states(o, g->exprs, &type, kept);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = arena_printf(g->arena, "%s.%s", state_name(g, param), kept[i].name);
        state[i] = build_state(g, name, kept[i].type, (Constant){.name = name});
        vec_push(g->arena, &t->moments, ((TrainState){name, number + 1}));
    }
    optimizer_update(g, o, step, build_cast(g, param, DT_f32), grad, state, next);
    build_write(g, param, optimizer_choose(g, step, build_cast(g, next[0], type.dtype), param));
    for (uint32_t i = 0; i < n; i++) build_write(g, state[i], next[i + 1]);
}

/* Which parameters' weights decay. */
typedef struct Decay {
    bool vectors, some;
    regex_t spared;
    bool matched; /* some parameter's name */
} Decay;

static graphc_status decay_open(const TrainGraph *t, const char *no_decay, Decay *out) {
    *out = (Decay){.vectors = no_decay && !strcmp(no_decay, "vectors")};
    if (!no_decay || out->vectors) return GRAPHC_OK;
    out->some = !regcomp(&out->spared, no_decay, REG_EXTENDED);
    return out->some ? GRAPHC_OK
                     : diag(t->g->diags, D_USAGE, "--no-decay", "\"%s\" is no regular expression",
                            no_decay);
}

static bool decays(const TrainGraph *t, Decay *d, uint32_t i) {
    if (d->vectors) return graph_type(t->g, t->params.v[i])->rank > 1;
    const bool spared = d->some && layer_matches(&d->spared, train_name(t, i));
    d->matched |= spared;
    return !spared;
}

/* Names a parameter that has no gradient, and why. */
static void name_untrained(const TrainGraph *t, Value param) {
    const Graph *g = t->g;
    const Value end = grad_end(g, t->loss, param);
    const char *name = state_name(g, param);
    if (end)
        (void)diag(g->diags, D_NO_GRADIENT, name,
                   "what the loss makes of it ends at %s (%s), whose derivative is zero or none",
                   graph_place(g, graph_node(g, end)->loc, g->arena),
                   op_info[graph_node(g, end)->op].name);
    else
        (void)diag(g->diags, D_NO_GRADIENT, name, "the loss does not depend on it");
}

/* Parameters that have no gradient stay as they are, and are named. */
static uint32_t keep_trained(TrainGraph *t, Value *grad) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->params.n; i++) {
        if (grad[i]) {
            t->params.v[n] = t->params.v[i];
            grad[n++] = grad[i];
        } else {
            name_untrained(t, t->params.v[i]);
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
static void outputs(Graph *g, Value sum, Value weight, Value mean, Value norm, Value scale,
                    const Entries *e) {
    g->outputs.n = 0; /* the model's own would have to be stored */
    build_in(g, e->step);
    build_output(g, "loss", mean);
    build_output(g, "grad_norm", norm);
    if (scale) build_output(g, "loss_scale", scale);
    build_in(g, (e->accumulate ? e->accumulate : e->step) | e->evaluate);
    build_output(g, "loss_sum", sum);
    build_output(g, "loss_weight", weight);
    build_in(g, 0);
}

/* A parameter learns from grad[i] times `factor` (0: 1). */
static graphc_status updates(TrainGraph *t, const TrainSpec *s, const Guard *guard,
                             const Value *grad, Value factor) {
    Graph *g = t->g;
    const Optimizer *o = &s->optimizer;
    Value lr = scalar_input(g, "lr", DT_f32), number = scalar_input(g, "step", DT_i64);
    OptimizerStep step = optimizer_step(g, o, lr, guard_number(g, guard, number));
    step.fine = guard->fine;
    Decay decay;
    GC_TRY(decay_open(t, s->no_decay, &decay));
    for (uint32_t i = 0; i < t->params.n; i++) {
        place(g, "Step", train_name(t, i), PART_update);
        Optimizer own = *o;
        if (!decays(t, &decay, i)) own.weight_decay = 0;
        Value d = factor ? build_binary(g, OP_mul, grad[i], factor) : grad[i];
        update(t, &own, &step, i, d);
    }
    if (!decay.some) return GRAPHC_OK;
    regfree(&decay.spared);
    if (decay.matched) return GRAPHC_OK;
    return diag(g->diags, D_USAGE, "--no-decay", "\"%s\" is no trained parameter's whole name",
                s->no_decay);
}

/* 0: 1 */
static Value times(Graph *g, Value x, Value factor) {
    return !x || !factor ? x | factor : build_binary(g, OP_mul, x, factor);
}

/* What is divided by: batches of a step share it. */
typedef struct Shares {
    Value share;  /* 1 / weight of all that a step takes */
    Value factor; /* of cotangents, ... */
    Value back;   /* ... and what makes gradients those of the mean loss. It is no part of them: a
                     product a tensor would have to be stored or computed twice. 0: 1 */
} Shares;

static Shares shares_of(Graph *g, bool accumulate, const Guard *guard, const LossWeight *w,
                        Value all) {
    Shares s = {.share = share_of(g, all)};
    /* Scaled gradients of a sum would need another scale than those of a mean. */
    Value most = guard->scale ? w->most : 0, part = most ? build_unary(g, OP_recip, most) : 0;
    s.factor = guard_scaled(g, guard, accumulate ? part : s.share);
    s.back = guard_unscaled(g, guard, accumulate ? times(g, s.share, most) : 0);
    return s;
}

static graphc_status hold_gradients(TrainGraph *t, const Entries *e, Value *grad) {
    const uint32_t n = keep_trained(t, grad);
    if (!n)
        return diag(t->g->diags, D_GRADIENT, "", "nothing that is to be trained has a gradient");
    for (uint32_t i = 0; e->accumulate && i < n; i++) {
        const char *name = arena_printf(t->g->arena, "%s.grad", train_name(t, i));
        grad[i] = held(t, e, name, i + 1, grad[i]);
    }
    return GRAPHC_OK;
}

static graphc_status name_taken(const Graph *g, MapStr *taken, const char *name) {
    uint32_t seen;
    if (mapstr_get(taken, name, &seen))
        return diag(g->diags, D_UNSUPPORTED, name,
                    "the model and its training, or two parts of the model, call something so: "
                    "rename it");
    return mapstr_put(taken, name, 0), GRAPHC_OK;
}

/* States and inputs are found by name, in plans and in checkpoints. */
static graphc_status check_names(const Graph *g) {
    MapStr *states = mapstr_create(g->arena), *inputs = mapstr_create(g->arena);
    for (uint32_t i = 0; i < g->states.n; i++) GC_TRY(name_taken(g, states, g->states.v[i].name));
    for (uint32_t i = 0; i < g->inputs.n; i++) GC_TRY(name_taken(g, inputs, g->inputs.v[i].name));
    return GRAPHC_OK;
}

graphc_status train_build(const Graph *model, const TrainSpec *s, TrainGraph *out) {
    *out = (TrainGraph){0};
    if (s->documents) GC_TRY(graph_keep_documents(model, &model));
    GC_TRY(parameters(model, s, out));
    Graph *g = out->g;
    LossOperands o;
    place(g, "Loss", "", PART_forward);
    GC_TRY(loss_operands(g, &s->loss, &o));
    out->loss = o.y;
    name_target(out, &s->loss);
    const Entries e = entries_of(g, s);
    out->forward = e.evaluate;
    const uint32_t nwrites = g->writes.n;
    const LossWeight w = loss_weigh(g, &s->loss, &o);
    Guard guard = guard_begin(g, &s->guard, o.y);
    const Value weight = held(out, &e, "loss_weight", 0, w.weight);
    const Shares share = shares_of(g, s->accumulate, &guard, &w, weight);
    Value *grad = ARENA_ARRAY(g->arena, Value, out->params.n);
    LossSeeds seeds = {0};
    const Value own = sum_and_seeds(out, s, &o, share.factor, &seeds);
    keep_buffers(out, nwrites, own, e.accumulate ? e.accumulate : e.step);
    const Value sum = held(out, &e, "loss_sum", 0, own);
    GC_TRY(gradients(out, &seeds, grad));
    GC_TRY(hold_gradients(out, &e, grad));
    place(g, "Gradients", "", PART_update);
    Value norm = times(g, optimizer_norm(g, out->params.n, grad), share.back);
    Value clip = s->optimizer.clip > 0 ? optimizer_clip(g, &s->optimizer, norm) : 0;
    Value mean = build_binary(g, OP_mul, sum, share.share);
    build_in(g, e.step);
    guard_judge(g, &guard, mean, norm);
    Value factor = guard_factor(g, &guard, times(g, share.back, clip));
    GC_TRY(updates(out, s, &guard, grad, factor));
    outputs(g, own, w.weight, mean, norm, guard.scale, &e);
    GC_TRY(check_names(g));
    return diag_status(g->diags);
}
