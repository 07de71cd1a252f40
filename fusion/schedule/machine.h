/* What fusion and scheduling may know of a target: numbers only. */
#ifndef FUSION_MACHINE_H
#define FUSION_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Machine {
    const char *name;       /* "cpu", "sm_90a" */
    uint32_t pack_width;    /* NR of packed constant B operands; 0 = never pack */
    uint32_t dot_tile_m;    /* typical rows of a contraction tile */
    uint32_t lanes;         /* vector lanes of f32 */
    uint64_t row_bytes_max; /* longest row that a `per` keeps near the ALUs (L1/L2 or registers) */
    double bytes_per_s, flops_per_s; /* for cost estimates */
    double launch_s;        /* cost of one more kernel */
    bool winograd;          /* worth raising 3x3 stride-1 convolutions */
} Machine;

extern const Machine machine_cpu, machine_sm90;

#endif
