/* Rows, and sums of columns beside them (fusion/schedule/columns.c): a block takes every n-th row
 * and keeps its sums of columns in registers until the last. Teams of a block take rows of their
 * own; a team larger than a warp is the block. band_fetch.c brings rows some turns ahead. A row is
 * finished before the next one begins, or, where folds follow each other, a turn later
 * (band_behind.c). */
#include "codegen/nvptx/row/band.h"

enum {
    WARP_PIECES = 4,  /* vectors of a thread where teams are no larger than a warp, */
    BLOCK_PIECES = 2, /* and where the block is the team */
    THREADS = 256,    /* of small teams; of those of ... */
    PAIR = 2,         /* ... so many vectors a thread: */
    PAIR_THREADS = 512,
    MIDDLE = 3, /* or so many: */
    MIDDLE_THREADS = 384,
    MOST_THREADS = 1024,
    QUARTER = 128,      /* of a team where ... */
    QUARTER_BLOCKS = 4, /* ... so many blocks share a multiprocessor */
    STAGES = 4,         /* rows of a team on their way, and the one that it is at; ... */
    STAGES_ALONE = 6,   /* ... of a block that has the multiprocessor to itself */
    RESERVED = 16384,   /* of shared memory: of the system, and where teams meet */
};

/* --- Shape ------------------------------------------------------------------------------------ */

static bool is_column(const Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    return g->k->ops[v].op == K_kreduce && g->k->ops[v].axes == 1u << b->turn;
}

static bool add_fold(Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    const KOp *o = &g->k->ops[v];
    if (gpu_fold_width(g, v) != 1 || gpu_fold_type(g, v) != DT_f32) return false;
    uint32_t dom = g->rows->dom[v], turn = 1u << b->turn;
    if (!is_column(b, v)) {
        b->nfolds++;
        return o->axes == b->r.axes && dom == (g->rows->par | turn);
    }
    if (dom != (g->rows->par | b->r.axes) || o->fold != FOLD_sum || b->nsums == BAND_SUMS)
        return false;
    b->sum[b->nsums++] = v;
    return true;
}

static bool add_load(Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    uint32_t dom = g->rows->dom[v];
    bool row = dom & b->r.axes, turn = dom >> b->turn & 1;
    if (!gpu_is_request(g, v)) return false;
    if (!turn) return true;
    uint32_t *n = row ? &b->nown : &b->nnumbers;
    if (*n == BAND_OWN) return false;
    (row ? b->own : b->number)[(*n)++] = v;
    return true;
}

static bool add_store(Band *b, KVal v) {
    KVal x = b->r.team.g->k->ops[v].in[0];
    if (!is_column(b, x)) return true;
    if (b->nstores == BAND_SUMS) return false;
    b->store[b->nstores++] = v;
    return true;
}

/* Axes: blocks, the rows of a block, columns. */
static bool has_shape(Band *b) {
    Gpu *g = b->r.team.g;
    if (g->k->naxes != 3 || g->k->serial || g->rows->par != 1) return false;
    b->turn = 1, b->r.lane = 2, b->r.axes = 1u << 2;
    for (KVal v = 1; v < g->k->nops; v++) {
        uint16_t op = g->k->ops[v].op;
        if (op == K_kreduce  ? !add_fold(b, v)
            : op == K_kload  ? !add_load(b, v)
            : op == K_kstore ? !add_store(b, v)
                             : op > K_first && op != K_konst && op != K_kexpr)
            return false;
    }
    return b->nsums && b->nsums == b->nstores && b->nown;
}

/* Stores of columns belong to no row. */
static bool passes(Band *b) {
    Gpu *g = b->r.team.g;
    if (!rows_passes_inside(g->rows, g->e, g->k, 1u << b->turn)) return false;
    for (uint32_t i = 0; i < g->rows->npasses; i++) {
        Pass *p = &g->rows->pass[i];
        uint32_t n = 0;
        for (uint32_t s = 0; s < p->nstores; s++)
            if (!is_column(b, g->k->ops[p->stores[s]].in[0])) p->stores[n++] = p->stores[s];
        p->nstores = n;
    }
    return true;
}

/* --- Sizes ------------------------------------------------------------------------------------ */

/* A thread for each vector of 97 to 128, where there are blocks enough for such small ones. */
static bool is_quarter(int64_t n, uint32_t blocks) {
    return n > QUARTER - 32 && n <= QUARTER && blocks >= QUARTER_BLOCKS;
}

