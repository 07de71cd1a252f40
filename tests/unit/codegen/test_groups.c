/* Short rows that do not begin at whole pieces of 16 bytes: the copy engine brings the rows of a
 * block as one, and takes their results away so; what is behind the last whole piece of all is
 * moved by a thread. */
#include "tests/unit/codegen/tensor_cores.h"
#include <string.h>

typedef struct Case {
    const char *name, *type;
    int rows, columns;
    bool group, rest;
    uint32_t threads, shared;
} Case;

static const Case cases[] = {
    {"rows of odd elements", "bf16", 65536, 333, true, false, 128, 16 * 333 * 2 + 8},
    {"a group that is not whole", "bf16", 65533, 333, true, true, 128, 16 * 333 * 2 + 8},
    {"rows of halves of pieces", "bf16", 65536, 1004, true, false, 128, 4 * 1004 * 2 + 8},
    {"of f32", "f32", 65536, 333, true, false, 128, 8 * 333 * 4 + 8},
    {"a warp and a group each of its own", "bf16", 65536, 1025, true, false, 256, 8 * 1025 * 2 + 8},
    {"rows that begin in the same banks", "bf16", 65536, 257, true, false, 128, 8 * 257 * 2 + 8},
    {"rows of whole pieces", "bf16", 65536, 1000, false, false, 0, 0},
    {"too few rows", "bf16", 64, 333, false, false, 0, 0},
    {"rows too long", "bf16", 8192, 5001, false, false, 0, 0},
};

/* What a row's largest element takes from all of them. */
static const char *kernel_text(const Case *c, Arena *a) {
    const char *t = c->type;
    const int n = c->rows, m = c->columns;
    return arena_printf(
        a,
        "kernel k per i=%d ~j=%d\nparam 0 %s[%d*%d]\nparam 1 %s[%d*%d] written\n"
        "%%1 %s load p0[i*%d + j]\n%%2 f32 cast %%1\n%%3 f32 reduce max j %%2\n"
        "%%4 f32 sub %%2, %%3\n%%5 %s cast %%4\n%%6 %s store p1[i*%d + j] %%5\nend\n",
        n, m, t, n, m, t, n, m, t, m, t, t, m);
}

static void check(const Case *c, Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    const char *text = built_text(b);
    CHECK_EQ_I(built_count(text, "cp.async.bulk.shared::cluster.global") == 1, c->group);
    CHECK_EQ_I(built_count(text, "cp.async.bulk.global.shared") == 1, c->group);
    if (c->group) {
        CHECK_EQ_I(ck->block[0], c->threads);
        CHECK_EQ_I(ck->shared_bytes, c->shared);
        CHECK_EQ_I(built_count(text, "ld.global") > 0, c->rest);
        CHECK_EQ_I(built_count(text, "st.global") > 0, c->rest);
    }
}

TEST_MAIN {
    BUILT_EACH(cases, kernel_text, check)
}
