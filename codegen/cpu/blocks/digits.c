/* Contractions of f32 with words of few bits (kir_part) where four products of bytes are one
 * instruction. A part of k, 32 rows, of the left operand is copied as integers of 24 bits in units
 * of a power of two, so that the largest has all of them: each is as exact as f32 has the largest.
 * An integer is three digits from -128 to 127:
 *
 *   i8 [3][size]  first digits, the highest, then second, then third ones, in the order of quads
 *   f32           the unit; what is no number, or infinite, is its part's unit
 *   i32 [2]       minus the sums of the first digits, and of what the others stand for, times the
 *                 right operand's zero point where that is one number: what sums begin with
 *
 * Sums of products with digits are exact, and so is what the second and the third stand for
 * together; a part's sum is rounded when the first digits' is added to that, then scaled and added
 * up in f32. So it costs three products of bytes, a quarter of one of f32 each, and no weight is
 * taken out of its word and scaled by itself.
 *
 * Of at most FEW_ROWS rows all columns of a panel are multiplied at a time, and up to DOT_PART one
 * vector of columns after the other in each part, so that sums of products fit the registers: what
 * they wait for is memory, which is read as it lies. Of more one vector of columns is walked to its
 * end by a tile of rows. */
#include "codegen/cpu/blocks/blocks.h"

enum { DIGITS = 3, HEAD = 16, FEW_ROWS = 2, SUM_ALIGN = 64, QUADS = KIR_PART / 4 };
enum { FRACTION = 23, INFINITE = 255 << FRACTION }; /* of f32 */
/* Exponents as f32 holds them: of the least unit that a part has, of 1, of half of an integer's
 * range. */
enum { UNIT_LEAST = 5, ONE = 127, TOP = 22, LARGEST = (1 << TOP) / 64 * 127 };

bool dot_has_digits(const Isa *isa) {
    return isa->multiply_quads != NULL;
}

void dot_analyse_digits(Dot *d) {
    DotBlocks *x = &d->scaled;
    *x = (DotBlocks){.size = d->part, .digits = true, .few = DOT_PART};
    for (uint32_t i = 0; i < d->t->nacc; i++) {
        (void)kir_scaled(d->k, d->t->b[i], &x->b[i]);
        d->b[i] = (DotB){.mode = DOT_B_BLOCKS};
    }
    x->zeros = !blocks_one_zero(d, &x->zero);
    x->count = expr_div(d->p, d->kk.size, expr_const(d->p, x->size));
    d->makes = false;
}

uint32_t digits_bytes(const Dot *d) {
    return DIGITS * d->scaled.size + HEAD;
}

/* --- The left operand --------------------------------------------------------------------- */

static LLVMValueRef as(Dot *d, LLVMValueRef x, LLVMTypeRef t) {
    return LLVMBuildBitCast(d->e->b, x, t, "");
}

static LLVMValueRef word(Dot *d, int64_t x) {
    return emit_i(d->e, d->e->i32, x);
}

static LLVMValueRef words(Dot *d, int64_t x) {
    return emit_splat_n(d->e, word(d, x), BLOCKS_COPIED);
}

static LLVMTypeRef copied_words(Dot *d) {
    return emit_vec(d->e->i32, BLOCKS_COPIED);
}

/* The largest number of a part without its sign, as bits; what is no number is larger than any. */
static LLVMValueRef largest(Dot *d, const LLVMValueRef *v, uint32_t n) {
    Emit *e = d->e;
    LLVMValueRef most = NULL;
    for (uint32_t i = 0; i < n; i++) {
        LLVMValueRef x = as(d, v[i], copied_words(d));
        x = LLVMBuildAnd(e->b, x, words(d, INT32_MAX), "");
        LLVMValueRef both[2] = {most, x};
        most = most ? emit_intrinsic(e, "llvm.umax", copied_words(d), both, 2) : x;
    }
    return emit_intrinsic(e, "llvm.vector.reduce.umax", copied_words(d), &most, 1);
}

