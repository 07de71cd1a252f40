/* Few long folds: norms of gradients, means of a whole tensor, the best of a vocabulary. Each is
 * cut into parts, one a block, so that all multiprocessors read; the last block joins the parts
 * (last.c). */
#include "codegen/nvptx/row/long.h"

enum {
    THREADS = 512,
    UNROLL = 4, /* vectors of a thread asked for together; single elements: */
    UNROLL_SINGLE = 16,
    BLOCKS = 2, /* per multiprocessor */
    SLOT = 8,   /* bytes kept for an accumulator */
    MOST_ACC = ROWS_MAX_FOLDS * 2 + 2,
};

typedef struct Split {
    Gpu *g;
    const Pass *folds, *stores;
    uint32_t lane; /* the axis whose elements lie side by side */
    uint32_t unroll;
    uint32_t parts;
    uint32_t nacc; /* accumulators of all folds: positions have two */
    RowPlan row;
    Long pair; /* lead and under: two folds of the walk, one under the other; or 0 */
} Split;

/* Vectors that a block asks for together. */
static int64_t stride(const Split *s) {
    return (int64_t)THREADS * s->unroll;
}

/* Folds over the same axes that take one walk, then stores that walk nothing. */
static bool has_shape(Split *s) {
    Gpu *g = s->g;
    if (g->k->serial || g->j->shrink || !g->rows->npasses) return false;
    s->folds = &g->rows->pass[0];
    s->pair = (Long){.r = &s->row, .length = gpu_points(g->e, g->k, s->folds->axes)};
    row_find_under(&s->pair, true);
    if (s->pair.first + 1 != g->rows->npasses) return false;
    s->stores = &g->rows->pass[s->pair.first];
    if (!s->folds->nfolds || !s->folds->axes || s->folds->nstores) return false;
    if (s->stores->nfolds || s->stores->axes) return false;
    for (uint32_t f = 0; f < s->folds->nfolds; f++) {
        KVal v = s->folds->folds[f];
        if (dtype_bytes(gpu_fold_type(g, v)) < 4) return false;
    }
    return true;
}

/* The axis along which most loads are contiguous. */
static uint32_t choose_lane(const Split *s) {
    Gpu *g = s->g;
    int best = INT32_MIN;
    uint32_t lane = 0;
    for (uint32_t i = 0; i < g->k->naxes; i++) {
        if (!(s->folds->axes >> i & 1)) continue;
        int score = gpu_contiguity(g->e, g->k, g->rows->dom, ~g->rows->par, i);
        if (score >= best) best = score, lane = i;
    }
    return lane;
}

/* Vectors of a fold. */
static Expr length(const Split *s) {
    Gpu *g = s->g;
    ExprPool *p = g->e->exprs;
    return expr_mul(p, gpu_points(g->e, g->k, s->folds->axes & ~(1u << s->lane)),
                    gpu_vectors(g, s->lane));
}

/* Vectors know no positions: a position is folded element by element. */
static bool finds_positions(const Split *s) {
    for (uint32_t f = 0; f < s->folds->nfolds; f++)
        if (gpu_fold_width(s->g, s->folds->folds[f]) > 1) return true;
    return false;
}

/* By the hints of sizes: as many as fill the machine, none shorter than one step of a block, which
 * asks for less at a time where that occupies more of the machine. */
static bool choose_parts(Split *s) {
    Gpu *g = s->g;
    int64_t folds = gpu_hint(g->e, gpu_points(g->e, g->k, g->rows->par));
    int64_t n = (int64_t)g->m->processors * BLOCKS / folds, all = gpu_hint(g->e, length(s));
    while (s->unroll > 1 && all / stride(s) < n / (2 * BLOCKS)) s->unroll /= 2;
    int64_t most = all / stride(s);
    if (n > most) n = most;
    if (n > THREADS) n = THREADS;
    s->parts = n > 1 ? (uint32_t)n : 1;
    return s->parts > 1;
}

/* --- A part ----------------------------------------------------------------------------------- */

static void bind(const Split *s, Expr at) {
    Gpu *g = s->g;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Expr n = gpu_vectors(g, s->lane);
    uint32_t others = s->folds->axes & ~(1u << s->lane);
    Expr vector = others ? expr_mod(p, at, n) : at;
    if (e->lanes > 1)
        gpu_bind_lanes(g, s->lane, emit_expr(e, vector));
    else
        emit_bind(e, g->k->axes[s->lane].sym, vector);
    gpu_decode(e, g->k, others, others ? expr_div(p, at, n) : at);
}

/* Of folds one under the other: the place of the first; behind all folds of the pass stand what is
 * under it and, of squares, how many elements it has. */
