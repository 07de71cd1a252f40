/* Overflow-checked integer arithmetic: the only arithmetic that loaders do on sizes from files.
 * Each returns false, leaving *out alone, when the exact result does not fit. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool check_add(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool check_mul(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* True if [offset, offset+length) lies inside a file of `size` bytes. */
static inline bool check_span(uint64_t offset, uint64_t length, uint64_t size) {
    return length <= size && offset <= size - length;
}

#endif
