/* How many threads a row and a block have, how many rows are on their way, what stays where. All of
 * it was measured. */
#include "codegen/nvptx/band/band.h"

enum {
    THREADS = 512,     /* of a multiprocessor; ... */
    ONE_SUM = 256,     /* where there is little to compute: fewer of them ask for less at once */
    LEAST_TEAM = 8,    /* threads that read shared memory without conflicts */
    ONE_VECTOR = 256,  /* vectors of a row that has a thread for each: two rows at once, at least */
    IN_FLIGHT = 49152, /* bytes of rows that are asked for at once: more of them make memory slower
                          (layernorm's gradient over 512: 99.4 us, with a third more 104.5) */
    /* Of rows that are finished a turn behind: */
    MIDDLE_THREADS = 384, /* where threads have three vectors each */
    WARP_PIECES = 4,      /* vectors of a thread where teams are no larger than a warp, */
    BLOCK_PIECES = 2,     /* and where the block is the team */
    SMALL = 256,
    MOST_THREADS = 1024,
    QUARTER = 128,      /* of a team where ... */
    QUARTER_BLOCKS = 4, /* ... so many blocks share a multiprocessor */
    STAGES = 4,         /* rows of a team on their way, and the one that it is at; ... */
    STAGES_ALONE = 6,   /* ... of a block that has the multiprocessor to itself */
    KEPT_PIECES = 4,    /* vectors of a thread whose sums, two a column, leave few registers */
    FEW_SHARERS = 2,    /* blocks of a row, if they share one, ... */
    MOST_SHARERS = 4,   /* ... and of a long one that is not dealt out */
    SHARED_PART = 1024, /* vectors of a row's half at most, if that is no long one */
    RESERVED = 4096,    /* of shared memory: of the system, and where teams meet */
};

/* --- Rows that are finished a turn behind ----------------------------------------------------- */

static void choose_block(Band *b, int64_t n, uint32_t blocks) {
    uint32_t t = 4;
    while (t < 32 && n > t) t *= 2;
    if (n > (int64_t)t * WARP_PIECES)
        for (t = 256; t < MOST_THREADS && n > (int64_t)t * BLOCK_PIECES;) t *= 2;
    /* A thread for each vector of 97 to 128, where there are blocks enough for such small ones. */
    if (n > QUARTER - 32 && n <= QUARTER && blocks >= QUARTER_BLOCKS) t = QUARTER;
    b->r.team.size = t;
    b->r.pieces = (uint32_t)((n + t - 1) / t);
    b->threads = t > 32             ? t
                 : b->r.pieces == 2 ? THREADS
                 : b->r.pieces == 3 ? MIDDLE_THREADS
                                    : SMALL;
    b->teams = b->threads / t;
}

/* --- Rows that a warp of their own asks for --------------------------------------------------- */

/* Rows of `least` to `most` vectors: a block's threads, their vectors of the rows of a turn, turns
 * that there is room for; whether rows are read again behind their folds, whether they are finished
 * a turn later, too, whether what all rows read alike stays in shared memory, whether the assembler
 * is told of no number of blocks, where it would spill, whether threads that fetch give registers
 * to those that compute, and how many elements each thread has beside its vectors, if rows have a
 * few vectors more than those (a whole one more would leave most threads idle for its time:
 * layernorm's gradient over 1,032 columns 105.0 us, here 98.6). The first form that few threads are
 * idle in (idle) is taken. Few threads with many vectors each meet sooner than many with few, and
 * warps are a multiple of four, or one less, of which no scheduler has more than others: nine that
 * compute take the time of twelve (layernorm's gradient over 12,296 columns 116 us, by eight 102).
 * Measured on one H200 (results/training.md, "Rows that a warp asks for", "Forms for more
 * lengths"). */
