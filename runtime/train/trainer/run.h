/* A whole run: the loop (loop.h) over a plan, batches from files, what is written at the end. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "runtime/train/loop.h"
#include "runtime/train/trainer/feed.h"

typedef struct RunOptions {
    FeedOptions feed, eval; /* eval: nothing is held out where it has no files */
    uint32_t accumulate;    /* batches of a step; 1 unless the plan accumulates */
    uint64_t eval_every;    /* steps; 0: at the end alone */
    RateSchedule schedule;  /* its steps, warm-up and decay follow from these: */
    uint64_t steps;         /* 0: as many as the epochs take */
    double epochs;
    double warmup, decay; /* steps; below 1 a part of all */
    uint64_t save_every;  /* steps between checkpoints; 0: at the end alone */
    uint32_t skip; /* steps in a row that may change nothing, their loss or gradients being no
                      finite numbers; 0: none, or as many as a loss scale takes to settle */
    /* From now on looks at what kernels write in runs of the session, and says in `out` what first
     * is no finite number; NULL: no more. `look` NULL: nobody does. */
    void (*look)(void *context, graphc_session *s, char *out, size_t size);
    void *look_context;
    uint32_t patience;    /* evaluations without a better loss that end the run; 0: none do */
    bool resume;          /* goes on with the run in the folder */
    const SafePair *said; /* options that are the same when a run goes on */
    uint32_t nsaid;
    uint64_t seed;
    const char *folder; /* for all that is written; it is there */
    const char *config; /* what config.json there is to hold */
    bool json;          /* a line a step on standard output */
} RunOptions;

/* Runs all steps (loop.h says what it writes). A caller that blocks SIGINT has the loop end with a
 * checkpoint, after the step at hand, where one came. GRAPHC_USAGE: the folder has a run that is
 * not to go on; GRAPHC_MISMATCH: it was started with other options; GRAPHC_RUNTIME where the loss
 * is no number: the message names the step. */
GRAPHC_MUST_USE graphc_status train_run(const RunOptions *o, const graphc_plan *plan,
                                        graphc_session *s, LoopEnd *end, ErrorText e);

#endif
