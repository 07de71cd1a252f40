/* Folds over outer axes: sums of columns. A block takes a group of neighbouring columns, as many as
 * 32 vectors hold, and a part of the rows, several of them at once; these join in shared memory,
 * and the last block of a group joins the parts in order, so that results do not depend on timing.
 */
#include "codegen/nvptx/row/row.h"

enum {
    THREADS = 256,
    MOST_WIDE = 32, /* vectors side by side, and the least */
    LEAST_WIDE = 4,
    UNROLL = 8, /* rows asked for together */
    BLOCKS = 4, /* per multiprocessor, before rows are no longer split */
    MOST_PARTS = 256,
    SLOT = 8,        /* bytes kept for a result */
    LEAST_ROWS = 64, /* of a part */
};

typedef struct Column {
    Gpu *g;
    const Pass *folds, *stores, *points; /* points: stored on the way, or NULL */
    uint32_t lane, others; /* the columns' axis; parallel axes beside it */
    uint32_t lanes, parts;
    uint32_t wide, rows;                     /* a block's threads: vectors of a row times rows */
    LLVMValueRef lane_id, row, vector, part; /* i64; vector: of the lane axis */
    LLVMValueRef inside;                     /* the thread's vector exists */
} Column;

static uint32_t columns(const Column *c) {
    return c->wide * c->lanes; /* of a block */
}

/* The pass stores what folds give. */
static bool takes_folds(const Column *c, const Pass *p) {
    for (KVal v = 1; v < c->g->k->nops; v++)
        for (int i = 0; p->cone[v] && i < 3; i++)
            for (uint32_t f = 0; f < c->folds->nfolds; f++)
                if (c->g->k->ops[v].in[i] == c->folds->folds[f]) return true;
    return false;
}

/* Passes behind the folds: one that walks nothing, and one that stores points of which folds know nothing. */
static bool find_stores(Column *c) {
    for (uint32_t i = 1; i < c->g->rows->npasses; i++) {
        const Pass *p = &c->g->rows->pass[i];
        const Pass **as = p->axes ? &c->points : &c->stores;
        if (p->nfolds || *as || (p->axes && (p->axes != c->folds->axes || takes_folds(c, p)))) return false;
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

/* A part of the rows is a multiple of this, so that no single steps are left but in the last. */
static int64_t round_rows(const Column *c) {
    return UNROLL * c->rows;
}

/* Few columns leave room for more rows. */
static void choose_wide(Column *c) {
    int64_t n;
    c->wide = MOST_WIDE;
    if (expr_is_const(c->g->e->exprs, gpu_vectors(c->g, c->lane), &n))
        while (c->wide > LEAST_WIDE && n <= c->wide / 2) c->wide /= 2;
    c->rows = THREADS / c->wide;
}

/* Parts of the rows, by the hints of sizes: enough blocks, and not less than a few rows each. */
static void choose_parts(Column *c) {
    Gpu *g = c->g;
    Emit *e = g->e;
    int64_t rows = gpu_hint(e, gpu_points(e, g->k, c->folds->axes));
    int64_t wide = gpu_hint(e, g->k->axes[c->lane].extent);
    int64_t groups = (wide + columns(c) - 1) / columns(c);
    groups *= gpu_hint(e, gpu_points(e, g->k, c->others));
    int64_t n = (int64_t)g->m->processors * BLOCKS / groups;
    if (n > rows / LEAST_ROWS) n = rows / LEAST_ROWS;
    n = n > MOST_PARTS ? MOST_PARTS : n < 1 ? 1 : n;
    int64_t size = (rows / n + round_rows(c) - 1) / round_rows(c) * round_rows(c);
    c->parts = (uint32_t)((rows + size - 1) / size);
}

/* --- A part ----------------------------------------------------------------------------------- */

/* What is stored of each point on the way: threads past the columns, which repeat one, do not. */
static void store_points(Column *c) {
    Emit *e = c->g->e;
    EmitIf inside;
    if (!c->points) return;
    emit_if_begin(e, &inside, c->inside);
    for (uint32_t i = 0; i < c->points->nstores; i++) emit_store(e, c->points->stores[i]);
    emit_if_end(e, &inside);
}

/* n rows: all are on their way before the first is waited for. */
static void fold_rows(Column *c, uint32_t n, Expr row, LLVMValueRef *acc) {
    Gpu *g = c->g;
    Emit *e = g->e;
    EmitScope *scope[UNROLL], *outer = e->scope;
    for (uint32_t u = 0; u < n; u++) {
        scope[u] = emit_push(e);
        gpu_decode(e, g->k, c->folds->axes, expr_addi(e->exprs, row, (int64_t)u * c->rows));
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
            acc[f] = emit_fold_join(e, (KFold)o->fold, t, acc[f], x);
        }
        store_points(c);
        (void)emit_switch(e, outer);
    }
}

static void walk(Column *c, uint32_t n, LLVMValueRef lo, LLVMValueRef hi, LLVMValueRef *acc) {
    Emit *e = c->g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    int64_t least, most;
    expr_range(e->exprs, gpu_points(e, c->g->k, c->folds->axes), &least, &most);
    *l = emit_loop(e, c->folds->nfolds);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) l->init[f] = acc[f];
    emit_loop_begin(e, l, "rows", lo, hi, emit_i64(e, (int64_t)n * c->rows), false);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) l->next[f] = l->phi[f];
    fold_rows(c, n, emit_new_sym(e, "r", most > 0 ? most - 1 : 0, l->i), l->next);
    emit_loop_end(e, l);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) acc[f] = l->out[f];
}

