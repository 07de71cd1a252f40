/* Contractions with one row: reading B once is all the time there is. A team of warps takes a few
 * columns of B whose elements lie side by side along k; what a thread reads of them is all on its
 * way before anything is multiplied, and what no kernel of the run writes already before the kernel
 * in front has ended. The warps of a team join their sums in a fixed order.
 *
 * Every block makes A once: its threads take a few vectors of the row each, join the folds that A
 * is computed from (those of a norm), and leave A in shared memory. */
#include "codegen/nvptx/contract.h"
#include "codegen/nvptx/row/row.h"

enum {
    THREADS = 256,
    MOST_WARPS = 16,   /* of a team */
    MOST_PIECES = 8,   /* vectors of a thread in one column ... */
    MOST_VECTORS = 16, /* ... and in all: 256 bytes on their way */
    MOST_COLS = 8,
    MOST_WAYS = 12,
    BUSY_WARPS = 4,   /* that a multiprocessor should have at least */
    LEAST_BLOCKS = 2, /* that a multiprocessor has registers for */
    MOST_STAGED = 8,  /* vectors of the row that a thread leaves in shared memory, and ... */
    STAGED_BYTES =
        32 * 1024 /* ... bytes of it there: a longer row is read where it is multiplied */
};

/* A in shared memory. */
typedef struct Stage {
    KVal v; /* what is kept: A, or what A is a cast of; 0: A is read where it is multiplied */
    uint32_t pieces; /* vectors of a thread */
    bool *in_b;      /* ops that B takes */
    EmitScope *at[MOST_STAGED];
    LLVMValueRef live[MOST_STAGED], where[MOST_STAGED], shared;
} Stage;

typedef struct Vector {
    Gpu *g;
    Emit *e;
    const KDot *d;
    RowPlan row;                         /* how vectors lie along k */
    Expr n;                              /* columns in all */
    int64_t vectors;                     /* of a column */
    uint32_t warps, cols, pieces, teams; /* of a team; of a thread; teams of a block */
    Stage stage;
    LLVMValueRef first, rank, team; /* the team's first column; the thread in it; in the block */
    EmitScope *at[MOST_PIECES][MOST_COLS], *own; /* of vectors; of the thread's own result */
    LLVMValueRef live[MOST_PIECES];  /* NULL: the vector is inside of the column in every thread */
    LLVMValueRef where[MOST_PIECES]; /* number of the vector */
    LLVMValueRef acc[K_MAX_ACC][MOST_COLS];
} Vector;

static DType acc_type(const Vector *x, uint32_t s) {
    return (DType)x->g->k->ops[x->d->acc[s]].dtype;
}

/* --- The kernel's shape ----------------------------------------------------------------------- */

static bool is_acc(const KDot *d, KVal v) {
    for (uint32_t s = 0; s < d->nacc; s++)
        if (d->acc[s] == v) return true;
    return false;
}

static bool by_k(const Gpu *g, const KOp *o) {
    Expr coef, rest;
    uint32_t axis = 31 - (uint32_t)__builtin_clz(g->k->dot.k);
    return expr_affine(g->e->exprs, o->index, g->k->axes[axis].sym, &coef, &rest) &&
           expr_is_value(g->e->exprs, coef, 1);
}

/* One row, and everything that is read along k lies along k. */
static bool has_shape(const Gpu *g) {
    const KDot *d = &g->k->dot;
    if (g->k->tem != TEM_dot || !d->k) return false;
    if (!expr_is_value(g->e->exprs, gpu_points(g->e, g->k, d->m), 1)) return false;
    for (KVal v = 1; v < g->k->nops; v++)
        if (g->k->ops[v].op == K_kload && g->rows->dom[v] & d->k && !by_k(g, &g->k->ops[v]))
            return false;
    return true;
}

