/* Which kernels are the same: names, locations and the numbers that symbols happen to have do not
 * count. Equal kernels are compiled once. */
#ifndef FUSION_KIR_SET_H
#define FUSION_KIR_SET_H

#include "fusion/kir/kir.h"
#include "runtime/base/map.h"

typedef struct KirTuple {
    const uint64_t *words;
    uint32_t n, next; /* next: 1 + the next one with this hash */
} KirTuple;

typedef struct KirSet {
    Arena *arena;
    MapU64 *by_hash; /* 1 + the last one with that hash */
    VEC(KirTuple) tuples;
    uint64_t hash_mask; /* what counts of a hash: tests let all of them meet */
} KirSet;

KirSet *kir_set(Arena *a);
/* A number that two kernels of the set share exactly if they are equal; all are of one pool. */
uint32_t kir_set_add(KirSet *s, const Kernel *k, ExprPool *p);

#endif