/* 2^x, of an exponent as f32 holds it. */
static LLVMValueRef power(Dot *d, LLVMValueRef x) {
    return as(d, LLVMBuildShl(d->e->b, x, word(d, FRACTION), ""), d->e->f32);
}

/* The unit of a part, and its inverse. The largest counts as more than it is by a 64th of its
 * power of two: so integers are less than LARGEST, and no first digit is above 127. */
static LLVMValueRef unit_of(Dot *d, LLVMValueRef most, LLVMValueRef *inverse) {
    Emit *e = d->e;
    LLVMValueRef up = LLVMBuildAdd(e->b, most, word(d, 1 << (FRACTION - 6)), "");
    up = LLVMBuildLShr(e->b, up, word(d, FRACTION), "");
    LLVMValueRef x[2] = {up, word(d, UNIT_LEAST + TOP)};
    up = emit_intrinsic(e, "llvm.umax", e->i32, x, 2);
    *inverse = power(d, LLVMBuildSub(e->b, word(d, 2 * ONE + TOP), up, ""));
    LLVMValueRef finite = LLVMBuildICmp(e->b, LLVMIntULT, most, word(d, INFINITE), "");
    LLVMValueRef unit = power(d, LLVMBuildSub(e->b, up, word(d, TOP), ""));
    return LLVMBuildSelect(e->b, finite, unit, as(d, most, e->f32), "");
}

/* v as integers; infinite ones within their range. */
static LLVMValueRef integers(Dot *d, LLVMValueRef v, LLVMValueRef inverse) {
    Emit *e = d->e;
    v = LLVMBuildFMul(e->b, v, emit_splat_n(e, inverse, BLOCKS_COPIED), "");
    return emit_nearest(e, emit_between(e, v, -LARGEST, LARGEST));
}

/* What sums begin with: x or, where there is one zero point, x times that. */
static void store_less(Dot *d, LLVMValueRef x, LLVMValueRef to, int64_t offset) {
    Emit *e = d->e;
    const DotBlocks *s = &d->scaled;
    x = emit_intrinsic(e, "llvm.vector.reduce.add", copied_words(d), &x, 1);
    x = LLVMBuildMul(e->b, x, word(d, s->zeros ? -1 : -s->zero), "");
    emit_store_ptr(e, x, blocks_at(d, to, offset), 4);
}

/* Adding half of a digit's range to each makes bytes without a sign of them. */
static void store_digits(Dot *d, LLVMValueRef x, LLVMValueRef to, int64_t offset) {
    Emit *e = d->e;
    x = LLVMBuildAdd(e->b, x, words(d, 0x808080), "");
    x = LLVMBuildXor(e->b, x, words(d, 0x808080), "");
    for (uint32_t i = 0; i < DIGITS; i++) {
        LLVMValueRef digit = LLVMBuildLShr(e->b, x, words(d, 8 * (DIGITS - 1 - i)), "");
        digit = LLVMBuildTrunc(e->b, digit, emit_vec(e->i8, BLOCKS_COPIED), "");
        digit = blocks_in_quads(d, digit);
        emit_store_ptr(e, digit, blocks_at(d, to, offset + i * d->scaled.size), 8);
    }
}

