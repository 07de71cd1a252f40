/* Passes of the row emitter: loops over the axes that they walk, carrying every copy's folds. */
#include "codegen/cpu/rows.h"

/* --- Kept row values ---------------------------------------------------------------------- */

static void kept_store(Rows *r, const Kept *q, uint32_t copy) {
    Emit *e = r->e;
    DType t = (DType)r->k->ops[q->v].dtype;
    bool lanes = q->varies || (int)q->axis == r->lane;
    LLVMValueRef v = lanes ? emit_value_lanes(e, q->v) : emit_value(e, q->v);
    emit_store_ptr(e, v, rows_kept_at(r, q, copy), (uint32_t)dtype_bytes(t));
}

static void kept_load(Rows *r, const Kept *q, uint32_t copy) {
    Emit *e = r->e;
    DType t = (DType)r->k->ops[q->v].dtype;
    bool lanes = q->varies || (int)q->axis == r->lane;
    LLVMTypeRef ty = emit_vec(emit_type(e, t), lanes ? e->lanes : 1);
    emit_override(e, q->v, emit_load(e, ty, rows_kept_at(r, q, copy), (uint32_t)dtype_bytes(t)));
}

/* --- Folds -------------------------------------------------------------------------------- */

typedef struct Walk {
    Rows *r;
    const Pass *p;
    uint32_t per_copy;   /* accumulators of one copy and block */
    uint32_t blocks;     /* accumulators of each fold, joined at the end: */
    uint32_t row_blocks; /* for neighbouring lane blocks, or */
    uint32_t unroll;     /* for neighbouring steps of the innermost other axis */
    bool row_lanes;      /* the lane axis is walked here */
} Walk;

static bool is_arg(const KOp *o) {
    return o->fold >= FOLD_argmax;
}

static LLVMValueRef fold_mask(Emit *e, const KOp *o, DType t, LLVMValueRef mask, LLVMValueRef x) {
    if (!mask) return x;
    return emit_select(e, mask, x, emit_fold_identity(e, (KFold)o->fold, t, e->lanes));
}

/* acc[0] = position or -1, acc[1] = best value. */
static void fold_arg(Walk *w, const KOp *o, LLVMValueRef mask, LLVMValueRef *acc) {
    Emit *e = w->r->e;
    DType t = (DType)w->r->k->ops[o->in[0]].dtype;
    bool vec = emit_is_vector(acc[0]);
    LLVMValueRef x = vec ? emit_value_lanes(e, o->in[0]) : emit_value(e, o->in[0]);
    uint32_t axis = (uint32_t)__builtin_ctz(o->axes);
    LLVMValueRef at = emit_expr(e, expr_sym_ref(e->exprs, w->r->k->axes[axis].sym));
    LLVMValueRef none =
        LLVMBuildICmp(e->b, LLVMIntSLT, acc[0], emit_i(e, LLVMTypeOf(acc[0]), 0), "");
    LLVMValueRef take =
        LLVMBuildOr(e->b, none, emit_arg_beats(e, (KFold)o->fold, t, x, acc[1]), "");
    if (mask && w->row_lanes) take = LLVMBuildAnd(e->b, take, mask, "");
    acc[0] = emit_select(e, take, at, acc[0]);
    acc[1] = emit_select(e, take, x, acc[1]);
}

static void fold_step(Walk *w, LLVMValueRef mask, LLVMValueRef *acc) {
    Emit *e = w->r->e;
    for (uint32_t f = 0; f < w->p->nfolds; f++) {
        const KOp *o = &w->r->k->ops[w->p->folds[f]];
        DType t = (DType)w->r->k->ops[o->in[0]].dtype;
        if (is_arg(o)) {
            fold_arg(w, o, mask, acc);
            acc += 2;
            continue;
        }
        bool vec = emit_is_vector(*acc);
        LLVMValueRef x = vec ? emit_value_lanes(e, o->in[0]) : emit_value(e, o->in[0]);
        if (w->row_lanes) x = fold_mask(e, o, t, mask, x);
        *acc = rows_join(&w->r->p, w->p->folds[f])(e, (KFold)o->fold, t, *acc, x);
        acc++;
    }
}

