/* Long rows: what is known of one, how it is walked, and who brings and keeps what of it. */
#ifndef CODEGEN_NVPTX_ROW_LONG_H
#define CODEGEN_NVPTX_ROW_LONG_H

#include "codegen/nvptx/row/row.h"

#define ROW_MOST_STEPS 8 /* vectors of a thread that are asked for together */
#define ROW_MOST_KEPT  4
#define ROW_MOST_FIXED 4
#define ROW_RESERVED   2048 /* bytes of shared memory: of the system, and where teams meet */
typedef struct Long Long;
struct Long {
    RowPlan *r;
    /* By row_long: the row, ... */
    uint32_t axis;
    Expr length;      /* elements */
    Expr offset;      /* resolved index of the first; 0: rows are whole vectors */
    uint32_t line;    /* elements of what the first vector begins: a line of memory, or a vector */
    bool across;      /* row_has_across */
    KVal lead, under; /* folds of one walk; 0: there are none such */
    KVal mean;        /* squares around it are under its sum; 0: another pair */
    uint32_t first;   /* number of the first pass behind the first walk */
    /* ... what is kept of it, ... */
    uint32_t nkept;
    KVal kept[ROW_MOST_KEPT];
    uint32_t slot[ROW_MOST_KEPT]; /* byte in shared memory of the first vector */
    int64_t room;  /* vectors that are kept; those of a thread are its own in every walk */
    bool all_kept; /* of every row */
    /* ... and by whom. */
    uint32_t threads, blocks, shared; /* of a block; of a multiprocessor, at least; bytes */
    uint32_t steps;                   /* vectors of a thread that are asked for together */
    /* By row_measure: elements in front of the first vector, vectors, elements behind the last; of
     * a cluster's block its part of these, which begins at `first_vector` (else NULL). */
    LLVMValueRef head, count, tail, first_vector, own_head, own_tail;
    /* Copied. */
    uint32_t chunk; /* vectors that come together; 0: threads load what is kept */
    uint32_t ring; /* chunks that shared memory has places for: a row's at least, unless by roles */
    uint32_t bars; /* byte of the places' barriers */
    /* In turns: a block takes row after row; ... */
    bool turns;
    uint32_t cluster; /* ... so many blocks share each of them; else 1 */
    const Long *next; /* rows behind, which are asked for in ... */
    const Pass *last; /* ... the last walk of this one, ... */
    LLVMValueRef end; /* ... how many there are, and who takes them, in ... */
    const struct Claims *claims;
    LLVMValueRef turn; /* ... the block's turn of this number (i32); NULL: before the first */
    LLVMValueRef place, phase; /* of the row's first chunk: where in the ring it is, and the parity
                                  of its barrier (i32); NULL: 0 */
    /* By roles. */
    uint32_t folders; /* warps that fold rows; 0: all threads fold and finish them */
    uint32_t teams;   /* of that many warps, which fold and finish; else 0 */
    uint32_t left;    /* byte of the barriers of places that are left, ... */
    uint32_t made;    /* ... and of those that have results, where ... */
    bool back;        /* ... these take the place of what they are made from, and are copied out */
    bool leaves;      /* behind this walk nobody needs a chunk */
    uint32_t nfixed;
    KVal fixed[ROW_MOST_FIXED];        /* what all rows read alike, and ... */
    uint32_t fixed_at[ROW_MOST_FIXED]; /* ... the byte where the block's part of it is kept */
};
/* long.c. Chooses threads, vectors and what is kept; false: the row is short, or not of that shape.
 */
bool row_long(RowPlan *r, Long *l);
/* long_ways.c: by whom, of all ways that can; sets the team and what the kernel asks for. */
void row_choose_long(Long *l);
/* An access that is made anew for every row, and walks it. */
bool row_is_load(const Long *l, KVal v);

/* measure.c. Elements in front of the first vector of the row that the current scope stands at, its
 * vectors, and elements behind the last. */
