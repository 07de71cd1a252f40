/* Status plumbing shared by every layer. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "runtime/base/graphc_status.h"

/* Returns the status from the calling function unless the expression is GRAPHC_OK. */
#define GC_TRY(expr)                                                                               \
    do {                                                                                           \
        graphc_status gc_try_status_ = (expr);                                                     \
        if (gc_try_status_ != GRAPHC_OK) return gc_try_status_;                                    \
    } while (0)

const char *status_name(graphc_status s);

/* An invariant of graphc itself: always checked, also with NDEBUG. Prints the place and aborts;
 * never used on anything that an input file can decide. */
#define GC_ASSERT(cond) ((cond) ? (void)0 : gc_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void gc_assert_failed(const char *what, const char *file, int line);

#endif