/* The copies' scopes, in which each load of the pass is there for all copies before the next. */
static void start_chains(const Walk *w, EmitScope **of) {
    Rows *r = w->r;
    Emit *e = r->e;
    EmitScope *around = e->scope;
    for (uint32_t c = 0; c < r->ncopies; c++) {
        rows_enter(r, c);
        of[c] = emit_switch(e, around);
    }
    for (KVal v = 1; v < r->k->nops; v++)
        for (uint32_t c = 0; w->p->cone[v] && r->k->ops[v].op == K_kload && c < r->ncopies; c++) {
            emit_switch(e, of[c]);
            (void)emit_value(e, v);
        }
    emit_switch(e, around);
}

/* What one point of the walk (or one block of lanes) does, for every copy. */
static void pass_point(Walk *w, LLVMValueRef mask, LLVMValueRef *acc) {
    Rows *r = w->r;
    EmitScope *of[ROWS_MAX_COPIES];
    const bool joined = r->joined && !r->copy[0].mask;
    if (r->chained) start_chains(w, of);
    for (uint32_t c = 0; c < r->ncopies; c++) {
        if (r->chained)
            emit_switch(r->e, of[c]);
        else
            rows_enter(r, c);
        for (uint32_t i = 0; i < r->nkept; i++)
            if (r->filled >> i & 1 && w->p->axes >> r->kept[i].axis & 1)
                kept_load(r, &r->kept[i], c);
        fold_step(w, mask, acc + c * w->per_copy);
        for (uint32_t i = 0; i < r->nkept; i++)
            if (rows_keeps(w->r, w->p) >> i & 1) kept_store(r, &r->kept[i], c);
        for (uint32_t i = 0; !joined && i < w->p->nstores; i++) emit_store(r->e, w->p->stores[i]);
        emit_pop(r->e);
    }
    for (uint32_t i = 0; joined && i < w->p->nstores; i++) rows_join_store(r, w->p->stores[i]);
}

static void row_step(Rows *r, void *ctx, uint32_t n, Expr base, LLVMValueRef mask,
                     LLVMValueRef *acc) {
    Walk *w = ctx;
    Emit *e = r->e;
    for (uint32_t u = 0; u < n; u++) {
        emit_push(e);
        emit_bind_lanes(e, r->k->axes[r->lane].sym,
                        expr_addi(e->exprs, base, (int64_t)u * e->lanes), mask, true);
        pass_point(w, mask, acc + u * r->ncopies * w->per_copy);
        emit_pop(e);
    }
}

#define UNROLL_POINTS 64
#define UNROLL_COST   1024 /* of one copy, */
#define UNROLL_COPIES 2048 /* of all: LLVM takes memory and time for a block by its length */
#define UNROLL_GUARDS 9216 /* 7 x 7 taps of eight rows over a padded image fit */
#define GUARD_OF_LANE 16

/* Lanes that are not neighbours in memory. */
static bool gathers(const Rows *r, const KOp *o) {
    Expr stride, rest;
    return o->op == K_kload &&
           (!expr_affine(r->e->exprs, o->index, r->k->axes[r->lane].sym, &stride, &rest) ||
            !(expr_is_value(r->e->exprs, stride, 0) || expr_is_value(r->e->exprs, stride, 1)));
}

/* Leaves and operations of the conditions under which the pass loads. A gather that the machine
 * cannot mask is a choice of addresses and a load for every lane. */
