/* Sorts of one row into scratch, over vectors of elements where these are neighbours. They go by
 * words, the key above and the position below, all of them different: a few are sorted by counting
 * how many are less, more by the digits of their keys. Where only the first few places are read, a
 * key that comes behind as many others is dropped as soon as it is seen: of a row of 32,000 and 50
 * places, all but 400. */
#include "codegen/cpu/rows.h"

#define MOST_KEPT   (1 << 20) /* places: with more, a row is sorted as a whole */
#define ROOM_STEP   64        /* words that are collected are a multiple of these */
#define MOST_RANKED 128       /* words: counting takes longer than digits from there on, */
#define MOST_WIDE   32        /* and of keys of 64 bits */
#define RANKED      8         /* words of a vector; as many lie behind the last one */
#define DIGIT_SIZE  256       /* values of a digit, 8 bits of a key */

typedef struct Sort {
    Rows *r;
    Emit *e;
    const KOp *o;
    DType t;
    uint32_t axis;
    bool descending;
    uint32_t bits, ranked; /* of a key; RANKED, or 1: words are wider than what vectors compare */
    LLVMTypeRef key, word;
    LLVMValueRef a, b, counts, hits;
    int64_t keep, room, most; /* most: words at once, 0: unknown */
    LLVMValueRef n;           /* how many are sorted */
} Sort;

static LLVMValueRef i64c(Emit *e, int64_t v) {
    return emit_i64(e, v);
}

static int64_t word_bytes(const Sort *s) {
    return s->bits / 4;
}

static LLVMValueRef word_at(const Sort *s, LLVMValueRef words, LLVMValueRef i) {
    return emit_gep(s->e, s->word, words, i);
}

static LLVMValueRef load_words(const Sort *s, uint32_t n, LLVMValueRef words, LLVMValueRef i) {
    return emit_load(s->e, emit_vec(s->word, n), word_at(s, words, i), (uint32_t)word_bytes(s));
}

static void store_words(const Sort *s, LLVMValueRef v, LLVMValueRef words, LLVMValueRef i) {
    emit_store_ptr(s->e, v, word_at(s, words, i), (uint32_t)word_bytes(s));
}

static LLVMValueRef key_of(const Sort *s, LLVMValueRef word) {
    Emit *e = s->e;
    word = LLVMBuildLShr(e->b, word, emit_i(e, s->word, s->bits), "");
    return LLVMBuildTrunc(e->b, word, s->key, "");
}

