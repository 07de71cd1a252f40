/* What a schedule holds when it holds the most, by cause, in bytes. */
#ifndef FRONTEND_DRIVER_TRAINING_PEAK_H
#define FRONTEND_DRIVER_TRAINING_PEAK_H

#include "fusion/schedule/schedule.h"

typedef struct Peak {
    double states, constants, prepared; /* all the time */
    double kept;                        /* values of forward that backward reads */
    double gradients;                   /* what updates read */
    double temporaries;                 /* all else */
    uint32_t step;
    uint32_t backward; /* the first step that stores anything late */
} Peak;

/* At sizes as they are expected. */
Peak peak_of(const Schedule *s);
double peak_total(const Peak *p);
/* A line for the peak, then one for each value that forward keeps for backward, the largest first,
 * and one for each place of which something is computed again. */
const char *peak_text(const Schedule *s, const Peak *p, Arena *a);

#endif
