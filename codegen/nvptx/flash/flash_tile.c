/* Where the barriers and the tiles of attention are. */
#include "codegen/nvptx/flash/flash.h"

HV flash_bar(Flash *x, FlashBar bar, HV stage) {
    uint32_t first = x->at_bar + (uint32_t)bar * HOP_BARRIER_BYTES;
    if (!stage) return hop_addi(x->e, x->shared, first);
    return hop_addi(x->e, hop_add(x->e, x->shared, hop_shl(x->e, stage, 3)), first);
}

HV flash_slot(Flash *x, HV stage) {
    HV at = hop_add(x->e, x->shared, hop_shl(x->e, stage, 2));
    return hop_addi(x->e, at, x->at_bar + BAR_COUNT * HOP_BARRIER_BYTES);
}

HV flash_stage(Flash *x, HV block) {
    return hop_andi(x->e, block, x->t->stages - 1);
}

HV flash_parity(Flash *x, HV block) {
    return hop_andi(x->e, hop_shr(x->e, block, __builtin_ctz(x->t->stages)), 1);
}

static HV pick(Emit *e, const char *name, HV a, HV b) {
    HV v[2] = {a, b};
    return emit_intrinsic(e, name, e->i32, v, 2);
}

static HV blocks_of(Flash *x, HV keys) {
    return hop_shr(x->e, keys, __builtin_ctz(x->t->keys));
}

HV flash_blocks(Flash *x, HV row, uint32_t rows, HV *whole) {
    Emit *e = x->e;
    HV end = x->nkeys, all = x->nkeys;
    if (x->p->causal) {
        end = pick(e, "llvm.smin", hop_addi(e, row, rows), x->nqueries);
        end = pick(e, "llvm.smin", hop_add(e, end, x->shift), x->nkeys);
        all = pick(e, "llvm.smin", hop_addi(e, hop_add(e, row, x->shift), 1), x->nkeys);
        all = pick(e, "llvm.smax", all, hop_i(e, 0));
    }
    HV past = LLVMBuildICmp(e->b, LLVMIntSGE, row, x->nqueries, "");
    end = LLVMBuildSelect(e->b, past, hop_i(e, 1), pick(e, "llvm.smax", end, hop_i(e, 1)), "");
    if (whole) *whole = blocks_of(x, all);
    return blocks_of(x, hop_addi(e, end, x->t->keys - 1));
}

FlashOrder flash_order(Emit *e, HV tile, HV row_tiles, HV heads, int64_t band, bool ahead) {
    HV all = hop_muli(e, row_tiles, band);
    HV g = LLVMBuildUDiv(e->b, tile, all, ""), first = hop_muli(e, g, band);
    HV rest = LLVMBuildSub(e->b, tile, LLVMBuildMul(e->b, g, all, ""), "");
    HV wide = pick(e, "llvm.umin", LLVMBuildSub(e->b, heads, first, ""), hop_i(e, band));
    HV row = LLVMBuildUDiv(e->b, rest, wide, "");
    HV head = LLVMBuildSub(e->b, rest, LLVMBuildMul(e->b, row, wide, ""), "");
    if (ahead) row = LLVMBuildSub(e->b, hop_addi(e, row_tiles, -1), row, "");
    return (FlashOrder){row, hop_add(e, first, head)};
}

FlashPlace flash_place(Flash *x, HV tile) {
    const FlashOrder o = flash_order(x->e, tile, x->row_tiles, x->heads, x->t->heads, x->p->causal);
    FlashPlace at = {.row = hop_muli(x->e, o.row, x->rows), .head = o.head};
    HV cuts = hop_i(x->e, x->p->cuts), cut = LLVMBuildURem(x->e->b, o.head, cuts, "");
    at.column = hop_muli(x->e, cut, x->p->dv);
    if (x->p->cuts > 1) at.head = LLVMBuildUDiv(x->e->b, o.head, cuts, "");
    at.blocks = flash_blocks(x, at.row, x->rows, NULL);
    return at;
}

Expr flash_position(Emit *e, const char *name, Expr extent, HV at, bool clamp) {
    at = LLVMBuildSExt(e->b, at, e->i64, "");
    return clamp ? gpu_kept_inside(e, name, extent, at) : emit_position(e, name, extent, at);
}