static LLVMValueRef *lead_of(const Split *s, LLVMValueRef *acc) {
    for (uint32_t f = 0; s->folds->folds[f] != s->pair.lead; f++)
        acc += gpu_fold_width(s->g, s->folds->folds[f]);
    return acc;
}

static uint32_t put_pair(const Split *s, const TeamPair *t, LLVMValueRef *acc, uint32_t n) {
    *lead_of(s, acc) = t->lead;
    acc[n++] = t->under;
    if (t->count) acc[n++] = t->count;
    return n;
}

static void fold_pair(Split *s, EmitScope **scope, uint32_t n, LLVMValueRef *acc) {
    LLVMValueRef always[UNROLL_SINGLE] = {0};
    const uint32_t at = s->nacc - (s->pair.mean ? 2 : 1);
    TeamPair t = {*lead_of(s, acc), acc[at], s->pair.mean ? acc[at + 1] : NULL};
    row_fold_under(&s->pair, scope, always, n, &t);
    (void)put_pair(s, &t, acc, at);
}

/* Nothing so far: vectors, but for a pair. */
static uint32_t begin(const Split *s, uint32_t lanes, LLVMValueRef *acc) {
    const uint32_t n = gpu_fold_init(s->g, s->folds, lanes, acc);
    if (!s->pair.lead) return n;
    const TeamPair t = row_under_begin(&s->pair);
    return put_pair(s, &t, acc, n);
}

/* n vectors of this thread: all are on their way before the first is waited for. */
static void fold(Split *s, uint32_t n, Expr at, LLVMValueRef *acc) {
    Gpu *g = s->g;
    Emit *e = g->e;
    EmitScope *scope[UNROLL_SINGLE], *outer = e->scope;
    for (uint32_t u = 0; u < n; u++) {
        scope[u] = emit_push(e);
        bind(s, expr_addi(e->exprs, at, (int64_t)u * THREADS));
        for (KVal v = 1; v < g->k->nops; v++)
            if (s->folds->cone[v] && g->k->ops[v].op == K_kload && gpu_is_request(g, v))
                (void)emit_value(e, v);
        (void)emit_switch(e, outer);
    }
    for (uint32_t u = 0; u < n; u++) {
        (void)emit_switch(e, scope[u]);
        LLVMValueRef *a = acc;
        for (uint32_t f = 0; f < s->folds->nfolds; f++) {
            if (s->folds->folds[f] != s->pair.lead) row_fold(&s->row, s->folds->folds[f], NULL, a);
            a += gpu_fold_width(g, s->folds->folds[f]);
        }
        (void)emit_switch(e, outer);
    }
    if (s->pair.lead) fold_pair(s, scope, n, acc);
}

static void walk(Split *s, uint32_t n, LLVMValueRef lo, LLVMValueRef hi, LLVMValueRef *acc) {
    Emit *e = s->g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    int64_t least, most;
    expr_range(e->exprs, length(s), &least, &most);
    *l = emit_loop(e, s->nacc);
    for (uint32_t i = 0; i < s->nacc; i++) l->init[i] = acc[i];
    emit_loop_begin(e, l, "part", lo, hi, emit_i64(e, (int64_t)n * THREADS), false);
    for (uint32_t i = 0; i < s->nacc; i++) l->next[i] = l->phi[i];
    fold(s, n, emit_new_sym(e, "at", most > 0 ? most - 1 : 0, l->i), l->next);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < s->nacc; i++) acc[i] = l->out[i];
}

/* A part is a multiple of the block's steps, so that single ones are left in the last only. */
static void fold_part(Split *s, LLVMValueRef *acc) {
    Gpu *g = s->g;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Expr size = expr_ceildiv(p, length(s), expr_const(p, s->parts * stride(s)));
    LLVMValueRef each = emit_expr(e, expr_muli(p, size, stride(s))), all = emit_expr(e, length(s));
    LLVMValueRef lo = gpu_smaller(e, LLVMBuildMul(e->b, g->block[0], each, ""), all);
    LLVMValueRef hi = gpu_smaller(e, LLVMBuildAdd(e->b, lo, each, ""), all);
    LLVMValueRef n = LLVMBuildSub(e->b, hi, lo, "");
    LLVMValueRef whole = LLVMBuildAnd(e->b, n, emit_i64(e, -stride(s)), "");
    LLVMValueRef middle = LLVMBuildAdd(e->b, lo, whole, "");
    walk(s, s->unroll, LLVMBuildAdd(e->b, lo, g->tid, ""), middle, acc);
    walk(s, 1, LLVMBuildAdd(e->b, middle, g->tid, ""), hi, acc);
}

