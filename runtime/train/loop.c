#include "runtime/train/loop.h"
#include "runtime/base/file.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/data/order.h"
#include "runtime/train/data/random.h"
#include "runtime/train/log.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

typedef struct Loop {
    const LoopModel *model;
    const LoopOptions *o;
    Order order;
    Log log;
    int lock; /* the folder, held; -1: not yet */
    char *checkpoints, *lines, *page;
    uint64_t *rows; /* of a step */
    uint64_t step, tokens;
    double loss, best; /* of evaluations; NaN: there was none */
    uint32_t waiting;  /* evaluations since the best one */
    uint32_t skipped;  /* steps in a row that were not finite */
    bool unmeasured;   /* it was interrupted where an evaluation is due */
    ErrorText e;
} Loop;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static graphc_status no_memory(const Loop *l) {
    return error_set(l->e, GRAPHC_NO_MEMORY, "not enough memory to train");
}

/* --- checkpoints ----------------------------------------------------------------------------- */

static graphc_status save(Loop *l, bool best) {
    CheckpointWriter w;
    const CheckpointInfo info = {.step = l->step,
                                 .tokens = l->tokens,
                                 .epoch = l->order.epoch,
                                 .position = l->order.position,
                                 .waiting = l->waiting,
                                 .unmeasured = l->unmeasured,
                                 .held = l->o->held,
                                 .loss = l->loss,
                                 .best_loss = l->best,
                                 .options = l->o->options,
                                 .noptions = l->o->noptions};
    GC_TRY(checkpoint_begin(&w, l->checkpoints, l->e));
    char *path = checkpoint_path(&w, CHECKPOINT_STATES);
    graphc_status st = path ? l->model->save(l->model->self, path, l->e) : no_memory(l);
    free(path);
    if (st != GRAPHC_OK) {
        checkpoint_abandon(&w);
        return st;
    }
    GC_TRY(checkpoint_commit(&w, &info, best, l->e));
    return checkpoint_prune(l->checkpoints, l->o->keep ? l->o->keep : 1, l->e);
}

static graphc_status take_up(Loop *l, const Checkpoint *c) {
    GC_TRY(checkpoint_match(c, l->o->options, l->o->noptions, l->e));
    GC_TRY(order_seek(&l->order, c->info.epoch, c->info.position, l->e));
    char *path = folder_join(c->folder, CHECKPOINT_STATES);
    graphc_status st = path ? l->model->load(l->model->self, path, l->e) : no_memory(l);
    free(path);
    l->step = c->info.step;
    l->tokens = c->info.tokens;
    l->unmeasured = c->info.unmeasured;
    if (c->info.held != l->o->held) return st; /* losses of other data say nothing of this */
    l->loss = c->info.loss;
    l->best = c->info.best_loss;
    l->waiting = (uint32_t)c->info.waiting;
    return st;
}

graphc_status loop_check_folder(const char *folder, bool resume, ErrorText e) {
    char *checkpoints = folder_join(folder, "checkpoints");
    if (!checkpoints) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to train");
    const bool any = checkpoint_any(checkpoints);
    free(checkpoints);
    if (!any || resume) return GRAPHC_OK;
    return error_set(e, GRAPHC_USAGE, "%s has a run already: resume it, or take another folder",
                     folder);
}

/* A run that was killed before its first checkpoint begins again. */
static graphc_status find_run(Loop *l) {
    Checkpoint c;
    GC_TRY(loop_check_folder(l->o->folder, l->o->resume, l->e));
    if (!checkpoint_any(l->checkpoints)) return GRAPHC_OK;
    GC_TRY(checkpoint_open(l->checkpoints, "latest", &c, l->e));
    graphc_status st = take_up(l, &c);
    checkpoint_close(&c);
    return st;
}

/* --- steps ----------------------------------------------------------------------------------- */

static bool all_finite(const LoopResult *r) {
    return isfinite(r->loss) && isfinite(r->grad_norm);
}

