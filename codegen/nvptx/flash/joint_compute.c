/* What a warpgroup computes for its 64 keys of a tile: scores with keys as rows, so that what
 * queries and the result's gradient are multiplied with lies as the matrix units take it, in
 * registers. A thread has, of its warp's 16 rows, rows lane / 4 and that + 8, and there columns 2
 * (lane % 4) and the next of every 8: as sums lie.
 *
 * Of a block: both scores are in flight together, the first one's weights are computed beside the
 * second; then values' sums, queries' and keys' are in flight, and queries' go to shared memory
 * while keys' run. Nothing is in flight from block to block: what multiplies would be overwritten.
 */
#include "codegen/nvptx/flash/joint.h"
#include <math.h>

enum { HALVES = 2, MAX_S = 64, MAX_P = MAX_S / 2, MAX_O = 64, STEP_REGS = 4, STEP_COLS = 16 };
enum { TILE_PANEL = JOINT_KEYS * HOP_ROW_BYTES };

#define LOG2E 1.4426950408889634

typedef struct Computer {
    Joint *x;
    Emit *e;
    HV member;                  /* of the warpgroups that compute, from 0 */
    HV one, lane0;              /* a thread of the warpgroup, of the warp */
    HV row, col;                /* of the thread: of keys; in a block */
    Expr rows[HALVES];          /* kept below the end */
    HV inside[HALVES];          /* a row is one of the keys; NULL: all are */
    HV own[HALVES];             /* the row's part of the condition; NULL: it has none */
    HV some;                    /* it does not hold for some row of the warp; NULL, too */
    HV document[HALVES], alike; /* of the rows; i1: the warp's have one alone */
    HV by_row[HALVES][BACK_LOADS];
    HV x_desc[BACK_PRODUCTS];     /* the warpgroup's rows of keys and values */
    HV keys;                      /* all keys, as what queries' weights are multiplied with */
    HV put, swizzle;              /* of the weights that this thread hands over */
    HV sums_put, sums_swizzle;    /* and of queries' sums in turn */
    HV sums_to;                   /* in any order, in memory: its first one of block 0 */
    WgmmaShape score, sum, query; /* products */
    uint32_t ns, np, no, nq;      /* registers of scores, packed weights, sums, queries' sums */
} Computer;

typedef struct Sums {
    HV v[JOINT_SUMS][MAX_O];
} Sums;

/* --- Memory ----------------------------------------------------------------------------------- */

static HV stage_at(Computer *c, HV j, uint32_t at, uint32_t bytes) {
    HV from = hop_muli(c->e, joint_stage(c->x, j), bytes);
    return hop_addi(c->e, hop_add(c->e, c->x->b.shared, from), at);
}

static HV stream_at(Computer *c, HV j, uint32_t stream) {
    return stage_at(c, j, c->x->b.at_stream[stream], c->x->b.stage_bytes);
}

static void await(Computer *c, JointBar bar, HV j) {
    hop_barrier_wait(c->e, joint_bar(c->x, bar, joint_stage(c->x, j)), joint_parity(c->x, j));
}

/* What was put in shared memory can be read by others, and what was read of it written. One lane
 * arrives for its warp, which compute-sanitizer's racecheck does not take for the others' order. */
static void hand_over(Computer *c, JointBar bar, HV j) {
    Emit *e = c->e;
    hop_fence_async(e);
    hop_warp_sync(e);
    hop_barrier_arrive(e, joint_bar(c->x, bar, joint_stage(c->x, j)), c->lane0);
}

/* Number k of the columns' values, at the thread's columns of every 8. Read where it is used: there
 * are no registers to hold them. */
static void read_columns(Computer *c, HV j, uint32_t k, HV *v) {
    Emit *e = c->e;
    LLVMTypeRef t[2] = {e->f32, e->f32}, two = LLVMStructTypeInContext(e->ctx, t, 2, false);
    HV at = stage_at(c, j, c->x->at_columns + k * c->x->t->block * JOINT_WORD, c->x->columns_bytes);
    at = hop_add(e, at, hop_shl(e, c->col, 2));
    for (uint32_t i = 0; i < c->ns / 4; i++) {
        HV from = hop_addi(e, at, i * 8 * JOINT_WORD);
        HV r = hop_asm(e, two, "ld.shared.v2.f32 {$0, $1}, [$2];", "=f,=f,r,~{memory}", &from, 1);
        for (uint32_t z = 0; z < 2; z++) v[2 * i + z] = LLVMBuildExtractValue(e->b, r, z, "");
    }
}

