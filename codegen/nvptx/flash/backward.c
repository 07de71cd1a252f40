/* The roles of a gradient of attention on tensor cores, and what is fetched.
 *
 * Warpgroup 0 fetches: one thread asks the copy engine for the rows of a tile and for the blocks
 * that they meet, as their places become empty. A thread block takes every grid-th tile. Tiles with
 * the most blocks come first, so that the last ones are short. */
#include "codegen/nvptx/flash/backward.h"

enum { SHARED_BYTES = 227 * 1024 };

/* --- Places ----------------------------------------------------------------------------------- */

/* --- Set-up ----------------------------------------------------------------------------------- */

static void lay_out(Back *x) {
    uint32_t at = 0;
    x->rows = x->t->groups * FLASH_GROUP_ROWS;
    for (uint32_t i = 0; i < x->p->products; i++) {
        x->at_x[i] = at;
        at += x->rows * x->p->d[i] * 2;
    }
    x->at_stages = at;
    for (uint32_t i = 0; i < x->p->nstreams; i++) {
        x->at_stream[i] = x->at_stages + x->stage_bytes;
        x->stage_bytes += BACK_BLOCK * x->p->cols[i] * 2;
    }
    uint32_t bars = BACK_BARS * HOP_BARRIER_BYTES;
    x->stages = BACK_MAX_STAGES;
    while (at + x->stages * x->stage_bytes + bars > SHARED_BYTES) x->stages /= 2;
    x->at_bar = at + x->stages * x->stage_bytes;
    x->g->j->shared_bytes = x->at_bar + bars;
}

static void count_tiles(Back *x) {
    Emit *e = x->e;
    ExprPool *p = e->exprs;
    Expr rows = expr_ceildiv(p, x->p->rows, expr_const(p, x->rows));
    Expr all = expr_mul(p, rows, x->p->heads);
    Expr grid = expr_min(p, all, expr_const(p, x->g->m->processors));
    x->g->j->min_blocks = 1;
    gpu_launch(x->g, HOP_WARPGROUP * (x->t->groups + 1), grid, 0, 0);
    x->nrows = hop_size(e, x->p->rows);
    x->ncolumns = hop_size(e, x->p->columns);
    x->ahead = x->p->ahead ? hop_size(e, x->p->ahead) : NULL;
    x->behind = x->p->behind ? hop_size(e, x->p->behind) : NULL;
    x->row_tiles = hop_size(e, rows);
    x->heads = hop_size(e, x->p->heads);
    x->tiles = hop_size(e, all);
    x->grid = hop_special(e, "llvm.nvvm.read.ptx.sreg.nctaid.x");
    x->block = hop_special(e, "llvm.nvvm.read.ptx.sreg.ctaid.x");
    hop_batch_extents(x->g, x->a->batch, x->extent);
}

static void make_maps(Back *x) {
    for (uint32_t i = 0; i < x->p->products; i++)
        x->map_x[i] = hop_matrix_map(x->g, &x->p->x[i], FLASH_PANEL, x->rows);
    for (uint32_t i = 0; i < x->p->nstreams; i++)
        x->map_stream[i] = hop_matrix_map(x->g, &x->p->stream[i], FLASH_PANEL, BACK_BLOCK);
}

/* The warp's number comes from its first thread, so that it is known to be the same in all. */
static void read_ids(Back *x) {
    Emit *e = x->e;
    x->tid = hop_special(e, "llvm.nvvm.read.ptx.sreg.tid.x");
    x->lane = hop_andi(e, x->tid, 31);
    HV warp = hop_shr(e, x->tid, 5);
    x->warp = hop_warp_first(e, warp);
    x->group = hop_shr(e, x->warp, 2);
}

static void init_barriers(Back *x) {
    Emit *e = x->e;
    uint32_t groups = x->t->groups;
    HopIf first = hop_if(e, hop_is(e, x->warp, 0));
    HopIf one = hop_if(e, hop_elect(e));
    for (uint32_t i = 0; i < x->p->products; i++) hop_map_prefetch(e, x->map_x[i]);
    for (uint32_t i = 0; i < x->p->nstreams; i++) hop_map_prefetch(e, x->map_stream[i]);
    hop_barrier_init(e, back_bar(x, BACK_x_full, NULL), 1);
    hop_barrier_init(e, back_bar(x, BACK_x_empty, NULL), groups);
    for (uint32_t s = 0; s < x->stages; s++) {
        hop_barrier_init(e, back_bar(x, BACK_full, hop_i(e, s)), 1);
        hop_barrier_init(e, back_bar(x, BACK_empty, hop_i(e, s)), groups);
    }
    hop_barrier_init_fence(e);
    hop_end(e, one);
    hop_end(e, first);
    gpu_barrier(e);
}

/* --- Fetching --------------------------------------------------------------------------------- */

