/* The loss of a classifier's head, in parts: logits = x W of many classes are the largest values of
 * a language model, larger than all else that a step keeps. Rows are taken so many at a time: their
 * logits, what they add to the loss and, at once, what they add to the gradients of x and W;
 * nothing of the size of all logits exists. A head that is not trained has no gradient of W.
 *
 * Part after part in the order of nodes, which is that of execution where nothing else is said: one
 * part's logits lie where the last one's did. */
#ifndef GRAPH_GRAD_HEAD_H
#define GRAPH_GRAD_HEAD_H

#include "graph/grad/loss.h"

#define HEAD_BYTES (256 << 20) /* of all logits in f32 that are not taken apart; of a part */
#define HEAD_ROWS  1024        /* that a part has at least: it reads all of W */
#define HEAD_ALIGN 128         /* rows of a part are a multiple of it: those of a tile, ... */
#define HEAD_TILE  128 /* ... which has so many columns: every processor has one of x's gradient */
#define HEAD_STEPS 8

/* From the contraction to logits: casts, and maps with what is the same in every row. */
typedef struct HeadStep {
    Value node;    /* is done again of each part */
    Value row;     /* the other operand, a row or a single number; 0: there is none */
    bool row_left; /* it is the first one */
    bool trained;  /* a bias that learns */
} HeadStep;

typedef struct Head {
    Value dot, x, w; /* x: [rows, width], w: [width, classes] */
    bool dx, dw;     /* gradients that are wanted */
    bool turned; /* w is a table of classes, turned: so is its gradient, which is made as the table
                    is */
    HeadStep step[HEAD_STEPS];
    uint32_t nsteps;    /* the last one is done first */
    int64_t rows, part; /* in all; of a part */
} Head;

/* Are these such logits, with so many rows that parts pay (or more than `rows`, unless 0)?
 * processors: that a part should fill. params: what is trained. */
bool head_find(Graph *g, Value logits, uint32_t rows, uint32_t processors, const Value *params,
               uint32_t nparams, Head *out);

/* Appends the loss by parts: its sum, and in `seeds` the gradients of what the head is made of.
 * factor: what cotangents are multiplied by (0: nothing). */
Value head_loss(Graph *g, const Head *h, const LossSpec *s, const LossOperands *o, Value factor,
                LossSeeds *seeds);

#endif