/* A block's queries, or the warp's keys, have several documents, or another one each. */
static HV documents_differ(Computer *c, HV j) {
    Emit *e = c->e;
    LLVMTypeRef t[2] = {e->i32, e->i32}, two = LLVMStructTypeInContext(e->ctx, t, 2, false);
    HV at = stage_at(c, j, c->x->at_columns + c->x->at_alike, c->x->columns_bytes);
    HV r = hop_asm(e, two, "ld.shared.v2.b32 {$0, $1}, [$2];", "=r,=r,r,~{memory}", &at, 1);
    HV first = LLVMBuildExtractValue(e->b, r, 0, ""), one = LLVMBuildExtractValue(e->b, r, 1, "");
    HV same = LLVMBuildICmp(e->b, LLVMIntEQ, first, c->document[0], "");
    same = LLVMBuildAnd(e->b, same, hop_is(e, one, 1), "");
    return LLVMBuildNot(e->b, LLVMBuildAnd(e->b, same, c->alike, ""), "");
}

/* --- Where the body is ------------------------------------------------------------------------ */

static uint32_t sym_of(const Computer *c, uint32_t axis) {
    return gpu_axis(c->x->b.g, axis)->sym;
}

static HV block_start(Computer *c, HV j) {
    return hop_muli(c->e, joint_block(c->x, j), c->x->t->block);
}

/* Number of the thread's columns that register i is of. */
static uint32_t column_of(uint32_t i) {
    return i / 4 * 2 + (i & 1);
}

static void place_columns(Computer *c, HV start, Expr *col) {
    Emit *e = c->e;
    const BackPlan *b = &c->x->p->b;
    HV first = hop_add(e, start, c->col);
    bool whole = expr_divisor(e->exprs, b->columns) % c->x->t->block == 0;
    Expr at = whole ? flash_position(e, "j", b->columns, first, false) : 0;
    for (uint32_t i = 0; i < c->ns; i++) {
        if (back_half(i)) continue;
        col[column_of(i)] =
            at ? expr_addi(e->exprs, at, back_col(i))
               : flash_position(e, "j", b->columns, hop_addi(e, first, back_col(i)), true);
    }
}

/* A value of the body at register i, where the scores are s and the first one's weight is p (NULL:
 * not known yet). */
typedef struct Point {
    HV s[BACK_PRODUCTS], p;
    HV column[JOINT_COLUMNS]; /* NULL: not that one */
} Point;

static HV body_at(Computer *c, KVal v, const Expr *col, uint32_t i, const Point *at) {
    Emit *e = c->e;
    const JointPlan *p = c->x->p;
    const KAttnGrad *a = c->x->b.a;
    uint32_t half = back_half(i);
    emit_push(e);
    emit_bind(e, sym_of(c, a->i), c->rows[half]);
    emit_bind(e, sym_of(c, a->j), col[column_of(i)]);
    for (uint32_t k = 0; k < p->b.by_row.n; k++)
        emit_override(e, p->b.by_row.v[k], c->by_row[half][k]);
    for (uint32_t k = 0; k < p->ncolumns; k++)
        if (at->column[k]) emit_override(e, p->column[k], at->column[k]);
    for (uint32_t k = 0; k < BACK_PRODUCTS; k++)
        if (at->s[k]) emit_override(e, a->s[k], back_scaled(e, at->s[k], p->b.factor[k]));
    if (at->p) emit_override(e, p->pv, at->p);
    /* Where the weight is 0 the condition says nothing new. */
    if (at->p && p->cond) emit_override(e, p->cond, LLVMConstInt(e->i1, p->cond_shows, false));
    if (at->p && p->same) emit_override(e, p->same, LLVMConstInt(e->i1, 1, false));
    HV r = emit_value(e, v);
    emit_pop(e);
    return r;
}

