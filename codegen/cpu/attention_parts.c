/* What attention on CPUs is made of, its gradients too: vectors, rows of K and V, results, blocks
 * of keys, work items. */
#include "codegen/cpu/attention.h"
#include <math.h>

/* --- Small builders ----------------------------------------------------------------------- */

LLVMValueRef attn_at(Attn *t, LLVMValueRef base, LLVMValueRef index) {
    return emit_gep(t->e, t->elem, base, index);
}

LLVMValueRef attn_load(Attn *t, LLVMValueRef base, LLVMValueRef index) {
    return emit_load(t->e, t->vec, attn_at(t, base, index), t->bytes);
}

void attn_store(Attn *t, LLVMValueRef v, LLVMValueRef base, LLVMValueRef index) {
    emit_store_ptr(t->e, v, attn_at(t, base, index), t->bytes);
}

LLVMValueRef attn_add(Attn *t, LLVMValueRef x, int64_t c) {
    return c ? LLVMBuildAdd(t->e->b, x, emit_i64(t->e, c), "") : x;
}

LLVMValueRef attn_mul(Attn *t, LLVMValueRef x, LLVMValueRef y) {
    return LLVMBuildMul(t->e->b, x, y, "");
}

LLVMValueRef attn_max(Attn *t, LLVMValueRef x, LLVMValueRef y) {
    return LLVMBuildSelect(t->e->b, LLVMBuildFCmp(t->e->b, LLVMRealOGT, y, x, ""), y, x, "");
}

LLVMValueRef attn_exp(Attn *t, LLVMValueRef x) {
    return emit_exp_below(t->e, x);
}

static LLVMValueRef no_score(Attn *t, LLVMValueRef max) {
    LLVMValueRef inf = emit_f(t->e, LLVMTypeOf(max), -INFINITY);
    return LLVMBuildFCmp(t->e->b, LLVMRealOEQ, max, inf, "");
}

LLVMValueRef attn_finite(Attn *t, LLVMValueRef max) {
    return LLVMBuildSelect(t->e->b, no_score(t, max), LLVMConstNull(LLVMTypeOf(max)), max, "");
}

LLVMValueRef attn_inverse(Attn *t, LLVMValueRef max, LLVMValueRef sum) {
    LLVMTypeRef type = LLVMTypeOf(sum);
    LLVMValueRef one = emit_f(t->e, type, 1);
    LLVMValueRef inverse = LLVMBuildFDiv(t->e->b, one, sum, ""), zero = LLVMConstNull(type);
    int64_t lo, hi;
    expr_range(t->p, t->nj, &lo, &hi);
    if (t->t->guarded) inverse = LLVMBuildSelect(t->e->b, no_score(t, max), zero, inverse, "");
    if (lo > 0) return inverse;
    /* A sum over no keys at all is 0, whatever it would be divided by. */
    LLVMValueRef some =
        LLVMBuildICmp(t->e->b, LLVMIntNE, emit_expr(t->e, t->nj), emit_i64(t->e, 0), "");
    return emit_select(t->e, some, inverse, zero);
}

/* --- K and V ------------------------------------------------------------------------------ */

LLVMValueRef attn_row(Attn *t, const AttnRows *r, LLVMValueRef row) {
    Emit *e = t->e;
    if (r->kept) row = LLVMBuildAdd(e->b, t->key0, row, "");
    if (!r->direct) return attn_at(t, r->copy, attn_mul(t, row, emit_expr(e, r->padded)));
    const KOp *load = &t->k->ops[r->v];
    emit_push(e);
    LLVMValueRef key = LLVMBuildAdd(e->b, t->key0, row, "");
    emit_bind(e, t->sym_j, emit_below(t->e, "j", t->nj, key));
    emit_bind(e, t->k->axes[r->axis].sym, expr_const(t->p, 0));
    LLVMValueRef p = emit_address(e, load->buf, load->index);
    emit_pop(e);
    return p;
}

