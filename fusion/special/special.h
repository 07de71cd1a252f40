/* Structures of their own: packed operands, concatenations, scans, sorts, scatters, loops and
 * branches. */
#ifndef FUSION_SPECIAL_H
#define FUSION_SPECIAL_H

#include "fusion/body/body.h"

/* special.c: kernels with a structure of their own. */
void special_root(Fuse *f, Value v); /* makes the group and its demands */
void special_lower(Body *b, Value v);

/* row.c: running folds, sorts, compaction */
void row_root(Fuse *f, Value v, GroupKind kind, uint32_t axis);
void row_lower(Body *b, Value v, IdxId idx);
void compact_lower(Body *b, Value v, IdxId idx);

/* scatter.c */
void scatter_root(Fuse *f, Value v);
void scatter_lower(Body *b, Value v, IdxId idx);

/* concat.c */
void fuse_store_concat(Fuse *f, Value v);

/* pack.c */
uint32_t fuse_pack(Fuse *f, Value dot); /* 1 + pack number, 0 = B is read as it comes */
Expr pack_index(Fuse *f, const Pack *k, Group *g, Value b, IdxId idx);
Expr pack_numel(Fuse *f, const Pack *k);
void pack_lower(Body *b, const Root *r);

/* winograd.c */
Expr wino_numel(Fuse *f, const Pack *k);
void wino_group(Fuse *f, Pack *k);
void wino_lower(Body *b, const Root *r);
KVal wino_pull(Body *b, const Pack *k, IdxId idx);

/* control.c: loops and branches */
void control_root(Fuse *f, Value v);
void control_buffers(Fuse *f, Value v);
graphc_status control_emit(Fuse *f, Group *g);

#endif