static uint32_t small_teams(uint32_t pieces) {
    return pieces == PAIR ? PAIR_THREADS : pieces == MIDDLE ? MIDDLE_THREADS : THREADS;
}

static void choose_threads(Band *b, int64_t n, uint32_t blocks) {
    uint32_t t = 4;
    while (t < 32 && n > t) t *= 2;
    if (n > (int64_t)t * WARP_PIECES)
        for (t = 256; t < MOST_THREADS && n > (int64_t)t * BLOCK_PIECES;) t *= 2;
    if (is_quarter(n, blocks)) t = QUARTER;
    b->r.team.size = t;
    b->r.pieces = (uint32_t)((n + t - 1) / t);
    b->threads = t > 32 ? t : small_teams(b->r.pieces);
    b->teams = b->threads / t;
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

/* Registers are short: of many threads that keep several sums, in pairs where one vector lies past the row's end. */
static bool is_tight(const Band *b, int64_t n) {
    bool ragged = b->teams > 1 && b->r.pieces == PAIR && n % b->r.team.size != 0;
    return !b->behind && b->nsums > 1 && (b->threads == MIDDLE_THREADS || ragged);
}

/* Folds of a row are made of others: threads would wait for each. */
static bool folds_follow(const Band *b) {
    const Gpu *g = b->r.team.g;
    for (KVal v = 1; v < g->k->nops; v++) {
        bool *cone = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
        if (g->k->ops[v].op != K_kreduce || is_column(b, v)) continue;
        rows_cone(g->rows, g->k->ops[v].in[0], cone);
        for (KVal w = 1; w < v; w++)
            if (cone[w] && g->k->ops[w].op == K_kreduce && !is_column(b, w)) return true;
    }
    return false;
}

static bool choose_sizes(Band *b) {
    Gpu *g = b->r.team.g;
    int64_t n;
    uint32_t blocks;
    if (!expr_is_const(g->e->exprs, row_vectors(&b->r, b->r.axes), &n)) return false;
    if (!choose_blocks(b, &blocks)) return false;
    choose_threads(b, n, blocks);
    if (b->r.pieces > ROW_MAX_PIECES) return false;
    b->behind = folds_follow(b) || b->r.team.size == QUARTER;
    for (uint32_t i = 0; i < b->nown; i++) {
        if (!band_pieces(b, b->own[i])) return false;
        b->slots += band_pieces(b, b->own[i]) * b->r.pieces;
    }
    /* Blocks meet in the folds of a row: behind that what was read may be overwritten. */
    b->tight = is_tight(b, n);
    b->whole = !b->tight && (b->r.team.size == 32 || (b->r.team.size > 32 && b->nfolds));
    uint32_t row = b->slots * b->threads * BAND_PIECE, most = blocks > 1 ? STAGES : STAGES_ALONE;
    for (uint32_t i = 0; i < b->nown; i++)
        b->row_bytes += band_pieces(b, b->own[i]) * (uint32_t)n * BAND_PIECE;
    if (b->whole) row = b->row_bytes * b->teams;
    b->stages = (g->m->shared / blocks - RESERVED) / row;
    if (b->stages > most) b->stages = most;
    if (b->stages < 2) return false;
    b->bars = b->stages * row;
    g->j->shared_bytes = b->bars + (b->whole ? b->stages * b->teams * HOP_BARRIER_BYTES : 0);
    if (!g->j->min_blocks && !g->j->shrink) g->j->min_blocks = blocks;
    return true;
}

/* Vectors there are whatever the assembler spills: walked in another way, the kernel would compute
 * every row anew for every column. */
static uint32_t choose_lanes(Band *b) {
    CompileJob *j = b->r.team.g->j;
    uint32_t shrink = j->shrink;
    j->shrink = 0;
    uint32_t n = gpu_lanes(b->r.team.g, (uint32_t)b->r.lane, NULL);
    j->shrink = shrink;
    return n;
}

/* --- A row ------------------------------------------------------------------------------------ */

static void read_numbers(Band *b, LLVMValueRef at, LLVMValueRef *to) {
    Emit *e = b->r.team.g->e;
    emit_push(e);
    (void)band_place(b, at, false);
    for (uint32_t i = 0; i < b->nnumbers; i++) to[i] = emit_value(e, b->number[i]);
    emit_pop(e);
}

static void store_row(Band *b, Held *h, const Pass *p, LLVMValueRef inside) {
    Emit *e = b->r.team.g->e;
    EmitIf there;
    if (!p->axes) {
        if (inside) emit_if_begin(e, &there, inside);
        row_store_once(&b->r, p);
        if (inside) emit_if_end(e, &there);
        return;
    }
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h->scope[u]);
        for (uint32_t i = 0; i < p->nstores; i++)
            (void)emit_value(e, e->k->ops[p->stores[i]].in[0]);
        LLVMValueRef live = band_both(e, inside, h->live[u]);
        if (live) emit_if_begin(e, &there, live);
        for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
        if (live) emit_if_end(e, &there);
        (void)emit_switch(e, outer);
    }
}

