/* The name that was meant: "did you mean". */
#ifndef FRONTEND_DRIVER_CLI_NEAR_H
#define FRONTEND_DRIVER_CLI_NEAR_H

#include "runtime/base/arena.h"

#include <stdint.h>

typedef struct Near {
    const char *name; /* as it was typed */
    const char *best; /* the nearest so far, NULL: none is near */
    uint32_t distance;
} Near;

/* Near: at most a third of its letters, or two, changed, left out or added. */
void near_try(Near *n, const char *candidate);
/* Tries what stands between quotes: the names in places of nodes. */
void near_quoted(Near *n, Arena *a, const char *text);

#endif
