#include "runtime/cpu/pool.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE           64
#define SPINS_PER_LOOK 64              /* pauses between looks at the clock */
#define SELFISH_NS     UINT64_C(50000) /* then spinning gives way to whoever wants the core */

/* A worker's mailbox on its own cache line: `call` counts the jobs it was given. On another one
 * `taken`: pieces of its range that somebody has begun with, or more. */
typedef struct Worker {
    _Alignas(LINE) _Atomic uint32_t call;
    _Atomic uint32_t asleep;
    uint32_t number;
    Pool *pool;
    pthread_t thread;
    _Alignas(LINE) _Atomic uint32_t taken;
} Worker;

struct Pool {
    _Alignas(LINE) _Atomic uint32_t pending; /* workers that have not finished the job */
    _Atomic uint32_t waiting;                /* the caller sleeps on pending */
    _Alignas(LINE) atomic_flag busy;
    PoolJob job; /* fn NULL: end the thread */
    uint64_t spin_ns;
    uint32_t threads;                /* the caller's included */
    Worker worker[POOL_MAX_THREADS]; /* [0] is the caller: only its range is used */
};

static void futex_wait(_Atomic uint32_t *at, uint32_t value) {
    syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *at) {
    syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Waits until *at differs from `old` (equal == false) or equals it, spinning first; `asleep` tells
 * the other side that a wake is needed. The flag is set before the value is looked at again, and
 * the other side changes the value before it looks at the flag, both sequentially consistent: one
 * of the two always notices the other. */
static uint32_t wait_change(_Atomic uint32_t *at, uint32_t old, bool equal,
                            _Atomic uint32_t *asleep, uint64_t spin_ns) {
    uint32_t v;
    uint64_t start = 0;
    for (uint32_t spins = 1;; spins++) {
        v = atomic_load_explicit(at, memory_order_acquire);
        if ((v == old) == equal) return v;
        relax();
        if (spins % SPINS_PER_LOOK) continue;
        uint64_t t = now_ns();
        if (!start) start = t;
        if (t - start >= spin_ns) break;
        if (t - start >= SELFISH_NS) sched_yield();
    }
    for (;;) {
        atomic_store(asleep, 1);
        v = atomic_load(at);
        if ((v == old) == equal) break;
        futex_wait(at, v);
    }
    atomic_store(asleep, 0);
    return v;
}

static int64_t range_start(const PoolJob *j, uint32_t i) {
    int64_t n = j->items / j->threads, rest = j->items % j->threads;
    return n * i + (i < rest ? i : rest);
}

/* Looked at before it is counted: most ranges are empty when others come for them. */
static uint32_t next_piece(Worker *w, uint32_t pieces) {
    if (atomic_load_explicit(&w->taken, memory_order_relaxed) >= pieces) return pieces;
    return atomic_fetch_add_explicit(&w->taken, 1, memory_order_relaxed);
}

/* What is left of range i, piece by piece, by thread number `me`. */
static void work_at(Pool *p, uint32_t i, uint32_t me) {
    const PoolJob *j = &p->job;
    int64_t end = range_start(j, i + 1), n = end - range_start(j, i);
    for (uint32_t k; (k = next_piece(&p->worker[i], j->pieces)) < j->pieces;) {
        int64_t left = k + 1 == j->pieces ? 0 : n >> (k + 1);
        if (n >> k > left) j->fn(j->ctx, me, end - (n >> k), end - left);
    }
}

static void work(Pool *p, uint32_t me) {
    const uint32_t n = p->job.threads;
    for (uint32_t i = 0; i < n; i++) work_at(p, me + i < n ? me + i : me + i - n, me);
}

static void *worker_main(void *arg) {
    Worker *w = arg;
    Pool *p = w->pool;
    uint32_t seen = 0;
    for (;;) {
        seen = wait_change(&w->call, seen, false, &w->asleep, p->spin_ns);
        if (!p->job.fn) return NULL;
        work(p, w->number);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->waiting))
            futex_wake(&p->pending);
    }
}

Pool *pool_create(uint32_t spin_us) {
    Pool *p = aligned_alloc(LINE, sizeof *p);
    if (!p) return NULL;
    atomic_init(&p->pending, 0);
    atomic_init(&p->waiting, 0);
    atomic_flag_clear(&p->busy);
    p->job = (PoolJob){0};
    p->spin_ns = spin_us * UINT64_C(1000);
    p->threads = 1;
    return p;
}

static void call_worker(Worker *w) {
    atomic_fetch_add(&w->call, 1);
    if (atomic_load(&w->asleep)) futex_wake(&w->call);
}

void pool_destroy(Pool *p) {
    if (!p) return;
    p->job.fn = NULL;
    for (uint32_t i = 1; i < p->threads; i++) call_worker(&p->worker[i]);
    for (uint32_t i = 1; i < p->threads; i++) pthread_join(p->worker[i].thread, NULL);
    free(p);
}

/* Signals are for the program's own threads. */
static int start_worker(Worker *w) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return err;
}

bool pool_grow(Pool *p, uint32_t threads) {
    while (p->threads < threads && p->threads < POOL_MAX_THREADS) {
        Worker *w = &p->worker[p->threads];
        atomic_init(&w->call, 0);
        atomic_init(&w->asleep, 0);
        w->number = p->threads;
        w->pool = p;
        if (start_worker(w) != 0) return false;
        p->threads++;
    }
    return true;
}

bool pool_try_acquire(Pool *p) {
    return !atomic_flag_test_and_set_explicit(&p->busy, memory_order_acquire);
}

void pool_release(Pool *p) {
    atomic_flag_clear_explicit(&p->busy, memory_order_release);
}

void pool_run(Pool *p, const PoolJob *job) {
    p->job = *job;
    for (uint32_t i = 0; i < job->threads; i++)
        atomic_store_explicit(&p->worker[i].taken, 0, memory_order_relaxed);
    atomic_store_explicit(&p->pending, job->threads - 1, memory_order_relaxed);
    for (uint32_t i = 1; i < job->threads; i++) call_worker(&p->worker[i]);
    work(p, 0);
    wait_change(&p->pending, 0, true, &p->waiting, p->spin_ns);
}
