/* Rows with sums of columns beside them: what a block has, and how its rows come. */
#ifndef CODEGEN_NVPTX_BAND_H
#define CODEGEN_NVPTX_BAND_H

#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/row.h"

enum {
    BAND_SUMS = 8,
    BAND_OWN = 8,    /* loads of a row, and numbers of it */
    BAND_PIECE = 16, /* bytes of one request */
    BAND_NUMBER = 8, /* of a row's number in shared memory */
    BAND_EVEN = K_EVEN,
    BAND_MATES = 2,
    BAND_PIECES = 16,   /* vectors of a thread */
    BAND_PLACES = 4,    /* turns whose folds have a place, where rows are finished later */
    BAND_LINE = 128,    /* bytes of memory that come together */
    BAND_FETCHING = 40, /* registers of a thread that does not compute, where Band.registers */
};

/* pace.c: blocks of turns of so many bytes each, which all run at once. Called by all threads; then
 * by one, in each of the block's turns (i32) before anything else, and behind the last, with their
 * number. */
typedef struct Pace {
    Gpu *g;
    int64_t blocks;
    uint32_t lead; /* turns that a block may begin before all have begun the one before */
    bool waits;    /* for the count it asked for a turn ago: no barrier is told when that comes */
    LLVMValueRef counter, cells; /* address of the count (i64); shared memory of the block */
    LLVMValueRef turns, last;    /* i32: of a block at most; the count that is followed by zero */
} Pace;
Pace band_pace(Gpu *g, int64_t blocks, Expr turns, int64_t bytes, uint32_t lead);
void band_pace_turn(const Pace *p, LLVMValueRef turn);
void band_pace_end(const Pace *p, LLVMValueRef turns);

/* What the walk of a dealt kernel (KDealt) has beside what that says (lists.c). */
typedef struct BandLists {
    Expr rest;      /* where column 0 of a turn's row lies */
    int64_t stride; /* elements from a row to the next of its list */
    uint32_t by;    /* elements that rows of the next list start further along; 0: there is one */
    /* Symbols: of a row, the number of the vector at which it is walked; of a list, how many of the
     * columns that a block keeps lie in front of that. */
    uint32_t start, moved;
} BandLists;

struct BandTurns;

typedef struct Band {
    RowPlan r;
    uint32_t turn;  /* axis: rows of a block */
    uint32_t teams; /* of a block */
    uint32_t threads;
    uint32_t nsums, nstores, nown, nnumbers, nresults, nfolds; /* nfolds: along rows */
    KVal sum[BAND_SUMS], store[BAND_SUMS];                     /* of columns */
    bool soon[BAND_SUMS];                 /* made of no fold: added beside the first */
    KVal own[BAND_OWN], number[BAND_OWN]; /* loads: elements of a row, one for a row */
    KVal result[BAND_OWN];                /* stores of elements of a row */
    uint32_t stages, slots;               /* slots: requests of a thread for a row */
    bool behind;                          /* rows are finished a turn behind their first folds */
    bool whole;                           /* the copy engine brings a team's row, ... */
    uint32_t row_bytes, bars;             /* ... so many bytes; where the stages' barriers lie */
    uint32_t room;                        /* where teams meet */
    uint32_t kept;            /* where threads keep what all rows read alike; 0: in registers */
    LLVMValueRef team, turns; /* number of the team; turns of a block (i64) */
    Expr rows;                /* of the kernel */
    bool again;               /* rows are read again behind their folds */
    bool paced;               /* blocks keep pace with each other */
    bool fetched;             /* a warp of its own asks for the rows of all teams, ... */
    uint32_t lead;            /* ... so many turns ahead of other blocks at most */
    bool in_shared;           /* threads keep what all rows read alike there */
    bool late;                /* rows are finished a turn later (fetched.c) */
    bool untold;              /* the assembler is told of no number of blocks */
    uint32_t cluster;         /* blocks that share a row; 1: none */
    uint32_t registers;       /* of a thread that computes; 0: as the assembler shares them out */
    bool dealt;               /* the kernel is a KDealt, of which `lists` tells */
    /* Others, and those of a team start all at one element of a vector, which is of `unit` elements
     * (starts.c). */
    bool starts;
    bool skewed;  /* a turn's rows lie where lines of memory have them (fetcher.c) */
    bool gathers; /* what is stored of a turn's rows leaves in one piece (results.c) */
    uint32_t unit;
    int64_t columns;                /* of a row, of these */
    LLVMValueRef edge[BAND_PIECES]; /* which elements of a vector are the row's; NULL: all */
    BandLists lists;
    Expr inside;          /* of those that do not fill vectors: a column is the row's; else 0 */
    const Kernel *edged;  /* in which rows are accessed where that holds */
    uint32_t mates;       /* rows of a turn that are folded, and then finished, together */
    LLVMValueRef owner;   /* number of the block, or of those that share rows (i64) */
    uint32_t side;        /* of them, that a warp's teams take, ... */
    uint32_t apart;       /* ... so many rows from one to the next */
    LLVMValueRef meeting; /* address of the barrier of all that compute; NULL: the block's */
} Band;

