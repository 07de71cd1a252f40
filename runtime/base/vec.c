/* Growth of VEC(T). The old elements stay in the arena: doubling bounds that waste by the final
 * size. */
#include "runtime/base/vec.h"
#include "runtime/base/status.h"
#include <string.h>

void *vec_grow(Arena *a, void *old, uint32_t *cap, size_t elem_size) {
    GC_ASSERT(*cap <= UINT32_MAX / 2);
    return vec_enlarge(a, old, cap, elem_size, *cap ? *cap * 2 : 8);
}

void *vec_enlarge(Arena *a, void *old, uint32_t *cap, size_t elem_size, uint32_t n) {
    if (n <= *cap) return old;
    void *p = arena_array(a, n, elem_size);
    if (*cap) memcpy(p, old, *cap * elem_size);
    *cap = n;
    return p;
}
