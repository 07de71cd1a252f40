/* What a training plan keeps of forward for backward, within a budget. */
#ifndef FRONTEND_DRIVER_TRAINING_REMEMBER_H
#define FRONTEND_DRIVER_TRAINING_REMEMBER_H

#include "frontend/driver/pipeline.h"

/* Are its options among those that there are? */
graphc_status remember_check(const graphc_training *t, DiagSink *d);
/* The schedule of g, a target's last graph before fusion, and what its memory is for, in words.
 * With a budget, the first of ways that take less and less memory, and more and more time, that
 * meets it; an error that says the least where none does. */
graphc_status remember(Pipeline *p, Graph *g, const Machine *m, const graphc_training *t,
                       Schedule **s, const char **text);

#endif