/* This thread's columns over its rows of the block's part. */
static void fold_part(Column *c, LLVMValueRef *acc) {
    Gpu *g = c->g;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Expr rows = gpu_points(e, g->k, c->folds->axes);
    Expr size = expr_ceildiv(p, rows, expr_const(p, c->parts * round_rows(c)));
    size = expr_muli(p, size, round_rows(c));
    LLVMValueRef first[2] = {LLVMBuildMul(e->b, c->part, emit_expr(e, size), ""),
                             emit_expr(e, rows)};
    LLVMValueRef lo = emit_intrinsic(e, "llvm.smin", e->i64, first, 2);
    LLVMValueRef end[2] = {LLVMBuildAdd(e->b, lo, emit_expr(e, size), ""), emit_expr(e, rows)};
    LLVMValueRef hi = emit_intrinsic(e, "llvm.smin", e->i64, end, 2);
    LLVMValueRef n = LLVMBuildSub(e->b, hi, lo, "");
    LLVMValueRef whole = LLVMBuildAnd(e->b, n, emit_i64(e, -round_rows(c)), "");
    LLVMValueRef middle = LLVMBuildAdd(e->b, lo, whole, "");
    gpu_bind_lanes(g, c->lane, c->vector);
    walk(c, UNROLL, LLVMBuildAdd(e->b, lo, c->row, ""), middle, acc);
    walk(c, 1, LLVMBuildAdd(e->b, middle, c->row, ""), hi, acc);
}

/* --- Joining ---------------------------------------------------------------------------------- */

static LLVMTypeRef acc_type(Column *c, uint32_t f) {
    return emit_type(c->g->e, gpu_fold_type(c->g, c->folds->folds[f]));
}

static LLVMValueRef join(Column *c, uint32_t f, LLVMValueRef a, LLVMValueRef b) {
    KVal v = c->folds->folds[f];
    return emit_fold_join(c->g->e, (KFold)c->g->k->ops[v].fold, gpu_fold_type(c->g, v), a, b);
}

/* The block's rows meet: thread t gets column t of the block. Threads past the columns repeat one.
 */
static void join_rows(Column *c, LLVMValueRef at, LLVMValueRef *acc) {
    Gpu *g = c->g;
    Emit *e = g->e;
    LLVMValueRef slot[ROWS_MAX_FOLDS];
    LLVMValueRef row = LLVMBuildMul(e->b, c->row, emit_i64(e, columns(c)), "");
    LLVMValueRef mine = LLVMBuildMul(e->b, c->lane_id, emit_i64(e, c->lanes), "");
    for (uint32_t f = 0; f < c->folds->nfolds; f++) {
        slot[f] = gpu_shared(g, acc_type(c, f), columns(c) * c->rows);
        LLVMValueRef p = emit_gep(e, acc_type(c, f), slot[f], LLVMBuildAdd(e->b, row, mine, ""));
        emit_store_ptr(e, acc[f], p, 4 * c->lanes < 16 ? 4 * c->lanes : 16);
    }
    gpu_barrier(e);
    for (uint32_t f = 0; f < c->folds->nfolds; f++)
        for (uint32_t w = 0; w < c->rows; w++) {
            LLVMValueRef i = LLVMBuildAdd(e->b, at, emit_i64(e, (int64_t)w * columns(c)), "");
            LLVMValueRef x =
                LLVMBuildLoad2(e->b, acc_type(c, f), emit_gep(e, acc_type(c, f), slot[f], i), "");
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
    LLVMValueRef group = g->block[0];
    LLVMValueRef column = LLVMBuildMul(e->b, group, emit_i64(e, columns(c)), "");
    column = LLVMBuildAdd(e->b, column, at, "");
    LLVMValueRef fits =
        LLVMBuildICmp(e->b, LLVMIntSLT, column, emit_expr(e, g->k->axes[c->lane].extent), "");
    LLVMValueRef own = LLVMBuildICmp(e->b, LLVMIntSLT, g->tid, emit_i64(e, columns(c)), "");
    emit_if_begin(e, &inside, LLVMBuildAnd(e->b, fits, own, ""));
    emit_set_sym(e, g->k->axes[c->lane].sym, column);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) emit_override(e, c->folds->folds[f], acc[f]);
    for (uint32_t i = 0; i < c->stores->nstores; i++) emit_store(e, c->stores->stores[i]);
    emit_if_end(e, &inside);
}

