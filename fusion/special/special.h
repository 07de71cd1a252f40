/* Structures of their own: what they do where they are not as a map is. See KindRow for when each
 * of these is called; fuse_kinds is the table. */
#ifndef FUSION_SPECIAL_H
#define FUSION_SPECIAL_H

#include "fusion/body/body.h"

extern const KindRow fuse_kinds[GROUP_KINDS];

/* pack.c: constant right operands of contractions, prepared at load. Its forms: */
void pack_store(Fuse *f, Value dot);
void pack_lower(Body *b, const Root *r);
extern const PackForm pack_winograd; /* winograd.c */
/* pack_step.c: the number of the pack that k is, a new one or one that is there; the value of the
 * point of the step's axes, and the root itself as that value. */
uint32_t pack_make(Fuse *f, Pack *k);
void pack_put(Body *b, const Root *r, KVal x);
void pack_copy(Body *b, const Root *r);
/* pack_bits.c: `whole`, a B of few bits with scales, as what it is made of; false: it is not one */
bool pack_bits(Fuse *f, const Pack *whole, uint32_t *out);

/* concat.c: producers store into their part of the whole, or one kernel selects */
void concat_store(Fuse *f, Value v);

/* row.c: running folds, sorts, compaction, one row at a time */
void scan_store(Fuse *f, Value v);
void scan_lower(Body *b, const Root *r);
void sort_lower(Body *b, const Root *r);
void compact_store(Fuse *f, Value v);
void compact_buffers(Fuse *f, Value v);
void compact_lower(Body *b, const Root *r);

/* scatter.c */
void scatter_store(Fuse *f, Value v);
void scatter_lower(Body *b, const Root *r);

/* control.c: loops and branches */
void control_store(Fuse *f, Value v);
void control_buffers(Fuse *f, Value v);
graphc_status control_emit(Fuse *f, Group *g);

#endif
