/* A target is one row of the table in target.c: what fusion may know of the machine, what the
 * emitter must know of its instruction sets, which device runs the code and what makes it. Nothing
 * else asks which target it is working for. Rows are constant; no LLVM here. */
#ifndef CODEGEN_TARGET_H
#define CODEGEN_TARGET_H

#include "codegen/codegen.h"
#include "runtime/plan.h"

#define TARGET_MAX_ISAS  5
#define TARGET_MAX_ATTRS 6

/* One instruction set: what the emitter needs to know of it. */
typedef struct Isa {
    const char *dump; /* what dumped files have before their extension: "v3.", or "" */
    CodeForm form;    /* of the code that is made for it */
    const char *triple, *cpu, *features; /* as LLVM names them; the machine to generate code for */
    const char *attrs[TARGET_MAX_ATTRS][2]; /* of every function beside nounwind: key, value */
    uint32_t lanes;        /* f32 elements of a vector register; 1: threads are the lanes */
    uint32_t vector_regs;  /* architectural vector registers: bounds unrolling */
    uint32_t thread_lanes; /* most elements of a vector that one thread keeps; 0: lanes are elements
                              of a register */
    uint32_t buffer_align; /* bytes that divide every buffer's address; 0 = as its elements need */
    uint32_t buffer_space; /* address space of buffers; 0 = that of the stack, too */
    bool early_loads; /* loads may stand before the branch that needs them, where a thread would
                         wait for them: templates bind inside of it what may lie beyond a buffer */
    bool extends; /* the row before with instructions that few kernels use: made for those alone */
    bool mask_registers; /* lane masks are bits in registers of their own */
    bool nan_minmax;     /* max and min instructions that keep NaN */
    bool bf16_round;     /* an instruction that rounds two f32 to bf16 */
    bool tiles; /* eight registers of 16 rows of 64 bytes, and products of bf16 and bytes in them:
                   what cpu/dot_amx.c makes use of */
    bool warpgroups; /* products of warpgroups, and the copy engine that feeds them: what
                        nvptx/hopper makes use of */
    /* Intrinsics over whole registers, NULL where there is none: x * 2^floor(n) of f32; what a
     * rounding leaves of f32, 0 of infinities; sums of two neighbouring products of i16 in i32; of
     * u8 by i8 in i16; of four of those, added to i32; of two of bf16, added to f32; f32 out of a
     * table in a register, by the low bits of i32; f32 rounded to bf16, where the smallest,
     * denormal ones become 0; f32 rounded to u32, where what is larger becomes its largest. */
    const char *scale_f32, *rest_f32, *multiply_pairs, *multiply_bytes, *multiply_quads,
        *multiply_bf16, *table_f32, *round_bf16, *round_u32;
} Isa;

struct Target {
    const char *name;  /* in --target, in plans and in file names */
    PlanDevice device; /* what runs it */
    Machine machine;
    uint32_t nisas;
    Isa isa[TARGET_MAX_ISAS]; /* every kernel is made for all of them */
    /* All kernels of the schedule, as codegen_run says. */
    graphc_status (*compile)(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                             DiagSink *d, CodeResult *out);
};

/* The first row is the default. NULL past the end. */
const Target *target_at(uint32_t i);
/* By the n characters of its name; NULL: there is none. */
const Target *target_find(const char *name, size_t n);
/* The first that this device runs. */
const Target *target_for(PlanDevice device);
/* "cpu and sm_90a" */
const char *target_names(Arena *a);

/* The compile hooks: cpu/cpu.c, nvptx/nvptx.c. */
graphc_status cpu_compile(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                          DiagSink *d, CodeResult *out);
graphc_status nvptx_compile(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                            DiagSink *d, CodeResult *out);

#endif
