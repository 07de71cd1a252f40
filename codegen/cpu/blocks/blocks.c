/* Contractions in blocks (KDot.block): integers of 8 bits by integers of few bits are summed in 32
 * bits, exactly, and the sums of each block scaled and added up in f32. The left operand's rows are
 * copied, block by block:
 *
 *   i8 [size]   in the order in which quads of rows come out of a word of the right operand
 *   f32         the block's scale
 *   i32 or f32  minus the sum of its integers, times the right operand's zero point where that is
 *               one number: what the block's sums begin with; else it is multiplied with zero
 * points
 *
 * Where there are four rows at most, all columns of a panel are multiplied at a time, for memory is
 * what they wait for; of more, one vector of columns by a tile of rows: so accumulators of both
 * types fit the registers. */
#include "codegen/cpu/blocks/blocks.h"

enum {
    UNIT = 32, /* rows of k that are unrolled; of 4 bits by i8, 16 bits hold a sum of so many / 2 */
    HEAD = 8,  /* bytes behind the integers of a block */
    FEW_ROWS = 4
};

void dot_analyse_blocks(Dot *d) {
    DotBlocks *x = &d->scaled;
    x->size = d->t->block;
    (void)kir_scaled(d->k, d->t->a, &x->a);
    for (uint32_t i = 0; i < d->t->nacc; i++) {
        (void)kir_scaled(d->k, d->t->b[i], &x->b[i]);
        d->b[i] = (DotB){.mode = DOT_B_BLOCKS};
    }
    x->zeros = !blocks_one_zero(d, &x->zero);
    x->count = expr_div(d->p, d->kk.size, expr_const(d->p, x->size));
    x->few = d->e->isa->vector_regs > FEW_ROWS * DOT_MAX_NV * 2 ? FEW_ROWS : 1;
    d->left = DT_i8;
    d->ka = d->kk;
    d->nrun = d->kk.n;
    d->run = d->kk.size;
    d->nruns = d->step = expr_const(d->p, 1);
}

/* Bytes of a block's copy. */
static uint32_t copy_bytes(const Dot *d) {
    return d->scaled.digits ? digits_bytes(d) : d->scaled.size + HEAD;
}

Expr dot_blocks_bytes(Dot *d, Expr rows) {
    return expr_mul(d->p, rows, expr_muli(d->p, d->scaled.count, copy_bytes(d)));
}

/* --- The left operand --------------------------------------------------------------------- */

static LLVMValueRef sum_bytes(Dot *d, LLVMValueRef v) {
    Emit *e = d->e;
    LLVMTypeRef wide = emit_vec(e->i32, BLOCKS_COPIED);
    v = LLVMBuildXor(e->b, v, emit_splat_n(e, LLVMConstInt(e->i8, 128, false), BLOCKS_COPIED), "");
    v = LLVMBuildZExt(e->b, v, wide, "");
    v = emit_intrinsic(e, "llvm.vector.reduce.add", wide, &v, 1);
    return LLVMBuildSub(e->b, v, LLVMConstInt(e->i32, 128 * BLOCKS_COPIED, false), "");
}

static void copy_block(Dot *d, Expr at, LLVMValueRef to) {
    Emit *e = d->e;
    const DotBlocks *x = &d->scaled;
    const uint32_t lanes = e->lanes;
    emit_push(e);
    dot_bind(d, &d->kk, at);
    emit_store_ptr(e, emit_value(e, x->a.scale), blocks_at(d, to, x->size), 4);
    emit_pop(e);
    e->lanes = BLOCKS_COPIED;
    LLVMValueRef sum = LLVMConstInt(e->i32, 0, false);
    for (uint32_t i = 0; i < x->size; i += BLOCKS_COPIED) {
        emit_push(e);
        dot_bind_lanes(d, &d->kk, expr_addi(d->p, at, i), NULL, true);
        LLVMValueRef v = emit_value_lanes(e, x->a.q);
        emit_pop(e);
        sum = LLVMBuildAdd(e->b, sum, sum_bytes(d, v), "");
        emit_store_ptr(e, blocks_in_quads(d, v), blocks_at(d, to, i), 8);
    }
    e->lanes = lanes;
    if (x->zeros)
        sum = LLVMBuildSIToFP(e->b, LLVMBuildNeg(e->b, sum, ""), e->f32, "");
    else
        sum = LLVMBuildMul(e->b, sum, emit_i(e, e->i32, -x->zero), "");
    emit_store_ptr(e, sum, blocks_at(d, to, x->size + 4), 4);
}

