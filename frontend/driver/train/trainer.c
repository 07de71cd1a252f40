#include "frontend/driver/train/trainer.h"
#include "frontend/driver/train/adapted.h"
#include "runtime/train/data/random.h"
#include "runtime/train/loop.h"
#include "runtime/train/safetensors.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct Trainer {
    const TrainerOptions *o;
    const graphc_plan *plan;
    graphc_session *session;
    ErrorText e;
    Feed feed, eval;
    RateSchedule schedule;
    float lr; /* what the plan's scalars are bound to */
    int64_t step, generator;       /* generator: negative where nothing is drawn */
    uint32_t evaluate, accumulate; /* numbers of those entries */
    volatile sig_atomic_t stop;    /* SIGINT came */
} Trainer;

static uint64_t peak_bytes(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}

/* Why a call on the session failed. */
static graphc_status failed(Trainer *t, graphc_status st) {
    return error_set(t->e, st, "%s", graphc_session_error(t->session));
}

/* --- States -------------------------------------------------------------------------------------
 */

static graphc_tensor state_tensor(const graphc_io_info *io) {
    graphc_tensor t = {.device = GRAPHC_CPU, .dtype = io->dtype, .rank = io->rank};
    for (int32_t i = 0; i < io->rank; i++) t.shape[i] = strtoll(io->dims[i], NULL, 10);
    return t;
}

static uint64_t numel(const graphc_tensor *t) {
    uint64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++) n *= (uint64_t)t->shape[i];
    return n;
}

/* Uniform in +-spread, 53 bits each. */
static void draw(float *p, uint64_t n, double spread, uint64_t *random) {
    for (uint64_t i = 0; i < n; i++)
        p[i] = (float)(spread * ((double)(random_next(random) >> 11) * 0x1p-52 - 1));
}

static graphc_status start_param(Trainer *t, const TrainerParam *p, uint64_t *random) {
    int32_t i = graphc_plan_find_state(t->plan, p->state);
    graphc_io_info io = graphc_plan_state(t->plan, (uint32_t)i);
    graphc_tensor x = state_tensor(&io);
    uint64_t n = numel(&x);
    x.data = malloc(n * sizeof(float) + 1);
    if (!x.data) return error_set(t->e, GRAPHC_NO_MEMORY, "%s", p->state);
    draw(x.data, n, p->spread, random);
    graphc_status st = graphc_state_write(t->session, (uint32_t)i, &x);
    free(x.data);
    return st == GRAPHC_OK ? st : failed(t, st);
}

static graphc_status start_params(Trainer *t) {
    uint64_t random = t->o->seed;
    for (uint32_t i = 0; i < t->o->nparams; i++)
        if (t->o->params[i].spread != 0) GC_TRY(start_param(t, &t->o->params[i], &random));
    return GRAPHC_OK;
}

static graphc_status put_state(Trainer *t, SafetensorsWriter *w, const SafeTensor *s,
                               const char *state) {
    int32_t i = graphc_plan_find_state(t->plan, state);
    graphc_io_info io = graphc_plan_state(t->plan, (uint32_t)i);
    graphc_tensor x = state_tensor(&io);
    x.data = malloc(s->bytes + 1);
    if (!x.data) return error_set(t->e, GRAPHC_NO_MEMORY, "%s", state);
    graphc_status st = graphc_state_read(t->session, (uint32_t)i, &x);
    st = st == GRAPHC_OK ? safetensors_put(w, x.data, s->bytes, t->e) : failed(t, st);
    free(x.data);
    return st;
}

static void describe(Trainer *t, SafeTensor *s, int64_t (*dims)[GRAPHC_MAX_RANK]) {
    for (uint32_t i = 0; i < t->o->nparams; i++) {
        const TrainerParam *p = &t->o->params[i];
        graphc_io_info io =
            graphc_plan_state(t->plan, (uint32_t)graphc_plan_find_state(t->plan, p->state));
        graphc_tensor x = state_tensor(&io);
        memcpy(dims[i], x.shape, sizeof dims[i]);
        s[i] = (SafeTensor){.name = p->file_name, .rank = (uint32_t)io.rank, .dim = dims[i]};
        (void)dtype_from_name(io.dtype_name, &s[i].dtype);
        (void)safetensors_bytes(s[i].dtype, s[i].rank, s[i].dim, &s[i].bytes);
    }
}

