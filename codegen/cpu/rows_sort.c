/* Sorts of one row into scratch: merges, bottom up. What has at most 32 bits is merged as words,
 * the key above and the position below, all of them different; other keys are looked up by their
 * positions. Where only the first few places are read, a word that comes behind as many others is
 * dropped as soon as it is seen: of a row of 32,000 and 50 places, all but 400. */
#include "codegen/cpu/rows.h"

#define MOST_KEPT  (1 << 20) /* places: with more, a row is sorted as a whole */
#define ROOM_LEAST 16        /* words that are collected behind those that lead so far, at least */

typedef struct Sort {
    Emit *e;
    DType t;
    bool descending, words;
    LLVMTypeRef key;      /* in memory, of a sort without words */
    LLVMValueRef keys, n; /* n: how many are merged */
} Sort;

static LLVMValueRef i64c(Emit *e, int64_t v) {
    return emit_i64(e, v);
}

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
    LLVMValueRef wins = s->words ? LLVMBuildICmp(e->b, LLVMIntULT, oj, oi, "")
                                 : before(s, key_at(s, oj), key_at(s, oi));
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, j, hi, "");
    LLVMValueRef right = LLVMBuildOr(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, i, mid, ""),
                                     LLVMBuildAnd(e->b, more, wins, ""), "");
    emit_store_ptr(e, LLVMBuildSelect(e->b, right, oj, oi, ""), order_at(e, to, l->i), 8);
    LLVMValueRef step = LLVMBuildZExt(e->b, right, e->i64, "");
    l->next[0] = LLVMBuildAdd(e->b, i, LLVMBuildSub(e->b, i64c(e, 1), step, ""), "");
    l->next[1] = LLVMBuildAdd(e->b, j, step, "");
    emit_loop_end(e, l);
}

/* Returns where the sorted order ended up. */
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

static LLVMValueRef i32c(Emit *e, uint32_t v) {
    return LLVMConstInt(e->i32, v, false);
}

/* Bits of an f32 in the order of the numbers; -0 is 0. */
static LLVMValueRef float_bits(Emit *e, LLVMValueRef x) {
    LLVMValueRef bits = LLVMBuildBitCast(e->b, x, e->i32, ""), sign = i32c(e, 1u << 31);
    LLVMValueRef zero = LLVMBuildICmp(e->b, LLVMIntEQ, bits, sign, "");
    bits = LLVMBuildSelect(e->b, zero, i32c(e, 0), bits, "");
    LLVMValueRef flip = LLVMBuildAShr(e->b, bits, i32c(e, 31), "");
    return LLVMBuildXor(e->b, bits, LLVMBuildOr(e->b, flip, sign, ""), "");
}

static LLVMValueRef whole_bits(Sort *s, LLVMValueRef x) {
    Emit *e = s->e;
    bool is_signed = dtype_is_int(s->t) && dtype_is_signed(s->t);
    x = LLVMBuildIntCast2(e->b, x, e->i32, is_signed, "");
    return is_signed ? LLVMBuildXor(e->b, x, i32c(e, 1u << 31), "") : x;
}

/* Of the element x at a position: words are in the order of elements; NaN is last either way. */
static LLVMValueRef word_of(Sort *s, LLVMValueRef x, LLVMValueRef at) {
    Emit *e = s->e;
    bool real = dtype_is_float(s->t);
    LLVMValueRef key = real ? float_bits(e, x) : whole_bits(s, x);
    if (s->descending) key = LLVMBuildNot(e->b, key, "");
    if (real) {
        LLVMValueRef nan = emit_map(e, OP_isnan, DT_f32, x, NULL, NULL);
        key = LLVMBuildSelect(e->b, nan, i32c(e, UINT32_MAX), key, "");
    }
    key = LLVMBuildShl(e->b, LLVMBuildZExt(e->b, key, e->i64, ""), i64c(e, 32), "");
    at = LLVMBuildAnd(e->b, at, i64c(e, UINT32_MAX), "");
    return LLVMBuildOr(e->b, key, at, "");
}

static void copy_words(Emit *e, LLVMValueRef from, LLVMValueRef to, LLVMValueRef n) {
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    emit_loop_begin(e, l, "keep", i64c(e, 0), n, i64c(e, 1), false);
    emit_store_ptr(e, emit_load(e, e->i64, order_at(e, from, l->i), 8), order_at(e, to, l->i), 8);
    emit_loop_end(e, l);
}

static LLVMValueRef element(Rows *r, const Sort *s, const KOp *o) {
    LLVMValueRef x = emit_value(r->e, o->in[0]);
    if (dtype_is_half(s->t)) return emit_cast(r->e, s->t, DT_f32, x);
    return x;
}

/* Collects words in front of the last of the first `keep`; when there is no room for more, those
 * that lead stay. Leaves s->n of them in a, not in order. */
