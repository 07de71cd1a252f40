#include "runtime/error.h"
#include <stdarg.h>
#include <stdio.h>

graphc_status error_set(ErrorText e, graphc_status status, const char *fmt, ...) {
    if (e.text && e.size) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e.text, e.size, fmt, ap);
        va_end(ap);
    }
    return status;
}