static uint32_t guard_size(const Walk *w) {
    const Rows *r = w->r;
    uint32_t n = 0;
    for (KVal v = 1; v < r->k->nops; v++) {
        const KOp *o = &r->k->ops[v];
        if (!w->p->cone[v] || !o->mask) continue;
        n += expr_size(r->e->exprs, o->mask);
        DType t = (DType)r->k->params[o->buf].dtype;
        if (gathers(r, o) && !emit_masks_gathers(r->e->isa, t)) n += GUARD_OF_LANE * r->e->lanes;
    }
    return n;
}

/* The whole walk as straight-line code: a bounded amount of it. Conditions count once for every
 * copy, because most of them differ between copies; values that copies share do not. */
static bool unrolled(const Walk *w, uint32_t axis, uint32_t todo, int64_t *n) {
    int64_t all = 1;
    if (!w->r->lane_par || !expr_is_const(w->r->e->exprs, w->r->k->axes[axis].extent, n))
        return false;
    for (uint32_t i = 0; i < w->r->k->naxes; i++) {
        int64_t x;
        if (!(todo >> i & 1)) continue;
        if (!expr_is_const(w->r->e->exprs, w->r->k->axes[i].extent, &x) || x > UNROLL_POINTS)
            return false;
        all *= x;
        if (all > UNROLL_POINTS) return false;
    }
    if (all * w->r->ncopies * guard_size(w) > UNROLL_GUARDS) return false;
    const int64_t cost = all * (int64_t)rows_cost(&w->r->p, w->p->cone);
    return cost <= UNROLL_COST && cost * w->r->ncopies <= UNROLL_COPIES;
}

/* A loop that carries accumulators. A long one of sums goes in parts, each summed from 0 and then
 * added: the rounding error of a sum grows with the root of its length. */
typedef struct Carry {
    EmitLoop *parts, *l; /* parts: NULL where it is not cut */
    uint32_t n;
    LLVMValueRef *acc;
} Carry;

#define SUM_PART 64 /* turns of a loop */

static bool only_sums(const Walk *w) {
    for (uint32_t f = 0; f < w->p->nfolds; f++) {
        const KOp *o = &w->r->k->ops[w->p->folds[f]];
        if (o->fold != FOLD_sum || !dtype_is_float((DType)w->r->k->ops[o->in[0]].dtype))
            return false;
        if (rows_join(&w->r->p, w->p->folds[f]) != emit_fold_join) return false;
    }
    return w->p->nfolds > 0;
}

static EmitLoop *carry_loop(Carry *c, Emit *e, const char *name, LLVMValueRef lo, LLVMValueRef hi,
                            int64_t step) {
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, c->n);
    for (uint32_t i = 0; i < c->n; i++) l->init[i] = c->acc[i];
    emit_loop_begin(e, l, name, lo, hi, emit_i64(e, step), false);
    for (uint32_t i = 0; i < c->n; i++) c->acc[i] = l->phi[i];
    return l;
}

static LLVMValueRef carry_begin(Walk *w, Carry *c, const char *name, LLVMValueRef lo,
                                LLVMValueRef hi, int64_t step) {
    Emit *e = w->r->e;
    int64_t a, b, part = SUM_PART * step;
    bool few = rows_const_int(lo, &a) && rows_const_int(hi, &b) && b - a <= 2 * part;
    if (!few && only_sums(w)) {
        c->parts = carry_loop(c, e, "part", lo, hi, part);
        for (uint32_t i = 0; i < c->n; i++) c->acc[i] = LLVMConstNull(LLVMTypeOf(c->acc[i]));
        lo = c->parts->i;
        LLVMValueRef lim[2] = {LLVMBuildAdd(e->b, lo, emit_i64(e, part), ""), hi};
        hi = emit_intrinsic(e, "llvm.smin", e->i64, lim, 2);
    }
    c->l = carry_loop(c, e, name, lo, hi, step);
    return c->l->i;
}

static void carry_close(Carry *c, Emit *e, EmitLoop *l) {
    for (uint32_t i = 0; i < c->n; i++) l->next[i] = c->acc[i];
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < c->n; i++) c->acc[i] = l->out[i];
}

