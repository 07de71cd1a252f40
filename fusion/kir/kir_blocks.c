/* Contractions in blocks (KDot.block): what their operands are made of, and whether they are. */
#include "fusion/kir/kir_internal.h"
#include <math.h>
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
    int64_t rows, block;
} Walk;

static int64_t at_row(Walk *w, Expr e, int64_t row) {
    kir_set_axes(w->k, w->p, w->k->dot.k, row, w->value);
    return expr_eval(w->p, e, w->value);
}

/* Whether e is the same in all rows of every `unit` of them; seen in the first, the second and the
 * last block, and where the unit is a block in both ends of each. */
static bool stays(Walk *w, Expr e, int64_t unit) {
    const int64_t block = w->block, start[3] = {0, block, w->rows - block};
    for (int i = 0; e && i < 3; i++)
        for (int64_t r = start[i]; r < start[i] + block && r < w->rows; r++)
            if (at_row(w, e, r) != at_row(w, e, r / unit * unit)) return false;
    for (int64_t r = 0; e && unit == block && r < w->rows; r += block)
        if (at_row(w, e, r) != at_row(w, e, r + block - 1)) return false;
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
    if (w->block % per || !value_stays(w, b->word, per)) return false;
    for (int64_t r = 0; r < w->rows && r < 2 * w->block; r++)
        if (at_row(w, w->k->ops[b->shift].index, r) != r % per * b->bits) return false;
    return true;
}

/* Right operands, all of as many bits. */
static bool right_hold(Walk *w) {
    const KDot *t = &w->k->dot;
    KScaled b, first;
    if (!kir_scaled(w->k, t->b[0], &first)) return false;
    for (uint32_t i = 0; i < t->nacc; i++) {
        if (!kir_scaled(w->k, t->b[i], &b) || !b.word || b.bits != first.bits) return false;
        if (!in_words(w, &b) || !value_stays(w, b.scale, w->block)) return false;
        if (b.zero && !value_stays(w, b.zero, w->block)) return false;
    }
    return true;
}

static bool left_holds(Walk *w) {
    KScaled a;
    return kir_scaled(w->k, w->k->dot.a, &a) && !a.word && !a.zero &&
           value_stays(w, a.scale, w->block);
}

/* Addresses that the kernel computes hide the axes that they depend on. */
static bool is_indirect(const Kernel *k) {
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kbind) return true;
    return false;
}

/* Of k, where it is known; or 0. */
static int64_t rows_of(const Kernel *k, ExprPool *p) {
    int64_t size = 1, extent;
    for (uint32_t i = 0; i < k->naxes; i++) {
        if (!(k->dot.k >> i & 1)) continue;
        if (!expr_is_const(p, k->axes[i].extent, &extent)) return 0;
        size *= extent;
    }
    return size;
}

static bool walk_holds(const Kernel *k, ExprPool *p, int64_t block, bool (*holds)(Walk *w)) {
    const uint32_t n = expr_sym_count(p);
    Walk w = {k, p, calloc((size_t)n + 1, sizeof(int64_t)), rows_of(k, p), block};
    if (!w.value) arena_out_of_memory(n * sizeof(int64_t));
    for (uint32_t i = 0; i < n; i++) w.value[i] = expr_hint(p, expr_sym_ref(p, i));
    for (uint32_t i = 0; i < k->naxes; i++) w.value[k->axes[i].sym] = 0;
    const bool ok = holds(&w);
    free(w.value);
    return ok;
}

/* In f32, of operands that are not stored in a form of their own. */
static bool may_be_scaled(const Kernel *k) {
    return !k->dot.pack && !k->dot.wino && k->ops[k->dot.acc[0]].dtype == DT_f32 && !is_indirect(k);
}

static bool both_hold(Walk *w) {
    return left_holds(w) && right_hold(w);
}

bool kir_in_blocks(const Kernel *k, ExprPool *p) {
    const int64_t block = k->dot.block, rows = rows_of(k, p);
    const bool power = block >= 16 && block <= INT16_MAX && !(block & (block - 1));
    return power && rows && rows % block == 0 && may_be_scaled(k) &&
           walk_holds(k, p, block, both_hold);
}

/* --- Whether the right ones are --------------------------------------------------------------- */

/* Integers that were 8 bits at most, and perhaps something more. */
static bool are_integers(const Kernel *k, KVal v) {
    const KOp *o = &k->ops[v];
    if (o->op == K_konst)
        return o->imm.f >= 0 && o->imm.f <= UINT8_MAX && o->imm.f == rint(o->imm.f);
    if (o->op == OP_add) return are_integers(k, o->in[0]) && are_integers(k, o->in[1]);
    const DType from = o->op == OP_cast ? (DType)k->ops[o->in[0]].dtype : DT_f32;
    return dtype_is_int(from) && dtype_bytes(from) == 1;
}

uint32_t kir_part(const Kernel *k, ExprPool *p, uint32_t *bits) {
    const KDot *t = &k->dot;
    KScaled b = {0};
    if (t->block || t->quads || !may_be_scaled(k) || k->ops[t->a].dtype != DT_f32) return 0;
    for (uint32_t i = 0; i < t->nacc; i++)
        if (!kir_scaled(k, t->b[i], &b) || (b.zero && !are_integers(k, b.zero))) return 0;
    const int64_t rows = rows_of(k, p);
    if (bits) *bits = b.bits;
    for (uint32_t part = KIR_PART; part >= KIR_PART / 2; part /= 2)
        if (rows && rows % part == 0 && walk_holds(k, p, part, right_hold)) return part;
    return 0;
}
