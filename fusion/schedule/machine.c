/* The targets' numbers. */
#include "fusion/schedule/machine.h"

/* One core's share of a server CPU: DRAM and L3 together sustain tens of GB/s, FMA units about
 * 100 GFLOP/s in f32. */
const Machine machine_cpu = {
    .name = "cpu",
    .pack_width = 48,
    .dot_tile_m = 8,
    .lanes = 16,
    .row_bytes_max = 256 << 10,
    .bytes_per_s = 20e9,
    .flops_per_s = 100e9,
    .launch_s = 2e-6,
    .winograd = true,
};

const Machine machine_sm90 = {
    .name = "sm_90a",
    .pack_width = 0,
    .dot_tile_m = 128,
    .lanes = 32,
    .row_bytes_max = 64 << 10,
    .bytes_per_s = 4e12,
    .flops_per_s = 60e12,
    .launch_s = 2.5e-6,
    .winograd = false,
};