static graphc_status write_all(Trainer *t, const char *path, SafeTensor *s) {
    static const SafePair format = {"format", "pt"};
    SafetensorsWriter w;
    graphc_status st = safetensors_begin(&w, path, s, t->o->nparams, &format, 1, false, t->e);
    for (uint32_t i = 0; i < t->o->nparams && st == GRAPHC_OK; i++)
        st = put_state(t, &w, &s[w.order[i]], t->o->params[w.order[i]].state);
    if (st == GRAPHC_OK) return safetensors_commit(&w, t->e);
    safetensors_abandon(&w);
    return st;
}

static graphc_status write_params(Trainer *t) {
    char path[4096];
    const TrainerOptions *o = t->o;
    if (o->adapter)
        return adapted_write(o->folder, o->adapter, o->modules, o->nmodules, t->plan, t->session,
                             t->e);
    snprintf(path, sizeof path, "%s/model.safetensors", o->folder);
    SafeTensor *s = calloc((size_t)t->o->nparams + 1, sizeof *s);
    int64_t(*dims)[GRAPHC_MAX_RANK] = calloc((size_t)t->o->nparams + 1, sizeof *dims);
    graphc_status st = GRAPHC_NO_MEMORY;
    if (s && dims) {
        describe(t, s, dims);
        st = write_all(t, path, s);
    }
    free(s);
    free(dims);
    return st;
}

/* --- Steps --------------------------------------------------------------------------------------
 */

static graphc_status bind_scalar(Trainer *t, const char *name, const graphc_tensor *x) {
    int32_t i = graphc_plan_find_input(t->plan, name);
    if (i < 0)
        return error_set(t->e, GRAPHC_INVALID, "the plan has no input \"%s\": it does not train",
                         name);
    graphc_status st = graphc_bind_input(t->session, (uint32_t)i, x);
    return st == GRAPHC_OK ? st : failed(t, st);
}

static graphc_status bind_scalars(Trainer *t) {
    graphc_tensor lr = {.data = &t->lr, .device = GRAPHC_CPU, .dtype = {2, 32, 1}};
    graphc_tensor step = {.data = &t->step, .device = GRAPHC_CPU, .dtype = {0, 64, 1}};
    graphc_tensor generator = {.data = &t->generator, .device = GRAPHC_CPU, .dtype = {0, 64, 1}};
    GC_TRY(bind_scalar(t, "lr", &lr));
    GC_TRY(bind_scalar(t, "step", &step));
    bool draws = graphc_plan_find_input(t->plan, "generator") >= 0;
    return draws ? bind_scalar(t, "generator", &generator) : GRAPHC_OK;
}

static graphc_status read_scalar(Trainer *t, const char *name, double *out) {
    int32_t i = graphc_plan_find_output(t->plan, name);
    graphc_tensor x;
    if (i < 0) return error_set(t->e, GRAPHC_INVALID, "the plan has no output \"%s\"", name);
    graphc_status st = graphc_output_host(t->session, (uint32_t)i, &x);
    if (st != GRAPHC_OK) return failed(t, st);
    return *out = (double)*(const float *)x.data, GRAPHC_OK;
}

/* A batch through an entry. Reading what it gives waits for it: its arrays are filled anew then. */
static graphc_status take_batch(Trainer *t, const uint64_t *rows, uint32_t entry, double *sum) {
    graphc_status st = feed_take(&t->feed, t->session, rows);
    if (st == GRAPHC_OK) st = graphc_run_entry(t->session, entry);
    return st == GRAPHC_OK ? read_scalar(t, "loss_sum", sum) : failed(t, st);
}

static bool interrupted(void) {
    sigset_t came;
    return sigpending(&came) == 0 && sigismember(&came, SIGINT) == 1;
}

/* From here on what the loop calls; self is the trainer, whose messages go where the loop's do. */
static graphc_status take_step(void *self, const LoopStep *l, LoopResult *out, ErrorText e) {
    Trainer *t = self;
    double sum;
    t->e = e;
    t->step = (int64_t)l->step;
    t->lr = (float)l->lr;
    *out = (LoopResult){0};
    for (uint32_t i = 0; i < l->accumulate; i++) {
        uint64_t draw = l->generator + i;
        t->generator = (int64_t)(draw & INT64_MAX);
        GC_TRY(take_batch(t, l->rows + (size_t)i * l->batch,
                          i + 1 < l->accumulate ? t->accumulate : 0, &sum));
        out->tokens += feed_tokens(&t->feed);
    }
    out->peak_bytes = peak_bytes();
    t->stop = interrupted();
    GC_TRY(read_scalar(t, "loss", &out->loss));
    return read_scalar(t, "grad_norm", &out->grad_norm);
}

