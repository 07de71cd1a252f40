/* What lies side by side in memory for copies, not for lanes.
 *
 * Loads, as a transpose has them: each lane's row is loaded as vectors along the copies' axis, and
 * they are turned in registers: a vector load for every copy instead of a gather. Stores of a few
 * copies whose lanes lie between each other, as when planes become pixels: their vectors are joined
 * to one, which is stored instead of elements one by one. */
#include "codegen/cpu/rows.h"
#include "codegen/emit/emit_internal.h"
#include "codegen/emit/shuffle.h"

void rows_enter(Rows *r, uint32_t copy) {
    const Copy *c = &r->copy[copy];
    emit_push(r->e);
    for (uint32_t i = 0; i < c->nbinds; i++) {
        if (c->lanes[i])
            emit_bind_lanes(r->e, c->sym[i], c->by[i], c->mask, true);
        else
            emit_bind(r->e, c->sym[i], c->by[i]);
    }
    for (uint32_t i = 0; i < c->known.n; i++) emit_override_at(r->e, c->known.v[i]);
}

/* Load v moves by whole rows along the lanes, and by one element along the other axis. */
static bool is_turned(const Rows *r, KVal v, uint32_t axis) {
    ExprPool *p = r->e->exprs;
    const KOp *o = &r->k->ops[v];
    Expr row, step, rest;
    if (o->op != K_kload || o->in[0] || o->dtype == DT_bool) return false;
    const uint32_t along = r->k->axes[axis].sym, lanes = r->k->axes[r->lane].sym;
    if (!expr_affine(p, o->index, along, &step, &rest) || !expr_is_value(p, step, 1)) return false;
    if (!expr_affine(p, o->index, lanes, &row, &rest)) return false;
    if (expr_is_value(p, row, 0) || expr_is_value(p, row, 1)) return false;
    return !o->mask || !expr_uses(p, o->mask, along);
}

bool rows_turns(const Rows *r, uint32_t axis) {
    bool any = false;
    for (KVal v = 1; v < r->k->nops; v++) {
        if (r->k->ops[v].op == K_kbind)
            return false; /* indices may move along with what it binds */
        any |= is_turned(r, v, axis);
    }
    return any;
}

/* v of all copies, which are as many as there are lanes or several times that. */
static void turn(Rows *r, KVal v) {
    Emit *e = r->e;
    const Expr tile = r->copy[0].by[0], lane = r->copy[0].by[1];
    const KAxis *along = &r->k->axes[r->tile], *lanes = &r->k->axes[r->lane];
    const Expr last = expr_addi(e->exprs, lanes->extent, -1);
    LLVMValueRef x[ROWS_MAX_COPIES];
    for (uint32_t j = 0; j < r->ncopies; j += e->lanes) {
        for (uint32_t i = 0; i < e->lanes; i++) {
            Expr row = expr_addi(e->exprs, lane, i); /* masked-off lanes have none */
            emit_push(e);
            emit_bind(e, lanes->sym, r->copy[0].mask ? expr_min(e->exprs, row, last) : row);
            emit_bind_lanes(e, along->sym, expr_addi(e->exprs, tile, j), NULL, true);
            x[i] = emit_value_lanes(e, v);
            emit_pop(e);
        }
        shuffle_transpose(e, x, e->lanes);
        for (uint32_t i = 0; i < e->lanes; i++) {
            EmitOverride known = {v, {.v = x[i], .depth = e->scope->depth}};
            vec_push(e->arena, &r->copy[j + i].known, known);
        }
    }
}

void rows_turn(Rows *r) {
    if (!r->turned || r->ncopies != r->tile_copies || r->ncopies % r->e->lanes) return;
    for (KVal v = 1; v < r->k->nops; v++)
        if (is_turned(r, v, (uint32_t)r->tile)) turn(r, v);
}

/* Store v puts n neighbours along the axis next to each other, and lanes behind them. */
static bool is_joined(const Rows *r, KVal v, uint32_t axis, int64_t n) {
    ExprPool *p = r->e->exprs;
    const KOp *o = &r->k->ops[v];
    Expr step, rest;
    if (o->mask || o->dtype == DT_bool) return false;
    if (!expr_affine(p, o->index, r->k->axes[axis].sym, &step, &rest)) return false;
    if (!expr_is_value(p, step, 1)) return false;
    return expr_affine(p, o->index, r->k->axes[r->lane].sym, &step, &rest) &&
           expr_is_value(p, step, n);
}

bool rows_joins(const Rows *r, uint32_t axis, int64_t n) {
    bool any = false;
    for (KVal v = 1; v < r->k->nops; v++) {
        const KOp *o = &r->k->ops[v];
        if (o->op == K_katomic || o->op == K_kcompact) return false;
        if (o->op == K_kstore && !is_joined(r, v, axis, n)) return false;
        any |= o->op == K_kstore;
    }
    return any;
}

/* Element i of the first vector, then of the second, and so on, for i in turn. */
static LLVMValueRef join(Emit *e, const LLVMValueRef *x, uint32_t n, uint32_t step) {
    if (n == 1) return x[0];
    LLVMValueRef even = join(e, x, n / 2, 2 * step), odd = join(e, x + step, n / 2, 2 * step);
    const uint32_t half = e->lanes * n / 2;
    LLVMValueRef *at = ARENA_ARRAY(e->arena, LLVMValueRef, 2 * half);
    for (uint32_t i = 0; i < 2 * half; i++)
        at[i] = LLVMConstInt(e->i32, i % 2 ? half + i / 2 : i / 2, false);
    return LLVMBuildShuffleVector(e->b, even, odd, LLVMConstVector(at, 2 * half), "");
}

void rows_join_store(Rows *r, KVal store) {
    Emit *e = r->e;
    const KOp *o = &r->k->ops[store];
    LLVMValueRef x[ROWS_MAX_COPIES];
    for (uint32_t c = 0; c < r->ncopies; c++) {
        rows_enter(r, c);
        x[c] = emit_value_lanes(e, o->in[0]);
        emit_pop(e);
    }
    rows_enter(r, 0);
    LLVMValueRef to = emit_address(e, o->buf, o->index);
    emit_store_ptr(e, join(e, x, r->ncopies, 1), to, (uint32_t)dtype_bytes((DType)o->dtype));
    emit_pop(e);
}
