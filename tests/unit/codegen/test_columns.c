/* Folds over outer axes: the rows of a block meet in shared memory that the kernel declares, of
 * which CUDA gives a block no more than 48 KiB. What a block alone has read is given up in the
 * cache if it is nobody's behind the kernel. Few rows have small blocks. */
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

/* 66 rows that another kernel has stored, or the caller, and that one reads once more, or none. */
typedef struct Read {
    const char *name;
    BufKind kind;
    uint32_t last; /* step */
    int columns, stride, discards;
    uint32_t threads;
} Read;
static const Read reads[] = {
    {"never again", BUF_temp, 0, 8192, 8192, 1, 128},
    {"columns that end inside of a line", BUF_temp, 0, 8196, 8196, 1, 128},
    {"again", BUF_temp, 1, 8192, 8192, 0, 128},
    {"the caller's", BUF_input, 0, 8192, 8192, 0, 128},
    {"rows that overlap", BUF_temp, 0, 8192, 8160, 0, 128},
    {"half a line of a block", BUF_temp, 0, 1024, 1024, 0, 512},
};

static const char *read_text(const Read *r, Arena *a) {
    return arena_printf(a,
                        "kernel k red i=%d ~r=66\nparam 0 f32[%d]\nparam 1 f32[%d] written\n"
                        "%%1 f32 load p0[r*%d + i]\n%%2 f32 reduce sum r %%1\n"
                        "%%3 f32 store p1[i] %%2\nend\n",
                        r->columns, 66 * r->columns, r->columns, r->stride);
}

static void check_read(const Read *r, Built *b) {
    Schedule s = {.exprs = b->p};
    static uint32_t bufs[2] = {0, 1};
    vec_push(b->a, &s.buffers, ((SBuffer){.kind = r->kind, .dtype = DT_f32, .last = r->last}));
    vec_push(b->a, &s.buffers, ((SBuffer){.kind = BUF_output, .dtype = DT_f32, .last = 1}));
    vec_push(b->a, &s.steps, ((SStep){.kind = STEP_kernel, .kernel = b->k, .bufs = bufs}));
    const CodeKernel *ck = built_scheduled(b, &s, target_for(PLAN_cuda));
    CHECK_EQ_I(ck->block[0], r->threads);
    CHECK_EQ_I(built_count(built_text(b), "discard.global.L2"), r->discards);
}

TEST_MAIN {
    BUILT_EACH(reads, read_text, check_read)
    BUILT_EACH(cases, kernel_text, check)
}
