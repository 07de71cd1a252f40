/* Which gradients of attention go to tensor cores, and in which tiles. */
#include "codegen/nvptx/flash/backward.h"
#include <math.h>

/* From the fastest on. */
static const BackTile tiles[] = {
    {"192x64", 64, 3, 8, 32, 160},
    {"128x64", 128, 2, 8, 24, 240},
};

/* A build that spilled takes the next tile. */
static const BackTile *choose(const Gpu *g, const BackPlan *p) {
    const BackTile *best = NULL;
    uint32_t skip = g->j->shrink;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const BackTile *t = &tiles[i];
        if (p->d[0] > t->d || p->d[1] > t->d || p->n > t->d) continue;
        best = t;
        if (!skip--) break;
    }
    return best;
}

bool back_same_matrix(const HopMatrix *a, const HopMatrix *b) {
    bool same = a->buf == b->buf && a->t == b->t && a->base == b->base && a->cols == b->cols &&
                a->rows == b->rows && a->pitch == b->pitch && a->nbatch == b->nbatch;
    for (uint32_t i = 0; same && i < a->nbatch; i++)
        same = a->axis[i] == b->axis[i] && a->stride[i] == b->stride[i];
    return same;
}

static uint32_t stream_of(BackPlan *p, const HopMatrix *m, uint32_t cols) {
    for (uint32_t i = 0; i < p->nstreams; i++)
        if (p->cols[i] == cols && back_same_matrix(&p->stream[i], m)) return i;
    p->stream[p->nstreams] = *m;
    p->cols[p->nstreams] = cols;
    return p->nstreams++;
}

/* A head's size in whole panels; 0: not known, or too large. */
static uint32_t panels(const Emit *e, const HopMatrix *m) {
    int64_t d;
    if (!expr_is_const(e->exprs, m->cols, &d) || d < 1 || d > 128) return 0;
    return (uint32_t)(d + FLASH_PANEL - 1) / FLASH_PANEL * FLASH_PANEL;
}

const char *back_operand(Gpu *g, BackPlan *p, KVal v, uint32_t rows, uint32_t cols, double *scale,
                         HopMatrix *out, uint32_t *size) {
    const KOp *o = flash_plain_load(g->k, v, scale);
    if (!o) return "an operand is computed, not loaded";
    if (!hop_matrix(g, o, rows, cols, g->k->grad.batch, out))
        return "an operand's rows are not 16-byte aligned, or not evenly spaced";
    if (out->t != DT_bf16 && out->t != DT_f16) return "operands are not bf16 or f16";
    if (p->x[0].t && p->x[0].t != out->t) return "operands differ in type";
    *size = panels(g->e, out);
    return *size ? NULL : "heads are larger than 128";
}

static const char *plan_operands(Gpu *g, BackPlan *p) {
    const KAttnGrad *a = &g->k->grad;
    p->products = a->s[0] == a->s[1] ? 1 : 2;
    p->after = 1;
    for (uint32_t i = 0; i < p->products; i++) {
        HopMatrix y;
        uint32_t d = g->k->ops[a->s[i]].axes, dy;
        p->factor[i] = 1;
        const char *why = back_operand(g, p, a->x[i], a->i, d, &p->factor[i], &p->x[i], &p->d[i]);
        if (!why) why = back_operand(g, p, a->y[i], a->j, d, &p->factor[i], &y, &dy);
        if (why) return why;
        p->y[i] = stream_of(p, &y, dy);
    }
    HopMatrix b;
    const char *why = back_operand(g, p, a->b, a->j, a->n, &p->after, &b, &p->n);
    if (why) return why;
    p->b = stream_of(p, &b, p->n);
    p->type = p->x[0].t == DT_bf16 ? WGMMA_bf16 : WGMMA_f16;
    return NULL;
}

