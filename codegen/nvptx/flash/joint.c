/* The roles of a kernel of all gradients of an attention, and what is fetched. */
#include "codegen/nvptx/flash/joint.h"
#include <math.h>

enum { WARP = 32, SHARED_BYTES = 227 * 1024, THREADS = HOP_WARPGROUP * (JOINT_GROUPS + 1) };

#define LOG2E 1.4426950408889634

/* --- Set-up ----------------------------------------------------------------------------------- */

static void lay_out(Joint *x) {
    uint32_t d = x->t->d, block = x->t->block, at = 0;
    x->b.rows = JOINT_KEYS;
    for (uint32_t i = 0; i < BACK_PRODUCTS; i++, at += JOINT_KEYS * d * 2) x->b.at_x[i] = at;
    x->b.at_stages = at;
    for (uint32_t i = 0; i < BACK_PRODUCTS; i++, x->b.stage_bytes += block * d * 2)
        x->b.at_stream[i] = at + x->b.stage_bytes;
    at += JOINT_STAGES * x->b.stage_bytes;
    x->at_weights = at;
    x->weights_bytes = JOINT_KEYS * block * 2;
    at += JOINT_STAGES * x->weights_bytes;
    x->at_sums = at;
    x->sums_bytes = block * d * JOINT_WORD;
    if (!x->p->any) at += JOINT_STAGES * x->sums_bytes;
    x->at_columns = at;
    x->at_alike = x->p->ncolumns * block * JOINT_WORD;
    x->columns_bytes = x->at_alike + (x->p->same ? JOINT_ALIKE : 0);
    x->b.at_bar = at + JOINT_STAGES * x->columns_bytes;
    uint32_t tile = x->b.at_bar + JOINT_BARS * HOP_BARRIER_BYTES;
    uint32_t mover = x->p->any ? joint_move_bytes() : 0;
    x->b.g->j->shared_bytes = tile > mover ? tile : mover;
    GC_ASSERT(x->b.g->j->shared_bytes <= SHARED_BYTES);
}

static void count_tiles(Joint *x) {
    Emit *e = x->b.e;
    ExprPool *p = e->exprs;
    const BackPlan *b = &x->p->b;
    Expr rows = expr_ceildiv(p, b->rows, expr_const(p, JOINT_KEYS));
    Expr blocks = expr_ceildiv(p, b->columns, expr_const(p, x->t->block));
    Expr of_head = x->p->any ? expr_add(p, rows, joint_movers(x, blocks)) : rows;
    x->b.g->j->min_blocks = 1;
    gpu_launch(x->b.g, THREADS, expr_mul(p, of_head, b->heads), 0, 0);
    x->band = hop_i(e, x->t->heads);
    if (x->p->any)
        joint_places(x, rows, blocks);
    else
        x->counts =
            gpu_zeroed(x->b.g, expr_muli(p, expr_mul(p, blocks, b->heads), JOINT_WORD), true);
    x->b.nrows = hop_size(e, b->rows);
    x->b.ncolumns = hop_size(e, b->columns);
    x->b.behind = b->behind ? hop_size(e, b->behind) : NULL;
    x->b.row_tiles = hop_size(e, rows);
    x->blocks = hop_size(e, blocks);
    x->b.heads = hop_size(e, b->heads);
    x->b.block = hop_special(e, "llvm.nvvm.read.ptx.sreg.ctaid.x");
    hop_batch_extents(x->b.g, x->b.a->batch, x->b.extent);
}

static void make_maps(Joint *x) {
    Gpu *g = x->b.g;
    for (uint32_t i = 0; i < BACK_PRODUCTS; i++) {
        x->b.map_x[i] = hop_matrix_map(g, &x->p->b.x[i], FLASH_PANEL, JOINT_KEYS);
        x->b.map_stream[i] = hop_matrix_map(g, &x->p->b.stream[i], FLASH_PANEL, x->t->block);
    }
    if (!x->p->any) x->map_q = hop_matrix_map(g, &x->p->q, JOINT_BOX_COLS, HOP_SLAB_ROWS);
    for (uint32_t i = 0; i < (x->p->any ? JOINT_RESULTS : JOINT_SUMS); i++) {
        const HopMatrix *m = &x->p->out[i];
        uint32_t cols = m->t == DT_f32 ? JOINT_BOX_COLS : FLASH_PANEL;
        if (x->p->sent[i]) x->map_out[i] = hop_matrix_map(g, m, cols, HOP_SLAB_ROWS);
    }
}

/* The warp's number comes from its first thread, so that it is known to be the same in all. */
static void read_ids(Joint *x) {
    Emit *e = x->b.e;
    x->b.tid = hop_special(e, "llvm.nvvm.read.ptx.sreg.tid.x");
    x->b.lane = hop_andi(e, x->b.tid, 31);
    HV warp = hop_shr(e, x->b.tid, 5);
    x->b.warp = hop_warp_first(e, warp);
    x->b.group = hop_shr(e, x->b.warp, 2);
}

