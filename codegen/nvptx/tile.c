/* Contractions: a block computes a 64 x 64 tile of the flattened m and n axes, 16 of the flattened
 * k axes at a time through shared memory; each of 256 threads keeps 4 x 4 sums per accumulator.
 * Operands are whatever the kernel's body says (casts, masks, gathers), and so is the epilogue. */
#include "codegen/nvptx/gpu.h"

enum { TM = 64, TN = 64, TK = 16, THREADS = 256, PER = 4 };

typedef struct Tile {
    Gpu *g;
    Emit *e;
    const KDot *d;
    Expr m, n, k; /* flattened extents */
    LLVMValueRef m0, n0, tx, ty;
    LLVMValueRef a, b[K_MAX_ACC]; /* shared */
    LLVMTypeRef ta, tb;
} Tile;

static LLVMValueRef add(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildAdd(e->b, a, b, "");
}

static LLVMValueRef mul_c(Emit *e, LLVMValueRef a, int64_t c) {
    return LLVMBuildMul(e->b, a, emit_i64(e, c), "");
}

/* The op's value where both coordinates are inside, zero elsewhere; reads stay inside. */
static LLVMValueRef element(Tile *t, KVal v, uint32_t rows, LLVMValueRef row, Expr nrows,
                            LLVMValueRef col) {
    Emit *e = t->e;
    LLVMValueRef r_in = LLVMBuildICmp(e->b, LLVMIntSLT, row, emit_expr(e, nrows), "");
    LLVMValueRef c_in = LLVMBuildICmp(e->b, LLVMIntSLT, col, emit_expr(e, t->k), "");
    LLVMValueRef zero = emit_i64(e, 0);
    emit_push(e);
    LLVMValueRef r = LLVMBuildSelect(e->b, r_in, row, zero, "");
    LLVMValueRef c = LLVMBuildSelect(e->b, c_in, col, zero, "");
    gpu_decode(e, t->g->k, rows, emit_new_sym(e, "r", INT32_MAX, r));
    gpu_decode(e, t->g->k, t->d->k, emit_new_sym(e, "c", INT32_MAX, c));
    LLVMValueRef x = emit_value(e, v);
    emit_pop(e);
    LLVMValueRef in = LLVMBuildAnd(e->b, r_in, c_in, "");
    return LLVMBuildSelect(e->b, in, x, LLVMConstNull(LLVMTypeOf(x)), "");
}

/* True when neighbouring k are neighbours in memory for op v's loads. */
static bool k_contiguous(Tile *t, KVal v) {
    const Kernel *k = t->g->k;
    uint32_t axis = 31u - (uint32_t)__builtin_clz(t->d->k);
    for (KVal u = 1; u <= v; u++) {
        Expr coef, rest;
        if (k->ops[u].op != K_kload || (t->e->domains[u] & ~t->e->domains[v])) continue;
        if (!(t->e->domains[u] >> axis & 1)) continue;
        if (expr_affine(t->e->exprs, k->ops[u].index, k->axes[axis].sym, &coef, &rest) &&
            expr_is_value(t->e->exprs, coef, 1))
            return true;
    }
    return false;
}

/* Fills shared[k][row] of one operand: 64 x 16 elements, 4 per thread. */
static void fill(Tile *t, KVal v, uint32_t rows, LLVMValueRef row0, Expr nrows, LLVMValueRef k0,
                 LLVMValueRef shared, LLVMTypeRef type) {
    Emit *e = t->e;
    bool by_k = k_contiguous(t, v);
    for (uint32_t i = 0; i < PER; i++) {
        LLVMValueRef at = add(e, t->g->tid, emit_i64(e, (int64_t)i * THREADS));
        int bits = by_k ? 4 : 6;
        LLVMValueRef fast = LLVMBuildAnd(e->b, at, emit_i64(e, (1 << bits) - 1), "");
        LLVMValueRef slow = LLVMBuildLShr(e->b, at, emit_i64(e, bits), "");
        LLVMValueRef row = by_k ? slow : fast, col = by_k ? fast : slow;
        LLVMValueRef x = element(t, v, rows, add(e, row0, row), nrows, add(e, k0, col));
        if (LLVMTypeOf(x) != type) x = LLVMBuildZExt(e->b, x, type, "");
        LLVMValueRef place = add(e, mul_c(e, col, TM), row);
        LLVMBuildStore(e->b, x, emit_gep(e, type, shared, place));
    }
}

