/* Rows of a band that are finished a turn behind their first folds: both halves, of neighbouring
 * rows, do not depend on each other, and threads of a team meet once a turn. A row stays in shared
 * memory until then and is read again for every fold that follows, so that registers hold the sums
 * of columns and little else. */
#include "codegen/nvptx/band/band.h"

typedef struct Behind {
    Band *b;
    const Pass *first;    /* the folds that are made ahead; NULL: rows have none */
    LLVMValueRef meeting; /* where a block's warps meet: f32 of [turn % 2][fold][warp] */
    LLVMValueRef **fixed; /* of band_fixed */
} Behind;

/* --- Numbers of rows -------------------------------------------------------------------------- */

/* The numbers of rows are asked for in batches, a turn of it a lane, one batch ahead of their use:
 * memory takes longer to answer than a turn. */
static uint32_t batch_turns(const Band *b) {
    return b->r.team.size < 32 ? b->r.team.size : 32;
}

static void read_batch(Band *b, LLVMValueRef batch, LLVMValueRef *to) {
    Emit *e = b->r.team.g->e;
    LLVMValueRef n = emit_i64(e, batch_turns(b));
    LLVMValueRef lane = LLVMBuildAnd(e->b, b->r.team.rank, emit_i64(e, batch_turns(b) - 1), "");
    emit_push(e);
    (void)band_place(b, LLVMBuildAdd(e->b, LLVMBuildMul(e->b, batch, n, ""), lane, ""), false);
    for (uint32_t i = 0; i < b->nnumbers; i++) to[i] = emit_value(e, b->number[i]);
    emit_pop(e);
}

/* Those of turn `at`, which is in the batch. */
static void pick_numbers(Band *b, const LLVMValueRef *batch, LLVMValueRef at, LLVMValueRef *to) {
    Emit *e = b->r.team.g->e;
    LLVMValueRef lane = LLVMBuildAnd(e->b, at, emit_i64(e, batch_turns(b) - 1), "");
    lane = LLVMBuildTrunc(e->b, lane, e->i32, "");
    for (uint32_t i = 0; i < b->nnumbers; i++)
        to[i] = gpu_shuffle_from(e, batch[i], lane, batch_turns(b));
}

/* --- The first folds -------------------------------------------------------------------------- */

/* Number: the row's. True (i1) where there is such a row; NULL: everywhere. */
static LLVMValueRef begin_row(Behind *x, Held *h, LLVMValueRef at, bool full,
                              const LLVMValueRef *number) {
    Band *b = x->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    emit_push(e);
    LLVMValueRef inside = band_place(b, at, full);
    for (uint32_t i = 0; i < b->nnumbers; i++) emit_override(e, b->number[i], number[i]);
    row_place(h);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h->scope[u]);
        for (KVal v = 1; v < g->k->nops; v++)
            if (x->fixed[u][v]) emit_override(e, v, x->fixed[u][v]);
        (void)emit_switch(e, outer);
    }
    return inside;
}

/* The first folds of the row that stands here, as far as a warp knows them. */
static void fold_warp(Behind *x, Held *h, LLVMValueRef *part) {
    Band *b = x->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    const Pass *p = x->first;
    (void)gpu_fold_init(g, p, e->lanes, part);
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        EmitScope *outer = emit_switch(e, h->scope[u]);
        for (uint32_t f = 0; f < p->nfolds; f++) row_fold(h->r, p->folds[f], h->live[u], &part[f]);
        (void)emit_switch(e, outer);
    }
    for (uint32_t f = 0; f < p->nfolds; f++)
        part[f] = emit_fold_lanes_by(e, (KFold)g->k->ops[p->folds[f]].fold, DT_f32, part[f],
                                     rows_join(g->rows, p->folds[f]));
    gpu_team_lanes(&b->r.team, p, part);
}

/* The first folds of turn `at`. A row past the end is the last one. */
static void fold_row(Behind *x, LLVMValueRef at, const LLVMValueRef *number, LLVMValueRef *part) {
    Held h = {.r = &x->b->r};
    (void)begin_row(x, &h, at, false, number);
    band_wait(x->b, at);
    if (x->first) {
        band_take(x->b, &h, at);
        fold_warp(x, &h, part);
    }
    emit_pop(x->b->r.team.g->e);
}

static bool meets(const Behind *x) {
    return x->first && x->b->r.team.size > 32;
}

/* Where fold f of turn `at` lies: the first warp's. */
static LLVMValueRef meeting(const Behind *x, LLVMValueRef at, uint32_t f) {
    Emit *e = x->b->r.team.g->e;
    const int64_t warps = x->b->r.team.size / 32, folds = x->first->nfolds;
    LLVMValueRef n = LLVMBuildAnd(e->b, at, emit_i64(e, 1), "");
    n = LLVMBuildMul(e->b, n, emit_i64(e, folds * warps), "");
    return LLVMBuildAdd(e->b, n, emit_i64(e, f * warps), "");
}

