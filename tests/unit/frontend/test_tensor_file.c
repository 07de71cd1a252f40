/* Numbers drawn for inputs that no file gives: the same from one seed, whoever draws which. */
#include "frontend/driver/tensors/tensor_file.h"
#include "runtime/base/dtype.h"
#include "tests/unit/test.h"

enum { COUNT = 5 * (1 << 16) + 7, GUARD = 64 }; /* parts of several threads, the last one longer */

static uint8_t *drawn(DType t, uint64_t n, uint64_t stream, uint32_t threads) {
    const size_t bytes = n * dtype_bytes(t);
    uint8_t *p = malloc(bytes + GUARD);
    EvalTensor x = {.dtype = t, .rank = 1, .dim = {(int64_t)n}, .data = p};
    memset(p, 0xa5, bytes + GUARD);
    tensor_fill_random(&x, 7, stream, 96, threads);
    for (size_t i = 0; i < GUARD; i++) CHECK_EQ_I(p[bytes + i], 0xa5);
    return p;
}

static bool same(DType t, uint64_t n, uint32_t threads) {
    uint8_t *a = drawn(t, n, 3, 1), *b = drawn(t, n, 3, threads);
    bool ok = memcmp(a, b, n * dtype_bytes(t)) == 0;
    free(a), free(b);
    return ok;
}

static void threads_draw_the_same(void) {
    static const DType types[] = {DT_f64, DT_f32, DT_f16, DT_bf16, DT_i64, DT_u8, DT_bool};
    static const uint64_t counts[] = {0, 1, 1 << 16, (1 << 17) - 1, COUNT};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            CHECK(same(types[i], counts[k], 3) && same(types[i], counts[k], 1000));
}

/* N(0, 1), to five standard errors; another stream gives others. */
static void floats_are_normal(void) {
    float *x = (float *)drawn(DT_f32, COUNT, 1, 3), *y = (float *)drawn(DT_f32, COUNT, 2, 3);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < COUNT; i++) sum += x[i], squares += (double)x[i] * x[i];
    CHECK(fabs(sum / COUNT) < 5 / sqrt(COUNT));
    CHECK(fabs(squares / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    CHECK(memcmp(x, y, COUNT * sizeof *x) != 0);
    free(x), free(y);
}

static void integers_are_in_range(void) {
    int64_t *x = (int64_t *)drawn(DT_i64, COUNT, 1, 3), lo = 96, hi = 0;
    for (size_t i = 0; i < COUNT; i++) lo = x[i] < lo ? x[i] : lo, hi = x[i] > hi ? x[i] : hi;
    CHECK_EQ_I(lo, 0);
    CHECK_EQ_I(hi, 96);
    free(x);
}

TEST_MAIN {
    threads_draw_the_same();
    floats_are_normal();
    integers_are_in_range();
}
