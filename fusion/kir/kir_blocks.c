/* Contractions in blocks (KDot.block): what their operands are made of, and whether they are. */
#include "fusion/kir/kir_internal.h"
#include <stdlib.h>

void kir_set_axes(const Kernel *k, ExprPool *p, uint32_t axes, int64_t at, int64_t *value) {
    for (uint32_t i = k->naxes; i-- > 0;) {
        if (!(axes >> i & 1)) continue;
        int64_t size = expr_eval(p, k->axes[i].extent, value);
        value[k->axes[i].sym] = size > 0 ? at % size : 0;
        at = size > 0 ? at / size : 0;
    }
}

int64_t kir_walk_length(const Kernel *k, ExprPool *p, uint32_t axes, const int64_t *value) {
    int64_t n = 1;
    for (uint32_t i = 0; i < k->naxes; i++)
        if (axes >> i & 1) n *= expr_eval(p, k->axes[i].extent, value);
    return n;
}

/* --- What a value is made of ------------------------------------------------------------------ */

/* q as some bits of a word. */
static bool few_bits(const Kernel *k, KScaled *x) {
    const KOp *ops = k->ops, *and = &ops[x->q];
    if (and->op != OP_and) return false;
    const int mask = ops[ and->in[0]].op == K_konst ? 0 : 1;
    const KOp *shr = &ops[ and->in[1 - mask]];
    if (ops[ and->in[mask]].op != K_konst || shr->op != OP_shr) return false;
    const int64_t bits = ops[ and->in[mask]].imm.i;
    x->bits = bits == 3 ? 2 : bits == 15 ? 4 : bits == 255 ? 8 : 0;
    x->word = shr->in[0];
    x->shift = shr->in[1];
    while (ops[x->shift].op == OP_cast) x->shift = ops[x->shift].in[0];
    return x->bits && ops[x->shift].op == K_kexpr;
}

bool kir_scaled(const Kernel *k, KVal v, KScaled *x) {
    const KOp *ops = k->ops, *mul = &ops[v];
    if (mul->op != OP_mul || mul->dtype != DT_f32) return false;
    for (int side = 0; side < 2; side++) {
        const KOp *o = &ops[mul->in[side]];
        *x = (KScaled){.scale = mul->in[1 - side]};
        if (o->op == OP_sub) {
            x->zero = o->in[1];
            o = &ops[o->in[0]];
        }
        if (o->op != OP_cast) continue;
        x->q = o->in[0];
        if (ops[x->q].dtype == DT_i8 || (ops[x->q].dtype == DT_u32 && few_bits(k, x))) return true;
    }
    return false;
}

/* --- Whether they are in blocks --------------------------------------------------------------- */

/* A walk along k at typical sizes, which refutes what holds for some. */
typedef struct Walk {
    const Kernel *k;
    ExprPool *p;
    int64_t *value;
    int64_t rows;
} Walk;

static int64_t at_row(Walk *w, Expr e, int64_t row) {
    kir_set_axes(w->k, w->p, w->k->dot.k, row, w->value);
    return expr_eval(w->p, e, w->value);
}

/* Whether e is the same in all rows of every `unit` of them; seen in the first, the second and the
 * last block. */
static bool stays(Walk *w, Expr e, int64_t unit) {
    const int64_t block = w->k->dot.block, start[3] = {0, block, w->rows - block};
    for (int i = 0; e && i < 3; i++)
        for (int64_t r = start[i]; r < start[i] + block && r < w->rows; r++)
            if (at_row(w, e, r) != at_row(w, e, r / unit * unit)) return false;
    return true;
}

static bool value_stays(Walk *w, KVal v, int64_t unit) {
    const KOp *o = &w->k->ops[v];
    if (o->op >= OP_COUNT && o->op != K_konst && o->op != K_kexpr && o->op != K_kload) return false;
    if (!stays(w, o->index, unit) || !stays(w, o->mask, unit)) return false;
    for (int i = 0; i < 3; i++)
        if (o->in[i] && !value_stays(w, o->in[i], unit)) return false;
    return true;
}

/* Rows lie in words from their lowest bits on. */
static bool in_words(Walk *w, const KScaled *b) {
    const int64_t per = 32 / b->bits;
    if (w->k->dot.block % per || !value_stays(w, b->word, per)) return false;
    for (int64_t r = 0; r < w->rows && r < 2 * w->k->dot.block; r++)
        if (at_row(w, w->k->ops[b->shift].index, r) != r % per * b->bits) return false;
    return true;
}

static bool operands_hold(Walk *w) {
    const KDot *t = &w->k->dot;
    KScaled a, b, first;
    if (!kir_scaled(w->k, t->a, &a) || a.word || a.zero) return false;
    if (!value_stays(w, a.scale, t->block) || !kir_scaled(w->k, t->b[0], &first)) return false;
    for (uint32_t i = 0; i < t->nacc; i++) {
        if (!kir_scaled(w->k, t->b[i], &b) || !b.word || b.bits != first.bits) return false;
        if (!in_words(w, &b) || !value_stays(w, b.scale, t->block)) return false;
        if (b.zero && !value_stays(w, b.zero, t->block)) return false;
    }
    return true;
}

/* Addresses that the kernel computes hide the axes that they depend on. */
static bool is_indirect(const Kernel *k) {
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kbind) return true;
    return false;
}

bool kir_in_blocks(const Kernel *k, ExprPool *p) {
    const KDot *t = &k->dot;
    const uint32_t n = expr_sym_count(p);
    int64_t size = 1, extent;
    for (uint32_t i = 0; i < k->naxes; i++) {
        if (!(t->k >> i & 1)) continue;
        if (!expr_is_const(p, k->axes[i].extent, &extent)) return false;
        size *= extent;
    }
    const bool power = t->block >= 16 && t->block <= INT16_MAX && !(t->block & (t->block - 1));
    const bool whole = power && size && size % t->block == 0;
    if (!whole || t->pack || t->wino || k->ops[t->acc[0]].dtype != DT_f32 || is_indirect(k))
        return false;
    Walk w = {k, p, calloc((size_t)n + 1, sizeof(int64_t)), size};
    if (!w.value) arena_out_of_memory(n * sizeof(int64_t));
    for (uint32_t i = 0; i < n; i++) w.value[i] = expr_hint(p, expr_sym_ref(p, i));
    for (uint32_t i = 0; i < k->naxes; i++) w.value[k->axes[i].sym] = 0;
    const bool ok = operands_hold(&w);
    free(w.value);
    return ok;
}
