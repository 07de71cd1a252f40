/* What a contraction multiplies: products that matrix units have, operands that the copy engine can
 * bring, in parts or as windows, and terms, other sums of products that are added to the kernel's.
 */
#include "codegen/nvptx/gemm/gemm_plan.h"

/* --- Products --------------------------------------------------------------------------------- */

/* What is multiplied, and what the sums are. */
// clang-format off
static const struct {
    DType a, b, sum;
    WgmmaType type;
} products[] = {
    {DT_f32, DT_f32, DT_f32, WGMMA_tf32},
    {DT_bf16, DT_bf16, DT_f32, WGMMA_bf16},
    {DT_f16, DT_f16, DT_f32, WGMMA_f16},
    {DT_f8e4m3fn, DT_f8e4m3fn, DT_f32, WGMMA_e4m3},
    {DT_f8e5m2, DT_f8e5m2, DT_f32, WGMMA_e5m2},
    {DT_i8, DT_i8, DT_i32, WGMMA_s8},
    {DT_i8, DT_u8, DT_i32, WGMMA_s8_u8},
    {DT_u8, DT_i8, DT_i32, WGMMA_u8_s8},
    {DT_u8, DT_u8, DT_i32, WGMMA_u8},
};
// clang-format on

/* NULL, or why matrix units have no such product. */
static const char *wgmma_type(DType a, DType b, DType sum, WgmmaType *out) {
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        if (products[i].a != a || products[i].b != b) continue;
        *out = products[i].type;
        return products[i].sum == sum ? NULL : "sums are of another type";
    }
    return "operands differ in type";
}

static bool is_multiplied(DType a) {
    bool is = false;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) is |= products[i].a == a;
    return is;
}

/* --- Operands --------------------------------------------------------------------------------- */

/* A cast that keeps every number, to what bytes or floats of 16 bits are computed in. */
static bool widens(const Kernel *k, const KOp *o) {
    DType to = (DType)o->dtype;
    if (o->op != OP_cast || (to != DT_f32 && to != DT_i16 && to != DT_i32)) return false;
    DType from = (DType)k->ops[o->in[0]].dtype;
    bool same = dtype_is_int(to) ? dtype_is_int(from) : dtype_is_float(from);
    return same && dtype_bytes(from) < dtype_bytes(to);
}

/* The load behind a factor: itself, or widened. */
static const KOp *factor_load(const Kernel *k, KVal v) {
    const KOp *o = &k->ops[v];
    while (widens(k, o)) o = &k->ops[o->in[0]];
    return o->op == K_kload && !o->in[0] ? o : NULL;
}

/* The access as matrices of `rows` x `cols` axes, one for each part. */
static bool part_matrices(Gpu *g, const GemmPlan *p, const KOp *o, uint32_t rows, uint32_t cols,
                          uint32_t batch, HopMatrix *out) {
    ExprPool *q = g->e->exprs;
    for (uint32_t i = 0; i < p->parts; i++) {
        KOp at = *o;
        if (p->part_axis) {
            Expr part = expr_const(q, i);
            uint32_t axis = (uint32_t)__builtin_ctz(p->part_axis);
            at.index = expr_subst(q, o->index, &g->k->axes[axis].sym, &part, 1);
        }
        if (!hop_matrix(g, &at, rows, cols, batch, &out[i])) return false;
    }
    return true;
}

static const char *plan_operand(Gpu *g, const GemmPlan *p, KVal v, uint32_t rows, uint32_t k,
                                uint32_t batch, GemmOperand *out) {
    const KOp *o = factor_load(g->k, v);
    if (!o) return "an operand is computed, not loaded";
    out->across = false;
    if (part_matrices(g, p, o, rows, k, batch, out->mat)) return NULL;
    out->across = true;
    if (part_matrices(g, p, o, k, rows, batch, out->mat))
        return dtype_bytes((DType)o->dtype) > 1 ? NULL
                                                : "an operand of 8 bits has rows across the sum";
    /* A convolution's only result: of a product, other structures read B as fast. */
    out->across = false;
    if (p->windowed && p->parts == 1 && hop_row(g, o, rows, k, batch, out->mat)) return NULL;
    return "an operand's rows are not 16-byte aligned, or not evenly spaced";
}

/* A, where it is no matrix: positions of a window. */
static const char *plan_window(Gpu *g, GemmPlan *p) {
    const KOp *o = factor_load(g->k, g->k->dot.a);
    const char *why = o ? window_of(g, o, &p->window) : "an operand is computed, not loaded";
    if (why) return why;
    p->windowed = true;
    p->a = (GemmOperand){.mat = {{.t = p->window.t, .pitch = p->window.dim[0].pitch}}};
    return NULL;
}

/* An axis of k with few points, which an operand is not evenly spaced along. */
static void find_parts(Gpu *g, GemmPlan *p) {
    const Kernel *k = g->k;
    const KDot *d = &k->dot;
    const KOp *o[2] = {factor_load(k, d->a), factor_load(k, d->b[0])};
    p->parts = 1;
    for (uint32_t i = 0; i < k->naxes && !p->part_axis; i++) {
        int64_t n;
        Expr coef, rest;
        if (!(d->k >> i & 1) || (d->k & ~(1u << i)) == 0) continue;
        if (!expr_is_const(g->e->exprs, k->axes[i].extent, &n) || n > GEMM_MAX_PARTS) continue;
        for (int s = 0; s < 2; s++) {
            if (!o[s] || expr_affine(g->e->exprs, o[s]->index, k->axes[i].sym, &coef, &rest))
                continue;
            p->parts = (uint32_t)n;
            p->part_axis = 1u << i;
        }
    }
}