/* A fold of the whole row that A is computed from. */
static bool is_of_row(const Gpu *g, KVal v) {
    const KDot *d = &g->k->dot;
    return g->k->ops[v].axes == d->k && !(g->rows->dom[v] & ~d->m) && gpu_fold_width(g, v) == 1;
}

/* No folds but those and the sums, one A for all columns. */
static bool is_simple(const Gpu *g) {
    const KDot *d = &g->k->dot;
    if (d->batch || !d->n || !d->nacc || g->k->serial || g->rows->dom[d->a] & d->n) return false;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        bool sum = is_acc(d, v), fold = o->op == K_kreduce;
        if (sum != (fold && !is_of_row(g, v)) || o->op == K_katomic) return false;
        if (o->op == K_kstore && g->e->domains[v] & ~(d->m | d->n)) return false;
    }
    return true;
}

static bool folds_row(const Gpu *g) {
    for (KVal v = 1; v < g->k->nops; v++)
        if (g->k->ops[v].op == K_kreduce && !is_acc(&g->k->dot, v) && g->rows->need[v]) return true;
    return false;
}

static uint32_t threads_of(const Vector *x) {
    return x->teams * x->warps * GPU_WARP;
}

/* What is kept of A: a 16-bit value before it is widened. */
static KVal kept_of(const Gpu *g) {
    const KOp *a = &g->k->ops[g->k->dot.a];
    bool wider = a->op == OP_cast && dtype_bytes((DType)g->k->ops[a->in[0]].dtype) == 2;
    return wider ? a->in[0] : g->k->dot.a;
}

static bool plan_stage(Vector *x) {
    const Gpu *g = x->g;
    Stage *s = &x->stage;
    KVal v = kept_of(g);
    s->pieces = (uint32_t)((x->vectors + threads_of(x) - 1) / threads_of(x));
    s->in_b = ARENA_ARRAY(x->e->arena, bool, g->k->nops);
    for (uint32_t i = 0; i < x->d->nacc; i++) rows_cone(g->rows, x->d->b[i], s->in_b);
    uint64_t bytes = (uint64_t)x->vectors * x->e->lanes * dtype_bytes((DType)g->k->ops[v].dtype);
    if (s->pieces > MOST_STAGED || bytes > STAGED_BYTES) {
        s->pieces = 0;
        return !folds_row(g);
    }
    s->v = v;
    return true;
}

static void take_team(Vector *x, uint32_t warps, uint32_t cols) {
    x->warps = warps;
    x->cols = cols;
    x->pieces = (uint32_t)(x->vectors + warps * GPU_WARP - 1) / (warps * GPU_WARP);
    x->teams = warps * GPU_WARP < THREADS ? THREADS / (warps * GPU_WARP) : 1;
}

/* What was tuned or is to be tried: more warps for a column, other numbers of columns. */
static void choose_team(Vector *x) {
    Gpu *g = x->g;
    Vector way[MOST_WAYS] = {*x};
    const char *name[MOST_WAYS];
    uint32_t n = 1;
    int64_t columns;
    if (!gpu_has_ways(g) || g->j->shrink || !expr_is_const(x->e->exprs, x->n, &columns)) return;
    for (uint32_t warps = x->warps; warps <= MOST_WARPS && warps * GPU_WARP <= x->vectors;
         warps *= 2)
        for (uint32_t cols = 1; cols <= MOST_COLS && n < MOST_WAYS; cols *= 2) {
            way[n] = *x;
            take_team(&way[n], warps, cols);
            bool fits = cols * way[n].pieces * x->d->nacc <= MOST_VECTORS;
            if (fits && (warps != x->warps || cols != x->cols)) n++;
        }
    for (uint32_t i = 0; i < n; i++)
        name[i] = arena_printf(g->j->arena, "%u columns of %u warps", way[i].cols, way[i].warps);
    const char *facts = arena_printf(g->j->arena, "one row, %lld columns of %lld lanes=%u sums=%u",
                                     (long long)columns, (long long)x->vectors * x->e->lanes,
                                     x->e->lanes, x->d->nacc);
    *x = way[gpu_ways(g, facts, name, n)];
}

