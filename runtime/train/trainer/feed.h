/* Batches for a training plan: what each of its inputs is given, step after step, from token files
 * or from arrays. All data is read and checked before the first batch. */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "runtime/graphc.h"
#include "runtime/train/data/arrays.h"
#include "runtime/train/data/pack.h"

typedef struct FeedOptions {
    const char *const *files; /* FILE ... of tokens, or NAME=FILE ... of arrays */
    uint32_t nfiles;
    uint32_t batch, seq;
    int64_t end;        /* the id that ends a document of .bin and .npy; negative: there is none */
    TokenFormat format; /* of .bin; auto: what the vocabulary allows */
    bool packed;        /* several documents a row */
    bool shuffle;
    uint64_t seed;
    double hold_out; /* this part of the tokens is left out, */
    bool held;       /* or is all that there is */
} FeedOptions;

/* One input of the plan and where its elements come from. */
typedef struct FeedSlot {
    uint32_t input;
    const int64_t *ids; /* of a token batch, or NULL */
    const Array *array; /* or rows of an array */
    graphc_tensor tensor;
    void *room[2]; /* of two batches: runs may still read one while the next is made */
} FeedSlot;

typedef struct Feed {
    uint32_t batch, seq;
    int64_t ignored; /* the label of what is not learnt */
    Tokens tokens;
    TokenSplit split;
    Pack pack;
    Arrays arrays;
    Batch now;       /* the batch made last, of tokens */
    uint64_t *rows;  /* of those that are taken in order; */
    uint64_t at;     /* the next of them */
    uint64_t *ahead; /* rows of the batch that was made ahead, */
    bool made;       /* if there is one */
    uint32_t turn;   /* which room the batch at hand has */
    uint64_t places; /* of that batch, without padding */
    FeedSlot *slots;
    uint32_t nslots;
} Feed;

/* Opens and checks the files. Inputs of the plan that are bound otherwise (scalars) are not asked
 * for; one that no file or field gives is GRAPHC_USAGE. The message names file and place. */
GRAPHC_MUST_USE graphc_status feed_open(Feed *f, const FeedOptions *o, const graphc_plan *plan,
                                        ErrorText e);
/* Of the batches of an open feed: what binding one would refuse. */
GRAPHC_MUST_USE graphc_status feed_check_sizes(const Feed *f, const graphc_plan *plan, ErrorText e);
void feed_close(Feed *f); /* also one that failed to open */
uint64_t feed_rows(const Feed *f);
uint64_t feed_batches(const Feed *f); /* that hold every row once; the last one may be filled up */
uint64_t feed_hash(const Feed *f);    /* of all data, wherever it lies */
/* Makes a batch of these rows and binds it; before that it may be made while a run still reads the
 * batch at hand. */
void feed_prepare(Feed *f, const uint64_t *rows);
GRAPHC_MUST_USE graphc_status feed_take(Feed *f, graphc_session *s, const uint64_t *rows);
/* Back to the first row; the next ones as they lie in the files, each once, and then padding. */
void feed_rewind(Feed *f);
GRAPHC_MUST_USE graphc_status feed_next(Feed *f, graphc_session *s);
/* Tokens of the batch at hand without padding; rows of arrays. */
uint64_t feed_tokens(const Feed *f);

#endif
