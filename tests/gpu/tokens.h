/* What tokens.c needs beside the run API: memory that a GPU reads and writes, and the best of many
 * scores. */
#ifndef TESTS_GPU_TOKENS_H
#define TESTS_GPU_TOKENS_H

#include "runtime/cuda/driver.h"
#include "runtime/graphc.h"
#include <stdlib.h>
#include <string.h>

/* NONE: the host's; SHARED: the host's, locked, at the same address on the GPU; DEVICE: the GPU's
 * own. */
typedef enum GpuKind { GPU_NONE, GPU_SHARED, GPU_DEVICE } GpuKind;

typedef struct GpuMemory {
    const Driver *driver; /* NULL: none was opened */
    struct {
        void *p;
        GpuKind kind;
    } taken[8];
    int n;
} GpuMemory;

/* Makes the device's primary context, which sessions are in, the thread's. */
static inline bool gpu_open(GpuMemory *m) {
    char why[256];
    CuDevice device;
    CuContext context;
    return driver_open(&m->driver, (ErrorText){why, sizeof why}) == GRAPHC_OK &&
           !m->driver->device_get(&device, 0) && !m->driver->context_retain(&context, device) &&
           !m->driver->context_push(context);
}

/* n words that hold what `from` does, or zeros; NULL if there is no such memory. */
static inline void *gpu_memory(GpuMemory *m, GpuKind kind, const int64_t *from, size_t n) {
    size_t bytes = (n * 8 + 4095) / 4096 * 4096;
    void *p = aligned_alloc(4096, bytes);
    if (!p || m->n == 8) return NULL;
    memset(p, 0, bytes);
    if (from) memcpy(p, from, n * 8);
    CuAddress on_device = 0;
    if (kind == GPU_SHARED && m->driver->host_register(p, bytes, 3 /* portable, mapped */))
        return NULL;
    if (kind == GPU_DEVICE) {
        int bad = m->driver->mem_alloc(&on_device, bytes) ||
                  m->driver->copy_to_device(on_device, p, bytes);
        free(p);
        if (bad) return NULL;
        p = (void *)(uintptr_t)on_device;
    }
    m->taken[m->n].p = p;
    m->taken[m->n++].kind = kind;
    return p;
}

static inline bool gpu_read(const GpuMemory *m, int64_t *to, const void *p, size_t n) {
    GpuKind kind = GPU_NONE;
    for (int i = 0; i < m->n; i++)
        if (m->taken[i].p == p) kind = m->taken[i].kind;
    if (kind != GPU_DEVICE) {
        memcpy(to, p, n * 8);
        return true;
    }
    return !m->driver->copy_async((CuAddress)(uintptr_t)to, (CuAddress)(uintptr_t)p, n * 8, NULL) &&
           !m->driver->stream_sync(NULL);
}

static inline void gpu_close(GpuMemory *m) {
    for (int i = 0; i < m->n; i++) {
        void *p = m->taken[i].p;
        if (m->taken[i].kind == GPU_SHARED) (void)m->driver->host_unregister(p);
        if (m->taken[i].kind == GPU_DEVICE)
            (void)m->driver->mem_free((CuAddress)(uintptr_t)p);
        else
            free(p);
    }
    m->n = 0;
}

/* --- The best score ------------------------------------------------------------------------- */

/* Floats of 16 and 32 bits are in the order of integers once the others' sign is turned. A block's
 * greatest is found without asking where it is, in vectors; only the best block is looked through.
 */
#define SCORES_BLOCK 1024
#define SCORES_BEST(name, T, least, bits, attributes)                                              \
    attributes static inline size_t name(const T *v, size_t n) {                                   \
        T best = least;                                                                            \
        size_t at = 0;                                                                             \
        for (size_t b = 0; b + SCORES_BLOCK <= n; b += SCORES_BLOCK) {                             \
            T most = least;                                                                        \
            for (size_t i = 0; i < SCORES_BLOCK; i++) {                                            \
                T x = (T)(v[b + i] ^ ((v[b + i] >> (bits - 1)) & (T)~least));                      \
                most = x > most ? x : most;                                                        \
            }                                                                                      \
            if (most > best) at = b;                                                               \
            best = most > best ? most : best;                                                      \
        }                                                                                          \
        size_t end = at + SCORES_BLOCK < n ? at + SCORES_BLOCK : n,                                \
               rest = n / SCORES_BLOCK * SCORES_BLOCK;                                             \
        T inside = least;                                                                          \
        size_t place = at;                                                                         \
        for (size_t i = at; i < n; i = i + 1 == end && rest > i ? rest : i + 1) {                  \
            T x = (T)(v[i] ^ ((v[i] >> (bits - 1)) & (T)~least));                                  \
            if (x > inside) place = i;                                                             \
            inside = x > inside ? x : inside;                                                      \
        }                                                                                          \
        return place;                                                                              \
    }
SCORES_BEST(best16, int16_t, INT16_MIN, 16, )
SCORES_BEST(best32, int32_t, INT32_MIN, 32, )
#if defined(__x86_64__)
SCORES_BEST(best16_avx2, int16_t, INT16_MIN, 16, __attribute__((target("avx2"))))
SCORES_BEST(best32_avx2, int32_t, INT32_MIN, 32, __attribute__((target("avx2"))))
#else
#define best16_avx2 best16
#define best32_avx2 best32
#endif

/* The first of the greatest of n scores. */
static inline int64_t best_of(const void *v, graphc_dtype t, size_t n) {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2"))
        return (int64_t)(t.bits == 16 ? best16(v, n) : best32(v, n));
#endif
    return (int64_t)(t.bits == 16 ? best16_avx2(v, n) : best32_avx2(v, n));
}

#endif
