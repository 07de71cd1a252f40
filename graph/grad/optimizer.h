/* Optimizer steps, appended to a graph as core ops: from a parameter, its gradient and its moments
 * to their next values. Everything is f32; step and learning rate are scalars of the graph, so that
 * one plan serves every schedule.
 *
 * Sources: SGD as torch.optim.SGD (Sutskever et al. 2013, without dampening); AdamW as Loshchilov
 * and Hutter 2019, with torch's order of operations; Lion, Chen et al. 2023. */
#ifndef GRAPH_GRAD_OPTIMIZER_H
#define GRAPH_GRAD_OPTIMIZER_H

#include "graph/ir/ir.h"

typedef enum OptimizerKind {
#define OPTIMIZER(name, states, params) OPTIMIZER_##name,
#include "graph/grad/optimizer.def"
#undef OPTIMIZER
    OPTIMIZER_KINDS
} OptimizerKind;

#define OPTIMIZER_MAX_STATES 2

typedef struct Optimizer {
    OptimizerKind kind;
    double beta1, beta2, eps, weight_decay, momentum;
    bool nesterov;
    double clip; /* bound of the global norm of all gradients; 0: none */
} Optimizer;

/* The optimizer's own defaults; false if there is none of that name. */
bool optimizer_default(const char *name, Optimizer *out);
/* How many moments a parameter has, and what they are called ("m", "v"). */
uint32_t optimizer_states(const Optimizer *o);
const char *optimizer_state_name(const Optimizer *o, uint32_t i);

/* The square root of the sum of squares of all elements of n gradients: an f32 scalar. */
Value optimizer_norm(Graph *g, uint32_t n, const Value *grad);
/* What gradients are multiplied by, an f32 scalar, so that their norm is at most `clip`. */
Value optimizer_clip(Graph *g, const Optimizer *o, Value norm);

/* Scalars that all parameters of a step share. lr: f32 scalar; step: i64 scalar, 1 in the first. */
typedef struct OptimizerStep {
    Value lr;     /* f32 */
    Value rate;   /* f32: adamw's lr / (1 - beta1^step) */
    Value unbias; /* f32: adamw's 1 / sqrt(1 - beta2^step) */
} OptimizerStep;
OptimizerStep optimizer_step(Graph *g, const Optimizer *o, Value lr, Value step);

/* next[0] is the parameter's next value, next[1..] those of its moments; all f32 of one shape. */
void optimizer_update(Graph *g, const Optimizer *o, const OptimizerStep *s, Value param, Value grad,
                      const Value *moment, Value *next);

#endif
