/* Rows that lie no whole number of vectors apart. This one and every classes-th behind it begin at
 * the same element of a vector, and are one thread's, whose vectors begin there: `shift` columns in
 * front of the row's, so that all it reads is whole vectors at their places in memory. */
#include "codegen/nvptx/column/column.h"

uint32_t column_width(const Column *c) {
    return c->wide * c->lanes;
}

uint32_t column_own(const Column *c) {
    return c->classes ? column_width(c) - c->lanes : column_width(c);
}

uint32_t column_room(const Column *c) {
    return c->classes ? c->lanes : 0;
}

/* The load moves by one along the columns and by a known number of elements along the rows, and
 * starts at a vector. */
static bool has_pitch(const Column *c, const KOp *o, uint32_t lanes, int64_t *pitch) {
    Gpu *g = c->g;
    Expr coef, rest, at;
    uint32_t row = (uint32_t)__builtin_ctz(c->folds->axes);
    return !o->mask && expr_affine(g->e->exprs, o->index, g->k->axes[c->lane].sym, &coef, &rest) &&
           expr_is_value(g->e->exprs, coef, 1) &&
           expr_affine(g->e->exprs, rest, g->k->axes[row].sym, &coef, &at) &&
           expr_is_const(g->e->exprs, coef, pitch) && *pitch > 0 && *pitch < INT32_MAX &&
           emit_divisor(g->e, at) % lanes == 0;
}

bool column_find_classes(Column *c) {
    Gpu *g = c->g;
    if (c->points || c->folds->axes & (c->folds->axes - 1)) return false;
    uint32_t lanes = gpu_lanes_ragged(g, c->lane);
    int64_t pitch;
    uint32_t loads = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (!c->folds->cone[v] || o->op != K_kload || !(g->rows->dom[v] >> c->lane & 1)) continue;
        if (!has_pitch(c, o, lanes, &pitch)) return false;
        if (loads && (pitch - c->pitch) % lanes) return false;
        if (!loads++) c->pitch = pitch;
    }
    if (lanes == 1 || !loads) return false;
    for (c->classes = 1; c->pitch * c->classes % lanes; c->classes *= 2) {}
    if (c->classes > COLUMN_THREADS / 2 / COLUMN_WIDE) return false;
    c->lanes = lanes;
    c->together = loads == 1 ? COLUMN_MOST_UNROLL : COLUMN_UNROLL;
    return true;
}

/* Rows are classes * i + class, columns what is left of the index when the class's rows are taken
 * off: so it is seen that both together stand at whole vectors. */
void column_bind_class(Column *c) {
    Gpu *g = c->g;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    uint32_t sym;
    int64_t lo, hi;
    expr_range(p, g->k->axes[c->lane].extent, &lo, &hi);
    LLVMValueRef class = LLVMBuildAnd(e->b, c->row, emit_i64(e, c->classes - 1), "");
    c->class = emit_new_sym(e, "class", c->classes - 1, class);
    LLVMValueRef at = LLVMBuildMul(e->b, class, emit_i64(e, c->pitch), "");
    at = LLVMBuildSub(e->b, at, c->shift, "");
    at = LLVMBuildAdd(e->b, at, LLVMBuildMul(e->b, c->vector, emit_i64(e, c->lanes), ""), "");
    Expr base = emit_new_sym(e, "vector", c->pitch * c->classes + hi, at);
    if (expr_is_sym(p, base, &sym)) map_put(e->aligned, sym, c->lanes);
    Expr column = expr_sub(p, base, expr_muli(p, c->class, c->pitch));
    emit_bind_lanes(e, g->k->axes[c->lane].sym, column, NULL, false);
}

Expr column_walked_rows(const Column *c) {
    ExprPool *p = c->g->e->exprs;
    Expr n = gpu_points(c->g->e, c->g->k, c->folds->axes);
    return c->classes ? expr_max(p, expr_addi(p, n, -1), expr_const(p, 0)) : n;
}

Expr column_row_at(Column *c, LLVMValueRef at) {
    Emit *e = c->g->e;
    int64_t least, most;
    expr_range(e->exprs, gpu_points(e, c->g->k, c->folds->axes), &least, &most);
    if (!c->classes) return emit_new_sym(e, "r", most > 0 ? most - 1 : 0, at);
    at = LLVMBuildLShr(e->b, at, emit_i64(e, __builtin_ctz(c->classes)), "");
    Expr i = emit_new_sym(e, "r", most > 0 ? most / c->classes : 0, at);
    return expr_add(e->exprs, expr_muli(e->exprs, i, c->classes), c->class);
}

LLVMValueRef column_other_row(const Column *c, LLVMValueRef first, LLVMValueRef at,
                              LLVMValueRef live, LLVMValueRef end) {
    Emit *e = c->g->e;
    if (c->classes) return LLVMBuildSelect(e->b, live, at, first, "");
    return gpu_smaller(e, at, LLVMBuildSub(e->b, end, emit_i64(e, 1), ""));
}

/* Elements that rows of this thread's class start past a vector. */
LLVMValueRef column_shift(const Column *c) {
    Emit *e = c->g->e;
    LLVMValueRef x = LLVMBuildMul(e->b, c->row, emit_i64(e, c->pitch % c->lanes), "");
    return LLVMBuildAnd(e->b, x, emit_i64(e, c->lanes - 1), "");
}
