/* Which folds and stores of a kernel share a walk, and in which order the walks come. They depend
 * on the kernel only. */
#include "codegen/rows/passes.h"

static bool is_effect(const KOp *o) {
    return o->op == K_kstore || o->op == K_katomic || o->op == K_kcompact;
}

bool rows_is_walk(const KOp *o) {
    return o->op == K_kscan || o->op == K_ksort;
}

static uint32_t par_axes(const Kernel *k) {
    uint32_t m = 0;
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_PAR) m |= 1u << i;
    return m;
}

/* Axes of a serial kernel that some update's address does not follow directly, or follows through
 * data: points that differ there may collide, those that differ elsewhere never do. */
static uint32_t ordered_axes(const Emit *e, const Kernel *k, uint32_t par) {
    uint32_t free = par;
    for (KVal v = 1; k->serial && v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if (o->op == K_kbind) free &= ~e->domains[v];
        if (o->op != K_katomic && o->op != K_kstore) continue;
        for (uint32_t i = 0; i < k->naxes; i++)
            if (!expr_uses(e->exprs, o->index, k->axes[i].sym)) free &= ~(1u << i);
    }
    return par & ~free;
}

bool rows_in_pass(const Passes *r, KVal v) {
    return r->k->ops[v].op == K_kreduce && !(r->dom[v] & ~r->par);
}

static bool summed(const Passes *r, KVal v) {
    for (KVal u = v + 1; u < r->k->nops; u++)
        if (r->k->ops[u].op == K_kreduce && r->k->ops[u].fold == FOLD_sum &&
            r->k->ops[u].in[0] == v)
            return true;
    return false;
}

/* m = max x, every use of m is x - m, and exp(x - m) is summed. */
EmitJoin rows_join(const Passes *r, KVal v) {
    const KOp *m = &r->k->ops[v];
    bool sum = false;
    if (m->op != K_kreduce || m->fold != FOLD_max) return emit_fold_join;
    for (KVal u = v + 1; u < r->k->nops; u++) {
        const KOp *o = &r->k->ops[u];
        bool used = o->in[0] == v || o->in[1] == v || o->in[2] == v;
        if (used && (o->op != OP_sub || o->in[0] != m->in[0])) return emit_fold_join;
        if (o->op != OP_exp || !r->k->ops[o->in[0]].op) continue;
        const KOp *d = &r->k->ops[o->in[0]];
        sum |= d->op == OP_sub && d->in[1] == v && summed(r, u);
    }
    return sum ? emit_fold_numbers : emit_fold_join;
}

/* --- Cones -------------------------------------------------------------------------------- */

typedef struct ConeWalk {
    const Passes *r;
    bool *cone;
} ConeWalk;

static void cone_of(const Passes *r, KVal v, bool *cone);

static void cone_sym(void *ctx, uint32_t sym) {
    ConeWalk *w = ctx;
    uint32_t bind;
    if (map_get(w->r->e->indirect, sym, &bind)) cone_of(w->r, bind, w->cone);
}

/* What computing v takes, stopping at folds with a pass of their own. */
static void cone_of(const Passes *r, KVal v, bool *cone) {
    if (!v || cone[v]) return;
    cone[v] = true;
    const KOp *o = &r->k->ops[v];
    ConeWalk w = {r, cone};
    if (o->index) expr_each_sym(r->e->exprs, o->index, cone_sym, &w);
    if (o->mask) expr_each_sym(r->e->exprs, o->mask, cone_sym, &w);
    for (int i = 0; i < 3; i++)
        if (o->in[i] && !rows_in_pass(r, o->in[i]) && !rows_is_walk(&r->k->ops[o->in[i]]))
            cone_of(r, o->in[i], cone);
}

static bool *cone_of_pass(const Passes *r, const Pass *p) {
    bool *cone = ARENA_ARRAY(r->e->arena, bool, r->k->nops);
    for (uint32_t i = 0; i < p->nfolds; i++) cone_of(r, r->k->ops[p->folds[i]].in[0], cone);
    for (uint32_t i = 0; i < p->nstores; i++) cone_of(r, p->stores[i], cone);
    return cone;
}

