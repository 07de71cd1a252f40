/* Folds over outer axes: sums of columns. A block takes a group of neighbouring columns, as many as
 * 32 vectors hold, and a part of the rows, several of them at once; these join in shared memory,
 * and the last block of a group joins the parts in order, so that results do not depend on timing.
 */
#include "codegen/nvptx/row/row.h"

enum {
    THREADS = 512,          /* or half of that, where ... */
    SHARED = 40960,         /* ... their sums take more bytes than these */
    MOST_SHARED = 48 << 10, /* bytes that a kernel may declare */
    MOST_WIDE = 32,         /* vectors side by side, and the least */
    LEAST_WIDE = 4,
    UNROLL =
        8, /* rows asked for together; of shifted vectors, of which fewer threads have any, ... */
    MOST_UNROLL = 16, /* ... as many if only one value is read of each */
    BLOCKS = 2,       /* per multiprocessor, most */
    MANY = 4,         /* groups of a multiprocessor: blocks are small, and none is cut into parts */
    GAIN = 2,         /* percent of multiprocessors that are worth a second block */
    MOST_PARTS = 256,
    SLOT = 8,        /* bytes kept for a result */
    MOST_WORDS = 96, /* of a thread's registers that wait for what was asked for together */
    LEAST_ROWS = 64, /* that are worth it, and ... */
    PART_ROWS = 512, /* ... of a part: meeting takes as long */
};

typedef struct Column {
    Gpu *g;
    const Pass *folds, *stores, *points;     /* points: stored on the way, or NULL */
    uint32_t lane, others;                   /* the columns' axis; parallel axes beside it */
    uint32_t lanes, parts, blocks;           /* blocks: of a multiprocessor */
    uint32_t threads, wide, rows;            /* of a block: vectors of a row times rows */
    uint32_t together;                       /* rows of a thread that are asked for together */
    LLVMValueRef slot[ROWS_MAX_FOLDS];       /* shared memory where the rows meet */
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

static uint32_t columns(const Column *c) {
    return c->wide * c->lanes; /* of a block */
}

/* Of these, what no other block has: shifted vectors leave some of the last one's out. */
static uint32_t own_columns(const Column *c) {
    return c->classes ? columns(c) - c->lanes : columns(c);
}

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
    if (g->rows->npasses < 2 || g->k->serial || g->j->shrink) return false;
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
    return rows >= LEAST_ROWS && gpu_hint(e, g->k->axes[lane].extent) >= 32 &&
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
    n = (n + own_columns(c) - 1) / own_columns(c);
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
    c->threads = bytes * THREADS <= SHARED ? THREADS : THREADS / 2;
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
    const uint32_t room = c->classes ? c->lanes : 0, rows = 2 * c->rows;
    return c->wide > LEAST_WIDE && sum_bytes(c) * (room + columns(c) / 2) * rows < MOST_SHARED;
}

