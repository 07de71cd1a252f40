/* Folds over outer axes: what a block and a thread of it have. */
#ifndef CODEGEN_NVPTX_COLUMN_COLUMN_H
#define CODEGEN_NVPTX_COLUMN_COLUMN_H

#include "codegen/nvptx/row/row.h"

enum {
    COLUMN_THREADS = 512, /* of a block at most */
    COLUMN_WIDE = 32,     /* vectors of a row that a block takes at most */
    COLUMN_UNROLL = 8,    /* rows asked for together; ... */
    COLUMN_MOST_UNROLL = 16,
};

typedef struct Column {
    Gpu *g;
    const Pass *folds, *stores, *points; /* points: stored on the way, or NULL */
    uint32_t lane, others;               /* the columns' axis; parallel axes beside it (a mask) */
    uint32_t lanes, parts, blocks;       /* parts of the rows; blocks of a multiprocessor */
    uint32_t threads, wide, rows;        /* of a block: vectors of a row times rows */
    uint32_t together;                   /* rows of a thread that are asked for together */
    Expr groups, points_beside;          /* groups of columns; points of `others` */
    LLVMValueRef slot[ROWS_MAX_FOLDS];   /* shared memory where the rows meet */
    LLVMValueRef lane_id, row, vector, part; /* i64; vector: of the lane axis */
    LLVMValueRef inside;                     /* the thread's vector exists */
    /* Rows that lie no whole number of vectors apart, or 0: this one and every classes-th behind it
     * begin at the same element of a vector, and are one thread's. Its vectors begin `shift`
     * columns (i64) in front of those of the first row; class: their number. */
    uint32_t classes;
    int64_t pitch; /* elements between rows, of the first load */
    LLVMValueRef shift;
    Expr class;
} Column;

/* pitch.c. Columns of a block; of these, what no other block has: shifted vectors leave some of the
 * last one's out. */
uint32_t column_width(const Column *c);
uint32_t column_own(const Column *c);
uint32_t column_room(const Column *c); /* columns in front of a row's where rows meet */
/* All that is read along the columns lies alike in the same rows: sets classes, pitch,
 * lanes and what is asked for together; false: it does not. */
bool column_find_classes(Column *c);
LLVMValueRef column_shift(const Column *c);
/* In the current scope the columns' axis stands at the thread's vector, in rows of its class. */
void column_bind_class(Column *c);
/* Rows that are walked: without classes all, else all but the last, which is taken by elements
 * where rows meet: its last vector would end behind it. */
Expr column_walked_rows(const Column *c);
/* Row number `at` (i64), which is of this thread's class. */
Expr column_row_at(Column *c, LLVMValueRef at);
/* What is read in the place of row `at` where that is none of those before `end`, as `live` says;
 * first: the first of those that are asked for with it. */
LLVMValueRef column_other_row(const Column *c, LLVMValueRef first, LLVMValueRef at,
                              LLVMValueRef live, LLVMValueRef end);

/* part.c. This thread's columns over its rows of the block's part. */
void column_fold_part(Column *c, LLVMValueRef *acc);

/* spent.c. Where the block has read all of its rows: nobody needs them any more, if nobody does. */
void column_forget(const Column *c);

/* join.c. The block's rows meet: thread t gets column t of the block. Threads past the columns
 * repeat one. shift: of what is in acc, or NULL. */
void column_join_rows(Column *c, LLVMValueRef at, LLVMValueRef shift, LLVMValueRef *acc);
/* The block's results of column `at` become the group's in the last of its blocks: stored. */
void column_join_parts(Column *c, LLVMValueRef at, LLVMValueRef *acc);
void column_store(Column *c, LLVMValueRef at, LLVMValueRef *acc);

#endif