static double op_cost(const KOp *o) {
    if (o->op == K_kreduce) return 64;
    if (o->op == K_kload) return 2;
    return o->op < OP_COUNT ? (double)op_info[o->op].cost : 0;
}

uint32_t rows_cost(const Passes *r, const bool *cone) {
    double c = 0;
    for (KVal v = 1; v < r->k->nops; v++)
        if (cone[v]) c += op_cost(&r->k->ops[v]);
    return (uint32_t)c;
}

/* --- Passes ------------------------------------------------------------------------------- */

static void need_of(Passes *r, KVal v);

static void need_sym(void *ctx, uint32_t sym) {
    Passes *r = ctx;
    uint32_t bind;
    if (map_get(r->e->indirect, sym, &bind)) need_of(r, bind);
}

static void need_of(Passes *r, KVal v) {
    if (!v || r->need[v]) return;
    r->need[v] = true;
    const KOp *o = &r->k->ops[v];
    if (o->index) expr_each_sym(r->e->exprs, o->index, need_sym, r);
    if (o->mask) expr_each_sym(r->e->exprs, o->mask, need_sym, r);
    for (int i = 0; i < 3; i++) need_of(r, o->in[i]);
}

/* 1 + the highest level among the folds that v's cone uses. */
static uint32_t level_of(const Passes *r, KVal v, uint32_t *memo) {
    if (!v) return 0;
    if (memo[v]) return memo[v] - 1;
    const KOp *o = &r->k->ops[v];
    uint32_t l = 0;
    for (int i = 0; i < 3; i++) {
        uint32_t x = level_of(r, o->in[i], memo);
        if (x > l) l = x;
    }
    for (KVal b = 1; b < v; b++) {
        if (r->k->ops[b].op != K_kbind) continue;
        uint32_t s = r->k->ops[b].sym;
        if ((o->index && expr_uses(r->e->exprs, o->index, s)) ||
            (o->mask && expr_uses(r->e->exprs, o->mask, s))) {
            uint32_t x = level_of(r, b, memo);
            if (x > l) l = x;
        }
    }
    if (rows_in_pass(r, v) || rows_is_walk(o)) l++;
    memo[v] = l + 1;
    return l;
}

static Pass *pass_for(Passes *r, uint32_t axes) {
    if (r->npasses == ROWS_MAX_PASSES) return NULL;
    Pass *p = &r->pass[r->npasses++];
    p->axes = axes;
    p->folds = ARENA_ARRAY(r->e->arena, KVal, r->k->nops);
    p->stores = ARENA_ARRAY(r->e->arena, KVal, r->k->nops);
    return p;
}

/* Folds of one level over the same axes share a pass; a scan or sort has its own. */
static bool plan_folds(Passes *r, uint32_t *memo) {
    uint32_t top = 0;
    for (KVal v = 1; v < r->k->nops; v++)
        if (r->need[v] && level_of(r, v, memo) > top) top = level_of(r, v, memo);
    for (uint32_t l = 1; l <= top; l++) {
        uint32_t first = r->npasses;
        for (KVal v = 1; v < r->k->nops; v++) {
            const KOp *o = &r->k->ops[v];
            if (!r->need[v] || memo[v] != l + 1) continue;
            if (!rows_in_pass(r, v) && !rows_is_walk(o)) continue;
            Pass *p = NULL;
            for (uint32_t i = first; i < r->npasses && !rows_is_walk(o); i++)
                if (r->pass[i].axes == o->axes && !rows_is_walk(&r->k->ops[r->pass[i].folds[0]]))
                    p = &r->pass[i];
            if (p && p->nfolds == ROWS_MAX_FOLDS) p = NULL;
            if (!p) p = pass_for(r, o->axes);
            if (!p) return false;
            p->folds[p->nfolds++] = v;
        }
    }
    return true;
}