typedef struct Fetching {
    uint32_t least, most, threads, pieces, stages;
    bool again, late, kept, untold, wide;
    uint32_t tail;
} Fetching;
static const Fetching few_sums[] = {
    {769, 832, 224, 4, 4, true, false, true, false, false, 0},
    {1, 1024, 512, 2, 3, false, false, false, false, false, 0},
    {1, 128, 384, 3, 3, true, false, false, false, false, 0},
    {1, 640, 512, 3, 3, true, false, false, false, false, 0},
    {1, 1024, 384, 2, 3, false, false, false, false, false, 0},
    {1153, 1344, 192, 7, 3, true, false, true, false, false, 0},
    {1, 1280, 320, 4, 3, true, false, true, false, false, 0},
    {1, 160, 224, 5, 3, true, false, true, false, false, 0},
    {1, 224, 192, 7, 3, true, false, true, false, false, 0},
    {1, 72, 384, 2, 3, false, false, false, false, false, 2},
    {10, 10, 512, 1, 3, false, false, false, false, false, 2},
    {11, 11, 320, 2, 3, false, false, false, false, false, 8},
    {129, 136, 256, 4, 3, true, false, true, false, false, 2},
};
static const Fetching many_sums[] = {
    {1, 384, 384, 2, 3, false, false, false, false, false, 0},
    {1, 128, 256, 3, 3, true, false, false, false, false, 0},
    {449, 512, 256, 4, 3, true, false, true, false, false, 0},
    {1, 512, 512, 2, 3, true, false, true, false, false, 0},
    {513, 576, 384, 3, 3, true, false, true, false, false, 0},
    {577, 640, 256, 5, 4, true, false, true, false, false, 0},
    {641, 672, 256, 5, 4, true, false, true, false, true, 2},
    {673, 752, 256, 6, 4, true, false, true, false, true, 0},
    {641, 704, 256, 3, 5, true, true, true, false, false, 0},
    {705, 768, 384, 2, 5, true, true, true, false, false, 0},
    {769, 816, 256, 3, 5, true, true, true, false, false, 2},
    {769, 832, 224, 4, 5, true, true, true, false, false, 0},
    {833, 880, 256, 3, 5, true, true, true, false, false, 4},
    {833, 896, 448, 2, 4, true, true, true, false, false, 0},
    {897, 936, 256, 4, 4, true, true, true, false, true, 0},
    {897, 960, 192, 5, 3, true, false, true, false, false, 0},
    {961, 984, 256, 4, 4, true, true, true, false, true, 0},
    {961, 1056, 224, 5, 3, true, false, true, false, false, 0},
    {1121, 1152, 192, 6, 3, true, false, true, true, false, 0},
    {961, 1152, 384, 3, 4, true, true, true, false, false, 0},
    {1153, 1344, 224, 6, 3, true, false, true, false, false, 0},
    {1, 640, 320, 2, 5, true, true, true, false, false, 0},
    {1, 640, 512, 2, 3, true, false, true, false, false, 0},
    {1, 768, 384, 2, 4, true, true, true, false, false, 0},
    {1, 1152, 384, 3, 3, true, false, false, false, false, 0},
    {1, 1280, 320, 4, 4, true, true, true, false, false, 0},
    {1, 160, 224, 5, 3, true, false, true, false, false, 0},
    {9, 9, 320, 2, 3, false, false, false, false, false, 2},
    {11, 11, 320, 2, 3, false, false, false, false, false, 8},
    {12, 12, 256, 2, 3, false, false, false, false, false, 8},
    {1, 72, 384, 2, 3, true, false, false, false, false, 2},
    {10, 10, 256, 2, 3, false, false, false, false, false, 4},
    {13, 13, 224, 3, 3, false, false, false, false, false, 2},
    {19, 20, 320, 2, 3, false, false, false, false, false, 4},
    {129, 136, 256, 4, 3, true, false, true, false, true, 2},
    {1, 416, 256, 3, 3, true, false, true, false, false, 2},
    {1, 224, 256, 3, 3, true, false, true, false, false, 4},
    {321, 335, 256, 5, 3, true, false, true, false, true, 2},
};
/* Of a block's part of a row. */
static const Fetching shared_rows[] = {
    {577, 640, 128, 5, 5, true, true, true, false, false, 0},
    {641, 704, 352, 2, 5, true, true, true, false, false, 0},
    {705, 760, 256, 3, 5, true, true, true, false, false, 0},
    {705, 768, 192, 4, 5, true, true, true, false, false, 0},
    {769, 816, 256, 3, 5, true, true, true, false, false, 2},
    {769, 832, 224, 4, 5, true, true, true, false, false, 0},
    {833, 896, 224, 4, 4, true, true, true, false, false, 0},
    {897, 1024, 256, 4, 4, true, true, true, false, true, 0},
    {1, 704, 512, 3, 5, true, true, true, false, false, 0},
    {1, 1024, 512, 3, 4, true, true, true, false, false, 0},
    {1, 1024, 512, 2, 4, true, true, true, false, false, 0},
};
/* Of a row of more than 64 KB, in two, three or four parts. */
static const Fetching long_rows[] = {
    {1025, 1088, 256, 4, 4, true, true, true, false, true, 2},
    {1089, 1119, 256, 4, 4, true, true, true, false, true, 4},
    {1025, 1280, 256, 5, 4, true, true, true, false, true, 0},
    {1281, 1344, 256, 5, 4, true, true, true, false, true, 2},
    {1121, 1280, 320, 4, 4, true, true, true, false, false, 0},
    {1, 640, 320, 2, 6, true, true, true, false, false, 0},
    {641, 768, 384, 2, 5, true, true, true, false, false, 0},
    {961, 1024, 256, 4, 4, true, true, true, false, true, 0},
    {769, 1056, 544, 2, 4, true, true, true, false, false, 0},
};
/* The same of rows that are dealt out in lists, where few threads that know much are worth more
 * still: a turn of two rows has a place if three of them have. */
