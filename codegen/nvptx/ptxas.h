/* The PTX assembler, a program outside of graphc. */
#ifndef CODEGEN_NVPTX_PTXAS_H
#define CODEGEN_NVPTX_PTXAS_H

#include "codegen/codegen.h"

/* PTX text to a cubin. Without an assembler, or when it fails, *out stays empty and a warning says
 * so: the driver compiles the PTX at load then. Register spills are reported too. */
graphc_status ptxas_assemble(const char *ptx, const char *arch, Arena *a, DiagSink *d,
                             CodeBlob *out);

#endif
