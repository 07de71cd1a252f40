/* Learning rates by step. With w warm-up steps, n steps in all, d steps of decay (wsd), and step k
 * from 0 on, the rate is min + (lr - min) * f, but lr * k / w where k < w:
 *
 *   constant  f = 1
 *   linear    f = 1 - p                   p = (k - w) / (n - w), at most 1
 *   cosine    f = (1 + cos(pi * p)) / 2
 *   wsd       f = 1 up to step n - d, then 1 - (k - (n - d)) / d
 *
 * as PyTorch's LambdaLR has it with transformers' schedules. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "runtime/error.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum ScheduleKind {
    SCHEDULE_constant,
    SCHEDULE_linear,
    SCHEDULE_cosine,
    SCHEDULE_wsd, /* warm-up, stable, decay */
    SCHEDULE_KINDS
} ScheduleKind;

typedef struct RateSchedule {
    ScheduleKind kind;
    double lr, min;
    uint64_t warmup, decay, steps;
} RateSchedule;

const char *schedule_name(ScheduleKind k);
bool schedule_from_name(const char *name, ScheduleKind *out);
/* GRAPHC_USAGE: rates that are no numbers or below 0, min above lr, more warm-up and decay than
 * steps. */
GRAPHC_MUST_USE graphc_status schedule_check(const RateSchedule *s, ErrorText e);
double schedule_rate(const RateSchedule *s, uint64_t step);

/* Steps that take `epochs` times `rows`, each `batch` rows in each of `accumulate` parts; the last
 * one may begin the next epoch. At least 1. */
uint64_t schedule_steps(uint64_t rows, double epochs, uint32_t batch, uint32_t accumulate);
/* A number of steps as people give it: itself, or a part of all below 1, rounded up. */
uint64_t schedule_part(double value, uint64_t steps);

#endif
