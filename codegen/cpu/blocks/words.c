/* What lies in the words of the right operand, and products of four bytes. */
#include "codegen/cpu/blocks/blocks.h"

LLVMValueRef blocks_at(Dot *d, LLVMValueRef base, int64_t offset) {
    return emit_gep(d->e, d->e->i8, base, emit_i64(d->e, offset));
}

void blocks_find(Dot *d, const DotBlockTile *t, LLVMValueRef block, uint32_t bytes,
                 LLVMValueRef *left) {
    Emit *e = d->e;
    LLVMValueRef count = emit_expr(e, d->scaled.count), step = emit_i64(e, bytes);
    LLVMValueRef at = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, t->row, count, ""), block, "");
    LLVMValueRef first = emit_gep(e, e->i8, d->packed, LLVMBuildMul(e->b, at, step, ""));
    LLVMValueRef row = LLVMBuildMul(e->b, count, step, "");
    for (uint32_t r = 0; r < t->rows; r++)
        left[r] = emit_gep(e, e->i8, first, LLVMBuildMul(e->b, row, emit_i64(e, r), ""));
}

bool blocks_one_zero(const Dot *d, int64_t *zero) {
    const KOp *ops = d->k->ops;
    const KVal first = d->scaled.b[0].zero;
    *zero = first ? (int64_t)ops[first].imm.f : 0;
    for (uint32_t i = 0; i < d->t->nacc; i++) {
        const KVal v = d->scaled.b[i].zero;
        if (!v != !first) return false;
        if (v && (ops[v].op != K_konst || ops[v].imm.f != (double)*zero)) return false;
    }
    return true;
}

LLVMValueRef blocks_in_quads(Dot *d, LLVMValueRef v) {
    const uint32_t bits = d->scaled.b[0].bits, per = 32 / bits, quads = 8 / bits;
    LLVMValueRef lane[BLOCKS_COPIED];
    for (uint32_t i = 0; i < BLOCKS_COPIED; i++) {
        const uint32_t in_word = i % per, at = i - in_word + in_word % 4 * quads + in_word / 4;
        lane[i] = LLVMConstInt(d->e->i32, at, false);
    }
    return LLVMBuildShuffleVector(d->e->b, v, v, LLVMConstVector(lane, BLOCKS_COPIED), "");
}

LLVMValueRef blocks_load_four(Dot *d, LLVMValueRef at) {
    return emit_splat(d->e, emit_load(d->e, d->e->i32, at, 4));
}

void blocks_bind_columns(Dot *d, const DotBlockTile *t, uint32_t j) {
    dot_bind_columns(d, expr_addi(d->p, d->n0, (int64_t)(j * d->lanes)), t->mask[j]);
}

LLVMValueRef blocks_quad(Dot *d, LLVMValueRef word, uint32_t at) {
    Emit *e = d->e;
    const uint32_t bits = d->scaled.b[0].bits;
    const int64_t mask = 0x01010101 * ((INT64_C(1) << bits) - 1);
    LLVMValueRef by = emit_splat(e, LLVMConstInt(e->i32, (uint64_t)at * bits, false));
    if (at) word = LLVMBuildLShr(e->b, word, by, "");
    return bits == 8 ? word : LLVMBuildAnd(e->b, word, emit_splat(e, emit_i(e, e->i32, mask)), "");
}

static LLVMTypeRef pairs(Dot *d) {
    return emit_vec(d->e->i16, 2 * d->lanes);
}

LLVMValueRef blocks_bytes(Dot *d, LLVMValueRef x) {
    return LLVMBuildBitCast(d->e->b, x, emit_vec(d->e->i8, 4 * d->lanes), "");
}

LLVMValueRef blocks_call(Dot *d, const char *name, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef v[2] = {x, y};
    return emit_intrinsic(d->e, name, NULL, v, 2);
}

/* Even or odd bytes, with their sign or without one, as 16 bits each. */
static LLVMValueRef half_bytes(Dot *d, LLVMValueRef x, bool odd, bool sign) {
    Emit *e = d->e;
    LLVMValueRef eight = emit_splat_n(e, LLVMConstInt(e->i16, 8, false), 2 * d->lanes);
    x = LLVMBuildBitCast(e->b, x, pairs(d), "");
    if (!odd) x = LLVMBuildShl(e->b, x, eight, "");
    return sign ? LLVMBuildAShr(e->b, x, eight, "") : LLVMBuildLShr(e->b, x, eight, "");
}

LLVMValueRef blocks_add_quads(Dot *d, LLVMValueRef acc, LLVMValueRef b, LLVMValueRef a) {
    Emit *e = d->e;
    if (e->isa->multiply_quads) {
        LLVMValueRef x[3] = {acc, blocks_bytes(d, b), blocks_bytes(d, a)};
        return emit_intrinsic(e, e->isa->multiply_quads, NULL, x, 3);
    }
    LLVMTypeRef sums = emit_vec(e->i32, d->lanes);
    for (int odd = 0; odd < 2; odd++) {
        LLVMValueRef s = blocks_call(d, e->isa->multiply_pairs, half_bytes(d, b, odd, false),
                                     half_bytes(d, a, odd, true));
        acc = LLVMBuildAdd(e->b, acc, LLVMBuildBitCast(e->b, s, sums, ""), "");
    }
    return acc;
}