static void init_barriers(Joint *x) {
    Emit *e = x->b.e;
    const uint32_t warps = JOINT_GROUPS * 4;
    HopIf first = hop_if(e, hop_is(e, x->b.warp, 0));
    HopIf one = hop_if(e, hop_elect(e));
    hop_barrier_init(e, joint_bar(x, JOINT_x_full, NULL), 1);
    for (uint32_t s = 0; s < JOINT_STAGES; s++) {
        HV at = hop_i(e, s);
        hop_barrier_init(e, joint_bar(x, JOINT_full, at), x->p->ncolumns ? 1 + WARP : 1);
        hop_barrier_init(e, joint_bar(x, JOINT_empty, at), JOINT_GROUPS);
        hop_barrier_init(e, joint_bar(x, JOINT_weights, at), warps);
        hop_barrier_init(e, joint_bar(x, JOINT_sums_full, at), warps);
        hop_barrier_init(e, joint_bar(x, JOINT_sums_empty, at), 1);
    }
    hop_barrier_init_fence(e);
    hop_end(e, one);
    hop_end(e, first);
    gpu_barrier(e);
}

/* --- Fetching --------------------------------------------------------------------------------- */

/* `rows` rows from `row` on, in panels one behind the other; what is past the matrix is 0. */
static void fetch(Joint *x, const HopMatrix *m, HV map, HV row, uint32_t rows, HV to, HV bar) {
    Emit *e = x->b.e;
    HV at[2 + HOP_MAX_BATCH];
    hop_batch_at(x->b.g, x->b.extent, m, x->at.head, at + 2);
    at[1] = row;
    for (uint32_t c = 0; c < x->t->d; c += FLASH_PANEL) {
        at[0] = hop_i(e, c);
        hop_tma_load(e, hop_addi(e, to, c / FLASH_PANEL * rows * HOP_ROW_BYTES), bar, map, at,
                     2 + m->nbatch);
    }
}

static void fetch_rows(Joint *x) {
    Emit *e = x->b.e;
    HV full = joint_bar(x, JOINT_x_full, NULL);
    hop_barrier_expect(e, full, hop_i(e, x->b.at_stages));
    for (uint32_t i = 0; i < BACK_PRODUCTS; i++)
        fetch(x, &x->p->b.x[i], x->b.map_x[i], x->at.row, JOINT_KEYS,
              hop_addi(e, x->b.shared, x->b.at_x[i]), full);
}

static void await_empty(Joint *x, HV j) {
    Emit *e = x->b.e;
    hop_barrier_wait(e, joint_bar(x, JOINT_empty, joint_stage(x, j)),
                     LLVMBuildXor(e->b, joint_parity(x, j), hop_i(e, 1), ""));
}

static void fetch_block(Joint *x, HV j) {
    Emit *e = x->b.e;
    HV stage = joint_stage(x, j), full = joint_bar(x, JOINT_full, stage);
    HV row = hop_muli(e, joint_block(x, j), x->t->block);
    HV base = hop_add(e, x->b.shared, hop_muli(e, stage, x->b.stage_bytes));
    await_empty(x, j);
    hop_barrier_expect(e, full, hop_i(e, x->b.stage_bytes));
    for (uint32_t i = 0; i < BACK_PRODUCTS; i++)
        fetch(x, &x->p->b.stream[i], x->b.map_stream[i], row, x->t->block,
              hop_addi(e, base, x->b.at_stream[i]), full);
}

/* A loop over the tile's blocks. */
static HopLoop *each_block(Joint *x, const char *name) {
    Emit *e = x->b.e;
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 0));
    hop_loop_begin(e, l, name);
    hop_loop_test(e, l, LLVMBuildICmp(e->b, LLVMIntULT, l->phi[0], x->at.blocks, ""));
    l->next[0] = hop_addi(e, l->phi[0], 1);
    return l;
}

static void fetch_all(Joint *x) {
    Emit *e = x->b.e;
    HopIf one = hop_if(e, hop_elect(e));
    fetch_rows(x);
    HopLoop *l = each_block(x, "fetch");
    fetch_block(x, l->phi[0]);
    hop_loop_end(e, l);
    hop_end(e, one);
}

/* --- What depends on queries alone ------------------------------------------------------------ */

/* Queries past the last one weigh nothing. */
static HV column_value(Joint *x, uint32_t i, HV row) {
    Emit *e = x->b.e;
    const BackPlan *b = &x->p->b;
    uint32_t sym = x->b.g->k->axes[__builtin_ctz(x->b.a->j)].sym;
    bool exponent = i == 0 && x->p->scale != 0;
    emit_push(e);
    emit_bind(e, sym, flash_position(e, "j", b->columns, row, true));
    HV v = emit_value(e, x->p->column[i]);
    emit_pop(e);
    v = exponent ? back_scaled(e, v, -LOG2E) : v;
    HV inside = LLVMBuildICmp(e->b, LLVMIntULT, row, x->b.ncolumns, "");
    HV none = emit_f(e, e->f32, exponent ? -HUGE_VAL : 0);
    return LLVMBuildSelect(e->b, inside, v, none, "");
}

