/* Which contractions go to tensor cores: what their kernel's body may be, and how results leave. */
#include "codegen/nvptx/gemm/gemm_plan.h"

/* --- The epilogue ----------------------------------------------------------------------------- */

/* Ops that the epilogue evaluates: what the stores need up to the sums. */
static void mark_epilogue(const Kernel *k, const GemmPlan *p, bool *needed) {
    for (KVal v = k->nops; v-- > 1;) {
        const KOp *o = &k->ops[v];
        if (o->op == K_kstore) needed[v] = true;
        if (!needed[v] || gemm_is_acc(&k->dot, v) || gemm_is_term(p, v)) continue;
        for (int i = 0; i < 3; i++)
            if (o->in[i]) needed[o->in[i]] = true;
    }
}

static uint32_t innermost(uint32_t axes) {
    return 31u - (uint32_t)__builtin_clz(axes);
}

static bool uses_axes(Emit *e, const Kernel *k, Expr x, uint32_t axes) {
    for (uint32_t i = 0; i < k->naxes; i++)
        if (axes >> i & 1 && x && expr_uses(e->exprs, x, k->axes[i].sym)) return true;
    return false;
}

/* Neighbouring columns are neighbours, or the same, in memory. */
static bool pairs_well(Gpu *g, const KOp *o) {
    Emit *e = g->e;
    Expr coef, rest;
    uint32_t axis = innermost(g->k->dot.n);
    if (uses_axes(e, g->k, o->mask, g->k->dot.n)) return false;
    if (!expr_affine(e->exprs, o->index, g->k->axes[axis].sym, &coef, &rest)) return false;
    return expr_is_value(e->exprs, coef, 0) || expr_is_value(e->exprs, coef, 1);
}

/* Instructions per element, roughly. */
static uint32_t ops_of(Op op) {
    switch (op) {
    case OP_exp: return 4;
    case OP_tanh:
    case OP_sigmoid:
    case OP_div: return 8;
    case OP_erf:
    case OP_log: return 16;
    default: return 1;
    }
}

enum { ADDEND_OUTS = 2 }; /* slabs of so many results have room side by side */

/* A load at the places of results. */
static bool is_of_tile(Gpu *g, const bool *needed, KVal v) {
    const KDot *d = &g->k->dot;
    bool load = needed[v] && g->k->ops[v].op == K_kload;
    return load && g->e->domains[v] & d->m && g->e->domains[v] & d->n;
}

static bool all_copied(const GemmPlan *p) {
    bool all = p->nouts <= ADDEND_OUTS;
    for (uint32_t i = 0; all && i < p->nouts; i++)
        all = p->out[i].copied && dtype_bytes(p->out[i].mat.t) == 2;
    return all;
}

/* With results through the copy engine, one 16-bit load at their places can come the same way: with
 * two results the only one, as others that threads make beside it are not ahead of stores then. */
static void plan_addend(Gpu *g, const bool *needed, GemmPlan *p) {
    const KDot *d = &g->k->dot;
    uint32_t loads = 0;
    for (KVal v = 1; v < g->k->nops; v++) loads += is_of_tile(g, needed, v);
    if (!all_copied(p) || (p->nouts > 1 && loads > 1)) return;
    for (KVal v = 1; v < g->k->nops && !p->addend; v++) {
        const KOp *o = &g->k->ops[v];
        if (!is_of_tile(g, needed, v) || o->in[0] || dtype_bytes((DType)o->dtype) != 2) continue;
        if (hop_matrix(g, o, d->m, d->n, d->batch, &p->addend_mat)) p->addend = v;
    }
}

static void find_reached(Gpu *g, const bool *needed, GemmPlan *p) {
    KVal *reached = ARENA_ARRAY(g->e->arena, KVal, g->k->nops);
    for (KVal v = 1; v < g->k->nops; v++) {
        uint16_t op = g->k->ops[v].op;
        if (needed[v] && v != p->addend && (op == K_kload || op == K_kstore))
            reached[p->nreached++] = v;
    }
    p->reached = reached;
}

/* Results that go through shared memory. */
static bool is_copied(DType t) {
    return dtype_bytes(t) == 2 || t == DT_i8 || t == DT_u8;
}

static const char *plan_epilogue(Gpu *g, GemmPlan *p) {
    const Kernel *k = g->k;
    const KDot *d = &k->dot;
    bool *needed = ARENA_ARRAY(g->e->arena, bool, k->nops);
    mark_epilogue(k, p, needed);
    p->pairs = expr_divisor(g->e->exprs, k->axes[innermost(d->n)].extent) % 2 == 0;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if (!needed[v] || gemm_is_acc(d, v) || gemm_is_term(p, v)) continue;
        if (g->e->domains[v] & d->k) return "the epilogue looks into the sum";
        if (o->op < OP_COUNT) p->epilogue_ops += ops_of((Op)o->op);
        p->masked |= o->op == K_kload && o->in[0];
        if (o->op == K_kload || o->op == K_kstore) {
            bool copied = o->op == K_kstore && is_copied((DType)o->dtype);
            GemmOut *out = &p->out[p->nouts];
            if (o->op == K_kstore) {
                if (p->nouts++ == GEMM_MAX_OUTS) return "too many results";
                *out = (GemmOut){.store = v};
                out->copied = copied && hop_matrix(g, o, d->m, d->n, d->batch, &out->mat);
            }
            p->pairs &= pairs_well(g, o);
        }
        if (o->op == K_kbind) p->pairs = false;
    }
    plan_addend(g, needed, p);
    find_reached(g, needed, p);
    return p->nouts ? NULL : "nothing is stored";
}

