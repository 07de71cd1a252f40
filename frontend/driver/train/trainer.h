/* The training loop over a plan: batches, steps, the log, what is written at the end. */
#ifndef FRONTEND_DRIVER_TRAIN_TRAINER_H
#define FRONTEND_DRIVER_TRAIN_TRAINER_H

#include "frontend/driver/train/feed.h"
#include "runtime/train/adapter/adapter.h"
#include "runtime/train/safetensors.h"
#include "runtime/train/schedule.h"

/* A state that is learnt. */
typedef struct TrainerParam {
    const char *state, *file_name; /* in the plan; in the file that is written */
    double
        spread; /* starts as uniform numbers within it, drawn from the seed; 0: as the plan says */
} TrainerParam;

typedef struct TrainerOptions {
    FeedOptions feed, eval; /* eval: nothing is held out where it has no files */
    uint32_t accumulate;    /* batches of a step */
    uint64_t eval_every;    /* steps; 0: at the end alone */
    RateSchedule schedule;  /* its steps, warm-up and decay follow from these: */
    uint64_t steps;         /* 0: as many as the epochs take */
    double epochs;
    double warmup, decay; /* steps; below 1 a part of all */
    uint64_t save_every;  /* steps between checkpoints; 0: at the end alone */
    uint32_t patience;    /* evaluations without a better loss that end the run; 0: none do */
    bool resume;          /* goes on with the run in the folder */
    const SafePair *said; /* options that are the same when a run goes on */
    uint32_t nsaid;
    uint64_t seed;
    const char *folder;  /* for all that is written; it is there */
    const AdapterConfig *adapter; /* of what is learnt, or NULL: weights, */
    const char *const *modules;   /* with the paths of adapted modules */
    uint32_t nmodules;
    const TrainerParam *params;
    uint32_t nparams;
    bool json; /* a line a step on standard output */
} TrainerOptions;

/* Runs all steps (runtime/train/loop.h says what it writes). A caller that blocks SIGINT has the
 * loop end with a checkpoint, after the step at hand, where one came. GRAPHC_USAGE: the folder has a run
 * that is not to go on; GRAPHC_MISMATCH: it was started with other options; GRAPHC_RUNTIME where
 * the loss is no number: the message names the step. */
GRAPHC_MUST_USE graphc_status trainer_run(const TrainerOptions *o, const graphc_plan *plan,
                                          graphc_session *s, ErrorText e);

#endif