/* Parts row, row + rows ... of this thread's columns, zeros left in their place. */
static void add_parts(Column *c, const Parts *m, uint32_t n, LLVMValueRef lo, LLVMValueRef hi,
                      LLVMValueRef *acc) {
    Emit *e = c->g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef at = LLVMBuildMul(e->b, c->lane_id, emit_i64(e, c->lanes), "");
    *l = emit_loop(e, c->folds->nfolds);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) l->init[f] = acc[f];
    emit_loop_begin(e, l, "parts", lo, hi, emit_i64(e, (int64_t)n * c->rows), false);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) {
        LLVMTypeRef t = emit_vec(acc_type(c, f), c->lanes);
        LLVMValueRef x[UNROLL], p[UNROLL];
        for (uint32_t u = 0; u < n; u++) {
            LLVMValueRef part = LLVMBuildAdd(e->b, l->i, emit_i64(e, (int64_t)u * c->rows), "");
            p[u] = part_at(c, m, part, at, f);
            x[u] = emit_load(e, t, p[u], 4 * c->lanes < 16 ? 4 * c->lanes : 16);
        }
        l->next[f] = l->phi[f];
        for (uint32_t u = 0; u < n; u++) {
            l->next[f] = join(c, f, l->next[f], x[u]);
            emit_store_ptr(e, LLVMConstNull(t), p[u], 4 * c->lanes < 16 ? 4 * c->lanes : 16);
        }
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
    int64_t whole = c->parts / (UNROLL * c->rows) * (UNROLL * c->rows);
    for (uint32_t f = 0; f < c->folds->nfolds; f++)
        LLVMBuildStore(e->b, acc[f], part_at(c, &m, c->part, at, f));
    emit_if_begin(e, &last, row_is_last(&m));
    (void)gpu_fold_init(c->g, c->folds, c->lanes, acc);
    add_parts(c, &m, UNROLL, c->row, emit_i64(e, whole), acc);
    add_parts(c, &m, 1, LLVMBuildAdd(e->b, c->row, emit_i64(e, whole), ""), emit_i64(e, c->parts),
              acc);
    join_rows(c, at, acc);
    store_columns(c, at, acc);
    emit_if_end(e, &last);
}

/* --- The kernel ------------------------------------------------------------------------------- */

static void place(Column *c) {
    Emit *e = c->g->e;
    Expr n = gpu_vectors(c->g, c->lane);
    c->lane_id = LLVMBuildAnd(e->b, c->g->tid, emit_i64(e, c->wide - 1), "");
    c->row = LLVMBuildLShr(e->b, c->g->tid, emit_i64(e, __builtin_ctz(c->wide)), "");
    LLVMValueRef v = LLVMBuildMul(e->b, c->g->block[0], emit_i64(e, c->wide), "");
    LLVMValueRef last = LLVMBuildSub(e->b, emit_expr(e, n), emit_i64(e, 1), "");
    LLVMValueRef two[2] = {LLVMBuildAdd(e->b, v, c->lane_id, ""), last};
    c->vector = emit_intrinsic(e, "llvm.smin", e->i64, two, 2);
    c->inside = LLVMBuildICmp(e->b, LLVMIntSLE, two[0], last, "");
}

bool gpu_column(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Column c = {.g = g};
    if (!has_shape(&c) || !is_wanted(&c)) return false;
    c.lanes = e->lanes = gpu_lanes(g, c.lane, NULL);
    choose_wide(&c);
    choose_parts(&c);
    Expr across = expr_ceildiv(p, gpu_vectors(g, c.lane), expr_const(p, c.wide));
    Expr others = gpu_points(e, g->k, c.others);
    int64_t lo, hi;
    expr_range(p, others, &lo, &hi);
    if (hi > 65535) {
        e->lanes = 1;
        return false;
    }
    if (!g->j->min_blocks) g->j->min_blocks = BLOCKS;
    gpu_launch(g, THREADS, across, others, expr_const(p, c.parts));
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
    if (columns(&c) < THREADS) at = LLVMBuildAnd(e->b, at, emit_i64(e, columns(&c) - 1), "");
    join_rows(&c, at, acc);
    group = LLVMBuildMul(e->b, group, emit_expr(e, across), "");
    group = LLVMBuildAdd(e->b, group, g->block[0], "");
    if (c.parts > 1)
        join_parts(&c, at, acc, expr_mul(p, across, others), group);
    else
        store_columns(&c, at, acc);
    return true;
}
