/* What warps with roles have in common: rows that blocks, or pairs of them, take in turns. Which
 * warp does what is said by roles.c and teams.c. */
#ifndef CODEGEN_NVPTX_ROLES_ROLES_H
#define CODEGEN_NVPTX_ROLES_ROLES_H

#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/long.h"

enum { ROLE_SLOTS = 16 }; /* rows of which a block may have folds; see shape.c */

/* What the roles have in common. Bytes in shared memory, of: */
typedef struct Roles {
    Long *l;
    const Pass *first, *last;      /* the walk that folds, and the one that stores */
    uint32_t parts_come, are_done; /* barriers of each slot, */
    uint32_t fixed_comes;          /* one barrier, */
    uint32_t next_comes, next;     /* barriers of each slot, i32 of [slot]: the row behind, */
    LLVMValueRef counter;          /* i32 of [remainder]: rows that blocks have asked for */
    uint32_t parts, results;       /* f32 of [slot][value][warp], [slot][value], */
    uint32_t values;               /* of a row */
    HV warp;                       /* of the block, i32 */
    Expr groups, rows;
} Roles;

typedef struct Turn {
    EmitLoop loop; /* carries the turn's number, the row's place and phase */
    RowPlan role;  /* its threads as a team */
    Long row;
    HV slot, phase; /* i32; of the slot's barriers */
    HV claimed;     /* i32; rows of this remainder that were asked for before: of who fetches */
} Turn;

/* shape.c. What shape a kernel has whose rows blocks, or clusters of them, may take in turns
 * by roles: false: not of that one. Then how much of a row a block has, and, when its warps and
 * chunks are chosen, where all is in shared memory: false: the ring would not hold so many tenths
 * of a row. */
bool role_shape(Long *l, uint32_t cluster);
void role_room(Long *l);
bool role_place(Long *l, uint32_t tenths);
/* Slots and their barriers from this byte on: their places in x; the byte behind them. */
uint32_t role_lay_out_slots(const Long *l, uint32_t at, Roles *x);
/* Rows that are so many apart start at the same remainder of a vector: a multiple of that many; 0:
 * there is no such number. */
uint32_t role_period(const Long *l);
/* Vectors by which what all rows read alike may lie further on under one row than under another. */
uint32_t role_most_shift(const Long *l);
uint32_t role_parts(const Long *l); /* warps that fold a row */

/* turns.c. Launches; then barriers: n from this byte on, one behind the other, each passed by
 * so many arrivals, and all others that every way has, which is where all threads meet and wait for
 * the kernel in front. */
Roles role_begin(Long *l);
void role_init(const Roles *x, uint32_t at, uint32_t n, uint32_t count);
void role_init_rest(const Roles *x);
HV role_shared(const Roles *x, uint32_t at); /* shared address of this byte */
HV role_lane(const Roles *x);
/* Where the warp is one of n from number `first` on. */
LLVMValueRef role_is(const Roles *x, uint32_t first, uint32_t n);
LLVMValueRef role_first(const Roles *x); /* number of the block, or of those that share rows */
/* All rows of the block, by n warps of which this thread is number `rank`, which walk a chunk
 * together. */
void role_turns_begin(const Roles *x, Turn *t, LLVMValueRef rank, uint32_t n);
void role_turns_of(const Roles *x, Turn *t, uint32_t first, uint32_t n); /* from warp `first` on */
void role_turns_end(const Roles *x, Turn *t);
void role_fetch(const Roles *x, uint32_t warp); /* by one thread of that warp: all chunks */
/* The slot's: its barrier of those from this byte on; address of value number i, as warp `warp` of
 * all blocks' folders has it, or NULL: the result; what stands there. */
HV role_slot_barrier(const Roles *x, uint32_t bars, const Turn *t);
HV role_value(const Roles *x, const Turn *t, uint32_t i, HV warp);
LLVMValueRef role_read_value(Emit *e, HV at);
/* By the warps that fold: what a warp has goes to all blocks that share the row; by a warp of each:
 * all that came, a lane each. */
void role_send(const Roles *x, const Turn *t, const LLVMValueRef *v);
Folds role_receive(const Roles *x, const Turn *t, LLVMValueRef leads);

/* fixed.c. By a warp; then by so many threads, of which this is number `rank`: what all rows
 * read alike is kept. */
void role_ask_fixed(const Roles *x);
void role_keep_fixed(const Roles *x, LLVMValueRef rank, uint32_t by);

#endif
