/* What a run says about itself: a JSON line for every step and evaluation, in a file and on
 * standard output if wanted; one line of progress on a terminal; and a page with curves made of the
 * file. */
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H

#include "runtime/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct LogStep {
    uint64_t step;              /* from 1 on */
    double loss, lr, grad_norm; /* NaN and infinity become null */
    uint64_t tokens;            /* so far */
    double tokens_per_s;        /* of this step */
    uint64_t peak_bytes;
    double loss_scale; /* of f16; 0: there is none */
    bool skipped;      /* the step changed nothing: its loss or gradients were no finite numbers */
} LogStep;

typedef struct Log {
    int fd;           /* of the file; -1: none */
    FILE *json;       /* NULL: none */
    FILE *progress;   /* a terminal; NULL: none */
    uint64_t steps;   /* in all */
    uint64_t first;   /* step that this process began after */
    double start;     /* seconds, monotonic */
    double eval_loss; /* the last one; NaN: there was none */
    bool line;        /* the terminal's line is not ended */
} Log;

/* path: of the file, or NULL. Lines after step `first` are removed from it, as are parts of lines:
 * a run that goes on from a checkpoint says those steps again. json: gets the lines too, or NULL.
 * progress: gets a line of progress if it is a terminal, or NULL. */
GRAPHC_MUST_USE graphc_status log_open(Log *l, const char *path, FILE *json, FILE *progress,
                                       uint64_t first, uint64_t steps, ErrorText e);
GRAPHC_MUST_USE graphc_status log_step(Log *l, const LogStep *s, ErrorText e);
GRAPHC_MUST_USE graphc_status log_eval(Log *l, uint64_t step, double loss, ErrorText e);
void log_close(Log *l); /* also one that failed to open */

/* The line of progress in at most `width` columns, without an end of line. */
void log_progress(const Log *l, const LogStep *s, double now, uint32_t width, char *out,
                  size_t size);

/* Writes a page that needs nothing from elsewhere, from a file of such lines. */
GRAPHC_MUST_USE graphc_status log_html(const char *lines_path, const char *html_path,
                                       const char *title, ErrorText e);

#endif
