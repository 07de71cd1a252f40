/* Folds over outer axes: sums of columns. A block takes a group of neighbouring columns, as many as
 * 32 vectors hold, and a part of the rows, several of them at once; these join in shared memory,
 * and the last block of a group joins the parts in order, so that results do not depend on timing.
 */
#include "codegen/nvptx/column/column.h"

enum {
    SHARED = 40960,         /* bytes of a block's sums; of more, it has half of the threads */
    MOST_SHARED = 48 << 10, /* bytes that a kernel may declare */
    LEAST_WIDE = 4,         /* vectors side by side */
    BLOCKS = 2,             /* per multiprocessor, most */
    MANY = 4, /* groups of a multiprocessor: blocks are small, and none is cut into parts */
    GAIN = 2, /* percent of multiprocessors that are worth a second block */
    MOST_PARTS = 256,
    MOST_WORDS = 96, /* of a thread's registers that wait for what was asked for together */
    LEAST_ROWS = 32, /* that are worth it, and ... */
    PART_ROWS = 512, /* ... of a part: meeting takes as long */
    FEW_ROWS = 256,  /* of which a thread takes few: */
    EACH = 4,
    NARROW = 8,      /* vectors side by side, then */
    MOST_SHRINK = 2, /* halvings of the rows asked for together by builds that spilled */
    LEAST_COLUMNS = 32,
};

/* --- What shape a kernel has ------------------------------------------------------------------ */

/* Of a row, with those that begin in front of it and end behind where they are shifted. */
static Expr vectors(const Column *c) {
    ExprPool *p = c->g->e->exprs;
    if (!c->classes) return gpu_vectors(c->g, c->lane);
    Expr n = expr_ceildiv(p, c->g->k->axes[c->lane].extent, expr_const(p, c->lanes));
    return expr_addi(p, n, 1);
}

/* The pass stores what folds give. */
static bool takes_folds(const Column *c, const Pass *p) {
    for (KVal v = 1; v < c->g->k->nops; v++)
        for (int i = 0; p->cone[v] && i < 3; i++)
            for (uint32_t f = 0; f < c->folds->nfolds; f++)
                if (c->g->k->ops[v].in[i] == c->folds->folds[f]) return true;
    return false;
}

/* Passes behind the folds: one that walks nothing, and one that stores points of which folds know
 * nothing. */
static bool find_stores(Column *c) {
    for (uint32_t i = 1; i < c->g->rows->npasses; i++) {
        const Pass *p = &c->g->rows->pass[i];
        const Pass **as = p->axes ? &c->points : &c->stores;
        if (p->nfolds || *as || (p->axes && (p->axes != c->folds->axes || takes_folds(c, p))))
            return false;
        *as = p;
    }
    return c->stores != NULL;
}

/* One pass of folds over the same axes, then stores; no positions. */
static bool has_shape(Column *c) {
    Gpu *g = c->g;
    if (g->rows->npasses < 2 || g->k->serial || g->j->shrink > MOST_SHRINK) return false;
    c->folds = &g->rows->pass[0];
    if (!c->folds->nfolds || c->folds->nstores || !find_stores(c)) return false;
    for (uint32_t f = 0; f < c->folds->nfolds; f++) {
        DType t = gpu_fold_type(g, c->folds->folds[f]);
        if (gpu_fold_width(g, c->folds->folds[f]) != 1 || dtype_bytes(t) < 4) return false;
    }
    return true;
}

/* The columns lie side by side, and there are too few for a thread each. */
static bool is_wanted(Column *c) {
    Gpu *g = c->g;
    Emit *e = g->e;
    int lane = -1;
    for (uint32_t i = 0; i < g->k->naxes; i++)
        if (g->rows->par >> i & 1 && gpu_contiguity(e, g->k, g->rows->dom, ~0u, i) > 0)
            lane = (int)i;
    if (lane < 0) return false;
    c->lane = (uint32_t)lane;
    c->others = g->rows->par & ~(1u << lane);
    int64_t rows = gpu_hint(e, gpu_points(e, g->k, c->folds->axes));
    int64_t points = gpu_hint(e, gpu_points(e, g->k, g->rows->par));
    return rows >= LEAST_ROWS && gpu_hint(e, g->k->axes[lane].extent) >= LEAST_COLUMNS &&
           points < (int64_t)g->m->processors * 2048 * 4;
}

