/* What the files of a resident share. */
#ifndef RUNTIME_RESIDENT_RESIDENT_H
#define RUNTIME_RESIDENT_RESIDENT_H

#include "runtime/session.h"

/* Is it of that kind, and used? */
static inline bool resident_is(const Resident *r, uint32_t buffer, PlanBufferKind kind) {
    const PlanBuffer *b = &r->buffers[buffer];
    return b->kind == (uint32_t)kind && b->first <= b->last;
}

/* constants.c. Where it lies, if file, constant and buffer have their lengths. */
graphc_status resident_find(Resident *r, uint32_t buffer, const uint8_t **bytes, ErrorText e);
/* Are these the bytes that the plan was made with? */
graphc_status resident_recognise(const Resident *r, uint64_t c, const uint8_t *bytes, ErrorText e);
graphc_status resident_known(const Resident *r, uint64_t c, uint64_t hash, ErrorText e);
/* The address of one that kernels read; of the lane's prepare steps, or NULL. */
graphc_status resident_load(Resident *r, Lane *lane, uint32_t buffer, ErrorText e);

/* stage.c. Is the constant, which was found, in the file that stages read? */
bool stage_has_file(const Resident *r, uint32_t buffer);
/* Reads a part of it to any memory. */
graphc_status stage_fill(const Resident *r, Lane *lane, uint32_t buffer, uint64_t at,
                         uint64_t bytes, void *to, ErrorText e);
/* Is the constant, which was found, to be read into the stage? */
bool stage_takes(const Resident *r, uint32_t buffer);
graphc_status stage_read(Resident *r, Lane *lane, uint32_t buffer, const uint8_t **bytes,
                         ErrorText e);
/* What it holds is not there any more. */
void stage_leave(Resident *r);
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
/* The same, or memory of its own for one that only prepare steps use. */
graphc_status resident_room(Resident *r, uint32_t buffer, ErrorText e);
/* Gives back what was allocated for it. */
void resident_drop(Resident *r, uint32_t buffer);
/* Runs prepare steps from *next to `to`, which *next becomes, of the order; NULL: as they stand. */
graphc_status resident_prepare(Resident *r, Lane *lane, const uint32_t *order, uint32_t *next,
                               uint32_t to, ErrorText e);

/* One of them, with all threads of the lane; its buffers stay. */
graphc_status resident_step(Resident *r, Lane *lane, uint32_t step, ErrorText e);
/* Its kernel alone, on a lane that may be another one than those of others that run meanwhile. */
typedef struct ItemRange {
    int64_t from, to; /* 0, 0: all */
} ItemRange;
graphc_status resident_launch(Resident *r, Lane *lane, uint32_t step, void *const *pointers,
                              ItemRange items, ErrorText e);
/* Behind it: pages of constants that were mapped, and buffers that no later step uses. */
void resident_pages_read(const Resident *r, Lane *lane, uint32_t step);
void resident_drop_unused(Resident *r, uint32_t step);

/* crew.c: all prepare steps, on devices that have `each`. */
graphc_status crew_prepare(Resident *r, const graphc_session_options *o, Lane *lane, ErrorText e);

/* lean.c: instead of running prepare steps once. */
graphc_status lean_open(Resident *r, const graphc_session_options *o, ErrorText e);
void lean_close(Resident *r);

#endif
