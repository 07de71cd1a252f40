/* Arena: a chain of blocks that double in size up to a limit; an allocation that does not fit in
 * the current block starts a new one, large ones get a block of their own. Blocks come from calloc,
 * so fresh memory is zero without being touched. */
#include "runtime/base/arena.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, ARENA_FIRST = 16 << 10, ARENA_MAX = 1 << 20 };

typedef struct Block {
    struct Block *next;
    size_t used, cap; /* bytes of data[] */
    _Alignas(ARENA_ALIGN) unsigned char data[];
} Block;

typedef struct Cleanup {
    struct Cleanup *next;
    void (*fn)(void *p);
    void *p;
} Cleanup;

struct Arena {
    Block *head; /* the block that is being filled */
    size_t block_size;
    Cleanup *cleanups;
};

typedef struct Guard {
    struct Guard *outer;
    jmp_buf back;
    volatile size_t wanted;
} Guard;

/* The innermost of the thread's guards. */
static _Thread_local Guard *guard;

size_t arena_guard(void (*fn)(void *ctx), void *ctx) {
    Guard g = {.outer = guard};
    guard = &g;
    if (setjmp(g.back) == 0) fn(ctx);
    guard = g.outer;
    return g.wanted;
}

_Noreturn void arena_out_of_memory(size_t wanted) {
    GC_ASSERT(guard);
    guard->wanted = wanted ? wanted : 1;
    longjmp(guard->back, 1);
}

static void *get_memory(size_t n) {
    void *p = calloc(1, n);
    if (!p) arena_out_of_memory(n);
    return p;
}

Arena *arena_create(void) {
    Arena *a = get_memory(sizeof *a);
    a->block_size = ARENA_FIRST;
    return a;
}

void arena_destroy(Arena *a) {
    if (!a) return;
    while (a->cleanups) {
        Cleanup *c = a->cleanups;
        a->cleanups = c->next;
        c->fn(c->p);
    }
    for (Block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

static Block *block_new(size_t cap) {
    if (cap > SIZE_MAX - sizeof(Block)) arena_out_of_memory(SIZE_MAX);
    Block *b = get_memory(sizeof *b + cap);
    b->cap = cap;
    return b;
}

/* A large request goes behind the head, which keeps its free space for small ones. */
static void *alloc_large(Arena *a, size_t n) {
    Block *b = block_new(n);
    b->used = n;
    if (a->head) {
        b->next = a->head->next;
        a->head->next = b;
    } else {
        a->head = b;
    }
    return b->data;
}

void *arena_alloc(Arena *a, size_t n) {
    if (n > SIZE_MAX - ARENA_ALIGN) arena_out_of_memory(n);
    n = (n + (ARENA_ALIGN - 1)) & ~(size_t)(ARENA_ALIGN - 1);
    if (!a->head || a->head->cap - a->head->used < n) {
        if (n > a->block_size / 4) return alloc_large(a, n);
        Block *b = block_new(a->block_size);
        b->next = a->head;
        a->head = b;
        if (a->block_size < ARENA_MAX) a->block_size *= 2;
    }
    void *p = a->head->data + a->head->used;
    a->head->used += n;
    return p;
}

void *arena_array(Arena *a, size_t count, size_t size) {
    uint64_t n = 0;
    if (!check_mul(count, size, &n)) arena_out_of_memory(SIZE_MAX);
    return arena_alloc(a, (size_t)n);
}

void *arena_copy(Arena *a, const void *p, size_t n) {
    void *q = arena_alloc(a, n);
    if (n) memcpy(q, p, n);
    return q;
}

char *arena_strndup(Arena *a, const char *s, size_t n) {
    char *q = arena_alloc(a, n + 1);
    memcpy(q, s, n);
    return q;
}

char *arena_strdup(Arena *a, const char *s) {
    return arena_strndup(a, s, strlen(s));
}

char *arena_vprintf(Arena *a, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    GC_ASSERT(n >= 0);
    char *q = arena_alloc(a, (size_t)n + 1);
    vsnprintf(q, (size_t)n + 1, fmt, again);
    va_end(again);
    return q;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *q = arena_vprintf(a, fmt, ap);
    va_end(ap);
    return q;
}

void arena_at_destroy(Arena *a, void (*fn)(void *p), void *p) {
    Cleanup *c = ARENA_NEW(a, Cleanup);
    *c = (Cleanup){.next = a->cleanups, .fn = fn, .p = p};
    a->cleanups = c;
}
