/* Rows, and sums of columns beside them (fusion/schedule/columns.c): a block takes every n-th row
 * and keeps its sums of columns in registers until the last. Teams of a block take rows of their
 * own; a team larger than a warp is the block. What a row needs is asked for some rows ahead: by one
 * thread, of the copy engine, or, where teams are parts of a warp and rows short, by every thread
 * for itself, into shared memory that no other thread reads. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/ptx.h"
#include "codegen/nvptx/row/row.h"
#include <stdio.h>

enum {
    MOST_SUMS = 8,
    MOST_OWN = 8,     /* loads of a row, and numbers of it */
    WARP_PIECES = 4,  /* vectors of a thread where teams are no larger than a warp, */
    BLOCK_PIECES = 2, /* and where the block is the team */
    THREADS = 256,    /* of small teams; of those of ... */
    MIDDLE = 3,       /* ... so many vectors a thread: */
    MIDDLE_THREADS = 384,
    MOST_THREADS = 1024,
    PIECE = 16,       /* bytes of one request */
    STAGES = 4,       /* rows of a team on their way, and the one that it is at; ... */
    STAGES_ALONE = 6, /* ... of a block that has the multiprocessor to itself */
    RESERVED = 16384, /* of shared memory: of the system, and where teams meet */
};

typedef struct Band {
    RowPlan r;
    uint32_t turn;  /* axis: rows of a block */
    uint32_t teams; /* of a block */
    uint32_t threads;
    uint32_t nsums, nstores, nown, nnumbers, nfolds; /* nfolds: along rows */
    KVal sum[MOST_SUMS], store[MOST_SUMS]; /* of columns */
    KVal own[MOST_OWN], number[MOST_OWN];  /* loads: elements of a row, one for a row */
    uint32_t stages, slots;                /* slots: requests of a thread for a row */
    bool tight;                            /* registers are short: one loop does */
    bool whole;                            /* the copy engine brings a team's row, ... */
    uint32_t row_bytes, bars;              /* ... so many bytes; where the stages' barriers lie */
    LLVMValueRef team, turns;              /* number of the team; turns of a block (i64) */
} Band;

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
    if (dom != (g->rows->par | b->r.axes) || o->fold != FOLD_sum || b->nsums == MOST_SUMS)
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
    if (*n == MOST_OWN) return false;
    (row ? b->own : b->number)[(*n)++] = v;
    return true;
}