/* Few columns leave room for more rows; of few rows, narrow groups keep all multiprocessors busy */
static void choose_sizes(Column *c) {
    int64_t n;
    set_wide(c, MOST_WIDE);
    if (count_groups(c) > MANY * (int64_t)c->g->m->processors) {
        c->threads = THREADS / 2;
        set_wide(c, MOST_WIDE);
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

/* --- Rows of any pitch ------------------------------------------------------------------------ */

/* The load moves by one along the columns and by a known number of elements along the rows, and
 * starts at a vector. */
static bool has_pitch(const Column *c, const KOp *o, uint32_t lanes, int64_t *pitch) {
    Gpu *g = c->g;
    Expr coef, rest, at;
    uint32_t row = (uint32_t)__builtin_ctz(c->folds->axes);
    return !o->mask && expr_affine(g->e->exprs, o->index, g->k->axes[c->lane].sym, &coef, &rest) &&
           expr_is_value(g->e->exprs, coef, 1) &&
           expr_affine(g->e->exprs, rest, g->k->axes[row].sym, &coef, &at) &&
           expr_is_const(g->e->exprs, coef, pitch) && *pitch > 0 && *pitch < INT32_MAX &&
           emit_divisor(g->e, at) % lanes == 0;
}

/* Vectors of columns whose number is no multiple of the lanes: all that is read along them lies
 * alike in the same rows. */
static bool find_classes(Column *c) {
    Gpu *g = c->g;
    if (c->points || c->folds->axes & (c->folds->axes - 1)) return false;
    uint32_t lanes = gpu_lanes_ragged(g, c->lane);
    int64_t pitch;
    uint32_t loads = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (!c->folds->cone[v] || o->op != K_kload || !(g->rows->dom[v] >> c->lane & 1)) continue;
        if (!has_pitch(c, o, lanes, &pitch)) return false;
        if (loads && (pitch - c->pitch) % lanes) return false;
        if (!loads++) c->pitch = pitch;
    }
    if (lanes == 1 || !loads) return false;
    for (c->classes = 1; c->pitch * c->classes % lanes; c->classes *= 2) {}
    if (c->classes > THREADS / 2 / MOST_WIDE) return false;
    c->lanes = lanes;
    c->together = loads == 1 ? MOST_UNROLL : UNROLL;
    return true;
}

/* Rows are classes * i + class, columns what is left of the index when the class's rows are taken
 * off: so it is seen that both together stand at whole vectors. */
static void bind_class(Column *c) {
    Gpu *g = c->g;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    uint32_t sym;
    int64_t lo, hi;
    expr_range(p, g->k->axes[c->lane].extent, &lo, &hi);
    LLVMValueRef class = LLVMBuildAnd(e->b, c->row, emit_i64(e, c->classes - 1), "");
    c->class = emit_new_sym(e, "class", c->classes - 1, class);
    LLVMValueRef at = LLVMBuildMul(e->b, class, emit_i64(e, c->pitch), "");
    at = LLVMBuildSub(e->b, at, c->shift, "");
    at = LLVMBuildAdd(e->b, at, LLVMBuildMul(e->b, c->vector, emit_i64(e, c->lanes), ""), "");
    Expr base = emit_new_sym(e, "vector", c->pitch * c->classes + hi, at);
    if (expr_is_sym(p, base, &sym)) map_put(e->aligned, sym, c->lanes);
    Expr column = expr_sub(p, base, expr_muli(p, c->class, c->pitch));
    emit_bind_lanes(e, g->k->axes[c->lane].sym, column, NULL, false);
}

/* The last row is taken by elements, where rows meet: its last vector would end behind it. */
static Expr walked_rows(const Column *c) {
    ExprPool *p = c->g->e->exprs;
    Expr n = gpu_points(c->g->e, c->g->k, c->folds->axes);
    return c->classes ? expr_max(p, expr_addi(p, n, -1), expr_const(p, 0)) : n;
}

/* --- A part ----------------------------------------------------------------------------------- */

/* What is stored of each point on the way: threads past the columns, which repeat one, do not, nor
 * past the rows, where `live` is off (NULL: nowhere). */
static void store_points(Column *c, LLVMValueRef live) {
    Emit *e = c->g->e;
    EmitIf inside;
    if (!c->points) return;
    if (live) live = LLVMBuildAnd(e->b, live, c->inside, "");
    emit_if_begin(e, &inside, live ? live : c->inside);
    for (uint32_t i = 0; i < c->points->nstores; i++) emit_store(e, c->points->stores[i]);
    emit_if_end(e, &inside);
}

/* Row number `at` (i64), which is of this thread's class. */
static Expr row_at(Column *c, LLVMValueRef at) {
    Emit *e = c->g->e;
    int64_t least, most;
    expr_range(e->exprs, gpu_points(e, c->g->k, c->folds->axes), &least, &most);
    if (!c->classes) return emit_new_sym(e, "r", most > 0 ? most - 1 : 0, at);
    at = LLVMBuildLShr(e->b, at, emit_i64(e, __builtin_ctz(c->classes)), "");
    Expr i = emit_new_sym(e, "r", most > 0 ? most / c->classes : 0, at);
    return expr_add(e->exprs, expr_muli(e->exprs, i, c->classes), c->class);
}

/* What is read where there is no row. */
static LLVMValueRef other_row(const Column *c, LLVMValueRef first, LLVMValueRef at,
                              LLVMValueRef live, LLVMValueRef end) {
    Emit *e = c->g->e;
    if (c->classes) return LLVMBuildSelect(e->b, live, at, first, "");
    LLVMValueRef last[2] = {at, LLVMBuildSub(e->b, end, emit_i64(e, 1), "")};
    return emit_intrinsic(e, "llvm.smin", e->i64, last, 2);
}

/* n rows: all are on their way before the first is waited for. Where there may be no such row,
 * `end` says behind which (else NULL). */
static void fold_rows(Column *c, uint32_t n, LLVMValueRef row, LLVMValueRef end,
                      LLVMValueRef *acc) {
    Gpu *g = c->g;
    Emit *e = g->e;
    LLVMValueRef live[MOST_UNROLL];
    EmitScope *scope[MOST_UNROLL], *outer = e->scope;
    Expr at = row_at(c, row);
    for (uint32_t u = 0; u < n; u++) {
        Expr mine = expr_addi(e->exprs, at, (int64_t)u * c->rows);
        if (end) {
            LLVMValueRef i = emit_expr(e, mine);
            live[u] = LLVMBuildICmp(e->b, LLVMIntSLT, i, end, "");
            mine = row_at(c, other_row(c, row, i, live[u], end));
        }
        scope[u] = emit_push(e);
        gpu_decode(e, g->k, c->folds->axes, mine);
        for (KVal v = 1; v < g->k->nops; v++)
            if (c->folds->cone[v] && g->k->ops[v].op == K_kload) (void)emit_value(e, v);
        (void)emit_switch(e, outer);
    }
    for (uint32_t u = 0; u < n; u++) {
        (void)emit_switch(e, scope[u]);
        for (uint32_t f = 0; f < c->folds->nfolds; f++) {
            const KOp *o = &g->k->ops[c->folds->folds[f]];
            LLVMValueRef x = emit_value_lanes(e, o->in[0]);
            DType t = gpu_fold_type(g, c->folds->folds[f]);
            LLVMValueRef none = emit_fold_identity(e, (KFold)o->fold, t, c->lanes);
            if (end) x = emit_select(e, live[u], x, none);
            acc[f] = emit_fold_join(e, (KFold)o->fold, t, acc[f], x);
        }
        store_points(c, end ? live[u] : NULL);
        (void)emit_switch(e, outer);
    }
}

static void walk(Column *c, LLVMValueRef lo, LLVMValueRef hi, bool ragged, LLVMValueRef *acc) {
    Emit *e = c->g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, c->folds->nfolds);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) l->init[f] = acc[f];
    emit_loop_begin(e, l, "rows", lo, hi, emit_i64(e, (int64_t)c->together * c->rows), false);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) l->next[f] = l->phi[f];
    fold_rows(c, c->together, l->i, ragged ? hi : NULL, l->next);
    emit_loop_end(e, l);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) acc[f] = l->out[f];
}

