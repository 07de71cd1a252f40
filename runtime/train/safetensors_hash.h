/* The checksum that graphc's own files carry in their header's metadata: XXH3 over the data, then
 * over the length and the header with zeros where the digits stand. */
#ifndef TRAIN_SAFETENSORS_HASH_H
#define TRAIN_SAFETENSORS_HASH_H

#include "runtime/train/hash_stream.h"

#define SAFETENSORS_HASH_KEY    "graphc.xxh3"
#define SAFETENSORS_HASH_DIGITS 16
#define SAFETENSORS_HASH_ZEROS  "0000000000000000"

typedef struct SafeHash {
    char digits[SAFETENSORS_HASH_DIGITS + 1];
} SafeHash;

/* After the data went into h: adds the first header_size bytes of the file, digits at hash_at. */
SafeHash safetensors_hash_end(HashStream *h, const void *file, uint64_t header_size,
                              uint64_t hash_at);

#endif
