/* Long rows in turns: what a row leaves of shared memory holds chunks of the rows behind, and the
 * blocks that share a row exchange its maximum and the sum under it at once. They claim their rows.
 */
#include "tests/unit/codegen/tensor_cores.h"
#include <string.h>

typedef struct Long {
    const char *name;
    int columns;
    uint32_t cluster, least, most; /* bytes of shared memory */
} Long;

static const Long rows[] = {
    {"half a row leaves room", 128256, 2, 200 * 1024, 227 * 1024},
    {"half a row fills it", 229000, 2, 220 * 1024, 227 * 1024},
};

static const char *kernel_text(const Long *t, Arena *a) {
    int n = t->columns;
    return arena_printf(a,
                        "kernel k per i=4096 ~j=%d\nparam 0 bf16[4096*%d]\n"
                        "param 1 bf16[4096*%d] written\n%%1 bf16 load p0[i*%d + j]\n"
                        "%%2 f32 cast %%1\n%%3 f32 reduce max j %%2\n%%4 f32 sub %%2, %%3\n"
                        "%%5 f32 exp %%4\n%%6 f32 reduce sum j %%5\n%%7 f32 div %%5, %%6\n"
                        "%%8 bf16 cast %%7\n%%9 bf16 store p1[i*%d + j] %%8\nend\n",
                        n, n, n, n, n);
}

static void check(const Long *t, Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    const char *text = built_text(b);
    CHECK_EQ_I(ck->cluster[0], t->cluster);
    CHECK(ck->shared_bytes >= t->least && ck->shared_bytes <= t->most);
    /* Both values, to the cluster; the row that is claimed, to each of two blocks. */
    CHECK_EQ_I(built_count(text, "st.async"), 2 + 2);
    /* For whole chunks, the rest, both values; for the row behind, where chunks of it are asked for
     * in three places, and where it begins. */
    CHECK_EQ_I(built_count(text, "mbarrier.try_wait"), 3 + 4);
    CHECK(strstr(text, "cp.async.bulk.shared") != NULL);
    CHECK_EQ_I(built_count(text, "atom.relaxed.gpu.global.inc"), 1);
}

TEST_MAIN {
    BUILT_EACH(rows, kernel_text, check)
}
