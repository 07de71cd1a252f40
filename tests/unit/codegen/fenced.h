/* Operands between pages that no one may touch: a kernel that reads or writes beyond one ends the
 * test, as it would end a program whose tensor is the last thing in a mapping. */
#ifndef TESTS_UNIT_CODEGEN_FENCED_H
#define TESTS_UNIT_CODEGEN_FENCED_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static inline size_t fenced_pages(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* `bytes` of zeros whose last one lies before such a page; aligned as the elements are, no more. */
static inline void *fenced_new(size_t bytes) {
    const size_t page = fenced_pages(1), room = fenced_pages(bytes);
    uint8_t *p = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + page, room, PROT_READ | PROT_WRITE)) _exit(1);
    return p + page + room - bytes;
}

static inline void fenced_free(void *p, size_t bytes) {
    const size_t page = fenced_pages(1), room = fenced_pages(bytes);
    munmap((uint8_t *)p + bytes - room - page, room + 2 * page);
}

#endif
