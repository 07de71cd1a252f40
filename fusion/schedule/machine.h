/* What fusion and scheduling may know of a target: numbers only. They stand in the targets' rows */
#ifndef FUSION_MACHINE_H
#define FUSION_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MACHINE_MAX_PARTS = 4,   /* of a sum that templates take apart */
    MACHINE_MOST_SHARERS = 8 /* blocks of a cluster */
};

typedef struct Machine {
    uint32_t processors; /* that a kernel should fill: a GPU's multiprocessors. 1 on CPUs, where the
                            rates are those of a core */
    /* [n]: how many clusters of n blocks, a processor each, run at once; 0 = none */
    uint32_t clusters[MACHINE_MOST_SHARERS + 1];
    uint32_t registers;              /* of a multiprocessor, 32 bits each */
    uint32_t shared;                 /* its shared memory, bytes that a block may have */
    double bytes_per_s, flops_per_s; /* for cost estimates */
    double matrix_flops_per_s;       /* of contractions on units of their own; 0 = there are none */
    double launch_s;                 /* cost of one more kernel */
    /* Forms of prepared weights. */
    bool quads;            /* of u8 by i8: panels of rows in fours (KDot.quads) */
    bool pairs;            /* of bf16: panels of rows in pairs (KDot.pairs) */
    bool bytes;            /* matrix units multiply integers and floats of 8 bits, in rows of k */
    uint32_t pack_width;   /* NR of packed constant B operands; 0 = never pack */
    bool flattens_patches; /* convolutions over few channels are contractions (pass_patches,
                              pass_conv_widen) */
    bool mixes; /* products with matrices of few numbers, across strides, are sums of slices
                   (pass_mixes) */
    bool turns_convolutions; /* of what lies side by side along their first axis (pass_turn_conv) */
    uint32_t pack_rows;      /* without panels: contractions of at most so many rows have constant B
                                with k along its rows; 0 = none */
    bool bands;       /* kernels walk rows and sum columns beside, a band of rows for each processor
                         (columns.c) */
    bool repeats;     /* a launch can do the same over several sets of buffers (times.c) */
    uint32_t turns;   /* a kernel can take a loop's iterations in turns, of rows of so many elements
                         at most; 0 = none (turns.c) */
    bool holds_turns; /* it holds what they carry; else each turn stores it, as it goes */
    double apart_bytes;  /* states of so many bytes that move by a contraction's result are moved by
                            a kernel of its own: an epilogue reads and writes them at a third of
                            memory's rate; 0 = never */
    bool rounds_streams; /* bytes between kernels cost more than digits (pass_precision) */
    bool cuts_sums;      /* long sums with few results are cut by the graph (pass_cut_sums) */
    bool cuts_dots; /* and long contractions with few results, where a kernel fills the machine by
                       its results alone (pass_cut_dots) */
    bool digits;    /* multiplies f32 as f16 digits (pass_digits) */
    bool winograd;  /* worth raising 3x3 stride-1 convolutions */
    /* contractions whose results are added to another's may have a part in its kernel, so many: one
     * sum of products of several pairs of matrices (pass_join_sums) */
    uint32_t terms;
    bool query_lanes;        /* attention's scores are computed with queries side by side */
    uint32_t half_attention; /* has attention on matrix units for operands of 16 bits: the largest
                                head size; 0: has no such units, or any size */
    bool attention_gradient; /* has that template, of f32 operands too */
    uint32_t half_gradient;  /* has it for operands of 16 bits: the largest head size, or 0 */
    bool joint_gradients;    /* and one for all three of an attention, */
    bool sums_apart; /* which has queries' sums in memory of its own until they are complete, and
                        rounds them: set for a compile where they may be added up in any order.
                        Else they are summed where they are stored, as they are */
    /* Most arithmetic per element with which a value is still computed where it is read: as data
     * that moves elements, as attention's queries, keys and values, as a contraction's operand, and
     * as such an operand of 16 bits: 0 where what feeds matrix units is fetched from memory. */
    struct {
        double data, query, key, value, a, b, half_a, half_b;
    } inline_flops;
} Machine;

#endif