/* --- Weights ---------------------------------------------------------------------------------- */

static HV exponential(Computer *c, HV s, HV row) {
    Emit *e = c->e;
    HV x = emit_fma(e, s, emit_f(e, e->f32, c->x->p->scale * LOG2E), row);
    return emit_intrinsic(e, "llvm.nvvm.ex2.approx.ftz", e->f32, &x, 1);
}

static HV is_inside(Computer *c, HV j, uint32_t i) {
    Emit *e = c->e;
    HV room = LLVMBuildSub(e->b, c->x->b.ncolumns, hop_add(e, block_start(c, j), c->col), "");
    return LLVMBuildICmp(e->b, LLVMIntSGT, room, hop_i(e, back_col(i)), "");
}

static HV both(Emit *e, HV a, HV b) {
    return a && b ? LLVMBuildAnd(e->b, a, b, "") : a ? a : b;
}

/* 0 for what is not seen, in all blocks: s of registers i. */
static void hide(Computer *c, HV j, HV *p) {
    Emit *e = c->e;
    const JointPlan *plan = c->x->p;
    Expr col[MAX_S / 2];
    Point none = {.p = NULL};
    HV zero = emit_f(e, e->f32, 0);
    place_columns(c, block_start(c, j), col);
    for (uint32_t i = 0; i < c->ns; i++) {
        HV shown = both(e, c->inside[back_half(i)], c->own[back_half(i)]);
        if (plan->point) {
            HV v = body_at(c, plan->point, col, i, &none);
            if (!plan->point_shows) v = LLVMBuildNot(e->b, v, "");
            shown = both(e, shown, v);
        }
        if (plan->same) {
            HV other = body_at(c, plan->same_query, col, i, &none);
            HV own = c->document[back_half(i)];
            shown = both(e, shown, LLVMBuildICmp(e->b, LLVMIntEQ, other, own, ""));
        }
        if (shown) p[i] = LLVMBuildSelect(e->b, shown, p[i], zero, "");
    }
}

/* Some of the block's weights may be hidden: by the mask's edge, of keys that do not count, or in
 * the last tile. */
static HV hides(Computer *c, HV j) {
    Emit *e = c->e;
    Joint *x = c->x;
    HV cut = LLVMConstInt(e->i1, x->p->point && !x->p->edges, false);
    if (x->p->edges && x->b.behind) {
        HV last = hop_addi(e, x->at.row, JOINT_KEYS - 1);
        last = LLVMBuildSub(e->b, last, x->b.behind, "");
        cut = LLVMBuildICmp(e->b, LLVMIntSLT, block_start(c, j), last, "");
    } else if (x->p->edges) {
        cut = LLVMConstInt(e->i1, 1, false);
    }
    if (c->some) cut = LLVMBuildOr(e->b, cut, c->some, "");
    if (x->p->same) cut = LLVMBuildOr(e->b, cut, documents_differ(c, j), "");
    if (!c->inside[0]) return cut;
    HV end = hop_addi(e, x->at.row, JOINT_KEYS);
    return LLVMBuildOr(e->b, cut, LLVMBuildICmp(e->b, LLVMIntUGT, end, x->b.nrows, ""), "");
}

/* p becomes what f makes of it where `when` holds for the block. */
static void in_some(Computer *c, HV when, HV j, HV *p) {
    Emit *e = c->e;
    HV before[MAX_S];
    if (LLVMIsAConstantInt(when) && !LLVMConstIntGetZExtValue(when)) return;
    for (uint32_t i = 0; i < c->ns; i++) before[i] = p[i];
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    HopIf some = hop_if(e, when);
    emit_push_region(e, from);
    hide(c, j, p);
    emit_pop(e);
    LLVMBasicBlockRef to = LLVMGetInsertBlock(e->b);
    hop_end(e, some);
    for (uint32_t i = 0; i < c->ns; i++) {
        HV phi = LLVMBuildPhi(e->b, e->f32, "");
        HV v[2] = {before[i], p[i]};
        LLVMBasicBlockRef b[2] = {from, to};
        LLVMAddIncoming(phi, v, b, 2);
        p[i] = phi;
    }
}

