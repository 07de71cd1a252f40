/* The roles of attention on tensor cores, and what is fetched.
 *
 * Warpgroup 0 fetches: one thread takes the next tile's number from a counter in memory, tells the
 * others, and asks the copy engine for queries, keys and values as their places become empty. Tiles
 * with the most keys come first, so that the last ones are short. */
#include "codegen/nvptx/flash/flash.h"

enum { COUNTER_BYTES = 16 };

/* --- Set-up ----------------------------------------------------------------------------------- */

static void lay_out(Flash *x) {
    uint32_t wide = x->p->d, slabs = x->p->dv / x->p->panel * HOP_SLAB;
    if (x->t->shares && x->p->dv > wide) wide = x->p->dv;
    x->rows = x->t->groups * FLASH_GROUP_ROWS;
    x->o_panel = x->t->shares ? x->rows * HOP_ROW_BYTES : HOP_SLAB;
    x->o_group = x->t->shares ? HOP_SLAB : slabs;
    x->k_bytes = x->t->keys * x->p->d * x->p->size;
    x->v_bytes = x->t->keys * x->p->dv * x->p->size;
    x->at_k = x->rows * wide * x->p->size;
    x->at_v = x->at_k + x->t->stages * x->k_bytes;
    x->at_bar = x->at_v + x->t->stages * x->v_bytes;
    x->at_o = x->t->shares ? 0 : x->at_bar;
    if (!x->t->shares) x->at_bar += x->t->groups * slabs;
    x->at_key = x->at_bar + BAR_COUNT * HOP_BARRIER_BYTES + 2 * FLASH_SLOT_BYTES;
    x->g->j->shared_bytes = x->at_key + x->t->groups * 2 * x->p->nper_key * x->t->keys * FLASH_WORD;
}

static void count_tiles(Flash *x) {
    Emit *e = x->e;
    ExprPool *p = e->exprs;
    Expr rows = expr_ceildiv(p, x->p->queries, expr_const(p, x->rows));
    Expr heads = expr_muli(p, x->p->heads, x->p->cuts), all = expr_mul(p, rows, heads);
    x->g->j->min_blocks = 1;
    gpu_launch(x->g, HOP_WARPGROUP * (x->t->groups + 1),
               expr_min(p, all, expr_const(p, x->g->m->processors)), 0, 0);
    x->counter = gpu_zeroed(x->g, expr_const(p, COUNTER_BYTES), true);
    x->nqueries = hop_size(x->e, x->p->queries);
    x->nkeys = hop_size(x->e, x->p->keys);
    x->shift = x->p->causal ? hop_size(x->e, x->p->causal) : NULL;
    x->row_tiles = hop_size(x->e, rows);
    x->heads = hop_size(x->e, heads);
    x->tiles = hop_size(x->e, all);
    hop_batch_extents(x->g, x->a->batch, x->extent);
}

static void make_maps(Flash *x) {
    uint32_t panel = x->p->panel;
    if (!x->p->computes_q) x->map_q = hop_matrix_map(x->g, &x->p->q, panel, x->rows);
    x->map_k = hop_matrix_map(x->g, &x->p->k, panel, x->t->keys);
    x->map_v = hop_matrix_map(x->g, &x->p->v, panel, x->t->keys);
    if (!x->p->nstores) x->map_o = hop_matrix_map(x->g, &x->p->o, panel, FLASH_GROUP_ROWS);
}

/* The warp's number comes from its first thread, so that it is known to be the same in all. */
static void read_ids(Flash *x) {
    Emit *e = x->e;
    x->tid = hop_special(e, "llvm.nvvm.read.ptx.sreg.tid.x");
    x->lane = hop_andi(e, x->tid, 31);
    HV warp = hop_shr(e, x->tid, 5);
    x->warp = hop_warp_first(e, warp);
    x->group = hop_shr(e, x->warp, 2);
}

static void init_stages(Flash *x, FlashBar bar, uint32_t n, uint32_t count) {
    for (uint32_t s = 0; s < n; s++)
        hop_barrier_init(x->e, flash_bar(x, bar, hop_i(x->e, s)), count);
}

