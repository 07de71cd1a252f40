/* Status names and the failure of an invariant. */
#include "runtime/base/status.h"
#include <stdio.h>
#include <stdlib.h>

const char *status_name(graphc_status s) {
    static const char *const names[] = {
        [GRAPHC_OK] = "ok",
        [GRAPHC_MISMATCH] = "mismatch",
        [GRAPHC_USAGE] = "usage error",
        [GRAPHC_INVALID] = "invalid file",
        [GRAPHC_UNSUPPORTED] = "unsupported",
        [GRAPHC_RUNTIME] = "run-time failure",
        [GRAPHC_NO_MEMORY] = "out of memory",
        [GRAPHC_IO] = "input/output failure",
        [GRAPHC_CANCELLED] = "cancelled",
    };
    size_t i = (size_t)s;
    return i < sizeof names / sizeof names[0] ? names[i] : "unknown status";
}

_Noreturn void gc_assert_failed(const char *what, const char *file, int line) {
    fprintf(stderr, "graphc: internal error: %s:%d: %s does not hold\n", file, line, what);
    abort();
}
