/* Bisection: the n at which something goes wrong. */
#ifndef FRONTEND_DRIVER_BISECT_H
#define FRONTEND_DRIVER_BISECT_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Asks with numbers between right and wrong, exclusively, of which the one is known to be right and
 * the other to be wrong; *first is wrong where *first - 1 is right. Stops when asking fails. */
typedef graphc_status (*BisectAsk)(void *ctx, uint32_t n, bool *wrong);
graphc_status bisect(uint32_t right, uint32_t wrong, BisectAsk ask, void *ctx, uint32_t *first);

#endif
