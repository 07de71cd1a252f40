/* Scans, sorts, compaction and ordered scatters: results do not depend on how threads are timed. */
#include "codegen/nvptx/gpu.h"

#define BLOCK 128

static LLVMValueRef icmp(Emit *e, LLVMIntPredicate p, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildICmp(e->b, p, a, b, "");
}

/* One thread per point of `axes`; the region is left open. */
static void points_begin(Gpu *g, uint32_t axes, EmitIf *inside) {
    Emit *e = g->e;
    Expr n = gpu_points(e, g->k, axes);
    gpu_launch(g, BLOCK, expr_ceildiv(e->exprs, n, expr_const(e->exprs, BLOCK)), 0, 0);
    LLVMValueRef at = LLVMBuildMul(e->b, g->block[0], emit_i64(e, BLOCK), "");
    at = LLVMBuildAdd(e->b, at, g->tid, "");
    emit_if_begin(e, inside, icmp(e, LLVMIntSLT, at, emit_expr(e, n)));
    gpu_decode(e, g->k, axes, emit_new_sym(e, "point", INT64_MAX / 4, at));
}

static void stores(Gpu *g) {
    for (KVal v = 1; v < g->k->nops; v++)
        if (g->k->ops[v].op == K_kstore || g->k->ops[v].op == K_katomic) emit_store(g->e, v);
}

static KVal find(const Kernel *k, uint32_t op) {
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == op) return v;
    return 0;
}

/* --- Scan: a thread walks a row ----------------------------------------------------------- */

static bool same_walk(const Kernel *k, const KOp *first) {
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if (o->op == K_ksort) return false;
        if (o->op == K_kscan && (o->axes != first->axes || (o->imm.i & 2) != (first->imm.i & 2)))
            return false;
    }
    return true;
}

static EmitLoop scan_loop(Gpu *g) {
    uint32_t n = 0;
    for (KVal v = 1; v < g->k->nops; v++) n += g->k->ops[v].op == K_kscan;
    EmitLoop l = emit_loop(g->e, n);
    n = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (o->op == K_kscan)
            l.init[n++] = emit_fold_identity(g->e, (KFold)o->fold, (DType)o->dtype, 1);
    }
    return l;
}

static void scan_step(Gpu *g, EmitLoop *l) {
    Emit *e = g->e;
    uint32_t n = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (o->op != K_kscan) continue;
        LLVMValueRef x = emit_value(e, o->in[0]);
        l->next[n] = emit_fold_join(e, (KFold)o->fold, (DType)o->dtype, l->phi[n], x);
        emit_override(e, v, o->imm.i & 1 ? l->phi[n] : l->next[n]);
        n++;
    }
}

bool gpu_scan(Gpu *g) {
    Emit *e = g->e;
    KVal first = find(g->k, K_kscan);
    if (!first) return false;
    const KOp *o = &g->k->ops[first];
    if (!same_walk(g->k, o)) {
        e->unsupported = "scans of different directions in one kernel";
        return true;
    }
    uint32_t axis = (uint32_t)__builtin_ctz(o->axes);
    EmitIf inside;
    points_begin(g, g->rows->par & ~o->axes, &inside);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef n = emit_expr(e, g->k->axes[axis].extent), one = emit_i64(e, 1);
    *l = scan_loop(g);
    emit_loop_begin(e, l, "scan", emit_i64(e, 0), n, one, false);
    LLVMValueRef at = l->i;
    if (o->imm.i & 2) at = LLVMBuildSub(e->b, LLVMBuildSub(e->b, n, one, ""), l->i, "");
    emit_set_sym(e, g->k->axes[axis].sym, at);
    scan_step(g, l);
    stores(g);
    emit_loop_end(e, l);
    emit_if_end(e, &inside);
    return true;
}

/* --- Sort: every element counts what belongs before it ------------------------------------ */

static LLVMValueRef before(Emit *e, DType t, bool descending, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef less = emit_map(e, OP_lt, t, descending ? b : a, descending ? a : b, NULL);
    if (!dtype_is_float(t)) return less;
    LLVMValueRef an = emit_map(e, OP_isnan, t, a, NULL, NULL);
    LLVMValueRef bn = emit_map(e, OP_isnan, t, b, NULL, NULL);
    return LLVMBuildOr(e->b, less, LLVMBuildAnd(e->b, bn, LLVMBuildNot(e->b, an, ""), ""), "");
}

static LLVMValueRef rank_of(Gpu *g, const KOp *o, uint32_t axis, LLVMValueRef at, LLVMValueRef x) {
    Emit *e = g->e;
    DType t = (DType)g->k->ops[o->in[0]].dtype;
    bool descending = o->imm.i & 2;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, 1);
    l->init[0] = emit_i64(e, 0);
    LLVMValueRef n = emit_expr(e, g->k->axes[axis].extent);
    emit_loop_begin(e, l, "rank", emit_i64(e, 0), n, emit_i64(e, 1), false);
    emit_set_sym(e, g->k->axes[axis].sym, l->i);
    LLVMValueRef y = emit_value(e, o->in[0]);
    LLVMValueRef equal = LLVMBuildNot(e->b, before(e, t, descending, x, y), "");
    equal = LLVMBuildAnd(e->b, equal, icmp(e, LLVMIntSLT, l->i, at), "");
    LLVMValueRef first = LLVMBuildOr(e->b, before(e, t, descending, y, x), equal, "");
    l->next[0] = LLVMBuildAdd(e->b, l->phi[0], LLVMBuildZExt(e->b, first, e->i64, ""), "");
    emit_loop_end(e, l);
    return l->out[0];
}

