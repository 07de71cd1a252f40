/* A line on the terminal for what takes over a second: [17/83] reference. Nothing when standard
 * error is none. */
#ifndef FRONTEND_DRIVER_CLI_PROGRESS_H
#define FRONTEND_DRIVER_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Starts with what is being done; the rest is 0. */
typedef struct Progress {
    const char *what;
    bool quiet;
    double start, last; /* when it began, when it was shown */
} Progress;

void progress_show(void *progress, uint32_t done, uint32_t of);
void progress_end(Progress *p); /* takes the line away */

#endif