static void collect(Rows *r, Sort *s, const KOp *o, const Kept *to, int64_t keep, LLVMValueRef a,
                    LLVMValueRef b) {
    Emit *e = s->e;
    const int64_t room = keep + (keep > ROOM_LEAST ? keep : ROOM_LEAST);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop), *full = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, 2);
    *full = emit_loop(e, 2);
    l->init[0] = i64c(e, 0);
    l->init[1] = LLVMConstAllOnes(e->i64);
    rows_walk_begin(r, l, to->axis, false);
    rows_use_kept(r, to->axis);
    LLVMValueRef word = word_of(s, element(r, s, o), l->i);
    emit_store_ptr(e, word, order_at(e, a, l->phi[0]), 8);
    LLVMValueRef leads = LLVMBuildICmp(e->b, LLVMIntULT, word, l->phi[1], "");
    full->init[0] = LLVMBuildAdd(e->b, l->phi[0], LLVMBuildZExt(e->b, leads, e->i64, ""), "");
    full->init[1] = l->phi[1];
    LLVMValueRef is_full = LLVMBuildICmp(e->b, LLVMIntEQ, full->init[0], i64c(e, room), "");
    emit_loop_begin(e, full, "full", i64c(e, 0), LLVMBuildZExt(e->b, is_full, e->i64, ""),
                    i64c(e, 1), false);
    s->n = i64c(e, room);
    copy_words(e, merge_sort(s, a, b), a, i64c(e, keep));
    full->next[0] = i64c(e, keep);
    full->next[1] = emit_load(e, e->i64, order_at(e, a, i64c(e, keep - 1)), 8);
    emit_loop_end(e, full);
    l->next[0] = full->out[0];
    l->next[1] = full->out[1];
    emit_loop_end(e, l);
    s->n = l->out[0];
}

/* All elements, as words or as keys and positions. */
static void fill(Rows *r, Sort *s, const KOp *o, const Kept *to, LLVMValueRef a) {
    Emit *e = s->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    rows_walk_begin(r, l, to->axis, false);
    rows_use_kept(r, to->axis);
    LLVMValueRef x = s->words ? element(r, s, o) : emit_value(e, o->in[0]);
    if (!s->words)
        emit_store_ptr(e, x, emit_gep(e, s->key, s->keys, l->i), (uint32_t)dtype_bytes(s->t));
    emit_store_ptr(e, s->words ? word_of(s, x, l->i) : l->i, order_at(e, a, l->i), 8);
    emit_loop_end(e, l);
}

/* The first s->n places from `sorted`, and 0 behind them. */
static void give_places(Rows *r, const Sort *s, const Kept *to, LLVMValueRef sorted,
                        LLVMValueRef n) {
    Emit *e = s->e;
    const uint32_t sym = r->k->axes[to->axis].sym;
    EmitLoop *copy = ARENA_NEW(e->arena, EmitLoop), *rest = ARENA_NEW(e->arena, EmitLoop);
    emit_loop_begin(e, copy, "copy", i64c(e, 0), s->n, i64c(e, 1), false);
    emit_set_sym(e, sym, copy->i);
    LLVMValueRef from = emit_load(e, e->i64, order_at(e, sorted, copy->i), 8);
    if (s->words) from = LLVMBuildAnd(e->b, from, i64c(e, UINT32_MAX), "");
    emit_store_ptr(e, from, rows_kept_at(r, to, 0), 8);
    emit_loop_end(e, copy);
    emit_loop_begin(e, rest, "rest", s->n, n, i64c(e, 1), false);
    emit_set_sym(e, sym, rest->i);
    emit_store_ptr(e, i64c(e, 0), rows_kept_at(r, to, 0), 8);
    emit_loop_end(e, rest);
}

void rows_sort(Rows *r, KVal v, const Kept *to) {
    Emit *e = r->e;
    const KOp *o = &r->k->ops[v];
    const DType t = (DType)r->k->ops[o->in[0]].dtype;
    const int64_t keep = o->imm.i >> 2;
    Expr extent = r->k->axes[to->axis].extent, room = extent;
    Sort s = {.e = e, .t = t, .descending = o->imm.i & 2, .words = dtype_bytes(t) <= 4};
    LLVMValueRef n = s.n = emit_expr(e, extent);
    if (!s.words) {
        s.key = emit_mem_type(e, t);
        s.keys = emit_scratch(e, expr_muli(e->exprs, extent, (int64_t)dtype_bytes(t)));
    }
    const bool few = s.words && keep > 0 && keep < MOST_KEPT;
    if (few) room = expr_const(e->exprs, keep + (keep > ROOM_LEAST ? keep : ROOM_LEAST));
    LLVMValueRef a = emit_scratch(e, expr_muli(e->exprs, room, 8));
    LLVMValueRef b = emit_scratch(e, expr_muli(e->exprs, room, 8));
    if (few)
        collect(r, &s, o, to, keep, a, b);
    else
        fill(r, &s, o, to, a);
    LLVMValueRef sorted = merge_sort(&s, a, b);
    if (few) s.n = smin(e, i64c(e, keep), s.n);
    give_places(r, &s, to, sorted, n);
}
