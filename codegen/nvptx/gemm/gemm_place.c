/* A thread's places in a tile. It has, of every 64 rows, rows lane / 4 and that + 8 of its warp's
 * 16, and there columns 2 (lane % 4) and the next of every 8. At the edge, rows and columns past
 * the end repeat the last one for what is read. */
#include "codegen/nvptx/gemm/gemm_epilogue.h"

HV gemm_wide(Emit *e, HV v) {
    return LLVMBuildZExt(e->b, v, e->i64, "");
}

HV gemm_both(Emit *e, HV a, HV b) {
    return a && b ? LLVMBuildAnd(e->b, a, b, "") : a ? a : b;
}

static HV smin(Emit *e, HV a, HV b) {
    HV v[2] = {a, b};
    return emit_intrinsic(e, "llvm.smin", LLVMTypeOf(a), v, 2);
}

Expr gemm_symbol(Emit *e, const char *name, Expr extent, HV value, uint32_t multiple) {
    uint32_t sym;
    Expr x = emit_position(e, name, extent, value);
    if (multiple > 1 && expr_is_sym(e->exprs, x, &sym)) map_put(e->aligned, sym, multiple);
    return x;
}

static void place_rows(Epilogue *p) {
    Emit *e = p->e;
    HV m = emit_expr(e, p->x->p->m), last = LLVMBuildSub(e->b, m, emit_i64(e, 1), "");
    for (uint32_t i = 0; i < 2 * p->x->shape.blocks; i++) {
        HV at = LLVMBuildAdd(e->b, p->row_at, emit_i64(e, i / 2 * HOP_SLAB_ROWS + i % 2 * 8), "");
        p->row_in[i] = LLVMBuildICmp(e->b, LLVMIntSLT, at, m, "");
        p->rows[i] = gemm_symbol(e, "r", p->x->p->m, smin(e, at, last), 1);
    }
}

static void place_cols(Epilogue *p) {
    Emit *e = p->e;
    const GemmPlan *plan = p->x->p;
    const uint32_t each = plan->pairs ? 2 : 1;
    HV n = emit_expr(e, plan->n), last = LLVMBuildSub(e->b, n, emit_i64(e, each), "");
    for (uint32_t j = 0; j < p->x->cols / 8; j++)
        for (uint32_t z = 0; z < 2 / each; z++) {
            HV at = LLVMBuildAdd(e->b, p->col_at, emit_i64(e, j * 8 + z), "");
            p->col_in[j][z] = LLVMBuildICmp(e->b, LLVMIntSLT, at, n, "");
            p->cols[j][z] = gemm_symbol(e, "c", plan->n, smin(e, at, last), each);
        }
}

void gemm_place_threads(Epilogue *p) {
    Emit *e = p->e;
    Gemm *x = p->x;
    HV warp = hop_andi(e, x->warp, 3), quad = hop_shr(e, x->lane, 2);
    HV row = hop_add(e, p->tile->row, hop_add(e, hop_shl(e, warp, 4), quad));
    HV col = hop_add(e, p->tile->col, hop_shl(e, hop_andi(e, x->lane, 3), 1));
    p->row_at = gemm_wide(e, row);
    p->col_at = gemm_wide(e, col);
    p->row = gemm_symbol(e, "m", x->p->m, p->row_at, 1);
    p->col = gemm_symbol(e, "n", x->p->n, p->col_at, 2);
    if (p->tile->batch)
        gpu_decode(e, x->g->k, x->d->batch,
                   gemm_symbol(e, "batch", x->p->batch, gemm_wide(e, p->tile->batch), 1));
    if (p->rows_edge) place_rows(p);
    if (p->cols_edge) place_cols(p);
    (void)expr_is_sym(e->exprs, emit_position(e, "pair", x->p->n, emit_i64(e, 0)), &p->lane_col);
}

uint32_t gemm_site_turns(const Gemm *x) {
    return x->p->pairs ? 1 : 2;
}

/* Of x->columns: the first load at column z of an eight. */
static uint32_t column_at(const Gemm *x, uint32_t group, uint32_t z) {
    return (group * gemm_site_turns(x) + z) * x->ncolumns;
}

void gemm_bind_site(Epilogue *p, Site s, uint32_t z) {
    Emit *e = p->e;
    Gemm *x = p->x;
    ExprPool *q = e->exprs;
    uint32_t row_add = s.block * HOP_SLAB_ROWS + s.half * 8, col_add = s.group * 8 + z;
    Expr row = p->rows_edge ? p->rows[2 * s.block + s.half] : expr_addi(q, p->row, row_add);
    Expr col = p->cols_edge ? p->cols[s.group][z] : expr_addi(q, p->col, col_add);
    gpu_decode(e, x->g->k, x->d->m, row);
    if (x->p->pairs) {
        emit_bind_lanes(e, p->lane_col, col, NULL, true);
        col = expr_sym_ref(q, p->lane_col);
    }
    gpu_decode(e, x->g->k, x->d->n, col);
    for (uint32_t i = 0; x->columns && i < x->ncolumns; i++)
        emit_override(e, x->column[i], x->columns[column_at(x, s.group, z) + i]);
    for (uint32_t i = 0; p->acc && i < x->d->nacc; i++) {
        uint32_t each = x->shape.n / 2;
        const HV *a = p->acc + (i * x->shape.blocks + s.block) * each + s.group * 4 + s.half * 2;
        HV v = a[z];
        if (x->p->pairs) {
            v = LLVMGetPoison(emit_vec(LLVMTypeOf(a[0]), 2));
            for (uint32_t l = 0; l < 2; l++)
                v = LLVMBuildInsertElement(e->b, v, a[l], emit_i64(e, l), "");
        }
        emit_override(e, x->d->acc[i], v);
    }
    for (uint32_t i = 0; i < x->p->nterms; i++) { /* they are in the sums: x + -0 is x */
        HV zero = LLVMConstReal(e->f32, -0.0);
        HV two[2] = {zero, zero};
        emit_override(e, x->p->term[i].sum, x->p->pairs ? LLVMConstVector(two, 2) : zero);
    }
    for (uint32_t i = 0; p->fetched && i < p->nloads; i++)
        emit_override(e, p->load[i], p->fetched[i]);
    if (!x->p->addend || !p->addend_pair) return;
    HV v = LLVMBuildBitCast(e->b, p->addend_pair, emit_vec(e->i16, 2), "");
    if (!x->p->pairs) v = LLVMBuildExtractElement(e->b, v, emit_i64(e, z), "");
    emit_override(e, x->p->addend, v);
}

void gemm_fetch_site(Epilogue *p, Site s, HV *out) {
    Emit *e = p->e;
    HV pair = p->addend_pair;
    p->x->g->j->ahead |= p->nloads > 0;
    p->addend_pair = NULL;
    p->fetched = NULL;
    for (uint32_t z = 0; z < gemm_site_turns(p->x); z++) {
        emit_push(e);
        gemm_bind_site(p, s, z);
        for (uint32_t i = 0; i < p->nloads; i++)
            out[z * p->nloads + i] = emit_value_lanes(e, p->load[i]);
        emit_pop(e);
    }
    p->addend_pair = pair;
}