/* Rounded up with zeros, so that sums over whole vectors are right. */
static void copy_rows(Attn *t, const AttnRows *r) {
    Emit *e = t->e;
    EmitLoop row = {0}, at = {0};
    LLVMValueRef zero = emit_i64(e, 0), size = emit_expr(e, r->size);
    emit_loop_begin(e, &row, "copy", zero, t->keys, emit_i64(e, 1), false);
    emit_bind(e, t->sym_j, emit_below(t->e, "j", t->nj, LLVMBuildAdd(e->b, t->key0, row.i, "")));
    LLVMValueRef to = attn_mul(t, row.i, emit_expr(e, r->padded));
    emit_loop_begin(e, &at, "copy", zero, size, emit_i64(e, t->lanes), false);
    LLVMValueRef left = LLVMBuildSub(e->b, size, at.i, "");
    LLVMValueRef mask = r->whole ? NULL : emit_lanes_below(e, left);
    emit_bind_lanes(e, t->k->axes[r->axis].sym, emit_below(t->e, "at", r->size, at.i), mask, true);
    LLVMValueRef v = emit_value_lanes(e, r->v);
    if (mask) v = LLVMBuildSelect(e->b, mask, v, LLVMConstNull(t->vec), "");
    attn_store(t, v, r->copy, LLVMBuildAdd(e->b, to, at.i, ""));
    emit_loop_end(e, &at);
    emit_loop_end(e, &row);
}

void attn_copy_rows(Attn *t, const AttnRows *r) {
    if (!r->direct && !r->kept) copy_rows(t, r);
}

void attn_keep_rows(Attn *t) {
    EmitIf fresh;
    if (!t->kr.kept && !t->vr.kept) return;
    emit_if_begin(t->e, &fresh, t->fresh);
    t->key0 = emit_i64(t->e, 0);
    t->keys = emit_expr(t->e, t->nj);
    if (t->kr.kept) copy_rows(t, &t->kr);
    if (t->vr.kept) copy_rows(t, &t->vr);
    emit_if_end(t->e, &fresh);
}

#define QUICK_OPS 3 /* a load widened and scaled */

/* Counts ops of v, constants and what is the same all along the row aside. Every load is of
 * neighbours. */
static bool is_quick(Attn *t, KVal v, uint32_t axis, uint32_t *ops) {
    const KOp *o = &t->k->ops[v];
    Expr coef, rest;
    if (!(t->e->domains[v] >> axis & 1)) return o->op == K_konst;
    if (++*ops > QUICK_OPS) return false;
    if (o->op == K_kload)
        return !o->mask && dtype_is_float((DType)o->dtype) &&
               expr_affine(t->p, o->index, t->k->axes[axis].sym, &coef, &rest) &&
               expr_is_value(t->p, coef, 1);
    if (o->op != OP_mul && o->op != OP_cast) return false;
    for (int i = 0; i < 3; i++)
        if (o->in[i] && !is_quick(t, o->in[i], axis, ops)) return false;
    return true;
}

AttnRows attn_rows(Attn *t, KVal v, uint32_t axes) {
    ExprPool *p = t->p;
    uint32_t axis = (uint32_t)__builtin_ctz(axes), sym = t->k->axes[axis].sym;
    AttnRows r = {.v = v, .axis = axis, .size = t->k->axes[axis].extent};
    const KOp *o = &t->k->ops[v];
    Expr lanes = expr_const(p, t->lanes), coef, rest;
    r.padded = expr_muli(p, expr_ceildiv(p, r.size, lanes), t->lanes);
    r.whole = expr_divisor(p, r.size) % t->lanes == 0;
    r.direct = r.whole && o->op == K_kload && (DType)o->dtype == t->acc && !o->mask &&
               expr_affine(p, o->index, sym, &coef, &rest) && expr_is_value(p, coef, 1);
    uint32_t ops = 0;
    r.quick = r.whole && !r.direct && is_quick(t, v, axis, &ops);
    return r;
}

/* --- Finishing ---------------------------------------------------------------------------- */

/* What is stored once per query, or once per element of its result. */
static void store_all(Attn *t, bool per_query) {
    for (KVal v = 1; v < t->k->nops; v++)
        if (t->k->ops[v].op == K_kstore && per_query == !(t->e->domains[v] & 1u << t->vr.axis))
            emit_store(t->e, v);
}