/* First row of a part: parts differ by one row of each thread. */
static LLVMValueRef part_begin(Column *c, LLVMValueRef part) {
    Emit *e = c->g->e;
    ExprPool *p = e->exprs;
    Expr rows = walked_rows(c);
    LLVMValueRef n = emit_expr(e, expr_ceildiv(p, rows, expr_const(p, c->rows)));
    n = LLVMBuildUDiv(e->b, LLVMBuildMul(e->b, n, part, ""), emit_i64(e, c->parts), "");
    LLVMValueRef first[2] = {LLVMBuildMul(e->b, n, emit_i64(e, c->rows), ""), emit_expr(e, rows)};
    return emit_intrinsic(e, "llvm.smin", e->i64, first, 2);
}

/* This thread's columns over its rows of the block's part. */
static void fold_part(Column *c, LLVMValueRef *acc) {
    Gpu *g = c->g;
    Emit *e = g->e;
    LLVMValueRef lo = part_begin(c, c->part);
    LLVMValueRef hi = part_begin(c, LLVMBuildAdd(e->b, c->part, emit_i64(e, 1), ""));
    LLVMValueRef n = LLVMBuildSub(e->b, hi, lo, "");
    LLVMValueRef whole = LLVMBuildAnd(e->b, n, emit_i64(e, -(int64_t)c->together * c->rows), "");
    LLVMValueRef middle = LLVMBuildAdd(e->b, lo, whole, "");
    if (c->classes)
        bind_class(c);
    else
        gpu_bind_lanes(g, c->lane, c->vector);
    walk(c, LLVMBuildAdd(e->b, lo, c->row, ""), middle, false, acc);
    walk(c, LLVMBuildAdd(e->b, middle, c->row, ""), hi, true, acc);
}

