/* Scans and compaction: one row after the other, one element after the other. With a
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

void rows_use_kept(Rows *r, uint32_t axis) {
    Emit *e = r->e;
    for (uint32_t i = 0; i < r->nkept; i++) {
        const Kept *q = &r->kept[i];
        if (!(r->filled >> i & 1) || q->axis != axis) continue;
        DType t = (DType)r->k->ops[q->v].dtype;
        bool lanes = q->varies || (int)axis == r->lane;
        LLVMTypeRef ty = emit_vec(emit_type(e, t), lanes ? e->lanes : 1);
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
    rows_use_kept(r, to->axis);
    LLVMValueRef next = emit_fold_join(e, (KFold)o->fold, t, l->phi[0], operand(r, o, to->varies));
    emit_store_ptr(e, o->imm.i & 1 ? l->phi[0] : next, rows_kept_at(r, to, 0),
                   (uint32_t)dtype_bytes(t));
    l->next[0] = next;
    emit_loop_end(e, l);
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
