/* What rows share: a row, its team, and how its elements are dealt out (parts.c, unless said); rows
 * in registers; sums that blocks take in parts. Of long rows there is more in long.h. */
#ifndef CODEGEN_NVPTX_ROW_H
#define CODEGEN_NVPTX_ROW_H

#include "codegen/nvptx/gpu.h"

#define ROW_MAX_PIECES   8  /* vectors of a thread; ... */
#define ROW_GROUP_PIECES 64 /* ... of rows in groups */
#define ROW_MOST_BROUGHT 2
#define ROW_COPY_ALIGN   16 /* of addresses and sizes that the copy engine takes */

typedef struct RowPlan {
    Team team;
    int lane;           /* axis of the vectors, or -1: e->lanes is 1 */
    uint32_t axes;      /* held: what every pass walks */
    uint32_t pieces;    /* held: vectors that each thread keeps */
    uint32_t tail;      /* held: elements of the last of these; 0: as many as of the others, ... */
    uint32_t lanes;     /* ... which are so many if it has fewer */
    int64_t part;       /* held: vectors of a row that are this block's; 0: all; ... */
    int64_t fewest;     /* ... or that the last of its blocks has, if those are fewer; 0: all are */
    LLVMValueRef first; /* of these (i64); NULL: 0 */
    LLVMValueRef count; /* of them (i64); NULL: part */
    uint32_t nbrought;  /* held: loads that the copy engine brings; 0: threads load */
    KVal brought[ROW_MOST_BROUGHT];
    bool copied_out; /* it takes results away, too */
    uint32_t group;  /* brought: rows of a block that come as one, a team each; 0: one row */
    LLVMValueRef slot, inside, here; /* of them: the team's (i32); it is there (i1), and so many are
                                        (i32), or NULL: all are */
} RowPlan;

/* Vectors (or elements) of the row over these axes. */
Expr row_vectors(const RowPlan *r, uint32_t axes);
/* In the current scope the row's axes stand at vector number `at`. */
void row_bind(const RowPlan *r, uint32_t axes, Expr at);
/* Held: an access of its own for every row. What all rows read alike comes from caches, and what a
 * fold inside of the row walks is not read once. */
bool row_is_own(const RowPlan *r, KVal v);
uint32_t row_loads(const RowPlan *r);              /* how many there are */
bool row_is_busy(const RowPlan *r, uint32_t team); /* with teams of so many threads the GPU is */
bool row_shares_most(const RowPlan *r);            /* what all rows read alike is more */
/* The copy engine can move what `o` accesses along the axis, vectors of type t from where a row's
 * vectors begin (`offset`, 0: at its first element): neighbours lie side by side, and memory has
 * them in that type. */
bool row_can_move(const Gpu *g, uint32_t axis, Expr offset, const KOp *o, DType t);
/* What all rows access lies side by side, one row behind the other, from a whole piece on. */
bool row_all_can_move(const RowPlan *r, const KOp *o, DType t);
uint32_t row_bytes(const Gpu *g, KVal v); /* of an element of value v where memory has it */
uint32_t row_bytes_of(const Gpu *g, const KVal *v, uint32_t n); /* of n of them together */
bool row_is_sent(const Gpu *g, KVal fold);     /* one f32, which blocks of a cluster can send */
const Pass *row_last_walk(const Passes *rows); /* behind which nobody needs the row; NULL: none */
/* Joins the operand of fold v here into acc; where `live` is off it does not count. */
void row_fold(const RowPlan *r, KVal v, LLVMValueRef live, LLVMValueRef *acc);
/* The team's results of a pass's folds become known in the current scope. */
void row_results(const RowPlan *r, const Pass *p, LLVMValueRef *acc);
/* Stores of a pass that walks nothing. */
void row_store_once(const RowPlan *r, const Pass *p);

/* walked.c: all of a pass, of a row that nobody holds. */
void row_walk_pass(const RowPlan *r, const Pass *p);

/* last.c: parts of a sum, each a block's. Memory of n parts of `bytes` each, for every one of
 * `groups`; who reads a part leaves zeros. */
