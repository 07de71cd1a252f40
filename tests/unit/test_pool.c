/* The thread pool: every part runs exactly once, whether workers spin or sleep. */
#include "runtime/cpu/pool.h"
#include "test.h"
#include <time.h>

typedef struct Sum {
    long part[8];
} Sum;

static void add_one(void *ctx, uint32_t part) {
    ((Sum *)ctx)->part[part]++;
}

static void run_jobs(uint32_t spin_us, int jobs, long pause_ns) {
    Sum sum = {0};
    long want[8] = {0};
    Pool *p = pool_create(spin_us);
    CHECK(pool_grow(p, 4) && pool_try_acquire(p));
    CHECK(!pool_try_acquire(p));
    for (int i = 0; i < jobs; i++) {
        uint32_t parts = 2 + (uint32_t)i % 3;
        pool_run(p, parts, add_one, &sum);
        for (uint32_t k = 0; k < parts; k++) want[k]++;
        if (pause_ns) nanosleep(&(struct timespec){0, pause_ns}, NULL);
    }
    pool_release(p);
    for (int k = 0; k < 8; k++) CHECK_EQ_I(sum.part[k], want[k]);
    CHECK(pool_grow(p, 7) && pool_try_acquire(p));
    pool_run(p, 7, add_one, &sum);
    CHECK_EQ_I(sum.part[6], 1);
    pool_destroy(p);
}

TEST_MAIN {
    run_jobs(1000, 2000, 0);       /* workers spin */
    run_jobs(0, 2000, 0);          /* workers sleep at once: every wake-up race */
    run_jobs(50, 300, 100 * 1000); /* workers fall asleep between jobs */
    pool_destroy(NULL);
}
