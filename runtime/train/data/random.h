/* Reproducible random numbers for data: splitmix64, the same on every machine. */
#ifndef TRAIN_DATA_RANDOM_H
#define TRAIN_DATA_RANDOM_H

#include <stdint.h>

uint64_t random_next(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t n); /* each of 0..n-1 alike; n > 0 */
/* Where a step's numbers start: elsewhere in every step. */
uint64_t random_of_step(uint64_t seed, uint64_t step);
/* The numbers 0..n-1 in the order of a seed. */
void random_order(uint64_t *out, uint64_t n, uint64_t seed);

#endif