/* --- The kernel ------------------------------------------------------------------------------- */

static const char *check_body(const Gpu *g) {
    const Kernel *k = g->k;
    const KDot *d = &k->dot;
    if (k->tem != TEM_dot || !d->k || !d->nacc || !d->m || !d->n) return "not a matrix product";
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if ((gemm_is_acc(d, v) && o->op != K_kreduce) || o->op == K_katomic)
            return "other folds in the kernel";
        if (o->op == K_kstore && (g->e->domains[v] & ~(d->batch | d->m | d->n)))
            return "a result within the sum";
    }
    return NULL;
}

/* Below this other kernels of f32 are as fast. */
enum { EXACT_ROWS = 33, EXACT_COLS = 16, EXACT_PRODUCTS = 1 << 22 };

static bool is_large(Gpu *g, const GemmPlan *p) {
    if (!p->exact && !p->tf32) return true;
    int64_t m = gpu_hint(g->e, p->m), n = gpu_hint(g->e, p->n);
    double all = (double)m * (double)n * (double)gpu_hint(g->e, p->k);
    all *= (double)gpu_hint(g->e, p->taps) * (double)gpu_hint(g->e, p->batch);
    return m >= EXACT_ROWS && n >= EXACT_COLS && all >= EXACT_PRODUCTS;
}

/* Where no tile is small enough for what a build that spilled asks for, the fastest: it spills, but
 * other structures are slower by far. What spilled is not built again because it is small enough
 * for what is asked next. */
static void choose_shrunk(Gpu *g, GemmPlan *p, int64_t m) {
    GemmPlan had = *p;
    uint32_t *shrink = &g->j->shrink;
    if (*shrink) (void)gemm_choose(g, &had, m, *shrink - 1);
    for (;; ++*shrink) {
        (void)gemm_choose(g, p, m, *shrink);
        bool same = p->tile == had.tile && p->twin == had.twin && p->splits == had.splits;
        if (!*shrink || !p->tile || !same || *shrink == COMPILE_MOST_SHRINK) break;
    }
    if (!p->tile && *shrink) (void)gemm_choose(g, p, m, 0);
}

enum { SPILL_PER_BLOCK = 4, SPILL_MOST = 128 };

/* Registers are spilled where a tile is stored, not where it is multiplied: one costs each thread a
 * store and a load a tile, about a hundredth of a k-block, where smaller tiles are slower in all
 * k-blocks. */
static void allow_spills(Gpu *g, const GemmPlan *p) {
    int64_t bytes = gpu_hint(g->e, p->k) * (int64_t)dtype_bytes(p->a.mat[0].t);
    int64_t blocks = gemm_ceil_div(bytes, HOP_ROW_BYTES) * gpu_hint(g->e, p->taps) / p->splits;
    bool half = dtype_bytes(p->a.mat[0].t) == 2;
    g->j->may_spill = !half ? 0
                            : (uint32_t)(blocks < SPILL_MOST ? blocks * SPILL_PER_BLOCK
                                                             : SPILL_MOST * SPILL_PER_BLOCK);
}

const char *gemm_plan(Gpu *g, GemmPlan *out) {
    const char *why = g->e->isa->warpgroups ? check_body(g) : "the architecture has not Hopper's";
    *out = (GemmPlan){0};
    if (!why) why = gemm_plan_operands(g, out);
    if (!why) why = gemm_plan_terms(g, out);
    if (!why) why = plan_epilogue(g, out);
    if (why) return why;
    const KDot *d = &g->k->dot;
    out->m = gpu_points(g->e, g->k, d->m);
    out->n = gpu_points(g->e, g->k, d->n);
    uint32_t k = out->windowed ? 1u << out->window.channel : d->k & ~out->part_axis;
    out->k = gpu_points(g->e, g->k, k);
    out->taps = gpu_points(g->e, g->k, out->window.taps);
    out->batch = gpu_points(g->e, g->k, d->batch);
    if (!is_large(g, out)) return "few products of f32";
    gemm_find_variants(g, out);
    const GemmVariants *v = &out->variants;
    choose_shrunk(g, out, v->rows[g->j->variant < v->n ? g->j->variant : 0]);
    if (out->tile && gpu_has_ways(g) && v->rows[0] > GEMM_FEW_ROWS) gemm_choose_tuned(g, out);
    if (out->tile) {
        allow_spills(g, out);
        return NULL;
    }
    return g->j->shrink ? "the epilogue needs too many registers"
                        : "more sums than a tile has columns for";
}
