/* A program's allocations, its own and libc's: counted, and one of them fails. Include it once. The
 * sanitizers have allocators of their own: COUNTS_ALLOCATIONS is not defined there. */
#ifndef TESTS_UNIT_ALLOCATIONS_H
#define TESTS_UNIT_ALLOCATIONS_H

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 1
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* How many allocations there were, how many are not freed, and which one is to fail (-1: none). */
static _Atomic long allocations, live, fail_at = -1;

#pragma GCC visibility push(default) /* libc's own allocations are counted too */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

static bool refused(void) {
    allocations++;
    if (fail_at < 0 || fail_at-- != 0) return false;
    errno = ENOMEM;
    return true;
}
static void *counted(void *p) {
    live += p != NULL;
    return p;
}
void *malloc(size_t n) {
    return refused() ? NULL : counted(__libc_malloc(n));
}
void *calloc(size_t n, size_t m) {
    return refused() ? NULL : counted(__libc_calloc(n, m));
}
void *realloc(void *p, size_t n) {
    if (refused()) return NULL;
    void *q = __libc_realloc(p, n);
    live += !p && q;
    return q;
}
void *aligned_alloc(size_t align, size_t n) {
    return refused() ? NULL : counted(__libc_memalign(align, n));
}
void free(void *p) {
    live -= p != NULL;
    __libc_free(p);
}
#pragma GCC visibility pop
#endif

#endif
