/* The regular expressions of adapter configurations: Python's, as far as POSIX has the same. */
#ifndef TRAIN_PATTERN_H
#define TRAIN_PATTERN_H

#include "runtime/error.h"
#include <stdbool.h>

/* end: the pattern is that of a path's end, which begins at a dot or with the path; else that of a
 * whole path. GRAPHC_UNSUPPORTED: look-ahead, references, counted repetition and what else POSIX
 * lacks. */
GRAPHC_MUST_USE graphc_status pattern_matches(const char *pattern, const char *path, bool end,
                                              bool *out, ErrorText e);

#endif