const char *gemm_plan_operands(Gpu *g, GemmPlan *p) {
    const KDot *d = &g->k->dot;
    WgmmaType type = 0;
    find_parts(g, p);
    uint32_t k = d->k & ~p->part_axis, batch = d->batch;
    const char *why = plan_operand(g, p, d->a, d->m, k, batch, &p->a);
    if (why && p->parts == 1) why = plan_window(g, p);
    if (why) return why;
    if (p->windowed) {
        k = 1u << p->window.channel;
        batch |= p->window.taps;
    }
    if (!is_multiplied(p->a.mat[0].t)) return "operands are not of 8, 16 or 32 bits";
    bool f32 = p->a.mat[0].t == DT_f32;
    p->tf32 = f32 && g->o->tf32;
    p->exact = f32 && !p->tf32;
    p->window.tf32 = p->tf32;
    if (f32 && (p->parts > 1 || d->nacc > 1)) return "several sums of f32";
    for (uint32_t s = 0; s < d->nacc; s++) {
        why = plan_operand(g, p, d->b[s], d->n, k, batch, &p->b[s]);
        if (why) return why;
        why = wgmma_type(p->a.mat[0].t, p->b[s].mat[0].t, (DType)g->k->ops[d->acc[s]].dtype, &type);
        if (why) return why;
        if (s && type != p->type) return "operands differ in type";
        if (p->b[s].across != p->b[0].across) return "operands differ in order";
        p->type = type;
    }
    bool narrow = dtype_is_float(p->a.mat[0].t) && dtype_bytes(p->a.mat[0].t) == 1;
    p->promoted = narrow || p->parts > 1 || p->exact;
    if (p->tf32 && (p->a.across || p->b[0].across)) return "rows of tf32 that do not lie along k";
    p->a.mat[0].tf32 = p->b[0].mat[0].tf32 = p->tf32;
    return NULL;
}

bool gemm_turns(Gpu *g) {
    const KDot *d = &g->k->dot;
    GemmPlan p = {.parts = 1};
    GemmOperand b;
    if (!g->e->isa->warpgroups || g->k->tem != TEM_dot || d->nacc != 1 || !d->k || !d->n)
        return false;
    const KOp *o = factor_load(g->k, d->b[0]);
    if (!o || o->dtype != DT_f32 || g->o->tf32) return false;
    return !plan_operand(g, &p, d->b[0], d->n, d->k, d->batch, &b) && b.across;
}

/* --- Terms ------------------------------------------------------------------------------------ */

bool gemm_is_acc(const KDot *d, KVal v) {
    for (uint32_t s = 0; s < d->nacc; s++)
        if (d->acc[s] == v) return true;
    return false;
}

bool gemm_is_term(const GemmPlan *p, KVal v) {
    for (uint32_t i = 0; i < p->nterms; i++)
        if (p->term[i].sum == v) return true;
    return false;
}

/* The one addition that reads v, or 0. */
static KVal next_sum(const Kernel *k, KVal v) {
    KVal found = 0;
    for (KVal u = v + 1; u < k->nops; u++)
        for (int i = 0; i < 3; i++) {
            if (k->ops[u].in[i] != v) continue;
            if (found || k->ops[u].op != OP_add || k->ops[u].dtype != DT_f32) return 0;
            found = u;
        }
    return found;
}

/* Nothing but additions stands between a and b, so that both may be added up together. */
static bool meet(const Kernel *k, KVal a, KVal b) {
    while ((a = next_sum(k, a)))
        for (KVal x = b; (x = next_sum(k, x));)
            if (x == a) return true;
    return false;
}

static const char *plan_term(Gpu *g, GemmPlan *p, KVal v) {
    const Kernel *k = g->k;
    const KDot *d = &k->dot;
    const KOp *o = &k->ops[v], *m = &k->ops[o->in[0]];
    if (p->nterms == GEMM_MAX_TERMS || p->parts > 1 || p->windowed || p->promoted)
        return "too many sums";
    if (o->fold != FOLD_sum || o->dtype != DT_f32 || m->op != OP_mul || (o->axes & d->k))
        return "other folds in the kernel";
    GemmTerm t = {.sum = v, .k = gpu_points(g->e, k, o->axes)};
    while (t.to < d->nacc && !meet(k, v, d->acc[t.to])) t.to++;
    if (t.to == d->nacc) return "a sum that is not added to the others";
    if ((g->e->domains[m->in[0]] & d->n) || (g->e->domains[m->in[1]] & d->m))
        return "a sum of other products";
    const char *why = plan_operand(g, p, m->in[0], d->m, o->axes, d->batch, &t.a);
    if (!why) why = plan_operand(g, p, m->in[1], d->n, o->axes, d->batch, &t.b);
    if (!why && (t.a.mat[0].t != p->a.mat[0].t || t.b.mat[0].t != p->a.mat[0].t))
        why = "operands differ in type";
    t.a.mat[0].tf32 = t.b.mat[0].tf32 = p->tf32;
    p->term[p->nterms++] = t;
    return why;
}

const char *gemm_plan_terms(Gpu *g, GemmPlan *p) {
    const char *why = NULL;
    for (KVal v = 1; !why && v < g->k->nops; v++)
        if (g->k->ops[v].op == K_kreduce && !gemm_is_acc(&g->k->dot, v)) why = plan_term(g, p, v);
    return why;
}