/* Four neighbouring elements from shared memory. */
static void read4(Tile *t, LLVMTypeRef type, LLVMValueRef shared, LLVMValueRef at,
                  LLVMValueRef out[PER]) {
    Emit *e = t->e;
    LLVMValueRef p = emit_gep(e, type, shared, at);
    bool wide = type == e->f32 || type == e->i32;
    if (wide) {
        LLVMValueRef v = emit_load(e, LLVMVectorType(type, PER), p, 16);
        for (uint32_t i = 0; i < PER; i++)
            out[i] = LLVMBuildExtractElement(e->b, v, emit_i64(e, i), "");
        return;
    }
    for (uint32_t i = 0; i < PER; i++)
        out[i] = LLVMBuildLoad2(e->b, type, emit_gep(e, type, p, emit_i64(e, i)), "");
}

static LLVMValueRef multiply_add(Tile *t, DType ty, LLVMValueRef a, LLVMValueRef b,
                                 LLVMValueRef c) {
    Emit *e = t->e;
    if (ty == DT_f32 || ty == DT_f64) return emit_fma(e, a, b, c);
    return LLVMBuildAdd(e->b, LLVMBuildMul(e->b, a, b, ""), c, "");
}

static void accumulate(Tile *t, LLVMValueRef *acc) {
    Emit *e = t->e;
    for (uint32_t kk = 0; kk < TK; kk++) {
        LLVMValueRef a[PER], b[PER];
        LLVMValueRef row = add(e, mul_c(e, t->ty, PER), emit_i64(e, kk * TM));
        LLVMValueRef col = add(e, mul_c(e, t->tx, PER), emit_i64(e, kk * TN));
        read4(t, t->ta, t->a, row, a);
        for (uint32_t s = 0; s < t->d->nacc; s++) {
            DType ty = (DType)t->g->k->ops[t->d->acc[s]].dtype;
            read4(t, t->tb, t->b[s], col, b);
            for (uint32_t i = 0; i < PER * PER; i++) {
                LLVMValueRef *c = &acc[s * PER * PER + i];
                *c = multiply_add(t, ty, a[i / PER], b[i % PER], *c);
            }
        }
    }
}

static void k_loop(Tile *t, LLVMValueRef *acc) {
    Emit *e = t->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    l->nphi = t->d->nacc * PER * PER;
    for (uint32_t i = 0; i < l->nphi; i++) l->init[i] = acc[i];
    emit_loop_begin(e, l, "k", emit_i64(e, 0), emit_expr(e, t->k), emit_i64(e, TK), false);
    fill(t, t->d->a, t->d->m, t->m0, t->m, l->i, t->a, t->ta);
    for (uint32_t s = 0; s < t->d->nacc; s++)
        fill(t, t->d->b[s], t->d->n, t->n0, t->n, l->i, t->b[s], t->tb);
    gpu_barrier(e);
    for (uint32_t i = 0; i < l->nphi; i++) l->next[i] = l->phi[i];
    accumulate(t, l->next);
    gpu_barrier(e);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < l->nphi; i++) acc[i] = l->out[i];
}

