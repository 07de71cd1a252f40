/* Contractions with few rows: reading B once is all the time there is. A block has 32 columns, one
 * per lane; its warps share the k axis out among themselves and join their sums in a fixed order */
#include "codegen/nvptx/contract.h"

enum { WARPS = CONTRACT_THREADS / 32, UNROLL = 8, COLS = THIN_COLS };

typedef struct Thin {
    Gpu *g;
    Emit *e;
    const KDot *d;
    Contract *c;
    uint32_t rows;
    LLVMValueRef m0, n0, lane, warp;
    Expr row[THIN_ROWS], col;
} Thin;

/* Each warp takes UNROLL neighbouring k of every WARPS * UNROLL, summed by themselves first: the
 * error of a sum grows with its length. */
static void k_loop(Thin *t, LLVMValueRef *acc, uint32_t n) {
    Emit *e = t->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, n);
    for (uint32_t i = 0; i < n; i++) l->init[i] = acc[i];
    LLVMValueRef first = gpu_muli(e, t->warp, UNROLL);
    emit_loop_begin(e, l, "k", first, emit_expr(e, t->c->k), emit_i64(e, WARPS * UNROLL), false);
    LLVMValueRef a[THIN_ROWS][UNROLL], b[K_MAX_ACC][UNROLL];
    for (uint32_t u = 0; u < UNROLL; u++) {
        ContractK k = contract_k(t->c, gpu_add(e, l->i, emit_i64(e, u)));
        for (uint32_t s = 0; s < t->d->nacc; s++)
            b[s][u] = contract_element(t->c, t->d->b[s], t->d->n, t->col, k);
        for (uint32_t r = 0; r < t->rows; r++)
            a[r][u] = contract_element(t->c, t->d->a, t->d->m, t->row[r], k);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = i / t->rows, r = i % t->rows;
        DType ty = (DType)t->g->k->ops[t->d->acc[s]].dtype;
        LLVMValueRef sum = LLVMConstNull(LLVMTypeOf(acc[i]));
        for (uint32_t u = 0; u < UNROLL; u++) sum = contract_fma(e, ty, a[r][u], b[s][u], sum);
        l->next[i] = emit_fold_join(e, FOLD_sum, ty, l->phi[i], sum);
    }
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) acc[i] = l->out[i];
}

/* shared[i][warp][lane]; then warp w finishes rows w, w + WARPS, ... */
static void join_and_store(Thin *t, LLVMValueRef *acc, uint32_t n) {
    Emit *e = t->e;
    LLVMTypeRef ty = LLVMTypeOf(acc[0]);
    LLVMValueRef shared = contract_shared(t->c, ty, n * WARPS * COLS);
    LLVMValueRef own = gpu_add(e, gpu_muli(e, t->warp, COLS), t->lane);
    for (uint32_t i = 0; i < n; i++) {
        LLVMValueRef at = gpu_add(e, own, emit_i64(e, (int64_t)i * WARPS * COLS));
        LLVMBuildStore(e->b, acc[i], emit_gep(e, ty, shared, at));
    }
    gpu_barrier(e);
    EmitIf mine;
    LLVMValueRef rows = emit_i64(e, t->rows);
    emit_if_begin(e, &mine, LLVMBuildICmp(e->b, LLVMIntSLT, t->warp, rows, ""));
    LLVMValueRef sum[K_MAX_ACC];
    for (uint32_t s = 0; s < t->d->nacc; s++) {
        DType dt = (DType)t->g->k->ops[t->d->acc[s]].dtype;
        LLVMValueRef i = gpu_add(e, t->warp, emit_i64(e, (int64_t)s * t->rows));
        LLVMValueRef base = gpu_add(e, gpu_muli(e, i, WARPS * COLS), t->lane);
        for (uint32_t w = 0; w < WARPS; w++) {
            LLVMValueRef at = gpu_add(e, base, emit_i64(e, (int64_t)w * COLS));
            LLVMValueRef x = LLVMBuildLoad2(e->b, ty, emit_gep(e, ty, shared, at), "");
            sum[s] = w ? emit_fold_join(e, FOLD_sum, dt, sum[s], x) : x;
        }
    }
    contract_store(t->c, gpu_add(e, t->m0, t->warp), gpu_add(e, t->n0, t->lane), sum);
    emit_if_end(e, &mine);
}

uint32_t thin_rows(const Contract *c) {
    int64_t m;
    uint32_t most = c->d->nacc > 2 ? THIN_ROWS / 2 : THIN_ROWS; /* shared memory */
    most >>= c->g->j->shrink < 2 ? c->g->j->shrink : 2;
    for (uint32_t s = 1; s < c->d->nacc; s++)
        if (c->g->k->ops[c->d->acc[s]].dtype != c->g->k->ops[c->d->acc[0]].dtype) return 0;
    return expr_is_const(c->e->exprs, c->m, &m) && m < most ? (uint32_t)m : most;
}

uint32_t thin_shared_bytes(const Contract *c) {
    uint32_t bytes = (uint32_t)dtype_bytes((DType)c->g->k->ops[c->d->acc[0]].dtype);
    return c->d->nacc * thin_rows(c) * WARPS * COLS * bytes;
}

void thin_emit(Contract *c) {
    Emit *e = c->e;
    ExprPool *p = e->exprs;
    Gpu *g = c->g;
    Thin t = {.g = g, .e = e, .d = c->d, .c = c, .rows = thin_rows(c)};
    LLVMValueRef nn = emit_expr(e, expr_ceildiv(p, c->n, expr_const(p, COLS)));
    t.m0 = gpu_muli(e, LLVMBuildUDiv(e->b, g->block[0], nn, ""), t.rows);
    t.n0 = gpu_muli(e, LLVMBuildURem(e->b, g->block[0], nn, ""), COLS);
    t.lane = LLVMBuildAnd(e->b, g->tid, emit_i64(e, 31), "");
    t.warp = LLVMBuildLShr(e->b, g->tid, emit_i64(e, 5), "");
    t.col = gpu_kept_inside(e, "r", c->n, gpu_add(e, t.n0, t.lane));
    for (uint32_t r = 0; r < t.rows; r++)
        t.row[r] = gpu_kept_inside(e, "r", c->m, gpu_add(e, t.m0, emit_i64(e, r)));
    LLVMValueRef acc[K_MAX_ACC * THIN_ROWS];
    LLVMTypeRef ty = emit_type(e, (DType)g->k->ops[t.d->acc[0]].dtype);
    uint32_t n = t.d->nacc * t.rows;
    for (uint32_t i = 0; i < n; i++) acc[i] = LLVMConstNull(ty);
    k_loop(&t, acc, n);
    join_and_store(&t, acc, n);
}
