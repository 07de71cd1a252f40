/* graphc train and finetune: a training plan of the model, then the loop over it. */
#include "frontend/driver/cli/kept.h"
#include "frontend/driver/cli/session.h"
#include "frontend/driver/cli/train/train.h"
#include "frontend/driver/nonfinite.h"
#include "runtime/base/file.h"
#include "runtime/train/trainer/trainer.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

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
    char why[1024];
    CliSession s = {.cli = c};
    NonFinite seen = {.schedule = p->targets[0].schedule};
    RunOptions o = train_run_options(c);
    o.look = nonfinite_look;
    o.look_context = &seen;
    GC_TRY(keep_weights(c, p->imported));
    train_list_said(c, p->imported, &o);
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
    char why[1024];
    Pipeline p;
    GC_TRY(train_check(c));
    if (!c->train.plan_only) {
        graphc_status st =
            loop_check_folder(c->output, c->train.resume, (ErrorText){why, sizeof why});
        if (st != GRAPHC_OK) return failed(c, st, why);
    }
    graphc_training training = train_compile_options(c);
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
