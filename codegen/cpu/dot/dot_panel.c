/* The columns of a panel in sub-panels, as wide as the registers hold beside a tile's rows: whole
 * ones, and what is left of the last panel in one of its own, with columns to mask off. */
#include "codegen/cpu/dot/dot.h"

LLVMValueRef dot_into_panel(Dot *d) {
    return emit_expr(d->e, expr_mod(d->p, d->n0, expr_const(d->p, DOT_PANEL)));
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
