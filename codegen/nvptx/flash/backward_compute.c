/* What a warpgroup computes for its 64 rows i of a tile. A thread has, of its warp's 16 rows, rows
 * lane / 4 and that + 8, and there columns 2 (lane % 4) and the next of every 8: as sums lie.
 *
 * The scores of the next block and the sums of this one are in flight together; the next block's
 * weights p are computed while those sums go on. */
#include "codegen/nvptx/flash/backward.h"
#include <math.h>
#include <string.h>

enum { HALVES = 2, MAX_S = BACK_BLOCK / 2, MAX_P = MAX_S / 2, MAX_O = 64, COLUMNS = MAX_S / 2 };

typedef struct Computer {
    Back *x;
    Emit *e;
    BackPlace at;
    HV member;         /* of the warpgroups that compute, from 0 */
    HV one;            /* a thread of the warpgroup */
    HV number;         /* of the tile's first block among all */
    HV row, col;       /* of the thread: of i; in a block */
    Expr rows[HALVES]; /* kept below the end */
    HV by_row[HALVES][BACK_LOADS];
    HV queries[BACK_PRODUCTS]; /* descriptors of the warpgroup's rows */
    WgmmaShape score[BACK_PRODUCTS], sum;
    uint32_t no; /* registers of results */
} Computer;

/* What goes from block to block: results and the weights that are yet to be multiplied. */
typedef struct Carried {
    HV o[MAX_O], p[MAX_P];
} Carried;

/* --- Numbers ---------------------------------------------------------------------------------- */

static HV below(Emit *e, HV a, HV b) {
    return LLVMBuildICmp(e->b, LLVMIntULT, a, b, "");
}

HV back_pack(Emit *e, WgmmaType type, HV a, HV b) {
    bool bf16 = type == WGMMA_bf16;
    LLVMTypeRef half = bf16 ? LLVMBFloatTypeInContext(e->ctx) : LLVMHalfTypeInContext(e->ctx);
    HV v = LLVMGetPoison(emit_vec(e->f32, 2));
    v = LLVMBuildInsertElement(e->b, v, a, emit_i64(e, 0), "");
    v = LLVMBuildInsertElement(e->b, v, b, emit_i64(e, 1), "");
    v = LLVMBuildFPTrunc(e->b, v, LLVMVectorType(half, 2), "");
    return LLVMBuildBitCast(e->b, v, e->i32, "");
}

uint32_t back_half(uint32_t i) {
    return i >> 1 & 1;
}
uint32_t back_col(uint32_t i) {
    return i / 4 * 8 + (i & 1);
}

HV back_scaled(Emit *e, HV v, double by) {
    return by == 1 ? v : LLVMBuildFMul(e->b, v, emit_f(e, e->f32, by), "");
}

/* --- Where the body is ------------------------------------------------------------------------ */

static uint32_t sym_of(const Computer *c, uint32_t axis) {
    return gpu_axis(c->x->g, axis)->sym;
}

static bool ragged(const Computer *c) {
    return expr_divisor(c->e->exprs, c->x->p->columns) % BACK_BLOCK != 0;
}

static HV block_start(Computer *c, HV j) {
    return hop_muli(c->e, hop_add(c->e, c->at.first, j), BACK_BLOCK);
}

/* The thread's columns of a block: even numbers of registers of one half, and the next. */
static void place_columns(Computer *c, HV start, Expr *col) {
    Emit *e = c->e;
    HV first = hop_add(e, start, c->col);
    Expr at = ragged(c) ? 0 : flash_position(e, "j", c->x->p->columns, first, false);
    for (uint32_t i = 0, n = 0; i < MAX_S; i++) {
        if (back_half(i)) continue;
        col[n++] =
            at ? expr_addi(e->exprs, at, back_col(i))
               : flash_position(e, "j", c->x->p->columns, hop_addi(e, first, back_col(i)), true);
    }
}

/* --- Weights ---------------------------------------------------------------------------------- */

/* The numbers that each column of the block has, ahead of the wait for its scores. */
static void load_columns(Computer *c, const Expr *col, HV (*by)[BACK_LOADS]) {
    Emit *e = c->e;
    const BackLoads *l = &c->x->p->by_column;
    for (uint32_t n = 0; n < COLUMNS && l->n; n++) {
        emit_push(e);
        emit_bind(e, sym_of(c, c->x->a->j), col[n]);
        for (uint32_t k = 0; k < l->n; k++) by[n][k] = emit_value(e, l->v[k]);
        emit_pop(e);
    }
}

