/* Kernels whose work items go through the one buffer that they read from front to back, slice after
 * slice, as packs of panels do whose columns are the buffer's rows: so much of it has to be there
 * for a range of items, and no more. */
#include "codegen/cpu/rows.h"

/* The one parameter that is read, or -1. */
static int only_read(const Kernel *k) {
    int found = -1;
    for (uint32_t i = 0; i < k->nparams; i++) {
        if (k->params[i].written) continue;
        if (found >= 0) return -1;
        found = (int)i;
    }
    return found;
}

/* Elements that an index moves with each step of `outer`; it must stay below that from there on
 * whatever the other axes are. 0: it does not. */
static int64_t step_of(const Rows *r, Expr index, uint32_t outer) {
    ExprPool *p = r->e->exprs;
    Expr step, rest = index;
    int64_t slice, n, by, most = 0;
    if (!expr_affine(p, rest, r->k->axes[outer].sym, &step, &rest)) return 0;
    if (!expr_is_const(p, step, &slice)) return 0;
    for (uint32_t i = 0; i < r->k->naxes; i++) {
        if (i == outer) continue;
        if (!expr_affine(p, rest, r->k->axes[i].sym, &step, &rest)) return 0;
        if (!expr_is_const(p, step, &by) || !expr_is_const(p, r->k->axes[i].extent, &n)) return 0;
        if (by < 0 || n < 1) return 0;
        most += by * (n - 1);
        if (most >= slice) return 0;
    }
    return expr_is_const(p, rest, &n) && n >= 0 && most + n < slice ? slice : 0;
}

void rows_slices(const Rows *r, uint32_t outer, EmitInfo *info) {
    const Kernel *k = r->k;
    const int from = only_read(k);
    int64_t slice = 0;
    if (from < 0) return;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if (o->op == K_kbind || o->op == K_katomic || o->op == K_kcompact) return;
        if (o->op != K_kload || o->buf != (uint32_t)from) continue;
        const int64_t n = o->in[0] ? 0 : step_of(r, o->index, outer);
        if (!n || (slice && slice != n)) return;
        slice = n;
    }
    if (!slice) return;
    info->slices = k->axes[outer].extent;
    info->slice = expr_const(r->e->exprs, slice * (int64_t)dtype_bytes(k->params[from].dtype));
}
