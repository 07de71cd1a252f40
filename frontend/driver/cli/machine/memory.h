/* How much memory there is to take. What takes more is refused beforehand: the kernel would grant
 * the addresses and end the process when they are used. */
#ifndef FRONTEND_DRIVER_CLI_MACHINE_MEMORY_H
#define FRONTEND_DRIVER_CLI_MACHINE_MEMORY_H

#include <stdint.h>

/* What the kernel can give without ending anybody, swap included, and no more than the process's
 * control group may have; UINT64_MAX where nothing tells. */
uint64_t memory_available(void);

#endif
