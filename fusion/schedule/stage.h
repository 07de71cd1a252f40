/* The last stages. Take kernels (Group.kernel) over buffers; give the Schedule. */
#ifndef FUSION_STAGE_H
#define FUSION_STAGE_H

#include "fusion/fuse.h"

/* writes.c: states take their next values, behind all other steps of the graph or in place. */
void fuse_writes(Fuse *f);
/* turns.c: loops that are one kernel. */
void fuse_turns(Fuse *f, Schedule *s);
/* carries.c: values that a loop carries are replaced in place where they may be. */
void fuse_carries(Fuse *f, Schedule *s);
/* share.c: what several entries prepare alike is prepared once. Gives the step that stands for
 * each. */
uint32_t *fuse_share(Schedule *s, Arena *a);
/* columns.c: kernels that walk rows, and those that sum columns of the same, in one. */
void fuse_columns(Fuse *f, Schedule *s);
/* times.c: small kernels that do the same over different buffers, in one launch. */
void fuse_times(Fuse *f, Schedule *s);
/* check.c: steps read what is there. Before fuse_lifetimes. */
graphc_status fuse_check_order(Fuse *f);
/* explain.c: a Refusal for each kernel that reads what it could have computed. */
void fuse_explain(Fuse *f);
/* memory.c: first and last use of each buffer; what is overwritten in place. All steps are known */
void fuse_lifetimes(Fuse *f);
/* Calls fn for what step t uses. */
typedef void UseFn(Schedule *s, uint32_t t, uint32_t buf, bool written, void *ctx);
void schedule_each_use(Schedule *s, uint32_t t, UseFn *fn, void *ctx);
/* The buffer at the end of an alias chain, which has the storage. */
uint32_t schedule_owner(const Schedule *s, uint32_t b);
/* The steps that use a buffer or what lies in it; all of the loop where one inside does. */
typedef struct Span {
    uint32_t first, last; /* first > last: none */
} Span;
/* Of the steps [from, to). of: by buffer; those that no step uses are left as they are. */
void schedule_spans(Schedule *s, uint32_t from, uint32_t to, Span *of);
/* May `next` be stored over `now`, which nobody needs any more by then? */
bool schedule_may_replace(const Schedule *s, const Span *of, uint32_t now, uint32_t next);
/* inline.c: what steps in front store for that one alone is computed by it; they are gone. */
void schedule_inline(Fuse *f, Schedule *s, uint32_t at, bool *gone);
/* The places that both kernels cover, each once; those computed first. */
void schedule_add_places(Arena *a, Kernel *to, const Kernel *from);
/* Drops steps; those that are left keep their order. */
void schedule_drop(Fuse *f, Schedule *s, const bool *gone);
/* A kernel that works element by element touches param `from` only where it stores to param `to`,
 * and before it does: both may be one memory. */
bool schedule_in_place(const Kernel *k, uint32_t from, uint32_t to);

#endif
