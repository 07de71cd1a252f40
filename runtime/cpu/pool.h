/* Threads that wait for work by spinning for a while, then sleeping.
 *
 * Joining a spinning worker costs about 0.1 us, waking a sleeping one 30 us and more, and kernels
 * of one run follow each other within microseconds: so workers spin after each job. A pool serves
 * one caller at a time; who does not get it works alone, which keeps many sessions from asking for
 * more cores than there are. Parts are fixed ranges, so results do not depend on timing. */
#ifndef RUNTIME_CPU_POOL_H
#define RUNTIME_CPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define POOL_MAX_THREADS 256u

typedef struct Pool Pool;
typedef void PoolFn(void *ctx, uint32_t part);

Pool *pool_create(uint32_t spin_us); /* no workers yet; NULL: out of memory */
void pool_destroy(Pool *p);          /* NULL is allowed */
/* Makes sure of `threads` threads, the caller's included; false if the system gives none. Calls
 * must not overlap each other, but may overlap pool_run. */
bool pool_grow(Pool *p, uint32_t threads);
bool pool_try_acquire(Pool *p);
void pool_release(Pool *p);
/* Runs fn(ctx, part) for parts 0..parts-1, part 0 on the calling thread, and waits for all. The
 * caller has acquired the pool; parts <= threads grown to. */
void pool_run(Pool *p, uint32_t parts, PoolFn *fn, void *ctx);

#endif
