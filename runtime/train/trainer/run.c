#include "runtime/train/trainer/run.h"
#include "runtime/train/trainer/trainer.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define SETTLING 32 /* halvings of a loss scale, from 65536 to nothing that f16 could hold */

typedef struct Run {
    const RunOptions *o;
    graphc_trainer t;
    Feed feed, eval;
    RateSchedule schedule;
    SafePair *said; /* what the caller says, and what its data and model are */
    char data[64];
    volatile sig_atomic_t stop; /* SIGINT came */
} Run;

/* Of the device's memory, or else of this program: getrusage counts what the one that started it
 * had, too. */
static uint64_t peak_bytes(const graphc_session *s) {
    if (graphc_session_peak(s)) return graphc_session_peak(s);
    struct rusage u;
    char line[256];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && !kb && fgets(line, sizeof line, f)) (void)sscanf(line, "VmHWM: %llu kB", &kb);
    if (f) fclose(f);
    if (!kb && getrusage(RUSAGE_SELF, &u) == 0) kb = (unsigned long long)u.ru_maxrss;
    return (uint64_t)kb * 1024;
}

static bool interrupted(void) {
    sigset_t came;
    return sigpending(&came) == 0 && sigismember(&came, SIGINT) == 1;
}

/* --- What the loop calls ---------------------------------------------------------------------- */

/* The trainer's message is the loop's. */
static graphc_status told(Run *r, graphc_status st, ErrorText e) {
    return st == GRAPHC_OK ? st : error_set(e, st, "%s", r->t.error);
}

/* The next batch is made while a GPU computes. */
static graphc_status learn(Run *r, const LoopStep *l, LoopResult *out) {
    graphc_train_result result;
    const bool parts = r->t.accumulate >= 0;
    for (uint32_t i = 0; i < l->accumulate; i++) {
        const uint64_t *rows = l->rows + (size_t)i * l->batch;
        const uint64_t *next = i + 1 < l->accumulate ? rows + l->batch : l->next;
        GC_TRY(trainer_failed(&r->t, feed_take(&r->feed, r->t.session, rows)));
        out->tokens += feed_tokens(&r->feed);
        GC_TRY(parts ? trainer_begin_part(&r->t) : trainer_begin_step(&r->t, l->lr));
        if (next) feed_prepare(&r->feed, next);
        if (parts) GC_TRY(trainer_end_part(&r->t));
    }
    if (parts) GC_TRY(trainer_begin_step(&r->t, l->lr));
    GC_TRY(trainer_end_step(&r->t, &result));
    out->loss = result.loss;
    out->grad_norm = result.grad_norm;
    out->loss_scale = result.loss_scale;
    return GRAPHC_OK;
}

static graphc_status take_step(void *self, const LoopStep *l, LoopResult *out, ErrorText e) {
    Run *r = self;
    *out = (LoopResult){0};
    r->t.steps = l->step - 1;
    GC_TRY(told(r, learn(r, l, out), e));
    out->peak_bytes = peak_bytes(r->t.session);
    r->stop = interrupted();
    return GRAPHC_OK;
}

/* The step again, looked at: it changed nothing, so it goes as before. */
static void blame(void *self, const LoopStep *l, const LoopResult *result, char *out, size_t size) {
    Run *r = self;
    LoopResult again;
    if (isfinite(result->loss) && graphc_plan_find_state(r->t.plan, "skipped") < 0) {
        snprintf(out, size,
                 "weights took it up: go on from the last checkpoint with --on-nan skip");
        return;
    }
    r->o->look(r->o->look_context, r->t.session, out, size);
    (void)take_step(r, l, &again, (ErrorText){NULL, 0});
    r->o->look(r->o->look_context, r->t.session, NULL, 0);
}

static graphc_status evaluate(void *self, double *loss, ErrorText e) {
    Run *r = self;
    return told(r, trainer_evaluate(&r->t, &r->eval, loss), e);
}

static graphc_status save_states(void *self, const char *path, ErrorText e) {
    Run *r = self;
    return told(r, trainer_failed(&r->t, graphc_states_save(r->t.session, path)), e);
}

static graphc_status load_states(void *self, const char *path, ErrorText e) {
    Run *r = self;
    return told(r, trainer_failed(&r->t, graphc_states_load(r->t.session, path)), e);
}

/* -----------------------------------------------------------------------------------------------
 */

