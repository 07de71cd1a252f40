/* What rows share: a row, its team, and how its elements are dealt out. parts.c, unless said. */
#ifndef CODEGEN_NVPTX_ROW_H
#define CODEGEN_NVPTX_ROW_H

#include "codegen/nvptx/gpu.h"

#define ROW_MAX_PIECES   8
#define ROW_MOST_PIECES  64 /* of rows in groups */
#define ROW_MOST_BROUGHT 2
#define ROW_COPY_ALIGN   16 /* of addresses and sizes that the copy engine takes */

typedef struct RowPlan {
    Team team;
    int lane;           /* axis of the vectors, or -1: e->lanes is 1 */
    uint32_t axes;      /* held: what every pass walks */
    uint32_t pieces;    /* held: vectors that each thread keeps */
    int64_t part;       /* held: vectors of a row that are this block's; 0: all */
    LLVMValueRef first; /* of these (i64); NULL: 0 */
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
/* Joins the operand of fold v here into acc; where `live` is off it does not count. */
void row_fold(const RowPlan *r, KVal v, LLVMValueRef live, LLVMValueRef *acc);
/* The team's results of a pass's folds become known in the current scope. */
void row_results(const RowPlan *r, const Pass *p, LLVMValueRef *acc);
/* Stores of a pass that walks nothing. */
void row_store_once(const RowPlan *r, const Pass *p);

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
    EmitScope *scope[ROW_MOST_PIECES];
    LLVMValueRef live[ROW_MOST_PIECES]; /* NULL: the vector is inside of the row in every thread */
    LLVMValueRef at[ROW_MOST_PIECES];   /* number of the vector in its row (i64) */
    uint32_t left;                      /* of what was brought, so many places have results */
} Held;
void row_place(Held *h);
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

/* long.c */
#define ROW_MOST_STEPS 8 /* vectors of a thread that are asked for together */
#define ROW_MOST_KEPT  4
#define ROW_MOST_FIXED 4
#define ROW_RESERVED   2048 /* bytes of shared memory: of the system, and where teams meet */
typedef struct Long Long;
struct Long {
    RowPlan *r;
    uint32_t axis, steps;
    Expr length,
        offset; /* elements of a row; resolved index of its first, or 0: rows are whole vectors */
    uint32_t line; /* elements of what the first vector begins: a line of memory, or a vector */
    LLVMValueRef head, count, tail;  /* elements in front, vectors, elements behind */
    LLVMValueRef first_vector;       /* in turns: of the row's, the block's first; else NULL */
    LLVMValueRef own_head, own_tail; /* of these elements, those that the block takes */
    KVal lead, under;                /* folds of one walk; 0: there are none such */
    KVal mean;                       /* squares around it are under its sum; 0: another pair */
    uint32_t nkept;
    KVal kept[ROW_MOST_KEPT];
    uint32_t slot[ROW_MOST_KEPT];     /* byte in shared memory of the first vector */
    uint32_t threads, blocks, shared; /* of a block; of a multiprocessor, at least; bytes */
    int64_t room;     /* vectors that are kept; those of a thread are its own in every walk */
    bool all_kept;    /* of every row */
    bool across;      /* row_has_across */
    uint32_t first;   /* number of the first pass behind the first walk */
    uint32_t chunk;   /* copied: vectors that come together; 0: threads load what is kept */
    uint32_t bars;    /* copied: byte in shared memory of the chunks' barriers */
    bool turns;       /* copied: a block takes row after row; ... */
    uint32_t ring;    /* ... its memory holds so many chunks, a row's at least; ... */
    uint32_t cluster; /* ... so many blocks share each of them; else 1 */
    const Long *next; /* in turns: rows behind, which are asked for in ... */
    const Pass *last; /* ... the last walk of this one, ... */
    LLVMValueRef end; /* ... how many there are, and who takes them, in ... */
    const struct Claims *claims;
    LLVMValueRef turn; /* ... the block's turn of this number (i32); NULL: before the first */
    LLVMValueRef place, phase; /* of the row's first chunk: where in the ring it is, and the parity
                                  of  its barrier (i32); NULL: 0 */
    uint32_t folders; /* by roles: warps that fold rows; else 0: all threads fold and finish them */
    uint32_t teams;   /* of that many warps, which fold and finish; else 0 */
    /* by roles: byte in shared memory of the barriers of places that are left, ... */
    uint32_t left;
    uint32_t made; /* ... and of those that have results, where ... */
    bool back;     /* ... these take the place of what they are made from, and are copied out */
    bool leaves;   /* by roles: behind this walk nobody needs a chunk */
    uint32_t nfixed;
    KVal fixed[ROW_MOST_FIXED];        /* by roles: what all rows read alike, and ... */
    uint32_t fixed_at[ROW_MOST_FIXED]; /* ... the byte where the block's part of it is kept */
};
/* Chooses threads, vectors and what is kept; false: the row is short, or not of that shape. */
bool row_long(RowPlan *r, Long *l);
/* An access that is made anew for every row, and walks it. */
bool row_is_load(const Long *l, KVal v);
/* Elements in front of the first vector of the row that the current scope stands at, its vectors,
 * and elements behind the last (parts.c, as the next three). */
