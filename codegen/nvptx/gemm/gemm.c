/* A contraction on tensor cores: what its kernel has before tiles are computed, and its roles.
 *
 * Warpgroup 0 fetches (gemm_fetch.c), the others multiply and store (gemm_multiply.c). Blocks stay
 * and take every so-many-th tile, so that fetching runs ahead into the next tile while results are
 * stored. */
#include "codegen/nvptx/gemm/gemm.h"

/* --- Set-up ----------------------------------------------------------------------------------- */

/* One for each part; parts that are the same matrix share theirs. */
static void operand_maps(Gemm *x, const GemmOperand *o, uint32_t rows, bool shared, HV *maps) {
    uint32_t n = (o->across ? x->bk : rows) / (shared ? 2 : 1);
    for (uint32_t i = 0; i < x->p->parts; i++) {
        for (uint32_t j = 0; j < i && !maps[i]; j++)
            if (o->mat[j].base == o->mat[i].base) maps[i] = maps[j];
        if (!maps[i]) maps[i] = hop_matrix_map(x->g, &o->mat[i], gemm_row_elements(&o->mat[i]), n);
    }
}

static void make_maps(Gemm *x) {
    if (x->p->windowed)
        x->map_a[0] = window_map(x->g, &x->p->window, x->tile->m);
    else
        operand_maps(x, &x->p->a, x->fetched_rows, false, x->map_a);
    for (uint32_t s = 0; s < x->d->nacc; s++)
        operand_maps(x, &x->p->b[s], x->cols, x->p->twin, x->map_b[s]);
    for (uint32_t i = 0; i < x->p->nterms; i++) {
        const GemmTerm *t = &x->p->term[i];
        operand_maps(x, &t->a, x->tile->m, false, &x->map_term[i][0]);
        operand_maps(x, &t->b, x->cols, x->p->twin, &x->map_term[i][1]);
    }
    if (x->p->addend) {
        const HopMatrix *m = &x->p->addend_mat;
        x->map_addend = hop_matrix_map(x->g, m, gemm_row_elements(m), x->staged_rows);
    }
    for (uint32_t i = 0; i < x->p->nouts; i++) {
        const HopMatrix *m = &x->p->out[i].mat;
        if (x->p->out[i].copied)
            x->map_out[i] = hop_matrix_map(x->g, m, x->slab_cols, HOP_SLAB_ROWS);
    }
}

/* Of several waves, convolutions alone gain by starting beside the kernel in front. B is fetched
 * before that has ended where a block does so for itself (twins fetch for each other) and where it
 * gains: blocks that share a convolution's sums do not (6.43 and 6.80 us). The kernel behind starts
 * when all blocks of this one are there, but of few rows when the last of B has been asked for:
 * clusters of it that come earlier take room that those of this one wait for. */
static void choose_start(Gemm *x) {
    const GemmPlan *p = x->p;
    x->dependent = x->one_wave || p->windowed;
    x->g->j->dependent = x->dependent;
    x->early = x->one_wave && p->parts == 1 && !p->twin && (p->splits == 1 || !p->windowed);
    for (uint32_t s = 0; s < x->d->nacc; s++) x->early &= x->g->j->stable[p->b[s].mat[0].buf];
    x->starts_late = p->splits > 1 && x->staged_rows < x->tile->m;
    x->g->order = GPU_OWN_ORDER;
}

/* As many blocks as run at once, or as there are tiles, or as share the sums of all of them. */
static void launch(Gemm *x, Expr tiles) {
    ExprPool *p = x->e->exprs;
    CompileJob *j = x->g->j;
    const uint32_t cluster = x->twins * x->p->splits;
    Expr most = expr_const(p, x->g->m->processors / x->twins);
    Expr n = x->p->splits > 1 ? tiles : expr_min(p, tiles, most);
    j->min_blocks = 1; /* the registers at entry follow from it */
    gpu_launch(x->g, HOP_WARPGROUP * (x->tile->groups + 1), expr_muli(p, n, cluster), 0, 0);
    if (cluster == 1) return;
    j->cluster[0] = cluster;
    j->cluster[1] = j->cluster[2] = 1;
}

/* K-blocks of 8 bits that matrix units add up before their sums are added in f32, where that comes
 * out even: 512 products in 14 bits. */
enum { SUMMED_AT_ONCE = 4 };