static bool has_statistics(const Attn *t) {
    for (KVal v = 1; v < t->k->nops; v++)
        if (t->k->ops[v].op == K_kstore && !(t->e->domains[v] & 1u << t->vr.axis)) return true;
    return false;
}

uint32_t attn_chunk(const Attn *t) {
    return t->t && !has_statistics(t) ? ATTN_ALONE : ATTN_CHUNK;
}

/* The sum is one against `attn_finite` of the maximum, as the body's is. */
static void store_statistics(Attn *t, LLVMValueRef row) {
    Emit *e = t->e;
    if (!has_statistics(t)) return;
    emit_override(e, t->t->m, emit_load(e, t->elem, attn_at(t, t->max, row), t->bytes));
    emit_override(e, t->t->l, emit_load(e, t->elem, attn_at(t, t->sum, row), t->bytes));
    store_all(t, true);
}

void attn_finish_row(Attn *t, LLVMValueRef query, LLVMValueRef row, LLVMValueRef from,
                     LLVMValueRef inverse) {
    Emit *e = t->e;
    EmitLoop l = {0};
    emit_push(e);
    emit_bind(e, t->sym_i, emit_below(t->e, "i", t->ni, query));
    if (inverse) store_statistics(t, row);
    LLVMValueRef size = emit_expr(e, t->ndv), all = inverse ? emit_splat(e, inverse) : NULL;
    emit_loop_begin(e, &l, "finish", emit_i64(e, 0), size, emit_i64(e, t->lanes), false);
    LLVMValueRef left = LLVMBuildSub(e->b, size, l.i, "");
    LLVMValueRef mask = t->vr.whole ? NULL : emit_lanes_below(e, left);
    emit_bind_lanes(e, t->sym_dv, emit_below(t->e, "column", t->ndv, l.i), mask, true);
    LLVMValueRef v = attn_load(t, from, l.i);
    emit_override(e, t->result, all ? LLVMBuildFMul(e->b, v, all, "") : v);
    store_all(t, false);
    emit_loop_end(e, &l);
    emit_pop(e);
}

void attn_key_blocks(Attn *t, LLVMValueRef last_query, void (*body)(Attn *t)) {
    Emit *e = t->e;
    EmitLoop l = {0};
    LLVMValueRef end = emit_expr(e, t->nj), step = emit_i64(e, ATTN_KEYS);
    if (t->shift) {
        LLVMValueRef seen = LLVMBuildAdd(e->b, last_query, emit_expr(e, t->shift), "");
        LLVMValueRef lim[2] = {attn_add(t, seen, 1), end};
        end = emit_intrinsic(e, "llvm.smin", e->i64, lim, 2);
    }
    emit_loop_begin(e, &l, "keys", emit_i64(e, 0), end, step, false);
    t->key0 = l.i;
    LLVMValueRef lim[2] = {LLVMBuildSub(e->b, end, l.i, ""), step};
    t->keys = emit_intrinsic(e, "llvm.smin", e->i64, lim, 2);
    body(t);
    emit_loop_end(e, &l);
}

/* --- Widths and work items ---------------------------------------------------------------- */

bool attn_one_axis(uint32_t axes) {
    return axes && !(axes & (axes - 1));
}

void attn_set_widths(Attn *t, uint32_t i, uint32_t j, uint32_t dv) {
    Emit *e = t->e;
    const KAxis *axes = t->k->axes;
    const KAxis *x = &axes[__builtin_ctz(i)], *y = &axes[__builtin_ctz(j)];
    t->sym_i = x->sym, t->sym_j = y->sym, t->sym_dv = axes[__builtin_ctz(dv)].sym;
    t->ni = x->extent, t->nj = y->extent, t->ndv = axes[__builtin_ctz(dv)].extent;
    t->bytes = (uint32_t)dtype_bytes(t->acc);
    e->lanes = t->lanes = e->isa->lanes * 4 / t->bytes;
    t->elem = emit_type(e, t->acc);
    t->vec = emit_vec(t->elem, t->lanes);
    /* Four vectors of queries beside six keys on 32 registers, two on 16; a unit at least. */
    t->nv = e->isa->vector_regs >= 32 ? 4 : 2;
    if (t->nv * t->lanes < ATTN_UNIT) t->nv = ATTN_UNIT / t->lanes;
    t->nq = t->nv * t->lanes;
    /* Whole rows of values at a time where four vectors make them: fewer loads for as much. On 16
     * registers three vectors beside four queries: sums of eight would wait for each other. */
    const bool wide = e->isa->vector_regs >= 32;
    t->out_nv = !wide ? 3 : expr_divisor(t->p, t->ndv) % (4 * t->lanes) == 0 ? 4 : 2;
    t->out_rows = wide ? 16 / t->out_nv : 4;
}

