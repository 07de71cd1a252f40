/* Bump allocation by lifetime: everything in an arena is freed together.
 *
 * Compiler memory only. Running out leaves the work that arena_guard runs, so callers never test
 * for NULL. The runtime does not use arenas: there every allocation can fail. An arena belongs to
 * one thread at a time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_create(void);
void arena_destroy(Arena *a); /* NULL is allowed */

/* Zeroed memory aligned to 16 bytes; n may be 0. */
void *arena_alloc(Arena *a, size_t n);
/* Array form with a checked product. */
void *arena_array(Arena *a, size_t count, size_t size);
#define ARENA_NEW(a, T)      ((T *)arena_alloc((a), sizeof(T)))
#define ARENA_ARRAY(a, T, n) ((T *)arena_array((a), (n), sizeof(T)))

void *arena_copy(Arena *a, const void *p, size_t n);
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t n);
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *a, const char *fmt, va_list ap);

/* fn(p) is called when the arena is destroyed, before any of its memory goes; latest first. For
 * what an object in the arena holds outside of it. */
void arena_at_destroy(Arena *a, void (*fn)(void *p), void *p);

/* Runs fn(ctx). If memory runs out on this thread meanwhile, fn is left where it stands: the result
 * is the number of bytes wanted, else 0. What fn made lives until its arenas are destroyed, so
 * these have to be reachable from outside. Guards nest; every arena is used inside one. */
size_t arena_guard(void (*fn)(void *ctx), void *ctx);
/* Leaves the innermost guard of this thread: also for memory that ran out on a helper thread. */
_Noreturn void arena_out_of_memory(size_t wanted);

#endif
