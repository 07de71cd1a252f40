/* Long rows that start at any element: what lies in front of their first vector, as far as a line
 * of memory goes, and behind their last takes a thread of the block each. */
#include "tests/unit/codegen/tensor_cores.h"

typedef struct Case {
    const char *name, *type;
    int rows, columns;
    uint32_t threads, edges; /* of a block; elements that some row has in front and behind */
} Case;

static const Case cases[] = {
    {"of 16 bits", "f16", 4096, 12001, 128, 64 + 7},
    {"of 8 bits, a line of which takes as many threads as a block had", "u8", 4096, 12001, 256,
     128 + 7},
    {"few, by large blocks", "u8", 256, 12001, 512, 128 + 7},
};

static const char *kernel_text(const Case *c, Arena *a) {
    const int n = c->rows, m = c->columns;
    return arena_printf(a,
                        "kernel k per i=%d ~j=%d\nparam 0 %s[%d*%d]\nparam 1 f32[%d] written\n"
                        "%%1 %s load p0[i*%d + j]\n%%2 f32 cast %%1\n%%3 f32 reduce sum j %%2\n"
                        "%%4 f32 store p1[i] %%3\nend\n",
                        n, m, c->type, n, m, n, c->type, m);
}

static void check(const Case *c, Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    CHECK_EQ_I(ck->block[0], c->threads);
    CHECK(ck->block[0] >= c->edges);
    const char *single = c->type[0] == 'u' ? "ld.global.b8" : "ld.global.b16";
    CHECK_EQ_I(built_count(built_text(b), single), 1);
}

TEST_MAIN {
    BUILT_EACH(cases, kernel_text, check)
}
