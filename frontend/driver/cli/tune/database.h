/* A database of what `graphc tune` found: text, one line a kernel, in order:
 *
 *   graphc-tuned 1
 *   MACHINE <tab> SIGNATURE <tab> WAY
 *
 * MACHINE is the target and its multiprocessors, "sm_90a/132"; SIGNATURE and WAY are the compiler's
 * (CodeKernel). Empty lines and those that start with # count for nothing. */
#ifndef FRONTEND_DRIVER_CLI_TUNE_DATABASE_H
#define FRONTEND_DRIVER_CLI_TUNE_DATABASE_H

#include "runtime/base/arena.h"
#include "runtime/base/diag.h"

typedef struct Tuned Tuned;

Tuned *tuned_create(Arena *a);
/* Adds the file's lines. A file that is no such database is an error, one of another version counts
 * for nothing, with a note, and so do lines of machines that no target of this graphc is.
 * `may_lack`: it need not be there. */
graphc_status tuned_read(Tuned *t, const char *path, bool may_lack, DiagSink *d);
graphc_status tuned_write(const Tuned *t, const char *path, DiagSink *d);
/* In place of what there is of that kernel. */
void tuned_put(Tuned *t, const char *machine, const char *signature, const char *way);
const char *tuned_machine(Arena *a, const char *target, uint32_t processors);
/* CodeOptions.tuned, with a Tuned. */
const char *tuned_way(void *tuned, const char *target, const char *signature);

#endif