static const Fetching dealt_rows[] = {
    {577, 640, 160, 4, 5, true, true, true, false, false, 0},
    {641, 672, 224, 3, 5, true, true, true, false, false, 0},
    {673, 768, 192, 4, 5, true, true, true, false, false, 0},
    {784, 896, 224, 4, 5, true, true, true, false, false, 0},
    {769, 783, 160, 5, 5, true, true, true, false, false, 0},
    {1, 576, 192, 3, 5, true, true, true, false, false, 0},
    {385, 576, 288, 2, 5, true, true, true, false, false, 0},
};
/* To one block or two. */
static const Fetching dealt_few[] = {
    {1, 384, 384, 1, 8, true, true, true, false, true, 0},
    {385, 576, 288, 2, 8, true, true, true, false, false, 0},
    {385, 576, 192, 3, 8, true, true, true, false, false, 0},
    {577, 768, 256, 3, 6, true, true, true, false, true, 0},
    {769, 896, 224, 4, 5, true, true, true, false, false, 0},
};
/* Of rows of `least` to `most` columns that start at any element: as many stages as there is room
 * for, up to these. Forms that do not read rows again are for results that leave in one piece
 * (results.c), those behind them for others, and where the assembler spills. */
static const Fetching started_rows[] = {
    {1, 96, 480, 3, 4, false, false, false, false, false, 0},
    {97, 128, 480, 4, 4, false, false, false, false, false, 0},
    {129, 160, 384, 5, 4, false, false, false, false, true, 0},
    {161, 192, 480, 3, 4, false, false, false, false, false, 0},
    {193, 256, 480, 4, 4, false, false, false, false, false, 0},
    {257, 320, 384, 5, 4, false, false, false, false, true, 0},
    {385, 512, 384, 4, 4, false, false, false, false, true, 0},
    {513, 640, 384, 5, 4, false, false, false, false, true, 0},
    {769, 1024, 384, 4, 4, false, false, false, false, true, 0},
    {1025, 1536, 480, 4, 4, false, false, false, false, false, 0},
    {1537, 1920, 384, 5, 4, false, false, false, false, true, 0},
    {1921, 2304, 384, 6, 4, false, false, false, false, true, 0},
    {2305, 2560, 384, 5, 4, false, false, false, false, true, 0},
    {2561, 3072, 384, 4, 4, false, false, false, false, true, 0},
    {3073, 3840, 384, 5, 4, false, false, false, false, true, 0},
    {3841, 4608, 384, 6, 4, false, false, false, false, true, 0},
    {1, 96, 480, 3, 4, true, false, true, false, false, 0},
    {97, 128, 480, 4, 4, true, false, true, false, false, 0},
    {129, 160, 384, 5, 4, true, false, true, false, true, 0},
    {161, 192, 480, 3, 4, true, false, true, false, false, 0},
    {193, 256, 480, 4, 4, true, false, true, false, false, 0},
    {257, 320, 384, 5, 4, true, false, true, false, true, 0},
    {321, 384, 384, 6, 4, true, false, true, false, true, 0},
    {385, 512, 384, 4, 4, true, false, true, false, true, 0},
    {513, 640, 384, 5, 4, true, false, true, false, true, 0},
    {641, 768, 384, 6, 4, true, false, true, false, true, 0},
    {769, 1024, 384, 4, 4, true, false, true, false, true, 0},
    {1025, 1536, 480, 4, 4, true, false, true, false, false, 0},
    {1537, 1920, 384, 5, 4, true, false, true, false, true, 0},
    {1921, 2304, 384, 6, 4, true, false, true, false, true, 0},
    {2305, 2560, 384, 5, 4, true, false, true, false, true, 0},
    {2561, 3072, 384, 4, 4, true, false, true, false, true, 0},
    {3073, 3840, 384, 5, 4, true, false, true, false, true, 0},
    {3841, 4608, 384, 6, 4, true, false, true, false, true, 0},
    {4609, 5376, 384, 7, 3, true, false, true, false, true, 0},
    {4609, 6144, 256, 6, 4, true, true, true, false, true, 0},
    {6145, 7040, 352, 5, 4, true, true, true, false, false, 0},
    {6145, 8448, 352, 6, 4, true, true, true, false, false, 0},
    {1, 4608, 192, 6, 4, true, false, true, false, false, 0},
};
/* The same of lengths at which vectors of half as many elements are sooner, unless all rows start
 * with a whole one: more teams start alike, and fewer threads idle. */
