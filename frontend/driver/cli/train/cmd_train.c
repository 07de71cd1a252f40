/* graphc train and finetune: a training plan of the model, then the loop over it. */
#include "frontend/driver/cli/kept.h"
#include "frontend/driver/cli/session.h"
#include "frontend/driver/nonfinite.h"
#include "graph/grad/layer.h"
#include "runtime/base/file.h"
#include "runtime/base/map.h"
#include "runtime/plan.h"
#include "runtime/train/trainer/run.h"
#include "runtime/train/trainer/trainer.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_BATCH 8
#define DEFAULT_SEQ   128
#define DEFAULT_LR    1e-4
#define MOST_SKIPPED  100 /* steps in a row */

/* NAME=FILE, else tokens. */
static bool arrays_given(const TrainArgs *a) {
    return a->data.n && strchr(a->data.v[0], '=');
}

static bool skips(const TrainArgs *a) {
    return a->on_nan && strcmp(a->on_nan, "skip") == 0;
}

static graphc_training training_of(const Cli *c) {
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
    t.guard = skips(a);
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

static graphc_status schedule_of(Cli *c, RateSchedule *out) {
    const TrainArgs *a = &c->train;
    const char *name = a->schedule ? a->schedule : "constant";
    *out = (RateSchedule){.lr = a->lr >= 0 ? a->lr : DEFAULT_LR,
                          .min = a->min_lr >= 0 ? a->min_lr : 0};
    if (schedule_from_name(name, &out->kind)) return GRAPHC_OK;
    return diag(c->diags, D_USAGE, "--schedule", "there is no schedule \"%s\"", name);
}

static const char *count_text(Cli *c, uint64_t n) {
    return arena_printf(c->arena, "%llu", (unsigned long long)n);
}

static const char *real_text(Cli *c, double v) {
    return arena_printf(c->arena, "%.15g", v);
}

/* Of an option that is negative where it is not given. */
static const char *given_text(Cli *c, double v) {
    return v >= 0 ? real_text(c, v) : NULL;
}

/* Of weights in files of their own, as far as a plan recognises them. */
static const char *weights_text(Cli *c, const Graph *g) {
    uint64_t h = 0;
    for (Value v = 1; v < g->nodes.n; v++) {
        const Op op = (Op)graph_node(g, v)->op;
        const Constant *k = op == OP_const || op == OP_state ? layer_elements(g, v) : NULL;
        if (!k || !k->file) continue;
        const uint64_t pair[] = {h, plan_probe_hash(k->data, k->bytes)};
        h = hash_bytes(pair, sizeof pair, 0);
    }
    return h ? arena_printf(c->arena, "%016llx", (unsigned long long)h) : "";
}

/* Whether a step's rate depends on how many there are in all. */
static bool rates_follow_steps(const RunOptions *o) {
    return o->schedule.kind != SCHEDULE_constant || (o->warmup > 0 && o->warmup < 1);
}

/* What a run that goes on has to have been started with. Where nothing that a step computes depends
 * on how many there are, it may go on for longer than it was to. */
static void list_said(Cli *c, const Graph *model, RunOptions *o) {
    const TrainArgs *a = &c->train;
    const SafePair said[] = {
        {"--loss", c->loss},
        {"the weights' hash", weights_text(c, model)},
        {"--lora", a->lora},
        {"--train", a->learn},
        {"--freeze", a->freeze},
        {"--batch-norm", a->batch_norm},
        {"--dropout", a->dropout},
        {"--optimizer", a->optimizer},
        {"--token-type", a->token_type},
        {"--end-token", a->end_token == UINT64_MAX ? NULL : count_text(c, a->end_token)},
        {"--batch", count_text(c, a->batch)},
        {"--seq", count_text(c, a->seq)},
        {"--accumulate", count_text(c, a->accumulate)},
        {"--no-packing", a->no_packing ? "given" : "not given"},
        {"--no-shuffle", a->no_shuffle ? "given" : "not given"},
        {"--seed", count_text(c, c->seed)},
        {"--hold-out", given_text(c, a->hold_out)},
        {"--lr", real_text(c, o->schedule.lr)},
        {"--min-lr", real_text(c, o->schedule.min)},
        {"--schedule", schedule_name(o->schedule.kind)},
        {"--warmup", real_text(c, o->warmup)},
        {"--decay", real_text(c, o->decay)},
        {"--weight-decay", given_text(c, a->weight_decay)},
        {"--no-decay", a->no_decay},
        {"--on-nan", skips(a) ? "skip" : "stop"}, /* of which the plan's states are */
        {"--head-rows", count_text(c, a->head_rows)},
        {"--loss-scale", given_text(c, a->loss_scale)},
        {"--scale-every", count_text(c, a->scale_every)},
        {"--clip", real_text(c, a->clip)},
        {"--beta1", given_text(c, a->beta1)},
        {"--beta2", given_text(c, a->beta2)},
        {"--eps", given_text(c, a->eps)},
        {"--momentum", given_text(c, a->momentum)},
        {"--nesterov", a->nesterov ? "given" : "not given"},
        {"--precision", c->precision},
        {"--steps", a->steps ? count_text(c, a->steps) : NULL}, /* these at the end: see below */
        {"--epochs", given_text(c, a->epochs)}};
    enum { COUNT = sizeof said / sizeof *said, LENGTHS = 2 };
    SafePair *v = arena_copy(c->arena, said, sizeof said);
    for (uint32_t i = 0; i < COUNT; i++)
        if (!v[i].value) v[i].value = "";
    o->said = v;
    o->nsaid = rates_follow_steps(o) ? COUNT : COUNT - LENGTHS;
}

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

static graphc_status check_args(Cli *c) {
    TrainArgs *a = &c->train;
    if (a->memory_budget && !size_of(a->memory_budget, &a->budget))
        return diag(c->diags, D_USAGE, "--memory-budget", "\"%s\" is no size like 8GB",
                    a->memory_budget);
    bool lora = strcmp(c->verb->name, "finetune") == 0;
    GC_TRY(check_word(c, "--batch-norm", a->batch_norm, "train", "frozen"));
    GC_TRY(check_word(c, "--dropout", a->dropout, "on", "off"));
    if (!c->loss) return cli_usage(c, "--loss is missing");
    if (!c->output) return cli_usage(c, "-o is missing");
    if (!a->plan_only && !a->data.n) return cli_usage(c, "--data is missing");
    if (lora && !a->lora) a->lora = "targets=all-linear";
    if (!a->accumulate) a->accumulate = 1;
    if (!a->plan_only) { /* a plan alone is for any size that is not given */
        if (!a->batch) a->batch = DEFAULT_BATCH;
        if (!a->seq) a->seq = DEFAULT_SEQ;
    }
    if (a->on_nan && !skips(a) && strcmp(a->on_nan, "stop") != 0)
        return cli_usage(c, "--on-nan is stop or skip");
    if (a->hold_out == 0) return cli_usage(c, "--hold-out 0 holds nothing out");
    if ((a->eval_every || a->patience) && a->hold_out < 0 && !a->eval_data.n)
        return cli_usage(c, "--eval-every and --patience need --eval-data or --hold-out");
    if (a->patience && !a->eval_every)
        return cli_usage(c, "--patience counts measurements: --eval-every is missing");
    if (a->decay >= 0 && (!a->schedule || strcmp(a->schedule, "wsd") != 0))
        return cli_usage(c, "--decay is for --schedule wsd");
    if (a->min_lr >= 0 &&
        (!a->schedule || strcmp(a->schedule, schedule_name(SCHEDULE_constant)) == 0))
        return cli_usage(c, "--min-lr is for --schedule linear, cosine or wsd");
    if (a->hold_out >= 0 && a->eval_data.n)
        return cli_usage(c, "--hold-out and --eval-data are both given");
    if (a->token_type && strcmp(a->token_type, "u16") && strcmp(a->token_type, "u32"))
        return diag(c->diags, D_USAGE, "--token-type", "\"%s\" is neither u16 nor u32",
                    a->token_type);
    if (a->epochs == 0) return cli_usage(c, "--epochs 0 learns nothing");
    if (a->steps && a->epochs >= 0) return cli_usage(c, "--steps and --epochs are both given");
    return GRAPHC_OK;
}

/* Of .bin files. */
static TokenFormat token_format(const TrainArgs *a) {
    if (!a->token_type) return TOKENS_auto;
    return strcmp(a->token_type, "u16") == 0 ? TOKENS_u16 : TOKENS_u32;
}

static graphc_status write_plan(Cli *c, const Pipeline *p) {
    char why[256];
    GC_TRY(cli_keep_model(c, p->imported, c->output, "the plan"));
    if (file_write(c->output, p->plan, p->plan_size, why) == GRAPHC_OK) return GRAPHC_OK;
    return diag(c->diags, D_IO, c->output, "%s", why);
}

static graphc_status failed(Cli *c, graphc_status st, const char *why) {
    DiagId id = st == GRAPHC_NO_MEMORY     ? D_NO_MEMORY
                : st == GRAPHC_IO          ? D_IO
                : st == GRAPHC_INVALID     ? D_DATA
                : st == GRAPHC_USAGE       ? D_USAGE
                : st == GRAPHC_MISMATCH    ? D_USAGE
                : st == GRAPHC_UNSUPPORTED ? D_UNSUPPORTED
                                           : D_RUN;
    (void)diag(c->diags, id, "", "%s", why);
    if (st == GRAPHC_MISMATCH)
        diag_hint(c->diags,
                  "a run may get other --steps or --epochs, with --schedule constant and "
                  "no --warmup below 1: other rates follow from how many steps there are");
    return diag_info[id].status;
}

/* --- Ctrl-C: the loop ends after the step at hand, with a checkpoint -------------------------- */

typedef struct Interrupts {
    sigset_t before;
} Interrupts;

static void interrupts_hold(Interrupts *i) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &set, &i->before);
}

