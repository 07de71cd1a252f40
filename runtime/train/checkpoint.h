/* Checkpoints: folders step-00000100 in a folder of their own, which a run fills with files of any
 * kind; checkpoint.json in each has what the run knows and a checksum of every file. A folder gets
 * its name when all in it is on the disk, and only then the file `latest` says so: a process that
 * is killed, or a disk that is full, leaves the last good checkpoint as it was. One process at a
 * time writes. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "runtime/error.h"
#include "runtime/train/safetensors.h"
#include <stdbool.h>
#include <stdint.h>

#define CHECKPOINT_STATES "state.safetensors" /* the file with all states of a session */

typedef struct CheckpointInfo {
    uint64_t step;            /* how many are done */
    uint64_t tokens;          /* learnt from so far */
    uint64_t epoch, position; /* of the next row (order.h) */
    uint64_t waiting;         /* evaluations since the best one */
    bool unmeasured;          /* the evaluation that is due after the step is still to come */
    uint64_t held;            /* which data evaluations are of: a hash; 0: none */
    double loss, best_loss;   /* of the last evaluation and of the best one; NaN: there was none */
    const SafePair *options;  /* what the run was started with */
    uint32_t noptions;
} CheckpointInfo;

/* --- writing -------------------------------------------------------------------------------- */

typedef struct CheckpointWriter {
    char *root;   /* where all checkpoints lie */
    char *folder; /* where this one's files go until it is committed */
    bool over;
} CheckpointWriter;

/* Makes the folder `root` too, and removes what a killed process left there. */
GRAPHC_MUST_USE graphc_status checkpoint_begin(CheckpointWriter *w, const char *root, ErrorText e);
/* Where to write a file of that name, from malloc; NULL: not enough memory. Files have to be
 * written through file.h, which sees to it that they are on the disk. */
char *checkpoint_path(const CheckpointWriter *w, const char *name);
/* After all files: names the folder and lets `latest`, and `best` if wanted, point to it. Replaces
 * a checkpoint of the same step. Ends the writer, whatever its status. */
GRAPHC_MUST_USE graphc_status checkpoint_commit(CheckpointWriter *w, const CheckpointInfo *info,
                                                bool best, ErrorText e);
void checkpoint_abandon(CheckpointWriter *w); /* removes its files; also one that is over */
/* Removes all but the `keep` latest and those that `latest` and `best` point to. */
GRAPHC_MUST_USE graphc_status checkpoint_prune(const char *root, uint32_t keep, ErrorText e);

/* --- reading -------------------------------------------------------------------------------- */

typedef struct Checkpoint {
    char *folder;
    CheckpointInfo info;
    char *text; /* that info.options point into */
    SafePair *options;
} Checkpoint;

bool checkpoint_any(const char *root); /* Is there one? */
/* which: "latest", "best", or a folder's name. Where `latest` is lost, or a process was killed
 * before it wrote the first one, it is the one of the most steps. Reads every file against its
 * checksum. GRAPHC_IO: there is none, or it cannot be read; GRAPHC_INVALID: it is damaged, and what
 * of it. */
GRAPHC_MUST_USE graphc_status checkpoint_open(const char *root, const char *which, Checkpoint *out,
                                              ErrorText e);
void checkpoint_close(Checkpoint *c);
/* GRAPHC_MISMATCH, naming each option with both values, unless all of them are what they were. */
GRAPHC_MUST_USE graphc_status checkpoint_match(const Checkpoint *c, const SafePair *options,
                                               uint32_t n, ErrorText e);

#endif
