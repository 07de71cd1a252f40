/* Both work bit by bit on lane numbers, in log2(n) rounds. */
#include "codegen/emit/shuffle.h"

#define MAX_LANES 64

/* Of two rows whose numbers differ in `bit`: what row 0 and row 1 are after the numbers of rows and
 * lanes have exchanged that bit. */
typedef struct Exchange {
    LLVMValueRef zero, one;
} Exchange;

static Exchange exchange(Emit *e, uint32_t bit, uint32_t n) {
    LLVMValueRef zero[MAX_LANES], one[MAX_LANES];
    GC_ASSERT(n <= MAX_LANES);
    for (uint32_t i = 0; i < n; i++) {
        zero[i] = LLVMConstInt(e->i32, i & bit ? n + i - bit : i, false);
        one[i] = LLVMConstInt(e->i32, i & bit ? n + i : i + bit, false);
    }
    return (Exchange){LLVMConstVector(zero, n), LLVMConstVector(one, n)};
}

void shuffle_transpose(Emit *e, LLVMValueRef *v, uint32_t n) {
    for (uint32_t bit = 1; bit < n; bit *= 2) {
        Exchange x = exchange(e, bit, n);
        for (uint32_t i = 0; i < n; i++) {
            if (i & bit) continue;
            LLVMValueRef a = v[i], b = v[i + bit];
            v[i] = LLVMBuildShuffleVector(e->b, a, b, x.zero, "");
            v[i + bit] = LLVMBuildShuffleVector(e->b, a, b, x.one, "");
        }
    }
}

LLVMValueRef shuffle_sums(Emit *e, LLVMValueRef *v, uint32_t n) {
    for (uint32_t bit = 1; bit < n; bit *= 2) {
        Exchange x = exchange(e, bit, n);
        for (uint32_t i = 0; i < n; i += 2 * bit) {
            LLVMValueRef a = LLVMBuildShuffleVector(e->b, v[i], v[i + bit], x.zero, "");
            LLVMValueRef b = LLVMBuildShuffleVector(e->b, v[i], v[i + bit], x.one, "");
            v[i] = LLVMBuildFAdd(e->b, a, b, "");
        }
    }
    return v[0];
}