/* rows.c: how many rows the kernel has; false: its mask says something else. As no other row is
 * taken, what asks for it is left out. Neighbouring rows of all loads lie side by side: one request
 * is for several of them. */
bool band_find_rows(Band *b);
void band_forget_mask(Band *b);
bool band_rows_touch(const Band *b);
/* Access v is of row `row`, column by column, whichever row below `end` it is. */
bool band_is_row(const Band *b, KVal v, int64_t end);
bool band_is_column(const Band *b, KVal v); /* a fold of a column, along the rows */
/* sizes.c: threads, stages, and how rows come; false: they are too long, or of unknown length. */
bool band_choose_sizes(Band *b);
uint32_t band_threads(const Band *b); /* of a block, with those that fetch */
/* turns.c: where a warp's teams lie apart, which of a turn's rows its team number `own` takes. */
LLVMValueRef band_place_of(const Band *b, LLVMValueRef warp, LLVMValueRef own);
uint32_t band_unit(const Band *b); /* elements of a vector of rows that start at any one */

/* behind.c: all rows of a block; acc: [piece][sum], of columns, and room for what else goes
 * from turn to turn. */
#define BAND_CARRIED (BAND_PIECES * BAND_SUMS + 2 * BAND_OWN + ROWS_MAX_FOLDS)
void band_walk_behind(Band *b, LLVMValueRef *acc);
/* turns.c: the same, each finished before the next. */
void band_walk(Band *b, LLVMValueRef *acc);
/* fetched.c: as band_walk, of rows that a warp of their own asks for; and what the block
 * leaves. */
void band_walk_fetched(Band *b, LLVMValueRef *acc);
/* sums.c: of a row, where `inside` holds (NULL: everywhere): those sums of columns of the thread's
 * vector u that are `soon`, or the others. Vectors past the row's end are added, too. */
void band_add(const Band *b, const Held *h, uint32_t u, LLVMValueRef inside, bool soon,
              LLVMValueRef *acc);
/* When its folds are known: the other sums, and what is stored of the vector; its stores, in turn t
 * (NULL: there are none), never of vectors past the row's end; both. What is stored once. */
void band_make(const Band *b, const Held *h, uint32_t u, LLVMValueRef inside, LLVMValueRef *acc);
void band_store(const Band *b, const struct BandTurns *t, const Held *h, uint32_t u,
                LLVMValueRef inside);
void band_finish(const Band *b, const struct BandTurns *t, const Held *h, uint32_t u,
                 LLVMValueRef inside, LLVMValueRef *acc);
void band_store_once(Band *b, LLVMValueRef inside);
/* The block's sums, when all of its rows are done. Before its first turn, where teams go at their
 * own pace, by all threads: the barrier at which they meet then. */
void band_store_columns(Band *b, LLVMValueRef *acc);
void band_meeting_init(Band *b);