/* Of the first scores s, which become their weights. */
static void weights(Computer *c, HV j, HV *s) {
    Emit *e = c->e;
    const JointPlan *plan = c->x->p;
    HV column[JOINT_COLUMNS][MAX_S / 2];
    Expr col[MAX_S / 2];
    if (plan->scale != 0) {
        read_columns(c, j, 0, column[0]);
        for (uint32_t i = 0; i < c->ns; i++) s[i] = exponential(c, s[i], column[0][column_of(i)]);
        in_some(c, hides(c, j), j, s);
        return;
    }
    for (uint32_t k = 0; k < plan->ncolumns; k++) read_columns(c, j, k, column[k]);
    place_columns(c, block_start(c, j), col);
    for (uint32_t i = 0; i < c->ns; i++) {
        Point at = {.s = {s[i]}};
        for (uint32_t k = 0; k < plan->ncolumns; k++) at.column[k] = column[k][column_of(i)];
        HV v = body_at(c, plan->pv, col, i, &at), shown = is_inside(c, j, i);
        if (c->inside[0]) shown = LLVMBuildAnd(e->b, shown, c->inside[back_half(i)], "");
        s[i] = LLVMBuildSelect(e->b, shown, v, emit_f(e, e->f32, 0), "");
    }
}

/* Of the second scores s, which become the weights of keys and queries; p: the first ones. */
static void more_weights(Computer *c, HV j, HV *s, const HV *p) {
    const JointPlan *plan = c->x->p;
    HV column[JOINT_COLUMNS][MAX_S / 2];
    Expr col[MAX_S / 2];
    uint32_t first = plan->scale != 0; /* that one is in p */
    for (uint32_t k = first; k < plan->ncolumns; k++) read_columns(c, j, k, column[k]);
    place_columns(c, block_start(c, j), col);
    for (uint32_t i = 0; i < c->ns; i++) {
        Point at = {.s = {NULL, s[i]}, .p = p[i]};
        for (uint32_t k = first; k < plan->ncolumns; k++) at.column[k] = column[k][column_of(i)];
        s[i] = body_at(c, plan->b.p, col, i, &at);
    }
}

/* As the A operand: a step of 16 columns takes four registers. */
static void pack_all(Computer *c, const HV *s, HV *p) {
    for (uint32_t i = 0; i < c->np; i++)
        p[i] = back_pack(c->e, c->x->p->b.type, s[2 * i], s[2 * i + 1]);
}

/* --- Products --------------------------------------------------------------------------------- */

static void start_score(Computer *c, HV j, uint32_t which, HV *s) {
    Emit *e = c->e;
    HV y = wgmma_descriptor(e, &c->score.b, stream_at(c, j, which));
    for (uint32_t i = 0; i < c->ns; i++) s[i] = LLVMGetUndef(e->f32);
    wgmma_block(e, &c->score, s, &c->x_desc[which], &y, LLVMConstInt(e->i1, 0, false));
}

static void start_sum(Computer *c, HV j, uint32_t stream, HV *o, HV *p) {
    Emit *e = c->e;
    HV b = wgmma_descriptor(e, &c->sum.b, stream_at(c, j, stream));
    HV more = LLVMBuildICmp(e->b, LLVMIntNE, j, hop_i(e, 0), "");
    wgmma_block_held(e, &c->sum, o, p, b, more);
}

/* A block of 64 queries is shared by columns, one of 128 by rows. */
static void start_queries(Computer *c, HV j, HV *q) {
    Emit *e = c->e;
    HV from = stage_at(c, j, c->x->at_weights, c->x->weights_bytes);
    if (c->x->t->block == 2 * HOP_SLAB_ROWS)
        from = hop_add(e, from, hop_muli(e, c->member, TILE_PANEL));
    HV a = wgmma_descriptor(e, &c->query.a, from);
    for (uint32_t i = 0; i < c->nq; i++) q[i] = LLVMGetUndef(e->f32);
    wgmma_block(e, &c->query, q, &a, &c->keys, LLVMConstInt(e->i1, 0, false));
}

/* --- Handing over ----------------------------------------------------------------------------- */

