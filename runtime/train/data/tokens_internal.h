/* Between tokens.c, tokens_jsonl.c and what both add to (tokens_list.c). */
#ifndef TRAIN_DATA_TOKENS_INTERNAL_H
#define TRAIN_DATA_TOKENS_INTERNAL_H

#include "runtime/train/data/tokens.h"

/* Room for one more element of `size` bytes in *p; false: not enough memory. */
bool tokens_reserve(void *p, uint64_t n, uint64_t *room, size_t size);
/* Positions from `start` on, after those of all sources. Empty ones are not kept. */
bool tokens_add_document(Tokens *t, uint64_t start, uint64_t length);
/* Fills a source with s->start and s->map set, and adds its documents. */
graphc_status tokens_read_jsonl(Tokens *t, TokenSource *s, int64_t vocabulary, ErrorText e);

#endif