static void carry_end(Walk *w, Carry *c) {
    Emit *e = w->r->e;
    carry_close(c, e, c->l);
    if (!c->parts) return;
    for (uint32_t i = 0; i < c->n; i++)
        c->acc[i] = LLVMBuildFAdd(e->b, c->parts->phi[i], c->acc[i], "");
    carry_close(c, e, c->parts);
}

/* How far the pass goes along an axis: where it only stores orders, as far as they are read. */
static Expr walked(const Walk *w, uint32_t axis) {
    const Kernel *k = w->r->k;
    Expr extent = k->axes[axis].extent;
    int64_t most = 0;
    if (w->p->nfolds || rows_keeps(w->r, w->p)) return extent;
    for (uint32_t i = 0; i < w->p->nstores; i++) {
        const KOp *o = &k->ops[k->ops[w->p->stores[i]].in[0]];
        const int64_t keep = o->op == K_ksort && o->axes == 1u << axis ? o->imm.i >> 2 : 0;
        if (!keep) return extent;
        if (keep > most) most = keep;
    }
    return expr_min(w->r->e->exprs, extent, expr_const(w->r->e->exprs, most));
}

static void walk_axes(Walk *w, uint32_t todo, uint32_t nacc, LLVMValueRef *acc);

static void walk_loop(Walk *w, uint32_t axis, uint32_t todo, uint32_t nacc, LLVMValueRef *acc) {
    Emit *e = w->r->e;
    Carry c = {.n = nacc, .acc = acc};
    LLVMValueRef hi = emit_expr(e, walked(w, axis));
    emit_set_sym(e, w->r->k->axes[axis].sym, carry_begin(w, &c, "walk", emit_i64(e, 0), hi, 1));
    walk_axes(w, todo, nacc, acc);
    carry_end(w, &c);
}

/* One loop over steps [lo, hi) of an axis, n at a time, each with its own accumulators. */
static void walk_steps(Walk *w, uint32_t axis, uint32_t todo, uint32_t n, LLVMValueRef lo,
                       LLVMValueRef hi, uint32_t nacc, LLVMValueRef *acc) {
    Emit *e = w->r->e;
    Carry c = {.n = nacc, .acc = acc};
    uint32_t per = nacc / n;
    Expr base = emit_new_sym(e, "step", INT64_MAX / 4, carry_begin(w, &c, "steps", lo, hi, n));
    for (uint32_t u = 0; u < n; u++) {
        emit_push(e);
        emit_bind(e, w->r->k->axes[axis].sym, expr_addi(e->exprs, base, u));
        walk_axes(w, todo, per, acc + u * per);
        emit_pop(e);
    }
    carry_end(w, &c);
}

static void walk_unrolled(Walk *w, uint32_t axis, uint32_t todo, uint32_t nacc, LLVMValueRef *acc) {
    Emit *e = w->r->e;
    Expr extent = w->r->k->axes[axis].extent;
    LLVMValueRef n = emit_expr(e, extent), zero = emit_i64(e, 0);
    LLVMValueRef whole = LLVMBuildAnd(e->b, n, emit_i64(e, -(int64_t)w->unroll), "");
    walk_steps(w, axis, todo, w->unroll, zero, whole, nacc, acc);
    if (expr_divisor(e->exprs, extent) % w->unroll == 0) return;
    walk_steps(w, axis, todo, 1, whole, n, nacc / w->unroll, acc);
}