/* masked: some of the block's columns may be hidden from some rows. */
static HV weight(Computer *c, const HV *s, uint32_t i, uint32_t half, bool masked) {
    Emit *e = c->e;
    Back *x = c->x;
    const BackLoads *l = &x->p->by_row;
    emit_push(e);
    emit_bind(e, sym_of(c, x->a->i), c->rows[half]);
    for (uint32_t k = 0; k < l->n; k++) emit_override(e, l->v[k], c->by_row[half][k]);
    if (x->p->seen && !masked)
        emit_override(e, x->p->seen, LLVMConstInt(e->i1, x->p->shows, false));
    for (uint32_t p = 0; p < x->p->products; p++)
        emit_override(e, x->a->s[p], back_scaled(e, s[p * MAX_S + i], x->p->factor[p]));
    HV v = emit_value(e, x->p->p);
    emit_pop(e);
    return v;
}

/* s: the scores of all products, one behind the other; the weights take the place of the first. */
static void weights(Computer *c, HV *s, HV start, const Expr *col, HV (*by)[BACK_LOADS],
                    bool masked) {
    Emit *e = c->e;
    const BackLoads *l = &c->x->p->by_column;
    HV room = LLVMBuildSub(e->b, c->x->ncolumns, hop_add(e, start, c->col), "");
    for (uint32_t i = 0, n = 0; i < MAX_S; i++) {
        if (back_half(i)) continue;
        emit_push(e);
        emit_bind(e, sym_of(c, c->x->a->j), col[n]);
        for (uint32_t k = 0; k < l->n; k++) emit_override(e, l->v[k], by[n][k]);
        HV inside = LLVMBuildICmp(e->b, LLVMIntSGT, room, hop_i(e, back_col(i)), "");
        for (uint32_t h = 0; h < HALVES; h++) {
            HV v = weight(c, s, i + 2 * h, h, masked);
            if (ragged(c)) v = LLVMBuildSelect(e->b, inside, v, emit_f(e, e->f32, 0), "");
            s[i + 2 * h] = v;
        }
        emit_pop(e);
        n++;
    }
}

/* As the A operand: a step of 16 columns takes four registers. */
static void pack_all(Computer *c, const HV *s, HV *p) {
    for (uint32_t i = 0; i < MAX_P; i++)
        p[i] = back_pack(c->e, c->x->p->type, s[2 * i], s[2 * i + 1]);
}

/* --- Products --------------------------------------------------------------------------------- */

static HV stage_of(Computer *c, HV j) {
    return back_stage(c->x, hop_add(c->e, c->number, j));
}

static HV stream_at(Computer *c, HV j, uint32_t stream) {
    Back *x = c->x;
    HV at = hop_add(c->e, x->shared, hop_muli(c->e, stage_of(c, j), x->stage_bytes));
    return hop_addi(c->e, at, x->at_stream[stream]);
}

static void await(Computer *c, HV j) {
    HV n = hop_add(c->e, c->number, j);
    hop_barrier_wait(c->e, back_bar(c->x, BACK_full, back_stage(c->x, n)), back_parity(c->x, n));
}

static void release(Computer *c, HV j) {
    hop_barrier_arrive(c->e, back_bar(c->x, BACK_empty, stage_of(c, j)), c->one);
}

static void start_scores(Computer *c, HV j, HV *s) {
    Emit *e = c->e;
    HV never = LLVMConstInt(e->i1, 0, false);
    for (uint32_t i = 0; i < c->x->p->products; i++) {
        HV y = wgmma_descriptor(e, &c->score[i].b, stream_at(c, j, c->x->p->y[i]));
        for (uint32_t k = 0; k < MAX_S; k++) s[i * MAX_S + k] = LLVMGetUndef(e->f32);
        wgmma_block(e, &c->score[i], s + i * MAX_S, &c->queries[i], &y, never);
    }
}

static void start_sums(Computer *c, HV j, Carried *v) {
    Emit *e = c->e;
    HV b = wgmma_descriptor(e, &c->sum.b, stream_at(c, j, c->x->p->b));
    HV more = LLVMBuildICmp(e->b, LLVMIntNE, j, hop_i(e, 0), "");
    wgmma_block_held(e, &c->sum, v->o, v->p, b, more);
}

/* --- Blocks ----------------------------------------------------------------------------------- */

/* Weights of block j; with `before`, beside the sums of the one before it. */
static void block(Computer *c, HV j, Carried *v, bool before, bool masked) {
    Emit *e = c->e;
    HV s[BACK_PRODUCTS * MAX_S], by[COLUMNS][BACK_LOADS], start = block_start(c, j);
    HV last = hop_addi(e, j, -1);
    Expr col[COLUMNS];
    await(c, j);
    start_scores(c, j, s);
    if (before) start_sums(c, last, v);
    place_columns(c, start, col);
    load_columns(c, col, by);
    wgmma_wait_acc(e, before, s, c->x->p->products * MAX_S);
    weights(c, s, start, col, by, masked);
    if (before) {
        wgmma_wait_all(e, v->o, c->no);
        release(c, last);
    }
    pack_all(c, s, v->p);
}

