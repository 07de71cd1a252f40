/* The left operand whose rows lie side by side, as X does in X^T * dY: read along k it would take a
 * line of memory for every element. It is copied as it lies, a tile's rows at a time, to
 * [tile][k][DOT_ROWS]; the table then points to the tile's columns, DOT_ROWS elements a step. */
#include "codegen/cpu/dot/dot.h"
#include <string.h>

#define MIN_ROWS 16 /* side by side: fewer are not worth a copy of their own */

/* The axis of `axes` along which index moves by `stride`, or -1. */
static int axis_with_stride(Dot *d, uint32_t axes, Expr index, Expr stride) {
    Expr coef, rest;
    for (uint32_t i = 0; i < d->k->naxes; i++)
        if ((axes >> i & 1) && expr_affine(d->p, index, d->k->axes[i].sym, &coef, &rest) &&
            coef == stride)
            return (int)i;
    return -1;
}

/* The axes of `axes` along which index walks neighbouring elements, the last fastest. */
static DotGroup side_by_side(Dot *d, uint32_t axes, Expr index) {
    DotGroup g = {.size = expr_const(d->p, 1)};
    int a;
    while ((a = axis_with_stride(d, axes, index, g.size)) >= 0) {
        memmove(g.axis + 1, g.axis, g.n++);
        g.axis[0] = (uint8_t)a;
        axes &= ~(1u << a);
        g.size = expr_mul(d->p, g.size, d->k->axes[a].extent);
    }
    return g;
}

bool dot_analyse_columns(Dot *d) {
    KVal load = dot_load_of(d, d->a);
    if (!load || d->pairs || d->t->wino) return false;
    Expr index = d->k->ops[load].index;
    if (dot_moves_indirectly(d, &d->m, index) || dot_moves_indirectly(d, &d->kk, index))
        return false;
    DotGroup side = side_by_side(d, d->t->m, index);
    if (expr_hint(d->p, side.size) < MIN_ROWS) return false;
    if (expr_hint(d->p, side_by_side(d, d->t->k, index).size) > 1) return false;
    uint32_t apart = d->t->m;
    for (uint32_t i = 0; i < side.n; i++) apart &= ~(1u << side.axis[i]);
    dot_group(d, &d->batch, d->t->batch | apart);
    d->m = side;
    d->columns = true;
    d->ka = d->kk;
    d->nrun = d->kk.n;
    d->run = d->kk.size;
    d->nruns = expr_const(d->p, 1);
    d->step = expr_const(d->p, DOT_ROWS);
    for (uint32_t i = d->kk.n; i-- > 0;)
        d->rows[i] = i + 1 == d->kk.n
                         ? d->nruns
                         : expr_mul(d->p, d->rows[i + 1], d->k->axes[d->kk.axis[i + 1]].extent);
    return true;
}

/* --- The copy ----------------------------------------------------------------------------- */

/* DOT_ROWS elements from row `first` on, at the bound place along k, to `slot`. */
static void copy_step(Dot *d, Expr first, LLVMValueRef slot) {
    Emit *e = d->e;
    LLVMTypeRef t = emit_mem_type(e, d->left);
    bool ragged = expr_divisor(d->p, d->m.size) % DOT_ROWS != 0;
    for (uint32_t j = 0; j < DOT_ROWS; j += e->lanes) {
        Expr base = expr_addi(d->p, first, j);
        emit_push(e);
        LLVMValueRef left = emit_expr(e, expr_sub(d->p, d->m.size, base));
        dot_bind_lanes(d, &d->m, base, ragged ? emit_lanes_below(e, left) : NULL, !ragged);
        LLVMValueRef v = emit_value_lanes(e, d->a);
        v = emit_cast(e, (DType)d->k->ops[d->a].dtype, d->left, v);
        emit_store_ptr(e, v, emit_gep(e, t, slot, emit_i64(e, j)), (uint32_t)dtype_bytes(d->left));
        emit_pop(e);
    }
}

/* Elements from one tile to the next: not a power of two, or all tiles would meet in one set of the
 * cache. */
static LLVMValueRef tile_size(Dot *d) {
    return emit_expr(d->e, expr_addi(d->p, expr_muli(d->p, d->kk.size, DOT_ROWS), DOT_TILE_APART));
}

/* Step by step of k, all tiles each: the operand is read as it lies. */
static void copy_tiles(Dot *d) {
    Emit *e = d->e;
    EmitLoop loops[K_MAX_AXES], tile = {0};
    LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1), at = zero;
    for (uint32_t i = 0; i < d->kk.n; i++) {
        const KAxis *axis = &d->k->axes[d->kk.axis[i]];
        LLVMValueRef size = emit_expr(e, axis->extent);
        loops[i] = (EmitLoop){0};
        emit_loop_begin(e, &loops[i], "k", zero, size, one, false);
        emit_set_sym(e, axis->sym, loops[i].i);
        at = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, at, size, ""), loops[i].i, "");
    }
    at = LLVMBuildMul(e->b, at, emit_i64(e, DOT_ROWS), "");
    emit_loop_begin(e, &tile, "tile", d->span0, d->span1, one, true);
    LLVMValueRef to = LLVMBuildSub(e->b, tile.i, d->span0, "");
    to = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, to, tile_size(d), ""), at, "");
    copy_step(d, emit_below(d->e, "row", d->m.size, dot_first_row(d, tile.i)),
              emit_gep(e, emit_mem_type(e, d->left), d->packed, to));
    emit_loop_end(e, &tile);
    for (uint32_t i = d->kk.n; i-- > 0;) emit_loop_end(e, &loops[i]);
}

/* Entries of tiles with fewer rows are replaced by the next tile's. */
static void point_to_tiles(Dot *d) {
    Emit *e = d->e;
    EmitLoop l = {0};
    LLVMTypeRef t = emit_mem_type(e, d->left);
    LLVMValueRef size = tile_size(d);
    emit_loop_begin(e, &l, "tile", d->span0, d->span1, emit_i64(e, 1), true);
    LLVMValueRef row = LLVMBuildSub(e->b, dot_first_row(d, l.i), d->row0, "");
    LLVMValueRef entry = emit_gep(e, e->ptr, d->table, row);
    LLVMValueRef at = LLVMBuildMul(e->b, LLVMBuildSub(e->b, l.i, d->span0, ""), size, "");
    LLVMValueRef slot = emit_gep(e, t, d->packed, at);
    for (uint32_t r = 0; r < DOT_ROWS; r++)
        emit_store_ptr(e, emit_gep(e, t, slot, emit_i64(e, r)),
                       emit_gep(e, e->ptr, entry, emit_i64(e, r)), 8);
    emit_loop_end(e, &l);
}

void dot_copy_columns(Dot *d) {
    Emit *e = d->e;
    uint32_t lanes = e->lanes;
    if (e->lanes > DOT_ROWS) e->lanes = DOT_ROWS;
    copy_tiles(d);
    e->lanes = lanes;
    point_to_tiles(d);
}
