/* Long ordered scatters, as gradients of embeddings: many updates of rows, found through data.
 * Every block owns the addresses that hash to its number. It looks at all updates, lists its own in
 * order, and makes them: what meets at one address is added by one thread, in the order of the
 * updates, whatever the timing. */
#include "codegen/nvptx/gpu.h"

enum {
    OWNER_BITS = 9, /* blocks that own addresses: four a multiprocessor */
    THREADS = 256,
    WARPS = THREADS / 32,
    LOOKS = 4, /* updates that a thread looks at together */
    WINDOW = THREADS * LOOKS,
    BATCH = 4, /* updates whose values are asked for together */
    LEAST_UPDATES = 1024,
    MOST_POINTS = 4 * THREADS, /* of an update, that a block takes */
};

#define HASH 0x9e3779b1

typedef struct Scatter {
    Gpu *g;
    KVal update;
    Expr row; /* address where all free axes are 0: an owner's */
    LLVMValueRef updates, list, counts, lane, warp; /* i64; shared memory; i64 */
} Scatter;

static bool uses_order(const Gpu *g, Expr x) {
    for (uint32_t i = 0; i < g->k->naxes; i++)
        if ((g->rows->ordered >> i & 1) && expr_uses(g->e->exprs, x, g->k->axes[i].sym))
            return true;
    for (KVal v = 1; v < g->k->nops; v++)
        if (g->k->ops[v].op == K_kbind && expr_uses(g->e->exprs, x, g->k->ops[v].sym)) return true;
    return false;
}

/* The address is a row's, and moves along the free axes alike in all rows. */
static bool find_row(Scatter *s) {
    Gpu *g = s->g;
    s->row = g->k->ops[s->update].index;
    for (uint32_t i = 0; i < g->k->naxes; i++) {
        Expr coef, rest;
        if (!(g->rows->par >> i & 1)) continue;
        if (!expr_affine(g->e->exprs, s->row, g->k->axes[i].sym, &coef, &rest)) return false;
        if (uses_order(g, coef)) return false;
        s->row = rest;
    }
    return true;
}

/* One update a point, of a place that the ordered axes alone decide. */
static bool has_shape(Scatter *s) {
    Gpu *g = s->g;
    if (!g->k->serial || !g->rows->ordered || !g->rows->par) return false;
    for (KVal v = 1; v < g->k->nops; v++) {
        uint16_t op = g->k->ops[v].op;
        bool effect = op == K_katomic || op == K_kstore || op == K_kcompact;
        if (op == K_kreduce || op == K_kscan || op == K_ksort || (effect && s->update))
            return false;
        if (op == K_kbind && g->rows->dom[v] & ~g->rows->ordered) return false;
        if (effect) s->update = v;
    }
    int64_t n = gpu_hint(g->e, gpu_points(g->e, g->k, g->rows->ordered));
    return s->update && n >= LEAST_UPDATES && find_row(s);
}

/* In the current scope the kernel is at this update. */
static void bind_update(const Scatter *s, LLVMValueRef at) {
    Gpu *g = s->g;
    gpu_decode(g->e, g->k, g->rows->ordered, emit_new_sym(g->e, "update", INT32_MAX, at));
}

/* --- Which updates are the block's ------------------------------------------------------------ */

/* True (i1) for update `at` if it is there and this block's. */
static LLVMValueRef is_own(Scatter *s, LLVMValueRef at) {
    Gpu *g = s->g;
    Emit *e = g->e;
    LLVMValueRef last[2] = {at, LLVMBuildSub(e->b, s->updates, emit_i64(e, 1), "")};
    emit_push(e);
    bind_update(s, emit_intrinsic(e, "llvm.smin", e->i64, last, 2));
    LLVMValueRef h = LLVMBuildTrunc(e->b, emit_expr(e, s->row), e->i32, "");
    emit_pop(e);
    h = LLVMBuildMul(e->b, h, LLVMConstInt(e->i32, HASH, false), "");
    h = LLVMBuildLShr(e->b, h, LLVMConstInt(e->i32, 32 - OWNER_BITS, false), "");
    h = LLVMBuildZExt(e->b, h, e->i64, "");
    LLVMValueRef own = LLVMBuildICmp(e->b, LLVMIntEQ, h, g->block[0], "");
    return LLVMBuildAnd(e->b, own, LLVMBuildICmp(e->b, LLVMIntSLT, at, s->updates, ""), "");
}

static LLVMValueRef popcount(Emit *e, LLVMValueRef v) {
    return LLVMBuildZExt(e->b, emit_intrinsic(e, "llvm.ctpop", e->i32, &v, 1), e->i64, "");
}

