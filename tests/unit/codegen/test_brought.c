/* Rows in registers that the copy engine brings: one request brings a row, one takes its results
 * away, what all rows read alike is on its way before the row is waited for. */
#include "tests/unit/codegen/tensor_cores.h"
#include <string.h>

typedef struct Case {
    const char *name, *type;
    int rows, columns;
    int brought, left; /* requests of the copy engine, for rows and for results */
    uint32_t threads, shared;
} Case;

static const Case cases[] = {
    {"a whole number of vectors for each thread", "f32", 8192, 4096, 1, 1, 256, 4096 * 4 + 8},
    {"threads idle in the last round", "f32", 8192, 3000, 1, 1, 192, 3000 * 4 + 8},
    {"rows inside of sectors", "f32", 8192, 3500, 0, 0, 0, 0},
    {"and many threads idle", "f32", 8192, 2500, 1, 1, 160, 2500 * 4 + 8},
    {"a large block of which few threads idle", "f32", 8192, 4000, 0, 0, 0, 0},
    {"and of which many do", "f32", 8192, 6504, 1, 1, 416, 6504 * 4 + 8},
    {"rows of odd bytes", "f32", 8192, 4098, 0, 0, 0, 0},
    {"rows too few to keep the GPU busy", "f32", 16, 4096, 0, 0, 0, 0},
    {"rows of a warp", "f32", 65536, 384, 0, 0, 0, 0},
    {"16 bits", "bf16", 8192, 4096, 0, 0, 0, 0},
};

/* Layer norm. */
static const char *kernel_text(const Case *c, Arena *a) {
    const char *t = c->type;
    return arena_printf(a,
                        "kernel k per i=%d ~j=%d\nparam 0 %s[%d]\nparam 1 %s[%d]\n"
                        "param 2 %s[%d*%d]\nparam 3 %s[%d*%d] written\n"
                        "%%1 %s load p0[j]\n%%2 f32 cast %%1\n%%3 %s load p1[j]\n%%4 f32 cast %%3\n"
                        "%%5 %s load p2[i*%d + j]\n%%6 f32 cast %%5\n%%7 f32 reduce sum j %%6\n"
                        "%%8 f32 const 0.001\n%%9 f32 mul %%7, %%8\n%%10 f32 sub %%6, %%9\n"
                        "%%11 f32 mul %%10, %%10\n%%12 f32 reduce sum j %%11\n"
                        "%%13 f32 rsqrt %%12\n%%14 f32 mul %%10, %%13\n%%15 f32 mul %%14, %%2\n"
                        "%%16 f32 add %%15, %%4\n%%17 %s cast %%16\n"
                        "%%18 %s store p3[i*%d + j] %%17\nend\n",
                        c->rows, c->columns, t, c->columns, t, c->columns, t, c->rows, c->columns,
                        t, c->rows, c->columns, t, t, t, c->columns, t, t, c->columns);
}

/* Loads of `what` in front of that text. */
static int count_before(const char *text, const char *what, const char *end, Arena *a) {
    const char *at = strstr(text, end);
    return at ? built_count(arena_printf(a, "%.*s", (int)(at - text), text), what) : -1;
}

static void check(const Case *c, Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    const char *text = built_text(b);
    CHECK_EQ_I(built_count(text, "cp.async.bulk.shared::cluster.global"), c->brought);
    CHECK_EQ_I(built_count(text, "cp.async.bulk.global.shared"), c->left);
    CHECK_EQ_I(ck->shared_bytes, c->shared);
    if (c->brought) {
        CHECK_EQ_I(ck->block[0], c->threads);
        /* Four vectors of two weights; none of the row itself, and no result by a thread. */
        CHECK_EQ_I(built_count(text, "ld.global"), 8);
        CHECK_EQ_I(count_before(text, "ld.global", "mbarrier.try_wait", b->a), 8);
        CHECK_EQ_I(built_count(text, "st.global"), 0);
    }
}

TEST_MAIN {
    BUILT_EACH(cases, kernel_text, check)
}