static graphc_status not_finite(Loop *l, const LoopStep *s, const LoopResult *r) {
    char by[768] = "";
    if (l->model->blame) l->model->blame(l->model->self, s, r, by, sizeof by);
    return error_set(l->e, GRAPHC_RUNTIME,
                     "step %llu: the loss is %g and the gradient's norm %g, at a rate of %g%s%s",
                     (unsigned long long)l->step, r->loss, r->grad_norm, s->lr, *by ? "; " : "",
                     by);
}

/* Machines differ in the sign of a NaN that they make: it is not printed. */
static double unsigned_nan(double x) {
    return isnan(x) ? (double)NAN : x;
}

static graphc_status one_step(Loop *l, LoopEnd *end) {
    const LoopOptions *o = l->o;
    LoopResult r = {0};
    order_take(&l->order, l->rows, o->batch * o->accumulate);
    const LoopStep s = {.step = l->step + 1,
                        .lr = schedule_rate(&o->schedule, l->step),
                        .rows = l->rows,
                        .next = order_next(&l->order, o->batch * o->accumulate),
                        .batch = o->batch,
                        .accumulate = o->accumulate};
    double start = seconds();
    GC_TRY(l->model->step(l->model->self, &s, &r, l->e));
    double took = seconds() - start;
    r.loss = unsigned_nan(r.loss);
    r.grad_norm = unsigned_nan(r.grad_norm);
    l->step++;
    l->tokens += r.tokens;
    const LogStep said = {.step = l->step,
                          .loss = r.loss,
                          .lr = s.lr,
                          .grad_norm = r.grad_norm,
                          .tokens = l->tokens,
                          .tokens_per_s = took > 0 ? (double)r.tokens / took : 0,
                          .peak_bytes = r.peak_bytes,
                          .loss_scale = r.loss_scale,
                          .skipped = !all_finite(&r)};
    GC_TRY(log_step(&l->log, &said, l->e));
    if (isnan(l->loss)) end->loss = r.loss;
    l->skipped = all_finite(&r) ? 0 : l->skipped + 1;
    return l->skipped > o->skip ? not_finite(l, &s, &r) : GRAPHC_OK;
}

/* *better: it is the lowest loss so far. */
static graphc_status evaluate(Loop *l, bool *better) {
    double loss = 0;
    GC_TRY(l->model->evaluate(l->model->self, &loss, l->e));
    GC_TRY(log_eval(&l->log, l->step, loss, l->e));
    *better = isfinite(loss) && !(loss >= l->best);
    l->loss = loss;
    l->waiting = *better ? 0 : l->waiting + 1;
    if (*better) l->best = loss;
    return GRAPHC_OK;
}

static bool due(uint64_t every, uint64_t step) {
    return every && step % every == 0;
}

/* What comes after a step. *over: it was the last one. */
static graphc_status after_step(Loop *l, LoopEnd *end, bool *over) {
    const LoopOptions *o = l->o;
    bool last = l->step >= o->schedule.steps, better = false;
    bool measured = l->model->evaluate && (last || due(o->eval_every, l->step));
    end->stopped = o->stop && *o->stop && !last;
    l->unmeasured = measured && end->stopped;
    if (measured && !end->stopped) GC_TRY(evaluate(l, &better));
    end->early = o->patience && l->waiting >= o->patience && !last;
    *over = last || end->stopped || end->early;
    if (*over || better || due(o->save_every, l->step)) GC_TRY(save(l, better));
    return GRAPHC_OK;
}

static graphc_status run(Loop *l, LoopEnd *end) {
    bool over = l->step >= l->o->schedule.steps, better;
    if (!l->step && l->model->evaluate && l->o->eval_every) GC_TRY(evaluate(l, &better));
    if (l->unmeasured) GC_TRY(after_step(l, end, &over));
    while (!over) {
        GC_TRY(one_step(l, end));
        GC_TRY(after_step(l, end, &over));
    }
    return GRAPHC_OK;
}

