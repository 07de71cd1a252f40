/* Attention on CPUs: what it can take, its memory, and which loop structure runs. */
#include "codegen/cpu/attention.h"

/* Axes of one element, which no index mentions: a single query's. */
static uint32_t single_axes(const Attn *t) {
    uint32_t set = 0;
    for (uint32_t i = 0; i < t->k->naxes; i++)
        if (expr_is_value(t->p, t->k->axes[i].extent, 1)) set |= 1u << i;
    return set;
}

static bool analyse(Attn *t) {
    const KAttn *a = t->t;
    const Kernel *k = t->k;
    t->acc = (DType)k->ops[a->o].dtype;
    if (t->acc != DT_f32 && t->acc != DT_f64) return false;
    if (k->ops[a->s].dtype != t->acc || k->ops[a->score].dtype != t->acc) return false;
    if (k->ops[a->v].dtype != t->acc || k->ops[a->q].dtype != t->acc || k->serial) return false;
    if (!attn_one_axis(a->i) || !attn_one_axis(a->j) || !attn_one_axis(a->d) ||
        !attn_one_axis(a->dv))
        return false;
    uint32_t single = single_axes(t) & ~a->dv, own = a->batch | a->i | a->dv | single;
    for (KVal v = 1; v < k->nops; v++) {
        uint32_t domain = t->e->domains[v] | single;
        if (k->ops[v].op == K_kstore && domain != own && domain != (own & ~a->dv)) return false;
        if (k->ops[v].op == K_katomic || k->ops[v].op == K_kcompact) return false;
    }
    int64_t lo, hi;
    expr_range(t->p, k->axes[__builtin_ctz(a->d)].extent, &lo, &hi);
    return lo > 0;
}

#define KEPT_BYTES (1 << 20)

/* Where several blocks of queries read what has to be copied, it is copied once for all of them, if
 * that is known to be little. */
static void keep(Attn *t, AttnRows *r) {
    int64_t queries, least, most;
    if (!expr_is_const(t->p, t->ni, &queries)) return;
    expr_range(t->p, expr_mul(t->p, t->nj, r->padded), &least, &most);
    r->kept = !r->direct && queries > ATTN_UNIT * ATTN_UNITS && most <= KEPT_BYTES / t->bytes;
}

static void set_rows(Attn *t) {
    uint32_t d = (uint32_t)__builtin_ctz(t->t->d);
    t->sym_d = t->k->axes[d].sym;
    t->nd = t->k->axes[d].extent;
    t->kr = attn_rows(t, t->t->k, t->t->d);
    t->vr = attn_rows(t, t->t->v, t->t->dv);
    keep(t, &t->kr);
    keep(t, &t->vr);
}

static void reserve_all(Attn *t) {
    ExprPool *p = t->p;
    Expr row = expr_const(p, t->nq), keys = expr_const(p, ATTN_KEYS);
    Expr wide = expr_muli(p, expr_addi(p, t->kr.padded, t->lanes), t->nq);
    t->qt = attn_reserve(t, wide);
    t->scores = attn_reserve(t, expr_const(p, (ATTN_KEYS + 16) * (int64_t)t->nq));
    t->out = attn_reserve(t, expr_muli(p, t->vr.padded, (int64_t)(t->nq + t->out_rows)));
    t->max = attn_reserve(t, row);
    t->sum = attn_reserve(t, row);
    t->scale = attn_reserve(t, expr_addi(p, row, t->out_rows));
    t->block_max = attn_reserve(t, row);
    AttnRows *rows[2] = {&t->kr, &t->vr};
    for (int i = 0; i < 2; i++)
        if (!rows[i]->direct)
            rows[i]->copy =
                attn_reserve(t, expr_mul(p, rows[i]->kept ? t->nj : keys, rows[i]->padded));
}

static void both_forms(Attn *t) {
    Emit *e = t->e;
    int64_t n;
    if (expr_is_const(t->p, t->ni, &n)) {
        if (n < ATTN_FEW)
            attn_few(t);
        else
            attn_many(t);
        return;
    }
    EmitIf few, many;
    LLVMValueRef some = emit_i64(e, ATTN_FEW);
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntSLT, emit_expr(e, t->ni), some, "");
    LLVMValueRef not = LLVMBuildNot(e->b, is, "");
    emit_if_begin(e, &few, is);
    attn_few(t);
    emit_if_end(e, &few);
    emit_if_begin(e, &many, not );
    attn_many(t);
    emit_if_end(e, &many);
}

bool emit_attention_cpu(Emit *e, EmitInfo *info) {
    Attn *t = ARENA_NEW(e->arena, Attn);
    const KAttn *a = &e->k->attn;
    *t = (Attn){.e = e,
                .k = e->k,
                .t = a,
                .batch = a->batch,
                .result = a->o,
                .p = e->exprs,
                .shift = a->causal};
    if (!analyse(t)) return false;
    attn_set_widths(t, a->i, a->j, a->dv);
    set_rows(t);
    reserve_all(t);
    attn_items(t, info, expr_add(e->exprs, t->nd, t->ndv), both_forms);
    return true;
}
