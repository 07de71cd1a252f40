/* What a training plan says about itself, so that whoever trains with it needs the plan alone: the
 * role of each state, what adapters start as and how PEFT is told of them, what data has to look
 * like. */
#ifndef FRONTEND_DRIVER_TRAIN_FACTS_H
#define FRONTEND_DRIVER_TRAIN_FACTS_H

#include "frontend/driver/pipeline.h"

/* Needs p->training; fills in facts and notes. t: NULL for a plan that runs beside adapters. */
graphc_status train_facts(Pipeline *p, const graphc_training *t, PlanBuildOptions *out);

#endif
