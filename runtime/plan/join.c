/* A plan that differs from another in some sections. */
#include "runtime/base/map.h"
#include "runtime/plan.h"
#include <stdlib.h>
#include <string.h>

void plan_parts(const Plan *p, PlanPart out[PLAN_SEC_COUNT]) {
    const PlanSection *table = (const PlanSection *)(const void *)(p->header + 1);
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++)
        out[i] = (PlanPart){p->bytes + table[i].offset, table[i].size};
}

static uint64_t aligned(uint64_t n) {
    return (n + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

graphc_status plan_join(const Plan *p, PlanStr weights, const PlanPart part[PLAN_SEC_COUNT],
                        void **out, uint64_t *size) {
    PlanHeader h = *p->header;
    PlanSection table[PLAN_SEC_COUNT];
    uint64_t end = sizeof h + sizeof table;
    memcpy(table, p->header + 1, sizeof table);
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++) {
        table[i].size = part[i].bytes;
        table[i].offset = aligned(end);
        end = table[i].offset + table[i].size;
    }
    uint8_t *bytes = aligned_alloc(PLAN_ALIGN, aligned(end));
    if (!bytes) return GRAPHC_NO_MEMORY;
    memset(bytes, 0, aligned(end));
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++) {
        if (table[i].size) memcpy(bytes + table[i].offset, part[i].p, table[i].size);
        table[i].hash = hash_bytes(bytes + table[i].offset, table[i].size, i);
    }
    h.weights = weights;
    h.length = end;
    h.hash = plan_header_hash(&h, table);
    memcpy(bytes, &h, sizeof h);
    memcpy(bytes + sizeof h, table, sizeof table);
    *out = bytes;
    *size = end;
    return GRAPHC_OK;
}
