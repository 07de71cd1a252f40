/* Where what threads have folded meets: the rows of a block in shared memory, the parts of a group
 * of columns in the last of its blocks. */
#include "codegen/nvptx/column/column.h"

enum {
    SLOT = 8,     /* bytes kept for a result of a part */
    TOGETHER = 8, /* parts that a thread reads together */
};

/* --- The rows of a block ---------------------------------------------------------------------- */

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
    LLVMValueRef first = LLVMBuildMul(e->b, c->g->block[0], emit_i64(e, column_own(c)), "");
    return LLVMBuildAdd(e->b, first, at, "");
}

/* The column is there, and this thread's to store. */
static LLVMValueRef owns(const Column *c, LLVMValueRef column) {
    Gpu *g = c->g;
    Emit *e = g->e;
    LLVMValueRef end = emit_expr(e, g->k->axes[c->lane].extent);
    LLVMValueRef own = LLVMBuildICmp(e->b, LLVMIntSLT, g->tid, emit_i64(e, column_own(c)), "");
    return LLVMBuildAnd(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, column, end, ""), own, "");
}

/* Threads of a warp that have the same columns join what they have before the block's rows meet:
 * shifted vectors do not, as rows of a warp begin at different columns. */
static uint32_t joined_lanes(const Column *c) {
    return c->classes || c->wide >= GPU_WARP ? 1 : GPU_WARP / c->wide;
}

static uint32_t meeting_rows(const Column *c) {
    return c->rows / joined_lanes(c);
}

/* Where the rows of a block meet. */
static LLVMValueRef slot(Column *c, uint32_t f, LLVMValueRef row, LLVMValueRef at) {
    Emit *e = c->g->e;
    const uint32_t room = column_room(c);
    if (!c->slot[f])
        c->slot[f] = gpu_shared(c->g, acc_type(c, f), (room + column_width(c)) * meeting_rows(c));
    LLVMValueRef i = LLVMBuildMul(e->b, row, emit_i64(e, room + column_width(c)), "");
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

void column_join_rows(Column *c, LLVMValueRef at, LLVMValueRef shift, LLVMValueRef *acc) {
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

void column_store(Column *c, LLVMValueRef at, LLVMValueRef *acc) {
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

/* --- The parts of a group --------------------------------------------------------------------- */

/* Column `at` of fold f in a part's results. */
static LLVMValueRef part_at(Column *c, const Parts *m, LLVMValueRef part, LLVMValueRef at,
                            uint32_t f) {
    LLVMValueRef p = row_part(m, part, (int64_t)f * column_width(c) * SLOT);
    return emit_gep(c->g->e, acc_type(c, f), p, at);
}

/* Of part `row` and those TOGETHER - 1 that follow for this thread's columns: zeros are left in
 * their place. Behind the last part there is nothing. */
static void add_some(Column *c, const Parts *m, LLVMValueRef row, uint32_t f, LLVMValueRef *acc) {
    Emit *e = c->g->e;
    KVal v = c->folds->folds[f];
    LLVMTypeRef t = emit_vec(acc_type(c, f), c->lanes);
    LLVMValueRef x[TOGETHER], p[TOGETHER], live[TOGETHER];
    LLVMValueRef at = LLVMBuildMul(e->b, c->lane_id, emit_i64(e, c->lanes), "");
    LLVMValueRef none =
        emit_fold_identity(e, (KFold)c->g->k->ops[v].fold, gpu_fold_type(c->g, v), c->lanes);
    uint32_t align = 4 * c->lanes < 16 ? 4 * c->lanes : 16;
    for (uint32_t u = 0; u < TOGETHER; u++) {
        LLVMValueRef part = LLVMBuildAdd(e->b, row, emit_i64(e, (int64_t)u * c->rows), "");
        live[u] = LLVMBuildICmp(e->b, LLVMIntSLT, part, emit_i64(e, c->parts), "");
        p[u] = part_at(c, m, gpu_smaller(e, part, emit_i64(e, c->parts - 1)), at, f);
        x[u] = emit_load(e, t, p[u], align);
    }
    for (uint32_t u = 0; u < TOGETHER; u++) {
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
                    emit_i64(e, (int64_t)TOGETHER * c->rows), false);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) {
        l->next[f] = l->phi[f];
        add_some(c, m, l->i, f, &l->next[f]);
    }
    emit_loop_end(e, l);
    for (uint32_t f = 0; f < c->folds->nfolds; f++) acc[f] = l->out[f];
}

void column_join_parts(Column *c, LLVMValueRef at, LLVMValueRef *acc) {
    Emit *e = c->g->e;
    const LLVMValueRef *block = c->g->block;
    const int64_t bytes = (int64_t)c->folds->nfolds * column_width(c) * SLOT;
    LLVMValueRef group = LLVMBuildMul(e->b, block[1], emit_expr(e, c->groups), "");
    group = LLVMBuildAdd(e->b, group, block[0], "");
    Expr groups = expr_mul(e->exprs, c->groups, c->points_beside);
    const Parts m = row_parts(c->g, c->parts, bytes, groups, group);
    EmitIf last;
    for (uint32_t f = 0; f < c->folds->nfolds; f++)
        LLVMBuildStore(e->b, acc[f], part_at(c, &m, c->part, at, f));
    emit_if_begin(e, &last, row_is_last(&m));
    (void)gpu_fold_init(c->g, c->folds, c->lanes, acc);
    add_parts(c, &m, acc);
    column_join_rows(c, at, NULL, acc);
    column_store(c, at, acc);
    emit_if_end(e, &last);
}
