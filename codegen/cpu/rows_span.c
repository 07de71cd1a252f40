/* Walks along an axis over lanes: whole steps, then what is left of it under a mask. */
#include "codegen/cpu/rows.h"

typedef struct Span {
    Rows *r;
    uint32_t nacc, n;
    LLVMValueRef *acc;
    RowsStep step;
    void *ctx;
    bool masked;
} Span;

static void span_loop(Span *s, LLVMValueRef lo, LLVMValueRef hi, LLVMValueRef limit) {
    Emit *e = s->r->e;
    int64_t a, b, step = (int64_t)s->n * e->lanes;
    if (rows_const_int(lo, &a) && rows_const_int(hi, &b) && b > a && b - a <= step) { /* one step */
        LLVMValueRef mask =
            s->masked && b - a < step ? emit_lanes_below(e, emit_i64(e, b - a)) : NULL;
        emit_push(e);
        s->step(s->r, s->ctx, s->n, expr_const(e->exprs, a), mask, s->acc);
        emit_pop(e);
        return;
    }
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, s->nacc);
    for (uint32_t i = 0; i < s->nacc; i++) l->init[i] = s->acc[i];
    emit_loop_begin(e, l, "span", lo, hi, emit_i64(e, (int64_t)s->n * e->lanes), false);
    Expr base = emit_new_sym(e, "j", INT64_MAX / 4, l->i);
    LLVMValueRef mask = NULL;
    uint32_t sym;
    if (expr_is_sym(e->exprs, base, &sym)) {
        map_put(e->aligned, sym, e->lanes);
        e->zeros_sym = sym;
    }
    if (s->masked) mask = emit_lanes_below(e, LLVMBuildSub(e->b, limit, l->i, ""));
    s->step(s->r, s->ctx, s->n, base, mask, l->next);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < s->nacc; i++) s->acc[i] = l->out[i];
}

void rows_span(Rows *r, LLVMValueRef lo, LLVMValueRef hi, int64_t divisor, uint32_t blocks,
               uint32_t nacc, LLVMValueRef *acc, RowsStep step, void *ctx) {
    Emit *e = r->e;
    Span s = {.r = r, .nacc = nacc, .n = blocks, .acc = acc, .step = step, .ctx = ctx};
    int64_t w = e->lanes, full = w * blocks, a, b;
    LLVMValueRef n = LLVMBuildSub(e->b, hi, lo, ""), end = hi;
    bool rest = divisor % full != 0;
    if (rest) {
        LLVMValueRef whole = LLVMBuildAnd(e->b, n, emit_i64(e, -full), "");
        end = LLVMBuildAdd(e->b, lo, whole, "");
    }
    bool known = rows_const_int(lo, &a) && rows_const_int(end, &b);
    if (!known || a < b) span_loop(&s, lo, end, hi);
    if (!rest) return;
    if (rows_const_int(end, &a) && rows_const_int(hi, &b) && a >= b) return;
    s.n = 1;
    s.masked = divisor % w != 0;
    span_loop(&s, end, hi, hi);
}