void row_measure(Long *l);
/* The row's axis to vector number `at` of the row. */
void row_bind_long(const Long *l, LLVMValueRef at);
/* Vectors of a block's part of a row of that length, as many as may be: whole lines. */
int64_t row_room(const Long *l, int64_t length);
void row_place_kept(Long *l, int64_t vectors); /* slots in shared memory */
uint32_t row_long_steps(const Long *l); /* vectors of a thread at a time from shared memory */
uint32_t row_most_edges(const Long *l); /* single elements of a row, in front and behind, at most */

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
/* All threads have the chunk from vector `at` on in registers: one of a row behind takes its place;
 * then the places of chunks that this row does not reach. */
void row_copy_next(const Long *l, LLVMValueRef at);
void row_copy_rest(const Long *l);
/* Place in the ring of the chunk from vector `at` on (i32); *parity, where asked for: its
 * barrier's. */
LLVMValueRef row_chunk_place(const Long *l, LLVMValueRef at, LLVMValueRef *parity);
/* In turns: place and phase of the row behind one that has these. */
void row_chunks_behind(const Long *l, LLVMValueRef *place, LLVMValueRef *phase);
uint32_t row_chunks(const Long *l); /* of a row */
uint32_t row_ahead(const Long *l);  /* in turns: rows behind the current one that are asked for */

/* What chunks.c needs of it. Shared address of this byte; the first vector of the first chunk that
 * the row does not reach, and the end of all chunks; vectors of the chunk from `at` on (i32), as
 * far as there are any; it comes to a place in the ring. */
LLVMValueRef row_shared_at(const Long *l, int64_t at);
LLVMValueRef row_chunks_rest(const Long *l);
LLVMValueRef row_chunks_end(const Long *l);
LLVMValueRef row_chunk_vectors(const Long *l, LLVMValueRef at);
void row_copy_chunk(const Long *l, LLVMValueRef at, LLVMValueRef vectors, LLVMValueRef place);
uint32_t row_kept_bytes(const Long *l, uint32_t i); /* of a vector of kept value i */

/* chunks.c: by roles, places of the ring are left, and results come back from them. One thread asks
 * for the row's chunks, each as soon as its place is left. */
void row_copy_to_left(const Long *l);
void row_leave_chunk(const Long *l, LLVMValueRef at); /* by a warp that needs its part no more */
void row_leave_rest(const Long *l);                   /* chunks that this row does not reach */
bool row_can_store(const Long *l, const Pass *p);     /* its results in the place of what is kept */
/* One thread copies the row's results out, chunk by chunk as they are made, and leaves each one's
 * place when the next one is on its way. first (i1): no row was before. */
void row_copy_back(const Long *l, const Pass *p, LLVMValueRef first);

/* across.c: what all rows read alike, where rows start at any element. Pieces of 16 bytes that have
 * any of a vector's elements are in the buffer. */
bool row_is_across(const Long *l, KVal v);
bool row_has_across(const Long *l);                 /* any */
void row_load_across(const Long *l, const Pass *p); /* all of the pass, for the current vector */
/* By roles: the copy engine brings n vectors of number i of what is fixed, from number `at` on, in
 * the pieces that they lie in; the bytes of these (i32). bar: NULL: nothing is asked for. */
LLVMValueRef row_ask_fixed(const Long *l, uint32_t i, LLVMValueRef at, LLVMValueRef n,
                           LLVMValueRef bar);
/* The current vector, number `at`, of the pieces that came. */
LLVMValueRef row_fixed_pieces(const Long *l, uint32_t i, LLVMValueRef at);
/* Where vector `at` of number i of what is fixed is kept, and all of it that p takes. */
LLVMValueRef row_fixed_at(const Long *l, uint32_t i, LLVMValueRef at);
void row_take_fixed(const Long *l, const Pass *p, LLVMValueRef at);

/* roles/roles.c: warps of a block with roles of their own. */
bool row_roles(Long *l, uint32_t cluster); /* false: not possible; l is as it was then */
void row_run_roles(Long *l);

/* roles/teams.c: teams of warps that take rows in turns and hold them in registers. */
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
