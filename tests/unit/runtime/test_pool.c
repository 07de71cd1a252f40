/* The thread pool: every item runs exactly once, whether workers spin or sleep, and a thread that
 * is held up holds up no more than a piece, one that is late nothing. How many threads there are by
 * default. */
#include "runtime/base/cores.h"
#include "runtime/cpu/pool.h"
#include "tests/unit/test.h"
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ITEMS 64

typedef struct Counts {
    _Atomic long item[ITEMS];
    _Atomic long done, first; /* thread 0's */
    bool held;                /* thread 1 ends its first piece behind all others */
    _Atomic long largest;     /* of that piece */
} Counts;

static void add_one(void *ctx, uint32_t thread, int64_t begin, int64_t end) {
    Counts *c = ctx;
    for (int64_t i = begin; i < end; i++) c->item[i]++;
    if (thread == 0) c->first += end - begin;
    if (thread == 1 && c->held && !c->largest) {
        c->largest = end - begin;
        time_t until = time(NULL) + 10;
        while (c->done < ITEMS - (end - begin) && time(NULL) < until) sched_yield();
    }
    c->done += end - begin;
}

static void run_jobs(uint32_t spin_us, int jobs, long pause_ns) {
    Counts c = {0};
    long want[ITEMS] = {0};
    Pool *p = pool_create(spin_us);
    CHECK(pool_grow(p, 4) && pool_try_acquire(p));
    CHECK(!pool_try_acquire(p));
    for (int i = 0; i < jobs; i++) {
        const int items = 1 + i % ITEMS;
        pool_run(p, &(PoolJob){add_one, &c, items, 2 + (uint32_t)i % 3,
                               1 + (uint32_t)i % POOL_MAX_PIECES});
        for (int k = 0; k < items; k++) want[k]++;
        if (pause_ns) nanosleep(&(struct timespec){0, pause_ns}, NULL);
    }
    pool_release(p);
    for (int k = 0; k < ITEMS; k++) CHECK_EQ_I(c.item[k], want[k]);
    CHECK(pool_grow(p, 7) && pool_try_acquire(p));
    pool_run(p, &(PoolJob){add_one, &c, ITEMS, 7, 1});
    CHECK_EQ_I(c.item[ITEMS - 1], want[ITEMS - 1] + 1);
    pool_destroy(p);
}

/* Of two ranges of 32, the held one's first piece is 16: the other thread does what is left of
 * both. */
static void run_held(void) {
    Pool *p = pool_create(1000);
    CHECK(pool_grow(p, 2) && pool_try_acquire(p));
    for (int i = 0; i < 200; i++) {
        Counts c = {.held = true};
        pool_run(p, &(PoolJob){add_one, &c, ITEMS, 2, POOL_MAX_PIECES});
        CHECK(c.largest <= ITEMS / 4);
        if (!CHECK(c.first == ITEMS - c.largest)) break;
        for (int k = 0; k < ITEMS; k++) CHECK_EQ_I(c.item[k], 1);
    }
    pool_destroy(p);
}

static void add_all(void *ctx, uint32_t thread, int64_t begin, int64_t end) {
    (void)thread;
    atomic_fetch_add((_Atomic long *)ctx, end - begin);
}

static long switches(void) {
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return u.ru_nvcsw + u.ru_nivcsw;
}

/* On one core the worker runs only when the caller gives way, which it does while it waits: it
 * need not wait for a worker that has begun with nothing. */
static void run_late(void) {
    enum { JOBS = 1000 };
    cpu_set_t all, one;
    CPU_ZERO(&one);
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    Pool *p = pool_create(1000);
    CHECK(pool_grow(p, 3) && pool_try_acquire(p));
    _Atomic long n = 0;
    long before = switches();
    for (int i = 0; i < JOBS; i++)
        pool_run(p, &(PoolJob){add_all, &n, ITEMS, 3 - (uint32_t)i % 2, 1 + (uint32_t)i % 3});
    CHECK(switches() - before < JOBS / 2);
    CHECK_EQ_I(n, JOBS * ITEMS);
    pool_destroy(p);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

/* A file below the test's folder, with the folders that it lies in. */
static void put(const char *root, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *c = path + strlen(root) + 1; (c = strchr(c, '/')); c++) {
        *c = 0;
        (void)mkdir(path, 0700);
        *c = '/';
    }
    FILE *f = fopen(path, "w");
    if (!CHECK(f)) return;
    fputs(text, f);
    fclose(f);
}

static uint32_t quota(const char *root, const char *groups) {
    char list[256];
    put(root, "groups", groups);
    snprintf(list, sizeof list, "%s/groups", root);
    return cores_of_quota(list, root);
}

static void test_cores(void) {
    char root[] = "/tmp/graphc_cores_XXXXXX", clean[64];
    if (!CHECK(mkdtemp(root))) return;
    put(root, "cpu.max", "max 100000\n");
    put(root, "pod/cpu.max", "350000 100000\n");
    put(root, "pod/a/cpu.max", "max 100000\n");
    put(root, "pod/b/cpu.max", "50000 100000\n");
    put(root, "cpu/job/cpu.cfs_quota_us", "200000\n");
    put(root, "cpu/job/cpu.cfs_period_us", "100000\n");
    put(root, "cpu/cpu.cfs_quota_us", "-1\n");
    put(root, "cpu/cpu.cfs_period_us", "100000\n");
    CHECK_EQ_I(quota(root, "0::/\n"), UINT32_MAX);
    CHECK_EQ_I(quota(root, "0::/pod/a\n"), 3); /* of the group around it */
    CHECK_EQ_I(quota(root, "0::/pod/b\n"), 1); /* less than one core */
    CHECK_EQ_I(quota(root, "0::/elsewhere/on/the/host\n"), UINT32_MAX);
    CHECK_EQ_I(quota(root, "3:cpuset:/job\n2:cpuacct:/job\n0::/\n"), UINT32_MAX);
    CHECK_EQ_I(quota(root, "3:cpuacct,cpu:/job/step\n0::/\n"), 2);
    CHECK_EQ_I(quota(root, "nonsense\n\n:\n"), UINT32_MAX);
    CHECK_EQ_I(cores_of_quota("/no/such/file", root), UINT32_MAX);
    CHECK(cores_available() >= 1);
    snprintf(clean, sizeof clean, "rm -r %s", root);
    CHECK_EQ_I(system(clean), 0);
}

static uint32_t threads_for(const char *env, uint32_t asked) {
    setenv("GRAPHC_THREADS", env, 1);
    return cores_threads(asked);
}

static void test_threads(void) {
    CHECK_EQ_I(threads_for("7", 0), 7);
    CHECK_EQ_I(threads_for("7", 3), 3);
    CHECK_EQ_I(threads_for("99999999999", 0), UINT32_MAX);
    const char *no_number[] = {"", "0", "-2", " 4", "4x", "many"};
    for (size_t i = 0; i < sizeof no_number / sizeof *no_number; i++)
        CHECK_EQ_I(threads_for(no_number[i], 0), cores_available());
    unsetenv("GRAPHC_THREADS");
    CHECK_EQ_I(cores_threads(0), cores_available());
}

TEST_MAIN {
    test_cores();
    test_threads();
    run_jobs(1000, 2000, 0);       /* workers spin */
    run_jobs(0, 2000, 0);          /* workers sleep at once: every wake-up race */
    run_jobs(50, 300, 100 * 1000); /* workers fall asleep between jobs */
    run_held();
    run_late();
    pool_destroy(NULL);
}
