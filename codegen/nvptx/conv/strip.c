/* Folds over windows, as depthwise convolutions and pooling are: a thread computes neighbouring
 * positions of a row, whose windows overlap, so that what they share is loaded once. Its vector
 * lies along another axis, the channels. */
#include "codegen/nvptx/gpu.h"

enum { BLOCK = 128, MAX_TAPS = 64, MAX_UNROLL = 25, MAX_POSITIONS = 7, BUSY = 512 };

typedef struct Strip {
    Gpu *g;
    Emit *e;
    KVal fold;
    const KOp *o;
    uint32_t lane, axis; /* of the vector, of the strip */
    uint32_t n;          /* positions of a thread */
    Expr at[MAX_POSITIONS];
} Strip;

/* The one fold, over few points that are known; everything else belongs to a position. */
static bool find_fold(Strip *s) {
    const Gpu *g = s->g;
    if (g->k->kind != KERNEL_red || g->k->serial) return false;
    for (uint32_t i = 0; i < g->rows->npasses; i++) {
        const Pass *p = &g->rows->pass[i];
        if (p->nstores && p->axes) return false;
        for (uint32_t f = 0; f < p->nfolds; f++) {
            if (s->fold) return false;
            s->fold = p->folds[f];
        }
    }
    if (!s->fold) return false;
    s->o = &g->k->ops[s->fold];
    int64_t n;
    bool known = expr_is_const(s->e->exprs, gpu_points(s->e, g->k, s->o->axes), &n);
    return s->o->op == K_kreduce && s->o->fold < FOLD_argmax && known && n <= MAX_TAPS;
}

/* A step along the axis is one of several taps in some load. */
static bool overlaps(const Strip *s, uint32_t axis) {
    const Kernel *k = s->g->k;
    ExprPool *p = s->e->exprs;
    for (KVal v = 1; v < s->fold; v++) {
        Expr step, tap, rest;
        if (k->ops[v].op != K_kload) continue;
        if (!expr_affine(p, k->ops[v].index, k->axes[axis].sym, &step, &rest)) continue;
        for (uint32_t t = 0; t < k->naxes; t++) {
            if (!(s->o->axes >> t & 1)) continue;
            if (!expr_affine(p, k->ops[v].index, k->axes[t].sym, &tap, &rest)) continue;
            int64_t taps = expr_value(p, k->axes[t].extent);
            for (int64_t i = 1; i < taps && !expr_is_value(p, tap, 0); i++)
                if (expr_muli(p, tap, i) == step) return true;
        }
    }
    return false;
}

static bool busy(const Strip *s, uint32_t positions) {
    int64_t n = gpu_hint(s->e, gpu_points(s->e, s->g->k, s->g->rows->par));
    return n / s->e->lanes / positions >= (int64_t)s->g->m->processors * BUSY;
}

/* As many positions as divide the row evenly, while there is work for all threads. */
static bool choose(Strip *s) {
    Emit *e = s->e;
    const KAxis *x = s->g->k->axes;
    uint32_t par = s->g->rows->par, axis = UINT32_MAX;
    if (!par) return false;
    s->lane = 31u - (uint32_t)__builtin_clz(par);
    for (uint32_t i = 0; i < s->lane; i++)
        if (par >> i & 1 && overlaps(s, i)) axis = i;
    if (axis == UINT32_MAX) return false;
    s->axis = axis;
    e->lanes = gpu_lanes(s->g, s->lane, NULL);
    int64_t row = expr_divisor(e->exprs, x[axis].extent);
    for (uint32_t n = 2; n <= MAX_POSITIONS; n++)
        if (row % n == 0 && n * e->lanes <= 64u >> s->g->j->shrink && (n < 3 || busy(s, n)))
            s->n = n;
    if (s->n && e->lanes > 1) return true;
    e->lanes = 1;
    return false;
}

