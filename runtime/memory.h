/* Arena offsets for one binding of the symbols: buffers whose lifetimes do not overlap share bytes.
 */
#ifndef RUNTIME_MEMORY_H
#define RUNTIME_MEMORY_H

#include "runtime/plan.h"

typedef struct MemoryPlan MemoryPlan;

MemoryPlan *memory_create(const Plan *p, const PlanTarget *t); /* NULL: out of memory */
void memory_destroy(MemoryPlan *m);
/* Places the temporaries of these steps for these slot values; allocates nothing. */
graphc_status memory_assign(MemoryPlan *m, PlanRange steps, const int64_t *slots, ErrorText e);
/* The same for sizes that follow others: what still fits stays where it is, and what grew has room
 * for an eighth more, so that sizes that rise from run to run seldom move anything. The arena may
 * be larger than memory_assign's then (is loose). */
graphc_status memory_reassign(MemoryPlan *m, PlanRange steps, const int64_t *slots, ErrorText e);
bool memory_is_loose(const MemoryPlan *m);
uint64_t memory_offset(const MemoryPlan *m, uint32_t buffer); /* of a temporary that owns storage */
uint64_t memory_arena(const MemoryPlan *m);                   /* bytes of the whole arena */
uint64_t memory_live(const MemoryPlan *m); /* most bytes alive at one step: no arena is smaller */
/* Largest scratch that one thread needs in any of these steps. */
uint64_t memory_scratch(const Plan *p, const PlanTarget *t, PlanRange steps, const int64_t *slots);

#endif