void dot_copy_blocks(Dot *d, LLVMValueRef rows) {
    Emit *e = d->e;
    const DotBlocks *x = &d->scaled;
    EmitLoop row = {0}, block = {0};
    LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1), count = emit_expr(e, x->count);
    emit_loop_begin(e, &row, "row", zero, rows, one, true);
    dot_bind(d, &d->m, emit_below(d->e, "row", d->m.size, LLVMBuildAdd(e->b, d->row0, row.i, "")));
    emit_loop_begin(e, &block, "block", zero, count, one, true);
    LLVMValueRef to = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, row.i, count, ""), block.i, "");
    to = LLVMBuildMul(e->b, to, emit_i64(e, copy_bytes(d)), "");
    Expr at = expr_muli(d->p, emit_below(d->e, "block", x->count, block.i), x->size);
    to = emit_gep(e, e->i8, d->packed, to);
    if (x->digits)
        digits_copy(d, at, to);
    else
        copy_block(d, at, to);
    emit_loop_end(e, &block);
    emit_loop_end(e, &row);
}

/* --- Sums --------------------------------------------------------------------------------- */

/* One tile while its sums are made. */
typedef struct Sums {
    const DotBlockTile *t;
    LLVMValueRef *sum;           /* i32, of the block */
    LLVMValueRef left[DOT_ROWS]; /* the block in each row's copy */
} Sums;

/* Of few bits two products of bytes and a sum of several such fit 16 bits. */
static bool sums_in_16(const Dot *d) {
    return !d->e->isa->multiply_quads && d->scaled.b[0].bits <= 4;
}

/* A quad's products, added to narrow[] in 16 bits or to the sums. */
static void multiply(Dot *d, Sums *s, LLVMValueRef *narrow, const LLVMValueRef *b, int64_t offset) {
    Emit *e = d->e;
    for (uint32_t r = 0; r < s->t->rows; r++) {
        LLVMValueRef a = blocks_load_four(d, blocks_at(d, s->left[r], offset));
        for (uint32_t j = 0; j < s->t->nv; j++) {
            const uint32_t i = r * s->t->nv + j;
            if (!sums_in_16(d)) {
                s->sum[i] = blocks_add_quads(d, s->sum[i], b[j], a);
                continue;
            }
            LLVMValueRef x =
                blocks_call(d, e->isa->multiply_bytes, blocks_bytes(d, b[j]), blocks_bytes(d, a));
            narrow[i] = narrow[i] ? LLVMBuildAdd(e->b, narrow[i], x, "") : x;
        }
    }
}

static void add_narrow(Dot *d, Sums *s, LLVMValueRef *narrow) {
    Emit *e = d->e;
    LLVMValueRef one = emit_splat_n(e, LLVMConstInt(e->i16, 1, false), 2 * d->lanes);
    for (uint32_t i = 0; i < s->t->rows * s->t->nv; i++) {
        LLVMValueRef x = blocks_call(d, e->isa->multiply_pairs, narrow[i], one);
        s->sum[i] = LLVMBuildAdd(e->b, s->sum[i], x, "");
    }
}

/* Rows [at, at + n) of k, which lie `offset` bytes into the block. */
static void unit(Dot *d, Sums *s, Expr at, uint32_t n, LLVMValueRef offset) {
    Emit *e = d->e;
    const KScaled *b = &d->scaled.b[s->t->of];
    const uint32_t per = 32 / b->bits, quads = 8 / b->bits, nv = s->t->nv;
    LLVMValueRef word[DOT_MAX_NV][UNIT / 4], narrow[DOT_ROWS * DOT_MAX_NV] = {NULL};
    Sums here = *s;
    for (uint32_t r = 0; r < s->t->rows; r++) here.left[r] = emit_gep(e, e->i8, s->left[r], offset);
    for (uint32_t j = 0; j < nv; j++) {
        emit_push(e);
        blocks_bind_columns(d, s->t, j);
        for (uint32_t w = 0; w < n / per; w++) {
            emit_push(e);
            dot_bind(d, &d->kk, expr_addi(d->p, at, w * per));
            word[j][w] = emit_value_lanes(e, b->word);
            emit_pop(e);
        }
        emit_pop(e);
    }
    for (uint32_t q = 0; q < n / 4; q++) {
        LLVMValueRef v[DOT_MAX_NV];
        for (uint32_t j = 0; j < nv; j++) v[j] = blocks_quad(d, word[j][q / quads], q % quads);
        multiply(d, &here, narrow, v, 4 * (int64_t)q);
    }
    if (sums_in_16(d)) add_narrow(d, &here, narrow);
}