/* The one that came is done with: the run has ended as it asked. */
static void interrupts_release(const Interrupts *i) {
    const struct timespec now = {0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    (void)sigtimedwait(&set, NULL, &now);
    (void)pthread_sigmask(SIG_SETMASK, &i->before, NULL);
}

/* Why there are fewer steps than were asked for. */
static void say_end(const Cli *c, const LoopEnd *end) {
    unsigned long long steps = end->step;
    if (end->early)
        fprintf(
            stderr,
            "graphc: ended after step %llu: %llu measurements in a row were no lower than %.4f\n",
            steps, (unsigned long long)c->train.patience, end->best_loss);
    if (end->stopped)
        fprintf(stderr, "graphc: interrupted after step %llu; --resume goes on\n", steps);
    if (end->left_out)
        fprintf(stderr,
                "graphc: %llu of the held-out rows are left out: they fill no batch of %llu\n",
                (unsigned long long)end->left_out, (unsigned long long)c->train.batch);
}

/* The last line: what lies where. Lines of JSON have said all of it. */
static void say_done(const Cli *c, const LoopEnd *end) {
    const bool held = c->train.hold_out >= 0 || c->train.eval_data.n;
    if (c->json) return;
    cli_print(stdout, "%s: %s learnt in %llu steps", c->output,
              c->train.lora ? "adapter" : "weights", (unsigned long long)end->step);
    if (!isnan(end->loss))
        cli_print(stdout, ", %s %.4f", held ? "held-out loss" : "loss", end->loss);
    cli_print(stdout, "\n");
}

static graphc_status keep_weights(Cli *c, const Graph *model) {
    const char *learnt = arena_printf(c->arena, "%s/" TRAINER_WEIGHTS, c->output);
    return c->train.lora ? GRAPHC_OK : cli_keep_model(c, model, learnt, "what is learnt");
}

static graphc_status loop(Cli *c, const Pipeline *p) {
    LoopEnd end;
    const TrainArgs *a = &c->train;
    char why[1024];
    CliSession s = {.cli = c};
    RunOptions o = {.steps = a->steps,
                    .epochs = a->epochs >= 0 ? a->epochs : 1,
                    .warmup = a->warmup >= 0 ? a->warmup : 0,
                    .decay = a->decay >= 0 ? a->decay : 0,
                    .seed = c->seed,
                    .folder = c->output,
                    .json = c->json};
    o.feed = (FeedOptions){.files = a->data.v,
                           .nfiles = a->data.n,
                           .batch = (uint32_t)a->batch,
                           .seq = (uint32_t)a->seq,
                           .end = a->end_token == UINT64_MAX ? -1 : (int64_t)a->end_token,
                           .format = token_format(a),
                           .packed = !a->no_packing,
                           .shuffle = !a->no_shuffle,
                           .seed = c->seed};
    o.eval = o.feed;
    if (a->hold_out >= 0)
        o.feed.hold_out = o.eval.hold_out = a->hold_out, o.eval.held = true;
    else
        o.eval.files = a->eval_data.v, o.eval.nfiles = a->eval_data.n;
    o.accumulate = (uint32_t)a->accumulate;
    o.eval_every = a->eval_every;
    o.save_every = a->save_every;
    o.patience = (uint32_t)a->patience;
    o.skip = skips(a) ? MOST_SKIPPED : 0;
    NonFinite seen = {.schedule = p->targets[0].schedule};
    o.look = nonfinite_look;
    o.look_context = &seen;
    o.resume = a->resume;
    GC_TRY(keep_weights(c, p->imported));
    GC_TRY(schedule_of(c, &o.schedule));
    list_said(c, p->imported, &o);
    if (folder_make(c->output, why) != GRAPHC_OK) return diag(c->diags, D_IO, c->output, "%s", why);
    if (!(o.config = cli_config_text(c))) return diag(c->diags, D_NO_MEMORY, "", "the options");
    Interrupts kept;
    interrupts_hold(&kept); /* threads of the session do as this one */
    graphc_status st = cli_session_make(&s, c, c->args.v[0], p->plan, p->plan_size);
    if (st == GRAPHC_OK) {
        st = train_run(&o, s.plan, s.session, &end, (ErrorText){why, sizeof why});
        if (st != GRAPHC_OK)
            st = failed(c, st, why);
        else
            say_end(c, &end), say_done(c, &end);
    }
    cli_session_close(&s);
    interrupts_release(&kept);
    return st;
}

graphc_status cmd_train(Cli *c) {
    GC_TRY(check_args(c));
    Pipeline p;
    graphc_training training = training_of(c);
    graphc_session_options device = GRAPHC_SESSION_OPTIONS_INIT;
    CliSession probe = {.cli = c};
    GC_TRY(cli_session_device(&probe, &device));
    const Cli for_device = cli_for_device(c, &device);
    graphc_compile_options o = cli_compile_options(&for_device);
    o.training = &training;
    cli_pipeline_init(c->train.plan_only ? c : &for_device, &p, c->args.v[0]);
    graphc_status st = pipeline_run(&p, c->args.v[0], &o);
    cli_print_diags(p.diags);
    if (st == GRAPHC_OK) st = c->train.plan_only ? write_plan(c, &p) : loop(c, &p);
    pipeline_free(&p);
    return st;
}
