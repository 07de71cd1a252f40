/* Attention one query at a time, keys over lanes: K and V are read once, nothing is wasted on lanes
 * without a query. */
#include "codegen/cpu/attention.h"
#include "codegen/emit/shuffle.h"
#include <math.h>

/* The query as a row, rounded up with zeros. */
static void copy_query(Attn *t) {
    Emit *e = t->e;
    EmitLoop l = {0};
    LLVMValueRef size = emit_expr(e, t->nd);
    emit_loop_begin(e, &l, "q", emit_i64(e, 0), size, emit_i64(e, t->lanes), false);
    LLVMValueRef left = LLVMBuildSub(e->b, size, l.i, "");
    LLVMValueRef mask = t->kr.whole ? NULL : emit_lanes_below(e, left);
    emit_bind_lanes(e, t->sym_d, emit_below(t->e, "d", t->nd, l.i), mask, true);
    LLVMValueRef v = emit_value_lanes(e, t->t->q);
    if (mask) v = LLVMBuildSelect(e->b, mask, v, LLVMConstNull(t->vec), "");
    attn_store(t, v, t->qt, l.i);
    emit_loop_end(e, &l);
}

/* A row of K or V, in memory or, of quick ones, by its key. */
typedef struct FewRow {
    LLVMValueRef at;
    Expr j;
} FewRow;

static FewRow few_row(Attn *t, const AttnRows *r, LLVMValueRef row) {
    if (!r->quick) return (FewRow){.at = attn_row(t, r, row)};
    LLVMValueRef key = LLVMBuildAdd(t->e->b, t->key0, row, "");
    return (FewRow){.j = emit_below(t->e, "j", t->nj, key)};
}

static LLVMValueRef few_load(Attn *t, const AttnRows *r, FewRow row, LLVMValueRef at) {
    Emit *e = t->e;
    if (row.at) return attn_load(t, row.at, at);
    emit_push(e);
    emit_bind(e, t->sym_j, row.j);
    emit_bind_lanes(e, t->k->axes[r->axis].sym, emit_below(t->e, "at", r->size, at), NULL, true);
    LLVMValueRef v = emit_value_lanes(e, r->v);
    emit_pop(e);
    return v;
}

/* Products of the query with keys first .. first + lanes - 1 of the block (the last repeats). */
static LLVMValueRef products(Attn *t, LLVMValueRef first) {
    Emit *e = t->e;
    EmitLoop l = emit_loop(e, t->lanes);
    FewRow key[64];
    LLVMValueRef size = emit_expr(e, t->kr.padded);
    for (uint32_t r = 0; r < t->lanes; r++) {
        LLVMValueRef lim[2] = {attn_add(t, first, r), attn_add(t, t->keys, -1)};
        key[r] = few_row(t, &t->kr, emit_intrinsic(e, "llvm.smin", e->i64, lim, 2));
        l.init[r] = LLVMConstNull(t->vec);
    }
    emit_loop_begin(e, &l, "d", emit_i64(e, 0), size, emit_i64(e, t->lanes), true);
    LLVMValueRef q = attn_load(t, t->qt, l.i);
    for (uint32_t r = 0; r < t->lanes; r++)
        l.next[r] = emit_fma(e, few_load(t, &t->kr, key[r], l.i), q, l.phi[r]);
    emit_loop_end(e, &l);
    return shuffle_sums(e, l.out, t->lanes);
}

/* Scores of the block; the result is their greatest, per lane. */
static LLVMValueRef scores(Attn *t) {
    Emit *e = t->e;
    EmitLoop l = emit_loop(e, 1);
    l.init[0] = emit_f(e, t->vec, -INFINITY);
    emit_loop_begin(e, &l, "scores", emit_i64(e, 0), t->keys, emit_i64(e, t->lanes), true);
    LLVMValueRef s = products(t, l.i);
    LLVMValueRef mask = emit_lanes_below(e, LLVMBuildSub(e->b, t->keys, l.i, ""));
    emit_push(e);
    Expr base = emit_below(t->e, "j", t->nj, LLVMBuildAdd(e->b, t->key0, l.i, ""));
    emit_bind_lanes(e, t->sym_j, base, mask, true);
    emit_override(e, t->t->s, s);
    LLVMValueRef x = emit_value_lanes(e, t->t->score);
    emit_pop(e);
    x = LLVMBuildSelect(e->b, mask, x, emit_f(e, t->vec, -INFINITY), "");
    attn_store(t, x, t->scores, l.i);
    l.next[0] = attn_max(t, l.phi[0], x);
    emit_loop_end(e, &l);
    return l.out[0];
}

static LLVMValueRef get(Attn *t, LLVMValueRef at) {
    return emit_load(t->e, t->elem, at, t->bytes);
}