static graphc_status all_steps(Run *r, LoopEnd *end, ErrorText e) {
    const RunOptions *o = r->o;
    const LoopModel model = {.self = r,
                             .step = take_step,
                             .evaluate = o->eval.nfiles ? evaluate : NULL,
                             .save = save_states,
                             .load = load_states,
                             .blame = o->look ? blame : NULL};
    const LoopOptions loop = {.rows = feed_rows(&r->feed),
                              .batch = o->feed.batch,
                              .accumulate = o->accumulate,
                              .seed = o->seed,
                              .shuffle = o->feed.shuffle,
                              .schedule = r->schedule,
                              .eval_every = o->eval_every,
                              .save_every = o->save_every,
                              .held = o->eval.nfiles ? feed_hash(&r->eval) : 0,
                              .keep = 1,
                              .patience = o->patience,
                              .skip = o->skip || !trainer_scaled(&r->t) ? o->skip : SETTLING,
                              .folder = o->folder,
                              .title = "graphc train",
                              .resume = o->resume,
                              .config = o->config,
                              .options = r->said,
                              .noptions = o->nsaid + 2,
                              .json = o->json ? stdout : NULL,
                              .progress = o->json ? NULL : stderr,
                              .stop = &r->stop};
    return loop_run(&model, &loop, end, e);
}

/* A run goes on with the same rows and weights, wherever they lie by now. */
static graphc_status say_what(Run *r, const graphc_plan *plan, ErrorText e) {
    const RunOptions *o = r->o;
    const char *model = graphc_plan_note(plan, "model");
    r->said = calloc(o->nsaid + 2, sizeof *r->said);
    if (!r->said) return error_set(e, GRAPHC_NO_MEMORY, "the options of a run");
    snprintf(r->data, sizeof r->data, "%llu rows, hash %016llx",
             (unsigned long long)feed_rows(&r->feed), (unsigned long long)feed_hash(&r->feed));
    if (o->nsaid) memcpy(r->said, o->said, o->nsaid * sizeof *r->said);
    r->said[o->nsaid] = (SafePair){"data", r->data};
    r->said[o->nsaid + 1] = (SafePair){"the model's hash", model ? model : ""};
    return GRAPHC_OK;
}

/* How many steps there are is known once the data is read. */
static graphc_status plan_steps(Run *r, ErrorText e) {
    const RunOptions *o = r->o;
    r->schedule = o->schedule;
    r->schedule.steps =
        o->steps ? o->steps
                 : schedule_steps(feed_rows(&r->feed), o->epochs, o->feed.batch, o->accumulate);
    r->schedule.warmup = schedule_part(o->warmup, r->schedule.steps);
    r->schedule.decay = schedule_part(o->decay, r->schedule.steps);
    return schedule_check(&r->schedule, e);
}

/* The trainer gives its own scalars; those of the model no file of rows gives. */
static graphc_status check_scalars(const graphc_plan *p, ErrorText e) {
    static const char *const own[] = {"lr", "step", "generator"};
    for (uint32_t i = 0; i < graphc_plan_inputs(p); i++) {
        const graphc_io_info io = graphc_plan_input(p, i);
        bool given = io.rank != 0;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) given |= !strcmp(io.name, own[k]);
        if (!given)
            return error_set(e, GRAPHC_USAGE,
                             "input \"%s\" is a scalar, and data has rows: make it a constant of "
                             "the model",
                             safe_name(io.name).text);
    }
    return GRAPHC_OK;
}

/* What is held out, of the same files or others. */
static graphc_status open_eval(Run *r, const graphc_plan *plan, ErrorText e) {
    const FeedOptions *o = &r->o->eval;
    char why[768] = "";
    if (!o->nfiles) return GRAPHC_OK;
    graphc_status st = feed_open(&r->eval, o, plan, (ErrorText){why, sizeof why});
    if (st != GRAPHC_OK) return error_set(e, st, "what is held out: %s", why);
    if (feed_batches(&r->eval)) return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID, "%llu held-out rows do not fill a batch of %u",
                     (unsigned long long)feed_rows(&r->eval), o->batch);
}

graphc_status train_run(const RunOptions *o, const graphc_plan *plan, graphc_session *s,
                        LoopEnd *end, ErrorText e) {
    Run r = {.o = o};
    GC_TRY(told(&r, trainer_open(&r.t, plan, s, o->seed), e));
    if (o->accumulate > 1 && r.t.accumulate < 0)
        return error_set(e, GRAPHC_INVALID, "the plan has no entry \"accumulate\"");
    GC_TRY(check_scalars(plan, e));
    graphc_status st = feed_open(&r.feed, &o->feed, plan, e);
    if (st == GRAPHC_OK) st = open_eval(&r, plan, e);
    if (st == GRAPHC_OK) st = plan_steps(&r, e);
    if (st == GRAPHC_OK) st = say_what(&r, plan, e);
    if (st == GRAPHC_OK) st = all_steps(&r, end, e);
    if (o->eval.nfiles && r.eval.arrays.n) end->left_out = feed_rows(&r.eval) % o->eval.batch;
    if (st == GRAPHC_OK) st = told(&r, graphc_trainer_export(&r.t, o->folder), e);
    feed_close(&r.feed);
    feed_close(&r.eval);
    free(r.said);
    return st;
}
