/* From options to what compiling and running take. */
#include "frontend/driver/cli/train/train.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_BATCH 8
#define DEFAULT_SEQ   128
#define DEFAULT_LR    1e-4
#define MOST_SKIPPED  100 /* steps in a row */

bool train_skips(const TrainArgs *a) {
    return a->on_nan && strcmp(a->on_nan, "skip") == 0;
}

/* --- Checking --------------------------------------------------------------------------------- */

/* One of two words, or not given. */
static graphc_status check_word(Cli *c, const char *option, const char *text, const char *first,
                                const char *second) {
    if (!text || strcmp(text, first) == 0 || strcmp(text, second) == 0) return GRAPHC_OK;
    return cli_usage(c, arena_printf(c->arena, "%s is %s or %s", option, first, second));
}

/* 512M, 8GB, 8GiB: powers of 1000, of 1024 with an i. */
static bool size_of(const char *s, uint64_t *out) {
    static const char units[] = "KMGT";
    char *end;
    double v = strtod(s, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        double step = end[1] == 'i' ? 1024 : 1000;
        for (long i = unit - units; i >= 0; i--) v *= step;
        end += end[1] == 'i' ? 2 : 1;
    }
    if (*end == 'B') end++;
    *out = v >= 1 && v < 1e18 ? (uint64_t)v : 0;
    return !*end && *out;
}

/* Values that no option of the kind has. */
static graphc_status check_values(Cli *c) {
    TrainArgs *a = &c->train;
    ScheduleKind kind;
    if (a->memory_budget && !size_of(a->memory_budget, &a->budget))
        return diag(c->diags, D_USAGE, "--memory-budget", "\"%s\" is no size like 8GB",
                    a->memory_budget);
    GC_TRY(check_word(c, "--batch-norm", a->batch_norm, "train", "frozen"));
    GC_TRY(check_word(c, "--dropout", a->dropout, "on", "off"));
    GC_TRY(check_word(c, "--on-nan", a->on_nan, "stop", "skip"));
    if (a->schedule && !schedule_from_name(a->schedule, &kind))
        return diag(c->diags, D_USAGE, "--schedule", "there is no schedule \"%s\"", a->schedule);
    if (a->token_type && strcmp(a->token_type, "u16") && strcmp(a->token_type, "u32"))
        return diag(c->diags, D_USAGE, "--token-type", "\"%s\" is neither u16 nor u32",
                    a->token_type);
    if (a->hold_out == 0) return cli_usage(c, "--hold-out 0 holds nothing out");
    if (a->epochs == 0) return cli_usage(c, "--epochs 0 learns nothing");
    return GRAPHC_OK;
}

static bool has_schedule(const TrainArgs *a, const char *schedule) {
    return strcmp(a->schedule ? a->schedule : schedule_name(SCHEDULE_constant), schedule) == 0;
}

/* Options without the one that they need, or with one that says otherwise. */
static graphc_status check_together(Cli *c) {
    const TrainArgs *a = &c->train;
    if ((a->eval_every || a->patience) && a->hold_out < 0 && !a->eval_data.n)
        return cli_usage(c, "--eval-every and --patience need --eval-data or --hold-out");
    if (a->patience && !a->eval_every)
        return cli_usage(c, "--patience counts measurements: --eval-every is missing");
    if (a->decay >= 0 && !has_schedule(a, schedule_name(SCHEDULE_wsd)))
        return cli_usage(c, "--decay is for --schedule wsd");
    if (a->min_lr >= 0 && has_schedule(a, schedule_name(SCHEDULE_constant)))
        return cli_usage(c, "--min-lr is for --schedule linear, cosine or wsd");
    if (a->hold_out >= 0 && a->eval_data.n)
        return cli_usage(c, "--hold-out and --eval-data are both given");
    if (a->steps && a->epochs >= 0) return cli_usage(c, "--steps and --epochs are both given");
    return GRAPHC_OK;
}

