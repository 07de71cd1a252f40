/* A training graph: the model with its weights or adapters as states, its loss, the gradients and
 * the optimizer's step, all as core ops. Nothing after this knows that it is training.
 *
 * Entry "step": the model's inputs, the loss's target, `lr` (f32 scalar) and `step` (i64 scalar, 1
 * in the first) -> `loss` (mean over what is supervised), `grad_norm` (of all gradients, before
 * clipping), `loss_sum` and `loss_weight` (the mean's parts), `loss_scale` where there is one.
 * Parameters and moments change in place, unless the loss is no number (guard.h). Entry "evaluate":
 * the model's inputs and the target -> `loss_sum`, `loss_weight`. Nothing changes.
 *
 * What the model itself writes (statistics of its norms) is left behind by whatever takes a batch
 * to learn from, and where it draws numbers or has another meaning in inference there is an input
 * `generator` (build_generator).
 *
 * With `accumulate` a step is two things. Entry "accumulate", of evaluate's inputs and outputs,
 * adds the batch's gradients to states "NAME.grad", its loss to states "loss_sum" and
 * "loss_weight". "step" takes no batch but what they hold, gives `loss` and `grad_norm`, and leaves
 * zeros: each supervised element counts alike, in whichever batch it was, and between the two they
 * may be summed over several machines. */
#ifndef GRAPH_GRAD_TRAIN_H
#define GRAPH_GRAD_TRAIN_H

#include "graph/grad/update/guard.h"
#include "graph/grad/lora/lora.h"
#include "graph/grad/loss.h"
#include "graph/grad/update/optimizer.h"
#include "graph/grad/trainable.h"

typedef struct TrainSpec {
    LossSpec loss;
    Optimizer optimizer;
    Trainable trainable;
    const LoraSpec *lora; /* NULL: the weights themselves */
    const char *no_decay; /* of these parameters weights do not decay: names that the expression
                             matches (POSIX), or "vectors": those of one axis, such as norms and
                             biases; NULL: all decay */
    GuardSpec guard;
    uint32_t head_rows;  /* of logits that exist at once (head.h); 0: as memory has it ... */
    uint32_t processors; /* ... and so many processors have work */
    bool accumulate;
    bool documents; /* several in one row: graph_keep_documents */
} TrainSpec;

/* A state that training adds. */
typedef struct TrainState {
    const char *name;
    uint32_t param; /* 1 + the number of the parameter that it belongs to; 0: to none */
} TrainState;

typedef struct TrainGraph {
    Graph *g;
    Value loss;         /* what the loss is of: its first operand */
    const char *target; /* the input or output that its second operand is; NULL: there is none */
    bool labels;        /* it holds labels: */
    int64_t classes;    /* ... below it; 0: how many there are is open */
    int64_t ignored;    /* ... or this one, which counts for nothing */
    uint32_t forward;   /* entries that give the loss and learn nothing, a set */
    VEC(Value) params;  /* states that are trained */
    VEC(TrainState) moments, gradients; /* gradients: of `accumulate`, and of what divides them */
    VEC(TrainState) buffers; /* what the model itself writes when it learns: statistics */
    LoraLayers lora;
} TrainGraph;

/* Needs: a graph as imported, attention raised, with initializers as states where weights are
 * trained. */
graphc_status train_build(const Graph *model, const TrainSpec *s, TrainGraph *out);
/* The name of params.v[i]. */
const char *train_name(const TrainGraph *t, uint32_t i);

#endif