/* --- Joining ---------------------------------------------------------------------------------- */

static LLVMTypeRef acc_type(Column *c, uint32_t f) {
    return emit_type(c->g->e, gpu_fold_type(c->g, c->folds->folds[f]));
}

static LLVMValueRef join(Column *c, uint32_t f, LLVMValueRef a, LLVMValueRef b) {
    KVal v = c->folds->folds[f];
    return emit_fold_join(c->g->e, (KFold)c->g->k->ops[v].fold, gpu_fold_type(c->g, v), a, b);
}

/* Number `at` of the block's columns, among all. */
static LLVMValueRef column_of(const Column *c, LLVMValueRef at) {
    Emit *e = c->g->e;
    LLVMValueRef first = LLVMBuildMul(e->b, c->g->block[0], emit_i64(e, own_columns(c)), "");
    return LLVMBuildAdd(e->b, first, at, "");
}

/* The column is there, and this thread's to store. */
static LLVMValueRef owns(const Column *c, LLVMValueRef column) {
    Gpu *g = c->g;
    Emit *e = g->e;
    LLVMValueRef end = emit_expr(e, g->k->axes[c->lane].extent);
    LLVMValueRef own = LLVMBuildICmp(e->b, LLVMIntSLT, g->tid, emit_i64(e, own_columns(c)), "");
    return LLVMBuildAnd(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, column, end, ""), own, "");
}

/* Threads of a warp that have the same columns join what they have before the block's rows meet:
 * shifted vectors do not, as rows of a warp begin at different columns. */
static uint32_t joined_lanes(const Column *c) {
    return c->classes || c->wide >= 32 ? 1 : 32 / c->wide;
}

static uint32_t meeting_rows(const Column *c) {
    return c->rows / joined_lanes(c);
}

/* Where the rows of a block meet: room in front of each row for what is shifted. */
static LLVMValueRef slot(Column *c, uint32_t f, LLVMValueRef row, LLVMValueRef at) {
    Emit *e = c->g->e;
    uint32_t room = c->classes ? c->lanes : 0;
    if (!c->slot[f])
        c->slot[f] = gpu_shared(c->g, acc_type(c, f), (room + columns(c)) * meeting_rows(c));
    LLVMValueRef i = LLVMBuildMul(e->b, row, emit_i64(e, room + columns(c)), "");
    i = LLVMBuildAdd(e->b, LLVMBuildAdd(e->b, i, emit_i64(e, room), ""), at, "");
    return emit_gep(e, acc_type(c, f), c->slot[f], i);
}