void row_measure(Long *l);
/* The row's axis to vector number `at` of the row. */
void row_bind_long(const Long *l, LLVMValueRef at);
/* Vectors of a block's part of a row of that length, as many as may be: whole lines. */
int64_t row_room(const Long *l, int64_t length);
uint32_t row_bytes(const Gpu *g, KVal v);      /* of an element of value v where it is kept */
void row_place_kept(Long *l, int64_t vectors); /* slots in shared memory */
uint32_t row_long_steps(const Long *l); /* vectors of a thread at a time from shared memory */

/* walk.c: the row, pass by pass. What a walk does with what is kept; KEEP_wait: it loads what the
 * copy engine brings. */
typedef enum Keep { KEEP_nothing, KEEP_store, KEEP_wait, KEEP_load } Keep;
void row_run_long(Long *l);
/* What a thread has folded so far: of each fold of the pass, then what is under one of them and how
 * many elements it has. Vectors, but for such a pair. */
typedef struct Folds {
    const Pass *p;
    uint32_t n;
    LLVMValueRef acc[ROWS_MAX_FOLDS + 2];
} Folds;
Folds row_folds_begin(const Long *l, const Pass *p, uint32_t lanes);
void row_fold_own_lanes(const Long *l, Folds *f);     /* vectors become scalars */
void row_long_results(const Long *l, const Folds *f); /* known in the current scope */
/* Vectors lo to hi: whole turns of the team, and what is left. */
void row_walk(const Long *l, Folds *f, Keep keep, LLVMValueRef lo, LLVMValueRef hi);
/* Vectors that came, in scopes of their own: what is kept of vector `at`, one of the chunk from
 * `first` on; n of them join folds; one is stored where `live` is not NULL and off. */
void row_take_kept(const Long *l, LLVMValueRef at, LLVMValueRef first);
void row_fold_vectors(const Long *l, EmitScope **scope, LLVMValueRef *live, uint32_t n, Folds *f);
void row_store_vector(const Long *l, LLVMValueRef live, const Pass *p);
/* Single elements, from number `from` on, a thread each, in a scope that they are bound in. */
typedef struct RowEdges {
    EmitScope *scope;
    LLVMValueRef live;
} RowEdges;
RowEdges row_edges(const Long *l, uint32_t from);
void row_edges_request(const Long *l, const RowEdges *x, const Pass *p); /* the row's own loads */
void row_edges_walk(const Long *l, const RowEdges *x, Folds *f);

/* under.c: two folds in one walk. */
void row_find_under(Long *l, bool squares); /* and the number of the first pass behind the walk */
bool row_has_under(const Long *l, const Pass *p);
TeamPair row_under_begin(const Long *l);
/* The elements of n scopes join t; live[u]: NULL, or where vector u counts. */
void row_fold_under(const Long *l, EmitScope **scope, LLVMValueRef *live, uint32_t n, TeamPair *t);
Team row_team_under(const Long *l, const Pass *p); /* the row's team, which joins such pairs */
LLVMValueRef row_under_result(const Long *l, LLVMValueRef lead, LLVMValueRef under);

/* copied.c: the copy engine brings what is kept of a row, all of it asked for at once. */
bool row_can_copy(const Long *l);
bool row_copies(Long *l);                        /* from here on, if what is kept can come so */
void row_copy(const Long *l, LLVMValueRef room); /* asks for vectors 0 to room */
void row_wait_copied(const Long *l, LLVMValueRef at); /* for the chunk that vector `at` begins */
void row_copy_begin(const Long *l);                   /* in turns: the barriers, before all else */
void row_copy_first(const Long *l); /* asks for as much of a block's first rows as it holds */
void row_copy_next(const Long *l, LLVMValueRef at); /* all threads have the chunk from vector `at`
                                         on in registers: one of a row behind takes its place */
