/* The one function that both shared libraries define themselves. */
#include "runtime/graphc.h"

uint32_t graphc_version(void) {
    return GRAPHC_VERSION_MAJOR << 16 | GRAPHC_VERSION_MINOR;
}