static void init_barriers(Flash *x) {
    Emit *e = x->e;
    uint32_t groups = x->t->groups, stages = x->t->stages;
    uint32_t users =
        groups * (x->p->exact ? HOP_WARPGROUP / 32 : 1); /* who tells of what is read */
    HopIf first = hop_if(e, hop_is(e, x->warp, 0));
    HopIf one = hop_if(e, hop_elect(e));
    const HV maps[] = {x->map_k, x->map_v, x->map_o, x->map_q};
    for (int i = 0; i < 4; i++)
        if (maps[i]) hop_map_prefetch(e, maps[i]);
    hop_barrier_init(e, flash_bar(x, BAR_q_full, NULL), 1);
    hop_barrier_init(e, flash_bar(x, BAR_q_empty, NULL), users);
    init_stages(x, BAR_k_full, stages, 1);
    init_stages(x, BAR_k_empty, stages, users);
    init_stages(x, BAR_v_full, stages, 1);
    init_stages(x, BAR_v_empty, stages, users);
    init_stages(x, BAR_tile_full, 2, 1);
    init_stages(x, BAR_tile_empty, 2, groups * HOP_WARPGROUP);
    hop_barrier_init_fence(e);
    hop_end(e, one);
    hop_end(e, first);
    gpu_barrier(e);
}

/* --- Fetching --------------------------------------------------------------------------------- */

/* `rows` rows and `cols` columns from `from` on (a column, a row), in panels one behind the other.
 */
static void fetch(Flash *x, const HopMatrix *m, HV map, const HV *head, uint32_t cols,
                  const HV *from, uint32_t rows, HV to, HV bar) {
    Emit *e = x->e;
    HV at[2 + HOP_MAX_BATCH];
    for (uint32_t i = 0; i < m->nbatch; i++) at[2 + i] = head[i];
    at[1] = from[1];
    hop_barrier_expect(e, bar, hop_i(e, rows * cols * x->p->size));
    for (uint32_t c = 0; c < cols; c += x->p->panel) {
        at[0] = hop_addi(e, from[0], c);
        hop_tma_load(e, hop_addi(e, to, c / x->p->panel * rows * HOP_ROW_BYTES), bar, map, at,
                     2 + m->nbatch);
    }
}

typedef struct Fetcher {
    Flash *x;
    FlashPlace at;
    HV first; /* number of the tile's first block among all that this thread block takes */
    HV k_head[HOP_MAX_BATCH], v_head[HOP_MAX_BATCH];
} Fetcher;

/* Block j of the tile. */
static void fetch_block(Fetcher *f, bool values, HV j) {
    Flash *x = f->x;
    Emit *e = x->e;
    HV number = hop_add(e, f->first, j), stage = flash_stage(x, number);
    HV row = LLVMBuildSub(e->b, hop_addi(e, f->at.blocks, -1), j, "");
    row = hop_muli(e, row, x->t->keys);
    HV empty = flash_bar(x, values ? BAR_v_empty : BAR_k_empty, stage);
    HV full = flash_bar(x, values ? BAR_v_full : BAR_k_full, stage);
    hop_barrier_wait(e, empty, LLVMBuildXor(e->b, flash_parity(x, number), hop_i(e, 1), ""));
    uint32_t bytes = values ? x->v_bytes : x->k_bytes;
    HV to = hop_add(e, x->shared, hop_muli(e, stage, bytes));
    const HV from[2] = {values ? f->at.column : hop_i(e, 0), row};
    if (values)
        fetch(x, &x->p->v, x->map_v, f->v_head, x->p->dv, from, x->t->keys,
              hop_addi(e, to, x->at_v), full);
    else
        fetch(x, &x->p->k, x->map_k, f->k_head, x->p->d, from, x->t->keys, hop_addi(e, to, x->at_k),
              full);
}

static void fetch_queries(Fetcher *f, HV parity) {
    Flash *x = f->x;
    HV head[HOP_MAX_BATCH], full = flash_bar(x, BAR_q_full, NULL);
    hop_batch_at(x->g, x->extent, &x->p->q, f->at.head, head);
    hop_barrier_wait(x->e, flash_bar(x, BAR_q_empty, NULL), parity);
    const HV from[2] = {hop_i(x->e, 0), f->at.row};
    fetch(x, &x->p->q, x->map_q, head, x->p->d, from, x->rows, x->shared, full);
}

/* Keys run one block ahead of values. */
static void fetch_tile(Fetcher *f, HV q_parity) {
    Flash *x = f->x;
    Emit *e = x->e;
    hop_batch_at(x->g, x->extent, &x->p->k, f->at.head, f->k_head);
    hop_batch_at(x->g, x->extent, &x->p->v, f->at.head, f->v_head);
    if (!x->p->computes_q) fetch_queries(f, q_parity);
    fetch_block(f, false, hop_i(e, 0));
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 1));
    hop_loop_begin(e, l, "fetch");
    hop_loop_test(e, l, LLVMBuildICmp(e->b, LLVMIntULT, l->phi[0], f->at.blocks, ""));
    fetch_block(f, false, l->phi[0]);
    fetch_block(f, true, hop_addi(e, l->phi[0], -1));
    l->next[0] = hop_addi(e, l->phi[0], 1);
    hop_loop_end(e, l);
    fetch_block(f, true, hop_addi(e, f->at.blocks, -1));
}