/* Exponentials in place, running maximum and sum; the result scales what O holds. */
static LLVMValueRef exponentials(Attn *t, LLVMValueRef block_max) {
    Emit *e = t->e;
    EmitLoop l = emit_loop(e, 1);
    LLVMValueRef old = get(t, t->max);
    LLVMValueRef max = attn_max(t, old, emit_fold_lanes(e, FOLD_max, t->acc, block_max));
    LLVMValueRef base = attn_finite(t, max);
    LLVMValueRef scale = attn_exp(t, LLVMBuildFSub(e->b, old, base, ""));
    LLVMValueRef all = emit_splat(e, base);
    l.init[0] = LLVMConstNull(t->vec);
    emit_loop_begin(e, &l, "exp", emit_i64(e, 0), t->keys, emit_i64(e, t->lanes), true);
    LLVMValueRef x = attn_exp(t, LLVMBuildFSub(e->b, attn_load(t, t->scores, l.i), all, ""));
    attn_store(t, x, t->scores, l.i);
    l.next[0] = LLVMBuildFAdd(e->b, l.phi[0], x, "");
    emit_loop_end(e, &l);
    LLVMValueRef sum = emit_fold_lanes(e, FOLD_sum, t->acc, l.out[0]);
    emit_store_ptr(e, max, t->max, t->bytes);
    emit_store_ptr(e, emit_fma(e, get(t, t->sum), scale, sum), t->sum, t->bytes);
    return scale;
}

static void out_columns(Attn *t, LLVMValueRef column, LLVMValueRef scale, uint32_t nv) {
    Emit *e = t->e;
    EmitLoop l = emit_loop(e, nv);
    for (uint32_t v = 0; v < nv; v++) {
        LLVMValueRef o = attn_load(t, t->out, attn_add(t, column, (int64_t)(v * t->lanes)));
        l.init[v] = LLVMBuildFMul(e->b, o, scale, "");
    }
    emit_loop_begin(e, &l, "keys", emit_i64(e, 0), t->keys, emit_i64(e, 1), true);
    FewRow row = few_row(t, &t->vr, l.i);
    LLVMValueRef w = emit_splat(e, get(t, attn_at(t, t->scores, l.i)));
    for (uint32_t v = 0; v < nv; v++) {
        LLVMValueRef x = few_load(t, &t->vr, row, attn_add(t, column, (int64_t)(v * t->lanes)));
        l.next[v] = emit_fma(e, w, x, l.phi[v]);
    }
    emit_loop_end(e, &l);
    for (uint32_t v = 0; v < nv; v++)
        attn_store(t, l.out[v], t->out, attn_add(t, column, (int64_t)(v * t->lanes)));
}

static void key_block(Attn *t) {
    Emit *e = t->e;
    EmitLoop l = {0}, tail = {0};
    if (!t->kr.quick) attn_copy_rows(t, &t->kr);
    if (!t->vr.quick) attn_copy_rows(t, &t->vr);
    LLVMValueRef scale = emit_splat(e, exponentials(t, scores(t)));
    uint32_t wide = 4 * t->lanes;
    LLVMValueRef size = emit_expr(e, t->vr.padded), step = emit_i64(e, wide);
    LLVMValueRef rest = LLVMBuildSub(e->b, size, LLVMBuildURem(e->b, size, step, ""), "");
    emit_loop_begin(e, &l, "columns", emit_i64(e, 0), rest, step, false);
    out_columns(t, l.i, scale, 4);
    emit_loop_end(e, &l);
    if (expr_divisor(t->p, t->vr.padded) % wide == 0) return;
    emit_loop_begin(e, &tail, "columns", rest, size, emit_i64(e, t->lanes), false);
    out_columns(t, tail.i, scale, 1);
    emit_loop_end(e, &tail);
}

static void reset(Attn *t) {
    Emit *e = t->e;
    EmitLoop l = {0};
    emit_store_ptr(e, emit_f(e, t->elem, -INFINITY), t->max, t->bytes);
    emit_store_ptr(e, LLVMConstNull(t->elem), t->sum, t->bytes);
    LLVMValueRef size = emit_expr(e, t->vr.padded);
    emit_loop_begin(e, &l, "clear", emit_i64(e, 0), size, emit_i64(e, t->lanes), false);
    attn_store(t, LLVMConstNull(t->vec), t->out, l.i);
    emit_loop_end(e, &l);
}

void attn_few(Attn *t) {
    Emit *e = t->e;
    EmitLoop l = {0};
    emit_loop_begin(e, &l, "query", emit_i64(e, 0), t->queries, emit_i64(e, 1), true);
    LLVMValueRef query = LLVMBuildAdd(e->b, t->query0, l.i, "");
    emit_bind(e, t->sym_i, emit_below(t->e, "i", t->ni, query));
    copy_query(t);
    reset(t);
    attn_key_blocks(t, query, key_block);
    LLVMValueRef inverse = attn_inverse(t, get(t, t->max), get(t, t->sum));
    attn_finish_row(t, query, emit_i64(e, 0), t->out, inverse);
    emit_loop_end(e, &l);
}