static bool add_store(Band *b, KVal v) {
    KVal x = b->r.team.g->k->ops[v].in[0];
    if (!is_column(b, x)) return true;
    if (b->nstores == MOST_SUMS) return false;
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

static uint32_t pieces_of(const Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    DType t = g->k->params[g->k->ops[v].buf].dtype;
    return (uint32_t)dtype_bytes(t) * g->e->lanes / PIECE;
}

static void choose_threads(Band *b, int64_t n) {
    uint32_t t = 4;
    while (t < 32 && n > t) t *= 2;
    if (n > (int64_t)t * WARP_PIECES)
        for (t = 256; t < MOST_THREADS && n > (int64_t)t * BLOCK_PIECES;) t *= 2;
    b->r.team.size = t;
    b->r.pieces = (uint32_t)((n + t - 1) / t);
    b->threads = t > 32 ? t : b->r.pieces == MIDDLE ? MIDDLE_THREADS : THREADS;
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

static bool choose_sizes(Band *b) {
    Gpu *g = b->r.team.g;
    int64_t n;
    uint32_t blocks;
    if (!expr_is_const(g->e->exprs, row_vectors(&b->r, b->r.axes), &n)) return false;
    choose_threads(b, n);
    if (b->r.pieces > ROW_MAX_PIECES || !choose_blocks(b, &blocks)) return false;
    for (uint32_t i = 0; i < b->nown; i++) {
        if (!pieces_of(b, b->own[i])) return false;
        b->slots += pieces_of(b, b->own[i]) * b->r.pieces;
    }
    /* Blocks meet in the folds of a row: behind that what was read may be overwritten. */
    b->tight = b->threads == MIDDLE_THREADS && b->nsums > 1;
    b->whole = !b->tight && (b->r.team.size == 32 || (b->r.team.size > 32 && b->nfolds));
    uint32_t row = b->slots * b->threads * PIECE, most = blocks > 1 ? STAGES : STAGES_ALONE;
    for (uint32_t i = 0; i < b->nown; i++) b->row_bytes += pieces_of(b, b->own[i]) * (uint32_t)n * PIECE;
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

/* --- Rows on their way ------------------------------------------------------------------------ */

/* In the current scope the team is at its row of turn `at`, or at the last one; true (i1) where
 * there is such a row. `full`: there is in every block, which NULL says, too. */
static LLVMValueRef place_turn(const Band *b, LLVMValueRef at, bool full) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    uint32_t sym = g->k->axes[b->turn].sym;
    LLVMValueRef n = emit_expr(e, g->k->axes[b->turn].extent);
    int64_t least, most;
    expr_range(e->exprs, g->k->axes[b->turn].extent, &least, &most);
    if (b->teams > 1) {
        at = LLVMBuildMul(e->b, at, emit_i64(e, b->teams), "");
        at = LLVMBuildAdd(e->b, at, b->team, "");
    }
    if (full) {
        emit_bind(e, sym, emit_new_sym(e, "turn", most > 1 ? most - 2 : 0, at));
        return NULL;
    }
    LLVMValueRef last[2] = {at, LLVMBuildSub(e->b, n, emit_i64(e, 1), "")};
    emit_set_sym(e, sym, emit_intrinsic(e, "llvm.smin", e->i64, last, 2));
    return LLVMBuildICmp(e->b, LLVMIntSLT, at, n, "");
}

/* Shared address of the thread's slot number 0 of turn `at`. */
static HV slots_of(const Band *b, LLVMValueRef at) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    LLVMValueRef stage = LLVMBuildURem(e->b, at, emit_i64(e, b->stages), "");
    HV p = LLVMBuildTrunc(e->b, stage, e->i32, "");
    p = hop_muli(e, p, (int64_t)b->slots * b->threads * PIECE);
    HV own = hop_muli(e, LLVMBuildTrunc(e->b, g->tid, e->i32, ""), PIECE);
    return hop_add(e, hop_add(e, hop_shared(g), p), own);
}

static int64_t slot_bytes(const Band *b, uint32_t slot) {
    return (int64_t)slot * b->threads * PIECE;
}

/* Every thread calls for all that it needs of a row, if there is a turn `at`. */
static void request_own(Band *b, LLVMValueRef at) {
    Emit *e = b->r.team.g->e;
    Held h = {.r = &b->r};
    EmitIf there;
    emit_if_begin(e, &there, LLVMBuildICmp(e->b, LLVMIntSLT, at, b->turns, ""));
    (void)place_turn(b, at, false);
    row_place(&h);
    HV to = slots_of(b, at);
    uint32_t slot = 0;
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h.scope[u]);
        for (uint32_t i = 0; i < b->nown; i++) {
            const KOp *o = &e->k->ops[b->own[i]];
            LLVMValueRef from = emit_address(e, o->buf, o->index);
            for (uint32_t c = 0; c < pieces_of(b, b->own[i]); c++, slot++) {
                LLVMValueRef p = emit_gep(e, e->i8, from, emit_i64(e, (int64_t)c * PIECE));
                HV a[2] = {hop_addi(e, to, slot_bytes(b, slot)),
                           LLVMBuildPtrToInt(e->b, p, e->i64, "")};
                hop_asm(e, e->voidt, "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}",
                        a, 2);
            }
        }
        (void)emit_switch(e, outer);
    }
    emit_if_end(e, &there);
    hop_asm(e, e->voidt, "cp.async.commit_group;", "~{memory}", NULL, 0);
}

static LLVMValueRef take_vector(Band *b, KVal v, HV from, uint32_t slot) {
    Emit *e = b->r.team.g->e;
    LLVMTypeRef elem = emit_mem_type(e, e->k->params[e->k->ops[v].buf].dtype);
    LLVMTypeRef shared = LLVMPointerTypeInContext(e->ctx, PTX_SHARED);
    uint32_t n = pieces_of(b, v), lanes = e->lanes / n;
    LLVMValueRef x[2], order[16];
    for (uint32_t c = 0; c < n; c++) {
        HV p = hop_addi(e, from, slot_bytes(b, slot + c));
        p = LLVMBuildIntToPtr(e->b, p, shared, "");
        x[c] = emit_load(e, emit_vec(elem, lanes), p, PIECE);
    }
    if (n == 1) return x[0];
    for (uint32_t i = 0; i < e->lanes; i++) order[i] = emit_i(e, e->i32, i);
    return LLVMBuildShuffleVector(e->b, x[0], x[1], LLVMConstVector(order, e->lanes), "");
}

/* Shared address of what the copy engine brings at turn `at`, and the barrier that tells of it. */
static HV row_at(const Band *b, LLVMValueRef at, HV *bar) {
    Emit *e = b->r.team.g->e;
    LLVMValueRef stage = LLVMBuildURem(e->b, at, emit_i64(e, b->stages), "");
    HV n = LLVMBuildTrunc(e->b, stage, e->i32, "");
    if (b->teams > 1) {
        HV team = LLVMBuildTrunc(e->b, b->team, e->i32, "");
        n = hop_add(e, n, hop_muli(e, team, b->stages));
    }
    *bar = hop_add(e, hop_addi(e, hop_shared(b->r.team.g), b->bars),
                   hop_muli(e, n, HOP_BARRIER_BYTES));
    return hop_add(e, hop_shared(b->r.team.g), hop_muli(e, n, b->row_bytes));
}

