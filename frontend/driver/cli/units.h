/* Numbers as users read them: three digits and a unit. */
#ifndef FRONTEND_DRIVER_CLI_UNITS_H
#define FRONTEND_DRIVER_CLI_UNITS_H

#include "runtime/base/arena.h"

const char *unit_bytes(Arena *a, double bytes);               /* "6.26 MB", "512 B" */
const char *unit_count(Arena *a, double n, const char *what); /* "186 MFLOP", "9.31 GFLOP/s" */
const char *unit_seconds(Arena *a, double seconds);           /* "1.86 ms" */

#endif