static LLVMValueRef smin(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef v[2] = {a, b};
    return emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

/* --- Words -------------------------------------------------------------------------------- */

/* Bits of a float in the order of the numbers; -0 is 0. */
static LLVMValueRef float_bits(Sort *s, LLVMValueRef x, LLVMTypeRef t, LLVMValueRef sign) {
    Emit *e = s->e;
    LLVMValueRef bits = LLVMBuildBitCast(e->b, x, t, "");
    LLVMValueRef zero = LLVMBuildICmp(e->b, LLVMIntEQ, bits, sign, "");
    bits = LLVMBuildSelect(e->b, zero, LLVMConstNull(t), bits, "");
    LLVMValueRef flip = LLVMBuildAShr(e->b, bits, emit_i(e, t, s->bits - 1), "");
    return LLVMBuildXor(e->b, bits, LLVMBuildOr(e->b, flip, sign, ""), "");
}

static LLVMValueRef whole_bits(Sort *s, LLVMValueRef x, LLVMTypeRef t, LLVMValueRef sign) {
    bool is_signed = dtype_is_int(s->t) && dtype_is_signed(s->t);
    x = LLVMBuildIntCast2(s->e->b, x, t, is_signed, "");
    return is_signed ? LLVMBuildXor(s->e->b, x, sign, "") : x;
}

/* Of the elements here: keys are in the order of elements; NaN is last either way. */
static LLVMValueRef keys_here(Sort *s) {
    Emit *e = s->e;
    const bool real = dtype_is_float(s->t);
    LLVMTypeRef t = emit_vec(s->key, e->lanes);
    LLVMValueRef x = emit_value_lanes(e, s->o->in[0]);
    LLVMValueRef sign = emit_i(e, t, s->bits == 64 ? INT64_MIN : INT32_MIN);
    if (dtype_is_half(s->t)) x = emit_cast(e, s->t, DT_f32, x);
    LLVMValueRef key = real ? float_bits(s, x, t, sign) : whole_bits(s, x, t, sign);
    if (s->descending) key = LLVMBuildNot(e->b, key, "");
    if (!real) return key;
    LLVMValueRef nan = emit_map(e, OP_isnan, s->bits == 64 ? DT_f64 : DT_f32, x, NULL, NULL);
    return LLVMBuildSelect(e->b, nan, LLVMConstAllOnes(t), key, "");
}

static LLVMValueRef words_here(Sort *s, LLVMValueRef keys) {
    Emit *e = s->e;
    LLVMTypeRef t = emit_vec(s->word, e->lanes);
    LLVMValueRef at = emit_expr(e, expr_sym_ref(e->exprs, s->r->k->axes[s->axis].sym));
    if (e->lanes > 1) at = emit_splat(e, at);
    at = LLVMBuildTrunc(e->b, at, emit_vec(e->i32, e->lanes), "");
    keys = LLVMBuildShl(e->b, LLVMBuildZExt(e->b, keys, t, ""), emit_i(e, t, s->bits), "");
    return LLVMBuildOr(e->b, keys, LLVMBuildZExt(e->b, at, t, ""), "");
}

/* Words that none exceeds, behind the last. */
static void store_end(Sort *s) {
    for (uint32_t i = 0; i < RANKED; i += s->ranked) {
        LLVMValueRef at = LLVMBuildAdd(s->e->b, s->n, i64c(s->e, i), "");
        store_words(s, LLVMConstAllOnes(emit_vec(s->word, s->ranked)), s->a, at);
    }
}

/* How many words are less than the one at each place. */
static void count_less(Sort *s) {
    Emit *e = s->e;
    EmitLoop *of = ARENA_NEW(e->arena, EmitLoop), *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMTypeRef t = emit_vec(e->i64, s->ranked);
    enum { STEPS = 4 };
    store_end(s);
    emit_loop_begin(e, of, "ranked", i64c(e, 0), s->n, i64c(e, s->ranked), false);
    LLVMValueRef mine = load_words(s, s->ranked, s->a, of->i);
    *l = emit_loop(e, 1);
    l->init[0] = LLVMConstNull(t);
    emit_loop_begin(e, l, "less", i64c(e, 0), s->n, i64c(e, STEPS), false);
    for (int u = 0; u < STEPS; u++) {
        LLVMValueRef at = LLVMBuildAdd(e->b, l->i, i64c(e, u), "");
        LLVMValueRef other = emit_splat_n(e, load_words(s, 1, s->a, at), s->ranked);
        LLVMValueRef less = LLVMBuildICmp(e->b, LLVMIntULT, other, mine, "");
        l->next[0] = LLVMBuildAdd(e->b, l->next[0], LLVMBuildZExt(e->b, less, t, ""), "");
    }
    emit_loop_end(e, l);
    emit_store_ptr(e, l->out[0], emit_gep(e, e->i64, s->counts, of->i), 8);
    emit_loop_end(e, of);
}

/* a to b, each word to the place that is its count. */
static void rank_sort(Sort *s) {
    Emit *e = s->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    count_less(s);
    emit_loop_begin(e, l, "place", i64c(e, 0), s->n, i64c(e, 1), false);
    LLVMValueRef to = emit_load(e, e->i64, emit_gep(e, e->i64, s->counts, l->i), 8);
    store_words(s, load_words(s, 1, s->a, l->i), s->b, to);
    emit_loop_end(e, l);
}

/* The first of a's words in order, to b: each the least of those behind the one before. */
static void pick_words(Sort *s) {
    Emit *e = s->e;
    EmitLoop *to = ARENA_NEW(e->arena, EmitLoop), *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMTypeRef t = emit_vec(s->word, s->ranked);
    LLVMValueRef most = LLVMConstAllOnes(t);
    store_end(s);
    *to = emit_loop(e, 1);
    to->init[0] = LLVMConstNull(s->word);
    emit_loop_begin(e, to, "pick", i64c(e, 0), smin(e, i64c(e, s->keep), s->n), i64c(e, 1), false);
    LLVMValueRef from = emit_splat_n(e, to->phi[0], s->ranked);
    *l = emit_loop(e, 1);
    l->init[0] = most;
    emit_loop_begin(e, l, "least", i64c(e, 0), s->n, i64c(e, s->ranked), false);
    LLVMValueRef v[2] = {load_words(s, s->ranked, s->a, l->i), l->phi[0]};
    LLVMValueRef behind = LLVMBuildICmp(e->b, LLVMIntUGE, v[0], from, "");
    v[0] = LLVMBuildSelect(e->b, behind, v[0], most, "");
    l->next[0] = emit_intrinsic(e, "llvm.umin", t, v, 2);
    emit_loop_end(e, l);
    LLVMValueRef least = l->out[0];
    if (s->ranked > 1) least = emit_intrinsic(e, "llvm.vector.reduce.umin", t, l->out, 1);
    store_words(s, least, s->b, to->i);
    to->next[0] = LLVMBuildAdd(e->b, least, emit_i(e, s->word, 1), "");
    emit_loop_end(e, to);
}

/* Of digit d (a number from the last one) of a word: where its count is. */
static LLVMValueRef digit_at(Sort *s, LLVMValueRef word, LLVMValueRef d) {
    Emit *e = s->e;
    LLVMValueRef v = LLVMBuildZExt(e->b, key_of(s, word), e->i64, "");
    v = LLVMBuildLShr(e->b, v, LLVMBuildShl(e->b, d, i64c(e, 3), ""), "");
    v = LLVMBuildAnd(e->b, v, i64c(e, DIGIT_SIZE - 1), "");
    LLVMValueRef table = LLVMBuildMul(e->b, d, i64c(e, DIGIT_SIZE), "");
    return emit_gep(e, e->i32, s->counts, LLVMBuildAdd(e->b, table, v, ""));
}

static int64_t digits(const Sort *s) {
    return s->bits / 8;
}

static void count_digits(Sort *s) {
    Emit *e = s->e;
    EmitLoop *zero = ARENA_NEW(e->arena, EmitLoop), *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMTypeRef line = LLVMVectorType(e->i32, 16);
    LLVMValueRef one = LLVMConstInt(e->i32, 1, false);
    emit_loop_begin(e, zero, "zero", i64c(e, 0), i64c(e, digits(s) * DIGIT_SIZE), i64c(e, 16),
                    false);
    emit_store_ptr(e, LLVMConstNull(line), emit_gep(e, e->i32, s->counts, zero->i), 64);
    emit_loop_end(e, zero);
    emit_loop_begin(e, l, "count", i64c(e, 0), s->n, i64c(e, 1), false);
    LLVMValueRef word = load_words(s, 1, s->a, l->i);
    for (int d = 0; d < digits(s); d++) {
        LLVMValueRef at = digit_at(s, word, i64c(e, d));
        emit_store_ptr(e, LLVMBuildAdd(e->b, emit_load(e, e->i32, at, 4), one, ""), at, 4);
    }
    emit_loop_end(e, l);
}

/* Counts of digit d to first places. */
static void first_places(Sort *s, LLVMValueRef d) {
    Emit *e = s->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef lo = LLVMBuildMul(e->b, d, i64c(e, DIGIT_SIZE), "");
    LLVMValueRef hi = LLVMBuildAdd(e->b, lo, i64c(e, DIGIT_SIZE), "");
    *l = emit_loop(e, 1);
    l->init[0] = LLVMConstNull(e->i32);
    emit_loop_begin(e, l, "first", lo, hi, i64c(e, 4), false);
    for (int u = 0; u < 4; u++) {
        LLVMValueRef at = LLVMBuildAdd(e->b, l->i, i64c(e, u), "");
        LLVMValueRef p = emit_gep(e, e->i32, s->counts, at);
        LLVMValueRef n = emit_load(e, e->i32, p, 4);
        emit_store_ptr(e, l->next[0], p, 4);
        l->next[0] = LLVMBuildAdd(e->b, l->next[0], n, "");
    }
    emit_loop_end(e, l);
}

/* From the last digit to the first, each time in the order so far; positions stand in order before.
 * A digit that all words share moves none. Returns where the words ended up. */
static LLVMValueRef digit_sort(Sort *s) {
    Emit *e = s->e;
    EmitLoop *d = ARENA_NEW(e->arena, EmitLoop), *move = ARENA_NEW(e->arena, EmitLoop);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef one = LLVMConstInt(e->i32, 1, false);
    count_digits(s);
    *d = emit_loop(e, 2);
    d->init[0] = s->a;
    d->init[1] = s->b;
    emit_loop_begin(e, d, "digit", i64c(e, 0), i64c(e, digits(s)), i64c(e, 1), false);
    LLVMValueRef from = d->phi[0], to = d->phi[1];
    LLVMValueRef word = load_words(s, 1, from, i64c(e, 0));
    LLVMValueRef same = emit_load(e, e->i32, digit_at(s, word, d->i), 4);
    LLVMValueRef n = LLVMBuildTrunc(e->b, s->n, e->i32, "");
    LLVMValueRef moves = LLVMBuildICmp(e->b, LLVMIntNE, same, n, "");
    LLVMValueRef turns = LLVMBuildZExt(e->b, moves, e->i64, "");
    emit_loop_begin(e, move, "move", i64c(e, 0), turns, i64c(e, 1), false);
    first_places(s, d->i);
    emit_loop_begin(e, l, "place", i64c(e, 0), s->n, i64c(e, 1), false);
    word = load_words(s, 1, from, l->i);
    LLVMValueRef at = digit_at(s, word, d->i), place = emit_load(e, e->i32, at, 4);
    emit_store_ptr(e, LLVMBuildAdd(e->b, place, one, ""), at, 4);
    place = LLVMBuildZExt(e->b, place, e->i64, "");
    store_words(s, word, to, place);
    emit_loop_end(e, l);
    emit_loop_end(e, move);
    d->next[0] = LLVMBuildSelect(e->b, moves, to, from, "");
    d->next[1] = LLVMBuildSelect(e->b, moves, from, to, "");
    emit_loop_end(e, d);
    return d->out[0];
}

/* Whether finding one first place after the other takes less than counting, in vectors. */
static bool picks(const Sort *s) {
    enum { VECTOR = 2, PLACE = 16, WORD = 3 };
    const int64_t n = s->most, vectors = (n + s->ranked - 1) / s->ranked;
    return s->keep && s->keep * (vectors * VECTOR + PLACE) < vectors * n + n * WORD;
}

/* s->n words in a, by n; returns where they are in order. */
static LLVMValueRef word_sort(Sort *s) {
    Emit *e = s->e;
    EmitLoop *few = ARENA_NEW(e->arena, EmitLoop), *many = ARENA_NEW(e->arena, EmitLoop);
    const int64_t most = s->ranked == 1 ? MOST_WIDE : MOST_RANKED;
    if (s->most && s->most <= MOST_RANKED && picks(s)) {
        pick_words(s);
        return s->b;
    }
    if (s->most && s->most <= most) {
        rank_sort(s);
        return s->b;
    }
    LLVMValueRef is_few = LLVMBuildICmp(e->b, LLVMIntSLE, s->n, i64c(e, most), "");
    LLVMValueRef turns = LLVMBuildZExt(e->b, is_few, e->i64, "");
    emit_loop_begin(e, few, "few", i64c(e, 0), turns, i64c(e, 1), false);
    rank_sort(s);
    emit_loop_end(e, few);
    *many = emit_loop(e, 1);
    many->init[0] = s->b;
    emit_loop_begin(e, many, "many", turns, i64c(e, 1), i64c(e, 1), false);
    many->next[0] = digit_sort(s);
    emit_loop_end(e, many);
    return many->out[0];
}

/* --- One row ------------------------------------------------------------------------------ */

static void here(Sort *s, Expr base, LLVMValueRef mask) {
    emit_push(s->e);
    emit_bind_lanes(s->e, s->r->k->axes[s->axis].sym, base, mask, true);
    rows_use_kept(s->r, s->axis);
}

static void fill_step(Rows *r, void *ctx, uint32_t n, Expr base, LLVMValueRef mask,
                      LLVMValueRef *acc) {
    Sort *s = ctx;
    (void)n, (void)acc;
    LLVMValueRef at = emit_expr(r->e, base);
    here(s, base, mask);
    store_words(s, words_here(s, keys_here(s)), s->a, at);
    emit_pop(r->e);
}

/* Only the first places stay. Returns the key of the last of them. */
static LLVMValueRef cut(Sort *s) {
    Emit *e = s->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef from = word_sort(s), keep = i64c(e, s->keep);
    emit_loop_begin(e, l, "keep", i64c(e, 0), keep, i64c(e, s->ranked), false);
    store_words(s, load_words(s, s->ranked, from, l->i), s->a, l->i);
    emit_loop_end(e, l);
    return key_of(s, load_words(s, 1, s->a, i64c(e, s->keep - 1)));
}

/* Those that are hit behind the first `count` words; returns how many there are then. */
static LLVMValueRef append(Sort *s, LLVMValueRef words, LLVMValueRef hit, LLVMValueRef count) {
    Emit *e = s->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMTypeRef bytes = emit_vec(e->i8, e->lanes);
    LLVMValueRef seen = word_at(s, s->hits, i64c(e, e->widest));
    store_words(s, words, s->hits, i64c(e, 0));
    emit_store_ptr(e, LLVMBuildZExt(e->b, hit, bytes, ""), seen, 1);
    *l = emit_loop(e, 1);
    l->init[0] = count;
    emit_loop_begin(e, l, "hit", i64c(e, 0), i64c(e, e->lanes), i64c(e, 1), true);
    store_words(s, load_words(s, 1, s->hits, l->i), s->a, l->phi[0]);
    LLVMValueRef more = emit_load(e, e->i8, emit_gep(e, e->i8, seen, l->i), 1);
    l->next[0] = LLVMBuildAdd(e->b, l->phi[0], LLVMBuildZExt(e->b, more, e->i64, ""), "");
    emit_loop_end(e, l);
    return l->out[0];
}

/* acc: how many words are collected, and the key that those to come are less than: at an equal one
 * the position is behind. */
static void collect_step(Rows *r, void *ctx, uint32_t n, Expr base, LLVMValueRef mask,
                         LLVMValueRef *acc) {
    Sort *s = ctx;
    Emit *e = r->e;
    EmitLoop *some = ARENA_NEW(e->arena, EmitLoop), *full = ARENA_NEW(e->arena, EmitLoop);
    (void)n;
    here(s, base, mask);
    LLVMValueRef keys = keys_here(s);
    LLVMValueRef lead = e->lanes > 1 ? emit_splat(e, acc[1]) : acc[1];
    LLVMValueRef hit = LLVMBuildICmp(e->b, LLVMIntULT, keys, lead, ""), any = hit;
    if (mask) any = hit = LLVMBuildAnd(e->b, hit, mask, "");
    if (e->lanes > 1) any = emit_intrinsic(e, "llvm.vector.reduce.or", LLVMTypeOf(hit), &hit, 1);
    *some = emit_loop(e, 2);
    some->init[0] = acc[0];
    some->init[1] = acc[1];
    emit_loop_begin(e, some, "some", i64c(e, 0), LLVMBuildZExt(e->b, any, e->i64, ""), i64c(e, 1),
                    false);
    s->n = append(s, words_here(s, keys), hit, acc[0]);
    LLVMValueRef is_full = LLVMBuildICmp(e->b, LLVMIntSGE, s->n, i64c(e, s->room), "");
    *full = emit_loop(e, 2);
    full->init[0] = s->n;
    full->init[1] = acc[1];
    emit_loop_begin(e, full, "full", i64c(e, 0), LLVMBuildZExt(e->b, is_full, e->i64, ""),
                    i64c(e, 1), false);
    full->next[1] = cut(s);
    full->next[0] = i64c(e, s->keep);
    emit_loop_end(e, full);
    some->next[0] = full->out[0];
    some->next[1] = full->out[1];
    emit_loop_end(e, some);
    emit_pop(e);
    acc[0] = some->out[0];
    acc[1] = some->out[1];
}

/* From s->room elements in a on: words that come before the last of the first places so far. */
static void collect(Sort *s, LLVMValueRef n) {
    Emit *e = s->e;
    EmitLoop *more = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef is_more = LLVMBuildICmp(e->b, LLVMIntSGT, n, i64c(e, s->room), "");
    *more = emit_loop(e, 1);
    more->init[0] = s->n;
    emit_loop_begin(e, more, "more", i64c(e, 0), LLVMBuildZExt(e->b, is_more, e->i64, ""),
                    i64c(e, 1), false);
    s->n = i64c(e, s->room);
    LLVMValueRef acc[2] = {i64c(e, s->keep), cut(s)};
    const int64_t all = expr_divisor(e->exprs, s->r->k->axes[s->axis].extent), even = all & -all;
    rows_span(s->r, i64c(e, s->room), n, even && even < ROOM_STEP ? even : ROOM_STEP, 1, 2, acc,
              collect_step, s);
    more->next[0] = acc[0];
    emit_loop_end(e, more);
    s->n = more->out[0];
}

typedef struct Places {
    const Sort *s;
    const Kept *to;
    LLVMValueRef from;
} Places;

static void place_step(Rows *r, void *ctx, uint32_t n, Expr base, LLVMValueRef mask,
                       LLVMValueRef *acc) {
    const Places *p = ctx;
    Emit *e = r->e;
    (void)n, (void)acc, (void)mask;
    LLVMValueRef v = load_words(p->s, e->lanes, p->from, emit_expr(e, base));
    v = LLVMBuildTrunc(e->b, v, emit_vec(e->i32, e->lanes), "");
    v = LLVMBuildZExt(e->b, v, emit_vec(e->i64, e->lanes), "");
    emit_push(e);
    emit_bind(e, r->k->axes[p->to->axis].sym, base);
    emit_store_ptr(e, v, rows_kept_at(r, p->to, 0), 8);
    emit_pop(e);
}

static Expr with_vector(Emit *e, Expr n) {
    return expr_addi(e->exprs, n, e->widest > RANKED ? e->widest : RANKED);
}

static void sort_memory(Sort *s, Expr room) {
    Emit *e = s->e;
    ExprPool *p = e->exprs;
    room = with_vector(e, room);
    s->a = emit_scratch(e, expr_muli(p, room, word_bytes(s)));
    s->b = emit_scratch(e, expr_muli(p, room, word_bytes(s)));
    s->counts = emit_scratch(e, expr_const(p, digits(s) * DIGIT_SIZE * 4));
    s->hits = emit_scratch(e, expr_const(p, e->widest * (word_bytes(s) + 1)));
}

void rows_sort(Rows *r, KVal v, const Kept *to) {
    Emit *e = r->e;
    const KOp *o = &r->k->ops[v];
    const DType t = (DType)r->k->ops[o->in[0]].dtype;
    Expr extent = r->k->axes[to->axis].extent, room = extent;
    Sort s = {.r = r, .e = e, .o = o, .t = t, .axis = to->axis, .keep = o->imm.i >> 2};
    s.descending = o->imm.i & 2;
    const bool wide = dtype_bytes(t) > 4;
    s.bits = wide ? 64 : 32;
    s.ranked = wide ? 1 : RANKED;
    s.key = wide ? e->i64 : e->i32;
    s.word = LLVMIntTypeInContext(e->ctx, 2 * s.bits);
    s.room = (2 * s.keep + ROOM_STEP - 1) / ROOM_STEP * ROOM_STEP;
    if (s.keep > 0 && s.keep < MOST_KEPT)
        room = expr_min(e->exprs, extent, expr_const(e->exprs, s.room));
    const bool few = room != extent;
    LLVMValueRef n = emit_expr(e, extent);
    s.n = emit_expr(e, room);
    if (few) room = expr_const(e->exprs, s.room + e->widest);
    if (!expr_is_const(e->exprs, room, &s.most)) s.most = 0;
    sort_memory(&s, room);
    rows_span(r, i64c(e, 0), s.n, few ? 1 : expr_divisor(e->exprs, extent), 1, 0, NULL, fill_step,
              &s);
    if (few) collect(&s, n);
    Places p = {&s, to, word_sort(&s)};
    LLVMValueRef first = s.keep > 0 ? smin(e, i64c(e, s.keep), n) : n;
    rows_span(r, i64c(e, 0), first, 1, 1, 0, NULL, place_step, &p);
}
