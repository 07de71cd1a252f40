#include "frontend/driver/cli/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_show(void *progress, uint32_t done, uint32_t of) {
    Progress *p = progress;
    double t = now();
    if (p->start == 0) p->start = t;
    if (p->quiet || t < p->start + 1 || t < p->last + 0.1 || !isatty(STDERR_FILENO)) return;
    p->last = t;
    fprintf(stderr, "\r\033[K[%u/%u] %s", done, of, p->what);
    fflush(stderr);
}

void progress_end(Progress *p) {
    if (p->last > 0) fprintf(stderr, "\r\033[K");
}
