/* Where a plan comes from: notes in it that bench and inspect show. */
#ifndef FRONTEND_DRIVER_ORIGIN_H
#define FRONTEND_DRIVER_ORIGIN_H

#include "frontend/driver/pipeline.h"

/* "graphc 0.1", with the commit in builds that were told it (GRAPHC_COMMIT of the build: releases).
 */
#define ORIGIN_MADE_BY "made_by"
/* XXH3 of the model's file, 16 digits; weights in files of their own are not part of it. */
#define ORIGIN_MODEL "model"

/* --accuracy-level, where it was given. */
#define ORIGIN_LEVEL "accuracy_level"

const char *origin_release(Arena *a);
/* Adds them to the notes that are there. */
void origin_notes(const Pipeline *p, uint32_t accuracy_level, PlanBuildOptions *o);

#endif