static void store_one(Tile *t, uint32_t i, uint32_t j, const LLVMValueRef *acc) {
    Emit *e = t->e;
    LLVMValueRef row = add(e, add(e, t->m0, mul_c(e, t->ty, PER)), emit_i64(e, i));
    LLVMValueRef col = add(e, add(e, t->n0, mul_c(e, t->tx, PER)), emit_i64(e, j));
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, row, emit_expr(e, t->m), "");
    in = LLVMBuildAnd(e->b, in, LLVMBuildICmp(e->b, LLVMIntSLT, col, emit_expr(e, t->n), ""), "");
    EmitIf inside;
    emit_if_begin(e, &inside, in);
    gpu_decode(e, t->g->k, t->d->m, emit_new_sym(e, "m", INT32_MAX, row));
    gpu_decode(e, t->g->k, t->d->n, emit_new_sym(e, "n", INT32_MAX, col));
    for (uint32_t s = 0; s < t->d->nacc; s++)
        emit_override(e, t->d->acc[s], acc[s * PER * PER + i * PER + j]);
    for (KVal v = 1; v < t->g->k->nops; v++)
        if (t->g->k->ops[v].op == K_kstore) emit_store(e, v);
    emit_if_end(e, &inside);
}

/* Every store is a point of batch, m and n, and every fold is one of the accumulators. */
static bool fits(const Gpu *g) {
    const KDot *d = &g->k->dot;
    if (g->k->tem != TEM_dot || !d->k || !d->nacc) return false;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        bool acc = false;
        for (uint32_t s = 0; s < d->nacc; s++) acc |= d->acc[s] == v;
        if ((o->op == K_kreduce) != acc) return false;
        if (o->op == K_katomic) return false;
        if (o->op == K_kstore && (g->e->domains[v] & ~(d->batch | d->m | d->n))) return false;
    }
    for (uint32_t s = 1; s < d->nacc; s++)
        if (g->k->ops[d->b[s]].dtype != g->k->ops[d->b[0]].dtype) return false;
    return true;
}

static LLVMTypeRef shared_type(Tile *t, KVal v) {
    return emit_mem_type(t->e, (DType)t->g->k->ops[v].dtype);
}

bool gpu_tile(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    if (!fits(g)) return false;
    Tile t = {.g = g, .e = e, .d = &g->k->dot};
    t.m = gpu_points(e, g->k, t.d->m);
    t.n = gpu_points(e, g->k, t.d->n);
    t.k = gpu_points(e, g->k, t.d->k);
    Expr mt = expr_ceildiv(p, t.m, expr_const(p, TM)), nt = expr_ceildiv(p, t.n, expr_const(p, TN));
    gpu_launch(g, THREADS, expr_mul(p, mt, nt), gpu_points(e, g->k, t.d->batch), 0);
    LLVMValueRef nn = emit_expr(e, nt);
    t.m0 = mul_c(e, LLVMBuildUDiv(e->b, g->block[0], nn, ""), TM);
    t.n0 = mul_c(e, LLVMBuildURem(e->b, g->block[0], nn, ""), TN);
    t.tx = LLVMBuildAnd(e->b, g->tid, emit_i64(e, 15), "");
    t.ty = LLVMBuildLShr(e->b, g->tid, emit_i64(e, 4), "");
    gpu_decode(e, g->k, t.d->batch, emit_new_sym(e, "batch", INT32_MAX, g->block[1]));
    t.ta = shared_type(&t, t.d->a);
    t.tb = shared_type(&t, t.d->b[0]);
    t.a = gpu_shared(g, t.ta, TM * TK);
    LLVMValueRef acc[K_MAX_ACC * PER * PER];
    for (uint32_t s = 0; s < t.d->nacc; s++) {
        t.b[s] = gpu_shared(g, t.tb, TN * TK);
        LLVMTypeRef ty = emit_type(e, (DType)g->k->ops[t.d->acc[s]].dtype);
        for (uint32_t i = 0; i < PER * PER; i++) acc[s * PER * PER + i] = LLVMConstNull(ty);
    }
    k_loop(&t, acc);
    for (uint32_t i = 0; i < PER; i++)
        for (uint32_t j = 0; j < PER; j++) store_one(&t, i, j, acc);
    return true;
}
