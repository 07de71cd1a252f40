/* One thread per point of the parallel axes: pointwise kernels, folds over outer axes, and whatever
 * has no better structure. Folds and rows are walked by the thread alone. */
#include "codegen/nvptx/gpu.h"
#include "codegen/nvptx/hopper/hopper.h"

#define BLOCK 256

/* --- Folds: loads of several steps are in flight together ---------------------------------- */

enum { UNROLL = 4, MAX_TAPS = 64, MAX_COST = 1024 };

/* So many taps stand one behind the other, not in loops. All of the kernel's folds count: the
 * assembler's time grows faster than the code. */
static bool unrolled(const Gpu *g, int64_t taps) {
    uint32_t cost = 0;
    for (uint32_t i = 0; i < g->rows->npasses; i++)
        if (g->rows->pass[i].nfolds) cost += rows_cost(g->rows, g->rows->pass[i].cone);
    return taps <= MAX_TAPS && taps * (int64_t)cost <= MAX_COST;
}

static LLVMValueRef fold_axes(Gpu *g, const KOp *o, uint32_t axes, LLVMValueRef acc);

static LLVMValueRef fold_at(Gpu *g, const KOp *o, uint32_t axis, Expr at, uint32_t rest,
                            LLVMValueRef acc) {
    emit_push(g->e);
    emit_bind(g->e, g->k->axes[axis].sym, at);
    acc = fold_axes(g, o, rest, acc);
    emit_pop(g->e);
    return acc;
}

static LLVMValueRef fold_loop(Gpu *g, const KOp *o, uint32_t axis, uint32_t rest, uint32_t step,
                              LLVMValueRef lo, LLVMValueRef hi, LLVMValueRef acc) {
    Emit *e = g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, 1);
    l->init[0] = acc;
    emit_loop_begin(e, l, "fold", lo, hi, emit_i64(e, step), false);
    Expr at = emit_position(e, "step", g->k->axes[axis].extent, l->i);
    l->next[0] = l->phi[0];
    for (uint32_t u = 0; u < step; u++)
        l->next[0] = fold_at(g, o, axis, expr_addi(e->exprs, at, u), rest, l->next[0]);
    emit_loop_end(e, l);
    return l->out[0];
}

/* acc joined with the operand over all points of `axes`. */
static LLVMValueRef fold_axes(Gpu *g, const KOp *o, uint32_t axes, LLVMValueRef acc) {
    Emit *e = g->e;
    DType t = (DType)g->k->ops[o->in[0]].dtype;
    if (!axes) {
        bool lanes = emit_is_vector(acc);
        LLVMValueRef x = lanes ? emit_value_lanes(e, o->in[0]) : emit_value(e, o->in[0]);
        return emit_fold_join(e, (KFold)o->fold, t, acc, x);
    }
    uint32_t axis = (uint32_t)__builtin_ctz(axes), rest = axes & ~(1u << axis);
    Expr extent = g->k->axes[axis].extent;
    int64_t n;
    if (expr_is_const(e->exprs, gpu_points(e, g->k, axes), &n) && unrolled(g, n)) {
        n = expr_value(e->exprs, extent);
        for (int64_t i = 0; i < n; i++)
            acc = fold_at(g, o, axis, expr_const(e->exprs, i), rest, acc);
        return acc;
    }
    LLVMValueRef zero = emit_i64(e, 0), end = emit_expr(e, extent);
    if (rest || gpu_hint(e, extent) < 2 * UNROLL)
        return fold_loop(g, o, axis, rest, 1, zero, end, acc);
    LLVMValueRef whole = LLVMBuildAnd(e->b, end, emit_i64(e, -UNROLL), "");
    acc = fold_loop(g, o, axis, rest, UNROLL, zero, whole, acc);
    if (expr_divisor(e->exprs, extent) % UNROLL == 0) return acc;
    return fold_loop(g, o, axis, rest, 1, whole, end, acc);
}