static const Fetching started_halves[] = {
    {1, 72, 384, 9, 4, false, false, false, false, false, 0},
    {73, 80, 384, 10, 4, false, false, false, false, true, 0},
    {1, 80, 480, 5, 4, false, false, false, false, false, 0},
    {81, 88, 384, 11, 4, false, false, false, false, true, 0},
    {81, 96, 480, 6, 4, false, false, false, false, false, 0},
    {97, 112, 480, 7, 4, false, false, false, false, false, 0},
    {113, 128, 384, 8, 4, false, false, false, false, true, 0},
    {129, 144, 384, 9, 4, false, false, false, false, true, 0},
    {161, 192, 480, 6, 4, false, false, false, false, false, 0},
    {385, 448, 480, 7, 4, false, false, false, false, false, 0},
    {1, 80, 480, 5, 4, true, false, true, false, false, 0},
    {81, 96, 480, 6, 4, true, false, true, false, false, 0},
    {97, 112, 480, 7, 4, true, false, true, false, false, 0},
    {113, 128, 480, 8, 4, true, false, true, false, false, 0},
    {129, 160, 736, 5, 4, true, false, true, false, false, 0},
    {161, 192, 480, 6, 4, true, false, true, false, false, 0},
    {385, 448, 480, 7, 4, true, false, true, false, false, 0},
    {1, 192, 192, 8, 4, true, false, true, false, false, 0},
    {385, 448, 192, 7, 4, true, false, true, false, false, 0},
};
enum {
    STARTED_UNIT = 4,
    FEW_COLUMNS =
        72, /* vectors of a row of so few are halves, whether it starts with a whole one */
};

/* Sums of a thread's vector that are many; vectors of a row that are few, or not so many (idle). */
enum { MANY = 16, FEW = 16, MIDDLE = 64, WARPGROUP = 128 };

/* Bytes of a turn of which blocks begin none before all have begun the one before; of smaller ones
 * they may be one more ahead (layernorm's gradient over 2,048 in turns of 24 KB: 97.7 us for 100.6,
 * over 4,096 in turns of 32 KB 102.4 for 99.6). */
enum { LARGE_TURN = 28 * 1024 };

/* Rows are read and stored in elements of two bytes. Of larger ones ends take little of the time,
 * and results beside them would leave no room for as many turns. */
static bool is_narrow(const Band *b) {
    const Gpu *g = b->r.team.g;
    const uint32_t both = b->r.axes | 1u << b->turn;
    bool is = true;
    for (KVal v = 1; v < g->k->nops; v++) {
        const uint16_t op = g->k->ops[v].op;
        if ((op == K_kload || op == K_kstore) && (g->rows->dom[v] & both) == both)
            is &= band_element(b, v) == 2;
    }
    return is;
}

uint32_t band_unit(const Band *b) {
    const bool narrow = is_narrow(b);
    if (b->columns % STARTED_UNIT == 0 && (!narrow || b->columns > FEW_COLUMNS))
        return STARTED_UNIT;
    for (size_t i = 0; i < sizeof started_halves / sizeof *started_halves; i++) {
        const Fetching *f = &started_halves[i];
        if (f->again != narrow && b->columns >= f->least && b->columns <= f->most)
            return STARTED_UNIT / 2;
    }
    return STARTED_UNIT;
}

static bool sums_are_many(const Band *b) {
    return b->nsums * b->r.team.g->e->lanes >= MANY;
}

static const Fetching *forms(const Band *b, uint32_t *n) {
    const bool many = sums_are_many(b);
#define FORMS(table) (*n = sizeof(table) / sizeof *(table), (table))
    if (b->starts && b->unit < STARTED_UNIT) return FORMS(started_halves);
    if (b->starts) return FORMS(started_rows);
    if (b->dealt) return b->cluster > FEW_SHARERS ? FORMS(dealt_rows) : FORMS(dealt_few);
    if (b->cluster > FEW_SHARERS || b->r.part > SHARED_PART) return FORMS(long_rows);
    if (b->cluster > 1) return FORMS(shared_rows);
    return many ? FORMS(many_sums) : FORMS(few_sums);
#undef FORMS
}

/* What a stage has beside rows: two barriers, and the rows' numbers. */
static uint32_t beside_fetched(const Band *b, uint32_t teams) {
    return 2 * HOP_BARRIER_BYTES + teams * b->nnumbers * BAND_NUMBER;
}

/* Threads of a row with so many vectors each: at most THREADS. */
static uint32_t team_of(int64_t n, uint32_t pieces) {
    uint32_t t = LEAST_TEAM;
    while (t < THREADS && n > (int64_t)pieces * t) t *= 2;
    return t;
}

/* Of so many threads, which have whole vectors and a part of one each, those that a team may have.
 */
static uint32_t tailed_team(uint32_t most) {
    uint32_t t = LEAST_TEAM / 2;
    if (most > 32) return most / 32 * 32;
    while (t * 2 <= most) t *= 2;
    return t;
}