static void walk_axes(Walk *w, uint32_t todo, uint32_t nacc, LLVMValueRef *acc) {
    Rows *r = w->r;
    Emit *e = r->e;
    if (!todo) {
        pass_point(w, emit_lane_mask(e), acc);
        return;
    }
    uint32_t pick = todo;
    if (w->row_lanes && todo != 1u << r->lane) pick &= ~(1u << r->lane);
    uint32_t axis = (uint32_t)__builtin_ctz(pick);
    int64_t n;
    if (w->row_lanes && (int)axis == r->lane) {
        Expr extent = walked(w, axis);
        rows_span(r, emit_i64(e, 0), emit_expr(e, extent), expr_divisor(e->exprs, extent),
                  w->row_blocks, nacc, acc, row_step, w);
    } else if (w->unroll > 1 && pick == 1u << axis) {
        walk_unrolled(w, axis, todo & ~(1u << axis), nacc, acc);
    } else if (unrolled(w, axis, todo, &n)) {
        for (int64_t t = 0; t < n; t++) {
            emit_push(e);
            emit_bind(e, r->k->axes[axis].sym, expr_const(e->exprs, t));
            walk_axes(w, todo & ~(1u << axis), nacc, acc);
            emit_pop(e);
        }
    } else {
        walk_loop(w, axis, todo & ~(1u << axis), nacc, acc);
    }
}

/* --- Results ------------------------------------------------------------------------------ */

static void arg_lanes(Emit *e, KFold f, DType t, LLVMValueRef *acc) {
    if (!emit_is_vector(acc[0])) return;
    LLVMValueRef best[2], lane[2];
    for (uint32_t i = 0; i < e->lanes; i++) {
        for (int j = 0; j < 2; j++)
            (i ? lane : best)[j] = LLVMBuildExtractElement(e->b, acc[j], emit_i64(e, i), "");
        if (i) rows_arg_join(e, f, t, best, lane);
    }
    acc[0] = best[0];
    acc[1] = best[1];
}

static void pass_results(Walk *w, LLVMValueRef *acc) {
    Rows *r = w->r;
    Emit *e = r->e;
    for (uint32_t c = 0; c < r->ncopies; c++) {
        uint32_t at = c * w->per_copy, step = r->ncopies * w->per_copy;
        for (uint32_t f = 0; f < w->p->nfolds; f++) {
            KVal v = w->p->folds[f];
            const KOp *o = &r->k->ops[v];
            DType t = (DType)r->k->ops[o->in[0]].dtype;
            if (is_arg(o)) {
                if (w->row_lanes) arg_lanes(e, (KFold)o->fold, t, acc + at);
            } else {
                EmitJoin join = rows_join(&r->p, v);
                for (uint32_t n = w->blocks; n > 1; n /= 2)
                    for (uint32_t u = 0; u < n / 2; u++)
                        acc[at + u * step] = join(e, (KFold)o->fold, t, acc[at + u * step],
                                                  acc[at + (u + n / 2) * step]);
                if (w->row_lanes) acc[at] = emit_fold_lanes_by(e, (KFold)o->fold, t, acc[at], join);
            }
            EmitOverride known = {v, {.v = acc[at], .depth = e->scope->depth}};
            vec_push(e->arena, &r->copy[c].known, known);
            at += is_arg(o) ? 2 : 1;
        }
    }
}

/* Identities of all accumulators: block-major, then copy, then fold. */
static uint32_t init_acc(Walk *w, LLVMValueRef *acc) {
    Rows *r = w->r;
    Emit *e = r->e;
    uint32_t n = 0;
    for (uint32_t u = 0; u < w->blocks; u++)
        for (uint32_t c = 0; c < r->ncopies; c++)
            for (uint32_t f = 0; f < w->p->nfolds; f++) {
                KVal v = w->p->folds[f];
                const KOp *o = &r->k->ops[v];
                DType t = (DType)r->k->ops[o->in[0]].dtype;
                bool par_lanes = r->lane_par && r->dom[v] >> r->lane & 1;
                uint32_t lanes = w->row_lanes || par_lanes ? e->lanes : 1;
                if (is_arg(o)) {
                    acc[n++] = emit_i(e, emit_vec(e->i64, lanes), -1);
                    acc[n++] = LLVMConstNull(emit_vec(emit_type(e, t), lanes));
                } else {
                    acc[n++] = emit_fold_identity(e, (KFold)o->fold, t, lanes);
                }
            }
    return n;
}