/* What the thread's rows have of fold f goes where their columns are. */
static void put_row(Column *c, uint32_t f, LLVMValueRef shift, LLVMValueRef v) {
    Emit *e = c->g->e;
    LLVMValueRef at = LLVMBuildMul(e->b, c->lane_id, emit_i64(e, c->lanes), "");
    const uint32_t n = joined_lanes(c);
    if (!shift) {
        EmitIf first;
        LLVMValueRef row = LLVMBuildUDiv(e->b, c->row, emit_i64(e, n), "");
        LLVMValueRef rest = LLVMBuildAnd(e->b, c->row, emit_i64(e, n - 1), "");
        for (uint32_t i = 1; i < n; i *= 2) v = join(c, f, v, gpu_shuffle(e, v, i * c->wide));
        LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntEQ, rest, emit_i64(e, 0), "");
        if (n > 1) emit_if_begin(e, &first, is);
        emit_store_ptr(e, v, slot(c, f, row, at), 4 * c->lanes < 16 ? 4 * c->lanes : 16);
        if (n > 1) emit_if_end(e, &first);
        return;
    }
    LLVMValueRef p = slot(c, f, c->row, LLVMBuildSub(e->b, at, shift, ""));
    for (uint32_t i = 0; i < c->lanes; i++) {
        LLVMValueRef x = LLVMBuildExtractElement(e->b, v, emit_i(e, e->i32, i), "");
        LLVMBuildStore(e->b, x, emit_gep(e, acc_type(c, f), p, emit_i64(e, i)));
    }
}

/* The row that was not walked joins the first of the block, column by column. */
static void add_last_row(Column *c, LLVMValueRef at) {
    Gpu *g = c->g;
    Emit *e = g->e;
    EmitIf is;
    LLVMValueRef rows = emit_expr(e, gpu_points(e, g->k, c->folds->axes)), one = emit_i64(e, 1);
    LLVMValueRef column = column_of(c, at);
    LLVMValueRef some = LLVMBuildICmp(e->b, LLVMIntSGE, rows, one, "");
    LLVMValueRef last = LLVMBuildICmp(e->b, LLVMIntEQ, c->part, emit_i64(e, c->parts - 1), "");
    LLVMValueRef in = owns(c, column);
    emit_if_begin(e, &is, LLVMBuildAnd(e->b, LLVMBuildAnd(e->b, in, some, ""), last, ""));
    emit_push(e);
    emit_set_sym(e, g->k->axes[c->lane].sym, column);
    emit_set_sym(e, g->k->axes[__builtin_ctz(c->folds->axes)].sym,
                 LLVMBuildSub(e->b, rows, one, ""));
    for (uint32_t f = 0; f < c->folds->nfolds; f++) {
        LLVMValueRef p = slot(c, f, emit_i64(e, 0), at);
        LLVMValueRef x = emit_value(e, g->k->ops[c->folds->folds[f]].in[0]);
        LLVMBuildStore(e->b, join(c, f, LLVMBuildLoad2(e->b, acc_type(c, f), p, ""), x), p);
    }
    emit_pop(e);
    emit_if_end(e, &is);
    gpu_barrier(e); /* for threads that repeat the column */
}

/* The block's rows meet: thread t gets column t of the block. Threads past the columns repeat one.
 * shift: of what is in acc, or NULL. */
static void join_rows(Column *c, LLVMValueRef at, LLVMValueRef shift, LLVMValueRef *acc) {
    Emit *e = c->g->e;
    for (uint32_t f = 0; f < c->folds->nfolds; f++) put_row(c, f, shift, acc[f]);
    gpu_barrier(e);
    if (shift) add_last_row(c, at);
    for (uint32_t f = 0; f < c->folds->nfolds; f++)
        for (uint32_t w = 0; w < meeting_rows(c); w++) {
            LLVMValueRef x =
                LLVMBuildLoad2(e->b, acc_type(c, f), slot(c, f, emit_i64(e, w), at), "");
            acc[f] = w ? join(c, f, acc[f], x) : x;
        }
}

