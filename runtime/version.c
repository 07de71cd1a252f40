/* The functions that all libraries define themselves. */
#include "runtime/graphc.h"
#include "runtime/base/status.h"

uint32_t graphc_version(void) {
    return GRAPHC_VERSION_MAJOR << 16 | GRAPHC_VERSION_MINOR;
}

const char *graphc_status_name(graphc_status s) {
    return status_name(s);
}