/* fetch.c. In the current scope the team is at its row of turn `at`, or at the last one; true
 * (i1) where there is such a row. `full`: there is in every block, which NULL says, too. */
LLVMValueRef band_place(const Band *b, LLVMValueRef at, bool full);
/* What all rows read alike of the thread's vectors: [piece][op]. */
bool band_is_fixed(const Band *b, KVal v);
uint32_t band_vector_bytes(const Band *b, KVal v);
uint32_t band_piece_bytes(const Band *b, KVal v, uint32_t u); /* of vector u of a thread */
LLVMValueRef **band_fixed(Band *b);
LLVMValueRef band_both(Emit *e, LLVMValueRef a, LLVMValueRef b); /* and; NULL is true */

/* turns.c: teams that take rows at their own pace, in groups: a team, or those of a warp. */
typedef struct BandTurns {
    Band *b;
    Expr rows;                /* of the kernel */
    int64_t most;             /* rows at most */
    uint32_t side;            /* rows of a group */
    LLVMValueRef group, own;  /* number of the group; rows from its first to the team's (i64) */
    LLVMValueRef step, first; /* rows between turns; the group's first one (i64) */
    uint32_t groups, held;    /* of the block; rows of a stage */
    LLVMValueRef place;       /* number of the team among them (i64); NULL: there is one */
    LLVMValueRef **fixed;     /* of band_fixed */
    uint32_t nacc, ncopied;   /* sums; numbers that are copied with their rows */
    LLVMValueRef row, stage, round, odd; /* of the turn: the group's first row (i64); i32; i64 */
    HV late_bars, late_room;             /* where Band.late: shared addresses of its places */
    LLVMValueRef number[BAND_OWN];       /* of the thread's row; NULL: read where it is needed */
    Pace pace;                           /* where Band.paced, which goes by, or Band.fetched */
    LLVMValueRef turn;                   /* turns before this one (i32), where they are counted */
    LLVMValueRef end;                    /* of Band.dealt: the block's rows (i64), ... */
    LLVMValueRef base; /* ... and of a list: vector where its row number 0 would start (i64) */
    HV move_bar, move_room;
    HV sent; /* where Band.gathers: the barrier that tells that all results have been sent */
} BandTurns;
/* Shared addresses of a stage: its rows, its numbers, the barrier that tells of both, and, where
 * rows are fetched, the one that tells that threads have read them. */
typedef struct BandStage {
    HV rows, numbers, bar, left;
} BandStage;
/* Row, stage, round, and odd, or, where turns are counted, turn: what goes from turn to turn beside
 * the sums. */
enum { BAND_STATE = 4 };
BandTurns band_turns(Band *b);
void band_turn_next(const BandTurns *t, LLVMValueRef *to); /* of the turn behind this one */
void band_turns_all(BandTurns *t, LLVMValueRef *acc); /* all turns of the group; see band_walk */
void band_keep_fixed(const BandTurns *t);
/* Of a turn: its row is there; its numbers become known; a scope in which it stands, true (i1)
 * where there is such a row; folds of the pass as far as the thread knows them; vector u is read
 * anew; the thread has read what is there. */
void band_turn_wait(const BandTurns *t);
void band_turn_numbers(BandTurns *t);
LLVMValueRef band_turn_row(const BandTurns *t, bool full, Held *h);
void band_turn_fold(const BandTurns *t, Held *h, const Pass *p, LLVMValueRef *acc);
void band_turn_vector(const BandTurns *t, Held *h, uint32_t u);
void band_turn_leave(const BandTurns *t);
/* lists.c. Of a dealt kernel: leaves the one that says where whole vectors are. Needs domains, and
 * Band's axes. */