static bool plan_stores(Passes *r) {
    uint32_t first = r->npasses;
    for (KVal v = 1; v < r->k->nops; v++) {
        const KOp *o = &r->k->ops[v];
        if (o->op != K_kstore && o->op != K_katomic) continue;
        uint32_t axes = r->dom[v] & ~r->par;
        Pass *p = NULL;
        for (uint32_t i = first; i < r->npasses; i++)
            if (r->pass[i].axes == axes) p = &r->pass[i];
        if (!p) p = pass_for(r, axes);
        if (!p) return false;
        p->stores[p->nstores++] = v;
    }
    return true;
}

/* --- How passes move through memory ------------------------------------------------------- */

bool rows_stride(const Passes *r, Expr x, uint32_t axis, Expr *stride) {
    Expr rest;
    bool computed = false;
    for (KVal v = 1; v < r->k->nops; v++) {
        if (r->k->ops[v].op != K_kbind || !expr_uses(r->e->exprs, x, r->k->ops[v].sym)) continue;
        if (r->dom[v] >> axis & 1) return false;
        computed = true;
    }
    if (!computed) return emit_lane_stride(r->e, x, stride);
    return expr_affine(r->e->exprs, x, r->k->axes[axis].sym, stride, &rest);
}

/* --- All ---------------------------------------------------------------------------------- */

bool rows_passes(Passes *r, Emit *e, const Kernel *k) {
    return rows_passes_inside(r, e, k, 0);
}

bool rows_passes_inside(Passes *r, Emit *e, const Kernel *k, uint32_t walked) {
    uint32_t *memo = ARENA_ARRAY(e->arena, uint32_t, k->nops);
    *r = (Passes){.e = e, .k = k, .dom = e->domains, .par = par_axes(k) | walked};
    r->ordered = ordered_axes(e, k, r->par);
    r->par &= ~r->ordered;
    r->need = ARENA_ARRAY(e->arena, bool, k->nops);
    for (KVal v = 1; v < k->nops; v++)
        if (is_effect(&k->ops[v])) need_of(r, v);
    if (!plan_folds(r, memo) || !plan_stores(r)) return false;
    for (uint32_t p = 0; p < r->npasses; p++) r->pass[p].cone = cone_of_pass(r, &r->pass[p]);
    return true;
}

void rows_cone(const Passes *r, KVal v, bool *cone) {
    cone_of(r, v, cone);
}

/* --- Arg folds ---------------------------------------------------------------------------- */

/* The better of two (position, value) pairs; of equals the smaller (or larger) position. */
void rows_arg_join(Emit *e, KFold f, DType t, LLVMValueRef *a, const LLVMValueRef *b) {
    bool last = f == FOLD_argmax_last || f == FOLD_argmin_last;
    KFold strict = f == FOLD_argmax_last ? FOLD_argmax : f == FOLD_argmin_last ? FOLD_argmin : f;
    LLVMValueRef zero = emit_i(e, LLVMTypeOf(a[0]), 0);
    LLVMValueRef wins = emit_arg_beats(e, strict, t, b[1], a[1]);
    LLVMValueRef loses = emit_arg_beats(e, strict, t, a[1], b[1]);
    LLVMValueRef order = LLVMBuildICmp(e->b, last ? LLVMIntSGT : LLVMIntSLT, b[0], a[0], "");
    LLVMValueRef tie = LLVMBuildAnd(e->b, LLVMBuildNot(e->b, loses, ""), order, "");
    LLVMValueRef has = LLVMBuildICmp(e->b, LLVMIntSGE, b[0], zero, "");
    LLVMValueRef none = LLVMBuildICmp(e->b, LLVMIntSLT, a[0], zero, "");
    LLVMValueRef take = LLVMBuildOr(e->b, none, LLVMBuildOr(e->b, wins, tie, ""), "");
    take = LLVMBuildAnd(e->b, take, has, "");
    a[0] = LLVMBuildSelect(e->b, take, b[0], a[0], "");
    a[1] = LLVMBuildSelect(e->b, take, b[1], a[1], "");
}
