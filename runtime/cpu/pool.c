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
#define PIECE_BITS     8               /* of `taken`: its job's number lies above them */
#define CALL_THREADS   512u            /* `call` is a job's number times this, and its threads */

/* On one cache line whether the worker sleeps, on another `taken`: pieces of its range that
 * somebody has begun with, or more, with the job's number above them. */
typedef struct Worker {
    _Alignas(LINE) _Atomic uint32_t asleep;
    uint32_t number;
    Pool *pool;
    pthread_t thread;
    _Alignas(LINE) _Atomic uint64_t taken;
} Worker;

/* A job's fields are read by workers that come late while the next one's are written: what such a
 * worker read is of no use, for it takes pieces by the job's number. A piece that was taken keeps
 * its job from ending. Fields are stored after all `taken` that were ever used have the new number,
 * and read before a piece is taken. */
typedef struct SharedJob {
    _Atomic(PoolFn *) fn;
    _Atomic(void *) ctx;
    _Atomic int64_t items;
    _Atomic uint32_t pieces;
} SharedJob;

struct Pool {
    _Alignas(LINE) _Atomic uint64_t call;   /* number of the job, and its threads: workers watch */
    _Alignas(LINE) _Atomic int64_t pending; /* items that are not done */
    _Atomic uint32_t waiting;               /* the caller sleeps until there are none */
    _Alignas(LINE) SharedJob job;           /* fn NULL: end the thread */
    atomic_flag busy;
    uint64_t spin_ns;
    uint32_t threads;                /* the caller's included */
    uint32_t most;                   /* threads of the jobs so far */
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

typedef bool Ready(void *of);

/* Waits until ready(of), spinning first; then *asleep tells the other side that a wake is needed.
 * The flag is set before readiness is looked at again, and the other side makes ready before it
 * looks at the flag, both sequentially consistent: one of the two always notices the other. Who
 * wakes clears the flag; that may hit a later wait, which looks again. */
static void wait_until(Ready *ready, void *of, _Atomic uint32_t *asleep, uint64_t spin_ns) {
    uint64_t start = 0;
    for (uint32_t spins = 1;; spins++) {
        if (ready(of)) return;
        relax();
        if (spins % SPINS_PER_LOOK) continue;
        uint64_t t = now_ns();
        if (!start) start = t;
        if (t - start >= spin_ns) break;
        if (t - start >= SELFISH_NS) sched_yield();
    }
    for (;;) {
        atomic_store(asleep, 1);
        if (ready(of)) break;
        futex_wait(asleep, 1);
    }
    atomic_store(asleep, 0);
}

static void wake(_Atomic uint32_t *asleep) {
    if (!atomic_load(asleep)) return;
    atomic_store(asleep, 0);
    futex_wake(asleep);
}

/* What a thread knows of the job that it works at. */
typedef struct Work {
    PoolJob job;
    uint64_t number;
} Work;

static int64_t range_start(const PoolJob *j, uint32_t i) {
    int64_t n = j->items / j->threads, rest = j->items % j->threads;
    return n * i + (i < rest ? i : rest);
}

/* The next piece of the worker's range; j->pieces: there is none, or the job is over. Looked at
 * before it is taken: most ranges are empty when others come for them. */
static uint32_t next_piece(Worker *w, const Work *x) {
    const uint64_t none = x->number << PIECE_BITS | x->job.pieces;
    uint64_t at = atomic_load_explicit(&w->taken, memory_order_relaxed);
    while (at < none)
        if (atomic_compare_exchange_weak(&w->taken, &at, at + 1))
            return (uint32_t)(at & ((1u << PIECE_BITS) - 1));
    return x->job.pieces;
}

/* What is left of range i, piece by piece, by thread number `me`. */
static void work_at(Pool *p, const Work *x, uint32_t i, uint32_t me) {
    const PoolJob *j = &x->job;
    int64_t end = range_start(j, i + 1), n = end - range_start(j, i), done = 0;
    for (uint32_t k; (k = next_piece(&p->worker[i], x)) < j->pieces;) {
        int64_t left = k + 1 == j->pieces ? 0 : n >> (k + 1);
        if (n >> k > left) j->fn(j->ctx, me, end - (n >> k), end - left);
        done += (n >> k) - left;
    }
    if (done && atomic_fetch_sub(&p->pending, done) == done) wake(&p->waiting);
}

static void work(Pool *p, const Work *x, uint32_t me) {
    const uint32_t n = x->job.threads;
    for (uint32_t i = 0; i < n; i++) work_at(p, x, me + i < n ? me + i : me + i - n, me);
}

typedef struct Call {
    Worker *to;
    uint64_t seen, now;
} Call;

/* A job for the worker: others have fewer threads. */
static bool is_called(void *of) {
    Call *c = of;
    c->now = atomic_load(&c->to->pool->call);
    if (c->now == c->seen) return false;
    c->seen = c->now;
    return c->now % CALL_THREADS > c->to->number;
}

static void *worker_main(void *arg) {
    Worker *w = arg;
    Pool *p = w->pool;
    Call c = {.to = w};
    for (;;) {
        wait_until(is_called, &c, &w->asleep, p->spin_ns);
        Work x = {.job = {.fn = atomic_load_explicit(&p->job.fn, memory_order_acquire),
                          .ctx = atomic_load_explicit(&p->job.ctx, memory_order_acquire),
                          .items = atomic_load_explicit(&p->job.items, memory_order_acquire),
                          .pieces = atomic_load_explicit(&p->job.pieces, memory_order_acquire),
                          .threads = (uint32_t)(c.now % CALL_THREADS)},
                  .number = c.now / CALL_THREADS};
        if (!x.job.fn) return NULL;
        work(p, &x, w->number);
    }
}

static bool all_done(void *of) {
    Pool *p = of;
    return atomic_load(&p->pending) == 0;
}

/* Gives the job to its threads; returns its number. */
static uint64_t call_workers(Pool *p, const PoolJob *job) {
    const uint64_t number = atomic_load_explicit(&p->call, memory_order_relaxed) / CALL_THREADS + 1;
    if (job->threads > p->most) p->most = job->threads;
    for (uint32_t i = 0; i < p->most; i++)
        atomic_store_explicit(&p->worker[i].taken, number << PIECE_BITS, memory_order_relaxed);
    atomic_store_explicit(&p->job.fn, job->fn, memory_order_release);
    atomic_store_explicit(&p->job.ctx, job->ctx, memory_order_release);
    atomic_store_explicit(&p->job.items, job->items, memory_order_release);
    atomic_store_explicit(&p->job.pieces, job->pieces, memory_order_release);
    atomic_store_explicit(&p->pending, job->items, memory_order_relaxed);
    atomic_store(&p->call, number * CALL_THREADS + job->threads);
    for (uint32_t i = 1; i < job->threads; i++) wake(&p->worker[i].asleep);
    return number;
}

Pool *pool_create(uint32_t spin_us) {
    Pool *p = aligned_alloc(LINE, sizeof *p);
    if (!p) return NULL;
    atomic_init(&p->call, 0);
    atomic_init(&p->pending, 0);
    atomic_init(&p->waiting, 0);
    atomic_init(&p->worker[0].taken, 0);
    atomic_flag_clear(&p->busy);
    p->spin_ns = spin_us * UINT64_C(1000);
    p->threads = 1;
    p->most = 0;
    return p;
}

void pool_destroy(Pool *p) {
    if (!p) return;
    (void)call_workers(p, &(PoolJob){.threads = p->threads});
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
        atomic_init(&w->asleep, 0);
        atomic_init(&w->taken, 0);
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
    const Work x = {*job, call_workers(p, job)};
    work(p, &x, 0);
    wait_until(all_done, p, &p->waiting, p->spin_ns);
}
