/* Where a failing runtime call leaves its message: a caller's buffer, cut to fit. */
#ifndef RUNTIME_ERROR_H
#define RUNTIME_ERROR_H

#include "runtime/base/status.h"
#include <stddef.h>

typedef struct ErrorText {
    char *text; /* may be NULL */
    size_t size;
} ErrorText;

/* Writes the message and returns `status`, so that `return error_set(...)` works. */
graphc_status error_set(ErrorText e, graphc_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
