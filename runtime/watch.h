/* Looking at buffers between the steps of a run, for `graphc verify`, and trying the variants of
 * steps, for `graphc tune` (tune.c). Not part of the public API. */
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
/* Of a buffer that prepare steps write: it holds what they made from behind step *from to *until,
 * of a lean session; of others from 0 to UINT32_MAX. */
void watch_prepared(const graphc_session *s, uint32_t buffer, uint32_t *from, uint32_t *until);
/* Where they are, if this process can read them. */
void *watch_host(const graphc_session *s, uint32_t buffer);
graphc_status watch_read(graphc_session *s, uint32_t buffer, void *to, uint64_t bytes);

/* Which of the plan's targets the session runs, and how many multiprocessors its device has (of a
 * CPU 1): what is the fastest on one machine need not be on another. */
uint32_t tune_target(const graphc_session *s);
uint32_t tune_processors(const graphc_session *s);

/* The step takes its variant of that number from the next run on; UINT32_MAX: the one that the plan
 * chooses for the sizes at hand. The step is a kernel's and has that variant. */
void tune_try(graphc_session *s, uint32_t step, uint32_t variant);

/* Remembers what the session's states hold now; at most once. */
graphc_status tune_keep(graphc_session *s);
/* Seconds of one run of the first entry on a device whose caches hold nothing of the plan, and with
 * the states as tune_keep found them. Inputs are bound. A run before it, which does not count, sees
 * to whatever a first run of this form does. */
graphc_status tune_time(graphc_session *s, double *seconds);

#endif
