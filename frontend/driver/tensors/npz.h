/* NumPy's .npz: a zip archive of .npy files, stored or deflated. Every offset and size is checked
 * before use; what is unpacked is no more than deflate can have packed. */
#ifndef FRONTEND_DRIVER_NPZ_H
#define FRONTEND_DRIVER_NPZ_H

#include "runtime/base/arena.h"
#include "runtime/base/vec.h"
#include "runtime/error.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct NpzEntry {
    const char *name; /* without ".npy" */
    const uint8_t *data;
    uint64_t packed, size; /* bytes in the file; unpacked */
    uint32_t method, crc;  /* 0: stored, 8: deflated; of the unpacked bytes */
} NpzEntry;
typedef VEC(NpzEntry) NpzEntries;

bool npz_is(const uint8_t *bytes, uint64_t n);
/* The archive's entries, in its order; their bytes stay where they are. */
GRAPHC_MUST_USE graphc_status npz_list(Arena *a, const uint8_t *bytes, uint64_t n, NpzEntries *out,
                                       ErrorText e);
/* An entry's bytes: in the archive, or unpacked into the arena. */
GRAPHC_MUST_USE graphc_status npz_unpack(Arena *a, const NpzEntry *entry, const uint8_t **out,
                                         ErrorText e);

#endif
