#include "runtime/base/file.h"
#include "runtime/train/json_read.h"
#include "runtime/train/json_write.h"
#include "runtime/train/log.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- the file ------------------------------------------------------------------------------- */

/* The step of a whole line; UINT64_MAX if it is none. */
static uint64_t step_of(const char *line, size_t n) {
    JsonRead r;
    JsonSpan key;
    int64_t step = -1;
    jr_init(&r, line, n);
    for (jr_object(&r); jr_key(&r, &key);)
        if (jr_is(key, "step"))
            jr_i64(&r, &step);
        else
            jr_skip(&r);
    return jr_end(&r) && step >= 0 ? (uint64_t)step : UINT64_MAX;
}

/* Keeps the lines of the first steps. */
static graphc_status cut_file(const char *path, uint64_t first, ErrorText e) {
    FileMap m;
    Text kept = {0};
    char why[256];
    if (access(path, F_OK) != 0) return GRAPHC_OK;
    graphc_status st = file_map(path, &m, why);
    if (st != GRAPHC_OK) return error_set(e, st, "%s %s", path, why);
    const char *at = (const char *)m.data, *end = at + m.size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) break;
        size_t n = (size_t)(stop - at) + 1;
        if (first && step_of(at, n) <= first) text_putn(&kept, at, n);
        at += n;
    }
    if (kept.failed)
        st = error_set(e, GRAPHC_NO_MEMORY, "not enough memory for %s", path);
    else if (kept.n != m.size && (st = file_write(path, kept.p, kept.n, why)) != GRAPHC_OK)
        st = error_set(e, st, "%s %s", path, why);
    text_free(&kept);
    if (m.data) file_unmap(&m);
    return st;
}

graphc_status log_open(Log *l, const char *path, FILE *json, FILE *progress, uint64_t first,
                       uint64_t steps, ErrorText e) {
    *l = (Log){.fd = -1,
               .json = json,
               .progress = progress && isatty(fileno(progress)) ? progress : NULL,
               .first = first,
               .steps = steps,
               .start = seconds(),
               .eval_loss = (double)NAN};
    if (!path) return GRAPHC_OK;
    GC_TRY(cut_file(path, first, e));
    l->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (l->fd >= 0) return GRAPHC_OK;
    return error_set(e, GRAPHC_IO, "%s cannot be opened: %s", path, strerror(errno));
}

void log_close(Log *l) {
    if (l->fd >= 0) close(l->fd);
    if (l->line) fputc('\n', l->progress);
    *l = (Log){.fd = -1};
}

