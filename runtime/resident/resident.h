/* What the files of a resident share. */
#ifndef RUNTIME_RESIDENT_RESIDENT_H
#define RUNTIME_RESIDENT_RESIDENT_H

#include "runtime/session.h"

/* Is it of that kind, and used? */
static inline bool resident_is(const Resident *r, uint32_t buffer, PlanBufferKind kind) {
    const PlanBuffer *b = &r->buffers[buffer];
    return b->kind == (uint32_t)kind && b->first <= b->last;
}

/* constants.c: the address of one that kernels read; of the lane's prepare steps, or NULL. */
graphc_status resident_load(Resident *r, Lane *lane, uint32_t buffer, ErrorText e);

/* stage.c. Is the constant, which was found, to be read into the stage? */
bool stage_takes(const Resident *r, uint32_t buffer);
graphc_status stage_read(Resident *r, Lane *lane, uint32_t buffer, const uint8_t **bytes,
                         ErrorText e);
static inline bool stage_holds(const Resident *r, uint32_t buffer) {
    return r->stage.held && r->stage.buffer == buffer;
}
/* What is read is in this file from now on. */
void stage_file(Resident *r, int fd, const void *mapped);
/* Around all prepare steps. */
void stage_open(Resident *r);
void stage_close(Resident *r);

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
