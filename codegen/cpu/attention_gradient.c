/* Gradients of attention on CPUs. Work items are (batch and head, block of rows of the result):
 * each stores its own rows, so nothing is added across threads. Scores are computed again, tile by
 * tile, with rows over lanes; a block of them becomes p in place, and O += P^T B as in attention */
#include "codegen/cpu/attention.h"

typedef struct Gradient {
    Attn a; /* first, so that what attention's loops are given is one of these */
    const KAttnGrad *g;
    uint32_t products; /* 1 or 2 */
    AttnRows y[2];
    LLVMValueRef xt[2]; /* [size of y][nq] */
} Gradient;

static bool is_float_of(const Attn *t, KVal v) {
    return (DType)t->k->ops[v].dtype == t->acc;
}

static bool analyse(Gradient *x) {
    Attn *t = &x->a;
    const KAttnGrad *g = x->g;
    const Kernel *k = t->k;
    t->acc = (DType)k->ops[g->o].dtype;
    if (t->acc != DT_f32 && t->acc != DT_f64) return false;
    if (!is_float_of(t, g->p) || !is_float_of(t, g->b) || k->serial) return false;
    if (!attn_one_axis(g->i) || !attn_one_axis(g->j) || !attn_one_axis(g->n)) return false;
    for (int n = 0; n < 2; n++) {
        int64_t lo, hi;
        uint32_t d = k->ops[g->s[n]].axes;
        if (!attn_one_axis(d) || !is_float_of(t, g->s[n])) return false;
        if (!is_float_of(t, g->x[n]) || !is_float_of(t, g->y[n])) return false;
        expr_range(t->p, k->axes[__builtin_ctz(d)].extent, &lo, &hi);
        if (lo < 1) return false;
    }
    for (KVal v = 1; v < k->nops; v++) {
        bool own = t->e->domains[v] == (g->batch | g->i | g->n);
        if (k->ops[v].op == K_kstore && !own) return false;
        if (k->ops[v].op == K_katomic || k->ops[v].op == K_kcompact) return false;
    }
    return true;
}

static void reserve_all(Gradient *x) {
    Attn *t = &x->a;
    ExprPool *p = t->p;
    t->scores = attn_reserve(t, expr_const(p, (ATTN_KEYS + 16) * (int64_t)t->nq));
    t->out = attn_reserve(t, expr_muli(p, t->vr.padded, (int64_t)(t->nq + t->out_rows)));
    for (uint32_t n = 0; n < x->products; n++) {
        AttnRows *y = &x->y[n];
        x->xt[n] = attn_reserve(t, expr_muli(p, expr_addi(p, y->padded, t->lanes), t->nq));
        if (!y->direct) y->copy = attn_reserve(t, expr_muli(p, y->padded, ATTN_KEYS));
    }
    if (!t->vr.direct) t->vr.copy = attn_reserve(t, expr_muli(p, t->vr.padded, ATTN_KEYS));
}

/* The first product waits in `scores` for the second one. */
static void tile(Attn *t, AttnTile *s) {
    Gradient *x = (Gradient *)t;
    Emit *e = t->e;
    LLVMValueRef acc[32];
    uint32_t last = x->products - 1;
    for (uint32_t n = 0; n <= last; n++) {
        attn_products(t, s, &x->y[n], x->xt[n], x->y[n].size, acc);
        for (uint32_t i = 0; n < last && i < s->rows * s->nv; i++)
            attn_store(t, acc[i], t->scores, attn_score_at(t, s, i / s->nv, i % s->nv));
    }
    for (uint32_t v = 0; v < s->nv; v++) {
        emit_push(e);
        emit_bind_lanes(e, t->sym_i, expr_addi(t->p, s->query, (int64_t)(v * t->lanes)), s->mask[v],
                        true);
        for (uint32_t r = 0; r < s->rows; r++) {
            LLVMValueRef at = attn_score_at(t, s, r, v);
            emit_push(e);
            emit_bind(e, t->sym_j, s->j[r]);
            if (last) emit_override(e, x->g->s[0], attn_load(t, t->scores, at));
            emit_override(e, x->g->s[last], acc[r * s->nv + v]);
            attn_store(t, emit_value_lanes(e, x->g->p), t->scores, at);
            emit_pop(e);
        }
        emit_pop(e);
    }
}

static LLVMValueRef limit(Attn *t, const char *which, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef v[2] = {a, b};
    return emit_intrinsic(t->e, which, t->e->i64, v, 2);
}

/* Blocks of j, but for those where p is 0 for all rows. */
static void blocks(Gradient *x) {
    Attn *t = &x->a;
    Emit *e = t->e;
    EmitLoop l = {0};
    LLVMValueRef begin = emit_i64(e, 0), end = emit_expr(e, t->nj), step = emit_i64(e, ATTN_KEYS);
    if (x->g->behind) {
        LLVMValueRef first = LLVMBuildSub(e->b, t->query0, emit_expr(e, x->g->behind), "");
        begin = limit(t, "llvm.smax", begin, first);
    }
    if (x->g->ahead) {
        LLVMValueRef past = LLVMBuildAdd(e->b, t->query0, t->queries, "");
        end = limit(t, "llvm.smin", end, LLVMBuildAdd(e->b, past, emit_expr(e, x->g->ahead), ""));
    }
    emit_loop_begin(e, &l, "keys", begin, end, step, false);
    t->key0 = l.i;
    t->keys = limit(t, "llvm.smin", LLVMBuildSub(e->b, end, l.i, ""), step);
    for (uint32_t n = 0; n < x->products; n++) attn_copy_rows(t, &x->y[n]);
    attn_copy_rows(t, &t->vr);
    attn_tiles(t, tile);
    attn_outputs(t);
    emit_loop_end(e, &l);
}

static void part(Attn *t) {
    Gradient *x = (Gradient *)t;
    Emit *e = t->e;
    EmitLoop l = {0};
    for (uint32_t n = 0; n < x->products; n++)
        attn_transpose(t, x->g->x[n], t->k->axes[x->y[n].axis].sym, x->y[n].size, x->xt[n]);
    attn_clear_out(t);
    blocks(x);
    emit_loop_begin(e, &l, "row", emit_i64(e, 0), t->queries, emit_i64(e, 1), true);
    LLVMValueRef from = attn_at(t, t->out, attn_mul(t, l.i, emit_expr(e, t->vr.padded)));
    attn_finish_row(t, LLVMBuildAdd(e->b, t->query0, l.i, ""), l.i, from, NULL);
    emit_loop_end(e, &l);
}

static void parts(Attn *t) {
    attn_parts(t, part);
}

bool emit_attention_gradient_cpu(Emit *e, EmitInfo *info) {
    Gradient *x = ARENA_NEW(e->arena, Gradient);
    const KAttnGrad *g = &e->k->grad;
    *x = (Gradient){.g = g, .products = g->s[0] == g->s[1] ? 1 : 2};
    Attn *t = &x->a;
    *t = (Attn){.e = e, .k = e->k, .batch = g->batch, .result = g->o, .p = e->exprs};
    if (!analyse(x)) return false;
    attn_set_widths(t, g->i, g->j, g->n);
    t->vr = attn_rows(t, g->b, g->n);
    Expr macs = t->ndv;
    for (uint32_t n = 0; n < x->products; n++) {
        x->y[n] = attn_rows(t, g->y[n], e->k->ops[g->s[n]].axes);
        macs = expr_add(t->p, macs, x->y[n].size);
    }
    reserve_all(x);
    attn_items(t, info, macs, parts);
    return true;
}