typedef struct Parts {
    Gpu *g;
    uint32_t n;
    int64_t bytes;
    LLVMValueRef counter, base; /* of this block's group */
} Parts;
Parts row_parts(Gpu *g, uint32_t n, int64_t bytes, Expr groups, LLVMValueRef group);
LLVMValueRef row_part(const Parts *m, LLVMValueRef part, int64_t offset);
/* After the block's stores: true (i1) in the block that came last, which sees all parts. The
 * counter is zero again after that. */
LLVMValueRef row_is_last(const Parts *m);

/* held.c. Needs the lanes; chooses team and pieces, or gives false: the row is not of known
 * length, too long, or walked in different ways. */
bool row_hold(RowPlan *r);
/* Finds the axes that all passes over a row walk, folds of one accumulator each; its length is
 * known: *vectors. */
bool row_walks_alike(RowPlan *r, int64_t *vectors);
/* A team of that size could hold a row of so many vectors. */
bool row_holds(const RowPlan *r, int64_t vectors, uint32_t team);
bool row_stores_points(const RowPlan *r); /* and not only folds of the row */
#define ROW_MOST_TOGETHER 2
/* n rows (numbers among all) side by side: all of them are asked for before the first is waited
 * for. */
void row_run_held(RowPlan *r, const Expr *row, uint32_t n);
uint32_t row_traffic(const RowPlan *r); /* bytes that are read and stored of a row alone */
void row_occupy(const RowPlan *r, uint32_t threads); /* how many blocks should run at once */
/* The pieces of a row: scopes beside each other in the current one. */
typedef struct Held {
    RowPlan *r;
    EmitScope *scope[ROW_GROUP_PIECES];
    LLVMValueRef live[ROW_GROUP_PIECES]; /* NULL: the vector is inside of the row in every thread */
    LLVMValueRef at[ROW_GROUP_PIECES];   /* number of the vector in its row (i64) */
    uint32_t left;                       /* of what was brought, so many places have results */
} Held;
void row_place(Held *h);
/* Where the thread's vector u is known, of as many lanes as it has; gives what was the scope, to
 * which it goes back then. */
EmitScope *row_enter(const Held *h, uint32_t u);
void row_exit(const Held *h, EmitScope *outer);
uint32_t row_piece_lanes(const RowPlan *r, uint32_t u); /* of that vector; asked outside of it */
void row_fold_held(Held *h, const Pass *p);
void row_store_held(Held *h, const Pass *p);

/* brought.c: held rows that the copy engine brings to their block. Chooses team and pieces; false:
 * it cannot (these are as they were). */
bool row_brings(RowPlan *r);
bool row_comes(RowPlan *r); /* the loads can, by row_all_can_move if there is a group; which */
/* By coming so, beside what it was; then so many blocks should run at once. */
bool row_gains(const RowPlan *r, const RowPlan *own);
uint32_t row_brought_blocks(const RowPlan *r);
uint32_t row_brought_bytes(const RowPlan *r);           /* of shared memory */
uint32_t row_brought_row(const RowPlan *r, uint32_t i); /* bytes of load i, in one row */
/* Of a group: what all rows read alike is too much to wait in registers for them. */
bool row_brought_asks_late(const RowPlan *r);
void row_bring_begin(const RowPlan *r); /* the barrier, before all else */
void row_bring(const RowPlan *r);       /* asks for the row of the current scope */
void row_take_brought(const Held *h);   /* waits, and has it in the pieces' scopes */
void row_leave(Held *h, const Pass *p); /* copied out: the pass's results */
void row_left(const RowPlan *r);        /* shared memory may end */

/* group.c: short rows that do not begin at whole pieces of memory, several to a block, which the
 * copy engine brings as one. Needs the lanes; chooses team, pieces and group; false: it is as it
 * was. */
bool row_groups(RowPlan *r);
/* Of this thread's team, which knows its rank and place then; one that is there, which any thread
 * may read. rows: of all blocks. */
LLVMValueRef row_group_begin(RowPlan *r, Expr rows);

#endif