LLVMValueRef attn_reserve(Attn *t, Expr elements) {
    return emit_scratch(t->e, expr_muli(t->p, elements, t->bytes));
}

static void bind_batch(Attn *t, Expr flat) {
    ExprPool *p = t->p;
    Expr inner = expr_const(p, 1);
    for (uint32_t i = t->k->naxes; i-- > 0;) {
        if (!(t->batch >> i & 1)) continue;
        const KAxis *axis = &t->k->axes[i];
        bool outermost = (t->batch & ((1u << i) - 1)) == 0;
        Expr at = expr_div(p, flat, inner);
        emit_bind(t->e, axis->sym, outermost ? at : expr_mod(p, at, axis->extent));
        inner = expr_mul(p, inner, axis->extent);
    }
}

static Expr batch_size(Attn *t) {
    Expr n = expr_const(t->p, 1);
    for (uint32_t i = 0; i < t->k->naxes; i++)
        if (t->batch >> i & 1) n = expr_mul(t->p, n, t->k->axes[i].extent);
    return n;
}

/* Queries [query0, query0 + queries) of the item, cut so that blocks differ by one unit at most.
 * Gives its batch. */
static LLVMValueRef item(Attn *t, LLVMValueRef number, Expr blocks, Expr units) {
    Emit *e = t->e;
    LLVMValueRef nb = emit_expr(e, blocks), nu = emit_expr(e, units);
    LLVMValueRef b = LLVMBuildUDiv(e->b, number, nb, "");
    LLVMValueRef block = LLVMBuildSub(e->b, number, attn_mul(t, b, nb), "");
    bind_batch(t, emit_below(t->e, "batch", batch_size(t), b));
    LLVMValueRef first = LLVMBuildUDiv(e->b, attn_mul(t, block, nu), nb, "");
    LLVMValueRef last = LLVMBuildUDiv(e->b, attn_mul(t, attn_add(t, block, 1), nu), nb, "");
    LLVMValueRef unit = emit_i64(e, ATTN_UNIT);
    t->query0 = attn_mul(t, first, unit);
    LLVMValueRef lim[2] = {attn_mul(t, last, unit), emit_expr(e, t->ni)};
    LLVMValueRef end = emit_intrinsic(e, "llvm.smin", e->i64, lim, 2);
    t->queries = LLVMBuildSub(e->b, end, t->query0, "");
    return b;
}

void attn_items(Attn *t, EmitInfo *info, Expr macs, void (*body)(Attn *t)) {
    Emit *e = t->e;
    ExprPool *p = e->exprs;
    Expr units = expr_ceildiv(p, t->ni, expr_const(p, ATTN_UNIT));
    Expr blocks = expr_ceildiv(p, units, expr_const(p, ATTN_UNITS));
    info->work = expr_mul(p, batch_size(t), blocks);
    macs = expr_mul(p, expr_mul(p, t->ni, t->nj), macs);
    info->cost = expr_div(p, expr_mul(p, batch_size(t), macs), expr_const(p, 45));
    EmitLoop l = emit_loop(e, 1);
    l.init[0] = emit_i64(e, -1);
    emit_loop_begin(e, &l, "item", e->begin, e->end, emit_i64(e, 1), false);
    l.next[0] = item(t, l.i, blocks, units);
    t->fresh = LLVMBuildICmp(e->b, LLVMIntNE, l.next[0], l.phi[0], "");
    body(t);
    emit_loop_end(e, &l);
}
