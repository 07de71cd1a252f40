/* The PTX assembler: NVIDIA's library where graphc was built with it, else the program ptxas. Both
 * read the same PTX and report alike. Any number of threads may assemble at a time. $GRAPHC_PTXAS
 * names a program to use instead of either. */
#ifndef CODEGEN_NVPTX_ASSEMBLER_H
#define CODEGEN_NVPTX_ASSEMBLER_H

#include "codegen/codegen.h"

typedef struct Assembler {
    const char *program; /* path of ptxas; NULL: the library */
    const char *name;    /* "ptxas 13.0": what the machine code depends on beside the PTX */
} Assembler;

/* What became of one kernel's PTX. */
typedef struct Assembled {
    const void *cubin;
    uint64_t size;
    uint32_t registers, spilled, stack; /* per thread; bytes of registers spilled, local frame */
    const char *warning;                /* the first C75.. message, or NULL */
    const char *error;                  /* NULL: assembled */
} Assembled;

/* NULL: there is none that says which it is. */
const Assembler *assembler_find(Arena *a);
void assembler_run(const Assembler *by, const char *ptx, const char *arch, Arena *a,
                   Assembled *out);

#endif