static void set_wide(Column *c, uint32_t wide) {
    c->wide = wide;
    c->rows = c->threads / wide;
}

/* Groups of columns, by the hints of sizes. */
static int64_t count_groups(const Column *c) {
    Gpu *g = c->g;
    int64_t n = gpu_hint(g->e, g->k->axes[c->lane].extent);
    n = (n + column_own(c) - 1) / column_own(c);
    return n * gpu_hint(g->e, gpu_points(g->e, g->k, c->others));
}

/* Parts of the rows, by the hints of sizes: a block for each multiprocessor, two where that leaves
 * fewer of them idle; none of less than a few rows. */
static void choose_parts(Column *c) {
    Gpu *g = c->g;
    int64_t rows = gpu_hint(g->e, gpu_points(g->e, g->k, c->folds->axes));
    int64_t groups = count_groups(c), most = rows / PART_ROWS, best = 0;
    c->parts = c->blocks = 1;
    for (uint32_t b = 1; b <= BLOCKS; b++) {
        int64_t room = (int64_t)g->m->processors * b, n = room / groups;
        if (n > most) n = most;
        n = n > MOST_PARTS ? MOST_PARTS : n < 1 ? 1 : n;
        int64_t used = n * groups * 100 / room;
        if (used <= best + GAIN) continue;
        best = used;
        c->parts = (uint32_t)n;
        c->blocks = b;
    }
}

/* Of a column's sums. */
static uint32_t sum_bytes(const Column *c) {
    uint32_t bytes = 0;
    for (uint32_t f = 0; f < c->folds->nfolds; f++)
        bytes += (uint32_t)dtype_bytes(gpu_fold_type(c->g, c->folds->folds[f]));
    return bytes;
}

/* False: even few threads have more sums than shared memory holds. */
static bool choose_threads(Column *c) {
    const uint32_t bytes = sum_bytes(c) * c->lanes;
    c->threads = bytes * COLUMN_THREADS <= SHARED ? COLUMN_THREADS : COLUMN_THREADS / 2;
    return bytes * c->threads <= SHARED;
}

/* Words that come to a thread for each row. */
static uint32_t words_of_row(const Column *c) {
    const Gpu *g = c->g;
    uint32_t bytes = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (o->op != K_kload || !(g->rows->dom[v] >> c->lane & 1)) continue;
        if (g->rows->dom[v] & c->folds->axes)
            bytes += (uint32_t)dtype_bytes(g->k->params[o->buf].dtype) * c->lanes;
    }
    return (bytes + 3) / 4;
}

/* Half as wide, a block has twice as many rows: those of shifted vectors have room for one each in
 * front of their columns, and shared memory holds all of it. */
static bool can_narrow(const Column *c) {
    const uint32_t room = column_room(c), rows = 2 * c->rows;
    return c->wide > LEAST_WIDE && sum_bytes(c) * (room + column_width(c) / 2) * rows < MOST_SHARED;
}

/* Of few rows and not too many columns small blocks of no more threads than have some rows each, so
 * that several of a multiprocessor's ask for theirs at once (the sums of 66 blocks over 20,480
 * columns: layernorm's gradient 100.3 us, and 102.3 by 512 threads; of 132 over 8,192 98.6, 99.6).
 */
static bool choose_small(Column *c) {
    const int64_t rows = gpu_hint(c->g->e, gpu_points(c->g->e, c->g->k, c->folds->axes));
    const uint32_t threads = c->threads;
    if (rows > FEW_ROWS || c->classes || count_groups(c) > MANY * (int64_t)c->g->m->processors)
        return false;
    c->threads = GPU_WARP;
    while (c->threads < threads && rows >= (int64_t)EACH * 2 * c->threads / NARROW) c->threads *= 2;
    set_wide(c, NARROW);
    if (count_groups(c) >= c->g->m->processors * 3 / 4) {
        choose_parts(c);
        return true;
    }
    c->threads = threads;
    set_wide(c, COLUMN_WIDE);
    return false;
}