/* Rows of keys, queries along them in panels of 64. */
static void put_weights(Computer *c, HV j, const HV *p) {
    Emit *e = c->e;
    HV base = stage_at(c, j, c->x->at_weights, c->x->weights_bytes);
    base = hop_add(e, base, c->put);
    for (uint32_t k = 0; k < c->x->t->block / STEP_COLS; k++)
        joint_put(c->x, hop_addi(e, base, k / 4 * TILE_PANEL), c->swizzle, k, p + k * STEP_REGS);
    hand_over(c, JOINT_weights, j);
}

/* In boxes of 64 rows of 32 numbers, the warpgroup's two behind each other. */
static void put_sums(Computer *c, HV j, const HV *q) {
    Emit *e = c->e;
    HV base = hop_add(e, stage_at(c, j, c->x->at_sums, c->x->sums_bytes), c->sums_put);
    hop_barrier_wait(e, joint_bar(c->x, JOINT_sums_empty, joint_stage(c->x, j)),
                     LLVMBuildXor(e->b, joint_parity(c->x, j), hop_i(e, 1), ""));
    HV v[4 * JOINT_FOURS];
    GC_ASSERT(c->nq == 4 * JOINT_FOURS);
    for (uint32_t i = 0; i < c->nq; i++) v[i] = back_scaled(e, q[i], c->x->p->after[JOINT_queries]);
    joint_put_boxes(c->x, base, c->sums_swizzle, v);
    hand_over(c, JOINT_sums_full, j);
}

/* --- Blocks ----------------------------------------------------------------------------------- */

/* Tied together: one wait for both. */
static void await_sums(Computer *c, Sums *v) {
    HV all[JOINT_SUMS * MAX_O];
    for (uint32_t i = 0; i < JOINT_SUMS * c->no; i++) all[i] = v->v[i / c->no][i % c->no];
    wgmma_wait_all(c->e, all, JOINT_SUMS * c->no);
    for (uint32_t i = 0; i < JOINT_SUMS * c->no; i++) v->v[i / c->no][i % c->no] = all[i];
}

static void block(Computer *c, HV j, Sums *v) {
    Emit *e = c->e;
    HV s[MAX_S], ds[MAX_S], p[MAX_P], dp[MAX_P], q[MAX_O];
    await(c, JOINT_full, j);
    start_score(c, j, 0, s);
    start_score(c, j, 1, ds);
    wgmma_wait_acc(e, 1, s, c->ns);
    weights(c, j, s);
    wgmma_pin(e, s, c->ns); /* beside the second product, not behind it */
    await(c, JOINT_full, j);
    wgmma_wait_acc(e, 0, ds, c->ns);
    more_weights(c, j, ds, s);
    pack_all(c, s, p);
    pack_all(c, ds, dp);
    put_weights(c, j, dp);
    start_sum(c, j, 1, v->v[JOINT_values], p);
    await(c, JOINT_weights, j);
    start_queries(c, j, q);
    start_sum(c, j, 0, v->v[JOINT_keys], dp);
    wgmma_wait_acc(e, 1, q, c->nq);
    if (c->x->p->any)
        joint_any_add(c->x, c->sums_to, joint_block(c->x, j), q);
    else
        put_sums(c, j, q);
    await_sums(c, v);
    hop_barrier_arrive(e, joint_bar(c->x, JOINT_empty, joint_stage(c->x, j)), c->one);
}

static void all_blocks(Computer *c, Sums *v) {
    Emit *e = c->e;
    uint32_t n = JOINT_SUMS * c->no;
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 0));
    for (uint32_t i = 0; i < n; i++) hop_loop_init(l, LLVMGetUndef(e->f32));
    hop_loop_begin(e, l, "block");
    hop_loop_test(e, l, LLVMBuildICmp(e->b, LLVMIntULT, l->phi[0], c->x->at.blocks, ""));
    for (uint32_t i = 0; i < n; i++) v->v[i / c->no][i % c->no] = l->phi[1 + i];
    emit_push_region(e, l->pre);
    block(c, l->phi[0], v);
    emit_pop(e);
    l->next[0] = hop_addi(e, l->phi[0], 1);
    for (uint32_t i = 0; i < n; i++) l->next[1 + i] = v->v[i / c->no][i % c->no];
    hop_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) v->v[i / c->no][i % c->no] = l->phi[1 + i];
}

