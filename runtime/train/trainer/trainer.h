/* Behind graphc_train.h: a session of a training plan, with what its entries take besides the
 * batch. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "runtime/graphc_train.h"
#include "runtime/train/data/order.h"
#include "runtime/train/tensor.h"
#include "runtime/train/trainer/feed.h"

#define TRAINER_WEIGHTS "model.safetensors" /* in a folder, of a plan without adapters */

struct graphc_trainer {
    const graphc_plan *plan;
    graphc_session *session;
    bool owns;            /* the session */
    uint64_t seed, steps; /* steps: done */
    uint32_t part;        /* batches since the last one */
    float lr;             /* what the plan's scalars are bound to */
    int64_t number, generator;
    int32_t step, evaluate, accumulate; /* numbers of entries; accumulate: -1 where there is none */
    char error[1024];
};

struct graphc_data {
    Feed feed;
    Order order;
};

/* A session that stays the caller's, in whose states the model lies. *t must stay where it is. Its
 * message is in t->error. */
GRAPHC_MUST_USE graphc_status trainer_open(graphc_trainer *t, const graphc_plan *p,
                                           graphc_session *s, uint64_t seed);
static inline ErrorText trainer_error(graphc_trainer *t) {
    return (ErrorText){t->error, sizeof t->error};
}
/* The session's message becomes the trainer's. */
graphc_status trainer_failed(graphc_trainer *t, graphc_status st);
/* Parts of graphc_trainer_step and graphc_trainer_accumulate: what is between a beginning and its
 * end may go on beside a GPU. */
GRAPHC_MUST_USE graphc_status trainer_begin_step(graphc_trainer *t, double lr);
GRAPHC_MUST_USE graphc_status trainer_end_step(graphc_trainer *t, graphc_train_result *out);
GRAPHC_MUST_USE graphc_status trainer_begin_part(graphc_trainer *t);
GRAPHC_MUST_USE graphc_status trainer_end_part(graphc_trainer *t);
/* The mean loss over the rows of f, each once. */
GRAPHC_MUST_USE graphc_status trainer_evaluate(graphc_trainer *t, Feed *f, double *loss);
bool trainer_scaled(const graphc_trainer *t); /* Are gradients of the plan scaled? */

#endif