static LLVMValueRef fold_of(Gpu *g, KVal v) {
    const KOp *o = &g->k->ops[v];
    if (o->op != K_kreduce || o->fold >= FOLD_argmax) return emit_value(g->e, v);
    DType t = (DType)g->k->ops[o->in[0]].dtype;
    uint32_t lanes = emit_varies(g->e, v) ? g->e->lanes : 1;
    return fold_axes(g, o, o->axes, emit_fold_identity(g->e, (KFold)o->fold, t, lanes));
}

static void store_pass(Gpu *g, const void *pass) {
    const Pass *p = pass;
    for (uint32_t i = 0; i < p->nstores; i++) emit_store(g->e, p->stores[i]);
}

static void run_passes(Gpu *g) {
    Passes *r = g->rows;
    for (uint32_t i = 0; i < r->npasses; i++) {
        const Pass *p = &r->pass[i];
        for (uint32_t f = 0; f < p->nfolds; f++)
            emit_override(g->e, p->folds[f], fold_of(g, p->folds[f]));
        if (p->nstores) gpu_walk(g, p->axes, store_pass, p);
    }
}

/* Straight-line code: one value after the other, all of them of the point. */
static bool is_straight(const Gpu *g) {
    for (KVal v = 1; v < g->k->nops; v++) {
        uint16_t op = g->k->ops[v].op;
        if (op == K_kreduce || op == K_katomic || op == K_kbind) return false;
    }
    return !g->k->serial;
}

/* Straight-line code that reads what no kernel of the run writes: that can be asked for early. */
static bool has_requests(const Gpu *g) {
    bool stable = false;
    for (KVal v = 1; v < g->k->nops; v++)
        stable = stable || (gpu_is_stable(g, v) && g->rows->need[v]);
    return stable && is_straight(g);
}

/* Asks for that at the point, and then waits for the kernel in front. */
static void request_early(Gpu *g) {
    for (KVal v = 1; v < g->k->nops; v++)
        if (gpu_is_stable(g, v) && g->rows->need[v]) emit_request(g->e, v);
    hop_asm(g->e, g->e->voidt, "", "~{memory}", NULL, 0); /* or loads would move to their uses */
    gpu_wait(g);
}

enum { BUSY = 1024, RESIDENT = 2048 }; /* threads that keep a multiprocessor busy; that it has */

/* Loads that go element by element whatever the vector: they do not stand against one that results
 * are stored in. So do those with bounds inside of an axis that is one vector: they are known by
 * lane. */
static const bool *lookups(Gpu *g, uint32_t axis) {
    ExprPool *p = g->e->exprs;
    const KAxis *a = &g->k->axes[axis];
    bool *is = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
    bool whole = expr_is_value(p, a->extent, g->e->isa->thread_lanes);
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        Expr coef, rest;
        is[v] = o->op == K_kload && (!expr_affine(p, o->index, a->sym, &coef, &rest) ||
                                     (whole && o->mask && expr_uses(p, o->mask, a->sym)));
    }
    return is;
}

/* The axis that a thread's vector lies along: the innermost one that stores walk, unless there is
 * too little work for vectors. -1: none. */
static int choose_lanes(Gpu *g, uint32_t par) {
    Emit *e = g->e;
    int axis = -1;
    for (uint32_t i = 0; i < g->k->naxes; i++)
        if (par >> i & 1 && !expr_is_value(e->exprs, g->k->axes[i].extent, 1)) axis = (int)i;
    if (axis < 0) return -1;
    e->lanes = gpu_lanes(g, (uint32_t)axis, lookups(g, (uint32_t)axis));
    int64_t n;
    bool known = expr_is_const(e->exprs, gpu_points(e, g->k, par), &n);
    while (known && e->lanes > 1 && n / e->lanes < (int64_t)g->m->processors * BUSY) e->lanes /= 2;
    return e->lanes > 1 ? axis : -1;
}

/* Points, or vectors of points. */
static Expr work_of(Gpu *g, uint32_t par, int lane) {
    if (lane < 0) return gpu_points(g->e, g->k, par);
    return expr_mul(g->e->exprs, gpu_points(g->e, g->k, par & ~(1u << lane)),
                    gpu_vectors(g, (uint32_t)lane));
}

