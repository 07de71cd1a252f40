/* Growable arrays in an arena:  VEC(int) xs = {0};  vec_push(arena, &xs, 3);  xs.v[0]; xs.n */
#ifndef BASE_VEC_H
#define BASE_VEC_H

#include "runtime/base/arena.h"
#include <stdint.h>

#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *v;                                                                                      \
        uint32_t n, cap;                                                                           \
    }

#define vec_push(arena, vec, x)                                                                    \
    do {                                                                                           \
        if ((vec)->n == (vec)->cap)                                                                \
            (vec)->v = vec_grow((arena), (vec)->v, &(vec)->cap, sizeof *(vec)->v);                 \
        (vec)->v[(vec)->n++] = (x);                                                                \
    } while (0)

/* Room for n elements at once, where their number is known. */
#define vec_reserve(arena, vec, n)                                                                 \
    ((vec)->v = vec_enlarge((arena), (vec)->v, &(vec)->cap, sizeof *(vec)->v, (n)))
void *vec_enlarge(Arena *a, void *old, uint32_t *cap, size_t elem_size, uint32_t n);

/* Doubles *cap (from 8) and returns the moved elements. */
void *vec_grow(Arena *a, void *old, uint32_t *cap, size_t elem_size);

#endif
