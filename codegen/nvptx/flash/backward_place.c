/* Where the roles of a gradient of attention meet: barriers, stages, and the blocks of a tile. */
#include "codegen/nvptx/flash/backward.h"

HV back_bar(Back *x, BackBar bar, HV stage) {
    uint32_t first = x->at_bar + (uint32_t)bar * HOP_BARRIER_BYTES;
    if (!stage) return hop_addi(x->e, x->shared, first);
    return hop_addi(x->e, hop_add(x->e, x->shared, hop_shl(x->e, stage, 3)), first);
}

HV back_stage(Back *x, HV block) {
    return hop_andi(x->e, block, x->stages - 1);
}

HV back_parity(Back *x, HV block) {
    return hop_andi(x->e, hop_shr(x->e, block, __builtin_ctz(x->stages)), 1);
}

static HV pick(Emit *e, const char *name, HV a, HV b) {
    HV v[2] = {a, b};
    return emit_intrinsic(e, name, e->i32, v, 2);
}

/* Blocks that any of the tile's rows meets, at least one. */
static void find_blocks(Back *x, BackPlace *at) {
    Emit *e = x->e;
    HV begin = hop_i(e, 0), end = x->ncolumns;
    HV last = LLVMBuildSub(e->b, x->ncolumns, hop_i(e, 1), "");
    if (x->behind) {
        begin = pick(e, "llvm.smax", begin, LLVMBuildSub(e->b, at->row, x->behind, ""));
        begin = pick(e, "llvm.smin", begin, last);
    }
    if (x->ahead) {
        end = pick(e, "llvm.smin", end, hop_add(e, hop_addi(e, at->row, x->rows), x->ahead));
        end = pick(e, "llvm.smax", end, hop_addi(e, begin, 1));
    }
    at->first = hop_shr(e, begin, __builtin_ctz(BACK_BLOCK));
    end = hop_shr(e, hop_addi(e, end, BACK_BLOCK - 1), __builtin_ctz(BACK_BLOCK));
    at->blocks = LLVMBuildSub(e->b, end, at->first, "");
}

BackPlace back_place(Back *x, HV tile) {
    const FlashOrder o = flash_order(x->e, tile, x->row_tiles, x->heads, x->t->heads, x->ahead);
    BackPlace at = {.row = hop_muli(x->e, o.row, x->rows), .head = o.head};
    find_blocks(x, &at);
    return at;
}
