/* Which architectures' code a GPU runs. */
#include "runtime/cuda/driver.h"
#include <stdlib.h>
#include <string.h>

/* "sm_80": this architecture and later ones, through PTX where the machine code is another
 * generation's. "sm_90a": this one alone. */
uint32_t cuda_arch_rank(const char *target, int major, int minor) {
    if (strncmp(target, "sm_", 3) != 0) return 0;
    char *end;
    long arch = strtol(target + 3, &end, 10), device = 10L * major + minor;
    bool alone = strcmp(end, "a") == 0;
    if (arch < 10 || arch > 9999 || (!alone && *end)) return 0;
    if (alone ? arch != device : arch > device) return 0;
    return (uint32_t)(2 * arch + alone);
}