void band_enter_lists(Band *b);
/* The vector at which the block's row of this number is walked (i64); the kernel stands there. */
LLVMValueRef band_listed_start(const BandTurns *t, LLVMValueRef row);
void band_bind_listed(const BandTurns *t, LLVMValueRef row);
/* In the current scope rows are of the list that begins with row `from`. */
void band_list_enter(BandTurns *t, LLVMValueRef from);
/* moves.c. */
void band_lists_init(BandTurns *t);
/* A walk of rows up to `end`. x: the sums, and the first turn's state, which are those behind the
 * last turn then. */
typedef void (*BandWalk)(BandTurns *t, LLVMValueRef end, LLVMValueRef *x);
void band_walk_lists(BandTurns *t, BandWalk walk, LLVMValueRef *x);
/* starts.c. Of Band.starts: leaves the kernel as a team walks it; false: it cannot. Then, in the
 * scope of all turns: what the team's rows have in common. */
bool band_enter_starts(Band *b);
void band_starts_init(Band *b);
/* Vector u, whose scope this is: what belongs to other rows is zero. */
void band_mask_edges(const Band *b, uint32_t u);
/* A store, to `to`, of the row's own elements of that vector, whose results are known. */
void band_store_started(const Band *b, uint32_t u, KVal store, LLVMValueRef to);
/* The block's sums, of what its teams have. */
typedef void (*BandMeet)(const Band *b, uint32_t times);
typedef void (*BandStoreSum)(Band *b, uint32_t s, LLVMValueRef x);
void band_join_started(Band *b, const LLVMValueRef *acc, BandMeet meet, BandStoreSum store);
/* edges.c: rows that do not fill vectors (Band.inside). Vector u of some thread may have elements
 * that are none of the row's. */
bool band_is_edge(const Band *b, uint32_t u);
/* What came beside the turn's row is zero from here on; a store of such a vector. */
void band_clear_edges(const BandTurns *t, const Held *h);
void band_store_edge(const Band *b, uint32_t u, KVal store);
/* fetcher.c. In the current scope the kernel's axes stand at this row. */
void band_bind_row(const BandTurns *t, LLVMValueRef row);
BandStage band_stage_at(const BandTurns *t, LLVMValueRef stage);
/* Rooms of a stage are of own[], then, where Band.gathers, of result[]. */
/* Shared address of vector u of room i in this turn. */
HV band_turn_place(const BandTurns *t, uint32_t i, uint32_t u);
int64_t band_part(const Band *b); /* vectors of a row, or of the block's part of it */
uint32_t band_turn_bytes(const Band *b, uint32_t teams); /* room for a turn of so many teams */
LLVMValueRef band_last_row(const BandTurns *t);
bool band_is_copied(const BandTurns *t, KVal v);
void band_copy_number(const Band *b, uint32_t i, HV to);
void band_copies_arrive(Emit *e, HV bar);
/* The barriers, by all threads; what the warp behind those that compute does. */
void band_fetcher_init(const BandTurns *t);
void band_fetcher(const BandTurns *t);

/* results.c, where Band.gathers, by the warp that asks for rows: results number j of the turn from
 * `row` on, which lie at `at`, leave; all have been read there, which lanes tell the barrier. */
void band_results_send(const BandTurns *t, uint32_t j, LLVMValueRef row, LLVMValueRef lane, HV at);
void band_results_read(const BandTurns *t, LLVMValueRef lane, HV bar);

/* Requests. One thread of a team asks the copy engine for its row, or, where teams are parts of
 * a warp and rows short, every thread asks for what it needs itself, into shared memory that no
 * other one reads. */
uint32_t band_pieces(const Band *b, KVal v);  /* requests for a vector of load v */
uint32_t band_element(const Band *b, KVal v); /* bytes of its elements */
void band_init(Band *b);
/* What turn `at` needs, if there is one. The team has met since it read turn at - stages. */
void band_request(Band *b, LLVMValueRef at);
/* Turn `at` is there: of what threads ask for themselves, stages - 2 turns at most were asked for
 * behind it. */
void band_wait(Band *b, LLVMValueRef at);
void band_take(Band *b, Held *h, LLVMValueRef at); /* its elements are known in the row's scopes */

#endif