/* Blocks from *j on, up to `end`. */
static void more_blocks(Computer *c, HV *j, HV end, Carried *v, bool masked) {
    Emit *e = c->e;
    HV *at[MAX_O + MAX_P];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->no; i++) at[n++] = &v->o[i];
    for (uint32_t i = 0; i < MAX_P; i++) at[n++] = &v->p[i];
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, *j);
    for (uint32_t i = 0; i < n; i++) hop_loop_init(l, *at[i]);
    hop_loop_begin(e, l, masked ? "masked" : "columns");
    *j = l->phi[0];
    hop_loop_test(e, l, below(e, *j, end));
    for (uint32_t i = 0; i < n; i++) *at[i] = l->phi[1 + i];
    emit_push_region(e, l->pre);
    block(c, *j, v, true, masked);
    emit_pop(e);
    l->next[0] = hop_addi(e, *j, 1);
    for (uint32_t i = 0; i < n; i++) l->next[1 + i] = *at[i];
    hop_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) *at[i] = l->phi[1 + i];
}

/* Where blocks change from such that the mask cuts through to such that it does not (behind), or
 * the other way round (ahead). */
static HV mask_edge(Computer *c) {
    Emit *e = c->e;
    Back *x = c->x;
    HV first = hop_add(e, c->at.row, hop_muli(e, c->member, FLASH_GROUP_ROWS)), v[2];
    HV edge = x->ahead ? hop_addi(e, hop_add(e, first, x->ahead), 1)
                       : hop_addi(e, LLVMBuildSub(e->b, first, x->behind, ""),
                                  FLASH_GROUP_ROWS - 1 + BACK_BLOCK - 1);
    v[0] = LLVMBuildAShr(e->b, edge, hop_i(e, __builtin_ctz(BACK_BLOCK)), "");
    v[0] = LLVMBuildSub(e->b, v[0], c->at.first, "");
    v[1] = hop_i(e, 1);
    v[0] = emit_intrinsic(e, "llvm.smax", e->i32, v, 2);
    v[1] = c->at.blocks;
    return emit_intrinsic(e, "llvm.smin", e->i32, v, 2);
}

static void all_blocks(Computer *c, Carried *v) {
    HV j = hop_i(c->e, 1);
    block(c, hop_i(c->e, 0), v, false, true);
    if (c->x->p->seen) more_blocks(c, &j, mask_edge(c), v, c->x->behind != NULL);
    more_blocks(c, &j, c->at.blocks, v, !c->x->p->seen || c->x->ahead != NULL);
}

/* --- Results ---------------------------------------------------------------------------------- */

void back_store(Gpu *g, const BackResult *r, HV col, const HV *o, uint32_t half) {
    Emit *e = g->e;
    Expr n = gpu_points(e, g->k, r->n), at = flash_position(e, "n", n, col, false);
    uint32_t sym = g->k->axes[__builtin_ctz(r->n)].sym;
    HV size = hop_size(e, n);
    bool whole = expr_divisor(e->exprs, n) % FLASH_PANEL == 0;
    for (uint32_t i = 0; i < r->registers; i++) {
        EmitIf is;
        if (back_half(i) != half) continue;
        HV inside = LLVMConstInt(e->i1, 1, false);
        if (!whole) inside = below(e, hop_addi(e, col, back_col(i)), size);
        emit_if_begin(e, &is, inside);
        emit_bind(e, sym, expr_addi(e->exprs, at, back_col(i)));
        emit_override(e, r->o, o[i]);
        for (uint32_t k = 0; k < r->nstores; k++) emit_store(e, r->store[k]);
        emit_if_end(e, &is);
    }
}

/* The last block's sums, then the rows are stored. */
static void finish_tile(Computer *c, Carried *v) {
    Emit *e = c->e;
    const BackPlan *p = c->x->p;
    BackResult result = {
        .o = c->x->a->o, .n = c->x->a->n, .registers = c->no, .nstores = p->nstores};
    memcpy(result.store, p->store, sizeof result.store);
    HV last = hop_addi(e, c->at.blocks, -1);
    hop_barrier_arrive(e, back_bar(c->x, BACK_x_empty, NULL), c->one);
    start_sums(c, last, v);
    wgmma_wait_all(e, v->o, c->no);
    release(c, last);
    for (uint32_t i = 0; i < c->no; i++) v->o[i] = back_scaled(e, v->o[i], c->x->p->after);
    for (uint32_t h = 0; h < HALVES; h++) {
        EmitIf is;
        emit_if_begin(e, &is, below(e, hop_addi(e, c->row, 8 * h), c->x->nrows));
        emit_bind(e, sym_of(c, c->x->a->i), c->rows[h]);
        back_store(c->x->g, &result, c->col, v->o, h);
        emit_if_end(e, &is);
    }
}

