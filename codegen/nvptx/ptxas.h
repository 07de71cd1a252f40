/* The PTX assembler, a program outside of graphc. */
#ifndef CODEGEN_NVPTX_PTXAS_H
#define CODEGEN_NVPTX_PTXAS_H

#include "codegen/codegen.h"

/* What the assembler says of a kernel. */
typedef struct PtxasKernel {
    const char *symbol;
    uint32_t registers, spilled; /* per thread; bytes */
} PtxasKernel;

typedef struct PtxasReport {
    VEC(PtxasKernel) kernels;
} PtxasReport;

/* PTX text to a cubin. Without an assembler, or when it fails, *out and *r stay empty and a warning
 * says so: the driver compiles the PTX at load then. */
graphc_status ptxas_assemble(const char *ptx, const char *arch, Arena *a, DiagSink *d,
                             CodeBlob *out, PtxasReport *r);
void ptxas_warn_spills(const PtxasReport *r, DiagSink *d);

#endif
