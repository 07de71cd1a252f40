/* A row per warp or per block: threads walk the row side by side and join their folds by shuffles,
 * across warps through shared memory. Every thread then knows every fold. */
#include "codegen/nvptx/gpu.h"

typedef struct Row {
    Gpu *g;
    uint32_t team;     /* threads per row: 32, or the whole block */
    LLVMValueRef rank; /* of the thread in its team */
} Row;

static bool is_arg(const KOp *o) {
    return o->fold >= FOLD_argmax;
}

static DType fold_type(Row *r, KVal v) {
    return (DType)r->g->k->ops[r->g->k->ops[v].in[0]].dtype;
}

/* acc[0..n): this thread's part joined with the part of another. */
static void join(Row *r, KVal v, LLVMValueRef *acc, LLVMValueRef *other) {
    const KOp *o = &r->g->k->ops[v];
    Emit *e = r->g->e;
    if (is_arg(o))
        rows_arg_join(e, (KFold)o->fold, fold_type(r, v), acc, other);
    else
        acc[0] = emit_fold_join(e, (KFold)o->fold, fold_type(r, v), acc[0], other[0]);
}

static void join_warp(Row *r, KVal v, uint32_t n, LLVMValueRef *acc) {
    Emit *e = r->g->e;
    for (uint32_t off = 16; off; off /= 2) {
        LLVMValueRef other[2];
        for (uint32_t i = 0; i < n; i++) other[i] = gpu_shuffle(e, acc[i], off);
        join(r, v, acc, other);
    }
}

static LLVMTypeRef stored_type(Emit *e, LLVMValueRef v) {
    return LLVMTypeOf(v) == e->i1 ? e->i8 : LLVMTypeOf(v);
}

/* Warp results meet in shared memory, where every thread reads all of them in order. */
static void join_block(Row *r, KVal v, uint32_t n, LLVMValueRef *acc) {
    Emit *e = r->g->e;
    uint32_t warps = r->team / 32;
    LLVMValueRef slot[2], other[2];
    LLVMValueRef warp = LLVMBuildLShr(e->b, r->g->tid, emit_i64(e, 5), "");
    for (uint32_t i = 0; i < n; i++) {
        LLVMTypeRef t = stored_type(e, acc[i]);
        slot[i] = gpu_shared(r->g, t, warps);
        LLVMValueRef x = LLVMTypeOf(acc[i]) == t ? acc[i] : LLVMBuildZExt(e->b, acc[i], t, "");
        LLVMBuildStore(e->b, x, emit_gep(e, t, slot[i], warp));
    }
    gpu_barrier(e);
    for (uint32_t w = 0; w < warps; w++) {
        for (uint32_t i = 0; i < n; i++) {
            LLVMTypeRef t = stored_type(e, acc[i]), own = LLVMTypeOf(acc[i]);
            LLVMValueRef x = LLVMBuildLoad2(e->b, t, emit_gep(e, t, slot[i], emit_i64(e, w)), "");
            other[i] = own == t ? x : LLVMBuildTrunc(e->b, x, own, "");
        }
        if (w)
            join(r, v, acc, other);
        else
            for (uint32_t i = 0; i < n; i++) acc[i] = other[i];
    }
}

static void fold_step(Row *r, KVal v, LLVMValueRef *acc) {
    Emit *e = r->g->e;
    const KOp *o = &r->g->k->ops[v];
    LLVMValueRef x = emit_value(e, o->in[0]);
    if (!is_arg(o)) {
        acc[0] = emit_fold_join(e, (KFold)o->fold, fold_type(r, v), acc[0], x);
        return;
    }
    uint32_t axis = (uint32_t)__builtin_ctz(o->axes);
    LLVMValueRef at = emit_expr(e, expr_sym_ref(e->exprs, r->g->k->axes[axis].sym));
    LLVMValueRef none = LLVMBuildICmp(e->b, LLVMIntSLT, acc[0], emit_i64(e, 0), "");
    LLVMValueRef better = emit_arg_beats(e, (KFold)o->fold, fold_type(r, v), x, acc[1]);
    LLVMValueRef take = LLVMBuildOr(e->b, none, better, "");
    acc[0] = LLVMBuildSelect(e->b, take, at, acc[0], "");
    acc[1] = LLVMBuildSelect(e->b, take, x, acc[1], "");
}

static uint32_t init_acc(Row *r, const Pass *p, LLVMValueRef *acc) {
    Emit *e = r->g->e;
    uint32_t n = 0;
    for (uint32_t f = 0; f < p->nfolds; f++) {
        const KOp *o = &r->g->k->ops[p->folds[f]];
        DType t = fold_type(r, p->folds[f]);
        if (is_arg(o)) {
            acc[n++] = emit_i64(e, -1);
            acc[n++] = LLVMConstNull(emit_type(e, t));
        } else {
            acc[n++] = emit_fold_identity(e, (KFold)o->fold, t, 1);
        }
    }
    return n;
}

static void pass_results(Row *r, const Pass *p, LLVMValueRef *acc) {
    Emit *e = r->g->e;
    for (uint32_t f = 0; f < p->nfolds; f++) {
        KVal v = p->folds[f];
        uint32_t n = is_arg(&r->g->k->ops[v]) ? 2 : 1;
        join_warp(r, v, n, acc);
        if (r->team > 32) join_block(r, v, n, acc);
        EmitOverride known = {v, {.v = acc[0], .depth = e->scope->depth}};
        vec_push(e->arena, &r->g->rows->copy[0].known, known);
        acc += n;
    }
}

enum { STEPS = 4 };