/* K-blocks of a tap, of the sums, of each term, and of all that a tile is made of. */
static void count_kblocks(Gemm *x) {
    ExprPool *p = x->e->exprs;
    Expr tap = expr_ceildiv(p, x->p->k, expr_const(p, x->bk));
    x->tap_blocks = hop_size(x->e, tap);
    Expr of_tile = expr_mul(p, tap, x->p->taps);
    x->kblocks = hop_size(x->e, of_tile);
    x->together = x->p->parts > 1 ? 1 : SUMMED_AT_ONCE;
    while (expr_divisor(p, of_tile) % x->together) x->together /= 2;
    for (uint32_t i = 0; i < x->p->nterms; i++) {
        Expr term = expr_ceildiv(p, x->p->term[i].k, expr_const(p, x->bk));
        x->term_blocks[i] = hop_size(x->e, term);
        of_tile = expr_add(p, of_tile, term);
    }
    x->tile_blocks = hop_size(x->e, of_tile);
}

/* Launches. Twins count as one block, with a tile twice as high. */
static void begin(Gemm *x) {
    ExprPool *p = x->e->exprs;
    Expr rows = expr_ceildiv(p, x->p->m, expr_const(p, x->tile->m * x->twins));
    Expr cols = expr_ceildiv(p, x->p->n, expr_const(p, x->cols));
    Expr tiles = expr_mul(p, expr_mul(p, rows, cols), x->p->batch);
    choose_start(x);
    launch(x, tiles);
    x->rows_tiles = hop_size(x->e, rows);
    x->cols_tiles = hop_size(x->e, cols);
    x->tiles = hop_size(x->e, tiles);
    count_kblocks(x);
}

/* The k-blocks of this one among those that share a tile: the last has what is left. */
static void share_blocks(Gemm *x) {
    Emit *e = x->e;
    HV more = hop_addi(e, x->kblocks, x->p->splits - 1);
    HV each = LLVMBuildUDiv(e->b, more, hop_i(e, x->p->splits), "");
    x->first_block = LLVMBuildMul(e->b, x->rank, each, "");
    HV end[2] = {hop_add(e, x->first_block, each), x->kblocks};
    x->end_block = emit_intrinsic(e, "llvm.umin", e->i32, end, 2);
}

static void read_ids(Gemm *x) {
    Emit *e = x->e;
    x->tid = hop_special(e, "llvm.nvvm.read.ptx.sreg.tid.x");
    x->block = hop_special(e, "llvm.nvvm.read.ptx.sreg.ctaid.x");
    x->nblocks = hop_special(e, "llvm.nvvm.read.ptx.sreg.nctaid.x");
    const uint32_t cluster = x->twins * x->p->splits;
    x->first_block = hop_i(e, 0);
    x->end_block = x->kblocks;
    if (cluster > 1) {
        HV size = hop_i(e, cluster);
        x->rank = hop_cluster_rank(e);
        x->block = LLVMBuildUDiv(e->b, x->block, size, "");
        x->nblocks = LLVMBuildUDiv(e->b, x->nblocks, size, "");
    }
    if (x->p->splits > 1) share_blocks(x);
    x->lane = hop_andi(e, x->tid, 31);
    x->warp = hop_shr(e, x->tid, 5);
    x->group = hop_shr(e, x->tid, 7);
}

