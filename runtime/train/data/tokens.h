/* Documents of tokens from files, all checked when they are added: no wrong id or label is met
 * later.
 *
 *   .bin    ids of 16 or 32 bits one after the other; `end`, if there is one, ends a document
 *   .npy    integers: one axis as .bin, or two axes, each row a document
 *   .jsonl  a document a line: {"input_ids": [..], "labels": [..], "attention_mask": [..]}; labels
 *           (one per id, TOKENS_IGNORE where nothing is to be learnt) and mask may be left out,
 * other members are passed over; ids whose mask is 0, at either end, are left out others  plain
 * text: each byte is an id, each file a document
 *
 * .bin, .npy and text stay mapped, .jsonl is held in memory. Positions count the tokens of all
 * files one after the other. */
#ifndef TRAIN_DATA_TOKENS_H
#define TRAIN_DATA_TOKENS_H

#include "runtime/base/dtype.h"
#include "runtime/base/file.h"
#include "runtime/error.h"

#define TOKENS_IGNORE (-100)

typedef enum TokenFormat { /* auto: by the name's end; .bin has u16 where the vocabulary allows */
                           TOKENS_auto,
                           TOKENS_u16,
                           TOKENS_u32,
                           TOKENS_npy,
                           TOKENS_jsonl,
                           TOKENS_text
} TokenFormat;

typedef struct TokenOptions {
    int64_t vocabulary; /* ids are below it */
    int64_t end;        /* the id that ends a document of .bin and .npy; negative: there is none */
    TokenFormat format;
} TokenOptions;

typedef struct TokenSpan { /* positions */
    uint64_t start, length;
} TokenSpan;

typedef struct TokenSource { /* one file */
    uint64_t start, length;
    FileMap map;
    const void *ids; /* of `dtype`, in the map or in `owned` */
    DType dtype;
    int32_t *labels; /* NULL: the ids themselves */
    void *owned;
} TokenSource;

typedef struct Tokens {
    TokenSource *sources;
    TokenSpan *documents; /* in the order of the files */
    uint64_t nsources, ndocuments, room, ntokens;
} Tokens;

void tokens_init(Tokens *t);
/* One more file. After a failure (GRAPHC_INVALID for what the file holds, GRAPHC_IO, GRAPHC_USAGE
 * for options) nothing was added. The message has line or token and what is wrong, not the path. */
GRAPHC_MUST_USE graphc_status tokens_add(Tokens *t, const char *path, const TokenOptions *o,
                                         ErrorText e);
void tokens_free(Tokens *t);

/* n ids and labels from a position on, within one document; either may be NULL. */
void tokens_copy(const Tokens *t, uint64_t start, uint64_t n, int64_t *ids, int64_t *labels);

/* Parts documents into those to learn from and those held out: documents drawn with the seed until
 * the held-out ones have `fraction` of all tokens; of the last one the end is taken as far as it is
 * needed, so that a single document can be parted too. Arrays from malloc. */
typedef struct TokenSplit {
    TokenSpan *train, *held;
    uint64_t ntrain, nheld;
} TokenSplit;
GRAPHC_MUST_USE graphc_status tokens_split(const Tokens *t, double fraction, uint64_t seed,
                                           TokenSplit *out, ErrorText e);
void token_split_free(TokenSplit *s);

#endif
