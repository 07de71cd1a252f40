/* Scans, sorts and compaction: one row after the other, one element after the other. With a
 * parallel lane axis a scan goes over a vector of rows at once. */
#include "codegen/cpu/rows.h"

LLVMValueRef rows_kept_at(Rows *r, const Kept *q, uint32_t copy) {
    Emit *e = r->e;
    Expr at = expr_sym_ref(e->exprs, r->k->axes[q->axis].sym);
    if (q->varies) at = expr_muli(e->exprs, at, e->lanes);
    LLVMTypeRef t = emit_mem_type(e, (DType)r->k->ops[q->v].dtype);
    return emit_gep(e, t, q->ptr[copy], emit_expr_uniform(e, at));
}

static LLVMValueRef i64c(Emit *e, int64_t v) {
    return emit_i64(e, v);
}

/* Loop over positions of the axis in direction of the scan; the axis symbol is bound inside. */
static void walk_begin(Rows *r, EmitLoop *l, uint32_t axis, bool reverse) {
    Emit *e = r->e;
    LLVMValueRef n = emit_expr(e, r->k->axes[axis].extent);
    emit_loop_begin(e, l, "walk", i64c(e, 0), n, i64c(e, 1), false);
    LLVMValueRef at = l->i;
    if (reverse) at = LLVMBuildSub(e->b, LLVMBuildSub(e->b, n, i64c(e, 1), ""), l->i, "");
    emit_set_sym(e, r->k->axes[axis].sym, at);
}

/* Values of filled rows that the operand may read at this position. */
static void use_kept(Rows *r, uint32_t axis) {
    Emit *e = r->e;
    for (uint32_t i = 0; i < r->nkept; i++) {
        const Kept *q = &r->kept[i];
        if (!(r->filled >> i & 1) || q->axis != axis) continue;
        DType t = (DType)r->k->ops[q->v].dtype;
        LLVMTypeRef ty = emit_vec(emit_type(e, t), q->varies ? e->lanes : 1);
        emit_override(e, q->v, emit_load(e, ty, rows_kept_at(r, q, 0), (uint32_t)dtype_bytes(t)));
    }
}

static LLVMValueRef operand(Rows *r, const KOp *o, bool varies) {
    return varies ? emit_value_lanes(r->e, o->in[0]) : emit_value(r->e, o->in[0]);
}

void rows_scan(Rows *r, KVal v, const Kept *to) {
    Emit *e = r->e;
    const KOp *o = &r->k->ops[v];
    DType t = (DType)o->dtype;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, 1);
    l->init[0] = emit_fold_identity(e, (KFold)o->fold, t, to->varies ? e->lanes : 1);
    walk_begin(r, l, to->axis, o->imm.i & 2);
    use_kept(r, to->axis);
    LLVMValueRef next = emit_fold_join(e, (KFold)o->fold, t, l->phi[0], operand(r, o, to->varies));
    emit_store_ptr(e, o->imm.i & 1 ? l->phi[0] : next, rows_kept_at(r, to, 0),
                   (uint32_t)dtype_bytes(t));
    l->next[0] = next;
    emit_loop_end(e, l);
}

/* --- Sort --------------------------------------------------------------------------------- */

typedef struct Sort {
    Emit *e;
    DType t;
    bool descending;
    LLVMTypeRef key; /* in memory */
    LLVMValueRef keys, n;
} Sort;

static LLVMValueRef key_at(Sort *s, LLVMValueRef i) {
    uint32_t align = (uint32_t)dtype_bytes(s->t);
    LLVMValueRef v = emit_load(s->e, s->key, emit_gep(s->e, s->key, s->keys, i), align);
    if (s->t == DT_bool) v = LLVMBuildTrunc(s->e->b, v, s->e->i1, "");
    return v;
}

/* a belongs before b; NaN is last in either direction. */
static LLVMValueRef before(Sort *s, LLVMValueRef a, LLVMValueRef b) {
    Emit *e = s->e;
    LLVMValueRef x = s->descending ? b : a, y = s->descending ? a : b;
    LLVMValueRef less = emit_map(e, OP_lt, s->t, x, y, NULL);
    if (!dtype_is_float(s->t)) return less;
    LLVMValueRef an = emit_map(e, OP_isnan, s->t, a, NULL, NULL);
    LLVMValueRef bn = emit_map(e, OP_isnan, s->t, b, NULL, NULL);
    return LLVMBuildOr(e->b, less, LLVMBuildAnd(e->b, bn, LLVMBuildNot(e->b, an, ""), ""), "");
}

static LLVMValueRef order_at(Emit *e, LLVMValueRef order, LLVMValueRef i) {
    return emit_gep(e, e->i64, order, i);
}

static LLVMValueRef smin(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef v[2] = {a, b};
    return emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

/* Merges from[lo, mid) and from[mid, hi) into to[lo, hi). Positions past a run's end are clamped so
 * that they can be read; the comparison is then ignored. */
static void merge_runs(Sort *s, LLVMValueRef from, LLVMValueRef to, LLVMValueRef lo,
                       LLVMValueRef mid, LLVMValueRef hi) {
    Emit *e = s->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef last = LLVMBuildSub(e->b, s->n, i64c(e, 1), "");
    *l = emit_loop(e, 2);
    l->init[0] = lo;
    l->init[1] = mid;
    emit_loop_begin(e, l, "merge", lo, hi, i64c(e, 1), false);
    LLVMValueRef i = l->phi[0], j = l->phi[1];
    LLVMValueRef oi = emit_load(e, e->i64, order_at(e, from, smin(e, i, last)), 8);
    LLVMValueRef oj = emit_load(e, e->i64, order_at(e, from, smin(e, j, last)), 8);
    LLVMValueRef wins = before(s, key_at(s, oj), key_at(s, oi));
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, j, hi, "");
    LLVMValueRef right = LLVMBuildOr(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, i, mid, ""),
                                     LLVMBuildAnd(e->b, more, wins, ""), "");
    emit_store_ptr(e, LLVMBuildSelect(e->b, right, oj, oi, ""), order_at(e, to, l->i), 8);
    LLVMValueRef step = LLVMBuildZExt(e->b, right, e->i64, "");
    l->next[0] = LLVMBuildAdd(e->b, i, LLVMBuildSub(e->b, i64c(e, 1), step, ""), "");
    l->next[1] = LLVMBuildAdd(e->b, j, step, "");
    emit_loop_end(e, l);
}