/* Long walks over an axis beside the lanes wait for one accumulator's additions: four in turn. */
static uint32_t unroll_of(const Walk *w, uint32_t accs, uint32_t cost) {
    const Rows *r = w->r;
    uint32_t others = w->p->axes;
    int64_t n;
    if (w->row_lanes) {
        const KAxis *lane = &r->k->axes[r->lane];
        others &= ~(1u << r->lane);
        if (!expr_is_const(r->e->exprs, lane->extent, &n) || n > 4 * (int64_t)r->e->lanes) return 1;
    }
    if (!others || !w->p->nfolds || w->p->nstores || rows_keeps(w->r, w->p) || cost > 48) return 1;
    uint32_t last = 31u - (uint32_t)__builtin_clz(others);
    Expr extent = r->k->axes[last].extent;
    if (expr_hint(r->e->exprs, extent) < 16 || unrolled(w, last, others, &n)) return 1;
    return accs <= 4 ? 4 : accs <= 8 ? 2 : 1;
}

static void choose_blocks(Walk *w) {
    const Rows *r = w->r;
    w->blocks = w->row_blocks = w->unroll = 1;
    uint32_t accs = r->ncopies * (w->per_copy ? w->per_copy : 1),
             cost = rows_cost(&r->p, w->p->cone);
    for (uint32_t f = 0; f < w->p->nfolds; f++)
        if (is_arg(&r->k->ops[w->p->folds[f]])) return;
    w->unroll = unroll_of(w, accs, cost);
    w->blocks = w->unroll;
    if (!w->row_lanes || w->unroll > 1) return;
    uint32_t n = cost <= 12 ? 4 : cost <= 48 ? 2 : 1;
    while (n > 1 && accs * n > 8) n /= 2;
    int64_t extent;
    if (expr_is_const(r->e->exprs, r->k->axes[r->lane].extent, &extent))
        while (n > 1 && extent < (int64_t)n * r->e->lanes) n /= 2;
    w->blocks = w->row_blocks = n;
}

static void run_row_op(Rows *r, const Pass *p) {
    KVal v = p->folds[0];
    for (uint32_t i = 0; i < r->nkept; i++) {
        if (!(rows_keeps(r, p) >> i & 1)) continue;
        rows_enter(r, 0);
        if (r->k->ops[v].op == K_kscan)
            rows_scan(r, v, &r->kept[i]);
        else
            rows_sort(r, v, &r->kept[i]);
        emit_pop(r->e);
    }
}

static void run_pass(Rows *r, const Pass *p) {
    if (p->nfolds && rows_is_walk(&r->k->ops[p->folds[0]])) {
        run_row_op(r, p);
        return;
    }
    Walk w = {.r = r, .p = p};
    for (uint32_t f = 0; f < p->nfolds; f++) w.per_copy += is_arg(&r->k->ops[p->folds[f]]) ? 2 : 1;
    w.row_lanes = r->lane >= 0 && !r->lane_par && p->axes >> r->lane & 1;
    choose_blocks(&w);
    LLVMValueRef *acc =
        ARENA_ARRAY(r->e->arena, LLVMValueRef, (size_t)w.blocks * r->ncopies * w.per_copy);
    uint32_t n = init_acc(&w, acc);
    walk_axes(&w, p->axes, n, acc);
    pass_results(&w, acc);
}

void rows_run_passes(Rows *r) {
    r->filled = 0;
    for (uint32_t c = 0; c < r->ncopies; c++) r->copy[c].known.n = 0;
    rows_turn(r);
    for (uint32_t p = 0; p < r->p.npasses; p++) {
        run_pass(r, &r->p.pass[p]);
        r->filled |= r->keeps[p];
    }
}