/* One thread of the team calls for its row. All of them have read what lay there before. */
static void request_row(Band *b, LLVMValueRef at) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf there;
    HV bar, to;
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, b->r.team.rank, emit_i64(e, 0), "");
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntSLT, at, b->turns, "");
    if (b->r.team.size == 32) hop_warp_sync(e);
    emit_if_begin(e, &there, LLVMBuildAnd(e->b, first, is, ""));
    (void)place_turn(b, at, false);
    emit_set_sym(e, g->k->axes[b->r.lane].sym, emit_i64(e, 0));
    to = row_at(b, at, &bar);
    hop_barrier_expect(e, bar, hop_i(e, b->row_bytes));
    int64_t n = expr_value(e->exprs, row_vectors(&b->r, b->r.axes));
    for (uint32_t i = 0; i < b->nown; i++) {
        const KOp *o = &e->k->ops[b->own[i]];
        int64_t bytes = n * pieces_of(b, b->own[i]) * PIECE;
        HV from = LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
        hop_bulk_load(e, to, from, hop_i(e, bytes), bar);
        to = hop_addi(e, to, bytes);
    }
    emit_if_end(e, &there);
}

static void request(Band *b, LLVMValueRef at) {
    if (b->whole)
        request_row(b, at);
    else
        request_own(b, at);
}

/* The row of turn `at`, which the copy engine brings, is there; its scopes know its elements. */
static void take_row(Band *b, Held *h, LLVMValueRef at) {
    Emit *e = b->r.team.g->e;
    HV bar, from = row_at(b, at, &bar);
    LLVMValueRef phase = LLVMBuildUDiv(e->b, at, emit_i64(e, b->stages), "");
    hop_barrier_wait(e, bar, hop_andi(e, LLVMBuildTrunc(e->b, phase, e->i32, ""), 1));
    int64_t n = expr_value(e->exprs, row_vectors(&b->r, b->r.axes));
    for (uint32_t i = 0; i < b->nown; i++) {
        LLVMTypeRef elem = emit_mem_type(e, e->k->params[e->k->ops[b->own[i]].buf].dtype);
        LLVMTypeRef shared = LLVMPointerTypeInContext(e->ctx, PTX_SHARED);
        uint32_t bytes = pieces_of(b, b->own[i]) * PIECE;
        for (uint32_t u = 0; u < b->r.pieces; u++) {
            int64_t first = (int64_t)u * b->r.team.size;
            HV v = hop_addi(e, LLVMBuildTrunc(e->b, b->r.team.rank, e->i32, ""), first);
            HV last[2] = {v, hop_i(e, n - 1)};
            if (first + b->r.team.size > n) v = emit_intrinsic(e, "llvm.umin", e->i32, last, 2);
            HV p = hop_add(e, from, hop_muli(e, v, bytes));
            EmitScope *outer = emit_switch(e, h->scope[u]);
            p = LLVMBuildIntToPtr(e->b, p, shared, "");
            emit_override(e, b->own[i], emit_load(e, emit_vec(elem, e->lanes), p, PIECE));
            (void)emit_switch(e, outer);
        }
        from = hop_addi(e, from, n * bytes);
    }
}

static void init_barriers(Band *b) {
    Emit *e = b->r.team.g->e;
    EmitIf one;
    if (!b->whole) return;
    LLVMValueRef first =
        LLVMBuildICmp(e->b, LLVMIntEQ, b->r.team.g->tid, emit_i64(e, 0), "");
    emit_if_begin(e, &one, first);
    for (uint32_t i = 0; i < b->stages * b->teams; i++)
        hop_barrier_init(
            e, hop_addi(e, hop_shared(b->r.team.g), b->bars + i * HOP_BARRIER_BYTES), 1);
    hop_barrier_init_fence(e);
    hop_fence_async(e);
    emit_if_end(e, &one);
    gpu_barrier(e);
}

/* The same of what every thread asked for itself. */
static void take_own(Band *b, Held *h, LLVMValueRef at) {
    Emit *e = b->r.team.g->e;
    char text[48];
    snprintf(text, sizeof text, "cp.async.wait_group %u;", b->stages - 1);
    hop_asm(e, e->voidt, text, "~{memory}", NULL, 0);
    HV from = slots_of(b, at);
    uint32_t slot = 0;
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h->scope[u]);
        for (uint32_t i = 0; i < b->nown; i++) {
            emit_override(e, b->own[i], take_vector(b, b->own[i], from, slot));
            slot += pieces_of(b, b->own[i]);
        }
        (void)emit_switch(e, outer);
    }
}