/* A load that depends on one of i and j alone is made ahead. */
static const char *plan_loads(Gpu *g, BackPlan *p) {
    const KAttnGrad *a = &g->k->grad;
    for (KVal v = 1; v < g->k->nops; v++) {
        uint32_t dom = g->e->domains[v];
        if (g->k->ops[v].op != K_kload || (dom & ~(a->batch | a->i | a->j))) continue;
        if (!(dom & a->i) == !(dom & a->j)) continue;
        BackLoads *l = dom & a->i ? &p->by_row : &p->by_column;
        if (l->n == BACK_LOADS) return "it reads too many vectors";
        l->v[l->n++] = v;
    }
    return NULL;
}

KVal back_behind_scales(const Kernel *k, KVal v, double *scale) {
    for (;;) {
        const KOp *o = &k->ops[v], *a = &k->ops[o->in[0]], *b = &k->ops[o->in[1]];
        if (o->op == OP_cast && dtype_is_float((DType)a->dtype)) {
            v = o->in[0];
        } else if (o->op == OP_mul && (a->op == K_konst || b->op == K_konst)) {
            *scale *= a->op == K_konst ? a->imm.f : b->imm.f;
            v = o->in[a->op == K_konst ? 1 : 0];
        } else {
            return v;
        }
    }
}

static const char *plan_result(Gpu *g, BackPlan *p) {
    const Kernel *k = g->k;
    const KAttnGrad *a = &k->grad;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        bool role = v == a->s[0] || v == a->s[1] || v == a->o;
        if ((o->op == K_kreduce && !role) || o->op == K_katomic || o->op == K_kbind)
            return "other folds in the kernel";
        if (o->op != K_kstore) continue;
        if (g->e->domains[v] != (a->batch | a->i | a->n)) return "results of other shapes";
        if (p->nstores == BACK_STORES) return "many results";
        p->store[p->nstores++] = v;
    }
    p->p = back_behind_scales(k, a->p, &p->after);
    return k->ops[p->p].dtype == DT_f32 ? NULL : "weights are not f32";
}

/* a - b is the given distance of j from i, or from what i sees. */
static bool apart(Emit *e, const Kernel *k, const KOp *o, Expr distance) {
    const KOp *a = &k->ops[o->in[0]], *b = &k->ops[o->in[1]];
    return a->op == K_kexpr && b->op == K_kexpr &&
           expr_sub(e->exprs, a->index, b->index) == distance;
}

/* The mask's comparison, in the spellings le and lt. past: how far j is past what i sees. */
void back_find_mask(Gpu *g, BackPlan *p) {
    const Kernel *k = g->k;
    ExprPool *q = g->e->exprs;
    if (!p->ahead == !p->behind) return;
    Expr i = expr_sym_ref(q, k->axes[__builtin_ctz(k->grad.i)].sym);
    Expr j = expr_sym_ref(q, k->axes[__builtin_ctz(k->grad.j)].sym);
    Expr past = p->ahead ? expr_sub(q, expr_sub(q, j, i), p->ahead)
                         : expr_sub(q, expr_sub(q, i, j), p->behind);
    for (KVal v = 1; v < k->nops && !p->seen; v++) {
        const KOp *o = &k->ops[v];
        bool le = o->op == OP_le, lt = o->op == OP_lt;
        bool shows =
            (le && apart(g->e, k, o, past)) || (lt && apart(g->e, k, o, expr_addi(q, past, -1)));
        bool hides = lt && apart(g->e, k, o, expr_muli(q, past, -1));
        if (!shows && !hides) continue;
        p->seen = v;
        p->shows = shows;
    }
}

const char *back_plan(Gpu *g, BackPlan *out) {
    const Kernel *k = g->k;
    const KAttnGrad *a = &k->grad;
    *out = (BackPlan){0};
    if (k->tem != TEM_attention_gradient || !a->i || !a->j || !a->d || !a->n)
        return "not a gradient of attention";
    const char *why = plan_operands(g, out);
    if (!why) why = plan_loads(g, out);
    if (!why) why = plan_result(g, out);
    if (why) return why;
    out->rows = gpu_points(g->e, k, a->i);
    out->columns = gpu_points(g->e, k, a->j);
    out->heads = gpu_points(g->e, k, a->batch);
    out->ahead = a->ahead;
    out->behind = a->behind;
    back_find_mask(g, out);
    out->tile = choose(g, out);
    return out->tile ? NULL : "no tile has registers for such heads";
}