static void init_barriers(Gemm *x) {
    Emit *e = x->e;
    HopIf first = hop_if(e, hop_is(e, x->warp, 0));
    HopIf one = hop_if(e, hop_elect(e));
    hop_map_prefetch(e, x->map_a[0]);
    hop_map_prefetch(e, x->map_b[0][0]);
    for (uint32_t s = 0; s < x->stages; s++) {
        hop_barrier_init(e, gemm_barrier(x, hop_i(e, s), false), 1);
        hop_barrier_init(e, gemm_barrier(x, hop_i(e, s), true),
                         (x->tile->pingpong ? 1 : x->tile->groups) * x->twins);
    }
    if (x->resident) hop_barrier_init(e, gemm_resident_barrier(x), 1);
    hop_barrier_init_fence(e);
    hop_end(e, one);
    hop_end(e, first);
    if (x->dependent && !x->starts_late) hop_depend_launch(e);
    if (x->p->twin)
        hop_cluster_sync(e);
    else
        gpu_barrier(e);
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* What explain says of it. */
static void note(Gpu *g, const GemmPlan *p, const char *why) {
    if (why && g->k->tem != TEM_dot) return;
    g->j->note = why ? arena_printf(g->j->arena, "not on tensor cores: %s", why)
                     : arena_printf(g->j->arena, "tensor cores, %stiles of %s%s%s",
                                    p->windowed ? "windows in " : "", p->tile->name,
                                    p->exact       ? ", f32 in two of tf32"
                                    : p->tf32      ? ", of tf32"
                                    : p->parts > 1 ? ", in digits"
                                    : p->nterms    ? ", more products behind"
                                                   : "",
                                    p->twin         ? ", two blocks at a time"
                                    : p->splits > 1 ? ", sums shared by blocks"
                                                    : "");
}

/* Few rows are the thin structure's: it streams B over all multiprocessors. Where sizes decide when
 * the kernel runs, that is the last variant, behind those with other tiles. */
static const char *leave_few_rows(Gpu *g, const GemmPlan *plan) {
    ExprPool *p = g->e->exprs;
    const GemmVariants *v = &plan->variants;
    int64_t lo, hi;
    expr_range(p, plan->m, &lo, &hi);
    if (gpu_hint(g->e, plan->m) <= GEMM_FEW_ROWS) return "few rows";
    if (g->j->spare) return NULL; /* its variants are other ways at these sizes */
    if (g->j->variant == v->n) return "few rows";
    g->j->nvariants = v->n - 1;
    g->j->choice = v->choice;
    if (lo > GEMM_FEW_ROWS) return NULL;
    Expr few = expr_lt(p, plan->m, expr_const(p, GEMM_FEW_ROWS + 1));
    g->j->choice = expr_add(p, v->choice, expr_muli(p, few, (int64_t)v->n - v->least));
    g->j->nvariants++;
    return NULL;
}

/* A load at the places of results, which threads ask for several places ahead where they store
 * themselves. */
static bool loads_at_results(Gpu *g) {
    const KDot *d = &g->k->dot;
    for (KVal v = 1; v < g->k->nops; v++) {
        uint32_t at = g->e->domains[v];
        if (g->k->ops[v].op == K_kload && at & d->m && at & d->n) return true;
    }
    return false;
}

enum { SHORT_BLOCKS = 8 };

/* Results of 32 bits go through shared memory, too, in rows of 128 bytes where threads write 32
 * bytes at a time: where a block has all of a tile's sums. f32 in two numbers gains by it where
 * sums are short. */
static bool copies_words(Gpu *g, GemmPlan *p) {
    GemmOut *o = &p->out[0];
    const KOp *s = &g->k->ops[o->store];
    int64_t k = 0, taps = 0;
    bool known = expr_is_const(g->e->exprs, p->k, &k) && expr_is_const(g->e->exprs, p->taps, &taps);
    if (p->exact && (!known || k * taps > SHORT_BLOCKS * HOP_ROW_BYTES / (int64_t)sizeof(float)))
        return false;
    if ((p->promoted && !p->exact) || p->splits > 1 || loads_at_results(g)) return false;
    if (p->nouts > 1 || o->copied || dtype_bytes((DType)s->dtype) != 4) return false;
    o->copied = hop_matrix(g, s, g->k->dot.m, g->k->dot.n, g->k->dot.batch, &o->mat);
    return o->copied;
}

static bool take(Gpu *g) {
    Emit *e = g->e;
    GemmPlan plan;
    const char *why = gemm_plan(g, &plan);
    if (!why) why = leave_few_rows(g, &plan);
    note(g, &plan, why);
    if (why) return false;
    Gemm x = {.g = g, .e = e, .d = &g->k->dot, .p = &plan, .tile = plan.tile};
    x.twins = plan.twin ? 2 : 1;
    x.words = copies_words(g, &plan);
    gemm_lay_out(&x);
    begin(&x);
    make_maps(&x);
    x.shared = hop_shared(g);
    read_ids(&x);
    init_barriers(&x);
    HopRoles roles = hop_roles(e, hop_is(e, x.group, 0));
    gemm_fetch(&x);
    hop_role_next(e, roles);
    gemm_compute(&x);
    hop_roles_end(e, roles);
    if (plan.twin)
        hop_cluster_sync(e); /* neither ends while the other may still tell it something */
    return true;
}

/* The kernel's body stays as it is: what changes is which of its axes are rows. */
bool gpu_gemm(Gpu *g) {
    const Kernel *k = g->k;
    if (gemm_turns(g)) {
        Kernel *turned = ARENA_NEW(g->e->arena, Kernel);
        KDot *d = &turned->dot;
        *turned = *k;
        *d = k->dot;
        d->m = k->dot.n;
        d->n = k->dot.m;
        d->a = k->dot.b[0];
        d->b[0] = k->dot.a;
        g->k = turned;
    }
    bool taken = take(g);
    g->k = k;
    return taken;
}