static void read_numbers(Band *b, LLVMValueRef at, LLVMValueRef *to) {
    Emit *e = b->r.team.g->e;
    emit_push(e);
    (void)place_turn(b, at, false);
    for (uint32_t i = 0; i < b->nnumbers; i++) to[i] = emit_value(e, b->number[i]);
    emit_pop(e);
}

/* --- A row ------------------------------------------------------------------------------------ */

static LLVMValueRef both(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    return a && b ? LLVMBuildAnd(e->b, a, b, "") : a ? a : b;
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
        LLVMValueRef live = both(e, inside, h->live[u]);
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
    LLVMValueRef inside = place_turn(b, at, full);
    if (b->r.team.size > 32) b->r.team.turn = LLVMBuildAnd(e->b, at, emit_i64(e, 1), "");
    row_place(&h);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h.scope[u]);
        for (KVal v = 1; v < g->k->nops; v++)
            if (fixed[u][v]) emit_override(e, v, fixed[u][v]);
        (void)emit_switch(e, outer);
    }
    if (b->whole)
        take_row(b, &h, at);
    else
        take_own(b, &h, at);
    uint32_t i = 0; /* folds come first */
    for (; i < g->rows->npasses && g->rows->pass[i].nfolds; i++)
        row_fold_held(&h, &g->rows->pass[i]);
    add_columns(b, &h, inside, acc);
    for (; i < g->rows->npasses; i++)
        if (g->rows->pass[i].nstores) store_row(b, &h, &g->rows->pass[i], inside);
}

/* --- All rows of a block ---------------------------------------------------------------------- */

static LLVMValueRef **read_fixed(Band *b) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    Held h = {.r = &b->r};
    LLVMValueRef **x = ARENA_ARRAY(e->arena, LLVMValueRef *, b->r.pieces);
    row_place(&h);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h.scope[u]);
        x[u] = ARENA_ARRAY(e->arena, LLVMValueRef, g->k->nops);
        for (KVal v = 1; v < g->k->nops; v++)
            if (g->k->ops[v].op == K_kload && g->rows->need[v] && g->rows->dom[v] == b->r.axes)
                x[u][v] = emit_value(e, v);
        (void)emit_switch(e, outer);
    }
    return x;
}

/* Turns lo to hi. acc: the sums, then the numbers of the first turn. */
static void walk_turns(Band *b, LLVMValueRef lo, LLVMValueRef hi, bool full,
                       LLVMValueRef *const *fixed, LLVMValueRef *acc) {
    Emit *e = b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    uint32_t nacc = b->r.pieces * b->nsums, n = nacc + b->nnumbers;
    LLVMValueRef one = emit_i64(e, 1);
    *l = emit_loop(e, n);
    for (uint32_t i = 0; i < n; i++) l->init[i] = acc[i];
    emit_loop_begin(e, l, "turn", lo, hi, one, false);
    request(b, LLVMBuildAdd(e->b, l->i, emit_i64(e, b->stages - 1), ""));
    read_numbers(b, LLVMBuildAdd(e->b, l->i, one, ""), l->next + nacc);
    for (uint32_t i = 0; i < b->nnumbers; i++) emit_override(e, b->number[i], l->phi[nacc + i]);
    for (uint32_t i = 0; i < nacc; i++) l->next[i] = l->phi[i];
    run_row(b, l->i, full, fixed, l->next);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) acc[i] = l->out[i];
}

/* In all turns but the last every team has a row: nothing is asked there. */
static void walk(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    LLVMValueRef **fixed = read_fixed(b), zero = emit_i64(e, 0);
    init_barriers(b);
    for (uint32_t i = 0; i + 1 < b->stages; i++) request(b, emit_i64(e, i));
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
    emit_store_ptr(e, x, emit_gep(e, t, slots, g->tid), PIECE);
    gpu_barrier(e);
    *l = emit_loop(e, 1);
    l->init[0] = emit_fold_identity(e, fold, DT_f32, e->lanes);
    emit_loop_begin(e, l, "team", b->r.team.rank, emit_i64(e, b->threads),
                    emit_i64(e, b->r.team.size), true);
    LLVMValueRef y = emit_load(e, t, emit_gep(e, t, slots, l->i), PIECE);
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
        LLVMValueRef mine = both(e, first, h.live[u]);
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
    LLVMValueRef acc[ROW_MAX_PIECES * MOST_SUMS + MOST_OWN];
    for (uint32_t i = 0; i < b.r.pieces * b.nsums; i++)
        acc[i] = emit_fold_identity(e, FOLD_sum, DT_f32, e->lanes);
    walk(&b, acc);
    store_columns(&b, acc);
    return true;
}
