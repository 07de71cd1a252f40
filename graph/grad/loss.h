/* Losses, appended to a graph as core ops: loss.def lists them, loss.c derives each.
 *
 * A loss is a pair: the sum of what elements or rows contribute, and the weight that this sum is
 * divided by. Micro-batches add up both, so that a step over several of them equals one step over
 * all rows: a mean of means does not when some rows are ignored. Each loss states its own
 * cotangent: the derivative of cross entropy as softmax minus one-hot is shorter and more exact
 * than the chain of its parts.
 *
 * Sums and weights are f32 scalars; what they sum is computed in f32, whatever the operands' type.
 */
#ifndef GRAPH_GRAD_LOSS_H
#define GRAPH_GRAD_LOSS_H

#include "graph/ir/ir.h"

typedef enum LossKind {
    LOSS_output, /* a value of the graph as it stands: the sum of its elements, divided by 1 */
#define LOSS(name, operands, params, by, what) LOSS_##name,
#include "graph/grad/loss.def"
#undef LOSS
    LOSS_KINDS
} LossKind;

typedef struct LossSpec {
    LossKind kind;
    const char *operand[2]; /* names of outputs or inputs of the graph */
    double smoothing, z, delta;
    int64_t ignore;
    const char *class_weights; /* an input's name; NULL: all 1 */
    const float *class_weight; /* or these, nclass_weights of them */
    uint32_t nclass_weights;
} LossSpec;

typedef struct LossOperands {
    Value y, target, weights; /* weights: of classes, or 0 */
    Value picked; /* y[label], where it is known without y, which then need not last until the loss
                     is summed; 0: from y */
} LossOperands;

typedef struct Loss {
    Value sum;
    Value y, dy; /* d sum / d y, f32 of y's shape; dy = 0: ones */
} Loss;

/* Where differentiation begins: values and their gradients, of their types. */
typedef struct LossSeeds {
    VEC(Value) y, dy;
} LossSeeds;

/* What the sum is divided by: f32 scalars. */
typedef struct LossWeight {
    Value weight;
    Value most; /* what it is where all is supervised and weighs 1 */
} LossWeight;

/* "logits" or "cross_entropy(logits, labels, ignore=-100, smoothing=0.1)". Whether the operands
 * exist is loss_operands' to say. D_USAGE where the text is none of that. */
graphc_status loss_parse(Arena *a, DiagSink *d, const char *text, LossSpec *out);

/* Looks up operands, and appends what the model lacks. The second one may be an output, an input,
 * or a name that is new: then it becomes an input of the shape and type that the loss needs
 * (labels: i64, one for each row). D_USAGE or D_SHAPE where operands are missing or do not fit
 * together. */
graphc_status loss_operands(Graph *g, const LossSpec *s, LossOperands *out);
/* Appends the weight, for which y is not computed; and the loss, of operands that may be some of
 * all rows. */
LossWeight loss_weigh(Graph *g, const LossSpec *s, const LossOperands *o);
Loss loss_of(Graph *g, const LossSpec *s, const LossOperands *o);
/* d sum / d y times `factor` (0: 1), of y's type. */
Value loss_cotangent(Graph *g, const Loss *loss, Value factor);
void loss_seed(Graph *g, LossSeeds *s, Value y, Value dy);

#endif