bool gpu_sort(Gpu *g) {
    Emit *e = g->e;
    KVal v = find(g->k, K_ksort);
    if (!v) return false;
    const KOp *o = &g->k->ops[v];
    uint32_t axis = (uint32_t)__builtin_ctz(o->axes), sym = g->k->axes[axis].sym;
    EmitIf inside;
    points_begin(g, g->rows->par | o->axes, &inside);
    LLVMValueRef at = emit_expr(e, expr_sym_ref(e->exprs, sym));
    LLVMValueRef x = emit_value(e, o->in[0]);
    LLVMValueRef rank = rank_of(g, o, axis, at, x);
    emit_push(e);
    emit_set_sym(e, sym, rank);
    emit_override(e, v, at);
    stores(g);
    emit_pop(e);
    emit_if_end(e, &inside);
    return true;
}

/* --- Compact: one warp, 32 flags at a time ------------------------------------------------- */

static void store_int(Gpu *g, uint32_t buf, LLVMValueRef index, LLVMValueRef v) {
    Emit *e = g->e;
    LLVMTypeRef t = emit_mem_type(e, g->k->params[buf].dtype);
    v = LLVMBuildIntCast2(e->b, v, t, true, "");
    emit_store_ptr(e, v, emit_gep(e, t, e->bufs[buf], index),
                   (uint32_t)dtype_bytes(g->k->params[buf].dtype));
}

static LLVMValueRef popcount(Emit *e, LLVMValueRef v) {
    return LLVMBuildZExt(e->b, emit_intrinsic(e, "llvm.ctpop", e->i32, &v, 1), e->i64, "");
}

bool gpu_compact(Gpu *g) {
    Emit *e = g->e;
    KVal v = find(g->k, K_kcompact);
    if (!v) return false;
    const KOp *o = &g->k->ops[v];
    uint32_t axis = (uint32_t)__builtin_ctz(o->axes);
    gpu_launch(g, 32, expr_const(e->exprs, 1), 0, 0);
    LLVMValueRef n = emit_expr(e, g->k->axes[axis].extent);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, 1);
    l->init[0] = emit_i64(e, 0);
    emit_loop_begin(e, l, "flags", emit_i64(e, 0), n, emit_i64(e, 32), false);
    LLVMValueRef at = LLVMBuildAdd(e->b, l->i, g->tid, "");
    LLVMValueRef in = icmp(e, LLVMIntSLT, at, n);
    LLVMValueRef safe = LLVMBuildSelect(e->b, in, at, emit_i64(e, 0), "");
    emit_set_sym(e, g->k->axes[axis].sym, safe);
    LLVMValueRef flag = LLVMBuildAnd(e->b, in, emit_value(e, o->in[0]), "");
    LLVMValueRef vote[2] = {LLVMConstInt(e->i32, 0xffffffff, false), flag};
    LLVMValueRef bits = emit_intrinsic(e, "llvm.nvvm.vote.ballot.sync", NULL, vote, 2);
    LLVMValueRef lower = LLVMBuildShl(e->b, LLVMConstInt(e->i32, 1, false),
                                      LLVMBuildTrunc(e->b, g->tid, e->i32, ""), "");
    lower = LLVMBuildSub(e->b, lower, LLVMConstInt(e->i32, 1, false), "");
    LLVMValueRef rank = popcount(e, LLVMBuildAnd(e->b, bits, lower, ""));
    EmitIf keep;
    emit_if_begin(e, &keep, flag);
    store_int(g, o->buf, LLVMBuildAdd(e->b, l->phi[0], rank, ""), at);
    emit_if_end(e, &keep);
    l->next[0] = LLVMBuildAdd(e->b, l->phi[0], popcount(e, bits), "");
    emit_loop_end(e, l);
    EmitIf first;
    emit_if_begin(e, &first, icmp(e, LLVMIntEQ, g->tid, emit_i64(e, 0)));
    store_int(g, kir_count_param(o), emit_i64(e, 0), l->out[0]);
    emit_if_end(e, &first);
    return true;
}

/* --- Serial: axes that decide addresses through data are walked in order ------------------- */

static void store_in_order(Gpu *g, const void *unused) {
    (void)unused;
    stores(g);
}

bool gpu_serial(Gpu *g) {
    if (!g->k->serial) return false;
    EmitIf inside;
    points_begin(g, g->rows->par, &inside);
    gpu_walk(g, g->rows->ordered, store_in_order, NULL);
    emit_if_end(g->e, &inside);
    return true;
}
