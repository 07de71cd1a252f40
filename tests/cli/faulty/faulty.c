/* Preloaded into graphc: one call that graphc itself makes fails, that of number FAULTY_AT of the
 * kind FAULTY_KIND.
 *
 *   memory    allocations, its own address space, threads
 *   files     opening, reading, writing, mapping, syncing, naming and closing of files
 *   kill      of the same calls, but the process is killed where it would make the call
 *
 * Calls of libraries (LLVM ends a process whose memory runs out) are not counted: those return to
 * elsewhere than the program, or come before main, as those of one that is linked into it. Once the
 * call has come, the file FAULTY_SEEN is there. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static uintptr_t from, to; /* where the program's code lies */
static _Atomic long left;  /* calls until that which fails */
static bool memory, deadly;
static const char *seen;

static int first_object(struct dl_phdr_info *o, size_t size, void *unused) {
    (void)size, (void)unused;
    for (int i = 0; i < o->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &o->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        from = o->dlpi_addr + p->p_vaddr;
        to = from + p->p_memsz;
    }
    return 1; /* the program is the first */
}

__attribute__((constructor)) static void arm(void) {
    const char *at = getenv("FAULTY_AT"), *kind = getenv("FAULTY_KIND");
    if (!at || !kind) return;
    memory = !strcmp(kind, "memory");
    deadly = !strcmp(kind, "kill");
    seen = getenv("FAULTY_SEEN");
    left = atol(at) + 1;
}

typedef int Main(int, char **, char **);
static Main *program;

static int counted_main(int argc, char **argv, char **env) {
    if (left) dl_iterate_phdr(first_object, NULL);
    return program(argc, argv, env);
}

/* libc's, which starts main behind the constructors of all; no header has it. */
__attribute__((visibility("default"))) int __libc_start_main(Main *m, int argc, char **argv,
                                                             void (*init)(void), void (*fini)(void),
                                                             void (*leave)(void), void *stack);

int __libc_start_main(Main *m, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*leave)(void), void *stack) {
    __typeof__(&__libc_start_main) next;
    *(void **)&next = dlsym(RTLD_NEXT, "__libc_start_main");
    program = m;
    return next(counted_main, argc, argv, init, fini, leave, stack);
}

/* Is this the one? `caller` returns into the program when the program made the call. */
static bool fails(bool of_memory, const void *caller, int error) {
    if (!from || of_memory != memory || (uintptr_t)caller < from || (uintptr_t)caller >= to)
        return false;
    if (atomic_fetch_sub(&left, 1) != 1) return false;
    const long fd = seen ? syscall(SYS_openat, AT_FDCWD, seen, O_WRONLY | O_CREAT, 0600) : -1;
    if (fd >= 0) syscall(SYS_close, fd);
    if (deadly) kill(getpid(), SIGKILL);
    errno = error;
    return true;
}

/* The function behind this one, looked up without a message to free. */
#define NEXT(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

#define FAULTY(type, name, parameters, arguments, of_memory, error, failure)                       \
    __attribute__((visibility("default"))) type name parameters {                                  \
        NEXT(name);                                                                                \
        return fails(of_memory, __builtin_return_address(0), error) ? failure : next arguments;    \
    }

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

#define MEMORY(name, parameters, real)                                                             \
    __attribute__((visibility("default"))) void *name parameters {                                 \
        return fails(true, __builtin_return_address(0), ENOMEM) ? NULL : real;                     \
    }
MEMORY(malloc, (size_t n), __libc_malloc(n))
MEMORY(calloc, (size_t n, size_t m), __libc_calloc(n, m))
MEMORY(realloc, (void *p, size_t n), __libc_realloc(p, n))
MEMORY(aligned_alloc, (size_t align, size_t n), __libc_memalign(align, n))

FAULTY(void *, reallocarray, (void *p, size_t n, size_t m), (p, n, m), true, ENOMEM, NULL)
FAULTY(char *, strdup, (const char *s), (s), true, ENOMEM, NULL)
FAULTY(char *, strndup, (const char *s, size_t n), (s, n), true, ENOMEM, NULL)
FAULTY(int, pthread_create,
       (pthread_t * t, const pthread_attr_t *a, void *(*fn)(void *), void *ctx), (t, a, fn, ctx),
       true, EAGAIN, EAGAIN)

FAULTY(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), false, EIO, -1)
FAULTY(ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at), false, EIO, -1)
FAULTY(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), false, ENOSPC, -1)
FAULTY(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), false, ENOSPC,
       -1)
FAULTY(int, fstat, (int fd, struct stat *s), (fd, s), false, EIO, -1)
FAULTY(int, stat, (const char *restrict path, struct stat *restrict s), (path, s), false, EACCES,
       -1)
FAULTY(int, access, (const char *path, int mode), (path, mode), false, EACCES, -1)
FAULTY(int, fsync, (int fd), (fd), false, EIO, -1)
FAULTY(int, close, (int fd), (fd), false, (next(fd), EIO), -1)
FAULTY(int, mkdir, (const char *path, mode_t mode), (path, mode), false, ENOSPC, -1)
FAULTY(int, rename, (const char *a, const char *b), (a, b), false, ENOSPC, -1)
FAULTY(int, linkat, (int a, const char *b, int c, const char *d, int flags), (a, b, c, d, flags),
       false, ENOSPC, -1)
FAULTY(FILE *, fopen, (const char *restrict path, const char *restrict mode), (path, mode), false,
       EMFILE, NULL)
FAULTY(size_t, fread, (void *restrict p, size_t n, size_t m, FILE *restrict f), (p, n, m, f), false,
       EIO, 0)
FAULTY(int, memfd_create, (const char *name, unsigned flags), (name, flags), false, EMFILE, -1)

/* A file's, or memory. */
FAULTY(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at),
       (p, n, prot, flags, fd, at), fd < 0, ENOMEM, MAP_FAILED)

static mode_t mode_of(int flags, va_list a) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(a, mode_t) : 0;
}

__attribute__((visibility("default"))) int open(const char *path, int flags, ...) {
    va_list a;
    NEXT(open);
    va_start(a, flags);
    const mode_t mode = mode_of(flags, a);
    va_end(a);
    return fails(false, __builtin_return_address(0), EMFILE) ? -1 : next(path, flags, mode);
}

__attribute__((visibility("default"))) int openat(int dir, const char *path, int flags, ...) {
    va_list a;
    NEXT(openat);
    va_start(a, flags);
    const mode_t mode = mode_of(flags, a);
    va_end(a);
    return fails(false, __builtin_return_address(0), EMFILE) ? -1 : next(dir, path, flags, mode);
}