/* Few columns leave room for more rows; of few rows, narrow groups keep all multiprocessors busy */
static void choose_sizes(Column *c) {
    int64_t n;
    set_wide(c, COLUMN_WIDE);
    if (choose_small(c)) return;
    if (count_groups(c) > MANY * (int64_t)c->g->m->processors) {
        c->threads = COLUMN_THREADS / 2;
        set_wide(c, COLUMN_WIDE);
    }
    if (expr_is_const(c->g->e->exprs, vectors(c), &n))
        while (can_narrow(c) && n <= c->wide / 2) set_wide(c, c->wide / 2);
    choose_parts(c);
    const int64_t few = (int64_t)c->g->m->processors * 3 / 4;
    while (can_narrow(c) && count_groups(c) * c->parts < few) {
        set_wide(c, c->wide / 2);
        choose_parts(c);
    }
}

/* --- The kernel ------------------------------------------------------------------------------- */

static void place(Column *c) {
    Emit *e = c->g->e;
    LLVMValueRef one = emit_i64(e, 1), last;
    c->lane_id = LLVMBuildAnd(e->b, c->g->tid, emit_i64(e, c->wide - 1), "");
    c->row = LLVMBuildLShr(e->b, c->g->tid, emit_i64(e, __builtin_ctz(c->wide)), "");
    LLVMValueRef v = LLVMBuildMul(e->b, c->g->block[0], emit_i64(e, column_own(c) / c->lanes), "");
    if (c->classes) {
        c->shift = column_shift(c);
        last = LLVMBuildAdd(e->b, emit_expr(e, c->g->k->axes[c->lane].extent), c->shift, "");
        last = LLVMBuildSub(e->b, last, one, "");
        last = LLVMBuildLShr(e->b, last, emit_i64(e, __builtin_ctz(c->lanes)), "");
    } else {
        last = LLVMBuildSub(e->b, emit_expr(e, vectors(c)), one, "");
    }
    v = LLVMBuildAdd(e->b, v, c->lane_id, "");
    c->vector = gpu_smaller(e, v, last);
    c->inside = LLVMBuildICmp(e->b, LLVMIntSLE, v, last, "");
}

/* All that the kernel is made by; false: the block would have too many sums. */
static bool choose(Column *c) {
    Gpu *g = c->g;
    ExprPool *p = g->e->exprs;
    int64_t lo, hi;
    c->lanes = gpu_lanes(g, c->lane, NULL);
    c->together = COLUMN_UNROLL;
    if (c->lanes == 1 && !column_find_classes(c)) c->classes = 0;
    c->together >>= g->j->shrink;
    g->e->lanes = c->lanes;
    c->points_beside = gpu_points(g->e, g->k, c->others);
    expr_range(p, c->points_beside, &lo, &hi);
    if (hi > GPU_GRID_Y || !choose_threads(c)) return false;
    while (c->together > 1 && c->together * words_of_row(c) > MOST_WORDS) c->together /= 2;
    choose_sizes(c);
    GC_ASSERT(column_width(c) <= c->threads); /* a thread has one where they meet */
    c->groups = expr_ceildiv(p, c->classes ? g->k->axes[c->lane].extent : vectors(c),
                             expr_const(p, c->classes ? column_own(c) : c->wide));
    if (c->threads < COLUMN_THREADS) c->blocks *= 2;
    return true;
}

static void launch(Column *c) {
    Gpu *g = c->g;
    Emit *e = g->e;
    if (!g->j->min_blocks) g->j->min_blocks = c->blocks;
    gpu_launch(g, c->threads, c->groups, c->points_beside, expr_const(e->exprs, c->parts));
    c->part = g->block[2];
    gpu_decode(e, g->k, c->others, emit_position(e, "other", c->points_beside, g->block[1]));
    place(c);
}

bool gpu_column(Gpu *g) {
    Emit *e = g->e;
    Column c = {.g = g};
    if (!has_shape(&c) || !is_wanted(&c)) return false;
    if (!choose(&c)) {
        e->lanes = 1;
        return false;
    }
    launch(&c);
    LLVMValueRef acc[ROWS_MAX_FOLDS], at = g->tid;
    (void)gpu_fold_init(g, c.folds, c.lanes, acc);
    emit_push(e);
    column_fold_part(&c, acc);
    emit_pop(e);
    e->lanes = 1;
    const uint32_t width = column_width(&c);
    if (width < c.threads) at = LLVMBuildAnd(e->b, at, emit_i64(e, width - 1), "");
    column_join_rows(&c, at, c.shift, acc);
    column_forget(&c);
    if (c.parts > 1)
        column_join_parts(&c, at, acc);
    else
        column_store(&c, at, acc);
    return true;
}