/* --- Joining ---------------------------------------------------------------------------------- */

/* One lane of each thread to the block's results, which every thread knows then. */
static void join_block(Split *s, LLVMValueRef *acc) {
    const Team team = row_team_under(&s->pair, s->folds);
    gpu_team_join(&team, s->folds, acc);
}

/* Thread t gets part t; behind the last part there is nothing. */
static void read_parts(Split *s, const Parts *m, LLVMValueRef *acc) {
    Gpu *g = s->g;
    Emit *e = g->e;
    LLVMValueRef at = gpu_smaller(e, g->tid, emit_i64(e, s->parts - 1));
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntSLT, g->tid, emit_i64(e, s->parts), "");
    LLVMValueRef none[MOST_ACC];
    (void)begin(s, 1, none);
    for (uint32_t i = 0; i < s->nacc; i++) {
        LLVMValueRef p = row_part(m, at, (int64_t)i * SLOT);
        acc[i] = emit_select(e, is, emit_load(e, LLVMTypeOf(none[i]), p, SLOT), none[i]);
    }
    gpu_barrier(e); /* all have read before anybody leaves zeros */
    EmitIf mine;
    emit_if_begin(e, &mine, is);
    for (uint32_t i = 0; i < s->nacc; i++)
        emit_store_ptr(e, LLVMConstNull(LLVMTypeOf(none[i])), row_part(m, at, (int64_t)i * SLOT),
                       SLOT);
    emit_if_end(e, &mine);
}

static void store_result(Split *s, LLVMValueRef *acc) {
    Emit *e = s->g->e;
    LLVMValueRef *a = acc;
    for (uint32_t f = 0; f < s->folds->nfolds; f++) {
        emit_override(e, s->folds->folds[f], a[0]);
        a += gpu_fold_width(s->g, s->folds->folds[f]);
    }
    if (s->pair.lead)
        emit_override(e, s->pair.under, row_under_result(&s->pair, *lead_of(s, acc), a[0]));
    row_store_once(&s->row, s->stores);
}

static void join_parts(Split *s, Expr groups, LLVMValueRef *acc) {
    Gpu *g = s->g;
    Emit *e = g->e;
    Parts m = row_parts(g, s->parts, (int64_t)s->nacc * SLOT, groups, g->block[1]);
    EmitIf first, last;
    emit_if_begin(e, &first, gpu_is_first(g));
    for (uint32_t i = 0; i < s->nacc; i++)
        emit_store_ptr(e, acc[i], row_part(&m, g->block[0], (int64_t)i * SLOT), SLOT);
    emit_if_end(e, &first);
    emit_if_begin(e, &last, row_is_last(&m));
    read_parts(s, &m, acc);
    join_block(s, acc);
    store_result(s, acc);
    emit_if_end(e, &last);
}

bool gpu_split(Gpu *g) {
    Emit *e = g->e;
    Split s = {.g = g, .row.team.g = g};
    if (!has_shape(&s)) return false;
    int64_t lo, hi;
    Expr folds = gpu_points(e, g->k, g->rows->par);
    expr_range(e->exprs, folds, &lo, &hi);
    if (hi > GPU_GRID_Y || gpu_hint(e, folds) > g->m->processors) return false;
    s.lane = choose_lane(&s);
    e->lanes = finds_positions(&s) ? 1 : gpu_lanes(g, s.lane, NULL);
    s.unroll = e->lanes > 1 ? UNROLL : UNROLL_SINGLE;
    if (!choose_parts(&s)) {
        e->lanes = 1;
        return false;
    }
    if (!g->j->min_blocks) g->j->min_blocks = BLOCKS;
    gpu_launch(g, THREADS, expr_const(e->exprs, s.parts), folds, 0);
    s.row.team.size = THREADS, s.row.team.rank = g->tid;
    gpu_decode(e, g->k, g->rows->par, emit_new_sym(e, "fold", hi > 0 ? hi - 1 : 0, g->block[1]));
    LLVMValueRef acc[MOST_ACC], *a = acc;
    s.nacc = begin(&s, e->lanes, acc);
    emit_push(e);
    fold_part(&s, acc);
    emit_pop(e);
    for (uint32_t f = 0; f < s.folds->nfolds; f++) {
        KVal v = s.folds->folds[f];
        if (v != s.pair.lead)
            a[0] = emit_fold_lanes_by(e, (KFold)g->k->ops[v].fold, gpu_fold_type(g, v), a[0],
                                      rows_join(g->rows, v));
        a += gpu_fold_width(g, v);
    }
    e->lanes = 1;
    join_block(&s, acc);
    join_parts(&s, folds, acc);
    return true;
}