void digits_copy(Dot *d, Expr at, LLVMValueRef to) {
    Emit *e = d->e;
    const uint32_t lanes = e->lanes, size = d->scaled.size, n = size / BLOCKS_COPIED;
    LLVMValueRef v[KIR_PART / BLOCKS_COPIED], first = words(d, 0), others = first, inverse;
    e->lanes = BLOCKS_COPIED;
    for (uint32_t i = 0; i < n; i++) {
        emit_push(e);
        dot_bind_lanes(d, &d->kk, expr_addi(d->p, at, i * BLOCKS_COPIED), NULL, true);
        v[i] = emit_value_lanes(e, d->t->a);
        emit_pop(e);
    }
    LLVMValueRef unit = unit_of(d, largest(d, v, n), &inverse);
    for (uint32_t i = 0; i < n; i++) {
        LLVMValueRef x = integers(d, v[i], inverse);
        store_digits(d, x, to, i * BLOCKS_COPIED);
        LLVMValueRef high = LLVMBuildAdd(e->b, x, words(d, 0x8080), "");
        high = LLVMBuildAShr(e->b, high, words(d, 16), "");
        first = LLVMBuildAdd(e->b, first, high, "");
        x = LLVMBuildSub(e->b, x, LLVMBuildShl(e->b, high, words(d, 16), ""), "");
        others = LLVMBuildAdd(e->b, others, x, "");
    }
    e->lanes = lanes;
    emit_store_ptr(e, unit, blocks_at(d, to, DIGITS * size), 4);
    store_less(d, first, to, DIGITS * size + 4);
    store_less(d, others, to, DIGITS * size + 8);
}

/* --- Sums --------------------------------------------------------------------------------- */

/* Of one part of a tile. */
typedef struct Part {
    const DotBlockTile *t;
    const LLVMValueRef *left;
    LLVMValueRef quad[DOT_MAX_NV][QUADS], scale[DOT_MAX_NV], zero[DOT_MAX_NV];
    LLVMValueRef sum[DIGITS][DOT_ROWS * DOT_MAX_NV]; /* of products with each digit */
} Part;

static void load_part(Dot *d, Part *s, Expr at) {
    Emit *e = d->e;
    const KScaled *b = &d->scaled.b[s->t->of];
    const uint32_t per = 32 / b->bits, quads = per / 4;
    for (uint32_t j = 0; j < s->t->nv; j++) {
        emit_push(e);
        blocks_bind_columns(d, s->t, j);
        for (uint32_t q = 0; q < d->scaled.size / 4; q++) {
            emit_push(e);
            dot_bind(d, &d->kk, expr_addi(d->p, at, q / quads * per));
            s->quad[j][q] = blocks_quad(d, emit_value_lanes(e, b->word), q % quads);
            emit_pop(e);
        }
        dot_bind(d, &d->kk, at);
        s->scale[j] = emit_value_lanes(e, b->scale);
        s->zero[j] = NULL;
        if (d->scaled.zeros && b->zero)
            s->zero[j] =
                LLVMBuildFPToSI(e->b, emit_value_lanes(e, b->zero), emit_vec(e->i32, d->lanes), "");
        emit_pop(e);
    }
}

/* Number `at` of what sums begin with. */
static void begin(Dot *d, Part *s, uint32_t at, LLVMValueRef *sum) {
    Emit *e = d->e;
    const DotBlocks *x = &d->scaled;
    for (uint32_t r = 0; r < s->t->rows; r++) {
        LLVMValueRef less = NULL;
        if (x->zeros || x->zero)
            less = blocks_load_four(d, blocks_at(d, s->left[r], DIGITS * x->size + 4 + 4 * at));
        for (uint32_t j = 0; j < s->t->nv; j++) {
            LLVMValueRef *to = &sum[r * s->t->nv + j];
            *to = less && (!x->zeros || s->zero[j]) ? less
                                                    : LLVMConstNull(emit_vec(e->i32, d->lanes));
            if (less && s->zero[j]) *to = LLVMBuildMul(e->b, less, s->zero[j], "");
        }
    }
}

static void multiply(Dot *d, Part *s, uint32_t digit, uint32_t quad) {
    const int64_t offset = digit * d->scaled.size + 4 * quad;
    for (uint32_t r = 0; r < s->t->rows; r++) {
        LLVMValueRef a = blocks_load_four(d, blocks_at(d, s->left[r], offset));
        for (uint32_t j = 0; j < s->t->nv; j++) {
            LLVMValueRef *sum = &s->sum[digit][r * s->t->nv + j];
            *sum = blocks_add_quads(d, *sum, s->quad[j][quad], a);
        }
    }
}