/* Threads of a team are those that its vectors take, in whole warps; below that a power of two. */
static uint32_t fetched_team(const Band *b, int64_t n, const Fetching *f) {
    uint32_t t = (uint32_t)((n + f->pieces - 1) / f->pieces), least = LEAST_TEAM;
    if (f->tail) {
        const uint32_t most = (uint32_t)n / f->pieces;
        return tailed_team(most < f->threads ? most : f->threads);
    }
    if (t > 32) return (t + 31) / 32 * 32;
    if (b->starts) least /= 2; /* teams of a warp lie apart (apart_of) */
    while (least < t) least *= 2;
    return least;
}

/* What its threads leave of n vectors, if they have as many whole ones, is no more than they have
 * room for in their last. */
static bool tails_hold(const Band *b, int64_t n, uint32_t t, const Fetching *f) {
    const int64_t left = n - (int64_t)t * f->pieces, lanes = b->r.team.g->e->lanes;
    return f->tail <= lanes && left > 0 && left * lanes <= (int64_t)t * f->tail;
}

/* Of what all rows read alike. */
static uint32_t fixed_bytes(const Band *b, uint32_t vectors) {
    uint32_t bytes = 0;
    for (KVal v = 1; v < b->r.team.g->k->nops; v++)
        if (band_is_fixed(b, v)) bytes += band_vector_bytes(b, v) * vectors;
    return bytes;
}

/* Of so many bytes each, for a block of t threads. One that deals rows out has as many as there is
 * room for beside the rest; if that is of single rows, no more than others have. */
static uint32_t stages_of(const Band *b, const Fetching *f, uint32_t t, uint32_t bytes) {
    const uint32_t shared = b->r.team.g->m->shared - RESERVED;
    if (b->starts) {
        const uint32_t kept = f->kept ? fixed_bytes(b, f->pieces * t) : 0;
        const uint32_t n = (shared - kept) / bytes;
        return n < f->stages ? n : f->stages;
    }
    if (!b->dealt) return f->stages;
    const uint32_t warps = t / GPU_WARP;
    const uint32_t folds = 4 * BAND_PLACES * b->nfolds * b->mates * warps * b->cluster;
    const uint32_t moved = 4 * (f->pieces * warps + 1) * b->nsums * b->lists.by;
    const uint32_t n = (shared - fixed_bytes(b, f->pieces * t) - folds - moved) / bytes;
    return b->mates == 1 && n > f->stages ? f->stages : n;
}

/* Which of a row's threads idle in that form: 0: one of eight at most, or of four in a warp, which
 * waits for no other one, where folds follow each other; 1: one of four, where that is still sooner
 * than threads that ask for vectors themselves; 2: more. Those are sooner over a few vectors, and,
 * of many sums, over many that leave no more of them idle (layernorm's gradient over 520 columns
 * 134.5 us, here 100.5; over 1,544 105.2, 107.6). Rows that start at any element have no other way.
 */
static uint32_t idle(const Band *b, int64_t n, const Fetching *f) {
    const uint32_t t = fetched_team(b, n, f);
    const int64_t room = (int64_t)t * f->pieces, other = (int64_t)team_of(n, 2) * 2;
    if (f->tail) return 0;
    const bool some = n * 8 >= room * 6;
    if (b->dealt || b->starts) return 0;
    if (n * 8 >= room * 7 || (b->behind && t <= GPU_WARP && some)) return 0;
    const bool sooner = n >= FEW && (!sums_are_many(b) || n <= MIDDLE || n * 8 < other * 6);
    return some && sooner && b->cluster == 1 && !b->behind ? 1 : 2;
}

/* Teams of a block whose rows start all at one element of a vector each: a multiple of this. */
static uint32_t alike(const Band *b) {
    const Gpu *g = b->r.team.g;
    int64_t blocks;
    uint32_t n = 1;
    if (!expr_is_const(g->e->exprs, g->k->axes[0].extent, &blocks)) blocks = 1;
    while (blocks * n * b->columns % b->unit) n *= 2;
    return n;
}

/* Threads of a block whose teams have t each; 0: too few of those that the form has. */
static uint32_t threads_of(const Band *b, const Fetching *f, uint32_t t) {
    if (b->cluster > 1 || b->dealt) return t;
    uint32_t unit = t < GPU_WARP ? GPU_WARP : t;
    if (b->starts && unit < t * alike(b)) unit = t * alike(b);
    const uint32_t n = f->threads / unit * unit;
    return !b->starts && n * 8 < f->threads * 7 ? 0 : n;
}

/* Of a thread that computes, where those that fetch are a warpgroup which gives up what it has: a
 * warp more would leave all threads fewer than they need. A block has no more than it begins with,
 * as many for each of them: who asks for one more waits forever. */
static uint32_t registers_of(const Band *b, const Fetching *f, uint32_t threads) {
    const uint32_t all = threads + WARPGROUP;
    if (!f->wide || threads % WARPGROUP) return 0;
    const uint32_t each = b->r.team.g->m->registers / all / 8 * 8;
    return (each * all - BAND_FETCHING * WARPGROUP) / threads / 8 * 8;
}

