#include "codegen/nvptx/hopper/hopper.h"

enum { ALIGN = 16 }; /* bytes: of what the copy engine addresses */

/* The axes as one: *stride elements from one point to the next in flat order, 0 if the index does
 * not move; false if they are not evenly spaced. */
static bool flat_stride(Emit *e, const Kernel *k, Expr index, uint32_t axes, Expr *stride) {
    ExprPool *p = e->exprs;
    Expr next = 0, coef, rest;
    *stride = expr_const(p, 0);
    for (uint32_t i = k->naxes; i-- > 0;) {
        if (!(axes >> i & 1) || expr_is_value(p, k->axes[i].extent, 1)) continue;
        if (!expr_affine(p, index, k->axes[i].sym, &coef, &rest)) return false;
        if (next && coef != next) return false;
        if (!next) *stride = coef;
        next = expr_mul(p, coef, k->axes[i].extent);
    }
    return true;
}

static bool aligned(Emit *e, Expr elements, DType t) {
    int64_t d = expr_divisor(e->exprs, elements);
    return d * (int64_t)dtype_bytes(t) % ALIGN == 0;
}

static bool batch_strides(Emit *e, const Kernel *k, Expr index, uint32_t axes, HopMatrix *m) {
    for (uint32_t i = k->naxes; i-- > 0;) {
        Expr coef, rest;
        if (!(axes >> i & 1)) continue;
        if (!expr_affine(e->exprs, index, k->axes[i].sym, &coef, &rest)) return false;
        if (expr_is_value(e->exprs, coef, 0)) continue;
        if (m->nbatch == HOP_MAX_BATCH || !aligned(e, coef, m->t)) return false;
        m->axis[m->nbatch] = i;
        m->stride[m->nbatch++] = coef;
    }
    return true;
}

static Expr at_origin(Emit *e, const Kernel *k, Expr index) {
    Expr zero = expr_const(e->exprs, 0);
    for (uint32_t i = 0; i < k->naxes; i++)
        index = expr_subst(e->exprs, index, &k->axes[i].sym, &zero, 1);
    return index;
}

/* All but the pitch, which *m has. */
static bool read_matrix(Gpu *g, const KOp *o, uint32_t rows, uint32_t cols, uint32_t batch,
                        HopMatrix *m) {
    Emit *e = g->e;
    const Kernel *k = g->k;
    Expr step;
    m->buf = o->buf;
    m->t = (DType)o->dtype;
    if (o->mask && !expr_is_value(e->exprs, o->mask, 1)) return false;
    if (gpu_is_computed(g, o->index)) return false; /* its base is known before the kernel runs */
    if (!flat_stride(e, k, o->index, cols, &step) || !expr_is_value(e->exprs, step, 1))
        return false;
    if (expr_is_value(e->exprs, m->pitch, 0) || !aligned(e, m->pitch, m->t)) return false;
    if (!batch_strides(e, k, o->index, batch, m)) return false;
    m->base = at_origin(e, k, o->index);
    m->rows = gpu_points(e, k, rows);
    m->cols = gpu_points(e, k, cols);
    return expr_is_value(e->exprs, m->base, 0) || aligned(e, m->base, m->t);
}

bool hop_matrix(Gpu *g, const KOp *o, uint32_t rows, uint32_t cols, uint32_t batch,
                HopMatrix *out) {
    HopMatrix m = {0};
    if (!flat_stride(g->e, g->k, o->index, rows, &m.pitch)) return false;
    if (!read_matrix(g, o, rows, cols, batch, &m)) return false;
    *out = m;
    return true;
}

enum { ANY_PITCH = 64 }; /* elements, to a row that is not there */

bool hop_row(Gpu *g, const KOp *o, uint32_t rows, uint32_t cols, uint32_t batch, HopMatrix *out) {
    HopMatrix m = {.pitch = expr_const(g->e->exprs, ANY_PITCH)};
    if (!expr_is_value(g->e->exprs, gpu_points(g->e, g->k, rows), 1)) return false;
    if (!read_matrix(g, o, rows, cols, batch, &m)) return false;
    *out = m;
    return true;
}

HV hop_matrix_map(Gpu *g, const HopMatrix *m, uint32_t box_cols, uint32_t box_rows) {
    ExprPool *p = g->e->exprs;
    int64_t bytes = (int64_t)dtype_bytes(m->t);
    CodeMap c = {.param = m->buf,
                 .dtype = m->t,
                 .tf32 = m->tf32,
                 .rank = 2 + m->nbatch,
                 .base = m->base,
                 .size = {m->cols, m->rows},
                 .stride = {expr_muli(p, m->pitch, bytes)},
                 .box = {box_cols, box_rows},
                 .swizzle = box_cols * (uint32_t)bytes,
                 .promotion = 128};
    for (uint32_t i = 0; i < m->nbatch; i++) {
        c.size[2 + i] = g->k->axes[m->axis[i]].extent;
        c.stride[1 + i] = expr_muli(p, m->stride[i], bytes);
        c.box[2 + i] = 1;
    }
    return gpu_map(g, &c);
}

HV hop_size(Emit *e, Expr v) {
    return LLVMBuildTrunc(e->b, emit_expr(e, v), e->i32, "");
}

void hop_batch_extents(Gpu *g, uint32_t batch, HV *extent) {
    for (uint32_t i = 0; i < g->k->naxes; i++)
        extent[i] = batch >> i & 1 ? hop_size(g->e, g->k->axes[i].extent) : NULL;
}

void hop_batch_at(Gpu *g, const HV *extent, const HopMatrix *m, HV flat, HV *at) {
    Emit *e = g->e;
    for (uint32_t i = g->k->naxes, n = 0; i-- > 0 && n < m->nbatch;) {
        if (!extent[i]) continue;
        if (m->axis[n] == i) at[n++] = LLVMBuildURem(e->b, flat, extent[i], "");
        flat = LLVMBuildUDiv(e->b, flat, extent[i], "");
    }
}
