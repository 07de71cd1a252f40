/* Rows with sums of columns beside them: what a block has, and how its rows come. */
#ifndef CODEGEN_NVPTX_BAND_H
#define CODEGEN_NVPTX_BAND_H

#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/row.h"

enum {
    BAND_SUMS = 8,
    BAND_OWN = 8,    /* loads of a row, and numbers of it */
    BAND_PIECE = 16, /* bytes of one request */
};

typedef struct Band {
    RowPlan r;
    uint32_t turn;  /* axis: rows of a block */
    uint32_t teams; /* of a block */
    uint32_t threads;
    uint32_t nsums, nstores, nown, nnumbers, nfolds; /* nfolds: along rows */
    KVal sum[BAND_SUMS], store[BAND_SUMS];           /* of columns */
    KVal own[BAND_OWN], number[BAND_OWN];            /* loads: elements of a row, one for a row */
    uint32_t stages, slots;                          /* slots: requests of a thread for a row */
    bool behind;              /* rows are finished a turn behind their first folds */
    bool tight;               /* registers are short: one loop does */
    bool whole;               /* the copy engine brings a team's row, ... */
    uint32_t row_bytes, bars; /* ... so many bytes; where the stages' barriers lie */
    LLVMValueRef team, turns; /* number of the team; turns of a block (i64) */
    /* Of the turn that the loop is at, and the one that it asks for, stages - 1 behind it: carried from
     * turn to turn, as what a division takes would be waited for in each. */
    LLVMValueRef at, asked;    /* i64; NULL: not known */
    LLVMValueRef stage, round; /* i32: at % stages; at / stages % 2 */
} Band;

/* band_behind.c: all rows of a block; acc: [piece][sum], of columns, and room for what else goes
 * from turn to turn. */
#define BAND_CARRIED (ROW_MAX_PIECES * BAND_SUMS + 2 * BAND_OWN + ROWS_MAX_FOLDS)
void band_walk_behind(Band *b, LLVMValueRef *acc);

/* band_fetch.c. In the current scope the team is at its row of turn `at`, or at the last one; true
 * (i1) where there is such a row. `full`: there is in every block, which NULL says, too. */
LLVMValueRef band_place(const Band *b, LLVMValueRef at, bool full);
/* What all rows read alike of the thread's vectors: [piece][op]. */
LLVMValueRef **band_fixed(Band *b);
LLVMValueRef band_both(Emit *e, LLVMValueRef a, LLVMValueRef b); /* and; NULL is true */

/* Requests. One thread of a team asks the copy engine for its row, or, where teams are parts of
 * a warp and rows short, every thread asks for what it needs itself, into shared memory that no
 * other one reads. */
uint32_t band_pieces(const Band *b, KVal v); /* requests for a vector of load v */
void band_init(Band *b);
/* Stage and round of a turn, by division; and those of the turn behind Band.at. */
void band_stage(const Band *b, LLVMValueRef at, LLVMValueRef *stage, LLVMValueRef *round);
void band_next_stage(const Band *b, LLVMValueRef *stage, LLVMValueRef *round);
/* What turn `at` needs, if there is one. The team has met since it read turn at - stages. */
void band_request(Band *b, LLVMValueRef at);
/* Turn `at` is there: stages - 1 turns at most were asked for behind it, one less where rows are
 * finished a turn behind. */
void band_wait(Band *b, LLVMValueRef at);
void band_take(Band *b, Held *h, LLVMValueRef at); /* its elements are known in the row's scopes */

#endif
