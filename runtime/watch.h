/* Looking at buffers between the steps of a run, for `graphc verify`. Not part of the public API.
 */
#ifndef RUNTIME_WATCH_H
#define RUNTIME_WATCH_H

#include "runtime/graphc.h"

/* Called when step `step` of a run is done and `next` follows: a larger number, but for a loop that
 * goes on. A failure ends the run. */
typedef graphc_status (*WatchStep)(void *ctx, graphc_session *s, uint32_t step, uint32_t next);
/* fn NULL: no more. Watched runs go step by step. */
void watch_steps(graphc_session *s, WatchStep fn, void *ctx);
/* Inside fn: bytes of a buffer of the session's target, 0 if it is gone, and what they are now. */
uint64_t watch_bytes(const graphc_session *s, uint32_t buffer);
graphc_status watch_read(graphc_session *s, uint32_t buffer, void *to, uint64_t bytes);

#endif