/* --- Results ---------------------------------------------------------------------------------- */

/* In place of the warpgroup's own rows of keys or values. */
static void put_rows(Computer *c, uint32_t which, const HV *o) {
    Emit *e = c->e;
    HV p[MAX_P], base = hop_addi(e, hop_add(e, c->x->b.shared, c->put), c->x->b.at_x[which]);
    for (uint32_t i = 0; i < c->no / 2; i++)
        p[i] = back_pack(e, c->x->p->b.type, o[2 * i], o[2 * i + 1]);
    for (uint32_t k = 0; k < c->x->t->d / STEP_COLS; k++)
        joint_put(c->x, hop_addi(e, base, k / 4 * TILE_PANEL), c->swizzle, k, p + k * STEP_REGS);
}

static void send(Computer *c, uint32_t which) {
    Emit *e = c->e;
    Joint *x = c->x;
    const HopMatrix *m = &x->p->out[which];
    HV at[2 + HOP_MAX_BATCH], own = hop_muli(e, c->member, HOP_SLAB);
    HV from = hop_addi(e, hop_add(e, x->b.shared, own), x->b.at_x[which]);
    hop_batch_at(x->b.g, x->b.extent, m, x->at.head, at + 2);
    at[1] = hop_add(e, x->at.row, hop_muli(e, c->member, FLASH_GROUP_ROWS));
    for (uint32_t i = 0; i < x->t->d / FLASH_PANEL; i++) {
        at[0] = hop_i(e, i * FLASH_PANEL);
        hop_tma_store(e, x->map_out[which], hop_addi(e, from, i * TILE_PANEL), at, 2 + m->nbatch);
    }
}

static void store_rows(Computer *c, uint32_t which, const HV *o) {
    Emit *e = c->e;
    BackResult r = c->x->p->result[which];
    r.registers = c->no;
    for (uint32_t h = 0; h < HALVES; h++) {
        EmitIf is;
        HV row = hop_addi(e, c->row, 8 * h);
        emit_if_begin(e, &is, LLVMBuildICmp(e->b, LLVMIntULT, row, c->x->b.nrows, ""));
        emit_bind(e, sym_of(c, c->x->b.a->i), c->rows[h]);
        back_store(c->x->b.g, &r, c->col, o, h);
        emit_if_end(e, &is);
    }
}

static void finish(Computer *c, Sums *v) {
    Emit *e = c->e;
    const JointPlan *p = c->x->p;
    bool sends = false;
    for (uint32_t i = 0; i < JOINT_SUMS; i++) {
        sends = sends || p->sent[i];
        for (uint32_t k = 0; k < c->no; k++) v->v[i][k] = back_scaled(e, v->v[i][k], p->after[i]);
    }
    if (sends) hop_sync(e, hop_i(e, JOINT_NAMED_ALL), JOINT_GROUPS * HOP_WARPGROUP);
    for (uint32_t i = JOINT_SUMS; i-- > 0;)
        p->sent[i] ? put_rows(c, i, v->v[i]) : store_rows(c, i, v->v[i]);
    if (!sends) return;
    hop_fence_async(e);
    hop_sync(e, hop_addi(e, c->member, JOINT_NAMED_GROUP), HOP_WARPGROUP);
    HopIf lead = hop_if(e, hop_is(e, hop_andi(e, c->x->b.warp, 3), 0));
    HopIf one = hop_if(e, hop_elect(e));
    for (uint32_t i = 0; i < JOINT_SUMS; i++)
        if (p->sent[i]) send(c, i);
    hop_tma_commit(e);
    hop_tma_wait(e);
    hop_end(e, one);
    hop_end(e, lead);
}

/* --- The tile --------------------------------------------------------------------------------- */

static HV is_some_off(Computer *c) {
    HV on = LLVMBuildAnd(c->e->b, c->own[0], c->own[1], "");
    return hop_is(c->e, hop_warp_all(c->e, on), 0);
}