/* The block's warps meet: what they have of turn `at` is there, what they read is read. */
static void meet(Behind *x, LLVMValueRef at, const LLVMValueRef *part) {
    Gpu *g = x->b->r.team.g;
    Emit *e = g->e;
    if (!meets(x)) return;
    LLVMValueRef warp = LLVMBuildLShr(e->b, x->b->r.team.rank, emit_i64(e, 5), "");
    for (uint32_t f = 0; f < x->first->nfolds; f++) {
        LLVMValueRef slot = LLVMBuildAdd(e->b, meeting(x, at, f), warp, "");
        LLVMBuildStore(e->b, part[f], emit_gep(e, e->f32, x->meeting, slot));
    }
    gpu_barrier(e);
}

/* The team's value of fold f of turn `at`, in the order of its warps. */
static LLVMValueRef met(const Behind *x, LLVMValueRef at, uint32_t f) {
    Gpu *g = x->b->r.team.g;
    Emit *e = g->e;
    KVal v = x->first->folds[f];
    const uint32_t warps = x->b->r.team.size / 32, n = warps < 4 ? warps : 4;
    LLVMValueRef from = emit_gep(e, e->f32, x->meeting, meeting(x, at, f)), all = NULL;
    for (uint32_t i = 0; i < warps; i += n) {
        LLVMValueRef p = emit_gep(e, e->f32, from, emit_i64(e, i));
        LLVMValueRef four = emit_load(e, emit_vec(e->f32, n), p, 4 * n);
        for (uint32_t k = 0; k < n; k++) {
            LLVMValueRef y = LLVMBuildExtractElement(e->b, four, emit_i(e, e->i32, k), "");
            KFold fold = (KFold)g->k->ops[v].fold;
            all = all ? rows_join(g->rows, v)(e, fold, DT_f32, all, y) : y;
        }
    }
    return all;
}

/* --- The rest --------------------------------------------------------------------------------- */

/* The row of a turn behind its first folds: number, and its folds, [op]; NULL: not known yet. */
typedef struct Rest {
    Behind *x;
    LLVMValueRef at;
    const LLVMValueRef *number;
    LLVMValueRef *fold;
    bool full;
} Rest;

/* The row is read anew for every pass: what was computed for the one before need not be kept. */
static LLVMValueRef rest_begin(const Rest *r, Held *h) {
    Band *b = r->x->b;
    const Gpu *g = b->r.team.g;
    *h = (Held){.r = &b->r};
    LLVMValueRef inside = begin_row(r->x, h, r->at, r->full, r->number);
    band_take(b, h, r->at);
    for (KVal v = 1; v < g->k->nops; v++)
        if (r->fold[v]) emit_override(g->e, v, r->fold[v]);
    return inside;
}

static void more_folds(const Rest *r, const Pass *p) {
    Emit *e = r->x->b->r.team.g->e;
    Held h;
    (void)rest_begin(r, &h);
    row_fold_held(&h, p);
    for (uint32_t f = 0; f < p->nfolds; f++) r->fold[p->folds[f]] = emit_value(e, p->folds[f]);
    emit_pop(e);
}

/* part: the first folds of turn `at`. */
static void finish_row(Behind *x, LLVMValueRef at, bool full, const LLVMValueRef *number,
                       const LLVMValueRef *part, LLVMValueRef *acc) {
    Band *b = x->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    Held h;
    Rest r = {x, at, number, ARENA_ARRAY(e->arena, LLVMValueRef, g->k->nops), full};
    if (b->r.team.size > 32) b->r.team.turn = LLVMBuildAnd(e->b, at, emit_i64(e, 1), "");
    for (uint32_t f = 0; x->first && f < x->first->nfolds; f++)
        r.fold[x->first->folds[f]] = meets(x) ? met(x, at, f) : part[f];
    for (uint32_t i = 0; i < g->rows->npasses; i++)
        if (g->rows->pass[i].nfolds && &g->rows->pass[i] != x->first)
            more_folds(&r, &g->rows->pass[i]);
    LLVMValueRef inside = rest_begin(&r, &h);
    for (uint32_t u = 0; u < b->r.pieces; u++) band_finish(b, NULL, &h, u, inside, acc);
    band_store_once(b, inside);
    emit_pop(e);
}

/* --- All rows of a block ---------------------------------------------------------------------- */

/* What goes from turn to turn: the sums; numbers of the row that is finished next, and a warp's
 * folds of it; numbers of the next batch. */
typedef struct Carried {
    uint32_t nsums, nnumbers, nparts;
    LLVMValueRef *v, *number, *part, *batch; /* v: all of them */
} Carried;

