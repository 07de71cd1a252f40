#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/train/hash_stream.h"
#include <stdlib.h>

struct HashStream {
    XXH3_state_t state;
};

HashStream *hash_stream_create(void) {
    size_t align = _Alignof(HashStream);
    HashStream *h = aligned_alloc(align, (sizeof *h + align - 1) / align * align);
    if (h) XXH3_64bits_reset(&h->state);
    return h;
}

void hash_stream_add(HashStream *h, const void *p, size_t n) {
    XXH3_64bits_update(&h->state, p, n);
}

uint64_t hash_stream_value(const HashStream *h) {
    return XXH3_64bits_digest(&h->state);
}

void hash_stream_destroy(HashStream *h) {
    free(h);
}
