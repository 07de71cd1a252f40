/* Optimizer steps, appended to a graph as core ops: from a parameter, its gradient and its moments
 * to their next values. Everything is f32; step and learning rate are scalars of the graph, so that
 * one plan serves every schedule.
 *
 * Sources: SGD as torch.optim.SGD (Sutskever et al. 2013, without dampening); AdamW as Loshchilov
 * and Hutter 2019, with torch's order of operations; Lion, Chen et al. 2023; AdamW with moments in
 * 8 bits as bitsandbytes has it (blockwise.h), which decays weights behind the step, not before.
 * Parameters of fewer than OPTIMIZER_LEAST_8BIT elements keep moments of f32 there, as it does. */
#ifndef GRAPH_GRAD_OPTIMIZER_H
#define GRAPH_GRAD_OPTIMIZER_H

#include "graph/ir/ir.h"

typedef enum OptimizerKind {
#define OPTIMIZER(name, states, options) OPTIMIZER_##name,
#include "graph/grad/update/optimizer.def"
#undef OPTIMIZER
    OPTIMIZER_KINDS
} OptimizerKind;

#define OPTIMIZER_MAX_STATES 4
#define OPTIMIZER_LEAST_8BIT 4096

typedef struct Optimizer {
    OptimizerKind kind;
    double beta1, beta2, eps, weight_decay, momentum;
    bool nesterov;
    double clip; /* bound of the global norm of all gradients; 0: none */
} Optimizer;

/* The optimizer's own defaults; false if there is none of that name. */
bool optimizer_default(const char *name, Optimizer *out);
const char *optimizer_name(OptimizerKind kind);
/* Whether it is one that this optimizer has: "beta1", "weight-decay". */
bool optimizer_reads(const Optimizer *o, const char *option);
/* What an optimizer keeps of a parameter, all of it zeros in the beginning. */
typedef struct OptimizerState {
    const char *name; /* "m", "v"; their scales, where they have 8 bits: "m.absmax", "v.absmax" */
    Type type;
} OptimizerState;
/* Lists that of a parameter of this type: how many there are. */
uint32_t optimizer_states(const Optimizer *o, ExprPool *p, const Type *param, OptimizerState *out);

/* The square root of the sum of squares of all elements of n gradients: an f32 scalar. */
Value optimizer_norm(Graph *g, uint32_t n, const Value *grad);
/* What gradients are multiplied by, an f32 scalar, so that their norm is at most `clip`. */
Value optimizer_clip(Graph *g, const Optimizer *o, Value norm);

/* Scalars that all parameters of a step share. lr: f32 scalar; step: i64 scalar, 1 in the first. */
typedef struct OptimizerStep {
    Value lr;     /* f32 */
    Value rate;   /* f32: adamw's lr / (1 - beta1^step) */
    Value unbias; /* f32: adamw's 1 / sqrt(1 - beta2^step) */
    Value fine;   /* bool: the step counts, or everything stays as it was; 0: it always does */
} OptimizerStep;
OptimizerStep optimizer_step(Graph *g, const Optimizer *o, Value lr, Value step);
/* `next` where the step counts. */
Value optimizer_choose(Graph *g, const OptimizerStep *s, Value next, Value before);

/* state: as optimizer_states lists them. next[0] is the parameter's next value, f32 as param and
 * grad are, if the step counts; next[1..] those of its states, chosen. The former is made of the
 * latter: one kernel stores them all. */
void optimizer_update(Graph *g, const Optimizer *o, const OptimizerStep *s, Value param, Value grad,
                      const Value *state, Value *next);

#endif