/* Of a line that does not fit the rest says why. */
static bool put_whole(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

/* One write a line: a process that is killed leaves whole lines, and a part of one at most. */
static graphc_status put_line(const Log *l, JsonWrite *j, ErrorText e) {
    graphc_status st = GRAPHC_OK;
    jw_end(j);
    text_put(&j->text, "\n");
    if (j->text.failed)
        st = error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a line of the log");
    else if (l->fd >= 0 && !put_whole(l->fd, j->text.p, j->text.n))
        st = error_set(e, GRAPHC_IO, "the log cannot be written: %s", strerror(errno));
    else if (l->json && (fputs(j->text.p, l->json) == EOF || fflush(l->json) != 0))
        st = error_set(e, GRAPHC_IO, "standard output cannot be written: %s", strerror(errno));
    text_free(&j->text);
    return st;
}

/* --- the terminal --------------------------------------------------------------------------- */

/* 12345678 -> "12.3M" */
static const char *short_number(double v, char out[16]) {
    static const char units[] = " kMGTP";
    int k = 0;
    while (fabs(v) >= 999.5 && k < 5) v /= 1000, k++;
    snprintf(out, 16, k ? "%.*f%c" : "%.*f",
             v < 9.995 && k   ? 2
             : v < 99.95 && k ? 1
                              : 0,
             v, units[k]);
    return out;
}

static const char *clock_text(double s, char out[24]) {
    const double most = 359999; /* 99:59:59 */
    unsigned long t = !(s >= 0) ? 0 : s > most ? (unsigned long)most : (unsigned long)(s + 0.5);
    if (t >= 3600)
        snprintf(out, 24, "%lu:%02lu:%02lu", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(out, 24, "%lu:%02lu", t / 60, t % 60);
    return out;
}

static void bar(double part, int cells, char *out) {
    int full = (int)(part * cells);
    for (int i = 0; i < cells; i++) out[i] = i < full ? '=' : i == full ? '>' : ' ';
    out[cells] = 0;
}

enum { CELLS = 20, FIELDS = 7, FIELD = 80 };

/* The most dispensable last, and as they stand in the line. */
typedef enum ProgressField { P_loss, P_left, P_rate, P_eval, P_lr, P_norm, P_bytes } ProgressField;
static const ProgressField progress_order[FIELDS] = {P_loss, P_eval,  P_lr,  P_norm,
                                                     P_rate, P_bytes, P_left};

static void fill_fields(const Log *l, const LogStep *s, double left, char (*f)[FIELD]) {
    char rate[16], bytes[16], eta[24];
    snprintf(f[P_loss], FIELD, " loss %.4f", s->loss);
    if (!isnan(l->eval_loss)) snprintf(f[P_eval], FIELD, " (held out %.4f)", l->eval_loss);
    snprintf(f[P_lr], FIELD, "  lr %.2e", s->lr);
    snprintf(f[P_norm], FIELD, "  |g| %.3f", s->grad_norm);
    snprintf(f[P_rate], FIELD, "  %s tok/s", short_number(s->tokens_per_s, rate));
    snprintf(f[P_bytes], FIELD, "  %sB", short_number((double)s->peak_bytes, bytes));
    snprintf(f[P_left], FIELD, "  %s left", clock_text(left, eta));
}

/* The first `most` fields behind a bar; its length. */
static size_t put_fields(const char *count, double part, int ncells, int most,
                         const char (*f)[FIELD], char *out, size_t size) {
    char cells[CELLS + 1];
    bar(part, ncells, cells);
    size_t n = (size_t)snprintf(out, size, "%s [%s]", count, cells);
    for (int k = 0; k < FIELDS; k++)
        if ((int)progress_order[k] < most)
            n += (size_t)snprintf(out + n, size - n, "%s", f[progress_order[k]]);
    return n;
}

/* A narrow terminal has a shorter bar, then fewer fields, and at last a part of the line. */
void log_progress(const Log *l, const LogStep *s, double now, uint32_t width, char *out,
                  size_t size) {
    char f[FIELDS][FIELD] = {{0}}, line[(FIELDS + 1) * FIELD], count[48];
    uint64_t steps = l->steps > s->step ? l->steps : s->step, done = s->step - l->first;
    double each = done ? (now - l->start) / (double)done : 0,
           part = steps ? (double)s->step / (double)steps : 0;
    int ncells = CELLS, most = FIELDS;
    fill_fields(l, s, each * (double)(steps - s->step), f);
    snprintf(count, sizeof count, "%llu/%llu", (unsigned long long)s->step,
             (unsigned long long)steps);
    while (put_fields(count, part, ncells, most, (const char(*)[FIELD])f, line, sizeof line) >
               width &&
           most > 1)
        if (ncells > CELLS / 4)
            ncells--;
        else
            most--;
    snprintf(out, size, "%.*s", width < sizeof line ? (int)width : (int)sizeof line - 1, line);
}

static void show_progress(Log *l, const LogStep *s) {
    struct winsize w;
    char line[256];
    uint32_t width = ioctl(fileno(l->progress), TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
    log_progress(l, s, seconds(), width - 1, line, sizeof line);
    fprintf(l->progress, "\r%s\033[K", line);
    fflush(l->progress);
    l->line = true;
}

/* -------------------------------------------------------------------------------------------- */

graphc_status log_step(Log *l, const LogStep *s, ErrorText e) {
    JsonWrite j = {0};
    jw_object(&j, NULL);
    jw_i64(&j, "step", (int64_t)s->step);
    jw_f64(&j, "loss", s->loss);
    jw_f64(&j, "lr", s->lr);
    jw_f64(&j, "grad_norm", s->grad_norm);
    jw_i64(&j, "tokens", (int64_t)s->tokens);
    jw_f64(&j, "tokens_per_s", s->tokens_per_s);
    jw_i64(&j, "peak_bytes", (int64_t)s->peak_bytes);
    if (s->loss_scale > 0) jw_f64(&j, "loss_scale", s->loss_scale);
    if (s->skipped) jw_bool(&j, "skipped", true);
    GC_TRY(put_line(l, &j, e));
    if (l->progress) show_progress(l, s);
    return GRAPHC_OK;
}

graphc_status log_eval(Log *l, uint64_t step, double loss, ErrorText e) {
    JsonWrite j = {0};
    l->eval_loss = loss;
    jw_object(&j, NULL);
    jw_i64(&j, "step", (int64_t)step);
    jw_f64(&j, "eval_loss", loss);
    return put_line(l, &j, e);
}
