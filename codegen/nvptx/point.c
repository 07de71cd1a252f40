/* One thread per point of the parallel axes: pointwise kernels, folds over outer axes, and whatever
 * has no better structure. Folds and rows are walked by the thread alone. */
#include "codegen/nvptx/gpu.h"

#define BLOCK 256

static void know(Gpu *g, KVal v, LLVMValueRef value) {
    EmitOverride o = {v, {.v = value, .depth = g->e->scope->depth}};
    vec_push(g->e->arena, &g->rows->copy[0].known, o);
    emit_override(g->e, v, value);
}

/* Loops over the axes that a pass's stores walk, innermost last. */
static void walk_stores(Gpu *g, const Pass *p, uint32_t axes) {
    Emit *e = g->e;
    if (!axes) {
        for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
        return;
    }
    uint32_t axis = (uint32_t)__builtin_ctz(axes);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef n = emit_expr(e, g->k->axes[axis].extent);
    emit_loop_begin(e, l, "walk", emit_i64(e, 0), n, emit_i64(e, 1), false);
    emit_set_sym(e, g->k->axes[axis].sym, l->i);
    walk_stores(g, p, axes & ~(1u << axis));
    emit_loop_end(e, l);
}

static void run_passes(Gpu *g) {
    Rows *r = g->rows;
    for (uint32_t i = 0; i < r->npasses; i++) {
        const Pass *p = &r->pass[i];
        for (uint32_t f = 0; f < p->nfolds; f++)
            know(g, p->folds[f], emit_value(g->e, p->folds[f]));
        if (p->nstores) walk_stores(g, p, p->axes);
    }
}

void gpu_point(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    uint32_t par = g->rows->par;
    Expr n = gpu_points(e, g->k, par);
    gpu_launch(g, BLOCK, expr_ceildiv(p, n, expr_const(p, BLOCK)), 0, 0);
    LLVMValueRef first = LLVMBuildMul(e->b, g->block[0], emit_i64(e, BLOCK), "");
    LLVMValueRef at = LLVMBuildAdd(e->b, first, g->tid, "");
    EmitIf inside;
    emit_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntSLT, at, emit_expr(e, n), ""));
    int64_t lo, hi;
    expr_range(p, n, &lo, &hi);
    gpu_decode(e, g->k, par, emit_new_sym(e, "point", hi > 0 ? hi - 1 : 0, at));
    run_passes(g);
    emit_if_end(e, &inside);
}
