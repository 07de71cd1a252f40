/* A plan whose hashes are right again, whatever was changed: what is behind them is tried, too. */
#ifndef TESTS_FUZZ_REHASH_H
#define TESTS_FUZZ_REHASH_H
#include "runtime/base/map.h"
#include "runtime/plan.h"

/* The section table has to lie within bytes. */
static inline void rehash(uint8_t *bytes) {
    PlanHeader *h = (PlanHeader *)(void *)bytes;
    PlanSection *t = (PlanSection *)(void *)(h + 1);
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++)
        t[i].hash = hash_bytes(bytes + t[i].offset, t[i].size, i);
    h->hash = plan_header_hash(h, t);
}
#endif
