/* Loads whose neighbours in memory are copies, not lanes: what a transpose reads. Each lane's row
 * is loaded as vectors along the copies' axis, and they are turned in registers: a vector load for
 * every copy instead of a gather. */
#include "codegen/cpu/rows.h"
#include "codegen/emit/emit_internal.h"
#include "codegen/emit/shuffle.h"

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