/* Lists the block's updates from `first` on, in order; how many they are. */
static LLVMValueRef look(Scatter *s, LLVMValueRef first) {
    Gpu *g = s->g;
    Emit *e = g->e;
    LLVMValueRef own[LOOKS], at[LOOKS], bits[LOOKS], before[LOOKS], sum = emit_i64(e, 0);
    for (uint32_t i = 0; i < LOOKS; i++) {
        at[i] = LLVMBuildAdd(e->b, first, emit_i64(e, (int64_t)i * THREADS), "");
        at[i] = LLVMBuildAdd(e->b, at[i], g->tid, "");
        own[i] = is_own(s, at[i]);
    }
    for (uint32_t i = 0; i < LOOKS; i++) {
        LLVMValueRef vote[2] = {LLVMConstInt(e->i32, 0xffffffff, false), own[i]};
        bits[i] = emit_intrinsic(e, "llvm.nvvm.vote.ballot.sync", NULL, vote, 2);
        LLVMValueRef slot = LLVMBuildAdd(e->b, s->warp, emit_i64(e, (int64_t)i * WARPS), "");
        LLVMBuildStore(e->b, popcount(e, bits[i]), emit_gep(e, e->i64, s->counts, slot));
    }
    gpu_barrier(e);
    for (uint32_t i = 0; i < LOOKS; i++) {
        before[i] = sum;
        for (uint32_t w = 0; w < WARPS; w++) {
            LLVMValueRef p = emit_gep(e, e->i64, s->counts, emit_i64(e, (int64_t)i * WARPS + w));
            LLVMValueRef n = LLVMBuildLoad2(e->b, e->i64, p, "");
            LLVMValueRef in_front = LLVMBuildICmp(e->b, LLVMIntSLT, emit_i64(e, w), s->warp, "");
            LLVMValueRef more = LLVMBuildSelect(e->b, in_front, n, emit_i64(e, 0), "");
            before[i] = LLVMBuildAdd(e->b, before[i], more, "");
            sum = LLVMBuildAdd(e->b, sum, n, "");
        }
    }
    for (uint32_t i = 0; i < LOOKS; i++) {
        EmitIf mine;
        LLVMValueRef one = LLVMConstInt(e->i32, 1, false);
        LLVMValueRef lower = LLVMBuildShl(e->b, one, LLVMBuildTrunc(e->b, s->lane, e->i32, ""), "");
        lower = LLVMBuildAnd(e->b, bits[i], LLVMBuildSub(e->b, lower, one, ""), "");
        LLVMValueRef to = LLVMBuildAdd(e->b, before[i], popcount(e, lower), "");
        emit_if_begin(e, &mine, own[i]);
        LLVMBuildStore(e->b, at[i], emit_gep(e, e->i64, s->list, to));
        emit_if_end(e, &mine);
    }
    gpu_barrier(e);
    return sum;
}

/* --- Making them ------------------------------------------------------------------------------ */

/* Updates `from` .. of the list, n of them at most, at this thread's point: values first, then one
 * update after the other. */
static void make(Scatter *s, LLVMValueRef from, LLVMValueRef n) {
    Emit *e = s->g->e;
    EmitScope *scope[BATCH], *outer = e->scope;
    LLVMValueRef there[BATCH];
    LLVMValueRef last = LLVMBuildSub(e->b, n, emit_i64(e, 1), "");
    for (uint32_t u = 0; u < BATCH; u++) {
        LLVMValueRef at[2] = {LLVMBuildAdd(e->b, from, emit_i64(e, u), ""), last};
        there[u] = LLVMBuildICmp(e->b, LLVMIntSLT, at[0], n, "");
        at[0] = emit_intrinsic(e, "llvm.smin", e->i64, at, 2);
        scope[u] = emit_push(e);
        LLVMValueRef p = emit_gep(e, e->i64, s->list, at[0]);
        bind_update(s, LLVMBuildLoad2(e->b, e->i64, p, ""));
        (void)emit_value(e, s->g->k->ops[s->update].in[0]);
        (void)emit_switch(e, outer);
    }
    for (uint32_t u = 0; u < BATCH; u++) {
        EmitIf is;
        (void)emit_switch(e, scope[u]);
        emit_if_begin(e, &is, there[u]);
        emit_store(e, s->update);
        emit_if_end(e, &is);
        (void)emit_switch(e, outer);
    }
}

/* All of the listed updates, a thread's points one after the other. */
static void make_all(Scatter *s, LLVMValueRef n) {
    Gpu *g = s->g;
    Emit *e = g->e;
    EmitLoop *points = ARENA_NEW(e->arena, EmitLoop), *l = ARENA_NEW(e->arena, EmitLoop);
    Expr all = gpu_points(e, g->k, g->rows->par);
    LLVMValueRef first = LLVMBuildMul(e->b, g->block[1], emit_i64(e, MOST_POINTS), "");
    LLVMValueRef end[2] = {LLVMBuildAdd(e->b, first, emit_i64(e, MOST_POINTS), ""),
                           emit_expr(e, all)};
    *points = emit_loop(e, 0);
    emit_loop_begin(e, points, "point", LLVMBuildAdd(e->b, first, g->tid, ""),
                    emit_intrinsic(e, "llvm.smin", e->i64, end, 2), emit_i64(e, THREADS), false);
    gpu_decode(e, g->k, g->rows->par, emit_new_sym(e, "point", INT32_MAX, points->i));
    *l = emit_loop(e, 0);
    emit_loop_begin(e, l, "own", emit_i64(e, 0), n, emit_i64(e, BATCH), false);
    make(s, l->i, n);
    emit_loop_end(e, l);
    emit_loop_end(e, points);
}

bool gpu_scatter(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Scatter s = {.g = g};
    int64_t lo, hi;
    if (!has_shape(&s)) return false;
    Expr parts = expr_ceildiv(p, gpu_points(e, g->k, g->rows->par), expr_const(p, MOST_POINTS));
    expr_range(p, parts, &lo, &hi);
    if (hi > GPU_GRID_Y) return false;
    gpu_launch(g, THREADS, expr_const(p, 1 << OWNER_BITS), parts, 0);
    s.updates = emit_expr(e, gpu_points(e, g->k, g->rows->ordered));
    s.list = gpu_shared(g, e->i64, WINDOW);
    s.counts = gpu_shared(g, e->i64, WARPS * LOOKS);
    s.lane = LLVMBuildAnd(e->b, g->tid, emit_i64(e, 31), "");
    s.warp = LLVMBuildLShr(e->b, g->tid, emit_i64(e, 5), "");
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, 0);
    emit_loop_begin(e, l, "window", emit_i64(e, 0), s.updates, emit_i64(e, WINDOW), false);
    make_all(&s, look(&s, l->i));
    gpu_barrier(e); /* nobody lists what is still read */
    emit_loop_end(e, l);
    return true;
}
