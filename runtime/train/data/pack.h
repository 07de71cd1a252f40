/* Sequences of one length from documents of any. A document of n tokens is n - 1 places, each with
 * an id and the label of the token after it; one longer than a sequence is cut without losing a
 * label. Every piece has its positions from 0 on and a document number of its own within its
 * sequence, so that attention can stay inside; what is left of a sequence is padding. */
#ifndef TRAIN_DATA_PACK_H
#define TRAIN_DATA_PACK_H

#include "runtime/train/data/tokens.h"

typedef enum PackMode {
    PACK_single, /* one piece a sequence */
    PACK_filled  /* as many as fit: longest first, each where the least room is left */
} PackMode;

typedef struct Pack {
    const Tokens *tokens;
    uint32_t length;   /* of a sequence */
    TokenSpan *pieces; /* places, those of a sequence one after the other */
    uint64_t *first;   /* nsequences + 1: the number of a sequence's first piece */
    uint64_t nsequences;
    uint64_t places, supervised; /* of all sequences, without padding; those with a label */
    uint64_t idle;               /* pieces left out since no place of theirs has a label */
} Pack;

/* The tokens must outlive the pack. GRAPHC_INVALID: there is nothing to learn from. */
GRAPHC_MUST_USE graphc_status pack_build(const Tokens *t, const TokenSpan *spans, uint64_t nspans,
                                         uint32_t length, PackMode mode, Pack *out, ErrorText e);
void pack_free(Pack *p);

/* One batch, each array rows x length; any may be NULL. */
typedef struct Batch {
    int64_t *ids, *labels; /* label TOKENS_IGNORE: nothing to learn */
    int64_t *positions;    /* 0, 1 .. within each piece */
    int64_t *documents;    /* 1, 2 .. within each sequence; 0 in padding */
    int64_t *mask;         /* 1; 0 in padding */
    uint64_t supervised;   /* places with a label */
    uint64_t places;       /* without padding */
} Batch;

#define PACK_NO_ROW UINT64_MAX /* a row that is all padding */
/* rows: numbers of sequences. pad: the id of padding. */
void pack_batch(const Pack *p, const uint64_t *rows, uint32_t nrows, int64_t pad, Batch *out);

#endif
