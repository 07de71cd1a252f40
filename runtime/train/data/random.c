#include "runtime/train/data/random.h"

uint64_t random_next(uint64_t *state) {
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Numbers at the end that would make the first ones likelier are drawn again. */
uint64_t random_below(uint64_t *state, uint64_t n) {
    uint64_t reject = (0 - n) % n, x; /* 2^64 mod n */
    do x = random_next(state);
    while (x < reject);
    return x % n;
}

uint64_t random_of_step(uint64_t seed, uint64_t step) {
    uint64_t state = seed ^ (step * UINT64_C(0x9e3779b97f4a7c15));
    return random_next(&state);
}

void random_order(uint64_t *out, uint64_t n, uint64_t seed) {
    uint64_t state = seed;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t k = random_below(&state, i + 1);
        if (k < i) out[i] = out[k];
        out[k] = i;
    }
}