/* Rows past the end have the last one's document, and are hidden as such. */
static void find_documents(Computer *c) {
    Emit *e = c->e;
    HV first = hop_warp_first(e, c->document[0]);
    HV is = LLVMBuildICmp(e->b, LLVMIntEQ, c->document[0], first, "");
    is = LLVMBuildAnd(e->b, is, LLVMBuildICmp(e->b, LLVMIntEQ, c->document[1], first, ""), "");
    c->alike = hop_is(e, hop_warp_all(e, is), 1);
}

static void bind_tile(Computer *c) {
    Emit *e = c->e;
    Joint *x = c->x;
    const BackPlan *b = &x->p->b;
    HV own = hop_add(e, hop_shl(e, hop_andi(e, x->b.warp, 3), 4), hop_shr(e, x->b.lane, 2));
    c->row = hop_add(e, hop_add(e, x->at.row, own), hop_muli(e, c->member, FLASH_GROUP_ROWS));
    bool whole = expr_divisor(e->exprs, b->rows) % JOINT_KEYS == 0;
    if (x->b.a->batch)
        gpu_decode(e, x->b.g->k, x->b.a->batch,
                   flash_position(e, "head", b->heads, x->at.head, false));
    for (uint32_t h = 0; h < HALVES; h++) {
        HV row = hop_addi(e, c->row, 8 * h);
        c->rows[h] = flash_position(e, "i", b->rows, row, true);
        c->inside[h] = whole ? NULL : LLVMBuildICmp(e->b, LLVMIntULT, row, x->b.nrows, "");
        emit_push(e);
        emit_bind(e, sym_of(c, x->b.a->i), c->rows[h]);
        for (uint32_t k = 0; k < b->by_row.n; k++) c->by_row[h][k] = emit_value(e, b->by_row.v[k]);
        if (x->p->own) c->own[h] = emit_value(e, x->p->own);
        if (x->p->same) c->document[h] = emit_value(e, x->p->same_key);
        emit_pop(e);
    }
    if (x->p->own) c->some = is_some_off(c);
    if (x->p->same) find_documents(c);
}

static void set_shapes(Computer *c) {
    const JointTile *t = c->x->t;
    WgmmaType type = c->x->p->b.type;
    uint32_t panel = t->block * HOP_ROW_BYTES;
    c->score = (WgmmaShape){.type = type,
                            .n = t->block,
                            .ksteps = t->d / 16,
                            .blocks = 1,
                            .sums = 1,
                            .a = {false, TILE_PANEL},
                            .b = {false, panel}};
    c->sum = (WgmmaShape){.type = type,
                          .n = t->d,
                          .ksteps = t->block / 16,
                          .blocks = 1,
                          .sums = 1,
                          .b = {true, panel}};
    c->query = (WgmmaShape){.type = type,
                            .n = FLASH_PANEL,
                            .ksteps = JOINT_KEYS / 16,
                            .blocks = 1,
                            .sums = 1,
                            .a = {true, TILE_PANEL},
                            .b = {true, TILE_PANEL}};
    c->ns = t->block / 2;
    c->np = c->ns / 2;
    c->no = t->d / 2;
    c->nq = FLASH_PANEL / 2;
    GC_ASSERT(c->ns <= MAX_S && c->no <= MAX_O);
}

static void set_up(Computer *c) {
    Emit *e = c->e;
    Joint *x = c->x;
    set_shapes(c);
    c->member = hop_addi(e, x->b.group, -1);
    c->one = hop_is(e, hop_andi(e, x->b.tid, HOP_WARPGROUP - 1), 0);
    c->lane0 = hop_is(e, x->b.lane, 0);
    c->col = hop_shl(e, hop_andi(e, x->b.lane, 3), 1);
    HV mine = hop_muli(e, c->member, FLASH_GROUP_ROWS * HOP_ROW_BYTES);
    for (uint32_t i = 0; i < BACK_PRODUCTS; i++) {
        HV at = hop_addi(e, hop_add(e, x->b.shared, mine), x->b.at_x[i]);
        c->x_desc[i] = wgmma_descriptor(e, &c->score.a, at);
    }
    HV keys = hop_addi(e, x->b.shared, x->b.at_x[0]);
    if (x->t->block == HOP_SLAB_ROWS) keys = hop_add(e, keys, hop_muli(e, c->member, TILE_PANEL));
    c->keys = wgmma_descriptor(e, &c->query.b, keys);
}