/* The mean loss of what is held out: sums over all batches, divided once. */
static graphc_status evaluate(void *self, double *loss, ErrorText e) {
    Trainer *t = self;
    double sum = 0, weight = 0, a, b;
    t->e = e;
    t->generator = -1;
    feed_rewind(&t->eval);
    for (uint64_t i = 0; i < feed_batches(&t->eval); i++) {
        graphc_status st = feed_next(&t->eval, t->session);
        if (st == GRAPHC_OK) st = graphc_run_entry(t->session, t->evaluate);
        if (st != GRAPHC_OK) return failed(t, st);
        GC_TRY(read_scalar(t, "loss_sum", &a));
        GC_TRY(read_scalar(t, "loss_weight", &b));
        sum += a;
        weight += b;
    }
    *loss = sum / weight;
    return GRAPHC_OK;
}

static graphc_status save_states(void *self, const char *path, ErrorText e) {
    Trainer *t = self;
    t->e = e;
    graphc_status st = graphc_states_save(t->session, path);
    return st == GRAPHC_OK ? st : failed(t, st);
}

static graphc_status load_states(void *self, const char *path, ErrorText e) {
    Trainer *t = self;
    t->e = e;
    graphc_status st = graphc_states_load(t->session, path);
    return st == GRAPHC_OK ? st : failed(t, st);
}

static graphc_status all_steps(Trainer *t) {
    const TrainerOptions *o = t->o;
    const LoopModel model = {.self = t,
                             .step = take_step,
                             .evaluate = o->eval.nfiles ? evaluate : NULL,
                             .save = save_states,
                             .load = load_states};
    const LoopOptions loop = {.rows = feed_rows(&t->feed),
                              .batch = o->feed.batch,
                              .accumulate = o->accumulate,
                              .seed = o->seed,
                              .shuffle = o->feed.shuffle,
                              .schedule = t->schedule,
                              .eval_every = o->eval_every,
                              .save_every = o->save_every,
                              .keep = 1,
                              .patience = o->patience,
                              .folder = o->folder,
                              .title = "graphc train",
                              .resume = o->resume,
                              .options = o->said,
                              .noptions = o->nsaid,
                              .json = o->json ? stdout : NULL,
                              .progress = o->json ? NULL : stderr,
                              .stop = &t->stop};
    LoopEnd end;
    return loop_run(&model, &loop, &end, t->e);
}

/* How many steps there are is known once the data is read. */
static graphc_status plan_steps(Trainer *t) {
    const TrainerOptions *o = t->o;
    t->schedule = o->schedule;
    t->schedule.steps =
        o->steps ? o->steps
                 : schedule_steps(feed_rows(&t->feed), o->epochs, o->feed.batch, o->accumulate);
    t->schedule.warmup = schedule_part(o->warmup, t->schedule.steps);
    t->schedule.decay = schedule_part(o->decay, t->schedule.steps);
    return schedule_check(&t->schedule, t->e);
}

graphc_status trainer_run(const TrainerOptions *o, const graphc_plan *plan, graphc_session *s,
                          ErrorText e) {
    Trainer t = {.o = o, .plan = plan, .session = s, .e = e};
    int32_t entry = graphc_plan_find_entry(plan, "evaluate");
    if (entry < 0)
        return error_set(e, GRAPHC_INVALID,
                         "the plan has no entry \"evaluate\": it does not train");
    t.evaluate = (uint32_t)entry;
    entry = graphc_plan_find_entry(plan, "accumulate");
    if (entry < 0 && o->accumulate > 1)
        return error_set(e, GRAPHC_INVALID, "the plan has no entry \"accumulate\"");
    t.accumulate = entry < 0 ? 0 : (uint32_t)entry;
    graphc_status st = feed_open(&t.feed, &o->feed, plan, e);
    if (st == GRAPHC_OK && o->eval.nfiles) st = feed_open(&t.eval, &o->eval, plan, e);
    if (st == GRAPHC_OK) st = plan_steps(&t);
    if (st == GRAPHC_OK) st = bind_scalars(&t);
    if (st == GRAPHC_OK) st = start_params(&t);
    if (st == GRAPHC_OK) st = all_steps(&t);
    if (st == GRAPHC_OK) st = write_params(&t);
    feed_close(&t.feed);
    feed_close(&t.eval);
    return st;
}