/* The lane axis counts fastest, so that the vectors of a warp lie side by side. */
static void decode(Gpu *g, uint32_t par, int lane, Expr flat) {
    ExprPool *p = g->e->exprs;
    if (lane < 0) {
        gpu_decode(g->e, g->k, par, flat);
        return;
    }
    uint32_t others = par & ~(1u << lane);
    Expr n = gpu_vectors(g, (uint32_t)lane);
    bool alone = expr_is_value(p, gpu_points(g->e, g->k, others), 1);
    gpu_bind_lanes(g, (uint32_t)lane, emit_expr(g->e, alone ? flat : expr_mod(p, flat, n)));
    gpu_decode(g->e, g->k, others, expr_div(p, flat, n));
}

/* --- Pairs ------------------------------------------------------------------------------------ */

enum {
    PAIR = 2,
    PAIR_BLOCK = 128,
    PAIR_BLOCKS = 10,  /* of a multiprocessor */
    IN_FLIGHT = 65536, /* bytes that one asks for at once when it has memory's full speed */
};

/* Bytes of a point that no other point reads. */
static uint32_t own_bytes(const Gpu *g, uint32_t par) {
    uint32_t n = 0, all = 0;
    for (uint32_t i = 0; i < g->k->naxes; i++)
        if (par >> i & 1 && !expr_is_value(g->e->exprs, g->k->axes[i].extent, 1)) all |= 1u << i;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (o->op == K_kload && g->rows->need[v] && (g->rows->dom[v] & all) == all)
            n += (uint32_t)dtype_bytes(g->k->params[o->buf].dtype);
    }
    return n;
}

/* A vector of each thread that a multiprocessor has is less than it should ask for, and there is
 * work enough for two: both are asked for before the first is computed (bias + GELU over 67 M
 * elements of bf16: 65.9 us, not 68.6; of two operands, which are enough, nothing changes). */
static bool takes_pairs(const Gpu *g, uint32_t par, Expr n) {
    int64_t vectors;
    uint32_t asked = own_bytes(g, par) * g->e->lanes * RESIDENT;
    return asked && asked < IN_FLIGHT && !g->j->shrink && g->e->lanes > 1 && is_straight(g) &&
           expr_is_const(g->e->exprs, n, &vectors) && vectors % (PAIR * PAIR_BLOCK) == 0 &&
           vectors / PAIR >= (int64_t)g->m->processors * RESIDENT;
}

static void run_pairs(Gpu *g, uint32_t par, int lane, int64_t vectors) {
    Emit *e = g->e;
    EmitScope *scope[PAIR], *outer = e->scope;
    const int64_t block = PAIR * PAIR_BLOCK;
    if (!g->j->min_blocks) g->j->min_blocks = PAIR_BLOCKS;
    gpu_launch(g, PAIR_BLOCK, expr_const(e->exprs, vectors / block), 0, 0);
    LLVMValueRef at = LLVMBuildMul(e->b, g->block[0], emit_i64(e, block), "");
    Expr first = emit_new_sym(e, "point", vectors - 1, LLVMBuildAdd(e->b, at, g->tid, ""));
    for (uint32_t u = 0; u < PAIR; u++) {
        scope[u] = emit_push(e);
        decode(g, par, lane, expr_addi(e->exprs, first, (int64_t)u * PAIR_BLOCK));
        for (KVal v = 1; v < g->k->nops; v++)
            if (gpu_is_request(g, v)) (void)emit_value(e, v);
        (void)emit_switch(e, outer);
    }
    e->math = gpu_math_of(g->k);
    for (uint32_t u = 0; u < PAIR; u++) {
        (void)emit_switch(e, scope[u]);
        run_passes(g);
        (void)emit_switch(e, outer);
    }
}

/* --- Vectors and what is left ----------------------------------------------------------------- */

/* All points lie along one axis, whose length is no multiple of a vector: the axis; or -1. Of what
 * several axes make, rows would begin at any element. Gives the lanes. */