/* Vectors past the row's end are added, too, and never stored. */
static void add_columns(Band *b, Held *h, LLVMValueRef inside, LLVMValueRef *acc) {
    Emit *e = b->r.team.g->e;
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h->scope[u]);
        for (uint32_t s = 0; s < b->nsums; s++, acc++) {
            const KOp *o = &e->k->ops[b->sum[s]];
            LLVMValueRef x = emit_value_lanes(e, o->in[0]);
            LLVMValueRef none = emit_fold_identity(e, (KFold)o->fold, DT_f32, e->lanes);
            if (inside) x = emit_select(e, inside, x, none);
            *acc = emit_fold_join(e, (KFold)o->fold, DT_f32, *acc, x);
        }
        (void)emit_switch(e, outer);
    }
}

/* fixed: what all rows read alike of the thread's vectors, [piece][op]. */
static void run_row(Band *b, LLVMValueRef at, bool full, LLVMValueRef *const *fixed,
                    LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    Held h = {.r = &b->r};
    LLVMValueRef inside = band_place(b, at, full);
    if (b->r.team.size > 32) b->r.team.turn = LLVMBuildAnd(e->b, at, emit_i64(e, 1), "");
    row_place(&h);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h.scope[u]);
        for (KVal v = 1; v < g->k->nops; v++)
            if (fixed[u][v]) emit_override(e, v, fixed[u][v]);
        (void)emit_switch(e, outer);
    }
    band_take(b, &h, at);
    uint32_t i = 0; /* folds come first */
    for (; i < g->rows->npasses && g->rows->pass[i].nfolds; i++)
        row_fold_held(&h, &g->rows->pass[i]);
    add_columns(b, &h, inside, acc);
    for (; i < g->rows->npasses; i++)
        if (g->rows->pass[i].nstores) store_row(b, &h, &g->rows->pass[i], inside);
}

/* --- All rows of a block ---------------------------------------------------------------------- */

/* Turns lo to hi. acc: the sums, then the numbers of the first turn. What the next turn reads is asked for
 * behind the wait for this one's row: what comes before it, all of the block's warps wait for. */
static void walk_turns(Band *b, LLVMValueRef lo, LLVMValueRef hi, bool full,
                       LLVMValueRef *const *fixed, LLVMValueRef *acc) {
    Emit *e = b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    uint32_t nacc = b->r.pieces * b->nsums, n = nacc + b->nnumbers;
    LLVMValueRef one = emit_i64(e, 1);
    *l = emit_loop(e, n + 2);
    for (uint32_t i = 0; i < n; i++) l->init[i] = acc[i];
    band_stage(b, lo, &l->init[n], &l->init[n + 1]);
    emit_loop_begin(e, l, "turn", lo, hi, one, false);
    b->at = l->i, b->stage = l->phi[n], b->round = l->phi[n + 1];
    b->asked = LLVMBuildAdd(e->b, l->i, emit_i64(e, b->stages - 1), "");
    band_request(b, b->asked);
    band_wait(b, l->i);
    read_numbers(b, LLVMBuildAdd(e->b, l->i, one, ""), l->next + nacc);
    for (uint32_t i = 0; i < b->nnumbers; i++) emit_override(e, b->number[i], l->phi[nacc + i]);
    for (uint32_t i = 0; i < nacc; i++) l->next[i] = l->phi[i];
    run_row(b, l->i, full, fixed, l->next);
    band_next_stage(b, &l->next[n], &l->next[n + 1]);
    b->at = b->asked = NULL;
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) acc[i] = l->out[i];
}

