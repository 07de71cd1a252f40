/* What rows share: a row, its team, and how its elements are dealt out. parts.c, unless said. */
#ifndef CODEGEN_NVPTX_ROW_H
#define CODEGEN_NVPTX_ROW_H

#include "codegen/nvptx/gpu.h"

#define ROW_MAX_PIECES 8

typedef struct RowPlan {
    Team team;
    int lane;        /* axis of the vectors, or -1: e->lanes is 1 */
    uint32_t axes;   /* held: what every pass walks */
    uint32_t pieces; /* held: vectors that each thread keeps */
} RowPlan;

/* Vectors (or elements) of the row over these axes. */
Expr row_vectors(const RowPlan *r, uint32_t axes);
/* In the current scope the row's axes stand at vector number `at`. */
void row_bind(const RowPlan *r, uint32_t axes, Expr at);
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
    EmitScope *scope[ROW_MAX_PIECES];
    LLVMValueRef live[ROW_MAX_PIECES]; /* NULL: the vector is inside of the row in every thread */
} Held;
void row_place(Held *h);
void row_fold_held(Held *h, const Pass *p);
/* An access of its own for every row: what all rows read alike comes from caches, and what a fold
 * inside of the row walks is not read once. */
bool row_is_own(const Gpu *g, uint32_t axes, KVal v);

/* long.c */
#define ROW_MOST_KEPT 4
#define ROW_RESERVED  2048 /* bytes of shared memory: of the system, and where teams meet */
typedef struct Long Long;
struct Long {
    RowPlan *r;
    uint32_t axis, steps;
    Expr length,
        offset; /* elements of a row; resolved index of its first, or 0: rows are whole vectors */
    LLVMValueRef head, count, tail;  /* elements in front, vectors, elements behind */
    LLVMValueRef first_vector;       /* in turns: of the row's, the block's first; else NULL */
    LLVMValueRef own_head, own_tail; /* of these elements, those that the block takes */
    KVal max, sum;                   /* of one walk; 0: there are none such */
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
    LLVMValueRef at, step, end; /* ... its number, how far apart they are, and how many there are */
    LLVMValueRef place, phase;  /* of the row's first chunk: where in the ring it is, and the parity
                                   of  its barrier (i32); NULL: 0 */
};
/* Chooses threads, vectors and what is kept; false: the row is short, or not of that shape. */
bool row_long(RowPlan *r, Long *l);
void row_run_long(Long *l);
/* Elements in front of the first vector of the row that the current scope stands at, its vectors,
 * and elements behind the last (parts.c, as the next three). */
void row_measure(Long *l);
/* The row's axis to vector number `at` of the row. */
void row_bind_long(const Long *l, LLVMValueRef at);
uint32_t row_bytes(const Gpu *g, KVal v);      /* of an element of value v where it is kept */
void row_place_kept(Long *l, int64_t vectors); /* slots in shared memory */
uint32_t row_long_steps(const Long *l); /* vectors of a thread at a time from shared memory */

/* copied.c: the copy engine brings what is kept of a row, all of it asked for at once. */
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

/* across.c: what all rows read alike, where rows start at any element. Pieces of 16 bytes that have
 * any of a vector's elements are in the buffer. */
bool row_has_across(const Long *l);
void row_load_across(const Long *l, const Pass *p); /* all of the pass, for the current vector */

/* turns.c: blocks, or clusters of them, that stay and take row after row. */
bool row_turns(Long *l, uint32_t cluster); /* false: not possible; l is as it was then */
void row_run_turns(Long *l);

#endif