void row_copy_rest(const Long *l); /* in the places of chunks that this row does not reach */
/* Place in the ring of the chunk from vector `at` on (i32); *parity, where asked for: its
 * barrier's. */
LLVMValueRef row_chunk_place(const Long *l, LLVMValueRef at, LLVMValueRef *parity);
/* In turns: place and phase of the row behind one that has these. */
void row_chunks_behind(const Long *l, LLVMValueRef *place, LLVMValueRef *phase);
uint32_t row_chunks(const Long *l); /* of a row */
uint32_t
row_ahead(const Long *l); /* in turns: how many rows behind the current one are asked for */
void row_copy_to_left(const Long *l); /* by roles: one thread asks for the row's chunks, each as
                                         soon as its place is left */
void row_leave_chunk(const Long *l, LLVMValueRef at); /* by a warp that needs its part no more */
void row_leave_rest(const Long *l);                   /* chunks that this row does not reach */
bool row_can_store(const Long *l, const Pass *p);     /* its results in the place of what is kept */
/* One thread copies the row's results out, chunk by chunk as they are made, and leaves each one's
 * place when the next one is on its way. first (i1): no row was before. */
void row_copy_back(const Long *l, const Pass *p, LLVMValueRef first);

/* across.c: what all rows read alike, where rows start at any element. Pieces of 16 bytes that have
 * any of a vector's elements are in the buffer. */
bool row_has_across(const Long *l);
void row_load_across(const Long *l, const Pass *p); /* all of the pass, for the current vector */

bool row_is_across(const Long *l, KVal v);
/* By roles: the copy engine brings n vectors of number i of what is fixed, from number `at` on, in
 * the pieces that they lie in; the bytes of these (i32). bar: NULL: nothing is asked for. */
LLVMValueRef row_ask_fixed(const Long *l, uint32_t i, LLVMValueRef at, LLVMValueRef n,
                           LLVMValueRef bar);
/* The current vector, number `at`, of the pieces that came. */
LLVMValueRef row_fixed_pieces(const Long *l, uint32_t i, LLVMValueRef at);
/* Where vector `at` of number i of what is fixed is kept, and all of it that p takes. */
LLVMValueRef row_fixed_at(const Long *l, uint32_t i, LLVMValueRef at);
void row_take_fixed(const Long *l, const Pass *p, LLVMValueRef at);

/* roles.c: warps of a block with roles of their own. */
bool row_roles(Long *l, uint32_t cluster); /* false: not possible; l is as it was then */
void row_run_roles(Long *l);

/* teams.c: teams of warps that take rows in turns and hold them in registers. */
bool row_teams(Long *l, uint32_t cluster); /* false: not possible; l is as it was then */
void row_run_teams(Long *l);

/* claims.c: rows that blocks in turns, or clusters of them, take as they get through. */
typedef struct Claims {
    Gpu *g;
    uint32_t cluster, ahead;    /* turns between a row's becoming known and its own, at most */
    LLVMValueRef counter;       /* address of the count (i64) */
    LLVMValueRef cells, bars;   /* shared memory: rows of turns, barriers across a cluster (i32) */
    LLVMValueRef is_one, leads; /* the thread that asks for chunks; that of the cluster's first */
    LLVMValueRef first, groups, last; /* row of the first turn, clusters, last row (i32) */
} Claims;
#define ROW_MOST_AHEAD 6
/* By all threads, which meet before the first turn: rows from 0 on, of which this cluster begins
 * with `first` (i64). */
Claims row_claims(const Long *l, uint32_t ahead, LLVMValueRef first, LLVMValueRef groups,
                  LLVMValueRef rows);
/* By all threads at the begin of a turn (i32): what the turn before claimed is known to all blocks
 * that share rows, and one more row is claimed, which has not come yet; and what the first one
 * finds. */
LLVMValueRef row_claim(const Claims *c, LLVMValueRef turn, LLVMValueRef claimed);
LLVMValueRef row_claimed_first(const Claims *c);
/* Behind row_claim: the row (i64) that the cluster takes `behind` turns behind this one. Of a
 * single block by the thread that asks for chunks, or behind a meeting of all. turn: NULL: before
 * the first. */
LLVMValueRef row_claimed(const Claims *c, LLVMValueRef turn, LLVMValueRef behind);

/* turns.c: blocks, or clusters of them, that stay and take row after row. */
bool row_turns(Long *l, uint32_t cluster); /* false: not possible; l is as it was then */
void row_run_turns(Long *l);

#endif
