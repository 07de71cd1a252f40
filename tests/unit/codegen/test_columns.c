/* Folds over outer axes: the rows of a block meet in shared memory that the kernel declares, of
 * which CUDA gives a block no more than 48 KiB. */
#include "tests/unit/codegen/tensor_cores.h"
#include <stdlib.h>

typedef struct Case {
    const char *name;
    int rows, columns, folds; /* that meet at once */
    uint32_t threads;
    int shared;
} Case;

/* Rows of 1001 columns begin at any element, so that each has room for a vector in front of it: the
 * narrower a block's columns are, the more rows it has. */
static const Case cases[] = {
    {"whole vectors", 100, 1024, 5, 512, 5 * 16 * (4 * 4) * 4},
    {"shifted vectors, as narrow as any", 100, 1001, 4, 512, 4 * 128 * (4 * 4 + 4) * 4},
    {"wider, where rows would not fit", 100, 1001, 5, 512, 5 * 64 * (8 * 4 + 4) * 4},
    {"half of the threads", 100, 1001, 6, 256, 6 * 64 * (4 * 4 + 4) * 4},
};
enum { MOST_STATIC = 48 << 10 };

/* The sum of some folds of one load, its square and its double. */
static const char *kernel_text(const Case *c, Arena *a) {
    static const char *const folds[] = {"sum r %1",  "max r %1", "min r %1",
                                        "prod r %1", "sum r %2", "sum r %3"};
    const int m = c->columns, first = 4;
    int last = first, v = first + c->folds;
    const char *text = arena_printf(a,
                                    "kernel k per i=%d ~r=%d\nparam 0 f32[%d*%d]\n"
                                    "param 1 f32[%d] written\n%%1 f32 load p0[r*%d + i]\n"
                                    "%%2 f32 mul %%1, %%1\n%%3 f32 add %%1, %%1\n",
                                    m, c->rows, c->rows, m, m, m);
    for (int i = 0; i < c->folds; i++)
        text = arena_printf(a, "%s%%%d f32 reduce %s\n", text, first + i, folds[i]);
    for (int i = 1; i < c->folds; i++, last = v++)
        text = arena_printf(a, "%s%%%d f32 add %%%d, %%%d\n", text, v, last, first + i);
    return arena_printf(a, "%s%%%d f32 store p1[i] %%%d\nend\n", text, v, last);
}

/* Bytes that the kernel declares. */
static int declared(const char *text) {
    int bytes = 0;
    for (const char *p = text; (p = strstr(p, "\t.shared ")); p++)
        bytes += atoi(strchr(p, '[') + 1);
    return bytes;
}

static void check(const Case *c, Built *b) {
    const CodeKernel *ck = built_code(b, target_for(PLAN_cuda));
    CHECK_EQ_I(ck->block[0], c->threads);
    CHECK_EQ_I(declared(built_text(b)), c->shared);
    CHECK(c->shared <= MOST_STATIC);
}

TEST_MAIN {
    BUILT_EACH(cases, kernel_text, check)
}
