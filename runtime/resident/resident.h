/* What the files of a resident share. */
#ifndef RUNTIME_RESIDENT_RESIDENT_H
#define RUNTIME_RESIDENT_RESIDENT_H

#include "runtime/session.h"

/* Is it of that kind, and used? */
static inline bool resident_is(const Resident *r, uint32_t buffer, PlanBufferKind kind) {
    const PlanBuffer *b = &r->buffers[buffer];
    return b->kind == (uint32_t)kind && b->first <= b->last;
}

/* constants.c: the address of one that kernels read. */
graphc_status resident_load(Resident *r, uint32_t buffer, ErrorText e);

/* prepare.c. Is it a prepared buffer that runs read? */
bool resident_leaves(const Resident *r, uint32_t buffer);
/* Its place in the memory of those that stay, which the first one takes. */
graphc_status resident_place(Resident *r, uint32_t buffer, ErrorText e);
/* Gives back what was allocated for it. */
void resident_drop(Resident *r, uint32_t buffer);
/* Runs prepare steps from *next to `to`, which *next becomes, of the order; NULL: as they stand. */
graphc_status resident_prepare(Resident *r, Lane *lane, const uint32_t *order, uint32_t *next,
                               uint32_t to, ErrorText e);

/* lean.c: instead of running prepare steps once. */
graphc_status lean_open(Resident *r, const graphc_session_options *o, ErrorText e);
void lean_close(Resident *r);

#endif
