/* The loop of training: which rows, at which rate, what is said, evaluated and kept. What a step
 * computes is the model's: a session of a training plan behind four functions.
 *
 * Everything that a step depends on follows from the options, the step's number and the model's
 * state: a run that is killed at any moment goes on from its last checkpoint with the same losses,
 * bit for bit. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "runtime/error.h"
#include "runtime/train/safetensors.h"
#include "runtime/train/schedule.h"
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct LoopStep {
    uint64_t step; /* from 1 on */
    double lr;
    const uint64_t *rows; /* of the data: batch of the first part, of the second .. */
    const uint64_t *next; /* those of the next step, or NULL: not known, or there is none */
    uint32_t batch, accumulate;
} LoopStep;

typedef struct LoopResult {
    double loss;      /* over all parts, each supervised token alike */
    double grad_norm; /* before clipping */
    uint64_t tokens;  /* learnt from */
    uint64_t peak_bytes;
    double loss_scale; /* 0: there is none */
} LoopResult;

typedef struct LoopModel {
    void *self;
    /* One update from all parts. With a loss or norm that is not finite the state must be as
     * before. */
    graphc_status (*step)(void *self, const LoopStep *s, LoopResult *out, ErrorText e);
    graphc_status (*evaluate)(void *self, double *loss, ErrorText e); /* on what was held out */
    /* All state, written through file.h. */
    graphc_status (*save)(void *self, const char *path, ErrorText e);
    graphc_status (*load)(void *self, const char *path, ErrorText e);
    /* Of a step whose loss or norm is not finite: what first made such a number, in words of at
     * most `size` bytes; none where it cannot be told. NULL: nobody looks. */
    void (*blame)(void *self, const LoopStep *s, const LoopResult *r, char *out, size_t size);
} LoopModel;

typedef struct LoopOptions {
    uint64_t rows; /* of the data */
    uint32_t batch, accumulate;
    uint64_t seed;
    bool shuffle;
    RateSchedule schedule; /* .steps is how long the loop runs */
    uint64_t eval_every,
        save_every;    /* steps; 0: at the end only, else evaluated before the first, too */
    uint64_t held;     /* which data evaluations are of: a hash; 0: none */
    uint32_t keep;     /* checkpoints, besides the best one */
    uint32_t patience; /* evaluations without a better loss that end the run; 0: none do */
    uint32_t skip;     /* steps in a row whose loss is not finite that are passed over; 0: the first
                          one ends the run */
    const char *folder, *title;
    bool resume;
    const char *config;      /* what folder/config.json is to hold; NULL: there is none */
    const SafePair *options; /* what has to be the same when a run goes on */
    uint32_t noptions;
    FILE *json, *progress;             /* NULL: none */
    const volatile sig_atomic_t *stop; /* not 0: keep a checkpoint and end; NULL: nobody asks */
} LoopOptions;

typedef struct LoopEnd {
    uint64_t step; /* how many are done, in all */
    double loss;   /* of the last evaluation, else of the last step; NaN: there was none */
    double best_loss;
    bool early, stopped; /* ended by patience; by request */
    uint64_t left_out;   /* held-out rows that no evaluation took (train_run) */
} LoopEnd;

/* GRAPHC_USAGE: the folder has a run already, and it is not to go on. loop_run says so, too; asked
 * before a plan is made it costs nobody's time. */
GRAPHC_MUST_USE graphc_status loop_check_folder(const char *folder, bool resume, ErrorText e);
/* Runs to the end. Writes folder/config.json, log.jsonl, log.html and checkpoints. GRAPHC_USAGE:
 * options, another process trains there, or the folder has a run already and it is not to go on:
 * that one stays as it is. GRAPHC_MISMATCH: it was started with other options; GRAPHC_RUNTIME: a
 * loss that is not finite. After an error the last checkpoint is whole. */
GRAPHC_MUST_USE graphc_status loop_run(const LoopModel *m, const LoopOptions *o, LoopEnd *end,
                                       ErrorText e);

#endif
