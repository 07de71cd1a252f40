/* Hash maps in an arena: u64 -> u32 and string -> u32. They cannot be walked, so that nothing
 * depends on hash values. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "runtime/base/arena.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct MapU64 MapU64;
MapU64 *map_create(Arena *a);
bool map_get(const MapU64 *m, uint64_t key, uint32_t *out);
void map_put(MapU64 *m, uint64_t key, uint32_t value); /* inserts or replaces */

typedef struct MapStr MapStr;
MapStr *mapstr_create(Arena *a);
bool mapstr_get(const MapStr *m, const char *key, uint32_t *out);
void mapstr_put(MapStr *m, const char *key, uint32_t value); /* copies the key */

/* 64-bit hash of bytes (XXH3); stable across runs and machines. */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);

#endif
