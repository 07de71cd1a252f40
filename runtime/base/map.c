/* Hash maps: entries in insertion order, found through an open-addressing table of entry numbers
 * (0 = free) that is kept at most half full. Nothing is ever removed. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/base/map.h"
#include "runtime/base/vec.h"
#include <string.h>

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) {
    return XXH3_64bits_withSeed(p, n, seed);
}

typedef struct Index {
    uint32_t *slot;
    uint32_t mask; /* slots - 1; 0 when there is no table yet */
} Index;

/* splitmix64's finaliser: keys are often small consecutive numbers. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void index_insert(Index *ix, uint64_t hash, uint32_t entry) {
    uint32_t i = (uint32_t)hash & ix->mask;
    while (ix->slot[i]) i = (i + 1) & ix->mask;
    ix->slot[i] = entry + 1;
}

/* True when a table for n+1 entries was just made, empty: the caller fills it. */
static bool index_grow(Index *ix, Arena *a, uint32_t n) {
    if (ix->mask && 2 * (uint64_t)(n + 1) <= ix->mask) return false;
    uint32_t slots = ix->mask ? (ix->mask + 1) * 2 : 16;
    ix->slot = ARENA_ARRAY(a, uint32_t, slots);
    ix->mask = slots - 1;
    return true;
}

typedef struct EntryU64 {
    uint64_t key;
    uint32_t value;
} EntryU64;

struct MapU64 {
    Arena *arena;
    Index index;
    VEC(EntryU64) e;
};

MapU64 *map_create(Arena *a) {
    MapU64 *m = ARENA_NEW(a, MapU64);
    m->arena = a;
    return m;
}

static EntryU64 *find_u64(const MapU64 *m, uint64_t key) {
    if (!m->index.mask) return NULL;
    for (uint32_t i = (uint32_t)mix(key) & m->index.mask; m->index.slot[i];
         i = (i + 1) & m->index.mask) {
        EntryU64 *e = &m->e.v[m->index.slot[i] - 1];
        if (e->key == key) return e;
    }
    return NULL;
}

bool map_get(const MapU64 *m, uint64_t key, uint32_t *out) {
    const EntryU64 *e = find_u64(m, key);
    if (!e) return false;
    *out = e->value;
    return true;
}

void map_put(MapU64 *m, uint64_t key, uint32_t value) {
    EntryU64 *e = find_u64(m, key);
    if (e) {
        e->value = value;
        return;
    }
    if (index_grow(&m->index, m->arena, m->e.n))
        for (uint32_t i = 0; i < m->e.n; i++) index_insert(&m->index, mix(m->e.v[i].key), i);
    index_insert(&m->index, mix(key), m->e.n);
    vec_push(m->arena, &m->e, ((EntryU64){key, value}));
}

typedef struct EntryStr {
    const char *key;
    uint64_t hash;
    uint32_t value;
} EntryStr;

struct MapStr {
    Arena *arena;
    Index index;
    VEC(EntryStr) e;
};

MapStr *mapstr_create(Arena *a) {
    MapStr *m = ARENA_NEW(a, MapStr);
    m->arena = a;
    return m;
}

static EntryStr *find_str(const MapStr *m, const char *key, uint64_t hash) {
    if (!m->index.mask) return NULL;
    for (uint32_t i = (uint32_t)hash & m->index.mask; m->index.slot[i];
         i = (i + 1) & m->index.mask) {
        EntryStr *e = &m->e.v[m->index.slot[i] - 1];
        if (e->hash == hash && !strcmp(e->key, key)) return e;
    }
    return NULL;
}

bool mapstr_get(const MapStr *m, const char *key, uint32_t *out) {
    const EntryStr *e = find_str(m, key, hash_bytes(key, strlen(key), 0));
    if (!e) return false;
    *out = e->value;
    return true;
}

void mapstr_put(MapStr *m, const char *key, uint32_t value) {
    uint64_t hash = hash_bytes(key, strlen(key), 0);
    EntryStr *e = find_str(m, key, hash);
    if (e) {
        e->value = value;
        return;
    }
    if (index_grow(&m->index, m->arena, m->e.n))
        for (uint32_t i = 0; i < m->e.n; i++) index_insert(&m->index, m->e.v[i].hash, i);
    index_insert(&m->index, hash, m->e.n);
    vec_push(m->arena, &m->e, ((EntryStr){arena_strdup(m->arena, key), hash, value}));
}
