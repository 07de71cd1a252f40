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

typedef struct Loss {
    Value sum, weight;
    Value most; /* what weight is where all is supervised and weighs 1: f32 scalar */
    Value y, dy; /* d sum / d y, f32 of y's shape; dy = 0: ones */
} Loss;

/* "logits" or "cross_entropy(logits, labels, ignore=-100, smoothing=0.1)". Whether the operands
 * exist is loss_build's to say. D_USAGE where the text is none of that. */
graphc_status loss_parse(Arena *a, DiagSink *d, const char *text, LossSpec *out);

/* Appends the loss to g. The second operand may be an output, an input, or a name that is new: then
 * it becomes an input of the shape and type that the loss needs (labels: i64, one for each row).
 * D_USAGE or D_SHAPE where operands are missing or do not fit together. */
graphc_status loss_build(Graph *g, const LossSpec *s, Loss *out);

#endif
