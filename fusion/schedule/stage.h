/* The last stages. Take kernels (Group.kernel) over buffers; give the Schedule. */
#ifndef FUSION_STAGE_H
#define FUSION_STAGE_H

#include "fusion/fuse.h"

/* schedule.c: appends the graph's steps to the schedule, by all stages in turn. */
graphc_status fuse_run(Fuse *f);
/* explain.c: a Refusal for each kernel that reads what it could have computed. */
void fuse_explain(Fuse *f);
/* memory.c: first and last use of each buffer; what is overwritten in place. All steps are known.
 */
void fuse_lifetimes(Fuse *f);

#endif