/* --- Tiles ------------------------------------------------------------------------------------ */

static void bind_tile(Computer *c) {
    Emit *e = c->e;
    Back *x = c->x;
    const BackLoads *l = &x->p->by_row;
    HV own = hop_add(e, hop_shl(e, hop_andi(e, x->warp, 3), 4), hop_shr(e, x->lane, 2));
    own = hop_add(e, own, hop_muli(e, c->member, FLASH_GROUP_ROWS));
    c->row = hop_add(e, c->at.row, own);
    if (x->a->batch)
        gpu_decode(e, x->g->k, x->a->batch,
                   flash_position(e, "head", x->p->heads, c->at.head, false));
    for (uint32_t h = 0; h < HALVES; h++) {
        c->rows[h] = flash_position(e, "i", x->p->rows, hop_addi(e, c->row, 8 * h), true);
        emit_push(e);
        emit_bind(e, sym_of(c, x->a->i), c->rows[h]);
        for (uint32_t k = 0; k < l->n; k++) c->by_row[h][k] = emit_value(e, l->v[k]);
        emit_pop(e);
    }
}

static void compute_tile(Computer *c, HV parity) {
    Emit *e = c->e;
    Carried *v = ARENA_NEW(e->arena, Carried);
    bind_tile(c);
    hop_barrier_wait(e, back_bar(c->x, BACK_x_full, NULL), parity);
    for (uint32_t i = 0; i < c->no; i++) v->o[i] = LLVMGetUndef(e->f32);
    all_blocks(c, v);
    finish_tile(c, v);
}

static void set_up(Computer *c) {
    Emit *e = c->e;
    Back *x = c->x;
    uint32_t panel = BACK_BLOCK * HOP_ROW_BYTES;
    c->member = hop_addi(e, x->group, -1);
    c->one = hop_is(e, hop_andi(e, x->tid, HOP_WARPGROUP - 1), 0);
    c->col = hop_shl(e, hop_andi(e, x->lane, 3), 1);
    HV mine = hop_muli(e, c->member, FLASH_GROUP_ROWS * HOP_ROW_BYTES);
    for (uint32_t i = 0; i < x->p->products; i++) {
        c->score[i] = (WgmmaShape){.type = x->p->type,
                                   .n = BACK_BLOCK,
                                   .ksteps = x->p->d[i] / 16,
                                   .blocks = 1,
                                   .sums = 1,
                                   .a = {false, x->rows * HOP_ROW_BYTES},
                                   .b = {false, panel}};
        HV at = hop_addi(e, hop_add(e, x->shared, mine), x->at_x[i]);
        c->queries[i] = wgmma_descriptor(e, &c->score[i].a, at);
    }
    c->sum = (WgmmaShape){.type = x->p->type,
                          .n = x->p->n,
                          .ksteps = BACK_BLOCK / 16,
                          .blocks = 1,
                          .sums = 1,
                          .b = {true, panel}};
    c->no = x->p->n / 2;
    GC_ASSERT(c->no <= MAX_O);
}

void back_compute(Back *x) {
    Emit *e = x->e;
    Computer c = {.x = x, .e = e};
    hop_registers(e, x->t->regs_math, true);
    set_up(&c);
    /* What the body keeps for all tiles is computed here, where only this role comes by. */
    EmitScope *outer = e->scope;
    e->scope = NULL;
    emit_push(e);
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, x->block);    /* the tile, */
    hop_loop_init(l, hop_i(e, 0)); /* blocks so far, */
    hop_loop_init(l, hop_i(e, 0)); /* and the parity of the rows' arrival */
    hop_loop_begin(e, l, "tile");
    hop_loop_test(e, l, below(e, l->phi[0], x->tiles));
    emit_push_region(e, l->pre);
    c.at = back_place(x, l->phi[0]);
    c.number = l->phi[1];
    compute_tile(&c, l->phi[2]);
    l->next[0] = hop_add(e, l->phi[0], x->grid);
    l->next[1] = hop_add(e, l->phi[1], c.at.blocks);
    l->next[2] = LLVMBuildXor(e->b, l->phi[2], hop_i(e, 1), "");
    emit_pop(e);
    hop_loop_end(e, l);
    emit_pop(e);
    e->scope = outer;
}