static Carried carried(const Behind *x, LLVMValueRef *v) {
    const Band *b = x->b;
    Carried c = {.v = v, .nsums = b->r.pieces * b->nsums, .nnumbers = b->nnumbers};
    c.nparts = x->first && !meets(x) ? x->first->nfolds : 0;
    c.number = v + c.nsums;
    c.part = c.number + c.nnumbers;
    c.batch = c.part + c.nparts;
    return c;
}

static void carry(LLVMValueRef *to, LLVMValueRef *const from, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) to[i] = from[i];
}

/* Turn `at`'s folds beside the rest of the one before; both are asked for already. */
static void run_turn(Behind *x, LLVMValueRef at, const LLVMValueRef *batch, const Carried *now,
                     Carried *then) {
    Emit *e = x->b->r.team.g->e;
    LLVMValueRef part[ROWS_MAX_FOLDS], ahead = emit_i64(e, (int64_t)x->b->stages - 2);
    band_request(x->b, LLVMBuildAdd(e->b, at, ahead, ""));
    pick_numbers(x->b, batch, at, then->number);
    fold_row(x, at, then->number, part);
    carry(then->v, now->v, now->nsums);
    LLVMValueRef before = LLVMBuildSub(e->b, at, emit_i64(e, 1), "");
    finish_row(x, before, true, now->number, now->part, then->v);
    meet(x, at, part);
    carry(then->part, part, now->nparts);
}

static void begin_turns(Behind *x, Carried *c) {
    Emit *e = x->b->r.team.g->e;
    LLVMValueRef zero = emit_i64(e, 0), part[ROWS_MAX_FOLDS];
    band_init(x->b);
    for (uint32_t i = 0; i + 1 < x->b->stages; i++) band_request(x->b, emit_i64(e, i));
    read_batch(x->b, zero, c->batch);
    pick_numbers(x->b, c->batch, zero, c->number);
    fold_row(x, zero, c->number, part);
    meet(x, zero, part);
    carry(c->part, part, c->nparts);
}

/* The turns of a batch but for turn 0. */
static void walk_batch(Behind *x, LLVMValueRef number, Carried *c) {
    Emit *e = x->b->r.team.g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef n = emit_i64(e, batch_turns(x->b)), one = emit_i64(e, 1), batch[BAND_OWN];
    LLVMValueRef lo[2] = {LLVMBuildMul(e->b, number, n, ""), one}, hi[2] = {NULL, x->b->turns};
    uint32_t carries = c->nsums + c->nnumbers + c->nparts;
    hi[0] = LLVMBuildAdd(e->b, lo[0], n, "");
    hi[0] = emit_intrinsic(e, "llvm.smin", e->i64, hi, 2);
    lo[0] = emit_intrinsic(e, "llvm.smax", e->i64, lo, 2);
    carry(batch, c->batch, c->nnumbers);
    read_batch(x->b, LLVMBuildAdd(e->b, number, one, ""), c->batch);
    *l = emit_loop(e, carries);
    carry(l->init, c->v, carries);
    emit_loop_begin(e, l, "turn", lo[0], hi[0], one, false);
    Carried now = carried(x, l->phi), then = carried(x, l->next);
    run_turn(x, l->i, batch, &now, &then);
    emit_loop_end(e, l);
    carry(c->v, l->out, carries);
}

static void walk(Behind *x, LLVMValueRef *acc) {
    Emit *e = x->b->r.team.g->e;
    LLVMValueRef one = emit_i64(e, 1), n = emit_i64(e, batch_turns(x->b));
    Carried c = carried(x, acc);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    uint32_t carries = c.nsums + 2 * c.nnumbers + c.nparts;
    begin_turns(x, &c);
    LLVMValueRef batches = emit_i64(e, batch_turns(x->b) - 1);
    batches = LLVMBuildUDiv(e->b, LLVMBuildAdd(e->b, x->b->turns, batches, ""), n, "");
    *l = emit_loop(e, carries);
    carry(l->init, acc, carries);
    emit_loop_begin(e, l, "batch", emit_i64(e, 0), batches, one, false);
    carry(l->next, l->phi, carries);
    Carried then = carried(x, l->next);
    walk_batch(x, l->i, &then);
    emit_loop_end(e, l);
    carry(acc, l->out, carries);
    finish_row(x, LLVMBuildSub(e->b, x->b->turns, one, ""), false, c.number, c.part, acc);
}

void band_walk_behind(Band *b, LLVMValueRef *acc) {
    Gpu *g = b->r.team.g;
    Behind x = {.b = b, .fixed = band_fixed(b)};
    for (uint32_t i = 0; i < g->rows->npasses && !x.first; i++)
        if (g->rows->pass[i].nfolds) x.first = &g->rows->pass[i];
    if (meets(&x)) {
        GC_ASSERT(b->teams == 1);
        x.meeting = gpu_shared(g, g->e->f32, 2 * b->threads / 32 * x.first->nfolds);
    }
    walk(&x, acc);
}