/* Bottom-up merge sort; returns where the sorted order ended up. */
static LLVMValueRef merge_sort(Sort *s, LLVMValueRef a, LLVMValueRef b) {
    Emit *e = s->e;
    EmitLoop *level = ARENA_NEW(e->arena, EmitLoop), *run = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef zeros[2] = {LLVMBuildSub(e->b, s->n, i64c(e, 1), ""),
                             LLVMConstInt(e->i1, 0, false)};
    unsigned id = LLVMLookupIntrinsicID("llvm.ctlz", 9);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, &e->i64, 1);
    LLVMValueRef z = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, zeros, 2, "");
    LLVMValueRef levels = LLVMBuildSub(e->b, i64c(e, 64), z, "");
    LLVMValueRef some = LLVMBuildICmp(e->b, LLVMIntSGT, s->n, i64c(e, 1), "");
    levels = LLVMBuildSelect(e->b, some, levels, i64c(e, 0), "");
    *level = emit_loop(e, 2);
    level->init[0] = a;
    level->init[1] = b;
    emit_loop_begin(e, level, "level", i64c(e, 0), levels, i64c(e, 1), false);
    LLVMValueRef w = LLVMBuildShl(e->b, i64c(e, 1), level->i, "");
    LLVMValueRef w2 = LLVMBuildShl(e->b, w, i64c(e, 1), "");
    emit_loop_begin(e, run, "run", i64c(e, 0), s->n, w2, false);
    LLVMValueRef mid = smin(e, LLVMBuildAdd(e->b, run->i, w, ""), s->n);
    LLVMValueRef hi = smin(e, LLVMBuildAdd(e->b, run->i, w2, ""), s->n);
    merge_runs(s, level->phi[0], level->phi[1], run->i, mid, hi);
    emit_loop_end(e, run);
    level->next[0] = level->phi[1];
    level->next[1] = level->phi[0];
    emit_loop_end(e, level);
    return level->out[0];
}

void rows_sort(Rows *r, KVal v, const Kept *to) {
    Emit *e = r->e;
    const KOp *o = &r->k->ops[v];
    Expr extent = r->k->axes[to->axis].extent;
    Sort s = {.e = e, .t = (DType)r->k->ops[o->in[0]].dtype, .descending = o->imm.i & 2};
    s.key = emit_mem_type(e, s.t);
    s.n = emit_expr(e, extent);
    s.keys = emit_scratch(e, expr_muli(e->exprs, extent, (int64_t)dtype_bytes(s.t)));
    LLVMValueRef a = emit_scratch(e, expr_muli(e->exprs, extent, 8));
    LLVMValueRef b = emit_scratch(e, expr_muli(e->exprs, extent, 8));
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    walk_begin(r, l, to->axis, false);
    use_kept(r, to->axis);
    LLVMValueRef x = operand(r, o, false);
    if (s.t == DT_bool) x = LLVMBuildZExt(e->b, x, e->i8, "");
    emit_store_ptr(e, x, emit_gep(e, s.key, s.keys, l->i), (uint32_t)dtype_bytes(s.t));
    emit_store_ptr(e, l->i, order_at(e, a, l->i), 8);
    emit_loop_end(e, l);
    LLVMValueRef sorted = merge_sort(&s, a, b);
    EmitLoop *copy = ARENA_NEW(e->arena, EmitLoop);
    emit_loop_begin(e, copy, "copy", i64c(e, 0), s.n, i64c(e, 1), false);
    emit_set_sym(e, r->k->axes[to->axis].sym, copy->i);
    LLVMValueRef from = emit_load(e, e->i64, order_at(e, sorted, copy->i), 8);
    emit_store_ptr(e, from, rows_kept_at(r, to, 0), 8);
    emit_loop_end(e, copy);
}

/* --- Compact ------------------------------------------------------------------------------ */

/* Positions of true values to param buf, their number to the param after it. */
void rows_compact(Rows *r, KVal v) {
    Emit *e = r->e;
    const KOp *o = &r->k->ops[v];
    uint32_t lanes = e->lanes;
    e->lanes = 1;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, 1);
    l->init[0] = i64c(e, 0);
    walk_begin(r, l, (uint32_t)__builtin_ctz(o->axes), false);
    LLVMValueRef c = operand(r, o, false);
    EmitIf cond;
    emit_if_begin(e, &cond, c);
    LLVMTypeRef t = emit_mem_type(e, r->k->params[o->buf].dtype);
    LLVMValueRef at = LLVMBuildIntCast2(e->b, l->i, t, true, "");
    emit_store_ptr(e, at, emit_gep(e, t, e->bufs[o->buf], l->phi[0]),
                   (uint32_t)dtype_bytes(r->k->params[o->buf].dtype));
    emit_if_end(e, &cond);
    l->next[0] = LLVMBuildAdd(e->b, l->phi[0], LLVMBuildZExt(e->b, c, e->i64, ""), "");
    emit_loop_end(e, l);
    e->lanes = lanes;
    emit_store_ptr(e, l->out[0], e->bufs[kir_count_param(o)], sizeof(int64_t));
}