/* What the second digits stand for, added to the third ones. */
static void join_others(Dot *d, Part *s) {
    Emit *e = d->e;
    LLVMValueRef eight = emit_splat(e, word(d, 8));
    for (uint32_t i = 0; i < s->t->rows * s->t->nv; i++) {
        LLVMValueRef x = LLVMBuildShl(e->b, s->sum[1][i], eight, "");
        s->sum[2][i] = LLVMBuildAdd(e->b, x, s->sum[2][i], "");
    }
}

static void begin_second(Dot *d, Part *s) {
    for (uint32_t i = 0; i < s->t->rows * s->t->nv; i++)
        s->sum[1][i] = LLVMConstNull(emit_vec(d->e->i32, d->lanes));
}

/* Few sums: all digits of a quad, quad by quad. */
static void by_quads(Dot *d, Part *s) {
    begin(d, s, 0, s->sum[0]);
    begin_second(d, s);
    begin(d, s, 1, s->sum[2]);
    for (uint32_t q = 0; q < d->scaled.size / 4; q++)
        for (uint32_t digit = 0; digit < DIGITS; digit++) multiply(d, s, digit, q);
    join_others(d, s);
}

static void all_quads(Dot *d, Part *s, uint32_t digit) {
    for (uint32_t q = 0; q < d->scaled.size / 4; q++) multiply(d, s, digit, q);
}

/* Many: all quads of a digit, so that no more than two of them have sums at a time. */
static void by_digits(Dot *d, Part *s) {
    begin(d, s, 0, s->sum[0]);
    all_quads(d, s, 0);
    begin_second(d, s);
    all_quads(d, s, 1);
    begin(d, s, 1, s->sum[2]);
    join_others(d, s);
    all_quads(d, s, 2);
}

static void add_scaled(Dot *d, const Part *s, LLVMValueRef *acc) {
    Emit *e = d->e;
    LLVMTypeRef t = emit_vec(e->f32, d->lanes);
    for (uint32_t r = 0; r < s->t->rows; r++) {
        LLVMValueRef unit =
            emit_load(e, e->f32, blocks_at(d, s->left[r], DIGITS * d->scaled.size), 4);
        for (uint32_t j = 0; j < s->t->nv; j++) {
            const uint32_t i = r * s->t->nv + j;
            LLVMValueRef first = LLVMBuildSIToFP(e->b, s->sum[0][i], t, "");
            LLVMValueRef x = LLVMBuildSIToFP(e->b, s->sum[2][i], t, "");
            x = emit_fma(e, first, emit_f(e, t, 1 << 16), x);
            x = LLVMBuildFMul(e->b, x, s->scale[j], "");
            acc[i] = emit_fma(e, x, emit_splat(e, unit), acc[i]);
        }
    }
}

/* What the part at row `at` of k stands for, added to the tile's sums. */
static void add_part(Dot *d, const DotBlockTile *t, const LLVMValueRef *left, Expr at,
                     LLVMValueRef *acc) {
    Part s = {.t = t, .left = left};
    load_part(d, &s, at);
    if (t->rows <= DOT_PART)
        by_quads(d, &s);
    else
        by_digits(d, &s);
    add_scaled(d, &s, acc);
}

/* Of part number `part`. */
static Expr row_of(Dot *d, LLVMValueRef part) {
    return expr_muli(d->p, emit_below(d->e, "part", d->scaled.count, part), d->scaled.size);
}

