/* The part of plan_parse that follows indices: records against each other. */
#ifndef RUNTIME_PLAN_CHECK_H
#define RUNTIME_PLAN_CHECK_H

#include "runtime/plan.h"

/* Sections are mapped and stage has a byte per expression, which this fills. */
graphc_status plan_check(Plan *p, ErrorText error);

#endif