/* Of a row that blocks share, whose parts may be whole lines where rows are not; 0: of others. */
static int64_t whole_bytes(const Band *b) {
    if (!b->r.part) return 0;
    return expr_value(b->r.team.g->e->exprs, row_vectors(&b->r, b->r.axes)) * BAND_PIECE;
}

/* Shared memory answers a line at once, and of each of its banks one word: how often it is asked
 * for what a warp's teams read together, if their rows lie so far from one to the next. */
static uint32_t times_asked(const Band *b, uint32_t apart) {
    const uint32_t each = band_element(b, b->own[0]), vector = b->unit * each;
    const uint32_t together = BAND_LINE / vector;
    uint32_t all = 0;
    for (uint32_t first = 0; first < GPU_WARP; first += together) {
        uint32_t asked[BAND_LINE / 4] = {0}, most = 0;
        for (uint32_t i = 0; i < together * vector / 4; i++) {
            const uint32_t thread = first + i * 4 / vector;
            const int64_t row = (int64_t)(thread / b->r.team.size) * apart * b->columns * each;
            const int64_t at = row / vector * vector + thread % b->r.team.size * vector;
            uint32_t *n = &asked[(at + i * 4 % vector) % BAND_LINE / 4];
            if (++*n > most) most = *n;
        }
        all += most;
    }
    return all;
}

/* Rows from one of a warp's teams to the next. Neighbours mostly lie at the same few banks
 * (layernorm's gradient over 65 columns by teams of eight 121.3 us, so 111.8). */
static uint32_t apart_of(const Band *b) {
    const uint32_t warps = b->threads / GPU_WARP;
    uint32_t best = 1;
    if (!b->gathers || b->side < 2) return 1;
    for (uint32_t n = 2; n <= warps; n++)
        if (warps % n == 0 && times_asked(b, n) < times_asked(b, best)) best = n;
    return best;
}

/* Rows of n vectors in that form: false: it is not for them, or there is no room. Where folds
 * follow each other no row is finished later. */
static bool fits(Band *b, int64_t n, const Fetching *f) {
    const Gpu *g = b->r.team.g;
    const uint32_t t = fetched_team(b, n, f), threads = threads_of(b, f, t);
    if (f->late && (b->behind || t <= GPU_WARP)) return false;
    const int64_t length = b->starts ? b->columns : n;
    if (length < f->least || length > f->most || t > f->threads || !threads) return false;
    if (f->tail && !tails_hold(b, n, t, f)) return false;
    const uint32_t teams = threads / t;
    if (teams > 1 && !band_rows_touch(b)) return false;
    const bool gathers = b->starts && is_narrow(b) && b->nresults && !f->late;
    if (b->starts && !f->again && !gathers) return false;
    b->gathers = gathers && (t <= GPU_WARP || !f->again);
    b->skewed = b->dealt || n * teams * BAND_PIECE % BAND_LINE || whole_bytes(b) % BAND_LINE;
    const uint32_t bytes = band_turn_bytes(b, teams) + beside_fetched(b, teams * b->mates);
    const uint32_t stages = stages_of(b, f, b->starts ? threads : t, bytes);
    if (stages * bytes + RESERVED > g->m->shared || stages < 3) return false;
    b->r.team.size = t, b->r.pieces = f->pieces + (f->tail > 0), b->r.tail = f->tail;
    b->threads = threads, b->teams = teams;
    b->side = t < 32 ? 32 / t : 1;
    b->apart = apart_of(b);
    b->stages = stages;
    b->lead = b->dealt || b->row_bytes * teams < LARGE_TURN ? 1 : 0;
    b->registers = registers_of(b, f, threads);
    b->again = f->again, b->late = f->late, b->in_shared = f->kept, b->untold = f->untold;
    return true;
}

/* Those come first whose threads are busy. Where the assembler spills of one form the next that
 * fits is taken: of whole rows, of which other ways are left, the next one only; of rows that start
 * at any element, and of long ones, of which none is left, the last one whatever it spills. */
static bool choose_fetched(Band *b, int64_t n, uint32_t blocks) {
    const Gpu *g = b->r.team.g;
    uint32_t count, skip = g->j->shrink;
    const Fetching *f = forms(b, &count);
    const bool only = b->dealt || b->starts || b->cluster > FEW_SHARERS || b->r.part > SHARED_PART;
    if (!b->nfolds || blocks > 1 || g->k->more || (!only && b->cluster == 1 && skip > 1))
        return false;
    const Fetching *last = NULL;
    for (uint32_t i = 0; i < 2 * count; i++) {
        const Fetching *form = &f[i % count];
        if (idle(b, n, form) != i / count || !fits(b, n, form)) continue;
        if (!skip--) return true;
        last = form;
    }
    return last && only && fits(b, n, last);
}

