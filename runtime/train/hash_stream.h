/* hash_bytes of runtime/base/map.h in pieces: its value for all that was added, with seed 0. */
#ifndef TRAIN_HASH_STREAM_H
#define TRAIN_HASH_STREAM_H

#include <stddef.h>
#include <stdint.h>

typedef struct HashStream HashStream;
HashStream *hash_stream_create(void); /* NULL: not enough memory */
void hash_stream_add(HashStream *h, const void *p, size_t n);
uint64_t hash_stream_value(const HashStream *h);
void hash_stream_destroy(HashStream *h); /* NULL is allowed */

#endif