/* The document of the query, in `row` or kept below the end. */
static HV document_of(Joint *x, HV row) {
    Emit *e = x->b.e;
    uint32_t sym = x->b.g->k->axes[__builtin_ctz(x->b.a->j)].sym;
    emit_push(e);
    emit_bind(e, sym, flash_position(e, "j", x->p->b.columns, row, true));
    HV v = emit_value(e, x->p->same_query);
    emit_pop(e);
    return v;
}

/* The first document of a block's queries, and whether there is no other. */
static void put_alike(Joint *x, HV base, HV row) {
    Emit *e = x->b.e;
    HV first = NULL, alike = NULL;
    for (uint32_t r = 0; r < x->t->block; r += WARP) {
        HV v = document_of(x, hop_addi(e, row, r));
        if (!first) first = hop_warp_first(e, v);
        HV is = LLVMBuildICmp(e->b, LLVMIntEQ, v, first, "");
        alike = alike ? LLVMBuildAnd(e->b, alike, is, "") : is;
    }
    HV v[3] = {hop_addi(e, base, x->at_columns + x->at_alike), first, hop_warp_all(e, alike)};
    hop_asm(e, e->voidt, "st.shared.v2.b32 [$0], {$1, $2};", "r,r,r,~{memory}", v, 3);
}

static void compute_columns(Joint *x) {
    Emit *e = x->b.e;
    if (!x->p->ncolumns) return;
    if (x->b.a->batch)
        gpu_decode(e, x->b.g->k, x->b.a->batch,
                   flash_position(e, "head", x->p->b.heads, x->at.head, false));
    HopLoop *l = each_block(x, "columns");
    emit_push_region(e, l->pre);
    HV j = l->phi[0], stage = joint_stage(x, j);
    HV base = hop_add(e, x->b.shared, hop_muli(e, stage, x->columns_bytes));
    HV row = hop_add(e, hop_muli(e, joint_block(x, j), x->t->block), x->b.lane);
    await_empty(x, j);
    for (uint32_t i = 0; i < x->p->ncolumns; i++)
        for (uint32_t r = 0; r < x->t->block; r += WARP) {
            HV at = hop_add(e, base, hop_shl(e, x->b.lane, 2));
            HV v[2] = {hop_addi(e, at, x->at_columns + (i * x->t->block + r) * JOINT_WORD),
                       column_value(x, i, hop_addi(e, row, r))};
            hop_asm(e, e->voidt, "st.shared.f32 [$0], $1;", "r,f,~{memory}", v, 2);
        }
    if (x->p->same) put_alike(x, base, row);
    hop_barrier_arrive(e, joint_bar(x, JOINT_full, stage), LLVMConstInt(e->i1, 1, false));
    emit_pop(e);
    hop_loop_end(e, l);
}

/* --- The kernel ------------------------------------------------------------------------------- */

static void note(Gpu *g, const JointPlan *p, const char *why) {
    Arena *a = g->j->arena;
    if (g->k->tem != TEM_attention_gradients) return;
    g->j->note = why ? arena_printf(a, "not on tensor cores: %s", why)
                     : arena_printf(a, "tensor cores, tiles of %s, all gradients at once%s",
                                    p->tile->name, p->any ? ", queries' in any order" : "");
}

static void other_warps(Joint *x) {
    Emit *e = x->b.e;
    hop_registers(e, x->t->regs_load, false);
    HopRoles first = hop_roles(e, hop_is(e, x->b.warp, 0));
    fetch_all(x);
    hop_role_next(e, first);
    HopRoles last = hop_roles(e, hop_is(e, x->b.warp, 3));
    EmitScope *outer = e->scope;
    e->scope = NULL;
    emit_push(e);
    compute_columns(x);
    emit_pop(e);
    e->scope = outer;
    hop_role_next(e, last);
    if (!x->p->any) joint_queries(x, hop_addi(e, x->b.warp, -1));
    hop_roles_end(e, last);
    hop_roles_end(e, first);
}

static void run_tile(Joint *x, const JointUnit *unit) {
    Emit *e = x->b.e;
    joint_find_tile(x, unit);
    init_barriers(x);
    HopRoles roles = hop_roles(e, hop_is(e, x->b.group, 0));
    other_warps(x);
    hop_role_next(e, roles);
    joint_compute(x);
    hop_roles_end(e, roles);
}

bool gpu_flash_joint(Gpu *g) {
    Emit *e = g->e;
    JointPlan plan;
    const char *why = joint_plan(g, &plan);
    note(g, &plan, why);
    if (why) return false;
    Joint x = {.b = {.g = g, .e = e, .a = &g->k->grad, .p = &plan.b}, .p = &plan, .t = plan.tile};
    lay_out(&x);
    count_tiles(&x);
    make_maps(&x);
    x.b.shared = hop_shared(g);
    read_ids(&x);
    const JointUnit unit = joint_unit(&x);
    if (!plan.any) {
        run_tile(&x, &unit);
        return true;
    }
    HopRoles kinds = hop_roles(e, unit.tile);
    run_tile(&x, &unit);
    hop_role_next(e, kinds);
    joint_find_mover(&x, &unit);
    joint_move(&x);
    hop_roles_end(e, kinds);
    return true;
}