/* --- Threads and stages ----------------------------------------------------------------------- */

/* One vector a thread, two where there is one sum only and so little to compute, where that leaves
 * too many idle, or threads are too few; then as many as it takes. */
static void choose_threads(Band *b, int64_t n, uint32_t blocks) {
    uint32_t t = team_of(n, 1);
    if (b->nsums < 2 || n * 8 < (int64_t)t * 7 || n > ONE_VECTOR) t = team_of(n, 2);
    if (t < 32 && !band_rows_touch(b)) t = 32;
    b->r.team.size = t;
    b->r.pieces = (uint32_t)((n + t - 1) / t);
    b->threads = (b->nsums < 2 ? ONE_SUM : THREADS) / blocks;
    if (b->threads < t) b->threads = t;
    if (b->threads < 32) b->threads = 32;
    b->teams = b->threads / t;
    b->side = t < 32 ? 32 / t : 1;
}

/* Blocks of a multiprocessor: the kernel says how many there are. */
static bool choose_blocks(Band *b, uint32_t *blocks) {
    Gpu *g = b->r.team.g;
    int64_t n;
    if (!expr_is_const(g->e->exprs, g->k->axes[0].extent, &n)) return false;
    n = (n + g->m->processors - 1) / g->m->processors;
    *blocks = n < 8 ? (uint32_t)n : 8;
    return true;
}

/* Folds of a row are made of others: threads would wait for each. */
static bool folds_follow(const Band *b) {
    const Gpu *g = b->r.team.g;
    for (KVal v = 1; v < g->k->nops; v++) {
        bool *cone = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
        if (g->k->ops[v].op != K_kreduce || band_is_column(b, v)) continue;
        rows_cone(g->rows, g->k->ops[v].in[0], cone);
        for (KVal w = 1; w < v; w++)
            if (cone[w] && g->k->ops[w].op == K_kreduce && !band_is_column(b, w)) return true;
    }
    return false;
}

/* Of rows that many blocks share, which are finished later, those sums that no fold of the row is
 * part of are added beside the folds: that takes fewer registers. */
static void choose_soon(Band *b) {
    const Gpu *g = b->r.team.g;
    for (uint32_t s = 0; s < b->nsums && b->dealt; s++) {
        bool *cone = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
        rows_cone(g->rows, g->k->ops[b->sum[s]].in[0], cone);
        b->soon[s] = true;
        for (KVal v = 1; v < g->k->nops; v++)
            b->soon[s] &= !cone[v] || g->k->ops[v].op != K_kreduce || band_is_column(b, v);
    }
}

/* Of a block: those that compute, and the warp that asks for rows. */
uint32_t band_threads(const Band *b) {
    return b->threads + (!b->fetched ? 0 : b->registers ? WARPGROUP : GPU_WARP);
}

/* Of so many bytes each. */
static uint32_t most_stages(const Band *b, uint32_t bytes, uint32_t blocks) {
    if (b->behind) return blocks > 1 ? STAGES : STAGES_ALONE;
    return IN_FLIGHT / blocks / bytes;
}

static void count_stages(Band *b, uint32_t bytes, uint32_t beside, uint32_t blocks) {
    const uint32_t most = most_stages(b, bytes, blocks);
    const uint32_t least = b->again ? 3 : 2; /* what is read again stays a turn longer */
    b->stages = (b->r.team.g->m->shared / blocks - RESERVED) / (bytes + beside);
    if (b->stages > most) b->stages = most < least && b->stages >= least ? least : most;
}

/* Of so many bytes each, and `beside` bytes of barriers and numbers, which lie behind all of them.
 */
static bool choose_stages(Band *b, uint32_t bytes, uint32_t beside, uint32_t blocks) {
    Gpu *g = b->r.team.g;
    if (!b->fetched) count_stages(b, bytes, beside, blocks);
    if (b->stages < 2) return false;
    b->bars = b->stages * bytes;
    b->room = (b->stages * (bytes + beside) + BAND_PIECE - 1) / BAND_PIECE * BAND_PIECE;
    g->j->shared_bytes = b->room;
    g->j->shared_bytes += gpu_team_room(&b->r.team, band_threads(b), b->nfolds);
    if (!g->j->min_blocks && !g->j->shrink && !b->untold) g->j->min_blocks = blocks;
    if (b->registers) g->j->min_blocks = 1; /* the registers at entry follow from it */
    return true;
}

/* Where registers are short, threads keep what all rows read alike in shared memory, if it has
 * room. */
