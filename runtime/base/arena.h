/* Bump allocation by lifetime: everything in an arena is freed together.
 *
 * Compiler memory only. Running out ends the compile through the handler (see arena_on_oom), so
 * callers never test for NULL. The runtime does not use arenas: there every allocation can fail.
 * An arena belongs to one thread at a time. */
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

size_t arena_used(const Arena *a);

/* Called with the wanted size when memory runs out; must not return. The default prints one line
 * to stderr and exits with GRAPHC_NO_MEMORY. Set once by the program before any other thread
 * starts. */
typedef void (*ArenaOom)(size_t wanted);
void arena_on_oom(ArenaOom handler);

#endif
