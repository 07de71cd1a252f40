/* Rows, and sums of columns beside them (fusion/schedule/columns.c): a block keeps sums of columns
 * in registers until its last row. Teams of a block take rows of their own, each finished before
 * the next one begins (turns.c), or, where folds follow each other, a turn later
 * (behind.c, whose rows fetch.c brings; there a team larger than a warp is the block).
 * Most are asked for by a warp that does nothing else, for all teams of a block or for its half of
 * a long row (fetcher.c, fetched.c). Blocks keep pace then, and where rows are long
 * (pace.c). sums.c is what rows and blocks leave. */
#include "codegen/nvptx/band/band.h"

/* --- Shape ------------------------------------------------------------------------------------ */

static bool add_fold(Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    const KOp *o = &g->k->ops[v];
    if (!row_is_sent(g, v)) return false;
    uint32_t dom = g->rows->dom[v], turn = 1u << b->turn;
    if (!band_is_column(b, v)) {
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
    if (!band_is_column(b, x)) {
        if (!(b->r.team.g->rows->dom[v] & b->r.axes)) return true;
        if (b->nresults == BAND_OWN) return false;
        b->result[b->nresults++] = v;
        return true;
    }
    if (b->nstores == BAND_SUMS) return false;
    b->store[b->nstores++] = v;
    return true;
}

/* Axes: blocks, the rows of a block, columns. */
static bool has_shape(Band *b) {
    Gpu *g = b->r.team.g;
    if (g->k->naxes != 3 || g->k->serial || g->rows->par != 1) return false;
    b->turn = 1, b->r.lane = 2, b->r.axes = 1u << 2;
    b->dealt = g->k->tem == TEM_dealt;
    if (b->dealt) band_enter_lists(b);
    b->starts = !b->dealt && expr_is_const(g->e->exprs, g->k->axes[2].extent, &b->columns) &&
                b->columns % BAND_EVEN;
    if (b->starts && !band_enter_starts(b)) return false;
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
            if (!band_is_column(b, g->k->ops[p->stores[s]].in[0])) p->stores[n++] = p->stores[s];
        p->nstores = n;
    }
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

/* --- The kernel ------------------------------------------------------------------------------- */

static void launch(Band *b, Expr groups) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    for (uint32_t i = 0; i < 3 && b->cluster > 1; i++) g->j->cluster[i] = i ? 1 : b->cluster;
    gpu_launch(g, band_threads(b), expr_muli(e->exprs, groups, b->cluster), 0, 0);
    b->owner = g->block[0];
    if (b->dealt) b->r.team.block = emit_i64(e, 0);
    if (b->dealt || b->starts) b->r.first = emit_i64(e, 0);
    if (b->cluster == 1) return;
    b->owner = LLVMBuildUDiv(e->b, b->owner, emit_i64(e, b->cluster), "");
    b->r.team.block = LLVMBuildZExt(e->b, hop_cluster_rank(e), e->i64, "");
    b->r.first = LLVMBuildMul(e->b, b->r.team.block, emit_i64(e, b->r.part), "");
    if (!b->r.fewest) return;
    const int64_t all = b->r.part * (b->cluster - 1) + b->r.fewest;
    LLVMValueRef left = LLVMBuildSub(e->b, emit_i64(e, all), b->r.first, "");
    b->r.count = gpu_smaller(e, left, emit_i64(e, b->r.part));
}

static bool takes(Band *b) {
    Emit *e = b->r.team.g->e;
    if (!has_shape(b)) return false;
    e->lanes = choose_lanes(b);
    if (b->starts && e->lanes > b->unit) e->lanes = b->unit;
    if (e->lanes < 2 || (b->starts && e->lanes < b->unit) || (!b->starts && !band_find_rows(b)))
        return false;
    b->r.lanes = e->lanes;
    return band_choose_sizes(b) && passes(b);
}

/* Of a warp's teams that do not take neighbouring rows. */
static LLVMValueRef spread_team(const Band *b) {
    Emit *e = b->r.team.g->e;
    const int64_t side = b->side;
    LLVMValueRef warp = LLVMBuildUDiv(e->b, b->team, emit_i64(e, side), "");
    return band_place_of(b, warp, LLVMBuildURem(e->b, b->team, emit_i64(e, side), ""));
}

bool gpu_band(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Band b = {.r.team.g = g, .cluster = 1, .mates = 1, .apart = 1};
    const Kernel *k = g->k;
    const uint32_t lanes = e->lanes;
    if (!e->isa->warpgroups || !takes(&b)) {
        e->lanes = lanes;
        g->k = e->k = k;
        return false;
    }
    uint32_t part = (uint32_t)__builtin_ctz(g->rows->par);
    const bool own_pace = !b.behind;
    if (own_pace) band_forget_mask(&b);
    launch(&b, g->k->axes[part].extent);
    emit_set_sym(e, g->k->axes[part].sym, b.owner);
    b.r.team.rank = g->tid;
    b.r.team.reads = own_pace;
    if (b.teams > 1) {
        b.r.team.rank = LLVMBuildURem(e->b, g->tid, emit_i64(e, b.r.team.size), "");
        b.team = LLVMBuildUDiv(e->b, g->tid, emit_i64(e, b.r.team.size), "");
        if (b.apart > 1) b.team = spread_team(&b);
    }
    Expr turns = expr_ceildiv(p, g->k->axes[b.turn].extent, expr_const(p, b.teams));
    b.turns = emit_expr(e, turns);
    LLVMValueRef acc[BAND_CARRIED];
    for (uint32_t i = 0; i < b.r.pieces * b.nsums; i++)
        acc[i] = emit_fold_identity(e, FOLD_sum, DT_f32, row_piece_lanes(&b.r, i / b.nsums));
    e->quick = gpu_by_constant;
    if (b.behind)
        band_walk_behind(&b, acc);
    else if (b.fetched)
        band_walk_fetched(&b, acc);
    else
        band_walk(&b, acc);
    e->quick = NULL;
    if (!b.fetched) band_store_columns(&b, acc);
    return true;
}