/* Column `at` of fold f in a part's results. */
static LLVMValueRef part_at(Column *c, const Parts *m, LLVMValueRef part, LLVMValueRef at,
                            uint32_t f) {
    LLVMValueRef p = row_part(m, part, (int64_t)f * columns(c) * SLOT);
    return emit_gep(c->g->e, acc_type(c, f), p, at);
}

static void store_columns(Column *c, LLVMValueRef at, LLVMValueRef *acc) {
    Gpu *g = c->g;
    Emit *e = g->e;
    EmitIf inside;
    LLVMValueRef column = column_of(c, at);
    emit_if_begin(e, &inside, owns(c, column));
    emit_set_sym(e, g->k->axes[c->lane].sym, column);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) emit_override(e, c->folds->folds[f], acc[f]);
    for (uint32_t i = 0; i < c->stores->nstores; i++) emit_store(e, c->stores->stores[i]);
    emit_if_end(e, &inside);
}

/* Of part `row` and those UNROLL - 1 that follow for this thread's columns: zeros are left in their
 * place. Behind the last part there is nothing. */
static void add_some(Column *c, const Parts *m, LLVMValueRef row, uint32_t f, LLVMValueRef *acc) {
    Emit *e = c->g->e;
    KVal v = c->folds->folds[f];
    LLVMTypeRef t = emit_vec(acc_type(c, f), c->lanes);
    LLVMValueRef x[UNROLL], p[UNROLL], live[UNROLL];
    LLVMValueRef at = LLVMBuildMul(e->b, c->lane_id, emit_i64(e, c->lanes), "");
    LLVMValueRef none =
        emit_fold_identity(e, (KFold)c->g->k->ops[v].fold, gpu_fold_type(c->g, v), c->lanes);
    uint32_t align = 4 * c->lanes < 16 ? 4 * c->lanes : 16;
    for (uint32_t u = 0; u < UNROLL; u++) {
        LLVMValueRef part = LLVMBuildAdd(e->b, row, emit_i64(e, (int64_t)u * c->rows), "");
        LLVMValueRef last[2] = {part, emit_i64(e, c->parts - 1)};
        live[u] = LLVMBuildICmp(e->b, LLVMIntSLT, part, emit_i64(e, c->parts), "");
        p[u] = part_at(c, m, emit_intrinsic(e, "llvm.smin", e->i64, last, 2), at, f);
        x[u] = emit_load(e, t, p[u], align);
    }
    for (uint32_t u = 0; u < UNROLL; u++) {
        EmitIf there;
        *acc = join(c, f, *acc, emit_select(e, live[u], x[u], none));
        emit_if_begin(e, &there, live[u]);
        emit_store_ptr(e, LLVMConstNull(t), p[u], align);
        emit_if_end(e, &there);
    }
}

static void add_parts(Column *c, const Parts *m, LLVMValueRef *acc) {
    Emit *e = c->g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, c->folds->nfolds);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) l->init[f] = acc[f];
    emit_loop_begin(e, l, "parts", c->row, emit_i64(e, c->parts),
                    emit_i64(e, (int64_t)UNROLL * c->rows), false);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) {
        l->next[f] = l->phi[f];
        add_some(c, m, l->i, f, &l->next[f]);
    }
    emit_loop_end(e, l);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) acc[f] = l->out[f];
}