/* acc[i] joined with the fold's operand at position i, over the points of `axes`. */
static void join(Strip *s, uint32_t axes, LLVMValueRef *acc) {
    Emit *e = s->e;
    if (axes) {
        uint32_t axis = (uint32_t)__builtin_ctz(axes);
        int64_t n = expr_value(e->exprs, s->g->k->axes[axis].extent);
        for (int64_t i = 0; i < n; i++) {
            emit_push(e);
            emit_bind(e, s->g->k->axes[axis].sym, expr_const(e->exprs, i));
            join(s, axes & ~(1u << axis), acc);
            emit_pop(e);
        }
        return;
    }
    DType t = (DType)s->g->k->ops[s->o->in[0]].dtype;
    for (uint32_t i = 0; i < s->n; i++) {
        emit_push(e);
        emit_bind(e, s->g->k->axes[s->axis].sym, s->at[i]);
        LLVMValueRef v = emit_value_lanes(e, s->o->in[0]);
        acc[i] = emit_fold_join(e, (KFold)s->o->fold, t, acc[i], v);
        emit_pop(e);
    }
}

/* Many taps: a loop over those of the outermost axis. */
static void join_rows(Strip *s, LLVMValueRef *acc) {
    Emit *e = s->e;
    uint32_t axes = s->o->axes, outer = (uint32_t)__builtin_ctz(axes);
    int64_t rows = expr_value(e->exprs, s->g->k->axes[outer].extent);
    if (expr_value(e->exprs, gpu_points(e, s->g->k, axes)) <= MAX_UNROLL) {
        join(s, axes, acc);
        return;
    }
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, s->n);
    for (uint32_t i = 0; i < s->n; i++) l->init[i] = acc[i];
    emit_loop_begin(e, l, "taps", emit_i64(e, 0), emit_i64(e, rows), emit_i64(e, 1), true);
    emit_bind(e, s->g->k->axes[outer].sym, emit_new_sym(e, "tap", rows - 1, l->i));
    for (uint32_t i = 0; i < s->n; i++) acc[i] = l->phi[i];
    join(s, axes & ~(1u << outer), acc);
    for (uint32_t i = 0; i < s->n; i++) l->next[i] = acc[i];
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < s->n; i++) acc[i] = l->out[i];
}

static void store(Strip *s, const LLVMValueRef *acc) {
    Emit *e = s->e;
    const Passes *r = s->g->rows;
    for (uint32_t i = 0; i < s->n; i++) {
        emit_push(e);
        emit_bind(e, s->g->k->axes[s->axis].sym, s->at[i]);
        emit_override(e, s->fold, acc[i]);
        for (uint32_t p = 0; p < r->npasses; p++)
            for (uint32_t z = 0; z < r->pass[p].nstores; z++) emit_store(e, r->pass[p].stores[z]);
        emit_pop(e);
    }
}

/* Vectors of a strip's channels count fastest, then strips, then the other axes. */
static void place(Strip *s, Expr flat) {
    Emit *e = s->e;
    ExprPool *p = e->exprs;
    const KAxis *x = s->g->k->axes;
    Expr vectors = gpu_vectors(s->g, s->lane),
         strips = expr_div(p, x[s->axis].extent, expr_const(p, s->n));
    gpu_bind_lanes(s->g, s->lane, emit_expr(e, expr_mod(p, flat, vectors)));
    flat = expr_div(p, flat, vectors);
    Expr first = expr_muli(p, expr_mod(p, flat, strips), s->n);
    for (uint32_t i = 0; i < s->n; i++) s->at[i] = expr_addi(p, first, i);
    gpu_decode(e, s->g->k, s->g->rows->par & ~(1u << s->lane | 1u << s->axis),
               expr_div(p, flat, strips));
}

bool gpu_strip(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Strip s = {.g = g, .e = e};
    if (!find_fold(&s) || !choose(&s)) return false;
    Expr n = expr_div(p, gpu_points(e, g->k, g->rows->par), expr_const(p, s.n * e->lanes));
    gpu_launch(g, BLOCK, expr_ceildiv(p, n, expr_const(p, BLOCK)), 0, 0);
    LLVMValueRef first = LLVMBuildMul(e->b, g->block[0], emit_i64(e, BLOCK), "");
    LLVMValueRef at = LLVMBuildAdd(e->b, first, g->tid, "");
    EmitIf inside;
    emit_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntSLT, at, emit_expr(e, n), ""));
    place(&s, emit_position(e, "strip", n, at));
    LLVMValueRef acc[MAX_POSITIONS];
    DType t = (DType)g->k->ops[s.o->in[0]].dtype;
    for (uint32_t i = 0; i < s.n; i++)
        acc[i] = emit_fold_identity(e, (KFold)s.o->fold, t, e->lanes);
    join_rows(&s, acc);
    store(&s, acc);
    emit_if_end(e, &inside);
    return true;
}