HV joint_put_place(Joint *x, HV *swizzle) {
    Emit *e = x->b.e;
    HV warp = hop_shl(e, hop_andi(e, x->b.warp, 3), 4), eight = hop_andi(e, x->b.lane, 7);
    HV half = hop_andi(e, hop_shr(e, x->b.lane, 3), 1);
    HV row = hop_add(e, hop_add(e, warp, hop_shl(e, half, 3)), eight);
    *swizzle = hop_shl(e, LLVMBuildXor(e->b, hop_shr(e, x->b.lane, 4), eight, ""), 4);
    return hop_muli(e, row, HOP_ROW_BYTES);
}

void joint_put(Joint *x, HV base, HV swizzle, uint32_t k, const HV *p) {
    Emit *e = x->b.e;
    HV at = LLVMBuildXor(e->b, swizzle, hop_i(e, k % 4 << 5), "");
    hop_stmatrix(e, hop_add(e, base, at), p);
}

HV joint_box_place(Joint *x, HV *swizzle) {
    Emit *e = x->b.e;
    HV warp = hop_shl(e, hop_andi(e, x->b.warp, 3), 4);
    HV quad = hop_andi(e, x->b.lane, 3), of = hop_shr(e, x->b.lane, 2);
    HV within = hop_shl(e, hop_andi(e, quad, 1), 3);
    *swizzle = hop_shl(e, LLVMBuildXor(e->b, hop_shr(e, quad, 1), of, ""), 4);
    return hop_add(e, hop_muli(e, hop_add(e, warp, of), HOP_ROW_BYTES), within);
}

void joint_put_boxes(Joint *x, HV base, HV swizzle, const HV *q) {
    Emit *e = x->b.e;
    for (uint32_t i = 0; i < 4 * JOINT_FOURS; i += 2) {
        uint32_t eight = i / 4;
        HV at = LLVMBuildXor(e->b, swizzle, hop_i(e, eight % 4 << 5), "");
        at = hop_addi(e, hop_add(e, base, at),
                      eight / 4 * JOINT_BOX + back_half(i) * 8 * HOP_ROW_BYTES);
        HV v[3] = {at, q[i], q[i + 1]};
        hop_asm(e, e->voidt, "st.shared.v2.f32 [$0], {$1, $2};", "r,f,f,~{memory}", v, 3);
    }
}

static void find_sums(Computer *c) {
    Emit *e = c->e;
    Joint *x = c->x;
    c->sums_put =
        hop_add(e, joint_box_place(x, &c->sums_swizzle), hop_muli(e, c->member, 2 * JOINT_BOX));
    if (!x->p->any) return;
    HV own = hop_shl(e, hop_andi(e, x->b.tid, HOP_WARPGROUP - 1), 4);
    c->sums_to = LLVMBuildAdd(e->b, joint_part(x, hop_i(e, 0), c->member),
                              LLVMBuildZExt(e->b, own, e->i64, ""), "");
}

static void find_places(Computer *c) {
    Emit *e = c->e;
    HV mine = hop_muli(e, c->member, FLASH_GROUP_ROWS * HOP_ROW_BYTES);
    c->put = hop_add(e, joint_put_place(c->x, &c->swizzle), mine);
    find_sums(c);
}

void joint_compute(Joint *x) {
    Emit *e = x->b.e;
    Computer c = {.x = x, .e = e};
    Sums *v = ARENA_NEW(e->arena, Sums);
    hop_registers(e, x->t->regs_math, true);
    set_up(&c);
    find_places(&c);
    /* What the body keeps for all blocks is computed here, where only this role comes by. */
    EmitScope *outer = e->scope;
    e->scope = NULL;
    emit_push(e);
    bind_tile(&c);
    hop_barrier_wait(e, joint_bar(x, JOINT_x_full, NULL), hop_i(e, 0));
    if (x->p->any) joint_any_begin(x, c.lane0);
    all_blocks(&c, v);
    if (x->p->any) joint_any_end(x, c.member, c.one);
    finish(&c, v);
    emit_pop(e);
    e->scope = outer;
}