static void join_parts(Column *c, LLVMValueRef at, LLVMValueRef *acc, Expr groups,
                       LLVMValueRef group) {
    Emit *e = c->g->e;
    int64_t bytes = (int64_t)c->folds->nfolds * columns(c) * SLOT;
    Parts m = row_parts(c->g, c->parts, bytes, groups, group);
    EmitIf last;
    for (uint32_t f = 0; f < c->folds->nfolds; f++)
        LLVMBuildStore(e->b, acc[f], part_at(c, &m, c->part, at, f));
    emit_if_begin(e, &last, row_is_last(&m));
    (void)gpu_fold_init(c->g, c->folds, c->lanes, acc);
    add_parts(c, &m, acc);
    join_rows(c, at, NULL, acc);
    store_columns(c, at, acc);
    emit_if_end(e, &last);
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* Elements that rows of this thread's class start past a vector. */
static LLVMValueRef shift_of(const Column *c) {
    Emit *e = c->g->e;
    LLVMValueRef x = LLVMBuildMul(e->b, c->row, emit_i64(e, c->pitch % c->lanes), "");
    return LLVMBuildAnd(e->b, x, emit_i64(e, c->lanes - 1), "");
}

static void place(Column *c) {
    Emit *e = c->g->e;
    LLVMValueRef one = emit_i64(e, 1), last;
    c->lane_id = LLVMBuildAnd(e->b, c->g->tid, emit_i64(e, c->wide - 1), "");
    c->row = LLVMBuildLShr(e->b, c->g->tid, emit_i64(e, __builtin_ctz(c->wide)), "");
    LLVMValueRef v = LLVMBuildMul(e->b, c->g->block[0], emit_i64(e, own_columns(c) / c->lanes), "");
    if (c->classes) {
        c->shift = shift_of(c);
        last = LLVMBuildAdd(e->b, emit_expr(e, c->g->k->axes[c->lane].extent), c->shift, "");
        last = LLVMBuildSub(e->b, last, one, "");
        last = LLVMBuildLShr(e->b, last, emit_i64(e, __builtin_ctz(c->lanes)), "");
    } else {
        last = LLVMBuildSub(e->b, emit_expr(e, vectors(c)), one, "");
    }
    LLVMValueRef two[2] = {LLVMBuildAdd(e->b, v, c->lane_id, ""), last};
    c->vector = emit_intrinsic(e, "llvm.smin", e->i64, two, 2);
    c->inside = LLVMBuildICmp(e->b, LLVMIntSLE, two[0], last, "");
}

bool gpu_column(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Column c = {.g = g};
    if (!has_shape(&c) || !is_wanted(&c)) return false;
    c.lanes = gpu_lanes(g, c.lane, NULL);
    c.together = UNROLL;
    if (c.lanes == 1 && !find_classes(&c)) c.classes = 0;
    e->lanes = c.lanes;
    Expr others = gpu_points(e, g->k, c.others);
    int64_t lo, hi;
    expr_range(p, others, &lo, &hi);
    if (hi > 65535 || !choose_threads(&c)) {
        e->lanes = 1;
        return false;
    }
    while (c.together > 1 && c.together * words_of_row(&c) > MOST_WORDS) c.together /= 2;
    choose_sizes(&c);
    Expr across = expr_ceildiv(p, c.classes ? g->k->axes[c.lane].extent : vectors(&c),
                               expr_const(p, c.classes ? own_columns(&c) : c.wide));
    if (c.threads < THREADS) c.blocks *= 2;
    if (!g->j->min_blocks) g->j->min_blocks = c.blocks;
    gpu_launch(g, c.threads, across, others, expr_const(p, c.parts));
    c.part = g->block[2];
    gpu_decode(e, g->k, c.others, emit_new_sym(e, "other", hi > 0 ? hi - 1 : 0, g->block[1]));
    place(&c);
    LLVMValueRef acc[ROWS_MAX_FOLDS], group = g->block[1];
    (void)gpu_fold_init(g, c.folds, c.lanes, acc);
    emit_push(e);
    fold_part(&c, acc);
    emit_pop(e);
    e->lanes = 1;
    LLVMValueRef at = g->tid;
    if (columns(&c) < c.threads) at = LLVMBuildAnd(e->b, at, emit_i64(e, columns(&c) - 1), "");
    join_rows(&c, at, c.shift, acc);
    group = LLVMBuildMul(e->b, group, emit_expr(e, across), "");
    group = LLVMBuildAdd(e->b, group, g->block[0], "");
    if (c.parts > 1)
        join_parts(&c, at, acc, expr_mul(p, across, others), group);
    else
        store_columns(&c, at, acc);
    return true;
}
