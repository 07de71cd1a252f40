/* Buffers: which there are, and how large at most. Takes decided groups; gives Schedule.buffers and
 * the buffer numbers in Stored. Who shares storage is decided later (schedule/memory.c). */
#ifndef FUSION_BUFFERS_H
#define FUSION_BUFFERS_H

#include "fusion/fuse.h"

GraphIo fuse_own_io(Fuse *f); /* of the whole graph: buffers that the run binds */
void fuse_buffers(Fuse *f);
uint32_t fuse_buffer_of(Fuse *f, Value v);              /* number; made now for a constant */
void fuse_own_buffer(Fuse *f, Value v);                 /* as most values have: one of its own */
DType fuse_stored_type(const Fuse *f, Value v);         /* of its elements there */
uint32_t fuse_temp(Fuse *f, const Type *t, Value node); /* 1 + number of a new one */
void fuse_bound(Fuse *f, uint32_t sym, Expr most);      /* notes a RunBound */
/* The most iterations that a loop's trip count allows, or 0 when only the run can tell. */
Expr fuse_trip_bound(const Fuse *f, const Control *loop);

#endif
