/* What all rows are made of, however they are walked: positions, folds, results, single stores. */
#include "codegen/nvptx/row/row.h"

Expr row_vectors(const RowPlan *r, uint32_t axes) {
    Gpu *g = r->team.g;
    ExprPool *p = g->e->exprs;
    Expr n = gpu_points(g->e, g->k, axes);
    return g->e->lanes == 1 ? n : expr_div(p, n, expr_const(p, g->e->lanes));
}

bool row_is_own(const RowPlan *r, KVal v) {
    const Gpu *g = r->team.g;
    const uint32_t dom = g->rows->dom[v], axes = r->axes;
    return g->k->ops[v].op == K_kload && g->rows->need[v] && dom & axes && dom & g->rows->par &&
           !(dom & ~(axes | g->rows->par));
}

uint32_t row_loads(const RowPlan *r) {
    uint32_t n = 0;
    for (KVal v = 1; v < r->team.g->k->nops; v++) n += row_is_own(r, v);
    return n;
}

bool row_shares_most(const RowPlan *r) {
    const Gpu *g = r->team.g;
    const uint32_t axes = r->axes;
    uint32_t n = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        uint32_t dom = g->rows->dom[v];
        n += g->k->ops[v].op == K_kload && g->rows->need[v] && dom & axes && !(dom & g->rows->par);
    }
    return n > row_loads(r);
}

uint32_t row_bytes(const Gpu *g, KVal v) {
    const KOp *o = &g->k->ops[v];
    return (uint32_t)dtype_bytes(o->op == K_kload ? g->k->params[o->buf].dtype : (DType)o->dtype);
}

uint32_t row_bytes_of(const Gpu *g, const KVal *v, uint32_t n) {
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) bytes += row_bytes(g, v[i]);
    return bytes;
}

bool row_is_sent(const Gpu *g, KVal fold) {
    return gpu_fold_width(g, fold) == 1 && gpu_fold_type(g, fold) == DT_f32;
}

const Pass *row_last_walk(const Passes *rows) {
    for (uint32_t i = rows->npasses; i-- > 0;)
        if (rows->pass[i].axes) return &rows->pass[i];
    return NULL;
}

/* Threads that keep a multiprocessor busy. */
enum { BUSY = 1024 };

bool row_is_busy(const RowPlan *r, uint32_t team) {
    const Gpu *g = r->team.g;
    const int64_t rows = gpu_hint(g->e, gpu_points(g->e, g->k, g->rows->par));
    return rows * team >= (int64_t)g->m->processors * BUSY;
}

bool row_can_move(const Gpu *g, uint32_t axis, Expr offset, const KOp *o, DType t) {
    const Emit *e = g->e;
    Expr coef, rest;
    if (o->mask || g->k->params[o->buf].dtype != t) return false;
    if (dtype_bytes(t) * e->lanes % ROW_COPY_ALIGN != 0) return false;
    if (!expr_affine(e->exprs, o->index, g->k->axes[axis].sym, &coef, &rest)) return false;
    if (offset) rest = expr_sub(e->exprs, rest, offset);
    return expr_is_value(e->exprs, coef, 1) && expr_divisor(e->exprs, rest) % e->lanes == 0;
}

bool row_all_can_move(const RowPlan *r, const KOp *o, DType t) {
    const Gpu *g = r->team.g;
    ExprPool *p = g->e->exprs;
    const Kernel *k = g->k;
    Expr rest = o->index, coef, apart = expr_const(p, 1);
    if (o->mask || k->params[o->buf].dtype != t) return false;
    for (uint32_t i = k->naxes; i-- > 0;) {
        if (!((r->axes | g->rows->par) >> i & 1)) continue;
        if (!expr_affine(p, rest, k->axes[i].sym, &coef, &rest)) return false;
        if (coef != apart && !expr_is_value(p, k->axes[i].extent, 1)) return false;
        apart = expr_mul(p, apart, k->axes[i].extent);
    }
    return expr_divisor(p, rest) * (int64_t)dtype_bytes(t) % ROW_COPY_ALIGN == 0;
}

static void fold_arg(Gpu *g, KVal v, LLVMValueRef *acc) {
    Emit *e = g->e;
    const KOp *o = &g->k->ops[v];
    LLVMValueRef x = emit_value(e, o->in[0]);
    uint32_t axis = (uint32_t)__builtin_ctz(o->axes);
    LLVMValueRef at = emit_expr(e, expr_sym_ref(e->exprs, g->k->axes[axis].sym));
    LLVMValueRef none = LLVMBuildICmp(e->b, LLVMIntSLT, acc[0], emit_i64(e, 0), "");
    LLVMValueRef better = emit_arg_beats(e, (KFold)o->fold, gpu_fold_type(g, v), x, acc[1]);
    LLVMValueRef take = LLVMBuildOr(e->b, none, better, "");
    acc[0] = LLVMBuildSelect(e->b, take, at, acc[0], "");
    acc[1] = LLVMBuildSelect(e->b, take, x, acc[1], "");
}

void row_fold(const RowPlan *r, KVal v, LLVMValueRef live, LLVMValueRef *acc) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    if (gpu_fold_width(g, v) == 2) {
        fold_arg(g, v, acc);
        return;
    }
    KFold fold = (KFold)g->k->ops[v].fold;
    DType t = gpu_fold_type(g, v);
    LLVMValueRef x = emit_value_lanes(e, g->k->ops[v].in[0]);
    if (live) x = emit_select(e, live, x, emit_fold_identity(e, fold, t, e->lanes));
    acc[0] = rows_join(g->rows, v)(e, fold, t, acc[0], x);
}

void row_results(const RowPlan *r, const Pass *p, LLVMValueRef *acc) {
    Gpu *g = r->team.g;
    uint32_t n = 0;
    for (uint32_t f = 0; f < p->nfolds; f++) {
        KVal v = p->folds[f];
        acc[n] = emit_fold_lanes_by(g->e, (KFold)g->k->ops[v].fold, gpu_fold_type(g, v), acc[n],
                                    rows_join(g->rows, v));
        n += gpu_fold_width(g, v);
    }
    gpu_team_join(&r->team, p, acc);
    for (uint32_t f = 0; f < p->nfolds; f++) {
        emit_override(g->e, p->folds[f], acc[0]);
        acc += gpu_fold_width(g, p->folds[f]);
    }
}

void row_bind(const RowPlan *r, uint32_t axes, Expr at) {
    Gpu *g = r->team.g;
    ExprPool *p = g->e->exprs;
    if (g->e->lanes == 1) {
        gpu_decode(g->e, g->k, axes, at);
        return;
    }
    uint32_t lane = (uint32_t)r->lane, others = axes & ~(1u << lane);
    Expr n = gpu_vectors(g, lane);
    gpu_bind_lanes(g, lane, emit_expr(g->e, others ? expr_mod(p, at, n) : at));
    gpu_decode(g->e, g->k, others, others ? expr_div(p, at, n) : at);
}

void row_store_once(const RowPlan *r, const Pass *p) {
    Emit *e = r->team.g->e;
    EmitIf first;
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntEQ, r->team.rank, emit_i64(e, 0), "");
    if (r->team.block) {
        LLVMValueRef b = LLVMBuildICmp(e->b, LLVMIntEQ, r->team.block, emit_i64(e, 0), "");
        is = LLVMBuildAnd(e->b, is, b, "");
    }
    if (r->inside) is = LLVMBuildAnd(e->b, is, r->inside, "");
    emit_if_begin(e, &first, is);
    for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
    emit_if_end(e, &first);
}
