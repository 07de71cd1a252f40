/* The columns of a panel in sub-panels, as wide as the registers hold beside a tile's rows: whole
 * ones, and what is left of the last panel in one of its own, with columns to mask off. */
#include "codegen/cpu/dot/dot.h"

LLVMValueRef dot_into_panel(Dot *d) {
    return emit_expr(d->e, expr_mod(d->p, d->n0, expr_const(d->p, DOT_PANEL)));
}

/* Whether the last two panels, three vectors and one, are walked as two of two. */
static bool evens_panels(Dot *d) {
    int64_t n;
    if (!d->quads || !d->e->isa->multiply_quads || d->amx.on || d->width != DOT_PANEL) return false;
    return expr_is_const(d->p, d->n.size, &n) && n > DOT_PANEL &&
           (n - 1) % DOT_PANEL < (int64_t)d->lanes;
}

/* A single vector of columns in the last panel would be all loads and few sums: it takes the one
 * before it along, whose place is the end of the panel before. */
static void even_panels(Dot *d, DotColumns *at, void *ctx) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    EmitIf whole, two;
    const int64_t n = expr_value(p, d->n.size), lanes = (int64_t)d->lanes;
    const Expr last = expr_const(p, (n - 1) / DOT_PANEL);
    const Expr before = expr_addi(p, last, -1), is_last = expr_le(p, last, d->panel);
    LLVMValueRef few =
        LLVMBuildICmp(e->b, LLVMIntSGE, emit_expr(e, d->panel), emit_expr(e, before), "");
    if (n > 2 * DOT_PANEL) {
        emit_if_begin(e, &whole, LLVMBuildNot(e->b, few, ""));
        at(d, d->nv, false, ctx);
        emit_if_end(e, &whole);
    }
    emit_if_begin(e, &two, few);
    const Expr back = expr_sub(p, expr_const(p, (DOT_PANEL - lanes) * 4),
                               expr_muli(p, dot_rows_of_panel(d), DOT_PANEL));
    d->second =
        expr_add(p, d->n0, expr_select(p, is_last, expr_const(p, -lanes), expr_const(p, lanes)));
    d->apart = emit_expr(e, expr_select(p, is_last, back, expr_const(p, lanes * 4)));
    at(d, 2, n % lanes != 0, ctx);
    d->second = 0;
    emit_if_end(e, &two);
}

static void sub_panel(Dot *d, DotColumns *at, void *ctx) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    int64_t n = 0, width = d->width;
    bool fixed = expr_is_const(p, d->n.size, &n);
    if (expr_divisor(p, d->n.size) % width == 0) {
        at(d, d->nv, false, ctx);
        return;
    }
    uint32_t rest = fixed ? (uint32_t)((n % width + d->lanes - 1) / d->lanes) : d->nv;
    bool masked = !fixed || n % d->lanes != 0;
    if (fixed && n < width) {
        at(d, rest, masked, ctx);
        return;
    }
    EmitIf full, last;
    LLVMValueRef left = emit_expr(e, expr_sub(p, d->n.size, d->n0));
    LLVMValueRef whole = LLVMBuildICmp(e->b, LLVMIntSGE, left, emit_i64(e, width), "");
    LLVMValueRef part = LLVMBuildNot(e->b, whole, "");
    emit_if_begin(e, &full, whole);
    at(d, d->nv, false, ctx);
    emit_if_end(e, &full);
    emit_if_begin(e, &last, part);
    at(d, rest, masked, ctx);
    emit_if_end(e, &last);
}

void dot_sub_panels(Dot *d, DotColumns *at, void *ctx) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    d->n0 = expr_muli(p, d->panel, DOT_PANEL);
    if (evens_panels(d)) {
        even_panels(d, at, ctx);
        return;
    }
    if (d->width >= DOT_PANEL) {
        sub_panel(d, at, ctx);
        return;
    }
    int64_t parts = DOT_PANEL / d->width;
    EmitLoop l = {0};
    LLVMValueRef left = emit_expr(e, expr_sub(p, d->n.size, d->n0));
    left = LLVMBuildAdd(e->b, left, emit_i64(e, d->width - 1), "");
    LLVMValueRef lim[2] = {LLVMBuildUDiv(e->b, left, emit_i64(e, d->width), ""),
                           emit_i64(e, parts)};
    LLVMValueRef hi = emit_intrinsic(e, "llvm.smin", e->i64, lim, 2);
    emit_loop_begin(e, &l, "part", emit_i64(e, 0), hi, emit_i64(e, 1), true);
    Expr part = emit_below(d->e, "part", expr_const(p, parts), l.i);
    d->n0 = expr_add(p, d->n0, expr_muli(p, part, d->width));
    sub_panel(d, at, ctx);
    emit_loop_end(e, &l);
}