/* In all turns but the last every team has a row: nothing is asked there. */
static void walk(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    LLVMValueRef **fixed = band_fixed(b), zero = emit_i64(e, 0);
    band_init(b);
    for (uint32_t i = 0; i + 1 < b->stages; i++) band_request(b, emit_i64(e, i));
    read_numbers(b, zero, acc + b->r.pieces * b->nsums);
    Expr full = expr_addi(p, g->k->axes[b->turn].extent, -1);
    full = expr_div(p, full, expr_const(p, b->teams));
    LLVMValueRef middle = b->tight ? zero : emit_expr(e, full);
    if (!b->tight) walk_turns(b, zero, middle, true, fixed, acc);
    walk_turns(b, middle, b->turns, false, fixed, acc);
}

/* The sum of all teams' vectors, in the first team: one after the other, in few registers. */
static LLVMValueRef join_teams(Band *b, LLVMValueRef slots, LLVMValueRef x, KVal v) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    KFold fold = (KFold)g->k->ops[v].fold;
    LLVMTypeRef t = LLVMTypeOf(x);
    gpu_barrier(e);
    emit_store_ptr(e, x, emit_gep(e, t, slots, g->tid), BAND_PIECE);
    gpu_barrier(e);
    *l = emit_loop(e, 1);
    l->init[0] = emit_fold_identity(e, fold, DT_f32, e->lanes);
    emit_loop_begin(e, l, "team", b->r.team.rank, emit_i64(e, b->threads),
                    emit_i64(e, b->r.team.size), true);
    LLVMValueRef y = emit_load(e, t, emit_gep(e, t, slots, l->i), BAND_PIECE);
    l->next[0] = emit_fold_join(e, fold, DT_f32, l->phi[0], y);
    emit_loop_end(e, l);
    return l->out[0];
}

static void store_columns(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    Held h = {.r = &b->r};
    LLVMValueRef slots = NULL, first = NULL;
    row_place(&h);
    if (b->teams > 1) {
        slots = gpu_shared(g, emit_vec(e->f32, e->lanes), b->threads);
        first = LLVMBuildICmp(e->b, LLVMIntEQ, b->team, emit_i64(e, 0), "");
    }
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h.scope[u]);
        for (uint32_t s = 0; s < b->nsums; s++, acc++)
            emit_override(e, b->sum[s], slots ? join_teams(b, slots, *acc, b->sum[s]) : *acc);
        LLVMValueRef mine = band_both(e, first, h.live[u]);
        EmitIf there;
        if (mine) emit_if_begin(e, &there, mine);
        for (uint32_t i = 0; i < b->nstores; i++) emit_store(e, b->store[i]);
        if (mine) emit_if_end(e, &there);
        (void)emit_switch(e, outer);
    }
}

bool gpu_band(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Band b = {.r.team.g = g};
    if (!e->isa->warpgroups || !has_shape(&b)) return false;
    uint32_t part = (uint32_t)__builtin_ctz(g->rows->par), lanes = e->lanes;
    e->lanes = choose_lanes(&b);
    if (e->lanes == 1 || !choose_sizes(&b) || !passes(&b)) {
        e->lanes = lanes;
        return false;
    }
    gpu_launch(g, b.threads, g->k->axes[part].extent, 0, 0);
    emit_set_sym(e, g->k->axes[part].sym, g->block[0]);
    b.r.team.rank = g->tid;
    if (b.teams > 1) {
        b.r.team.rank = LLVMBuildAnd(e->b, g->tid, emit_i64(e, b.r.team.size - 1), "");
        b.team = LLVMBuildLShr(e->b, g->tid, emit_i64(e, __builtin_ctz(b.r.team.size)), "");
    }
    Expr turns = expr_ceildiv(p, g->k->axes[b.turn].extent, expr_const(p, b.teams));
    b.turns = emit_expr(e, turns);
    LLVMValueRef acc[BAND_CARRIED];
    for (uint32_t i = 0; i < b.r.pieces * b.nsums; i++)
        acc[i] = emit_fold_identity(e, FOLD_sum, DT_f32, e->lanes);
    if (b.behind)
        band_walk_behind(&b, acc);
    else
        walk(&b, acc);
    store_columns(&b, acc);
    return true;
}
