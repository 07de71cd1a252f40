/* Vectors of a thread: which axis its lanes walk and how many they are. Memory is reached in
 * 16-byte pieces, one per thread and side by side along a warp. */
#include "codegen/nvptx/gpu.h"

enum { PIECE = 16, MOST_BYTES = 32 }; /* bytes of one access; of a vector of the widest type */

typedef struct Probe {
    Gpu *g;
    uint32_t axis;
    const bool *skip;     /* ops that are read in another way, or NULL */
    uint32_t near, far;   /* accesses that lie side by side along the axis, and that do not */
    uint32_t least, most; /* bytes of an element among the near ones */
} Probe;

static void probe_access(Probe *p, const KOp *o) {
    Emit *e = p->g->e;
    Expr stride;
    uint32_t bytes = (uint32_t)dtype_bytes(p->g->k->params[o->buf].dtype);
    bool affine = rows_stride(p->g->rows, o->index, p->axis, &stride);
    if (affine && expr_is_value(e->exprs, stride, 0)) return;
    if (!affine || !expr_is_value(e->exprs, stride, 1)) {
        p->far++;
        return;
    }
    if (o->mask && (!rows_stride(p->g->rows, o->mask, p->axis, &stride) ||
                    !expr_is_value(e->exprs, stride, 0))) {
        p->far++;
        return;
    }
    p->near++;
    if (!p->least || bytes < p->least) p->least = bytes;
    if (bytes > p->most) p->most = bytes;
}

/* Every access of the kernel with the axis bound to n lanes. False: a value that decides addresses
 * differs from lane to lane. */
static bool probe(Probe *p, uint32_t n) {
    Gpu *g = p->g;
    Emit *e = g->e;
    uint32_t sym, was = e->lanes;
    bool ok = true;
    e->lanes = n;
    emit_push(e);
    Expr base = emit_new_sym(e, "probe", INT32_MAX, emit_i64(e, 0));
    if (expr_is_sym(e->exprs, base, &sym)) map_put(e->aligned, sym, n);
    emit_bind_lanes(e, g->k->axes[p->axis].sym, base, NULL, true);
    for (KVal v = 1; v < g->k->nops && ok; v++) {
        const KOp *o = &g->k->ops[v];
        if (!(g->rows->dom[v] >> p->axis & 1)) continue;
        bool access = o->op == K_kload || o->op == K_kstore;
        if (access && !(p->skip && p->skip[v])) probe_access(p, o);
        ok = o->op != K_kbind && o->op != K_katomic;
    }
    emit_pop(e);
    e->lanes = was;
    return ok;
}

/* `divisor`: of what the axis is cut into. */
static uint32_t choose(Gpu *g, uint32_t axis, const bool *skip, int64_t divisor) {
    if (g->j->shrink || g->k->serial) return 1;
    for (uint32_t n = g->e->isa->thread_lanes; n > 1; n /= 2) {
        if (divisor % n) continue;
        Probe p = {.g = g, .axis = axis, .skip = skip};
        if (!probe(&p, n) || p.near <= p.far) return 1;
        if (n * p.least <= PIECE && n * p.most <= MOST_BYTES) return n;
    }
    return 1;
}

uint32_t gpu_lanes(Gpu *g, uint32_t axis, const bool *skip) {
    return choose(g, axis, skip, expr_divisor(g->e->exprs, g->k->axes[axis].extent));
}

uint32_t gpu_lanes_ragged(Gpu *g, uint32_t axis) {
    return choose(g, axis, NULL, 0);
}

void gpu_bind_lanes(Gpu *g, uint32_t axis, LLVMValueRef vector) {
    Emit *e = g->e;
    uint32_t sym;
    LLVMValueRef first = LLVMBuildMul(e->b, vector, emit_i64(e, e->lanes), "");
    Expr base = emit_position(e, "vector", g->k->axes[axis].extent, first);
    if (expr_is_sym(e->exprs, base, &sym)) map_put(e->aligned, sym, e->lanes);
    emit_bind_lanes(e, g->k->axes[axis].sym, base, NULL, true);
}

Expr gpu_vectors(Gpu *g, uint32_t axis) {
    ExprPool *p = g->e->exprs;
    return expr_div(p, g->k->axes[axis].extent, expr_const(p, g->e->lanes));
}