/* -------------------------------------------------------------------------------------------- */

static graphc_status check_options(const Loop *l) {
    const LoopOptions *o = l->o;
    if (!o->rows || !o->batch || !o->accumulate || o->batch > UINT32_MAX / o->accumulate)
        return error_set(l->e, GRAPHC_USAGE, "%llu rows of data, %u a batch, %u batches a step",
                         (unsigned long long)o->rows, o->batch, o->accumulate);
    return schedule_check(&o->schedule, l->e);
}

/* One process at a time trains in a folder: another would take its files for what a killed one left
 * behind. Some file systems have no locks on folders: there nobody looks. */
static graphc_status hold_folder(Loop *l) {
    l->lock = open(l->o->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->lock < 0 || flock(l->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return GRAPHC_OK;
    return error_set(l->e, GRAPHC_USAGE, "%s: another process trains there", l->o->folder);
}

/* What the run is from here on: not before it is known that it may begin or go on. */
static graphc_status write_config(const Loop *l) {
    char why[256];
    const char *text = l->o->config;
    if (!text) return GRAPHC_OK;
    char *path = folder_join(l->o->folder, "config.json");
    if (!path) return no_memory(l);
    graphc_status st = file_write(path, text, strlen(text), why);
    if (st != GRAPHC_OK) st = error_set(l->e, st, "%s %s", path, why);
    free(path);
    return st;
}

static graphc_status begin(Loop *l) {
    char why[256];
    const LoopOptions *o = l->o;
    GC_TRY(check_options(l));
    graphc_status st = folder_make(o->folder, why);
    if (st != GRAPHC_OK) return error_set(l->e, st, "%s %s", o->folder, why);
    GC_TRY(hold_folder(l));
    l->checkpoints = folder_join(o->folder, "checkpoints");
    l->lines = folder_join(o->folder, "log.jsonl");
    l->page = folder_join(o->folder, "log.html");
    l->rows = reallocarray(NULL, (size_t)o->batch * o->accumulate, sizeof *l->rows);
    if (!l->checkpoints || !l->lines || !l->page || !l->rows) return no_memory(l);
    GC_TRY(order_init(&l->order, o->rows, o->seed, o->shuffle, l->e));
    GC_TRY(find_run(l));
    if (l->step > o->schedule.steps)
        return error_set(l->e, GRAPHC_USAGE, "%llu steps are done already, %llu are asked for",
                         (unsigned long long)l->step, (unsigned long long)o->schedule.steps);
    GC_TRY(write_config(l));
    return log_open(&l->log, l->lines, o->json, o->progress, l->step, o->schedule.steps, l->e);
}

graphc_status loop_run(const LoopModel *m, const LoopOptions *o, LoopEnd *end, ErrorText e) {
    Loop l = {.model = m,
              .o = o,
              .log.fd = -1,
              .lock = -1,
              .loss = (double)NAN,
              .best = (double)NAN,
              .e = e};
    *end = (LoopEnd){.loss = (double)NAN, .best_loss = (double)NAN};
    graphc_status st = begin(&l);
    if (st == GRAPHC_OK) {
        st = run(&l, end);
        /* The page also of a run that failed; what failed first is said. */
        graphc_status page = log_html(l.lines, l.page, o->title ? o->title : o->folder,
                                      st == GRAPHC_OK ? e : (ErrorText){NULL, 0});
        if (st == GRAPHC_OK) st = page;
    }
    end->step = l.step;
    if (!isnan(l.loss)) end->loss = l.loss;
    end->best_loss = l.best;
    log_close(&l.log);
    if (l.lock >= 0) close(l.lock);
    order_free(&l.order);
    free(l.checkpoints);
    free(l.lines);
    free(l.page);
    free(l.rows);
    return st;
}
