/* What the operands of a contraction have in common: groups of axes that are walked as one, and how
 * an index moves along them. */
#include "codegen/cpu/dot/dot.h"
#include <math.h>

void dot_group(Dot *d, DotGroup *g, uint32_t axes) {
    *g = (DotGroup){.size = expr_const(d->p, 1)};
    for (uint32_t i = 0; i < d->k->naxes; i++) {
        if (!(axes >> i & 1)) continue;
        g->axis[g->n++] = (uint8_t)i;
        g->size = expr_mul(d->p, g->size, d->k->axes[i].extent);
    }
}

void dot_bind(Dot *d, const DotGroup *g, Expr flat) {
    Expr inner = expr_const(d->p, 1);
    for (uint32_t i = g->n; i-- > 0;) {
        const KAxis *axis = &d->k->axes[g->axis[i]];
        Expr at = expr_div(d->p, flat, inner);
        emit_bind(d->e, axis->sym, i ? expr_mod(d->p, at, axis->extent) : at);
        inner = expr_mul(d->p, inner, axis->extent);
    }
}

void dot_bind_lanes(Dot *d, const DotGroup *g, Expr base, LLVMValueRef mask, bool aligned) {
    if (g->n == 1) {
        emit_bind_lanes(d->e, d->k->axes[g->axis[0]].sym, base, mask, aligned);
        return;
    }
    int64_t lo, hi;
    expr_range(d->p, g->size, &lo, &hi);
    SymInfo info = {.name = "column", .kind = SYM_AXIS, .hi = hi, .below = g->size};
    uint32_t flat = expr_sym_count(d->p);
    (void)expr_sym_new(d->p, info);
    emit_bind_lanes(d->e, flat, base, mask, aligned);
    dot_bind(d, g, expr_sym_ref(d->p, flat));
}

void dot_bind_columns(Dot *d, Expr base, LLVMValueRef mask) {
    dot_bind_lanes(d, &d->n, base, mask, true);
}

Expr dot_column(Dot *d, uint32_t j) {
    if (j == 1 && d->second) return d->second;
    return expr_addi(d->p, d->n0, (int64_t)(j * d->lanes));
}

void dot_column_masks(Dot *d, uint32_t nv, bool masked, LLVMValueRef *mask) {
    for (uint32_t j = 0; j < nv; j++) {
        mask[j] = NULL;
        if (!masked || (j == 1 && d->second)) continue;
        Expr base = dot_column(d, j);
        mask[j] = emit_lanes_below(d->e, emit_expr(d->e, expr_sub(d->p, d->n.size, base)));
    }
}

bool dot_moves_indirectly(Dot *d, const DotGroup *g, Expr x) {
    uint32_t axes = 0;
    for (uint32_t i = 0; i < g->n; i++) axes |= 1u << g->axis[i];
    for (KVal v = 1; v < d->k->nops; v++)
        if (d->k->ops[v].op == K_kbind && (d->e->domains[v] & axes) &&
            expr_uses(d->p, x, d->k->ops[v].sym))
            return true;
    return false;
}

uint32_t dot_uniform_stride(Dot *d, const DotGroup *g, Expr index, Expr *stride) {
    Expr rest = index, coef, want = 0;
    if (dot_moves_indirectly(d, g, index)) return 0;
    for (uint32_t n = 0; n < g->n; n++) {
        const KAxis *axis = &d->k->axes[g->axis[g->n - 1 - n]];
        if (!expr_affine(d->p, rest, axis->sym, &coef, &rest)) return n;
        for (uint32_t i = 0; i < d->k->naxes; i++)
            if (expr_uses(d->p, coef, d->k->axes[i].sym)) return n;
        if (n && coef != want) return n;
        if (!n) *stride = coef;
        want = expr_mul(d->p, coef, axis->extent);
    }
    return g->n;
}

KVal dot_load_of(Dot *d, KVal v) {
    const KOp *o = &d->k->ops[v];
    if (o->op == K_kload) return d->e->domains[v] & d->t->k ? v : 0;
    for (uint32_t i = 0; i < 3; i++) {
        KVal found = o->in[i] ? dot_load_of(d, o->in[i]) : 0;
        if (found) return found;
    }
    return 0;
}

bool dot_evens_rows(const Dot *d) {
    int64_t m;
    return expr_is_const(d->p, d->m.size, &m) ||
           (d->quads && d->e->isa->multiply_quads && !d->amx.on);
}

LLVMValueRef dot_first_row(Dot *d, LLVMValueRef tile) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    if (!dot_evens_rows(d)) return LLVMBuildMul(e->b, tile, emit_i64(e, DOT_ROWS), "");
    Expr low = expr_div(p, d->m.size, d->tiles), more = expr_mod(p, d->m.size, d->tiles);
    LLVMValueRef row = LLVMBuildMul(e->b, tile, emit_expr(e, low), "");
    if (expr_is_value(p, more, 0)) return row;
    LLVMValueRef v[2] = {tile, emit_expr(e, more)};
    return LLVMBuildAdd(e->b, row, emit_intrinsic(e, "llvm.smin", e->i64, v, 2), "");
}

LLVMValueRef dot_end_row(Dot *d, LLVMValueRef tile) {
    LLVMValueRef v[2] = {dot_first_row(d, tile), emit_expr(d->e, d->m.size)};
    return dot_evens_rows(d) ? v[0] : emit_intrinsic(d->e, "llvm.smin", d->e->i64, v, 2);
}

static bool is_widened_bf16(const Kernel *k, KVal v) {
    const KOp *o = &k->ops[v];
    return o->op == OP_cast && o->dtype == DT_f32 && k->ops[o->in[0]].dtype == DT_bf16;
}

/* An f32 that has no more digits than bf16: widened, perhaps only where padding leaves it. */
static bool is_like_bf16(const Kernel *k, KVal v) {
    const KOp *o = &k->ops[v];
    if (o->op == OP_select) return is_like_bf16(k, o->in[1]) && is_like_bf16(k, o->in[2]);
    return is_widened_bf16(k, v) ||
           (o->op == K_konst && o->dtype == DT_f32 && fpclassify(o->imm.f) == FP_ZERO);
}

bool dot_is_bf16(const Kernel *k) {
    const KDot *t = &k->dot;
    bool all = t->pairs && t->pack == DOT_PANEL && is_like_bf16(k, t->a);
    for (uint32_t i = 0; i < t->nacc; i++) all = all && is_widened_bf16(k, t->b[i]);
    return all;
}

uint32_t dot_group_rows(const Dot *d) {
    return d->t->quads ? 4 : d->t->pairs ? 2 : 1;
}
