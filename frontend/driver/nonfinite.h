/* Which kernel of a run first writes what is no finite number. -inf alone is what masks are made
 * of: it counts once it has become NaN or inf. */
#ifndef FRONTEND_DRIVER_NONFINITE_H
#define FRONTEND_DRIVER_NONFINITE_H

#include "fusion/schedule/schedule.h"
#include "runtime/graphc.h"

typedef struct NonFinite {
    const Schedule *schedule; /* of the session's plan */
    char *out;                /* the caller's, empty until one is found */
    size_t size;
} NonFinite;

/* RunOptions.look with a NonFinite as its context: the first such kernel is told in `out`, with the
 * node that it computes. */
void nonfinite_look(void *context, graphc_session *s, char *out, size_t size);

#endif