/* `rows` rows from `row` on, in panels one behind the other. */
static void fetch(Back *x, const HopMatrix *m, HV map, HV head, uint32_t cols, HV row,
                  uint32_t rows, HV to, HV bar) {
    Emit *e = x->e;
    HV at[2 + HOP_MAX_BATCH];
    hop_batch_at(x->g, x->extent, m, head, at + 2);
    at[1] = row;
    for (uint32_t c = 0; c < cols; c += FLASH_PANEL) {
        at[0] = hop_i(e, c);
        hop_tma_load(e, hop_addi(e, to, c / FLASH_PANEL * rows * HOP_ROW_BYTES), bar, map, at,
                     2 + m->nbatch);
    }
}

static void fetch_rows(Back *x, const BackPlace *at, HV parity) {
    Emit *e = x->e;
    HV full = back_bar(x, BACK_x_full, NULL);
    hop_barrier_wait(e, back_bar(x, BACK_x_empty, NULL), parity);
    hop_barrier_expect(e, full, hop_i(e, x->at_stages));
    for (uint32_t i = 0; i < x->p->products; i++)
        fetch(x, &x->p->x[i], x->map_x[i], at->head, x->p->d[i], at->row, x->rows,
              hop_addi(e, x->shared, x->at_x[i]), full);
}

/* Block j of the tile, which has that number among all that this thread block takes. */
static void fetch_block(Back *x, const BackPlace *at, HV j, HV number) {
    Emit *e = x->e;
    HV stage = back_stage(x, number), full = back_bar(x, BACK_full, stage);
    HV row = hop_muli(e, hop_add(e, at->first, j), BACK_BLOCK);
    HV base = hop_add(e, x->shared, hop_muli(e, stage, x->stage_bytes));
    hop_barrier_wait(e, back_bar(x, BACK_empty, stage),
                     LLVMBuildXor(e->b, back_parity(x, number), hop_i(e, 1), ""));
    hop_barrier_expect(e, full, hop_i(e, x->stage_bytes));
    for (uint32_t i = 0; i < x->p->nstreams; i++)
        fetch(x, &x->p->stream[i], x->map_stream[i], at->head, x->p->cols[i], row, BACK_BLOCK,
              hop_addi(e, base, x->at_stream[i]), full);
}

static void fetch_tile(Back *x, const BackPlace *at, HV first, HV parity) {
    Emit *e = x->e;
    fetch_rows(x, at, parity);
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 0));
    hop_loop_begin(e, l, "fetch");
    hop_loop_test(e, l, LLVMBuildICmp(e->b, LLVMIntULT, l->phi[0], at->blocks, ""));
    fetch_block(x, at, l->phi[0], hop_add(e, first, l->phi[0]));
    l->next[0] = hop_addi(e, l->phi[0], 1);
    hop_loop_end(e, l);
}

static void fetch_all(Back *x) {
    Emit *e = x->e;
    hop_registers(e, x->t->regs_load, false);
    HopIf first = hop_if(e, hop_is(e, x->warp, 0));
    HopIf one = hop_if(e, hop_elect(e));
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, x->block);    /* the tile, */
    hop_loop_init(l, hop_i(e, 0)); /* blocks so far, */
    hop_loop_init(l, hop_i(e, 1)); /* and the parity of waiting for the rows' place */
    hop_loop_begin(e, l, "fetch_tile");
    hop_loop_test(e, l, LLVMBuildICmp(e->b, LLVMIntULT, l->phi[0], x->tiles, ""));
    BackPlace at = back_place(x, l->phi[0]);
    fetch_tile(x, &at, l->phi[1], l->phi[2]);
    l->next[0] = hop_add(e, l->phi[0], x->grid);
    l->next[1] = hop_add(e, l->phi[1], at.blocks);
    l->next[2] = LLVMBuildXor(e->b, l->phi[2], hop_i(e, 1), "");
    hop_loop_end(e, l);
    hop_end(e, one);
    hop_end(e, first);
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* What explain says of it. */
static void note(Gpu *g, const BackPlan *p, const char *why) {
    Arena *a = g->j->arena;
    if (g->k->tem != TEM_attention_gradient) return;
    g->j->note = why ? arena_printf(a, "not on tensor cores: %s", why)
                     : arena_printf(a, "tensor cores, tiles of %s, %u products of scores",
                                    p->tile->name, p->products);
}

bool gpu_flash_backward(Gpu *g) {
    Emit *e = g->e;
    BackPlan plan;
    const char *why = back_plan(g, &plan);
    note(g, &plan, why);
    if (why) return false;
    Back x = {.g = g, .e = e, .a = &g->k->grad, .p = &plan, .t = plan.tile};
    lay_out(&x);
    count_tiles(&x);
    make_maps(&x);
    x.shared = hop_shared(g);
    read_ids(&x);
    init_barriers(&x);
    HopRoles roles = hop_roles(e, hop_is(e, x.group, 0));
    fetch_all(&x);
    hop_role_next(e, roles);
    back_compute(&x);
    hop_roles_end(e, roles);
    return true;
}