/* Whole columns in registers, as many as make enough bytes to be on their way at a time. */
static bool plan(Vector *x) {
    Gpu *g = x->g;
    x->row = (RowPlan){.team.g = g, .lane = 31 - __builtin_clz(x->d->k)};
    x->e->lanes = gpu_lanes(g, (uint32_t)x->row.lane, NULL);
    bool known = expr_is_const(x->e->exprs, row_vectors(&x->row, x->d->k), &x->vectors);
    if (x->e->lanes == 1 || !known || x->vectors > MOST_WARPS * GPU_WARP * MOST_PIECES)
        return false;
    uint32_t least = 1, cols = MOST_COLS;
    while (x->vectors > (int64_t)least * GPU_WARP * MOST_PIECES) least *= 2;
    take_team(x, least, cols);
    x->n = gpu_points(x->e, g->k, x->d->n);
    int64_t warps = gpu_hint(x->e, x->n) * x->warps, busy = (int64_t)g->m->processors * BUSY_WARPS;
    uint32_t most = (uint32_t)MOST_VECTORS >> g->j->shrink;
    while (cols > 1 && (cols * x->pieces * x->d->nacc > most || warps / cols < busy)) cols /= 2;
    take_team(x, least, cols);
    choose_team(x);
    return plan_stage(x);
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* Vector u of the one of `threads` that has this rank. Vectors past the end are read again at the
 * end and count for nothing. */
static EmitScope *place_piece(Vector *x, uint32_t u, uint32_t threads, LLVMValueRef rank,
                              LLVMValueRef *live, LLVMValueRef *where) {
    Emit *e = x->e;
    EmitScope *outer = e->scope;
    int64_t from = (int64_t)u * threads;
    *where = gpu_add(e, rank, emit_i64(e, from));
    if (from + threads > x->vectors) {
        *live = gpu_below(e, *where, emit_i64(e, x->vectors));
        *where = gpu_smaller(e, *where, emit_i64(e, x->vectors - 1));
    }
    EmitScope *piece = emit_push(e);
    row_bind(&x->row, x->d->k, emit_new_sym(e, "piece", x->vectors - 1, *where));
    (void)emit_switch(e, outer);
    return piece;
}

static void place(Vector *x) {
    Emit *e = x->e;
    EmitScope *outer = e->scope;
    Expr col[MOST_COLS];
    LLVMValueRef last = LLVMBuildSub(e->b, emit_expr(e, x->n), emit_i64(e, 1), "");
    for (uint32_t c = 0; c < x->cols; c++)
        col[c] = emit_position(e, "column", x->n,
                               gpu_smaller(e, gpu_add(e, x->first, emit_i64(e, c)), last));
    for (uint32_t u = 0; u < x->pieces; u++) {
        EmitScope *piece =
            place_piece(x, u, x->warps * GPU_WARP, x->rank, &x->live[u], &x->where[u]);
        (void)emit_switch(e, piece);
        for (uint32_t c = 0; c < x->cols; c++) {
            x->at[u][c] = emit_push(e);
            gpu_decode(e, x->g->k, x->d->n, col[c]);
            (void)emit_switch(e, piece);
        }
        (void)emit_switch(e, outer);
    }
    Stage *s = &x->stage;
    for (uint32_t u = 0; u < s->pieces; u++)
        s->at[u] = place_piece(x, u, threads_of(x), x->g->tid, &s->live[u], &s->where[u]);
}

/* Has what is read along k at that place asked for: what no kernel of the run writes, or all. */
static void request_at(Vector *x, EmitScope *at, bool of_row, bool all) {
    Gpu *g = x->g;
    EmitScope *outer = emit_switch(x->e, at);
    for (KVal v = 1; v < g->k->nops; v++) {
        bool here = !x->stage.v || x->stage.in_b[v] != of_row;
        if (here && g->rows->dom[v] & x->d->k && (all || gpu_is_stable(g, v)) &&
            gpu_is_request(g, v))
            (void)emit_value(x->e, v);
    }
    (void)emit_switch(x->e, outer);
}

static void request(Vector *x, bool all) {
    for (uint32_t u = 0; u < x->stage.pieces; u++) request_at(x, x->stage.at[u], true, all);
    for (uint32_t u = 0; u < x->pieces; u++)
        for (uint32_t c = 0; c < x->cols; c++) request_at(x, x->at[u][c], false, all);
}

/* What the result of the thread's own column needs beside its sums. */
static void request_own(Vector *x) {
    Gpu *g = x->g;
    Emit *e = x->e;
    EmitScope *outer = e->scope;
    LLVMValueRef last = LLVMBuildSub(e->b, emit_expr(e, x->n), emit_i64(e, 1), "");
    LLVMValueRef col = gpu_smaller(
        e, gpu_add(e, x->first, gpu_smaller(e, x->rank, emit_i64(e, x->cols - 1))), last);
    x->own = emit_push(e);
    gpu_decode(e, g->k, x->d->n, emit_position(e, "n", x->n, col));
    for (KVal v = 1; v < g->k->nops; v++)
        if (!(g->rows->dom[v] & x->d->k) && gpu_is_request(g, v)) (void)emit_value(e, v);
    (void)emit_switch(e, outer);
}

/* --- The row in shared memory ----------------------------------------------------------------- */

/* The folds of the pass that are of the row; they become known everywhere. */
static void fold_row(Vector *x, const Pass *p) {
    Gpu *g = x->g;
    LLVMValueRef acc[ROWS_MAX_FOLDS];
    Pass own = *p;
    own.folds = ARENA_ARRAY(x->e->arena, KVal, p->nfolds + 1);
    own.nfolds = 0;
    for (uint32_t f = 0; f < p->nfolds; f++)
        if (!is_acc(x->d, p->folds[f])) own.folds[own.nfolds++] = p->folds[f];
    if (!own.nfolds) return;
    (void)gpu_fold_init(g, &own, x->e->lanes, acc);
    for (uint32_t u = 0; u < x->stage.pieces; u++) {
        EmitScope *outer = emit_switch(x->e, x->stage.at[u]);
        for (uint32_t f = 0; f < own.nfolds; f++)
            row_fold(&x->row, own.folds[f], x->stage.live[u], &acc[f]);
        (void)emit_switch(x->e, outer);
    }
    row_results(&x->row, &own, acc);
}

static LLVMValueRef staged_at(Vector *x, LLVMTypeRef elem, LLVMValueRef where) {
    return emit_gep(x->e, elem, x->stage.shared, gpu_muli(x->e, where, x->e->lanes));
}

static void stage_row(Vector *x) {
    Emit *e = x->e;
    Stage *s = &x->stage;
    if (!s->v) return;
    for (uint32_t i = 0; i < x->g->rows->npasses; i++) fold_row(x, &x->g->rows->pass[i]);
    for (uint32_t u = 0; u < s->pieces; u++) {
        EmitIf live;
        EmitScope *outer = emit_switch(e, s->at[u]);
        LLVMValueRef v = emit_value_lanes(e, s->v);
        LLVMTypeRef elem = LLVMGetElementType(LLVMTypeOf(v));
        if (!u) s->shared = gpu_shared(x->g, elem, (uint32_t)x->vectors * e->lanes);
        if (s->live[u]) emit_if_begin(e, &live, s->live[u]);
        emit_store_ptr(e, v, staged_at(x, elem, s->where[u]), 16);
        if (s->live[u]) emit_if_end(e, &live);
        (void)emit_switch(e, outer);
    }
    gpu_barrier(e);
}

/* Vector u of what is kept of A, known in all columns. */
static void take_staged(Vector *x, uint32_t u) {
    Emit *e = x->e;
    if (!x->stage.v) return;
    LLVMTypeRef elem = emit_type(e, (DType)x->g->k->ops[x->stage.v].dtype);
    LLVMValueRef v = emit_load(e, emit_vec(elem, e->lanes), staged_at(x, elem, x->where[u]), 16);
    for (uint32_t c = 0; c < x->cols; c++) {
        EmitScope *outer = emit_switch(e, x->at[u][c]);
        emit_override(e, x->stage.v, v);
        (void)emit_switch(e, outer);
    }
}

/* --- Sums ------------------------------------------------------------------------------------- */

static LLVMValueRef factor(Vector *x, KVal v, uint32_t u) {
    LLVMValueRef f = emit_value_lanes(x->e, v);
    return x->live[u] ? emit_select(x->e, x->live[u], f, LLVMConstNull(LLVMTypeOf(f))) : f;
}

static void multiply(Vector *x) {
    Emit *e = x->e;
    for (uint32_t u = 0; u < x->pieces; u++) {
        take_staged(x, u);
        for (uint32_t c = 0; c < x->cols; c++) {
            EmitScope *outer = emit_switch(e, x->at[u][c]);
            LLVMValueRef a = factor(x, x->d->a, u);
            for (uint32_t s = 0; s < x->d->nacc; s++) {
                LLVMValueRef b = factor(x, x->d->b[s], u), *acc = &x->acc[s][c];
                *acc = u ? contract_fma(e, acc_type(x, s), a, b, *acc)
                         : emit_map(e, OP_mul, acc_type(x, s), a, b, NULL);
            }
            (void)emit_switch(e, outer);
        }
    }
}

static void join_lanes(Vector *x) {
    Emit *e = x->e;
    for (uint32_t s = 0; s < x->d->nacc; s++)
        for (uint32_t c = 0; c < x->cols; c++) {
            DType t = acc_type(x, s);
            LLVMValueRef sum = emit_fold_lanes(e, FOLD_sum, t, x->acc[s][c]);
            for (uint32_t off = GPU_WARP / 2; off; off /= 2)
                sum = emit_fold_join(e, FOLD_sum, t, sum, gpu_shuffle(e, sum, off));
            x->acc[s][c] = sum;
        }
}

/* The sums of column `rank` of the team, in the threads that have one: out[s]. */
static void own_column(Vector *x, LLVMValueRef *out) {
    Emit *e = x->e;
    for (uint32_t s = 0; s < x->d->nacc; s++) {
        out[s] = x->acc[s][0];
        for (uint32_t c = 1; c < x->cols; c++) {
            LLVMValueRef mine = LLVMBuildICmp(e->b, LLVMIntEQ, x->rank, emit_i64(e, c), "");
            out[s] = LLVMBuildSelect(e->b, mine, x->acc[s][c], out[s], "");
        }
    }
}

/* The same through shared memory: a column's sums of all warps lie side by side. */
static void join_warps(Vector *x, LLVMValueRef *out) {
    Emit *e = x->e;
    EmitIf lead;
    LLVMValueRef slots[K_MAX_ACC], warp = LLVMBuildLShr(e->b, x->rank, emit_i64(e, 5), "");
    LLVMValueRef lane = LLVMBuildAnd(e->b, x->rank, emit_i64(e, GPU_WARP - 1), "");
    LLVMValueRef base = gpu_muli(e, x->team, (int64_t)x->cols * x->warps);
    for (uint32_t s = 0; s < x->d->nacc; s++)
        slots[s] = gpu_shared(x->g, LLVMTypeOf(x->acc[s][0]), x->teams * x->cols * x->warps);
    emit_if_begin(e, &lead, LLVMBuildICmp(e->b, LLVMIntEQ, lane, emit_i64(e, 0), ""));
    for (uint32_t s = 0; s < x->d->nacc; s++)
        for (uint32_t c = 0; c < x->cols; c++) {
            LLVMValueRef at =
                gpu_add(e, gpu_add(e, base, warp), emit_i64(e, (int64_t)c * x->warps));
            LLVMBuildStore(e->b, x->acc[s][c], emit_gep(e, LLVMTypeOf(x->acc[s][c]), slots[s], at));
        }
    emit_if_end(e, &lead);
    gpu_barrier(e);
    LLVMValueRef col = gpu_smaller(e, x->rank, emit_i64(e, x->cols - 1));
    for (uint32_t s = 0; s < x->d->nacc; s++)
        for (uint32_t w = 0; w < x->warps; w++) {
            LLVMTypeRef t = LLVMTypeOf(x->acc[s][0]);
            LLVMValueRef at =
                gpu_add(e, gpu_add(e, base, gpu_muli(e, col, x->warps)), emit_i64(e, w));
            LLVMValueRef one = LLVMBuildLoad2(e->b, t, emit_gep(e, t, slots[s], at), "");
            out[s] = w ? emit_fold_join(e, FOLD_sum, acc_type(x, s), out[s], one) : one;
        }
}

static void store(Vector *x, const LLVMValueRef *sum) {
    Emit *e = x->e;
    EmitIf inside;
    LLVMValueRef col = gpu_add(e, x->first, x->rank), in = gpu_below(e, col, emit_expr(e, x->n));
    in = LLVMBuildAnd(e->b, in, gpu_below(e, x->rank, emit_i64(e, x->cols)), "");
    EmitScope *outer = emit_switch(e, x->own);
    emit_if_begin(e, &inside, in);
    for (uint32_t s = 0; s < x->d->nacc; s++) emit_override(e, x->d->acc[s], sum[s]);
    for (KVal v = 1; v < x->g->k->nops; v++)
        if (x->g->k->ops[v].op == K_kstore) emit_store(e, v);
    emit_if_end(e, &inside);
    (void)emit_switch(e, outer);
}

/* --- The kernel ------------------------------------------------------------------------------- */

static void launch(Vector *x) {
    Gpu *g = x->g;
    Emit *e = x->e;
    ExprPool *p = e->exprs;
    uint32_t threads = threads_of(x);
    if (!g->j->min_blocks) g->j->min_blocks = LEAST_BLOCKS * THREADS / threads;
    g->order = GPU_WAITS_LATER;
    gpu_launch(g, threads, expr_ceildiv(p, x->n, expr_const(p, x->cols * x->teams)), 0, 0);
    x->team = LLVMBuildLShr(e->b, g->tid, emit_i64(e, __builtin_ctz(x->warps * GPU_WARP)), "");
    x->rank = LLVMBuildAnd(e->b, g->tid, emit_i64(e, x->warps * GPU_WARP - 1), "");
    x->first = gpu_muli(e, gpu_add(e, gpu_muli(e, g->block[0], x->teams), x->team), x->cols);
    x->row.team = (Team){.g = g, .size = threads, .rank = g->tid};
    gpu_decode(e, g->k, x->d->m, expr_const(p, 0));
}

static void run(Vector *x) {
    LLVMValueRef sum[K_MAX_ACC];
    launch(x);
    place(x);
    request(x, false);
    gpu_wait(x->g);
    request(x, true);
    request_own(x);
    stage_row(x);
    multiply(x);
    join_lanes(x);
    x->e->lanes = 1;
    if (x->warps > 1)
        join_warps(x, sum);
    else
        own_column(x, sum);
    store(x, sum);
}

bool gpu_vector_matrix(Gpu *g) {
    Vector x = {.g = g, .e = g->e, .d = &g->k->dot};
    if (!has_shape(g)) return false;
    if (!is_simple(g) || !plan(&x)) {
        g->e->lanes = 1;
        return gpu_row(g);
    }
    run(&x);
    g->j->note = "one row: columns in registers";
    return true;
}