static int find_ragged(Gpu *g, uint32_t par) {
    Emit *e = g->e;
    int64_t n;
    uint32_t axes = 0;
    for (uint32_t i = 0; i < g->k->naxes; i++)
        if (par >> i & 1 && !expr_is_value(e->exprs, g->k->axes[i].extent, 1)) axes |= 1u << i;
    if (!axes || axes & (axes - 1) || !is_straight(g)) return -1;
    const uint32_t axis = (uint32_t)__builtin_ctz(axes);
    if (!expr_is_const(e->exprs, g->k->axes[axis].extent, &n)) return -1;
    uint32_t lanes = gpu_lanes_ragged(g, axis);
    while (lanes > 1 && n / lanes < (int64_t)g->m->processors * BUSY) lanes /= 2;
    if (lanes == 1 || n % lanes == 0) return -1;
    e->lanes = lanes;
    return (int)axis;
}

/* A thread has a vector, or one of the elements behind the last. */
static void run_ragged(Gpu *g, uint32_t par, uint32_t axis) {
    Emit *e = g->e;
    const int64_t all = expr_value(e->exprs, g->k->axes[axis].extent), n = all / e->lanes;
    const int64_t rest = all % e->lanes, blocks = (n + rest + BLOCK - 1) / BLOCK;
    EmitIf whole, single;
    gpu_launch(g, BLOCK, expr_const(e->exprs, blocks), 0, 0);
    e->math = gpu_math_of(g->k);
    LLVMValueRef at = LLVMBuildMul(e->b, g->block[0], emit_i64(e, BLOCK), "");
    at = LLVMBuildAdd(e->b, at, g->tid, "");
    emit_if_begin(e, &whole, LLVMBuildICmp(e->b, LLVMIntSLT, at, emit_i64(e, n), ""));
    emit_push(e);
    gpu_bind_lanes(g, axis, at);
    run_passes(g);
    emit_pop(e);
    emit_if_end(e, &whole);
    at = LLVMBuildAdd(e->b, at, emit_i64(e, n * e->lanes - n), "");
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntSGE, at, emit_i64(e, all - rest), "");
    is = LLVMBuildAnd(e->b, is, LLVMBuildICmp(e->b, LLVMIntSLT, at, emit_i64(e, all), ""), "");
    e->lanes = 1;
    emit_if_begin(e, &single, is);
    emit_push(e);
    gpu_decode(e, g->k, par, emit_position(e, "point", g->k->axes[axis].extent, at));
    run_passes(g);
    emit_pop(e);
    emit_if_end(e, &single);
}

/* --- The kernel ------------------------------------------------------------------------------- */

void gpu_point(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    uint32_t par = g->rows->par;
    int lane = choose_lanes(g, par), ragged = lane < 0 ? find_ragged(g, par) : -1;
    if (ragged >= 0) {
        run_ragged(g, par, (uint32_t)ragged);
        return;
    }
    Expr n = work_of(g, par, lane);
    if (takes_pairs(g, par, n)) {
        run_pairs(g, par, lane, expr_value(p, n));
        return;
    }
    bool early = has_requests(g) && gpu_hint(e, n) <= (int64_t)g->m->processors * RESIDENT;
    if (early) g->order = GPU_WAITS_LATER;
    gpu_launch(g, BLOCK, expr_ceildiv(p, n, expr_const(p, BLOCK)), 0, 0);
    LLVMValueRef first = LLVMBuildMul(e->b, g->block[0], emit_i64(e, BLOCK), "");
    LLVMValueRef at = LLVMBuildAdd(e->b, first, g->tid, "");
    EmitIf inside;
    LLVMValueRef end = emit_expr(e, n), in = LLVMBuildICmp(e->b, LLVMIntSLT, at, end, "");
    if (early) { /* threads past the end have the last point up to there: all of them wait */
        LLVMValueRef kept[2] = {at, LLVMBuildSub(e->b, end, emit_i64(e, 1), "")};
        at = emit_intrinsic(e, "llvm.smin", e->i64, kept, 2);
        decode(g, par, lane, emit_position(e, "point", n, at));
        request_early(g);
    }
    emit_if_begin(e, &inside, in);
    if (!early) decode(g, par, lane, emit_position(e, "point", n, at));
    e->math = gpu_math_of(g->k);
    run_passes(g);
    emit_if_end(e, &inside);
}