static void choose_kept(Band *b, uint32_t blocks) {
    Gpu *g = b->r.team.g;
    const uint32_t at = (g->j->shared_bytes + BAND_PIECE - 1) / BAND_PIECE * BAND_PIECE;
    const uint32_t bytes = fixed_bytes(b, b->r.pieces * b->threads);
    const bool few = b->fetched ? !b->in_shared : b->r.pieces < KEPT_PIECES || b->nsums < 2;
    if (!b->again || few) return;
    if (!bytes || at + bytes > g->m->shared / blocks) return;
    b->kept = at;
    g->j->shared_bytes = at + bytes;
}

/* A multiprocessor holds `blocks` and no more. Blocks of the next kernel start before this one
 * ends: where one had room beside another, some multiprocessors would get two of these and others
 * none, which idle to the end (one sum over 768 columns by 256 threads: 96.3 us instead of 74.5;
 * rows of 1,024 that are finished a turn behind: 210 instead of 144). */
static void keep_apart(Band *b, uint32_t blocks) {
    Gpu *g = b->r.team.g;
    uint32_t least = g->m->shared / (blocks + 1);
    if (g->j->shared_bytes < least) g->j->shared_bytes = least;
}

/* Requests of a thread for a vector, and bytes of n. */
static bool measure_row(Band *b, int64_t n) {
    b->slots = b->row_bytes = 0;
    for (uint32_t i = 0; i < b->nown; i++) {
        uint32_t pieces = band_pieces(b, b->own[i]);
        if (b->starts) b->row_bytes += (uint32_t)b->columns * band_element(b, b->own[i]);
        if (b->starts) continue;
        if (!pieces) return false;
        b->slots += pieces;
        b->row_bytes += pieces * (uint32_t)n * BAND_PIECE;
    }
    return true;
}

/* Blocks of a row: the kernel says it, or it has as many groups of blocks as run at once. */
static uint32_t sharers_of(const Band *b) {
    const Gpu *g = b->r.team.g;
    int64_t groups;
    if (b->dealt) return g->k->dealt.sharers;
    if (!expr_is_const(g->e->exprs, g->k->axes[0].extent, &groups)) return 1;
    for (uint32_t n = FEW_SHARERS; n <= MOST_SHARERS; n++)
        if (groups == g->m->clusters[n]) return n;
    return 1;
}

static bool choose_shared(Band *b, int64_t n, uint32_t blocks) {
    const uint32_t sharers = sharers_of(b);
    if (sharers < FEW_SHARERS || (b->dealt && n % sharers)) return false;
    b->cluster = sharers, b->r.part = (n + sharers - 1) / sharers;
    if (n % sharers) b->r.fewest = n - b->r.part * (sharers - 1);
    if (measure_row(b, b->r.part) && choose_fetched(b, b->r.part, blocks)) return true;
    b->cluster = 1, b->r.part = b->r.fewest = 0;
    (void)measure_row(b, n);
    return false;
}

bool band_choose_sizes(Band *b) {
    Gpu *g = b->r.team.g;
    int64_t n;
    uint32_t blocks;
    if (!expr_is_const(g->e->exprs, row_vectors(&b->r, b->r.axes), &n)) return false;
    if (!choose_blocks(b, &blocks)) return false;
    b->behind = folds_follow(b);
    if (!measure_row(b, n)) return false;
    b->fetched = choose_shared(b, n, blocks) || choose_fetched(b, n, blocks);
    b->behind &= !b->fetched;
    if (b->behind)
        choose_block(b, n, blocks);
    else if (!b->fetched)
        choose_threads(b, n, blocks);
    if (!b->fetched) b->r.tail = 0, b->skewed = false;
    if (b->r.pieces > BAND_PIECES || (b->dealt && !b->late)) return false;
    if (b->starts && !b->fetched) return false;
    b->slots *= b->r.pieces;
    /* Blocks meet in the folds of a row: behind that what was read may be overwritten. */
    b->whole = !b->behind || b->r.team.size == 32 || (b->r.team.size > 32 && b->nfolds);
    uint32_t row = b->whole ? band_turn_bytes(b, b->teams) : b->slots * b->threads * BAND_PIECE;
    if (!b->fetched) b->again = !b->behind && b->r.pieces > 2;
    /* Two rows of 96 KB and more are on their way then: over 16,384 columns rmsnorm's gradient
     * takes 104.2 us in step and 111.9 without. Less is shared out evenly enough: 8,192
     * columns 99.4 and 100.4, layernorm's 108.3 and 104.6; teams of a block lose 2 to 12 us. */
    b->paced = b->again && b->teams == 1 && !b->fetched;
    uint32_t beside = b->teams * (HOP_BARRIER_BYTES + b->nnumbers * BAND_NUMBER);
    if (b->fetched) beside = beside_fetched(b, b->teams * b->mates);
    if (!choose_stages(b, row, b->whole ? beside : 0, blocks)) return false;
    choose_kept(b, blocks);
    choose_soon(b);
    keep_apart(b, blocks);
    return true;
}