/* The team goes from `lo` to `hi`, each thread `steps` points at a time: all of them are read
 * before any result is stored. */
static void walk(Row *r, const Pass *p, uint32_t steps, LLVMValueRef lo, LLVMValueRef hi,
                 uint32_t nacc, LLVMValueRef *acc) {
    Emit *e = r->g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    EmitScope *scope[STEPS];
    int64_t least, most;
    expr_range(e->exprs, gpu_points(e, r->g->k, p->axes), &least, &most);
    l->nphi = nacc;
    for (uint32_t i = 0; i < nacc; i++) l->init[i] = acc[i];
    emit_loop_begin(e, l, "row", lo, hi, emit_i64(e, (int64_t)steps * r->team), false);
    Expr first = emit_new_sym(e, "j", most > 0 ? most - 1 : 0, l->i);
    EmitScope *outer = e->scope;
    for (uint32_t i = 0; i < nacc; i++) l->next[i] = l->phi[i];
    for (uint32_t u = 0; u < steps; u++) {
        rows_enter(r->g->rows, 0);
        scope[u] = e->scope;
        gpu_decode(e, r->g->k, p->axes, expr_addi(e->exprs, first, (int64_t)u * r->team));
        LLVMValueRef *at = l->next;
        for (uint32_t f = 0; f < p->nfolds; f++) {
            fold_step(r, p->folds[f], at);
            at += is_arg(&r->g->k->ops[p->folds[f]]) ? 2 : 1;
        }
        for (uint32_t i = 0; i < p->nstores; i++)
            (void)emit_value(e, r->g->k->ops[p->stores[i]].in[0]);
        (void)emit_switch(e, outer);
    }
    for (uint32_t u = 0; u < steps; u++) {
        (void)emit_switch(e, scope[u]);
        for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
        (void)emit_switch(e, outer);
    }
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < nacc; i++) acc[i] = l->out[i];
}

static void run_pass(Row *r, const Pass *p) {
    Emit *e = r->g->e;
    if (!p->axes) {
        EmitIf first;
        emit_if_begin(e, &first, LLVMBuildICmp(e->b, LLVMIntEQ, r->rank, emit_i64(e, 0), ""));
        rows_enter(r->g->rows, 0);
        for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
        emit_pop(e);
        emit_if_end(e, &first);
        return;
    }
    LLVMValueRef acc[EMIT_MAX_PHI];
    uint32_t nacc = init_acc(r, p, acc);
    Expr points = gpu_points(e, r->g->k, p->axes);
    LLVMValueRef end = emit_expr(e, points), from = r->rank;
    if (gpu_hint(e, points) >= (int64_t)STEPS * r->team && !r->g->j->shrink) {
        LLVMValueRef whole = LLVMBuildAnd(e->b, end, emit_i64(e, -(int64_t)STEPS * r->team), "");
        walk(r, p, STEPS, from, whole, nacc, acc);
        from = LLVMBuildAdd(e->b, whole, r->rank, "");
    }
    walk(r, p, 1, from, end, nacc, acc);
    pass_results(r, p, acc);
}

/* Rows are worth a team when the row is what lies side by side in memory, or when there are too few
 * of them to fill the machine. */
static bool wants_team(Gpu *g, int64_t *length) {
    Rows *r = g->rows;
    int score = 0;
    *length = 0;
    for (uint32_t i = 0; i < r->npasses; i++) {
        const Pass *p = &r->pass[i];
        if (!p->axes) continue;
        int64_t n = gpu_hint(g->e, gpu_points(g->e, g->k, p->axes));
        if (n > *length) *length = n;
    }
    for (uint32_t i = 0; i < g->k->naxes; i++) {
        int s = gpu_contiguity(g->e, g->k, r->dom, ~r->par, i);
        bool par = r->par >> i & 1;
        score += s > 0 ? (par ? -s : s) : 0;
    }
    int64_t rows = gpu_hint(g->e, gpu_points(g->e, g->k, r->par));
    return *length >= 16 && (score >= 0 || (rows < 8192 && *length >= 256));
}

bool gpu_row(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    int64_t length;
    bool folds = false;
    for (uint32_t i = 0; i < g->rows->npasses; i++) folds |= g->rows->pass[i].nfolds > 0;
    if (!folds || !wants_team(g, &length)) return false;
    bool warp = length <= 512;
    uint32_t threads = warp ? 128 : length <= 2048 ? 128 : length <= 8192 ? 256 : 512;
    Row r = {.g = g, .team = warp ? 32 : threads};
    Expr rows = gpu_points(e, g->k, g->rows->par);
    uint32_t per_block = threads / r.team;
    gpu_launch(g, threads, expr_ceildiv(p, rows, expr_const(p, per_block)), 0, 0);
    LLVMValueRef at = g->block[0];
    r.rank = g->tid;
    EmitIf inside;
    if (warp) {
        r.rank = LLVMBuildAnd(e->b, g->tid, emit_i64(e, 31), "");
        at = LLVMBuildMul(e->b, at, emit_i64(e, per_block), "");
        at = LLVMBuildAdd(e->b, at, LLVMBuildLShr(e->b, g->tid, emit_i64(e, 5), ""), "");
        emit_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntSLT, at, emit_expr(e, rows), ""));
    }
    gpu_decode(e, g->k, g->rows->par, emit_new_sym(e, "row", INT32_MAX, at));
    for (uint32_t i = 0; i < g->rows->npasses; i++) run_pass(&r, &g->rows->pass[i]);
    if (warp) emit_if_end(e, &inside);
    return true;
}
