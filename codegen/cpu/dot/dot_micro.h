/* What the files of the micro-kernel share. */
#ifndef CODEGEN_CPU_DOT_MICRO_H
#define CODEGEN_CPU_DOT_MICRO_H

#include "codegen/cpu/dot/dot.h"

/* One micro-kernel: `rows` rows of the table from entry `at` on against nv vectors. */
typedef struct Micro {
    uint32_t rows, nv, nacc; /* nacc = rows * nv */
    uint32_t live;           /* accumulators that loops carry: all, or none between parts of sums */
    const DotB *b;
    LLVMValueRef at; /* table entry of the first row's first run */
    LLVMValueRef acc[DOT_ROWS * DOT_MAX_NV];
    LLVMValueRef tile;        /* as Dot.tile, from the first row on */
    LLVMValueRef row;         /* current row of the right operand */
    DotAhead ahead;           /* ... and what is asked for meanwhile */
    uint32_t of;              /* the right operand's number ... */
    const LLVMValueRef *mask; /* ... and columns that there are: where it is made */
} Micro;

typedef struct Slice {
    EmitLoop runs, chunks;
    Expr run, first, size; /* steps of one run; or runs, where chunks are of whole runs */
    Expr chunk;            /* ... in parts of so many */
} Slice;

/* dot_steps.c */
/* A loop over [first, first + n) that carries what is live; inside, it is the micro-kernel's. */
void micro_open(Dot *d, Micro *m, EmitLoop *l, const char *name, Expr first, Expr n);
void micro_close(Dot *d, Micro *m, EmitLoop *l);
/* Where the rows' runs begin that are at entry `at` of the first one. */
void micro_left(Dot *d, const Micro *m, LLVMValueRef at, LLVMValueRef *left);
/* Steps [first, first + n) of the runs that begin at `left`. */
void micro_part(Dot *d, Micro *m, LLVMValueRef *left, Expr first, Expr n);
void micro_quads(Dot *d, Micro *m, LLVMValueRef at); /* all of the run, in fours */
/* `rows` rows of the right operand further on. */
LLVMValueRef dot_b_row(Dot *d, const DotB *b, LLVMValueRef from, Expr rows);

/* dot_kernel.c */
/* Leaves the sums in accumulators; where they are made of chunks of several runs, added to what is
 * in memory. */
void micro_kernel(Dot *d, Micro *m);
void micro_slice(Dot *d, Micro *m, const Slice *s); /* adds the slice's products to what is there */
LLVMValueRef micro_place(Dot *d, const Micro *m, uint32_t i); /* of accumulator i in memory */
LLVMValueRef dot_load_sums(Dot *d, LLVMValueRef at);          /* a vector of them */
/* Chunks are parts of the whole sum, and not of one run of several. */
bool dot_in_one_walk(const Dot *d);
void dot_slices_open(Dot *d, Slice *s);
void dot_slices_close(Dot *d, Slice *s);
/* The right operand's rows where the slice begins, and how many it has. */
Expr dot_slice_row(Dot *d, const Slice *s);
Expr dot_slice_rows(Dot *d, const Slice *s);

#endif
