/* Threads that wait for work by spinning for a while, then sleeping.
 *
 * Joining a spinning worker costs about 0.1 us, waking a sleeping one 30 us and more, and kernels
 * of one run follow each other within microseconds: so workers spin after each job. A pool serves
 * one caller at a time; who does not get it works alone, which keeps many sessions from asking for
 * more cores than there are.
 *
 * A job's items are cut into a range for each thread, and each range into pieces that get smaller:
 * half of it, half of the rest and so on. Who is through with its own range takes what is left of
 * others', so that a thread that the system or the core's other half slows down keeps nobody
 * waiting for longer than its last piece, and one that does not come at all (it is being woken, or
 * another process has its core) for no time: a job ends with its last item. Items do not depend on
 * each other nor on who computes them: results do not depend on timing. */
#ifndef RUNTIME_CPU_POOL_H
#define RUNTIME_CPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define POOL_MAX_THREADS 256u
#define POOL_MAX_PIECES  6u /* of a range: the last two are a 32nd of it */

typedef struct Pool Pool;
typedef void PoolFn(void *ctx, uint32_t thread, int64_t begin, int64_t end);

Pool *pool_create(uint32_t spin_us); /* no workers yet; NULL: out of memory */
void pool_destroy(Pool *p);          /* NULL is allowed */
/* Makes sure of `threads` threads, the caller's included; false if the system gives none. Calls
 * must not overlap each other, but may overlap pool_run. */
bool pool_grow(Pool *p, uint32_t threads);
bool pool_try_acquire(Pool *p);
void pool_release(Pool *p);
typedef struct PoolJob {
    PoolFn *fn;
    void *ctx;
    int64_t items;
    uint32_t threads, pieces; /* threads <= grown to; pieces of a range <= POOL_MAX_PIECES */
} PoolJob;

/* Runs fn(ctx, thread, begin, end) for ranges that together are [0, items), thread 0 being the
 * caller, and waits for all. The caller has acquired the pool. */
void pool_run(Pool *p, const PoolJob *job);

#endif