/* All units of a block that begins at row `at`. */
static void block_sums(Dot *d, Sums *s, Expr at) {
    Emit *e = d->e;
    const uint32_t size = d->scaled.size, n = s->t->rows * s->t->nv;
    if (size <= UNIT) {
        unit(d, s, at, size, emit_i64(e, 0));
        return;
    }
    EmitLoop l = emit_loop(e, n);
    for (uint32_t i = 0; i < n; i++) l.init[i] = s->sum[i];
    emit_loop_begin(e, &l, "unit", emit_i64(e, 0), emit_i64(e, size / UNIT), emit_i64(e, 1), true);
    for (uint32_t i = 0; i < n; i++) s->sum[i] = l.phi[i];
    Expr in_block =
        expr_muli(d->p, emit_below(d->e, "unit", expr_const(d->p, size / UNIT), l.i), UNIT);
    unit(d, s, expr_add(d->p, at, in_block), UNIT, emit_expr(e, in_block));
    for (uint32_t i = 0; i < n; i++) l.next[i] = s->sum[i];
    emit_loop_end(e, &l);
    for (uint32_t i = 0; i < n; i++) s->sum[i] = l.out[i];
}

/* What the block's sums stand for, added to the tile's. */
static void add_scaled(Dot *d, const Sums *s, Expr at, LLVMValueRef *acc) {
    Emit *e = d->e;
    const KScaled *b = &d->scaled.b[s->t->of];
    const int64_t head = d->scaled.size;
    for (uint32_t j = 0; j < s->t->nv; j++) {
        emit_push(e);
        blocks_bind_columns(d, s->t, j);
        dot_bind(d, &d->kk, at);
        LLVMValueRef scale = emit_value_lanes(e, b->scale), zero = NULL;
        if (d->scaled.zeros && b->zero) zero = emit_value_lanes(e, b->zero);
        emit_pop(e);
        for (uint32_t r = 0; r < s->t->rows; r++) {
            const uint32_t i = r * s->t->nv + j;
            LLVMValueRef x = LLVMBuildSIToFP(e->b, s->sum[i], emit_vec(e->f32, d->lanes), "");
            LLVMValueRef left = emit_load(e, e->f32, blocks_at(d, s->left[r], head), 4);
            if (zero) {
                LLVMValueRef less = emit_load(e, e->f32, blocks_at(d, s->left[r], head + 4), 4);
                x = emit_fma(e, zero, emit_splat(e, less), x);
            }
            x = LLVMBuildFMul(e->b, x, scale, "");
            acc[i] = emit_fma(e, x, emit_splat(e, left), acc[i]);
        }
    }
}

/* Where the sums of a block begin. */
static void begin_block(Dot *d, Sums *s) {
    const DotBlocks *x = &d->scaled;
    for (uint32_t r = 0; r < s->t->rows; r++) {
        LLVMValueRef start = LLVMConstNull(emit_vec(d->e->i32, d->lanes));
        if (!x->zeros && x->zero)
            start = blocks_load_four(d, blocks_at(d, s->left[r], x->size + 4));
        for (uint32_t j = 0; j < s->t->nv; j++) s->sum[r * s->t->nv + j] = start;
    }
}

void dot_block_sums(Dot *d, const DotBlockTile *t, LLVMValueRef *acc) {
    if (d->scaled.digits) {
        digits_sums(d, t, acc);
        return;
    }
    Emit *e = d->e;
    const uint32_t n = t->rows * t->nv;
    LLVMValueRef sum[DOT_ROWS * DOT_MAX_NV];
    Sums s = {.t = t, .sum = sum};
    EmitLoop l = emit_loop(e, n);
    for (uint32_t i = 0; i < n; i++) l.init[i] = LLVMConstNull(emit_vec(e->f32, d->lanes));
    emit_loop_begin(e, &l, "block", emit_i64(e, 0), emit_expr(e, d->scaled.count), emit_i64(e, 1),
                    true);
    for (uint32_t i = 0; i < n; i++) acc[i] = l.phi[i];
    Expr at = expr_muli(d->p, emit_below(d->e, "block", d->scaled.count, l.i), d->scaled.size);
    blocks_find(d, t, l.i, copy_bytes(d), s.left);
    begin_block(d, &s);
    block_sums(d, &s, at);
    add_scaled(d, &s, at, acc);
    for (uint32_t i = 0; i < n; i++) l.next[i] = acc[i];
    emit_loop_end(e, &l);
    for (uint32_t i = 0; i < n; i++) acc[i] = l.out[i];
}