static void in_registers(Dot *d, const DotBlockTile *t, LLVMValueRef *acc) {
    Emit *e = d->e;
    const uint32_t n = t->rows * t->nv;
    LLVMValueRef left[DOT_ROWS];
    EmitLoop l = emit_loop(e, n);
    for (uint32_t i = 0; i < n; i++) l.init[i] = LLVMConstNull(emit_vec(e->f32, d->lanes));
    emit_loop_begin(e, &l, "part", emit_i64(e, 0), emit_expr(e, d->scaled.count), emit_i64(e, 1),
                    true);
    for (uint32_t i = 0; i < n; i++) acc[i] = l.phi[i];
    blocks_find(d, t, l.i, digits_bytes(d), left);
    add_part(d, t, left, row_of(d, l.i), acc);
    for (uint32_t i = 0; i < n; i++) l.next[i] = acc[i];
    emit_loop_end(e, &l);
    for (uint32_t i = 0; i < n; i++) acc[i] = l.out[i];
}

/* Vector j of row r among a tile's sums in memory. */
static LLVMValueRef sum_place(Dot *d, const DotBlockTile *t, LLVMValueRef sums, LLVMValueRef j,
                              uint32_t r) {
    Emit *e = d->e;
    LLVMValueRef at = LLVMBuildMul(e->b, j, emit_i64(e, t->rows), "");
    at = LLVMBuildAdd(e->b, at, emit_i64(e, r), "");
    return emit_gep(e, emit_vec(e->f32, d->lanes), sums, at);
}

/* Number j of the tile's vectors of columns, whose sums are in memory. */
static void add_vector(Dot *d, const DotBlockTile *t, const LLVMValueRef *left, Expr at,
                       LLVMValueRef j, LLVMValueRef sums) {
    Emit *e = d->e;
    const Expr n0 = d->n0;
    LLVMValueRef acc[DOT_ROWS], mask;
    d->n0 =
        expr_add(d->p, n0,
                 expr_muli(d->p, emit_below(d->e, "vector", expr_const(d->p, t->nv), j), d->lanes));
    dot_column_masks(d, 1, t->mask[0] != NULL, &mask);
    const DotBlockTile one = {t->rows, 1, t->of, t->row, &mask};
    for (uint32_t r = 0; r < t->rows; r++)
        acc[r] = emit_load(e, emit_vec(e->f32, d->lanes), sum_place(d, t, sums, j, r), SUM_ALIGN);
    add_part(d, &one, left, at, acc);
    for (uint32_t r = 0; r < t->rows; r++)
        emit_store_ptr(e, acc[r], sum_place(d, t, sums, j, r), SUM_ALIGN);
    d->n0 = n0;
}

/* A vector of columns at a time, but all of a part, as they lie in memory, before the next one. */
static void in_memory(Dot *d, const DotBlockTile *t, LLVMValueRef *acc) {
    Emit *e = d->e;
    LLVMValueRef left[DOT_ROWS], zero = emit_i64(e, 0), one = emit_i64(e, 1);
    LLVMTypeRef type = emit_vec(e->f32, d->lanes);
    LLVMValueRef sums = emit_alloca(e, type, t->rows * t->nv, SUM_ALIGN);
    EmitLoop part = {0}, vector = {0};
    for (uint32_t i = 0; i < t->rows * t->nv; i++)
        emit_store_ptr(e, LLVMConstNull(type), sum_place(d, t, sums, zero, i), SUM_ALIGN);
    emit_loop_begin(e, &part, "part", zero, emit_expr(e, d->scaled.count), one, true);
    blocks_find(d, t, part.i, digits_bytes(d), left);
    const Expr at = row_of(d, part.i);
    emit_loop_begin(e, &vector, "vector", zero, emit_i64(e, t->nv), one, true);
    add_vector(d, t, left, at, vector.i, sums);
    emit_loop_end(e, &vector);
    emit_loop_end(e, &part);
    for (uint32_t i = 0; i < t->rows * t->nv; i++)
        acc[i] =
            emit_load(e, type, sum_place(d, t, sums, emit_i64(e, i % t->nv), i / t->nv), SUM_ALIGN);
}

void digits_sums(Dot *d, const DotBlockTile *t, LLVMValueRef *acc) {
    if (t->rows <= FEW_ROWS || t->nv == 1)
        in_registers(d, t, acc);
    else
        in_memory(d, t, acc);
}