/* The next tile's number. Every block asks once more than it has tiles; who asks last of all makes
 * the counter zero for the next launch. */
static HV take_tile(Flash *x) {
    Emit *e = x->e;
    HV n = hop_asm(e, e->i32, "atom.relaxed.gpu.global.add.u32 $0, [$1], 1;", "=r,l,~{memory}",
                   &x->counter, 1);
    HV blocks = hop_special(e, "llvm.nvvm.read.ptx.sreg.nctaid.x");
    HV last = hop_addi(e, hop_add(e, x->tiles, blocks), -1);
    HopIf reset = hop_if(e, LLVMBuildICmp(e->b, LLVMIntEQ, n, last, ""));
    LLVMBuildStore(e->b, hop_i(e, 0), x->counter);
    hop_end(e, reset);
    return n;
}

static void tell_tile(Flash *x, HV tile, HV round) {
    Emit *e = x->e;
    HV slot = hop_andi(e, round, 1), parity = hop_andi(e, hop_shr(e, round, 1), 1);
    parity = LLVMBuildXor(e->b, parity, hop_i(e, 1), "");
    hop_barrier_wait(e, flash_bar(x, BAR_tile_empty, slot), parity);
    HV v[2] = {flash_slot(x, slot), tile};
    hop_asm(e, e->voidt, "st.shared.u32 [$0], $1;", "r,r,~{memory}", v, 2);
    hop_barrier_arrive(e, flash_bar(x, BAR_tile_full, slot), LLVMConstInt(e->i1, 1, false));
}

static void fetch_all(Flash *x) {
    Emit *e = x->e;
    if (x->t->regs_load) hop_registers(e, x->t->regs_load, false);
    HopIf first = hop_if(e, hop_is(e, x->warp, 0));
    HopIf one = hop_if(e, hop_elect(e));
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 0)); /* tiles so far, */
    hop_loop_init(l, hop_i(e, 0)); /* blocks, */
    hop_loop_init(l, hop_i(e, 1)); /* and the parity of waiting for the queries' place */
    hop_loop_begin(e, l, "fetch_tile");
    HV tile = take_tile(x);
    tell_tile(x, tile, l->phi[0]);
    hop_loop_test(e, l, LLVMBuildICmp(e->b, LLVMIntULT, tile, x->tiles, ""));
    Fetcher f = {.x = x, .at = flash_place(x, tile), .first = l->phi[1]};
    fetch_tile(&f, l->phi[2]);
    l->next[0] = hop_addi(e, l->phi[0], 1);
    l->next[1] = hop_add(e, l->phi[1], f.at.blocks);
    l->next[2] = LLVMBuildXor(e->b, l->phi[2], hop_i(e, 1), "");
    hop_loop_end(e, l);
    hop_end(e, one);
    hop_end(e, first);
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* What explain says of it. */
static void note(Gpu *g, const FlashPlan *p, const char *why) {
    Arena *a = g->j->arena;
    if (g->k->tem != TEM_attention) return;
    g->j->note = why ? arena_printf(a, "not on tensor cores: %s", why)
                     : arena_printf(a, "tensor cores, %stiles of %s%s%s%s%s%s",
                                    p->exact ? "three of tf32, " : "", p->tile->name,
                                    p->cuts > 1 ? ", values cut" : "", p->causal ? ", causal" : "",
                                    p->body ? ", scores masked" : "",
                                    p->computes_q ? ", queries computed" : "",
                                    p->nstores ? ", results one by one" : "");
}

bool gpu_flash(Gpu *g) {
    Emit *e = g->e;
    FlashPlan plan;
    const char *why = flash_plan(g, &plan);
    note(g, &plan, why);
    if (why) return false;
    Flash x = {.g = g, .e = e, .a = &g->k->attn, .p = &plan, .t = plan.tile};
    lay_out(&x);
    count_tiles(&x);
    make_maps(&x);
    x.shared = hop_shared(g);
    read_ids(&x);
    init_barriers(&x);
    HopRoles roles = hop_roles(e, hop_is(e, x.group, 0));
    fetch_all(&x);
    hop_role_next(e, roles);
    flash_compute(&x);
    hop_roles_end(e, roles);
    g->j->exact = !plan.body && !plan.exact && !plan.tile->may_spill;
    g->j->may_spill = plan.tile->may_spill;
    return true;
}
