#include "runtime/train/schedule.h"
#include <math.h>
#include <string.h>

static const char *const names[SCHEDULE_KINDS] = {"constant", "linear", "cosine", "wsd"};

const char *schedule_name(ScheduleKind k) {
    return names[k];
}

bool schedule_from_name(const char *name, ScheduleKind *out) {
    for (int k = 0; k < SCHEDULE_KINDS; k++) {
        if (strcmp(name, names[k])) continue;
        *out = (ScheduleKind)k;
        return true;
    }
    return false;
}

graphc_status schedule_check(const RateSchedule *s, ErrorText e) {
    if (!(s->lr >= 0 && s->lr < HUGE_VAL && s->min >= 0 && s->min <= s->lr))
        return error_set(e, GRAPHC_USAGE,
                         "a learning rate of %g down to %g; they are numbers with 0 <= min <= lr",
                         s->lr, s->min);
    uint64_t decay = s->kind == SCHEDULE_wsd ? s->decay : 0;
    if (s->steps && s->warmup <= s->steps && decay <= s->steps - s->warmup) return GRAPHC_OK;
    return error_set(e, GRAPHC_USAGE, "%llu steps of warm-up and %llu of decay in %llu steps",
                     (unsigned long long)s->warmup, (unsigned long long)decay,
                     (unsigned long long)s->steps);
}

/* How much of `all` steps is left at step `done` of them: from 1 down to 0. */
static double left(uint64_t done, uint64_t all) {
    return done >= all ? 0 : (double)(all - done) / (double)all;
}

static double factor(const RateSchedule *s, uint64_t step) {
    const double pi = 3.14159265358979323846;
    uint64_t stable = s->steps - s->decay;
    switch (s->kind) {
    case SCHEDULE_linear: return left(step - s->warmup, s->steps - s->warmup);
    case SCHEDULE_cosine:
        return (1 + cos(pi * (1 - left(step - s->warmup, s->steps - s->warmup)))) / 2;
    case SCHEDULE_wsd: return step < stable ? 1 : left(step - stable, s->decay);
    default: return 1;
    }
}

double schedule_rate(const RateSchedule *s, uint64_t step) {
    if (step < s->warmup) return s->lr * (double)step / (double)s->warmup;
    return s->min + (s->lr - s->min) * factor(s, step);
}

/* Rounded up; as many as there can be where it is more. */
static uint64_t count(double x) {
    return x < 0x1p63 ? (uint64_t)ceil(x) : UINT64_MAX;
}

uint64_t schedule_steps(uint64_t rows, double epochs, uint32_t batch, uint32_t accumulate) {
    double steps = (double)rows * epochs / ((double)batch * accumulate);
    return steps > 1 ? count(steps) : 1;
}

uint64_t schedule_part(double value, uint64_t steps) {
    return count(value < 1 ? value * (double)steps : value);
}