graphc_status train_check(Cli *c) {
    TrainArgs *a = &c->train;
    if (!c->loss) return cli_usage(c, "--loss is missing");
    if (!c->output) return cli_usage(c, "-o is missing");
    if (!a->plan_only && !a->data.n) return cli_usage(c, "--data is missing");
    GC_TRY(check_values(c));
    GC_TRY(check_together(c));
    if (strcmp(c->verb->name, "finetune") == 0 && !a->lora) a->lora = "targets=all-linear";
    if (!a->accumulate) a->accumulate = 1;
    if (a->plan_only) return GRAPHC_OK; /* for any size that is not given */
    if (!a->batch) a->batch = DEFAULT_BATCH;
    if (!a->seq) a->seq = DEFAULT_SEQ;
    return GRAPHC_OK;
}

/* --- For compiling ---------------------------------------------------------------------------- */

/* NAME=FILE, else tokens. */
static bool arrays_given(const TrainArgs *a) {
    return a->data.n && strchr(a->data.v[0], '=');
}

graphc_training train_compile_options(const Cli *c) {
    const TrainArgs *a = &c->train;
    graphc_training t = GRAPHC_TRAINING_INIT;
    t.loss = c->loss;
    t.optimizer = a->optimizer;
    t.beta1 = a->beta1, t.beta2 = a->beta2, t.eps = a->eps;
    t.weight_decay = a->weight_decay, t.momentum = a->momentum;
    t.nesterov = a->nesterov;
    t.clip = a->clip;
    t.train = a->learn, t.freeze = a->freeze;
    t.frozen_batch_norm = a->batch_norm && strcmp(a->batch_norm, "frozen") == 0;
    t.no_dropout = a->dropout && strcmp(a->dropout, "off") == 0;
    t.lora = a->lora;
    t.accumulate = a->accumulate > 1;
    t.documents = !a->no_packing && !a->plan_only && !arrays_given(a);
    t.no_decay = a->no_decay;
    t.guard = train_skips(a);
    t.loss_scale = a->loss_scale;
    t.scale_every = (uint32_t)a->scale_every;
    t.head_rows = (uint32_t)a->head_rows;
    t.batch = (uint32_t)a->batch;
    t.seq = arrays_given(a) ? 0 : (uint32_t)a->seq;
    t.checkpoint = a->checkpoint;
    t.memory_budget = a->budget;
    t.any_order = a->any_order;
    return t;
}

/* --- For the run ------------------------------------------------------------------------------ */

static RateSchedule schedule_of(const TrainArgs *a) {
    RateSchedule s = {.lr = a->lr >= 0 ? a->lr : DEFAULT_LR, .min = a->min_lr >= 0 ? a->min_lr : 0};
    if (a->schedule) (void)schedule_from_name(a->schedule, &s.kind);
    return s;
}

/* Of .bin files. */
static TokenFormat token_format(const TrainArgs *a) {
    if (!a->token_type) return TOKENS_auto;
    return strcmp(a->token_type, "u16") == 0 ? TOKENS_u16 : TOKENS_u32;
}

static FeedOptions feed_of(const Cli *c) {
    const TrainArgs *a = &c->train;
    return (FeedOptions){.files = a->data.v,
                         .nfiles = a->data.n,
                         .batch = (uint32_t)a->batch,
                         .seq = (uint32_t)a->seq,
                         .end = a->end_token == UINT64_MAX ? -1 : (int64_t)a->end_token,
                         .format = token_format(a),
                         .packed = !a->no_packing,
                         .shuffle = !a->no_shuffle,
                         .seed = c->seed};
}

RunOptions train_run_options(const Cli *c) {
    const TrainArgs *a = &c->train;
    RunOptions o = {.feed = feed_of(c),
                    .accumulate = (uint32_t)a->accumulate,
                    .eval_every = a->eval_every,
                    .schedule = schedule_of(a),
                    .steps = a->steps,
                    .epochs = a->epochs >= 0 ? a->epochs : 1,
                    .warmup = a->warmup >= 0 ? a->warmup : 0,
                    .decay = a->decay >= 0 ? a->decay : 0,
                    .save_every = a->save_every,
                    .skip = train_skips(a) ? MOST_SKIPPED : 0,
                    .patience = (uint32_t)a->patience,
                    .resume = a->resume,
                    .seed = c->seed,
                    .folder = c->output,
                    .json = c->json};
    o.eval = o.feed;
    if (a->hold_out >= 0)
        o.feed.hold_out = o.eval.hold_out = a->hold_out, o.eval.held = true;
    else
        o.eval.files = a->eval_data.v, o.eval.nfiles = a->eval_data.n;
    return o;
}
